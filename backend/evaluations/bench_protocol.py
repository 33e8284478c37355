"""Bench-A as the verbs see it: records, pairs and splits as row numbers, fingerprints and embeddings of its models."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd
from tqdm import tqdm

from backend.corpus.release import SPLIT_PAIRS, PairSet, Records, Release, SplitSet
from backend.corpus.roster_rows import release_records
from backend.errors import AtlasError
from backend.evaluations.relationships import PairSplit, Protocol
from backend.extraction import BENCH_A, bench_shards
from backend.fingerprints import FingerprintStore, StoreKey, cache_folder
from backend.methods.sentence_encoder import EmbeddingCache, EmbeddingKey, SentenceEncoder
from backend.proxies.registry import proxy_hash
from backend.store.builds import command_line, recorded
from backend.store.writers import replace_rows
from backend.traces import View, view_text

SPLITS: Mapping[Protocol, SplitSet] = {"pair": "pair_disjoint", "model": "model_disjoint", "family": "family_disjoint"}


@dataclass(frozen=True)
class Task:
    """The pairs and splits of Bench-A, and its records where responses are read."""

    records: Records
    pairs: dict[PairSet, pd.DataFrame]  # As :meth:`Release.pairs` gives them
    places: dict[PairSet, npt.NDArray[np.intp]]  # pair set to (n, 2); numbers of the two models of every pair
    splits: dict[Protocol, list[PairSplit]]
    prompts: int  # Leading prompts that are read
    release: Release

    @property
    def models(self) -> int:
        """Number of models."""
        return len(self.records.sources)


def task_of(release: Release, limit: int | None = None) -> Task:
    """Read the pairs, splits and records of Bench-A."""
    records = release.bench_records()
    place = {model: number for number, model in enumerate(records.sources)}
    pairs = {name: release.pairs(name) for name in dict.fromkeys(SPLIT_PAIRS.values())}
    places = {
        name: frame[["model_a", "model_b"]].map(place.__getitem__).to_numpy(np.intp) for name, frame in pairs.items()
    }
    splits = {}
    for protocol, name in SPLITS.items():
        row = {pair: number for number, pair in enumerate(pairs[SPLIT_PAIRS[name]]["pair_id"])}
        splits[protocol] = [
            PairSplit(s.number, np.array([row[p] for p in s.train]), np.array([row[p] for p in s.test]))
            for s in release.splits(name)
        ]
    prompts = len(records.prompt_ids)
    if limit is not None and limit < 1:
        raise AtlasError(f"--limit {limit} leaves no prompt", "Give a number of prompts from 1 up")
    return Task(records, pairs, places, splits, min(limit or prompts, prompts), release)


def fingerprints_of(task: Task, proxy: str, view: View, layer: int) -> tuple[npt.NDArray[np.float16], str]:
    """Fingerprints of shape (M, P, 2 * d) and the hash of the proxy that read them.

    Raises AtlasError if they are missing, or were read from other records; names the command that makes them.
    """
    store = FingerprintStore(StoreKey(BENCH_A, proxy, view))
    prompts = len(task.records.prompt_ids)
    done = store.done()
    shards = bench_shards(task.models, prompts, task.prompts)
    if any("full" not in done.get(shard.name, {}).get(str(layer), []) for shard in shards):
        raise AtlasError(
            f"The fingerprints of Bench-A at block {layer} by {proxy} in view {view} are not complete",
            f"Run: python -m jobs extract --benchmark {BENCH_A} --proxy {proxy} --view {view} "
            f"--layers {layer}" + (f" --limit {task.prompts}" if task.prompts < prompts else ""),
        )
    identity = store.identity()
    assert identity is not None, "a store with shards has an identity"
    store.check_records(release_records(task.release, BENCH_A), task.release.root)
    array = store.load(layer).reshape(task.models, prompts, -1)
    return array[:, : task.prompts], identity.proxy_hash


def embeddings_of(task: Task, encoder: str, view: View) -> tuple[npt.NDArray[np.float32], str]:
    """Embeddings of shape (M, P, d) by the encoder's own recipe, and the hash of its weights; computed or kept.

    Raises AtlasError if the encoder is unknown or not here.
    """
    texts = [view_text(trace, view)[1] for trace in task.records.traces]
    read = np.arange(len(texts)).reshape(task.models, -1)[:, : task.prompts].ravel()
    identity = hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
    embedder = SentenceEncoder(encoder)
    cache = EmbeddingCache(embedder, EmbeddingKey(BENCH_A, f"{view}.clean", identity, len(texts)), cache_folder())
    with tqdm(total=len(read), desc=f"{embedder.proxy.key} {BENCH_A} {view}", unit="text") as bar:
        cache.complete([texts[row] for row in read], read, bar.update)
    return cache.take(read).reshape(task.models, task.prompts, -1), proxy_hash(encoder)


def write_task(connection: duckdb.DuckDBPyConnection, release: Release, task: Task) -> None:
    """Write the models and pairs of Bench-A."""
    models = release.bench_models()[["model", "parent_family", "is_parent"]]
    silent = np.array([not trace.response for trace in task.records.traces]).reshape(task.models, -1).sum(axis=1)
    with recorded(connection, stage="relate", command=command_line(), data_hash=release.manifest_hash) as build:
        for family, rows in models.assign(empty_responses=silent).groupby("parent_family"):
            replace_rows(connection, "relationship_models", rows, {"parent_family": family}, build)
        for pair_set, pairs in task.pairs.items():
            columns = pairs[["pair_id", "model_a", "model_b", "related"]]
            replace_rows(connection, "relationship_pairs", columns, {"pair_set": pair_set}, build)
