"""``/health``, ``/ready``, and what the generation holds: sources, neighbours, evaluations, ecosystems."""

from __future__ import annotations

import dataclasses
import time
from datetime import UTC, datetime
from typing import Any, cast

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
FILTERS = ("reader", "roster", "benchmark", "condition", "reduction", "metric")
NUMBERS: dict[str, tuple[int, int, int | None]] = {
    "top": (1, MOST_ROWS, 10), "k": (1, 1_000_000, None), "limit": (1, MOST_ROWS, 1_000), "offset": (0, 10**9, 0)
}  # fmt: skip
"""Least, most and default of the parameters that are numbers."""


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
        given: dict[str, Any] = {**_names("reader", "roster", "domain")}
        view = cache.resolve_view(View(**given))
        top = _numbers("top")["top"]
        for name, value in given.items():
            if getattr(view, name) != value:
                raise _wrong(name, "The generation knows no such name")
        reader = cache.map_reader(view) or view.reader
        frame = cache.ask_anew(queries.neighbors, reader, view.roster, view.domain, label, top)
        if not len(frame):
            detail = "There are no neighbours of this source in this map."
            raise RefusedError(404, detail, "GET /api/sources lists the sources.")
        place = {"reader": reader, "roster": view.roster, "domain": view.domain, "source": label}
        return jsonify(place | {"neighbors": rows(frame.drop(columns="source"))})

    @routes.get("/evaluations")
    def evaluations() -> Response:
        _served(cache)
        given: dict[str, Any] = {**_names(*FILTERS), **_numbers("k", "limit", "offset")}
        frame, total = cache.ask_anew(result_queries.evaluations, **given)
        return jsonify({"generation": cache.generation().name, "total": total, "evaluations": rows(frame)})

    @routes.get("/ecosystems")
    def ecosystems() -> Response:
        fields = dataclasses.asdict
        ecosystems = [fields(one) | {"brings": fields(service.brings(one.name))} for one in service.ecosystems()]
        return jsonify({"proxy": fields(service.state()), "ecosystems": ecosystems})


def add_health(server: Flask, cache: QueryCache, service: Service) -> None:
    """Answer ``/health`` and ``/ready``: what the atlas lacks, and whether it has a generation to show."""
    started, begun = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()

    @server.get("/health")
    def health() -> Response:
        nothing = cache.problem()
        state = service.state()
        problems = [str(problem) for problem in (nothing, cache.warning(), *service.damaged()) if problem is not None]
        if state.status == "failed":
            problems.append(f"{state.problem}. {state.remedy}.")
        if service.audit_log.problem is not None:
            problems.append(str(service.audit_log.problem))
        generation = None if nothing is not None else cache.generation().name
        answer: dict[str, Any] = {"version": __version__, "generation": generation, "problems": problems}
        first = {"status": "degraded", "problem": problems[0]} if problems else {"status": "ok"}
        age = {"started": started, "uptime_s": round(time.monotonic() - begun, 1), "queue": service.load()}
        return jsonify(answer | {"attribution": dataclasses.asdict(state)} | first | age)

    @server.get("/ready")
    def ready() -> Response:
        """``?attribution=1`` is ready only where traces would be scored at once."""
        nothing, state = cache.problem(), service.state()
        problem = None if nothing is None else str(nothing)
        if problem is None and request.args.get("attribution") == "1" and state.status != "ready":
            problem = "The proxy is being loaded." if state.problem is None else f"{state.problem}. {state.remedy}."
        response = jsonify({"ready": problem is None} | ({} if problem is None else {"problem": problem}))
        response.status_code = 200 if problem is None else 503
        return response


def rows(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as JSON; what is not there is null."""
    plain = frame.astype(object)
    return cast("list[dict[str, Any]]", plain.where(plain.notna(), None).to_dict("records"))


def _served(cache: QueryCache) -> None:
    problem: AtlasError | None = cache.problem()
    if problem is not None:
        raise RefusedError(503, f"{problem.problem}.", f"{problem.remedy}.")


def _names(*fields: str) -> dict[str, str]:
    """Parameters that were given, of those that hold a name."""
    given = {name: request.args[name] for name in fields if name in request.args}
    for name, value in given.items():
        if len(value) > LONGEST_NAME:
            raise _wrong(name, f"At most {LONGEST_NAME} characters are taken")
    return given


def _numbers(*fields: str) -> dict[str, int]:
    """Parameters that hold a number, of those that were given or have a default."""
    found = {}
    for name in fields:
        least, most, default = NUMBERS[name]
        text = request.args.get(name)
        if text is not None:
            if not (text.isascii() and text.isdecimal() and len(text) < 12 and least <= int(text) <= most):
                raise _wrong(name, f"A number from {least:,} to {most:,} is wanted")
            found[name] = int(text)
        elif default is not None:
            found[name] = default
    return found


def _wrong(name: str, detail: str) -> RefusedError:
    return RefusedError(422, f"The parameter '{name}' is wrong.", None, [{"pointer": name, "detail": detail}])
