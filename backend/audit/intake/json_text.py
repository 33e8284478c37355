"""JSON texts, and how much memory their values would take."""

from __future__ import annotations

import json
import re
from typing import Any

from backend.audit.intake.model import Limits

MOST_VALUES = Limits().values
_WEIGHTS = {"{": 130, "[": 110, ":": 90, ",": 70}
"""Bytes that Python takes for what follows a character, about: ``[[],[],…`` becomes thirty times its length."""
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


class TooManyValuesError(ValueError):
    """A JSON text holds more values than are read at a time."""


def parse_json(text: str, most: int = MOST_VALUES) -> Any:
    """Parse a JSON text.

    Parameters
    ----------
    text : str
    most : int, optional
        Bytes that its values may take, by estimate; texts count by their number only.

    Raises
    ------
    TooManyValuesError
        If they would take more.
    ValueError, RecursionError
        If it is no JSON, or nested too deeply.
    """
    if _estimate(text) > most and _estimate(_STRING.sub("", text)) > most:
        raise TooManyValuesError("it holds too many values; leave out what is no part of a trace")
    return json.loads(text)


def _estimate(text: str) -> int:
    return sum(weight * text.count(character) for character, weight in _WEIGHTS.items())
