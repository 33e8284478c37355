"""Relationships: which reader tells a derived model from a stranger, and what every reader says of a pair."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pandas as pd
from dash import ALL, ClientsideFunction, Dash, Input, Output, State, ctx, dcc, html, no_update
from dash.development.base_component import Component

from atlas import drawing, shell
from atlas.data import QueryCache, questions
from atlas.drawing import FigureView
from atlas.figures import dots, plots, tables
from atlas.figures import relationships as figures
from atlas.figures.plots import rate_text
from atlas.figures.relationships import READOUTS
from atlas.pages import pieces
from atlas.pages.pieces import PageFigure
from atlas.state import MEASURES, PROTOCOLS, View
from backend.inference.drift import corrected_words
from backend.methods.registry import RELATED
from backend.methods.registry import names as method_names
from backend.protocol import READER_PAPER
from backend.store import page_queries as store

T = TypeVar("T")
PROTOCOL_WORDS = {
    "pair": "Test pairs are new, but either model may be known from another pair.",
    "model": "Both models of a test pair are new; other children of their parents may be known.",
    "family": "The test pairs' whole families are new.",
}
NEW = {"pair": "on new pairs", "model": "on new models", "family": "on new families"}
"""What of a test pair is new, as the answer says it."""
HELD_OUT = {"pair": "pairs held out", "model": "models held out", "family": "whole families held out"}
CONTENTS = {"verdicts": "One pair", "kinship": "All pairs", "readouts": "Readers"}
FOLDED = {
    "mistaken": "Pairs that mislead the reader", "contrasts": "Mean and drift, alone and together",
    "tested": "Differences tested against luck", "rates": "All numbers, and those of the other splits",
}  # fmt: skip
"""Figures that open on demand, by what stands on them."""
MEASURE_HELP = {
    "accuracy": "share of pairs told right",
    "precision": "share of pairs called related that are",
    "recall": "share of related pairs that are found",
    "f1": "harmonic mean of precision and recall",
    "auc": "how often a related pair scores above an unrelated one",
}
METRIC_HELP = "; ".join(f"{MEASURES[measure]}: {words}" for measure, words in MEASURE_HELP.items())
HELD_OUT_HELP = (
    "What of a test pair no training pair held: the pair itself, either of its models, or their whole families"
)
READOUT_HELP = "A straight line between related and unrelated pairs, drawn from the training pairs' scores"
ANSWERS = 600
"""Answers of every model of the task, empty ones too."""
GUESSES = {
    **{measure: dots.Level(0.5, "a coin") for measure in ("accuracy", "precision", "auc")},
    "f1": dots.Level(2 / 3, "calling every pair related"),
}
"""What is reached without reading, where as many test pairs are related as not."""
COMPARED = ("accuracy", "f1", "auc")
"""Measures that were tested in pairs."""
SETS = {"pair": "pair_disjoint", "model": "disjoint_union", "family": "disjoint_union"}
DECISIONS = {"pair": "decision", "model": "decision_model", "family": "decision_family"}
SCORE_WORDS = {
    "match": f"Share of {ANSWERS} answers that begin alike",
    "distance": "Distance of the two models' embeddings",
    "ac": "How alike the drift is (cosine, first AC)",
}
PART_HELP = {
    "dc": "How alike the two models' mean states are: the proxy's states averaged over a response, as a cosine",
    "ac": "How alike their drift is: the states' smoothest change from a response's front to its back, as a cosine",
}
"""What the heads of both parts of a fingerprint mean."""
COLUMNS = {
    "dc": "Mean (DC), cosine", "ac": "Drift (first AC), cosine", "match": "Text that matches",
    "distance": "Embedding distance",
}  # fmt: skip
MAKERS = {"Qwen": "Qwen", "google": "Gemma", "meta-llama": "Llama", "deepseek-ai": "DeepSeek", "microsoft": "Phi"}
"""Family of the atlas for the organisation that a parent model is published by."""
METHODS = {method: method_names()[method] for method in RELATED}
TESTED = "Tested with the first model"
COUNT_MISTAKEN = 40
CHOOSE = "Choose two models, or click a mark, to see whether one is derived from the other."
EXAMPLE = "An example, a pair that the readers agree about least."
UNTESTED_HEIGHT = 150
ORIENTED = (
    ": the dotted line is fitted to all pairs that are shown, for orientation, and is no decision of the reader. "
)
OWN_LINES = "Every split has its own line, so some pairs below this one are called related, or above it unrelated"
ABOVE_HELP = (
    "Share of the unrelated pairs that this pair outscores: a related pair should stand above nearly all, an unrelated "
    "one in their midst"
)
PARTS = (
    "Mean (DC): the proxy's states averaged over a response; drift (first AC): their smoothest change from its front "
    "to its back."
)
PASSED_HELP = "Share of the pairs of the other kind that the reader puts on the wrong side of this one; 0 % is right"
DECISION_HELP = (
    "A pair's score beyond the readout's line, averaged over the splits that test it: above 0 it is read as related, "
    "below 0 as unrelated. Means are right a little more or less often than the single splits, whose rate stands at "
    "the top of the page"
)


@drawing.page
def layout(cache: QueryCache, view: View) -> Component:
    """The page for a query string."""
    show = pieces.sections(FIGURES, cache, view, origin="")
    choices = [
        shell.segmented("protocol", PROTOCOLS, view.protocol, "Held out", HELD_OUT_HELP),
        shell.segmented("measure", MEASURES, view.measure, "Metric", METRIC_HELP),
    ]
    controls = html.Div(choices, className="controls")
    protocol = html.P(_protocol_sentence(cache, view), id="protocol-told", className="sentence")
    fields = {
        "First model": ("left", model_field(cache, "left", view.left, "First model")),
        "Second model": ("right", model_field(cache, "right", view.right, "Second model", view.left)),
        "Reader": ("relates", reader_field(cache, view)),
    }
    models = [
        html.Div([html.Label(word, htmlFor=place, className="choice-label"), field])
        for word, (place, field) in fields.items()
    ]
    contents = pieces.contents({f"figure-{name}": words for name, words in CONTENTS.items()})
    limits = pieces.words(
        "Only pairs that were tested are here. For a model of your own: ",
        dcc.Link("Claim against reference", href="/attribute?mode=reference"),
        ".",
    )
    card = pieces.live("kin-answer", pair_answer(cache, view))
    return html.Div(
        [
            drawing.remembered(PAGE.name),
            drawing.head("Relationships", "related-answer", _answer(cache, view), contents, controls, protocol),
            html.Div([html.Div(models, className="controls kin-fields"), limits, card], className="kin-asked"),
            show("verdicts"),
            show("kinship"),
            show("readouts"),
            *(pieces.folded(words, show(name)) for name, words in FOLDED.items()),
        ],
        className="column kin",
    )


def register(app: Dash) -> None:
    """Callbacks of the page."""
    protocol, measure = Input("protocol", "value"), Input("measure", "value")
    relates, left, right = Input("relates", "value"), Input("left", "value"), Input("right", "value")
    drawing.remember(app, PAGE.name, protocol=protocol, measure=measure, relates=relates, left=left, right=right)
    told, answer = drawing.place("protocol-told", _protocol_sentence), drawing.place("related-answer", _answer)
    pieces.follow(app, FIGURES, told, "readouts contrasts tested", protocol=protocol, measure=measure)
    drawing.follow(app, answer, protocol=protocol, measure=measure, relates=relates)
    pieces.follow(app, FIGURES, "rates", protocol=protocol, measure=measure, relates=relates)
    pieces.follow(app, FIGURES, "mistaken", protocol=protocol, relates=relates)
    chosen = {"protocol": protocol, "relates": relates, "left": left, "right": right}
    pieces.follow(app, FIGURES, "kinship verdicts", drawing.place("kin-answer", pair_answer), **chosen)
    # Whatever a pair is chosen by, its answer is in sight, from its beginning.
    app.clientside_callback(
        ClientsideFunction("atlas", "pairShown"),
        *(Input(name, "value") for name in ("left", "right")),
        prevent_initial_call=True,
    )

    # A point, a row, a partner in the list: all of them choose the pair.
    @app.callback(
        Output("left", "value"),
        Output("right", "value"),
        Input("kinship-graph", "clickData"),
        Input("mistaken-grid", "selectedRows", allow_optional=True),
        Input({"type": "partner", "model": ALL}, "n_clicks"),
        State("left", "value"),
        prevent_initial_call=True,
    )
    def clicked(
        point: dict[str, Any] | None, row: list[dict[str, Any]] | None, clicks: list[int | None], left: str | None
    ) -> Any:
        trigger = ctx.triggered_id
        points = (point or {}).get("points") or []
        if trigger == "kinship-graph" and points and points[0].get("customdata"):
            return tuple(points[0]["customdata"])
        if trigger == "mistaken-grid" and row:
            return row[0]["model_a"], row[0]["model_b"]
        if isinstance(trigger, dict) and any(clicks):
            return left, trigger["model"]
        return no_update, no_update

    @app.callback(Output("right", "data"), left, prevent_initial_call=True)
    def offered(first: str | None) -> Any:
        return model_options(questions(), first or "")

    @app.callback(
        Output("protocol", "value"), Input({"type": "tested", "protocol": ALL}, "n_clicks"), prevent_initial_call=True
    )
    def switched(clicks: list[int | None]) -> Any:
        return ctx.triggered_id["protocol"] if any(clicks) else no_update


# ---- pairs of models -------------------------------------------------------------------------------------------------


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


def model_field(cache: QueryCache, identity: str, value: str, label: str, first: str = "") -> Component:
    """A field that finds a model by its name, grouped by parent; those tested with a first model come first."""
    models = cache.ask(store.relationship_models)
    chosen = value if value in set(models["model"]) else None
    return pieces.select(
        identity, model_options(cache, first), chosen, label, searchable=True, clearable=True, placeholder="A model",
        limit=80, nothingFoundMessage=f"No model of that name, nor one near it, among these {len(models):,}",
        filter=shell.CLOSEST | {"options": {"first": TESTED}}, maxDropdownHeight=320,
    )  # fmt: skip


def model_options(cache: QueryCache, first: str = "") -> list[dict[str, Any]]:
    """Models by their parent; before them those that a test pair joins with a first one, which marks the others."""
    models = cache.ask(store.relationship_models)
    tested = models["model"].isin(tested_with(cache, first)["model"])
    groups = [(TESTED, models[tested]), *models[~tested].groupby("parent_family", sort=False)]
    rest = "Not tested · " if tested.any() else ""
    return [
        {
            "group": str(name) if name == TESTED else f"{rest}{name}",
            "items": [{"value": model, "label": model} for model in rows["model"]],
        }
        for name, rows in groups
        if len(rows)
    ]


def decided_pairs(cache: QueryCache) -> pd.DataFrame:
    """Pairs that a reader has decided about under some split."""
    scores = pd.concat([cache.ask(store.relationship_scores, name) for name in dict.fromkeys(SETS.values())])
    decided = scores.loc[scores[list(DECISIONS.values())].notna().any(axis=1), "pair_id"]
    pairs = cache.ask(store.relationship_pairs)
    return pairs[pairs["pair_id"].isin(decided)]


def tested_with(cache: QueryCache, first: str) -> pd.DataFrame:
    """Models that a test pair joins with a first one: columns model, parent, related."""
    pairs = decided_pairs(cache)
    both = pd.concat(
        pairs.rename(columns={f"model_{one}": "model", f"parent_{one}": "parent", f"model_{other}": "first"})
        for one, other in (("a", "b"), ("b", "a"))
    )
    return both.loc[both["first"] == first, ["model", "parent", "related"]].drop_duplicates("model")


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


def unmeasured(view: View, what: str) -> FigureView:
    """What stands where relationships would be."""
    return drawing.nothing(view, f"There is no {what}", "Measure it with: python -m jobs relate, then publish it")


def missing(what: str) -> pieces.Draw:
    """:func:`unmeasured` of a figure."""
    return lambda _cache, view: unmeasured(view, what)


def _origins(cache: QueryCache) -> pd.Series:
    return cache.ask(store.relationship_readers).set_index("reader")["origin"]


def badge(cache: QueryCache, reader: str) -> Component:
    """Whether a reader was measured here."""
    return shell.origin_badge(str(_origins(cache)[reader]))


def silent_models(cache: QueryCache) -> set[str]:
    """Models whose answers are all empty."""
    models = cache.ask(store.relationship_models)
    return set(models.loc[models["empty_responses"] >= ANSWERS, "model"])


def with_example(cache: QueryCache, view: View) -> View:
    """The view; where no model is chosen, with the pair that divides the readers and misleads the shown one most."""
    frame, protocol = scored(cache, view, shown_reader(cache, view))
    silent, known = silent_models(cache), set(cache.ask(store.relationship_models)["model"])
    frame = frame.assign(passed=figures.passed_by(frame) if len(frame) else 0.0)
    frame = frame[~(frame["model_a"].isin(silent) | frame["model_b"].isin(silent))]
    if frame.empty or known & {view.left, view.right}:
        return view
    decisions = cache.ask(store.relationship_scores, SETS[protocol]).dropna(subset=[DECISIONS[protocol]])
    related = (decisions[DECISIONS[protocol]] > 0).groupby(decisions["pair_id"]).mean()
    frame = frame.assign(apart=(frame["pair_id"].map(related) - 0.5).abs())
    first = frame.sort_values(["apart", "passed"], ascending=[True, False], kind="stable").iloc[0]
    return dataclasses.replace(view, left=first["model_a"], right=first["model_b"])


def _exemplified(draw: Callable[[QueryCache, View], T]) -> Callable[[QueryCache, View], T]:
    return lambda cache, view: draw(cache, with_example(cache, view))


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
    asked = pair_rows(cache, view)
    # The two sets number their pairs apart, so that models tell whether the split has the chosen one.
    models = zip(frame["model_a"], frame["model_b"], strict=True)
    inside = asked.empty or any({a, b} == {view.left, view.right} for a, b in models)
    outside = frame[:0] if inside else asked[asked["reader"].eq(reader)]
    if two:
        figure = figures.pair_scatter(frame, outside, **focus)
    else:
        both = (rows.assign(score=rows[name]) for rows in (frame, outside))
        figure = figures.score_stacks(*both, title=SCORE_WORDS[name], **focus)
    first = figures.passed_by(frame)[frame["related"].astype(bool)]
    decides = frame["decision"].notna().any()
    own = usual(cache, dataclasses.replace(view, measure="auc")) if decides and protocol == view.protocol else None
    closer: list[Component | str] = [
        f" By {'mean decisions' if decides else 'these scores'}, a related pair looks closer than an unrelated one in "
        f"{100 * (1 - first.mean()):.0f} % of comparisons, all pairs ranked together. "
    ]
    if own is not None:
        closer = [
            " Ranked split by split, a related pair is above an unrelated one in "
            f"{100 * own['value']:.1f} % of comparisons (the mean ",
            shell.term("AUC", MEASURE_HELP["auc"].capitalize()),
            f"); all pairs together, by their mean decisions, in {100 * (1 - first.mean()):.0f} %, as every split "
            "has a line of its own. ",
        ]
    sentence: list[Component | str] = [badge(cache, reader), *(closer if 0 < len(first) < len(frame) else [" "])]
    if two:
        sentence += ["Axes: ", shell.term("mean and drift", PARTS), ". "]
    else:
        sentence += ["One mark a pair: related ones stand up, unrelated ones hang down. "]
    if decides:
        sentence += ["Dashed: the ", shell.term("average decision", f"{DECISION_HELP}. {OWN_LINES}"), " line. "]
    else:
        sentence += [
            "The released files hold this reader's scores and none of its decisions",
            ORIENTED if two else ". ",
        ]
    if protocol != view.protocol:
        sentence.append("They hold the pairs of the pair split alone, which are shown. ")
    sentence.append(html.Span("Click a mark to ask every reader about it. ", className="pointing"))
    silent = silent_models(cache)
    without = int((frame["model_a"].isin(silent) | frame["model_b"].isin(silent)).sum())
    related, every = int(frame["related"].sum()), scored_pairs(cache)
    facts = [f"{related} of them are related."]
    if 2 * related < len(frame):
        facts.append("Every split tests as many of either kind, so related pairs come in more splits.")
    if len(frame) < every:
        facts.append(f"Of the {every:,} scored pairs these are the ones that this split tests.")
    if two and without:
        facts.append(f"In {pieces.counted(without, 'pair')} a model gave no answers: its drift stands at 0.")
    sentence += ["n = ", shell.term(f"{len(frame):,} pairs", " ".join(facts)), "."]
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


def pair_answer(cache: QueryCache, view: View) -> list[Component]:
    """What the chosen pair is and how it is read, before both models; the one model that is chosen; or what to do."""
    models = cache.ask(store.relationship_models).set_index("model")
    given, view = view, with_example(cache, view)
    example = [f"{EXAMPLE} "] if view is not given else []
    chosen = [model for model in dict.fromkeys((view.left, view.right)) if model in models.index]
    cards = [_model_card(cache, view, models, model) for model in chosen]
    if len(chosen) < 2:
        return [pieces.words(html.Span(CHOOSE, className="pointing")), *cards]
    frame = pair_rows(cache, view)
    if frame.empty:
        offer = html.A("Pairs of the first model that were tested", href="#figure-verdicts")
        return [html.P([_no_score(cache, models, *chosen), " ", offer], className="pair-answer"), *cards]
    related = bool(frame["related"].iloc[0])
    under = decided_under(frame, view.protocol)
    decided = frame.set_index("reader")[DECISIONS[under]].dropna()
    correct = int(((decided > 0) == related).sum())
    many = [*_elsewhere(under, view.protocol), f"{correct} of {len(decided)} readers say so"]
    many = many if len(decided) else [_undecided(cache, view, frame)]
    reader = shown_reader(cache, view)
    own = f"; {reader_names(cache)[reader]} {_decided(decided[reader], related)}" if reader in decided else ""
    told = [*example, "In truth ", _truth(related), "; ", *many, f"{own}."]
    return [html.P(told, className="pair-answer"), *cards]


def _no_score(cache: QueryCache, models: pd.DataFrame, left: str, right: str) -> str:
    """That no reader has scored a pair, and why."""
    same = models["parent_family"][left] == models["parent_family"][right]
    why = " They come from one parent; the task asks for parents and children only." if same else ""
    return f"No score: these two are not among the {scored_pairs(cache):,} pairs that readers scored.{why}"


def scored_pairs(cache: QueryCache) -> int:
    """How many pairs readers scored, tested by any split or by none."""
    pairs = cache.ask(store.relationship_pairs)
    return len({frozenset(pair) for pair in tables.rows(pairs, "model_a", "model_b")})


def _undecided(cache: QueryCache, view: View, frame: pd.DataFrame) -> str:
    """Why nobody has decided about a scored pair, and on which side of the shown reader's decision line it lies."""
    scores = f"{pieces.counted(len(frame), 'reader')} with scores"
    if decided_pairs(cache).empty:
        return f"{scores}, and no decision"
    own, shown = frame[frame["reader"] == shown_reader(cache, view)], shown_rows(cache, view)
    related = figures.reads_related(shown, own.iloc[0]) if len(own) else None
    words = figures.TRUTH_WORDS.get(related) if related is not None else ""
    side = f". Its mark is on the {words} side of the dashed line, which is no decision" if words else ""
    return f"no test split holds this pair, so none of the {scores} decided about it{side}"


def decided_under(frame: pd.DataFrame, protocol: str) -> str:
    """The split whose decisions of a pair are shown: the chosen one, else the first that tested the pair."""
    return next((name for name in (protocol, *DECISIONS) if frame[DECISIONS[name]].notna().any()), protocol)


def _elsewhere(under: str, protocol: str) -> list[Component | str]:
    """That the chosen split does not test a pair, and a way to the one that does."""
    if under == protocol:
        return []
    way = html.Button(HELD_OUT[under], id={"type": "tested", "protocol": under}, className="kin-split")
    return [f"not among the pairs tested with {HELD_OUT[protocol]}. Answers below are of the split with ", way, ": "]


def _truth(related: bool) -> Component:
    return html.Strong(figures.TRUTH_WORDS[related], className=f"kin-truth kin-{figures.TRUTH_WORDS[related]}")


def _decided(value: float, related: bool) -> str:
    return "is right" if (value > 0) == related else "is wrong"


def verdicts(cache: QueryCache, view: View) -> pieces.GridView:
    """One pair: both models, the truth, and every reader; or all pairs of one model."""
    models = cache.ask(store.relationship_models).set_index("model")
    left, right = (model if model in models.index else "" for model in (view.left, view.right))
    if not models.size:
        return drawing.absent(unmeasured(view, "pair of models yet"))
    if not left and not right:
        return drawing.absent(unmeasured(view, "score of a pair yet"))
    if left == right or not (left and right):
        return _partners(cache, view, left or right)
    frame = pair_rows(cache, view)
    if frame.empty:
        return _tested_partners(cache, models, left, right)
    names, origins, shown = reader_names(cache), _origins(cache), shown_reader(cache, view)
    under = decided_under(frame, view.protocol)
    related, decisions = bool(frame["related"].iloc[0]), frame[DECISIONS[under]]
    decided = decisions.dropna()
    rates = cache.ask(store.relationship_summaries, under)
    rates = rates[rates["metric"].eq("accuracy") & rates["readout"].isin(figures.USUAL)]
    accuracy = rates.groupby("reader")["value"].first()

    def table(part: pd.DataFrame, *first: str) -> Component:
        """Readers of one origin do not repeat it."""
        repeated = _one_origin(origins, part)
        scores = [name for name in COLUMNS if part[name].notna().any()]
        rows = [
            pieces.row(
                pieces.reader_mark(names[one.reader], "" if repeated else str(origins[one.reader])),
                *(
                    [_decision(decisions[place], related), rate_text(accuracy.get(one.reader, math.nan))]
                    if first
                    else []
                ),
                *[_score(name, getattr(one, name)) for name in scores],
                f"{100 * one.above:.0f} %",
                here=one.reader == shown,
            )
            for place, one in zip(part.index, tables.rows(part), strict=True)
        ]
        return _scores_table([*first, *[COLUMNS[name] for name in scores], "Above unrelated"], rows)

    parts, silent = [], frame[decisions.isna()]
    if len(decided):
        parts += [
            html.Details(html.Summary("Every reader's scores"), className="kin-more"),
            table(
                frame[decisions.notna()],
                "Decision of each reader (above 0: related)",
                f"Its accuracy, split: {PROTOCOLS[under]} held out",
            ),
        ]
    if len(silent):
        summary = f"{pieces.counted(len(silent), 'reader')} with scores and without a decision"
        summary += _one_origin(origins, silent)
        parts.append(html.Details([html.Summary(summary), table(silent)], className="folded", open=not parts))
    correct = int(((decided > 0) == related).sum())
    here, there = (_one_origin(origins, frame[rows]) for rows in (decisions.notna(), decisions.isna()))
    verdict = f"{correct} of {len(decided)} readers that decide (split: {HELD_OUT[under]}{here}) read it so"
    only = f"{pieces.counted(len(silent), 'reader')} give{'s' if len(silent) == 1 else ''} scores only{there}"
    verdict = "; ".join([verdict] * bool(len(decided)) + [only] * bool(len(silent)))
    sentence: shell.Children = [
        "In truth ",
        _truth(related),
        f": {verdict}. ",
        shell.term("Above unrelated", ABOVE_HELP),
        f": how many unrelated pairs it outscores. n = {len(frame)} readers.",
    ]
    return html.Div(parts), sentence


def _one_origin(origins: pd.Series, part: pd.DataFrame) -> str:
    """That several readers are of one origin, as the end of a sentence; '' where they are not."""
    found = set(origins[part["reader"]])
    return f", all {shell.ORIGINS[found.pop()].lower()}" if len(found) == 1 < len(part) else ""


def _scores_table(heads: list[str], rows: list[Component]) -> Component:
    """Readers and their scores; a narrow screen shows each reader's as a list, without those that it lacks."""
    for row in rows:
        for head, cell in zip(heads, row.children[1:], strict=True):
            if cell.children != rate_text(math.nan):
                setattr(cell, "data-head", head.partition(" of each")[0])  # the rest stands in the head
    helped = {COLUMNS[name]: words for name, words in PART_HELP.items()}
    terms = [shell.term(head, helped[head]) if head in helped else head for head in heads]
    return pieces.scrolling(pieces.table(["Reader", *terms], rows, "wide kin-table"))


def _score(name: str, value: float) -> str:
    """A score as a table shows it; distances have no natural scale."""
    return f"{value:.3g}" if name == "distance" and pd.notna(value) else rate_text(value)


def _decision(value: float, related: bool) -> list[Component | str]:
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
        facts.append(html.Span(f"{empty} of its {ANSWERS} answers are empty", className="caution"))
    symbol = [shell.symbol(mark, view.theme)] if mark else []
    name = html.Div([*symbol, shell.source_name(model)], className="marked")
    return html.Div([name, html.Div(facts, className="card-facts")], className="kin-model")


def _partners(cache: QueryCache, view: View, model: str) -> pieces.GridView:
    """All pairs of one model, as the shown reader scores them."""
    reader = shown_reader(cache, view)
    frame, _ = scored(cache, view, reader)
    own = frame[(frame["model_a"] == model) | (frame["model_b"] == model)]
    scorer = reader_names(cache).get(reader, "a reader")
    sentence = f"Pairs of this model that {scorer} has scored, the closest first; choose one. n = {len(own)}."
    if own.empty:
        nothing = shell.empty("No pair of this model is in this split", "Choose another split above")
        return nothing, sentence
    name = figures.leading(own)
    own = own.assign(other=own["model_b"].where(own["model_a"] == model, own["model_a"]))
    own = own.sort_values(["related", name], ascending=[False, name == "distance"], kind="stable").head(COUNT_MISTAKEN)
    rows = []
    for pair in tables.rows(own):
        truth = figures.TRUTH_WORDS[bool(pair.related)]
        kind = html.Span(truth, className=f"kin-truth kin-{truth}")
        content = [shell.source_name(pair.other), kind, pieces.number(rate_text(getattr(pair, name)))]
        rows.append(html.Button(content, id={"type": "partner", "model": pair.other}, className="kin-partner"))
    return html.Div(rows, className="kin-partners"), sentence


def _tested_partners(cache: QueryCache, models: pd.DataFrame, left: str, right: str) -> pieces.GridView:
    """In place of a pair without scores: tested partners of its first model, relatives of the second one first."""
    tested = tested_with(cache, left)
    if tested.empty:
        remedy = "Clear the second model to see all pairs of the first one"
        return shell.empty("No split tested the first model", remedy), "A pair that was not tested."
    near = tested["parent"] == models["parent_family"][right]
    tested = tested.assign(near=near).sort_values(["near", "related", "model"], ascending=[False, False, True])
    partners = [
        html.Button(
            [shell.source_name(one.model), _truth(bool(one.related))],
            id={"type": "partner", "model": one.model}, className="kin-partner",
        )
        for one in tables.rows(tested)
    ]  # fmt: skip
    many = f" was tested with {pieces.counted(len(tested), 'model')}; choose one."
    return html.Div(partners, className="kin-partners"), [shell.source_name(left), many]


def mistaken_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Pairs of the shown reader, the most misleading first."""
    frame = shown_rows(cache, view)
    columns = ["model_a", "model_b", "truth", "parent_a", "parent_b", "dc", "ac", "match", "distance"]
    columns += ["decision", "passed_by", "silent"]
    if frame.empty:
        return pd.DataFrame(columns=columns)
    empty = silent_models(cache)
    silent = [
        " and ".join(word for word, model in (("first", first), ("second", second)) if model in empty) or None
        for first, second in tables.rows(frame, "model_a", "model_b")
    ]
    truth = frame["related"].map(figures.TRUTH_WORDS)
    frame = frame.assign(passed_by=figures.passed_by(frame), truth=truth, silent=pd.Series(silent, frame.index))
    frame = frame.sort_values("passed_by", ascending=False, kind="stable")
    return frame[columns].dropna(axis="columns", how="all").reset_index(drop=True)


@pieces.needs(mistaken_rows, pieces.no_grid(missing("score of a pair yet")))
def mistaken(cache: QueryCache, view: View, frame: pd.DataFrame) -> pieces.GridView:
    """The grid of the most misleading pairs."""
    columns = [
        tables.wrapped("model_a", "First model", 150, 1, cellClass="mono"),
        tables.wrapped("model_b", "Second model", 150, 1, cellClass="mono"),
        tables.words("truth", "Truth", 88),
        *[
            tables.number(name, title, "cosine", 76 if name == "distance" else 64)
            for name, title in (("dc", "DC"), ("ac", "AC"), ("match", "Match"), ("distance", "Distance"))
            if name in frame
        ],
        *([tables.number("decision", "Decision", "signed", 80)] if "decision" in frame else []),
        tables.number("passed_by", "Passed by", "percent", 86),
        *([tables.words("silent", "No answers", 96)] if "silent" in frame else []),
    ]
    reader = shown_reader(cache, view)
    parts = "DC: how alike the mean states are; AC: how alike the drift is. " if "ac" in frame else ""
    decided: list[Component | str] = [shell.term("Decision", DECISION_HELP), ": above 0 for related. "]
    sentence: shell.Children = [
        badge(cache, reader),
        f" {_right_words(frame)}Pairs of {reader_names(cache)[reader]}, sorted by Passed by: the most wrong first. ",
        shell.term("Passed by", PASSED_HELP),
        ": the share of unrelated pairs that look closer than a related one, and the reverse. ",
        *(decided if "decision" in frame else []),
        f"{parts}n = {len(frame)} pairs. Select a row to ask every reader.",
    ]
    return tables.grid("mistaken-grid", frame, columns, selectable=True), sentence


def _right_words(frame: pd.DataFrame) -> str:
    """On how many pairs decisions are right, and on how many whose models gave answers; '' where neither is known."""
    silent = frame.get("silent", pd.Series(None, frame.index, object)).notna()
    words = f"{pieces.counted(int(silent.sum()), 'pair')} in which a model gave no answers"
    if "decision" not in frame or frame["decision"].isna().any():
        return f"Last column: {words}. " if silent.any() else ""
    related = frame["truth"] == figures.TRUTH_WORDS[True]
    right = (frame["decision"] > 0) == related
    without = f"; without the {words} (last column), on {right[~silent].sum()} of {(~silent).sum()}"
    return (
        f"Mean decisions (the page's first number is the mean of the splits) are right on {right[related].sum()} "
        f"of {related.sum()} related and {right[~related].sum()} of {(~related).sum()} unrelated pairs"
        f"{without if silent.any() else ''}. "
    )


scores_builds = pieces.builds("relationship_features", lambda cache, view: {"reader": shown_reader(cache, view)})


def pair_builds(cache: QueryCache, view: View) -> tuple[str, dict[str, object]]:
    """Rows behind the chosen pair."""
    frame = pair_rows(cache, view)
    return "relationship_features", {"pair_id": frame["pair_id"].iloc[0] if len(frame) else ""}


# ---- readouts and tests ----------------------------------------------------------------------------------------------


def summaries(cache: QueryCache, view: View) -> pd.DataFrame:
    """Readouts of the figure under the chosen protocol and metric, one row a reader and readout.

    Of readouts outside :data:`READOUTS` every reader has its best, so that the best of all is drawn.
    """
    frame = cache.ask(store.relationship_summaries, view.protocol)
    frame = frame[frame["metric"] == view.measure]
    readers = cache.ask(store.relationship_readers).set_index("reader")
    method, reads = frame["reader"].map(readers["method"]), frame["reader"].map(readers["view"])
    aside = (frame["origin"] == "published") & (method == READER_PAPER) & (reads == "r")
    frame = frame[~aside | (frame["value"] == frame.groupby("origin")["value"].transform("max"))]
    others = frame[~frame["readout"].isin(list(READOUTS))]
    best_others = others.sort_values("value", ascending=False, kind="stable").drop_duplicates("reader")
    frame = frame.drop(index=others.index.difference(best_others.index))
    return frame.assign(row=[row_of(reader) for reader in frame["reader"]])


def best(cache: QueryCache, view: View, origin: str) -> pd.Series | None:
    """The row of the best readout of an origin under the chosen protocol and metric, drawn or not; None without one."""
    frame = cache.ask(store.relationship_summaries, view.protocol)
    rows = frame[(frame["metric"] == view.measure) & (frame["origin"] == origin)]
    return None if rows.empty else rows.nlargest(1, "value").iloc[0]


def usual(cache: QueryCache, view: View) -> pd.Series | None:
    """The row of the shown reader's usual readout under the chosen protocol and metric; None without one."""
    frame = cache.ask(store.relationship_summaries, view.protocol)
    own = (frame["reader"] == shown_reader(cache, view)) & frame["readout"].isin(figures.USUAL)
    rows = frame[own & (frame["metric"] == view.measure)]
    return None if rows.empty else rows.iloc[0]


def called(row: pd.Series, names: Mapping[str, str]) -> str:
    """A reader by name, with the readout where it is not the usual one: 'Tiny-1M by drift (first AC) alone'."""
    name, readout = names[row["reader"]], row["readout"]
    if readout in figures.USUAL:
        return name
    return f"{name} by {figures.readout_words(readout)}{' alone' if readout in figures.BLOCKS else ''}"


def _answer(cache: QueryCache, view: View) -> list[Component | str]:
    if summaries(cache, view).empty:
        return ["No reader has been measured yet on which of two models is derived from the other."]
    own = usual(cache, view)
    if own is None:
        return [f"The chosen reader has not been measured {NEW[view.protocol]}."]
    top, names = best(cache, view, "measured"), reader_names(cache)
    better = top is not None and top["value"] > own["value"]
    value, interval = _rate(view, own)
    verb = " of pairs of models are rightly read as related or not" if view.measure == "accuracy" else ""
    published = " (published)" if own["origin"] == "published" else ""
    guess = GUESSES.get(view.measure)
    guessed = f"; {guess.words} {_rate_text(view, guess.value)}" if guess else ""
    first: list[Component | str] = [
        html.Strong(value), html.Span(interval, className="spread"),
        f"{verb} {NEW[view.protocol]} by {names[own['reader']]}{published}{guessed}.",
    ]  # fmt: skip
    readout: Component | str = figures.readout_words(own["readout"])
    if own["readout"] == "dc-ac":
        readout = shell.term("mean and drift together", PARTS)
    return [*first, html.Span(["By ", readout, *_best_words(view, own, names, top, better)], className="answer-more")]


def _best_words(
    view: View, own: pd.Series, names: Mapping[str, str], top: pd.Series | None, better: bool
) -> list[Component | str]:
    """The end of a sentence on the shown readout, and a sentence on the best one measured here."""
    if top is None:
        return ["."]
    if not better:
        return [". No reader measured here does better."]
    # The first is what the shown reader reaches; the best was picked among many, and is no promise.
    value, interval = _rate(view, top)
    same = top["reader"] == own["reader"]
    name = called(top, {**names, own["reader"]: "the same reader"})
    if same and top["readout"] in figures.BLOCKS:
        name = f"its {figures.readout_words(top['readout']).partition(' (')[0]} alone"
    fixed = ", the usual readout, fixed in advance: the number to quote" if same else ""
    unsure = ", not clearly better than this one (the intervals overlap)," if top["low"] <= own["high"] else ""
    return [
        f"{fixed}. {name[:1].upper()}{name[1:]} reaches {value}{interval}: the highest measured here{unsure} and "
        "optimistic, as it was picked on these splits."
    ]


def _rate(view: View, row: pd.Series) -> tuple[str, str]:
    """A value of the chosen metric, and its interval or '', in words."""
    share = view.measure == "accuracy"
    ends = (f"{100 * row[n]:.1f}" if share else rate_text(row[n]) for n in ("low", "high"))
    interval = "" if pd.isna(row["low"]) else f" (95 % interval {' to '.join(ends)})"
    return f"{'' if share else MEASURES[view.measure] + ' '}{_rate_text(view, row['value'])}", interval


def _rate_text(view: View, value: float) -> str:
    return f"{100 * value:.1f}\u00a0%" if view.measure == "accuracy" else rate_text(value)


def _other_splits(cache: QueryCache, view: View) -> str:
    """What the readout of the page's first number reaches under the other splits, as a sentence; '' without any."""
    own, values = usual(cache, view), []
    if own is None:
        return ""
    for protocol in PROTOCOLS:
        rows = cache.ask(store.relationship_summaries, protocol)
        rows = rows[rows[["reader", "readout", "metric"]].eq(own[["reader", "readout", "metric"]]).all(axis=1)]
        if protocol != view.protocol and len(rows):
            values.append(f"{_rate(view, rows.iloc[0])[0]} {NEW[protocol]}")
    return f"The page's first number elsewhere: {', '.join(values)}. " if values else ""


def _protocol_sentence(cache: QueryCache, view: View) -> list[Component | str]:
    models = cache.ask(store.relationship_models)
    parents = {str(parent).rpartition("/")[2] for parent in models["parent_family"]}
    own = usual(cache, view)
    splits = "" if own is None else f" Means over {int(own['n'])} splits, in each of which half the pairs are related."
    return [
        f"{PROTOCOL_WORDS[view.protocol]}{splits} {len(models)} small models of ",
        shell.term(f"{len(parents)} families", f"By their parents: {', '.join(sorted(parents, key=str.casefold))}"),
        ", apart from the rosters of other pages; ",
        shell.term("related", "One was derived from the other, its parent, by further training; else parents differ"),
        " or not.",
    ]


def _lines(cache: QueryCache, frame: pd.DataFrame) -> dict[str, str]:
    """Names of the lines, best first; lines with something measured here come before published ones."""
    names = reader_names(cache)
    ordered = frame.sort_values(["origin", "value"], ascending=[True, False], kind="stable").drop_duplicates("row")
    by_row = {row_of(reader): name for reader, name in list(names.items())[::-1]}
    own = ordered["row"].map(by_row)
    # One that was measured here and published under another id has one name twice.
    twice = own.duplicated(keep=False) & ordered["origin"].eq("published")
    return dict(zip(ordered["row"], own.mask(twice, own + " · published"), strict=True))


@pieces.needs(summaries, lambda _, view: unmeasured(view, f"{_in_words(view.measure)} of relationships"))
def readouts(cache: QueryCache, view: View, frame: pd.DataFrame) -> FigureView:
    """Readers and their readouts under the chosen protocol and metric."""
    names = _lines(cache, frame)
    axis = f"{MEASURES[view.measure]}: {MEASURE_HELP[view.measure]}"
    figure = figures.readout_dots(frame, names, theme=view.theme, axis=axis, level=GUESSES.get(view.measure))
    caps = (
        "Thin bars with caps: one standard deviation over the splits, because the release holds no interval for these."
    )
    thin = f" {caps}" if frame["low"].isna().any() else ""
    crosses = "" if frame["readout"].isin(list(READOUTS)).all() else " Crosses: the best of a reader's other readouts."
    here = sorted(set(frame.loc[frame["origin"] == "measured", "row"]))
    several = frame.groupby("reader")["readout"].nunique().max() > 1
    picked = ", picked on these same splits and so optimistic" if several else ""
    known = reader_names(cache)
    tops = [(words, best(cache, view, origin)) for origin, words in (("measured", "measured here"), ("published",) * 2)]
    highest = "; ".join(
        f"{called(top, known)} reaches {rate_text(top['value'])}, the highest {words}"
        for words, top in tops
        if top is not None
    )
    sentence: shell.Children = [
        f"{MEASURES[view.measure]}: {highest}. Each reader decides by a ",
        shell.term("readout", READOUT_HELP),
        f" of its scores; marks are means over {int(frame['n'].max())} splits, thick bars 95 % bootstrap intervals."
        f"{thin}{crosses} Filled: measured here; hollow: published. Each line ends with its highest readout{picked}. "
        f"n = {len(names)} readers, {len(here)} of them measured here; the others published this number.",
    ]
    return FigureView(figure, sentence)


def _tests(cache: QueryCache, view: View) -> pd.DataFrame:
    frame = cache.ask(store.relationship_tests, _tested_protocol(view))
    return frame[frame["measure"] == _compared(view)]


def _tested_protocol(view: View) -> str:
    """The chosen holdout, or families where pairs are held out, which has no tests by design."""
    return "family" if view.protocol == "pair" else view.protocol


def _tested_words(view: View) -> str:
    return "The pair split has no tests; these are of families held out. " if view.protocol == "pair" else ""


def _compared(view: View) -> str:
    """The chosen metric, or accuracy where that one was not tested."""
    return view.measure if view.measure in COMPARED else "accuracy"


def _in_words(measure: str) -> str:
    """A metric inside a sentence: 'accuracy', 'F1', 'AUC'."""
    words = MEASURES[measure]
    return words if words.isupper() else words.lower()


def _contrast_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    frame = _tests(cache, view)
    own = frame[(frame["subject"] == frame["reference"]) & (frame["subject_readout"] == "dc-ac")]
    own = own[own["hypotheses"].str.contains("/components/") & own["reference_readout"].isin(["dc", "ac"])]
    return own.assign(row=own["subject"]).reset_index(drop=True)


@pieces.needs(_contrast_rows, missing("tested difference of the components yet"))
def _contrasts(cache: QueryCache, view: View, frame: pd.DataFrame) -> FigureView:
    names = reader_names(cache)
    lines = {row: names[row] for row in dict.fromkeys(frame.sort_values("difference", ascending=False)["row"])}
    measure = _in_words(_compared(view))
    figure = figures.contrast_dots(frame, lines, theme=view.theme, measure=measure)
    sentence: shell.Children = [
        f"{_halves_words(frame)}{_tested_words(view)}What the readout of ",
        shell.term("both components", "DC is the mean of the proxy's states over a response, first AC how they drift"),
        " gains over one of them alone, right of zero for a gain; bars are 95 % bootstrap intervals over the splits, p "
        "is ",
        shell.term("Holm-corrected", "Made larger to allow for the number of differences that were tested together"),
        f". n = {int(frame['n'].max())} splits; they share pairs, so a p value tells how sensitive a difference is to "
        "the split.",
    ]
    return FigureView(figure, sentence)


def _halves_words(frame: pd.DataFrame) -> str:
    """For how many readers each half of the fingerprint helps the other, or does harm, beyond luck."""
    clear = frame[frame["p_holm"] < 0.05]
    parts = []
    for half, other, rows in (("drift", "mean", "dc"), ("mean", "drift", "ac")):
        differences = clear.loc[clear["reference_readout"] == rows, "difference"]
        better, worse = int((differences > 0).sum()), int((differences < 0).sum())
        count = int((frame["reference_readout"] == rows).sum())
        parts.append(f"adding the {half} to the {other} helps {better} of {count} readers and harms {worse}")
    return f"{'; '.join(parts).capitalize()}, by more than luck (Holm p < .05). "


def _contrasts_height(cache: QueryCache, view: View) -> int:
    rows = _contrast_rows(cache, view)["row"].nunique()
    return dots.dots_height(rows) if rows else UNTESTED_HEIGHT


DIFFERENCE = ["subject", "subject_readout", "reference", "reference_readout", "measure"]
"""What makes two tests one difference, tested twice."""


def _tested_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    frame = _tests(cache, view)
    names = reader_names(cache)
    columns = ["subject_readout", "reference_readout", "measure", "difference", "low", "high", "p_value", "p_holm"]
    columns.append("origin")
    # A difference may stand in several sets of tests, and is one: the set that asks most of it counts.
    difference = frame.groupby(DIFFERENCE)["hypotheses"]
    frame = frame.assign(sets=difference.transform("nunique"))
    frame = frame.sort_values("p_holm", ascending=False, kind="stable").drop_duplicates(DIFFERENCE)
    rows = frame[[*columns, "sets"]].assign(
        subject=[names.get(reader, reader) for reader in frame["subject"]],
        reference=[names.get(reader, reader) for reader in frame["reference"]],
        corrected_with=frame["hypotheses"].str.extract(r"relationships/([^/]+)/", expand=False),
        splits=frame["n"],
    )
    order = ["subject", "subject_readout", "reference", *columns[1:-1], "corrected_with", "sets", "splits", "origin"]
    return rows[order].sort_values(["p_holm", "p_value"], kind="stable").reset_index(drop=True)


@pieces.needs(_tested_rows, pieces.no_grid(missing("paired test yet")))
def _tested(cache: QueryCache, view: View, frame: pd.DataFrame) -> pieces.GridView:
    rows = frame.assign(
        subject_words=[figures.readout_words(readout) for readout in frame["subject_readout"]],
        reference_words=[figures.readout_words(readout) for readout in frame["reference_readout"]],
        interval=[
            f"{plots.signed(low)} to {plots.signed(high)}"
            for low, high in zip(frame["low"], frame["high"], strict=True)
        ],
        p_words=[corrected_words(*p).lstrip("p= ") for p in tables.rows(frame, "p_value", "p_holm")],
    )
    columns = [
        tables.wrapped("subject", "Reader", 130, 1),
        tables.wrapped("subject_words", "Readout", 100),
        tables.wrapped("reference", "Against reader", 122, 1),
        tables.wrapped("reference_words", "Against readout", 116),
        tables.number("difference", "Difference", "signed", 84),
        tables.words("interval", "95 % interval", 118, floatingFilter=False),
        tables.number("p_holm", "Holm p", "p", 78, valueFormatter={"function": "params.data.p_words"}),
        tables.words("corrected_with", "Corrected with", 106),
        tables.words("origin", "Origin", 100),  # its last 16 pixels lie under the scrollbar
    ]
    real = int((frame["p_holm"] < 0.05).sum())
    sentence = (
        f"{real} of {len(frame)} differences are more than luck in every set of tests that they stand in (Holm "
        f"p < .05). {_tested_words(view)}Differences in {_in_words(_compared(view))}, paired by split, the least p "
        "first; p by sign flips, Holm-corrected within a set, over both strict protocols and three metrics. Of several "
        'sets the one with the largest p counts, in column "Corrected with". '
        f"n = {int(frame['splits'].max())} splits."
    )
    return tables.grid("tested-grid", rows, columns), sentence


def _rate_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Every readout of every reader under the protocol, its five metrics in a row."""
    frame = cache.ask(store.relationship_summaries, view.protocol)
    names = reader_names(cache)
    wide = frame.pivot(
        index=["reader", "origin", "readout", "n"], columns="metric", values=["value", "std", "low", "high"]
    )
    wide.columns = [metric if kind == "value" else f"{metric}_{kind}" for kind, metric in map(tuple, wide.columns)]
    order = [name for metric in MEASURES for name in (metric, *(f"{metric}_{kind}" for kind in ("std", "low", "high")))]
    wide = wide.reindex(columns=order).reset_index().rename(columns={"n": "splits"})
    wide.insert(0, "name", [names[reader] for reader in wide["reader"]])
    return wide.sort_values(view.measure, ascending=False, kind="stable").reset_index(drop=True)


@pieces.needs(_rate_rows, pieces.no_grid(missing("relationship measured yet")))
def _rates(cache: QueryCache, view: View, frame: pd.DataFrame) -> pieces.GridView:
    frame = frame.assign(words=[figures.readout_words(readout) for readout in frame["readout"]])
    chosen = _in_words(view.measure)
    measured = [
        tables.number(view.measure, MEASURES[view.measure], "rate", 84),
        tables.number(f"{view.measure}_std", "± Std", "rate", 66),
        tables.number(f"{view.measure}_low", "Low", "rate", 62),
        tables.number(f"{view.measure}_high", "High", "rate", 62),
    ]
    *others, last = (
        tables.number(measure, words, "rate", 84 if len(words) > 6 else 70)
        for measure, words in MEASURES.items()
        if measure != view.measure
    )
    columns = [
        tables.wrapped("name", "Reader", 150, 1),
        tables.wrapped("words", "Readout", 116, 1),
        *measured,
        tables.words("origin", "Origin", 96),
        *others,
        tables.at_scrollbar(last),
    ]
    top: Any = frame.iloc[0]
    sentence = (
        f"{top['name']} by {top['words']} ({top['origin']}) has the highest {chosen}, {rate_text(top[view.measure])}. "
        f"Every readout of every reader, mean over the splits; low and high are the 95 % interval of {chosen}. The CSV "
        f"has spread and interval of every metric. {_other_splits(cache, view)}n = {len(frame)} readouts."
    )
    return tables.grid("rates-grid", frame, columns), sentence


def _tests_key(cache: QueryCache, view: View) -> dict[str, object]:
    frame = cache.ask(store.relationship_tests, _tested_protocol(view))
    return {"method": frame["method"].iloc[0] if len(frame) else ""}


metrics_builds = pieces.builds("relationship_metrics", lambda _cache, view: {"protocol": view.protocol})
_SUMMARIES = pieces.without(
    lambda cache, view: (rows := summaries(cache, view)).assign(name=rows["reader"].map(reader_names(cache))),
    "build_id", "row",
)  # fmt: skip
OVER_SPLITS = {"std": "Std, splits", "n": "Splits"}
LESS = {
    "subject": "Reader", "subject_readout": "Readout", "reference": "Against reader",
    "reference_readout": "Against readout", "n": "Splits",
}  # fmt: skip
_CONTRASTS = pieces.without(_contrast_rows, "build_id", "row")
FIGURES = {
    "readouts": PageFigure(
        "Which reader tells related models from unrelated ones?", readouts,
        shell.FigureMeta(_SUMMARIES, metrics_builds, shown_reader, heads=OVER_SPLITS),
    ),
    "kinship": PageFigure(
        "How far apart do related and unrelated pairs lie?", _exemplified(kinship),
        shell.FigureMeta(shown_rows, scores_builds), 460,
    ),
    "verdicts": PageFigure(
        "How does every reader score one pair?", _exemplified(verdicts),
        shell.FigureMeta(_exemplified(pair_rows), _exemplified(pair_builds)), grid=True,
    ),
    "mistaken": PageFigure(
        "Which pairs mislead it most?", mistaken, shell.FigureMeta(mistaken_rows, scores_builds),
        400, grid=True,
    ),
    "contrasts": PageFigure(
        "Do both halves of the fingerprint help?", _contrasts,
        dataclasses.replace(pieces.meta(_CONTRASTS, "comparisons", _tests_key), heads=LESS),
        _contrasts_height,
    ),
    "tested": PageFigure(
        "Which differences are more than luck?", _tested, pieces.meta(_tested_rows, "comparisons", _tests_key),
        400, grid=True,
    ),
    "rates": PageFigure(
        "All numbers", _rates, shell.FigureMeta(_rate_rows, metrics_builds), 480, grid=True
    ),
}  # fmt: skip
PAGE = pieces.page("relationships", layout, register, FIGURES)
