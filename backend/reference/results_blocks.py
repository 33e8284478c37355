"""Blocks that the paper's readout reads at: what every outer fold chose, and among how many."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb

from backend.reference.markdown import header, line
from backend.reference.results_book import Book
from backend.store.result_queries import chosen_blocks


def block_section(book: Book, cursor: duckdb.DuckDBPyConnection) -> Iterator[str]:
    """The section, line by line; nothing where no block was chosen."""
    rows = chosen_blocks(cursor)
    if not rows:
        return
    yield "## Blocks of READER"
    yield ""
    yield (
        "Paper: nested selection over all blocks, on inner folds. Where there was one candidate nothing was chosen: "
        "the block was given beforehand, here that of the other view, and differences between the views are between a "
        "chosen block and a given one."
    )
    yield ""
    yield from header(["", "", "candidates", "blocks of the outer folds"], 2)
    for row in rows:
        folds = ", ".join(map(str, row["layers"]))
        given = " (given)" if row["candidates"] == 1 else ""
        yield line([f"`{row['reader']}`", row["roster"], f"{row['candidates']}", f"{folds}{given}{_cited(book, row)}"])
    yield ""


def _cited(book: Book, row: dict[str, object]) -> str:
    return book.cite([str(row["build_id"])])
