"""``/mcp``: five tools for assistants, over the Model Context Protocol that Dash speaks.

Every tool sends a request to the REST interface of its own server, with the caller's token and address, so limits,
refusals and answers are those of REST. Nothing else of the application is shown to assistants.
"""

from __future__ import annotations

import json
import secrets
from typing import Any
from urllib.parse import quote, urlencode

from dash.mcp import configure_mcp_server, mcp_enabled
from flask import Flask, current_app, request

from atlas.api import access
from atlas.api.problems import PREFIX, RefusedError
from backend.attribution.background import background_sentences
from backend.attribution.report import choice_sentences
from backend.attribution.report_page import headline, rates_of, stranger_findings
from backend.attribution.report_words import only_validated, rates_note, verdict_words

TOP = 10  # candidates and neighbours that an answer lists
PASSED_ON = ("Authorization", "Host", "User-Agent", "X-Request-ID")  # headers of the caller


def install(server: Flask) -> None:
    """Show the tools of this module to whoever may use REST, and neither callbacks nor layouts to anybody."""
    configure_mcp_server(
        include_layout=False, include_callbacks=False, include_clientside_callbacks=False, include_pages=False
    )

    @server.before_request
    def only_who_may() -> None:
        if request.path == access.ASSISTANTS and not access.authorised(request):
            raise RefusedError(401, "The request has no valid token.", "Send it as: Authorization: Bearer TOKEN.")


@mcp_enabled(name="preview", expose_docstring=True)
def preview(traces: list[dict[str, Any]]) -> dict[str, Any]:
    """Say what a list of traces is, without scoring it: how many, what is repeated, what is wrong with which one.

    traces: objects with 'response', and where known 'prompt', 'time', 'label' and 'id'.
    """
    return _ask("POST", "preview", {"traces": traces})


@mcp_enabled(name="attribute", expose_docstring=True)
def attribute(
    traces: list[dict[str, Any]] | None = None,
    claimed: str | None = None,
    candidates: list[str] | None = None,
    background: list[dict[str, Any]] | None = None,
    enrolment: str | None = None,
    case: str | None = None,
    job: str | None = None,
) -> dict[str, Any]:
    """Say which enrolled language model wrote the responses, with calibrated evidence, or that it cannot be said.

    traces: objects with 'response' and 'prompt'; twenty or more decide most cases. claimed: the model that they are
    said to come from. candidates: the enrolled models that are possible, or 'family:NAME'; all of them by default.
    background: 200 or more responses of any models to prompts of the same kind, where that kind was not enrolled.
    enrolment: the ecosystem that judges. An answer that takes longer than a minute has a 'job':
    call again with it alone. Always report the verdict word, the sentence and the limits together.
    """
    if job is not None:
        return _shortened(_ask("GET", f"jobs/{quote(job, safe='')}"))
    choices: dict[str, Any] = {"claimed": claimed, "candidates": candidates, "enrolment": enrolment, "case": case}
    choices |= {"background": background}
    return _shortened(_ask("POST", "attribute", {"traces": traces or []} | _given(choices)))


@mcp_enabled(name="drift", expose_docstring=True)
def drift(
    before: list[dict[str, Any]] | None = None,
    after: list[dict[str, Any]] | None = None,
    enrolment: str | None = None,
    job: str | None = None,
) -> dict[str, Any]:
    """Test whether two windows of traces of one endpoint come from the same model, best with the same prompts in both.

    before, after: as 'traces' of attribute; without 'after', the halves of 'before' are compared. job: as there.
    """
    if job is not None:
        return _ask("GET", f"drift/{quote(job, safe='')}")
    return _ask("POST", "drift", {"before": before or []} | _given({"after": after, "enrolment": enrolment}))


@mcp_enabled(name="neighbours", expose_docstring=True)
def neighbours(source: str, roster: str | None = None, domain: str | None = None, top: int = TOP) -> dict[str, Any]:
    """List the models whose writing is most like that of one model of the atlas, by the cosine of their signatures.

    source: a label of the atlas, such as 'gpt_4o_2024_08_06'. roster, domain: by default the largest roster, Agent500.
    """
    options = _given({"roster": roster, "domain": domain}) | {"top": top}
    return _ask("GET", f"neighbors/{quote(source, safe='')}?{urlencode(options)}")


@mcp_enabled(name="verify", expose_docstring=True)
def verify(report: dict[str, Any]) -> dict[str, Any]:
    """Check whether a report of the atlas (its JSON) agrees with itself; nothing is scored again."""
    service, session = current_app.extensions["attribution"], secrets.token_hex(16)
    try:
        key = service.upload(session, "report.json", json.dumps(report).encode(), passing=True).key
        check = service.agrees(session, key)
    finally:
        service.forget(session)
    return {"agrees": check.equal, "differences": list(check.found), "sha256": check.sha256, "case": check.case}


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _ask(method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """The answer of a REST route to the caller of now; raises ValueError with the problem that it states."""
    headers = [(name, value) for name, value in request.headers if name in PASSED_ON]
    environment = {"REMOTE_ADDR": request.remote_addr, "wsgi.url_scheme": request.scheme}
    text = None if body is None else json.dumps(body)
    inner = current_app.test_request_context(
        f"{PREFIX}/{path}", method=method, data=text, content_type="application/json", headers=headers,
        environ_base=environment,
    )  # fmt: skip
    with inner:
        response = current_app.full_dispatch_request()
    answer: dict[str, Any] = json.loads(response.get_data())
    if response.status_code >= 400:
        raise ValueError(" ".join(filter(None, (answer.get("detail"), answer.get("remedy")))))
    return answer


def _shortened(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer of attribution without what only a computer reads: scores of every trace, orders, chains of hashes."""
    report = answer.get("report")
    if report is None:
        return {name: answer[name] for name in ("job", "state", "done", "total", "waiting", "problem")}
    report = only_validated(report)
    results, measured = report["results"], report["validation"]
    names = ("sentence", "reason", "claimed", "leader", "rival", "traces", "stated", "in_words", "next_steps")
    return {
        "answer": headline(report),
        "verdict": verdict_words(report["results"]),
        **{name: results[name] for name in names},
        "candidates": results["candidates"][:TOP],
        "families": results["families"][:TOP],
        "mixture": {**results["mixture"], "shares": (results["mixture"]["shares"] or [])[:TOP]},
        "validation": [*rates_of(report), *stranger_findings(measured), *filter(None, [rates_note(measured)])],
        "limits": report["limits"],
        "enrolment": report["reference"]["enrolment"],
        "sources": len(report["reference"]["sources"]),
        **({"background": " ".join(pool)} if (pool := background_sentences(report)) else {}),
        **({"choice": " ".join(choice)} if (choice := choice_sentences(report)) else {}),
        "reader": report["method"]["reader"],
        "report_sha256": report["sha256"],
    }
