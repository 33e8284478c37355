"""One documented rule from numbers to a sentence: SUPPORTS, AGAINST, UNKNOWN or INCONCLUSIVE, never "proved".

The rule, in order; the first that applies decides:

1. fewer than :attr:`Rule.minimum_traces` traces: INCONCLUSIVE;
2. no enrolled source fits (p <= :attr:`Rule.unknown_level`): UNKNOWN where the traces are like the enrolled domains in
   topic and length, else INCONCLUSIVE, because a new kind of prompts looks just like a new source;
3. a shift flag is set: INCONCLUSIVE, because the calibration was not validated there;
4. the claimed source against other enrolled ones: log10 ratio >= :attr:`Rule.log10_lr` and a share of at least
   :attr:`Rule.share` among all enrolled sources, each as likely as the next, SUPPORTS; ratio <= minus that AGAINST;
5. the same for the family of the claimed source: siblings cannot be told apart, and the answer is about the family;
6. INCONCLUSIVE.

The ratio alone would not do. Its alternative is all other sources together, most of which are nothing like the traces:
among 165 a source that another one beats by 60 to 40 is a hundred times more probable than the mean of the others.

Without a claim, the proposition is the leading source. It was picked for its score, so its posterior under the stated
prior must reach that share as well; likewise for its family.
The words of the scale are those that ENFSI's guideline for evaluative reporting proposes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from backend.audit.likelihood import LN10, weighed_log_ratio

Outcome = Literal["SUPPORTS", "AGAINST", "UNKNOWN", "INCONCLUSIVE"]
Level = Literal["source", "family", "none"]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
SCALE = (
    (1.0, "weak support"),
    (2.0, "moderate support"),
    (3.0, "moderately strong support"),
    (4.0, "strong support"),
    (6.0, "very strong support"),
    (np.inf, "extremely strong support"),
)
"""Upper ends (log10 of the ratio) and words; below a ratio of 2 the traces support neither proposition."""
NO_SUPPORT = float(np.log10(2.0))


@dataclass(frozen=True)
class Rule:
    """Thresholds of the rule; they are printed with every verdict.

    Attributes
    ----------
    minimum_traces : int
        The smallest budget above 1 that is validated.
    log10_lr : float
        2: the traces are a hundred times more probable under one proposition.
    share : float
        Least posterior of what is supported: under the even prior, and where nobody had claimed it under the stated
        one too.
    unknown_level : float
        Conformal p values up to it reject every enrolled source.
    least_tokens : float
        Mean response tokens below the shortest validated truncation.
    domain_level : float
        p values up to it mark the traces as unlike every enrolled domain.
    """

    minimum_traces: int = 5
    log10_lr: float = 2.0
    share: float = 0.95
    unknown_level: float = 0.05
    least_tokens: float = 32.0
    domain_level: float = 0.01


@dataclass(frozen=True)
class Evidence:
    """What the rule looks at.

    Attributes
    ----------
    traces : int
        K.
    claimed : bool
        Whether the proposition was named beforehand; else it is the leading source.
    source, family : int
        Numbers of the source that the proposition is about, and of its family.
    log10_lr : float
        Source against the other enrolled ones, calibrated, held within what validation can bear.
    family_log10_lr : float
        Its family against the other ones, held within what the validation of families can bear; NaN where the family
        has no other member or is the only one.
    share, family_share : float
        Posterior under the even prior.
    posterior, family_posterior : float
        Under the stated prior.
    p_unknown : float
        Of "the traces come from an enrolled source"; NaN where it was not computed.
    flags : tuple of str
        Shift flags, from :func:`shift_flags`.
    """

    traces: int
    claimed: bool
    source: int
    family: int
    log10_lr: float
    family_log10_lr: float
    share: float
    family_share: float
    posterior: float
    family_posterior: float
    p_unknown: float
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """The answer.

    Attributes
    ----------
    outcome : {'SUPPORTS', 'AGAINST', 'UNKNOWN', 'INCONCLUSIVE'}
    level : {'source', 'family', 'none'}
        What the outcome is about.
    words : str
        The verbal scale's expression for the ratio at that level (at the level of the source for 'none').
    reason : str
        Which part of the rule decided.
    """

    outcome: Outcome
    level: Level
    words: str
    reason: str


def gather(
    log_posterior: Doubles,
    family: Ints,
    traces: int,
    claimed: int | None,
    limits: tuple[float, float],
    family_limits: tuple[float, float],
    p_unknown: float = float("nan"),
    log_prior: Doubles | None = None,
    flags: tuple[str, ...] = (),
) -> Evidence:
    """Evidence from one calibrated log-posterior.

    Parameters
    ----------
    log_posterior : ndarray of shape (C,)
        Calibrated, under the uniform prior.
    family : ndarray of shape (C,)
        Family number of every source.
    traces : int
    claimed : int or None
        Source named beforehand; None for the leading one.
    limits, family_limits : (float, float)
        From :meth:`backend.audit.calibration.Calibration.log10_limits`, among the sources and among the families.
    p_unknown : float
    log_prior : ndarray of shape (C,), optional
        Stated prior: of the posteriors, and of how the other sources weigh in the ratio's alternative.
    flags : tuple of str

    Returns
    -------
    Evidence
    """
    prior = np.zeros(len(log_posterior)) if log_prior is None else log_prior
    weighed = log_posterior + prior
    weighed = weighed - logsumexp(weighed)
    source = int(weighed.argmax()) if claimed is None else claimed
    members = family == family[source]
    ratio = float(weighed_log_ratio(log_posterior, np.arange(len(family)) == source, prior)) / LN10
    wide = float("nan")
    if 1 < members.sum() < len(family):
        wide = float(weighed_log_ratio(log_posterior, members, prior)) / LN10
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
        p_unknown=p_unknown,
        flags=flags,
    )


def shift_flags(mean_tokens: float, p_domain: float, budget: int, largest_budget: int, rule: Rule) -> tuple[str, ...]:
    """What makes the traces unlike those of the validation.

    Parameters
    ----------
    mean_tokens : float
        Mean number of response tokens.
    p_domain : float
        Largest :meth:`backend.audit.domains.DomainReference.p_value` over the enrolled domains; NaN without one.
    budget, largest_budget : int
        Traces, and the most that were validated; more of them is noted and does not stop a verdict, since the
        calibration averages there.
    rule : Rule

    Returns
    -------
    tuple of str
        Of 'short', 'domain' and 'budget'.
    """
    flags = []
    if mean_tokens < rule.least_tokens:
        flags.append("short")
    if p_domain <= rule.domain_level:
        flags.append("domain")
    if budget > largest_budget:
        flags.append("budget")
    return tuple(flags)


def verbal(log10_lr: float) -> str:
    """The scale's words for the proposition, or for the alternative where the ratio is below 1."""
    size = abs(log10_lr)
    if not size >= NO_SUPPORT:
        return "no support for either proposition"
    words = next(words for end, words in SCALE if size < end or np.isinf(end))
    return f"{words} for {'the proposition' if log10_lr > 0 else 'the alternative'}"


def decide(evidence: Evidence, rule: Rule | None = None) -> Verdict:
    """Apply the rule of this module."""
    rule = rule or Rule()
    words = verbal(evidence.log10_lr)
    shifted = [flag for flag in evidence.flags if flag != "budget"]
    if evidence.traces < rule.minimum_traces:
        return Verdict("INCONCLUSIVE", "none", words, f"fewer than {rule.minimum_traces} traces")
    if evidence.p_unknown <= rule.unknown_level:
        if shifted:
            return Verdict("INCONCLUSIVE", "none", words, "no enrolled source fits, but the traces are of another kind")
        return Verdict("UNKNOWN", "source", words, "no enrolled source fits the traces")
    if shifted:
        return Verdict("INCONCLUSIVE", "none", words, f"not validated for such traces: {', '.join(shifted)}")
    levels: tuple[tuple[Level, float, float, float], ...] = (
        ("source", evidence.log10_lr, evidence.share, evidence.posterior),
        ("family", evidence.family_log10_lr, evidence.family_share, evidence.family_posterior),
    )
    for level, ratio, share, posterior in levels:
        alone = share >= rule.share and (evidence.claimed or posterior >= rule.share)
        if ratio >= rule.log10_lr and alone:
            return Verdict("SUPPORTS", level, verbal(ratio), f"the traces point to this {level}")
        if ratio <= -rule.log10_lr and evidence.claimed:
            return Verdict("AGAINST", level, verbal(ratio), f"the traces point away from this {level}")
    if evidence.log10_lr >= rule.log10_lr:
        return Verdict("INCONCLUSIVE", "none", words, "other enrolled sources fit nearly as well")
    return Verdict("INCONCLUSIVE", "none", words, "the evidence is not strong enough either way")
