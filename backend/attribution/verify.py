"""Is a report as it was written, and does a second run of the same traces give it again?

What a report says of itself is checked by its hashes and by its steps, each of which repeats a part of it. What it says
of the traces is computed again from them: with the same engine bit for bit. Another one may differ by a stated
tolerance in log-posteriors only: all else is computed from those that the report holds.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from backend.attribution.audit_log import broken_step, digest
from backend.attribution.differences import differences, largest_difference, same_engine, same_file, unlike
from backend.attribution.report import FORMAT, log_posteriors_of, reader_row, results_of, trace_rows
from backend.attribution.run import UNASKED, Selection, checked, weighed
from backend.attribution.scoring import Scored
from backend.attribution.settings import STOP_LEVEL, Settings
from backend.enrolment.enrolment import Enrolment
from backend.errors import AtlasError
from backend.inference.domain_shift import Traffic
from backend.intake import Columns, Limits, Received, inspect, trace_hash
from backend.intake.encoding import encoding_given
from backend.intake.traces import MOST_VALUES, TooManyValuesError, parse_json, short, visible

# What a report that somebody wrote by hand may cause.
DAMAGED = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError)
STEP = ("number", "step", "at", "details", "previous", "sha256")  # nothing else is shown of a step, or may be in it
NEEDED = (
    "traces", "results", "method", "steps", "sha256", "reference", "exclusions", "input", "log_posteriors", "heat_maps",
)  # fmt: skip


def settings_of(
    report: Mapping[str, Any], enrolment: str, known: Callable[[str], str | None] = lambda _: None
) -> Settings:
    """Settings that give a report again.

    enrolment : name of the enrolment that has the report's sha256.
    known : sha256 of an enrolment of a further reader to its name here; None where it is not here.
    """
    try:
        results, names, shown = report["results"], report["input"]["columns"], report["heat_maps"]
        columns = Columns(**{role: None if names.get(role) is None else str(names[role]) for role in asdict(Columns())})
        others = [known(str(row["enrolment_sha256"])) for row in results["readers"][1:]]
        return Settings(
            enrolment=enrolment,
            case=str(report["case"]),
            question=str(report["question"]),
            prior_statement=str(report["reference"]["prior_statement"]),
            claimed=None if results["claimed"] is None else str(results["claimed"]),
            prior=_weights(report["reference"]),
            keep_duplicates=bool(report["input"]["selection"]["keep_duplicates"]),
            # A response column that was recognised is recognised again: naming it would switch chat logs off.
            columns=columns if report["input"]["mapped"] else replace(columns, response=None),
            encoding=encoding_given(str(report["input"].get("encoding"))),
            show=len(shown),
            against=str(shown[0]["rival"]) if shown else None,
            orders=int(results["spread"]["orders"]),
            seed=int(results["spread"]["seed"]),
            stop_level=float((results["stop"] or {}).get("error_rate", STOP_LEVEL)),
            also=tuple(name for name in others if name is not None),
        )
    except DAMAGED as error:
        raise unreadable(error) from error


def _weights(reference: Mapping[str, Any]) -> dict[str, float]:
    """The stated prior of a report, by source; ValueError or OverflowError for what is no positive number."""
    weights = {}
    for source, weight in zip(map(str, reference["sources"]), reference["prior"], strict=True):
        if type(weight) not in (int, float) or not 0 < float(weight) < math.inf:
            raise ValueError(f"the prior of {short(source)} is {short(weight)} and no positive number")
        weights[source] = float(weight)
    return weights


def fitting(
    settings: Settings, sha256: Any, stream: BinaryIO, name: str, limits: Limits, encoding: str | None = None
) -> Settings:
    """The settings for a file that may hold the same traces in another way: what does not fit it is recognised anew.

    sha256 : of the report's own file, as it says; what that was decoded with says nothing of another one.
    encoding : of the file that is here, where a person names it.
    """
    given = settings if encoding is None else replace(settings, encoding=encoding)
    try:
        layout = inspect(stream, name, given.columns, limits, given.encoding)
    except AtlasError:
        return replace(given, columns=Columns(), encoding=encoding)
    return given if encoding is not None or layout.sha256 == sha256 else replace(given, encoding=None)


def selection_for(report: Mapping[str, Any], sha256: str, limits: Limits) -> Selection:
    """The traces that a report has to be about.

    Of its own file these are those that an audit takes, whatever the report says of each; where it says that somebody
    stopped it, the first of them. In another file (``sha256``) they are found by their hashes, as often as the report
    counts them.
    """
    try:
        rule = report["input"]["selection"]
        stopped = report["results"]["complete"] is False
        remaining = Counter(str(trace["sha256"]) for trace in report["traces"])
        numbers = itertools.count()
        keep, text = bool(rule["keep_duplicates"]), limits.text if report["heat_maps"] else 0
        own, characters, most = sha256 == report["input"]["sha256"], int(rule["characters"]), len(report["traces"])
    except DAMAGED as error:
        raise unreadable(error) from error

    def named(trace: Received) -> bool:
        remaining[trace.sha256] -= 1
        return remaining[trace.sha256] >= 0

    if own:
        first = (lambda _: next(numbers) < most) if stopped else None
        return Selection(keep, wanted=first, characters=characters, text=text)
    return Selection(keep, wanted=named, text=text)


def rederived(
    report: Mapping[str, Any], again: Mapping[str, Any], enrolment: Enrolment, mean: npt.NDArray[np.float64]
) -> dict[str, Any]:
    """What follows from the log-posteriors that a report holds: its results, and what it says of every trace.

    again : of a second run of the same traces; what comes from their text is taken from it.
    mean : (2 d,) mean fingerprint of the traces in the second run.
    Returns results (with the row of the report's own reader only) and traces.
    """
    settings = settings_of(report, enrolment.name)
    prior, _ = checked(enrolment, settings)
    scored = Scored(
        log_posteriors=log_posteriors_of(report),
        tokens=np.array([trace["tokens"] for trace in again["traces"]], dtype=np.intp),
        folds=(None,) * len(again["traces"]),
        mean=mean,
        fingerprints=None,
        complete=bool(report["results"]["complete"]),
        seconds=0.0,
        engine=report["method"]["engine"],
        traffic=Traffic(**again["results"]["traffic"]),
    )
    findings = weighed(scored, enrolment, settings, prior)
    rows = trace_rows(scored, enrolment, findings)
    follows: dict[str, Any] = {
        "results": results_of(scored, enrolment, findings) | {"readers": [reader_row(enrolment, scored, findings)]},
        "traces": [trace | row for trace, row in zip(again["traces"], rows, strict=True)],
    }
    out: dict[str, Any] = json.loads(json.dumps(follows))
    return out


def unreadable(error: BaseException) -> AtlasError:
    """What is said of a report that somebody wrote by hand."""
    why = visible(short(str(error) or type(error).__name__, 80))
    return AtlasError(f"The report lacks what is needed to compute it again ({why})", "Give it unchanged")


def wrong_steps(report: Mapping[str, Any]) -> Iterator[str]:
    """Sentences about a chain that is broken, is none of such a report, or says something else than the report."""
    steps, due = report["steps"], steps_of(report)
    if (number := broken_step(steps)) is not None:
        yield f"Step {number} of the chain does not follow from the one before"
    if [step["step"] for step in steps] != [name for name, _ in due]:
        yield f"The chain does not have the steps of such a report ({', '.join(name for name, _ in due)})"
        return
    for number, (step, (name, details)) in enumerate(zip(steps, due, strict=True), start=1):
        recorded, place = step["details"], f"step {number} ({name})"
        yield from unlike(dict.fromkeys(step), dict.fromkeys(STEP), place)
        if not _is_time(step["at"]):
            yield f"The time of {place} is none"
        if name == "report" and recorded.get("results") != details["results"]:
            yield "The results are not those that the last step recorded"
        elif name == "scores":
            seconds = recorded.get("seconds")  # known to nobody but the author
            details = details | {"seconds": float(seconds) if isinstance(seconds, int | float) else 0.0}
        yield from unlike(recorded, details, place)
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
    file, results, method, reference = (report[part] for part in ("input", "results", "method", "reference"))
    question = {name: report[name] for name in ("case", "question")}
    question |= {"claimed": results["claimed"], "prior": reference["prior"]}
    scores = {"engine": method["engine"], "complete": results["complete"]}
    scores |= {"log_posteriors": digest(report["log_posteriors"])}
    further = [{"enrolment": row["enrolment_sha256"], "engine": row["engine"]} for row in results["readers"][1:]]
    return [
        ("file", {key: file[key] for key in ("sha256", "size", "columns")} | {"session": report["session"]}),
        ("question", question),
        ("enrolment", {"name": reference["enrolment"], "sha256": method["enrolment_sha256"]}),
        ("traces", {"sha256": [trace["sha256"] for trace in report["traces"]], "excluded": len(report["exclusions"])}),
        *(("scores", details) for details in (scores, *further)),
        ("report", {"results": digest(results), "verdict": results["verdict"]}),
    ]


@dataclass(frozen=True)
class Comparison:
    """A report next to a second run."""

    found: tuple[str, ...]  # what is not equal; empty when everything is
    notes: tuple[str, ...]  # what somebody should know and what makes nothing unequal
    traces: int
    verdict: str  # of the second run
    largest: float  # largest difference of a log-posterior, in nats


def read_report(text: str, values: int = MOST_VALUES) -> dict[str, Any]:
    """Read a report of this format, whose values take at most so many bytes by estimate."""
    try:
        report: dict[str, Any] = parse_json(text, values)
    except TooManyValuesError as error:
        raise AtlasError(
            "The report holds too many values", "Check it by command line: python -m jobs verify FILE"
        ) from error
    except (ValueError, RecursionError) as error:
        raise AtlasError("The report is no JSON", "Give the .json file that was written with it") from error
    version = report.get("format") if isinstance(report, dict) else None
    if isinstance(version, int) and version < FORMAT:
        raise AtlasError(
            f"The report has format {version}: it was made before the kind of traffic was checked",
            "Make it again: python -m jobs attribute TRACES --report FILE",
        )
    if version is not None and version != FORMAT:
        message = f"The report has format {short(version)}, and this program knows {FORMAT}"
        raise AtlasError(message, "Update the program")
    if version is None or any(key not in report for key in NEEDED):
        raise AtlasError("The file is JSON and no report", "Give the .json file that was written with the report")
    return report


def alterations(report: Mapping[str, Any]) -> list[str]:
    """What about a report does not agree with itself; empty for one that was left as it was written."""
    try:
        return list(_alterations(report))
    except DAMAGED as error:
        raise unreadable(error) from error


def compared(
    report: Mapping[str, Any], again: Mapping[str, Any], enrolment: Enrolment, mean: npt.NDArray[np.float64]
) -> Comparison:
    """Compare a report with a second run of its traces (:func:`selection_for`).

    again, enrolment, mean : report, enrolment and mean fingerprint (2 d,) of the second run.
    """
    try:
        follows = rederived(report, again, enrolment, mean) if _by_itself(report, again) else None
        found, notes = (*alterations(report), *differences(report, again, follows)), tuple(_notes(report, again))
        verdict, largest = again["results"]["verdict"], largest_difference(report, again)
        return Comparison(found, notes, len(again["traces"]), verdict, largest)
    except DAMAGED as error:
        raise unreadable(error) from error


def _by_itself(report: Mapping[str, Any], again: Mapping[str, Any]) -> bool:
    """Whether results follow from the report's own log-posteriors: another engine computed them for these traces."""
    scores = log_posteriors_of(report)
    return (
        not same_engine(report, again)
        and scores.shape == log_posteriors_of(again).shape
        and bool(np.isfinite(scores).all())
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
    excluded = sum(bool(rule["keep_duplicates"]) or entry["sha256"] not in times for entry in report["exclusions"])
    if excluded:
        yield f"{excluded:,} traces were left out that repeat none of those that were scored"


def _notes(report: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[str]:
    if same_file(report, again):
        yield "The file is the one of the report, byte for byte."
    else:
        yield (
            "The file is not the one of the report, byte for byte; its traces are compared by their hashes, and what "
            "the report says of its own file (what was left out, and why) is not checked."
        )
    unasked = sum(entry["reason"] == UNASKED for entry in again["exclusions"])
    n, excluded = len(again["traces"]), len(again["exclusions"])
    yield (
        f"Of the {n + excluded:,} traces of the file {n:,} were scored, {excluded - unasked:,} repeat an earlier one, "
        f"and {unasked:,} are not in the report; {len(again['input']['problems']):,} places give no trace."
    )
    if report["results"]["complete"] is False:
        yield f"The report says that somebody stopped it after {len(report['traces']):,} traces."
    if report["method"].get("code_version") != again["method"]["code_version"]:
        made_by = short(report["method"].get("code_version"), 60)
        yield f"The report was made by code {made_by}; this is {again['method']['code_version']}."
    if not same_engine(report, again):
        there, here = short(report["method"]["engine"], 80), again["method"]["engine"]
        was, now = (one["results"]["log10_ratio_others"] for one in (report, again))
        yield f"The report was computed by {there} and has a log10 ratio of {short(was)}; here {here} finds {now:.3f}."
        shown = {heat_map["number"] for heat_map in again["heat_maps"]}
        for number in (heat_map["number"] for heat_map in report["heat_maps"]):
            if number not in shown:
                yield f"The token evidence of trace {short(number)} was not computed again."
    read = {row["enrolment_sha256"] for row in again["results"]["readers"]}
    for row in report["results"]["readers"]:
        if row["enrolment_sha256"] not in read:
            yield f"The further reader {short(row['enrolment'], 80)} is not here, and what it found was not checked."
