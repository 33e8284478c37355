"""Whole result families: for ``docs/results.md``, ``jobs status``, published numbers, and programs that download."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd

from backend.errors import AtlasError
from backend.store import Cursor, select, with_lists
from backend.store.database import (
    PACKED,
    SERVED_FROM,
    migrations,
    schema_version,
    served,
    storage,
    stored_rows,
    transaction,
)
from backend.store.writers import columns_of

CHUNK = 5_000  # rows that are taken from the store at a time

SUMMARIES = {
    "attribution_metrics": "seed IS NULL AND fold IS NULL",
    "relationship_metrics": "split IS NULL",
    "cross_domain": "source IS NULL",
    # At the block that the reader, or its view with prompts, selected; every block where none was.
    "variance_ratios": """
        fold IS NULL AND layer = coalesce(
            (SELECT max(s.layer) FROM layer_selection s WHERE s.outer_fold IS NULL AND s.roster = variance_ratios.roster
                AND s.reader = variance_ratios.reader),
            (SELECT max(s.layer) FROM layer_selection s WHERE s.outer_fold IS NULL AND s.roster = variance_ratios.roster
                AND s.reader = regexp_replace(variance_ratios.reader, '/r$', '/ur')),
            layer)""",
    "layer_selection": "outer_fold IS NULL",
    **dict.fromkeys(("comparisons", "correlations", "costs", "family_purity", "reader_agreement"), "true"),
    **dict.fromkeys(("prompt_stability", "paper_values", "audit_validation"), "true"),
}
"""Tables behind the paper's tables, and which of their rows are summaries."""


def open_reading(path: Path) -> Cursor:
    """Open a database for reading, as it is; AtlasError if it is missing, in use, damaged, or of another schema."""
    if not path.exists():
        raise AtlasError(f"There is no database {path}", "Run: python -m jobs all")
    remedy = "Move it away, and run: python -m jobs all"
    try:
        connection = duckdb.connect(path, read_only=True)
    except (OSError, duckdb.Error) as error:
        text = str(error).strip().partition("\n")[0].rstrip(".")
        if "lock" in text.lower():
            patience = "Wait until that job has finished, then run this again"
            raise AtlasError(f"{path} is in use by another process", patience) from error
        raise AtlasError(f"{path} cannot be read ({text})", remedy) from error
    try:
        present, known = schema_version(connection), len(migrations())
    except duckdb.Error as error:
        connection.close()
        raise AtlasError(f"{path} is damaged ({error})", remedy) from error
    if not SERVED_FROM <= present <= known:
        connection.close()
        problem = f"{path} has schema version {present}, and this atlas reads version {known}"
        remedy = "Any job brings an older work database up to date; python -m jobs publish, a generation"
        raise AtlasError(problem, remedy)
    return connection


def summary_rows(cursor: Cursor, table: str) -> list[dict[str, Any]]:
    """Summary rows of one of the :data:`SUMMARIES` in a fixed order, missing values as None; else ValueError."""
    if table not in SUMMARIES:
        raise ValueError(f"table {table!r} holds no summaries")
    names = [name for name in columns_of(cursor, table) if name != "build_id"]
    order = ", ".join(f'"{name}"' for name in names)
    return _dicts(cursor, f'SELECT * FROM "{table}" WHERE {SUMMARIES[table]} ORDER BY {order}, build_id')


UNIT_COLUMNS = ("seed", "fold", "split", "outer_fold")
"""Columns that are missing in a summary row, which is over all of them."""


def matching_rows(cursor: Cursor, table: str, where: Mapping[str, object]) -> list[dict[str, Any]]:
    """Rows of a table in a fixed order, summaries unless a seed, fold or split is named; ValueError for no such column.

    where : None matches missing values, a text with ``*`` every text of that shape.
    """
    names = columns_of(cursor, table)
    filters = {name: None for name in UNIT_COLUMNS if name in names} | dict(where)
    if unknown := sorted(set(filters) - set(names)):
        raise ValueError(f"table {table!r} has no column {unknown[0]!r}")
    signs = {name: "GLOB" if "*" in str(value) else "IS NOT DISTINCT FROM" for name, value in filters.items()}
    clause = " AND ".join(f'"{name}" {sign} ?' for name, sign in signs.items()) or "true"
    order = ", ".join(f'"{name}"' for name in names)
    return _dicts(cursor, f'SELECT * FROM "{table}" WHERE {clause} ORDER BY {order}', list(filters.values()))


def reader_rows(cursor: Cursor) -> list[dict[str, Any]]:
    """Readers in a fixed order."""
    sql = "SELECT reader, method, proxy, input_view AS view, name, origin FROM readers ORDER BY origin, reader"
    return _dicts(cursor, sql)


def roster_families(cursor: Cursor, roster: str) -> list[dict[str, Any]]:
    """Sources of a roster by family and access, large families first."""
    sql = """
        SELECT family, access, count(*) AS sources, min(sources.build_id) AS build_id
        FROM roster_members JOIN sources USING (source) WHERE roster = ?
        GROUP BY family, access ORDER BY sum(count(*)) OVER (PARTITION BY family) DESC, family, access"""
    return _dicts(cursor, sql, [roster])


def build_rows(cursor: Cursor) -> dict[str, dict[str, Any]]:
    """Builds by id."""
    return {row["build_id"]: row for row in _dicts(cursor, "SELECT * FROM builds ORDER BY build_id")}


def mutual_ranks(cursor: Cursor, pairs: Iterable[tuple[str, str]], roster: str, domain: str) -> list[dict[str, Any]]:
    """Worse of the two directed ranks of pairs of sources, as every reader sees them."""
    sql = """
        SELECT reader, $one AS source, $other AS neighbor, max(rank) AS rank, max(build_id) AS build_id FROM neighbors
        WHERE roster = $roster AND domain = $domain
            AND ((source = $one AND neighbor = $other) OR (source = $other AND neighbor = $one))
        GROUP BY reader HAVING count(*) = 2 ORDER BY reader"""
    about = {"roster": roster, "domain": domain}
    return [row for one, other in pairs for row in _dicts(cursor, sql, {"one": one, "other": other, **about})]


def build_history(cursor: Cursor) -> list[dict[str, Any]]:
    """Builds in the order in which they began."""
    sql = """
        SELECT stage, command, started_at, duration_s, origin, details, source_file, build_id FROM builds
        ORDER BY started_at, build_id"""
    return _dicts(cursor, sql)


def holdings(cursor: Cursor) -> list[dict[str, Any]]:
    """What is measured here, one row a reader, roster and part (``about``) of a family, with its newest build."""
    sql = """
        WITH results AS (
            SELECT 'attribution' AS family, reader, roster, benchmark || ' ' || condition AS about, build_id
            FROM attribution_metrics
            UNION ALL SELECT 'relationships', reader, '', protocol, build_id FROM relationship_metrics
            UNION ALL SELECT 'maps', reader, roster, domain, build_id FROM projections
            UNION ALL SELECT 'variance', reader, roster, '', build_id FROM variance_ratios
            UNION ALL SELECT 'cost', reader, roster, '', build_id FROM costs
            UNION ALL SELECT 'audit', reader, roster, part, build_id FROM audit_validation
            UNION ALL SELECT 'statistics', unnest([subject, reference]), '', hypotheses, build_id FROM comparisons
        )
        SELECT family, reader, roster, about, arg_max(build_id, started_at) AS build_id
        FROM results JOIN builds USING (build_id) WHERE origin = 'measured' GROUP BY ALL ORDER BY ALL"""
    return _dicts(cursor, sql)


def missing_results(work: Path, data_folder: Path) -> list[str]:
    """What the current generation, where it can be read, has measured and a work database has not, sorted."""
    found = served(data_folder)
    if found is None:
        return []
    try:
        before = _measured(found[1])
    except AtlasError:
        return []
    return sorted(before - _measured(work))


def _measured(path: Path) -> set[str]:
    with contextlib.closing(open_reading(path)) as cursor:
        measured = [(row["reader"], row["roster"]) for row in holdings(cursor) if row["family"] != "statistics"]
    return {f"{reader} on {roster}" if roster else reader for reader, roster in measured}


def chosen_blocks(cursor: Cursor) -> list[dict[str, Any]]:
    """Blocks that measured readers read at, fold by fold; candidates : blocks that were compared."""
    sql = """
        WITH compared AS (
            SELECT reader, roster, count(DISTINCT layer) AS candidates FROM layer_scores GROUP BY ALL
        )
        SELECT reader, roster, candidates, list(layer ORDER BY outer_fold) AS layers, any_value(build_id) AS build_id
        FROM layer_selection JOIN compared USING (reader, roster) JOIN builds USING (build_id)
        WHERE outer_fold IS NOT NULL AND origin = 'measured'
        GROUP BY ALL ORDER BY reader, roster"""
    return _dicts(cursor, sql)


def comparison_sets(cursor: Cursor) -> list[str]:
    """Sets of hypotheses that paired comparisons are stored of."""
    rows = _dicts(cursor, "SELECT DISTINCT hypotheses FROM comparisons ORDER BY hypotheses")
    return [row["hypotheses"] for row in rows]


def compared_pairs(cursor: Cursor, hypotheses: str) -> set[tuple[str, str]]:
    """Subject and reference of every paired comparison that is stored of a set of hypotheses."""
    query = "SELECT DISTINCT subject, reference FROM comparisons WHERE hypotheses = ?"
    return {(subject, reference) for subject, reference in cursor.execute(query, [hypotheses]).fetchall()}


def count_rows(cursor: Cursor, table: str) -> int:
    """Rows of a table."""
    columns_of(cursor, table)
    return stored_rows(cursor, table)


def forget_published(connection: duckdb.DuckDBPyConnection, tables: Iterable[str]) -> None:
    """Remove what an earlier import of published numbers wrote into some tables, and its builds."""
    mine = "SELECT build_id FROM builds WHERE stage = 'reference' AND origin = 'published'"
    with transaction(connection):
        for table in tables:
            columns_of(connection, table)
            connection.execute(f'DELETE FROM "{storage(table)}" WHERE build_id IN ({mine})')
        connection.execute("DELETE FROM builds WHERE stage = 'reference' AND origin = 'published'")


def seed_accuracy(
    cursor: Cursor, reader: str, roster: str, k: int, seed: int, benchmark: str = "agent500"
) -> tuple[float, int] | None:
    """Accuracy over all groups of one grouping seed, and how many groups these are; None where it is not measured."""
    sql = """
        SELECT value, n FROM attribution_metrics
        WHERE reader = ? AND roster = ? AND k = ? AND seed = ? AND benchmark = ? AND condition = 'clean'
            AND metric = 'accuracy' AND reduction = 'pooled'"""
    row = cursor.execute(sql, [reader, roster, k, seed, benchmark]).fetchone()
    return None if row is None else (float(row[0]), int(row[1]))


def table_sizes(cursor: Cursor) -> pd.DataFrame:
    """Tables of a generation that hold rows, by name."""
    tables = cursor.execute(
        "SELECT table_name FROM duckdb_tables() WHERE database_name = current_database() AND schema_name = 'main'"
    ).fetchall()
    names = {name for (name,) in tables} - {storage(name) for name in PACKED} - {"labels"} | set(PACKED)
    sizes = [(name, stored_rows(cursor, name), len(columns_of(cursor, name))) for name in sorted(names)]
    return pd.DataFrame([size for size in sizes if size[1]], columns=["table_name", "rows", "columns"])


def table_rows(cursor: Cursor, table: str) -> Iterator[list[tuple[object, ...]]]:
    """Rows of a table in chunks, its column names first; the cursor is in use until the last chunk."""
    columns = columns_of(cursor, table)
    yield [tuple(columns)]
    answer = cursor.execute(f'SELECT * FROM "{table}"')
    while rows := answer.fetchmany(CHUNK):
        yield rows


def all_sources(cursor: Cursor) -> pd.DataFrame:
    """Sources of all rosters, by family and name."""
    sql = """
        SELECT source, s.name, family, subfamily, access, list(DISTINCT roster ORDER BY roster) AS rosters
        FROM sources s JOIN families f USING (family) JOIN roster_members m USING (source)
        GROUP BY source, s.name, family, subfamily, access, f.position ORDER BY f.position, source"""
    return with_lists(cursor.execute(sql).df(), "rosters")


def evaluations(
    cursor: Cursor, *, limit: int = 1_000, offset: int = 0, **columns: str | int | None
) -> tuple[pd.DataFrame, int]:
    """Attribution metrics over all seeds and folds that fit, from ``offset`` on, and how many there are in all.

    columns : reader, roster, benchmark, condition, reduction, metric and k; None fits all. std is NaN where there is
    none; n are groups.
    """
    given = {name: value for name, value in columns.items() if value is not None}
    where = "WHERE {where} AND seed IS NULL AND fold IS NULL"
    total = select(cursor, f"SELECT count(*) AS total FROM attribution_metrics {where}", **given)["total"]
    sql = f"""
        SELECT reader, origin, roster, benchmark, condition, reduction, k, metric, value, std, n, build_id
        FROM attribution_metrics JOIN readers USING (reader) {where}
        ORDER BY ALL LIMIT {int(limit)} OFFSET {int(offset)}"""
    return select(cursor, sql, **given), int(total.iloc[0])


def _dicts(
    cursor: Cursor, sql: str, parameters: Sequence[object] | Mapping[str, object] | None = None
) -> list[dict[str, Any]]:
    answer = cursor.execute(sql, parameters)
    names = [column[0] for column in answer.description or []]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]
