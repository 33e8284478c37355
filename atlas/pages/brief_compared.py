"""Figures of the brief that set readers beside one another: what readouts reach, and what shorter responses leave."""

from __future__ import annotations

import dataclasses

import pandas as pd

from atlas.data import QueryCache
from atlas.pages import brief_plates
from atlas.pages.brief_plates import Kind, PrintFigure
from atlas.pages.compare import readers, readouts
from atlas.state import View


def _reached(cache: QueryCache, view: View) -> PrintFigure | None:
    drawn = readouts.reached(cache, view)
    if drawn.absent is not None:
        return None
    caption = (
        "Accuracy of the fused readout, a weighted sum of several readers on small proxies, beside the paper's "
        "probe on such a proxy, word n-grams, and the best that the paper prints of READER with far larger "
        "proxies; upright bars are what was aimed for. Bars along the line are 95 % intervals where they are stored. "
        f"Filled marks were measured here, hollow ones are published. n = {brief_plates.words(cache, view)}."
    )
    return PrintFigure(drawn.figure, readouts.dots.height_of(drawn.figure), caption, "")


def _beside(cache: QueryCache, view: View) -> View:
    """The view with the readers that Compare would set beside the header's."""
    chosen = readers.chosen(cache, dataclasses.replace(view, readers=()))
    return dataclasses.replace(view, readers=tuple(chosen), metric="accuracy")


def _panels(cache: QueryCache, view: View) -> PrintFigure | None:
    shown = _beside(cache, view)
    drawn = readers.panels(cache, shown)
    if drawn.absent is not None:
        return None
    frame = readers.panel_rows(cache, shown)
    caption = (
        "Accuracy against the number of traces, on whole responses, on their first 64 and 32 tokens, and on another "
        "set of prompts (Math100), by readers that were trained on whole responses of Agent500; the fused readout has "
        "seen short ones too. Bands are one standard deviation over the folds. Filled: measured here; dashed and "
        "hollow: published. "
        f"n = {int(frame['n'].max()):,} groups at one trace, {brief_plates.words(cache, view)}."
    )
    return PrintFigure(drawn.figure, 340, caption, "")


def _panel_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    return readers.panel_rows(cache, _beside(cache, view))


KINDS: dict[str, Kind] = {
    **brief_plates.KINDS,
    "reached": Kind(
        "What do readouts made here reach beside the paper's best?",
        readers.PATH,
        _reached,
        readouts.goal_frame,
        readouts.goals_told,
        readouts.printed_told,
    ),
    "shorter": Kind(
        "Does the order hold on other prompts and shorter responses?",
        readers.PATH,
        _panels,
        _panel_rows,
        brief_plates.drawn_readers(_panel_rows),
    ),
}
"""Every figure on offer, in the order of the list."""
