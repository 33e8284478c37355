"""Chat logs: prompts and responses out of requests, responses and message lists.

Every answer of the assistant is one trace; its prompt is the user's message before it. Where a record has a place for
the response, or an error, only what is there counts. System messages are not read, because the proxy of the paper sees
prompt and response only. A response that is itself JSON stays as it is, unless request and response are both whole
bodies, written as text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from backend.intake.traces import as_text, parse_json

REQUEST = ("request", "request_body", "body", "input", "kwargs")
_RESPONSE = ("response", "response_body", "completion", "output")
PROMPT = ("prompt", "input", "question")
TIME = ("timestamp", "created_at", "created", "time", "request_created_at", "startTime", "start_time")
_LABEL = ("model", "source")
_TALKS = ("messages", "conversations", "conversation")  # lists of messages; in ShareGPT's each has from and value
USER = frozenset({"user", "human"})
_ASSISTANT = frozenset({"assistant", "gpt", "model", "chatgpt", "bot"})
KEYS = frozenset({*_TALKS, "choices", "error", *REQUEST, *_RESPONSE, *PROMPT, *TIME, *_LABEL})  # a chat log may need


class Turn(NamedTuple):
    """One answer, the prompt before it, and the time, model and id that the log states.

    ``requested`` and ``returned`` are the models of a request and of its response, where the log names them apart.
    ``key`` is the id by which the request stands elsewhere in the file, see :class:`Request`.
    """

    prompt: str
    response: str
    time: Any = None
    label: Any = None
    name: Any = None
    requested: Any = None
    returned: Any = None
    key: str | None = None
    conversation: Any = None  # its id; True where the record is the conversation


@dataclass(frozen=True, slots=True)
class Request:
    """A request whose response stands elsewhere in the file, under the same key."""

    key: str
    prompt: str
    requested: Any = None


class ChatError(Exception):
    """Why a record that looks like a chat log gave no trace: which part, and what is wrong with it."""

    def __init__(self, column: str | None, reason: str, key: str | None = None) -> None:
        super().__init__(reason)
        self.column, self.reason, self.key = column, reason, key


Found = Turn | Request | ChatError  # an answer, a request, or why a part of a record gave neither


def is_chat(record: Mapping[str, Any]) -> bool:
    """Whether a record is a chat log: a message list, a list of choices, or a request with one of them."""
    record = _unwrapped(record)
    if isinstance(record.get("messages"), list) or isinstance(record.get("choices"), list):
        return True
    answered = any(key in record for key in _RESPONSE)
    if answered and is_talk(record.get("input")):
        return True
    if not answered:
        talks = (record.get(key) for key in _TALKS)
        if any(isinstance(talk, list) and any(isinstance(message, dict) for message in talk) for talk in talks):
            return True
    bodies = {key for key in (*REQUEST, *_RESPONSE) if isinstance(record.get(key), dict)}
    return any(key in _RESPONSE or key.startswith("request") or "messages" in record[key] for key in bodies)


def is_talk(value: Any) -> bool:
    """Whether a value is a list of messages, each with its role."""
    return isinstance(value, list) and bool(value) and all(isinstance(one, dict) and "role" in one for one in value)


def turns(record: Mapping[str, Any]) -> list[Turn]:
    """Answers of a chat log, at least one; ChatError if there is none, the request failed, or one is no text."""
    record = _unwrapped(record)
    request = next((record[key] for key in REQUEST if isinstance(record.get(key), dict)), record)
    reply = _reply(record)
    if isinstance(reply, dict) and isinstance(body := _body(reply.get("body"), "choices") or reply.get("body"), dict):
        reply = body
    time = first_of(record, reply, *TIME)
    label = first_of(reply, record, *_LABEL) or first_of(request, None, "model")
    apart = request is not record or (isinstance(reply, dict) and reply is not record)
    models = first_of(request, None, "model") if apart else None, first_of(reply, None, "model")
    if reply is None:
        talk = next((key for key in _TALKS if key in request), "messages")
        return conversation(request.get(talk), time, label, talk)
    prompt = last_prompt(request)
    answers = _answers(reply)
    if _failed(record) and not any(answers):
        raise ChatError("error", "the request failed, and there is no answer")
    if not answers:
        raise ChatError("response", "there is no answer in the response")
    return [Turn(prompt, answer, time, label, None, *models) for answer in answers]


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
        if not isinstance(message, dict):
            raise ChatError(f"{column}[{number}]", "a message is no object")
        role = message.get("role", message.get("from"))
        if role is None and column != "messages" and message.get("content", message.get("value")):
            raise ChatError(f"{column}[{number}]", "a message does not say whom it is from; give it a role, or from")
        if not isinstance(role, str):
            continue
        role = role.lower()
        if role in USER:
            prompt = _text(message, f"{column}[{number}]") or ""
        elif role in _ASSISTANT:
            answer = _text(message, f"{column}[{number}]")
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
        if is_talk(reply):
            said = (message for message in reply if str(message["role"]).lower() in _ASSISTANT)
            return [text for message in said if (text := _text(message, "response")) is not None]
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
        keys = ("text", "output_text", "response", "generated_text", "completion", "output", "answer")
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
    requests = {key: _body(record[key], "messages") for key in REQUEST if isinstance(record.get(key), str)}
    if not requests or None in requests.values():
        return record
    responses = {key: _body(record[key], "choices") for key in _RESPONSE if isinstance(record.get(key), str)}
    return {**record, **requests, **responses} if responses and None not in responses.values() else record


def opened(value: Any, *parts: str) -> Any:
    """The list of messages or the object that a text is, where it has one of the parts; else the value as it is."""
    if not isinstance(value, str) or value.lstrip()[:1] not in ("{", "["):
        return value
    try:
        inner = parse_json(value)
    except (ValueError, RecursionError):
        return value
    return (
        inner
        if is_talk(inner) or (isinstance(inner, dict) and (not parts or not inner.keys().isdisjoint(parts)))
        else value
    )


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
