"""Compare: readers side by side, readouts, other prompts and lengths, what is read of a response, and its price."""

from __future__ import annotations

import dataclasses
from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, ctx, html, no_update
from dash.development.base_component import Component

from atlas import drawing, shell
from atlas.data import QueryCache
from atlas.drawing import FigureView
from atlas.figures.dots import height_of
from atlas.pages import pieces
from atlas.pages.compare import proxies, readers, readouts
from atlas.state import METRICS, MOST_READERS, REDUCTIONS, View

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
def layout(cache: QueryCache, requested: View) -> Component:
    """The page for a query string."""
    view = cache.opened(requested)
    view = dataclasses.replace(view, readers=tuple(readers.chosen(cache, view)))

    def section(name: str, drawn: FigureView, height: int | None = None) -> Component:
        return drawing.section(name, QUESTIONS[name], drawn, height or height_of(drawn.figure), origin="")

    def grid(name: str, content: tuple[Component, shell.Children], height: int | None) -> Component:
        return shell.grid_section(name, QUESTIONS[name], *content, origin="", height=height)

    return html.Div(
        className="column compare",
        children=[
            shell.settled(requested, view),
            drawing.remembered(PAGE.name),
            _head(cache, view),
            _chapter("side"),
            section("curves", readers.curves(cache, view), 420),
            grid("ends", readers.ends(cache, view), None),
            _chapter("readouts"),
            section("reached", readouts.reached(cache, view)),
            section("brings", readouts.members(cache, view)),
            section("gains", readouts.gains(cache, view)),
            _chapter("conditions"),
            section("panels", readers.panels(cache, view), 380),
            section("elsewhere", readers.conditions(cache, view), 440),
            grid("every", readers.every(cache, view), readers.every_height(cache, view)),
            _chapter("forms"),
            section("depths", proxies.depths(cache, view), 360),
            section("parts", proxies.parts(cache, view)),
            section("views", proxies.views(cache, view)),
            section("forms", proxies.forms(cache, view)),
            section("variance", proxies.variance(cache, view)),
            _chapter("price"),
            section("capability", proxies.capability(cache, view), 380),
            section("cost", proxies.cost(cache, view), 420),
            grid("costs", proxies.costs(cache, view), 420),
        ],
    )


def _head(cache: QueryCache, view: View) -> Component:
    links = [html.A(title, href=f"#chapter-{name}") for name, (title, _) in CHAPTERS.items()]
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


def _chapter(name: str) -> Component:
    title, words = CHAPTERS[name]
    return html.Div([html.H2(title), html.P(words, className="sentence")], id=f"chapter-{name}", className="chapter")


def register(app: Dash) -> None:
    """Callbacks of the page."""
    names = {"readers": "readers", "condition": "condition"}
    names |= {name: f"compare-{name}" for name in ("k", "metric", "reduction")}
    inputs = {name: Input(names[name], "value") for name in ("readers", "k", "metric", "reduction", "condition")}

    def follow(fields: str, *parts: drawing.Part) -> None:
        drawing.follow(app, *parts, **{name: inputs[name] for name in fields.split()})

    drawing.remember(app, PAGE.name, **inputs)
    follow("readers k condition", drawing.place("compare-answer", readers.answer), drawing.grid("ends", readers.ends))
    follow("readers k metric reduction condition", drawing.figure("curves", readers.curves))
    follow(
        "readers k metric",
        drawing.place("compare-key", readers.key_of),
        drawing.figure("depths", proxies.depths),
        drawing.figure("panels", readers.panels),
        drawing.figure("elsewhere", readers.conditions),
    )
    follow(
        "k",
        pieces.tall("reached", readouts.reached),
        pieces.tall("brings", readouts.members),
        pieces.tall("gains", readouts.gains),
        drawing.grid("every", readers.every),
        pieces.sized("every", readers.every_height),
    )
    follow(
        "k",
        pieces.tall("parts", proxies.parts),
        pieces.tall("views", proxies.views),
        pieces.tall("forms", proxies.forms),
        pieces.tall("variance", proxies.variance),
        drawing.figure("capability", proxies.capability),
        drawing.figure("cost", proxies.cost),
        drawing.grid("costs", proxies.costs),
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


def _meta(rows: pieces.Rows, store: str, **fields: str) -> shell.FigureMeta:
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
PAGE = shell.Page(
    name="compare",
    path=readers.PATH,
    title="Compare",
    icon="compare",
    layout=layout,
    register=register,
    figures={
        "curves": _meta(readers.curve_rows, "attribution_metrics", **_HERE),
        "ends": _meta(readers.end_rows, "attribution_metrics", **_HERE),
        "reached": shell.FigureMeta(readouts.goal_frame, readouts.goals_builds, readers.first, readouts.printed_builds),
        "brings": shell.FigureMeta(_plain(readouts.member_rows), readouts.goals_builds, readers.first),
        "gains": shell.FigureMeta(
            pieces.without(readouts.gain_rows, "row", "p_text", "p_raw", "clear"), readouts.gains_builds, readers.first
        ),
        "panels": _meta(readers.panel_rows, "attribution_metrics"),
        "elsewhere": _meta(readers.condition_rows, "attribution_metrics"),
        "every": _meta(readers.every_rows, "attribution_metrics"),
        "depths": _meta(proxies.depth_rows, "layer_scores"),
        "parts": _meta(_plain(proxies.part_rows), "attribution_metrics"),
        "views": _meta(_plain(proxies.view_rows), "attribution_metrics"),
        "forms": shell.FigureMeta(_plain(proxies.form_rows), proxies.forms_builds, readers.first),
        "variance": _meta(_plain(proxies.variance_rows), "variance_ratios"),
        "capability": shell.FigureMeta(_plain(proxies.capability_rows), proxies.correlations_builds, readers.first),
        "cost": _meta(proxies.cost_rows, "costs"),
        "costs": _meta(proxies.cost_rows, "costs"),
    },
)
