"""From a file to records: JSONL, a JSON document, CSV, Parquet, and text that somebody pasted.

Every generator yields a record with its place, or a :class:`Problem` where a place gives none, and goes on.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from backend.audit.intake.decoding import PIECE, Arrived, text_of
from backend.audit.intake.model import COMMAND_LINE, Layout, Limits, Problem, short
from backend.errors import AtlasError

Record = tuple[int, dict[str, Any]]
DELIMITERS = ",;\t|"
PARQUET_ROWS = 256
"""Rows that are turned into Python at a time; a column may hold one long text many times."""
UNITS = {"jsonl": "line", "json": "record", "csv": "line", "parquet": "row", "text": "block"}
csv.field_size_limit(COMMAND_LINE.characters)  # the module's own limit of 131,072 is that of the whole process
_BREAK = re.compile(r"\s*-{3,}\s*")
_SPOKEN = re.compile(r"\s*(prompt|question|user|response|answer|assistant)\s*:[ \t]*\n?", re.IGNORECASE)
_ASKS = frozenset({"prompt", "question", "user"})


def kind_of(stream: BinaryIO, arrived: Arrived, name: str, limits: Limits) -> tuple[str, str]:
    """Find out what a file is, from what is in it; its name decides only between CSV and pasted text.

    Returns
    -------
    kind : str
        jsonl, json, csv, parquet or text.
    delimiter : str
        Of CSV.
    """
    if not arrived.codec:
        return "parquet", ""
    with text_of(stream, arrived.packed, arrived.codec, None) as text:
        first = next((line for line in _lines(text, limits) if line and line.strip()), "")
        whole_line = len(first) < _line_limit(limits)
        rest = any(line is None or line.strip() for line in itertools.islice(_lines(text, limits), 1000))
    start = first.lstrip("\ufeff \t")[:1]
    if start == "[":
        return "json", ""
    if start == "{":
        # One object over several lines is a document; anything else is read line by line.
        opened = first.rstrip()[-1:] in "{[," and rest and whole_line and _json(first) is None
        return ("json" if opened else "jsonl"), ""
    ending = name.lower().removesuffix(".gz").rpartition(".")[2]
    delimiter = "\t" if ending == "tsv" else max(DELIMITERS, key=first.count)
    cells = [cell.strip().strip('"').lower() for cell in first.split(delimiter)]
    known = {"response", "completion", "output", "answer", "prompt", "question", "generated_text", "model_output"}
    if ending in ("csv", "tsv") or (ending not in ("txt", "md", "text") and rest and known & set(cells)):
        return "csv", delimiter if delimiter in first else ","
    return "text", ""


def records(stream: BinaryIO, layout: Layout, limits: Limits) -> Iterator[Record | Problem]:
    """Records of a file, in order.

    Raises
    ------
    AtlasError
        If the file as a whole cannot be read.
    """
    if layout.kind == "parquet":
        yield from _parquet(stream)
        return
    newline = "" if layout.kind == "csv" else None
    with text_of(stream, layout.packed, layout.codec, newline) as text:
        if layout.kind == "jsonl":
            yield from _jsonl(text, limits)
        elif layout.kind == "csv":
            yield from _csv(text, layout.delimiter)
        else:
            whole = text.read(limits.document + 1)
            if len(whole) > limits.document:
                raise AtlasError(
                    f"A {'JSON document' if layout.kind == 'json' else 'pasted text'} of more than "
                    f"{limits.document:,} characters is not read as a whole",
                    "Write one JSON object a line (JSONL) instead",
                )
            yield from _document(whole) if layout.kind == "json" else _pasted(whole)


def parquet_fields(stream: BinaryIO) -> list[str]:
    """Columns of a Parquet file."""
    try:
        stream.seek(0)
        return [str(name) for name in pq.ParquetFile(stream).schema_arrow.names]
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
        raise _damaged(error) from error


def _jsonl(text: io.TextIOWrapper, limits: Limits) -> Iterator[Record | Problem]:
    for number, line in enumerate(_lines(text, limits), start=1):
        if line is None:
            yield Problem(number, None, f"the line is longer than {_line_limit(limits):,} characters")
        elif line.strip():
            try:
                record = json.loads(line.lstrip("\ufeff").rstrip())
            except ValueError as error:
                yield Problem(number, _column(error), f"no JSON ({_why(error)})")
            except RecursionError:
                yield Problem(number, None, "no JSON (nested too deeply)")
            else:
                yield (number, record) if isinstance(record, dict) else _no_object(number, record)


def _document(text: str) -> Iterator[Record | Problem]:
    try:
        document = json.loads(text.lstrip("\ufeff"))
    except (ValueError, RecursionError) as error:
        where = f"line {error.lineno}, " if isinstance(error, json.JSONDecodeError) else ""
        raise AtlasError(
            f"The file starts like a JSON document and is none ({where}{_why(error)})",
            "Export it again, or write one JSON object a line (JSONL)",
        ) from error
    if isinstance(document, dict):
        inner = [v for k, v in document.items() if k in ("data", "traces", "records", "rows", "items", "logs")]
        document = inner[0] if inner and isinstance(inner[0], list) else [document]
    for number, record in enumerate(document, start=1):
        yield (number, record) if isinstance(record, dict) else _no_object(number, record)


def _csv(text: io.TextIOWrapper, delimiter: str) -> Iterator[Record | Problem]:
    reader = csv.reader(text, delimiter=delimiter, strict=True)
    header: list[str] | None = None
    while True:
        line = reader.line_num + 1
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield Problem(line, None, f"no CSV ({error})")
            continue
        if not row:
            continue
        if header is None:
            header = [cell.strip().lstrip("\ufeff") for cell in row]
            doubled = [name for name in set(header) if header.count(name) > 1]
            if doubled:
                raise AtlasError(f"Two columns are named '{short(doubled[0])}'", "Give every column its own name")
            continue
        if len(row) != len(header):
            yield Problem(line, None, f"{len(row)} cells where the header has {len(header)}")
        else:
            yield line, dict(zip(header, row, strict=True))


def _parquet(stream: BinaryIO) -> Iterator[Record | Problem]:
    number = 0
    try:
        stream.seek(0)
        # A row group may be the whole file: with a buffer its pages come one by one.
        file = pq.ParquetFile(stream, buffer_size=PIECE, pre_buffer=False)
        for batch in file.iter_batches(batch_size=PARQUET_ROWS):
            for record in batch.to_pylist():
                number += 1
                yield number, record
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError, OverflowError) as error:
        raise _damaged(error, number) from error


def _pasted(text: str) -> Iterator[Record | Problem]:
    """Blocks between lines of dashes; in a block, 'Prompt:' and 'Response:' at the start of a line say who speaks."""
    blocks: list[list[str]] = [[]]
    for line in text.split("\n"):
        if _BREAK.fullmatch(line):
            blocks.append([])
        else:
            blocks[-1].append(line)
    for number, lines in enumerate((b for b in blocks if any(line.strip() for line in b)), start=1):
        yield number, _spoken(lines)


def _spoken(lines: Sequence[str]) -> dict[str, Any]:
    parts: dict[str, list[str]] = {}
    current: str | None = None
    for line in lines:
        label = _SPOKEN.match(line)
        role = None if label is None else ("prompt" if label[1].lower() in _ASKS else "response")
        # The first response ends the labels: what it contains is its own.
        if label is not None and role is not None and current != "response" and (current or not parts):
            current = role
            parts[role] = [line[label.end() :]]
        else:
            current = current or "response"
            parts.setdefault(current, []).append(line)
    return {role: "\n".join(said).strip("\n") for role, said in parts.items()}


def _lines(text: io.TextIOWrapper, limits: Limits) -> Iterator[str | None]:
    """Lines without their ends; None for one that is too long, of which only a piece is ever in memory."""
    limit = _line_limit(limits)
    while line := text.readline(limit):
        if len(line) < limit or line.endswith("\n"):
            yield line
            continue
        while piece := text.readline(limit):
            if piece.endswith("\n"):
                break
        yield None


def _line_limit(limits: Limits) -> int:
    return 4 * limits.characters


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _no_object(number: int, record: Any) -> Problem:
    return Problem(number, None, f"no JSON object but {short(record)}")


def _column(error: ValueError) -> str | None:
    return f"character {error.colno}" if isinstance(error, json.JSONDecodeError) else None


def _why(error: BaseException) -> str:
    return error.msg if isinstance(error, json.JSONDecodeError) else short(str(error), 80)


def _damaged(error: BaseException, after: int = 0) -> AtlasError:
    reason = short((str(error) or type(error).__name__).splitlines()[0], 120)
    where = f" after row {after:,}" if after else ""
    return AtlasError(f"The Parquet file cannot be read{where} ({reason})", "Write it again, or export JSONL or CSV")
