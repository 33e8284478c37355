"""A report that somebody brings: is it as it was written, and do its traces give it again?"""

from __future__ import annotations

from typing import Any

from dash import Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.development.base_component import Component
from flask import request

from atlas.pages.attribute import intake, parts, visitor
from backend.errors import AtlasError
from backend.service.job import Snapshot
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
    return html.Div(
        [
            parts.step(
                1,
                "Report",
                "check-title-1",
                [
                    html.P(
                        "The report's hashes show whether it was changed after it was written. Its traces, read once "
                        "more by the same ecosystem, show whether its numbers are right. Without traces only the "
                        "hashes are checked.",
                        className="sentence",
                    ),
                    html.Div([_place(kind) for kind in FILES], className="drops windows"),
                    html.Div(id="check-problem", **{"aria-live": "assertive"}),
                ],
            ),
            parts.step(
                2,
                "Check",
                "check-title-2",
                [
                    html.Div(
                        html.Button("Check the report", id="check-go", className="button button-main", disabled=True),
                        className="row",
                    ),
                    parts.progress("check"),
                ],
            ),
            html.Div(id="check-result", **{"aria-live": "polite"}),
        ]
    )


def _place(kind: str) -> Component:
    words, meaning = FILES[kind]
    return html.Div(
        [
            intake.drop(f"check-{kind}", words, meaning),
            html.Div(id=f"check-{kind}-head", className="hint", **{"aria-live": "polite"}),
        ]
    )


def answer(check: Check) -> Component:
    """Equal or not, and where."""
    if check.equal:
        word, sign, tone = ("EQUAL", "=", "SUPPORTS") if check.traces else ("UNCHANGED", "=", "SUPPORTS")
    else:
        word, sign, tone = ("NOT EQUAL", "≠", "AGAINST") if check.traces else ("CHANGED", "≠", "AGAINST")
    if check.equal and check.traces:
        said = (
            f"{check.traces:,} trace{'s' if check.traces != 1 else ''} read once more give the report again: the same "
            f"scores, the same answer ({check.verdict})."
        )
    elif check.equal:
        said = "The report agrees with itself: nothing was changed by accident. Give its traces to compute it again."
    else:
        said = "What the report says is not what comes out:" if check.traces else "The report was changed:"
    largest = "–" if check.largest is None else f"{check.largest:.2g}"
    return html.Section(
        className=f"verdict verdict-{tone}",
        **{"aria-labelledby": "check-verdict"},
        children=[
            html.P([html.Span(check.case, dir="auto"), f" · {check.created[:19]}"], className="kicker long"),
            html.H2(
                [html.Span(sign, className="verdict-sign", **{"aria-hidden": "true"}), word],
                className="verdict-word",
                id="check-verdict",
            ),
            html.P(said, className="verdict-sentence"),
            *(
                [html.Ul([html.Li(f"{sentence}.", className="long") for sentence in check.found], id="check-found")]
                if check.found
                else []
            ),
            html.Dl(
                className="verdict-facts",
                children=[
                    parts.fact("Traces read", "", f"{check.traces:,}", "by the ecosystem of the report"),
                    parts.fact("Largest difference", LARGEST_HELP, largest, "nats"),
                    parts.fact("Report", SHA_HELP, check.sha256[:12], f"sha256 {check.sha256[:64]}"),
                ],
            ),
            *[html.P(note, className="hint long") for note in check.notes],
        ],
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
        Output(f"check-{kind}-upload", "data"),
        Output(f"check-{kind}-head", "children"),
        Output(f"check-{kind}", "contents"),
        Output("check-problem", "children", allow_duplicate=True),
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
                return intake.held(upload), intake.head(service.inspect(key, upload.key)), None, None
            report = service.read_report(key, upload.key)
        except AtlasError as error:
            return None, None, None, visitor.said(error)
        return intake.held(upload), _told(report, upload.name), None, None


def _told(report: dict[str, Any], name: str) -> Component:
    """What a report says it is; nothing of it is believed yet."""
    results = report["results"] if isinstance(report["results"], dict) else {}
    many = len(report["traces"]) if isinstance(report["traces"], list) else 0
    return html.Div(
        [
            html.Span(html.Strong(name, className="long", dir="auto")),
            html.Span(f"{str(report.get('case', ''))[:120]}: {str(results.get('verdict', ''))[:20]}", dir="auto"),
            html.Span([html.Strong(f"{many:,}"), f" trace{'s' if many != 1 else ''}"]),
        ],
        className="preview-facts",
    )


def _checking(app: Dash) -> None:
    @app.callback(
        Output("check-job", "data"),
        Output("check-done", "data"),
        Output("check-problem", "children"),
        Output("check-tick", "disabled"),
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
            return None, None, visitor.said(error), True
        return job, None, None, False

    @app.callback(
        Output("check-progress", "hidden"),
        Output("check-words", "children"),
        Output("check-bar", "style"),
        Output("check-tick", "disabled", allow_duplicate=True),
        Output("check-done", "data", allow_duplicate=True),
        Output("check-job", "data", allow_duplicate=True),
        Output("check-problem", "children", allow_duplicate=True),
        Input("check-tick", "n_intervals"),
        Input("check-cancel", "n_clicks"),
        State("check-job", "data"),
        State("check-report-upload", "data"),
        prevent_initial_call=True,
    )
    def tick(_ticks: int | None, _cancel: int | None, job: str | None, report: dict[str, Any] | None) -> Any:
        if not job or not report:
            return True, None, parts.NOTHING, True, no_update, no_update, no_update
        service, key = visitor.service(), visitor.session()
        try:
            seen = service.cancel(key, job) if ctx.triggered_id == "check-cancel" else service.progress(key, job)
        except MissingError as error:
            return True, None, parts.NOTHING, True, None, None, visitor.said(error)
        if seen.state in ("failed", "cancelled"):
            return True, None, parts.NOTHING, True, None, None, visitor.said(_why(seen))
        if seen.state == "done":
            return True, None, parts.NOTHING, True, {"report": report["key"], "job": job}, None, None
        words = f"{seen.done:,} of {seen.total:,} traces read." if seen.done else "Waiting for the proxy."
        done, total = seen.done + seen.beside, seen.total + seen.beside_total
        return False, words, parts.bar(done, total), False, no_update, no_update, None

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
            return visitor.said(error)


def _why(snapshot: Snapshot) -> AtlasError:
    return AtlasError(
        snapshot.problem or "The check was cancelled", snapshot.remedy or "Press the button to start again"
    )
