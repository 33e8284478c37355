"""Readers side by side on the page Compare: who is chosen, their curves, their end points and the paired tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from dash import html
from dash.development.base_component import Component

from atlas import drawing, shell
from atlas.data import CONDITION_NAMES, DOMAIN_NAMES, METHOD_NAMES, QueryCache
from atlas.drawing import FigureView, traces
from atlas.figures import attribution
from atlas.figures.attribution import Line, rate_text
from atlas.figures.plots import p_text, signed
from atlas.pages import intervals
from atlas.state import METRICS, View
from atlas.theme import READER_COLOURS
from backend.protocol import READER_PAPER
from backend.store import queries

PATH = "/compare"
AXES = {"accuracy": "Accuracy", "macro_f1": "Macro-F1", "nll": "NLL of the mean evidence (nats)", "ece": "ECE"}
STORED = {"accuracy": "accuracy", "macro_f1": "macro_f1", "nll": "nll_mean", "ece": "ece_mean"}
FUSED = "fused"
TESTED = ("agent500", "clean")
"""Where readers are tested in pairs: domain and condition."""
FIRST = 4
"""Readers that stand side by side before anybody chose some."""


def everyone(cache: QueryCache) -> list[str]:
    """Every reader of the generation."""
    return list(cache.ask(queries.readers)["reader"])


def accuracies(
    cache: QueryCache, readers: Sequence[str], roster: str, benchmark: str, condition: str, k: int
) -> pd.DataFrame:
    """Accuracy of readers at a budget with what is known of its spread, one row a reader.

    Returns columns reader, origin, reduction (pooled where there is one), value, std (over the folds), low, high
        (a 95 % interval, NaN where none is stored), n.
    """
    metrics = ("accuracy", "accuracy_low", "accuracy_high")
    frame = intervals.over_folds(cache.ask(queries.summaries, readers, roster, metrics))
    here = (frame["benchmark"] == benchmark) & (frame["condition"] == condition) & (frame["k"] == k)
    frame = frame[here].sort_values("reduction", key=lambda names: names != "pooled", kind="stable")
    frame = frame.drop_duplicates(["reader", "metric"])
    ends = dict(zip(zip(frame["reader"], frame["metric"], strict=True), frame["value"], strict=True))
    own = frame[frame["metric"] == "accuracy"][["reader", "origin", "reduction", "value", "std", "n"]]
    bounds = {
        end: [ends.get((reader, f"accuracy_{end}"), np.nan) for reader in own["reader"]] for end in ("low", "high")
    }
    return own.assign(**bounds).reset_index(drop=True)


def chosen(cache: QueryCache, view: View) -> list[str]:
    """Readers side by side: those of the link, else the header's, the fused readout and the best of the paper's."""
    if view.readers:
        return list(view.readers)
    first = cache.attribution_reader(view) or view.reader
    frame = measured(cache, view)
    top = frame[frame["k"] == frame["k"].max()].sort_values("value", ascending=False, kind="stable")
    readers = cache.ask(queries.readers).set_index("reader")
    alike = [
        reader
        for reader in dict.fromkeys(top["reader"])
        if reader != first
        and readers.at[reader, "method"] == READER_PAPER
        and (first not in readers.index or readers.at[reader, "view"] == readers.at[first, "view"])
    ]
    # The fused readout is what this atlas adds, so it stands beside the paper's from the start.
    ours = [
        reader for reader in dict.fromkeys(top["reader"]) if readers.at[reader, "method"] == FUSED and reader != first
    ]
    return [*([first] if first else []), *ours[:1], *alike][:FIRST]


def measured(cache: QueryCache, view: View) -> pd.DataFrame:
    """Accuracy of every reader in the roster and domain of the view, one row a reader and budget."""
    frame = cache.ask(queries.summaries, everyone(cache), view.roster)
    here = (frame["benchmark"] == view.domain) & (frame["condition"] == view.condition)
    return frame[here & (frame["metric"] == "accuracy") & (frame["reduction"] == "pooled")]


def names_of(cache: QueryCache, readers: Sequence[str]) -> dict[str, str]:
    """Names beside lines: the proxy of READER, and of other methods, where one of a kind is there, the method alone."""
    names = cache.short_names(readers)
    methods = [str(cache.reader_row(reader)["method"]) for reader in readers]
    for reader, method in zip(readers, methods, strict=True):
        if method != READER_PAPER and method in METHOD_NAMES and methods.count(method) == 1:
            names[reader] = METHOD_NAMES[method]
    return names


def lines(cache: QueryCache, view: View) -> list[Line]:
    """One line a chosen reader; the reference is drawn last, on top."""
    colours = READER_COLOURS[view.theme]
    names = names_of(cache, chosen(cache, view))
    return [Line(reader, names[reader], colour) for reader, colour in zip(names, colours, strict=False)][::-1]


def key_of(cache: QueryCache, view: View) -> list[Component]:
    """The chosen readers with their colours and origins."""
    return [
        html.Span(
            [
                html.Span(className="swatch", style={"background": line.colour}, **{"aria-hidden": "true"}),
                html.Span(cache.reader_name(line.key), className="reader-name"),
                shell.origin_badge(cache.origin(line.key)),
            ],
            className="marked",
        )
        for line in lines(cache, view)[::-1]
    ]


def answer(cache: QueryCache, view: View) -> list[Component | str]:
    """Which of the chosen readers is best at K, in a sentence."""
    readers = chosen(cache, view)
    frame = measured(cache, view)
    here = frame[(frame["k"] == view.k) & frame["reader"].isin(readers)].set_index("reader")["value"]
    under = "" if view.condition == "clean" else f" ({CONDITION_NAMES.get(view.condition, view.condition)})"
    if not len(here):
        return [f"None of these readers has been measured for {drawing.choice_words(view)}{under}."]
    names = names_of(cache, readers)
    best = str(here.idxmax())
    told: list[Component | str] = [
        f"With {traces(view.k)}, ",
        html.Strong(names[best]),
        f" names {100 * here[best]:.1f}\N{NO-BREAK SPACE}% of the groups{under}",
    ]
    if readers[0] in here.index and best != readers[0]:
        told.append(f", the reference {names[readers[0]]} {100 * here[readers[0]]:.1f}\N{NO-BREAK SPACE}%")
    return [*told, "."]


def curves(cache: QueryCache, view: View) -> FigureView:
    """The chosen metric against the budget."""
    drawn = lines(cache, view)
    readers = [line.key for line in drawn]
    frame = intervals.curves(cache, view, readers, STORED[view.metric], view.reduction, view.condition)
    if frame.empty:
        what = f"{METRICS[view.metric].lower()} ({CONDITION_NAMES.get(view.condition, view.condition)})"
        return drawing.unmeasured(cache, view, what, PATH)
    size = len(cache.ask(queries.sources, view.roster))
    chance = {"accuracy": 1 / max(size, 1), "nll": float(np.log(max(size, 1)))}.get(view.metric)
    figure = attribution.budget_curves(
        frame.assign(line=frame["reader"]),
        drawn,
        theme=view.theme,
        axis=AXES[view.metric],
        k=view.k,
        chance=chance,
        unit=view.metric != "nll",
    )
    how = "folds pooled, mean over the seeds" if view.reduction == "pooled" else "mean over the folds"
    missing = len(drawn) - frame["reader"].nunique()
    absent = f" {missing} of the readers {'has' if missing == 1 else 'have'} no such curve." if missing else ""
    away = " Dashed and hollow: published, not measured here." if (frame["origin"] == "published").any() else ""
    sentence = (
        f"{METRICS[view.metric]} on {DOMAIN_NAMES.get(view.domain, view.domain)}, "
        f"{CONDITION_NAMES.get(view.condition, view.condition)}; {how}{intervals.told(frame)}. "
        f"n = {int(frame['n'].max()):,} groups a seed at the smallest K.{away}{absent}"
    )
    return FigureView(figure, sentence)


def curve_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Rows of the curves."""
    frame = cache.ask(queries.summaries, chosen(cache, view), view.roster, (STORED[view.metric],))
    here = (frame["benchmark"] == view.domain) & (frame["condition"] == view.condition)
    return frame[here & (frame["reduction"] == view.reduction)].reset_index(drop=True)


def end_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """End points: smallest and largest budget, by fold where there is such a summary, and tests against the first."""
    readers = chosen(cache, view)
    frame = cache.ask(queries.summaries, readers, view.roster)
    frame = frame[(frame["benchmark"] == view.domain) & (frame["condition"] == view.condition)]
    order = {"fold": 0, "pooled": 1}
    frame = frame.assign(preferred=frame["reduction"].map(order)).sort_values("preferred", kind="stable")
    frame = frame.drop_duplicates(["reader", "metric", "k"])
    budgets = sorted({int(frame["k"].min()), int(frame["k"].max())}) if len(frame) else []
    rows = []
    tests = cache.ask(queries.paired_tests, readers[0] if readers else "", readers, view.roster)
    tests = tests if (view.domain, view.condition) == TESTED else tests.iloc[:0]
    tests = tests.drop_duplicates(["reader", "measure"]).set_index(["reader", "measure"])
    for reader in readers:
        for metric in ("accuracy", "macro_f1"):
            for k in budgets:
                part = frame[(frame["metric"] == metric) & (frame["k"] == k)].set_index("reader")
                if reader not in part.index:
                    continue
                own = part.loc[reader]
                difference = own["value"] - part.at[readers[0], "value"] if readers[0] in part.index else np.nan
                test = tests.loc[(reader, f"{metric}@{k}")] if (reader, f"{metric}@{k}") in tests.index else None
                rows.append(
                    {
                        "reader": reader,
                        "name": cache.reader_name(reader),
                        "origin": own["origin"],
                        "metric": metric,
                        "k": k,
                        "value": own["value"],
                        "std": own["std"],
                        "reduction": own["reduction"],
                        "difference": np.nan if reader == readers[0] else difference,
                        "low": np.nan if test is None else test["low"],
                        "high": np.nan if test is None else test["high"],
                        "p_value": np.nan if test is None else test["p_value"],
                        "p_holm": np.nan if test is None else test["p_holm"],
                        "together": 0 if test is None else int(test["together"]),
                        "n": int(own["n"]),
                    }
                )
    columns = ["reader", "name", "origin", "metric", "k", "value", "std", "reduction", "difference", "low", "high"]
    return pd.DataFrame(rows, columns=[*columns, "p_value", "p_holm", "together", "n"])


def ends(cache: QueryCache, view: View) -> tuple[Component, shell.Children]:
    """The table of the end points."""
    frame = end_rows(cache, view)
    if frame.empty:
        return drawing.absent(drawing.unmeasured(cache, view, "end points", PATH))
    pairs = list(dict.fromkeys(zip(frame["metric"], frame["k"], strict=True)))
    colours = {line.key: line.colour for line in lines(cache, view)}
    names = names_of(cache, chosen(cache, view))
    body = []
    for reader, rows in frame.groupby("reader", sort=False):
        cells: list[Component] = [
            html.Th(
                html.Span(
                    [
                        html.Span(
                            className="swatch",
                            style={"background": colours.get(str(reader))},
                            **{"aria-hidden": "true"},
                        ),
                        html.Span(names[str(reader)], className="reader-name", title=rows["name"].iloc[0]),
                        shell.origin_badge(rows["origin"].iloc[0]),
                    ],
                    className="marked",
                ),
                scope="row",
            )
        ]
        held = {(row["metric"], row["k"]): row for row in rows.to_dict("records")}
        for pair in pairs:
            row = held.get(pair)
            cells.append(html.Td("–" if row is None else _value(row)))
            if pair[0] == "accuracy":
                cells.append(html.Td("" if row is None else _difference(row)))
        body.append(html.Tr(cells))
    heads: list[Component] = [html.Th("Reader", scope="col")]
    for metric, k in pairs:
        heads.append(html.Th(f"{METRICS[metric]}, K = {k}", scope="col"))
        if metric == "accuracy":
            heads.append(html.Th("less the first", scope="col"))
    tested = frame[frame["p_holm"].notna()]
    if (view.domain, view.condition) != TESTED:
        text = "Differences are tested in pairs on whole responses of Agent500 alone; none of these has been tested."
    elif len(tested):
        text = (
            f"{len(tested)} {'difference was' if len(tested) == 1 else 'differences were'} tested in pairs (clusters "
            f"of fold and source, sign flips); p is Holm-corrected, made larger {corrected(tested['together'])}."
        )
    else:
        text = (
            "No difference between these has been tested: python -m jobs evaluate --stage statistics tests readers "
            "that were measured here, and published ones come without the answers that a test in pairs needs."
        )
    folds = (
        "mean ± standard deviation over the folds where there is one" if (frame["reduction"] == "fold").any() else ""
    )
    sentence = (
        f"{drawing.choice_words(view)}, {CONDITION_NAMES.get(view.condition, view.condition)}; "
        f"{folds or 'folds pooled'}. {text} n = {frame['reader'].nunique()} readers."
    )
    table = html.Table([html.Thead(html.Tr(heads)), html.Tbody(body)], className="small wide")
    return html.Div(table, className="scroll-x"), sentence


def corrected(together: pd.Series) -> str:
    """For how many comparisons p values were corrected, in words, out of the sizes of their sets."""
    sizes = " or ".join(str(size) for size in sorted(set(together)))
    return f"for the {sizes} comparisons of its set; intervals are not"


def first(cache: QueryCache, view: View) -> str:
    """The reference."""
    return (chosen(cache, view) or [""])[0]


def _value(row: dict[str, Any]) -> list[Component | str]:
    value = "1" if row["value"] >= 1 else rate_text(row["value"])
    return [value] if pd.isna(row["std"]) else [value, html.Span(f" ± {rate_text(row['std'])}", className="soft")]


def _difference(row: dict[str, Any]) -> list[Component | str]:
    if pd.isna(row["difference"]):
        return ["–"]
    told: list[Component | str] = [signed(row["difference"])]
    if pd.notna(row["low"]) and pd.notna(row["high"]):
        told += [html.Br(), html.Span(f"[{rate_text(row['low'])}, {rate_text(row['high'])}]", className="soft")]
    if pd.notna(row["p_holm"]):
        raw = f"p {p_text(row['p_value'])} before the correction"
        told.append(html.Span(f" p {p_text(row['p_holm'])}", className="soft", title=raw))
    return told
