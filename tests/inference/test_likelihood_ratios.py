"""Evidence of an audit against plain loops: ratios, posteriors, orders, leave-one-out, families, the rule."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.attribution.decision import FittedStatistics, find, stated_prior
from backend.attribution.report import results_of
from backend.attribution.scoring import Scored
from backend.enrolment.enrolment import Enrolment
from backend.errors import AtlasError
from backend.evidence import accumulate
from backend.inference.calibration import Calibration
from backend.inference.domain_shift import UNCHECKED, Traffic
from backend.inference.likelihood_ratios import (
    family_answer,
    leave_one_out,
    log10_against_others,
    log10_ratios,
    log_likelihoods,
    order_spread,
    posterior_under,
    printed_budgets,
    running_scores,
)
from backend.inference.verdict import Rule
from backend.methods.ensemble import Head
from backend.methods.probe import LinearProbe

PRIOR = np.log(np.array([0.5, 0.2, 0.2, 0.1]))


def rows(n: int, classes: int = 4, seed: int = 0) -> np.ndarray:
    values = np.random.default_rng(seed).normal(0, 1.5, (n, classes))
    return values - np.log(np.exp(values).sum(1, keepdims=True))


def enrolment(classes: int = 4) -> Enrolment:
    probe = LinearProbe(
        np.zeros(4, np.float32),
        np.ones(4, np.float32),
        np.zeros((4, classes), np.float32),
        np.zeros(classes, np.float32),
    )
    return Enrolment(
        name="four",
        reader="reader-paper/none/ur",
        proxy="none",
        view="ur",
        block="dc-ac",
        sources=("a1", "a2", "b1", "c1")[:classes],
        families=("a", "a", "b", "c")[:classes],
        heads=(Head(probe, (1,)),),
        log_prior=PRIOR[:classes],
        prompts=np.empty(0, np.uint64),
        folds=np.empty(0, np.int16),
    )


def scored(log_posteriors: np.ndarray, **more: Any) -> Scored:
    n = len(log_posteriors)
    return Scored(
        log_posteriors.astype(np.float32),
        np.full(n, 9),
        (None,) * n,
        np.zeros(4),
        None,
        True,
        0.1,
        "none, float32, cpu",
        **{"traffic": Traffic("like", 0.5, n)} | more,
    )


def test_running_scores_are_those_of_the_evaluation() -> None:
    given_rows = rows(7)
    running = running_scores(given_rows, PRIOR)
    for k in range(1, 8):
        assert np.allclose(running[k - 1], accumulate(given_rows, np.arange(k)[None], PRIOR)[0])


def test_ratios_and_posteriors_by_hand() -> None:
    given_rows = rows(5)
    likelihood = np.array([math.prod(math.exp(r[c]) / math.exp(PRIOR[c]) for r in given_rows) for c in range(4)])
    likelihoods = log_likelihoods(running_scores(given_rows, PRIOR)[-1], PRIOR)
    for c in range(4):
        assert log10_ratios(likelihoods, 1)[c] == pytest.approx(math.log10(likelihood[1] / likelihood[c]))
    stated = np.log(np.array([0.1, 0.3, 0.4, 0.2]))
    joint = likelihood * np.exp(stated)
    assert np.allclose(np.exp(posterior_under(likelihoods, stated)), joint / joint.sum())
    others = [0, 2, 3]
    mixture = sum(likelihood[c] * np.exp(stated)[c] for c in others) / sum(np.exp(stated)[c] for c in others)
    assert log10_against_others(likelihoods, 1, stated) == pytest.approx(math.log10(likelihood[1] / mixture))
    odds = np.exp(posterior_under(likelihoods, stated))[1]
    assert math.log10(odds / (1 - odds) / (0.3 / 0.7)) == pytest.approx(
        float(log10_against_others(likelihoods, 1, stated))
    )


def test_orders_by_a_plain_loop() -> None:
    given_rows = rows(13, seed=3)
    stated = np.log(np.array([0.1, 0.2, 0.3, 0.4]))
    spread = order_spread(given_rows, PRIOR, 2, stated, orders=30, seed=7)
    rng = np.random.default_rng(7)
    margins, leads = [], []
    for _ in range(30):
        steps = (given_rows - PRIOR)[rng.permutation(13)]
        sums = np.cumsum(steps, axis=0)[spread.budgets - 1]
        mixture = (np.exp(sums[:, [0, 1, 3]]) @ [0.1, 0.2, 0.4]) / 0.7
        margins.append(np.log10(np.exp(sums[:, 2]) / mixture))
        leads.append(sums.argmax(1) == 2)
    assert spread.budgets[0] == 1
    assert spread.budgets[-1] == 13
    assert np.allclose(spread.low, np.quantile(margins, 0.05, axis=0))
    assert np.allclose(spread.high, np.quantile(margins, 0.95, axis=0))
    assert np.allclose(spread.leads, np.mean(leads, axis=0))
    whole = log10_against_others(log_likelihoods(running_scores(given_rows, PRIOR)[-1], PRIOR), 2, stated)
    assert spread.high[-1] == pytest.approx(float(whole)), "every order ends where the line does"
    assert spread.low[-1] == pytest.approx(spread.high[-1])
    assert order_spread(rows(1), PRIOR, 0, stated, orders=5).budgets.tolist() == [1]


def test_many_traces_take_fewer_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backend.inference.likelihood_ratios.WORK", 400_000)
    spread = order_spread(np.zeros((2_000, 4), np.float32), PRIOR, 0, PRIOR, orders=200)
    assert spread.orders == 50
    assert len(spread.budgets) <= 60


def test_leave_one_out_by_a_plain_loop() -> None:
    given_rows = rows(9, seed=1)
    found = leave_one_out(given_rows, PRIOR, 0)
    steps = given_rows - PRIOR
    assert found.rival == 1 + int(steps.sum(0)[1:].argmax())
    for i in range(9):
        rest = np.delete(steps, i, 0).sum(0)
        assert found.without[i] == pytest.approx((rest[0] - rest[1:].max()) / math.log(10))
        assert found.leader_without[i] == rest.argmax()
        assert found.log10_ratio[i] == pytest.approx((steps[i, 0] - steps[i, found.rival]) / math.log(10))


def test_families_and_siblings() -> None:
    names, families = ("a1", "a2", "b1", "c1"), ("a", "a", "b", "c")
    answer = family_answer(np.log([0.50, 0.47, 0.02, 0.01]), names, families)
    assert answer.families == ("a", "b", "c")
    assert answer.probabilities[0] == pytest.approx(0.97)
    assert answer.siblings == ("a1", "a2")
    assert family_answer(np.log([0.96, 0.02, 0.01, 0.01]), names, families).siblings == ()
    assert family_answer(np.log([0.40, 0.20, 0.30, 0.10]), names, families).siblings == ()


@pytest.mark.parametrize("score", [math.nan, -math.inf])
def test_a_trace_without_a_finite_score_is_refused_by_its_number(score: float) -> None:
    values = rows(5)
    values[3, 1] = score
    with pytest.raises(AtlasError, match="score of trace 4 is not a finite number"):
        Scored(values, np.full(5, 9), (None,) * 5, np.zeros(8), None, True, 1.0, "test")


def test_a_claim_a_wrong_claim_and_none() -> None:
    clear = scored(np.log(np.tile([0.02, 0.9, 0.04, 0.04], (10, 1))))
    trusted = FittedStatistics(calibrate=lambda scores, k, prior: posterior_under(scores, prior))
    right, wrong, none = (
        find(clear, enrolment(), claimed, companions=trusted, orders=20) for claimed in ("a2", "b1", None)
    )
    assert [found.verdict.outcome for found in (right, wrong, none)] == ["SUPPORTS", "AGAINST", "SUPPORTS"]
    assert (right.subject, wrong.subject, none.subject, none.claimed) == (1, 2, 1, None)
    assert wrong.leader == wrong.rival == 1
    assert "a2 scores highest" in wrong.statements.sentence
    assert "prove" not in right.statements.sentence + wrong.statements.sentence
    assert right.unknown_p is right.stop is right.flags is right.drift is None
    assert np.exp(right.log_posterior).sum() == pytest.approx(1)
    plain = find(clear, enrolment(), "a2", orders=20)
    assert plain.verdict.outcome == "INCONCLUSIVE"
    assert "not calibrated" in plain.statements.sentence
    assert plain.running[-1, 1] == pytest.approx(plain.log10_others)
    unchecked = find(replace(clear, traffic=UNCHECKED), enrolment(), "a2", companions=trusted, orders=20)
    assert (unchecked.verdict.outcome, unchecked.verdict.validated) == ("INCONCLUSIVE", False)
    assert unchecked.log10_others == right.log10_others
    with pytest.raises(AtlasError, match="'zz' is not enrolled"):
        find(clear, enrolment(), "zz")
    with pytest.raises(AtlasError, match="No trace"):
        find(scored(np.empty((0, 4))), enrolment())


def test_companions_are_plugged_in() -> None:
    clear = scored(np.log(np.tile([0.02, 0.9, 0.04, 0.04], (10, 1))))
    companions = FittedStatistics(
        calibrate=lambda scores, k, prior: posterior_under(scores / k, prior),
        log10_bounds=lambda k: (-1.0, 1.5),
        stop=lambda log_posteriors, claimed: {"stopped_at": 3, "claimed": claimed},
        flags=lambda s: ("budget",) if len(s.tokens) == 10 else ("short",),
    )
    found = find(clear, enrolment(), "a2", companions=companions, orders=20)
    assert found.calibrated
    assert found.log10_others <= 1.5
    assert found.verdict.outcome == "INCONCLUSIVE"
    assert found.stop is not None and (found.stop["stopped_at"], found.stop["claimed"]) == (3, 1)
    assert found.flags == ("budget",)
    ruled = replace(companions, rule=Rule(log10_lr=0.5, share=0.8), family_log10_bounds=lambda k: (-1.0, 0.7))
    source = find(clear, enrolment(), "a2", companions=replace(ruled, rule=Rule(log10_lr=0.5, share=0.6)), orders=20)
    assert (source.verdict.outcome, source.verdict.level) == ("SUPPORTS", "source")
    even = replace(clear, log_posteriors=np.log(np.tile([0.4, 0.5, 0.05, 0.05], (10, 1)).astype(np.float32)))
    family = find(even, enrolment(), "a2", companions=ruled, orders=20)
    assert (family.verdict.outcome, family.verdict.level) == ("SUPPORTS", "family")
    assert family.log10_others == family.verdict.log10_ratio <= 0.7
    assert "the family a" in family.statements.sentence
    unknown = find(clear, enrolment(), "a2", companions=FittedStatistics(unknown_p=lambda s: 0.01), orders=20)
    assert unknown.verdict.outcome == "UNKNOWN"
    assert "none of the enrolled" in unknown.statements.sentence
    short = find(clear, enrolment(), "a2", companions=replace(companions, flags=lambda s: ("short",)), orders=20)
    assert (short.verdict.outcome, short.verdict.validated) == ("INCONCLUSIVE", False)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 30), st.integers(0, 999), st.floats(0.05, 3.0), st.booleans())
def test_every_number_is_about_the_calibrated_leader(n: int, seed: int, scale: float, stated: bool) -> None:
    """A bias a source, or a prior, can turn the order of plain sums: no part of the answer follows those then."""
    rng = np.random.default_rng(seed)
    given_rows, bias = rows(n, seed=seed), rng.normal(0, 2 * n, 4)
    fitted = Calibration(np.array([n]), np.array([scale]), bias[None], np.array([1_000]))
    companions = FittedStatistics(calibrate=fitted.apply, per_trace=fitted.per_trace, log10_bounds=fitted.log10_limits)
    prior = stated_prior(enrolment(), {"b1": 20.0, "a1": 1.0}) if stated else None
    found = find(scored(given_rows), enrolment(), prior=prior, companions=companions, orders=20)
    weighed = scale * (given_rows.astype(np.float64).sum(0) - n * PRIOR) + bias + (0.0 if prior is None else prior)
    assert found.leader == found.subject == found.log_posterior.argmax() == weighed.argmax()
    assert found.running[-1, 3] == found.leader
    if found.verdict.level != "family":
        np.testing.assert_allclose(found.running[-1, 1], found.log10_others)
    np.testing.assert_allclose(found.running[-1, 2], np.exp(found.log_posterior[found.subject]))
    np.testing.assert_allclose(found.spread.high[-1], found.running[-1, 1])
    family = f"the family {enrolment().families[found.leader]}"
    assert (
        family if found.verdict.level == "family" else enrolment().sources[found.leader]
    ) in found.statements.sentence or found.verdict.outcome == "INCONCLUSIVE"
    odds = found.log_posterior - (0.0 if prior is None else prior)
    bounded = np.clip((odds[found.subject] - odds) / math.log(10), *fitted.log10_limits(n))
    np.testing.assert_allclose(found.log10_ratios, bounded)
    plain = (given_rows.astype(np.float64) - PRIOR + found.bias).sum(0)
    margin = (plain[found.subject] - plain[found.rival]) / math.log(10)
    assert found.contributions.log10_ratio.sum() == pytest.approx(margin, abs=1e-6)
    for i in range(n):
        rest = np.delete(given_rows - PRIOR + bias / (scale * n), i, 0).sum(0)
        assert found.contributions.leader_without[i] == (rest + (0.0 if prior is None else prior / scale)).argmax()
    if not stated:
        assert found.log10_ratios.min() == 0.0
        assert found.log10_others >= 0.0


def test_a_bias_that_turns_the_order() -> None:
    joint = np.log([0.45, 0.35, 0.1, 0.1]) + PRIOR
    near = scored(np.tile(joint - np.log(np.exp(joint).sum()), (8, 1)))
    bias = np.array([-4.0, 4.0, 0.0, 0.0])
    fitted = Calibration(np.array([8]), np.array([1.0]), bias[None], np.array([1_000]))
    companions = FittedStatistics(calibrate=fitted.apply, per_trace=fitted.per_trace, log10_bounds=fitted.log10_limits)
    plain, turned = find(near, enrolment(), orders=20), find(near, enrolment(), companions=companions, orders=20)
    assert (plain.leader, turned.leader, turned.rival) == (0, 1, 0)
    assert "a2" in turned.statements.sentence and "a1" not in turned.statements.sentence
    results = results_of(near, enrolment(), turned)
    assert (
        [row["source"] for row in results["candidates"]][:2] == ["a2", "a1"] == [results["subject"], results["rival"]]
    )
    weighed = {row["source"]: row["score"] + 8 * row["bias"] for row in results["candidates"]}
    assert max(weighed, key=weighed.__getitem__) == results["leader"]
    assert results["log10_ratio_others"] > 0
    assert results["leave_one_out"]["leader_changes"] == 0
    assert {row["leader"] for row in results["running"]} == {"a2"}


def test_priors() -> None:
    assert np.allclose(np.exp(stated_prior(enrolment())), 0.25)
    assert np.allclose(np.exp(stated_prior(enrolment(), {"a1": 6, "b1": 2})), [0.5, 1 / 6, 1 / 6, 1 / 6])
    for wrong in ({"zz": 1.0}, {"a1": 0.0}, {"a1": float("nan")}, {"a1": -1.0}, {"a1": 10**400}):
        with pytest.raises(AtlasError):
            stated_prior(enrolment(), wrong)
    assert np.exp(stated_prior(enrolment(), {"a1": 1e12, "b1": 1e-290})).min() > 0
    for small in (1e-320, 1e-300):  # as a share 0, and one that loses digits when it is written
        with pytest.raises(AtlasError, match="nobody could verify"):
            stated_prior(enrolment(), {"a1": 1e12, "b1": small})


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 40), st.integers(0, 99))
def test_an_order_changes_nothing_at_the_end(n: int, seed: int) -> None:
    given_rows = rows(n, seed=seed)
    shuffled = np.random.default_rng(seed).permutation(given_rows)
    one, other = (find(scored(part), enrolment(), "a1", orders=20) for part in (given_rows, shuffled))
    assert one.log10_others == pytest.approx(other.log10_others, abs=1e-4)
    assert one.leader == other.leader


def test_every_budget_is_printed_while_they_are_few():
    assert printed_budgets(12, 60).tolist() == list(range(1, 13))
    many = printed_budgets(5_000, 60)
    assert (many[0], many[-1], len(many) <= 60) == (1, 5_000, True)
    assert (np.diff(many) > 0).all()
