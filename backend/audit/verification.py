"""Is a report as it was written, and does a second run of the same traces give it again?"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from backend.audit.chain import broken_step, digest
from backend.audit.report import FORMAT
from backend.errors import AtlasError

TOLERANCE = 0.02
"""Nats by which a trace's log-posterior may differ when the same engine computes it again."""
OTHER_ENGINE = 0.25
"""The same for another processor or another type of products, in nats."""


def read_report(text: str) -> dict[str, Any]:
    """Read a report.

    Raises
    ------
    AtlasError
        If it is no report of this format.
    """
    try:
        report = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AtlasError("The report is no JSON", "Give the .json file that was written with it") from error
    wanted = ("traces", "results", "method", "steps", "sha256", "reference", "exclusions", "input")
    if not isinstance(report, dict) or any(key not in report for key in wanted):
        raise AtlasError("The file is JSON and no report", "Give the .json file that was written with the report")
    if report.get("format") != FORMAT:
        raise AtlasError(
            f"The report has format {report.get('format')!r}, and this program knows {FORMAT}", "Update the program"
        )
    return report


def alterations(report: Mapping[str, Any]) -> list[str]:
    """What about a report does not agree with itself; empty for one that was left as it was written."""
    found = []
    rest = {key: value for key, value in report.items() if key != "sha256"}
    if digest(rest) != report["sha256"]:
        found.append("The report's own sha256 does not agree: something in it was changed")
    if (number := broken_step(report["steps"])) is not None:
        found.append(f"Step {number} of the chain does not follow from the one before")
    last = report["steps"][-1] if report["steps"] else {}
    if last.get("details", {}).get("results") != digest(report["results"]):
        found.append("The results are not those that the last step recorded")
    return found


def differences(report: Mapping[str, Any], again: Mapping[str, Any]) -> list[str]:
    """What a second run of the same traces gives differently; empty when it is equal.

    Log-posteriors may differ by :data:`TOLERANCE` with the same engine and by :data:`OTHER_ENGINE` with another one;
    sums over n traces by that times the square root of n. Everything else must be the same.
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
    for key in ("verdict", "subject", "leader"):
        if report["results"][key] != again["results"][key]:
            found.append(f"{key} was {report['results'][key]} and is {again['results'][key]}")
    return found


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
