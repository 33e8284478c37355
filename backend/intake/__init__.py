"""Intake: any file of traces to a list of them, with a preview that names every bad place.

:func:`inspect` says what a file is, :func:`walk` streams its traces, :func:`receive` does both, and :func:`preview`
shows it before anything runs: the same for the page, the command line and REST.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import Any, BinaryIO

from backend.errors import AtlasError
from backend.intake.batches import Requests
from backend.intake.chat_logs import ChatError, Found, Request, Turn
from backend.intake.encoding import arrive
from backend.intake.formats import UNITS, kind_of, records
from backend.intake.layout import COMMAND_LINE, PAGE, Columns, Intake, Layout, Limits, Problem, Received, trace_hash
from backend.intake.log_formats import LogFormat, format_of
from backend.intake.model_names import compare_names
from backend.intake.parquet import parquet_fields
from backend.intake.traces import (
    Clock,
    as_text,
    check_column,
    conversation_column,
    is_remark,
    is_role,
    look_up,
    notes_on_remarks,
    recognise,
    short,
)

__all__ = ["COMMAND_LINE", "Columns", "Intake", "Layout", "Limits", "Preview", "Problem", "Received", "inspect",
           "models_of", "notes_about", "notes_on_models", "peek", "preview", "receive", "trace_hash",
           "walk"]  # fmt: skip

_LOOK = 200  # records whose columns come first: one that only later records have does not take a role from them
_LISTED = 500  # columns that are listed; of as many further ones only those that have the name of a role
_NAME = 1_000  # characters of a column's name; what has a longer one is no column
ROWS = 20  # traces that a preview shows
SHOWN = 400  # characters of a text that a preview shows
PEEKED = 3  # records that are shown as they are, to choose columns from
SEARCHED = 200  # records among which these are looked for
NAMED = 50  # sources and pairs of models that a preview lists
PAIRS = 3  # of requested and returned models, each in a sentence
_COMPARED = {"same": "", "version": ", a version of it", "another": ", which is another model than was requested"}


def inspect(
    stream: BinaryIO,
    name: str,
    columns: Columns | None = None,
    limits: Limits = PAGE,
    encoding: str | None = None,
    clock: Clock | None = None,
) -> Layout:
    """Find out what a file is and which column is the response.

    stream : seekable; it stays open. columns, encoding : what a person named; the rest is recognised.
    Raises AtlasError if it is empty, too large, of no known kind or encoding, or a mapped column does not exist.
    """
    clock = clock or Clock(name, limits)
    arrived = arrive(stream, limits, clock, encoding)
    kind, delimiter = kind_of(stream, arrived, name, limits, clock)
    layout = Layout(short(name, 200), kind, UNITS[kind], **vars(arrived), delimiter=delimiter)
    fields, late = (parquet_fields(stream, limits), []) if kind == "parquet" else _fields(stream, layout, limits, clock)
    mapped = columns is not None and columns.response is not None
    return replace(layout, fields=(*fields, *late), columns=recognise(fields, columns, late), mapped=mapped)


def walk(stream: BinaryIO, layout: Layout, limits: Limits = PAGE) -> Iterator[Received | Problem]:
    """Stream the traces of a file, in its order; nothing but one record is in memory.

    Raises AtlasError if there are more traces or more bad places than the limits allow, or the file breaks off.
    """
    clock = Clock(layout.name, limits)
    for found in _walk(stream, layout, limits, clock):
        clock.pause()
        yield found
        clock.resume()


def _walk(stream: BinaryIO, layout: Layout, limits: Limits, clock: Clock) -> Iterator[Received | Problem]:
    problems = 0
    for found in _found(stream, layout, limits, clock):
        if isinstance(found, Problem):
            problems += 1
            if problems > limits.problems:
                raise _too_bad(layout, found, limits)
        else:
            clock.traces += 1
            if clock.traces > limits.traces:
                last = f"(the last is in {layout.unit} {found.place:,})"
                problem = f"{layout.name} holds more than {limits.traces:,} traces {last}"
                raise AtlasError(problem, "Take a sample of them, or cut it")
            clock.check(found.place, layout.unit, len(found.prompt) + len(found.response))
        yield found
        del found


def _found(stream: BinaryIO, layout: Layout, limits: Limits, clock: Clock) -> Iterator[Received | Problem]:
    requests, plain = Requests(layout.name, limits), layout.mapped or layout.kind == "text"
    for entry in records(stream, layout, limits, clock):
        if isinstance(entry, Problem):
            yield entry
        else:
            yield from _traces(*entry, layout, plain, limits, requests)
        del entry  # one record may fill much of the memory, and so may the next
    yield from requests.unanswered()


def receive(
    stream: BinaryIO,
    name: str,
    columns: Columns | None = None,
    limits: Limits = PAGE,
    encoding: str | None = None,
    group: str | None = None,
) -> Intake:
    """Read a file: its traces, every bad place, duplicates and notes.

    group : column of what belongs together; empty for that of conversations or sessions, if any; by default not read.
    Raises AtlasError as :func:`inspect` and :func:`walk`, and if no trace is in it at all.
    """
    clock = Clock(name, limits)
    layout = inspect(stream, name, columns, limits, encoding, clock)
    if group is not None:
        if group:
            check_column(group, "group", layout.fields)
        layout = replace(layout, group=group or conversation_column(layout.fields))
    traces: list[Received] = []
    problems: list[Problem] = []
    characters = 0
    for found in _walk(stream, layout, limits, clock):
        if isinstance(found, Problem):
            problems.append(found)
            continue
        traces.append(found)
        characters += len(found.prompt) + len(found.response)
        if characters > limits.text:
            problem = f"The traces of {layout.name} hold more than {limits.text:,} characters"
            raise AtlasError(problem, "Run it by command line: python -m jobs attribute FILE, or give fewer traces")
    if not traces:
        raise _nothing(layout, problems)
    first: dict[tuple[str | None, str], int] = {}
    places = (first.setdefault((trace.label, trace.sha256), i) for i, trace in enumerate(traces))
    duplicates = {i: at for i, at in enumerate(places) if at != i}
    return Intake(layout, tuple(traces), tuple(problems), duplicates, notes_of(layout, traces, duplicates))


@dataclass(frozen=True)
class Preview:
    """What a file is, and every place of it that gives no trace; see :class:`Layout`."""

    name: str
    kind: str
    unit: str
    encoding: str
    sha256: str
    packed: bool
    size: int  # bytes
    fields: tuple[str, ...]
    columns: Columns
    mapped: bool
    traces: int
    problems: tuple[dict[str, Any], ...]  # place, column, reason of every bad place
    duplicates: tuple[dict[str, int], ...]
    notes: tuple[str, ...]  # sentences a person should read before anything runs
    rows: tuple[dict[str, Any], ...]  # the first traces: place, prompt and response (cut), time, label, name
    labels: tuple[str, ...]  # sources that the file itself names, the first 50
    models: tuple[dict[str, Any], ...]  # requested and returned models and traces of both, the most frequent first
    claims: tuple[dict[str, Any], ...] = ()  # enrolled sources of these names: source, model, how it is named, traces


def preview(
    stream: BinaryIO, name: str, columns: Columns | None = None, limits: Limits = PAGE, encoding: str | None = None
) -> Preview:
    """Read a file whole and say what is in it; see :func:`receive`."""
    intake = receive(stream, name, columns, limits, encoding)
    layout, traces = intake.layout, intake.traces
    of_file = ("name", "kind", "unit", "encoding", "sha256", "packed", "size", "fields", "columns", "mapped")
    rows = [
        {
            "place": trace.place,
            "prompt": short(trace.prompt, SHOWN),
            "response": short(trace.response, SHOWN),
            **{part: getattr(trace, part) for part in ("time", "label", "name")},
        }
        for trace in traces[:ROWS]
    ]
    return Preview(
        **{part: getattr(layout, part) for part in of_file},
        traces=len(traces),
        problems=tuple(asdict(problem) for problem in intake.problems),
        duplicates=tuple({"place": traces[i].place, "first": traces[j].place} for i, j in intake.duplicates.items()),
        notes=intake.notes,
        rows=tuple(rows),
        labels=tuple(dict.fromkeys(trace.label for trace in traces if trace.label))[:NAMED],
        models=tuple(models_of((trace.requested, trace.returned) for trace in traces)),
    )


def models_of(named: Iterable[tuple[str | None, str | None]]) -> list[dict[str, Any]]:
    """Requested and returned models that traces name, with how many name both, the most frequent first, at most 50."""
    counts = Counter(pair for pair in named if any(pair))
    rows = ({"requested": pair[0], "returned": pair[1], "traces": many} for pair, many in counts.most_common(NAMED))
    return list(rows)


def notes_of(layout: Layout, traces: list[Received], duplicates: Mapping[int, int]) -> tuple[str, ...]:
    """Sentences a person should read before anything runs."""
    notes = []
    if "guess" in layout.encoding:
        notes.append(
            f"The encoding is {layout.encoding}. Check that accented letters look right; if not, name it "
            "(Encoding on the page, --encoding NAME by command line), or save the file as UTF-8."
        )
    if duplicates:
        repeats = "1 trace repeats" if len(duplicates) == 1 else f"{len(duplicates):,} traces repeat"
        notes.append(f"{repeats} an earlier one word for word, which is no new evidence.")
    lengths = [(len(trace.prompt), len(trace.response)) for trace in traces]
    notes += notes_on_models(models_of((trace.requested, trace.returned) for trace in traces), len(traces))
    names = [(trace.name, trace.turn) for trace in traces if trace.name is not None]
    notes += notes_about(lengths, names, {trace.label for trace in traces if trace.label})
    remarks = {role: [getattr(trace, role) for trace in traces] for role in ("time", "label", "name")}
    return (*notes, *notes_on_remarks(remarks))


def notes_on_models(models: Sequence[Mapping[str, Any]], traces: int) -> list[str]:
    """Sentences on requested and returned models (:func:`models_of`) of so many traces; they say a mismatch."""
    notes = []
    pairs = [row for row in models if row["requested"] and row["returned"]]
    for row in pairs[:PAIRS]:
        requested, returned = short(row["requested"]), short(row["returned"])
        note = f"Requested {requested}, returned {returned} in {row['traces']:,} of {traces:,} traces"
        notes.append(f"{note}{_COMPARED[compare_names(row['requested'], row['returned'])]}.")
    if further := pairs[PAIRS:]:
        unequal = sum(compare_names(row["requested"], row["returned"]) == "another" for row in further)
        notes.append(f"{len(further):,} further pairs of requested and returned models, {unequal:,} of other models.")
    return notes


def notes_about(
    lengths: Sequence[tuple[int, int]], names: Sequence[tuple[str, int]], labels: Collection[str]
) -> list[str]:
    """Sentences about traces: characters of every prompt and response, and ids and turns of those that have an id."""
    notes = []
    if empty := sum(not response for _, response in lengths):
        notes.append(f"{empty:,} of {len(lengths):,} traces have an empty response. They count as what they are.")
    if bare := sum(not prompt for prompt, _ in lengths):
        notes.append(
            f"Without a prompt: {bare:,} of {len(lengths):,} traces. A reader that reads responses alone needs none."
        )
    if again := len(names) - len(set(names)):
        have = "1 trace has" if again == 1 else f"{again:,} traces have"
        notes.append(f"{have} the id of an earlier one. All are counted unless they repeat it word for word.")
    if (many := sum(is_remark(label) for label in labels)) > 1:
        notes.append(f"The file names {many:,} different sources or models. One audit asks about one endpoint.")
    return notes


def _fields(stream: BinaryIO, layout: Layout, limits: Limits, clock: Clock) -> tuple[list[str], list[str]]:
    """Columns of the first records, and those that only later ones have."""
    names: dict[str, None] = {}
    early = None
    problems = 0
    for seen, entry in enumerate(records(stream, layout, limits, clock)):
        if seen == _LOOK:
            early = len(names)
        if isinstance(entry, Problem):
            problems += 1
            if problems > limits.problems:
                raise _too_bad(layout, entry, limits)
        else:
            for name in entry[1]:
                if len(name) <= _NAME and (len(names) < _LISTED or (len(names) < 2 * _LISTED and is_role(name))):
                    names[name] = None
            if layout.kind == "csv":
                break  # every record has the columns of the header
        del entry  # it may fill much of the memory, and so may the next
        if seen > limits.traces + limits.problems:
            break  # more than a walk goes through
    return list(names)[:early], list(names)[len(names) if early is None else early :]


def _too_bad(layout: Layout, problem: Problem, limits: Limits) -> AtlasError:
    return AtlasError(
        f"More than {limits.problems:,} {layout.unit}s of {layout.name} give no trace "
        f"(here {layout.unit} {problem.place:,}: {problem.reason})",
        "Check that the file is what you meant to give, and the mapping of its columns",
    )


def _traces(
    place: int, record: Mapping[str, Any], layout: Layout, plain: bool, limits: Limits, requests: Requests
) -> Iterator[Received | Problem]:
    """Answers of a record, by its format, or by columns where it is ``plain``; ``requests`` came before it."""
    columns, log_format = layout.columns, None if plain else format_of(record)
    group, here = _remark(look_up(record, layout.group)), f"{layout.unit} {place}"
    labelled = log_format is not None and log_format.labelled
    for number, turn in enumerate(_turns(log_format, record, columns)):
        if isinstance(turn, ChatError):
            requests.close(turn.key)
            yield Problem(place, turn.column, turn.reason)
            continue
        if isinstance(turn, Request):
            if (problem := requests.add(place, turn)) is not None:
                yield problem
            continue
        if turn.key is not None:
            turn = requests.answer(turn.key, turn)
        time = turn.time if columns.time is None else look_up(record, columns.time)
        own = columns.label is None or (columns.label and labelled)
        label = turn.label if own else look_up(record, columns.label or "")
        name = look_up(record, columns.name or "") if turn.name is None or columns.name == "" else turn.name
        if max(len(turn.prompt), len(turn.response)) > limits.characters:
            role = "prompt" if len(turn.prompt) > limits.characters else "response"
            yield Problem(place, role, f"the {role} is longer than {limits.characters:,} characters")
            continue
        talk = here if turn.conversation is True else _remark(turn.conversation)
        time, label, name = _remark(time), _remark(label), _remark(name)
        models, sha256 = (_remark(turn.requested), _remark(turn.returned)), trace_hash(turn.prompt, turn.response)
        yield Received(place, number, turn.prompt, turn.response, time, label, name, sha256, *models, group, talk)


def _remark(value: Any) -> str | None:
    """A time, label or id as short text; whatever it is, it is never a reason to refuse a trace."""
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    try:
        return short(value if isinstance(value, str) else json.dumps(value, default=str), 200)
    except (ValueError, TypeError, RecursionError):
        return None


def _turns(log_format: LogFormat | None, record: Mapping[str, Any], columns: Columns) -> Iterator[Found]:
    try:
        yield from log_format.turns(record) if log_format else [_by_column(record, columns)]
    except ChatError as error:
        yield error


def _by_column(record: Mapping[str, Any], columns: Columns) -> Turn:
    if columns.response is None:
        raise ChatError(None, "no column holds a response")
    texts = []
    for column in (columns.prompt, columns.response):
        try:
            texts.append(None if column is None else as_text(look_up(record, column)))
        except (TypeError, ValueError) as error:
            raise ChatError(column, short(str(error), 120)) from error
    prompt, response = texts
    if response is None:
        raise ChatError(columns.response, "there is no response")
    return Turn(prompt or "", response)


def _nothing(layout: Layout, problems: list[Problem]) -> AtlasError:
    in_a_form = bool(problems) and problems[0].column is not None
    if layout.fields and layout.columns.response is None and not in_a_form:
        columns = ", ".join(short(field) for field in layout.fields[:20])
        problem = f"No column of {layout.name} is named like a response (its columns are {columns})"
        return AtlasError(problem, "Say which one it is: --response-column NAME, or choose it on the page")
    first = f" ({layout.unit} {problems[0].place:,}: {problems[0].reason})" if problems else ""
    problem = f"There is no trace in {layout.name}{first}"
    return AtlasError(problem, "Give JSONL, CSV, Parquet, a chat log, or plain text")


def peek(
    stream: BinaryIO, name: str, limits: Limits = PAGE, encoding: str | None = None
) -> tuple[Layout, list[tuple[int, dict[str, str]]]]:
    """What a file is, and its first records for a choice of columns: place, and the text of every column, cut."""
    clock = Clock(name, limits)
    layout = inspect(stream, name, None, limits, encoding, clock)
    found = islice(records(stream, layout, limits, clock), SEARCHED)
    entries = islice((entry for entry in found if not isinstance(entry, Problem)), PEEKED)
    shown: list[tuple[int, dict[str, str]]] = []
    for place, record in entries:
        values = {field: look_up(record, field) for field in layout.fields}
        shown.append((place, {field: "" if value is None else short(value, SHOWN) for field, value in values.items()}))
    return layout, shown
