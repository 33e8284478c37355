"""The map of sources (paper: geometry of signatures): projected points, family marks, links of the original space.

Every figure has the same traces in the same places, whatever is shown: links of everyone and of the selection, one
trace a family of the atlas, grey context, rings around the neighbours and the selection, labels. A page can therefore
send new traces with ``Patch`` and leave the layout, and with it the reader's camera, alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from atlas.theme import RINGED, TOKENS, Mark, Theme, plain, template, translucent

DEFAULT_CAMERA = (1.2, 1.2, 0.7, 0.0, 0.0, -0.04, 0.0, 0.0, 1.0)
HALF = 1.08
"""Half the side of the scene; the points fill -1..1 in their widest direction."""


def scaled(points: pd.DataFrame) -> pd.DataFrame:
    """Centre the points and divide by half their widest extent, one factor for all axes.

    Parameters
    ----------
    points : DataFrame
        Columns x, y and, in three dimensions, z.
    """
    axes = [axis for axis in ("x", "y", "z") if axis in points and points[axis].notna().all()]
    values = points[axes].to_numpy(dtype=float)
    if not len(values):
        return points
    low, high = values.min(axis=0), values.max(axis=0)
    widest = float(np.max(high - low))
    moved = points.copy()
    moved[axes] = (values - (low + high) / 2) / (widest / 2 if widest > 0 else 1.0)
    return moved


def shown(points: pd.DataFrame, families: Collection[str], access: str) -> pd.Series:
    """Which points pass the filters; the others stay as grey context.

    Parameters
    ----------
    points : DataFrame
        Columns family and access.
    families : collection of str
        Isolated families, empty for all.
    access : {'all', 'local', 'api'}
    """
    passed = pd.Series(True, index=points.index)
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
    selected: str = "",
    camera: Sequence[float] = (),
) -> go.Figure:
    """Sources as points.

    Parameters
    ----------
    points : DataFrame
        Columns source, name, family, access, x, y, z; one row a source.
    links : DataFrame
        Columns source, neighbor, rank: pairs to join, from the original space.
    marks : mapping of family to Mark
        Every family of the atlas, in the order of the traces.
    theme : {'dark', 'light'}
    dimensions : {2, 3}
    families, access : see :func:`shown`
    selected : str
        Label of the selected source, or empty.
    camera : sequence of float
        Eye, centre, up (nine numbers), or empty.
    """
    placed = scaled(points)
    figure = go.Figure(data=_traces(placed, links, marks, theme, dimensions, families, access, selected))
    figure.update_layout(template=template(theme), margin={"l": 0, "r": 0, "t": 0, "b": 0}, uirevision="map")
    if dimensions == 3:
        axis = {"range": [-HALF, HALF], "nticks": 5}
        figure.update_layout(
            scene={
                "xaxis": axis,
                "yaxis": axis,
                "zaxis": axis,
                "aspectmode": "cube",
                "dragmode": "orbit",
                "camera": camera_layout(camera),
                "uirevision": "map",
            }
        )
    else:
        flat = {"visible": False, "range": [-HALF, HALF]}
        figure.update_layout(xaxis=flat, yaxis={**flat, "scaleanchor": "x"}, dragmode="pan", hovermode="closest")
    return figure


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
    families: Sequence[str],
    access: str,
    selected: str,
) -> list[go.Scatter3d] | list[go.Scatter]:
    token = TOKENS[theme]
    solid = dimensions == 3
    kind = go.Scatter3d if solid else go.Scatter
    passed = shown(points, families, access)
    chosen = points["source"] == selected
    near = points["source"].isin(links.loc[links["source"] == selected, "neighbor"])
    front = passed | chosen | near

    def place(rows: pd.DataFrame) -> dict[str, object]:
        axes = ("x", "y", "z") if solid else ("x", "y")
        return {axis: rows[axis].tolist() for axis in axes}

    def words(rows: pd.DataFrame) -> dict[str, object]:
        return {
            # Lists, not arrays: NumPy customdata does not come back in clickData.
            "customdata": [[source] for source in rows["source"]],
            "text": [
                f"<b>{plain(name)}</b><br>{plain(family)} · {_access_words(how)}"
                for name, family, how in zip(rows["name"], rows["family"], rows["access"], strict=True)
            ],
            "hovertemplate": "%{text}<extra></extra>",
        }

    own = links["source"] == selected
    everyone = {"color": translucent(token["edge"], 0.55), "width": 1.5 if solid else 1}
    chosen_line = {"color": token["accent"], "width": 3 if solid else 1.5}
    traces = [
        _links(kind, "links", points, links[~own], everyone),
        _links(kind, "own links", points, links[own], chosen_line),
    ]
    for family, mark in marks.items():
        rows = points[front & (points["family"] == family)]
        open_symbol = mark.symbol.endswith("-open")
        ringed = mark.symbol == RINGED
        marker: dict[str, object] = {"symbol": mark.plotted, "color": mark.colour(theme)}
        if solid:
            # The 3-D cross is a thin sign: larger, and thickened by its own outline.
            thin = mark.symbol == "cross"
            size = 7.5 if thin else 5 if mark.symbol.startswith("circle") else 4.5
            rim = mark.colour(theme) if thin else _rim(mark, theme)
            marker |= {"size": size, "line": {"width": 2 if open_symbol or thin or ringed else 0.5, "color": rim}}
        else:
            marker |= {"size": 10, "line": {"width": 2 if open_symbol or ringed else 0.75, "color": _rim(mark, theme)}}
        traces.append(kind(name=plain(family), mode="markers", marker=marker, **place(rows), **words(rows)))
    rows = points[~front]
    grey = {"symbol": "circle", "color": token["context"], "size": 3 if solid else 6, "line": {"width": 0}}
    traces.append(kind(name="context", mode="markers", marker=grey, **place(rows), **words(rows)))
    ring = {"symbol": "circle-open", "color": token["soft"], "size": 9 if solid else 17, "line": {"width": 1.25}}
    traces.append(kind(name="nearest", mode="markers", marker=ring, hoverinfo="skip", **place(points[near])))
    halo = {"symbol": "circle-open", "color": token["accent"], "size": 13 if solid else 22, "line": {"width": 2.5}}
    traces.append(kind(name="selected", mode="markers", marker=halo, hoverinfo="skip", **place(points[chosen])))
    # Neighbours carry their rank, as in the card: five names would cover each other.
    ranks = links[links["source"] == selected].set_index("neighbor")["rank"]
    named = points[chosen | near]
    traces.append(
        kind(
            name="labels",
            mode="text",
            text=[
                f"<b>{plain(name, 28)}</b>" if source == selected else str(int(ranks[source]))
                for source, name in zip(named["source"], named["name"], strict=True)
            ],
            textposition="top center",
            textfont={"size": 12, "color": token["ink"]},
            hoverinfo="skip",
            **place(named),
        )
    )
    return traces


def _links(
    kind: type[go.Scatter3d] | type[go.Scatter],
    name: str,
    points: pd.DataFrame,
    links: pd.DataFrame,
    line: dict[str, object],
) -> go.Scatter3d | go.Scatter:
    """All links as one line trace, with a gap after each."""
    where = points.set_index("source")[["x", "y", "z"] if kind is go.Scatter3d else ["x", "y"]]
    known = links[links["source"].isin(where.index) & links["neighbor"].isin(where.index)]
    coordinates: dict[str, list[float | None]] = {axis: [] for axis in where.columns}
    for source, neighbor in zip(known["source"], known["neighbor"], strict=True):
        for axis in where.columns:
            coordinates[axis] += [float(where.at[source, axis]), float(where.at[neighbor, axis]), None]
    return kind(name=name, mode="lines", line=line, hoverinfo="skip", connectgaps=False, **coordinates)


def _rim(mark: Mark, theme: Theme) -> str:
    """Outline of a marker: an open one is its outline, a filled one is set off from those behind it."""
    if mark.symbol == RINGED:
        return TOKENS[theme]["ink"]
    return mark.colour(theme) if mark.symbol.endswith("-open") else TOKENS[theme]["ground"]


def _access_words(access: str) -> str:
    return {"local": "local weights", "api": "served by an API"}.get(access, plain(access))
