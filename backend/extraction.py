"""Extraction: a benchmark's records to fingerprints on disk, shard by shard (paper, Stage 1).

Shards are a few prompts times a segment of the roster, so that a longer roster continues where a shorter one
stopped and traces of one prompt are read together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from backend.fingerprints import FingerprintStore, StoreIdentity, check_room
from backend.proxies.encoding import MAX_TOKENS, Span
from backend.proxies.reader import Reader, Readout
from backend.traces import Trace, View

PROMPTS_A_SHARD = 5


@dataclass(frozen=True)
class Shard:
    """A named set of rows, ascending."""

    name: str
    rows: npt.NDArray[np.intp]


def grid_shards(segments: Sequence[int], sources: int, prompts: int, n_prompts: int | None = None) -> list[Shard]:
    """Shards of a benchmark in which every source answers every prompt.

    Parameters
    ----------
    segments : sequence of int
        Ascending roster lengths, the last at least ``sources`` (rosters are prefixes of one another).
    sources : int
        Sources wanted.
    prompts : int
        Prompts of the benchmark; row = source * prompts + prompt.
    n_prompts : int, optional
        Leading prompts wanted, by default all.

    Returns
    -------
    list of Shard
        Segment by segment, so that the shortest roster is complete first.
    """
    wanted = min(n_prompts or prompts, prompts)
    shards = []
    low = 0
    for high in segments:
        if low >= sources:
            break
        for first in range(0, wanted, PROMPTS_A_SHARD):
            block = np.arange(first, min(first + PROMPTS_A_SHARD, prompts))
            rows = (np.arange(low, high)[:, None] * prompts + block).ravel()
            shards.append(Shard(f"s{low:03d}-{high:03d}.p{first:04d}", rows))
        low = high
    return shards


def list_shards(n: int, size: int = 256) -> list[Shard]:
    """Shards of a plain list of records."""
    return [Shard(f"r{low:06d}", np.arange(low, min(low + size, n))) for low in range(0, n, size)]


def records_hash(keys: Sequence[str], traces: Sequence[Trace]) -> str:
    """Hash of records in row order; it ties fingerprints to the text they were read from."""
    digest = hashlib.sha256()
    for key, trace in zip(keys, traces, strict=True):
        for part in (key, trace.prompt, trace.response):
            raw = part.encode("utf-8", "surrogatepass")
            digest.update(len(raw).to_bytes(8, "little") + raw)
    return digest.hexdigest()


def extraction_bytes(rows: int, hidden_size: int, layers: Sequence[int], readout: Readout) -> int:
    """Disk use of fingerprints in bytes."""
    return sum(rows * hidden_size * 2 * m for layer in layers for m in readout.variants(layer).values())


def extract(
    reader: Reader,
    store: FingerprintStore,
    traces: Sequence[Trace],
    shards: Sequence[Shard],
    *,
    view: View,
    layers: Sequence[int],
    readout: Readout,
    records: str,
    proxy_hash: str,
    max_tokens: int = MAX_TOKENS,
    span: Span = "offsets",
    progress: Callable[[int], None] | None = None,
) -> int:
    """Read every shard that is not on disk yet.

    Parameters
    ----------
    reader : Reader
    store : FingerprintStore
    traces : sequence of Trace
        All records of the benchmark, in row order.
    shards : sequence of Shard
    view, layers, readout, max_tokens, span
        What to read; see :class:`Reader`.
    records, proxy_hash : str
        Identity of the texts and of the proxy's weights.
    progress : callable, optional
        Called with the number of records of every batch that is done.

    Returns
    -------
    int
        Records read in this call.

    Raises
    ------
    AtlasError
        If the store is being written by another process, belongs to something else, or the disk is full.
    """
    identity = StoreIdentity(
        rows=len(traces),
        hidden_size=reader.hidden_size,
        records=records,
        proxy_hash=proxy_hash,
        engine=f"{reader.engine}-{str(reader.dtype).removeprefix('torch.')}-{reader.device.type}",
        max_tokens=max_tokens,
        span=span,
    )
    count = 0
    with store.writing(identity):
        todo = missing_shards(store, shards, layers, readout)
        check_room(store.path, extraction_bytes(sum(len(s.rows) for s in todo), reader.hidden_size, layers, readout))
        for shard in todo:
            encoded = reader.encode([traces[i] for i in shard.rows], view, max_tokens=max_tokens, span=span)
            store.write_shard(shard.name, shard.rows, reader.read(encoded, layers, readout, progress))
            count += len(shard.rows)
    return count


def missing_shards(
    store: FingerprintStore, shards: Sequence[Shard], layers: Sequence[int], readout: Readout
) -> list[Shard]:
    """Shards for which some wanted array is not on disk."""
    done = store.done()

    def complete(shard: Shard) -> bool:
        held = done.get(shard.name, {})
        return all(set(readout.variants(layer)) <= set(held.get(str(layer), [])) for layer in layers)

    return [shard for shard in shards if not complete(shard)]
