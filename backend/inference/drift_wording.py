"""What a test of drift says, in words: the same on the page, by command line and by REST."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

LEVEL = 0.05  # windows are called different at this p value or below
DIFFERENT, ALIKE = "DIFFERENT", "NO DIFFERENCE SEEN"
UNPAIRED = (
    "The windows do not answer the same prompts one by one. Other questions look like another model: compare windows "
    "with the same prompts where you can."
)
UNMEASURED = "What a test with windows of this size is worth is no part of this enrolment's validation."
KINDS = {"same": "an unchanged source", "sibling": "a sibling of its family", "family": "another family"}


def verdict(test: Mapping[str, Any]) -> str:
    """Whether the windows are called different."""
    return DIFFERENT if test["p_value"] <= LEVEL else ALIKE


def p_text(p_value: float) -> str:
    """A p value to three digits, without a leading zero."""
    return f"{p_value:.3f}".removeprefix("0")


def sentence(test: Mapping[str, Any]) -> str:
    """The test's answer for people; what a test of this size is worth (:func:`expected`) belongs below it.

    test : p_value, before, after, permutations and paired, as :class:`backend.inference.drift.DriftTest` has them.
    """
    windows = f"{test['before']:,} and {test['after']:,} traces"
    how = "answers swapped within prompts" if test["paired"] else "traces dealt anew"
    p = f"p = {p_text(test['p_value'])}, {test['permutations']:,} permutations, {how}"
    if verdict(test) == DIFFERENT:
        return (
            f"The two windows of {windows} differ by more than chance: {p}. "
            "Something between prompt and answer changed."
        )
    return (
        f"The two windows of {windows} do not differ by more than chance: {p}. That is no proof that nothing changed; "
        "below is what a test of this size would have seen."
    )


def expected(power: Mapping[str, Any] | None) -> str:
    """What a test with windows of this size is worth, by the ecosystem's own validation, in a sentence.

    power : from :func:`backend.enrolment.validation_lookup.expected_power`.
    """
    if power is None:
        return UNMEASURED
    shares = [f"{words} {100 * power[kind]:.0f} %" for kind, words in KINDS.items() if power.get(kind) is not None]
    return f"Of real pairs of windows of {power['window']:,} traces it calls different: {', '.join(shares)}."


def so_far(read: Sequence[tuple[int, int]]) -> str:
    """How much was read of both windows, as a part of a sentence.

    read : length 2 traces of a window that were read, and that it has.
    """
    (first, of_first), (second, of_second) = read
    return (
        f"{first:,} of {of_first:,} traces of the first window and {second:,} of {of_second:,} of the second were read"
    )


def named(window: Mapping[str, Any]) -> str:
    """What a window is called: its file, and which half of it."""
    return f"{window['name']}, {window['part']}" if window["part"] else str(window["name"])
