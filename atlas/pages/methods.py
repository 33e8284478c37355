"""Methods: what each number means in plain words, its limits, every build, and the numbers to take away."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from dash import Dash, html
from dash.development.base_component import Component

from atlas import downloads, shell, tables
from atlas.data import QueryCache, questions
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


TERMS: Mapping[str, Mapping[str, str]] = {
    "Who is asked": {
        "Source": "One language model behind one name: the thing that a trace is attributed to. Sources of one maker "
        "form a family.",
        "Trace": "One prompt and the response that a source gave to it.",
        "Roster": "The list of sources that an answer can name: 50, 100 or 165 of the paper's, or your own. The true "
        "source may be none of them; the list does not know that.",
        "Measured here, published": "Measured: computed by this atlas' own jobs, with the command, code and data on "
        "record. Published: taken from the paper's files as they stand. They are told apart everywhere, filled and "
        "hollow.",
    },
    "How a trace is read": {
        "Proxy and reader": "A reader names the source of a trace. READER feeds the trace to a small frozen language "
        "model, the proxy, and looks at the proxy's inner states, not at the words. The proxy is never trained; only "
        "a linear probe on top of it is.",
        "Fingerprint: DC and AC": "Two numbers for each hidden unit of the proxy: its mean over the response (DC) and "
        "how it drifts from the start to the end (first AC, a cosine mode). The mean fingerprint of all responses of "
        "a source is its signature, the point on the map.",
        "Block selection": "Which block of the proxy is read is chosen inside the training folds, so that the "
        "held-out prompts have no say in it.",
        "Fused readout": "A weighted sum of what several readers say of a trace: linear discriminants over five "
        "blocks of one small proxy or two, a small network on each, and word n-grams. Its weights are chosen on "
        "prompts that neither its members nor the test have seen. It stands beside READER and does not replace it.",
        "Baselines": "Readers that the paper or we compare with: counts of words (n-grams), sentence embeddings "
        "(LLM-DNA), an encoder trained for the task (DeBERTa), LLMmap, and blind guessing.",
    },
    "How sure an attribution is": {
        "Budget K": "How many traces, known to come from one source, are read before it is named. Their evidence is "
        "added: log-posteriors are summed and the prior is counted once.",
        "Accuracy, macro-F1": "Accuracy is the share of groups of K traces whose source is named first. Macro-F1 "
        "weighs every source alike. Prompts of a group are never prompts that the probe was trained on: five folds of "
        "prompts, each held out once.",
        "NLL, ECE, calibrated": "NLL is the surprise at the true source, in nats. ECE is how far the stated "
        "probabilities are from the rates that follow; 0 is right. Both are given for the summed and for the mean "
        "evidence, because the sum is overconfident when traces depend on each other. Calibrated evidence was divided "
        "by a factor learned on other prompts.",
        "Pooled and by fold": "Pooled: all folds' groups together, then the mean over three seeds. By fold: each fold "
        "alone, then mean and standard deviation over the folds. Accuracy agrees between the two, macro-F1 does not.",
        "Kept, or retained share": "Accuracy on shortened responses or on other prompts (Math100), divided by the "
        "same reader's accuracy on whole responses of the prompts it was trained with.",
        "Interval, p, Holm-corrected": "A 95 % interval is where the number would fall in most repetitions with other "
        "prompts and sources, as far as resampling can tell. p is how often a difference this large would come by "
        "luck; Holm's correction makes it larger when many differences are tested, so that one of them is not found "
        "by trying. Below .05 is called more than luck.",
    },
    "What a verdict says": {
        "Likelihood ratio": "How many times more probable the traces are under one proposition than under another, "
        "such as “served by the claimed source” and “served by another of the candidates”. Given as its logarithm to "
        "base 10: 2 is a hundred times.",
        "SUPPORTS, AGAINST, UNKNOWN, INCONCLUSIVE": "The traces speak for the claim, against it, are unlike every "
        "enrolled source, or do not say. Never proved. SUPPORTS needs a ratio of a hundred and that the source stands "
        "alone: 95 % among all enrolled sources, each as likely as the next. Where siblings share that, the answer is "
        "about their family.",
        "Unknown-source p": "How often traces of an enrolled source look as strange as these. Small: perhaps none of "
        "the candidates.",
        "Sequential stop": "The number of traces after which the evidence may be looked at and stopped without "
        "raising the stated error rate.",
    },
    "What the map shows": {
        "Nearest in the original space": "Cosine similarity of signatures in all their dimensions, with its "
        "percentile among all pairs. A projection to the screen cannot keep all of it: trustworthiness says how much, "
        "and the lines on the map show where it fails.",
        "Family purity": "Share of a source's k nearest that are of its own family, beside what chance gives and a "
        "permutation test. Nobody told the reader any name.",
        "Cross-domain rank": "A source's signature on one set of prompts is sought among all signatures on the other; "
        "rank 1 means that it is found again.",
    },
    "Whether one model comes from another": {
        "Related pair": "A parent model and one derived from it by further training. Unrelated: two models of "
        "different parents. Siblings of one parent are no part of the task.",
        "Held out: pairs, models, families": "What the tested pairs share with the training pairs: their models, "
        "other children of their parents, or nothing. The last is what an auditor meets.",
        "Decision": "The signed distance from the line that a readout draws between related and unrelated training "
        "pairs, positive for related, averaged over the splits that tested the pair.",
    },
}
"""Words by question, in the order in which an audit meets them."""

PAPER_LIMITS = (
    "READER assumes a fixed list of enrolled sources, requests that do not depend on one another, and prompts that "
    "were not chosen with a source in mind.",
    "It cannot reject a source that is not enrolled, and cannot tell that a model has drifted.",
    "Much of the evidence is lost when responses are cut short or come from another domain.",
    "Telling relatives needs the same prompts for both models, and a readout of its own.",
    "The proxy has to be run for every trace.",
)
"""What the paper says of itself, in our words (its section on limitations)."""

LIMITS = (
    "An attribution ranks the sources of a roster. It cannot name a source that is not in it, and a high rank is no "
    "proof.",
    "Siblings in a family are often taken for each other; a family answer is then more honest than a source answer.",
    "Numbers hold for the prompts, lengths and settings of the release. Other prompts, system prompts, sampling "
    "settings or post-processing shift them.",
    "The default proxy is small, so that any machine can run it. Larger proxies read better; their published numbers "
    "are marked as published and were not measured here.",
    "A map bends distances. Read neighbours from the card and the table, which use the original space.",
)
"""Our own, short enough for a brief."""

MORE_LIMITS = (
    "Some names of the release may be one model: an alias and a dated version, an open checkpoint and a hosted one. "
    "No reader tells them apart, and an error between them is none.",
    "The recipe of the fused readout (blocks, penalties, size of the network) was chosen once on one validation fold, "
    "whose prompts later serve as test prompts of another fold; its weights and calibration were not.",
    "Test splits of relationships share pairs, so their intervals and p values tell how sensitive a number is to the "
    "split, and not how it would be with other models.",
    "Published numbers come without the single answers behind them; they can be shown beside ours, but not tested "
    "against them.",
)
"""Our own beside those of a brief."""


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
        html.Nav(chapters, className="chapters", **shell.aria(label="On this page")),
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
    for row in tables.rows(frame):
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
        shell.tools(name, picture=False, table_view=False, builds=False),
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
