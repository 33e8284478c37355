"""Is a report as it was written, and does a second run of the same traces give it again?

What a report says of itself is checked by its hashes. What it says of the traces is computed again from them: with the
same engine bit for bit. Another one may differ by a stated tolerance in log-posteriors only: all else is computed from
those that the report holds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.attribution.audit_log import digest
from backend.attribution.audit_log_check import wrong_steps
from backend.attribution.differences import differences, largest_difference, same_engine, same_file, unlike
from backend.attribution.recompute import DAMAGED, rederived, unreadable
from backend.attribution.report import FORMAT, log_posteriors_of
from backend.attribution.selection import UNASKED
from backend.enrolment.enrolment import Enrolment
from backend.errors import AtlasError
from backend.intake import Limits, trace_hash
from backend.intake.json_text import MOST_VALUES, TooManyValuesError, parse_json
from backend.intake.traces import short

WANTED = (
    "traces", "results", "method", "steps", "sha256", "reference", "exclusions", "input", "log_posteriors", "heat_maps",
)  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """A report beside a second run."""

    found: tuple[str, ...]  # what is not equal; empty when everything is
    notes: tuple[str, ...]  # what somebody should know and what makes nothing unequal
    traces: int
    verdict: str  # of the second run
    largest: float  # largest difference of a log-posterior, in nats


def read_report(text: str, values: int = MOST_VALUES) -> dict[str, Any]:
    """Read a report.

    values : bytes that its values may take, by estimate.
    Raises AtlasError if it is no report of this format.
    """
    try:
        report: dict[str, Any] = parse_json(text, values)
    except TooManyValuesError as error:
        raise AtlasError(
            "The report holds too many values", "Check it by command line: python -m jobs verify FILE"
        ) from error
    except (ValueError, RecursionError) as error:
        raise AtlasError("The report is no JSON", "Give the .json file that was written with it") from error
    told = report.get("format") if isinstance(report, dict) else None
    if isinstance(told, int) and told < FORMAT:
        raise AtlasError(
            f"The report has format {told}: it was made before the kind of traffic was checked",
            "Make it again: python -m jobs attribute TRACES --report FILE",
        )
    if told is not None and told != FORMAT:
        raise AtlasError(f"The report has format {short(told)}, and this program knows {FORMAT}", "Update the program")
    if told is None or any(key not in report for key in WANTED):
        raise AtlasError("The file is JSON and no report", "Give the .json file that was written with the report")
    return report


def alterations(report: Mapping[str, Any]) -> list[str]:
    """What about a report does not agree with itself; empty for one that was left as it was written.

    Raises AtlasError if it is no report at all.
    """
    try:
        return list(_alterations(report))
    except DAMAGED as error:
        raise unreadable(error) from error


def compared(
    report: Mapping[str, Any], again: Mapping[str, Any], enrolment: Enrolment, mean: npt.NDArray[np.float64]
) -> Comparison:
    """Hold a report against a second run of its traces.

    again : the report of the second run, with the traces of :func:`backend.attribution.recompute.selection_for`.
    enrolment : of the second run.
    mean : (2 d,) mean fingerprint of the second run.
    Raises AtlasError if the report does not say what is needed.
    """
    try:
        follows = rederived(report, again, enrolment, mean) if _by_itself(report, again) else None
        found = (*alterations(report), *differences(report, again, follows))
        return Comparison(
            found, tuple(_notes(report, again)), len(again["traces"]), again["results"]["verdict"],
            largest_difference(report, again),
        )  # fmt: skip
    except DAMAGED as error:
        raise unreadable(error) from error


def _by_itself(report: Mapping[str, Any], again: Mapping[str, Any]) -> bool:
    """Whether results follow from the report's own log-posteriors: another engine computed them for these traces."""
    held = log_posteriors_of(report)
    return (
        not same_engine(report, again)
        and held.shape == log_posteriors_of(again).shape
        and bool(np.isfinite(held).all())
        and [trace["sha256"] for trace in report["traces"]] == [trace["sha256"] for trace in again["traces"]]
    )


def _alterations(report: Mapping[str, Any]) -> Iterator[str]:
    rest = {key: value for key, value in report.items() if key != "sha256"}
    if digest(rest) != report["sha256"]:
        yield "The report's own sha256 does not agree: something in it was changed"
    yield from wrong_steps(report)
    yield from _wrong_traces(report)
    for shown in report["heat_maps"]:
        text = "".join(piece["text"] for piece in shown["pieces"]) + shown["rest"]
        if trace_hash(shown["prompt"], text) != report["traces"][int(shown["number"]) - 1]["sha256"]:
            yield f"The text of trace {shown['number']} is not that of its sha256"
        if not abs(sum(piece["value"] for piece in shown["pieces"]) - shown["log_odds"]) <= 1e-3:
            yield f"The tokens of trace {shown['number']} do not add up to their log-odds"


def _wrong_traces(report: Mapping[str, Any]) -> Iterator[str]:
    """What no audit takes from a file, and no audit leaves out."""
    rule, times = report["input"]["selection"], Counter(trace["sha256"] for trace in report["traces"])
    yield from unlike(sorted(rule), ["characters", "keep_duplicates"], "input.selection")
    if not rule["characters"] >= Limits().characters:
        yield f"The report refuses texts of more than {short(rule['characters'])} characters, and no audit does that"
    if not rule["keep_duplicates"] and any(count > 1 for count in times.values()):
        yield "The report says that repeated traces are left out, and counts one more than once"
    left = sum(bool(rule["keep_duplicates"]) or entry["sha256"] not in times for entry in report["exclusions"])
    if left:
        yield f"{left:,} traces were left out that repeat none of those that were scored"


def _notes(report: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[str]:
    if same_file(report, again):
        yield "The file is the one of the report, byte for byte."
    else:
        yield (
            "The file is not the one of the report, byte for byte; its traces are compared by their hashes, and what "
            "the report says of its own file (what was left out, and why) is not checked."
        )
    unasked = sum(entry["reason"] == UNASKED for entry in again["exclusions"])
    n, left = len(again["traces"]), len(again["exclusions"])
    yield (
        f"Of the {n + left:,} traces of the file {n:,} were scored, {left - unasked:,} repeat an earlier one, and "
        f"{unasked:,} are not in the report; {len(again['input']['problems']):,} places give no trace."
    )
    if report["results"]["complete"] is False:
        yield f"The report says that somebody stopped it after {len(report['traces']):,} traces."
    if report["method"].get("code_version") != again["method"]["code_version"]:
        yield (
            f"The report was made by code {short(report['method'].get('code_version'), 60)}; "
            f"this is {again['method']['code_version']}."
        )
    if not same_engine(report, again):
        there, here = short(report["method"]["engine"], 80), again["method"]["engine"]
        ratios = [held["results"]["log10_ratio_others"] for held in (report, again)]
        yield (
            f"The report was computed by {there} and has a log10 ratio of {short(ratios[0])}; here {here} finds "
            f"{ratios[1]:.3f}."
        )
        shown = {held["number"] for held in again["heat_maps"]}
        for held in report["heat_maps"]:
            if held["number"] not in shown:
                yield f"The token evidence of trace {short(held['number'])} was not computed again."
    read = {row["enrolment_sha256"] for row in again["results"]["readers"]}
    for row in report["results"]["readers"]:
        if row["enrolment_sha256"] not in read:
            yield f"The further reader {short(row['enrolment'], 80)} is not here, and what it found was not checked."
