"""Evidence of a watch: exact ranks, false alarms over all looks on null streams, and changes that are seen."""

from __future__ import annotations

import numpy as np
import pytest
import ville
from scipy.stats import binom, kstest
from ville.evalues import combine, p_to_e

from backend.inference.e_process import (
    change_before,
    first_alarm,
    log_capital,
    log_evidence,
    oddness,
    smoothed_ranks,
    uniforms,
)


def test_ranks_are_those_by_the_definition() -> None:
    rng = np.random.default_rng(0)
    reference, scores, ties = rng.integers(0, 6, 30), rng.integers(0, 6, 40), 1 - rng.random(40)
    ranks = smoothed_ranks(reference, scores, ties)
    for place, score in enumerate(scores):
        known = np.concatenate([reference, scores[: place + 1]])
        expected = ((known > score).sum() + ties[place] * (known == score).sum()) / len(known)
        assert ranks[place] == pytest.approx(expected)


def test_ranks_of_exchangeable_scores_are_uniform_and_independent() -> None:
    rng = np.random.default_rng(1)
    ranks = np.array(
        [
            smoothed_ranks(rng.normal(size=20).round(1), rng.normal(size=30).round(1), 1 - rng.random(30))
            for _ in range(800)
        ]
    )
    assert kstest(ranks.ravel(), "uniform").pvalue > 0.01
    correlations = np.corrcoef(ranks.T)[np.triu_indices(30, 1)]
    assert abs(correlations.mean()) < 0.005  # they share the reference all the same


def test_false_alarms_over_all_looks_stay_below_the_stated_rate() -> None:
    rng, streams = np.random.default_rng(2), 1_000
    capital = log_capital(
        np.array(
            [smoothed_ranks(rng.normal(size=50), rng.normal(size=400), 1 - rng.random(400)) for _ in range(streams)]
        )
    )
    for rate in (0.2, 0.05, 0.01):
        alarms = int((capital.max(1) >= -np.log(rate)).sum())
        assert binom.cdf(alarms - 1, streams, rate) < 0.999, (rate, alarms)


def test_a_bet_on_a_uniform_rank_is_fair() -> None:
    ranks = (np.arange(1_000_000) + 0.5)[:, None] / 1_000_000
    for bets in ((1.0,), (0.8, 0.6), (0.4,)):
        assert np.exp(log_capital(ranks, bets)).mean() == pytest.approx(1, abs=0.005)


def test_bets_are_the_e_values_of_another_library() -> None:
    ranks, bets = 1 - np.random.default_rng(4).random(60), (0.2, 0.5, 0.9)
    capital = log_capital(ranks, bets, (0.0,))
    for count in (1, 7, 60):
        single = [combine(p_to_e(ranks[:count], kappa=kappa), "product") for kappa in bets]
        assert capital[count - 1] == pytest.approx(np.log(combine(single, "mean")))


def test_another_betting_test_sees_the_same_change() -> None:
    for seed in range(10):
        rng = np.random.default_rng(seed)
        ranks = smoothed_ranks(rng.normal(size=200), rng.normal(size=150) + 1.5, 1 - rng.random(150))
        other = ville.BettingTest(0.5, alternative="less", alpha=0.01).fit(ranks)
        assert first_alarm(log_capital(ranks), 0.01) and first_alarm(other.log_e_values_, 0.01)
        unchanged = smoothed_ranks(rng.normal(size=200), rng.normal(size=150), 1 - rng.random(150))
        other = ville.BettingTest(0.5, alternative="less", alpha=0.001).fit(unchanged)
        assert not first_alarm(log_capital(unchanged), 0.001) and not first_alarm(other.log_e_values_, 0.001)


@pytest.mark.parametrize(("after", "share", "most"), [(0, 1.0, 40), (300, 1.0, 60), (300, 0.3, 400)])
def test_a_change_is_seen(after: int, share: float, most: int) -> None:
    delays = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        scores = rng.normal(size=after + 600)
        scores[after:] += 2.5 * (rng.random(600) < share)
        log_e = log_evidence(rng.normal(size=200), scores, seed)
        at = first_alarm(log_e, 0.01)
        delays.append(at - after if at > after else 10_000)
        if at:
            assert change_before(log_e, at) < at
    assert np.median(delays) <= most, delays


def test_evidence_does_not_change_when_more_traces_come() -> None:
    rng = np.random.default_rng(3)
    reference, scores = rng.normal(size=40), rng.normal(size=60)
    whole = log_evidence(reference, scores, 7)
    assert np.array_equal(log_evidence(reference, scores[:25], 7), whole[:25])
    assert np.array_equal(uniforms(7, 60)[:25], uniforms(7, 25))
    assert not np.array_equal(log_evidence(reference, np.zeros(60), 7), log_evidence(reference, np.zeros(60), 8))


def test_the_change_before_an_alarm_is_where_the_evidence_stood_lowest() -> None:
    log_e = np.array([0.1, -0.5, -0.9, 1.0, 3.0, 5.0])
    assert first_alarm(log_e, 0.01) == 6
    assert change_before(log_e, 6) == 3
    assert first_alarm(log_e, 0.001) == 0
    assert change_before(np.array([1.0, 5.0]), 2) == 0


def test_oddness_weighs_the_others_against_the_claimed_source() -> None:
    log_prior = np.log([0.5, 0.25, 0.25])
    log_posteriors = np.log([[0.5, 0.25, 0.25], [0.8, 0.1, 0.1], [0.1, 0.8, 0.1]])
    odd = oddness(log_posteriors, log_prior, 0)
    assert odd[0] == pytest.approx(0)
    assert odd[1] < 0 < odd[2]
    assert odd[2] == pytest.approx(np.log((3.2 + 0.4) / 2 / 0.2))
