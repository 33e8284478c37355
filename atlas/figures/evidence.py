"""Evidence of one audit: its growth, what each trace adds, nearest sources, validated ratios, power of the drift test.

Evidence for the named source is drawn in the accent upwards, evidence for a rival in amber downwards, so that the sign
can be read without the colour.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from atlas.figures import plots
from atlas.figures.attribution import SHOW_HOVERTEXT, SHOW_TEXT, band, end_labels
from atlas.figures.map import label_sides, map_figure
from atlas.theme import READER_COLOURS, TOKENS, Mark, Plot, Theme, plain, template, translucent

TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
MOST_BARS = 400  # traces that a figure shows one by one; of more, those that weigh most
CLAIMS = {"tippett_true": ("true claims", "solid", "left"), "tippett_false": ("false claims", "dash", "right")}
"""Metric to words, dash, and the side of the curve's label that touches it."""
DRIFT_KINDS = {"same": "same source (false alarms)", "sibling": "sibling of the family", "family": "another family"}


def evidence_curve(report: Mapping[str, Any], *, theme: Theme, level: float | None = None) -> go.Figure:
    """log10 likelihood ratio of the named source after every trace, as they arrived.

    Behind it lies the 5–95 % band over random orders, both calibrated as the answer is. The rule's thresholds are
    dashed where it applies, and the stop is marked at the error rate ``level``, by default the report's.
    """
    token, results = TOKENS[theme], report["results"]
    running, points = results["running"], results["spread"]["points"]
    decided = float(report["method"]["rule"]["decided_log10"])
    subject = plain(results["subject"], 40)
    n = int(results["traces"])
    figure = go.Figure()
    figure.add_hline(y=0, line={"color": token["edge"], "width": 1})
    for threshold in (decided, -decided) if results["stated"] else ():
        figure.add_hline(y=threshold, line={"color": token["soft"], "width": 1, "dash": "dash"})
    if points:
        columns = pd.DataFrame(points)
        wash = translucent(token["accent"], 0.16)
        figure.add_trace(band("5–95 % of random orders", columns["traces"], columns["low"], columns["high"], wash))
    leads = [row["leader"] == results["subject"] for row in running]
    dense = len(running) > 60
    figure.add_scatter(
        name="in the order of arrival", mode="lines+markers", line={"color": token["accent"], "width": 2.5},
        x=[row["traces"] for row in running], y=[row["log10_ratio_others"] for row in running],
        marker={
            "size": [0 if dense and lead else 8 for lead in leads],
            "color": [token["accent"] if lead else token["ground"] for lead in leads],
            "line": {"color": token["accent"], "width": 2},
        },
        text=[
            f"<b>{_count(row['traces'], 'trace')}</b><br>log10 ratio {number(row['log10_ratio_others'])}"
            f"<br>probability {_share(row['probability'])}<br>leading: {plain(row['leader'], 40)}"
            for row in running
        ],
        hovertemplate=SHOW_TEXT,
    )  # fmt: skip
    values = [row["log10_ratio_others"] for row in running] + [p[key] for p in points for key in ("low", "high")]
    ends: list[tuple[float, str, str]] = []
    if results["level"] == "family":
        ratio = float(results["log10_ratio_others"])
        values.append(ratio)
        outline = {"color": token["ground"], "width": 2}
        figure.add_scatter(
            name="family", x=[n], y=[ratio], mode="markers",
            marker={"symbol": "diamond", "size": 14, "color": token["ink"], "line": outline},
            hovertemplate=f"<b>its family</b><br>log10 ratio {number(ratio)} for {subject}<extra></extra>",
        )  # fmt: skip
        ends.append((ratio, f"<b>its family {number(ratio)}</b>", token["ink"]))
    if running:
        last = float(running[-1]["log10_ratio_others"])
        kind = "calibrated" if results["calibrated"] else "plain sum"
        words = kind if results["stated"] else "not validated here"
        ends.append((last, f"<b>{words} {number(last)}</b>", token["accent-ink"]))
    low, high = min([*values, -decided]), max([*values, decided])
    room = 0.08 * (high - low)
    low, high = low - room, high + room
    if results["stated"]:
        ends.append((decided, "a hundred to one for", token["soft"]))
        ends.append((-decided, "a hundred to one against", token["soft"]))
    end_labels(figure, ends, 0.062 * (high - low), high, 14)
    _mark_stop(figure, stop_at(results.get("stop"), level), n, token)
    figure.update_layout(template=template(theme), margin={"l": 64, "r": 188, "t": 28, "b": 52}, hovermode="closest")
    ticks, reach = [tick for tick in TICKS if tick <= 0.8 * n] + [n], max(math.log10(n), 0.3)
    figure.update_xaxes(
        title="Traces in the order of arrival, log scale" if n > 1 else "Traces", type="log", tickvals=ticks,
        ticktext=[f"{tick:,}" for tick in ticks], range=[-0.03 * reach, 1.03 * reach], showgrid=False,
        minor={"ticks": ""},
    )  # fmt: skip
    figure.update_yaxes(title=f"log10 ratio, {plain(results['subject'], 24)} : others", range=[low, high])
    return figure


def stop_at(stop: Mapping[str, Any] | None, level: float | None = None) -> Mapping[str, Any] | None:
    """The answer of the sequential stop at an error rate, by default the report's."""
    others = (stop or {}).get("levels") or []
    return next((answer for answer in others if answer["error_rate"] == level), stop)


def _mark_stop(figure: go.Figure, stop: Mapping[str, Any] | None, n: int, token: Mapping[str, str]) -> None:
    after = stop.get("enough_after") if stop else None
    if not after or after > n:
        return
    figure.add_vline(x=after, line={"color": token["accent"], "width": 1, "dash": "dot"})
    late = n > 1 and math.log10(after) > 0.7 * math.log10(n)
    figure.add_annotation(
        x=math.log10(after), y=1, yref="paper", yanchor="bottom", xanchor="right" if late else "left",
        text=f"enough after {_count(int(after), 'trace')}", showarrow=False,
        font={"size": 13, "color": token["accent-ink"]},
    )  # fmt: skip


def weightiest(traces: Sequence[Mapping[str, Any]], most: int = MOST_BARS) -> list[Mapping[str, Any]]:
    """Traces of a report that weigh most, in the order of arrival."""
    chosen = sorted(traces, key=lambda trace: -abs(trace["log10_ratio"]))[:most]
    return sorted(chosen, key=lambda trace: trace["number"])


def contributions(report: Mapping[str, Any], *, theme: Theme, chosen: int = 0) -> go.Figure:
    """What every trace adds to the log10 ratio against the strongest rival.

    The trace with the number ``chosen`` is outlined (0 for none); a bar's customdata is its trace's number.
    """
    token = TOKENS[theme]
    traces = weightiest(report["traces"])
    values = [float(trace["log10_ratio"]) for trace in traces]
    colours = [token["accent"] if value >= 0 else token["caution"] for value in values]
    outline = {"color": token["ink"], "width": [2 * (trace["number"] == chosen) for trace in traces]}
    figure = go.Figure()
    figure.add_bar(
        name="what a trace adds", x=[_place(trace, traces, at) for at, trace in enumerate(traces)], y=values,
        width=0.74, marker={"color": colours, "line": outline},
        customdata=[[int(trace["number"])] for trace in traces],
        hovertext=[_trace_words(trace) for trace in traces], hovertemplate=SHOW_HOVERTEXT,
    )  # fmt: skip
    figure.add_hline(y=0, line={"color": token["edge"], "width": 1})
    results = report["results"]
    for y, side, who in ((1, "top", results["subject"]), (0, "bottom", results["leave_one_out"]["rival"])):
        figure.add_annotation(
            x=0, xref="paper", y=y, yref="paper", yanchor=side, xanchor="left", xshift=6, showarrow=False,
            text=f"{'↑' if y else '↓'} speaks for {plain(who, 32)}",
            font={"size": 12, "color": token["accent-ink"] if y else token["caution"]},
        )  # fmt: skip
    reach = 1.35 * max([abs(value) for value in values], default=1.0) or 1.0
    low = -reach if min(values, default=0.0) < 0 else -0.4 * reach
    high = reach if max(values, default=0.0) > 0 else 0.4 * reach
    figure.update_layout(template=template(theme), margin={"l": 64, "r": 16, "t": 8, "b": 52}, hovermode="closest")
    _trace_axis(figure, traces)
    figure.update_yaxes(title="adds to log10 ratio", range=[low, high])
    return figure


def leave_one_out(report: Mapping[str, Any], *, theme: Theme) -> go.Figure:
    """The log10 ratio against the best other source without each trace."""
    token, results = TOKENS[theme], report["results"]
    traces = weightiest(report["traces"])
    places = [_place(trace, traces, at) for at, trace in enumerate(traces)]
    remaining = [float(trace["log10_without"]) for trace in traces]
    whole = margin_of_all(report)
    stems: dict[str, list[float | None]] = {"x": [], "y": []}
    for place, value in zip(places, remaining, strict=True):
        stems["x"] += [place, place, None]
        stems["y"] += [whole, value, None]
    faint = {"color": translucent(token["edge"], 0.8), "width": 1.5}
    figure = go.Figure(go.Scatter(name="change", mode="lines", line=faint, hoverinfo="skip", **stems))
    outline = {"color": [token["accent"] if value > 0 else token["caution"] for value in remaining], "width": 2}
    fill = [token["accent"] if value > 0 else token["ground"] for value in remaining]
    figure.add_scatter(
        name="without one trace", x=places, y=remaining, mode="markers",
        marker={"size": 8 if len(traces) <= 120 else 5, "color": fill, "line": outline},
        customdata=[[int(trace["number"])] for trace in traces],
        hovertext=[
            f"<b>Without trace {trace['number']:,}</b><br>log10 ratio {number(value)}"
            for trace, value in zip(traces, remaining, strict=True)
        ],
        hovertemplate=SHOW_HOVERTEXT,
    )  # fmt: skip
    figure.add_hline(y=whole, line={"color": token["accent"], "width": 1.5})
    low, high = min([*remaining, whole, 0.0]), max([*remaining, whole, 0.0])
    room = 0.12 * ((high - low) or 1.0)
    figure.add_hline(y=0, line={"color": token["soft"], "width": 1, "dash": "dash"})
    for y, words, colour in ((whole, "all traces", token["accent-ink"]), (0.0, "another leads below", token["soft"])):
        if y or abs(whole) > 0.1 * (high - low):
            figure.add_annotation(
                x=1, xref="paper", y=y, text=words, showarrow=False, xanchor="right", yanchor="bottom",
                font={"size": 12, "color": colour},
            )  # fmt: skip
    figure.update_layout(template=template(theme), margin={"l": 64, "r": 16, "t": 8, "b": 52}, hovermode="closest")
    _trace_axis(figure, traces)
    title = f"log10 ratio, {plain(results['subject'], 20)} : best other"
    figure.update_yaxes(title=title, range=[low - room, high + room])
    return figure


def margin_of_all(report: Mapping[str, Any]) -> float:
    """log10 ratio against the strongest rival: what all traces add."""
    return math.fsum(float(trace["log10_ratio"]) for trace in report["traces"])


def landing(
    points: pd.DataFrame, nearest: pd.DataFrame, marks: Mapping[str, Mark], *, theme: Theme, claimed: str = ""
) -> go.Figure:
    """The map of an ecosystem with the sources marked that are nearest to the traces.

    points : columns source, name, family, access, x, y of a flat projection. nearest : columns source, rank.
    The traces get no point: a place among projected points would be made up.
    """
    token = TOKENS[theme]
    none = pd.DataFrame({"source": [], "neighbor": [], "rank": []})
    figure = go.Figure(map_figure(points, none, marks, theme=theme, dimensions=2, selected=claimed))
    for trace in figure.data:
        if trace.mode == "markers" and trace.name not in ("selected", "nearest"):
            trace.opacity = 0.55
    everyone = figure_points(figure)
    placed = everyone.merge(nearest[["source", "rank"]], on="source").merge(points[["source", "name"]], on="source")
    placed = placed.sort_values("rank")
    claim = points.loc[points["source"] == claimed, "name"].tolist()
    own = everyone[everyone["source"] == claimed]
    sides = label_sides(
        [*zip(own["x"], own["y"], strict=True), *zip(placed["x"], placed["y"], strict=True)],
        [*claim, *placed["rank"].astype(str)],
        list(zip(everyone["x"], everyone["y"], strict=True)),
        fixed=len(claim),
    )[len(claim) :]
    ranks = [f"<b>{rank}</b>" for rank in placed["rank"]]
    figure.add_scatter(
        name="nearest to the traces", x=placed["x"].tolist(), y=placed["y"].tolist(), mode="markers+text",
        marker={"symbol": "circle-open", "size": 18, "color": token["ink"], "line": {"width": 2}},
        # A rank without room of its own shows on hover.
        text=[rank if side else "" for rank, side in zip(ranks, sides, strict=True)],
        textposition=[side or "top center" for side in sides], textfont={"size": 13, "color": token["ink"]},
        hovertext=[f"{rank} · {plain(name)}" for rank, name in zip(ranks, placed["name"], strict=True)],
        hovertemplate=SHOW_HOVERTEXT,
    )  # fmt: skip
    return figure


def figure_points(figure: go.Figure) -> pd.DataFrame:
    """Where a map draws its sources (columns source, x, y)."""
    rows = [
        (identity[0], x, y)
        for trace in figure.data
        if trace.customdata is not None
        for identity, x, y in zip(trace.customdata, trace.x, trace.y, strict=True)
    ]
    return pd.DataFrame(rows, columns=["source", "x", "y"])


def running_evidence(points: Sequence[Mapping[str, Any]], *, theme: Theme, total: int) -> go.Figure:
    """Evidence while traces are still read: the plain sum of log10 ratios so far.

    points : traces, log10_sum and leader after some of them. The axis reaches ``total`` from the start, so nothing
    moves.
    """
    token = TOKENS[theme]
    values = [float(point["log10_sum"]) for point in points]
    figure = go.Figure()
    figure.add_scatter(
        name="plain sum so far", x=[point["traces"] for point in points], y=values,
        mode="lines+markers" if len(points) <= 60 else "lines", line={"color": token["accent"], "width": 2.5},
        marker={"size": 7},
        text=[
            f"<b>{_count(point['traces'], 'trace')}</b><br>plain log10 sum {number(point['log10_sum'])}"
            f"<br>leading: {plain(point['leader'], 40)}"
            for point in points
        ],
        hovertemplate=SHOW_TEXT,
    )  # fmt: skip
    figure.add_hline(y=0, line={"color": token["edge"], "width": 1})
    figure.update_layout(template=template(theme), margin={"l": 64, "r": 16, "t": 8, "b": 44})
    figure.update_xaxes(title="Traces read", range=[0, max(total, 2) * 1.02], showgrid=False)
    figure.update_yaxes(title="Plain log10 sum", range=[min([*values, -1]) * 1.1, max([*values, 1]) * 1.1])
    return figure


def drift_power(rows: pd.DataFrame, window: int, *, theme: Theme) -> go.Figure:
    """How often the drift test speaks on real pairs, against the traces of a window.

    rows : columns scenario (of :data:`DRIFT_KINDS`), k, value, std. window : traces of the smaller window, marked; or
    0.
    """
    token, colours = TOKENS[theme], READER_COLOURS[theme]
    looks = {"same": (token["soft"], "dot", "circle-open"), "sibling": (colours[0], "solid", "circle"),
             "family": (colours[1], "solid", "square")}  # fmt: skip
    figure = go.Figure()
    ends: list[tuple[float, str, str]] = []
    for scenario, words in DRIFT_KINDS.items():
        curve = rows[rows["scenario"] == scenario].sort_values("k")
        if curve.empty:
            continue
        colour, dash, symbol = looks[scenario]
        spread = {"array": curve["std"].fillna(0.0).tolist(), "color": colour, "thickness": 1, "width": 3}
        figure.add_scatter(
            name=words, x=curve["k"].tolist(), y=curve["value"].tolist(), error_y=spread, mode="lines+markers",
            line={"color": colour, "width": 2, "dash": dash}, marker={"size": 8, "symbol": symbol},
            hovertemplate=f"<b>{words}</b><br>windows of %{{x}}: %{{y:.0%}} called different<extra></extra>",
        )  # fmt: skip
        ends.append((float(curve["value"].iloc[-1]), words, colour))
    if window:
        figure.add_vline(x=window, line={"color": token["accent"], "width": 1})
    end_labels(figure, ends, 0.08, 1.0, 12)
    ticks = sorted({int(k) for k in rows["k"]})
    reach = [*ticks, window] if window else ticks
    figure.update_layout(template=template(theme), margin={"l": 64, "r": 208, "t": 8, "b": 52})
    figure.update_xaxes(
        title="Traces a window, log scale", type="log", tickvals=ticks, ticktext=[str(tick) for tick in ticks],
        range=[np.log10(min(reach, default=1)) - 0.06, np.log10(max(reach, default=10)) + 0.06], showgrid=False,
        minor={"ticks": ""},
    )  # fmt: skip
    figure.update_yaxes(title="called different at 5 %", range=[-0.03, 1.05], tickformat=".0%")
    return figure


def tippett(points: pd.DataFrame, limits: tuple[float, float] | None = None, *, theme: Theme) -> Plot:
    """Share of true and of false claims whose ratio is at least as large.

    points : Columns metric (of :data:`CLAIMS`), level (log10 ratio), value (share).
    limits : Bounds of log10 ratios, dotted.
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
            f"<b>{share:.2%} of {words}</b><br>have a log10 ratio of {number(level)} or more"
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
    return {"data": traces, "layout": _ratio_layout(theme, plots.titled("log10 ratio"), upwards, shapes, notes)}


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
        f"<b>stated {number(level)}</b><br>claims show {number(value)} (log10 ratio)"
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
    return {"data": [shown], "layout": _ratio_layout(theme, across, upwards, [same], [stated])}


def _ratio_layout(theme: Theme, x: Plot, y: Plot, shapes: list[Plot], notes: list[Plot]) -> Plot:
    more = {"dragmode": False, "showlegend": False, "shapes": shapes, "annotations": notes}
    return plots.layout(theme, (64, 16, 8, 52), x | plots.STILL, y | plots.STILL, **more)


def _place(trace: Mapping[str, Any], traces: Sequence[Mapping[str, Any]], at: int) -> int:
    """A trace's place on the axis: its number, or its place among those shown where others are not."""
    return int(trace["number"]) if traces[-1]["number"] - traces[0]["number"] < len(traces) else at + 1


def _trace_axis(figure: go.Figure, traces: Sequence[Mapping[str, Any]]) -> None:
    places = [_place(trace, traces, at) for at, trace in enumerate(traces)]
    step = max(1, math.ceil(len(traces) / 10))
    ticks = list(range(0, len(traces), step))
    figure.update_xaxes(
        title="Trace, in the order of arrival", tickvals=[places[at] for at in ticks],
        ticktext=[f"{traces[at]['number']:,}" for at in ticks], showgrid=False,
        range=[places[0] - 0.7, max(places[-1], places[0] + 7) + 0.7] if places else [0, 1],
    )  # fmt: skip


def _trace_words(trace: Mapping[str, Any]) -> str:
    time = f"<br>{plain(trace['time'], 40)}" if trace.get("time") else ""
    return (
        f"<b>Trace {trace['number']:,}</b><br>adds {number(trace['log10_ratio'])} to the log10 ratio"
        f"<br>alone nearest to {plain(trace['nearest'], 40)}<br>{_count(int(trace['tokens']), 'response token')}{time}"
    )


def number(value: float, digits: int = 2) -> str:
    """A signed number with a real minus."""
    return f"{value:+,.{digits}f}".replace("-", "−")


def _share(value: float | None) -> str:
    if value is None:
        return "not stated"
    return "< .001" if value < 0.001 else "> .999" if value > 0.999 else f"{value:.3f}".removeprefix("0")


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
