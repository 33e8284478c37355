"""What the evidence of an audit is worth: questions to ``audit_validation``, for pages, reports and enrolments."""

from __future__ import annotations

import duckdb
import pandas as pd

COLUMNS = (
    "condition", "part", "k", "metric", "scenario", "statistic", "rule", "level", "space", "value", "std", "n",
    "build_id",
)  # fmt: skip


def validation(
    cursor: duckdb.DuckDBPyConnection,
    reader: str,
    roster: str,
    condition: str | None = None,
    k: int | None = None,
    part: str | None = None,
) -> pd.DataFrame:
    """Validation of a reader's audit on a roster.

    condition : clean, t128, t64, t32; all when absent.
    k : Traces; of every part and condition the rows of the nearest measured number are given, in its logarithm. All
        when absent.
    part : calibration, unknown, refit, stop, drift; all when absent.
    :data:`COLUMNS`, in a fixed order; what a part does not need is missing (None or NaN).
    """
    needed, values = ["reader = ?", "roster = ?"], [reader, roster]
    for name, value in (("condition", condition), ("part", part)):
        if value is not None:
            needed.append(f"{name} = ?")
            values.append(value)
    near = "" if k is None else " QUALIFY abs(ln(k / ?)) = min(abs(ln(k / ?))) OVER (PARTITION BY condition, part)"
    order = ", ".join(name for name in COLUMNS if name not in ("value", "std", "n", "build_id"))
    frame = cursor.execute(
        f"SELECT {', '.join(COLUMNS)} FROM audit_validation WHERE {' AND '.join(needed)}{near} ORDER BY {order}",
        [*values, *([] if k is None else [k, k])],
    ).df()
    return frame


def validated(cursor: duckdb.DuckDBPyConnection) -> pd.DataFrame:
    """What was validated: columns reader, roster, condition, part, smallest and largest k, rows."""
    return cursor.execute(
        "SELECT reader, roster, condition, part, min(k) AS smallest, max(k) AS largest, count(*) AS rows "
        "FROM audit_validation GROUP BY ALL ORDER BY ALL"
    ).df()
