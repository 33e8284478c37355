"""Pages and figures as the frame sees them, and the callbacks that all of them share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
from dash import ALL, MATCH, ClientsideFunction, Dash, Input, Output, State, no_update
from dash.development.base_component import Component

from atlas import answers
from atlas.data import QueryCache, questions
from atlas.shell.figures import builds_told, csv_text, table
from atlas.shell.words import ORIGINS, empty
from atlas.state import View, join
from backend.store import queries

SHARED = (Input("reader", "value"), Input("roster", "value"), Input("domain", "value"), Input("theme", "data"))
Made = Callable[[QueryCache, View], tuple[str, dict[str, object]]]  # a table of the store, and the key of its rows


@dataclasses.dataclass(frozen=True)
class FigureMeta:
    """What a figure shows besides its drawing."""

    table: Callable[[QueryCache, View], pd.DataFrame]  # its rows, for the table view and the CSV
    made: Made | None = None  # None where the figure itself lists the builds
    reader: Callable[[QueryCache, View], str] = QueryCache.attribution_reader  # whose numbers are shown
    beside: Callable[[QueryCache, View], tuple[str, dict[str, object]] | None] = lambda _cache, _view: None
    """The same as ``made`` of rows of another table, which another build may have made."""

    def builds(self, cache: QueryCache, view: View) -> pd.DataFrame:
        """What made the figure: columns of table ``builds``, each build once, newest first."""
        keys = [self.made(cache, view) if self.made else None, self.beside(cache, view)]
        parts = [cache.ask(queries.builds_of, *key) for key in keys if key]
        frame = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["build_id", "started_at"])
        return frame.drop_duplicates("build_id").sort_values("started_at", ascending=False, kind="stable")


@dataclasses.dataclass(frozen=True)
class Page:
    """One page: where it is (a template with <label> where it is one page a source), how the navigation calls it (a
    page without an icon is not in it), and what it needs to work."""

    name: str
    path: str
    title: str
    icon: str
    layout: Callable[..., Component]
    register: Callable[[Dash], None]
    figures: Mapping[str, FigureMeta]


def shared_view(reader: str | None, roster: str | None, domain: str | None, theme: str | None, **own: Any) -> View:
    """A settled view of the header's choices and a page's own."""
    given = {"reader": reader, "roster": roster, "domain": domain, "theme": theme, **own}
    lists = {name: join(tuple(value)) for name, value in given.items() if isinstance(value, list)}
    return questions().resolve_view(
        View.parse({name: value for name, value in (given | lists).items() if value is not None})
    )


def register(app: Dash, pages: Sequence[Page]) -> None:
    """Callbacks of the frame, and those that all figures share."""
    metas = {name: figure for page in pages for name, figure in page.figures.items()}

    def client(function: str) -> ClientsideFunction:
        return ClientsideFunction("atlas", function)

    app.clientside_callback(
        client("arrive"),
        *(Output(name, "value") for name in ("reader", "roster", "domain")),
        Input("_pages_location", "search"),
        Input("_pages_location", "pathname"),
        *(State(name, part) for part in ("data", "value") for name in ("reader", "roster", "domain")),
    )
    app.clientside_callback(client("header"), *SHARED)
    app.clientside_callback(
        client("theme"),
        Output("theme", "data"),
        Output("mantine", "forceColorScheme"),
        Input("theme-toggle", "n_clicks"),
        State("theme", "data"),
    )
    app.clientside_callback(client("fold"), Output("fold", "aria-expanded"), Input("fold", "n_clicks"))
    app.clientside_callback(client("copyLink"), Input("copy-view", "n_clicks"), prevent_initial_call=True)
    app.clientside_callback(
        client("copyLink"), Input({"type": "link", "figure": MATCH}, "n_clicks"), prevent_initial_call=True
    )
    app.clientside_callback(
        client("picture"),
        Input({"type": "png", "figure": MATCH}, "n_clicks"),
        Input({"type": "svg", "figure": MATCH}, "n_clicks"),
        prevent_initial_call=True,
    )
    app.clientside_callback(
        client("tableShown"),
        Output({"type": "body", "figure": MATCH}, "className"),
        Output({"type": "table", "figure": MATCH}, "aria-pressed"),
        Input({"type": "table", "figure": MATCH}, "n_clicks"),
        prevent_initial_call=True,
    )

    # A callback without an output is not called when its page opens, so this one has one.
    app.clientside_callback(client("settled"), Output("settled-told", "data"), Input("settled", "data"))

    @app.callback(
        Output({"type": "origin", "figure": ALL}, "children"),
        Output({"type": "origin", "figure": ALL}, "className"),
        *SHARED,
        State({"type": "origin", "figure": ALL}, "id"),
        prevent_initial_call=True,
    )
    @answers.pure
    def origins(reader: str, roster: str, domain: str, theme: str, identities: list[dict[str, str]]) -> Any:
        cache, view = questions(), shared_view(reader, roster, domain, theme)
        found = [cache.origin(metas[identity["figure"]].reader(cache, view)) for identity in identities]
        return [ORIGINS[origin] for origin in found], [f"origin origin-{origin}" for origin in found]

    # Which tables are open is known in the browser, so that the server is asked for none where none is.
    app.clientside_callback(
        client("tables"),
        Output("tables", "data"),
        Input({"type": "table", "figure": ALL}, "n_clicks"),
        Input("view", "data"),
        State({"type": "table", "figure": ALL}, "id"),
        prevent_initial_call=True,
    )

    @app.callback(
        Output({"type": "rows", "figure": ALL}, "children"),
        Input("tables", "data"),
        State({"type": "rows", "figure": ALL}, "id"),
        prevent_initial_call=True,
    )
    @answers.pure
    def rows(request: dict[str, Any], identities: list[dict[str, str]]) -> Any:
        view = questions().resolve_view(View.parse(request["view"]))

        def shown(figure: str) -> Any:
            if figure not in request["figures"]:
                return no_update
            frame = metas[figure].table(questions(), view)
            if frame.empty:
                return empty("There are no rows for this choice", "Choose another reader, roster or domain above")
            return table(frame, identity={"type": "grid", "figure": figure})

        return [shown(identity["figure"]) for identity in identities]

    @app.callback(
        Output({"type": "download", "figure": MATCH}, "data"),
        Input({"type": "csv", "figure": MATCH}, "n_clicks"),
        State("view", "data"),
        State({"type": "csv", "figure": MATCH}, "id"),
        prevent_initial_call=True,
    )
    def csv(clicks: int | None, link: dict[str, str], identity: dict[str, str]) -> Any:
        if not clicks:
            return no_update
        view = questions().resolve_view(View.parse(link))
        text = csv_text(metas[identity["figure"]].table(questions(), view))
        parts = ("atlas", identity["figure"], view.roster, view.domain, questions().generation().name)
        return {"content": text, "filename": "_".join(filter(None, parts)) + ".csv", "type": "text/csv"}

    @app.callback(
        Output({"type": "made-body", "figure": MATCH}, "children"),
        Input({"type": "made", "figure": MATCH}, "n_clicks"),
        State("view", "data"),
        State({"type": "made", "figure": MATCH}, "id"),
        prevent_initial_call=True,
    )
    def made(clicks: int | None, link: dict[str, str], identity: dict[str, str]) -> Any:
        if not clicks:
            return no_update
        view = questions().resolve_view(View.parse(link))
        return builds_told(metas[identity["figure"]].builds(questions(), view))
