"""What a second machine is worth: extraction on two nodes of Ray, and fits by joblib, against one process.

    python benchmarks/cluster.py [--records 2000] [--layers 1-6] [--part extraction,fits]

Two network namespaces of this machine stand for two machines (root, Linux, two processors): each has an address, a
cache and one processor of its own, and they see each other through a pair of virtual cables. Extraction is timed on one
processor without Ray and on both nodes, and once more while a worker is killed; all must leave the same bytes. Fits are
timed on the fingerprints that came out, on the same processors. Nothing is compiled, so that reading alone is compared.
It ends with status 1 where a goal is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import joblib
import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from backend import cluster
from backend.corpus.release import Release, default_release
from backend.corpus.roster_rows import slice_of
from backend.errors import AtlasError
from backend.evaluations.attribution import layer_scans, out_of_fold
from backend.fingerprints import FingerprintStore, StoreKey, cache_folder
from backend.geometry.projections import sweep
from backend.geometry.signatures import cosine_similarity, signatures
from backend.proxies.registry import DEFAULT_PROXY

ROSTER, SOURCES = "50-way", 50
KEY = StoreKey("agent500", DEFAULT_PROXY, "ur")
BLOCKS = 16  # of a scan; those that were read, in turns
NODES = ("atlas-a", "atlas-b")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
SETTINGS = {"OMP_NUM_THREADS": "1", "ATLAS_COMPILE": "0", "PYTHONPATH": str(Path(__file__).parents[1])}
SETTINGS |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0", "RAY_AUTH_MODE": "token"}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--layers", default="1-6", help="blocks that are read; most readers need more")
    parser.add_argument("--part", default="extraction,fits")
    parser.add_argument("--repeats", type=int, default=2, help="of fits, in turns; the best of each counts")
    parser.add_argument("--folder", type=Path, help="where caches lie (default: a temporary folder)")
    arguments = parser.parse_args()
    prompts = math.ceil(arguments.records / SOURCES)
    with contextlib.ExitStack() as stack:
        folder = arguments.folder or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="atlas-cluster-")))
        met = True
        if "extraction" in arguments.part:
            met = extraction(folder, prompts, arguments.layers)
        if "fits" in arguments.part:
            met &= fits(folder / "one", prompts, arguments.repeats)
    return 0 if met else 1


# ---- Extraction ------------------------------------------------------------------------------------------------------


def extraction(folder: Path, prompts: int, layers: str) -> bool:
    """One processor, two nodes, and two nodes of which a worker dies."""
    command = [sys.executable, "-m", "jobs", "extract", "--roster", ROSTER, "--limit", str(prompts), "--layers", layers]
    command += ["--lengths", "full", "--device", "cpu", "--release", str(default_release())]
    print(f"{prompts * SOURCES:,} records of {ROSTER}, blocks {layers}\n{'':<34}{'reading':>9}{'in all':>9}")
    on_ray = ["--engine", "ray", "--address", f"{ADDRESSES[0]}:6379", "--workers", "2"]
    one = timed("one processor", [*pinned(0), *command], folder / "one")
    with namespaces(), nodes(folder):
        here = [*inside(NODES[0]), *pinned(0), *command, *on_ray]
        two = timed("two nodes of one processor", here, folder / "two")
        timed("two nodes, a worker killed", here, folder / "killed", partial(kill_one, folder / NODES[1]))
    hashes = {name: digest(folder / name) for name in ("one", "two", "killed")}
    equal = len(set(hashes.values())) == 1
    ratios = [b / a for a, b in zip(one, two, strict=True)]
    print(f"bytes: {'equal' if equal else hashes}; two nodes take {ratios[0]:.2f} of the reading, "
          f"{ratios[1]:.2f} of the whole command (goal .60)")  # fmt: skip
    return equal and ratios[1] <= 0.6


def timed(label: str, command: list[str], cache: Path, during: Callable[[Path], None] | None = None) -> list[float]:
    """Seconds of reading and of the whole command."""
    prepare(cache)
    started = time.perf_counter()
    process = subprocess.Popen(
        command, env=environment(cache), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    if during:
        during(cache)
    out, errors = process.communicate()
    seconds = time.perf_counter() - started
    if process.returncode:
        raise AtlasError(f"{label} failed ({errors.strip().splitlines()[-1]})", "Look at the command's own output")
    speed = float(out.rsplit("records in ", 1)[1].split("(")[1].split(" ")[0])
    records = int(out.rsplit(" records in ", 1)[0].rsplit(" ", 1)[1].replace(",", ""))
    print(f"{label:<34}{records / speed:>8.0f}s{seconds:>8.0f}s", flush=True)
    return [records / speed, seconds]


def prepare(cache: Path) -> None:
    """An empty cache with the proxy of this machine."""
    cache.mkdir(parents=True, exist_ok=True)
    if not (cache / "proxies").exists():
        (cache / "proxies").symlink_to(cache_folder() / "proxies")


def environment(cache: Path) -> dict[str, str]:
    return os.environ | SETTINGS | {"ATLAS_CACHE": str(cache), "ATLAS_DATA": str(cache / "data")}


def digest(cache: Path) -> str:
    """Hash over every array of a store."""
    files = sorted(FingerprintStore(KEY, cache).path.glob("*.f16"))
    return hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in files)).hexdigest()[:12]


def pinned(processor: int) -> list[str]:
    return ["taskset", "-c", str(processor)]


def inside(node: str) -> list[str]:
    return ["ip", "netns", "exec", node]


@contextlib.contextmanager
def namespaces() -> Iterator[None]:
    """Two network namespaces that are joined."""
    ends = [f"{node}-0" for node in NODES]
    try:
        for node in NODES:
            subprocess.run(["ip", "netns", "add", node], check=True)
        pair = ["type", "veth", "peer", "name", ends[1], "netns", NODES[1]]
        subprocess.run(["ip", "link", "add", ends[0], "netns", NODES[0], *pair], check=True)
        for node, end, address, other in zip(NODES, ends, ADDRESSES, ADDRESSES[::-1], strict=True):
            for words in (f"addr add {address}/24 dev {end}", f"link set {end} up", "link set lo up"):
                subprocess.run(["ip", "-n", node, *words.split()], check=True)
            subprocess.run(["ip", "-n", node, "route", "add", "default", "via", other], check=True)
        yield
    finally:
        for node in NODES:
            subprocess.run(["ip", "netns", "del", node], check=False)


@contextlib.contextmanager
def nodes(folder: Path) -> Iterator[None]:
    """Ray on both namespaces, each with one processor and a cache of its own."""
    ray = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--num-cpus", "1", "--disable-usage-stats"]
    head = ["--head", "--port", "6379", "--include-dashboard", "false"]
    started = []
    try:
        for number, (node, address) in enumerate(zip(NODES, ADDRESSES, strict=True)):
            prepare(folder / node)
            role = head if number == 0 else ["--address", f"{ADDRESSES[0]}:6379"]
            command = [*inside(node), *pinned(number), *ray, *role, "--node-ip-address", address]
            log = (folder / f"{node}.log").open("w")
            started.append(subprocess.Popen(command, env=environment(folder / node), stdout=log, stderr=log))
            until = time.monotonic() + 180
            while "Ray runtime started" not in (folder / f"{node}.log").read_text() and time.monotonic() < until:
                time.sleep(0.5)
        yield
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def kill_one(node_cache: Path, cache: Path) -> None:
    """Kill the worker of a node when the second shard is on disk."""
    store = FingerprintStore(KEY, cache)
    until = time.monotonic() + 3600
    while len(store.done()) < 2 and time.monotonic() < until:
        time.sleep(0.2)
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            ours = f"ATLAS_CACHE={node_cache}".encode() in (path / "environ").read_bytes().split(b"\0")
            if ours and (path / "cmdline").read_bytes().startswith(b"ray::ShardReader"):
                os.kill(int(path.name), signal.SIGKILL)
                print(f"killed {path.name} after {len(store.done())} shards")


# ---- Fits ------------------------------------------------------------------------------------------------------------


def fits(cache: Path, prompts: int, repeats: int) -> bool:
    """Scan, fold fits and maps: today's loop with all threads, processes, and Ray."""
    os.environ["ATLAS_CACHE"] = str(cache)
    rows = slice_of(Release(default_release()), "agent500", DEFAULT_PROXY, "ur", ROSTER, prompts)
    folds, blocks = np.tile(rows.prompt_folds, len(rows.sources)), rows.layers()
    many = [blocks[i % len(blocks)] for i in range(BLOCKS)]
    processors = len(os.sched_getaffinity(0))
    prints = rows.load(blocks[-1]).reshape(len(rows.sources), prompts, -1)
    cosine = cosine_similarity(signatures(prints.mean(axis=1, dtype=np.float64)))

    def scan() -> Iterator[object]:
        yield from layer_scans(rows.load, many, rows.labels, folds, len(rows.sources), torch.float32)

    def refit() -> Iterator[object]:
        yield out_of_fold(rows.load, dict.fromkeys(range(5), blocks[-1]), rows.labels, folds, len(rows.sources))

    def maps() -> Iterator[object]:
        yield sweep(cosine, rows.families)

    from ray.util.joblib import register_ray

    register_ray()
    engines: dict[str, Callable[[], contextlib.AbstractContextManager[object]]] = {
        "loop": contextlib.nullcontext,
        "processes": partial(joblib.parallel_config, "loky", n_jobs=processors),
        "Ray": partial(joblib.parallel_config, "ray", n_jobs=processors),
    }
    met = True
    with cluster.connected(None, processors):
        for label, step in ((f"scan of {len(many)} blocks", scan), ("five folds", refit), ("20 maps", maps)):
            best = {engine: [math.inf, math.inf] for engine in engines}
            for _ in range(repeats):
                for engine, opened in engines.items():
                    with opened():
                        found = paced(step, 1 if engine == "loop" else processors)
                    best[engine] = [min(pair) for pair in zip(best[engine], found, strict=True)]
            for kind, place in (("in all", 0), ("once workers run", 1)):
                values = {engine: found[place] for engine, found in best.items()}
                if math.isfinite(values["loop"]):
                    text = "   ".join(f"{e} {v:.2f} s ({values['loop'] / v:.2f}x)" for e, v in values.items())
                    print(f"{label}, {kind}: {text}", flush=True)
            if step is scan:
                loop, processes, ray = (found[1] for found in best.values())
                met = loop / processes >= 1.0 and loop / ray >= 0.9
    return met


def paced(step: Callable[[], Iterator[object]], workers: int) -> tuple[float, float]:
    """Seconds in all, and seconds a result after the first, which the start of workers delays."""
    started = time.perf_counter()
    at = [time.perf_counter() for _ in step()]
    first = max(workers, sum(one - at[0] < 0.01 for one in at))  # done when the first result came
    after = (at[-1] - at[0]) / (len(at) - first) if len(at) > first else math.inf
    return time.perf_counter() - started, after


if __name__ == "__main__":
    try:
        sys.exit(main())
    except AtlasError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(2)
