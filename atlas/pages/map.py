"""The map, which is the home page: every source of a roster as a point, and the card of one source or of two."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pandas as pd
from dash import ALL, ClientsideFunction, Dash, Input, Output, State, dcc, html
from dash.development.base_component import Component

from atlas import drawing, shell
from atlas.api import answers
from atlas.data import QueryCache, questions
from atlas.figures import plots, tables
from atlas.figures.map import MAJORITY, joint_figure, map_figure, shown
from atlas.figures.plots import rate_text
from atlas.pages import pieces
from atlas.state import ACCESS, DIMENSIONS, LINKS, PROJECTIONS, REGIONS, SIZES, SPACES, View
from atlas.theme import Mark, Plot, Theme
from backend.protocol import READER_PAPER
from backend.store import queries
from backend.store.page_queries import clusters, density_regions, joint_projection, neighbor_votes

QUESTION = "Which sources write alike?"
LINKS_HELP = "Lines to the nearest in the original space: a long line is a place where the map is wrong"
REGIONS_HELP = (
    "Families: what holds half of a family's density, on the flat map. Clusters: where points are dense, whoever they "
    "are (HDBSCAN); coloured where most of them are one family. Both describe the drawing, not the original space"
)
SPACE_HELP = "Both domains on one map: a source stands twice, joined by a line; centred takes each domain's mean away"
FINGERPRINT_HELP = (
    "Two numbers a hidden unit of the proxy: the mean over the response, and how it drifts from start to end"
)
TRUST_HELP = "How far neighbours on the map are neighbours in the original space: 1 when all are (10 nearest counted)"
OWN = ("projection", "dim", "access", "size", "links", "space", "regions")
"""Choices of the page that are a field of the view each and a control of the same name."""
NEAREST = 5
"""Neighbours that are linked and listed, as many as the authors' viewer shows."""
WITHIN = 10
"""Rank up to which a reader counts as agreeing that a source is near."""
VARIANTS = {"raw": "as it is", "centred": "with each domain's mean taken away"}


@drawing.page
def layout(cache: QueryCache, view: View) -> Component:
    """The page of a view."""
    points = _points(cache, view)
    return html.Div(
        className="map-page",
        id="figure-map",
        children=[
            dcc.Store(id="families", data=list(view.families)),
            dcc.Store(id="camera", data=list(view.camera)),
            dcc.Store(id="drawn", data=_drawn(view, points)),
            _stage(cache, view, points),
            _title(cache, view, points),
            _legend_panel(cache, view, points),
            _side(cache, view),
            _projector(cache, view),
        ],
    )


def _stage(cache: QueryCache, view: View, points: pd.DataFrame) -> Component:
    graph = shell.graph("map", _figure(cache, view, points), dcc.Store(id="redrawn"), scroll_zoom=True)
    label = f"{QUESTION} A map of {len(points)} sources. The search and the table hold the same content."
    absent = _absent(cache, view) if points.empty else None
    body = shell.figure_body("map", graph, height=None, label=label, absent=absent)
    shown_dim: dict[str, Any] = {"data-dim": str(view.dim)}
    return html.Div(body, className="map-stage", id="map-stage", **shown_dim)


def _title(cache: QueryCache, view: View, points: pd.DataFrame) -> Component:
    badge = shell.origin_badge(cache.origin(cache.map_reader(view)), "map")
    sentence = _sentence(cache, view, points)
    content = [
        html.Div([html.H1(QUESTION), badge], className="figure-title"),
        html.P(sentence, id={"type": "sentence", "figure": "map"}, className="sentence"),
        shell.tools("map"),
    ]
    return html.Section(content, className="map-title")


def _legend_panel(cache: QueryCache, view: View, points: pd.DataFrame) -> Component:
    everyone = html.Button(
        "Show all families", id={"all-families": "map"}, className="quiet", title="End the isolation"
    )
    foot = [
        shell.segmented("access", ACCESS, view.access, "Access"),
        shell.segmented("size", SIZES, view.size, "Size"),
        _explained("Outlines", REGIONS_HELP, shell.segmented("regions", REGIONS, view.regions, "Outlines")),
        everyone,
    ]
    content = [
        html.Summary("Families", title="Fold or unfold"),
        html.Div(_legend(cache, view, points), id="legend", className="legend-rows"),
        html.Div(foot, className="legend-foot"),
    ]
    return html.Details(content, className="panel legend", id="legend-panel", open=True)


def _side(cache: QueryCache, view: View) -> Component:
    fields = [
        shell.source_search(name, cache, view.roster, value, hint, label)
        for name, value, hint, label in (
            ("search", view.source, "Find a source  ( / )", "Find a source by name"),
            ("map-other", view.other, "and hold another beside it", "Second source"),
        )
    ]
    content = [html.Summary("Source", title="Fold or unfold"), pieces.live("card", card(cache, view))]
    panels = [
        html.Div(fields, className="panel search-panel"),
        html.Details(content, className="panel card", open=True),
    ]
    return html.Div(panels, className="map-side")


def _projector(cache: QueryCache, view: View) -> Component:
    content = [
        shell.segmented("projection", PROJECTIONS, view.projection, "Projection"),
        shell.segmented("dim", {dim: f"{dim}-D" for dim in DIMENSIONS}, view.dim, "Dimensions"),
        html.Span(_trust(cache, view), id="trust", className="trust"),
        _explained("Lines", LINKS_HELP, shell.segmented("links", LINKS, view.links, "Lines")),
        _explained("Domains", SPACE_HELP, shell.segmented("space", SPACES, view.space, "Domains")),
        html.Button("Turn", id="turn", className="quiet solid", title="Turn the scene; a drag stops it"),
        html.Button("Reset", id="reset-camera", className="quiet", title="Reset the view"),
    ]
    return html.Div(content, className="panel projector")


def _explained(word: str, meaning: str, field: Component) -> Component:
    return html.Div([shell.term(word, meaning), field], className="linked")


def register(app: Dash) -> None:
    """Callbacks of the page."""

    def client(name: str, *wires: Output | Input | State, initial: bool = False) -> None:
        more = {} if initial else {"prevent_initial_call": True}
        app.clientside_callback(ClientsideFunction("atlas", name), *wires, **more)

    own = [Input(name, "value") for name in OWN]
    families, camera = Input("families", "data"), Output("camera", "data")
    search, other = Input("search", "value"), Input("map-other", "value")
    client("map", *own, families, search, other, Input("camera", "data"), initial=True)
    client("turn", Input("turn", "n_clicks"))
    client("camera", camera, Input("map", "relayoutData"))
    client("resetCamera", Output("camera", "data", allow_duplicate=True), Input("reset-camera", "n_clicks"))
    walk = Input({"type": "walk", "source": ALL, "place": ALL}, "n_clicks")
    client("pick", Output("search", "value"), Input("map", "clickData"), walk)
    isolate = Input({"type": "isolate", "family": ALL}, "n_clicks"), Input({"all-families": ALL}, "n_clicks")
    client("isolate", Output("families", "data"), *isolate, State("families", "data"))

    # The answer is not a Patch: one that arrives while its page closes would find no figure, which Dash calls an
    # error. The browser takes what is new out of it.
    @app.callback(
        Output("redrawn", "data"),
        Output("legend", "children"),
        Output("trust", "children"),
        Output({"type": "sentence", "figure": "map"}, "children"),
        Output({"type": "absent", "figure": "map"}, "children"),
        *shell.SHARED,
        families,
        search,
        other,
        *own,
        State("camera", "data"),
        prevent_initial_call=True,
    )
    @answers.pure
    def draw(
        reader: str, roster: str, domain: str, theme: str, families: list[str], source: str | None, other: str | None,
        *values: Any,
    ) -> tuple[Any, ...]:  # fmt: skip
        *own, camera = values
        cache = questions()
        chosen = dict(zip(OWN, own, strict=True))
        view = shell.shared_view(reader, roster, domain, theme, source=source, other=other, families=families, **chosen)
        view = dataclasses.replace(view, camera=tuple(camera or ()))
        points = _points(cache, view)
        return (
            {"figure": _figure(cache, view, points), "drawn": _drawn(view, points)},
            _legend(cache, view, points),
            _trust(cache, view),
            _sentence(cache, view, points),
            _absent(cache, view) if points.empty else None,
        )

    drawn = State("map", "figure"), State("drawn", "data")
    client("redraw", Output("map", "figure"), Output("drawn", "data"), Input("redrawn", "data"), *drawn)
    drawing.follow(app, drawing.place("card", card), source=search, other=other)
    pieces.offer_sources(app, "search", "map-other")


def _points(cache: QueryCache, view: View) -> pd.DataFrame:
    reader = cache.map_reader(view)
    if view.space == "one":
        return cache.ask(queries.projection, reader, view.roster, view.domain, view.projection, view.dim)
    return cache.ask(joint_projection, reader, view.roster, view.space, view.projection, view.dim)


def _links(cache: QueryCache, view: View) -> pd.DataFrame:
    """Pairs to join: the selection's nearest, or everyone's nearest and the selection's."""
    reader = cache.map_reader(view)
    none = pd.DataFrame({"source": [], "neighbor": [], "rank": []})
    if view.links == "off" or not reader:
        return none
    parts = [none]
    if view.source:
        parts.append(cache.ask(queries.neighbors, reader, view.roster, view.domain, view.source, NEAREST))
    if view.links == "all":
        parts.append(cache.ask(queries.neighbors, reader, view.roster, view.domain, None, 1))
    joined = pd.concat([part[["source", "neighbor", "rank"]] for part in parts], ignore_index=True)
    return joined.drop_duplicates(["source", "neighbor"])


def _drawn(view: View, points: pd.DataFrame) -> int:
    """Dimensions of what is drawn, 0 for nothing."""
    return 0 if points.empty else view.dim


def _figure(cache: QueryCache, view: View, points: pd.DataFrame) -> Plot:
    if points.empty:
        return drawing.blank(view.theme)
    common: dict[str, Any] = {
        "theme": view.theme, "dimensions": view.dim, "families": view.families, "access": view.access,
        "size": view.size, "selected": view.source, "other": view.other, "camera": view.camera,
    }  # fmt: skip
    if view.space != "one":
        order = sorted(set(points["domain"]), key=lambda domain: (domain != view.domain, domain))
        # Without a selection there is no clutter to avoid.
        links = "all" if view.links == "selected" and not view.source else view.links
        names = {domain: pieces.domain_words(domain) for domain in order}
        return joint_figure(points, cache.marks(), names, links=links, **common)
    outlined = view.regions == "families" and view.dim == 2
    key = cache.map_reader(view), view.roster, view.domain, view.projection
    regions = cache.ask(density_regions, *key) if outlined else None
    grouped = _clusters(cache, view) if view.regions == "clusters" else None
    return map_figure(points, _links(cache, view), cache.marks(), regions=regions, clusters=grouped, **common)


def _clusters(cache: QueryCache, view: View) -> pd.DataFrame:
    """Source and cluster of what the drawn map holds together."""
    return cache.ask(clusters, cache.map_reader(view), view.roster, view.domain, view.projection, view.dim)


def _absent(cache: QueryCache, view: View) -> Component:
    def link(near: View) -> str:
        return f"{PAGE.path}?{near.query()}"

    what = f"This reader has no {view.dim}-D {PROJECTIONS[view.projection]} map of"
    if view.space != "one":
        remedy = "Choose t-SNE or UMAP, another reader or roster, or one domain"
        alone = [("Show one domain", link(dataclasses.replace(view, space="one")))]
        return shell.empty(f"{what} both domains for {view.roster}", remedy, alone)
    command = drawing.maps(cache, view)
    mapped, usual = (
        drawing.nearby(cache, one, lambda near: len(_points(cache, near)) > 0) for one in (view, cache.usual(view))
    )
    return shell.empty(
        f"{what} {view.roster} on {pieces.domain_words(view.domain)}",
        f"Choose another reader, roster or domain above{command and f', or make it with: {command}'}",
        [(f"Show {drawing.choice_words(near)}", link(near)) for near in mapped]
        or [(f"Show {cache.reader_name(near.reader)}", link(near)) for near in usual[:1]],
    )


def _sentence(cache: QueryCache, view: View, points: pd.DataFrame) -> list[Component | str]:
    reader = cache.map_reader(view)
    if not reader or points.empty:
        return ["There is no map for this choice."]
    count = html.B(f"{points['source'].nunique()} sources", className="count")
    if view.space != "one":
        apart = ", less the mean of its domain" if view.space == "centred" else ""
        flat = " Outlines are drawn on a map of one domain." if view.regions != "off" else ""
        text = (
            f" in both domains as seen by {cache.proxy_name(reader)}{apart}. {pieces.domain_words(view.domain)} is "
            "drawn in full, the other domain small and faint; a short line is a source that writes alike in both."
            f"{flat}"
        )
        return [count, text]
    builds = cache.ask(queries.builds_of, "signatures", pieces.map_key("reader", "roster", "domain")(cache, view))
    responses = json.loads(builds["details"].iloc[0]).get("prompts") if len(builds) else None
    each = f"of {responses} responses" if responses else "of its responses"
    return [
        count,
        f" as seen by {cache.proxy_name(reader) if reader == view.reader else cache.reader_words(reader)}. "
        "A point is the mean ",
        shell.term("fingerprint", FINGERPRINT_HELP),
        f" {each}; near points write alike.{_outlined(cache, view, points)}",
    ]


def _outlined(cache: QueryCache, view: View, points: pd.DataFrame) -> str:
    """What is outlined, in a sentence; nothing where one sees it."""
    if view.regions == "families" and view.dim == 3:
        return " Families are outlined on the flat map."
    if view.regions != "clusters":
        return ""
    grouped = points.merge(_clusters(cache, view), on="source")
    if grouped.empty:
        return " No cluster is dense enough to be told."
    shares = grouped.groupby("cluster")["family"].agg(lambda families: families.value_counts(normalize=True).iloc[0])
    found = " found here" if cache.origin(cache.map_reader(view)) == "published" else ""
    one_family = int((shares > MAJORITY).sum())
    return f" {len(shares)} clusters{found} hold {len(grouped)} of them; {one_family} are mostly one family."


def _trust(cache: QueryCache, view: View) -> list[Component | str]:
    if view.space != "one":
        return []
    quality = cache.ask(queries.projection_quality, cache.map_reader(view), view.roster, view.domain)
    here = quality[(quality["method"] == view.projection) & (quality["dimensions"] == view.dim)]
    values = dict(zip(here["metric"], here["value"], strict=True))
    value = values.get("trustworthiness_10", values.get("trustworthiness_5"))
    if value is None:
        return []
    return [shell.term("trustworthiness", TRUST_HELP), html.B(f" {rate_text(float(value))}", className="number")]


def _legend(cache: QueryCache, view: View, points: pd.DataFrame) -> list[Component]:
    """Families with '12 / 64': sources in colour now, sources in this roster."""
    marks, points = cache.marks(), points.drop_duplicates("source")
    present = points["family"].value_counts()
    passed = points.loc[shown(points, view.families, view.access, view.size), "family"].value_counts()
    order = sorted((family for family in marks if family in present), key=lambda family: -int(present[family]))
    rows: list[Component] = []
    for family in order:
        isolated = family in view.families
        of = html.Span(f" / {int(present[family])}", className="of")
        content = [
            shell.symbol(marks[family], view.theme),
            html.Span(family, className="legend-name", dir="auto"),
            pieces.number([str(int(passed.get(family, 0))), of]),
        ]
        dim = "legend-row dim" if view.families and not isolated else "legend-row"
        pressed = shell.aria(pressed="true" if isolated else "false")
        rows.append(html.Button(content, id={"type": "isolate", "family": family}, className=dim, **pressed))
    return rows


def _table(cache: QueryCache, view: View) -> pd.DataFrame:
    points = _points(cache, view)
    axes = ["x", "y", "z"] if view.dim == 3 else ["x", "y"]
    if view.space != "one":
        passed = shown(points, view.families, view.access, view.size)
        return points.loc[passed, ["name", "family", "domain", "access", "source", *axes]].reset_index(drop=True)
    near = cache.ask(queries.neighbors, cache.map_reader(view), view.roster, view.domain, None, 1)
    nearest = near.rename(columns={"name": "nearest", "family": "nearest_family"})
    columns = ["source", "nearest", "nearest_family", "cosine", "percentile", "rank_back"]
    frame = points.drop(columns="position").merge(nearest[columns], on="source", how="left")
    if view.regions == "clusters":
        grouped = _clusters(cache, view)
        frame = frame.merge(grouped.assign(cluster=grouped["cluster"] + 1), on="source", how="left")
    passed = shown(frame, view.families, view.access, view.size)
    cluster = ["cluster"] if "cluster" in frame else []
    order = ["name", "family", *cluster, *columns[1:], "access", "source", *axes]
    return frame.loc[passed, order].reset_index(drop=True)


def _builds(cache: QueryCache, view: View) -> tuple[str, dict[str, object]]:
    key = pieces.map_key("reader", "roster")(cache, view) | {"method": view.projection, "dimensions": view.dim}
    if view.space != "one":
        return "joint_projections", {**key, "variant": view.space}
    return "projections", {**key, "domain": view.domain}


def _cluster_builds(cache: QueryCache, view: View) -> tuple[str, dict[str, object]] | None:
    return ("clusters", _builds(cache, view)[1]) if view.space == "one" and view.regions == "clusters" else None


# ---- the card --------------------------------------------------------------------------------------------------------


def card(cache: QueryCache, view: View) -> list[Component]:
    """What the card holds for the selection, or without one."""
    if not view.source:
        return _closest_pairs(cache, view)
    reads, sees = cache.attribution_reader(view), cache.map_reader(view)
    profile = cache.ask(queries.source_profile, view.source, reads, view.roster, view.domain)
    if profile is None:
        return [pieces.words("This source is not in the atlas.")]
    facts: shell.Children = [
        shell.symbol(cache.marks()[profile.family], view.theme),
        shell.family_link(view, profile.family),
        html.Span(" · "),
        pieces.ACCESS_WORDS.get(profile.access, profile.access),
        html.Span(" · "),
        f"{profile.responses:,} responses",
        html.Span(view.source, className="name", title=f"Label: {view.source}", dir="auto"),
    ]
    parts: list[Component] = [
        html.H2(shell.source_link(view, view.source, profile.name), className="card-name"),
        html.P(facts, className="card-facts"),
    ]
    if view.roster not in profile.rosters:
        return [*parts, pieces.words(f"Not in {view.roster}; it is in {', '.join(profile.rosters)}.", caution=True)]
    more = [_nearest(cache, view, sees), _accuracy(profile), _other_domain(cache, view, sees), _pair(cache, view)]
    return [*parts, *(part for some in more for part in some)]


def voters(cache: QueryCache, view: View) -> list[str]:
    """Readers of the paper's method with neighbours of this roster and domain, in the view that is shown."""
    shown = cache.map_reader(view)
    if not shown:
        return []
    readers = cache.ask(queries.readers)
    alike = (readers["method"] == READER_PAPER) & (readers["view"] == cache.reader_row(shown)["view"])
    return [
        str(row.reader)
        for row in tables.rows(readers[alike])
        if view.domain in row.domains and view.roster in row.rosters
    ]


def _other_domain(cache: QueryCache, view: View, reader: str) -> list[Component]:
    """Where the source's signature of this domain finds it in the other one."""
    frame = cache.ask(queries.cross_domain, reader, view.roster, view.source) if reader else pd.DataFrame()
    if frame.empty:
        return []
    frame = frame[(frame["metric"] == "rank") & (frame["query_domain"] == view.domain)]
    ranks = dict(zip(frame["variant"], frame["value"], strict=True))
    if not ranks:
        return []
    other = pieces.domain_words(str(frame["gallery_domain"].iloc[0]))
    text = " and ".join(f"rank {ranks[name]:.0f} {VARIANTS[name]}" for name in VARIANTS if name in ranks)
    meaning = "Rank of the source itself among all signatures of the other domain: 1 is found"
    return [
        html.H3(["Sought in ", shell.term(other, meaning)]),
        pieces.words(f"{text[:1].upper()}{text[1:]}, of {pieces.roster_size(cache, view)}."),
    ]


def _pair(cache: QueryCache, view: View) -> list[Component]:
    """The selection and a second source, as every reader sees the two."""
    if not view.other or view.other == view.source:
        return []
    frame = cache.ask(queries.pair_ranks, view.roster, view.domain, view.source, view.other)
    members = cache.ask(queries.sources, view.roster).set_index("source")
    if frame.empty or view.other not in members.index:
        return [pieces.words(f"No reader has ranks of this pair for {drawing.choice_words(view)}.", caution=True)]
    shown, names = cache.map_reader(view), cache.short_names(list(frame["reader"]))
    rows = [
        pieces.row(
            names[pair.reader], pieces.count_text(pair.mutual_rank), _cosine_text(pair.cosine),
            here=pair.reader == shown, title=cache.reader_name(pair.reader),
        )
        for pair in tables.rows(frame)
    ]  # fmt: skip
    mutual = shell.term("mutual rank", "The worse of the two ranks: of the second from the first, and back")
    other: Any = members.loc[view.other]
    link = f"{shell.source_path(view, view.source)}&{View(other=view.other).query()}"
    return [
        html.H3("Beside"),
        symbol_and_name(cache.marks()[other["family"]], view.theme, other["name"]),
        pieces.table(["Reader", html.Th(mutual), "cosine"], rows, "beside"),
        *_by_domain(cache, view),
        dcc.Link("Compare the two in full", href=link, className="forward"),
    ]


def _by_domain(cache: QueryCache, view: View) -> list[Component]:
    """The pair in every domain in which the reader of the map has seen both; nothing where that is one alone."""
    found = []
    for domain in cache.domains():
        frame = cache.ask(queries.pair_ranks, view.roster, domain, view.source, view.other)
        own = frame[frame["reader"] == cache.map_reader(dataclasses.replace(view, domain=domain))]
        if len(own):
            found.append(f"{_cosine_text(own['cosine'].iloc[0])} on {pieces.domain_words(domain)}")
    return [pieces.words(f"On this map, cosine {' and '.join(found)}.")] if len(found) > 1 else []


def _near_rows(cache: QueryCache, view: View, reader: str, source: str | None) -> pd.DataFrame:
    if not reader:
        return pd.DataFrame()
    return cache.ask(queries.neighbors, reader, view.roster, view.domain, source, NEAREST)


def _nearest(cache: QueryCache, view: View, reader: str) -> list[Component]:
    near = _near_rows(cache, view, reader, view.source)
    if near.empty:
        return [pieces.words("No neighbours are stored for this choice.")]
    marks = cache.marks()
    maps = cache.ask(queries.maps)
    agree = sorted(set(maps["reader"][(maps["roster"] == view.roster) & (maps["domain"] == view.domain)]))
    votes = cache.ask(neighbor_votes, view.roster, view.domain, view.source, WITHIN, agree)
    shares = {vote.neighbor: f"{vote.near}/{vote.readers}" for vote in tables.rows(votes)}
    several = len(agree) > 1
    size = pieces.roster_size(cache, view)
    chances = [plots.p_text(chance) for chance in pieces.chance_of(near["percentile"], size)]
    between = f"= {chances[0]}" if chances[0] == chances[-1] else f"from {chances[0]} to {chances[-1]}"
    rows = [
        html.Button(
            id={"type": "walk", "source": one.neighbor, "place": "near"},
            className="near-row",
            title=f"Rank {one.rank} from here, rank {one.rank_back} from there",
            children=[
                html.Span(str(one.rank), className="number rank"),
                shell.symbol(marks[one.family], view.theme),
                shell.source_name(one.shown),
                pieces.number(_cosine_text(one.cosine)),
                pieces.number("100%" if one.percentile >= 0.9995 else f"{100 * one.percentile:.1f}%", soft=True),
                *([pieces.number(shares.get(one.neighbor, "–"), soft=True)] if several else []),
            ],
        )
        for one in tables.rows(near.rename(columns={"name": "shown"}))
    ]
    seen = f"Readers with a map of this choice that have it among the {WITHIN} nearest"
    head = [
        html.Span("", className="rank"),
        html.Span(""),
        html.Span("source"),
        shell.term("cosine", "Cosine of the two mean fingerprints: 1 when they point the same way"),
        shell.term("percentile", "Share of all pairs of sources that are less similar than this one"),
        *([shell.term("seen by", seen)] if several else []),
    ]
    return [
        html.H3(["Nearest in the ", shell.term("original space", pieces.ORIGINAL_HELP)]),
        html.Div(head, className="near-row near-head"),
        html.Div(rows, className="near"),
        pieces.words(shell.term("p", pieces.CHANCE_HELP), f" {between}, among {size * (size - 1) // 2:,} pairs."),
    ]


def _accuracy(profile: queries.SourceProfile) -> list[Component]:
    if profile.accuracy.empty:
        text = "Nothing is measured for this reader, roster and domain."
        return [html.H3("How soon it is recognised"), pieces.words(text)]
    bars = []
    for one in tables.rows(profile.accuracy):
        fill = html.Span(className="bar-fill", style={"height": f"{100 * one.accuracy:.1f}%"})
        content = [
            pieces.number(rate_text(one.accuracy) if one.accuracy < 1 else "1"),
            html.Span(fill, className="bar-track"),
            pieces.number(str(one.k), soft=True),
        ]
        bars.append(html.Div(content, className="bar-cell", title=f"{one.accuracy:.1%} of {one.n} groups a seed"))
    budget = shell.term("budget K", "How many traces of the source are seen before it is named")
    parts: list[Component] = [html.H3(["Accuracy by ", budget]), html.Div(bars, className="bars")]
    if len(profile.confusions):
        worst = profile.confusions.iloc[0]
        identity = {"type": "walk", "source": worst["predicted"], "place": "confused"}
        content = [shell.source_name(worst["name"]), pieces.number(f"{worst['share']:.1%}")]
        parts.append(html.H3("Most confused with, at one trace"))
        parts.append(html.Button(content, id=identity, className="near-row confused-row"))
    return parts


def _closest_pairs(cache: QueryCache, view: View) -> list[Component]:
    """Before anything is selected: the nearest pairs whose families differ."""
    hint = pieces.words("Click a point, or press / and type a name.")
    near = _near_rows(cache, view, cache.map_reader(view), None)
    if near.empty:
        return [hint]
    members: Any = cache.ask(queries.sources, view.roster).set_index("source")
    marks = cache.marks()
    far = near[near["family"] != near["source"].map(members["family"])]
    far = far[far["source"] < far["neighbor"]].sort_values("cosine", ascending=False).head(NEAREST)
    rows = []
    for place, pair in enumerate(tables.rows(far)):
        both = [
            symbol_and_name(marks[members.at[source, "family"]], view.theme, members.at[source, "name"])
            for source in (pair.source, pair.neighbor)
        ]
        content = [html.Span(both, className="pair-names"), pieces.number(_cosine_text(pair.cosine))]
        identity = {"type": "walk", "source": pair.source, "place": f"pair-{place}"}
        rows.append(html.Button(content, id=identity, className="pair-row"))
    title = html.H2("Nearest pairs across families, by cosine", className="minor")
    return [hint, title, html.Div(rows, className="near")]


def symbol_and_name(mark: Mark, theme: Theme, name: str) -> Component:
    """A source in one line: its family's mark and its name."""
    return pieces.marked(shell.symbol(mark, theme), shell.source_name(name))


def _cosine_text(value: float) -> str:
    """A cosine; near 1, where a roster's pairs differ in the fourth digit, with more of them."""
    return f"{value:.5f}".removeprefix("0") if 0.9995 <= value < 1 else rate_text(value)


FIGURES = {"map": shell.FigureMeta(_table, _builds, QueryCache.map_reader, _cluster_builds)}
PAGE = pieces.page("map", layout, register, FIGURES, path="/")
