"""Compare: readers side by side, readouts beside the paper's, other prompts and lengths, what is read, its price."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import dash_mantine_components as dmc
import pandas as pd
from dash import Dash, Input, Output, State, ctx, html, no_update
from dash.development.base_component import Component

from atlas import drawing, shell, tables
from atlas.data import QueryCache
from atlas.drawing import FigureView
from atlas.figures.dots import height_of
from atlas.pages import compare_chosen, compare_elsewhere, compare_forms, compare_proxies, compare_readouts
from atlas.state import BUDGETS, METRICS, MOST_READERS, REDUCTIONS, View

QUESTIONS = {
    "curves": "Which reader needs the fewest traces?",
    "ends": "Where do they end, and is the difference real?",
    "reached": "What do readouts made here reach beside the paper's best?",
    "brings": "What does each member of the fused readout bring?",
    "gains": "Is the fused readout better by more than luck?",
    "panels": "Does the order hold on other prompts and shorter responses?",
    "elsewhere": "What is left on other prompts and shorter responses?",
    "every": "How does every reader do, everywhere?",
    "depths": "Where in the proxy does the knowledge sit?",
    "parts": "Is it the mean or the drift that tells sources apart?",
    "views": "Does the proxy need to see the prompt?",
    "forms": "Which summary of a response keeps the source?",
    "variance": "Do fingerprints follow the source or the prompt?",
    "capability": "Do more capable proxies read better?",
    "cost": "How much has to be run to read well?",
    "costs": "What does an answer cost?",
}
CHAPTERS = {
    "side": ("Side by side", "The readers chosen above."),
    "readouts": (
        "Readouts",
        "Other ways to read the same traces with small proxies, trained and tested on the paper's folds.",
    ),
    "conditions": ("Domains and lengths", "Probes trained on whole Agent500 responses, asked about something else."),
    "forms": ("What is read", "Which states of the proxy carry the source, all else alike."),
    "price": ("What it takes", "Capability, size and time."),
}


@drawing.page
def layout(cache: QueryCache, wanted: View) -> Component:
    """The page for a query string."""
    view = cache.opened(wanted)
    view = dataclasses.replace(view, readers=tuple(compare_chosen.chosen(cache, view)))

    def section(name: str, drawn: FigureView, height: int | None = None) -> Component:
        return drawing.section(name, QUESTIONS[name], drawn, height or height_of(drawn.figure), origin="")

    def grid(name: str, shown: tuple[Component, shell.Children], height: int | None) -> Component:
        return shell.grid_section(name, QUESTIONS[name], *shown, origin="", height=height)

    chosen, elsewhere, forms = compare_chosen, compare_elsewhere, compare_forms
    readouts, proxies = compare_readouts, compare_proxies
    return html.Div(
        className="column compare",
        children=[
            shell.settled(wanted, view),
            drawing.remembered(PAGE.name),
            _head(cache, view),
            _chapter("side"),
            section("curves", chosen.curves(cache, view), 420),
            grid("ends", chosen.ends(cache, view), None),
            _chapter("readouts"),
            section("reached", readouts.reached(cache, view)),
            section("brings", readouts.members(cache, view)),
            section("gains", readouts.gains(cache, view)),
            _chapter("conditions"),
            section("panels", elsewhere.panels(cache, view), 380),
            section("elsewhere", elsewhere.elsewhere(cache, view), 440),
            grid("every", elsewhere.every(cache, view), _every_style(cache, view)[0]["height"]),
            _chapter("forms"),
            section("depths", forms.depths(cache, view), 360),
            section("parts", forms.parts(cache, view)),
            section("views", forms.views(cache, view)),
            section("forms", forms.forms(cache, view)),
            section("variance", forms.variance(cache, view)),
            _chapter("price"),
            section("capability", proxies.capability(cache, view), 380),
            section("cost", proxies.cost(cache, view), 420),
            grid("costs", proxies.costs(cache, view), 420),
        ],
    )


def _head(cache: QueryCache, view: View) -> Component:
    conditions = [{"value": name, "label": compare_elsewhere.WORDS.get(name, name)} for name in cache.conditions()]
    return html.Div(
        className="page-head",
        children=[
            html.H1("Compare"),
            html.Div(
                compare_chosen.answer(cache, view),
                id="compare-answer",
                className="answer alone",
                **{"aria-live": "polite"},
            ),
            html.Nav(
                [html.A(title, href=f"#chapter-{name}") for name, (title, _) in CHAPTERS.items()],
                className="chapters",
                **{"aria-label": "On this page"},
            ),
            html.Div(
                className="compare-choice",
                children=[
                    html.Label(
                        [
                            "Readers side by side ",
                            html.Span(f"(up to {MOST_READERS}; the first is the reference)", className="soft"),
                        ],
                        htmlFor="readers",
                        className="choice-label",
                    ),
                    dmc.MultiSelect(
                        id="readers",
                        data=shell.reader_options(cache),
                        value=compare_chosen.chosen(cache, view),
                        maxValues=MOST_READERS,
                        searchable=True,
                        clearable=True,
                        hidePickedOptions=True,
                        nothingFoundMessage="No reader has this name",
                        filter=shell.BY_WORDS,
                        maxDropdownHeight=420,
                        size="sm",
                        comboboxProps={"zIndex": 300},
                        attributes=shell.named("Readers side by side"),
                    ),
                    html.Div(compare_chosen.key_of(cache, view), id="compare-key", className="reader-key"),
                ],
            ),
            html.Div(
                className="controls",
                children=[
                    shell.segmented("compare-k", {k: str(k) for k in BUDGETS}, view.k, "Budget K"),
                    shell.segmented("compare-metric", METRICS, view.metric, "Metric"),
                    shell.segmented("compare-reduction", REDUCTIONS, view.reduction, "Reduction"),
                    shell.labelled(
                        "Traces",
                        "condition",
                        dmc.Select(
                            id="condition",
                            data=conditions,
                            value=view.condition,
                            allowDeselect=False,
                            size="xs",
                            w=220,
                            comboboxProps={"zIndex": 300},
                            attributes=shell.named("What was done to the traces"),
                        ),
                    ),
                ],
            ),
        ],
    )


def _chapter(name: str) -> Component:
    title, words = CHAPTERS[name]
    return html.Div([html.H2(title), html.P(words, className="sentence")], id=f"chapter-{name}", className="chapter")


def register(app: Dash) -> None:
    """Callbacks of the page."""
    chosen, elsewhere, forms = compare_chosen, compare_elsewhere, compare_forms
    readouts, proxies = compare_readouts, compare_proxies
    readers, k = Input("readers", "value"), Input("compare-k", "value")
    metric, reduction = Input("compare-metric", "value"), Input("compare-reduction", "value")
    condition = Input("condition", "value")
    choices = {"readers": readers, "k": k, "metric": metric, "reduction": reduction, "condition": condition}
    drawing.remember(app, PAGE.name, **choices)
    drawing.follow(
        app,
        drawing.place("compare-answer", chosen.answer),
        drawing.grid("ends", chosen.ends),
        readers=readers,
        k=k,
        condition=condition,
    )
    drawing.follow(app, drawing.figure("curves", chosen.curves), **choices)
    drawing.follow(
        app,
        drawing.place("compare-key", chosen.key_of),
        drawing.figure("depths", forms.depths),
        drawing.figure("panels", elsewhere.panels),
        drawing.figure("elsewhere", elsewhere.elsewhere),
        readers=readers,
        k=k,
        metric=metric,
    )
    drawing.follow(
        app,
        _tall("reached", readouts.reached),
        _tall("brings", readouts.members),
        _tall("gains", readouts.gains),
        drawing.grid("every", elsewhere.every),
        drawing.Part((Output({"type": "body", "figure": "every"}, "style"),), _every_style),
        k=k,
    )
    drawing.follow(
        app,
        _tall("parts", forms.parts),
        _tall("views", forms.views),
        _tall("forms", forms.forms),
        _tall("variance", forms.variance),
        drawing.figure("capability", proxies.capability),
        drawing.figure("cost", proxies.cost),
        drawing.grid("costs", proxies.costs),
        k=k,
    )

    @app.callback(
        Output("readers", "value"),
        Input("every-grid", "selectedRows", allow_optional=True),
        Input("reader", "value"),
        State("readers", "value"),
        prevent_initial_call=True,
    )
    def added(rows: list[dict[str, Any]] | None, reader: str | None, now: list[str] | None) -> Any:
        chosen = list(now or [])
        if ctx.triggered_id == "every-grid" and rows and rows[0]["reader"] not in chosen:
            return [*chosen[: MOST_READERS - 1], rows[0]["reader"]]
        # The header's reader is the reference: it moves to the front.
        if ctx.triggered_id == "reader" and reader and chosen and chosen[0] != reader:
            return [reader, *[other for other in chosen if other != reader]][:MOST_READERS]
        return no_update


def _every_style(cache: QueryCache, view: View) -> tuple[dict[str, int]]:
    """Height of the grid of all readers, with a head of its groups."""
    return ({"height": 38 + tables.height(len(compare_elsewhere.every_rows(cache, view)), 482)},)


def _tall(name: str, draw: Callable[[QueryCache, View], FigureView]) -> drawing.Part:
    """A figure with a line a row, whose height follows its rows."""
    part = drawing.figure(name, draw)

    def fill(cache: QueryCache, view: View) -> tuple[Any, ...]:
        drawn = draw(cache, view)
        return (*drawn.parts(), {"height": height_of(drawn.figure)})

    return drawing.Part((*part.outputs, Output({"type": "body", "figure": name}, "style")), fill)


# ---- what the figures say of themselves -----------------------------------------------------------------------------


def _told(table: Callable[[QueryCache, View], pd.DataFrame], store: str, **fields: str) -> shell.FigureMeta:
    """Rows, and what made them: the readers in the rows, under the fields of the view that the rows stand for."""

    def made(cache: QueryCache, view: View) -> tuple[str, dict[str, object]]:
        frame = table(cache, view)
        key: dict[str, object] = {"roster": view.roster} | {name: getattr(view, of) for name, of in fields.items()}
        return store, key | ({"reader": tuple(dict.fromkeys(frame["reader"]))} if "reader" in frame else {})

    return shell.FigureMeta(table, made, compare_chosen.first)


def _plain(rows: Callable[[QueryCache, View], pd.DataFrame]) -> Callable[[QueryCache, View], pd.DataFrame]:
    """Rows without what only the drawing needs."""
    drawn = ["row", "series", "words", "build_id", "p_text", "clear"]
    return lambda cache, view: rows(cache, view).drop(columns=drawn, errors="ignore").reset_index(drop=True)


PAGE = shell.Page(
    name="compare",
    path=compare_chosen.PATH,
    title="Compare",
    icon="compare",
    layout=layout,
    register=register,
    figures={
        "curves": _told(compare_chosen.curve_rows, "attribution_metrics", benchmark="domain", condition="condition"),
        "ends": _told(compare_chosen.end_rows, "attribution_metrics", benchmark="domain", condition="condition"),
        "reached": shell.FigureMeta(
            compare_readouts.goal_frame,
            compare_readouts.goals_told,
            compare_chosen.first,
            compare_readouts.printed_told,
        ),
        "brings": shell.FigureMeta(
            _plain(compare_readouts.member_rows), compare_readouts.goals_told, compare_chosen.first
        ),
        "gains": shell.FigureMeta(
            lambda cache, view: compare_readouts.gain_rows(cache, view).drop(
                columns=["row", "p_text", "p_raw", "clear"]
            ),
            compare_readouts.gains_told,
            compare_chosen.first,
        ),
        "panels": _told(compare_elsewhere.panel_rows, "attribution_metrics"),
        "elsewhere": _told(compare_elsewhere.elsewhere_rows, "attribution_metrics"),
        "every": _told(compare_elsewhere.every_rows, "attribution_metrics"),
        "depths": _told(compare_forms.depth_rows, "layer_scores"),
        "parts": _told(_plain(compare_forms.part_rows), "attribution_metrics"),
        "views": _told(_plain(compare_forms.view_rows), "attribution_metrics"),
        "forms": shell.FigureMeta(_plain(compare_forms.form_rows), compare_forms.forms_told, compare_chosen.first),
        "variance": _told(_plain(compare_forms.variance_rows), "variance_ratios"),
        "capability": shell.FigureMeta(
            _plain(compare_proxies.capability_rows),
            lambda cache, view: ("correlations", {"reference": f"accuracy@{view.k}/{compare_proxies.READS}"}),
            compare_chosen.first,
        ),
        "cost": _told(compare_proxies.cost_rows, "costs"),
        "costs": _told(compare_proxies.cost_rows, "costs"),
    },
)
