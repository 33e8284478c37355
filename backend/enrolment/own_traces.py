"""Labelled traces to an enrolment, and to the rows of a roster of their own.

Where sources have different numbers of traces, those of the smaller ones are repeated in training.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any, cast

import duckdb
import numpy as np
import pandas as pd

from backend.corpus.grouping import even_folds, fills_folds
from backend.corpus.labelled import Labelled
from backend.corpus.release import BENCHMARKS
from backend.corpus.roster_rows import describe_proxy
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.fit import assemble, fit_attachments, prompt_attachments, refit_of
from backend.enrolment.head_fits import AUTO, Choice, Fits, FittedHeads, choose, fit_chosen, heads_of
from backend.enrolment.validation_lookup import whole_tokens
from backend.errors import AtlasError
from backend.evaluations.artifacts import write_attribution
from backend.evaluations.attribution import attribution_frames, scan_layers, select_layers
from backend.evaluations.corpus import Corpus, cut_texts, cuts_of
from backend.evaluations.stages.audit import validate
from backend.evaluations.stages.readout_live import live_blocks
from backend.evidence import accumulate
from backend.extraction import extract, list_shards, missing_shards, records_hash
from backend.fingerprints import FingerprintStore, StoreKey
from backend.geometry.maps import Chart, make
from backend.geometry.projections import MIN_SOURCES
from backend.inference.validation import validation_arrays
from backend.methods.readout import Floats, Ints
from backend.methods.registry import LDA_LIVE, OF_TRACES, reader_id, title_of
from backend.progress import ReadingBar, stage_bar
from backend.protocol import BUDGETS, CLEAN, FOLDS, GROUPING_SEEDS, READER_PAPER, SPLIT_SEED, budget_groups
from backend.proxies.reader import Reader, Readout
from backend.proxies.registry import DEFAULT_PROXY, proxy_hash, proxy_key
from backend.store import queries
from backend.store.builds import command_line, recorded
from backend.store.writers import RELEASE_ROSTERS, replace_rows, write_reader, write_sources
from backend.traces import VIEWS, View

LONGEST_NAME = 120
STATELESS = ("domain", "signatures", "prompts")  # attachments that state no error rate
TIME = "time"  # scenario of the later traces
LAST = 0.2  # share of the traces, the latest ones, that a fit to the earlier ones is tested on
PROXY = DEFAULT_PROXY  # reads traces where nobody names one


@dataclass(frozen=True)
class EnrolOptions:
    """How an ecosystem is enrolled."""

    name: str  # becomes the roster and the domain; any text
    proxy: str
    weights_hash: str
    view: View
    layer: int | None = None  # none selects it, fold by fold
    access: str = "api"  # 'local' or 'api', for sources that no other roster describes
    method: str = READER_PAPER  # one of :data:`backend.methods.registry.OF_TRACES`, or 'auto'
    held_out: bool = False  # attach answers to held-out groups

    @property
    def stem(self) -> str:
        return f"{slug(self.name)}-{slug(self.proxy)}-{self.view}"


@dataclass(frozen=True)
class Fitted:
    """An enrolment of labelled traces, and all that is measured with it."""

    scores: pd.DataFrame  # of the layer selection; empty where a block was given
    chosen: pd.DataFrame
    log_posteriors: dict[str, Floats]  # by condition (C * P, C), on the balanced grid, by the enrolled heads
    paper: dict[str, Floats]  # the same by the paper's probe
    folds: Ints  # (P,)
    fingerprints: Floats  # (C * P, 2 d), at the modal block
    modal: int
    validation: pd.DataFrame
    enrolment: Enrolment
    choice: Choice | None = None


def check_name(name: str) -> None:
    """AtlasError for a name that is empty, too long, or of a built-in roster or benchmark."""
    if not name.strip() or len(name) > LONGEST_NAME:
        raise AtlasError(f"A name of {len(name)} characters cannot be shown", f"Give 1 to {LONGEST_NAME} characters")
    if name.strip().casefold() in {*RELEASE_ROSTERS, *BENCHMARKS}:
        raise AtlasError(f"'{name.strip()}' is the name of a built-in roster or benchmark", "Choose another name")


def slug(name: str) -> str:
    """A part of a file name: the name itself where it is plain, else its plain letters and a hash."""
    if re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_-]{0,59}", name):
        return name
    plain = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:40]
    return f"{plain or 'ecosystem'}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def options_for(
    name: str, proxy: str = PROXY, view: str = "ur", *, layer: int | None = None, method: str = AUTO
) -> EnrolOptions:
    """Options of an enrolment by a proxy of the registry; AtlasError for invalid ones, or missing weights."""
    check_name(name)
    if method not in (AUTO, *OF_TRACES):
        choices = ", ".join((AUTO, *OF_TRACES))
        raise AtlasError(f"Labelled traces are not scored by '{method}'", f"Choose from {choices}")
    known = next((one for one in VIEWS if one == view), None)
    if known is None:
        raise AtlasError(f"'{view}' names an input view that does not exist", f"Choose from {', '.join(VIEWS)}")
    return EnrolOptions(name.strip(), proxy_key(proxy), proxy_hash(proxy), known, layer, method=method)


def fit(found: Labelled, reader: Reader, options: EnrolOptions) -> Fitted:
    """Fingerprints, probes, evaluation and validation; the store is not touched."""
    if options.layer is not None and not 1 <= options.layer <= reader.depth:
        raise AtlasError(f"{options.proxy} has no block {options.layer}", f"Its blocks are 1 to {reader.depth}")
    candidates = list(range(1, reader.depth + 1)) if options.layer is None else [options.layer]
    tokens, work = _tokens(found, reader, options.view)
    # Where the proxy is not causal, each cut would need a pass of its own.
    cuts = cuts_of(tokens) if reader.causal else []
    live = live_blocks(options.proxy, depth=reader.depth) if options.method != READER_PAPER else ()
    store = _fingerprints(found, reader, options, sorted({*candidates, *live}), cuts, work)

    def load(layer: int, condition: str = CLEAN) -> Floats:
        return store.load(layer, "full" if condition == CLEAN else condition).astype(np.float32)

    corpus = Corpus(load, cut_texts(found.traces, reader, cuts), tokens, found.labels, found.folds, len(found.sources))
    fit = _fit_heads(corpus, candidates, live, options)
    fits, of_fold, modal, paper, heads, choice = fit.fits, fit.of_fold, fit.modal, fit.paper, fit.heads, fit.choice
    rows, folds = found.grid()
    at = rows.ravel()
    log_posteriors, of_paper = ({c: part[at] for c, part in one.log_posteriors.items()} for one in (heads, paper))
    fingerprints = load(modal)[at]
    whole = [load(block)[at] for block in fits.blocks] if heads.method == LDA_LIVE else []
    validation = _validation(log_posteriors, folds, list(found.families), fingerprints, heads.method, whole)
    forward = _forward(found, corpus, candidates, live, options)
    if not found.complete:  # columns of the grid are different prompts then
        validation = validation[~validation["statistic"].fillna("").str.endswith("-paired")]
    if forward is not None:
        validation = pd.concat([validation, forward], ignore_index=True)
    place = max(of_fold.values()) if heads.method == READER_PAPER else modal
    placed = {c: load(place, c)[at] for c in log_posteriors}
    attachments = fit_attachments(
        log_posteriors, folds, placed, slug(options.name), families=found.families, held_out=options.held_out
    )
    attachments |= prompt_attachments([trace.prompt for trace in found.traces], found.folds)
    if found.grouping.validates:
        attachments |= validation_arrays(validation)
    else:
        validation = validation.iloc[:0]
        attachments = {n: part for n, part in attachments.items() if n.partition(".")[0].partition("-")[0] in STATELESS}
    facts: dict[str, Any] = {"choice": choice.facts} if choice else {}
    facts |= {"grouping": found.grouping.facts}
    facts |= {"whole_tokens": whole_tokens(tokens, found.labels), "data_hash": found.sha256}
    facts |= {"records": len(found.traces), "roster": options.name, "benchmark": options.name}
    fold_of = {p: int(f) for p, f in zip(found.prompts, found.folds, strict=True) if not p.startswith("\0")}
    enrolment = assemble(
        reader, heads.method, heads.heads, options.stem, (options.proxy, options.weights_hash), options.view, modal,
        found.sources, found.families, fold_of, facts, attachments,
    )  # fmt: skip
    return Fitted(
        fit.scores, fit.chosen, log_posteriors, of_paper, folds, fingerprints, modal, validation, enrolment, choice
    )


@dataclass(frozen=True)
class _FittedHeads:
    """Heads of a corpus, with the selection of blocks and the choice of a method that they come from."""

    fits: Fits
    scores: pd.DataFrame  # of the layer selection
    chosen: pd.DataFrame
    of_fold: dict[int, int]
    modal: int
    paper: FittedHeads
    heads: FittedHeads
    choice: Choice | None


def _fit_heads(corpus: Corpus, candidates: list[int], live: Sequence[int], options: EnrolOptions) -> _FittedHeads:
    """Select blocks, choose a method and fit its heads, all on the folds of the corpus."""
    scores, chosen = _selection(corpus, candidates)
    of_fold = {int(f): int(ly) for f, ly in zip(chosen["outer_fold"], chosen["layer"], strict=True) if f is not pd.NA}
    modal = int(chosen.loc[chosen["outer_fold"].isna(), "layer"].iloc[0])
    fits = Fits(corpus, options.proxy, live or (modal,), of_fold)
    with stage_bar("Fitting the probes", FOLDS, "fold") as bar:
        paper = fits.paper()
        bar.update(FOLDS)
    choice = None
    if options.method == AUTO:
        with stage_bar("Comparing methods", len(OF_TRACES), "method") as bar:
            choice = choose(fits, progress=bar.update)
    heads = fit_chosen(fits, choice) if choice else heads_of(fits, options.method)
    return _FittedHeads(fits, scores, chosen, of_fold, modal, paper, heads, choice)


def forward_folds(found: Labelled) -> tuple[Ints, Ints] | None:
    """Rows and their folds where fold 0 is the last fifth of the time; None where that cannot be.

    The earlier traces are folds 1 to 4. A group of prompts that begins among them is not tested, but topics recur.
    """
    late = found.times > np.quantile(found.times, 1 - LAST)
    late_only = late & ~np.isin(found.grouping.unit, found.grouping.unit[~late])
    rows = np.flatnonzero(~late | late_only)
    folds = np.zeros(len(rows), dtype=np.intp)
    early = ~late[rows]
    folds[early] = 1 + even_folds(found.labels[rows][early], found.grouping.group[rows][early], FOLDS - 1)
    complete = len(np.unique(found.labels)) == len(np.unique(found.labels[rows]))
    return (rows, folds) if complete and fills_folds(found.labels[rows], folds) else None


def _forward(
    found: Labelled, corpus: Corpus, candidates: list[int], live: Sequence[int], options: EnrolOptions
) -> pd.DataFrame | None:
    """Rows of a validation on the later traces by heads that were fitted to the earlier ones, where times are known."""
    if not found.grouping.validates or np.isnan(found.times).any():
        return None
    if (split := forward_folds(found)) is None:
        print("The last fifth of the time has too few new prompts of every source to be tested on.")
        return None
    rows, folds = split
    earlier = replace(corpus.take(rows).with_conditions([CLEAN]), folds=folds)
    print("Fitting the traces of the first four fifths of the time again, to test them on the last fifth")
    late = folds == 0
    heads = _fit_heads(earlier, candidates, live, options).heads
    return forward_frame(heads.log_posteriors[CLEAN][late], earlier.labels[late])


def forward_frame(log_posteriors: Floats, labels: Ints) -> pd.DataFrame:
    """Accuracy of groups of later traces, by log-posteriors (n, C), as rows of a validation."""
    counts = np.bincount(labels)
    order, smallest = np.argsort(labels, kind="stable"), int(counts.min())
    rows = np.stack([part[:smallest] for part in np.split(order, np.cumsum(counts)[:-1])])
    out = []
    for k in (budget for budget in BUDGETS if budget <= smallest):
        by_seed = [budget_groups(rows, k, seed, None) for seed in GROUPING_SEEDS]
        right = [float((accumulate(log_posteriors, groups).argmax(1) == truth).mean()) for groups, truth in by_seed]
        about = {"condition": CLEAN, "part": "transfer", "scenario": TIME, "metric": "accuracy"}
        out.append(about | {"k": k, "value": np.mean(right), "std": np.std(right), "n": len(by_seed[0][1])})
    return pd.DataFrame(out)


def write(
    connection: duckdb.DuckDBPyConnection, found: Labelled, fitted: Fitted, options: EnrolOptions, earlier_s: float
) -> None:
    """Sources, attribution, validation and map of the ecosystem, as rows of its own roster."""
    sources, families, enrolment = list(found.sources), list(found.families), fitted.enrolment
    details = {"name": options.name, "traces": len(found.traces), "sources": len(sources), "notes": list(found.notes)}
    details |= {"enrolment": enrolment.name, "enrolment_sha256": enrolment.sha256, "complete": found.complete}
    details |= {"grouping": found.grouping.facts}
    with recorded(
        connection, stage="enroll", command=command_line(), data_hash=found.sha256, proxy_hash=options.weights_hash,
        seed=SPLIT_SEED, details=details, earlier_s=earlier_s,
    ) as build:  # fmt: skip
        write_sources(connection, *_roster(connection, found, options), build, rosters={options.name: len(sources)})
        families = queries.sources(connection, options.name)["family"].tolist()
        describe_proxy(connection, options.proxy)
        title = f"READER · {options.proxy} · {options.view}"
        paper = write_reader(connection, method=READER_PAPER, name=title, proxy=options.proxy, view=options.view)
        readers = {paper: fitted.paper, _write_reader(connection, enrolment): fitted.log_posteriors}
        for reader, by_condition in readers.items():
            for condition, scores in by_condition.items() if found.grouping.validates else ():
                key = {"reader": reader, "roster": options.name, "benchmark": options.name, "condition": condition}
                write_attribution(connection, key, attribution_frames(scores, sources, families, fitted.folds), build)
        tables = {"layer_scores": fitted.scores, "layer_selection": fitted.chosen}
        for table, rows in tables.items():
            replace_rows(connection, table, rows, {"reader": paper, "roster": options.name}, build)
        of_enrolled = {"reader": enrolment.reader, "roster": options.name}
        replace_rows(connection, "audit_validation", fitted.validation, of_enrolled, build)
    if len(sources) < MIN_SOURCES:
        print(f"A map needs {MIN_SOURCES} sources; {options.name} has {len(sources)} and gets none.")
        return
    # Of rows and data a map needs these names alone.
    prompt_ids = [str(i) for i in range(len(fitted.folds))]
    grid = SimpleNamespace(sources=sources, families=families, prompt_ids=prompt_ids, prompt_folds=fitted.folds)
    origin = "asked" if options.layer is not None else reader_id(READER_PAPER, options.proxy, options.view)
    chart = Chart(
        READER_PAPER, options.proxy, options.view, options.name, cast(Any, options.name), fitted.modal, origin,
        cast(Any, grid), lambda: fitted.fingerprints, 2, options.weights_hash,
    )  # fmt: skip
    make(connection, cast(Any, SimpleNamespace(manifest_hash=found.sha256)), chart)


def enrol(
    connection: duckdb.DuckDBPyConnection, found: Labelled, reader: Reader, options: EnrolOptions
) -> tuple[Enrolment, Fitted]:
    """Fit and write; see :func:`fit` and :func:`write`."""
    check_name(options.name)
    started = time.perf_counter()
    fitted = fit(found, reader, options)
    write(connection, found, fitted, options, time.perf_counter() - started)
    return fitted.enrolment, fitted


def _write_reader(connection: duckdb.DuckDBPyConnection, enrolment: Enrolment) -> str:
    """Reader of an enrolment's method; one that reads text alone has neither proxy nor view."""
    method = enrolment.reader.partition("/")[0]
    if method == enrolment.reader:
        return write_reader(connection, method=method, name=title_of(method))
    name = f"{title_of(method)} · {enrolment.proxy}"
    return write_reader(connection, method=method, name=name, proxy=enrolment.proxy, view=enrolment.view)


def _tokens(found: Labelled, reader: Reader, view: View) -> tuple[Ints, dict[str, float]]:
    """Response tokens of every trace, (n,), and the tokens that reading every shard takes, by its name."""
    tokens, work = [], {}
    with stage_bar("Counting tokens", len(found.traces), "traces") as bar:
        for shard in list_shards(len(found.traces)):
            encoded = reader.encode([found.traces[i] for i in shard.rows], view)
            tokens += [one.response_tokens for one in encoded]
            work[shard.name] = float(reader.tokens_run(encoded))
            bar.update(len(encoded))
    return np.array(tokens, dtype=np.intp), work


def _fingerprints(
    found: Labelled, reader: Reader, options: EnrolOptions, layers: list[int], cuts: list[str], work: dict[str, float]
) -> FingerprintStore:
    """Read what is not in the cache yet; traces that change get a store of their own."""
    keys = [f"{found.sources[label]}/{i}" for i, label in enumerate(found.labels)]
    records = records_hash(keys, found.traces)
    store = FingerprintStore(StoreKey(f"labelled-{records[:16]}", options.proxy, options.view))
    readout = Readout(limits=(None, *(int(cut.removeprefix("t")) for cut in cuts)))
    shards = missing_shards(store, list_shards(len(found.traces)), layers, readout)
    with ReadingBar(sum(len(s.rows) for s in shards), sum(work[s.name] for s in shards), "traces") as bar:
        extract(
            reader, store, found.traces, shards, view=options.view, layers=layers, readout=readout, records=records,
            proxy_hash=options.weights_hash, work=work, progress=bar.step,
        )  # fmt: skip
    return store


def _selection(corpus: Corpus, candidates: list[int]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Inner accuracies and the chosen blocks; a named block is taken everywhere."""
    if len(candidates) > 1:
        with stage_bar("Selecting the block", len(candidates), "blocks") as bar:

            def scanned(_: int) -> None:
                bar.update()

            def load(layer: int) -> Floats:
                return corpus.fingerprints(layer, CLEAN).astype(np.float32)

            scores = scan_layers(load, candidates, corpus.labels, corpus.folds, corpus.classes, progress=scanned)
        return scores, select_layers(scores)
    outer = pd.array([*range(FOLDS), pd.NA], dtype="Int64")
    chosen = pd.DataFrame({"outer_fold": outer, "layer": [candidates[0]] * (FOLDS + 1)})
    return pd.DataFrame(columns=["outer_fold", "inner_fold", "layer", "accuracy"]), chosen


def _validation(
    log_posteriors: dict[str, Floats], folds: Ints, families: list[str], fingerprints: Floats, method: str, whole:
    Sequence[Floats],
) -> pd.DataFrame:  # fmt: skip
    """Validation of the audit on the balanced grid; see :func:`backend.evaluations.stages.audit.validate`."""
    frames: list[pd.DataFrame] = []
    refit, measured = refit_of(method, whole, folds)
    parts = len(log_posteriors) + len(measured) - 1
    with stage_bar("Validating", parts, "parts") as bar:

        def collect(frame: pd.DataFrame, part: str, condition: str) -> None:
            bar.update()
            if len(frame):
                frames.append(frame.assign(part=part, condition=condition))

        validate(collect, log_posteriors, folds, families, fingerprints, measured, refit)
        bar.update(parts - bar.n)  # small files have no 'refit'
    return pd.concat(frames, ignore_index=True)


def _roster(
    connection: duckdb.DuckDBPyConnection, found: Labelled, options: EnrolOptions
) -> tuple[pd.DataFrame, dict[str, int]]:
    """Rows and counts for ``write_sources``; a label that another roster has is that source, and stays as it is."""
    others = [roster for roster in queries.rosters(connection)["roster"] if roster != options.name]
    present = {r["source"]: r for one in others for r in queries.sources(connection, one).to_dict("records")}
    counts = dict(zip(found.sources, np.bincount(found.labels).tolist(), strict=True))
    rows = []
    for source, family in zip(found.sources, found.families, strict=True):
        known = present.get(source)
        row = {"label": source, "repo_id": source, "family": family, "plot_family": family, "source": options.access}
        if known is not None:
            print(f"'{source}' is known here already; it keeps its family '{known['family']}'.")
            row |= {"repo_id": known["name"], "family": known["subfamily"]}
            row |= {"plot_family": known["family"], "source": known["access"]}
            counts[source] = int(known["responses"])
        rows.append(row)
    return pd.DataFrame(rows), counts
