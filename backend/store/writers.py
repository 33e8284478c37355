"""Write results into the work database: rows by key, all or nothing, always with their build."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from backend.errors import AtlasError
from backend.store.builds import recorded
from backend.store.database import NULLABLE, PACKED, insert_lists, key_table, storage, transaction

RELEASE_ROSTERS: Mapping[str, int] = {"50-way": 50, "100-way": 100, "165-way": 165}


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    required: bool


def columns_of(connection: duckdb.DuckDBPyConnection, table: str) -> dict[str, Column]:
    """Columns of a table, in order; ValueError if there is none. Names that have passed here are safe in SQL."""
    tables = connection.execute(
        "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database() AND schema_name = 'main'"
    ).fetchall()
    if (table,) not in tables and table not in PACKED:
        raise ValueError(f"the store has no table {table!r}")
    rows = connection.execute(
        f"""SELECT name, type, "notnull" AND dflt_value IS NULL FROM pragma_table_info('{table}') ORDER BY cid"""
    ).fetchall()
    packed = table in PACKED
    return {name: Column(name, kind, name not in NULLABLE if packed else bool(filled)) for name, kind, filled in rows}


def matching(columns: Mapping[str, Column], table: str, key: Mapping[str, object]) -> tuple[str, list[object]]:
    """SQL condition and values for rows whose columns equal those of ``key``; None is NULL, a tuple any of its parts.

    Raises ValueError if the key is empty or names a column that the table does not have.
    """
    unknown = sorted(set(key) - set(columns))
    if unknown or not key:
        raise ValueError(f"the key of table {table!r} must name its columns, got {sorted(key)}")
    parts = {name: value.item() if isinstance(value, np.generic) else value for name, value in key.items()}
    signs = {True: "IN (SELECT unnest(?))", False: "IS NOT DISTINCT FROM ?"}
    values: list[object] = [list(value) if isinstance(value, tuple) else value for value in parts.values()]
    return " AND ".join(f'"{name}" {signs[isinstance(value, tuple)]}' for name, value in parts.items()), values


def replace_rows(
    connection: duckdb.DuckDBPyConnection, table: str, frame: pd.DataFrame, key: Mapping[str, object], build_id: str
) -> int:
    """Replace the rows that match a key, in one transaction, and count the new ones.

    frame : new rows; columns of the key and ``build_id`` are filled in where they are absent.
    Raises ValueError if there is no such table or column, a required value is missing, or a row does not match the key.
    """
    columns = columns_of(connection, table)
    if "build_id" not in columns or table in ("builds", "sources"):
        raise ValueError(f"table {table!r} is not written by key")
    if table in PACKED and key_table(table, key) == table and set(key) <= set(columns):
        raise ValueError(f"rows of table {table!r} are replaced by whole lists, got the key {sorted(key)}")
    condition, values = matching(columns, table, key)
    rows = frame.copy(deep=False)
    for name, value in [*zip(key, values, strict=True), ("build_id", build_id)]:
        if name not in rows:
            rows[name] = pd.Series([value] * len(rows), index=rows.index)
    _check_rows(rows, columns, table)
    if table in PACKED:
        rows = rows.reindex(columns=list(columns))
    with _seen(connection, incoming=rows), transaction(connection):
        connection.execute(f'DELETE FROM "{storage(table)}" WHERE {condition}', values)
        if len(rows) and table in PACKED:
            insert_lists(connection, table, "incoming")
        elif len(rows):
            connection.execute(f'INSERT INTO "{table}" BY NAME SELECT * FROM incoming')
        written = connection.execute(f'SELECT count(*) FROM "{table}" WHERE {condition}', values).fetchall()
        if written != [(len(rows),)]:
            raise ValueError(f"a row for table {table!r} does not match its key {dict(key)}")
    return len(rows)


@dataclass(frozen=True)
class StageRows:
    """Where a stage writes the rows of one build."""

    connection: duckdb.DuckDBPyConnection
    build_id: str
    key: Mapping[str, object]  # Columns that all its rows share

    def replace(self, table: str, frame: pd.DataFrame, **key: object) -> None:
        replace_rows(self.connection, table, frame, {**self.key, **key}, self.build_id)


@contextlib.contextmanager
def stage_rows(
    connection: duckdb.DuckDBPyConnection,
    stage: str,
    details: Mapping[str, Any] | None = None,
    data_hash: str | None = None,
    proxy_hash: str | None = None,
    seed: int | None = None,
    *,
    key: Mapping[str, object] | None = None,
    **published: Any,
) -> Iterator[StageRows]:
    """Record a build of the running command around the work that makes its rows; see :func:`recorded`."""
    about: dict[str, Any] = {"data_hash": data_hash, "proxy_hash": proxy_hash, "seed": seed, "details": details}
    with recorded(connection, stage=stage, **about, **published) as build_id:
        yield StageRows(connection, build_id, key or {})


def write_sources(
    connection: duckdb.DuckDBPyConnection,
    roster: pd.DataFrame,
    counts: Mapping[str, int],
    build_id: str,
    *,
    rosters: Mapping[str, int] = RELEASE_ROSTERS,
) -> None:
    """Write the sources of a roster, their families, and the rosters that are prefixes of it.

    roster : the longest in its order; label, repo_id, family (subfamily here), plot_family (family here), source
    (route). counts : responses of every source. rosters : prefix lengths; those that the roster is too short for are
    skipped. Raises AtlasError if a label occurs twice, or a collection route is neither local nor an API.
    """
    twice = roster["label"][roster["label"].duplicated()]
    if len(twice):
        raise AtlasError(f"The roster names '{twice.iloc[0]}' twice", "Give every source a label of its own")
    sources = pd.DataFrame(
        {
            "source": roster["label"],
            "name": roster["repo_id"].fillna(roster["label"]),
            "family": roster["plot_family"],
            "subfamily": roster["family"],
            "access": [access(label, route) for label, route in zip(roster["label"], roster["source"], strict=True)],
            "responses": [counts.get(label, 0) for label in roster["label"]],
            "build_id": build_id,
        }
    )
    families = pd.DataFrame({"family": sources["family"].drop_duplicates()}).reset_index(names="first")
    prefixes = [
        pd.DataFrame({"roster": name, "position": range(size), "source": sources["source"].iloc[:size]})
        for name, size in rosters.items()
        if size <= len(sources)
    ]
    members = pd.concat(prefixes or [pd.DataFrame({"roster": [], "position": [], "source": []})])
    _check_rows(sources, columns_of(connection, "sources"), "sources")
    with _seen(connection, families_in=families, sources_in=sources, members_in=members), transaction(connection):
        # Families of other rosters keep their place, so that their colours stay.
        connection.execute(
            "INSERT INTO families SELECT family, (SELECT coalesce(max(position) + 1, 0) FROM families) + row_number() "
            "OVER (ORDER BY first) - 1 FROM families_in WHERE family NOT IN (SELECT family FROM families)"
        )
        connection.execute("INSERT OR REPLACE INTO sources BY NAME SELECT * FROM sources_in")
        connection.execute("DELETE FROM roster_members WHERE roster IN (SELECT unnest(?))", [list(rosters)])
        connection.execute("INSERT INTO roster_members BY NAME SELECT * FROM members_in")
        connection.execute("DELETE FROM sources WHERE source NOT IN (SELECT source FROM roster_members)")
        connection.execute("DELETE FROM families WHERE family NOT IN (SELECT family FROM sources)")


def access(label: str, route: str) -> str:
    """How responses were collected: 'local' or 'api'; the release writes 'local_...', 'original50' or 'api...'."""
    if route.startswith("api"):
        return "api"
    if route.startswith(("local", "original")):
        return "local"
    problem = f"The roster says '{route}' for how '{label}' was collected"
    raise AtlasError(problem, "Let the field 'source' begin with local or api")


def write_proxies(connection: duckdb.DuckDBPyConnection, frame: pd.DataFrame) -> None:
    """Add or correct proxies: columns proxy and name, and any others of table ``proxies``."""
    _upsert(connection, "proxies", frame)


def write_reader(
    connection: duckdb.DuckDBPyConnection,
    *,
    method: str,
    name: str,
    proxy: str | None = None,
    view: str | None = None,
    origin: str = "measured",
) -> str:
    """Add or correct a reader ('measured' or 'published'); its id is ``method/proxy/view`` without absent parts."""
    reader = "/".join(part for part in (method, proxy, view) if part is not None)
    row = {"reader": reader, "method": method, "proxy": proxy, "input_view": view, "name": name, "origin": origin}
    _upsert(connection, "readers", pd.DataFrame([row]))
    return reader


def _upsert(connection: duckdb.DuckDBPyConnection, table: str, frame: pd.DataFrame) -> None:
    """Add rows, or correct the columns of the frame where there is a row of that primary key."""
    _check_rows(frame, columns_of(connection, table), table)
    with _seen(connection, incoming=frame), transaction(connection):
        connection.execute(f'INSERT OR REPLACE INTO "{table}" BY NAME SELECT * FROM incoming')


@contextlib.contextmanager
def _seen(connection: duckdb.DuckDBPyConnection, **frames: pd.DataFrame) -> Iterator[None]:
    """Let SQL see frames under names; to be opened before a transaction, so that it ends after it."""
    for name, frame in frames.items():
        connection.register(name, frame)
    try:
        yield
    finally:
        for name in frames:
            connection.unregister(name)


def _check_rows(rows: pd.DataFrame, columns: Mapping[str, Column], table: str) -> None:
    unknown = [str(name) for name in rows.columns if name not in columns]
    if unknown:
        raise ValueError(f"table {table!r} has no column {unknown[0]!r}; its columns are {', '.join(columns)}")
    for column in columns.values():
        if column.required and len(rows):
            if column.name not in rows:
                raise ValueError(f"the rows for table {table!r} lack column {column.name!r}")
            missing = rows[column.name].isna()
            if missing.any():
                row = int(np.flatnonzero(missing)[0])
                raise ValueError(f"row {row} for table {table!r} has no value in column {column.name!r}")
