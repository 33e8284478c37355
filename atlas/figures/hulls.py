"""Hulls around the clusters of a map: a filled outline on a flat one, edges in the scene.

A surface in the scene would catch the pointer before the points inside it do; lines let it through.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.spatial import ConvexHull, QhullError

from atlas.theme import TOKENS, Mark, Plot, Theme, faded, translucent

MARGIN = 0.035
"""How far a hull stays away from its outermost points, in units of the scaled map."""
FAINT = 0.4
"""How much of its colour an edge has in the scene."""
MAJORITY = 0.5
"""A cluster is one family's where it has more than this share of the sources."""
Places = npt.NDArray[np.float64]


def cluster_colours(points: pd.DataFrame, marks: Mapping[str, Mark], theme: Theme) -> dict[int, str]:
    """Colour of every cluster: that of the family that most of its sources have, else a neutral one.

    points : Columns cluster and family.
    """
    colours = {}
    for cluster, part in points.groupby("cluster"):
        shares = part["family"].value_counts(normalize=True)
        own = marks[shares.index[0]].colour(theme) if shares.iloc[0] > MAJORITY else TOKENS[theme]["soft"]
        colours[int(cluster)] = own
    return colours


def hull_shapes(points: pd.DataFrame, colours: Mapping[int, str]) -> list[Plot]:
    """Filled outlines for a layout, on a flat map.

    points : Columns cluster, x, y, scaled.
    colours : Of those that are drawn.
    """
    shapes = []
    for cluster, colour in colours.items():
        places = points.loc[points["cluster"] == cluster, ["x", "y"]].to_numpy(dtype=float)
        hull = _hull(places)
        if hull is None:
            continue
        corners = _apart(places, hull.vertices)
        path = "M" + "L".join(f"{x:.3f},{y:.3f}" for x, y in corners) + "Z"
        line = {"width": 1, "color": translucent(colour, 0.7)}
        shapes.append(
            {"type": "path", "path": path, "layer": "below", "line": line, "fillcolor": translucent(colour, 0.1)}
        )
    return shapes


def hull_edges(points: pd.DataFrame, colours: Mapping[int, str], theme: Theme) -> Plot:
    """The trace 'clusters' of a scene: the edges of all hulls, with a gap after each."""
    ends: dict[str, list[float | None]] = {axis: [] for axis in "xyz"}
    shades: list[str] = []
    for cluster, colour in colours.items():
        places = points.loc[points["cluster"] == cluster, ["x", "y", "z"]].to_numpy(dtype=float)
        hull = _hull(places)
        if hull is None:
            continue
        corners = dict(zip(hull.vertices.tolist(), _apart(places, hull.vertices).tolist(), strict=True))
        pairs = hull.simplices[:, [[0, 1], [1, 2], [0, 2]]].reshape(-1, 2)
        for one, two in np.unique(np.sort(pairs, axis=1), axis=0).tolist():
            for number, axis in enumerate("xyz"):
                ends[axis] += [corners[one][number], corners[two][number], None]
            shades += [faded(colour, FAINT, theme)] * 3
    return {
        "name": "clusters",
        "type": "scatter3d",
        "mode": "lines",
        "hoverinfo": "skip",
        "connectgaps": False,
        "line": {"color": shades, "width": 1.5},
        **ends,
    }


def _hull(places: Places) -> ConvexHull | None:
    """Convex hull, None of points that lie in one place."""
    try:
        # Joggled, so that points of one line or plane have one too.
        return ConvexHull(places, qhull_options="QJ")
    except QhullError:
        return None


def _apart(places: Places, vertices: Sequence[int]) -> Places:
    """Corners of a hull, moved away from its middle."""
    away = places[vertices] - places.mean(axis=0)
    length = np.linalg.norm(away, axis=1, keepdims=True)
    return places[vertices] + MARGIN * away / np.where(length > 0, length, 1.0)
