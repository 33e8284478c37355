"""From a file to records: JSONL, a JSON document, CSV, Parquet, and pasted text.

Every generator yields a record with its place, or a :class:`Problem` where a place gives none, and goes on. A broken
row of CSV ends after an even number of quotes, the last one at the end of a cell. Any other line may be text within a
cell, so only several rows in succession that fit the header end the loss there.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from backend.errors import AtlasError
from backend.intake.encoding import Arrived, text_of
from backend.intake.layout import COMMAND_LINE, Layout, Limits, Problem
from backend.intake.parquet import Record, read_parquet
from backend.intake.traces import MOST_COLUMNS, Clock, TooManyValuesError, check_names, parse_json, short

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


DELIMITERS = ",;\t|"
VOTERS = 20  # lines that decide together whether a file is one JSON object a line
UNITS = {"jsonl": "line", "json": "record", "csv": "line", "parquet": "row", "text": "block"}
_DASHES = r"-{3,}+[^\S\n]*+(?:\n|\Z)"
_BREAK = re.compile(rf"^[^\S\n]*+{_DASHES}(?:\s*+{_DASHES})*+", re.MULTILINE)
_BLANK_LINES = re.compile(r"(?:[^\S\n]*+\n)*+")
_SPOKEN = re.compile(
    r"^[^\S\n]*+(prompt|question|user|response|answer|assistant)[^\S\n]*+:[ \t]*\n?", re.IGNORECASE | re.MULTILINE
)
# The beginning of a JSON document, and not of ``[Scene: a room]``, ``[1] a source`` or ``{hello}``.
_DOCUMENT = re.compile(r'\s*(?:\{\s*(?:["}]|\Z)|\[[\[\s]*(?:\{\s*(?:["}]|\Z)|["\]]|-?[\d.]+\s*,|\Z))')
_START, _HEADER = 4_096, 1_000_000  # characters of a line that decide about a document, and about a table
_KINDS: Mapping[type | tuple[type, ...], str] = {
    str: "a text", list: "a list", bool: "true or false", (int, float): "a number", type(None): "null",
}  # fmt: skip
_LISTS = {"data", "traces", "records", "rows", "items", "logs", "request_states"}  # where a document has its records
_PROMPTS = {"prompt", "question", "user"}


def kind_of(stream: BinaryIO, arrived: Arrived, name: str, limits: Limits, clock: Clock) -> tuple[str, str]:
    """Kind of a file (jsonl, json, csv, parquet or text) and delimiter of CSV, from its name or its first lines."""
    if not arrived.codec:
        return "parquet", ""
    with text_of(stream, arrived.packed, arrived.codec, "", clock) as text:
        starts: list[str] = []
        votes: list[bool] = []
        first = ""
        # Only beginnings and votes are saved: a line may be long.
        for _, line in filled_lines(text, _line_limit(limits), limits, clock):
            if line is not None:
                first = first if votes else line[:_HEADER].lstrip("\ufeff")
                starts.append(line[:_START].lstrip("\ufeff"))
                votes.append(_is_object(line, limits))
            del line
            if len(votes) == VOTERS:
                break
    ending = name.lower().removesuffix(".gz").rpartition(".")[2]
    document = _DOCUMENT.match("\n".join(starts[:2])) is not None
    # Somebody may call an array .jsonl, or a damaged line come first; an object in the first line is a record.
    several = votes[:1] == [True] or 2 * sum(votes) > len(votes)
    if several or (ending in ("jsonl", "ndjson") and (any(votes) or not document)):
        return "jsonl", ""
    if document or (ending == "json" and first.lstrip()[:1] in ("[", "{")):
        return "json", ""
    if (named := separator(first)) is not None:
        return "csv", named
    delimiter = "\t" if ending == "tsv" else max(DELIMITERS, key=first.count)
    cells = [cell.strip().strip('"').lower() for cell in first.split(delimiter, MOST_COLUMNS)[:MOST_COLUMNS]]
    known = {"response", "completion", "output", "answer", "prompt", "question", "generated_text", "model_output"}
    if ending in ("csv", "tsv") or (ending not in ("txt", "md", "text") and starts[1:] and known & set(cells)):
        return "csv", delimiter if delimiter in first else ","
    return "text", ""


def records(stream: BinaryIO, layout: Layout, limits: Limits, clock: Clock) -> Iterator[Record | Problem]:
    """Records of a file, in order. Raises AtlasError if the file as a whole cannot be read, or takes too long."""
    if layout.kind == "parquet":
        yield from read_parquet(stream, layout, limits, clock)
        return
    newline = "" if layout.kind in ("csv", "jsonl") else None
    with text_of(stream, layout.packed, layout.codec, newline, clock) as text:
        if layout.kind == "jsonl":
            yield from _jsonl(filled_lines(text, _line_limit(limits), limits, clock), limits)
        elif layout.kind == "csv":
            most = 5 * limits.characters  # prompt and response, with every quote doubled, and what stands next to them
            yield from read_table(table_lines(text, most, limits, clock), layout.delimiter, most)
        elif layout.kind == "json":
            yield from _document(text, limits, clock)
        else:
            yield from _pasted(text, limits, clock)


def _jsonl(lines: Iterator[Line], limits: Limits) -> Iterator[Record | Problem]:
    for number, line in lines:
        if line is None:
            yield Problem(number, None, f"the line is longer than {_line_limit(limits):,} characters")
            continue
        try:
            record = parse_json(line.lstrip("\ufeff").rstrip(), limits.values)
        except TooManyValuesError as error:
            yield Problem(number, None, str(error))
        except ValueError as error:
            column = f"character {error.colno}" if isinstance(error, json.JSONDecodeError) else None
            yield Problem(number, column, f"no JSON ({_why(error)})")
        except RecursionError:
            yield Problem(number, None, "no JSON (nested too deeply)")
        else:
            del line  # it may be as large as the record
            yield _record(number, record)
            del record


def _document(text: io.TextIOWrapper, limits: Limits, clock: Clock) -> Iterator[Record | Problem]:
    try:
        document = parse_json(_whole(text, "JSON document", limits).lstrip("\ufeff"), limits.values)
    except TooManyValuesError as error:
        remedy = "Write one JSON object a line (JSONL)"
        raise AtlasError("The JSON document holds too many values to be read as a whole", remedy) from error
    except (ValueError, RecursionError) as error:
        where = f"line {error.lineno}, " if isinstance(error, json.JSONDecodeError) else ""
        problem = f"The file starts like a JSON document and is none ({where}{_why(error)})"
        raise AtlasError(problem, "Export it again, or write one JSON object a line (JSONL)") from error
    if isinstance(document, dict):
        inner = next((value for key, value in document.items() if key in _LISTS), None)
        document = inner if isinstance(inner, list) else [document]
    for number, record in enumerate(document, start=1):
        clock.check(number, "record")
        yield _record(number, record)


def _pasted(text: io.TextIOWrapper, limits: Limits, clock: Clock) -> Iterator[Record | Problem]:
    """Blocks between lines of dashes; in a block, 'Prompt:' and 'Response:' at the start of a line say who speaks."""
    whole = _whole(text, "pasted text", limits)
    most = 5 * limits.characters
    number = start = 0
    while start < len(whole):
        mark = _BREAK.search(whole, start)
        end, following = mark.span() if mark else (len(whole), len(whole))
        blank = _BLANK_LINES.match(whole, start, end)
        block = slice(start if blank is None else blank.end(), end)
        start = following
        clock.check(number, "block", end - start)
        if block.stop - block.start > most:
            number += 1
            yield Problem(number, None, f"the block is longer than {most:,} characters")
        elif (text_of_block := whole[block]).strip():
            number += 1
            yield number, _spoken(text_of_block)


def _spoken(block: str) -> dict[str, Any]:
    """Prompt and response of a block; the first response ends the labels, because what it contains is its own."""
    before = _SPOKEN.match(block)
    if before is None or before[1].lower() not in _PROMPTS:
        return {"response": block[before.end() if before else 0 :].strip("\n")}
    for label in _SPOKEN.finditer(block, before.end()):
        if label[1].lower() not in _PROMPTS:
            prompt, response = block[before.end() : label.start()], block[label.end() :]
            return {"prompt": prompt.strip("\n"), "response": response.strip("\n")}
        before = label
    return {"prompt": block[before.end() :].strip("\n")}


def _whole(text: io.TextIOWrapper, what: str, limits: Limits) -> str:
    whole = text.read(limits.document + 1)
    if len(whole) > limits.document:
        problem = f"A {what} of more than {limits.document:,} characters is not read as a whole"
        raise AtlasError(problem, "Write one JSON object a line (JSONL) instead")
    return whole


def _line_limit(limits: Limits) -> int:
    """Of JSONL: prompt and response, two escapes of six letters for every character, and what stands next to them."""
    return 25 * limits.characters


def _is_object(line: str, limits: Limits) -> bool:
    if line[:_START].lstrip("\ufeff \t")[:1] != "{":
        return False
    if len(line) > _HEADER:  # a parse of all of it tells no more, and is done for its record anyway
        return line[-_START:].rstrip().endswith("}")
    try:
        return isinstance(parse_json(line.lstrip("\ufeff"), limits.values), dict)
    except TooManyValuesError:
        return True
    except (ValueError, RecursionError):
        return False


def _record(number: int, value: Any) -> Record | Problem:
    """A report names problems even where it keeps no text, so this says the kind of what is no record."""
    if isinstance(value, dict):
        return number, value
    words = next(words for kind, words in _KINDS.items() if isinstance(value, kind))
    return Problem(number, None, f"no JSON object but {words}")


def _why(error: BaseException) -> str:
    return error.msg.removesuffix(" at") if isinstance(error, json.JSONDecodeError) else short(str(error), 80)
