"""What a report draws on: every summary row with its build, and numbers as they are printed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import duckdb

from backend.reference.layout import Cell
from backend.reference.paper import Held, Printed, printed
from backend.store.result_queries import SUMMARIES, build_rows, reader_rows, summary_rows

LETTERS = {3: "K", 6: "M", 9: "B"}
ABSENT = "–"


@dataclass(frozen=True)
class Number:
    """A value with the builds that made it."""

    value: float
    builds: tuple[str, ...]


@dataclass
class Book:
    """Everything that the tables and findings ask for.

    held : Summary rows of all result tables.
    kept : What the store keeps of a printed number: file_value, note, build_id.
    blocks : Block of readers that stand at one, or the modal one.
    cited : Builds by number, in the order in which they are cited.
    """

    held: Held
    readers: list[dict[str, Any]]
    paper: list[Printed]
    kept: dict[tuple[str, str, str], dict[str, Any]]
    builds: dict[str, dict[str, Any]]
    blocks: dict[tuple[str, str], int]
    cited: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, cursor: duckdb.DuckDBPyConnection) -> Book:
        """Read a work database or a generation."""
        rows = {table: summary_rows(cursor, table) for table in SUMMARIES}
        kept = {(row["place"], row["row_name"], row["column_name"]): row for row in rows["paper_values"]}
        blocks = {(row["reader"], row["roster"]): row["layer"] for row in rows["layer_selection"]}
        return cls(Held(rows), reader_rows(cursor), printed(), kept, build_rows(cursor), blocks)

    def measured(self, pattern: str) -> list[dict[str, Any]]:
        """Our readers that a pattern means, e.g. ``reader-paper/{proxy}/ur``."""
        return [
            row
            for row in self.readers
            if row["origin"] == "measured" and pattern.format(proxy=row["proxy"], view=row["view"]) == row["reader"]
        ]

    def proxies(self, pattern: str) -> list[str]:
        """Our proxies for which a pattern names a reader that exists."""
        return [row["proxy"] for row in self.measured(pattern) if row["proxy"] is not None]

    def number(self, cell: Cell, reader: str) -> Number | None:
        """What a reader holds for a question."""
        row, value = self.held.find(cell, reader), self.held.value(cell, (reader,))
        if row is None or value is None:
            return None
        whole = self.held.find(cell.per, reader) if cell.per is not None else None
        builds = (row["build_id"], *((whole["build_id"],) if whole is not None else ()))
        return Number(value, tuple(dict.fromkeys(builds)))

    def cite(self, builds: tuple[str, ...] | list[str]) -> str:
        """Superscript numbers of builds."""
        numbers = [self.cited.setdefault(build, len(self.cited) + 1) for build in dict.fromkeys(builds)]
        return f"<sup>{' '.join(str(number) for number in numbers)}</sup>" if numbers else ""


class Uncited(Book):
    """The same for pages, which leave the builds to the report."""

    def cite(self, builds: tuple[str, ...] | list[str]) -> str:
        """Nothing."""
        return ""


def plain(value: float, digits: int = 3) -> str:
    """A number without a leading zero: .481, 1.000, -.013."""
    text = f"{value:.{digits}f}"
    if float(text) == 0:
        text = text.removeprefix("-")
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def as_printed(text: str) -> str:
    """A number of the transcript as the paper prints it: 435.2M for 435.2e6."""
    digits, sign, power = text.partition("e")
    if sign:
        return f"{digits}{LETTERS[int(power)]}"
    return plain(float(digits), len(digits.partition(".")[2]))


def like(value: float, text: str) -> str:
    """A number in the form of another one of its column."""
    digits, sign, _ = text.partition("e")
    if sign:
        power = next((power for power in (9, 6, 3) if abs(value) >= 10.0**power), 0)
        return f"{value / 10.0**power:.3g}{LETTERS.get(power, '')}"
    shown = len(digits.partition(".")[2])
    if abs(float(digits)) >= 100 and shown == 0:
        return f"{value:.0f}"
    return plain(value, max(shown, 1))
