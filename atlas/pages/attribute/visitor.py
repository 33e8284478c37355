"""The visitor's session, the service that holds their traces, and its refusals in the page.

The session is a cookie that no script reads and no other site sends. It begins with the first file, so that somebody
who only looks gets none.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import logging
import os
import secrets
from pathlib import Path
from typing import Any

from dash import ctx, html
from dash.development.base_component import Component
from flask import current_app, has_request_context, request

from atlas.api import access
from backend.enrolment.catalogue import Ecosystem
from backend.errors import AtlasError
from backend.service.service import Service

COOKIE = "atlas_session"
PRESS = "Press the button to start again"
KEY_FILE = "session-key"
"""In the cache folder: what session cookies are signed with, so that the server knows its own."""


def service() -> Service:
    """The service of the server that handles this request."""
    found: Service = current_app.extensions["attribution"]
    return found


def ecosystems() -> list[Ecosystem]:
    """Ecosystems as the visitor may know them: none before a token where the server needs one."""
    return service().ecosystems() if known() else []


def known() -> bool:
    """Whether the visitor gave the token, where the server needs one."""
    return access.authorised(request)


def session() -> str:
    """Key of the visitor's session, signed by this server; empty where there is none yet."""
    if not has_request_context():
        return ""
    key, _, sign = request.cookies.get(access.cookie_name(COOKIE, request), "").partition(".")
    return key if hmac.compare_digest(sign.encode("utf-8", "replace"), _sign(key).encode()) else ""


def admitted() -> str:
    """Key of the visitor's session, of somebody who may upload and score.

    Raises AtlasError if the server asks for a token and the visitor has not given it, or takes no uploads.
    """
    if address := access.exposed():
        raise AtlasError("This atlas takes no traces", access.public_words(address))
    if not access.authorised(request):
        raise AtlasError("This atlas asks for a token before it takes traces", "Give it at the top of the page")
    return session()


def opened_session() -> str:
    """As :func:`admitted`, with a new session where there is none; only inside a callback."""
    key = admitted()
    if not key:
        key = secrets.token_urlsafe(32)
        access.set_cookie(ctx.response, COOKIE, f"{key}.{_sign(key)}")
    return key


def _sign(key: str) -> str:
    secret: bytes | None = current_app.extensions.get(KEY_FILE)
    if secret is None:
        secret = current_app.extensions[KEY_FILE] = _secret(service().uploads.folder.with_name(KEY_FILE))
    return hmac.new(secret, key.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def _secret(file: Path) -> bytes:
    """The secret in a file, new where there is none; one that cannot be saved lasts as long as the process."""
    secret = secrets.token_bytes(32)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        scratch = file.with_name(f".{file.name}-{secrets.token_hex(4)}")
        scratch.touch(mode=0o600, exist_ok=False)
        scratch.write_bytes(secret)
        with contextlib.suppress(FileExistsError):
            os.link(scratch, file)
        scratch.unlink()
        return file.read_bytes() or secret
    except OSError:
        logging.getLogger(__name__).warning("%s cannot be written; sessions end with this process", file)
        return secret


def refusal(error: AtlasError) -> Component:
    """What is wrong, and what to do, in the page."""
    parts = [html.Strong(f"{error.problem.rstrip('.')}. ", dir="auto"), *remedy(error.remedy)]
    return html.Div(parts, className="problem", role="alert")


def remedy(text: str) -> list[Any]:
    """A remedy with its command set apart."""
    before, start, command = text.partition("python -m ")
    return [before, *([html.Code(start + command)] if start else [])]
