"""Spans of OpenTelemetry in OTLP/JSON (https://opentelemetry.io/docs/specs/semconv/gen-ai/).

A span without a model is passed over. The label is the model that answered; one that was requested is noted as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from backend.intake.chat_logs import ChatError, Found, Turn
from backend.intake.json_text import parse_json
from backend.intake.traces import as_text

_INPUT, _OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
_REQUESTED, _RETURNED = "gen_ai.request.model", "gen_ai.response.model"


def is_spans(record: Mapping[str, Any]) -> bool:
    return isinstance(record.get("resourceSpans"), list) or ("spanId" in record and "attributes" in record)


def turns_of_spans(record: Mapping[str, Any]) -> Iterator[Found]:
    """Answers in the spans of a record; a span whose messages cannot be read is an error of its own."""
    silent = True
    for span in _spans(record):
        try:
            for answer in _answers(span):
                silent = False
                yield answer
        except ChatError as error:
            silent = False
            yield error
        except RecursionError:
            silent = False
            yield ChatError("attributes", "they are nested too deeply; export the span again")
    if silent:
        yield ChatError(_OUTPUT, f"no span has {_OUTPUT}; switch on the capture of message content")


def _spans(record: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    if "resourceSpans" not in record:
        yield record
        return
    for resource in _objects(record["resourceSpans"]):
        for scope in _objects(resource.get("scopeSpans")):
            yield from _objects(scope.get("spans"))


def _answers(span: Mapping[str, Any]) -> list[Turn]:
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
            prompt = _text(message, _INPUT) or ""
    answers = [_text(message, _OUTPUT) for message in _messages(attributes, _OUTPUT)]
    requested, returned = attributes.get(_REQUESTED), attributes.get(_RETURNED)
    found = [
        Turn(prompt, answer, span.get("startTimeUnixNano"), returned or requested, span.get("spanId"), requested)
        for answer in answers
        if answer is not None
    ]
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


def _text(message: Mapping[str, Any], key: str) -> str | None:
    """Text of a message; None where it has none, such as a call of a tool."""
    parts = message.get("parts", message.get("content"))
    if isinstance(parts, list) and all(isinstance(part, dict) for part in parts):
        texts = [part.get("content", part.get("text")) for part in parts if part.get("type", "text") == "text"]
        if not texts:
            return None
        parts = texts
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
