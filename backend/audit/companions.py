"""The statistics that were fitted beside an enrolment, out of its attachments, ready to be asked about traces.

Parts are called ``calibration``, ``unknown``, ``stop`` and ``domain-NAME`` (one or more); an attachment is an array
``part.name``. With a calibration, the rule of :mod:`backend.audit.verdict` decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.audit.attributor import Scored
from backend.audit.calibration import Calibration
from backend.audit.case import Companions
from backend.audit.domains import DomainReference
from backend.audit.enrolment import Enrolment
from backend.audit.judgement import Judgement
from backend.audit.sequential import StopRule, running_ratios
from backend.audit.unknown import UnknownReference
from backend.audit.verdict import Rule as VerdictRule
from backend.audit.verdict import decide, gather, shift_flags
from backend.errors import AtlasError

Doubles = npt.NDArray[np.float64]
STOP_TRACES = 1_000
"""Traces up to which the sequential stop looks; held-out sessions that it was fitted on are much shorter."""
FLAGS = {
    "short": "The responses are shorter than any that were validated.",
    "domain": "The traces are unlike every enrolled domain in topic, language or length.",
    "budget": "There are more traces than were validated together; beyond that number evidence is averaged.",
}
Fitted = Calibration | UnknownReference | StopRule | DomainReference


def attached(parts: Mapping[str, Fitted]) -> dict[str, npt.NDArray[Any]]:
    """Attachments of an enrolment out of fitted statistics, by the name of their part."""
    return {f"{part}.{name}": array for part, fitted in parts.items() for name, array in fitted.to_arrays().items()}


def companions_of(enrolment: Enrolment) -> Companions:
    """What an enrolment brings along, ready to be asked; what it does not bring is None.

    Raises
    ------
    AtlasError
        If an attachment is damaged.
    """
    try:
        calibration = _part(enrolment, "calibration")
        unknown, stop = _part(enrolment, "unknown"), _part(enrolment, "stop")
        fitted = None if calibration is None else Calibration.from_arrays(calibration)
        reference = None if unknown is None else UnknownReference.from_arrays(unknown)
        rule = None if stop is None else StopRule.from_arrays(stop)
        names = sorted({name.partition(".")[0] for name in enrolment.attachments if name.startswith("domain-")})
        domains = [DomainReference.from_arrays(_part(enrolment, name) or {}) for name in names]
    except (KeyError, ValueError, TypeError, IndexError) as error:
        raise AtlasError(
            f"What is attached to the enrolment '{enrolment.name}' is damaged ({error})", "Make it again"
        ) from error

    def p_none(scored: Scored) -> float:
        assert reference is not None
        means = scored.log_posteriors.mean(0, dtype=np.float64, keepdims=True)
        return float(reference.p_none(means, len(scored.log_posteriors))[0])

    def codes(scored: Scored) -> tuple[str, ...]:
        n = len(scored.log_posteriors)
        p = max((domain.p_value(scored.mean, n) for domain in domains), default=float("nan"))
        most = n if fitted is None else int(fitted.budgets[-1])
        return shift_flags(float(scored.tokens.mean()), p, n, most, VerdictRule())

    def judge(
        scored: Scored, log_posterior: Doubles, claimed: int | None, stated: Doubles, p: float | None
    ) -> Judgement:
        assert fitted is not None
        family = np.unique(np.array(enrolment.families), return_inverse=True)[1]
        n, p_unknown = len(scored.log_posteriors), float("nan") if p is None else p
        limits = fitted.log10_limits(n)
        evidence = gather(log_posterior, family, n, claimed, limits, p_unknown, stated, codes(scored))
        verdict = decide(evidence)
        ratio = evidence.family_log10_lr if verdict.level == "family" else evidence.log10_lr
        return Judgement(verdict.outcome, verdict.level, verdict.reason, float(ratio))

    def stopped(log_posteriors: npt.NDArray[np.floating], claimed: int | None) -> dict[str, Any]:
        assert rule is not None
        rows = np.arange(min(len(log_posteriors), STOP_TRACES))[None]
        ratios = running_ratios(log_posteriors, rows, fitted)
        if claimed is None:
            at, source = rule.named_at(ratios)
            named = enrolment.sources[int(source[0])] if at[0] else None
            return {"error_rate": rule.level, "enough_after": int(at[0]) or None, "named": named}
        at, side = rule.claim_at(ratios[..., claimed])
        words = {1: "for the claim", -1: "against the claim", 0: None}[int(side[0])]
        return {"error_rate": rule.level, "enough_after": int(at[0]) or None, "decided": words}

    return Companions(
        calibrate=None if fitted is None else fitted.apply,
        log10_bounds=None if fitted is None else fitted.log10_limits,
        unknown_p=None if reference is None else p_none,
        judge=None if fitted is None else judge,
        stop=None if rule is None else stopped,
        flags=lambda scored: [FLAGS[code] for code in codes(scored)],
    )


def _part(enrolment: Enrolment, part: str) -> Mapping[str, npt.NDArray[Any]] | None:
    found = {n.removeprefix(f"{part}."): a for n, a in enrolment.attachments.items() if n.startswith(f"{part}.")}
    return found or None
