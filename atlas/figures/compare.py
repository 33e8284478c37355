"""Readers side by side: curves over the budgets are those of Attribution; here are blocks, domains and conditions."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

import pandas as pd
import plotly.graph_objects as go

from atlas.figures.attribution import Line, apart, rate_text
from atlas.theme import TOKENS, Theme, plain, template, translucent

WIDE = 5
"""Columns that are wide enough for their words; those of more are turned."""


def layer_curves(
    curves: Mapping[str, pd.DataFrame], chosen: Mapping[str, int], lines: Sequence[Line], *, theme: Theme
) -> go.Figure:
    """Inner validation accuracy along the depth of every proxy, its modal block marked.

    curves : Columns layer, depth (share of the proxy's blocks, 0..1), accuracy, low, high.
    chosen : Modal block.
    lines : Front line last.
    """
    token = TOKENS[theme]
    figure = go.Figure()
    ends: list[tuple[float, str, str]] = []
    rings = [
        (float(row.depth), float(row.accuracy))
        for key, curve in curves.items()
        for row in curve[curve["layer"] == chosen.get(key)].itertuples(index=False)
    ]
    for line in lines:
        rows = curves.get(line.key)
        if rows is None or rows.empty:
            continue
        figure.add_trace(
            go.Scatter(
                name=f"{plain(line.label)}, range",
                x=[*rows["depth"], *rows["depth"][::-1]],
                y=[*rows["high"], *rows["low"][::-1]],
                fill="toself",
                fillcolor=translucent(line.colour, 0.14),
                line={"width": 0},
                mode="lines",
                hoverinfo="skip",
            )
        )
        figure.add_trace(
            go.Scatter(
                name=plain(line.label),
                x=rows["depth"].tolist(),
                y=rows["accuracy"].tolist(),
                mode="lines",
                line={"color": line.colour, "width": 2, "dash": line.dash},
                hovertext=[
                    f"<b>{plain(line.label)}</b><br>block {int(layer)}: {rate_text(accuracy)}"
                    for layer, accuracy in rows[["layer", "accuracy"]].itertuples(index=False)
                ],
                hovertemplate="%{hovertext}<extra></extra>",
            )
        )
        modal = rows[rows["layer"] == chosen.get(line.key)]
        if len(modal):
            figure.add_trace(
                go.Scatter(
                    name=f"{plain(line.label)}, selected",
                    x=modal["depth"].tolist(),
                    y=modal["accuracy"].tolist(),
                    mode="markers+text",
                    marker={"size": 13, "symbol": "circle-open", "color": token["ink"], "line": {"width": 2}},
                    text=[f"block {int(layer)}" for layer in modal["layer"]],
                    textposition=_beside(rings, float(modal["depth"].iloc[0]), float(modal["accuracy"].iloc[0])),
                    textfont={"size": 12, "color": line.colour},
                    hoverinfo="skip",
                )
            )
        ends.append((float(rows["accuracy"].iloc[-1]), plain(line.label, 24), line.colour))
    held = [frame for frame in curves.values() if len(frame)]
    low = min((float(frame["low"].min()) for frame in held), default=0.0)
    high = max((float(frame["high"].max()) for frame in held), default=1.0)
    step = 0.06 * (high - low or 1.0)
    for (_, text, ink), y in zip(ends, apart([end[0] for end in ends], step, high + step), strict=True):
        figure.add_annotation(
            x=1, xref="paper", y=y, text=text, showarrow=False, xanchor="left", xshift=10,
            font={"size": 13, "color": ink},
        )  # fmt: skip
    figure.update_layout(template=template(theme), margin={"l": 64, "r": 176, "t": 24, "b": 52}, hovermode="closest")
    figure.update_xaxes(title="Depth in the proxy", range=[0, 1.01], tickformat=".0%", showgrid=False)
    figure.update_yaxes(title="Accuracy at one trace", range=[max(0.0, low - step), high + 2 * step], tickformat=".2~f")
    return figure


def condition_dots(
    frame: pd.DataFrame, columns: Mapping[tuple[str, str], str], lines: Sequence[Line], *, theme: Theme
) -> go.Figure:
    """Every reader under every domain and condition: one column each, one mark a reader.

    frame : Columns reader, origin, benchmark, condition, value, std.
    columns : In the order from left to right.
    """
    token = TOKENS[theme]
    place = {key: number for number, key in enumerate(columns)}
    many = len(place) > WIDE
    step = min(0.12, 0.6 / max(len(lines), 1))
    figure = go.Figure()
    for number, line in enumerate(lines):
        rows = frame[frame["reader"] == line.key]
        held = [key in place for key in zip(rows["benchmark"], rows["condition"], strict=True)]
        rows = rows[held]
        if rows.empty:
            continue
        published = bool((rows["origin"] == "published").all())
        where = [
            place[key] + (number - (len(lines) - 1) / 2) * step
            for key in zip(rows["benchmark"], rows["condition"], strict=True)
        ]
        figure.add_trace(
            go.Scatter(
                name=plain(line.label, 28),
                x=where,
                y=rows["value"].tolist(),
                error_y={
                    "type": "data",
                    "array": rows["std"].fillna(0.0).tolist(),
                    "color": line.colour,
                    "thickness": 1.5,
                    "width": 0,
                },
                mode="markers",
                marker={
                    "size": 10,
                    "color": token["ground"] if published else line.colour,
                    "line": {"color": line.colour, "width": 2},
                },
                hovertext=[
                    f"<b>{plain(line.label)}</b>{', published' if published else ''}<br>"
                    f"{columns[(benchmark, condition)]}: {rate_text(value)}"
                    for benchmark, condition, value in rows[["benchmark", "condition", "value"]].itertuples(index=False)
                ],
                hovertemplate="%{hovertext}<extra></extra>",
            )
        )
    figure.update_layout(
        template=template(theme),
        margin={"l": 64, "r": 24, "t": 52, "b": 136 if many else 72},
        showlegend=True,
        legend={
            "orientation": "h",
            "x": 0,
            "y": 1,
            "yanchor": "bottom",
            "font": {"size": 12},
            "itemclick": False,
            "traceorder": "reversed",
        },
        hovermode="closest",
    )
    figure.update_xaxes(
        tickvals=list(place.values()),
        ticktext=[_lines(words, 40 if many else 15) for words in columns.values()],
        tickangle=-45 if many else 0,
        tickfont={"size": 11 if many else 12},
        range=[-0.6, len(place) - 0.4],
        showgrid=False,
        ticks="",
    )
    return figure


def _lines(words: str, width: int) -> str:
    """Words of a column, 'where, what', in lines of at most so many letters."""
    where, _, what = words.partition(", ")
    return "<br>".join([where, *textwrap.wrap(what, width)])


def _beside(rings: Sequence[tuple[float, float]], x: float, y: float) -> str:
    """Where the name of a ring stands: above it, or below it where a higher ring is near."""
    near = [ring for ring in rings if ring != (x, y) and abs(ring[0] - x) < 0.12 and 0 <= ring[1] - y < 0.06]
    return "bottom center" if near else "top center"
