"""Pairs of an arena: two models answer the same prompt, and every side is a trace of its own model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backend.intake.chat_logs import ASKED, TIME, ChatError, Found, Turn, conversation, first_of, text_at
from backend.intake.json_text import parse_json

_SIDES = (("_a", "_b"), ("_1", "_2"))
_TALK, _ANSWER, _MODEL = "conversation", ("response", "output", "answer", "completion"), ("model", "generator")
_PROMPT = (*ASKED, "instruction")
_SIDED = frozenset(name + side for sides in _SIDES for side in sides for name in (_TALK, *_ANSWER))
KEYS = _SIDED | {*_PROMPT, *TIME, *(model + side for sides in _SIDES for side in sides for model in _MODEL)}


def is_pair(record: Mapping[str, Any]) -> bool:
    return _form(record) is not None


def turns_of_pair(record: Mapping[str, Any]) -> list[Found]:
    """Answers of both sides; a side that has none is an error of its own. record : for which :func:`is_pair` holds."""
    form = _form(record)
    if form is None:
        return []
    name, sides = form
    time = first_of(record, None, *TIME)
    found: list[Found] = []
    for side in sides:
        label = first_of(record, None, *(model + side for model in _MODEL))
        answer = record.get(name + side)
        try:
            if answer is None:
                raise ChatError(
                    name + side, f"a side has no answer; a pair needs {name}{sides[0]} and {name}{sides[1]}"
                )
            if name == _TALK:
                found += conversation(answer, time, label, name + side)
            else:
                found += [Turn(*turn, time, label) for turn in _answers(record, name + side)]
        except ChatError as error:
            found.append(error)
    return found


def _form(record: Mapping[str, Any]) -> tuple[str, tuple[str, str]] | None:
    """What an answer is called, and the endings of the two sides."""
    if _SIDED.isdisjoint(record):
        return None
    for sides in _SIDES:
        if any(_TALK + side in record for side in sides):
            return _TALK, sides
        named = any(model + side in record for model in _MODEL for side in sides)
        for name in _ANSWER:
            there = [name + side in record for side in sides]
            if name not in record and (all(there) or (any(there) and named)):
                return name, sides
    return None


def _answers(record: Mapping[str, Any], column: str) -> list[tuple[str, str]]:
    """Prompts and answers of one side, which may be lists of as many turns, also written as text."""
    key = next((key for key in _PROMPT if record.get(key) is not None), None)
    prompt, answer = (None if key is None else record[key]), record[column]
    prompts, answers = _list(prompt), _list(answer)
    if prompts is not None and answers is not None and len(prompts) == len(answers) and answers:
        turns = [(text_at(p, key or "") or "", a) for p, a in zip(prompts, answers, strict=True) if a is not None]
        return [(p, text_at(a, column) or "") for p, a in turns]
    return [(text_at(prompt, key or "") or "", text_at(answer, column) or "")]


def _list(value: Any) -> list[Any] | None:
    """Texts (or nothing) of a list, also of one that is written as text."""
    if isinstance(value, str) and value[:1] == "[":
        try:
            value = parse_json(value)
        except (ValueError, RecursionError):
            return None
    texts = isinstance(value, list) and all(part is None or isinstance(part, str) for part in value)
    return value if texts else None
