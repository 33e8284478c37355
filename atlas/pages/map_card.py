"""The card beside the map: one source's nearest, how soon it is named, and where its other domain lies; or two."""

from __future__ import annotations

import dataclasses

import pandas as pd
from dash import dcc, html
from dash.development.base_component import Component

from atlas import drawing, shell
from atlas.data import DOMAIN_NAMES, QueryCache
from atlas.figures.attribution import rate_text
from atlas.figures.plots import p_text
from atlas.state import View
from atlas.theme import Mark, Theme
from backend.protocol import READER_PAPER
from backend.store import queries
from backend.store.map_queries import neighbor_votes

NEAREST = 5
"""Neighbours that are linked and listed, as many as the authors' viewer shows."""
WITHIN = 10
"""Rank up to which a reader counts as agreeing that a source is near."""


def card(cache: QueryCache, view: View) -> list[Component]:
    if not view.source:
        return _closest_pairs(cache, view)
    reads, sees = cache.attribution_reader(view), cache.map_reader(view)
    profile = cache.ask(queries.source_profile, view.source, reads, view.roster, view.domain)
    if profile is None:
        return [html.P("This source is not in the atlas.", className="sentence")]
    mark = cache.marks()[profile.family]
    responses = f"{profile.responses:,} responses"
    parts: list[Component] = [
        html.H2(shell.source_link(view, view.source, profile.name), className="card-name"),
        html.P(
            [
                shell.symbol(mark, view.theme),
                shell.family_link(view, profile.family),
                html.Span(" · "),
                {"local": "local weights", "api": "API"}.get(profile.access, profile.access),
                html.Span(" · "),
                responses,
                html.Span(view.source, className="name", title=f"Label: {view.source}", dir="auto"),
            ],
            className="card-facts",
        ),
    ]
    if view.roster not in profile.rosters:
        parts.append(
            html.P(f"Not in {view.roster}; it is in {', '.join(profile.rosters)}.", className="sentence caution")
        )
        return parts
    parts += _nearest(cache, view, sees)
    parts += _accuracy(view, profile)
    parts += _elsewhere(cache, view, sees)
    parts += _beside(cache, view)
    return parts


def voters(cache: QueryCache, view: View) -> list[str]:
    """Readers of the paper's method with neighbours of this roster and domain, in the view that is shown."""
    shown = cache.map_reader(view)
    if not shown:
        return []
    readers = cache.ask(queries.readers)
    alike = (readers["method"] == READER_PAPER) & (readers["view"] == cache.reader_row(shown)["view"])
    return [
        str(row.reader)
        for row in readers[alike].itertuples(index=False)
        if view.domain in row.domains and view.roster in row.rosters
    ]


def _elsewhere(cache: QueryCache, view: View, reader: str) -> list[Component]:
    """Where the source's signature of this domain finds it in the other one."""
    frame = cache.ask(queries.cross_domain, reader, view.roster, view.source) if reader else pd.DataFrame()
    if frame.empty:
        return []
    frame = frame[(frame["metric"] == "rank") & (frame["query_domain"] == view.domain)]
    ranks = dict(zip(frame["variant"], frame["value"], strict=True))
    if not ranks:
        return []
    size = len(cache.ask(queries.sources, view.roster))
    other = DOMAIN_NAMES.get(str(frame["gallery_domain"].iloc[0]), str(frame["gallery_domain"].iloc[0]))
    words = {"raw": "as it is", "centred": "with each domain's mean taken away"}
    text = " and ".join(f"rank {ranks[name]:.0f} {words[name]}" for name in words if name in ranks)
    return [
        html.H3(
            [
                "Sought in ",
                shell.term(other, "Rank of the source itself among all signatures of the other domain: 1 is found"),
            ]
        ),
        html.P(f"{text[:1].upper()}{text[1:]}, of {size}.", className="sentence"),
    ]


def _beside(cache: QueryCache, view: View) -> list[Component]:
    """The selection and a second source, as every reader sees the two."""
    if not view.other or view.other == view.source:
        return []
    frame = cache.ask(queries.pair_ranks, view.roster, view.domain, view.source, view.other)
    members = cache.ask(queries.sources, view.roster).set_index("source")
    if frame.empty or view.other not in members.index:
        return [
            html.P(f"No reader has ranks of this pair for {drawing.choice_words(view)}.", className="sentence caution")
        ]
    shown, names = cache.map_reader(view), cache.short_names(list(frame["reader"]))
    body = [
        html.Tr(
            [
                html.Th(names[row.reader], scope="row", title=cache.reader_name(row.reader)),
                html.Td("–" if pd.isna(row.mutual_rank) else f"{row.mutual_rank:.0f}"),
                html.Td(_cosine_text(row.cosine)),
            ],
            className="here" if row.reader == shown else "",
        )
        for row in frame.itertuples(index=False)
    ]
    heads = [
        html.Th("Reader", scope="col"),
        html.Th(shell.term("mutual rank", "The worse of the two ranks: of the second from the first, and back")),
        html.Th("cosine", scope="col"),
    ]
    own = cache.marks()[members.at[view.other, "family"]]
    link = f"{shell.source_path(view, view.source)}&{View(other=view.other).query()}"
    return [
        html.H3("Beside"),
        symbol_and_name(own, view.theme, members.at[view.other, "name"]),
        html.Table([html.Thead(html.Tr(heads)), html.Tbody(body)], className="small beside"),
        *_by_domain(cache, view),
        dcc.Link("Compare the two in full", href=link, className="forward"),
    ]


def _by_domain(cache: QueryCache, view: View) -> list[Component]:
    """The pair in every domain in which the reader of the map has seen both; nothing where that is one alone."""
    told = []
    for domain in cache.domains():
        here = dataclasses.replace(view, domain=domain)
        frame = cache.ask(queries.pair_ranks, view.roster, domain, view.source, view.other)
        own = frame[frame["reader"] == cache.map_reader(here)]
        if len(own):
            told.append(f"{_cosine_text(own['cosine'].iloc[0])} on {DOMAIN_NAMES.get(domain, domain)}")
    return [html.P(f"On this map, cosine {' and '.join(told)}.", className="sentence")] if len(told) > 1 else []


def _nearest(cache: QueryCache, view: View, reader: str) -> list[Component]:
    near = (
        cache.ask(queries.neighbors, reader, view.roster, view.domain, view.source, NEAREST)
        if reader
        else pd.DataFrame()
    )
    if near.empty:
        return [html.P("No neighbours are stored for this choice.", className="sentence")]
    marks = cache.marks()
    maps = cache.ask(queries.maps)
    agree = sorted(set(maps["reader"][(maps["roster"] == view.roster) & (maps["domain"] == view.domain)]))
    votes = cache.ask(neighbor_votes, agree, view.roster, view.domain, view.source, WITHIN).set_index("neighbor")
    several = len(agree) > 1
    size = len(cache.ask(queries.sources, view.roster))
    chances = [p_text(chance) for chance in _chances(near["percentile"], size)]
    rows = [
        html.Button(
            id={"type": "walk", "source": row.neighbor, "place": "near"},
            className="near-row",
            title=f"Rank {row.rank} from here, rank {row.rank_back} from there",
            children=[
                html.Span(str(row.rank), className="number rank"),
                shell.symbol(marks[row.family], view.theme),
                shell.source_name(row.shown),
                html.Span(_cosine_text(row.cosine), className="number"),
                html.Span(_percent(row.percentile), className="number soft"),
                *([html.Span(_votes(votes, row.neighbor), className="number soft")] if several else []),
            ],
        )
        for row in near.rename(columns={"name": "shown"}).itertuples(index=False)
    ]
    return [
        html.H3(
            [
                "Nearest in the ",
                shell.term("original space", "All dimensions of the fingerprint, before any projection to the screen"),
            ]
        ),
        html.Div(
            [
                html.Span("", className="rank"),
                html.Span(""),
                html.Span("source"),
                shell.term("cosine", "Cosine of the two mean fingerprints: 1 when they point the same way"),
                shell.term("percentile", "Share of all pairs of sources that are less similar than this one"),
                *(
                    [
                        shell.term(
                            "seen by", f"Readers with a map of this choice that have it among the {WITHIN} nearest"
                        )
                    ]
                    if several
                    else []
                ),
            ],
            className="near-row near-head",
        ),
        html.Div(rows, className="near"),
        html.P(
            [
                shell.term("p", "How often a pair of sources drawn at random is at least as alike"),
                f" {_between(chances)}, among {size * (size - 1) // 2:,} pairs.",
            ],
            className="sentence",
        ),
    ]


def _chances(percentiles: pd.Series, size: int) -> pd.Series:
    """Share of all pairs of so many sources that are at least as alike, of which the pair itself is one."""
    return (1 - percentiles).clip(lower=2 / (size * (size - 1)))


def _between(values: list[str]) -> str:
    """The first and the last of some values in order, or the one that they share."""
    return f"= {values[0]}" if values[0] == values[-1] else f"from {values[0]} to {values[-1]}"


def _votes(votes: pd.DataFrame, neighbor: str) -> str:
    return f"{votes.at[neighbor, 'near']}/{votes.at[neighbor, 'readers']}" if neighbor in votes.index else "–"


def _accuracy(view: View, profile: queries.SourceProfile) -> list[Component]:
    if profile.accuracy.empty:
        return [
            html.H3("How soon it is recognised"),
            html.P("Nothing is measured for this reader, roster and domain.", className="sentence"),
        ]
    bars = [
        html.Div(
            className="bar-cell",
            title=f"{row.accuracy:.1%} of {row.n} groups a seed",
            children=[
                html.Span(rate_text(row.accuracy) if row.accuracy < 1 else "1", className="number"),
                html.Span(
                    html.Span(className="bar-fill", style={"height": f"{100 * row.accuracy:.1f}%"}),
                    className="bar-track",
                ),
                html.Span(str(row.k), className="number soft"),
            ],
        )
        for row in profile.accuracy.itertuples(index=False)
    ]
    parts: list[Component] = [
        html.H3(["Accuracy by ", shell.term("budget K", "How many traces of the source are seen before it is named")]),
        html.Div(bars, className="bars"),
    ]
    if len(profile.confusions):
        worst = profile.confusions.iloc[0]
        parts += [
            html.H3("Most confused with, at one trace"),
            html.Button(
                id={"type": "walk", "source": worst["predicted"], "place": "confused"},
                className="near-row confused-row",
                children=[shell.source_name(worst["name"]), html.Span(f"{worst['share']:.1%}", className="number")],
            ),
        ]
    return parts


def _closest_pairs(cache: QueryCache, view: View) -> list[Component]:
    """Before anything is selected: the nearest pairs whose families differ."""
    hint = html.P("Click a point, or press / and type a name.", className="sentence")
    reader = cache.map_reader(view)
    near = cache.ask(queries.neighbors, reader, view.roster, view.domain, None, NEAREST) if reader else pd.DataFrame()
    if near.empty:
        return [hint]
    members = cache.ask(queries.sources, view.roster).set_index("source")
    marks = cache.marks()
    far = near[near["family"] != near["source"].map(members["family"])]
    far = far[far["source"] < far["neighbor"]].sort_values("cosine", ascending=False).head(NEAREST)
    rows = []
    for place, row in enumerate(far.itertuples(index=False)):
        own = members.loc[row.source]
        rows.append(
            html.Button(
                id={"type": "walk", "source": row.source, "place": f"pair-{place}"},
                className="pair-row",
                children=[
                    html.Span(
                        [symbol_and_name(marks[own["family"]], view.theme, own["name"]),
                         symbol_and_name(marks[row.family], view.theme, members.loc[row.neighbor, "name"])],
                        className="pair-names",
                    ),
                    html.Span(_cosine_text(row.cosine), className="number"),
                ],
            )
        )  # fmt: skip
    return [
        hint,
        html.H2("Nearest pairs across families, by cosine", className="minor"),
        html.Div(rows, className="near"),
    ]


def symbol_and_name(mark: Mark, theme: Theme, name: str) -> Component:
    """A source in one line: its family's mark and its name."""
    return html.Span([shell.symbol(mark, theme), shell.source_name(name)], className="marked")


def _percent(share: float) -> str:
    return "100%" if share >= 0.9995 else f"{100 * share:.1f}%"


def _cosine_text(value: float) -> str:
    """A cosine; near 1, where a roster's pairs differ in the fourth digit, with more of them."""
    return f"{value:.5f}".removeprefix("0") if 0.9995 <= value < 1 else rate_text(value)
