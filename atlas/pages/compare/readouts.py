"""Readouts and the best published on the page Compare: what the fused one reaches, what its members bring, tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from dash import html
from dash.development.base_component import Component

from atlas import drawing, shell
from atlas.data import METHOD_NAMES, QueryCache
from atlas.drawing import FigureView, traces
from atlas.figures import dots, plots, tables
from atlas.figures.dots import Series
from atlas.pages import pieces
from atlas.pages.compare.readers import (
    FUSED,
    PATH,
    accuracies,
    grouped_words,
    home,
    percent,
    points,
    row_names,
    settled,
)
from atlas.state import View
from backend.inference.drift import corrected_words, p_words
from backend.methods.registry import FUSED_LIVE
from backend.protocol import READER_PAPER
from backend.store import queries

WORDS, TUNED, LINEAR = "ngram-word", "fused-tuned", "fused-linear"
MEMBER = "Members alone"
GROUPS: Mapping[str, Mapping[str, str]] = {
    "With more": {TUNED: "Fused, and a fine-tuned encoder", "fused-style": "Fused, and style n-grams"},
    "With less": {
        FUSED: "Fused: all members",
        LINEAR: "Fused: all but the networks",
        "fused-states": "Fused: every proxy's states",
        "states": "Discriminants and network",
        "fused-text": "N-grams of every kind",
    },
    MEMBER: {
        "lda": "Discriminants, every length",
        "network": "Network",
        "ngram-word-lengths": "Word n-grams, every length",
        "ngram-char-lengths": "Character n-grams, every length",
    },
    "For live traces": {FUSED_LIVE: METHOD_NAMES[FUSED_LIVE].removesuffix(", live")},
    "Others": {
        "fused-text-tuned": "N-grams and fine-tuned encoder",
        "fused-text-style": "Word and style n-grams",
        "encoder-lengths": "Fine-tuned encoder, every length",
        "ngram-style-lengths": "Style n-grams, every length",
        "lda-full": "Discriminants, whole responses",
        "regression": "Regression, whole responses",
        "experts": "Experts within families, whole responses",
        WORDS: "Word n-grams, whole responses",
        READER_PAPER: "READER: a probe at one layer",
    },
}
"""Readouts and what they are, by what they are to the fused one, which stands before them all."""
GROUP_OF = {method: group for group, methods in GROUPS.items() for method in methods}
MEMBERS = {method: words for methods in GROUPS.values() for method, words in methods.items()}
LENGTHS: Mapping[str, Series] = {
    "clean": Series("whole responses", "circle", 1, 0),
    "t64": Series("64 tokens", "diamond", 0, 1),
    "t32": Series("32 tokens", "square", -1, 2),
    "math100": Series("Math100", "star", 0, 4),
}
"""Math100 lies far from the others, which share the height of a line."""
AIMED_ROSTER = "100-way"
FEW = 3  # readouts that a caption names
WORST_ECE = 0.03
FUSED_HELP = (
    "A weighted sum of what several readers say: discriminants over several layers of small proxies, a network on the "
    "same layers, and word n-grams. Its weights are chosen on prompts that neither its members nor the test have seen"
)
HOLM_HELP = "Made larger to allow for the number of differences that were tested together"


@dataclasses.dataclass(frozen=True)
class Aim:
    """A question to a readout: where its answer stands, and what was aimed for."""

    words: str
    k: int
    value: float
    benchmark: str = "agent500"
    condition: str = "clean"


AIMS = (
    Aim("One trace", 1, 0.56),
    Aim("10 traces", 10, 0.90),
    Aim("20 traces", 20, 0.94),
    Aim("100 traces", 100, 0.985),
    Aim("100 traces of 64 tokens", 100, 0.97, condition="t64"),
    Aim("100 traces of 32 tokens", 100, 0.92, condition="t32"),
    Aim("100 traces, Math100", 100, 0.40, benchmark="math100"),
    Aim("100 traces, Math100, scores balanced", 100, 0.55, benchmark="math100", condition="background"),
    Aim("100 traces, Math100, adapted", 100, 0.55, benchmark="math100", condition="aligned"),
)
"""What was aimed for among 100 sources before the readouts existed."""


def fused_reader(cache: QueryCache, view: View) -> str:
    """The fused readout of a roster, that of most proxies where there are several; '' without one."""
    readers = cache.ask(queries.readers)
    fused = readers.loc[(readers["method"] == FUSED) & _on(readers, view.roster), "reader"]
    return max(fused, key=lambda reader: str(reader).count("+"), default="")


def of_fused(rows: pieces.Rows) -> pieces.Rows:
    """Rows of a figure about the fused readout; none on a roster without one."""
    return lambda cache, view: rows(cache, view) if fused_reader(cache, view) else pd.DataFrame()


def readouts(cache: QueryCache, view: View) -> pd.DataFrame:
    """Readouts measured here on the roster, and what they are compared with: columns reader, method, group, words."""

    def compute() -> pd.DataFrame:
        readers = cache.ask(queries.readers)
        rows = readers[
            readers["method"].isin(list(MEMBERS))
            & readers["origin"].eq("measured")
            & _on(readers, view.roster)
            & (readers["view"].eq("ur") | readers["proxy"].isna() | readers["method"].eq("encoder-lengths"))
        ]
        order = {method: place for place, method in enumerate(MEMBERS)}
        whole = rows["reader"] == fused_reader(cache, view)
        rows = rows.assign(
            place=rows["method"].map(order).mask(whole, -1),
            alone=~rows["reader"].str.contains("+", regex=False),
            group=rows["method"].map(GROUP_OF).mask(whole, ""),
        ).sort_values(["place", "alone"], kind="stable")
        proxies = rows["proxy_name"]
        several = rows.groupby("method")["reader"].transform("count") > 1
        short = brief_names(list(proxies.dropna().unique()))
        words = [
            f"{MEMBERS[method]} · {short[proxy]}" if many and isinstance(proxy, str) else MEMBERS[method]
            for method, proxy, many in zip(rows["method"], proxies, several, strict=True)
        ]
        return rows[["reader", "method", "group"]].assign(words=words).reset_index(drop=True)

    return cache.once(f"readouts {view.roster}", compute)


def brief_names(proxies: Sequence[str]) -> dict[str, str]:
    """Names of proxies, of several together too, cut to as many of their parts as tell single proxies apart."""
    single = {name for names in proxies for name in names.split(" + ")}
    cut = {name: name for name in single}
    for parts in range(max((name.count("-") for name in single), default=0) + 1, 0, -1):
        shorter = {name: "-".join(name.split("-")[:parts]) for name in single}
        if len(set(shorter.values())) == len(single):
            cut = shorter
    return {names: " + ".join(cut[name] for name in names.split(" + ")) for names in proxies}


def _on(readers: pd.DataFrame, roster: str) -> npt.NDArray[np.bool_]:
    """Which readers hold something of a roster."""
    return np.array([roster in rosters for rosters in readers["rosters"]], dtype=bool)


def goal_frame(cache: QueryCache, view: View) -> pd.DataFrame:
    """Every aim with the answers of the fused readout, of READER and word n-grams here, and the best published."""
    here, fused, known = readouts(cache, view), fused_reader(cache, view), cache.ask(queries.readers)
    who = {
        "readout": [fused] if fused else [],
        "reader": list(here.loc[here["method"] == READER_PAPER, "reader"]),
        "words": list(here.loc[here["method"] == WORDS, "reader"]),
        "paper": list(known.loc[known["origin"] == "published", "reader"]),
    }
    everyone = [reader for readers in who.values() for reader in readers]
    metrics = ("accuracy", "accuracy_low", "accuracy_high")
    stored = settled(cache.ask(queries.summaries, everyone, view.roster, metrics))
    # An interval counts where it is that of the accuracy's own groups.
    keys = ["reader", "benchmark", "condition", "k", "reduction", "groups"]
    wide = stored.pivot_table(index=keys, columns="metric", values="value", sort=False).reset_index()
    wide = wide.reindex(columns=[*keys, *metrics]).dropna(subset="accuracy")

    def best(aim: Aim, readers: Sequence[str]) -> pd.DataFrame:
        same = wide["benchmark"].eq(aim.benchmark) & wide["condition"].eq(aim.condition) & wide["k"].eq(aim.k)
        return wide[same & wide["reader"].isin(readers)].nlargest(1, "accuracy")

    # One READER stands for all, that which is right most often with one trace.
    who["reader"] = list(best(AIMS[0], who["reader"])["reader"])
    aimed = view.roster == AIMED_ROSTER
    rows = [
        {
            "row": aim.words, "k": aim.k, "aim": aim.value if aimed else np.nan, "answer": answer,
            "name": cache.reader_name(top.reader), "value": top.accuracy,
            "low": top.accuracy_low, "high": top.accuracy_high, "reader": top.reader,
            "condition": aim.condition, "groups": top.groups,
        }
        for aim in AIMS
        for answer, readers in who.items()
        for top in tables.rows(best(aim, readers))
    ]  # fmt: skip
    columns = ["row", "k", "aim", "answer", "name", "value", "low", "high", "reader", "condition", "groups"]
    return pd.DataFrame(rows, columns=columns)


def is_published(cache: QueryCache, view: View) -> bool:
    """Whether a published number stands beside ours on the roster."""
    return bool(goal_frame(cache, view)["answer"].eq("paper").any())


def _calibration(cache: QueryCache, view: View) -> str:
    """The worst calibration error of the fused readout, in a sentence."""
    frame = cache.ask(queries.summaries, [fused_reader(cache, view)], view.roster, ("ece_calibrated",))
    clean = frame[(frame["condition"] == "clean") & (frame["benchmark"] == "agent500")]
    clean = clean[clean["reduction"] == "pooled"]
    if clean.empty:
        return ""
    worst = float(clean["value"].max())
    aim = f" (target: {100 * WORST_ECE:.0f})" if view.roster == AIMED_ROSTER else ""
    return (
        " Once calibrated, the stated probabilities of the fused readout are off by at most "
        f"{100 * worst:.1f} points on average{aim}, at the K where they are worst."
    )


def goal_table(cache: QueryCache, view: View) -> pd.DataFrame:
    """:func:`goal_frame` in plain words, without columns that hold nothing on this roster."""
    frame = goal_frame(cache, view).drop(columns=["k", "reader", "condition"])
    frame = frame.assign(answer=[dots.ANSWERS[answer].words for answer in frame["answer"]])
    names = {"row": "traces", "aim": "target", "answer": "readout", "name": "reader", "value": "accuracy"}
    return frame.rename(columns=names).dropna(axis=1, how="all")


def reached(cache: QueryCache, view: View) -> FigureView:
    """What the fused readout reaches next to the best published, and what was aimed for."""
    frame = goal_frame(cache, view)
    if frame.empty or not fused_reader(cache, view):
        return _unmeasured(cache, view, "fused readout")
    published = frame[frame["answer"] == "paper"].set_index("row")["name"].map(_brief_name)
    names = {row: row for row in dict.fromkeys(frame["row"])}
    names |= {row: f"{row}\n({name})" for row, name in published.items()}
    marks = f"No number is published for {view.roster}: all are measured here. "
    if len(published):
        marks = "Hollow, named in brackets: the best published; no brackets: no published number. "
    marks += "" if frame["aim"].isna().all() else "Ticks: our own goals, set before anything was measured. "
    own = frame.loc[frame["answer"] == "reader", "reader"].unique()
    probe = "".join(f" (READER: {cache.proxy_name(reader)})" for reader in own)
    details = (
        "The best published is picked out of every reader that the paper publishes. DC alone: the mean of the proxy's "
        "states over a response, without their drift. Targets were set before the readouts were built. Thick bars: "
        f"95 % intervals, where they are stored. {grouped_words(frame)}Balanced and adapted: with unlabelled responses."
        f"{_calibration(cache, view)}"
    )
    sentence: shell.Children = [
        "Numbers: the ",
        shell.term("fused readout", FUSED_HELP),
        f" of {cache.proxy_name(fused_reader(cache, view))}{probe}. {marks}",
        shell.term("Bars, names and calibration", details),
        f". n = {view.roster.removesuffix('-way')} sources.",
    ]
    return FigureView(dots.goal_rows(frame, names, theme=view.theme), sentence)


def _brief_name(name: str) -> str:
    """Method and proxy of a reader's name."""
    return " · ".join(name.split(" · ")[:2])


def reached_answer(cache: QueryCache, view: View) -> list[Component | str]:
    """What the fused readout and the best published reach on whole responses, and how many targets it reaches."""
    frame = goal_frame(cache, view)
    at: Any = frame[frame["row"] == AIMS[2].words].set_index("answer")
    if "readout" not in at.index:
        return [f"The fused readout has not been measured for {view.roster}."]
    fused = _fused_words(cache, fused_reader(cache, view))
    lead = f"With {AIMS[2].words} of whole responses, {fused} names "
    size = pieces.roster_size(cache, view)
    sentence: list[Component | str] = [
        lead,
        html.Strong(percent(at.at["readout", "value"])),
        f" of {size} sources right",
    ]
    if "paper" in at.index:
        name, value = at.loc["paper", ["name", "value"]]
        paper = html.A("the paper", href="/methods#paper")
        return [
            *sentence,
            ", the best that ",
            paper,
            f" publishes ({_brief_name(name)}) {percent(value)} (not tested).",
        ]
    sentence += [f", READER here {percent(at.at['reader', 'value'])}" if "reader" in at.index else "", "."]
    near = dataclasses.replace(view, roster=AIMED_ROSTER, readers=())
    if AIMED_ROSTER not in set(cache.ask(queries.rosters)["roster"]):
        return sentence
    link = html.A(f"show {AIMED_ROSTER}", href=f"{PATH}?{near.query()}")
    return [*sentence, f" The paper publishes numbers for {AIMED_ROSTER} alone: ", link, "."]


def _fused_words(cache: QueryCache, fused: str) -> str:
    """The fused readout by its proxies, of which another roster may have more."""
    return f"the fused readout of {cache.proxy_name(fused)}"


def members_answer(cache: QueryCache, view: View) -> list[Component | str]:
    """What the fused readout reaches on whole responses, without its networks too, and its best member alone."""
    frame = member_rows(cache, view)
    whole: Any = frame[frame["series"] == "clean"].set_index("reader")
    fused = fused_reader(cache, view)
    if fused not in whole.index:
        return [f"The fused readout has not been measured for {view.roster} with {traces(view.k)}."]
    sentence: list[Component | str] = [f"With {traces(view.k)} of whole responses, {_fused_words(cache, fused)} names "]
    sentence += [html.Strong(percent(whole.at[fused, "value"])), f" of {pieces.roster_size(cache, view)} sources right"]
    alone = whole["group"] == MEMBER
    parts = {"without networks": whole["method"] == LINEAR, f"the best of its {alone.sum()} members alone": alone}
    for words, rows in parts.items():
        for row in tables.rows(whole[rows].nlargest(1, "value")):
            name = f" ({row.words})" if row.group == MEMBER else ""
            less = "" if row.group == MEMBER else f" ({points(whole.at[fused, 'value'], row.value)} less)"
            sentence.append(f", {words}{name} {percent(row.value)}{less}")
    return [*sentence, "."]


def gains_answer(cache: QueryCache, view: View) -> list[Component | str]:
    """How often the fused readout is better and worse than another by more than luck."""
    frame = gain_rows(cache, view) if fused_reader(cache, view) else pd.DataFrame()
    if frame.empty:
        return [f"No difference of a fused readout has been tested for {view.roster}."]
    budgets = " and ".join(series.words for key, series in _budgets(view).items() if key in set(frame["series"]))
    clear, ahead = frame["clear"], frame["difference"] > 0
    better, worse = int((clear & ahead).sum()), int((clear & ~ahead).sum())
    return [
        f"Whole responses, {budgets}: the fused readout is better in ",
        html.Strong(f"{better} of {len(frame)}"),
        f" comparisons, the same within luck in {len(frame) - better - worse or 'none'}, worse in {worse or 'none'}.",
    ]


def _in_order(frame: pd.DataFrame, readers: Sequence[str]) -> pd.DataFrame:
    order = {reader: place for place, reader in enumerate(readers)}
    return frame.sort_values("reader", key=lambda column: column.map(order), kind="stable")


def member_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """Accuracy at K of the readouts and their members, whole and shortened, and on Math100."""
    here = readouts(cache, view)
    readers = list(here["reader"])
    stored = settled(cache.ask(queries.summaries, readers, view.roster, ("accuracy",)))
    parts = []
    for series in LENGTHS:
        benchmark, condition = ("math100", "clean") if series == "math100" else (home(cache, view), series)
        if series == "clean":
            part = accuracies(cache, readers, view.roster, benchmark, condition, view.k)
        else:
            at = (stored["benchmark"] == benchmark) & (stored["condition"] == condition) & (stored["k"] == view.k)
            part = stored[at][["reader", "origin", "reduction", "value", "std", "n"]].assign(low=np.nan, high=np.nan)
        parts.append(part.assign(series=series, responses=LENGTHS[series].words))
    frame = _in_order(pd.concat(parts, ignore_index=True).merge(here, on="reader"), readers)
    return frame.assign(row=frame["reader"], name=frame["words"]).reset_index(drop=True)


def members(cache: QueryCache, view: View) -> FigureView:
    """What the members of the fused readout bring."""
    frame = member_rows(cache, view)
    if not fused_reader(cache, view):
        return _unmeasured(cache, view, "members of a fused readout")
    axis = f"Accuracy at {traces(view.k)}"
    names: dict[str, str] = {}
    for group in frame["group"].unique():
        names |= ({group: group} if group else {}) | row_names(frame[frame["group"] == group])
    figure = dots.dot_rows(frame, names, LENGTHS, theme=view.theme, axis=axis, usual=["clean"], unit="groups")
    sentence = (
        "A member is worth what the fused readout loses without it: compare a row under With less to the first. "
        "Thick bars: 95 % intervals, where they are stored; thin ones: "
        f"{pieces.FOLDS}. Numbers: whole responses. n = {frame['row'].nunique()} readouts, all measured here."
    )
    return FigureView(figure, sentence)


def _budgets(view: View) -> Mapping[str, Series]:
    """Budgets of the tests that are shown: the chosen one, and one trace."""
    here = {f"accuracy@{view.k}": Series(traces(view.k), "circle", -1, 0)}
    return {"accuracy@1": Series(traces(1), "diamond", 1, 1)} | here if view.k > 1 else here


def gain_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    """The fused readout less every other, with interval and p, at one trace and at K."""
    fused, here = fused_reader(cache, view), readouts(cache, view)
    tests = cache.ask(queries.paired_tests, fused, list(here["reader"]), view.roster)
    tests = tests[tests["measure"].isin(list(_budgets(view))) & tests["reader"].ne(fused)]
    tests = tests.sort_values("p_holm", ascending=False, kind="stable").drop_duplicates(["reader", "measure"])
    frame = tests.rename(columns={"method": "test"}).merge(here, on="reader")
    frame = frame.assign(
        row=frame["reader"],
        name=frame["words"],
        series=frame["measure"],
        origin="measured",
        # The stored difference is the other one less the fused readout.
        difference=-frame["difference"],
        low=-frame["high"],
        high=-frame["low"],
        p_text=[corrected_words(*p) for p in tables.rows(frame, "p_value", "p_holm")],
        p_raw=[p_words(p) for p in frame["p_value"]],
        clear=frame["p_holm"] < 0.05,
    )
    columns = ["row", "name", "series", "origin", "difference", "low", "high", "p_value", "p_holm", "together", "n"]
    columns += ["test", "p_text", "p_raw", "clear", "hypotheses"]
    return _in_order(frame, list(here["reader"]))[columns].reset_index(drop=True)


def gains(cache: QueryCache, view: View) -> FigureView:
    """Is the fused readout better by more than luck?"""
    frame = gain_rows(cache, view) if fused_reader(cache, view) else pd.DataFrame()
    if frame.empty:
        return _unmeasured(cache, view, "paired test of a fused readout")
    words = {"axis": "Fused readout less this one, accuracy", "compared": "fused less this, at"}
    figure = dots.difference_rows(frame, row_names(frame), _budgets(view), theme=view.theme, **words)
    absent = [series.words for key, series in _budgets(view).items() if key not in set(frame["series"])]
    missing = f" No test is stored at {' or '.join(absent)}." if absent else ""
    here = readouts(cache, view)
    known = here["reader"].isin([*frame["row"], fused_reader(cache, view)])
    untested = here.loc[~known, "words"]
    many, listed = f"{len(untested)} of {len(here) - 1} others", "; ".join(untested)
    few = len(untested) <= FEW
    rest: list[Component | str] = [" ", many if few else shell.term(many, listed), " were not tested"]
    rest = [*rest, f" ({listed})." if few else "."] if len(untested) else []
    sets = frame.groupby("hypotheses")["together"].first()
    usual = frame["hypotheses"].mode()[0]
    apart = "; ".join(
        f"{count} for {' and '.join(dict.fromkeys(frame.loc[frame['hypotheses'] == name, 'name']))}"
        for name, count in sets.drop(usual).items()
    )
    sizes = f"the {sets[usual]} comparisons that were made together{f' ({apart})' if apart else ''}"
    least = "; ≤: no flip was as extreme" if frame["p_text"].str.contains("≤").any() else ""
    encoder = _encoder_gain(cache, view)
    if encoder:
        rest += [" ", shell.term("Not drawn: a fine-tuned encoder", encoder), "."]
    sentence: shell.Children = [
        "Right of zero the fused readout is better than the other, on the same groups of whole Agent500 responses. "
        "Bars: 95 % intervals, uncorrected; p: by sign flips, ",
        shell.term("Holm-corrected", HOLM_HELP),
        f" over {sizes}{least}; from .05 up it may be luck.{missing}",
        *rest,
        f" n = {int(frame['n'].max())} clusters of fold and source.",
    ]
    return FigureView(figure, sentence)


def _encoder_gain(cache: QueryCache, view: View) -> str:
    """What a fine-tuned encoder brings to the fused readout of the same proxies, in a sentence."""
    here = readouts(cache, view)
    for reader in here.loc[here["method"] == TUNED, "reader"]:
        plain = str(reader).replace(TUNED, FUSED, 1)
        tests = cache.ask(queries.paired_tests, plain, [reader], view.roster).drop_duplicates("measure")
        found: Any = tests.set_index("measure")
        gains = [
            f"{plots.signed(found.at[key, 'difference'])} at {series.words} "
            f"({corrected_words(found.at[key, 'p_value'], found.at[key, 'p_holm'])})"
            for key, series in _budgets(view).items()
            if key in found.index
        ]
        if gains:
            return f"Added to the members of {cache.proxy_name(plain)} it brings {' and '.join(gains)}"
    return ""


goals_builds = pieces.accuracy_builds(lambda cache, view: goal_frame(cache, view)["reader"])
members_builds = pieces.accuracy_builds(lambda cache, view: readouts(cache, view)["reader"])


def gains_builds(cache: QueryCache, view: View) -> tuple[str, dict[str, object]]:
    """Rows behind the tests."""
    frame = gain_rows(cache, view) if fused_reader(cache, view) else pd.DataFrame()
    return "comparisons", {"hypotheses": tuple(frame["hypotheses"].unique()) if len(frame) else ""}


def _unmeasured(cache: QueryCache, view: View, what: str) -> FigureView:
    rosters = cache.ask(queries.rosters)["roster"]
    others = rosters[rosters != view.roster]
    views = [dataclasses.replace(view, roster=roster, readers=(), figure=view.figure or "reached") for roster in others]
    ways = [(f"Show {near.roster}", f"{PATH}?{near.query()}") for near in views if fused_reader(cache, near)]
    command = f"python -m jobs evaluate --stage readouts --roster {view.roster}"
    return drawing.nothing(view, f"There is no {what} for {view.roster}", f"Measure it with: {command}", ways)
