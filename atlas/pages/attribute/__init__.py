"""Attribute: which model wrote traces, whether an endpoint changed, and whether a claim or a report holds."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import Dash, ctx, dcc, html, no_update
from dash.development.base_component import Component
from flask import request

from atlas import shell
from atlas.api import access, answers
from atlas.api.problems import RefusedError
from atlas.data import questions
from atlas.pages.attribute import comparisons, intake, question, result, sections, verdict, visitor, work
from atlas.pages.attribute.sections import MODES, Clicks, Report, Stored, Text
from atlas.theme import Theme
from backend.attribution.report_words import names_of
from backend.errors import AtlasError

HEADS = {
    "one": (
        "Which model wrote these traces?",
        "The claimed source, another enrolled one, or none: the answer comes with its strength, its error rates, and a "
        "report that somebody else can check.",
    ),
    "two": (
        "Has the endpoint changed?",
        "Two windows of its traces are compared. The answer comes with its error rate.",
    ),
    "reference": (
        "Are these the claimed model's answers?",
        "They are compared with answers to the same prompts from an endpoint that you trust.",
    ),
    "check": (
        "Is this report unchanged and right?",
        "Its hashes show whether it was changed, and its traces whether they give the same answer again.",
    ),
}
"""What every mode asks, and how it is answered."""


def layout(**query: str) -> Component:
    """The page for a query string; traces never are in a link, so every link opens at the first step."""
    answers.refuse()  # It says whether the visitor may use it.
    mode = query.get("mode", "one")
    mode = mode if mode in MODES else "one"
    link = {name: str(query.get(name, ""))[:400] for name in ("ecosystem", "claim", "reader", "roster", "carry")}
    heading, lead = HEADS[mode]
    title = [html.H1(heading, id="attr-heading"), shell.segmented("attr-mode", MODES, mode, "Look at")]
    forgets = "Deletes files and results of this session from the server"
    again = [
        html.Span(id="attr-again-words", className="long"),
        html.Button("Change traces or question", id="attr-back", className="quiet"),
        html.Button("Forget all traces", id="attr-forget", className="quiet", title=forgets),
    ]
    head = [
        html.Div(title, className="head-row"),
        html.P(lead, id="attr-lead", className="sentence page-lead"),
        html.Div(again, className="again"),
    ]
    closed = access.guarded() and not access.authorised(request)
    steps = [intake.step(), question.step(), work.step(), html.Div(id="attr-result")]
    root = [
        html.Div(head, className="page-head"),
        *([token_field()] if closed else []),
        html.Div(steps, id="attr-one", hidden=mode != "one"),
        *(
            html.Div(comparisons.page(part) if mode == name else None, id=f"attr-{name}", hidden=mode != name)
            for name, part in comparisons.PARTS.items()
        ),
    ]
    clocks = [
        dcc.Interval(id="attr-warm", interval=work.WARM_MS),
        dcc.Interval(id="attr-tick", interval=work.POLL_MS, disabled=True),
    ]
    stores = [
        *question.stores(link),
        *clocks,
        dcc.Store(id="attr-carried"),
        dcc.Store(id="attr-visit"),
        dcc.Store(id="attr-made", data=["one", mode]),
    ]
    return html.Div([*stores, html.Div(root, id="attr-root", className="attr")], className="column")


def token_field() -> Component:
    """Where a visitor gives the token that the server asks for."""
    name = {"input": {"aria-label": "Token", "autoComplete": "off"}}
    field = [
        html.Label("This atlas takes traces from people with its token only", htmlFor="attr-token"),
        dmc.PasswordInput(id="attr-token", value="", size="sm", w=240, attributes=name),
        html.Button("Enter", id="attr-token-go", className="button"),
        sections.hint(None, id="attr-token-said", role="status"),
    ]
    return html.Div(field, id="attr-token-place", className="row token-place")


def register(app: Dash) -> None:
    """Callbacks of the page."""

    @sections.callback(
        app,
        "attr-token-said.children attr-token.value attr-admitted.data",
        "attr-token-go.n_clicks",
        "attr-token.value",
    )
    def admitted(clicks: Clicks, token: Text) -> Any:
        if not clicks:
            return (no_update,) * 3
        try:
            right = access.fits((token or "").encode("utf-8", "surrogatepass"), request.remote_addr)
        except RefusedError as error:
            return f"{error.detail} {error.remedy}", "", no_update
        if not right:
            return "This is not the token.", "", no_update
        access.admit(ctx.response)
        return "Welcome. You can give traces now.", "", clicks

    for part in (intake, question, work, comparisons):
        part.register(app)
    _figures(app)
    sections.client(app, "visit", "attr-visit.data", "attr-visit.id", prevent=False)
    sections.client(app, "copy", "attr-copy.children", "attr-copy.n_clicks")

    @sections.callback(
        app,
        "attr-one.hidden attr-two.hidden attr-reference.hidden attr-check.hidden attr-heading.children "
        "attr-lead.children",
        "attr-mode.value",
    )
    def chosen(mode: str) -> Any:
        return (*(mode != other for other in MODES), *HEADS[mode])

    # A part comes when its mode is chosen first: these parts are half of what the browser would have to keep.
    places = " ".join(f"attr-{name}.children" for name in comparisons.PARTS)

    @sections.callback(app, f"{places} attr-made.data", "attr-mode.value", "attr-made.data")
    def make(mode: str, made: list[str]) -> Any:
        if mode in made:
            return (no_update,) * (1 + len(comparisons.PARTS))
        new = {name: comparisons.page(part) for name, part in comparisons.PARTS.items() if name == mode}
        return (*(new.get(name, no_update) for name in comparisons.PARTS), [*made, mode])


def _report(job: str) -> Report:
    return visitor.service().report(visitor.session(), job)


def _rows(name: str, job: str, choice: Stored) -> Any:
    """Rows of a live figure."""
    if name == "tokens":
        chosen = [(choice or {})[part] for part in ("row", "source", "rival")]
        return result.token_rows(visitor.service().tokens(visitor.session(), job, *chosen))
    return result.rows(name, _report(job))


def _figures(app: Dash) -> None:
    sections.client(
        app, "tableShown", "live-body:MATCH.className live-table:MATCH.aria-pressed", "live-table:MATCH.n_clicks",
        of="atlas",
    )  # fmt: skip

    @sections.callback(
        app,
        "live-rows:ALL.children",
        "live-table:ALL.n_clicks attr-heat-choice.data",
        "live-table:ALL.id attr-job.data",
    )
    def rows(clicks: list[Clicks], choice: Stored, identities: list[dict[str, str]], job: Text) -> Any:
        # Another trace or rival refills the table of the tokens where it is open.
        pressed = ctx.triggered_id["figure"] if isinstance(ctx.triggered_id, dict) else "tokens"

        def shown(count: int | None, figure: str) -> Any:
            if not count or count % 2 == 0 or figure != pressed or not job or (figure == "tokens" and not choice):
                return no_update
            return shell.table(_rows(figure, job, choice), identity=sections.live("live-grid", figure))

        return [shown(count, identity["figure"]) for count, identity in zip(clicks, identities, strict=True)]

    @sections.callback(
        app,
        "live-download:MATCH.data",
        "live-csv:MATCH.n_clicks",
        "live-csv:MATCH.id attr-job.data attr-heat-choice.data",
    )
    def csv(clicks: Clicks, identity: dict[str, str], job: Text, choice: Stored) -> Any:
        if not clicks or not job or (identity["figure"] == "tokens" and not choice):
            return no_update
        text = shell.csv_text(_rows(identity["figure"], job, choice))
        name = f"{verdict.file_name(_report(job))}_{identity['figure']}.csv"
        return {"content": text, "filename": name, "type": "text/csv"}

    @sections.callback(
        app, "live-graph:ALL.figure", "theme.data attr-stop:ALL.value", "live-graph:ALL.id attr-job.data"
    )
    def coloured(theme: Theme, levels: list[str], identities: list[dict[str, str]], job: Text) -> Any:
        if not job or not identities:
            return [no_update] * len(identities)
        report = _report(job)
        level = float(levels[0]) if levels else None
        turned = isinstance(ctx.triggered_id, dict)

        def drawn(name: str) -> Any:
            if turned and name != "evidence":
                return no_update
            return result.draw(name, report, theme, level, questions()) or no_update

        return [drawn(identity["figure"]) for identity in identities]

    @sections.callback(
        app, "heat.children attr-heat-choice.data", "heat-trace.value heat-source.value heat-rival.value",
        "attr-job.data", prevent=False,
    )  # fmt: skip
    def heated(trace: Text, source: Text, rival: Text, job: Text) -> Any:
        if not (trace and source and rival and job):
            return no_update, no_update
        choice = {"row": int(trace), "source": source, "rival": rival}
        try:
            evidence = visitor.service().tokens(visitor.session(), job, int(trace), source, rival)
        except AtlasError as error:
            return visitor.refusal(error), None
        names = names_of(_report(job))
        named = {side: names.get(evidence[side], evidence[side]) for side in ("source", "rival")}
        return result.heat_map({**evidence, **named}), choice

    sections.client(app, "picked", "heat-trace.value", "live-graph:adds.clickData")


PAGE = shell.Page(
    name="attribute",
    path="/attribute",
    title="Attribute",
    icon="attribute",
    layout=layout,
    register=register,
    figures={},
)
