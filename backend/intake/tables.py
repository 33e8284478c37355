"""Lines of a text, and CSV, a row at a time; where a row is broken, every lost line is named.

A broken row ends after an even number of quotes, the last one at the end of a cell. Any other line may be text within a
cell, so only several rows in succession that fit the header end the loss there.
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from backend.errors import AtlasError
from backend.intake.traces import COMMAND_LINE, Clock, Limits, Problem, short

Line = tuple[int, str | None]  # number from 1, and text; None where it is too long
PIECE = 1 << 16
_END = re.compile(r"\r\n?|\n")
_SPACE, _ENDS = re.compile(r"\s*+"), re.compile(r"[\r\n]*+")


def filled_lines(text: io.TextIOWrapper, most: int, limits: Limits, clock: Clock) -> Iterator[Line]:
    """Lines that are not blank, without their ends; of a line only ``most`` characters are ever in memory.

    Raises AtlasError if there are more lines than the limits allow, or reading takes too long.
    """
    for number, line in _lines(text, most, limits, clock, _SPACE):
        if line is None or not line.isspace():
            yield number, line
        del line  # it may be large, and whoever has it now decides how long it stays


def table_lines(text: io.TextIOWrapper, most: int, limits: Limits, clock: Clock) -> Iterator[Line]:
    """Lines with their ends, as :func:`filled_lines`; empty ones in succession come under the number of the first."""
    return _lines(text, most, limits, clock, _ENDS)


def _lines(text: io.TextIOWrapper, most: int, limits: Limits, clock: Clock, blank: re.Pattern[str]) -> Iterator[Line]:
    number, filled, size = 1, 0, 0
    parts: list[str] = []
    for piece in _pieces(text):
        clock.check(number, "line", len(piece))
        at, returns = 0, "\r" in piece
        while at < len(piece):
            if filled > limits.lines:
                raise AtlasError(
                    f"The file has more than {limits.lines:,} lines that are not blank (the last is line {number:,})",
                    "Cut it into parts",
                )
            if not parts and piece[at].isspace() and (stop := _end_of_blanks(piece, at, blank)) > at:
                if blank is _ENDS:
                    yield number, piece[at:stop]
                number += sum(piece.count(end, at, stop) for end in "\r\n") - piece.count("\r\n", at, stop)
                at = stop
                continue
            stop, after = _end_of_line(piece, at, returns)
            size += stop - at
            parts.append(piece[at : after if blank is _ENDS else stop])
            if size > most:
                parts = [""]
            at = after
            if after > stop:
                line = "".join(parts) if size <= most else None
                number, filled, size, parts = number + 1, filled + 1, 0, []
                yield number - 1, line
                del line
    if parts:
        yield number, "".join(parts) if size <= most else None


def _end_of_blanks(piece: str, at: int, blank: re.Pattern[str]) -> int:
    """Where the line begins that is not blank."""
    found = blank.match(piece, at)
    end = at if found is None else found.end()
    return at if end == at else max(at, piece.rfind("\n", at, end) + 1, piece.rfind("\r", at, end) + 1)


def _end_of_line(piece: str, at: int, returns: bool) -> tuple[int, int]:
    """Where a line ends without its end and with it; the same where the piece ends before."""
    if returns:
        found = _END.search(piece, at)
        return found.span() if found else (len(piece), len(piece))
    stop = piece.find("\n", at)
    return (len(piece), len(piece)) if stop < 0 else (stop, stop + 1)


def _pieces(text: io.TextIOWrapper) -> Iterator[str]:
    """The text in pieces, none of which ends between a carriage return and a line feed."""
    rest = ""
    while (fresh := text.read(PIECE)) or rest:
        piece = rest + fresh
        rest = "\r" if fresh and piece.endswith("\r") else ""
        yield piece[: len(piece) - len(rest)]


RUN = 10  # rows in succession that fit the header, after which they are rows and not lines of a text
MOST_COLUMNS = 2_000
MOST_LOST = 100_000  # lost lines after which a file is refused: it is something else then
MOST_LINES = 100_000  # lines of one row
MOST_CELLS = 10_000  # cells of a row that are counted
_QUOTED = re.compile(r'"[^"]*+"?')
_SEPARATOR = re.compile(r'"?sep=([^\w\s"]|\t)"?\s*', re.IGNORECASE)
csv.field_size_limit(COMMAND_LINE.characters)  # the module's own limit of 131,072 is that of the whole process


def separator(line: str) -> str | None:
    """The delimiter that a spreadsheet's first line ``sep=;`` names; None for any other line."""
    found = _SEPARATOR.fullmatch(line.lstrip("\ufeff"))
    return found[1] if found else None


def check_names(names: Sequence[str]) -> None:
    """Raise AtlasError if two columns have one name, or there are more than :data:`MOST_COLUMNS`."""
    if len(names) > MOST_COLUMNS:
        problem = f"The file has {len(names):,} columns, more than {MOST_COLUMNS:,}"
        raise AtlasError(problem, "Leave out those that hold no traces")
    for name, times in Counter(names).items():
        if times > 1:
            raise AtlasError(f"Two columns are named '{short(name)}'", "Give every column its own name")


def read_table(lines: Iterator[Line], delimiter: str, limit: int) -> Iterator[tuple[int, dict[str, str]] | Problem]:
    """Records of a CSV file, each with the line that it begins in; a row has at most ``limit`` characters.

    Raises AtlasError if the header cannot be read, or too many lines are lost.
    """
    reader = _Reader(lines, delimiter, limit)
    width, names = _header(reader)
    loss: _Loss | None = None
    fitting: list[_Row] = []
    lost = 0
    while (row := reader.row()) is not None:
        misfit = row.wrong or _misfit(row, width, names)
        if loss is None and not misfit:
            yield row.first, dict(zip(names, row.cells, strict=False))
        elif loss is None and not row.wrong and len(row.lines) == 1:
            if row.cells:
                yield Problem(row.first, None, misfit)
        elif loss is not None and not misfit and reader.is_clean(row):
            fitting.append(row)
            # Or as much text as one row may hold: so much is in memory at a time.
            if loss.is_over or len(fitting) == RUN or sum(good.size for good in fitting) > limit:
                yield loss.problem()
                yield from ((good.first, dict(zip(names, good.cells, strict=False))) for good in fitting)
                loss, fitting = None, []
        else:
            loss = loss or _Loss(row.first, misfit, delimiter)
            first, *rest = row.lines
            gone = [*(line for good in fitting for line in good.lines), first]
            loss.add(gone)
            reader.read_again(rest)
            fitting = []
            lost += len(gone)
            if lost > MOST_LOST:
                problem = f"More than {MOST_LOST:,} lines of the table are lost (from line {loss.first:,}: {loss.why})"
                raise AtlasError(problem, "Write it again, with every quote within a cell doubled")
    if loss is not None:
        loss.add([line for good in fitting for line in good.lines])
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
    """Cells of the header, and their names without the empty ones at the end."""
    row = _filled(reader)
    if row is not None and len(row.lines) == 1 and separator(row.lines[0][1] or "") is not None:
        row = _filled(reader)
    if row is None:
        return 0, []
    if row.wrong:
        problem = f"The header cannot be read (line {row.first:,}: {row.wrong})"
        raise AtlasError(problem, "Check the quotes in the names of columns")
    if len(row.cells) > MOST_CELLS:
        problem = f"The header (line {row.first:,}) has more than {MOST_CELLS:,} cells"
        raise AtlasError(problem, "Check what separates its columns")
    names = [cell.strip().lstrip("\ufeff") for cell in row.cells]
    width = len(names)
    while names and not names[-1]:
        names.pop()
    check_names(names)
    return width, names


def _filled(reader: _Reader) -> _Row | None:
    while (row := reader.row()) is not None and not (row.cells or row.wrong):
        pass  # it is blank
    return row


def _misfit(row: _Row, width: int, names: Sequence[str]) -> str:
    """Why a row has not the cells of the header; empty where it has."""
    if len(row.cells) != width:
        many = f"more than {MOST_CELLS:,}" if len(row.cells) > MOST_CELLS else str(len(row.cells))
        return f"{many} cells where the header has {width}"
    return "a cell has no name in the header" if any(row.cells[len(names) :]) else ""
