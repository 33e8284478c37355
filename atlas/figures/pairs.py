"""Pairs of models in a reader's scores (paper: static relationship auditing): related and unrelated ones."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from atlas.theme import READER_COLOURS, TOKENS, Theme, plain, template

TRUTH_SYMBOLS = {True: "circle", False: "diamond-open"}
TRUTH_WORDS = {True: "related", False: "unrelated"}
HISTOGRAM_BINS = 40
FEWEST_DECISIONS = 10
"""Pairs with a decision that a decision line needs."""
ORIENTATION = "for orientation"
"""Name of the line of readers whose decisions are not stored."""


def leading(frame: pd.DataFrame) -> str:
    """The score that pairs are ordered by: one of 'ac', 'match', 'distance'; the drift leads (paper: components)."""
    return next((name for name in ("ac", "match", "distance") if name in frame and frame[name].notna().any()), "")


def passed_by(frame: pd.DataFrame) -> pd.Series:
    """Share of the pairs of the other kind that a reader orders the wrong way round with each pair.

    frame : Columns related, decision and the reader's scores. Decisions order the pairs where there are some,
        else the leading score does.
    Returns 0 for a pair beyond all of the other kind, 1 for one that all of them pass; ties count half.
    """
    score = frame["decision"]
    if score.isna().all():
        name = leading(frame)
        score = -frame[name] if name == "distance" else frame[name]
    related = frame["related"].astype(bool)
    shares = pd.Series(float("nan"), index=frame.index)
    for kind, sign in ((True, 1.0), (False, -1.0)):
        others = sign * score[related != kind].to_numpy(dtype=float)
        if len(others):
            shares[related == kind] = [
                float((others > sign * own).mean() + 0.5 * (others == sign * own).mean())
                for own in score[related == kind]
            ]
    return shares


def pair_scatter(
    frame: pd.DataFrame, *, theme: Theme, model: str = "", chosen: tuple[str, str] = ("", "")
) -> go.Figure:
    """Pairs in the two scores of READER, and the line where the mean decision turns.

    Where no decisions are stored, a dotted line parts the two kinds of pairs (:func:`orientation_line`).

    frame : Columns model_a, model_b, related, dc, ac, decision (positive for related, NaN where none was made).
    model : Model whose pairs are ringed, or empty.
    chosen : The two models of the selected pair, in any order.
    """
    figure = go.Figure()
    low_x, high_x = _reach(frame["dc"])
    low_y, high_y = _reach(frame["ac"])
    decided_line, guide = decision_line(frame), orientation_line(frame)
    line = decided_line if decided_line is not None else guide
    if line is not None:
        a, b, c = line
        across = np.linspace(low_x, high_x, 200)
        figure.add_trace(
            go.Scatter(
                name="decision line" if decided_line is not None else ORIENTATION,
                x=across.tolist(),
                y=(-(a * across + c) / b).tolist(),
                mode="lines",
                line={"color": TOKENS[theme]["ink"], "width": 1.5, "dash": "dash"}
                if decided_line is not None
                else {"color": TOKENS[theme]["edge"], "width": 1.25, "dash": "dot"},
                hoverinfo="skip",
            )
        )
    _points(figure, frame, frame["dc"], frame["ac"], theme, model, chosen)
    figure.update_layout(margin={"l": 64, "r": 24, "t": 44, "b": 52})
    figure.update_xaxes(title="DC cosine: how alike the mean states are", range=[low_x, high_x], tickformat=".2~f")
    figure.update_yaxes(title="First-AC cosine: how alike the drift is", range=[low_y, high_y], tickformat=".2~f")
    return figure


def score_stacks(
    frame: pd.DataFrame, *, theme: Theme, title: str, model: str = "", chosen: tuple[str, str] = ("", "")
) -> go.Figure:
    """A histogram of one score in which every pair is a mark: related pairs stand up, unrelated ones hang down.

    Heights are shares of the pairs of each kind, because a strict split tests far more unrelated pairs.

    frame : Columns model_a, model_b, related, score, decision.
    title : The score in words.
    model, chosen : As in :func:`pair_scatter`.
    """
    figure = go.Figure()
    low, high = _reach(frame["score"])
    step = (high - low) / HISTOGRAM_BINS
    bins = ((frame["score"] - low) // step).astype(int)
    related = frame["related"].astype(bool)
    size = related.map({kind: (1.0 if kind else -1.0) * max(int((related == kind).sum()), 1) for kind in (True, False)})
    heights = (frame.groupby([bins, related]).cumcount() + 0.5) / size
    _points(figure, frame, low + (bins + 0.5) * step, heights, theme, model, chosen)
    most = max(float(heights.abs().max()), 0.05)
    figure.add_hline(y=0, line={"color": TOKENS[theme]["edge"], "width": 1})
    turn = turning_point(frame)
    if turn is not None and low < turn < high:
        figure.add_vline(x=turn, line={"color": TOKENS[theme]["ink"], "width": 1.5, "dash": "dash"})
    figure.update_layout(margin={"l": 64, "r": 24, "t": 44, "b": 52})
    figure.update_xaxes(title=title, range=[low, high], tickformat=".2~f", showgrid=False)
    ticks = [share for share in (-0.8, -0.6, -0.4, -0.2, -0.1, 0, 0.1, 0.2, 0.4, 0.6, 0.8) if abs(share) <= most]
    figure.update_yaxes(
        title="Share of the pairs of each kind",
        range=[-1.1 * most, 1.1 * most],
        tickvals=ticks,
        ticktext=[f"{100 * abs(share):.0f} %" for share in ticks],
    )
    return figure


def decision_line(frame: pd.DataFrame) -> tuple[float, float, float] | None:
    """Plane through the mean decisions of the splits: a, b, c of ``a * dc + b * ac + c``; None without enough of them.

    Every split draws a line of its own; a pair's stored decision is the mean over the splits that tested it.
    """
    rows = frame[["dc", "ac", "decision"]].dropna()
    if len(rows) < FEWEST_DECISIONS:
        return None
    terms = np.column_stack([rows["dc"], rows["ac"], np.ones(len(rows))])
    a, b, c = np.linalg.lstsq(terms, rows["decision"].to_numpy(dtype=float), rcond=None)[0]
    return (float(a), float(b), float(c)) if abs(b) > 1e-9 else None


def orientation_line(frame: pd.DataFrame) -> tuple[float, float, float] | None:
    """Least-squares line between the two kinds of pairs: a, b, c of ``a * dc + b * ac + c``; None without both.

    For readers whose decisions are not stored. It is fitted to every pair that it is drawn through, so it shows where
    the kinds part and says nothing of how well a reader decides.
    """
    rows = frame[["dc", "ac", "related"]].dropna()
    kinds = rows["related"].astype(bool)
    if len(rows) < FEWEST_DECISIONS or kinds.nunique() < 2:
        return None
    # Either kind weighs the same, whatever its number of pairs.
    weight = np.sqrt(
        kinds.map({kind: 0.5 / max(int((kinds == kind).sum()), 1) for kind in (True, False)}).to_numpy(float)
    )
    terms = np.column_stack([rows["dc"], rows["ac"], np.ones(len(rows))]) * weight[:, None]
    a, b, c = np.linalg.lstsq(terms, np.where(kinds, 1.0, -1.0) * weight, rcond=None)[0]
    return (float(a), float(b), float(c)) if abs(b) > 1e-9 else None


def turning_point(frame: pd.DataFrame) -> float | None:
    """Score at which the mean decisions of the splits turn; None without enough of them.

    frame : Columns score, decision.
    """
    rows = frame[["score", "decision"]].dropna()
    if len(rows) < FEWEST_DECISIONS or rows["score"].nunique() < 2:
        return None
    slope, offset = np.polyfit(rows["score"].to_numpy(dtype=float), rows["decision"].to_numpy(dtype=float), 1)
    return float(-offset / slope) if abs(slope) > 1e-9 else None


def _points(
    figure: go.Figure,
    frame: pd.DataFrame,
    x: pd.Series,
    y: pd.Series,
    theme: Theme,
    model: str,
    chosen: tuple[str, str],
) -> None:
    """Unrelated pairs behind related ones, rings around a model's pairs, a halo around the selected one."""
    token = TOKENS[theme]
    inks = {True: token["accent"], False: READER_COLOURS[theme][1]}
    rings = (frame["model_a"] == model) | (frame["model_b"] == model)
    halo = [{a, b} == set(chosen) for a, b in zip(frame["model_a"], frame["model_b"], strict=True)]
    for related in (False, True):
        here = frame["related"].astype(bool) == related
        figure.add_trace(
            go.Scatter(
                name=f"{TRUTH_WORDS[related]} ({int(here.sum())})",
                x=x[here].tolist(),
                y=y[here].tolist(),
                mode="markers",
                marker={
                    "symbol": TRUTH_SYMBOLS[related],
                    "size": 10,
                    "color": inks[related],
                    "opacity": 0.9,
                    "line": {"color": token["ground"] if related else inks[related], "width": 0.75 if related else 1.5},
                },
                # Lists, not arrays: NumPy customdata does not come back in clickData.
                customdata=[[a, b] for a, b in frame.loc[here, ["model_a", "model_b"]].itertuples(index=False)],
                hovertext=[
                    f"<b>{plain(row.model_a)}</b><br><b>{plain(row.model_b)}</b><br>{TRUTH_WORDS[related]}"
                    f"{decided(row.decision, related)}"
                    for row in frame[here].itertuples(index=False)
                ],
                hovertemplate="%{hovertext}<extra></extra>",
            )
        )
    for name, held, size, ink in (
        ("pairs of the model", rings, 17, token["soft"]),
        ("selected", np.array(halo, dtype=bool), 22, token["ink"]),
    ):
        figure.add_trace(
            go.Scatter(
                name=name,
                x=x[held].tolist(),
                y=y[held].tolist(),
                mode="markers",
                marker={"symbol": "circle-open", "size": size, "color": ink, "line": {"width": 2}},
                hoverinfo="skip",
                showlegend=False,
            )
        )
    figure.update_layout(
        template=template(theme),
        showlegend=True,
        legend={
            "orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "font": {"size": 12}, "itemclick": False,
            "itemdoubleclick": False,
        },
        hovermode="closest",
        dragmode=False,
    )  # fmt: skip
    figure.update_xaxes(fixedrange=True)
    figure.update_yaxes(fixedrange=True)


def decided(decision: float, related: bool) -> str:
    """What a decision says, and whether that is right; nothing without a decision."""
    if pd.isna(decision):
        return ""
    says = decision > 0
    return f"<br>read as {TRUTH_WORDS[bool(says)]}{'' if bool(says) == related else ', wrongly'}"


def _reach(values: pd.Series) -> tuple[float, float]:
    """Ends of an axis that holds the values and a little more."""
    low, high = float(values.min()), float(values.max())
    pad = 0.04 * ((high - low) or 1.0)
    return low - pad, high + pad
