"""Bodies of requests: large ones are read one at a time, and JSON is measured before it is parsed.

A parser holds the interpreter until it is done, and a body becomes many times its bytes, so its values are counted
first. Whoever comes while others wait already gets 429.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import numpy as np
from flask import Request

from atlas.api.problems import RefusedError
from backend.intake.traces import BREAK, outside_strings, whole
from backend.service.uploads import Turns

JSON = "application/json"
SMALL = 64 * 2**10  # bytes that any request may have, with or without a token
LARGE = 2**20  # bytes from which bodies are read one at a time
VALUES = 1_250_000  # commas, colons and brackets of a JSON body: 100,000 traces with all their fields
WIDE = 8_000_000
"""Bytes of a JSON body with characters beyond U+FFFF: each of its texts may take four bytes a character."""
DEPTH = 200
BLOCK = 2**20
_WIDE = re.compile(rb"[\xf0-\xf4]|\\u[dD][89abAB]")
turns = Turns(places=1, waiting=2, seconds=10)


@contextmanager
def turn(request: Request) -> Iterator[None]:
    """Wait for the turn of a large body; raises BusyError if others wait already."""
    if request.content_length is not None and request.content_length <= LARGE:
        yield
        return
    with turns.turn("Others send large files at this moment"):
        yield


def read_json(request: Request, values: int = VALUES, wide: int = WIDE) -> Any:
    """The JSON body of a request; surrogate pairs become their character.

    Raises RefusedError: 400 where it is no JSON or nested too deeply, 413 where it holds more values than are taken.
    """
    raw = request.get_data(cache=False)
    if len(raw) > SMALL:
        count, depth = measure(raw)
        if depth > DEPTH:
            raise _no_json(f" (it is nested {depth:,} deep)")
        if count > values:
            raise _too_large(f"The body holds more than {values:,} values.")
        if len(raw) > wide and is_wide(raw):
            about = "bytes and characters beyond U+FFFF, with which"
            raise _too_large(f"The body has {len(raw):,} {about} {wide:,} are taken.")
    try:
        escaped = b"\\u" in raw.lower()
        text = raw.decode(json.detect_encoding(raw), "surrogatepass")
        del raw  # the text may take four times its bytes
        value = json.loads(text, parse_constant=no_number)
        if len(text) > LARGE:
            time.sleep(BREAK)  # others get the interpreter, which the parser has held
        return _whole(value) if escaped else value
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise _no_json(where) from error


def measure(raw: bytes) -> tuple[int, int]:
    """Commas, colons and opening brackets outside strings, and the depth; a block at a time."""
    count = depth = deepest = 0
    for codes in outside_strings(raw[start : start + BLOCK] for start in range(0, len(raw), BLOCK)):
        opened, closed = ((codes == a) | (codes == b) for a, b in (b"[{", b"]}"))
        count += int(opened.sum() + (codes == ord(",")).sum() + (codes == ord(":")).sum())
        steps = np.cumsum(opened.astype(np.int32) - closed.astype(np.int32))
        if len(steps):
            deepest = max(deepest, depth + int(steps.max()))
            depth += int(steps[-1])
    return count, deepest


def is_wide(raw: bytes) -> bool:
    """Whether a JSON text holds characters beyond U+FFFF, as they are or escaped."""
    return any(_WIDE.search(raw, start, start + BLOCK + 4) for start in range(0, len(raw), BLOCK))


def no_number(constant: str) -> Any:
    """Refuse NaN and Infinity, which Python would take for numbers."""
    raise ValueError(f"{constant} is no JSON")


def _too_large(detail: str) -> RefusedError:
    remedy = "Send the traces as a file in a form, or fewer at a time."
    return RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail, remedy)


def _no_json(where: str) -> RefusedError:
    return RefusedError(HTTPStatus.BAD_REQUEST, f"The body is no JSON{where}.", "Send a JSON object.")


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, list):
        return [_whole(inner) for inner in value]
    if isinstance(value, Mapping):
        return {whole(key): _whole(inner) for key, inner in value.items()}
    return value
