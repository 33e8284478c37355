"""Pairs of models in a reader's scores, and how well readers tell related ones (paper: relationship auditing)."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from atlas.figures import plots, tables
from atlas.figures.dots import Level, Series, difference_rows, dot_rows
from atlas.theme import READER_COLOURS, TOKENS, Plot, Theme
from backend.inference.drift import corrected_words, p_words

READOUTS: dict[str, Series] = {
    "dc-ac": Series("both (DC–AC)", "circle", 1, 0),
    "ac": Series("drift (first AC)", "diamond", 0, 1),
    "dc": Series("mean (DC)", "square", -1, 2),
    "match": Series("matching text", "star", 0, 3),
    "distance": Series("embedding distance", "triangle-up", 0, 5),
}
"""Readouts that figures always show."""
OTHER = {"other": Series("another readout (named in the table)", "cross", -1, 4)}
USUAL = ("dc-ac", "match", "distance")  # the readout of a reader that its row is called after
BLOCKS = ("dc", "ac")  # readouts of one half of a fingerprint alone
FORMS = {
    "concat": "both, side by side",
    "grp128": "drift, 128 projections",
    "grp128-dc": "mean, 128 projections",
    "grp128-dc-ac": "both, 128 projections",
    "distance-rbf": "embedding distance, curved",
}
"""Readouts of which figures show the best alone; tables hold all."""
ENDINGS = {"@best": ", best layer", "@last": ", last layer", "-euclidean": ", Euclidean"}
LESS: Mapping[str, Series] = {
    "ac": Series("against drift (first AC) alone", "diamond", 1, 1),
    "dc": Series("against mean (DC) alone", "square", -1, 2),
}
TRUTH_SYMBOLS = {True: "circle", False: "diamond-open"}
TRUTH_WORDS = {True: "related", False: "unrelated"}
HISTOGRAM_BINS = 40
FEWEST_DECISIONS = 10  # pairs with a decision that a decision line needs
ORIENTATION = "for orientation"  # name of the line of readers whose decisions are not stored
SHARES = (0.1, 0.2, 0.4, 0.6, 0.8)  # ticks of a histogram on either side of nought


def readout_dots(
    frame: pd.DataFrame, names: Mapping[str, str], *, theme: Theme, axis: str, level: Level | None
) -> Plot:
    """Marks of readouts, a line a reader, which ends with its highest number.

    frame : Columns row, readout, origin, value, std, low, high (may be NaN), n.
    """
    series = frame["readout"].where(frame["readout"].isin(list(READOUTS)), "other")
    marks = frame.assign(series=series, words=[readout_words(readout) for readout in frame["readout"]])
    others = marks.loc[series == "other", "words"].unique()
    # One is named in the legend; several have no room there.
    other = {"words": others[0]} if len(others) == 1 else {}
    named = {key: dataclasses.replace(one, **other) for key, one in OTHER.items()}
    return dot_rows(marks, names, READOUTS | named, theme=theme, axis=axis, usual=(), level=level, unit="splits")


def contrast_dots(frame: pd.DataFrame, names: Mapping[str, str], *, theme: Theme, measure: str) -> Plot:
    """What the joint readout gains over either block alone, one line a reader.

    frame : Columns row, reference_readout (dc, ac), origin, difference, low, high, p_value, p_holm.
    """
    marks = frame.assign(
        series=frame["reference_readout"],
        p_text=[corrected_words(*p) for p in tables.rows(frame, "p_value", "p_holm")],
        p_raw=[p_words(p) for p in frame["p_value"]],
        clear=frame["p_holm"] < 0.05,
    )
    return difference_rows(marks, names, LESS, theme=theme, axis=f"Difference in {measure}", compared="both components")


def readout_words(readout: str) -> str:
    """A readout in words, with the block or distance that sets it apart."""
    for ending, words in ENDINGS.items():
        if readout.endswith(ending):
            return f"{readout_words(readout.removesuffix(ending))}{words}"
    return READOUTS[readout].words if readout in READOUTS else FORMS.get(readout, readout)


def leading(frame: pd.DataFrame) -> str:
    """The score that pairs are ordered by: one of 'ac', 'match', 'distance'; the drift leads (paper: components)."""
    return next((name for name in ("ac", "match", "distance") if name in frame and frame[name].notna().any()), "")


def passed_by(frame: pd.DataFrame) -> pd.Series:
    """Share of the pairs of the other kind that a reader orders the wrong way round with each pair.

    0 for a pair beyond all of them, 1 for one that all pass; ties count half. By column decision, or the leading score.
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
            own = sign * score[related == kind].to_numpy(dtype=float)[:, None]
            shares[related == kind] = (others > own).mean(axis=1) + 0.5 * (others == own).mean(axis=1)
    return shares


def pair_scatter(
    frame: pd.DataFrame, outside: pd.DataFrame, *, theme: Theme, model: str = "", chosen: tuple[str, str] = ("", "")
) -> go.Figure:
    """Pairs in the two scores of READER, with the decision line, or dotted one where no decisions are stored.

    frame : Columns model_a, model_b, related, dc, ac, decision (positive for related, NaN without one).
    outside : The selected pair where frame is without it (columns dc, ac), else no row.
    model : Whose pairs are ringed. chosen : The two models of the selected pair, in any order.
    """
    (low_x, high_x), reach_y = (plots.reach([*frame[name], *outside[name]]) for name in BLOCKS)
    decided_line = decision_line(frame)
    line = decided_line if decided_line is not None else orientation_line(frame)
    data = []
    if line is not None:
        a, b, c = line
        across = np.linspace(low_x, high_x, 200)
        if decided_line is not None:
            name, style = "decision line", plots.pen(TOKENS[theme]["ink"], 1.5, "dash")
        else:
            name, style = ORIENTATION, plots.pen(TOKENS[theme]["edge"], 1.25, "dot")
        data.append(plots.scatter(name, across.tolist(), (-(a * across + c) / b).tolist(), mode="lines", line=style))
    data += _points(frame, frame["dc"], frame["ac"], theme, model, chosen)
    data += _ring(outside["dc"], outside["ac"], theme)
    style = {"tickformat": ".2~f", **plots.STILL}
    x = plots.titled("How alike the mean states are (cosine, DC)", range=[low_x, high_x], **style)
    y = plots.titled("How alike the drift is (cosine, first AC)", range=reach_y, **style)
    return _pairs(theme, data, x, y)


def score_stacks(
    frame: pd.DataFrame, outside: pd.DataFrame, *, theme: Theme, title: str, model: str = "",
    chosen: tuple[str, str] = ("", ""),
) -> go.Figure:  # fmt: skip
    """A histogram of one score in which related pairs stand up and unrelated ones hang down.

    Heights are shares of each kind: a strict split tests far more unrelated pairs.
    frame : Columns model_a, model_b, related, score, decision. outside : As in :func:`pair_scatter` (column score).
    """
    token = TOKENS[theme]
    low, high = plots.reach([*frame["score"], *outside["score"]])
    step = (high - low) / HISTOGRAM_BINS
    bins = ((frame["score"] - low) // step).astype(int)
    related = frame["related"].astype(bool)
    size = related.map({kind: (1.0 if kind else -1.0) * max(int((related == kind).sum()), 1) for kind in (True, False)})
    heights = (frame.groupby([bins, related]).cumcount() + 0.5) / size
    most = max(float(heights.abs().max()), 0.05)
    shapes = [plots.level(0, token["edge"])]
    turn = turning_point(frame)
    if turn is not None and low < turn < high:
        shapes.append(plots.upright(turn, token["ink"], 1.5, "dash", xref="x"))
    ticks = [share for share in (*(-share for share in SHARES[::-1]), 0, *SHARES) if abs(share) <= most]
    percent = [f"{100 * abs(share):.0f} %" for share in ticks]
    x = plots.titled(title, range=[low, high], tickformat=".2~f", showgrid=False, **plots.STILL)
    bounds = [-1.1 * most, 1.1 * most]
    y = plots.titled("Share of the pairs of each kind", range=bounds, tickvals=ticks, ticktext=percent, **plots.STILL)
    data = _points(frame, low + (bins + 0.5) * step, heights, theme, model, chosen)
    data += _ring(outside["score"], outside["score"] * 0, theme)
    return _pairs(theme, data, x, y, shapes=shapes)


def decision_line(frame: pd.DataFrame) -> tuple[float, float, float] | None:
    """Plane through the pairs' mean decisions: a, b, c of ``a * dc + b * ac + c``; None without enough of them."""
    rows = frame[["dc", "ac", "decision"]].dropna()
    if len(rows) < FEWEST_DECISIONS:
        return None
    return _plane(rows, rows["decision"].to_numpy(dtype=float), np.ones(len(rows)))


def reads_related(frame: pd.DataFrame, pair: pd.Series) -> bool | None:
    """Whether the mean decisions of other pairs, read as linear in their scores, are above 0 at the scores of a pair.

    None without enough decisions. The border is the decision line of :func:`pair_scatter` or :func:`score_stacks`.
    """
    name = leading(frame)
    scores = list(BLOCKS) if name == "ac" and frame["dc"].notna().any() else [name]
    rows = frame.dropna(subset=[*scores, "decision"]) if name else frame[:0]
    if len(rows) < FEWEST_DECISIONS or pair[scores].isna().any():
        return None
    terms = np.column_stack([rows[scores].to_numpy(dtype=float), np.ones(len(rows))])
    weights = np.linalg.lstsq(terms, rows["decision"].to_numpy(dtype=float), rcond=None)[0]
    return bool(pair[scores].to_numpy(dtype=float) @ weights[:-1] + weights[-1] > 0)


def orientation_line(frame: pd.DataFrame) -> tuple[float, float, float] | None:
    """Least-squares line between the two kinds of pairs, as :func:`decision_line`; None without both.

    For readers whose decisions are not stored. It shows where the kinds part, and nothing of how well a reader decides.
    """
    rows = frame[["dc", "ac", "related"]].dropna()
    kinds = rows["related"].astype(bool)
    if len(rows) < FEWEST_DECISIONS or kinds.nunique() < 2:
        return None
    # Either kind weighs the same, whatever its number of pairs.
    weight = kinds.map({kind: 0.5 / max(int((kinds == kind).sum()), 1) for kind in (True, False)})
    return _plane(rows, np.where(kinds, 1.0, -1.0), np.sqrt(weight.to_numpy(float)))


def _plane(rows: pd.DataFrame, target: np.ndarray, weight: np.ndarray) -> tuple[float, float, float] | None:
    """Weighted least squares of a target on dc and ac; None where ac does not count."""
    terms = np.column_stack([rows["dc"], rows["ac"], np.ones(len(rows))]) * weight[:, None]
    a, b, c = np.linalg.lstsq(terms, target * weight, rcond=None)[0]
    return (float(a), float(b), float(c)) if abs(b) > 1e-9 else None


def turning_point(frame: pd.DataFrame) -> float | None:
    """Score at which the mean decisions (columns score, decision) turn; None without enough of them."""
    rows = frame[["score", "decision"]].dropna()
    if len(rows) < FEWEST_DECISIONS or rows["score"].nunique() < 2:
        return None
    slope, offset = np.polyfit(rows["score"].to_numpy(dtype=float), rows["decision"].to_numpy(dtype=float), 1)
    return float(-offset / slope) if abs(slope) > 1e-9 else None


def _points(
    frame: pd.DataFrame, x: pd.Series, y: pd.Series, theme: Theme, model: str, chosen: tuple[str, str]
) -> list[Plot]:
    """Unrelated pairs behind related ones, rings around a model's pairs, a halo around the selected one."""
    token = TOKENS[theme]
    data = []
    for related in (False, True):
        here = frame["related"].astype(bool) == related
        ink = token["accent"] if related else READER_COLOURS[theme][1]
        rim, width = (token["ground"], 0.75) if related else (ink, 1.25)
        hover = [
            f"{plots.heading(row.model_a)}{plots.heading(row.model_b)}{TRUTH_WORDS[related]}"
            f"{decided(row.decision, related)}"
            for row in tables.rows(frame[here])
        ]
        # Lists, not arrays: NumPy customdata does not come back in clickData.
        models = [[a, b] for a, b in tables.rows(frame.loc[here, ["model_a", "model_b"]])]
        size, opacity = (10, 0.95) if related else (7, 0.5)  # the many recede behind the few
        look = plots.outlined(size, ink, rim, width, symbol=TRUTH_SYMBOLS[related], opacity=opacity)
        name = f"{TRUTH_WORDS[related]} ({int(here.sum())})"
        data.append(plots.scatter(name, x[here], y[here], hover, marker=look, customdata=models))
    rings = (frame["model_a"] == model) | (frame["model_b"] == model)
    halo = [{a, b} == set(chosen) for a, b in zip(frame["model_a"], frame["model_b"], strict=True)]
    for name, ringed, size, ink in (
        ("pairs of the model", rings, 17, token["soft"]),
        ("selected", np.array(halo, dtype=bool), 22, token["ink"]),
    ):
        look = {"symbol": "circle-open", "size": size, "color": ink, "line": {"width": 2}}
        data.append(plots.scatter(name, x[ringed], y[ringed], marker=look, showlegend=False))
    return data


def _ring(x: pd.Series, y: pd.Series, theme: Theme) -> list[Plot]:
    """The selected pair where it is none of the split's."""
    look = {"symbol": "circle-open", "size": 16, "color": TOKENS[theme]["ink"], "line": {"width": 2}}
    name = "chosen pair, not in this split"
    return [plots.scatter(name, x, y, [name], marker=look)] if len(x) else []


def _pairs(theme: Theme, data: Sequence[Plot], x: Plot, y: Plot, **more: object) -> go.Figure:
    legend = {**plots.ROW_LEGEND, "y": 1.02, "yanchor": "bottom", "itemdoubleclick": False}
    return plots.figure(theme, (64, 24, 44, 52), data, x, y, showlegend=True, legend=legend, dragmode=False, **more)


def decided(decision: float, related: bool) -> str:
    """A decision in words, and whether it is right; '' without a decision."""
    if pd.isna(decision):
        return ""
    says = decision > 0
    return f"<br>read as {TRUTH_WORDS[bool(says)]}{'' if bool(says) == related else ', wrongly'}"
