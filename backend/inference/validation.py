"""Realised errors of calibration, verdict and stop, each fitted on some prompt folds and measured on the others.

All frames share their columns (k, metric, value, std, n; where needed scenario, statistic, rule, level and space), so
that one table holds them; ``std`` is over seeds, folds or runs, ``n`` counts groups, sessions or pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.inference import Doubles, Floating, Ints, likelihood_ratios
from backend.inference.calibration import (
    Calibration,
    CalibrationFits,
    Groups,
    calibrated_by_fold,
    fit_calibration,
    folds_of,
    held_out_groups,
    normalised,
)
from backend.inference.likelihood_ratios import LN10, claim_trials, log_likelihood_ratios
from backend.inference.sequential_stop import (
    Sessions,
    StopRule,
    fit_stop_rule,
    nearest_sources,
    ordered_sessions,
    running_ratios,
)
from backend.inference.verdict import Rule, Verdict, decide, gather
from backend.metrics import expected_calibration_error, negative_log_likelihood
from backend.protocol import BUDGETS, GROUPING_SEEDS, grid_rows

TEXTS = ("condition", "part", "metric", "scenario", "statistic", "rule", "space")
NUMBERS = ("k", "level", "value", "std", "n")
SPACE = "fingerprints"
FLOOR_DRAWS = 20
STOP_LEVELS = (0.01, 0.05, 0.1)
SESSION_ORDERS = 3
CURVES = ("tippett_true", "tippett_false", "pav")  # points of a plot, with the horizontal coordinate as their level
TAILS = (0.0001, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25)  # shares of trials where a Tippett plot is sampled
PAV_POINTS = 20
MEASURES: dict[str, Callable[[Doubles, Ints], float]] = {
    "accuracy": lambda log_posteriors, truth: float((log_posteriors.argmax(1) == truth).mean()),
    "ece": expected_calibration_error,
    "nll": negative_log_likelihood,
    "cllr_claim": likelihood_ratios.cllr_claim,
    "cllr_pairwise": likelihood_ratios.cllr_pairwise,
    "cllr_multiclass": likelihood_ratios.cllr_multiclass,
}
VERDICTS = {  # what the verdict's rule does in a share of held-out groups
    "true_claim_supported": "supports the true source as the claim",
    "true_claim_refuted": "refutes the true source as the claim",
    "nearest_claim_supported": "supports the nearest other source as the claim",
    "nearest_claim_refuted": "refutes the nearest other source as the claim",
    "named_right": "names the true source without a claim",
    "named_wrong": "names a wrong source without a claim",
    "family_right": "names the true family alone without a claim",
    "family_wrong": "names a wrong family alone without a claim",
    "true_claim_family_supported": "supports only the family of the true source when that one is claimed",
    "true_claim_family_refuted": "refutes the whole family of the true source when that one is claimed",
    "nearest_claim_family_supported": "supports only the family of the nearest other source when it is claimed",
    "nearest_claim_family_refuted": "refutes the whole family of the nearest other source when it is claimed",
    "nearest_claim_shared_supported": "supports only the family of both when a sibling is claimed in its place",
}


def fold_calibrations(
    by_budget: Mapping[int, Groups], with_bias: bool | None = False, family: Ints | None = None
) -> dict[int, Calibration]:
    """For every fold the calibration that saw none of its groups.

    Probes of the other folds did see the prompts of the tested one; the calibrations see only scores of prompts that
    they are not tested on. ``family`` (C,) bounds ratios of families too.
    """
    fits = CalibrationFits()
    return {
        fold: fit_calibration({k: g.where(g.fold != fold) for k, g in by_budget.items()}, with_bias, family, fits)
        for fold in folds_of(by_budget)
    }


def calibration_error_floor(log_posteriors: Doubles, seed: int, draws: int = FLOOR_DRAWS) -> float:
    """Calibration error of so many groups by chance alone."""
    rng = np.random.default_rng(seed)
    cumulative = np.exp(log_posteriors).cumsum(1)
    errors = []
    for _ in range(draws):
        drawn = (cumulative < rng.random((len(cumulative), 1)) * cumulative[:, -1:]).sum(1)
        errors.append(expected_calibration_error(log_posteriors, drawn))
    return float(np.mean(errors))


def calibration_frame(
    log_posteriors: Floating,
    prompt_folds: Ints,
    budgets: Sequence[int] = BUDGETS,
    with_bias: bool | None = False,
    fitted: Mapping[int, Calibration] | None = None,
    family: Ints | None = None,
) -> pd.DataFrame:
    """Calibration error and costs before and after, cross-fitted over prompt folds.

    log_posteriors : (C * P, C) out-of-fold, row = source * P + prompt; prompt_folds : (P,).
    fitted : from :func:`fold_calibrations` on these groups; family : (C,) without it there are no verdicts.
    Returns columns k, metric, value, std, n, level. Metrics are those of :data:`MEASURES` with ``_before`` (the plain
        sum of evidence) and ``_after``; ``cllr_min`` and ``cllr_cal`` (the cost of the order of the calibrated ratios,
        and that of their sizes); ``ece_floor``; ``scale`` and ``bias`` (share of folds that use one); ``log10_lower``
        and ``log10_upper`` (bounds of ratios of sources); :data:`CURVES` of the first grouping (std NaN), and with
        families :func:`verdict_rates` of it, for budgets that the verdict's rule decides at.
    """
    smallest = int(np.bincount(prompt_folds).min())
    rows: list[dict[str, object]] = []
    by_budget = {k: held_out_groups(log_posteriors, prompt_folds, k) for k in budgets if k <= smallest}
    fitted = fold_calibrations(by_budget, with_bias, family) if fitted is None else fitted
    calibrated = calibrated_by_fold(by_budget, fitted)
    nearest = nearest_sources(log_posteriors, np.repeat(np.arange(log_posteriors.shape[1]), len(prompt_folds)))
    for place, (k, groups) in enumerate(by_budget.items()):
        n, before, after = groups.of_a_seed, normalised(groups.scores), calibrated[k]
        present = [groups.seed == seed for seed in np.unique(groups.seed)]
        measured = {
            f"{name}_{when}": [measure(scores[one], groups.truth[one]) for one in present]
            for name, measure in MEASURES.items()
            for when, scores in (("before", before), ("after", after))
        }
        trials = [claim_trials(log_likelihood_ratios(after[one]), groups.truth[one]) for one in present]
        best = [likelihood_ratios.pool_adjacent_violators(*pair) for pair in trials]
        least = [ratios.cost() for ratios in best]
        limits = np.array([fit.log10_limits(k) for fit in fitted.values()])
        rows += _summaries(measured, k, n)
        rows += [{"k": k, "std": np.nan, **point} for point in ratio_curves(*trials[0], best[0])]
        costs: dict[str, Sequence[float] | Doubles] = {
            "cllr_min": least,
            "cllr_cal": [likelihood_ratios.cllr(*pair) - cost for pair, cost in zip(trials, least, strict=True)],
            "log10_lower": limits[:, 0],
            "log10_upper": limits[:, 1],
            "ece_floor": [calibration_error_floor(after[one], int(groups.seed[one][0])) for one in present],
            "scale": [fit.scale[place] for fit in fitted.values()],
            "bias": [float((fit.bias != 0).any()) for fit in fitted.values()],
        }
        rows += _summaries(costs, k, n)
        if family is not None and k >= Rule().minimum_traces:
            one = present[0]
            of_source, of_family = (
                np.array([fitted[int(fold)].log10_limits(k, among) for fold in groups.fold[one]])
                for among in (None, len(np.unique(family)))
            )
            rates = verdict_rates(after[one], groups.truth[one], k, family, nearest, of_source, of_family)
            about = {"k": k, "std": np.nan, "n": n}
            rows += [{"metric": f"verdict_{name}", "value": rate, **about} for name, rate in rates.items()]
    return pd.DataFrame(rows)


def _summaries(found: Mapping[str, Sequence[float] | Doubles], k: int, n: int) -> list[dict[str, object]]:
    """Rows of metrics, from the values of each by seed or fold."""
    summaries = {metric: {"value": float(np.mean(each)), "std": float(np.std(each))} for metric, each in found.items()}
    return [{"k": k, "metric": metric, **summary, "n": n} for metric, summary in summaries.items()]


def ratio_curves(true: Doubles, false: Doubles, pooled: likelihood_ratios.PooledRatios) -> list[dict[str, object]]:
    """Points of the Tippett and PAV plots of log ratios (n,), in nats, of true and of false claims.

    Returns metric, level, value, n (trials). ``tippett_true`` and ``tippett_false``: the share (value) of trials whose
        log10 ratio is at least ``level``. ``pav``: the log10 ratio (value) that trials show where ``level`` was stated,
        among the ratios where trials of both kinds lie.
    """
    rows: list[dict[str, object]] = []
    shares = np.r_[0.0, TAILS, 0.5, 1 - np.array(TAILS), 1.0]
    for metric, ratios in (("tippett_true", true), ("tippett_false", false)):
        ordered = np.sort(ratios)
        points = np.unique(ordered[np.minimum((shares * len(ordered)).astype(np.intp), len(ordered) - 1)])
        above = 1 - np.searchsorted(ordered, points) / len(ordered)
        rows += _points(metric, points / LN10, above, len(ordered))
    both = np.isfinite(pooled.at(true))
    if both.any():
        points = np.unique(np.linspace(true[both].min(), true[both].max(), PAV_POINTS))
        rows += _points("pav", points / LN10, pooled.at(points) / LN10, len(true) + len(false))
    return rows


def _points(metric: str, levels: Doubles, values: Doubles, n: int) -> list[dict[str, object]]:
    pairs = zip(levels.tolist(), values.tolist(), strict=True)
    return [{"metric": metric, "level": level, "value": value, "n": n} for level, value in pairs]


def fold_sessions(prompt_folds: Ints, folds: Sequence[int], classes: int, orders: int, seed: int) -> Sessions:
    """Sessions of every source within each of some folds; a (fold, source) is a cluster."""
    shortest = min((prompt_folds == fold).sum() for fold in folds)
    parts = []
    for number, fold in enumerate(folds):
        one = ordered_sessions(grid_rows(classes, len(prompt_folds), prompt_folds == fold), orders, seed + fold)
        parts.append((one.rows[:, :shortest], one.truth, one.cluster + classes * number))
    return Sessions(*map(np.concatenate, zip(*parts, strict=True)))


def stop_frame(
    log_posteriors: Floating,
    prompt_folds: Ints,
    levels: Sequence[float] = STOP_LEVELS,
    budgets: Sequence[int] = BUDGETS,
    orders: int = SESSION_ORDERS,
    with_bias: bool | None = False,
    calibrations: Mapping[int, Calibration] | None = None,
) -> pd.DataFrame:
    """Realised error and length of sessions that stop by three rules, cross-fitted over folds.

    log_posteriors : (C * P, C); prompt_folds : (P,); orders : random orders of the traces of every source and fold.
    Returns columns k (traces of a session at most), metric, rule, level, value (over the sessions of all folds), std
        (over folds), n (sessions). Rules for naming a source: ``plain`` (Wald's threshold on the plain sum),
        ``calibrated`` (on calibrated evidence), ``controlled`` (a fitted :class:`StopRule`); metrics ``stop_error`` and
        ``stop_traces_decided`` (of sessions that stop), ``stop_share`` and ``stop_traces`` (of all). For a claim, by
        the controlled rule: ``claim_false_support`` (the nearest source as the claim), ``claim_false_support_any`` (any
        other), ``claim_false_against``, ``claim_support`` and ``claim_traces``. A metric without sessions has no row.
    """
    classes = log_posteriors.shape[1]
    labels, row_folds = np.repeat(np.arange(classes), len(prompt_folds)), np.tile(prompt_folds, classes)
    smallest = int(np.bincount(prompt_folds).min())
    if calibrations is None:
        by_budget = {k: held_out_groups(log_posteriors, prompt_folds, k) for k in budgets if k <= smallest}
        calibrations = fold_calibrations(by_budget, with_bias)
    found: dict[tuple[str, str, float], list[tuple[float, int]]] = {}
    folds: list[int] = np.unique(prompt_folds).tolist()
    for fold in folds:
        others, calibration = [other for other in folds if other != fold], calibrations[fold]
        nearest = nearest_sources(log_posteriors[row_folds != fold], labels[row_folds != fold])
        train = fold_sessions(prompt_folds, others, classes, orders, GROUPING_SEEDS[0])
        fitted = running_ratios(log_posteriors, train.rows, calibration)
        rules = [fit_stop_rule(fitted, train, nearest, level) for level in levels]
        del fitted
        test = fold_sessions(prompt_folds, [fold], classes, orders, GROUPING_SEEDS[0])
        ratios = running_ratios(log_posteriors, test.rows, calibration)
        plain = running_ratios(log_posteriors, test.rows, None)
        for rule in rules:
            wald = StopRule(rule.level, *[float(np.log((1 - rule.level) / rule.level))] * 3)
            named = (("plain", plain, wald), ("calibrated", ratios, wald), ("controlled", ratios, rule))
            for name, paths, one in named:
                for metric, counted in _named(paths, test, one).items():
                    found.setdefault((metric, name, rule.level), []).append(counted)
            for metric, counted in _claimed(ratios, test, nearest, rule).items():
                found.setdefault((metric, "controlled", rule.level), []).append(counted)
    return pd.DataFrame(
        [
            {"k": smallest, "metric": metric, "rule": rule, "level": level, **pooled(parts)}
            for (metric, rule, level), parts in found.items()
            if any(sessions for _, sessions in parts)
        ]
    )


def pooled(folds: Sequence[tuple[float, int]]) -> dict[str, float]:
    """Mean over the n sessions of all folds, each (sum, sessions), and its std over folds."""
    n = sum(sessions for _, sessions in folds)
    means = [total / sessions for total, sessions in folds if sessions]
    return {"value": float(sum(total for total, _ in folds) / n), "std": float(np.std(means)), "n": n}


def _named(ratios: Doubles, sessions: Sessions, rule: StopRule) -> dict[str, tuple[float, int]]:
    """Sum over sessions and number of sessions, of every metric."""
    at, named = rule.named_at(ratios)
    stopped, n = at > 0, len(at)
    stops = int(stopped.sum())
    return {
        "stop_error": (float((named != sessions.truth)[stopped].sum()), stops),
        "stop_share": (stops, n),
        "stop_traces": (float(np.where(stopped, at, ratios.shape[1]).sum()), n),
        "stop_traces_decided": (float(at[stopped].sum()), stops),
    }


def _claimed(ratios: Doubles, sessions: Sessions, nearest: Ints, rule: StopRule) -> dict[str, tuple[float, int]]:
    """As :func:`_named`; without sessions where the rule can support or refute nothing."""
    n, m = np.arange(len(ratios)), ratios.shape[1]
    supports, refutes = (len(n) if np.isfinite(threshold) else 0 for threshold in (rule.support, rule.against))
    at, verdict = rule.claim_at(ratios[n, :, sessions.truth])
    wrong = rule.claim_at(ratios[n, :, nearest[sessions.truth]])[1]
    passed = np.stack([rule.claim_at(ratios[:, :, c])[1] == 1 for c in range(ratios.shape[2])], axis=1)
    passed[n, sessions.truth] = False
    return {
        "claim_false_support": (float((wrong == 1).sum()), supports),
        "claim_false_support_any": (float(passed.sum() / (ratios.shape[2] - 1)), supports),
        "claim_false_against": (float((verdict == -1).sum()), refutes),
        "claim_support": (float((verdict == 1).sum()), len(n)),
        "claim_traces": (float(np.where(at > 0, at, m).sum()), len(n)),
    }


def validation_arrays(frame: pd.DataFrame) -> dict[str, npt.NDArray[Any]]:
    """Rows of the validation as attachments ``validation.COLUMN``; missing is '' or NaN."""
    rows = frame.reindex(columns=[*TEXTS, *NUMBERS])
    texts = {n: np.array([v if isinstance(v, str) else "" for v in rows[n]], dtype=np.str_) for n in TEXTS}
    numbers = {name: rows[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in NUMBERS}
    return {f"validation.{name}": array for name, array in (texts | numbers).items()}


def verdict_rates(
    log_posteriors: Doubles, truth: Ints, k: int, family: Ints, nearest: Ints, limits: Doubles, family_limits: Doubles
) -> dict[str, float]:
    """Shares of groups by the answer of the rule, as :data:`VERDICTS`.

    The claim is the true source, the other source that its traces are most likely taken for, or none. The test for
    unknown sources and the shift flags are ignored. A family that the nearest source shares with the true one is right.

    log_posteriors : (n, C) calibrated, of groups that the calibration has not seen; truth : (n,); k : traces a group.
    family : (C,); nearest : (C,) of every source the other one that is claimed in its place.
    limits, family_limits : (n, 2) bounds of ratios of sources and of families.
    """
    tally = dict.fromkeys(VERDICTS, 0)
    bounds = np.stack([limits, family_limits], axis=1).tolist()
    for scores, source, within in zip(log_posteriors, truth.tolist(), bounds, strict=True):
        for claim, name in ((source, "true_claim"), (int(nearest[source]), "nearest_claim")):
            answer, _ = _answer(scores, family, k, claim, within)
            answered = "supported" if answer.outcome == "SUPPORTS" else "refuted"
            if answer.level == "source":
                tally[f"{name}_{answered}"] += 1
            elif answer.level == "family" and (claim == source or family[claim] != family[source]):
                tally[f"{name}_family_{answered}"] += 1
            elif answer.level == "family" and answered == "supported":
                tally["nearest_claim_shared_supported"] += 1
        answer, leader = _answer(scores, family, k, None, within)
        if answer.level == "source":
            tally["named_right" if leader == source else "named_wrong"] += 1
        elif answer.level == "family":
            tally["family_right" if family[leader] == family[source] else "family_wrong"] += 1
    return {name: count / len(truth) for name, count in tally.items()}


def _answer(scores: Doubles, family: Ints, k: int, claim: int | None, within: list[list[float]]) -> tuple[Verdict, int]:
    """The rule's answer, and the source that it is about."""
    (low, high), (family_low, family_high) = within
    evidence = gather(scores, family, k, claim, (low, high), (family_low, family_high))
    return decide(evidence), evidence.source
