"""What the evidence of an audit is worth: the validation of its statistics, part by part, as it stands in the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from backend.inference.validation import CURVES
from backend.reference.markdown import header, line
from backend.reference.results_book import ABSENT, Book, plain
from backend.reference.tables import EVALUATE

PARTS: Mapping[str, tuple[str, str]] = {
    "calibration": (
        "Calibration",
        "Errors and costs of the summed evidence *before* and *after* calibration, which is fitted on other prompts; "
        "`ece_floor` is what so many groups show by chance when every probability is right.",
    ),
    "unknown": (
        "Sources that nobody enrolled",
        "Left out one family, or one sibling a family, at a time, by removing its columns.",
    ),
    "refit": (
        "Sources that nobody enrolled, the probe fitted without them",
        "The harder test: the probe has not met the source either.",
    ),
    "transfer": (
        "Verdicts on the enrolled kind of traffic, and on another one",
        "Shares of groups of one enrolled source each. *same*: held-out enrolled prompts; *math100*: enrolled on "
        "Agent500, asked about Math100; *agent500*: the other way round; *category*: nine categories of prompts "
        "enrolled, asked about the tenth. `rejected` is what the unknown-source test alone would say, `false_unknown` "
        "what the rule says.",
    ),
    "stop": (
        "Sequential stop",
        "Stated error rates against realised ones, and how many traces a decision takes; fitted on other prompts.",
    ),
    "drift": (
        "Two windows of one endpoint",
        "Share of alarms at the stated level: *same* should stay at the level, the others near one.",
    ),
}
"""Parts of the validation in the order of an audit: title and what it shows."""
LEFT_OUT = ("scale", "bias", "cllr_pairwise_before", "cllr_pairwise_after", "accuracy_before", *CURVES)
"""Metrics that stay in the store only."""
QUALIFIERS = ("scenario", "statistic", "rule", "level", "space")
Rows = list[dict[str, Any]]


def audit_sections(book: Book, rows: Rows) -> Iterator[str]:
    """One section with a table a part.

    rows : Rows of table ``audit_validation``.
    """
    yield "## What the evidence of an audit is worth"
    yield ""
    if not rows:
        yield f"Not measured: `{EVALUATE} audit`."
        yield ""
        return
    yield f"Ours: `{EVALUATE} audit`. Budgets are columns; ± is over grouping seeds, folds or runs."
    yield ""
    for part in dict.fromkeys([*PARTS, *(row["part"] for row in rows)]):
        held = [row for row in rows if row["part"] == part and row["metric"] not in LEFT_OUT]
        if held:
            title, said = PARTS.get(part, (part.capitalize(), ""))
            yield f"### {title}"
            yield ""
            yield said
            yield ""
            yield from _table(book, held)
            yield ""


def _table(book: Book, rows: Rows) -> Iterator[str]:
    budgets = sorted({row["k"] for row in rows})
    used = [name for name in QUALIFIERS if any(row[name] is not None for row in rows)]
    cells: dict[tuple[str, ...], dict[int, dict[str, Any]]] = {}
    for row in rows:
        about = (row["reader"], row["roster"], row["condition"], *(_said(row[name]) for name in used), row["metric"])
        cells.setdefault(about, {})[row["k"]] = row
    yield from header(["reader", "roster", "responses", *used, "metric", *(f"K = {k}" for k in budgets)], 4 + len(used))
    for about, held in cells.items():
        yield line([f"`{about[0]}`", *about[1:], *(_shown(book, held.get(k)) for k in budgets)])


def _said(value: object) -> str:
    if value is None:
        return ""
    return plain(value, 2) if isinstance(value, float) else str(value)


def _shown(book: Book, row: dict[str, Any] | None) -> str:
    if row is None:
        return ABSENT
    traces = "traces" in row["metric"]
    text = f"{row['value']:.1f}" if traces else plain(row["value"])
    if row["std"] is not None:
        text += f" ± {row['std']:.1f}" if traces else f" ± {plain(row['std'])}"
    return text + book.cite([row["build_id"]])
