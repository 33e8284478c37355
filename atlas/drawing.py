"""How a page's figure is drawn, redrawn when a choice changes and, where nothing was measured, replaced by advice."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go
from dash import Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component

from atlas import shell
from atlas.api import answers
from atlas.data import DOMAIN_NAMES, QueryCache, questions
from atlas.state import View
from atlas.theme import Plot, Theme, dress
from backend.enrolment.catalogue import alike
from backend.methods.registry import MAPPED
from backend.protocol import READER_PAPER
from backend.store import queries

SOURCES = ("source", "other", "truth", "answer")
"""Fields of a view that hold the label of a source each."""


class FigureView(NamedTuple):
    """A figure, its sentence, and, where there is nothing to draw, what to do: outputs of a callback."""

    figure: go.Figure | Plot
    sentence: shell.Children
    absent: Component | None = None


def page(lay: Callable[[QueryCache, View], Component]) -> Callable[..., Component]:
    """A page's layout for a query string, out of one for a settled view."""

    @functools.wraps(lay)
    def layout(**query: str) -> Component:
        cache = questions()
        problem = cache.problem()
        if problem is not None:
            answers.refuse()
            return shell.no_generation(problem)
        linked = View.parse(query)
        view = _with_first_source(linked, cache.resolve_view(linked))
        content = lay(cache, view)
        shown = {name: str(getattr(view, name)) for name in SOURCES}
        content.children = [*content.children, *shell.told(_unknown_sources(cache, linked), shown)]
        return shell.of_generation(content, cache.generation().name)

    return layout


def _with_first_source(linked: View, view: View) -> View:
    """The view with its second source as the first where the link's first one is not known."""
    if linked.source and view.other and not view.source:
        return dataclasses.replace(view, source=view.other, other="")
    return view


def _unknown_sources(cache: QueryCache, linked: View) -> str:
    """Names of sources in a link that are not known, in sentences with those that are spelled alike; '' without any."""
    known = cache.sources()
    lost = dict.fromkeys(name for field in SOURCES if (name := getattr(linked, field)))
    words = []
    for name in lost:
        if name not in known:
            near = alike(name, known)
            instead = f"; near it: {', '.join(near[:2])}" if near else ""
            words.append(f"The link names the source '{name}', which is not known here and left out{instead}.")
    return " ".join(words)


def head(title: str, place: str, answer: shell.Children, *more: Component) -> Component:
    """A page's title, its answer at the place ``place``, and what else belongs there."""
    sentence = html.Div(answer, id=place, className="answer alone", **shell.aria(live="polite"))
    return html.Div([html.H1(title), sentence, *more], className="page-head")


def section(name: str, question: str, drawn: FigureView, height: int, **more: Any) -> Component:
    """The figure ``name`` as :func:`figure` follows it; more goes to :func:`shell.figure_section`."""
    plot = shell.graph(f"{name}-graph", drawn.figure)
    return shell.figure_section(name, question, drawn.sentence, plot, height=height, absent=drawn.absent, **more)


def traces(k: int) -> str:
    """A budget in words."""
    return "one trace" if k == 1 else f"{k} traces"


def blank(theme: Theme) -> Plot:
    """A figure of nothing, which keeps its place."""
    return {"data": [], "layout": {"template": dress(theme), "xaxis": {"visible": False}, "yaxis": {"visible": False}}}


def nothing(view: View, problem: str, remedy: str, ways: Sequence[tuple[str, str]] = ()) -> FigureView:
    """What stands in place of an empty figure: problem, remedy, and links (words, address)."""
    return FigureView(blank(view.theme), "Not measured yet.", shell.empty(problem, remedy, ways))


def choice_words(view: View) -> str:
    """Roster and domain of a view: '100-way on Agent500'."""
    return f"{view.roster} on {DOMAIN_NAMES.get(view.domain, view.domain)}"


def absent(drawn: FigureView) -> tuple[Component, shell.Children]:
    """Empty state and sentence of a grid that has no rows."""
    assert drawn.absent is not None
    return drawn.absent, drawn.sentence


def unmeasured(cache: QueryCache, view: View, what: str, path: str = "/attribution") -> FigureView:
    """No attribution of this kind: the command, and the nearest views that have some."""
    published = cache.origin(view.reader) == "published"
    remedy = f"Choose another reader, roster or domain above{_evaluates(cache, view)}"
    if published:
        remedy = "Its numbers were published without them: choose a reader measured here"
    # A published reader that has some of its numbers here has no more of them for other choices.
    near_by = []
    if not (published and cache.attribution_reader(view)):
        near_by = nearby(cache, view, lambda near: near != view and bool(cache.attribution_reader(near)))
    ways = [(f"Show {choice_words(near)}", f"{path}?{near.query()}") for near in near_by]
    usual = cache.usual(view)
    if not ways and usual.reader != view.reader and cache.attribution_reader(usual):
        ways = [(f"Show {cache.reader_name(usual.reader)}", f"{path}?{usual.query()}")]
    return nothing(view, f"This reader has no {what} for {choice_words(view)}", remedy, ways)


def nearby(cache: QueryCache, view: View, fits: Callable[[View], bool]) -> list[View]:
    """Three views of other rosters or domains that fit: same domain first, longest roster first."""
    size = cache.ask(queries.rosters).set_index("roster")["sources"]
    pairs = itertools.product(size.index, cache.domains())
    views = (dataclasses.replace(view, roster=roster, domain=domain) for roster, domain in pairs)
    return sorted(filter(fits, views), key=lambda near: (near.domain != view.domain, -size[near.roster]))[:3]


def unmapped(cache: QueryCache, view: View, what: str) -> FigureView:
    """No geometry of this kind: the command that makes it, or the usual reader."""
    command = maps(cache, view)
    remedy = f"Choose another reader, roster or domain above{command and f', or make it with: {command}'}"
    usual, ways = cache.usual(view), []
    if not cache.map_reader(view) and cache.map_reader(usual):
        ways = [(f"Show {cache.reader_name(usual.reader)}", f"/neighbourhoods?{usual.query()}")]
    drawn = nothing(view, f"There is no {what} of this reader for {choice_words(view)}", remedy, ways)
    return drawn if command or cache.map_reader(view) else drawn._replace(sentence="This reader has no map here.")


def _reads(cache: QueryCache, view: View) -> tuple[str, str]:
    """Method and options that name the reader of a view to a job; '' for what no job here measures."""
    row = cache.reader_row(view.reader) if cache.knows(view.reader) else None
    if row is None or row["origin"] == "published" or view.roster in cache.domains():
        return "", ""
    options = {"proxy": row["proxy"], "view": row["view"], "roster": view.roster}
    words = [f"--{name} {value}" for name, value in options.items() if isinstance(value, str)]
    return str(row["method"]), " ".join(words)


def _evaluates(cache: QueryCache, view: View) -> str:
    """How a reader's attribution is measured, as the end of a sentence; '' where a person cannot do it."""
    method, options = _reads(cache, view)
    if method == READER_PAPER:
        stressed = view.domain != "agent500" or view.condition != "clean"
        return f", or measure it with: python -m jobs evaluate {'--stage stress ' * stressed}{options}"
    return ", or see what makes the missing numbers with: python -m jobs status" if method else ""


def maps(cache: QueryCache, view: View) -> str:
    """The command that makes a reader's map, '' where there is none: not every reader has signatures."""
    method, options = _reads(cache, view)
    benchmark = f" --benchmark {view.domain}" if view.domain != "agent500" else ""
    return f"python -m jobs map --method {method} {options}{benchmark}, then publish it" if method in MAPPED else ""


class Part(NamedTuple):
    """A piece of a page that follows the view: outputs, and one value for each."""

    outputs: tuple[Output, ...]
    fill: Callable[[QueryCache, View], Sequence[Any]]


def figure(name: str, draw: Callable[[QueryCache, View], FigureView]) -> Part:
    """The figure ``name``: its graph, sentence and empty state."""
    outputs = (
        Output(f"{name}-graph", "figure"),
        Output({"type": "sentence", "figure": name}, "children"),
        Output({"type": "absent", "figure": name}, "children"),
    )
    return Part(outputs, draw)


def place(identity: str, fill: Callable[[QueryCache, View], Any]) -> Part:
    """The children of the place ``identity``."""
    return Part((Output(identity, "children"),), lambda cache, view: (fill(cache, view),))


def grid(name: str, fill: Callable[[QueryCache, View], tuple[Component, shell.Children]]) -> Part:
    """The grid of the figure ``name`` and its sentence."""
    return Part((Output(f"{name}-place", "children"), Output({"type": "sentence", "figure": name}, "children")), fill)


def follow(app: Dash, *parts: Part, **own: Input | State) -> None:
    """Make parts of a page again, in one request, when a choice changes.

    The browser runs twelve callbacks at a time, and one that still waits when its page is replaced finds its outputs
    gone and complains. own : field of the view to where its value stands in the page.
    """
    outputs = [output for part in parts for output in part.outputs]

    @app.callback(outputs, *shell.SHARED, *own.values(), prevent_initial_call=True)
    @answers.pure
    def followed(reader: str, roster: str, domain: str, theme: str, *values: Any) -> Any:
        view = shell.shared_view(reader, roster, domain, theme, **dict(zip(own, values, strict=True)))
        return [value for part in parts for value in part.fill(questions(), view)]


def remembered(page: str) -> Component:
    """The place in a layout that :func:`remember` needs when the page opens."""
    return dcc.Store(id=f"{page}-link")


def remember(app: Dash, page: str, **own: Input) -> None:
    """Write a page's choices into the link as they change, and once when the page opens."""
    default = View()
    standard = ["" if isinstance(getattr(default, name), tuple) else str(getattr(default, name)) for name in own]
    app.clientside_callback(
        "function (...values) { return window.dash_clientside.atlas.choices("
        f"{json.dumps(list(own))}, {json.dumps(standard)}, ...values); }}",
        Output(f"{page}-link", "data"),
        *own.values(),
    )
