"""What the frame and every figure do: the link, the theme, tables, CSV, pictures, and how a figure was made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dash import ALL, MATCH, ClientsideFunction, Dash, Input, Output, State, no_update

from atlas import answers
from atlas.data import questions
from atlas.shell.contract import SHARED, Page, shared_view
from atlas.shell.rows import builds_told, csv_text, table
from atlas.shell.states import empty
from atlas.shell.words import ORIGINS
from atlas.state import View


def register(app: Dash, pages: Sequence[Page]) -> None:
    """Callbacks of the frame, and those that all figures share."""
    told = {name: figure for page in pages for name, figure in page.figures.items()}

    def client(function: str) -> ClientsideFunction:
        return ClientsideFunction("atlas", function)

    app.clientside_callback(
        client("arrive"),
        Output("reader", "value"),
        Output("roster", "value"),
        Output("domain", "value"),
        Input("_pages_location", "search"),
        Input("_pages_location", "pathname"),
        State("reader", "data"),
        State("roster", "data"),
        State("domain", "data"),
        State("reader", "value"),
        State("roster", "value"),
        State("domain", "value"),
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
        asked, view = questions(), shared_view(reader, roster, domain, theme)
        found = [asked.origin(told[identity["figure"]].reader(asked, view)) for identity in identities]
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
    def rows(wanted: dict[str, Any], identities: list[dict[str, str]]) -> Any:
        view = questions().resolve_view(View.parse(wanted["view"]))

        def shown(figure: str) -> Any:
            if figure not in wanted["figures"]:
                return no_update
            frame = told[figure].table(questions(), view)
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
    def csv(clicks: int | None, given: dict[str, str], identity: dict[str, str]) -> Any:
        if not clicks:
            return no_update
        view = questions().resolve_view(View.parse(given))
        text = csv_text(told[identity["figure"]].table(questions(), view))
        parts = ("atlas", identity["figure"], view.roster, view.domain, questions().generation().name)
        return {"content": text, "filename": "_".join(filter(None, parts)) + ".csv", "type": "text/csv"}

    @app.callback(
        Output({"type": "made-body", "figure": MATCH}, "children"),
        Input({"type": "made", "figure": MATCH}, "n_clicks"),
        State("view", "data"),
        State({"type": "made", "figure": MATCH}, "id"),
        prevent_initial_call=True,
    )
    def made(clicks: int | None, given: dict[str, str], identity: dict[str, str]) -> Any:
        if not clicks:
            return no_update
        return builds_told(told[identity["figure"]].builds(questions(), questions().resolve_view(View.parse(given))))
