"""Who may ask: an optional bearer token, which guards ``/api`` and the page's uploads alike.

``ATLAS_TOKEN`` sets it. A program sends it as ``Authorization: Bearer …``; a person gives it once
(``POST /api/session``), and the browser keeps a cookie that scripts do not see and other sites cannot use.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from http import HTTPStatus

from flask import Blueprint, Request, Response, request

from atlas.api.problems import RefusedError
from atlas.api.requests import JSON, Token, checked, read_json

VARIABLE = "ATLAS_TOKEN"
COOKIE = "atlas_access"
LIFETIME = 24 * 3600
"""Seconds for which a browser keeps the cookie."""


def guarded() -> bool:
    """Whether a token is asked for."""
    return bool(os.environ.get(VARIABLE))


def fits(token: bytes) -> bool:
    """Whether a token is the right one, in a time that does not depend on where it differs."""
    wanted = os.environ.get(VARIABLE, "").encode("utf-8", "surrogateescape")
    return hmac.compare_digest(hashlib.sha256(token).digest(), hashlib.sha256(wanted).digest())


def authorised(request: Request) -> bool:
    """Whether a request may upload and score traces: always without ``ATLAS_TOKEN``, else with its token."""
    if not guarded():
        return True
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return fits(token.strip().encode("latin-1", "replace"))  # headers are read as Latin-1
    return hmac.compare_digest(request.cookies.get(COOKIE, "").encode(), cookie().encode())


def cookie() -> str:
    """What the cookie of somebody who gave the token holds."""
    return hashlib.sha256(
        b"atlas cookie\0" + os.environ.get(VARIABLE, "").encode("utf-8", "surrogateescape")
    ).hexdigest()


def add(routes: Blueprint) -> None:
    """``POST`` and ``DELETE /api/session``: a browser that gave the token once may upload."""

    @routes.post("/session")
    def give_token() -> Response:
        if request.mimetype != JSON:
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "The body is no JSON.", 'Send {"token": "…"}.')
        if not fits(checked(Token, read_json(request), strict=True).token.encode()):
            raise RefusedError(HTTPStatus.UNAUTHORIZED, "The token is another one.", "Ask whoever runs the server.")
        done = Response(status=HTTPStatus.NO_CONTENT)
        done.set_cookie(COOKIE, cookie(), max_age=LIFETIME, httponly=True, samesite="Strict", secure=request.is_secure)
        return done

    @routes.delete("/session")
    def drop_token() -> Response:
        done = Response(status=HTTPStatus.NO_CONTENT)
        done.delete_cookie(COOKIE, httponly=True, samesite="Strict", secure=request.is_secure)
        return done
