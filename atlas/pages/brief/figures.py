"""The figures of the brief: each drawn for paper, with a caption that stands without the page around it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pandas as pd
import plotly.graph_objects as go
from dash import html
from dash.development.base_component import Component

from atlas import shell
from atlas.data import DOMAIN_NAMES, QueryCache
from atlas.drawing import traces
from atlas.figures import attribution, dots, map, neighbourhoods
from atlas.figures.plots import Line
from atlas.pages import intervals, pieces, relationships
from atlas.pages.compare import readers as compared
from atlas.pages.compare import readouts
from atlas.pages.pieces import Builds, Rows
from atlas.pages.relationships import pairs as related_pairs
from atlas.state import View
from atlas.theme import TOKENS, Plot
from backend.protocol import READER_PAPER
from backend.store import page_queries, queries

WIDTH = 672  # width of a figure in pixels: an A4 page less its margins
OTHERS = 3
"""Readers next to the chosen one."""


@dataclasses.dataclass(frozen=True)
class PrintFigure:
    """A drawn figure of the brief."""

    figure: go.Figure | Plot
    height: int  # in pixels
    caption: str  # what was measured, on how much
    origin: str  # 'measured', 'published', or '' where both stand next to each other
    below: Component | None = None  # a key that the figure does not hold itself


@dataclasses.dataclass(frozen=True)
class Kind:
    """A figure that a brief can hold: its question, its page, how it is drawn, its rows and their builds."""

    question: str
    page: str
    draw: Callable[[QueryCache, View], PrintFigure | None]
    rows: Rows
    made: Builds
    also: Callable[[QueryCache, View], tuple[str, dict[str, object]] | None] = lambda _cache, _view: None

    def meta(self) -> shell.FigureMeta:
        """What the figure shows besides its drawing."""
        return shell.FigureMeta(self.rows, self.made, also=self.also)


def words(cache: QueryCache, view: View) -> str:
    """Roster and domain in words: '165 sources on Agent500'."""
    count = len(cache.ask(queries.sources, view.roster))
    return f"{count} sources on {DOMAIN_NAMES.get(view.domain, view.domain)}"


def _points(cache: QueryCache, view: View) -> pd.DataFrame:
    return cache.ask(queries.projection, cache.map_reader(view), view.roster, view.domain, "tsne", 2)


def _map(cache: QueryCache, view: View) -> PrintFigure | None:
    points, reader = _points(cache, view), cache.map_reader(view)
    if points.empty:
        return None
    none = pd.DataFrame(columns=["source", "neighbor", "rank"])
    marks = cache.marks()
    figure = go.Figure(map.map_figure(points, none, marks, theme=view.theme, dimensions=2))
    quality = cache.ask(queries.projection_quality, reader, view.roster, view.domain)
    flat = quality[(quality["method"] == "tsne") & (quality["dimensions"] == 2)].set_index("metric")["value"]
    trust = flat.get("trustworthiness_10")
    near = "" if trust is None else f" Trustworthiness of the ten nearest: {trust:.2f}."
    counts = points["family"].value_counts()
    entries = [
        pieces.marked(shell.symbol(marks[str(family)], view.theme), f"{family} {count}")
        for family, count in counts.items()
    ]
    key = html.Div(entries, className="brief-key")
    caption = (
        f"Every mark is one source, placed so that sources whose answers look alike to {cache.reader_words(reader)} "
        "lie close together (t-SNE of cosine distances). A flat map bends distances; distances between far groups "
        f"mean little.{near} n = {words(cache, view)}; places are computed from all of them and have no interval."
    )
    return PrintFigure(figure, 520, caption, cache.origin(reader), key)


def _curves(cache: QueryCache, view: View) -> pd.DataFrame:
    """Accuracy of the chosen reader and of the best others of its method, against the budget."""
    reader = cache.attribution_reader(view)
    readers = cache.ask(queries.readers)
    named: list[str] = []
    if reader:
        alike = readers["method"].eq(READER_PAPER) & readers["view"].eq(cache.reader_row(reader)["view"])
        named = [name for name in readers["reader"][alike] if name != reader]
    frame = intervals.curves(cache, view, [reader, *named], "accuracy")
    top = frame[(frame["k"] == frame["k"].max()) & (frame["reader"] != reader)]
    best = [reader, *top.sort_values("value", ascending=False, kind="stable")["reader"][:OTHERS]]
    return frame[frame["reader"].isin(best)]


def _budget(cache: QueryCache, view: View) -> PrintFigure | None:
    frame, reader = _curves(cache, view), cache.attribution_reader(view)
    if frame.empty:
        return None
    token = TOKENS[view.theme]
    others = [name for name in dict.fromkeys(frame["reader"]) if name != reader]
    names = cache.short_names([reader, *others])
    lines = [Line(name, names[name], token["edge"], front=False) for name in others]
    lines.append(Line(reader, names[reader], token["accent"]))
    size = len(cache.ask(queries.sources, view.roster))
    curves = frame.assign(line=frame["reader"])
    figure = attribution.budget_curves(
        curves, lines, theme=view.theme, axis="Accuracy", k=view.k, chance=1 / size, unit=True
    )
    own = frame[frame["reader"] == reader]
    grey = " Grey: other proxies; dashed and hollow: published, not measured here." if others else ""
    caption = (
        f"Share of groups of traces whose source is named first among {words(cache, view)}, against the number of "
        f"traces in a group{intervals.note(own)}; dotted: a guess.{grey} n = "
        f"{int(own['n'].max()):,} groups a seed at one trace."
    )
    return PrintFigure(figure, 420, caption, cache.origin(reader))


def _cells(cache: QueryCache, view: View) -> pd.DataFrame:
    return cache.ask(queries.confusion, cache.attribution_reader(view), view.roster, view.k, view.domain)


def _confusion(cache: QueryCache, view: View) -> PrintFigure | None:
    cells = _cells(cache, view)
    if cells.empty:
        return None
    order = attribution.confusion_order(cache.ask(queries.sources, view.roster))
    figure = go.Figure(attribution.confusion_matrix(cells, order, theme=view.theme))
    total, wrong = int(cells["count"].sum()), int(cells.loc[cells["truth"] != cells["predicted"], "count"].sum())
    curve = intervals.curves(cache, view, cache.attribution_reader(view), "accuracy")
    at = curve[curve["k"] == view.k]
    right = f" Right in {100 * at['value'].iloc[0]:.1f} %{intervals.around(at.iloc[0])}." if len(at) else ""
    caption = (
        f"Rows are the true source, columns the answer at {traces(view.k)}, ordered by family and outlined; a perfect "
        f"reader has a full diagonal and nothing else. n = {total:,} groups over three seeds, {wrong:,} of them "
        f"wrong.{right}"
    )
    return PrintFigure(figure, attribution.MATRIX_HEIGHT, caption, cache.origin(cache.attribution_reader(view)))


def _error_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    reader = cache.attribution_reader(view)
    errors, within = (
        cache.ask(queries.metric_curve, reader, view.roster, view.domain, "clean", metric)[["k", "value"]]
        for metric in ("errors", "errors_within_family")
    )
    within = within.rename(columns={"value": "errors_within_family"})
    return errors.rename(columns={"value": "errors"}).merge(within, on="k")


def _siblings(cache: QueryCache, view: View) -> PrintFigure | None:
    frame = _error_rows(cache, view)
    if frame.empty:
        return None
    blind = attribution.blind_share(cache.ask(queries.sources, view.roster)["family"])
    figure = attribution.family_errors(frame, theme=view.theme, expectation=blind, k=view.k)
    caption = (
        "Share of the wrong answers that name a sibling, a source of the same family, at every number of traces; "
        f"errors that fell blindly would give {100 * blind:.0f} %. Where most errors stay in the family, the family "
        f"can be answered for although the source cannot. n = {int(frame['errors'].max()):,} errors a seed at the "
        f"smallest number of traces, {int(frame['errors'].min()):,} at the largest; {words(cache, view)}. No interval "
        "is stored."
    )
    return PrintFigure(figure, 380, caption, cache.origin(cache.attribution_reader(view)))


def _purities(cache: QueryCache, view: View) -> pd.DataFrame:
    return cache.ask(queries.family_purity, view.roster, view.domain, cache.map_reader(view) or "")


def _purity(cache: QueryCache, view: View) -> PrintFigure | None:
    frame, reader = _purities(cache, view), cache.map_reader(view)
    if frame.empty:
        return None
    line = Line(reader, cache.short_name(reader), TOKENS[view.theme]["accent"])
    figure = neighbourhoods.family_purity(frame, [line], theme=view.theme)
    row = frame.iloc[0]
    caption = (
        "Share of the k sources with the most similar answers that are of the same family, with 95 % bootstrap "
        f"intervals, beside what chance gives; nobody told the reader any name. n = {int(row['sources'])} sources of "
        f"{int(row['families'])} families with at least five members."
    )
    return PrintFigure(figure, 380, caption, cache.origin(reader))


def _readouts(cache: QueryCache, view: View) -> PrintFigure | None:
    frame = relationships.summaries(cache, view)
    if frame.empty:
        return None
    caption = (
        "Each reader is asked whether one small model was derived from another, with whole families kept out of its "
        "training: the share of pairs told right, mean over the splits, with 95 % intervals. Filled marks were "
        "measured here, hollow ones are published numbers; the dotted line is a coin. n = "
        f"{frame['row'].nunique()} readers, {int(frame['n'].max())} splits each."
    )
    figure = relationships.readouts(cache, view).figure
    return PrintFigure(figure, relationships.readouts_height(cache, view), caption, "")


def _kinship(cache: QueryCache, view: View) -> PrintFigure | None:
    frame, reader = related_pairs.shown_rows(cache, view), related_pairs.shown_reader(cache, view)
    if frame.empty:
        return None
    name = related_pairs.reader_names(cache)[reader]
    caption = (
        f"Pairs of models in the scores of {name}: filled discs are a parent and a model derived from it, open "
        f"diamonds two models of different parents. n = {len(frame)} pairs, {int(frame['related'].sum())} related; "
        "every mark is one pair, so there is no interval."
    )
    readers = cache.ask(page_queries.relationship_readers).set_index("reader")
    return PrintFigure(related_pairs.kinship(cache, view).figure, 440, caption, str(readers.at[reader, "origin"]))


def _by(reader: Callable[[QueryCache, View], str], table: str, *names: str) -> Builds:
    def builds(cache: QueryCache, view: View) -> tuple[str, dict[str, object]]:
        place = {"roster": view.roster, "domain": view.domain, "benchmark": view.domain, "condition": "clean"}
        return table, {"reader": reader(cache, view), **{name: place[name] for name in names}}

    return builds


def _drawn_readers(rows: Rows) -> Builds:
    return pieces.accuracy_builds(lambda cache, view: rows(cache, view)["reader"])


def _attributed(table: str) -> Builds:
    return _by(QueryCache.attribution_reader, table, "roster", "benchmark", "condition")


def _mapped(table: str) -> Builds:
    return _by(QueryCache.map_reader, table, "roster", "domain")


def _reached(cache: QueryCache, view: View) -> PrintFigure | None:
    drawn = readouts.reached(cache, view)
    if drawn.absent is not None:
        return None
    caption = (
        "Accuracy of the fused readout, a weighted sum of several readers on small proxies, beside the paper's "
        "probe on such a proxy, word n-grams, and the best that the paper prints of READER with far larger "
        "proxies; upright bars are what was aimed for. Bars along the line are 95 % intervals where they are stored. "
        f"Filled marks were measured here, hollow ones are published. n = {words(cache, view)}."
    )
    return PrintFigure(drawn.figure, dots.height_of(drawn.figure), caption, "")


def _with_readers(cache: QueryCache, view: View) -> View:
    """The view with the readers that Compare would set next to the header's."""
    readers = tuple(compared.chosen(cache, dataclasses.replace(view, readers=())))
    return dataclasses.replace(view, readers=readers, metric="accuracy")


def _panels(cache: QueryCache, view: View) -> PrintFigure | None:
    shown = _with_readers(cache, view)
    drawn = compared.panels(cache, shown)
    if drawn.absent is not None:
        return None
    frame = compared.panel_rows(cache, shown)
    caption = (
        "Accuracy against the number of traces, on whole responses, on their first 64 and 32 tokens, and on another "
        "set of prompts (Math100), by readers that were trained on whole responses of Agent500; the fused readout has "
        "seen short ones too. Bands are one standard deviation over the folds. Filled: measured here; dashed and "
        "hollow: published. "
        f"n = {int(frame['n'].max()):,} groups at one trace, {words(cache, view)}."
    )
    return PrintFigure(drawn.figure, 340, caption, "")


def _panel_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    return compared.panel_rows(cache, _with_readers(cache, view))


KINDS: dict[str, Kind] = {
    "map": Kind("Which sources look alike?", "/", _map, _points, _mapped("projections")),
    "budget": Kind(
        "How many traces until the source is clear?", "/attribution", _budget, _curves, _drawn_readers(_curves)
    ),
    "confusion": Kind(
        "Which sources are taken for which?", "/attribution", _confusion, _cells, _attributed("confusion")
    ),
    "siblings": Kind(
        "When it errs, does it stay in the family?",
        "/attribution",
        _siblings,
        _error_rows,
        _attributed("attribution_metrics"),
    ),
    "purity": Kind(
        "Are a source's neighbours its family?", "/neighbourhoods", _purity, _purities, _mapped("family_purity")
    ),
    "readouts": Kind(
        "Which reader tells relatives from strangers?",
        "/relationships",
        _readouts,
        lambda cache, view: relationships.summaries(cache, view).drop(columns=["build_id", "row"]),
        relationships.metrics_builds,
    ),
    "kinship": Kind(
        "How far apart do related and unrelated pairs lie?",
        "/relationships",
        _kinship,
        related_pairs.shown_rows,
        related_pairs.scores_builds,
    ),
}
"""Figures on offer, in the order of the list."""
USUAL = ("map", "budget", "confusion", "readouts")  # figures of a brief that nobody has chosen any for
COMPARED: dict[str, Kind] = {
    "reached": Kind(
        "What do readouts made here reach beside the paper's best?",
        compared.PATH,
        _reached,
        readouts.goal_frame,
        readouts.goals_builds,
        readouts.printed_builds,
    ),
    "shorter": Kind(
        "Does the order hold on other prompts and shorter responses?",
        compared.PATH,
        _panels,
        _panel_rows,
        _drawn_readers(_panel_rows),
    ),
}
"""Figures that set readers next to one another, from the page Compare."""
