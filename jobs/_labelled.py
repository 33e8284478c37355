"""An ecosystem of one's own: labelled traces to an enrolment file and to the rows of a roster.

The same steps as for the release: fingerprints of every block in the cache (an interrupted run continues), nested
selection of the block, a probe a fold, attribution at every budget, validation of the audit, and a map. Where sources
have different numbers of traces, those of the smaller ones are repeated in training, so that no source is favoured.
"""

from __future__ import annotations

import functools
import hashlib
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.audit.enrolment import Enrolment, Head, prompt_table
from backend.audit.fitted import fit_attachments, prompt_attachments
from backend.audit.labelled import Labelled
from backend.audit.matched import CLEAN, validation_arrays, whole_tokens
from backend.errors import AtlasError
from backend.evaluations.attribution import attribution_frames
from backend.evaluations.selection import scan_layers, select_layers
from backend.evaluations.stress import LENGTHS, excluded_posteriors
from backend.extraction import extract, list_shards, missing_shards, records_hash
from backend.fingerprints import FingerprintStore, StoreKey
from backend.geometry.projections import MIN_SOURCES
from backend.probe import LinearProbe, fit_probe
from backend.protocol import FOLDS, SPLIT_SEED
from backend.proxies.reader import Reader, Readout
from backend.release import BENCHMARKS
from backend.store import queries
from backend.store.builds import recorded
from backend.store.writers import RELEASE_ROSTERS, replace_rows, write_reader, write_sources
from backend.traces import View
from jobs import _common
from jobs._bars import ReadingBar, stage_bar
from jobs._common import METHOD
from jobs._enrolments import made
from jobs._map.single import make
from jobs._map.views import Chart
from jobs._stages.audit import PARTS, validate
from jobs._stages.kept import write_attribution

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.intp]
LONGEST_NAME = 120
CUT_SHARE = 0.5
"""Share of the responses that a cut must shorten to be a condition of its own."""


@dataclass(frozen=True)
class Asked:
    """How an ecosystem is enrolled.

    Attributes
    ----------
    name : str
        Becomes the roster and the domain; any text.
    proxy, weights_hash : str
    view : {'ur', 'r'}
    layer : int or None
        None selects it, fold by fold.
    access : str
        'local' or 'api', for sources that no other roster describes.
    """

    name: str
    proxy: str
    weights_hash: str
    view: View
    layer: int | None = None
    access: str = "api"

    @property
    def stem(self) -> str:
        """Name of the enrolment and of its file."""
        return f"{slug(self.name)}-{slug(self.proxy)}-{self.view}"


@dataclass(frozen=True)
class Fitted:
    """Everything that labelled traces gave.

    Attributes
    ----------
    scores, chosen : DataFrame
        Layer selection; ``scores`` is empty where a block was asked for.
    log_posteriors : dict of condition to ndarray of shape (C * P, C)
        On the balanced grid.
    folds : ndarray of shape (P,)
    fingerprints : ndarray of shape (C * P, 2 d)
        At the modal block.
    validation : DataFrame
    enrolment : Enrolment
    """

    scores: pd.DataFrame
    chosen: pd.DataFrame
    log_posteriors: dict[str, Floats]
    folds: Ints
    fingerprints: Floats
    validation: pd.DataFrame
    enrolment: Enrolment

    @property
    def modal(self) -> int:
        """The modal block."""
        return int(self.chosen.loc[self.chosen["outer_fold"].isna(), "layer"].iloc[0])


@dataclass(frozen=True)
class Rows:
    """What a map asks of the rows behind it."""

    sources: list[str]
    families: list[str]
    prompt_ids: list[str]
    prompt_folds: Ints


@dataclass(frozen=True)
class Data:
    """What a map asks of the data behind it."""

    manifest_hash: str


def check_name(name: str) -> None:
    """Refuse a name that cannot be a roster's.

    Raises
    ------
    AtlasError
        If it is empty, too long, or that of a built-in roster or benchmark.
    """
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


def fit(found: Labelled, reader: Reader, asked: Asked) -> Fitted:
    """Fingerprints, probes, evaluation and validation; the store is not touched.

    Raises
    ------
    AtlasError
        If the block does not exist, or the cache cannot be written.
    """
    if asked.layer is not None and not 1 <= asked.layer <= reader.depth:
        raise AtlasError(f"{asked.proxy} has no block {asked.layer}", f"Its blocks are 1 to {reader.depth}")
    candidates = [asked.layer] if asked.layer is not None else list(range(1, reader.depth + 1))
    tokens, work = _tokens(found, reader, asked.view)
    # Where the proxy is not causal, each cut would need a pass of its own.
    cuts = (
        [cut for cut in LENGTHS if (tokens > int(cut.removeprefix("t"))).mean() >= CUT_SHARE] if reader.causal else []
    )
    store = _fingerprints(found, reader, asked, candidates, cuts, work)
    classes = len(found.sources)

    def load(layer: int, condition: str = CLEAN) -> Floats:
        return store.load(layer, "full" if condition == CLEAN else condition).astype(np.float32)

    scores, chosen = _selection(load, candidates, found)
    of_fold = {int(f): int(ly) for f, ly in zip(chosen["outer_fold"], chosen["layer"], strict=True) if f is not pd.NA}
    probes = {}
    with stage_bar("Fitting the probes", len(of_fold), "fold") as bar:
        for fold, layer in of_fold.items():
            train = np.flatnonzero(found.folds != fold)
            train = train[evened(found.labels[train])]
            probes[fold] = fit_probe(load(layer)[train], found.labels[train], classes)
            bar.update()
    rows, folds = found.grid()
    at = rows.ravel()
    log_posteriors = {
        condition: excluded_posteriors(functools.partial(load, condition=condition), of_fold, probes, found.folds)[at]
        for condition in (CLEAN, *cuts)
    }
    modal = int(chosen.loc[chosen["outer_fold"].isna(), "layer"].iloc[0])
    fingerprints = load(modal)[at]
    validation = _validation(log_posteriors, folds, list(found.families), fingerprints)
    if not found.complete:  # columns of the grid are different prompts then
        validation = validation[~validation["statistic"].fillna("").str.endswith("-paired")]
    deepest = {c: load(max(of_fold.values()), c)[at] for c in log_posteriors}
    attachments = fit_attachments(log_posteriors, folds, deepest, slug(asked.name), families=found.families)
    attachments |= validation_arrays(validation)
    attachments |= prompt_attachments([trace.prompt for trace in found.traces], found.folds)
    length = whole_tokens(tokens, found.labels)
    enrolment = _enrolment(found, reader, asked, of_fold, probes, attachments, length)
    return Fitted(scores, chosen, log_posteriors, folds, fingerprints, validation, enrolment)


def write(connection: duckdb.DuckDBPyConnection, found: Labelled, fitted: Fitted, asked: Asked, took_s: float) -> None:
    """Sources, attribution, validation and map of the ecosystem, as rows of its own roster."""
    sources, families, enrolment = list(found.sources), list(found.families), fitted.enrolment
    details = {"name": asked.name, "traces": len(found.traces), "sources": len(sources), "notes": list(found.notes)}
    details |= {"enrolment": enrolment.name, "enrolment_sha256": enrolment.sha256, "complete": found.complete}
    with recorded(
        connection,
        stage="enroll",
        command=_common.command_line(),
        data_hash=found.sha256,
        proxy_hash=asked.weights_hash,
        seed=SPLIT_SEED,
        details=details,
        took_s=took_s,
    ) as build:
        write_sources(connection, *_roster(connection, found, asked), build, rosters={asked.name: len(sources)})
        families = queries.sources(connection, asked.name)["family"].tolist()
        _common.describe_proxy(connection, asked.proxy)
        title = f"READER · {asked.proxy} · {asked.view}"
        reader = write_reader(connection, method=METHOD, name=title, proxy=asked.proxy, view=asked.view)
        key: dict[str, object] = {"reader": reader, "roster": asked.name}
        for condition, held in fitted.log_posteriors.items():
            frames = attribution_frames(held, sources, families, fitted.folds)
            write_attribution(connection, {**key, "benchmark": asked.name, "condition": condition}, frames, build)
        replace_rows(connection, "layer_scores", fitted.scores, key, build)
        replace_rows(connection, "layer_selection", fitted.chosen, key, build)
        replace_rows(connection, "audit_validation", fitted.validation, key, build)
    if len(sources) < MIN_SOURCES:
        print(f"A map needs {MIN_SOURCES} sources; {asked.name} has {len(sources)} and gets none.")
        return
    rows = Rows(sources, families, [str(i) for i in range(len(fitted.folds))], fitted.folds)
    origin = "asked" if asked.layer is not None else enrolment.reader
    chart = Chart(
        METHOD, asked.proxy, asked.view, asked.name, cast(Any, asked.name), fitted.modal, origin, cast(Any, rows),
        lambda: fitted.fingerprints, 2, asked.weights_hash,
    )  # fmt: skip
    make(connection, cast(Any, Data(found.sha256)), chart)


def enrol(
    connection: duckdb.DuckDBPyConnection, found: Labelled, reader: Reader, asked: Asked
) -> tuple[Enrolment, Fitted]:
    """Fit and write; see :func:`fit` and :func:`write`."""
    check_name(asked.name)
    started = time.perf_counter()
    fitted = fit(found, reader, asked)
    write(connection, found, fitted, asked, time.perf_counter() - started)
    return fitted.enrolment, fitted


def evened(labels: Ints) -> Ints:
    """Rows with as many of every source, those of the smaller ones in turn again and again.

    Correcting a probe's bias by the shares instead would assume that it has learned them; 40 steps do not.
    """
    most = int(np.bincount(labels).max())
    return np.sort(np.concatenate([np.resize(np.flatnonzero(labels == c), most) for c in np.unique(labels)]))


def _tokens(found: Labelled, reader: Reader, view: View) -> tuple[Ints, dict[str, float]]:
    """Response tokens of every trace, (n,), and the tokens that reading every shard takes, by its name."""
    tokens, work = [], {}
    shards = list_shards(len(found.traces))
    with stage_bar("Counting tokens", len(found.traces), "traces") as bar:
        for shard in shards:
            encoded = reader.encode([found.traces[i] for i in shard.rows], view)
            tokens += [one.response_tokens for one in encoded]
            work[shard.name] = float(reader.tokens_run(encoded))
            bar.update(len(encoded))
    return np.array(tokens, dtype=np.intp), work


def _fingerprints(
    found: Labelled, reader: Reader, asked: Asked, layers: list[int], cuts: list[str], work: Mapping[str, float]
) -> FingerprintStore:
    """Read what is not in the cache yet; traces that change get a store of their own."""
    keys = [f"{found.sources[label]}/{i}" for i, label in enumerate(found.labels)]
    records = records_hash(keys, found.traces)
    store = FingerprintStore(StoreKey(f"labelled-{records[:16]}", asked.proxy, asked.view))
    readout = Readout(limits=(None, *(int(cut.removeprefix("t")) for cut in cuts)))
    shards = missing_shards(store, list_shards(len(found.traces)), layers, readout)
    with ReadingBar(sum(len(s.rows) for s in shards), sum(work[s.name] for s in shards), "traces") as bar:
        extract(
            reader,
            store,
            found.traces,
            shards,
            view=asked.view,
            layers=layers,
            readout=readout,
            records=records,
            proxy_hash=asked.weights_hash,
            work=work,
            progress=bar.step,
        )
    return store


def _selection(
    load: Callable[[int], Floats], candidates: list[int], found: Labelled
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Inner accuracies and the chosen blocks; a block that was asked for is taken everywhere."""
    if len(candidates) > 1:
        with stage_bar("Selecting the block", len(candidates), "blocks") as bar:

            def scanned(_: int) -> None:
                bar.update()

            classes = len(found.sources)
            scores = scan_layers(load, candidates, found.labels, found.folds, classes, progress=scanned)
        return scores, select_layers(scores)
    outer = pd.array([*range(FOLDS), pd.NA], dtype="Int64")
    chosen = pd.DataFrame({"outer_fold": outer, "layer": [candidates[0]] * (FOLDS + 1)})
    return pd.DataFrame(columns=["outer_fold", "inner_fold", "layer", "accuracy"]), chosen


def _validation(
    log_posteriors: dict[str, Floats], folds: Ints, families: list[str], fingerprints: Floats
) -> pd.DataFrame:
    """Validation of the audit on the balanced grid; see :func:`jobs._stages.audit.validate`."""
    frames: list[pd.DataFrame] = []
    parts = len(log_posteriors) + len(PARTS) - 1
    with stage_bar("Validating", parts, "parts") as bar:

        def collect(frame: pd.DataFrame, part: str, condition: str) -> None:
            bar.update()
            if len(frame):
                frames.append(frame.assign(part=part, condition=condition))

        validate(collect, log_posteriors, folds, families, fingerprints)
        bar.update(parts - bar.n)  # small files have no 'refit'
    return pd.concat(frames, ignore_index=True)


def _enrolment(
    found: Labelled,
    reader: Reader,
    asked: Asked,
    of_fold: Mapping[int, int],
    probes: Mapping[int, LinearProbe],
    attachments: dict[str, npt.NDArray[Any]],
    length: float,
) -> Enrolment:
    asked_prompts = {p: int(f) for p, f in zip(found.prompts, found.folds, strict=True) if not p.startswith("\0")}
    hashes, folds = prompt_table(list(asked_prompts), list(asked_prompts.values()))
    return Enrolment(
        name=asked.stem,
        reader=f"{METHOD}/{asked.proxy}/{asked.view}",
        proxy=asked.proxy,
        view=asked.view,
        block="dc-ac",
        sources=found.sources,
        families=found.families,
        heads=tuple(Head(probes[fold], (of_fold[fold],), fold) for fold in range(FOLDS)),
        log_prior=np.full(len(found.sources), -np.log(len(found.sources))),
        prompts=hashes,
        folds=folds,
        facts={
            "proxy_hash": asked.weights_hash,
            "data_hash": found.sha256,
            "engine": f"{reader.engine}-{str(reader.dtype).removeprefix('torch.')}-{reader.device.type}",
            "max_tokens": reader.max_tokens,
            "records": len(found.traces),
            "whole_tokens": length,
            "roster": asked.name,
            "benchmark": asked.name,
            **made(),
        },
        attachments=attachments,
    )


def _roster(
    connection: duckdb.DuckDBPyConnection, found: Labelled, asked: Asked
) -> tuple[pd.DataFrame, dict[str, int]]:
    """Rows and counts for ``write_sources``; a label that another roster has is that source, and stays as it is."""
    others = [roster for roster in queries.rosters(connection)["roster"] if roster != asked.name]
    held = {row["source"]: row for roster in others for row in queries.sources(connection, roster).to_dict("records")}
    counts = dict(zip(found.sources, np.bincount(found.labels).tolist(), strict=True))
    rows = []
    for source, family in zip(found.sources, found.families, strict=True):
        known = held.get(source)
        row = {"label": source, "repo_id": source, "family": family, "plot_family": family, "source": asked.access}
        if known is not None:
            print(f"'{source}' is known here already; it keeps its family '{known['family']}'.")
            row |= {"repo_id": known["name"], "family": known["subfamily"], "plot_family": known["family"]}
            row |= {"source": known["access"]}
            counts[source] = int(known["responses"])
        rows.append(row)
    return pd.DataFrame(rows), counts
