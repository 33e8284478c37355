"""One family: its sources, how soon they are named, whether errors stay inside it, and who is near to it."""

from __future__ import annotations

import pandas as pd
from dash import Dash, Input, dcc, html
from dash.development.base_component import Component

from atlas import drawing, shell
from atlas.data import QueryCache
from atlas.drawing import FigureView
from atlas.figures import attribution, sources, tables
from atlas.figures.plots import Line
from atlas.pages import pieces
from atlas.pages.compare.readers import percent
from atlas.pages.pieces import PageFigure
from atlas.state import View
from atlas.theme import TOKENS
from backend.store import queries

SHOWN = 9
LARGEST = 5  # confusions that are listed
KINDS = {"local": "with local weights", "api": "behind an API"}


@pieces.subject_page("family", "name", "zoom")
def layout(cache: QueryCache, requested: View, view: View) -> Component:
    """The page of a family for a query string."""
    show = pieces.sections(FIGURES, cache, view)
    mark = shell.symbol(cache.marks()[view.zoom], view.theme)
    title = [mark, html.Span(view.zoom, dir="auto", className="long")]
    facts = html.Div(_facts(cache, view), id="family-facts", className="card-facts")
    return html.Div(
        [
            shell.settled(requested, view),
            drawing.remembered(PAGE.name),
            dcc.Store(id="family-name", data=view.zoom),
            pieces.subject_head("family", "Family", title, facts, _answer(cache, view), view),
            *map(show, ("reach", "leave")),
            show("within", below=html.Div(_largest(cache, view), id="family-largest", className="largest")),
            show("members", height=tables.height(len(_rows(cache, view)))),
        ],
        className="column",
    )


def register(app: Dash) -> None:
    """Callbacks of the page."""
    family, k = Input("family-name", "data"), Input("family-k", "value")
    drawing.remember(app, PAGE.name, zoom=family, k=k)
    pieces.follow(app, FIGURES, drawing.place("family-facts", _facts), "members", zoom=family)
    answers = drawing.place("family-answer", _answer), drawing.place("family-largest", _largest)
    pieces.follow(app, FIGURES, *answers, "reach leave within", zoom=family, k=k)


def _own(cache: QueryCache, view: View) -> pd.DataFrame:
    members = cache.ask(queries.sources, view.roster)
    return members[members["family"] == view.zoom]


def _accuracies(cache: QueryCache, view: View) -> tuple[list[str], dict[int, float], dict[int, float]]:
    """Labels of the family's sources, their mean accuracy by budget, and that of all others."""
    table, own = pieces.source_accuracies(cache, view), list(_own(cache, view)["source"])
    others = [source for source in table["source"] if source not in own]
    return own, sources.accuracy_of(table, own), sources.accuracy_of(table, others)


def _facts(cache: QueryCache, view: View) -> list[Component | str]:
    own = _own(cache, view)
    texts = [f"{len(own)} of {pieces.counted(pieces.roster_size(cache, view), 'source')} in {view.roster}"]
    texts += [f"{count} {KINDS.get(str(kind), str(kind))}" for kind, count in own["access"].value_counts().items()]
    each = {pieces.response_counts(cache, view, int(total)) for total in own["responses"]}
    alike = f", {each.pop()} each" if len(each) == 1 else ""
    texts.append(f"{int(own['responses'].sum()):,} responses{alike}")
    query = pieces.choices_query(view, families=(view.zoom,))
    return [*[html.Span(text) for text in texts], dcc.Link("Show it alone on the map", href=f"/?{query}")]


def _answer(cache: QueryCache, view: View) -> list[Component | str]:
    own, accuracy, rest = _accuracies(cache, view)
    if view.k not in accuracy:
        return [f"Nothing has been measured for this family, {drawing.choice_words(view)}."]
    errors = _destinations(cache, view)
    within = errors.loc[errors["family"] == view.zoom, "share"]
    share = 100 * (within.iloc[0] if len(within) else 0)
    text = "" if errors.empty or len(own) < 2 else f" Of its errors, {share:.0f} % stay in the family."
    return [
        f"With {drawing.traces(view.k)} its {'sources are' if len(own) > 1 else 'only source is'} named in ",
        html.Strong(sources.accuracy_text(accuracy, view.k)),
        f" of {'their' if len(own) > 1 else 'its'} groups, all others in {sources.accuracy_text(rest, view.k)}.{text}",
        *_worst(cache, view),
    ]


def _worst(cache: QueryCache, view: View) -> list[Component | str]:
    """The source that is named least often, with a link; nothing where all are named alike."""
    table = pieces.source_accuracies(cache, view).set_index("source")
    own = table.loc[table.index.isin(_own(cache, view)["source"]), f"accuracy_{view.k}"].dropna()
    if own.nunique() < 2:
        return []
    least = str(own.idxmin())
    return [" Least often: ", shell.source_link(view, least, str(table.at[least, "name"])), f", {percent(own.min())}."]


def _reach(cache: QueryCache, view: View) -> FigureView:
    own, accuracy, rest = _accuracies(cache, view)
    if not accuracy:
        return drawing.unmeasured(cache, view, "accuracy of this family")
    table, colour = pieces.source_accuracies(cache, view), cache.marks()[view.zoom].colour(view.theme)
    others = Line("rest", "all other families", TOKENS[view.theme]["soft"], "dot")
    lines = [(others, rest), (Line("own", view.zoom, colour), accuracy)]
    figure = sources.accuracy_curves(table, lines, theme=view.theme, k=view.k, thin=own, colour=colour)
    whose = f"Mean accuracy of its {len(own)} sources (thin: each of them)" if len(own) > 1 else "Its source's accuracy"
    sentence = (
        f"{whose} beside all others, on "
        f"{pieces.domain_words(view.domain)} by {cache.reader_words(cache.attribution_reader(view))}. Grey: "
        f"the median source, the middle half and the middle 80 % of all. n = {len(table)} sources."
    )
    return FigureView(figure, sentence)


def _destinations(cache: QueryCache, view: View) -> pd.DataFrame:
    """Families that wrong answers for its sources name (columns family, errors, share, expected), most first."""
    members = cache.ask(queries.sources, view.roster)
    families = members.set_index("source")["family"]
    cells = pieces.confusion(cache, view)
    own = cells[(cells["truth"].map(families) == view.zoom) & (cells["truth"] != cells["predicted"])]
    errors = own.groupby(own["predicted"].map(families))["count"].sum().sort_values(ascending=False, kind="stable")
    sizes = members["family"].value_counts()
    return pd.DataFrame(
        {
            "family": errors.index,
            "errors": errors.to_numpy(),
            "share": errors.to_numpy() / max(int(errors.sum()), 1),
            "expected": [(sizes[family] - (family == view.zoom)) / max(len(members) - 1, 1) for family in errors.index],
        }
    )


@pieces.needs(pieces.confusion, pieces.unmeasured("confusion counts at K = {k}"))
def _leave(cache: QueryCache, view: View, _: pd.DataFrame) -> FigureView:
    frame = _destinations(cache, view)
    traces = drawing.traces(view.k)
    if frame.empty:
        none = shell.empty(f"At {traces} none of its sources is taken for another", "Choose a smaller budget K above")
        return FigureView(drawing.blank(view.theme), "There is no error to share out.", none)
    sentence = (
        f"Families that wrong answers name at {traces}; the pale bar behind is chance, if errors fell on every "
        f"other source alike. n = {int(frame['errors'].sum()):,} errors over three seeds."
    )
    figure = sources.error_families(frame.head(SHOWN), cache.marks(), theme=view.theme, own=view.zoom)
    return FigureView(figure, sentence)


def _within_height(cache: QueryCache, view: View) -> int:
    """Height in pixels of :func:`_within`: a row for every sibling that its name fits in, and the names below."""
    own = len(_own(cache, view))
    return sources.bars_height(1, 1) if own == 1 else 200 + 15 * max(own, 8)


def _nobody(view: View) -> Component:
    return shell.empty(f"No source of this family is in {view.roster}", "Choose another roster above")


@pieces.needs(pieces.confusion, pieces.unmeasured("confusion counts at K = {k}"))
def _within(cache: QueryCache, view: View, cells: pd.DataFrame) -> FigureView:
    order = attribution.confusion_order(cache.ask(queries.sources, view.roster))
    own = set(order.loc[order["family"] == view.zoom, "source"])
    if not own:
        return FigureView(drawing.blank(view.theme), "Not measured yet.", _nobody(view))
    if len(own) == 1:
        return FigureView(drawing.blank(view.theme), "It has no siblings in this roster.", html.Span(className="few"))
    order = attribution.sibling_order(cells, order, view.zoom)
    figure = attribution.confusion_matrix(cells, order, theme=view.theme, zoom=view.zoom)
    together = ", in an order where those taken for each other stand together" if len(own) > 2 else ""
    sentence: shell.Children = [
        f"Rows are the true source, columns the answer at {drawing.traces(view.k)}"
        f"{together}; the last column is any other family. "
        f"n = {int(cells.loc[cells['truth'].isin(own), 'count'].sum()):,} groups over three seeds.",
        html.Span(" Point at a cell: it names its two sources.", className="pointing mouse-only"),
    ]
    return FigureView(figure, sentence)


def _confusions(cache: QueryCache, view: View) -> list[str]:
    """The largest confusions of siblings, one a line, most first."""
    own, cells = _own(cache, view).set_index("source")["name"], pieces.confusion(cache, view)
    cells = cells[cells["truth"].isin(own.index)]
    groups = cells.groupby("truth")["count"].sum()
    wrong = cells[cells["predicted"].isin(own.index) & (cells["truth"] != cells["predicted"])]
    wrong = wrong.sort_values("share", ascending=False, kind="stable").head(LARGEST)
    return [
        f"{own[one.truth]} is taken for {own[one.predicted]} in {percent(one.share)}, n = {groups[one.truth]:,} groups"
        for one in tables.rows(wrong)
    ]


def _largest(cache: QueryCache, view: View) -> list[Component]:
    """The largest confusions of siblings as a list; nothing where there are none."""
    lines = _confusions(cache, view)
    if not lines:
        return []
    title = f"{'Largest confusions' if len(lines) > 1 else 'One confusion'} of siblings at {drawing.traces(view.k)}"
    return [html.H3(title), html.Ol([html.Li(line) for line in lines])]


def _rows(cache: QueryCache, view: View) -> pd.DataFrame:
    own = _own(cache, view)[["source", "name", "access", "responses"]]
    table = pieces.source_accuracies(cache, view)
    budgets = [column for column in table if str(column).startswith("accuracy_") and table[column].notna().any()]
    near = cache.ask(queries.neighbor_table, cache.map_reader(view), view.roster, view.domain)
    frame = own.merge(table[["source", *budgets, "confused_with", "confused_name"]], on="source", how="left")
    kin = ["source", "nearest", "nearest_name", "nearest_family", "cosine", "same_5"]
    return frame.merge(near[kin], on="source", how="left")


def _members(cache: QueryCache, view: View) -> pieces.GridView:
    frame = _rows(cache, view)
    if frame.empty:
        return _nobody(view), "No source to show."
    frame = frame.assign(access=frame["access"].replace("api", "API"))
    budgets = [
        tables.number(column, column.removeprefix("accuracy_"), "rate", 54, filter=False)
        for column in map(str, frame)
        if column.startswith("accuracy_")
    ]
    smallest = [drawing.traces(int(budget["headerName"])) for budget in budgets[:1]]  # confusions are those at it
    columns = [
        tables.source("name", "Source", width=140),
        tables.words("access", "Access", 64),
        *([{"headerName": "Accuracy at budget K", "children": budgets}] if budgets else []),
        tables.source("confused_name", ", ".join(["Most confused with", *smallest]), "confused_with", 124)
        | {"wrapHeaderText": True},
        tables.source("nearest_name", "Nearest source", "nearest", 124),
        tables.number("cosine", "Cosine", "cosine", 72),
        tables.number(
            "same_5",
            "Siblings in 5 nearest",
            "count",
            90,
            wrapHeaderText=True,
            headerTooltip="How many of its five nearest are of its family",
        ),
    ]
    sentence = f"n = {pieces.counted(len(frame), 'source')} of the family in {view.roster}; a name leads to its page."
    return tables.grid("members-grid", frame, columns), sentence


def _reach_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    table = pieces.source_accuracies(cache, view)
    return table[table["family"] == view.zoom]


def _within_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Answers for the family's sources, in the order that the matrix has."""
    members = cache.ask(queries.sources, view.roster).set_index("source")
    cells = pieces.confusion(cache, view)
    order = attribution.confusion_order(members.reset_index())
    places = {source: at for at, source in enumerate(attribution.sibling_order(cells, order, view.zoom)["source"])}
    own = cells[cells["truth"].isin(list(places))]
    own = own.assign(row=own["truth"].map(places), column=own["predicted"].map(places))
    own = own.sort_values(["row", "column"], kind="stable").drop(columns=["row", "column"])
    names = {f"{end}_name": own[end].map(members["name"]) for end in ("truth", "predicted")}
    return own.assign(**names).reset_index(drop=True)


_REACH = pieces.without(_reach_rows, "position", "responses")
FIGURES = {
    "reach": PageFigure(
        "How soon are its sources named?", _reach, pieces.meta(_REACH, "source_accuracy", pieces.attribution_key), 380
    ),
    "leave": PageFigure(
        "Where do its errors go?", _leave, pieces.meta(_destinations, "confusion", pieces.attribution_key),
        lambda cache, view: sources.bars_height(len(_destinations(cache, view)), SHOWN),
    ),
    "within": PageFigure(
        "Which siblings are taken for each other?", _within,
        pieces.meta(_within_rows, "confusion", pieces.attribution_key), _within_height,
    ),
    "members": PageFigure(
        "Who belongs to it?", _members, pieces.meta(_rows, "source_accuracy", pieces.attribution_key), grid=True
    ),
}  # fmt: skip
PAGE = pieces.page("family", layout, register, FIGURES, path="/family/<name>", icon="")
