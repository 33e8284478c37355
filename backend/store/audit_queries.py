"""What the evidence of an audit is worth: questions to ``audit_validation``, for pages, reports and enrolments."""

from __future__ import annotations

import duckdb
import pandas as pd

COLUMNS = (
    *("condition", "part", "k", "metric", "scenario", "statistic", "rule", "level", "space"),
    *("value", "std", "n", "build_id"),
)


def validation(
    cursor: duckdb.DuckDBPyConnection,
    reader: str,
    roster: str,
    condition: str | None = None,
    k: int | None = None,
    part: str | None = None,
) -> pd.DataFrame:
    """Validation of a reader's audit on a roster.

    k : Traces; of every part and condition the rows of the nearest measured number are given, in its logarithm.
    Columns :data:`COLUMNS`, in a fixed order; what a part does not need is missing (None or NaN).
    """
    needed, values = ["reader = ?", "roster = ?"], [reader, roster]
    for name, value in (("condition", condition), ("part", part)):
        if value is not None:
            needed.append(f"{name} = ?")
            values.append(value)
    near = "" if k is None else " QUALIFY abs(ln(k / ?)) = min(abs(ln(k / ?))) OVER (PARTITION BY condition, part)"
    order = ", ".join(name for name in COLUMNS if name not in ("value", "std", "n", "build_id"))
    sql = f"SELECT {', '.join(COLUMNS)} FROM audit_validation WHERE {' AND '.join(needed)}{near} ORDER BY {order}"
    return cursor.execute(sql, [*values, *([] if k is None else [k, k])]).df()


def validated(cursor: duckdb.DuckDBPyConnection) -> pd.DataFrame:
    """What was validated: columns reader, roster, condition, part, smallest and largest k, rows."""
    return cursor.execute(
        "SELECT reader, roster, condition, part, min(k) AS smallest, max(k) AS largest, count(*) AS rows "
        "FROM audit_validation GROUP BY ALL ORDER BY ALL"
    ).df()


def drift(cursor: duckdb.DuckDBPyConnection, reader: str) -> pd.DataFrame:
    """Alarms of the drift test at 5 % on real pairs.

    Columns roster, condition, k (traces a window), scenario (same, sibling, family), statistic (energy, mmd, and both
    -paired), space, level, value (share of pairs called different), std, n (pairs), of undamaged responses; the longest
    roster first. Empty where nothing was measured.
    """
    sql = """
        SELECT roster, condition, k, scenario, statistic, space, level, value, std, v.n
        FROM audit_validation v WHERE part = 'drift' AND condition = 'clean' AND reader = ?
        ORDER BY (SELECT count(*) FROM roster_members m WHERE m.roster = v.roster) DESC, roster, scenario,
            statistic, k"""
    return cursor.execute(sql, [reader]).df()
