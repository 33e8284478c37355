"""Compare in four tabs: readers, conditions, what is read of a response, and cost; one figure at a time."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any

import dash_mantine_components as dmc
import pandas as pd
from dash import Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.development.base_component import Component

from atlas import drawing, shell
from atlas.data import GLOBAL, QueryCache
from atlas.pages import pieces
from atlas.pages.compare import proxies, readers, readouts
from atlas.pages.pieces import PageFigure
from atlas.state import MOST_READERS, View
from atlas.state import TABS as TAB_NAMES
from backend.store import queries

NAMES_HELP = (
    "The first one is the reference; the Reader at the top of the page is put first. Discriminants are linear, over "
    "several layers; a network has one hidden layer; the fused readout weighs these and word n-grams. Every length: "
    "trained on whole and cut responses. Live: small enough for Attribute"
)


@dataclasses.dataclass(frozen=True)
class Tab:
    """A part of the page: its answer, and its figures with their short names."""

    answer: Callable[[QueryCache, View], shell.Children]
    figures: Mapping[str, str]


TABS = {
    "readers": Tab(
        readers.answer,
        {
            "curves": "By traces", "ends": "Differences", "reached": "Best published", "brings": "Members",
            "gains": "Tests of the fused readout",
        },
    ),
    "conditions": Tab(
        readers.conditions_answer, {"elsewhere": "At K traces", "panels": "By traces", "every": "All readers"}
    ),
    "read": Tab(
        proxies.read_answer,
        {
            "parts": "Mean and drift", "depths": "Layers", "forms": "Forms over time", "variance": "Variance",
            "views": "Prompt",
        },
    ),
    "cost": Tab(
        proxies.cost_answer, {"times": "Time", "cost": "Size", "costs": "All costs", "capability": "Capability"}
    ),
}  # fmt: skip
ANSWERS = {
    "panels": readers.panels_answer, "every": readers.every_answer,
    "reached": readouts.reached_answer, "brings": readouts.members_answer, "gains": readouts.gains_answer,
    "depths": proxies.depths_answer, "forms": proxies.forms_answer, "variance": proxies.variance_answer,
    "capability": proxies.capability_answer,
}  # fmt: skip
"""Answers of figures that do not show what their tab's answer says."""
CONTROLS = {
    **{"curves": "readers k metric reduction condition", "ends": "readers k reduction condition"},
    **dict.fromkeys(("panels", "elsewhere"), "readers k metric"),
    **{"every": "readers k", "depths": "readers"},
}
"""Controls that a figure follows; others follow the budget."""
FIELD_WORDS = {
    "readers": "readers", "k": "budget", "metric": "metric", "reduction": "reduction", "condition": "responses",
}  # fmt: skip
"""What controls choose."""
STORED = ("tab", "figure", "back")
"""Choices that links alone change."""
OVER_FOLDS = {"std": "Std, folds"}
"""Heads of the tables of figures whose bars are the spread over the folds, also of what pools them."""
ACCURACY = {**OVER_FOLDS, "value": "Accuracy"}
FIXED = ("reached", "variance")
"""Figures that no control changes."""
MOVED = {
    **{"chapter-side": "curves", "chapter-readouts": "reached", "chapter-conditions": "elsewhere"},
    **{"chapter-forms": "parts", "chapter-price": "cost"},
}
"""Figures that former anchors of the page lead to."""


@drawing.page
def layout(cache: QueryCache, requested: View) -> Component:
    """The page for a query string."""
    opened = cache.opened(requested)
    view = dataclasses.replace(opened, condition=opened.condition.removesuffix(GLOBAL))
    view = _at_figure(cache, dataclasses.replace(view, readers=tuple(readers.chosen(cache, view))))
    show = pieces.sections(FIGURES, cache, view, origin="")
    stores = [dcc.Store(id=f"compare-{name}", data=getattr(view, name)) for name in STORED]
    kept = [shell.settled(requested, view), drawing.remembered(PAGE.name), *stores]
    return html.Div([*kept, _head(cache, view), show(view.figure)], className="column compare")


def shown(cache: QueryCache, view: View) -> tuple[str, str]:
    """Tab and figure of a view: the figure that it names, else the first one of its tab that has rows."""
    figure = MOVED.get(view.figure, view.figure)
    tab = next((name for name, tab in TABS.items() if figure in tab.figures), "")
    if tab:
        return tab, figure
    names = TABS[view.tab].figures
    return view.tab, next((name for name in names if _has_rows(cache, view, name)), next(iter(names)))


def _at_figure(cache: QueryCache, view: View) -> View:
    tab, figure = shown(cache, view)
    return dataclasses.replace(view, tab=tab, figure=figure)


def chooses_readers(figure: str) -> bool:
    """Whether a figure is of the readers side by side, and not of all with such numbers."""
    return "readers" in CONTROLS.get(figure, "").split()


def _has_rows(cache: QueryCache, view: View, figure: str) -> bool:
    return not FIGURES[figure].meta.table(cache, view).empty


def _roster_of(cache: QueryCache, view: View, figure: str) -> str:
    """Roster that a figure is shown for: the view's own, else the largest with rows; '' without any.

    What is named after published numbers is shown where there are some, if there is such a roster.
    """
    rosters = cache.ask(queries.rosters)["roster"][::-1]
    own = {name: dataclasses.replace(view, roster=name) for name in dict.fromkeys((view.roster, *rosters))}
    with_rows = (name for name, one in own.items() if _has_rows(cache, one, figure))
    if figure == "reached":
        return min(with_rows, key=lambda name: not readouts.is_published(cache, own[name]), default="")
    return next(with_rows, "")


def _chosen_roster(cache: QueryCache, view: View) -> str:
    """Roster that the reader chose: the view's own, unless its figure has changed it."""
    known = view.back in set(cache.ask(queries.rosters)["roster"])
    back = dataclasses.replace(view, roster=view.back)
    return view.back if known and _roster_of(cache, back, view.figure) == view.roster else view.roster


def _answer(cache: QueryCache, view: View) -> shell.Children:
    return ANSWERS.get(view.figure, TABS[view.tab].answer)(cache, view)


def _way(words: str | Component, view: View, here: bool, **choices: Any) -> Component:
    """A link to a tab or figure that keeps the other choices of the address."""
    link = f"{PAGE.path}?{dataclasses.replace(view, **choices).query()}"
    marks: dict[str, Any] = {"data-choices": json.dumps(choices)} | (shell.aria(current="true") if here else {})
    return html.A(words, href=link, **marks)


def _figure_links(cache: QueryCache, view: View) -> list[Component]:
    """Figures of the tab, in one order for every roster: one without rows names the roster that it leads to.

    A figure for another roster leaves the chosen one in the address, so that the next link returns to it. A way back to
    that follows them, or, where another roster than the usual one was chosen, to the usual one.
    """
    links: list[Component] = []
    own = _chosen_roster(cache, view)
    for name, words in TABS[view.tab].figures.items():
        near = _roster_of(cache, dataclasses.replace(view, roster=own), name)
        choices = {"tab": view.tab, "figure": name}
        choices |= {"roster": near, "back": "" if near == own else own} if near else {}
        label: str | Component = words
        if near != own:
            label = html.Span([words, html.Span(f" ({near or 'no numbers'})", className="soft")])
        links.append(_way(label, view, name == view.figure, **choices))
    before = own if view.roster != own else cache.resolve_view(View()).roster
    if view.roster != before:
        holds = _roster_of(cache, dataclasses.replace(view, roster=before), view.figure) == before
        back = {"tab": view.tab, "figure": view.figure if holds else "", "roster": before, "back": ""}
        words = f"Back to {before}" if view.roster == own else f"Shown for {view.roster}: back to {before}"
        links.append(_way(html.Span(words, className="back"), view, False, **back))
    return links


def _head(cache: QueryCache, view: View) -> Component:
    own = {"roster": _chosen_roster(cache, view), "back": ""}
    tabs = [_way(words, view, name == view.tab, tab=name, figure="", **own) for name, words in TAB_NAMES.items()]
    limit = shell.term(f"(up to {MOST_READERS})", NAMES_HELP)
    field = pieces.select(
        "readers", readers.reader_options(cache, view), list(view.readers), "Readers side by side",
        kind=dmc.MultiSelect, maxValues=MOST_READERS, searchable=True, clearable=True, hidePickedOptions=True,
        nothingFoundMessage="No reader has this name", filter=shell.BY_WORDS, maxDropdownHeight=420,
    )  # fmt: skip
    name = html.Div([html.Label("Readers", htmlFor="readers"), " ", limit], className="choice-label")
    choice = [name, field]
    condition = pieces.select(
        "condition", readers.condition_options(cache, view), view.condition, "What was done to the responses",
        allowDeselect=False, size="xs", w=232, searchable=True, nothingFoundMessage="Nothing like this was measured",
        filter=shell.BY_WORDS, maxDropdownHeight=420,
    )  # fmt: skip
    follows = [] if view.figure in FIXED else CONTROLS.get(view.figure, "k").split()
    controls = {
        "k": pieces.budget_choice("compare-k", view),
        "metric": pieces.metric_choice("compare-metric", view),
        "reduction": pieces.reduction_choice("compare-reduction", view),
        "condition": shell.labelled("Responses", "condition", condition),
    }
    # A choice that the figure does not follow stays in the page, so that the address keeps it.
    fields = [html.Div(field, hidden=name not in follows) for name, field in controls.items()]
    own_fields = [words for name, words in FIELD_WORDS.items() if name in follows]
    # On a phone several fields fold to one row; one alone is as short as that.
    fold = html.Details(
        html.Summary(f"Choices: {', '.join(own_fields)}"), className="choices-fold", hidden=len(own_fields) < 2
    )
    return html.Div(
        [
            html.Div([html.H1("Compare"), html.Nav(tabs, className="tabs", **shell.aria(label="Parts of the page"))],
                     className="tabs-row"),
            html.Div(_answer(cache, view), id="compare-answer", className="answer alone", **shell.aria(live="polite")),
            html.Div(choice, className="compare-choice", hidden="readers" not in follows),
            html.Div([
                html.Nav(_figure_links(cache, view), id="compare-figures", className="questions",
                         **shell.aria(label="Figures of this part")),
                fold,
                html.Div(fields, className="controls"),
            ], className="figure-choice"),
        ],
        className="page-head",
    )  # fmt: skip


def register(app: Dash) -> None:
    """Callbacks of the page."""
    names = {"readers": "readers", "condition": "condition"}
    names |= {name: f"compare-{name}" for name in ("k", "metric", "reduction")}
    inputs = {name: Input(names[name], "value") for name in ("readers", "k", "metric", "reduction", "condition")}
    drawing.remember(app, PAGE.name, **inputs)
    here = {name: State(f"compare-{name}", "data") for name in STORED}
    for figure in FIGURES:
        follows = {name: inputs[name] for name in CONTROLS.get(figure, "k").split()}
        pieces.follow(app, FIGURES, figure, **follows, **here)
    answer = drawing.place("compare-answer", lambda cache, view: _answer(cache, _at_figure(cache, view)))
    links = drawing.place("compare-figures", lambda cache, view: _figure_links(cache, _at_figure(cache, view)))
    options = drawing.Part(
        (Output("readers", "data"), Output("condition", "data")),
        lambda cache, view: (readers.reader_options(cache, view), readers.condition_options(cache, view)),
    )
    pieces.follow(app, FIGURES, answer, links, options, **inputs, **here)

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


def _meta(
    rows: pieces.Rows, store: str = "attribution_metrics", here: bool = False, heads: Mapping[str, str] = OVER_FOLDS
) -> shell.FigureMeta:
    """Rows, and their builds: the readers in the rows; here : of the view's domain and responses alone."""

    def builds(cache: QueryCache, view: View) -> tuple[str, dict[str, object]]:
        frame = rows(cache, view)
        key: dict[str, object] = {"roster": view.roster}
        if here:
            key |= {"benchmark": view.domain, "condition": readers.grouped_condition(cache, view)}
        return store, key | ({"reader": tuple(dict.fromkeys(frame["reader"]))} if "reader" in frame else {})

    return shell.FigureMeta(rows, builds, readers.first, heads=heads)


def _plain(rows: pieces.Rows) -> pieces.Rows:
    """Rows without what only the drawing needs: whole names first, ids last, the highest value on top."""
    needless = pieces.without(rows, "row", "series", "words", "build_id", "p_text", "clear")

    def plain(cache: QueryCache, view: View) -> pd.DataFrame:
        frame, known = needless(cache, view), set(readers.everyone(cache))
        if frame.empty:
            return frame
        own = frame["name" if "name" in frame else "reader"]
        names = [
            cache.reader_name(reader) if reader in known else name
            for reader, name in zip(frame["reader"], own, strict=True)
        ]
        frame = frame.assign(name=names).sort_values(
            "value" if "value" in frame else "accuracy", ascending=False, kind="stable"
        )
        ids = [name for name in ("reader", "method", "proxy") if name in frame]
        rest = frame.columns.drop(["name", "proxy_name", *ids], errors="ignore")
        return frame[["name", *rest, *ids]].reset_index(drop=True)

    return plain


_GAINS = readouts.of_fused(pieces.without(readouts.gain_rows, "row", "p_text", "p_raw", "clear"))
FIGURES = {
    "curves": PageFigure(
        "What do more traces bring each reader?", readers.curves, _meta(readers.curve_rows, here=True, heads={}), 340
    ),
    "ends": PageFigure(
        "Where do they end, and is the difference real?", readers.ends, _meta(readers.end_rows, here=True), grid=True
    ),
    "reached": PageFigure(
        "What do our readouts reach?", readouts.reached,
        shell.FigureMeta(readouts.of_fused(readouts.goal_table), readouts.goals_builds, readers.first),
    ),
    "brings": PageFigure(
        "What does each member of the fused readout bring?", readouts.members,
        shell.FigureMeta(
            readouts.of_fused(_plain(readouts.member_rows)), readouts.members_builds, readers.first, heads=ACCURACY
        ),
    ),
    "gains": PageFigure(
        "Is the fused readout better by more than luck?", readouts.gains,
        shell.FigureMeta(_GAINS, readouts.gains_builds, readers.first),
    ),
    "panels": PageFigure(
        "Does the order hold on other prompts and lengths?", readers.panels, _meta(readers.panel_rows), 340
    ),
    "elsewhere": PageFigure(
        "What is left on other prompts and shorter responses?", readers.conditions, _meta(readers.condition_rows)
    ),
    "every": PageFigure(
        "How does every reader do, everywhere?", readers.every, _meta(readers.every_rows), readers.every_height,
        grid=True,
    ),
    "depths": PageFigure(
        "Where in the proxy does the knowledge sit?", proxies.depths,
        _meta(proxies.depth_rows, "layer_scores", heads={"std": "Std, fits"}), 330,
    ),
    "parts": PageFigure(
        "Is it the mean or the drift that tells sources apart?", proxies.parts,
        _meta(_plain(proxies.part_rows), heads=ACCURACY),
    ),
    "views": PageFigure(
        "Does the proxy need to see the prompt?", proxies.views, _meta(_plain(proxies.view_rows), heads=ACCURACY)
    ),
    "forms": PageFigure(
        "Which summary of a response keeps the source?", proxies.forms,
        shell.FigureMeta(_plain(proxies.form_rows), proxies.forms_builds, readers.first, heads=ACCURACY),
    ),
    "variance": PageFigure(
        "Do fingerprints follow the source or the prompt?", proxies.variance,
        _meta(_plain(proxies.variance_rows), "variance_ratios"),
    ),
    "capability": PageFigure(
        "Do more capable proxies read better?", proxies.capability,
        shell.FigureMeta(_plain(proxies.capability_rows), proxies.correlations_builds, readers.first), 380,
    ),
    "times": PageFigure(
        "How long does a response take to read?", proxies.times, _meta(_plain(proxies.timed_rows), "costs"), 400
    ),
    "cost": PageFigure(
        "How much has to be run to read well?", proxies.cost, _meta(_plain(proxies.sized_rows), "costs"), 400
    ),
    "costs": PageFigure(
        "What does an answer cost?", proxies.costs, _meta(proxies.cost_rows, "costs"), 420, grid=True
    ),
}  # fmt: skip
PAGE = pieces.page("compare", layout, register, FIGURES)
