"""Parts of the page: numbered steps, progress, numbers of an answer, and the figures of a live result.

A live figure has the same head, table, CSV and pictures as everywhere, with 'live' instead of a build. Its numbers
belong to one visitor's traces and to no generation, so rows come from the visitor's report, never from the store, and
there is no link to copy: a link does not carry traces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import dash_mantine_components as dmc
import pandas as pd
from dash import Input, Output, State, dcc, html
from dash.development.base_component import Component

from atlas import shell
from atlas.data import METHOD_NAMES, VIEW_READS, QueryCache
from atlas.state import View
from atlas.theme import Mark, family_marks
from backend.methods.registry import ENCODED, SEVERAL, TEXT, reads_text
from backend.store import queries

BODY, TABLE, ROWS, CSV, DOWNLOAD, GRAPH = (
    f"live-{part}" for part in ("body", "table", "rows", "csv", "download", "graph")
)
D = TypeVar("D", Output, Input, State)
NOTHING = {"width": "0%"}  # style of a bar before anything has been read


def places(kind: type[D], names: str) -> list[D]:
    """Outputs, inputs or states ``id.property`` for a callback; an output with a star is another callback's too."""
    found = [(*name.rstrip("*").rsplit(".", 1), name.endswith("*")) for name in names.split()]
    return [kind(at, what, **({"allow_duplicate": True} if shared else {})) for at, what, shared in found]


def step(number: int, title: str, identity: str, *children: Component) -> Component:
    """A numbered step with its heading on the left."""
    head = html.H2([html.Span(f"{number}", className="step-number"), title], id=identity)
    body = html.Div(list(children), className="step-body")
    return html.Section([head, body], className="step", **shell.aria(labelledby=identity))


def progress(prefix: str, message: Component | None = None, below: Sequence[Component] = ()) -> Component:
    """How far a job is: words, a way to cancel with a message next to it, a bar, and what is shown below.

    The ids begin with ``prefix``: -progress, -words, -cancel, -bar.
    """
    line: list[Component] = [html.Span(id=f"{prefix}-words", role="status")]
    line += [html.Button("Cancel", id=f"{prefix}-cancel", className="button"), *([] if message is None else [message])]
    fill = html.Div(id=f"{prefix}-bar", className="progress-fill", style=NOTHING)
    track = html.Div(fill, className="progress-track", **shell.aria(hidden="true"))
    children = [html.Div(line, className="progress-line"), track, *below]
    return html.Div(children, id=f"{prefix}-progress", className="progress", hidden=True)


def bar(done: int, total: int) -> dict[str, str]:
    """Style of the bar of a job."""
    return {"width": f"{100 * done / max(total, 1):.1f}%"}


def hint(words: shell.Children, **options: Any) -> Component:
    """Words that explain a choice, or the place for them."""
    return html.Span(words, className="hint", **options)


def notice(identity: str, urgency: str = "assertive") -> Component:
    """A place in which something is said aloud when it changes."""
    return html.Div(id=identity, **shell.aria(live=urgency))


def answer_box(tone: str, kicker: Sequence[Any], headline: Component, *rest: Component, **options: Any) -> Component:
    """An answer: what it is about, its word, and what follows from it."""
    children = [html.P(list(kicker), className="kicker long"), headline, *rest]
    return html.Section(children, className=f"verdict verdict-{tone}", **options)


def answer_word(identity: str, sign: str, *words: Any) -> Component:
    """The word of an answer behind its sign."""
    mark = html.Span(sign, className="verdict-sign", **shell.aria(hidden="true"))
    return html.H2([mark, *words], id=identity, className="verdict-word")


def fact(word: str, meaning: str, value: str, note: str) -> Component:
    """One number of an answer, with its name and what it says."""
    number = [html.Span(value, className="fact-value"), html.Span(note, className="fact-note")]
    return html.Div([html.Dt(shell.term(word, meaning) if meaning else word), html.Dd(number)])


def reader_words(cache: QueryCache | None, judge: Any) -> str:
    """Method, what is read, and proxy of an ecosystem or a report's method: a narrow field cuts the end off."""
    method, *rest = judge.reader.split("/")
    words = [METHOD_NAMES.get(method, method)]
    if reads_text(method):
        return f"{words[0]} · text of the response"
    proxy, view = judge.proxy, judge.view
    if method in ENCODED:
        proxy, view = rest
    elif cache and cache.problem() is None and cache.knows(judge.reader):
        proxy = cache.proxy_name(judge.reader)
    return " · ".join([*words, VIEW_READS.get(view, view), proxy])


def judged_by(cache: QueryCache | None, name: str, sources: int, judge: Any, header: str | None) -> list[Any]:
    """Who judges the traces, in a sentence; a second one where that is not the header's reader."""
    words = f": {sources:,} sources · {reader_words(cache, judge)}."
    parts = ["Judged by ", html.Strong(name, dir="auto"), words]
    if cache and header and header != judge.reader and cache.problem() is None and cache.knows(header):
        parts.append(f" The reader in the header, {cache.reader_name(header)}, does not judge them.")
    return parts


def section(
    name: str,
    question: str,
    sentence: shell.Children,
    content: Component,
    *,
    made: Component,
    badge: Component,
    height: int | None,
    picture: bool = True,
    table: bool = True,
    controls: shell.Children = None,
    beside: Component | None = None,
    below: Component | None = None,
) -> Component:
    """One figure or table of a live result; ``picture`` and ``table`` say whether it can be saved and shown as rows."""
    label: dict[str, Any] = {"role": "img", "aria-label": question} if picture else {}
    body = html.Div(
        id={"type": BODY, "figure": name},
        className="figure-body",
        style={"height": height} if height else {},
        children=[
            html.Div(content, className="figure-drawing", **label),
            html.Div(id={"type": ROWS, "figure": name}, className="figure-table"),
        ],
    )
    return shell.framed(
        name,
        [html.H2(question, id=f"title-{name}"), badge],
        _tools(name, made, picture=picture, table=table),
        html.P(sentence, id={"type": "live-sentence", "figure": name}, className="sentence"),
        html.Div(controls, className="controls") if controls else None,
        html.Div([body, *([beside] if beside else [])], className="figure-row" if beside else ""),
        below,
    )


def graph(name: str, figure: Any) -> Component:
    """The drawing of a live figure; its theme follows the header's."""
    config: Any = {"displayModeBar": False, "displaylogo": False, "doubleClick": False}
    identity = {"type": GRAPH, "figure": name}
    return dcc.Graph(id=identity, figure=figure, responsive=True, className="graph", config=config)


def badge(enrolment_sha256: str) -> Component:
    """'Live', with the enrolment that the numbers rest on."""
    return html.Span(
        ["Live", html.Code(f"enrolment {enrolment_sha256[:12]}", title=f"sha256 {enrolment_sha256}")],
        className="origin origin-live",
        title="Computed now, from your traces",
    )


def made_of(report: Mapping[str, Any]) -> Component:
    """What made the numbers of a report."""
    method, facts, spread = report["method"], report["method"]["facts"], report["results"]["spread"]
    pairs = {
        "Date": report["created"].replace("T", " ")[:19] + " UTC",
        "Ecosystem": f"{report['reference']['enrolment']}, {len(report['reference']['sources'])} sources",
        "Enrolment": shell.hashed(method["enrolment_sha256"]),
        "Reader": f"{method['reader']}, {_read(method)}, {method['probes']} probes",
        "Proxy": shell.hashed(facts.get("proxy_hash")),
        "Data": shell.hashed(facts.get("data_hash")),
        "File": shell.hashed(report["input"]["sha256"]),
        "Code": method["code_version"],
        "Engine": method["engine"],
        "Orders, seed": f"{spread['orders']}, {spread['seed']}",
    }
    return shell.build(html.Strong("Live attribution"), report["command"], pairs)


def _tools(name: str, made: Component, *, picture: bool, table: bool) -> Component:
    def tool(kind: str, sign: str, word: str, **more: Any) -> Component:
        return html.Button([shell.icon(sign), word], id={"type": kind, "figure": name}, className="tool", **more)

    buttons: list[Component] = [tool(TABLE, "table", "Table", **shell.aria(pressed="false"))] if table else []
    buttons.append(tool(CSV, "download", "CSV"))
    if picture:
        buttons += [tool("png", "picture", "PNG"), tool("svg", "picture", "SVG")]
    button = dmc.PopoverTarget(tool("live-made", "origin", "How was this made?"))
    builds = dmc.PopoverDropdown(html.Div(made, className="made"))
    popover = dmc.Popover(
        [button, builds], width=420, position="bottom-end", shadow="none", trapFocus=False, withinPortal=True,
        zIndex=350,
    )  # fmt: skip
    children = [*buttons, popover, dcc.Download(id={"type": DOWNLOAD, "figure": name})]
    return html.Div(children, className="tools", role="group", **shell.aria(label="About this figure"))


def _read(method: Mapping[str, Any]) -> str:
    """What the heads read, and where traces are placed when that is no block."""
    blocks = f"block {', '.join(map(str, method['layers']))}"
    words = {TEXT: f"text of the responses (placed at {blocks})", SEVERAL: f"members of several kinds ({blocks})"}
    return words.get(method["block"], blocks)


def grouped(sources: Sequence[str], families: Sequence[str], known: Mapping[str, str]) -> list[dict[str, Any]]:
    """Sources to choose from, by name and label, grouped by family, large families first.

    Flat where every source is its own family. Both words can be typed into the search of a menu.
    """
    frame = pd.DataFrame({"source": sources, "family": families})
    sizes = frame["family"].value_counts(sort=False)

    def options(some: pd.Series) -> list[dict[str, str]]:
        return [
            {"value": source, "label": source if known.get(source, source) == source else f"{known[source]} · {source}"}
            for source in some
        ]

    if (sizes == 1).all():
        return options(frame["source"])
    return [
        {"group": str(family), "items": options(frame.loc[frame["family"] == family, "source"])}
        for family in sizes.sort_values(ascending=False, kind="stable").index
    ]


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


def named(view: View, source: str, known: Mapping[str, str]) -> list[Component]:
    """A source by its name, which leads to its page, and by its label in reports; by that alone without a page."""
    if source not in known:
        return [shell.source_name(source)]
    label = [] if known[source] == source else [html.Code(source, className="label", dir="auto")]
    return [shell.source_link(view, source, known[source]), *label]
