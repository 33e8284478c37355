"""The map of sources (paper: geometry of signatures): projected points, family marks, links of the original space.

Every figure has the same traces in the same places, whatever is shown: links of everyone and of the selection, one
trace a family of the atlas, grey context, rings around the neighbours, a second source and the selection, labels, hulls
of clusters. A page can therefore put new traces under the layout that is there, and leave the reader's camera alone.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from atlas.figures.hulls import cluster_colours, hull_edges, hull_shapes
from atlas.figures.labels import free_sides
from atlas.theme import RINGED, TOKENS, Mark, Plot, Theme, dress, faded, plain, translucent

DEFAULT_CAMERA = (1.2, 1.2, 0.7, 0.0, 0.0, -0.04, 0.0, 0.0, 1.0)
_STATED = re.compile(r"(?<![A-Za-z0-9.])(\d+(?:\.\d+)?)([bBmM])(?![A-Za-z0-9])")
HALF = 1.08
"""Half the side of the scene; the points fill -1..1 in their widest direction."""
UNIT = 200.0
"""Pixels of a unit of the scaled points on a small screen, for which labels are placed; a larger one has more room."""
_NO_CLUSTERS = pd.DataFrame({"source": pd.Series(dtype=str), "cluster": pd.Series(dtype=int)})
LONGEST = 28
"""Letters of a name on the map."""


def scaled(points: pd.DataFrame) -> pd.DataFrame:
    """Centre the points and divide by half their widest extent, one factor for all axes.

    points : Columns x, y and, in three dimensions, z.
    """
    axes = [axis for axis in ("x", "y", "z") if axis in points and points[axis].notna().all()]
    if not len(points):
        return points
    middle, half = _frame(points, axes)
    moved = points.copy()
    moved[axes] = (points[axes].to_numpy(dtype=float) - middle) / half
    return moved


def _frame(points: pd.DataFrame, axes: Sequence[str]) -> tuple[npt.NDArray[np.float64], float]:
    """Middle and half the widest extent of some points."""
    values = points[list(axes)].to_numpy(dtype=float)
    low, high = values.min(axis=0), values.max(axis=0)
    widest = float(np.max(high - low))
    return (low + high) / 2, widest / 2 if widest > 0 else 1.0


def stated_size(name: str) -> float:
    """Billions of parameters that a source's name states, NaN where it states none; the total of a mixture."""
    stated = _STATED.findall(name)
    return max(float(number) / (1000 if unit in "mM" else 1) for number, unit in stated) if stated else float("nan")


def of_size(names: pd.Series, size: str) -> pd.Series:
    """Which names state a size of a class.

    size : Up to 4, up to 20, and more billions of parameters.
    """
    if size == "all":
        return pd.Series(True, index=names.index)
    low, high = {"small": (0.0, 4.5), "middle": (4.5, 20.5), "large": (20.5, np.inf)}[size]
    stated = names.map(stated_size).astype(float)
    return (stated > low) & (stated <= high)


def shown(points: pd.DataFrame, families: Collection[str], access: str, size: str = "all") -> pd.Series:
    """Which points pass the filters; the others stay as grey context.

    points : Columns name, family and access.
    families : Isolated families, empty for all.
    size : See :func:`of_size`.
    """
    passed = of_size(points["name"], size)
    if families:
        passed &= points["family"].isin(list(families))
    if access != "all":
        passed &= points["access"] == access
    return passed


def map_figure(
    points: pd.DataFrame,
    links: pd.DataFrame,
    marks: Mapping[str, Mark],
    *,
    theme: Theme,
    dimensions: int,
    families: Sequence[str] = (),
    access: str = "all",
    size: str = "all",
    selected: str = "",
    other: str = "",
    camera: Sequence[float] = (),
    regions: pd.DataFrame | None = None,
    clusters: pd.DataFrame | None = None,
) -> Plot:
    """Sources as points.

    points : Columns source, name, family, access, x, y, z; one row a source.
    links : Columns source, neighbor, rank: pairs to join, from the original space.
    marks : Every family of the atlas, in the order of the traces.
    selected, other : Labels of the selected source and of one beside it, or empty.
    camera : Eye, centre, up of a scene (nine numbers), left, right, bottom and top edge of a flat map (four), or
        empty.
    regions : Columns family, x, y (lists, in the units of the points): outlines, in two dimensions only.
    clusters : Columns source, cluster: hulls around those with a source in front.
    """
    placed = scaled(points)
    front = shown(points, families, access, size)
    data = _traces(placed, links, marks, theme, dimensions, front, selected, other, camera)
    grouped = placed.assign(front=front).merge(_NO_CLUSTERS if clusters is None else clusters, on="source")
    seen = set(grouped.loc[grouped["front"], "cluster"])
    colours = {cluster: own for cluster, own in cluster_colours(grouped, marks, theme).items() if cluster in seen}
    data.append(
        hull_edges(grouped, colours, theme)
        if dimensions == 3
        else {"name": "clusters", "type": "scatter", "x": [], "y": []}
    )
    if regions is not None and dimensions == 2 and len(points):
        middle, half = _frame(points, ("x", "y"))
        shapes = [
            {"type": "path", "path": _path(row.x, row.y, middle, half), "layer": "below",
             "line": {"width": 1, "color": translucent(marks[row.family].colour(theme), 0.7)},
             "fillcolor": translucent(marks[row.family].colour(theme), 0.1)}
            for row in regions.itertuples(index=False)
            if row.family in set(points["family"][front])
        ]  # fmt: skip
    else:
        shapes = hull_shapes(grouped, colours) if dimensions == 2 else []
    return {"data": data, "layout": map_layout(theme, dimensions, camera) | {"shapes": shapes}}


def _path(xs: Sequence[float], ys: Sequence[float], middle: npt.NDArray[np.float64], half: float) -> str:
    """A closed outline in the coordinates of the scaled points, as SVG writes it."""
    places = zip((np.asarray(xs) - middle[0]) / half, (np.asarray(ys) - middle[1]) / half, strict=True)
    return "M" + "L".join(f"{x:.3f},{y:.3f}" for x, y in places) + "Z"


def map_layout(theme: Theme, dimensions: int, camera: Sequence[float]) -> Plot:
    """Layout of every map: the points fill it, and a new map leaves the camera alone."""
    layout: dict[str, object] = {
        "template": dress(theme),
        "margin": {"l": 0, "r": 0, "t": 0, "b": 0},
        "uirevision": "map",
    }
    if dimensions == 3:
        axis = {"range": [-HALF, HALF], "nticks": 5}
        layout["scene"] = {
            "xaxis": axis,
            "yaxis": axis,
            "zaxis": axis,
            "aspectmode": "cube",
            "dragmode": "orbit",
            "camera": camera_layout(camera),
            "uirevision": "map",
        }
    else:
        left, right, bottom, top = camera if len(camera) == 4 else (-HALF, HALF, -HALF, HALF)
        layout |= {
            "xaxis": {"visible": False, "range": [left, right]},
            "yaxis": {"visible": False, "range": [bottom, top], "scaleanchor": "x"},
            "dragmode": "pan",
            "hovermode": "closest",
        }
    return layout


def camera_layout(camera: Sequence[float]) -> dict[str, dict[str, float]]:
    """Plotly camera of nine numbers (eye, centre, up), by default a view from above the corner."""
    numbers = camera if len(camera) == 9 else DEFAULT_CAMERA
    parts = zip(("eye", "center", "up"), (numbers[0:3], numbers[3:6], numbers[6:9]), strict=True)
    return {part: dict(zip("xyz", map(float, values), strict=True)) for part, values in parts}


def _traces(
    points: pd.DataFrame,
    links: pd.DataFrame,
    marks: Mapping[str, Mark],
    theme: Theme,
    dimensions: int,
    passed: pd.Series,
    selected: str,
    other: str,
    camera: Sequence[float],
) -> list[Plot]:
    token = TOKENS[theme]
    solid = dimensions == 3
    kind = {"type": "scatter3d" if solid else "scatter"}
    axes = ("x", "y", "z") if solid else ("x", "y")
    own = links["source"] == selected
    ranks = dict(zip(links.loc[own, "neighbor"], links.loc[own, "rank"], strict=True))
    rows = list(
        zip(
            points["source"],
            points["name"],
            points["family"],
            points["access"],
            passed,
            zip(*(points[axis].tolist() for axis in axes), strict=True),
            strict=True,
        )
    )
    where = {row[0]: row[5] for row in rows}
    held: dict[str, list[Any]] = {family: [] for family in marks}
    context = []
    for row in rows:
        front = row[4] or row[0] in (selected, other) or row[0] in ranks
        (held[row[2]] if front else context).append(row)

    def place(places: Sequence[tuple[float, ...]]) -> Plot:
        return {axis: [values[number] for values in places] for number, axis in enumerate(axes)}

    def points_of(some: Sequence[Any]) -> Plot:
        return {
            **kind,
            "mode": "markers",
            **place([row[5] for row in some]),
            # Lists, not arrays: NumPy customdata does not come back in clickData.
            "customdata": [[row[0]] for row in some],
            "text": [
                f"<b>{plain(row[1])}</b><br>{plain(row[2])} · {_access_words(row[3])}"
                + (f"<br>nearest no. {ranks[row[0]]:.0f} of the selection" if row[0] in ranks else "")
                for row in some
            ],
            "hovertemplate": "%{text}<extra></extra>",
        }

    everyone = {"color": link_colour(theme, solid), "width": 1.5 if solid else 1}
    chosen_line = {"color": token["accent"], "width": 3 if solid else 1.5}
    traces = [
        {**kind, "name": "links", "line": everyone, **_links(axes, where, links[~own])},
        {**kind, "name": "own links", "line": chosen_line, **_links(axes, where, links[own])},
    ]
    for family, mark in marks.items():
        traces.append({"name": plain(family), "marker": marker(mark, theme, solid), **points_of(held[family])})
    grey = {"symbol": "circle", "color": token["context"], "size": 3 if solid else 6, "line": {"width": 0}}
    traces.append({"name": "context", "marker": grey, **points_of(context)})
    names = {row[0]: row[1] for row in rows}
    chosen = [selected] if selected in names else []
    beside = [other] if other in names and other != selected else []
    # Neighbours carry their rank, as in the card: five names would cover each other.
    near = [source for source in sorted(ranks, key=lambda source: ranks[source]) if source in where]
    for name, sources in {"nearest": near, "second": beside, "selected": chosen}.items():
        traces.append(ring(name, theme, solid, place([where[source] for source in sources])))
    named = [*chosen, *beside]
    ranked = [source for source in near if source not in named]
    texts = [*(names[source] for source in named), *(f"{ranks[source]:.0f}" for source in ranked)]
    places = [where[source] for source in (*named, *ranked)]
    traces.append(labels(places, texts, list(where.values()), theme, camera, bold=len(named)))
    return traces


def ring(name: str, theme: Theme, solid: bool, place: Plot) -> Plot:
    """Rings around points: the trace 'nearest', 'second' or 'selected', at coordinates by axis."""
    colour, flat, deep, width = {
        "nearest": ("soft", 17, 9, 1.25),
        "second": ("ink", 22, 13, 2),
        "selected": ("accent", 22, 13, 2.5),
    }[name]
    look = {
        "symbol": "circle-open",
        "color": TOKENS[theme][colour],
        "size": deep if solid else flat,
        "line": {"width": width},
    }
    kind = "scatter3d" if solid else "scatter"
    return {"name": name, "type": kind, "mode": "markers", "hoverinfo": "skip", "marker": look, **place}


def labels(
    places: Sequence[tuple[float, ...]],
    texts: Sequence[str],
    points: Sequence[tuple[float, ...]],
    theme: Theme,
    camera: Sequence[float],
    *,
    bold: int,
) -> Plot:
    """The trace of labels, which leaves out what would stand on another one.

    places : Where the labelled points lie, in two or three coordinates.
    texts : In the order of their weight.
    points : Every point of the map.
    camera : As for :func:`map_figure`; a scene that is turned later keeps the sides.
    bold : So many of the first are names, which always stay.
    """
    solid = bool(points) and len(points[0]) == 3
    plains = [plain(text, LONGEST) for text in texts]
    sides = label_sides(places, [text[:LONGEST] for text in texts], points, camera, kept=bold)
    drawn = [number for number, side in enumerate(sides) if side]
    # In the scene a label begins at the point itself, and blanks take it off the ring.
    blank = "\u00a0" * 6 if solid else ""
    pads = {"middle right": (blank, ""), "middle left": ("", blank)}
    shown = []
    for number in drawn:
        before, after = pads.get(sides[number], ("", ""))
        text = f"{before}{plains[number]}{after}"
        shown.append(f"<b>{text}</b>" if number < bold else text)
    return {
        "name": "labels",
        "type": "scatter3d" if solid else "scatter",
        "mode": "text" if solid else "markers+text",
        "hoverinfo": "skip",
        # Nothing is seen of these marks; on a flat map they keep the text off the ring.
        "marker": {"size": 22, "opacity": 0},
        "text": shown,
        "textposition": [sides[number] for number in drawn],
        "textfont": {"size": 12, "color": TOKENS[theme]["ink"]},
        **{axis: [places[number][at] for number in drawn] for at, axis in enumerate("xyz" if solid else "xy")},
    }


def label_sides(
    places: Sequence[tuple[float, ...]],
    texts: Sequence[str],
    points: Sequence[tuple[float, ...]],
    camera: Sequence[float] = (),
    *,
    kept: int,
) -> list[str]:
    """Side of its point on which each label stands (see :func:`atlas.figures.labels.free_sides`)."""
    seen = _seen([*places, *points], camera)
    return free_sides(seen[: len(places)], texts, seen[len(places) :], UNIT * HALF, kept=kept)


def _seen(places: Sequence[tuple[float, ...]], camera: Sequence[float]) -> npt.NDArray[np.float64]:
    """Pixels from the middle of the drawing (n, 2) at which scaled points are seen."""
    values = np.array(places, dtype=float)
    if not len(values) or values.shape[1] == 2:
        return UNIT * values.reshape(-1, 2)
    eye, centre, up = np.array(camera if len(camera) == 9 else DEFAULT_CAMERA, dtype=float).reshape(3, 3)
    ahead = (centre - eye) / np.linalg.norm(centre - eye)
    right = np.cross(ahead, up)
    right /= np.linalg.norm(right)
    from_eye = values / (2 * HALF) - eye
    # The scene is a cube with sides of 1, which Plotly looks at under 45 degrees.
    depth = np.maximum(from_eye @ ahead, 0.1)[:, None] * np.tan(np.pi / 8)
    return UNIT * HALF * (from_eye @ np.column_stack([right, np.cross(right, ahead)])) / depth


def marker(mark: Mark, theme: Theme, solid: bool) -> Plot:
    """How the points of a family look."""
    open_symbol, ringed = mark.symbol.endswith("-open"), mark.symbol == RINGED
    look = {"symbol": mark.plotted, "color": mark.colour(theme)}
    if not solid:
        width = 2 if open_symbol or ringed else 0.75
        return {**look, "size": 10, "line": {"width": width, "color": _rim(mark, theme)}}
    # The 3-D cross is a thin sign: larger, and thickened by its own outline.
    thin = mark.symbol == "cross"
    size = 7.5 if thin else 5 if mark.symbol.startswith("circle") else 4.5
    rim = mark.colour(theme) if thin else _rim(mark, theme)
    return {**look, "size": size, "line": {"width": 2 if open_symbol or thin or ringed else 0.5, "color": rim}}


def link_colour(theme: Theme, solid: bool) -> str:
    """Colour of the lines that join every source to another: faint, so that the points stand before them."""
    edge = TOKENS[theme]["edge"]
    return faded(edge, 0.65, theme) if solid else translucent(edge, 0.55)


def _links(axes: Sequence[str], where: Mapping[str, tuple[float, ...]], links: pd.DataFrame) -> Plot:
    """All links as one line, with a gap after each."""
    pairs = zip(links["source"], links["neighbor"], strict=True)
    known = [(where[source], where[neighbor]) for source, neighbor in pairs if source in where and neighbor in where]
    ends = {
        axis: [value for one, other in known for value in (one[place], other[place], None)]
        for place, axis in enumerate(axes)
    }
    return {"mode": "lines", "hoverinfo": "skip", "connectgaps": False, **ends}


def _rim(mark: Mark, theme: Theme) -> str:
    """Outline of a marker: an open one is its outline, a filled one is set off from those behind it."""
    if mark.symbol == RINGED:
        return TOKENS[theme]["ink"]
    return mark.colour(theme) if mark.symbol.endswith("-open") else TOKENS[theme]["ground"]


def _access_words(access: str) -> str:
    return {"local": "local weights", "api": "served by an API"}.get(access, plain(access))
