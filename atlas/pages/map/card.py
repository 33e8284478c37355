"""The card next to the map: one source's nearest, how soon it is named, and where its other domain lies; or two."""

from __future__ import annotations

import dataclasses
from typing import Any

import pandas as pd
from dash import dcc, html
from dash.development.base_component import Component

from atlas import drawing, shell, tables
from atlas.data import QueryCache
from atlas.figures import plots
from atlas.figures.plots import rate_text
from atlas.pages import pieces
from atlas.state import View
from atlas.theme import Mark, Theme
from backend.protocol import READER_PAPER
from backend.store import queries
from backend.store.page_queries import neighbor_votes

NEAREST = 5
"""Neighbours that are linked and listed, as many as the authors' viewer shows."""
WITHIN = 10
"""Rank up to which a reader counts as agreeing that a source is near."""
VARIANTS = {"raw": "as it is", "centred": "with each domain's mean taken away"}


def card(cache: QueryCache, view: View) -> list[Component]:
    """What the card holds for the selection, or without one."""
    if not view.source:
        return _closest_pairs(cache, view)
    reads, sees = cache.attribution_reader(view), cache.map_reader(view)
    profile = cache.ask(queries.source_profile, view.source, reads, view.roster, view.domain)
    if profile is None:
        return [pieces.words("This source is not in the atlas.")]
    facts: shell.Children = [
        shell.symbol(cache.marks()[profile.family], view.theme),
        shell.family_link(view, profile.family),
        html.Span(" · "),
        pieces.ACCESS_WORDS.get(profile.access, profile.access),
        html.Span(" · "),
        f"{profile.responses:,} responses",
        html.Span(view.source, className="name", title=f"Label: {view.source}", dir="auto"),
    ]
    parts: list[Component] = [
        html.H2(shell.source_link(view, view.source, profile.name), className="card-name"),
        html.P(facts, className="card-facts"),
    ]
    if view.roster not in profile.rosters:
        return [*parts, pieces.words(f"Not in {view.roster}; it is in {', '.join(profile.rosters)}.", caution=True)]
    more = [_nearest(cache, view, sees), _accuracy(profile), _other_domain(cache, view, sees), _pair(cache, view)]
    return [*parts, *(part for some in more for part in some)]


def voters(cache: QueryCache, view: View) -> list[str]:
    """Readers of the paper's method with neighbours of this roster and domain, in the view that is shown."""
    shown = cache.map_reader(view)
    if not shown:
        return []
    readers = cache.ask(queries.readers)
    alike = (readers["method"] == READER_PAPER) & (readers["view"] == cache.reader_row(shown)["view"])
    return [
        str(row.reader)
        for row in tables.rows(readers[alike])
        if view.domain in row.domains and view.roster in row.rosters
    ]


def _other_domain(cache: QueryCache, view: View, reader: str) -> list[Component]:
    """Where the source's signature of this domain finds it in the other one."""
    frame = cache.ask(queries.cross_domain, reader, view.roster, view.source) if reader else pd.DataFrame()
    if frame.empty:
        return []
    frame = frame[(frame["metric"] == "rank") & (frame["query_domain"] == view.domain)]
    ranks = dict(zip(frame["variant"], frame["value"], strict=True))
    if not ranks:
        return []
    other = pieces.domain_words(str(frame["gallery_domain"].iloc[0]))
    text = " and ".join(f"rank {ranks[name]:.0f} {VARIANTS[name]}" for name in VARIANTS if name in ranks)
    meaning = "Rank of the source itself among all signatures of the other domain: 1 is found"
    return [
        html.H3(["Sought in ", shell.term(other, meaning)]),
        pieces.words(f"{text[:1].upper()}{text[1:]}, of {pieces.roster_size(cache, view)}."),
    ]


def _pair(cache: QueryCache, view: View) -> list[Component]:
    """The selection and a second source, as every reader sees the two."""
    if not view.other or view.other == view.source:
        return []
    frame = cache.ask(queries.pair_ranks, view.roster, view.domain, view.source, view.other)
    members = cache.ask(queries.sources, view.roster).set_index("source")
    if frame.empty or view.other not in members.index:
        return [pieces.words(f"No reader has ranks of this pair for {drawing.choice_words(view)}.", caution=True)]
    shown, names = cache.map_reader(view), cache.short_names(list(frame["reader"]))
    rows = [
        pieces.row(
            names[pair.reader], pieces.count_text(pair.mutual_rank), _cosine_text(pair.cosine),
            here=pair.reader == shown, title=cache.reader_name(pair.reader),
        )
        for pair in tables.rows(frame)
    ]  # fmt: skip
    mutual = shell.term("mutual rank", "The worse of the two ranks: of the second from the first, and back")
    other: Any = members.loc[view.other]
    link = f"{shell.source_path(view, view.source)}&{View(other=view.other).query()}"
    return [
        html.H3("Beside"),
        symbol_and_name(cache.marks()[other["family"]], view.theme, other["name"]),
        pieces.table(["Reader", html.Th(mutual), "cosine"], rows, "beside"),
        *_by_domain(cache, view),
        dcc.Link("Compare the two in full", href=link, className="forward"),
    ]


def _by_domain(cache: QueryCache, view: View) -> list[Component]:
    """The pair in every domain in which the reader of the map has seen both; nothing where that is one alone."""
    found = []
    for domain in cache.domains():
        frame = cache.ask(queries.pair_ranks, view.roster, domain, view.source, view.other)
        own = frame[frame["reader"] == cache.map_reader(dataclasses.replace(view, domain=domain))]
        if len(own):
            found.append(f"{_cosine_text(own['cosine'].iloc[0])} on {pieces.domain_words(domain)}")
    return [pieces.words(f"On this map, cosine {' and '.join(found)}.")] if len(found) > 1 else []


def _near_rows(cache: QueryCache, view: View, reader: str, source: str | None) -> pd.DataFrame:
    if not reader:
        return pd.DataFrame()
    return cache.ask(queries.neighbors, reader, view.roster, view.domain, source, NEAREST)


def _nearest(cache: QueryCache, view: View, reader: str) -> list[Component]:
    near = _near_rows(cache, view, reader, view.source)
    if near.empty:
        return [pieces.words("No neighbours are stored for this choice.")]
    marks = cache.marks()
    maps = cache.ask(queries.maps)
    agree = sorted(set(maps["reader"][(maps["roster"] == view.roster) & (maps["domain"] == view.domain)]))
    votes = cache.ask(neighbor_votes, view.roster, view.domain, view.source, WITHIN, agree).set_index("neighbor")
    several = len(agree) > 1
    size = pieces.roster_size(cache, view)
    pairs = size * (size - 1) // 2
    # The share of all pairs that are at least as alike, of which the pair itself is one.
    chances = [plots.p_text(chance) for chance in (1 - near["percentile"]).clip(lower=1 / pairs)]
    between = f"= {chances[0]}" if chances[0] == chances[-1] else f"from {chances[0]} to {chances[-1]}"
    rows = [
        html.Button(
            id={"type": "walk", "source": one.neighbor, "place": "near"},
            className="near-row",
            title=f"Rank {one.rank} from here, rank {one.rank_back} from there",
            children=[
                html.Span(str(one.rank), className="number rank"),
                shell.symbol(marks[one.family], view.theme),
                shell.source_name(one.shown),
                pieces.number(_cosine_text(one.cosine)),
                pieces.number(_percent(one.percentile), soft=True),
                *([pieces.number(_votes(votes, one.neighbor), soft=True)] if several else []),
            ],
        )
        for one in tables.rows(near.rename(columns={"name": "shown"}))
    ]
    seen = f"Readers with a map of this choice that have it among the {WITHIN} nearest"
    head = [
        html.Span("", className="rank"),
        html.Span(""),
        html.Span("source"),
        shell.term("cosine", "Cosine of the two mean fingerprints: 1 when they point the same way"),
        shell.term("percentile", "Share of all pairs of sources that are less similar than this one"),
        *([shell.term("seen by", seen)] if several else []),
    ]
    return [
        html.H3(["Nearest in the ", shell.term("original space", pieces.ORIGINAL_HELP)]),
        html.Div(head, className="near-row near-head"),
        html.Div(rows, className="near"),
        pieces.words(shell.term("p", pieces.CHANCE_HELP), f" {between}, among {pairs:,} pairs."),
    ]


def _votes(votes: pd.DataFrame, neighbor: str) -> str:
    return f"{votes['near'][neighbor]}/{votes['readers'][neighbor]}" if neighbor in votes.index else "–"


def _accuracy(profile: queries.SourceProfile) -> list[Component]:
    if profile.accuracy.empty:
        text = "Nothing is measured for this reader, roster and domain."
        return [html.H3("How soon it is recognised"), pieces.words(text)]
    bars = []
    for one in tables.rows(profile.accuracy):
        fill = html.Span(className="bar-fill", style={"height": f"{100 * one.accuracy:.1f}%"})
        content = [
            pieces.number(rate_text(one.accuracy) if one.accuracy < 1 else "1"),
            html.Span(fill, className="bar-track"),
            pieces.number(str(one.k), soft=True),
        ]
        bars.append(html.Div(content, className="bar-cell", title=f"{one.accuracy:.1%} of {one.n} groups a seed"))
    budget = shell.term("budget K", "How many traces of the source are seen before it is named")
    parts: list[Component] = [html.H3(["Accuracy by ", budget]), html.Div(bars, className="bars")]
    if len(profile.confusions):
        worst = profile.confusions.iloc[0]
        identity = {"type": "walk", "source": worst["predicted"], "place": "confused"}
        content = [shell.source_name(worst["name"]), pieces.number(f"{worst['share']:.1%}")]
        parts.append(html.H3("Most confused with, at one trace"))
        parts.append(html.Button(content, id=identity, className="near-row confused-row"))
    return parts


def _closest_pairs(cache: QueryCache, view: View) -> list[Component]:
    """Before anything is selected: the nearest pairs whose families differ."""
    hint = pieces.words("Click a point, or press / and type a name.")
    near = _near_rows(cache, view, cache.map_reader(view), None)
    if near.empty:
        return [hint]
    members: Any = cache.ask(queries.sources, view.roster).set_index("source")
    marks = cache.marks()
    far = near[near["family"] != near["source"].map(members["family"])]
    far = far[far["source"] < far["neighbor"]].sort_values("cosine", ascending=False).head(NEAREST)
    rows = []
    for place, pair in enumerate(tables.rows(far)):
        both = [
            symbol_and_name(marks[members.at[source, "family"]], view.theme, members.at[source, "name"])
            for source in (pair.source, pair.neighbor)
        ]
        content = [html.Span(both, className="pair-names"), pieces.number(_cosine_text(pair.cosine))]
        identity = {"type": "walk", "source": pair.source, "place": f"pair-{place}"}
        rows.append(html.Button(content, id=identity, className="pair-row"))
    title = html.H2("Nearest pairs across families, by cosine", className="minor")
    return [hint, title, html.Div(rows, className="near")]


def symbol_and_name(mark: Mark, theme: Theme, name: str) -> Component:
    """A source in one line: its family's mark and its name."""
    return pieces.marked(shell.symbol(mark, theme), shell.source_name(name))


def _percent(share: float) -> str:
    return "100%" if share >= 0.9995 else f"{100 * share:.1f}%"


def _cosine_text(value: float) -> str:
    """A cosine; near 1, where a roster's pairs differ in the fourth digit, with more of them."""
    return f"{value:.5f}".removeprefix("0") if 0.9995 <= value < 1 else rate_text(value)
