"""What the evidence of an audit is worth: calibration, unknown sources, sequential stop and drift, cross-validated.

Needs the kept out-of-fold log-posteriors of a readout that can be enrolled; sources left out by refitting (of probes on
spectral blocks and of discriminants), and drift between fingerprints, need fingerprints as well. The rows go to
``audit_validation`` and, for the enrolment of the roster, to ``validation.npz`` beside the log-posteriors. Parts and
readouts can be asked for by name (``--method lda-live,calibration,refit``); the rows of the others stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.corpus.release import Release
from backend.corpus.roster_rows import Slice, slice_of
from backend.errors import AtlasError
from backend.evaluations.artifacts import artifact_folder, enrolled_folder, evaluation, load_log_posteriors
from backend.evaluations.components import block_columns
from backend.evaluations.refits import HELD_OUT, Rediscriminated
from backend.evaluations.stages import EvaluateOptions
from backend.evaluations.stages.readout_live import load_banks
from backend.evaluations.stress import LENGTHS, length_file
from backend.inference.calibration import WITH_BIAS, Calibration, budgets_of, held_out_groups
from backend.inference.drift_power import drift_frame
from backend.inference.open_set import LeftOut, unknown_frame
from backend.inference.unknown_source import Statistic, without_columns
from backend.inference.validation import (
    CURVES,
    SPACE,
    calibration_frame,
    fold_calibrations,
    stop_frame,
    validation_arrays,
)
from backend.methods.probe import fit_probe, standardiser
from backend.methods.registry import ENROLLABLE, FUSED_LIVE, LDA_LIVE, block_of, of_part, reader_id
from backend.protocol import CLEAN, READER_PAPER, SPLIT_SEED
from backend.store.audit_queries import validation
from backend.store.builds import command_line, recorded
from backend.store.queries import selected_layers
from backend.store.writers import replace_rows
from backend.traces import View

PARTS = ("calibration", "unknown", "refit", "stop", "drift")
STATISTICS: tuple[Statistic, ...] = ("relative-mahalanobis", "max-logit")
SIBLING_DRAWS = 3
VALIDATION = "validation.npz"
PROBED = (READER_PAPER, *of_part("components"))
"""Readers that are the paper's probe on a spectral block."""

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.intp]
Write = Callable[[pd.DataFrame, str, str], None]
"""Receives rows, their part and their condition."""


def run(connection: duckdb.DuckDBPyConnection, release: Release, options: EvaluateOptions) -> None:
    """Validate the audit's statistics for every asked view and roster."""
    unknown = sorted(set(options.methods) - {*PARTS, *ENROLLABLE})
    if unknown:
        choices = ", ".join((*PARTS, *ENROLLABLE))
        raise AtlasError(f"The audit has no part '{', '.join(unknown)}'", f"Choose from {choices}")
    parts = tuple(part for part in PARTS if part in options.methods) or PARTS
    for view in options.views:
        for roster in options.rosters:
            for method in _methods(release, options, view, roster):
                evaluate(connection, release, options.proxy, view, roster, options.limit, parts, method)


def _methods(release: Release, options: EvaluateOptions, view: View, roster: str) -> list[str]:
    """The readouts that were asked for; else the paper's, and those of live attribution that are kept."""
    named = [method for method in ENROLLABLE if method in options.methods]
    prompts = len(slice_of(release, "agent500", options.proxy, view, roster, options.limit).prompt_ids)
    live = [
        method
        for method in (LDA_LIVE, FUSED_LIVE)
        if (artifact_folder(method, options.proxy, view, roster, prompts) / "log_posteriors.npy").exists()
    ]
    return named or [READER_PAPER, *live]


def evaluate(
    connection: duckdb.DuckDBPyConnection,
    release: Release,
    proxy: str,
    view: View,
    roster: str,
    limit: int | None = None,
    parts: tuple[str, ...] = PARTS,
    method: str = READER_PAPER,
) -> None:
    """Measure and write the asked parts of one reader and roster."""
    rows = slice_of(release, "agent500", proxy, view, roster, limit)
    reader, folder = reader_id(method, proxy, view), enrolled_folder(method, proxy, view, roster, len(rows.prompt_ids))
    rerun_command = evaluation(method, proxy, view, roster, limit)
    log_posteriors = load_conditions(folder, rerun_command)
    fingerprints = _fingerprints(connection, rows, f"{READER_PAPER}/{proxy}/{view}", roster)
    refit = None
    if fingerprints is not None and "refit" in parts:
        if method == LDA_LIVE:
            blocks = load_banks(folder, rerun_command)[1]
            refit = Rediscriminated.of([rows.load(block) for block in blocks], rows.prompt_folds)
        elif method in PROBED:
            columns = block_columns(block_of(method), fingerprints.shape[1])
            refit = partial(_refitted, fingerprints[:, columns], rows.prompt_folds)
        else:
            print(f"{reader} on {roster}: it is not refitted without some of its sources")
            parts = tuple(part for part in parts if part != "refit")
    if fingerprints is None and {"refit", "drift"} & set(parts):
        print(f"{reader} on {roster}: no fingerprints are here; refitted probes and their drift are left out")
    identity = rows.store.identity()
    details = {"parts": list(parts), "prompts": len(rows.prompt_ids), "sources": len(rows.sources)}
    with recorded(
        connection,
        stage="audit",
        command=command_line(),
        data_hash=release.manifest_hash,
        proxy_hash=identity.proxy_hash if identity else None,
        seed=SPLIT_SEED,
        details=details,
    ) as build:
        write = writer(connection, reader, roster, build)
        validate(write, log_posteriors, rows.prompt_folds, rows.families, fingerprints, parts, refit)
    keep_validation(connection, reader, roster, folder)


def validate(
    write: Write,
    log_posteriors: dict[str, Floats],
    folds: Ints,
    families: list[str],
    fingerprints: Floats | None = None,
    parts: tuple[str, ...] = PARTS,
    refit: Callable[[Ints], LeftOut] | None = None,
) -> None:
    """Measure the asked parts.

    Parameters
    ----------
    write : callable
    log_posteriors : dict of condition to ndarray of shape (C * P, C)
        Out-of-fold, row = source * P + prompt; 'clean' and cuts.
    folds : ndarray of shape (P,)
    families : list of str, length C
    fingerprints : ndarray of shape (C * P, 2 d), optional
        Without them there is no 'refit', and no drift between fingerprints.
    parts : tuple of str
    refit : callable, optional
        Sources that are left out, to what a readout says that never met them; the paper's probe on the fingerprints
        when absent.
    """
    family, clean = np.unique(families, return_inverse=True)[1], log_posteriors[CLEAN]
    budgets = budgets_of(folds)
    calibrations: dict[int, Calibration] | None = None
    if {"calibration", "stop"} & set(parts):
        calibrations = fold_calibrations({k: held_out_groups(clean, folds, k) for k in budgets}, WITH_BIAS, family)
    if "calibration" in parts:
        for condition, held in log_posteriors.items():
            known = calibrations if condition == CLEAN else None
            frame = calibration_frame(held, folds, with_bias=WITH_BIAS, fitted=known, family=family)
            write(frame, "calibration", condition)
    if "unknown" in parts:
        write(_unknown(family, lambda out: _columns_removed(clean, len(folds), out), folds, budgets), "unknown", CLEAN)
    if "refit" in parts and fingerprints is not None:
        # Every second prompt of one fold is a block: more traces than that are not resampled well.
        smallest = int(np.bincount(folds).min())
        few = [k for k in budgets if k <= smallest // 2]
        if smallest >= 4:
            runs: dict[bytes, LeftOut] = {}

            def refitted(out: Ints) -> LeftOut:
                if out.tobytes() not in runs:  # a fit serves every statistic
                    runs[out.tobytes()] = refit(out) if refit else _refitted(fingerprints, folds, out)
                return runs[out.tobytes()]

            write(_unknown(family, refitted, folds, few), "refit", CLEAN)
    if "stop" in parts:
        write(stop_frame(clean, folds, calibrations=calibrations), "stop", CLEAN)
    if "drift" in parts:
        frames = [drift_frame(clean, family, "log-posteriors", _windows(folds))]
        if fingerprints is not None:
            mean, scale = standardiser(fingerprints)
            frames.append(drift_frame((fingerprints - mean) / scale, family, SPACE, _windows(folds)))
        write(pd.concat(frames, ignore_index=True), "drift", CLEAN)


def validation_rows(
    log_posteriors: dict[str, Floats],
    folds: Ints,
    families: list[str],
    fingerprints: Floats | None = None,
    refit: Callable[[Ints], LeftOut] | None = None,
    parts: tuple[str, ...] = PARTS,
) -> pd.DataFrame:
    """All rows of the validation in one frame, with their part and condition; see :func:`validate`."""
    frames: list[pd.DataFrame] = []

    def collect(frame: pd.DataFrame, part: str, condition: str) -> None:
        if len(frame):
            frames.append(frame.assign(part=part, condition=condition))

    validate(collect, log_posteriors, folds, families, fingerprints, parts, refit)
    return pd.concat(frames, ignore_index=True)


def writer(connection: duckdb.DuckDBPyConnection, reader: str, roster: str, build: str) -> Write:
    """Rows of a part go to the store in place of the earlier ones, and are printed."""

    def write(frame: pd.DataFrame, part: str, condition: str) -> None:
        key = {"reader": reader, "roster": roster, "condition": condition, "part": part}
        replace_rows(connection, "audit_validation", frame, key, build)
        if frame.empty:
            return
        about = [name for name in ("scenario", "statistic", "rule", "level", "space") if name in frame]
        wide = (
            frame[~frame["metric"].isin(CURVES)].pivot(index=["metric", *about], columns="k", values="value").round(3)
        )
        print(f"{reader} on {roster}, {part}, {condition}:\n{wide.to_string()}", flush=True)

    return write


def keep_validation(connection: duckdb.DuckDBPyConnection, reader: str, roster: str, folder: Path) -> None:
    """Keep all rows of a reader and roster for its enrolment."""
    scratch = folder / f"{VALIDATION}.partial.npz"
    np.savez_compressed(scratch, **validation_arrays(validation(connection, reader, roster)))  # type: ignore[arg-type]
    scratch.replace(folder / VALIDATION)


def load_conditions(folder: Path, rerun_command: str) -> dict[str, Floats]:
    """Kept log-posteriors of whole responses, and of the cuts that were scored."""
    held = {CLEAN: np.asarray(load_log_posteriors(folder, rerun_command))}
    for length in LENGTHS:
        if (path := folder / length_file(length)).exists():
            held[length] = np.load(path, allow_pickle=False)
    return held


def _fingerprints(connection: duckdb.DuckDBPyConnection, rows: Slice, reader: str, roster: str) -> Floats | None:
    """Fingerprints at the modal block, None where they are not on disk."""
    chosen = selected_layers(connection, reader, roster)
    modal = chosen.loc[chosen["outer_fold"].isna(), "layer"]
    if modal.empty or int(modal.iloc[0]) not in rows.layers():
        return None
    return rows.load(int(modal.iloc[0])).astype(np.float32)


def _windows(folds: Ints) -> list[int]:
    return [window for window in (10, 20, 50) if 2 * window <= len(folds)] or [len(folds) // 2]


def _unknown(family: Ints, run_of: Callable[[Ints], LeftOut], folds: Ints, budgets: list[int]) -> pd.DataFrame:
    """Every statistic in every scenario; one run is in memory at a time, unless ``run_of`` keeps it."""
    frames = [
        unknown_frame((run_of(out) for out in excluded), folds, scenario, statistic, budgets)
        for scenario, excluded in _excluded_sets(family)
        for statistic in STATISTICS
    ]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=["k", "metric", "value", "n"])


def _excluded_sets(family: Ints) -> Iterator[tuple[str, list[Ints]]]:
    """Whole families one at a time, and sets of one source a family whose siblings stay; two sources stay at least."""
    families, sizes = np.unique(family, return_counts=True)
    alone = [out for one in families if len(family) - len(out := np.flatnonzero(family == one)) > 1]
    if alone and len(families) > 1:
        yield "family", alone
    rng = np.random.default_rng(SPLIT_SEED)
    several = families[sizes > 1]
    if len(several) and len(family) - len(several) > 1:
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
