"""Finished answers in memory, as the bytes that were sent.

Stored are callbacks marked with :func:`pure`, and pages that links open: request, generation and day are the key. A
page that shows more, such as whose session this is, calls :func:`refuse`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import hashlib
import itertools
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeVar

from dash import Dash
from flask import Flask, Response, g, request

from atlas import logs
from atlas.api.access import CALLBACK, authorised, guarded
from atlas.api.problems import RefusedError, answer
from atlas.api.requests import JSON, LARGE, read_json, turn
from atlas.data import QueryCache

F = TypeVar("F", bound=Callable[..., Any])

LIMIT = 96 * 2**20  # bytes of answers in memory; the least recently sent go first
LONGEST_REQUEST = 64 * 2**10
PAGE_VALUES = 250_000  # commas, colons and brackets of a callback's body
PAGE_WIDE = 20_000_000
_MALFORMED = itertools.count(1)
HEADERS = ("Content-Type", "Content-Encoding", "Vary")
OPENED = ".._pages_content.children..._pages_store.data.."
"""Outputs of Dash's own callback that lays out the page of a link."""
TOKEN_GIVEN = "..attr-token-said.children"  # first output of the callback that takes the token


def pure(callback: F) -> F:
    """Mark a callback whose answer follows from its arguments, the generation and the day alone."""
    callback.pure = True  # type: ignore[attr-defined]
    return callback


@dataclasses.dataclass(frozen=True)
class Answer:
    """Body of an answer as it was sent, and how it was encoded."""

    body: bytes
    headers: tuple[tuple[str, str], ...]


class Answers:
    """The most recently sent answers, at most ``limit`` bytes; threads may share it."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._size = 0
        self._stored: OrderedDict[str, Answer] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: str) -> Answer | None:
        """The answer under a key, or None."""
        with self._lock:
            found = self._stored.get(key)
            if found is not None:
                self._stored.move_to_end(key)
            return found

    def keep(self, key: str, answer: Answer) -> None:
        """Store an answer, and drop the oldest ones where there is no room."""
        with self._lock:
            old = self._stored.pop(key, None)
            self._size += len(answer.body) - (len(old.body) if old else 0)
            self._stored[key] = answer
            while self._size > self._limit:
                self._size -= len(self._stored.popitem(last=False)[1].body)


def today() -> str:
    """The day in UTC."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


def refuse() -> None:
    """Do not store the answer of this request: it reports a failure, or more than its key says."""
    g.refused = True


def install(app: Dash, cache: QueryCache, answers: Answers | None = None) -> None:
    """Answer repeated requests for pure callbacks and pages from memory.

    Call it before compression is installed: Flask runs the last handler first, and stored is what was sent.
    """
    stored = answers or Answers()
    server: Flask = app.server

    @server.before_request
    def recall() -> Response | None:
        g.answer_key = g.refused = None
        if request.method != "POST" or not request.path.endswith(CALLBACK):
            return None
        if (request.content_length or 0) > LARGE:
            place = contextlib.ExitStack()
            place.enter_context(turn(request))
            g.turn = place  # until the request ends: what it holds stays in memory so long
        body = _callback_body(app)
        output = body["output"]
        if is_sealed(cache):
            if output != OPENED and not output.startswith(TOKEN_GIVEN):
                raise RefusedError(HTTPStatus.UNAUTHORIZED, "This atlas asks for a token.", "Give it in the page.")
            return None
        if (request.content_length or 0) > LONGEST_REQUEST:
            return None
        callback = app.callback_map[output].get("callback")
        if not (output == OPENED or getattr(callback, "pure", False)) or cache.problem() is not None:
            return None
        about = (cache.generation().name, today(), request.headers.get("Accept-Encoding", ""))
        parts = (*about, json.dumps(body, sort_keys=True, separators=(",", ":")))
        key = hashlib.sha256(b"\0".join(part.encode("utf-8", "surrogatepass") for part in parts)).hexdigest()
        found = stored.get(key)
        if found is None:
            g.answer_key = key
            return None
        return Response(found.body, headers=list(found.headers))

    @server.teardown_request
    def leave(_: BaseException | None) -> None:
        if (place := g.pop("turn", None)) is not None:
            place.close()

    @server.errorhandler(Exception)
    def failed(error: Exception) -> Response:
        if not request.path.endswith(CALLBACK):
            raise error
        logs.log_failure("A callback was not reached", error)
        return answer(RefusedError(HTTPStatus.INTERNAL_SERVER_ERROR, "The server could not answer this."))

    @server.after_request
    def remember(response: Response) -> Response:
        key = g.get("answer_key")
        if key and response.status_code == 200 and not g.get("refused") and not response.is_streamed:
            headers = tuple((name, response.headers[name]) for name in HEADERS if name in response.headers)
            stored.keep(key, Answer(response.get_data(), headers))
        return response


def is_sealed(cache: QueryCache) -> bool:
    """Whether the visitor may see nothing: no token given, and not all sources are public."""
    return guarded() and not authorised(request) and cache.problem() is None and cache.holds_own_sources()


def _callback_body(app: Dash) -> dict[str, Any]:
    """The body of a callback, checked against the callback that it names: Dash trusts its shape."""
    body = read_json(request, PAGE_VALUES, PAGE_WIDE) if request.mimetype == JSON else None
    output = body.get("output") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(output, str) or output not in app.callback_map:
        raise malformed("no callback")
    known = app.callback_map[output]
    for field, needed in (("inputs", known["inputs"]), ("state", known["state"])):
        given = body.get(field, [])
        if not isinstance(given, list) or len(given) != len(needed):
            raise malformed(field)
        if not all(_is_value(one) or (isinstance(one, list) and all(map(_is_value, one))) for one in given):
            raise malformed(field)
    changed = body.get("changedPropIds", [])
    if not isinstance(changed, list) or not all(isinstance(one, str) for one in changed):
        raise malformed("changedPropIds")
    outputs = body.get("outputs", [])
    several = outputs if isinstance(outputs, list) else [outputs]  # a single output is its own entry
    if not all(isinstance(one, list | dict) for one in several):
        raise malformed("outputs")
    request._cached_json = body, body
    return body


def _is_value(entry: Any) -> bool:
    """Whether an entry of a body is a property of a component."""
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("property"), str)
        and isinstance(entry.get("id"), str | dict)
        and (isinstance(entry["id"], str) or all(isinstance(part, str | int | float) for part in entry["id"].values()))
    )


def malformed(what: str) -> RefusedError:
    """The refusal of a body that no page sends, which is counted and logged in one line."""
    number = next(_MALFORMED)
    logging.getLogger(__name__).warning("Malformed callback number %d (%s)", number, what)
    return RefusedError(HTTPStatus.BAD_REQUEST, "The request names no callback of the atlas.", "Reload the page.")
