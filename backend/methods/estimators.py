"""The readouts as estimators in scikit-learn's manner, for rows and texts that fit into memory.

Every one has ``fit``, ``predict_log_proba`` and ``predict``; sources are integers from 0. What the stage ``readouts``
fits fold by fold from files is the same, fitted by the same functions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from backend.methods.discriminant import LinearReadout, fit_discriminant, moments_of
from backend.methods.family_experts import FamilyReadout, fit_experts, fit_regression
from backend.methods.network import NetworkReadout, NetworkSettings, fit_network
from backend.methods.ngram_readouts import GramReadout, fit_grams
from backend.methods.ngrams import GRAMS
from backend.methods.stack import Stack, fit_stack

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.intp]


class _Classifier(ABC):
    """What all have in common."""

    @abstractmethod
    def predict_log_proba(self, rows: Any) -> Floats:
        """Log-posteriors (n, C), float32."""

    def predict(self, rows: Any) -> Ints:
        """Most probable source of every row, (n,)."""
        out: Ints = self.predict_log_proba(rows).argmax(1)
        return out


class ShrinkageDiscriminant(_Classifier):
    """Linear discriminants whose covariance is shrunk towards its diagonal."""

    def __init__(self, shrinkage: float = 0.1) -> None:
        self.shrinkage = shrinkage

    def fit(self, rows: Floats, labels: Ints) -> ShrinkageDiscriminant:
        """Fit on rows (n, D) and labels (n,)."""
        moments = moments_of([(rows, labels)], int(labels.max()) + 1, rows.shape[1])
        self.readout_: LinearReadout = fit_discriminant(moments, self.shrinkage)
        return self

    def predict_log_proba(self, rows: Floats) -> Floats:
        """Log-posteriors (n, C) of rows (n, D)."""
        return self.readout_.log_posterior(rows)


class RegressionClassifier(_Classifier):
    """Multinomial regression carried to the minimum of its penalised loss."""

    def __init__(self, penalty: float = 0.01) -> None:
        self.penalty = penalty

    def fit(self, rows: Floats, labels: Ints) -> RegressionClassifier:
        """Fit on rows (n, D) and labels (n,)."""
        self.readout_: LinearReadout = fit_regression(rows, labels, int(labels.max()) + 1, self.penalty)
        return self

    def predict_log_proba(self, rows: Floats) -> Floats:
        """Log-posteriors (n, C) of rows (n, D)."""
        return self.readout_.log_posterior(rows)


class FamilyExperts(_Classifier):
    """Linear discriminants between families, and weights of their own among the siblings of each.

    families : (C,), family of every source.
    shrinkage : of the discriminants.
    penalty : on what the experts add.
    """

    def __init__(self, families: Ints, shrinkage: float = 0.1, penalty: float = 0.01) -> None:
        self.families, self.shrinkage, self.penalty = families, shrinkage, penalty

    def fit(self, rows: Floats, labels: Ints) -> FamilyExperts:
        """Fit on rows (n, D) and labels (n,)."""
        base = ShrinkageDiscriminant(self.shrinkage).fit(rows, labels).readout_
        self.readout_: FamilyReadout = fit_experts(rows, labels, self.families, base, self.penalty)
        return self

    def predict_log_proba(self, rows: Floats) -> Floats:
        """Log-posteriors (n, C) of rows (n, D)."""
        return self.readout_.log_posterior(rows)


class NetworkClassifier(_Classifier):
    """One hidden layer; a batch takes one of the lengths of a response at random."""

    def __init__(self, settings: NetworkSettings | None = None, seed: int = 0) -> None:
        self.settings, self.seed = settings or NetworkSettings(), seed

    def fit(self, rows: Floats, labels: Ints, shorter: Sequence[Floats] = ()) -> NetworkClassifier:
        """Fit on rows (n, D) and labels (n,); ``shorter`` are the same responses, cut."""
        copies = [part.astype(np.float16) for part in (rows, *shorter)]
        every, classes = np.arange(len(labels)), int(labels.max()) + 1
        self.readout_: NetworkReadout = fit_network(copies, every, labels, classes, self.settings, self.seed)
        return self

    def predict_log_proba(self, rows: Floats) -> Floats:
        """Log-posteriors (n, C) of rows (n, D)."""
        return self.readout_.log_posterior(rows)


class GramClassifier(_Classifier):
    """Softmax regression on hashed n-grams.

    kind : {'word', 'char'}.
    seed : of the order of the rows.
    """

    def __init__(self, kind: str = "word", seed: int = 0) -> None:
        self.kind, self.seed = kind, seed

    def fit(self, texts: Sequence[str], labels: Ints, shorter: Sequence[Sequence[str]] = ()) -> GramClassifier:
        """Fit on responses, length n, and labels (n,); ``shorter`` are the same responses, cut."""
        held, forms = GRAMS[self.kind], (texts, *shorter)
        counts = sparse.vstack([held.counts(form) for form in forms], format="csr")
        classes = int(labels.max()) + 1
        self.readout_: GramReadout = fit_grams(counts, np.tile(labels, len(forms)), classes, held.settings, self.seed)
        return self

    def predict_log_proba(self, rows: Sequence[str]) -> Floats:
        """Log-posteriors (n, C) of responses."""
        return self.readout_.log_posterior(GRAMS[self.kind].counts(rows))


class StackClassifier(_Classifier):
    """Weighted sum of members' log-posteriors, for all rows alike.

    pull : strength of the prior around equal weights, in rows.
    """

    def __init__(self, pull: float = 200.0) -> None:
        self.pull = pull

    def fit(self, rows: Sequence[Floats], labels: Ints) -> StackClassifier:
        """Fit on what the members, (n, C) each, say of rows that they were not trained on."""
        self.readout_: Stack = fit_stack(rows, labels, np.zeros(len(labels), dtype=np.intp), 1, self.pull)
        return self

    def predict_log_proba(self, rows: Sequence[Floats]) -> Floats:
        """Log-posteriors (n, C) out of those of the members."""
        return self.readout_.log_posterior(rows, np.zeros(len(rows[0]), dtype=np.intp))
