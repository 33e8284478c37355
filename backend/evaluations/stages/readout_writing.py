"""What the stage readouts writes of a reader: every response length, its calibration, and the other benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.evaluations.artifacts import keep, write_attribution, write_log_posteriors
from backend.evaluations.attribution import AttributionFrames, attribution_frames
from backend.evaluations.stages.baselines import MATH
from backend.evaluations.stages.readout_calibration import Calibrator
from backend.evaluations.stages.readout_members import Scorer
from backend.evaluations.stress import TRANSFER_FILE, global_frames, length_file, retained_shares, transfer_frames
from backend.methods.domain_adaptation import balanced
from backend.protocol import CLEAN
from backend.store.writers import replace_rows

Floats = npt.NDArray[np.float32]


def write_lengths(
    connection: duckdb.DuckDBPyConnection,
    scorer: Scorer,
    key: Mapping[str, str],
    folder: Path,
    posteriors: Mapping[str, Floats],
    calibrator: Calibrator,
    build: str,
) -> pd.DataFrame:
    """Keep and measure out-of-fold log-posteriors under every condition, whole responses first.

    Returns accuracies of whole responses; columns k, reduction, value.
    """
    rows = scorer.any_rows
    for length, log_posteriors in posteriors.items():
        keep(folder / ("log_posteriors.npy" if length == CLEAN else length_file(length)), log_posteriors)
        frames = attribution_frames(log_posteriors, rows.sources, rows.families, rows.prompt_folds)
        about = {**key, "benchmark": "agent500", "condition": length}
        if length == CLEAN:
            clean = _accuracies(frames.metrics)
            write_log_posteriors(connection, about, log_posteriors, frames, rows.prompt_folds, build)
        else:
            frames = _with_retained(frames, clean)
            write_log_posteriors(connection, about, log_posteriors, frames, rows.prompt_folds, build)
        calibrated = calibrator.measure(length, log_posteriors)
        for metric, part in calibrated.groupby("metric"):
            replace_rows(connection, "attribution_metrics", part, {**about, "metric": metric}, build)
        _report(about, frames.metrics, calibrated)
        if length != CLEAN:
            wide = global_frames(log_posteriors, rows.sources, rows.families)
            about["condition"] = f"{length}-global"
            replace_rows(connection, "attribution_metrics", _with_retained(wide, clean).metrics, about, build)
    return clean


def write_transfer(
    connection: duckdb.DuckDBPyConnection,
    scorer: Scorer,
    key: Mapping[str, str],
    folder: Path,
    plain: Floats,
    aligned: Floats | None,
    clean: pd.DataFrame,
    build: str,
) -> None:
    """Keep and measure Math100, (FOLDS, n, C), without any data of it, and with an unlabelled pool.

    ``aligned`` are the scores of fingerprints that the pool moved, None where no member reads any.
    """
    rows = scorer.any_rows
    keep(folder / TRANSFER_FILE, plain)
    conditions = {"clean": plain, "background": np.stack([balanced(part, scorer.pools) for part in plain])}
    if aligned is not None:
        conditions["aligned"] = np.stack([balanced(part, scorer.pools) for part in aligned])
    for condition, log_posteriors in conditions.items():
        frames = transfer_frames(log_posteriors, rows.sources, rows.families)
        about = {**key, "benchmark": MATH, "condition": condition}
        write_attribution(connection, about, _with_retained(frames, clean), build)
        _report(about, frames.metrics, None)


def _accuracies(metrics: pd.DataFrame) -> pd.DataFrame:
    """Summaries of the accuracy; columns k, reduction, value."""
    summary = metrics[(metrics["metric"] == "accuracy") & metrics["seed"].isna() & metrics["fold"].isna()]
    return summary[["k", "reduction", "value"]]


def _with_retained(frames: AttributionFrames, clean: pd.DataFrame) -> AttributionFrames:
    """The same results with the share of the clean accuracy that is retained."""
    shares = retained_shares(frames.metrics, clean)
    return replace(frames, metrics=pd.concat([frames.metrics, shares], ignore_index=True))


def _report(about: Mapping[str, str], metrics: pd.DataFrame, calibrated: pd.DataFrame | None) -> None:
    summary = metrics[metrics["seed"].isna() & metrics["fold"].isna() & (metrics["metric"] == "accuracy")]
    curve = summary[summary["reduction"] == "fold"].set_index("k")["value"]
    text = ", ".join(f"{k}: {value:.3f}" for k, value in curve.items())
    if calibrated is not None:
        errors = calibrated[calibrated["metric"] == "ece_calibrated"]
        errors = errors[(errors["reduction"] == "pooled") & errors["seed"].isna()].set_index("k")["value"]
        text += "; ECE " + ", ".join(f"{value:.3f}" for value in errors)
    print(f"{about['reader']} on {about['roster']}, {about['benchmark']} {about['condition']}: {text}", flush=True)
