"""Log formats: records that hold their traces in places of their own, and not in two columns.

A format is a module, or a few functions here, and a line of :data:`FORMATS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from backend.intake import chat_logs as chat
from backend.intake.chat_logs import PROMPT, TIME, ChatError, Found, Turn, conversation, first_of, last_prompt, text_at
from backend.intake.traces import as_text, parse_json

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


# ---- spans of OpenTelemetry in OTLP/JSON (https://opentelemetry.io/docs/specs/semconv/gen-ai/) ----------------------

_INPUT, _OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"


def is_spans(record: Mapping[str, Any]) -> bool:
    return isinstance(record.get("resourceSpans"), list) or ("spanId" in record and "attributes" in record)


def turns_of_spans(record: Mapping[str, Any]) -> Iterator[Found]:
    """Answers in the spans of a record; one without a model is passed over, one that cannot be read is an error."""
    silent = True
    for span in _spans(record):
        found: list[Found] = []
        try:
            found += _answers_of_span(span)
        except ChatError as error:
            found = [error]
        except RecursionError:
            found = [ChatError("attributes", "they are nested too deeply; export the span again")]
        silent = silent and not found
        yield from found
    if silent:
        yield ChatError(_OUTPUT, f"no span has {_OUTPUT}; switch on the capture of message content")


def _spans(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "resourceSpans" not in record:
        yield record
        return
    for resource in _objects(record["resourceSpans"]):
        for scope in _objects(resource.get("scopeSpans")):
            yield from _objects(scope.get("spans"))


def _answers_of_span(span: Mapping[str, Any]) -> list[Turn]:
    """Answers under the model that answered; one that was requested is noted as well."""
    attributes: dict[str, Any] = {}
    for event in _objects(span.get("events")):
        attributes.update(_attributes(event.get("attributes")))
    attributes.update(_attributes(span.get("attributes")))
    if not any(key.startswith("gen_ai.") for key in attributes):
        return []
    if _OUTPUT not in attributes:
        if attributes.get("gen_ai.operation.name") not in (None, "chat", "text_completion", "generate_content"):
            return []  # a tool that ran, an agent that called others, texts that were embedded
        raise ChatError(_OUTPUT, "the span has no messages; switch on the capture of message content")
    prompt = ""
    for message in _messages(attributes, _INPUT):
        if message.get("role") in ("user", "human"):
            prompt = _message_text(message, _INPUT) or ""
    answers = [_message_text(message, _OUTPUT) for message in _messages(attributes, _OUTPUT)]
    requested, returned = attributes.get("gen_ai.request.model"), attributes.get("gen_ai.response.model")
    origin = (span.get("startTimeUnixNano"), returned or requested, span.get("spanId"), requested)
    found = [Turn(prompt, answer, *origin) for answer in answers if answer is not None]
    if not found:
        raise ChatError(_OUTPUT, "no message of the model has text; leave the span out")
    return found


def _messages(attributes: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    messages = attributes.get(key, [])
    if isinstance(messages, str):
        try:
            messages = parse_json(messages)
        except (ValueError, RecursionError) as error:
            raise ChatError(key, "the messages are no JSON; export the span without cutting its attributes") from error
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise ChatError(key, 'the messages are no list of objects; write [{"role": …, "parts": […]}]')
    return messages


def _message_text(message: Mapping[str, Any], key: str) -> str | None:
    """Text of a message; None where it has none, such as a call of a tool."""
    parts = message.get("parts", message.get("content"))
    if isinstance(parts, list) and all(isinstance(part, dict) for part in parts):
        parts = [part.get("content", part.get("text")) for part in parts if part.get("type", "text") == "text"]
        if not parts:
            return None
    try:
        return as_text(parts)
    except TypeError as error:
        raise ChatError(key, f'a message {error}; write "parts": [{{"type": "text", "content": …}}]') from error


def _attributes(listed: Any) -> dict[str, Any]:
    """Attributes by name, of a list of keys and values or of an object."""
    if isinstance(listed, dict):
        return {str(key): value for key, value in listed.items()}
    return {str(entry["key"]): _value(entry.get("value")) for entry in _objects(listed) if "key" in entry}


def _value(typed: Any) -> Any:
    """A value of OTLP, such as ``{"stringValue": "a"}``, as plain JSON."""
    if not isinstance(typed, dict):
        return typed
    for kind, value in typed.items():
        if kind == "arrayValue" and isinstance(value, dict):
            inner = value.get("values")
            return [_value(part) for part in inner] if isinstance(inner, list) else []
        if kind == "kvlistValue" and isinstance(value, dict):
            return _attributes(value.get("values"))
        return value
    return None


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


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
    LogFormat(is_helm, turns_of_helm),
    LogFormat(is_spans, turns_of_spans),
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
