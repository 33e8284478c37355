"""Pairs of models on the page of relationships: their scores, what every reader says of one, the most misleading."""

from __future__ import annotations

from typing import Any

import pandas as pd
from dash import html
from dash.development.base_component import Component

from atlas import drawing, shell, tables
from atlas.data import QueryCache
from atlas.drawing import FigureView
from atlas.figures import plots
from atlas.figures import relationships as figures
from atlas.figures.plots import rate_text
from atlas.pages import pieces
from atlas.state import PROTOCOLS, View
from backend.methods.registry import RELATED, names
from backend.protocol import READER_PAPER
from backend.store import page_queries as store

SETS = {"pair": "pair_disjoint", "model": "disjoint_union", "family": "disjoint_union"}
DECISIONS = {"pair": "decision", "model": "decision_model", "family": "decision_family"}
SCORE_WORDS = {
    "match": "Share of 600 answers that begin alike",
    "distance": "Distance of the two models' embeddings",
    "ac": "First-AC cosine: how alike the drift is",
}
COLUMNS = {"dc": "DC cosine", "ac": "AC cosine", "match": "Match", "distance": "Distance"}
MAKERS = {"Qwen": "Qwen", "google": "Gemma", "meta-llama": "Llama", "deepseek-ai": "DeepSeek", "microsoft": "Phi"}
"""Family of the atlas for the organisation that a parent model is published by."""
METHODS = {method: names()[method] for method in RELATED}
COUNT_MISTAKEN = 40
ORIENTED = (
    ": the dotted line is fitted to all pairs that are shown, for orientation, and is no decision of the reader. "
)
ABOVE_HELP = (
    "Share of the unrelated pairs that this pair outscores: a related pair should stand above nearly all, an unrelated "
    "one in their midst"
)
PASSED_HELP = "Share of the pairs of the other kind that the reader puts on the wrong side of this one; 0 is right"


def reader_names(cache: QueryCache) -> dict[str, str]:
    """Names of the readers with relationships, measured ones first."""
    names = {}
    for reader in tables.rows(cache.ask(store.relationship_readers)):
        method = str(reader.method).removeprefix("published-")
        name = METHODS.get(method, "" if method != "reader-mean4" else "READER · mean of four proxies")
        if name and isinstance(reader.proxy_name, str) and reader.proxy_name:
            name += f" · {reader.proxy_name}"
            name += " · response" if reader.view == "r" and method == READER_PAPER else ""
        names[reader.reader] = name or str(reader.name)
    return names


def row_of(reader: str) -> str:
    """Line of a reader: a published one shares that of the same method measured here."""
    return reader.removeprefix("published-")


def shown_reader(cache: QueryCache, view: View) -> str:
    """Reader whose scores of pairs are shown: the chosen one, that of the header, else the first measured; or ''."""
    readers = cache.ask(store.relationship_readers)
    scored = list(readers.loc[readers["pairs"] > 0, "reader"])
    return next((name for name in (view.relates, view.reader) if name in scored), scored[0] if scored else "")


def reader_field(cache: QueryCache, view: View) -> Component:
    """A field for the reader whose scores are shown, measured ones first."""
    readers, names = cache.ask(store.relationship_readers), reader_names(cache)
    readers = readers[readers["pairs"] > 0]
    groups = [
        {"group": words, "items": [{"value": reader, "label": names[reader]} for reader in group]}
        for origin, words in shell.ORIGINS.items()
        if len(group := readers.loc[readers["origin"] == origin, "reader"])
    ]
    return pieces.select(
        "relates", groups, shown_reader(cache, view) or None,
        "Reader whose scores of pairs are shown", allowDeselect=False, searchable=True, maxDropdownHeight=360,
        nothingFoundMessage="No reader has this name",
    )  # fmt: skip


def model_field(cache: QueryCache, identity: str, value: str, label: str) -> Component:
    """A field that finds a model by its name, grouped by parent."""
    models = cache.ask(store.relationship_models)
    data = [
        {"group": str(parent), "items": [{"value": model, "label": model} for model in rows["model"]]}
        for parent, rows in models.groupby("parent_family", sort=False)
    ]
    chosen = value if value in set(models["model"]) else None
    return pieces.select(
        identity, data, chosen, label, searchable=True, clearable=True, placeholder="A model", limit=80,
        nothingFoundMessage="No model has this name", maxDropdownHeight=320,
    )  # fmt: skip


def scored(cache: QueryCache, view: View, reader: str) -> tuple[pd.DataFrame, str]:
    """Pairs with a reader's scores, and the protocol that they belong to.

    The released files hold the scores of the pair split's pairs alone, so a published reader shows those whatever the
    protocol. Under the strict protocols only pairs that some split tested are shown.
    """
    truth = cache.ask(store.relationship_pairs)
    for protocol in dict.fromkeys((view.protocol, "pair")):
        scores = cache.ask(store.relationship_scores, SETS[protocol], reader)
        if not scores.empty:
            frame = truth[truth["pair_set"] == SETS[protocol]].merge(scores, on="pair_id")
            frame = frame.assign(decision=frame[DECISIONS[protocol]])
            if protocol != "pair" and frame["decision"].notna().any():
                frame = frame[frame["decision"].notna()]
            return frame.reset_index(drop=True), protocol
    return truth.iloc[:0].assign(**dict.fromkeys(("dc", "ac", "match", "distance", "decision"), 0.0)), view.protocol


def unmeasured(view: View, what: str, ways: list[tuple[str, str]] | None = None) -> FigureView:
    """What stands where relationships would be."""
    return drawing.nothing(
        view, f"There is no {what}", "Measure it with: python -m jobs relate, then publish it", ways or []
    )


def _origins(cache: QueryCache) -> pd.Series:
    return cache.ask(store.relationship_readers).set_index("reader")["origin"]


def badge(cache: QueryCache, reader: str) -> Component:
    """Whether a reader was measured here."""
    return shell.origin_badge(str(_origins(cache)[reader]))


def kinship(cache: QueryCache, view: View) -> FigureView:
    """Pairs in the scores of one reader."""
    reader = shown_reader(cache, view)
    frame, protocol = scored(cache, view, reader)
    if frame.empty:
        return unmeasured(view, "score of a pair yet")
    focus: dict[str, Any] = {
        "theme": view.theme,
        "model": view.left if not view.right else "",
        "chosen": (view.left, view.right),
    }
    name = figures.leading(frame)
    two = name == "ac" and frame["dc"].notna().any()
    if two:
        figure = figures.pair_scatter(frame, **focus)
    else:
        figure = figures.score_stacks(frame.assign(score=frame[name]), title=SCORE_WORDS[name], **focus)
    sentence: list[Component | str] = [
        badge(cache, reader),
        " One mark a pair, in the two scores that the readout sees. "
        if two
        else " One mark a pair: related ones stand up, unrelated ones hang down. ",
    ]
    decisions = frame["decision"].notna()
    if decisions.any():
        right = ((frame["decision"] > 0) == frame["related"].astype(bool))[decisions]
        sentence.append(
            f"{int(right.sum())} of {len(right)} mean decisions are right; the dashed line is where they turn. "
        )
    else:
        sentence += [
            "The released files hold this reader's scores and none of its decisions",
            ORIENTED if two else ". ",
        ]
    if protocol != view.protocol:
        sentence.append("They hold the pairs of the pair split alone, which are shown. ")
    sentence.append(
        f"Click a pair to ask every reader about it. n = {len(frame)} pairs, {int(frame['related'].sum())} related."
    )
    return FigureView(figure, sentence)


def shown_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """The pairs that are drawn, with the shown reader's scores."""
    return scored(cache, view, shown_reader(cache, view))[0]


def pair_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Every reader's scores of the chosen pair; empty for a pair that is in no set."""
    truth = cache.ask(store.relationship_pairs)
    needed = {view.left, view.right}
    chosen = truth[[{a, b} == needed for a, b in zip(truth["model_a"], truth["model_b"], strict=True)]]
    parts: list[pd.DataFrame] = []
    for pair in tables.rows(chosen):
        scores = cache.ask(store.relationship_scores, pair.pair_set)
        kinds = truth[truth["pair_set"] == pair.pair_set][["pair_id", "related"]]
        for reader, rows in scores.groupby("reader", sort=False):
            own = rows[rows["pair_id"] == pair.pair_id]
            if own.empty:
                continue
            name = figures.leading(rows)
            others = rows.merge(kinds, on="pair_id")
            sign = -1.0 if name == "distance" else 1.0
            strangers = sign * others.loc[~others["related"].astype(bool) & (others["pair_id"] != pair.pair_id), name]
            above = float((strangers < sign * own[name].iloc[0]).mean())
            parts.append(own.assign(reader=reader, pair_set=pair.pair_set, related=bool(pair.related), above=above))
    if not parts:
        return pd.DataFrame()
    frame = pd.concat(parts, ignore_index=True)
    # A pair may be in both sets: scores are the same, decisions are of one protocol each.
    decision = frame.groupby("reader")[list(DECISIONS.values())].max()
    frame = frame.sort_values("pair_set", ascending=False, kind="stable").drop_duplicates("reader")
    order = {reader: place for place, reader in enumerate(reader_names(cache))}
    frame = frame.drop(columns=list(DECISIONS.values())).join(decision, on="reader")
    return frame.sort_values("reader", key=lambda column: column.map(order)).reset_index(drop=True)


def verdicts(cache: QueryCache, view: View) -> tuple[Component, shell.Children]:
    """One pair: both models, the truth, and every reader; or all pairs of one model."""
    models = cache.ask(store.relationship_models).set_index("model")
    left, right = (model if model in models.index else "" for model in (view.left, view.right))
    if not models.size:
        return drawing.absent(unmeasured(view, "pair of models yet"))
    if not left and not right:
        empty = shell.empty("No pair is chosen", "Click a mark above, select a row below, or type the name of a model")
        return empty, f"Two of {len(models)} models, and what every reader makes of them."
    if left == right or not (left and right):
        return _partners(cache, view, left or right)
    frame = pair_rows(cache, view)
    card = html.Div([_model_card(cache, view, models, model) for model in (left, right)], className="kin-models")
    if frame.empty:
        same = models["parent_family"][left] == models["parent_family"][right]
        why = "They come from one parent; the task asks for parents and children only." if same else "No set holds it."
        return html.Div([card, shell.empty("Nobody was asked about this pair", why)]), "A pair that is not in the task."
    names, origins, shown = reader_names(cache), _origins(cache), shown_reader(cache, view)
    related, decisions = bool(frame["related"].iloc[0]), frame[DECISIONS[view.protocol]]
    scores = [name for name in COLUMNS if frame[name].notna().any()]
    rows = [
        pieces.row(
            pieces.reader_mark(names[one.reader], str(origins[one.reader])),
            *[_score(name, getattr(one, name)) for name in scores],
            f"{100 * one.above:.0f} %",
            _decision(decision, related),
            here=one.reader == shown,
        )
        for one, decision in zip(tables.rows(frame), decisions, strict=True)
    ]
    heads = ["Reader", *[COLUMNS[name] for name in scores], "Above strangers", "Read as"]
    decided = decisions.dropna()
    correct = int(((decided > 0) == related).sum())
    verdict = f"{correct} of {len(decided)} readers with a decision read it so. " if len(decided) else ""
    sentence: shell.Children = [
        html.Strong("Related" if related else "Unrelated", className=f"kin-truth kin-{figures.TRUTH_WORDS[related]}"),
        f" in truth. {verdict}",
        shell.term("Above strangers", ABOVE_HELP),
        f" says how many unrelated pairs it outscores. n = {len(frame)} readers; decisions of the "
        f"{PROTOCOLS[view.protocol].lower()} split.",
    ]
    return html.Div([card, pieces.scrolling(pieces.table(heads, rows, "wide kin-table"))], className="kin"), sentence


def _score(name: str, value: float) -> str:
    """A score as a table shows it; distances have no natural scale."""
    return f"{value:.3g}" if name == "distance" and pd.notna(value) else rate_text(value)


def _decision(value: float, related: bool) -> list[Component | str]:
    if pd.isna(value):
        return ["–"]
    says = bool(value > 0)
    judged = "right" if says == related else "wrong"
    return [
        html.Span(f"{figures.TRUTH_WORDS[says]}, {judged}", className=f"kin-{judged}"),
        html.Span(f" ({plots.signed(value)})", className="soft"),
    ]


def _model_card(cache: QueryCache, view: View, models: pd.DataFrame, model: str) -> Component:
    own: Any = models.loc[model]
    mark = cache.marks().get(MAKERS.get(str(own["parent_family"]).partition("/")[0], ""))
    empty = int(own["empty_responses"])
    parent = "a parent" if own["is_parent"] else pieces.marked("derived from ", shell.source_name(own["parent_family"]))
    facts: list[Component | str] = [parent]
    if empty:
        facts.append(html.Span(f"{empty} of its 600 answers are empty", className="caution"))
    symbol = [shell.symbol(mark, view.theme)] if mark else []
    name = html.Div([*symbol, shell.source_name(model)], className="marked")
    return html.Div([name, html.Div(facts, className="card-facts")], className="kin-model")


def _partners(cache: QueryCache, view: View, model: str) -> tuple[Component, shell.Children]:
    """All pairs of one model, as the shown reader scores them."""
    models = cache.ask(store.relationship_models).set_index("model")
    reader = shown_reader(cache, view)
    frame, _ = scored(cache, view, reader)
    own = frame[(frame["model_a"] == model) | (frame["model_b"] == model)]
    card = html.Div(_model_card(cache, view, models, model), className="kin-models")
    scorer = reader_names(cache).get(reader, "a reader")
    sentence = f"Pairs of this model that {scorer} has scored, the closest first; choose one. n = {len(own)}."
    if own.empty:
        nothing = shell.empty("No pair of this model is in this split", "Choose another split above")
        return html.Div([card, nothing]), sentence
    name = figures.leading(own)
    own = own.assign(other=own["model_b"].where(own["model_a"] == model, own["model_a"]))
    own = own.sort_values(["related", name], ascending=[False, name == "distance"], kind="stable").head(COUNT_MISTAKEN)
    rows = []
    for pair in tables.rows(own):
        truth = figures.TRUTH_WORDS[bool(pair.related)]
        kind = html.Span(truth, className=f"kin-truth kin-{truth}")
        content = [shell.source_name(pair.other), kind, pieces.number(rate_text(getattr(pair, name)))]
        rows.append(html.Button(content, id={"type": "partner", "model": pair.other}, className="kin-partner"))
    return html.Div([card, html.Div(rows, className="kin-partners")], className="kin"), sentence


def mistaken_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Pairs of the shown reader, the most misleading first."""
    frame = shown_rows(cache, view)
    columns = ["model_a", "model_b", "truth", "parent_a", "parent_b", "dc", "ac", "match", "distance"]
    columns += ["decision", "passed_by"]
    if frame.empty:
        return pd.DataFrame(columns=columns)
    frame = frame.assign(passed_by=figures.passed_by(frame), truth=frame["related"].map(figures.TRUTH_WORDS))
    frame = frame.sort_values("passed_by", ascending=False, kind="stable")
    return frame[columns].dropna(axis="columns", how="all").reset_index(drop=True)


def mistaken(cache: QueryCache, view: View) -> tuple[Component, shell.Children]:
    """The grid of the most misleading pairs."""
    frame = mistaken_rows(cache, view)
    if frame.empty:
        return drawing.absent(unmeasured(view, "score of a pair yet"))
    columns = [
        tables.words("model_a", "First model", 150, 1, cellClass="mono"),
        tables.words("model_b", "Second model", 150, 1, cellClass="mono"),
        tables.words("truth", "Truth", 96),
        *[
            tables.number(name, title, "cosine", 76)
            for name, title in (("dc", "DC"), ("ac", "AC"), ("match", "Match"), ("distance", "Distance"))
            if name in frame
        ],
        *([tables.number("decision", "Decision", "number", 88)] if "decision" in frame else []),
        tables.number("passed_by", "Passed by", "rate", 92),
    ]
    reader = shown_reader(cache, view)
    sentence: shell.Children = [
        badge(cache, reader),
        f" {reader_names(cache)[reader]}; the most wrong first: ",
        shell.term("passed by", PASSED_HELP),
        f" counts unrelated pairs that look closer than a related one, and the reverse. n = {len(frame)} pairs. Select "
        "a row to ask every reader.",
    ]
    return tables.grid("mistaken-grid", frame, columns, selectable=True), sentence


def scores_builds(cache: QueryCache, view: View) -> tuple[str, dict[str, object]]:
    """Rows behind the scores of the shown reader."""
    return "relationship_features", {"reader": shown_reader(cache, view)}


def pair_builds(cache: QueryCache, view: View) -> tuple[str, dict[str, object]]:
    """Rows behind the chosen pair."""
    frame = pair_rows(cache, view)
    return "relationship_features", {"pair_id": frame["pair_id"].iloc[0] if len(frame) else ""}
