"""Batches of OpenAI and Anthropic: requests and results in files of their own, or one after the other in one file.

A result names its request by ``custom_id``; prompt and requested model stand in the request alone.
https://platform.openai.com/docs/guides/batch, https://docs.claude.com/en/docs/build-with-claude/batch-processing
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from backend.errors import AtlasError
from backend.intake import chat_logs
from backend.intake.chat_logs import ChatError, Found, Request, Turn, first_of, last_prompt
from backend.intake.layout import Limits, Problem

_APPEND = "its result is not in the file; append the file of results"


def is_batch(record: Mapping[str, Any]) -> bool:
    """Whether a record is a request or a result of a batch, or the body that made one."""
    if "custom_id" in record:
        return _is_request(record) or _is_result(record)
    return "requests" in record and _is_requests(record)


def turns_of_batch(record: Mapping[str, Any]) -> Iterator[Found]:
    """Requests, and answers in results; a request that failed is an error."""
    if _is_requests(record):
        for number, entry in enumerate(record["requests"]):
            where = f"requests[{number}]"
            if not isinstance(entry, dict) or "custom_id" not in entry or not isinstance(entry.get("params"), dict):
                yield ChatError(where, "a request needs custom_id and params")
            else:
                yield from _request(entry, entry["params"], f"{where}.params")
    elif _is_request(record):
        yield from _request(record, record["body"], "body")
    else:
        yield from _result(record)


def _is_requests(record: Mapping[str, Any]) -> bool:
    requests = record.get("requests")
    return isinstance(requests, list) and bool(requests) and isinstance(requests[0], dict) and "params" in requests[0]


def _is_request(record: Mapping[str, Any]) -> bool:
    answered = "response" in record or "result" in record
    return "url" in record and isinstance(record.get("body"), dict) and not answered


def _is_result(record: Mapping[str, Any]) -> bool:
    response, result = record.get("response"), record.get("result")
    if isinstance(response, dict):
        return "body" in response
    return (isinstance(result, dict) and "type" in result) or (
        response is None and isinstance(record.get("error"), dict)
    )


def _request(entry: Mapping[str, Any], body: Mapping[str, Any], where: str) -> Iterator[Found]:
    key = str(entry["custom_id"])
    try:
        yield Request(key, last_prompt(body), first_of(body, None, "model"))
    except ChatError as error:
        yield ChatError(f"{where}.{error.column}", error.reason, key)


def _result(record: Mapping[str, Any]) -> Iterator[Found]:
    key, result = str(record["custom_id"]), record.get("result")
    try:
        if isinstance(result, dict):
            if result.get("type") != "succeeded" or not isinstance(result.get("message"), dict):
                kind = str(result.get("type"))[:20]
                raise ChatError("result", f"the request has no answer ({kind}); run it again, or leave it out")
            record = {"response": result["message"]}
        for turn in chat_logs.turns(record):
            yield turn._replace(name=key, key=key, requested=None)
    except ChatError as error:
        yield ChatError(error.column, error.reason, key)


class Requests:
    """Requests of a file whose results are still to come; their prompts take at most the memory of all traces."""

    def __init__(self, name: str, limits: Limits) -> None:
        self._name, self._limits = name, limits
        self._waiting: dict[str, tuple[int, Request]] = {}
        self._done: set[str] = set()
        self._characters = 0

    def add(self, place: int, request: Request) -> Problem | None:
        """Store a request; a problem where its result, or another of the same id, stands before it.

        Raises AtlasError if there are too many, or too long ones.
        """
        if request.key in self._done or request.key in self._waiting:
            first = "its result stands" if request.key in self._done else "another request has the same custom_id"
            remedy = "put the file of requests first" if request.key in self._done else "give every request its own"
            return Problem(place, "custom_id", f"{first} before it; {remedy}")
        self._waiting[request.key] = place, request
        self._characters += len(request.prompt) + len(request.key)
        if len(self._waiting) > self._limits.traces or self._characters > self._limits.text:
            most = f"{self._limits.traces:,} requests or {self._limits.text:,} characters"
            raise AtlasError(
                f"The requests of {self._name} up to record {place:,} hold more than {most}",
                "Give the results alone, or cut both files",
            )
        return None

    def answer(self, key: str, turn: Turn) -> Turn:
        """An answer with prompt and model of its request, where that stands before it."""
        self.close(key)
        _, request = self._waiting.get(key, (0, None))
        return turn if request is None else turn._replace(prompt=request.prompt, requested=request.requested)

    def close(self, key: str | None) -> None:
        """Note that the result of a request was found, whatever it is."""
        if key is not None:
            self._done.add(key)

    def unanswered(self) -> Iterator[Problem]:
        """Requests without a result."""
        for key, (place, _) in self._waiting.items():
            if key not in self._done:
                yield Problem(place, "custom_id", _APPEND)
