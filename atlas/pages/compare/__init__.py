"""Compare: readers side by side, readouts, other prompts and lengths, what is read of a response, and its price."""

from __future__ import annotations

import dataclasses
from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, ctx, html, no_update
from dash.development.base_component import Component

from atlas import drawing, shell
from atlas.data import QueryCache
from atlas.pages import pieces
from atlas.pages.compare import proxies, readers, readouts
from atlas.pages.pieces import PageFigure
from atlas.state import METRICS, MOST_READERS, REDUCTIONS, View

CHAPTERS = {
    "side": ("Side by side", "The readers chosen above.", "curves ends"),
    "readouts": (
        "Readouts",
        "Other ways to read the same traces with small proxies, trained and tested on the paper's folds.",
        "reached brings gains",
    ),
    "conditions": (
        "Domains and lengths",
        "Probes trained on whole Agent500 responses, asked about something else.",
        "panels elsewhere every",
    ),
    "forms": (
        "What is read",
        "Which states of the proxy carry the source, all else alike.",
        "depths parts views forms variance",
    ),
    "price": ("What it takes", "Capability, size and time.", "capability cost costs"),
}
"""Title, sentence and figures of the parts of the page."""


@drawing.page
def layout(cache: QueryCache, requested: View) -> Component:
    """The page for a query string."""
    view = cache.opened(requested)
    view = dataclasses.replace(view, readers=tuple(readers.chosen(cache, view)))
    show = pieces.sections(FIGURES, cache, view, origin="")
    children = [shell.settled(requested, view), drawing.remembered(PAGE.name), _head(cache, view)]
    for name, (title, words, names) in CHAPTERS.items():
        head = [html.H2(title), html.P(words, className="sentence")]
        children += [html.Div(head, id=f"chapter-{name}", className="chapter"), *map(show, names.split())]
    return html.Div(children, className="column compare")


def _head(cache: QueryCache, view: View) -> Component:
    links = [html.A(title, href=f"#chapter-{name}") for name, (title, *_) in CHAPTERS.items()]
    conditions = [{"value": name, "label": pieces.condition_words(name)} for name in cache.conditions()]
    limit = html.Span(f"(up to {MOST_READERS}; the first is the reference)", className="soft")
    field = pieces.select(
        "readers", shell.reader_options(cache), readers.chosen(cache, view), "Readers side by side",
        kind=dmc.MultiSelect, maxValues=MOST_READERS, searchable=True, clearable=True, hidePickedOptions=True,
        nothingFoundMessage="No reader has this name", filter=shell.BY_WORDS, maxDropdownHeight=420,
    )  # fmt: skip
    choice = [
        html.Label(["Readers side by side ", limit], htmlFor="readers", className="choice-label"),
        field,
        html.Div(readers.key_of(cache, view), id="compare-key", className="reader-key"),
    ]
    name = "What was done to the traces"
    condition = pieces.select("condition", conditions, view.condition, name, allowDeselect=False, size="xs", w=220)
    controls = [
        pieces.budget_choice("compare-k", view),
        shell.segmented("compare-metric", METRICS, view.metric, "Metric"),
        shell.segmented("compare-reduction", REDUCTIONS, view.reduction, "Reduction"),
        shell.labelled("Traces", "condition", condition),
    ]
    return drawing.head(
        "Compare",
        "compare-answer",
        readers.answer(cache, view),
        html.Nav(links, className="chapters", **shell.aria(label="On this page")),
        html.Div(choice, className="compare-choice"),
        html.Div(controls, className="controls"),
    )


def register(app: Dash) -> None:
    """Callbacks of the page."""
    names = {"readers": "readers", "condition": "condition"}
    names |= {name: f"compare-{name}" for name in ("k", "metric", "reduction")}
    inputs = {name: Input(names[name], "value") for name in ("readers", "k", "metric", "reduction", "condition")}

    def follow(fields: str, names: str, *places: drawing.Part) -> None:
        pieces.follow(app, FIGURES, *places, names, **{name: inputs[name] for name in fields.split()})

    drawing.remember(app, PAGE.name, **inputs)
    follow("readers k condition", "ends", drawing.place("compare-answer", readers.answer))
    follow("readers k metric reduction condition", "curves")
    follow("readers k metric", "depths panels elsewhere", drawing.place("compare-key", readers.key_of))
    follow("k", "reached brings gains every")
    follow("k", "parts views forms variance capability cost costs")

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


def _meta(rows: pieces.Rows, store: str = "attribution_metrics", **fields: str) -> shell.FigureMeta:
    """Rows, and their builds: the readers in the rows, under the fields of the view that the rows stand for."""

    def builds(cache: QueryCache, view: View) -> tuple[str, dict[str, object]]:
        frame = rows(cache, view)
        key: dict[str, object] = {"roster": view.roster} | {name: getattr(view, of) for name, of in fields.items()}
        return store, key | ({"reader": tuple(dict.fromkeys(frame["reader"]))} if "reader" in frame else {})

    return shell.FigureMeta(rows, builds, readers.first)


def _plain(rows: pieces.Rows) -> pieces.Rows:
    """Rows without what only the drawing needs."""
    return pieces.without(rows, "row", "series", "words", "build_id", "p_text", "clear")


_HERE = {"benchmark": "domain", "condition": "condition"}
_GAINS = pieces.without(readouts.gain_rows, "row", "p_text", "p_raw", "clear")
FIGURES = {
    "curves": PageFigure(
        "Which reader needs the fewest traces?", readers.curves, _meta(readers.curve_rows, **_HERE), 420
    ),
    "ends": PageFigure(
        "Where do they end, and is the difference real?", readers.ends, _meta(readers.end_rows, **_HERE), grid=True
    ),
    "reached": PageFigure(
        "What do readouts made here reach beside the paper's best?", readouts.reached,
        shell.FigureMeta(readouts.goal_frame, readouts.goals_builds, readers.first, readouts.printed_builds),
    ),
    "brings": PageFigure(
        "What does each member of the fused readout bring?", readouts.members,
        shell.FigureMeta(_plain(readouts.member_rows), readouts.goals_builds, readers.first),
    ),
    "gains": PageFigure(
        "Is the fused readout better by more than luck?", readouts.gains,
        shell.FigureMeta(_GAINS, readouts.gains_builds, readers.first),
    ),
    "panels": PageFigure(
        "Does the order hold on other prompts and shorter responses?", readers.panels, _meta(readers.panel_rows), 380
    ),
    "elsewhere": PageFigure(
        "What is left on other prompts and shorter responses?", readers.conditions, _meta(readers.condition_rows), 440
    ),
    "every": PageFigure(
        "How does every reader do, everywhere?", readers.every, _meta(readers.every_rows), readers.every_height,
        grid=True,
    ),
    "depths": PageFigure(
        "Where in the proxy does the knowledge sit?", proxies.depths, _meta(proxies.depth_rows, "layer_scores"), 360
    ),
    "parts": PageFigure(
        "Is it the mean or the drift that tells sources apart?", proxies.parts, _meta(_plain(proxies.part_rows))
    ),
    "views": PageFigure("Does the proxy need to see the prompt?", proxies.views, _meta(_plain(proxies.view_rows))),
    "forms": PageFigure(
        "Which summary of a response keeps the source?", proxies.forms,
        shell.FigureMeta(_plain(proxies.form_rows), proxies.forms_builds, readers.first),
    ),
    "variance": PageFigure(
        "Do fingerprints follow the source or the prompt?", proxies.variance,
        _meta(_plain(proxies.variance_rows), "variance_ratios"),
    ),
    "capability": PageFigure(
        "Do more capable proxies read better?", proxies.capability,
        shell.FigureMeta(_plain(proxies.capability_rows), proxies.correlations_builds, readers.first), 380,
    ),
    "cost": PageFigure(
        "How much has to be run to read well?", proxies.cost, _meta(proxies.cost_rows, "costs"), 420
    ),
    "costs": PageFigure(
        "What does an answer cost?", proxies.costs, _meta(proxies.cost_rows, "costs"), 420, grid=True
    ),
}  # fmt: skip
PAGE = pieces.page("compare", layout, register, FIGURES)
