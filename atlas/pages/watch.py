"""Watch: endpoints that are watched, the evidence against each over time, and every alarm with its report."""

from __future__ import annotations

import dataclasses
import math
import shlex
from datetime import UTC, datetime
from typing import Any

import dash_mantine_components as dmc
import pandas as pd
from dash import ClientsideFunction, Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.development.base_component import Component
from flask import request

from atlas import drawing, shell
from atlas.api import answers
from atlas.api.access import authorised
from atlas.data import QueryCache, questions
from atlas.figures import tables
from atlas.figures import watch as figures
from atlas.pages import pieces, validation
from atlas.pages.attribute import sections, visitor
from atlas.state import View
from atlas.theme import Theme
from backend.enrolment.catalogue import Ecosystem, default
from backend.enrolment.stories import Story, stories
from backend.errors import AtlasError
from backend.inference.e_process import LN10, evidence_text
from backend.service.watch_state import COUNTED, FORMS, KINDS, WatchState, alarm_sentence, watches
from backend.store import page_queries

LEAD = (
    "Does an endpoint still answer as the model that it is said to be? A watch reads its new answers, and raises an "
    "alarm once they no longer look like that model's."
)
ALARM = (
    "Every new answer is compared with answers that the claimed model gave when it was enrolled. Answers unlike those "
    "raise the evidence against the endpoint, answers like them lower it. The alarm comes when the evidence reaches "
    "100 to 1: of 100 watches of an endpoint that never changes, at most 1 raises one, however often it looks. "
    "Prompts must be of the enrolled kind; answers to others are set aside and not counted. The alarm stands until "
    "somebody accepts it."
)
SENT = {
    "A report": "as HTML, JSON and CSV, about the answers since the evidence began to rise. It is listed on this page, "
    "and anybody can check and sign it.",
    "A webhook": "with --webhook URL your address gets one message (JSON): which watch, which claimed model, the "
    "evidence, the verdict and where the report is. It holds no text of any answer.",
    "An exit status": "with --once the command looks once and ends with 0 without an alarm, 1 while one stands, and 2 "
    "where it cannot watch. A scheduled job (cron, CI) can act on it.",
    "Metrics": "with --metrics-port PORT your monitoring (Prometheus) can read the state of the watch.",
}
STARTS = (
    (
        "watch-endpoint",
        "2. Watch an endpoint, asked every hour",
        "python -m jobs watch {address} \\\n  --model {model} --prompts prompts.jsonl --every 1h \\\n"
        "  --claimed {claim} --reference {file}",
    ),
    (
        "watch-folder",
        "or watch a folder of logs: new files and new lines are read",
        "python -m jobs watch {folder} \\\n  --claimed {claim} --reference {file}",
    ),
)
"""Id, meaning and command of the usual ways to start a watch."""
FIELDS = {
    "address": ("Its address", "http://localhost:8000/v1", "It must answer as OpenAI's chat completions do."),
    "model": (
        "The model's name there",
        "NAME",
        "After it, the settings with which the answers were enrolled: NAME,temperature=0.7.",
    ),
    "folder": ("Or a folder of its logs", "logs/", "In any format that Attribute reads."),
}
"""Label of a field, what stands for it in the commands, and what a person should know."""
CLAIM = "Which model is it said to be?"
OF_RELEASE = (
    "python -m jobs fetch --to release\n"
    "cat release/data/responses/{corpus}/*.jsonl.gz > enrolled.jsonl.gz\n"
    "gunzip -c release/data/prompts/{corpus}.jsonl.gz > prompts.jsonl"
)
YOURS = {
    "prompts.jsonl": "is a file of prompts to ask, one a line as text or JSON. Best are those of the enrolled answers.",
    "--key-env VARIABLE": "names the environment variable that holds the endpoint's key.",
    "--max-new-tokens N": "limits an answer to N tokens, if the enrolled answers had another limit.",
}
"""What else a person puts into the commands."""
STEPS: tuple[shell.Children, ...] = (
    "Open the report: it says which enrolled model the answers are nearest to, and how sure that is. The alarm alone "
    "says that they no longer look like the claimed model's.",
    [
        "Ask the model's maker the same prompts, and compare both files: ",
        dcc.Link("Claim against reference", href="/attribute?mode=reference"), ".",
    ],
    "Send the report with its traces to whoever runs the endpoint. Anybody can check both.",
    "If the change was meant, enrol the new model's answers. If nothing was wrong, accept the alarm: the watch begins "
    "anew.",
)  # fmt: skip
"""What a person does about an alarm."""
READING = (
    "Reading the sample's answers: first those that the claimed model gave when it was enrolled. This takes half a "
    "minute, once; longer while other work runs here."
)
OTHER = "Answers to prompts of another kind are not counted: other prompts alone make answers look different."
READING_ON = "The second look is being read: now another model answers in the claimed one's place."
AT_ONCE = "The sample's two looks follow each other at once. A watch of your own looks as often as you tell it."
OWN_ALARM = "An alarm of your own watch stands until somebody accepts it, and can be sent to an address of yours."
SHOW, CLOSE = "See a sample watch", "Close the sample"
AGAIN_MS, SAMPLE_MS = 20_000, 2_000
MEASURED = {"alarms": validation.TABLES["streams"]}  # how soon and how often alarms come
SHOWN = 5  # looks that are listed
GLANCE = ("Watch", "Claimed model", "Status", "Evidence against it", "Last look (UTC)")
FILES = {"html": "Report", "json": "JSON", "csv": "CSV", "jsonl": "Traces"}


def layout(**query: str) -> Component:
    """The page for a query string; nobody keeps it, because it changes while nobody looks."""
    answers.refuse()
    view = View.parse(query)
    content = html.Div(_content(view.theme), id="watch-content", className="column")
    cache = questions()
    measured = [] if cache.problem() or streams(cache).empty else [
        drawing.section("alarms", _question(cache), _delays(cache, view), figures.DELAYS_HEIGHT)
    ]  # fmt: skip
    clock = dcc.Interval(id="watch-clock", interval=AGAIN_MS)
    below = html.Div([*_sample(), _starts(cache), *measured, _explained()], className="column")
    page = html.Div([clock, content, below], className="watch")
    return page if cache.problem() else shell.of_generation(page, cache.generation().name)


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

    drawing.follow(app, drawing.figure("alarms", _delays))

    @app.callback(
        Output("watch-sample", "children"),
        Output("watch-sample-clock", "disabled"),
        Output("watch-sample-show", "children"),
        Input("watch-sample-show", "n_clicks"),
        Input("watch-sample-clock", "n_intervals"),
        Input("theme", "data"),
        prevent_initial_call=True,
    )
    def sample(clicks: int | None, _: int | None, theme: str | None) -> Any:
        if not visitor.known() or not clicks:
            return no_update, True, no_update
        if clicks % 2 == 0:
            return None, True, SHOW
        look: Theme = "light" if theme == "light" else "dark"
        shown, ended = _sampled(look, begin=ctx.triggered_id == "watch-sample-show")
        return shown, ended, CLOSE if isinstance(shown, html.Section) else SHOW

    @app.callback(
        [
            Output("watch-enrolled", "children"),
            *(Output(name, "children") for name, _, _ in STARTS),
            *(Output(f"{name}-copy", part) for part in ("disabled", "title") for name, _, _ in STARTS),
        ],
        Input("watch-claim", "value"),
        *(Input(f"watch-own-{name}", "value") for name in FIELDS),
        prevent_initial_call=True,
    )
    def claimed(claim: str | None, *given: str | None) -> Any:
        own = dict(zip(FIELDS, given, strict=True))
        lacking = _lacking(claim, **own)
        return [*_filled(visitor.ecosystems(), claim, **own), *map(bool, lacking), *map(_copy_title, lacking)]

    for name in ("watch-files", *(name for name, _, _ in STARTS)):
        app.clientside_callback(
            ClientsideFunction("attribute", "copy"),
            Output(f"{name}-copy", "children"),
            Input(f"{name}-copy", "n_clicks"),
            State(name, "id"),
            prevent_initial_call=True,
        )


def streams(cache: QueryCache) -> pd.DataFrame:
    """Measured streams of the first reader and roster: one is enough to see how soon an alarm comes."""
    frame = cache.ask(page_queries.streams)
    first = frame.head(1)[["reader", "roster"]]
    return frame.merge(first, on=["reader", "roster"])


def rows(cache: QueryCache, _view: View) -> pd.DataFrame:
    """The measured streams in words and per cent; delays count the answers after the change."""
    frame = streams(cache)
    return pd.DataFrame(
        {
            "What changes": frame["scenario"].map(lambda name: validation.STREAMS.get(name, name)),
            "Allowed, %": 100 * frame["level"],
            "Alarms, %": 100 * frame["alarms"],
            "Half within": frame["delay"],
            "90 % within": frame["delay90"],
            "Watches": frame["n"],
            "Answers": frame["k"],
        }
    )


def false_alarms(frame: pd.DataFrame) -> str:
    """How seldom a watch is wrong, by rows of the table of streams at one level; '' without such a row."""
    unchanged = frame[frame["scenario"] == "resampled"]
    return "".join(
        f"{row.alarms * row.n:,.0f} of {row.n:,.0f} watches over {row.k:,.0f} answers without a change raised a false "
        f"alarm; {100 * row.level:g} % were allowed to. "
        for row in tables.rows(unchanged)
    )


def _reader_name(cache: QueryCache, reader: str) -> str:
    return cache.reader_name(reader) if cache.knows(reader) else reader


def _question(cache: QueryCache) -> str:
    """What the measured streams answer, and of which watches alone."""
    reader, roster = streams(cache)[["reader", "roster"]].iloc[0]
    asked = MEASURED["alarms"].question.replace("a watch", f"a watch by {_reader_name(cache, reader)} on {roster}")
    return f"{asked} (for orientation)" if _unmeasured(reader, roster) else asked


def _unmeasured(reader: str, roster: str) -> Ecosystem | None:
    """The ecosystem by which a watch that is started here reads, where the measured streams are not of it."""
    own = default(visitor.ecosystems())
    return own if own and (own.reader, own.roster) != (reader, roster) else None


def _delays(cache: QueryCache, view: View) -> drawing.FigureView:
    frame = streams(cache)
    strictest = frame[frame["level"] == frame["level"].min()]
    reader, roster = frame[["reader", "roster"]].iloc[0]
    measured = (
        f"Measured for {_reader_name(cache, reader)} on answers of {roster} that it had not learned from, and no other."
    )
    if own := _unmeasured(reader, roster):
        measured += (
            f" A watch that is started here reads by {_reader_name(cache, own.reader)} on {own.title}, which was not "
            "measured: its alarms may come sooner or later."
        )
    counts = " or ".join(f"{count:,.0f}" for count in sorted(strictest["n"].unique()))
    looks = f"n = {counts} watches a row, each with a look after every answer."
    sentence = f"{measured} {false_alarms(strictest)}{looks}"
    return drawing.FigureView(figures.alarm_delays(strictest, view.theme), sentence)


def _explained() -> Component:
    return html.Section(
        [
            html.H2("What is an alarm, and what does it send?"),
            html.P(ALARM, className="sentence"),
            shell.facts(SENT, className="watch-facts"),
        ],
        className="figure",
    )


def _starts(cache: QueryCache) -> Component:
    known = visitor.ecosystems()
    claim = shell.select(
        "watch-claim", CLAIM, _claims(known, sections.known_sources(cache)), size="sm",
        searchable=True, clearable=True, limit=200, maxDropdownHeight=320, filter=shell.CLOSEST,
        placeholder="Choose the claimed model", nothingFoundMessage="No enrolled source has this name",
    )  # fmt: skip
    enrolled, *commands = _filled(known, None)
    ways: list[Component] = []
    for (name, words, _), command, lacking in zip(STARTS, commands, _lacking(None), strict=True):
        ways += [html.H3(words, className="group"), _copyable(name, command, words, lacking)]
    fields = [shell.labelled(CLAIM, "watch-claim", claim)]
    for name, (label, stands, hint) in FIELDS.items():
        field = dmc.TextInput(id=f"watch-own-{name}", placeholder=stands, size="sm", debounce=300)
        fields.append(html.Div([shell.labelled(label, f"watch-own-{name}", field), html.P(hint, className="hint")]))
    lead = (
        "Run these in a terminal on the machine that serves this atlas. The watch then stands at the top of this page."
    )
    return html.Section(
        [
            html.H2("Start a watch"),
            html.P(lead, className="sentence"),
            html.P(
                [
                    "No terminal? Compare the logs of two weeks: ",
                    dcc.Link("Two windows", href="/attribute?mode=two"),
                    ".",
                ],
                className="sentence",
            ),
            html.Div(fields, className="watch-fields"),
            html.H3("1. Get the answers that the claimed model gave when it was enrolled", className="group"),
            html.Div(enrolled, id="watch-enrolled"),
            *ways,
            html.H3("Also to fill in, where needed", className="group"),
            shell.facts(YOURS, className="watch-facts"),
        ],
        className="figure",
        id="watch-start",
    )


def _copyable(name: str, command: str, words: str, lacking: str = "") -> Component:
    copy = html.Button(
        "Copy", id=f"{name}-copy", className="button", title=_copy_title(lacking), disabled=bool(lacking),
        **shell.aria(label=f"Copy the command: {words}"),
    )  # fmt: skip
    return html.Div([html.Code(command, id=name, className="command", dir="ltr"), copy], className="copyable")


def _copy_title(lacking: str) -> str:
    return f"Fill in first: {lacking}" if lacking else "Copy the command"


def _lacking(claim: str | None, **given: str | None) -> list[str]:
    """What every command of :data:`STARTS` still lacks; '' where it can be run."""
    labels = {
        "address": "the address",
        "model": "the model's name",
        "folder": "the folder",
        "claim": "the claimed model",
    }
    own = {**given, "claim": claim}
    return [
        ", ".join(
            word for name, word in labels.items() if f"{{{name}}}" in command and not (own.get(name) or "").strip()
        )
        for _, _, command in STARTS
    ]


def _claims(known: list[Ecosystem], names: dict[str, str]) -> list[dict[str, Any]]:
    """Enrolled sources to choose from, those of the preferred ecosystem by family, each label once."""
    options: list[dict[str, Any]] = []
    seen: set[str] = set()
    for one in known:
        if not options:
            options = sections.grouped(one.sources, one.families, names)
        elif new := [source for source in one.sources if source not in seen]:
            options.append({"group": one.roster or one.name, "items": sections.grouped(new, new, names)})
        seen.update(one.sources)
    return options


def _filled(known: list[Ecosystem], claim: str | None, **given: str | None) -> list[Any]:
    """Where the enrolled answers of a claimed model come from, and the commands of :data:`STARTS` for it.

    given : values of :data:`FIELDS`.
    """
    one = default(known, claim)
    file, command = "enrolled.jsonl", ""
    if one is None:
        words = "They are in the file that was given to python -m jobs enroll; python -m jobs collect writes one."
    elif one.sample:
        file, words = "sample", "Those of the sample come with the atlas: the name 'sample' stands for them."
    elif one.own:
        words = f"They are in the file from which {one.roster} was enrolled."
    else:
        file, command = "enrolled.jsonl.gz", OF_RELEASE.format(corpus=one.facts.get("benchmark", "agent500"))
        words = f"The {len(one.sources):,} models of {one.roster} were enrolled from the public release. Run this once:"
    enrolled: list[Component] = [html.P(words, className="sentence")]
    if command:
        enrolled.append(_copyable("watch-files", command, "Fetch the enrolled answers"))
    own = {name: (given.get(name) or "").strip() or stands for name, (_, stands, _) in FIELDS.items()}
    parts = {name: shlex.quote(value) for name, value in {**own, "claim": claim or "LABEL", "file": file}.items()}
    return [enrolled, *(command.format(**parts) for _, _, command in STARTS)]


def _content(theme: Theme) -> list[Component]:
    copy = html.A("To the command", href="#watch-start")
    how: list[Component | str] = [
        " It is started in a terminal on the machine that serves this atlas, not on this page. ",
        copy,
        ".",
    ]
    return [
        html.Div([html.H1("Watch"), html.P([LEAD, *how], className="sentence page-lead")], className="page-head"),
        *_sections(theme),
    ]


def _sections(theme: Theme) -> list[Component]:
    if not authorised(request):
        remedy = "Give it on the page Attribute"
        return [shell.empty("This atlas shows its watches to people with its token only", remedy)]
    known = watches()
    if not known:
        return [html.P("No watch of your own runs yet. Once one does, its evidence stands here.", role="note")]
    known = sorted(known, key=lambda state: state.alarm is None)  # alarms first
    glance = [pieces.scrolling(pieces.table(GLANCE, [_glance(state) for state in known]))] if len(known) > 1 else []
    return [*glance, *(_section(state, theme) for state in known)]


def _glance(state: WatchState) -> Component:
    """How a watch stands, in a row that leads to it."""
    looks, question = state.looks(), state.question
    status, now = _status(state)
    link = html.A(state.name, href=f"#watch-{_plain(state.name)}", className="forward", dir="auto")
    last = _time(looks[-1].at) if looks else "–"
    return pieces.row(
        link, shell.source_name(question.claimed), status, f"{now}; alarm at {1 / question.rate:,.0f} to 1", last
    )


def _status(state: WatchState) -> tuple[Component, str]:
    """Whether a watch has an alarm, and its evidence now, in words."""
    log_e = state.evidence()
    reached = len(log_e) and log_e.max() >= -math.log(state.question.rate)
    words, kind = (
        ("Alarm", "against")
        if state.alarm
        else ("Alarm: its report is being made", "against")
        if reached
        else ("No alarm", "supports")
        if len(log_e)
        else ("Waiting", "inconclusive")
    )
    now = evidence_text(float(log_e[-1]) / LN10) if len(log_e) else "none yet"
    return html.Span(words, className=f"watch-status watch-{kind}", role="status"), now


def _sample() -> list[Component]:
    """What an alarm looks like, on request; nothing for somebody without the token."""
    if not visitor.known():
        return []
    (story,) = stories("watch")
    button = html.Button(SHOW, id="watch-sample-show", className="button button-main")
    return [
        html.Section(
            [
                html.H2("What does an alarm look like?"),
                html.P(story.text, className="sentence"),
                button,
                dcc.Interval(id="watch-sample-clock", interval=SAMPLE_MS, disabled=True),
                html.Div(id="watch-sample"),
            ],
            className="figure",
        )
    ]


def _sampled(theme: Theme, *, begin: bool) -> tuple[Component, bool]:
    """The sample's watch as far as it is, and whether nothing more comes."""
    service = visitor.service()
    try:
        state = service.sample_watch(begin=begin)
    except AtlasError as error:
        return shell.empty(error.problem, error.remedy), True
    if state is not None:
        ended = state.alarm is not None
        watched = _section(state, theme, stories("watch")[0])
        return (watched if ended else html.Div([html.P(READING_ON, role="status"), watched])), ended
    ready = service.state()
    if ready.status == "failed" and ready.problem:
        return shell.empty(ready.problem, ready.remedy or ""), True
    return html.P(READING, role="status"), False


def _section(state: WatchState, theme: Theme, story: Story | None = None) -> Component:
    try:
        return _watched(state, theme, story)
    except AtlasError as error:
        return html.Section([html.H2(state.name), shell.empty(error.problem, error.remedy)], className="figure")
    finally:
        state.close()


def _watched(state: WatchState, theme: Theme, story: Story | None = None) -> Component:
    """A watch; ``story`` is that of the shipped sample, whose model changes after so many traces."""
    question, log_e, looks, alarm = state.question, state.evidence(), state.looks(), state.alarm
    alarms, counts = state.alarms(), state.counts()
    status, now = _status(state)
    sentence: list[Component | str] = [
        "Is it ", shell.source_name(question.claimed), f"? Evidence against it: {now}. The alarm comes at "
        f"{1 / question.rate:,.0f} to 1, which at most {100 * question.rate:g} % of watches of an unchanged endpoint "
        f"ever reach. {pieces.counted(len(log_e), 'answer')} counted"
        + (f" since the last accepted alarm (round {state.round})" if state.round > 1 else "")
        + f"; {counts['other']:,} set aside, to prompts of another kind.",
    ]  # fmt: skip
    place = len(log_e) and next((one.traces for one in alarms if one.round == state.round), None)
    curve = figures.evidence_curve(log_e, question.rate, place or None, theme, story.traces if story else None)
    graph = shell.graph(f"watch-{_plain(state.name)}-graph", curve)
    label = f"Evidence of the watch {state.name} after every answer"
    drawing = html.Div(graph, className="figure-drawing", role="img", **shell.aria(label=label))
    sample = [html.Span("Sample", className="watch-status watch-inconclusive")] if story else []
    facts = {
        "Answers from": "recorded answers of the sample" if story else question.source,
        "Compared with": f"the enrolled answers of {_title(question.enrolment)}",
        "Last look": _time(looks[-1].at) if looks else "",
    }
    return html.Section(
        [
            html.Div(
                [html.H2(story.name if story else state.name, dir="auto"), *sample, status], className="figure-title"
            ),
            html.P(sentence, className="sentence"),
            html.Div(drawing, className="figure-body", style={"height": figures.HEIGHT}),
            shell.facts(facts, className="watch-facts"),
            *([html.H3("Alarms", className="group"), *(_alarm(state, one, story) for one in alarms)] if alarms else []),
            *(
                [
                    html.H3("What to do", className="group"),
                    html.Ol([html.Li(step) for step in STEPS], className="watch-steps"),
                ]
                if alarm
                else []
            ),
            *([html.H3("Last looks", className="group"), _looks(looks)] if looks else []),
            *([html.P(AT_ONCE, className="hint")] if looks and story else []),
        ],
        className="figure",
        id=f"watch-{_plain(state.name)}",
    )


def _title(enrolment: str) -> str:
    """What people call an enrolment; its name where this server has it no more."""
    return next((one.title for one in visitor.ecosystems() if one.name == enrolment), enrolment)


def _alarm(state: WatchState, alarm: Any, story: Story | None) -> Component:
    links: list[Component | str] = []
    for form in FORMS:
        href = f"/watch/{state.name}/alarm-{alarm.number}.{form}"
        links.append(html.A(FILES[form], href=href, target="_blank", className="forward", rel="noopener"))
    if story:
        stands = OWN_ALARM
    elif alarm.round == state.round:
        stands = "The alarm stands until somebody runs the command with --accept."
    else:
        stands = "The alarm was accepted."
    told = "It was sent to the webhook." if alarm.delivered else "It was sent nowhere (no --webhook URL)."
    head = html.Strong(f"Alarm {alarm.number}, {_time(alarm.at)}")
    text = f"{alarm_sentence(state, alarm)} {stands}{'' if story else f' {told}'}"
    return html.Div([head, html.P(text), html.Div(links, className="watch-links")], className="watch-alarm")


def _looks(looks: list[Any]) -> Component:
    heads = ("Look (UTC)", "New answers", "Their prompts", "As evidence")
    rows = []
    for look in reversed(looks[-SHOWN:]):
        counted = "counted" if look.kind in COUNTED else "not counted"
        prompts, evidence = (KINDS[look.kind], counted) if look.traces else ("", "")
        rows.append(pieces.row(_time(look.at), f"{look.traces:,}", prompts, evidence))
    note = [html.P(OTHER, className="sentence")] if any(look.kind not in COUNTED for look in looks) else []
    return html.Div([pieces.scrolling(pieces.table(heads, rows, "wide watch-looks")), *note])


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M}"


def _plain(name: str) -> str:
    """A name without the dots that Dash takes for a property."""
    return name.replace(".", "-")


PAGE = pieces.page(
    "watch", layout, register,
    {name: dataclasses.replace(meta, table=rows) for name, meta in validation.figures(MEASURED).items()},
)  # fmt: skip
