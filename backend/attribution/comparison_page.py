"""The result of a comparison of two windows, or with a reference, as a page that prints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps

from backend.attribution import drift_report
from backend.attribution.drift_report import compare_measures, expected_words, p_scale, size_text, size_words
from backend.attribution.reference_check import AGAINST, MEANINGS, SUPPORTS, headline, odds_of, rule_words
from backend.attribution.report_page import font_faces
from backend.attribution.report_words import date_words, keep_together
from backend.inference.drift import ALIKE, DIFFERENT, LEVEL, level_text, named, p_text_of

COLOURS = {DIFFERENT: "#B24242", AGAINST: "#B24242", SUPPORTS: "#2A8B54"}
UNDECIDED = "#55606C"
OPEN = "#8F5F00"  # a difference whose cause cannot be told
SIGNATURES = ("Compared by (name, date, signature)", "Reviewed by (name, date, signature)")
EXACT = f"The same model asked twice is called different in {100 * LEVEL:g} % at most, by design. "  # on equal prompts
HASHED = "of its content, time of the run included: every run has its own"  # what a result's hash is of
RULES = {
    DIFFERENT: f"the p value is {level_text(LEVEL)} or below: the answers differ by more than chance.",
    ALIKE: "the p value is above that: no change was seen. How large a change would have been seen is said below.",
}
"""What the answers of two windows mean."""
CHANGED = "Has the endpoint changed between the two windows?"


def write_comparison(test: Mapping[str, Any]) -> str:
    """The page of a comparison's answer: no script, nothing from outside, every text escaped."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=keep_together,
    )
    environment.filters["date"] = date_words
    reference = "rivals" in test
    half = not reference and drift_report.headline(test) != ""
    labels = ("Traces", "Reference") if reference else ("First window", "Second window")
    return environment.get_template("comparison.html").render(
        test={"rivals": [], **test},
        data=htmlsafe_json_dumps(test, allow_nan=False),
        title="Claim against reference" if reference else "Two windows of one endpoint",
        question=question_of(test),
        colour=OPEN if half else COLOURS.get(test["verdict"], UNDECIDED),
        names=[named(window) for window in test["windows"]],
        labels=[*labels, *["Rival"] * (len(test["windows"]) - 2)],
        numbers=numbers_of(test),
        fonts=font_faces(),
        measures=compare_measures(test),
        signatures=SIGNATURES,
        hashed=HASHED,
        meanings=MEANINGS if reference else RULES,
        expected=(EXACT if test["paired"] else "") + expected_words(test),
        headline=headline(test) if reference else drift_report.headline(test),
        half=half,
        word=drift_report.verdict_words(test),
        rule=rule_words(test) if reference else "",
        further=drift_report.further_step(test),
        columns=drift_report.columns_words(test),
    )


def question_of(test: Mapping[str, Any]) -> str:
    """What a comparison asks."""
    if "rivals" not in test:
        return CHANGED
    _, reference, *_ = map(named, test["windows"])
    return f"Are these the answers of {test['claimed'] or f'the model of {reference}'}?"


def numbers_of(test: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Numbers of a comparison: name, value and what it is."""
    both = test.get("prompts_in_both")
    shared = "to the same prompts, side by side"
    if not test["paired"]:
        many = {None: "not every prompt is", 0: "no prompt is"}.get(both, f"{both} of the prompts are")
        shared = f"{many} in both windows"
    numbers = [
        ("p value", p_text_of(test), p_scale(test)),
        (
            "Size of the difference" if "rivals" in test else "Size of the change",
            size_text(test),
            f"energy distance; {size_words(test)}",
        ),
        ("Traces compared", f"{test['before']:,} and {test['after']:,}", shared),
    ]
    numbers += odds_of(test) if "rivals" in test else []
    if claimed := test.get("claimed"):
        numbers.insert(0, ("Claim", claimed, "the model that the traces are said to come from"))
    return numbers
