"""What a map shows beside its points: both domains in one space, where it is dense, and who else agrees."""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pandas as pd

Cursor = duckdb.DuckDBPyConnection


def joint_projection(
    cursor: Cursor, reader: str, roster: str, variant: str, method: str = "tsne", dimensions: int = 3
) -> pd.DataFrame:
    """Where the sources of both domains lie on one map.

    variant : Signatures as they are, or less the mean of their domain.
    Columns position, domain, source, name, family, access, x, y, z; a row a domain and source.
    """
    sql = """
        SELECT m.position, p.domain, source, name, family, access, x, y, z
        FROM joint_projections p JOIN roster_members m USING (roster, source) JOIN sources USING (source)
        WHERE reader = ? AND roster = ? AND variant = ? AND method = ? AND dimensions = ?
        ORDER BY p.domain, m.position"""
    return cursor.execute(sql, [reader, roster, variant, method, dimensions]).df()


def projection_sweep(cursor: Cursor, reader: str, roster: str, domain: str) -> pd.DataFrame:
    """How far maps of other settings can be trusted, one row a map and metric.

    Columns method, dimensions, perplexity, metric, value, settings (JSON), build_id; empty where none was made.
    """
    sql = """
        SELECT method, dimensions, (settings->>'perplexity')::DOUBLE AS perplexity, metric, value, settings, build_id
        FROM projection_quality
        WHERE reader = ? AND roster = ? AND domain = ? AND method LIKE '%-sweep'
        ORDER BY method, dimensions, perplexity, settings->>'seed', metric"""
    return cursor.execute(sql, [reader, roster, domain]).df()


def density_regions(
    cursor: Cursor, reader: str, roster: str, domain: str, method: str, mass: float = 0.5
) -> pd.DataFrame:
    """Outlines within which a share of every large family lies on a 2-D map (columns family, ring, x, y as lists)."""
    sql = """
        SELECT family, ring, x, y FROM density_regions
        WHERE reader = ? AND roster = ? AND domain = ? AND method = ? AND mass = ? ORDER BY family, ring"""
    return cursor.execute(sql, [reader, roster, domain, method, mass]).df()


def clusters(
    cursor: Cursor, reader: str, roster: str, domain: str, method: str = "tsne", dimensions: int = 3
) -> pd.DataFrame:
    """Which sources lie close together on a map (columns source, cluster; those in none are left out)."""
    sql = """
        SELECT source, cluster FROM clusters
        WHERE reader = ? AND roster = ? AND domain = ? AND method = ? AND dimensions = ? AND cluster IS NOT NULL
        ORDER BY cluster, source"""
    return cursor.execute(sql, [reader, roster, domain, method, dimensions]).df()


def neighbor_votes(
    cursor: Cursor, readers: Sequence[str], roster: str, domain: str, source: str, within: int = 10
) -> pd.DataFrame:
    """How many readers have each source among the nearest of one (columns neighbor, near, readers).

    readers : Readers that vote.
    within : Largest rank that counts as near.
    """
    sql = """
        SELECT neighbor, (count(*) FILTER (rank <= $within))::INTEGER AS near, count(*)::INTEGER AS readers
        FROM neighbors WHERE list_contains($readers::VARCHAR[], reader) AND roster = $roster AND domain = $domain
            AND source = $source
        GROUP BY neighbor ORDER BY near DESC, neighbor"""
    return cursor.execute(
        sql, {"readers": list(readers), "roster": roster, "domain": domain, "source": source, "within": within}
    ).df()
