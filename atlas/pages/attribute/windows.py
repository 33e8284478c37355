"""Two windows of traces from one endpoint: has it changed? (paper, Limitations: drift is not detected there)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from dash import Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component
from flask import request

from atlas import shell
from atlas.data import QueryCache, questions
from atlas.figures.evidence import DRIFT_KINDS, drift_power
from atlas.figures.plots import rate_text
from atlas.pages.attribute import intake, question, sections, visitor
from atlas.theme import Theme
from backend.attribution.settings import of_windows
from backend.errors import AtlasError
from backend.inference.drift import DIFFERENT, LEVEL, named
from backend.service.job import ENDED
from backend.service.uploads import MissingError
from backend.store import page_queries

POLL_MS = 700
REFUSED = {"refused": True}
"""In place of an upload: else a refused second window would leave the halves of the first one to be compared."""
SIDES = {"before": "First window", "after": "Second window"}
P_HELP = (
    "How often a random split of the same traces into two windows looks at least as different. At .05 or below the "
    "windows are called different."
)


def stores() -> list[Component]:
    """What this part of the page remembers, and its clock."""
    return [
        *[dcc.Store(id=f"win-{side}-upload") for side in SIDES],
        dcc.Store(id="win-jobs"),
        dcc.Store(id="win-done"),
        dcc.Interval(id="win-tick", interval=POLL_MS, disabled=True),
    ]


def page() -> Component:
    """The steps of this part."""
    lead = (
        "Traces of one endpoint from two times, best with the same prompts: the test cannot tell another model from "
        "other questions. It needs no enrolled source. One file alone is split into its first and second half."
    )
    drops = [intake.place(f"win-{side}", f"{word}: drop a file") for side, word in SIDES.items()]
    ecosystem = shell.select(
        "win-ecosystem", "Proxy and block that read the traces", size="sm", w=360, allowDeselect=False,
        placeholder="Looking for ecosystems …",
    )  # fmt: skip
    button = html.Button("Compare the windows", id="win-go", className="button button-main", disabled=True)
    files = [html.P(lead, className="sentence"), html.Div(drops, className="drops windows")]
    work: list[Component] = [html.Div([ecosystem, button], className="row")]
    work.append(sections.progress("win", sections.hint(None, id="win-cancel-said", role="status")))
    return html.Div(
        [
            sections.step(1, "Windows", "win-title-1", *files, sections.notice("win-problem")),
            sections.step(2, "Test", "win-title-2", *work),
            sections.notice("win-result", "polite"),
        ]
    )


POWER = ["k", "scenario", "statistic", "value", "std", "n", "roster"]


def power(cache: QueryCache, reader: str, roster: str, own: Sequence[Mapping[str, Any]] = ()) -> pd.DataFrame:
    """How often the test spoke on real pairs (columns of :data:`POWER`); empty where that was not measured.

    Those of the ecosystem's roster in the served generation, else the ecosystem's ``own`` rows, else those of the
    largest roster with the same reader.
    """
    rows = pd.DataFrame(columns=POWER)
    if cache.problem() is None:
        measured = cache.ask(page_queries.drift, reader)
        rows = measured[measured["space"] == "fingerprints"]
    if len(here := rows[rows["roster"] == roster]):
        return here
    if own:
        return pd.DataFrame(own).assign(roster=roster)
    return rows[rows["roster"] == rows["roster"].iloc[0]] if len(rows) else rows


def answer(test: Mapping[str, Any], rows: pd.DataFrame, theme: Theme) -> Component:
    """Verdict of the drift test, and what it could have seen (rows from :func:`power`)."""
    tone, sign = ("AGAINST", "≠") if test["verdict"] == DIFFERENT else ("INCONCLUSIVE", "=")
    names = [named(window) for window in test["windows"]]
    kind = "energy-paired" if test["paired"] else "energy"
    # The data hold one answer a prompt, so false alarms were measured on windows of different prompts only.
    measured = rows[rows["statistic"].eq(kind) | (rows["statistic"].eq("energy") & rows["scenario"].eq("same"))]
    window = min(int(test["before"]), int(test["after"]))
    paired = ("yes", "side by side") if test["paired"] else ("no", "windows dealt anew")
    distance = "Distance of the two windows' fingerprints; 0 for equal windows"
    facts = [
        sections.fact("p value", P_HELP, rate_text(test["p_value"]), f"called different at {LEVEL:g} or below"),
        sections.fact("Energy distance", distance, f"{test['statistic']:.3g}", "standardised fingerprints"),
        sections.fact("Same prompts", "", *paired),
    ]
    box = sections.answer_box(
        tone,
        [html.Span(names[0], dir="auto"), " against ", html.Span(names[1], dir="auto")],
        sections.answer_word("win-verdict", sign, test["verdict"]),
        html.P(test["sentence"], className="verdict-sentence"),
        html.Dl(facts, className="verdict-facts"),
        *[html.P(note, className="flag") for note in test["notes"]],
    )
    return html.Div([box, _power_section(measured, window, theme, test["expected"])])


def _power_section(rows: pd.DataFrame, window: int, theme: Theme, expected: str) -> Component:
    title = "What would a test of this size have seen?"
    if rows.empty:
        remedy = "Measure it with: python -m jobs evaluate --stage audit --method drift, then publish"
        missing = shell.empty("The power of the test has not been measured for this reader", remedy)
        return html.Section([html.H2(title), missing], className="figure")
    roster, pairs = str(rows["roster"].iloc[0]), int(rows["n"].iloc[0])
    sentence = (
        f"{expected} Share of real pairs of windows that the same test called different at 5 %, out of {roster}: an "
        f"unchanged source, a sibling of its family, a source of another family. n = {pairs} pairs a point; the line "
        "marks your smaller window."
    )
    config: Any = {"displayModeBar": False}
    graph = dcc.Graph(
        id="win-power", figure=drift_power(rows, window, theme=theme), responsive=True, className="graph", config=config
    )
    names = [DRIFT_KINDS.get(name, name) for name in rows["scenario"]]
    table = rows[["k", "scenario", "value", "std", "n"]].assign(scenario=names).sort_values(["scenario", "k"])
    return html.Section(
        [
            html.H2(title),
            html.P(sentence, className="sentence"),
            html.Div(graph, style={"height": 320}, className="figure-body", role="img", **shell.aria(label=title)),
            shell.table(table, identity="win-power-rows", domLayout="autoHeight"),
        ],
        className="figure",
        id="figure-power",
    )


def register(app: Dash) -> None:
    """Callbacks of this part."""
    for side in SIDES:
        _receiving(app, side)
    _testing(app)

    @app.callback(
        Output("win-ecosystem", "data"),
        Output("win-ecosystem", "value"),
        Input("attr-ecosystem", "data"),
        State("attr-ecosystem", "value"),
    )
    def offered(options: list[dict[str, str]] | None, chosen: str | None) -> Any:
        return options or [], chosen

    @app.callback(
        Output("win-go", "disabled"),
        *sections.places(Input, "win-before-upload.data win-after-upload.data win-ecosystem.value win-jobs.data"),
    )
    def may_go(
        before: dict[str, Any] | None, after: dict[str, Any] | None, ecosystem: str | None, jobs: list[str] | None
    ) -> bool:
        return not before or REFUSED in (before, after) or not ecosystem or bool(jobs)


def _receiving(app: Dash, side: str) -> None:
    @app.callback(
        *sections.places(
            Output, f"win-{side}-upload.data win-{side}-head.children win-{side}.contents win-problem.children*"
        ),
        Input(f"win-{side}", "contents"),
        State(f"win-{side}", "filename"),
        prevent_initial_call=True,
    )
    def take(contents: str | None, name: str | None) -> Any:
        if not contents:
            return (no_update,) * 4
        try:
            key = visitor.opened_session()
            upload = visitor.service().upload(key, name or side, intake.decoded(contents))
            preview = visitor.service().inspect(key, upload.key)
        except AtlasError as error:
            words = "That file was refused. Drop another one, or reload the page to begin anew."
            return REFUSED, words, None, visitor.refusal(error)
        bad = [html.Li([f"{preview.unit} {row['place']:,}: ", str(row["reason"])]) for row in preview.problems[:5]]
        more = [html.Li(f"… and {len(preview.problems) - 5:,} more")] if len(preview.problems) > 5 else []
        return intake.reference(upload), [intake.head(preview), html.Ul(bad + more)], None, None


def _testing(app: Dash) -> None:
    @app.callback(
        *sections.places(Output, "win-jobs.data win-problem.children win-tick.disabled win-cancel-said.children"),
        Input("win-go", "n_clicks"),
        *sections.places(State, "win-before-upload.data win-after-upload.data win-ecosystem.value"),
        prevent_initial_call=True,
    )
    def start(
        clicks: int | None, before: dict[str, Any] | None, after: dict[str, Any] | None, ecosystem: str | None
    ) -> Any:
        if not clicks or not before or REFUSED in (before, after):
            return (no_update,) * 4
        try:
            one = question.ecosystem(ecosystem)
            if one is None:
                raise AtlasError("No ecosystem is enrolled here", "Run: python -m jobs enroll --sample")
            keys = [upload["key"] for upload in (before, after) if upload]
            jobs = visitor.service().start_windows(visitor.admitted(), keys, of_windows(one.name), request.remote_addr)
        except AtlasError as error:
            return None, visitor.refusal(error), True, None
        return jobs, None, False, None

    @app.callback(
        *sections.places(
            Output,
            "win-progress.hidden win-words.children win-bar.style win-tick.disabled* win-done.data win-jobs.data* "
            "win-problem.children*",
        ),
        Input("win-tick", "n_intervals"),
        State("win-jobs", "data"),
        prevent_initial_call=True,
    )
    def tick(_ticks: int | None, jobs: list[str] | None) -> Any:
        ended = (True, None, sections.NOTHING, True)  # progress hidden, and no further tick
        if not jobs:
            return *ended, no_update, no_update, no_update
        service, key = visitor.service(), visitor.session()
        try:
            seen = [service.progress(key, job) for job in jobs]
        except MissingError as error:
            return *ended, None, None, visitor.refusal(error)
        wrong = next((one for one in seen if one.state == "failed"), None)
        if wrong is not None:
            why = AtlasError(wrong.problem or "The comparison failed", wrong.remedy or visitor.PRESS)
            return *ended, None, None, visitor.refusal(why)
        done, total = sum(one.done for one in seen), sum(one.total for one in seen)
        if all(one.state in ENDED for one in seen):
            return *ended, jobs, None, None
        words = f"{done:,} of {total:,} traces read." if done else "Waiting for the proxy."
        return False, words, sections.bar(done, total), False, no_update, no_update, None

    @app.callback(
        Output("win-cancel-said", "children", allow_duplicate=True),
        Input("win-cancel", "n_clicks"),
        State("win-jobs", "data"),
        prevent_initial_call=True,
    )
    def cancel(clicks: int | None, jobs: list[str] | None) -> Any:
        if not clicks or not jobs:
            return no_update
        try:
            for job in jobs:
                visitor.service().cancel(visitor.session(), job)
        except AtlasError as error:
            return str(error)
        return "Stopping after this batch; what has been read is compared where it is enough."

    @app.callback(
        Output("win-result", "children"), Input("win-done", "data"), Input("theme", "data"), prevent_initial_call=True
    )
    def shown(jobs: list[str] | None, theme: Theme) -> Any:
        if not jobs:
            return None
        service, key = visitor.service(), visitor.session()
        try:
            test = service.drift(key, *jobs)
            report = service.report(key, jobs[0])
        except AtlasError as error:
            return visitor.refusal(error)
        roster = str(report["method"]["facts"].get("roster", report["reference"]["enrolment"]))
        rows = power(questions(), report["method"]["reader"], roster, test["validation"])
        return answer(test, rows, theme or "dark")
