"""From scored traces to an answer about the competing propositions.

The propositions: the named source wrote the traces; another enrolled source did; none of the enrolled did. Without a
claim the leading source stands in for the named one. Fitted statistics are attachments ``part.name`` of the enrolment:
``calibration``, ``unknown``, ``stop``, ``mixture``, ``domain-NAME`` (one or more), ``groups``, ``validation``;
``calibration-CUT`` and ``unknown-CUT`` serve responses that were cut, and ``-background`` scores that unlabelled
responses of the same kind balanced.

Where candidates were chosen, ratios and posteriors are those among them; the tests for unknown sources and mixtures,
the stop, and whether the traces point elsewhere, are about all enrolled sources.
"""

from __future__ import annotations

import copy
import functools
import math
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from backend.attribution.mixture import BALANCED, CUT, mixture_of
from backend.attribution.scoring import Scored
from backend.attribution.settings import STOP_LEVEL
from backend.enrolment.background import OF_BALANCED
from backend.enrolment.catalogue import SHOWN, alike
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.validation_lookup import (
    condition_in,
    conditions_of,
    enough_traces,
    expected_power,
    matched_validation,
    passing_of,
    prompts_needed,
    validation_of,
)
from backend.errors import AtlasError
from backend.inference import Ints
from backend.inference import likelihood_ratios as ratios
from backend.inference.calibration import Calibration, normalised
from backend.inference.candidates import UNVALIDATED_CHOICE, Choice, HeldOutGroups, weigh_choice
from backend.inference.domain_shift import UNCHECKED, DomainReference, Traffic, reference_of
from backend.inference.mixture import MixtureReference
from backend.inference.sequential_stop import StopRule, running_ratios
from backend.inference.unknown_source import UnknownReference
from backend.inference.verdict import NOT_KNOWN, Flag, Rule, Statements, Verdict, decide, gather, reconcile, shift_flags
from backend.protocol import BACKGROUND, CLEAN

Doubles = npt.NDArray[np.float64]
LARGEST, SMALLEST = sys.float_info.max, sys.float_info.min  # of weights; of shares, which lose digits below
DEFAULT_RULE = Rule()
POINTS = 200  # budgets at which the running evidence is printed
SHORTEST = 24.0  # mean response tokens below which cut traces are shorter than those validated (32 tokens)
FLAGS: Mapping[Flag, str] = {
    "short": "The responses are shorter than any that were validated.",
    "domain": "The responses are unlike those of the enrolled sources, in topic or in how they are written.",
    "budget": "There are more traces than were validated together; further ones add less certainty.",
}


@dataclass(frozen=True)
class FittedStatistics:
    """Statistics that were fitted for an enrolment; each may be absent."""

    # (log-likelihoods (G, C), budget, log prior (C,)) to calibrated log-posteriors (G, C)
    calibrate: Callable[[Doubles, int, Doubles], Doubles] | None = None
    # budget to the calibration's factor on sums, and to what it adds to every trace's log-posteriors before, (C,) nats
    per_trace: Callable[[int], tuple[float, Doubles]] | None = None
    # budget to the smallest and the largest log10 ratio that the validation can bear
    log10_bounds: Callable[[int], tuple[float, float]] | None = None
    family_log10_bounds: Callable[[int], tuple[float, float]] | None = None
    unknown_p: Callable[[Scored], float] | None = None  # p value of "an enrolled source wrote them"
    # (log-posteriors (n, C), source or None) to the number of traces that was enough, as JSON; ``looked`` is the number
    # of traces that were looked at, where that is not all of them
    stop: Callable[[npt.NDArray[np.floating], int | None], Mapping[str, Any]] | None = None
    mixture: MixtureReference | None = None  # for shares of several sources
    groups: HeldOutGroups | None = None  # on which any choice of candidates is measured
    flags: Callable[[Scored], tuple[Flag, ...]] | None = None  # shift flags of the verdict's rule
    rule: Rule = DEFAULT_RULE
    # statistics that were fitted for such short traces; None where these here are right
    matched: Callable[[Scored], FittedStatistics | None] | None = None
    among: Callable[[Ints], FittedStatistics] | None = None  # calibration and bounds of chosen sources alone
    balanced: bool = False  # fitted for scores that unlabelled responses balanced

    def for_condition(self, scored: Scored) -> FittedStatistics:
        """The statistics of the condition of scored traces."""
        return (self.matched and self.matched(scored)) or self

    def posterior(self, likelihoods: Doubles, budget: int, log_prior: Doubles) -> Doubles:
        """Log-posteriors (G, C) under a prior, calibrated where there is a calibration."""
        if self.calibrate is None:
            return ratios.posterior_under(likelihoods, log_prior)
        return self.calibrate(likelihoods, budget, log_prior)

    def limits(self, budget: int, level: str = "source") -> tuple[float, float]:
        """Smallest and largest log10 ratio of a source or a family; infinite where nothing was validated."""
        bounds = self.family_log10_bounds if level == "family" else self.log10_bounds
        return (-math.inf, math.inf) if bounds is None else bounds(budget)


USUAL = 20  # traces of which is said beforehand how often they decide


@dataclass(frozen=True)
class EnrolmentCapabilities:
    """The questions that an enrolment can answer."""

    calibrated: bool  # without a calibration no claim is decided
    unknown: bool  # whether it can be decided that no enrolled source wrote the traces
    budgets: tuple[int, ...]  # numbers of traces that the calibration was fitted for, ascending
    stop_levels: tuple[float, ...]  # error rates of the sequential stop that can be chosen, ascending
    validated: bool  # whether the realised error rates of just these statistics are known
    named: str  # how often it names the right source with :data:`USUAL` traces, in a sentence; '' without a validation
    power: Mapping[str, Any] | None  # of a comparison of as many on the same prompts
    prompts_needed: int | None  # so many at least support a claim in a comparison with a reference; None: none tested


def capabilities_of(enrolment: Enrolment) -> EnrolmentCapabilities:
    """Capabilities by the attachments, without fitting or reading anything."""
    calibration = _part(enrolment, "calibration")
    budgets = [] if calibration is None else [int(k) for k in np.ravel(calibration.get("budgets", []))]
    rows = validation_of(enrolment)
    right = rows[rows["metric"].eq("accuracy_after") & rows["condition"].eq(CLEAN) & rows["k"].le(USUAL)]
    named = ""
    if len(right):
        k, share, tests = right.sort_values("k")[["k", "value", "n"]].to_numpy(np.float64)[-1]
        named = f"With {k:.0f} traces its most probable source is right in {100 * share:.1f} % of {tests:,.0f} tests."
    return EnrolmentCapabilities(
        calibrated=calibration is not None,
        unknown=_part(enrolment, "unknown") is not None,
        budgets=tuple(sorted(budgets)),
        stop_levels=stop_levels_of(enrolment),
        validated=not rows.empty,
        named=named,
        power=expected_power(enrolment, USUAL, paired=True),
        prompts_needed=prompts_needed(enrolment, paired=True),
    )


def stop_levels_of(enrolment: Enrolment) -> tuple[float, ...]:
    """Stated error rates for which the enrolment has a stop rule, smallest first."""
    stop = _part(enrolment, "stop") or {}
    return tuple(sorted(_stop_levels(stop))) if "thresholds" in stop else ()


def refuse_stop_level(enrolment: Enrolment, level: float, levels: Collection[float]) -> None:
    """Refuse an error rate that the enrolment has no stop rule for, unless it has none at all."""
    if levels and level not in levels:
        raise AtlasError(
            f"The enrolment '{enrolment.name}' has no stop rule for an error rate of {level:g}",
            f"Choose from {', '.join(f'{one:g}' for one in levels)}",
        )


def fitted_statistics_of(
    enrolment: Enrolment, condition: str = CLEAN, stop_level: float = STOP_LEVEL, moved: Doubles | None = None
) -> FittedStatistics:
    """The attachments of an enrolment as functions; what is missing is None.

    condition : 'clean', or a cut ('t64') with a calibration of its own; from 'clean' ``matched`` leads to the cuts.
        With 'background', cut responses have no statistics.
    stop_level : stated error rate of the sequential stop, which is fitted for whole responses only.
    moved : (2 d,) mean fingerprint of unlabelled responses; distances are from it in place of the enrolled mean then.
    """
    tail, cuts = "" if condition == CLEAN else f"-{condition}", conditions_of(enrolment)[1:]
    try:
        calibration, unknown = (_part(enrolment, f"{part}{tail}") for part in ("calibration", "unknown"))
        stop, mixture, groups = ({} if tail else _part(enrolment, part) or {} for part in ("stop", "mixture", "groups"))
        fitted = None if calibration is None else Calibration.from_arrays(calibration)
        reference = None if unknown is None else UnknownReference.from_arrays(unknown)
        mixtures = MixtureReference.from_arrays(mixture) if mixture else None
        held_out = HeldOutGroups.from_arrays(groups, len(enrolment.sources)) if groups else None
        rules = {level: StopRule.from_arrays(stop, level) for level in _stop_levels(stop)}
        names = sorted({name.partition(".")[0] for name in enrolment.attachments if name.startswith("domain-")})
        of = CLEAN if condition == BACKGROUND else condition
        parts = [_part(enrolment, name) or {} for name in names if _cut_of(name) == of]
        domains = [DomainReference.from_arrays(part) for part in parts]
        domains = domains if moved is None else [replace(domain, mean=moved) for domain in domains]
    except (KeyError, ValueError, TypeError, IndexError) as error:
        message = f"What is attached to the enrolment '{enrolment.name}' is damaged ({error})"
        raise AtlasError(message, "Make it again") from error
    refuse_stop_level(enrolment, stop_level, rules)
    verdict_rule = Rule(least_tokens=SHORTEST) if cuts else DEFAULT_RULE
    validated = None if fitted is None else int(fitted.budgets[-1])
    # The stop looks after as many traces as its sessions had; of unknown length, these had the largest budget at least.
    looks = min((rule.traces or validated or 0 for rule in rules.values()), default=0)

    def p_none(scored: Scored) -> float:
        assert reference is not None
        means = scored.log_posteriors.mean(0, dtype=np.float64, keepdims=True)
        return float(reference.p_none(means, len(scored.log_posteriors))[0])

    def flags(scored: Scored) -> tuple[Flag, ...]:
        n = len(scored.log_posteriors)
        # Responses of another length lie in another place: only the reference of their own condition counts.
        p = max((domain.p_value(scored.mean, n) for domain in domains), default=math.nan)
        return shift_flags(float(scored.tokens.mean()), p, n, n if validated is None else validated, verdict_rule)

    def stopped(log_posteriors: npt.NDArray[np.floating], claimed: int | None) -> dict[str, Any]:
        looked = min(len(log_posteriors), looks)
        running = running_ratios(log_posteriors, np.arange(looked)[None], fitted)
        running[:, : verdict_rule.minimum_traces - 1] = np.nan  # no verdict stands on fewer, so no stop does
        answers = {level: _stop_answer(rule, running, claimed, enrolment.sources) for level, rule in rules.items()}
        short = {"looked": looked} if looked < len(log_posteriors) else {}
        return answers[stop_level] | {"levels": [answers[level] for level in sorted(answers)]} | short

    def matched(scored: Scored) -> FittedStatistics | None:
        found = condition_in(enrolment, scored.tokens, cuts)
        if condition == BACKGROUND:
            return None if found == CLEAN else FittedStatistics(flags=flags, rule=verdict_rule, balanced=True)
        return None if found == condition else fitted_statistics_of(enrolment, found, stop_level)

    found = FittedStatistics(
        unknown_p=None if reference is None else p_none,
        stop=stopped if looks else None,
        mixture=mixtures,
        groups=held_out,
        flags=flags,
        rule=verdict_rule,
        matched=matched if cuts and condition in (CLEAN, BACKGROUND) else None,
        balanced=condition == BACKGROUND,
    )
    return found if fitted is None else _calibrated(found, fitted, enrolment.families)


def measured_with_background(enrolment: Enrolment, prompts: Sequence[str]) -> bool:
    """Whether an enrolment has error rates of scores that responses to such prompts balanced."""
    reference = reference_of(enrolment.attachments, OF_BALANCED)
    return reference is not None and reference.judge(reference.score(prompts)).kind == "like"


def balanced_reference_of(enrolment: Enrolment) -> UnknownReference | None:
    """The reference of balanced scores; None without one, since those of the enrolled kind spread far more."""
    arrays = _part(enrolment, f"unknown-{BACKGROUND}")
    return None if arrays is None else UnknownReference.from_arrays(arrays)


def _calibrated(found: FittedStatistics, fitted: Calibration, families: Sequence[str]) -> FittedStatistics:
    """Statistics with a calibration, whose bias is one of every source."""

    def among(chosen: Ints) -> FittedStatistics:
        return _calibrated(found, replace(fitted, bias=fitted.bias[:, chosen]), [families[i] for i in chosen])

    return replace(
        found,
        calibrate=fitted.apply,
        per_trace=fitted.per_trace,
        log10_bounds=fitted.log10_limits,
        family_log10_bounds=functools.partial(fitted.log10_limits, among=len(set(families))),
        among=among,
    )


def _stop_answer(rule: StopRule, ratios: Doubles, claimed: int | None, sources: tuple[str, ...]) -> dict[str, Any]:
    """Answer of a stop rule to running ratios (1, m, C)."""
    if claimed is None:
        at, source = rule.named_at(ratios)
        decision = {"named": sources[int(source[0])] if at[0] else None}
    else:
        at, side = rule.claim_at(ratios[..., claimed])
        decision = {"decided": {1: "for the claim", -1: "against the claim", 0: None}[int(side[0])]}
    return {"error_rate": rule.level, "enough_after": int(at[0]) or None, **decision}


def _cut_of(name: str) -> str:
    """Condition of a domain's part: 't64' of 'domain-agent500-t64', 'clean' of 'domain-agent500'."""
    tail = name.rpartition("-")[2]
    return tail if tail[:1] == "t" and tail[1:].isdecimal() else CLEAN


def _stop_levels(stop: Mapping[str, npt.NDArray[Any]]) -> list[float]:
    return [float(level) for level in np.atleast_2d(stop["thresholds"])[:, 0]] if stop else []


def _part(enrolment: Enrolment, part: str) -> Mapping[str, npt.NDArray[Any]] | None:
    found = {n.removeprefix(f"{part}."): a for n, a in enrolment.attachments.items() if n.startswith(f"{part}.")}
    return found or None


@dataclass(frozen=True)
class Findings:
    """The answer; ratios and posteriors are calibrated if ``calibrated``, and bounded where possible."""

    claimed: int | None  # source that was named
    subject: int  # the named source, else the leading one: whom ratios are about
    leader: int  # the most probable source under the stated prior
    rival: int  # strongest source that is not the subject
    scores: Doubles  # (C,) accumulated as in the paper, without the bias of the calibration
    # (C,) what the calibration adds to the log-posteriors of every trace; zero without one. All sums below hold it, so
    # that they lead to the source that the calibrated answer leads to.
    bias: Doubles
    log_posterior: Doubles  # (C,) under the stated prior
    log10_ratios: Doubles  # (C,) of the subject against every other source
    log10_others: float  # of the subject against 'another enrolled source'
    running: Doubles  # (B, 4) at printed budgets: traces, log10 ratio of the subject, its posterior, and the leader
    spread: ratios.OrderSpread
    contributions: ratios.Contributions
    family: ratios.FamilyAnswer
    verdict: Verdict
    statements: Statements  # the words that go with the verdict
    calibrated: bool
    traffic: Traffic = UNCHECKED
    unknown_p: float | None = None
    stop: Mapping[str, Any] | None = None
    flags: tuple[Flag, ...] | None = None
    drift: Mapping[str, Any] | None = None  # filled where two windows of traces were compared
    validation: Mapping[str, Any] | None = None  # of such traces, see :func:`matched_validation`
    interval: ratios.Interval | None = None  # of the ratio and the probability; None for a single trace
    mixture: Mapping[str, Any] | None = None  # see :func:`backend.attribution.mixture.mixture_of`
    candidates: Ints | None = None  # numbers of the chosen sources, ascending; of others, arrays hold nothing
    among: Mapping[str, Any] | None = None  # what was measured of them, see :meth:`HeldOutGroups.among`


def among(enrolment: Enrolment, candidates: Ints | None) -> Enrolment:
    """The names and the enrolment's prior of candidates alone, for weighing; its heads and statistics are of all."""
    if candidates is None:
        return enrolment
    sources, families = ([part[i] for i in candidates] for part in (enrolment.sources, enrolment.families))
    prior = enrolment.log_prior[candidates]
    return replace(enrolment, sources=tuple(sources), families=tuple(families), log_prior=prior)


def stated_prior(enrolment: Enrolment, given: Mapping[str, float] | None = None) -> Doubles:
    """Log of a prior over the enrolled sources, normalised; the same for each one where nothing is given.

    given : weights of sources; those that are not named share the smallest weight that is.
    """
    weights = np.ones(len(enrolment.sources))
    if given:
        unknown = [label for label in given if label not in enrolment.sources]
        wrong = [label for label, weight in given.items() if not 0 < weight <= LARGEST]  # an int may be beyond it
        if unknown or wrong:
            raise AtlasError(
                f"The prior names '{unknown[0]}', which is not enrolled"
                if unknown
                else f"The prior weight of '{wrong[0]}' is not a positive number",
                "Give a positive weight for sources of the enrolment",
            )
        weights = np.array([given.get(label, min(given.values())) for label in enrolment.sources])
    logs = np.log(weights)
    out: Doubles = logs - logsumexp(logs)  # the sum of large weights would overflow
    if out.min() < math.log(SMALLEST):
        raise AtlasError(
            f"The prior leaves '{enrolment.sources[int(out.argmin())]}' a share below {SMALLEST:.0e}, which a report "
            "cannot hold, so that nobody could verify it",
            "Give weights that lie closer together",
        )
    return out


def source_number(enrolment: Enrolment, label: str) -> int:
    """Column of a source."""
    if label not in enrolment.sources:
        hint = ", ".join(alike(label, enrolment.sources) or enrolment.sources[:SHOWN])
        raise AtlasError(
            f"'{label}' is not enrolled in '{enrolment.name}'", f"Choose an enrolled source, such as {hint}"
        )
    return enrolment.sources.index(label)


def find(
    scored: Scored,
    enrolment: Enrolment,
    claimed: str | None = None,
    *,
    candidates: Ints | None = None,
    prior: Doubles | None = None,
    companions: FittedStatistics | None = None,
    orders: int = ratios.ORDERS,
    seed: int = ratios.SEED,
) -> Findings:
    """Weigh the propositions, with orders and seed of the spread over random orders.

    candidates : from :func:`backend.enrolment.catalogue.candidate_numbers`; all enrolled sources when absent.
    prior : (C,) log of the stated prior over them, from :func:`stated_prior`; uniform when absent.
    """
    n = len(scored.log_posteriors)
    if not n:
        raise AtlasError("No trace was scored", "Let at least the first batch finish, or give a file with good lines")
    of_whole = companions or FittedStatistics()
    companions = of_whole.for_condition(scored)
    evidence, known, of_all = GroupEvidence(scored, enrolment, companions), enrolment, scored.log_posteriors
    whole = companions is of_whole
    named_of_all = None if claimed is None else source_number(known, claimed)
    stop = None if companions.stop is None else companions.stop(of_all, named_of_all)
    uniform = np.full(len(known.sources), -math.log(len(known.sources)))
    single = companions.posterior(of_all - known.log_prior, 1, uniform)
    validation = matched_validation(known, scored.tokens, n, companions.balanced)
    measured, unrestricted, best = None, evidence.decide(named_of_all), int(evidence.even.argmax())
    if candidates is not None:
        if companions.groups is not None and validation is not None:
            measured = companions.groups.among(candidates, n)
        readable = tuple(map(known.name_of, known.sources))
        enrolment, evidence = among(known, candidates), evidence.among(candidates, readable)
        scored = replace(scored, log_posteriors=np.ascontiguousarray(of_all[:, candidates]))
        companions = evidence.companions
    named = None if claimed is None else source_number(enrolment, claimed)
    stated = stated_prior(enrolment) if prior is None else prior
    scores = ratios.running_scores(scored.log_posteriors, enrolment.log_prior)
    factor, bias = (1.0, np.zeros(len(stated))) if companions.per_trace is None else companions.per_trace(n)
    traces = scored.log_posteriors + bias
    calibrated = companions.calibrate is not None
    along = ratios.log_likelihoods(
        scores if calibrated else ratios.running_scores(traces, enrolment.log_prior), enrolment.log_prior
    )  # a calibration adds the bias itself
    log_posterior = companions.posterior(along[-1:], n, stated)[0]
    leader = int(log_posterior.argmax())
    subject = leader if named is None else named
    verdict = evidence.decide(named, stated)
    if candidates is not None and measured is None:
        verdict = _unmeasured(verdict, unrestricted, int(candidates[subject]), best, known)
    # The calibration's factor weighs sums and not the prior; divided by it, the prior counts here as it does there.
    contributions = ratios.leave_one_out(traces, enrolment.log_prior, subject, stated / factor)
    limit = BALANCED if companions.balanced else "" if whole else CUT
    mixture = mixture_of(scored, known, of_whole.mixture, single, verdict, named_of_all, limit)
    family = ratios.family_answer(log_posterior, enrolment.sources, enrolment.families)
    interval = _interval(scored, enrolment, subject, stated, companions, verdict.level, seed)
    statements = reconcile(
        verdict,
        enrolment.sources,
        enrolment.families,
        subject=subject,
        claimed=named is not None,
        leader=leader,
        traces=n,
        traffic=scored.traffic,
        p=evidence.p,
        stop=stop,
        siblings=family.siblings,
        complete=scored.complete,
        passing=passing_of(validation),
        chosen=candidates is not None,
        names=known.names,
        span=None if interval is None else (interval.low, interval.high),
        enough=NOT_KNOWN
        if validation is None or candidates is not None
        else enough_traces(known, validation, n, named is not None),
    )
    found = Findings(
        claimed=named,
        subject=subject,
        leader=leader,
        rival=contributions.rival,
        scores=scores[-1],
        bias=bias,
        log_posterior=log_posterior,
        log10_ratios=np.clip(ratios.log10_ratios(log_posterior - stated, subject), *companions.limits(n)),
        log10_others=verdict.log10_ratio,
        running=_running(along, companions, subject, stated),
        spread=ratios.order_spread(
            scored.log_posteriors if calibrated else traces,
            enrolment.log_prior,
            subject,
            stated,
            orders,
            seed,
            calibrate=companions.calibrate,
            bounds=companions.log10_bounds,
        ),
        contributions=contributions,
        family=family,
        verdict=verdict,
        statements=statements,
        calibrated=calibrated,
        traffic=scored.traffic,
        unknown_p=evidence.p,
        stop=statements.stop,
        flags=evidence.flags,
        validation=validation,
        interval=interval,
        mixture=mixture,
    )
    return found if candidates is None else _numbered(found, candidates, len(known.sources), measured)


def _unmeasured(verdict: Verdict, unrestricted: Verdict, subject: int, best: int, known: Enrolment) -> Verdict:
    """The verdict, unless it supports what is not supported among all sources, of which ``best`` leads."""
    agrees = subject == best if verdict.level == "source" else known.families[subject] == known.families[best]
    agrees = agrees and (unrestricted.outcome, unrestricted.level) == ("SUPPORTS", verdict.level)
    if agrees or verdict.outcome != "SUPPORTS":
        return verdict
    return Verdict("INCONCLUSIVE", "none", UNVALIDATED_CHOICE, verdict.log10_ratio)


def _numbered(found: Findings, candidates: Ints, classes: int, measured: Mapping[str, Any] | None) -> Findings:
    """Findings about candidates by the numbers of all enrolled sources; NaN, and no probability, of the others."""

    def spread(values: Doubles, absent: float = math.nan) -> Doubles:
        out = np.full(classes, absent)
        out[candidates] = values
        return out

    def number(place: float) -> int:
        return int(candidates[int(place)])

    added, running = found.contributions, found.running.copy()
    running[:, 3] = candidates[running[:, 3].astype(np.intp)]
    rival = number(found.rival)
    return replace(
        found,
        claimed=None if found.claimed is None else number(found.claimed),
        subject=number(found.subject),
        leader=number(found.leader),
        rival=rival,
        scores=spread(found.scores),
        bias=spread(found.bias),
        log_posterior=spread(found.log_posterior, -math.inf),
        log10_ratios=spread(found.log10_ratios),
        running=running,
        contributions=replace(
            added, leader_without=candidates[added.leader_without], source=number(added.source), rival=rival
        ),
        candidates=candidates,
        among=measured,
    )


class GroupEvidence:
    """Evidence of scored traces for the rule, by statistics of their own condition, whatever is claimed."""

    def __init__(self, scored: Scored, enrolment: Enrolment, companions: FittedStatistics) -> None:
        self.traces = len(scored.log_posteriors)
        self.traffic, self.companions = scored.traffic, companions
        self.family = np.unique(np.array(enrolment.families), return_inverse=True)[1]  # (C,)
        uniform = np.full(len(enrolment.sources), -math.log(len(enrolment.sources)))
        total = (scored.log_posteriors - enrolment.log_prior).sum(0, dtype=np.float64, keepdims=True)
        self.even = companions.posterior(total, self.traces, uniform)[0]  # (C,) log-posterior under the uniform prior
        self.p = None if companions.unknown_p is None else companions.unknown_p(scored)  # of the unknown-source test
        self.flags = None if companions.flags is None else companions.flags(scored)
        self.choice: Choice | None = None

    def among(self, candidates: Ints, sources: tuple[str, ...]) -> GroupEvidence:
        """The evidence among candidates; the tests of all sources (C,) stay, and what all of them say of the choice.

        sources : readable names, length C.
        """
        out, statistics = copy.copy(self), self.companions
        out.choice = weigh_choice(self.even, sources, candidates, statistics.limits(self.traces)[0])
        out.companions = statistics if statistics.among is None else statistics.among(candidates)
        out.family, out.even = self.family[candidates], normalised(self.even[None, candidates])[0]
        return out

    def decide(self, claimed: int | None, stated: Doubles | None = None) -> Verdict:
        """The verdict on a claim, or without one, under the log of a stated prior (C,)."""
        limits, family_limits = (self.companions.limits(self.traces, level) for level in ("source", "family"))
        evidence = replace(
            gather(self.even, self.family, self.traces, claimed, limits, family_limits, stated),
            p_unknown=math.nan if self.p is None else self.p,
            flags=self.flags or (),
            traffic=self.traffic.kind,
            calibrated=self.companions.calibrate is not None,
            balanced=self.companions.balanced,
            choice=self.choice,
        )
        return decide(evidence, self.companions.rule)


def _running(likelihoods: Doubles, companions: FittedStatistics, subject: int, stated: Doubles) -> Doubles:
    """The curve that ends at the answer, at printed budgets: traces, log10 ratio, probability and leader, (B, 4)."""
    rows = []
    for k in map(int, ratios.printed_budgets(len(likelihoods), POINTS)):
        log_posterior = companions.posterior(likelihoods[k - 1 : k], k, stated)[0]
        ratio = float(ratios.log10_against_others(log_posterior - stated, subject, stated))
        rows.append([k, np.clip(ratio, *companions.limits(k)), np.exp(log_posterior[subject]), log_posterior.argmax()])
    return np.array(rows, dtype=np.float64)


def _interval(
    scored: Scored,
    enrolment: Enrolment,
    subject: int,
    stated: Doubles,
    companions: FittedStatistics,
    level: str,
    seed: int,
) -> ratios.Interval | None:
    """The judged ratio and the posterior over resampled traces, calibrated and bounded as the answer itself."""
    n = len(scored.log_posteriors)
    if n < 2:
        return None
    likelihoods = ratios.resampled(scored.log_posteriors, enrolment.log_prior, seed=seed)
    posteriors = companions.posterior(likelihoods, n, stated)
    inside = np.arange(len(stated)) == subject
    if level == "family":
        inside = np.array([family == enrolment.families[subject] for family in enrolment.families])
    log10 = ratios.weighed_log_ratio(posteriors - stated, inside, stated) / ratios.LN10
    low, high = np.quantile(np.clip(log10, *companions.limits(n, level)), [0.05, 0.95])
    least, most = np.quantile(np.exp(posteriors[:, subject]), [0.05, 0.95])
    return ratios.Interval(float(low), float(high), float(least), float(most), len(likelihoods), seed)
