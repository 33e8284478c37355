"""Multinomial logistic regression on n-gram counts in few passes over the rows (beside the Dynamic Baselines).

The converged fit of :mod:`backend.methods.ngrams` takes some two hundred passes. Adam on shuffled batches with a
decaying rate comes as far on other prompts within ten, and stops early enough to need hardly any penalty.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax

from backend.methods.ngram_counts import Kind, gram_spans
from backend.methods.readout import Arrays

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Counts = Any
FEWEST_ROWS = 3
"""A bucket must occur in so many training rows."""


@dataclass(frozen=True)
class SoftmaxSettings:
    """How much is learnt, and how fast.

    Attributes
    ----------
    features : int
        Buckets in use: those that occur in most training rows.
    epochs, batch : int
    rate : float
        First learning rate; it falls to zero along a cosine.
    decay : float
        Pull of every weight towards zero, added to its gradient.
    """

    features: int = 60_000
    epochs: int = 4
    batch: int = 512
    rate: float = 0.05
    decay: float = 3e-6

    def as_text(self) -> str:
        """Words by which kept files name these settings; they never change."""
        return (
            f"SoftmaxSettings(features={self.features!r}, epochs={self.epochs!r}, batch={self.batch!r}, "
            f"rate={self.rate!r}, decay={self.decay!r})"
        )


@dataclass(frozen=True)
class GramReadout(Arrays):
    """A fitted classifier of hashed counts.

    Attributes
    ----------
    columns : ndarray of shape (F,)
        Buckets in use, ascending.
    idf : ndarray of shape (F,), float32
    weight : ndarray of shape (F, C), float32
    bias : ndarray of shape (C,), float32
    """

    SHAPES: ClassVar = {"columns": "F", "idf": "F", "weight": "FC", "bias": "C"}
    TYPES: ClassVar = {"columns": np.intp}
    columns: Ints
    idf: Floats
    weight: Floats
    bias: Floats

    def scores(self, counts: Counts) -> Floats:
        """Unnormalised scores (n, C) of counts (n, buckets)."""
        out: Floats = weighed(counts[:, self.columns], self.idf) @ self.weight + self.bias
        return out

    def log_posterior(self, counts: Counts) -> Floats:
        """Log-posteriors (n, C), float32."""
        out: Floats = log_softmax(self.scores(counts), axis=1)
        return out


def weighed(counts: Counts, idf: Floats) -> Counts:
    """TF-IDF with ``1 + log(tf)`` and rows of unit length; an empty row stays empty."""
    rows = counts.tocsr(copy=True)
    rows.data = (1 + np.log(rows.data)) * idf[rows.indices]
    owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    norms = np.sqrt(np.bincount(owner, rows.data.astype(np.float64) ** 2, minlength=rows.shape[0]))
    rows.data = (rows.data / norms[owner]).astype(np.float32)
    return rows


class Weighed(Protocol):
    """Any classifier of hashed counts; see :class:`GramReadout`."""

    @property
    def columns(self) -> npt.NDArray[np.integer]:
        """Buckets in use, ascending."""

    @property
    def idf(self) -> Floats:
        """Their inverse document frequencies."""

    @property
    def weight(self) -> Floats:
        """Their weights, (F, C)."""

    @property
    def bias(self) -> Floats:
        """Biases, (C,)."""


def spread(
    model: Weighed, text: str, kind: Kind, lengths: Sequence[int], bits: int, source: int, rival: int
) -> tuple[Doubles, float]:
    """Log-odds of two candidates, spread over the characters of a text.

    Parameters
    ----------
    model : GramReadout or alike
    text : str
        Without lone surrogates.
    kind, lengths, bits
        What the classifier counts, as in :func:`backend.methods.ngram_counts.count_grams`.
    source, rival : int
        Columns of the classifier.

    Returns
    -------
    values : ndarray of shape (len(text),), float64
        In nats; what an n-gram says is shared evenly by the characters that it covers.
    constant : float
        What belongs to no character; together with the values it is the log-odds.
    """
    starts, stops, buckets = gram_spans(text, kind, lengths, bits)
    place = np.minimum(np.searchsorted(model.columns, buckets), len(model.columns) - 1)
    known = model.columns[place] == buckets
    starts, stops, place = starts[known], stops[known], place[known]
    found, at, times = np.unique(place, return_inverse=True, return_counts=True)
    share = (1 + np.log(times)) * model.idf[found].astype(np.float64)
    share /= np.sqrt((share**2).sum()) or 1.0
    odds = model.weight[found, source].astype(np.float64) - model.weight[found, rival]
    each = (share * odds / times)[at] / (stops - starts)
    edges = np.zeros(len(text) + 1)
    np.add.at(edges, starts, each)
    np.add.at(edges, stops, -each)
    return np.cumsum(edges)[:-1], float(model.bias[source]) - float(model.bias[rival])


def fit_grams(
    counts: Counts, labels: npt.NDArray[np.integer], classes: int, settings: SoftmaxSettings, seed: int
) -> GramReadout:
    """Choose buckets and weights on training rows, and fit.

    Parameters
    ----------
    counts : scipy.sparse.csr_matrix of shape (n, buckets)
    labels : ndarray of shape (n,)
    classes : int
    settings : SoftmaxSettings
    seed : int
        Of the order of the rows.

    Returns
    -------
    GramReadout
    """
    documents = np.bincount(counts.indices, minlength=counts.shape[1])
    frequent = np.flatnonzero(documents >= max(1, min(FEWEST_ROWS, counts.shape[0])))
    columns = np.sort(frequent[np.argsort(-documents[frequent], kind="stable")[: settings.features]])
    idf = (np.log((1 + counts.shape[0]) / (1 + documents[columns])) + 1).astype(np.float32)
    weight, bias = _descend(weighed(counts[:, columns], idf), np.asarray(labels), classes, settings, seed)
    return GramReadout(columns, idf, weight, bias)


def _descend(
    rows: Counts, labels: npt.NDArray[np.integer], classes: int, settings: SoftmaxSettings, seed: int
) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    n, width = rows.shape
    weight, bias = np.zeros((width, classes), dtype=np.float32), np.zeros(classes, dtype=np.float32)
    first, second = np.zeros_like(weight), np.zeros_like(weight)
    batches = max(1, round(n / settings.batch))
    step, steps = 0, settings.epochs * batches
    for _ in range(settings.epochs):
        for some in np.array_split(rng.permutation(n), batches):
            part = rows[some]
            error = np.exp(log_softmax(part @ weight + bias, axis=1))
            error[np.arange(len(some)), labels[some]] -= 1
            error /= np.float32(len(some))
            gradient = part.T @ error
            gradient += np.float32(settings.decay) * weight
            rate = settings.rate * 0.5 * (1 + np.cos(np.pi * step / steps))
            step += 1
            first += np.float32(0.1) * (gradient - first)
            second *= np.float32(0.99)
            second += np.float32(0.01) * gradient * gradient
            unbiased = np.sqrt(second / np.float32(1 - 0.99**step))
            unbiased += np.float32(1e-7)
            weight -= np.float32(rate / (1 - 0.9**step)) * first / unbiased
            bias -= np.float32(0.3 * rate) * error.sum(0)
    return weight, bias
