"""Clean attribution of the published readers on Agent500, 100-way, as tests compare it with the paper's tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from backend.protocol import READER_PAPER
from backend.reference import Collected, Results
from backend.reference.attribution import read_clean


@dataclass(frozen=True)
class PublishedAttribution:
    """One published reader."""

    proxy: str
    view: str
    files: tuple[str, ...]  # below the release's folder
    metrics: pd.DataFrame  # k, reduction, metric, seed, fold, value, std, n; a summary has no seed and fold


def published_attribution(root: Path) -> Iterator[PublishedAttribution]:
    """Budget curves of every published proxy and view, and end points fold by fold where there are some.

    Raises AtlasError if the release holds no result files, or one of them cannot be understood.
    """
    into = Collected()
    read_clean(Results(root), into)
    frame = into.frame("attribution_metrics")
    for reader in into.readers.values():
        if reader.method != READER_PAPER or reader.proxy is None or reader.view is None:
            continue
        rows = frame[(frame["reader"] == reader.reader) & (frame["benchmark"] == "agent500")]
        metrics = rows[["k", "reduction", "metric", "seed", "fold", "value", "std", "n"]].reset_index(drop=True)
        yield PublishedAttribution(reader.proxy, reader.view, tuple(dict.fromkeys(rows["source_file"])), metrics)
