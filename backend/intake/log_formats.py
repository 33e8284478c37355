"""Log formats: records that hold their traces in places of their own, and not in two columns.

A format is a module with ``fits`` and ``turns``, and a line of :data:`FORMATS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from backend.intake import arena_pairs as pairs
from backend.intake import chat_logs as chat
from backend.intake import helm, spans
from backend.intake.chat_logs import Found


@dataclass(frozen=True)
class LogFormat:
    """A format of records; a ``ChatError`` that ``turns`` raises stands for all of the record."""

    fits: Callable[[Mapping[str, Any]], bool]  # whether a record has it
    turns: Callable[[Mapping[str, Any]], Iterable[Found]]  # its answers, at least one or an error
    keys: frozenset[str] = frozenset()  # columns of a table that it may need; empty where nobody writes it as one
    labelled: bool = True  # whether an answer says itself whom it is from; a column cannot know it for several


FORMATS = [  # the first that fits a record reads it
    LogFormat(pairs.is_pair, pairs.turns_of_pair, pairs.KEYS),
    LogFormat(helm.is_helm, helm.turns_of_helm),
    LogFormat(spans.is_spans, spans.turns_of_spans),
    LogFormat(chat.is_chat, chat.turns, chat.KEYS, labelled=False),
]


def register(log_format: LogFormat) -> None:
    """Add a format from outside; it is tried before those that are known."""
    FORMATS.insert(0, log_format)


def format_of(record: Mapping[str, Any]) -> LogFormat | None:
    """The format of a record; None where its columns are all there is."""
    return next((log_format for log_format in FORMATS if log_format.fits(record)), None)


def format_keys() -> frozenset[str]:
    """Columns of a record that can give it a format, or say something of its traces."""
    return frozenset().union(*(log_format.keys for log_format in FORMATS))
