"""Small multiples: the same readers against the budget under every domain and length, one panel each, one scale."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from atlas.figures.attribution import Line, figure_text
from atlas.figures.dots import LEGEND, upright
from atlas.theme import TOKENS, Plot, Theme, dress, plain, translucent

GAP = 0.028
"""Space between two panels, as a share of the width."""


def curve_panels(
    frame: pd.DataFrame,
    panels: Mapping[tuple[str, str], str],
    lines: Sequence[Line],
    *,
    theme: Theme,
    axis: str,
    k: int,
    unit: bool,
) -> Plot:
    """One panel a domain and condition, one line a reader; every panel has the same vertical axis.

    frame : Columns reader, origin, benchmark, condition, k, value, std.
    panels : From left to right.
    lines : Front line last.
    axis : Title of the vertical axis.
    k : Budget that is marked.
    unit : Whether values lie in 0..1.
    """
    token = TOKENS[theme]
    traces: list[dict[str, object]] = []
    notes: list[dict[str, object]] = []
    shapes: list[dict[str, object]] = []
    axes: dict[str, object] = {}
    budgets = sorted(int(budget) for budget in frame["k"].unique())
    spread = frame["std"].fillna(0.0)
    top = 1.02 if unit else 1.06 * float((frame["value"] + spread).max())
    told: set[str] = set()
    width = (1 - GAP * (len(panels) - 1)) / max(len(panels), 1)
    for number, (key, words) in enumerate(panels.items()):
        ending = "" if number == 0 else str(number + 1)
        left = number * (width + GAP)
        here = frame[(frame["benchmark"] == key[0]) & (frame["condition"] == key[1])]
        for line in lines:
            rows = here[here["reader"] == line.key].sort_values("k")
            if rows.empty:
                continue
            published = bool((rows["origin"] == "published").all())
            at = {"xaxis": f"x{ending}", "yaxis": f"y{ending}", "legendgroup": line.key}
            if rows["std"].notna().any():
                band = rows["std"].fillna(0.0)
                traces.append(
                    dict(
                        type="scatter",
                        name=f"{plain(line.label)} ± std",
                        x=[*rows["k"], *rows["k"][::-1]],
                        y=[*(rows["value"] + band), *(rows["value"] - band)[::-1]],
                        fill="toself",
                        fillcolor=translucent(line.colour, 0.16),
                        line={"width": 0},
                        mode="lines",
                        hoverinfo="skip",
                        showlegend=False,
                        **at,
                    )
                )
            traces.append(
                dict(
                    type="scatter",
                    name=plain(line.label, 28),
                    x=rows["k"].tolist(),
                    y=rows["value"].tolist(),
                    mode="lines+markers",
                    line={"color": line.colour, "width": 2, "dash": "dash" if published else line.dash},
                    marker={
                        "size": 6,
                        "color": token["ground"] if published else line.colour,
                        "line": {"color": line.colour, "width": 1.5},
                    },
                    hovertext=[
                        f"<b>{plain(line.label)}</b>{', published' if published else ''}<br>{words}<br>"
                        f"K = {int(budget)}: {figure_text(value)}{'' if pd.isna(std) else f' ± {figure_text(std)}'}"
                        for budget, value, std in rows[["k", "value", "std"]].itertuples(index=False)
                    ],
                    hovertemplate="%{hovertext}<extra></extra>",
                    showlegend=line.key not in told,
                    **at,
                )
            )
            told.add(line.key)
        axes.update(
            {
                f"xaxis{ending}": {
                    "domain": [left, left + width],
                    "anchor": f"y{ending}",
                    "type": "log",
                    "tickvals": budgets,
                    "ticktext": [str(budget) if budget in (1, 10, 100) else "" for budget in budgets],
                    "range": [-0.08, 2.08],
                    "showgrid": False,
                    "minor": {"ticks": ""},
                    "fixedrange": True,
                },
                f"yaxis{ending}": {
                    "anchor": f"x{ending}",
                    "range": [0, top],
                    "tickformat": ".1~f" if unit else None,
                    "showticklabels": number == 0,
                    "title": {"text": axis if number == 0 else ""},
                    "fixedrange": True,
                    **({"matches": "y"} if number else {}),
                },
            }
        )
        ink, soft = {"size": 12, "color": token["ink"]}, {"size": 12, "color": token["soft"]}
        notes.append(_note(left, 1.01, f"<b>{words}</b>", ink, xanchor="left", yanchor="bottom"))
        if here.empty:
            notes.append(_note(left + width / 2, 0.5, "not measured", soft))
        elif k in budgets:
            mark = {"color": token["accent"], "width": 1}
            shapes.append({**upright(k, mark), "xref": f"x{ending}", "yref": f"y{ending} domain", "layer": "below"})
    budget = {"size": 13, "color": token["soft"]}
    notes.append(_note(0.5, 0, "Traces a group (K), log scale", budget, yshift=-34, yanchor="top"))
    return {
        "data": traces,
        "layout": {
            "template": dress(theme),
            "margin": {"l": 64, "r": 16, "t": 76, "b": 60},
            "hovermode": "closest",
            "dragmode": False,
            "showlegend": True,
            "legend": dict(LEGEND) | {"traceorder": "reversed"},
            "annotations": notes,
            "shapes": shapes,
            **axes,
        },
    }


def _note(x: float, y: float, text: str, font: Mapping[str, object], **more: object) -> dict[str, object]:
    """Words at a place of the whole figure."""
    return {"x": x, "y": y, "xref": "paper", "yref": "paper", "text": text, "font": font, "showarrow": False, **more}
