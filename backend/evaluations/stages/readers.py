"""Which readers were measured on a roster, where each keeps its log-posteriors, and which comparisons need them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.errors import AtlasError
from backend.evaluations.artifacts import artifact_folder
from backend.protocol import FOLDS
from backend.store.queries import builds_of, readers, selected_layers
from backend.store.result_queries import compared_pairs

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class KeptReader:
    """A measured reader."""

    reader: str  # Its id
    method: str
    proxy: str | None
    view: str | None
    folder: Path  # Where its evaluation on the roster is kept; need not exist on this machine

    def array(self, name: str, shape: tuple[int, ...]) -> Floats:
        """A kept array, mapped into memory. Raises AtlasError if it has another shape: it was made for other rows."""
        found: Floats = np.load(self.folder / name, mmap_mode="r", allow_pickle=False)
        if found.shape != shape:
            raise AtlasError(
                f"{self.folder / name} has the shape {found.shape}, and {shape} is needed",
                f"Evaluate {self.reader} again, so that everything it keeps is about the same records",
            )
        return found

    def proxy_hash(self, connection: duckdb.DuckDBPyConnection, roster: str) -> str | None:
        """Hash of the proxy behind its clean evaluation, None for a method without one."""
        key = {"reader": self.reader, "roster": roster, "benchmark": "agent500", "condition": "clean"}
        hashes = builds_of(connection, "attribution_metrics", key)["proxy_hash"].dropna()
        return str(hashes.iloc[0]) if len(hashes) else None


def fold_layers(connection: duckdb.DuckDBPyConnection, reader: str, roster: str, rerun_command: str) -> dict[int, int]:
    """Selected block of every outer fold. Raises AtlasError if none is stored; ``rerun_command`` selects them."""
    chosen = selected_layers(connection, reader, roster).dropna(subset="outer_fold")
    if len(chosen) != FOLDS:
        raise AtlasError(f"No blocks are selected for {reader} on {roster}", f"Run: {rerun_command}")
    return {int(fold): int(layer) for fold, layer in zip(chosen["outer_fold"], chosen["layer"], strict=True)}


def measured_readers(connection: duckdb.DuckDBPyConnection, roster: str, prompts: int) -> list[KeptReader]:
    """Readers whose clean attribution on a roster was measured here, by id."""
    frame = readers(connection)
    out = []
    for row in frame[frame["origin"] == "measured"].sort_values("reader").to_dict("records"):
        if roster in row["rosters"] and "clean" in row["conditions"]:
            proxy, view = (None if pd.isna(row[name]) else str(row[name]) for name in ("proxy", "view"))
            folder = artifact_folder(row["method"], proxy, view, roster, prompts)
            out.append(KeptReader(row["reader"], row["method"], proxy, view, folder))
    return out


def with_stored(
    connection: duckdb.DuckDBPyConnection, hypotheses: str, roster: str, prompts: int, pairs: Sequence[tuple[str, str]]
) -> tuple[list[tuple[str, str]], dict[str, Path]]:
    """Pairs of a table that is written again, with those that it holds already and that can be computed still.

    What is at hand decides which readers a run names, and Holm's correction must not get easier by that.

    pairs : sequence of (subject, reference); those of this run.
    Returns this run's pairs, then the others (one that this run turns round is the same test), and where the readers of
    the others keep their log-posteriors.
    """
    measured = {reader.reader: reader.folder for reader in measured_readers(connection, roster, prompts)}
    folders = {reader: folder for reader, folder in measured.items() if (folder / "log_posteriors.npy").exists()}
    named = {pair for subject, reference in pairs for pair in ((subject, reference), (reference, subject))}
    stored = sorted(compared_pairs(connection, hypotheses) - named)
    others = [pair for pair in stored if folders.keys() >= set(pair)]
    if len(others) < len(stored):
        print(f"{hypotheses}: {len(stored) - len(others)} comparisons go; their readers are not measured on {roster}")
    return [*pairs, *others], {reader: folders[reader] for pair in others for reader in pair}


def comparable(connection: duckdb.DuckDBPyConnection, hypotheses: str, roster: str, prompts: int) -> bool:
    """Whether a table of paired comparisons may be written again: log-posteriors of all its readers are kept here.

    Holm's correction is over a whole table, so one that would lose pairs is left as it was measured. That happens where
    the work goes on from a published generation, which has no log-posteriors. Readers that the store no longer knows
    on the roster do not count.
    """
    measured = measured_readers(connection, roster, prompts)
    gone = {reader.reader for reader in measured if not (reader.folder / "log_posteriors.npy").exists()}
    lost = [pair for pair in compared_pairs(connection, hypotheses) if not gone.isdisjoint(pair)]
    if lost:
        print(
            f"{hypotheses}: {len(lost)} of its comparisons need log-posteriors that are not kept here; the table stays "
            "as it was measured"
        )
    return not lost
