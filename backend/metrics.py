"""How good an attribution is: accuracy, macro-F1, negative log-likelihood, calibration error (paper, Protocol)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.intp]
ECE_BINS = 15


def confusion_counts(truth: Ints, predicted: Ints, classes: int) -> npt.NDArray[np.int64]:
    """Counts of shape (classes, classes), rows are the truth."""
    flat = np.bincount(truth * classes + predicted, minlength=classes * classes)
    return flat.reshape(classes, classes).astype(np.int64)


def accuracy(counts: npt.NDArray[np.int64]) -> float:
    return float(np.trace(counts) / counts.sum())


def macro_f1(counts: npt.NDArray[np.int64]) -> float:
    """One-vs-rest F1 averaged over all classes; a class that is neither true nor predicted counts as 0."""
    hits = np.diag(counts).astype(np.float64)
    total = counts.sum(0) + counts.sum(1)
    return float(np.mean(np.divide(2 * hits, total, out=np.zeros_like(hits), where=total > 0)))


def negative_log_likelihood(log_probabilities: npt.NDArray[np.floating], truth: Ints) -> float:
    """Mean of ``-log p(truth)`` in nats, from (n, C) normalised log-probabilities."""
    return float(-np.mean(log_probabilities[np.arange(len(truth)), truth], dtype=np.float64))


def expected_calibration_error(log_probabilities: npt.NDArray[np.floating], truth: Ints, bins: int = ECE_BINS) -> float:
    """Top-label calibration error over equal-width confidence bins, weighted by their counts."""
    predicted = log_probabilities.argmax(1)
    confidence = np.exp(log_probabilities[np.arange(len(truth)), predicted])
    place = np.clip(np.ceil(confidence * bins).astype(np.intp) - 1, 0, bins - 1)
    count = np.bincount(place, minlength=bins)
    right = np.bincount(place, weights=(predicted == truth), minlength=bins)
    trust = np.bincount(place, weights=confidence, minlength=bins)
    return float(np.abs(right - trust)[count > 0].sum() / len(truth))
