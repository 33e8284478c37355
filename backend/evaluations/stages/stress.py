"""Stress: fitted on clean Agent500, scored on shortened responses and on Math100 (paper, Shifted Evaluation).

The paper's readout is scored by the saved fold probes, controls of fingerprints by probes that are fitted once more;
other methods save log-posteriors of their own (:mod:`backend.evaluations.artifacts`). Groups of shortened responses lie
within the folds as in the clean evaluation (the paper's tables), or are cut from all folds at once (the release's
files). Every Math100 response is scored by all five fold models; the table is the mean and spread over the models, the
curve the ensemble of their mean log-posterior.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd

from backend.corpus.release import Release
from backend.corpus.roster_rows import Slice
from backend.errors import AtlasError
from backend.evaluations import artifacts
from backend.evaluations.attribution import AttributionFrames, Scored, attribution_frames, grouped_frames, summaries
from backend.evaluations.controls import control_heads
from backend.evaluations.stages import EvaluateOptions
from backend.evaluations.stages.roster_run import MeasuredReader, RosterRun
from backend.evidence import accumulate
from backend.methods.probe import LinearProbe
from backend.methods.readout import Floats, Ints, Rows
from backend.methods.registry import READOUTS, STATES, form_of
from backend.methods.representations import FORMS, Form
from backend.protocol import BUDGETS, FOLDS, GROUPING_SEEDS, READER_PAPER, budget_groups, grid_rows
from backend.store.queries import metric_curve
from backend.traces import View

CONTROLS = tuple(
    method for method in STATES if method not in (READER_PAPER, *READOUTS) and FORMS[form_of(method)].variant == "full"
)
"""Controls that read fingerprints, which is what is stored of shortened responses."""
CHECKED = 64  # Clean rows a fold that are scored again, to see that probes and log-posteriors are of the same run


def run(connection: duckdb.DuckDBPyConnection, release: Release, options: EvaluateOptions) -> None:
    """Score a proxy's shortened and Math100 responses, then measure every reader that has saved some."""
    for roster in options.rosters:
        run = RosterRun(connection, release, roster, options.limit)
        if READER_PAPER in (options.methods or (READER_PAPER,)):
            for view in options.views:
                score(run, options.proxy, view)
        rows = run.rows(options.proxy)
        for reader in run.measured_readers():
            if reader.method in READOUTS or (options.methods and reader.method not in options.methods):
                continue  # the stage readouts measures its own readers, calibration included
            own = reader.proxy == options.proxy and reader.view in options.views
            if own and reader.method in CONTROLS:
                score_control(run, reader)
            if own or reader.method != READER_PAPER:
                evaluate(run, reader, rows)


def score(run: RosterRun, proxy: str, view: View) -> None:
    """Save the log-posteriors of the paper's readout for every length and domain whose fingerprints are on disk.

    Raises AtlasError if the clean evaluation is missing, or there are no fingerprints to stress it with.
    """
    rerun_command = run.command(READER_PAPER, proxy, view)
    folder = run.folder(READER_PAPER, proxy, view)
    layers = run.fold_layers(f"{READER_PAPER}/{proxy}/{view}", rerun_command)
    slices = run.rows(proxy, view), run.rows(proxy, view, "math100")
    form, probes = FORMS[form_of(READER_PAPER)], artifacts.load_probes(folder, rerun_command)
    found = _score_all(slices, form, layers, probes, folder, rerun_command)
    if found < len(artifacts.CUTS) + 1:
        blocks = sorted(set(layers.values()))
        extract = [
            artifacts.extraction(benchmark, run.roster, proxy, view, blocks, limit=run.limit)
            for benchmark in ("agent500", "math100")
        ]
        lacking = f"Not all shortened and Math100 responses were read by {proxy} in view {view} for {run.roster}"
        if not found:
            raise AtlasError(lacking, f"Run: {extract[0]} and: {extract[1]}")
        print(f"{lacking}; what is missing is skipped. Run: {extract[0]} and: {extract[1]}")


def score_control(run: RosterRun, reader: MeasuredReader) -> None:
    """Save the same of a control of fingerprints; nothing where no altered response is on disk at its blocks."""
    view, proxy = reader.input_view, str(reader.proxy)
    rerun_command = run.command(reader.method, proxy, view)
    rows, other = run.rows(proxy, view), run.rows(proxy, view, "math100")
    layers = run.fold_layers(reader.reader, rerun_command)
    needed = set(layers.values())
    altered = [*(rows.layers(length) for length in artifacts.CUTS), other.layers()]
    if not needed <= set(rows.layers()) or not any(needed <= set(available) for available in altered):
        return
    if not reader.scored:
        print(
            f"{reader.reader} on {run.roster} is skipped: its evaluation is not on this machine. Run: {rerun_command}"
        )
        return
    heads = control_heads(reader.method, rows, layers)
    probes = {fold: head.probe for fold, head in enumerate(heads) if isinstance(head.probe, LinearProbe)}
    _score_all((rows, other), FORMS[form_of(reader.method)], layers, probes, reader.folder, rerun_command)


def _score_all(
    slices: tuple[Slice, Slice],
    form: Form,
    layers: Mapping[int, int],
    probes: Mapping[int, LinearProbe],
    folder: Path,
    rerun_command: str,
) -> int:
    """Score and save every length and domain that is on disk at the probes' blocks; how many there were.

    slices : Of Agent500 and of Math100. Raises AtlasError if the probes do not give the saved log-posteriors of clean
        rows.
    """
    rows, other = slices
    folds, clean = np.tile(rows.prompt_folds, len(rows.sources)), artifacts.load_log_posteriors(folder, rerun_command)
    for fold, probe in probes.items():
        some = np.flatnonzero(folds == fold)[:CHECKED]
        features = form.columns(rows.load(layers[fold])[some])
        if features.shape[1] != len(probe.mean) or not np.allclose(
            probe.log_posterior(features), clean[some], atol=0.01
        ):
            raise AtlasError(
                f"The saved probe of fold {fold} does not give the saved log-posteriors at block {layers[fold]}",
                f"Evaluate again: {rerun_command}",
            )
    needed = set(layers.values())
    lengths = [length for length in artifacts.CUTS if needed <= set(rows.layers(length))]

    def columns(source: Slice, variant: str, layer: int) -> Rows:
        return form.columns(source.load(layer, variant))

    for length in lengths:
        scores = excluded_posteriors(partial(columns, rows, length), layers, probes, folds)
        artifacts.keep(folder / artifacts.posterior_file(length), scores)
    if not needed <= set(other.layers()):
        return len(lengths)
    scores = transferred_posteriors(partial(columns, other, "full"), layers, probes)
    artifacts.keep(folder / artifacts.TRANSFER_FILE, scores)
    return len(lengths) + 1


def evaluate(run: RosterRun, reader: MeasuredReader, rows: Slice) -> None:
    """Measure one reader under every condition that it has saved log-posteriors for; nothing happens without any."""
    names = [*map(artifacts.posterior_file, artifacts.CUTS), artifacts.TRANSFER_FILE]
    if not any((reader.folder / name).exists() for name in names):
        return
    clean = pd.concat(
        metric_curve(run.connection, reader.reader, run.roster, reduction=reduction).assign(reduction=reduction)
        for reduction in ("pooled", "fold")
    )
    conditions: list[str] = []
    details = {"prompts": len(rows.prompt_ids), "sources": len(rows.sources), "conditions": conditions}
    weights = run.proxy_hash(reader.reader)
    with run.build("stress", details, weights, reader=reader.reader, roster=run.roster) as build:
        for benchmark, condition, frames in _conditions(run, reader, rows):
            frames = with_retained(frames, clean)
            about = {**build.key, "benchmark": benchmark, "condition": condition}
            if reader.method == READER_PAPER and not condition.endswith("-global"):
                artifacts.write_attribution(run.connection, about, frames, build.build_id)
            else:  # only the paper's readout needs its confusions, which take most of the room
                build.replace("attribution_metrics", frames.metrics, benchmark=benchmark, condition=condition)
            conditions.append(f"{benchmark}/{condition}")
            _report(frames.metrics, about)


def _conditions(run: RosterRun, reader: MeasuredReader, rows: Slice) -> Iterator[tuple[str, str, AttributionFrames]]:
    """Benchmark, condition and results, one condition at a time."""
    sources, families = rows.sources, rows.families
    for length in artifacts.CUTS:
        if (reader.folder / artifacts.posterior_file(length)).exists():
            log_posteriors = reader.array(artifacts.posterior_file(length), (len(rows.labels), len(sources)))
            frames = attribution_frames(log_posteriors, sources, families, rows.prompt_folds)
            yield "agent500", length, artifacts.with_intervals(frames, log_posteriors, rows.prompt_folds)
            yield "agent500", f"{length}-global", global_frames(log_posteriors, sources, families)
    if (reader.folder / artifacts.TRANSFER_FILE).exists():
        others = len(run.release.prompts("math100")["sample_id"].iloc[: run.limit])
        shape = (FOLDS, len(sources) * others, len(sources))
        yield "math100", "clean", transfer_frames(reader.array(artifacts.TRANSFER_FILE, shape), sources, families)


def _report(metrics: pd.DataFrame, key: dict[str, object]) -> None:
    summary = summaries(metrics)
    best = summary[summary["k"] == summary["k"].max()].set_index(["reduction", "metric"])["value"]
    parts = []
    for reduction, values in ((one, best[one]) for one in ("fold", "pooled") if (one, "accuracy") in best):
        retained = f", {values['retained']:.1%} retained" if "retained" in values else ""
        parts.append(f"{reduction} {values['accuracy']:.3f} (macro-F1 {values['macro_f1']:.3f}{retained})")
    where = f"{key['reader']} on {key['roster']}, {key['benchmark']} {key['condition']}"
    print(f"{where}: K = {summary['k'].max()} accuracy {', '.join(parts)}")


def excluded_posteriors(
    load: Callable[[int], Rows], layer_of_fold: Mapping[int, int], probes: Mapping[int, LinearProbe], folds: Ints
) -> Floats:
    """Log-posteriors (n, C) of altered Agent500 rows, each by the fold model that excluded its prompt.

    load : Layer number to fingerprints (n, D); layer_of_fold, probes : Block and probe of every fold; folds : (n,).
    """
    out = np.empty((len(folds), len(probes[0].bias)), dtype=np.float32)
    for fold, probe in probes.items():
        rows = folds == fold
        out[rows] = probe.log_posterior(load(layer_of_fold[fold])[rows])
    return out


def transferred_posteriors(
    load: Callable[[int], Rows], layer_of_fold: Mapping[int, int], probes: Mapping[int, LinearProbe]
) -> Floats:
    """Log-posteriors (F, n, C) of rows of another domain, by every fold model; see :func:`excluded_posteriors`."""
    return np.stack([probes[fold].log_posterior(load(layer_of_fold[fold])) for fold in sorted(probes)])


def global_frames(
    log_posteriors: Floats, sources: Sequence[str], families: Sequence[str], budgets: Sequence[int] = BUDGETS
) -> AttributionFrames:
    """Evaluate with groups that are cut from all folds at once, as the release does for shortened responses.

    log_posteriors : (S * P, S), row = source * P + prompt; sources, families : length S.
    Returns metrics of the reduction 'pooled' only: a group may hold traces of several folds.
    """
    return _evaluate(log_posteriors, [], sources, families, budgets)


def transfer_frames(
    log_posteriors: Floats, sources: Sequence[str], families: Sequence[str], budgets: Sequence[int] = BUDGETS
) -> AttributionFrames:
    """Evaluate fold models on another domain.

    log_posteriors : (F, S * P, S), by every fold model, row = source * P + prompt; sources, families : length S.
    Reduction 'fold' holds the fold models, each averaged over the seeds, then their mean and population standard
    deviation; 'pooled', accuracy a source and confusion are those of the ensemble.
    """
    ensemble = log_posteriors.mean(0, dtype=np.float64).astype(np.float32)
    return _evaluate(ensemble, list(log_posteriors), sources, families, budgets)


def retained_shares(metrics: pd.DataFrame, clean: pd.DataFrame) -> pd.DataFrame:
    """What share of its clean accuracy a reader retains, as rows of the metric 'retained'.

    metrics : As in :class:`AttributionFrames`; clean : Clean accuracies; columns k, reduction, value.
    """
    both = summaries(metrics, "accuracy").merge(
        clean[["k", "reduction", "value"]], on=["k", "reduction"], suffixes=("", "_clean")
    )
    both = both[both["value_clean"] > 0]
    return both.assign(metric="retained", value=both["value"] / both["value_clean"], std=np.nan)[metrics.columns]


def with_retained(frames: AttributionFrames, clean: pd.DataFrame) -> AttributionFrames:
    """The same results with the share of the clean accuracy that is retained."""
    shares = retained_shares(frames.metrics, clean)
    return replace(frames, metrics=pd.concat([frames.metrics, shares], ignore_index=True))


def _evaluate(
    pooled_posteriors: Floats,
    model_posteriors: Sequence[Floats],
    sources: Sequence[str],
    families: Sequence[str],
    budgets: Sequence[int],
) -> AttributionFrames:
    classes = len(sources)
    prompts = len(pooled_posteriors) // classes
    rows = grid_rows(classes, prompts, np.ones(prompts, dtype=np.bool_))

    def grouped(k: int, seed: int) -> tuple[Scored, dict[int, Scored]]:
        groups, truth = budget_groups(rows, k, seed, None)
        models = {n: (accumulate(posteriors, groups), truth) for n, posteriors in enumerate(model_posteriors)}
        return (accumulate(pooled_posteriors, groups), truth), models

    return grouped_frames(grouped, sources, families, [k for k in budgets if k <= prompts], GROUPING_SEEDS)
