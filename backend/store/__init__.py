"""Results in DuckDB files: who writes them, and answers to questions as frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb
import numpy as np
import pandas as pd

Cursor = duckdb.DuckDBPyConnection


def frame_of(
    cursor: Cursor, sql: str, parameters: Sequence[object] | Mapping[str, object] | None = None
) -> pd.DataFrame:
    """Run a question; text columns have one type whether or not there are rows or values."""
    answer = cursor.execute(sql, parameters)
    text = [column[0] for column in answer.description or [] if str(column[1]) == "VARCHAR"]
    return answer.df().astype(dict.fromkeys(text, "str"))


def select(cursor: Cursor, sql: str, **columns: object) -> pd.DataFrame:
    """Run a question whose ``{where}`` asks for these values of columns; no row has the value None."""
    where = " AND ".join(f"{name} = ${name}" for name in columns) or "true"
    return frame_of(cursor, sql.replace("{where}", where), columns)


def with_lists(frame: pd.DataFrame, *columns: str) -> pd.DataFrame:
    """A frame with plain lists where DuckDB gives arrays."""
    for column in columns:
        values = [value.tolist() if isinstance(value, np.ndarray) else list(value) for value in frame[column]]
        frame[column] = pd.Series(values, index=frame.index, dtype=object)
    return frame
