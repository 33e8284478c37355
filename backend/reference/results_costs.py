"""What every measured reader costs: parameters, fit, latency and memory, with the machine that it was measured on."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import duckdb

from backend.reference.layout import Cell
from backend.reference.markdown import header, line
from backend.reference.results_book import ABSENT, Book, like, plain
from backend.reference.results_readouts import ROSTERS
from backend.store.result_queries import matching_rows

COMMAND = "python -m jobs evaluate --stage cost"


def _counted(value: float) -> str:
    return like(value, "1e6")


def _timed(value: float) -> str:
    return plain(value, 2) if value < 10 else f"{value:.0f}"


MEASURES: dict[str, tuple[str, Callable[[float], str]]] = {
    "trainable_parameters": ("trained", _counted),
    "audit_parameters": ("run a response", _counted),
    "fit_seconds": ("fit of a fold, s", _timed),
    "latency_ms": ("a response, ms", _timed),
    "peak_memory_gb": ("memory, GB", _timed),
}
"""Column and form of every measure."""


def cost_sections(book: Book) -> Iterator[str]:
    """The tables, line by line."""
    yield "## What a reader costs"
    yield ""
    readers = [row["reader"] for row in book.readers if row["origin"] == "measured"]
    tables = {roster: list(_rows(book, readers, roster)) for roster in ROSTERS}
    if not any(tables.values()):
        yield f"Not measured: `{COMMAND}`."
        yield ""
        return
    yield (
        f"Ours: `{COMMAND}`. Parameters that are trained and that a response runs through; a response from its text to "
        "the scores of all sources, median of three warmed runs over 256, in a process of its own. Times of different "
        "machines cannot be compared. A fit is that of one outer fold; of a stack, of every model that the fold needs. "
        "Some were fitted to random numbers of the shape of their fingerprints, as their builds say."
    )
    yield ""
    for roster, rows in tables.items():
        if rows:
            yield f"{roster}:"
            yield ""
            yield from header(["", *(title for title, _ in MEASURES.values()), "machine"], 1)
            yield from rows
            yield ""


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


def _rows(book: Book, readers: list[str], roster: str) -> Iterator[str]:
    for reader in readers:
        asked = {name: Cell("costs", "value", (("roster", roster), ("measure", name))) for name in MEASURES}
        held = {name: book.number(cell, reader) for name, cell in asked.items()}
        machines = [str(row["hardware"]) for cell in asked.values() if (row := book.held.find(cell, reader))]
        if machines:
            cells = [
                ABSENT if number is None else MEASURES[name][1](number.value) + book.cite(number.builds)
                for name, number in held.items()
            ]
            yield line([f"`{reader}`", *cells, ", ".join(dict.fromkeys(machines))])
