"""Scores in another domain, put right by unlabelled responses of it (paper, Cross-Domain Transfer).

Other prompts move all fingerprints alike, which favours some sources whoever answers; summed over K responses this
outweighs everything else. A pool of responses whose sources are not known, but known to be many and about equally
frequent, shows the favour: the mean posterior over such a pool should be uniform. One number a source makes it so.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
STEPS = 200
TOLERANCE = 1e-3
LEAST = -600.0
"""Log-odds below which a posterior counts as this."""
FARTHEST = 50.0
"""Size of the first guess of a bias at most."""


def balancing_bias(pool: npt.NDArray[np.floating]) -> Doubles:
    """Bias of every source that makes the mean posterior over a pool uniform.

    Parameters
    ----------
    pool : ndarray of shape (n, C)
        Log-posteriors of unlabelled responses.

    Returns
    -------
    ndarray of shape (C,), float64
        With mean zero; found by damped fixed-point steps, which stop when no source's share is off by more than a
        thousandth of itself, or after 200.
    """
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
    """Log-posteriors with the bias of a pool that holds no row of the same part.

    Parameters
    ----------
    log_posteriors : ndarray of shape (n, C)
    pool_of : ndarray of shape (n,)
        Part of every row, its prompt's fold say; the pool of a row are the rows of all other parts.

    Returns
    -------
    ndarray of shape (n, C), float32, normalised
    """
    out = np.empty_like(log_posteriors, dtype=np.float32)
    for part in np.unique(pool_of):
        inside = pool_of == part
        bias = balancing_bias(log_posteriors[~inside])
        out[inside] = log_softmax(log_posteriors[inside] + bias, axis=1)
    return out
