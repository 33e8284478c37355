"""The rule, branch by branch and at its borders, and the numbers it is given."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from backend.inference.calibration import Calibration, normalised
from backend.inference.verdict import (
    OTHER_TRAFFIC,
    SHORT,
    UNCALIBRATED,
    UNLIKE,
    Evidence,
    Rule,
    Verdict,
    decide,
    gather,
    shift_flags,
    verbal,
)

BASE = Evidence(
    traces=20,
    claimed=True,
    source=3,
    family=1,
    log10_lr=3.2,
    family_log10_lr=4.0,
    share=0.96,
    family_share=0.98,
    posterior=0.97,
    family_posterior=0.99,
    p_unknown=0.4,
)
NAN = float("nan")
WIDE = ((-9.0, 9.0), (-9.0, 9.0))
NARROW = ((-2.7, 4.7), (-2.7, 3.1))
"""Limits of a source and of a family."""


FEW = "fewer than 5 traces"
FITS_NONE = "no enrolled source fits the traces"
BETWEEN = "the evidence is not strong enough either way"
NEAR = "other enrolled sources fit nearly as well"


@pytest.mark.parametrize(
    ("changes", "outcome", "level"),
    [
        ({}, "SUPPORTS", "source"),
        ({"log10_lr": 2.0}, "SUPPORTS", "source"),
        ({"log10_lr": 1.99}, "SUPPORTS", "family"),
        ({"share": 0.95}, "SUPPORTS", "source"),
        ({"share": 0.94}, "SUPPORTS", "family"),
        ({"share": 0.94, "posterior": 0.99}, "SUPPORTS", "family"),
        ({"share": 0.94, "family_share": 0.95}, "SUPPORTS", "family"),
        ({"share": 0.94, "family_log10_lr": 2.0}, "SUPPORTS", "family"),
        ({"posterior": 0.5, "family_posterior": 0.5}, "SUPPORTS", "source"),
        ({"claimed": False}, "SUPPORTS", "source"),
        ({"claimed": False, "posterior": 0.95}, "SUPPORTS", "source"),
        ({"claimed": False, "share": 0.94}, "SUPPORTS", "family"),
        ({"claimed": False, "posterior": 0.94}, "SUPPORTS", "family"),
        ({"claimed": False, "posterior": 0.94, "family_posterior": 0.95}, "SUPPORTS", "family"),
        ({"traces": 5}, "SUPPORTS", "source"),
        ({"flags": ("budget",)}, "SUPPORTS", "source"),
        ({"p_unknown": 0.051}, "SUPPORTS", "source"),
        ({"p_unknown": NAN}, "SUPPORTS", "source"),
        ({"log10_lr": -2.0}, "AGAINST", "source"),
        ({"log10_lr": -1.99, "family_log10_lr": -2.0}, "AGAINST", "family"),
        ({"p_unknown": 0.05}, "UNKNOWN", "source"),
        ({"p_unknown": 0.05, "log10_lr": -9.0}, "UNKNOWN", "source"),
        ({"p_unknown": 0.05, "flags": ("domain",)}, "UNKNOWN", "source"),
        ({"p_unknown": 0.05, "flags": ("budget",)}, "UNKNOWN", "source"),
        ({"p_unknown": 0.05, "calibrated": False}, "UNKNOWN", "source"),
        ({"p_unknown": 0.05, "claimed": False}, "UNKNOWN", "source"),
    ],
)
def test_every_answer_at_its_borders(changes, outcome, level):
    verdict = decide(dataclasses.replace(BASE, **changes))
    assert (verdict.outcome, verdict.level, verdict.validated) == (outcome, level, True)
    if outcome == "UNKNOWN":
        assert verdict.reason == FITS_NONE
    else:
        assert verdict.reason == f"the traces point {'to' if outcome == 'SUPPORTS' else 'away from'} this {level}"
    evidence = dataclasses.replace(BASE, **changes)
    assert verdict.log10_ratio == (evidence.family_log10_lr if level == "family" else evidence.log10_lr)


@pytest.mark.parametrize(
    ("changes", "reason", "validated"),
    [
        ({"traces": 4}, FEW, True),
        ({"traces": 4, "flags": ("budget",)}, FEW, True),
        ({"traces": 4, "p_unknown": 0.051}, FEW, True),
        ({"traces": 4, "p_unknown": 0.05}, FEW, False),
        ({"traces": 4, "flags": ("short",)}, FEW, False),
        ({"traces": 4, "flags": ("domain",)}, FEW, False),
        ({"traces": 4, "calibrated": False}, FEW, False),
        *(({"traces": 4, "traffic": kind}, FEW, False) for kind in OTHER_TRAFFIC),
        *(({"traffic": kind}, words, False) for kind, words in OTHER_TRAFFIC.items()),
        *(({"traffic": kind, "p_unknown": 0.001}, words, False) for kind, words in OTHER_TRAFFIC.items()),
        *(({"traffic": kind, "log10_lr": -9.0}, words, False) for kind, words in OTHER_TRAFFIC.items()),
        ({"traffic": "other topic", "flags": ("short", "domain")}, OTHER_TRAFFIC["other topic"], False),
        ({"flags": ("short",)}, SHORT, False),
        ({"flags": ("short", "domain"), "p_unknown": 0.001}, SHORT, False),
        ({"flags": ("domain",)}, UNLIKE, False),
        ({"flags": ("domain",), "p_unknown": NAN}, UNLIKE, False),
        ({"flags": ("domain",), "calibrated": False}, UNLIKE, False),
        ({"calibrated": False}, UNCALIBRATED, False),
        ({"calibrated": False, "log10_lr": -9.0}, UNCALIBRATED, False),
        ({"share": 0.94, "family_share": 0.94}, NEAR, True),
        ({"share": 0.94, "family_log10_lr": 1.99}, NEAR, True),
        ({"share": 0.94, "family_log10_lr": NAN}, NEAR, True),
        ({"claimed": False, "posterior": 0.94, "family_posterior": 0.94}, NEAR, True),
        ({"log10_lr": 1.99, "family_log10_lr": 1.99}, BETWEEN, True),
        ({"log10_lr": 1.99, "family_log10_lr": NAN}, BETWEEN, True),
        ({"log10_lr": -1.99, "family_log10_lr": -1.99}, BETWEEN, True),
        ({"claimed": False, "log10_lr": -3.0, "family_log10_lr": -3.0}, BETWEEN, True),
    ],
)
def test_nothing_is_decided_for_the_first_reason_that_applies(changes, reason, validated):
    verdict = decide(dataclasses.replace(BASE, **changes))
    assert verdict == Verdict("INCONCLUSIVE", "none", reason, changes.get("log10_lr", BASE.log10_lr), validated)


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (1.9, "no support either way"),
        (1 / 1.9, "no support either way"),
        (2.1, "weak support for the named source"),
        (9.9, "weak support for the named source"),
        (10.1, "moderate support for the named source"),
        (101, "moderately strong support for the named source"),
        (1 / 1001, "strong support for the alternative"),
        (10_001, "very strong support for the named source"),
        (1e7, "extremely strong support for the named source"),
        (np.inf, "extremely strong support for the named source"),
    ],
)
def test_verbal_scale(ratio, words):
    assert verbal(float(np.log10(ratio))) == words


def test_words_of_a_family_name_families():
    assert verbal(2.5, "family") == "moderately strong support for the family of the named source"
    assert verbal(-2.5, "family") == "moderately strong support for the other families"
    assert verbal(0.0, "family") == "no support either way"


def test_no_number_has_no_words():
    with pytest.raises(ValueError, match="not a number"):
        verbal(NAN)


def test_own_thresholds():
    assert decide(BASE, Rule(log10_lr=5)).outcome == "INCONCLUSIVE"
    assert decide(BASE, Rule(minimum_traces=21)).outcome == "INCONCLUSIVE"
    assert decide(BASE, Rule(unknown_level=0.5)).outcome == "UNKNOWN"


def test_gather_by_hand():
    posterior, family = np.array([0.50, 0.30, 0.15, 0.05]), np.array([7, 7, 2, 5])
    evidence = dataclasses.replace(gather(np.log(posterior), family, 10, 1, *WIDE), p_unknown=0.3)
    assert evidence.claimed and evidence.source == 1 and evidence.family == 7
    assert evidence.log10_lr == pytest.approx(np.log10(0.30 / (0.70 / 3)))
    assert evidence.family_log10_lr == pytest.approx(np.log10((0.80 / 2) / (0.20 / 2)))
    assert (evidence.share, evidence.family_share) == (pytest.approx(0.30), pytest.approx(0.80))
    assert evidence.posterior == pytest.approx(0.30)
    assert evidence.family_posterior == pytest.approx(0.80)
    leader = gather(np.log(posterior), family, 10, None, *WIDE)
    assert (leader.claimed, leader.source) == (False, 0)
    assert np.isnan(leader.p_unknown)


def test_a_prior_weighs_the_alternatives_and_posterior_odds_are_prior_odds_times_the_ratio():
    log_posterior, family = np.log([0.5, 0.3, 0.2]), np.array([0, 0, 1])
    prior = np.array([0.1, 0.1, 0.8])
    stated = gather(log_posterior, family, 10, 0, *WIDE, log_prior=np.log(prior))
    assert stated.log10_lr == pytest.approx(np.log10(0.5 / ((0.1 * 0.3 + 0.8 * 0.2) / 0.9)))
    assert stated.posterior == pytest.approx(0.05 / 0.24)
    assert stated.posterior / (1 - stated.posterior) == pytest.approx(10**stated.log10_lr * 0.1 / 0.9)
    odds = stated.family_posterior / (1 - stated.family_posterior)
    assert odds == pytest.approx(10**stated.family_log10_lr * 0.2 / 0.8)
    assert (stated.share, stated.family_share) == (pytest.approx(0.5), pytest.approx(0.8))
    # What the prior says of the named source itself is not evidence.
    bold = gather(log_posterior, family, 10, 0, *WIDE, log_prior=np.log([0.9, 0.05, 0.05]))
    assert bold.log10_lr == pytest.approx(gather(log_posterior, family, 10, 0, *WIDE).log10_lr)
    leader = gather(log_posterior, family, 10, None, *WIDE, log_prior=np.log([0.1, 0.1, 0.8]))
    assert leader.source == 2


def test_a_source_that_a_sibling_beats_is_not_supported_however_many_others_there_are():
    sources, family = 165, np.r_[0, 0, np.arange(1, 164)]
    shares = np.full(sources, 1e-6)
    shares[:2] = 0.4, 0.6
    log_posterior = np.log(shares / shares.sum())
    evidence = dataclasses.replace(gather(log_posterior, family, 20, 0, *WIDE), p_unknown=0.5)
    assert evidence.log10_lr > 2
    verdict = decide(evidence)
    assert (verdict.outcome, verdict.level) == ("SUPPORTS", "family")
    verdict = decide(dataclasses.replace(gather(log_posterior, np.arange(sources), 20, 0, *WIDE), p_unknown=0.5))
    assert (verdict.outcome, verdict.reason) == ("INCONCLUSIVE", "other enrolled sources fit nearly as well")


def test_ratios_stay_within_what_validation_bears():
    sure = normalised(np.array([[0.0, -400.0, -500.0]]))[0]
    family = np.array([0, 0, 1])
    assert gather(sure, family, 10, 0, *NARROW).log10_lr == 4.7
    assert gather(sure, family, 10, 2, *NARROW).log10_lr == -2.7
    assert gather(sure, family, 10, 0, *NARROW).family_log10_lr == 3.1
    assert gather(sure[::-1], family, 10, 0, *NARROW).family_log10_lr == -2.7
    assert np.isnan(gather(sure, family, 10, 2, *NARROW).family_log10_lr)  # nobody else in its family
    assert np.isnan(gather(sure, np.zeros(3, dtype=np.intp), 10, 0, *NARROW).family_log10_lr)


def test_a_family_is_supported_only_at_odds_that_trials_of_families_bear():
    """Eight sources of two families: 40 groups are 280 trials of a false source, and 40 of a false family."""
    calibration = Calibration(np.array([10]), np.ones(1), np.zeros((1, 8)), np.array([40]))
    family = np.array([0, 0, 1, 1, 1, 1, 1, 1])
    sure = np.log(np.array([0.5, 0.5, *[1e-9] * 6]) / (1 + 6e-9))
    limits = calibration.log10_limits(10)
    assert decide(gather(sure, family, 10, 0, limits, limits)).level == "family"  # as it was
    bounded = gather(sure, family, 10, 0, limits, calibration.log10_limits(10, 2))
    assert bounded.family_log10_lr == pytest.approx(np.log10(41))
    assert decide(bounded).outcome == "INCONCLUSIVE"
    many = calibration.log10_limits(10, 4)
    family = np.array([0, 0, 1, 1, 2, 2, 3, 3])
    verdict = decide(gather(sure, family, 10, 0, limits, many))
    assert (verdict.outcome, verdict.level) == ("SUPPORTS", "family")


def test_shift_flags():
    rule = Rule()
    assert shift_flags(200, 0.5, 20, 100, rule) == ()
    assert shift_flags(31.9, 0.01, 101, 100, rule) == ("short", "domain", "budget")
    assert shift_flags(32, NAN, 100, 100, rule) == ()
