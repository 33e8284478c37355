"""From scored traces to an answer about the competing propositions, with all that the answer rests on.

The propositions are: the named source made the traces; another enrolled source did; none of the enrolled did. Without a
claim the leading source stands in for the named one.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from backend.attribution.scoring import Scored
from backend.enrolment.catalogue import SHOWN, alike
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.validation_lookup import matched_validation, passing_of
from backend.errors import AtlasError
from backend.inference.domain_shift import UNCHECKED, Traffic
from backend.inference.likelihood_ratios import (
    LN10,
    ORDERS,
    SEED,
    Contributions,
    FamilyAnswer,
    Interval,
    OrderSpread,
    family_answer,
    leave_one_out,
    log10_against_others,
    log10_ratios,
    log_likelihoods,
    order_spread,
    posterior_under,
    printed_budgets,
    resampled,
    running_scores,
    weighed_log_ratio,
)
from backend.inference.verdict import Flag, Rule, Statements, Verdict, decide, gather, reconcile

Doubles = npt.NDArray[np.float64]
LARGEST, SMALLEST = sys.float_info.max, sys.float_info.min  # of weights; of shares, which lose digits below
DEFAULT_RULE = Rule()
POINTS = 200  # budgets at which the running evidence is printed


@dataclass(frozen=True)
class FittedStatistics:
    """Statistics that were fitted for an enrolment; each may be absent.

    calibrate : (log-likelihoods (G, C), budget, log prior (C,)) to calibrated log-posteriors (G, C).
    per_trace : budget to the calibration's factor on sums, and to what it adds to the log-posteriors of every trace
        before, (C,) nats.
    log10_bounds, family_log10_bounds : budget to the smallest and the largest log10 ratio that the validation can bear.
    unknown_p : scored traces to the p value of "an enrolled source made them".
    stop : (log-posteriors (n, C), source or None) to where enough was enough, as JSON; ``looked`` says how many traces
        were looked at, where that is not all of them.
    flags : scored traces to the shift flags of the verdict's rule.
    matched : scored traces to the statistics that were fitted for such short ones, or None where these here are right.
    """

    calibrate: Callable[[Doubles, int, Doubles], Doubles] | None = None
    per_trace: Callable[[int], tuple[float, Doubles]] | None = None
    log10_bounds: Callable[[int], tuple[float, float]] | None = None
    family_log10_bounds: Callable[[int], tuple[float, float]] | None = None
    unknown_p: Callable[[Scored], float] | None = None
    stop: Callable[[npt.NDArray[np.floating], int | None], Mapping[str, Any]] | None = None
    flags: Callable[[Scored], tuple[Flag, ...]] | None = None
    rule: Rule = DEFAULT_RULE
    matched: Callable[[Scored], FittedStatistics | None] | None = None

    def posterior(self, likelihoods: Doubles, budget: int, log_prior: Doubles) -> Doubles:
        """Log-posteriors (G, C) under a prior, calibrated where there is a calibration."""
        if self.calibrate is None:
            return posterior_under(likelihoods, log_prior)
        return self.calibrate(likelihoods, budget, log_prior)

    def limits(self, budget: int, level: str = "source") -> tuple[float, float]:
        """Smallest and largest log10 ratio of a source or a family; infinite where nothing was validated."""
        bounds = self.family_log10_bounds if level == "family" else self.log10_bounds
        return (-math.inf, math.inf) if bounds is None else bounds(budget)


@dataclass(frozen=True)
class Findings:
    """The answer; ratios and posteriors are calibrated where ``calibrated`` says so, and bounded where possible.

    bias : (C,) what the calibration adds to the log-posteriors of every trace; zero without one. All sums below hold
        it, so that they lead to the source that the calibrated answer leads to.
    running : (B, 4) at printed budgets: traces, log10 ratio of the subject against the others, its posterior under the
        stated prior, and the most probable source.
    """

    claimed: int | None  # source that was named
    subject: int  # the named source, else the leading one: whom ratios are about
    leader: int  # the most probable source under the stated prior
    rival: int  # strongest source that is not the subject
    scores: Doubles  # (C,) accumulated as in the paper, without the bias of the calibration
    bias: Doubles
    log_posterior: Doubles  # (C,) under the stated prior
    log10_ratios: Doubles  # (C,) of the subject against every other source
    log10_others: float  # of the subject against 'another enrolled source'
    running: Doubles
    spread: OrderSpread
    contributions: Contributions
    family: FamilyAnswer
    verdict: Verdict
    statements: Statements  # what may be said together with the verdict
    calibrated: bool
    traffic: Traffic = UNCHECKED
    unknown_p: float | None = None
    stop: Mapping[str, Any] | None = None
    flags: tuple[Flag, ...] | None = None
    drift: Mapping[str, Any] | None = None  # filled where two windows of traces were compared
    interval: Interval | None = None  # of ``log10_others`` and the subject's probability; None for a single trace


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
    prior: Doubles | None = None,
    companions: FittedStatistics | None = None,
    orders: int = ORDERS,
    seed: int = SEED,
) -> Findings:
    """Weigh the propositions.

    claimed : source that the traces are said to come from.
    prior : (C,) log of the stated prior, from :func:`stated_prior`; uniform when absent.
    orders, seed : of the spread over random orders.
    """
    n = len(scored.log_posteriors)
    if not n:
        raise AtlasError("No trace was scored", "Let at least the first batch finish, or give a file with good lines")
    companions = companions or FittedStatistics()
    if companions.matched is not None:
        companions = companions.matched(scored) or companions
    named = None if claimed is None else source_number(enrolment, claimed)
    stated = stated_prior(enrolment) if prior is None else prior
    scores = running_scores(scored.log_posteriors, enrolment.log_prior)
    factor, bias = (1.0, np.zeros(len(stated))) if companions.per_trace is None else companions.per_trace(n)
    traces = scored.log_posteriors + bias
    calibrated = companions.calibrate is not None
    along = log_likelihoods(
        scores if calibrated else running_scores(traces, enrolment.log_prior), enrolment.log_prior
    )  # a calibration adds the bias itself
    log_posterior = companions.posterior(along[-1:], n, stated)[0]
    leader = int(log_posterior.argmax())
    subject = leader if named is None else named
    weighed = weigh(scored, enrolment, companions)
    verdict = weighed.decide(named, stated)
    # The calibration's factor weighs sums and not the prior; divided by it, the prior counts here as it does there.
    contributions = leave_one_out(traces, enrolment.log_prior, subject, stated / factor)
    family = family_answer(log_posterior, enrolment.sources, enrolment.families)
    interval = _interval(scored, enrolment, subject, stated, companions, verdict.level, seed)
    stop = None if companions.stop is None else companions.stop(scored.log_posteriors, named)
    statements = reconcile(
        verdict,
        enrolment.sources,
        enrolment.families,
        subject=subject,
        claimed=named is not None,
        leader=leader,
        traces=n,
        traffic=scored.traffic,
        p=weighed.p,
        stop=stop,
        siblings=family.siblings,
        complete=scored.complete,
        passing=passing_of(matched_validation(enrolment, scored.tokens, n)),
    )
    return Findings(
        claimed=named,
        subject=subject,
        leader=leader,
        rival=contributions.rival,
        scores=scores[-1],
        bias=bias,
        log_posterior=log_posterior,
        log10_ratios=np.clip(log10_ratios(log_posterior - stated, subject), *companions.limits(n)),
        log10_others=verdict.log10_ratio,
        running=_running(along, companions, subject, stated),
        spread=order_spread(
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
        unknown_p=weighed.p,
        stop=statements.stop,
        flags=weighed.flags,
        interval=interval,
    )


@dataclass(frozen=True)
class Weighed:
    """What the rule asks of some traces, whatever is claimed."""

    even: Doubles  # (C,) log-posterior under the uniform prior, calibrated where there is a calibration
    family: npt.NDArray[np.intp]  # (C,)
    traces: int
    p: float | None  # of the unknown-source test
    flags: tuple[Flag, ...] | None
    traffic: Traffic
    companions: FittedStatistics  # those of the traces' own condition

    def decide(self, claimed: int | None, stated: Doubles | None = None) -> Verdict:
        """The verdict on a claim, or without one, under the log of a stated prior (C,)."""
        evidence = gather(
            self.even,
            self.family,
            self.traces,
            claimed,
            self.companions.limits(self.traces),
            self.companions.limits(self.traces, "family"),
            math.nan if self.p is None else self.p,
            stated,
            self.flags or (),
            self.traffic.kind,
            self.companions.calibrate is not None,
        )
        return decide(evidence, self.companions.rule)


def weigh(scored: Scored, enrolment: Enrolment, companions: FittedStatistics) -> Weighed:
    """Evidence of scored traces, by statistics that are those of their own condition already."""
    n = len(scored.log_posteriors)
    uniform = np.full(len(enrolment.sources), -math.log(len(enrolment.sources)))
    total = (scored.log_posteriors - enrolment.log_prior).sum(0, dtype=np.float64, keepdims=True)
    return Weighed(
        companions.posterior(total, n, uniform)[0],
        np.unique(np.array(enrolment.families), return_inverse=True)[1],
        n,
        None if companions.unknown_p is None else companions.unknown_p(scored),
        None if companions.flags is None else companions.flags(scored),
        scored.traffic,
        companions,
    )


def _running(likelihoods: Doubles, companions: FittedStatistics, subject: int, stated: Doubles) -> Doubles:
    """The curve that ends at the answer, at printed budgets: traces, log10 ratio, probability and leader, (B, 4)."""
    rows = []
    for k in map(int, printed_budgets(len(likelihoods), POINTS)):
        log_posterior = companions.posterior(likelihoods[k - 1 : k], k, stated)[0]
        ratio = float(log10_against_others(log_posterior - stated, subject, stated))
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
) -> Interval | None:
    """The judged ratio and the posterior over resampled traces, calibrated and bounded as the answer itself."""
    n = len(scored.log_posteriors)
    if n < 2:
        return None
    likelihoods = resampled(scored.log_posteriors, enrolment.log_prior, seed=seed)
    posteriors = companions.posterior(likelihoods, n, stated)
    inside = np.arange(len(stated)) == subject
    if level == "family":
        inside = np.array([family == enrolment.families[subject] for family in enrolment.families])
    ratios = weighed_log_ratio(posteriors - stated, inside, stated) / LN10
    low, high = np.quantile(np.clip(ratios, *companions.limits(n, level)), [0.05, 0.95])
    least, most = np.quantile(np.exp(posteriors[:, subject]), [0.05, 0.95])
    return Interval(float(low), float(high), float(least), float(most), len(likelihoods), seed)
