"""Whether one source wrote the traces of an audit, and the share of each where several did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from backend.attribution.scoring import Scored
from backend.enrolment.enrolment import Enrolment
from backend.inference import Doubles
from backend.inference.drift import p_words
from backend.inference.mixture import LEVEL, POWER, RESAMPLES, MixtureAnswer, MixtureReference, weigh_mixture
from backend.inference.verdict import Verdict
from backend.store.writers import RELEASE_ROSTERS

NAMED = 3  # sources of a mixture that the sentence names, ..
LEAST = 0.05  # .. of those with such a share
CUT = "mixtures were simulated for whole responses only, and these are shorter, or were cut"
BALANCED = "mixtures were simulated without unlabelled traffic, which balances these scores"
NO_SINGLE_SOURCE = "no enrolled source fits, and a mixture looks like that as well as a source that nobody enrolled"
MISSING = "this enrolment has no held-out mixtures to compare with; make it again: {command}"


def mixture_of(
    scored: Scored,
    enrolment: Enrolment,
    reference: MixtureReference | None,
    per_trace: Doubles,
    verdict: Verdict,
    claimed: int | None,
    limit: str = "",
) -> dict[str, Any]:
    """The answer about one source or several, as JSON.

    per_trace : (n, C) log-posteriors, calibrated for single traces; limit : why these traces are unlike
    those that were simulated.
    Of more traces than were simulated together, so many count that are evenly drawn over the file (``looked``). Where
    ``outcome`` is 'cannot tell' for a ``reason`` that forbids any number, ``shares`` is None.
    """
    n, sources = len(scored.log_posteriors), enrolment.sources
    out: dict[str, Any] = {"outcome": "cannot tell", "traces": n, "shares": None}
    if (reason := _obstacle(enrolment, reference, verdict, n, limit)) is not None or reference is None:
        return out | {"reason": reason, "sentence": _unknown(n, reason or "")}
    rows = np.arange(n) if n <= reference.most else np.linspace(0, n - 1, reference.most).astype(np.intp)
    answer = weigh_mixture(reference, per_trace[rows], claimed)
    detectable = answer.detectable if np.isfinite(answer.detectable) else None
    order = np.argsort(-answer.shares, kind="stable")
    out |= {
        "outcome": answer.outcome,
        "looked": len(rows),
        "source": sources[answer.source],
        "subject": sources[answer.subject],
        "p": float(answer.p[answer.subject]),
        "p_any": float(answer.p.max()),
        "detectable": detectable,
        "level": LEVEL,
        "power": POWER,
        "resamples": RESAMPLES,
        "shares": [
            {
                "source": sources[i],
                "family": enrolment.families[i],
                **{name: float(getattr(answer, part)[i]) for name, part in SHARE.items()},
            }
            for i in order
        ],
    }
    reason = _too_few(len(rows), detectable) if answer.outcome == "cannot tell" else None
    return out | {"reason": reason, "sentence": _sentence(answer, out, reason, enrolment)}


SHARE = {"share": "shares", "low": "low", "high": "high"}


def _obstacle(
    enrolment: Enrolment, reference: MixtureReference | None, verdict: Verdict, traces: int, limit: str
) -> str | None:
    """Why nothing is stated about shares, if so."""
    if verdict.outcome == "UNKNOWN":
        return NO_SINGLE_SOURCE
    if not verdict.validated:
        return verdict.reason
    if limit:
        return limit
    if reference is None:
        roster = enrolment.facts.get("roster")
        own = "--sample" if roster is None else "LABELLED --name NAME"
        where = f"--roster {roster}" if roster in RELEASE_ROSTERS else own
        return MISSING.format(command=f"python -m jobs enroll {where}")
    return f"fewer than {reference.fewest} traces" if traces < reference.fewest else None


def _unknown(traces: int, reason: str) -> str:
    return f"We cannot say whether one source wrote the {_many(traces)}: {reason}."


def _many(traces: int) -> str:
    return f"{traces:,} trace{'s' if traces != 1 else ''}"


def _too_few(traces: int, detectable: float | None) -> str:
    if detectable is None:
        return f"{traces:,} are too few to see even half of them come from elsewhere"
    return f"of {traces:,} only a share of {_percent(detectable)} or more from elsewhere can be seen"


def _sentence(answer: MixtureAnswer, found: Mapping[str, Any], reason: str | None, enrolment: Enrolment) -> str:
    many, source, subject = _many(found["traces"]), *(enrolment.name_of(found[one]) for one in ("source", "subject"))
    of = "" if found["looked"] == found["traces"] else f" ({found['looked']:,} of them, evenly drawn, count here)"
    refused = "" if source == subject else f"Not all of them come from {subject} ({p_words(found['p'])}). "
    if reason is not None:
        return refused + _unknown(found["traces"], reason)
    if answer.outcome == "one source":
        return (
            f"{refused}{source} alone can have written the {many}{of}: a share of {_percent(found['detectable'])} "
            f"from elsewhere would be seen in {100 * POWER:.0f} % of such cases."
        )
    rows = [row for row in found["shares"] if row["share"] >= LEAST][:NAMED]
    named = [row | {"source": enrolment.name_of(row["source"])} for row in rows]
    shares = ", ".join(
        f"{row['source']} {_percent(row['share'])} ({_percent(row['low'])} to {_percent(row['high'])})" for row in named
    )
    return f"No single enrolled source wrote the {many}{of} ({p_words(found['p_any'])}): {shares}."


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
