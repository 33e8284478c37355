"""Shrinkage linear discriminants over any number of blocks (beside the paper's probe, READER Optimization).

Sources are told apart by their mean fingerprints, measured in the covariance of fingerprints within a source. Within a
source it is the prompt that varies, so that directions which follow the prompt count little. The covariance is shrunk
towards its diagonal; nothing is iterated, and scaling a coordinate changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve
from scipy.special import log_softmax

from backend.methods.moments import Moments, within_scatter
from backend.methods.probe import linear_plane
from backend.methods.readout import Arrays, Doubles

Floats = npt.NDArray[np.float32]
VARIANCE_FLOOR = 1e-12


@dataclass(frozen=True)
class LinearReadout(Arrays):
    """A linear map from coordinates to scores of the sources.

    Attributes
    ----------
    centre : ndarray of shape (D,), float32
        Taken from every row first.
    weight : ndarray of shape (D, C), float32
    bias : ndarray of shape (C,), float32
    """

    SHAPES: ClassVar = {"centre": "D", "weight": "DC", "bias": "C"}
    centre: Floats
    weight: Floats
    bias: Floats

    def scores(self, rows: npt.NDArray[np.floating]) -> Floats:
        """Unnormalised scores (n, C) of rows (n, D)."""
        moved: Floats = np.asarray(rows, dtype=np.float32) - self.centre
        out: Floats = moved @ self.weight + self.bias
        return out

    def log_posterior(self, rows: npt.NDArray[np.floating]) -> Floats:
        """Log-posteriors (n, C), float32, of rows (n, D)."""
        out: Floats = log_softmax(self.scores(rows), axis=1)
        return out

    def plane(self, row: npt.NDArray[np.floating], source: int, rival: int) -> tuple[Doubles, Doubles, float]:
        """Centre and direction, each (D,), and constant, whose sum is the log-odds of two sources at any row (D,)."""
        return linear_plane(self.centre, np.float32(1), self.weight, self.bias, source, rival)


def fit_discriminant(moments: Moments, shrinkage: float) -> LinearReadout:
    """Linear discriminants from moments, under a uniform prior.

    Parameters
    ----------
    moments : Moments
    shrinkage : float
        Share of the diagonal in the covariance, above 0 and at most 1.

    Returns
    -------
    LinearReadout
        A class without rows gets no score above the others: its weights are zero and its bias is very low.

    Raises
    ------
    ValueError
        If the shrinkage is out of range, or there are not more rows than classes.
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
