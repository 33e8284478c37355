"""How often the drift test spoke on real pairs of windows, as the validation of the audit's statistics measured it."""

from __future__ import annotations

import duckdb
import pandas as pd


def drift(cursor: duckdb.DuckDBPyConnection, reader: str) -> pd.DataFrame:
    """Alarms of the drift test at 5 % on real pairs.

    Columns roster, condition, k (traces a window), scenario (same, sibling, family), statistic (energy, mmd, and both
    -paired), space, level, value (share of pairs called different), std, n (pairs), of undamaged responses; the longest
    roster first. Empty where nothing was measured.
    """
    return cursor.execute(
        """
        SELECT roster, condition, k, scenario, statistic, space, level, value, std, v.n
        FROM audit_validation v
        WHERE part = 'drift' AND condition = 'clean' AND reader = ?
        ORDER BY (SELECT count(*) FROM roster_members m WHERE m.roster = v.roster) DESC, roster, scenario, statistic, k
        """,
        [reader],
    ).df()
