"""Validated likelihood ratios: how often they point the right way (Tippett), and whether they mean it (PAV).

Few points of the curves travel in an enrolment's validation; both axes of ratios are in log10.
"""

from __future__ import annotations

import pandas as pd

from atlas.figures import plots
from atlas.theme import TOKENS, Plot, Theme

CLAIMS = {"tippett_true": ("true claims", "solid", "left"), "tippett_false": ("false claims", "dash", "right")}
"""Metric to words, dash, and the side of the curve's label that touches it."""


def tippett(points: pd.DataFrame, limits: tuple[float, float] | None = None, *, theme: Theme) -> Plot:
    """Share of true and of false claims whose ratio is at least as large.

    points : Columns metric (of :data:`CLAIMS`), level (log10 ratio), value (share).
    limits : What log10 ratios are held within, dotted.
    """
    token = TOKENS[theme]
    traces: list[Plot] = []
    notes: list[Plot] = []
    for metric, (words, dash, side) in CLAIMS.items():
        curve = points[points["metric"] == metric].sort_values("level")
        if curve.empty:
            continue
        true = metric == "tippett_true"
        colour = token["accent" if true else "caution"]
        hover = [
            f"<b>{share:.2%} of {words}</b><br>have a log10 ratio of {_number(level)} or more"
            for level, share in zip(curve["level"], curve["value"], strict=True)
        ]
        look = {"line": {"color": colour, "width": 2, "dash": dash}, "marker": {"size": 5, "color": colour}}
        traces.append(plots.scatter(words, curve["level"], curve["value"], hover, mode="lines+markers", **look))
        middle = curve.iloc[(curve["value"] - 0.5).abs().argmin()]
        ink, shift = token["accent-ink"] if true else colour, 10 if side == "left" else -10
        notes.append(plots.note(middle["level"], middle["value"], words, 13, ink, xanchor=side, xshift=shift))
    shapes = [plots.upright(0, {"color": token["edge"], "width": 1})]
    shapes += [plots.upright(limit, {"color": token["soft"], "width": 1, "dash": "dot"}) for limit in limits or ()]
    upwards = plots.titled("share of claims", range=[-0.03, 1.05], tickformat=".0%")
    return {"data": traces, "layout": _layout(theme, plots.titled("log10 ratio"), upwards, shapes, notes)}


def pooled_ratios(points: pd.DataFrame, *, theme: Theme) -> Plot:
    """What claims show where a ratio was stated, against the diagonal where both are the same.

    points : Columns level (stated log10 ratio), value (log10 ratio that claims show).
    """
    token = TOKENS[theme]
    curve = points.sort_values("level")
    ends = [min(curve["level"].min(), curve["value"].min(), 0), max(curve["level"].max(), curve["value"].max(), 0)]
    room = 0.06 * max(ends[1] - ends[0], 1.0)
    low, high = ends[0] - room, ends[1] + room
    hover = [
        f"<b>stated {_number(level)}</b><br>claims show {_number(value)} (log10 ratio)"
        for level, value in zip(curve["level"], curve["value"], strict=True)
    ]
    look = {
        "line": {"color": token["accent"], "width": 2, "shape": "hv"},
        "marker": {"size": 6, "color": token["accent"]},
    }
    shown = plots.scatter("held-out claims", curve["level"], curve["value"], hover, mode="lines+markers", **look)
    dashed = {"color": token["soft"], "width": 1, "dash": "dash"}
    same = plots.segment((low, high), (low, high), dashed, layer="below")
    stated = plots.note(high, high, "as stated", 12, token["soft"], xanchor="right", yanchor="top", xshift=-28)
    across, upwards = (
        plots.titled(title, range=[low, high]) for title in ("stated log10 ratio", "log10 ratio that claims show")
    )
    return {"data": [shown], "layout": _layout(theme, across, upwards, [same], [stated])}


def _layout(theme: Theme, x: Plot, y: Plot, shapes: list[Plot], notes: list[Plot]) -> Plot:
    more = {"dragmode": False, "showlegend": False, "shapes": shapes, "annotations": notes}
    return plots.layout(theme, (64, 16, 8, 52), x | plots.STILL, y | plots.STILL, **more)


def _number(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")
