"""One family: its sources, how soon they are named, whether errors stay inside it, and who stands beside it."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

import pandas as pd
from dash import Dash, Input, Output, dcc, html
from dash.development.base_component import Component

from atlas import drawing, shell, tables
from atlas.data import DOMAIN_NAMES, QueryCache, questions
from atlas.drawing import FigureView
from atlas.figures import attribution, sources
from atlas.figures.attribution import Line
from atlas.state import BUDGETS, View
from atlas.theme import TOKENS
from backend.store import queries

QUESTIONS = {
    "reach": "How soon are its sources named?",
    "leave": "Where do its errors go?",
    "within": "Which siblings are taken for each other?",
    "members": "Who belongs to it?",
}
SHOWN = 9


def layout(name: str = "", **query: str) -> Component:
    """The page of a family for a query string."""
    cache = questions()
    problem = cache.problem()
    if problem is not None:
        return shell.no_generation(problem)
    needed = cache.resolve_view(View.parse({**query, "zoom": unquote(name)}))
    if not needed.zoom:
        return shell.unknown("family", unquote(name), needed)
    view = cache.opened(needed)
    origin = cache.origin(cache.attribution_reader(view))

    def section(name: str, drawn: FigureView, height: int) -> Component:
        return drawing.section(name, QUESTIONS[name], drawn, height, origin=origin)

    return html.Div(
        className="column",
        children=[
            shell.settled(needed, view),
            drawing.remembered(PAGE.name),
            dcc.Store(id="family-name", data=view.zoom),
            html.Div(
                className="page-head",
                children=[
                    html.P("Family", className="kicker"),
                    html.H1(
                        [
                            shell.symbol(cache.marks()[view.zoom], view.theme),
                            html.Span(view.zoom, dir="auto", className="long"),
                        ],
                        className="source-title",
                    ),
                    html.Div(_facts(cache, view), id="family-facts", className="card-facts"),
                    html.Div(
                        className="answer-row",
                        children=[
                            shell.segmented("family-k", {k: str(k) for k in BUDGETS}, view.k, "Budget K"),
                            html.Div(
                                _answer(cache, view), id="family-answer", className="answer", **{"aria-live": "polite"}
                            ),
                        ],
                    ),
                ],
            ),
            section("reach", _reach(cache, view), 380),
            section("leave", _leave(cache, view), 360),
            section("within", _within(cache, view), _within_height(cache, view)),
            shell.grid_section(
                "members",
                QUESTIONS["members"],
                *_members(cache, view),
                origin=origin,
                height=tables.height(len(_rows(cache, view))),
            ),
        ],
    )


def register(app: Dash) -> None:
    """Callbacks of the page."""
    family, k = Input("family-name", "data"), Input("family-k", "value")
    drawing.remember(app, PAGE.name, zoom=family, k=k)
    drawing.follow(app, drawing.place("family-facts", _facts), drawing.grid("members", _members), zoom=family)
    drawing.follow(
        app,
        drawing.place("family-answer", _answer),
        drawing.figure("reach", _reach),
        drawing.figure("leave", _leave),
        drawing.figure("within", _within),
        drawing.Part(
            (Output({"type": "body", "figure": "within"}, "style"),),
            lambda cache, view: ({"height": _within_height(cache, view)},),
        ),
        zoom=family,
        k=k,
    )


# ---- what is drawn --------------------------------------------------------------------------------------------------


def _own(cache: QueryCache, view: View) -> pd.DataFrame:
    members = cache.ask(queries.sources, view.roster)
    return members[members["family"] == view.zoom]


def _table(cache: QueryCache, view: View) -> pd.DataFrame:
    return cache.ask(queries.source_table, cache.attribution_reader(view), view.roster, view.domain)


def _cells(cache: QueryCache, view: View) -> pd.DataFrame:
    return cache.ask(queries.confusion, cache.attribution_reader(view), view.roster, view.k, view.domain)


def _facts(cache: QueryCache, view: View) -> list[Component | str]:
    own = _own(cache, view)
    access = own["access"].value_counts()
    kinds = {"local": "with local weights", "api": "behind an API"}
    facts = [html.Span(f"{len(own)} of {len(cache.ask(queries.sources, view.roster))} sources in {view.roster}")]
    facts += [html.Span(f"{count} {kinds.get(str(kind), str(kind))}") for kind, count in access.items()]
    facts.append(html.Span(f"{int(own['responses'].sum()):,} responses"))
    query = View(
        reader=view.reader, roster=view.roster, domain=view.domain, theme=view.theme, families=(view.zoom,)
    ).query()
    return [*facts, dcc.Link("Show it alone on the map", href=f"/?{query}")]


def _answer(cache: QueryCache, view: View) -> list[Component | str]:
    table, own = _table(cache, view), list(_own(cache, view)["source"])
    accuracy = sources.accuracy_of(table, own)
    if view.k not in accuracy:
        return [f"Nothing has been measured for this family, {drawing.choice_words(view)}."]
    rest = sources.accuracy_of(table, [source for source in table["source"] if source not in own])
    traces = drawing.traces(view.k)
    kin = _destinations(cache, view)
    within = kin.loc[kin["family"] == view.zoom, "share"]
    text = (
        ""
        if kin.empty or len(own) < 2
        else f" Of its errors, {100 * (within.iloc[0] if len(within) else 0):.0f} % stay in the family."
    )
    return [
        f"With {traces} its sources are named in ",
        html.Strong(sources.accuracy_text(accuracy, view.k)),
        f" of their groups, all others in {sources.accuracy_text(rest, view.k)}.{text}",
    ]


def _reach(cache: QueryCache, view: View) -> FigureView:
    table, own = _table(cache, view), list(_own(cache, view)["source"])
    accuracy = sources.accuracy_of(table, own)
    if not accuracy:
        return drawing.unmeasured(cache, view, "accuracy of this family")
    colour = cache.marks()[view.zoom].colour(view.theme)
    rest = sources.accuracy_of(table, [source for source in table["source"] if source not in own])
    soft = TOKENS[view.theme]["soft"]
    lines = [(Line("rest", "all other families", soft, "dot"), rest), (Line("own", view.zoom, colour), accuracy)]
    figure = sources.accuracy_curves(table, lines, theme=view.theme, k=view.k, thin=own, colour=colour)
    sentence = (
        f"Mean accuracy of its {len(own)} sources (thin: each of them) beside all others, on "
        f"{DOMAIN_NAMES.get(view.domain, view.domain)} by {cache.reader_words(cache.attribution_reader(view))}. Grey: "
        f"the middle half and the middle 80 % of all. n = {len(table)} sources."
    )
    return FigureView(figure, sentence)


def _destinations(cache: QueryCache, view: View) -> pd.DataFrame:
    """Families that wrong answers for its sources name (columns family, errors, share, expected), most first."""
    members = cache.ask(queries.sources, view.roster)
    families = members.set_index("source")["family"]
    cells = _cells(cache, view)
    own = cells[(cells["truth"].map(families) == view.zoom) & (cells["truth"] != cells["predicted"])]
    errors = own.groupby(own["predicted"].map(families))["count"].sum().sort_values(ascending=False, kind="stable")
    sizes = members["family"].value_counts()
    return pd.DataFrame(
        {
            "family": errors.index,
            "errors": errors.to_numpy(),
            "share": errors.to_numpy() / max(int(errors.sum()), 1),
            "expected": [(sizes[family] - (family == view.zoom)) / max(len(members) - 1, 1) for family in errors.index],
        }
    )


def _leave(cache: QueryCache, view: View) -> FigureView:
    if _cells(cache, view).empty:
        return drawing.unmeasured(cache, view, f"confusion counts at K = {view.k}")
    frame = _destinations(cache, view)
    traces = drawing.traces(view.k)
    if frame.empty:
        none = shell.empty(f"At {traces} none of its sources is taken for another", "Choose a smaller budget K above")
        return FigureView(drawing.blank(view.theme), "There is no error to share out.", none)
    sentence = (
        f"Families that wrong answers name at {traces}; the bar across is what blind errors would give. "
        f"n = {int(frame['errors'].sum()):,} errors over three seeds."
    )
    figure = sources.error_families(frame.head(SHOWN), cache.marks(), theme=view.theme, own=view.zoom)
    return FigureView(figure, sentence)


def _within_height(cache: QueryCache, view: View) -> int:
    """Height in pixels of :func:`_within`: a row for every sibling that its name fits in, and the names below."""
    return 200 + 15 * max(len(_own(cache, view)), 8)


def _within(cache: QueryCache, view: View) -> FigureView:
    cells = _cells(cache, view)
    if cells.empty:
        return drawing.unmeasured(cache, view, f"confusion counts at K = {view.k}")
    order = attribution.confusion_order(cache.ask(queries.sources, view.roster))
    own = set(order.loc[order["family"] == view.zoom, "source"])
    if not own:
        away = shell.empty(f"No source of this family is in {view.roster}", "Choose another roster above")
        return FigureView(drawing.blank(view.theme), "Not measured yet.", away)
    figure = attribution.confusion_matrix(cells, order, theme=view.theme, zoom=view.zoom)
    groups = int(cells.loc[cells["truth"].isin(own), "count"].sum())
    traces = drawing.traces(view.k)
    sentence = (
        f"Rows are the true source, columns the answer at {traces}; the last column is any other family. "
        f"n = {groups:,} groups over three seeds."
    )
    return FigureView(figure, sentence)


def _rows(cache: QueryCache, view: View) -> pd.DataFrame:
    own = _own(cache, view)[["source", "name", "access", "responses"]]
    table = _table(cache, view)
    budgets = [column for column in table if column.startswith("accuracy_") and table[column].notna().any()]
    near = cache.ask(queries.neighbor_table, cache.map_reader(view), view.roster, view.domain)
    frame = own.merge(table[["source", *budgets, "confused_with", "confused_name"]], on="source", how="left")
    kin = ["source", "nearest", "nearest_name", "nearest_family", "cosine", "same_5"]
    return frame.merge(near[kin], on="source", how="left")


def _members(cache: QueryCache, view: View) -> tuple[Component, shell.Children]:
    frame = _rows(cache, view)
    if frame.empty:
        return (
            shell.empty(f"No source of this family is in {view.roster}", "Choose another roster above"),
            "No source to show.",
        )
    budgets = [column for column in frame if column.startswith("accuracy_")]
    columns = [
        tables.source("name", "Source", width=140),
        tables.words("access", "Access", 64),
        {
            "headerName": "Accuracy at budget K",
            "children": [
                tables.number(column, column.removeprefix("accuracy_"), "rate", 54, filter=False) for column in budgets
            ],
        },
        tables.source("confused_name", "Most confused with", "confused_with", 124),
        tables.source("nearest_name", "Nearest source", "nearest", 124),
        tables.number("cosine", "Cosine", "cosine", 72),
        tables.number("same_5", "Kin in 5", "count", 70),
    ]
    sentence = f"n = {len(frame)} sources of the family in {view.roster}; a name leads to its page."
    return tables.grid("members-grid", frame, columns if budgets else [*columns[:2], *columns[3:]]), sentence


# ---- what the figures say of themselves -----------------------------------------------------------------------------


def _reach_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    table = _table(cache, view)
    return table[table["family"] == view.zoom].drop(columns=["position", "responses"]).reset_index(drop=True)


def _within_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    members = cache.ask(queries.sources, view.roster).set_index("source")
    cells = _cells(cache, view)
    own = cells[cells["truth"].map(members["family"]) == view.zoom]
    return own.assign(
        truth_name=own["truth"].map(members["name"]), predicted_name=own["predicted"].map(members["name"])
    ).reset_index(drop=True)


def _key(cache: QueryCache, view: View) -> dict[str, object]:
    return {"reader": cache.attribution_reader(view), "roster": view.roster, "benchmark": view.domain}


def _told(table: Any, store: str) -> shell.FigureMeta:
    return shell.FigureMeta(table, lambda cache, view: (store, _key(cache, view)))


PAGE = shell.Page(
    name="family",
    path="/family/<name>",
    title="Family",
    icon="",
    layout=layout,
    register=register,
    figures={
        "reach": _told(_reach_rows, "source_accuracy"),
        "leave": _told(_destinations, "confusion"),
        "within": _told(_within_rows, "confusion"),
        "members": _told(_rows, "source_accuracy"),
    },
)
