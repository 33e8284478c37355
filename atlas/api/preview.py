"""``/api/preview``: what a file of traces is, before anything is scored."""

from __future__ import annotations

import secrets
from dataclasses import asdict

from flask import Blueprint, Response, jsonify, request

from atlas.api.requests import received
from backend.service.service import Service


def add(routes: Blueprint, service: Service) -> None:
    """Add the route; it takes the body of ``POST /api/attribute``, and leaves nothing behind."""

    @routes.post("/preview")
    def preview() -> Response:
        session = secrets.token_hex(16)
        name, content, settings = received(request)
        try:
            key = service.upload(session, name, content, passing=True).key
            del content  # it would stay in memory while others are parsed
            return jsonify(asdict(service.inspect(session, key, settings.columns, settings.encoding)))
        finally:
            service.forget(session)
