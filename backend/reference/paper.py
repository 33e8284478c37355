"""What the paper prints, and which rows of the store stand behind every printed number.

``paper.csv`` holds the tables of the paper cell by cell (place, row, column, value). ``tables.toml`` declares them as
questions to the store: a table has columns (quantities) and rows (readers), and both name conditions on columns of the
store; a row also names the paper's readers, and the pattern of our readers that answer the same question. With them the
import finds the released files' own number for a cell, and ``python -m jobs results`` what was measured here.
"""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from backend.errors import AtlasError
from backend.protocol import READER_PAPER
from backend.reference.files import MAIN, Collected, Results
from backend.reference.relationships import candidate_pairs

DECLARED: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("tables.toml").read_text("utf-8"))
CANDIDATES: Mapping[str, tuple[str, str]] = DECLARED["candidates"]
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


@dataclass(frozen=True)
class Table:
    """A table of the paper."""

    place: str
    title: str
    columns: Mapping[str, Cell]
    rows: tuple[Row, ...]
    command: str  # what measures it here
    note: str = ""
    by_condition: bool = False  # rows are conditions, and our readers columns; else rows are readers, and ours follow

    def question(self, row: Row, column: str, *, ours: bool = False) -> Cell | None:
        """The question of a row in a column, None where the row has no such cell."""
        cell = row.cell or self.columns.get(column)
        if cell is None or (row.only and column not in row.only):
            return None
        return cell.but(**{**row.where, **(row.ours_where if ours else {})})


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
    return Table(**dict(entry) | {"columns": columns, "rows": tuple(rows_of(entry["rows"]))})


TABLES = tuple(_table(entry) for entry in DECLARED["tables"])


TRANSCRIPT = Path(__file__).with_name("paper.csv")
SOURCE = "the paper's tables, transcribed"
DIFFERS = "the released files hold another number"
DERIVED = "READER's value less the difference in results/bench_a/disjoint/statistics_with_baselines.json"


@dataclass(frozen=True)
class Printed:
    """A number of the paper."""

    place: str  # label of the table
    row: str
    column: str
    text: str  # as printed; parameters in powers of ten (435.2e6)

    @property
    def key(self) -> tuple[str, str, str]:
        """Place, row and column, which are those of one number."""
        return self.place, self.row, self.column

    @property
    def value(self) -> float:
        """The printed number."""
        return float(self.text)

    @property
    def unit(self) -> float:
        """One in the last printed digit."""
        digits, _, power = self.text.partition("e")
        return float(10.0 ** (int(power or 0) - len(digits.partition(".")[2])))

    def agrees(self, value: float) -> bool:
        """Whether a number is printed so; a hair more than half a digit, because rounding goes both ways."""
        return abs(value - self.value) <= 0.51 * self.unit


def printed(path: Path = TRANSCRIPT) -> list[Printed]:
    """Every number of the paper's tables. Raises AtlasError if the transcript cannot be understood."""
    try:
        with path.open(encoding="utf-8", newline="") as stream:
            numbers = [Printed(r["place"], r["row"], r["column"], r["value"]) for r in csv.DictReader(stream)]
        for number in numbers:
            float(number.text)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AtlasError(
            f"{path.name} cannot be understood ({type(error).__name__}: {error})", "Install the atlas again"
        ) from error
    return numbers


class SummaryRows:
    """Summary rows that may answer for a printed cell, whether collected from files or read from a store.

    rows : Rows by column; None where a value is missing. Rows of one seed, fold or split are passed over.
    """

    def __init__(self, rows: Mapping[str, Iterable[Mapping[str, Any]]]) -> None:
        self._rows: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
        for table, group in rows.items():
            for row in group:
                if all(row.get(name) is None for name in ("seed", "fold", "split")):
                    self._rows.setdefault((table, str(row.get("reader", ""))), []).append(row)

    def find(self, cell: Cell, reader: str) -> Mapping[str, Any] | None:
        """The row of a reader that answers for a cell."""
        for row in self._rows.get((cell.table, reader), ()):
            if all(row.get(name) == needed for name, needed in cell.where) and row.get(cell.column) is not None:
                return row
        return None

    def value(self, cell: Cell, readers: tuple[str, ...]) -> float | None:
        """Mean over the readers, None when one of them has no value."""
        found = [self.find(cell, reader) for reader in readers]
        values = [cell.scale * float(row[cell.column]) for row in found if row is not None]
        if not values or len(values) < len(readers):
            return None
        value = sum(values) / len(values)
        if cell.per is None:
            return value
        whole = self.value(cell.per, readers)
        return value / whole if whole else None


def read_paper(results: Results, into: Collected) -> None:
    """Enter every printed number with the number that the released files hold for it; comes after all others."""
    summaries = SummaryRows({table: list(rows.values()) for table, rows in into.rows.items()})
    pairs = candidate_pairs(results)
    known = {
        (table.place, row.name, column): (row, cell)
        for table in TABLES
        for row in table.rows
        for column in (row.only if row.cell else table.columns)
        if (cell := table.question(row, column)) is not None
    }
    for number in printed() if into.readers else ():
        value: float | None = pairs.get((number.row, number.column))
        notes = []
        if number.key in known:
            row, cell = known[number.key]
            value = summaries.value(cell, row.published)
            second = summaries.value(cell.but(**row.other), row.published) if row.other else None
            if second is not None and not number.agrees(second):
                notes.append(f"{row.other_file} says {second:.3f}")
            if value is None and cell.table == "relationship_metrics" and cell.column == "value":
                value = _from_difference(summaries, cell, row.published[0])
                notes += [DERIVED] if value is not None else []
        if value is not None and not number.agrees(value):
            notes.insert(0, DIFFERS)
        about = {"place": number.place, "row_name": number.row, "column_name": number.column}
        note = "; ".join(notes) or None
        into.add("paper_values", SOURCE, **about, value=number.value, file_value=value, note=note)


def _from_difference(summaries: SummaryRows, cell: Cell, baseline: str) -> float | None:
    """What a baseline reached, where the files hold READER's value and the difference to the baseline only."""
    where = dict(cell.where)
    subject = f"{READER_PAPER}/{MAIN[0]}/ur"
    comparison = question(
        "comparisons",
        "difference",
        hypotheses=f"published/relationships/baselines/{where['protocol']}",
        subject=f"{subject}:dc-ac",
        reference=f"{baseline}:{where['readout']}",
        measure=where["metric"],
    )
    difference = summaries.value(comparison, ("",))
    value = summaries.value(cell.but(readout="dc-ac"), (subject,))
    return value - difference if value is not None and difference is not None else None
