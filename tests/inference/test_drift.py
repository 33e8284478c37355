"""The paired test of drift on sources that answered the same prompts twice."""

from __future__ import annotations

import numpy as np
import pytest

from backend.inference.drift import corrected_words, p_text, p_words, repeated_frame
from backend.statistics import FLIPS

PROMPTS, WIDTH = 30, 6


def test_two_draws_of_a_source_alarm_at_the_level_and_other_sources_always() -> None:
    rng = np.random.default_rng(5)
    prompt = np.tile(5 * rng.standard_normal((PROMPTS, WIDTH)), (4, 1))
    source = np.repeat(4 * rng.standard_normal((4, WIDTH)), PROMPTS, axis=0)
    draws = [prompt + source + rng.standard_normal((4 * PROMPTS, WIDTH)) for _ in range(2)]
    frame = repeated_frame(*draws, np.array([0, 0, 1, 2]), "fingerprints", windows=(10, 20, 50), pairs=60)
    shares = frame.set_index(["scenario", "k"])["value"]
    assert set(frame["k"]) == {10, 20}  # there are 30 prompts
    assert (shares["same"] <= 0.15).all()  # the 99.9 % quantile of 60 tests at a level of 5 %
    assert (shares["sibling"] == 1).all() and (shares["family"] == 1).all()
    assert set(frame["statistic"]) == {"energy-paired"} and set(frame["n"]) == {60}


@pytest.mark.parametrize(
    ("value", "text", "words"),
    [
        (0.25, ".250", "p = .250"),
        (0.001, ".001", "p = .001"),
        (0.0001, "< .001", "p < .001"),
        (0.9994, ".999", "p = .999"),
        (1.0, "> .999", "p > .999"),
        (float("nan"), "–", "p = –"),
    ],
)
def test_p_values_are_never_nought_or_one(value: float, text: str, words: str) -> None:
    assert (p_text(value), p_words(value)) == (text, words)


def test_a_corrected_p_at_the_floor_of_the_flips_is_a_bound() -> None:
    floor = 1 / (1 + FLIPS)
    assert corrected_words(floor, 66 * floor) == "p ≤ .001" and corrected_words(floor, 6 * floor) == "p ≤ .001"
    assert corrected_words(2 * floor, 66 * floor) == "p = .001"
