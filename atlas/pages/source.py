"""One source: how soon it is named, what it is taken for, what stands beside it, and how it compares with another."""

from __future__ import annotations

import math
from typing import Any
from urllib.parse import unquote

import pandas as pd
from dash import Dash, Input, Output, dcc, html
from dash.development.base_component import Component

from atlas import drawing, shell
from atlas.data import DOMAIN_NAMES, QueryCache, questions
from atlas.drawing import FigureView
from atlas.figures import neighbourhoods, sources
from atlas.figures.attribution import Line, rate_text
from atlas.figures.plots import p_text
from atlas.state import BUDGETS, View
from atlas.theme import READER_COLOURS
from backend.store import comparison_queries, queries

QUESTIONS = {
    "soon": "How soon is it named?",
    "taken": "What is it taken for?",
    "beside": "What stands beside it?",
    "near": "How sure is each neighbour?",
    "again": "Is it found again in the other domain?",
}
NEAREST = 10
TAKEN = 12


def layout(label: str = "", **query: str) -> Component:
    """The page of a source for a query string."""
    cache = questions()
    problem = cache.problem()
    if problem is not None:
        return shell.no_generation(problem)
    needed = cache.resolve_view(View.parse({**query, "source": unquote(label)}))
    if not needed.source:
        return shell.unknown("source", unquote(label), needed)
    view = cache.opened(needed)
    profile = _profile(cache, view)
    assert profile is not None, "settled"
    origin = cache.origin(cache.attribution_reader(view))
    sees = cache.origin(cache.map_reader(view))

    def section(name: str, drawn: FigureView, height: int, came: str, **more: Any) -> Component:
        return drawing.section(name, QUESTIONS[name], drawn, height, origin=came, **more)

    return html.Div(
        className="column",
        children=[
            shell.settled(needed, view),
            drawing.remembered(PAGE.name),
            dcc.Store(id="source-label", data=view.source),
            html.Div(
                className="page-head",
                children=[
                    html.P(["Source of ", shell.family_link(view, profile.family)], className="kicker"),
                    html.H1(html.Span(profile.name, dir="auto", className="long"), className="source-title"),
                    html.Div(_facts(cache, view), id="source-facts", className="source-facts"),
                    html.Div(
                        className="answer-row",
                        children=[
                            shell.segmented("source-k", {k: str(k) for k in BUDGETS}, view.k, "Budget K"),
                            html.Div(
                                _answer(cache, view), id="source-answer", className="answer", **{"aria-live": "polite"}
                            ),
                        ],
                    ),
                ],
            ),
            section(
                "soon",
                _soon(cache, view),
                380,
                origin,
                controls=[
                    shell.labelled(
                        "Compare with",
                        "source-other",
                        shell.source_search(
                            "source-other", cache, view.roster, view.other, "Another source", "Source to compare with"
                        ),
                    )
                ],
            ),
            html.Div(_versus(cache, view), id="versus", **{"aria-live": "polite"}),
            html.Div(
                className="two",
                children=[
                    section("taken", _taken(cache, view), 420, origin),
                    section("beside", _beside(cache, view), 420, sees),
                ],
            ),
            shell.grid_section("near", QUESTIONS["near"], *_near(cache, view), origin=sees, height=None),
            shell.grid_section("again", QUESTIONS["again"], *_again(cache, view), origin=sees, height=None),
        ],
    )


def register(app: Dash) -> None:
    """Callbacks of the page."""
    source, k, other = Input("source-label", "data"), Input("source-k", "value"), Input("source-other", "value")
    drawing.remember(app, PAGE.name, source=source, k=k, other=other)
    drawing.follow(
        app,
        drawing.place("source-facts", _facts),
        drawing.figure("beside", _beside),
        drawing.grid("near", _near),
        drawing.grid("again", _again),
        source=source,
    )
    drawing.follow(app, drawing.place("source-answer", _answer), drawing.figure("taken", _taken), source=source, k=k)
    drawing.follow(
        app, drawing.figure("soon", _soon), drawing.place("versus", _versus), source=source, k=k, other=other
    )

    @app.callback(Output("source-other", "data"), Input("roster", "value"), prevent_initial_call=True)
    def offered(roster: str) -> Any:
        return shell.source_options(questions(), roster)


# ---- what is drawn --------------------------------------------------------------------------------------------------


def _profile(cache: QueryCache, view: View) -> queries.SourceProfile | None:
    return cache.ask(queries.source_profile, view.source, cache.attribution_reader(view), view.roster, view.domain)


def _table(cache: QueryCache, view: View) -> pd.DataFrame:
    return cache.ask(queries.source_table, cache.attribution_reader(view), view.roster, view.domain)


def _facts(cache: QueryCache, view: View) -> list[Component | str]:
    profile = _profile(cache, view)
    assert profile is not None
    held = ", ".join(profile.rosters)
    links = {"Show it on the map": "/", "Show its neighbourhood": "/neighbourhoods"}
    query = View(
        reader=view.reader, roster=view.roster, domain=view.domain, theme=view.theme, source=view.source
    ).query()
    facts: dict[str, shell.Children] = {
        "Family": html.Span(
            [shell.symbol(cache.marks()[profile.family], view.theme), shell.family_link(view, profile.family)],
            className="marked",
        ),
        "Repository id": shell.source_name(profile.name),
        "Label": shell.source_name(view.source),
        "Access": {"local": "local weights", "api": "API"}.get(profile.access, profile.access),
        "Responses": f"{profile.responses:,}",
        "Rosters": held if view.roster in profile.rosters else f"{held} (not in {view.roster})",
    }
    return [
        html.Dl([html.Div([html.Dt(word), html.Dd(fact)]) for word, fact in facts.items()], className="facts-row"),
        html.Div([dcc.Link(words, href=f"{path}?{query}") for words, path in links.items()], className="ways"),
    ]


def _answer(cache: QueryCache, view: View) -> list[Component | str]:
    table = _table(cache, view)
    own = sources.accuracy_of(table, [view.source])
    if view.k not in own:
        return [f"Nothing has been measured for this source, {drawing.choice_words(view)}."]
    values = table[f"accuracy_{view.k}"].dropna()
    place = int((values > own[view.k]).sum()) + 1
    traces = drawing.traces(view.k)
    return [
        f"With {traces} it is named first in ",
        html.Strong(sources.accuracy_text(own, view.k)),
        f" of its groups; the median source reaches {100 * values.median():.1f} %. "
        f"{_ordinal(place)} easiest of {len(values)} sources.",
    ]


def _soon(cache: QueryCache, view: View) -> FigureView:
    table = _table(cache, view)
    own = sources.accuracy_of(table, [view.source])
    if not own:
        return drawing.unmeasured(cache, view, "accuracy of this source", _path(view))
    names = table.set_index("source")["name"]
    colours = READER_COLOURS[view.theme]
    lines = [(Line(view.source, names[view.source], colours[0]), own)]
    if view.other and view.other != view.source and view.other in names.index:
        other = sources.accuracy_of(table, [view.other])
        lines.insert(0, (Line(view.other, names[view.other], colours[1], "dot"), other))
    profile = _profile(cache, view)
    assert profile is not None
    groups = int(profile.accuracy["n"].iloc[0])
    sentence = (
        f"Share of its groups of K traces that are given to it, on {DOMAIN_NAMES.get(view.domain, view.domain)} by "
        f"{cache.reader_words(cache.attribution_reader(view))}. Grey: the middle half and the middle 80 % of all "
        f"{len(table)} sources. n = {groups:,} groups a seed at K = {int(profile.accuracy['k'].iloc[0])}."
    )
    return FigureView(sources.accuracy_curves(table, lines, theme=view.theme, k=view.k), sentence)


def _taken_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    cells = cache.ask(queries.confusion, cache.attribution_reader(view), view.roster, view.k, view.domain)
    wrong = cells[cells["truth"] != cells["predicted"]]
    out = wrong[wrong["truth"] == view.source].set_index("predicted")["share"]
    into = wrong[wrong["predicted"] == view.source].set_index("truth")["share"]
    members = cache.ask(queries.sources, view.roster).set_index("source")
    frame = pd.DataFrame({"answered_as": out, "named_for": into}).fillna(0.0)
    frame = frame.join(members[["name", "family"]], how="inner").rename_axis("source").reset_index()
    order = frame[["answered_as", "named_for"]].max(axis=1).sort_values(ascending=False, kind="stable").index
    return frame.loc[order, ["source", "name", "family", "answered_as", "named_for"]].reset_index(drop=True)


def _taken(cache: QueryCache, view: View) -> FigureView:
    cells = cache.ask(queries.confusion, cache.attribution_reader(view), view.roster, view.k, view.domain)
    if cells.empty:
        return drawing.unmeasured(cache, view, f"confusion counts at K = {view.k}", _path(view))
    frame = _taken_rows(cache, view)
    groups = int(cells.loc[cells["truth"] == view.source, "count"].sum())
    traces = drawing.traces(view.k)
    if frame.empty:
        nobody = shell.empty(f"At {traces} it is never taken for another", "Choose a smaller budget K above")
        return FigureView(drawing.blank(view.theme), f"No error in n = {groups:,} groups over three seeds.", nobody)
    rest = f" The {TAKEN} most frequent of {len(frame)}." if len(frame) > TAKEN else ""
    sentence = f"Wrong answers at {traces}, as shares of the true source's groups. n = {groups:,} of its groups.{rest}"
    return FigureView(sources.taken_for(frame.head(TAKEN), cache.marks(), theme=view.theme), sentence)


def _near_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    return cache.ask(queries.neighbors, cache.map_reader(view), view.roster, view.domain, view.source, NEAREST)


def _beside(cache: QueryCache, view: View) -> FigureView:
    frame = _near_rows(cache, view)
    if frame.empty:
        return drawing.unmapped(cache, view, "neighbourhood")
    profile = _profile(cache, view)
    assert profile is not None
    kin = int((frame["family"] == profile.family).sum())
    size = len(cache.ask(queries.sources, view.roster))
    sentence = (
        f"The ten nearest in the original space; {kin} of them are of its family. n = {size - 1} other sources, as "
        f"seen by {cache.reader_words(cache.map_reader(view))}."
    )
    return FigureView(neighbourhoods.nearest_sources(frame, cache.marks(), theme=view.theme), sentence)


def _vote_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """The nearest sources with what speaks for each: rank both ways, percentile, p, and readers that agree."""
    frame = _near_rows(cache, view)
    if frame.empty:
        return frame
    votes = cache.ask(comparison_queries.neighbor_votes, view.roster, view.domain, view.source, NEAREST)
    size = len(cache.ask(queries.sources, view.roster))
    pairs = size * (size - 1) / 2
    # The share of all pairs of the roster that are at least as alike: what a pair drawn at random would reach.
    chance = (1 - frame["percentile"]).clip(lower=1 / pairs)
    return frame.assign(p_value=chance).merge(votes, on="neighbor", how="left").sort_values("rank", kind="stable")


def _near(cache: QueryCache, view: View) -> tuple[Component, shell.Children]:
    frame = _vote_rows(cache, view)
    if frame.empty:
        return drawing.absent(drawing.unmapped(cache, view, "neighbourhood"))
    marks = cache.marks()
    body = [
        html.Tr(
            [
                html.Th(
                    html.Span(
                        [html.Span(f"{row.rank}", className="rank"), shell.source_link(view, row.neighbor, row.name)],
                        className="marked",
                    ),
                    scope="row",
                ),
                html.Td(html.Span([shell.symbol(marks[row.family], view.theme), row.family], className="marked")),
                html.Td(rate_text(row.cosine)),
                html.Td(f"{100 * row.percentile:.1f} %"),
                html.Td(p_text(row.p_value)),
                html.Td("–" if pd.isna(row.rank_back) else f"{row.rank_back:.0f}"),
                html.Td(f"{row.near_proxies} of {row.proxies}" if row.proxies else "–"),
                html.Td(f"{row.near} of {row.readers}"),
            ]
        )
        for row in frame.itertuples(index=False)
    ]  # fmt: skip
    heads = ["neighbour", "family", "cosine", "percentile", "p", "rank from there", "proxies", "readers"]
    table = html.Table(
        [html.Thead(html.Tr([html.Th(head, scope="col") for head in heads])), html.Tbody(body)],
        className="small wide near-table",
    )
    kin = int((frame["family"] == _family(cache, view)).sum())
    members = cache.ask(queries.sources, view.roster)
    siblings = int((members["family"] == _family(cache, view)).sum()) - 1
    luck = float(hypergeometric_tail(kin, len(members) - 1, siblings, len(frame)))
    sentence: list[Component | str] = [
        shell.term("Percentile", "Share of all pairs of sources of the roster that are less alike"),
        " and ",
        shell.term("p", "How often a pair of sources drawn at random is at least as alike"),
        f" are among all pairs of {view.roster}. ",
        shell.term("Proxies", f"Proxy models, whatever they read, that also count it among the {NEAREST} nearest"),
        f" and readers say who else has it among the {NEAREST} nearest. {kin} of these {len(frame)} are of its "
        f"family; so many or more would be with p {p_text(luck)} if families were dealt out blindly. n = "
        f"{len(members) - 1} sources. Neighbours by parts of the prompts are not stored: how stable the whole picture "
        "is, Neighbourhoods shows.",
    ]
    return html.Div(table, className="scroll-x"), sentence


def _family(cache: QueryCache, view: View) -> str:
    profile = _profile(cache, view)
    return profile.family if profile is not None else ""


def hypergeometric_tail(found: int, others: int, kin: int, drawn: int) -> float:
    """Chance of at least ``found`` kin among ``drawn`` of ``others`` sources of which ``kin`` are kin, exactly."""
    ways = [math.comb(kin, hits) * math.comb(others - kin, drawn - hits) for hits in range(found, min(kin, drawn) + 1)]
    return sum(ways) / math.comb(others, drawn)


def _again_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    frame = cache.ask(queries.cross_domain, cache.map_reader(view), view.roster, view.source)
    if frame.empty:
        return pd.DataFrame(
            columns=["variant", "query_domain", "gallery_domain", "rank", "cosine", "nearest_other", "other_cosine"]
        )
    keys = ["variant", "query_domain", "gallery_domain"]
    wide = frame.pivot_table(index=keys, columns="metric", values="value", sort=False).reset_index()
    named = frame.dropna(subset=["best_other_name"]).drop_duplicates(keys).set_index(keys)["best_other_name"]
    wide["nearest_other"] = [named.get(key) for key in wide[keys].itertuples(index=False, name=None)]
    return wide.rename(columns={"best_other_cosine": "other_cosine"}).rename_axis(None, axis=1)


def _again(cache: QueryCache, view: View) -> tuple[Component, shell.Children]:
    frame = _again_rows(cache, view)
    if frame.empty:
        return drawing.absent(drawing.unmapped(cache, view, "search across domains"))
    body = [
        html.Tr(
            [
                html.Th(
                    f"{DOMAIN_NAMES.get(row.query_domain, row.query_domain)} in "
                    f"{DOMAIN_NAMES.get(row.gallery_domain, row.gallery_domain)}",
                    scope="row",
                ),
                html.Td("as it is" if row.variant == "raw" else "domain's mean taken away"),
                html.Td(f"{row.rank:.0f}" if "rank" in frame else "–"),
                html.Td(rate_text(row.cosine) if "cosine" in frame else "–"),
                html.Td(shell.source_name(row.nearest_other) if isinstance(row.nearest_other, str) else "–"),
                html.Td(rate_text(row.other_cosine) if "other_cosine" in frame else "–"),
            ]
        )
        for row in frame.itertuples(index=False)
    ]
    heads = ["sought", "signature", "rank of itself", "cosine with itself", "nearest other source", "its cosine"]
    size = len(cache.ask(queries.sources, view.roster))
    table = html.Table(
        [html.Thead(html.Tr([html.Th(head, scope="col") for head in heads])), html.Tbody(body)], className="small wide"
    )
    return html.Div(table, className="scroll-x"), (
        f"Its signature of one domain, sought among the signatures of all sources in the other: rank 1 when itself is "
        f"the nearest. n = {size} sources."
    )


def _versus(cache: QueryCache, view: View) -> list[Component]:
    """Two sources beside each other: confusions both ways, ranks, and the page of the other."""
    if not view.other or view.other == view.source:
        return []
    members = cache.ask(queries.sources, view.roster).set_index("source")
    if view.other not in members.index or view.source not in members.index:
        return [html.P(f"One of the two sources is not in {view.roster}.", className="sentence caution")]
    parts: list[Component | str] = []
    cells = cache.ask(queries.confusion, cache.attribution_reader(view), view.roster, view.k, view.domain)
    if len(cells):
        share = cells.set_index(["truth", "predicted"])["share"]
        there = float(share.get((view.source, view.other), 0.0))
        back = float(share.get((view.other, view.source), 0.0))
        traces = drawing.traces(view.k)
        parts.append(f"At {traces}, {there:.1%} of its groups are answered as the other, {back:.1%} the other way. ")
    near = cache.ask(queries.neighbors, cache.map_reader(view), view.roster, view.domain, view.source)
    row = near[near["neighbor"] == view.other]
    if len(row):
        one = row.iloc[0]
        parts.append(
            f"In the original space their cosine is {rate_text(one['cosine'])}, rank {int(one['rank'])} from here and "
            f"{int(one['rank_back'])} from there. "
        )
    name = members.at[view.other, "name"]
    return [html.P([html.Span("Beside "), shell.source_link(view, view.other, name), ": ", *parts], className="versus")]


def _ordinal(place: int) -> str:
    ending = "th" if 10 <= place % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return "The" if place == 1 else f"The {place}{ending}"


def _path(view: View) -> str:
    return shell.source_path(view, view.source).partition("?")[0]


# ---- what the figures say of themselves -----------------------------------------------------------------------------


def _soon_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    table = _table(cache, view)
    frame = table[table["source"].isin([view.source, view.other])]
    return frame.drop(columns=["position", "responses"]).reset_index(drop=True)


def _key(cache: QueryCache, view: View) -> dict[str, object]:
    return {"reader": cache.attribution_reader(view), "roster": view.roster, "benchmark": view.domain}


def _map_key(cache: QueryCache, view: View) -> dict[str, object]:
    return {"reader": cache.map_reader(view), "roster": view.roster}


PAGE = shell.Page(
    name="source",
    path="/source/<label>",
    title="Source",
    icon="",
    layout=layout,
    register=register,
    figures={
        "soon": shell.FigureMeta(_soon_rows, lambda cache, view: ("source_accuracy", _key(cache, view))),
        "taken": shell.FigureMeta(_taken_rows, lambda cache, view: ("confusion", _key(cache, view) | {"k": view.k})),
        "beside": shell.FigureMeta(
            _near_rows,
            lambda cache, view: ("neighbors", _map_key(cache, view) | {"domain": view.domain}),
            QueryCache.map_reader,
        ),
        "near": shell.FigureMeta(
            _vote_rows,
            lambda cache, view: ("neighbors", {"roster": view.roster, "domain": view.domain}),
            QueryCache.map_reader,
        ),
        "again": shell.FigureMeta(
            _again_rows, lambda cache, view: ("cross_domain", _map_key(cache, view)), QueryCache.map_reader
        ),
    },
)
