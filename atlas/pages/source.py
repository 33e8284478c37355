"""One source: how soon it is named, what it is taken for, what is near to it, and how it compares with another."""

from __future__ import annotations

import math
from typing import Any

import pandas as pd
from dash import Dash, Input, Output, dcc, html
from dash.development.base_component import Component

from atlas import drawing, shell, tables
from atlas.data import QueryCache, questions
from atlas.drawing import FigureView
from atlas.figures import neighbourhoods, plots, sources
from atlas.figures.plots import Line, rate_text
from atlas.pages import pieces
from atlas.state import View
from atlas.theme import READER_COLOURS
from backend.store import page_queries, queries

QUESTIONS = {
    "soon": "How soon is it named?",
    "taken": "What is it taken for?",
    "beside": "What stands beside it?",
    "near": "How sure is each neighbour?",
    "again": "Is it found again in the other domain?",
}
NEAREST = 10
TAKEN = 12


@pieces.subject_page("source", "label", "source")
def layout(cache: QueryCache, requested: View, view: View) -> Component:
    """The page of a source for a query string."""
    profile = _profile(cache, view)
    origin, sees = cache.origin(cache.attribution_reader(view)), cache.origin(cache.map_reader(view))

    def section(name: str, drawn: FigureView, height: int, origin: str, **more: Any) -> Component:
        return drawing.section(name, QUESTIONS[name], drawn, height, origin=origin, **more)

    def grid(name: str, content: tuple[Component, shell.Children]) -> Component:
        return shell.grid_section(name, QUESTIONS[name], *content, origin=sees, height=None)

    kicker: list[Component | str] = ["Source of ", shell.family_link(view, profile.family)]
    title = html.Span(profile.name, dir="auto", className="long")
    facts = html.Div(_facts(cache, view), id="source-facts", className="source-facts")
    field = "source-other", cache, view, view.other, "Compare with", "Another source", "Source to compare with"
    pair = [section("taken", _taken(cache, view), 420, origin), section("beside", _beside(cache, view), 420, sees)]
    return html.Div(
        [
            shell.settled(requested, view),
            drawing.remembered(PAGE.name),
            dcc.Store(id="source-label", data=view.source),
            pieces.subject_head("source", kicker, title, facts, _answer(cache, view), view),
            section("soon", _soon(cache, view), 380, origin, controls=[pieces.source_field(*field)]),
            pieces.live("versus", _versus(cache, view)),
            html.Div(pair, className="two"),
            grid("near", _near(cache, view)),
            grid("again", _again(cache, view)),
        ],
        className="column",
    )


def register(app: Dash) -> None:
    """Callbacks of the page."""
    source, k, other = Input("source-label", "data"), Input("source-k", "value"), Input("source-other", "value")
    drawing.remember(app, PAGE.name, source=source, k=k, other=other)
    near = drawing.figure("beside", _beside), drawing.grid("near", _near), drawing.grid("again", _again)
    drawing.follow(app, drawing.place("source-facts", _facts), *near, source=source)
    drawing.follow(app, drawing.place("source-answer", _answer), drawing.figure("taken", _taken), source=source, k=k)
    soon = drawing.figure("soon", _soon), drawing.place("versus", _versus)
    drawing.follow(app, *soon, source=source, k=k, other=other)

    @app.callback(Output("source-other", "data"), Input("roster", "value"), prevent_initial_call=True)
    def offered(roster: str) -> Any:
        return shell.source_options(questions(), roster)


def _profile(cache: QueryCache, view: View) -> queries.SourceProfile:
    reader = cache.attribution_reader(view)
    profile = cache.ask(queries.source_profile, view.source, reader, view.roster, view.domain)
    assert profile is not None, "settled"
    return profile


def _table(cache: QueryCache, view: View) -> pd.DataFrame:
    return cache.ask(queries.source_table, cache.attribution_reader(view), view.roster, view.domain)


def _cells(cache: QueryCache, view: View) -> pd.DataFrame:
    return cache.ask(queries.confusion, cache.attribution_reader(view), view.roster, view.k, view.domain)


def _facts(cache: QueryCache, view: View) -> list[Component | str]:
    profile = _profile(cache, view)
    rosters = ", ".join(profile.rosters)
    links = {"Show it on the map": "/", "Show its neighbourhood": "/neighbourhoods"}
    shared: dict[str, Any] = {"reader": view.reader, "roster": view.roster, "domain": view.domain, "theme": view.theme}
    query = View(**shared, source=view.source).query()
    family = pieces.marked(
        shell.symbol(cache.marks()[profile.family], view.theme), shell.family_link(view, profile.family)
    )
    facts: dict[str, shell.Children] = {
        "Family": family,
        "Repository id": shell.source_name(profile.name),
        "Label": shell.source_name(view.source),
        "Access": pieces.ACCESS_WORDS.get(profile.access, profile.access),
        "Responses": f"{profile.responses:,}",
        "Rosters": rosters if view.roster in profile.rosters else f"{rosters} (not in {view.roster})",
    }
    return [
        html.Dl([html.Div([html.Dt(word), html.Dd(fact)]) for word, fact in facts.items()], className="facts-row"),
        html.Div([dcc.Link(word, href=f"{path}?{query}") for word, path in links.items()], className="ways"),
    ]


def _answer(cache: QueryCache, view: View) -> list[Component | str]:
    accuracies = _table(cache, view)
    own = sources.accuracy_of(accuracies, [view.source])
    if view.k not in own:
        return [f"Nothing has been measured for this source, {drawing.choice_words(view)}."]
    values = accuracies[f"accuracy_{view.k}"].dropna()
    place = int((values > own[view.k]).sum()) + 1
    return [
        f"With {drawing.traces(view.k)} it is named first in ",
        html.Strong(sources.accuracy_text(own, view.k)),
        f" of its groups; the median source reaches {100 * values.median():.1f} %. "
        f"{_ordinal(place)} easiest of {len(values)} sources.",
    ]


def _soon(cache: QueryCache, view: View) -> FigureView:
    accuracies = _table(cache, view)
    own = sources.accuracy_of(accuracies, [view.source])
    if not own:
        return drawing.unmeasured(cache, view, "accuracy of this source", _path(view))
    names = accuracies.set_index("source")["name"]
    colours = READER_COLOURS[view.theme]
    lines = [(Line(view.source, names[view.source], colours[0]), own)]
    if view.other and view.other != view.source and view.other in names.index:
        other = sources.accuracy_of(accuracies, [view.other])
        lines.insert(0, (Line(view.other, names[view.other], colours[1], "dot"), other))
    first = _profile(cache, view).accuracy.iloc[0]
    sentence = (
        f"Share of its groups of K traces that are given to it, on {pieces.domain_words(view.domain)} by "
        f"{cache.reader_words(cache.attribution_reader(view))}. Grey: the middle half and the middle 80 % of all "
        f"{len(accuracies)} sources. n = {int(first['n']):,} groups a seed at K = {int(first['k'])}."
    )
    return FigureView(sources.accuracy_curves(accuracies, lines, theme=view.theme, k=view.k), sentence)


def _taken_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    cells = _cells(cache, view)
    wrong = cells[cells["truth"] != cells["predicted"]]
    out = wrong[wrong["truth"] == view.source].set_index("predicted")["share"]
    into = wrong[wrong["predicted"] == view.source].set_index("truth")["share"]
    members = cache.ask(queries.sources, view.roster).set_index("source")
    frame = pd.DataFrame({"answered_as": out, "named_for": into}).fillna(0.0)
    frame = frame.join(members[["name", "family"]], how="inner").rename_axis("source").reset_index()
    order = frame[["answered_as", "named_for"]].max(axis=1).sort_values(ascending=False, kind="stable").index
    return frame.loc[order, ["source", "name", "family", "answered_as", "named_for"]].reset_index(drop=True)


def _taken(cache: QueryCache, view: View) -> FigureView:
    cells = _cells(cache, view)
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
    kin = int((frame["family"] == _profile(cache, view).family).sum())
    others, seen_by = pieces.roster_size(cache, view) - 1, cache.reader_words(cache.map_reader(view))
    sentence = (
        f"The ten nearest in the original space; {kin} of them are of its family. n = {others} other sources, as seen "
        f"by {seen_by}."
    )
    return FigureView(neighbourhoods.nearest_sources(frame, cache.marks(), theme=view.theme), sentence)


def _vote_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """The nearest sources with what speaks for each: rank both ways, percentile, p, and readers that agree."""
    frame = _near_rows(cache, view)
    if frame.empty:
        return frame
    votes = cache.ask(page_queries.neighbor_votes, view.roster, view.domain, view.source, NEAREST)
    size = pieces.roster_size(cache, view)
    # The share of all pairs of the roster that are at least as alike: what a pair drawn at random would reach.
    chance = (1 - frame["percentile"]).clip(lower=1 / (size * (size - 1) / 2))
    return frame.assign(p_value=chance).merge(votes, on="neighbor", how="left").sort_values("rank", kind="stable")


def _near(cache: QueryCache, view: View) -> tuple[Component, shell.Children]:
    frame = _vote_rows(cache, view)
    if frame.empty:
        return drawing.absent(drawing.unmapped(cache, view, "neighbourhood"))
    marks = cache.marks()
    rows = [
        pieces.row(
            pieces.marked(
                html.Span(f"{near.rank}", className="rank"), shell.source_link(view, near.neighbor, near.name)
            ),
            pieces.marked(shell.symbol(marks[near.family], view.theme), near.family),
            rate_text(near.cosine),
            f"{100 * near.percentile:.1f} %",
            plots.p_text(near.p_value),
            pieces.count_text(near.rank_back),
            f"{near.near_proxies} of {near.proxies}" if near.proxies else "–",
            f"{near.near} of {near.readers}",
        )
        for near in tables.rows(frame)
    ]
    heads = ["neighbour", "family", "cosine", "percentile", "p", "rank from there", "proxies", "readers"]
    family = _profile(cache, view).family
    members = cache.ask(queries.sources, view.roster)
    kin, siblings = int((frame["family"] == family).sum()), int((members["family"] == family).sum()) - 1
    luck = float(hypergeometric_tail(kin, len(members) - 1, siblings, len(frame)))
    proxies_help = f"Proxy models, whatever they read, that also count it among the {NEAREST} nearest"
    sentence: list[Component | str] = [
        shell.term("Percentile", pieces.PERCENTILE_HELP),
        " and ",
        shell.term("p", pieces.CHANCE_HELP),
        f" are among all pairs of {view.roster}. ",
        shell.term("Proxies", proxies_help),
        f" and readers say who else has it among the {NEAREST} nearest. {kin} of these {len(frame)} are of its "
        f"family; so many or more would be with p {plots.p_text(luck)} if families were dealt out blindly. n = "
        f"{len(members) - 1} sources. Neighbours by parts of the prompts are not stored: how stable the whole picture "
        "is, Neighbourhoods shows.",
    ]
    return pieces.scrolling(pieces.table(heads, rows, "wide near-table")), sentence


def hypergeometric_tail(found: int, others: int, kin: int, drawn: int) -> float:
    """Chance of at least ``found`` kin among ``drawn`` of ``others`` sources of which ``kin`` are kin, exactly."""
    ways = [math.comb(kin, hits) * math.comb(others - kin, drawn - hits) for hits in range(found, min(kin, drawn) + 1)]
    return sum(ways) / math.comb(others, drawn)


def _again_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    frame = cache.ask(queries.cross_domain, cache.map_reader(view), view.roster, view.source)
    keys = ["variant", "query_domain", "gallery_domain"]
    if frame.empty:
        return pd.DataFrame(columns=[*keys, "rank", "cosine", "nearest_other", "other_cosine"])
    wide = frame.pivot_table(index=keys, columns="metric", values="value", sort=False).reset_index()
    named = frame.dropna(subset=["best_other_name"]).drop_duplicates(keys).set_index(keys)["best_other_name"]
    wide["nearest_other"] = [named.get(key) for key in wide[keys].itertuples(index=False, name=None)]
    return wide.rename(columns={"best_other_cosine": "other_cosine"}).rename_axis(None, axis=1)


def _again(cache: QueryCache, view: View) -> tuple[Component, shell.Children]:
    frame = _again_rows(cache, view)
    if frame.empty:
        return drawing.absent(drawing.unmapped(cache, view, "search across domains"))
    rows = [
        pieces.row(
            f"{pieces.domain_words(found.query_domain)} in {pieces.domain_words(found.gallery_domain)}",
            "as it is" if found.variant == "raw" else "domain's mean taken away",
            f"{found.rank:.0f}" if "rank" in frame else "–",
            rate_text(found.cosine) if "cosine" in frame else "–",
            shell.source_name(found.nearest_other) if isinstance(found.nearest_other, str) else "–",
            rate_text(found.other_cosine) if "other_cosine" in frame else "–",
        )
        for found in tables.rows(frame)
    ]
    heads = ["sought", "signature", "rank of itself", "cosine with itself", "nearest other source", "its cosine"]
    sentence = (
        f"Its signature of one domain, sought among the signatures of all sources in the other: rank 1 when itself is "
        f"the nearest. n = {pieces.roster_size(cache, view)} sources."
    )
    return pieces.scrolling(pieces.table(heads, rows)), sentence


def _versus(cache: QueryCache, view: View) -> list[Component]:
    """Two sources compared: confusions both ways, ranks, and the page of the other."""
    if not view.other or view.other == view.source:
        return []
    members = cache.ask(queries.sources, view.roster).set_index("source")
    if view.other not in members.index or view.source not in members.index:
        return [pieces.words(f"One of the two sources is not in {view.roster}.", caution=True)]
    parts: list[Component | str] = []
    cells = _cells(cache, view)
    if len(cells):
        share = cells.set_index(["truth", "predicted"])["share"]
        there, back = (float(share.get(pair, 0.0)) for pair in ((view.source, view.other), (view.other, view.source)))
        parts.append(
            f"At {drawing.traces(view.k)}, {there:.1%} of its groups are answered as the other, {back:.1%} the other "
            "way. "
        )
    near = cache.ask(queries.neighbors, cache.map_reader(view), view.roster, view.domain, view.source)
    found = near[near["neighbor"] == view.other]
    if len(found):
        one = found.iloc[0]
        parts.append(
            f"In the original space their cosine is {rate_text(one['cosine'])}, rank {int(one['rank'])} from here and "
            f"{int(one['rank_back'])} from there. "
        )
    link = shell.source_link(view, view.other, str(members.at[view.other, "name"]))
    return [html.P([html.Span("Beside "), link, ": ", *parts], className="versus")]


def _ordinal(place: int) -> str:
    ending = "th" if 10 <= place % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(place % 10, "th")
    return "The" if place == 1 else f"The {place}{ending}"


def _path(view: View) -> str:
    return shell.source_path(view, view.source).partition("?")[0]


def _soon_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    accuracies = _table(cache, view)
    return accuracies[accuracies["source"].isin([view.source, view.other])]


PAGE = shell.Page(
    name="source",
    path="/source/<label>",
    title="Source",
    icon="",
    layout=layout,
    register=register,
    figures={
        "soon": pieces.meta(
            pieces.without(_soon_rows, "position", "responses"), "source_accuracy", pieces.attribution_key
        ),
        "taken": pieces.meta(
            _taken_rows, "confusion", lambda cache, view: pieces.attribution_key(cache, view) | {"k": view.k}
        ),
        "beside": pieces.meta(
            _near_rows, "neighbors", pieces.map_key("reader", "roster", "domain"), QueryCache.map_reader
        ),
        "near": pieces.meta(_vote_rows, "neighbors", pieces.map_key("roster", "domain"), QueryCache.map_reader),
        "again": pieces.meta(_again_rows, "cross_domain", pieces.map_key("reader", "roster"), QueryCache.map_reader),
    },
)
