"""Questions that the comparison of relationship readouts asks the store (paper, Transfer to Unseen Models)."""

from __future__ import annotations

import duckdb
import pandas as pd


def measured_splits(cursor: duckdb.DuckDBPyConnection) -> pd.DataFrame:
    """Metrics of single splits of every reader that was measured here.

    Returns
    -------
    DataFrame
        Columns reader, protocol, readout, metric, split, value.
    """
    return cursor.execute(
        """
        SELECT reader, protocol, readout, metric, split, value FROM relationship_metrics JOIN readers USING (reader)
        WHERE origin = 'measured' AND split IS NOT NULL ORDER BY reader, protocol, readout, metric, split
        """
    ).df()
