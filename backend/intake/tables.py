"""CSV, a row at a time; where a row is broken, every lost line is named and no piece of a text becomes a trace.

A broken row does not say where it ends. Quotes come in pairs: after an even number of them, the last one at the end of
a cell, the next line begins a row. Any other line may be text within a cell, so only several rows in succession that
fit the header end the loss there.
"""

from __future__ import annotations

import csv
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from backend.errors import AtlasError
from backend.intake.lines import Line
from backend.intake.traces import COMMAND_LINE, Problem, short

RUN = 10  # rows in succession that fit the header, after which they are rows and not lines of a text
MOST_COLUMNS = 2_000
MOST_LOST = 100_000  # lost lines after which a file is refused: it is something else then
MOST_LINES = 100_000  # lines of one row
MOST_CELLS = 10_000  # cells of a row that are told apart
_QUOTED = re.compile(r'"[^"]*+"?')
_SEPARATOR = re.compile(r'"?sep=([^\w\s"]|\t)"?\s*', re.IGNORECASE)
csv.field_size_limit(COMMAND_LINE.characters)  # the module's own limit of 131,072 is that of the whole process


def separator(line: str) -> str | None:
    """The delimiter that a spreadsheet's first line ``sep=;`` names; None for any other line."""
    found = _SEPARATOR.fullmatch(line.lstrip("\ufeff"))
    return found[1] if found else None


def check_names(names: Sequence[str]) -> None:
    """Refuse columns that nobody can tell apart.

    Raises AtlasError if two have one name, or there are more than :data:`MOST_COLUMNS`.
    """
    if len(names) > MOST_COLUMNS:
        raise AtlasError(
            f"The file has {len(names):,} columns, more than {MOST_COLUMNS:,}", "Leave out those that hold no traces"
        )
    for name, times in Counter(names).items():
        if times > 1:
            raise AtlasError(f"Two columns are named '{short(name)}'", "Give every column its own name")


def read_table(lines: Iterator[Line], delimiter: str, limit: int) -> Iterator[tuple[int, dict[str, str]] | Problem]:
    """Records of a CSV file, each with the line that it begins in.

    lines : iterator of (int, str or None); see :func:`backend.intake.lines.table_lines`.
    delimiter : one character.
    limit : characters of a row.
    Raises AtlasError if the header cannot be read, two columns have one name, there are too many, or too many lines are
        lost.
    """
    reader = _Reader(lines, delimiter, limit)
    width, names = _header(reader)
    loss: _Loss | None = None
    kept: list[_Row] = []
    lost = 0
    while (row := reader.row()) is not None:
        misfit = row.wrong or _misfit(row, width, names)
        if loss is None and not misfit:
            yield row.first, dict(zip(names, row.cells, strict=False))
        elif loss is None and not row.wrong and len(row.lines) == 1:
            if row.cells:
                yield Problem(row.first, None, misfit)
        elif loss is not None and not misfit and reader.is_clean(row):
            kept.append(row)
            # Or as much text as one row may hold: so much is in memory at a time.
            if loss.is_over or len(kept) == RUN or sum(good.size for good in kept) > limit:
                yield loss.problem()
                yield from ((good.first, dict(zip(names, good.cells, strict=False))) for good in kept)
                loss, kept = None, []
        else:
            loss = loss or _Loss(row.first, misfit, delimiter)
            first, *rest = row.lines
            gone = [*(line for good in kept for line in good.lines), first]
            loss.add(gone)
            reader.read_again(rest)
            kept = []
            lost += len(gone)
            if lost > MOST_LOST:
                raise AtlasError(
                    f"More than {MOST_LOST:,} lines of the table are lost (from line {loss.first:,}: {loss.why})",
                    "Write it again, with every quote within a cell doubled",
                )
    if loss is not None:
        loss.add([line for good in kept for line in good.lines])
        yield loss.problem()


@dataclass(frozen=True)
class _Row:
    """A row: its lines, its cells, and what is wrong where they cannot be read."""

    lines: list[Line]
    cells: list[str]
    wrong: str = ""

    @property
    def first(self) -> int:
        return self.lines[0][0]

    @property
    def size(self) -> int:
        return sum(len(line or "") for _, line in self.lines)


@dataclass
class _Loss:
    """Lines that give no row: the first and the last, why, and the quotes in them (None: nobody knows)."""

    first: int
    why: str
    delimiter: str
    last: int = 0
    quotes: int | None = 0
    closed: bool = False

    @property
    def is_over(self) -> bool:
        """Whether the next line begins a row."""
        return self.closed and self.quotes is not None and self.quotes % 2 == 0

    def add(self, lines: Iterable[tuple[int, str | None]]) -> None:
        for number, line in lines:
            if line is None or self.quotes is None:
                self.quotes = None
            elif quotes := line.count('"'):
                self.quotes += quotes
                self.closed = line.rpartition('"')[2].rstrip("\r\n")[:1] in ("", self.delimiter)
            if line is None or line.strip():
                self.last = number

    def problem(self) -> Problem:
        extent = f"; lines {self.first:,}–{self.last:,} are lost" if self.last > self.first else ""
        return Problem(self.first, None, f"{self.why}{extent}")


class _Reader:
    """Rows out of lines; lines of a broken row can be read again.

    Every line is parsed twice at most: a row that is not closed ends at the next line with an odd number of quotes, and
    no line between begins one that is not closed.
    """

    def __init__(self, lines: Iterator[Line], delimiter: str, limit: int) -> None:
        self._source = lines
        self._again: deque[Line] = deque()
        self._delimiter, self._limit = delimiter, limit
        cell = rf'(?:"(?:[^"]++|"")*+"|[^"\r\n{re.escape(delimiter)}]*+)'
        self._clean = re.compile(rf"{cell}(?:{re.escape(delimiter)}{cell})*+[\r\n]*")

    def row(self) -> _Row | None:
        """The next row, or None at the end."""
        taken = self._take()
        if taken is None:
            return None
        line = taken[1]
        too_long = f"the row is longer than {self._limit:,} characters"
        if line is None:
            return _Row([taken], [], too_long)
        if not line.strip("\r\n"):
            return _Row([taken], [])
        lines = [taken]
        cells, wrong = self._parse(lines)
        open_, size = bool(wrong) and line.count('"') % 2 == 1, len(line)
        while open_ and (taken := self._take()) is not None:
            line = taken[1]
            lines.append(taken)
            size += self._limit if line is None else len(line)
            if line is None or size > self._limit:
                return _Row(lines, [], too_long)
            if len(lines) > MOST_LINES:
                return _Row(lines, [], f"the row has more than {MOST_LINES:,} lines")
            if line.count('"') % 2:
                cells, wrong = self._parse(lines)
                open_ = False
        return _Row(lines, cells, wrong)

    def read_again(self, lines: Sequence[Line]) -> None:
        """Put lines back."""
        self._again.extendleft(reversed(lines))

    def is_clean(self, row: _Row) -> bool:
        """Whether every quote of a row stands at the border of a cell."""
        return self._clean.fullmatch("".join(line or "" for _, line in row.lines)) is not None

    def _take(self) -> Line | None:
        return self._again.popleft() if self._again else next(self._source, None)

    def _parse(self, lines: Sequence[Line]) -> tuple[list[str], str]:
        texts = [line or "" for _, line in lines]
        # A reader makes all cells at once, and a line of commas has millions.
        if sum(map(len, texts)) > MOST_CELLS:
            outside = _QUOTED.sub("", "".join(texts))
            if outside.count(self._delimiter) > MOST_CELLS:
                return [""] * (MOST_CELLS + 1), ""
        try:
            rows = list(csv.reader(texts, delimiter=self._delimiter, strict=True))
        except csv.Error as error:
            return [], f"no CSV ({error})"
        return (rows[0], "") if len(rows) == 1 else ([], "no CSV (a quote within a cell)")


def _header(reader: _Reader) -> tuple[int, list[str]]:
    """Cells of a row, and their names without the empty ones at the end."""
    row = _filled(reader)
    if row is not None and len(row.lines) == 1 and separator(row.lines[0][1] or "") is not None:
        row = _filled(reader)
    if row is None:
        return 0, []
    if row.wrong:
        raise AtlasError(
            f"The header cannot be read (line {row.first:,}: {row.wrong})", "Check the quotes in the names of columns"
        )
    if len(row.cells) > MOST_CELLS:
        raise AtlasError(
            f"The header (line {row.first:,}) has more than {MOST_CELLS:,} cells", "Check what separates its columns"
        )
    names = [cell.strip().lstrip("\ufeff") for cell in row.cells]
    width = len(names)
    while names and not names[-1]:
        names.pop()
    check_names(names)
    return width, names


def _filled(reader: _Reader) -> _Row | None:
    """The next row that is not blank."""
    row = reader.row()
    while row is not None and not (row.cells or row.wrong):
        row = reader.row()
    return row


def _misfit(row: _Row, width: int, names: Sequence[str]) -> str:
    """Why a row has not the cells of the header; empty where it has."""
    if len(row.cells) != width:
        many = f"more than {MOST_CELLS:,}" if len(row.cells) > MOST_CELLS else str(len(row.cells))
        return f"{many} cells where the header has {width}"
    return "a cell has no name in the header" if any(row.cells[len(names) :]) else ""
