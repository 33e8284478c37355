"""Parameters, fit time, latency and memory of every measured reader (paper, Computational Profile).

Fit time is one outer fold from stored fingerprints, standardiser included, which is what the release timed; the paper's
text adds the selection of the block, which is given apart. Probes at one block are fitted and run here: to their
fingerprints, or where those are not on the machine to as many random numbers, which take as long. Baselines have noted
what their fits cost in ``finished.json`` (fit_seconds, trainable_parameters and audit_parameters, a fold each), and so
have members of a stack. Where nothing was noted, as of the readouts of live attribution, what a fold needs is fitted
here. Every path runs in a process of its own, so that its memory is not that of earlier work.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

import duckdb
import numpy as np
import pandas as pd
import torch

from backend.corpus.release import Release
from backend.corpus.roster_rows import Slice
from backend.costs.paths import RECORDS, RUNS, AuditPath, cost_frame, linear_parameters, measure, timed
from backend.errors import AtlasError
from backend.evaluations import readouts
from backend.evaluations.attribution import inner_accuracies
from backend.evaluations.controls import fit_control
from backend.evaluations.corpus import Material
from backend.evaluations.stages import EvaluateOptions, readout_members
from backend.evaluations.stages.readout_live import live_blocks
from backend.evaluations.stages.readout_members import Scorer, bank_of, fit_seconds, members_folder
from backend.evaluations.stages.readouts import LIVE, plan_of, stacks_of, view_of
from backend.evaluations.stages.roster_run import MeasuredReader, RosterRun
from backend.geometry.maps import modal_block
from backend.methods.discriminant import make_bank, merged
from backend.methods.ngrams import GRAMS, SoftmaxSettings, counts_of
from backend.methods.probe import fit_probe
from backend.methods.readout import Half
from backend.methods.registry import FUSED_LIVE, READOUTS, STATES, form_of
from backend.methods.representations import FORMS, STORED
from backend.methods.stack import CELLS, Stack
from backend.protocol import CLEAN, FOLDS, READER_PAPER
from backend.proxies.reader import best_dtype
from backend.proxies.registry import DEFAULT_PROXY, describe
from backend.store.builds import host
from backend.store.page_queries import costs
from backend.store.queries import builds_of, layer_curve
from backend.traces import Trace

NOTES = "finished.json"
PROBES = tuple(method for method in STATES if method not in LIVE)  # What one block is enough for
QUICK_RECORDS = 8  # Records that are timed when only some prompts are read
THREADS = torch.get_num_threads()  # Of a process of its own; umap's maps change what torch reports of this one
RANDOM = "random numbers, as many as fingerprints, which are not here"  # What was fitted to
DRAWN = 5_000  # Rows of random numbers that are drawn at a time
FOLD = 0
NEEDED = readouts.models_of(FOLD)  # Models that an outer fold needs: its own, and two that validate for it


def run(connection: duckdb.DuckDBPyConnection, release: Release, options: EvaluateOptions) -> None:
    """Measure readers of a proxy and its views, stacks of the members, baselines that noted their fits."""
    records: list[Trace] = []
    for roster in options.rosters:
        run = RosterRun(connection, release, roster, options.limit)
        clock = FitClock(run, options)
        for reader in run.measured_readers():
            if options.methods and reader.method not in options.methods:
                continue
            path = path_of(connection, reader, roster, len(release.roster(roster)), options)
            if path is None:
                continue
            if not records:
                count = RECORDS if options.limit is None else QUICK_RECORDS
                records = sample(release, len(release.roster(options.rosters[0])), count)
            profile(clock, reader, path, records, again=bool(options.methods))


def path_of(
    connection: duckdb.DuckDBPyConnection, reader: MeasuredReader, roster: str, classes: int, options: EvaluateOptions
) -> AuditPath | None:
    """What a reader computes for a response; None for one outside the options. AtlasError if no block is selected."""
    own = AuditPath(reader.method, reader.proxy, reader.view, classes)
    if reader.method in READOUTS:
        plan = plan_of(options)
        if reader.method in LIVE:
            known = plan.blocks.get(str(reader.proxy)) if reader.view == plan.view else None
            return replace(own, blocks={str(reader.proxy): live_blocks(str(reader.proxy), known)}) if known else None
        stack = stacks_of(plan).get((reader.method, reader.proxy))
        if stack is None or reader.view != view_of(plan, reader.method, reader.proxy):
            return None
        used = {bank_of(member) for member in stack[1]}
        blocks = {proxy: layers for proxy, layers in plan.blocks.items() if proxy in used}
        return replace(own, blocks=blocks, members=tuple(stack[1]))
    if reader.method in STATES:
        if options.limit and reader.method not in (READER_PAPER, *options.methods):
            return None  # a quick run skips parts and forms: they cost what the paper's readout costs
        if reader.proxy != options.proxy or reader.view not in options.views:
            return None
        modal = modal_block(connection, reader.reader, roster)
        if modal is None:
            raise AtlasError(
                f"No block is selected for {reader.reader} on {roster}",
                f"Run: python -m jobs evaluate --proxy {reader.proxy} --view {reader.view} --roster {roster}",
            )
        return replace(own, blocks={options.proxy: (modal,)})
    return own if (reader.folder / NOTES).exists() else None


def sample(release: Release, sources: int, count: int = RECORDS) -> list[Trace]:
    """Agent500 records to time, spread over sources and prompts: no prompt twice while there are others."""
    grid = release.records("agent500")
    prompts = len(grid.prompt_ids)
    return [grid.traces[(i % sources) * prompts + i % prompts] for i in range(min(count, sources * prompts))]


def profile(
    clock: FitClock, reader: MeasuredReader, path: AuditPath, records: Sequence[Trace], *, again: bool = False
) -> None:
    """Measure one reader and write its rows, unless the same measurement is there and ``again`` is not set.

    Where the fingerprints are not here and nothing was noted, what was measured with its fit stays.
    """
    run, where = clock.run, f"{reader.reader} on {clock.run.roster}"
    noted = _noted(reader, path, clock)
    layer = path.blocks[str(path.proxy)][0] if reader.method in PROBES else None
    weights = run.proxy_hash(reader.reader)
    hardware = torch.cuda.get_device_name() if torch.cuda.is_available() else host()
    settings: dict[str, object] = {"records": len(records), "prompts": run.limit, "runs": RUNS, "layer": layer}
    settings |= {"threads": THREADS, "hardware": hardware, "noted": None if layer else dict(noted)}
    if layer is None and (path.blocks or path.members):
        blocks = {name: list(numbers) for name, numbers in path.blocks.items()}
        settings |= {"blocks": blocks, "members": list(path.members)}
    if layer:
        fits = layer in run.rows(str(reader.proxy), reader.input_view).layers(FORMS[form_of(reader.method)].variant)
    else:
        fits = bool(noted) or clock.reads(path)
    stored = costs(run.connection, run.roster)
    known = bool(((stored["reader"] == reader.reader) & (stored["measure"] == "fit_seconds")).any())
    stands = not again and _measured(run, reader.reader, weights, settings, fits=fits)
    if stands and known:
        print(f"{where}: measured before; --method {reader.method} measures again")
        return
    if known and not fits:
        print(f"{where}: stays as it was measured; what it is fitted to is not here")
        return
    details: dict[str, object] = {**settings, "load_before": round(os.getloadavg()[0], 2)}
    with run.build("cost", details, weights, None, reader=reader.reader, roster=run.roster) as build:
        measures = {} if layer else dict(noted)
        if not fits:
            details["fit"] = RANDOM
        if layer or not noted:
            try:
                if layer:
                    measures = _fit(run, reader, layer)
                else:
                    seconds = clock.seconds(path)
                    details["fits"] = seconds
                    measures = {"fit_seconds": sum(seconds.values())}
            except AtlasError as error:  # of a proxy that is not known here not even the width is
                details["fit"] = error.problem
                print(f"{reader.reader}: the fit is skipped. {error}")
        if not stands:
            try:
                measures |= in_fresh_process(path, records)
            except AtlasError as error:
                details["latency"] = error.problem
                print(f"{reader.reader}: latency is skipped. {error}")
        key = {"measure": "fit_seconds"} if stands else {}
        frame = cost_frame({name: measures[name] for name in measures if key.get("measure", name) == name}, hardware)
        build.replace("costs", frame, **key)
    shown = ", ".join(f"{row.measure} {row.value:,.4g}" for row in frame.itertuples())
    print(f"{where}: {shown}")


def _measured(run: RosterRun, reader: str, weights: str | None, settings: Mapping[str, object], *, fits: bool) -> bool:
    """Whether a build with the same settings measured a reader: its latency, and its fit where it ``fits`` here."""
    builds = builds_of(run.connection, "costs", {"reader": reader, "roster": run.roster})
    for build in builds.to_dict("records"):
        noted = json.loads(str(build["details"]))
        hashes = {name: None if pd.isna(build[name]) else build[name] for name in ("data_hash", "proxy_hash")}
        whole = "latency" not in noted and not (fits and "fit" in noted)
        same = whole and hashes == {"data_hash": run.release.manifest_hash, "proxy_hash": weights}
        if same and all(noted.get(name) == value for name, value in settings.items()):
            return True
    return False


def in_fresh_process(path: AuditPath, records: Sequence[Trace]) -> dict[str, float]:
    """Measure an audit path where nothing else has been done."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        measures, problem = pool.submit(_measure, path, list(records)).result()
    if problem:
        raise AtlasError(*problem)
    return measures


def _measure(path: AuditPath, records: list[Trace]) -> tuple[dict[str, float], tuple[str, str] | None]:
    """Measures, or the parts of an error, which itself does not travel between processes."""
    try:
        return measure(path, records), None
    except AtlasError as error:
        return {}, (error.problem, error.remedy)


def _fit(run: RosterRun, reader: MeasuredReader, layer: int) -> dict[str, float]:
    """Time an outer fold of a probe, and of the paper's readout the selection of its block from stored fingerprints."""
    rows, form = run.rows(str(reader.proxy), reader.input_view), FORMS[form_of(reader.method)]
    variant, labels, classes = form.variant, rows.labels, len(rows.sources)
    stored = layer in rows.layers(variant)
    width = STORED[variant] * (0 if stored else describe(str(reader.proxy)).hidden_size)
    prints = rows.load(layer, variant) if stored else random_rows(len(labels), width)
    folds = np.tile(rows.prompt_folds, classes)
    if reader.method != READER_PAPER:
        seen = prints[folds != 0]
        alone = timed(lambda: fit_control(reader.method, form, seen, labels[folds != 0], classes), runs=1, warm=0)
        return {"fit_seconds": alone.median}
    train = prints[folds != 0].astype(np.float32)
    fitting = timed(lambda: fit_probe(train, labels[folds != 0], classes), warm=0)
    measures = {"trainable_parameters": linear_parameters(prints.shape[1], classes), "fit_seconds": fitting.median}
    blocks = len(layer_curve(run.connection, reader.reader, run.roster))
    if stored and blocks > 1:
        dtype = best_dtype(torch.device("cpu"))
        # A block's ten fits serve all five outer folds, so one fold's share of all blocks is a fifth.
        scan = timed(lambda: inner_accuracies(prints, labels, folds, classes, dtype=dtype), runs=1, warm=0)
        measures["selection_seconds"] = scan.median * blocks / FOLDS
    return measures


def _noted(reader: MeasuredReader, path: AuditPath, clock: FitClock) -> dict[str, float]:
    """What the fits of a baseline or of a stack's members noted, of one outer fold; nothing without notes."""
    if path.members:
        seconds = fit_seconds(members_folder(clock.run), clock.plan, path.members)
        return {} if seconds is None else {"fit_seconds": seconds}
    if not (reader.folder / NOTES).exists():
        return {}
    folds = json.loads((reader.folder / NOTES).read_text("utf-8"))["folds"]
    names = ("trainable_parameters", "audit_parameters", "fit_seconds")
    return {name: float(np.median([fold[name] for fold in folds])) for name in names if all(name in f for f in folds)}


def random_rows(rows: int, width: int) -> Half:
    """Random numbers (rows, width) in place of fingerprints."""
    draw, out = np.random.default_rng(0), np.empty((rows, width), dtype=np.float16)
    for low in range(0, rows, DRAWN):
        part = out[low : low + DRAWN]
        part[:] = draw.standard_normal(part.shape, dtype=np.float32)
    return out


@dataclass(frozen=True)
class RandomSlice(Slice):
    """Rows whose fingerprints are not here: random numbers, the same at every block and length."""

    drawn: Half

    def load(self, layer: int, variant: str = "full") -> Half:
        """Numbers of the shape that fingerprints have."""
        return self.drawn


@dataclass(frozen=True)
class FitClock:
    """Times the fits of one roster; a member of several stacks is fitted once.

    Random numbers stand for fingerprints that are not here. Discriminants, networks and n-grams do as many steps
    whatever they are fitted to; members that are carried to a minimum do not, and are skipped.
    """

    run: RosterRun
    options: EvaluateOptions
    _seconds: dict[str, float] = field(default_factory=dict, init=False, repr=False)
    _scorers: dict[tuple[str, tuple[int, ...]], Scorer] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def plan(self) -> readout_members.Plan:
        """The members of the stacks."""
        return plan_of(self.options)

    def reads(self, path: AuditPath) -> bool:
        """Whether all that a fit needs is on the machine: of every member its note, its text or its fingerprints."""
        if path.method in LIVE:
            return all(self._on_disk(self._rows(proxy), blocks) for proxy, blocks in path.blocks.items())
        return all(self._noted(name) is not None or self._fits(name) for name in path.members)

    def seconds(self, path: AuditPath) -> dict[str, float]:
        """Seconds that one outer fold takes, by member; of a readout of live attribution, by what is fitted.

        Raises AtlasError if a member can be timed only where it was fitted.
        """
        if path.method in LIVE:
            ((proxy, blocks),) = path.blocks.items()
            parts = {f"{proxy}@bank": partial(self._bank, proxy, blocks)}
            if path.method == FUSED_LIVE:
                parts["word@coded"] = partial(self._grams, counts_of, readouts.WORD_SETTINGS)
        else:
            parts = {name: partial(self._member, name) for name in path.members}
        for name, part in parts.items():
            if name not in self._seconds:
                self._seconds[name] = part()
        return {name: round(self._seconds[name], 2) for name in parts}

    def _member(self, name: str) -> float:
        noted = self._noted(name)
        if noted is not None:
            return noted
        bank, _, part = name.rpartition("@")
        if bank in self.plan.grams:
            return self._grams(GRAMS[bank].counts, GRAMS[bank].settings)
        blocks = self.plan.blocks.get(bank, ())
        if not blocks or (part in readout_members.SOLVED and not self._fits(name)):
            raise AtlasError(
                f"How long {name} is fitted was not noted on this machine, and depends on what it is fitted to",
                "Evaluate the stack here: python -m jobs evaluate --stage readouts",
            )
        scorer = self._scorer(bank, blocks)
        if part in (readout_members.NETWORK, *readout_members.SOLVED):
            fit = scorer.fits(bank, part)
            return _seconds(lambda: [fit(model) for model in NEEDED])
        return _seconds(lambda: scorer.discriminants(bank, part)) * readout_members.A_FOLD / len(readouts.MODELS)

    def _bank(self, proxy: str, blocks: Sequence[int]) -> float:
        rows = self._scorer(proxy, tuple(blocks)).bank_rows(proxy, readouts.TRAINED)
        fitted = []

        def fit() -> None:
            moments = rows.moments()
            fitted.append((moments, readouts.fit_banks(moments)))

        fitting = _seconds(fit)
        ((moments, fits),) = fitted
        seen = [merged([parts[fold] for fold in readouts.training_folds(FOLD)]) for parts in moments.values()]
        equal = Stack(np.ones((CELLS, len(fits))))
        own = [parts[FOLD] for parts in fits.values()]
        return fitting * readout_members.A_FOLD / len(readouts.MODELS) + _seconds(lambda: make_bank(own, seen, equal))

    def _grams(self, counts: Callable[[Sequence[str]], object], settings: SoftmaxSettings) -> float:
        scorer = self._scorer(DEFAULT_PROXY, ())
        copies = [counts(scorer.texts(length)) for length in readouts.TRAINED]
        models = readouts.fit_gram_models(copies, scorer.labels, scorer.folds, scorer.classes, settings, NEEDED)
        return _seconds(lambda: list(models))

    def _noted(self, name: str) -> float | None:
        return fit_seconds(members_folder(self.run), self.plan, [name])

    def _fits(self, name: str) -> bool:
        """Whether what a member reads is here; a tuned encoder takes hours, and is fitted where it is evaluated."""
        bank = bank_of(name)
        blocks = self.plan.blocks.get(bank, ())
        return bank in self.plan.grams or (bool(blocks) and self._on_disk(self._rows(bank), blocks))

    def _rows(self, bank: str) -> Slice:
        proxy = bank if bank in self.plan.blocks else DEFAULT_PROXY
        return self.run.rows(proxy, self.plan.view)

    def _on_disk(self, rows: Slice, blocks: Sequence[int]) -> bool:
        return all(set(blocks) <= set(rows.layers("full" if c == CLEAN else c)) for c in readouts.TRAINED)

    def _scorer(self, proxy: str, blocks: tuple[int, ...]) -> Scorer:
        """What a proxy's members are fitted with; random numbers stand for fingerprints that are not here."""
        if (proxy, blocks) not in self._scorers:
            rows, release = self._rows(proxy), self.run.release
            if not self._on_disk(rows, blocks):
                width = STORED["full"] * describe(proxy).hidden_size
                rows = RandomSlice(**vars(rows), drawn=random_rows(len(rows.labels), width))
            material, folder = Material(release, len(rows.sources), self.run.limit), members_folder(self.run)
            plan = replace(self.plan, blocks={proxy: blocks}, grams=())
            self._scorers[proxy, blocks] = Scorer({proxy: rows}, {}, material, plan, folder, release.manifest_hash)
        return self._scorers[proxy, blocks]


def _seconds(work: Callable[[], object]) -> float:
    return timed(work, runs=1, warm=0).median
