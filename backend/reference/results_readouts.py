"""Readouts beside the paper's: what they reach, the paper's best, and what was aimed for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from backend.methods.registry import BASELINES as BASELINE_METHODS
from backend.methods.registry import CONTROLS
from backend.protocol import BUDGETS, READER_PAPER
from backend.reference.entries import BASELINES, FULL_BASELINES
from backend.reference.layout import Cell, attribution
from backend.reference.markdown import header, line, spoken
from backend.reference.results_book import ABSENT, Book, Number, as_printed, plain
from backend.reference.results_simple import SIMPLE

ROSTERS = ("100-way", "165-way")
WHOLE, FIT = "fused", "seconds to fit a fold"
OTHERS = frozenset({*BASELINE_METHODS, *CONTROLS, READER_PAPER})
"""Methods that are no readout of their own."""
COMMAND = "python -m jobs evaluate --stage readouts"


@dataclass(frozen=True)
class Goal:
    """A question to every readout.

    Attributes
    ----------
    title : str
    cells : tuple of Cell
        The worst of them counts.
    aim : float
    place, column : str
        Where the paper prints its own; empty where it does not.
    at_most : bool
        Whether less is better.
    """

    title: str
    cells: tuple[Cell, ...]
    aim: float
    place: str = ""
    column: str = ""
    at_most: bool = False

    def reached(self, value: float) -> bool:
        """Whether a value is as aimed for."""
        return value <= self.aim if self.at_most else value >= self.aim

    def of(self, book: Book, reader: str, roster: str) -> Number | None:
        """What a reader holds, None unless it answers every part of the question."""
        found = [book.number(cell.but(roster=roster), reader) for cell in self.cells]
        held = [number for number in found if number is not None]
        if not held or len(held) < len(found):
            return None
        worst = max if self.at_most else min
        return worst(held, key=lambda number: number.value)


def _accuracy(k: int, reduction: str = "pooled", **where: object) -> tuple[Cell, ...]:
    return (attribution("accuracy", k, reduction, **where),)


GOALS = (
    Goal("K = 1", _accuracy(1), 0.56, "tab:agent500_full_std", "Acc.@1"),
    Goal("K = 10", _accuracy(10), 0.90, "tab:agent500_allk", "K=10"),
    Goal("K = 20", _accuracy(20), 0.94, "tab:agent500_allk", "K=20"),
    Goal("K = 100", _accuracy(100), 0.985, "tab:agent500_full_std", "Acc.@100"),
    Goal("64 tokens, K = 100", _accuracy(100, condition="t64"), 0.97, "tab:stress_tests_full", "64 Acc."),
    Goal("32 tokens, K = 100", _accuracy(100, condition="t32"), 0.92, "tab:stress_tests_full", "32 Acc."),
    Goal(
        "Math100, K = 100, nothing of the new domain seen",
        _accuracy(100, "fold", benchmark="math100"),
        0.40,
        "tab:stress_tests_full",
        "Math100 Acc.",
    ),
    Goal(
        "Math100, K = 100, with unlabelled responses of the new domain",
        _accuracy(100, "fold", benchmark="math100", condition="background"),
        0.55,
    ),
    Goal(
        "the same, fingerprints aligned by them as well",
        _accuracy(100, "fold", benchmark="math100", condition="aligned"),
        0.55,
    ),
    Goal(
        "calibration error of the calibrated sum, worst budget",
        tuple(attribution("ece_calibrated", k, "pooled") for k in BUDGETS),
        0.03,
        at_most=True,
    ),
    Goal(FIT, (Cell("costs", "value", (("roster", ""), ("measure", "fit_seconds"))),), 900, at_most=True),
)
"""What was aimed for on Agent500 among 100 sources, before the readouts were made."""


def readout_sections(book: Book, *, wanted: bool) -> Iterator[str]:
    """Goals beside the paper's best and ours, then every readout.

    Parameters
    ----------
    book : Book
    wanted : bool
        Whether there is a stage that makes readouts, so that their absence is worth a line.
    """
    asked = measured_readouts(book)
    if not asked and not wanted:
        return
    yield "## Readouts beside the paper's"
    yield ""
    if not asked:
        yield f"Not measured: `{COMMAND}`."
        yield ""
        return
    yield (
        f"Ours: `{COMMAND}`. Same folds, groups and evidence. Weights, temperatures and calibration are fitted on "
        "inner folds; the recipe was chosen once, on fold 1 (readouts.md says what it has seen). Accuracies are "
        "pooled over folds, on Math100 the mean of the five fold models. Shortened responses are grouped inside "
        "the folds. The aims are for 100 sources. What reaches an aim or does not is one reader, the fused readout of "
        "most proxies; which of all readouts is best at a question is picked after the fact."
    )
    yield ""
    for roster in ROSTERS:
        yield from goal_table(book, asked, roster)
        yield from _table(book, asked, roster)


def measured_readouts(book: Book) -> list[str]:
    """Readers that answer a goal and are no method of the paper."""
    readers = [row["reader"] for row in book.readers if row["origin"] == "measured" and row["method"] not in OTHERS]
    return [reader for reader in readers if any(goal.of(book, reader, roster) for goal in GOALS for roster in ROSTERS)]


def goal_table(book: Book, readouts: list[str], roster: str) -> Iterator[str]:
    """Every aim with what the paper prints and what stands here."""
    held = [reader for reader in readouts if any(goal.of(book, reader, roster) for goal in GOALS)]
    if not held:
        return
    fused = [reader for reader in held if reader.partition("/")[0] == WHOLE]
    whole = sorted(fused, key=lambda reader: reader.count("+"))[-1:]
    printed = roster == ROSTERS[0]
    papers = [row["reader"] for row in book.readers if row["origin"] == "measured" and row["method"] == READER_PAPER]
    grams = [row["reader"] for row in book.readers if row["origin"] == "measured" and row["method"] in SIMPLE]
    yield from header(
        [
            *(roster, "paper's READER", "paper's baselines", "READER here", "n-grams here"),
            *("aim", "fused readout", "reached", "best of all readouts"),
        ]
    )
    missed = []
    for goal in GOALS:
        ours = _best(book, goal, whole, roster)
        sign = "≤" if goal.at_most else "≥"
        said = "" if ours is None else ("yes" if goal.reached(ours[0].value) else "**no**")
        if ours is not None and not goal.reached(ours[0].value):
            missed.append(goal.title)
        cells = [_printed_best(book, goal, baselines=side) if printed else ABSENT for side in (False, True)]
        cells += [_named(book, _best(book, goal, papers, roster)), _named(book, _best(book, goal, grams, roster))]
        cells += [f"{sign} {_plain(goal.aim)}", _named(book, ours), said]
        # The cheapest of all readouts answers no question.
        cells.append(ABSENT if goal.title == FIT else _named(book, _best(book, goal, readouts, roster)))
        yield line([goal.title, *cells])
    yield ""
    yield f"Missed at {roster}: {spoken(missed)}." if missed else f"Nothing that was measured at {roster} is missed."
    yield ""


def _table(book: Book, readouts: list[str], roster: str) -> Iterator[str]:
    """Every readout of a roster, and what it is to be compared with."""
    others = [
        row["reader"]
        for row in book.readers
        if row["origin"] == "measured" and row["method"] in (READER_PAPER, *SIMPLE)
    ]
    rows = []
    for reader in [*others, *readouts]:
        numbers = [goal.of(book, reader, roster) for goal in GOALS]
        if any(number is not None for number in numbers):
            cells = [
                ABSENT if number is None else _plain(number.value) + book.cite(number.builds) for number in numbers
            ]
            rows.append(line([f"`{reader}`", *cells]))
    if rows:
        yield f"All of them, {roster}:"
        yield ""
        yield from header(["", *(goal.title for goal in GOALS)], 1)
        yield from rows
        yield ""


def _best(book: Book, goal: Goal, readers: list[str], roster: str) -> tuple[Number, str] | None:
    held = [(number, reader) for reader in readers if (number := goal.of(book, reader, roster)) is not None]
    if not held:
        return None
    return (min if goal.at_most else max)(held, key=lambda pair: pair[0].value)


def _named(book: Book, best: tuple[Number, str] | None) -> str:
    return ABSENT if best is None else f"{_plain(best[0].value)}{book.cite(best[0].builds)} `{best[1]}`"


def _printed_best(book: Book, goal: Goal, *, baselines: bool) -> str:
    names = {row.name for row in (*BASELINES, *FULL_BASELINES)}
    asked = [p for p in book.paper if (p.place, p.column) == (goal.place, goal.column)]
    held = [p for p in asked if (p.row in names) == baselines]
    if not held:
        return ABSENT
    best = max(held, key=lambda p: p.value)
    kept = book.kept.get((best.place, best.row, best.column))
    return f"{as_printed(best.text)}{book.cite([kept['build_id']]) if kept else ''} {best.row}"


def _plain(value: float) -> str:
    return plain(value) if abs(value) < 10 else f"{value:.0f}"
