"""Who may ask, and how much: an optional bearer token, and limits that hold before a body is read.

``ATLAS_TOKEN`` guards ``/api`` and the page's uploads alike. A program sends it as ``Authorization: Bearer …``; a
person gives it once (``POST /api/session``), and the browser keeps a cookie that scripts do not see and other sites
cannot use. The cookie is a number that this process remembers, so that taking it away ends it everywhere.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import os
import secrets
import threading
import time
from collections import OrderedDict
from http import HTTPStatus

from flask import Blueprint, Request, Response, current_app, request

from atlas.api import sites
from atlas.api.bodies import JSON, SMALL, read_json
from atlas.api.problems import PREFIX, RefusedError
from atlas.api.requests import FORM, Token, checked

VARIABLE = "ATLAS_TOKEN"
OPEN = "ATLAS_OPEN"
COOKIE = "atlas_access"
LIFETIME = 24 * 3600  # seconds for which a browser keeps the cookie
MOST = 10_000  # cookies, and addresses with wrong tokens, that are remembered; the oldest go first
TRIES = 5  # wrong tokens of one address before it has to wait
LONGEST_WAIT = 300.0
CALLBACK = "/_dash-update-component"
FILE = 27_000_000  # bytes of a request to /api: a file of 25 MB, and its wrapping
PAGE_FILE = 34_500_000  # bytes of a request by a page: a file of 25 MB in base64, and its wrapping
TRACES = frozenset(f"{PREFIX}/{name}" for name in ("attribute", "preview", "drift"))


class Grants:
    """Cookies that were given for the token; threads may share it."""

    def __init__(self) -> None:
        self._given: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self._lock = threading.Lock()

    def give(self) -> str:
        """A new cookie."""
        cookie = secrets.token_urlsafe(32)
        with self._lock:
            self._given[_digest(cookie)] = time.time() + LIFETIME, _digest(_token())
            while len(self._given) > MOST:
                self._given.popitem(last=False)
        return cookie

    def holds(self, cookie: str) -> bool:
        """Whether a cookie was given for the token of now, and not taken away."""
        until, token = self._given.get(_digest(cookie), (0.0, ""))
        return until > time.time() and token == _digest(_token())

    def take(self, cookie: str) -> None:
        """End a cookie."""
        with self._lock:
            self._given.pop(_digest(cookie), None)


class Throttle:
    """Makes an address wait that sends wrong tokens, each time twice as long; threads may share it."""

    def __init__(self) -> None:
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._lock = threading.Lock()

    def wait(self, address: str) -> float:
        """Seconds for which no token of an address is looked at."""
        return max(0.0, self._wrong.get(address, (0, 0.0))[1] - time.monotonic())

    def note(self, address: str, right: bool) -> None:
        """Remember a token that was looked at."""
        with self._lock:
            count, _ = self._wrong.pop(address, (0, 0.0))
            if right:
                return
            wait = min(LONGEST_WAIT, 2.0 ** (count + 1 - TRIES)) if count + 1 >= TRIES else 0.0
            self._wrong[address] = count + 1, time.monotonic() + wait
            while len(self._wrong) > MOST:
                self._wrong.popitem(last=False)
        logging.getLogger(__name__).warning("Wrong token number %d from %s; it waits %.0f s", count + 1, address, wait)


grants, throttle = Grants(), Throttle()


def guarded() -> bool:
    """Whether a token is asked for."""
    return bool(os.environ.get(VARIABLE))


def fits(token: bytes, address: str | None) -> bool:
    """Whether a token is right, in constant time; raises RefusedError 429 after too many wrong ones."""
    address = address or "unknown"
    if (wait := throttle.wait(address)) > 0:
        remedy = f"Try again in {wait:.0f} seconds."
        raise RefusedError(HTTPStatus.TOO_MANY_REQUESTS, "Too many wrong tokens came from here.", remedy)
    right = _same(token, _token())
    throttle.note(address, right)
    return right


def authorised(request: Request, *, counted: bool = True) -> bool:
    """Whether a request may upload and score; ``counted`` is False for a look ahead at one that is looked at again."""
    if not guarded():
        return True
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        token = given.strip().encode("latin-1", "replace")  # headers are read as Latin-1
        return fits(token, request.remote_addr) if counted else _same(token, _token())
    return grants.holds(request.cookies.get(cookie_name(COOKIE, request), ""))


def longest(method: str, path: str, mimetype: str) -> int:
    """Bytes that a request may have, by its route and the type of its body."""
    if method == "POST" and path in TRACES and mimetype in (JSON, FORM):
        return FILE
    if method == "POST" and path.endswith(CALLBACK) and mimetype == JSON:
        return PAGE_FILE
    return SMALL


def check_length(request: Request) -> None:
    """Refuse a body that is too long (413), or large and without the token (401), unread."""
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


def exposed() -> str | None:
    """The address by which others reach a server without a token, or None."""
    if guarded() or os.environ.get(OPEN) == "1":
        return None
    address = current_app.config.get(sites.ADDRESS) or _own_address()
    return None if address is None or sites.is_near(address) else str(address)


def public_words(address: str) -> str:
    """What to know of a server without a token that others reach."""
    if os.environ.get(OPEN) == "1":
        return f"{address} is reached by others, and {OPEN}=1 takes uploads from everybody who does"
    return (
        f"{address} is reached by others and no {VARIABLE} is set, so uploads are refused; set {VARIABLE}, "
        f"or {OPEN}=1 to take uploads from everybody"
    )


def cookie_name(name: str, request: Request) -> str:
    """A cookie's name; over TLS one that no other host can set."""
    return f"__Host-{name}" if request.is_secure else name


def admit(response: Response) -> None:
    """Give the cookie of somebody who gave the token."""
    set_cookie(response, COOKIE, grants.give(), LIFETIME)


def set_cookie(response: Response, name: str, value: str, lifetime: int | None = None) -> None:
    """Set a cookie that no script reads and no other site sends; for the browser's session without a lifetime."""
    response.set_cookie(
        cookie_name(name, request), value, max_age=lifetime, httponly=True, samesite="Strict",
        secure=request.is_secure, path="/",
    )  # fmt: skip


def add(routes: Blueprint) -> None:
    """``POST`` and ``DELETE /api/session``: a browser that gave the token once may upload."""

    @routes.post("/session")
    def give_token() -> Response:
        if request.mimetype != JSON:
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "The body is no JSON.", 'Send {"token": "…"}.')
        if not fits(checked(Token, read_json(request), strict=True).token.encode(), request.remote_addr):
            raise RefusedError(HTTPStatus.UNAUTHORIZED, "The token is another one.", "Ask whoever runs the server.")
        done = Response(status=HTTPStatus.NO_CONTENT)
        admit(done)
        return done

    @routes.delete("/session")
    def drop_token() -> Response:
        done = Response(status=HTTPStatus.NO_CONTENT)
        name = cookie_name(COOKIE, request)
        grants.take(request.cookies.get(name, ""))
        done.delete_cookie(name, httponly=True, samesite="Strict", secure=request.is_secure, path="/")
        return done


def _token() -> bytes:
    return os.environ.get(VARIABLE, "").encode("utf-8", "surrogateescape")


def _same(one: bytes, other: bytes) -> bool:
    return hmac.compare_digest(hashlib.sha256(one).digest(), hashlib.sha256(other).digest())


def _digest(value: str | bytes) -> str:
    return hashlib.sha256(value if isinstance(value, bytes) else value.encode("utf-8", "replace")).hexdigest()


def _own_address() -> str | None:
    """The address that the server listens to, where it says so."""
    environ = {**request.environ, **request.environ.get("werkzeug.proxy_fix.orig", {})}
    name = environ.get("SERVER_NAME", "")
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return None
