"""What the verbs share: where the release and the work database lie, and which rows of a store a roster means."""

from __future__ import annotations

import argparse
import functools
import shlex
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.errors import AtlasError
from backend.extraction import BENCH_A, Shard, grid_shards, records_hash
from backend.fingerprints import FingerprintStore, StoreKey, cache_folder
from backend.protocol import fold_of_prompts
from backend.proxies.registry import proxy_key, registered
from backend.release import BENCHMARKS, ROSTERS, Benchmark, Release, default_release
from backend.store.builds import recorded
from backend.store.continuation import begin_work
from backend.store.database import WORK_FILE, InUseError, default_data_folder, open_work
from backend.store.writers import write_proxies, write_sources
from backend.traces import VIEWS, View

Half = npt.NDArray[np.float16]
METHOD = "reader-paper"
"""The paper's own readout, to which every other is compared."""
DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.8)
"""Where in a proxy the blocks lie that members of a stack read: 3, 9, 15, 21 and 24 of 30."""
PATIENCE = 6 * 3600.0
"""Seconds that a job waits for another one to let go of the work database; evaluations hold it for an hour or more."""
LOOK_AGAIN = 2.0


def add_release(parser: argparse.ArgumentParser) -> None:
    """``--release FOLDER``."""
    parser.add_argument(
        "--release", type=Path, default=None, help="folder of the public release (default: where fetch put it)"
    )


def add_work(parser: argparse.ArgumentParser) -> None:
    """``--work FILE``."""
    parser.add_argument("--work", type=Path, default=None, help="work database (default: in the cache folder)")


def add_limit(parser: argparse.ArgumentParser) -> None:
    """``--limit N``."""
    parser.add_argument(
        "--limit",
        type=int,
        default=None,
        metavar="N",
        help="only the first N prompts: a look, in a work database and a data folder of its own",
    )


def release_of(arguments: argparse.Namespace) -> Release:
    """The release that the arguments name."""
    return Release(arguments.release or default_release())


def home(arguments: argparse.Namespace) -> Path:
    """Folder of the work database: the cache folder, and ``look/`` in it for what only the first prompts are in."""
    return cache_folder() / "look" if getattr(arguments, "limit", None) is not None else cache_folder()


def work_path(arguments: argparse.Namespace) -> Path:
    """File of the work database that the arguments name."""
    return arguments.work or home(arguments) / WORK_FILE


def data_of(arguments: argparse.Namespace) -> Path:
    """Data folder that the arguments name; a look never gets into what is served, unless it is sent there."""
    return arguments.to or (default_data_folder() if arguments.limit is None else home(arguments) / "data")


def work_of(arguments: argparse.Namespace) -> duckdb.DuckDBPyConnection:
    """The work database that the arguments name, migrated; while another job holds it, this one waits.

    The one in the cache folder begins with what is served, so that what is measured next stands beside it. One that is
    named, and that of a look, begins empty.

    Raises
    ------
    InUseError
        If it is still held after :data:`PATIENCE`.
    """
    path = work_path(arguments)
    if arguments.work is None and home(arguments) == cache_folder():
        begun = begin_work(path, default_data_folder())
        if begun is not None:
            print(f"The work database begins with what is served, generation {begun}.", flush=True)
    until, said = time.monotonic() + PATIENCE, False
    while True:
        try:
            return open_work(path)
        except InUseError as error:
            if time.monotonic() >= until:
                raise
            if not said:
                print(f"{error.problem}. Waiting for it.", flush=True)
            said = True
            time.sleep(LOOK_AGAIN)


def command_line() -> str:
    """The command that runs now, as a person would type it."""
    return shlex.join(["python", "-m", "jobs", *sys.argv[1:]])


def rosters_of(text: str) -> list[str]:
    """Comma-separated roster names."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in ROSTERS]
    if unknown or not names:
        raise AtlasError(f"There is no roster '{', '.join(unknown)}'", f"Choose from {', '.join(ROSTERS)}")
    return names


def views_of(text: str) -> list[View]:
    """Comma-separated input views."""
    asked = [name.strip() for name in text.split(",") if name.strip()]
    views: list[View] = [view for view in VIEWS if view in asked]
    if len(views) != len(asked) or not views:
        raise AtlasError(f"'{text}' names an input view that does not exist", f"Choose from {', '.join(VIEWS)}")
    return views


@dataclass(frozen=True)
class Slice:
    """The rows of a feature store that belong to a roster and its leading prompts.

    Attributes
    ----------
    store : FingerprintStore
    sources : list of str, length S
        In roster order.
    families : list of str, length S
    all_prompts : int
        Prompts of the benchmark.
    prompt_ids : list of str, length P
        The wanted ones, ascending.
    shards : list of Shard
        Shards that must be on disk.
    release : Release
        Whose records the fingerprints have to be of.
    """

    store: FingerprintStore
    sources: list[str]
    families: list[str]
    all_prompts: int
    prompt_ids: list[str]
    shards: list[Shard]
    release: Release

    def check(self) -> None:
        """Refuse fingerprints of other records than the release's; an empty store passes.

        Raises
        ------
        AtlasError
            If they are of others.
        """
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
        held = [
            {int(layer) for layer, variants in done.get(shard.name, {}).items() if variant in variants}
            for shard in self.shards
        ]
        return sorted(set.intersection(*held)) if held else []

    @property
    def labels(self) -> npt.NDArray[np.intp]:
        """Source number of every row."""
        return np.repeat(np.arange(len(self.sources)), len(self.prompt_ids))

    @property
    def prompt_folds(self) -> npt.NDArray[np.intp]:
        """Outer fold of every prompt."""
        return fold_of_prompts(self.prompt_ids)


def blocks_at(depth: int) -> tuple[int, ...]:
    """Blocks of a proxy so deep whose discriminants are members."""
    return tuple(sorted({max(1, round(share * depth)) for share in DEPTHS}))


def proxies_key(text: str) -> str:
    """Short name of a proxy, or of several that read together and are joined by '+'."""
    return "+".join(proxy_key(part) for part in text.split("+"))


def slice_of(
    release: Release, benchmark: Benchmark, proxy: str, view: View, roster: str, limit: int | None = None
) -> Slice:
    """Rows of a benchmark that a roster means, optionally of its first prompts only."""
    frame: pd.DataFrame = release.roster(roster)
    prompt_ids: Sequence[str] = release.prompts(benchmark)["sample_id"].tolist()
    wanted = list(prompt_ids[:limit])
    return Slice(
        store=FingerprintStore(StoreKey(benchmark, proxy, view)),
        sources=frame["label"].tolist(),
        families=frame["plot_family"].tolist(),
        all_prompts=len(prompt_ids),
        prompt_ids=wanted,
        shards=grid_shards(release.roster_sizes(), len(frame), len(prompt_ids), len(wanted)),
        release=release,
    )


def release_records(release: Release, benchmark: str) -> str:
    """Hash over all records of a benchmark in a release, whatever roster or prompts are asked for.

    It is that of :attr:`backend.fingerprints.StoreIdentity.records`. Records are read once a process.
    """
    return _release_records(release.root, release.manifest_hash, benchmark)


@functools.cache
def _release_records(root: Path, _manifest: str, benchmark: str) -> str:
    release = Release(root)
    if benchmark == BENCH_A:
        held = release.bench_records()
    else:
        held = release.records(next(name for name in BENCHMARKS if name == benchmark))
    return records_hash(held.keys, held.traces)


def write_release_sources(connection: duckdb.DuckDBPyConnection, release: Release) -> None:
    """Write the release's sources, families and rosters once."""
    roster = release.roster("165-way")
    per_source = sum(len(release.prompts(benchmark)) for benchmark in BENCHMARKS)
    with recorded(connection, stage="sources", command=command_line(), data_hash=release.manifest_hash) as build:
        sizes = dict(zip(ROSTERS, release.roster_sizes(), strict=True))
        write_sources(connection, roster, dict.fromkeys(roster["label"], per_source), build, rosters=sizes)


def describe_proxy(connection: duckdb.DuckDBPyConnection, proxy: str) -> None:
    """Write what the registry knows of a proxy, or of several that read together and are joined by '+'.

    A folder or hub id that the registry does not list goes by its own name.
    """
    known = registered().get(proxy)
    parts = [registered().get(part) for part in proxy.split("+")]
    name = " + ".join(part.name for part in parts if part) if all(parts) else proxy
    row: dict[str, object] = {"proxy": proxy, "name": name}
    if known:
        row |= {"hub_id": known.hub_id, "package": known.package, "licence": known.licence}
        row |= {"depth": known.depth, "hidden_size": known.hidden_size, "causal": known.causal}
    write_proxies(connection, pd.DataFrame([row]))
