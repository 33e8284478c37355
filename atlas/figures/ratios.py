"""Validated likelihood ratios: Tippett and PAV plots, both axes of ratios in log10."""

from __future__ import annotations

import pandas as pd

from atlas.figures.attribution import SHOW_HOVERTEXT
from atlas.figures.dots import upright
from atlas.figures.evidence import number
from atlas.theme import TOKENS, Plot, Theme, dress

CLAIMS = {"tippett_true": ("true claims", "solid", "left"), "tippett_false": ("false claims", "dash", "right")}
"""Metric to words, dash, and the side of the label that touches the curve."""


def tippett(points: pd.DataFrame, limits: tuple[float, float] | None = None, *, theme: Theme) -> Plot:
    """Share of true and of false claims whose ratio is at least as large.

    points : columns metric (of :data:`CLAIMS`), level (log10 ratio), value (share). limits : what ratios are held
    within.
    """
    token = TOKENS[theme]
    traces: list[dict[str, object]] = []
    notes: list[dict[str, object]] = []
    for metric, (words, dash, side) in CLAIMS.items():
        curve = points[points["metric"] == metric].sort_values("level")
        if curve.empty:
            continue
        colour = token["accent" if metric == "tippett_true" else "caution"]
        hover = [
            f"<b>{share:.2%} of {words}</b><br>have a log10 ratio of {number(level)} or more"
            for level, share in zip(curve["level"], curve["value"], strict=True)
        ]
        traces.append(_steps(curve, words, {"color": colour, "width": 2, "dash": dash}, 5, hover))
        middle = curve.iloc[(curve["value"] - 0.5).abs().argmin()]
        notes.append(
            {"x": middle["level"], "y": middle["value"], "text": words, "showarrow": False, "xanchor": side,
             "xshift": 10 if side == "left" else -10,
             "font": {"size": 13, "color": token["accent-ink"] if metric == "tippett_true" else colour}}
        )  # fmt: skip
    shapes = [upright(0, {"color": token["edge"], "width": 1})]
    shapes += [upright(limit, {"color": token["soft"], "width": 1, "dash": "dot"}) for limit in limits or ()]
    return {"data": traces, "layout": _layout(theme, "share of claims", {"range": [-0.03, 1.05], "tickformat": ".0%"})
            | {"annotations": notes, "shapes": shapes}}  # fmt: skip


def pooled_ratios(points: pd.DataFrame, *, theme: Theme) -> Plot:
    """The log10 ratio that claims show (value) where one was stated (level), against the diagonal."""
    token = TOKENS[theme]
    curve = points.sort_values("level")
    ends = [min(curve["level"].min(), curve["value"].min(), 0), max(curve["level"].max(), curve["value"].max(), 0)]
    room = 0.06 * max(ends[1] - ends[0], 1.0)
    reach = [ends[0] - room, ends[1] + room]
    hover = [
        f"<b>stated {number(level)}</b><br>claims show {number(value)} (log10 ratio)"
        for level, value in zip(curve["level"], curve["value"], strict=True)
    ]
    shown = _steps(curve, "held-out claims", {"color": token["accent"], "width": 2, "shape": "hv"}, 6, hover)
    same = {"type": "line", "x0": reach[0], "y0": reach[0], "x1": reach[1], "y1": reach[1], "layer": "below",
            "line": {"color": token["soft"], "width": 1, "dash": "dash"}}  # fmt: skip
    note = {"x": reach[1], "y": reach[1], "text": "as stated", "showarrow": False, "xanchor": "right", "yanchor": "top",
            "xshift": -28, "font": {"size": 12, "color": token["soft"]}}  # fmt: skip
    layout = _layout(theme, "log10 ratio that claims show", {"range": reach})
    layout["xaxis"] |= {"range": reach, "title": {"text": "stated log10 ratio"}}
    return {"data": [shown], "layout": layout | {"shapes": [same], "annotations": [note]}}


def _steps(curve: pd.DataFrame, name: str, line: dict[str, object], size: int, hover: list[str]) -> Plot:
    return {
        **{"type": "scatter", "name": name, "x": curve["level"].tolist(), "y": curve["value"].tolist()},
        **{"mode": "lines+markers", "line": line, "marker": {"size": size, "color": line["color"]}},
        **{"hovertext": hover, "hovertemplate": SHOW_HOVERTEXT},
    }


def _layout(theme: Theme, title: str, upwards: dict[str, object]) -> Plot:
    return {
        **{"template": dress(theme), "margin": {"l": 64, "r": 16, "t": 8, "b": 52}},
        **{"hovermode": "closest", "dragmode": False, "showlegend": False},
        "xaxis": {"title": {"text": "log10 ratio"}, "fixedrange": True},
        "yaxis": {"title": {"text": title}, "fixedrange": True} | upwards,
    }
