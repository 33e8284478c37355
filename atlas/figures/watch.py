"""The evidence of a watch over its traces, and how soon watches raised their alarms after a change."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pandas as pd

from atlas.figures import plots, tables
from atlas.figures.plots import end_note, scatter
from atlas.theme import TOKENS, Plot, Theme, dress
from backend.inference.e_process import LN10

MOST = 1_000  # points that are drawn; of more, as many in even steps and the last
HEIGHT = 260
CHANGES = {
    "family": "Another family's model answers",
    "sibling": "Another model of the family answers",
    "mixture": "Another family: 30 % of requests",
    "resampled": "Nothing changes: false alarms",
}
"""What changes in simulated streams, and its words."""
ENDS = (("delay", "half", "circle", "middle left"), ("delay90", "nine of ten", "circle-open", "middle right"))
DELAYS_HEIGHT = 280
LEFT, RIGHT = 232, 120  # margins of the names and of the shares, in pixels


def evidence_curve(
    log_e: npt.NDArray[np.float64], rate: float, alarm: int | None, theme: Theme, changed: int | None = None
) -> Plot:
    """Log10 e-value after every trace; ``alarm`` is the number of the trace that reached the line.

    changed : traces after which another model answers, where that is known.
    """
    token, line = TOKENS[theme], math.log10(1 / rate)
    shown = np.unique(np.linspace(0, len(log_e), min(len(log_e), MOST) + 1).round().astype(int))
    values = np.concatenate([[0.0], log_e])[shown] / LN10
    peak = float(values.max())
    top = max(line * 1.25, math.ceil(peak) + 0.1 if peak > line else peak * 1.08)  # a tick above what passes the line
    low = min(-0.6, float(values.min()) - 0.2)
    powers = list(range(math.ceil(low), math.floor(top) + 1, max(1, math.ceil((top - low) / 8))))
    words = [f"{count:,} answers<br>evidence {10**value:,.3g} to 1" for count, value in zip(shown, values, strict=True)]
    curve = scatter(
        "evidence", shown.tolist(), values.round(4).tolist(), words, mode="lines",
        line={"color": token["accent"], "width": 2},
    )  # fmt: skip
    marks = []
    if alarm is not None:
        marker = {"size": 10, "color": token["against"], "symbol": "diamond"}
        at = float(log_e[alarm - 1]) / LN10
        marks = [scatter("alarm", [alarm], [at], [f"alarm after {alarm:,} answers"], marker=marker)]
    across = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": line, "y1": line}
    shapes = [across | {"line": {"color": token["against"], "width": 1.5, "dash": "dash"}}]
    notes = [end_note(line, f"alarm, {1 / rate:,.0f} to 1", token["against"], size=12, shift=6)]
    if changed is not None:
        upright = {"type": "line", "yref": "paper", "x0": changed, "x1": changed, "y0": 0, "y1": 1}
        shapes.append(upright | {"line": {"color": token["soft"], "width": 1, "dash": "dot"}})
        beside = {"yref": "paper", "xanchor": "right", "yanchor": "top"}
        notes.append(plots.note(changed, 1, "another model answers\u00a0", 12, token["soft"], **beside))
    layout = {
        "template": dress(theme),
        "margin": {"l": 64, "r": 108, "t": 12, "b": 44},
        "shapes": shapes,
        "annotations": notes,
        "xaxis": {"title": {"text": "Answers counted"}, "range": [0, 1.02 * max(len(log_e), 20)], "fixedrange": True},
        "yaxis": {
            "title": {"text": "Evidence against it, x to 1"}, "range": [low, top], "fixedrange": True,
            "tickvals": powers,
            "ticktext": [f"{10.0**power:,g}" if abs(power) < 6 else f"10<sup>{power}</sup>" for power in powers],
        },
    }  # fmt: skip
    return {"data": [curve, *marks], "layout": layout}


def alarm_delays(frame: pd.DataFrame, theme: Theme) -> Plot:
    """Answers from a change until half of the watches, and nine of ten, raised their alarm; a line a change.

    frame : Columns scenario (of :data:`CHANGES`), alarms, delay, delay90 (NaN without a change), n, k.
    """
    token, rows = TOKENS[theme], frame.set_index("scenario")
    rows = rows.loc[[name for name in CHANGES if name in rows.index]].assign(place=lambda found: range(len(found)))
    changed = rows[rows["delay"].notna()]
    marks, shapes = [], []
    for field, words, symbol, side in ENDS:
        hover = [
            f"{words} of {row.n:,.0f} watches had raised the alarm within {getattr(row, field):,.0f} answers"
            for row in tables.rows(changed)
        ]
        marks.append(
            scatter(
                words,
                changed[field].clip(lower=1),
                changed["place"],
                hover,
                mode="markers+text",
                text=[f"\u00a0\u00a0{value:,.0f}\u00a0\u00a0" for value in changed[field]],
                textposition=side,
                textfont={"size": 14},
                marker={"size": 12, "symbol": symbol, "color": token["accent"], "line": plots.pen(token["accent"], 2)},
            )
        )
    answers = {name: f"<br>{count:,.0f} answers" for name, count in rows["k"].items()}
    apart = len(set(answers.values())) > 1
    end = "by the end of its answers" if apart else f"within {next(iter(answers.values())).removeprefix('<br>')}"
    key = f"● half of the watches, ○ nine of ten had raised an alarm;<br>right: all that had {end}"
    notes = [plots.page_note(0, 1, key, 12, token["soft"], align="left", **plots.ABOVE)]
    for row in tables.rows(rows):
        notes.append(end_note(row.place, f"<b>{100 * row.alarms:.1f} %</b>", token["ink"]))
        if pd.notna(row.delay):
            ends = max(row.delay, 1), max(row.delay90, 1)
            shapes.append(plots.segment(ends, (row.place, row.place), token["accent"], 3, layer="below"))
    most = max(100.0, *(1.3 * changed["delay90"])) if len(changed) else 100.0
    ticks = [k for k in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000) if k <= most]
    x = plots.budget_axis(ticks, "Answers after the change, log scale", 0.04, [math.ceil(most)])
    y = plots.rows_axis([CHANGES[str(name)] + last * apart for name, last in answers.items()])
    return plots.plot(
        theme, (LEFT, RIGHT, 44, 52), marks, x | plots.STILL, y | plots.STILL, shapes=shapes, annotations=notes
    )
