"""Empirical bounds and pooled ratios against lir, the library of the Netherlands Forensic Institute, and slow loops."""

from __future__ import annotations

import sys
import types
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from backend.inference.calibration import Calibration, fit_calibration, held_out_groups, normalised
from backend.inference.likelihood_ratios import (
    LN10,
    claim_trials,
    cllr,
    empirical_bounds,
    family_log_ratios,
    log_likelihood_ratios,
    pool_adjacent_violators,
)
from backend.inference.validation import CURVES, calibration_frame, fold_calibrations, ratio_curves

FAMILY = np.array([0, 0, 1, 1, 2, 3])
RATIOS = st.one_of(
    st.floats(-12, 12), st.integers(-400, 400).map(lambda i: i / 100), st.sampled_from([-np.inf, np.inf])
)
STEPS = st.integers(-500, 500).map(lambda i: i / 100)


def trials(values: st.SearchStrategy[float]) -> st.SearchStrategy[np.ndarray]:
    return arrays(np.float64, st.integers(1, 40), elements=values)


@pytest.fixture(scope="module")
def lir() -> types.SimpleNamespace:
    """ELUB and costs of lir, which draws with matplotlib; nothing is drawn here, so that its absence is no matter."""
    with pytest.MonkeyPatch.context() as patch:
        try:
            import matplotlib.pyplot  # noqa: F401
        except ImportError:
            pyplot = types.ModuleType("matplotlib.pyplot")
            pyplot.Axes = object  # type: ignore[attr-defined]
            package = types.ModuleType("matplotlib")
            package.pyplot = pyplot  # type: ignore[attr-defined]
            patch.setitem(sys.modules, "matplotlib", package)
            patch.setitem(sys.modules, "matplotlib.pyplot", pyplot)
        from lir.algorithms.bayeserror import elub
        from lir.data.models import LLRData
        from lir.metrics import cllr_cal, cllr_min

    def joined(true: np.ndarray, false: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.r_[true, false], np.r_[np.ones(len(true), dtype=int), np.zeros(len(false), dtype=int)]

    def costs(true: np.ndarray, false: np.ndarray) -> tuple[float, float]:
        ratios, labels = joined(true, false)
        data = LLRData(features=ratios[:, None], labels=labels)
        return cllr_min(data), cllr_cal(data)

    return types.SimpleNamespace(bounds=lambda *kinds: elub(*joined(*kinds)), costs=costs)


def evidence(prompts: int = 60, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Out-of-fold log-posteriors of six sources in four families, siblings alike, and the folds of the prompts."""
    rng = np.random.default_rng(seed)
    means = np.eye(6) + 0.6 * (FAMILY[:, None] == FAMILY)
    logits = 1.1 * np.repeat(means, prompts, axis=0) + 1.3 * rng.normal(size=(6 * prompts, 6))
    return normalised(logits), np.arange(prompts) % 5


@settings(deadline=None)
@given(true=trials(RATIOS), false=trials(RATIOS))
def test_bounds_are_those_of_lir(lir, true, false):
    lower, upper = empirical_bounds(true, false)
    assert (lower, upper) == pytest.approx(lir.bounds(true, false), abs=1e-9)
    assert lower <= 0 <= upper
    assert (lower, upper) == (round(lower, 2), round(upper, 2))


@pytest.mark.parametrize("budget", [1, 5])
@pytest.mark.parametrize("seed", range(4))
def test_bounds_of_held_out_groups_are_those_of_lir(lir, budget, seed):
    log_posteriors, folds = evidence(seed=seed)
    groups = held_out_groups(log_posteriors, folds, budget, seeds=(42,))
    for ratios, truth in (
        (log_likelihood_ratios(groups.scores), groups.truth),
        (family_log_ratios(groups.scores, FAMILY), FAMILY[groups.truth]),
    ):
        kinds = claim_trials(ratios / LN10, truth)
        assert (len(kinds[0]), len(kinds[1])) == (len(truth), len(truth) * (ratios.shape[1] - 1))
        found = empirical_bounds(*kinds)
        assert found == pytest.approx(lir.bounds(*kinds), abs=1e-9)
        assert -np.log10(len(truth) + 1) - 0.01 < found[0] < 0 < found[1] < np.log10(len(kinds[1]) + 1) + 0.01


def test_traces_that_were_tried_again_count_once():
    rng = np.random.default_rng(0)
    true, false = rng.normal(2, 1.5, 60), rng.normal(-2, 1.5, 300)
    once, again = empirical_bounds(true, false), (np.tile(true, 3), np.tile(false, 3))
    assert empirical_bounds(*again, repeats=3) == once
    lower, upper = empirical_bounds(*again)
    assert lower < once[0] and once[1] < upper


def test_bounds_of_ratios_that_mislead_leave_nothing():
    assert empirical_bounds(np.full(30, -2.0), np.full(90, 2.0)) == (0.0, 0.0)
    assert empirical_bounds(np.array([3.0]), np.array([-3.0]))[1] == pytest.approx(0.0, abs=0.31)
    with pytest.raises(ValueError, match="both kinds"):
        empirical_bounds(np.array([1.0]), np.empty(0))


@settings(deadline=None)
@given(true=trials(STEPS), false=trials(STEPS))
def test_least_cost_is_that_of_lir(lir, true, false):
    least, excess = lir.costs(true, false)
    cost = pool_adjacent_violators(true * LN10, false * LN10).cost()
    assert cost == pytest.approx(least, abs=1e-9)
    assert cllr(true * LN10, false * LN10) - cost == pytest.approx(excess, abs=1e-9)
    assert -1e-12 < cost <= 1 + 1e-12


@given(true=trials(STEPS), false=trials(STEPS))
def test_pooled_ratios_keep_the_order_and_count_every_trial(true, false):
    pooled = pool_adjacent_violators(true, false)
    assert (np.diff(pooled.start) > 0).all() and (np.diff(pooled.log_ratio) >= -1e-12).all()
    assert (pooled.true.sum(), pooled.false.sum()) == (len(true), len(false))
    for block, (start, end) in enumerate(zip(pooled.start, [*pooled.start[1:], np.inf], strict=True)):
        inside = [int(((kind >= start) & (kind < end)).sum()) for kind in (true, false)]
        assert inside == [pooled.true[block], pooled.false[block]]
    shown = pooled.at(np.sort(true))
    assert (shown[1:] >= shown[:-1] - 1e-12).all()
    assert pooled.cost() == pytest.approx(cllr(pooled.at(true), pooled.at(false)))


def test_ratios_of_families_against_slow_loops():
    posteriors = np.random.default_rng(2).dirichlet(np.ones(6), size=20)
    ratios = family_log_ratios(np.log(posteriors), FAMILY)
    assert ratios.shape == (20, 4)
    for i, p in enumerate(posteriors):
        for f in range(4):
            assert ratios[i, f] == pytest.approx(np.log(p[f == FAMILY].mean() / p[f != FAMILY].mean()), abs=1e-9)
    sure = family_log_ratios(normalised(np.array([[0.0, -1.0, -900.0]])), np.array([0, 0, 1]))
    assert sure[0] == pytest.approx([900 + np.log1p(np.exp(-1)) - np.log(2), -900 - np.log1p(np.exp(-1)) + np.log(2)])
    with pytest.raises(ValueError, match="two families"):
        family_log_ratios(np.log(posteriors), np.zeros(6, dtype=np.intp))


@pytest.mark.parametrize("with_bias", [False, None])
def test_ratios_behind_a_bound_are_by_fits_that_saw_none_of_their_fold(lir, with_bias):
    log_posteriors, folds = evidence()
    by_budget = {k: held_out_groups(log_posteriors, folds, k, seeds=(42,)) for k in (1, 5)}
    fitted = fit_calibration(by_budget, with_bias, FAMILY)
    for place, (k, groups) in enumerate(by_budget.items()):
        kinds = [[[], []], [[], []]]
        for fold in range(5):
            fit = fit_calibration({k: g.where(g.fold != fold) for k, g in by_budget.items()}, with_bias)
            tested = groups.where(groups.fold == fold)
            calibrated = fit.apply(tested.scores, k)
            for kind, ratios, truth in (
                (kinds[0], log_likelihood_ratios(calibrated), tested.truth),
                (kinds[1], family_log_ratios(calibrated, FAMILY), FAMILY[tested.truth]),
            ):
                for some, more in zip(kind, claim_trials(ratios / LN10, truth), strict=True):
                    some.append(more)
        expected = [lir.bounds(*map(np.concatenate, kind)) for kind in kinds]
        np.testing.assert_allclose([fitted.bounds[place], fitted.family_bounds[place]], expected, atol=1e-12)


def test_folds_that_are_fitted_together_are_those_that_are_fitted_alone():
    log_posteriors, folds = evidence()
    by_budget = {k: held_out_groups(log_posteriors, folds, k) for k in (1, 5)}
    for fold, together in fold_calibrations(by_budget, None, FAMILY).items():
        alone = fit_calibration({k: g.where(g.fold != fold) for k, g in by_budget.items()}, None, FAMILY)
        for name, array in alone.to_arrays().items():
            np.testing.assert_array_equal(together.to_arrays()[name], array)


def test_limits_are_the_tighter_of_trials_and_bounds():
    bounds = np.array([[-1.5, 2.0], [-1.0, 3.0], [-2.0, 9.0]])
    fitted = Calibration(np.array([1, 5, 10]), np.ones(3), np.zeros((3, 11)), np.array([999, 99, 9]), bounds)
    beyond = (-1.0, np.log10(91))
    expected = {1: (-1.5, 2.0), 2: (-1.0, 2.0), 5: (-1.0, np.log10(991)), 7: beyond, 10: beyond, 80: beyond}
    for budget, limits in expected.items():
        assert fitted.log10_limits(budget) == pytest.approx(limits), budget
    assert fitted.log10_limits(5, among=4) == pytest.approx((-2, np.log10(3 * 99 + 1)))  # families have no bounds
    wide = replace(fitted, family_bounds=bounds / 2)
    assert wide.log10_limits(5, among=4) == pytest.approx((-0.5, 1.5))
    assert wide.log10_limits(5) == fitted.log10_limits(5)


def test_bounds_survive_a_file_and_a_file_may_lack_them():
    log_posteriors, folds = evidence()
    fitted = fit_calibration({k: held_out_groups(log_posteriors, folds, k) for k in (1, 5)}, family=FAMILY)
    arrays = fitted.to_arrays()
    again = Calibration.from_arrays(arrays)
    np.testing.assert_array_equal(again.bounds, fitted.bounds)
    np.testing.assert_array_equal(again.family_bounds, fitted.family_bounds)
    assert "family_bounds" not in fit_calibration({1: held_out_groups(log_posteriors, folds, 1)}).to_arrays()
    older = Calibration.from_arrays({name: arrays[name] for name in ("budgets", "scale", "bias", "groups")})
    assert older.log10_limits(5) == pytest.approx((-np.log10(61), np.log10(301)))
    assert abs(fitted.log10_limits(5)[0]) < abs(older.log10_limits(5)[0])
    for broken in (arrays["bounds"][:1], -arrays["bounds"], np.full((2, 2), np.nan)):
        with pytest.raises(ValueError):
            Calibration.from_arrays({**arrays, "bounds": broken})


def test_few_groups_one_fold_or_one_family_have_bounds_too():
    log_posteriors, _ = evidence(prompts=5)
    for folds in (np.arange(5), np.arange(5) % 2, np.zeros(5, dtype=np.intp)):
        fitted = fit_calibration({1: held_out_groups(log_posteriors, folds, 1)}, None, np.zeros(6, dtype=np.intp))
        (lower, upper), (family_lower, family_upper) = fitted.bounds[0], fitted.family_bounds[0]
        assert lower <= 0 <= upper and family_lower == family_upper == 0


def test_plots_are_few_points_of_the_validated_ratios():
    log_posteriors, folds = evidence()
    frame = calibration_frame(log_posteriors, folds, (1, 5), family=FAMILY)
    curves = frame[frame["metric"].isin(CURVES)]
    assert set(curves["k"]) == {1, 5} and set(curves["metric"]) == set(CURVES)
    assert curves.groupby("k").size().max() <= 60 and not curves[["level", "value"]].isna().any().any()
    assert np.isfinite(curves[["level", "value"]]).all().all()
    assert frame.loc[~frame["metric"].isin(CURVES), "level"].isna().all()
    assert curves.set_index(["k", "metric"])["n"].to_dict() == {
        (k, metric): n for k, groups in ((1, 360), (5, 60))
        for metric, n in zip(CURVES, (groups, 5 * groups, 6 * groups), strict=True)
    }  # fmt: skip
    for (_, metric), rows in curves.groupby(["k", "metric"]):
        steps = np.diff(rows.sort_values("level")["value"])
        assert (steps >= -1e-12).all() if metric == "pav" else (steps <= 0).all()
    value = frame.set_index(["k", "metric"])["value"]
    for k in (1, 5):
        assert value[k, "cllr_min"] + value[k, "cllr_cal"] == pytest.approx(value[k, "cllr_claim_after"])
        assert 0 < value[k, "cllr_min"] < value[k, "cllr_claim_after"]
        assert value[k, "log10_lower"] < 0 < value[k, "log10_upper"]


def test_points_of_the_plots_against_slow_loops():
    rng = np.random.default_rng(4)
    true, false = rng.normal(2, 2, 80), rng.normal(-2, 2, 400).round(1)
    pooled = pool_adjacent_violators(true, false)
    points = ratio_curves(true, false, pooled)
    for metric, ratios in (("tippett_true", true), ("tippett_false", false)):
        of_metric = [point for point in points if point["metric"] == metric]
        for point in of_metric:
            assert point["value"] == pytest.approx(np.mean(ratios >= point["level"] * LN10 - 1e-9))
        assert of_metric[0]["value"] == 1 and of_metric[-1]["level"] == pytest.approx(ratios.max() / LN10)
    apart = ratio_curves(np.array([1.0, 2.0]), np.array([-1.0]), pool_adjacent_violators(np.ones(2), -np.ones(1)))
    assert not [point for point in apart if point["metric"] == "pav"]
