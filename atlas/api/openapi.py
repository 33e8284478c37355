"""``/api/openapi.json``: every route in OpenAPI 3.1; bodies come from the models that check them."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from typing import Any

from flask import Blueprint, Response, jsonify
from pydantic.json_schema import models_json_schema

from atlas.api.access import FILE
from atlas.api.attribution import STREAM
from atlas.api.numbers import FILTERS, NUMBERS
from atlas.api.problems import CONTENT, PREFIX
from atlas.api.requests import FORM, IN_JSON, JSON, Compared, Form, Token, Traces, Windows, WindowsForm
from atlas.state import LONGEST_NAME
from backend import __version__
from backend.attribution.reference_check import AGAINST, INCONCLUSIVE, SUPPORTS
from backend.enrolment.claims import ROLES
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
        [(model, "validation") for model in (Traces, Form, Windows, WindowsForm, Compared, Token)],
        ref_template="#/components/schemas/{model}",
    )
    schemas = bodies["$defs"] | _answers()
    schemas["ComparedForm"] = copy.deepcopy(schemas["WindowsForm"])
    for name, files, needed in (
        ("Form", ["file", "background"], ["file"]),
        ("WindowsForm", ["before", "after"], ["before"]),
        ("ComparedForm", ["traces", "reference", "rival"], ["traces", "reference"]),
    ):
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
    form = _parameter("form", "query", {"type": "string", "enum": ["html", "json", "csv"]})
    later = _parameter("Prefer", "header", text, "respond-async answers with a job at once (RFC 7240)")
    parameters = {
        "jobs/{identity}": [identity], "jobs/{identity}/report": [identity, form], "drift/{identity}": [identity],
        "reference/{identity}": [identity],
        "sources": _query("roster"), "neighbors/{label}": [label, *_query("reader", "roster", "domain", "top")],
        "evaluations": _query(*FILTERS, "k", "limit", "offset"),
    }  # fmt: skip
    traces = {"requestBody": _body(Traces=JSON, Form=FORM)}
    windows = {"requestBody": _body(Windows=JSON, WindowsForm=FORM), "parameters": [later]}
    compared = {"requestBody": _body(Compared=JSON, ComparedForm=FORM), "parameters": [later]}
    anyone: Schema = {"security": [{}]}
    located, deleted = {"headers": {"Location": {"schema": text}}}, {"204": {"description": "Deleted"}}
    evidence = {JSON: _schema("Job"), STREAM: {"schema": text}}
    report = {JSON: {"schema": {"type": "object"}}, "text/html": {"schema": text}, "text/csv": {"schema": text}}
    described = {"200": {"description": "OpenAPI 3.1", "content": {JSON: {"schema": {"type": "object"}}}}}
    posted = (400, 401, 413, 415, 422, 429, 500)
    operations: Sequence[tuple[str, str, str | Schema, Sequence[int], Schema]] = (
        ("attribute post attribute", "Weigh whether traces come from a claimed source, another enrolled one, or none",
         {"200": {"description": "The evidence, or a stream of it", "content": evidence},
          "202": _answer("A job to ask about", "Job") | located}, (*posted, 503), traces | {"parameters": [later]}),
        ("preview post preview",
         "What a file of traces is, and every place of it that gives no trace; nothing is scored",
         {"200": _answer("What it is", "Preview")}, posted, traces),
        ("jobs/{identity} get job", "How far a job is", "Job", (401, 404, 500), {}),
        ("jobs/{identity} delete cancel", "Cancel a job, keeping what is done; delete one that has ended",
         {"200": _answer("What is done", "Job"), **deleted}, (401, 404, 500), {}),
        ("jobs/{identity}/report get report", "Report of a job that has ended",
         {"200": {"description": "The report", "content": report}}, (401, 404, 422, 500), {}),
        ("drift post drift", "Test whether two windows of traces differ, or the halves of one",
         {"200": _answer("Whether they differ", "Comparison"),
          "202": _answer("A comparison to ask about", "Comparison") | located}, (*posted, 409, 503), windows),
        ("drift/{identity} get comparison", "How far a comparison is", "Comparison", (401, 404, 500), {}),
        ("drift/{identity} delete dropComparison",
         "Cancel a comparison, comparing what was read; delete one that has ended",
         {"200": _answer("What was read, compared where it is enough", "Comparison"), **deleted}, (401, 404, 500), {}),
        ("reference post referenceCheck", "Compare traces with the claimed source's answers to the same prompts",
         {"200": _answer("Whether they differ", "ReferenceCheck"),
          "202": _answer("A comparison to ask about", "ReferenceCheck") | located}, (*posted, 409, 503), compared),
        ("reference/{identity} get referenceAnswer", "How far a comparison is", "ReferenceCheck", (401, 404, 500), {}),
        ("reference/{identity} delete dropReferenceCheck",
         "Cancel a comparison, of which nothing is left; delete one that has ended",
         {"200": _answer("That it was stopped", "ReferenceCheck"), **deleted}, (401, 404, 500), {}),
        ("sources get sources", "Every source, its family and rosters", "Sources", (401, 422, 500, 503), {}),
        ("neighbors/{label} get neighbors", "Nearest sources in the original space", "Neighbors",
         (401, 404, 422, 500, 503), {}),
        ("evaluations get evaluations", "Attribution metrics over all seeds and folds", "Evaluations",
         (401, 422, 500, 503), {}),
        ("ecosystems get ecosystems", "Enrolled ecosystems, and whether the proxy is loaded", "Ecosystems",
         (401, 500), {}),
        ("session post giveToken", "Give the token once; the browser keeps a cookie",
         {"204": {"description": "The cookie is set"}}, (400, 401, 413, 415, 422, 500),
         anyone | {"requestBody": _body(Token=JSON)}),
        ("session delete dropToken", "Forget the token",
         {"204": {"description": "The cookie is gone"}}, (500,), anyone),
        ("openapi.json get openapi", "This document", described, (500,), anyone),
    )  # fmt: skip
    paths: Schema = {}
    for route, summary, answers, statuses, more in operations:
        path, method, identity_of = route.split()
        responses = answers if isinstance(answers, dict) else {"200": _answer(summary, answers)}
        operation = {"operationId": identity_of, "summary": summary, "responses": responses | _problems(statuses)}
        shared = {"parameters": parameters[path]} if path in parameters else {}
        paths.setdefault(f"{PREFIX}/{path}", shared)[method] = operation | more
    return paths


def _answers() -> dict[str, Schema]:
    """Schemas of what comes back."""
    job = "job state:state done:count total:count seconds:number waiting:count enrolment "
    columns = _object("response:text? prompt:text? time:text? label:text? name:text?")
    answers = {
        "Problem": _object(
            "type title status:count detail remedy request_id errors:error*", error=_object("pointer detail")
        ),
        "Job": _object(
            f"{job}claimed:text? nearest:text* evidence:point* problem:problem? report:any?",
            point=_object("traces:count subject log10_sum:number leader"),
        ),
        "Preview": _object(
            "name kind:kind unit:unit encoding sha256 packed:flag size:count fields:text* columns:columns mapped:flag "
            "traces:count problems:problem* duplicates:duplicate* notes:text* rows:row* labels:text* "
            "models:model* claims:claim*",
            kind={"enum": list(UNITS)}, unit={"enum": sorted(set(UNITS.values()))}, columns=columns,
            problem=_object("place:count column:text? reason"), duplicate=_object("place:count first:count"),
            row=_object("place:count prompt response time:text? label:text? name:text?"),
            model=_object("requested:text? returned:text? traces:count"),
            claim=_object("source model named:named traces:count", named={"enum": list(ROLES)}),
        ),
        "Comparison": _object(f"{job}problem:problem? answer:drift?", drift=_drift()),
        "ReferenceCheck": _object(f"{job}problem:problem? answer:reference?", reference=_reference()),
        "Sources": _object(
            "generation sources:source*",
            source=_object("source name family subfamily:text? access:text? rosters:text*"),
        ),
        "Neighbors": _object(
            "reader roster domain source neighbors:neighbor*",
            neighbor=_object(
                "neighbor name family rank:count rank_back:integer? cosine:number percentile:number"
            ),
        ),
        "Evaluations": _object(
            "generation total:count evaluations:evaluation*",
            evaluation=_object(
                "reader origin roster benchmark condition reduction k:count metric value:number std:number? n:count "
                "build_id"
            ),
        ),
        "Ecosystems": _object(
            "proxy:proxy ecosystems:ecosystem*",
            proxy=_object("status:status proxy:text? problem:text? remedy:text?"),
            ecosystem=_object(
                "name reader proxy view sources:text* families:text* sha256 facts:any accuracy:number? brings:brings",
                brings=_object(
                    "calibrated:flag unknown:flag budgets:count* stop_levels:number* validated:flag named:text "
                    "power:any prompts_needed:count?"
                ),
            ),
        ),
    }  # fmt: skip
    answers["Problem"]["required"] = ["type", "title", "status", "detail"]
    return answers


def _drift() -> Schema:
    """The answer of a comparison."""
    return _compared("next_step prompts_in_both:count? ", [DIFFERENT, ALIKE])


def _reference() -> Schema:
    """The answer of a comparison with a reference."""
    rival = _object("name prompts:count nearer:count? p_value:number? sentence")
    return _compared(
        "next_step prompts:count identical:count rivals:rival* ", [AGAINST, SUPPORTS, INCONCLUSIVE], rival=rival
    )


def _compared(more: str, verdicts: Sequence[str], **kinds: Schema) -> Schema:
    return _object(
        "format:count created verdict:verdict sentence expected notes:text* statistic:number p_value:number method "
        "paired:flag before:count after:count permutations:count seed:count chance_95:number "
        "chance_largest:number level:number power:power? log10_ratios:any "
        f"prompts_needed:count? validation:any* {more}"
        "windows:window* reading:any settings:any command sha256",
        **kinds,
        verdict={"enum": list(verdicts)},
        power=_object("window:count level:number same:number? sibling:number? family:number?"),
        window=_object(
            "name part:text? total:count file:any measures:any traces:trace*",
            trace=_object("place:count turn:count sha256"),
        ),
    )


_KINDS: dict[str, Schema] = {
    **{"text": {"type": "string"}, "number": {"type": "number"}, "integer": {"type": "integer"}},
    **{"flag": {"type": "boolean"}, "any": {"type": "object"}},
    "count": {"type": "integer", "minimum": 0},
    "state": {"enum": ["queued", "running", "done", "cancelled", "failed"]},
    "status": {"enum": ["absent", "loading", "ready", "failed"]},
    "problem": {"$ref": "#/components/schemas/Problem"},
}


def _object(fields: str, **own: Schema) -> Schema:
    """An object of fields "name:kind"; of text without a kind, with "?" or null, with "*" a list of it.

    own : Kinds besides those of :data:`_KINDS`.
    """
    properties = {}
    for field in fields.split():
        name, _, kind = field.partition(":")
        schema = (_KINDS | own)[kind.rstrip("?*") or "text"]
        if kind.endswith("?"):
            simple = isinstance(schema.get("type"), str) and schema.keys() == {"type"}
            schema = {"type": [schema["type"], "null"]} if simple else {"anyOf": [schema, {"type": "null"}]}
        properties[name] = {"type": "array", "items": schema} if kind.endswith("*") else schema
    return {"type": "object", "properties": properties, "required": list(properties)}


def _body(**models: str) -> Schema:
    """A body of one of the models, by their types; form fields that hold JSON say so."""
    content = {kind: _schema(name) for name, kind in models.items()}
    if FORM in content:
        encoded = IN_JSON if "Form" in models else ("columns",)
        content[FORM]["encoding"] = {field: {"contentType": JSON} for field in encoded}
    return {"required": True, "content": content}


def _schema(name: str) -> Schema:
    return {"schema": {"$ref": f"#/components/schemas/{name}"}}


def _answer(description: str, name: str) -> Schema:
    return {"description": description, "content": {JSON: _schema(name)}}


def _problems(statuses: Sequence[int]) -> Schema:
    """Problems of an operation, with that of a request from another site.

    Where a token is needed, too many wrong ones are a problem too; where a file is taken, a disk that is full.
    """
    wrong = {403, *statuses} | ({429} if 401 in statuses else set())
    wrong |= {503, 507} if {415, 429} <= set(statuses) else set()
    return {str(status): {"$ref": "#/components/responses/problem"} for status in sorted(wrong)}


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
