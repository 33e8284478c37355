"""How often the rule is right: counted by hand on few groups, and against the formula of the rule on many."""

from __future__ import annotations

import numpy as np
import pytest

from backend.inference.calibration import WITH_BIAS, normalised
from backend.inference.validation import VERDICTS, calibration_frame, verdict_rates

FAMILY = np.array([0, 0, 1, 2])
NEAREST = np.array([1, 0, 0, 0])
WIDE = (-9.0, 9.0)


def groups(*probabilities: tuple[float, ...]) -> np.ndarray:
    return normalised(np.log(np.array(probabilities)))


def rates(
    scores: np.ndarray,
    truth: list[int],
    k: int = 10,
    limits: tuple[float, float] = WIDE,
    family_limits: tuple[float, float] | None = None,
) -> dict[str, float]:
    sources, families = (np.tile(some, (len(scores), 1)) for some in (limits, family_limits or limits))
    return verdict_rates(scores, np.array(truth), k, FAMILY, NEAREST, sources, families)


def test_few_groups_counted_by_hand() -> None:
    scores = groups(
        (0.997, 0.001, 0.001, 0.001),  # of 0: supported, its nearest refuted, named rightly
        (0.997, 0.001, 0.001, 0.001),  # of 1: refuted, its nearest (0) supported, named wrongly
        (0.600, 0.397, 0.001, 0.002),  # of 1: of the claims none, and the family rightly
        (0.600, 0.397, 0.001, 0.002),  # of 3: refuted; the nearest (0) is not, and the family wrongly
    )
    found = rates(scores, [0, 1, 1, 3])
    assert tuple(found) == tuple(VERDICTS)
    assert found == {
        "true_claim_supported": 0.25,
        "true_claim_refuted": 0.5,
        "nearest_claim_supported": 0.25,
        "nearest_claim_refuted": 0.25,
        "named_right": 0.25,
        "named_wrong": 0.25,
        "family_right": 0.25,
        "family_wrong": 0.25,
        "true_claim_family_supported": 0.25,
        "true_claim_family_refuted": 0.0,
        "nearest_claim_family_supported": 0.25,
        "nearest_claim_family_refuted": 0.0,
        "nearest_claim_shared_supported": 0.25,  # of the third, whose nearest is a sibling
    }


def test_a_false_claim_that_ends_at_its_family_is_a_false_support() -> None:
    torn, away = (0.600, 0.397, 0.001, 0.002), (0.004, 0.0001, 0.500, 0.4959)
    found = rates(groups(torn, torn, away, away), [2, 1, 0, 3])
    assert found["nearest_claim_supported"] == 0
    assert found["nearest_claim_family_supported"] == 0.25  # of 2: the family of 0 is another one
    assert found["true_claim_family_supported"] == 0.25  # of 1, whose nearest is a sibling: its own family
    assert found["true_claim_family_refuted"] == found["nearest_claim_family_refuted"] == 0.25  # with 0 as the claim
    narrow = rates(groups(torn, torn, away, away), [2, 1, 0, 3], family_limits=(-1.9, 1.9))
    assert not any(rate for name, rate in narrow.items() if "family" in name)
    assert narrow["true_claim_refuted"] == found["true_claim_refuted"]


def test_what_validation_cannot_bear_decides_nothing() -> None:
    scores = groups((0.997, 0.001, 0.001, 0.001))
    assert set(rates(scores, [0], limits=(-1.9, 1.9)).values()) == {0.0}
    assert set(rates(scores, [0], k=4).values()) == {0.0}  # too few traces


def test_many_groups_follow_the_formula() -> None:
    rng = np.random.default_rng(1)
    scores = normalised(4 * rng.normal(size=(500, 4)))
    truth = rng.integers(0, 4, 500)
    found = rates(scores, truth.tolist())
    share = np.exp(scores)
    ratio = np.log10(share / (1 - share)) + np.log10(3)
    own, near = np.arange(500), NEAREST[truth]
    supports, against = (ratio >= 2) & (share >= 0.95), ratio <= -2
    leader = share.argmax(1)
    assert found["true_claim_supported"] == pytest.approx(supports[own, truth].mean())
    assert found["true_claim_refuted"] == pytest.approx(against[own, truth].mean())
    assert found["nearest_claim_supported"] == pytest.approx(supports[own, near].mean())
    assert found["nearest_claim_refuted"] == pytest.approx(against[own, near].mean())
    assert found["named_right"] == pytest.approx((supports[own, leader] & (leader == truth)).mean())
    assert found["named_wrong"] == pytest.approx((supports[own, leader] & (leader != truth)).mean())


def test_the_validation_of_a_calibration_says_what_its_verdicts_are_worth() -> None:
    rng = np.random.default_rng(2)
    prompts, truth = 40, np.repeat(np.arange(4), 40)
    log_posteriors = normalised(rng.normal(size=(160, 4)) + 2.5 * np.eye(4)[truth]).astype(np.float32)
    folds = np.arange(prompts) % 5
    frame = calibration_frame(log_posteriors, folds, (1, 8), with_bias=WITH_BIAS, family=FAMILY)
    told = frame[frame["metric"].str.startswith("verdict_")]
    assert set(told["k"]) == {8} and set(told["metric"]) == {f"verdict_{name}" for name in VERDICTS}
    assert told["std"].isna().all() and set(told["n"]) == {20}
    value = told.set_index("metric")["value"]
    assert value["verdict_nearest_claim_supported"] == 0 and value["verdict_named_wrong"] == 0
    bare = calibration_frame(log_posteriors, folds, (1, 8), with_bias=WITH_BIAS)
    assert not bare["metric"].str.startswith("verdict_").any()
