"""One source, or one family, among all of the roster: how soon it is named, and what it is taken for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from atlas.figures.attribution import Line, apart, budget_axis, rate_text
from atlas.theme import TOKENS, Mark, Theme, plain, template, translucent

BANDS = ((0.1, 0.9, 0.10), (0.25, 0.75, 0.16))
"""Quantiles of all sources and how dense they are drawn: the middle 80 % and the middle half."""
FEWEST_ROWS = 6
"""Rows that bars are spaced for, so that two of them are no blocks."""


def accuracy_curves(
    table: pd.DataFrame,
    lines: Sequence[tuple[Line, Mapping[int, float]]],
    *,
    theme: Theme,
    k: int,
    thin: Sequence[str] = (),
    colour: str = "",
) -> go.Figure:
    """Accuracy against the budget of some sources, before the spread of all sources of the roster.

    table : Columns source, name, accuracy_1 ... of every source of the roster.
    lines : Lines with a name; the front line last.
    k : Budget that is marked.
    thin : Labels of sources that are drawn thin and without a name.
    colour : Colour of the thin lines.
    """
    token = TOKENS[theme]
    columns = [column for column in table if column.startswith("accuracy_") and table[column].notna().any()]
    budgets = [int(column.removeprefix("accuracy_")) for column in columns]
    values = table[columns].to_numpy(dtype=float)
    figure = go.Figure()
    if k in budgets:
        figure.add_vline(x=k, line={"color": token["accent"], "width": 1})
    for low, high, density in BANDS:
        lower, upper = np.nanquantile(values, [low, high], axis=0)
        figure.add_trace(
            go.Scatter(
                name=f"{high - low:.0%} of all sources",
                x=[*budgets, *budgets[::-1]],
                y=[*upper.tolist(), *lower[::-1].tolist()],
                fill="toself",
                fillcolor=translucent(token["edge"], density),
                line={"width": 0},
                mode="lines",
                hoverinfo="skip",
            )
        )
    middle = np.nanmedian(values, axis=0)
    ends: list[tuple[float, str, str]] = [(float(middle[-1]), "median source", token["soft"])]
    figure.add_trace(
        go.Scatter(
            name="median source",
            x=budgets,
            y=middle.tolist(),
            mode="lines",
            line={"color": token["edge"], "width": 1.5},
            hovertemplate="median source<br>%{x} traces: %{y:.3f}<extra></extra>",
        )
    )
    for row in table[table["source"].isin(list(thin))].to_dict("records"):
        figure.add_trace(
            go.Scatter(
                name=plain(row["name"]),
                x=budgets,
                y=[row[column] for column in columns],
                mode="lines",
                line={"color": translucent(colour, 0.5), "width": 1},
                hovertemplate=f"{plain(row['name'])}<br>%{{x}} traces: %{{y:.3f}}<extra></extra>",
            )
        )
    for line, accuracy in lines:
        held = [budget for budget in budgets if budget in accuracy]
        if not held:
            continue
        figure.add_trace(
            go.Scatter(
                name=plain(line.label),
                x=held,
                y=[accuracy[budget] for budget in held],
                mode="lines+markers",
                line={"color": line.colour, "width": 2.5, "dash": line.dash},
                marker={"size": 8},
                hovertemplate=f"<b>{plain(line.label)}</b><br>%{{x}} traces: %{{y:.3f}}<extra></extra>",
            )
        )
        ends.append((accuracy[held[-1]], plain(line.label, 22), line.colour))
    for (_, text, ink), y in zip(ends, apart([end[0] for end in ends], 0.055, 1.02), strict=True):
        figure.add_annotation(
            x=1, xref="paper", y=y, text=text, showarrow=False, xanchor="left", xshift=10,
            font={"size": 13, "color": ink},
        )  # fmt: skip
    figure.update_layout(template=template(theme), margin={"l": 64, "r": 176, "t": 12, "b": 52}, hovermode="closest")
    budget_axis(figure, budgets)
    figure.update_yaxes(title="Accuracy", range=[0, 1.02], tickformat=".1~f")
    return figure


def taken_for(frame: pd.DataFrame, marks: Mapping[str, Mark], *, theme: Theme) -> go.Figure:
    """Two-sided bars: to the left what the source is answered as, to the right what is answered as it.

    frame : Columns name, family, answered_as, named_for (shares of the truth's groups, 0 where it never
        happened); in the order of the rows.
    """
    token = TOKENS[theme]
    rows = list(range(len(frame)))
    colours = [marks[family].colour(theme) for family in frame["family"]]
    reach = 1.25 * max(float(frame[["answered_as", "named_for"]].to_numpy().max()), 0.01)
    figure = go.Figure()
    for column, sign, words in (
        ("answered_as", -1, "of its groups are answered as"),
        ("named_for", 1, "of this one's groups are answered as the source:"),
    ):
        shares = frame[column].tolist()
        figure.add_trace(
            go.Bar(
                name=column,
                orientation="h",
                x=[sign * share for share in shares],
                y=rows,
                width=0.62,
                marker={"color": colours, "line": {"width": 0}},
                text=[_percent(share) if share > 0 else "" for share in shares],
                textposition="outside",
                textfont={"size": 12, "color": token["ink"]},
                cliponaxis=False,
                hovertext=[
                    f"{share:.1%} {words}<br><b>{plain(name)}</b>"
                    for share, name in zip(shares, frame["name"], strict=True)
                ],
                hovertemplate="%{hovertext}<extra></extra>",
            )
        )
    figure.add_vline(x=0, line={"color": token["edge"], "width": 1})
    note = {"yref": "paper", "y": 1, "yanchor": "bottom", "showarrow": False}
    soft = {"size": 13, "color": token["soft"]}
    figure.add_annotation(x=-0.03 * reach, text="← it is answered as", xanchor="right", font=soft, **note)
    figure.add_annotation(x=0.03 * reach, text="answered as it →", xanchor="left", font=soft, **note)
    figure.update_layout(
        template=template(theme), margin={"l": 244, "r": 24, "t": 32, "b": 16}, barmode="overlay", hovermode="closest"
    )
    figure.update_xaxes(range=[-reach, reach], showticklabels=False, showgrid=False, ticks="", showline=False)
    figure.update_yaxes(
        tickvals=rows,
        ticktext=[plain(name, 33) for name in frame["name"]],
        range=[max(len(rows), FEWEST_ROWS) - 0.4, -0.6],
        showgrid=False,
        ticks="",
        showline=False,
    )
    return figure


def error_families(frame: pd.DataFrame, marks: Mapping[str, Mark], *, theme: Theme, own: str) -> go.Figure:
    """Families that the wrong answers name, the own family marked.

    frame : Columns family, share (of the wrong answers), expected (if errors fell on any other source alike);
        most first.
    own : Family whose sources are asked.
    """
    token = TOKENS[theme]
    rows = list(range(len(frame)))
    figure = go.Figure(
        go.Bar(
            name="share of errors",
            orientation="h",
            x=frame["share"].tolist(),
            y=rows,
            width=0.62,
            marker={"color": [marks[family].colour(theme) for family in frame["family"]]},
            hovertext=[
                f"<b>{plain(family)}</b><br>{share:.1%} of the errors; {expected:.1%} if blind"
                for family, share, expected in frame[["family", "share", "expected"]].itertuples(index=False)
            ],
            hovertemplate="%{hovertext}<extra></extra>",
        )
    )
    for row, expected, share in zip(rows, frame["expected"], frame["share"], strict=True):
        figure.add_shape(
            type="line", x0=expected, x1=expected, y0=row - 0.4, y1=row + 0.4, line={"color": token["ink"], "width": 2}
        )
        # Right of both, so that the line does not run through the number.
        figure.add_annotation(
            x=max(expected, share), y=row, text=_percent(share), showarrow=False, xanchor="left", xshift=4,
            font={"size": 13, "color": token["ink"]},
        )  # fmt: skip
    figure.update_layout(template=template(theme), margin={"l": 132, "r": 56, "t": 8, "b": 48})
    figure.update_xaxes(title="Share of the wrong answers", rangemode="tozero", tickformat=".0%")
    figure.update_yaxes(
        tickvals=rows,
        ticktext=[f"<b>{plain(family, 16)}</b>" if family == own else plain(family, 16) for family in frame["family"]],
        range=[max(len(rows), FEWEST_ROWS) - 0.4, -0.6],
        showgrid=False,
        ticks="",
    )
    return figure


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.1f} %"


def accuracy_of(table: pd.DataFrame, sources: Sequence[str]) -> dict[int, float]:
    """Mean accuracy of some sources at every budget that was measured.

    table : As in :func:`accuracy_curves`.
    sources : Labels.
    """
    rows = table[table["source"].isin(list(sources))]
    means = {
        int(column.removeprefix("accuracy_")): float(rows[column].mean())
        for column in table
        if column.startswith("accuracy_") and rows[column].notna().any()
    }
    return means


def accuracy_text(accuracy: Mapping[int, float], k: int) -> str:
    """An accuracy in percent for a sentence."""
    return f"{100 * accuracy[k]:.1f} %" if k in accuracy else rate_text(float("nan"))
