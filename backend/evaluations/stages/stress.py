"""Shortened responses and Math100 for every reader, without training anything again (paper, Stress Tests).

The paper's readout is scored here, from the fingerprints and the kept fold probes, and so are controls that read
nothing but fingerprints, whose probes are fitted once more; other methods have kept their own log-posteriors (see
:mod:`backend.evaluations.stress`), and all of them are grouped and measured the same way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.corpus.release import Release
from backend.corpus.roster_rows import Slice, slice_of
from backend.errors import AtlasError
from backend.evaluations.artifacts import (
    artifact_folder,
    evaluation,
    extraction,
    keep,
    load_log_posteriors,
    load_probes,
    with_intervals,
    write_attribution,
)
from backend.evaluations.attribution import AttributionFrames, attribution_frames, summaries
from backend.evaluations.controls import control_heads
from backend.evaluations.stages import EvaluateOptions
from backend.evaluations.stages.readers import KeptReader, fold_layers, measured_readers
from backend.evaluations.stress import (
    LENGTHS,
    TRANSFER_FILE,
    excluded_posteriors,
    global_frames,
    length_file,
    transfer_frames,
    transferred_posteriors,
    with_retained,
)
from backend.methods.probe import LinearProbe
from backend.methods.registry import READOUTS, STATES, form_of
from backend.methods.representations import FORMS, Form
from backend.protocol import FOLDS, READER_PAPER, SPLIT_SEED
from backend.store.queries import metric_curve
from backend.store.writers import stage_rows
from backend.traces import View

CONTROLS = tuple(
    method for method in STATES if method not in (READER_PAPER, *READOUTS) and FORMS[form_of(method)].variant == "full"
)
"""Controls that read fingerprints, which is what is stored of shortened responses."""
CHECKED = 64  # Clean rows a fold that are scored again, to see that probes and log-posteriors are of the same run


def run(connection: duckdb.DuckDBPyConnection, release: Release, options: EvaluateOptions) -> None:
    """Score a proxy's shortened and Math100 responses, then measure every reader that has kept some."""
    for roster in options.rosters:
        if READER_PAPER in (options.methods or (READER_PAPER,)):
            for view in options.views:
                score(connection, release, options.proxy, view, roster, options.limit)
        rows = slice_of(release, "agent500", options.proxy, "ur", roster, options.limit)
        for reader in measured_readers(connection, roster, len(rows.prompt_ids)):
            if reader.method in READOUTS or (options.methods and reader.method not in options.methods):
                continue  # the stage readouts measures its own readers, calibration included
            own = reader.proxy == options.proxy and reader.view in options.views
            if own and reader.method in CONTROLS:
                score_control(connection, release, reader, roster, options.limit)
            if own or reader.method != READER_PAPER:
                evaluate(connection, release, reader, rows, roster, options.limit)


def score(
    connection: duckdb.DuckDBPyConnection,
    release: Release,
    proxy: str,
    view: View,
    roster: str,
    limit: int | None = None,
) -> None:
    """Keep the log-posteriors of the paper's readout for every length and domain whose fingerprints are on disk.

    What is kept of the others stays: it is of these probes, since ``keep_probes`` deletes that of others.

    Raises AtlasError if the clean evaluation is missing, or there are no fingerprints to stress it with.
    """
    rerun_command = evaluation(READER_PAPER, proxy, view, roster, limit)
    rows = slice_of(release, "agent500", proxy, view, roster, limit)
    other = slice_of(release, "math100", proxy, view, roster, limit)
    folder = artifact_folder(READER_PAPER, proxy, view, roster, len(rows.prompt_ids))
    layers = fold_layers(connection, f"{READER_PAPER}/{proxy}/{view}", roster, rerun_command)
    probes = load_probes(folder, rerun_command)
    found = _scored(rows, other, FORMS[form_of(READER_PAPER)], layers, probes, folder, rerun_command)
    if found < len(LENGTHS) + 1:
        blocks = sorted(set(layers.values()))
        extract = [
            extraction(benchmark, roster, proxy, view, blocks, limit=limit) for benchmark in ("agent500", "math100")
        ]
        lacking = f"Not all shortened and Math100 responses were read by {proxy} in view {view} for {roster}"
        if not found:
            raise AtlasError(lacking, f"Run: {extract[0]} and: {extract[1]}")
        print(f"{lacking}; what is missing is left out. Run: {extract[0]} and: {extract[1]}")


def score_control(
    connection: duckdb.DuckDBPyConnection, release: Release, reader: KeptReader, roster: str, limit: int | None = None
) -> None:
    """Keep the same of a control of fingerprints; nothing where no altered response is on disk at its blocks.

    Raises AtlasError if probes that are fitted again do not say what the control's evaluation kept.
    """
    view: View = "r" if reader.view == "r" else "ur"
    rerun_command = evaluation(reader.method, str(reader.proxy), view, roster, limit)
    rows, other = (
        slice_of(release, benchmark, str(reader.proxy), view, roster, limit) for benchmark in ("agent500", "math100")
    )
    layers = fold_layers(connection, reader.reader, roster, rerun_command)
    needed = set(layers.values())
    altered = [*(rows.layers(length) for length in LENGTHS), other.layers()]
    if not needed <= set(rows.layers()) or not any(needed <= set(available) for available in altered):
        return
    if not (reader.folder / "log_posteriors.npy").exists():
        print(f"{reader.reader} on {roster} is left out: its evaluation is kept elsewhere. Run: {rerun_command}")
        return
    heads = control_heads(reader.method, rows, layers)
    probes = {fold: head.probe for fold, head in enumerate(heads) if isinstance(head.probe, LinearProbe)}
    _scored(rows, other, FORMS[form_of(reader.method)], layers, probes, reader.folder, rerun_command)


def _scored(
    rows: Slice,
    other: Slice,
    form: Form,
    layers: Mapping[int, int],
    probes: Mapping[int, LinearProbe],
    folder: Path,
    rerun_command: str,
) -> int:
    """Score and keep every length and domain that is on disk at the probes' blocks; how many there were.

    Raises AtlasError if the probes do not give the kept log-posteriors of clean rows.
    """
    folds, clean = np.tile(rows.prompt_folds, len(rows.sources)), load_log_posteriors(folder, rerun_command)
    for fold, probe in probes.items():
        some = np.flatnonzero(folds == fold)[:CHECKED]
        features = form.columns(rows.load(layers[fold])[some])
        if features.shape[1] != len(probe.mean) or not np.allclose(
            probe.log_posterior(features), clean[some], atol=0.01
        ):
            raise AtlasError(
                f"The kept probe of fold {fold} does not give the kept log-posteriors at block {layers[fold]}",
                f"Evaluate again: {rerun_command}",
            )
    needed = set(layers.values())
    lengths = [length for length in LENGTHS if needed <= set(rows.layers(length))]
    for length in lengths:

        def shortened(layer: int, variant: str = length) -> npt.NDArray[np.floating]:
            return form.columns(rows.load(layer, variant))

        keep(folder / length_file(length), excluded_posteriors(shortened, layers, probes, folds))
    if not needed <= set(other.layers()):
        return len(lengths)
    keep(folder / TRANSFER_FILE, transferred_posteriors(lambda n: form.columns(other.load(n)), layers, probes))
    return len(lengths) + 1


def evaluate(
    connection: duckdb.DuckDBPyConnection,
    release: Release,
    reader: KeptReader,
    rows: Slice,
    roster: str,
    limit: int | None = None,
) -> None:
    """Measure one reader under every condition that it has kept log-posteriors for; nothing happens without any."""
    names = [name for name in (*map(length_file, LENGTHS), TRANSFER_FILE) if (reader.folder / name).exists()]
    if not names:
        return
    clean = pd.concat(
        metric_curve(connection, reader.reader, roster, reduction=reduction).assign(reduction=reduction)
        for reduction in ("pooled", "fold")
    )
    conditions: list[str] = []
    details = {"prompts": len(rows.prompt_ids), "sources": len(rows.sources), "conditions": conditions}
    key = {"reader": reader.reader, "roster": roster}
    weights = reader.proxy_hash(connection, roster)
    with stage_rows(connection, "stress", details, release.manifest_hash, weights, SPLIT_SEED, key=key) as build:
        for benchmark, condition, frames in _conditions(reader, rows, release, limit):
            frames = with_retained(frames, clean)
            about = {**build.key, "benchmark": benchmark, "condition": condition}
            if reader.method == READER_PAPER and not condition.endswith("-global"):
                write_attribution(connection, about, frames, build.build_id)
            else:  # only the paper's readout needs its confusions, which take most of the room
                build.replace("attribution_metrics", frames.metrics, benchmark=benchmark, condition=condition)
            conditions.append(f"{benchmark}/{condition}")
            _report(frames.metrics, about)


def _conditions(
    reader: KeptReader, rows: Slice, release: Release, limit: int | None
) -> Iterator[tuple[str, str, AttributionFrames]]:
    """Benchmark, condition and results, one condition at a time."""
    sources, families, prompts = rows.sources, rows.families, len(rows.prompt_ids)
    for length in LENGTHS:
        if (reader.folder / length_file(length)).exists():
            log_posteriors = reader.array(length_file(length), (len(sources) * prompts, len(sources)))
            frames = attribution_frames(log_posteriors, sources, families, rows.prompt_folds)
            yield "agent500", length, with_intervals(frames, log_posteriors, rows.prompt_folds)
            yield "agent500", f"{length}-global", global_frames(log_posteriors, sources, families)
    if (reader.folder / TRANSFER_FILE).exists():
        others = len(release.prompts("math100")["sample_id"].iloc[:limit])
        shape = (FOLDS, len(sources) * others, len(sources))
        yield "math100", "clean", transfer_frames(reader.array(TRANSFER_FILE, shape), sources, families)


def _report(metrics: pd.DataFrame, key: dict[str, object]) -> None:
    summary = summaries(metrics)
    best = summary[summary["k"] == summary["k"].max()].set_index(["reduction", "metric"])["value"]
    parts = []
    for reduction in ("fold", "pooled"):
        if (reduction, "accuracy") in best:
            retained = f", {best[reduction, 'retained']:.1%} retained" if (reduction, "retained") in best else ""
            parts.append(
                f"{reduction} {best[reduction, 'accuracy']:.3f} (macro-F1 {best[reduction, 'macro_f1']:.3f}{retained})"
            )
    print(
        f"{key['reader']} on {key['roster']}, {key['benchmark']} {key['condition']}: "
        f"K = {summary['k'].max()} accuracy {', '.join(parts)}"
    )
