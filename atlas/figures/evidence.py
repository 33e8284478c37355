"""Evidence of one audit: growth, traces, nearest sources, validated ratios, power of the drift test.

Evidence for the named source stands in the accent upwards, for a rival in amber downwards: readable without colours.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from atlas.figures import plots, tables
from atlas.figures.map import HALF, UNIT, label_sides, map_figure, scaled
from atlas.figures.plots import End, count
from atlas.theme import READER_COLOURS, TOKENS, Mark, Plot, Theme, plain, translucent
from backend.attribution.report_page import axis_odds, odds_words
from backend.attribution.report_words import bound_sign, percent_text, probability_text, running_bounds, short_of
from backend.inference.verdict import Rule

TICKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
SMALL, TOUCH = 0.7, 0.14  # of the landing map: its least scale against the large map's; rings that touch there
MOST_BARS = 400  # traces that a figure shows one by one; of more, those that weigh most
CLAIMS = {"tippett_true": ("true claims", "solid", "left"), "tippett_false": ("false claims", "dash", "right")}
"""Metric to words, dash, and the side of the curve's label that touches it."""
DRIFT_KINDS = {"same": "same source (false alarms)", "sibling": "sibling of the family", "family": "another family"}
BOUNDS = {"≥ ": "triangle-up", "≤ ": "triangle-down"}
"""Marks of ratios that end where the tests do."""
BOUNDS_WORDS = "Triangles: at least that, as far as the tests of so many traces reach."


def evidence_curve(report: Mapping[str, Any], *, theme: Theme, level: float | None = None) -> go.Figure:
    """log10 likelihood ratio of the named source after every trace, as they arrived.

    Behind it the 5–95 % band over random orders, both calibrated as the answer is. Thresholds are dashed where the rule
    applies, and the stop is marked at the error rate ``level``, by default the report's.
    """
    token, results = TOKENS[theme], report["results"]
    running, points = results["running"], results["spread"]["points"]
    decided = float(report["method"]["rule"]["decided_log10"])
    n = int(results["traces"])
    shapes = [plots.level(0, token["edge"])]
    if results["stated"]:
        shapes += [plots.level(threshold, token["soft"], 1, "dash") for threshold in (decided, -decided)]
    data: list[Plot] = []
    if points:
        orders, least, most = ([point[key] for point in points] for key in ("traces", "low", "high"))
        data.append(plots.band("5–95 % of random orders", orders, least, most, token["accent"], 0.16))
    leads = [row["leader"] == results["subject"] for row in running]
    sizes = [0 if lead and len(running) > 60 else 8 for lead in leads]
    fills = [token["accent"] if lead else token["ground"] for lead in leads]
    values = [row["log10_ratio_others"] for row in running]
    bounds = running_bounds(report)
    words = [
        f"<b>{count(row['traces'], 'trace')}</b><br>log10 ratio {bound}{number(row['log10_ratio_others'])}"
        f"<br>probability {probability_text(row['probability'])}<br>leading: {plain(row['leader'], 40)}"
        for row, bound in zip(running, bounds, strict=True)
    ]
    symbols = [BOUNDS.get(bound, "circle") for bound in bounds]
    marker = plots.outlined(sizes, fills, token["accent"], symbol=symbols)
    look: Plot = {"line": plots.pen(token["accent"], 2.5), "marker": marker}
    data.append(_text_line("in the order of the file", [row["traces"] for row in running], values, words, **look))
    values = values + [point[key] for point in points for key in ("low", "high")]
    ends: list[End] = []
    if results["level"] == "family":
        ratio = float(results["log10_ratio_others"])
        values.append(ratio)
        look = {"marker": plots.outlined(14, token["ink"], token["ground"], symbol="diamond")}
        bound, subject = bound_sign(report), plain(results["subject"], 40)
        hover = f"<b>its family</b><br>log10 ratio {bound}{number(ratio)} for {subject}<extra></extra>"
        data.append(plots.scatter("family", [n], [ratio], hovertemplate=hover, **look))
        ends.append((ratio, f"<b>its family:<br>{odds_words(ratio, bound)}</b>", token["ink"]))
    if running:
        last = float(running[-1]["log10_ratio_others"])
        kind = "calibrated" if results["calibrated"] else "plain sum"
        stated = "plain sum, " * (kind == "plain sum") + odds_words(last, bounds[-1])
        floor = ":<br>the tests reach no further" * bool(bounds[-1])
        end = f"{stated}{floor}" if results["stated"] else "not validated here"
        supported = (results["verdict"], results["level"]) == ("SUPPORTS", "source")
        family = results["level"] == "family"
        if kind == "calibrated" and not supported and (last >= decided or family):  # a ratio alone does not tell
            short = short_of(report) or f"probability {percent_text(running[-1]['probability'])}"
            leads = f",<br>{plain(results['leader'], 24)} leads" * (family and results["leader"] != results["subject"])
            end = f"{stated},<br>{short.replace(', ', ',<br>')}{leads}"
        ends.append((last, f"<b>{end}</b>", token["accent-ink"]))
    low, high = plots.reach([*values, decided, -decided], 0.08)
    room = [0.105 * (1 + text.count("<br>")) * (high - low) for _, text, _ in ends]
    # assets/narrow.js shortens them by whole parts.
    notes = [note | {"name": "sentence"} for note in plots.end_notes(ends, room, high, 14)]
    moved = [(end[0], note) for end, note in zip(ends, notes, strict=True) if note["y"] != end[0]]
    shapes += plots.leaders([goal for goal, _ in moved], [note for _, note in moved], 14)
    if results["stated"]:  # inside, so that no other label moves them off their lines
        place = {"xref": "paper", "xanchor": "left", "yanchor": "bottom", "xshift": 4}
        for threshold, side in ((decided, "for"), (-decided, "against")):
            notes.append(plots.note(0, threshold, f"a hundred to one {side}", 13, token["soft"], **place))
    after = (stop_at(results.get("stop"), level) or {}).get("enough_after")
    if after and after <= n:
        shapes.append(plots.upright(after, token["accent"], 1, "dot", xref="x"))
        late = n > 1 and math.log10(after) > 0.7 * math.log10(n)
        place = {"yref": "paper", "yanchor": "bottom", "xanchor": "right" if late else "left"}
        fewest = ", the fewest that an answer takes" * (after == Rule.minimum_traces)
        text = f"enough after {count(int(after), 'trace')}{fewest}"
        notes.append(plots.note(math.log10(after), 1, text, 13, token["accent-ink"], **place))
    ticks, reach = [tick for tick in TICKS if tick <= 0.8 * n] + [n], max(math.log10(n), 0.3)
    ticks = ticks if n > Rule.minimum_traces else list(range(1, n + 1))
    x = plots.titled(
        "Traces in the order of the file, log scale" if n > 1 else "Traces", type="log", tickvals=ticks,
        ticktext=[f"{tick:,}" for tick in ticks], range=[-0.03 * reach, 1.03 * reach], showgrid=False,
        minor={"ticks": ""},
    )  # fmt: skip
    marks = axis_odds(low, high)
    worded: Plot = {"tickvals": list(marks), "ticktext": list(marks.values())} if results["stated"] else {}
    title = "Likelihood ratio" if results["stated"] else "log10 ratio, not validated"
    y = plots.titled(title, range=[low, high], **worded)
    return plots.figure(theme, (120, 188, 28, 52), data, x, y, shapes=shapes, annotations=notes)


def _text_line(name: str, x: Sequence[Any], y: Sequence[Any], words: Sequence[str], **more: Any) -> Plot:
    return plots.scatter(name, x, y, text=words, hovertemplate=plots.TEXT, **{"mode": "lines+markers", **more})


def stop_at(stop: Mapping[str, Any] | None, level: float | None = None) -> Mapping[str, Any] | None:
    """The answer of the sequential stop at an error rate, by default the report's."""
    others = (stop or {}).get("levels") or []
    return next((answer for answer in others if answer["error_rate"] == level), stop)


def weightiest(traces: Sequence[Mapping[str, Any]], most: int = MOST_BARS) -> list[Mapping[str, Any]]:
    """Traces of a report that weigh most, in the order of arrival."""
    chosen = sorted(traces, key=lambda trace: -abs(trace["log10_ratio"]))[:most]
    return sorted(chosen, key=lambda trace: trace["number"])


def contributions(report: Mapping[str, Any], *, theme: Theme, chosen: int = 0) -> go.Figure:
    """What every trace adds against the strongest rival; number ``chosen`` is outlined, customdata are numbers."""
    token = TOKENS[theme]
    traces = weightiest(report["traces"])
    values = [float(trace["log10_ratio"]) for trace in traces]
    colours = [token["accent"] if value >= 0 else token["caution"] for value in values]
    hover = [
        f"<b>Trace {trace['number']:,}</b><br>adds {number(trace['log10_ratio'])} to the plain sum"
        f"<br>alone nearest to {plain(trace['nearest'], 40)}<br>{count(int(trace['tokens']), 'response token')}"
        + (f"<br>{plain(trace['time'], 40)}" if trace.get("time") else "")
        for trace in traces
    ]
    outline = {"color": token["ink"], "width": [2 * (trace["number"] == chosen) for trace in traces]}
    bars = {
        "type": "bar", "name": "what a trace adds", "x": _places(traces), "y": values, "width": 0.74,
        "marker": {"color": colours, "line": outline}, "customdata": [[int(trace["number"])] for trace in traces],
        "hovertext": hover, "hovertemplate": plots.HOVER,
    }  # fmt: skip
    results = report["results"]
    corner = {"xanchor": "left", "xshift": 6, "bgcolor": token["ground"]}
    rival = plain(results["leave_one_out"]["rival"], 32)
    notes = [
        plots.page_note(
            0, 1, f"↑ speaks for {plain(results['subject'], 32)}", 12, token["accent-ink"], yanchor="top", **corner
        ),
        plots.page_note(0, 0, f"↓ speaks for {rival}", 12, token["caution"], yanchor="bottom", **corner),
    ]
    reach = 1.35 * max([abs(value) for value in values], default=1.0) or 1.0
    low = -reach if min(values, default=0.0) < 0 else -0.4 * reach
    high = reach if max(values, default=0.0) > 0 else 0.4 * reach
    y = plots.titled("adds to the plain log10 sum", range=[low, high])
    zero = [plots.level(0, token["edge"])]
    return plots.figure(theme, (64, 16, 8, 52), [bars], _trace_axis(traces), y, shapes=zero, annotations=notes)


def leave_one_out(report: Mapping[str, Any], *, theme: Theme) -> go.Figure:
    """The log10 ratio against the best other source without each trace."""
    token = TOKENS[theme]
    traces = weightiest(report["traces"])
    places = _places(traces)
    remaining = [float(trace["log10_without"]) for trace in traces]
    whole = margin_of_all(report)
    across = [value for place in places for value in (place, place, None)]
    upwards = [value for without in remaining for value in (whole, without, None)]
    faint = plots.pen(translucent(token["edge"], 0.8), 1.5)
    rims = [token["accent"] if value > 0 else token["caution"] for value in remaining]
    fills = [token["accent"] if value > 0 else token["ground"] for value in remaining]
    look = plots.outlined(8 if len(traces) <= 120 else 5, fills, rims)
    hover = [
        f"<b>Without trace {trace['number']:,}</b><br>log10 ratio {number(value)}"
        for trace, value in zip(traces, remaining, strict=True)
    ]
    numbers = [[int(trace["number"])] for trace in traces]
    data = [
        plots.scatter("change", across, upwards, mode="lines", line=faint),
        plots.scatter("without one trace", places, remaining, hover, marker=look, customdata=numbers),
    ]
    low, high = min([*remaining, whole, 0.0]), max([*remaining, whole, 0.0])
    room = 0.12 * ((high - low) or 1.0)
    shapes = [plots.level(whole, token["accent"], 1.5), plots.level(0, token["soft"], 1, "dash")]
    # Beside the drawing: dots and stems lie on the lines.
    ends = sorted([(whole, "all traces", token["accent-ink"]), (0.0, "below: another<br>leads", token["soft"])])
    notes = plots.end_notes(ends, 0.2 * (high - low + 2 * room))
    y = plots.titled("plain log10 sum : best other", range=[low - room, high + room])
    return plots.figure(theme, (64, 104, 8, 52), data, _trace_axis(traces), y, shapes=shapes, annotations=notes)


def margin_of_all(report: Mapping[str, Any]) -> float:
    """log10 ratio against the strongest rival: what all traces add."""
    return math.fsum(float(trace["log10_ratio"]) for trace in report["traces"])


def landing(
    points: pd.DataFrame, nearest: pd.DataFrame, marks: Mapping[str, Mark], *, theme: Theme, claimed: str = ""
) -> go.Figure:
    """The map of an ecosystem with the sources marked that are nearest to the traces.

    points : columns source, name, family, access, x, y (flat). nearest : columns source, rank. The traces get no point:
    a place among projected points would be invented.
    """
    token = TOKENS[theme]
    claimed = "" if claimed in set(nearest["source"]) else claimed  # its rank says where it is; a name would hide some
    none = pd.DataFrame({"source": [], "neighbor": [], "rank": []})
    figure = go.Figure(map_figure(points, none, marks, theme=theme, dimensions=2, selected=claimed))
    for trace in figure.data:
        if trace.mode == "markers" and trace.name not in ("selected", "nearest"):
            trace.opacity = 0.55
    everyone = scaled(points[["source", "name", "x", "y"]])
    own = everyone[everyone["source"] == claimed]
    placed = everyone.merge(nearest[["source", "rank"]], on="source").sort_values("rank")
    own_places, places, all_places = (list(tables.rows(rows, "x", "y")) for rows in (own, placed, everyone))
    own_ranks = list(placed["rank"].astype(str))
    # Positions as on the narrowest drawing, where there is least room; a blank on each side keeps labels apart.
    near, every = ([(SMALL * x, SMALL * y) for x, y in part] for part in ([*own_places, *places], all_places))
    labels, shared = _shared_labels(places, own_ranks, near, every)
    sides = label_sides(near, [*own["name"], *(f" {label} " for label in labels)], every, fixed=len(own))[len(own) :]
    sides = [shared.get(at, side) for at, side in enumerate(sides)]
    ranks = [f"<b>{rank}</b>" for rank in placed["rank"]]
    hover = [f"{rank} · {plain(name)}" for rank, name in zip(ranks, placed["name"], strict=True)]
    look: Plot = {
        "mode": "markers+text",
        "marker": {"symbol": "circle-open", "size": 18, "color": token["ink"], "line": {"width": 2}},
        # A rank without room of its own shows on hover.
        "text": [f"<b>{label}</b>" if label and side else "" for label, side in zip(labels, sides, strict=True)],
        "textposition": [side or "top center" for side in sides],
        "textfont": {"size": 13, "color": token["ink"]},
    }
    return figure.add_trace(plots.scatter("nearest to the traces", placed["x"], placed["y"], hover, **look))


def _shared_labels(
    places: Sequence[tuple[float, float]],
    ranks: Sequence[str],
    near: Sequence[tuple[float, float]],
    every: Sequence[tuple[float, float]],
) -> tuple[list[str], dict[int, str]]:
    """Labels by place, and the sides of the shared ones.

    Of those whose rings touch, one has the ranks of all and the others have ''. near, every : where all rings are
    drawn, these last, and all marks.
    """
    groups: list[list[int]] = []
    for at, place in enumerate(places):
        touched = [group for group in groups if any(math.dist(place, places[one]) < TOUCH for one in group)]
        groups = [group for group in groups if group not in touched]
        groups.append(sorted([at, *(one for group in touched for one in group)]))
    rings, marks = (UNIT * np.array(part, dtype=float).reshape(-1, 2) for part in (near, every))
    own = rings[len(rings) - len(places) :]
    labels, sides = [""] * len(places), dict[int, str]()
    for group in groups:
        words, at = _runs([int(ranks[one]) for one in group]), group[0]
        if len(group) > 1:
            outer, side = plots.outer_side(own[group], words, rings, marks, UNIT * HALF)
            at = group[outer]
            sides[at] = side
        labels[at] = words
    return labels, sides


def _runs(ranks: Sequence[int]) -> str:
    """Ascending ranks in words, three and more in a row by their ends."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ", ".join(f"{run[0]}–{run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def running_evidence(points: Sequence[Mapping[str, Any]], *, theme: Theme, total: int) -> go.Figure:
    """Plain sum of log10 ratios while traces are still read; the axis reaches ``total`` from the start.

    points : traces, log10_sum and leader after some of them.
    """
    token = TOKENS[theme]
    values = [float(point["log10_sum"]) for point in points]
    words = [
        f"<b>{count(point['traces'], 'trace')}</b><br>plain log10 sum {number(point['log10_sum'])}"
        f"<br>leading: {plain(point['leader'], 40)}"
        for point in points
    ]
    mode = "lines+markers" if len(points) <= 60 else "lines"
    look = {"mode": mode, "line": plots.pen(token["accent"], 2.5), "marker": {"size": 7}}
    line = _text_line("plain sum so far", [point["traces"] for point in points], values, words, **look)
    x = plots.titled("Traces read", range=[0, max(total, 2) * 1.02], showgrid=False)
    y = plots.titled("Plain log10 sum", range=[min([*values, -1]) * 1.1, max([*values, 1]) * 1.1])
    shapes = [plots.level(0, token["edge"])]
    return plots.figure(theme, (64, 16, 8, 44), [line], x, y, shapes=shapes, hovermode=None)


def drift_power(rows: pd.DataFrame, window: int, *, theme: Theme) -> go.Figure:
    """How often the drift test speaks on real pairs, against the traces of a window.

    rows : columns scenario (of :data:`DRIFT_KINDS`), k, value, n (pairs).
    window : the smaller one's traces, marked; or 0.
    """
    token, colours = TOKENS[theme], READER_COLOURS[theme]
    looks = ((token["soft"], "dot", "circle-open"), (colours[0], "solid", "circle"), (colours[1], "solid", "square"))
    data: list[Plot] = []
    ends: list[End] = []
    for (scenario, words), (colour, dash, symbol) in zip(DRIFT_KINDS.items(), looks, strict=True):
        curve = rows[rows["scenario"] == scenario].sort_values("k")
        if curve.empty:
            continue
        low, high = zip(*(plots.wilson(share, int(n)) for share, n in tables.rows(curve, "value", "n")), strict=True)
        over, under = list(high - curve["value"]), list(curve["value"] - low)
        look: Plot = {
            "mode": "lines+markers", "line": plots.pen(colour, 2, dash),
            "marker": {"size": 8, "symbol": symbol}, "error_y": plots.bars(over, under, colour, 1, 3),
            "hovertemplate": f"<b>{words}</b><br>windows of %{{x}}: %{{y:.0%}} called different<extra></extra>",
        }  # fmt: skip
        data.append(plots.scatter(words, curve["k"], curve["value"], **look))
        ends.append((float(curve["value"].iloc[-1]), words, colour))
    ticks = sorted({int(k) for k in rows["k"]})
    x = plots.budget_axis(ticks, "Traces a window, log scale", 0.06, [window] if window else [])
    y = plots.titled("called different at 5 %", range=[-0.03, 1.05], tickformat=".0%")
    more = {
        "shapes": [plots.upright(window, token["accent"], xref="x")] if window else [],
        "annotations": plots.end_notes(ends, 0.08, 1.0, 12),
        "hovermode": None,
    }
    return plots.figure(theme, (64, 208, 8, 52), data, x, y, **more)


def tippett(points: pd.DataFrame, limits: tuple[float, float] | None = None, *, theme: Theme) -> Plot:
    """Share of true and of false claims whose ratio is at least as large.

    points : Columns metric (of :data:`CLAIMS`), level (log10 ratio), value. limits : Bounds of log10 ratios, dotted.
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
            for level, share in tables.rows(curve, "level", "value")
        ]
        look = {"line": plots.pen(colour, 2, dash), "marker": {"size": 5, "color": colour}}
        traces.append(plots.scatter(words, curve["level"], curve["value"], hover, mode="lines+markers", **look))
        middle = curve.iloc[(curve["value"] - 0.5).abs().argmin()]
        ink, shift = token["accent-ink"] if true else colour, 10 if side == "left" else -10
        notes.append(plots.note(middle["level"], middle["value"], words, 13, ink, xanchor=side, xshift=shift))
    shapes = [plots.upright(0, token["edge"])]
    shapes += [plots.upright(limit, token["soft"], 1, "dot") for limit in limits or ()]
    upwards = plots.titled("share of claims", range=[-0.03, 1.05], tickformat=".0%")
    return _ratios(theme, traces, plots.titled("log10 ratio"), upwards, shapes, notes)


def pooled_ratios(points: pd.DataFrame, *, theme: Theme) -> Plot:
    """Log10 ratios that claims show (column value) where a ratio was stated (level), against the diagonal."""
    token = TOKENS[theme]
    curve = points.sort_values("level")
    low, high = plots.reach([*curve["level"], *curve["value"], 0], 0.06, 1.0)
    hover = [
        f"<b>stated {number(level)}</b><br>claims show {number(value)} (log10 ratio)"
        for level, value in tables.rows(curve, "level", "value")
    ]
    look = {"line": plots.pen(token["accent"], 2) | {"shape": "hv"}, "marker": {"size": 6, "color": token["accent"]}}
    shown = plots.scatter("held-out claims", curve["level"], curve["value"], hover, mode="lines+markers", **look)
    same = plots.segment((low, high), (low, high), token["soft"], 1, "dash", layer="below")
    stated = plots.note(high, high, "as stated", 12, token["soft"], xanchor="right", yanchor="top", xshift=-28)
    across, upwards = (
        plots.titled(title, range=[low, high]) for title in ("stated log10 ratio", "log10 ratio that claims show")
    )
    return _ratios(theme, [shown], across, upwards, [same], [stated])


def _ratios(theme: Theme, data: list[Plot], x: Plot, y: Plot, shapes: list[Plot], notes: list[Plot]) -> Plot:
    more = {"dragmode": False, "showlegend": False, "shapes": shapes, "annotations": notes}
    return plots.plot(theme, (64, 16, 8, 52), data, x | plots.STILL, y | plots.STILL, **more)


def _places(traces: Sequence[Mapping[str, Any]]) -> list[int]:
    """Places of traces on the axis: their numbers where all are shown, else 1, 2, 3, ..."""
    if traces and traces[-1]["number"] - traces[0]["number"] < len(traces):
        return [int(trace["number"]) for trace in traces]
    return list(range(1, len(traces) + 1))


def _trace_axis(traces: Sequence[Mapping[str, Any]]) -> Plot:
    places = _places(traces)
    ticks = range(0, len(traces), max(1, math.ceil(len(traces) / 10)))
    return plots.titled(
        "Trace, in the order of the file", tickvals=[places[at] for at in ticks],
        ticktext=[f"{traces[at]['number']:,}" for at in ticks], showgrid=False,
        range=[places[0] - 0.7, max(places[-1], places[0] + 7) + 0.7] if places else [0, 1],
    )  # fmt: skip


def number(value: float, digits: int = 2) -> str:
    """A signed number with a real minus."""
    return f"{value:+,.{digits}f}".replace("-", "−")
