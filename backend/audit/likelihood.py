"""Likelihood ratios of calibrated posteriors and what they cost when they mislead (Brümmer's Cllr).

A ratio compares two propositions: the traces come from one named source, or from another enrolled one (each as likely
as the next), or the same for a family. The log-likelihood-ratio cost is the mean price in bits of the ratios that point
the wrong way: 0 is perfect, 1 is what a reader earns that says nothing.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
LN2 = float(np.log(2.0))
LN10 = float(np.log(10.0))


def log_likelihood_ratios(log_posteriors: Doubles) -> Doubles:
    """Each source against all other enrolled ones, in nats.

    Parameters
    ----------
    log_posteriors : ndarray of shape (G, C)
        Normalised, under the uniform prior.

    Returns
    -------
    ndarray of shape (G, C)
        ``log p(traces | c) - log mean over c' != c of p(traces | c')``.

    Raises
    ------
    ValueError
        With fewer than two sources there is nothing to compare.
    """
    n, classes = log_posteriors.shape
    if classes < 2:
        raise ValueError("a likelihood ratio needs at least two sources")
    rows, best = np.arange(n), log_posteriors.argmax(1)
    rest = log_posteriors.astype(np.float64).copy()
    rest[rows, best] = -np.inf
    others = np.log1p(-np.minimum(np.exp(log_posteriors), 0.5))  # exact below one half; the best is replaced
    others[rows, best] = logsumexp(rest, axis=1)
    out: Doubles = log_posteriors - others + np.log(classes - 1)
    return out


def weighed_log_ratio(log_likelihoods: Doubles, inside: npt.NDArray[np.bool_], log_prior: Doubles) -> Doubles:
    """A group of sources against all others, where a prior says how the members of either side weigh.

    Parameters
    ----------
    log_likelihoods : ndarray of shape (..., C)
        Up to a constant a row; a log-posterior under the uniform prior is one.
    inside : ndarray of shape (C,), bool
        The sources of the proposition; some, not all.
    log_prior : ndarray of shape (C,)
        Only its shares within either side count: what it says of the proposition itself cancels, so that posterior
        odds are prior odds times this ratio.

    Returns
    -------
    ndarray of shape (...), nats
    """
    sides = []
    for some in (inside, ~inside):
        weights = log_prior[some] - logsumexp(log_prior[some])
        sides.append(logsumexp(log_likelihoods[..., some] + weights, axis=-1))
    out: Doubles = sides[0] - sides[1]
    return out


def cllr(target: npt.NDArray[np.floating], other: npt.NDArray[np.floating]) -> float:
    """Log-likelihood-ratio cost, in bits.

    Parameters
    ----------
    target : ndarray of any shape
        Log ratios (nats) of trials where the first proposition is true.
    other : ndarray of any shape
        Log ratios of trials where the second one is.
    """
    return float((np.logaddexp(0, -target).mean() + np.logaddexp(0, other).mean()) / (2 * LN2))


def cllr_claim(log_posteriors: Doubles, truth: Ints) -> float:
    """Cllr of 'this named source' against 'another enrolled one', over every group and every source as the claim."""
    ratios = log_likelihood_ratios(log_posteriors)
    own = truth[:, None] == np.arange(ratios.shape[1])
    return cllr(ratios[own], ratios[~own])


def cllr_pairwise(log_posteriors: Doubles, truth: Ints) -> float:
    """Cllr of the true source against each other one alone; both kinds of trials are the same pairs by symmetry."""
    own = truth[:, None] == np.arange(log_posteriors.shape[1])
    ratios = log_posteriors[own][:, None] - log_posteriors
    return float(np.logaddexp(0, -ratios[~own]).mean() / LN2)


def cllr_multiclass(log_posteriors: Doubles, truth: Ints) -> float:
    """Multi-class Cllr: mean ``-log p(truth)`` over ``log C``, uniform prior, every source weighing the same."""
    classes = log_posteriors.shape[1]
    counts = np.bincount(truth, minlength=classes)
    cost = np.bincount(truth, -log_posteriors[np.arange(len(truth)), truth], minlength=classes)
    return float((cost[counts > 0] / counts[counts > 0]).mean() / np.log(classes))
