"""Whole tables of a generation, row by row, for whoever wants the numbers themselves."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pandas as pd

from backend.store.lists import PACKED, storage, stored_rows
from backend.store.writers import columns_of

Cursor = duckdb.DuckDBPyConnection
CHUNK = 5_000  # Rows that are taken from the store at a time.


def table_sizes(cursor: Cursor) -> pd.DataFrame:
    """Tables of a generation that hold rows (columns table_name, rows, columns), by name."""
    tables = cursor.execute(
        "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database() AND schema_name = 'main'"
    ).fetchall()
    names = {name for (name,) in tables} - {storage(name) for name in PACKED} - {"labels"} | set(PACKED)
    sizes = []
    for name in sorted(names):
        if rows := stored_rows(cursor, name):
            sizes.append((name, rows, len(columns_of(cursor, name))))
    return pd.DataFrame(sizes, columns=["table_name", "rows", "columns"])


def table_rows(cursor: Cursor, table: str) -> Iterator[list[tuple[object, ...]]]:
    """Rows of a table in chunks, its column names first.

    cursor : Of its own, because it is in use until the last chunk.
    Raises ValueError if there is no such table.
    """
    columns = columns_of(cursor, table)
    yield [tuple(columns)]
    answer = cursor.execute(f'SELECT * FROM "{table}"')
    while rows := answer.fetchmany(CHUNK):
        yield rows
