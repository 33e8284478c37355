"""The one word of an answer, the rule behind it where an enrolment brings none, and the sentence that says it.

The rule, in this order:

1. UNKNOWN when the unknown-source test rejects at 5 % that any enrolled source made the traces.
2. SUPPORTS when the calibrated log10 likelihood ratio of the named source against another enrolled one is at least 2 (a
   hundred to one), AGAINST when it is at most -2.
3. INCONCLUSIVE otherwise, and always where no calibration is at hand: the plain sum of evidence takes traces as
   independent, and with siblings it has been seen to speak at -8 against a true claim.

The calibrated ratio is held within what the validation can bear. An answer is never "proved".
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from backend.audit.enrolment import Enrolment
from backend.audit.scores import FamilyAnswer

Verdict = Literal["SUPPORTS", "AGAINST", "UNKNOWN", "INCONCLUSIVE"]
DECIDED = 2.0
"""log10 likelihood ratio from which on the evidence supports a claim; its negative speaks against it."""
UNKNOWN_LEVEL = 0.05
SCALE: tuple[tuple[float, str], ...] = (
    (0.30, "no support either way"),
    (1.0, "weak support"),
    (2.0, "moderate support"),
    (3.0, "moderately strong support"),
    (4.0, "strong support"),
    (6.0, "very strong support"),
    (math.inf, "extremely strong support"),
)
"""Words for a log10 likelihood ratio up to each bound (after the guideline of the European forensic institutes)."""


@dataclass(frozen=True)
class Judgement:
    """What a rule says.

    Attributes
    ----------
    verdict : str
    level : str
        What the verdict is about: source, family, none.
    reason : str
        Which part of the rule decided.
    log10_ratio : float
        Of the subject (or its family) against the other enrolled sources, as the rule took it.
    """

    verdict: Verdict
    level: str
    reason: str
    log10_ratio: float


def decide(log10_others: float, unknown_p: float | None, calibrated: bool) -> Judgement:
    """The rule of this module."""
    if unknown_p is not None and unknown_p <= UNKNOWN_LEVEL:
        return Judgement("UNKNOWN", "source", "no enrolled source fits the traces", log10_others)
    if not calibrated:
        return Judgement("INCONCLUSIVE", "none", "the evidence is not calibrated", log10_others)
    if abs(log10_others) < DECIDED:
        return Judgement("INCONCLUSIVE", "none", "the evidence is not strong enough either way", log10_others)
    if log10_others > 0:
        return Judgement("SUPPORTS", "source", "the traces point to this source", log10_others)
    return Judgement("AGAINST", "source", "the traces point away from this source", log10_others)


def in_words(log10_ratio: float, level: str = "source") -> str:
    """The verbal scale: how strong, and for which side; at the level of the family, for which families.

    Raises
    ------
    ValueError
        If the ratio is not a number.
    """
    if math.isnan(log10_ratio):
        raise ValueError("log10_ratio is not a number")
    words = next(words for bound, words in SCALE if abs(log10_ratio) <= bound)
    if words == SCALE[0][1]:
        return words
    sides = ("family of the named source", "other families") if level == "family" else ("named source", "alternative")
    return f"{words} for the {sides[log10_ratio <= 0]}"


def in_a_sentence(
    judgement: Judgement,
    enrolment: Enrolment,
    subject: int,
    named: bool,
    leader: int,
    n: int,
    calibrated: bool,
    p: float | None,
    family: FamilyAnswer,
) -> str:
    """A judgement for people: what is weighed, how it comes out, and how strongly."""
    name, nearest = enrolment.sources[subject], enrolment.sources[leader]
    if judgement.level == "family":
        name = f"the family {enrolment.families[subject]}"
    what = f"the claim that they come from {name}" if named else f"{name} as their source"
    many = f"{n:,} trace{'s' if n != 1 else ''}"
    ratio = f"log10 likelihood ratio {judgement.log10_ratio:.1f}"
    if judgement.verdict == "UNKNOWN":
        with_p = "" if p is None else f" (p = {p:.3f})"
        return f"The {many} fit none of the enrolled sources{with_p}; the nearest is {nearest}."
    if judgement.verdict == "SUPPORTS":
        text = f"The {many} support {what} against the other enrolled sources: {ratio}."
    elif judgement.verdict == "AGAINST":
        text = f"The {many} speak against {what}: {ratio}; they are nearest to {nearest}."
    else:
        plain = "" if calibrated else "plain "
        text = (
            f"The {many} are nearest to {nearest}; nothing is decided about {what}, because {judgement.reason} "
            f"({plain}{ratio})."
        )
    if family.siblings:
        text += (
            f" The family {family.families[0]} is clear, its members {', '.join(family.siblings)} are not told apart."
        )
    return text
