"""Methods: what each number means in plain words, its limits, and every build that is behind the atlas."""

from __future__ import annotations

import pandas as pd
from dash import Dash, html
from dash.development.base_component import Component

from atlas import shell
from atlas.data import Questions, questions
from atlas.state import View
from backend.store import queries

TERMS = (
    (
        "Source",
        "One language model behind one name: the thing that a trace is attributed to. Sources of one maker form a "
        "family.",
    ),
    (
        "Trace",
        "One prompt and the response that a source gave to it.",
    ),
    (
        "Proxy and reader",
        "A reader names the source of a trace. READER feeds the trace to a small frozen language model, the proxy,"
        " and looks at the proxy's inner states, not at the words. The proxy is never trained; only a linear probe"
        " on top of it is.",
    ),
    (
        "Fingerprint",
        "Two numbers for each hidden unit of the proxy: its mean over the response (DC) and how it drifts from the"
        " start to the end (AC, the first cosine mode). The mean fingerprint of all responses of a source is its "
        "signature, the point on the map.",
    ),
    (
        "Budget K",
        "How many traces, known to come from one source, are read before it is named. Their evidence is added: "
        "log-posteriors are summed and the prior is counted once.",
    ),
    (
        "Accuracy, macro-F1",
        "Accuracy is the share of groups of K traces whose source is named first. Macro-F1 weighs every source "
        "alike. Prompts of a group are never prompts that the probe was trained on: five folds of prompts, each "
        "held out once.",
    ),
    (
        "NLL, ECE",
        "NLL is the surprise at the true source, in nats. ECE is how far the stated probabilities are from the "
        "rates that follow. Both are given for the summed and for the mean evidence, because the sum is "
        "overconfident when traces depend on each other.",
    ),
    (
        "Pooled and by fold",
        "Pooled: all folds' groups together, then the mean over three seeds. By fold: each fold alone, then mean "
        "and standard deviation over the folds. Accuracy agrees between the two, macro-F1 does not.",
    ),
    (
        "Nearest in the original space",
        "Cosine similarity of signatures in all their dimensions. A projection to the screen cannot keep all of "
        "it: trustworthiness says how much, and the lines on the map show where it fails.",
    ),
    (
        "Block selection",
        "Which block of the proxy is read is chosen inside the training folds, so that the held-out prompts have "
        "no say in it.",
    ),
)

LIMITS = (
    (
        "An attribution ranks the sources of a roster. It cannot name a source that is not in it, and a high rank "
        "is no proof."
    ),
    ("Siblings in a family are often taken for each other; a family answer is then more honest than a source answer."),
    (
        "Numbers hold for the prompts, lengths and settings of the release. Other prompts, system prompts, "
        "sampling settings or post-processing shift them."
    ),
    (
        "The default proxy is small, so that any machine can run it. Larger proxies read better; their published "
        "numbers are marked as published and were not measured here."
    ),
    "A map bends distances. Read neighbours from the card and the table, which use the original space.",
)


def layout(**query: str) -> Component:
    """The page for a query string."""
    asked = questions()
    problem = asked.problem()
    view = View() if problem else asked.settle(View.parse(query))
    return html.Div(
        className="column prose",
        children=[
            html.H1("Methods"),
            html.P(
                "What each number means, what it does not mean, and which command made it.",
                className="sentence",
            ),
            html.H2("Words"),
            html.Dl(
                [piece for word, meaning in TERMS for piece in (html.Dt(word), html.Dd(meaning))], className="terms"
            ),
            html.H2("Limits"),
            html.Ul([html.Li(limit) for limit in LIMITS], className="limits"),
            shell.empty(problem.problem, problem.remedy) if problem else _builds(asked, view),
        ],
    )


def register(app: Dash) -> None:
    """The page has no callbacks of its own."""
    del app


def _builds(asked: Questions, view: View) -> Component:
    frame = _build_rows(asked, view)
    return html.Section(
        id="figure-builds",
        className="figure",
        **{"aria-labelledby": "title-builds"},
        children=[
            html.Div(
                className="figure-head",
                children=[
                    html.H2("What made these numbers?", id="title-builds"),
                    shell.tools("builds", picture=False, table_view=False, made=False),
                ],
            ),
            html.P(
                f"Every row of the atlas names its build: the command, the code, the data and the proxy behind it. "
                f"n = {len(frame)} builds in generation {asked.generation().name}.",
                id={"type": "sentence", "figure": "builds"},
                className="sentence",
            ),
            html.Div(
                id={"type": "body", "figure": "builds"},
                className="figure-body",
                style={"height": min(360, 42 + 34 * max(len(frame), 1))},
                children=[
                    html.Div(shell.table(frame, identity="builds-grid"), className="figure-drawing"),
                ],
            ),
        ],
    )


def _build_rows(asked: Questions, view: View) -> pd.DataFrame:
    del view
    builds = asked.ask(queries.builds)
    frame = builds.assign(
        started_at=builds["started_at"].dt.strftime("%Y-%m-%d %H:%M"),
        data_hash=builds["data_hash"].str.slice(0, 12),
        proxy_hash=builds["proxy_hash"].str.slice(0, 12),
        duration_s=builds["duration_s"].round().astype(int),
    )
    return frame[
        ["stage", "command", "started_at", "duration_s", "code_version", "data_hash", "proxy_hash", "origin", "host"]
    ]


PAGE = shell.Page(
    name="methods",
    path="/methods",
    title="Methods",
    icon="methods",
    layout=layout,
    register=register,
    figures={"builds": shell.Told(_build_rows)},
)
