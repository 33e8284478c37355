"""Check a report against itself, and against a second run of its traces.

Its hashes and steps repeat parts of it. In a second run the same engine gives every log-posterior again, bit for bit,
another one within a stated tolerance. All else follows from log-posteriors, enrolment and file, and has to be the same
to the last word.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from html import unescape
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
from jinja2 import TemplateError

from backend.attribution.background import Background
from backend.attribution.report import FORMAT, START, digest, log_posteriors_of, reader_row, results_of, trace_rows
from backend.attribution.report_page import write_html
from backend.attribution.report_words import in_words, verdict_words, with_names
from backend.attribution.run import answer, checked
from backend.attribution.scoring import UNSELECTED, Scored, Selection
from backend.attribution.settings import DAMAGED, DEFAULTS, Report, Settings, settings_of, unreadable_if_damaged
from backend.enrolment.enrolment import Enrolment
from backend.errors import AtlasError, ChangedResultError, OtherResultError
from backend.inference.domain_shift import Traffic
from backend.inference.likelihood_ratios import LN10
from backend.inference.verdict import REST
from backend.intake import Columns, Layout, Limits, Received, inspect, trace_hash
from backend.intake.traces import MOST_VALUES, TooManyValuesError, parse_json, short, visible
from backend.store.builds import code_version

STEP = ("number", "step", "at", "details", "previous", "sha256")  # nothing else is shown of a step, or may be in it
NEEDED = (
    "traces", "results", "method", "steps", "sha256", "reference", "exclusions", "input", "log_posteriors", "heat_maps",
)  # fmt: skip
OTHER_ENGINE = 0.25  # nats by which a log-posterior of another processor or type of products may differ
PAINT = 0.1
"""What token evidence of another engine may differ by: the root mean square of the differences relative to that of the
map, and any one of them relative to its largest piece. Products in float32 and bfloat16 differ by 0.017 and 0.032."""
SPREAD = 0.05  # by another engine: share of the effective number of sources, and largest share of one
LANDED = 0.005  # of a cosine; products in float32 and bfloat16 differ by 0.002 for one trace, by 0.001 for ten
EXACT = 1e-6  # largest difference of two numbers that are the same; relative to those beyond 1
STRICT = ("verdict", "level", "subject", "leader", "calibrated", "flags")  # what must be the same whatever computed it
BEFORE = 20  # characters that are shown before the first one in which two texts differ
SENTENCES = 12  # differences that are named one by one
LAST_HASH = re.compile(r"\(step \d+ \(report\), results\)$")
DATA = '<template id="report-data">'  # what holds the JSON of a report in its page
OWN_HASH = "The report's own sha256 does not agree: something in it was changed"
UNRECORDED = "The results are not those that the last step recorded"
OTHER_CODE = (
    "Other code wrote this page. The data in it were checked, and not what the page shows of them: what it shows may "
    "have been changed."
)
PAGE = (
    "The page is not, character for character, what the data in it give: it was changed, or a browser saved it anew. "
    "All else here is about the data"
)
CONFUSION = {"source": "str", "named": "str", "traces": "int", "count": "int", "groups": "int"}
ALARM = {"watch": "str", "number": "int", "traces": "int", "first": "int", "log10_e": "float", "rate": "float"}
# Parts that only the author can know, or that are compared in a way of their own.
APART = frozenset(
    {
        *("created", "command", "steps", "sha256", "input", "exclusions", "log_posteriors", "heat_maps", "session"),
        *("background", "alarm", "confusions", "in_words"),
    }
)
# What a trace has only from its file.
IN_THE_FILE = frozenset({"place", "turn", "time", "label", "name", "requested", "returned"})
Slack = Callable[[str, float], float]  # name of a number and its value now to the difference that it may have


def fitting(
    settings: Settings, sha256: Any, stream: BinaryIO, name: str, limits: Limits, encoding: str | None = None
) -> tuple[Settings, Layout]:
    """The settings for a file that may hold the same traces in another way, and what that file is.

    What does not fit it is recognised anew.

    sha256 : of the report's own file, whose encoding need not be that of another one.
    encoding : of the file that is here, where a person names it.
    """
    given = settings if encoding is None else replace(settings, encoding=encoding)
    try:
        layout = inspect(stream, name, given.columns, limits, given.encoding)
        if encoding is not None or layout.sha256 == sha256:
            return given, layout
        given = replace(given, encoding=None)
    except AtlasError:
        given = replace(given, columns=Columns(), encoding=encoding)
    return given, inspect(stream, name, given.columns, limits, given.encoding)


@unreadable_if_damaged()
def selection_for(report: Report, sha256: str, limits: Limits) -> Selection:
    """The traces that a report has to be about.

    In its own file, those that an audit takes, whatever the report lists; of a report that somebody stopped, the first
    of them. In another file (``sha256``), those of the same hashes, as often as the report counts them.
    """
    rule = report["input"]["selection"]
    stopped = report["results"]["complete"] is False
    remaining = Counter(str(trace["sha256"]) for trace in report["traces"])
    numbers = itertools.count()
    keep, text = bool(rule["keep_duplicates"]), limits.text if report["heat_maps"] else 0
    own, characters, most = sha256 == report["input"]["sha256"], int(rule["characters"]), len(report["traces"])

    def listed(trace: Received) -> bool:
        remaining[trace.sha256] -= 1
        return remaining[trace.sha256] >= 0

    if own:
        first = (lambda _: next(numbers) < most) if stopped else None
        return Selection(keep, includes=first, characters=characters, text=text)
    return Selection(keep, includes=listed, text=text)


def rederived(
    report: Report,
    again: Report,
    enrolment: Enrolment,
    mean: npt.NDArray[np.float64],
    background: Background | None = None,
) -> dict[str, Any]:
    """Results (with the row of the report's own reader only) and traces that follow from a report's log-posteriors.

    again : of a second run of the same traces, for what comes from their text; mean : (2 d,) its mean fingerprint.
    background : that balanced the scores of the second run.
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
    findings = answer(scored, enrolment, settings, prior, background)
    rows = trace_rows(scored, enrolment, findings)
    follows: dict[str, Any] = {
        "results": results_of(scored, enrolment, findings) | {"readers": [reader_row(enrolment, scored, findings)]},
        "traces": [trace | row for trace, row in zip(again["traces"], rows, strict=True)],
    }
    out: dict[str, Any] = json.loads(json.dumps(follows))
    return out


def broken_step(steps: Sequence[Mapping[str, Any]]) -> int | None:
    """Number (from 1) of the first step that does not follow from those before it; None when all follow."""
    previous = START
    for number, entry in enumerate(steps, start=1):
        rest = {key: value for key, value in entry.items() if key != "sha256"}
        fits = entry.get("previous") == previous and entry.get("number") == number
        if not fits or entry.get("sha256") != digest(rest):
            return number
        previous = entry["sha256"]
    return None


def wrong_steps(report: Report) -> Iterator[str]:
    """Sentences about a chain that is broken, is none of such a report, or disagrees with the report."""
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
            yield UNRECORDED
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


def steps_of(report: Report) -> list[tuple[str, dict[str, Any]]]:
    """Name and details of every step that a report must have, in order, out of the report itself."""
    file, results, method, reference = (report[part] for part in ("input", "results", "method", "reference"))
    question = {name: report[name] for name in ("case", "question")}
    question |= {"claimed": results["claimed"], "prior": reference["prior"]}
    if "candidates" in reference:
        question["candidates"] = reference["candidates"]
    scores = {"engine": method["engine"], "complete": results["complete"]}
    scores |= {"log_posteriors": digest(report["log_posteriors"])}
    further = [{"enrolment": row["enrolment_sha256"], "engine": row["engine"]} for row in results["readers"][1:]]
    pool = report.get("background")
    counts = ("sha256", "responses", "repeated", "questioned")
    return [
        ("file", {key: file[key] for key in ("sha256", "size", "columns")} | {"session": report["session"]}),
        ("question", question),
        ("enrolment", {"name": reference["enrolment"], "sha256": method["enrolment_sha256"]}),
        *([] if pool is None else [("background", {key: pool[key] for key in counts})]),
        ("traces", {"sha256": _hashes(report), "excluded": len(report["exclusions"])}),
        *(("scores", details) for details in (scores, *further)),
        ("report", {"results": digest(results), "verdict": results["verdict"]}),
    ]


class Difference(str):
    """A difference in a sentence, with its place and both values."""

    values: tuple[str, str, str]


@dataclass(frozen=True)
class Check:
    """Result of checking a report, by itself or by a second run."""

    found: tuple[str, ...]  # differences, in sentences without a full stop
    notes: tuple[str, ...] = ()  # what somebody should know and what makes nothing unequal
    traces: int = 0  # that were scored again; 0 where the report alone was checked
    verdict: str | None = None  # of the second run
    largest: float | None = None  # largest difference of a trace's log-posterior, in nats
    sha256: str = ""  # of the report, as it says, and so case (its file where nobody named one) and created
    case: str = ""
    created: str = ""
    own_sha256: str = ""  # of the report as it is
    shown: tuple[tuple[str, str], ...] = ()  # texts of its page, and what they should be by its data
    page_unchecked: bool = False  # whether other code wrote its page, so that this could not be compared

    @classmethod
    def of(cls, report: Report, found: Sequence[str], *result: Any) -> Check:
        """The result for a report, with what it says of itself."""
        itself: dict[str, Any] = {name: str(report.get(name, ""))[:400] for name in ("sha256", "case", "created")}
        if itself["case"] == DEFAULTS.case and isinstance(about := report.get("input"), dict):
            itself["case"] = str(about.get("name", ""))[:400]
        itself["own_sha256"] = digest(_without(report, ("sha256",)))
        return cls(tuple(found), *result, **itself)

    @property
    def equal(self) -> bool:
        """Whether nothing was found."""
        return not self.found

    @property
    def differences(self) -> list[str]:
        """What was found apart from the report's own sha256."""
        return [sentence for sentence in self.found if sentence != OWN_HASH]

    @property
    def follow(self) -> list[str]:
        """Differences of the last step's hash, which a change of the results brings."""
        return [one for one in self.differences if one == UNRECORDED or LAST_HASH.search(one)]

    @property
    def page_alone(self) -> bool:
        """Whether the page that holds the report shows something else than its data, of which nothing is wrong."""
        return self.found == (PAGE,)

    @property
    def changed(self) -> bool:
        """Whether the report has another sha256 than it says."""
        return self.sha256 != self.own_sha256


def data_of(text: str) -> str | None:
    """The JSON in the page of a report; None for a text that is no page."""
    if not text.lstrip()[:15].lower().startswith("<!doctype html"):
        return None
    return text.partition(DATA)[2].partition("</template>")[0]


def read_report(text: str, values: int = MOST_VALUES) -> dict[str, Any]:
    """Read a report of this format, JSON or its page, whose values take at most so many bytes by estimate."""
    data = data_of(text)
    if data == "":
        raise AtlasError("This page holds no data of a report", "Save Report (JSON) of the same answer, and give that")
    try:
        report: dict[str, Any] = parse_json(text if data is None else data, values)
    except TooManyValuesError as error:
        raise AtlasError(
            "The report holds too many values", "Check it by command line: python -m jobs verify FILE"
        ) from error
    except (ValueError, RecursionError) as error:
        raise AtlasError("The file is no report", "Give a report as it was saved, HTML or JSON") from error
    if isinstance(report, dict) and {"windows", "reading", "verdict", "sha256"} <= report.keys():
        kind = "Claim against reference" if "rivals" in report else "Two windows"
        whole = digest(_without(report, ("sha256",))) == report["sha256"]
        raise (OtherResultError if whole else ChangedResultError)(
            f"This is a result of {kind}, whose own sha256 {'agrees' if whole else 'does not agree: it was changed'}",
            f"Give its files to {kind} again and compare the numbers",
        )
    version = report.get("format") if isinstance(report, dict) else None
    if isinstance(version, int) and version < FORMAT:
        raise AtlasError(
            f"The report has format {version}: it was made before mixtures of sources were looked for",
            "Make it again: python -m jobs attribute TRACES --report FILE",
        )
    if version is not None and version != FORMAT:
        message = f"The report has format {short(version)}, and this program knows {FORMAT}"
        raise AtlasError(message, "Update the program")
    if version is None or any(key not in report for key in NEEDED):
        raise AtlasError("The file is JSON and no report", "Give a report as it was saved, HTML or JSON")
    return report


def with_page(check: Check, text: str, report: Report) -> Check:
    """The result for a report that was given as its page: also whether that shows what its data say."""
    if data_of(text) is None:
        return check
    if report["method"].get("code_version") != code_version():
        pairs = itertools.zip_longest(_answers(text), _answers(_page_of(report)), fillvalue="")
        answers = tuple(itertools.islice(pairs, SENTENCES))
        return replace(check, notes=(*check.notes, OTHER_CODE), shown=answers, page_unchecked=True)
    page = _page_of(report)
    same = text.replace("\r\n", "\n") == page
    shows = "The page shows its data, character for character as this program writes it."
    return (
        replace(check, notes=(*check.notes, shows))
        if same
        else replace(check, found=(*check.found, PAGE), shown=tuple(changed_texts(text, page)) if page else ())
    )


def _page_of(report: Report) -> str:
    """The page that this code writes of a report; empty where its data give none."""
    try:
        return write_html(report)
    except (*DAMAGED, TemplateError):
        return ""


def _answers(page: str) -> list[str]:
    """The answers that a page shows, in its words."""
    return [" ".join(_texts(f"<body{part.partition('</div>')[0]}")) for part in page.split('<div class="answer')[1:]]


def changed_texts(page: str, expected: str) -> list[tuple[str, str]]:
    """Texts that a page shows, and what another one has in their place, equal pairs once.

    The first alone where one has more of them.
    """
    one, other = (list(_texts(text)) for text in (page, expected))
    pairs = ((first, second) for first, second in itertools.zip_longest(one, other, fillvalue="") if first != second)
    return list(itertools.islice(dict.fromkeys(pairs), SENTENCES if len(one) == len(other) else 1))


def _texts(page: str) -> Iterator[str]:
    """What a page shows, between its tags."""
    body = page.partition("<body")[2].partition(DATA)[0]
    for text in body.split("<"):
        if words := " ".join(unescape(text.partition(">")[2]).split()):
            yield words


@unreadable_if_damaged()
def compared(
    report: Report,
    again: Report,
    enrolment: Enrolment,
    mean: npt.NDArray[np.float64],
    background: Background | None = None,
) -> Check:
    """Compare a report with a second run of its traces: the report, enrolment and mean fingerprint (2 d,) of that.

    background : unlabelled traffic of the second run.
    """
    was, now = log_posteriors_of(report), log_posteriors_of(again)
    same_traces = was.shape == now.shape and _hashes(report) == _hashes(again)
    follows = None
    if not same_engine(report, again) and same_traces and np.isfinite(was).all():
        follows = rederived(report, again, enrolment, mean, background)
    found = *alterations(report), *differences(report, again, follows)
    largest = float(np.abs(was - now).max(initial=0.0)) if was.shape == now.shape else math.inf
    notes, verdict = tuple(_notes(report, again)), verdict_words(again["results"])
    return Check.of(report, found, notes, len(again["traces"]), verdict, largest)


@unreadable_if_damaged()
def alterations(report: Report) -> list[str]:
    """Sentences about a report that does not agree with itself; empty for one that is as it was written."""
    found = []
    if digest(_without(report, ("sha256",))) != report["sha256"]:
        found.append(OWN_HASH)
    found += [*wrong_steps(report), *_wrong_traces(report), *_wrong_words(report)]
    if "alarm" in report:
        found += unlike({key: type(value).__name__ for key, value in report["alarm"].items()}, ALARM, "alarm")
    for number, pair in enumerate(report.get("confusions", ()), start=1):
        found += unlike({key: type(value).__name__ for key, value in pair.items()}, CONFUSION, f"confusions[{number}]")
    if len(report.get("confusions", (1, 2))) != 2:
        found.append("The confusions are not those of two siblings")
    for shown in report["heat_maps"]:
        text = "".join(piece["text"] for piece in shown["pieces"]) + shown["rest"]
        if trace_hash(shown["prompt"], text) != report["traces"][int(shown["number"]) - 1]["sha256"]:
            found.append(f"The text of trace {shown['number']} is not that of its sha256")
        if not abs(sum(piece["value"] for piece in shown["pieces"]) - shown["log_odds"]) <= 1e-3:
            found.append(f"The tokens of trace {shown['number']} do not add up to their log-odds")
    return found


def _wrong_words(report: Report) -> Iterator[str]:
    """Differences of the answer in words from what this code writes; other code may have put it otherwise."""
    if "in_words" in report and report["method"].get("code_version") == code_version():
        yield from unlike(report["in_words"], in_words(report), "in_words")


def _wrong_traces(report: Report) -> Iterator[str]:
    """Sentences about traces that no audit takes from a file, or that every audit takes."""
    rule, times = report["input"]["selection"], Counter(_hashes(report))
    yield from unlike(sorted(rule), ["characters", "keep_duplicates"], "input.selection")
    if not rule["characters"] >= Limits().characters:
        yield f"The report refuses texts of more than {short(rule['characters'])} characters, and no audit does that"
    if not rule["keep_duplicates"] and any(count > 1 for count in times.values()):
        yield "The report says that repeated traces are left out, and counts one more than once"
    excluded = sum(bool(rule["keep_duplicates"]) or entry["sha256"] not in times for entry in report["exclusions"])
    if excluded:
        yield f"{excluded:,} traces were left out that repeat none of those that were scored"


def _notes(report: Report, again: Report) -> Iterator[str]:
    if same_file(report, again):
        yield "The file of traces is the one of the report, byte for byte."
    else:
        yield (
            "The file of traces is not the one of the report, byte for byte; its traces are compared by their "
            "hashes, and what the report says of its own file (what was left out, and why) is not checked."
        )
    n, excluded = len(again["traces"]), len(again["exclusions"])
    at = [entry["place"] for entry in again["exclusions"] if entry["reason"] == UNSELECTED]
    foreign = len(at)
    where = ", ".join(f"{place:,}" for place in at[:SENTENCES]) + ", …" * (len(at) > SENTENCES)
    rest = [
        f"{number:,} {one if number == 1 else more}"
        for number, one, more in (
            (excluded - foreign, "repeats an earlier one", "repeat an earlier one"),
            (foreign, *(f"{verb} not in the report ({again['input']['unit']} {where})" for verb in ("is", "are"))),
            (len(again["input"]["problems"]), "place of the file gives no trace", "places of the file give no trace"),
        )
        if number
    ]
    scored = f"{n:,} {'was' if n == 1 else 'were'} scored"
    if "alarm" in report:
        yield "The alarm is what the watch stated. Its evidence is of more traces than these, and was not checked."
    yield f"Of the {n + excluded:,} traces of the file {'; '.join([scored, *rest])}."
    if "confusions" in report:
        yield "How often its siblings are taken for each other is what the atlas had measured, and was not checked."
    if report["results"]["complete"] is False:
        yield f"The report says that somebody stopped it after {len(report['traces']):,} traces."
    if report["method"].get("code_version") != again["method"]["code_version"]:
        code = short(report["method"].get("code_version"), 60)
        yield f"The report was made by code {code}; this is {again['method']['code_version']}."
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


def differences(report: Report, again: Report, follows: Report | None = None) -> list[str]:
    """What a second run of the same traces gives differently: some sentences, and how many more there are.

    follows : from :func:`rederived`, in the place of what follows from the log-posteriors of the second run.
    """
    found = list(_selection(report, again)) if same_file(report, again) else []
    found += _background(report, again)
    was, there = _hashes(report), _hashes(again)
    if was != there:
        missing = Counter(was) - Counter(there)
        rows = ", ".join(f"{number:,}" for number, sha256 in enumerate(was, start=1) if sha256 in missing)
        gone = f": the file does not hold number {short(rows, 80)} of the report" if missing else ""
        found.append(f"The {len(was):,} traces of the report are not the {len(there):,} that were scored now{gone}")
    else:
        found += _scores(report, again)
        if not same_engine(report, again):  # with the same one all of the results must be the same
            for key in STRICT:
                found += unlike(report["results"][key], again["results"][key], f"results.{key}")
        now = {**again, **(follows or {})}
        found += unlike(_body(report, report, again), _body(now, report, again))
        found = [_by_name(one, with_names(again)["results"]["candidates"]) for one in found]
        found += [*_landing(report, now), *_readers(report, again), *_heat_maps(report, again)]
    more = [f"and {len(found) - SENTENCES:,} more differences"] if len(found) > SENTENCES else []
    return [*found[:SENTENCES], *more]


def _hashes(report: Report) -> list[str]:
    return [trace["sha256"] for trace in report["traces"]]


def same_file(report: Report, again: Report) -> bool:
    """Whether both are about one file, byte for byte."""
    return bool(report["input"]["sha256"] == again["input"]["sha256"])


def same_engine(report: Report, again: Report) -> bool:
    """Whether log-posteriors have to come out bit for bit."""
    return bool(report["method"]["engine"] == again["method"]["engine"])


def exactly(_: str, now: float) -> float:
    """No number may differ."""
    return EXACT * max(1.0, abs(now))


def unlike(was: Any, now: Any, place: str = "", slack: Slack = exactly) -> Iterator[str]:
    """Places at which two values of JSON differ: keys, lengths, types, words, and numbers by more than their slack."""
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in {**now, **was}:
            inner = f"{place}.{key}" if place else str(key)
            if key not in was or key not in now:
                missing = "is missing in this file" if key in now else "is no part of a report"
                yield visible(f"{_place_words(short(inner, 80))} {missing}")
            else:
                yield from unlike(was[key], now[key], inner, slack)
    elif isinstance(was, list) and isinstance(now, list):
        if len(was) != len(now):
            yield _both(f"{len(was):,} entries", f"{len(now):,}", place)
        for number, (one, other) in enumerate(zip(was, now, strict=False), start=1):
            yield from unlike(one, other, f"{place}[{number}]", slack)
    elif type(was) is not type(now) or not (
        abs(was - now) <= slack(place.rpartition(".")[2], now) if isinstance(now, float) else was == now
    ):
        yield _both(*_apart(was, now), place)


def _by_name(found: str, candidates: Sequence[Mapping[str, Any]]) -> str:
    """A difference of a candidate with its name in place of its number."""
    if not isinstance(found, Difference) or not (at := re.match(r"results, candidate (\d+)(?=, )", found.values[0])):
        return found
    if int(at[1]) > len(candidates):
        return found
    place, name = found.values[0], visible(str(candidates[int(at[1]) - 1]["source"]))
    named = f"results, {name}{place[at.end() :]}"
    difference = Difference(found.replace(f"({place})", f"({named})"))
    difference.values = named, *found.values[1:]
    return difference


def _both(was: str, now: str, place: str) -> Difference:
    place = _place_words(place)
    difference = Difference(visible(f"In this file {was}, computed again {now} ({place})"))
    difference.values = visible(place), visible(was), visible(now)
    return difference


def _apart(was: Any, now: Any) -> tuple[str, str]:
    """Two values in words, numbers with as many digits as tell them apart."""
    if isinstance(was, str) and isinstance(now, str):  # long ones from shortly before they part
        alike = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(was, now, strict=False)))
        cut = max(alike - BEFORE, 0)
        return short("…" * bool(cut) + was[cut:]), short("…" * bool(cut) + now[cut:])
    if not (isinstance(was, float) and isinstance(now, float)):
        return ("nothing" if was is None else short(was)), ("nothing" if now is None else short(now))
    pairs = [(f"{was:.{digits}g}", f"{now:.{digits}g}") for digits in (3, 6, 17)]
    one, other = next((pair for pair in pairs if pair[0] != pair[1]), pairs[-1])
    return re.sub(r"^(-?)0\.", r"\1.", one), re.sub(r"^(-?)0\.", r"\1.", other)


def _place_words(place: str) -> str:
    """Where a value of a report stands, as its page names it."""
    words = re.sub(r"s?\[(\d+)\]", r" \1", place).replace("_", " ").replace(".", ", ")
    return words.replace("validation, row", "validation table, row")


def _selection(report: Report, again: Report) -> Iterator[str]:
    """Whether the very same file gives these traces, leaves out the others for these reasons, and has these places."""
    apart = ("name", "problems", "selection")  # a file may be renamed; what was selected is looked at below
    due = _as_written(again["input"], report["input"], "prompts")
    yield from unlike(_without(report["input"], apart), _without(due, apart), "input")
    last = max((trace["place"] for trace in report["traces"]), default=0)
    excluded = [entry for entry in again["exclusions"] if entry["reason"] != UNSELECTED]
    for name, was, now in (
        ("exclusions", report["exclusions"], excluded),
        ("problems", report["input"]["problems"], again["input"]["problems"]),
    ):
        if report["results"]["complete"] is False:
            # What lies behind the trace at which somebody stopped was not looked at.
            now = [e for at, e in enumerate(now) if at < len(was) or e["place"] < last]
        yield from unlike(was, now, name)


def _scores(report: Report, again: Report) -> Iterator[str]:
    was, now = log_posteriors_of(report).astype(np.float64), log_posteriors_of(again).astype(np.float64)
    sources = again["reference"].get("enrolled", again["reference"]["sources"])
    if was.shape != now.shape:
        yield f"The log-posteriors are of {was.shape[1]:,} sources and not of {now.shape[1]:,}"
        return
    allowed = EXACT if same_engine(report, again) else OTHER_ENGINE
    total = allowed * math.sqrt(max(len(was), 1))
    off = np.abs(was - now)
    if (wrong := ~(off <= allowed)).any():
        trace, source = np.argwhere(wrong)[0]
        yield (
            f"The log-posterior of {sources[source]} for trace {trace + 1:,} differs by {off[trace, source]:.4g} nats, "
            f"allowed are {allowed:g}"
        )
    if (wrong := ~(np.abs((was - now).sum(0)) <= total)).any():
        source = int(wrong.argmax())
        yield f"The log-posteriors of {sources[source]} differ by more than {total:.4g} nats in all"


def _body(one: Report, report: Report, again: Report) -> dict[str, Any]:
    """All that follows from log-posteriors, enrolment and file, without what is compared otherwise."""
    of_file = frozenset() if same_file(report, again) else IN_THE_FILE
    stopped = report["results"]["complete"] is False  # a second run scores just as many traces, and is complete
    own = report["results"]["readers"][0]
    results = {**one["results"], "readers": [_as_stored(row, own) for row in one["results"]["readers"][:1]]}
    if stopped and results["complete"]:
        results |= {"complete": False, "next_steps": [REST, *results["next_steps"]]}
    if one["results"].get("lands") and not same_engine(report, again):
        results["lands"] = _without(one["results"]["lands"], ("rows",))
    held, validation = report.get("validation"), one.get("validation")
    return {
        "results": results,
        **_without(one, APART | {"results", "validation"} | ({"answer"} - report.keys())),
        "validation": _as_written(validation, held, "prompts_needed") if held and validation else validation,
        "method": _without(one["method"], ("engine", "code_version")),
        "traces": [_without(trace, of_file) for trace in one["traces"]],
    }


def _without(values: Mapping[str, Any], keys: frozenset[str] | Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in keys}


def _background(report: Report, again: Report) -> Iterator[str]:
    """What was found of the unlabelled traffic, whose file may have another name."""
    was, now = (one.get("background", {}) for one in (report, again))
    numbers = _slack(effective_sources=SPREAD * (now.get("effective_sources") or 1.0), largest_share=SPREAD)
    slack = exactly if same_engine(report, again) else numbers
    yield from unlike(_without(was, ("name",)), _without(now, ("name",)), "background", slack)


def _readers(report: Report, again: Report) -> Iterator[str]:
    """Findings of further readers, whose log-posteriors are not in the report; absent ones are in the notes."""
    rows = {row["enrolment_sha256"]: row for row in again["results"]["readers"][1:]}
    ratio, apart = 2 * OTHER_ENGINE * math.sqrt(len(report["traces"])) / LN10, ("engine",)
    sums = _slack(log10_ratio_others=ratio, low=ratio, high=ratio, probability=0.25, unknown_p=0.1)
    for row in report["results"]["readers"][1:]:
        if (other := rows.get(row["enrolment_sha256"])) is not None:
            slack = exactly if row["engine"] == other["engine"] else sums
            other = _as_stored(other, row)
            yield from unlike(_without(row, apart), _without(other, apart), f"reader {short(row['enrolment'])}", slack)


def _as_stored(row: Mapping[str, Any], stored: Mapping[str, Any]) -> dict[str, Any]:
    """A reader's row in the fields of a stored one: earlier reports do not say what its answer is about."""
    return _as_written(row, stored, "level")


def _as_written(now: Mapping[str, Any], stored: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A part of a report without a key that its stored one, of an earlier report, does not have."""
    return _without(now, () if key in stored else (key,))


def _landing(report: Report, now: Report) -> Iterator[str]:
    """Where the traces land by another engine: cosines may differ a little, and ranks are those of the cosines."""
    lands, there = (one["results"].get("lands") for one in (report, now))
    if not lands or not there or same_engine(report, now):
        return
    rows = lands["rows"]
    fitting = sorted(rows, key=lambda row: -row["cosine"])
    yield from unlike(rows, [row | {"rank": rank} for rank, row in enumerate(fitting, start=1)], "results.lands.rows")
    was, due = ({row["source"]: _without(row, ("rank",)) for row in one["rows"]} for one in (lands, there))
    if len(rows) != len(was):
        yield "The rows of where the traces land name a source more than once"
    yield from unlike(was, due, "results.lands", _slack(cosine=LANDED))


def _slack(**known: float) -> Slack:
    """What may differ by another engine: these numbers by so much, and all others by nothing."""
    return lambda name, now: known.get(name, exactly(name, now))


def _heat_maps(report: Report, again: Report) -> Iterator[str]:
    """Text and token evidence; another engine may find other traces the weightiest, which are named as unchecked."""
    if same_engine(report, again):
        yield from unlike(report["heat_maps"], again["heat_maps"], "heat_maps")
        return
    maps = {shown["number"]: shown for shown in again["heat_maps"]}
    slack = _slack(value=math.inf, log_odds=2 * OTHER_ENGINE, stored=2 * OTHER_ENGINE)  # pieces are compared together
    for shown in report["heat_maps"]:
        if (other := maps.get(shown["number"])) is not None:
            place = f"heat map of trace {other['number']}"
            yield from list(unlike(shown, other, place, slack)) or _painted(shown, other, place)


def _painted(shown: Mapping[str, Any], other: Mapping[str, Any], place: str) -> Iterator[str]:
    """Whether the pieces of two heat maps have the same colours."""
    was, now = (np.array([piece["value"] for piece in one["pieces"]], np.float64) for one in (shown, other))
    for words, far, size in zip(("on the whole", "in a piece"), _sizes(was - now), _sizes(now), strict=True):
        if not far <= PAINT * size + EXACT:
            yield f"{place} differs by {far:.4g} nats {words}, allowed are {PAINT * size:.4g}"


def _sizes(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Root mean square, and the largest without its sign."""
    return math.sqrt(np.square(values).sum() / max(len(values), 1)), float(np.abs(values).max(initial=0.0))
