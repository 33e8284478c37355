"""Readouts beside the paper's best and what was aimed for: one line a question, one mark an answer."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from atlas.figures.attribution import rate_text
from atlas.figures.dots import LEGEND, Series, name_lines
from atlas.theme import TOKENS, Plot, Theme, plain

ANSWERS: Mapping[str, Series] = {
    "readout": Series("fused readout here", "circle", 1, 0),
    "reader": Series("READER here", "diamond", 0.33, 1),
    "words": Series("word n-grams here", "star", -0.33, 4),
    "paper": Series("paper's best READER", "square", -1, 2),
}
"""Who answers, in the order of the legend; the paper's is published, the others were measured here."""


def goal_rows(frame: pd.DataFrame, names: Mapping[str, str], *, theme: Theme) -> Plot:
    """What everybody reaches, and the aim as a bar across.

    frame : Columns row, answer (of :data:`ANSWERS`), name, value, low, high (NaN without an interval), aim; a row
        without an aim has NaN.
    names : From the top down.
    """
    token = TOKENS[theme]
    place = {row: number for number, row in enumerate(names)}
    traces: list[dict[str, object]] = []
    aims = frame.drop_duplicates("row").dropna(subset="aim")
    traces.append(
        {
            "type": "scatter",
            "name": "aimed for",
            "legendrank": 2000,
            "x": aims["aim"].tolist(),
            "y": [place[row] for row in aims["row"]],
            "mode": "markers",
            "marker": {"symbol": "line-ns", "size": 20, "line": {"color": token["ink"], "width": 2}},
            "hovertext": [
                f"<b>{plain(names[row.row])}</b><br>aimed for: {rate_text(row.aim)}" for row in aims.itertuples()
            ],
            "hovertemplate": "%{hovertext}<extra></extra>",
        }
    )
    for key, style in ANSWERS.items():
        rows = frame[frame["answer"] == key]
        if rows.empty:
            continue
        ink = style.ink(theme)
        traces.append(
            {
                "type": "scatter",
                "name": style.words,
                "x": rows["value"].tolist(),
                "y": [place[row] - 0.18 * style.place for row in rows["row"]],
                "mode": "markers",
                "error_x": {
                    "type": "data",
                    "array": (rows["high"] - rows["value"]).fillna(0.0).tolist(),
                    "arrayminus": (rows["value"] - rows["low"]).fillna(0.0).tolist(),
                    "color": ink,
                    "thickness": 2,
                    "width": 0,
                },
                "marker": {
                    "size": 11 if style.symbol == "star" else 10,
                    "symbol": style.symbol,
                    "color": token["ground"] if key == "paper" else ink,
                    "line": {"color": ink, "width": 2},
                },
                "hovertext": [
                    f"<b>{plain(row.name)}</b>{', published' if key == 'paper' else ''}<br>{plain(names[row.row])}: "
                    f"{rate_text(row.value)}"
                    + ("" if pd.isna(row.low) else f", 95 % interval {rate_text(row.low)} to {rate_text(row.high)}")
                    for row in rows[["row", "name", "value", "low", "high"]].itertuples(index=False)
                ],
                "hovertemplate": "%{hovertext}<extra></extra>",
            }
        )
    notes = [
        {"x": 1, "xref": "paper", "y": number, "text": _verdict(frame[frame["row"] == row]), "showarrow": False,
         "xanchor": "left", "xshift": 12, "align": "left", "font": {"size": 13, "color": token["ink"]}}
        for row, number in place.items()
    ]  # fmt: skip
    across = {"title": {"text": "Accuracy"}, "range": [0, 1.02], "tickformat": ".1~f"}
    layout = name_lines(names, theme, across, [], notes)
    return {"data": traces, "layout": layout | {"legend": dict(LEGEND) | {"itemsizing": "constant"}}}


def _verdict(rows: pd.DataFrame) -> str:
    """The number of the readout here, and whether the aim is reached, in a word."""
    own = rows[rows["answer"] == "readout"]
    if own.empty:
        return "not measured"
    value, aim = float(own["value"].iloc[0]), float(own["aim"].iloc[0])
    said = "" if pd.isna(aim) else " reached" if value >= aim else f" of {rate_text(aim)}"
    return f"{rate_text(value)}<span style='font-size:11px'>{said}</span>"
