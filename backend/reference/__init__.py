"""Published numbers: what the release's result files say, in the columns that measured numbers have.

They stand for the eight proxies of the paper that need a GPU and a model hub, and for its baselines. Nothing here is
computed again, and every row carries its file. One module reads one family of results, and takes all of it; what
follows from it stays in the files, and so do settings, sizes and training logs, which ``left.toml`` names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from backend.errors import AtlasError
from backend.protocol import READER_PAPER
from backend.reference import attribution, baselines, geometry, paper, relationships
from backend.reference.files import AGAIN, LEFT, UNREAD, Collected, Ledger, PublishedReader, Results
from backend.traces import View

__all__ = ["LEFT", "UNREAD", "Collected", "Ledger", "PublishedReader", "Results", "collect", "published_attribution"]

READERS_OF_FILES: tuple[Callable[[Results, Collected], None], ...] = (
    *(attribution.read_clean, attribution.read_scans, attribution.read_stress, attribution.read_temporal),
    *(attribution.read_statistics, attribution.read_variance, baselines.read_random, baselines.read_llmmap),
    *(baselines.read_deberta, baselines.read_dna, baselines.read_finetuned, relationships.read_pairs),
    *(relationships.read_components, relationships.read_baselines, relationships.read_disjoint),
    *(relationships.read_tests, geometry.read_original_space, geometry.read_candidates, geometry.read_projections),
    *(geometry.read_domains, baselines.read_costs, paper.read_paper),
)


@dataclass(frozen=True)
class PublishedAttribution:
    """Clean attribution of one published reader on Agent500, 100-way."""

    proxy: str
    view: View
    files: tuple[str, ...]  # below the release's folder
    metrics: pd.DataFrame  # k, reduction, metric, seed, fold, value, std, n; a summary has no seed and fold


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
    """Budget curves of every published proxy and view, and end points fold by fold where there are some.

    Raises AtlasError if the release holds no result files, or one of them cannot be understood.
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
