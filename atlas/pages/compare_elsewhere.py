"""Other prompts and shorter responses on the page Compare: panels, one column a condition, and every reader."""

from __future__ import annotations

import numpy as np
import pandas as pd
from dash.development.base_component import Component

from atlas import drawing, shell, tables
from atlas.data import CONDITION_NAMES, DOMAIN_NAMES, QueryCache
from atlas.drawing import FigureView, traces
from atlas.figures import compare
from atlas.pages import intervals
from atlas.pages.compare_chosen import AXES, PATH, STORED, TESTED, chosen, everyone, lines
from atlas.state import METRICS, View
from backend.store import queries

SHORT = ("t64", "t32")
"""Lengths that the paper stresses with."""
WORDS = CONDITION_NAMES
GLOBAL = "-global"
"""Ending of conditions whose groups were drawn over all folds at once; the released files have no others."""
Where = tuple[str, str]


def asked_of(cache: QueryCache, view: View) -> dict[Where, str]:
    """Domains and lengths that readers are asked about, in words; an enrolled ecosystem has one domain."""
    domains = cache.domains()
    own = view.roster if view.roster in domains else "agent500"
    where = {(own, "clean"): f"{DOMAIN_NAMES.get(own, own)}, whole"}
    where |= {(own, condition): f"{condition.removeprefix('t')} tokens" for condition in SHORT}
    if own == "agent500" and "math100" in domains:
        where[("math100", "clean")] = "Math100"
    return where


def settled(frame: pd.DataFrame) -> pd.DataFrame:
    """One row a reader, domain, length, metric and budget, the one that published and measured readers share.

    Shortened responses: groups over all folds at once, else inside the folds. Math100: the mean over the five fold
    models, else their ensemble; everything else: folds pooled, else their mean.
    """
    wide = frame["condition"].str.endswith(GLOBAL)
    folds = frame["reduction"] == "fold"
    usual = np.where(frame["benchmark"] == "math100", folds, ~folds)
    out = frame.assign(
        groups=np.where(wide, "over all folds", "inside the folds"),
        condition=frame["condition"].str.removesuffix(GLOBAL),
        _wide=~wide,
        _usual=~usual.astype(bool),
    ).sort_values(["_wide", "_usual"], kind="stable")
    keys = ["reader", "benchmark", "condition", "metric", "k"]
    out = intervals.over_folds(out).drop_duplicates(keys).drop(columns=["_wide", "_usual"])
    return out.sort_index().reset_index(drop=True)


def kept(frame: pd.DataFrame, home: str) -> pd.Series:
    """Share of its own value on whole responses at home that every row keeps."""
    clean = frame[(frame["benchmark"] == home) & (frame["condition"] == "clean")]
    keys = ["reader", "metric", "k"]
    base = dict(zip(clean[keys].itertuples(index=False, name=None), clean["value"], strict=True))
    own = [base.get(key, np.nan) for key in frame[keys].itertuples(index=False, name=None)]
    return frame["value"] / pd.Series(own, index=frame.index, dtype=float)


def panel_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """The metric against the budget under every domain and length, of the chosen readers."""
    where = asked_of(cache, view)
    frame = settled(cache.ask(queries.summaries, chosen(cache, view), view.roster, (STORED[view.metric],)))
    held = [key in where for key in zip(frame["benchmark"], frame["condition"], strict=True)]
    return frame[held].drop(columns="build_id").reset_index(drop=True)


def panels(cache: QueryCache, view: View) -> FigureView:
    """Small multiples of the chosen readers' curves."""
    where, frame = asked_of(cache, view), panel_rows(cache, view)
    if frame.empty:
        return drawing.unmeasured(cache, view, f"{METRICS[view.metric].lower()} under any condition", PATH)
    figure = compare.curve_panels(
        frame, where, lines(cache, view), theme=view.theme, axis=AXES[view.metric], k=view.k, unit=view.metric != "nll"
    )
    short = frame[frame["condition"].isin(SHORT)]
    groups = " and ".join(sorted(set(short["groups"])))
    sentence = (
        f"{METRICS[view.metric]} of the readers above, one panel a domain and length, all on one scale; the probe was "
        f"trained on whole responses of {DOMAIN_NAMES.get(next(iter(where))[0], next(iter(where))[0])}. "
        + (f"Shortened responses were grouped {groups}. " if groups else "")
        + f"Bands: {intervals.FOLDS}, where there are some. n = {int(frame['n'].max()):,} groups at the smallest K."
    )
    return FigureView(figure, sentence)


def elsewhere_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """The metric at K under every domain and condition, and what share of the clean Agent500 value is kept."""
    stored = STORED[view.metric]
    frame = settled(cache.ask(queries.summaries, chosen(cache, view), view.roster, (stored,)))
    frame = frame[frame["k"] == view.k]
    home = next(iter(asked_of(cache, view)))[0]
    return frame.assign(kept=kept(frame, home)).drop(columns="build_id").reset_index(drop=True)


def _columns(frame: pd.DataFrame, cache: QueryCache) -> dict[Where, str]:
    domains = cache.domains()
    conditions = list(dict.fromkeys(name.removesuffix(GLOBAL) for name in cache.conditions()))
    held = set(zip(frame["benchmark"], frame["condition"], strict=True))
    order = [(domain, condition) for domain in domains for condition in conditions if (domain, condition) in held]
    return {
        (domain, condition): f"{DOMAIN_NAMES.get(domain, domain)}, " + _named(condition) for domain, condition in order
    }


def _named(condition: str) -> str:
    words = WORDS.get(condition, WORDS.get(f"{condition}{GLOBAL}", condition))
    return words.removeprefix("first ").removesuffix(", groups over all folds").removesuffix(" of that domain")


def elsewhere(cache: QueryCache, view: View) -> FigureView:
    """One column a domain and condition, one mark a chosen reader."""
    frame = elsewhere_rows(cache, view)
    if frame.empty:
        return drawing.unmeasured(cache, view, f"{METRICS[view.metric].lower()} at K = {view.k}", PATH)
    columns = _columns(frame, cache)
    figure = compare.condition_dots(frame, columns, lines(cache, view), theme=view.theme)
    figure.update_yaxes(title=AXES[view.metric], rangemode="tozero")
    if view.metric != "nll":
        top = float((frame["value"] + frame["std"].fillna(0.0)).max())
        figure.update_yaxes(range=[0, min(1.02, 1.12 * top)], tickformat=".1~f")
    home = next(iter(asked_of(cache, view)))[0]
    lost = [
        words
        for name, words in (("math100", "Math100"), ("t64", "64 tokens"), ("t32", "32 tokens"))
        if home == TESTED[0] and not any(part.startswith(name) for key in columns for part in key)
    ]
    missing = f" Not measured yet: {', '.join(lost)} (python -m jobs evaluate --stage stress)." if lost else ""
    left = frame[(frame["kept"].notna()) & (frame["kept"] < 1)]
    least = (
        f" The least that is kept of the clean value is {100 * left['kept'].min():.0f} %."
        if len(left) and view.metric in ("accuracy", "macro_f1")
        else ""
    )
    sentence = (
        f"{METRICS[view.metric]} at {traces(view.k)}, one column a domain and condition; the probe was trained on "
        f"whole responses of {DOMAIN_NAMES.get(home, home)}.{least}{missing} Bars: {intervals.FOLDS}, where there are "
        f"some. n = {len(frame)} numbers."
    )
    return FigureView(figure, sentence)


def every_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Every reader at K: accuracy under every domain and length, what is kept, and macro-F1, best first."""
    where = asked_of(cache, view)
    home = next(iter(where))[0]
    frame = settled(cache.ask(queries.summaries, everyone(cache), view.roster, ("accuracy", "macro_f1")))
    frame = frame[frame["k"] == view.k]
    frame = frame.assign(kept=kept(frame, home))
    parts = []
    for (benchmark, condition), words in where.items():
        here = frame[(frame["benchmark"] == benchmark) & (frame["condition"] == condition)]
        own = here[here["metric"] == "accuracy"].set_index("reader")
        name = words.lower().replace(", ", "_").replace(" ", "_")
        parts.append(own["value"].rename(f"accuracy_{name}"))
        if (benchmark, condition) == (home, "clean"):
            parts.append(own["std"].rename(f"std_{name}"))
            parts.append(here[here["metric"] == "macro_f1"].set_index("reader")["value"].rename("macro_f1"))
        else:
            parts.append(own["kept"].rename(f"kept_{name}"))
        if condition in SHORT:
            parts.append(own["groups"].rename(f"groups_{name}"))
    wide = pd.concat(parts, axis=1).rename_axis("reader").reset_index()
    readers = cache.ask(queries.readers).set_index("reader")
    wide = wide.join(readers[["method", "proxy_name", "view", "origin"]], on="reader")
    wide.insert(0, "name", [cache.reader_name(reader) for reader in wide["reader"]])
    lead = next((column for column in wide if column.startswith("accuracy_")), "name")
    return wide.sort_values(lead, ascending=False, na_position="last", kind="stable").reset_index(drop=True)


def every(cache: QueryCache, view: View) -> tuple[Component, shell.Children]:
    """The grid of all readers under all conditions."""
    frame = every_rows(cache, view)
    if frame.empty:
        return drawing.absent(drawing.unmeasured(cache, view, f"results at K = {view.k}", PATH))
    columns: list[tables.Column] = [tables.words("name", "Reader", 210, 1), tables.words("origin", "Origin", 92)]
    for words in asked_of(cache, view).values():
        name = words.lower().replace(", ", "_").replace(" ", "_")
        if f"kept_{name}" in frame:
            pair = [
                tables.number(f"accuracy_{name}", "Accuracy", "rate", 76, filter=False),
                tables.number(f"kept_{name}", "Kept", "rate", 62, filter=False),
            ]
            columns.append({"headerName": words, "children": pair})
        else:
            pair = [
                tables.number(f"accuracy_{name}", "Accuracy", "rate", 76, filter=False),
                tables.number("macro_f1", "M-F1", "rate", 66, filter=False),
            ]
            columns.append({"headerName": words, "children": pair})
    sentence: list[Component | str] = [
        f"Every reader at {traces(view.k)} among the sources of {view.roster}. ",
        shell.term(
            "Kept",
            "Accuracy there divided by the same reader's accuracy on whole responses of its own domain; the paper "
            "calls it the retained share",
        ),
        " is the share of the first column that is left. Shortened responses are grouped over all folds where that is "
        "stored, because the released files have no other groups; Math100 is the mean of the five fold models. Select "
        f"a row to set it beside the others. n = {len(frame)} readers.",
    ]
    return tables.grid("every-grid", frame, columns, selectable=True), sentence
