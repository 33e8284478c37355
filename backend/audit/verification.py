"""Is a report as it was written, and does a second run of the same traces give it again?

What a report says of itself is checked by its hashes. What it says of the traces is computed again from them: with the
same engine bit for bit, so that every number must be the same; with another one within a stated tolerance.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, BinaryIO

from backend.audit.chain import broken_step, digest
from backend.audit.differences import differences, largest_difference
from backend.audit.intake import Columns, Limits, Received, inspect, trace_hash
from backend.audit.intake.model import short
from backend.audit.report import FORMAT
from backend.audit.selection import Selection
from backend.audit.settings import STOP_LEVEL, Settings
from backend.errors import AtlasError

WANTED = ("traces", "results", "method", "steps", "sha256", "reference", "exclusions", "input")
DAMAGED = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError)
"""What a report that somebody wrote by hand may cause."""


@dataclass(frozen=True)
class Comparison:
    """A report beside a second run.

    Attributes
    ----------
    found : tuple of str
        What is not equal; empty when everything is.
    notes : tuple of str
        What somebody should know and what makes nothing unequal.
    traces : int
    verdict : str
        Of the second run.
    largest : float
        Largest difference of a trace's log-posterior, in nats.
    """

    found: tuple[str, ...]
    notes: tuple[str, ...]
    traces: int
    verdict: str
    largest: float


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
    if not isinstance(report, dict) or any(key not in report for key in WANTED):
        raise AtlasError("The file is JSON and no report", "Give the .json file that was written with the report")
    if report.get("format") != FORMAT:
        raise AtlasError(
            f"The report has format {short(report.get('format'))}, and this program knows {FORMAT}",
            "Update the program",
        )
    return report


def alterations(report: Mapping[str, Any]) -> list[str]:
    """What about a report does not agree with itself; empty for one that was left as it was written.

    Raises
    ------
    AtlasError
        If it is no report at all.
    """
    try:
        return list(_alterations(report))
    except DAMAGED as error:
        raise _unreadable(error) from error


def settings_of(
    report: Mapping[str, Any], enrolment: str, known: Callable[[str], str | None] = lambda _: None
) -> Settings:
    """Settings that give a report again.

    Parameters
    ----------
    report : mapping
    enrolment : str
        Name of the enrolment that has the report's sha256.
    known : callable, optional
        sha256 of an enrolment of a further reader to its name here; None where it is not here.

    Raises
    ------
    AtlasError
        If the report does not say what is needed.
    """
    try:
        results, held = report["results"], report["input"]["columns"]
        columns = Columns(**{role: None if held.get(role) is None else str(held[role]) for role in asdict(Columns())})
        others = [known(str(row["enrolment_sha256"])) for row in results.get("readers", [])[1:]]
        return Settings(
            enrolment=enrolment,
            case=str(report["case"]),
            question=str(report["question"]),
            prior_statement=str(report["reference"]["prior_statement"]),
            claimed=None if results["claimed"] is None else str(results["claimed"]),
            prior=dict(zip(map(str, report["reference"]["sources"]), report["reference"]["prior"], strict=True)),
            keep_duplicates=True,
            # A response column that was recognised is recognised again: naming it would switch chat logs off.
            columns=columns if report["input"]["mapped"] else replace(columns, response=None),
            orders=int(results["spread"]["orders"]),
            seed=int(results["spread"]["seed"]),
            stop_level=float((results.get("stop") or {}).get("error_rate", STOP_LEVEL)),
            also=tuple(name for name in others if name is not None),
        )
    except DAMAGED as error:
        raise _unreadable(error) from error


def fitting(settings: Settings, stream: BinaryIO, name: str, limits: Limits) -> Settings:
    """The settings for a file that may hold the same traces in other columns: what is not there is recognised anew."""
    try:
        inspect(stream, name, settings.columns, limits)
    except AtlasError:
        return replace(settings, columns=Columns())
    return settings


def selection_for(report: Mapping[str, Any]) -> Selection:
    """The traces that a report is about, by their hashes, as often as it counts them.

    Raises
    ------
    AtlasError
        If the report does not say what is needed.
    """
    try:
        left = Counter(str(trace["sha256"]) for trace in report["traces"])
    except DAMAGED as error:
        raise _unreadable(error) from error

    def wanted(trace: Received) -> bool:
        left[trace.sha256] -= 1
        return left[trace.sha256] >= 0

    return Selection(wanted=wanted)


def compared(report: Mapping[str, Any], again: Mapping[str, Any]) -> Comparison:
    """Hold a report against a second run of its traces.

    Raises
    ------
    AtlasError
        If the report does not say what is needed.
    """
    try:
        found = (*alterations(report), *differences(report, again))
        return Comparison(
            found, tuple(_notes(report, again)), len(again["traces"]), again["results"]["verdict"],
            largest_difference(report, again),
        )  # fmt: skip
    except DAMAGED as error:
        raise _unreadable(error) from error


def _alterations(report: Mapping[str, Any]) -> Iterator[str]:
    rest = {key: value for key, value in report.items() if key != "sha256"}
    if digest(rest) != report["sha256"]:
        yield "The report's own sha256 does not agree: something in it was changed"
    if (number := broken_step(report["steps"])) is not None:
        yield f"Step {number} of the chain does not follow from the one before"
    last = report["steps"][-1] if report["steps"] else {}
    if last.get("details", {}).get("results") != digest(report["results"]):
        yield "The results are not those that the last step recorded"
    told = {"traces": [trace["sha256"] for trace in report["traces"]], "file": report["input"].get("sha256")}
    for step in report["steps"]:
        if step["step"] in told and step["details"].get("sha256", told[step["step"]]) != told[step["step"]]:
            yield f"The sha256 of the {step['step']} is not the one that the chain recorded"
    for shown in report.get("heat_maps", []):
        text = "".join(piece["text"] for piece in shown["pieces"]) + shown["rest"]
        if trace_hash(shown["prompt"], text) != report["traces"][int(shown["number"]) - 1]["sha256"]:
            yield f"The text of trace {shown['number']} is not that of its sha256"
        if not abs(sum(piece["value"] for piece in shown["pieces"]) - shown["log_odds"]) <= 1e-3:
            yield f"The tokens of trace {shown['number']} do not add up to their log-odds"


def _notes(report: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[str]:
    if report["input"].get("sha256") == again["input"]["sha256"]:
        yield "The file is the one of the report, byte for byte."
    else:
        yield "The file is not the one of the report, byte for byte; its traces are compared by their hashes."
    if report["method"].get("code_version") != again["method"]["code_version"]:
        yield (
            f"The report was made by code {short(report['method'].get('code_version'), 60)}; "
            f"this is {again['method']['code_version']}."
        )
    if report["method"]["engine"] != again["method"]["engine"]:
        there, here = short(report["method"]["engine"], 80), again["method"]["engine"]
        yield f"The report was computed by {there}; here by {here}."
    read = {row["enrolment_sha256"] for row in again["results"]["readers"]}
    for row in report["results"].get("readers", []):
        if row["enrolment_sha256"] not in read:
            yield f"The further reader {short(row['enrolment'], 80)} is not here, and what it found was not checked."


def _unreadable(error: BaseException) -> AtlasError:
    why = short(str(error) or type(error).__name__, 80)
    return AtlasError(f"The report lacks what is needed to compute it again ({why})", "Give it unchanged")
