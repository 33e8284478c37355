"""The visitor's session, the service that holds their traces, and its refusals in the page.

The session is a cookie that no script reads and no other site sends. It begins with the first file, so that somebody
who only looks gets none.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from typing import Any

from dash import ctx, html
from dash.development.base_component import Component
from flask import current_app, has_request_context, request

from atlas.api import access, problems
from backend.enrolment.catalogue import Ecosystem
from backend.errors import AtlasError
from backend.service import measurements
from backend.service.service import Service
from backend.service.uploads import DeniedError

COOKIE = "atlas_session"
VISIT = re.compile(r"[0-9a-f]{32}")
PRESS = "Press the button to start again"


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
        raise DeniedError("This atlas takes no traces", access.public_words(address))
    if not access.authorised(request):
        raise DeniedError("This atlas asks for a token before it takes traces", "Give it at the top of the page")
    return session()


def opened_session(visit: str | None = None) -> str:
    """As :func:`admitted`, with a new session where there is none; only inside a callback.

    visit : secret that the page made when it opened. Files that arrive together begin one session by it: with one each,
    all but the last would be lost.
    """
    key = admitted()
    if not key:
        begun = visit is not None and VISIT.fullmatch(visit)
        key = _sign(f"session of {visit}") if begun else secrets.token_urlsafe(32)
        access.set_cookie(ctx.response, COOKIE, f"{key}.{_sign(key)}")
    return key


def _sign(key: str) -> str:
    return hmac.new(service().secret, key.encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def newest_report() -> dict[str, Any] | None:
    """Report of the visitor's newest answered question; None without one."""
    key = session()
    return service().newest_report(key) if key and known() else None


def newest_comparison(kind: str) -> dict[str, Any] | None:
    """The visitor's newest comparison of a kind, 'windows' or 'reference'; None without one."""
    key = session()
    return service().newest_comparison(key, kind) if key and known() else None


def count_refusal(error: AtlasError) -> None:
    """Count an upload that was refused."""
    measurements.count_refusal(problems.status_of(error))


def refusal(error: AtlasError) -> Component:
    """What is wrong, and what to do, in the page."""
    parts = [html.Strong(f"{error.problem.rstrip('.')}. ", dir="auto"), *remedy(error.remedy)]
    return html.Div(parts, className="problem", role="alert")


def remedy(text: str) -> list[Any]:
    """A remedy with its command set apart."""
    before, start, command = text.partition("python -m ")
    if not start:
        return [f"{text.rstrip('.')}." if text else ""]
    return [before, html.Code(start + command)]
