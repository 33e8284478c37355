"""Pieces that figures share: traces, notes, axes and layouts as plain values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from atlas.figures.attribution import rate_text
from atlas.theme import RINGED, TOKENS, Mark, Plot, Theme, dress, translucent

HOVER = "%{hovertext}<extra></extra>"
STILL = {"fixedrange": True}
"""An axis that nobody moves."""
ROW_LEGEND: Mapping[str, object] = {"orientation": "h", "x": 0, "font": {"size": 12}, "itemclick": False}
HEAD_LEGEND: Mapping[str, object] = {
    **ROW_LEGEND, "xref": "container", "y": 1, "yref": "container", "yanchor": "top"
}  # fmt: skip
LEGEND: Mapping[str, object] = {**HEAD_LEGEND, "xanchor": "left", "itemdoubleclick": False}
"""A legend in one line above the drawing that nobody can switch off by accident."""


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
    style = {"mode": "lines", "fill": "toself", "fillcolor": translucent(colour, alpha), "line": {"width": 0}}
    return scatter(name, [*across, *across[::-1]], around, **style, **more)


def bars(over: Iterable[float], under: Iterable[float], colour: str, thickness: float = 2, width: int = 0) -> Plot:
    """Error bars of so much above and below."""
    return {
        "type": "data", "array": list(over), "arrayminus": list(under), "color": colour, "thickness": thickness,
        "width": width,
    }  # fmt: skip


def outlined(size: float, fill: str, colour: str, width: float = 2, **more: Any) -> Plot:
    """A marker with a rim."""
    return {"size": size, "color": fill, "line": {"color": colour, "width": width}, **more}


def note(x: float, y: float, text: str, size: int, colour: str, **more: Any) -> Plot:
    """Words at a place of the drawing."""
    return {"x": x, "y": y, "text": text, "showarrow": False, "font": {"size": size, "color": colour}, **more}


def end_note(y: float, text: str, colour: str, size: int = 13, shift: int = 10, **more: Any) -> Plot:
    """Words right of the drawing, at the height of what they name."""
    return note(1, y, text, size, colour, xref="paper", xanchor="left", xshift=shift, **more)


def upright(x: float, line: Mapping[str, object], **more: Any) -> Plot:
    """A line from the foot of the drawing to its head."""
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "y domain", "line": dict(line), **more}


def segment(x: tuple[float, float], y: tuple[float, float], line: Mapping[str, object], **more: Any) -> Plot:
    """A straight line between two places."""
    return {"type": "line", "x0": x[0], "x1": x[1], "y0": y[0], "y1": y[1], "line": dict(line), **more}


def titled(title: str, **more: Any) -> Plot:
    """An axis with a title."""
    return {"title": {"text": title}, **more}


def rows_axis(names: Sequence[str], bottom: float = 0.5, top: float = 0.5, **more: Any) -> Plot:
    """An axis with a name a row, from the top down; ``bottom`` and ``top`` are the room beyond the outer rows."""
    ends = [len(names) - bottom, -top]
    return {"tickvals": list(range(len(names))), "ticktext": list(names), "range": ends, "ticks": "", **more}


def layout(theme: Theme, margin: tuple[int, int, int, int], x: Plot, y: Plot, **more: Any) -> Plot:
    """Layout of one drawing; the margin is left, right, top, bottom. What is None stays Plotly's own."""
    room = dict(zip("lrtb", margin, strict=True))
    values = {"template": dress(theme), "margin": room, "hovermode": "closest", "xaxis": x, "yaxis": y, **more}
    return {name: value for name, value in values.items() if value is not None}


def figure(data: Sequence[Plot], arrangement: Plot) -> go.Figure:
    """Traces and layout as Plotly's figure, which checks them."""
    return go.Figure({"data": list(data), "layout": arrangement})


def rim(mark: Mark, theme: Theme) -> str:
    """Outline of a family's marker: an open one is its outline, a filled one is set off from those behind it."""
    if mark.symbol == RINGED:
        return TOKENS[theme]["ink"]
    return mark.colour(theme) if mark.symbol.endswith("-open") else TOKENS[theme]["ground"]


def rim_width(mark: Mark) -> float:
    """Width of :func:`rim` on a flat drawing."""
    return 2 if mark.symbol == RINGED or mark.symbol.endswith("-open") else 0.75


def published_words(published: bool) -> str:
    """What a hover text adds to a name that was not measured here."""
    return ", published" if published else ""


def small(text: str) -> str:
    """Words in smaller letters at the end of a number."""
    return f"<span style='font-size:11px'>{text}</span>"


def signed(value: float) -> str:
    """A difference with its sign."""
    return f"+{rate_text(value)}" if value >= 0 else rate_text(value)


def p_text(value: float) -> str:
    """A p value to three digits, never as nought or one: '.012', '< .001', '> .999'."""
    if value < 0.001:
        return "< .001"
    return "> .999" if value >= 0.9995 else rate_text(value)
