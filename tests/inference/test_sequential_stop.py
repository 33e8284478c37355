"""Running evidence against prefixes one by one, crossings by hand, and the realised error of sessions that stop."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from backend.evidence import accumulate
from backend.inference.calibration import Calibration, normalised
from backend.inference.likelihood_ratios import log_likelihood_ratios
from backend.inference.sequential_stop import (
    CLAIM_THRESHOLDS,
    THRESHOLDS,
    Sessions,
    StopRule,
    first_crossing,
    fit_stop_rule,
    leader_log_odds,
    nearest_sources,
    ordered_sessions,
    running_ratios,
    stop_arrays,
    upper_bound,
)
from backend.inference.validation import fold_sessions, pooled, stop_frame


def repeated(sources: int, traces: int, copies: int, seed: int) -> np.ndarray:
    """Exact log-posteriors (S * m, S) of Gaussian observations, every one seen several times in a row."""
    rng = np.random.default_rng(seed)
    seen = np.repeat(np.arange(sources), traces // copies)[:, None] * 0.7 + rng.normal(
        size=(sources * traces // copies, 1)
    )
    single = normalised(-0.5 * (seen - 0.7 * np.arange(sources)) ** 2)
    return np.repeat(single, copies, axis=0)


def test_running_ratios_equal_prefixes_one_by_one():
    rng = np.random.default_rng(0)
    log_posteriors = normalised(rng.normal(size=(30, 4)))
    rows = rng.permutation(30).reshape(3, 10)
    calibration = Calibration(np.array([1, 10]), np.array([1.2, 0.4]), rng.normal(size=(2, 4)), np.ones(2))
    fast = running_ratios(log_posteriors, rows, calibration)
    plain = running_ratios(log_posteriors, rows, None)
    for k in range(1, 11):
        scores = accumulate(log_posteriors, rows[:, :k])
        np.testing.assert_allclose(fast[:, k - 1], log_likelihood_ratios(calibration.apply(scores, k)), atol=1e-8)
        np.testing.assert_allclose(plain[:, k - 1], log_likelihood_ratios(normalised(scores)), atol=1e-8)


def test_leader_odds_are_those_of_its_posterior():
    log_posteriors = normalised(np.random.default_rng(1).normal(size=(5, 3)))
    odds, leader = leader_log_odds(log_likelihood_ratios(log_posteriors)[None])
    best = np.exp(log_posteriors).max(1)
    np.testing.assert_allclose(odds[0], np.log(best / (1 - best)))
    np.testing.assert_array_equal(leader[0], log_posteriors.argmax(1))


def test_crossings_by_hand():
    path = np.array([[0.0, 1.0, 3.0, 1.0], [0.0, 0.5, 0.2, 0.1], [2.0, 0.0, 0.0, 0.0]])
    np.testing.assert_array_equal(first_crossing(path, 1.0), [2, 0, 1])
    rule = StopRule(0.05, 1.0, support=2.0, against=1.5)
    claims = np.array([[0.0, 2.0, -3.0], [-1.0, -1.5, 5.0], [0.0, 1.9, -1.4]])
    at, verdict = rule.claim_at(claims)
    np.testing.assert_array_equal(at, [2, 2, 0])
    np.testing.assert_array_equal(verdict, [1, -1, 0])


def test_a_source_is_named_when_it_leads_by_enough():
    ratios = np.zeros((1, 3, 2))
    ratios[0, :, 1] = [0.5, 1.0, 4.0]
    ratios[0, :, 0] = -ratios[0, :, 1]
    at, named = StopRule(0.05, 1.0, 9, 9).named_at(ratios)
    assert (at[0], named[0]) == (2, 1)
    assert StopRule(0.05, np.inf, 9, 9).named_at(ratios)[0][0] == 0


@pytest.mark.parametrize(("errors", "trials"), [(0, 59), (3, 100), (10, 40)])
def test_bound_is_clopper_and_pearsons(errors, trials):
    exact = binomtest(errors, trials).proportion_ci(0.90, "exact").high  # one side of it holds with 95 %
    assert upper_bound(errors, trials) == pytest.approx(exact)
    assert upper_bound(trials, trials) == 1
    assert upper_bound(0, 0) == 1


def test_sessions_permute_the_rows_of_their_source():
    rows = np.arange(20).reshape(4, 5)
    sessions = ordered_sessions(rows, 3, seed=1)
    assert sessions.rows.shape == (12, 5)
    for row, truth in zip(sessions.rows, sessions.truth, strict=True):
        assert sorted(row) == rows[truth].tolist()
    folds = fold_sessions(np.array([0, 0, 1, 1, 1]), [0, 1], 4, 2, seed=0)
    assert folds.rows.shape == (16, 2)  # cut to the shorter fold
    assert len(np.unique(folds.cluster)) == 8


def test_nearest_source_is_the_one_with_the_most_mass():
    posteriors = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3], [0.5, 0.1, 0.4]])
    np.testing.assert_array_equal(nearest_sources(np.log(posteriors), np.arange(3)), [1, 2, 0])


def test_dependent_traces_break_walds_promise_and_the_controlled_rule_keeps_it():
    level, sources, traces = 0.1, 5, 48

    def sessions(seed: int, count: int) -> tuple[np.ndarray, Sessions]:
        tables = [repeated(sources, traces, 4, seed + i) for i in range(count)]
        rows = np.arange(count * sources * traces).reshape(-1, traces)
        which = np.arange(count * sources)
        one = Sessions(rows, which % sources, which)
        return running_ratios(np.concatenate(tables), rows, None), one

    train, known = sessions(0, 60)
    nearest = np.array([1, 2, 3, 4, 3])
    rule = fit_stop_rule(train, known, nearest, level)
    test, truth = sessions(1000, 60)
    wald = StopRule(level, float(np.log((1 - level) / level)), 0, 0)

    def error(one: StopRule) -> tuple[float, float]:
        at, named = one.named_at(test)
        return float((named != truth.truth)[at > 0].mean()), float(np.where(at > 0, at, traces).mean())

    broken, soon = error(wald)
    kept, later = error(rule)
    assert broken > level + 0.05
    assert kept <= level + 2 * np.sqrt(level * (1 - level) / len(test))
    assert soon < later < traces
    n = np.arange(len(test))
    genuine = rule.claim_at(test[n, :, truth.truth])[1]
    impostor = rule.claim_at(test[n, :, nearest[truth.truth]])[1]
    assert (genuine == -1).mean() <= level + 0.04
    assert (impostor == 1).mean() <= level + 0.04
    assert (genuine == 1).mean() > 0.5


def test_a_level_that_cannot_be_shown_is_never_claimed():
    ratios = np.full((20, 3, 2), 30.0)
    ratios[:, :, 1] = -30.0
    sessions = Sessions(np.zeros((20, 3), dtype=np.intp), np.zeros(20, dtype=np.intp), np.arange(20))
    rule = fit_stop_rule(ratios, sessions, np.array([1, 0]), 0.01)  # 20 sessions without an error bear 14 % at most
    assert np.isinf([rule.name, rule.support, rule.against]).all()
    lenient = fit_stop_rule(ratios, sessions, np.array([1, 0]), 0.2)
    assert (lenient.name, lenient.traces) == (THRESHOLDS[-1], 3)
    with pytest.raises(ValueError, match="level"):
        fit_stop_rule(ratios, sessions, np.array([1, 0]), 1.0)


def test_evidence_for_a_claim_never_refutes_it():
    """Where evidence is weak and right, a refutation at ratios above 1 would keep the level as well."""
    rng = np.random.default_rng(3)
    ratios = np.stack([one := rng.uniform(0.2, 0.6, size=(400, 3)), -one], axis=2)
    sessions = Sessions(np.zeros((400, 3), dtype=np.intp), np.zeros(400, dtype=np.intp), np.arange(400))
    rule = fit_stop_rule(ratios, sessions, np.array([1, 0]), 0.1)
    assert (rule.support, rule.against) == (0.0, 0.0)
    assert (CLAIM_THRESHOLDS[0], CLAIM_THRESHOLDS[-1]) == (20.0, 0.0)
    kept = {"thresholds": np.array([[0.1, -1.0, 6.2, -0.4], [0.05, 3.0, np.inf, 0.6]])}
    lenient = StopRule.from_arrays(kept, 0.1)
    assert lenient == StopRule(0.1, -1.0, 6.2, 0.0)
    assert lenient.claim_at(np.array([[0.2, 0.3]]))[1] == 0
    assert lenient.claim_at(np.array([[0.2, -0.1]]))[1] == -1
    assert StopRule.from_arrays(kept, 0.05) == StopRule(0.05, 3.0, np.inf, 0.6)
    assert kept["thresholds"][0, 3] == -0.4


def test_rule_survives_a_file(tmp_path):
    rule = StopRule(0.05, 2.5, np.inf, 1.25)
    np.savez(tmp_path / "s.npz", **rule.to_arrays())
    with np.load(tmp_path / "s.npz", allow_pickle=False) as held:
        assert StopRule.from_arrays(held) == rule
    strict = StopRule(0.01, 5.0, np.inf, 4.0)
    several = stop_arrays([strict, rule])
    assert (StopRule.from_arrays(several, 0.01), StopRule.from_arrays(several, 0.05)) == (strict, rule)
    with pytest.raises(KeyError, match="level"):
        StopRule.from_arrays(several)
    with pytest.raises(KeyError, match=r"0\.2"):
        StopRule.from_arrays(several, 0.2)
    assert set(several) == {"thresholds"}
    long = stop_arrays([StopRule(0.01, 5.0, np.inf, 4.0, traces=40), StopRule(0.05, 2.5, np.inf, 1.25, traces=40)])
    assert StopRule.from_arrays(long, 0.05) == StopRule(0.05, 2.5, np.inf, 1.25, traces=40)
    with pytest.raises(ValueError, match="at least one trace"):
        StopRule.from_arrays(long | {"traces": np.array(0)}, 0.05)


def test_frame_holds_the_three_rules():
    log_posteriors = repeated(6, 100, 2, seed=4)
    frame = stop_frame(log_posteriors, np.repeat(np.arange(5), 20), levels=(0.2,), budgets=(1, 5, 20), orders=2)
    value = frame.set_index(["metric", "rule"])["value"]
    assert set(frame["k"]) == {20}
    assert set(frame["level"]) == {0.2}
    n = frame.set_index(["metric", "rule"])["n"]
    among_stopped = ["stop_error", "stop_traces_decided"]
    assert set(n.drop(index=among_stopped, level="metric")) <= {5 * 6 * 2, 4 * 6 * 2}  # a threshold may be infinite
    for rule in ("plain", "calibrated", "controlled"):
        for metric in among_stopped:
            assert n[metric, rule] == round(value["stop_share", rule] * 5 * 6 * 2)
    for rule in ("plain", "calibrated", "controlled"):
        assert 0 <= value["stop_error", rule] <= 1
        assert value["stop_traces_decided", rule] <= 20
    assert value["stop_traces", "plain"] <= value["stop_traces", "controlled"]
    assert value["claim_false_support_any", "controlled"] <= value["claim_false_support", "controlled"] + 0.1


def test_rates_are_of_the_sessions_that_stop_in_all_folds_together():
    assert pooled([(0, 0), (3, 10), (1, 30)]) == {"value": 0.1, "std": pytest.approx(0.4 / 3), "n": 40}


def test_what_no_session_could_have_done_has_no_rate():
    log_posteriors = repeated(3, 50, 1, seed=4)
    # Three sources in four folds are twelve clusters, which bear no error rate below 22 %.
    frame = stop_frame(log_posteriors, np.repeat(np.arange(5), 10), levels=(0.01,), budgets=(1, 5), orders=1)
    held = frame[frame["rule"] == "controlled"].set_index("metric")["value"]
    assert held["stop_share"] == 0
    assert held["claim_support"] == 0
    assert held["stop_traces"] == 10
    never = {
        "stop_error",
        "stop_traces_decided",
        "claim_false_support",
        "claim_false_support_any",
        "claim_false_against",
    }
    assert not never & set(held.index)
    assert "stop_error" in set(frame.loc[frame["rule"] == "plain", "metric"])
