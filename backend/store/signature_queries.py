"""Signatures of sources in the original space, for traces that are to be placed among them."""

from __future__ import annotations

import duckdb
import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def signatures(
    cursor: duckdb.DuckDBPyConnection, reader: str, roster: str, domain: str, layer: int
) -> dict[str, Floats]:
    """Signatures of a roster's sources at a block of the proxy.

    Parameters
    ----------
    cursor : DuckDBPyConnection
    reader, roster, domain : str
    layer : int

    Returns
    -------
    dict of str to ndarray of shape (2 d,)
        By source; empty where the generation holds none.
    """
    rows = cursor.execute(
        "SELECT source, vector FROM signatures WHERE reader = ? AND roster = ? AND domain = ? AND layer = ? "
        "ORDER BY source",
        [reader, roster, domain, layer],
    ).fetchall()
    return {str(source): np.array(vector, dtype=np.float32) for source, vector in rows}
