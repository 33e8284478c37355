"""What the stage readouts writes of a reader: every response length, its calibration, and the other benchmark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas as pd

from backend.evaluations import artifacts, attribution
from backend.evaluations.corpus import MATH
from backend.evaluations.readouts import validation
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

    The class of a group of traces is that of the median of its response tokens, so that no condition has to be known.
    """

    prompt_folds: Ints  # (P,)
    classes: int
    tokens: Mapping[str, Ints]  # condition to (n,); response tokens of every row under every condition
    fitted: dict[tuple[int, int], list[Confidence]] = field(default_factory=dict)  # By fold and budget, then length

    @property
    def budgets(self) -> list[int]:
        """Budgets that fit into every fold."""
        return attribution.fold_budgets(self.prompt_folds)

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
            overall = fit_confidence(scores, truth)
            inside = [length == place for place in range(len(LENGTH_EDGES) + 1)]
            self.fitted[outer, k] = [
                fit_confidence(scores[some], truth[some]) if some.sum() >= FEWEST_GROUPS else overall for some in inside
            ]

    def measure(self, condition: str, log_posteriors: Floats) -> pd.DataFrame:
        """Calibration error and negative log-likelihood of calibrated scores, as rows of attribution_metrics."""

        def by_seed(k: int) -> Iterator[tuple[int, attribution.Scored, dict[int, attribution.Scored]]]:
            for seed in GROUPING_SEEDS if k > 1 else GROUPING_SEEDS[:1]:  # single traces are grouped alike
                folds = {fold: self._calibrated(condition, log_posteriors, k, seed, fold) for fold in range(FOLDS)}
                yield seed, attribution.together(folds), folds

        rows = [row for k in self.budgets for row in attribution.reduced_metrics(k, by_seed(k), _measures)]
        return pd.DataFrame(rows).astype({"seed": "Int64", "fold": "Int64"})

    def _calibrated(self, condition: str, log_posteriors: Floats, k: int, seed: int, fold: int) -> attribution.Scored:
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
    """Save and measure log-posteriors under every condition; accuracies (k, reduction, value) of whole responses."""
    rows = scorer.any_rows
    for length, log_posteriors in posteriors.items():
        artifacts.keep(folder / artifacts.posterior_file(length), log_posteriors)
        frames = attribution.attribution_frames(log_posteriors, rows.sources, rows.families, rows.prompt_folds)
        about = {"benchmark": "agent500", "condition": length}
        if length == CLEAN:
            clean = attribution.summaries(frames.metrics, "accuracy")[["k", "reduction", "value"]]
        else:
            frames = with_retained(frames, clean)
        artifacts.write_log_posteriors(build, log_posteriors, frames, rows.prompt_folds, length)
        calibrated = calibrator.measure(length, log_posteriors)
        for metric, part in calibrated.groupby("metric"):
            build.replace("attribution_metrics", part, **about, metric=metric)
        errors = attribution.summaries(calibrated, "ece_calibrated")
        pooled = errors.loc[errors["reduction"] == "pooled", "value"]
        note = "; ECE " + ", ".join(f"{value:.3f}" for value in pooled)
        artifacts.report_accuracy({**build.key, **about}, frames.metrics, note)
        if length != CLEAN:
            wide = with_retained(global_frames(log_posteriors, rows.sources, rows.families), clean)
            about["condition"] = f"{length}-global"
            build.replace("attribution_metrics", wide.metrics, **about)
    return clean


def write_transfer(
    build: StageRows, scorer: Scorer, folder: Path, plain: Floats, aligned: Floats | None, clean: pd.DataFrame
) -> None:
    """Save and measure Math100, (FOLDS, n, C), without any data of it, and with an unlabelled pool.

    aligned : Scores of fingerprints that the pool moved, None where no member reads any.
    """
    rows = scorer.any_rows
    artifacts.keep(folder / artifacts.TRANSFER_FILE, plain)
    conditions = {"clean": plain, "background": np.stack([balanced(part, scorer.pools) for part in plain])}
    if aligned is not None:
        conditions["aligned"] = np.stack([balanced(part, scorer.pools) for part in aligned])
    for condition, log_posteriors in conditions.items():
        frames = with_retained(transfer_frames(log_posteriors, rows.sources, rows.families), clean)
        about = {**build.key, "benchmark": MATH, "condition": condition}
        artifacts.write_attribution(build.connection, about, frames, build.build_id)
        artifacts.report_accuracy(about, frames.metrics)
