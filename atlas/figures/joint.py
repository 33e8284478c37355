"""Both domains on one map (paper: cross-domain persistence): every source twice, joined by a line.

The traces stand in the same places whatever is shown, as those of :mod:`atlas.figures.map`, so that a page can send
new ones and leave the camera alone: lines of everyone and of the selection, one trace a family and domain, grey
context, rings around a second source and the selection, their names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from atlas.figures.map import labels, link_colour, map_layout, marker, ring, scaled, shown
from atlas.theme import TOKENS, Mark, Plot, Theme, plain

FAINT = 0.5
"""Opacity and relative size of the marks of the other domain."""


def joint_figure(
    points: pd.DataFrame,
    marks: Mapping[str, Mark],
    domains: Mapping[str, str],
    *,
    theme: Theme,
    dimensions: int,
    families: Sequence[str] = (),
    access: str = "all",
    size: str = "all",
    links: str = "all",
    selected: str = "",
    other: str = "",
    camera: Sequence[float] = (),
) -> Plot:
    """Sources of two domains as points of one map.

    points : Columns domain, source, name, family, access, x, y, z; a row a domain and source.
    domains : The first is drawn in full, the others small and faint.
    theme, dimensions, families, access, size, selected, other, camera : As for
        :func:`atlas.figures.map.map_figure`.
    links : Whose two points are joined.
    """
    token, solid = TOKENS[theme], dimensions == 3
    axes = ["x", "y", "z"] if solid else ["x", "y"]
    kind = {"type": "scatter3d" if solid else "scatter"}
    placed = scaled(points)
    chosen = placed["source"] == selected
    second = (placed["source"] == other) & ~chosen
    front = shown(placed, families, access, size) | chosen | second

    def place(rows: pd.DataFrame) -> Plot:
        return {axis: rows[axis].tolist() for axis in axes}

    def marked(rows: pd.DataFrame) -> Plot:
        return {
            **kind,
            "mode": "markers",
            **place(rows),
            "customdata": [[source] for source in rows["source"]],
            "text": [
                f"<b>{plain(name)}</b><br>{plain(family)} · {plain(domains.get(domain, domain))}"
                for name, family, domain in zip(rows["name"], rows["family"], rows["domain"], strict=True)
            ],
            "hovertemplate": "%{text}<extra></extra>",
        }

    def joined(rows: pd.DataFrame) -> Plot:
        ends: dict[str, list[float | None]] = {axis: [] for axis in axes}
        for _, pair in rows.groupby("source", sort=False):
            for axis in axes:
                ends[axis] += [*pair[axis].tolist(), None]
        return {**kind, "mode": "lines", "hoverinfo": "skip", "connectgaps": False, **ends}

    everyone = {"color": link_colour(theme, solid), "width": 1.5 if solid else 1}
    own = {"color": token["accent"], "width": 4 if solid else 2}
    none = placed.iloc[:0]
    data: list[Plot] = [
        {"name": "links", "line": everyone, **joined(placed[front & ~chosen] if links == "all" else none)},
        {"name": "own links", "line": own, **joined(none if links == "off" else placed[chosen])},
    ]
    for domain, words in domains.items():
        faint = domain != next(iter(domains))
        for family, mark in marks.items():
            rows = placed[front & (placed["domain"] == domain) & (placed["family"] == family)]
            look = marker(mark, theme, solid)
            if faint:
                look["size"] = round(look["size"] * 0.7, 1)
            name = f"{plain(family)}, {plain(words)}"
            data.append({"name": name, "marker": look, "opacity": FAINT if faint else 1, **marked(rows)})
    grey = {"symbol": "circle", "color": token["context"], "size": 3 if solid else 6, "line": {"width": 0}}
    data.append({"name": "context", "marker": grey, **marked(placed[~front])})
    data += [ring("second", theme, solid, place(placed[second])), ring("selected", theme, solid, place(placed[chosen]))]
    full = placed["domain"] == next(iter(domains))
    named, elsewhere = [pd.concat([placed[rows & chosen], placed[rows & second]]) for rows in (full, ~full)]
    texts = [*named["name"], *(domains.get(domain, domain) for domain in elsewhere["domain"])]
    places = _tuples(pd.concat([named, elsewhere])[axes])
    data.append(labels(places, texts, _tuples(placed[axes]), theme, camera, bold=len(named)))
    return {"data": data, "layout": map_layout(theme, dimensions, camera) | {"shapes": []}}


def _tuples(places: pd.DataFrame) -> list[tuple[float, ...]]:
    return list(places.itertuples(index=False, name=None))
