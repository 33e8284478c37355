"""Questions behind ``docs/results.md``, ``jobs status`` and the import of published numbers.

They go through the same tables as the web's (:mod:`backend.store.queries`), but ask for whole result families.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb

from backend.errors import AtlasError
from backend.store.database import migrations, schema_version, transaction
from backend.store.lists import storage, stored_rows
from backend.store.writers import columns_of

Cursor = duckdb.DuckDBPyConnection

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
    """Open a work database or a generation for reading, as it is: nothing is migrated.

    Raises AtlasError if it is missing, another process holds it, it cannot be read, or its schema is not that of this
    code.
    """
    if not path.exists():
        raise AtlasError(f"There is no database {path}", "Run: python -m jobs all")
    try:
        connection = duckdb.connect(path, read_only=True)
    except (OSError, duckdb.Error) as error:
        text = str(error).strip().partition("\n")[0].rstrip(".")
        if "lock" in text.lower():
            raise AtlasError(
                f"{path} is in use by another process", "Wait until that job has finished, then run this again"
            ) from error
        raise AtlasError(f"{path} cannot be read ({text})", "Move it away, and run: python -m jobs all") from error
    try:
        present, known = schema_version(connection), len(migrations())
        if present != known:
            raise AtlasError(
                f"{path} has schema version {present}, and this atlas reads version {known}",
                "Any job brings an older work database up to date; python -m jobs publish, a generation",
            )
    except duckdb.Error as error:
        connection.close()
        raise AtlasError(f"{path} is damaged ({error})", "Move it away, and run: python -m jobs all") from error
    except AtlasError:
        connection.close()
        raise
    return connection


def summary_rows(cursor: Cursor, table: str) -> list[dict[str, Any]]:
    """Summary rows of a result table by column, missing values as None, in a fixed order.

    Raises ValueError if the table is none of :data:`SUMMARIES`.
    """
    if table not in SUMMARIES:
        raise ValueError(f"table {table!r} holds no summaries")
    names = [name for name in columns_of(cursor, table) if name != "build_id"]
    order = ", ".join(f'"{name}"' for name in names)
    return _dicts(cursor, f'SELECT * FROM "{table}" WHERE {SUMMARIES[table]} ORDER BY {order}, build_id')


UNIT_COLUMNS = ("seed", "fold", "split", "outer_fold")
"""Columns that are missing in a summary row, which is over all of them."""


def matching_rows(cursor: Cursor, table: str, where: Mapping[str, object]) -> list[dict[str, Any]]:
    """Rows of a table in a fixed order; summaries, unless a seed, fold or split is asked for.

    where : None matches missing values, a text with ``*`` every text of that shape.
    Raises ValueError if there is no such table or column.
    """
    names = columns_of(cursor, table)
    asked = {name: None for name in UNIT_COLUMNS if name in names} | dict(where)
    if unknown := sorted(set(asked) - set(names)):
        raise ValueError(f"table {table!r} has no column {unknown[0]!r}")
    signs = {name: "GLOB" if "*" in str(value) else "IS NOT DISTINCT FROM" for name, value in asked.items()}
    clause = " AND ".join(f'"{name}" {sign} ?' for name, sign in signs.items()) or "true"
    order = ", ".join(f'"{name}"' for name in names)
    return _dicts(cursor, f'SELECT * FROM "{table}" WHERE {clause} ORDER BY {order}', list(asked.values()))


def reader_rows(cursor: Cursor) -> list[dict[str, Any]]:
    """Readers in a fixed order: columns reader, method, proxy, view, name, origin."""
    return _dicts(
        cursor, "SELECT reader, method, proxy, input_view AS view, name, origin FROM readers ORDER BY origin, reader"
    )


def roster_families(cursor: Cursor, roster: str) -> list[dict[str, Any]]:
    """Sources of a roster by family and access, large families first: family, access, sources, build_id."""
    sql = """
        SELECT family, access, count(*) AS sources, min(sources.build_id) AS build_id
        FROM roster_members JOIN sources USING (source) WHERE roster = ?
        GROUP BY family, access ORDER BY sum(count(*)) OVER (PARTITION BY family) DESC, family, access"""
    return _dicts(cursor, sql, [roster])


def build_rows(cursor: Cursor) -> dict[str, dict[str, Any]]:
    """Builds by id (columns of table ``builds``)."""
    return {row["build_id"]: row for row in _dicts(cursor, "SELECT * FROM builds ORDER BY build_id")}


def mutual_ranks(cursor: Cursor, pairs: Iterable[tuple[str, str]], roster: str, domain: str) -> list[dict[str, Any]]:
    """Worse of the two directed ranks of pairs of sources (columns reader, source, neighbor, rank, build_id)."""
    out = []
    for left, right in pairs:
        out += _dicts(
            cursor,
            """
            SELECT reader, ? AS source, ? AS neighbor, max(rank) AS rank, max(build_id) AS build_id FROM neighbors
            WHERE roster = ? AND domain = ? AND ((source = ? AND neighbor = ?) OR (source = ? AND neighbor = ?))
            GROUP BY reader HAVING count(*) = 2 ORDER BY reader
            """,
            [left, right, roster, domain, left, right, right, left],
        )
    return out


def made_rows(cursor: Cursor) -> list[dict[str, Any]]:
    """What every build made: columns stage, command, started_at, duration_s, origin, details, source_file, build_id."""
    sql = """
        SELECT stage, command, started_at, duration_s, origin, details, source_file, build_id FROM builds
        ORDER BY started_at, build_id"""
    return _dicts(cursor, sql)


def holdings(cursor: Cursor) -> list[dict[str, Any]]:
    """What is measured here, one row a holding: columns family, reader, roster, about, build_id (the newest).

    ``family`` is attribution, relationships, maps, variance, cost, audit or statistics; ``about`` is the benchmark and
    condition, the protocol, the domain, the part of the validation, or the set of hypotheses a reader is compared in.
    """
    sql = """
        WITH held AS (
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
        FROM held JOIN builds USING (build_id) WHERE origin = 'measured' GROUP BY ALL ORDER BY ALL"""
    return _dicts(cursor, sql)


def chosen_blocks(cursor: Cursor) -> list[dict[str, Any]]:
    """Block that measured readers of one read at in every outer fold, one row a reader and roster.

    Columns reader, roster, candidates (blocks that were compared), layers (fold by fold), build_id.
    """
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
    rows = cursor.execute("SELECT DISTINCT hypotheses FROM comparisons ORDER BY hypotheses").fetchall()
    return [name for (name,) in rows]


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


def _dicts(cursor: Cursor, sql: str, parameters: list[object] | None = None) -> list[dict[str, Any]]:
    answer = cursor.execute(sql, parameters)
    names = [column[0] for column in answer.description or []]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


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
