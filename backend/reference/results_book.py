"""What a report draws on: every summary row with its build, numbers as they are printed, and Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb

from backend.reference.paper import Cell, Printed, SummaryRows, printed
from backend.store.result_queries import SUMMARIES, build_rows, reader_rows, summary_rows

LETTERS = {3: "K", 6: "M", 9: "B"}
ABSENT = "–"
ROSTERS = ("100-way", "165-way")


@dataclass(frozen=True)
class Number:
    """A value with the builds that made it."""

    value: float
    builds: tuple[str, ...]


@dataclass
class Book:
    """Everything that the tables and findings need."""

    summaries: SummaryRows  # summary rows of all result tables
    readers: list[dict[str, Any]]
    paper: list[Printed]
    imported: dict[tuple[str, str, str], dict[str, Any]]  # rows of the store for printed numbers, by their key
    builds: dict[str, dict[str, Any]]
    blocks: dict[tuple[str, str], int]  # block of a reader on a roster: the one that it stands at, or the modal one
    cited: dict[str, int] = field(default_factory=dict)  # builds in the order in which they are cited

    @classmethod
    def read(cls, cursor: duckdb.DuckDBPyConnection) -> Book:
        """Read a work database or a generation."""
        rows = {table: summary_rows(cursor, table) for table in SUMMARIES}
        imported = {(row["place"], row["row_name"], row["column_name"]): row for row in rows["paper_values"]}
        blocks = {(row["reader"], row["roster"]): row["layer"] for row in rows["layer_selection"]}
        return cls(SummaryRows(rows), reader_rows(cursor), printed(), imported, build_rows(cursor), blocks)

    def origin(self, origin: str, methods: Iterable[str]) -> list[str]:
        """Readers that were measured here or published, of some methods."""
        return [row["reader"] for row in self.readers if row["origin"] == origin and row["method"] in methods]

    def measured(self, pattern: str) -> list[dict[str, Any]]:
        """Our readers that a pattern means, e.g. ``reader-paper/{proxy}/ur``."""
        return [
            row
            for row in self.readers
            if row["origin"] == "measured" and pattern.format(proxy=row["proxy"], view=row["view"]) == row["reader"]
        ]

    def number(self, cell: Cell | None, reader: str) -> Number | None:
        """The value of a reader for a question, None where there is no question or no value."""
        row = self.summaries.find(cell, reader) if cell is not None else None
        value = self.summaries.value(cell, (reader,)) if cell is not None else None
        if cell is None or row is None or value is None:
            return None
        whole = self.summaries.find(cell.per, reader) if cell.per is not None else None
        builds = (row["build_id"], *((whole["build_id"],) if whole is not None else ()))
        return Number(value, tuple(dict.fromkeys(builds)))

    def cite(self, builds: tuple[str, ...] | list[str]) -> str:
        """Superscript numbers of builds."""
        numbers = [self.cited.setdefault(build, len(self.cited) + 1) for build in dict.fromkeys(builds)]
        return f"<sup>{' '.join(str(number) for number in numbers)}</sup>" if numbers else ""

    def cited_number(self, number: Number) -> str:
        """A number with its builds."""
        return plain(number.value) + self.cite(number.builds)


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
    return f"{digits}{LETTERS[int(power)]}" if sign else plain(float(digits), len(digits.partition(".")[2]))


def like(value: float, text: str) -> str:
    """A number in the form of another one of its column."""
    digits, sign, _ = text.partition("e")
    if sign:
        power = next((power for power in (9, 6, 3) if abs(value) >= 10.0**power), 0)
        return f"{value / 10.0**power:.3g}{LETTERS.get(power, '')}"
    shown = len(digits.partition(".")[2])
    return f"{value:.0f}" if abs(float(digits)) >= 100 and shown == 0 else plain(value, max(shown, 1))


def line(cells: Sequence[str]) -> str:
    """One row of a table."""
    return "| " + " | ".join(cells) + " |"


def header(names: Sequence[str], numbers: int | None = None) -> Iterator[str]:
    """Names and the rule below them; from column ``numbers`` on cells are set to the right."""
    yield line(names)
    yield line(["---:" if numbers is not None and column >= numbers else "---" for column in range(len(names))])


def paragraphs(*parts: str | Iterable[str]) -> Iterator[str]:
    """Texts and tables with an empty line after each."""
    for part in parts:
        yield from [part] if isinstance(part, str) else part
        yield ""
