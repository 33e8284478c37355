"""Watch: endpoints that are watched, the evidence against each over time, and every alarm with its report."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from dash import Dash, Input, Output, dcc, html
from dash.development.base_component import Component
from flask import request

from atlas import shell
from atlas.api import answers
from atlas.api.access import authorised
from atlas.data import questions
from atlas.figures import watch as figures
from atlas.pages import pieces, validation
from atlas.state import View
from atlas.theme import Theme
from backend.errors import AtlasError
from backend.inference.e_process import LN10
from backend.service.watch_state import COUNTED, FORMS, KINDS, WatchState, alarm_sentence, evidence_text, watches

LEAD = (
    "Does an endpoint still answer as the model that it is said to be? Evidence grows with odd traces and shrinks with "
    "ordinary ones. An alarm comes when it reaches the dashed line. An endpoint that does not change gets there in at "
    "most the stated share of all watches, however often anybody looks."
)
COMMAND = "python -m jobs watch SOURCE --claimed LABEL --reference FILE"
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
    return html.Div(
        [clock, content, *([html.Div(measured, className="column")] if measured else [])], className="watch"
    )


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
        remedy = f"Start one with: {COMMAND}, then it is on this page"
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
