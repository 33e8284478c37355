"""Pieces that pages share: figures with rows and builds, curves with bands, small tables, fields, heads."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from urllib.parse import unquote

import dash_mantine_components as dmc
import numpy as np
import pandas as pd
from dash import Dash, Input, Output, State, html, no_update
from dash.development.base_component import Component

from atlas import drawing, shell
from atlas.data import CONDITION_NAMES, DOMAIN_NAMES, GLOBAL, QueryCache, questions
from atlas.drawing import FigureView
from atlas.figures import tables
from atlas.figures.dots import height_of
from atlas.figures.relationships import readout_words
from atlas.state import BUDGETS, MEASURES, METRICS, REDUCTIONS, View
from backend.enrolment.catalogue import alike
from backend.store import queries

ACCESS_WORDS = {"local": "local weights", "api": "API"}
GridView = tuple[Component, shell.Children]  # a grid, or what stands in its place, and its sentence
T = TypeVar("T")
Draw = Callable[[QueryCache, View], FigureView]
Height = Callable[[QueryCache, View], int]
Rows = Callable[[QueryCache, View], pd.DataFrame]
Builds = Callable[[QueryCache, View], tuple[str, dict[str, object]]]
Key = Callable[[QueryCache, View], dict[str, object]]
PERCENTILE_HELP = "Share of all pairs of sources of the roster that are less alike"
CHANCE_HELP = "How often a pair of sources drawn at random is at least as alike"
ORIGINAL_HELP = "All dimensions of the fingerprint, before any projection to the screen"
SHARED_HELP = "Of the sources among the ten nearest on the map or in the original space, the share among both (Jaccard)"
BUDGET_HELP = "How many traces of one source, a group, are added up for one answer"
METRIC_HELP = (
    "Accuracy: share of groups whose source is named first. Macro-F1: every source counts alike. NLL and ECE: how far "
    "stated probabilities are from the truth; lower is better"
)
REDUCTION_HELP = (
    "How the five folds become one number. Pooled: all groups together, then the mean over three seeds. By fold: each "
    "fold alone, then the mean and the spread of the five"
)
LEAD = [
    *("name", "reader", "other", "readout", "responses", "condition", "benchmark", "fold", "metric"),
    *("k", "value", "std", "low", "high", "n"),
]
"""Columns of a figure's table that stand first, in this order."""
NEAREST = 10
"""Neighbours of a source that are listed."""
INTERVAL = "95 % interval"
FOLDS = "one standard deviation over the folds"


# ---- words ----------------------------------------------------------------------------------------------------------


def domain_words(domain: str) -> str:
    """A domain as people know it."""
    return DOMAIN_NAMES.get(domain, domain)


def condition_words(condition: str) -> str:
    """What was done to traces, in words."""
    return CONDITION_NAMES.get(condition, condition)


def counted(number: int, word: str) -> str:
    """A number of things: '1 machine', '2 machines'."""
    return f"{number} {word}{'' if number == 1 else 's'}"


def count_text(value: float) -> str:
    """A whole number in a table; '–' where it is missing."""
    return "–" if pd.isna(value) else f"{value:.0f}"


def choices_query(view: View, **own: Any) -> str:
    """Query of a link: the choices of the header, and some of a page."""
    return View(reader=view.reader, roster=view.roster, domain=view.domain, theme=view.theme, **own).query()


def ordinal(place: int) -> str:
    """A place in a row: '1st', '12th'."""
    return f"{place}{'th' if 10 <= place % 100 <= 20 else {1: 'st', 2: 'nd', 3: 'rd'}.get(place % 10, 'th')}"


def roster_size(cache: QueryCache, view: View) -> int:
    """Sources of the roster of a view."""
    return len(cache.ask(queries.sources, view.roster))


def response_counts(cache: QueryCache, view: View, total: int) -> str:
    """How many responses of a source the atlas holds, those of other domains apart where the builds say so."""
    counts = {}
    for domain in cache.domains():
        key = map_key("reader", "roster", "domain")(cache, dataclasses.replace(view, domain=domain))
        for details in cache.ask(queries.builds_of, "signatures", key)["details"].head(1):
            counts[domain_words(domain)] = json.loads(details).get("prompts", 0)
    if sum(counts.values()) != total or len(counts) < 2:
        return f"{total:,}"
    others = [f"{count:,} {domain}" for domain, count in counts.items() if domain != domain_words(view.domain)]
    return " + ".join([f"{counts[domain_words(view.domain)]:,}", *others])


# ---- components -----------------------------------------------------------------------------------------------------


def marked(*parts: Component | str, **more: Any) -> Component:
    """Parts in one line: a mark and a name, a name and a badge."""
    return html.Span(list(parts), className="marked", **more)


def reader_mark(name: str, origin: str, colour: str | None = None, **more: Any) -> Component:
    """A reader's name with its origin, and with the colour of its line where it has one."""
    swatch = (
        [html.Span(className="swatch", style={"background": colour}, **shell.aria(hidden="true"))] if colour else []
    )
    return marked(*swatch, html.Span(name, className="reader-name", **more), shell.origin_badge(origin))


def live(identity: str, children: shell.Children, **more: Any) -> Component:
    """A place whose changes are read aloud."""
    return html.Div(children, id=identity, **shell.aria(live="polite"), **more)


def words(*parts: Component | str, caution: bool = False) -> Component:
    """A sentence."""
    text = list(parts) if len(parts) > 1 else parts[0]
    return html.P(text, className="sentence caution" if caution else "sentence")


def number(text: shell.Children, soft: bool = False) -> Component:
    """A number in a line of a list."""
    return html.Span(text, className="number soft" if soft else "number")


def table(heads: Sequence[Component | str], rows: Sequence[Component], kind: str = "wide") -> Component:
    """A small table of rows of :func:`row`; a head that is a cell already stays as it is."""
    cells = [head if isinstance(head, html.Th) else html.Th(head, scope="col") for head in heads]
    return html.Table([html.Thead(html.Tr(cells)), html.Tbody(list(rows))], className=f"small {kind}")


def row(name: shell.Children, *values: shell.Children, here: bool | None = None, **more: Any) -> Component:
    """A row of a small table; ``here`` marks that of the reader that the page shows."""
    cells = [html.Th(name, scope="row", **more), *[html.Td(value) for value in values]]
    return html.Tr(cells) if here is None else html.Tr(cells, className="here" if here else "")


def contents(places: Mapping[str, str]) -> Component:
    """A line of links to places of a page, by their words."""
    links = [html.A(word, href=f"#{place}") for place, word in places.items()]
    return html.Nav(links, className="chapters", **shell.aria(label="On this page"))


def folded(words: str, content: Component) -> Component:
    """A part of a page that opens on demand."""
    return html.Details([html.Summary(words), content], className="folded chapter")


def scrolling(content: Component) -> Component:
    """What may be wider than its place."""
    return html.Div(content, className="scroll-x")


def more_columns() -> Component:
    """What a narrow screen says of a wide table."""
    return html.Span(" More columns are to the right: swipe the table.", className="narrow-only")


def select(
    identity: str, data: Sequence[Any], value: Any, label: str, kind: Any = dmc.Select, **more: Any
) -> Component:
    """A list to choose from, one or (``dmc.MultiSelect``) several."""
    return shell.select(identity, label, data, kind, value=value, **{"size": "sm", **more})


def budget_choice(identity: str, view: View, label: str = "Budget K") -> Component:
    """The budgets of traces in a row."""
    return shell.segmented(identity, {k: str(k) for k in BUDGETS}, view.k, label, BUDGET_HELP)


def metric_choice(identity: str, view: View) -> Component:
    """The metrics of an attribution in a row."""
    return shell.segmented(identity, METRICS, view.metric, "Metric", METRIC_HELP)


def reduction_choice(identity: str, view: View) -> Component:
    """How folds become one number."""
    return shell.segmented(identity, REDUCTIONS, view.reduction, "Reduction", REDUCTION_HELP)


def source_field(
    identity: str, cache: QueryCache, view: View, value: str, title: str, hint: str, label: str
) -> Component:
    """A field that finds a source, under its title."""
    return shell.labelled(title, identity, shell.source_search(identity, cache, view.roster, value, hint, label))


# ---- pages of one source or family ----------------------------------------------------------------------------------


def subject_page(kind: str, variable: str, field: str) -> Callable[..., Callable[..., Component]]:
    """A layout for an address that names a subject, out of one for the view as requested and as it opens."""

    def decorate(lay: Callable[[QueryCache, View, View], Component]) -> Callable[..., Component]:
        def layout(**query: str) -> Component:
            cache, name = questions(), unquote(query.pop(variable, ""))
            problem = cache.problem()
            if problem is not None:
                return shell.no_generation(problem)
            called = _labels(cache, field)
            requested = cache.resolve_view(View.parse({**query, field: called.get(name, name)}))
            if not getattr(requested, field):
                near = alike(name, called)
                if field == "zoom":  # families are few
                    near = list(dict.fromkeys([*near, *called]))
                return shell.unknown(kind, name, requested, [(one, called[one]) for one in near])
            return shell.of_generation(lay(cache, requested, cache.opened(requested)), cache.generation().name)

        return layout

    return decorate


def _labels(cache: QueryCache, field: str) -> dict[str, str]:
    """Labels of all families (``zoom``) or sources by their names: an address may have either."""
    if field == "zoom":
        return {family: family for family in cache.marks()}
    rosters = [cache.ask(queries.sources, roster) for roster in cache.ask(queries.rosters)["roster"]]
    return {name: label for members in rosters for name, label in members[["name", "source"]].to_numpy()}


def subject_head(
    kind: str, kicker: shell.Children, title: shell.Children, facts: Component, answer: shell.Children, view: View
) -> Component:
    """The head of a source's or family's page: what it is, its facts, and its answer at a budget."""
    asking = [budget_choice(f"{kind}-k", view), live(f"{kind}-answer", answer, className="answer")]
    parts = [html.P(kicker, className="kicker"), html.H1(title, className="source-title"), facts]
    return html.Div([*parts, html.Div(asking, className="answer-row")], className="page-head")


# ---- figures of a page ----------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class PageFigure:
    """A figure of a page: its question, how it is drawn, its rows and builds, and its height."""

    question: str
    draw: Callable[[QueryCache, View], FigureView | GridView]
    meta: shell.FigureMeta
    height: int | Height | None = None  # in pixels; None: as high as its rows
    grid: bool = False  # a table

    def section(self, name: str, cache: QueryCache, view: View, **options: Any) -> Component:
        """The figure as part of a layout; options go to ``figure_section`` or ``grid_section`` of the shell."""
        height = self.height(cache, view) if callable(self.height) else self.height
        options = {"height": height, **options}
        if "origin" not in options:
            options["origin"] = cache.origin(self.meta.reader(cache, view))
        drawn = self.draw(cache, view)
        if not isinstance(drawn, FigureView):
            return shell.grid_section(name, self.question, *drawn, **options)
        options["height"] = options["height"] or height_of(drawn.figure)
        return drawing.section(name, self.question, drawn, **options)

    def parts(self, name: str) -> list[drawing.Part]:
        """What changes of the figure when a choice does."""
        style = (Output({"type": "body", "figure": name}, "style"),)
        draw: Any = self.draw
        part = drawing.grid(name, draw) if self.grid else drawing.figure(name, draw)
        if callable(height := self.height):
            return [part, drawing.Part(style, lambda cache, view: ({"height": height(cache, view)},))]
        if height or self.grid:
            return [part]

        def fill(cache: QueryCache, view: View) -> tuple[Any, ...]:
            drawn = draw(cache, view)
            return (*drawn, {"height": height_of(drawn.figure)})

        return [drawing.Part(part.outputs + style, fill)]


Figures = Mapping[str, PageFigure]


def page(
    name: str, layout: Callable[..., Component], register: Callable[[Dash], None], figures: Mapping[str, Any],
    path: str | None = None, icon: str | None = None,
) -> shell.Page:  # fmt: skip
    """A page, by default at the path and with the icon of its name; figures : :class:`PageFigure` or ``FigureMeta``."""
    metas = {key: figure.meta if isinstance(figure, PageFigure) else figure for key, figure in figures.items()}
    path, icon = f"/{name}" if path is None else path, name if icon is None else icon
    return shell.Page(name, path, name.capitalize(), icon, layout, register, metas)


def sections(figures: Figures, cache: QueryCache, view: View, **common: Any) -> Callable[..., Component]:
    """A function that lays out a figure of a page by its name, with options that they have in common."""
    return lambda name, **own: figures[name].section(name, cache, view, **common | own)


def follow(app: Dash, figures: Figures, *parts: str | drawing.Part, **own: Input | State) -> None:
    """Make figures, by names in a row, and other parts again when a choice changes (see ``drawing.follow``)."""
    every: list[drawing.Part] = []
    for part in parts:
        if isinstance(part, str):
            every += [one for name in part.split() for one in figures[name].parts(name)]
        else:
            every.append(part)
    drawing.follow(app, *every, **own)


def offer_sources(app: Dash, *fields: str) -> None:
    """Offer the sources of a roster in some fields when it changes."""

    @app.callback(*[Output(name, "data") for name in fields], Input("roster", "value"), prevent_initial_call=True)
    def offered(roster: str | None) -> Any:
        options = shell.source_options(questions(), roster) if roster else no_update
        return options if len(fields) == 1 else (options,) * len(fields)


def needs(
    rows: Rows, absent: Callable[[QueryCache, View], T]
) -> Callable[[Callable[[QueryCache, View, pd.DataFrame], T]], Callable[[QueryCache, View], T]]:
    """Draw rows; ``absent`` says what to do where there are none."""

    def decorate(draw: Callable[[QueryCache, View, pd.DataFrame], T]) -> Callable[[QueryCache, View], T]:
        @functools.wraps(draw)
        def drawn(cache: QueryCache, view: View) -> T:
            frame = rows(cache, view)
            return absent(cache, view) if frame.empty else draw(cache, view, frame)

        return drawn

    return decorate


def unmeasured(what: str, path: str = "/attribution") -> Draw:
    """What stands in place of a figure of attribution; ``what`` may name the metric and the budget in braces."""
    return lambda cache, view: drawing.unmeasured(
        cache, view, what.format(metric=METRICS[view.metric].lower(), k=view.k), path
    )


def unmapped(what: str) -> Draw:
    """What stands in place of a figure of the map's reader."""
    return lambda cache, view: drawing.unmapped(cache, view, what)


def no_grid(absent: Draw) -> Callable[[QueryCache, View], GridView]:
    """What stands in place of a grid."""
    return lambda cache, view: drawing.absent(absent(cache, view))


# ---- rows and builds ------------------------------------------------------------------------------------------------


def confusion(cache: QueryCache, view: View, k: int | None = None) -> pd.DataFrame:
    """Confusion counts of the reader of a view, by default at its budget."""
    return cache.ask(queries.confusion, cache.attribution_reader(view), view.roster, k or view.k, view.domain)


def taken_for(cache: QueryCache, view: View, names: Mapping[str, str]) -> list[str]:
    """How often the first two of some sources are taken for each other at a view's budget, as sentences."""
    cells, out = confusion(cache, view), []
    for truth, answer in itertools.permutations(list(names)[:2], 2):
        groups = cells[cells["truth"] == truth]
        taken, total = int(groups.loc[groups["predicted"] == answer, "count"].sum()), int(groups["count"].sum())
        many = f"{taken:,} of {total:,} groups of {drawing.traces(view.k)}"
        out += [f"{names[truth]} is taken for {names[answer]} in {many}."] if total else []
    return out


def source_accuracies(cache: QueryCache, view: View) -> pd.DataFrame:
    """Accuracy of every source at every budget, and what it is taken for."""
    return cache.ask(queries.source_table, cache.attribution_reader(view), view.roster, view.domain)


def error_counts(cache: QueryCache, view: View) -> pd.DataFrame:
    """Errors at every budget, and those that stay in the family (columns k, errors, n, errors_within_family)."""
    errors, within = (
        cache.ask(queries.metric_curve, cache.attribution_reader(view), view.roster, view.domain, "clean", metric)
        for metric in ("errors", "errors_within_family")
    )
    frame = errors[["k", "value", "n"]].rename(columns={"value": "errors"})
    return frame.merge(within[["k", "value"]].rename(columns={"value": "errors_within_family"}), on="k")


def nearest_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """The nearest sources of the selected one."""
    return cache.ask(queries.neighbors, cache.map_reader(view), view.roster, view.domain, view.source, NEAREST)


def chance_of(percentile: pd.Series, size: int) -> pd.Series:
    """Share of all pairs of a roster of so many sources that are at least as alike: the p of a pair drawn at random."""
    return (1 - percentile).clip(lower=1 / (size * (size - 1) / 2))


def attribution_key(cache: QueryCache, view: View) -> dict[str, object]:
    """What rows about attribution have in common."""
    return {"reader": cache.attribution_reader(view), "roster": view.roster, "benchmark": view.domain}


def budget_key(cache: QueryCache, view: View) -> dict[str, object]:
    """What rows about attribution at a budget have in common."""
    return attribution_key(cache, view) | {"k": view.k}


def drawing_quality(cache: QueryCache, view: View) -> dict[str, float]:
    """How far a view's map can be trusted, by metric."""
    quality = cache.ask(queries.projection_quality, cache.map_reader(view), view.roster, view.domain)
    here = quality[(quality["method"] == view.projection) & (quality["dimensions"] == view.dim)]
    return dict(zip(here["metric"], here["value"], strict=True))


def map_key(*names: str) -> Key:
    """What rows about geometry have in common: some of reader, roster and domain."""

    def key(cache: QueryCache, view: View) -> dict[str, object]:
        values = {"reader": cache.map_reader(view), "roster": view.roster, "domain": view.domain}
        return {name: values[name] for name in names}

    return key


def rows_of(query: Callable[..., pd.DataFrame], *names: str) -> Rows:
    """Rows of a query about some of reader, roster and domain of the map."""
    return lambda cache, view: cache.ask(query, *map_key(*names)(cache, view).values())


def builds(store: str, key: Key) -> Builds:
    """Builds of rows of a table of the store."""
    return lambda cache, view: (store, key(cache, view))


def meta(
    rows: Rows, store: str, key: Key, reader: Callable[[QueryCache, View], str] = QueryCache.attribution_reader
) -> shell.FigureMeta:
    """A figure's rows, and the table of the store that they come from."""
    return shell.FigureMeta(rows, builds(store, key), reader)


def accuracy_builds(readers: Callable[[QueryCache, View], Iterable[str]]) -> Builds:
    """Builds of the accuracy of some readers."""

    def key(cache: QueryCache, view: View) -> dict[str, object]:
        names = tuple(dict.fromkeys(readers(cache, view)))
        return {"reader": names, "roster": view.roster, "metric": "accuracy"}

    return builds("attribution_metrics", key)


def without(rows: Rows, *columns: str) -> Rows:
    """Rows without columns that only the drawing needs."""
    return lambda cache, view: rows(cache, view).drop(columns=list(columns), errors="ignore").reset_index(drop=True)


def readable(cache: QueryCache, frame: pd.DataFrame, view: View) -> tuple[pd.DataFrame, dict[str, str]]:
    """Rows of a figure as a page shows them, names for codes and numbers first, and heads of columns.

    Columns that hold a choice of the view alone are left out, which the page's controls say, and an origin that is
    everywhere the usual one.
    """
    readers = tables.rows(cache.ask(queries.readers), "reader", "name")
    called = {code: cache.reader_name(one.reader) for one in readers for code in (one.reader, one.name)}
    words: dict[str, Callable[[Any], Any]] = {
        **dict.fromkeys(("name", "reader", "subject", "reference", "other"), lambda code: called.get(code, code)),
        **dict.fromkeys(("readout", "subject_readout", "reference_readout"), readout_words),
        "benchmark": domain_words, "condition": condition_words,
        "reduction": lambda code: REDUCTIONS.get(code, code), "origin": lambda code: shell.ORIGINS.get(code, code),
        "metric": lambda code: (METRICS | MEASURES).get(code) or shell.header(code),
    }  # fmt: skip
    out = frame.assign(**{name: frame[name].map(tell) for name, tell in words.items() if name in frame})
    # A name of its own counts where its code is not known, or tells of something else: sources near one of a reader.
    whose = {"reader", "family"} & set(frame) == {"reader"}
    if whose and "name" in frame:
        known = zip(frame["reader"], out["name"], strict=True)
        out["name"] = [called.get(code, name) for code, name in known]
    heads = {"condition": "Responses"}
    if "benchmark" in frame and frame["benchmark"].isin(list(DOMAIN_NAMES)).any():
        heads["benchmark"] = "Domain"
    if "name" in frame and (whose or frame["name"].isin(list(called)).any()):
        heads["name"] = "Reader"
    if "reduction" in frame and frame["reduction"].nunique() == 1:
        heads["std"] = "Std, folds" if frame["reduction"].iloc[0] == "fold" else "Std, seeds"
    choices = {"roster": view.roster, "benchmark": view.domain, "condition": view.condition.removesuffix(GLOBAL)}
    choices |= {"reduction": view.reduction, "origin": "measured"}
    needless = [name for name, choice in choices.items() if name in frame and set(_plain(frame[name])) == {choice}]
    needless += ["build_id", "hypotheses", "pair_id", "pair_set"]
    needless += ["method", "proxy", "proxy_name", "view"] if "reader" in frame else []
    needless += ["reader", "source", "neighbor"] if "name" in frame else []
    for name in [str(name) for name in frame if f"{name}_name" in frame]:
        needless.append(name)
        heads[f"{name}_name"] = shell.header(name)
    if "value" in frame and "metric" in frame and frame["metric"].nunique() == 1:
        heads["value"] = str(out["metric"].iloc[0])
        needless.append("metric")
    if "value" in frame and {"name", "reader"} & set(frame):
        out = out[[*(name for name in LEAD if name in out), *out.columns.difference(LEAD, sort=False)]]
    return out.drop(columns=needless, errors="ignore"), heads


def _plain(codes: pd.Series) -> pd.Series:
    return codes.astype(str).str.removesuffix(GLOBAL)


# ---- curves with bands ----------------------------------------------------------------------------------------------


def curves(
    cache: QueryCache,
    view: View,
    readers: str | Sequence[str],
    metric: str,
    reduction: str = "pooled",
    condition: str = "clean",
) -> pd.DataFrame:
    """A metric of some readers against the budget, with what it may be off by.

    Columns of :func:`backend.store.queries.metric_curve`, low, high (NaN where neither is stored), and band (what these
    are: ``INTERVAL``, ``FOLDS`` or ''). Means over the folds have the folds' spread. The spread over the seeds of the
    grouping is neither: they group the same answers anew.
    """

    def stored(name: str, kind: str) -> pd.DataFrame:
        # Groups across folds have no spread over the folds but that of groups within one.
        where = condition.removesuffix(GLOBAL) if kind == "fold" else condition
        return cache.ask(queries.metric_curve, readers, view.roster, view.domain, where, name, kind)

    frame = stored(metric, reduction)

    def column(name: str, kind: str, field: str) -> pd.Series:
        # A dictionary takes a tenth of the time of an index for so few rows.
        held = {(reader, k): value for reader, k, value in tables.rows(stored(name, kind), "reader", "k", field)}
        found = [held.get(row, np.nan) for row in tables.rows(frame, "reader", "k")]
        return pd.Series(found, frame.index, dtype=float)

    spread = column(metric, "fold", "std")
    low, high = (column(f"{metric}_{end}", "pooled", "value") for end in ("low", "high"))
    exact = low.notna() & high.notna() & (reduction == "pooled")
    return frame.assign(
        low=low.where(exact, frame["value"] - spread),
        high=high.where(exact, frame["value"] + spread),
        band=np.select([exact, spread.notna()], [INTERVAL, FOLDS], ""),
    )


def over_folds(frame: pd.DataFrame) -> pd.DataFrame:
    """Summaries whose ``std`` is the spread over the folds, also of what pools them; NaN where none is stored.

    frame : rows of :func:`backend.store.queries.summaries`, both reductions; of two spreads the first counts.
    """
    keys = ["reader", "benchmark", "condition", "metric", "k"]
    spread = frame[frame["reduction"] == "fold"].drop_duplicates(keys).set_index(keys)["std"]
    return frame.assign(std=spread.reindex(pd.MultiIndex.from_frame(frame[keys])).to_numpy(dtype=float))


def without_bands(frame: pd.DataFrame) -> pd.DataFrame:
    """Curves as :func:`curves` gives them, for lines that are drawn without a band."""
    return frame.assign(low=np.nan, high=np.nan, band="")


def spread_text(row: pd.Series) -> str:
    """What a share of :func:`curves` may be off by, in percent: ' (95 % interval 47.1 to 50.3)'; '' where unknown."""
    return {
        INTERVAL: f" ({INTERVAL} {100 * row['low']:.1f} to {100 * row['high']:.1f})",
        FOLDS: f" (± {100 * (row['high'] - row['value']):.1f}, {FOLDS})",
    }.get(row["band"], "")


def against_chance(sources: int, groups: float) -> str:
    """What a guess would get, and of how many groups a share is, as the end of a sentence."""
    number = f"; n = {int(groups):,} groups a seed" if groups > 0 else ""
    return f"chance: {100 / max(sources, 1):.1f}\N{NO-BREAK SPACE}%{number}."


def bands_note(frame: pd.DataFrame) -> str:
    """What the bands of some curves are, as a part of a sentence; '' without any."""
    kinds = [kind for kind in (INTERVAL, FOLDS) if (frame["band"] == kind).any()]
    return f"; bands or bars: {', else '.join(kinds)}" if kinds else ""
