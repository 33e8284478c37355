"""Where the traces land: their signature among those of the sources, and those neighbours on the map."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pandas as pd
from dash import html
from dash.development.base_component import Component

from atlas import shell
from atlas.data import DOMAIN_NAMES, QueryCache
from atlas.figures.attribution import rate_text
from atlas.figures.evidence import landing as draw
from atlas.pages.attribute import sections
from atlas.pages.attribute.frames import Report, landed
from atlas.pages.attribute.result import QUESTIONS, known_sources, marks_of, named
from atlas.state import View
from atlas.theme import Theme
from backend.store import queries

NEAREST = 8
METHODS = ("tsne", "umap", "pca")  # projections in two dimensions, the preferred one first


def points(cache: QueryCache, where: Mapping[str, Any]) -> pd.DataFrame:
    """The ecosystem's flat map, where the traces were placed (reader, roster, domain); may be empty."""
    none = pd.DataFrame(columns=["source", "name", "family", "access", "x", "y"])
    if cache.problem() is not None:
        return none
    view = View(reader=where["reader"], roster=where["roster"], domain=where["domain"])
    reader = cache.map_reader(view)
    for method in METHODS:
        found = cache.ask(queries.projection, reader, view.roster, view.domain, method, 2)
        if len(found):
            return found
    return none


def figure(cache: QueryCache, report: Report, theme: Theme) -> Any:
    """The map with the nearest sources marked; None without a map."""
    where = report["results"]["lands"]
    placed = points(cache, where) if where else pd.DataFrame()
    if placed.empty:
        return None
    near = landed(report).head(NEAREST)
    marks = marks_of(cache, report["reference"]["families"])
    return draw(placed, near, marks, theme=theme, claimed=report["results"]["claimed"] or "")


def section(report: Report, cache: QueryCache, view: View) -> Component:
    """Table of the nearest sources and the map beside it: what the report says."""
    rows, where = landed(report), report["results"]["lands"]
    live, made = sections.badge(report["method"]["enrolment_sha256"]), sections.made_of(report)
    if rows.empty:
        roster = report["method"]["facts"].get("roster")
        again = f"--roster {roster}" if roster else "LABELLED --name NAME"
        missing = "This ecosystem brings no signatures of its sources"
        remedy = shell.empty(missing, f"Make it again: python -m jobs enroll {again}")
        return html.Section([html.H2(QUESTIONS["lands"]), remedy], className="figure", id="figure-lands")
    drawn = figure(cache, report, view.theme)
    table = _table(rows.head(NEAREST), report, cache, view)
    domain = DOMAIN_NAMES.get(where["domain"], where["domain"]) or "its own prompts"
    sentence = [
        "Cosine between the mean fingerprint of these traces and the ",
        shell.term("signature", "Mean fingerprint of a source over all its prompts, in the original space"),
        f" of every source on {domain}. "
        + ("The traces get no point of their own on a projection: the numbers mark their nearest. " if drawn else "")
        + "Nearness says what the traces are like, the ratio above says who made them. "
        f"n = {len(rows)} sources.",
    ]
    parts = [table]
    if drawn:
        label = "Map of the sources, the nearest numbered"
        parts.append(html.Div(sections.graph("lands", drawn), role="img", **{"aria-label": label}))
    content = html.Div(parts, className="land" if drawn else "land land-alone")
    return sections.section(
        "lands", QUESTIONS["lands"], sentence, content, made=made, badge=live, height=None, picture=False
    )


def _table(rows: pd.DataFrame, report: Report, cache: QueryCache, view: View) -> Component:
    marks, known = marks_of(cache, report["reference"]["families"]), known_sources(cache)
    view = dataclasses.replace(view, source="")
    body = []
    for row in rows.itertuples(index=False):
        family = [shell.symbol(marks[row.family], view.theme), html.Span(row.family, dir="auto")]
        cells = [
            html.Td(str(row.rank), className="number"),
            html.Th(html.Span(named(view, row.source, known), className="marked"), scope="row"),
            html.Td(html.Span(family if row.family in marks else [], className="marked")),
            html.Td(rate_text(row.cosine), className="number"),
        ]
        body.append(html.Tr(cells, className="here" if row.source == report["results"]["subject"] else ""))
    heads, name = ["rank", "source", "family", "cosine"], "Nearest sources in the original space"
    return shell.small_table(heads, body, name, "small wide nearest-sources")
