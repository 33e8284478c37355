"""What the steps of a report have to say: each one repeats a part of the report, so that its chain covers that part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from backend.attribution.audit_log import broken_step, digest
from backend.attribution.differences import unlike

KEYS = ("number", "step", "at", "details", "previous", "sha256")
"""Of a step; nothing else is shown of it, and nothing else may be in it."""


def wrong_steps(report: Mapping[str, Any]) -> Iterator[str]:
    """Sentences about a chain that is broken, is none of such a report, or says something else than the report."""
    steps, due = report["steps"], steps_of(report)
    if (number := broken_step(steps)) is not None:
        yield f"Step {number} of the chain does not follow from the one before"
    if [step["step"] for step in steps] != [name for name, _ in due]:
        yield f"The chain does not have the steps of such a report ({', '.join(name for name, _ in due)})"
        return
    for number, (step, (name, details)) in enumerate(zip(steps, due, strict=True), start=1):
        told, place = step["details"], f"step {number} ({name})"
        yield from unlike(dict.fromkeys(step), dict.fromkeys(KEYS), place)
        if not _is_time(step["at"]):
            yield f"The time of {place} is none"
        if name == "report" and told.get("results") != details["results"]:
            yield "The results are not those that the last step recorded"
        elif name == "scores":
            seconds = told.get("seconds")  # known to nobody but the author
            details = details | {"seconds": float(seconds) if isinstance(seconds, int | float) else 0.0}
        yield from unlike(told, details, place)
    if steps[-1]["at"] != report["created"]:
        yield "The report was not made at the time of its last step"


def _is_time(value: Any) -> bool:
    try:
        datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return False
    return True


def steps_of(report: Mapping[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    """Name and details of every step that a report must have, in order, out of the report itself."""
    held, results, method, reference = (report[part] for part in ("input", "results", "method", "reference"))
    scores = {
        "engine": method["engine"],
        "complete": results["complete"],
        "log_posteriors": digest(report["log_posteriors"]),
    }
    further = [{"enrolment": row["enrolment_sha256"], "engine": row["engine"]} for row in results["readers"][1:]]
    return [
        ("file", {key: held[key] for key in ("sha256", "size", "columns")} | {"session": report["session"]}),
        (
            "question",
            {
                "case": report["case"],
                "question": report["question"],
                "claimed": results["claimed"],
                "prior": reference["prior"],
            },
        ),
        ("enrolment", {"name": reference["enrolment"], "sha256": method["enrolment_sha256"]}),
        ("traces", {"sha256": [trace["sha256"] for trace in report["traces"]], "excluded": len(report["exclusions"])}),
        *(("scores", details) for details in (scores, *further)),
        ("report", {"results": digest(results), "verdict": results["verdict"]}),
    ]
