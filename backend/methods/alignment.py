"""Fingerprints of another domain moved to where the trained ones lie (paper, Cross-Domain Transfer; CORAL).

Other prompts move fingerprints and spread them otherwise. Unlabelled responses of the new domain show how: an affine
map gives them the mean and the covariance of the rows that readouts were trained on, block by block (correlation
alignment; Sun, Feng and Saenko, 2016). What tells sources apart is not looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh

from backend.methods.moments import Moments

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
SHRINKAGE = 0.1
"""Share of the identity in both correlation matrices, as in the covariance of the discriminants."""
VARIANCE_FLOOR = 1e-12


@dataclass(frozen=True)
class Alignment:
    """An affine map of fingerprints over several blocks.

    Attributes
    ----------
    origins, targets : tuple of ndarray of shape (d,), float32
        Mean of the pool, and of the rows that were trained on, of every block.
    maps : tuple of ndarray of shape (d, d), float32
    """

    origins: tuple[Floats, ...]
    maps: tuple[Floats, ...]
    targets: tuple[Floats, ...]

    def apply(self, rows: npt.NDArray[np.floating]) -> Floats:
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
    """The map from each of several pools to the rows that were trained on, whose spread is found once.

    Parameters
    ----------
    pools : sequence of sequence of Moments
        Of every pool those of every block; labels do not count.
    trained : sequence of Moments
        Of every block.
    shrinkage : float
        Above 0 and at most 1; 1 only moves and scales coordinates.

    Returns
    -------
    list of Alignment
        With shrunk correlations ``R`` and scales ``S`` of both, a row is multiplied by
        ``S_pool^-1 R_pool^-1/2 R_trained^1/2 S_trained``.
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
