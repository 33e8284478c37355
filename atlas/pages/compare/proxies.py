"""Proxies on the page Compare: what is read of a response, and what capability, size and cost have to do with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
from dash import html
from dash.development.base_component import Component

from atlas import drawing, shell
from atlas.data import METHOD_NAMES, USUALLY_READ, VIEW_NAMES, QueryCache
from atlas.drawing import FigureView, traces
from atlas.figures import compare, dots, plots, tables
from atlas.figures.dots import Level, Series
from atlas.figures.plots import rate_text
from atlas.pages import pieces
from atlas.pages.compare.readers import (
    PATH,
    accuracies,
    chosen,
    everyone,
    home,
    lines,
    names_of,
    origin_column,
    percent,
    points,
    row_names,
    tested_words,
    with_short_names,
)
from atlas.state import View
from atlas.theme import Plot
from backend.inference.drift import p_words
from backend.methods.registry import FUSED_LIVE, LDA_LIVE, STATES, WORDS, group_of, of_part
from backend.protocol import READER_PAPER
from backend.store import page_queries, queries

PARTS: Mapping[str, Series] = {
    READER_PAPER: Series("both (DC–AC)", "circle", 1, 0),
    "reader-ac": Series("drift (first AC)", "diamond", 0, 1),
    "reader-dc": Series("mean (DC)", "square", -1, 2),
}
BLOCKS: Mapping[str, Series] = {"dc-ac": PARTS[READER_PAPER], "ac": PARTS["reader-ac"], "dc": PARTS["reader-dc"]}
VIEWS: Mapping[str, Series] = {
    "ur": Series("prompt and response", "circle", 1, 0),
    "r": Series("response alone", "diamond", -1, 1),
}
FORMS = tuple(sorted(of_part("temporal"), key=lambda method: method.startswith("dct-")))
"""Forms over time in the order of the paper's table."""
FORM_NAMES = {**METHOD_NAMES, "dct-q2": "DC–AC (2 DCT modes)"}
COST = "python -m jobs evaluate --stage cost"
MEASURES = (
    *("trainable_parameters", "fit_seconds", "selection_seconds", "audit_parameters", "latency_ms"),
    "peak_memory_gb",
)
READS = "ur"
CUT = "The axis does not begin at 0"
TIMED = "median of three warmed runs"
COUNTED = "Word n-grams of every length are counted by the live reader's code, which is faster than the baselines'. "
PRICES: Mapping[str, Callable[[float], str]] = {
    "latency_ms": lambda value: f"in {value:.{1 if value < 0.1 else 3}g} ms a response",
    "audit_parameters": lambda value: f"with {_many(value)} parameters",
}
"""What a response costs, in words."""
PRICED = {"latency_ms": "time", "audit_parameters": "size"}
SAME_COST = frozenset(STATES) - {READER_PAPER, LDA_LIVE, FUSED_LIVE}
"""Methods that change the form or the part that READER's probe reads: they cost what it costs."""


def _many(number: float) -> str:
    """A number of parameters in words."""
    return f"{number / 1e6:,.0f} million" if number < 1e9 else f"{number / 1e9:,.0f} billion"


# ---- what is read of a response -------------------------------------------------------------------------------------


def _at_k(cache: QueryCache, view: View, methods: Sequence[str]) -> pd.DataFrame:
    """Clean accuracy at K of the readers of some methods, with method, proxy and view."""
    readers = cache.ask(queries.readers)
    readers = readers[readers["method"].isin(list(methods)) & readers["proxy"].notna()]
    frame = accuracies(cache, list(readers["reader"]), view.roster, home(cache, view), "clean", view.k)
    return frame.merge(readers[["reader", "method", "proxy", "proxy_name", "view"]], on="reader")


def _by_proxy(frame: pd.DataFrame, series: str) -> pd.DataFrame:
    """Rows of proxies that have more than one of a series, with the row and name of their line."""
    frame = frame.assign(series=frame[series], row=frame["proxy"], name=frame["proxy_name"])
    return frame[frame.groupby("row")["series"].transform("nunique") > 1].reset_index(drop=True)


def _names(frame: pd.DataFrame, lead: Sequence[str]) -> dict[str, str]:
    """Rows of a figure with the names of their proxies: measured here first, then by the leading series."""
    rank = {name: place for place, name in enumerate(lead)}
    ordered = frame.assign(
        away=frame["origin"] == "published", rank=frame["series"].map(rank).fillna(len(rank)), down=-frame["value"]
    ).sort_values(["away", "rank", "down"], kind="stable")
    return row_names(ordered)


def _accuracy_dots(
    frame: pd.DataFrame, names: Mapping[str, str], series: Mapping[str, Series], view: View, *sentence: Component | str
) -> FigureView:
    axis = f"Accuracy at {traces(view.k)}"
    figure = dots.dot_rows(frame, names, series, theme=view.theme, axis=axis, usual=list(series), unit="groups")
    cut = f" {CUT}." if figure["layout"]["xaxis"]["range"][0] > 0 else ""
    return FigureView(figure, [*sentence, f" {_bars_words(frame)}{cut}"])


def _missing(what: str, options: str) -> pieces.Draw:
    """What stands in place of a figure: the options that measure it, and the roster that has most."""

    def absent(cache: QueryCache, view: View) -> FigureView:
        problem = f"There are no numbers of {what} for {view.roster}"
        command = f"python -m jobs evaluate {options} --roster {view.roster}"
        return drawing.nothing(view, problem, f"Measure it with: {command}", _fuller_roster(cache, view))

    return absent


def _fuller_roster(cache: QueryCache, view: View) -> list[tuple[str, str]]:
    """A way to the roster that has most numbers, unless it is shown."""
    near = dataclasses.replace(view, roster="100-way")
    offered = view != near and near.roster in set(cache.ask(queries.rosters)["roster"])
    return [("Show the 100-way roster", f"{PATH}?{near.query()}")] if offered else []


def part_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Accuracy of the mean, the drift and both, by proxy; prompt and response are read."""
    frame = _at_k(cache, view, list(PARTS))
    return _by_proxy(frame[frame["view"] == "ur"], "method")


def read_answer(cache: QueryCache, view: View) -> list[Component | str]:
    """What the mean, the drift and both reach, best first, or what the prompt brings.

    Of the header's proxy, else of the best one that was measured here.
    """
    rows, series = (view_rows, VIEWS) if view.figure == "views" else (part_rows, PARTS)
    if (frame := rows(cache, view)).empty:
        return _not_measured(view)
    frame = frame.sort_values("value", ascending=False, kind="stable")
    chosen_one = frame["proxy"] == cache.reader_row(view.reader)["proxy"]
    # 'measured' comes before 'published'
    frame = frame[chosen_one if chosen_one.any() else frame["origin"] == frame["origin"].min()]
    best = frame[frame["row"] == frame["row"].iloc[0]]
    top, *others = tables.rows(best)
    tests = cache.ask(queries.paired_tests, top.reader, [other.reader for other in others], view.roster)
    tests = tests[tests["measure"] == f"accuracy@{view.k}"].drop_duplicates("reader").set_index("reader")
    rest = ""
    for other in others:
        test: Any = tests.loc[other.reader] if other.reader in tests.index else None
        rest += f", {percent(other.value)} from {series[other.series].words}"
        if test is None:
            rest += " (not tested)"
        elif len(others) == 1:
            less = points(top.value, other.value)
            rest += f": {less} less ({tested_words(-test['high'], -test['low'], test['p_holm'])})"
        elif test["p_holm"] >= 0.05:
            rest += f" ({p_words(test['p_holm'])} after correction: may be luck)"
    size = pieces.roster_size(cache, view)
    lead = f"With {traces(view.k)}, {top.name} names the right one of {size} sources "
    mean = _mean_words(part_rows(cache, view)) if series is PARTS else ""
    end = f"; {pieces.against_chance(size, 0)}{mean}"
    origin = " (published)" if top.origin == "published" else ""
    return [
        lead, html.Strong(percent(top.value)), f" of the time{origin} from {series[top.series].words}{rest}{end}"
    ]  # fmt: skip


def _mean_words(frame: pd.DataFrame) -> str:
    """In how many published proxies the mean alone is better than both, and by how much, in a sentence."""
    published = frame[frame["origin"] == "published"].pivot(index="proxy", columns="series", values="value")
    both, mean = (published.reindex(columns=list(PARTS))[name] for name in (READER_PAPER, "reader-dc"))
    more = (mean - both).dropna()
    if more.empty:
        return ""
    ahead = 100 * more[more > 0]
    by = f", by {ahead.min():.1f} to {ahead.max():.1f} points" if len(ahead) else ""
    return f" The mean alone is better than both in {len(ahead)} of {len(more)} published proxies{by} (not tested)."


@pieces.needs(part_rows, _missing("parts of a fingerprint", "--stage controls --method components"))
def parts(cache: QueryCache, view: View, frame: pd.DataFrame) -> FigureView:
    """What the two halves of a fingerprint bring."""
    sentence: list[Component | str] = [
        "The mean of the proxy's states over a response (",
        shell.term("DC", "Mode 0 of a cosine transform over the response: the mean state"),
        "), how they drift from its start to its end (",
        shell.term("first AC", "Mode 1 of a cosine transform over the response: its smoothest change"),
        "), and both, each with a probe of its own.",
    ]
    return _accuracy_dots(frame, _names(frame, list(PARTS)), PARTS, view, *sentence)


def view_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Accuracy with and without the prompt, by proxy."""
    frame = _at_k(cache, view, [READER_PAPER])
    return _by_proxy(frame[frame["view"].isin(list(VIEWS))], "view")


@pieces.needs(view_rows, _missing("reader that was measured with and without the prompt", "--view ur,r"))
def views(cache: QueryCache, view: View, frame: pd.DataFrame) -> FigureView:
    """Does it matter whether the proxy sees the prompt?"""
    sentence = "The same proxy with the prompt before the response, and without it."
    return _accuracy_dots(frame, _names(frame, list(VIEWS)), VIEWS, view, sentence)


def form_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Accuracy of the eleven forms over time: proxies measured here, and the mean of the published ones."""
    frame = _at_k(cache, view, FORMS)
    frame = frame[frame["view"].eq("ur")]
    here = frame[frame["origin"] == "measured"]
    here = here.assign(series=here["proxy"], proxies=1)
    away = frame[frame["origin"] == "published"]
    means = away.groupby("method", sort=False).agg(
        value=("value", "mean"), n=("n", "sum"), proxies=("proxy", "nunique"), least=("value", "min"),
        most=("value", "max"),
    )  # fmt: skip
    published = means.reset_index().assign(series="published", origin="published", proxy_name="published")
    out = pd.concat([here, published], ignore_index=True)
    out = out.assign(row=out["method"], name=[FORM_NAMES.get(method, method) for method in out["method"]])
    return out.sort_values("row", key=lambda rows: rows.map({name: at for at, name in enumerate(FORMS)}), kind="stable")


# The means are over several proxies.
forms_builds = pieces.accuracy_builds(lambda cache, view: _at_k(cache, view, FORMS)["reader"])


def forms_answer(cache: QueryCache, view: View) -> list[Component | str]:
    """The best and the worst form of the proxy that reads best, measured here before published."""
    frame = form_rows(cache, view)
    if frame.empty:
        return _not_measured(view)
    frame = frame[frame["origin"] == frame["origin"].min()].sort_values("value", ascending=False, kind="stable")
    own = frame[frame["series"] == frame["series"].iloc[0]]
    best, worst = tables.rows(own.iloc[[0, -1]])
    lead = f"With {traces(view.k)}, {best.name} keeps most of {len(own)} summaries of {best.proxy_name}: "
    return [lead, html.Strong(percent(best.value)), f" right; {worst.name} least: {percent(worst.value)} (not tested)."]


@pieces.needs(form_rows, _missing("forms over time", "--stage controls --method temporal"))
def forms(cache: QueryCache, view: View, frame: pd.DataFrame) -> FigureView:
    """Forms over time."""
    proxies = dict(zip(frame["series"], frame["proxy_name"], strict=True))
    here = [proxy for proxy in dict.fromkeys(frame["series"]) if proxy != "published"]
    series = {
        proxy: Series(str(proxies[proxy]), "circle", 1 - 2 * place / max(len(here), 1), 2 * place % 6)
        for place, proxy in enumerate(here)
    }
    published = frame.loc[frame["series"] == "published", "proxies"]
    if len(published):
        series["published"] = Series(f"mean of {int(published.max())} larger proxies", "square", -1, 2)
    sentence: list[Component | str] = [
        "What is kept of the states of a response, all else alike: a mean, the last token, a ",
        shell.term("maximum", "Of every coordinate over the tokens of the response"),
        ", two to eight modes of a ",
        shell.term("cosine transform", "DCT-II along the response: mode 0 is the mean, mode 1 its smoothest change"),
        ", or a learned mixture of them.",
    ]
    return _accuracy_dots(frame, row_names(frame), series, view, *sentence)


def variance_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Source-to-prompt variance by reader and block."""
    frame = cache.ask(page_queries.variance_ratios, view.roster)
    names = [
        f"{name} + prompt" if reads == "ur" else str(name)
        for name, reads in zip(frame["proxy_name"], frame["view"], strict=True)
    ]
    return frame.assign(series=frame["block"], row=frame["reader"], name=names, value=frame["ratio"])


def variance_answer(cache: QueryCache, view: View) -> list[Component | str]:
    """How much the source counts next to the prompt in the first reader, and in how many it counts for more."""
    whole = variance_rows(cache, view)
    frame = whole[whole["series"] == "dc-ac"].sort_values(["origin", "value"], ascending=[True, False], kind="stable")
    if frame.empty:
        return _not_measured(view)
    drift = int((whole.loc[whole["series"] == "ac", "value"] > 1).sum())
    own = frame[frame["proxy_name"].eq(frame["proxy_name"].iloc[0])]
    ways = {"r": "the response alone", "ur": "the prompt too"}
    said: list[Component | str] = [f"The source changes a fingerprint of {own['proxy_name'].iloc[0]} "]
    for i, row in enumerate(tables.rows(own)):
        than = "" if i else " as much as the prompt does"
        said += [
            ", " * bool(i),
            html.Strong(f"{rate_text(row.value)} times"),
            f"{than} where it reads {ways[row.view]}",
        ]
    counts = f"{int((frame['value'] > 1).sum())} of {plots.count(len(frame), 'reader')}"
    return [*said, f" (variance). It counts for more in {counts}, in {drift} where only the drift is read."]


@pieces.needs(variance_rows, _missing("variance", "--stage controls --method variance --view ur,r"))
def variance(cache: QueryCache, view: View, frame: pd.DataFrame) -> FigureView:
    """Do fingerprints vary with the source or with the prompt?"""
    figure = dots.dot_rows(
        frame.assign(low=float("nan"), high=float("nan")), _names(frame, list(BLOCKS)), BLOCKS, theme=view.theme,
        axis="Variance between sources, as a multiple of the variance between prompts", usual=list(BLOCKS),
        level=Level(1.0, "as much as prompts"), top=None, unit="folds",
    )  # fmt: skip
    sentence = (
        "How much a fingerprint changes with the source that answers, against how much it changes with the prompt, on "
        "held-out prompts; the proxy read the response alone or, where it says so, the prompt too. Bars: one standard "
        f"deviation over the folds. Right of the dotted line the source counts for more. {_marks_words(frame)} "
        f"n = {frame['row'].nunique()} readers, {int(frame['n'].max())} folds each."
    )
    return FigureView(figure, sentence)


def depth_frames(cache: QueryCache, view: View) -> tuple[dict[str, pd.DataFrame], dict[str, int]]:
    """Accuracy of every block of the chosen readers' proxies, and the block that most folds chose."""
    depth = cache.ask(queries.proxies).set_index("proxy")["depth"]
    found, modal = {}, {}
    for reader in chosen(cache, view):
        curve = cache.ask(queries.layer_curve, reader, view.roster)
        if curve.empty:
            continue
        blocks = depth.get(cache.reader_row(reader)["proxy"])
        whole = float(blocks) if blocks is not None and pd.notna(blocks) else float(curve["layer"].max())
        found[reader] = curve.assign(depth=curve["layer"] / whole)
        selected = cache.ask(queries.selected_layers, reader, view.roster)
        for layer in selected.loc[selected["outer_fold"].isna(), "layer"]:
            modal[reader] = int(layer)
    return found, modal


def depths_answer(cache: QueryCache, view: View) -> list[Component | str]:
    """The layer that most folds chose for the first reader with a scan, and how it does next to the last one."""
    found, modal = depth_frames(cache, view)
    reader = next((reader for reader in found if reader in modal), "")
    if not reader:
        return _not_measured(view)
    curve = found[reader].sort_values("layer").set_index("layer")
    rates = [percent(curve["accuracy"].get(layer, float("nan"))) for layer in (modal[reader], curve.index[-1])]
    selected = cache.ask(queries.selected_layers, reader, view.roster).dropna(subset="outer_fold")
    alike = int((selected["layer"] == modal[reader]).sum())
    folds = f"All {alike} folds" if alike == len(selected) > 0 else f"{alike} of {len(selected)} folds"
    inner = "inner validation folds" + " of Agent500" * (view.domain != "agent500")
    return [
        f"{folds} read {names_of(cache, list(found))[reader]} at ", html.Strong(f"layer {modal[reader]}"),
        f", which names {rates[0]} right with one trace on {inner}; the last layer {rates[1]}.",
    ]  # fmt: skip


def _not_measured(view: View) -> list[Component | str]:
    return [f"This has not been measured for {view.roster}."]


def depths(cache: QueryCache, view: View) -> FigureView:
    """Where in the proxy the knowledge sits."""
    found, modal = depth_frames(cache, view)
    if not found:
        return drawing.unmeasured(cache, view, "layer curves", PATH)
    drawn = lines(cache, view)
    fits = int(sum(curve["fits"].sum() for curve in found.values()))
    missing = [line.label for line in drawn if line.key not in found]
    absent = f" Readers of words or of several layers have no scan: {', '.join(missing)}."
    sentence = (
        "Accuracy on the inner validation folds by layer; ring: the layer that most outer folds chose, band: their "
        f"range. {CUT}. n = {fits:,} fits.{absent if missing else ''}"
    )
    one = len({cache.reader_row(reader)["proxy"] for reader in found}) == 1
    return FigureView(compare.layer_curves(found, modal, drawn, theme=view.theme, one=one), sentence)


def depth_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Rows of the layer curves."""
    found, _ = depth_frames(cache, view)
    columns = ["reader", "layer", "depth", "accuracy", "std", "low", "high", "fits"]
    curves = [curve.assign(reader=reader) for reader, curve in found.items()]
    return pd.concat(curves, ignore_index=True)[columns] if curves else pd.DataFrame(columns=columns)


def _marks_words(frame: pd.DataFrame) -> str:
    hollow = frame["origin"].eq("published").any()
    return "Filled: measured here; hollow: published." if hollow else "All measured here."


def _bars_words(frame: pd.DataFrame) -> str:
    """What the bars and marks of a figure are, of those that are there."""
    ranged = frame["low"].notna()
    spread = frame["std"].notna() & ~ranged
    kinds = [words for words, there in ((f"{pieces.INTERVAL}s", ranged), (pieces.FOLDS, spread)) if there.any()]
    bars = f"{'Thick bars' if len(kinds) > 1 else 'Bars'}: {', thin ones '.join(kinds)}. " if kinds else ""
    counts = frame.groupby("origin")["n"].agg(["min", "max"]).astype(int).sort_index()
    ranges = {origin: " to ".join(dict.fromkeys(f"{n:,}" for n in row)) for origin, *row in counts.itertuples()}
    here, theirs = ranges.get("measured"), ranges.get("published")
    n = f"{here} here, {theirs} published" if here and theirs and here != theirs else here or theirs
    return f"{bars}{_marks_words(frame)} n = {n} groups."


# ---- what it takes --------------------------------------------------------------------------------------------------


def capability_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Capability of every proxy, and the accuracy of READER with it."""
    readers = cache.ask(queries.readers)
    own = readers.loc[(readers["method"] == READER_PAPER) & (readers["view"] == READS), "reader"]
    return cache.ask(page_queries.capability, list(own), view.roster, view.k)


correlations_builds = pieces.builds("correlations", lambda _cache, view: {"reference": f"accuracy@{view.k}/{READS}"})


def _no_capability(cache: QueryCache, view: View) -> FigureView:
    return drawing.nothing(
        view,
        f"There is no proxy with a capability score and an accuracy for {view.roster} at K = {view.k}",
        "Choose the roster 100-way and a published budget, or measure it with: python -m jobs evaluate --stage "
        "statistics",
        _fuller_roster(cache, view),
    )


def _correlations(cache: QueryCache, view: View) -> pd.DataFrame:
    """Correlations of capability and accuracy at K."""
    frame = cache.ask(page_queries.correlations)
    return frame[frame["reference"] == f"accuracy@{view.k}/{READS}"]


def capability_answer(cache: QueryCache, view: View) -> list[Component | str]:
    """Whether more capable proxies read better, by every benchmark."""
    frame = _correlations(cache, view)
    frame = frame[frame["statistic"] == "pearson"]
    if frame.empty or capability_rows(cache, view).empty:
        return _not_measured(view)
    parts: list[Component | str] = []
    for row in tables.rows(frame):
        luck = ": may be luck" if row.p_value >= 0.05 else ""
        parts += [" and " if parts else "", html.Strong(f"r = {rate_text(row.value)}")]
        parts.append(f" with {row.subject} ({p_words(row.p_value)}{luck})")
    better = "" if (frame["value"] > 0).all() else "do not always "
    lead = f"With {traces(view.k)}, more capable proxies {better}read better: "
    return [lead, *parts, f", over {int(frame['n'].max())} proxies."]


@pieces.needs(capability_rows, _no_capability)
def capability(cache: QueryCache, view: View, frame: pd.DataFrame) -> FigureView:
    """Do more capable proxies read better?"""
    texts = {}
    for benchmark, rows in _correlations(cache, view).groupby("subject"):
        by: Any = rows.set_index("statistic")
        texts[str(benchmark)] = ",  ".join(
            f"{sign} = {rate_text(by.at[name, 'value'])} ({p_words(by.at[name, 'p_value'])})"
            for name, sign in (("pearson", "r"), ("spearman", "ρ"))
            if name in by.index
        )
    figure = compare.capability_fit(frame.assign(name=frame["proxy_name"]), texts, theme=view.theme, k=view.k)
    sentence: shell.Children = [
        "General capability of each proxy as others scored it, against READER's accuracy with it. Hollow: "
        "published, as all are; dashed: least-squares fit, ",
        shell.term("r", "Pearson's correlation: how close the marks lie to a straight line"),
        " and ",
        shell.term("ρ", "Spearman's correlation: how far the two orders agree"),
        f" with p, uncorrected. n = {frame['proxy'].nunique()} proxies, a small number: the correlation says that "
        "there is a trend, not how strong it is. The embedded proxy has no published score.",
    ]
    return FigureView(figure, sentence)


def cost_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """What every reader costs, one row a reader and machine, and its accuracy at K."""
    stored = cache.ask(page_queries.costs, view.roster)
    keys = ["reader", "origin", "method", "hardware"]
    wide = stored.pivot_table(index=keys, columns="measure", values="value", sort=False).reset_index()
    wide = wide.reindex(columns=[*keys, *MEASURES])
    known = everyone(cache)
    own = accuracies(cache, known, view.roster, "agent500", "clean", view.k).set_index("reader")["value"]
    wide["accuracy"] = wide["reader"].map(own)
    # Parameters do not depend on the machine, and stand in one of the rows of a reader only.
    for name in ("trainable_parameters", "audit_parameters"):
        wide[name] = wide[name].fillna(wide.groupby("reader")[name].transform("max"))
    names = [cache.reader_name(reader) if reader in set(known) else reader for reader in wide["reader"]]
    wide.insert(0, "name", names)
    return wide.rename_axis(None, axis=1)


def _unpriced(_cache: QueryCache, view: View) -> FigureView:
    return drawing.nothing(
        view, f"Nobody has measured what a reader costs for {view.roster}", f"Measure it with: {COST}"
    )


def sized_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Readers with an accuracy and the parameters that are run, those that differ from READER's alone."""
    frame = cost_rows(cache, view).dropna(subset=["audit_parameters", "accuracy"]).drop_duplicates("reader")
    frame = frame[frame["audit_parameters"] > 0]  # who guesses runs nothing, and has no place on a log scale
    return frame[~frame["method"].isin(SAME_COST)].reset_index(drop=True)


def timed_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Readers with an accuracy and the time of a response on the machine that timed most of them here."""
    frame = cost_rows(cache, view).dropna(subset=["latency_ms", "accuracy"])
    frame = frame[(frame["origin"] == "measured") & ~frame["method"].isin(SAME_COST)]
    frame = frame[frame["audit_parameters"] != 0]  # who guesses reads nothing
    return frame[frame["hardware"].isin(frame["hardware"].mode().head(1))].reset_index(drop=True)


def cost_answer(cache: QueryCache, view: View) -> list[Component | str]:
    """What the most accurate and the fastest, or smallest, reader that was measured here take."""
    frame, price, cheapest = timed_rows(cache, view), "latency_ms", "fastest"
    if frame.empty or view.figure == "cost":
        frame, price, cheapest = sized_rows(cache, view), "audit_parameters", "smallest"
    if view.figure == "costs":  # its rows are published ones too, timed on machines of their own
        priced = cost_rows(cache, view).dropna(subset=[price, "accuracy"])
        frame = pd.concat([frame, priced[priced["origin"] == "published"]], ignore_index=True)
    if frame.empty:
        return [f"What a reader costs has not been measured for {view.roster}."]
    here = frame["origin"] == frame["origin"].min()  # 'measured' comes before 'published'
    others, frame = frame[~here], frame[here]

    def words(row: Any) -> str:
        return f"{percent(row['accuracy'])} right {PRICES[price](row[price])}"

    best: Any = frame.loc[frame["accuracy"].idxmax()]
    least: Any = frame.loc[frame[price].idxmin()]
    names = names_of(cache, list(frame["reader"]))
    lead = html.Strong(names[best["reader"]])
    origin = "measured here" if best["origin"] == "measured" else "published"
    among = f"best of the {len(frame):,} readers" if len(frame) > 1 else "the only reader"
    known = f"{among} {origin} whose {PRICED[price]} is known"
    answer: list[Component | str] = [f"With {traces(view.k)}, ", lead, f" is {known}: {words(best)}"]
    if best["reader"] != least["reader"]:
        name = html.Span(names[least["reader"]], className="reader-name")
        answer += [f"; the {cheapest}, ", name, f": {words(least)}"]
    for _, top in others[others["accuracy"] > best["accuracy"]].nlargest(1, "accuracy").iterrows():
        name = html.Span(cache.reader_name(str(top["reader"])).removesuffix(USUALLY_READ), className="reader-name")
        machine = f" on {top['hardware']}" if price == "latency_ms" else ""
        answer += ["; published: ", name, f", {words(top)}{machine}"]
    return [*answer, ".", _best_unpriced(cache, view, best["accuracy"], PRICED[price])]


def _best_unpriced(cache: QueryCache, view: View, accuracy: float, price: str) -> str:
    """That a reader measured here is better than all whose cost is known, as a sentence; '' without one."""
    frame = accuracies(cache, everyone(cache), view.roster, "agent500", "clean", view.k)
    frame = frame[(frame["origin"] == "measured") & (frame["value"] > accuracy)]
    if frame.empty:
        return ""
    best = frame.nlargest(1, "value")
    name = cache.reader_name(str(best["reader"].iloc[0])).partition(" · ")[0]
    return f" The {price} of {name}, the best of all with {percent(best['value'].iloc[0])}, is not known."


@pieces.needs(timed_rows, _unpriced)
def times(cache: QueryCache, view: View, frame: pd.DataFrame) -> FigureView:
    """Accuracy against the time that a response takes."""
    figure = _scatter(cache, view, frame, "latency_ms", "Milliseconds a response, log scale")
    counted = COUNTED if frame["method"].eq(WORDS).any() else ""
    sentence = (
        f"Accuracy at {traces(view.k)} against milliseconds to read one response, {TIMED}, on {frame['hardware'][0]}. "
        f"{counted}{_arrows(frame)}{_cut(figure)}{_nameless(figure)}n = {len(frame)} readers measured here."
    )
    return FigureView(figure, sentence)


@pieces.needs(sized_rows, _unpriced)
def cost(cache: QueryCache, view: View, frame: pd.DataFrame) -> FigureView:
    """Accuracy against the parameters that an audit runs through."""
    axis = "Parameters that are run through for a response, log scale"
    here = int((frame["origin"] == "measured").sum())
    figure = _scatter(cache, view, frame, "audit_parameters", axis)
    several = "" if _one_proxy(cache, frame) else " A proxy's name alone is READER."
    mine = "" if here else f" No reader has been measured here yet: {COST}."
    hollow = " Filled: measured here; hollow: published." if here < len(frame) else ""
    sentence = (
        f"Accuracy at {traces(view.k)} against the size of what is run: the embedding of the text and the layers up "
        f"to the one that is read.{several}{hollow} {_arrows(frame)}"
        f"{_cut(figure)}{_nameless(figure)}n = {len(frame)} readers, {here} of them measured here.{mine}"
    )
    return FigureView(figure, sentence)


def _arrows(frame: pd.DataFrame) -> str:
    return "Pointing down, at the foot: too low for the axis. " if compare.far_below(frame["accuracy"]).any() else ""


def _cut(figure: Plot) -> str:
    return f"{CUT}. " if figure["layout"]["yaxis"]["range"][0] > 0 else ""


def _nameless(figure: Plot) -> str:
    """Readers whose marks have no room for a name, as a sentence; of many, how their names are found."""
    marks = [mark for trace in figure["data"] for mark in zip(trace["text"], trace["hovertext"], strict=True)]
    hover = [words for name, words in marks if not name]
    names = [words.partition("</b>")[0].removeprefix("<b>").partition(" · ")[0] for words in hover]
    if len(names) > shell.FEW_NAMES:
        return "Point at a mark without a name, or tap it, to read its name. "
    return f"Without room for a name: {'; '.join(names)}. " if names else ""


def _scatter(cache: QueryCache, view: View, frame: pd.DataFrame, price: str, axis: str) -> Plot:
    """Accuracy of readers against one of :data:`PRICES`."""
    names = names_of(cache, list(frame["reader"]))
    frame = frame.sort_values("method", key=lambda methods: methods != READER_PAPER, kind="stable")
    readers = [cache.reader_row(reader) for reader in frame["reader"]]
    alone = _one_proxy(cache, frame)
    drawn = frame.assign(
        name=[cache.reader_name(reader["reader"]) for reader in readers],
        label=[_label(reader, names, alone) for reader in readers],
        kind=[group_of(method) for method in frame["method"]],
        cost=frame[price],
        value=frame["accuracy"],
        cost_text=[f"reads a response {PRICES[price](value)}" for value in frame[price]],
    )
    return compare.cost_scatter(drawn, theme=view.theme, axis=axis, k=view.k)


def _one_proxy(cache: QueryCache, frame: pd.DataFrame) -> bool:
    own = frame.loc[frame["method"] == READER_PAPER, "reader"]
    return own.map(lambda reader: cache.reader_row(reader)["proxy"]).nunique() == 1


def _label(reader: Mapping[str, Any], names: Mapping[str, str], alone: bool) -> str:
    """A reader next to its mark: READER's proxy, or READER with one alone, and what it reads; others' names."""
    if reader["method"] != READER_PAPER:
        return names[str(reader["reader"])].removesuffix(USUALLY_READ)
    proxy = METHOD_NAMES[READER_PAPER] if alone else compare.short(str(reader["proxy_name"]))
    return proxy if reader["view"] == READS else f"{proxy}, {VIEW_NAMES[reader['view']]}"


@pieces.needs(cost_rows, pieces.no_grid(_unpriced))
def costs(cache: QueryCache, view: View, frame: pd.DataFrame) -> pieces.GridView:
    """The grid of what readers cost."""
    frame = frame.sort_values("accuracy", ascending=False, kind="stable")
    machines = list(dict.fromkeys(frame["hardware"].dropna()))
    guesses = frame.loc[frame["audit_parameters"] == 0, "reader"].nunique()
    apart = f", {guesses} of them guessing" if guesses else ""
    origin, machine = origin_column(frame), [tables.wrapped("hardware", "Machine", 108)] if len(machines) > 1 else []
    columns = [
        tables.wrapped("name", "Reader", 400 - 92 * len(origin) - 108 * len(machine)),
        *origin,
        {"headerName": "Accuracy", "children": [tables.number("accuracy", f"K = {view.k}", "rate", 80)]},
        {
            "headerName": "Parameters",
            "children": [
                tables.number("trainable_parameters", "Trained", "count", 100),
                tables.number("audit_parameters", "Run a response", "count", 118),
            ],
        },
        tables.number("fit_seconds", "Fit, s", "hundredths", 74),
        tables.number("latency_ms", "Latency, ms", "hundredths", 90),
        tables.number("peak_memory_gb", "Memory, GB", "hundredths", 90),
        *machine,
    ]
    several = f"Times of different machines cannot be compared: {len(machines)} machines here"
    where = several if machine else f"All on one machine: {''.join(machines)}"
    sentence = (
        "Parameters that are trained and that are run for a response, seconds to fit one fold, milliseconds a response "
        f"({TIMED}) and peak memory. {where}. "
        f"Most accurate first. n = {frame['reader'].nunique()} readers{apart}."
    )
    return tables.grid("costs-grid", with_short_names(frame), columns), sentence
