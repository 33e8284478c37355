"""The frame of a figure: its question, its sentence, its controls, and its table, CSV, link, pictures and origin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from atlas.shell.words import icon, origin_badge

Children = Component | str | Sequence[Component | str] | None


def tools(name: str, *, picture: bool = True, table_view: bool = True, made: bool = True) -> Component:
    """Table, CSV, link, pictures, origin of one figure."""

    def tool(kind: str, sign: str, word: str, **more: str) -> Component:
        return html.Button([icon(sign), word], id={"type": kind, "figure": name}, className="tool", **more)

    buttons = [tool("table", "table", "Table", **{"aria-pressed": "false"})] if table_view else []
    buttons.append(tool("csv", "download", "CSV"))
    if picture:
        buttons += [tool("png", "picture", "PNG"), tool("svg", "picture", "SVG")]
    buttons.append(tool("link", "link", "Link"))
    origin = dmc.Popover(
        width=420,
        position="bottom-end",
        shadow="none",
        trapFocus=True,
        returnFocus=True,
        # Mantine would put the roles on a box around the button, which is no control.
        withRoles=False,
        withinPortal=True,
        zIndex=350,
        children=[
            dmc.PopoverTarget(tool("made", "origin", "How was this made?", **{"aria-haspopup": "dialog"})),
            dmc.PopoverDropdown(
                html.Div(
                    id={"type": "made-body", "figure": name},
                    className="made",
                    role="dialog",
                    tabIndex=0,
                    **{"aria-label": "How this was made", "data-autofocus": "true"},
                    children="Looking it up …",
                )
            ),
        ],
    )
    return html.Div(
        className="tools",
        role="group",
        **{"aria-label": "About this figure"},
        children=[*buttons, *([origin] if made else []), dcc.Download(id={"type": "download", "figure": name})],
    )


def figure_body(
    name: str, graph: Component, *, height: int | None, label: str, absent: Component | None = None
) -> Component:
    """The drawing, and above it, when asked for, its table; the box never changes its size."""
    return html.Div(
        id={"type": "body", "figure": name},
        className="figure-body",
        style={"height": height} if height else {},
        children=[
            html.Div(graph, className="figure-drawing", role="img", **{"aria-label": label}),
            html.Div(absent, id={"type": "absent", "figure": name}, className="figure-absent"),
            html.Div(id={"type": "rows", "figure": name}, className="figure-table"),
        ],
    )


def framed(name: str, title: Sequence[Component], offers: Component, *content: Component | None) -> Component:
    """A part of a page with a title that names it, what it offers beside the title, and its content below."""
    head = html.Div([html.Div(list(title), className="figure-title"), offers], className="figure-head")
    return html.Section(
        [head, *content], id=f"figure-{name}", className="figure", **{"aria-labelledby": f"title-{name}"}
    )


def figure_section(
    name: str,
    question: str,
    sentence: Children,
    graph: Component,
    *,
    height: int,
    controls: Children = None,
    origin: str = "measured",
    beside: Component | None = None,
    absent: Component | None = None,
) -> Component:
    """A figure with its question, its sentence, its controls and what it says of itself."""
    return framed(
        name,
        [html.H2(question, id=f"title-{name}"), origin_badge(origin, name)],
        tools(name),
        html.P(sentence, id={"type": "sentence", "figure": name}, className="sentence"),
        html.Div(controls, className="controls") if controls else None,
        html.Div(
            [figure_body(name, graph, height=height, label=question, absent=absent), *([beside] if beside else [])],
            className="figure-row" if beside else "",
        ),
    )


def grid_section(
    name: str,
    question: str,
    content: Component,
    sentence: Children,
    *,
    origin: str = "measured",
    height: int | None = 480,
    controls: Children = None,
    below: Component | None = None,
) -> Component:
    """A figure that is a table: the same head, no picture and no second table."""
    return framed(
        name,
        [html.H2(question, id=f"title-{name}"), origin_badge(origin, name)],
        tools(name, picture=False, table_view=False),
        html.P(sentence, id={"type": "sentence", "figure": name}, className="sentence"),
        html.Div(controls, className="controls") if controls else None,
        html.Div(
            html.Div(content, id=f"{name}-place", className="figure-drawing"),
            id={"type": "body", "figure": name},
            className="figure-body",
            style={"height": height} if height else {},
        ),
        below,
    )


def graph(identity: str, figure: Any, *awaited: Component, scroll_zoom: bool = False) -> Component:
    """A Plotly figure without a tool bar of its own, and a sign of life when it, or a part it awaits, takes 300 ms."""
    plot = dcc.Graph(
        id=identity,
        figure=figure,
        responsive=True,
        className="graph",
        config={"displayModeBar": False, "scrollZoom": scroll_zoom, "displaylogo": False, "doubleClick": False},
    )
    return dcc.Loading(
        [plot, *awaited],
        delay_show=300,
        overlay_style={"visibility": "visible"},
        custom_spinner=html.Div("Drawing …", className="working"),
        parent_className="loading",
    )
