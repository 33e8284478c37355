"""What the evidence of an audit is worth: calibration, unknown sources, sequential stop and drift, cross-validated.

Needs the kept out-of-fold log-posteriors of the paper's readout; sources left out by refitting, drift and the reference
of the domain need its fingerprints as well. The validation goes to ``attribution_metrics`` (reduction 'pooled', beside
the metrics of attribution itself); what a live attribution applies is kept next to the log-posteriors:
``calibration.CONDITION.npz``, ``unknown.npz``, ``stop.LEVEL.npz`` and ``domain.agent500.npz``, all fitted on all folds.
Parts can be asked for by name (``--method calibration,unknown,refit,stop,drift``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.audit.calibration import Calibration, fit_calibration, held_out_groups
from backend.audit.domains import fit_domain
from backend.audit.open_set import LeftOut, unknown_frame
from backend.audit.power import drift_frame
from backend.audit.sequential import fit_stop_rule, nearest_sources, running_ratios
from backend.audit.unknown import Statistic, fit_unknown, without_columns
from backend.audit.validation import (
    SESSION_ORDERS,
    STOP_LEVELS,
    calibration_frame,
    fold_sessions,
    stop_frame,
)
from backend.errors import AtlasError
from backend.evaluations.stress import LENGTHS, length_file
from backend.probe import fit_probe, standardiser
from backend.protocol import BUDGETS, SPLIT_SEED
from backend.release import Release
from backend.store.builds import recorded
from backend.store.queries import selected_layers
from backend.store.writers import replace_rows
from backend.traces import View
from jobs import _common
from jobs._common import METHOD
from jobs._stages import Asked
from jobs._stages.kept import kept_folder, kept_log_posteriors

PARTS = ("calibration", "unknown", "refit", "stop", "drift")
STATISTICS: tuple[Statistic, ...] = ("relative-mahalanobis", "max-logit")
SIBLING_DRAWS = 3
HELD_OUT = (0, 1)
"""Folds that a probe refitted without some sources does not see: one for the reference, one for the test, in turn."""

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.intp]


def run(connection: duckdb.DuckDBPyConnection, release: Release, asked: Asked) -> None:
    """Validate the audit's statistics for every asked view and roster."""
    unknown = sorted(set(asked.methods) - set(PARTS))
    if unknown:
        raise AtlasError(f"The audit has no part '{', '.join(unknown)}'", f"Choose from {', '.join(PARTS)}")
    for view in asked.views:
        for roster in asked.rosters:
            evaluate(connection, release, asked.proxy, view, roster, asked.limit, asked.methods or PARTS)


def evaluate(
    connection: duckdb.DuckDBPyConnection,
    release: Release,
    proxy: str,
    view: View,
    roster: str,
    limit: int | None = None,
    parts: tuple[str, ...] = PARTS,
) -> None:
    """Measure and write the asked parts of one reader and roster, and keep what was fitted."""
    rows = _common.slice_of(release, "agent500", proxy, view, roster, limit)
    reader, folder = f"{METHOD}/{proxy}/{view}", kept_folder(METHOD, proxy, view, roster, len(rows.prompt_ids))
    again = f"python -m jobs evaluate --proxy {proxy} --view {view} --roster {roster}"
    again += f" --limit {limit}" if limit else ""
    log_posteriors, folds = np.asarray(kept_log_posteriors(folder, again)), rows.prompt_folds
    family = np.unique(rows.families, return_inverse=True)[1]
    fingerprints = _fingerprints(connection, rows, reader, roster)
    if fingerprints is None and {"refit", "drift"} & set(parts):
        print(f"{reader} on {roster}: no fingerprints are here; refitted probes, domain and their drift are left out")
    identity = rows.store.identity()
    details = {"parts": list(parts), "prompts": len(rows.prompt_ids), "sources": len(rows.sources)}
    with recorded(
        connection,
        stage="audit",
        command=_common.command_line(),
        data_hash=release.manifest_hash,
        proxy_hash=identity.proxy_hash if identity else None,
        seed=SPLIT_SEED,
        details=details,
    ) as build:

        def write(frame: pd.DataFrame, condition: str = "clean") -> None:
            key = {"reader": reader, "roster": roster, "benchmark": "agent500", "condition": condition}
            for metric, part in frame.groupby("metric"):
                full = part.assign(reduction="pooled", seed=None, fold=None)
                replace_rows(connection, "attribution_metrics", full, {**key, "metric": metric}, build)
            print(f"{reader} on {roster}, {condition}:")
            print(frame.pivot(index="metric", columns="k", values="value").round(3).to_string())

        if "calibration" in parts:
            for condition in ("clean", *LENGTHS):
                path = folder / ("log_posteriors.npy" if condition == "clean" else length_file(condition))
                if path.exists():
                    held = np.load(path, mmap_mode="r", allow_pickle=False)
                    write(calibration_frame(held, folds, with_bias=None), condition)
                    _keep_arrays(folder / f"calibration.{condition}.npz", _calibration(held, folds).to_arrays())
        if "unknown" in parts:
            budgets = _budgets(folds)
            for scenario, runs in _left_out_sets(family):
                for statistic in STATISTICS:
                    removed = (_columns_removed(log_posteriors, len(folds), out) for out in runs)
                    write(unknown_frame(removed, folds, f"{scenario}-columns", statistic, budgets))
            blocks = np.tile(folds, len(family))
            reference = fit_unknown(log_posteriors, rows.labels, blocks, budgets=budgets)
            _keep_arrays(folder / "unknown.npz", reference.to_arrays())
        if "refit" in parts and fingerprints is not None:
            for scenario, runs in _left_out_sets(family):
                refitted = [_refitted(fingerprints, folds, out) for out in runs]
                for statistic in STATISTICS:
                    # The even and odd prompts of one fold are the blocks: more traces than that are not resampled well.
                    budgets = [k for k in _budgets(folds) if k <= int(np.bincount(folds).min()) // 2]
                    write(unknown_frame(refitted, folds, f"{scenario}-refit", statistic, budgets))
        if "stop" in parts:
            write(stop_frame(log_posteriors, folds))
            _keep_stop_rules(folder, log_posteriors, folds)
        if "drift" in parts:
            write(drift_frame(log_posteriors, family, "log-posteriors", _windows(folds)))
            if fingerprints is not None:
                mean, scale = standardiser(fingerprints)
                write(drift_frame((fingerprints - mean) / scale, family, "fingerprints", _windows(folds)))
                domain = fit_domain(fingerprints, rows.labels)
                _keep_arrays(folder / "domain.agent500.npz", domain.to_arrays())


def _fingerprints(
    connection: duckdb.DuckDBPyConnection, rows: _common.Slice, reader: str, roster: str
) -> Floats | None:
    """Fingerprints at the modal block, None where they are not on disk."""
    chosen = selected_layers(connection, reader, roster)
    modal = chosen.loc[chosen["outer_fold"].isna(), "layer"]
    if modal.empty or int(modal.iloc[0]) not in rows.layers():
        return None
    return rows.load(int(modal.iloc[0])).astype(np.float32)


def _budgets(folds: Ints) -> list[int]:
    return [k for k in BUDGETS if k <= int(np.bincount(folds).min())]


def _windows(folds: Ints) -> list[int]:
    return [window for window in (10, 20, 50) if 2 * window <= len(folds)] or [len(folds) // 2]


def _calibration(log_posteriors: Floats, folds: Ints) -> Calibration:
    return fit_calibration({k: held_out_groups(log_posteriors, folds, k) for k in _budgets(folds)}, with_bias=None)


def _left_out_sets(family: Ints) -> Iterator[tuple[str, list[Ints]]]:
    """Whole families one at a time, and sets of one source a family whose siblings stay."""
    families, sizes = np.unique(family, return_counts=True)
    if len(families) > 2:
        yield "family", [np.flatnonzero(family == one) for one in families]
    rng = np.random.default_rng(SPLIT_SEED)
    several = families[sizes > 1]
    if len(several):
        one_each = [[rng.choice(np.flatnonzero(family == one)) for one in several] for _ in range(SIBLING_DRAWS)]
        yield "sibling", [np.array(sources) for sources in one_each]


def _columns_removed(log_posteriors: Floats, prompts: int, out: Ints) -> LeftOut:
    sources = log_posteriors.shape[1]
    kept = np.setdiff1d(np.arange(sources), out)
    source, prompt = np.repeat(np.arange(sources), prompts), np.tile(np.arange(prompts), sources)
    return LeftOut(without_columns(log_posteriors, kept), source, prompt, kept)


def _refitted(fingerprints: Floats, folds: Ints, out: Ints) -> LeftOut:
    """Log-posteriors of the held-out folds by a probe that never met some sources, nor those folds."""
    sources = len(fingerprints) // len(folds)
    source, prompt = np.repeat(np.arange(sources), len(folds)), np.tile(np.arange(len(folds)), sources)
    kept = np.setdiff1d(np.arange(sources), out)
    column = np.full(sources, -1, dtype=np.intp)
    column[kept] = np.arange(len(kept))
    held = np.isin(folds[prompt], HELD_OUT)
    train = ~held & (column[source] >= 0)
    probe = fit_probe(fingerprints[train], column[source[train]], len(kept))
    return LeftOut(probe.log_posterior(fingerprints[held]), source[held], prompt[held], kept)


def _keep_stop_rules(folder: Path, log_posteriors: Floats, folds: Ints) -> None:
    classes = log_posteriors.shape[1]
    sessions = fold_sessions(folds, np.unique(folds).tolist(), classes, SESSION_ORDERS, SPLIT_SEED)
    ratios = running_ratios(log_posteriors, sessions.rows, _calibration(log_posteriors, folds))
    nearest = nearest_sources(log_posteriors, np.repeat(np.arange(classes), len(folds)))
    for level in STOP_LEVELS:
        _keep_arrays(folder / f"stop.{level:g}.npz", fit_stop_rule(ratios, sessions, nearest, level).to_arrays())


def _keep_arrays(path: Path, arrays: Mapping[str, npt.NDArray[np.generic]]) -> None:
    scratch = path.with_suffix(".partial.npz")
    np.savez(scratch, **arrays)  # type: ignore[arg-type]
    scratch.replace(path)
