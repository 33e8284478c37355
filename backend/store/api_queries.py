"""What programs ask of a generation: every source, and every number of an evaluation, as plain rows."""

from __future__ import annotations

from typing import Any

import duckdb
import pandas as pd


def all_sources(cursor: duckdb.DuckDBPyConnection) -> pd.DataFrame:
    """Sources of all rosters (columns source, name, family, subfamily, access, rosters), by family and name."""
    frame = cursor.execute(
        """
        SELECT source, s.name, family, subfamily, access, list(DISTINCT roster ORDER BY roster) AS rosters
        FROM sources s JOIN families f USING (family) JOIN roster_members m USING (source)
        GROUP BY source, s.name, family, subfamily, access, f.position ORDER BY f.position, source
        """
    ).df()
    frame["rosters"] = pd.Series([list(value) for value in frame["rosters"]], index=frame.index, dtype=object)
    return frame


def evaluations(
    cursor: duckdb.DuckDBPyConnection,
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
    """Attribution metrics over all seeds and folds that fit what is asked.

    limit, offset : Rows that are wanted.
    rows : Columns reader, origin, roster, benchmark, condition, reduction, k, metric, value, std (NaN where there is
        none), n (groups), build_id.
    total : Rows that fit.
    """
    asked: dict[str, Any] = {
        "reader": reader,
        "roster": roster,
        "benchmark": benchmark,
        "condition": condition,
        "reduction": reduction,
        "metric": metric,
        "k": k,
    }
    where = "WHERE seed IS NULL AND fold IS NULL" + "".join(
        f" AND {name} = ${name}" for name in asked if asked[name] is not None
    )
    given = {name: value for name, value in asked.items() if value is not None}
    total = cursor.execute(f"SELECT count(*) FROM attribution_metrics {where}", given).fetchone()
    rows = cursor.execute(
        f"""
        SELECT reader, origin, roster, benchmark, condition, reduction, k, metric, value, std, n, build_id
        FROM attribution_metrics JOIN readers USING (reader) {where}
        ORDER BY ALL LIMIT $limit OFFSET $offset
        """,
        given | {"limit": limit, "offset": offset},
    ).df()
    return rows, int(total[0]) if total else 0
