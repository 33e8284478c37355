"""Attribute these traces: whether responses come from a claimed source, another enrolled one, or none; and drift."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import ALL, MATCH, ClientsideFunction, Dash, Input, Output, State, ctx, html, no_update
from dash.development.base_component import Component
from flask import request

from atlas import answers, shell
from atlas.api import access
from atlas.api.problems import RefusedError
from atlas.data import questions
from atlas.pages.attribute import (
    check,
    frames,
    intake,
    question,
    result,
    sections,
    validated,
    verdict,
    visitor,
    windows,
    work,
)
from atlas.theme import Theme
from backend.errors import AtlasError

MODES = {"one": "One set of traces", "two": "Two windows", "check": "Check a report"}


def layout(**query: str) -> Component:
    """The page for a query string; traces never are in a link, so every link opens at the first step."""
    answers.refuse()  # It says whether the visitor may use it.
    mode = query.get("mode", "one")
    mode = mode if mode in MODES else "one"
    link = {name: str(query.get(name, ""))[:400] for name in ("ecosystem", "claim", "reader", "roster")}
    title = [html.H1("Attribute these traces"), shell.segmented("attr-mode", MODES, mode, "Look at")]
    lead = (
        "Which enrolled source made these responses: the one that is claimed, another one, or none? The answer comes "
        "with its strength, its error rates, and a report that somebody else can check."
    )
    forgets = "Deletes files and results of this session from the server"
    again = [
        html.Span(id="attr-again-words", className="long"),
        html.Button("Change traces or question", id="attr-back", className="quiet"),
        html.Button("Forget these traces", id="attr-forget", className="quiet", title=forgets),
    ]
    head = [
        html.Div(title, className="head-row"),
        html.P(lead, className="sentence page-lead"),
        html.Div(again, className="again"),
    ]
    steps = [intake.step(), question.step(), work.step(), html.Div(id="attr-result")]
    root = [
        html.Div(head, className="page-head"),
        *([token_field()] if access.guarded() and not access.authorised(request) else []),
        html.Div(steps, id="attr-one", hidden=mode != "one"),
        html.Div(windows.page(), id="attr-two", hidden=mode != "two"),
        html.Div(check.page(), id="attr-check", hidden=mode != "check"),
    ]
    stores = [*question.stores(link), *work.clocks(), *windows.stores(), *check.stores()]
    return html.Div([*stores, html.Div(root, id="attr-root", className="attr")], className="column")


def token_field() -> Component:
    """Where a visitor gives the token that the server asks for."""
    name = {"input": {"aria-label": "Token", "autoComplete": "off"}}
    children = [
        html.Label("This atlas takes traces from people with its token only", htmlFor="attr-token"),
        dmc.PasswordInput(id="attr-token", value="", size="sm", w=240, attributes=name),
        html.Button("Enter", id="attr-token-go", className="button"),
        sections.hint(None, id="attr-token-said", role="status"),
    ]
    return html.Div(children, id="attr-token-place", className="row token-place")


def register(app: Dash) -> None:
    """Callbacks of the page."""

    @app.callback(
        *sections.places(Output, "attr-token-said.children attr-token.value attr-admitted.data"),
        Input("attr-token-go", "n_clicks"),
        State("attr-token", "value"),
        prevent_initial_call=True,
    )
    def admitted(clicks: int | None, token: str | None) -> Any:
        if not clicks:
            return no_update, no_update, no_update
        try:
            right = access.fits((token or "").encode("utf-8", "surrogatepass"), request.remote_addr)
        except RefusedError as error:
            return f"{error.detail} {error.remedy}", "", no_update
        if not right:
            return "This is not the token.", "", no_update
        access.admit(ctx.response)
        return "Welcome. You can give traces now.", "", clicks

    intake.register(app)
    question.register(app)
    work.register(app)
    windows.register(app)
    check.register(app)
    _figures(app)
    _tokens(app)

    app.clientside_callback(
        ClientsideFunction("attribute", "copy"),
        Output("attr-copy", "children"),
        Input("attr-copy", "n_clicks"),
        prevent_initial_call=True,
    )

    @app.callback(
        *sections.places(Output, "attr-one.hidden attr-two.hidden attr-check.hidden"),
        Input("attr-mode", "value"),
        prevent_initial_call=True,
    )
    def chosen(mode: str) -> Any:
        return tuple(mode != other for other in MODES)


def _report(job: str) -> frames.Report:
    report: frames.Report = visitor.service().report(visitor.session(), job)
    return report


def _rows(name: str, job: str, choice: dict[str, Any] | None) -> Any:
    """Rows of a live figure."""
    if name == "tokens":
        chosen = [(choice or {})[part] for part in ("row", "source", "rival")]
        return frames.pieces(visitor.service().tokens(visitor.session(), job, *chosen))
    return TABLES[name](_report(job))


TABLES = {
    "evidence": frames.evidence,
    "candidates": frames.candidates,
    "adds": frames.traces,
    "without": frames.without,
    "readers": frames.readers,
    "left": frames.excluded,
    "lands": frames.landed,
    "tippett": validated.tippett_rows,
    "pav": validated.pav_rows,
}
"""Figures of a result whose rows come from its report alone."""


def _figures(app: Dash) -> None:
    app.clientside_callback(
        ClientsideFunction("atlas", "tableShown"),
        Output({"type": sections.BODY, "figure": MATCH}, "className"),
        Output({"type": sections.TABLE, "figure": MATCH}, "aria-pressed"),
        Input({"type": sections.TABLE, "figure": MATCH}, "n_clicks"),
        prevent_initial_call=True,
    )

    @app.callback(
        Output({"type": sections.ROWS, "figure": ALL}, "children"),
        Input({"type": sections.TABLE, "figure": ALL}, "n_clicks"),
        Input("attr-heat-choice", "data"),
        State({"type": sections.TABLE, "figure": ALL}, "id"),
        State("attr-job", "data"),
        prevent_initial_call=True,
    )
    def rows(
        clicks: list[int | None], choice: dict[str, Any] | None, identities: list[dict[str, str]], job: str | None
    ) -> Any:
        # Another trace or rival refills the table of the tokens where it is open.
        pressed = ctx.triggered_id["figure"] if isinstance(ctx.triggered_id, dict) else "tokens"

        def shown(count: int | None, figure: str) -> Any:
            if not count or count % 2 == 0 or figure != pressed or not job or (figure == "tokens" and not choice):
                return no_update
            return shell.table(_rows(figure, job, choice), identity={"type": "live-grid", "figure": figure})

        return [shown(count, identity["figure"]) for count, identity in zip(clicks, identities, strict=True)]

    @app.callback(
        Output({"type": sections.DOWNLOAD, "figure": MATCH}, "data"),
        Input({"type": sections.CSV, "figure": MATCH}, "n_clicks"),
        State({"type": sections.CSV, "figure": MATCH}, "id"),
        State("attr-job", "data"),
        State("attr-heat-choice", "data"),
        prevent_initial_call=True,
    )
    def csv(clicks: int | None, identity: dict[str, str], job: str | None, choice: dict[str, Any] | None) -> Any:
        if not clicks or not job or (identity["figure"] == "tokens" and not choice):
            return no_update
        text = shell.csv_text(_rows(identity["figure"], job, choice))
        name = f"{verdict.file_name(_report(job))}_{identity['figure']}.csv"
        return {"content": text, "filename": name, "type": "text/csv"}

    @app.callback(
        Output({"type": sections.GRAPH, "figure": ALL}, "figure"),
        Input("theme", "data"),
        Input({"type": "attr-stop", "figure": ALL}, "value"),
        State({"type": sections.GRAPH, "figure": ALL}, "id"),
        State("attr-job", "data"),
        prevent_initial_call=True,
    )
    def coloured(theme: Theme, levels: list[str], identities: list[dict[str, str]], job: str | None) -> Any:
        if not job or not identities:
            return [no_update] * len(identities)
        report = _report(job)
        level = float(levels[0]) if levels else None
        turned = isinstance(ctx.triggered_id, dict)

        def drawn(name: str) -> Any:
            if turned and name != "evidence":
                return no_update
            return result.redrawn(name, report, theme, level, questions()) or no_update

        return [drawn(identity["figure"]) for identity in identities]


def _tokens(app: Dash) -> None:
    @app.callback(
        Output("heat", "children"),
        Output("attr-heat-choice", "data"),
        *sections.places(Input, "heat-trace.value heat-source.value heat-rival.value"),
        State("attr-job", "data"),
    )
    def heated(trace: str | None, source: str | None, rival: str | None, job: str | None) -> Any:
        if not (trace and source and rival and job):
            return no_update, no_update
        choice = {"row": int(trace), "source": source, "rival": rival}
        try:
            evidence = visitor.service().tokens(visitor.session(), job, int(trace), source, rival)
        except AtlasError as error:
            return visitor.refusal(error), None
        return result.heat_map(evidence), choice

    @app.callback(
        Output("heat-trace", "value"),
        Input({"type": sections.GRAPH, "figure": "adds"}, "clickData"),
        prevent_initial_call=True,
    )
    def picked(click: dict[str, Any] | None) -> Any:
        chosen = ((click or {}).get("points") or [{}])[0].get("customdata")
        return str(chosen[0]) if chosen else no_update


PAGE = shell.Page(
    name="attribute",
    path="/attribute",
    title="Attribute",
    icon="attribute",
    layout=layout,
    register=register,
    figures={},
)
