"""Methods: what each number means in plain words, its limits, every build, and the numbers to take away."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from dash import Dash, html
from dash.development.base_component import Component

from atlas import downloads, shell, tables
from atlas.data import QueryCache, questions
from atlas.pages.methods.words import LIMITS, MORE_LIMITS, PAPER_LIMITS, TERMS
from atlas.state import View
from backend.store import queries, result_queries

CONTENTS = {"words": "Words", "limits": "Limits", "figure-builds": "Builds", "figure-downloads": "Downloads"}
TABLES = {
    "attribution_metrics": "accuracy, macro-F1, NLL, ECE and more, by reader, budget, condition, seed and fold",
    "source_accuracy": "accuracy of every source at every budget, and what it is taken for",
    "source_f1": "F1 of every source at every budget, as the released files have it",
    "confusion": "confusion counts",
    "layer_scores": "inner validation accuracy of every block; macro-F1 too where it is published",
    "layer_selection": "the blocks that were chosen",
    "neighbors": "every pair of sources: rank, cosine, percentile",
    "signatures": "which block the mean fingerprints of the sources are of; the vectors are not published",
    "projections": "places on the maps",
    "family_purity": "same-family neighbours beside chance",
    "comparisons": "paired tests",
    "relationship_metrics": "relationships: metrics by reader, holdout and split",
    "relationship_features": "relationships: scores of every pair",
    "paper_values": "what the paper prints, cell by cell",
    "costs": "parameters, times and memory",
    "variance_ratios": "variance between sources and between prompts",
    "audit_validation": "what the evidence of an audit is worth",
    "builds": "which command, code and data made every number",
    "readers": "readers and where they come from",
    "sources": "sources, families, access, numbers of responses",
    "capability_scores": "general capability of the proxies, as others scored it",
    "clusters": "which points of a map lie close together",
    "correlations": "capability against accuracy",
    "cross_domain": "signatures of one domain sought in the other",
    "dendrogram": "the tree of all sources",
    "density_regions": "outlines of families on flat maps",
    "extractions": "what reading the traces cost",
    "families": "families in their order",
    "joint_projections": "both domains on one map",
    "mixture_weights": "weights of learned mixtures over time",
    "projection_quality": "how far maps can be trusted",
    "pair_ranks": "published ranks of the candidate pairs",
    "prompt_stability": "the geometry of parts of the prompts",
    "proxies": "proxy models",
    "reader_agreement": "how far readers see the same geometry",
    "relationship_models": "relationships: models and their parents",
    "relationship_pairs": "relationships: pairs and their truth",
    "roster_members": "which sources a roster holds",
    "schema_version": "of this file",
}
"""What the tables hold; one that is not here goes by its name."""


def layout(**query: str) -> Component:
    """The page for a query string."""
    cache = questions()
    problem = cache.problem()
    view = View() if problem else cache.resolve_view(View.parse(query))
    missing = [shell.empty(problem.problem, problem.remedy)] if problem else []
    parts = missing or [_builds(cache, view), _downloads(cache, view)]
    lead = "What each number means, what it does not mean, which command made it, and where to take it from."
    chapters = [html.A(words, href=f"#{place}") for place, words in CONTENTS.items()]
    children = [
        html.H1("Methods"),
        html.P(lead, className="sentence"),
        html.Nav(chapters, className="chapters", **{"aria-label": "On this page"}),
        html.H2("Words", id="words"),
        *[part for question, terms in TERMS.items() for part in _terms(question, terms)],
        html.H2("Limits", id="limits"),
        html.H3("The paper's own", className="group"),
        html.Ul([html.Li(limit) for limit in PAPER_LIMITS], className="limits"),
        html.H3("Ours", className="group"),
        html.Ul([html.Li(limit) for limit in (*LIMITS, *MORE_LIMITS)], className="limits"),
        *parts,
    ]
    return html.Div(children, className="column prose")


def register(app: Dash) -> None:
    """The page has no callbacks of its own; what it offers to take away has addresses."""
    downloads.install(app.server)


def _terms(question: str, terms: Mapping[str, str]) -> list[Component]:
    return [html.H3(question, className="group"), shell.facts(terms, className="terms")]


def _builds(cache: QueryCache, view: View) -> Component:
    frame = build_rows(cache, view)
    columns = [
        tables.words("stage", "Stage", 110),
        tables.words("command", "Command", 320, 1, cellClass="mono"),
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
    return _section(
        "builds", "What made these numbers?", tables.grid("builds-grid", frame, columns), sentence, len(frame)
    )


def _downloads(cache: QueryCache, view: View) -> Component:
    frame = table_rows(cache, view)
    size = cache.generation().path.stat().st_size
    rows = []
    for row in frame.itertuples(index=False):
        name, where = str(row.table_name), downloads.address(row.table_name)
        link = html.Th(html.A(name, href=where, className="mono", download=True), scope="row")
        cells = (TABLES.get(row.table_name, ""), f"{row.rows:,}", f"{row.columns}")
        rows.append(html.Tr([link, *map(html.Td, cells)]))
    heads = ("Table, as CSV", "What it holds", "Rows", "Columns")
    table = html.Div(shell.small_table(heads, rows, kind="small wide downloads"), className="scroll-x")
    file = f"The whole generation as one DuckDB file ({size / 1e6:.1f} MB)"
    sentence: list[Component | str] = [
        "Everything that is served: numbers and names, no prompt and no response. ",
        html.A(file, href=downloads.address(), download=True, id="download-generation"),
        f", readable by DuckDB 1.5 and later; or one table at a time. n = {len(frame)} tables.",
    ]
    return _section("downloads", "Where can I take the numbers from?", table, sentence, None)


def _section(name: str, question: str, content: Component, sentence: shell.Children, rows: int | None) -> Component:
    """A figure without a drawing, whose rows are the builds themselves or lead to files."""
    return shell.framed(
        name,
        [html.H2(question, id=f"title-{name}")],
        shell.tools(name, picture=False, table_view=False, made=False),
        html.P(sentence, id={"type": "sentence", "figure": name}, className="sentence"),
        html.Div(
            id={"type": "body", "figure": name},
            className="figure-body",
            style={} if rows is None else {"height": tables.height(rows, 480)},
            children=[html.Div(content, className="figure-drawing")],
        ),
    )


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
        holds=[TABLES.get(name, "") for name in frame["table_name"]],
        address=[downloads.address(name) for name in frame["table_name"]],
    )


PAGE = shell.Page(
    name="methods",
    path="/methods",
    title="Methods",
    icon="methods",
    layout=layout,
    register=register,
    figures={"builds": shell.FigureMeta(build_rows), "downloads": shell.FigureMeta(table_rows)},
)
