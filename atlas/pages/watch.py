"""Watch: endpoints that are watched, the evidence against each over time, and every alarm with its report."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pandas as pd
from dash import ClientsideFunction, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component
from flask import request

from atlas import shell
from atlas.api import answers
from atlas.api.access import authorised
from atlas.data import QueryCache, questions
from atlas.figures import watch as figures
from atlas.pages import pieces, validation
from atlas.state import View
from atlas.theme import Theme
from backend.errors import AtlasError
from backend.inference.e_process import LN10
from backend.service.watch_state import COUNTED, FORMS, KINDS, WatchState, alarm_sentence, evidence_text, watches
from backend.store import page_queries

LEAD = (
    "Does an endpoint still answer as the model that it is said to be? A watch reads its new answers and raises an "
    "alarm once they no longer look like that model's. You choose how many false alarms you allow; that share holds "
    "however often anybody looks. Prompts must be of the enrolled kind: other traffic is set aside and not counted."
)
ALARM = (
    "Every new answer is compared with answers that the claimed model gave when it was enrolled. Odd answers raise the "
    "evidence against the endpoint, ordinary ones lower it. With 1 % of false alarms allowed, the alarm comes when the "
    "evidence reaches 100. It stands until somebody has looked into it."
)
SENT = {
    "A report": "as HTML, JSON and CSV, about the answers since the evidence began to rise. It is listed on this page, "
    "and anybody can check and sign it.",
    "A webhook": "--webhook URL gets one JSON message: which watch, which claim, the evidence, the verdict and where "
    "the report is. It holds no text of any answer.",
    "An exit status": "with --once the command looks once and ends with 0 without an alarm, 1 while one stands, and 2 "
    "where it cannot watch, so that CI or cron can act on it.",
    "Metrics": "--metrics-port PORT answers Prometheus.",
}
STARTS = (
    (
        "watch-endpoint",
        "An endpoint, asked every hour",
        "python -m jobs watch http://localhost:8000/v1 --model NAME --prompts prompts.txt --claimed LABEL "
        "--reference enrolled.jsonl --every 1h",
    ),
    (
        "watch-folder",
        "A folder of logs, new files and new lines of which are read",
        "python -m jobs watch logs/ --claimed LABEL --reference enrolled.jsonl",
    ),
)
"""Id, meaning and command of the usual ways to start a watch."""
PLACEHOLDERS = (
    "LABEL is the enrolled model that the endpoint is said to be. enrolled.jsonl holds the labelled traces that were "
    "enrolled; python -m jobs collect writes such a file, and python -m jobs enroll reads it."
)
CHANGES = {
    "family": "to another family",
    "sibling": "to a sibling",
    "mixture": "of 30 % of the traffic to another family",
}
OTHER = "Traces of other traffic are no evidence, because their oddness may be that of the prompts."
AGAIN_MS = 20_000
MEASURED = {"alarms": validation.TABLES["streams"]}  # how soon and how often alarms come
SHOWN = 5  # looks that are listed
FILES = {"html": "Report", "json": "JSON", "csv": "CSV", "jsonl": "Traces"}


def layout(**query: str) -> Component:
    """The page for a query string; nobody keeps it, because it changes while nobody looks."""
    answers.refuse()
    content = html.Div(_content(View.parse(query).theme), id="watch-content", className="column")
    cache = questions()
    measured = [] if cache.problem() else validation.sections(cache, MEASURED)
    clock = dcc.Interval(id="watch-clock", interval=AGAIN_MS)
    below = html.Div([_explained(cache), _starts(), *measured], className="column")
    return html.Div([clock, content, below], className="watch")


def register(app: Dash) -> None:
    """Callbacks of the page."""

    @app.callback(
        Output("watch-content", "children"),
        Input("theme", "data"),
        Input("watch-clock", "n_intervals"),
        prevent_initial_call=True,
    )
    def again(theme: str | None, _: int | None) -> Any:
        return _content("light" if theme == "light" else "dark")

    for name, _, _ in STARTS:
        app.clientside_callback(
            ClientsideFunction("attribute", "copy"),
            Output(f"{name}-copy", "children"),
            Input(f"{name}-copy", "n_clicks"),
            State(name, "id"),
            prevent_initial_call=True,
        )


def delays(frame: pd.DataFrame) -> str:
    """How seldom a watch is wrong and how soon it is right, by rows of the table of streams; '' without any."""
    if frame.empty:
        return ""
    first = frame.iloc[0]
    one = frame[(frame["reader"] == first["reader"]) & (frame["roster"] == first["roster"])]
    one = one[one["level"] == one["level"].min()].set_index("scenario")
    parts = []
    if "resampled" in one.index:
        row = one.loc["resampled"]
        parts.append(
            f"With {100 * row['level']:g} % of false alarms allowed, {100 * row['alarms']:.1f} % of {row['n']:,.0f} "
            f"watches over {row['k']:,.0f} answers without a change raised one."
        )
    for scenario, words in CHANGES.items():
        if scenario in one.index:
            row = one.loc[scenario]
            parts.append(
                f"After a change {words}, {100 * row['alarms']:.1f} % raised one: half within {row['delay']:,.0f} "
                f"answers, nine of ten within {row['delay90']:,.0f}."
            )
    return " ".join(parts)


def _explained(cache: QueryCache) -> Component:
    found = "" if cache.problem() else delays(cache.ask(page_queries.streams))
    measured = [html.P(["Measured on held-out answers (table below): ", found], className="sentence")] if found else []
    return html.Section(
        [
            html.H2("What is an alarm, and what does it send?"),
            html.P(ALARM, className="sentence"),
            *measured,
            shell.facts(SENT, className="watch-facts"),
        ],
        className="figure",
    )


def _starts() -> Component:
    ways: list[Component] = []
    for name, words, command in STARTS:
        copy = html.Button(
            "Copy", id=f"{name}-copy", className="button", title="Copy the command",
            **shell.aria(label=f"Copy the command: {words}"),
        )  # fmt: skip
        code = html.Code(command, id=name, className="command", dir="ltr")
        ways += [html.H3(words, className="group"), html.Div([code, copy], className="copyable")]
    return html.Section(
        [html.H2("Start a watch"), html.P(PLACEHOLDERS, className="sentence"), *ways], className="figure"
    )


def _content(theme: Theme) -> list[Component]:
    return [
        html.Div([html.H1("Watch"), html.P(LEAD, className="sentence page-lead")], className="page-head"),
        *_sections(theme),
    ]


def _sections(theme: Theme) -> list[Component]:
    if not authorised(request):
        remedy = "Give it on the page Attribute"
        return [shell.empty("This atlas shows its watches to people with its token only", remedy)]
    known = watches()
    if not known:
        remedy = "Start one with a command below, and its evidence over time stands here."
        return [shell.empty("Nothing is watched yet", remedy, [("What the evidence means", "/methods")])]
    return [_section(state, theme) for state in known]


def _section(state: WatchState, theme: Theme) -> Component:
    try:
        return _watched(state, theme)
    except AtlasError as error:
        return html.Section([html.H2(state.name), shell.empty(error.problem, error.remedy)], className="figure")
    finally:
        state.close()


def _watched(state: WatchState, theme: Theme) -> Component:
    question, log_e, looks, alarm = state.question, state.evidence(), state.looks(), state.alarm
    alarms, counts = state.alarms(), state.counts()
    now = evidence_text(float(log_e[-1]) / LN10) if len(log_e) else "none yet"
    words, kind = (
        ("Alarm", "against") if alarm else ("No alarm", "supports") if len(log_e) else ("Waiting", "inconclusive")
    )
    status = html.Span(words, className=f"watch-status watch-{kind}", role="status")
    sentence: list[Component | str] = [
        "Is it ", shell.source_name(question.claimed), f"? Evidence against it: {now}; alarm at "
        f"{1 / question.rate:,.0f}. {pieces.counted(len(log_e), 'trace')} counted"
        + (f" in round {state.round}" if state.round > 1 else "") + f", {counts['other']:,} of other traffic.",
    ]  # fmt: skip
    place = len(log_e) and next((one.traces for one in alarms if one.round == state.round), None)
    curve = figures.evidence_curve(log_e, question.rate, place or None, theme)
    graph = shell.graph(f"watch-{_plain(state.name)}-graph", curve)
    label = f"Evidence of the watch {state.name} over its traces"
    drawing = html.Div(graph, className="figure-drawing", role="img", **shell.aria(label=label))
    facts = {
        "Source": question.source,
        "Enrolment": question.enrolment,
        "False alarms": f"at most {100 * question.rate:g} % of all watches",
        "Last look": _time(looks[-1].at) if looks else "",
    }
    return html.Section(
        [
            html.Div([html.H2(state.name, dir="auto"), status], className="figure-title"),
            html.P(sentence, className="sentence"),
            html.Div(drawing, className="figure-body", style={"height": figures.HEIGHT}),
            shell.facts(facts, className="watch-facts"),
            *([html.H3("Alarms", className="group"), *(_alarm(state, one) for one in alarms)] if alarms else []),
            *([html.H3("Last looks", className="group"), _looks(looks)] if looks else []),
        ],
        className="figure",
    )


def _alarm(state: WatchState, alarm: Any) -> Component:
    links: list[Component | str] = []
    for form in FORMS:
        href = f"/watch/{state.name}/alarm-{alarm.number}.{form}"
        links.append(html.A(FILES[form], href=href, target="_blank", className="forward", rel="noopener"))
    told = "The webhook got it." if alarm.delivered else "No webhook got it."
    stands = "It stands." if alarm.round == state.round else "It was accepted."
    head = html.Strong(f"Alarm {alarm.number}, {_time(alarm.at)}")
    text = f"{alarm_sentence(state, alarm)} {stands} {told}"
    return html.Div([head, html.P(text), html.Div(links, className="watch-links")], className="watch-alarm")


def _looks(looks: list[Any]) -> Component:
    heads = ("Look (UTC)", "New traces", "Prompts", "Evidence")
    rows = []
    for look in reversed(looks[-SHOWN:]):
        counted = "counted" if look.kind in COUNTED else "not counted"
        prompts, evidence = (KINDS[look.kind], counted) if look.traces else ("", "")
        rows.append(pieces.row(_time(look.at), f"{look.traces:,}", prompts, evidence))
    note = [html.P(OTHER, className="sentence")] if any(look.kind not in COUNTED for look in looks) else []
    return html.Div([pieces.scrolling(pieces.table(heads, rows)), *note])


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}"


def _plain(name: str) -> str:
    """A name without the dots that Dash takes for a property."""
    return name.replace(".", "-")


PAGE = pieces.page("watch", layout, register, validation.figures(MEASURED))
