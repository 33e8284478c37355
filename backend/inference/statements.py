"""What may be said together in one answer, so that no two of its sentences contradict each other.

Ratios and probabilities are stated where they were validated; the sequential stop is stated where it says the same as
the verdict; and every answer names its next step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend.inference.prompt_novelty import FEWEST, Traffic
from backend.inference.verdict import SHORT, UNCALIBRATED, UNLIKE, Verdict, verbal

ENROL = (
    "Enrol the candidates on prompts of this kind: python -m jobs collect, then python -m jobs enroll. "
    "Only then can such traces be attributed."
)
REFERENCE = (
    "Ask the {who} these very prompts through an endpoint that you trust, and compare both sets of answers: "
    "python -m jobs drift traces.jsonl genuine.jsonl"
)
REST = "Read the rest of the file: it was stopped before the end."
COMPATIBLE = "compatible with an enrolled source"
BLIND = 0.5  # share of unenrolled families that pass the unknown-source test, above which it tells nothing


@dataclass(frozen=True)
class Passing:
    """How many groups of sources that are not enrolled pass the unknown-source test.

    family, sibling : share of the groups whose family is not enrolled, and of those whose siblings are; None where not
        measured.
    """

    traces: int  # of a group, in the validation
    family: float | None
    sibling: float | None

    @property
    def blind(self) -> bool:
        """Whether passing tells nothing."""
        share = self.sibling if self.family is None else self.family
        return share is not None and share > BLIND

    def __str__(self) -> str:
        shares = (("families", self.family), ("siblings", self.sibling))
        words = [f"{100 * share:.0f} % of unenrolled {who}" for who, share in shares if share is not None]
        return f"at {self.traces} traces {' and '.join(words)} pass this test too"


@dataclass(frozen=True)
class Statements:
    """The words of an answer."""

    sentence: str  # the answer: about the claim where there is one, else about the best match
    strength: str | None  # the verbal scale's words for the ratio; None where the ratio does not hold
    stated: bool  # whether probabilities and ratios may be stated as such
    unknown: str  # what the unknown-source test says
    stop: Mapping[str, Any] | None  # the stop's answer; with ``withheld``, why it is not given, in place of one
    next_steps: tuple[str, ...]  # what to do now


def reconcile(
    verdict: Verdict,
    sources: Sequence[str],
    families: Sequence[str],
    *,
    subject: int,
    claimed: bool,
    leader: int,
    traces: int,
    traffic: Traffic,
    p: float | None,
    stop: Mapping[str, Any] | None,
    siblings: Sequence[str] = (),
    complete: bool = True,
    passing: Passing | None = None,
) -> Statements:
    """Decide what may be said together with a verdict.

    sources, families : length C.
    subject, leader : the claimed source, else the leading one; and the leading one.
    p : of the unknown-source test.
    stop : as the stop rule answers.
    siblings : members of the leading family that cannot be told apart.
    complete : False where somebody stopped the reading.
    passing : of the unknown-source test, where that was measured.
    """
    stated = verdict.validated and verdict.outcome != "UNKNOWN"
    return Statements(
        sentence=_sentence(verdict, sources, families, subject, claimed, leader, traces, p, siblings),
        strength=verbal(verdict.log10_ratio, verdict.level) if stated else None,
        stated=stated,
        unknown=_unknown(verdict, p, passing),
        stop=None if stop is None else _stop(stop, verdict, sources[subject], claimed),
        next_steps=_next_steps(verdict, sources[subject], claimed, traffic, complete),
    )


def _sentence(
    verdict: Verdict,
    sources: Sequence[str],
    families: Sequence[str],
    subject: int,
    claimed: bool,
    leader: int,
    traces: int,
    p: float | None,
    siblings: Sequence[str],
) -> str:
    name, nearest = sources[subject], sources[leader]
    many = f"{traces:,} trace{'s' if traces != 1 else ''}"
    who = f"the family {families[subject]}" if verdict.level == "family" else name
    ratio = f"log10 likelihood ratio {verdict.log10_ratio:.1f}"
    if verdict.outcome == "UNKNOWN":
        with_p = "" if p is None else f" (p = {p:.3f})"
        first = f"No, not {name}: the" if claimed else "The"
        return f"{first} {many} fit none of the enrolled sources{with_p}. The nearest is {nearest}."
    if verdict.outcome == "SUPPORTS":
        first = f"Yes, the {many} support the claim {who}" if claimed else f"The {many} point to {who}"
        text = f"{first} against the other enrolled sources: {ratio}."
    elif verdict.outcome == "AGAINST":
        text = f"No, the {many} speak against {who}: {ratio}. "
        text += "Only the stated prior keeps it ahead." if leader == subject else f"They are nearest to {nearest}."
    else:
        asked = f"whether the {many} come from {name}" if claimed else f"which model wrote the {many}"
        text = f"We cannot say {asked}: {verdict.reason}. They are nearest to {nearest}."
    if siblings and verdict.validated and not _answered(verdict, name, siblings):
        text += f" Of the family {families[leader]}, the members {', '.join(siblings)} are not told apart."
    return text


def _answered(verdict: Verdict, name: str, siblings: Sequence[str]) -> bool:
    """Whether a source itself was decided about, and naming it among siblings would take that back."""
    return verdict.level == "source" and (verdict.outcome == "SUPPORTS" or name in siblings)


def _unknown(verdict: Verdict, p: float | None, passing: Passing | None) -> str:
    if p is None:
        return "not tested: the enrolment has no reference"
    if verdict.outcome == "UNKNOWN":
        return "unlike every enrolled source"
    if not verdict.validated and verdict.reason.startswith("fewer than"):
        return f"not stated: {verdict.reason}"
    if not verdict.validated and verdict.reason != UNCALIBRATED:
        return "not stated: the test cannot tell another kind of traffic from another source"
    if passing is None:
        return f"{COMPATIBLE}; how often another source passes as well was not measured"
    return f"{'this test cannot tell here' if passing.blind else COMPATIBLE}; {passing}"


def _stop(stop: Mapping[str, Any], verdict: Verdict, subject: str, claimed: bool) -> dict[str, Any]:
    """The stop's answer at every error rate, withheld where the verdict does not say the same."""
    agreed = {"SUPPORTS": "for the claim", "AGAINST": "against the claim"}.get(verdict.outcome)

    def agrees(answer: Mapping[str, Any]) -> bool:
        if claimed:
            return answer.get("decided") == agreed and agreed is not None
        return verdict.outcome == "SUPPORTS" and answer.get("named") == subject

    def kept(answer: Mapping[str, Any]) -> dict[str, Any]:
        if answer.get("enough_after") and not agrees(answer):
            return {**answer, "enough_after": None, "decided" if claimed else "named": None}
        return dict(answer)

    if verdict.outcome in ("UNKNOWN", "INCONCLUSIVE") or verdict.level == "family":
        why = f"the answer is about a family ({verdict.outcome})" if verdict.level == "family" else verdict.reason
        out = {**kept({**stop, "enough_after": None, "decided" if claimed else "named": None}), "withheld": why}
    else:
        out = kept(stop)
    if "levels" in stop:
        levels = [kept(answer) for answer in stop["levels"]]
        if "withheld" in out:
            emptied = {"enough_after": None, "decided" if claimed else "named": None}
            levels = [{**answer, **emptied} for answer in levels]
        out["levels"] = levels
    return out


def _next_steps(verdict: Verdict, name: str, claimed: bool, traffic: Traffic, complete: bool) -> tuple[str, ...]:
    more = () if complete else (REST,)
    reference = REFERENCE.format(who=f"genuine {name}" if claimed else "model that you expect")
    if verdict.reason.startswith("fewer than"):
        return (*more, "Give more traces: the rule needs at least five.")
    if traffic.kind == "no prompts":
        return (*more, "Give the prompts beside the responses: name their column with --prompt-column.")
    if traffic.kind == "unchecked":
        return (*more, f"Make the enrolment again, from {FEWEST} prompts at least: this one cannot compare prompts.")
    if traffic.kind != "like":
        return (*more, ENROL, reference)
    if verdict.outcome == "UNKNOWN":
        return (*more, "Enrol the model that you suspect, or a later version of the claimed one.", reference)
    if verdict.reason == UNCALIBRATED:
        return (*more, "Make the enrolment again, from prompts that every source has answered.", reference)
    if verdict.reason == SHORT:
        return (*more, "Ask for longer answers, or enrol such answers.", reference)
    if verdict.reason == UNLIKE:
        return (*more, "Enrol the model that you suspect, or answers that were made as these were.", reference)
    if verdict.outcome == "INCONCLUSIVE":
        return (*more, "Collect more traces to further prompts of the enrolled kind.", reference)
    if verdict.outcome == "AGAINST":
        return (*more, reference)
    if verdict.level == "family":
        return (*more, f"To tell siblings of {name} apart, {reference[0].lower()}{reference[1:]}")
    return (*more, "Keep the report and the file of traces: python -m jobs verify checks one against the other.")
