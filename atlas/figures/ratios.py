"""Validated likelihood ratios: how often they point the right way (Tippett), and whether they mean it (PAV).

Few points of the curves travel in an enrolment's validation; both axes of ratios are in log10.
"""

from __future__ import annotations

import pandas as pd

from atlas.figures.dots import upright
from atlas.theme import TOKENS, Plot, Theme, dress

CLAIMS = {"tippett_true": ("true claims", "solid", "left"), "tippett_false": ("false claims", "dash", "right")}
"""Metric to words, dash, and the side of the curve's label that touches it."""


def tippett(points: pd.DataFrame, limits: tuple[float, float] | None = None, *, theme: Theme) -> Plot:
    """Share of true and of false claims whose ratio is at least as large.

    points : Columns metric (of :data:`CLAIMS`), level (log10 ratio), value (share).
    limits : What log10 ratios are held within, dotted.
    """
    token = TOKENS[theme]
    traces: list[dict[str, object]] = []
    notes: list[dict[str, object]] = []
    for metric, (words, dash, side) in CLAIMS.items():
        curve = points[points["metric"] == metric].sort_values("level")
        if curve.empty:
            continue
        colour = token["accent" if metric == "tippett_true" else "caution"]
        traces.append(
            {
                "type": "scatter",
                "name": words,
                "x": curve["level"].tolist(),
                "y": curve["value"].tolist(),
                "mode": "lines+markers",
                "line": {"color": colour, "width": 2, "dash": dash},
                "marker": {"size": 5, "color": colour},
                "hovertext": [
                    f"<b>{share:.2%} of {words}</b><br>have a log10 ratio of {_number(level)} or more"
                    for level, share in zip(curve["level"], curve["value"], strict=True)
                ],
                "hovertemplate": "%{hovertext}<extra></extra>",
            }
        )
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
    """What claims show where a ratio was stated, against the diagonal where both are the same.

    points : Columns level (stated log10 ratio), value (log10 ratio that claims show).
    """
    token = TOKENS[theme]
    curve = points.sort_values("level")
    ends = [min(curve["level"].min(), curve["value"].min(), 0), max(curve["level"].max(), curve["value"].max(), 0)]
    room = 0.06 * max(ends[1] - ends[0], 1.0)
    reach = [ends[0] - room, ends[1] + room]
    shown = {
        "type": "scatter",
        "name": "held-out claims",
        "x": curve["level"].tolist(),
        "y": curve["value"].tolist(),
        "mode": "lines+markers",
        "line": {"color": token["accent"], "width": 2, "shape": "hv"},
        "marker": {"size": 6, "color": token["accent"]},
        "hovertext": [
            f"<b>stated {_number(level)}</b><br>claims show {_number(value)} (log10 ratio)"
            for level, value in zip(curve["level"], curve["value"], strict=True)
        ],
        "hovertemplate": "%{hovertext}<extra></extra>",
    }
    same = {"type": "line", "x0": reach[0], "y0": reach[0], "x1": reach[1], "y1": reach[1], "layer": "below",
            "line": {"color": token["soft"], "width": 1, "dash": "dash"}}  # fmt: skip
    note = {"x": reach[1], "y": reach[1], "text": "as stated", "showarrow": False, "xanchor": "right", "yanchor": "top",
            "xshift": -28, "font": {"size": 12, "color": token["soft"]}}  # fmt: skip
    layout = _layout(theme, "log10 ratio that claims show", {"range": reach})
    layout["xaxis"] |= {"range": reach, "title": {"text": "stated log10 ratio"}}
    return {"data": [shown], "layout": layout | {"shapes": [same], "annotations": [note]}}


def _layout(theme: Theme, title: str, upwards: dict[str, object]) -> Plot:
    return {
        "template": dress(theme),
        "margin": {"l": 64, "r": 16, "t": 8, "b": 52},
        "hovermode": "closest",
        "dragmode": False,
        "showlegend": False,
        "xaxis": {"title": {"text": "log10 ratio"}, "fixedrange": True},
        "yaxis": {"title": {"text": title}, "fixedrange": True} | upwards,
    }


def _number(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")
