"""The verdict: one documented rule, one verbal scale, and the statements that go with it; never "proved".

The rule, in order; the first that applies decides:

1. fewer than :attr:`Rule.minimum_traces` traces: INCONCLUSIVE;
2. the prompts are not known to be of the enrolled kind (:mod:`backend.inference.domain_shift`), or, with unlabelled
   traffic, of the kind of that: INCONCLUSIVE;
3. the responses are shorter than any that were validated: INCONCLUSIVE;
4. no enrolled source fits (p <= :attr:`Rule.unknown_level`): UNKNOWN, or with unlabelled traffic INCONCLUSIVE, since on
   other traffic the test calls many enrolled sources unknown;
5. the responses are unlike the enrolled ones although the prompts are not: INCONCLUSIVE;
6. there is no calibration: INCONCLUSIVE;
7. of a choice of candidates (:mod:`backend.inference.candidates`), all enrolled sources weighing alike: a log10 ratio
   of the candidates together <= minus :attr:`Rule.log10_lr` and a share of at most 1 - :attr:`Rule.share`, AGAINST all
   of them; where a source outside leads and they have less than :attr:`Rule.share`, none of them is supported;
8. the claimed source against other enrolled ones, or candidates: log10 ratio >= :attr:`Rule.log10_lr` and a share of
   at least :attr:`Rule.share` among all of them, each as likely as the next, SUPPORTS; ratio <= minus that AGAINST;
9. the same for the family of the claimed source: siblings cannot be distinguished, and the answer is about the family;
10. INCONCLUSIVE.

The share is needed since the ratio's alternative is all other sources together, most of which are nothing like the
traces. Without a claim, the proposition is the leading source: its posterior under the stated prior must reach that
share as well. The words of the scale are those of ENFSI's guideline for evaluative reporting.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import logsumexp

from backend.inference import Doubles, Ints
from backend.inference.candidates import UNVALIDATED_CHOICE, Choice
from backend.inference.domain_shift import FEWEST, Kind, Traffic
from backend.inference.drift import p_words
from backend.inference.likelihood_ratios import LN10, weighed_log_ratio

Outcome = Literal["SUPPORTS", "AGAINST", "UNKNOWN", "INCONCLUSIVE"]
Level = Literal["source", "family", "candidates", "none"]
Flag = Literal["short", "domain", "budget"]
Span = tuple[float, float]
SCALE: tuple[tuple[float, str], ...] = (
    (math.log10(2.0), "no support either way"),
    (1.0, "weak support"),
    (2.0, "moderate support"),
    (3.0, "moderately strong support"),
    (4.0, "strong support"),
    (6.0, "very strong support"),
    (math.inf, "extremely strong support"),
)
"""Upper ends (log10 of the ratio) and words."""
OTHER_TRAFFIC: dict[Kind, str] = {
    "other topic": "these prompts are on other topics than those that the sources answered when they were enrolled",
    "other language": "these prompts are in another language than those that the sources answered when they were "
    "enrolled",
    "no prompts": "no prompts were given, so that nobody can check whether they are on the enrolled topics",
    "unchecked": "this enrolment cannot check whether the prompts are on the enrolled topics",
    "unlike pool": "these prompts are another kind of traffic than the unlabelled responses that were given",
    "unfitted pool": "this enrolment has no error rates of scores that unlabelled traffic of this kind balanced",
}
"""Why nothing is decided where the prompts are not known to be of the enrolled kind."""
OTHER_PROMPTS = (OTHER_TRAFFIC["other topic"], OTHER_TRAFFIC["other language"])
SHORT = "the responses are shorter than any that were validated"
UNLIKE = "the responses are unlike those of the enrolled sources"
FAR = "they fit no enrolled source, which with unlabelled traffic may be the other kind of traffic alone"
UNCALIBRATED = "the evidence is not calibrated"  # further reasons for which nothing is decided
FEW = "fewer than"
WEAK = "the evidence is not strong enough either way"
ENROL = "Or have the candidates enrolled on prompts of this kind: python -m jobs collect, then python -m jobs enroll."
REFERENCE_CHECK = "python -m jobs reference-check traces.jsonl --reference genuine.jsonl"
REFERENCE = (
    "Ask the {who} these very prompts at a provider that you trust, and compare both sets of answers: "
    + REFERENCE_CHECK
)
REST = "Read the rest of the file: it was stopped before the end."
PROMPTS = (
    "Give the prompts with the responses; choose their column as Prompt: python -m jobs attribute traces.jsonl "
    "--prompt-column NAME."
)
AGAIN = "Make the enrolment again, from {why}."
COMPARABLE = f"{FEWEST} prompts at least: this one cannot compare prompts"
SUSPECT = "Enrol the model that you suspect{also}."
ADD = (
    "Add {outside} to the candidates; where it is another model, enrol that: python -m jobs collect, then python -m "
    "jobs enroll."
)
VALIDATE = (
    "Ask without candidates, or make an enrolment that measures any choice of candidates: python -m jobs enroll "
    "--held-out."
)
SAME_KIND = "Give unlabelled traffic of the same kind as the traces, or attribute them without it."
MORE = "Collect more traces to further prompts of the enrolled kind."
NOT_KNOWN = "How many it takes is not known."
VERIFY = "python -m jobs verify"
KEEP = f"Keep the report and the file of traces: {VERIFY} checks one against the other."
COMPATIBLE = "compatible with an enrolled source"
CANNOT_TELL = "this test cannot tell here"
BLIND = 0.5  # share of unenrolled families that pass the unknown-source test, above which it tells nothing


@dataclass(frozen=True)
class Rule:
    """Thresholds of the rule; they are printed with every verdict."""

    minimum_traces: int = 5  # the smallest budget above 1 that is validated
    log10_lr: float = 2.0  # 2: the traces are a hundred times more probable under one proposition
    share: float = 0.95  # least posterior of what is supported, under the even prior; unclaimed, the stated one too
    unknown_level: float = 0.05  # conformal p values up to it reject every enrolled source
    least_tokens: float = 32.0  # mean response tokens below the shortest validated truncation
    domain_level: float = 0.01  # p values up to it mark the responses as unlike the enrolled ones


@dataclass(frozen=True)
class Evidence:
    """Evidence for the rule."""

    traces: int  # K
    claimed: bool  # whether the proposition was named beforehand; else it is the leading source
    source: int  # number of the source that the proposition is about
    family: int
    log10_lr: float  # source against the other enrolled ones, calibrated, within what the validation can bear
    family_log10_lr: float  # its family against the others; NaN where it has no other member or is the only one
    share: float  # posterior under the even prior
    family_share: float
    posterior: float  # under the stated prior
    family_posterior: float
    p_unknown: float = math.nan  # of "the traces come from an enrolled source"; NaN where it was not computed
    flags: tuple[Flag, ...] = ()  # shift flags, from :func:`shift_flags`
    traffic: Kind = "like"  # kind of the prompts, from :class:`backend.inference.domain_shift.Traffic`
    calibrated: bool = True
    balanced: bool = False  # by unlabelled traffic
    choice: Choice | None = None  # where candidates were chosen; ratios and shares are those among them then
    capped: bool = False  # whether the ratio lies beyond what the validation can bear, and the family's
    family_capped: bool = False


@dataclass(frozen=True)
class Verdict:
    """The answer of the rule."""

    outcome: Outcome
    level: Level  # what the outcome is about
    reason: str  # which part of the rule decided
    log10_ratio: float  # of the source, or of its family where the outcome is about that, against the others
    validated: bool = True  # whether ratios and probabilities hold in the condition of these traces
    outside: str = ""  # source that fits better than the chosen candidates, where the level is 'candidates'
    capped: bool = False  # whether the ratio was larger, and stops at what the validation can bear


def gather(
    log_posterior: Doubles,
    family: Ints,
    traces: int,
    claimed: int | None,
    limits: tuple[float, float],
    family_limits: tuple[float, float],
    log_prior: Doubles | None = None,
) -> Evidence:
    """Evidence from one log-posterior (C,) under the uniform prior, without tests and flags.

    family : (C,) family number of every source; claimed : source named beforehand; None for the leading one.
    limits, family_limits : log10 ratios that the validation can bear, of sources and of families.
    log_prior : (C,) stated prior of the posteriors, and of the other sources in the ratio's alternative.
    """
    prior = np.zeros(len(log_posterior)) if log_prior is None else log_prior
    weighed = log_posterior + prior
    weighed -= logsumexp(weighed)
    source = int(weighed.argmax()) if claimed is None else claimed
    members = family == family[source]
    ratio = float(weighed_log_ratio(log_posterior, np.arange(len(family)) == source, prior)) / LN10
    several = 1 < members.sum() < len(family)
    wide = float(weighed_log_ratio(log_posterior, members, prior)) / LN10 if several else math.nan
    return Evidence(
        traces=traces,
        claimed=claimed is not None,
        source=source,
        family=int(family[source]),
        log10_lr=float(np.clip(ratio, *limits)),
        family_log10_lr=float(np.clip(wide, *family_limits)),
        share=float(np.exp(log_posterior[source])),
        family_share=float(np.exp(logsumexp(log_posterior[members]))),
        posterior=float(np.exp(weighed[source])),
        family_posterior=float(np.exp(logsumexp(weighed[members]))),
        capped=not limits[0] <= ratio <= limits[1],
        family_capped=several and not family_limits[0] <= wide <= family_limits[1],
    )


def shift_flags(mean_tokens: float, p_domain: float, budget: int, largest_budget: int, rule: Rule) -> tuple[Flag, ...]:
    """Flags of responses unlike those of the validation.

    p_domain : p value of the responses, by the reference of their own length; NaN without one.
    budget, largest_budget : traces, and the most that were validated; more do not prevent a verdict.
    """
    short, domain = mean_tokens < rule.least_tokens, p_domain <= rule.domain_level
    flags: dict[Flag, bool] = {"short": short, "domain": domain, "budget": budget > largest_budget}
    return tuple(flag for flag, applies in flags.items() if applies)


def decide(evidence: Evidence, rule: Rule | None = None) -> Verdict:
    """Apply the rule of this module."""
    rule = rule or Rule()
    ratio = evidence.log10_lr

    def undecided(reason: str, validated: bool = True) -> Verdict:
        return Verdict("INCONCLUSIVE", "none", reason, ratio, validated, capped=evidence.capped)

    like, fits = evidence.traffic == "like", not evidence.p_unknown <= rule.unknown_level
    if evidence.traces < rule.minimum_traces:
        known = like and fits and evidence.calibrated and not {"short", "domain"} & set(evidence.flags)
        return undecided(f"{FEW} {rule.minimum_traces} traces", known)
    if not like:
        return undecided(OTHER_TRAFFIC[evidence.traffic], False)
    if "short" in evidence.flags:
        return undecided(SHORT, False)
    if not fits and evidence.balanced:
        return undecided(FAR, False)
    if not fits:
        return Verdict("UNKNOWN", "source", "no enrolled source fits the traces", ratio)
    if "domain" in evidence.flags:
        return undecided(UNLIKE, False)
    if not evidence.calibrated:
        return undecided(UNCALIBRATED, False)
    choice = evidence.choice
    if choice and choice.share <= 1 - rule.share and choice.log10_lr <= -rule.log10_lr:
        reason = f"the traces point to a source outside of the candidates ({choice.outside})"
        return Verdict("AGAINST", "candidates", reason, choice.log10_lr, outside=choice.outside)
    elsewhere = choice is not None and choice.leads and choice.share < rule.share
    levels: tuple[tuple[Level, float, bool, float, float], ...] = (
        ("source", evidence.log10_lr, evidence.capped, evidence.share, evidence.posterior),
        ("family", evidence.family_log10_lr, evidence.family_capped, evidence.family_share, evidence.family_posterior),
    )
    for level, ratio_here, capped, share, posterior in levels:
        alone = share >= rule.share and (evidence.claimed or posterior >= rule.share)
        if ratio_here >= rule.log10_lr and alone and not elsewhere:
            return Verdict("SUPPORTS", level, f"the traces point to this {level}", ratio_here, capped=capped)
        if ratio_here <= -rule.log10_lr and evidence.claimed:
            return Verdict("AGAINST", level, f"the traces point away from this {level}", ratio_here, capped=capped)
    if choice and elsewhere:
        reason = f"a source outside of the candidates fits better ({choice.outside})"
        return Verdict("INCONCLUSIVE", "candidates", reason, ratio, outside=choice.outside)
    if evidence.log10_lr >= rule.log10_lr:
        return undecided("other enrolled sources fit nearly as well")
    return undecided(WEAK)


def verbal(log10_ratio: float, level: Level = "source") -> str:
    """The verbal scale: how strong, and for which side."""
    if math.isnan(log10_ratio):
        raise ValueError("log10_ratio is not a number")
    words = next(words for bound, words in SCALE if abs(log10_ratio) <= bound)
    if words == SCALE[0][1]:
        return words
    sides = ("family of the named source", "other families") if level == "family" else ("named source", "alternative")
    return f"{words} for the {sides[log10_ratio <= 0]}"


def times_words(log10_ratio: float, capped: bool = False) -> str:
    """A likelihood ratio in words: 'about 160 times more likely'; at least, where it is capped."""
    times = _rounded(log10_ratio)
    if times == "1":
        return "no more likely"
    about = "" if "more" in times else "at least about " if capped else "about "
    return f"{about}{times} times {'more' if log10_ratio > 0 else 'less'} likely"


def span_words(log10_ratio: float, span: Span, capped: bool = False) -> str:
    """Where 90 % of resamples put a likelihood ratio: '40 to 160 times in 90 % of resamples', capped '40 or more'."""
    first, last = sorted(end if log10_ratio > 0 else -end for end in span)
    open_ended = capped and last == abs(log10_ratio)
    return f"{_times(first)} {'or more' if open_ended else f'to {_times(last)} times'} in 90 % of resamples"


def odds(log10_ratio: float) -> str:
    """A likelihood ratio of that log10, such as '160 to 1' or '1 to 160'."""
    return f"{_rounded(log10_ratio)} to 1" if log10_ratio >= 0 else f"1 to {_rounded(log10_ratio)}"


def log10_text(log10_ratio: float, capped: bool = False) -> str:
    """A log10 ratio with two decimals: '2.20', or '≥ 2.20' where it is capped."""
    bound = ("≥ " if log10_ratio > 0 else "≤ ") if capped else ""
    return f"{bound}{log10_ratio:,.2f}".replace("-", "−")


def _rounded(log10_ratio: float) -> str:
    """How many times more or less likely, to two digits."""
    return _times(abs(log10_ratio))


def _times(log10_ratio: float) -> str:
    return "more than a million" if log10_ratio > 6 else f"{float(f'{10**log10_ratio:.2g}'):,.10g}"


@dataclass(frozen=True)
class Passing:
    """Shares of groups of sources that are not enrolled that pass the unknown-source test."""

    traces: int  # of a group, in the validation
    family: float | None  # share of the groups whose family is not enrolled; None where not measured
    sibling: float | None  # of those whose siblings are enrolled

    @property
    def blind(self) -> bool:
        """Whether passing tells nothing."""
        share = self.sibling if self.family is None else self.family
        return share is not None and share > BLIND

    @property
    def span(self) -> str:
        """The shares in short: '92 %', or '79 to 92 %'."""
        shares = sorted({f"{100 * share:.0f}" for share in (self.family, self.sibling) if share is not None}, key=int)
        return f"{' to '.join(shares)} %"

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
    chosen: bool = False,
    names: Mapping[str, str] | None = None,
    span: Span | None = None,
    enough: str = NOT_KNOWN,
) -> Statements:
    """The statements that go with a verdict, without contradiction.

    sources, families : length C; subject : the claimed source, else the leading one; leader : the leading one.
    p, passing : of the unknown-source test; stop : as the stop rule answers; complete : whether all was read.
    siblings : members of the leading family that cannot be distinguished.
    chosen : whether the sources are candidates that were chosen out of the enrolled ones.
    names : readable names of sources, for sentences; the stop's answer keeps the sources.
    span : where 90 % of resamples of the traces put the log10 ratio; None for a single trace.
    enough : how many traces decide most such cases, in a sentence.
    """
    name, nearest, *siblings = ((names or {}).get(one, one) for one in (sources[subject], sources[leader], *siblings))
    stated = verdict.validated and verdict.outcome != "UNKNOWN" and verdict.level != "candidates"
    many = f"{traces:,} trace{'s' if traces != 1 else ''}"
    text = _sentence(verdict, name, families[subject], claimed, nearest, many, p, chosen, span)
    # Naming a source among siblings would take back that it was decided about.
    answered = verdict.level == "source" and (verdict.outcome == "SUPPORTS" or name in siblings)
    if siblings and stated and not answered and not verdict.reason.startswith(FEW):
        text += f" Of the family {families[leader]}, the members {', '.join(siblings)} are not told apart."
    return Statements(
        sentence=text,
        strength=verbal(verdict.log10_ratio, verdict.level) if stated else None,
        stated=stated,
        unknown=_unknown(verdict, p, passing),
        stop=None if stop is None else _stop(stop, verdict, sources[subject], claimed),
        next_steps=(*(() if complete else (REST,)), *_next_steps(verdict, name, claimed, traffic, enough)),
    )


def _sentence(
    verdict: Verdict, name: str, family: str, claimed: bool, nearest: str, many: str, p: float | None, chosen: bool,
    span: Span | None,
) -> str:  # fmt: skip
    who = f"the family {family}" if verdict.level == "family" else name
    ratio, capped, spread = verdict.log10_ratio, verdict.capped, ""
    times = times_words(ratio, capped)
    if span and span[0] != span[1] and verdict.level != "candidates":  # resamples are about the subject alone
        spread = f"{span_words(ratio, span, capped)}; "
        times = re.sub(r"^at least about ([\d,.]+)", r"about \1 or more", times)  # some bring it below
    in_log10 = f"({spread}log10 ratio {log10_text(ratio, capped)})"
    others = f"other {'families' if verdict.level == 'family' else 'candidates' if chosen else 'enrolled sources'}"
    against = f"{times} from {'that family' if verdict.level == 'family' else 'it'} than from the {others} {in_log10}"
    highest = "Of the candidates, " if chosen else ""
    if verdict.outcome == "UNKNOWN":
        with_p = "" if p is None else f" ({p_words(p)})"
        included = f", {name} included" if claimed else ""
        return (
            f"The {many} fit none of the enrolled sources{included}{with_p}. "
            f"Of {'the candidates' if chosen else 'those'}, {nearest} scores highest."
        )
    if verdict.outcome == "SUPPORTS":
        alone = f"The {many} support {who}"  # no Yes to a claim of one member
        first = alone if verdict.level == "family" else f"Yes, the {many} support the claim {who}"
        return f"{first if claimed else f'The {many} point to {who}'}: {against}."
    if verdict.outcome == "AGAINST" and verdict.level == "candidates":
        rest = f"{verdict.outside}, which is none of them, scores highest."
        return (
            f"No, the {many} speak against all candidates: {times} from one of them than from others {in_log10}. {rest}"
        )
    if verdict.outcome == "AGAINST":
        rest = "Only the stated prior keeps it ahead." if nearest == name else f"{highest}{nearest} scores highest."
        return f"No, the {many} speak against {who}: {against}. {rest}"
    question = f"whether the {many} come from {name}" if claimed else f"which model wrote the {many}"
    known = ", and error rates were measured on those only" if verdict.reason in OTHER_PROMPTS else ""
    return f"We cannot say {question}: {verdict.reason}{known}."


def _unknown(verdict: Verdict, p: float | None, passing: Passing | None) -> str:
    if p is None:
        return "not tested: the enrolment has no reference"
    if verdict.outcome == "UNKNOWN":
        return "unlike every enrolled source"
    if not verdict.validated and verdict.reason.startswith(FEW):
        return f"not stated: {verdict.reason}"
    if not verdict.validated and verdict.reason != UNCALIBRATED:
        return "not stated: the test cannot tell another kind of traffic from another source"
    if passing is None:
        return f"{COMPATIBLE}; how often another source passes as well was not measured"
    return f"{CANNOT_TELL if passing.blind else COMPATIBLE}; {passing}"


def _stop(stop: Mapping[str, Any], verdict: Verdict, subject: str, claimed: bool) -> dict[str, Any]:
    """The stop's answer at every error rate, withheld where the verdict does not say the same."""
    family = verdict.level == "family"
    withheld = verdict.level in ("family", "candidates") or verdict.outcome in ("UNKNOWN", "INCONCLUSIVE")
    key, agreed = "named", subject
    if claimed:
        key, agreed = "decided", "for the claim" if verdict.outcome == "SUPPORTS" else "against the claim"

    def served(answer: Mapping[str, Any]) -> dict[str, Any]:
        if withheld or (answer.get("enough_after") and answer.get(key) != agreed):
            return {**answer, "enough_after": None, key: None}
        return dict(answer)

    out = served(stop)
    if withheld:
        out["withheld"] = f"the answer is about a family ({verdict.outcome})" if family else verdict.reason
    if "levels" in stop:
        out["levels"] = [served(answer) for answer in stop["levels"]]
    return out


def _next_steps(verdict: Verdict, name: str, claimed: bool, traffic: Traffic, enough: str) -> tuple[str, ...]:
    reference = REFERENCE.format(who=f"genuine {name}" if claimed else "model that you expect")
    later = f", or a later version of {name}" if claimed else ""
    steps: tuple[tuple[bool, tuple[str, ...]], ...] = (
        (verdict.reason.startswith(FEW), ("Give more traces: the rule needs at least five.",)),
        (traffic.kind == "no prompts", (PROMPTS,)),
        (traffic.kind == "unchecked", (AGAIN.format(why=COMPARABLE),)),
        (traffic.kind == "unlike pool", (SAME_KIND, reference)),
        (traffic.kind != "like", (reference, ENROL)),
        (verdict.outcome == "UNKNOWN", (SUSPECT.format(also=later), reference)),
        (verdict.reason == FAR, (SUSPECT.format(also=", or answers to prompts of this kind"), reference)),
        (verdict.reason == UNCALIBRATED, (AGAIN.format(why="prompts that every source has answered"), reference)),
        (verdict.reason == SHORT, ("Ask for longer answers, or enrol such answers.", reference)),
        (verdict.reason == UNLIKE, (SUSPECT.format(also=", or answers that were made as these were"), reference)),
        (verdict.level == "candidates", (ADD.format(outside=verdict.outside), reference)),
        (verdict.reason == UNVALIDATED_CHOICE, (VALIDATE, reference)),
        (verdict.outcome == "INCONCLUSIVE", (f"{MORE} {enough}", reference)),
        (verdict.outcome == "AGAINST", (reference,)),
        (verdict.level == "family", (f"To tell siblings of {name} apart, {reference[0].lower()}{reference[1:]}",)),
        (True, (KEEP,)),
    )
    return next(texts for applies, texts in steps if applies)
