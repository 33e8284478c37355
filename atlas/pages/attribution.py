"""Accuracy: how many traces name a source, which sources are taken for which, and how sure that is."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from dash import ClientsideFunction, Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.development.base_component import Component

from atlas import drawing, shell
from atlas.data import VIEW_NAMES, VIEW_READS, QueryCache, questions
from atlas.drawing import FigureView
from atlas.figures import attribution as figures
from atlas.figures import plots, tables
from atlas.figures.plots import Line, figure_text, rate_text
from atlas.pages import pieces
from atlas.pages.compare.readers import home, measured, names_of, percent
from atlas.pages.compare.readouts import readouts
from atlas.pages.map import symbol_and_name
from atlas.pages.pieces import PageFigure
from atlas.state import BUDGETS, METRICS, OTHERS, View
from atlas.theme import INK, READER_COLOURS, TOKENS, own_places
from backend.attribution.report_words import is_dated
from backend.methods.registry import FUSED_LIVE, group_of
from backend.protocol import READER_PAPER
from backend.store import queries

AXES = {
    "accuracy": "Accuracy",
    "macro_f1": "Macro-F1",
    "nll": "NLL (nats a group; lower is better)",
    "ece": "ECE (lower is better)",
}
NAMED = 5
"""Lines that a figure names in a colour."""
LEVELS = (0.95, 0.9, 0.8, 0.5)
"""Shares of right answers; the highest that is reached says from how many traces on a source is clear."""
LISTED = 6
"""So many lines without a name are named in a figure's sentence; more are counted."""
APART = 0.2
"""How far from the chosen reader's a line ends whose name stands in free room."""
POSTERIORS = {"sum": "summed evidence", "mean": "mean evidence"}
CONTENTS = {
    "budget": "By traces", "confusion": "Confusions", "family": "Families", "folds": "Folds", "layers": "Layers",
    "sources": "Hard to tell",
}  # fmt: skip
OTHERS_HELP = "Draws the lines of other readers of the same text behind that of the header's reader, or leaves them out"
METRIC_HELP = {
    "Accuracy": "Share of groups of K traces whose source is named first",
    "Macro-F1": "Mean over the sources of the harmonic mean of precision and recall",
    "NLL": "Negative log-likelihood: the surprise at the true source; 0 is perfect",
    "ECE": "Expected calibration error: how far stated probabilities are from the rates that follow",
}


@drawing.page
def layout(cache: QueryCache, linked: View) -> Component:
    """The page of a view, or of the nearest one that has results."""
    view = cache.opened(linked)
    order = figures.confusion_order(cache.ask(queries.sources, view.roster))
    show = pieces.sections(FIGURES, cache, view)
    answer = [
        pieces.budget_choice("k", view),
        html.Div(_answer(cache, view), id="answer", className="answer", **shell.aria(live="polite")),
    ]
    contents = pieces.contents({f"figure-{name}": words for name, words in CONTENTS.items()})
    head = html.Div([html.H1("Accuracy"), html.Div(answer, className="answer-row"), contents], className="page-head")
    choices = [
        pieces.metric_choice("metric", view),
        pieces.reduction_choice("reduction", view),
        shell.segmented("others", OTHERS, view.others, "Compare", OTHERS_HELP),
    ]
    family = shell.select(
        "zoom", "Show one family alone", _zooms(order), value=view.zoom or None, clearable=True,
        placeholder="All families", size="xs", w=200,
    )  # fmt: skip
    zoom = html.Div([html.Label("Family", htmlFor="zoom", className="choice-label"), family], className="segmented")
    pair = [
        html.Label("True source", htmlFor="truth", className="choice-label"),
        shell.source_search("truth", cache, view.roster, view.truth, "A source", "True source"),
        html.Label("Named source", htmlFor="named", className="choice-label"),
        shell.source_search("named", cache, view.roster, view.answer, "A source", "Named source"),
        html.Button("Show the largest confusion", id="largest", className="quiet"),
        html.Button("Show its family alone", id="enlarge", className="quiet"),
        html.Div(_pair(cache, view), id="pair", **shell.aria(live="polite")),
    ]
    children = [
        shell.settled(linked, view),
        html.Div([head, show("budget", origin="", controls=choices)], className="first-screen"),
        show("confusion", controls=[zoom], aside=html.Div(pair, className="pair")),
        html.Div([show("family"), show("folds")], className="two"),
        show("layers"),
        show("sources"),
    ]
    return html.Div(children, className="column")


def register(app: Dash) -> None:
    """Callbacks of the page."""
    names = ("k", "metric", "reduction", "others", "zoom", "truth", "named")
    k, metric, reduction, others, zoom, truth, named = (Input(name, "value") for name in names)
    app.clientside_callback(
        ClientsideFunction("atlas", "attribution"), k, metric, reduction, others, zoom, truth, named
    )
    pieces.follow(app, FIGURES, "layers sources")
    answer = drawing.place("answer", _answer)
    pieces.follow(app, FIGURES, answer, "family folds", k=k, metric=metric, reduction=reduction)
    pieces.follow(app, FIGURES, "budget", k=k, metric=metric, reduction=reduction, others=others)
    pair = drawing.place("pair", _pair)
    pieces.follow(app, FIGURES, "confusion", pair, k=k, zoom=zoom, truth=truth, answer=named)

    @app.callback(
        Output("truth", "value"),
        Output("named", "value"),
        Input("confusion-graph", "clickData"),
        State("roster", "value"),
        State("zoom", "value"),
        prevent_initial_call=True,
    )
    def clicked(click: dict[str, Any] | None, roster: str, zoom: str | None) -> Any:
        points = (click or {}).get("points") or []
        if not points:
            return no_update, no_update
        order = figures.confusion_order(questions().ask(queries.sources, roster))
        truth, named = figures.cell_at(order, zoom or "", str(points[0].get("x")), str(points[0].get("y")))
        return (truth, named) if truth else (no_update, no_update)

    @app.callback(
        Output("truth", "value", allow_duplicate=True),
        Output("named", "value", allow_duplicate=True),
        Input("largest", "n_clicks"),
        zoom,
        State("truth", "value"),
        *(State(part.component_id, part.component_property) for part in (*shell.SHARED, k)),
        prevent_initial_call=True,
    )
    def largest(
        clicks: int | None, zoom: str | None, truth: str | None, reader: str, roster: str, domain: str, theme: str,
        k: str,
    ) -> Any:  # fmt: skip
        view = shell.shared_view(reader, roster, domain, theme, k=k, zoom=zoom or "", truth=truth or "")
        needed = outside(questions(), view) if ctx.triggered_id == "zoom" else clicks
        return (largest_confusion(questions(), view) if needed else None) or (no_update, no_update)

    @app.callback(
        Output("truth", "value", allow_duplicate=True),
        Output("named", "value", allow_duplicate=True),
        Output("zoom", "value"),
        Input("enlarge", "n_clicks"),
        State("truth", "value"),
        *(State(part.component_id, part.component_property) for part in (*shell.SHARED, k)),
        prevent_initial_call=True,
    )
    def enlarged(
        clicks: int | None, truth: str | None, reader: str, roster: str, domain: str, theme: str, k: str
    ) -> Any:
        view = shell.shared_view(reader, roster, domain, theme, k=k)
        pair = (no_update, no_update) if truth else largest_confusion(questions(), view) or (no_update, no_update)
        families = questions().ask(queries.sources, roster).set_index("source")["family"]
        family = families.get(truth or pair[0], "")
        several = (families == family).sum() > 1
        return (*pair, family if several else no_update) if clicks else (no_update,) * 3

    @app.callback(
        Output("zoom", "data"),
        Output("truth", "data"),
        Output("named", "data"),
        Input("roster", "value"),
        prevent_initial_call=True,
    )
    def offered(roster: str) -> Any:
        options = shell.source_options(questions(), roster)
        return _zooms(figures.confusion_order(questions().ask(queries.sources, roster))), options, options


# ---- what is drawn --------------------------------------------------------------------------------------------------


def _curve(cache: QueryCache, view: View, metric: str, others: list[str] | None = None) -> pd.DataFrame:
    """A metric of the chosen reader, or of others, by K."""
    readers = cache.attribution_reader(view) if others is None else others
    return cache.ask(queries.metric_curve, readers, view.roster, view.domain, "clean", metric, view.reduction)


def _stored(metric: str) -> list[str]:
    return [f"{metric}_{posterior}" for posterior in POSTERIORS] if metric in ("nll", "ece") else [metric]


def _answer(cache: QueryCache, view: View) -> list[Component | str]:
    """The page's answer first, in one sentence."""
    curve = pieces.curves(cache, view, cache.attribution_reader(view), "accuracy", view.reduction)
    here = curve[curve["k"] == view.k]
    if here.empty:
        return ["Nothing has been measured for this choice."]
    row = here.iloc[0]
    size = len(cache.ask(queries.sources, view.roster))
    traces = drawing.traces(view.k)
    return [
        f"With {traces}, {cache.reader_name(row['reader'])} names the right one of {size} sources ",
        html.Strong([f"{100 * row['value']:.1f} %", html.Span(pieces.spread_text(row), className="spread")]),
        " of the time",
        html.Span(f"; {pieces.against_chance(size, row['n']).removesuffix('.')}", className="page-only"),
        f".{_by_metric(cache, view, str(row['reader']))}",
        html.Span(_other_readers_here(cache, view, str(row["reader"])), className="answer-more"),
    ]


def _by_metric(cache: QueryCache, view: View, reader: str) -> str:
    """What the reader reaches at K by another metric than accuracy, as a sentence that follows the answer."""
    if view.metric == "accuracy":
        return ""
    values = []
    for stored in _stored(view.metric):
        curve = pieces.curves(cache, view, reader, stored, view.reduction)
        words = POSTERIORS.get(stored.rpartition("_")[2])
        for value in curve.loc[curve["k"] == view.k, "value"]:
            values.append(figure_text(value) + (f" ({words})" if words else ""))
    before = ", before calibration" if view.metric in ("nll", "ece") else ""
    return f" Its {METRICS[view.metric]} there{before}: {', '.join(values)}." if values else ""


def _other_readers_here(cache: QueryCache, view: View, reader: str) -> list[Component | str]:
    """The best reader that was measured here, and the live one, each a sentence with a link where it is another."""
    frame = measured(cache, dataclasses.replace(view, condition="clean"), view.reduction)
    here = frame[frame["k"].eq(view.k) & frame["origin"].eq("measured")].set_index("reader")["value"]
    live = here[[cache.reader_row(str(one))["method"] == FUSED_LIVE for one in here.index]]
    paper = cache.reader_row(reader)["method"] == READER_PAPER
    own = home(cache, view)
    sentences: list[Component | str] = []
    if view.domain != own:
        trained, tested = map(pieces.domain_words, (own, view.domain))
        sentences.append(f"Trained on {trained}: nothing of {tested} was seen before. ")
    aside = html.Span("READER is the paper's method; others are stronger readouts. ", className="page-only")
    sentences += [aside] if paper else []
    judge = "reader that judges your traces" if len(live) == 1 else "best reader of the kind that judges your traces"
    kinds = [("Best measured here", here), (f"The {judge}", live)]
    if len(live) and here.idxmax() == live.idxmax():
        kinds = [(f"Best measured here, the {judge}", here)]
    names = names_of(cache, [reader, *map(str, here.index.drop(reader, errors="ignore"))])
    for words, rates in kinds:
        if len(rates) and (other := str(rates.idxmax())) != reader:
            address = f"{PAGE.path}?{dataclasses.replace(view, reader=other).query()}"
            # Its line has the name too, and only that of the judge is in question on a slide.
            link = html.Span(
                [": ", dcc.Link(names[other], address), ","], className="" if "judges" in words else "page-only"
            )
            sentences.append(html.Span([words, link, f" {percent(here[other])}. "]))
    return sentences


def _budget(cache: QueryCache, view: View) -> FigureView:
    token = TOKENS[view.theme]
    reader = cache.attribution_reader(view)
    behind = _others(cache, view)
    parts, lines = [], []
    # Other readers are drawn by the mean evidence: a sum next to their lines would look better than all of them.
    for stored in _stored(view.metric)[-1 if len(behind) else 0 :]:
        posterior = stored.rpartition("_")[2]
        curve = pieces.curves(cache, view, reader, stored, view.reduction)
        if curve.empty:
            continue
        ink = READER_COLOURS[view.theme][own_places([reader]).get(reader, INK)]
        look = (token["soft"], "dot") if posterior == "sum" else (ink, "solid")
        lines.append(Line(stored, POSTERIORS.get(posterior, ""), *look))
        parts.append(curve.assign(line=stored))
    if not parts:
        return drawing.unmeasured(cache, view, "attribution")
    rivals = _rivals(cache, view, behind, parts[-1])
    name = names_of(cache, [reader, *(line.key for line in rivals if line.named)])[reader]
    own = [dataclasses.replace(line, label=", ".join(filter(None, (name, line.label)))) for line in lines]
    lines = [*rivals, *own]
    frame = pd.concat([pieces.without_bands(behind).assign(line=behind["reader"]), *parts], ignore_index=True)
    size = len(cache.ask(queries.sources, view.roster))
    unit = view.metric != "nll"
    chance = {"accuracy": 1 / max(size, 1), "nll": float(np.log(max(size, 1)))}.get(view.metric)
    figure = figures.budget_curves(
        frame, lines, theme=view.theme, axis=AXES[view.metric], k=view.k, chance=chance, unit=unit, values=True
    )
    singles = parts[0].loc[parts[0]["k"] == parts[0]["k"].min(), "n"].max()
    at_k = parts[0].loc[parts[0]["k"] == view.k, "n"]
    here = f", {int(at_k.max()):,} at K = {view.k}" if len(at_k) and view.k != parts[0]["k"].min() else ""
    domain = pieces.domain_words(view.domain)
    means = {"pooled": "folds pooled, mean over three seeds", "fold": "mean over five folds of the seeds' mean"}
    how = means[view.reduction]
    name = METRICS[view.metric]
    before = ", before calibration," if view.metric in ("nll", "ece") else ""
    kind = " (mean evidence)" if view.metric in ("nll", "ece") else ""
    drawn = set(frame["origin"])
    every = dcc.Link("All readers", f"/compare?{dataclasses.replace(view, tab='conditions', figure='every').query()}")
    others: list[Component | str] = [f"{_undrawn_best(cache, view, {reader, *behind['reader']})} ", every, ". "]
    others = others if len(behind) else []
    sentence: list[Component | str] = [
        *shell.origin_badges(drawn),
        f"{_clear_from(view, parts[-1])}{_better_readers(view, behind, parts[-1])} ",
        *others,
        shell.term(name, METRIC_HELP[name]),
        f"{before} on {domain} by {cache.reader_words(reader)}; {how}{pieces.bands_note(frame)}. n = {int(singles):,} "
        f"groups a seed at K = {int(parts[0]['k'].min())}{here}."
        + (f" Dashed and hollow: published{kind}, not measured here." if "published" in drawn else ""),
        *_grey_lines(cache, view, behind, rivals),
    ]
    return FigureView(figure, sentence)


def _grey_lines(cache: QueryCache, view: View, behind: pd.DataFrame, lines: Sequence[Line]) -> list[Component | str]:
    """Lines without a name at their end and their values at K, the best first; for slides, the range of these."""
    grey = [line.key for line in lines if not line.named]
    here = behind[behind["k"].eq(view.k) & behind["reader"].isin(grey)]
    here = here.sort_values("value", ascending=view.metric in ("nll", "ece"), kind="stable")
    names = names_of(cache, [cache.attribution_reader(view), *grey])
    values = [f"{names[reader]} {figure_text(value)}" for reader, value in tables.rows(here, "reader", "value")]
    if not values:
        return []
    ends = " to ".join(dict.fromkeys(figure_text(value) for value in sorted(here["value"].iloc[[0, -1]])))
    many = f"{plots.count(len(values), 'more reader')}, {ends} at K = {view.k}"
    said = "; ".join(values) if len(values) <= LISTED else f"{many}; the table names them"
    return [
        f" In grey, without a name there: {said}.",
        html.Span(f" · Grey, without a name: {many}.", className="slide-only"),
    ]


def _clear_from(view: View, own: pd.DataFrame) -> str:
    """From how many traces on the chosen reader is right most of the time, as a sentence; '' for other metrics."""
    for level in LEVELS if view.metric == "accuracy" else ():
        reached = own.loc[own["value"] >= level, "k"]
        if len(reached):
            return f"At least {100 * level:.0f} % are right from {drawing.traces(int(reached.min()))} on. "
    return ""


def _better_readers(view: View, behind: pd.DataFrame, own: pd.DataFrame) -> str:
    """How many other readers are better at K than the chosen one, by the evidence that is drawn; '' without any."""
    sign = -1 if view.metric in ("nll", "ece") else 1
    others, mine = (frame.loc[frame["k"] == view.k, "value"] for frame in (behind, own))
    if others.empty or mine.empty:
        return ""
    better = int((sign * others > sign * mine.iloc[0]).sum())
    evidence = POSTERIORS.get(_stored(view.metric)[-1].rpartition("_")[2])
    by = f" by {evidence}, as all lines are drawn" if evidence else ""
    return f"At K = {view.k}, {better} of the {len(others)} others drawn here are better than this one{by}."


def _undrawn_best(cache: QueryCache, view: View, drawn: set[str]) -> str:
    """The best reader without a line, where it is better at K than all that have one, as a sentence; '' else."""
    frame = measured(cache, dataclasses.replace(view, condition="clean"), view.reduction)
    here = frame[frame["k"].eq(view.k)].sort_values("value", ascending=False, kind="stable")
    if view.metric != "accuracy" or here.empty or (best := here.iloc[0])["reader"] in drawn:
        return ""
    origin = " (published)" if best["origin"] == "published" else ""
    return f" Better, and not drawn: {cache.reader_name(best['reader'])}{origin}, {figure_text(best['value'])}."


def _others(cache: QueryCache, view: View) -> pd.DataFrame:
    """The same metric of :func:`_other_readers`, in the columns of the chosen reader's curve."""
    return _curve(cache, view, _stored(view.metric)[-1], _other_readers(cache, view))


def _other_readers(cache: QueryCache, view: View) -> list[str]:
    """Readers whose lines stand behind the chosen one's, where they are wanted.

    They are the paper's readers that see the same text, readouts that were measured here, and all baselines but
    random ones, which the level of a guess stands for.
    """
    reader = cache.attribution_reader(view)
    if view.others != "on" or not reader:
        return []
    readers = cache.ask(queries.readers)
    reads = cache.reader_row(reader)["view"]
    alike = readers["method"].eq(READER_PAPER) & readers["view"].eq(reads if reads in VIEW_NAMES else "ur")
    ours = readers["reader"].isin(readouts(cache, view)["reader"]) & ~readers["method"].eq(READER_PAPER)
    baseline = readers["method"].map(group_of).eq("Baselines") & ~readers["method"].str.endswith("random")
    return list(readers.loc[(alike | ours | baseline) & readers["reader"].ne(reader), "reader"])


def _named(cache: QueryCache, view: View, behind: pd.DataFrame, own: pd.DataFrame) -> list[str]:
    """Readers whose lines have a colour and a name: the live one, the paper's, the best of each kind, the nearest.

    They are ranked by their mean over the budgets, so that another budget names no others.
    """
    means = behind.groupby("reader").agg(value=("value", "mean"), origin=("origin", "first"))
    ranked = means.sort_values("value", ascending=view.metric in ("nll", "ece"), kind="stable")
    methods = [cache.reader_row(reader)["method"] for reader in ranked.index]
    kinds: list[Any] = [[method == FUSED_LIVE for method in methods]]  # it judges a visitor's traces
    kinds += [ranked["origin"] == "measured", [method == READER_PAPER for method in methods]]
    kinds += [ranked["origin"] == "published", [group_of(method) == "Baselines" for method in methods]]
    near = (ranked["value"] - own["value"].mean()).abs().sort_values(kind="stable")
    first = [*(ranked.index[kind][:1] for kind in kinds), near.index[:1]]
    named = dict.fromkeys(str(reader) for readers in first for reader in readers)
    return list(named)[: NAMED - 1]


def _rivals(cache: QueryCache, view: View, behind: pd.DataFrame, own: pd.DataFrame) -> list[Line]:
    """Lines behind the chosen reader's, some of them with a name and a colour, which are drawn last.

    The two worst lines have a name too where they end far from the chosen reader's.
    """
    named = _named(cache, view, behind, own)
    here = behind[behind["k"] == view.k].sort_values("value", ascending=view.metric in ("nll", "ece"), kind="stable")
    last = behind.sort_values("k").groupby("reader")["value"].last()
    goal = own.sort_values("k")["value"].iloc[-1]
    worst = [str(reader) for reader in here["reader"][-2:] if reader not in named and abs(last[reader] - goal) > APART]
    shown = [cache.attribution_reader(view), *named, *worst]
    # A baseline is not the only one of its method where lines without a name are others of it.
    hidden = [reader for reader in dict.fromkeys(behind["reader"]) if reader not in shown]
    baselines = [one for one in hidden if group_of(cache.reader_row(one)["method"]) == "Baselines"]
    names = {reader: _brief(cache, reader, name) for reader, name in names_of(cache, shown, baselines).items()}
    edge, places = TOKENS[view.theme]["edge"], own_places([cache.attribution_reader(view), *named, *worst])
    colours = {key: READER_COLOURS[view.theme][place] for key, place in places.items()}
    return [
        *(
            Line(reader, cache.reader_name(reader), edge, front=False, named=False)
            for reader in dict.fromkeys(behind["reader"])
            if reader not in [*named, *worst]
        ),
        *(Line(reader, names[reader], colours.get(reader, edge), front=False) for reader in [*worst, *named]),
    ]


def _brief(cache: QueryCache, reader: str, name: str) -> str:
    """A reader's name without what it reads, where all of its method read the same."""
    readers, own = cache.ask(queries.readers), cache.reader_row(reader)
    alike = readers.loc[readers["method"] == own["method"], "view"].nunique() == 1
    return name.removesuffix(f" · {VIEW_READS.get(own['view'])}") if alike else name


@pieces.needs(pieces.confusion, pieces.unmeasured("confusion counts at K = {k}"))
def _confusion(cache: QueryCache, view: View, cells: pd.DataFrame) -> FigureView:
    order = figures.confusion_order(cache.ask(queries.sources, view.roster))
    zoom = view.zoom if view.zoom in set(order["family"]) else ""
    figure = figures.confusion_matrix(cells, order, theme=view.theme, zoom=zoom, clicked=(view.truth, view.answer))
    rows = cells[cells["truth"].isin(order.loc[order["family"] == zoom, "source"])] if zoom else cells
    total, wrong = int(rows["count"].sum()), int(rows.loc[rows["truth"] != rows["predicted"], "count"].sum())
    shown = f"{zoom} alone" if zoom else "families outlined, largest first"
    sentence: list[Component | str] = [
        _taken_for(cache, view, cells),
        f"Rows are the true source, columns the answer of {cache.reader_name(cache.attribution_reader(view))} at "
        f"{drawing.traces(view.k)}; {shown}. "
        f"n = {total:,} groups over three seeds{', of the same traces each' * (view.k == 1)}, {wrong:,} of them wrong.",
        html.Span(" Click a cell for its two sources.", className="pointing mouse-only"),
    ]
    return FigureView(figure, sentence)


def _taken_for(cache: QueryCache, view: View, cells: pd.DataFrame) -> str:
    """How often the chosen two sources are taken for each other, as a sentence; '' without two of the roster."""
    names = cache.ask(queries.sources, view.roster).set_index("source")["name"]
    if view.truth == view.answer or not {view.truth, view.answer} <= set(names.index):
        return ""
    share = cells.set_index(["truth", "predicted"])["share"]
    there, back = (percent(share.get(way, 0.0)) for way in ((view.truth, view.answer), (view.answer, view.truth)))
    truth, answer = names[view.truth], names[view.answer]
    alias = is_dated(truth, answer)
    one = "One name is the other's with a date: both may be one model, and an error between them is none then. "
    pair = f"{truth} is taken for {answer} in {there} of its groups, the other way in {back}."
    return f"With {drawing.traces(view.k)}, {pair} {one * alias}"


def outside(cache: QueryCache, view: View) -> bool:
    """Whether the chosen true source is of another family than the one that is shown alone."""
    families = cache.ask(queries.sources, view.roster).set_index("source")["family"]
    return bool(view.zoom and view.truth) and families.get(view.truth) != view.zoom


def largest_confusion(cache: QueryCache, view: View) -> tuple[str, str] | None:
    """True and answered source of the largest share of wrong answers, of the family shown alone; None without any."""
    cells = pieces.confusion(cache, view)
    wrong = cells[cells["truth"] != cells["predicted"]]
    if view.zoom:
        families = cache.ask(queries.sources, view.roster).set_index("source")["family"]
        wrong = wrong[wrong["truth"].map(families) == view.zoom]
    if wrong.empty:
        return None
    top = wrong.sort_values("share", ascending=False, kind="stable").iloc[0]
    return str(top["truth"]), str(top["predicted"])


def _zooms(order: pd.DataFrame) -> list[dict[str, str]]:
    sizes = order["family"].value_counts(sort=False)
    return [{"value": str(family), "label": f"{family} · {count}"} for family, count in sizes.items() if count > 1]


@pieces.needs(pieces.error_counts, pieces.unmeasured("error counts"))
def _families(cache: QueryCache, view: View, frame: pd.DataFrame) -> FigureView:
    expectation = figures.blind_share(cache.ask(queries.sources, view.roster)["family"])
    figure = figures.family_errors(frame, theme=view.theme, expectation=expectation, k=view.k)
    row = frame[frame["k"] == view.k]
    counted = f" n = {row['errors'].iloc[0]:,.0f} errors a seed at K = {view.k}." if len(row) else ""
    sentence = (
        f"Share of wrong answers that name a source of the same family; chance: {100 * expectation:.0f} %.{counted}"
    )
    return FigureView(figure, sentence)


def _fold_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    stored = _stored(view.metric)[-1]  # by the mean evidence, as the curves
    frame = cache.ask(queries.fold_spread, cache.attribution_reader(view), view.roster, view.domain, "clean", stored)
    return frame.assign(metric=stored)[["metric", "k", "fold", "value", "n"]]


@pieces.needs(_fold_rows, pieces.unmeasured("results by fold"))
def _folds(cache: QueryCache, view: View, frame: pd.DataFrame) -> FigureView:
    figure = figures.fold_spread(frame, theme=view.theme, axis=METRICS[view.metric], k=view.k)
    here = frame.loc[frame["k"] == view.k, "value"]
    between = f" At K = {view.k} they lie between {figure_text(here.min())} and {figure_text(here.max())}"
    between += f", {100 * np.ptp(here):.1f} points apart." if view.metric in ("accuracy", "macro_f1") else "."
    spread = between if len(here) else ""
    first, last = (frame[frame["k"] == k] for k in (frame["k"].min(), frame["k"].max()))
    if np.ptp(last["value"]) > np.ptp(first["value"]) and last["n"].max() < first["n"].max():
        few = f"from {first['n'].max():,.0f} a fold and seed at K = {first['k'].iloc[0]} to {last['n'].max():,.0f}"
        spread += f" The spread widens with K because groups get few: {few} at K = {last['k'].iloc[0]}."
    folds = int(frame["fold"].nunique())
    evidence = POSTERIORS.get(_stored(view.metric)[-1].rpartition("_")[2])
    by = f" by {evidence}" if evidence else ""
    where = "on each held-out fifth of the prompts"
    if view.domain != "agent500":
        where = f"on all of {pieces.domain_words(view.domain)} by the model of each of the five folds"
    sentence = f"{METRICS[view.metric]}{by} {where}, less their mean.{spread} n = {folds} folds."
    return FigureView(figure, sentence)


def _layers(cache: QueryCache, view: View) -> FigureView:
    reader = cache.attribution_reader(view)
    curve = cache.ask(queries.layer_curve, reader, view.roster)
    selected = cache.ask(queries.selected_layers, reader, view.roster)
    if curve.empty and reader and cache.reader_row(reader)["method"] != READER_PAPER:
        usual = cache.usual(view)
        return drawing.nothing(
            view,
            "Layers are compared for the paper's readout alone",
            "Choose READER above to see which layer it reads",
            [(f"Show {cache.reader_name(usual.reader)}", f"{PAGE.path}?{usual.query()}")],
        )
    if curve.empty:
        return drawing.unmeasured(cache, view, "layer curve")
    figure = figures.layer_curve(curve, selected, theme=view.theme)
    chosen = selected.loc[selected["outer_fold"].notna(), "layer"]
    rings = "a ring gives the number of outer folds that chose the layer, bold where most did"
    if chosen.nunique() == 1:
        rings = f"all {len(chosen)} outer folds chose layer {chosen.iloc[0]}, the ring"
    same = f"Chosen on Agent500, and read on {pieces.domain_words(view.domain)} as it is. "
    sentence: list[Component | str] = [
        f"{same * (view.domain != 'agent500')}Accuracy on the inner validation folds, which never hold a test prompt, "
        "for every ",
        shell.term("layer", "A Transformer block of the proxy; the fingerprint is read after it"),
        f"; {rings}. Band: range over the outer folds; the axis does not begin at 0. "
        f"Every layer was fitted {int(curve['fits'].max())} times.",
    ]
    return FigureView(figure, sentence)


def _sources(cache: QueryCache, view: View) -> pieces.GridView:
    frame = pieces.source_accuracies(cache, view)
    if frame.empty:
        absent, _ = drawing.absent(drawing.unmeasured(cache, view, "accuracy by source"))
        return absent, "Nothing has been measured for this choice."
    frame = frame.sort_values("accuracy_1", kind="stable", na_position="last")
    sentence: list[Component | str] = [
        "Accuracy of every source at each budget, hardest first at one trace, and the wrong answer that it gets most "
        f"often there, with how often{_groups_each(cache, view)}. n = {len(frame)} sources",
        html.Span("; sort or filter by any column", className="pointing"),
        ".",
        pieces.more_columns(),
    ]
    number = {"type": "rightAligned", "flex": 0, "filter": "agNumberColumnFilter"}
    rate = {"function": shell.NUMBER_COLUMNS["rate"]}
    budgets = [
        {**number, "field": f"accuracy_{k}", "headerName": str(k), "valueFormatter": rate, "width": 50}
        for k in BUDGETS
        if frame[f"accuracy_{k}"].notna().any()
    ]
    words = {"filter": "agTextColumnFilter", "floatingFilter": True}
    frame = frame.assign(access=frame["access"].replace("api", "API"))
    often = {**number, "field": "confused_count", "headerName": "Times", "width": 72}
    often["headerTooltip"] = "In how many of its groups at one trace"
    columns: list[tables.Column] = [
        tables.source("name", "Source", width=146),
        {"headerName": "Accuracy at budget K", "children": budgets},  # a phone shows four of them
        {**words, "field": "family", "headerName": "Family", "width": 104},
        {**words, "field": "access", "headerName": "Access", "width": 80},
        tables.source("confused_name", "Most confused with", "confused_with", 160),
        tables.at_scrollbar(often),
    ]  # fmt: skip
    return shell.ag_grid("source-grid", frame, columns, tables.PLAIN, {}), sentence


def _groups_each(cache: QueryCache, view: View) -> str:
    """Of how many groups the wrong answers of a source at one trace are, in words; '' where sources differ."""

    def groups(k: int) -> list[int]:
        return list(pieces.confusion(cache, view, k).groupby("truth")["count"].sum().unique())

    one, last = groups(1), groups(BUDGETS[-1])
    few = f"; at K = {BUDGETS[-1]} it has {last[0]} groups" if len(last) == 1 else ""
    return f" in its {one[0]:,} groups (every trace once in each of three seeds{few})" if len(one) == 1 else ""


# ---- a pair of sources ----------------------------------------------------------------------------------------------


def _pair(cache: QueryCache, view: View) -> list[Component]:
    """Both sources of a clicked cell and their numbers at every budget."""
    if not view.truth or not view.answer:
        ask = "choose two sources: their numbers appear here."
        mouse = html.Span(f"Click a cell, or {ask}", className="pointing mouse-only")
        touch = html.Span(ask.capitalize(), className="touch-only")  # a finger covers many cells
        return [pieces.words(mouse, touch)]
    members = cache.ask(queries.sources, view.roster).set_index("source")
    if view.truth not in members.index or view.answer not in members.index:
        return [pieces.words(f"One of the two sources is not in {view.roster}.", caution=True)]
    heads = [
        symbol_and_name(cache.marks()[str(members.at[source, "family"])], view.theme, str(members.at[source, "name"]))
        for source in (view.truth, view.answer)
    ]
    same = view.truth == view.answer
    body = []
    accuracy = pieces.source_accuracies(cache, view).set_index("source")
    for k in BUDGETS:
        cells = pieces.confusion(cache, view, k)
        if cells.empty:
            continue
        share = cells.set_index(["truth", "predicted"])["share"]
        groups = cells.groupby("truth")["count"].sum()
        ways = [(view.truth, view.answer), (view.answer, view.truth)]
        numbers = [
            number
            for way in ways[: 1 if same else 2]
            for number in ([] if same else [share.get(way, 0.0)]) + [accuracy.at[way[0], f"accuracy_{k}"]]
        ]
        many = " / ".join(dict.fromkeys(f"{groups.get(way[0], 0):,}" for way in ways))
        rates = [rate_text(one) if one < 1 else "1" for one in numbers]
        body.append(pieces.row(str(k), *rates, many, here=k == view.k))
    columns = ["K", "right", "n"] if same else ["K", *(["taken for the other", "right"] * 2), "n"]
    table = shell.small_table(columns, body, kind="small")
    if not same:
        names = [str(members.at[source, "name"]) for source in (view.truth, view.answer)]
        spans = [html.Th(name, colSpan=2, scope="colgroup") for name in names]
        table.children[0].children = [html.Tr([html.Td(), *spans, html.Td()]), table.children[0].children]
    parts: list[Component] = [html.Div(heads, className="pair-heads"), table]
    reader = cache.map_reader(view)
    near = cache.ask(queries.neighbors, reader, view.roster, view.domain, view.truth) if reader and not same else None
    if near is not None:
        row = near[near["neighbor"] == view.answer]
        if len(row):
            one = row.iloc[0]
            ranks, others = (int(one["rank"]), int(one["rank_back"])), pieces.roster_size(cache, view) - 1
            places = f"the second is number {ranks[0]} from the first, and the first number {ranks[1]} from the second"
            near_by = "each is the other's nearest" if ranks == (1, 1) else places
            parts.append(
                pieces.words(f"By signatures, of {others} others {near_by} (cosine {rate_text(one['cosine'])}).")
            )
    link = "?".join(("/", dataclasses.replace(view, truth="", answer="", zoom="", source=view.truth).query()))
    parts.append(dcc.Link("Show the true source on the map", href=link, className="forward"))
    return parts


# ---- what the figures say of themselves -----------------------------------------------------------------------------


def _budget_table(cache: QueryCache, view: View) -> pd.DataFrame:
    parts = [
        _curve(cache, view, stored).assign(metric=stored, reduction=view.reduction) for stored in _stored(view.metric)
    ]
    if cache.attribution_reader(view):
        parts.append(_others(cache, view).assign(metric=_stored(view.metric)[-1], reduction=view.reduction))
    frame = pd.concat(parts, ignore_index=True)
    return frame[["name", "metric", "reduction", "k", "value", "std", "n", "origin", "build_id"]]


def _confusion_table(cache: QueryCache, view: View) -> pd.DataFrame:
    cells = pieces.confusion(cache, view)
    members = cache.ask(queries.sources, view.roster).set_index("source")
    frame = cells.assign(
        **{
            f"{side}_{field}": cells[side].map(members[field])
            for side in ("truth", "predicted")
            for field in ("name", "family")
        }
    )
    if view.zoom:
        frame = frame[frame["truth_family"] == view.zoom]
    sides = [f"{side}{field}" for side in ("truth", "predicted") for field in ("", "_name", "_family")]
    return frame[[*sides, "count", "share"]].sort_values("count", ascending=False).reset_index(drop=True)


def _families_table(cache: QueryCache, view: View) -> pd.DataFrame:
    frame = pieces.error_counts(cache, view)
    return frame.assign(share=frame["errors_within_family"] / frame["errors"].where(frame["errors"] > 0))


def _layers_table(cache: QueryCache, view: View) -> pd.DataFrame:
    reader = cache.attribution_reader(view)
    curve = cache.ask(queries.layer_curve, reader, view.roster)
    chosen = cache.ask(queries.selected_layers, reader, view.roster)
    folds = chosen[chosen["outer_fold"].notna()].groupby("layer").size()
    modal = set(chosen.loc[chosen["outer_fold"].isna(), "layer"])
    return curve.assign(
        folds_that_chose_it=curve["layer"].map(folds).fillna(0).astype(int),
        modal=["yes" if layer in modal else "" for layer in curve["layer"]],
    )


_by_budget = functools.partial(pieces.meta, store="attribution_metrics", key=pieces.attribution_key)
FIGURES = {
    "budget": PageFigure("How many traces until the source is clear?", _budget, _by_budget(_budget_table), 400),
    "confusion": PageFigure(
        "Which sources are taken for which?", _confusion, pieces.meta(_confusion_table, "confusion", pieces.budget_key),
        figures.MATRIX_HEIGHT,
    ),
    "family": PageFigure("When it errs, does it stay in the family?", _families, _by_budget(_families_table), 320),
    "folds": PageFigure("How much do the five folds disagree?", _folds, _by_budget(_fold_rows), 320),
    "layers": PageFigure(
        "Which layer of the proxy tells sources apart best?", _layers, pieces.meta(
            _layers_table, "layer_scores",
            lambda cache, view: {"reader": cache.attribution_reader(view), "roster": view.roster},
        ), 340,
    ),
    "sources": PageFigure(
        "Which sources are hard to tell?", _sources,
        pieces.meta(pieces.source_accuracies, "source_accuracy", pieces.attribution_key), 560, grid=True,
    ),
}  # fmt: skip
PAGE = dataclasses.replace(pieces.page("attribution", layout, register, FIGURES), title="Accuracy")
