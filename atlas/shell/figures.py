"""The frame of a figure: question, sentence, controls, table, CSV, link, pictures, and the builds that made it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import dash_ag_grid as dag
import dash_mantine_components as dmc
import pandas as pd
from dash import dcc, html
from dash.development.base_component import Component

from atlas.shell.words import icon, origin_badge
from backend.output_files import plain_cell

Children = Component | str | Sequence[Component | str] | None
NUMBER_COLUMNS: Mapping[str, str] = {
    "cosine": "params.value == null ? '–' : d3.format('.3f')(params.value).replace(/^0/, '')",
    "rate": "params.value == null ? '–' : (params.value >= 1 ? '1' : d3.format('.3f')(params.value).replace(/^0/, ''))",
    "number": "params.value == null ? '–' : d3.format(Math.abs(params.value) < 1000 ? '.3~g' : ',.0f')(params.value)",
    "p": "params.value == null ? '–' : params.value < 0.001 ? '< .001' : params.value >= 0.9995 ? '> .999'"
    " : d3.format('.3f')(params.value).replace(/^0/, '')",
    "count": "params.value == null ? '–' : d3.format(',')(params.value)",
}
HEADERS = {
    **{"k": "K", "n": "Groups", "std": "Std", "predicted": "Answered", "rank_back": "Rank back"},
    **{"confused_name": "Most confused with", "confused_count": "Times"},
    **{"code_version": "Commit", "duration_s": "Seconds", "started_at": "Date (UTC)"},
}
RATES = ("accuracy", "share", "percentile", "value", "std", "low", "high", "purity")


def tools(name: str, *, picture: bool = True, table_view: bool = True, made: bool = True) -> Component:
    """Table, CSV, link, pictures, origin of one figure."""

    def tool(kind: str, sign: str, word: str, **more: str) -> Component:
        return html.Button([icon(sign), word], id={"type": kind, "figure": name}, className="tool", **more)

    buttons = [tool("table", "table", "Table", **{"aria-pressed": "false"})] if table_view else []
    buttons.append(tool("csv", "download", "CSV"))
    if picture:
        buttons += [tool("png", "picture", "PNG"), tool("svg", "picture", "SVG")]
    buttons.append(tool("link", "link", "Link"))
    builds = html.Div(
        "Looking it up …", id={"type": "made-body", "figure": name}, className="made", role="dialog", tabIndex=0,
        **{"aria-label": "How this was made", "data-autofocus": "true"},
    )  # fmt: skip
    button = tool("made", "origin", "How was this made?", **{"aria-haspopup": "dialog"})
    # Mantine would put the roles on a box around the button, which is no control.
    origin = dmc.Popover(
        [dmc.PopoverTarget(button), dmc.PopoverDropdown(builds)], width=420, position="bottom-end", shadow="none",
        trapFocus=True, returnFocus=True, withRoles=False, withinPortal=True, zIndex=350,
    )  # fmt: skip
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
    config = {"displayModeBar": False, "scrollZoom": scroll_zoom, "displaylogo": False, "doubleClick": False}
    plot = dcc.Graph(id=identity, figure=figure, responsive=True, className="graph", config=config)
    return loading([plot, *awaited], "Drawing …", parent_className="loading")


def loading(children: Any, words: str, **options: Any) -> Component:
    """Parts of a page with a sign of life when they take 300 ms."""
    spinner = html.Div(words, className="working")
    return dcc.Loading(
        children, delay_show=300, overlay_style={"visibility": "visible"}, custom_spinner=spinner, **options
    )


def small_table(
    heads: Sequence[Any], rows: Sequence[Component], name: str = "", kind: str = "small wide", caption: str = ""
) -> Component:
    """A table in the text, its first row the heads; ``name`` is its name for assistive technology."""
    head = html.Thead(html.Tr([html.Th(word, scope="col") for word in heads]))
    above = [html.Caption(caption)] if caption else []
    named = {"aria-label": name} if name else {}
    return html.Table([*above, head, html.Tbody(rows)], className=kind, **named)


def facts(pairs: Mapping[str, Any], **options: Any) -> Component:
    """Words with what they stand for; those that stand for nothing are left out."""
    return html.Dl([part for word, fact in pairs.items() if fact for part in (html.Dt(word), html.Dd(fact))], **options)


def build(head: Children, command: str, pairs: Mapping[str, Any]) -> Component:
    """What made some numbers: its name, its command, and further facts."""
    children = [html.Div(head, className="build-head"), html.Code(command, className="command"), facts(pairs)]
    return html.Div(children, className="build")


def hashed(value: object) -> Component | str:
    """The beginning of a hash, whole on hover; '' without one."""
    return html.Code(f"sha256 {value[:16]}…", title=value) if isinstance(value, str) and value else ""


def table(frame: pd.DataFrame, *, identity: str | dict[str, str] | None = None, **options: Any) -> Component:
    """Rows as an AG Grid: sortable, filterable, numbers right-aligned, names as text."""
    columns = []
    for name in frame.columns:
        column: dict[str, Any] = {"field": str(name), "headerName": header(str(name)), "minWidth": 92}
        if pd.api.types.is_float_dtype(frame[name]):
            rate = str(name).startswith(RATES) and float(frame[name].max()) <= 1
            text = "p" if str(name).startswith("p_") else "rate" if rate else "number"
            kind = "cosine" if name == "cosine" else text
            column |= number_column(kind)
        elif pd.api.types.is_integer_dtype(frame[name]):
            column |= number_column("count")
        else:
            column |= {"filter": "agTextColumnFilter", "minWidth": _room(frame[name]), "tooltipField": str(name)}
            column["flex"] = 1
            if name == "command":
                column["minWidth"] = 320
        columns.append(column)
    return ag_grid(identity, frame, columns, {"flex": 1}, {"ensureDomOrder": True, **options})


def ag_grid(
    identity: str | dict[str, str] | None,
    frame: pd.DataFrame,
    columns: Sequence[dict[str, Any]],
    every: Mapping[str, Any],
    options: Mapping[str, Any],
) -> dag.AgGrid:
    """Rows as an AG Grid in the atlas's look; ``every`` holds for all columns."""
    return dag.AgGrid(
        **({"id": identity} if identity is not None else {}), rowData=records(frame), columnDefs=list(columns),
        defaultColDef={"sortable": True, "resizable": True, **every},
        dashGridOptions={"rowHeight": 34, "headerHeight": 38, "tooltipShowDelay": 400, **options},
        className="ag-theme-quartz atlas-grid", style={"height": "100%", "width": "100%"},
    )  # fmt: skip


def number_column(kind: str) -> dict[str, Any]:
    """What makes a column one of numbers; kind is of :data:`NUMBER_COLUMNS`."""
    formatter = {"function": NUMBER_COLUMNS[kind]}
    return {"type": "rightAligned", "filter": "agNumberColumnFilter", "valueFormatter": formatter}


def _room(texts: pd.Series) -> int:
    """Width in pixels for texts of a column: the longest one's, within bounds; a tooltip holds what is cut."""
    longest = max((len(str(text)) for text in texts.dropna()), default=0)
    return min(240, max(140, 7 * longest + 24))


def records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows for the browser, with null for what is missing."""
    rows: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", date_format="iso"))
    return rows


def header(column: str) -> str:
    """A column's name for people."""
    if column in HEADERS:
        return HEADERS[column]
    if column.startswith("accuracy_"):
        return f"Accuracy, K = {column.removeprefix('accuracy_')}"
    return column.replace("_", " ").capitalize()


def csv_text(frame: pd.DataFrame) -> str:
    """CSV in which no name is a formula to a spreadsheet."""
    safe = frame.copy()
    for column in safe.columns:
        if not pd.api.types.is_numeric_dtype(safe[column]):
            safe[column] = [plain_cell(value) for value in safe[column]]
    return str(safe.to_csv(index=False))


def builds_told(builds: pd.DataFrame) -> Component:
    """Command, commit, hashes and date of the builds behind a figure."""
    if builds.empty:
        return html.P("No build is recorded for what this figure shows.")
    parts: list[Component] = []
    for row in builds.itertuples(index=False):
        pairs = {
            "Date": f"{row.started_at:%Y-%m-%d %H:%M} UTC, {row.duration_s:,.0f} s",
            "Commit": row.code_version,
            "Data": hashed(row.data_hash),
            "Proxy": hashed(row.proxy_hash),
            "Seed": "" if pd.isna(row.seed) else str(row.seed),
            "Machine": row.host,
            "File": row.source_file if isinstance(row.source_file, str) else "",
        }
        head = [html.Strong(str(row.stage)), origin_badge(str(row.origin))]
        parts.append(build(head, str(row.command), pairs))
    return html.Div(parts)
