"""``/health``, ``/ready``, and what the generation holds: sources, neighbours, evaluations, ecosystems."""

from __future__ import annotations

import dataclasses
from http import HTTPStatus
from typing import Any

import pandas as pd
from flask import Blueprint, Flask, Response, jsonify, request

from atlas.api.problems import RefusedError
from atlas.data import QueryCache
from atlas.state import LONGEST_NAME, View
from backend import __version__
from backend.errors import AtlasError
from backend.service.service import Service
from backend.store import queries, result_queries

MOST_ROWS = 10_000
TOP = 10


def add(routes: Blueprint, cache: QueryCache, service: Service) -> None:
    """Add the routes."""

    @routes.get("/sources")
    def sources() -> Response:
        _served(cache)
        frame = cache.ask(result_queries.all_sources)
        for roster in _names("roster").values():
            frame = frame[[roster in rosters for rosters in frame["rosters"]]]
        return jsonify({"generation": cache.generation().name, "sources": rows(frame)})

    @routes.get("/neighbors/<path:label>")
    def neighbors(label: str) -> Response:
        _served(cache)
        given = _names("reader", "roster", "domain")
        view = cache.resolve_view(View(**given))
        top = _number("top", TOP, 1, MOST_ROWS)
        for name, value in given.items():
            if getattr(view, name) != value:
                raise _wrong(name, "The generation knows no such name")
        reader = cache.map_reader(view) or view.reader
        frame = cache.ask_anew(queries.neighbors, reader, view.roster, view.domain, label, top)
        if not len(frame):
            detail = "There are no neighbours of this source in this map."
            raise RefusedError(HTTPStatus.NOT_FOUND, detail, "GET /api/sources lists the sources.")
        place = {"reader": reader, "roster": view.roster, "domain": view.domain, "source": label}
        return jsonify(place | {"neighbors": rows(frame.drop(columns="source"))})

    @routes.get("/evaluations")
    def evaluations() -> Response:
        _served(cache)
        given: dict[str, Any] = dict(_names("reader", "roster", "benchmark", "condition", "reduction", "metric"))
        if "k" in request.args:
            given["k"] = _number("k", 1, 1, 1_000_000)
        given |= {"limit": _number("limit", 1_000, 1, MOST_ROWS), "offset": _number("offset", 0, 0, 10**9)}
        frame, total = cache.ask_anew(result_queries.evaluations, **given)
        return jsonify({"generation": cache.generation().name, "total": total, "evaluations": rows(frame)})

    @routes.get("/ecosystems")
    def ecosystems() -> Response:
        fields = dataclasses.asdict
        ecosystems = [fields(one) | {"brings": fields(service.brings(one.name))} for one in service.ecosystems()]
        return jsonify({"proxy": fields(service.state()), "ecosystems": ecosystems})


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
        answer: dict[str, Any] = {
            "status": "degraded" if problems else "ok",
            "version": __version__,
            "generation": None if nothing is not None else cache.generation().name,
            "attribution": dataclasses.asdict(state),
            "problems": problems,
        }
        return jsonify(answer | ({"problem": problems[0]} if problems else {}))

    @server.get("/ready")
    def ready() -> Response:
        problem = cache.problem()
        response = jsonify({"ready": problem is None} | ({} if problem is None else {"problem": str(problem)}))
        response.status_code = HTTPStatus.OK if problem is None else HTTPStatus.SERVICE_UNAVAILABLE
        return response


def rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON; what is not there is null."""
    plain = frame.astype(object)
    whole: list[dict[str, Any]] = plain.where(plain.notna(), None).to_dict("records")
    return whole


def _served(cache: QueryCache) -> None:
    problem: AtlasError | None = cache.problem()
    if problem is not None:
        raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, f"{problem.problem}.", f"{problem.remedy}.")


def _names(*fields: str) -> dict[str, str]:
    """Parameters that were given, of those that hold a name."""
    given = {name: request.args[name] for name in fields if name in request.args}
    for name, value in given.items():
        if len(value) > LONGEST_NAME:
            raise _wrong(name, f"At most {LONGEST_NAME} characters are taken")
    return given


def _number(name: str, usual: int, least: int, most: int) -> int:
    text = request.args.get(name)
    if text is None:
        return usual
    if not (text.isascii() and text.isdecimal() and len(text) < 12 and least <= int(text) <= most):
        raise _wrong(name, f"A number from {least:,} to {most:,} is wanted")
    return int(text)


def _wrong(name: str, detail: str) -> RefusedError:
    errors = [{"pointer": name, "detail": detail}]
    return RefusedError(HTTPStatus.UNPROCESSABLE_ENTITY, f"The parameter '{name}' is wrong.", None, errors)
