"""Neighbourhoods: who stands beside whom in the original space, and how far that can be trusted."""

from __future__ import annotations

import json
import math
from typing import Any

import pandas as pd
from dash import Dash, Input, Output, ctx, html, no_update
from dash.development.base_component import Component

from atlas import drawing, shell, tables
from atlas.data import DOMAIN_NAMES, QueryCache, questions
from atlas.drawing import FigureView, Part
from atlas.figures import neighbourhoods as figures
from atlas.figures.attribution import Line, rate_text
from atlas.figures.plots import p_text
from atlas.pages.map_card import voters
from atlas.state import PROJECTIONS, View
from atlas.theme import TOKENS
from backend.store import queries
from backend.store.map_queries import projection_sweep

QUESTIONS = {
    "purity": "Are a source's neighbours its family?",
    "neighbours": "Who stands beside whom?",
    "nearest": "What is nearest to one source?",
    "pairs": "Which sources of different makers stand close?",
    "tree": "How do all sources group?",
    "agreement": "Do other readers see the same?",
    "stability": "Would other prompts give the same picture?",
    "trust": "How far can each map be trusted?",
    "domains": "Is a source found again in the other domain?",
}
NEAREST = 10
WITHIN = 10
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
    "knn_jaccard_10": "nearest ten kept",
}
DOMAIN_METRICS = {
    "top1": "found first",
    "top5": "among the first five",
    "mrr": "mean reciprocal rank",
    "wins_other": "nearer than any other",
}
EMPTY_HEIGHT = 240


@drawing.page
def layout(cache: QueryCache, view: View) -> Component:
    """The page of a view."""
    origin = cache.origin(cache.map_reader(view))

    def section(name: str, drawn: FigureView, height: int, **more: Any) -> Component:
        return drawing.section(name, QUESTIONS[name], drawn, height, origin=origin, **more)

    return html.Div(
        className="column",
        children=[
            drawing.remembered(PAGE.name),
            drawing.head("Neighbourhoods", "near-answer", _answer(cache, view)),
            section("purity", _purity(cache, view), 340),
            shell.grid_section("neighbours", QUESTIONS["neighbours"], *_neighbours(cache, view), origin=origin),
            section(
                "nearest",
                _nearest(cache, view),
                380,
                controls=[
                    shell.labelled(
                        "Source",
                        "near-source",
                        shell.source_search("near-source", cache, view.roster, view.source, "A source", "Source"),
                    ),
                    html.Div(_pages(cache, view), id="near-links", className="ways"),
                ],
            ),
            shell.grid_section(
                "pairs",
                QUESTIONS["pairs"],
                *_pairs(cache, view),
                origin=origin,
                height=360,
                below=html.Div(
                    className="ask",
                    children=[
                        html.H3("Ask for any pair"),
                        html.Div(
                            className="controls",
                            children=[
                                shell.labelled(
                                    "First",
                                    "pair-first",
                                    shell.source_search(
                                        "pair-first", cache, view.roster, view.source, "A source", "First source"
                                    ),
                                ),
                                shell.labelled(
                                    "Second",
                                    "pair-second",
                                    shell.source_search(
                                        "pair-second", cache, view.roster, view.other, "Another", "Second source"
                                    ),
                                ),
                            ],
                        ),
                        html.Div(_asked_pair(cache, view), id="pair-answer", **{"aria-live": "polite"}),
                    ],
                ),
            ),
            html.Div(
                className="two",
                children=[
                    section("agreement", _agreement(cache, view), 380),
                    section("stability", _stability(cache, view), 380),
                    section("trust", _trust(cache, view), 380),
                    section("domains", _domains(cache, view), 380),
                ],
            ),
            section("tree", _tree(cache, view), _tree_height(cache, view)),
        ],
    )


def register(app: Dash) -> None:
    """Callbacks of the page."""
    source = Input("near-source", "value")
    other = Input("pair-second", "value")
    drawing.remember(app, PAGE.name, source=source, other=other)
    tall = Part(
        (Output({"type": "body", "figure": "tree"}, "style"),),
        lambda cache, view: ({"height": _tree_height(cache, view)},),
    )
    drawing.follow(
        app,
        drawing.place("near-answer", _answer),
        drawing.figure("purity", _purity),
        drawing.grid("neighbours", _neighbours),
        drawing.grid("pairs", _pairs),
    )
    drawing.follow(
        app,
        drawing.figure("agreement", _agreement),
        drawing.figure("stability", _stability),
        drawing.figure("trust", _trust),
        drawing.figure("domains", _domains),
        tall,
    )
    drawing.follow(
        app,
        drawing.figure("nearest", _nearest),
        drawing.place("near-links", _pages),
        drawing.figure("tree", _tree),
        source=source,
    )
    drawing.follow(app, drawing.place("pair-answer", _asked_pair), source=source, other=other)

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
        source: str | None,
        first: str | None,
        row: list[dict[str, Any]] | None,
        pair: list[dict[str, Any]] | None,
        leaf: dict[str, Any] | None,
    ) -> Any:
        trigger = ctx.triggered_id
        if trigger == "near-source":
            return no_update, source, no_update
        if trigger == "pair-first":
            return first, no_update, no_update
        if trigger == "neighbours-grid" and row:
            return row[0]["source"], row[0]["source"], no_update
        if trigger == "pairs-grid" and pair:
            return pair[0]["source"], pair[0]["source"], pair[0]["other"]
        points = (leaf or {}).get("points") or []
        if trigger == "tree-graph" and points and points[0].get("customdata"):
            return points[0]["customdata"][0], points[0]["customdata"][0], no_update
        return no_update, no_update, no_update

    @app.callback(
        Output("near-source", "data"),
        Output("pair-first", "data"),
        Output("pair-second", "data"),
        Input("roster", "value"),
        prevent_initial_call=True,
    )
    def offered(roster: str) -> Any:
        return (shell.source_options(questions(), roster),) * 3


# ---- what is drawn --------------------------------------------------------------------------------------------------


def _rows(cache: QueryCache, view: View) -> pd.DataFrame:
    return cache.ask(queries.neighbor_table, cache.map_reader(view), view.roster, view.domain)


def _answer(cache: QueryCache, view: View) -> list[Component | str]:
    reader = cache.map_reader(view)
    frame = cache.ask(queries.family_purity, view.roster, view.domain, reader or "")
    if frame.empty:
        others = cache.ask(queries.family_purity, view.roster, view.domain)["reader"].nunique()
        if not others:
            return [f"No geometry has been measured for {drawing.choice_words(view)}."]
        rest = "1 other is" if others == 1 else f"{others} others are"
        return [f"This reader has no geometry for {drawing.choice_words(view)}; {rest} shown below."]
    row = frame.iloc[0]
    blind = f"; blind neighbours would give {100 * row['expectation']:.0f} %. "
    return [
        html.Strong(f"{100 * row['purity']:.0f} %"),
        f" of {asked_words(row)} have a sibling as their nearest{blind}"
        if row["k"] == 1
        else f" of the {row['k']} nearest of {asked_words(row)} are siblings{blind}",
        html.Span(f"Seen by {cache.reader_words(reader)}, without any training on names.", className="soft"),
    ]


def asked_words(row: pd.Series) -> str:
    """Sources that a row of family purity is of, in words."""
    return f"the {int(row['sources'])} sources in families of five or more"


def _purity_lines(cache: QueryCache, view: View, frame: pd.DataFrame) -> list[Line]:
    token = TOKENS[view.theme]
    chosen = cache.map_reader(view)
    readers = list(dict.fromkeys(frame["reader"]))
    behind = [
        Line(reader, cache.reader_name(reader), token["edge"], front=False) for reader in readers if reader != chosen
    ]
    return [*behind, Line(chosen, cache.reader_name(chosen), token["accent"])] if chosen in readers else behind


def _purity(cache: QueryCache, view: View) -> FigureView:
    frame = cache.ask(queries.family_purity, view.roster, view.domain)
    if frame.empty:
        return drawing.unmapped(cache, view, "family purity")
    chosen = cache.map_reader(view)
    lines = _purity_lines(cache, view, frame)
    own = frame[frame["reader"] == chosen] if chosen in set(frame["reader"]) else frame
    row = own.iloc[0]
    tested = own["p_holm"].dropna() if own["p_holm"].notna().any() else own["p_value"].dropna()
    kind = "Holm-corrected p" if own["p_holm"].notna().any() else "permutation p"
    text = f" Largest {kind} {p_text(tested.max())}." if len(tested) else ""
    others = sum(not line.front for line in lines)
    grey = f"{'other ' if others < len(lines) else ''}reader{'s' if others > 1 else ''}"
    rest = f" Grey: {others} {grey}." if others else ""
    sentence = [
        "Share of the k nearest sources that are of the same ",
        shell.term("family", "Sources of one maker's line; only families with at least five sources are asked"),
        f", with the 95 % bootstrap interval. n = {int(row['sources'])} sources of {int(row['families'])} families."
        f"{text}{rest}",
    ]
    return FigureView(figures.family_purity(frame, lines, theme=view.theme), sentence)


def _neighbours(cache: QueryCache, view: View) -> tuple[Component, shell.Children]:
    frame = _rows(cache, view)
    if frame.empty:
        return drawing.absent(drawing.unmapped(cache, view, "table of neighbours"))
    own = (frame["family"] == frame["nearest_family"]).sum()
    columns = [
        tables.words("name", "Source", 148, 1, cellClass="mono"),
        tables.family("family", "Family", 108),
        tables.words("nearest_name", "Nearest source", 148, 1, cellClass="mono"),
        tables.family("nearest_family", "Its family", 108),
        tables.number("cosine", "Cosine", "cosine", 72),
        tables.number("rank_back", "Rank back", "count", 84),
        tables.number("same_5", "Kin in 5", "count", 74),
        tables.number("same_10", "Kin in 10", "count", 80),
        tables.number("kin", "Kin", "count", 58),
    ]
    rows = tables.with_marks(frame, cache.marks(), "family", "nearest_family")
    sentence = (
        f"Every source and its nearest in all dimensions of the signature; for {own} of all {len(frame)}, small "
        "families too, the nearest is kin, which is of the same family. Select a row to see its ten nearest below."
    )
    return tables.grid("neighbours-grid", rows, columns, selectable=True), sentence


def _nearest_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    reader = cache.map_reader(view)
    return cache.ask(queries.neighbors, reader, view.roster, view.domain, view.source, NEAREST)


def _nearest(cache: QueryCache, view: View) -> FigureView:
    if not view.source:
        return FigureView(
            drawing.blank(view.theme),
            "The ten nearest sources of one, by cosine.",
            shell.empty("No source is selected", "Select a row of the table above, or type a name"),
        )
    frame = _nearest_rows(cache, view)
    if frame.empty:
        return drawing.unmapped(cache, view, "neighbourhood of this source")
    whole = cache.ask(queries.neighbor_table, cache.map_reader(view), view.roster, view.domain).set_index("source")
    own = whole.loc[view.source]
    kin = int((frame["family"] == own["family"]).sum())
    sentence = [
        shell.source_name(own["name"]),
        f" and its {len(frame)} nearest of {len(whole) - 1}; {kin} of them are {own['family']}, as are "
        f"{int(own['kin'])} sources of the roster besides it.",
    ]
    return FigureView(figures.nearest_sources(frame, cache.marks(), theme=view.theme), sentence)


def _pages(cache: QueryCache, view: View) -> list[Component]:
    if not view.source:
        return []
    profile = cache.ask(queries.source_profile, view.source, "", view.roster, view.domain)
    if profile is None:
        return []
    return [
        html.Span(["Page of ", shell.source_link(view, view.source, profile.name)], className="marked"),
        html.Span(["Family ", shell.family_link(view, profile.family)], className="marked"),
    ]


def _pair_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    frame = cache.ask(queries.cross_family_pairs, voters(cache, view), view.roster, view.domain, WITHIN)
    need = [max(FEWEST, math.ceil(SHARE * count)) for count in frame["readers"]]
    passed = (frame["near"] >= need) & (frame["median_rank"] <= WITHIN)
    return frame.assign(passes=["yes" if passes else "" for passes in passed])


def _pairs(cache: QueryCache, view: View) -> tuple[Component, shell.Children]:
    frame = _pair_rows(cache, view)
    if frame.empty:
        return drawing.absent(drawing.unmapped(cache, view, "pair of sources"))
    voters = int(frame["readers"].max())
    columns = [
        tables.words("name", "Source", 140, 1, cellClass="mono"),
        tables.family("family", "Family", 108),
        tables.words("other_name", "Beside it", 140, 1, cellClass="mono"),
        tables.family("other_family", "Family", 108),
        tables.number("near", "Near for", "count", 76),
        tables.number("readers", "Readers", "count", 74),
        tables.number("median_rank", "Median rank", "number", 92),
        tables.number("cosine", "Cosine", "cosine", 72),
        tables.words("passes", "Passes", 68),
    ]
    rule = (
        f"A pair passes when {FEWEST} of 4 readers put each among the other's {WITHIN} nearest and the median agrees. "
    )
    passing = int((frame["passes"] == "yes").sum())
    judged = (
        f"{passing} pairs pass with {voters} readers."
        if voters >= FEWEST
        else f"Here {voters} reader{'s' if voters > 1 else ''} voted, so these are candidates and none can pass."
    )
    rows = tables.with_marks(frame, cache.marks(), "family", "other_family")
    sentence = f"{rule}{judged} n = {len(frame)} pairs, the closest first."
    return tables.grid("pairs-grid", rows, columns, selectable=True), sentence


def _asked_pair(cache: QueryCache, view: View) -> list[Component]:
    if not view.source or not view.other:
        return [html.P("Choose two sources, or select a row: every reader's ranks appear here.", className="sentence")]
    if view.source == view.other:
        return [html.P("These are one and the same source.", className="sentence caution")]
    frame = cache.ask(queries.pair_ranks, view.roster, view.domain, view.source, view.other)
    if frame.empty:
        return [html.P(f"No reader has ranks of this pair for {drawing.choice_words(view)}.", className="sentence")]
    body = [
        html.Tr(
            [
                html.Th([cache.reader_name(row.reader), shell.origin_badge(row.origin)], scope="row"),
                html.Td(f"{row.rank:.0f}"),
                html.Td("–" if pd.isna(row.rank_back) else f"{row.rank_back:.0f}"),
                html.Td("–" if pd.isna(row.mutual_rank) else f"{row.mutual_rank:.0f}"),
                html.Td(rate_text(row.cosine)),
                html.Td(f"{100 * row.percentile:.1f} %"),
            ],
            className="here" if row.reader == cache.map_reader(view) else "",
        )
        for row in frame.itertuples(index=False)
    ]
    heads = ["Reader", "rank from the first", "rank from the second", "mutual rank", "cosine", "percentile"]
    return [
        html.Table(
            [html.Thead(html.Tr([html.Th(head, scope="col") for head in heads])), html.Tbody(body)],
            className="small wide",
        )
    ]


def _agreement(cache: QueryCache, view: View) -> FigureView:
    frame = cache.ask(queries.reader_agreement, view.roster, view.domain)
    if frame.empty:
        return drawing.unmapped(cache, view, "agreement between readers")
    readers = [
        reader
        for _, members in cache.reader_groups()
        for reader in members
        if reader in set(frame["reader"]) | set(frame["other"])
    ]
    names = cache.short_names(readers)
    pairs = len(frame[frame["metric"] == "spearman"])
    sentence = (
        "Above the diagonal the Spearman correlation of all distances between sources, below it the share of the "
        f"nearest ten that two readers have in common. n = {pairs} pairs of readers."
    )
    return FigureView(figures.agreement_matrix(frame, names, theme=view.theme), sentence)


def _stability(cache: QueryCache, view: View) -> FigureView:
    frame = cache.ask(queries.prompt_stability, view.roster, view.domain, cache.map_reader(view))
    if frame.empty:
        return drawing.unmapped(cache, view, "prompt stability")
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
    made = cache.ask(queries.projection_quality, *key).replace({"method": PROJECTIONS})
    return pd.concat([made, swept.drop(columns="perplexity")], ignore_index=True) if len(swept) else made


def _trust(cache: QueryCache, view: View) -> FigureView:
    frame = _quality(cache, view)
    frame = frame[frame["metric"].isin(list(TRUST))]
    if frame.empty:
        return drawing.unmapped(cache, view, "map")
    swept = frame[~frame["method"].isin(list(PROJECTIONS.values()))]
    names = [*PROJECTIONS.values(), *dict.fromkeys(swept["method"])]
    more = (
        f" Below, t-SNE with {swept['settings'].nunique()} other settings: a row a perplexity, a point a seed."
        if len(swept)
        else ""
    )
    sentence = [
        shell.term("Trustworthiness", "How far neighbours on the map are neighbours in the original space: 1 when all"),
        " of the 5 and 10 nearest, and the share of the nearest ten that a map keeps. "
        f"n = {len(cache.ask(queries.sources, view.roster))} sources.{more}",
    ]
    drawn = figures.map_trust(frame, dict(zip(names, names, strict=True)), TRUST, theme=view.theme)
    return FigureView(drawn, sentence)


def _domain_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    frame = cache.ask(queries.cross_domain, cache.map_reader(view), view.roster)
    return frame[frame["metric"].isin(list(DOMAIN_METRICS))]


def _domains(cache: QueryCache, view: View) -> FigureView:
    frame = _domain_rows(cache, view)
    if frame.empty:
        return drawing.unmapped(cache, view, "search across domains")
    ways = {
        (row.query_domain, row.gallery_domain): " in ".join(
            DOMAIN_NAMES.get(name, name) for name in (row.query_domain, row.gallery_domain)
        )
        for row in frame.itertuples(index=False)
    }
    label = next(iter(ways.values()))
    one = frame[(frame["query_domain"] == next(iter(ways))[0])]
    sentence = (
        f"A source's signature of one domain sought among all signatures of the other ({label}): filled as it is, "
        f"hollow after each domain's mean is taken away. n = {len(cache.ask(queries.sources, view.roster))} sources."
    )
    return FigureView(figures.domain_search(one, DOMAIN_METRICS, theme=view.theme), sentence)


def _tree_height(cache: QueryCache, view: View) -> int:
    steps = cache.ask(queries.dendrogram, cache.map_reader(view), view.roster, view.domain)
    return figures.tree_height(len(cache.ask(queries.sources, view.roster))) if len(steps) else EMPTY_HEIGHT


def _tree(cache: QueryCache, view: View) -> FigureView:
    steps = cache.ask(queries.dendrogram, cache.map_reader(view), view.roster, view.domain)
    if steps.empty:
        return drawing.unmapped(cache, view, "tree of sources")
    sources = cache.ask(queries.sources, view.roster)
    sentence = (
        "Average linkage of cosine distances: sources join where their clusters meet, further left is less alike. A "
        f"branch has a family's colour while all under it are of that family. n = {len(sources)} sources."
    )
    return FigureView(figures.tree(steps, sources, cache.marks(), theme=view.theme, selected=view.source), sentence)


# ---- what the figures say of themselves -----------------------------------------------------------------------------


def _trust_table(cache: QueryCache, view: View) -> pd.DataFrame:
    frame = _quality(cache, view).drop(columns="build_id")
    settings = [json.loads(text) for text in frame["settings"]]
    return frame.assign(
        seed=[setting.get("seed") for setting in settings],
        perplexity=[setting.get("perplexity") for setting in settings],
    )


def _tree_table(cache: QueryCache, view: View) -> pd.DataFrame:
    steps = cache.ask(queries.dendrogram, cache.map_reader(view), view.roster, view.domain)
    names = cache.ask(queries.sources, view.roster)["name"]
    count = len(names)

    def named(node: int) -> str:
        return str(names.iloc[node]) if node < count else f"cluster {node - count + 1}"

    return steps.assign(
        step=steps["step"] + 1,
        left_node=[named(int(node)) for node in steps["left_node"]],
        right_node=[named(int(node)) for node in steps["right_node"]],
    )


def _key(cache: QueryCache, view: View) -> dict[str, object]:
    return {"reader": cache.map_reader(view), "roster": view.roster, "domain": view.domain}


def _told(table: Any, store: str, **less: str) -> shell.FigureMeta:
    def made(cache: QueryCache, view: View) -> tuple[str, dict[str, object]]:
        return store, {name: value for name, value in _key(cache, view).items() if name not in less}

    return shell.FigureMeta(table, made, QueryCache.map_reader)


PAGE = shell.Page(
    name="neighbourhoods",
    path="/neighbourhoods",
    title="Neighbourhoods",
    icon="neighbourhoods",
    layout=layout,
    register=register,
    figures={
        "purity": _told(
            lambda cache, view: cache.ask(queries.family_purity, view.roster, view.domain).drop(columns="build_id"),
            "family_purity",
        ),
        "neighbours": _told(_rows, "neighbors"),
        "nearest": _told(_nearest_rows, "neighbors"),
        "pairs": _told(_pair_rows, "neighbors", reader=""),
        "agreement": _told(
            lambda cache, view: cache.ask(queries.reader_agreement, view.roster, view.domain).drop(columns="build_id"),
            "reader_agreement",
            reader="",
        ),
        "stability": _told(
            lambda cache, view: cache.ask(
                queries.prompt_stability, view.roster, view.domain, cache.map_reader(view)
            ).drop(columns="build_id"),
            "prompt_stability",
        ),
        "trust": _told(_trust_table, "projection_quality"),
        "domains": _told(
            lambda cache, view: _domain_rows(cache, view).drop(columns=["build_id", "best_other", "best_other_name"]),
            "cross_domain",
            domain="",
        ),
        "tree": _told(_tree_table, "dendrogram"),
    },
)
