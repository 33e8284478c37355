"""Whether the atlas is well, and which generation it serves."""

from __future__ import annotations

from flask import Flask, Response, jsonify

from atlas.data import Questions
from backend import __version__


def add_health(server: Flask, asked: Questions) -> None:
    """Answer ``/health`` in JSON. An atlas without data is up, and says what it lacks."""

    @server.get("/health")
    def health() -> Response:
        answer: dict[str, str | None] = {"status": "ok", "version": __version__, "generation": None}
        problem = asked.problem()
        if problem is None:
            answer["generation"] = asked.generation().name
            problem = asked.warning()
        if problem is not None:
            answer |= {"status": "degraded", "problem": str(problem)}
        return jsonify(answer)
