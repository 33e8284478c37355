"""Parts of the page: numbered steps, progress, numbers of an answer, and the figures of a live result.

A live figure has the same head, table, CSV and pictures as everywhere, with 'live' instead of a build. Its numbers
belong to one visitor's traces and to no generation, so rows come from the visitor's report, never from the store, and
there is no link to copy: a link does not carry traces.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

import dash_mantine_components as dmc
from dash import ALL, MATCH, ClientsideFunction, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component

from atlas import shell
from atlas.data import METHOD_NAMES, VIEW_READS, QueryCache
from atlas.markup import join_markup
from atlas.state import View
from atlas.theme import Mark, family_marks
from backend.attribution.report_page import paper_words
from backend.attribution.report_words import date_words, keep_together
from backend.methods.registry import ENCODED, SEVERAL, TEXT, reads_text
from backend.service.job import Snapshot
from backend.store import queries

MODES = {
    "one": "One set of traces",
    "two": "Two windows",
    "reference": "Claim against reference",
    "check": "Check a report",
}
"""What the page can look at."""
QUESTIONS = {
    "evidence": "How does the evidence grow with the traces?",
    "candidates": "Which sources explain the traces?",
    "mixture": "Do all traces come from one source?",
    "adds": "What does every trace add?",
    "without": "What if one trace were left out?",
    "readers": "What hangs on the reader?",
    "tokens": "Which words carry the evidence?",
    "lands": "Where do the traces land?",
    "left": "What was left out?",
    "notes": "What does the file say?",
    "tippett": "How often do ratios point the right way?",
    "pav": "Do ratios mean what they say?",
}
"""Titles of the figures of a live result."""
NOTHING = {"width": "0%"}  # style of a bar before anything has been read
D = TypeVar("D", Output, Input, State)
F = TypeVar("F", bound=Callable[..., Any])
Report = Mapping[str, Any]
Section = Callable[..., Component]  # :func:`section` with build and badge of one report
Clicks = int | None  # values of a callback: presses of a button, what a store holds, what a field holds
Stored = dict[str, Any] | None
Text = str | None


def places(kind: type[D], names: str) -> list[D]:
    """Outputs, inputs or states of a callback, written ``id.property``; an output with a star is another's too.

    ``id:ALL``, ``id:MATCH`` and ``id:name`` are parts of live figures, see :func:`live`.
    """
    out = []
    for word in names.split():
        identity, part = word.rstrip("*").rsplit(".", 1)
        of, _, figure = identity.partition(":")
        at = live(of, {"ALL": ALL, "MATCH": MATCH}.get(figure, figure)) if figure else identity
        out.append(kind(at, part, **({"allow_duplicate": True} if word.endswith("*") else {})))
    return out


def live(kind: str, figure: Any) -> dict[str, Any]:
    """Id of a part of a live figure."""
    return {"type": kind, "figure": figure}


def callback(app: Dash, outputs: str, inputs: str, states: str = "", *, prevent: bool | str = True) -> Callable[[F], F]:
    """A callback between :func:`places`; it does not run when the page opens unless ``prevent`` says otherwise.

    What nothing changes in the children that it gives is joined (:mod:`atlas.markup`).
    """
    filled = places(Output, outputs)
    wires = [*filled, *places(Input, inputs), *places(State, states)]
    parts = [one.component_property == "children" and not isinstance(one.component_id, dict) for one in filled]

    def register(function: F) -> F:
        @functools.wraps(function)
        def joined(*given: Any) -> Any:
            found = function(*given)
            if len(parts) == 1:
                return join_markup(found) if parts[0] else found
            if not isinstance(found, tuple):  # no_update, for all of them
                return found
            return tuple(join_markup(one) if part else one for one, part in zip(found, parts, strict=True))

        return cast(F, app.callback(*wires, prevent_initial_call=prevent or None)(joined))

    return register


def client(
    app: Dash, name: str, outputs: str, inputs: str, states: str = "", *, of: str = "attribute", prevent: bool = True
) -> None:
    """As :func:`callback`, by a named function of the browser."""
    wires = [*places(Output, outputs), *places(Input, inputs), *places(State, states)]
    app.clientside_callback(ClientsideFunction(of, name), *wires, prevent_initial_call=prevent or None)


def choice(label: str, identity: str, meaning: str, data: Sequence[Any], **options: Any) -> Component:
    """A labelled list to choose one from, with a search."""
    field = shell.select(identity, meaning, data, size="xs", searchable=True, allowDeselect=False, **options)
    return shell.labelled(label, identity, field)


def step(number: int, title: str, prefix: str, *children: Component) -> Component:
    """A numbered step with its heading, whose id is ``prefix``-title-``number``."""
    identity = f"{prefix}-title-{number}"
    head = html.H2([html.Span(f"{number}", className="step-number"), title], id=identity)
    body = html.Div(list(children), className="step-body")
    return html.Section([head, body], className="step", **shell.aria(labelledby=identity))


def progress(prefix: str, *below: Component, message: Mapping[str, str] | None = None) -> Component:
    """How far a job is: words, a way to cancel, a bar, and what is shown below.

    The ids begin with ``prefix``: -progress, -words, -cancel, -bar, and -cancel-said where there is a ``message``
    about the cancelling, by its attributes.
    """
    line = [
        html.Span(id=f"{prefix}-words", role="status"),
        html.Button("Cancel", id=f"{prefix}-cancel", className="button"),
        *([] if message is None else [hint(None, id=f"{prefix}-cancel-said", **message)]),
    ]
    fill = html.Div(id=f"{prefix}-bar", className="progress-fill", style=NOTHING)
    track = html.Div(fill, className="progress-track", **shell.aria(hidden="true"))
    children = [html.Div(line, className="progress-line"), track, *below]
    return html.Div(children, id=f"{prefix}-progress", className="progress", hidden=True)


def bar(*jobs: Snapshot) -> dict[str, str]:
    """Style of the bar of jobs: the share of what they, and further readers, have read."""
    done, total = sum(job.done + job.further for job in jobs), sum(job.total + job.further_total for job in jobs)
    return {"width": f"{100 * done / max(total, 1):.1f}%"}


def error_rates(levels: Iterable[float]) -> dict[str, str]:
    """Error rates of the stop to choose from."""
    return {f"{level:g}": f"{100 * level:g} %" for level in levels}


def hint(words: shell.Children, **options: Any) -> Component:
    """Words that explain a choice, or the place for them."""
    return html.Span(words, className="hint", **options)


def notice(identity: str, urgency: str = "assertive") -> Component:
    """A place that is read aloud when it changes."""
    return html.Div(id=identity, **shell.aria(live=urgency))


def number_cell(value: shell.Children, **options: Any) -> Component:
    """A number in a small table."""
    return html.Td(value, className="number", **options)


def answer_box(
    tone: str, kicker: Sequence[Any], word: tuple[str, str, Sequence[Any]], *rest: Component, **options: Any
) -> Component:
    """An answer: what it is about, its ``word`` (id, sign, words), and what follows from it."""
    identity, sign, words = word
    mark = html.Span(sign, className="verdict-sign", **shell.aria(hidden="true"))
    headline = html.H2([mark, *words], id=identity, className="verdict-word")
    children = [html.P(list(kicker), className="kicker long"), headline, *rest]
    return html.Section(children, className=f"verdict verdict-{tone}", **options)


def facts(*entries: tuple[str, str, str, str]) -> Component:
    """Numbers of an answer, each by its name, meaning, value and note; those without a value by their reason below."""
    parts, reasons = [], dict[str, list[Any]]()
    for word, meaning, value, note in entries:
        name = shell.term(word, meaning) if meaning else word
        if value == "–":
            reasons.setdefault(note.removeprefix("not stated: "), []).append(name)
            continue
        number = [html.Span(value, className="fact-value"), html.Span(keep_together(note), className="fact-note")]
        parts.append(html.Div([html.Dt(name), html.Dd(number)]))
    lines = [
        html.Li(
            [*itertools.chain.from_iterable((name, ", ") for name in names[:-1]), names[-1], f": {keep_together(why)}"]
        )
        for why, names in reasons.items()
    ]
    shown = html.Dl(parts, className="verdict-facts")
    if not lines:
        return shown
    return html.Div([shown, html.Div([html.P("Without a number here"), html.Ul(lines)], className="facts-withheld")])


def proxy_name(cache: QueryCache | None, judge: Any) -> str:
    """The readable name of a proxy where the served generation knows the reader, else its key."""
    known = cache and cache.problem() is None and cache.knows(judge.reader)
    return cache.proxy_name(judge.reader) if cache and known else str(judge.proxy)


def method_name(reader: str) -> str:
    """The method of a reader of traces, without the word that it is live."""
    method = reader.partition("/")[0]
    return METHOD_NAMES.get(method, method).removesuffix(", live")


def reader_words(cache: QueryCache | None, judge: Any) -> str:
    """Method, what is read, and proxy of an ecosystem or a report's method: a narrow field cuts the end off."""
    method, *rest = judge.reader.split("/")
    name, proxy, view = METHOD_NAMES.get(method, method), proxy_name(cache, judge), judge.view
    if reads_text(method):
        return f"{name} · text of the response"
    if method in ENCODED:
        proxy, view = rest
    return f"{name} · {VIEW_READS.get(view, view)} · {proxy}"


def view_of_judge(cache: QueryCache, view: View, report: Report) -> View | None:
    """The view of the reader and roster that judged a case; None where the atlas has not measured them."""
    reader, roster = report["method"]["reader"], report["method"]["facts"].get("roster")
    if cache.problem() is not None or roster is None:
        return None
    judge = cache.resolve_view(dataclasses.replace(view, reader=reader, roster=str(roster)))
    return judge if judge.roster == roster and cache.attribution_reader(judge) == reader else None


def judged_by(cache: QueryCache | None, name: str, sources: int, judge: Any) -> list[Any]:
    """Who judges the traces, in a sentence."""
    where = [f", among the {sources:,} sources of ", html.Span(name, dir="auto"), "."]
    return ["Judged by ", html.Strong(reader_words(cache, judge)), paper_words(judge.reader), *where]


def sections_of(report: Report) -> Section:
    """:func:`section` for the figures of a report."""
    badge = html.Span("Live", className="origin origin-live", title="Computed now, from your traces")
    return functools.partial(section, build=build(report), badge=badge)


def section(
    name: str, sentence: shell.Children, content: Component, *, build: Component, badge: Component,
    height: int | None = None, picture: bool = False, table: bool = True, controls: shell.Children = None,
) -> Component:  # fmt: skip
    """One figure or table of a live result; ``picture`` and ``table`` say whether it can be saved and shown as rows."""
    label: dict[str, Any] = {"role": "img", "aria-label": QUESTIONS[name]} if picture else {}
    parts = [html.Div(content, className="figure-drawing", **label)]
    if table:  # a place for every button, or the callback that fills them fails
        parts.append(html.Div(id=live("live-rows", name), className="figure-table"))
    style = {"height": height} if height else {}
    body = html.Div(parts, id=live("live-body", name), className="figure-body", style=style)
    return shell.framed(
        name,
        [html.H2(QUESTIONS[name], id=f"title-{name}"), badge],
        _tools(name, build, picture=picture, table=table),
        html.P(sentence, id=live("live-sentence", name), className="sentence"),
        html.Div(controls, className="controls") if controls else None,
        html.Div([body], className=""),
        None,
    )


def drawing(identity: str | dict[str, str], figure: Any, **config: bool) -> Component:
    """A Plotly figure without a tool bar."""
    choices: Any = {"displayModeBar": False, **config}
    return dcc.Graph(id=identity, figure=figure, responsive=True, className="graph", config=choices)


def graph(name: str, figure: Any) -> Component:
    """The drawing of a live figure; its theme follows the header's."""
    return drawing(live("live-graph", name), figure, displaylogo=False, doubleClick=False)


def build(report: Report) -> Component:
    """Command, data and code behind the numbers of a report."""
    method, facts, spread = report["method"], report["method"]["facts"], report["results"]["spread"]
    blocks = f"block {', '.join(map(str, method['layers']))}"
    # Where traces are placed when what is read is no block.
    reads = {TEXT: f"text of the responses (placed at {blocks})", SEVERAL: f"members of several kinds ({blocks})"}
    pairs = {
        "Date": f"{date_words(report['created'])}, {report['created'][11:16]} UTC",
        "Ecosystem": f"{report['reference']['enrolment']}, {len(report['reference']['sources'])} sources",
        "Enrolment": shell.hashed(method["enrolment_sha256"]),
        "Reader": f"{method['reader']}, {reads.get(method['block'], blocks)}, {method['probes']} probes",
        "Proxy": shell.hashed(facts.get("proxy_hash")),
        "Data": shell.hashed(facts.get("data_hash")),
        "File": shell.hashed(report["input"]["sha256"]),
        "Code": method["code_version"],
        "Engine": method["engine"],
        "Orders, seed": f"{spread['orders']}, {spread['seed']}",
    }
    return shell.build(html.Strong("Live attribution"), report["command"], pairs)


def _tools(name: str, build: Component, *, picture: bool, table: bool) -> Component:
    def tool(kind: str, sign: str, word: str, **more: Any) -> Component:
        return html.Button([shell.icon(sign), word], id=live(kind, name), className="tool", **more)

    buttons: list[Component] = [tool("live-table", "table", "Table", **shell.aria(pressed="false"))] if table else []
    buttons.append(tool("live-csv", "download", "CSV"))
    if picture:
        buttons += [tool("png", "picture", "PNG"), tool("svg", "picture", "SVG")]
    button = dmc.PopoverTarget(tool("live-made", "origin", "How was this made?"))
    popover = dmc.Popover(
        [button, dmc.PopoverDropdown(html.Div(build, className="made"))], width=420, position="bottom-end",
        shadow="none", trapFocus=False, withinPortal=True, zIndex=350,
    )  # fmt: skip
    children = [*buttons, popover, dcc.Download(id=live("live-download", name))]
    return html.Div(children, className="tools", role="group", **shell.aria(label="About this figure"))


def grouped(sources: Sequence[str], families: Sequence[str], known: Mapping[str, str]) -> list[dict[str, Any]]:
    """Sources to choose from, by name, grouped by family, large families first.

    Flat where every source is its own family. Where two have one name, their labels stand beside it; the search of a
    menu knows both words of all.
    """
    names = [known.get(one, one) for one in sources]
    alike = Counter(names)
    labels = [f"{name} · {one}" if alike[name] > 1 else name for one, name in zip(sources, names, strict=True)]
    options: dict[str, list[dict[str, str]]] = {}
    for source, family, label in zip(sources, families, labels, strict=True):
        options.setdefault(family, []).append({"value": source, "label": label})
    if all(len(members) == 1 for members in options.values()):
        return [member for members in options.values() for member in members]
    return [{"group": name, "items": options[name]} for name in sorted(options, key=lambda name: -len(options[name]))]


def marks_of(cache: QueryCache, families: Sequence[str]) -> dict[str, Mark]:
    """Marks of an ecosystem's families: those of the generation keep theirs."""
    known = [] if cache.problem() is not None else list(cache.marks())
    return family_marks([*known, *families])


def known_sources(cache: QueryCache) -> dict[str, str]:
    """Sources that have a page in the served generation, with their names."""
    if cache.problem() is not None:
        return {}
    members = (cache.ask(queries.sources, roster) for roster in cache.ask(queries.rosters)["roster"])
    return {source: name for rows in members for source, name in zip(rows["source"], rows["name"], strict=True)}


def named(view: View, source: str, known: Mapping[str, str], names: Mapping[str, str]) -> list[Component]:
    """A source by its name, which leads to its page, and by its label in reports; without a page by its name alone.

    known : names of sources that have a page; names : those that the report itself has.
    """
    if source not in known:
        return [shell.source_name(names.get(source, source))]
    label = [] if known[source] == source else [html.Code(source, className="label", dir="auto")]
    return [shell.source_link(view, source, known[source]), *label]
