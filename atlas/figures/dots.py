"""Rows of marks: a line a reader, a mark a series with its interval, the usual number at the end of the line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from atlas.figures.attribution import rate_text
from atlas.theme import READER_COLOURS, TOKENS, Plot, Theme, dress, plain

LINE_HEIGHT = 40
LEFT, RIGHT = 252, 136
"""Margins of the names and of the numbers, in pixels."""
LEGEND: Mapping[str, object] = {
    "orientation": "h",
    "x": 0,
    "xref": "container",
    "xanchor": "left",
    "y": 1,
    "yref": "container",
    "yanchor": "top",
    "font": {"size": 12},
    "itemclick": False,
    "itemdoubleclick": False,
}
"""A legend in one line above the drawing that nobody can switch off by accident."""


@dataclass(frozen=True)
class Series:
    """How a series is drawn and called: its place in a line from -1 to 1, its symbol, its reader colour."""

    words: str
    symbol: str
    place: float
    colour: int

    def ink(self, theme: Theme) -> str:
        """Colour in a theme."""
        return READER_COLOURS[theme][self.colour]


@dataclass(frozen=True)
class Level:
    """A value that is no mark of the data, drawn as a dotted line: what a guess gets, or no difference at all."""

    value: float
    words: str


def dots_height(rows: int) -> int:
    """Height in pixels of figures with a line a reader."""
    return 56 + 60 + LINE_HEIGHT * max(rows, 2)


def height_of(figure: Plot) -> int:
    """Height in pixels of a figure of this module, by its lines."""
    return dots_height(len(figure["layout"]["yaxis"].get("ticktext", ())))


def dot_rows(
    frame: pd.DataFrame,
    names: Mapping[str, str],
    series: Mapping[str, Series],
    *,
    theme: Theme,
    axis: str,
    usual: Sequence[str],
    level: Level | None = None,
    top: float | None = 1.02,
    unit: str = "",
) -> Plot:
    """One line a row, one mark a series with its interval; published marks are hollow.

    frame : Columns row, series, origin, value, std, low, high (NaN without an interval), n.
    names : From the top down.
    series : In the order of the legend.
    axis : Title of the horizontal axis.
    usual : Series whose number stands at the end of a line: the first of them that the line has.
    top : Right end of the axis; None for what the numbers need.
    unit : What ``n`` counts, in words; nothing is said of it where empty.
    """
    token = TOKENS[theme]
    place = {row: number for number, row in enumerate(names)}
    traces: list[dict[str, object]] = []
    notes: list[dict[str, object]] = []
    crowded = frame.groupby("row")["series"].nunique()
    both = frame.groupby(["row", "series"])["origin"].nunique()
    told: set[str] = set()
    for (key, origin, ranged), rows in frame.assign(ranged=frame["low"].notna()).groupby(
        ["series", "origin", "ranged"], sort=False
    ):
        style = series[key]
        ink, published = style.ink(theme), origin == "published"
        aside = [0.2 * (1 if published else -1) if both[row, key] > 1 else 0.0 for row in rows["row"]]
        heights = [
            place[row] - 0.24 * style.place * (crowded[row] > 1) + step
            for row, step in zip(rows["row"], aside, strict=True)
        ]
        over = rows["high"] - rows["value"] if ranged else rows["std"].fillna(0.0)
        under = rows["value"] - rows["low"] if ranged else rows["std"].fillna(0.0)
        traces.append(
            {
                "type": "scatter",
                "name": style.words,
                "legendgroup": key,
                "legendrank": 1000 + list(series).index(key),
                "showlegend": key not in told,
                "x": rows["value"].tolist(),
                "y": heights,
                "mode": "markers",
                "error_x": {
                    "type": "data",
                    "array": over.tolist(),
                    "arrayminus": under.tolist(),
                    "color": ink,
                    "thickness": 2 if ranged else 1,
                    "width": 0 if ranged else 3,
                },
                "marker": _marker(style, theme, published),
                "hovertext": [
                    f"<b>{plain(names[row.row])}</b>{', published' if published else ''}<br>{style.words}: "
                    f"{rate_text(row.value)}{_spread(row)}{f'<br>{int(row.n):,} {unit}' if unit else ''}"
                    for row in rows.itertuples(index=False)
                ],
                "hovertemplate": "%{hovertext}<extra></extra>",
            }
        )
        told.add(str(key))
    told_at_end = _at_ends(frame, usual)
    notes += [
        {"x": 1, "xref": "paper", "y": number, "text": told_at_end.get(row, ""), "showarrow": False, "xanchor": "left",
         "xshift": 12, "align": "left", "font": {"size": 13, "color": token["ink"]}}
        for row, number in place.items()
    ]  # fmt: skip
    shapes = []
    if level is not None and place:
        soft = {"size": 12, "color": token["soft"]}
        notes.append(
            {"x": level.value, "y": -0.62, "text": level.words, "showarrow": False, "yanchor": "bottom", "font": soft}
        )
        shapes.append(upright(level.value, {"color": token["edge"], "width": 1, "dash": "dot"}))
    ends = pd.concat([frame["value"] - frame["std"].fillna(0.0), frame["low"], frame["value"], frame["high"]])
    low = min(float(ends.min()), level.value if level is not None else float("inf")) if len(frame) else 0.0
    high = float(max(ends.max(), (frame["value"] + frame["std"].fillna(0.0)).max())) if len(frame) else 1.0
    pad = 0.03 if top is not None else 0.05 * max(high - low, 1e-6)
    bounds = [max(-0.02, low - pad), top] if top is not None else [low - pad, high + pad]
    across = {"title": {"text": axis}, "range": bounds, "tickformat": ".2~f"}
    return {"data": traces, "layout": name_lines(names, theme, across, shapes, notes)}


def difference_rows(
    frame: pd.DataFrame, names: Mapping[str, str], series: Mapping[str, Series], *, theme: Theme, axis: str, told: str
) -> Plot:
    """Differences around nothing with their intervals, one line a row; published marks are hollow.

    frame : Columns row, series, origin, difference, low, high, p_text (what stands at the end of the line), p_raw
        (p before the correction, as text), clear (whether it is more than chance).
    series : ``place`` says where in a line its marks stand.
    axis : What the difference is of.
    told : What is compared with the series, for the hover text.
    """
    token = TOKENS[theme]
    place = {row: number for number, row in enumerate(names)}
    traces: list[dict[str, object]] = []
    notes: list[dict[str, object]] = []
    seen: set[str] = set()
    for (key, origin), rows in frame.groupby(["series", "origin"], sort=False):
        style = series[key]
        ink, published = style.ink(theme), origin == "published"
        traces.append(
            {
                "type": "scatter",
                "name": style.words,
                "legendgroup": key,
                "showlegend": key not in seen,
                "x": rows["difference"].tolist(),
                "y": [place[row] - 0.22 * style.place for row in rows["row"]],
                "mode": "markers",
                "error_x": {
                    "type": "data",
                    "array": (rows["high"] - rows["difference"]).tolist(),
                    "arrayminus": (rows["difference"] - rows["low"]).tolist(),
                    "color": ink,
                    "thickness": 2,
                    "width": 0,
                },
                "marker": _marker(style, theme, published),
                "hovertext": [
                    f"<b>{plain(names[row.row])}</b>{', published' if published else ''}<br>{told} {style.words}: "
                    f"{signed(row.difference)} [{signed(row.low)}, {signed(row.high)}]<br>Holm-corrected {row.p_text}, "
                    f"p {row.p_raw} before the correction"
                    for row in rows.itertuples(index=False)
                ],
                "hovertemplate": "%{hovertext}<extra></extra>",
            }
        )
        seen.add(str(key))
        notes += [
            {"x": 1, "xref": "paper", "y": place[row.row] - 0.22 * style.place, "showarrow": False, "text": row.p_text,
             "xanchor": "left", "xshift": 12,
             "font": {"size": 12, "color": token["ink"] if row.clear else token["soft"]}}
            for row in rows.itertuples(index=False)
        ]  # fmt: skip
    across = {"title": {"text": axis}, "tickformat": "+.2~f", "zeroline": False}
    shapes = [upright(0, {"color": token["edge"], "width": 1.5})]
    return {"data": traces, "layout": name_lines(names, theme, across, shapes, notes)}


def name_lines(
    names: Mapping[str, str],
    theme: Theme,
    across: Mapping[str, object],
    shapes: Sequence[Mapping[str, object]],
    annotations: Sequence[Mapping[str, object]],
) -> dict[str, object]:
    """Layout of one line a row, from the top down, with its name on the left, and the legend above.

    across : Horizontal axis.
    """
    return {
        "template": dress(theme),
        "margin": {"l": LEFT, "r": RIGHT, "t": 60, "b": 56},
        "hovermode": "closest",
        "dragmode": False,
        "showlegend": True,
        "legend": dict(LEGEND),
        "shapes": list(shapes),
        "annotations": list(annotations),
        "xaxis": {"fixedrange": True, **across},
        "yaxis": {
            "tickvals": list(range(len(names))),
            "ticktext": [plain(name, 38) for name in names.values()],
            "tickfont": {"size": 12, "color": TOKENS[theme]["ink"]},
            "range": [len(names) - 0.35, -0.65],
            "fixedrange": True,
            "showline": False,
            "ticks": "",
        },
    }


def upright(x: float, line: Mapping[str, object]) -> dict[str, object]:
    """A line from the foot of the drawing to its head."""
    return {"type": "line", "x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "y domain", "line": dict(line)}


def signed(value: float) -> str:
    """A difference with its sign."""
    return f"+{rate_text(value)}" if value >= 0 else rate_text(value)


def _marker(style: Series, theme: Theme, published: bool) -> dict[str, object]:
    ink = style.ink(theme)
    return {
        "size": 11 if style.symbol == "star" else 10,
        "symbol": style.symbol,
        "color": TOKENS[theme]["ground"] if published else ink,
        "line": {"color": ink, "width": 2},
    }


def _spread(row: object) -> str:
    low, high, std = (getattr(row, name) for name in ("low", "high", "std"))
    parts = [f" ± {rate_text(std)}"] if pd.notna(std) else []
    if pd.notna(low) and pd.notna(high):
        parts.append(f", 95 % interval {rate_text(low)} to {rate_text(high)}")
    return "".join(parts)


def _at_ends(frame: pd.DataFrame, usual: Sequence[str]) -> dict[str, str]:
    """The numbers that lines end with: that of the usual series, measured before published."""
    rank = {key: number for number, key in enumerate(usual)}
    held = frame[frame["series"].isin(rank)]
    first = held.assign(rank=held["series"].map(rank)).sort_values(["origin", "rank"], kind="stable")
    told = {}
    for row in first.drop_duplicates("row").itertuples(index=False):
        spread = f" ± {rate_text(row.std)}" if pd.notna(row.std) else ""
        if pd.notna(row.low):
            spread = f" [{rate_text(row.low)}, {rate_text(row.high)}]"
        told[str(row.row)] = f"{rate_text(row.value)}<span style='font-size:11px'>{spread}</span>"
    return told
