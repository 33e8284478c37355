"""The readouts as estimators in scikit-learn's manner, for rows and texts that fit into memory.

Every one has ``fit`` of rows (n, D) and labels (n,), ``predict_log_proba`` (n, C) and ``predict`` (n,); sources are
integers from 0. The stage ``readouts`` fits the same fold by fold from files, by the same functions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from scipy import sparse

from backend.methods.discriminant import fit_discriminant, moments_of
from backend.methods.network import NetworkSettings, fit_network
from backend.methods.ngrams import GRAMS, fit_grams
from backend.methods.probe import fit_experts, fit_regression
from backend.methods.readout import Floats, Ints
from backend.methods.stack import fit_stack


class _Classifier(ABC):
    """An estimator whose ``fitted`` gives a readout for some number of classes."""

    readout_: Any

    @abstractmethod
    def fitted(self, rows: Any, labels: Ints, classes: int, shorter: Sequence[Any] = ()) -> Any:
        """The readout of rows (n, D), or of n responses, and labels (n,)."""

    def fit(self, rows: Any, labels: Ints, shorter: Sequence[Any] = ()) -> Self:
        """Fit on rows or responses and labels (n,); ``shorter`` are the same responses, cut, where these count."""
        self.readout_ = self.fitted(rows, labels, int(labels.max()) + 1, shorter)
        return self

    def predict_log_proba(self, rows: Any) -> Floats:
        """Log-posteriors (n, C), float32, of what ``fit`` takes of n responses."""
        out: Floats = self.readout_.log_posterior(rows)
        return out

    def predict(self, rows: Any) -> Ints:
        """Most probable source of every row, (n,)."""
        out: Ints = self.predict_log_proba(rows).argmax(1)
        return out


@dataclass
class ShrinkageDiscriminant(_Classifier):
    """Linear discriminants whose covariance is shrunk towards its diagonal."""

    shrinkage: float = 0.1

    def fitted(self, rows: Floats, labels: Ints, classes: int, shorter: Sequence[Any] = ()) -> Any:
        return fit_discriminant(moments_of([(rows, labels)], classes, rows.shape[1]), self.shrinkage)


@dataclass
class RegressionClassifier(_Classifier):
    """Multinomial regression carried to the minimum of its penalised loss."""

    penalty: float = 0.01

    def fitted(self, rows: Floats, labels: Ints, classes: int, shorter: Sequence[Any] = ()) -> Any:
        return fit_regression(rows, labels, classes, self.penalty)


@dataclass
class FamilyExperts(_Classifier):
    """Linear discriminants between families, and weights of their own among the siblings of each."""

    families: Ints  # (C,) of every source
    shrinkage: float = 0.1  # of the discriminants
    penalty: float = 0.01  # on what the experts add

    def fitted(self, rows: Floats, labels: Ints, classes: int, shorter: Sequence[Any] = ()) -> Any:
        base = fit_discriminant(moments_of([(rows, labels)], classes, rows.shape[1]), self.shrinkage)
        return fit_experts(rows, labels, self.families, base, self.penalty)


@dataclass
class NetworkClassifier(_Classifier):
    """One hidden layer; a batch takes one of the lengths of a response at random."""

    settings: NetworkSettings = field(default_factory=NetworkSettings)
    seed: int = 0

    def fitted(self, rows: Floats, labels: Ints, classes: int, shorter: Sequence[Floats] = ()) -> Any:
        copies = [part.astype(np.float16) for part in (rows, *shorter)]
        return fit_network(copies, np.arange(len(labels)), labels, classes, self.settings, self.seed)


@dataclass
class GramClassifier(_Classifier):
    """Softmax regression on hashed n-grams of responses."""

    kind: str = "word"  # or 'char'
    seed: int = 0  # of the order of the rows

    def fitted(self, rows: Sequence[str], labels: Ints, classes: int, shorter: Sequence[Sequence[str]] = ()) -> Any:
        grams, copies = GRAMS[self.kind], (rows, *shorter)
        counts = sparse.vstack([grams.counts(copy) for copy in copies], format="csr")
        return fit_grams(counts, np.tile(labels, len(copies)), classes, grams.settings, self.seed)

    def predict_log_proba(self, rows: Sequence[str]) -> Floats:
        return super().predict_log_proba(GRAMS[self.kind].counts(rows))


@dataclass
class StackClassifier(_Classifier):
    """Weighted sum of log-posteriors (n, C) of members on rows that they were not trained on, for all rows alike."""

    pull: float = 200.0  # strength of the prior around equal weights, in rows

    def fitted(self, rows: Sequence[Floats], labels: Ints, classes: int, shorter: Sequence[Any] = ()) -> Any:
        return fit_stack(rows, labels, np.zeros(len(labels), dtype=np.intp), 1, self.pull)

    def predict_log_proba(self, rows: Sequence[Floats]) -> Floats:
        out: Floats = self.readout_.log_posterior(rows, np.zeros(len(rows[0]), dtype=np.intp))
        return out
