"""Numbers of a generation for programs: whole tables row by row, every source, every number of an evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import duckdb
import pandas as pd

from backend.store.frames import with_lists
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
    """Rows of a table in chunks, its column names first; the cursor is in use until the last chunk."""
    columns = columns_of(cursor, table)
    yield [tuple(columns)]
    answer = cursor.execute(f'SELECT * FROM "{table}"')
    while rows := answer.fetchmany(CHUNK):
        yield rows


def all_sources(cursor: Cursor) -> pd.DataFrame:
    """Sources of all rosters (columns source, name, family, subfamily, access, rosters), by family and name."""
    sql = """
        SELECT source, s.name, family, subfamily, access, list(DISTINCT roster ORDER BY roster) AS rosters
        FROM sources s JOIN families f USING (family) JOIN roster_members m USING (source)
        GROUP BY source, s.name, family, subfamily, access, f.position ORDER BY f.position, source"""
    frame = cursor.execute(sql).df()
    return with_lists(frame, "rosters")


def evaluations(
    cursor: Cursor,
    *,
    reader: str | None = None,
    roster: str | None = None,
    benchmark: str | None = None,
    condition: str | None = None,
    reduction: str | None = None,
    metric: str | None = None,
    k: int | None = None,
    limit: int = 1_000,
    offset: int = 0,
) -> tuple[pd.DataFrame, int]:
    """Attribution metrics over all seeds and folds that fit, from ``offset`` on, and how many there are in all.

    Columns reader, origin, roster, benchmark, condition, reduction, k, metric, value, std (NaN where there is none), n
    (groups), build_id.
    """
    options = {"reader": reader, "roster": roster, "benchmark": benchmark, "condition": condition}
    options |= {"reduction": reduction, "metric": metric}
    given: dict[str, Any] = {name: value for name, value in {**options, "k": k}.items() if value is not None}
    where = "WHERE seed IS NULL AND fold IS NULL" + "".join(f" AND {name} = ${name}" for name in given)
    total = cursor.execute(f"SELECT count(*) FROM attribution_metrics {where}", given).fetchone()
    sql = f"""
        SELECT reader, origin, roster, benchmark, condition, reduction, k, metric, value, std, n, build_id
        FROM attribution_metrics JOIN readers USING (reader) {where}
        ORDER BY ALL LIMIT $limit OFFSET $offset"""
    rows = cursor.execute(sql, given | {"limit": limit, "offset": offset}).df()
    return rows, int(total[0]) if total else 0
