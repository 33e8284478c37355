"""Methods: what each number means in plain words, its limits, every build, and the numbers to take away."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from dash import Dash, dcc, html
from dash.development.base_component import Component

from atlas import downloads, drawing, shell
from atlas.data import QueryCache, questions
from atlas.figures import tables
from atlas.pages import pieces, validation
from atlas.pages.compare import readers
from atlas.state import View
from backend.corpus.download import PUBLIC_RELEASE
from backend.methods.registry import FUSED_LIVE
from backend.store import queries, result_queries

CONTENTS = {
    "steps": "How it works", "paper": "The paper", "limits": "Limits", "evidence": "Evidence", "words": "Words",
    "figure-builds": "Builds", "figure-downloads": "Downloads",
}  # fmt: skip
_DOWNLOAD: dict[str, Any] = {"download": True}  # an attribute without a value, which Dash's types do not know
TEXT: Mapping[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
"""Prose: terms by question, limits, the method in short, and what each table holds."""


def layout(**query: str) -> Component:
    """The page for a query string."""
    cache = questions()
    problem = cache.problem()
    view = View() if problem else cache.resolve_view(View.parse(query))
    missing = [shell.empty(problem.problem, problem.remedy)] if problem else []
    evidence = [] if problem else validation.sections(cache, folded=True)
    parts = [] if problem else [_builds(cache, view), _downloads(cache, view)]
    numbers = [] if problem else [html.P(_in_numbers(cache, view), id="methods-numbers", className="result")]
    limits, words = TEXT["limits"], []
    for question, terms in TEXT["terms"].items():
        words += [html.H3(question, className="group"), shell.facts(terms, className="terms")]
    chapters = {place: words for place, words in CONTENTS.items() if evidence or place != "evidence"}
    children = [
        html.H1("Methods", id="methods-top"),
        html.P(TEXT["lead"], className="answer alone"),
        *numbers,
        pieces.contents(chapters),
        html.H2("How a trace becomes an answer", id="steps"),
        html.Ol([html.Li([html.Strong(step), text]) for step, text in TEXT["steps"].items()], className="steps"),
        html.H2("The paper", id="paper"),
        html.P([TEXT["paper"], html.A(PUBLIC_RELEASE.removeprefix("https://"), href=PUBLIC_RELEASE), "."]),
        html.H2("Limits", id="limits"),
        html.Div([_limits("The paper's own", limits["paper"]), _limits("Ours", limits["ours"])], className="two"),
        _limits("What else to know", limits["more"]),
        *missing,
        html.Div(evidence, id="evidence"),
        html.H2("Words", id="words"),
        *words,
        *parts,
        html.A("Back to top", href="#methods-top", className="back-to-top"),
    ]
    return html.Div(children, className="column prose")


def _in_numbers(cache: QueryCache, view: View) -> list[Component | str]:
    """How often sources are named right: by the live reader, the best, the paper's, and a guess."""
    view = dataclasses.replace(cache.opened(view), condition="clean")
    frame, size = readers.measured(cache, view), len(cache.ask(queries.sources, view.roster))
    here = frame[frame["k"].eq(view.k) & frame["origin"].eq("measured")].set_index("reader")["value"]
    if here.empty:
        return ["Nothing has been measured for this choice."]
    best, usual = str(here.idxmax()), cache.usual(view).reader
    live = here[[cache.reader_row(str(one))["method"] == FUSED_LIVE for one in here.index]]
    first = str(live.idxmax()) if len(live) else best
    judges = ", which can judge your traces on Attribute," if len(live) else ""
    others = [f"the best measured here, {cache.reader_name(best)}, in {readers.percent(here[best])}"] * (best != first)
    if usual in here.drop([best, first]):
        others.append(f"the paper's, {cache.reader_name(usual)}, in {readers.percent(here[usual])}")
    rest = dcc.Link("Compare", f"/compare?{dataclasses.replace(view, tab='conditions').query()}")
    return [
        f"With {drawing.traces(view.k)}, {cache.reader_name(first)}{judges} names the right one of {size} sources "
        f"in {readers.percent(here[first])} of cases{''.join(f'; {other}' for other in others)}; a guess is right in "
        f"{readers.percent(1 / size)}. What remains on shortened answers and in other domains: ",
        rest,
        ".",
    ]


def _limits(words: str, limits: list[str]) -> Component:
    return html.Div([html.H3(words, className="group"), html.Ul([html.Li(one) for one in limits], className="limits")])


def register(app: Dash) -> None:
    """Numbers that follow the header; what the page offers to take away has addresses."""
    downloads.install(app.server)
    drawing.follow(app, drawing.place("methods-numbers", _in_numbers))


def _builds(cache: QueryCache, view: View) -> Component:
    frame = build_rows(cache, view)
    columns = [
        tables.words("stage", "Stage", 110),
        tables.wrapped("command", "Command", 320, 1, cellClass="mono"),
        tables.words("started_at", "Date (UTC)", 134),
        tables.number("duration_s", "Seconds", "count", 84),
        tables.words("code_version", "Commit", 104, cellClass="mono"),
        tables.words("data_hash", "Data", 112, cellClass="mono"),
        tables.words("proxy_hash", "Proxy", 112, cellClass="mono"),
        tables.words("origin", "Origin", 92),
        tables.words("source_file", "File", 200),
        tables.words("host", "Machine", 200),
    ]
    sentence = (
        "Every row of the atlas names its build: the command, the code, the data and the proxy behind it; the CSV has "
        f"whole hashes. n = {len(frame)} builds in generation {cache.generation().name}."
    )
    return validation.section(
        "builds", "What made these numbers?", tables.grid("builds-grid", frame, columns), sentence, len(frame)
    )


def _downloads(cache: QueryCache, view: View) -> Component:
    frame = table_rows(cache, view)
    size = cache.generation().path.stat().st_size
    rows = [
        pieces.row(
            html.A(str(table.table_name), href=table.address, className="mono", **_DOWNLOAD),
            table.holds, f"{table.rows:,}", f"{table.columns}",
        )
        for table in tables.rows(frame)
    ]  # fmt: skip
    heads = ("Table, as CSV", "What it holds", "Rows", "Columns")
    table = pieces.scrolling(pieces.table(heads, rows, "wide downloads"))
    file = f"The whole generation as one DuckDB file ({size / 1e6:.1f} MB)"
    sentence: list[Component | str] = [
        "Everything that is served: numbers and names, no prompt and no response. ",
        html.A(file, href=downloads.address(), **_DOWNLOAD, id="download-generation"),
        f", readable by DuckDB 1.5 and later; or one table at a time. n = {len(frame)} tables.",
    ]
    return validation.section("downloads", "Where can I take the numbers from?", table, sentence, None)


def build_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Every build, newest first."""
    del view
    builds = cache.ask(queries.builds)
    frame = builds.assign(
        started_at=builds["started_at"].dt.strftime("%Y-%m-%d %H:%M"),
        duration_s=builds["duration_s"].round().astype(int),
    )
    names = ["stage", "command", "started_at", "duration_s", "code_version", "data_hash", "proxy_hash", "origin"]
    return frame[[*names, "source_file", "host", "seed", "build_id"]]


def table_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Tables of the generation with what they hold and where they are taken from."""
    del view
    frame = cache.ask(result_queries.table_sizes)
    return frame.assign(
        holds=[TEXT["tables"].get(name, "") for name in frame["table_name"]],
        address=[downloads.address(name) for name in frame["table_name"]],
    )


FIGURES = {
    **validation.figures(validation.TABLES),
    "builds": shell.FigureMeta(build_rows),
    "downloads": shell.FigureMeta(table_rows),
}
PAGE = pieces.page("methods", layout, register, FIGURES)
