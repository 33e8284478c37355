"""``/metrics`` for Prometheus, on the machine itself or with the token; requests and refused uploads are counted."""

from __future__ import annotations

import time

from flask import Flask, Response, g, request

from atlas.api import access
from atlas.api.problems import RefusedError
from backend.service import measurements
from backend.service.service import Service


def install(server: Flask, service: Service) -> None:
    """Answer ``/metrics``, and count every request; to be called before others answer requests."""

    @server.before_request
    def begin() -> None:
        g.begun = time.perf_counter()

    @server.after_request
    def count(response: Response) -> Response:
        rule, status = request.url_rule, response.status_code
        seconds = time.perf_counter() - g.get("begun", time.perf_counter())
        measurements.count_request(None if rule is None else rule.rule, request.method, status, seconds)
        if status >= 400 and access.is_upload(request.method, request.path):
            measurements.count_refusal(status)
        return response

    @server.get("/metrics")
    def metrics() -> Response:
        if access.guarded():
            if not access.authorised(request):
                raise RefusedError(401, "The request has no valid token.", "Send it as: Authorization: Bearer TOKEN.")
        elif not access.is_local(request):
            remedy = f"Start it with {access.TOKEN}, and send that, or ask from the machine itself."
            raise RefusedError(403, "This server shows its measurements to its own machine alone.", remedy)
        text, content_type = measurements.exposition(request.headers.get("Accept", ""), service.load)
        response = Response(text, content_type=content_type)
        response.headers["Cache-Control"] = "no-store"
        return response
