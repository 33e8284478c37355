"""Likelihood ratios, their bounds and their cost (paper, Stage 2).

With ``S_c`` of :mod:`backend.evidence` the log-likelihood of the traces under source ``c`` is ``S_c - log pi_c`` up to
a constant. A ratio compares a source, or a family, with the other enrolled ones, each as likely as the next. Traces are
taken as independent given the source, so ratios of many traces are too sure until they are calibrated. Cllr, the
log-likelihood-ratio cost, is the mean price in bits of misleading ratios: 0 is perfect, 1 that of no information.

N. Brümmer and J. du Preez (2006). Application-independent evaluation of speaker detection. Computer Speech and Language
20, 230-275.
P. Vergeer, A. van Es, A. de Jongh, I. Alberink and R. Stoel (2016). Numerical likelihood ratios outputted by LR systems
are often based on extrapolation: when to stop extrapolating? Science & Justice 56, 482-491.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression
from scipy.special import log_softmax, logsumexp

from backend.inference import Doubles, Floating, Ints

LN2 = float(np.log(2.0))
LN10 = float(np.log(10.0))
BOUND_DIGITS = 2
BOUND_STEP = 10.0**-BOUND_DIGITS  # distance of the thresholds that a bound is searched on, in log10
LARGEST_LOG10 = 9.0  # larger log10 ratios, infinite ones too, count as this one in the search of a bound
ORDERS = 200
DRAWS = 1_000  # resamples of the traces behind an interval
SEED = 42
POINTS = 60  # budgets at which the spread over orders is taken
WORK = 200_000_000  # numbers that are added up for the spread or an interval; beyond it there are fewer draws
FAMILY_SHARE = 0.95


def log_likelihood_ratios(log_posteriors: Doubles) -> Doubles:
    """Each source against all other enrolled ones, (G, C) nats, of normalised log-posteriors under an even prior."""
    classes = log_posteriors.shape[1]
    if classes < 2:
        raise ValueError("a likelihood ratio needs at least two sources")
    out: Doubles = _log_odds(log_posteriors) + np.log(classes - 1)
    return out


def family_log_ratios(log_posteriors: Doubles, family: Ints) -> Doubles:
    """Each family against all others, (G, F) nats; family (C,) 0 .. F - 1."""
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
    return log_posteriors - others


def claim_trials(log_ratios: Doubles, truth: Ints) -> tuple[Doubles, Doubles]:
    """Ratios (G, C) of true claims (G,) and of false ones (G * (C - 1),), every group with every claim."""
    own = truth[:, None] == np.arange(log_ratios.shape[1])
    return log_ratios[own], log_ratios[~own]


def empirical_bounds(true: Doubles, false: Doubles, repeats: int = 1) -> tuple[float, float]:
    """Empirical lower and upper bound (ELUB) of log10 ratios.

    At prior odds 1 / t a refused true claim costs 1 and an accepted false one t. The bounds enclose the thresholds t at
    which deciding by the ratios costs no more than by the prior. One more misleading trial is assumed on either side.

    true, false : (n,), (m,) log10 ratios of claims; n / repeats and m / repeats trials are counted.
    Returns a lower bound, at most 0, and an upper bound, at least 0; multiples of :data:`BOUND_STEP`.
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
    return np.cumsum(below[::-1])[::-1][1:]


def weighed_log_ratio(log_likelihoods: Doubles, inside: npt.NDArray[np.bool_], log_prior: Doubles) -> Doubles:
    """A group of sources against all others, whose members weigh by their prior, (...).

    log_likelihoods : (..., C) up to a constant a row; inside : (C,) the sources of the proposition, not all.
    log_prior : (C,) only its shares within either side count, so that posterior odds are prior odds times this ratio.
    """
    sides = []
    for some in (inside, ~inside):
        weights = log_prior[some] - logsumexp(log_prior[some])
        sides.append(logsumexp(log_likelihoods[..., some] + weights, axis=-1))
    return sides[0] - sides[1]


def cllr(target: Floating, other: Floating) -> float:
    """Log-likelihood-ratio cost in bits, of log ratios (nats) where the first or the other proposition is true."""
    return float((np.logaddexp(0, -target).mean() + np.logaddexp(0, other).mean()) / (2 * LN2))


@dataclass(frozen=True)
class PooledRatios:
    """The best ratios in the order of the stated ones: pool adjacent violators (PAV)."""

    start: Doubles  # (B,) smallest ratio of each block, ascending
    log_ratio: Doubles  # (B,) nats, of the trials in the block; infinite where it holds trials of one kind
    true: Doubles  # (B,) trials of true claims
    false: Doubles  # (B,) trials of false claims

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
        return self.log_ratio[np.maximum(place, 0)]


def pool_adjacent_violators(true: Doubles, false: Doubles) -> PooledRatios:
    """Isotonic regression of the kind of a trial on its ratio, both kinds weighing the same.

    False claims between two neighbouring ratios of true ones fall into one block, so they are counted together first.
    At least one log ratio, of any base, of each kind.
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
    """Cllr of a source against the other enrolled ones, over every group and claim."""
    return cllr(*claim_trials(log_likelihood_ratios(log_posteriors), truth))


def cllr_pairwise(log_posteriors: Doubles, truth: Ints) -> float:
    """Cllr of the true source against each other one alone."""
    own = truth[:, None] == np.arange(log_posteriors.shape[1])
    ratios = log_posteriors[own][:, None] - log_posteriors
    return float(np.logaddexp(0, -ratios[~own]).mean() / LN2)


def cllr_multiclass(log_posteriors: Doubles, truth: Ints) -> float:
    """Multi-class Cllr: mean ``-log p(truth) / log C``, every source weighing the same."""
    classes = log_posteriors.shape[1]
    counts = np.bincount(truth, minlength=classes)
    cost = np.bincount(truth, -log_posteriors[np.arange(len(truth)), truth], minlength=classes)
    return float((cost[counts > 0] / counts[counts > 0]).mean() / np.log(classes))


def running_scores(log_posteriors: Floating, log_prior: Doubles) -> Doubles:
    """Scores ``S`` (n, C) after 1, 2, .. n traces, of log-posteriors (n, C) under the prior (C,) in enrolment."""
    out: Doubles = np.cumsum(log_posteriors, axis=0, dtype=np.float64)
    out -= np.arange(len(out))[:, None] * log_prior
    return out


def log_likelihoods(scores: Doubles, log_prior: Doubles) -> Doubles:
    """Log-likelihood of the traces under every source, (..., C), up to a constant a row."""
    return scores - log_prior


def posterior_under(likelihoods: Doubles, log_stated: Doubles) -> Doubles:
    """Log-posteriors (..., C) under a stated prior (C,), which need not be normalised."""
    out: Doubles = log_softmax(likelihoods + log_stated, axis=-1)
    return out


def log10_ratios(likelihoods: Doubles, source: int) -> Doubles:
    """log10 likelihood ratio of a source against each other one, (..., C); 0 against itself."""
    return (likelihoods[..., source : source + 1] - likelihoods) / LN10


def log10_against_others(likelihoods: Doubles, source: int, log_stated: Doubles) -> Doubles:
    """log10 ratio of a source against the mixture of all others by their stated prior, (...)."""
    return weighed_log_ratio(likelihoods, np.arange(likelihoods.shape[-1]) == source, log_stated) / LN10


def printed_budgets(n: int, points: int) -> npt.NDArray[np.intp]:
    """At most ``points`` budgets of 1 .. n at which a curve is printed, ever wider apart where they are many."""
    if n <= points:
        return np.arange(1, n + 1)
    return np.unique(np.round(np.geomspace(1, n, points)).astype(np.intp))


@dataclass(frozen=True)
class OrderSpread:
    """The log10 ratio of a source against another enrolled one, over random orders of the traces."""

    budgets: npt.NDArray[np.intp]  # (B,)
    low: Doubles  # (B,) 5 % quantile over the orders
    middle: Doubles
    high: Doubles  # 95 %
    leads: Doubles  # (B,) share of the orders in which the source leads at that budget
    orders: int
    seed: int


def order_spread(
    log_posteriors: Floating,
    log_prior: Doubles,
    source: int,
    log_stated: Doubles,
    orders: int = ORDERS,
    seed: int = SEED,
    calibrate: Callable[[Doubles, int, Doubles], Doubles] | None = None,
    bounds: Callable[[int], tuple[float, float]] | None = None,
) -> OrderSpread:
    """Spread of :func:`log10_against_others` over random orders of the traces.

    With ``calibrate`` and ``bounds`` of the answer the curve ends at the answer; without them it is a plain sum.
    """
    n, classes = log_posteriors.shape
    orders = max(min(orders, 20), min(orders, WORK // (n * classes)))
    budgets = printed_budgets(n, POINTS)
    steps = log_posteriors.astype(np.float64) - log_prior
    rng = np.random.default_rng(seed)
    sums = np.empty((orders, len(budgets), classes))
    for order in range(orders):
        shuffled = steps[rng.permutation(n)]
        # Sums between one budget and the next need no cumulative sum over all traces in memory.
        np.add.reduceat(shuffled, np.concatenate([[0], budgets[:-1]]), axis=0).cumsum(0, out=sums[order])
    if calibrate is not None:
        for place, budget in enumerate(map(int, budgets)):
            sums[:, place] = calibrate(sums[:, place], budget, log_stated) - log_stated
    leads = (sums.argmax(2) == source).mean(0)
    margins = log10_against_others(sums, source, log_stated)
    if bounds is not None:
        margins = np.clip(margins, *np.array([bounds(int(budget)) for budget in budgets]).T)
    low, middle, high = np.quantile(margins, [0.05, 0.5, 0.95], axis=0)
    return OrderSpread(budgets, low, middle, high, leads, orders, seed)


@dataclass(frozen=True)
class Contributions:
    """Contribution of every trace, and the ratio without it."""

    log10_ratio: Doubles  # (n,) what the trace adds to the log10 likelihood ratio of the source against the rival
    without: Doubles  # (n,) log10 ratio of the source against the best other one without the trace
    leader_without: npt.NDArray[np.intp]  # (n,) leading source without the trace
    source: int
    rival: int


def leave_one_out(
    log_posteriors: Floating, log_prior: Doubles, source: int, log_stated: Doubles | float = 0.0
) -> Contributions:
    """Contribution of every trace to a source's case against its strongest rival; the stated prior helps to lead."""
    steps = log_posteriors.astype(np.float64) - log_prior
    others = np.delete(np.arange(steps.shape[1]), source)
    without = steps.sum(0) - steps
    rival = int(others[steps[:, others].sum(0).argmax()])
    margin = without[:, source] - without[:, others].max(1)
    added = (steps[:, source] - steps[:, rival]) / LN10
    return Contributions(added, margin / LN10, (without + log_stated).argmax(1), source, rival)


@dataclass(frozen=True)
class Interval:
    """How far a result would move with other traces of the same kind."""

    low: float  # 5 % quantile of the log10 ratio over resampled traces
    high: float  # 95 %
    probability_low: float  # the same of the posterior
    probability_high: float
    draws: int
    seed: int


def resampled(log_posteriors: Floating, log_prior: Doubles, seed: int = SEED) -> Doubles:
    """Log-likelihoods (draws, C) of n traces drawn with replacement; of very many fewer draws."""
    n, classes = log_posteriors.shape
    draws = max(100, min(DRAWS, WORK // (n * classes)))
    steps = log_posteriors.astype(np.float64) - log_prior
    rng = np.random.default_rng(seed)
    out = np.empty((draws, classes))
    for draw in range(draws):
        out[draw] = np.bincount(rng.integers(0, n, n), minlength=n) @ steps
    return out


@dataclass(frozen=True)
class FamilyAnswer:
    """Probabilities by family."""

    families: tuple[str, ...]  # most probable first
    probabilities: tuple[float, ...]
    siblings: tuple[str, ...]  # with 95 % of the leading family's share where it is clear and no source of it is


def family_answer(log_posterior: Doubles, sources: Sequence[str], families: Sequence[str]) -> FamilyAnswer:
    """Sum probabilities (C,) within families, and list siblings that cannot be distinguished."""
    share = np.exp(log_posterior)
    names = sorted(set(families))
    member = np.array([names.index(family) for family in families])
    total = np.bincount(member, weights=share, minlength=len(names))
    order = np.argsort(-total, kind="stable")
    inside = [int(i) for i in np.argsort(-share, kind="stable") if member[i] == order[0]]
    siblings: list[str] = []
    if total[order[0]] >= FAMILY_SHARE > share[inside[0]]:
        covered = np.cumsum(share[inside]) / total[order[0]]
        siblings = [sources[i] for i in inside[: int(np.searchsorted(covered, FAMILY_SHARE)) + 1]]
    return FamilyAnswer(tuple(names[i] for i in order), tuple(float(total[i]) for i in order), tuple(siblings))
