"""What log-posteriors of traces say about the competing propositions (paper, Stage 2).

With ``S_c = sum_k log q(c | u_k) - (K - 1) log pi_c`` (:mod:`backend.evidence`) the log-likelihood of the traces under
source ``c`` is ``S_c - log pi_c`` up to a constant that all sources share. A likelihood ratio is a difference of these
and asks for no prior; a posterior is this plus the log of a prior that somebody states. Traces are taken as
independent given the source, so ratios of many traces are too sure of themselves until they are calibrated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from backend.inference.evidence_bounds import LN10, weighed_log_ratio

Floats = npt.NDArray[np.floating]
Doubles = npt.NDArray[np.float64]
ORDERS = 200
DRAWS = 1_000  # resamples of the traces behind an interval
SEED = 42
POINTS = 60  # budgets at which the spread over orders is taken
WORK = 200_000_000
"""Numbers that are added up for the spread or an interval; fewer draws are made beyond it, but never fewer than 20."""
FAMILY_SHARE = 0.95


def running_scores(log_posteriors: Floats, log_prior: Doubles) -> Doubles:
    """Scores after 1, 2, .. n traces in the order of arrival.

    log_posteriors : (n, C).
    log_prior : (C,) prior in enrolment.
    Returns (n, C), row k holds ``S`` of the first k + 1 traces.
    """
    out: Doubles = np.cumsum(log_posteriors, axis=0, dtype=np.float64)
    out -= np.arange(len(out))[:, None] * log_prior
    return out


def log_likelihoods(scores: Doubles, log_prior: Doubles) -> Doubles:
    """Log-likelihood of the traces under every source, (..., C), up to a constant a row."""
    return scores - log_prior


def posterior_under(likelihoods: Doubles, log_stated: Doubles) -> Doubles:
    """Log-posteriors (..., C) under a stated prior (C,), which need not be normalised."""
    joint = likelihoods + log_stated
    out: Doubles = joint - logsumexp(joint, axis=-1, keepdims=True)
    return out


def log10_ratios(likelihoods: Doubles, source: int) -> Doubles:
    """log10 likelihood ratio of a source against each other one, (..., C); 0 against itself."""
    out: Doubles = (likelihoods[..., source : source + 1] - likelihoods) / math.log(10)
    return out


def log10_against_others(likelihoods: Doubles, source: int, log_stated: Doubles) -> Doubles:
    """log10 likelihood ratio of a source against 'another enrolled source', (...).

    The alternative is a mixture: every other source by its share in the stated prior among them.
    """
    out: Doubles = weighed_log_ratio(likelihoods, np.arange(likelihoods.shape[-1]) == source, log_stated) / LN10
    return out


def printed_budgets(n: int, points: int) -> npt.NDArray[np.intp]:
    """Budgets up to n at which a curve is printed: every one where they are few, else ever wider apart.

    n : traces.
    points : budgets at most.
    Returns (at most points,), ascending; the first is 1 and the last n.
    """
    if n <= points:
        return np.arange(1, n + 1)
    budgets: npt.NDArray[np.intp] = np.unique(np.round(np.geomspace(1, n, points)).astype(np.intp))
    return budgets


@dataclass(frozen=True)
class OrderSpread:
    """The log10 ratio of a source against another enrolled one, over random orders of the traces.

    low, middle, high : (B,) 5 %, 50 % and 95 % quantiles over the orders.
    """

    budgets: npt.NDArray[np.intp]  # (B,)
    low: Doubles
    middle: Doubles
    high: Doubles
    leads: Doubles  # (B,) share of the orders in which the source leads at that budget
    orders: int
    seed: int


def order_spread(
    log_posteriors: Floats,
    log_prior: Doubles,
    source: int,
    log_stated: Doubles,
    orders: int = ORDERS,
    seed: int = SEED,
    calibrate: Callable[[Doubles, int, Doubles], Doubles] | None = None,
    bounds: Callable[[int], tuple[float, float]] | None = None,
) -> OrderSpread:
    """How much the evidence depends on the order in which the traces came.

    The ratio is that of :func:`log10_against_others`; with all traces it is the same in every order.

    log_posteriors : (n, C) at least one trace.
    log_prior : (C,).
    source : claimed or leading source.
    log_stated : (C,) log of the stated prior: how the other sources weigh.
    calibrate, bounds : those of the answer, so that the curve is its own; a plain sum without them.
    """
    n, classes = log_posteriors.shape
    orders = max(min(orders, 20), min(orders, WORK // (n * classes)))
    budgets = printed_budgets(n, POINTS)
    steps = log_posteriors.astype(np.float64) - log_prior
    rng = np.random.default_rng(seed)
    sums = np.empty((orders, len(budgets), classes))
    for order in range(orders):
        shuffled = steps[rng.permutation(n)]
        # Sums between one budget and the next, so that no cumulative sum over all traces is kept.
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
    """What every trace adds, and what would be left without it."""

    log10_ratio: Doubles  # (n,) what the trace adds to the log10 likelihood ratio of the source against the rival
    without: Doubles  # (n,) log10 ratio of the source against the best other one when the trace is left out
    leader_without: npt.NDArray[np.intp]  # (n,) leading source when the trace is left out
    source: int
    rival: int


def leave_one_out(
    log_posteriors: Floats, log_prior: Doubles, source: int, log_stated: Doubles | float = 0.0
) -> Contributions:
    """Contribution of every trace to a source's case against its strongest rival.

    log_posteriors : (n, C).
    log_prior : (C,).
    log_stated : (C,) log of the stated prior, which has a say in who leads; uniform when absent.
    """
    steps = log_posteriors.astype(np.float64) - log_prior
    others = np.delete(np.arange(steps.shape[1]), source)
    without = steps.sum(0) - steps
    rival = int(others[steps[:, others].sum(0).argmax()])
    margin = without[:, source] - without[:, others].max(1)
    added = (steps[:, source] - steps[:, rival]) / math.log(10)
    return Contributions(added, margin / math.log(10), (without + log_stated).argmax(1), source, rival)


@dataclass(frozen=True)
class Interval:
    """How far a result would move with other traces of the same kind.

    low, high : 5 % and 95 % quantiles of the log10 ratio over resampled traces.
    probability_low, probability_high : the same of the posterior.
    """

    low: float
    high: float
    probability_low: float
    probability_high: float
    draws: int
    seed: int


def resampled(log_posteriors: Floats, log_prior: Doubles, draws: int = DRAWS, seed: int = SEED) -> Doubles:
    """Log-likelihoods (draws, C) of as many traces as there are, drawn from them with replacement.

    log_posteriors : (n, C).
    log_prior : (C,).
    draws : fewer are made where there are very many traces, but never fewer than 100.
    """
    n, classes = log_posteriors.shape
    draws = max(min(draws, 100), min(draws, WORK // (n * classes)))
    steps = log_posteriors.astype(np.float64) - log_prior
    rng = np.random.default_rng(seed)
    out = np.empty((draws, classes))
    for draw in range(draws):
        out[draw] = np.bincount(rng.integers(0, n, n), minlength=n) @ steps
    return out


@dataclass(frozen=True)
class FamilyAnswer:
    """The answer a family at a time.

    siblings : sources of the leading family that hold 95 % of its probability, when the family is clear and no single
        source of it is; else empty.
    """

    families: tuple[str, ...]  # most probable first
    probabilities: tuple[float, ...]
    siblings: tuple[str, ...]


def family_answer(log_posterior: Doubles, sources: Sequence[str], families: Sequence[str]) -> FamilyAnswer:
    """Sum probabilities (C,) within families, and say which siblings cannot be told apart."""
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
