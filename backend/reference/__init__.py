"""Published numbers: what the release's result files say, in the columns that measured numbers have.

They stand for the eight proxies of the paper that need a GPU and a model hub, and for its baselines. Nothing here is
computed again; every row carries the file that it came from, and what the store keeps of it is marked *published*.
One module reads one family of results.

Every result is taken: F1 of every source (frozen DNA, 1,800 rows) and the ranks of the four candidate pairs have tables
of their own. What follows from numbers that were taken stays in the files, and so do settings, sizes and training logs;
``left.toml`` names them, and ``python -m jobs reference`` counts them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from backend.errors import AtlasError
from backend.protocol import READER_PAPER
from backend.reference import attribution, baselines, geometry, paper, relationships
from backend.reference.files import AGAIN, LEFT, UNREAD, Ledger, Results
from backend.reference.rows import Collected, PublishedReader
from backend.traces import View

__all__ = [
    "LEFT",
    "READERS_OF_FILES",
    "UNREAD",
    "Collected",
    "Ledger",
    "PublishedAttribution",
    "PublishedReader",
    "Results",
    "collect",
    "published_attribution",
]

READERS_OF_FILES: tuple[Callable[[Results, Collected], None], ...] = (
    attribution.read_clean,
    attribution.read_scans,
    attribution.read_stress,
    attribution.read_temporal,
    attribution.read_statistics,
    attribution.read_variance,
    baselines.read_random,
    baselines.read_llmmap,
    baselines.read_deberta,
    baselines.read_dna,
    baselines.read_finetuned,
    relationships.read_pairs,
    relationships.read_components,
    relationships.read_baselines,
    relationships.read_disjoint,
    relationships.read_tests,
    geometry.read_original_space,
    geometry.read_candidates,
    geometry.read_projections,
    geometry.read_domains,
    baselines.read_costs,
    paper.read_paper,
)


@dataclass(frozen=True)
class PublishedAttribution:
    """Clean attribution of one published reader on Agent500, 100-way.

    proxy : Tag of the proxy in the release.
    files : Result files under the release's folder.
    metrics : Columns k, reduction, metric, seed, fold, value, std, n; the row without seed and fold is the summary.
    """

    proxy: str
    view: View
    files: tuple[str, ...]
    metrics: pd.DataFrame


def collect(results: Results) -> Collected:
    """Read every result file. Raises AtlasError if there are no result files, or one of them cannot be understood."""
    into = Collected()
    for read in READERS_OF_FILES:
        try:
            read(results, into)
        except (KeyError, ValueError, TypeError, StopIteration) as error:  # a name or form that no reader knows
            raise AtlasError(f"{results.last} cannot be understood ({type(error).__name__}: {error})", AGAIN) from error
    return into


def published_attribution(root: Path) -> Iterator[PublishedAttribution]:
    """Read the budget curves of every published proxy and view, and the fold-wise end points where there are some.

    root : The release's folder.
    Ordered by proxy, then view. Raises AtlasError if the folder holds no result files, or one of them cannot be
    understood.
    """
    into = Collected()
    attribution.read_clean(Results(root), into)
    frame = into.frame("attribution_metrics")
    for reader in into.readers.values():
        if reader.method != READER_PAPER or reader.proxy is None or reader.view is None:
            continue
        mine = frame[(frame["reader"] == reader.reader) & (frame["benchmark"] == "agent500")]
        metrics = mine[["k", "reduction", "metric", "seed", "fold", "value", "std", "n"]].reset_index(drop=True)
        view: View = "ur" if reader.view == "ur" else "r"
        yield PublishedAttribution(reader.proxy, view, tuple(dict.fromkeys(mine["source_file"])), metrics)
