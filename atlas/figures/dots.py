"""Rows of marks: a line a reader, a mark a series with its interval, one number at the end of the line."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from atlas.figures import plots, tables
from atlas.figures.plots import rate_text
from atlas.theme import READER_COLOURS, TOKENS, Plot, Theme, plain

LINE_HEIGHT, LEAST_HEIGHT, CROWDED_HEIGHT = 34, 22, 28
ROOM = 400  # pixels of lines before they move closer together
LONGEST, LONGEST_SMALL = 40, 44  # letters of a name on one line of type, and of small ones
LEFT, RIGHT = 252, 136  # margins of the names and of the numbers, in pixels
COLUMN = 38  # pixels of a column of numbers; assets/narrow.js knows what it is called
MARKS = {
    "circle": "●○", "diamond": "◆◇", "square": "■□", "star": "★☆", "triangle-up": "▲△", "hexagon": "⬢⬡",
}  # fmt: skip
"""Symbols of measured and of published marks as letters."""
TALL = 18  # lines that a window holds; more have their axis above them
FEW = 3  # lines between which there is room for a second number
BARS = "Thick bars: 95 % interval; thin bars: one standard deviation over the {}"
RANGE = ", 95 % interval {} to {}"


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

    def marks(
        self, rows: pd.DataFrame, heights: Sequence[float], hover: Sequence[str], theme: Theme, hollow: bool, *,
        over: pd.Series | None = None, under: pd.Series | None = None, bar: tuple[float, int] = (2, 0), **more: Any,
    ) -> Plot:  # fmt: skip
        """Marks at values, with bars to high and low or of ``over`` and ``under``; bar : thickness and width."""
        ink = self.ink(theme)
        over = rows["high"] - rows["value"] if over is None else over
        under = rows["value"] - rows["low"] if under is None else under
        ends = plots.bars(over, under, ink, *bar)
        size = 11 if self.symbol == "star" else 10
        look = plots.outlined(size, TOKENS[theme]["ground"] if hollow else ink, ink, symbol=self.symbol)
        return plots.scatter(self.words, rows["value"], heights, hover, error_x=ends, marker=look, **more)


ANSWERS: Mapping[str, Series] = {
    "readout": Series("fused readout", "circle", 1, 1),
    "reader": Series("READER", "diamond", 0.33, 0),
    "words": Series("word n-grams", "star", -0.33, 4),
    "paper": Series("best published", "square", -1, 2),
}
"""Who answers a goal, in the order of the legend: the paper's readers, the others were measured here."""


@dataclass(frozen=True)
class Level:
    """A value that is no mark of the data, drawn as a dotted line: what a guess gets, or no difference at all."""

    value: float
    words: str


def dots_height(rows: int, least: int = LEAST_HEIGHT) -> int:
    """Height in pixels of figures with a line a reader."""
    return 56 + 60 + max(min(LINE_HEIGHT * max(rows, 2), ROOM), least * rows)


def height_of(figure: Plot) -> int:
    """Height in pixels of a figure of this module, by its lines; names on several lines of type need more."""
    names = figure["layout"]["yaxis"].get("ticktext", ())
    tallest = max((16 * (1 + name.count("<br>")) for name in names), default=0)
    crowded = len({trace["name"] for trace in figure["data"]}) > 2  # marks of one line, which lie apart
    least = CROWDED_HEIGHT if crowded else LEAST_HEIGHT
    return max(dots_height(len(names), least), 56 + 60 + tallest * len(names))


def dot_rows(
    frame: pd.DataFrame, names: Mapping[str, str], series: Mapping[str, Series], *, theme: Theme, axis: str,
    usual: Sequence[str], every: bool = False, level: Level | None = None, top: float | None = 1.02, unit: str = "",
) -> Plot:  # fmt: skip
    """One line a row, one mark a series with its interval; published marks are hollow.

    frame : Columns row, series, origin, value, std, low, high (NaN without an interval), n, and words, where a mark is
        called otherwise than its series.
    usual : Series whose number stands at the end of a line: the first of them that the line has; none: the highest.
    every : Whether the numbers of all series stand there, those of more than two without their spread, in a column each
        below its mark.
    top : Rightmost end of the axis, which stops at a round number before; None for what the numbers need.
    unit : What ``n`` counts, in words; '' for nothing.
    """
    token = TOKENS[theme]
    place = {row: number for number, row in enumerate(names)}
    every |= len(names) <= FEW and len(series) == 2
    traces: list[Plot] = []
    crowded = frame.groupby("row")["series"].nunique()
    origins = frame.groupby(["row", "series"])["origin"].nunique()
    both = set(origins.index[origins > 1])
    spread = frame["std"].fillna(0.0)
    ranged_rows = frame.assign(
        ranged=frame["low"].notna(),
        over=(frame["high"] - frame["value"]).where(frame["low"].notna(), spread),
        under=(frame["value"] - frame["low"]).where(frame["low"].notna(), spread),
    )
    for key, published, rows, legend in _groups(ranged_rows, ["series", "origin", "ranged"]):
        style = series[key]
        aside = [0.2 * (1 if published else -1) if (row, key) in both else 0.0 for row in rows["row"]]
        heights = [
            place[row] - 0.24 * style.place * (crowded[row] > 1) + step
            for row, step in zip(rows["row"], aside, strict=True)
        ]
        hover = [
            f"{plots.heading(names[row.row], published)}{getattr(row, 'words', style.words)}: "
            f"{rate_text(row.value)}{_std(row)}"
            f"{plots.interval(row.low, row.high, RANGE)}{f'<br>{int(row.n):,} {unit}' if unit else ''}"
            for row in tables.rows(rows)
        ]
        bar = (2, 0) if rows["ranged"].iloc[0] else (1, 3)
        more: Plot = {"over": rows["over"], "under": rows["under"], "bar": bar, **legend}
        rank = 1000 + list(series).index(key)
        traces.append(style.marks(rows, heights, hover, theme, published, legendrank=rank, **more))
    right = RIGHT
    if every and len(series) > 2:
        notes, right = _number_columns(frame, place, series, theme), 20 + COLUMN * len(series)
    elif every:
        notes = _numbers_of_two(frame, place, series, theme)
    else:
        notes = [_number_note(place[row], text, series[key].ink(theme)) for row, key, text in _at_ends(frame, usual)]
    shapes = []
    tall = len(names) > TALL
    if level is not None and place:
        height, anchor = (len(names) - 0.35, "top") if tall else (-0.62, "bottom")
        notes.append(plots.note(level.value, height, level.words, 12, token["soft"], yanchor=anchor))
        shapes.append(plots.upright(level.value, token["edge"], 1, "dot"))
    least = pd.concat([frame["value"] - spread, frame["low"], frame["value"], frame["high"]])
    low = min(float(least.min()), level.value if level is not None else float("inf")) if len(frame) else 0.0
    high = float(max(least.max(), (frame["value"] + spread).max())) if len(frame) else 1.0
    pad = 0.05 * max(high - low, 1e-6)
    bounds = [low - pad, high + pad]
    if top is not None:
        bounds = [max(-0.02, math.floor(20 * low - 0.2) / 20), min(top, math.ceil(20 * high + 0.2) / 20)]
    across = plots.titled(axis, range=bounds, tickformat=".2~f")
    heads = set(names) - set(frame["row"])
    both_bars = ranged_rows.loc[frame["std"].notna() | frame["low"].notna(), "ranged"].nunique() > 1
    title = BARS.format("splits" if unit == "splits" else "folds")
    bars = {"title": {"text": title, "side": "top", "font": {"size": 12}}} if tall and both_bars else {}
    return name_lines(names, theme, traces, across, shapes, notes, heads=heads, right=right, **bars)


def difference_rows(
    frame: pd.DataFrame, names: Mapping[str, str], series: Mapping[str, Series], *, theme: Theme, axis: str,
    compared: str,
) -> Plot:  # fmt: skip
    """Differences around nothing with their intervals, one line a row; published marks are hollow.

    frame : Columns row, series, origin, difference, low, high, p_text (stands at the end of the line), p_raw (p before
        the correction, as text), clear (whether it is more than chance). compared : What, for the hover text.
    """
    token = TOKENS[theme]
    place = {row: number for number, row in enumerate(names)}
    traces: list[Plot] = []
    notes: list[Plot] = []
    for key, published, rows, legend in _groups(frame.assign(value=frame["difference"]), ["series", "origin"]):
        style = series[key]
        heights = [place[row] - 0.22 * style.place for row in rows["row"]]
        hover = [
            f"{plots.heading(names[row.row], published)}{compared} {style.words}: "
            f"{plots.signed(row.difference)} [{plots.signed(row.low)}, {plots.signed(row.high)}]<br>"
            f"Holm-corrected {row.p_text}, {row.p_raw} before the correction"
            for row in tables.rows(rows)
        ]
        traces.append(style.marks(rows, heights, hover, theme, published, **legend))
        ends = [
            (row.p_text, "ink") if row.clear else (f"{row.p_text}: may be luck", "soft") for row in tables.rows(rows)
        ]
        notes += [
            plots.end_note(height, text, token[ink], 12, 12) for height, (text, ink) in zip(heights, ends, strict=True)
        ]
    across = plots.titled(axis, tickformat="+.2~f", zeroline=False)
    shapes = [plots.upright(0, token["edge"], 1.5)]
    return name_lines(names, theme, traces, across, shapes, notes)


def _groups(frame: pd.DataFrame, columns: list[str]) -> Iterator[tuple[str, bool, pd.DataFrame, Plot]]:
    """Groups of rows: series, whether published, rows, and its place in the legend, where a series stands once."""
    in_legend: set[str] = set()
    for (key, origin, *_), rows in frame.groupby(columns, sort=False):
        yield str(key), origin == "published", rows, {"legendgroup": key, "showlegend": key not in in_legend}
        in_legend.add(str(key))


def goal_rows(frame: pd.DataFrame, names: Mapping[str, str], *, theme: Theme) -> Plot:
    """What everybody reaches, one line a goal, and the aim as a bar across.

    frame : Columns row, answer (of :data:`ANSWERS`), name, value, low, high (NaN without), aim (NaN without).
    """
    place = {row: number for number, row in enumerate(names)}
    aims = frame.drop_duplicates("row").dropna(subset="aim")
    aim_hover = [f"{plots.heading(row.row)}our goal: {rate_text(row.aim)}" for row in tables.rows(aims)]
    aim_look = {"symbol": "line-ns", "size": 20, "line": {"color": TOKENS[theme]["ink"], "width": 2}}
    heights: list[float] = [place[row] for row in aims["row"]]
    traces = [plots.scatter("our goal", aims["aim"], heights, aim_hover, legendrank=2000, marker=aim_look)]
    for key, style in ANSWERS.items():
        rows = frame[frame["answer"] == key]
        if rows.empty:
            continue
        hover = [
            f"{plots.heading(row.name, key == 'paper')}{plain(row.row)}: "
            f"{rate_text(row.value)}{plots.interval(row.low, row.high, RANGE)}"
            for row in tables.rows(rows, "row", "name", "value", "low", "high")
        ]
        over, under = (rows["high"] - rows["value"]).fillna(0.0), (rows["value"] - rows["low"]).fillna(0.0)
        heights = [place[row] - 0.18 * style.place for row in rows["row"]]
        traces.append(style.marks(rows, heights, hover, theme, key == "paper", over=over, under=under))
    ink = ANSWERS["readout"].ink(theme)
    notes = [_number_note(number, _verdict(frame[frame["row"] == row]), ink) for row, number in place.items()]
    across = plots.titled("Accuracy", range=[0, 1.02], tickformat=".1~f")
    return name_lines(names, theme, traces, across, [], notes, itemsizing="constant")


def name_lines(
    names: Mapping[str, str], theme: Theme, traces: Sequence[Plot], across: Plot, shapes: Sequence[Plot],
    annotations: Sequence[Plot], *, heads: Collection[str] = (), right: int = RIGHT, **legend: Any,
) -> Plot:  # fmt: skip
    """One line a row, from the top down, with its name on the left, and the legend above; heads : rows of no mark."""
    token = TOKENS[theme]
    words = [f"<b>{_on_lines(name)}</b>" if row in heads else _on_lines(name) for row, name in names.items()]
    font = {"size": 12, "color": token["ink"]}
    upwards = plots.rows_axis(words, 0.35, 0.65, **plots.STILL, showline=False, showgrid=not heads, tickfont=font)
    lines = [at for at, row in enumerate(names) if heads and row not in heads]
    grid = [plots.level(at, token["line"]) | {"layer": "below"} for at in lines]
    marks = {"shapes": [*grid, *shapes], "annotations": list(annotations)}
    more = {"showlegend": True, "legend": {**plots.LEGEND, **legend}, "dragmode": False, **marks}
    # More than five entries stand on two lines, which would meet the words of a level, or of an axis above.
    entries, tall = sum(trace.get("showlegend", True) for trace in traces), len(names) > TALL
    head = 60 if entries <= 5 - 2 * tall else 84  # four stand on two lines of a narrow window
    margin, side = ((LEFT, right, head + 40, 16), "top") if tall else ((LEFT, right, head, 56), "bottom")
    return plots.plot(theme, margin, traces, {**plots.STILL, "side": side, **across}, upwards, **more)


def _on_lines(name: str) -> str:
    """A name on as many lines of type as it needs; what follows a line break is in small letters."""
    whole, _, note = name.partition("\n")
    note_lines = [plots.small(line) for line in _wrapped(note, LONGEST_SMALL)]
    return "<br>".join([*_wrapped(whole, LONGEST), *note_lines])


def _wrapped(text: str, longest: int) -> list[str]:
    lines = textwrap.wrap(text, longest, break_long_words=False, break_on_hyphens=False)
    return [plain(line, longest) for line in lines]


def _number_note(row: int, text: str, ink: str) -> Plot:
    return plots.end_note(row, text, ink, 13, 12, align="left")


def _number_columns(
    frame: pd.DataFrame, place: Mapping[str, int], series: Mapping[str, Series], theme: Theme
) -> list[Plot]:
    """Numbers of all series at the ends of the lines, a column a series below its mark; '–' for none."""
    found = {(row.row, row.series): rate_text(row.value) for row in tables.rows(frame)}
    notes = []
    for number, (key, one) in enumerate(series.items(), 1):
        ink, texts = one.ink(theme), {at: found.get((row, key), "–") for row, at in place.items()}
        column = {"xref": "paper", "xanchor": "right", "xshift": 12 + COLUMN * number, "name": "column"}
        notes.append(plots.note(1, 1, _sign(frame, key, one), 15, ink, **column, yref="paper", yanchor="bottom"))
        notes += [plots.note(1, at, text, 12, ink, **column) for at, text in texts.items()]
    return notes


def _numbers_of_two(
    frame: pd.DataFrame, place: Mapping[str, int], series: Mapping[str, Series], theme: Theme
) -> list[Plot]:
    """Numbers of one or two series after their marks at the ends of the lines, one above the other; '–' for none."""
    found = {
        (row.row, row.series): f"{rate_text(row.value)}{plots.small(plots.interval(row.low, row.high) or _std(row))}"
        for row in tables.rows(frame)
    }
    shifts = (-0.22, 0.22) if len(series) > 1 else (0.0,)
    return [
        plots.end_note(
            at + shift, f"{_sign(frame, key, one)} {found.get((row, key), '–')}", one.ink(theme), 12, 12
        )
        for row, at in place.items()
        for shift, (key, one) in zip(shifts, series.items(), strict=True)
    ]  # fmt: skip


def _sign(frame: pd.DataFrame, key: str, series: Series) -> str:
    """The mark of a series as a letter, hollow where all of it was published."""
    hollow = frame.loc[frame["series"] == key, "origin"].eq("published")
    return MARKS[series.symbol][int(len(hollow) > 0 and hollow.all())]


def _verdict(rows: pd.DataFrame) -> str:
    """The number of the readout here, and whether the aim is reached, in a word."""
    own = rows[rows["answer"] == "readout"]
    if own.empty:
        return "not measured"
    value, aim = float(own["value"].iloc[0]), float(own["aim"].iloc[0])
    word = "" if pd.isna(aim) else " reached" if value >= aim else f", goal {rate_text(aim)}"
    return f"{rate_text(value)}{plots.small(word)}"


def _std(row: Any) -> str:
    return f" ± {rate_text(row.std)}" if pd.notna(row.std) else ""


def _at_ends(frame: pd.DataFrame, usual: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Row, series and number at its end: that of the usual series, else the highest, measured before published."""
    rank = {key: number for number, key in enumerate(usual)}
    rows = frame[frame["series"].isin(rank)] if rank else frame
    order = rows["series"].map(rank) if rank else -rows["value"]
    ordered = rows.assign(rank=order).sort_values(["origin", "rank"], kind="stable")
    for row in tables.rows(ordered.drop_duplicates("row")):
        spread = plots.interval(row.low, row.high) or _std(row)
        yield str(row.row), str(row.series), f"{rate_text(row.value)}{plots.small(spread)}"
