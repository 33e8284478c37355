"""What controls of one proxy, view and roster share: the rows, the blocks of the paper's readout, what is missing."""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.corpus.release import Release
from backend.corpus.roster_rows import Slice, slice_of
from backend.errors import AtlasError
from backend.evaluations.stages import EvaluateOptions
from backend.protocol import FOLDS, READER_PAPER
from backend.proxies.registry import blocks_of
from backend.store.queries import selected_layers
from backend.traces import View


@dataclass(frozen=True)
class Bench:
    """What every control of one proxy, view and roster shares."""

    release: Release
    rows: Slice
    proxy: str
    view: View
    roster: str
    of_fold: dict[int, int]  # Selected block of every outer fold
    block: int  # Where controls with one block stand
    blocks: list[int]  # Blocks of the variance decomposition
    limit: int | None

    @classmethod
    def of(
        cls, connection: duckdb.DuckDBPyConnection, release: Release, options: EvaluateOptions, view: View, roster: str
    ) -> Bench:
        """Look up the selected blocks of the paper's readout. Raises AtlasError if it was not evaluated yet."""
        chosen = selected_layers(connection, f"{READER_PAPER}/{options.proxy}/{view}", roster)
        of_fold = {int(f): int(n) for f, n in zip(chosen["outer_fold"], chosen["layer"], strict=True) if f is not pd.NA}
        if len(of_fold) != FOLDS or len(chosen) != FOLDS + 1:
            raise AtlasError(
                f"No blocks are selected for {READER_PAPER}/{options.proxy}/{view} on {roster}",
                f"Run: python -m jobs evaluate --proxy {options.proxy} --view {view} --roster {roster}"
                + (f" --limit {options.limit}" if options.limit else ""),
            )
        modal = int(chosen["layer"].iloc[-1])
        rows = slice_of(release, "agent500", options.proxy, view, roster, options.limit)
        deepest = max(rows.layers(), default=modal)
        blocks = [modal] if options.layers == "all" else blocks_of(options.layers, deepest) or [modal]
        block = modal if modal in blocks else blocks[0]
        return cls(release, rows, options.proxy, view, roster, of_fold, block, blocks, options.limit)

    @property
    def where(self) -> str:
        """Proxy, view and roster for people."""
        return f"{self.proxy}/{self.view} on {self.roster}"

    @property
    def folds(self) -> npt.NDArray[np.intp]:
        """Outer fold of every row."""
        return np.tile(self.rows.prompt_folds, len(self.rows.sources))

    def key(self, method: str) -> dict[str, object]:
        """Reader and roster of a method's rows."""
        return {"reader": f"{method}/{self.proxy}/{self.view}", "roster": self.roster}

    def lacking(self, variant: str, needed: set[int]) -> AtlasError | None:
        """What to say when arrays of that kind are not on disk at some blocks, None when they are."""
        held = set(self.rows.layers(variant))
        if needed <= held:
            return None
        blocks = ",".join(str(n) for n in sorted(needed - held))
        extra = "" if variant == "full" else f" --{variant} {blocks}"
        problem = f"The '{variant}' arrays of block {blocks} by {self.proxy} in view {self.view} are not on disk"
        command = (
            f"python -m jobs extract --benchmark agent500 --roster {self.roster} --proxy {self.proxy} "
            f"--view {self.view} --layers {blocks} --lengths full{extra}"
        )
        command += f" --limit {self.limit}" if self.limit else ""
        other = f", or name a block that has them with --layers ({', '.join(map(str, sorted(held)))})" if held else ""
        return AtlasError(problem, f"Run: {command}{other}")
