"""What a request may send: decided by its first lines, before a byte of its body is read."""

from __future__ import annotations

from http import HTTPStatus

from flask import Request

from atlas.api.access import authorised
from atlas.api.bodies import JSON, SMALL
from atlas.api.problems import PREFIX, RefusedError
from atlas.api.requests import FORM

CALLBACK = "/_dash-update-component"
FILE = 27_000_000
"""Bytes of a request to ``/api``: a file of 25 MB, and its wrapping."""
PAGE_FILE = 34_500_000
"""Bytes of a request by a page: a file of 25 MB in base64, and its wrapping."""
TRACES = frozenset(f"{PREFIX}/{name}" for name in ("attribute", "preview", "drift"))


def longest(method: str, path: str, mimetype: str) -> int:
    """Bytes that a request may have, by its route and the type of its body."""
    if method == "POST" and path in TRACES and mimetype in (JSON, FORM):
        return FILE
    if method == "POST" and path.endswith(CALLBACK) and mimetype == JSON:
        return PAGE_FILE
    return SMALL


def check_length(request: Request) -> None:
    """Refuse a request whose body is too long, or large and sent without the token; reads nothing of it.

    Raises
    ------
    RefusedError
        401 or 413.
    """
    chunked = "chunked" in request.headers.get("Transfer-Encoding", "").lower()
    length, most = request.content_length or 0, longest(request.method, request.path, request.mimetype)
    request.max_content_length = most
    if length > most:
        raise RefusedError(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"The body has {length:,} bytes, and at most {most:,} are taken here.",
            "Give larger files to the command line: python -m jobs attribute FILE; it has no such limit.",
        )
    if (length > SMALL or chunked) and not authorised(request, counted=False):
        raise RefusedError(
            HTTPStatus.UNAUTHORIZED,
            "The request has no valid token.",
            "Send it as: Authorization: Bearer TOKEN, or give it on the page Attribute.",
        )
