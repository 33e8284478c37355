"""The map, which is the home page: every source of a roster as a point, and one source's card beside it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pandas as pd
from dash import ALL, ClientsideFunction, Dash, Input, Output, Patch, State, dcc, html, no_update
from dash.development.base_component import Component

from atlas import answers, drawing, shell
from atlas.data import DOMAIN_NAMES, Questions, questions
from atlas.figures.attribution import rate_text
from atlas.figures.map import map_figure, shown
from atlas.state import ACCESS, DIMENSIONS, LINKS, PROJECTIONS, View
from atlas.theme import Mark, Plot, Theme
from backend.store import queries

QUESTION = "Which sources write alike?"
LINKS_HELP = "Lines to the nearest in the original space: a long line is a place where the map is wrong"
NEAREST = 5
"""Neighbours that are linked and listed, as many as the authors' viewer shows."""


@drawing.page
def layout(asked: Questions, view: View) -> Component:
    """The page of a view."""
    points, links = _points(asked, view), _links(asked, view)
    return html.Div(
        className="map-page",
        id="figure-map",
        children=[
            dcc.Store(id="families", data=list(view.families)),
            dcc.Store(id="camera", data=list(view.camera)),
            dcc.Store(id="drawn", data=view.dim),
            html.Div(
                shell.figure_body(
                    "map",
                    shell.graph("map", _figure(asked, view, points, links), scroll_zoom=True),
                    height=None,
                    label=f"{QUESTION} A map of {len(points)} sources. The search and the table hold the same content.",
                    absent=_absent(asked, view) if points.empty else None,
                ),
                className="map-stage",
                id="map-stage",
                **{"data-dim": str(view.dim)},
            ),
            html.Section(
                className="map-title",
                children=[
                    html.Div(
                        [html.H1(QUESTION), shell.origin_badge(asked.origin(asked.map_reader(view)), "map")],
                        className="figure-title",
                    ),
                    html.P(
                        _sentence(asked, view, points), id={"type": "sentence", "figure": "map"}, className="sentence"
                    ),
                    shell.tools("map"),
                ],
            ),
            html.Details(
                className="panel legend",
                open=True,
                children=[
                    html.Summary("Families", title="Fold or unfold"),
                    html.Div(_legend(asked, view, points), id="legend", className="legend-rows"),
                    html.Div(
                        className="legend-foot",
                        children=[
                            shell.segmented("access", ACCESS, view.access, "Access"),
                            html.Button(
                                "Show all families",
                                id={"all-families": "map"},
                                className="quiet",
                                title="End the isolation",
                            ),
                        ],
                    ),
                ],
            ),
            html.Div(
                className="map-side",
                children=[
                    html.Div(
                        className="panel search-panel",
                        children=shell.source_search(
                            "search", asked, view.roster, view.source, "Find a source  ( / )", "Find a source by name"
                        ),
                    ),
                    html.Details(
                        className="panel card",
                        open=True,
                        children=[
                            html.Summary("Source", title="Fold or unfold"),
                            html.Div(_card(asked, view), id="card", **{"aria-live": "polite"}),
                        ],
                    ),
                ],
            ),
            html.Div(
                className="panel projector",
                children=[
                    shell.segmented("projection", PROJECTIONS, view.projection, "Projection"),
                    shell.segmented("dim", {dim: f"{dim}-D" for dim in DIMENSIONS}, view.dim, "Dimensions"),
                    html.Span(_trust(asked, view), id="trust", className="trust"),
                    html.Div(
                        [
                            shell.term("Nearest", LINKS_HELP),
                            shell.segmented("links", LINKS, view.links, "Neighbour links"),
                        ],
                        className="linked",
                    ),
                    html.Button("Reset", id="reset-camera", className="quiet", title="Reset the view"),
                ],
            ),
        ],
    )


def register(app: Dash) -> None:
    """Callbacks of the page."""

    def client(name: str) -> ClientsideFunction:
        return ClientsideFunction("atlas", name)

    app.clientside_callback(
        client("map"),
        Input("projection", "value"),
        Input("dim", "value"),
        Input("families", "data"),
        Input("access", "value"),
        Input("links", "value"),
        Input("search", "value"),
        Input("camera", "data"),
    )
    app.clientside_callback(
        client("camera"), Output("camera", "data"), Input("map", "relayoutData"), prevent_initial_call=True
    )
    app.clientside_callback(
        client("resetCamera"),
        Output("camera", "data", allow_duplicate=True),
        Input("reset-camera", "n_clicks"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        client("pick"),
        Output("search", "value"),
        Input("map", "clickData"),
        Input({"type": "walk", "source": ALL, "place": ALL}, "n_clicks"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        client("isolate"),
        Output("families", "data"),
        Input({"type": "isolate", "family": ALL}, "n_clicks"),
        Input({"all-families": ALL}, "n_clicks"),
        State("families", "data"),
        prevent_initial_call=True,
    )

    @app.callback(
        Output("map", "figure"),
        Output("drawn", "data"),
        Output("legend", "children"),
        Output("trust", "children"),
        Output({"type": "sentence", "figure": "map"}, "children"),
        Output({"type": "absent", "figure": "map"}, "children"),
        *shell.SHARED,
        Input("projection", "value"),
        Input("dim", "value"),
        Input("families", "data"),
        Input("access", "value"),
        Input("links", "value"),
        Input("search", "value"),
        State("camera", "data"),
        State("drawn", "data"),
        prevent_initial_call=True,
    )
    @answers.pure
    def draw(
        reader: str,
        roster: str,
        domain: str,
        theme: str,
        projection: str,
        dim: str,
        families: list[str],
        access: str,
        links: str,
        source: str | None,
        camera: list[float],
        drawn: int,
    ) -> tuple[Any, ...]:
        asked = questions()
        view = _view(
            asked,
            (reader, roster, domain, theme),
            source,
            families,
            camera,
            projection=projection,
            dim=dim,
            access=access,
            links=links,
        )
        points = _points(asked, view)
        figure: Any = _figure(asked, view, points, _links(asked, view))
        if drawn == view.dim:
            whole, figure = figure, Patch()
            figure["data"] = whole["data"]
            figure["layout"]["template"] = whole["layout"]["template"]
        return (
            figure,
            view.dim,
            _legend(asked, view, points),
            _trust(asked, view),
            _sentence(asked, view, points),
            _absent(asked, view) if points.empty else None,
        )

    drawing.follow(app, drawing.place("card", _card), source=Input("search", "value"))

    @app.callback(Output("search", "data"), Input("roster", "value"), prevent_initial_call=True)
    def suggestions(roster: str) -> Any:
        return shell.source_options(questions(), roster) if roster else no_update


def _view(
    asked: Questions,
    shared: tuple[str, str, str, str],
    source: str | None,
    families: list[str] | None,
    camera: list[float] | None,
    **own: str,
) -> View:
    view = shell.shared_view(*shared, source=source, **own)
    known = asked.marks()
    return replace(
        view,
        families=tuple(family for family in families or [] if family in known),
        camera=tuple(camera) if camera else (),
    )


# ---- what is drawn --------------------------------------------------------------------------------------------------


def _points(asked: Questions, view: View) -> pd.DataFrame:
    reader = asked.map_reader(view)
    return asked.ask(queries.projection, reader, view.roster, view.domain, view.projection, view.dim)


def _links(asked: Questions, view: View) -> pd.DataFrame:
    """Pairs to join: the selection's nearest, or everyone's nearest and the selection's."""
    reader = asked.map_reader(view)
    none = pd.DataFrame({"source": [], "neighbor": [], "rank": []})
    if view.links == "off" or not reader:
        return none
    parts = [none]
    if view.source:
        parts.append(asked.ask(queries.neighbors, reader, view.roster, view.domain, view.source, NEAREST))
    if view.links == "all":
        parts.append(asked.ask(queries.neighbors, reader, view.roster, view.domain, None, 1))
    joined = pd.concat([part[["source", "neighbor", "rank"]] for part in parts], ignore_index=True)
    return joined.drop_duplicates(["source", "neighbor"])


def _figure(asked: Questions, view: View, points: pd.DataFrame, links: pd.DataFrame) -> Plot:
    if points.empty:
        return drawing.blank(view.theme)
    return map_figure(
        points,
        links,
        asked.marks(),
        theme=view.theme,
        dimensions=view.dim,
        families=view.families,
        access=view.access,
        selected=view.source,
        camera=view.camera,
    )


def _absent(asked: Questions, view: View) -> Component:
    domain = DOMAIN_NAMES.get(view.domain, view.domain)
    return shell.empty(
        f"This reader has no {view.dim}-D {PROJECTIONS[view.projection]} map of {view.roster} on {domain}",
        "Choose another reader, roster or domain above, or make it with: python -m jobs map",
        [(f"Show {drawing.choice_words(near)}", f"{PAGE.path}?{near.query()}") for near in _mapped(asked, view)]
        or [
            (f"Show {asked.reader_name(near.reader)}", f"{PAGE.path}?{near.query()}")
            for near in _mapped(asked, asked.usual(view))[:1]
        ],
    )


def _mapped(asked: Questions, view: View) -> list[View]:
    """Views that differ in roster or domain alone and have a map: same domain first, longest roster first."""
    size = asked.ask(queries.rosters).set_index("roster")["sources"]
    views = [replace(view, roster=roster, domain=domain) for roster in size.index for domain in asked.domains()]
    held = [near for near in views if len(_points(asked, near))]
    return sorted(held, key=lambda near: (near.domain != view.domain, -size[near.roster]))[:3]


def _sentence(asked: Questions, view: View, points: pd.DataFrame) -> list[Component | str]:
    reader = asked.map_reader(view)
    if not reader or points.empty:
        return ["There is no map for this choice."]
    key = {"reader": reader, "roster": view.roster, "domain": view.domain}
    builds = asked.ask(queries.made_by, "signatures", key)
    responses = json.loads(builds["details"].iloc[0]).get("prompts") if len(builds) else None
    each = f"of {responses} responses" if responses else "of its responses"
    return [
        html.B(f"{len(points)} sources", className="count"),
        f" as seen by {asked.proxy_name(reader) if reader == view.reader else asked.reader_words(reader)}. "
        "A point is the mean ",
        shell.term(
            "fingerprint",
            "Two numbers a hidden unit of the proxy: the mean over the response, and how it drifts from start to end",
        ),
        f" {each}; near points write alike.",
    ]


def _trust(asked: Questions, view: View) -> list[Component | str]:
    quality = asked.ask(queries.projection_quality, asked.map_reader(view), view.roster, view.domain)
    here = quality[(quality["method"] == view.projection) & (quality["dimensions"] == view.dim)]
    values = dict(zip(here["metric"], here["value"], strict=True))
    value = values.get("trustworthiness_10", values.get("trustworthiness_5"))
    if value is None:
        return []
    return [
        shell.term(
            "trustworthiness",
            "How far neighbours on the map are neighbours in the original space: 1 when all are (10 nearest counted)",
        ),
        html.B(f" {rate_text(float(value))}", className="number"),
    ]


def _legend(asked: Questions, view: View, points: pd.DataFrame) -> list[Component]:
    """Families with '12 / 64': sources in colour now, sources in this roster."""
    marks = asked.marks()
    held = points["family"].value_counts()
    passed = points.loc[shown(points, view.families, view.access), "family"].value_counts()
    order = sorted((family for family in marks if family in held), key=lambda family: -int(held[family]))
    rows: list[Component] = []
    for family in order:
        isolated = family in view.families
        dim = bool(view.families) and not isolated
        rows.append(
            html.Button(
                id={"type": "isolate", "family": family},
                className="legend-row dim" if dim else "legend-row",
                **{"aria-pressed": "true" if isolated else "false"},
                children=[
                    shell.symbol(marks[family], view.theme),
                    html.Span(family, className="legend-name", dir="auto"),
                    html.Span(
                        [str(int(passed.get(family, 0))), html.Span(f" / {int(held[family])}", className="of")],
                        className="number",
                    ),
                ],
            )
        )
    return rows


# ---- the card -------------------------------------------------------------------------------------------------------


def _card(asked: Questions, view: View) -> list[Component]:
    if not view.source:
        return _closest_pairs(asked, view)
    reads, sees = asked.attribution_reader(view), asked.map_reader(view)
    profile = asked.ask(queries.source_profile, view.source, reads, view.roster, view.domain)
    if profile is None:
        return [html.P("This source is not in the atlas.", className="sentence")]
    mark = asked.marks()[profile.family]
    responses = f"{profile.responses:,} responses"
    parts: list[Component] = [
        html.H2(shell.source_link(view, view.source, profile.name), className="card-name"),
        html.P(
            [
                shell.symbol(mark, view.theme),
                shell.family_link(view, profile.family),
                html.Span(" · "),
                {"local": "local weights", "api": "API"}.get(profile.access, profile.access),
                html.Span(" · "),
                responses,
            ],
            className="card-facts",
        ),
    ]
    if view.roster not in profile.rosters:
        parts.append(
            html.P(f"Not in {view.roster}; it is in {', '.join(profile.rosters)}.", className="sentence caution")
        )
        return parts
    parts += _nearest(asked, view, sees)
    parts += _accuracy(view, profile)
    return parts


def _nearest(asked: Questions, view: View, reader: str) -> list[Component]:
    near = (
        asked.ask(queries.neighbors, reader, view.roster, view.domain, view.source, NEAREST)
        if reader
        else pd.DataFrame()
    )
    if near.empty:
        return [html.P("No neighbours are stored for this choice.", className="sentence")]
    marks = asked.marks()
    rows = [
        html.Button(
            id={"type": "walk", "source": row.neighbor, "place": "near"},
            className="near-row",
            title=f"Rank {row.rank} from here, rank {row.rank_back} from there",
            children=[
                html.Span(str(row.rank), className="number rank"),
                shell.symbol(marks[row.family], view.theme),
                shell.source_name(row.shown),
                html.Span(rate_text(row.cosine), className="number"),
                html.Span(_percent(row.percentile), className="number soft"),
            ],
        )
        for row in near.rename(columns={"name": "shown"}).itertuples(index=False)
    ]
    return [
        html.H3(
            [
                "Nearest in the ",
                shell.term("original space", "All dimensions of the fingerprint, before any projection to the screen"),
            ]
        ),
        html.Div(
            [
                html.Span("", className="rank"),
                html.Span(""),
                html.Span("source"),
                shell.term("cosine", "Cosine of the two mean fingerprints: 1 when they point the same way"),
                shell.term("percentile", "Share of all pairs of sources that are less similar than this one"),
            ],
            className="near-row near-head",
        ),
        html.Div(rows, className="near"),
    ]


def _accuracy(view: View, profile: queries.SourceProfile) -> list[Component]:
    if profile.accuracy.empty:
        return [
            html.H3("How soon it is recognised"),
            html.P("Nothing is measured for this reader, roster and domain.", className="sentence"),
        ]
    bars = [
        html.Div(
            className="bar-cell",
            title=f"{row.accuracy:.1%} of {row.n} groups a seed",
            children=[
                html.Span(rate_text(row.accuracy) if row.accuracy < 1 else "1", className="number"),
                html.Span(
                    html.Span(className="bar-fill", style={"height": f"{100 * row.accuracy:.1f}%"}),
                    className="bar-track",
                ),
                html.Span(str(row.k), className="number soft"),
            ],
        )
        for row in profile.accuracy.itertuples(index=False)
    ]
    parts: list[Component] = [
        html.H3(["Accuracy by ", shell.term("budget K", "How many traces of the source are seen before it is named")]),
        html.Div(bars, className="bars"),
    ]
    if len(profile.confusions):
        worst = profile.confusions.iloc[0]
        parts += [
            html.H3("Most confused with, at one trace"),
            html.Button(
                id={"type": "walk", "source": worst["predicted"], "place": "confused"},
                className="near-row confused-row",
                children=[shell.source_name(worst["name"]), html.Span(f"{worst['share']:.1%}", className="number")],
            ),
        ]
    return parts


def _closest_pairs(asked: Questions, view: View) -> list[Component]:
    """Before anything is selected: the nearest pairs whose families differ."""
    hint = html.P("Click a point, or press / and type a name.", className="sentence")
    reader = asked.map_reader(view)
    near = asked.ask(queries.neighbors, reader, view.roster, view.domain, None, NEAREST) if reader else pd.DataFrame()
    if near.empty:
        return [hint]
    members = asked.ask(queries.sources, view.roster).set_index("source")
    marks = asked.marks()
    far = near[near["family"] != near["source"].map(members["family"])]
    far = far[far["source"] < far["neighbor"]].sort_values("cosine", ascending=False).head(NEAREST)
    rows = []
    for place, row in enumerate(far.itertuples(index=False)):
        own = members.loc[row.source]
        rows.append(
            html.Button(
                id={"type": "walk", "source": row.source, "place": f"pair-{place}"},
                className="pair-row",
                children=[
                    html.Span(
                        [symbol_and_name(marks[own["family"]], view.theme, own["name"]),
                         symbol_and_name(marks[row.family], view.theme, members.loc[row.neighbor, "name"])],
                        className="pair-names",
                    ),
                    html.Span(rate_text(row.cosine), className="number"),
                ],
            )
        )  # fmt: skip
    return [
        hint,
        html.H2("Nearest pairs across families, by cosine", className="minor"),
        html.Div(rows, className="near"),
    ]


def symbol_and_name(mark: Mark, theme: Theme, name: str) -> Component:
    """A source in one line: its family's mark and its name."""
    return html.Span([shell.symbol(mark, theme), shell.source_name(name)], className="marked")


def _percent(share: float) -> str:
    return "100%" if share >= 0.9995 else f"{100 * share:.1f}%"


# ---- what the map says of itself ------------------------------------------------------------------------------------


def _table(asked: Questions, view: View) -> pd.DataFrame:
    points = _points(asked, view)
    near = asked.ask(queries.neighbors, asked.map_reader(view), view.roster, view.domain, None, 1)
    nearest = near.rename(columns={"name": "nearest", "family": "nearest_family"})
    columns = ["source", "nearest", "nearest_family", "cosine", "percentile", "rank_back"]
    frame = points.drop(columns="position").merge(nearest[columns], on="source", how="left")
    passed = shown(frame, view.families, view.access)
    axes = ["x", "y", "z"] if view.dim == 3 else ["x", "y"]
    order = ["name", "family", *columns[1:], "access", "source", *axes]
    return frame.loc[passed, order].reset_index(drop=True)


def _made(asked: Questions, view: View) -> tuple[str, dict[str, object]]:
    key = {"reader": asked.map_reader(view), "roster": view.roster, "domain": view.domain}
    return "projections", {**key, "method": view.projection, "dimensions": view.dim}


PAGE = shell.Page(
    name="map",
    path="/",
    title="Map",
    icon="map",
    layout=layout,
    register=register,
    figures={"map": shell.Told(_table, _made, Questions.map_reader)},
)
