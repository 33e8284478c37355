"""From a file to records: JSONL, a JSON document, CSV, Parquet, and pasted text.

Every generator yields a record with its place, or a :class:`Problem` where a place gives none, and goes on.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from backend.errors import AtlasError
from backend.intake.encoding import Arrived, text_of
from backend.intake.parquet import Record, read_parquet
from backend.intake.tables import MOST_COLUMNS, Line, filled_lines, read_table, separator, table_lines
from backend.intake.traces import Clock, Layout, Limits, Problem, TooManyValuesError, parse_json, short

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
    label, prompt = _SPOKEN.match(block), None
    while label is not None and label[1].lower() in _PROMPTS:
        start = label.end()
        label = _SPOKEN.search(block, start)
        prompt = block[start : label.start() if label else len(block)].strip("\n")
    parts = {} if prompt is None else {"prompt": prompt}
    if label is not None or prompt is None:
        parts["response"] = block[label.end() if label else 0 :].strip("\n")
    return parts


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
    return error.msg if isinstance(error, json.JSONDecodeError) else short(str(error), 80)
