"""Log formats: records that hold their traces in places of their own, and not in two columns.

A format is a few functions here, or a module, and a line of :data:`FORMATS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from backend.intake import batches, chat_logs, gateways, langfuse, spans
from backend.intake.chat_logs import PROMPT, TIME, ChatError, Found, Turn, conversation, first_of, last_prompt, text_at
from backend.intake.traces import parse_json

# ---- pairs of an arena: two models answer one prompt, and every side is a trace of its own model --------------------

_SIDES = (("_a", "_b"), ("_1", "_2"))
_TALK, _ANSWER, _MODEL = "conversation", ("response", "output", "answer", "completion"), ("model", "generator")
_PAIR_PROMPT = (*PROMPT, "instruction")
_SIDED = frozenset(name + side for sides in _SIDES for side in sides for name in (_TALK, *_ANSWER))
_PAIR_KEYS = _SIDED | {*_PAIR_PROMPT, *TIME, *(model + side for sides in _SIDES for side in sides for model in _MODEL)}


def turns_of_pair(record: Mapping[str, Any]) -> list[Found]:
    """Answers of both sides; a side that has none is an error of its own."""
    form = _pair_form(record)
    assert form is not None
    name, sides = form
    time = first_of(record, None, *TIME)
    found: list[Found] = []
    for side in sides:
        label = first_of(record, None, *(model + side for model in _MODEL))
        column = name + side
        try:
            if record.get(column) is None:
                both = f"{name}{sides[0]} and {name}{sides[1]}"
                raise ChatError(column, f"a side has no answer; a pair needs {both}")
            if name == _TALK:
                found += conversation(record[column], time, label, column)
            else:
                found += [Turn(*turn, time, label) for turn in _answers_of_side(record, column)]
        except ChatError as error:
            found.append(error)
    return found


def _pair_form(record: Mapping[str, Any]) -> tuple[str, tuple[str, str]] | None:
    """What an answer is called, and the endings of the two sides; None where the record is no pair."""
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


def _answers_of_side(record: Mapping[str, Any], column: str) -> list[tuple[str, str]]:
    """Prompts and answers of one side, which may be lists of as many turns, also written as text."""
    key = next((key for key in _PAIR_PROMPT if record.get(key) is not None), "")
    prompt, answer = record[key] if key else None, record[column]
    prompts, answers = _texts(prompt), _texts(answer)
    if prompts is None or answers is None or len(prompts) != len(answers) or not answers:
        prompts, answers = [prompt], [answer]
    return [
        (text_at(prompt, key) or "", text_at(answer, column) or "")
        for prompt, answer in zip(prompts, answers, strict=True)
        if answer is not None
    ]


def _texts(value: Any) -> list[Any] | None:
    """Texts (or nothing) of a list, also of one that is written as text."""
    if isinstance(value, str) and value[:1] == "[":
        try:
            value = parse_json(value)
        except (ValueError, RecursionError):
            return None
    texts = isinstance(value, list) and all(part is None or isinstance(part, str) for part in value)
    return value if texts else None


# ---- HELM: the request states of a scenario, each with an instance, a request and its result ------------------------


def is_helm(record: Mapping[str, Any]) -> bool:
    if isinstance(record.get("request_states"), list):
        return True
    result = record.get("result")
    completed = isinstance(result, dict) and "completions" in result
    return isinstance(record.get("request"), dict) and (completed or ("result" in record and "instance" in record))


def turns_of_helm(record: Mapping[str, Any]) -> Iterator[Found]:
    """Completions, each with the prompt that the model was given."""
    states = record.get("request_states", [record])
    if not states:
        raise ChatError("request_states", "there is no request state; export the scenario again")
    for number, state in enumerate(states):
        where = f"request_states[{number}]." if states != [record] else ""
        try:
            yield from _completions(state, where)
        except ChatError as error:
            yield error


def _completions(state: Any, where: str) -> list[Turn]:
    if not isinstance(state, dict) or not isinstance(request := state.get("request"), dict):
        raise ChatError(f"{where}request", "a request state has no request; export the scenario again")
    result = state.get("result")
    if not isinstance(result, dict) or result.get("success") is False:
        raise ChatError(f"{where}result", "the request failed; run it again, or leave it out")
    completions = result.get("completions")
    if not isinstance(completions, list) or not completions:
        raise ChatError(f"{where}result.completions", "there is no completion; run it again, or leave it out")
    instance = state.get("instance")
    instance = instance if isinstance(instance, dict) else {}
    given = request.get("prompt") or last_prompt(request)
    if not given and isinstance(source := instance.get("input"), dict):
        given = source.get("text")
    prompt = text_at(given, f"{where}request.prompt") or ""
    found = []
    for number, completion in enumerate(completions):
        column = f"{where}result.completions[{number}].text"
        text = text_at(completion.get("text") if isinstance(completion, dict) else None, column)
        if text is None:
            raise ChatError(column, "a completion has no text; run it again, or leave it out")
        found.append(Turn(prompt, text, result.get("request_datetime"), request.get("model"), instance.get("id")))
    return found


# ---- the registry ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LogFormat:
    """A format of records; a ``ChatError`` that ``turns`` raises stands for all of the record."""

    fits: Callable[[Mapping[str, Any]], bool]  # whether a record has it
    turns: Callable[[Mapping[str, Any]], Iterable[Found]]  # its answers, at least one or an error
    keys: frozenset[str] = frozenset()  # columns of a table that it may need; empty where nobody writes it as one
    labelled: bool = True  # whether an answer says itself whom it is from; a column cannot know it for several


FORMATS = [  # the first that fits a record reads it
    LogFormat(lambda record: _pair_form(record) is not None, turns_of_pair, _PAIR_KEYS),
    LogFormat(batches.is_batch, batches.turns_of_batch),
    LogFormat(is_helm, turns_of_helm),
    LogFormat(spans.is_spans, spans.turns_of_spans),
    LogFormat(langfuse.is_observation, langfuse.turns_of_observations, langfuse.KEYS),
    LogFormat(gateways.is_litellm, gateways.turns_of_litellm, gateways.LITELLM_KEYS),
    LogFormat(gateways.is_helicone, gateways.turns_of_helicone, gateways.HELICONE_KEYS),
    LogFormat(chat_logs.is_chat, chat_logs.turns, chat_logs.KEYS, labelled=False),
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
