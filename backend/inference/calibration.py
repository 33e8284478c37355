"""Calibration of accumulated scores (paper, Evidence Accumulation).

Traces of one source depend on each other: the sum of K log-posteriors is too timid at K = 1 and far too bold at K =
100. One factor a budget, ``scale(K)``, repairs that, never above that of a single trace; a bias a source, where it
helps on folds that did not fit it, repairs what shortened traces shift. Between budgets the logarithm of the factor is
interpolated in log K; beyond the largest one evidence is averaged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from threadpoolctl import ThreadpoolController

from backend.evidence import accumulate
from backend.inference import Doubles, Floating, Ints, likelihood_ratios
from backend.inference.likelihood_ratios import LN10, claim_trials, log_likelihood_ratios
from backend.metrics import negative_log_likelihood
from backend.protocol import BUDGETS, GROUPING_SEEDS, budget_groups, grid_rows

WITH_BIAS: bool | None = None  # a bias is used where folds that did not fit it say that it helps
BIAS_GROUPS = 20  # groups of a source that a bias is fitted on at least
NEWTON_STEPS = 50
SCALE_RANGE = (1e-4, 1e3)
BOUNDS = ("bounds", "family_bounds")
WRONG = 0.5  # groups that count as gone wrong next to those that were seen (what Jeffreys' prior adds)


@dataclass(frozen=True)
class Groups:
    """Scored groups of held-out traces."""

    scores: Doubles  # (G, C) log-normalised sums of log-posteriors
    truth: Ints  # (G,), as fold and seed
    fold: Ints
    seed: Ints

    @property
    def seeds(self) -> int:
        """Groupings of the same traces."""
        return len(np.unique(self.seed))

    @property
    def of_a_seed(self) -> int:
        """Groups of one grouping."""
        return len(self.truth) // self.seeds

    def where(self, mask: npt.NDArray[np.bool_]) -> Groups:
        """The groups of a mask of shape (G,)."""
        return Groups(self.scores[mask], self.truth[mask], self.fold[mask], self.seed[mask])


@dataclass(frozen=True)
class Calibration:
    """Scale and bias of accumulated scores at every budget of the fit, for one condition."""

    budgets: Ints  # (B,) ascending numbers of traces
    scale: Doubles  # (B,)
    bias: Doubles  # (B, C) zero where no bias is used
    groups: Ints  # (B,) groups of one seed behind every budget; they bound the likelihood ratio that can be defended
    bounds: Doubles | None = None  # (B, 2) empirical lower and upper bound of a source's log10 ratio, and of a family's
    family_bounds: Doubles | None = None

    def parameters(self, budget: int) -> tuple[float, Doubles]:
        """Scale and bias (C,) at any number of traces, interpolated in log K."""
        if budget < 1:
            raise ValueError(f"budget must be at least 1, got {budget}")
        low, high, share = neighbours(budget, self.budgets)
        scale = float(np.exp((1 - share) * np.log(self.scale[low]) + share * np.log(self.scale[high])))
        excess = max(1.0, budget / float(self.budgets[-1]))
        return scale / excess, (1 - share) * self.bias[low] + share * self.bias[high]

    def per_trace(self, budget: int) -> tuple[float, Doubles]:
        """Scale, and the bias (C,) that is added to the log-posteriors of every trace before the scale."""
        scale, bias = self.parameters(budget)
        return scale, bias / (scale * budget)

    def apply(self, scores: Floating, budget: int, log_prior: Floating | None = None) -> Doubles:
        """Calibrated log-posteriors.

        scores : (G, C) of groups of ``budget`` traces, under the uniform prior of enrolment.
        log_prior : (C,) log of the stated prior over the enrolled sources; uniform when absent.
        """
        scale, bias = self.parameters(budget)
        logits = scale * np.asarray(scores, dtype=np.float64) + bias
        return normalised(logits if log_prior is None else logits + log_prior)

    def log10_limits(self, budget: int, among: int | None = None) -> tuple[float, float]:
        """Smallest and largest log10 likelihood ratio that was validated.

        Nothing beyond the number of trials plus one is stated. A true claim is tried once a group, a false one with
        each other source. Between the budgets of the fit the groups of the next larger one count, and the tighter of
        the empirical bounds on either side.

        among : number of families where the ratio is a family's; the enrolled sources when absent.
        """
        last = len(self.budgets) - 1
        place = min(int(np.searchsorted(self.budgets, budget, side="left")), last)
        behind = int(self.groups[place])
        others = (self.bias.shape[1] if among is None else among) - 1
        lower, upper = -float(np.log10(behind + 1)), float(np.log10(behind * others + 1))
        bounds = self.bounds if among is None else self.family_bounds
        if bounds is not None:
            below = max(int(np.searchsorted(self.budgets, budget, side="right")) - 1, 0)
            lower = max(lower, *bounds[[below, place], 0].tolist())
            upper = min(upper, *bounds[[below, place], 1].tolist())
        return lower, upper

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """Arrays for :func:`numpy.savez` without pickling."""
        return {name: array for name, array in vars(self).items() if array is not None}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[np.generic]]) -> Calibration:
        """The inverse of :meth:`to_arrays`; a scale above that of the smallest budget is taken as that one.

        Raises KeyError without an array but the bounds; ValueError if bounds are no pair a budget with 0 between them.
        """
        scale = np.asarray(arrays["scale"], dtype=np.float64)
        limited = np.minimum(scale, scale[0])
        bounds = {n: np.asarray(arrays[n], dtype=np.float64).reshape(len(scale), 2) for n in BOUNDS if n in arrays}
        for name, pairs in bounds.items():
            if not ((pairs[:, 0] <= 0) & (pairs[:, 1] >= 0)).all():
                raise ValueError(f"{name} of the calibration exclude a ratio of 1")
        return cls(
            np.asarray(arrays["budgets"], dtype=np.intp),
            limited,
            np.asarray(arrays["bias"], dtype=np.float64) * (limited / scale)[:, None],
            np.asarray(arrays["groups"], dtype=np.intp),
            **bounds,
        )


def neighbours(budget: int, budgets: Ints) -> tuple[int, int, float]:
    """Places of the fitted budgets around a number of traces, and the share of the second one, in log K."""
    place = np.interp(np.log(budget), np.log(budgets), np.arange(len(budgets)))
    low = int(place)
    return low, min(low + 1, len(budgets) - 1), place - low


def interpolated(rows: Floating, budget: int, budgets: Ints) -> Doubles:
    """Rows (B, ..) at any number of traces, interpolated in log K; beyond the budgets those of the nearest one."""
    low, high, share = neighbours(budget, budgets)
    out: Doubles = (1 - share) * rows[low].astype(np.float64) + share * rows[high]
    return out


def normalised(logits: Floating) -> Doubles:
    """Logits (G, C) minus their log-sum."""
    out: Doubles = log_softmax(np.asarray(logits, dtype=np.float64), axis=1)
    return out


def held_out_groups(
    log_posteriors: Floating, prompt_folds: Ints, budget: int, seeds: Sequence[int] = GROUPING_SEEDS
) -> Groups:
    """Groups of a budget within folds, as the attribution table forms them.

    log_posteriors : (C * P, C) out-of-fold, row = source * P + prompt; prompt_folds : (P,).
    """
    classes, prompts = log_posteriors.shape[1], len(prompt_folds)
    parts = []
    for seed in seeds if budget > 1 else seeds[:1]:  # all seeds give the same groups of one trace
        for fold in np.unique(prompt_folds):
            groups, truth = budget_groups(grid_rows(classes, prompts, prompt_folds == fold), budget, seed, int(fold))
            constant = (np.full(len(truth), value, dtype=np.intp) for value in (fold, seed))
            parts.append((normalised(accumulate(log_posteriors, groups)), truth, *constant))
    return Groups(*map(np.concatenate, zip(*parts, strict=True)))


def _gone_wrong(scores: Doubles, seeds: int) -> tuple[float, Ints]:
    """Share of the likelihood for groups (G, C) gone wrong, and the second place of each, (G,).

    Without it a factor on groups without an error has no optimum. Groupings of further seeds add no group.
    """
    return WRONG / (len(scores) / seeds + WRONG), np.argpartition(scores, -2, axis=1)[:, -2]


def fit_scale(scores: Doubles, truth: Ints, seeds: int = 1) -> float:
    """Factor on scores of the least negative log-likelihood, by Newton steps on its logarithm.

    scores : (G, C) C is at least 2; truth : (G,); seeds : groupings of the same traces that the G groups hold.
    """
    rows = np.arange(len(truth))
    wrong, second = _gone_wrong(scores, seeds)
    relative = scores - scores[rows, truth][:, None]
    expected = wrong * relative[rows, second].mean()
    low, high = np.log(SCALE_RANGE)
    at = 0.0
    for _ in range(NEWTON_STEPS):
        factor = np.exp(at)
        share = softmax(factor * relative, axis=1)
        mean = (share * relative).sum(1)
        slope = factor * (mean.mean() - expected)
        curvature = slope + factor**2 * ((share * relative**2).sum(1) - mean**2).mean()
        step = -slope / curvature if curvature > 1e-12 else -np.sign(slope)
        before, at = at, float(np.clip(at + np.clip(step, -1.0, 1.0), low, high))
        if abs(at - before) < 1e-7:
            break
    return float(np.exp(at))


def fit_scale_and_bias(scores: Doubles, truth: Ints, seeds: int = 1) -> tuple[float, Doubles]:
    """Factor and bias of every source (C,), by L-BFGS; arguments as of :func:`fit_scale`.

    A normal prior keeps the bias of a few groups from fitting noise. Its standard deviation is not tuned: log C takes
    one of C sources from as likely as the next to as all others.
    """
    n, classes = scores.shape
    spread = np.log(classes)
    rows = np.arange(n)
    wrong, second = _gone_wrong(scores, seeds)
    target = np.zeros((n, classes))
    target[rows, second] = wrong
    target[rows, truth] += 1 - wrong

    def loss(at: Doubles) -> tuple[float, Doubles]:
        logits = np.exp(at[0]) * scores + at[1:]
        logits -= logits.max(1, keepdims=True)
        share = np.exp(logits)
        total = share.sum(1, keepdims=True)
        value = np.log(total).mean() - (target * logits).sum() / n + (at[1:] ** 2).sum() / (2 * spread**2 * n)
        away = share / total - target
        slope = np.exp(at[0]) * (away * scores).sum() / n
        return float(value), np.r_[slope, away.mean(0) + at[1:] / (spread**2 * n)]

    start = np.r_[np.log(fit_scale(scores, truth, seeds)), np.zeros(classes)]
    bounds = [tuple(np.log(SCALE_RANGE)), *[(None, None)] * classes]
    with _libraries().limit(limits=1, user_api="blas"):  # products of a hundred numbers: a second thread only waits
        best = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 100}).x
    return float(np.exp(best[0])), best[1:] - best[1:].mean()


@cache
def _libraries() -> ThreadpoolController:
    """The libraries of this process that have threads; to look for them takes longer than a small fit."""
    return ThreadpoolController()


@dataclass(frozen=True)
class CalibrationFits:
    """Fits to parts of the same groups, by the folds that they saw, each computed once."""

    calibrations: dict[tuple[int, ...], Calibration] = field(default_factory=dict)  # without bounds
    biased: dict[tuple[int, ...], tuple[float, Doubles]] = field(default_factory=dict)  # by budget, seeds and folds

    def scale_and_bias(self, groups: Groups, budget: int, seeds: int) -> tuple[float, Doubles]:
        """:func:`fit_scale_and_bias` to groups of a budget."""
        key = (budget, seeds, *np.unique(groups.fold).tolist())
        if key not in self.biased:
            self.biased[key] = fit_scale_and_bias(groups.scores, groups.truth, seeds)
        return self.biased[key]


def bias_helps(groups: Groups, budget: int = 1, fits: CalibrationFits | None = None) -> bool:
    """Whether a bias lowers the cost of folds that did not fit it; not with one fold."""
    folds = np.unique(groups.fold)
    if len(folds) < 2:
        return False
    costs, seeds, fits = np.zeros(2), groups.seeds, fits or CalibrationFits()
    for fold in folds:
        train, test = groups.where(groups.fold != fold), groups.where(groups.fold == fold)
        plain, (scale, bias) = fit_scale(train.scores, train.truth, seeds), fits.scale_and_bias(train, budget, seeds)
        logits = plain * test.scores, scale * test.scores + bias
        costs += [len(test.truth) * negative_log_likelihood(normalised(part), test.truth) for part in logits]
    return bool(costs[1] < costs[0])


def bias_budget(by_budget: Mapping[int, Groups]) -> int:
    """The largest budget with :data:`BIAS_GROUPS` groups of every source and seed, else the smallest one."""
    enough = [k for k, g in by_budget.items() if g.of_a_seed >= BIAS_GROUPS * g.scores.shape[1]]
    return max(enough, default=min(by_budget))


def fit_calibration(
    by_budget: Mapping[int, Groups],
    with_bias: bool | None = False,
    family: Ints | None = None,
    fits: CalibrationFits | None = None,
) -> Calibration:
    """Fit every budget, and bound its ratios by fits to the other folds, if any.

    The bias is one of single traces, fitted at :func:`bias_budget`, and counts K times in a group of K. No scale is
    above that of the smallest budget.

    by_budget : from :func:`held_out_groups`; with_bias : None decides by :func:`bias_helps` on the folds of the groups.
    family : (C,) family numbers 0 .. F - 1 of the sources; without them ratios of families have no empirical bounds.
    fits : read and added to; for calls with parts of the same groups.
    Raises ValueError if there is no budget.
    """
    fits = fits or CalibrationFits()
    fit, calibrated = _fit_scales(by_budget, with_bias, fits), cross_fitted(by_budget, with_bias, fits)
    pairs = np.array([bounds_of(calibrated[k], by_budget[k], family) for k in sorted(by_budget)])
    return replace(fit, bounds=pairs[:, 0], family_bounds=None if family is None else pairs[:, 1])


def cross_fitted(
    by_budget: Mapping[int, Groups], with_bias: bool | None = False, fits: CalibrationFits | None = None
) -> dict[int, Doubles]:
    """Calibrated log-posteriors of every group, by the fit to the other folds; arguments as :func:`fit_calibration`."""
    without, fits = {}, fits or CalibrationFits()
    for fold in folds_of(by_budget):
        rest = {k: groups.where(groups.fold != fold) for k, groups in by_budget.items() if (groups.fold != fold).any()}
        without[fold] = _fit_scales(rest or by_budget, with_bias, fits)
    return calibrated_by_fold(by_budget, without)


def folds_of(by_budget: Mapping[int, Groups]) -> tuple[int, ...]:
    """Folds of the groups, ascending."""
    return tuple(np.unique(np.concatenate([groups.fold for groups in by_budget.values()])).astype(int).tolist())


def _fit_scales(by_budget: Mapping[int, Groups], with_bias: bool | None, fits: CalibrationFits) -> Calibration:
    """:func:`fit_calibration` without bounds, where it is not among the fits yet."""
    if not by_budget:
        raise ValueError("by_budget holds no budget")
    folds = folds_of(by_budget)
    if folds in fits.calibrations:
        return fits.calibrations[folds]
    budgets, at = sorted(by_budget), bias_budget(by_budget)
    groups = by_budget[at]
    per_trace = np.zeros(groups.scores.shape[1])
    if bias_helps(groups, at, fits) if with_bias is None else with_bias:
        scale, bias = fits.scale_and_bias(groups, at, groups.seeds)
        per_trace = bias / (scale * at)
    every = [by_budget[k] for k in budgets]
    scales = [fit_scale(g.scores + k * per_trace, g.truth, g.seeds) for k, g in zip(budgets, every, strict=True)]
    limited = np.minimum(scales, scales[0])
    biases, counts = (limited * budgets)[:, None] * per_trace, np.array([g.of_a_seed for g in every])
    fits.calibrations[folds] = Calibration(np.array(budgets), limited, biases, counts)
    return fits.calibrations[folds]


def calibrated_by_fold(by_budget: Mapping[int, Groups], fits: Mapping[int, Calibration]) -> dict[int, Doubles]:
    """Calibrated log-posteriors of every group, by the fit of its fold."""
    out = {k: np.empty_like(groups.scores) for k, groups in by_budget.items()}
    for fold, fit in fits.items():
        for k, groups in by_budget.items():
            of_fold = groups.fold == fold
            out[k][of_fold] = fit.apply(groups.scores[of_fold], k)
    return out


def bounds_of(log_posteriors: Doubles, groups: Groups, family: Ints | None) -> list[tuple[float, float]]:
    """Empirical bounds of ratios of sources, and with families of theirs; 0 where there is but one family."""
    seeds = groups.seeds
    kinds = [(log_likelihood_ratios(log_posteriors), groups.truth)]
    if family is not None and family.max() > 0:
        kinds.append((likelihood_ratios.family_log_ratios(log_posteriors, family), family[groups.truth]))
    pairs = [likelihood_ratios.empirical_bounds(*claim_trials(ratios / LN10, truth), seeds) for ratios, truth in kinds]
    return pairs if family is None or len(pairs) > 1 else [*pairs, (0.0, 0.0)]


def budgets_of(prompt_folds: Ints) -> list[int]:
    """Budgets that fit into the smallest fold."""
    return [budget for budget in BUDGETS if budget <= int(np.bincount(prompt_folds).min())]
