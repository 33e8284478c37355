"""Likelihood ratios of calibrated posteriors and what they cost when they mislead (Brümmer's Cllr).

A ratio compares two propositions: the traces come from one named source, or from another enrolled one (each as likely
as the next), or the same for a family. The log-likelihood-ratio cost is the mean price in bits of the ratios that point
the wrong way: 0 is perfect, 1 is what a reader earns that says nothing.

P. Vergeer, A. van Es, A. de Jongh, I. Alberink and R. Stoel (2016). Numerical likelihood ratios outputted by LR systems
are often based on extrapolation: when to stop extrapolating? Science & Justice 56, 482-491.
N. Brümmer and J. du Preez (2006). Application-independent evaluation of speaker detection. Computer Speech and Language
20, 230-275.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression
from scipy.special import logsumexp

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
LN2 = float(np.log(2.0))
LN10 = float(np.log(10.0))
BOUND_DIGITS = 2
BOUND_STEP = 10.0**-BOUND_DIGITS  # distance of the thresholds that a bound is searched on, in log10
LARGEST_LOG10 = 9.0  # larger log10 ratios, infinite ones too, count as this one in the search of a bound


def log_likelihood_ratios(log_posteriors: Doubles) -> Doubles:
    """Each source against all other enrolled ones, in nats.

    log_posteriors : (G, C) normalised, under the uniform prior.
    Returns (G, C), ``log p(traces | c) - log mean over c' != c of p(traces | c')``.
    Raises ValueError with fewer than two sources there is nothing to compare.
    """
    classes = log_posteriors.shape[1]
    if classes < 2:
        raise ValueError("a likelihood ratio needs at least two sources")
    out: Doubles = _log_odds(log_posteriors) + np.log(classes - 1)
    return out


def family_log_ratios(log_posteriors: Doubles, family: Ints) -> Doubles:
    """Each family against all other ones, in nats.

    log_posteriors : (G, C) normalised, under the uniform prior.
    family : (C,) family numbers 0 .. F - 1.
    Returns (G, F), ``log mean over c in f of p(traces | c) - log mean over c not in f of p(traces | c)``.
    Raises ValueError with fewer than two families there is nothing to compare.
    """
    members = np.bincount(family)
    if len(members) < 2:
        raise ValueError("a likelihood ratio needs at least two families")
    shares = [logsumexp(log_posteriors[:, family == one], axis=1) for one in range(len(members))]
    return _log_odds(np.stack(shares, axis=1)) + np.log((len(family) - members) / members)


def _log_odds(log_posteriors: Doubles) -> Doubles:
    """``log p - log(1 - p)`` of normalised rows (G, C)."""
    rows, best = np.arange(len(log_posteriors)), log_posteriors.argmax(1)
    rest = log_posteriors.astype(np.float64).copy()
    rest[rows, best] = -np.inf
    others = np.log1p(-np.minimum(np.exp(log_posteriors), 0.5))  # exact below one half; the best is replaced
    others[rows, best] = logsumexp(rest, axis=1)
    out: Doubles = log_posteriors - others
    return out


def claim_trials(log_ratios: Doubles, truth: Ints) -> tuple[Doubles, Doubles]:
    """Ratios (G, C) of true claims (G,) and of false ones (G * (C - 1),), every group with every claim."""
    own = truth[:, None] == np.arange(log_ratios.shape[1])
    return log_ratios[own], log_ratios[~own]


def empirical_bounds(true: Doubles, false: Doubles, repeats: int = 1) -> tuple[float, float]:
    """Empirical lower and upper bound (ELUB) of log10 ratios.

    Somebody who accepts a claim whose ratio is above a threshold t loses 1 by refusing a true claim and t by accepting
    a false one, where the prior odds are 1 / t. The bounds enclose the thresholds at which deciding by the ratios costs
    no more than deciding by the prior alone. One misleading trial more than was seen is assumed on either side.

    true, false : (n,) log10 ratios of true and of false claims.
    repeats : how often the same traces were tried: n / repeats and m / repeats trials are counted.
    Returns lower bound, at most 0, and upper bound, at least 0; multiples of :data:`BOUND_STEP`.
    Raises ValueError without trials of both kinds.
    """
    if not (len(true) and len(false)):
        raise ValueError(f"a bound needs trials of both kinds, got {len(true)} true and {len(false)} false claims")
    counts = len(true) / repeats, len(false) / repeats
    kinds = [np.clip(kind, -LARGEST_LOG10, LARGEST_LOG10) for kind in (true, false)]
    lowest = max(min(kind.min() for kind in kinds), -np.log10(counts[0] + 1))
    highest = min(max(kind.max() for kind in kinds), np.log10(counts[1] + 1))
    first, last = min(0, int(lowest // BOUND_STEP)), max(0, int(highest // BOUND_STEP) + 1)
    thresholds = np.linspace(first * BOUND_STEP, last * BOUND_STEP, last - first + 1)
    odds = 10**thresholds
    accepted = [_above(10**kind, odds) / repeats for kind in kinds]
    cost = 1 - accepted[0] / (counts[0] + 1) + odds * ((accepted[1] + 1) / (counts[1] + 1))
    worse = thresholds[np.minimum(odds, 1) / cost < 1]
    lower = (worse[worse <= 0] + BOUND_STEP).max(initial=thresholds[0])
    upper = (worse[worse >= 0] - BOUND_STEP).min(initial=thresholds[-1])
    # A bound of 2 must not be 1.9999999999999998: a verdict asks for a ratio of 2 or more.
    return min(round(float(lower), BOUND_DIGITS), 0.0), max(round(float(upper), BOUND_DIGITS), 0.0)


def _above(values: Doubles, thresholds: Doubles) -> Ints:
    """How many values lie above each of ascending thresholds (T,)."""
    below = np.bincount(np.searchsorted(thresholds, values, side="left"), minlength=len(thresholds) + 1)
    above: Ints = np.cumsum(below[::-1])[::-1][1:]
    return above


def weighed_log_ratio(log_likelihoods: Doubles, inside: npt.NDArray[np.bool_], log_prior: Doubles) -> Doubles:
    """A group of sources against all others, where a prior says how the members of either side weigh.

    log_likelihoods : (..., C) up to a constant a row; a log-posterior under the uniform prior is one.
    inside : (C,) the sources of the proposition; some, not all.
    log_prior : (C,) only its shares within either side count: what it says of the proposition itself cancels, so that
        posterior odds are prior odds times this ratio.
    Returns (...).
    """
    sides = []
    for some in (inside, ~inside):
        weights = log_prior[some] - logsumexp(log_prior[some])
        sides.append(logsumexp(log_likelihoods[..., some] + weights, axis=-1))
    out: Doubles = sides[0] - sides[1]
    return out


def cllr(target: npt.NDArray[np.floating], other: npt.NDArray[np.floating]) -> float:
    """Log-likelihood-ratio cost, in bits.

    target : log ratios (nats) of trials where the first proposition is true.
    other : log ratios of trials where the second one is.
    """
    return float((np.logaddexp(0, -target).mean() + np.logaddexp(0, other).mean()) / (2 * LN2))


@dataclass(frozen=True)
class PooledRatios:
    """The best ratios that keep the order of the stated ones: pool adjacent violators (PAV).

    log_ratio : (B,) natural logarithm of the ratio that the trials of the block show; infinite where it holds trials of
        one kind.
    true, false : (B,) trials of true and of false claims.
    """

    start: Doubles  # (B,) smallest ratio of each block, ascending
    log_ratio: Doubles
    true: Doubles
    false: Doubles

    def cost(self) -> float:
        """Log-likelihood-ratio cost of these ratios, in bits: Cllr_min of the stated ones."""
        total = 0.0
        for counts, sign in ((self.true, 1), (self.false, -1)):
            seen = counts > 0  # a ratio of the right sign without bounds costs nothing
            total += counts[seen] @ np.logaddexp(0, -sign * self.log_ratio[seen]) / counts.sum()
        return float(total / (2 * LN2))

    def at(self, log_ratio: Doubles) -> Doubles:
        """What trials show where ratios (n,) were stated."""
        place = np.searchsorted(self.start, log_ratio, side="right") - 1
        out: Doubles = self.log_ratio[np.maximum(place, 0)]
        return out


def pool_adjacent_violators(true: Doubles, false: Doubles) -> PooledRatios:
    """Isotonic regression of the kind of a trial on its ratio, both kinds weighing the same.

    False claims between two neighbouring ratios of true ones always fall into one block, so they are counted together
    before anything is pooled: many more of them cost little.

    true, false : (n,) log ratios of true and of false claims, of any base; at least one of each.
    """
    points, ties = np.unique(true, return_counts=True)
    # Place 2 i is the gap below the i-th ratio of true claims, place 2 i + 1 that ratio itself.
    below = np.searchsorted(points, false, side="left")
    places = 2 * below + (points[np.minimum(below, len(points) - 1)] == false)
    counts = np.zeros((2, 2 * len(points) + 1))
    counts[0, 1::2] = ties
    counts[1] = np.bincount(places, minlength=counts.shape[1])
    starts = np.empty(counts.shape[1])
    starts[1::2] = points
    starts[::2] = np.r_[-np.inf, np.nextafter(points, np.inf)]
    used = counts.any(axis=0)
    counts, starts = counts[:, used], starts[used]
    shares = counts / counts.sum(axis=1, keepdims=True)
    weights = shares.sum(axis=0)
    first = isotonic_regression(shares[0] / weights, weights=weights).blocks[:-1]
    pooled = np.add.reduceat(counts, first, axis=1)
    with np.errstate(divide="ignore"):
        logs = np.log(pooled / counts.sum(axis=1, keepdims=True))
    return PooledRatios(starts[first], logs[0] - logs[1], pooled[0], pooled[1])


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
