"""Several sources that are selected together: their names, their families against chance, and their table."""

from __future__ import annotations

import dataclasses
from typing import Any

import pandas as pd
from dash import html
from dash.development.base_component import Component

from atlas import shell
from atlas.data import QueryCache
from atlas.figures import tables
from atlas.figures.map import cluster_words, month_text
from atlas.pages import pieces
from atlas.pages.map.columns import COLUMNS, K, values_of
from atlas.state import View
from backend.geometry.neighborhoods import family_mix
from backend.inference.drift import p_text, p_words
from backend.store import queries
from backend.store.page_queries import clusters

FAMILIES = 5
"""Families that are listed; the others can be opened."""
MIX_HELP = (
    "How often as many sources drawn at random from the roster hold so many of the family or more, or so many or fewer "
    "where chance gives more (hypergeometric), "
    "corrected for the families found here (Holm). Points that lie together are not drawn at random: it says how far "
    "from chance they are, not why"
)


def members(cache: QueryCache, view: View) -> pd.DataFrame:
    """Rows of the selected sources of the roster, in its order."""
    roster = cache.ask(queries.sources, view.roster)
    return roster[roster["source"].isin(list(view.chosen))]


def panel(cache: QueryCache, view: View) -> list[Component]:
    """What the panel of the selection holds; nothing without one."""
    rows = members(cache, view)
    if rows.empty:
        return []
    count = html.B(pieces.counted(len(rows), "source"), className="count")
    if len(rows) == 1:
        return [
            pieces.words(count, ". Add more to compare their families with chance."),
            html.Div(_names(cache, view, rows), className="near"),
        ]
    everyone = cache.ask(queries.sources, view.roster)
    mix = family_mix(list(everyone["family"]), everyone["source"].isin(list(rows["source"])).to_numpy())
    mix = mix.sort_values(["p_holm", "p_value"], kind="stable")  # Holm's correction makes equals of what differs
    marks, top = cache.marks(), mix.iloc[0]
    lines = [
        pieces.row(
            pieces.marked(shell.symbol(marks[one.family], view.theme), html.Span(one.family, dir="auto")),
            f"{one.found} / {one.members}", _expected(one.expected),
            f"fewer, {p_text(one.p_fewer)}" if one.found < one.expected else p_text(one.p_holm),
        )
        for one in tables.rows(mix)
    ]  # fmt: skip
    rest = len(mix) - FAMILIES
    names = _names(cache, view, rows.set_index("family").loc[mix["family"]].reset_index())
    chance = html.Th(shell.term("by chance", "What as many sources drawn at random would hold on average"), scope="col")
    p = html.Th(shell.term("p, corrected", MIX_HELP), scope="col")
    said = (
        f": {'' if top['p_holm'] < 0.05 else 'no family stands out; the least likely is '}{top['found']} of the "
        f"roster's {top['members']} {top['family']}, where chance gives {_expected(top['expected'])} "
        f"({p_words(top['p_holm'])})."
    )
    head: list[Component | str] = ["Family", "here / in roster", chance, p]
    others = html.Summary(f"and {rest} more {'family' if rest == 1 else 'families'}", className="quiet")
    return [
        pieces.words(count, said),
        pieces.table(head, lines[:FAMILIES], "mix"),
        *([html.Details([others, pieces.table(head, lines[FAMILIES:], "mix")])] if rest > 0 else []),
        html.Div(names, className="near"),
    ]


def _expected(count: float) -> str:
    return f"{count:.1f}" if count >= 0.95 else f"{count:.2f}".removeprefix("0")


def _names(cache: QueryCache, view: View, rows: pd.DataFrame) -> list[Component]:
    marks = cache.marks()
    return [
        html.Button(
            [shell.symbol(marks[one.family], view.theme), shell.source_name(one.shown)],
            id={"type": "walk", "source": one.source, "place": "chosen"},
            className="near-row chosen-row",
        )
        for one in tables.rows(rows.rename(columns={"name": "shown"}))
    ]


def table(cache: QueryCache, view: View) -> pd.DataFrame:
    """Rows of the selection with everything that can be coloured by."""
    frame = members(cache, view)[["name", "family", "access", "responses", "source"]].reset_index(drop=True)
    for name in COLUMNS:
        frame[name] = frame["source"].map(values_of(cache, view, name))
    frame["date"] = [month_text(month) if month == month else "" for month in frame["date"]]
    return frame.rename(columns={"accuracy": f"accuracy_{K}", "nearest": "cosine", "kin": "same_family_10"})


def offered(cache: QueryCache, view: View) -> list[dict[str, Any]]:
    """Clusters of the drawn map and families, for the list that selects one."""
    roster = cache.ask(queries.sources, view.roster)
    found = roster.merge(_clusters(cache, view), on="source")
    groups = []
    for _, part in found.groupby("cluster"):
        cluster = int(part["cluster"].iloc[0])
        label = f"Cluster {cluster + 1}: {cluster_words(part['family'])}"
        groups.append({"value": f"cluster {cluster}", "label": label})
    families = [
        {"value": f"family {family}", "label": f"{family}: {count}"}
        for family, count in roster["family"].value_counts().items()
    ]
    return [{"group": "Clusters of this map", "items": groups}, {"group": "Families", "items": families}]


def group(cache: QueryCache, view: View, value: str) -> list[str]:
    """Sources of an entry of :func:`offered`."""
    kind, _, name = value.partition(" ")
    if kind == "cluster":
        found = _clusters(cache, view)
        return list(found["source"][found["cluster"].astype(str) == name])
    roster = cache.ask(queries.sources, view.roster)
    return list(roster["source"][roster["family"] == name])


def _clusters(cache: QueryCache, view: View) -> pd.DataFrame:
    view = dataclasses.replace(view, space="one")
    return cache.ask(clusters, cache.map_reader(view), view.roster, view.domain, view.projection, view.dim)
