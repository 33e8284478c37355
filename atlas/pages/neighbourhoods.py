"""Neighbourhoods: who is near to whom in the original space, and how far that can be trusted."""

from __future__ import annotations

import dataclasses
import json
import math
from typing import Any

import pandas as pd
from dash import ClientsideFunction, Dash, Input, Output, ctx, dcc, html, no_update
from dash.development.base_component import Component

from atlas import drawing, shell
from atlas.data import USUALLY_READ, QueryCache
from atlas.drawing import FigureView
from atlas.figures import neighbourhoods as figures
from atlas.figures import plots, tables
from atlas.figures.plots import Line, rate_text
from atlas.pages import pieces
from atlas.pages.map import voters
from atlas.pages.pieces import PageFigure
from atlas.state import PROJECTIONS, View
from atlas.theme import TOKENS
from backend.geometry.neighborhoods import MIN_MEMBERS, greatest_purity
from backend.inference.drift import p_text
from backend.protocol import READER_PAPER
from backend.store import queries
from backend.store.page_queries import projection_sweep

CORRECTED_HELP = "How often shuffled families do as well, made larger to allow for the number of tests (Holm)"
SHUFFLED_HELP = "How often shuffled families do as well"
MUTUAL_HELP = "The worse of the two ranks that two sources have among each other's neighbours"
BACK_HELP = "Rank of the source among the neighbours of its nearest: 1 when each is the other's nearest"
OF_TEN_HELP = "How many of its ten nearest are of its family"
SIBLINGS_HELP = "All other sources of its family in the roster, near or not"
WITHIN = 10
MOST_PAIRS = 200
SHARE = 0.75
FEWEST = 3
"""The paper's rule for a pair: a mutual rank of at most ten for three of four readers, and in the median."""
STABILITY = {
    "spearman": "all distances (Spearman)",
    "jaccard_10": "nearest ten shared",
    "purity_5": "same family among five",
}
TRUST = {
    "trustworthiness_5": "trustworthiness of 5",
    "trustworthiness_10": "trustworthiness of 10",
    "knn_jaccard_10": "nearest ten shared",
}
DOMAIN_METRICS = {
    "top1": "itself the nearest",
    "top5": "among the nearest five",
    "mrr": "mean reciprocal rank",
    "wins_other": "nearer than a random other",
}
CONTENTS = {
    "purity": "Families", "neighbours": "All sources", "nearest": "One source", "pairs": "Across families",
    "agreement": "Other readers", "stability": "Other prompts", "trust": "Maps", "domains": "Other domain",
    "tree": "Tree",
}  # fmt: skip
CHECKS = ("agreement", "stability", "trust", "domains")  # figures that stand two in a row
EMPTY_HEIGHT = 240


@drawing.page
def layout(cache: QueryCache, view: View) -> Component:
    """The page of a view."""
    show = pieces.sections(FIGURES, cache, view)
    contents = pieces.contents({f"figure-{name}": words for name, words in CONTENTS.items()})
    near = [
        pieces.source_field("near-source", cache, view, view.source, "Source", "A source", "Source"),
        html.Div(_pages(cache, view), id="near-links", className="ways"),
    ]
    pair = [
        pieces.source_field("pair-first", cache, view, view.source, "First", "A source", "First source"),
        pieces.source_field("pair-second", cache, view, view.other, "Second", "Another", "Second source"),
    ]
    any_pair = [
        html.H3("Ask for any pair"),
        html.Div(pair, className="controls"),
        pieces.live("pair-answer", _chosen_pair(cache, view)),
    ]
    return html.Div(
        [
            drawing.remembered(PAGE.name),
            drawing.head("Neighbourhoods", "near-answer", _answer(cache, view), contents),
            show("purity"),
            show("neighbours"),
            show("nearest", controls=near),
            pieces.folded("Sources of different families that stand close, unconfirmed", show("pairs")),
            html.Div(any_pair, className="ask"),
            pieces.folded("How far can this be trusted?", html.Div([show(name) for name in CHECKS], className="two")),
            pieces.folded("The tree of all sources", show("tree")),
        ],
        className="column",
    )


def register(app: Dash) -> None:
    """Callbacks of the page."""
    source, other = Input("near-source", "value"), Input("pair-second", "value")
    drawing.remember(app, PAGE.name, source=source, other=other)
    tree, height = FIGURES["tree"].parts("tree")
    pieces.follow(app, FIGURES, drawing.place("near-answer", _answer), "purity neighbours pairs")
    pieces.follow(app, FIGURES, *CHECKS, height)
    pieces.follow(app, FIGURES, "nearest", drawing.place("near-links", _pages), tree, source=source)
    drawing.follow(app, drawing.place("pair-answer", _chosen_pair), source=source, other=other)

    app.clientside_callback(
        ClientsideFunction("atlas", "nearestShown"),
        Input("neighbours-grid", "selectedRows", allow_optional=True),
        prevent_initial_call=True,
    )

    # A row, a leaf, either of the two fields: all of them set the one selected source.
    @app.callback(
        Output("near-source", "value"),
        Output("pair-first", "value"),
        Output("pair-second", "value"),
        Input("near-source", "value"),
        Input("pair-first", "value"),
        Input("neighbours-grid", "selectedRows", allow_optional=True),
        Input("pairs-grid", "selectedRows", allow_optional=True),
        Input("tree-graph", "clickData"),
        prevent_initial_call=True,
    )
    def selected(
        source: str | None, first: str | None, near: list[dict[str, Any]] | None, pair: list[dict[str, Any]] | None,
        leaf: dict[str, Any] | None,
    ) -> Any:  # fmt: skip
        trigger = ctx.triggered_id
        if trigger == "near-source":
            return no_update, source, no_update
        if trigger == "pair-first":
            return first, no_update, no_update
        if trigger == "neighbours-grid" and near:
            return near[0]["source"], near[0]["source"], no_update
        if trigger == "pairs-grid" and pair:
            return pair[0]["source"], pair[0]["source"], pair[0]["other"]
        points = (leaf or {}).get("points") or []
        if trigger == "tree-graph" and points and points[0].get("customdata"):
            return points[0]["customdata"][0], points[0]["customdata"][0], no_update
        return no_update, no_update, no_update

    pieces.offer_sources(app, "near-source", "pair-first", "pair-second")


_MAP = ("reader", "roster", "domain")
_measured_purity = pieces.rows_of(queries.family_purity, "roster", "domain")
_agreement_rows = pieces.rows_of(queries.reader_agreement, "roster", "domain")
_stability_rows = pieces.rows_of(queries.prompt_stability, "roster", "domain", "reader")
_steps = pieces.rows_of(queries.dendrogram, *_MAP)


def _purity_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Family purity of all readers, with the most that the sizes of the families allow."""
    frame, families = _measured_purity(cache, view), cache.ask(queries.sources, view.roster)["family"].tolist()
    return frame.assign(most_possible=[greatest_purity(families, int(k)) for k in frame["k"]])


def _rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Sources with their nearest: those whose nearest is of another family first, the closest on top."""
    frame = cache.ask(queries.neighbor_table, cache.map_reader(view), view.roster, view.domain)
    frame = frame.sort_values("cosine", ascending=False, kind="stable")
    own = frame["family"] == frame["nearest_family"]
    return pd.concat([frame[~own], frame[own]], ignore_index=True)


def _with_example(cache: QueryCache, view: View) -> View:
    """The view; where no source is selected, with that of the table's first row."""
    first = _rows(cache, view)["source"].head(0 if view.source else 1)
    return dataclasses.replace(view, source=first.iloc[0]) if len(first) else view


def _nearest_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    return pieces.nearest_rows(cache, _with_example(cache, view))


def _answer(cache: QueryCache, view: View) -> list[Component | str]:
    reader = cache.map_reader(view)
    frame = cache.ask(queries.family_purity, view.roster, view.domain, reader or "")
    if frame.empty:
        others = _purity_rows(cache, view)["reader"].nunique()
        if not others:
            return [f"No geometry has been measured for {drawing.choice_words(view)}."]
        rest = "1 other is" if others == 1 else f"{others} others are"
        return [f"This reader has no geometry for {drawing.choice_words(view)}; {rest} shown below."]
    first = frame.iloc[0]
    blind = f"; chance: {100 * first['expectation']:.0f} %. "
    return [
        html.Strong(f"{100 * first['purity']:.0f} %"),
        f" of {purity_sources(first)} have a sibling as their nearest{blind}"
        if first["k"] == 1
        else f" of the {first['k']} nearest of {purity_sources(first)} are siblings{blind}",
        html.Span(f"Seen by {cache.reader_words(reader)}, without any training on names.", className="soft"),
    ]


def purity_sources(purity: pd.Series) -> str:
    """Sources that a row of family purity is of, in words."""
    return f"the {int(purity['sources'])} sources in families of five or more"


def _purity_height(cache: QueryCache, view: View) -> int:
    """Height in pixels of :func:`_purity`: its legend has two readers a line, and takes nothing from the drawing."""
    return 300 + 10 * max(_purity_rows(cache, view)["reader"].nunique(), 4)


@pieces.needs(_purity_rows, pieces.unmapped("family purity"))
def _purity(cache: QueryCache, view: View, frame: pd.DataFrame) -> FigureView:
    token, chosen, readers = TOKENS[view.theme], cache.map_reader(view), list(dict.fromkeys(frame["reader"]))
    names = {reader: name.removesuffix(USUALLY_READ) for reader, name in cache.short_names(readers).items()}
    lines = [Line(reader, names[reader], token["soft"], front=False) for reader in readers if reader != chosen]
    if chosen in readers:
        lines.append(Line(chosen, names[chosen], token["accent"]))
    own = frame[frame["reader"] == chosen] if chosen in readers else frame
    first = own.iloc[0]
    corrected = own["p_holm"].notna().any()
    tested = own["p_holm" if corrected else "p_value"].dropna()
    help_text = CORRECTED_HELP if corrected else SHUFFLED_HELP
    tests: list[Component | str] = (
        [" Against chance, the largest ", shell.term("p", help_text), f" is {p_text(tested.max())}."]
        if len(tested)
        else []
    )
    at_last = frame[frame["k"] == frame["k"].max()].sort_values("purity", ascending=False)
    best, least = (f"{names[end['reader']]}, {rate_text(end['purity'])}" for _, end in at_last.iloc[[0, -1]].iterrows())
    ends = f" Highest at k = {at_last['k'].iloc[0]}: {best}; lowest: {least}." if len(lines) > 1 else ""
    sentence: shell.Children = [
        "Share of the k nearest sources that are of the same ",
        shell.term("family", "Sources of one maker's line; only families with at least five sources are asked"),
        ", with the 95 % bootstrap interval; most possible: if all of a source's siblings were its nearest. "
        f"n = {int(first['sources'])} sources of {int(first['families'])} families.",
        *tests,
        ends,
    ]
    return FigureView(figures.family_purity(frame, lines, theme=view.theme), sentence)


@pieces.needs(_rows, pieces.no_grid(pieces.unmapped("table of neighbours")))
def _neighbours(cache: QueryCache, view: View, frame: pd.DataFrame) -> pieces.GridView:
    own = frame["family"] == frame["nearest_family"]
    large = frame.groupby("family")["family"].transform("size") >= MIN_MEMBERS
    of_large = f"{(large & ~own).sum()} of the {large.sum()} in families of five or more"
    rest = f", {(~large & ~own).sum()} of the {(~large).sum()} in smaller ones" if (~large).any() else ""
    columns = [
        tables.source("name", "Source", width=164),
        tables.family("family", "Family", 112),
        tables.source("nearest_name", "Nearest source", "nearest", 164),
        tables.family("nearest_family", "Its family", 112),
        tables.number("cosine", "Cosine", "cosine", 68),
        tables.number("rank_back", "Rank back", "count", 60, headerTooltip=BACK_HELP, wrapHeaderText=True),
        tables.number("same_10", "Siblings in its ten", "count", 88, headerTooltip=OF_TEN_HELP, wrapHeaderText=True),
        tables.at_scrollbar(
            tables.number("kin", "Siblings in all", "count", 74, headerTooltip=SIBLINGS_HELP, wrapHeaderText=True)
        ),
    ]
    rows = tables.with_marks(frame, cache.marks(), "family", "nearest_family")
    sentence: list[Component | str] = [
        f"Every source and its nearest in all dimensions of the signature. First the {(~own).sum()} of "
        f"{len(frame)} whose nearest is of another family ({of_large}{rest}), the closest on top. "
        "Rank back: its own among the neighbours of its nearest. Select a row to see its ten.",
        pieces.more_columns(),
    ]
    return tables.grid("neighbours-grid", rows, columns, selectable=True, headerHeight=44), sentence


def _nearest(cache: QueryCache, view: View) -> FigureView:
    example = "" if view.source else "An example, the first row of the table: "
    view = _with_example(cache, view)
    frame = pieces.nearest_rows(cache, view)
    if frame.empty:
        return drawing.unmapped(cache, view, "neighbourhood of this source")
    everyone = _rows(cache, view).set_index("source")
    own: Any = everyone.loc[view.source]
    kin = int((frame["family"] == own["family"]).sum())
    sentence: shell.Children = [
        example,
        shell.source_name(own["name"]),
        f" and its {len(frame)} nearest of {len(everyone) - 1}; {kin} of them are {own['family']}, of which "
        f"the roster has {int(own['kin'])} others.",
    ]
    return FigureView(figures.nearest_sources(frame, cache.marks(), theme=view.theme), sentence)


def _pages(cache: QueryCache, view: View) -> list[Component]:
    view = _with_example(cache, view)
    profile = cache.ask(queries.source_profile, view.source, "", view.roster, view.domain) if view.source else None
    if profile is None:
        return []
    return [
        pieces.marked("Page of ", shell.source_link(view, view.source, profile.name)),
        pieces.marked("Family ", shell.family_link(view, profile.family)),
    ]


def _pair_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    frame = cache.ask(queries.cross_family_pairs, voters(cache, view), view.roster, view.domain, WITHIN, MOST_PAIRS)
    needed = [max(FEWEST, math.ceil(SHARE * count)) for count in frame["readers"]]
    passed = (frame["near"] >= needed) & (frame["median_rank"] <= WITHIN)
    return frame.assign(passes=["yes" if passes else "" for passes in passed])


@pieces.needs(_pair_rows, pieces.no_grid(pieces.unmapped("pair of sources")))
def _pairs(cache: QueryCache, view: View, frame: pd.DataFrame) -> pieces.GridView:
    readers, one = int(frame["readers"].max()), frame["readers"].max() == 1
    columns = [
        tables.source("name", "Source", width=140),
        tables.family("family", "Family", 108),
        tables.source("other_name", "Other source", "other", 140),
        tables.family("other_family", "Family", 108),
        tables.number("near", "Near for", "count", 76),
        tables.number("readers", "Proxies", "count", 74),
        tables.number("median_rank", "Mutual rank" if one else "Median rank", "number", 96),
        tables.number("cosine", "Cosine", "cosine", 72),
        tables.words("passes", "Passes", 68),
    ]
    same = [name for name in ("near", "readers", "passes") if frame[name].nunique() == 1]
    columns = [column for column in columns if column["field"] not in same]
    proxies = " and ".join(cache.proxy_name(reader) for reader in voters(cache, view))
    judged: list[Component | str] = (
        [
            f"With the {readers} proxies here, {int((frame['passes'] == 'yes').sum())} pairs pass. By the paper's rule "
            f"{FEWEST} of 4 proxies put each among the other's {WITHIN} nearest, and the median agrees."
        ]
        if readers >= FEWEST
        else [
            f"No pair can be confirmed here: the paper's rule needs {FEWEST} proxies that READER reads with, given the "
            f"same input, and here {'is' if one else 'are'} only {proxies}",
            *_passing_ways(cache, view),
            ".",
        ]
    )
    order = "" if one else "the number of proxies that agree, then the median "
    rows = tables.with_marks(frame, cache.marks(), "family", "other_family")
    sentence: shell.Children = [
        f"{'The first ' if len(frame) == MOST_PAIRS else ''}n = {len(frame)} candidates, in order of {order}",
        shell.term("mutual rank", MUTUAL_HELP),
        "; two families can be of one maker, as Gemini and Gemma are. ",
        *judged,
    ]
    return tables.grid("pairs-grid", rows, columns, selectable=True), sentence


def _passing_ways(cache: QueryCache, view: View) -> list[Component | str]:
    """Links to choices where enough proxies vote for a pair to pass, or that there is none."""
    readers = cache.ask(queries.readers)
    readers = readers[readers["method"] == READER_PAPER].explode("rosters").explode("domains")
    groups = readers.dropna(subset=["domains"]).groupby(["view", "rosters", "domains"])["reader"]
    ways: list[Component | str] = []
    for (_, roster, domain), members in groups:
        if len(members) >= FEWEST:
            there = dataclasses.replace(view, reader=str(members.iloc[0]), roster=str(roster), domain=str(domain))
            words = f"{drawing.choice_words(there)} by {cache.reader_words(there.reader)}"
            ways += ["; one can on ", dcc.Link(words, href=f"{PAGE.path}?{pieces.choices_query(there)}")]
    if ways:
        return ways
    return [f"; no other choice in this atlas has {FEWEST}"]


def _chosen_pair(cache: QueryCache, view: View) -> list[Component]:
    """Every reader's ranks of the two chosen sources."""
    if not view.source or not view.other:
        return [pieces.words("Choose two sources, or select a row: every reader's ranks appear here.")]
    if view.source == view.other:
        return [pieces.words("These are one and the same source.", caution=True)]
    frame = cache.ask(queries.pair_ranks, view.roster, view.domain, view.source, view.other)
    if frame.empty:
        return [pieces.words(f"No reader has ranks of this pair for {drawing.choice_words(view)}.")]
    rows = [
        pieces.row(
            [cache.reader_name(pair.reader), shell.origin_badge(pair.origin)],
            f"{pair.rank:.0f}",
            pieces.count_text(pair.rank_back),
            pieces.count_text(pair.mutual_rank),
            plots.cosine_text(pair.cosine),
            f"{100 * pair.percentile:.1f} %",
            here=pair.reader == cache.map_reader(view),
        )
        for pair in tables.rows(frame)
    ]
    return [
        pieces.table(
            ["Reader", "rank from the first", "rank from the second", "mutual rank", "cosine", "percentile"], rows
        )
    ]


@pieces.needs(_agreement_rows, pieces.unmapped("agreement between readers"))
def _agreement(cache: QueryCache, view: View, frame: pd.DataFrame) -> FigureView:
    compared = set(frame["reader"]) | set(frame["other"])
    readers = [reader for _, members in cache.reader_groups() for reader in members if reader in compared]
    pairs = len(frame[frame["metric"] == "spearman"])
    sentence = (
        "Above the diagonal the Spearman correlation of all distances between sources, below it the overlap (Jaccard) "
        f"of the nearest ten of two readers. n = {pairs} pairs of readers."
    )
    return FigureView(figures.agreement_matrix(frame, cache.short_names(readers), theme=view.theme), sentence)


@pieces.needs(_stability_rows, pieces.unmapped("prompt stability"))
def _stability(cache: QueryCache, view: View, frame: pd.DataFrame) -> FigureView:
    sentence = (
        "Signatures from one fifth of the prompts against those from all of them: one point a fifth, the bar is their "
        f"mean. n = {frame['fold'].nunique()} disjoint subsets of the prompts."
    )
    return FigureView(figures.fold_stability(frame, STABILITY, theme=view.theme), sentence)


def _quality(cache: QueryCache, view: View) -> pd.DataFrame:
    """The maps of the page and, below them, t-SNE at other perplexities, several seeds each."""
    key = (cache.map_reader(view), view.roster, view.domain)
    swept = cache.ask(projection_sweep, *key)
    swept = swept.assign(method=[f"t-SNE, perplexity {perplexity:.0f}" for perplexity in swept["perplexity"]])
    maps = cache.ask(queries.projection_quality, *key).replace({"method": PROJECTIONS})
    return pd.concat([maps, swept.drop(columns="perplexity")], ignore_index=True) if len(swept) else maps


def _trust(cache: QueryCache, view: View) -> FigureView:
    frame = _quality(cache, view)
    frame = frame[frame["metric"].isin(list(TRUST))]
    if frame.empty:
        return drawing.unmapped(cache, view, "map")
    swept = frame[~frame["method"].isin(list(PROJECTIONS.values()))]
    names = [*PROJECTIONS.values(), *dict.fromkeys(swept["method"])]
    settings = swept["settings"].nunique()
    below = f" Below, t-SNE with {settings} other settings: one row a perplexity, one point a random seed."
    more = below if len(swept) else ""
    sentence: shell.Children = [
        shell.term("Trustworthiness", "How far neighbours on the map are neighbours in the original space: 1 when all"),
        " of the 5 and 10 nearest, and how much of the ",
        shell.term("nearest ten", pieces.SHARED_HELP),
        f" is the same on the map. n = {pieces.roster_size(cache, view)} sources.{more}",
    ]
    figure = figures.map_trust(frame, dict(zip(names, names, strict=True)), TRUST, theme=view.theme)
    return FigureView(figure, sentence)


def _domain_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    frame = cache.ask(queries.cross_domain, cache.map_reader(view), view.roster)
    return frame[frame["metric"].isin(list(DOMAIN_METRICS))]


@pieces.needs(_domain_rows, pieces.unmapped("search across domains"))
def _domains(cache: QueryCache, view: View, frame: pd.DataFrame) -> FigureView:
    query, gallery = frame.iloc[0][["query_domain", "gallery_domain"]]
    way = f"{pieces.domain_words(query)} in {pieces.domain_words(gallery)}"
    sentence = (
        f"A source's signature of one domain sought among all signatures of the other ({way}): filled as it is, "
        "hollow with its domain's mean taken away. Last row: how often it is nearer to itself than another source "
        f"drawn at random. n = {pieces.roster_size(cache, view)} sources."
    )
    one_way = frame[frame["query_domain"] == query]
    return FigureView(figures.domain_search(one_way, DOMAIN_METRICS, theme=view.theme), sentence)


def _tree_height(cache: QueryCache, view: View) -> int:
    return figures.tree_height(pieces.roster_size(cache, view)) if len(_steps(cache, view)) else EMPTY_HEIGHT


@pieces.needs(_steps, pieces.unmapped("tree of sources"))
def _tree(cache: QueryCache, view: View, steps: pd.DataFrame) -> FigureView:
    sources = cache.ask(queries.sources, view.roster)
    sentence = (
        "Average linkage of cosine distances: sources join where their clusters meet, further left is less alike. A "
        f"branch has a family's colour while all under it are of that family. n = {len(sources)} sources."
    )
    return FigureView(figures.tree(steps, sources, cache.marks(), theme=view.theme, selected=view.source), sentence)


def _trust_table(cache: QueryCache, view: View) -> pd.DataFrame:
    frame = _quality(cache, view)
    settings = [json.loads(text) for text in frame["settings"]]
    return frame.assign(**{name: [setting.get(name) for setting in settings] for name in ("seed", "perplexity")})


def _tree_table(cache: QueryCache, view: View) -> pd.DataFrame:
    steps = _steps(cache, view)
    names = list(cache.ask(queries.sources, view.roster)["name"])
    nodes = [*map(str, names), *(f"cluster {number + 1}" for number in range(len(steps)))]
    named = {side: [nodes[int(node)] for node in steps[side]] for side in ("left_node", "right_node")}
    return steps.assign(step=steps["step"] + 1, **named)


def _meta(rows: pieces.Rows, store: str, *names: str) -> shell.FigureMeta:
    shown = pieces.without(rows, "build_id", "best_other", "best_other_name")
    return pieces.meta(shown, store, pieces.map_key(*(names or _MAP)), QueryCache.map_reader)


FIGURES = {
    "purity": PageFigure(
        "Are a source's neighbours its family?", _purity, _meta(_purity_rows, "family_purity"), _purity_height
    ),
    "neighbours": PageFigure("Which sources are neighbours?", _neighbours, _meta(_rows, "neighbors"), 480, grid=True),
    "nearest": PageFigure(
        "What is nearest to one source?", _nearest, _meta(_nearest_rows, "neighbors"), 380
    ),
    "pairs": PageFigure(
        "Which sources of different families stand close?", _pairs, _meta(_pair_rows, "neighbors", "roster", "domain"),
        360, grid=True,
    ),
    "agreement": PageFigure(
        "Do other readers see the same?", _agreement, _meta(_agreement_rows, "reader_agreement", "roster", "domain"),
        380,
    ),
    "stability": PageFigure(
        "Would other prompts give the same picture?", _stability, _meta(_stability_rows, "prompt_stability"), 380
    ),
    "trust": PageFigure(
        "How far can each map be trusted?", _trust, _meta(_trust_table, "projection_quality"), 380
    ),
    "domains": PageFigure(
        "Is a source found again in the other domain?", _domains,
        _meta(_domain_rows, "cross_domain", "reader", "roster"), 380,
    ),
    "tree": PageFigure("How do all sources group?", _tree, _meta(_tree_table, "dendrogram"), _tree_height),
}  # fmt: skip
PAGE = pieces.page("neighbourhoods", layout, register, FIGURES)
