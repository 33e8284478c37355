"""What the stage readouts writes of a reader: every response length, its calibration, and the other benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from backend.evaluations.artifacts import (
    TRANSFER_FILE,
    keep,
    posterior_file,
    report_accuracy,
    write_attribution,
    write_log_posteriors,
)
from backend.evaluations.attribution import (
    Scored,
    attribution_frames,
    fold_budgets,
    reduced_metrics,
    summaries,
    together,
)
from backend.evaluations.readouts import validation
from backend.evaluations.stages.baselines import MATH
from backend.evaluations.stages.readout_members import Scorer
from backend.evaluations.stages.stress import global_frames, transfer_frames, with_retained
from backend.evidence import accumulate
from backend.inference.calibration import normalised
from backend.methods.domain_adaptation import balanced
from backend.methods.readout import Doubles, Floats, Ints
from backend.methods.stack import Confidence, fit_confidence
from backend.metrics import expected_calibration_error, negative_log_likelihood
from backend.protocol import CLEAN, FOLDS, GROUPING_SEEDS, budget_groups, grid_rows
from backend.store.writers import StageRows

LENGTH_EDGES = (48, 96, 192)  # First median tokens of every length class but the shortest
FEW = 20  # From this budget on a seed has so few groups that all seeds are used to fit
FEWEST_GROUPS = 100  # A class of length with fewer groups takes what all lengths together have


@dataclass(frozen=True)
class Calibrator:
    """Confidence of every outer fold, budget and length class, fitted on the validation rows of the fold.

    A group of traces belongs to the length that the median of its response tokens lies next to, which an auditor sees
    too, so that no condition has to be known.

    fitted : (fold, budget) to list of Confidence, of every length class.
    """

    prompt_folds: Ints  # (P,)
    classes: int
    tokens: Mapping[str, Ints]  # condition to (n,); response tokens of every row under every condition
    fitted: dict[tuple[int, int], list[Confidence]] = field(default_factory=dict)

    @property
    def budgets(self) -> list[int]:
        """Budgets that fit into every fold."""
        return fold_budgets(self.prompt_folds)

    def fit(self, outer: int, scores_of: Mapping[str, Floats]) -> None:
        """Fit the confidence of an outer fold on its validation rows, (n, C) under every condition."""
        for k in self.budgets:
            parts = [
                self._scored(log_posteriors, condition, k, seed, fold)
                for condition, log_posteriors in scores_of.items()
                for _, fold in validation(outer)
                for seed in (GROUPING_SEEDS if k >= FEW else GROUPING_SEEDS[:1])
            ]
            scores, truth, length = (np.concatenate(part) for part in zip(*parts, strict=True))
            together = fit_confidence(scores, truth)
            inside = [length == place for place in range(len(LENGTH_EDGES) + 1)]
            self.fitted[outer, k] = [
                fit_confidence(scores[some], truth[some]) if some.sum() >= FEWEST_GROUPS else together
                for some in inside
            ]

    def measure(self, condition: str, log_posteriors: Floats) -> pd.DataFrame:
        """Calibration error and negative log-likelihood of calibrated scores, as rows of attribution_metrics."""
        rows: list[dict[str, object]] = []
        for k in self.budgets:
            seeds = GROUPING_SEEDS if k > 1 else GROUPING_SEEDS[:1]  # single traces are grouped alike
            rows += reduced_metrics(k, self._by_seed(condition, log_posteriors, k, seeds), _measures)
        return pd.DataFrame(rows).astype({"seed": "Int64", "fold": "Int64"})

    def _by_seed(
        self, condition: str, log_posteriors: Floats, k: int, seeds: Sequence[int]
    ) -> Iterator[tuple[int, Scored, dict[int, Scored]]]:
        for seed in seeds:
            folds = {fold: self._calibrated(condition, log_posteriors, k, seed, fold) for fold in range(FOLDS)}
            yield seed, together(folds), folds

    def _calibrated(self, condition: str, log_posteriors: Floats, k: int, seed: int, fold: int) -> Scored:
        scores, truth, length = self._scored(log_posteriors, condition, k, seed, fold)
        calibrated = np.empty_like(scores)
        for place in np.unique(length):
            calibrated[length == place] = self.fitted[fold, k][place].log_posterior(scores[length == place])
        return calibrated, truth

    def _scored(
        self, log_posteriors: Floats, condition: str, k: int, seed: int, fold: int
    ) -> tuple[Doubles, Ints, Ints]:
        rows = grid_rows(self.classes, len(self.prompt_folds), self.prompt_folds == fold)
        groups, truth = budget_groups(rows, k, seed, fold)
        median = np.median(self.tokens[condition][groups], axis=1)
        length = np.asarray(np.searchsorted(LENGTH_EDGES, median, "right"))
        return normalised(accumulate(log_posteriors, groups)), truth, length


def _measures(calibrated: Doubles, truth: Ints) -> dict[str, float]:
    return {
        "ece_calibrated": expected_calibration_error(calibrated, truth),
        "nll_calibrated": negative_log_likelihood(calibrated, truth),
    }


def write_lengths(
    build: StageRows, scorer: Scorer, folder: Path, posteriors: Mapping[str, Floats], calibrator: Calibrator
) -> pd.DataFrame:
    """Save and measure out-of-fold log-posteriors under every condition, whole responses first.

    Returns accuracies of whole responses; columns k, reduction, value.
    """
    rows = scorer.any_rows
    for length, log_posteriors in posteriors.items():
        keep(folder / posterior_file(length), log_posteriors)
        frames = attribution_frames(log_posteriors, rows.sources, rows.families, rows.prompt_folds)
        about = {"benchmark": "agent500", "condition": length}
        if length == CLEAN:
            clean = summaries(frames.metrics, "accuracy")[["k", "reduction", "value"]]
        else:
            frames = with_retained(frames, clean)
        write_log_posteriors(build, log_posteriors, frames, rows.prompt_folds, length)
        calibrated = calibrator.measure(length, log_posteriors)
        for metric, part in calibrated.groupby("metric"):
            build.replace("attribution_metrics", part, **about, metric=metric)
        errors = summaries(calibrated, "ece_calibrated")
        pooled = errors.loc[errors["reduction"] == "pooled", "value"]
        note = "; ECE " + ", ".join(f"{value:.3f}" for value in pooled)
        report_accuracy({**build.key, **about}, frames.metrics, note)
        if length != CLEAN:
            wide = with_retained(global_frames(log_posteriors, rows.sources, rows.families), clean)
            about["condition"] = f"{length}-global"
            build.replace("attribution_metrics", wide.metrics, **about)
    return clean


def write_transfer(
    build: StageRows, scorer: Scorer, folder: Path, plain: Floats, aligned: Floats | None, clean: pd.DataFrame
) -> None:
    """Save and measure Math100, (FOLDS, n, C), without any data of it, and with an unlabelled pool.

    ``aligned`` are the scores of fingerprints that the pool moved, None where no member reads any.
    """
    rows = scorer.any_rows
    keep(folder / TRANSFER_FILE, plain)
    conditions = {"clean": plain, "background": np.stack([balanced(part, scorer.pools) for part in plain])}
    if aligned is not None:
        conditions["aligned"] = np.stack([balanced(part, scorer.pools) for part in aligned])
    for condition, log_posteriors in conditions.items():
        frames = with_retained(transfer_frames(log_posteriors, rows.sources, rows.families), clean)
        about = {**build.key, "benchmark": MATH, "condition": condition}
        write_attribution(build.connection, about, frames, build.build_id)
        report_accuracy(about, frames.metrics)
