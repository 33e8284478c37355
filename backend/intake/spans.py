"""Spans of OpenTelemetry in OTLP/JSON: its own words for models, those of OpenInference, and of Langfuse.

https://opentelemetry.io/docs/specs/semconv/gen-ai/,
https://github.com/Arize-ai/openinference/blob/main/spec/semantic_conventions.md
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from backend.intake import langfuse
from backend.intake.chat_logs import USER, ChatError, Found, Turn, opened
from backend.intake.traces import as_text, parse_json

_INPUT, _OUTPUT, _FLAT_OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages", "llm.output_messages"
_CONVERSATIONS = ("gen_ai.conversation.id", "session.id")
_EXPORTS = {"resourceSpans": ("scopeSpans", "spans"), "resourceLogs": ("scopeLogs", "logRecords")}
_KIND, _OBSERVED = "openinference.span.kind", "langfuse.observation."


def is_spans(record: Mapping[str, Any]) -> bool:
    """Whether a record is an export of spans or of the events of spans, or one span."""
    return any(isinstance(record.get(key), list) for key in _EXPORTS) or ("spanId" in record and "attributes" in record)


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
    exports = [key for key in _EXPORTS if key in record]
    if not exports:
        yield record
    for key in exports:
        scopes, spans = _EXPORTS[key]
        for resource in _objects(record[key]):
            for scope in _objects(resource.get(scopes)):
                yield from _objects(scope.get(spans))


def _answers_of_span(span: Mapping[str, Any]) -> list[Turn]:
    """Answers of a span, with the conversation that it belongs to: as it says, else its trace."""
    attributes: dict[str, Any] = {}
    for event in _objects(span.get("events")):
        attributes.update(_attributes(event.get("attributes")))
    attributes.update(_attributes(span.get("attributes")))
    talk = next(filter(None, map(attributes.get, _CONVERSATIONS)), span.get("traceId"))
    return [turn._replace(conversation=talk) for turn in _turns_of_span(span, attributes)]


def _turns_of_span(span: Mapping[str, Any], attributes: Mapping[str, Any]) -> list[Turn]:
    """Answers under the model that answered; one that was requested is noted as well."""
    time = span.get("startTimeUnixNano", span.get("timeUnixNano"))
    if _KIND in attributes:
        return _answers_of_openinference(attributes, time, span.get("spanId"))
    if f"{_OBSERVED}type" in attributes:
        return _answers_of_langfuse(attributes, time, span.get("spanId"))
    if not any(key.startswith("gen_ai.") for key in attributes):
        return []
    if _OUTPUT not in attributes:
        if attributes.get("gen_ai.operation.name") not in (None, "chat", "text_completion", "generate_content"):
            return []  # a tool that ran, an agent that called others, texts that were embedded
        raise ChatError(_OUTPUT, "the span has no messages; switch on the capture of message content")
    prompt = ""
    for message in _messages(attributes, _INPUT):
        if message.get("role") in USER:
            prompt = _message_text(message, _INPUT) or ""
    answers = [_message_text(message, _OUTPUT) for message in _messages(attributes, _OUTPUT)]
    requested, returned = attributes.get("gen_ai.request.model"), attributes.get("gen_ai.response.model")
    origin = (time, returned or requested, span.get("spanId"), requested, returned)
    found = [Turn(prompt, answer, *origin) for answer in answers if answer is not None]
    if not found:
        raise ChatError(_OUTPUT, "no message of the model has text; leave the span out")
    return found


def _answers_of_openinference(attributes: Mapping[str, Any], time: Any, name: Any) -> list[Turn]:
    """Answers of a call of a model; other kinds of spans (chains, tools, agents) are passed over."""
    if str(attributes[_KIND]).upper() != "LLM":
        return []
    prompt = ""
    for message in _numbered(attributes, "llm.input_messages."):
        if message.get("message.role") in USER:
            prompt = _flat_text(message, "llm.input_messages") or ""
    answers = [_flat_text(message, _FLAT_OUTPUT) for message in _numbered(attributes, f"{_FLAT_OUTPUT}.")]
    returned = attributes.get("llm.model_name")
    settings = opened(attributes.get("llm.invocation_parameters"))
    requested = settings.get("model") if isinstance(settings, dict) else None
    found = [Turn(prompt, one, time, returned or requested, name, requested, returned) for one in answers if one]
    if not found:
        raise ChatError(_FLAT_OUTPUT, "the span has no messages with text; leave it out, or let it capture them")
    return found


def _answers_of_langfuse(attributes: Mapping[str, Any], time: Any, name: Any) -> list[Turn]:
    own = {key.removeprefix(_OBSERVED): value for key, value in attributes.items() if key.startswith(_OBSERVED)}
    if str(own["type"]).upper() != "GENERATION":
        return []
    row = {"input": own.get("input"), "output": own.get("output"), "model": own.get("model.name")}
    return langfuse.turns_of_generation(row | {"id": name, "time": time})


def _numbered(attributes: Mapping[str, Any], prefix: str) -> list[Mapping[str, Any]]:
    """Parts of a list whose keys have the number of the entry, ``prefix.0.role``, in the order of numbers."""
    found: dict[int, dict[str, Any]] = {}
    for key, value in attributes.items():
        number, _, part = key.removeprefix(prefix).partition(".")
        if key.startswith(prefix) and number.isdecimal() and len(number) < 7:
            found.setdefault(int(number), {})[part] = value
    return [found[number] for number in sorted(found)]


def _flat_text(message: Mapping[str, Any], column: str) -> str | None:
    """Text of a message of OpenInference, whose parts may be apart; None where it has none."""
    texts = [message.get("message.content")]
    if texts == [None]:
        parts = _numbered(message, "message.contents.")
        texts = [part.get("message_content.text") for part in parts]
    try:
        return as_text([text for text in texts if text is not None] or None)
    except TypeError as error:
        raise ChatError(column, f"a message {error}; export the span again") from error


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
