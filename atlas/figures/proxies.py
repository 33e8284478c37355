"""What a proxy's general capability and its size have to do with its accuracy (paper: capability, cost)."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pandas as pd

from atlas.figures.attribution import rate_text
from atlas.figures.dots import LEGEND
from atlas.figures.labels import sides
from atlas.theme import READER_COLOURS, TOKENS, Plot, Theme, dress, plain

GAP = 0.06


def capability_fit(frame: pd.DataFrame, told: Mapping[str, str], *, theme: Theme, k: int) -> Plot:
    """Accuracy against a capability score, one panel a benchmark, one mark a proxy, with the least-squares line.

    frame : Columns benchmark, name (of the proxy), score (percent), value (accuracy).
    told : Correlation and p, drawn at the foot of the panel.
    k : Budget of the accuracies.
    """
    token = TOKENS[theme]
    ink = READER_COLOURS[theme][0]
    traces: list[dict[str, object]] = []
    notes: list[dict[str, object]] = []
    axes: dict[str, object] = {}
    benchmarks = list(dict.fromkeys(frame["benchmark"]))
    width = (1 - GAP * (len(benchmarks) - 1)) / max(len(benchmarks), 1)
    low, high = float(frame["value"].min()), float(frame["value"].max())
    pad = 0.25 * max(high - low, 1e-3)
    for number, benchmark in enumerate(benchmarks):
        ending = "" if number == 0 else str(number + 1)
        left = number * (width + GAP)
        rows = frame[frame["benchmark"] == benchmark].sort_values("score")
        at = {"xaxis": f"x{ending}", "yaxis": f"y{ending}"}
        least, most = float(rows["score"].min()), float(rows["score"].max())
        across = (least - 0.18 * (most - least or 1.0), most + 0.18 * (most - least or 1.0))
        if len(rows) >= 3:
            slope, offset = np.polyfit(rows["score"], rows["value"], 1)
            ends = [least, most]
            traces.append(
                dict(
                    type="scatter",
                    name=f"fit line, {benchmark}",
                    x=ends,
                    y=[float(slope * x + offset) for x in ends],
                    mode="lines",
                    line={"color": token["edge"], "width": 1.5, "dash": "dash"},
                    hoverinfo="skip",
                    **at,
                )
            )
        traces.append(
            dict(
                type="scatter",
                name=benchmark,
                x=rows["score"].tolist(),
                y=rows["value"].tolist(),
                mode="markers+text",
                marker={"size": 10, "color": token["ground"], "line": {"color": ink, "width": 2}},
                text=[short(name) for name in rows["name"]],
                textposition=_sides(rows["score"], rows, (*across, low - pad, high + pad), 430),
                textfont={"size": 11, "color": token["soft"]},
                hovertext=[
                    f"<b>{plain(name)}</b>, published<br>{benchmark}: {score:.1f} %<br>accuracy at K = {k}: "
                    f"{rate_text(value)}"
                    for name, score, value in rows[["name", "score", "value"]].itertuples(index=False)
                ],
                hovertemplate="%{hovertext}<extra></extra>",
                cliponaxis=False,
                **at,
            )
        )
        notes.append(
            {"x": left, "xref": "paper", "xanchor": "left", "y": 1.02, "yref": "paper", "yanchor": "bottom",
             "text": f"<b>{benchmark}</b>   {told.get(benchmark, '')}", "showarrow": False,
             "font": {"size": 12, "color": token["ink"]}}
        )  # fmt: skip
        axes.update(
            {
                f"xaxis{ending}": {
                    "domain": [left, left + width],
                    "anchor": f"y{ending}",
                    "title": {"text": f"{benchmark} score, percent"},
                    "range": list(across),
                    "showgrid": False,
                    "fixedrange": True,
                },
                f"yaxis{ending}": {
                    "anchor": f"x{ending}",
                    "range": [low - pad, high + pad],
                    "tickformat": ".3~f",
                    "title": {"text": f"Accuracy at K = {k}" if number == 0 else ""},
                    "showticklabels": number == 0,
                    "fixedrange": True,
                },
            }
        )
    return {
        "data": traces,
        "layout": {
            "template": dress(theme),
            "margin": {"l": 64, "r": 16, "t": 40, "b": 56},
            "hovermode": "closest",
            "dragmode": False,
            "showlegend": False,
            "annotations": notes,
            **axes,
        },
    }


def cost_scatter(frame: pd.DataFrame, *, theme: Theme, axis: str, k: int) -> Plot:
    """Accuracy against what an audit costs, one mark a reader, measured ones filled.

    frame : Columns name, label (beside the mark), kind (what the reader is, the legend), origin, cost (positive),
        told (cost in words), value.
    axis : Title of the cost axis, with its unit.
    k : Budget of the accuracies.
    """
    token = TOKENS[theme]
    traces: list[dict[str, object]] = []
    spread = np.log10(frame["cost"])
    left, right = float(spread.min()), float(spread.max())
    low, high = float(frame["value"].min()), float(frame["value"].max())
    aside, above = 0.12 * max(right - left, 0.5), 0.12 * max(high - low, 0.05)
    area = (left - aside, right + aside, low - above, high + above)
    frame = frame.assign(side=_sides(spread, frame.assign(name=frame["label"]), area, 900))
    for number, (kind, rows) in enumerate(frame.groupby("kind", sort=False)):
        ink = READER_COLOURS[theme][number % len(READER_COLOURS[theme])]
        published = (rows["origin"] == "published").tolist()
        traces.append(
            {
                "type": "scatter",
                "name": str(kind),
                "x": rows["cost"].tolist(),
                "y": rows["value"].tolist(),
                "mode": "markers+text",
                "marker": {
                    "size": 11,
                    "symbol": ("circle", "square", "diamond", "triangle-up", "star", "hexagon")[number % 6],
                    "color": [token["ground"] if away else ink for away in published],
                    "line": {"color": ink, "width": 2},
                },
                "text": [short(name) for name in rows["label"]],
                "textposition": rows["side"].tolist(),
                "textfont": {"size": 11, "color": token["soft"]},
                "hovertext": [
                    f"<b>{plain(row.name)}</b>{', published' if row.origin == 'published' else ''}<br>{row.told}<br>"
                    f"accuracy at K = {k}: {rate_text(row.value)}"
                    for row in rows[["name", "origin", "told", "value"]].itertuples(index=False)
                ],
                "hovertemplate": "%{hovertext}<extra></extra>",
                "cliponaxis": False,
            }
        )
    return {
        "data": traces,
        "layout": {
            "template": dress(theme),
            "margin": {"l": 64, "r": 24, "t": 44, "b": 56},
            "hovermode": "closest",
            "dragmode": False,
            "showlegend": True,
            "legend": dict(LEGEND),
            "xaxis": {
                "title": {"text": axis},
                "type": "log",
                "dtick": 1,
                "exponentformat": "B",
                "showgrid": False,
                "range": list(area[:2]),
                "fixedrange": True,
            },
            "yaxis": {
                "title": {"text": f"Accuracy at K = {k}"},
                "range": list(area[2:]),
                "tickformat": ".2~f",
                "fixedrange": True,
            },
        },
    }


def short(name: str) -> str:
    """A model's name without what every name ends with."""
    return plain(re.sub(r"-(?:Instruct|it)(?:-\d+)?$", "", name), 30)


def _sides(across: pd.Series, rows: pd.DataFrame, area: tuple[float, float, float, float], wide: int) -> list[str]:
    """Where names stand; the area (left, right, low, high) is drawn about so many pixels wide and 280 high."""
    left, right, low, high = area
    places = (wide * (across - left) / (right - left)).tolist()
    heights = (280 * (rows["value"] - low) / (high - low)).tolist()
    return sides(places, heights, [short(name) for name in rows["name"]], wide)
