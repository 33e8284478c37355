"""Forms of a record that hold their traces in a place of their own, and not in two columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from backend.intake import arena_pairs as pairs
from backend.intake import chat_logs as chat
from backend.intake import helm, spans
from backend.intake.chat_logs import Found


@dataclass(frozen=True)
class Form:
    """A form of a record.

    turns : its answers, at least one or an error; a ``ChatError`` that is raised stands for all of the record.
    """

    fits: Callable[[Mapping[str, Any]], bool]  # whether a record has it
    turns: Callable[[Mapping[str, Any]], Iterable[Found]]
    keys: frozenset[str]  # columns of a table that it may need; empty where nobody writes it as one
    labelled: bool = True  # whether an answer says itself whom it is from; a column cannot know it for several


FORMS = (
    Form(pairs.is_pair, pairs.turns_of_pair, pairs.KEYS),
    Form(helm.is_helm, helm.turns_of_helm, frozenset()),
    Form(spans.is_spans, spans.turns_of_spans, frozenset()),
    Form(chat.is_chat, chat.turns, chat.KEYS, labelled=False),
)
KEYS = frozenset(key for form in FORMS for key in form.keys)
"""Columns of a record that can give it a form, or say something of its traces."""


def form_of(record: Mapping[str, Any]) -> Form | None:
    """The form of a record; None where its columns are all there is."""
    return next((form for form in FORMS if form.fits(record)), None)
