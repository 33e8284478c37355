"""From a file to records: JSONL, a JSON document, CSV, Parquet, and text that somebody pasted.

Every generator yields a record with its place, or a :class:`Problem` where a place gives none, and goes on.
"""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from backend.audit.intake.decoding import Arrived, text_of
from backend.audit.intake.model import Layout, Limits, Problem, short
from backend.audit.intake.parquet import Record, read_parquet
from backend.audit.intake.table import read_table, separator
from backend.errors import AtlasError

DELIMITERS = ",;\t|"
VOTERS = 20
"""Lines that decide together whether a file is one JSON object a line."""
UNITS = {"jsonl": "line", "json": "record", "csv": "line", "parquet": "row", "text": "block"}
_BREAK = re.compile(r"\s*-{3,}\s*")
_SPOKEN = re.compile(r"\s*(prompt|question|user|response|answer|assistant)\s*:[ \t]*\n?", re.IGNORECASE)
_DOCUMENT = re.compile(r'\s*(?:\{\s*(?:["}]|\Z)|\[[\[\s]*(?:\{\s*(?:["}]|\Z)|["\]]|-?[\d.]+\s*,|\Z))')
"""The beginning of a JSON document, and not of ``[Scene: a room]``, ``[1] a source`` or ``{hello}``."""
_START = 4_096
_KINDS: Mapping[type | tuple[type, ...], str] = {
    str: "a text", list: "a list", bool: "true or false", (int, float): "a number", type(None): "null",
}  # fmt: skip
_ASKS = frozenset({"prompt", "question", "user"})


def kind_of(stream: BinaryIO, arrived: Arrived, name: str, limits: Limits) -> tuple[str, str]:
    """Find out what a file is: from its name where that says JSONL, else from its first lines.

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
        filled = (line for line in _lines(text, _line_limit(limits)) if line is not None and line.strip())
        first, second = (next(filled, "").lstrip("\ufeff") for _ in range(2))
        # Only the votes are kept: a line may be long.
        votes = [_is_object(line) for line in (first, second) if line]
        votes += map(_is_object, itertools.islice(filled, VOTERS - 2))
    ending = name.lower().removesuffix(".gz").rpartition(".")[2]
    document = _DOCUMENT.match(f"{first[:_START]}{second[:_START]}") is not None
    # Somebody may call an array .jsonl, or a damaged line come first; an object in the first line is a record.
    if votes[:1] == [True] or 2 * sum(votes) > len(votes):
        return "jsonl", ""
    if ending in ("jsonl", "ndjson") and (any(votes) or not document):
        return "jsonl", ""
    if document or (ending == "json" and first.lstrip()[:1] in ("[", "{")):
        return "json", ""
    if (told := separator(first)) is not None:
        return "csv", told
    delimiter = "\t" if ending == "tsv" else max(DELIMITERS, key=first.count)
    cells = [cell.strip().strip('"').lower() for cell in first.split(delimiter)]
    known = {"response", "completion", "output", "answer", "prompt", "question", "generated_text", "model_output"}
    if ending in ("csv", "tsv") or (ending not in ("txt", "md", "text") and second and known & set(cells)):
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
        yield from read_parquet(stream, layout, limits)
        return
    newline = "" if layout.kind == "csv" else None
    with text_of(stream, layout.packed, layout.codec, newline) as text:
        if layout.kind == "jsonl":
            yield from _jsonl(text, limits)
        elif layout.kind == "csv":
            most = 5 * limits.characters  # prompt and response, with every quote doubled, and what stands beside them
            yield from read_table(_lines(text, most), layout.delimiter, most)
        else:
            whole = text.read(limits.document + 1)
            if len(whole) > limits.document:
                raise AtlasError(
                    f"A {'JSON document' if layout.kind == 'json' else 'pasted text'} of more than "
                    f"{limits.document:,} characters is not read as a whole",
                    "Write one JSON object a line (JSONL) instead",
                )
            yield from _document(whole) if layout.kind == "json" else _pasted(whole)


def _jsonl(text: io.TextIOWrapper, limits: Limits) -> Iterator[Record | Problem]:
    for number, line in enumerate(_lines(text, _line_limit(limits)), start=1):
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


def _lines(text: io.TextIOWrapper, limit: int) -> Iterator[str | None]:
    """Lines with their ends; None for one that is too long, of which only a piece is ever in memory."""
    while line := text.readline(limit):
        if len(line) < limit or line.endswith(("\n", "\r")):
            yield line
            continue
        while piece := text.readline(limit):
            if piece.endswith(("\n", "\r")):
                break
        yield None


def _line_limit(limits: Limits) -> int:
    """Of JSONL: prompt and response, two escapes of six letters for every character, and what stands beside them."""
    return 25 * limits.characters


def _is_object(line: str) -> bool:
    if line.lstrip("\ufeff \t")[:1] != "{":
        return False
    try:
        return isinstance(json.loads(line.lstrip("\ufeff")), dict)
    except (ValueError, RecursionError):
        return False


def _no_object(number: int, record: Any) -> Problem:
    """A report names problems even where it keeps no text, so this says the kind and not the value."""
    words = next(words for kind, words in _KINDS.items() if isinstance(record, kind))
    return Problem(number, None, f"no JSON object but {words}")


def _column(error: ValueError) -> str | None:
    return f"character {error.colno}" if isinstance(error, json.JSONDecodeError) else None


def _why(error: BaseException) -> str:
    return error.msg if isinstance(error, json.JSONDecodeError) else short(str(error), 80)
