"""Readouts next to the paper's: what they reach, the paper's best, what was aimed for, and what every reader costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import duckdb

from backend.methods.registry import BASELINES, CONTROLS
from backend.protocol import READER_PAPER
from backend.reference.paper import DECLARED, Cell, question, rows_of
from backend.reference.results_findings import SIMPLE
from backend.reference.results_tables import ABSENT, Book, Number, as_printed, header, like, line, paragraphs, plain
from backend.store.result_queries import matching_rows

ROSTERS = ("100-way", "165-way")
WHOLE, FIT = "fused", "seconds to fit a fold"
OTHERS = frozenset({*BASELINES, *CONTROLS, READER_PAPER})  # no readouts
COMMAND, COST_COMMAND = (f"python -m jobs evaluate --stage {stage}" for stage in ("readouts", "cost"))


@dataclass(frozen=True)
class Goal:
    """A question to every readout."""

    title: str
    cells: tuple[Cell, ...]  # the worst of them counts
    aim: float
    place: str = ""  # where the paper prints its own; empty where it does not
    column: str = ""
    at_most: bool = False  # less is better

    def reached(self, value: float) -> bool:
        """Whether a value is as aimed for."""
        return value <= self.aim if self.at_most else value >= self.aim

    def of(self, book: Book, reader: str, roster: str) -> Number | None:
        """What a reader holds, None unless it answers every part of the question."""
        numbers = [number for cell in self.cells if (number := book.number(cell.but(roster=roster), reader))]
        if not numbers or len(numbers) < len(self.cells):
            return None
        return (max if self.at_most else min)(numbers, key=lambda number: number.value)


GOALS = tuple(Goal(**goal | {"cells": tuple(question(**cell) for cell in goal["cells"])}) for goal in DECLARED["goals"])


def readout_sections(book: Book) -> Iterator[str]:
    """Goals next to the paper's best and ours, then every readout."""
    readouts = measured_readouts(book)
    yield from paragraphs("## Readouts next to the paper's")
    if not readouts:
        yield from paragraphs(f"Not measured: `{COMMAND}`.")
        return
    yield from paragraphs(
        f"Ours: `{COMMAND}`. Same folds, groups and evidence. Weights, temperatures and calibration are fitted on "
        "inner folds; the recipe was chosen once, on fold 1 (readouts.md says what it has seen). Accuracies are "
        "pooled over folds, on Math100 the mean of the five fold models. Shortened responses are grouped inside "
        "the folds. The aims are for 100 sources. What reaches an aim or does not is one reader, the fused readout of "
        "most proxies; which of all readouts is best at a question is picked after the fact."
    )
    for roster in ROSTERS:
        yield from goal_table(book, readouts, roster)
        yield from _table(book, readouts, roster)


def measured_readouts(book: Book) -> list[str]:
    """Readers that answer a goal and are no method of the paper."""
    readers = [row["reader"] for row in book.readers if row["origin"] == "measured" and row["method"] not in OTHERS]
    return [reader for reader in readers if any(goal.of(book, reader, roster) for goal in GOALS for roster in ROSTERS)]


def goal_table(book: Book, readouts: list[str], roster: str) -> Iterator[str]:
    """Every aim with what the paper prints and what stands here."""
    answering = [reader for reader in readouts if any(goal.of(book, reader, roster) for goal in GOALS)]
    if not answering:
        return
    fused = [reader for reader in answering if reader.partition("/")[0] == WHOLE]
    whole = sorted(fused, key=lambda reader: reader.count("+"))[-1:]
    papers, grams = book.origin("measured", (READER_PAPER,)), book.origin("measured", SIMPLE)
    ours = ("READER here", "n-grams here", "aim", "fused readout", "reached", "best of all readouts")
    yield from header([roster, "paper's READER", "paper's baselines", *ours])
    missed = []
    for goal in GOALS:
        best = _best(book, goal, whole, roster)
        met = best is None or goal.reached(best[0].value)
        missed += [] if met else [goal.title]
        yield line(
            [
                goal.title,
                *(_printed_best(book, goal, roster, baselines=baselines) for baselines in (False, True)),
                *(_named(book, _best(book, goal, readers, roster)) for readers in (papers, grams)),
                f"{'≤' if goal.at_most else '≥'} {_plain(goal.aim)}",
                _named(book, best),
                "" if best is None else ("yes" if met else "**no**"),
                # The cheapest of all readouts answers no question.
                ABSENT if goal.title == FIT else _named(book, _best(book, goal, readouts, roster)),
            ]
        )
    names = " and ".join([", ".join(missed[:-1]), missed[-1]] if len(missed) > 1 else missed)
    yield from (
        "",
        f"Missed at {roster}: {names}." if missed else f"Nothing that was measured at {roster} is missed.",
        "",
    )


def _table(book: Book, readouts: list[str], roster: str) -> Iterator[str]:
    """Every readout of a roster, and what it is to be compared with."""
    rows = []
    for reader in [*book.origin("measured", (READER_PAPER, *SIMPLE)), *readouts]:
        numbers = [goal.of(book, reader, roster) for goal in GOALS]
        if any(numbers):
            rows.append(line([f"`{reader}`", *(_cited(book, number, _plain) for number in numbers)]))
    if rows:
        yield from paragraphs(f"All of them, {roster}:", [*header(["", *(goal.title for goal in GOALS)], 1), *rows])


def _best(book: Book, goal: Goal, readers: Iterable[str], roster: str) -> tuple[Number, str] | None:
    found = [(number, reader) for reader in readers if (number := goal.of(book, reader, roster)) is not None]
    return (min if goal.at_most else max)(found, key=lambda pair: pair[0].value) if found else None


def _named(book: Book, best: tuple[Number, str] | None) -> str:
    return ABSENT if best is None else f"{_cited(book, best[0], _plain)} `{best[1]}`"


def _printed_best(book: Book, goal: Goal, roster: str, *, baselines: bool) -> str:
    """The best number that the paper prints of its readers or its baselines, all of them on one roster."""
    names = {row.name for row in rows_of(["baselines", "full_baselines"])}
    numbers = [
        p for p in book.paper if (p.place, p.column) == (goal.place, goal.column) and (p.row in names) == baselines
    ]
    if not numbers or roster != ROSTERS[0]:
        return ABSENT
    best = max(numbers, key=lambda p: p.value)
    row = book.imported.get(best.key)
    return f"{as_printed(best.text)}{book.cite([row['build_id']]) if row else ''} {best.row}"


def _plain(value: float) -> str:
    return plain(value) if abs(value) < 10 else f"{value:.0f}"


def _cited(book: Book, number: Number | None, form: Callable[[float], str]) -> str:
    return ABSENT if number is None else form(number.value) + book.cite(number.builds)


def _count(value: float) -> str:
    return like(value, "1e6")


def _time(value: float) -> str:
    return plain(value, 2) if value < 10 else f"{value:.0f}"


MEASURES: dict[str, tuple[str, Callable[[float], str]]] = {
    "trainable_parameters": ("trained", _count),
    "audit_parameters": ("run a response", _count),
    "fit_seconds": ("fit of a fold, s", _time),
    "latency_ms": ("a response, ms", _time),
    "peak_memory_gb": ("memory, GB", _time),
}
"""Column and form of every measure of cost."""


def cost_sections(book: Book) -> Iterator[str]:
    """What a reader costs, a table a roster, with the machine that it was measured on."""
    yield from paragraphs("## What a reader costs")
    tables = {roster: list(_costs(book, roster)) for roster in ROSTERS}
    if not any(tables.values()):
        yield from paragraphs(f"Not measured: `{COST_COMMAND}`.")
        return
    yield from paragraphs(
        f"Ours: `{COST_COMMAND}`. Parameters that are trained and that a response runs through; a response from its "
        "text to the scores of all sources, median of three warmed runs over 256, in a process of its own. Times of "
        "different machines cannot be compared. A fit is that of one outer fold; of a stack, of every model that the "
        "fold needs. Some were fitted to random numbers of the shape of their fingerprints, as their builds say."
    )
    for roster, rows in tables.items():
        if rows:
            titles = header(["", *(title for title, _ in MEASURES.values()), "machine"], 1)
            yield from paragraphs(f"{roster}:", [*titles, *rows])


def extraction_table(cursor: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """Records a second and minutes of every extraction that was timed."""
    rows = matching_rows(cursor, "extractions", {})
    if not rows:
        yield "Not measured: `python -m jobs extract`."
        return
    yield from header(["benchmark", "proxy", "view", "blocks", "engine", "records", "records/s", "minutes"], 5)
    for row in rows:
        names = (row["benchmark"], f"`{row['proxy']}`", f"`{row['input_view']}`", row["layers"], f"`{row['engine']}`")
        yield line([*names, f"{row['records']:,}", f"{row['records_per_s']:.1f}", f"{row['minutes']:.0f}"])


def _costs(book: Book, roster: str) -> Iterator[str]:
    cells = {name: question("costs", measure=name, roster=roster) for name in MEASURES}
    for reader in (row["reader"] for row in book.readers if row["origin"] == "measured"):
        machines = [str(row["hardware"]) for cell in cells.values() if (row := book.summaries.find(cell, reader))]
        if machines:
            costs = [_cited(book, book.number(cell, reader), MEASURES[name][1]) for name, cell in cells.items()]
            yield line([f"`{reader}`", *costs, ", ".join(dict.fromkeys(machines))])
