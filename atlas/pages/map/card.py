"""The card of the map: one source, or two, and the nearest pairs where none is selected."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd
from dash import dcc, html
from dash.development.base_component import Component

from atlas import drawing, shell
from atlas.data import QueryCache
from atlas.figures import plots, tables
from atlas.figures.map import UNSIZED, shown
from atlas.figures.plots import rate_text
from atlas.pages import pieces
from atlas.pages.map import columns
from atlas.state import View
from atlas.theme import Mark, Theme
from backend.methods.registry import EMBEDDING, METHODS, TEXT
from backend.protocol import READER_PAPER
from backend.store import queries
from backend.store.page_queries import neighbor_votes

NEAREST = 5
"""Neighbours that are linked and listed, as many as the authors' viewer shows."""
WITHIN = 10
"""Rank up to which a reader counts as agreeing that a source is near."""
WITH_PROMPT, WITHOUT_PROMPT = (f"how the proxy reads them {which} the prompt" for which in ("with", "without"))
BOTH_WAYS = "how the proxy reads them, with the prompt and without"
AXIS_HELP = (
    "Every source's signature projected at a right angle onto the line from the selection to the second source, in the "
    "original space. What lies far from the line has a place on it too"
)
VARIANTS = {"raw": "", "centred": " after removing what all sources share in a domain"}


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
        f"{pieces.response_counts(cache, view, profile.responses)} responses",
        html.Span(view.source, className="name", title=f"Label: {view.source}", dir="auto"),
    ]
    taken = view.source in view.chosen
    add = html.Button(
        "Take out of the selection" if taken else "Add to the selection",
        id={"type": "choose", "source": view.source}, className="quiet",
    )  # fmt: skip
    # Two sources are compared first: their answer would stand below all that is known of one.
    parts: list[Component] = [
        *_both(cache, view, sees, profile.name),
        *(pair := _pair(cache, view) if view.roster in profile.rosters else []),
        *([html.P("The first source", className="minor parted")] if pair else []),
        html.H2(shell.source_link(view, view.source, profile.name), className="card-name"),
        html.P(facts, className="card-facts"),
        add,
    ]
    if view.roster not in profile.rosters:
        return [*parts, pieces.words(f"Not in {view.roster}; it is in {', '.join(profile.rosters)}.", caution=True)]
    more = [_nearest(cache, view, sees), _accuracy(profile), _other_domain(cache, view, sees)]
    return [*parts, *(part for some in more for part in some)]


def sizes(view: View) -> str:
    """The class of sizes, as :func:`atlas.figures.map.of_size` takes it."""
    return view.size + UNSIZED * (view.unsized == "on")


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
    places = [pieces.ordinal(round(ranks[name])) + VARIANTS[name] for name in VARIANTS if name in ranks]
    places[0] += f" of {pieces.roster_size(cache, view)}"
    meaning = "Rank of the source itself among all signatures of the other domain: 1st is found"
    return [
        html.H3(["Found again in ", shell.term(other, meaning)]),
        pieces.words(
            f"Its signature from {pieces.domain_words(view.domain)}, looked up among the {other} signatures: "
            f"{'; '.join(places)}."
        ),
    ]


def _both(cache: QueryCache, view: View, reader: str, first: str) -> list[Component]:
    """Names of two compared sources with how alike the map's reader finds them; nothing without two."""
    frame = _pair_ranks(cache, view)
    own = frame[frame["reader"] == reader] if len(frame) else frame
    if own.empty:
        return []
    members: Any = cache.ask(queries.sources, view.roster).set_index("source")
    one = own.iloc[0]
    words = f"cosine {plots.cosine_text(one['cosine'])}, percentile {_percentile(one['percentile'])}"
    second = shell.source_name(str(members.at[view.other, "name"]))
    names = html.Strong([shell.source_name(first), " and ", second])
    return [_with_tools("map-pair", html.Div([names, html.Span(words)]), "pair-head near-title", "Pair (CSV)")]


def _with_tools(figure: str, heading: Component, classes: str, csv: str) -> Component:
    """A heading that stays while the card is read further down, with the CSV of what it heads."""
    tools = shell.tools(figure, picture=False, table_view=False, builds=False, csv=csv)
    return html.Div([heading, tools], className=classes, id=f"figure-{figure}")


def _pair_ranks(cache: QueryCache, view: View) -> pd.DataFrame:
    """How every reader sees the selection and the second source; empty without two."""
    if not view.other or view.other == view.source:
        return pd.DataFrame()
    return cache.ask(queries.pair_ranks, view.roster, view.domain, view.source, view.other)


def _pair(cache: QueryCache, view: View) -> list[Component]:
    """The selection and a second source, as every reader sees the two."""
    if not view.other or view.other == view.source:
        return []
    frame = _pair_ranks(cache, view)
    members = cache.ask(queries.sources, view.roster).set_index("source")
    if frame.empty or view.other not in members.index:
        return [pieces.words(f"No reader has ranks of this pair for {drawing.choice_words(view)}.", caution=True)]
    shown, names = cache.map_reader(view), cache.short_names(list(frame["reader"]))
    rows = [
        pieces.row(
            names[pair.reader], pieces.count_text(pair.rank), pieces.count_text(pair.rank_back),
            plots.cosine_text(pair.cosine), here=pair.reader == shown, title=cache.reader_name(pair.reader),
        )
        for pair in tables.rows(frame.sort_values("reader", key=lambda reader: reader != shown, kind="stable"))
    ]  # fmt: skip
    others = pieces.roster_size(cache, view) - 1
    heads: list[Component | str] = [
        "Reader",
        shell.term("rank", f"The second's place among the {others} neighbours of the first, the nearest first"),
        shell.term("back", "The first's place among the neighbours of the second"),
        "cosine",
    ]
    other: Any = members.loc[view.other]
    link = f"{shell.source_path(view, view.source)}&{View(other=view.other).query()}"
    return [
        html.Div(
            [html.H3("Compared with", id="card-pair", tabIndex=-1), *_ways(cache, view, shown)], className="near-title"
        ),
        symbol_and_name(cache.marks()[other["family"]], view.theme, other["name"]),
        pieces.words(_alike(cache, view, frame, str(members.at[view.source, "name"]), str(other["name"]))),
        pieces.table(heads, rows, "beside"),
        pieces.words("Compare ranks between readers, not cosines: each reader has a scale of its own."),
        *_by_domain(cache, view),
        dcc.Link("Compare the two in full", href=link, className="forward"),
    ]


def _ways(cache: QueryCache, view: View, reader: str) -> list[Component]:
    """Buttons that lead back to the nearest, and to the neighbour after the second source where there is one."""
    near = _near_rows(cache, view, reader, view.source)
    back = html.Button("Back to the nearest", id={"type": "beside", "source": "", "place": "back"}, className="quiet")
    if near.empty or view.other not in list(near["neighbor"])[:-1]:
        return [back]
    one: Any = near.iloc[list(near["neighbor"]).index(view.other) + 1]
    identity = {"type": "beside", "source": one["neighbor"], "place": "next"}
    return [back, html.Button(f"next: {one['name']}", id=identity, className="quiet")]


def _trait(cache: QueryCache, reader: str) -> str:
    """What of the responses a reader goes by, in words."""
    row = cache.reader_row(reader)
    method = METHODS.get(str(row["method"]))
    if method is not None and method.reads in (TEXT, EMBEDDING):
        return "word choice" if method.reads == TEXT else "meaning"
    return WITH_PROMPT if row["view"] == "ur" else WITHOUT_PROMPT


def _traits_words(traits: Iterable[str]) -> str:
    """Traits as the end of 'alike in': 'word choice and in how the proxy reads them'."""
    named = dict.fromkeys(traits)
    if {WITH_PROMPT, WITHOUT_PROMPT} <= named.keys():
        named = dict.fromkeys(BOTH_WAYS if one == WITH_PROMPT else one for one in named if one != WITHOUT_PROMPT)
    return " and in ".join(named)


def _alike(cache: QueryCache, view: View, frame: pd.DataFrame, first: str, second: str) -> str:
    """Why the second source is near the first: by what readers go that have it near, and confusions."""
    near = frame["rank"] <= WITHIN
    have = "has" if near.sum() == 1 else "have"
    text = f"{near.sum()} of {len(near)} readers {have} {second} among the {WITHIN} nearest of {first}."
    alike, unlike = (
        dict.fromkeys(_trait(cache, reader) for reader in frame["reader"][near == there]) for there in (True, False)
    )
    apart = [trait for trait in unlike if trait not in alike]
    if alike:
        but = f", but not in {_traits_words(apart)}" if apart else ""
        text += f" They are alike in {_traits_words(alike)}{but}."
    else:
        best, back = int(frame["rank"].min()), frame["rank_back"].min()
        other_way = "" if pd.isna(back) else f"; the other way round, {int(back)}"
        text += f" The best rank of any reader is {best}{other_way}."
    taken = _taken(cache, view)
    if not taken:
        return text
    of_cases = f"{100 * taken[0]:.1f} % of cases, the reverse in {100 * taken[1]:.1f} %"
    return f"{text} One trace of {first} is taken for {second} in {of_cases}."


def _taken(cache: QueryCache, view: View) -> list[float]:
    """Shares of single traces of the selection taken for the second source, and the reverse; nothing unmeasured."""
    cells = pieces.confusion(cache, view, 1)
    if cells.empty:
        return []
    share = cells.set_index(["truth", "predicted"])["share"]
    return [share.get(pair, 0.0) for pair in ((view.source, view.other), (view.other, view.source))]


def pair_table(cache: QueryCache, view: View) -> pd.DataFrame:
    """The selection and a second source as every reader sees the two, and how often one is taken for the other."""
    columns = ["source", "compared_with", "reader", "reads", "rank", "rank_back", "of", "cosine", "percentile"]
    near = f"within_{WITHIN}_nearest"
    frame = _pair_ranks(cache, view)
    if frame.empty:
        return pd.DataFrame(columns=[*columns, near])
    frame = frame.assign(source=view.source, compared_with=view.other, of=pieces.roster_size(cache, view) - 1)
    frame["reads"] = [_trait(cache, reader) for reader in frame["reader"]]
    frame[near] = frame["rank"] <= WITHIN
    taken = dict(zip(("one_trace_taken_for_it", "the_reverse"), _taken(cache, view), strict=False))
    own = frame["reader"] == cache.attribution_reader(view)  # confusions are of that reader alone
    for name, share in taken.items():
        frame[name] = np.where(own, share, np.nan)
    return frame[[*columns, near, *taken]]


def axis_strip(cache: QueryCache, view: View) -> list[Component]:
    """Every source of the roster on the line between the two, as a strip of marks; nothing without two."""
    places = columns.axis(cache, view)
    if places.empty:
        return []
    members: Any = cache.ask(queries.sources, view.roster).set_index("source")
    low, wide = places.min(), max(places.max() - places.min(), 1e-9)
    marks = cache.marks()
    heights = np.random.default_rng(0).uniform(8, 45, len(places))  # in an order, stacked marks would show stripes
    dots = [
        html.Span(
            className="strip-dot" if source not in (view.source, view.other) else "strip-dot end",
            style={
                "left": f"{100 * (place - low) / wide:.1f}%", "top": f"{height:.0f}px",
                "background": marks[members.at[source, "family"]].colour(view.theme),
            },
            title=f"{members.at[source, 'name']}: {rate_text(place)}",
        )
        for height, (source, place) in zip(heights, places.items(), strict=True)
        if source in members.index
    ]  # fmt: skip
    between = places.drop([view.source, view.other])
    nearer = int((between < 0.5).sum())
    first, second = members.at[view.source, "name"], members.at[view.other, "name"]
    return [
        html.H3(shell.term("Axis between the two", AXIS_HELP)),
        html.Div(dots, className="strip", role="img", **shell.aria(label=f"{len(places)} sources on a line")),
        html.Div([shell.source_name(first), shell.source_name(second)], className="scale-ends"),
        pieces.words(
            f"{nearer} of the other {len(between)} sources stand nearer to the first. Colour by axis shows them."
        ),
    ]


def _by_domain(cache: QueryCache, view: View) -> list[Component]:
    """The pair in every domain in which the reader of the map has seen both; nothing where that is one alone."""
    found = []
    for domain in cache.domains():
        frame = cache.ask(queries.pair_ranks, view.roster, domain, view.source, view.other)
        own = frame[frame["reader"] == cache.map_reader(dataclasses.replace(view, domain=domain))]
        if len(own):
            found.append(f"{plots.cosine_text(own['cosine'].iloc[0])} on {pieces.domain_words(domain)}")
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
    votes = cache.ask(neighbor_votes, view.roster, view.domain, view.source, WITHIN, agree)
    seen_by = {vote.neighbor: f"{vote.near}/{vote.readers}" for vote in tables.rows(votes)}
    several = len(agree) > 1
    size = pieces.roster_size(cache, view)
    shares = pieces.chance_of(near["percentile"], size)
    chances = [f"{100 * share:.1f}" if share >= 0.0005 else "under 0.1" for share in shares]
    between = " to ".join(dict.fromkeys([chances[0], chances[-1]]))
    rows = [
        _near_row(
            one.neighbor,
            f"Rank {one.rank} from here, rank {one.rank_back} from there",
            [
                html.Span(str(one.rank), className="number rank"),
                shell.symbol(marks[one.family], view.theme),
                # As the map names it: with its maker it would break inside words.
                html.Span(one.shown.split("/", 1)[-1], className="name", title=one.shown, dir="auto"),
                pieces.number(cosine),
                pieces.number(_percentile(one.percentile), soft=True),
                *([pieces.number(seen_by.get(one.neighbor, "–"), soft=True)] if several else []),
            ],
            one.shown,
        )
        for one, cosine in zip(
            tables.rows(near.rename(columns={"name": "shown"})), plots.cosine_texts(near["cosine"]), strict=True
        )
    ]
    title = html.H3(["Nearest in the ", shell.term("original space", pieces.ORIGINAL_HELP)])
    seen = f"Readers with a map of this choice that have it among the {WITHIN} nearest"
    head = [
        html.Span("", className="rank"),
        html.Span(""),
        html.Span("source"),
        shell.term("cosine", "Cosine of the two mean fingerprints: 1 when they point the same way"),
        shell.term("percentile", "Share of all pairs of sources that are less similar than this one"),
        *([shell.term("readers", seen)] if several else []),
    ]
    parts = [
        _with_tools("map-nearest", title, "near-title", "List (CSV)"),
        html.Div(head, className="near-row near-head"),
        html.Div(rows, className="near"),
        pieces.words(
            f"Of all {size * (size - 1) // 2:,} pairs, ",
            shell.term(f"{between} %", pieces.CHANCE_HELP),
            " are as alike or more.",
        ),
    ]
    return [html.Div(parts)]  # its heading stays in sight as long as its rows do


def _percentile(share: float) -> str:
    return "100\u00a0%" if share >= 0.9995 else f"{100 * share:.1f}\u00a0%"


def _near_row(neighbor: str, title: str, parts: list[Component], name: str) -> Component:
    """A neighbour, which a click selects, and the button that says why it is near."""
    walk = html.Button(
        parts, id={"type": "walk", "source": neighbor, "place": "near"}, className="near-row", title=title
    )
    why = html.Button(
        "why", id={"type": "beside", "source": neighbor, "place": "near"}, className="quiet why",
        title=f"Compare the selection with {name}", **shell.aria(label=f"Why {name} is near"),
    )  # fmt: skip
    return html.Div([walk, why], className="near-line")


def nearest_table(cache: QueryCache, view: View) -> pd.DataFrame:
    """The nearest of the selection, its rank for every reader, and how many have each among theirs."""
    near = _near_rows(cache, view, cache.map_reader(view), view.source or None)
    columns = ["nearest_to", "reader", "name", "family", "rank", "rank_back", "cosine", "percentile"]
    if near.empty or not view.source:
        return pd.DataFrame(columns=columns)
    near = near.assign(nearest_to=view.source, reader=cache.map_reader(view))
    votes = cache.ask(neighbor_votes, view.roster, view.domain, view.source, WITHIN)
    near = near.merge(votes[["neighbor", "near", "readers"]], on="neighbor", how="left")
    counted = {"near": f"readers_with_it_in_{WITHIN}_nearest", "readers": "readers_compared", "neighbor": "source"}
    pairs = {
        other: cache.ask(queries.pair_ranks, view.roster, view.domain, view.source, other).set_index("reader")["rank"]
        for other in near["neighbor"]
    }
    ranks = pd.DataFrame(pairs).T.add_prefix("rank_")
    return near[[*columns, *counted]].join(ranks, on="neighbor").rename(columns=counted)


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
    ends = tables.rows(profile.accuracy.iloc[[0, -1]])
    groups = " and ".join(f"{one.n:,} groups of {drawing.traces(one.k)}" for one in ends)
    parts: list[Component] = [
        html.H3(["How often it is recognised, by ", budget]),
        html.Div(bars, className="bars"),
        pieces.words(f"Every seed counts {groups}."),
    ]
    if len(profile.confusions):
        worst = profile.confusions.iloc[0]
        identity = {"type": "walk", "source": worst["predicted"], "place": "confused"}
        content = [shell.source_name(worst["name"]), pieces.number(f"{worst['share']:.1%}")]
        parts.append(html.H3("Most confused with, at one trace"))
        parts.append(html.Button(content, id=identity, className="near-row confused-row"))
    return parts


def _closest_pairs(cache: QueryCache, view: View) -> list[Component]:
    """Before anything is selected: the nearest pairs whose families differ, of the sources that filters leave."""
    hint = html.P("Click a point, or press / and type a name.", className="sentence pointing")
    reader = cache.map_reader(view)
    if not reader or view.chosen:
        return [hint]
    every = cache.ask(queries.sources, view.roster)
    left: Any = every[shown(every, view.families, view.access, sizes(view), view.released)]
    top = NEAREST if len(left) == len(every) else None  # of a few, the nearest may be far down in the whole list
    near = cache.ask(queries.neighbors, reader, view.roster, view.domain, None, top)
    members = left.set_index("source")
    near = near[near["source"].isin(members.index) & near["neighbor"].isin(members.index)]
    if near.empty:
        return [hint]
    marks = cache.marks()
    far = near[near["family"] != near["source"].map(members["family"])]
    far = far[far["source"] < far["neighbor"]].sort_values("cosine", ascending=False).head(NEAREST)
    rows = []
    for place, (pair, cosine) in enumerate(zip(tables.rows(far), plots.cosine_texts(far["cosine"]), strict=True)):
        both = [
            symbol_and_name(marks[members.at[source, "family"]], view.theme, members.at[source, "name"])
            for source in (pair.source, pair.neighbor)
        ]
        content = [html.Span(both, className="pair-names"), pieces.number(cosine)]
        identity = {"type": "walk", "source": pair.source, "place": f"pair-{place}"}
        rows.append(html.Button(content, id=identity, className="pair-row"))
    of = f"all {len(every)}" if len(left) == len(every) else f"the {len(left)} shown"
    title = html.H2(f"Nearest across families, of {of}, by cosine", className="minor")
    told = pieces.words("Their families differ and they write alike, unconfirmed: check them first.")
    return [hint] if far.empty else [hint, title, told, html.Div(rows, className="near")]


def symbol_and_name(mark: Mark, theme: Theme, name: str) -> Component:
    """A source in one line: its family's mark and its name."""
    return pieces.marked(shell.symbol(mark, theme), shell.source_name(name))
