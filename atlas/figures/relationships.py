"""How well readers tell related models, and what each block adds (paper: transfer to unseen models)."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from atlas.figures.dots import Level, Series, difference_rows, dot_rows
from atlas.figures.neighbourhoods import p_text
from atlas.theme import Plot, Theme

READOUTS: Mapping[str, Series] = {
    "dc-ac": Series("both (DC–AC)", "circle", 1, 0),
    "ac": Series("drift (first AC)", "diamond", 0, 1),
    "dc": Series("mean (DC)", "square", -1, 2),
    "match": Series("matching text", "star", 0, 3),
    "distance": Series("embedding distance", "triangle-up", 0, 5),
}
"""Readouts that figures show; tables hold the others."""
USUAL = ("dc-ac", "match", "distance")
"""The readout of a reader that its row is called after."""
BLOCKS = ("dc", "ac")
"""Readouts of one half of a fingerprint alone."""
FORMS = {
    "concat": "both, side by side",
    "grp128": "drift, 128 projections",
    "grp128-dc": "mean, 128 projections",
    "grp128-dc-ac": "both, 128 projections",
    "distance-rbf": "embedding distance, curved",
}
"""Readouts that tables alone hold."""
ENDINGS = {"@best": ", best block", "@last": ", last block", "-euclidean": ", Euclidean"}
LESS: Mapping[str, Series] = {
    "ac": Series("less drift (first AC)", "diamond", 1, 1),
    "dc": Series("less mean (DC)", "square", -1, 2),
}


def readout_dots(
    frame: pd.DataFrame, names: Mapping[str, str], *, theme: Theme, axis: str, chance: float | None
) -> Plot:
    """One line a reader, one mark a readout with its interval; published marks are hollow.

    frame : Columns row, readout, origin, value, std, low, high (NaN without an interval), n.
    names : From the top down.
    axis : Title of the horizontal axis.
    chance : What a coin gets.
    """
    level = None if chance is None else Level(chance, "a coin")
    marks = frame.rename(columns={"readout": "series"})
    return dot_rows(marks, names, READOUTS, theme=theme, axis=axis, usual=USUAL, level=level, unit="splits")


def contrast_dots(frame: pd.DataFrame, names: Mapping[str, str], *, theme: Theme, measure: str) -> Plot:
    """What the joint readout gains over either block alone, one line a reader; published marks are hollow.

    frame : Columns row, reference_readout (dc, ac), origin, difference, low, high, p_value, p_holm.
    measure : What the difference is of, in words.
    """
    marks = frame.assign(
        series=frame["reference_readout"],
        p_text=[f"p {p_text(p)}" for p in frame["p_holm"]],
        p_raw=[p_text(p) for p in frame["p_value"]],
        clear=frame["p_holm"] < 0.05,
    )
    return difference_rows(marks, names, LESS, theme=theme, axis=f"Difference in {measure}", told="both blocks")


def readout_words(readout: str) -> str:
    """A readout in words, with the block or distance that sets it apart."""
    for ending, words in ENDINGS.items():
        if readout.endswith(ending):
            return f"{readout_words(readout.removesuffix(ending))}{words}"
    return READOUTS[readout].words if readout in READOUTS else FORMS.get(readout, readout)
