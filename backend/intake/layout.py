"""Limits, columns, layouts and traces of an intake."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from json.encoder import encode_basestring_ascii
from typing import NamedTuple

from backend.traces import Trace


@dataclass(frozen=True)
class Limits:
    bytes: int = 25_000_000  # of the file as it arrives
    unpacked: int = 100_000_000  # of a gzip file when it is unpacked, and of the columns of Parquet that are read
    document: int = 25_000_000  # of a file that has to be read as a whole (a JSON document, pasted text)
    traces: int = 100_000
    characters: int = 1_000_000  # of one prompt or one response
    text: int = 50_000_000  # characters of all traces that are in memory at a time
    problems: int = 10_000  # bad places after which a file is refused: it is something else then
    lines: int = 5_000_000  # that are not blank
    values: int = 100_000_000  # bytes that the values of one JSON text may take, by estimate
    seconds: float = 5.0  # computing time of one reading of the file


PAGE = Limits()
COMMAND_LINE = Limits(  # for files on the machine, which are walked through line by line
    bytes=200_000_000_000,
    unpacked=1_000_000_000_000,
    document=250_000_000,
    characters=4_000_000,
    text=2_000_000_000,
    lines=10_000_000_000,
    values=2_500_000_000,
    seconds=3_600.0,
)


RECOGNISED = "auto"  # on a command line of several files, a column or an encoding that is recognised


@dataclass(frozen=True)
class Columns:
    """Which column means what; a path into nested records has dots (``response.body.text``).

    Empty where a person wants no column; None where none was recognised.
    """

    response: str | None = None  # none where traces come from a chat log or pasted text
    prompt: str | None = None
    time: str | None = None
    label: str | None = None  # whom the file says the response is from
    name: str | None = None  # the file's own id of the trace

    def named(self) -> dict[str, str]:
        """Roles that have a column; a response has to have one."""
        roles = {role: getattr(self, role) for role in ("response", "prompt", "time", "label", "name")}
        return {role: column for role, column in roles.items() if column or (column is not None and role == "response")}


class Received(NamedTuple):
    """One trace as it came in; ``requested`` and ``returned`` are models, where the file names both or one apart."""

    place: int  # line, row or record, from 1
    turn: int  # number within the place, from 0 (a chat log can hold several answers in one line)
    prompt: str
    response: str
    time: str | None
    label: str | None
    name: str | None
    sha256: str  # see :func:`trace_hash`
    requested: str | None = None
    returned: str | None = None
    group: str | None = None  # value of the layout's group column
    conversation: str | None = None  # that the answer is a turn of, as a log format knows

    @property
    def trace(self) -> Trace:
        return Trace(self.prompt, self.response)


@dataclass(frozen=True, slots=True)
class Problem:
    place: int  # line, row or record, from 1
    column: str | None
    reason: str


@dataclass(frozen=True)
class Layout:
    """What a file is, found out before its traces are read."""

    name: str  # as it was uploaded; never a path
    kind: str  # jsonl, json, csv, parquet, text
    unit: str  # what places count: line, row, record, block
    encoding: str  # with a remark where it was a guess; empty for Parquet
    codec: str  # Python's name of it
    size: int  # bytes as received
    sha256: str  # of those bytes
    packed: bool = False  # whether it is a gzip file
    delimiter: str = ","  # of CSV
    fields: tuple[str, ...] = ()  # columns of the file; empty where there are none
    columns: Columns = field(default_factory=Columns)  # as recognised or given
    mapped: bool = False  # whether a person named the response column; no record is then read as a chat log
    group: str = ""  # column of what belongs together; it is read where labelled traces are split into folds


@dataclass(frozen=True)
class Intake:
    """A file that was read: the preview names what is good, what is bad, and why."""

    layout: Layout
    traces: tuple[Received, ...]
    problems: tuple[Problem, ...]  # every bad place
    duplicates: Mapping[int, int]  # index of a trace to that of the first with the same label, prompt and response
    notes: tuple[str, ...]  # sentences a person should read before anything runs


def trace_hash(prompt: str, response: str) -> str:
    """sha256 of a trace: of the JSON array ``[prompt,response]`` in ASCII, without spaces."""
    text = f"[{encode_basestring_ascii(prompt)},{encode_basestring_ascii(response)}]"
    return hashlib.sha256(text.encode("ascii")).hexdigest()
