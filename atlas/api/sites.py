"""What other sites may do with this one: nothing. Their pages send it no request, name it, frame it or feed it scripts.

A browser sends requests for any page that it shows, also to a server that listens to its own machine alone, and a name
that somebody owns can be made to mean that machine. Programs say no origin and call a server as it is called.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable
from http import HTTPStatus
from urllib.parse import urlsplit

from flask import Flask, Response, current_app, request

from atlas.api.problems import RefusedError

VARIABLE = "ATLAS_HOSTS"
ADDRESS = "ATLAS_ADDRESS"  # in the server's configuration: the address that it listens to
PROXY = "ATLAS_PROXY"
HSTS = f"max-age={365 * 24 * 3600}"
SAFE = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
HEADERS = {"X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "same-origin"}
BARE = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
"""What a report may do, which is a page without scripts that holds the words of others."""


def install(server: Flask) -> None:
    """Refuse what comes from other sites; to be called before anything else that answers requests."""

    @server.before_request
    def only_from_here() -> None:
        host = request.headers.get("Host")
        if host is not None and not _is_ours(host):
            remedy = f"Call it localhost, or start it with the name in {VARIABLE}."
            raise RefusedError(HTTPStatus.FORBIDDEN, f"This server does not go by the name '{host[:100]}'.", remedy)
        if request.method not in SAFE and _is_from_elsewhere(host):
            proxied = f"where a proxy calls it by another name, start it with its own in {VARIABLE}."
            remedy = f"Open the atlas itself; {proxied}"
            raise RefusedError(HTTPStatus.FORBIDDEN, "The page of another site sent this.", remedy)

    @server.after_request
    def closed(response: Response) -> Response:
        for name, value in HEADERS.items():
            response.headers.setdefault(name, value)
        if behind_proxy() and request.is_secure:
            response.headers.setdefault("Strict-Transport-Security", HSTS)
        return response


def behind_proxy() -> bool:
    """Whether a reverse proxy says by which name and protocol it was asked; nobody else may say so."""
    return os.environ.get(PROXY) == "1"


def is_near(name: str | None) -> bool:
    """Whether a name or address means the machine itself, whoever asks."""
    if not name:
        return False
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name == "localhost" or name.endswith(".localhost")


def policy(scripts: Iterable[str]) -> str:
    """What a page may do: everything here, nothing elsewhere, and of scripts inside it those of these hashes alone.

    Styles inside it are let through, because figures and grids write their own.
    """
    return (
        f"default-src 'self'; script-src 'self' {' '.join(scripts)}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; font-src 'self' data:; worker-src 'self' blob:; object-src 'none'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )


def _is_ours(host: str) -> bool:
    name = _name(host)
    return name is not None and (is_near(name) or name in {_name(own) for own in _named()} or name == _address())


def _address() -> str | None:
    """The address that the server listens to, where that is one and not all of them."""
    try:
        address = ipaddress.ip_address(str(current_app.config.get(ADDRESS)))
    except ValueError:
        return None
    return None if address.is_unspecified else str(address)


def _is_from_elsewhere(host: str | None) -> bool:
    if request.headers.get("Sec-Fetch-Site") == "cross-site":
        return True
    origin = request.headers.get("Origin")
    if origin is None:
        return False
    sender = origin.partition("://")[2].lower()  # nothing of "null", which a sandboxed page says
    return not sender or sender not in {(host or "").lower(), *_named()}


def _named() -> frozenset[str]:
    """Names by which the server may be called, with a port where it is not the usual one."""
    return frozenset(os.environ.get(VARIABLE, "").lower().replace(",", " ").split())


def _name(host: str) -> str | None:
    """A host without its port, in small letters."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None
