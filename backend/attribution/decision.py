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
from backend.inference.evidence_bounds import LN10, weighed_log_ratio
from backend.inference.likelihood_ratios import (
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
)
from backend.inference.prompt_novelty import UNCHECKED, Traffic
from backend.inference.statements import Statements, reconcile
from backend.inference.verdict import Flag, Rule, Verdict, decide, gather

Doubles = npt.NDArray[np.float64]
LARGEST, SMALLEST = sys.float_info.max, sys.float_info.min
"""Of weights, and of shares: a smaller one loses digits when it is written, or is 0."""
DEFAULT_RULE = Rule()
POINTS = 200
"""Budgets at which the running evidence is printed."""


@dataclass(frozen=True)
class FittedStatistics:
    """Statistics that were fitted beside an enrolment; each may be absent.

    Attributes
    ----------
    calibrate : callable or None
        (log-likelihoods (G, C), budget, log prior (C,)) to calibrated log-posteriors (G, C).
    per_trace : callable or None
        Budget to the calibration's factor on sums, and to what it adds to the log-posteriors of every trace before,
        (C,) nats.
    log10_bounds : callable or None
        Budget to the smallest and the largest log10 ratio of a source that the validation can bear.
    family_log10_bounds : callable or None
        The same of a family.
    unknown_p : callable or None
        Scored traces to the p value of "an enrolled source made them".
    stop : callable or None
        (log-posteriors (n, C), source or None) to where enough was enough, as JSON; ``looked`` says how many traces
        were looked at, where that is not all of them.
    flags : callable or None
        Scored traces to the shift flags of the verdict's rule.
    rule : Rule
        Thresholds of the verdict.
    matched : callable or None
        Scored traces to the statistics that were fitted for such short ones, or None where these here are right.
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


@dataclass(frozen=True)
class Findings:
    """The answer.

    Attributes
    ----------
    claimed : int or None
        Source that was named.
    subject : int
        The named source, else the leading one: whom ratios are about.
    leader : int
        The most probable source under the stated prior, calibrated where ``calibrated`` says so.
    rival : int
        Strongest source that is not the subject.
    scores : ndarray of shape (C,), float64
        Accumulated as in the paper, without the bias of the calibration.
    bias : ndarray of shape (C,), float64
        What the calibration adds to the log-posteriors of every trace; zero without one. All sums below hold it, so
        that they lead to the source that the calibrated answer leads to.
    log_posterior : ndarray of shape (C,), float64
        Under the stated prior, calibrated where ``calibrated`` says so.
    log10_ratios : ndarray of shape (C,), float64
        Of the subject against every other source; calibrated and bounded where possible.
    log10_others : float
        Of the subject against 'another enrolled source'; calibrated and bounded where possible.
    running : ndarray of shape (B, 4), float64
        At printed budgets: traces, log10 ratio of the subject against the others and its posterior under the stated
        prior, both calibrated and bounded as the answer is, and the most probable source.
    spread : OrderSpread
    contributions : Contributions
    family : FamilyAnswer
    verdict : Verdict
    statements : Statements
        What may be said together with the verdict.
    calibrated : bool
    traffic : Traffic
    unknown_p : float or None
    stop : mapping or None
    flags : tuple of str or None
    drift : mapping or None
        Filled where two windows of traces were compared.
    interval : Interval or None
        Of ``log10_others`` and the subject's probability, over resampled traces; None for a single trace.
    """

    claimed: int | None
    subject: int
    leader: int
    rival: int
    scores: Doubles
    bias: Doubles
    log_posterior: Doubles
    log10_ratios: Doubles
    log10_others: float
    running: Doubles
    spread: OrderSpread
    contributions: Contributions
    family: FamilyAnswer
    verdict: Verdict
    statements: Statements
    calibrated: bool
    traffic: Traffic = UNCHECKED
    unknown_p: float | None = None
    stop: Mapping[str, Any] | None = None
    flags: tuple[Flag, ...] | None = None
    drift: Mapping[str, Any] | None = None
    interval: Interval | None = None


def stated_prior(enrolment: Enrolment, given: Mapping[str, float] | None = None) -> Doubles:
    """Log of a prior over the enrolled sources, normalised; the same for each one where nothing is given.

    Parameters
    ----------
    enrolment : Enrolment
    given : mapping of str to float, optional
        Weights of sources; those that are not named share the smallest weight that is.

    Raises
    ------
    AtlasError
        If it names a source that is not enrolled, a weight is not positive and finite, or a share is too small to be
        written down.
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
    """Column of a source.

    Raises
    ------
    AtlasError
        If it is not enrolled.
    """
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

    Parameters
    ----------
    scored : Scored
        At least one trace.
    enrolment : Enrolment
    claimed : str, optional
        Source that the traces are said to come from.
    prior : ndarray of shape (C,), optional
        Log of the stated prior, from :func:`stated_prior`; uniform when absent.
    companions : Companions, optional
    orders, seed : int
        Of the spread over random orders.

    Returns
    -------
    Findings

    Raises
    ------
    AtlasError
        If no trace was scored, or the claimed source is not enrolled.
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
    likelihoods = log_likelihoods(scores, enrolment.log_prior)
    along = log_likelihoods(running_scores(traces, enrolment.log_prior), enrolment.log_prior)
    if companions.calibrate is None:
        log_posterior = posterior_under(along[-1], stated)
    else:
        log_posterior = companions.calibrate(likelihoods[-1:], n, stated)[0]
    leader = int(log_posterior.argmax())
    subject = leader if named is None else named
    each = log10_ratios(log_posterior - stated, subject)
    bounds = companions.log10_bounds or _unbounded
    each = np.clip(each, *bounds(n))
    calibrate = companions.calibrate or (lambda rows, _, prior: posterior_under(rows, prior))
    calibrated = companions.calibrate is not None
    weighed = weigh(scored, enrolment, companions)
    p, flags, verdict = weighed.p, weighed.flags, weighed.decide(named, stated)
    # The calibration's factor weighs sums and not the prior; divided by it, the prior counts here as it does there.
    beside = stated / factor
    contributions = leave_one_out(traces, enrolment.log_prior, subject, beside)
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
        p=p,
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
        log10_ratios=each,
        log10_others=verdict.log10_ratio,
        running=_running(likelihoods if calibrated else along, calibrate, bounds, subject, stated),
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
        unknown_p=p,
        stop=statements.stop,
        flags=flags,
        interval=interval,
    )


@dataclass(frozen=True)
class Weighed:
    """What the rule asks of some traces, whatever is claimed.

    Attributes
    ----------
    even : ndarray of shape (C,)
        Log-posterior under the uniform prior, calibrated where there is a calibration.
    family : ndarray of shape (C,)
    traces : int
    p : float or None
        Of the unknown-source test.
    flags : tuple of str or None
    traffic : Traffic
    companions : Companions
        Those of the traces' own condition.
    """

    even: Doubles
    family: npt.NDArray[np.intp]
    traces: int
    p: float | None
    flags: tuple[Flag, ...] | None
    traffic: Traffic
    companions: FittedStatistics

    def decide(self, claimed: int | None, stated: Doubles | None = None) -> Verdict:
        """The verdict on a claim, or without one, under the log of a stated prior (C,)."""
        bounds = self.companions.log10_bounds or _unbounded
        family_bounds = self.companions.family_log10_bounds or _unbounded
        evidence = gather(
            self.even,
            self.family,
            self.traces,
            claimed,
            bounds(self.traces),
            family_bounds(self.traces),
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
    if companions.calibrate is None:
        even = posterior_under(total, uniform)[0]
    else:
        even = companions.calibrate(total, n, uniform)[0]
    return Weighed(
        even,
        np.unique(np.array(enrolment.families), return_inverse=True)[1],
        n,
        None if companions.unknown_p is None else companions.unknown_p(scored),
        None if companions.flags is None else companions.flags(scored),
        scored.traffic,
        companions,
    )


def _unbounded(_: int) -> tuple[float, float]:
    return -math.inf, math.inf


def _running(
    likelihoods: Doubles,
    calibrate: Callable[[Doubles, int, Doubles], Doubles],
    bounds: Callable[[int], tuple[float, float]],
    subject: int,
    stated: Doubles,
) -> Doubles:
    """The curve that ends at the answer, at printed budgets: traces, log10 ratio, probability and leader, (B, 4)."""
    rows = []
    for k in printed_budgets(len(likelihoods), POINTS):
        log_posterior = calibrate(likelihoods[k - 1 : k], int(k), stated)[0]
        ratio = float(log10_against_others(log_posterior - stated, subject, stated))
        rows.append([k, np.clip(ratio, *bounds(int(k))), np.exp(log_posterior[subject]), log_posterior.argmax()])
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
    calibrate = companions.calibrate or (lambda rows, _, prior: posterior_under(rows, prior))
    weighed = calibrate(likelihoods, n, stated)
    inside, bounds = np.arange(len(stated)) == subject, companions.log10_bounds
    if level == "family":
        bounds = companions.family_log10_bounds
        inside = np.array([family == enrolment.families[subject] for family in enrolment.families])
    ratios = weighed_log_ratio(weighed - stated, inside, stated) / LN10
    if bounds is not None:
        ratios = np.clip(ratios, *bounds(n))
    low, high = np.quantile(ratios, [0.05, 0.95])
    least, most = np.quantile(np.exp(weighed[:, subject]), [0.05, 0.95])
    return Interval(float(low), float(high), float(least), float(most), len(likelihoods), seed)
