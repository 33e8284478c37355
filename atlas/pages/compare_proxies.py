"""What it takes to read well, on the page Compare: capability of the proxy, its size, and what an answer costs."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from dash.development.base_component import Component

from atlas import drawing, shell, tables
from atlas.data import QueryCache
from atlas.drawing import FigureView, traces
from atlas.figures import proxies
from atlas.figures.attribution import rate_text
from atlas.figures.neighbourhoods import p_text
from atlas.pages.compare_chosen import accuracies, everyone
from atlas.state import View
from backend.methods.registry import FUSED_LIVE, LDA_LIVE, STATES, group_of
from backend.protocol import READER_PAPER
from backend.store import comparison_queries, queries

COST = "python -m jobs evaluate --stage cost"
MEASURES = (
    "trainable_parameters",
    "fit_seconds",
    "selection_seconds",
    "audit_parameters",
    "latency_ms",
    "peak_memory_gb",
)
READS = "ur"
PARTS = frozenset(STATES) - {READER_PAPER, LDA_LIVE, FUSED_LIVE}
"""Methods that change the form or the part that READER's probe reads: they cost what it costs."""


def _readers(cache: QueryCache) -> list[str]:
    readers = cache.ask(queries.readers)
    return list(readers.loc[(readers["method"] == READER_PAPER) & (readers["view"] == READS), "reader"])


def capability_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Capability of every proxy beside the accuracy of READER with it."""
    return cache.ask(comparison_queries.capability, _readers(cache), view.roster, view.k)


def correlation_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Correlations at K (columns subject, reference, statistic, value, p_value, n)."""
    frame = cache.ask(comparison_queries.correlations)
    return frame[frame["reference"] == f"accuracy@{view.k}/{READS}"]


def capability(cache: QueryCache, view: View) -> FigureView:
    """Do more capable proxies read better?"""
    frame = capability_rows(cache, view)
    if frame.empty:
        return drawing.nothing(
            view,
            f"There is no proxy with a capability score and an accuracy for {view.roster} at K = {view.k}",
            "Choose the roster 100-way and a published budget, or measure it with: python -m jobs evaluate --stage "
            "statistics",
        )
    told = {}
    for benchmark, rows in correlation_rows(cache, view).groupby("subject"):
        by = rows.set_index("statistic")
        told[str(benchmark)] = ",  ".join(
            f"{sign} = {rate_text(by.at[name, 'value'])} (p {p_text(by.at[name, 'p_value'])})"
            for name, sign in (("pearson", "r"), ("spearman", "ρ"))
            if name in by.index
        )
    figure = proxies.capability_fit(frame.assign(name=frame["proxy_name"]), told, theme=view.theme, k=view.k)
    sentence = [
        "General capability of each proxy as others scored it, against its accuracy here; the dashed line is the least-"
        "squares fit, ",
        shell.term("r", "Pearson's correlation: how close the marks lie to a straight line"),
        " and ",
        shell.term("ρ", "Spearman's correlation: how far the two orders agree"),
        f" with p, uncorrected. n = {frame['proxy'].nunique()} proxies, a small number: the correlation says that "
        "there is a trend, not how strong it is. The embedded proxy has no published score.",
    ]
    return FigureView(figure, sentence)


def cost_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """What every reader costs, one row a reader and machine, beside its accuracy at K."""
    held = cache.ask(comparison_queries.costs, view.roster)
    keys = ["reader", "origin", "method", "hardware"]
    wide = held.pivot_table(index=keys, columns="measure", values="value", sort=False).reset_index()
    wide = wide.reindex(columns=[*keys, *MEASURES])
    own = accuracies(cache, everyone(cache), view.roster, "agent500", "clean", view.k).set_index("reader")["value"]
    wide["accuracy"] = wide["reader"].map(own)
    # Parameters do not depend on the machine, and stand in one of the rows of a reader only.
    for name in ("trainable_parameters", "audit_parameters"):
        wide[name] = wide[name].fillna(wide.groupby("reader")[name].transform("max"))
    wide.insert(
        0,
        "name",
        [cache.reader_name(reader) if reader in set(everyone(cache)) else reader for reader in wide["reader"]],
    )
    return wide.rename_axis(None, axis=1)


def cost(cache: QueryCache, view: View) -> FigureView:
    """Accuracy against the parameters that an audit runs through."""
    frame = cost_rows(cache, view)
    frame = frame.dropna(subset=["audit_parameters", "accuracy"]).drop_duplicates("reader")
    frame = frame[frame["audit_parameters"] > 0]  # who guesses runs nothing, and has no place on a log scale
    frame = frame[~frame["method"].isin(PARTS)]
    if frame.empty:
        return drawing.nothing(
            view, f"Nobody has measured what a reader costs for {view.roster}", f"Measure it with: {COST}"
        )
    names = cache.short_names(list(frame["reader"]))
    frame = frame.sort_values("method", key=lambda methods: methods != READER_PAPER, kind="stable")
    readers = [cache.reader_row(reader) for reader in frame["reader"]]
    drawn = frame.assign(
        name=[names[row["reader"]] for row in readers],
        label=[_label(row, names) for row in readers],
        kind=[group_of(method) for method in frame["method"]],
        cost=frame["audit_parameters"],
        value=frame["accuracy"],
        told=[f"{count / 1e6:,.0f} million parameters are run a response" for count in frame["audit_parameters"]],
    )
    axis = "Parameters that are run through for a response, log scale"
    figure = proxies.cost_scatter(drawn, theme=view.theme, axis=axis, k=view.k)
    here = int((frame["origin"] == "measured").sum())
    mine = "" if here else f" No reader has been measured here yet: {COST}."
    sentence = (
        f"Accuracy at {traces(view.k)} against the size of what is run: the embedding of the text and the blocks up "
        "to the one that is read; deeper blocks are never run. Times depend on the machine and are in the table below, "
        "with what parts and forms of READER cost. Filled: measured here; hollow: published. "
        f"n = {len(frame)} readers, {here} of them measured here.{mine}"
    )
    return FigureView(figure, sentence)


def _label(row: pd.Series, names: Mapping[str, str]) -> str:
    """A reader beside its mark: the proxy of READER, method and proxy of others, its name where it has no proxy."""
    if not isinstance(row["proxy_name"], str):
        return names[str(row["reader"])]
    usual = (row["method"], row["view"]) == (READER_PAPER, READS)
    return str(row["proxy_name"]) if usual else f"{row['method']} · {row['proxy_name']}"


def costs(cache: QueryCache, view: View) -> tuple[Component, shell.Children]:
    """The grid of what readers cost."""
    frame = cost_rows(cache, view)
    if frame.empty:
        return drawing.absent(
            drawing.nothing(
                view, f"Nobody has measured what a reader costs for {view.roster}", f"Measure it with: {COST}"
            )
        )
    columns = [
        tables.wrapped("name", "Reader", 186),
        tables.words("origin", "Origin", 92),
        tables.number("accuracy", "Accuracy", "rate", 84),
        tables.number("trainable_parameters", "Trained", "count", 104),
        tables.number("audit_parameters", "Run a response", "count", 122),
        tables.number("fit_seconds", "Fit, s", "number", 74),
        tables.number("latency_ms", "Latency, ms", "number", 94),
        tables.number("peak_memory_gb", "Memory, GB", "number", 94),
        tables.wrapped("hardware", "Machine", 108),
    ]
    machines = frame["hardware"].nunique()
    sentence = (
        "Parameters that are trained and that are run for a response, seconds to fit one fold, milliseconds a response "
        "(median of three warmed runs) and peak memory. Times of different machines cannot be compared: "
        f"{machines} machine{'s' if machines > 1 else ''} here. n = {frame['reader'].nunique()} readers."
    )
    return tables.grid("costs-grid", frame, columns), sentence
