"""Log formats: records that hold their traces in places of their own, and not in two columns.

A format is a few functions here, or a module, and a line of :data:`FORMATS`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from backend.intake.traces import as_text, parse_json

# ---- chat completions: prompts and responses out of requests, responses and message lists ---------------------------
#
# Every answer of the assistant is one trace; its prompt is the user's message before it. Where a record has a place for
# the response, or an error, only what is there counts. System messages are not read, because the proxy of the paper
# sees prompt and response only. A response that is itself JSON stays as it is, unless request and response are both
# whole bodies, written as text.

_REQUEST = ("request", "request_body", "body", "input", "kwargs")
_RESPONSE = ("response", "response_body", "completion", "output")
PROMPT = ("prompt", "input", "question")
TIME = ("timestamp", "created_at", "created", "time")
_LABEL = ("model", "source")
_TALKS = ("messages", "conversations", "conversation")  # lists of messages; in ShareGPT's each has from and value
_USER = frozenset({"user", "human"})
_ASSISTANT = frozenset({"assistant", "gpt", "model", "chatgpt", "bot"})
KEYS = frozenset({*_TALKS, "choices", "error", *_REQUEST, *_RESPONSE, *PROMPT, *TIME, *_LABEL})  # a chat log may need


@dataclass(frozen=True, slots=True)
class Turn:
    """One answer, the prompt before it, and the time, model and id that the log states, and the model requested."""

    prompt: str
    response: str
    time: Any = None
    label: Any = None
    name: Any = None
    requested: Any = None
    conversation: Any = None  # its id; True where the record is the conversation


class ChatError(Exception):
    """Why a record that looks like a chat log gave no trace: which part, and what is wrong with it."""

    def __init__(self, column: str | None, reason: str) -> None:
        super().__init__(reason)
        self.column, self.reason = column, reason


Found = Turn | ChatError  # an answer, or why a part of a record gave none


def is_chat(record: Mapping[str, Any]) -> bool:
    """Whether a record is a chat log: a message list, a list of choices, or a request with one of them."""
    record = _unwrapped(record)
    if isinstance(record.get("messages"), list) or isinstance(record.get("choices"), list):
        return True
    if not any(key in record for key in _RESPONSE):
        talks = (record.get(key) for key in _TALKS)
        if any(isinstance(talk, list) and any(isinstance(message, dict) for message in talk) for talk in talks):
            return True
    bodies = {key for key in (*_REQUEST, *_RESPONSE) if isinstance(record.get(key), dict)}
    return any(key in _RESPONSE or key.startswith("request") or "messages" in record[key] for key in bodies)


def turns(record: Mapping[str, Any]) -> list[Turn]:
    """Answers of a chat log, at least one; ChatError if there is none, the request failed, or one is no text."""
    record = _unwrapped(record)
    request = next((record[key] for key in _REQUEST if isinstance(record.get(key), dict)), record)
    reply = _reply(record)
    if isinstance(reply, dict) and isinstance(body := _body(reply.get("body"), "choices") or reply.get("body"), dict):
        reply = body
    time = first_of(record, reply, *TIME)
    label = first_of(reply, record, *_LABEL) or first_of(request, None, "model")
    if reply is None:
        talk = next((key for key in _TALKS if key in request), "messages")
        return conversation(request.get(talk), time, label, talk)
    prompt = last_prompt(request)
    answers = _answers(reply)
    if _failed(record) and not any(answers):
        raise ChatError("error", "the request failed, and there is no answer")
    if not answers:
        raise ChatError("response", "there is no answer in the response")
    return [Turn(prompt, answer, time, label) for answer in answers]


def _reply(record: Mapping[str, Any]) -> Any:
    """What came back; None where the record has no place for it, so that its messages are all there is."""
    places = [key for key in _RESPONSE if key in record]
    if (full := next((key for key in places if record[key] not in (None, "")), None)) is not None:
        return record[full]
    if isinstance(record.get("choices"), list):
        return record
    if any(record[key] == "" for key in places):
        return ""
    if _failed(record):
        raise ChatError("error", "the request failed, and there is no answer")
    if places or "choices" in record:
        raise ChatError(places[0] if places else "choices", "there is no response")
    return None


def _failed(record: Mapping[str, Any]) -> bool:
    error = record.get("error")
    return bool(error) and not (isinstance(error, float) and math.isnan(error))  # pandas writes NaN for nothing


def conversation(messages: Any, time: Any, label: Any, column: str = "messages") -> list[Turn]:
    """Answers of the assistant in a list of messages, each with the user's message before it.

    Raises ChatError if it is no list, a message is none, or there is no answer.
    """
    if not isinstance(messages, list):
        raise ChatError(column, "there is neither an answer nor a list of messages")
    found: list[Turn] = []
    prompt = ""
    for number, message in enumerate(messages):
        where = f"{column}[{number}]"
        if not isinstance(message, dict):
            raise ChatError(where, "a message is no object")
        role = message.get("role", message.get("from"))
        if role is None and column != "messages" and message.get("content", message.get("value")):
            raise ChatError(where, "a message does not say whom it is from; give it a role, or from")
        if not isinstance(role, str):
            continue
        if role.lower() in _USER:
            prompt = _text(message, where) or ""
        elif role.lower() in _ASSISTANT:
            answer = _text(message, where)
            if answer is not None:  # a call of a tool has no text
                found.append(Turn(prompt, answer, time, label, conversation=True))
    if not found:
        raise ChatError(column, "there is no message of the assistant")
    return found


def last_prompt(request: Mapping[str, Any]) -> str:
    """The last message of the user in a request, or its prompt; empty where there is none."""
    messages = request.get("messages", request.get("input"))
    if isinstance(messages, list):
        sent = [(n, m) for n, m in enumerate(messages) if isinstance(m, dict) and m.get("role") in ("user", "human")]
        return (_text(sent[-1][1], f"messages[{sent[-1][0]}]") or "") if sent else ""
    for key in PROMPT:
        if isinstance(request.get(key), str):
            return as_text(request[key]) or ""
    return ""


def _answers(reply: Any) -> list[str]:
    if isinstance(reply, str):
        return [as_text(reply) or ""]
    if not isinstance(reply, dict):
        raise ChatError("response", "the response is neither text nor an object")
    if reply.get("error"):
        raise ChatError("response", "the response is an error of the endpoint")
    if isinstance(reply.get("choices"), list):
        texts = [_choice(number, choice) for number, choice in enumerate(reply["choices"])]
    elif isinstance(reply.get("output"), list):  # a list of items, of which messages are the answer
        items = (item for item in reply["output"] if isinstance(item, dict))
        texts = [_text(item, "response.output") for item in items if item.get("type", "message") == "message"]
    elif "content" in reply:
        texts = [_text(reply, "response")]
    elif isinstance(message := reply.get("message"), dict):
        texts = [_text(message, "response.message")]
    else:
        keys = ("text", "output_text", "response", "generated_text")
        texts = [as_text(reply[key]) for key in keys if isinstance(reply.get(key), str)][:1]
    return [text for text in texts if text is not None]


def _choice(number: int, choice: Any) -> str | None:
    where = f"choices[{number}]"
    if not isinstance(choice, dict):
        raise ChatError(where, "a choice is no object")
    if isinstance(choice.get("message"), dict):
        return _text(choice["message"], f"{where}.message")
    return text_at(choice.get("text"), f"{where}.text")


def _text(message: Mapping[str, Any], where: str) -> str | None:
    content = message.get("content", message.get("value"))
    return "" if content == [] else text_at(content, f"{where}.content")


def text_at(value: Any, column: str) -> str | None:
    """A value as text, None for nothing; ChatError where it is no text."""
    try:
        return as_text(value)
    except TypeError as error:
        raise ChatError(column, str(error)) from error


def _unwrapped(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """The record with request and response as objects, where both are bodies written as text.

    A prompt in plain words says that the response is one as well, whatever it looks like.
    """
    if any(isinstance(record.get(key), str) for key in ("prompt", "question")):
        return record
    requests = {key: _body(record[key], "messages") for key in _REQUEST if isinstance(record.get(key), str)}
    if not requests or None in requests.values():
        return record
    responses = {key: _body(record[key], "choices") for key in _RESPONSE if isinstance(record.get(key), str)}
    return {**record, **requests, **responses} if responses and None not in responses.values() else record


def _body(value: Any, part: str) -> dict[str, Any] | None:
    """The object that a text is, if it has a list of that name, or a body."""
    if not isinstance(value, str) or value[:1] != "{":
        return None
    try:
        inner = parse_json(value)
    except (ValueError, RecursionError):
        return None
    return inner if isinstance(inner, dict) and (isinstance(inner.get(part), list) or "body" in inner) else None


def first_of(one: Any, other: Any, *keys: str) -> Any:
    """The first plain value under one of the keys, of two objects in turn."""
    for place in (one, other):
        if isinstance(place, Mapping):
            for key in keys:
                if place.get(key) is not None and not isinstance(place[key], dict | list):
                    return place[key]
    return None


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
    talk = attributes.get("gen_ai.conversation.id") or span.get("traceId")
    found = [Turn(prompt, answer, *origin, talk) for answer in answers if answer is not None]
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
    LogFormat(is_chat, turns, KEYS, labelled=False),
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
