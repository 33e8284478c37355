"""Calibration against a known temperature, a plain optimiser and slow loops; no tested fold enters its own fit."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import approx_fprime, minimize_scalar

from backend.evidence import accumulate
from backend.inference.calibration import (
    Calibration,
    Groups,
    bias_budget,
    bias_helps,
    calibrated_by_fold,
    fit_calibration,
    fit_scale,
    fit_scale_and_bias,
    held_out_groups,
    normalised,
)
from backend.inference.likelihood_ratios import (
    cllr,
    cllr_claim,
    cllr_multiclass,
    cllr_pairwise,
    log_likelihood_ratios,
    weighed_log_ratio,
)
from backend.inference.validation import calibration_error_floor, calibration_frame, fold_calibrations
from backend.metrics import negative_log_likelihood


def drawn(n: int, classes: int, factor: float, bias: np.ndarray | float = 0.0, seed: int = 0) -> Groups:
    """Scores that become right posteriors by ``factor * scores + bias``, with truths drawn from those posteriors."""
    rng = np.random.default_rng(seed)
    scores = normalised(rng.normal(size=(n, classes)) * 3)
    share = np.exp(normalised(factor * scores + bias))
    truth = (share.cumsum(1) < rng.random((n, 1))).sum(1)
    return Groups(scores, truth, np.arange(n) % 5, np.zeros(n, dtype=np.intp))


def dependent(sources: int = 6, prompts: int = 60, copies: int = 4, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Out-of-fold log-posteriors whose noise is shared by runs of prompts, and the folds of the prompts."""
    rng = np.random.default_rng(seed)
    noise = np.repeat(rng.normal(size=(sources, prompts // copies, sources)), copies, axis=1)
    logits = 1.2 * np.eye(sources)[:, None] + 1.5 * noise
    folds = np.repeat(np.arange(5), prompts // 5)
    return normalised(logits.reshape(-1, sources)), folds


def test_scale_is_the_one_that_made_the_data_and_the_optimisers():
    groups = drawn(8000, 5, 0.4)
    scale = fit_scale(groups.scores, groups.truth)
    assert scale == pytest.approx(0.4, abs=0.02)
    found = minimize_scalar(lambda a: expected_cost(normalised(a * groups.scores), groups), bounds=(0.01, 5))
    assert scale == pytest.approx(found.x, abs=1e-4)


def expected_cost(log_posteriors: np.ndarray, groups: Groups, seeds: int = 1) -> float:
    """Negative log-likelihood where half a group of one seed, and of the average kind, went to its second place."""
    second = np.argsort(groups.scores, axis=1)[:, -2]
    seen, wrong = len(groups.truth) / seeds, 0.5
    costs = [negative_log_likelihood(log_posteriors, to) for to in (groups.truth, second)]
    return (seen * costs[0] + wrong * costs[1]) / (seen + wrong)


@pytest.mark.parametrize("seeds", [1, 3])
def test_groups_without_an_error_bear_odds_of_twice_their_number(seeds):
    scores = np.array([[0.0, -4.0], [-4.0, 0.0]]).repeat(15, axis=0)
    truth = np.arange(2).repeat(15)
    for size in (1, 100):  # where the sum is so bold that the softmax is 0 and 1 as well
        assert np.exp(fit_scale(scores * size, truth, seeds) * 4 * size) == pytest.approx(2 * 30 / seeds)
    scale, bias = fit_scale_and_bias(scores * 100, truth, seeds)
    assert np.exp(scale * 400) == pytest.approx(2 * 30 / seeds, rel=1e-3)
    np.testing.assert_allclose(bias, 0, atol=1e-3)


@pytest.mark.parametrize("spread", [3.0, 6.0, 12.0])
def test_sources_that_are_told_apart_without_an_error_leave_what_is_near_nothing_near_nothing(spread):
    rng = np.random.default_rng(0)
    sources, folds = 6, np.repeat(np.arange(5), 20)
    steps = rng.normal(size=(sources * 100, sources)) + spread * np.repeat(np.eye(sources), 100, axis=0)
    fitted = fit_calibration({k: held_out_groups(normalised(steps), folds, k) for k in (1, 5, 10, 20)})
    assert (fitted.scale <= fitted.scale[0]).all()
    for budget in (5, 10, 20):
        lead = np.exp(fitted.apply(np.eye(sources)[:1], budget))[0]  # a sum that leads by one nat
        assert 1 / sources < lead[0] < 0.7
        sums = normalised(accumulate(normalised(steps), np.arange(budget)[None]))
        held = fitted.apply(sums, budget)
        assert held.argmax() == 0
        assert np.exp(held[0, 0]) > 0.9


def test_no_scale_is_above_that_of_a_single_trace():
    few = Groups(
        np.array([[0.0, -0.1], [-0.1, 0.0]]).repeat(5, 0), np.arange(2).repeat(5), np.arange(10) % 5, np.zeros(10)
    )
    fitted = fit_calibration({1: drawn(400, 2, 0.8), 5: few})
    assert fit_scale(few.scores, few.truth) > 10
    np.testing.assert_array_equal(fitted.scale, fitted.scale[0])
    bold = Calibration(
        np.array([1, 5]), np.array([3.0, 240.0]), np.array([[0.3, -0.3], [120.0, -120.0]]), np.array([50, 10])
    )
    again = Calibration.from_arrays(bold.to_arrays())
    np.testing.assert_array_equal(again.scale, [3.0, 3.0])
    np.testing.assert_allclose(again.per_trace(5)[1], bold.per_trace(5)[1])


def test_bias_is_found_where_there_is_one_and_refused_where_not():
    bias = np.array([1.0, -0.5, 0.0, -0.8, 0.3])
    groups = drawn(3000, 5, 0.8, bias)
    scale, found = fit_scale_and_bias(groups.scores, groups.truth)
    assert scale == pytest.approx(0.8, abs=0.08)
    np.testing.assert_allclose(found, bias - bias.mean(), atol=0.2)
    assert bias_helps(groups)
    assert sum(bias_helps(drawn(60, 5, 0.8, seed=seed)) for seed in range(5)) <= 2  # noise helps now and then


def test_bias_sits_at_the_optimum_of_the_penalised_likelihood():
    groups = drawn(300, 3, 0.7, np.array([0.5, 0.0, -0.5]), seed=2)
    scale, bias = fit_scale_and_bias(groups.scores, groups.truth)

    def loss(at: np.ndarray) -> float:
        fit = expected_cost(normalised(at[0] * groups.scores + at[1:]), groups)
        return fit + (at[1:] ** 2).sum() / (2 * np.log(3) ** 2 * 300)

    np.testing.assert_allclose(approx_fprime(np.r_[scale, bias], loss, 1e-6), 0, atol=1e-3)


def test_parameters_between_and_beyond_the_budgets():
    calibration = Calibration(np.array([1, 4]), np.array([1.0, 0.25]), np.array([[0.0, 0.0], [1.0, -1.0]]), np.ones(2))
    assert calibration.parameters(4)[0] == pytest.approx(0.25)
    scale, bias = calibration.parameters(2)  # half way in log K
    assert scale == pytest.approx(0.5)
    np.testing.assert_allclose(bias, [0.5, -0.5])
    assert calibration.parameters(8)[0] == pytest.approx(0.125)  # twice the traces, each worth half
    with pytest.raises(ValueError, match="budget"):
        calibration.parameters(0)


def test_apply_normalises_and_takes_a_prior():
    calibration = Calibration(np.array([1]), np.array([0.5]), np.zeros((1, 3)), np.array([9]))
    scores, prior = np.array([[0.0, 2.0, 4.0]]), np.log([0.7, 0.2, 0.1])
    plain = np.exp(calibration.apply(scores, 1))
    np.testing.assert_allclose(plain[0], np.exp([0, 1, 2]) / np.exp([0, 1, 2]).sum())
    weighed = np.exp(calibration.apply(scores, 1, prior))
    np.testing.assert_allclose(weighed[0], plain[0] * [0.7, 0.2, 0.1] / (plain[0] @ [0.7, 0.2, 0.1]))


def test_no_ratio_beyond_the_number_of_trials_is_stated():
    calibration = Calibration(np.array([1, 5]), np.ones(2), np.zeros((2, 11)), np.array([999, 99]))
    for budget, groups in ((1, 999), (2, 99), (4, 99), (5, 99), (80, 99)):
        against = -np.log10(groups + 1)
        assert calibration.log10_limits(budget) == pytest.approx((against, np.log10(10 * groups + 1)))
        assert calibration.log10_limits(budget, among=4) == pytest.approx((against, np.log10(3 * groups + 1)))
    assert calibration.log10_limits(1, among=1)[1] == 0


def test_calibration_survives_a_file(tmp_path):
    log_posteriors, folds = dependent()
    fitted = fit_calibration({k: held_out_groups(log_posteriors, folds, k) for k in (1, 5)}, with_bias=True)
    np.savez(tmp_path / "c.npz", **fitted.to_arrays())
    with np.load(tmp_path / "c.npz", allow_pickle=False) as held:
        again = Calibration.from_arrays(held)
    for name in ("budgets", "scale", "bias", "groups"):
        np.testing.assert_array_equal(getattr(again, name), getattr(fitted, name))
    assert fitted.groups.tolist() == [360, 60]
    with pytest.raises(ValueError, match="no budget"):
        fit_calibration({})


def test_groups_are_those_of_the_attribution_table():
    log_posteriors, folds = dependent()
    groups = held_out_groups(log_posteriors, folds, 4)
    assert groups.scores.shape == (3 * 5 * 6 * 3, 6)
    assert set(groups.seed) == {42, 43, 44}
    assert len(held_out_groups(log_posteriors, folds, 1).truth) == 360  # one seed: all would be equal
    np.testing.assert_allclose(np.exp(groups.scores).sum(1), 1)


def test_a_tested_fold_does_not_enter_its_own_calibration():
    log_posteriors, folds = dependent()
    groups = held_out_groups(log_posteriors, folds, 3)
    before = calibrated_by_fold({3: groups}, fold_calibrations({3: groups}))[3]
    truth = np.where(groups.fold == 2, (groups.truth + 1) % 6, groups.truth)
    changed = {3: Groups(groups.scores, truth, groups.fold, groups.seed)}
    after = calibrated_by_fold(changed, fold_calibrations(changed))[3]
    np.testing.assert_array_equal(before[groups.fold == 2], after[groups.fold == 2])
    assert not np.allclose(before[groups.fold == 1], after[groups.fold == 1])


def test_calibration_repairs_dependent_traces():
    log_posteriors, folds = dependent(sources=8, prompts=200)
    frame = calibration_frame(log_posteriors, folds, (1, 10, 500)).set_index(["k", "metric"])["value"]
    assert set(frame.index.get_level_values("k")) == {1, 10}  # 500 do not fit into a fold
    assert frame[10, "ece_after"] < frame[10, "ece_before"]
    assert frame[10, "nll_after"] < frame[10, "nll_before"]
    assert frame[10, "cllr_claim_after"] < frame[10, "cllr_claim_before"]
    assert frame[10, "scale"] < frame[1, "scale"]


def test_floor_is_what_a_perfect_calibration_shows():
    sure = np.log(np.full((50, 2), [1 - 1e-12, 1e-12]))
    assert calibration_error_floor(sure, 0) == pytest.approx(0, abs=1e-9)
    unsure = np.log(np.full((100, 2), [0.6, 0.4]))  # one bin: mean absolute deviation of a binomial share
    assert calibration_error_floor(unsure, 0, draws=400) == pytest.approx(np.sqrt(0.24 / 100 * 2 / np.pi), rel=0.12)


def test_ratios_against_slow_loops():
    rng = np.random.default_rng(1)
    posteriors = rng.dirichlet(np.ones(6), size=20)
    family = np.array([0, 0, 1, 2, 2, 2])
    prior = np.log(rng.dirichlet(np.ones(6)))
    ratios = log_likelihood_ratios(np.log(posteriors))
    wide = [weighed_log_ratio(np.log(posteriors), family == f, np.zeros(6)) for f in range(3)]
    stated = [weighed_log_ratio(np.log(posteriors), family == f, prior) for f in range(3)]
    for i, p in enumerate(posteriors):
        for c in range(6):
            others = [p[o] for o in range(6) if o != c]
            assert ratios[i, c] == pytest.approx(np.log(p[c] / np.mean(others)), abs=1e-9)
        for f in range(3):
            inside, outside = p[family == f].mean(), p[family != f].mean()
            assert wide[f][i] == pytest.approx(np.log(inside / outside), abs=1e-9)
            means = [np.average(p[some], weights=np.exp(prior[some])) for some in (family == f, family != f)]
            assert stated[f][i] == pytest.approx(np.log(means[0] / means[1]), abs=1e-9)


def test_ratios_stay_exact_where_probabilities_round_to_one():
    ratios = log_likelihood_ratios(normalised(np.array([[0.0, -900.0, -901.0]])))
    assert ratios[0, 0] == pytest.approx(900 - np.log1p(np.exp(-1)) + np.log(2))
    assert ratios[0, 1] == pytest.approx(-900 + np.log(2))
    with pytest.raises(ValueError, match="two sources"):
        log_likelihood_ratios(np.zeros((1, 1)))


def test_costs_in_closed_form():
    assert cllr(np.zeros(3), np.zeros(5)) == pytest.approx(1)
    assert cllr(np.full(3, 50.0), np.full(5, -50.0)) == pytest.approx(0, abs=1e-12)
    assert cllr(np.log([3.0]), np.log([1 / 3])) == pytest.approx(np.log2(4 / 3))
    uniform, truth = np.full((8, 4), -np.log(4)), np.arange(8) % 4
    assert cllr_claim(uniform, truth) == pytest.approx(1)
    assert cllr_pairwise(uniform, truth) == pytest.approx(1)
    assert cllr_multiclass(uniform, truth) == pytest.approx(1)


def test_costs_against_slow_loops():
    rng = np.random.default_rng(6)
    posteriors, truth = rng.dirichlet(np.ones(4), size=30), rng.integers(0, 4, size=30)
    truth[:4] = np.arange(4)
    target, other, pairs, by_class = [], [], [], {c: [] for c in range(4)}
    for p, t in zip(posteriors, truth, strict=True):
        by_class[t].append(-np.log(p[t]))
        for c in range(4):
            ratio = p[c] / np.mean([p[o] for o in range(4) if o != c])
            (target if c == t else other).append(np.log2(1 + 1 / ratio) if c == t else np.log2(1 + ratio))
            if c != t:
                pairs.append(np.log2(1 + p[c] / p[t]))
    logs = np.log(posteriors)
    assert cllr_claim(logs, truth) == pytest.approx((np.mean(target) + np.mean(other)) / 2)
    assert cllr_pairwise(logs, truth) == pytest.approx(np.mean(pairs))
    assert cllr_multiclass(logs, truth) == pytest.approx(np.mean([np.mean(v) for v in by_class.values()]) / np.log(4))


def test_scale_of_a_sum_counts_repeated_traces_once():
    """Every trace twice: the sum is twice too bold, and half the factor repairs it."""
    log_posteriors, folds = dependent(copies=1, prompts=100)
    single = held_out_groups(log_posteriors, folds, 5)
    rows = np.arange(len(log_posteriors)).reshape(-1, 5)
    once = fit_scale(normalised(accumulate(log_posteriors, rows)), rows[:, 0] // 100)
    twice = fit_scale(normalised(accumulate(log_posteriors, np.tile(rows, 2))), rows[:, 0] // 100)
    assert twice == pytest.approx(once / 2, rel=1e-4)
    assert single.scores.shape[1] == 6


def test_a_common_shift_of_all_traces_is_taken_out_at_every_budget():
    log_posteriors, folds = dependent(copies=1, prompts=200)
    shift = np.array([4.0, 0.0, -1.0, 0.0, 1.0, 0.0])
    shifted = normalised(log_posteriors + shift)
    plain = calibration_frame(shifted, folds, (1, 5, 20), with_bias=False).set_index(["k", "metric"])["value"]
    mended = calibration_frame(shifted, folds, (1, 5, 20), with_bias=None).set_index(["k", "metric"])["value"]
    ideal = calibration_frame(log_posteriors, folds, (1, 5, 20)).set_index(["k", "metric"])["value"]
    for k in (1, 5, 20):
        assert mended[k, "bias"] == 1
        assert mended[k, "nll_after"] < plain[k, "nll_after"] - 0.1
        assert mended[k, "accuracy_after"] > plain[k, "accuracy_after"]
        assert mended[k, "nll_after"] < ideal[k, "nll_after"] + 0.05


def test_bias_is_fitted_where_groups_are_many_and_counts_k_times():
    log_posteriors, folds = dependent(copies=1, prompts=200)
    by_budget = {k: held_out_groups(log_posteriors, folds, k) for k in (1, 5, 20)}
    assert bias_budget(by_budget) == 5  # 40 groups a source; 10 of K = 20
    fitted = fit_calibration(by_budget, with_bias=True)
    per_trace = fitted.bias / (fitted.scale * fitted.budgets)[:, None]
    np.testing.assert_allclose(per_trace, np.broadcast_to(per_trace[0], (3, 6)))
    scale, bias = fit_scale_and_bias(by_budget[5].scores, by_budget[5].truth, seeds=3)
    np.testing.assert_allclose(fitted.bias[1] / fitted.scale[1], bias / scale)
    assert fitted.scale[1] == pytest.approx(scale, rel=0.02)
