"""What programs ask: for now whether the atlas is well, and which generation it serves."""

from __future__ import annotations

import importlib.metadata

from flask import Flask, Response, jsonify

from atlas.data import Questions


def version() -> str:
    """Version of the installed package, 'source' when it runs from a folder."""
    try:
        return importlib.metadata.version("provenance-atlas")
    except importlib.metadata.PackageNotFoundError:
        return "source"


def add_health(server: Flask, asked: Questions) -> None:
    """Answer ``/health`` in JSON. An atlas without data is up, and says what it lacks."""

    @server.get("/health")
    def health() -> Response:
        answer: dict[str, str | None] = {"status": "ok", "version": version(), "generation": None}
        problem = asked.problem()
        if problem is None:
            answer["generation"] = asked.generation().name
            problem = asked.warning()
        if problem is not None:
            answer |= {"status": "degraded", "problem": str(problem)}
        return jsonify(answer)
