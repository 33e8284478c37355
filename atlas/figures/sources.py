"""One source, or one family, among all of the roster: how soon it is named, and with whom it is confused."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from atlas.figures import plots, tables
from atlas.figures.plots import End, Line, rate_text
from atlas.theme import TOKENS, Mark, Plot, Theme, plain, translucent

BANDS = ((0.1, 0.9, 0.10), (0.25, 0.75, 0.16))
"""Quantiles of all sources and how dense they are drawn: the middle 80 % and the middle half."""
NAMED = 2  # of the sources that are drawn thin
ROW = 30  # pixels of a bar and the room around it


def accuracy_curves(
    table: pd.DataFrame, lines: Sequence[tuple[Line, Mapping[int, float]]], *, theme: Theme, k: int,
    thin: Sequence[str] = (), colour: str = "", spread: Mapping[int, tuple[float, float]] | None = None,
) -> go.Figure:  # fmt: skip
    """Accuracy against the budget of some sources, before the spread of all sources of the roster.

    table : Columns source, name, accuracy_1 ... of every source of the roster.
    lines : With a name, and accuracy by budget; the front line last.
    thin : Labels of sources that are drawn thin, in ``colour``; the lowest below the median have a name.
    spread : Interval of the front line by budget, drawn as bars.
    """
    token = TOKENS[theme]
    columns = _measured(table)
    budgets = list(columns.values())
    values = table[list(columns)].to_numpy(dtype=float)
    # Dotted and grey: intervals are drawn as upright lines in the colour of the source.
    shapes = [plots.upright(k, token["soft"], 1, "dot", xref="x")] if k in budgets else []
    data = []
    for low, high, density in BANDS:
        under, over = np.nanquantile(values, [low, high], axis=0)
        data.append(plots.band(f"{high - low:.0%} of all sources", budgets, under, over, token["edge"], density))
    middle = np.nanmedian(values, axis=0).tolist()
    ends: list[End] = [(middle[-1], "median source", token["soft"])]
    data.append(_curve("median source", "median source", budgets, middle, plots.pen(token["soft"], 1.5)))
    siblings = table[table["source"].isin(list(thin))]
    lowest = tables.rows(siblings.nsmallest(NAMED, list(columns)[-1]), "name", list(columns)[-1])
    ends += [(value, plain(name, 22), token["soft"]) for name, value in lowest if value < middle[-1]]
    for row in siblings.to_dict("records"):
        name, style = plain(row["name"]), plots.pen(translucent(colour, 0.5))
        data.append(_curve(name, name, budgets, [row[column] for column in columns], style))
    for line, accuracy in lines:
        measured = [budget for budget in budgets if budget in accuracy]
        if not measured:
            continue
        name, style = plain(line.label), plots.pen(line.colour, 2.5, line.dash)
        heights = [accuracy[budget] for budget in measured]
        marks: Plot = {"mode": "lines+markers", "marker": {"size": 8}}
        if spread and line is lines[-1][0]:
            over = [spread[budget][1] - accuracy[budget] for budget in measured]
            under = [accuracy[budget] - spread[budget][0] for budget in measured]
            marks["error_y"] = plots.bars(over, under, line.colour, 1.5, 4)
        data.append(_curve(name, f"<b>{name}</b>", measured, heights, style, **marks))
        ends.append((accuracy[measured[-1]], plain(line.label, 22), line.colour))
    x, y = plots.budget_axis(budgets), plots.titled("Accuracy", range=[0, 1.02], tickformat=".1~f")
    notes = plots.end_notes(ends, 0.055, 1.02)
    if shapes:
        notes.append(plots.note(math.log10(k), 1, f"K = {k}", 12, token["soft"], yref="paper", yanchor="bottom"))
    return plots.figure(theme, (64, 176, 24, 52), data, x, y, annotations=notes, shapes=shapes)


def _curve(name: str, words: str, x: Sequence[int], y: Sequence[float], line: Plot, **more: Any) -> Plot:
    hover = f"{words}<br>%{{x}} traces: %{{y:.3f}}<extra></extra>"
    return plots.scatter(name, x, y, hovertemplate=hover, **{"mode": "lines", "line": line, **more})


def taken_for(frame: pd.DataFrame, marks: Mapping[str, Mark], *, theme: Theme) -> go.Figure:
    """Two-sided bars: left what the source is answered as, right what is answered as it.

    frame : Columns name, family, answered_as, named_for (shares of the truth's groups); in the order of the rows.
    """
    token = TOKENS[theme]
    colours = [marks[family].colour(theme) for family in frame["family"]]
    reach = 1.8 * max(float(frame[["answered_as", "named_for"]].to_numpy().max()), 0.01)
    data = []
    for column, sign, words in (
        ("answered_as", -1, "of its groups are answered as"),
        ("named_for", 1, "of this one's groups are answered as the source:"),
    ):
        shares = frame[column].tolist()
        hover = [f"{share:.1%} {words}<br><b>{plain(name)}</b>" for share, name in tables.rows(frame, column, "name")]
        numbers = {
            "text": [_percent(share) if share > 0 else "" for share in shares],
            "textposition": "outside",
            "textfont": {"size": 12, "color": token["ink"]},
        }
        look = {"color": colours, "line": {"width": 0}}
        lengths = [sign * share for share in shares]
        data.append(_row_bars(column, lengths, hover, marker=look, cliponaxis=False, **numbers))
    head = {"yref": "paper", "yanchor": "bottom"}
    notes = [
        plots.note(-0.03 * reach, 1, "← it is answered as", 13, token["soft"], xanchor="right", **head),
        plots.note(0.03 * reach, 1, "answered as it →", 13, token["soft"], xanchor="left", **head),
    ]
    x = {"range": [-reach, reach], "showticklabels": False, "showgrid": False, "ticks": "", "showline": False}
    y = _bar_rows([plain(name, 34) for name in frame["name"]], showline=False)
    shapes = [plots.upright(0, token["edge"], xref="x")]
    more = {"barmode": "overlay", "annotations": notes, "shapes": shapes}
    return plots.figure(theme, (208, 8, 32, 16), data, x, y, **more)


def error_families(frame: pd.DataFrame, marks: Mapping[str, Mark], *, theme: Theme, own: str) -> go.Figure:
    """Families that the wrong answers name, the own family marked.

    frame : Columns family, share (of the wrong answers), expected (if errors fell on any other alike); most first.
    """
    ink, soft = TOKENS[theme]["ink"], TOKENS[theme]["soft"]
    hover = [
        f"{plots.heading(family)}{share:.1%} of the errors; {expected:.1%} by chance"
        for family, share, expected in tables.rows(frame, "family", "share", "expected")
    ]
    look = {"color": [marks[family].colour(theme) for family in frame["family"]]}
    chance = _row_bars("chance", frame["expected"].tolist(), hover, marker={"color": translucent(soft, 0.3)})
    notes = []
    for row, (expected, share) in enumerate(tables.rows(frame, "expected", "share")):
        words = f"{_percent(share)} <span style='color:{soft}'>(chance {_percent(expected)})</span>"
        notes.append(plots.note(max(share, expected), row, words, 13, ink, xanchor="left", xshift=6))
    most = float(frame[["share", "expected"]].to_numpy().max())
    x = plots.titled("Share of the wrong answers", range=[0, min(1.0, 1.05 * most)], tickformat=".0%")
    names = [f"<b>{plain(name, 16)}</b>" if name == own else plain(name, 16) for name in frame["family"]]
    more = {"barmode": "overlay", "annotations": notes, "hovermode": None}
    # Narrower than chance, which shows behind it whichever of the two is longer.
    bars = _row_bars("share of errors", frame["share"].tolist(), hover, marker=look) | {"width": 0.36}
    return plots.figure(theme, (132, 152, 8, 48), [chance, bars], x, _bar_rows(names), **more)


def _row_bars(name: str, lengths: Sequence[float], hover: Sequence[str], **more: object) -> Plot:
    shape = {"type": "bar", "orientation": "h", "x": list(lengths), "y": list(range(len(lengths))), "width": 0.62}
    return {"name": name, **shape, "hovertext": list(hover), "hovertemplate": plots.HOVER, **more}


def _bar_rows(names: Sequence[str], **more: Any) -> Plot:
    """An axis with a name a bar."""
    return plots.rows_axis(names, 0.4, 0.6, showgrid=False, **more)


def bars_height(rows: int, most: int) -> int:
    """Height in pixels of so many bars, or of the most that are drawn."""
    return 56 + ROW * max(2, min(rows, most))


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.1f} %"


def accuracy_of(table: pd.DataFrame, sources: Sequence[str]) -> dict[int, float]:
    """Mean accuracy of some sources at every budget that was measured; ``table`` as in :func:`accuracy_curves`."""
    rows = table[table["source"].isin(list(sources))]
    return {budget: float(rows[column].mean()) for column, budget in _measured(rows).items()}


def _measured(table: pd.DataFrame) -> dict[str, int]:
    """Columns accuracy_1 ... that hold a value, with their budgets."""
    columns = [column for column in map(str, table) if column.startswith("accuracy_")]
    return {column: int(column.removeprefix("accuracy_")) for column in columns if table[column].notna().any()}


def accuracy_text(accuracy: Mapping[int, float], k: int) -> str:
    """An accuracy in percent for a sentence."""
    return f"{100 * accuracy[k]:.1f} %" if k in accuracy else rate_text(float("nan"))
