"""JSON texts, and how much memory their values would take."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.intake.traces import Limits

MOST_VALUES = Limits().values
_WEIGHTS = {"{": 130, "[": 110, ":": 150, ",": 70}  # bytes that Python takes for what follows, about
BLOCK = 2**20
LARGE, BREAK = 20_000_000, 0.05  # estimate from which parsing holds the interpreter for long, and seconds for others


class TooManyValuesError(ValueError):
    """A JSON text holds more values than are read at a time."""


def parse_json(text: str, most: int = MOST_VALUES) -> Any:
    """Parse a JSON text.

    most : bytes that its values may take, by estimate; texts count by their number only.
    Raises TooManyValuesError; ValueError or RecursionError if it is no JSON, or nested too deeply.
    """
    estimate = sum(weight * text.count(character) for character, weight in _WEIGHTS.items())  # at most
    if estimate > most and _estimate(text) > most:
        raise TooManyValuesError("it holds too many values; leave out what is no part of a trace")
    if estimate > LARGE:  # others get the interpreter before and after
        time.sleep(BREAK)
        value = json.loads(text)
        time.sleep(BREAK)
        return value
    return json.loads(text)


def outside_strings(blocks: Iterable[bytes]) -> Iterator[npt.NDArray[np.uint8]]:
    """Bytes of a JSON text that are in none of its strings, a block at a time.

    Found without parsing: other threads go on, and no memory is taken. Right up to the place where it stops being JSON.
    """
    inside, rest = False, b""
    for fresh in blocks:
        block = rest + fresh
        rest = b""
        if (len(block) - len(block.rstrip(b"\\"))) % 2:  # the escape of the next block's first character
            block, rest = block[:-1], block[-1:]
        codes = np.frombuffer(block.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
        if len(codes):
            within = np.logical_xor.accumulate(codes == ord('"')) ^ inside
            inside = bool(within[-1])
            yield codes[~within]


def _estimate(text: str) -> int:
    blocks = (text[start : start + BLOCK].encode("utf-8", "surrogatepass") for start in range(0, len(text), BLOCK))
    return sum(
        weight * int((codes == ord(character)).sum())
        for codes in outside_strings(blocks)
        for character, weight in _WEIGHTS.items()
    )
