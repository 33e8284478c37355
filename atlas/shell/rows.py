"""Rows behind a figure: as a grid, as CSV, and the builds that made them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import dash_ag_grid as dag
import pandas as pd
from dash import html
from dash.development.base_component import Component

from atlas.shell.words import origin_badge
from backend.output_files import plain_cell

NUMBER_COLUMNS: Mapping[str, str] = {
    "cosine": "params.value == null ? '–' : d3.format('.3f')(params.value).replace(/^0/, '')",
    "rate": "params.value == null ? '–' : (params.value >= 1 ? '1' : d3.format('.3f')(params.value).replace(/^0/, ''))",
    "number": "params.value == null ? '–' : d3.format(Math.abs(params.value) < 1000 ? '.3~g' : ',.0f')(params.value)",
    "p": "params.value == null ? '–' : params.value < 0.001 ? '< .001' : params.value >= 0.9995 ? '> .999'"
    " : d3.format('.3f')(params.value).replace(/^0/, '')",
    "count": "params.value == null ? '–' : d3.format(',')(params.value)",
}
RATES = ("accuracy", "share", "percentile", "value", "std", "low", "high", "purity")


def table(frame: pd.DataFrame, *, identity: str | dict[str, str] | None = None, **options: Any) -> Component:
    """Rows as an AG Grid: sortable, filterable, numbers right-aligned, names as text."""
    columns = []
    for name in frame.columns:
        column: dict[str, Any] = {"field": str(name), "headerName": header(str(name)), "minWidth": 92}
        if pd.api.types.is_float_dtype(frame[name]):
            rate = str(name).startswith(RATES) and float(frame[name].max()) <= 1
            text = "p" if str(name).startswith("p_") else "rate" if rate else "number"
            kind = "cosine" if name == "cosine" else text
            column |= {"type": "rightAligned", "filter": "agNumberColumnFilter"}
            column["valueFormatter"] = {"function": NUMBER_COLUMNS[kind]}
        elif pd.api.types.is_integer_dtype(frame[name]):
            column |= {"type": "rightAligned", "filter": "agNumberColumnFilter"}
            column["valueFormatter"] = {"function": NUMBER_COLUMNS["count"]}
        else:
            column |= {"filter": "agTextColumnFilter", "minWidth": _room(frame[name]), "tooltipField": str(name)}
            column["flex"] = 1
            if name == "command":
                column["minWidth"] = 320
        columns.append(column)
    return dag.AgGrid(
        **({"id": identity} if identity is not None else {}),
        rowData=records(frame),
        columnDefs=columns,
        defaultColDef={"sortable": True, "resizable": True, "flex": 1},
        dashGridOptions={
            "rowHeight": 34,
            "headerHeight": 38,
            "tooltipShowDelay": 400,
            "ensureDomOrder": True,
            **options,
        },
        className="ag-theme-quartz atlas-grid",
        style={"height": "100%", "width": "100%"},
    )


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
    known = {
        "k": "K",
        "n": "Groups",
        "std": "Std",
        "predicted": "Answered",
        "confused_name": "Most confused with",
        "confused_count": "Times",
        "rank_back": "Rank back",
        "code_version": "Commit",
        "duration_s": "Seconds",
        "started_at": "Date (UTC)",
    }
    if column in known:
        return known[column]
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
    for build in builds.itertuples(index=False):
        facts = {
            "Date": f"{build.started_at:%Y-%m-%d %H:%M} UTC, {build.duration_s:,.0f} s",
            "Commit": build.code_version,
            "Data": _hash(build.data_hash),
            "Proxy": _hash(build.proxy_hash),
            "Seed": "" if pd.isna(build.seed) else str(build.seed),
            "Machine": build.host,
            "File": build.source_file if isinstance(build.source_file, str) and build.source_file else "",
        }
        parts.append(
            html.Div(
                className="build",
                children=[
                    html.Div([html.Strong(str(build.stage)), origin_badge(str(build.origin))], className="build-head"),
                    html.Code(str(build.command), className="command"),
                    html.Dl(
                        [piece for word, fact in facts.items() if fact for piece in (html.Dt(word), html.Dd(fact))]
                    ),
                ],
            )
        )
    return html.Div(parts)


def _hash(value: object) -> Component | str:
    if not isinstance(value, str) or not value:
        return ""
    return html.Code(f"sha256 {value[:16]}…", title=value)
