"""Shrinkage linear discriminants over any number of blocks (beside the paper's probe, READER Optimization).

Sources are told apart by their mean fingerprints, measured in the covariance of fingerprints within a source. Within a
source it is the prompt that varies, so that directions which follow the prompt count little. The covariance is shrunk
towards its diagonal; nothing is iterated, and scaling a coordinate changes nothing.

One pass over the fingerprints gives the moments of every fold; those of any union of folds follow by addition, so that
the five outer fits and the ten inner ones read no fingerprint again. A fold is centred at its own mean, which keeps
float32 sums exact enough and lets no fold depend on another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import ssyrk
from scipy.special import log_softmax

from backend.methods.probe import linear_plane
from backend.methods.readout import Arrays, Doubles, Floats, Ints, Rows


@dataclass(frozen=True)
class Moments:
    """Moments of labelled rows."""

    counts: Doubles  # (C,) weight of the rows of every class
    centre: Doubles  # (D,) mean of all rows
    offsets: Doubles  # (C, D) sum of the rows of every class, after the centre was taken from each
    scatter: Floats  # (D, D) sum of outer products of the rows around the centre; only the lower triangle counts

    @property
    def means(self) -> Doubles:
        """Class means minus the centre, (C, D); zero for a class without rows."""
        counts = np.maximum(self.counts, 1e-300)[:, None]
        return np.where(self.counts[:, None] > 0, self.offsets / counts, 0.0)

    def columns(self, wanted: Ints) -> Moments:
        """Moments of some of the coordinates, ascending."""
        scatter = np.asfortranarray(self.scatter[np.ix_(wanted, wanted)])
        return Moments(self.counts, self.centre[wanted], self.offsets[:, wanted], scatter)


def moments_of(blocks: Iterable[tuple[Floats, Ints]], classes: int, width: int) -> Moments:
    """Moments of rows (n, D), float32, and labels (n,) that come in blocks; ValueError if there is no row."""
    counts, sums = np.zeros(classes), np.zeros((classes, width))
    scatter = np.zeros((width, width), dtype=np.float32, order="F")
    anchor: Doubles | None = None
    for rows, labels in blocks:
        if not len(rows):
            continue
        if anchor is None:  # near enough to the mean for the products to be small; taken out exactly below
            anchor = rows.mean(0, dtype=np.float64).astype(np.float32).astype(np.float64)
        moved = np.ascontiguousarray(rows - anchor.astype(np.float32), dtype=np.float32)
        counts += np.bincount(labels, minlength=classes)
        for label in np.unique(labels):
            sums[label] += moved[labels == label].sum(0, dtype=np.float64)
        scatter = ssyrk(1.0, moved.T, beta=1.0, c=scatter, lower=1, overwrite_c=1)
    if anchor is None:
        raise ValueError("there is no row to take moments of")
    shift = sums.sum(0) / counts.sum()
    _add_outer(scatter, shift[None], np.array([-counts.sum()]))
    return Moments(counts, anchor + shift, sums - counts[:, None] * shift, scatter)


def merged(parts: Sequence[Moments], weights: Sequence[float] | None = None) -> Moments:
    """Moments of the union of disjoint rows; ``weights`` are what a row of each part counts, by default one."""
    shares = np.ones(len(parts)) if weights is None else np.asarray(weights, dtype=np.float64)
    total = np.array([w * part.counts.sum() for w, part in zip(shares, parts, strict=True)])
    centre = sum(t * part.centre for t, part in zip(total, parts, strict=True)) / total.sum()
    counts = sum(w * part.counts for w, part in zip(shares, parts, strict=True))
    offsets = np.zeros_like(parts[0].offsets)
    scatter = np.zeros_like(parts[0].scatter, order="F")
    for weight, part in zip(shares, parts, strict=True):
        offsets += weight * (part.offsets + part.counts[:, None] * (part.centre - centre))
        scatter += np.float32(weight) * part.scatter
    _add_outer(scatter, np.stack([part.centre - centre for part in parts]), total)
    return Moments(np.asarray(counts), np.asarray(centre), offsets, scatter)


def within_scatter(moments: Moments) -> Floats:
    """Scatter of the rows around the mean of their class, (D, D), lower triangle."""
    scatter = np.array(moments.scatter, order="F")
    _add_outer(scatter, moments.means, -moments.counts)
    return scatter


def _add_outer(scatter: Floats, vectors: Doubles, weights: Doubles) -> None:
    """Add ``sum_i w_i v_i v_i'`` to the lower triangle, in place."""
    for sign in (1.0, -1.0):
        some = sign * weights > 0
        if some.any():
            scaled = (vectors[some] * np.sqrt(sign * weights[some])[:, None]).astype(np.float32)
            ssyrk(sign, np.ascontiguousarray(scaled).T, beta=1.0, c=scatter, lower=1, overwrite_c=1)


VARIANCE_FLOOR = 1e-12


@dataclass(frozen=True)
class LinearReadout(Arrays):
    """A linear map from coordinates to scores of the sources."""

    SHAPES: ClassVar = {"centre": "D", "weight": "DC", "bias": "C"}
    centre: Floats  # taken from every row first
    weight: Floats
    bias: Floats

    def scores(self, rows: Rows) -> Floats:
        """Unnormalised scores (n, C) of rows (n, D)."""
        moved: Floats = np.asarray(rows, dtype=np.float32) - self.centre
        out: Floats = moved @ self.weight + self.bias
        return out

    def log_posterior(self, rows: Rows) -> Floats:
        """Log-posteriors (n, C), float32, of rows (n, D)."""
        out: Floats = log_softmax(self.scores(rows), axis=1)
        return out

    def plane(self, row: Rows, source: int, rival: int) -> tuple[Doubles, Doubles, float]:
        """Centre and direction, each (D,), and constant, whose sum is the log-odds of two sources at any row (D,)."""
        return linear_plane(self.centre, np.float32(1), self.weight, self.bias, source, rival)


def fit_discriminant(moments: Moments, shrinkage: float) -> LinearReadout:
    """Linear discriminants from moments, under a uniform prior.

    ``shrinkage`` is the share of the diagonal in the covariance, in (0, 1]. A class without rows gets no score above
    the others. ValueError if the shrinkage is out of range, or there are not more rows than classes.
    """
    if not 0 < shrinkage <= 1:
        raise ValueError(f"shrinkage must lie in (0, 1], got {shrinkage}")
    seen = moments.counts > 0
    freedom = moments.counts.sum() - seen.sum()
    if freedom <= 0:
        raise ValueError("a covariance within classes needs more rows than classes")
    covariance = within_scatter(moments)
    covariance /= np.float32(freedom)
    scale = np.sqrt(np.maximum(np.diag(covariance), VARIANCE_FLOOR)).astype(np.float32)
    covariance *= (1 - shrinkage) / scale[:, None]
    covariance /= scale
    covariance[np.diag_indices(len(scale))] = 1.0
    factor = cho_factor(covariance, lower=True, overwrite_a=True, check_finite=False)
    means = np.ascontiguousarray((moments.means / scale).astype(np.float32).T)
    weight = cho_solve(factor, means, check_finite=False)
    bias = -0.5 * np.einsum("dc,dc->c", means, weight, dtype=np.float64)
    bias[~seen] = -1e6
    return LinearReadout(
        moments.centre.astype(np.float32), (weight / scale[:, None]).astype(np.float32), bias.astype(np.float32)
    )
