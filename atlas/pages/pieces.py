"""Pieces that pages share: words, small tables, fields, heads, and what a figure says of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import unquote

import dash_mantine_components as dmc
import pandas as pd
from dash import Output, html
from dash.development.base_component import Component

from atlas import drawing, shell
from atlas.data import CONDITION_NAMES, DOMAIN_NAMES, QueryCache, questions
from atlas.drawing import FigureView
from atlas.figures.dots import height_of
from atlas.state import BUDGETS, View
from backend.store import queries

ACCESS_WORDS = {"local": "local weights", "api": "API"}
Draw = Callable[[QueryCache, View], FigureView]
Rows = Callable[[QueryCache, View], pd.DataFrame]
Builds = Callable[[QueryCache, View], tuple[str, dict[str, object]]]
Key = Callable[[QueryCache, View], dict[str, object]]
PERCENTILE_HELP = "Share of all pairs of sources of the roster that are less alike"
CHANCE_HELP = "How often a pair of sources drawn at random is at least as alike"
ORIGINAL_HELP = "All dimensions of the fingerprint, before any projection to the screen"


# ---- words ----------------------------------------------------------------------------------------------------------


def domain_words(domain: str) -> str:
    """A domain as people know it."""
    return DOMAIN_NAMES.get(domain, domain)


def condition_words(condition: str) -> str:
    """What was done to traces, in words."""
    return CONDITION_NAMES.get(condition, condition)


def counted(number: int, word: str) -> str:
    """A number of things: '1 machine', '2 machines'."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def count_text(value: float) -> str:
    """A whole number in a table; '–' where it is missing."""
    return "–" if pd.isna(value) else f"{value:.0f}"


def roster_size(cache: QueryCache, view: View) -> int:
    """Sources of the roster of a view."""
    return len(cache.ask(queries.sources, view.roster))


# ---- components -----------------------------------------------------------------------------------------------------


def marked(*parts: Component | str, **more: Any) -> Component:
    """Parts in one line: a mark and a name, a name and a badge."""
    return html.Span(list(parts), className="marked", **more)


def reader_mark(name: str, origin: str, colour: str | None = None, **more: Any) -> Component:
    """A reader's name with its origin, and with the colour of its line where it has one."""
    swatch = (
        [html.Span(className="swatch", style={"background": colour}, **shell.aria(hidden="true"))] if colour else []
    )
    return marked(*swatch, html.Span(name, className="reader-name", **more), shell.origin_badge(origin))


def live(identity: str, children: shell.Children, **more: Any) -> Component:
    """A place whose changes are read aloud."""
    return html.Div(children, id=identity, **shell.aria(live="polite"), **more)


def words(*parts: Component | str, caution: bool = False) -> Component:
    """A sentence."""
    text = list(parts) if len(parts) > 1 else parts[0]
    return html.P(text, className="sentence caution" if caution else "sentence")


def number(text: shell.Children, soft: bool = False) -> Component:
    """A number in a line of a list."""
    return html.Span(text, className="number soft" if soft else "number")


def table(heads: Sequence[Component | str], rows: Sequence[Component], kind: str = "wide") -> Component:
    """A small table of rows of :func:`row`; a head that is a cell already stays as it is."""
    cells = [head if isinstance(head, html.Th) else html.Th(head, scope="col") for head in heads]
    return html.Table([html.Thead(html.Tr(cells)), html.Tbody(list(rows))], className=f"small {kind}")


def row(name: shell.Children, *values: shell.Children, here: bool | None = None, **more: Any) -> Component:
    """A row of a small table; ``here`` marks that of the reader that the page shows."""
    cells = [html.Th(name, scope="row", **more), *[html.Td(value) for value in values]]
    return html.Tr(cells) if here is None else html.Tr(cells, className="here" if here else "")


def scrolling(content: Component) -> Component:
    """What may be wider than its place."""
    return html.Div(content, className="scroll-x")


def select(
    identity: str, data: Sequence[Any], value: Any, label: str, kind: Any = dmc.Select, **more: Any
) -> Component:
    """A list to choose from, one or (``dmc.MultiSelect``) several."""
    layer = {"comboboxProps": {"zIndex": 300}, "attributes": shell.named(label)}
    field: Component = kind(id=identity, data=list(data), value=value, **{"size": "sm", **layer, **more})
    return field


def budget_choice(identity: str, view: View) -> Component:
    """The budgets of traces in a row."""
    return shell.segmented(identity, {k: str(k) for k in BUDGETS}, view.k, "Budget K")


def source_field(
    identity: str, cache: QueryCache, view: View, value: str, title: str, hint: str, label: str
) -> Component:
    """A field that finds a source, under its title."""
    return shell.labelled(title, identity, shell.source_search(identity, cache, view.roster, value, hint, label))


# ---- pages of one source or family ----------------------------------------------------------------------------------


def subject_page(kind: str, variable: str, field: str) -> Callable[..., Callable[..., Component]]:
    """A layout for an address that names a subject, out of one for the view as requested and as it opens."""

    def decorate(lay: Callable[[QueryCache, View, View], Component]) -> Callable[..., Component]:
        def layout(**query: str) -> Component:
            cache, name = questions(), unquote(query.pop(variable, ""))
            problem = cache.problem()
            if problem is not None:
                return shell.no_generation(problem)
            requested = cache.resolve_view(View.parse({**query, field: name}))
            if not getattr(requested, field):
                return shell.unknown(kind, name, requested)
            return lay(cache, requested, cache.opened(requested))

        return layout

    return decorate


def subject_head(
    kind: str, kicker: shell.Children, title: shell.Children, facts: Component, answer: shell.Children, view: View
) -> Component:
    """The head of a source's or family's page: what it is, its facts, and its answer at a budget."""
    asking = [budget_choice(f"{kind}-k", view), live(f"{kind}-answer", answer, className="answer")]
    parts = [html.P(kicker, className="kicker"), html.H1(title, className="source-title"), facts]
    return html.Div([*parts, html.Div(asking, className="answer-row")], className="page-head")


# ---- what follows the view, and its builds -------------------------------------------------------------------------


def sized(name: str, height: Callable[[QueryCache, View], int]) -> drawing.Part:
    """The height in pixels of the figure ``name``."""
    style = Output({"type": "body", "figure": name}, "style")
    return drawing.Part((style,), lambda cache, view: ({"height": height(cache, view)},))


def tall(name: str, draw: Draw) -> drawing.Part:
    """A figure with a line a row, whose height follows its rows."""

    def fill(cache: QueryCache, view: View) -> tuple[Any, ...]:
        drawn = draw(cache, view)
        return (*drawn, {"height": height_of(drawn.figure)})

    style = Output({"type": "body", "figure": name}, "style")
    return drawing.Part((*drawing.figure(name, draw).outputs, style), fill)


def attribution_key(cache: QueryCache, view: View) -> dict[str, object]:
    """What rows about attribution have in common."""
    return {"reader": cache.attribution_reader(view), "roster": view.roster, "benchmark": view.domain}


def map_key(*names: str) -> Key:
    """What rows about geometry have in common: some of reader, roster and domain."""

    def key(cache: QueryCache, view: View) -> dict[str, object]:
        values = {"reader": cache.map_reader(view), "roster": view.roster, "domain": view.domain}
        return {name: values[name] for name in names}

    return key


def rows_of(query: Callable[..., pd.DataFrame], *names: str) -> Rows:
    """Rows of a query about some of reader, roster and domain of the map."""
    return lambda cache, view: cache.ask(query, *map_key(*names)(cache, view).values())


def meta(
    rows: Rows, store: str, key: Key, reader: Callable[[QueryCache, View], str] = QueryCache.attribution_reader
) -> shell.FigureMeta:
    """A figure's rows, and the table of the store that they come from."""
    return shell.FigureMeta(rows, lambda cache, view: (store, key(cache, view)), reader)


def accuracy_builds(readers: Callable[[QueryCache, View], Iterable[str]]) -> Builds:
    """What made the accuracy of some readers."""

    def builds(cache: QueryCache, view: View) -> tuple[str, dict[str, object]]:
        names = tuple(dict.fromkeys(readers(cache, view)))
        return "attribution_metrics", {"reader": names, "roster": view.roster, "metric": "accuracy"}

    return builds


def without(rows: Rows, *columns: str) -> Rows:
    """Rows without columns that only the drawing needs."""
    return lambda cache, view: rows(cache, view).drop(columns=list(columns), errors="ignore").reset_index(drop=True)
