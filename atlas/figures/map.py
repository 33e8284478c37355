"""The map of sources (paper: geometry of signatures): projected points, family marks, links of the original space.

The same traces stand in the same places, whatever is shown: links of everyone and of the selection, grey context,
filled and outlined marks (of a domain), rings, labels, hulls. So a page can replace traces and leave the reader's
camera alone.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.spatial import ConvexHull, QhullError

from atlas.figures import plots, tables
from atlas.theme import RATE_RAMP, RINGED, TOKENS, Mark, Plot, Theme, dress, faded, plain, translucent

DEFAULT_CAMERA = (1.2, 1.2, 0.7, 0.0, 0.0, -0.04, 0.0, 0.0, 1.0)
_STATED = re.compile(r"(?<![A-Za-z0-9.])(\d+(?:\.\d+)?)([bBmM])(?![A-Za-z0-9])")
_DATED = re.compile(r"(?<!\d)(?:20)?(2\d)(?:-(0[1-9]|1[0-2])-\d\d|(0[1-9]|1[0-2])(?:[0-3]\d)?)(?!\d)")
"""2025-04-14, 20250414, 250414 and 2504: year and month."""
MONTHS = re.compile(r"(\d{4})-(\d\d)\.\.(\d{4})-(\d\d)(?:,undated)?")
"""First and last month of a range as a link has it, and whether sources whose name states none are kept."""
UNDATED = ",undated"
UNSIZED = ",unsized"
SIZE_CLASSES = {"small": (0.0, 4.5), "middle": (4.5, 20.5), "large": (20.5, np.inf)}
"""More than, and up to so many billions of parameters."""
HALF = 1.08  # half the side of the scene; the points fill -1..1 in their widest direction
UNIT = 200.0
"""Pixels of a unit of the scaled points on a small screen, for which labels are placed; a larger one has more room."""
_NO_CLUSTERS = pd.DataFrame({"source": pd.Series(dtype=str), "cluster": pd.Series(dtype=int)})
LONGEST = 28  # letters of a name on the map
OTHER_DOMAIN = 0.5  # opacity of the marks of the other domain
MARGIN = 0.035  # how far a hull stays away from its outermost points, in units of the scaled map
UNKNOWN = 0.6  # size of a point whose number is not known, as a share of the others
FAINT = 0.4  # how much of its colour the edge of a hull has in the scene
MAJORITY = 0.5  # a cluster is one family's where it has more than this share of the sources
ACCESS_WORDS = {"local": "local weights", "api": "served by an API"}
KIN = 3  # nearest relatives that say how dense a family is at a point
CLUMP, CLUMPS = 0.3, 3  # radius of a place that holds more of a family than :data:`KIN`, and how many have its name
Tints = Mapping[str, tuple[str, str]]
Places = npt.NDArray[np.float64]
Place = tuple[float, ...]


# ---- what is shown --------------------------------------------------------------------------------------------------


def scaled(points: pd.DataFrame) -> pd.DataFrame:
    """Centre the points (columns x, y and maybe z) and divide by half their widest extent, one factor for all axes."""
    axes = [axis for axis in ("x", "y", "z") if axis in points and points[axis].notna().all()]
    if not len(points):
        return points
    middle, half = _frame(points, axes)
    moved = points.copy()
    moved[axes] = (points[axes].to_numpy(dtype=float) - middle) / half
    return moved


def _frame(points: pd.DataFrame, axes: Sequence[str]) -> tuple[Places, float]:
    """Middle and half the widest extent of some points."""
    values = points[list(axes)].to_numpy(dtype=float)
    low, high = values.min(axis=0), values.max(axis=0)
    widest = float(np.max(high - low))
    return (low + high) / 2, widest / 2 if widest > 0 else 1.0


@functools.cache
def stated_size(name: str) -> float:
    """Billions of parameters that a source's name states, NaN where it states none; the total of a mixture."""
    stated = _STATED.findall(name)
    return max(float(number) / (1000 if unit in "mM" else 1) for number, unit in stated) if stated else float("nan")


def of_size(names: pd.Series, size: str) -> pd.Series:
    """Which names state a size of a class: one of :data:`SIZE_CLASSES`, or 'all'; ',unsized' after it: or none."""
    if (of := size.removesuffix(UNSIZED)) == "all":
        return pd.Series(True, index=names.index)
    low, high = SIZE_CLASSES[of]
    stated = names.map(stated_size).astype(float)
    return (stated > low) & (stated <= high) | (stated.isna() & size.endswith(UNSIZED))


@functools.cache
def stated_month(name: str) -> float:
    """Month since the year 0 that a source's name states, NaN where it states none."""
    stated = _DATED.search(name)
    return 12 * (2000 + int(stated[1])) + int(stated[2] or stated[3]) - 1 if stated else float("nan")


def month_text(month: float) -> str:
    """A month of :func:`stated_month`: '2025-04'."""
    return f"{int(month) // 12}-{int(month) % 12 + 1:02d}"


def months_of(released: str) -> tuple[int, int] | None:
    """First and last month of a range as a link has it, None where it names none."""
    found = MONTHS.fullmatch(released)
    if found is None:
        return None
    first, last = (12 * int(found[at]) + int(found[at + 1]) - 1 for at in (1, 3))
    return first, last


def shown(
    points: pd.DataFrame, families: Collection[str], access: str, size: str = "all", released: str = "", chosen:
    Collection[str] = (),
) -> pd.Series:  # fmt: skip
    """Which points pass the filters; the others stay as grey context.

    points : Columns source, name, family and access. families : Isolated ones, empty for all. size : See
    :func:`of_size`. released : See :func:`months_of`. chosen : Selected sources, empty for all.
    """
    passed = of_size(points["name"], size)
    if months := months_of(released):
        stated = points["name"].map(stated_month).astype(float)
        passed &= stated.between(*months) | (stated.isna() & released.endswith(UNDATED))
    if chosen:
        passed &= points["source"].isin(list(chosen))
    if families:
        passed &= points["family"].isin(list(families))
    if access != "all":
        passed &= points["access"] == access
    return passed


# ---- the map of one domain, and of both ---------------------------------------------------------------------------


def map_figure(
    points: pd.DataFrame, links: pd.DataFrame, marks: Mapping[str, Mark], *, theme: Theme, dimensions: int,
    families: Sequence[str] = (), access: str = "all", size: str = "all", released: str = "", chosen:
    Collection[str] = (), selected: str = "", other: str = "", joined: bool = True, camera: Sequence[float] = (),
    tints: Tints | None = None, regions: pd.DataFrame | None = None, clusters: pd.DataFrame | None = None,
) -> Plot:  # fmt: skip
    """Sources as points.

    points : Columns source, name, family, access, x, y, z; one row a source.
    links : Columns source, neighbor, rank: pairs to join, from the original space.
    marks : Every family of the atlas.
    families, access, size, released, chosen : See :func:`shown`.
    selected, other : Labels of the selected source and of a second one, or empty.
    joined : Whether a dashed line joins these two.
    tints : Colour of every source, and words about it, in place of its family's.
    camera : Eye, centre, up of a scene (nine numbers), left, right, bottom and top edge of a flat map (four), or empty.
    regions : Columns family, x, y (lists, in the units of the points): outlines of whole families, in two dimensions.
    clusters : Columns source, cluster: hulls around those with a source in front.
    """
    placed, solid = scaled(points), dimensions == 3
    front = shown(points, families, access, size, released, chosen)
    data = _traces(placed, links, marks, theme, solid, front, selected, other, joined, camera, tints)
    grouped = placed.assign(front=front).merge(_NO_CLUSTERS if clusters is None else clusters, on="source")
    seen = set(grouped.loc[grouped["front"], "cluster"])
    colours = {cluster: own for cluster, own in cluster_colours(grouped, marks, theme).items() if cluster in seen}
    # Names of families, or of clusters where these are drawn: the page writes each next to a member with free room.
    data[-1]["meta"] = family_places(placed[front], solid) if clusters is None else cluster_places(grouped, seen, solid)
    none = {"name": "clusters", "type": "scatter", "x": [], "y": []}
    data.append(hull_edges(grouped, colours, theme) if solid else none)
    if regions is not None and not solid and len(points):
        middle, half = _frame(points, ("x", "y"))
        whole = whole_families(points, front)
        outlines = [
            (marks[row.family].colour(theme), (np.column_stack([row.x, row.y]) - middle) / half)
            for row in tables.rows(regions)
            if row.family in whole
        ]
        shapes = [_outline(corners, colour) for colour, corners in outlines]
    else:
        shapes = [] if solid else hull_shapes(grouped, colours)
    return {"data": data, "layout": map_layout(theme, dimensions, camera, placed) | {"shapes": shapes}}


def whole_families(points: pd.DataFrame, front: pd.Series) -> set[str]:
    """Families all of whose points are in front: an outline of their density is one of what is seen."""
    return set(points["family"]) - set(points["family"][~front])


def _outline(corners: Places, colour: str) -> Plot:
    """A filled outline in the coordinates of the scaled points, as SVG writes it."""
    path = "M" + "L".join(f"{x:.3f},{y:.3f}" for x, y in corners) + "Z"
    line = {"width": 1, "color": translucent(colour, 0.7)}
    return {"type": "path", "path": path, "layer": "below", "line": line, "fillcolor": translucent(colour, 0.1)}


def map_layout(theme: Theme, dimensions: int, camera: Sequence[float], placed: pd.DataFrame) -> Plot:
    """Layout of every map: the points fill it, and a new map leaves the camera alone."""
    layout: Plot = {"template": dress(theme), "margin": dict.fromkeys("lrtb", 0), "uirevision": "map"}
    if dimensions == 3:
        axes = {f"{axis}axis": {"range": [-HALF, HALF], "nticks": 5} for axis in "xyz"}
        view = {"aspectmode": "cube", "dragmode": "orbit", "camera": camera_layout(camera), "uirevision": "map"}
        return layout | {"scene": axes | view}
    # As high and wide as the points, so that one scale for both axes fills a frame of another shape.
    wide, high = (float(placed[axis].abs().max()) + HALF - 1 if len(placed) else HALF for axis in "xy")
    left, right, bottom, top = camera if len(camera) == 4 else (-wide, wide, -high, high)
    return layout | {
        "xaxis": {"visible": False, "range": [left, right]},
        "yaxis": {"visible": False, "range": [bottom, top], "scaleanchor": "x"},
        "dragmode": "pan",
        "hovermode": "closest",
    }


def camera_layout(camera: Sequence[float]) -> dict[str, dict[str, float]]:
    """Plotly camera of nine numbers (eye, centre, up), by default a view from above the corner."""
    numbers = camera if len(camera) == 9 else DEFAULT_CAMERA
    parts = zip(("eye", "center", "up"), (numbers[0:3], numbers[3:6], numbers[6:9]), strict=True)
    return {part: dict(zip("xyz", map(float, values), strict=True)) for part, values in parts}


def _traces(
    points: pd.DataFrame, links: pd.DataFrame, marks: Mapping[str, Mark], theme: Theme, solid: bool, passed: pd.Series,
    selected: str, other: str, joined: bool, camera: Sequence[float], tints: Tints | None,
) -> list[Plot]:  # fmt: skip
    own = links[links["source"] == selected]
    ranks = dict(zip(own["neighbor"], own["rank"], strict=True))
    points = points.assign(
        words=[
            f"{plain(family)} · {ACCESS_WORDS.get(access, plain(access))}"
            + (f"<br>nearest no. {ranks[source]:.0f} of the selection" if source in ranks else "")
            + (f"<br>{tints[source][1]}" if tints and source in tints else "")
            for source, family, access in tables.rows(points, "source", "family", "access")
        ]
    )
    where = dict(zip(points["source"], _tuples(points, solid), strict=True))
    front = passed | points["source"].isin([selected, other, *ranks])
    lines: dict[bool, list[tuple[Place, Place]]] = {False: [], True: []}
    pair = [(where[selected], where[other])] if joined and {selected, other} <= set(where) and selected != other else []
    for source, neighbor in tables.rows(links, "source", "neighbor"):
        # The dashed line stands in place of one to a neighbour.
        if source in where and neighbor in where and not (pair and (source, neighbor) == (selected, other)):
            lines[source == selected].append((where[source], where[neighbor]))
    width = 3 if solid else 1.5
    traces = _line_traces(lines[False], lines[True], theme, solid, width)
    traces.append(_lines("pair link", {"color": TOKENS[theme]["ink"], "width": width, "dash": "dash"}, pair, solid))
    traces.append(_context(points[~front], theme, solid, tints))
    traces += _source_traces(points[front], marks, theme, solid, tints)
    names = dict(zip(points["source"], points["name"], strict=True))
    chosen = [selected] if selected in names else []
    second = [other] if other in names and other != selected else []
    # Neighbours carry their rank, as in the card: five names would cover each other.
    near = [source for source in sorted(ranks, key=lambda source: ranks[source]) if source in where]
    for name, sources in {"nearest": near, "second": second, "selected": chosen}.items():
        traces.append(ring(name, theme, solid, [where[source] for source in sources]))
    named = [*chosen, *second]
    ranked = [source for source in near if source not in named]
    texts = [*(names[source] for source in named), *(f"{ranks[source]:.0f}" for source in ranked)]
    places = [where[source] for source in (*named, *ranked)]
    return [*traces, labels(places, texts, list(where.values()), theme, camera, bold=len(named))]


def joint_figure(
    points: pd.DataFrame, marks: Mapping[str, Mark], domains: Mapping[str, str], *, theme: Theme, dimensions: int,
    families: Sequence[str] = (), access: str = "all", size: str = "all", released: str = "", chosen:
    Collection[str] = (), links: str = "all", selected: str = "", other: str = "", camera: Sequence[float] = (), tints:
    Tints | None = None,
) -> Plot:  # fmt: skip
    """Both domains on one map (paper: cross-domain persistence): every source twice, joined by a line.

    points : Columns domain, source, name, family, access, x, y, z; a row a domain and source.
    domains : Their words; the first is drawn in full, the others small and faint.
    links : Whose two points are joined: 'selected', 'all' or 'off'.
    families, access, size, released, chosen, selected, other, camera, tints : As for :func:`map_figure`.
    """
    solid = dimensions == 3
    words = [
        f"{plain(family)} · {plain(domains.get(domain, domain))}" + (f"<br>{tints[source][1]}" if tints else "")
        for family, domain, source in tables.rows(points, "family", "domain", "source")
    ]
    placed = scaled(points).assign(words=words)
    own = placed["source"] == selected
    second = (placed["source"] == other) & ~own
    front = shown(placed, families, access, size, released, chosen) | own | second

    def joined(rows: pd.DataFrame) -> list[list[Place]]:
        return [_tuples(pair, solid) for _, pair in rows.groupby("source", sort=False)]

    none = placed.iloc[:0]
    drawn = front if links == "all" else placed["source"].isin(list(chosen)) & (links == "selected")
    everyone = joined(placed[drawn & ~own])
    data = _line_traces(everyone, joined(none if links == "off" else placed[own]), theme, solid, 4 if solid else 2)
    data.append(_context(placed[~front], theme, solid, tints))
    for domain, title in domains.items():
        faint = domain != next(iter(domains))
        for trace in _source_traces(placed[front & (placed["domain"] == domain)], marks, theme, solid, tints):
            if faint:
                trace["marker"]["size"] = (np.asarray(trace["marker"]["size"]) * 0.7).round(1).tolist()
            trace |= {"name": f"{trace['name']}, {plain(title)}", "opacity": OTHER_DOMAIN if faint else 1}
            data.append(trace)
    for name, ringed in {"second": placed[second], "selected": placed[own]}.items():
        data.append(ring(name, theme, solid, _tuples(ringed, solid)))
    full = placed["domain"] == next(iter(domains))
    named, repeated = [pd.concat([placed[rows & own], placed[rows & second]]) for rows in (full, ~full)]
    texts = [*named["name"], *(domains.get(domain, domain) for domain in repeated["domain"])]
    places = _tuples(pd.concat([named, repeated]), solid)
    data.append(labels(places, texts, _tuples(placed, solid), theme, camera, bold=len(named)))
    return {"data": data, "layout": map_layout(theme, dimensions, camera, placed) | {"shapes": []}}


# ---- traces ---------------------------------------------------------------------------------------------------------


def _kind(solid: bool) -> str:
    return "scatter3d" if solid else "scatter"


def _tuples(places: pd.DataFrame, solid: bool) -> list[Place]:
    return list(places[list("xyz" if solid else "xy")].itertuples(index=False, name=None))


def _coordinates(places: Sequence[Place], solid: bool) -> Plot:
    return {axis: [values[number] for values in places] for number, axis in enumerate("xyz" if solid else "xy")}


def _line_traces(
    everyone: Sequence[Sequence[Place]], own: Sequence[Sequence[Place]], theme: Theme, solid: bool, width: float
) -> list[Plot]:
    """Lines of everyone and of the selection, each as one trace with a gap after each line."""
    edge = TOKENS[theme]["edge"]
    # Faint, so that the points stand before them.
    faint = {"color": faded(edge, 0.65, theme) if solid else translucent(edge, 0.55), "width": 1.5 if solid else 1}
    strong = {"color": TOKENS[theme]["accent"], "width": width}
    return [_lines("links", faint, everyone, solid), _lines("own links", strong, own, solid)]


def _lines(name: str, style: Plot, lines: Sequence[Sequence[Place]], solid: bool) -> Plot:
    ends = {
        axis: [value for line in lines for value in (*(place[number] for place in line), None)]
        for number, axis in enumerate("xyz" if solid else "xy")
    }
    look = {"type": _kind(solid), "mode": "lines", "hoverinfo": "skip", "connectgaps": False}
    return {"name": name, "line": style, **look, **ends}


def _points(rows: pd.DataFrame, solid: bool) -> Plot:
    """Points that can be clicked."""
    return {
        "type": _kind(solid),
        "mode": "markers",
        **_coordinates(_tuples(rows, solid), solid),
        # Lists, not arrays: NumPy customdata does not come back in clickData.
        "customdata": [[source, plain(family)] for source, family in tables.rows(rows, "source", "family")],
        "text": [f"<b>{plain(name)}</b><br>{words}" for name, words in tables.rows(rows, "name", "words")],
        "hovertemplate": plots.TEXT,
        # A lasso fades nothing: what is not selected is drawn as context.
        **({} if solid else {"unselected": {"marker": {"opacity": 1}}}),
    }


def _source_traces(
    rows: pd.DataFrame, marks: Mapping[str, Mark], theme: Theme, solid: bool, tints: Tints | None
) -> list[Plot]:
    """Sources, filled marks and outlined ones: a scene prepares every trace anew, so a family has none of its own."""
    traces = []
    for name, outlined in (("filled", False), ("outlined", True)):
        own = rows[[_outlined(marks[family].symbol, solid) == outlined for family in rows["family"]]]
        symbols = [marks[family].symbol for family in own["family"]]
        colours = [
            marks[family].colour(theme) if tints is None else tints[source][0]
            for family, source in tables.rows(own, "family", "source")
        ]
        traces.append({"name": name, "marker": marker(symbols, colours, theme, solid, outlined), **_points(own, solid)})
    return traces


def _outlined(symbol: str, solid: bool) -> bool:
    """Whether a symbol has a wide outline; the cross of a scene is a thin sign, which its own outline thickens."""
    return plots.rim_width(symbol) == 2 or (symbol == "cross" and solid)


def _context(rows: pd.DataFrame, theme: Theme, solid: bool, tints: Tints | None) -> Plot:
    grey = TOKENS[theme]["context"]
    # Sources whose number is not known are grey, too: what filters take away must not look like them.
    colour = grey if tints is None else faded(grey, 0.4, theme)
    look = {"symbol": "circle", "color": colour, "size": 3 if solid else 6, "line": {"width": 0}}
    return {"name": "context", "marker": look, **_points(rows, solid)}


def ring(name: str, theme: Theme, solid: bool, places: Sequence[Place]) -> Plot:
    """Rings around points: the trace 'nearest', 'second' or 'selected'."""
    colour, flat, deep, width = {
        "nearest": ("soft", 17, 9, 1.25),
        "second": ("ink", 22, 13, 2),
        "selected": ("accent", 22, 13, 2.5),
    }[name]
    look = {"symbol": "circle-open", "color": TOKENS[theme][colour], "size": deep if solid else flat}
    more = {"mode": "markers", "hoverinfo": "skip", "marker": look | {"line": {"width": width}}}
    return {"name": name, "type": _kind(solid), **more, **_coordinates(places, solid)}


def labels(
    places: Sequence[Place], texts: Sequence[str], points: Sequence[Place], theme: Theme, camera: Sequence[float], *,
    bold: int,
) -> Plot:  # fmt: skip
    """The trace of labels, which leaves out what would stand on another one.

    texts : In the order of their weight, those of ``places``; ``points`` are all of the map.
    camera : As for :func:`map_figure`; a scene that is turned later keeps the sides.
    bold : So many of the first are names, which always stay.
    """
    solid = bool(points) and len(points[0]) == 3
    sides = label_sides(places, [text[:LONGEST] for text in texts], points, camera, fixed=bold)
    # In the scene a label begins at the point itself, and blanks take it off the ring.
    blank = "\u00a0" * 6 if solid else ""
    pads = {"middle right": (blank, ""), "middle left": ("", blank)}
    drawn = [number for number, side in enumerate(sides) if side]
    words = []
    for number in drawn:
        before, after = pads.get(sides[number], ("", ""))
        text = f"{before}{plain(texts[number], LONGEST)}{after}"
        words.append(f"<b>{text}</b>" if number < bold else text)
    return {
        "name": "labels",
        "type": _kind(solid),
        "mode": "text" if solid else "markers+text",
        "hoverinfo": "skip",
        # Nothing is seen of these marks; on a flat map they keep the text off the ring.
        "marker": {"size": 22, "opacity": 0},
        "text": words,
        "textposition": [sides[number] for number in drawn],
        "textfont": {"size": 12, "color": TOKENS[theme]["ink"]},
        **_coordinates([places[number] for number in drawn], solid),
    }


def label_sides(
    places: Sequence[Place], texts: Sequence[str], points: Sequence[Place], camera: Sequence[float] = (), *, fixed: int
) -> list[str]:
    """Side of its point on which each label stands (see :func:`atlas.figures.plots.free_sides`)."""
    seen = _seen([*places, *points], camera)
    return plots.free_sides(seen[: len(places)], texts, seen[len(places) :], UNIT * HALF, fixed=fixed)


def _seen(places: Sequence[Place], camera: Sequence[float]) -> Places:
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
    seen: Places = UNIT * HALF * (from_eye @ np.column_stack([right, np.cross(right, ahead)])) / depth
    return seen


def marker(symbols: Sequence[str], colours: Sequence[str], theme: Theme, solid: bool, outlined: bool) -> Plot:
    """How points of these symbols and colours look, all with a wide outline or none."""
    faint = TOKENS[theme]["context"]
    sizes, edges = [], []
    for symbol, colour in zip(symbols, colours, strict=True):
        thin = symbol == "cross" and solid
        size = 10 if not solid else 7.5 if thin else 5 if symbol.startswith("circle") else 4.5
        sizes.append(round(UNKNOWN * size, 1) if colour == faint else size)
        edges.append(colour if thin or colour == faint else plots.rim(symbol, colour, theme))
    return {
        "symbol": ["circle" if symbol == RINGED else symbol for symbol in symbols],
        "color": list(colours),
        "line": {"width": 2 if outlined else 0.5 if solid else 0.75, "color": edges},
        # Of several sizes, Plotly fades the marks, and halves them in a scene.
        **{"size": sizes, "opacity": 1, "sizeref": 0.5 if solid else 1},
    }


def ramp(theme: Theme) -> tuple[str, ...]:
    """Colours of numbers on the map, low to high: the steps of the rates' ramp that stand out from the ground."""
    return RATE_RAMP[theme][3:]


def shades(values: pd.Series, theme: Theme) -> list[str]:
    """A colour of :func:`ramp` for every number; that of the context for a missing one."""
    steps = np.array([[int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in ramp(theme)])
    low, wide = values.min(), values.max() - values.min()
    place = ((values - low) / wide if wide > 0 else values * 0 + 1) * (len(steps) - 1)
    return [
        TOKENS[theme]["context"]
        if np.isnan(at)
        else "#" + "".join(f"{round(np.interp(at, range(len(steps)), channel)):02x}" for channel in steps.T)
        for at in place.astype(float)
    ]


# ---- names of families and clusters ---------------------------------------------------------------------------------


def family_places(points: pd.DataFrame, solid: bool) -> list[Plot]:
    """Name of every family of at least three points, largest first, and its members, from where it is densest.

    A family in several places is named at up to :data:`CLUMPS` of them, the second ones after all first ones.
    """
    names, everyone = (
        points["family"].to_numpy(dtype=object),
        points[list("xyz" if solid else "xy")].to_numpy(dtype=float),
    )
    found = []
    for family, count in Counter(names).items():
        places, clumps = everyone[names == family], list[Places]()
        while len(clumps) < CLUMPS and len(places) > (KIN if clumps else 2):
            apart = np.sqrt(((places[:, None] - places[None]) ** 2).sum(axis=2))
            order = np.sort(apart, axis=1)[:, : KIN + 1].sum(axis=1).argsort(kind="stable")
            near = apart[order[0]] <= CLUMP
            if near.sum() <= KIN and clumps:
                break
            clumps.append(places[order[near[order]]])
            rest, places = places[order[~near[order]]], places[~near]
        if clumps:
            clumps[0] = np.vstack([clumps[0], rest])
        found += [
            {"text": str(family), "n": count, "at": at, "places": clump.round(3).tolist()}
            for at, clump in enumerate(clumps)
        ]
    return sorted(found, key=lambda one: (one["at"], -int(one["n"])))


def cluster_words(families: pd.Series) -> str:
    """What a cluster holds: 'Qwen 9 of 12', or 'mixed 12' where no family has most of it."""
    family, most = next(iter(families.value_counts().items()))
    return f"{family} {most} of {len(families)}" if most > MAJORITY * len(families) else f"mixed {len(families)}"


def cluster_places(points: pd.DataFrame, seen: Collection[int], solid: bool) -> list[Plot]:
    """Number and :func:`cluster_words` of clusters (columns cluster, family), and their members, from the middle."""
    found = []
    for _, part in points[points["cluster"].isin(list(seen))].groupby("cluster"):
        text = f"{int(part['cluster'].iloc[0]) + 1}: {cluster_words(part['family'])}"
        places = np.array(_tuples(part, solid))
        order = np.linalg.norm(places - places.mean(axis=0), axis=1).argsort(kind="stable")
        found.append({"text": text, "n": len(part), "places": places[order].round(3).tolist()})
    return found


# ---- hulls around clusters ------------------------------------------------------------------------------------------


def cluster_colours(points: pd.DataFrame, marks: Mapping[str, Mark], theme: Theme) -> dict[int, str]:
    """Colour of every cluster (columns cluster, family): of the family that most of its sources have, else neutral."""
    colours = {}
    for _, part in points.groupby("cluster"):
        shares = part["family"].value_counts(normalize=True)
        own = marks[shares.index[0]].colour(theme) if shares.iloc[0] > MAJORITY else TOKENS[theme]["soft"]
        colours[int(part["cluster"].iloc[0])] = own
    return colours


def hull_shapes(points: pd.DataFrame, colours: Mapping[int, str]) -> list[Plot]:
    """Filled outlines for the layout of a flat map, of the clusters that have a colour."""
    found = [(colour, _hull(points, cluster, ["x", "y"])) for cluster, colour in colours.items()]
    return [_outline(hull[1], colour) for colour, hull in found if hull is not None]


def hull_edges(points: pd.DataFrame, colours: Mapping[int, str], theme: Theme) -> Plot:
    """Edges of all hulls as one trace, with gaps; lines, unlike a surface, let the pointer through to the points."""
    ends: dict[str, list[float | None]] = {axis: [] for axis in "xyz"}
    shades: list[str] = []
    for cluster, colour in colours.items():
        found = _hull(points, cluster, ["x", "y", "z"])
        if found is None:
            continue
        hull, places = found
        corners = dict(zip(hull.vertices.tolist(), places.tolist(), strict=True))
        pairs = hull.simplices[:, [[0, 1], [1, 2], [0, 2]]].reshape(-1, 2)
        for one, two in np.unique(np.sort(pairs, axis=1), axis=0).tolist():
            for number, axis in enumerate("xyz"):
                ends[axis] += [corners[one][number], corners[two][number], None]
            shades += [faded(colour, FAINT, theme)] * 3
    look = {"mode": "lines", "hoverinfo": "skip", "connectgaps": False, "line": {"color": shades, "width": 1.5}}
    return {"name": "clusters", "type": "scatter3d", **look, **ends}


def _hull(points: pd.DataFrame, cluster: int, axes: list[str]) -> tuple[ConvexHull, Places] | None:
    """Convex hull of a cluster and its corners, moved away from its middle; None of points that lie in one place."""
    places = points.loc[points["cluster"] == cluster, axes].to_numpy(dtype=float)
    try:
        # Joggled, so that points of one line or plane have one too.
        hull = ConvexHull(places, qhull_options="QJ")
    except QhullError:
        return None
    away = places[hull.vertices] - places.mean(axis=0)
    length = np.linalg.norm(away, axis=1, keepdims=True)
    return hull, places[hull.vertices] + MARGIN * away / np.where(length > 0, length, 1.0)
