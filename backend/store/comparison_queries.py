"""Questions behind the page that compares readers: parts, variance, capability, cost, and what the paper printed.

What is a budget, domain or condition of attribution goes through :mod:`backend.store.queries`.
"""

from __future__ import annotations

from collections.abc import Sequence

import duckdb
import pandas as pd

from backend.store.frames import frame_of

Cursor = duckdb.DuckDBPyConnection


def variance_ratios(cursor: Cursor, roster: str) -> pd.DataFrame:
    """Source-to-prompt variance of every reader's fingerprints, at the block that it reads.

    Columns reader, origin, proxy_name, view, layer, block (dc, ac, dc-ac), source_variance, prompt_variance, ratio
    (means over the folds), std (population, of the folds' ratios; NaN without folds), n (folds), build_id.
    """
    sql = """
        WITH chosen AS (
            SELECT reader, max(layer) AS layer FROM layer_selection WHERE outer_fold IS NULL AND roster = $roster
            GROUP BY reader
        ), read_at AS (
            SELECT v.reader, coalesce(max(own.layer), max(with_prompt.layer)) AS layer FROM variance_ratios v
            LEFT JOIN chosen own ON own.reader = v.reader
            LEFT JOIN chosen with_prompt ON with_prompt.reader = regexp_replace(v.reader, '/r$', '/ur')
            WHERE v.roster = $roster GROUP BY v.reader
        ), spread AS (
            SELECT reader, layer, block, stddev_pop(ratio) AS std, count(*)::INTEGER AS n FROM variance_ratios
            WHERE roster = $roster AND fold IS NOT NULL GROUP BY reader, layer, block
        )
        SELECT v.reader, r.origin, p.name AS proxy_name, input_view AS view, v.layer, v.block, source_variance,
            prompt_variance, ratio, std, coalesce(n, 0)::INTEGER AS n, v.build_id
        FROM variance_ratios v JOIN readers r ON r.reader = v.reader JOIN read_at ON read_at.reader = v.reader
        LEFT JOIN proxies p ON p.proxy = r.proxy
        LEFT JOIN spread s ON s.reader = v.reader AND s.layer = v.layer AND s.block = v.block
        WHERE v.roster = $roster AND fold IS NULL AND v.layer = coalesce(read_at.layer, v.layer)
        ORDER BY r.origin, v.reader, v.layer, v.block"""
    return frame_of(cursor, sql, {"roster": roster})


def capability(cursor: Cursor, readers: Sequence[str], roster: str, k: int) -> pd.DataFrame:
    """General capability of proxies beside the accuracy of readers that read with them.

    Columns benchmark, proxy, proxy_name, view, reader, origin, score (percent), value (pooled accuracy on whole
    Agent500 responses), build_id (of the score).
    """
    sql = """
        SELECT c.benchmark, c.proxy, p.name AS proxy_name, input_view AS view, r.reader, origin, score, a.value,
            c.build_id
        FROM capability_scores c JOIN readers r ON r.proxy = c.proxy
        JOIN attribution_metrics a ON a.reader = r.reader AND a.roster = $roster AND a.benchmark = 'agent500'
            AND condition = 'clean' AND metric = 'accuracy' AND reduction = 'pooled' AND seed IS NULL AND fold IS NULL
            AND k = $k
        LEFT JOIN proxies p ON p.proxy = c.proxy
        WHERE list_contains($readers::VARCHAR[], r.reader) ORDER BY c.benchmark, score, r.reader"""
    return frame_of(cursor, sql, {"readers": list(readers), "roster": roster, "k": k})


def correlations(cursor: Cursor) -> pd.DataFrame:
    """Correlations over proxies (columns subject, reference, statistic, value, p_value, n, build_id)."""
    return frame_of(
        cursor,
        "SELECT subject, reference, statistic, value, p_value, n, build_id FROM correlations "
        "ORDER BY subject, reference, statistic",
    )


def costs(cursor: Cursor, roster: str) -> pd.DataFrame:
    """What readers cost (columns reader, origin, method, measure, value, unit, hardware, build_id)."""
    sql = """
        SELECT reader, origin, method, measure, value, unit, hardware, c.build_id
        FROM costs c JOIN readers USING (reader) WHERE roster = ? ORDER BY origin, reader, measure"""
    return frame_of(cursor, sql, [roster])


def paper_values(cursor: Cursor, places: Sequence[str]) -> pd.DataFrame:
    """Numbers as the paper prints them (columns place, row_name, column_name, value, file_value, build_id)."""
    sql = """
        SELECT place, row_name, column_name, value, file_value, build_id FROM paper_values
        WHERE list_contains(?::VARCHAR[], place) ORDER BY place, row_name, column_name"""
    return frame_of(cursor, sql, [list(places)])


def neighbor_votes(cursor: Cursor, roster: str, domain: str, source: str, within: int = 10) -> pd.DataFrame:
    """How many readers also count a source's neighbours among its nearest.

    Columns neighbor, readers (that have ranked the two), near (of these readers, with a rank of at most ``within``),
    proxies and near_proxies (the same over proxies; a proxy counts once, whatever it reads).
    """
    sql = """
        SELECT neighbor, count(*)::INTEGER AS readers, (count(*) FILTER (rank <= $within))::INTEGER AS near,
            count(DISTINCT proxy)::INTEGER AS proxies,
            (count(DISTINCT proxy) FILTER (rank <= $within))::INTEGER AS near_proxies
        FROM neighbors JOIN readers USING (reader) WHERE roster = $roster AND domain = $domain AND source = $source
        GROUP BY neighbor ORDER BY near DESC, neighbor"""
    return frame_of(cursor, sql, {"roster": roster, "domain": domain, "source": source, "within": within})
