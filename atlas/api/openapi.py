"""``/api/openapi.json``: what can be asked, in OpenAPI 3.1; bodies come from the models that check them."""

from __future__ import annotations

import functools
from typing import Any

from flask import Blueprint, Response, jsonify
from pydantic.json_schema import models_json_schema

from atlas.api.admission import FILE
from atlas.api.attribution import STREAM
from atlas.api.bodies import JSON
from atlas.api.numbers import MOST_ROWS, TOP
from atlas.api.problems import CONTENT
from atlas.api.requests import FORM, IN_JSON, Form, Token, Traces, Windows, WindowsForm
from atlas.state import LONGEST_NAME
from backend import __version__
from backend.inference.drift import ALIKE, DIFFERENT
from backend.intake.formats import UNITS

Schema = dict[str, Any]


def add(routes: Blueprint) -> None:
    """Add the route."""

    @routes.get("/openapi.json")
    def openapi_document() -> Response:
        return jsonify(document())


@functools.cache
def document() -> Schema:
    """The whole document."""
    _, bodies = models_json_schema(
        [(model, "validation") for model in (Traces, Form, Windows, WindowsForm, Token)],
        ref_template="#/components/schemas/{model}",
    )
    schemas = bodies["$defs"] | _answers()
    for name, files, needed in (("Form", ["file"], ["file"]), ("WindowsForm", ["before", "after"], ["before"])):
        form, file = schemas[name], {"type": "string", "contentMediaType": "application/octet-stream", "minLength": 1}
        form["properties"] |= dict.fromkeys(files, file)
        form["required"] = [*form.get("required", []), *needed]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Provenance Atlas",
            "version": __version__,
            "summary": "Which language model wrote these responses?",
            "description": f"Bodies up to {FILE / 1e6:,.0f} MB. Errors are problem documents (RFC 9457).",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {"token": []}],
        "paths": _paths(),
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {"problem": {"description": "What is wrong", "content": {CONTENT: _schema("Problem")}}},
        },
    }


def _paths() -> Schema:
    identity = _parameter("identity", "path", {"type": "string", "minLength": 1, "pattern": "^[^/]+$"}, required=True)
    label = _parameter("label", "path", {"type": "string", "minLength": 1, "pattern": "^[^/]+$"}, required=True)
    text: Schema = {"type": "string", "maxLength": LONGEST_NAME}
    return {
        "/api/attribute": {
            "post": {
                "operationId": "attribute",
                "summary": "Weigh whether traces come from a claimed source, another enrolled one, or none",
                "parameters": [_later()],
                "requestBody": _traces(),
                "responses": {
                    "200": {
                        "description": "The evidence, or a stream of it",
                        "content": {JSON: _schema("Job"), STREAM: {"schema": {"type": "string"}}},
                    },
                    "202": _answer("A job to ask about", "Job")
                    | {"headers": {"Location": {"schema": {"type": "string"}}}},
                    **_wrong(400, 401, 413, 415, 422, 429, 500, 503),
                },
            }
        },
        "/api/preview": {
            "post": {
                "operationId": "preview",
                "summary": "What a file of traces is, and every place of it that gives no trace; nothing is scored",
                "requestBody": _traces(),
                "responses": {"200": _answer("What it is", "Preview"), **_wrong(400, 401, 413, 415, 422, 429, 500)},
            }
        },
        "/api/jobs/{identity}": {
            "parameters": [identity],
            "get": _get("job", "How far a job is", "Job", 401, 404, 500),
            "delete": {
                "operationId": "cancel",
                "summary": "Cancel a job, keeping what is done; delete one that has ended",
                "responses": {
                    "200": _answer("What is done", "Job"),
                    "204": {"description": "Deleted"},
                    **_wrong(401, 404, 500),
                },
            },
        },
        "/api/jobs/{identity}/report": {
            "parameters": [identity, _parameter("form", "query", {"type": "string", "enum": ["html", "json", "csv"]})],
            "get": {
                "operationId": "report",
                "summary": "Report of a job that has ended",
                "responses": {
                    "200": {
                        "description": "The report",
                        "content": {
                            JSON: {"schema": {"type": "object"}},
                            "text/html": {"schema": {"type": "string"}},
                            "text/csv": {"schema": {"type": "string"}},
                        },
                    },
                    **_wrong(401, 404, 422, 500),
                },
            },
        },
        "/api/drift": {
            "post": {
                "operationId": "drift",
                "summary": "Test whether two windows of traces differ, or the halves of one",
                "parameters": [_later()],
                "requestBody": {
                    "required": True,
                    "content": {
                        JSON: _schema("Windows"),
                        FORM: _schema("WindowsForm") | {"encoding": {"columns": {"contentType": JSON}}},
                    },
                },
                "responses": {
                    "200": _answer("Whether they differ", "Comparison"),
                    "202": _answer("A comparison to ask about", "Comparison")
                    | {"headers": {"Location": {"schema": {"type": "string"}}}},
                    **_wrong(400, 401, 409, 413, 415, 422, 429, 500, 503),
                },
            }
        },
        "/api/drift/{identity}": {
            "parameters": [identity],
            "get": _get("comparison", "How far a comparison is", "Comparison", 401, 404, 500),
            "delete": {
                "operationId": "dropComparison",
                "summary": "Cancel a comparison, comparing what was read; delete one that has ended",
                "responses": {
                    "200": _answer("What was read, compared where it is enough", "Comparison"),
                    "204": {"description": "Deleted"},
                    **_wrong(401, 404, 500),
                },
            },
        },
        "/api/sources": {
            "parameters": [_parameter("roster", "query", text)],
            "get": _get("sources", "Every source, its family and rosters", "Sources", 401, 422, 500, 503),
        },
        "/api/neighbors/{label}": {
            "parameters": [
                label,
                *(_parameter(name, "query", text) for name in ("reader", "roster", "domain")),
                _parameter("top", "query", {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "default": TOP}),
            ],
            "get": _get("neighbors", "Nearest sources in the original space", "Neighbors", 401, 404, 422, 500, 503),
        },
        "/api/evaluations": {
            "parameters": [
                *(
                    _parameter(name, "query", text)
                    for name in ("reader", "roster", "benchmark", "condition", "reduction", "metric")
                ),
                _parameter("k", "query", {"type": "integer", "minimum": 1, "maximum": 1_000_000}),
                _parameter("limit", "query", {"type": "integer", "minimum": 1, "maximum": MOST_ROWS, "default": 1_000}),
                _parameter("offset", "query", {"type": "integer", "minimum": 0, "maximum": 10**9, "default": 0}),
            ],
            "get": _get(
                "evaluations", "Attribution metrics over all seeds and folds", "Evaluations", 401, 422, 500, 503
            ),
        },
        "/api/ecosystems": {
            "get": _get("ecosystems", "Enrolled ecosystems, and whether the proxy is loaded", "Ecosystems", 401, 500)
        },
        "/api/session": {
            "post": {
                "operationId": "giveToken",
                "summary": "Give the token once; the browser keeps a cookie",
                "security": [{}],
                "requestBody": {"required": True, "content": {JSON: _schema("Token")}},
                "responses": {"204": {"description": "The cookie is set"}, **_wrong(400, 401, 413, 415, 422, 500)},
            },
            "delete": {
                "operationId": "dropToken",
                "summary": "Forget the token",
                "security": [{}],
                "responses": {"204": {"description": "The cookie is gone"}, **_wrong(500)},
            },
        },
        "/api/openapi.json": {
            "get": {
                "operationId": "openapi",
                "summary": "This document",
                "security": [{}],
                "responses": {
                    "200": {"description": "OpenAPI 3.1", "content": {JSON: {"schema": {"type": "object"}}}},
                    **_wrong(500),
                },
            }
        },
    }


def _answers() -> dict[str, Schema]:
    """Schemas of what comes back."""
    text, maybe = {"type": "string"}, {"type": ["string", "null"]}
    number, count = {"type": "number"}, {"type": "integer", "minimum": 0}
    problem = {"$ref": "#/components/schemas/Problem"}
    pointed = _object(pointer=text, detail=text)
    return {
        "Problem": _object(
            type=text,
            title=text,
            status=count,
            detail=text,
            remedy=text,
            errors=_list(pointed),
            optional=("remedy", "errors"),
        ),
        "Job": _object(
            job=text,
            state={"enum": ["queued", "running", "done", "cancelled", "failed"]},
            done=count,
            total=count,
            seconds=number,
            waiting=count,
            enrolment=text,
            claimed=maybe,
            nearest=_list(text),
            evidence=_list(_object(traces=count, subject=text, log10_sum=number, leader=text)),
            problem={"anyOf": [problem, {"type": "null"}]},
            report={"type": ["object", "null"]},
        ),
        "Preview": _object(
            name=text,
            kind={"enum": list(UNITS)},
            unit={"enum": sorted(set(UNITS.values()))},
            encoding=text,
            sha256=text,
            packed={"type": "boolean"},
            size=count,
            fields=_list(text),
            columns=_object(response=maybe, prompt=maybe, time=maybe, label=maybe, name=maybe),
            mapped={"type": "boolean"},
            traces=count,
            problems=_list(_object(place=count, column=maybe, reason=text)),
            duplicates=_list(_object(place=count, first=count)),
            notes=_list(text),
            rows=_list(_object(place=count, prompt=text, response=text, time=maybe, label=maybe, name=maybe)),
            labels=_list(text),
        ),
        "Comparison": _object(
            job=text,
            state={"enum": ["queued", "running", "done", "cancelled", "failed"]},
            done=count,
            total=count,
            seconds=number,
            waiting=count,
            enrolment=text,
            problem={"anyOf": [problem, {"type": "null"}]},
            answer={"anyOf": [_drift(), {"type": "null"}]},
        ),
        "Sources": _object(
            generation=text,
            sources=_list(
                _object(source=text, name=text, family=text, subfamily=maybe, access=maybe, rosters=_list(text))
            ),
        ),
        "Neighbors": _object(
            reader=text,
            roster=text,
            domain=text,
            source=text,
            neighbors=_list(
                _object(
                    neighbor=text,
                    name=text,
                    family=text,
                    rank=count,
                    rank_back={"type": ["integer", "null"]},
                    cosine=number,
                    percentile=number,
                )
            ),
        ),
        "Evaluations": _object(
            generation=text,
            total=count,
            evaluations=_list(
                _object(
                    reader=text,
                    origin=text,
                    roster=text,
                    benchmark=text,
                    condition=text,
                    reduction=text,
                    k=count,
                    metric=text,
                    value=number,
                    std={"type": ["number", "null"]},
                    n=count,
                    build_id=text,
                )
            ),
        ),
        "Ecosystems": _object(
            proxy=_object(
                status={"enum": ["absent", "loading", "ready", "failed"]}, proxy=maybe, problem=maybe, remedy=maybe
            ),
            ecosystems=_list(
                _object(
                    name=text,
                    reader=text,
                    proxy=text,
                    view=text,
                    sources=_list(text),
                    families=_list(text),
                    sha256=text,
                    facts={"type": "object"},
                    accuracy={"type": ["number", "null"]},
                    brings=_object(
                        calibrated={"type": "boolean"},
                        unknown={"type": "boolean"},
                        budgets=_list(count),
                        stop_levels=_list(number),
                        validated={"type": "boolean"},
                    ),
                )
            ),
        ),
    }


def _drift() -> Schema:
    """The answer of a test of drift."""
    text, number, count = {"type": "string"}, {"type": "number"}, {"type": "integer", "minimum": 0}
    maybe = {"type": ["number", "null"]}
    power = _object(window=count, level=number, same=maybe, sibling=maybe, family=maybe)
    trace = _object(place=count, turn=count, sha256=text)
    return _object(
        format=count,
        created=text,
        verdict={"enum": [DIFFERENT, ALIKE]},
        sentence=text,
        expected=text,
        notes=_list(text),
        statistic=number,
        p_value=number,
        method=text,
        paired={"type": "boolean"},
        before=count,
        after=count,
        permutations=count,
        seed=count,
        level=number,
        power={"anyOf": [power, {"type": "null"}]},
        validation=_list({"type": "object"}),
        windows=_list(
            _object(
                name=text, part={"type": ["string", "null"]}, total=count, file={"type": "object"}, traces=_list(trace)
            )
        ),
        reading={"type": "object"},
        settings={"type": "object"},
        command=text,
        sha256=text,
    )


def _object(*, optional: tuple[str, ...] = (), **properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": [name for name in properties if name not in optional],
    }


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _schema(name: str) -> Schema:
    return {"schema": {"$ref": f"#/components/schemas/{name}"}}


def _answer(description: str, name: str) -> Schema:
    return {"description": description, "content": {JSON: _schema(name)}}


def _get(identity: str, summary: str, name: str, *wrong: int) -> Schema:
    return {"operationId": identity, "summary": summary, "responses": {"200": _answer(summary, name), **_wrong(*wrong)}}


def _wrong(*statuses: int) -> Schema:
    """Problems of a route, and that of a request from another site, which each may answer.

    Where a token is asked for, too many wrong ones are a problem too; where a file is taken, a disk that is full.
    """
    more = (
        {403} | ({429} if 401 in statuses else set()) | ({503, 507} if 415 in statuses and 429 in statuses else set())
    )
    return {str(status): {"$ref": "#/components/responses/problem"} for status in sorted({*statuses, *more})}


def _traces() -> Schema:
    """A body with traces, or a file of them."""
    form = _schema("Form") | {"encoding": {name: {"contentType": JSON} for name in IN_JSON}}
    return {"required": True, "content": {JSON: _schema("Traces"), FORM: form}}


def _later() -> Schema:
    return _parameter("Prefer", "header", {"type": "string"}, "respond-async answers with a job at once (RFC 7240)")


def _parameter(name: str, place: str, schema: Schema, description: str = "", *, required: bool = False) -> Schema:
    told: Schema = {"name": name, "in": place, "schema": schema}
    return told | ({"description": description} if description else {}) | ({"required": True} if required else {})
