"""Read a benchmark with a proxy: responses to fingerprints on disk, resumable at a shard.

It first prints what it will read and how much disk that takes, and refuses when it does not fit.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Sequence
from typing import Any, Literal

import pandas as pd

from backend import extraction
from backend.corpus.release import BENCHMARKS, ROSTERS, Benchmark, Records, Release
from backend.corpus.roster_rows import release_records
from backend.errors import AtlasError
from backend.fingerprints import FingerprintStore, StoreKey, check_room
from backend.fingerprints import describe as size_text
from backend.progress import ReadingBar
from backend.proxies.reader import Reader, Readout
from backend.proxies.registry import DEFAULT_PROXY, Proxy, blocks_of, describe, load_reader, proxy_hash
from backend.store.builds import recorded
from backend.store.result_queries import matching_rows
from backend.store.writers import replace_rows, write_proxies
from jobs import options
from jobs.pipeline import ranges


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("--benchmark", choices=(*BENCHMARKS, extraction.BENCH_A), default="agent500")
    parser.add_argument("--roster", choices=ROSTERS, default="165-way", help="sources (bench-a: always all its models)")
    parser.add_argument("--proxy", default=DEFAULT_PROXY, help="registered name, hub id or folder (see: proxies)")
    parser.add_argument("--view", default="ur", help="ur (prompt and response), r (response alone), or ur,r")
    parser.add_argument("--layers", default="all", help="blocks: all, 15, 3,9,15 or 1-12 (default: all)")
    parser.add_argument("--lengths", help="response lengths in proxy tokens (default: full,128,64,32; of bench-a full)")
    text = "blocks of which eight modes, maximum and final state are stored too, e.g. 9-18"
    parser.add_argument("--temporal", default="", help=text)
    text = "blocks of which states at sampled positions are stored too (ten times the room)"
    parser.add_argument("--positions", default="", help=text)
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    text = "where the response begins: by the tokens' place in the text, or by counting tokens as the release does"
    parser.add_argument("--span", choices=("offsets", "prefix-count"), default="offsets", help=text)
    options.add(parser, "limit", "release", "work")


def run(arguments: argparse.Namespace) -> None:
    """Plan, check the disk, read, and record time and speed."""
    proxy = describe(arguments.proxy)
    layers = blocks_of(arguments.layers, proxy.depth)
    lengths = arguments.lengths or ("full" if arguments.benchmark == extraction.BENCH_A else "full,128,64,32")
    arrays = (blocks_of(text, proxy.depth) for text in (arguments.temporal, arguments.positions))
    readout = Readout(lengths_of(lengths), *(tuple(b for b in blocks if b in layers) for blocks in arrays))
    release = options.release_of(arguments)
    weights = proxy_hash(arguments.proxy)
    scope, shards = scope_of(release, arguments.benchmark, arguments.roster, arguments.limit)
    stores = {
        view: FingerprintStore(StoreKey(arguments.benchmark, proxy.key, view))
        for view in options.views_of(arguments.view)
    }
    plans = {view: extraction.missing_shards(store, shards, layers, readout) for view, store in stores.items()}
    for store in stores.values():
        if store.identity():  # the engine is compared when there is something to read
            records_there = release_records(release, arguments.benchmark)
            store.agree({"records": records_there, "proxy_hash": weights, "span": arguments.span})
    needed = 0
    for view, store in stores.items():
        adds = extraction.missing_bytes(store, plans[view], layers, readout, proxy.hidden_size)
        needed += adds
        print(
            f"{arguments.benchmark}, {scope}, {proxy.key}, view {view}: {_records(plans[view]):,} of "
            f"{_records(shards):,} records to read at block{'s' * (len(layers) > 1)} {ranges(layers)} "
            f"({', '.join(readout.variants(layers[0]))}); adds {size_text(adds)} to {store.path}",
            flush=True,
        )
    check_room(next(iter(stores.values())).path, needed)
    reader: Reader | None = None
    records: Records | None = None
    for view, store in stores.items():
        done, seconds = extraction.Extraction(0, 0), 0.0
        if plans[view]:
            bench = arguments.benchmark == extraction.BENCH_A
            records = records or (release.bench_records() if bench else release.records(arguments.benchmark))
            reader = reader or load_reader(arguments.proxy, arguments.device)
            started = time.perf_counter()
            work = extraction.characters_of(records.traces, plans[view], view, reader.max_tokens)
            with ReadingBar(_records(plans[view]), sum(work.values())) as bar:
                done = extraction.extract(
                    reader,
                    store,
                    records.traces,
                    shards,
                    view=view,
                    layers=layers,
                    readout=readout,
                    records=extraction.records_hash(records.keys, records.traces),
                    proxy_hash=weights,
                    span=arguments.span,
                    work=work,
                    progress=bar.step,
                )
            seconds = time.perf_counter() - started
        clipped = f"; {done.clipped:,} values exceeded float16 and were clipped" if done.clipped else ""
        speed = f"{seconds / 60:.1f} min ({done.records / seconds:.1f} records/s)" if done.records else ""
        text = f"{done.records:,} records in {speed}{clipped}" if speed else "everything is on disk already"
        print(f"view {view}: {text}", flush=True)
        _record(arguments, release, proxy, store, shards, layers, readout, done, seconds)


def scope_of(
    release: Release, benchmark: Benchmark | Literal["bench-a"], roster: str, limit: int | None = None
) -> tuple[str, list[extraction.Shard]]:
    """Roster or number of models that is read, and the shards with their responses."""
    if benchmark == extraction.BENCH_A:
        models = len(release.bench_models())
        return f"{models} models", extraction.bench_shards(models, len(release.bench_prompts()), limit)
    prompts = len(release.prompts(benchmark))
    return roster, extraction.grid_shards(release.roster_sizes(), len(release.roster(roster)), prompts, limit)


def lengths_of(text: str) -> tuple[int | None, ...]:
    """Response lengths from 'full,128,64,32', the whole response first, then descending."""
    parts = options.parts(text)
    if not parts or any(p != "full" and not re.fullmatch(r"[1-9]\d*", p) for p in parts):
        raise AtlasError(f"'{text}' does not name response lengths", "Write full, 64 or full,128,64,32")
    numbers = sorted({int(p) for p in parts if p != "full"}, reverse=True)
    return (*([None] if "full" in parts else []), *numbers)


def _records(shards: Sequence[extraction.Shard]) -> int:
    return sum(len(shard.rows) for shard in shards)


def _record(
    arguments: argparse.Namespace,
    release: Release,
    proxy: Proxy,
    store: FingerprintStore,
    shards: Sequence[extraction.Shard],
    layers: Sequence[int],
    readout: Readout,
    done: extraction.Extraction,
    earlier_s: float,
) -> None:
    """Write the row of ``extractions``; speed and time are of all runs that read these records."""
    identity = store.identity()
    assert identity is not None
    key: dict[str, object] = {"benchmark": arguments.benchmark, "proxy": proxy.key, "input_view": store.key.view}
    key["layers"] = ranges(layers)
    with options.work_of(arguments) as connection:
        if not done.records and matching_rows(connection, "extractions", key):
            return
        details = {
            "lengths": list(readout.variants(layers[0])),
            "temporal": ranges(readout.temporal),
            "positions": ranges(readout.positions),
            "records_read": done.records,
            "clipped": done.clipped,
            "span": identity.span,
            "max_tokens": identity.max_tokens,
        }
        timed, seconds = store.seconds([shard.name for shard in shards], layers)
        row = {
            "records": _records(shards),
            "records_per_s": timed / seconds if seconds else None,
            "minutes": seconds / 60 if seconds else None,
            "engine": identity.engine,
        }
        hashes: dict[str, Any] = {"data_hash": release.manifest_hash, "proxy_hash": identity.proxy_hash}
        with recorded(connection, stage="extract", **hashes, details=details, earlier_s=earlier_s) as build:
            names = ("name", "hub_id", "package", "licence", "depth", "hidden_size", "causal")
            facts = {"proxy": proxy.key} | {name: getattr(proxy, name) for name in names}
            write_proxies(connection, pd.DataFrame([facts]))
            replace_rows(connection, "extractions", pd.DataFrame([row]), key, build)
