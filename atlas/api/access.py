"""Who may send requests, and how much: names of the server, other sites, an optional bearer token, body limits.

A browser sends requests for any page, also to a server that only its own machine reaches, and a foreign name can point
to that machine. So pages of other sites may send nothing, name, frame or feed scripts to this one. Programs say no
origin and call a server as it is called.

``ATLAS_TOKEN`` guards ``/api`` and the page's uploads. A program sends it as ``Authorization: Bearer …``; a person
gives it once (``POST /api/session``) for a cookie that scripts do not see and other sites cannot use. All processes of
the server know the cookie from their records, so that taking it away ends it everywhere.
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
from collections.abc import Iterable
from urllib.parse import urlsplit

from flask import Blueprint, Flask, Request, Response, current_app, request

from atlas.api.problems import PREFIX, RefusedError
from atlas.api.requests import FORM, JSON, LARGE, SMALL, Token, checked, read_json
from backend.service.records import Records

HOSTS = "ATLAS_HOSTS"
ADDRESS = "ATLAS_ADDRESS"  # in the server's configuration: the address that it listens to
PROXY = "ATLAS_PROXY"
HSTS = f"max-age={365 * 24 * 3600}"
SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
HEADERS = {"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin"}
BARE = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""What a report may do, which is a page without scripts that holds the words of others."""
TOKEN = "ATLAS_TOKEN"
OPEN = "ATLAS_OPEN"
COOKIE = "atlas_access"
LIFETIME = 24 * 3600  # seconds for which a browser keeps the cookie
MOST = 10_000  # cookies, and addresses with wrong tokens, that are remembered; the oldest go first
TRIES = 5  # wrong tokens of one address before it has to wait
LONGEST_WAIT = 300.0
CALLBACK = "/_dash-update-component"
FILE = 27_000_000  # bytes of a request to /api: a file of 25 MB, and its wrapping
PAGE_FILE = 34_500_000  # bytes of a request by a page: a file of 25 MB in base64, and its wrapping
ASSISTANTS = "/mcp"
TRACES_OF_SPANS = "/v1/traces"  # as exporters of OpenTelemetry call it
TRACES = frozenset(
    {*(f"{PREFIX}/{name}" for name in ("attribute", "preview", "drift", "reference")), ASSISTANTS, TRACES_OF_SPANS}
)


def install(server: Flask) -> None:
    """Refuse what comes from other sites; to be called before anything else that answers requests."""

    @server.before_request
    def only_from_here() -> None:
        host = request.headers.get("Host")
        name = None if host is None else _name(host)
        own = {_address(), *map(_name, _named())} - {None}
        if host is not None and not is_near(name) and name not in own:
            remedy = f"Call it localhost, or start it with the name in {HOSTS}."
            raise RefusedError(403, f"This server does not go by the name '{host[:100]}'.", remedy)
        if request.method not in SAFE and _is_foreign(host):
            remedy = f"Open the atlas itself; where a proxy calls it by another name, start it with its own in {HOSTS}."
            raise RefusedError(403, "The page of another site sent this.", remedy)

    @server.after_request
    def closed(response: Response) -> Response:
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        if behind_proxy() and request.is_secure:
            response.headers.setdefault("Strict-Transport-Security", HSTS)
        return response


def behind_proxy() -> bool:
    """Whether a reverse proxy says by which name and protocol it was called; nobody else may say so."""
    return os.environ.get(PROXY) == "1"


def is_near(name: str | None) -> bool:
    """Whether a name or address means the machine itself, whoever asks."""
    if not name:
        return False
    address = _ip(name)
    return address.is_loopback if address else name == "localhost" or name.endswith(".localhost")


def policy(scripts: Iterable[str]) -> str:
    """What a page may do: everything here, nothing on other sites, and of its own scripts those of these hashes alone.

    Styles inside it are let through, because figures and grids write their own.
    """
    return (
        f"default-src 'self'; script-src 'self' {' '.join(scripts)}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; object-src 'none'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )


def _address() -> str | None:
    """The address that the server listens to, where that is one and not all of them."""
    address = _ip(str(current_app.config.get(ADDRESS)))
    return None if address is None or address.is_unspecified else str(address)


def _is_foreign(host: str | None) -> bool:
    if request.headers.get("Sec-Fetch-Site") == "cross-site":
        return True
    origin = request.headers.get("Origin")
    if origin is None:
        return False
    sender = origin.partition("://")[2].lower()  # nothing of "null", which a sandboxed page says
    return not sender or sender not in {(host or "").lower(), *_named()}


def _named() -> frozenset[str]:
    """Names by which the server may be called, with a port where it is not the usual one."""
    return frozenset(os.environ.get(HOSTS, "").lower().replace(",", " ").split())


def _name(host: str) -> str | None:
    """A host without its port, in small letters."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


class Grants:
    """Cookies that were given for the token, in the records that all processes of the server share."""

    records: Records  # of the server that was installed last

    def give(self) -> str:
        """A new cookie."""
        cookie = secrets.token_urlsafe(32)
        self.records.grant(_digest(cookie), _digest(_token()), time.time() + LIFETIME, MOST)
        return cookie

    def holds(self, cookie: str) -> bool:
        """Whether a cookie was given for the token of now, and not taken away."""
        if not cookie:
            return False
        until, token = self.records.granted(_digest(cookie))
        return until > time.time() and token == _digest(_token())

    def take(self, cookie: str) -> None:
        """End a cookie."""
        self.records.revoke(_digest(cookie))


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
    """Whether a token is needed."""
    return bool(os.environ.get(TOKEN))


def fits(token: bytes, address: str | None) -> bool:
    """Whether a token is right, in constant time; raises RefusedError 429 after too many wrong ones."""
    address = address or "unknown"
    if (wait := throttle.wait(address)) > 0:
        remedy = f"Try again in {wait:.0f} seconds."
        raise RefusedError(429, "Too many wrong tokens came from here.", remedy)
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


def is_local(request: Request) -> bool:
    """Whether the machine itself asks, and calls the server by a name of its own machine."""
    return is_near(request.remote_addr) and is_near(_name(request.headers.get("Host", "")))


def is_upload(method: str, path: str) -> bool:
    """Whether a request brings traces in its body; what a page brings is seen by its callbacks."""
    return method == "POST" and path in TRACES


def longest(method: str, path: str, mimetype: str) -> int:
    """Bytes that a request may have, by its route and the type of its body."""
    if method == "POST" and path == ASSISTANTS and mimetype == JSON:
        return LARGE
    if is_upload(method, path) and mimetype in (JSON, FORM):
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
            413,
            f"The body has {length:,} bytes, and at most {most:,} are taken here.",
            "Give larger files to the command line: python -m jobs attribute FILE; it has no such limit.",
        )
    if (length > SMALL or chunked) and not authorised(request, counted=False):
        raise RefusedError(
            401,
            "The request has no valid token.",
            "Send it as: Authorization: Bearer TOKEN, or give it on the page Attribute.",
        )


def exposed() -> str | None:
    """The address by which others reach a server without a token, or None."""
    if guarded() or os.environ.get(OPEN) == "1":
        return None
    address = current_app.config.get(ADDRESS) or _own_address()
    return None if address is None or is_near(address) else str(address)


def public_words(address: str) -> str:
    """What to know of a server without a token that others reach."""
    if os.environ.get(OPEN) == "1":
        return f"{address} is reached by others, and {OPEN}=1 takes uploads from everybody who does"
    return (
        f"{address} is reached by others and no {TOKEN} is set, so uploads are refused; set {TOKEN}, "
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
            raise RefusedError(415, "The body is no JSON.", 'Send {"token": "…"}.')
        if not fits(checked(Token, read_json(request), strict=True).token.encode(), request.remote_addr):
            raise RefusedError(401, "The token is another one.", "Ask whoever runs the server.")
        done = Response(status=204)
        admit(done)
        return done

    @routes.delete("/session")
    def drop_token() -> Response:
        done = Response(status=204)
        name = cookie_name(COOKIE, request)
        grants.take(request.cookies.get(name, ""))
        done.delete_cookie(name, httponly=True, samesite="Strict", secure=request.is_secure, path="/")
        return done


def _token() -> bytes:
    return os.environ.get(TOKEN, "").encode("utf-8", "surrogateescape")


def _same(one: bytes, other: bytes) -> bool:
    return hmac.compare_digest(hashlib.sha256(one).digest(), hashlib.sha256(other).digest())


def _digest(value: str | bytes) -> str:
    return hashlib.sha256(value if isinstance(value, bytes) else value.encode("utf-8", "replace")).hexdigest()


def _own_address() -> str | None:
    """The address that the server listens to, where it says so."""
    environ = {**request.environ, **request.environ.get("werkzeug.proxy_fix.orig", {})}
    address = _ip(environ.get("SERVER_NAME", ""))
    return None if address is None else str(address)


def _ip(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
