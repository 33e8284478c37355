"""One source: how soon it is named, what it is taken for, what is near to it, and how it compares with another."""

from __future__ import annotations

from urllib.parse import urlencode

import pandas as pd
from dash import Dash, Input, dcc, html
from dash.development.base_component import Component

from atlas import drawing, shell
from atlas.data import QueryCache
from atlas.drawing import FigureView
from atlas.figures import neighbourhoods, plots, sources, tables
from atlas.figures.plots import Line
from atlas.pages import pieces
from atlas.pages.compare.readers import percent
from atlas.pages.pieces import PageFigure
from atlas.state import View
from atlas.theme import READER_COLOURS
from backend.geometry.neighborhoods import hypergeometric_tail
from backend.inference.drift import p_text
from backend.protocol import GROUPING_SEEDS
from backend.store import page_queries, queries

TAKEN = 12


@pieces.subject_page("source", "label", "source")
def layout(cache: QueryCache, requested: View, view: View) -> Component:
    """The page of a source for a query string."""
    profile = _profile(cache, view)
    show = pieces.sections(FIGURES, cache, view)
    kicker: list[Component | str] = ["Source of ", shell.family_link(view, profile.family)]
    title = html.Span(profile.name, dir="auto", className="long")
    facts = html.Div(_facts(cache, view), id="source-facts", className="source-facts")
    field = "source-other", cache, view, view.other, "Compare with", "Another source", "Source to compare with"
    compared = html.Div([pieces.source_field(*field), pieces.live("versus", _versus(cache, view))], className="versus")
    return html.Div(
        [
            shell.settled(requested, view),
            drawing.remembered(PAGE.name),
            dcc.Store(id="source-label", data=view.source),
            pieces.subject_head("source", kicker, title, facts, _answer(cache, view), view),
            compared,
            show("soon"),
            html.Div([show("taken"), show("beside")], className="two"),
            show("near"),
            show("again"),
        ],
        className="column",
    )


def register(app: Dash) -> None:
    """Callbacks of the page."""
    source, k, other = Input("source-label", "data"), Input("source-k", "value"), Input("source-other", "value")
    drawing.remember(app, PAGE.name, source=source, k=k, other=other)
    pieces.follow(app, FIGURES, drawing.place("source-facts", _facts), "beside near again", source=source)
    pieces.follow(app, FIGURES, drawing.place("source-answer", _answer), "taken", source=source, k=k)
    pieces.follow(app, FIGURES, "soon", drawing.place("versus", _versus), source=source, k=k, other=other)
    pieces.offer_sources(app, "source-other")


def _profile(cache: QueryCache, view: View) -> queries.SourceProfile:
    reader = cache.attribution_reader(view)
    profile = cache.ask(queries.source_profile, view.source, reader, view.roster, view.domain)
    assert profile is not None, "settled"
    return profile


def _facts(cache: QueryCache, view: View) -> list[Component | str]:
    profile = _profile(cache, view)
    rosters = ", ".join(profile.rosters)
    links = {"Show it on the map": "/", "Show its neighbourhood": "/neighbourhoods"}
    query = pieces.choices_query(view, source=view.source)
    test = f"/attribute?{urlencode({'claim': view.source})}&{pieces.choices_query(view)}"
    family = pieces.marked(
        shell.symbol(cache.marks()[profile.family], view.theme), shell.family_link(view, profile.family)
    )
    facts: dict[str, shell.Children] = {
        "Family": family,
        "Repository id": shell.source_name(profile.name),
        "Label": shell.source_name(view.source),
        "Access": pieces.ACCESS_WORDS.get(profile.access, profile.access),
        "Responses": pieces.response_counts(cache, view, profile.responses),
        "Rosters": rosters if view.roster in profile.rosters else f"{rosters} (not in {view.roster})",
    }
    return [
        html.Dl([html.Div([html.Dt(word), html.Dd(fact)]) for word, fact in facts.items()], className="facts-row"),
        html.Div(
            [
                *(dcc.Link(word, href=f"{path}?{query}") for word, path in links.items()),
                dcc.Link("Test traces against this source", href=test, id="source-test"),
            ],
            className="ways",
        ),
    ]


def _answer(cache: QueryCache, view: View) -> list[Component | str]:
    accuracies = pieces.source_accuracies(cache, view)
    own = sources.accuracy_of(accuracies, [view.source])
    if view.k not in own:
        return [f"Nothing has been measured for this source, {drawing.choice_words(view)}."]
    values = accuracies[f"accuracy_{view.k}"].dropna()
    groups = int(_profile(cache, view).accuracy.set_index("k")["n"][view.k])
    low, high = plots.wilson(own[view.k], groups)
    total = len(GROUPING_SEEDS) * groups
    return [
        f"With {drawing.traces(view.k)} it is named first in ",
        html.Strong(sources.accuracy_text(own, view.k)),
        f" of its groups, {round(own[view.k] * total)} of {total} (n = {len(GROUPING_SEEDS)} seeds × {groups} groups; "
        f"95 % interval of one seed's {groups}: {100 * low:.1f} to {100 * high:.1f} %). Median of all sources: "
        f"{100 * values.median():.1f} %. ",
        _rank_words(own[view.k], values),
    ]


def _rank_words(own: float, values: pd.Series) -> str:
    """How easy a source is to name among all; sources with the same accuracy share a rank."""
    place, others = int((values > own).sum()) + 1, int((values == own).sum()) - 1
    if others and own in (0, 1):
        often = "in all of their groups" if own else "in none of their groups"
        return f"{others + 1} of all {len(values)} sources are named first {often}."
    easiest = f"The {pieces.ordinal(place)} easiest" if place > 1 else "The easiest"
    rank = "The hardest" if own == values.min() < values.max() else easiest
    level = f", level with {pieces.counted(others, 'other')}" if others else ""
    return f"{rank} of {len(values)} sources{level}."


def _soon(cache: QueryCache, view: View) -> FigureView:
    accuracies = pieces.source_accuracies(cache, view)
    own = sources.accuracy_of(accuracies, [view.source])
    if not own:
        return drawing.unmeasured(cache, view, "accuracy of this source", _path(view))
    names = accuracies.set_index("source")["name"]
    colours = READER_COLOURS[view.theme]
    lines = [(Line(view.source, names[view.source], colours[0]), own)]
    if view.other and view.other != view.source and view.other in names.index:
        other = sources.accuracy_of(accuracies, [view.other])
        lines.insert(0, (Line(view.other, names[view.other], colours[1], "dot"), other))
    groups = _profile(cache, view).accuracy.set_index("k")["n"]
    spread = {k: plots.wilson(share, int(groups[k])) for k, share in own.items()}
    sentence = (
        f"Share of its groups of K traces that are given to it, on {pieces.domain_words(view.domain)} by "
        f"{cache.reader_words(cache.attribution_reader(view))}. Grey: the middle half and the middle 80 % of all "
        f"{len(accuracies)} sources. Bars: 95 % Wilson interval of its groups of one seed. "
        f"n = {int(groups.iloc[0]):,} groups a seed at K = {int(groups.index[0])}."
    )
    figure = sources.accuracy_curves(accuracies, lines, theme=view.theme, k=view.k, spread=spread)
    return FigureView(figure, sentence)


def _taken_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    cells = pieces.confusion(cache, view)
    wrong = cells[cells["truth"] != cells["predicted"]]
    out = wrong[wrong["truth"] == view.source].set_index("predicted")["share"]
    into = wrong[wrong["predicted"] == view.source].set_index("truth")["share"]
    members = cache.ask(queries.sources, view.roster).set_index("source")
    frame = pd.DataFrame({"answered_as": out, "named_for": into}).fillna(0.0)
    frame = frame.join(members[["name", "family"]], how="inner").rename_axis("source").reset_index()
    order = frame[["answered_as", "named_for"]].max(axis=1).sort_values(ascending=False, kind="stable").index
    return frame.loc[order, ["source", "name", "family", "answered_as", "named_for"]].reset_index(drop=True)


def _taken(cache: QueryCache, view: View) -> FigureView:
    cells = pieces.confusion(cache, view)
    if cells.empty:
        return drawing.unmeasured(cache, view, f"confusion counts at K = {view.k}", _path(view))
    frame = _taken_rows(cache, view)
    groups = int(cells.loc[cells["truth"] == view.source, "count"].sum())
    traces = drawing.traces(view.k)
    if frame.empty:
        none = f"At {traces} it is never taken for another: no error in n = {groups:,} groups over three seeds."
        return FigureView(drawing.blank(view.theme), none, html.Span(className="few"))
    rest = f" The {TAKEN} most frequent of {len(frame)}." if len(frame) > TAKEN else ""
    out, into = (frame.nlargest(1, column).iloc[0] for column in ("answered_as", "named_for"))
    errors = frame["answered_as"].sum()
    sentence = (
        f"{percent(errors)} of its groups are answered as another, most often {out['name']}"
        if errors
        else f"At {traces} it is never taken for another"
    )
    if into["named_for"]:
        its = cells[cells["truth"] == into["source"]]
        count = its.loc[its["predicted"] == view.source, "count"].sum()
        sentence += (
            f"; {into['name']} is taken for it in {percent(into['named_for'])} of its own groups ({count:,} of "
            f"{its['count'].sum():,})"
        )
    sentence += f". Wrong answers at {traces}, as shares of the true source's groups. "
    sentence += f"n = {groups:,} groups of each source.{rest}"
    if len(frame) == 1:
        return FigureView(drawing.blank(view.theme), sentence, html.Span(className="few"))
    return FigureView(sources.taken_for(frame.head(TAKEN), cache.marks(), theme=view.theme), sentence)


@pieces.needs(pieces.nearest_rows, pieces.unmapped("neighbourhood"))
def _neighbours(cache: QueryCache, view: View, frame: pd.DataFrame) -> FigureView:
    kin = int((frame["family"] == _profile(cache, view).family).sum())
    others, seen_by = pieces.roster_size(cache, view) - 1, cache.reader_words(cache.map_reader(view))
    sentence = (
        f"The ten nearest in the original space; {kin} of them are of its family. n = {others} other sources, as seen "
        f"by {seen_by}."
    )
    return FigureView(neighbourhoods.nearest_sources(frame, cache.marks(), theme=view.theme), sentence)


def _vote_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """The nearest sources with what speaks for each: rank both ways, percentile, p, and readers that agree."""
    frame = pieces.nearest_rows(cache, view)
    if frame.empty:
        return frame
    votes = cache.ask(page_queries.neighbor_votes, view.roster, view.domain, view.source, pieces.NEAREST)
    chance = pieces.chance_of(frame["percentile"], pieces.roster_size(cache, view))
    return frame.assign(p_value=chance).merge(votes, on="neighbor", how="left").sort_values("rank", kind="stable")


@pieces.needs(_vote_rows, pieces.no_grid(pieces.unmapped("neighbourhood")))
def _near(cache: QueryCache, view: View, frame: pd.DataFrame) -> pieces.GridView:
    marks = cache.marks()
    rows = [
        pieces.row(
            pieces.marked(
                html.Span(f"{near.rank}", className="rank"), shell.source_link(view, near.neighbor, near.name)
            ),
            pieces.marked(shell.symbol(marks[near.family], view.theme), near.family),
            plots.cosine_text(near.cosine),
            f"{100 * near.percentile:.1f} %",
            pieces.count_text(near.rank_back),
            f"{near.near_proxies} of {near.proxies}" if near.proxies else "–",
            f"{near.near} of {near.readers}",
        )
        for near in tables.rows(frame)
    ]
    heads = ["neighbour", "family", "cosine", "percentile", "rank from there", "language models", "readers"]
    family = _profile(cache, view).family
    members = cache.ask(queries.sources, view.roster)
    kin, siblings = int((frame["family"] == family).sum()), int((members["family"] == family).sum()) - 1
    luck = float(hypergeometric_tail(kin, len(members) - 1, siblings, len(frame)))
    voted = cache.ask(page_queries.voting_proxies, view.roster, view.domain, view.source)["name"]
    models_help = "Small models that read the responses: for how many of them it is among the nearest"
    sentence: list[Component | str] = [
        shell.term("Percentile", pieces.PERCENTILE_HELP),
        f" is among all pairs of {view.roster}. ",
        shell.term("Language models", models_help),
        f" ({' and '.join(voted)}) and all readers, theirs among them, say who else has it among the "
        f"{pieces.NEAREST} nearest. {kin} of these {len(frame)} are of its "
        f"family; chance would give so many with a probability of {p_text(luck)}. n = "
        f"{len(members) - 1} sources. Neighbourhoods shows how stable the whole picture is.",
        pieces.more_columns(),
    ]
    return pieces.scrolling(pieces.table(heads, rows, "wide near-table")), sentence


def _again_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    frame = cache.ask(queries.cross_domain, cache.map_reader(view), view.roster, view.source)
    keys = ["variant", "query_domain", "gallery_domain"]
    if frame.empty:
        return pd.DataFrame(columns=[*keys, "rank", "cosine", "nearest_other", "other_cosine"])
    wide = frame.pivot_table(index=keys, columns="metric", values="value", sort=False).reset_index()
    named = frame.dropna(subset=["best_other_name"]).drop_duplicates(keys).set_index(keys)["best_other_name"]
    wide["nearest_other"] = [named.get(key) for key in wide[keys].itertuples(index=False, name=None)]
    return wide.rename(columns={"best_other_cosine": "other_cosine"}).rename_axis(None, axis=1)


@pieces.needs(_again_rows, pieces.no_grid(pieces.unmapped("search across domains")))
def _again(cache: QueryCache, view: View, frame: pd.DataFrame) -> pieces.GridView:
    usual = cache.ask(page_queries.domain_ranks, cache.map_reader(view), view.roster)
    medians = usual.set_index(["variant", "query_domain"])["median"]
    rows = [
        pieces.row(
            f"{pieces.domain_words(found.query_domain)} in {pieces.domain_words(found.gallery_domain)}",
            "as it is" if found.variant == "raw" else "domain's mean taken away",
            f"{found.rank:.0f}" if "rank" in frame else "–",
            f"{medians[found.variant, found.query_domain]:.0f}" if "rank" in frame else "–",
            plots.cosine_text(found.cosine) if "cosine" in frame else "–",
            shell.source_name(found.nearest_other) if isinstance(found.nearest_other, str) else "–",
            plots.cosine_text(found.other_cosine) if "other_cosine" in frame else "–",
        )
        for found in tables.rows(frame)
    ]
    heads = [
        "sought",
        "signature",
        "rank of itself",
        "median rank",
        "cosine with itself",
        "nearest other source",
        "its cosine",
    ]
    sentence = (
        f"Its signature of one domain, sought among the signatures of all sources in the other. Rank 1: it is found, "
        "as the nearest to itself. Without its domain's mean, a signature holds only what sets a source apart from "
        f"the others there. Median rank: over all sources, sought in the same way.{_one_way(frame)} n = "
        f"{pieces.roster_size(cache, view)} sources."
    )
    return pieces.scrolling(pieces.table(heads, rows)), sentence


def _one_way(frame: pd.DataFrame) -> str:
    """That the opposite way is not measured, where that is so."""
    ways = frame[["query_domain", "gallery_domain"]].drop_duplicates()
    if len(ways) > 1:
        return ""
    query, gallery = map(pieces.domain_words, ways.iloc[0])
    return f" {gallery} in {query} is not measured."


def _versus(cache: QueryCache, view: View) -> list[Component]:
    """Two sources compared: confusions both ways, ranks, and the page of the other."""
    if not view.other or view.other == view.source:
        return []
    members = cache.ask(queries.sources, view.roster).set_index("source")
    if view.other not in members.index or view.source not in members.index:
        return [pieces.words(f"One of the two sources is not in {view.roster}.", caution=True)]
    parts: list[Component | str] = []
    near = cache.ask(queries.neighbors, cache.map_reader(view), view.roster, view.domain, view.source)
    found = near[near["neighbor"] == view.other]
    if len(found):
        one = found.iloc[0]
        parts += [
            "Cosine ", html.Strong(plots.cosine_text(one["cosine"])),
            f" in the original space; rank {int(one['rank'])} from here, {int(one['rank_back'])} from there. ",
        ]  # fmt: skip
    cells = pieces.confusion(cache, view)
    if len(cells):
        share = cells.set_index(["truth", "predicted"])["share"]
        there, back = (float(share.get(pair, 0.0)) for pair in ((view.source, view.other), (view.other, view.source)))
        parts.append(
            f"At {drawing.traces(view.k)}, {100 * there:.1f} % of its groups are answered as the other, "
            f"{100 * back:.1f} % the other way."
        )
    names = [str(members.at[source, "name"]) for source in (view.source, view.other)]
    pair: list[Component | str] = [shell.source_name(names[0]), " and ", shell.source_link(view, view.other, names[1])]
    if not parts:
        parts.append("Neither their cosine nor their confusions are stored.")
    return [html.P(parts, className="answer"), html.P(pair, className="marked")]


def _path(view: View) -> str:
    return shell.source_path(view, view.source).partition("?")[0]


def _soon_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    accuracies = pieces.source_accuracies(cache, view)
    return accuracies[accuracies["source"].isin([view.source, view.other])]


def _mapped(rows: pieces.Rows, store: str, *names: str) -> shell.FigureMeta:
    return pieces.meta(rows, store, pieces.map_key(*names), QueryCache.map_reader)


_SOON = pieces.meta(pieces.without(_soon_rows, "position", "responses"), "source_accuracy", pieces.attribution_key)
FIGURES = {
    "soon": PageFigure("How soon is it named?", _soon, _SOON, 380),
    "taken": PageFigure(
        "What is it taken for?", _taken, pieces.meta(_taken_rows, "confusion", pieces.budget_key),
        lambda cache, view: sources.bars_height(len(_taken_rows(cache, view)), TAKEN),
    ),
    "beside": PageFigure(
        "What is nearest to it?", _neighbours, _mapped(pieces.nearest_rows, "neighbors", "reader", "roster", "domain"),
        420,
    ),
    "near": PageFigure(
        "How sure is each neighbour?", _near, _mapped(_vote_rows, "neighbors", "roster", "domain"), grid=True
    ),
    "again": PageFigure(
        "Is it found again in the other domain?", _again, _mapped(_again_rows, "cross_domain", "reader", "roster"),
        grid=True,
    ),
}  # fmt: skip
PAGE = pieces.page("source", layout, register, FIGURES, path="/source/<label>", icon="")
