"""The result of a comparison of two windows, or with a reference, as a page that prints."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps
from scipy.stats import binomtest

from backend.attribution import drift_report
from backend.attribution.drift_report import (
    MEASURE_MEANINGS,
    compare_measures,
    expected_words,
    p_scale,
    size_text,
    size_words,
)
from backend.attribution.reference_check import AGAINST, MEANINGS, SUPPORTS, headline, odds_of, rule_words
from backend.attribution.report_page import FRAME, axes, font_faces
from backend.attribution.report_words import date_words, keep_together
from backend.inference.drift import ALIKE, DIFFERENT, KINDS, LEVEL, level_text, named, p_text_of

COLOURS = {DIFFERENT: "#B24242", AGAINST: "#B24242", SUPPORTS: "#2A8B54"}
UNDECIDED = "#55606C"
OPEN = "#8F5F00"  # a difference whose cause cannot be told
SIGNATURES = ("Compared by (name, date, signature)", "Reviewed by (name, date, signature)")
EXACT = f"The same model asked twice is called different in {100 * LEVEL:g} % at most, by design. "  # on equal prompts
HASHED = "of its content, time of the run included: every run has its own"  # what a result's hash is of
SIGNS = {DIFFERENT: "≠", AGAINST: "≠", SUPPORTS: "="}
RULES = {
    DIFFERENT: f"the p value is {level_text(LEVEL)} or below: the answers differ by more than chance.",
    ALIKE: "the p value is above that: no change was seen. How large a change would have been seen is said below.",
}
"""What the answers of two windows mean."""
LOOKS = {"same": "#55606C", "sibling": "#0F7EA3", "family": "#8F5F00"}
"""Colours of the kinds of pairs."""
LINE = 14  # height of a line of a chart's text
COUNTED = "Of the "  # begins a note that says how many traces were compared
NOT_WHOSE = "Such a test sees whether answers differ, and not whose they are."
NOT_ALL_SIBLINGS = (
    "Siblings that write more alike than those tested are told apart less often: small models of ours, asked twice, "
    "were (rates on the page Methods)."
)
NOT_WHAT = "Nor does it see what changed: the model, its settings, a system prompt or a filter."
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
    half = not reference and drift_report.cause_open(test) != ""
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
        limits=limits_of(test),
        chart=None if reference else power_chart(test),
        fonts=font_faces(),
        measures=compare_measures(test),
        opening=MEASURE_MEANINGS["alike"],
        signatures=SIGNATURES,
        hashed=HASHED,
        meanings=MEANINGS if reference else RULES,
        expected=(EXACT if test["paired"] else "") + expected_words(test),
        headline=headline(test) if reference else drift_report.headline(test),
        half=half,
        sign=sign_of(test),
        word=drift_report.verdict_words(test),
        rule=rule_words(test) if reference else "",
        further=drift_report.further_step(test),
        columns=drift_report.columns_words(test),
    )


def sign_of(test: Mapping[str, Any]) -> str:
    """The sign of a comparison's answer: colour alone is not seen by all."""
    return SIGNS.get(test["verdict"], "?" if "rivals" in test else "=")


def power_chart(test: Mapping[str, Any]) -> dict[str, Any] | None:
    """Coordinates of how often the test speaks on real pairs, against the traces of a window; None if not measured."""
    kind = f"energy{'-paired' if test['paired'] else ''}"
    # Unchanged sources were mostly measured on different prompts alone.
    rows = {
        (row["scenario"], int(row["k"])): row
        for statistic in ("energy", kind)
        for row in test["validation"]
        if row["statistic"] == statistic and (statistic == kind or row["scenario"] == "same")
    }
    if not rows:
        return None
    tested, smaller = sorted({k for _, k in rows}), min(test["before"], test["after"])
    x, y = axes(max(*tested, smaller), 0, 1, first=min(*tested, smaller) / 1.5)
    lines, free = [], 0.0
    last = {name: value["value"] for (name, _), value in sorted(rows.items(), key=lambda row: row[0][1])}
    for name in sorted(last, key=lambda name: -last[name]):
        points = [(x(k), y(rows[name, k]["value"])) for k in tested if (name, k) in rows]
        ends = [_interval(rows[name, k]) for k in tested if (name, k) in rows]
        free = max(free, points[-1][1] + 4)
        lines.append(
            {"name": KINDS[name], "colour": LOOKS[name], "points": points, "label": free,
             "line": " ".join(f"{across},{up}" for across, up in points),
             "bars": [(across, y(high), y(low)) for (across, _), (low, high) in zip(points, ends, strict=True)]}
        )  # fmt: skip
        free += LINE
    return {
        **FRAME,
        "lines": lines,
        "ticks": [(x(k), f"{k:,}") for k in tested],
        "marks": [(y(share), f"{100 * share:g} %") for share in (0, 0.5, 1)],
        "own": x(smaller),
        "smaller": smaller,
        "other_prompts": test["paired"] and any(row["statistic"] == "energy" for row in rows.values()),
        "pairs": min(int(row["n"]) for row in rows.values()),
    }


def _interval(row: Mapping[str, Any]) -> tuple[float, float]:
    """95 % interval (Wilson) of a share of so many pairs."""
    ends = binomtest(round(row["value"] * row["n"]), int(row["n"])).proportion_ci(method="wilson")
    return float(ends.low), float(ends.high)


def limits_of(test: Mapping[str, Any]) -> list[str]:
    """What a comparison cannot say; how many traces of each file were compared, and why, in one of these."""
    counted = [note.rstrip(".").partition(": ") for note in test["notes"] if note.startswith(COUNTED)]
    others = [note for note in test["notes"] if not note.startswith(COUNTED)]
    always = [NOT_WHOSE, *([] if "rivals" in test else [NOT_WHAT]), *([NOT_ALL_SIBLINGS] if test["power"] else [])]
    if len({why for _, _, why in counted}) != 1:
        return [*always, *test["notes"]]
    why = counted[0][2]
    many = "; ".join(many for many, *_ in counted).replace("; Of", "; of")
    return [*always, f"{many}: {why}." if why else f"{many}.", *others]


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
