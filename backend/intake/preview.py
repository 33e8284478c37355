"""What a file of traces is, before anything runs: the same for the page, the command line and REST."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, BinaryIO

from backend.intake import Columns, Layout, Limits, Problem, inspect, receive
from backend.intake.formats import records
from backend.intake.traces import Clock, Received, look_up, short

ROWS = 20  # traces that a preview shows
SHOWN = 400  # characters of a text that a preview shows
PEEKED = 3  # records that are shown as they are, to choose columns from
SEARCHED = 200  # records among which these are looked for
NAMED = 50  # sources that a preview lists


@dataclass(frozen=True)
class Preview:
    """What a file is, and every place of it that gives no trace; see :class:`backend.intake.Layout`."""

    name: str  # as the file was called; never a path
    kind: str
    unit: str
    encoding: str
    sha256: str
    packed: bool
    size: int  # bytes
    fields: tuple[str, ...]  # columns of the file
    columns: Columns  # which of them means what, as recognised or mapped
    mapped: bool  # whether a person named the response column
    traces: int
    problems: tuple[dict[str, Any], ...]  # place, column, reason of every bad place
    duplicates: tuple[dict[str, int], ...]
    notes: tuple[str, ...]  # sentences a person should read before anything runs
    rows: tuple[dict[str, Any], ...]  # the first traces: place, prompt and response (cut), time, label, name
    labels: tuple[str, ...]  # sources that the file itself names, the first 50


def _row(trace: Received) -> dict[str, Any]:
    texts = {"prompt": short(trace.prompt, SHOWN), "response": short(trace.response, SHOWN)}
    return {"place": trace.place, **texts, "time": trace.time, "label": trace.label, "name": trace.name}


def preview(
    stream: BinaryIO,
    name: str,
    columns: Columns | None = None,
    limits: Limits | None = None,
    encoding: str | None = None,
) -> Preview:
    """Read a file whole and say what is in it; see :func:`backend.intake.receive`."""
    intake = receive(stream, name, columns, limits, encoding)
    layout, traces = intake.layout, intake.traces
    of_file = ("name", "kind", "unit", "encoding", "sha256", "packed", "size", "fields", "columns", "mapped")
    return Preview(
        **{part: getattr(layout, part) for part in of_file},
        traces=len(traces),
        problems=tuple(asdict(problem) for problem in intake.problems),
        duplicates=tuple({"place": traces[i].place, "first": traces[j].place} for i, j in intake.duplicates.items()),
        notes=intake.notes,
        rows=tuple(map(_row, traces[:ROWS])),
        labels=tuple(dict.fromkeys(trace.label for trace in traces if trace.label))[:NAMED],
    )


def peek(
    stream: BinaryIO, name: str, limits: Limits | None = None, encoding: str | None = None
) -> tuple[Layout, list[tuple[int, dict[str, str]]]]:
    """What a file is, and its first records as they are: place, and the text of every column, cut.

    For a person who chooses columns, where none is recognised as the response or another is meant.
    """
    limits = limits or Limits()
    clock = Clock(name, limits)
    layout = inspect(stream, name, None, limits, encoding, clock)
    found = islice(records(stream, layout, limits, clock), SEARCHED)
    entries = islice((entry for entry in found if not isinstance(entry, Problem)), PEEKED)
    return layout, [(place, _cells(record, layout.fields)) for place, record in entries]


def _cells(record: Mapping[str, Any], fields: Sequence[str]) -> dict[str, str]:
    values = {field: look_up(record, field) for field in fields}
    return {field: "" if value is None else short(value, SHOWN) for field, value in values.items()}
