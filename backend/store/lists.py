"""Tables whose rows lie in lists, a row a key.

``TABLE_lists`` holds the lists, the view ``TABLE`` its rows, and the macro ``pack_TABLE`` makes lists from rows
(migration 9). Sources stand in lists by their number in ``labels``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import duckdb

PACKED: Mapping[str, tuple[str, ...]] = {  # views, and their columns that are numbers of labels in the lists
    "confusion": ("truth", "predicted"),
    "source_accuracy": ("source", "confused_with"),
    "neighbors": ("source", "neighbor"),
}
KEY = frozenset({"reader", "roster", "benchmark", "condition", "domain", "k", "build_id"})  # a value a row of lists
NULLABLE = frozenset({"confused_with"})  # Columns of the views that may be NULL; DuckDB says of a view that all may.


def storage(table: str) -> str:
    """The table that holds the rows of a table or view."""
    return f"{table}_lists" if table in PACKED else table


def key_table(table: str, key: Iterable[str]) -> str:
    """The table in which a key finds its rows: that with the lists, unless the key names something inside them."""
    return storage(table) if set(key) <= KEY else table


def view_of(table: str) -> str:
    """The view over a table of lists; any other name as it is."""
    view = table.removesuffix("_lists")
    return view if view in PACKED else table


def insert_lists(connection: duckdb.DuckDBPyConnection, table: str, rows: str) -> None:
    """Add the rows of a relation, with all columns of a view, to its table of lists.

    Sources without a number get one in the order of the rows.
    """
    for column in PACKED[table]:
        connection.execute(
            f"""
            INSERT INTO labels
            SELECT (SELECT coalesce(max(number) + 1, 0) FROM labels) + row_number() OVER (ORDER BY first) - 1, label
            FROM (
                SELECT label, min(place) AS first
                FROM (SELECT "{column}"::VARCHAR AS label, row_number() OVER () AS place FROM {rows}) GROUP BY label
            ) WHERE label IS NOT NULL AND label NOT IN (SELECT label FROM labels)
            """
        )
    connection.execute(f"INSERT INTO {storage(table)} BY NAME SELECT * FROM pack_{table}('{rows}')")


def stored_rows(connection: duckdb.DuckDBPyConnection, table: str) -> int:
    """Rows of a table or view of the schema."""
    rows = "coalesce(sum(cells), 0)" if table in PACKED else "count(*)"
    ((count,),) = connection.execute(f'SELECT {rows} FROM "{storage(table)}"').fetchall()
    return int(count)


def has_lost_labels(connection: duckdb.DuckDBPyConnection) -> bool:
    """Whether a label is no source any more, so that rows may name a source that is not recorded."""
    found = connection.execute("SELECT 1 FROM labels WHERE label NOT IN (SELECT source FROM sources) LIMIT 1")
    return found.fetchone() is not None
