"""How well readers tell related models, and what each block adds (paper: transfer to unseen models)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go

from atlas.figures.attribution import rate_text
from atlas.figures.neighbourhoods import p_text
from atlas.theme import READER_COLOURS, TOKENS, Theme, plain, template

LINE_HEIGHT = 40


@dataclass(frozen=True)
class Readout:
    """How a readout is drawn and called: its place in a row from -1 to 1, its symbol, its reader colour."""

    words: str
    symbol: str
    place: float
    colour: int

    def ink(self, theme: Theme) -> str:
        """Colour in a theme."""
        return READER_COLOURS[theme][self.colour]


READOUTS: Mapping[str, Readout] = {
    "dc-ac": Readout("both (DC–AC)", "circle", 1, 0),
    "ac": Readout("drift (first AC)", "diamond", 0, 1),
    "dc": Readout("mean (DC)", "square", -1, 2),
    "match": Readout("matching text", "star", 0, 3),
    "distance": Readout("embedding distance", "triangle-up", 0, 5),
}
"""Readouts that figures show; tables hold the others."""
USUAL = ("dc-ac", "match", "distance")
"""The readout of a reader that its row is called after."""


def dots_height(rows: int) -> int:
    """Height in pixels of :func:`readout_dots` and :func:`contrast_dots`."""
    return 56 + 60 + LINE_HEIGHT * max(rows, 2)


def readout_dots(
    frame: pd.DataFrame, names: Mapping[str, str], *, theme: Theme, axis: str, chance: float | None
) -> go.Figure:
    """One line a reader, one mark a readout with its interval; published marks are hollow.

    Parameters
    ----------
    frame : DataFrame
        Columns row, readout, origin, value, std, low, high (NaN without an interval), n.
    names : mapping of row to name
        From the top down.
    theme : {'dark', 'light'}
    axis : str
        Title of the horizontal axis.
    chance : float or None
        What a coin gets.
    """
    token = TOKENS[theme]
    place = {row: number for number, row in enumerate(names)}
    figure = go.Figure()
    if chance is not None:
        figure.add_vline(x=chance, line={"color": token["edge"], "width": 1, "dash": "dot"})
    crowded = frame.groupby("row")["readout"].nunique()
    both = frame.groupby(["row", "readout"])["origin"].nunique()
    told: set[str] = set()
    for (readout, origin, ranged), rows in frame.assign(ranged=frame["low"].notna()).groupby(
        ["readout", "origin", "ranged"], sort=False
    ):
        style = READOUTS[readout]
        ink, published = style.ink(theme), origin == "published"
        aside = [0.2 * (1 if published else -1) if both[row, readout] > 1 else 0.0 for row in rows["row"]]
        heights = [
            place[row] - 0.24 * style.place * (crowded[row] > 1) + step
            for row, step in zip(rows["row"], aside, strict=True)
        ]
        over = rows["high"] - rows["value"] if ranged else rows["std"].fillna(0.0)
        under = rows["value"] - rows["low"] if ranged else rows["std"].fillna(0.0)
        figure.add_trace(
            go.Scatter(
                name=style.words,
                legendgroup=readout,
                legendrank=1000 + list(READOUTS).index(readout),
                showlegend=readout not in told,
                x=rows["value"].tolist(),
                y=heights,
                mode="markers",
                error_x={
                    "type": "data",
                    "array": over.tolist(),
                    "arrayminus": under.tolist(),
                    "color": ink,
                    "thickness": 2 if ranged else 1,
                    "width": 0 if ranged else 3,
                },
                marker={
                    "size": 11 if style.symbol == "star" else 10,
                    "symbol": style.symbol,
                    "color": token["ground"] if published else ink,
                    "line": {"color": ink, "width": 2},
                },
                hovertext=[
                    f"<b>{plain(names[row.row])}</b>{', published' if published else ''}<br>{style.words}: "
                    f"{rate_text(row.value)}{_spread(row)}<br>{int(row.n)} splits"
                    for row in rows.itertuples(index=False)
                ],
                hovertemplate="%{hovertext}<extra></extra>",
            )
        )
        told.add(str(readout))
    for row, number in place.items():
        figure.add_annotation(
            x=1, xref="paper", y=number, text=_at_end(frame[frame["row"] == row]), showarrow=False, xanchor="left",
            xshift=12, align="left", font={"size": 13, "color": token["ink"]},
        )  # fmt: skip
    if chance is not None and place:
        figure.add_annotation(
            x=chance,
            y=-0.62,
            text="a coin",
            showarrow=False,
            yanchor="bottom",
            font={"size": 12, "color": token["soft"]},
        )
    _lines(figure, names, theme, right=136)
    figure.update_layout(
        showlegend=True,
        legend={
            "orientation": "h", "x": 0, "xref": "container", "xanchor": "left", "y": 1, "yref": "container",
            "yanchor": "top", "font": {"size": 12}, "itemclick": False, "itemdoubleclick": False,
        },
    )  # fmt: skip
    ends = pd.concat([frame["value"] - frame["std"].fillna(0.0), frame["low"], frame["value"], frame["high"]])
    low = min(float(ends.min()), chance if chance is not None else 1.0) if len(frame) else 0.0
    figure.update_xaxes(title=axis, range=[max(-0.02, low - 0.03), 1.02], tickformat=".1~f")
    return figure


def _spread(row: object) -> str:
    low, high, std = (getattr(row, name) for name in ("low", "high", "std"))
    parts = [f" ± {rate_text(std)}"] if pd.notna(std) else []
    if pd.notna(low) and pd.notna(high):
        parts.append(f", 95 % interval {rate_text(low)} to {rate_text(high)}")
    return "".join(parts)


def _at_end(rows: pd.DataFrame) -> str:
    """The number that a line ends with: that of the usual readout, measured before published."""
    usual = rows[rows["readout"].isin(USUAL)].sort_values("origin", kind="stable")
    if usual.empty:
        return ""
    first = usual.iloc[0]
    spread = f" ± {rate_text(first['std'])}" if pd.notna(first["std"]) else ""
    if pd.notna(first["low"]):
        spread = f" [{rate_text(first['low'])}, {rate_text(first['high'])}]"
    return f"{rate_text(first['value'])}<span style='font-size:11px'>{spread}</span>"


def contrast_dots(frame: pd.DataFrame, names: Mapping[str, str], *, theme: Theme, measure: str) -> go.Figure:
    """What the joint readout gains over either block alone, one line a reader; published marks are hollow.

    Parameters
    ----------
    frame : DataFrame
        Columns row, reference_readout (dc, ac), origin, difference, low, high, p_holm.
    names : mapping of row to name
    theme : {'dark', 'light'}
    measure : str
        What the difference is of, in words.
    """
    token = TOKENS[theme]
    place = {row: number for number, row in enumerate(names)}
    figure = go.Figure()
    figure.add_vline(x=0, line={"color": token["edge"], "width": 1.5})
    told: set[str] = set()
    for (readout, origin), rows in frame.groupby(["reference_readout", "origin"], sort=False):
        style = READOUTS[readout]
        ink, published = style.ink(theme), origin == "published"
        figure.add_trace(
            go.Scatter(
                name=f"less {style.words}",
                legendgroup=readout,
                showlegend=readout not in told,
                x=rows["difference"].tolist(),
                y=[place[row] + (0.22 if readout == "dc" else -0.22) for row in rows["row"]],
                mode="markers",
                error_x={
                    "type": "data",
                    "array": (rows["high"] - rows["difference"]).tolist(),
                    "arrayminus": (rows["difference"] - rows["low"]).tolist(),
                    "color": ink,
                    "thickness": 2,
                    "width": 0,
                },
                marker={
                    "size": 10,
                    "symbol": style.symbol,
                    "color": token["ground"] if published else ink,
                    "line": {"color": ink, "width": 2},
                },
                hovertext=[
                    f"<b>{plain(names[row.row])}</b>{', published' if published else ''}<br>both blocks less "
                    f"{style.words}: {signed(row.difference)} [{signed(row.low)}, {signed(row.high)}]<br>"
                    f"Holm-corrected p {p_text(row.p_holm)}"
                    for row in rows.itertuples(index=False)
                ],
                hovertemplate="%{hovertext}<extra></extra>",
            )
        )
        told.add(str(readout))
        for row in rows.itertuples(index=False):
            figure.add_annotation(
                x=1, xref="paper", y=place[row.row] + (0.22 if readout == "dc" else -0.22), showarrow=False,
                text=f"p {p_text(row.p_holm)}", xanchor="left", xshift=12,
                font={"size": 12, "color": token["ink"] if row.p_holm < 0.05 else token["soft"]},
            )  # fmt: skip
    _lines(figure, names, theme, right=136)
    figure.update_layout(
        showlegend=True,
        legend={
            "orientation": "h", "x": 0, "xref": "container", "xanchor": "left", "y": 1, "yref": "container",
            "yanchor": "top", "font": {"size": 12}, "itemclick": False, "itemdoubleclick": False,
        },
    )  # fmt: skip
    figure.update_xaxes(title=f"Difference in {measure}", tickformat="+.2~f", zeroline=False)
    return figure


def signed(value: float) -> str:
    """A difference with its sign."""
    return f"+{rate_text(value)}" if value >= 0 else rate_text(value)


def _lines(figure: go.Figure, names: Mapping[str, str], theme: Theme, *, right: int) -> None:
    """One line a row, from the top down, with its name on the left."""
    figure.update_layout(
        template=template(theme), margin={"l": 232, "r": right, "t": 60, "b": 56}, hovermode="closest", dragmode=False
    )
    figure.update_xaxes(fixedrange=True)
    figure.update_yaxes(
        tickvals=list(range(len(names))),
        ticktext=[plain(name, 34) for name in names.values()],
        tickfont={"size": 12, "color": TOKENS[theme]["ink"]},
        range=[len(names) - 0.35, -0.65],
        fixedrange=True,
        showline=False,
        ticks="",
    )
