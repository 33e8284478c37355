"""A roster in the stores: its rows of the fingerprints, and its sources and proxies as rows of the database."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.corpus.release import BENCHMARKS, ROSTERS, Benchmark, Release
from backend.extraction import BENCH_A, Shard, grid_shards, records_hash
from backend.fingerprints import FingerprintStore, StoreKey
from backend.protocol import fold_of_prompts
from backend.proxies.registry import registered
from backend.store.builds import command_line, recorded
from backend.store.writers import write_proxies, write_sources
from backend.traces import View

Half = npt.NDArray[np.float16]


@dataclass(frozen=True)
class Slice:
    """The rows of a feature store that belong to a roster and its leading prompts."""

    store: FingerprintStore
    sources: list[str]  # length S; in roster order
    families: list[str]  # length S
    all_prompts: int  # prompts of the benchmark
    prompt_ids: list[str]  # length P; the needed ones, ascending
    shards: list[Shard]  # shards that must be on disk
    release: Release  # whose records the fingerprints have to be of

    def check(self) -> None:
        """Refuse fingerprints of other records than the release's; an empty store passes."""
        if self.store.identity():
            self.store.check_records(release_records(self.release, self.store.key.benchmark), self.release.root)

    def load(self, layer: int, variant: str = "full") -> Half:
        """Fingerprints of shape (S * P, width), row = source * P + prompt, of this release and with none missing."""
        array = self.store.require([shard.name for shard in self.shards], layer, variant)
        self.check()
        grid = array.reshape(-1, self.all_prompts, array.shape[1])[: len(self.sources), : len(self.prompt_ids)]
        rows: Half = grid.reshape(len(self.sources) * len(self.prompt_ids), array.shape[1])
        return rows

    def layers(self, variant: str = "full") -> list[int]:
        """Blocks that every shard holds."""
        done = self.store.done()
        of_shards = (done.get(shard.name, {}) for shard in self.shards)
        layers = [{int(layer) for layer, variants in one.items() if variant in variants} for one in of_shards]
        return sorted(set.intersection(*layers)) if layers else []

    @property
    def labels(self) -> npt.NDArray[np.intp]:
        return np.repeat(np.arange(len(self.sources)), len(self.prompt_ids))

    @property
    def prompt_folds(self) -> npt.NDArray[np.intp]:
        return fold_of_prompts(self.prompt_ids)


def slice_of(
    release: Release, benchmark: Benchmark, proxy: str, view: View, roster: str, limit: int | None = None
) -> Slice:
    """Rows of a benchmark that a roster means, optionally of its first prompts only."""
    frame: pd.DataFrame = release.roster(roster)
    prompt_ids: Sequence[str] = release.prompts(benchmark)["sample_id"].tolist()
    needed = list(prompt_ids[:limit])
    store = FingerprintStore(StoreKey(benchmark, proxy, view))
    shards = grid_shards(release.roster_sizes(), len(frame), len(prompt_ids), len(needed))
    sources, families = frame["label"].tolist(), frame["plot_family"].tolist()
    return Slice(store, sources, families, len(prompt_ids), needed, shards, release)


def release_records(release: Release, benchmark: str) -> str:
    """Hash over all records of a benchmark in a release, as :attr:`backend.fingerprints.StoreIdentity.records`."""
    return _release_records(release.root, release.manifest_hash, benchmark)


@functools.cache
def _release_records(root: Path, _manifest: str, benchmark: str) -> str:
    release = Release(root)
    if benchmark == BENCH_A:
        records = release.bench_records()
    else:
        records = release.records(next(name for name in BENCHMARKS if name == benchmark))
    return records_hash(records.keys, records.traces)


def write_release_sources(connection: duckdb.DuckDBPyConnection, release: Release) -> None:
    """Write the release's sources, families and rosters once."""
    roster = release.roster("165-way")
    per_source = sum(len(release.prompts(benchmark)) for benchmark in BENCHMARKS)
    with recorded(connection, stage="sources", command=command_line(), data_hash=release.manifest_hash) as build:
        sizes = dict(zip(ROSTERS, release.roster_sizes(), strict=True))
        write_sources(connection, roster, dict.fromkeys(roster["label"], per_source), build, rosters=sizes)


def describe_proxy(connection: duckdb.DuckDBPyConnection, proxy: str) -> None:
    """Write what the registry knows of a proxy, or of several that read together and are joined by '+'."""
    known = registered().get(proxy)
    parts = [registered().get(part) for part in proxy.split("+")]
    name = " + ".join(part.name for part in parts if part) if all(parts) else proxy
    row: dict[str, object] = {"proxy": proxy, "name": name}
    if known:
        row |= {"hub_id": known.hub_id, "package": known.package, "licence": known.licence}
        row |= {"depth": known.depth, "hidden_size": known.hidden_size, "causal": known.causal}
    write_proxies(connection, pd.DataFrame([row]))
