"""Figures of a live result: the same head, table, CSV and pictures as everywhere, with 'live' instead of a build.

Their numbers belong to one visitor's traces and to no generation, so rows come from the visitor's report, never from
the store, and there is no link to copy: a link does not carry traces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from atlas import shell
from backend.methods.registry import SEVERAL, TEXT

BODY, TABLE, ROWS, CSV, DOWNLOAD, GRAPH = (
    f"live-{part}" for part in ("body", "table", "rows", "csv", "download", "graph")
)


def section(
    name: str,
    question: str,
    sentence: shell.Children,
    content: Component,
    *,
    made: Component,
    badge: Component,
    height: int | None,
    picture: bool = True,
    table: bool = True,
    controls: shell.Children = None,
    beside: Component | None = None,
    below: Component | None = None,
) -> Component:
    """One figure or table of a live result.

    Parameters
    ----------
    name : str
        Of :data:`atlas.pages.attribute.FIGURES`.
    question : str
    sentence : children
        What is shown, with the number of observations.
    content : Component
        The graph (:func:`graph`) or a table.
    made : Component
        From :func:`made_of`.
    badge : Component
        From :func:`badge`.
    height : int or None
    picture, table : bool
        Whether it can be saved as a picture, and shown as rows.
    controls, beside, below : optional
    """
    body = html.Div(
        id={"type": BODY, "figure": name},
        className="figure-body",
        style={"height": height} if height else {},
        children=[
            html.Div(
                content, className="figure-drawing", **({"role": "img", "aria-label": question} if picture else {})
            ),
            html.Div(id={"type": ROWS, "figure": name}, className="figure-table"),
        ],
    )
    return shell.framed(
        name,
        [html.H2(question, id=f"title-{name}"), badge],
        _tools(name, made, picture=picture, table=table),
        html.P(sentence, id={"type": "live-sentence", "figure": name}, className="sentence"),
        html.Div(controls, className="controls") if controls else None,
        html.Div([body, *([beside] if beside else [])], className="figure-row" if beside else ""),
        below,
    )


def graph(name: str, figure: Any) -> Component:
    """The drawing of a live figure; its theme follows the header's."""
    return dcc.Graph(
        id={"type": GRAPH, "figure": name},
        figure=figure,
        responsive=True,
        className="graph",
        config={"displayModeBar": False, "displaylogo": False, "doubleClick": False},
    )


def badge(enrolment_sha256: str) -> Component:
    """'Live', with the enrolment that the numbers rest on."""
    return html.Span(
        ["Live", html.Code(f"enrolment {enrolment_sha256[:12]}", title=f"sha256 {enrolment_sha256}")],
        className="origin origin-live",
        title="Computed now, from your traces",
    )


def made_of(report: Mapping[str, Any]) -> Component:
    """What made the numbers of a report."""
    method, facts = report["method"], report["method"]["facts"]
    told = {
        "Date": report["created"].replace("T", " ")[:19] + " UTC",
        "Ecosystem": f"{report['reference']['enrolment']}, {len(report['reference']['sources'])} sources",
        "Enrolment": _hash(method["enrolment_sha256"]),
        "Reader": f"{method['reader']}, {_read(method)}, {method['probes']} probes",
        "Proxy": _hash(facts.get("proxy_hash")),
        "Data": _hash(facts.get("data_hash")),
        "File": _hash(report["input"]["sha256"]),
        "Code": method["code_version"],
        "Engine": method["engine"],
        "Orders, seed": f"{report['results']['spread']['orders']}, {report['results']['spread']['seed']}",
    }
    return html.Div(
        className="build",
        children=[
            html.Div(html.Strong("Live attribution"), className="build-head"),
            html.Code(report["command"], className="command"),
            html.Dl([part for word, fact in told.items() if fact for part in (html.Dt(word), html.Dd(fact))]),
        ],
    )


def _tools(name: str, made: Component, *, picture: bool, table: bool) -> Component:
    def tool(kind: str, sign: str, word: str, **more: str) -> Component:
        return html.Button([shell.icon(sign), word], id={"type": kind, "figure": name}, className="tool", **more)

    buttons: list[Component] = [tool(TABLE, "table", "Table", **{"aria-pressed": "false"})] if table else []
    buttons.append(tool(CSV, "download", "CSV"))
    if picture:
        buttons += [tool("png", "picture", "PNG"), tool("svg", "picture", "SVG")]
    buttons.append(
        dmc.Popover(
            width=420,
            position="bottom-end",
            shadow="none",
            trapFocus=False,
            withinPortal=True,
            zIndex=350,
            children=[
                dmc.PopoverTarget(tool("live-made", "origin", "How was this made?")),
                dmc.PopoverDropdown(html.Div(made, className="made")),
            ],
        )
    )
    return html.Div(
        className="tools",
        role="group",
        **{"aria-label": "About this figure"},
        children=[*buttons, dcc.Download(id={"type": DOWNLOAD, "figure": name})],
    )


def _read(method: Mapping[str, Any]) -> str:
    """What the heads read, and where traces are placed when that is no block."""
    blocks = f"block {', '.join(map(str, method['layers']))}"
    said = {TEXT: f"text of the responses (placed at {blocks})", SEVERAL: f"members of several kinds ({blocks})"}
    return said.get(method["block"], blocks)


def _hash(value: object) -> Component | str:
    return html.Code(f"sha256 {value[:16]}…", title=value) if isinstance(value, str) and value else ""
