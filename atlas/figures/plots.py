"""Pieces that figures share: traces, notes, axes and layouts as plain values, numbers as text, sides of names."""

from __future__ import annotations

import itertools
import math
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import plotly.graph_objects as go

from atlas.theme import RINGED, TOKENS, Plot, Theme, dress, plain, translucent

HOVER = "%{hovertext}<extra></extra>"
TEXT = "%{text}<extra></extra>"
STILL = {"fixedrange": True}  # an axis that nobody moves
ROW_LEGEND: Mapping[str, object] = {"orientation": "h", "x": 0, "font": {"size": 12}, "itemclick": False}
HEAD_LEGEND: Mapping[str, object] = {
    **ROW_LEGEND, "xref": "container", "y": 1, "yref": "container", "yanchor": "top"
}  # fmt: skip
ABOVE: Mapping[str, Any] = {"xanchor": "left", "yanchor": "bottom"}
LEGEND: Mapping[str, object] = {**HEAD_LEGEND, "xanchor": "left", "itemdoubleclick": False}
"""A legend in one line above the drawing that nobody can switch off by accident."""
LETTER = 6.2  # width of a letter in pixels, at a size of 11
TALL = 14.0
REACH = 7.0  # half the size of a mark, and the gap to its name
RING = 13.0  # the same of a mark with a ring around it
BOLD = 7.0  # width of a bold letter in pixels, at a size of 12
SIDES = ("top center", "bottom center", "middle right", "middle left")
Box = tuple[float, float, float, float]
End = tuple[float, str, str]  # height, text and colour of a label at the right end of a drawing


@dataclass(frozen=True)
class Line:
    """How one line of a figure is drawn and named."""

    key: str
    label: str
    colour: str
    dash: str = "solid"
    front: bool = True  # else thin and without a band
    named: bool = True  # else its name is shown on hover alone


def by_line(
    frame: pd.DataFrame, lines: Sequence[Line], column: str = "reader"
) -> Iterator[tuple[int, Line, pd.DataFrame, bool]]:
    """Number, line, its rows by budget, and whether all were published; without lines that have no rows."""
    of = dict(list((frame.sort_values("k") if "k" in frame else frame).groupby(column)))
    for number, line in enumerate(lines):
        if line.key in of:
            yield number, line, of[line.key], bool((of[line.key]["origin"] == "published").all())


# ---- traces, notes, axes, layouts -----------------------------------------------------------------------------------


def scatter(name: str, x: Iterable[Any], y: Iterable[Any], hover: Sequence[str] | None = None, **more: Any) -> Plot:
    """Marks, or what ``mode`` says; without texts or a template of texts they do not answer the pointer."""
    silent = {} if "hovertemplate" in more else {"hoverinfo": "skip"}
    answer = silent if hover is None else {"hovertext": list(hover), "hovertemplate": HOVER}
    return {"type": "scatter", "name": name, "x": list(x), "y": list(y), "mode": "markers"} | answer | more


def band(
    name: str, x: Iterable[Any], low: Iterable[Any], high: Iterable[Any], colour: str, alpha: float, **more: Any
) -> Plot:
    """A filled range between two curves."""
    across = list(x)
    around = [*high, *list(low)[::-1]]
    style: Plot = {"mode": "lines", "fill": "toself", "fillcolor": translucent(colour, alpha), "line": {"width": 0}}
    return scatter(name, [*across, *across[::-1]], around, **style, **more)


def wilson(share: float, n: int, z: float = 1.959964) -> tuple[float, float]:
    """Wilson's interval of a share of ``n`` independent groups, 95 % by default."""
    middle, half = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return max(0.0, (middle - half) / (1 + z * z / n)), min(1.0, (middle + half) / (1 + z * z / n))


def bars(over: Iterable[float], under: Iterable[float], colour: str, thickness: float = 2, width: int = 0) -> Plot:
    """Error bars of so much above and below."""
    return {
        "type": "data", "array": list(over), "arrayminus": list(under), "color": colour, "thickness": thickness,
        "width": width,
    }  # fmt: skip


def outlined(
    size: float | Sequence[float], fill: str | Sequence[str], colour: str | Sequence[str], width: float = 2, **more: Any
) -> Plot:
    """A marker with a rim."""
    return {"size": size, "color": fill, "line": {"color": colour, "width": width}, **more}


def note(x: float, y: float, text: str, size: int, colour: str, **more: Any) -> Plot:
    """Words at a place of the drawing."""
    return {"x": x, "y": y, "text": text, "showarrow": False, "font": {"size": size, "color": colour}, **more}


def page_note(x: float, y: float, text: str, size: int, colour: str, **more: Any) -> Plot:
    """Words at a place of the whole figure, in shares of its width and height."""
    return note(x, y, text, size, colour, xref="paper", yref="paper", **more)


def end_note(y: float, text: str, colour: str, size: int = 13, shift: int = 10, **more: Any) -> Plot:
    """Words right of the drawing, at the height of what they name."""
    return note(1, y, text, size, colour, xref="paper", xanchor="left", xshift=shift, **{"align": "left", **more})


def end_notes(
    ends: Sequence[End], distance: float | Sequence[float] = 0, limit: float = float("inf"), shift: int = 10
) -> list[Plot]:
    """Labels right of the drawing, moved apart."""
    heights = apart([end[0] for end in ends], distance, limit)
    return [end_note(y, text, ink, shift=shift) for (_, text, ink), y in zip(ends, heights, strict=True)]


def leaders(goals: Sequence[float], notes: Sequence[Plot], shift: int) -> list[Plot]:
    """Thin lines from the ends of lines to their labels of :func:`end_notes`; assets/narrow.js knows their name."""
    place = {"type": "line", "name": "leader", "xref": "paper", "xsizemode": "pixel", "xanchor": 1}
    ends = {"x0": 0, "x1": shift - 3}
    return [
        {**place, **ends, "y0": goal, "y1": note["y"], "line": pen(note["font"]["color"])}
        for goal, note in zip(goals, notes, strict=True)
    ]


def apart(heights: Sequence[float], distance: float | Sequence[float], limit: float = float("inf")) -> list[float]:
    """Heights moved as little as needed to lie ``distance`` apart below a limit; several distances: room of each."""
    moved, room = list(heights), np.broadcast_to(distance, len(heights)).tolist()
    order = sorted(range(len(moved)), key=lambda index: moved[index])
    for before, after in itertools.pairwise(order):
        moved[after] = max(moved[after], moved[before] + (room[before] + room[after]) / 2)
    if order:
        moved[order[-1]] = min(moved[order[-1]], limit)
    for after, before in itertools.pairwise(reversed(order)):
        moved[before] = min(moved[before], moved[after] - (room[before] + room[after]) / 2)
    return moved


def pen(colour: str, width: float = 1, dash: str = "") -> Plot:
    """How a line is drawn."""
    return {"color": colour, "width": width} | ({"dash": dash} if dash else {})


def level(y: float, *line: Any) -> Plot:
    """A line across the drawing; ``line`` as for :func:`pen`."""
    return segment((0, 1), (y, y), *line, xref="x domain", yref="y")


def upright(x: float, *line: Any, **more: Any) -> Plot:
    """A line from the foot of the drawing to its head."""
    return segment((x, x), (0, 1), *line, yref="y domain", **more)


def segment(x: tuple[float, float], y: tuple[float, float], *line: Any, **more: Any) -> Plot:
    """A straight line between two places."""
    return {"type": "line", "x0": x[0], "x1": x[1], "y0": y[0], "y1": y[1], "line": pen(*line), **more}


def reach(values: Iterable[float], share: float = 0.04, least: float = 0.0) -> tuple[float, float]:
    """Ends of an axis that holds the values and a share more of their span, which counts as ``least`` at least."""
    inside = pd.Series(list(values), dtype=float)
    low, high = float(inside.min()), float(inside.max())
    pad = share * (max(high - low, least) or 1.0)
    return low - pad, high + pad


def titled(title: str, **more: Any) -> Plot:
    """An axis with a title."""
    return {"title": {"text": title}, **more}


def rows_axis(names: Sequence[str], bottom: float = 0.5, top: float = 0.5, **more: Any) -> Plot:
    """An axis with a name a row, from the top down; ``bottom`` and ``top`` are the room beyond the outer rows."""
    ends = [len(names) - bottom, -top]
    return {"tickvals": list(range(len(names))), "ticktext": list(names), "range": ends, "ticks": "", **more}


def budget_axis(
    budgets: Sequence[int], title: str = "Traces a group (K), log scale", pad: float = 0.05, also: Sequence[int] = ()
) -> Plot:
    """A logarithmic axis of budgets with a tick at each, from the least to the most of them and those in ``also``."""
    reach = [*budgets, *also] or [1, 100]
    return titled(
        title, type="log", tickvals=list(budgets), range=[np.log10(min(reach)) - pad, np.log10(max(reach)) + pad],
        showgrid=False, ticktext=[str(budget) for budget in budgets], minor={"ticks": ""},
    )  # fmt: skip


def plot(
    theme: Theme, margin: tuple[int, int, int, int], data: Sequence[Plot], xaxis: Plot | None = None,
    yaxis: Plot | None = None, **more: Any,
) -> Plot:  # fmt: skip
    """Traces and layout; the margin is left, right, top, bottom. What is None stays Plotly's own."""
    room = dict(zip("lrtb", margin, strict=True))
    values = {"template": dress(theme), "margin": room, "hovermode": "closest", "xaxis": xaxis, "yaxis": yaxis, **more}
    return {"data": list(data), "layout": {name: value for name, value in values.items() if value is not None}}


def figure(*values: Any, **more: Any) -> go.Figure:
    """The same as :func:`plot`, as Plotly's figure, which checks it."""
    return go.Figure(plot(*values, **more))


def rim(symbol: str, colour: str, theme: Theme) -> str:
    """Outline of a family's marker: an open one is its outline, a filled one is set off from those behind it."""
    if symbol.endswith("-open"):
        return colour
    return TOKENS[theme]["ink" if symbol == RINGED else "ground"]


def rim_width(symbol: str) -> float:
    """Width of :func:`rim` on a flat drawing."""
    return 2 if symbol == RINGED or symbol.endswith("-open") else 0.75


# ---- numbers and names as text --------------------------------------------------------------------------------------


def rate_text(value: float) -> str:
    """A rate for a table: three digits, no leading zero."""
    if pd.isna(value):
        return "–"
    return f"{value:.3f}".removeprefix("0") if value >= 0 else f"−{-value:.3f}".replace("0.", ".", 1)


def cosine_text(value: float) -> str:
    """A cosine; near 1, where a roster's pairs differ in the fourth digit, with more of them."""
    return f"{value:.5f}".removeprefix("0") if 0.9995 <= value < 1 else rate_text(value)


def cosine_texts(values: Iterable[float]) -> list[str]:
    """Cosines of one column, with the decimals that the one nearest to 1 needs."""
    values = list(values)
    if any(0.9995 <= value < 1 for value in values):
        return [f"{value:.5f}".removeprefix("0") for value in values]
    return [cosine_text(value) for value in values]


class _AtHyphens(textwrap.TextWrapper):
    wordsep_re = re.compile(r"(\s+|[^\s-]*-)")


def in_two_lines(name: str, numbers: Sequence[str], width: int) -> list[str]:
    """A name with numbers at its end, of which the name alone is cut; hyphens break where spaces are not enough."""
    words: list[str] = name.split()
    cut: list[str] = []
    while True:
        text = " ".join([*words, *cut, *numbers])
        for lines in (textwrap.wrap(text, width), _AtHyphens(width).wrap(text)):
            if len(lines) <= 2 or len(words) == 1:
                return lines
        words, cut = words[:-1], ["…"]


def figure_text(value: float) -> str:
    """A number to three significant digits, zeros at its end too, without a leading zero."""
    if pd.isna(value):
        return "–"
    return rate_text(value) if abs(value) < 1 else f"{value:#.3g}".rstrip(".")


def count(number: int, noun: str) -> str:
    """A number of things: '1 trace', '1,200 traces'."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def interval(low: float, high: float, form: str = " [{}, {}]") -> str:
    """An interval as ``form`` writes it; '' where an end is missing."""
    return "" if pd.isna(low) or pd.isna(high) else form.format(rate_text(low), rate_text(high))


def heading(name: str, published: bool = False) -> str:
    """First line of a hover text: a name, and whether it was published."""
    return f"<b>{plain(name)}</b>{', published' if published else ''}<br>"


def small(text: str) -> str:
    """Words in smaller letters at the end of a number."""
    return f"<span style='font-size:11px'>{text}</span>"


def signed(value: float) -> str:
    """A difference with its sign."""
    return f"+{rate_text(value)}" if value >= 0 else rate_text(value)


# ---- sides of names -------------------------------------------------------------------------------------------------


def sides(
    across: Sequence[float], heights: Sequence[float], names: Sequence[str], wide: float, fixed: int | None = None,
    line: Iterable[tuple[float, float]] = (),
) -> list[str]:  # fmt: skip
    """Plotly's text position of every mark, at ``across`` and upwards in pixels of a drawing so wide.

    One name after another finds the first free side, or the least covered one; over an end counts as covered.
    fixed : So many of the first names always find a place; of the others, '' stands for one without a free side.
    line : Places of a line that names avoid.
    """
    taken: list[Box] = [(x - REACH, y - REACH, x + REACH, y + REACH) for x, y in zip(across, heights, strict=True)]
    taken += [(-1e6, -1e6, 0.0, 1e6), (wide, -1e6, 1e6, 1e6), *((x - 1, y - 1, x + 1, y + 1) for x, y in line)]
    found: list[str] = []
    for x, y, name in zip(across, heights, names, strict=True):
        boxes = {side: _box(x, y, LETTER * len(name), side) for side in SIDES}
        side = min(SIDES, key=lambda side: _covered(boxes[side], taken))
        hidden = fixed is not None and len(found) >= fixed and _covered(boxes[side], taken)
        found.append("" if hidden else side)
        taken += [] if hidden else [boxes[side]]
    return found


def free_sides(
    places: npt.NDArray[np.float64], names: Sequence[str], marks: npt.NDArray[np.float64], half: float, *, fixed: int
) -> list[str]:
    """Plotly's text position of labels next to ringed marks, none of which stands on an earlier one.

    places : (n, 2); Ringed marks in pixels from the middle of the drawing, upwards; names : the most important first.
    marks : (m, 2); All marks: a label takes the side on which it covers the fewest. half : Half the drawing's width.
    fixed : So many of the first labels always find a place; of the others, '' stands for one without room.
    """
    obstacles = np.vstack([np.hstack([marks - REACH, marks + REACH]), _beyond(half)])
    taken: list[Box] = []
    found: list[str] = []
    for (x, y), name in zip(places, names, strict=True):
        boxes = {side: _box(x, y, BOLD * len(name), side, RING) for side in SIDES}
        free = {side: box for side, box in boxes.items() if not _covered(box, taken)}
        if not free and len(found) >= fixed:
            found.append("")
            continue
        covers = {side: _covered(box, obstacles) for side, box in (free or boxes).items()}
        found.append(min(covers, key=lambda side: covers[side]))
        taken.append(boxes[found[-1]])
    return found


def outer_side(
    group: npt.NDArray[np.float64],
    name: str,
    rings: npt.NDArray[np.float64],
    marks: npt.NDArray[np.float64],
    half: float,
) -> tuple[int, str]:
    """Which mark of a group its shared label stands at, and its side.

    group, rings : (n, 2) and (m, 2); Ringed marks of the group, and all that are ringed. The rest as in
    :func:`free_sides`: of the four sides of the whole group the label takes the one on which it covers least.
    """
    obstacles = np.vstack([np.hstack([marks - REACH, marks + REACH]), np.hstack([rings - RING, rings + RING])])
    obstacles = np.vstack([obstacles, _beyond(half)])
    x, y = group.T
    outer = {"middle right": x.argmax(), "middle left": x.argmin(), "top center": y.argmax()}
    places = {side: int(at) for side, at in (outer | {"bottom center": y.argmin()}).items()}
    boxes = {side: _box(float(x[at]), float(y[at]), BOLD * len(name), side, RING) for side, at in places.items()}
    side = min(boxes, key=lambda side: _covered(boxes[side], obstacles))
    return places[side], side


def _beyond(half: float) -> npt.NDArray[np.float64]:
    """What lies left and right of a drawing of so much half a width."""
    return np.array([[-1e6, -1e6, -half, 1e6], [half, -1e6, 1e6, 1e6]])


def _box(x: float, y: float, wide: float, side: str, reach: float = REACH) -> Box:
    if side == "top center":
        return x - wide / 2, y + reach, x + wide / 2, y + reach + TALL
    if side == "bottom center":
        return x - wide / 2, y - reach - TALL, x + wide / 2, y - reach
    left = x + reach if side == "middle right" else x - reach - wide
    return left, y - TALL / 2, left + wide, y + TALL / 2


def _covered(box: Box, others: npt.ArrayLike) -> float:
    """Area that a box shares with others of shape (m, 4)."""
    corners: npt.NDArray[np.float64] = np.reshape(others, (-1, 4))
    shared = np.minimum(box[2:], corners[:, 2:]) - np.maximum(box[:2], corners[:, :2])
    return float(shared.clip(min=0).prod(axis=1).sum())
