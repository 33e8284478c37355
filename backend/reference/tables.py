"""The tables of the paper as questions to the store: which rows of which table stand behind every cell.

``tables.toml`` declares them. A table has columns (what is asked) and rows (of whom); both name conditions on columns
of the store. A row also names the paper's readers, and the pattern of our readers that answer the same question.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from backend.reference.rows import MAIN

DECLARED: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("tables.toml").read_text("utf-8"))
CANDIDATES: Mapping[str, tuple[str, str]] = {
    name: (left, right) for name, (left, right) in DECLARED["candidates"].items()
}
EVALUATE = "python -m jobs evaluate --roster 100-way --stage"
RELATE = "python -m jobs relate"
MAP = "python -m jobs map --roster 100-way --view r"


@dataclass(frozen=True)
class Cell:
    """A question to one table of the store."""

    table: str
    column: str  # that holds the value
    where: tuple[tuple[str, object], ...]  # None matches missing values
    per: Cell | None = None  # what the value is divided by
    scale: float = 1.0

    def but(self, **where: object) -> Cell:
        """The same question with other conditions."""
        return replace(self, where=tuple({**dict(self.where), **where}.items()))


@dataclass(frozen=True)
class Row:
    """A row of a printed table."""

    name: str
    published: tuple[str, ...] = ()  # readers of the release; several for a mean over proxies
    ours: str = ""  # reader of ours that answers the same question; {proxy} stands for any of our proxies
    minus: str = ""  # reader of ours that is subtracted: the row is then a contrast, in percentage points
    where: Mapping[str, object] = field(default_factory=dict)
    ours_where: Mapping[str, object] = field(default_factory=dict)  # further conditions for our readers
    only: tuple[str, ...] = ()  # columns that the row has; empty for all
    other: Mapping[str, object] = field(default_factory=dict)  # where a second file holds the same quantity
    other_file: str = ""
    cell: Cell | None = None  # question of this row alone, in its one column

    def at(self, cell: Cell, column: str, *, ours: bool = False) -> Cell | None:
        """The question of this row in a column, None where the row has no such cell."""
        if self.only and column not in self.only:
            return None
        return cell.but(**{**self.where, **(self.ours_where if ours else {})})


@dataclass(frozen=True)
class Table:
    """A table of the paper."""

    place: str
    title: str
    columns: Mapping[str, Cell]
    rows: tuple[Row, ...]
    beside: bool  # rows are conditions, and our readers stand next to them; else rows are readers, and ours follow
    command: str  # what measures it here
    note: str = ""


def question(
    table: str = "attribution_metrics",
    column: str = "value",
    *,
    per: Mapping[str, Any] | None = None,
    scale: float = 1.0,
    **where: object,
) -> Cell:
    """A question with the default conditions of its table; an empty text stands for a missing value."""
    merged = {
        name: None if value == "" else value for name, value in {**DECLARED["defaults"].get(table, {}), **where}.items()
    }
    return Cell(table, column, tuple(merged.items()), question(**per) if per else None, scale)


def attribution(metric: str, k: int, reduction: str, column: str = "value", **where: Any) -> Cell:
    """Attribution on Agent500, clean, unless conditions say otherwise."""
    return question("attribution_metrics", column, metric=metric, k=k, reduction=reduction, **where)


def relationship(protocol: str, metric: str, column: str = "value", readout: str = "dc-ac") -> Cell:
    """Mean over the splits of a protocol."""
    return question("relationship_metrics", column, protocol=protocol, metric=metric, readout=readout)


def rows_of(entries: list[Any]) -> Iterator[Row]:
    """Declared rows; a text names a shared group, and ``{main}`` stands for each of the paper's main proxies."""
    for entry in entries:
        if isinstance(entry, str):
            yield from rows_of(DECLARED["rows"][entry])
            continue
        given = dict(entry)
        if (reader := given.get("published")) is not None:
            given["published"] = tuple(dict.fromkeys(reader.replace("{main}", proxy) for proxy in MAIN))
        if "cell" in given:
            given["cell"] = question(**given["cell"])
        yield Row(**given | {"only": tuple(given.get("only", ()))})


def _table(entry: Mapping[str, Any]) -> Table:
    columns = {name: question(**cell) for name, cell in entry.get("columns", {}).items()}
    return Table(**{"beside": False} | dict(entry) | {"columns": columns, "rows": tuple(rows_of(entry["rows"]))})


TABLES = tuple(_table(entry) for entry in DECLARED["tables"])
