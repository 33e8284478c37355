"""``/api/sources``, ``/api/neighbors``, ``/api/evaluations``, ``/api/ecosystems``: what the served generation holds."""

from __future__ import annotations

import dataclasses
from http import HTTPStatus
from typing import Any

import pandas as pd
from flask import Blueprint, Response, jsonify, request

from atlas.api.problems import RefusedError
from atlas.data import QueryCache
from atlas.state import LONGEST_NAME, View
from backend.errors import AtlasError
from backend.service.service import Service
from backend.store import download_queries, queries

MOST_ROWS = 10_000
TOP = 10


def add(routes: Blueprint, cache: QueryCache, service: Service) -> None:
    """Add the routes."""

    @routes.get("/sources")
    def sources() -> Response:
        _served(cache)
        frame = cache.ask(download_queries.all_sources)
        for roster in _names("roster").values():
            frame = frame[[roster in held for held in frame["rosters"]]]
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
            raise RefusedError(
                HTTPStatus.NOT_FOUND,
                "There are no neighbours of this source in this map.",
                "GET /api/sources lists the sources.",
            )
        told = {"reader": reader, "roster": view.roster, "domain": view.domain, "source": label}
        return jsonify(told | {"neighbors": rows(frame.drop(columns="source"))})

    @routes.get("/evaluations")
    def evaluations() -> Response:
        _served(cache)
        given: dict[str, Any] = dict(_names("reader", "roster", "benchmark", "condition", "reduction", "metric"))
        if "k" in request.args:
            given["k"] = _number("k", 1, 1, 1_000_000)
        given |= {"limit": _number("limit", 1_000, 1, MOST_ROWS), "offset": _number("offset", 0, 0, 10**9)}
        frame, total = cache.ask_anew(download_queries.evaluations, **given)
        return jsonify({"generation": cache.generation().name, "total": total, "evaluations": rows(frame)})

    @routes.get("/ecosystems")
    def ecosystems() -> Response:
        held = [
            dataclasses.asdict(one) | {"brings": dataclasses.asdict(service.brings(one.name))}
            for one in service.ecosystems()
        ]
        return jsonify({"proxy": dataclasses.asdict(service.state()), "ecosystems": held})


def rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON; what is not there is null."""
    plain = frame.astype(object)
    whole: list[dict[str, Any]] = plain.where(plain.notna(), None).to_dict("records")
    return whole


def _served(cache: QueryCache) -> None:
    problem: AtlasError | None = cache.problem()
    if problem is not None:
        raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, f"{problem.problem}.", f"{problem.remedy}.")


def _names(*wanted: str) -> dict[str, str]:
    """Parameters that were given, of those that hold a name."""
    given = {name: request.args[name] for name in wanted if name in request.args}
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
    return RefusedError(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        f"The parameter '{name}' is wrong.",
        None,
        [{"pointer": name, "detail": detail}],
    )
