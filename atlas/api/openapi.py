"""``/api/openapi.json``: every route in OpenAPI 3.1; bodies come from the models that check them."""

from __future__ import annotations

import functools
from typing import Any

from flask import Blueprint, Response, jsonify
from pydantic.json_schema import models_json_schema

from atlas.api.access import FILE
from atlas.api.attribution import STREAM
from atlas.api.numbers import FILTERS, NUMBERS
from atlas.api.problems import CONTENT
from atlas.api.requests import FORM, IN_JSON, JSON, Form, Token, Traces, Windows, WindowsForm
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
    part, text = {"type": "string", "minLength": 1, "pattern": "^[^/]+$"}, {"type": "string"}
    identity, label = (_parameter(name, "path", part, required=True) for name in ("identity", "label"))
    later = _parameter("Prefer", "header", text, "respond-async answers with a job at once (RFC 7240)")
    located = {"headers": {"Location": {"schema": text}}}
    report = {JSON: {"schema": {"type": "object"}}, "text/html": {"schema": text}, "text/csv": {"schema": text}}
    form = _schema("Form") | {"encoding": {name: {"contentType": JSON} for name in IN_JSON}}
    traces = {"required": True, "content": {JSON: _schema("Traces"), FORM: form}}
    files = _schema("WindowsForm") | {"encoding": {"columns": {"contentType": JSON}}}
    windows = {"required": True, "content": {JSON: _schema("Windows"), FORM: files}}
    token = {"security": [{}], "requestBody": {"required": True, "content": {JSON: _schema("Token")}}}
    posted, deleted = (400, 401, 413, 415, 422, 429, 500), {"204": {"description": "Deleted"}}
    return {
        "/api/attribute": {
            "post": _does(
                "attribute", "Weigh whether traces come from a claimed source, another enrolled one, or none",
                {
                    "200": {
                        "description": "The evidence, or a stream of it",
                        "content": {JSON: _schema("Job"), STREAM: {"schema": text}},
                    },
                    "202": _answer("A job to ask about", "Job") | located,
                },
                *posted, 503, parameters=[later], requestBody=traces,
            )
        },
        "/api/preview": {
            "post": _does(
                "preview", "What a file of traces is, and every place of it that gives no trace; nothing is scored",
                {"200": _answer("What it is", "Preview")}, *posted, requestBody=traces,
            )
        },
        "/api/jobs/{identity}": {
            "parameters": [identity],
            "get": _get("job", "How far a job is", "Job", 401, 404, 500),
            "delete": _does(
                "cancel", "Cancel a job, keeping what is done; delete one that has ended",
                {"200": _answer("What is done", "Job"), **deleted}, 401, 404, 500,
            ),
        },
        "/api/jobs/{identity}/report": {
            "parameters": [identity, _parameter("form", "query", {"type": "string", "enum": ["html", "json", "csv"]})],
            "get": _does(
                "report", "Report of a job that has ended",
                {"200": {"description": "The report", "content": report}}, 401, 404, 422, 500,
            ),
        },
        "/api/drift": {
            "post": _does(
                "drift", "Test whether two windows of traces differ, or the halves of one",
                {
                    "200": _answer("Whether they differ", "Comparison"),
                    "202": _answer("A comparison to ask about", "Comparison") | located,
                },
                *posted, 409, 503, parameters=[later], requestBody=windows,
            )
        },
        "/api/drift/{identity}": {
            "parameters": [identity],
            "get": _get("comparison", "How far a comparison is", "Comparison", 401, 404, 500),
            "delete": _does(
                "dropComparison", "Cancel a comparison, comparing what was read; delete one that has ended",
                {"200": _answer("What was read, compared where it is enough", "Comparison"), **deleted}, 401, 404, 500,
            ),
        },
        "/api/sources": {
            "parameters": _query("roster"),
            "get": _get("sources", "Every source, its family and rosters", "Sources", 401, 422, 500, 503),
        },
        "/api/neighbors/{label}": {
            "parameters": [label, *_query("reader", "roster", "domain", "top")],
            "get": _get("neighbors", "Nearest sources in the original space", "Neighbors", 401, 404, 422, 500, 503),
        },
        "/api/evaluations": {
            "parameters": _query(*FILTERS, "k", "limit", "offset"),
            "get": _get(
                "evaluations", "Attribution metrics over all seeds and folds", "Evaluations", 401, 422, 500, 503
            ),
        },
        "/api/ecosystems": {
            "get": _get("ecosystems", "Enrolled ecosystems, and whether the proxy is loaded", "Ecosystems", 401, 500)
        },
        "/api/session": {
            "post": _does(
                "giveToken", "Give the token once; the browser keeps a cookie",
                {"204": {"description": "The cookie is set"}}, 400, 401, 413, 415, 422, 500, **token,
            ),
            "delete": _does(
                "dropToken", "Forget the token", {"204": {"description": "The cookie is gone"}}, 500, security=[{}]
            ),
        },
        "/api/openapi.json": {
            "get": _does(
                "openapi", "This document",
                {"200": {"description": "OpenAPI 3.1", "content": {JSON: {"schema": {"type": "object"}}}}}, 500,
                security=[{}],
            )
        },
    }  # fmt: skip


def _answers() -> dict[str, Schema]:
    """Schemas of what comes back."""
    text, maybe = {"type": "string"}, {"type": ["string", "null"]}
    number, count, yes = {"type": "number"}, {"type": "integer", "minimum": 0}, {"type": "boolean"}
    perhaps, some = {"type": ["number", "null"]}, {"type": "object"}
    problem = {"anyOf": [{"$ref": "#/components/schemas/Problem"}, {"type": "null"}]}
    job: Schema = {
        "job": text, "state": {"enum": ["queued", "running", "done", "cancelled", "failed"]}, "done": count,
        "total": count, "seconds": number, "waiting": count, "enrolment": text,
    }  # fmt: skip
    point = _object(traces=count, subject=text, log10_sum=number, leader=text)
    row = _object(place=count, prompt=text, response=text, time=maybe, label=maybe, name=maybe)
    source = _object(source=text, name=text, family=text, subfamily=maybe, access=maybe, rosters=_list(text))
    neighbor = _object(
        neighbor=text, name=text, family=text, rank=count, rank_back={"type": ["integer", "null"]}, cosine=number,
        percentile=number,
    )  # fmt: skip
    evaluation = _object(
        reader=text, origin=text, roster=text, benchmark=text, condition=text, reduction=text, k=count, metric=text,
        value=number, std=perhaps, n=count, build_id=text,
    )  # fmt: skip
    status = {"enum": ["absent", "loading", "ready", "failed"]}
    brings = _object(calibrated=yes, unknown=yes, budgets=_list(count), stop_levels=_list(number), validated=yes)
    ecosystem = _object(
        name=text, reader=text, proxy=text, view=text, sources=_list(text), families=_list(text), sha256=text,
        facts=some, accuracy=perhaps, brings=brings,
    )  # fmt: skip
    power = _object(window=count, level=number, same=perhaps, sibling=perhaps, family=perhaps)
    trace = _object(place=count, turn=count, sha256=text)
    window = _object(name=text, part=maybe, total=count, file=some, traces=_list(trace))
    drift = _object(
        format=count, created=text, verdict={"enum": [DIFFERENT, ALIKE]}, sentence=text, expected=text,
        notes=_list(text), statistic=number, p_value=number, method=text, paired=yes, before=count, after=count,
        permutations=count, seed=count, level=number, power={"anyOf": [power, {"type": "null"}]},
        validation=_list(some), windows=_list(window), reading=some, settings=some, command=text, sha256=text,
    )  # fmt: skip
    return {
        "Problem": _object(
            type=text, title=text, status=count, detail=text, remedy=text,
            errors=_list(_object(pointer=text, detail=text)), optional=("remedy", "errors"),
        ),
        "Job": _object(
            **job, claimed=maybe, nearest=_list(text), evidence=_list(point), problem=problem,
            report={"type": ["object", "null"]},
        ),
        "Preview": _object(
            name=text, kind={"enum": list(UNITS)}, unit={"enum": sorted(set(UNITS.values()))}, encoding=text,
            sha256=text, packed=yes, size=count, fields=_list(text),
            columns=_object(response=maybe, prompt=maybe, time=maybe, label=maybe, name=maybe), mapped=yes,
            traces=count, problems=_list(_object(place=count, column=maybe, reason=text)),
            duplicates=_list(_object(place=count, first=count)), notes=_list(text), rows=_list(row),
            labels=_list(text),
        ),
        "Comparison": _object(**job, problem=problem, answer={"anyOf": [drift, {"type": "null"}]}),
        "Sources": _object(generation=text, sources=_list(source)),
        "Neighbors": _object(reader=text, roster=text, domain=text, source=text, neighbors=_list(neighbor)),
        "Evaluations": _object(generation=text, total=count, evaluations=_list(evaluation)),
        "Ecosystems": _object(
            proxy=_object(status=status, proxy=maybe, problem=maybe, remedy=maybe), ecosystems=_list(ecosystem)
        ),
    }  # fmt: skip


def _object(*, optional: tuple[str, ...] = (), **properties: Schema) -> Schema:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required}


def _list(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _schema(name: str) -> Schema:
    return {"schema": {"$ref": f"#/components/schemas/{name}"}}


def _answer(description: str, name: str) -> Schema:
    return {"description": description, "content": {JSON: _schema(name)}}


def _get(identity: str, summary: str, name: str, *statuses: int) -> Schema:
    return _does(identity, summary, {"200": _answer(summary, name)}, *statuses)


def _does(identity: str, summary: str, responses: Schema, *statuses: int, **more: Any) -> Schema:
    """An operation, with its problems and that of a request from another site.

    Where a token is needed, too many wrong ones are a problem too; where a file is taken, a disk that is full.
    """
    wrong = {403, *statuses} | ({429} if 401 in statuses else set())
    wrong |= {503, 507} if {415, 429} <= set(statuses) else set()
    problems = {str(status): {"$ref": "#/components/responses/problem"} for status in sorted(wrong)}
    return {"operationId": identity, "summary": summary, "responses": responses | problems, **more}


def _query(*names: str) -> list[Schema]:
    """Query parameters: numbers within their limits, and names."""
    found = []
    for name in names:
        schema: Schema = {"type": "string", "maxLength": LONGEST_NAME}
        if name in NUMBERS:
            least, most, default = NUMBERS[name]
            schema = {"type": "integer", "minimum": least, "maximum": most}
            schema |= {} if default is None else {"default": default}
        found.append(_parameter(name, "query", schema))
    return found


def _parameter(name: str, place: str, schema: Schema, description: str = "", *, required: bool = False) -> Schema:
    fields: Schema = {"name": name, "in": place, "schema": schema}
    return fields | ({"description": description} if description else {}) | ({"required": True} if required else {})
