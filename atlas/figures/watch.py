"""The evidence of a watch over its traces, with the line at which it raises an alarm."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from atlas.figures.plots import end_note, scatter
from atlas.theme import TOKENS, Plot, Theme, dress
from backend.inference.e_process import LN10

MOST = 1_000  # points that are drawn; of more, as many in even steps and the last
HEIGHT = 260


def evidence_curve(log_e: npt.NDArray[np.float64], rate: float, alarm: int | None, theme: Theme) -> Plot:
    """Log10 e-value after every trace; ``alarm`` is the number of the trace that reached the line."""
    token, line = TOKENS[theme], math.log10(1 / rate)
    shown = np.unique(np.linspace(0, len(log_e), min(len(log_e), MOST) + 1).round().astype(int))
    values = np.concatenate([[0.0], log_e])[shown] / LN10
    top = max(line * 1.25, float(values.max()) * 1.08)
    words = [f"{count:,} traces<br>e = 10^{value:.2f}" for count, value in zip(shown, values, strict=True)]
    curve = scatter(
        "evidence", shown.tolist(), values.round(4).tolist(), words, mode="lines",
        line={"color": token["accent"], "width": 2},
    )  # fmt: skip
    marks = []
    if alarm is not None:
        marker = {"size": 10, "color": token["against"], "symbol": "diamond"}
        at = float(log_e[alarm - 1]) / LN10
        marks = [scatter("alarm", [alarm], [at], [f"alarm after {alarm:,} traces"], marker=marker)]
    across = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": line, "y1": line}
    layout = {
        "template": dress(theme),
        "margin": {"l": 56, "r": 72, "t": 12, "b": 44},
        "shapes": [across | {"line": {"color": token["against"], "width": 1.5, "dash": "dash"}}],
        "annotations": [end_note(line, f"alarm, {1 / rate:,.0f}", token["against"], size=12, shift=6)],
        "xaxis": {"title": {"text": "traces"}, "range": [0, max(len(log_e), 20)], "fixedrange": True},
        "yaxis": {
            "title": {"text": "evidence, log10 e"}, "range": [min(-0.6, float(values.min()) - 0.2), top],
            "fixedrange": True,
        },
    }  # fmt: skip
    return {"data": [curve, *marks], "layout": layout}
