"""Another domain, put right by unlabelled responses of it (paper, Cross-Domain Transfer).

Over a pool of responses of many unknown sources the mean posterior should be uniform; one number a source makes it so.
An affine map gives the pool the mean and covariance of the training rows (Sun, Feng and Saenko, 2016).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.special import log_softmax

from backend.methods.discriminant import Moments
from backend.methods.readout import Doubles, Floats, Ints, Rows

STEPS = 200
TOLERANCE = 1e-3
LEAST = -600.0  # log-odds below which a posterior counts as this
FARTHEST = 50.0  # size of the first guess of a bias at most


def balancing_bias(pool: Rows) -> Doubles:
    """Bias (C,) of mean zero that makes the mean posterior of a pool (n, C) uniform to a thousandth."""
    scores = np.asarray(pool, dtype=np.float64)
    classes = scores.shape[1]
    # A step is two products with these shares, and no exponential.
    share = np.exp(np.maximum(scores - scores.max(1, keepdims=True), LEAST))
    bias: Doubles = np.clip(-scores.mean(0), -FARTHEST, FARTHEST)
    bias -= bias.mean()
    for _ in range(STEPS):
        weight = np.exp(bias)
        error = np.log(weight * (share.T @ (1 / (share @ weight))) / len(scores) * classes)
        bias -= 0.7 * error
        bias -= bias.mean()
        if np.abs(error).max() < TOLERANCE:
            break
    return bias


def balanced(log_posteriors: Floats, pool_of: Ints) -> Floats:
    """Log-posteriors (n, C) with the bias of a pool of all rows of other parts, ``pool_of`` (n,), such as folds."""
    out = np.empty_like(log_posteriors, dtype=np.float32)
    for part in np.unique(pool_of):
        inside = pool_of == part
        bias = balancing_bias(log_posteriors[~inside])
        out[inside] = log_softmax(log_posteriors[inside] + bias, axis=1)
    return out


SHRINKAGE = 0.1  # share of the identity in both correlation matrices, as in the covariance of the discriminants
VARIANCE_FLOOR = 1e-12


@dataclass(frozen=True)
class Alignment:
    """An affine map of fingerprints over several blocks."""

    origins: tuple[Floats, ...]  # (d,) of every block, mean of the pool
    maps: tuple[Floats, ...]  # (d, d)
    targets: tuple[Floats, ...]  # (d,) mean of the rows that were trained on

    def apply(self, rows: Rows) -> Floats:
        """Moved rows (n, D), float32, of rows (n, D) whose blocks lie side by side."""
        out = np.empty(rows.shape, dtype=np.float32)
        low = 0
        for origin, turned, target in zip(self.origins, self.maps, self.targets, strict=True):
            block = slice(low, low + len(origin))
            out[:, block] = (np.asarray(rows[:, block], dtype=np.float32) - origin) @ turned + target
            low += len(origin)
        return out


def fit_alignments(
    pools: Sequence[Sequence[Moments]], trained: Sequence[Moments], shrinkage: float = SHRINKAGE
) -> list[Alignment]:
    """The map from each of several pools, moments of every block, to the rows that were trained on.

    A row is multiplied by ``S_pool^-1 R_pool^-1/2 R_trained^1/2 S_trained``, of scales ``S`` and shrunk correlations.
    """
    targets = tuple(block.centre.astype(np.float32) for block in trained)
    maps: list[list[Floats]] = [[] for _ in pools]
    for number, block in enumerate(trained):
        there, coloured = _spread(block, shrinkage, 0.5)
        for own, pool in zip(maps, pools, strict=True):
            here, whitened = _spread(pool[number], shrinkage, -0.5)
            own.append(((whitened @ coloured) * (there / here[:, None])).astype(np.float32))
    return [
        Alignment(tuple(block.centre.astype(np.float32) for block in pool), tuple(own), targets)
        for own, pool in zip(maps, pools, strict=True)
    ]


def _spread(moments: Moments, shrinkage: float, power: float) -> tuple[Doubles, Doubles]:
    """Standard deviations (d,), and a power of the shrunk correlation matrix (d, d)."""
    covariance = np.tril(moments.scatter).astype(np.float64) / moments.counts.sum()
    variance = np.diag(covariance).copy()
    scale = np.sqrt(np.where(variance > VARIANCE_FLOOR, variance, 1.0))
    covariance += np.tril(covariance, -1).T
    correlation = (1 - shrinkage) * covariance / scale / scale[:, None]
    correlation[np.diag_indices(len(scale))] = 1.0
    values, vectors = eigh(correlation, check_finite=False, overwrite_a=True)
    # Rounding can make an eigenvalue of a degenerate pool smaller than the identity's share.
    return scale, (vectors * np.maximum(values, shrinkage) ** power) @ vectors.T
