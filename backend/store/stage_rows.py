"""One build of a stage: what is recorded about it, and the rows that it replaces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb
import pandas as pd

from backend.store.builds import recorded
from backend.store.writers import replace_rows


@dataclass(frozen=True)
class StageRows:
    """Where a stage writes the rows of one build."""

    connection: duckdb.DuckDBPyConnection
    build_id: str
    key: Mapping[str, object]  # Columns that all its rows share

    def replace(self, table: str, frame: pd.DataFrame, **key: object) -> None:
        replace_rows(self.connection, table, frame, {**self.key, **key}, self.build_id)


@contextmanager
def stage_rows(
    connection: duckdb.DuckDBPyConnection,
    stage: str,
    details: Mapping[str, Any] | None = None,
    data_hash: str | None = None,
    proxy_hash: str | None = None,
    seed: int | None = None,
    *,
    key: Mapping[str, object] | None = None,
    origin: str = "measured",
    source_file: str | None = None,
) -> Iterator[StageRows]:
    """Record a build of the running command around the work that makes its rows.

    ``details`` are read when the block ends, so the block may add to them; when it raises, nothing is recorded.
    """
    about: dict[str, Any] = {"data_hash": data_hash, "proxy_hash": proxy_hash, "seed": seed, "details": details}
    with recorded(connection, stage=stage, origin=origin, source_file=source_file, **about) as build_id:
        yield StageRows(connection, build_id, key or {})
