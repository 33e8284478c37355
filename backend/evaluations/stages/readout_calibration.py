"""Calibrated probabilities of fused scores at every budget: a factor and a floor a budget and length of the texts.

Fitted for every outer fold on the validation rows of that fold. A group of traces belongs to the length that the median
of its response tokens lies next to, which an auditor sees too, so that no condition has to be known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.evaluations.attribution import reduce_metrics
from backend.evaluations.readouts import validation
from backend.evidence import accumulate
from backend.inference.calibration import normalised
from backend.methods.stack import Confidence, fit_confidence
from backend.metrics import expected_calibration_error, negative_log_likelihood
from backend.protocol import BUDGETS, FOLDS, GROUPING_SEEDS, budget_groups, grid_rows

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
LENGTH_EDGES = (48, 96, 192)
"""First median tokens of every length class but the shortest."""
FEW = 20
"""From this budget on a seed has so few groups that all seeds are used to fit."""
FEWEST_GROUPS = 100
"""A class of length with fewer groups takes what all lengths together have."""


@dataclass(frozen=True)
class Calibrator:
    """Confidence of every outer fold, budget and length class.

    Attributes
    ----------
    prompt_folds : ndarray of shape (P,)
    classes : int
    tokens : mapping of condition to ndarray of shape (n,)
        Response tokens of every row under every condition.
    fitted : dict of (fold, budget) to list of Confidence
        Of every length class.
    """

    prompt_folds: Ints
    classes: int
    tokens: Mapping[str, Ints]
    fitted: dict[tuple[int, int], list[Confidence]] = field(default_factory=dict)

    @property
    def budgets(self) -> list[int]:
        """Budgets that fit into every fold."""
        smallest = min(int((self.prompt_folds == fold).sum()) for fold in range(FOLDS))
        return [k for k in BUDGETS if k <= smallest]

    def fit(self, outer: int, held_out: Mapping[str, Floats]) -> None:
        """Fit the confidence of an outer fold on its validation rows, (n, C) under every condition."""
        for k in self.budgets:
            parts = [
                self._scored(log_posteriors, condition, k, seed, fold)
                for condition, log_posteriors in held_out.items()
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
            pooled: dict[int, dict[str, float]] = {}
            folded: dict[tuple[int, int], dict[str, float]] = {}
            sizes: dict[int, int] = {}
            for seed in GROUPING_SEEDS if k > 1 else GROUPING_SEEDS[:1]:  # single traces are grouped alike
                parts = []
                for fold in range(FOLDS):
                    scores, truth, length = self._scored(log_posteriors, condition, k, seed, fold)
                    calibrated = np.empty_like(scores)
                    for place in np.unique(length):
                        calibrated[length == place] = self.fitted[fold, k][place].log_posterior(scores[length == place])
                    parts.append((calibrated, truth))
                    folded[seed, fold] = _measures(calibrated, truth)
                    sizes[fold] = len(truth)
                calibrated, truth = (np.concatenate(part) for part in zip(*parts, strict=True))
                pooled[seed] = _measures(calibrated, truth)
            rows += reduce_metrics(k, pooled, folded, len(truth), sizes)
        return pd.DataFrame(rows).astype({"seed": "Int64", "fold": "Int64"})

    def _scored(
        self, log_posteriors: Floats, condition: str, k: int, seed: int, fold: int
    ) -> tuple[Doubles, Ints, Ints]:
        rows = grid_rows(self.classes, len(self.prompt_folds), self.prompt_folds == fold)
        groups, truth = budget_groups(rows, k, seed, fold)
        median = np.median(self.tokens[condition][groups], axis=1)
        return normalised(accumulate(log_posteriors, groups)), truth, np.searchsorted(LENGTH_EDGES, median, "right")


def _measures(calibrated: Doubles, truth: Ints) -> dict[str, float]:
    return {
        "ece_calibrated": expected_calibration_error(calibrated, truth),
        "nll_calibrated": negative_log_likelihood(calibrated, truth),
    }
