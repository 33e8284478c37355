"""A report that somebody brings: is it as it was written, and do its traces give it again?"""

from __future__ import annotations

from typing import Any

from dash import Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.development.base_component import Component
from flask import request

from atlas import shell
from atlas.pages.attribute import intake, sections, visitor
from backend.errors import AtlasError
from backend.service.service import Check
from backend.service.uploads import MissingError

POLL_MS = 700
FILES = {
    "report": ("Drop the report (.json)", "The .json file that was exported with the report"),
    "traces": ("Drop its traces", "The file that the report is about, in any form that the atlas reads"),
}
SHA_HELP = "Hash of the whole report, as it says; whoever made it can read theirs out to you"
LARGEST_HELP = "Largest difference of a trace's log-posterior between the report and this run, in nats"


def stores() -> list[Component]:
    """What this part of the page remembers, and its clock."""
    return [
        *[dcc.Store(id=f"check-{kind}-upload") for kind in FILES],
        dcc.Store(id="check-job"),
        dcc.Store(id="check-done"),
        dcc.Interval(id="check-tick", interval=POLL_MS, disabled=True),
    ]


def page() -> Component:
    """The steps of this part."""
    lead = (
        "The report's hashes show whether it was changed after it was written. Its traces, read once more by the same "
        "ecosystem, show whether its numbers are right. Without traces only the hashes are checked."
    )
    button = html.Button("Check the report", id="check-go", className="button button-main", disabled=True)
    drops = html.Div([intake.place(f"check-{kind}", *FILES[kind]) for kind in FILES], className="drops windows")
    report = [html.P(lead, className="sentence"), drops, sections.notice("check-problem")]
    work = [html.Div(button, className="row"), sections.progress("check")]
    return html.Div(
        [
            sections.step(1, "Report", "check-title-1", *report),
            sections.step(2, "Check", "check-title-2", *work),
            sections.notice("check-result", "polite"),
        ]
    )


def answer(check: Check) -> Component:
    """Equal or not, and where."""
    sign, tone = ("=", "SUPPORTS") if check.equal else ("≠", "AGAINST")
    word = {(True, True): "EQUAL", (True, False): "UNCHANGED", (False, True): "NOT EQUAL", (False, False): "CHANGED"}[
        check.equal, bool(check.traces)
    ]
    if check.equal and check.traces:
        sentence = (
            f"{check.traces:,} trace{'s' if check.traces != 1 else ''} read once more give the report again: the same "
            f"scores, the same answer ({check.verdict})."
        )
    elif check.equal:
        sentence = (
            "The report agrees with itself: nothing was changed by accident. Give its traces to compute it again."
        )
    else:
        sentence = "What the report says is not what comes out:" if check.traces else "The report was changed:"
    largest = "–" if check.largest is None else f"{check.largest:.2g}"
    found = [html.Li(f"{difference}.", className="long") for difference in check.found]
    facts = [
        sections.fact("Traces read", "", f"{check.traces:,}", "by the ecosystem of the report"),
        sections.fact("Largest difference", LARGEST_HELP, largest, "nats"),
        sections.fact("Report", SHA_HELP, check.sha256[:12], f"sha256 {check.sha256[:64]}"),
    ]
    return sections.answer_box(
        tone,
        [html.Span(check.case, dir="auto"), f" · {check.created[:19]}"],
        sections.answer_word("check-verdict", sign, word),
        html.P(sentence, className="verdict-sentence"),
        *([html.Ul(found, id="check-found")] if found else []),
        html.Dl(facts, className="verdict-facts"),
        *[html.P(note, className="hint long") for note in check.notes],
        **shell.aria(labelledby="check-verdict"),
    )


def register(app: Dash) -> None:
    """Callbacks of this part."""
    for kind in FILES:
        _receiving(app, kind)
    _checking(app)

    @app.callback(Output("check-go", "disabled"), Input("check-report-upload", "data"), Input("check-job", "data"))
    def may_go(report: dict[str, Any] | None, job: str | None) -> bool:
        return not report or bool(job)


def _receiving(app: Dash, kind: str) -> None:
    @app.callback(
        *sections.places(
            Output, f"check-{kind}-upload.data check-{kind}-head.children check-{kind}.contents check-problem.children*"
        ),
        Input(f"check-{kind}", "contents"),
        State(f"check-{kind}", "filename"),
        prevent_initial_call=True,
    )
    def take(contents: str | None, name: str | None) -> Any:
        if not contents:
            return (no_update,) * 4
        try:
            key, service = visitor.opened_session(), visitor.service()
            upload = service.upload(key, name or kind, intake.decoded(contents))
            if kind == "traces":
                return intake.reference(upload), intake.head(service.inspect(key, upload.key)), None, None
            report = service.read_report(key, upload.key)
        except AtlasError as error:
            return None, None, None, visitor.refusal(error)
        return intake.reference(upload), _facts(report, upload.name), None, None


def _facts(report: dict[str, Any], name: str) -> Component:
    """What a report says it is; nothing of it is believed yet."""
    results = report["results"] if isinstance(report["results"], dict) else {}
    many = len(report["traces"]) if isinstance(report["traces"], list) else 0
    parts = [
        html.Span(html.Strong(name, className="long", dir="auto")),
        html.Span(f"{str(report.get('case', ''))[:120]}: {str(results.get('verdict', ''))[:20]}", dir="auto"),
        html.Span([html.Strong(f"{many:,}"), f" trace{'s' if many != 1 else ''}"]),
    ]
    return html.Div(parts, className="preview-facts")


def _checking(app: Dash) -> None:
    @app.callback(
        *sections.places(Output, "check-job.data check-done.data check-problem.children check-tick.disabled"),
        Input("check-go", "n_clicks"),
        State("check-report-upload", "data"),
        State("check-traces-upload", "data"),
        prevent_initial_call=True,
    )
    def start(clicks: int | None, report: dict[str, Any] | None, traces: dict[str, Any] | None) -> Any:
        if not clicks or not report:
            return (no_update,) * 4
        try:
            if not traces:
                return None, {"report": report["key"], "click": clicks}, None, True
            job = visitor.service().recompute(visitor.admitted(), report["key"], traces["key"], request.remote_addr)
        except AtlasError as error:
            return None, None, visitor.refusal(error), True
        return job, None, None, False

    @app.callback(
        *sections.places(
            Output,
            "check-progress.hidden check-words.children check-bar.style check-tick.disabled* check-done.data* "
            "check-job.data* check-problem.children*",
        ),
        Input("check-tick", "n_intervals"),
        Input("check-cancel", "n_clicks"),
        State("check-job", "data"),
        State("check-report-upload", "data"),
        prevent_initial_call=True,
    )
    def tick(_ticks: int | None, _cancel: int | None, job: str | None, report: dict[str, Any] | None) -> Any:
        ended = (True, None, sections.NOTHING, True)  # progress hidden, and no further tick
        if not job or not report:
            return *ended, no_update, no_update, no_update
        service, key = visitor.service(), visitor.session()
        try:
            seen = service.cancel(key, job) if ctx.triggered_id == "check-cancel" else service.progress(key, job)
        except MissingError as error:
            return *ended, None, None, visitor.refusal(error)
        if seen.state in ("failed", "cancelled"):
            why = AtlasError(seen.problem or "The check was cancelled", seen.remedy or visitor.PRESS)
            return *ended, None, None, visitor.refusal(why)
        if seen.state == "done":
            return *ended, {"report": report["key"], "job": job}, None, None
        words = f"{seen.done:,} of {seen.total:,} traces read." if seen.done else "Waiting for the proxy."
        done, total = seen.done + seen.further, seen.total + seen.further_total
        return False, words, sections.bar(done, total), False, no_update, no_update, None

    @app.callback(Output("check-result", "children"), Input("check-done", "data"), prevent_initial_call=True)
    def shown(done: dict[str, Any] | None) -> Any:
        if not done:
            return None
        service, key = visitor.service(), visitor.session()
        try:
            if "job" in done:
                return answer(service.checked(key, done["report"], done["job"]))
            return answer(service.agrees(key, done["report"]))
        except AtlasError as error:
            return visitor.refusal(error)
