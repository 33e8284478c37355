"""Tables of what an audit's evidence is worth: unlabelled traffic, a reference, several sources, a watch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
from dash import html
from dash.development.base_component import Component

from atlas import shell
from atlas.data import DOMAIN_NAMES, QueryCache
from atlas.figures import tables
from backend.store import Cursor, page_queries

TABLE = "audit_validation"
TRAFFIC = {**DOMAIN_NAMES, "category": "a category left out"}
STREAMS = {
    "resampled": "nothing; answers may repeat",
    "parted": "nothing; every answer once",
    "mixture": "30 % other family",
    "sibling": "a sibling",
    "family": "another family",
}
CHANGES = {
    STREAMS["mixture"]: "another family answers 30 % of them",
    STREAMS["sibling"]: "a sibling answers",
    STREAMS["family"]: "another family answers",
}
"""Changes of a watched endpoint, as a sentence about its traces says them."""


@dataclass(frozen=True)
class Table:
    """A table of rows that were measured once for all readers; absent until then."""

    question: str
    sentence: str
    rows: Callable[[Cursor], pd.DataFrame]
    columns: Sequence[tuple[str, str, str]]  # field, title, kind of number; '' for words
    keys: Sequence[Mapping[str, object]]  # of the rows, in the store
    words: Mapping[str, Mapping[str, str]]  # of a column's values
    result: Callable[[pd.DataFrame], str]  # what the rows come to, in a sentence
    who: str = "Reader"  # title of the first column


K = 20
"""Traces of which results tell, where that many were measured."""


def _percent(share: float) -> str:
    """A share in whole per cent; in tenths of one where it is small or nearly all."""
    digits = 0 if 0.1 <= share <= 0.99 or share == 1 else 1
    text = f"{100 * share:.{digits}f}".removesuffix(".0")
    return f"{text} %" if pd.notna(share) else "an unknown share"


def _at_k(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of the first reader at K, else at the most traces that it was measured with."""
    own: pd.DataFrame = frame[frame["reader"] == frame["reader"].iloc[0]]
    return own[own["k"] == (K if K in set(own["k"]) else own["k"].max())]


def _pools_result(frame: pd.DataFrame) -> str:
    frame = _at_k(frame)
    change = (frame["right_pool"] - frame["right"]).abs()
    row = next(tables.rows(frame.loc[change.sort_values(ascending=False).index]))
    tested = frame.dropna(subset="rejected").sort_values("rejected").drop_duplicates("rejected")
    ends = tables.rows(tested.iloc[:: max(len(tested) - 1, 1)], "rejected", "traffic")
    without = " to ".join(f"{_percent(share)} ({traffic})" for share, traffic in ends)
    return (
        f"Sources of roster {row.roster}, enrolled on other prompts, with {row.k} traces. Added traffic changes how "
        f"often a model is named, most on {row.traffic}, where {row.reader} names {_percent(row.right_pool)} right "
        f"instead of {_percent(row.right)}. It does not tell whether a model is enrolled: with it at least "
        f"{_percent(frame['rejected_pool'].min())} of the enrolled ones fail the unknown-source test; without it "
        f"{without or 'an unknown share'} do. So Attribute never says UNKNOWN where traffic was added."
    )


def _references_result(frame: pd.DataFrame) -> str:
    at_k = _at_k(frame)
    row = next(tables.rows(at_k))
    false = f", and raises {_percent(row.same)} false alarms" if pd.notna(row.same) else ""
    rest = at_k[at_k["roster"].eq(row.roster) & at_k["asked_twice"].ne(row.asked_twice)]
    others = [
        f" Of answers {other.asked_twice}: {_percent(other.sibling)} and {_percent(other.family)}."
        for other in tables.rows(rest)
    ]
    return (
        f"With {row.k} prompts, the test on fingerprints of {row.reader} tells {_percent(row.sibling)} of siblings and "
        f"{_percent(row.family)} of other families from the genuine model{false} (answers: {row.asked_twice}; "
        f"n = {row.n:,} pairs of each kind).{''.join(others)}"
    )


def _mixture_result(frame: pd.DataFrame) -> str:
    row = next(tables.rows(_at_k(frame)))
    found = f"finds a second source in 80 % of cases once it wrote {_percent(row.detectable)} of them"
    found += " (any other source of the roster, drawn at random; mean over sources, while Attribute states each one's)"
    if pd.isna(row.detectable):
        found = "finds no share of a second source that was tested in 80 % of cases"
    false = f"{_percent(row.false_alarms)} of unmixed ones raise a false alarm"
    return f"With {row.k} traces, {row.reader} {found}; {false}."


def _streams_result(frame: pd.DataFrame) -> str:
    own = frame[(frame["reader"] == frame["reader"].iloc[0]) & (frame["level"] == frame["level"].min())]
    soon = own.dropna(subset="delay").groupby(own["delay"].round())["scenario"].agg(list)
    seen = [
        f"{'after ' * (not at)}{delay:.0f}{' traces' * (not at)} where {' or '.join(CHANGES[one] for one in changes)}"
        for at, (delay, changes) in enumerate(soon.items())
    ]
    false = own.loc[own["delay"].isna(), "alarms"].max()
    return (
        f"Half of the watches by {own['reader'].iloc[0]} have seen a change {', '.join(seen)}. "
        f"Where nothing changes, at most {_percent(false)} raise a false alarm, of "
        f"{_percent(own['level'].iloc[0])} that are allowed."
    )


TABLES = {
    "pools": Table(
        "What does unlabelled traffic of the same kind change?",
        "Models that are enrolled on other prompts, without and (pool) with unlabelled answers that balance the "
        "scores. Right: share that is named right. Stated: probability that is stated of it. Rejected: share of "
        "enrolled models that fail the unknown-source test.",
        page_queries.pools,
        (
            ("traffic", "Asked about", ""),
            ("k", "Traces", "count"),
            *(("right", "Right", "rate"), ("right_pool", "Right (pool)", "rate")),
            *(("stated", "Stated", "rate"), ("stated_pool", "Stated (pool)", "rate")),
            *(("rejected", "Rejected", "rate"), ("rejected_pool", "Rejected (pool)", "rate")),
            ("n", "Answers", "count"),
        ),
        ({"part": "transfer", "statistic": "background"},),
        {"traffic": TRAFFIC},
        _pools_result,
    ),
    "references": Table(
        "Is it like the genuine model?",
        "Alarms of the paired test at 5 %, of answers to the same prompts: against the same source, where every alarm "
        "is false (of the release there is one draw, and so no such pair), a sibling, and another family. It compares "
        "fingerprints of a proxy, whichever reader judges.",
        page_queries.references,
        (
            ("asked_twice", "Answers", ""),
            ("k", "Prompts", "count"),
            ("same", "Same", "rate"),
            *(("sibling", "Sibling", "rate"), ("family", "Family", "rate")),
            ("n", "Pairs", "count"),
        ),
        ({"part": "repeated"}, {"part": "drift", "statistic": "energy-paired", "space": "fingerprints"}),
        {"asked_twice": {"True": "our own, asked twice", "False": "of the release"}},
        _references_result,
        "Proxy",
    ),
    "mixture": Table(
        "Does one endpoint serve several models?",
        "On simulated mixtures of held-out traces: how often the 95 % interval of a share holds it (of the claimed, "
        'the leading, another source), false alarms of "all from one source" at 5 %, and the smallest share from '
        "elsewhere, or from a sibling, found in 80 % of them (without a number, not even half).",
        page_queries.mixtures,
        (
            ("k", "Traces", "count"),
            *(("claimed", "Claimed", "rate"), ("leading", "Leading", "rate")),
            *(("other", "Other", "rate"), ("false_alarms", "Alarms", "rate")),
            *(("detectable", "Found", "rate"), ("detectable_sibling", "Found (sibling)", "rate")),
            ("mixtures", "Mixtures", "count"),
        ),
        ({"part": "mixture"},),
        {},
        _mixture_result,
    ),
    "streams": Table(
        "How soon does a watch see a change?",
        "Watches over streams of held-out answers. Allowed: the share that may raise a false alarm. Alarms: the share "
        "that raised one (1 is all of them); where nothing changes, every alarm is false. Elsewhere the source changes "
        "after 200 traces. Half in, 90 % in: so many traces later half, and nine of ten, of them had raised it.",
        page_queries.streams,
        (
            ("scenario", "What changes", ""),
            ("k", "Traces", "count"),
            *(("level", "Allowed", "rate"), ("alarms", "Alarms", "rate")),
            *(("delay", "Half in", "count"), ("delay90", "90 % in", "count")),
            ("n", "Streams", "count"),
        ),
        ({"part": "drift", "statistic": "e-process"},),
        {"scenario": STREAMS},
        _streams_result,
    ),
}


def rows(cache: QueryCache, table: Table) -> pd.DataFrame:
    """Rows of a table, with readers and values in words."""
    frame = cache.ask(table.rows)
    said = {
        column: frame[column].astype(str).map(lambda value, words=words: words.get(value, value))
        for column, words in table.words.items()
    }
    known = [cache.reader_name(reader) if cache.knows(reader) else reader for reader in frame["reader"]]
    return frame.assign(reader=known, **said)


def sections(cache: QueryCache, shown: Mapping[str, Table] = TABLES, folded: bool = False) -> list[Component]:
    """Tables that were measured, by the names of their figures, each with its builds; folded : under their results."""
    frames = {name: rows(cache, table) for name, table in shown.items()}
    return [_section(name, shown[name], frame, folded) for name, frame in frames.items() if len(frame)]


def _section(name: str, table: Table, frame: pd.DataFrame, folded: bool) -> Component:
    columns = [tables.wrapped("reader", table.who, 150, 1), tables.words("roster", "Roster", 78)]
    for field, title, kind in table.columns:
        width = 72 if kind else 7 * int(frame[field].str.len().max()) + 24
        head = {"wrapHeaderText": True}
        columns.append(tables.number(field, title, kind, width, **head) if kind else tables.words(field, title, width))
    columns[-1] = tables.at_scrollbar(columns[-1])
    grid = tables.grid(f"{name}-grid", frame, columns, headerHeight=44)
    sentence: list[Component | str] = [html.Span(table.result(frame), className="result")]
    more = {"folded": table.sentence} if folded else {}
    sentence += [] if folded else [" ", table.sentence]
    return section(name, table.question, grid, sentence, len(frame), builds=True, **more)


def section(
    name: str, question: str, content: Component, sentence: shell.Children, rows: int | None, builds: bool = False,
    folded: str = "",
) -> Component:  # fmt: skip
    """A figure without a drawing, whose rows are the builds themselves or lead to files; folded : what it holds."""
    body = html.Div(
        id={"type": "body", "figure": name},
        className="figure-body",
        style={} if rows is None else {"height": tables.height(rows, 480)},
        children=[html.Div(content, className="figure-drawing")],
    )
    return shell.framed(
        name,
        [html.H2(question, id=f"title-{name}"), *([shell.origin_badge("measured")] if builds else [])],
        shell.tools(name, picture=False, table_view=False, builds=builds),
        html.P(sentence, id={"type": "sentence", "figure": name}, className="sentence"),
        _folded(f"Table of {rows} rows", html.P(folded, className="sentence"), body) if folded else body,
    )


def _folded(words: str, *content: Component) -> Component:
    return html.Details([html.Summary(words), *content], className="folded")


def figures(shown: Mapping[str, Table]) -> dict[str, shell.FigureMeta]:
    """What tables offer as figures of a page, by their names, which no other page has."""
    return {name: _figure(table) for name, table in shown.items()}


def _figure(table: Table) -> shell.FigureMeta:
    first, *more = [(TABLE, dict(key)) for key in table.keys]
    return shell.FigureMeta(
        lambda cache, _view: rows(cache, table),
        lambda _cache, _view: first,
        also=lambda _cache, _view: next(iter(more), None),
    )
