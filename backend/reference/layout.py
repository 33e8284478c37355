"""The tables of the paper as questions to the store: which rows of which table stand behind every cell.

A table has columns (what is asked) and rows (of whom it is asked). Both name conditions on store columns; a row also
names the paper's readers, and the pattern of our readers that answer the same question.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from backend.protocol import READER_PAPER
from backend.reference.rows import ROSTER

Where = tuple[tuple[str, object], ...]


@dataclass(frozen=True)
class Cell:
    """A question to one table of the store.

    column : Column that holds the value.
    where : None matches missing values.
    per : What the value is divided by.
    scale : What the value is multiplied by.
    """

    table: str
    column: str
    where: Where
    per: Cell | None = None
    scale: float = 1.0

    def but(self, **where: object) -> Cell:
        """The same question with other conditions."""
        merged = {**dict(self.where), **where}
        return replace(self, where=tuple(merged.items()))


@dataclass(frozen=True)
class Row:
    """A row of a printed table.

    name : As printed.
    published : Readers of the release; several for a mean over proxies.
    ours : Reader of ours that answers the same question; ``{proxy}`` stands for any of our proxies.
    minus : Reader of ours that is subtracted; the row is then a contrast, in percentage points.
    where, ours_where : Conditions that the row adds, and others that it adds for our readers.
    only : Columns that the row has; empty for all.
    other : Conditions under which a second file of the release holds the same quantity.
    cell : Question that belongs to this row alone, in its one column.
    """

    name: str
    published: tuple[str, ...] = ()
    ours: str = ""
    minus: str = ""
    where: Mapping[str, object] = field(default_factory=dict)
    ours_where: Mapping[str, object] = field(default_factory=dict)
    only: tuple[str, ...] = ()
    other: Mapping[str, object] = field(default_factory=dict)
    other_file: str = ""
    cell: Cell | None = None

    def at(self, cell: Cell, column: str, *, ours: bool = False) -> Cell | None:
        """The question of this row in a column, None where the row has no such cell."""
        if self.only and column not in self.only:
            return None
        return cell.but(**{**self.where, **(self.ours_where if ours else {})})


@dataclass(frozen=True)
class Table:
    """A table of the paper.

    place : Its label.
    beside : Whether rows are conditions, so that our readers stand beside them; else rows are readers, and ours follow.
    command : What measures it here.
    note : What has to be said beside it.
    """

    place: str
    title: str
    columns: Mapping[str, Cell]
    rows: tuple[Row, ...]
    beside: bool
    command: str
    note: str = ""


def attribution(metric: str, k: int, reduction: str, column: str = "value", **where: object) -> Cell:
    """Attribution on Agent500, clean, unless conditions say otherwise."""
    about: dict[str, object] = {"roster": ROSTER, "benchmark": "agent500", "condition": "clean", "k": k}
    about |= {"reduction": reduction, "metric": metric, "seed": None, "fold": None}
    return Cell("attribution_metrics", column, tuple({**about, **where}.items()))


def relationship(protocol: str, metric: str, column: str = "value", readout: str = "dc-ac") -> Cell:
    """Mean over the splits of a protocol."""
    where = {"protocol": protocol, "readout": readout, "metric": metric, "split": None}
    return Cell("relationship_metrics", column, tuple(where.items()))


def end_points(reduction: str, *, spread: bool = False) -> dict[str, Cell]:
    """Accuracy and macro-F1 at one and at a hundred traces."""
    out = {}
    for k in (1, 100):
        for short, metric in (("Acc.", "accuracy"), ("M-F1", "macro_f1")):
            out[f"{short}@{k}"] = attribution(metric, k, reduction)
            if spread:
                out[f"{short}@{k} std"] = attribution(metric, k, reduction, "std")
    return out


def cost(measure: str, scale: float = 1.0) -> Cell:
    """What a reader costs."""
    return Cell("costs", "value", (("roster", ROSTER), ("measure", measure)), None, scale)


def reader(proxy: str, view: str = "ur", method: str = READER_PAPER) -> str:
    """Id of a reader."""
    return f"{method}/{proxy}/{view}"
