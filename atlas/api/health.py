"""Whether the atlas is well, which generation it serves, and whether it can serve at all."""

from __future__ import annotations

import dataclasses
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, jsonify

from atlas.data import QueryCache
from backend import __version__
from backend.service.service import Service


def add_health(server: Flask, cache: QueryCache, service: Service) -> None:
    """Answer ``/health`` and ``/ready`` in JSON.

    An atlas that lacks something is up, and says what it lacks; it is ready while it has a generation to show.
    """

    @server.get("/health")
    def health() -> Response:
        nothing = cache.problem()
        state = service.state()
        problems = [str(problem) for problem in (nothing, cache.warning(), *service.damaged()) if problem is not None]
        if state.status == "failed":
            problems.append(f"{state.problem}. {state.remedy}.")
        told: dict[str, Any] = {
            "status": "degraded" if problems else "ok",
            "version": __version__,
            "generation": None if nothing is not None else cache.generation().name,
            "attribution": dataclasses.asdict(state),
            "problems": problems,
        }
        return jsonify(told | ({"problem": problems[0]} if problems else {}))

    @server.get("/ready")
    def ready() -> Response:
        problem = cache.problem()
        response = jsonify({"ready": problem is None} | ({} if problem is None else {"problem": str(problem)}))
        response.status_code = HTTPStatus.OK if problem is None else HTTPStatus.SERVICE_UNAVAILABLE
        return response
