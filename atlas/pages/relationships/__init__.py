"""Relationships: which reader tells a derived model from a stranger, and what every reader says of a pair."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from dash import ALL, Dash, Input, Output, State, ctx, html, no_update
from dash.development.base_component import Component

from atlas import drawing, shell, tables
from atlas.data import QueryCache
from atlas.drawing import FigureView
from atlas.figures import plots, relationships
from atlas.figures.dots import dots_height
from atlas.figures.plots import rate_text
from atlas.figures.relationships import READOUTS
from atlas.pages import pieces
from atlas.pages.relationships import pairs
from atlas.state import MEASURES, PROTOCOLS, View
from backend.protocol import READER_PAPER
from backend.store import page_queries as store

QUESTIONS = {
    "readouts": "Which reader tells relatives from strangers?",
    "rates": "What are the numbers?",
    "kinship": "How far apart do related and unrelated pairs lie?",
    "verdicts": "What does every reader say of one pair?",
    "mistaken": "Which pairs mislead it most?",
    "contrasts": "Do both halves of the fingerprint help?",
    "tested": "Which differences are more than luck?",
}
PROTOCOL_WORDS = {
    "pair": "Test pairs are new, but either model may be known from another pair.",
    "model": "Both models of a test pair are new; other children of their parents may be known.",
    "family": "The test pairs' whole families are new: nothing of them was seen in training.",
}
MEASURE_HELP = {
    "accuracy": "share of pairs told right",
    "precision": "share of pairs called related that are",
    "recall": "share of related pairs that are found",
    "f1": "harmonic mean of precision and recall",
    "auc": "how often a related pair scores above an unrelated one",
}
READOUT_HELP = "A straight line between related and unrelated pairs, drawn from the training pairs' scores"
FAMILIES_HELP = "A parent model and the models that were derived from it by further training"
DERIVED_HELP = "A parent and a model made from it by further training; unrelated pairs have two parents"
COINS = {"accuracy": 0.5, "precision": 0.5, "auc": 0.5}
"""What a coin gets where as many test pairs are related as not."""
COMPARED = ("accuracy", "f1", "auc")
"""Measures that were tested in pairs."""


@drawing.page
def layout(cache: QueryCache, view: View) -> Component:
    """The page for a query string."""

    def section(name: str, drawn: FigureView, height: int, **more: Any) -> Component:
        return drawing.section(name, QUESTIONS[name], drawn, height, origin="", **more)

    def grid(name: str, content: tuple[Component, shell.Children], height: int | None, **more: Any) -> Component:
        return shell.grid_section(name, QUESTIONS[name], *content, origin="", height=height, **more)

    choices = [
        shell.segmented("protocol", PROTOCOLS, view.protocol, "Held out"),
        shell.segmented("measure", MEASURES, view.measure, "Metric"),
    ]
    controls = html.Div(choices, className="controls")
    protocol = html.P(_protocol_sentence(cache, view), id="protocol-told", className="sentence")
    reader = shell.labelled("Reader of pairs", "relates", pairs.reader_field(cache, view))
    models = [
        shell.labelled(word, place, pairs.model_field(cache, place, value, f"{word} model"))
        for word, place, value in (("First", "left", view.left), ("Second", "right", view.right))
    ]
    return html.Div(
        [
            drawing.remembered(PAGE.name),
            drawing.head("Relationships", "related-answer", _answer(cache, view), controls, protocol),
            section("readouts", readouts(cache, view), readouts_height(cache, view)),
            section("kinship", pairs.kinship(cache, view), 460, controls=[reader]),
            grid("verdicts", pairs.verdicts(cache, view), None, controls=models),
            grid("mistaken", pairs.mistaken(cache, view), 400),
            section("contrasts", _contrasts(cache, view), _contrasts_height(cache, view)),
            grid("tested", _tested(cache, view), 400),
            grid("rates", _rates(cache, view), 480),
        ],
        className="column",
    )


def register(app: Dash) -> None:
    """Callbacks of the page."""
    protocol, measure = Input("protocol", "value"), Input("measure", "value")
    relates, left, right = Input("relates", "value"), Input("left", "value"), Input("right", "value")
    drawing.remember(app, PAGE.name, protocol=protocol, measure=measure, relates=relates, left=left, right=right)
    drawing.follow(
        app,
        drawing.place("related-answer", _answer),
        drawing.place("protocol-told", _protocol_sentence),
        drawing.figure("readouts", readouts),
        pieces.sized("readouts", readouts_height),
        drawing.figure("contrasts", _contrasts),
        pieces.sized("contrasts", _contrasts_height),
        drawing.grid("tested", _tested),
        protocol=protocol,
        measure=measure,
    )
    drawing.follow(app, drawing.grid("rates", _rates), protocol=protocol)
    drawing.follow(app, drawing.grid("mistaken", pairs.mistaken), protocol=protocol, relates=relates)
    drawing.follow(
        app,
        drawing.figure("kinship", pairs.kinship),
        drawing.grid("verdicts", pairs.verdicts),
        protocol=protocol,
        relates=relates,
        left=left,
        right=right,
    )

    # A point, a row, a partner in the list: all of them choose the pair.
    @app.callback(
        Output("left", "value"),
        Output("right", "value"),
        Input("kinship-graph", "clickData"),
        Input("mistaken-grid", "selectedRows", allow_optional=True),
        Input({"type": "partner", "model": ALL}, "n_clicks"),
        State("left", "value"),
        prevent_initial_call=True,
    )
    def chosen(
        point: dict[str, Any] | None, row: list[dict[str, Any]] | None, clicks: list[int | None], left: str | None
    ) -> Any:
        trigger = ctx.triggered_id
        points = (point or {}).get("points") or []
        if trigger == "kinship-graph" and points and points[0].get("customdata"):
            return tuple(points[0]["customdata"])
        if trigger == "mistaken-grid" and row:
            return row[0]["model_a"], row[0]["model_b"]
        if isinstance(trigger, dict) and any(clicks):
            return left, trigger["model"]
        return no_update, no_update


def summaries(cache: QueryCache, view: View) -> pd.DataFrame:
    """Readouts of the figure under the chosen protocol and metric, one row a reader and readout."""
    frame = cache.ask(store.relationship_summaries, view.protocol)
    frame = frame[(frame["metric"] == view.measure) & frame["readout"].isin(list(READOUTS))]
    readers = cache.ask(store.relationship_readers).set_index("reader")
    method, reads = frame["reader"].map(readers["method"]), frame["reader"].map(readers["view"])
    aside = (frame["origin"] == "published") & (method == READER_PAPER) & (reads == "r")
    return frame[~aside].assign(row=[pairs.row_of(reader) for reader in frame.loc[~aside, "reader"]])


def best(cache: QueryCache, view: View, origin: str) -> pd.Series | None:
    """The row of the best readout of an origin under the chosen protocol and metric, drawn or not; None without one."""
    frame = cache.ask(store.relationship_summaries, view.protocol)
    rows = frame[(frame["metric"] == view.measure) & (frame["origin"] == origin)]
    return None if rows.empty else rows.nlargest(1, "value").iloc[0]


def called(row: pd.Series, names: Mapping[str, str]) -> str:
    """A reader by name, with the readout where it is not the usual one: 'Tiny-1M by drift (first AC) alone'."""
    name, readout = names[row["reader"]], row["readout"]
    if readout in relationships.USUAL:
        return name
    return f"{name} by {relationships.readout_words(readout)}{' alone' if readout in relationships.BLOCKS else ''}"


def _answer(cache: QueryCache, view: View) -> list[Component | str]:
    measured, published = (best(cache, view, origin) for origin in shell.ORIGINS)
    if measured is None and published is None:
        return ["No reader has been asked yet which of two models is derived from the other."]
    names = pairs.reader_names(cache)
    share = view.measure == "accuracy"

    def rate(row: pd.Series) -> list[Component | str]:
        if share:
            return [html.Strong(f"{100 * row['value']:.1f}\u00a0%")]
        return [f"{MEASURES[view.measure]} ", html.Strong(rate_text(row["value"]))]

    answer: list[Component | str] = []
    if measured is not None:
        verb, end = (
            ("tells", " of the pairs right, the best measured here. ") if share else ("reaches", ", the best here. ")
        )
        answer += [f"{called(measured, names)} {verb} ", *rate(measured), end]
    if published is not None:
        best_published = [f"Best published: {called(published, names)}, ", *rate(published), ". "]
        answer.append(html.Span(best_published, className="soft"))
    if view.measure in COINS:
        answer.append(html.Span("A coin gets 50 %." if share else "A coin gets .500.", className="soft"))
    return answer


def _protocol_sentence(cache: QueryCache, view: View) -> list[Component | str]:
    models = cache.ask(store.relationship_models)
    return [
        f"{len(models)} small models of {models['parent_family'].nunique()} ",
        shell.term("parent families", FAMILIES_HELP),
        ": is the second model of a pair ",
        shell.term("derived", DERIVED_HELP),
        f" from the first? {PROTOCOL_WORDS[view.protocol]} {MEASURES[view.measure]}: {MEASURE_HELP[view.measure]}.",
    ]


def _lines(cache: QueryCache, frame: pd.DataFrame) -> dict[str, str]:
    """Names of the lines, best first; lines with something measured here come before published ones."""
    names = pairs.reader_names(cache)
    usual = frame.assign(usual=frame["readout"].isin(relationships.USUAL))
    order = (
        usual.sort_values(["usual", "value"], ascending=False, kind="stable")
        .groupby("row", sort=False)
        .agg(value=("value", "first"), here=("origin", lambda origins: bool((origins == "measured").any())))
        .sort_values(["here", "value"], ascending=False, kind="stable")
    )
    by_row = {pairs.row_of(reader): name for reader, name in list(names.items())[::-1]}
    return {str(row): by_row[str(row)] for row in order.index}


def readouts_height(cache: QueryCache, view: View) -> int:
    """Height in pixels of :func:`readouts`."""
    return dots_height(summaries(cache, view)["row"].nunique())


def readouts(cache: QueryCache, view: View) -> FigureView:
    """Readers and their readouts under the chosen protocol and metric."""
    frame = summaries(cache, view)
    if frame.empty:
        return pairs.unmeasured(view, f"{MEASURES[view.measure].lower()} of relationships")
    names = _lines(cache, frame)
    axis = f"{MEASURES[view.measure]}: {MEASURE_HELP[view.measure]}"
    figure = relationships.readout_dots(frame, names, theme=view.theme, axis=axis, chance=COINS.get(view.measure))
    caps = (
        "Thin bars with caps: one standard deviation over the splits, because the release holds no interval for these."
    )
    thin = f" {caps}" if frame["low"].isna().any() else ""
    here = sorted(set(frame.loc[frame["origin"] == "measured", "row"]))
    sentence: shell.Children = [
        "A linear ",
        shell.term("readout", READOUT_HELP),
        f" of each reader's scores, mean over {int(frame['n'].max())} splits; thick bars are 95 % bootstrap intervals "
        f"over the splits.{thin} Filled: measured here; hollow: published. n = {len(names)} readers, {len(here)} of "
        "them measured here.",
    ]
    return FigureView(figure, sentence)


def _tests(cache: QueryCache, view: View) -> pd.DataFrame:
    frame = cache.ask(store.relationship_tests, view.protocol)
    return frame[frame["measure"] == _compared(view)]


def _compared(view: View) -> str:
    """The chosen metric, or accuracy where that one was not tested."""
    return view.measure if view.measure in COMPARED else "accuracy"


def _contrast_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    frame = _tests(cache, view)
    own = frame[(frame["subject"] == frame["reference"]) & (frame["subject_readout"] == "dc-ac")]
    own = own[own["hypotheses"].str.contains("/components/") & own["reference_readout"].isin(["dc", "ac"])]
    return own.assign(row=own["subject"]).reset_index(drop=True)


def _contrasts_height(cache: QueryCache, view: View) -> int:
    return dots_height(_contrast_rows(cache, view)["row"].nunique())


def _untested(view: View, what: str) -> FigureView:
    """What stands for tests where there are none; the pair split has none by design."""
    if view.protocol != "pair":
        return pairs.unmeasured(view, f"{what} yet")
    ways = [
        (f"Hold out {words.lower()}", f"{PAGE.path}?{_with(view, protocol)}")
        for protocol, words in PROTOCOLS.items()
        if protocol != "pair"
    ]
    empty = shell.empty(f"The pair split has no {what}", "Choose a split that holds out more", ways)
    return FigureView(drawing.blank(view.theme), "Differences are tested where models or families are held out.", empty)


def _with(view: View, protocol: str) -> str:
    return View(
        reader=view.reader, roster=view.roster, domain=view.domain, theme=view.theme, protocol=protocol,
        measure=view.measure, relates=view.relates,
    ).query()  # fmt: skip


def _contrasts(cache: QueryCache, view: View) -> FigureView:
    frame = _contrast_rows(cache, view)
    if frame.empty:
        return _untested(view, "tested differences of the blocks")
    names = pairs.reader_names(cache)
    lines = {row: names[row] for row in dict.fromkeys(frame.sort_values("difference", ascending=False)["row"])}
    measure = MEASURES[_compared(view)].lower()
    figure = relationships.contrast_dots(frame, lines, theme=view.theme, measure=measure)
    sentence: shell.Children = [
        "What the readout of ",
        shell.term("both blocks", "DC is the mean of the proxy's states over a response, the first AC how they drift"),
        " gains over one of them alone, right of zero for a gain; bars are 95 % bootstrap intervals over the splits, p "
        "is ",
        shell.term("Holm-corrected", "Made larger to allow for the number of differences that were tested together"),
        f". n = {int(frame['n'].max())} splits; they share pairs, so a p value tells how sensitive a difference is to "
        "the split.",
    ]
    return FigureView(figure, sentence)


def _tested_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    frame = _tests(cache, view)
    names = pairs.reader_names(cache)
    columns = ["subject_readout", "reference_readout", "measure", "difference", "low", "high", "p_value", "p_holm"]
    columns.append("origin")
    rows = frame[columns].assign(
        subject=[names.get(reader, reader) for reader in frame["subject"]],
        reference=[names.get(reader, reader) for reader in frame["reference"]],
        corrected_with=frame["hypotheses"].str.extract(r"relationships/([^/]+)/", expand=False),
        splits=frame["n"],
    )
    order = ["subject", "subject_readout", "reference", *columns[1:-1], "corrected_with", "splits", "origin"]
    return rows[order].reset_index(drop=True)


def _tested(cache: QueryCache, view: View) -> tuple[Component, shell.Children]:
    frame = _tested_rows(cache, view)
    if frame.empty:
        return drawing.absent(_untested(view, "paired tests"))
    rows = frame.assign(
        subject_words=[relationships.readout_words(readout) for readout in frame["subject_readout"]],
        reference_words=[relationships.readout_words(readout) for readout in frame["reference_readout"]],
        interval=[
            f"{plots.signed(low)} to {plots.signed(high)}"
            for low, high in zip(frame["low"], frame["high"], strict=True)
        ],
    )
    columns = [
        tables.words("subject", "Reader", 150, 1),
        tables.words("subject_words", "Readout", 110),
        tables.words("reference", "less reader", 150, 1),
        tables.words("reference_words", "Readout", 110),
        tables.number("difference", "Difference", "number", 90),
        tables.words("interval", "95 % interval", 128, floatingFilter=False),
        tables.number("p_holm", "Holm p", "p", 78),
        tables.words("corrected_with", "Corrected with", 110),
        tables.words("origin", "Origin", 92),
    ]
    real = int((frame["p_holm"] < 0.05).sum())
    measure = MEASURES[_compared(view)].lower()
    sentence = (
        f"Differences in {measure}, paired by split; p by sign flips, Holm-corrected over both strict protocols and "
        f"three metrics of its set. {real} of {len(frame)} stay below .05. n = {int(frame['splits'].max())} splits."
    )
    return tables.grid("tested-grid", rows, columns), sentence


def _rate_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Every readout of every reader under the protocol, its five metrics in a row."""
    frame = cache.ask(store.relationship_summaries, view.protocol)
    names = pairs.reader_names(cache)
    wide = frame.pivot(
        index=["reader", "origin", "readout", "n"], columns="metric", values=["value", "std", "low", "high"]
    )
    wide.columns = [metric if kind == "value" else f"{metric}_{kind}" for kind, metric in map(tuple, wide.columns)]
    order = [name for metric in MEASURES for name in (metric, *(f"{metric}_{kind}" for kind in ("std", "low", "high")))]
    wide = wide.reindex(columns=order).reset_index().rename(columns={"n": "splits"})
    wide.insert(0, "name", [names[reader] for reader in wide["reader"]])
    return wide.sort_values("accuracy", ascending=False, kind="stable").reset_index(drop=True)


def _rates(cache: QueryCache, view: View) -> tuple[Component, shell.Children]:
    frame = _rate_rows(cache, view)
    if frame.empty:
        return drawing.absent(pairs.unmeasured(view, "relationship measured yet"))
    frame = frame.assign(words=[relationships.readout_words(readout) for readout in frame["readout"]])
    columns = [
        tables.words("name", "Reader", 150, 1),
        tables.words("words", "Readout", 150, 1),
        tables.words("origin", "Origin", 96),
        tables.number("accuracy", "Accuracy", "rate", 84),
        tables.number("accuracy_std", "± Std", "rate", 66),
        tables.number("accuracy_low", "Low", "rate", 62),
        tables.number("accuracy_high", "High", "rate", 62),
        tables.number("precision", "Precision", "rate", 84),
        tables.number("recall", "Recall", "rate", 70),
        tables.number("f1", "F1", "rate", 60),
        tables.at_scrollbar(tables.number("auc", "AUC", "rate", 60)),
    ]
    sentence = (
        "Every readout of every reader, mean over the splits; low and high are the 95 % interval of accuracy. The CSV "
        f"has spread and interval of every metric. n = {len(frame)} readouts."
    )
    return tables.grid("rates-grid", frame, columns), sentence


def _tests_key(cache: QueryCache, view: View) -> dict[str, object]:
    frame = cache.ask(store.relationship_tests, view.protocol)
    return {"method": frame["method"].iloc[0] if len(frame) else ""}


def metrics_builds(_cache: QueryCache, view: View) -> tuple[str, dict[str, object]]:
    """Rows behind the readouts."""
    return "relationship_metrics", {"protocol": view.protocol}


PAGE = shell.Page(
    name="relationships",
    path="/relationships",
    title="Relationships",
    icon="relationships",
    layout=layout,
    register=register,
    figures={
        "readouts": shell.FigureMeta(pieces.without(summaries, "build_id", "row"), metrics_builds, pairs.shown_reader),
        "kinship": shell.FigureMeta(pairs.shown_rows, pairs.scores_builds),
        "verdicts": shell.FigureMeta(pairs.pair_rows, pairs.pair_builds),
        "mistaken": shell.FigureMeta(pairs.mistaken_rows, pairs.scores_builds),
        "contrasts": pieces.meta(pieces.without(_contrast_rows, "build_id", "row"), "comparisons", _tests_key),
        "tested": pieces.meta(_tested_rows, "comparisons", _tests_key),
        "rates": shell.FigureMeta(_rate_rows, metrics_builds),
    },
)
