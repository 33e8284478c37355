"""The readouts as estimators in scikit-learn's manner, for rows and texts that fit into memory.

Every one has ``fit``, ``predict_log_proba`` and ``predict``; sources are integers from 0. What the stage ``readouts``
fits fold by fold from files is the same, fitted by the same functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from scipy import sparse

from backend.methods.discriminant import fit_discriminant, moments_of
from backend.methods.family_experts import fit_experts, fit_regression
from backend.methods.network import NetworkSettings, fit_network
from backend.methods.ngram_readouts import fit_grams
from backend.methods.ngrams import GRAMS
from backend.methods.readout import Floats, Ints
from backend.methods.stack import fit_stack


class _Classifier:
    """Predictions of a fitted readout."""

    readout_: Any

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

    def fit(self, rows: Floats, labels: Ints) -> Self:
        """Fit on rows (n, D) and labels (n,)."""
        moments = moments_of([(rows, labels)], int(labels.max()) + 1, rows.shape[1])
        self.readout_ = fit_discriminant(moments, self.shrinkage)
        return self


@dataclass
class RegressionClassifier(_Classifier):
    """Multinomial regression carried to the minimum of its penalised loss."""

    penalty: float = 0.01

    def fit(self, rows: Floats, labels: Ints) -> Self:
        """Fit on rows (n, D) and labels (n,)."""
        self.readout_ = fit_regression(rows, labels, int(labels.max()) + 1, self.penalty)
        return self


@dataclass
class FamilyExperts(_Classifier):
    """Linear discriminants between families, and weights of their own among the siblings of each."""

    families: Ints  # (C,) of every source
    shrinkage: float = 0.1  # of the discriminants
    penalty: float = 0.01  # on what the experts add

    def fit(self, rows: Floats, labels: Ints) -> Self:
        """Fit on rows (n, D) and labels (n,)."""
        base = ShrinkageDiscriminant(self.shrinkage).fit(rows, labels).readout_
        self.readout_ = fit_experts(rows, labels, self.families, base, self.penalty)
        return self


@dataclass
class NetworkClassifier(_Classifier):
    """One hidden layer; a batch takes one of the lengths of a response at random."""

    settings: NetworkSettings = field(default_factory=NetworkSettings)
    seed: int = 0

    def fit(self, rows: Floats, labels: Ints, shorter: Sequence[Floats] = ()) -> Self:
        """Fit on rows (n, D) and labels (n,); ``shorter`` are the same responses, cut."""
        copies = [part.astype(np.float16) for part in (rows, *shorter)]
        classes = int(labels.max()) + 1
        self.readout_ = fit_network(copies, np.arange(len(labels)), labels, classes, self.settings, self.seed)
        return self


@dataclass
class GramClassifier(_Classifier):
    """Softmax regression on hashed n-grams."""

    kind: str = "word"  # or 'char'
    seed: int = 0  # of the order of the rows

    def fit(self, texts: Sequence[str], labels: Ints, shorter: Sequence[Sequence[str]] = ()) -> Self:
        """Fit on responses, length n, and labels (n,); ``shorter`` are the same responses, cut."""
        grams, copies = GRAMS[self.kind], (texts, *shorter)
        counts = sparse.vstack([grams.counts(copy) for copy in copies], format="csr")
        repeated, classes = np.tile(labels, len(copies)), int(labels.max()) + 1
        self.readout_ = fit_grams(counts, repeated, classes, grams.settings, self.seed)
        return self

    def predict_log_proba(self, rows: Sequence[str]) -> Floats:
        """Log-posteriors (n, C) of responses."""
        return super().predict_log_proba(GRAMS[self.kind].counts(rows))


@dataclass
class StackClassifier(_Classifier):
    """Weighted sum of members' log-posteriors, for all rows alike."""

    pull: float = 200.0  # strength of the prior around equal weights, in rows

    def fit(self, rows: Sequence[Floats], labels: Ints) -> Self:
        """Fit on what the members, (n, C) each, say of rows that they were not trained on."""
        self.readout_ = fit_stack(rows, labels, np.zeros(len(labels), dtype=np.intp), 1, self.pull)
        return self

    def predict_log_proba(self, rows: Sequence[Floats]) -> Floats:
        """Log-posteriors (n, C) out of those of the members."""
        out: Floats = self.readout_.log_posterior(rows, np.zeros(len(rows[0]), dtype=np.intp))
        return out
