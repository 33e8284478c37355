"""Questions about pairs of models: is one derived from the other (paper, Transfer to Unseen Models)?

``jobs relate`` asks for its own measurements before it compares them, the web for everything that a page shows. Rates
lie between 0 and 1; a positive decision says related.
"""

from __future__ import annotations

import duckdb
import pandas as pd

from backend.store.frames import frame_of

Cursor = duckdb.DuckDBPyConnection

SCORES = ("dc", "ac", "match", "distance", "decision", "decision-model", "decision-family")
"""Features that pages show: cosines of the two blocks, a matcher's rate, a distance, mean decision by protocol."""


def measured_splits(cursor: Cursor) -> pd.DataFrame:
    """Metrics of single splits that were measured here (columns reader, protocol, readout, metric, split, value)."""
    sql = """
        SELECT reader, protocol, readout, metric, split, value FROM relationship_metrics JOIN readers USING (reader)
        WHERE origin = 'measured' AND split IS NOT NULL ORDER BY reader, protocol, readout, metric, split"""
    return cursor.execute(sql).df()


def relationship_readers(cursor: Cursor) -> pd.DataFrame:
    """Readers with relationships, measured ones first.

    Columns reader, name, method, proxy, proxy_name, view, origin, pairs (of which a score is stored).
    """
    sql = """
        SELECT reader, r.name, method, r.proxy, p.name AS proxy_name, input_view AS view, origin,
            (SELECT count(DISTINCT (pair_set, pair_id)) FROM relationship_features f WHERE f.reader = r.reader)
                ::INTEGER AS pairs
        FROM readers r LEFT JOIN proxies p ON p.proxy = r.proxy
        WHERE reader IN (SELECT reader FROM relationship_metrics)
        ORDER BY origin, method = 'reader-paper' DESC, method, r.proxy, input_view DESC, reader"""
    return frame_of(cursor, sql)


def relationship_summaries(cursor: Cursor, protocol: str) -> pd.DataFrame:
    """How well readers tell related pairs under a protocol: means over its splits.

    Columns reader, origin, readout, metric, value, std (population), low, high (NaN where no interval is stored), n
    (splits), build_id.
    """
    sql = """
        SELECT reader, origin, readout, metric, value, std, low, high, n, m.build_id
        FROM relationship_metrics m JOIN readers USING (reader)
        WHERE protocol = ? AND split IS NULL ORDER BY origin, reader, readout, metric"""
    return frame_of(cursor, sql, [protocol])


def relationship_models(cursor: Cursor) -> pd.DataFrame:
    """Models of the task by parent, parents first (columns model, parent_family, is_parent, empty_responses)."""
    sql = """
        SELECT model, parent_family, is_parent, empty_responses FROM relationship_models
        ORDER BY lower(parent_family), is_parent DESC, lower(model)"""
    return frame_of(cursor, sql)


def relationship_pairs(cursor: Cursor) -> pd.DataFrame:
    """Pairs with their truth. Columns pair_set, pair_id, model_a, model_b, parent_a, parent_b (families), related."""
    sql = """
        SELECT pair_set, pair_id, model_a, model_b, a.parent_family AS parent_a, b.parent_family AS parent_b, related
        FROM relationship_pairs LEFT JOIN relationship_models a ON a.model = model_a
        LEFT JOIN relationship_models b ON b.model = model_b ORDER BY pair_set, pair_id"""
    return frame_of(cursor, sql)


def relationship_scores(cursor: Cursor, pair_set: str, reader: str | None = None) -> pd.DataFrame:
    """What readers see of every pair of a set.

    reader : By default every reader.
    Columns reader, pair_id, and those of :data:`SCORES` with '_' for '-', NaN where a reader has no such score; a row a
    reader and pair.
    """
    wide = ", ".join(f"max(value) FILTER (feature = '{name}') AS {name.replace('-', '_')}" for name in SCORES)
    sql = f"""
        SELECT reader, pair_id, {wide} FROM relationship_features
        WHERE pair_set = ? AND reader = coalesce(?, reader) GROUP BY reader, pair_id ORDER BY reader, pair_id"""
    return frame_of(cursor, sql, [pair_set, reader])


def relationship_tests(cursor: Cursor, protocol: str) -> pd.DataFrame:
    """Paired comparisons of readouts under a protocol, every comparison once in each set that corrected it.

    Columns hypotheses, subject, subject_readout, reference, reference_readout, measure, difference, low, high, p_value,
    p_holm, n, method, origin (of the build), build_id.
    """
    sql = """
        SELECT hypotheses, regexp_extract(subject, '^(.*):', 1) AS subject,
            regexp_extract(subject, '([^:]*)$', 1) AS subject_readout,
            regexp_extract(reference, '^(.*):', 1) AS reference,
            regexp_extract(reference, '([^:]*)$', 1) AS reference_readout,
            measure, difference, low, high, p_value, p_holm, n, method, origin, build_id
        FROM comparisons JOIN builds USING (build_id)
        WHERE regexp_matches(hypotheses, '(^|/)relationships/[^/]+/' || ? || '$')
        ORDER BY origin, hypotheses, measure, p_holm, p_value, subject, reference"""
    return frame_of(cursor, sql, [protocol])
