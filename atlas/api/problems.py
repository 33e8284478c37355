"""What goes wrong below ``/api``, as problem documents (RFC 9457)."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, Rule

from backend.errors import AtlasError, ServerError, StoppedError
from backend.service import caller
from backend.service.uploads import BusyError, DeniedError, FullError, MissingError, TooLargeError

PREFIX = "/api"
CONTENT = "application/problem+json"
RETRY_AFTER = 10  # seconds after which a request that has to wait may come again
_REFUSALS: Mapping[type[AtlasError], int] = {
    DeniedError: 403, MissingError: 404, TooLargeError: 413, BusyError: 429, StoppedError: 409, ServerError: 503,
    FullError: 507,
}  # fmt: skip
"""Status of an error by its class; the last one that fits holds."""


class RefusedError(Exception):
    """A request that is answered with a problem document.

    errors : ``pointer`` (JSON pointer into the body, or a parameter) and ``detail`` of every wrong value.
    """

    def __init__(
        self, status: int, detail: str, remedy: str | None = None, errors: Sequence[Mapping[str, str]] = ()
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.remedy, self.errors = HTTPStatus(status), detail, remedy, errors


def status_of(error: AtlasError, status: int = 422) -> int:
    """Status of an error that a person may read; ``status`` where its class has none."""
    for kind, known in _REFUSALS.items():
        if isinstance(error, kind):
            status = known
    return status


def refused(error: AtlasError, status: int = 422) -> RefusedError:
    """A refusal out of an error that a person may read."""
    return RefusedError(status_of(error, status), f"{error.problem}.", f"{error.remedy}.")


def document(error: RefusedError) -> dict[str, Any]:
    """The problem as JSON."""
    status = error.status
    body = {"type": "about:blank", "title": status.phrase, "status": status.value, "detail": error.detail}
    more = {"remedy": error.remedy, "errors": [dict(entry) for entry in error.errors]}
    return body | {name: value for name, value in more.items() if value}


def answer(error: RefusedError, headers: Mapping[str, str] | None = None) -> Response:
    """The response to a refused request."""
    now = caller.current().request
    numbered = {} if now == caller.NOBODY else {"request_id": now}
    response = Response(json.dumps(document(error) | numbered), error.status.value, content_type=CONTENT)
    response.headers.update(headers or {})
    if error.status in (429, 503):
        response.headers["Retry-After"] = str(RETRY_AFTER)
    if error.status == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="atlas"'
    return response


def handle(server: Flask, blueprint: str) -> None:
    """Answer every error below ``/api`` with a problem document, also for paths and methods that do not exist.

    Dash answers any other GET with its page, so paths are matched against the blueprint's own rules first, and one with
    a slash more is another path: Flask would redirect it by the name that the request came with.
    """
    server.url_map.merge_slashes = False
    rules = [
        Rule(rule.rule, endpoint=rule.endpoint, methods=rule.methods)
        for rule in server.url_map.iter_rules()
        if rule.endpoint.startswith(f"{blueprint}.")
    ]
    known = Map(rules, merge_slashes=False).bind("")

    @server.before_request
    def only_what_exists() -> None:
        if inside():
            known.match(request.path, request.method)

    @server.errorhandler(HTTPException)
    def http(error: HTTPException) -> Response | HTTPException:
        if not inside():
            return error
        status = HTTPStatus(error.code or 500)
        headers = {name: value for name, value in error.get_headers() if name in ("Allow", "Retry-After")}
        return answer(RefusedError(status, error.description or status.phrase), headers)

    @server.errorhandler(RefusedError)
    def refusal(error: RefusedError) -> Response:
        return answer(error)

    @server.errorhandler(AtlasError)
    def readable(error: AtlasError) -> Response:
        return answer(refused(error))

    @server.errorhandler(500)
    def unforeseen(error: HTTPException) -> Response | HTTPException:
        if not inside():
            error.description = f"The server failed; its log says more. {reference()}"
            return error
        logging.getLogger(__name__).error("%s %s failed", request.method, request.path)
        return answer(RefusedError(500, "The server failed.", "Its log says more, by the request's id."))


def reference() -> str:
    """How a person names the request to whoever runs the server."""
    return f"Reference: {caller.current().request}"


def inside() -> bool:
    """Whether the request is for ``/api``."""
    return request.path == PREFIX or request.path.startswith(f"{PREFIX}/")
