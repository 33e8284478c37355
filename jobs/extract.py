"""Read a benchmark with a proxy: responses to fingerprints on disk, resumable at a shard.

It first prints what it will read and how much disk that takes, and refuses when it does not fit. With --engine ray
the workers of a cluster read shards, and this process writes them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Literal

import pandas as pd

from backend import cluster, extraction
from backend.corpus.release import BENCHMARKS, ROSTERS, Benchmark, Records, Release
from backend.corpus.roster_rows import release_records
from backend.errors import AtlasError
from backend.fingerprints import FingerprintStore, StoreKey, check_room
from backend.fingerprints import describe as size_text
from backend.progress import ReadingBar
from backend.proxies.reader import Readout
from backend.proxies.registry import DEFAULT_PROXY, Proxy, blocks_of, describe, load_reader, proxy_hash
from backend.store.builds import recorded
from backend.store.result_queries import matching_rows
from backend.store.writers import replace_rows, write_proxies
from jobs import options
from jobs.pipeline import ranges

RANKS = (("SLURM_PROCID", "SLURM_NTASKS"), ("RANK", "WORLD_SIZE"))  # of Slurm and torchrun, in this order


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
    text = "read only the share of rank {} of W into a part of its own (default: SLURM_PROCID, else RANK)"
    parser.add_argument("--rank", type=int, metavar="R", help=text.format("R, from 0,"))
    parser.add_argument("--world", type=int, metavar="W", help="ranks (default: SLURM_NTASKS, else WORLD_SIZE)")
    parser.add_argument("--merge", action="store_true", help="join the parts of all ranks; otherwise the same options")
    options.add(parser, "engine", "address")
    text = "workers of --engine ray (default: one a GPU, else as many as processors have room for)"
    parser.add_argument("--workers", type=int, metavar="N", help=text)
    text = "folder or URL (fsspec) to which workers of --engine ray write their shards (default: they send them)"
    parser.add_argument("--store", metavar="URL", help=text)
    options.add(parser, "limit", "release", "work")


def run(arguments: argparse.Namespace) -> None:
    """Plan, check the disk, read, and record time and speed."""
    options.check_engine(arguments)
    part = part_of(arguments)
    proxy = describe(arguments.proxy)
    layers = blocks_of(arguments.layers, proxy.depth)
    lengths = arguments.lengths or ("full" if arguments.benchmark == extraction.BENCH_A else "full,128,64,32")
    arrays = (blocks_of(text, proxy.depth) for text in (arguments.temporal, arguments.positions))
    readout = Readout(lengths_of(lengths), *(tuple(b for b in blocks if b in layers) for blocks in arrays))
    release = options.release_of(arguments)
    weights = proxy_hash(arguments.proxy)
    scope, shards = scope_of(release, arguments.benchmark, arguments.roster, arguments.limit)
    stores = {
        view: FingerprintStore(StoreKey(arguments.benchmark, proxy.key, view), part=part)
        for view in options.views_of(arguments.view)
    }
    for store in (*stores.values(), *(store.whole for store in stores.values())):
        if store.identity() or arguments.merge:  # the engine is compared when there is something to read
            records_there = release_records(release, arguments.benchmark)
            identity = {"records": records_there, "proxy_hash": weights, "span": arguments.span}
            store.agree(identity)
    if arguments.merge:
        for view, store in stores.items():
            started = time.perf_counter()
            done = extraction.merge(store, shards, layers, readout, identity, arguments.world)
            text = f"{done.records:,} records of ranks joined" if done.records else "everything is joined already"
            print(f"view {view}: {text} in {store.path}", flush=True)
            _record(arguments, release, proxy, store, shards, layers, readout, done, time.perf_counter() - started)
        return
    if part:
        shards, scope = extraction.share_of(shards, part), "{}, rank {} of {}".format(scope, *part)
    needed, plans = 0, {}
    for view, store in stores.items():
        unmerged = extraction.missing_shards(store.whole, shards, layers, readout)
        plans[view] = extraction.missing_shards(store, unmerged, layers, readout)
        adds = extraction.missing_bytes(store, plans[view], layers, readout, proxy.hidden_size)
        needed += adds
        print(
            f"{arguments.benchmark}, {scope}, {proxy.key}, view {view}: {_records(plans[view]):,} of "
            f"{_records(shards):,} records to read at block{'s' * (len(layers) > 1)} {ranges(layers)} "
            f"({', '.join(readout.variants(layers[0]))}); adds {size_text(adds)} to {store.path}",
            flush=True,
        )
    check_room(next(iter(stores.values())).path, needed)
    records: Records | None = None
    engine: tuple[Callable[..., extraction.Extraction], Callable[[], int]] | None = None
    with contextlib.ExitStack() as opened:
        for view, store in stores.items():
            done, seconds = extraction.Extraction(0, 0), 0.0
            if plans[view]:
                engine = engine or opened.enter_context(engine_of(arguments))
                extract, max_tokens = engine
                bench = arguments.benchmark == extraction.BENCH_A
                records = records or (release.bench_records() if bench else release.records(arguments.benchmark))
                work = extraction.characters_of(records.traces, plans[view], view, max_tokens())
                started = time.perf_counter()
                with ReadingBar(_records(plans[view]), sum(work.values())) as bar:
                    done = extract(
                        store,
                        records.traces,
                        plans[view],
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
            if not part:  # the merge records what all ranks have read
                _record(arguments, release, proxy, store, shards, layers, readout, done, seconds)
    if part:
        print("When every rank has finished, run the same command with --merge instead of --rank.", flush=True)


@contextlib.contextmanager
def engine_of(
    arguments: argparse.Namespace,
) -> Iterator[tuple[Callable[..., extraction.Extraction], Callable[[], int]]]:
    """What extracts: a proxy in this process, or workers of Ray; and the tokens after which texts are cut.

    Workers start at once, and are waited for by whoever asks.
    """
    if arguments.engine == "ray":
        text = (arguments.proxy, arguments.device, arguments.address, arguments.workers, arguments.store)
        with cluster.readers(*text) as pool:
            yield pool.extract, lambda: pool.facts.max_tokens
    else:
        reader = load_reader(arguments.proxy, arguments.device)
        yield partial(extraction.extract, reader), lambda: reader.max_tokens


def part_of(arguments: argparse.Namespace) -> tuple[int, int] | None:
    """Rank and number of ranks by options or environment; None where one process reads everything."""
    if arguments.merge:  # often a job of one task, of which Slurm's numbers say nothing about the parts
        if arguments.rank is not None:
            raise AtlasError("--merge joins the parts of all ranks", "Leave --rank out")
        return None
    if arguments.engine == "ray":  # whose workers share the records among themselves
        if (arguments.rank, arguments.world) != (None, None):
            raise AtlasError("--engine ray shares the records out itself", "Leave --rank and --world out")
        return None
    names = next((pair for pair in RANKS if all(os.environ.get(name) for name in pair)), ("", ""))
    options_of = zip(names, (arguments.rank, arguments.world), strict=True)
    given = [os.environ.get(name) if option is None else str(option) for name, option in options_of]
    if given == [None, None]:
        return None
    rank, world = (int(text) if text and re.fullmatch(r"[0-9]+", text) else -1 for text in given)
    if not 0 <= rank < world:
        problem = f"Rank {given[0] or '(missing)'} of {given[1] or '(missing)'} is no share of the records"
        remedy = f"Give --rank R and --world W with R from 0 to W - 1, or set {' and '.join(RANKS[0])} so"
        raise AtlasError(problem, remedy)
    return (rank, world) if world > 1 else None


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
