"""Readers side by side: blocks, curves by condition, capability and cost of their proxies."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from atlas.figures import plots, tables
from atlas.figures.plots import End, Line, figure_text, rate_text
from atlas.theme import READER_COLOURS, TOKENS, Plot, Theme, plain, reader_places

CURVE_GAP, FIT_GAP = 0.028, 0.06  # space between two panels of curves and of fits, as shares of the width
KIND_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "star", "hexagon")
Condition = tuple[str, str]  # a benchmark, and what was done to its traces


def layer_curves(
    curves: Mapping[str, pd.DataFrame], chosen: Mapping[str, int], lines: Sequence[Line], *, theme: Theme, one: bool
) -> go.Figure:
    """Inner validation accuracy along the depth of every proxy, its modal block marked.

    Of a line's key: curve (columns layer, depth in 0..1, accuracy, low, high) and modal block. one : Whether all are of
    one proxy, whose layers are numbered then.
    """
    last = max((float(curve["layer"].max()) for curve in curves.values() if len(curve)), default=1.0)
    curves = {key: curve.assign(at=curve["layer"] / last if one else curve["depth"]) for key, curve in curves.items()}
    data: list[Plot] = []
    ends: list[End] = []
    rings = [
        (float(row.at), float(row.accuracy))
        for key, curve in curves.items()
        for row in tables.rows(curve[curve["layer"] == chosen.get(key)])
    ]
    for line in lines:
        rows = curves.get(line.key)
        if rows is None or rows.empty:
            continue
        name = plain(line.label)
        hover = [
            f"<b>{name}</b><br>layer {int(layer)}: {rate_text(accuracy)}"
            for layer, accuracy in tables.rows(rows, "layer", "accuracy")
        ]
        style = plots.pen(line.colour, 2, line.dash)
        data.append(plots.band(f"{name}, range", rows["at"], rows["low"], rows["high"], line.colour, 0.14))
        data.append(plots.scatter(name, rows["at"], rows["accuracy"], hover, mode="lines", line=style))
        modal = rows[rows["layer"] == chosen.get(line.key)]
        if len(modal):
            look = {"size": 13, "symbol": "circle-open", "color": TOKENS[theme]["ink"], "line": {"width": 2}}
            # Above the ring, or below it where a higher ring is near.
            x, y = float(modal["at"].iloc[0]), float(modal["accuracy"].iloc[0])
            near = any((a, b) != (x, y) and abs(a - x) < 0.12 and 0 <= b - y < 0.06 for a, b in rings)
            words: Plot = {
                "text": [f"layer {int(layer)}" for layer in modal["layer"]],
                "textposition": "bottom center" if near else "top center",
                "textfont": {"size": 12, "color": line.colour},
            }
            places = modal["at"], modal["accuracy"]
            data.append(plots.scatter(f"{name}, selected", *places, mode="markers+text", marker=look, **words))
        label = "<br>".join(map(plain, plots.in_two_lines(line.label, [], 22)))
        ends.append((float(rows["accuracy"].iloc[-1]), label, line.colour))
    drawn = [curve for curve in curves.values() if len(curve)]
    low = min((float(curve["low"].min()) for curve in drawn), default=0.0)
    high = max((float(curve["high"].max()) for curve in drawn), default=1.0)
    step = 0.06 * (high - low or 1.0)
    apart = [(1.4 + 1.3 * label.count("<br>")) * step for _, label, _ in ends]  # of one line of text, or two
    notes = plots.end_notes(ends, apart, high + step)
    depth = plots.titled("Depth in the proxy", range=[0, 1.01], tickformat=".0%", showgrid=False)
    if one:
        ticks = [layer for layer in range(1, int(last) + 1) if layer == 1 or layer % max(round(last / 12), 1) == 0]
        numbers = {"tickvals": [layer / last for layer in ticks], "ticktext": [str(layer) for layer in ticks]}
        depth = plots.titled("Layer of the proxy", range=[0, 1.01], showgrid=False, **numbers)
    height = plots.titled("Accuracy at one trace", range=[max(0.0, low - step), high + 2 * step], tickformat=".2~f")
    return plots.figure(theme, (64, 176, 24, 52), data, depth, height, annotations=notes)


def curve_panels(
    frame: pd.DataFrame, panels: Mapping[Condition, str], lines: Sequence[Line], *, theme: Theme, axis: str, k: int,
    unit: bool,
) -> Plot:  # fmt: skip
    """A metric against the budget: a panel a domain and condition, a line a reader, one vertical scale.

    frame : Columns reader, origin, benchmark, condition, k, value, std. unit : Whether values lie in 0..1.
    """
    token = TOKENS[theme]
    traces: list[Plot] = []
    notes: list[Plot] = []
    shapes: list[Plot] = []
    axes: Plot = {}
    budgets = sorted(int(budget) for budget in frame["k"].unique())
    spread = frame["std"].fillna(0.0)
    top = 1.02 if unit else 1.06 * float((frame["value"] + spread).max())
    in_legend: set[str] = set()
    for number, (key, words) in enumerate(panels.items()):
        across, upwards, at, (start, stop) = _panel_axes(number, len(panels), CURVE_GAP)
        here = frame[(frame["benchmark"] == key[0]) & (frame["condition"] == key[1])]
        for _, line, rows, published in plots.by_line(here, lines):
            group = {**at, "legendgroup": line.key}
            if rows["std"].notna().any():
                std, value = rows["std"].fillna(0.0), rows["value"]
                ends = value - std, value + std
                name = f"{plain(line.label)} ± std"
                traces.append(plots.band(name, rows["k"], *ends, line.colour, 0.16, showlegend=False, **group))
            hover = [
                f"{plots.heading(line.label, published)}{words}<br>"
                f"K = {int(budget)}: {figure_text(value)}{'' if pd.isna(std) else f' ± {figure_text(std)}'}"
                for budget, value, std in tables.rows(rows, "k", "value", "std")
            ]
            look = {
                "line": plots.pen(line.colour, 2, "dash" if published else line.dash),
                "marker": plots.outlined(6, token["ground"] if published else line.colour, line.colour, 1.5),
                "mode": "lines+markers",
                "showlegend": line.key not in in_legend,
            }
            traces.append(plots.scatter(plain(line.label, 38), rows["k"], rows["value"], hover, **look, **group))
            in_legend.add(line.key)
        axes[across] = {
            **plots.STILL, "domain": [start, stop], "anchor": at["yaxis"], "type": "log", "tickvals": budgets,
            "ticktext": [str(budget) if budget in (1, 10, 100) else "" for budget in budgets], "range": [-0.08, 2.08],
            "showgrid": False, "minor": {"ticks": ""},
        }  # fmt: skip
        axes[upwards] = plots.titled(
            axis if number == 0 else "", **plots.STILL, anchor=at["xaxis"], range=[0, top],
            tickformat=".1~f" if unit else None, showticklabels=number == 0, **({"matches": "y"} if number else {}),
        )  # fmt: skip
        notes.append(plots.page_note(start, 1.01, f"<b>{words}</b>", 12, token["ink"], **plots.ABOVE))
        if here.empty:
            notes.append(plots.page_note((start + stop) / 2, 0.5, "not measured", 12, token["soft"]))
        elif k in budgets:
            refs = {"xref": at["xaxis"], "yref": f"{at['yaxis']} domain", "layer": "below"}
            shapes.append(plots.upright(k, token["accent"]) | refs)
    title = "Traces a group (K), log scale"
    notes.append(plots.page_note(0.5, 0, title, 13, token["soft"], yshift=-34, yanchor="top"))
    legend = {**plots.LEGEND, "traceorder": "reversed"}
    more: Plot = {"showlegend": True, "legend": legend, "annotations": notes, "shapes": shapes}
    return plots.plot(theme, (64, 16, 76, 60), traces, **axes, dragmode=False, **more)


def capability_fit(frame: pd.DataFrame, correlations: Mapping[str, str], *, theme: Theme, k: int) -> Plot:
    """Accuracy against a capability score: a panel a benchmark, a mark a proxy, the least-squares line.

    frame : Columns benchmark, name (of the proxy), score (percent), value. correlations : At the heads of the panels.
    """
    token = TOKENS[theme]
    traces: list[Plot] = []
    notes: list[Plot] = []
    axes: Plot = {}
    benchmarks = list(dict.fromkeys(frame["benchmark"]))
    bottom, top = plots.reach(frame["value"], 0.25, 1e-3)
    for number, benchmark in enumerate(benchmarks):
        across, upwards, at, (start, stop) = _panel_axes(number, len(benchmarks), FIT_GAP)
        rows = frame[frame["benchmark"] == benchmark].sort_values("score")
        least, most = float(rows["score"].min()), float(rows["score"].max())
        ends = plots.reach(rows["score"], 0.18)
        fitted = rows[:0]
        if len(rows) >= 3:
            slope, offset = np.polyfit(rows["score"], rows["value"], 1)
            heights = [float(slope * x + offset) for x in (least, most)]
            fit: Plot = {"mode": "lines", "line": plots.pen(token["edge"], 1.5, "dash"), **at}
            traces.append(plots.scatter(f"fit line, {benchmark}", [least, most], heights, **fit))
            steps = np.linspace(least, most, 200)
            fitted = pd.DataFrame({"score": steps, "value": slope * steps + offset})
        hover = [
            f"{plots.heading(name, True)}{benchmark}: {score:.1f} %<br>accuracy at K = {k}: {rate_text(value)}"
            for name, score, value in tables.rows(rows, "name", "score", "value")
        ]
        traces.append(
            plots.scatter(
                benchmark, rows["score"], rows["value"], hover, mode="markers+text", cliponaxis=False, **at,
                marker=plots.outlined(10, token["ground"], READER_COLOURS[theme][0]),
                text=[short(name) for name in rows["name"]],
                textposition=_sides(rows["score"], rows, (*ends, bottom, top), 400, line=fitted),
                textfont={"size": 11, "color": token["soft"]},
            )
        )  # fmt: skip
        head = f"<b>{benchmark}</b>   {correlations.get(benchmark, '')}"
        notes.append(plots.page_note(start, 1.02, head, 12, token["ink"], **plots.ABOVE))
        axes[across] = plots.titled(
            f"{benchmark} score, percent", **plots.STILL, domain=[start, stop], anchor=at["yaxis"], range=list(ends),
            showgrid=False,
        )  # fmt: skip
        axes[upwards] = plots.titled(
            f"Accuracy at K = {k}" if number == 0 else "", **plots.STILL, anchor=at["xaxis"], tickformat=".3~f",
            range=[bottom, top], showticklabels=number == 0,
        )  # fmt: skip
    more: Plot = {"dragmode": False, "showlegend": False, "annotations": notes}
    return plots.plot(theme, (64, 16, 40, 56), traces, **axes, **more)


def cost_scatter(frame: pd.DataFrame, *, theme: Theme, axis: str, k: int) -> Plot:
    """Accuracy against what an audit costs, one mark a reader, measured ones filled.

    Those :func:`far_below` the others stand at the foot with their accuracy.
    frame : Columns name, label (next to the mark), kind (the legend), origin, cost (positive), cost_text, value.
    """
    token = TOKENS[theme]
    traces: list[Plot] = []
    across, below = np.log10(frame["cost"]), far_below(frame["value"])
    low, high = plots.reach(frame.loc[~below, "value"], 0.12, 0.05)
    start, stop = plots.reach(across, 0.12, 0.5)
    # Marks at the foot that would cover each other stand below each other: their height says nothing.
    steps = _steps(across[below], 0.02 * (stop - start))
    foot = low - 0.06 * (high - low) * steps.reindex(frame.index, fill_value=0)
    low -= (0.12 + 0.06 * steps.max()) * (high - low) if below.any() else 0.0
    area = (start, stop + 0.1 * (stop - start), low, high)  # what is best is often dear, and has a long name
    values = [f" {rate_text(value)}" if under else "" for value, under in zip(frame["value"], below, strict=True)]
    frame = frame.assign(label=frame["label"] + values, height=frame["value"].mask(below, foot), below=below)
    # The best and the cheapest always have names; where there is no room for the others, the most accurate have theirs.
    cheapest = frame.loc[frame["origin"] == frame["origin"].min(), "cost"].idxmin()  # 'measured' before 'published'
    first = list(dict.fromkeys([*frame.groupby("origin")["value"].idxmax(), cheapest]))
    best = [*first, *frame["value"].sort_values(ascending=False, kind="stable").index.drop(first)]
    named = frame.assign(name=frame["label"], value=frame["height"]).loc[best]
    frame = frame.assign(side=pd.Series(_sides(across[best], named, area, 900, fixed=len(first)), best))
    frame = frame.sort_values("below", kind="stable")  # the legend draws a kind's first symbol
    places = reader_places(list(dict.fromkeys(frame["kind"])))
    for number, (kind, rows) in enumerate(frame.groupby("kind", sort=False)):
        ink = READER_COLOURS[theme][places[str(kind)]]
        published = (rows["origin"] == "published").tolist()
        hover = [
            f"{plots.heading(row.name, row.origin == 'published')}{row.cost_text}<br>"
            f"accuracy at K = {k}: {rate_text(row.value)}"
            for row in tables.rows(rows, "name", "origin", "cost_text", "value")
        ]
        fill = [token["ground"] if hollow else ink for hollow in published]
        symbols = ["triangle-down" if under else KIND_SYMBOLS[number % len(KIND_SYMBOLS)] for under in rows["below"]]
        traces.append(
            plots.scatter(
                str(kind), rows["cost"], rows["height"], hover, mode="markers+text", cliponaxis=False,
                marker=plots.outlined(11, fill, ink, symbol=symbols),
                text=[short(name) if side else "" for name, side in tables.rows(rows, "label", "side")],
                textposition=rows["side"].replace("", "top center").tolist(),
                textfont={"size": 11, "color": [token["ink" if row in first else "soft"] for row in rows.index]},
            )
        )  # fmt: skip
    x = plots.titled(axis, **plots.STILL, type="log", dtick=1, exponentformat="B", showgrid=False, range=list(area[:2]))
    y = plots.titled(f"Accuracy at K = {k}", **plots.STILL, range=list(area[2:]), tickformat=".2~f")
    more = {"dragmode": False, "showlegend": True, "legend": dict(plots.LEGEND)}
    return plots.plot(theme, (64, 24, 44, 56), traces, x, y, **more)


def _steps(places: pd.Series, apart: float) -> pd.Series:
    """For every mark, how many before it stand so close that it would cover them."""
    steps: dict[Any, int] = {}
    for mark, place in places.sort_values(kind="stable").items():
        near = {steps[other] for other in steps if place - places[other] < apart}
        steps[mark] = next(step for step in itertools.count() if step not in near)
    return pd.Series(steps, dtype=int)


def far_below(values: pd.Series) -> pd.Series:
    """Which accuracies lie so far below the others that these would be one clump on an axis with them."""
    quarter, three = values.quantile([0.25, 0.75])
    return values < quarter - max(3 * (three - quarter), 0.1)


def short(name: str) -> str:
    """A reader's name without what every model's ends with."""
    return plain(re.sub(r"-(?:Instruct|it)(?:-\d+)?(?!\S)", "", name))


def _panel_axes(number: int, count: int, gap: float) -> tuple[str, str, dict[str, str], tuple[float, float]]:
    """Names of a panel's axes in the layout and in its traces, and its ends as shares of the width."""
    ending = str(number + 1) if number else ""
    width = (1 - gap * (count - 1)) / max(count, 1)
    start = number * (width + gap)
    return f"xaxis{ending}", f"yaxis{ending}", {"xaxis": f"x{ending}", "yaxis": f"y{ending}"}, (start, start + width)


def _sides(
    across: pd.Series, rows: pd.DataFrame, area: tuple[float, float, float, float], wide: int, *,
    fixed: int | None = None, line: pd.DataFrame | None = None,
) -> list[str]:  # fmt: skip
    """Sides of names as :func:`plots.sides` finds them.

    area : Its ends across, then upwards; about ``wide`` pixels wide and 280 high. line : Columns score, value.
    """
    start, stop, low, high = area

    def pixels(x: pd.Series, y: pd.Series) -> tuple[list[float], list[float]]:
        return (wide * (x - start) / (stop - start)).tolist(), (280 * (y - low) / (high - low)).tolist()

    avoided = () if line is None else zip(*pixels(line["score"], line["value"]), strict=True)
    names = [short(name) for name in rows["name"]]
    return plots.sides(*pixels(across, rows["value"]), names, wide, fixed, avoided)
