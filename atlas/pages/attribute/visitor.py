"""Who asks: the visitor's session, the service that holds their traces, and how its refusals are said in the page.

The session is a cookie that no script reads and no other site sends. It is made with the first file, so that somebody
who only looks gets none.
"""

from __future__ import annotations

import secrets
from typing import Any

from dash import ctx, html
from dash.development.base_component import Component
from flask import current_app, has_request_context, request

from atlas.api import access
from backend.audit.service import Service
from backend.errors import AtlasError

COOKIE = "atlas_session"
LONG_ENOUGH = 20


def service() -> Service:
    """The service of the server that handles this request."""
    found: Service = current_app.extensions["attribution"]
    return found


def session() -> str:
    """Key of the visitor's session; empty where there is none yet."""
    held = request.cookies.get(COOKIE, "") if has_request_context() else ""
    return held if len(held) >= LONG_ENOUGH else ""


def admitted() -> str:
    """Key of the visitor's session, of somebody who may upload and score.

    Raises
    ------
    AtlasError
        If the server asks for a token and the visitor has not given it.
    """
    if not access.authorised(request):
        raise AtlasError("This atlas asks for a token before it takes traces", "Give it at the top of the page")
    return session()


def opened_session() -> str:
    """As :func:`admitted`, with a session made now where there is none; only inside a callback."""
    key = admitted()
    if not key:
        key = secrets.token_urlsafe(32)
        ctx.response.set_cookie(COOKIE, key, httponly=True, samesite="Strict", secure=request.is_secure, path="/")
    return key


def said(error: AtlasError) -> Component:
    """A refusal in the page: what is wrong, and what to do."""
    remedy = error.remedy
    before, start, command = remedy.partition("python -m ")
    parts: list[Any] = [html.Strong(f"{error.problem.rstrip('.')}. ", dir="auto"), before]
    if start:
        parts.append(html.Code(start + command))
    return html.Div(parts, className="problem", role="alert")
