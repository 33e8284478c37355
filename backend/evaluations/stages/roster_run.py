"""What stages share: a run on a roster, the readers measured there, and which comparisons need them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd

from backend.corpus.release import Benchmark, Release
from backend.corpus.roster_rows import Slice, describe_proxy, slice_of
from backend.errors import AtlasError
from backend.evaluations.artifacts import CLEAN_FILE, artifact_folder, evaluation
from backend.methods.readout import Floats
from backend.protocol import FOLDS, SPLIT_SEED
from backend.store.queries import builds_of, readers, selected_layers
from backend.store.result_queries import compared_pairs
from backend.store.writers import StageRows, stage_rows, write_reader
from backend.traces import View


@dataclass(frozen=True)
class MeasuredReader:
    """A measured reader."""

    reader: str  # Its id
    method: str
    proxy: str | None
    view: str | None
    folder: Path  # Of its evaluation on the roster; need not exist on this machine

    @property
    def input_view(self) -> View:
        """What its proxy reads."""
        return "r" if self.view == "r" else "ur"

    @property
    def scored(self) -> bool:
        """Whether its log-posteriors are on this machine."""
        return (self.folder / CLEAN_FILE).exists()

    def array(self, name: str, shape: tuple[int, ...]) -> Floats:
        """A saved array, mapped into memory. Raises AtlasError if its shape is that of other rows."""
        found: Floats = np.load(self.folder / name, mmap_mode="r", allow_pickle=False)
        if found.shape != shape:
            raise AtlasError(
                f"{self.folder / name} has the shape {found.shape}, and {shape} is needed",
                f"Evaluate {self.reader} again, so that everything it keeps is about the same records",
            )
        return found


@dataclass(frozen=True)
class RosterRun:
    """One run of a stage on one roster."""

    connection: duckdb.DuckDBPyConnection
    release: Release
    roster: str
    limit: int | None = None  # Only the first prompts

    @cached_property
    def prompts(self) -> int:
        """Number of prompts in use."""
        return len(self.release.prompts("agent500")["sample_id"].iloc[: self.limit])

    def rows(self, proxy: str, view: View = "ur", benchmark: Benchmark = "agent500") -> Slice:
        """Fingerprints of the roster."""
        return slice_of(self.release, benchmark, proxy, view, self.roster, self.limit)

    def folder(self, method: str, proxy: str | None, view: str | None) -> Path:
        """Folder of a reader's evaluation."""
        return artifact_folder(method, proxy, view, self.roster, self.prompts)

    def command(self, method: str, proxy: str, view: str) -> str:
        """The command that evaluates a reader."""
        return evaluation(method, proxy, view, self.roster, self.limit)

    def enter_reader(self, method: str, proxy: str | None, view: str | None, name: str) -> str:
        """Describe a reader and its proxy in the store. Returns the reader's id."""
        if proxy:
            describe_proxy(self.connection, proxy)
        return write_reader(self.connection, method=method, name=name, proxy=proxy, view=view)

    def build(
        self,
        stage: str,
        details: dict[str, Any],
        proxy_hash: str | None = None,
        seed: int | None = SPLIT_SEED,
        **key: str,
    ) -> AbstractContextManager[StageRows]:
        """Record a build of a stage; see :func:`backend.store.writers.stage_rows`."""
        return stage_rows(self.connection, stage, details, self.release.manifest_hash, proxy_hash, seed, key=key)

    def fold_layers(self, reader: str, rerun_command: str) -> dict[int, int]:
        """Selected block of every outer fold. Raises AtlasError if none is stored; ``rerun_command`` selects them."""
        chosen = selected_layers(self.connection, reader, self.roster).dropna(subset="outer_fold")
        if len(chosen) != FOLDS:
            raise AtlasError(f"No blocks are selected for {reader} on {self.roster}", f"Run: {rerun_command}")
        return {int(fold): int(layer) for fold, layer in zip(chosen["outer_fold"], chosen["layer"], strict=True)}

    def proxy_hash(self, reader: str) -> str | None:
        """Hash of the proxy behind a reader's clean evaluation, None for a method without one."""
        key = {"reader": reader, "roster": self.roster, "benchmark": "agent500", "condition": "clean"}
        hashes = builds_of(self.connection, "attribution_metrics", key)["proxy_hash"].dropna()
        return str(hashes.iloc[0]) if len(hashes) else None

    def measured_readers(self) -> list[MeasuredReader]:
        """Readers whose clean attribution on the roster was measured here, by id."""
        frame = readers(self.connection)
        out = []
        for row in frame[frame["origin"] == "measured"].sort_values("reader").to_dict("records"):
            if self.roster in row["rosters"] and "clean" in row["conditions"]:
                proxy, view = (None if pd.isna(row[name]) else str(row[name]) for name in ("proxy", "view"))
                folder = self.folder(row["method"], proxy, view)
                out.append(MeasuredReader(row["reader"], row["method"], proxy, view, folder))
        return out

    def with_stored(
        self, hypotheses: str, pairs: Sequence[tuple[str, str]]
    ) -> tuple[list[tuple[str, str]], dict[str, Path]]:
        """Pairs (subject, reference) of this run, then stored ones that can be computed still, and their folders.

        What is at hand decides which readers a run names, and Holm's correction must not get easier by that. A pair
        that this run turns round is the same test.
        """
        folders = {reader.reader: reader.folder for reader in self.measured_readers() if reader.scored}
        named = {pair for subject, reference in pairs for pair in ((subject, reference), (reference, subject))}
        stored = sorted(compared_pairs(self.connection, hypotheses) - named)
        others = [pair for pair in stored if folders.keys() >= set(pair)]
        if len(others) < len(stored):
            missing = len(stored) - len(others)
            print(f"{hypotheses}: {missing} comparisons go; their readers are not measured on {self.roster}")
        return [*pairs, *others], {reader: folders[reader] for pair in others for reader in pair}

    def comparable(self, hypotheses: str) -> bool:
        """Whether a table of paired comparisons may be written again: log-posteriors of all its readers are here.

        Holm's correction is over a whole table, so one that would lose pairs stays as it was measured. Readers that the
        store no longer knows on the roster do not count.
        """
        gone = {reader.reader for reader in self.measured_readers() if not reader.scored}
        lost = [pair for pair in compared_pairs(self.connection, hypotheses) if not gone.isdisjoint(pair)]
        if lost:
            print(
                f"{hypotheses}: {len(lost)} of its comparisons need log-posteriors that are not here; the table stays "
                "as it was measured"
            )
        return not lost
