"""Parameters, fit time, latency and memory of every measured reader on this machine (paper, Computational Profile).

Probes at one block are fitted and run here: to their fingerprints, or where those are not on the machine to as many
random numbers, which take as long. A baseline has noted what its fits cost in ``finished.json`` next to its
log-posteriors (keys fit_seconds, trainable_parameters and audit_parameters, a fold each), and so has every member of a
stack, whose fit is that of its members; their latency is measured here. Where nothing was noted, as of the readouts of
live attribution, which are fitted and scored in one, what a fold needs is fitted here. Every path runs in a process of
its own, so that its memory is not that of earlier work. What was measured on this machine with the same weights, data
and settings is not measured again, unless a method is named.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import torch

from backend.corpus.release import Release
from backend.corpus.roster_rows import Slice, slice_of
from backend.costs.fits import RANDOM, FitClock, random_rows
from backend.costs.paths import AuditPath, measure
from backend.errors import AtlasError
from backend.evaluations.attribution import inner_accuracies
from backend.evaluations.controls import fit_control
from backend.evaluations.cost import RECORDS, RUNS, cost_frame, linear_parameters, timed
from backend.evaluations.stages import EvaluateOptions
from backend.evaluations.stages.readers import KeptReader, measured_readers
from backend.evaluations.stages.readout_live import live_blocks
from backend.evaluations.stages.readout_members import fit_seconds, members_folder
from backend.evaluations.stages.readouts import plan_of, stacks_of, view_of
from backend.geometry.maps import modal_block
from backend.methods.probe import fit_probe
from backend.methods.registry import FUSED_LIVE, LDA_LIVE, READOUTS, STATES, form_of
from backend.methods.representations import FORMS, STORED
from backend.protocol import FOLDS, READER_PAPER
from backend.proxies.reader import best_dtype
from backend.proxies.registry import describe
from backend.store.builds import host
from backend.store.page_queries import costs
from backend.store.queries import builds_of, layer_curve
from backend.store.writers import stage_rows
from backend.traces import Trace, View

NOTES = "finished.json"
PROBES = tuple(method for method in STATES if method not in (LDA_LIVE, FUSED_LIVE))  # What one block is enough for
LOOKED_AT = 8  # Records that are timed when only some prompts are looked at
THREADS = torch.get_num_threads()  # Of a process of its own; umap's maps change what torch tells of this one


def run(connection: duckdb.DuckDBPyConnection, release: Release, options: EvaluateOptions) -> None:
    """Measure readers of a proxy and its views, stacks of the members, baselines that noted their fits."""
    records: list[Trace] = []
    for roster in options.rosters:
        clock = FitClock(release, options, roster)
        rows = slice_of(release, "agent500", options.proxy, "ur", roster, options.limit)
        for reader in measured_readers(connection, roster, len(rows.prompt_ids)):
            if options.methods and reader.method not in options.methods:
                continue
            path = path_of(connection, reader, roster, len(release.roster(roster)), options)
            if path is None:
                continue
            if not records:
                count = RECORDS if options.limit is None else LOOKED_AT
                records = sample(release, len(release.roster(options.rosters[0])), count)
            noted = _noted(reader, path, options, members_folder(roster, len(rows.prompt_ids)))
            again = bool(options.methods)
            profile(connection, release, reader, roster, path, records, noted, clock, options.limit, again=again)


def path_of(
    connection: duckdb.DuckDBPyConnection, reader: KeptReader, roster: str, classes: int, options: EvaluateOptions
) -> AuditPath | None:
    """What a reader has to compute for a response; None for one outside the options.

    Raises AtlasError if no block is selected for a reader of one.
    """
    own = AuditPath(reader.method, reader.proxy, reader.view, classes)
    if reader.method in READOUTS:
        plan = plan_of(options)
        if reader.method in (LDA_LIVE, FUSED_LIVE):
            known = plan.blocks.get(str(reader.proxy)) if reader.view == plan.view else None
            return replace(own, blocks={str(reader.proxy): live_blocks(str(reader.proxy), known)}) if known else None
        stack = stacks_of(plan).get((reader.method, reader.proxy))
        if stack is None or reader.view != view_of(plan, reader.method, reader.proxy):
            return None
        used = {member.rpartition("@")[0] for member in stack[1]}
        blocks = {proxy: layers for proxy, layers in plan.blocks.items() if proxy in used}
        return replace(own, blocks=blocks, members=tuple(stack[1]))
    if reader.method in STATES:
        if options.limit and reader.method not in (READER_PAPER, *options.methods):
            return None  # a look leaves parts and forms out: they cost what the paper's readout costs
        if reader.proxy != options.proxy or reader.view not in options.views:
            return None
        return replace(own, blocks={options.proxy: (_modal_layer(connection, reader, roster),)})
    return own if (reader.folder / NOTES).exists() else None


def sample(release: Release, sources: int, count: int = RECORDS) -> list[Trace]:
    """Agent500 records to time, spread over sources and prompts: no prompt twice while there are others.

    There are no more of them than the sources have records.
    """
    grid = release.records("agent500")
    prompts = len(grid.prompt_ids)
    return [grid.traces[(i % sources) * prompts + i % prompts] for i in range(min(count, sources * prompts))]


def profile(
    connection: duckdb.DuckDBPyConnection,
    release: Release,
    reader: KeptReader,
    roster: str,
    path: AuditPath,
    records: Sequence[Trace],
    noted: Mapping[str, float],
    clock: FitClock,
    limit: int | None = None,
    *,
    again: bool = False,
) -> None:
    """Measure one reader and write its rows, unless the same measurement is there, or ``again`` is set.

    Where the fingerprints are not here and nothing was noted, what was measured with its fit stays.
    """
    layer = path.blocks[str(path.proxy)][0] if reader.method in PROBES else None
    weights = reader.proxy_hash(connection, roster)
    hardware = torch.cuda.get_device_name() if torch.cuda.is_available() else host()
    settings: dict[str, object] = {
        "records": len(records),
        "prompts": limit,
        "runs": RUNS,
        "layer": layer,
        "threads": THREADS,
        "hardware": hardware,
        "noted": None if layer else dict(noted),
    }
    if layer is None and (path.blocks or path.members):
        settings |= {
            "blocks": {name: list(numbers) for name, numbers in path.blocks.items()},
            "members": list(path.members),
        }
    if layer:
        fits = layer in _rows(release, reader, roster, limit).layers(_variant(reader.method))
    else:
        fits = bool(noted) or clock.reads(path)
    known = _fit_known(connection, reader.reader, roster)
    stands = not again and _measured(connection, release, reader.reader, roster, weights, settings, fits=fits)
    if stands and known:
        print(f"{reader.reader} on {roster}: measured before; --method {reader.method} measures again")
        return
    if known and not fits:
        print(f"{reader.reader} on {roster}: stays as it was measured; what it is fitted to is not here")
        return
    details: dict[str, object] = {**settings, "load_before": round(os.getloadavg()[0], 2)}
    where = {"reader": reader.reader, "roster": roster}
    with stage_rows(connection, "cost", details, release.manifest_hash, weights, key=where) as build:
        measures = {} if layer else dict(noted)
        if not fits:
            details["fit"] = RANDOM
        if layer or not noted:
            try:
                if layer:
                    measures = _fit(connection, release, reader, roster, layer, limit)
                else:
                    seconds = clock.seconds(path)
                    details["fits"] = seconds
                    measures = {"fit_seconds": sum(seconds.values())}
            except AtlasError as error:  # of a proxy that is not known here not even the width is
                details["fit"] = error.problem
                print(f"{reader.reader}: the fit is left out. {error}")
        if not stands:
            try:
                measures |= in_fresh_process(path, records)
            except AtlasError as error:
                details["latency"] = error.problem
                print(f"{reader.reader}: latency is left out. {error}")
        key = {"measure": "fit_seconds"} if stands else {}
        frame = cost_frame({name: measures[name] for name in measures if key.get("measure", name) == name}, hardware)
        build.replace("costs", frame, **key)
    shown = ", ".join(f"{row.measure} {row.value:,.4g}" for row in frame.itertuples())
    print(f"{reader.reader} on {roster}: {shown}")


def _measured(
    connection: duckdb.DuckDBPyConnection,
    release: Release,
    reader: str,
    roster: str,
    weights: str | None,
    settings: Mapping[str, object],
    *,
    fits: bool,
) -> bool:
    """Whether a build with the same settings made a reader's costs: its latency, and its fit where it ``fits`` here."""
    builds = builds_of(connection, "costs", {"reader": reader, "roster": roster})
    for build in builds.to_dict("records"):
        noted = json.loads(str(build["details"]))
        hashes = {name: None if pd.isna(build[name]) else build[name] for name in ("data_hash", "proxy_hash")}
        whole = "latency" not in noted and not (fits and "fit" in noted)
        same = whole and hashes == {"data_hash": release.manifest_hash, "proxy_hash": weights}
        if same and all(noted.get(name) == value for name, value in settings.items()):
            return True
    return False


def _fit_known(connection: duckdb.DuckDBPyConnection, reader: str, roster: str) -> bool:
    known = costs(connection, roster)
    return bool(((known["reader"] == reader) & (known["measure"] == "fit_seconds")).any())


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


def _fit(
    connection: duckdb.DuckDBPyConnection,
    release: Release,
    reader: KeptReader,
    roster: str,
    layer: int,
    limit: int | None,
) -> dict[str, float]:
    """Time an outer fold of a probe, and of the paper's readout the selection of its block from stored fingerprints."""
    rows, variant = _rows(release, reader, roster, limit), _variant(reader.method)
    labels, classes, stored = rows.labels, len(rows.sources), layer in rows.layers(variant)
    width = STORED[variant] * (0 if stored else describe(str(reader.proxy)).hidden_size)
    prints = rows.load(layer, variant) if stored else random_rows(len(labels), width)
    folds = np.tile(rows.prompt_folds, classes)
    if reader.method != READER_PAPER:
        form, seen = FORMS[form_of(reader.method)], prints[folds != 0]
        alone = timed(lambda: fit_control(reader.method, form, seen, labels[folds != 0], classes), runs=1, warm=0)
        return {"fit_seconds": alone.median}
    train = prints[folds != 0].astype(np.float32)
    fitting = timed(lambda: fit_probe(train, labels[folds != 0], classes), warm=0)
    measures = {"trainable_parameters": linear_parameters(prints.shape[1], classes), "fit_seconds": fitting.median}
    blocks = len(layer_curve(connection, reader.reader, roster))
    if stored and blocks > 1:
        dtype = best_dtype(torch.device("cpu"))
        # A block's ten fits serve all five outer folds, so one fold's share of all blocks is a fifth.
        scan = timed(lambda: inner_accuracies(prints, labels, folds, classes, dtype=dtype), runs=1, warm=0)
        measures["selection_seconds"] = scan.median * blocks / FOLDS
    return measures


def _rows(release: Release, reader: KeptReader, roster: str, limit: int | None) -> Slice:
    view: View = "r" if reader.view == "r" else "ur"
    return slice_of(release, "agent500", str(reader.proxy), view, roster, limit)


def _variant(method: str) -> str:
    """Arrays that a probe reads."""
    return FORMS[form_of(method)].variant


def _noted(reader: KeptReader, path: AuditPath, options: EvaluateOptions, members: Path) -> dict[str, float]:
    """What the fits of a baseline or of a stack's members noted, of one outer fold; nothing without notes."""
    if path.members:
        seconds = fit_seconds(members, plan_of(options), path.members)
        return {} if seconds is None else {"fit_seconds": seconds}
    if not (reader.folder / NOTES).exists():
        return {}
    folds = json.loads((reader.folder / NOTES).read_text("utf-8"))["folds"]
    names = ("trainable_parameters", "audit_parameters", "fit_seconds")
    return {name: float(np.median([fold[name] for fold in folds])) for name in names if all(name in f for f in folds)}


def _modal_layer(connection: duckdb.DuckDBPyConnection, reader: KeptReader, roster: str) -> int:
    modal = modal_block(connection, reader.reader, roster)
    if modal is None:
        raise AtlasError(
            f"No block is selected for {reader.reader} on {roster}",
            f"Run: python -m jobs evaluate --proxy {reader.proxy} --view {reader.view} --roster {roster}",
        )
    return modal
