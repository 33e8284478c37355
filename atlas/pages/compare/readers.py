"""Readers side by side on the page Compare: curves, end points, paired tests, other prompts, shorter responses."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from dash import html
from dash.development.base_component import Component

from atlas import drawing, shell
from atlas.data import CONDITION_NAMES, GLOBAL, METHOD_NAMES, USUALLY_READ, QueryCache
from atlas.drawing import FigureView, traces
from atlas.figures import attribution, compare, dots, plots, tables
from atlas.figures.dots import Level, Series
from atlas.figures.plots import Line, rate_text
from atlas.pages import pieces
from atlas.state import METRICS, View
from atlas.theme import READER_COLOURS, reader_places
from backend.inference.drift import corrected_words, p_words
from backend.methods.registry import READOUTS
from backend.protocol import READER_PAPER
from backend.store import queries

PATH = "/compare"
MEAN = " of the mean evidence"
AXES = {
    "accuracy": "Accuracy",
    "macro_f1": "Macro-F1",
    "nll": f"NLL{MEAN} (nats; lower is better)",
    "ece": f"ECE{MEAN} (lower is better)",
}
STORED = {"accuracy": "accuracy", "macro_f1": "macro_f1", "nll": "nll_mean", "ece": "ece_mean"}
FUSED = "fused"
TESTED = ("agent500", "clean")
"""Where readers are tested in pairs: domain and condition."""
FIRST = 4
"""Readers that stand side by side before anybody chose some."""
SHORT = ("t64", "t32")
"""Lengths that the paper stresses with."""
UNLABELLED = ("background", "aligned")
"""Conditions that use responses of unknown sources."""
HELPED = " with unlabelled responses"
"""Ending of their names, which a caption says once."""
BALANCED_HELP = (
    "One number a source is added to its scores, so that unlabelled responses to other prompts of that domain name all "
    "equally often"
)
ADAPTED_HELP = (
    "Fingerprints are shifted and scaled until those of unlabelled responses to other prompts of that domain vary as "
    "those of the training did"
)
SYMBOLS = ("circle", "diamond", "square", "star", "triangle-up", "hexagon")
KEPT_HELP = (
    "Accuracy there divided by the same reader's accuracy on whole responses of its own domain; the paper calls it the "
    "retained share"
)
APART = (
    "Groups of these responses were drawn across folds, of whole ones within a fold: the two are not compared group by "
    "group."
)
Where = tuple[str, str]
WHERE = ["benchmark", "condition"]


# ---- who is compared ------------------------------------------------------------------------------------------------


def everyone(cache: QueryCache) -> list[str]:
    """Every reader of the generation."""
    return list(cache.ask(queries.readers)["reader"])


def chosen(cache: QueryCache, view: View) -> list[str]:
    """Readers side by side: those of the link, else the header's, the fused readout and the best of the paper's."""
    if view.readers:
        return list(view.readers)
    first = cache.attribution_reader(view) or view.reader
    frame = measured(cache, view)
    top = frame[frame["k"] == frame["k"].max()].sort_values("value", ascending=False, kind="stable")
    readers = cache.ask(queries.readers).set_index("reader")
    others = [reader for reader in dict.fromkeys(top["reader"]) if reader != first]
    methods, views = readers["method"].to_dict(), readers["view"].to_dict()
    alike = [
        reader
        for reader in others
        if methods[reader] == READER_PAPER and (first not in views or views[reader] == views[first])
    ]
    # The fused readout is what this atlas adds, so it is shown with the paper's from the start.
    ours = [reader for reader in others if methods[reader] == FUSED]
    return [*([first] if first else []), *ours[:1], *alike][:FIRST]


def first(cache: QueryCache, view: View) -> str:
    """The reference."""
    return (chosen(cache, view) or [""])[0]


def names_of(cache: QueryCache, readers: Sequence[str], others: Sequence[str] = ()) -> dict[str, str]:
    """Names of lines: the proxy among READERs; next to other methods the method too, alone where it is there once.

    others : readers of lines without a name, whose methods count too.
    """
    names = cache.short_names(readers)
    methods, more = ([str(cache.reader_row(reader)["method"]) for reader in some] for some in (readers, others))
    given = [METHOD_NAMES.get(method) for method in (*methods, *more)]
    for reader, method in zip(readers, methods, strict=True):
        if len(set(methods)) == 1:
            continue
        if method in METHOD_NAMES and given.count(METHOD_NAMES[method]) == 1:
            names[reader] = METHOD_NAMES[method]
        elif method == READER_PAPER:
            names[reader] = f"{METHOD_NAMES[method]} · {names[reader]}"
    return names


def lines(cache: QueryCache, view: View) -> list[Line]:
    """One line a chosen reader; the reference is drawn last, on top."""
    names = names_of(cache, chosen(cache, view))
    places = reader_places(list(names))
    return [Line(reader, names[reader], READER_COLOURS[view.theme][places[reader]]) for reader in names][::-1]


def reader_options(cache: QueryCache, view: View) -> list[dict[str, Any]]:
    """Readers to choose from, those with numbers for the roster first; names say what they read if it is unusual."""
    items = [item for group in shell.reader_options(cache) for item in group["items"]]
    items = [{**item, "label": item["label"].removesuffix(USUALLY_READ)} for item in items]
    here = holders(cache, view.roster)
    groups = {
        f"Measured or published for {view.roster}": [item for item in items if item["value"] in here],
        f"Without numbers for {view.roster}": [item for item in items if item["value"] not in here],
    }
    return [{"group": group, "items": members} for group, members in groups.items() if members]


def holders(cache: QueryCache, roster: str) -> set[str]:
    """Readers with numbers for a roster."""
    return set(cache.ask(queries.summaries, everyone(cache), roster)["reader"])


def without_numbers(cache: QueryCache, view: View, absent: Sequence[str], what: str) -> list[Component | str]:
    """Which readers have none of something, each with a link to the largest roster that has its numbers."""
    if not absent:
        return []
    # Among the chosen ones, of which another may have the same short name.
    names, here = names_of(cache, list(dict.fromkeys([*chosen(cache, view), *absent]))), holders(cache, view.roster)
    rosters = [roster for roster in cache.ask(queries.rosters)["roster"][::-1] if roster != view.roster]
    words: list[Component | str] = []
    for reader in absent:
        words += [", " if words else f" No {what}: ", names[reader]]
        near = next((roster for roster in rosters if reader not in here and reader in holders(cache, roster)), "")
        if near:
            link = f"{PATH}?{dataclasses.replace(view, roster=near).query()}"
            words += [" (", html.A(f"show {near}", href=link), ")"]
    return [*words, "."]


def condition_options(cache: QueryCache, view: View) -> list[dict[str, Any]]:
    """Conditions that were measured in the roster and domain of a view, to choose from, by what they change."""
    here = {name.removesuffix(GLOBAL) for name in (*_conditions(cache, view), view.condition)}
    groups: dict[str, list[dict[str, str]]] = {}
    for name in dict.fromkeys(name.removesuffix(GLOBAL) for name in cache.conditions()):
        if name not in here:
            continue
        what = "Length" if name == "clean" or name.startswith("t") else "Masked"
        if name in UNLABELLED:
            what = f"With unlabelled {pieces.domain_words(view.domain)} responses"
        words = pieces.condition_words(name).removesuffix(HELPED)
        groups.setdefault(what, []).append({"value": name, "label": words[0].upper() + words[1:]})
    return [{"group": group, "items": items} for group, items in groups.items()]


def _conditions(cache: QueryCache, view: View) -> set[str]:
    """Conditions that were measured in the roster and domain of a view."""

    def compute() -> set[str]:
        rows = cache.ask(queries.measurements)
        return set(rows["condition"][(rows["roster"] == view.roster) & (rows["benchmark"] == view.domain)])

    return cache.once(f"conditions {view.roster} {view.domain}", compute)


def grouped_condition(cache: QueryCache, view: View) -> str:
    """Condition of a view as it is stored: grouped across folds where folds are pooled, as :func:`settled` has it."""
    plain = view.condition.removesuffix(GLOBAL)
    wide = plain + GLOBAL
    return wide if view.reduction == "pooled" and wide in _conditions(cache, view) else plain


# ---- numbers --------------------------------------------------------------------------------------------------------


def accuracies(
    cache: QueryCache, readers: Sequence[str], roster: str, benchmark: str, condition: str, k: int
) -> pd.DataFrame:
    """Accuracy of readers at a budget with what is known of its spread, one row a reader.

    Returns columns reader, origin, reduction (pooled where there is one), value, std (over the folds), low, high
        (a 95 % interval, NaN where none is stored), n.
    """
    metrics = ("accuracy", "accuracy_low", "accuracy_high")
    frame = pieces.over_folds(cache.ask(queries.summaries, readers, roster, metrics))
    here = (frame["benchmark"] == benchmark) & (frame["condition"] == condition) & (frame["k"] == k)
    frame = frame[here].sort_values("reduction", key=lambda names: names != "pooled", kind="stable")
    frame = frame.drop_duplicates(["reader", "metric"])
    values = {metric: rows.set_index("reader")["value"] for metric, rows in frame.groupby("metric")}
    own = frame[frame["metric"] == "accuracy"][["reader", "origin", "reduction", "value", "std", "n"]]
    none = pd.Series(dtype=float)
    bounds = {end: own["reader"].map(values.get(f"accuracy_{end}", none)) for end in ("low", "high")}
    return own.assign(**bounds).reset_index(drop=True)


def row_names(frame: pd.DataFrame) -> dict[str, str]:
    """Names of the rows of a figure."""
    return dict(tables.rows(frame.drop_duplicates("row"), "row", "name"))


def measured(cache: QueryCache, view: View, reduction: str = "pooled") -> pd.DataFrame:
    """Accuracy of every reader in the roster and domain of the view, one row a reader and budget."""
    frame = cache.ask(queries.summaries, everyone(cache), view.roster)
    here = (frame["benchmark"] == view.domain) & (frame["condition"] == grouped_condition(cache, view))
    return frame[here & (frame["metric"] == "accuracy") & (frame["reduction"] == reduction)]


def home(cache: QueryCache, view: View) -> str:
    """Domain that readers of the roster were trained on; an enrolled ecosystem has one of its own."""
    return view.roster if view.roster in cache.domains() else "agent500"


def places(cache: QueryCache, view: View) -> dict[Where, str]:
    """Domains and lengths that readers are tried on, in words."""
    own = home(cache, view)
    where = {(own, "clean"): f"{pieces.domain_words(own)}, whole"}
    where |= {(own, condition): f"{condition.removeprefix('t')} tokens" for condition in SHORT}
    if own == "agent500" and "math100" in cache.domains():
        where[("math100", "clean")] = "Math100"
    return where


def _place_words(cache: QueryCache, view: View) -> dict[Where, str]:
    """The same inside a sentence."""
    own = home(cache, view)
    where = {key: f"responses of {words}" if key[1] in SHORT else words for key, words in places(cache, view).items()}
    return where | {(own, "clean"): f"whole {pieces.domain_words(own)} responses"}


def settled(frame: pd.DataFrame) -> pd.DataFrame:
    """One row a reader, domain, length, metric and budget, the one that published and measured readers share.

    Shortened responses: groups across folds, else within a fold. Math100: the mean over the five fold
    models, else their ensemble; everything else: folds pooled, else their mean.
    """
    wide = frame["condition"].str.endswith(GLOBAL)
    folds = frame["reduction"] == "fold"
    usual = np.where(frame["benchmark"] == "math100", folds, ~folds)
    out = frame.assign(
        groups=np.where(wide, "across folds", "within a fold"),
        condition=frame["condition"].str.removesuffix(GLOBAL),
        _wide=~wide,
        _usual=~usual.astype(bool),
    ).sort_values(["_wide", "_usual"], kind="stable")
    keys = ["reader", "benchmark", "condition", "metric", "k"]
    out = pieces.over_folds(out).drop_duplicates(keys).drop(columns=["_wide", "_usual"])
    return out.sort_index().reset_index(drop=True)


def _at_places(cache: QueryCache, view: View, readers: Sequence[str], *metrics: str) -> pd.DataFrame:
    """:func:`settled` summaries of some readers at K, and the share of its value at home that every row keeps."""
    frame = settled(cache.ask(queries.summaries, readers, view.roster, metrics))
    frame = frame[frame["k"] == view.k]
    clean = frame[(frame["benchmark"] == home(cache, view)) & (frame["condition"] == "clean")]
    base = clean.set_index(["reader", "metric"])["value"]
    own = base.reindex(pd.MultiIndex.from_frame(frame[["reader", "metric"]])).to_numpy(dtype=float)
    return frame.assign(kept=frame["value"] / own)


# ---- curves and end points ------------------------------------------------------------------------------------------


def answer(cache: QueryCache, view: View) -> list[Component | str]:
    """Which of the chosen readers is best at K, in a sentence."""
    readers = chosen(cache, view)
    frame = measured(cache, view)
    groups = frame[(frame["k"] == view.k) & frame["reader"].isin(readers)].set_index("reader")
    here = groups["value"]
    under = "" if view.condition == "clean" else f" ({pieces.condition_words(view.condition)})"
    if not len(here):
        return [f"None of these readers has been measured for {drawing.choice_words(view)}{under}."]
    names, size = names_of(cache, readers), pieces.roster_size(cache, view)
    best = str(here.idxmax())
    sentence: list[Component | str] = [
        f"With {traces(view.k)}, ",
        html.Strong(names[best]),
        f" names the right one of {size} sources {percent(here[best])} of the time{under}",
    ]
    leads, others = best == readers[0], here.drop(best)
    rival = readers[0] if not leads else str(others.idxmax()) if len(others) else ""
    if rival in others.index:
        training = _training_of(cache, view.condition, rival, best)
        sentence.append(f", {'next best ' * leads}{names[rival]}{training} {percent(here[rival])}")
        more = "less" if leads else "more"
        sentence.append(f": {points(here[best], here[rival])} {more} ({_test_of(cache, view, best, rival)})")
    absent = [reader for reader in readers if reader not in here.index]
    apart: list[Component | str] = [" ", shell.term("Groups across folds", APART), "."]
    wide = grouped_condition(cache, view).endswith(GLOBAL)
    return [
        *sentence,
        f"; {pieces.against_chance(size, 0)}",
        *(apart if wide else []),
        *_best_by_metric(cache, view, names, here),
        *without_numbers(cache, view, absent, f"accuracy for {view.roster} with {traces(view.k)}"),
    ]


def _test_of(cache: QueryCache, view: View, best: str, rival: str) -> str:
    """The test of two readers' accuracies at K, one of which is the reference, in words."""
    rows, against = end_rows(cache, view), best == first(cache, view)
    rows = rows[rows["reader"].eq(rival if against else best) & rows["metric"].eq("accuracy") & rows["k"].eq(view.k)]
    for low, high, p in tables.rows(rows.dropna(subset="low"), "low", "high", "p_holm"):
        return tested_words(*((-high, -low) if against else (low, high)), p)
    where = "" if (view.domain, view.condition) == TESTED else "; tests are made on whole Agent500 responses"
    return f"not tested{where}"


def _training_of(cache: QueryCache, condition: str, reader: str, other: str) -> str:
    """What a reader was trained on, after its name, where another one differs in it and responses are cut."""
    cut = trained_on_cut(cache, (reader, other))
    if not is_cut(condition) or len(cut) != 1:
        return ""
    return ", trained on cut responses too," if reader in cut else ", trained on whole responses alone,"


def _training_note(cache: QueryCache, view: View, readers: Sequence[str]) -> str:
    """What readers of a figure of cut responses were trained on, where they differ in it, as a sentence."""
    alike = len(trained_on_cut(cache, readers)) in (0, len(readers))
    if not is_cut(view.condition) or alike:
        return ""
    words = _trained_words(cache, view, readers)
    return f" {words[0].upper()}{words[1:]}."


def _best_by_metric(cache: QueryCache, view: View, names: Mapping[str, str], accuracy: pd.Series) -> list[str]:
    """Which of the named readers is best by a metric other than accuracy, and how often that one is right."""
    if view.metric == "accuracy":
        return []
    stored = STORED[view.metric]
    frame = pieces.curves(cache, view, list(names), stored, "pooled", grouped_condition(cache, view))
    here = frame[frame["k"].eq(view.k)].set_index("reader")["value"]
    if here.empty:
        return []
    lowest = view.metric in ("nll", "ece")
    best = str(here.idxmin() if lowest else here.idxmax())
    quantity = f"{METRICS[view.metric]}{MEAN if lowest else ''}"
    # Who is seldom right and knows it is well calibrated.
    right = f", which is right in {percent(accuracy[best])}" if best in accuracy and best != accuracy.idxmax() else ""
    return [f" The best {quantity} is that of {names[best]}{right}: {plots.figure_text(here[best])}."]


def percent(share: float) -> str:
    """A share in a sentence."""
    return f"{100 * share:.1f}\N{NO-BREAK SPACE}%"


def points(more: float, less: float) -> str:
    """A difference of two shares in a sentence, rounded once, as in tables."""
    return f"{100 * (more - less):.1f} points"


def tested_words(low: float, high: float, p: float) -> str:
    """Interval of a difference of two shares, and whether it may be luck once p is corrected, in a sentence."""
    luck = f", uncorrected; {p_words(p)} after correction: may be luck" if p >= 0.05 else ""
    return f"paired 95 % interval {100 * low:.1f} to {100 * high:.1f}{luck}"


def curves(cache: QueryCache, view: View) -> FigureView:
    """The chosen metric against the budget."""
    drawn = lines(cache, view)
    readers = [line.key for line in drawn]
    stored = grouped_condition(cache, view)
    frame = pieces.curves(cache, view, readers, STORED[view.metric], view.reduction, stored)
    condition = pieces.condition_words(stored)
    if frame.empty:
        return drawing.unmeasured(cache, view, f"{METRICS[view.metric].lower()} ({condition})", PATH)
    size = max(pieces.roster_size(cache, view), 1)
    chance = {"accuracy": 1 / size, "nll": float(np.log(size))}.get(view.metric)
    figure = attribution.budget_curves(
        frame.assign(line=frame["reader"]), drawn, theme=view.theme, axis=AXES[view.metric], k=view.k, chance=chance,
        unit=view.metric != "nll", values=True,
    )  # fmt: skip
    how = "folds pooled, mean over the seeds" if view.reduction == "pooled" else "mean over the folds"
    absent = [reader for reader in readers[::-1] if reader not in set(frame["reader"])]
    away = " Dashed and hollow: published, not measured here." if (frame["origin"] == "published").any() else ""
    evidence = f"{MEAN}, before calibration," if view.metric in ("nll", "ece") else ""
    most, at_k = (int(rows["n"].max()) if len(rows) else 0 for rows in (frame, frame[frame["k"] == view.k]))
    own = f", {at_k:,} at K = {view.k}" if at_k not in (0, most) else ""
    sentence: shell.Children = [
        *shell.origin_badges(frame["origin"]),
        f"{METRICS[view.metric]}{evidence} on {pieces.domain_words(view.domain)}, {condition}; {how}"
        f"{_bands(frame, view)}. n = {most:,} groups a seed at K = {int(frame['k'].min())}{own}.{away}"
        f"{_training_note(cache, view, list(dict.fromkeys(frame['reader'])))}",
        *without_numbers(cache, view, absent, "such curve"),
    ]
    return FigureView(figure, sentence)


def _bands(frame: pd.DataFrame, view: View) -> str:
    """What the bands of the curves are and, where they are no interval, why, as a part of a sentence."""
    note = pieces.bands_note(frame)
    if view.reduction == "fold" or (frame["band"] == pieces.INTERVAL).any():
        return note
    if note:
        return f"{note}, because no {pieces.INTERVAL} is stored for these"
    return "; no bands, because neither an interval nor a spread over the folds is stored for these"


def curve_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Rows of the curves."""
    frame = cache.ask(queries.summaries, chosen(cache, view), view.roster, (STORED[view.metric],))
    condition = grouped_condition(cache, view)
    here = (frame["benchmark"] == view.domain) & (frame["condition"] == condition)
    drawn = pieces.curves(cache, view, chosen(cache, view), STORED[view.metric], view.reduction, condition)
    bands = drawn[["reader", "k", "low", "high"]]
    frame = frame[here & (frame["reduction"] == view.reduction)].merge(bands, how="left", on=["reader", "k"])
    columns = [name for name in frame if name not in ("low", "high")]
    after = columns.index("value") + 1
    return frame[[*columns[:after], "low", "high", *columns[after:]]]


def end_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """End points and the chosen budget, in the chosen reduction where it is stored, and tests against the first."""
    readers = chosen(cache, view)
    reference = readers[0] if readers else ""
    frame = cache.ask(queries.summaries, readers, view.roster)
    grouped, plain = grouped_condition(cache, view), view.condition.removesuffix(GLOBAL)
    # Groups across folds have no spread over the folds but that of groups within one.
    here = frame["condition"].eq(grouped) | (frame["condition"].eq(plain) & frame["reduction"].eq("fold"))
    frame = pieces.over_folds(frame[here & frame["benchmark"].eq(view.domain)].assign(condition=plain))
    frame = frame.sort_values("reduction", key=lambda names: names != view.reduction, kind="stable")
    values = frame.drop_duplicates(["reader", "metric", "k"]).set_index(["reader", "metric", "k"])
    budgets = sorted({int(frame["k"].min()), view.k, int(frame["k"].max())}) if len(frame) else []
    tests = cache.ask(queries.paired_tests, reference, readers, view.roster)
    tests = tests if (view.domain, view.condition) == TESTED else tests.iloc[:0]
    tests = tests.drop_duplicates(["reader", "measure"]).set_index(["reader", "measure"])
    rows = []
    for reader in readers:
        for metric, k in ((metric, k) for metric in ("accuracy", "macro_f1") for k in budgets):
            if (reader, metric, k) not in values.index:
                continue
            own: Any = values.xs((reader, metric, k))
            base = values["value"].get((reference, metric, k), np.nan) if reader != reference else np.nan
            stored = {name: own[name] for name in ("origin", "value", "std", "reduction")}
            test: dict[Any, Any] = dict.fromkeys(("low", "high", "p_value", "p_holm"), np.nan) | {"together": 0}
            if (reader, f"{metric}@{k}") in tests.index:
                test = tests.loc[(reader, f"{metric}@{k}"), list(test)].to_dict()
            names = {"reader": reader, "name": cache.reader_name(reader), "metric": metric, "k": k}
            rows.append({**names, **stored, "difference": own["value"] - base, **test, "n": int(own["n"])})
    columns = ["reader", "name", "origin", "metric", "k", "value", "std", "reduction", "difference", "low", "high"]
    frame = pd.DataFrame(rows, columns=[*columns, "p_value", "p_holm", "together", "n"])
    return frame.assign(together=frame["together"].astype(int))


@pieces.needs(end_rows, pieces.no_grid(pieces.unmeasured("end points", PATH)))
def ends(cache: QueryCache, view: View, frame: pd.DataFrame) -> pieces.GridView:
    """The table of the end points."""
    pairs = list(dict.fromkeys(zip(frame["metric"], frame["k"], strict=True)))
    colours = {line.key: line.colour for line in lines(cache, view)}
    names = names_of(cache, chosen(cache, view))
    tested = frame[frame["p_holm"].notna()]
    known = set(zip(tested["metric"], tested["k"], strict=True))

    def unsure(metric: str, k: int) -> list[Component | str]:
        return [html.Br(), "[interval, uncorrected]"] if metric == "accuracy" and (metric, k) in known else []

    heads: list[Component | str] = [
        "Reader",
        *(html.Span([METRICS[metric], html.Br(), f"K = {k}", *unsure(metric, k)]) for metric, k in pairs),
    ]
    body = []
    for reader, rows in ((str(reader), rows) for reader, rows in frame.groupby("reader", sort=False)):
        by_pair: dict[Any, Any] = {(one["metric"], one["k"]): one for one in rows.to_dict("records")}
        cells = ["–" if pair not in by_pair else _end(by_pair[pair]) for pair in pairs]
        title = {"title": rows["name"].iloc[0]}
        origin = "published" if rows["origin"].iloc[0] == "published" else ""
        body.append(pieces.row(pieces.reader_mark(names[reader], origin, colours.get(reader), **title), *cells))
    if (view.domain, view.condition) != TESTED:
        text = "Differences are tested in pairs on whole responses of Agent500 alone; none of these has been tested."
    elif len(tested):
        text = (
            f"{len(tested)} {'difference was' if len(tested) == 1 else 'differences were'} tested in pairs (clusters "
            f"of fold and source, sign flips); p is Holm-corrected, made larger {corrected(tested['together'])}."
        )
        sets = tested.groupby("together")["reader"].unique()
        whose = (f"{size}: {', '.join(names[reader] for reader in group)}" for size, group in sets.items())
        text += f" {'; '.join(whose)}." if len(sets) > 1 else ""
        least = any("≤" in corrected_words(*ps) for ps in tables.rows(tested, "p_value", "p_holm"))
        text += " ≤: no flip was as extreme." if least else ""
    else:
        text = (
            "No difference between these has been tested: python -m jobs evaluate --stage statistics tests readers "
            "that were measured here, and published ones come without the answers that a test in pairs needs."
        )
    ways = {"pooled": "folds pooled", "fold": "mean over the folds"}
    how = " or, where that alone is stored, ".join(
        words for name, words in sorted(ways.items(), key=lambda way: way[0] != view.reduction)
        if name in set(frame["reduction"])
    )  # fmt: skip
    spread = f"{how}{' ± standard deviation over the folds' if frame['std'].notna().any() else ''}"
    less = frame.loc[frame["difference"].notna(), "reader"]
    below = f"Below an accuracy alone: its difference from that of {names[first(cache, view)]}. " if len(less) else ""
    sentence = (
        f"{drawing.choice_words(view)}, {pieces.condition_words(grouped_condition(cache, view))}; "
        f"{spread}.{_training_note(cache, view, list(dict.fromkeys(frame['reader'])))} {below}{text} "
        f"n = {frame['reader'].nunique()} readers."
    )
    return pieces.scrolling(pieces.table(heads, body)), sentence


def corrected(together: pd.Series) -> str:
    """For how many comparisons p values were corrected, in words, out of the sizes of their sets."""
    sizes = " or ".join(str(size) for size in sorted(set(together)))
    return f"for the {sizes} comparisons of its set; intervals are not"


def _end(end: dict[str, Any]) -> list[Component | str]:
    """A value and, below an accuracy, its difference from the first reader's, with interval and p."""
    parts: list[Component | str] = ["1" if end["value"] >= 1 else rate_text(end["value"])]
    if pd.notna(end["std"]):
        parts.append(html.Span(f" ± {rate_text(end['std'])}", className="soft"))
    if end["metric"] != "accuracy" or pd.isna(end["difference"]):
        return parts
    untested = pd.isna(end["low"])
    range_text = " not tested" if untested else f" [{rate_text(end['low'])}, {rate_text(end['high'])}]"
    parts += [html.Br(), plots.signed(end["difference"]), html.Span(range_text, className="soft")]
    if end["p_holm"] >= 0.05:  # which the interval may contradict
        parts += [html.Br(), html.Span("before correction;", className="soft")]
    if pd.notna(end["p_holm"]):
        raw = f"{p_words(end['p_value'])} before correction"
        text = f"corrected {corrected_words(end['p_value'], end['p_holm'])}"
        luck: list[Component | str] = [f"{text}:", html.Br(), "may be luck"]
        lines = luck if end["p_holm"] >= 0.05 else [text]
        parts += [html.Br(), html.Span(lines, className="soft", title=raw)]
    return parts


# ---- other prompts and shorter responses ----------------------------------------------------------------------------


def panel_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """The metric against the budget under every domain and length, of the chosen readers."""
    where = list(places(cache, view))
    frame = settled(cache.ask(queries.summaries, chosen(cache, view), view.roster, (STORED[view.metric],)))
    drawn = pd.MultiIndex.from_frame(frame[["benchmark", "condition"]]).isin(where)
    return frame[drawn].drop(columns="build_id").reset_index(drop=True)


def panels_answer(cache: QueryCache, view: View) -> list[Component | str]:
    """Which of the chosen readers is best at K under which domain and length, in a sentence."""
    frame, names = panel_rows(cache, view), names_of(cache, chosen(cache, view))
    at_k = frame[frame["k"] == view.k].set_index("reader")
    by_place = {key: at_k.loc[(at_k[WHERE] == key).all(axis=1), "value"] for key in places(cache, view)}
    lowest, several = view.metric in ("nll", "ece"), frame["reader"].nunique() > 1
    quantity = "accuracy" if view.metric == "accuracy" else f"{METRICS[view.metric]}{MEAN * lowest}"
    how = f" has the best {quantity}" if several else f", alone here, has this {quantity}"
    absent = [reader for reader in names if reader not in at_k.index]
    sentence = _leaders(cache, view, by_place, names, how, lowest)
    return [*sentence, *without_numbers(cache, view, absent, f"such number with {traces(view.k)}")]


def every_answer(cache: QueryCache, view: View) -> list[Component | str]:
    """Which of all readers is best at K under which domain and length, in a sentence."""
    frame = every_rows(cache, view).set_index("reader")
    columns = {key: f"accuracy_{_field(words)}" for key, words in places(cache, view).items()}
    by_place = {key: frame[column].dropna() for key, column in columns.items() if column in frame}
    names = {reader: cache.reader_name(reader) for reader in frame.index}
    return _leaders(cache, view, by_place, names, f" has the best accuracy of {len(frame)} readers")


def _leaders(
    cache: QueryCache, view: View, by_place: Mapping[Where, pd.Series], names: Mapping[str, str], how: str,
    lowest: bool = False,
) -> list[Component | str]:  # fmt: skip
    """The best value at every place by who reaches it; ``how`` follows the first name."""
    won: dict[str, list[str]] = {}
    for key, words in _place_words(cache, view).items():
        if len(here := by_place.get(key, pd.Series(dtype=float))):
            value = here.min() if lowest else here.max()
            text = plots.figure_text(value) if lowest else percent(value)
            won.setdefault(str(here.idxmin() if lowest else here.idxmax()), []).append(f"{text} on {words}")
    if not won:
        return [f"None of these readers was measured with {traces(view.k)} for {view.roster}."]
    (lead, first_values), *others = ((names[reader], ", ".join(values)) for reader, values in won.items())
    rest = [f"; {name}: {values}" for name, values in others]
    return [f"With {traces(view.k)}, ", html.Strong(lead), f"{how}: {first_values}", *rest, "."]


@pieces.needs(panel_rows, pieces.unmeasured("{metric} under any condition", PATH))
def panels(cache: QueryCache, view: View, frame: pd.DataFrame) -> FigureView:
    """Small multiples of the chosen readers' curves."""
    figure = compare.curve_panels(
        frame, places(cache, view), lines(cache, view), theme=view.theme, axis=AXES[view.metric], k=view.k,
        unit=view.metric != "nll",
    )  # fmt: skip
    most = frame.groupby("benchmark")["n"].max()
    here = most.pop(own) if (own := home(cache, view)) in most else most.max()
    fewer = "".join(f", on {pieces.domain_words(str(name))} {int(n):,}" for name, n in most.items() if n != here)
    sentence: shell.Children = [
        *shell.origin_badges(frame["origin"]),
        f"{METRICS[view.metric]} of the readers above, {_trained_words(cache, view)}. Other lengths: see At K traces. "
        f"Bands: {pieces.FOLDS}, where there are some. n = {int(here):,} ",
        shell.term("groups", grouping) if (grouping := grouped_words(frame)) else "groups",
        f" at the smallest K{fewer}.",
    ]
    return FigureView(figure, sentence)


def is_cut(condition: str) -> bool:
    """Whether responses of a condition are shorter than whole ones."""
    return condition.startswith("t")


def trained_on_cut(cache: QueryCache, readers: Sequence[str]) -> list[str]:
    """Those of some readers whose methods take cut responses in training too."""
    methods = {reader: str(cache.reader_row(reader)["method"]) for reader in readers}
    return [
        reader
        for reader, method in methods.items()
        if method in READOUTS and not METHOD_NAMES[method].endswith("whole responses")
    ]


def _trained_words(cache: QueryCache, view: View, readers: Sequence[str] = ()) -> str:
    """What some readers, else the chosen ones, were trained on; some methods take cut responses too."""
    names = names_of(cache, chosen(cache, view))
    readers = list(readers or names)
    cut = trained_on_cut(cache, readers)
    more = f" ({', '.join(names[reader] for reader in cut)}: on cut ones too)" if cut else ""
    if len(cut) == len(readers):
        more = ", and on cut ones"
    return f"trained on whole responses of {pieces.domain_words(home(cache, view))}{more}"


def condition_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """The metric at K under every domain and condition, and what share of the clean Agent500 value remains."""
    frame = _at_places(cache, view, chosen(cache, view), STORED[view.metric])
    return frame.drop(columns="build_id").reset_index(drop=True)


def conditions_answer(cache: QueryCache, view: View) -> list[Component | str]:
    """Which reader keeps least of its accuracy, where, and which keeps most there, in two sentences."""
    readers, where = chosen(cache, view), _place_words(cache, view)
    where.pop((home(cache, view), "clean"))
    frame = _at_places(cache, view, readers, "accuracy").dropna(subset="kept")
    frame = frame.assign(place=[where.get(key, "") for key in zip(frame["benchmark"], frame["condition"], strict=True)])
    frame = frame[frame["place"] != ""].sort_values("kept", kind="stable")
    if frame.empty:
        return [f"None of these readers was measured on shorter responses or other prompts for {view.roster}."]
    names = names_of(cache, readers)
    least: Any = frame.iloc[0]
    there = frame[frame["place"] == least["place"]].set_index("reader")["kept"]
    best = str(there.idxmax())
    training = _training_of(cache, least["condition"], least["reader"], best)
    sentence: list[Component | str] = [
        f"With {traces(view.k)}, {names[least['reader']]}{training} keeps least on {least['place']}: ",
        html.Strong(percent(least["kept"])),
        " of its accuracy on whole responses.",
    ]
    if best != least["reader"]:
        own: Any = frame[frame["reader"] == best].iloc[0]
        both = frame[(frame["reader"] == least["reader"]) & (frame["place"] == own["place"])]["kept"]
        other = "".join(f" ({names[least['reader']]} {percent(kept)})" for kept in both)
        but = "" if own["place"] == least["place"] else f", but {percent(own['kept'])} on {own['place']}{other}"
        training = _training_of(cache, least["condition"], best, least["reader"])
        sentence.append(f" {names[best]}{training} keeps {percent(there[best])} there{but}.")
    absent = [reader for reader in readers if reader not in there.index]
    return [*sentence, *without_numbers(cache, view, absent, "number there")]


def grouped_words(frame: pd.DataFrame) -> str:
    """How responses were grouped where short ones were drawn otherwise than whole ones, in a sentence; '' elsewhere."""
    short, whole = (
        " or ".join(sorted(set(frame.loc[rows, "groups"])))
        for rows in (frame["condition"].isin(SHORT), frame["condition"].eq("clean"))
    )
    alike = not short or short == whole
    if alike:
        return ""
    return f"Groups of shortened responses were drawn {short}, of whole ones {whole}: not compared group by group. "


def _columns(frame: pd.DataFrame, cache: QueryCache) -> dict[Where, str]:
    conditions = list(dict.fromkeys(name.removesuffix(GLOBAL) for name in cache.conditions()))
    measured = set(zip(frame["benchmark"], frame["condition"], strict=True))
    order = [(domain, condition) for domain in cache.domains() for condition in conditions]
    return {
        (domain, name): f"{pieces.domain_words(domain)}, {_brief(name)}"
        for domain, name in order
        if (domain, name) in measured
    }


def _brief(condition: str) -> str:
    words = CONDITION_NAMES.get(condition, condition).partition(", groups ")[0]
    return words.removeprefix("first ").removesuffix(HELPED)


@pieces.needs(condition_rows, pieces.unmeasured("{metric} at K = {k}", PATH))
def conditions(cache: QueryCache, view: View, frame: pd.DataFrame) -> FigureView:
    """One line a domain and condition, one mark a chosen reader."""
    columns, drawn = _columns(frame, cache), lines(cache, view)[::-1]
    places = reader_places([line.key for line in drawn])
    series = {
        line.key: Series(line.label, SYMBOLS[number], 1 - 2 * number / max(len(drawn) - 1, 1), places[line.key])
        for number, line in enumerate(drawn)
    }
    rows = frame.assign(
        row=frame["benchmark"] + "/" + frame["condition"], series=frame["reader"], low=np.nan, high=np.nan
    )
    share = view.metric != "nll"
    figure = dots.dot_rows(
        rows, {"/".join(place): words for place, words in columns.items()}, series, theme=view.theme,
        axis=f"{AXES[view.metric]} at {traces(view.k)}", usual=[], every=True, top=1.02 if share else None,
        level=Level(1 / max(pieces.roster_size(cache, view), 1), "chance") if view.metric == "accuracy" else None,
        unit="groups",
    )  # fmt: skip
    trained_on, trained = home(cache, view), _trained_words(cache, view)
    absent = [
        words
        for name, words in (("math100", "Math100"), ("t64", "64 tokens"), ("t32", "32 tokens"))
        if trained_on == TESTED[0] and not any(part.startswith(name) for key in columns for part in key)
    ]
    missing = f" Not measured yet: {', '.join(absent)} (python -m jobs evaluate --stage stress)." if absent else ""
    if len(frame) < len(columns) * len(drawn):
        missing += " –: not measured."
    if frame["origin"].eq("published").any():
        missing += " Hollow: published."
    if len(drawn) > 2:
        missing += " Numbers: a column a reader, below its mark."
    help_here = frame["condition"].isin(UNLABELLED).any()
    terms = shell.term("Balanced", BALANCED_HELP), " and ", shell.term("adapted", ADAPTED_HELP)
    helped: list[Component | str] = [*terms, ": by unlabelled responses. "]
    sentence: shell.Children = [
        *shell.origin_badges(frame["origin"]),
        f"{trained[:1].upper()}{trained[1:]}.{missing} ",
        *(helped if help_here else []),
        f"Bars: {pieces.FOLDS}{_widest(frame['std'], view)}. n = {int(frame['n'].min()):,} to "
        f"{int(frame['n'].max()):,} ",
        shell.term("groups", grouping) if (grouping := grouped_words(frame)) else "groups",
        " a mark.",
    ]
    return FigureView(figure, sentence)


def _widest(std: pd.Series, view: View) -> str:
    """The longest bar of a figure, in words."""
    if std.isna().all():
        return ", none here"
    points = f"{100 * std.max():.1f} points" if view.metric in ("accuracy", "macro_f1") else rate_text(std.max())
    return f", at most {points}"


def origin_column(frame: pd.DataFrame) -> list[tables.Column]:
    """A column of origins where they differ."""
    return [tables.words("origin", "Origin", 92)] if frame["origin"].nunique() > 1 else []


def with_short_names(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows whose readers' names say what they read if it is unusual."""
    return frame.assign(name=frame["name"].str.removesuffix(USUALLY_READ))


def _field(words: str) -> str:
    return words.lower().replace(", ", "_").replace(" ", "_")


def every_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Every reader at K: accuracy under every domain and length, what remains, and macro-F1, best first."""
    where = places(cache, view)
    frame = _at_places(cache, view, everyone(cache), "accuracy", "macro_f1")
    parts = []
    for (benchmark, condition), words in where.items():
        here = frame[(frame["benchmark"] == benchmark) & (frame["condition"] == condition)]
        own = here[here["metric"] == "accuracy"].set_index("reader")
        name = _field(words)
        parts.append(own["value"].rename(f"accuracy_{name}"))
        if (benchmark, condition) == next(iter(where)):
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
    lead = next((column for column in map(str, wide) if column.startswith("accuracy_")), "name")
    return wide.sort_values(lead, ascending=False, na_position="last", kind="stable").reset_index(drop=True)


def every_height(cache: QueryCache, view: View) -> int:
    """Height in pixels of :func:`every`, with a head of its groups."""
    return 38 + tables.height(len(every_rows(cache, view)), 360)


@pieces.needs(every_rows, pieces.no_grid(pieces.unmeasured("results at K = {k}", PATH)))
def every(cache: QueryCache, view: View, frame: pd.DataFrame) -> pieces.GridView:
    """The grid of all readers under all conditions."""
    columns: list[tables.Column] = [tables.wrapped("name", "Reader", 210, 1), *origin_column(frame)]
    for words in places(cache, view).values():
        name = _field(words)
        other = (f"kept_{name}", "Kept", 62) if f"kept_{name}" in frame else ("macro_f1", "Macro-F1", 78)
        pair = [
            tables.number(field, title, "rate", width, filter=False)
            for field, title, width in ((f"accuracy_{name}", "Accuracy", 76), other)
        ]
        columns.append({"headerName": words, "children": pair})
    sentence: list[Component | str] = [
        f"Every reader at {traces(view.k)} among the sources of {view.roster}. ",
        shell.term("Kept", KEPT_HELP),
        " is the share of the first column that is left. Folds are pooled where that is stored. Shortened responses "
        "are grouped across folds where that is stored, as in the released files: Kept is not group by group. "
        "Math100: the mean of the five fold models. Random guessing was drawn, so it misses chance by luck. Other "
        f"lengths: see At K traces. Select a row to add it to the comparison. n = {len(frame)} readers.",
    ]
    return tables.grid("every-grid", with_short_names(frame), columns, selectable=True), sentence
