"""What a comparison found, or a check of a report: answers in words, their tests, and what to do next."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from itertools import takewhile
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pandas as pd
from dash import dcc, html
from dash.development.base_component import Component

from atlas import shell
from atlas.data import QueryCache, questions
from atlas.figures import plots, tables
from atlas.figures.evidence import DRIFT_KINDS, drift_power
from atlas.figures.plots import count
from atlas.pages import pieces
from atlas.pages.attribute import sections
from atlas.pages.attribute.sections import live, number_cell
from atlas.theme import Theme
from backend.attribution.comparison_page import (
    COUNTED,
    EXACT,
    HASHED,
    RULES,
    SIGNATURES,
    limits_of,
    numbers_of,
    question_of,
    sign_of,
)
from backend.attribution.drift_report import (
    MEASURE_MEANINGS,
    MOST,
    cause_open,
    columns_words,
    compare_measures,
    expected_words,
    further_step,
    p_scale,
    side_by_side,
    size_text,
    size_words,
    verdict_words,
)
from backend.attribution.drift_report import headline as windows_headline
from backend.attribution.reference_check import (
    AGAINST,
    MEANINGS,
    REFERENCE,
    SUPPORTS,
    headline,
    odds_of,
    odds_text,
    rule_words,
)
from backend.attribution.report_words import date_words, keep_together
from backend.errors import AtlasError, ChangedResultError
from backend.inference.drift import ALIKE, DIFFERENT, FEWEST_PAIRED, KINDS, NOT_LIKE, named, outcome_ratios, p_text_of
from backend.intake.traces import short
from backend.store import page_queries

if TYPE_CHECKING:
    from backend.attribution.verify import Check
QUOTED = 400  # characters of a text that a changed page shows
BEFORE = 80  # of them before the first one in which two long texts differ
OPEN = 5  # differences that are shown at once
P_HELP = (
    "How often the same traces, shuffled into two windows at random, look at least as different. At .05 or below the "
    "windows are called different. It says nothing about the size of a change."
)
PAIRED_HELP = (
    "How often answers swapped within prompts look at least as different. Two draws of one source pass .05 in 95 of "
    "100 comparisons, whatever they are about. It says nothing about the size of a difference."
)
DISTANCE_HELP = "Distance of the two sides' fingerprints; 0 for equal ones"
RATIO_HELP = (
    "How much more often the one than the other gives such an outcome, by the ecosystem's validation. "
    "None is stated on prompts of another kind than the enrolled ones."
)
SHA_HELP = "Hash of the whole report, computed from this file; whoever made it can read theirs out to you"
CHANGED = "The file was changed after it was made: its own hash is not the one that it states. "
KEEP = (
    "Keep the report with its traces. Compare the hash below with the one that its maker reads out: anybody can write "
    "another report with a hash that fits it."
)
DROP = "Drop its traces as well."
WHICH = "Drop its traces as well: read again, they show which of its numbers were changed."
ORIGINAL = (
    "Do not rely on this file. Ask its maker for the original and its hash, or ask the question yourself: give the "
    "traces to One set of traces."
)
AS_MADE = (
    "The file's own hash is the one that it states. Look at the differences: other code may word a report anew, and "
    "then the same code has to check it. Anything else is a reason to ask its maker."
)
OTHER_PAGE = (
    "Do not rely on what the page shows: the hash below is that of the data in it. Ask its maker for the original, or "
    "read the numbers in the data."
)
PAGE_UNSEEN = "DATA UNCHANGED, PAGE NOT CHECKED"
UNSEEN_PAGE = (
    "Do not rely on what the page shows. Read the answer out of its data, below, or check the page with the program "
    "that wrote it: its code version is in the report."
)
LARGEST_HELP = "Largest difference of a trace's log-posterior between the report and this run, in nats"
AFTER_WINDOWS = {DIFFERENT: "See every change: Watch", ALIKE: "Look every night: Watch"}
OTHER_KIND = (
    "Whose answers they are cannot be decided here: these prompts are not known to be of the enrolled kind, on which "
    "alone error rates were measured."
)
POWER = ["k", "scenario", "statistic", "value", "n", "roster"]


def power(cache: QueryCache, reader: str, roster: str, own: Sequence[Mapping[str, Any]] = ()) -> pd.DataFrame:
    """How often the test spoke on real pairs (columns of :data:`POWER`); empty where that was not measured.

    Those of the ecosystem's roster in the served generation, else the ecosystem's ``own`` rows, else those of the
    largest roster with the same reader.
    """
    rows = pd.DataFrame(columns=POWER)
    if cache.problem() is None:
        measured = cache.ask(page_queries.drift, reader)
        rows = measured[measured["space"] == "fingerprints"]
    if len(here := rows[rows["roster"] == roster]):
        return here
    if own:
        return pd.DataFrame(own).assign(roster=roster)
    return rows[rows["roster"] == rows["roster"].iloc[0]] if len(rows) else rows


def tone_of(test: Mapping[str, Any]) -> tuple[str, str]:
    """Colour and sign of a comparison's answer."""
    if cause_open(test):  # the questions may have changed alone
        return "open verdict-half", sign_of(test)
    tones = {DIFFERENT: "AGAINST", "AGAINST": "AGAINST", "SUPPORTS": "SUPPORTS"}
    return tones.get(test["verdict"], "INCONCLUSIVE"), sign_of(test)


def sheet(test: Mapping[str, Any]) -> list[Component]:
    """A comparison on one sheet of a brief: question, answer, numbers, the rule of the answer, limits and hashes."""
    reading, names = test["reading"], [named(window) for window in test["windows"]]
    who = sections.proxy_name(questions(), SimpleNamespace(**reading))
    files = [
        html.Div([name, html.Br(), html.Span(f"sha256 {window['file']['sha256']}", className="mono")], className="long")
        for name, window in zip(names, test["windows"], strict=True)
    ]
    facts = {
        "Compared by": f"Fingerprints of {who} (enrolment {reading['enrolment']})",
        "Date": date_words(test["created"]),
        "Files": files,
        "Result's hash": [html.Span(f"sha256 {test['sha256']}", className="mono"), f" ({HASHED})"],
    }
    sign, reference = tone_of(test), "rivals" in test
    given = [verdict_words(test), *_headline(headline(test) if reference else windows_headline(test))]
    return [
        html.P("Provenance Atlas", className="kicker"),
        html.H2(question_of(test), className="brief-title", dir="auto"),
        sections.answer_box(
            sign[0],
            [html.Span(" against ".join(names), dir="auto")],
            (f"sheet-{'reference' if reference else 'windows'}", sign[1], given),
            html.P(keep_together(test["sentence"]), className="verdict-sentence"),
            _next_step(f"{test['next_step']} {further_step(test)}".strip()),
        ),
        html.H3("The numbers"),
        shell.facts({name: f"{value}: {scale}" for name, value, scale in numbers_of(test)}, className="facts"),
        *_measures(test, paper=True),
        *[html.P(rival["sentence"], className="long", dir="auto") for rival in test.get("rivals", ())],
        html.H3("The rule of this answer"),
        *([html.P(rule_words(test))] if reference else []),
        html.Ul(
            [
                html.Li([html.Strong(word) if word == test["verdict"] else word, f": {meaning}"])
                for word, meaning in (MEANINGS if reference else RULES).items()
            ],
            className="findings",
        ),
        html.H3("What such a test sees"),
        html.P(keep_together((EXACT if test["paired"] else "") + expected_words(test))),
        html.H3("Limits"),
        html.Ul([html.Li(limit) for limit in limits_of(test)], className="limits"),
        html.H3("What was compared"),
        shell.facts(facts, className="facts"),
        html.Div([html.Div(line) for line in SIGNATURES], className="signatures"),
    ]


def _headline(text: str) -> list[Component]:
    return [html.Span(shell.unbroken(text), className="verdict-means", dir="auto")] if text else []


def windows_answer(test: Mapping[str, Any], rows: pd.DataFrame, theme: Theme) -> Component:
    """Verdict of the drift test, and what it could have seen (rows from :func:`power`)."""
    tone, sign = tone_of(test)
    before, after = (html.Span(named(window), dir="auto") for window in test["windows"])
    kind = "energy-paired" if test["paired"] else "energy"
    # The data hold one answer a prompt, so false alarms were measured on windows of different prompts only.
    measured = rows[rows["statistic"].eq(kind) | (rows["statistic"].eq("energy") & rows["scenario"].eq("same"))]
    both, smaller = test.get("prompts_in_both"), min(test["before"], test["after"])
    paired = ("all", "each prompt's two answers are compared") if test["paired"] else ("not all", "")
    if not test["paired"] and both is not None:
        where = ", by the smaller one's traces" if test["before"] != test["after"] else ""
        paired = f"{both:,} of {smaller:,}", f"prompts are in both windows{where}"
    box = sections.answer_box(
        tone,
        [before, " against ", after, " · no prompt in common" if both == 0 else ""],
        ("win-verdict", sign, [verdict_words(test), *_headline(windows_headline(test))]),
        html.P(keep_together(test["sentence"]), className="verdict-sentence"),
        _next_step(test["next_step"], *_after_windows(test)),
        _judge_of(test, ""),  # the rates stand with the figure below
        sections.facts(
            ("p value", P_HELP, p_text_of(test), p_scale(test)),
            ("Size of the change", DISTANCE_HELP, size_text(test), f"energy distance; {size_words(test)}"),
            ("Same prompts", "", *paired),
        ),
        *_measures(test),
        *map(_note, test["notes"]),
    )
    window = min(int(test["before"]), int(test["after"]))
    sees = _power_section(measured, window, theme, expected_words(test), bool(test["paired"]))
    return html.Div([box, _exports("win-export"), _as_text("win", windows_text(test)), sees])


def windows_text(test: Mapping[str, Any]) -> str:
    """The answer of the drift test as text to send."""
    return _text(test, "Two windows of one endpoint", ("First window", "Second window"))


def reference_box(test: Mapping[str, Any]) -> Component:
    """Verdict of a comparison with a reference, what such a test sees, and what to do next."""
    tone, sign = tone_of(test)
    traces, reference, *_ = (html.Span(named(window), dir="auto") for window in test["windows"])
    between = " against " if f"({REFERENCE})" in test["windows"][1]["name"] else f" against {REFERENCE} "
    warnings = [note for note in test["notes"] if not note.startswith(COUNTED)]
    claim = [" · claim: ", html.Strong(test["claimed"], dir="auto")] if test["claimed"] else []
    box = sections.answer_box(
        tone,
        [traces, between, reference, *claim],
        ("ref-verdict", sign, [test["verdict"], *_headline(headline(test))]),
        html.P(keep_together(test["sentence"]), className="verdict-sentence"),
        html.P(rule_words(test)),
        *_odds_by_own(test),
        _next_step(f"{test['next_step']} {further_step(test)}".strip(), *_after_reference(test)),
        *[html.P(rival["sentence"], className="long verdict-judge", dir="auto") for rival in test["rivals"]],
        _judge_of(test, ""),
        sections.facts(
            ("p value", PAIRED_HELP, p_text_of(test), p_scale(test)),
            ("Prompts", "", f"{test['prompts']:,}", "answered by both sides"),
            ("Size of the difference", DISTANCE_HELP, size_text(test), f"energy distance; {size_words(test)}"),
            *((name, RATIO_HELP, value, means.partition(" (")[0]) for name, value, means in odds_of(test)),
        ),
        *_measures(test),
        *map(_note, warnings[-1:]),
        _limits(test, [limit for limit in limits_of(test) if limit not in warnings[-1:]]),
    )
    return html.Div([box, _exports("ref-export"), _as_text("ref", reference_text(test))])


def in_common_words(before: Sequence[str], after: Sequence[str]) -> str:
    """How many prompts two windows share, and what follows for their test."""
    first, second = ({*prompts} - {""} for prompts in (before, after))
    both, smaller = len(first & second), min(len(first), len(second))
    many = f"{both:,} of {smaller:,} prompts in common"
    if side_by_side(before, after) is not None and FEWEST_PAIRED <= both <= MOST:
        return f"{many}: each prompt's two answers are compared."
    why = ", not each once in both windows" if both >= FEWEST_PAIRED else ""
    return f"{many}{why}: whole windows are compared, and other questions can look like another model."


def to_compare_words(traces: Sequence[str], reference: Sequence[str], needed: int | None) -> tuple[str, bool]:
    """How many prompts traces and a reference share, what follows, and whether they are enough to compare.

    needed : so many prompts at least can support a claim; None where no tested number can.
    """
    first, second = ({*prompts} - {""} for prompts in (traces, reference))
    both, rest = len(first & second), len(first - second)
    many = f"{both:,} of {len(first):,} prompts in common"
    if both >= FEWEST_PAIRED:
        compared = f"; the other {rest:,} are left out" if rest else ", all are compared"
        if needed is None:
            reach = f"This can say {AGAINST}, but not {SUPPORTS}: no tested number of prompts is enough for that."
        elif both < needed:
            reach = f"With fewer than {needed:,} this can say {AGAINST}, but not {SUPPORTS}."
        else:
            reach = f"They are enough for {SUPPORTS} where they are of the enrolled kind."
        return f"{many}{compared}. {reach}", True
    if not first:
        return "The traces name no prompts: choose the column that holds them.", False
    how = "Press Prompts to ask (JSONL), ask them at an endpoint that you trust, and drop its answers."
    return f"{many}, and a comparison needs {FEWEST_PAIRED}. {how}", False


def judged_by(reader: str, proxy: str, paired: bool | None, rates: str) -> list[Component | str]:
    """Who compares, and with which error rates; ``paired`` is None while the prompts are not known."""
    name = sections.proxy_name(questions(), SimpleNamespace(reader=reader, proxy=proxy))
    exact = EXACT if paired else ""
    where = {True: " on the same prompts. ", False: " on different prompts. ", None: ". "}[paired]
    twice = "" if paired is False or not rates else _asked_twice(questions(), name)
    return ["Judged by the fingerprints of ", html.Strong(name), f"{where}{exact}{rates}{twice}"]


def _own_rates(cache: QueryCache | None, proxy: str, most: int = 20) -> Any:
    """Rates of small models that answered so many prompts twice, at most; None where that was not measured."""
    if cache is None or cache.problem() is not None:
        return None
    rows = cache.ask(page_queries.references)
    rows = rows[rows["asked_twice"].astype(bool) & rows["reader"].eq(proxy) & rows["k"].le(most)]
    return next(tables.rows(rows.sort_values("k", ascending=False)), None)


def _asked_twice(cache: QueryCache | None, proxy: str) -> str:
    """Those rates in a sentence; '' without any."""
    if (row := _own_rates(cache, proxy)) is None:
        return ""
    sibling, family, same = (f"{100 * rate:.0f} %" for rate in (row.sibling, row.family, row.same))
    lead = f" Of small models of ours, asked {row.k} prompts twice"
    return f"{lead}: a sibling {sibling}, another family {family}, the same model {same}."


def _odds_by_own(test: Mapping[str, Any]) -> list[Component]:
    """The odds of a comparison by the rates of small models that were asked twice, which may be lower."""
    proxy = sections.proxy_name(questions(), SimpleNamespace(**test["reading"]))
    row = _own_rates(questions(), proxy, test["power"]["window"]) if test["power"] else None
    if row is None:
        return []
    rates = {"level": test["level"], "same": row.same, "sibling": row.sibling, "family": row.family}
    odds = [
        f"{odds_text(ratio)} {'for' if ratio >= 0 else 'against'} the same model over {KINDS[kind]}"
        for kind, ratio in outcome_ratios(test, rates).items()
    ]
    words = (
        f"A check by small models of ours, asked {row.k} prompts twice: {' and '.join(odds)}. The answer rests on the "
        "odds above, of enrolled sources; which of both is nearer to your endpoint is not known."
    )
    return [html.P(keep_together(words), className="hint")]


def _judge_of(test: Mapping[str, Any], rates: str) -> Component:
    reading = test["reading"]
    words = judged_by(reading["reader"], reading["proxy"], test["paired"], rates)
    return html.P([keep_together(word) for word in words], className="hint verdict-judge")


def _note(note: str) -> Component:
    """What a comparison says of itself; how many of the traces were compared is no warning."""
    return html.P(note, className="hint long" if note.startswith(COUNTED) else "flag long")


def _measures(test: Mapping[str, Any], paper: bool = False) -> list[Component]:
    """Plain measures of both sides where they differ; on paper nothing opens that explains them."""
    rows = [
        html.Tr([html.Th(name if paper else shell.term(name, meaning), scope="row"), *map(html.Td, values)])
        for (name, *values), meaning in zip(compare_measures(test), MEASURE_MEANINGS.values(), strict=False)
    ]
    where = f" of the answers to the {test['prompts']:,} prompts compared" if "prompts" in test else ""
    caption = f"Plain measures{where}; the test reads more, so both sides may be alike in these"
    heads = ["Measure", *(html.Span(named(window), className="long", dir="auto") for window in test["windows"])]
    table = shell.small_table(heads, rows, "Plain measures", "small", caption)
    return [html.Div(table, className="preview-table")] if rows else []


def _limits(test: Mapping[str, Any], limits: Sequence[str]) -> Component:
    """What a comparison with a reference cannot see, with the counts behind its odds, to open."""
    odds = [f"{name}, {value}: {means}." for name, value, means in odds_of(test)]
    lines = [*limits, keep_together(expected_words(test)), *map(keep_together, odds)]
    listed = html.Ul([html.Li(line, className="long") for line in lines], className="limits")
    return pieces.folded("Limits", html.Div([listed, _meanings(test["verdict"])]))


def _meanings(verdict: str) -> Component:
    """What each answer means in a comparison with a reference, the given one first."""
    lines = [
        html.Div([html.Dt(html.Strong(word)), html.Dd(meaning)], className="meaning-given" if word == verdict else "")
        for word, meaning in sorted(MEANINGS.items(), key=lambda entry: entry[0] != verdict)
    ]
    return html.Dl(lines, className="meanings")


def _after_windows(test: Mapping[str, Any]) -> list[Component]:
    """Where to go on: to the second window as one set of traces, and to Watch."""
    kept: dict[str, Any] = {"data-page": "/watch", "data-choices": "{}"}
    watch = html.A(AFTER_WINDOWS[test["verdict"]], href="/watch", className="forward", **kept)
    if test["verdict"] == ALIKE:
        return [watch]
    name = html.B(test["windows"][-1]["name"], className="long", dir="auto")
    steps = {
        "one": html.Span(["Ask whose answers ", name, " holds"]),
        "reference": html.Span(["Compare ", name, " with a reference of the claimed model"]),
    }
    warning = []
    if NOT_LIKE in test["notes"]:  # the reference alone: it asks for no enrolled kind of prompts
        warning = [sections.hint(OTHER_KIND)]
        del steps["one"]
    style = "button button-main" if warning else "button"
    buttons = [html.Button(words, id=live("win-whose", mode), className=style) for mode, words in steps.items()]
    return [*buttons, *warning, watch]


def _after_reference(test: Mapping[str, Any]) -> list[Component]:
    """Where the reference's own answers are compared with each other, after a difference."""
    if test["verdict"] != AGAINST:
        return []
    return [dcc.Link("Compare its first and second answers", href="/attribute?mode=two", className="forward")]


def _next_step(step: str, *places: Component) -> Component:
    more = [html.P(list(places), className="row")] if places else []
    return html.Div([html.Strong("What to do next"), html.P(step), *more], className="verdict-next")


def reference_text(test: Mapping[str, Any]) -> str:
    """The answer of a comparison with a reference as text to send."""
    words = ("Traces", "Reference", *["Rival"] * len(test["rivals"]))
    return _text(test, "Claim against reference", words, [rival["sentence"] for rival in test["rivals"]])


def _exports(identity: str) -> Component:
    choices = {"figures": "windows" if identity.startswith("win") else "reference"}
    way: dict[str, Any] = {"data-page": "/brief", "data-choices": json.dumps(choices)}
    brief = html.A("Put it into a brief", href=f"/brief?{urlencode(choices)}", **way)
    saved = [
        html.Button([shell.icon("download"), word], id=live(identity, form), className="button", title=meaning)
        for form, word, meaning in (
            ("html", "Result (HTML)", "One self-contained page to hand on; prints to PDF"),
            ("txt", "Result (text)", "The answer to send, with the command that gives it again"),
            ("json", "Result (JSON)", "All numbers, and the hashes of files and traces"),
        )
    ]
    without = html.Span("No text of any trace is in these files.", className="soft")
    return html.Div([*saved, brief, without], className="exports")


def _as_text(prefix: str, text: str) -> Component:
    """The answer as text to copy."""
    copy = html.Button("Copy", id=f"{prefix}-text-copy", className="button", **shell.aria(label="Copy the result"))
    place = html.Div([html.Pre(text, id=f"{prefix}-text", className="command"), copy], className="copyable")
    return html.Details([html.Summary("As text, with the command that gives it again"), place], className="folded")


def _text(test: Mapping[str, Any], title: str, words: Sequence[str], more: Sequence[str] = ()) -> str:
    reading = test["reading"]
    files = [f"{word}: {named(window)}, {len(window['traces']):,} traces, file sha256 {window['file']['sha256']}"
             for word, window in zip(words, test["windows"], strict=True)]  # fmt: skip
    claim = [f"Claim: {test['claimed']}"] if test.get("claimed") else []
    measures = [f"{name}: {' against '.join(values)}" for name, *values in compare_measures(test)]
    said = headline(test) if "rivals" in test else windows_headline(test)
    said = f"{said}. " if said else ""
    lines = [
        f"{title}, {date_words(test['created'])}", *claim, f"{verdict_words(test)}: {said}{test['sentence']}",
        *([rule_words(test)] if "rivals" in test else []),
        f"What to do next: {test['next_step']} {further_step(test)}".strip(), *measures, *more,
        f"What such a test sees: {expected_words(test)}",
        *test["notes"], "", *files,
        f"Read by {reading['proxy']} (enrolment {reading['enrolment']}, sha256 {reading['enrolment_sha256']})",
        f"Energy distance {size_text(test)}; {test['created']}", f"Again with: {test['command']}",
        *([columns_words(test)] if columns_words(test) else []),
        f"Result sha256 {test['sha256']} ({HASHED})",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _power_section(rows: pd.DataFrame, window: int, theme: Theme, expected: str, paired: bool) -> Component:
    title = "What would a test of this size have seen?"
    if rows.empty:
        remedy = "Measure it with: python -m jobs evaluate --stage audit --method drift, then publish"
        missing = shell.empty("The power of the test has not been measured for this reader", remedy)
        return html.Section([html.H2(title), missing], className="figure")
    roster, pairs = str(rows["roster"].iloc[0]), int(rows["n"].iloc[0])
    # The data hold one answer a prompt: an unchanged source was asked other prompts in the second window.
    apart = "; dotted: of different prompts, as no unchanged source was asked twice" if paired else ""
    sentence = (
        f"{expected} Measured at 5 % on sources of {roster}: n = {pairs} pairs a point, bars: 95 % intervals{apart}; "
        "the line marks your smaller window."
    )
    graph = sections.drawing("win-power", drift_power(rows, window, theme=theme))
    heads = ["What changed", "Traces a window", "Called different", "95 % interval"]
    body = []
    for one in tables.rows(rows.sort_values(["scenario", "k"])):
        low, high = (f"{100 * end:.0f}" for end in plots.wilson(one.value, one.n))
        cells = map(number_cell, (f"{int(one.k):,}", f"{100 * one.value:.0f} %", f"{low} to {high} %"))
        body.append(html.Tr([html.Td(DRIFT_KINDS.get(one.scenario, one.scenario)), *cells]))
    children = [
        html.H2(title),
        html.P(sentence, className="sentence"),
        html.Div(graph, style={"height": 320}, className="figure-body", role="img", **shell.aria(label=title)),
        html.Details(
            [html.Summary("The measured shares as a table"), shell.small_table(heads, body, title)], className="folded"
        ),
    ]
    return html.Section(children, className="figure", id="figure-power")


def check_answer(check: Check) -> Component:
    """Whether a report is equal to what was computed again, and where not."""
    from backend.attribution.verify import OTHER_CODE

    unseen = check.equal and check.page_unchecked
    sign, tone = ("?", "UNKNOWN") if unseen else ("=", "SUPPORTS") if check.equal else ("≠", "AGAINST")
    if check.equal and not check.traces:
        tone += " verdict-half"  # no number was computed again
    follow = check.follow
    parts = [one for one in check.differences if one not in follow]
    several = count(len(parts) or len(follow), "difference")
    if parts and follow:
        several += f", and from {'it' if len(parts) == 1 else 'them'} {len(follow)} more, at the hash of the last step"
    parts, own = [*parts, *follow], check.changed or check.page_alone or not check.traces
    unread = "" if check.traces else ", NUMBERS NOT CHECKED"
    word = PAGE_UNSEEN if unseen else f"UNCHANGED{unread}" if check.equal else "CHANGED" if own else "NOT EQUAL"
    again = f"{count(check.traces, 'trace')}, read once more,"
    if check.equal and check.traces:
        sentence = f"{again} give the report again: the same scores, the same answer ({check.verdict})."
    elif check.equal:
        sentence = "Its own hashes fit. Whether its numbers are right shows when its traces are read again."
    elif check.page_alone:
        sentence = "The page shows something else than the data in it: it was changed, or a browser saved it anew. "
        sentence += f"The data agree{' with the traces' if check.traces else ' with themselves'}."
    else:
        gives = f"{again} do not give this report" if check.traces else "It does not agree with itself"
        sentence = CHANGED * check.changed + (f"{gives}: {several}." if parts else "")
    read = (f"{check.traces:,}", "by the ecosystem of the report") if check.traces else ("none", "none were given")
    scores = (f"{check.largest:.2g}", "largest difference, in nats") if check.largest else ("equal", "to the last bit")
    if check.largest == math.inf:
        scores = ("not comparable", "the report is about other traces")
    due, what = "By its data it should be", "What was changed"
    if check.page_unchecked:
        due, what = "This program says of its data", "The answer, of the page and of its data"
    return sections.answer_box(
        tone,
        [html.Span(check.case, dir="auto"), f" · {check.created[:19].replace('T', ' ')}"],
        ("check-verdict", sign, [word]),
        html.P(f"{OTHER_CODE} {sentence}" if unseen else sentence, className="verdict-sentence"),
        _next_step(
            UNSEEN_PAGE
            if unseen
            else OTHER_PAGE
            if check.page_alone
            else KEEP
            if check.equal and check.traces
            else DROP
            if check.equal
            else (ORIGINAL if check.traces else f"{WHICH} {ORIGINAL}")
            if check.changed
            else AS_MADE
        ),
        *([_pairs(("The page shows", due), check.shown, what)] if check.shown else []),
        *([] if check.page_alone or not parts else [_differences(parts)]),
        sections.facts(
            ("Traces read", "", *read),
            *([] if check.largest is None else [("Scores of the traces", LARGEST_HELP, *scores)]),
            (
                "Hash computed",
                SHA_HELP,
                check.own_sha256[:12],
                f"sha256 {check.own_sha256}, of its data and not of the file",
            ),
            *([("Hash stated", "", check.sha256[:12], f"sha256 {check.sha256[:64]}")] if check.changed else []),
        ),
        *[html.P(note, className="hint long") for note in check.notes if not (unseen and note == OTHER_CODE)],
        **shell.aria(labelledby="check-verdict"),
    )


def other_result(name: str, error: AtlasError) -> Component:
    """Whether a result of another test is as it was made: all that can be said of it here."""
    changed = isinstance(error, ChangedResultError)
    sign, tone, word = ("≠", "AGAINST", "CHANGED") if changed else ("=", "SUPPORTS", "UNCHANGED")
    return sections.answer_box(
        tone,
        [html.Span(name, dir="auto")],
        ("check-other", sign, [word]),
        html.P(f"{error.problem}.", className="verdict-sentence"),
        _next_step(f"{error.remedy}."),
        **shell.aria(labelledby="check-other"),
    )


def _differences(found: Sequence[str]) -> Component:
    """The first differences side by side, and the others folded."""
    from backend.attribution.verify import Difference

    def shown(some: Sequence[str]) -> list[Component]:
        pairs = [one.values for one in some if isinstance(one, Difference)]
        rest = [html.Li(f"{one}.", className="long") for one in some if not isinstance(one, Difference)]
        table = _pairs(("Where", "In this file", "Computed again"), pairs)
        return [*([table] if pairs else []), *([html.Ul(rest)] if rest else [])]

    more = found[OPEN:]
    folded = html.Details([html.Summary(count(len(more), "further difference")), *shown(more)], className="folded")
    return html.Div([*shown(found[:OPEN]), *([folded] if more else [])], id="check-found")


def _pairs(heads: Sequence[str], rows: Sequence[Sequence[str]], what: str = "What was changed") -> Component:
    """Texts or values of a changed report, each with what it should be, and where the two part."""
    cells = [[*(short(part, QUOTED) for part in place), *_marked(*_around(was, now))] for *place, was, now in rows]
    body = [html.Tr([html.Td(part, dir="auto") for part in row]) for row in cells]
    return html.Div(shell.small_table(heads, body, what, "small"), className="preview-table")


def _around(*texts: str) -> list[str]:
    """Two texts, long ones from shortly before their first difference on."""
    one, other = (" ".join(text.split()) for text in texts)
    alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
    start = alike - BEFORE
    if one == other or start <= 0 or max(len(one), len(other)) <= QUOTED:
        return [short(one, QUOTED), short(other, QUOTED)]
    cut = one.find(" ", start, alike) + 1 or start
    return [short(f"… {text[cut:]}", QUOTED) for text in (one, other)]


def _marked(one: str, other: str) -> list[list[Component | str]]:
    """Two texts, in which the words are marked that the other one does not have there."""
    first, second = one.split(), other.split()
    cut, marked = "…" in (one[-1:], other[-1:]), False
    shown: list[list[Component | str]] = [[], []]
    for kind, *ends in SequenceMatcher(None, first, second, autojunk=False).get_opcodes():
        # Long texts end at other words after a first difference, which says nothing.
        alike = kind == "equal" or (cut and marked and (ends[1], ends[3]) == (len(first), len(second)))
        marked = marked or not alike
        for words, parts in zip((first[ends[0] : ends[1]], second[ends[2] : ends[3]]), shown, strict=True):
            said = " ".join(words)
            parts += [said if alike else html.Mark(said), " "] if words else []
    return [parts or ["nothing"] for parts in shown]
