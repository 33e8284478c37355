"""The statistics that were fitted beside an enrolment, out of its attachments, ready to be asked about traces.

Parts are called ``calibration``, ``unknown``, ``stop``, ``domain-NAME`` (one or more), ``signatures``, ``validation``;
an attachment is an array ``part.name``. ``calibration-CUT`` and ``unknown-CUT`` are for responses that were cut, and
are taken where the traces in question are that short. With a calibration, :mod:`backend.inference.verdict` decides.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.attribution.decision import FittedStatistics
from backend.attribution.scoring import Scored
from backend.attribution.settings import STOP_LEVEL
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.validation_lookup import condition_in, conditions_of, validation_of
from backend.errors import AtlasError
from backend.inference.calibration import Calibration
from backend.inference.domain_shift import DomainReference
from backend.inference.sequential_stop import StopRule, running_ratios
from backend.inference.unknown_source import UnknownReference
from backend.inference.validation import SPACE
from backend.inference.verdict import Flag, shift_flags
from backend.inference.verdict import Rule as VerdictRule
from backend.protocol import CLEAN

Doubles = npt.NDArray[np.float64]
SHORTEST = 24.0  # mean response tokens below which cut traces are shorter than those validated (32 tokens)
FLAGS: Mapping[Flag, str] = {
    "short": "The responses are shorter than any that were validated.",
    "domain": "The responses are unlike those of the enrolled sources, in topic or in how they are written.",
    "budget": "There are more traces than were validated together; further ones add less certainty.",
}


@dataclass(frozen=True)
class EnrolmentCapabilities:
    """What can be asked of an enrolment."""

    calibrated: bool  # without a calibration no claim is decided
    unknown: bool  # whether it can be said that no enrolled source made the traces
    budgets: tuple[int, ...]  # numbers of traces that the calibration was fitted for, ascending
    stop_levels: tuple[float, ...]  # error rates of the sequential stop that can be chosen, ascending
    validated: bool  # whether the realised error rates of just these statistics are known


def capabilities_of(enrolment: Enrolment) -> EnrolmentCapabilities:
    """What is attached to an enrolment, without fitting or reading anything."""
    calibration, stop = _part(enrolment, "calibration"), _part(enrolment, "stop") or {}
    budgets = () if calibration is None else tuple(int(k) for k in np.ravel(calibration.get("budgets", [])))
    return EnrolmentCapabilities(
        calibration is not None,
        _part(enrolment, "unknown") is not None,
        tuple(sorted(budgets)),
        tuple(sorted(_stop_levels(stop))) if "thresholds" in stop else (),
        not validation_of(enrolment).empty,
    )


def drift_rows(enrolment: Enrolment) -> list[dict[str, Any]]:
    """How often the drift test spoke on real pairs of fingerprints, as the enrolment's own validation measured it."""
    rows = validation_of(enrolment)
    rows = rows[rows["part"].eq("drift") & rows["space"].eq(SPACE) & rows["condition"].eq(CLEAN)]
    columns = rows[["k", "scenario", "statistic", "value", "std", "n"]]
    return [{str(name): value for name, value in row.items()} for row in columns.to_dict("records")]


def refuse_stop_level(enrolment: Enrolment, level: float, levels: Collection[float]) -> None:
    """Refuse an error rate that the enrolment has no stop rule for, unless it has none at all."""
    if levels and level not in levels:
        raise AtlasError(
            f"The enrolment '{enrolment.name}' has no stop rule for an error rate of {level:g}",
            f"Choose from {', '.join(f'{one:g}' for one in levels)}",
        )


def fitted_statistics_of(
    enrolment: Enrolment, condition: str = CLEAN, stop_level: float = STOP_LEVEL
) -> FittedStatistics:
    """What is attached to an enrolment, ready to be asked; what is missing is None.

    condition : 'clean' for whole responses, or a cut ('t64') that the enrolment has a calibration for. With 'clean',
        traces that turn out to be cut are met by what was fitted for that cut (``matched``).
    stop_level : stated error rate of the sequential stop. It is fitted for whole responses only.
    """
    tail, cuts = "" if condition == CLEAN else f"-{condition}", conditions_of(enrolment)[1:]
    try:
        calibration = _part(enrolment, f"calibration{tail}")
        unknown, stop = _part(enrolment, f"unknown{tail}"), None if tail else _part(enrolment, "stop")
        fitted = None if calibration is None else Calibration.from_arrays(calibration)
        reference = None if unknown is None else UnknownReference.from_arrays(unknown)
        rules = {level: StopRule.from_arrays(stop or {}, level) for level in _stop_levels(stop)}
        names = sorted({name.partition(".")[0] for name in enrolment.attachments if name.startswith("domain-")})
        parts = [_part(enrolment, name) or {} for name in names if _cut_of(name) == condition]
        domains = [DomainReference.from_arrays(part) for part in parts]
    except (KeyError, ValueError, TypeError, IndexError) as error:
        message = f"What is attached to the enrolment '{enrolment.name}' is damaged ({error})"
        raise AtlasError(message, "Make it again") from error
    refuse_stop_level(enrolment, stop_level, rules)
    verdict_rule = VerdictRule(least_tokens=SHORTEST) if cuts else VerdictRule()
    looks = _looks(rules.values(), fitted)

    def p_none(scored: Scored) -> float:
        assert reference is not None
        means = scored.log_posteriors.mean(0, dtype=np.float64, keepdims=True)
        return float(reference.p_none(means, len(scored.log_posteriors))[0])

    def codes(scored: Scored) -> tuple[Flag, ...]:
        n = len(scored.log_posteriors)
        # Responses of another length than the reference's lie elsewhere: only that of their own condition counts.
        p = max((domain.p_value(scored.mean, n) for domain in domains), default=float("nan"))
        most = n if fitted is None else int(fitted.budgets[-1])
        return shift_flags(float(scored.tokens.mean()), p, n, most, verdict_rule)

    def family_limits(budget: int) -> tuple[float, float]:
        assert fitted is not None
        return fitted.log10_limits(budget, len(set(enrolment.families)))

    def stopped(log_posteriors: npt.NDArray[np.floating], claimed: int | None) -> dict[str, Any]:
        looked = min(len(log_posteriors), looks)
        ratios = running_ratios(log_posteriors, np.arange(looked)[None], fitted)
        ratios[:, : verdict_rule.minimum_traces - 1] = np.nan  # no verdict stands on fewer, so no stop does
        answers = {level: _stopped(rule, ratios, claimed) for level, rule in rules.items()}
        short = {"looked": looked} if looked < len(log_posteriors) else {}
        return answers[stop_level] | {"levels": [answers[level] for level in sorted(answers)]} | short

    def _stopped(rule: StopRule, ratios: Doubles, claimed: int | None) -> dict[str, Any]:
        if claimed is None:
            at, source = rule.named_at(ratios)
            named = enrolment.sources[int(source[0])] if at[0] else None
            return {"error_rate": rule.level, "enough_after": int(at[0]) or None, "named": named}
        at, side = rule.claim_at(ratios[..., claimed])
        words = {1: "for the claim", -1: "against the claim", 0: None}[int(side[0])]
        return {"error_rate": rule.level, "enough_after": int(at[0]) or None, "decided": words}

    def matched(scored: Scored) -> FittedStatistics | None:
        found = condition_in(enrolment, scored.tokens, cuts)
        return None if found == condition else fitted_statistics_of(enrolment, found, stop_level)

    return FittedStatistics(
        calibrate=None if fitted is None else fitted.apply,
        per_trace=None if fitted is None else fitted.per_trace,
        log10_bounds=None if fitted is None else fitted.log10_limits,
        family_log10_bounds=None if fitted is None else family_limits,
        unknown_p=None if reference is None else p_none,
        stop=stopped if looks else None,
        flags=codes,
        rule=verdict_rule,
        matched=matched if cuts and condition == CLEAN else None,
    )


def _looks(rules: Collection[StopRule], fitted: Calibration | None) -> int:
    """Traces after each of which the sequential stop looks: as many as the sessions had that it was fitted on.

    Where their length is not known, they have the largest validated budget at least. Without a rule there is no look.
    """
    if not rules:
        return 0
    validated = 0 if fitted is None else int(fitted.budgets[-1])
    return min(validated if rule.traces is None else rule.traces for rule in rules)


def _cut_of(name: str) -> str:
    """Condition of a domain's part: 't64' of 'domain-agent500-t64', 'clean' of 'domain-agent500'."""
    tail = name.rpartition("-")[2]
    return tail if tail[:1] == "t" and tail[1:].isdecimal() else CLEAN


def _stop_levels(stop: Mapping[str, npt.NDArray[Any]] | None) -> list[float]:
    return [] if stop is None else [float(level) for level in np.atleast_2d(stop["thresholds"])[:, 0]]


def _part(enrolment: Enrolment, part: str) -> Mapping[str, npt.NDArray[Any]] | None:
    found = {n.removeprefix(f"{part}."): a for n, a in enrolment.attachments.items() if n.startswith(f"{part}.")}
    return found or None
