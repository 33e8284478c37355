"""Where a report and a second run of the same traces differ.

With the same engine log-posteriors come out bit for bit, so that every number that follows from them must be the same;
with another one within a stated tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from backend.audit.intake.model import short

TOLERANCE = 0.02
"""Nats by which a trace's log-posterior may differ when the same engine computes it again."""
OTHER_ENGINE = 0.25
"""The same for another processor or another type of products, in nats."""
EXACT = 1e-6
"""Largest difference of two log-posteriors, in nats, below which everything that follows from them must be the same."""
STRICT = ("verdict", "level", "subject", "leader")
"""What must be the same whatever computed it."""
SENTENCES = 12
"""Differences that are named one by one."""
_NATS = frozenset({"log10_ratio_others", "log10_ratio", "low", "middle", "high", "lowest", "highest", "probability"})
_ABOUT = ("place", "turn", "time", "label", "name", "prompt_characters", "response_characters", "tokens")


def differences(report: Mapping[str, Any], again: Mapping[str, Any]) -> list[str]:
    """What a second run of the same traces gives differently; empty when it is equal.

    Log-posteriors may differ by :data:`TOLERANCE` with the same engine and by :data:`OTHER_ENGINE` with another one;
    sums over n traces by that times the square root of n. Where they do not differ, nothing else may either.
    """
    found = []
    same = report["method"]["engine"] == again["method"]["engine"]
    each = TOLERANCE if same else OTHER_ENGINE
    for key in ("enrolment_sha256", "reader", "view", "block", "layers"):
        if report["method"].get(key) != again["method"][key]:
            found.append(f"{key} was {report['method'].get(key)} and is {again['method'][key]}")
    first, second = report["traces"], again["traces"]
    if [trace["sha256"] for trace in first] != [trace["sha256"] for trace in second]:
        return [*found, f"The {len(first):,} traces of the report are not the {len(second):,} that were scored now"]
    for key in ("log_posterior_subject", "log_posterior_rival"):
        off = [(abs(a[key] - b[key]), a["number"]) for a, b in zip(first, second, strict=True)]
        worst, number = max(off, default=(0.0, 0))
        if not worst <= each:
            found.append(f"{key} of trace {number:,} differs by {worst:.4f} nats, allowed are {each}")
    total = each * math.sqrt(max(len(first), 1))
    scores = {row["source"]: row["score"] for row in again["results"]["candidates"]}
    for row in report["results"]["candidates"]:
        difference = abs(row["score"] - scores.get(row["source"], math.inf))
        if not difference <= total:
            found.append(f"The score of {row['source']} differs by {difference:.4f} nats, allowed are {total:.4f}")
            break
    for key in STRICT:
        if report["results"][key] != again["results"][key]:
            found.append(f"{key} was {report['results'][key]} and is {again['results'][key]}")
    largest = largest_difference(report, again)
    follows = list(_unlike(_keyed(report["results"]), _keyed(again["results"]), "results", largest, len(first)))
    follows += list(_reference(report, again))
    if report["input"].get("sha256") == again["input"]["sha256"]:
        follows += list(_file(report, again))
    more = [f"and {len(follows) - SENTENCES:,} more differences"] if len(follows) > SENTENCES else []
    return [*found, *follows[:SENTENCES], *more]


def largest_difference(report: Mapping[str, Any], again: Mapping[str, Any]) -> float:
    """Largest difference of a trace's log-posterior between two runs, in nats."""
    return max(
        (
            abs(a[key] - b[key])
            for a, b in zip(report["traces"], again["traces"], strict=False)
            for key in ("log_posterior_subject", "log_posterior_rival")
        ),
        default=0.0,
    )


def _unlike(was: Any, now: Any, place: str, largest: float, n: int) -> Iterator[str]:
    """Places at which two results differ; only numbers that follow smoothly are compared where scores differ."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in was:
            if key not in ("complete", "engine"):
                yield from _unlike(was[key], now.get(key), f"{place}.{key}", largest, n)
        return
    if isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for number, (one, other) in enumerate(zip(was, now, strict=True), start=1):
            yield from _unlike(one, other, f"{place}[{number}]", largest, n)
        return
    name = place.rpartition(".")[2]
    if isinstance(was, int | float) and isinstance(now, int | float) and not isinstance(was, bool):
        slack = EXACT * max(1.0, abs(was))
        if largest > EXACT:
            slack += 4 * largest * n if name in _NATS else 0.1 if name == "unknown_p" else math.inf
        equal = abs(was - now) <= slack
    else:
        equal = was == now or largest > EXACT
    if not equal:
        yield f"{place} was {short(was)} and is {short(now)}"


def _keyed(results: Mapping[str, Any]) -> dict[str, Any]:
    """Results whose lists can be compared although their order may differ; further readers that were read again."""
    by_source = {row["source"]: {k: v for k, v in row.items() if k != "score"} for row in results["candidates"]}
    by_family = {row["family"]: row for row in results["families"]}
    told = {key: value for key, value in results.items() if key not in (*STRICT, "readers")}
    return {**told, "candidates": by_source, "families": by_family}


def _reference(report: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[str]:
    """What does not come from the traces: names and facts of the enrolment, and what further readers found."""
    for part, key in (("reference", "sources"), ("reference", "families"), ("method", "facts"), ("method", "proxy")):
        if report[part].get(key) != again[part][key]:
            yield f"{key} of the {part} are not those of the enrolment"
    if report["method"].get("code_version") == again["method"]["code_version"]:
        for key in ("validation", "verbal_scale", "limits", "propositions"):
            if report.get(key) != again[key]:
                yield f"{key} was changed"
    held = {row["enrolment_sha256"]: row for row in again["results"]["readers"]}
    for row in report["results"].get("readers", []):
        if (other := held.get(row["enrolment_sha256"])) is not None:
            n = max(int(row["traces"]), 1)
            # Log-posteriors of further readers are not in the report, so their tolerance is that of the engine.
            each = 0.0 if row["engine"] == other["engine"] else OTHER_ENGINE
            yield from _unlike(row, other, f"reader {row['enrolment']}", each, n)


def _file(report: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[str]:
    """What the report says of the very same file: each trace, each bad place, whatever was left out."""
    for one, other in zip(report["traces"], again["traces"], strict=True):
        for key in _ABOUT:
            if one.get(key) != other[key]:
                yield f"{key} of trace {one['number']:,} was {short(one.get(key))} and is {short(other[key])}"
    told = {(entry["place"], entry["turn"], entry["sha256"]) for entry in report["exclusions"]}
    bad = {problem["place"] for problem in report["input"]["problems"]}
    there = {(entry["place"], entry["turn"], entry["sha256"]) for entry in again["exclusions"]}
    if told - there:
        yield f"{len(told - there):,} traces that the report leaves out are not in the file"
    silent = [place for place in sorted(there - told) if place[0] not in bad]
    if silent and report["results"]["complete"]:
        yield f"{len(silent):,} traces of the file are neither scored nor named as left out"
    # How long a trace may be depends on where it was read, so that refusal may differ.
    now = {problem["place"] for problem in again["input"]["problems"] if "longer than" not in problem["reason"]}
    if now - bad and report["results"]["complete"]:
        yield f"{len(now - bad):,} bad places of the file are not named"
