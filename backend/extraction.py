"""Extraction: a benchmark's records to fingerprints on disk, shard by shard (paper, Stage 1).

Shards are a few prompts times a segment of the roster: a longer roster continues where a shorter one stopped.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from backend.errors import AtlasError
from backend.fingerprints import FingerprintStore, StoreIdentity, check_room
from backend.proxies.encoding import MAX_TOKENS, Span
from backend.proxies.reader import SHARE_FROM, Half, Reader, Readout
from backend.traces import Trace, View

PROMPTS_A_SHARD = 5
CHARACTERS_A_TOKEN = 4  # about what proxies' tokens hold of English text
BENCH_A: Final = "bench-a"  # name of Bench-A in feature stores and commands; its rows are model * prompts + prompt


@dataclass(frozen=True)
class Shard:
    """A named set of rows, ascending."""

    name: str
    rows: npt.NDArray[np.intp]


def grid_shards(segments: Sequence[int], sources: int, prompts: int, n_prompts: int | None = None) -> list[Shard]:
    """Shards of a benchmark in which every source answers every prompt, the shortest roster first.

    segments : ascending roster lengths, the last at least ``sources``. ``n_prompts`` : leading prompts, by default all.
    """
    needed, low, shards = min(n_prompts or prompts, prompts), 0, []
    for high in segments:
        if low >= sources:
            break
        for first in range(0, needed, PROMPTS_A_SHARD):
            block = np.arange(first, min(first + PROMPTS_A_SHARD, prompts))
            rows = (np.arange(low, high)[:, None] * prompts + block).ravel()
            shards.append(Shard(f"s{low:03d}-{high:03d}.p{first:04d}", rows))
        low = high
    return shards


def bench_shards(models: int, prompts: int, n_prompts: int | None = None) -> list[Shard]:
    """Shards of Bench-A, whose models are always read together; ``n_prompts`` as in :func:`grid_shards`."""
    return grid_shards((models,), models, prompts, n_prompts)


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


@dataclass(frozen=True)
class Extraction:
    """What a call of :func:`extract` did."""

    records: int  # records read
    clipped: int  # coefficients beyond the range of float16, stored as its largest number


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
    max_tokens: int | None = None,
    span: Span = "offsets",
    work: Mapping[str, float] | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> Extraction:
    """Read every shard that is not on disk yet.

    traces : all records of the benchmark, in row order; ``records`` and ``proxy_hash`` identify texts and weights.
    work : of every shard, in any unit that time goes by (see :func:`characters_of`); by default its records.
    progress : gets the records and the work of every batch that is done.
    Raises AtlasError if the store is locked or of something else, the disk is full, or states are not numbers.
    """
    limit = min(max_tokens or reader.max_tokens, reader.max_tokens)
    identity = identity_of(reader, len(traces), records=records, proxy_hash=proxy_hash, max_tokens=limit, span=span)

    def reads(todo: Sequence[Shard]) -> Iterator[ShardRead]:
        for shard in todo:
            started = time.perf_counter()
            encoded = reader.encode([traces[i] for i in shard.rows], view, max_tokens=limit, span=span)
            shares = None
            if progress:
                shares = _Shares(progress, (work or {}).get(shard.name, len(shard.rows)), reader.tokens_run(encoded))
            arrays = reader.read(encoded, layers, readout, shares.batch if shares else None)
            yield ShardRead(shard, arrays, time.perf_counter() - started)
            if shares:
                shares.end()

    return write_reads(store, identity, shards, layers, readout, reads)


def identity_of(
    reader: Reader, rows: int, *, records: str, proxy_hash: str, max_tokens: int, span: Span
) -> StoreIdentity:
    """The identity of what a reader reads from so many records."""
    engine = f"{reader.engine}-{str(reader.dtype).removeprefix('torch.')}-{reader.device.type}"
    return StoreIdentity(rows, reader.hidden_size, records, proxy_hash, engine, max_tokens, span)


@dataclass(frozen=True)
class ShardRead:
    """Arrays of a shard, and the seconds of its pass where they are known."""

    shard: Shard
    arrays: Mapping[tuple[int, str], Half]
    seconds: float | None


def write_reads(
    store: FingerprintStore,
    identity: StoreIdentity,
    shards: Sequence[Shard],
    layers: Sequence[int],
    readout: Readout,
    reads: Callable[[list[Shard]], Iterator[ShardRead]],
) -> Extraction:
    """Write the shards that are not on disk yet; ``reads`` gives them in any order. Errors as :func:`extract`."""
    count = clipped = 0
    with store.writing(identity):
        todo = missing_shards(store, shards, layers, readout)
        check_room(store.path, missing_bytes(store, todo, layers, readout, identity.hidden_size))
        for read in reads(todo):
            rows = read.shard.rows
            clipped += sum(_clipped(array, layer, read.shard) for (layer, _), array in read.arrays.items())
            store.write_shard(read.shard.name, rows, read.arrays, read.seconds)
            count += len(rows)
    return Extraction(count, clipped)


def merge(
    store: FingerprintStore,
    shards: Sequence[Shard],
    layers: Sequence[int],
    readout: Readout,
    needed: Mapping[str, object],
    ranks: int | None = None,
) -> Extraction:
    """Join what ranks read of these shards into the store; the parts stay on disk.

    needed : names and values of the identity that every part must have. ranks : by default as their folders name.
    Each shard is taken from the rank whose share it is, so every record comes once.
    Raises AtlasError if a rank is missing or still writes, or a part is of something else or was changed.
    """
    todo = missing_shards(store, shards, layers, readout)
    if not todo:
        return Extraction(0, 0)
    parts, pending, clipped = store.parts(ranks), {shard.name for shard in todo}, 0
    shares = {part: [s for s in share_of(shards, part.part) if s.name in pending] for part in parts}
    shares = {part: share for part, share in shares.items() if share}
    for part, share in shares.items():
        part.agree(needed)
        if missing := missing_shards(part, share, layers, readout):
            raise part.incomplete(len(missing), len(share))
    identity = next(iter(shares)).identity()
    assert identity is not None, "a part with finished shards has an identity"
    check_room(store.path, missing_bytes(store, todo, layers, readout, identity.hidden_size))
    arrays = [(layer, variant) for layer in layers for variant in readout.variants(layer)]
    with contextlib.ExitStack() as locked:
        for one in (*shares, store):
            locked.enter_context(one.writing(identity))
        journals = {part: part.journal() for part in shares}
        owners = {shard.name: part for part, share in shares.items() for shard in share}
        for shard in todo:  # in the order of one process
            part = owners[shard.name]
            entry = journals[part][shard.name]
            blocks = {at: part.read_shard(shard.name, shard.rows, *at, entry["sha256"]) for at in arrays}
            clipped += sum(_clipped(array, layer, shard) for (layer, _), array in blocks.items())
            same = entry["arrays"].keys() == {str(layer) for layer in layers}
            store.write_shard(shard.name, shard.rows, blocks, entry.get("seconds") if same else None)
    return Extraction(sum(len(shard.rows) for shard in todo), clipped)


def share_of(shards: Sequence[Shard], part: tuple[int, int] | None) -> list[Shard]:
    """Every W-th shard from the R-th on, for rank R of W; all of them without a part."""
    return list(shards[part[0] :: part[1]] if part else shards)


def characters_of(
    traces: Sequence[Trace], shards: Iterable[Shard], view: View, max_tokens: int = MAX_TOKENS
) -> dict[str, float]:
    """Work of shards before their tokens are known: characters that a proxy reads, shared prompts once."""
    most, shares_from = max_tokens * CHARACTERS_A_TOKEN, SHARE_FROM * CHARACTERS_A_TOKEN
    work = {}
    for shard in shards:
        rows = [traces[i] for i in shard.rows]
        prompts = [trace.prompt if view == "ur" else "" for trace in rows]
        whole = sum(min(len(prompt) + len(row.response), most) for prompt, row in zip(prompts, rows, strict=True))
        saved = ((times - 1) * min(len(prompt), most) for prompt, times in Counter(prompts).items())
        work[shard.name] = float(whole - sum(characters for characters in saved if characters >= shares_from))
    return work


class _Shares:
    """Hands out the work of a shard by its tokens, and the rest at its end."""

    def __init__(self, progress: Callable[[int, float], None], work: float, tokens: int) -> None:
        self._progress, self._remaining, self._each = progress, work, work / max(tokens, 1)

    def batch(self, records: int, tokens: int) -> None:
        work = min(self._each * tokens, self._remaining)
        self._remaining -= work
        self._progress(records, work)

    def end(self) -> None:
        self._progress(0, self._remaining)


def missing_shards(
    store: FingerprintStore, shards: Sequence[Shard], layers: Sequence[int], readout: Readout
) -> list[Shard]:
    """Shards for which some needed array is not on disk."""
    done = store.done()

    def complete(shard: Shard) -> bool:
        present = done.get(shard.name, {})
        return all(set(readout.variants(layer)) <= set(present.get(str(layer), [])) for layer in layers)

    return [shard for shard in shards if not complete(shard)]


def missing_bytes(
    store: FingerprintStore, shards: Sequence[Shard], layers: Sequence[int], readout: Readout, hidden_size: int
) -> int:
    """Bytes that the arrays of these shards will add to the disk."""
    done, vectors = store.done(), 0
    for shard in shards:
        for layer in layers:
            present = done.get(shard.name, {}).get(str(layer), [])
            vectors += len(shard.rows) * sum(m for v, m in readout.variants(layer).items() if v not in present)
    return vectors * hidden_size * 2


def _clipped(array: Half, layer: int, shard: Shard) -> int:
    """Count values at the end of float16's range, and refuse what is not a number."""
    magnitude = array.view(np.uint16) & 0x7FFF
    largest = int(magnitude.max(initial=0))
    if largest > 0x7C00:
        row = int(shard.rows[np.flatnonzero((magnitude > 0x7C00).any(1))[0]])
        problem = f"The proxy's states at block {layer} for record {row} are not numbers"
        raise AtlasError(problem, "Read with another proxy, or in float32 on the CPU")
    return int(np.count_nonzero(magnitude >= 0x7BFF)) if largest >= 0x7BFF else 0
