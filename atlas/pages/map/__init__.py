"""The map, which is the home page: every source of a roster as a point, and the card of one source or of two."""

from __future__ import annotations

import dataclasses
import functools
import json
from typing import Any

import dash_mantine_components as dmc
import pandas as pd
from dash import ALL, ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update
from dash.development.base_component import Component

from atlas import drawing, shell
from atlas.api import answers
from atlas.data import QueryCache, questions
from atlas.figures.map import (
    MAJORITY,
    UNDATED,
    joint_figure,
    map_figure,
    month_text,
    months_of,
    of_size,
    shown,
    stated_month,
    stated_size,
    whole_families,
)
from atlas.figures.plots import rate_text
from atlas.pages import pieces
from atlas.pages.map import selection
from atlas.pages.map.card import NEAREST, axis_strip, card, nearest_table, pair_table, sizes, symbol_and_name, voters
from atlas.pages.map.columns import axis, colouring, offered
from atlas.state import ACCESS, COLOURS, DIMENSIONS, LINKS, PROJECTIONS, REGIONS, SIZES, SPACES, View
from atlas.theme import TOKENS, Mark, Plot
from backend.store import queries
from backend.store.page_queries import clusters, density_regions, joint_projection

__all__ = ["PAGE", "layout", "symbol_and_name", "voters"]

QUESTION = "Which sources write alike?"
ASKED = "Which model wrote your answers?"
LINKS_HELP = (
    "Lines to the nearest in the original space, of the selected source or of all: a long line is a place where the "
    "map is wrong. Dashed: between the two sources that are compared"
)
REGIONS_HELP = (
    "Families: what holds half of a family's density, on the flat map. Clusters: where points are dense, whoever they "
    "are (HDBSCAN); coloured where most of them are one family. Both describe the drawing, not the original space"
)
SPACE_HELP = (
    "Both domains on one map: a source stands twice, joined by a line; less means takes each domain's mean away"
)
SIGNATURE_HELP = (
    "The mean fingerprint of a source's responses. A fingerprint has two numbers a hidden unit of the proxy: the mean "
    "over the response, and how it drifts from start to end"
)
TRUST_HELP = "How far neighbours on the map are neighbours in the original space: 1 when all are (10 nearest counted)"
DATE_HELP = (
    "The month that a name states, such as gpt-4.1-2025-04-14; no list of release dates is shipped. Sources whose name "
    "states none are grey while the range is narrowed, unless you keep them"
)
OWN = ("projection", "dim", "access", "size", "links", "space", "regions", "colour")
"""Choices of the page that are a field of the view each and a control of the same name."""
STORED = ("families", "released", "chosen", "unsized")
"""The same, in a store of that name."""


@drawing.page
def layout(cache: QueryCache, linked: View) -> Component:
    """The page of a view, or of the nearest one that has a map."""
    view = cache.with_map(linked)
    points = _points(cache, view)
    return html.Div(
        className="map-page",
        id="figure-map",
        children=[
            shell.settled(linked, view, _replaced_words(cache, linked, view)),
            dcc.Store(id="map-settled"),
            dcc.Store(id="families", data=list(view.families)),
            dcc.Store(id="released", data=view.released),
            dcc.Store(id="chosen", data=list(view.chosen)),
            dcc.Store(id="unsized", data=view.unsized),
            dcc.Store(id="mapped", data=_mapped(cache)),
            *(dcc.Store(id=name) for name in ("map-link", "names-drawn", "mapped-told", "pair-shown")),
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
    names = html.Div(id="names", className="names", **shell.aria(hidden="true"))
    return html.Div([body, names], className="map-stage", id="map-stage", **shown_dim)


def _title(cache: QueryCache, view: View, points: pd.DataFrame) -> Component:
    badge = shell.origin_badge(cache.origin(cache.map_reader(view)), "map")
    sentence = _sentence(cache, view, points)
    attribute: dict[str, Any] = {"data-page": "/attribute", "data-choices": "{}"}
    ask = html.A(ASKED, href="/attribute", className="button button-main", **attribute)
    content = [
        html.Div([html.H1(QUESTION), badge, ask], className="figure-title"),
        html.P(sentence, id={"type": "sentence", "figure": "map"}, className="sentence"),
        shell.tools("map"),
    ]
    return html.Section(content, className="map-title")


def _legend_panel(cache: QueryCache, view: View, points: pd.DataFrame) -> Component:
    everyone = html.Button("Show all", id={"all-families": "map"}, className="quiet", title="End the isolation")
    opens = {"zIndex": 300, "width": "max-content", "position": "bottom-start"}
    colour: Component = pieces.select(
        "colour", offered(cache, view), view.colour, "Colour by", allowDeselect=False, comboboxProps=opens
    )
    foot = [
        shell.segmented("access", ACCESS, view.access, "Access"),
        shell.segmented("size", SIZES, view.size, "Size"),
        _dates(cache, view),
        html.Div(_unstated(cache, view, points), id="undated", className="undated"),
        _explained("Outlines", REGIONS_HELP, shell.segmented("regions", REGIONS, view.regions, "Outlines")),
        everyone,
    ]
    content = [
        html.Summary(
            [
                html.Span(["Families", html.Span(" and filters", className="and-filters")]),
                html.Div(_scale(cache, view), id="scale", className="scale"),  # seen while folded, too
            ],
            title="Fold or unfold. On the map a name stands at its family's densest place with room",
        ),
        html.Div([html.Label("Colour by", htmlFor="colour", className="choice-label"), colour], className="colour"),
        html.Div(_legend(cache, view, points), id="legend", className="legend-rows"),
        html.P(id="legend-more", className="legend-more", **shell.aria(hidden="true")),
        html.Div(foot, className="legend-foot"),
    ]
    return html.Details(content, className="panel legend", id="legend-panel", open=True)


def _side(cache: QueryCache, view: View) -> Component:
    fields = [
        shell.source_search(name, cache, view.roster, value, hint, label)
        for name, value, hint, label in (
            ("search", view.source, "Find a source  ( / )", "Find a source by name"),
            ("map-other", view.other, "Compare with another", "Second source"),
        )
    ]
    group: Component = pieces.select(
        "group", selection.offered(cache, view), None, "Select a cluster or a family", searchable=True,
        placeholder="Select a cluster or a family", filter=shell.BY_WORDS, maxDropdownHeight=320,
    )  # fmt: skip
    content = [
        html.Summary("Source", title="Fold or unfold"),
        pieces.live("card", card(cache, view)),
        html.Div(axis_strip(cache, view), id="axis"),
    ]
    clear = html.Button("Clear the selection", id="unchoose", className="quiet")
    several = [
        html.Summary("Selection", title="Fold or unfold"),
        html.Div([shell.tools("selection", picture=False, table_view=False, builds=False), clear], className="ways"),
        pieces.live("chosen-content", selection.panel(cache, view)),
    ]
    panels = [
        html.Div([*fields, group], className="panel search-panel"),
        html.Details(content, className="panel card", open=True),
        html.Details(several, className="panel card chosen", open=True, id="figure-selection"),
    ]
    return html.Div(panels, className="map-side")


def _projector(cache: QueryCache, view: View) -> Component:
    content = [
        shell.segmented("projection", PROJECTIONS, view.projection, "Projection"),
        shell.segmented("dim", {dim: f"{dim}-D" for dim in DIMENSIONS}, view.dim, "Dimensions"),
        html.Span(_trust(cache, view), id="trust", className="trust"),
        _explained("Lines", LINKS_HELP, shell.segmented("links", LINKS, view.links, "Lines")),
        _explained("Domains", SPACE_HELP, shell.segmented("space", SPACES, view.space, "Domains")),
        html.Button(
            "Lasso",
            id="lasso",
            className="quiet flat",
            title="Draw around sources to select them",
            **shell.aria(pressed="false"),
        ),
        html.Span("Draw around points to select them", className="panel lasso-hint flat"),
        html.Button("Turn", id="turn", className="quiet solid", title="Turn the scene; a drag stops it"),
        html.Button("Reset", id="reset-camera", className="quiet", title="Reset the view"),
    ]
    return html.Div(content, className="panel projector")


def _dates(cache: QueryCache, view: View) -> Component:
    """A range of the months that names state; fixed ends, so that a link means the same in every roster."""
    rosters = cache.ask(queries.rosters)["roster"]
    names = {name for roster in rosters for name in cache.ask(queries.sources, roster)["name"]}
    months = sorted(month for month in map(stated_month, names) if month == month)
    if not months or months[0] == months[-1]:
        return html.Div(id="months")
    ends = months[0], months[-1]
    chosen = months_of(view.released) or ends
    slider: Component = dmc.RangeSlider(
        id="months", min=ends[0], max=ends[1], step=1, minRange=0, value=list(chosen), updatemode="drag",
        size="xs", label=None, thumbFromLabel="First month", thumbToLabel="Last month",
    )  # fmt: skip
    named = zip(("first-month", "last-month"), chosen, strict=True)
    below = html.Div([html.Span(month_text(month), id=name) for name, month in named], className="scale-ends")
    return html.Div([shell.term("Date", DATE_HELP), html.Div([slider, below])], className="dates")


def _unstated(cache: QueryCache, view: View, points: pd.DataFrame) -> list[Component]:
    """How many sources each filter by what names state leaves faint, and the choice to keep those that state none."""
    if points.empty:
        return []
    notes: list[Component] = []
    names, months, sized = cache.ask(queries.sources, view.roster)["name"], months_of(view.released), view.size != "all"
    others = bool(view.families or view.chosen or view.access != "all")
    if sized:
        stated = names.map(stated_size).astype(float)
        outside = f"{(stated.notna() & ~of_size(names, view.size)).sum()} outside"
        by = "faint by size alone" if others or months else "faint"
        kept, unknown = view.unsized == "on", f"{stated.isna().sum()} of unknown size"
        of, words = f"Shown: {SIZES[view.size]} by name", "Leave out unknown sizes" if kept else "Keep unknown sizes"
        text = f"{of}, and {unknown}; {by}: {outside}" if kept else f"{of}; {by}: {unknown}, {outside}"
        notes += [pieces.words(text), html.Button(words, id={"unsized": "map"}, className="quiet")]
    if months:
        stated = names.map(stated_month).astype(float)
        kept, undated = view.released.endswith(UNDATED), f"{stated.isna().sum()} undated"
        outside = f"{(stated.notna() & ~stated.between(*months)).sum()} outside"
        by = "faint by date alone" if others or sized else "faint"
        words = "Leave out the undated" if kept else "Keep the undated"
        dated = f"Shown: dated {' to '.join(map(month_text, months))}"
        text = f"{dated}, and {undated}; {by}: {outside}" if kept else f"{dated}; {by}: {undated}, {outside}"
        notes += [pieces.words(text), html.Button(words, id={"undated": "map"}, className="quiet")]
    return notes


def _counted(points: pd.DataFrame, view: View) -> str:
    """'165 sources', '29 of 165 sources' where filters leave fewer, of those whose name states what is filtered by."""
    front = points.loc[_front(points, view), "source"].nunique()
    dated = bool(months_of(view.released)) and not view.released.endswith(UNDATED)
    sized = view.size != "all" and not view.unsized
    filters = (dated, "a date", stated_month), (sized, "a size", stated_size)
    whole = points["source"].nunique()
    for on, _, read in filters:
        points = points[points["name"].map(read).notna()] if on else points
    stated = " and ".join(words for on, words, _ in filters if on)
    if stated:
        return f"{front} of {whole} sources ({points['source'].nunique()} state {stated})"
    return f"{whole} sources" if front == whole else f"{front} of {whole} sources"


def _mapped(cache: QueryCache) -> dict[str, list[str]]:
    """Readers that show a map, by roster and domain: those that have one, and those whose sibling has."""
    readers, found = cache.ask(queries.readers), {}
    kin = dict(zip(readers["reader"], zip(readers["method"], readers["proxy"].fillna(""), strict=True), strict=True))
    for (roster, domain), part in cache.ask(queries.maps).groupby(["roster", "domain"]):
        mapped = {kin[reader] for reader in part["reader"] if kin[reader][1]}
        own = set(part["reader"])
        found[f"{roster} {domain}"] = [one for one in readers["reader"] if one in own or kin[one] in mapped]
    return found


def _explained(word: str, meaning: str, field: Component) -> Component:
    return html.Div([shell.term(word, meaning), field], className="linked")


def register(app: Dash) -> None:
    """Callbacks of the page."""

    def client(name: str, *wires: Output | Input | State, initial: bool = False, namespace: str = "atlas") -> None:
        more = {} if initial else {"prevent_initial_call": True}
        app.clientside_callback(ClientsideFunction(namespace, name), *wires, **more)

    mine = functools.partial(client, namespace="map")

    own, stored = [Input(name, "value") for name in OWN], [Input(name, "data") for name in STORED]
    camera = Output("camera", "data")
    search, other = Input("search", "value"), Input("map-other", "value")
    ends = search, other, Input("camera", "data")
    client("map", *own[:-1], stored[0], *ends, initial=True)
    mine("remember", Output("map-link", "data"), *shell.SHARED[:3], *own, *stored, *ends, initial=True)
    mine("offer", Output("mapped-told", "data"), Input("mapped", "data"), *shell.SHARED[:3], initial=True)
    mine("names", Output("names-drawn", "data"), Input("map", "figure"), initial=True)
    range_of, released = [State("months", "min"), State("months", "max")], Output("released", "data")
    mine("released", released, Input("months", "value"), *range_of)
    clicked = Input({"undated": ALL}, "n_clicks")
    mine("undated", Output("released", "data", allow_duplicate=True), clicked, State("released", "data"))
    kept = Input({"unsized": ALL}, "n_clicks")
    mine("unsized", Output("unsized", "data"), kept, State("unsized", "data"))
    two = State("search", "value"), State("map-other", "value")
    mine("pairShown", Output("pair-shown", "data"), Input("card", "children"), *two, initial=True)
    mine("lassoMode", Output("lasso", "aria-pressed"), Input("lasso", "n_clicks"), Input("map", "selectedData"))
    more = Input({"type": "choose", "source": ALL}, "n_clicks"), Input("unchoose", "n_clicks")
    mine("choose", Output("chosen", "data"), Input("map", "selectedData"), *more, State("chosen", "data"))
    mine("beside", Output("map-other", "value"), Input({"type": "beside", "source": ALL, "place": ALL}, "n_clicks"))
    mine("apart", Output("map-other", "value", allow_duplicate=True), search, other)
    client("turn", Input("turn", "n_clicks"))
    client("settled", Input("map-settled", "data"))  # a store of its own, as other pages have the usual one
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
        Output("scale", "children"),
        Output("trust", "children"),
        Output("undated", "children"),
        Output({"type": "sentence", "figure": "map"}, "children"),
        Output({"type": "absent", "figure": "map"}, "children"),
        Output("map-settled", "data"),
        *shell.SHARED,
        search,
        other,
        *own,
        *stored,
        State("camera", "data"),
        prevent_initial_call=True,
    )
    @answers.pure
    def draw(
        reader: str, roster: str, domain: str, theme: str, source: str | None, other: str | None, *values: Any
    ) -> tuple[Any, ...]:
        *own, camera = values
        cache = questions()
        fields = dict(zip(OWN + STORED, own, strict=True))
        asked = shell.shared_view(reader, roster, domain, theme, source=source, other=other, **fields)
        view = cache.with_map(dataclasses.replace(asked, camera=tuple(camera or ())))
        points = _points(cache, view)
        return (
            {"figure": _figure(cache, view, points), "drawn": _drawn(view, points)},
            _legend(cache, view, points),
            _scale(cache, view),
            _trust(cache, view),
            _unstated(cache, view, points),
            _sentence(cache, view, points),
            _absent(cache, view) if points.empty else None,
            shell.replaced(asked, view, _replaced_words(cache, asked, view)),
        )

    @app.callback(
        Output("chosen", "data", allow_duplicate=True), Output("group", "value"), Input("group", "value"),
        *(State(part.component_id, part.component_property) for part in (*shell.SHARED, *own[:2])),
        prevent_initial_call=True,
    )  # fmt: skip
    def grouped(
        value: str | None, reader: str, roster: str, domain: str, theme: str, projection: str, dim: str
    ) -> tuple[Any, Any]:
        if not value:
            return no_update, no_update
        view = shell.shared_view(reader, roster, domain, theme, projection=projection, dim=dim)
        return selection.group(questions(), view, value), None

    drawn = State("map", "figure"), State("drawn", "data")
    client("redraw", Output("map", "figure"), Output("drawn", "data"), Input("redrawn", "data"), *drawn)
    filters = {"access": own[2], "size": own[3], "families": stored[0], "released": stored[1], "unsized": stored[3]}
    drawing.follow(app, drawing.place("card", card), source=search, other=other, chosen=stored[2], **filters)
    lists = Output("group", "data"), Output("colour", "data")
    drawing.follow(
        app,
        drawing.Part(lists, lambda cache, view: (selection.offered(cache, view), offered(cache, view))),
        drawing.place("chosen-content", selection.panel),
        drawing.place("axis", axis_strip),
        source=search, other=other, projection=own[0], dim=own[1], chosen=stored[2],
    )  # fmt: skip
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
        "size": sizes(view), "released": view.released, "chosen": _chosen(points, view), "selected": view.source,
        "other": view.other, "camera": view.camera, "tints": found.tints if (found := colouring(cache, view)) else None,
    }  # fmt: skip
    if view.space != "one":
        order = sorted(set(points["domain"]), key=lambda domain: (domain != view.domain, domain))
        names = {domain: pieces.domain_words(domain) for domain in order}
        return _unlabelled(joint_figure(points, cache.marks(), names, links=view.links, **common))
    outlined = view.regions == "families" and view.dim == 2
    key = cache.map_reader(view), view.roster, view.domain, view.projection
    regions = cache.ask(density_regions, *key) if outlined else None
    grouped = _clusters(cache, view) if view.regions == "clusters" else None
    common |= {"regions": regions, "clusters": grouped, "joined": view.links != "off"}
    return _unlabelled(map_figure(points, _links(cache, view), cache.marks(), **common))


def _unlabelled(figure: Plot) -> Plot:
    """The figure without its labels, which pictures alone have: the page writes names by zoom and free room."""
    for trace in figure["data"]:
        if trace["name"] == "labels":
            trace["visible"] = "legendonly"
    return figure


def _chosen(points: pd.DataFrame, view: View) -> list[str]:
    """Selected sources that are on the map."""
    placed = set(points["source"]) if view.chosen else set()
    return [source for source in view.chosen if source in placed]


def _front(points: pd.DataFrame, view: View) -> pd.Series:
    """Which points the filters and the selection leave in front."""
    return shown(points, view.families, view.access, sizes(view), view.released, _chosen(points, view))


def _clusters(cache: QueryCache, view: View) -> pd.DataFrame:
    """Source and cluster of what the drawn map holds together."""
    return cache.ask(clusters, cache.map_reader(view), view.roster, view.domain, view.projection, view.dim)


def _drawn_words(view: View) -> str:
    return f"{view.dim}-D {PROJECTIONS[view.projection]}"


def _replaced_words(cache: QueryCache, linked: View, shown: View) -> str:
    """Which choice has no map here, and what is shown instead."""
    if not cache.knows(linked.reader):
        return ""
    asked, drawn = (
        (cache.reader_name(view.reader), drawing.choice_words(view), _drawn_words(view)) for view in (linked, shown)
    )
    instead = ", ".join(new for old, new in zip(asked, drawn, strict=True) if old != new)
    kind = f"{asked[2]} map" if asked[2] != drawn[2] else "map"
    return f"{asked[0]} has no {kind} of {asked[1]} here: {instead} is shown."


def _absent(cache: QueryCache, view: View) -> Component:
    def link(near: View) -> str:
        return f"{PAGE.path}?{near.query()}"

    what = f"This reader has no {_drawn_words(view)} map of"
    if view.space != "one":
        remedy = "Choose t-SNE or UMAP, another reader or roster, or one domain"
        alone = [("Show one domain", link(dataclasses.replace(view, space="one")))]
        return shell.empty(f"{what} both domains for {view.roster}", remedy, alone)
    command = drawing.maps(cache, view)
    absent = shell.empty(
        f"{what} {view.roster} on {pieces.domain_words(view.domain)}",
        f"Choose another reader, roster or domain above{command and f', or make it with: {command}'}",
    )
    return absent if cache.map_reader(view) else html.Div(absent, className="unmapped")


def _sentence(cache: QueryCache, view: View, points: pd.DataFrame) -> list[Component | str]:
    reader = cache.map_reader(view)
    if not reader or points.empty:
        return ["There is no map for this choice."]
    count = html.B(_counted(points, view), className="count")
    if view.space != "one":
        apart = ", less the mean of its domain" if view.space == "centred" else ""
        flat = " Outlines are drawn on a map of one domain." if view.regions != "off" else ""
        text = (
            f" in both domains as seen by {cache.proxy_name(reader)}{apart}. {pieces.domain_words(view.domain)} in "
            f"full, the other small and faint; a line joins the two of a source.{flat}"
        )
        return [count, text]
    builds = cache.ask(queries.builds_of, "signatures", pieces.map_key("reader", "roster", "domain")(cache, view))
    responses = json.loads(builds["details"].iloc[0]).get("prompts") if len(builds) else None
    each = f"over {responses} responses" if responses else "over its responses"
    outlined = _outlined(cache, view, points)
    named = " Names stand where there is room." if view.dim == 2 and not outlined else ""
    trust = _trust(cache, view)
    kept = [" ", *trust[:2], "drawn and original."] if len(trust) > 1 else []  # the page has it below the map
    return [
        count,
        f" as seen by {cache.proxy_name(reader) if reader == view.reader else cache.reader_words(reader)}. "
        "A point is a source's ",
        shell.term("signature", SIGNATURE_HELP),
        f" {each}; near points write alike.{outlined}",
        html.Span(named, className="room"),
        html.Span(kept, className="slide-only"),
    ]


def _outlined(cache: QueryCache, view: View, points: pd.DataFrame) -> str:
    """What is outlined, in a sentence; nothing where one sees it."""
    if view.regions == "families" and view.dim == 3:
        return " Families are outlined on the flat map."
    if view.regions == "families" and not whole_families(points, _front(points, view)):
        return " No family is whole, so none is outlined."
    if view.regions == "families" and not _front(points, view).all():
        return " Families that are shown whole are outlined."
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
        return [
            "ten nearest compared",
            html.Br(),
            shell.term(
                "on maps of one domain",
                "How far the ten nearest of a map of both domains are the true ones is not measured",
            ),
        ]
    values = pieces.drawing_quality(cache, view)
    value, shared = values.get("trustworthiness_10", values.get("trustworthiness_5")), values.get("knn_jaccard_10")
    if value is None:
        return []
    trust = f"Trustworthiness {rate_text(float(value))}. {TRUST_HELP}"
    if shared is None:
        return [shell.term("How far to trust this map", trust)]
    share = html.B(f"{100 * shared:.1f} %", className="number")
    meaning = f"{pieces.SHARED_HELP}. {trust}"
    return [share, " overlap of the ten nearest, ", shell.term("drawn and original", meaning)]


def _legend(cache: QueryCache, view: View, points: pd.DataFrame) -> list[Component]:
    """Families with '12 / 64': sources in colour now, sources in this roster."""
    marks, points = cache.marks(), points.drop_duplicates("source")
    present = points["family"].value_counts()
    passed = points.loc[_front(points, view), "family"].value_counts()
    if view.colour != "family":  # the points have other colours
        marks = {
            family: Mark(TOKENS["dark"]["soft"], TOKENS["light"]["soft"], marks[family].symbol) for family in marks
        }
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
        return points.loc[_front(points, view), ["name", "family", "domain", "access", "source", *axes]].reset_index(
            drop=True
        )
    near = cache.ask(queries.neighbors, cache.map_reader(view), view.roster, view.domain, None, 1)
    nearest = near.rename(columns={"name": "nearest", "family": "nearest_family"})
    columns = ["source", "nearest", "nearest_family", "cosine", "percentile", "rank_back"]
    frame = points.drop(columns="position").merge(nearest[columns], on="source", how="left")
    if view.regions == "clusters":
        grouped = _clusters(cache, view)
        frame = frame.merge(grouped.assign(cluster=grouped["cluster"] + 1), on="source", how="left")
    cluster = ["cluster"] if "cluster" in frame else []
    order = ["name", "family", *cluster, *columns[1:], "access", "source", *axes]
    return frame.loc[_front(frame, view), order].reset_index(drop=True)


def _scale(cache: QueryCache, view: View) -> list[Component]:
    """What the colours stand for, where they are not those of families."""
    if view.colour == "family":
        return []
    found = colouring(cache, view)
    if found is None:
        return [pieces.words(f"{COLOURS[view.colour]} is not known here, so families keep their colours.")]
    ends = [html.Span(found.low), html.Span(found.high)]
    bar = html.Span(
        _ticks(cache, view) if view.colour == "axis" else None,
        className="scale-bar", style={"background": f"linear-gradient(to right, {', '.join(found.colours)})"},
    )  # fmt: skip
    told = view.colour == "date" and months_of(view.released)  # next to the range
    points = _points(cache, view)
    # A filter by size leaves none whose size is not known, and their number would vanish.
    own = view.colour == "size" and view.size != "all"
    counted = _front(points, dataclasses.replace(view, size="all") if own else view)
    front = points.loc[counted, "source"].drop_duplicates()
    missing = int(front.isin(found.unknown).sum())
    which = "of any size" if own else "shown"
    of = f"all {len(front)}" if len(front) == len(found.tints) else f"the {len(front)} {which}"
    faint = f"Faint: not known, {missing} of {of}." if missing and not told else ""
    notes = [*_ends(cache, view), *([pieces.words(faint)] if faint else [])]
    # The folded panel has no list of colours, the open one cuts long names, and the ends of an axis are its name.
    name = {"size": "Size, log scale:", "axis": ""}.get(view.colour, f"{COLOURS[view.colour]}:")
    return [html.Span(name, className="scale-name"), bar, html.Div(ends, className="scale-ends"), *notes]


def _ticks(cache: QueryCache, view: View) -> list[Component]:
    """0, one half and 1 on the bar of an axis: the two sources, and the middle between them."""
    values = axis(cache, view)
    low, wide = values.min(), max(values.max() - values.min(), 1e-9)
    places = {words: 100 * (at - low) / wide for words, at in (("0", 0.0), (".5", 0.5), ("1", 1.0))}
    return [html.Span(words, className="scale-tick", style={"left": f"{at:.1f}%"}) for words, at in places.items()]


def _ends(cache: QueryCache, view: View) -> list[Component]:
    """The two sources at 0 and 1 of an axis; nothing for other colours."""
    if view.colour != "axis":
        return []
    names = cache.ask(queries.sources, view.roster).set_index("source")["name"]
    first, second = (shell.source_name(names[source]) for source in (view.source, view.other))
    return [html.P(["0 is ", first, ", 1 is ", second], className="sentence scale-sources")]


def _builds(cache: QueryCache, view: View) -> tuple[str, dict[str, object]]:
    key = pieces.map_key("reader", "roster")(cache, view) | {"method": view.projection, "dimensions": view.dim}
    if view.space != "one":
        return "joint_projections", {**key, "variant": view.space}
    return "projections", {**key, "domain": view.domain}


def _cluster_builds(cache: QueryCache, view: View) -> tuple[str, dict[str, object]] | None:
    return ("clusters", _builds(cache, view)[1]) if view.space == "one" and view.regions == "clusters" else None


TABLE_WIDTHS = {"name": 176, "family": 92, "nearest": 176, "nearest_family": 92, "cosine": 84}
"""Pixels at which the table shows these columns at once in the 668 that a window of 1,280 leaves it."""
FIGURES = {
    "map": shell.FigureMeta(_table, _builds, QueryCache.map_reader, _cluster_builds, widths=TABLE_WIDTHS),
    "selection": shell.FigureMeta(selection.table, None, QueryCache.map_reader),
    "map-nearest": shell.FigureMeta(nearest_table, None, QueryCache.map_reader),
    "map-pair": shell.FigureMeta(pair_table, None, QueryCache.map_reader),
}
PAGE = pieces.page("map", layout, register, FIGURES, path="/")
