"""Rows of a frame against pandas' own road."""

from __future__ import annotations

import pandas as pd
import pytest

from atlas.figures import tables


@pytest.mark.parametrize("columns", [(), ("name",), ("value", "when", "name")])
@pytest.mark.parametrize("length", [0, 1, 3])
def test_rows_are_those_of_itertuples(columns: tuple[str, ...], length: int) -> None:
    frame = pd.DataFrame(
        {
            "name": ["one", "two", "three"],
            "value": [0.5, 1.5, -2.0],
            "count": [1, 2, 3],
            "when": pd.to_datetime(["2025-01-01", "2025-02-01", "2025-03-01"]),
            "a label": ["x", "y", "z"],
        },
        index=[5, 3, 9],
    ).head(length)
    wanted = list((frame[list(columns)] if columns else frame).itertuples(index=False))
    found = list(tables.rows(frame, *columns))
    assert found == wanted
    assert all(row._fields == other._fields for row, other in zip(found, wanted, strict=True))
    assert all(type(value) is type(twin) for row, other in zip(found, wanted, strict=True)
               for value, twin in zip(row, other, strict=True))  # fmt: skip
