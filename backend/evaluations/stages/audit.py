"""Cross-validated evidence of an audit: calibration, unknown sources, sequential stop, mixtures and drift.

Needs the saved log-posteriors of a readout that can be enrolled; sources excluded by refitting (of probes on spectral
blocks and of discriminants), and drift between fingerprints, need fingerprints as well. The rows go to
``audit_validation`` and, for the enrolment of the roster, to ``validation.npz`` next to the log-posteriors. Parts and
readouts can be named (``--method lda-live,calibration,refit``); the rows of the others stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
from scipy.special import log_softmax

from backend.corpus.release import Release
from backend.errors import AtlasError
from backend.evaluations import artifacts
from backend.evaluations.controls import block_columns
from backend.evaluations.readouts import Load, chunks, loader
from backend.evaluations.stages import EvaluateOptions
from backend.evaluations.stages.readout_live import load_banks
from backend.evaluations.stages.readout_members import Plan
from backend.evaluations.stages.roster_run import RosterRun
from backend.geometry.maps import modal_block
from backend.inference import validation
from backend.inference.calibration import WITH_BIAS, Calibration, budgets_of, fit_scale, held_out_groups, normalised
from backend.inference.drift import drift_frame
from backend.inference.mixture_validation import mixture_frame
from backend.inference.unknown_source import LeftOut, Statistic, unknown_frame, without_columns
from backend.methods.discriminant import Moments, fit_discriminant, merged, moments_of
from backend.methods.probe import LinearReadout, fit_probe, standardiser
from backend.methods.readout import Floats, Ints, Rows
from backend.methods.registry import ENROLLABLE, FUSED_LIVE, LDA_LIVE, block_of, of_part, reader_id
from backend.protocol import CLEAN, READER_PAPER, SPLIT_SEED
from backend.store import page_queries
from backend.store.writers import StageRows
from backend.traces import View

TESTED = (0, 1)
"""Folds that a readout refitted without some sources does not see: one for the reference, one for the test, in turn."""
PARTS = ("calibration", "unknown", "refit", "stop", "mixture", "drift")
STATISTICS: tuple[Statistic, ...] = ("relative-mahalanobis", "max-logit")
SIBLING_DRAWS = 3
VALIDATION = "validation.npz"
PROBED = (READER_PAPER, *of_part("components"))  # Readers that are the paper's probe on a spectral block
Write = Callable[[pd.DataFrame, str, str], None]  # Receives rows, their part and their condition


@dataclass(frozen=True)
class Rediscriminated:
    """Discriminants of whole responses without some sources, whose rows are subtracted from the moments."""

    load: Load  # Rows to coordinates, (m, D)
    width: int
    folds: Ints  # (P,), fold of every prompt
    sources: int
    moments: Moments  # Of all sources on the folds that train
    scale: float  # What a nat of theirs is worth, from the training folds alone: the last scored by the others

    @classmethod
    def of(cls, arrays: Sequence[Rows], folds: Ints) -> Rediscriminated:
        """From fingerprints (C * P, 2 d) block by block; row = source * P + prompt."""
        load, width = loader(arrays)
        sources, training = len(arrays[0]) // len(folds), [f for f in np.unique(folds) if f not in TESTED]
        label, fold = np.repeat(np.arange(sources), len(folds)), np.tile(folds, sources)
        parts = [_moments(load, np.flatnonzero(fold == f), label, sources, width) for f in training]
        last = np.flatnonzero(fold == training[-1])
        scores = _scored(load, last, fit_discriminant(merged(parts[:-1]), Plan.shrinkage))
        scale = fit_scale(normalised(scores), label[last])
        return cls(load, width, folds, sources, merged(parts), scale)

    def __call__(self, out: Ints) -> LeftOut:
        """Log-posteriors of the test folds by discriminants that never met the sources ``out``."""
        label, prompt = _grid(self.sources, len(self.folds))
        tested = np.isin(self.folds[prompt], TESTED)
        gone = np.flatnonzero(~tested & np.isin(label, out))
        rest = merged([self.moments, _moments(self.load, gone, label, self.sources, self.width)], [1.0, -1.0])
        remaining, rows = np.setdiff1d(np.arange(self.sources), out), np.flatnonzero(tested)
        scores = self.scale * _scored(self.load, rows, fit_discriminant(rest, Plan.shrinkage))[:, remaining]
        return LeftOut(log_softmax(scores, axis=1).astype(np.float32), label[rows], prompt[rows], remaining)


def _moments(load: Load, rows: Ints, labels: Ints, classes: int, width: int) -> Moments:
    return moments_of(((load(some), labels[some]) for some in chunks(rows)), classes, width)


def _scored(load: Load, rows: Ints, readout: LinearReadout) -> Floats:
    return np.concatenate([readout.scores(load(some)) for some in chunks(rows)])


def run(connection: duckdb.DuckDBPyConnection, release: Release, options: EvaluateOptions) -> None:
    """Validate the audit's statistics for every view and roster."""
    unknown = sorted(set(options.methods) - {*PARTS, *ENROLLABLE})
    if unknown:
        choices = ", ".join((*PARTS, *ENROLLABLE))
        raise AtlasError(f"The audit has no part '{', '.join(unknown)}'", f"Choose from {choices}")
    parts = tuple(part for part in PARTS if part in options.methods) or PARTS
    named = [method for method in ENROLLABLE if method in options.methods]
    for view in options.views:
        for roster in options.rosters:
            run = RosterRun(connection, release, roster, options.limit)
            folders = {method: run.folder(method, options.proxy, view) for method in (LDA_LIVE, FUSED_LIVE)}
            here = [method for method, folder in folders.items() if (folder / artifacts.CLEAN_FILE).exists()]
            for method in named or [READER_PAPER, *here]:
                evaluate(run, options.proxy, view, parts, method)


def evaluate(run: RosterRun, proxy: str, view: View, parts: tuple[str, ...], method: str) -> None:
    """Measure and write parts of one reader and roster."""
    rows, roster, connection = run.rows(proxy, view), run.roster, run.connection
    reader, folder = reader_id(method, proxy, view), artifacts.enrolled_folder(method, proxy, view, roster, run.prompts)
    rerun_command = run.command(method, proxy, view)
    log_posteriors = load_conditions(folder, rerun_command)
    modal = modal_block(connection, f"{READER_PAPER}/{proxy}/{view}", roster)
    fingerprints = None if modal is None or modal not in rows.layers() else rows.load(modal).astype(np.float32)
    refit: Callable[[Ints], LeftOut] | None = None
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
        print(f"{reader} on {roster}: no fingerprints are here; refitted probes and their drift are skipped")
    details = {"parts": list(parts), "prompts": len(rows.prompt_ids), "sources": len(rows.sources)}
    with run.build("audit", details, artifacts.weights_of(rows), reader=reader, roster=roster) as build:
        validate(writer(build), log_posteriors, rows.prompt_folds, rows.families, fingerprints, parts, refit)
    stored = page_queries.validation(connection, reader, roster)  # all rows, for its enrolment
    with artifacts.replacing(folder / VALIDATION) as scratch:
        np.savez_compressed(scratch, **validation.validation_arrays(stored))  # type: ignore[arg-type]


def validate(
    write: Write,
    log_posteriors: dict[str, Floats],
    folds: Ints,
    families: Sequence[str],
    fingerprints: Floats | None = None,
    parts: tuple[str, ...] = PARTS,
    refit: Callable[[Ints], LeftOut] | None = None,
) -> None:
    """Measure the parts.

    log_posteriors : condition to (C * P, C); out-of-fold, row = source * P + prompt; 'clean' and cuts.
    folds : (P,); families : length C; fingerprints : (C * P, 2 d), of 'refit' and of drift between them.
    refit : Sources that are excluded, to the scores of a readout fitted without them; by default the paper's probe.
    """
    family, clean = np.unique(families, return_inverse=True)[1], log_posteriors[CLEAN]
    budgets = budgets_of(folds)
    calibrations: dict[int, Calibration] | None = None
    groups = {k: held_out_groups(clean, folds, k) for k in budgets}
    if {"calibration", "stop"} & set(parts):
        calibrations = validation.fold_calibrations(groups, WITH_BIAS, family)
    if "calibration" in parts:
        for condition, scores in log_posteriors.items():
            known = calibrations if condition == CLEAN else None
            frame = validation.calibration_frame(scores, folds, with_bias=WITH_BIAS, fitted=known, family=family)
            write(frame, "calibration", condition)
    if "unknown" in parts:
        source, prompt = _grid(len(family), len(folds))

        def removed(out: Ints) -> LeftOut:
            remaining = np.setdiff1d(np.arange(len(family)), out)
            return LeftOut(without_columns(clean, remaining), source, prompt, remaining)

        write(_unknown(family, removed, folds, budgets), "unknown", CLEAN)
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
        write(validation.stop_frame(clean, folds, calibrations=calibrations), "stop", CLEAN)
    if "mixture" in parts and not (frame := mixture_frame(clean, folds, groups, family)).empty:
        write(frame, "mixture", CLEAN)
    if "drift" in parts:
        frames = [drift_frame(clean, family, "log-posteriors", _windows(folds))]
        if fingerprints is not None:
            mean, scale = standardiser(fingerprints)
            frames.append(drift_frame((fingerprints - mean) / scale, family, validation.SPACE, _windows(folds)))
        write(pd.concat(frames, ignore_index=True), "drift", CLEAN)


def validation_rows(
    log_posteriors: dict[str, Floats],
    folds: Ints,
    families: Sequence[str],
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


def writer(build: StageRows) -> Write:
    """Rows of a part go to the store in place of the earlier ones, and are printed."""

    def write(frame: pd.DataFrame, part: str, condition: str) -> None:
        build.replace("audit_validation", frame, condition=condition, part=part)
        if frame.empty:
            return
        about = [name for name in ("scenario", "statistic", "rule", "level", "space") if name in frame]
        points = frame[~frame["metric"].isin(validation.CURVES)]
        wide = points.pivot(index=["metric", *about], columns="k", values="value").round(3)
        where = f"{build.key['reader']} on {build.key['roster']}"
        print(f"{where}, {part}, {condition}:\n{wide.to_string()}", flush=True)

    return write


def load_conditions(folder: Path, rerun_command: str) -> dict[str, Floats]:
    """Saved log-posteriors of whole responses, and of the cuts that were scored."""
    scores = {CLEAN: np.asarray(artifacts.load_log_posteriors(folder, rerun_command))}
    for length in artifacts.CUTS:
        if (path := folder / artifacts.posterior_file(length)).exists():
            scores[length] = np.load(path, allow_pickle=False)
    return scores


def _windows(folds: Ints) -> list[int]:
    return [window for window in (10, 20, 50) if 2 * window <= len(folds)] or [len(folds) // 2]


def _unknown(family: Ints, run_of: Callable[[Ints], LeftOut], folds: Ints, budgets: list[int]) -> pd.DataFrame:
    """Every statistic in every scenario; one run is in memory at a time, unless ``run_of`` caches it."""
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


def _grid(sources: int, prompts: int) -> tuple[Ints, Ints]:
    """Source and prompt of every row."""
    return np.repeat(np.arange(sources), prompts), np.tile(np.arange(prompts), sources)


def _refitted(fingerprints: Floats, folds: Ints, out: Ints) -> LeftOut:
    """Log-posteriors of the test folds by a probe that never met some sources, nor those folds."""
    sources = len(fingerprints) // len(folds)
    source, prompt = _grid(sources, len(folds))
    remaining = np.setdiff1d(np.arange(sources), out)
    column = np.full(sources, -1, dtype=np.intp)
    column[remaining] = np.arange(len(remaining))
    tested = np.isin(folds[prompt], TESTED)
    train = ~tested & (column[source] >= 0)
    probe = fit_probe(fingerprints[train], column[source[train]], len(remaining))
    return LeftOut(probe.log_posterior(fingerprints[tested]), source[tested], prompt[tested], remaining)
