"""Extraction and fits on Ray: one proxy an actor, one shard a task, one writer of the store.

Traces travel with their shard, so that a node needs the package and the proxy, but neither release nor a shared disk.
Everything of Ray (Moritz et al., 2018) stands here, and it is imported when an engine is opened.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Literal

import joblib
import numpy as np
import safetensors.numpy
import torch

from backend import __version__
from backend.errors import AtlasError
from backend.extraction import Extraction, Shard, ShardRead, identity_of, write_reads
from backend.fingerprints import FingerprintStore, StoreIdentity
from backend.proxies.encoding import Span
from backend.proxies.reader import Arrays, Reader, Readout
from backend.proxies.registry import load_reader, proxy_hash
from backend.traces import Trace, View

Engine = Literal["local", "ray"]
ENGINES: tuple[Engine, ...] = ("local", "ray")
ATTEMPTS = 3  # times that a shard may be lost with its worker
PATIENCE = 600.0  # seconds in which a worker must have loaded its proxy, where no other works


@dataclass(frozen=True)
class WorkerFacts:
    """What a worker reads with; it must be the same on every node."""

    version: str
    proxy_hash: str
    hidden_size: int
    engine: str
    max_tokens: int


@dataclass(frozen=True)
class ShardTask:
    """How every shard of an extraction is read, and where workers leave it."""

    identity: StoreIdentity
    view: View
    layers: tuple[int, ...]
    readout: Readout
    folder: str | None  # folder or URL of fsspec; None sends the arrays to the writer

    def prefix(self, shard: str) -> str:
        """Begin of the file name of a shard; it ends with the sha256 of its bytes."""
        settings = [self.identity.as_dict(), self.view, self.layers, astuple(self.readout)]
        return f"{shard}.{hashlib.sha256(json.dumps(settings).encode()).hexdigest()[:16]}"


class ShardReader:
    """A proxy in the process of a worker."""

    def start(self, proxy: str, device: str, threads: int) -> WorkerFacts:
        """Load the proxy. Raises AtlasError where this node cannot."""
        torch.set_num_threads(threads)
        try:
            self.reader = load_reader(proxy, device)
            identity = _identity(self.reader, proxy)
        except AtlasError as error:
            raise AtlasError(f"Node {platform.node()}: {error.problem}", error.remedy) from error
        facts = (identity.proxy_hash, identity.hidden_size, identity.engine, identity.max_tokens)
        return WorkerFacts(__version__, *facts)

    def read(self, task: ShardTask, shard: Shard, traces: Sequence[Trace]) -> tuple[Arrays | str, float]:
        """Arrays of a shard, or the sha256 of the file that holds them, and seconds."""
        started = time.perf_counter()
        identity = task.identity
        limit: dict[str, Any] = {"max_tokens": identity.max_tokens, "span": identity.span}
        arrays = self.reader.read(self.reader.encode(traces, task.view, **limit), task.layers, task.readout)
        seconds = time.perf_counter() - started
        return (arrays if task.folder is None else _save(task.folder, task.prefix(shard.name), arrays)), seconds


def _identity(reader: Reader, proxy: str) -> StoreIdentity:
    return identity_of(
        reader, 0, records="", proxy_hash=proxy_hash(proxy), max_tokens=reader.max_tokens, span="offsets"
    )


class ReaderPool:
    """Workers of a Ray cluster that read shards; made by :func:`readers`.

    Workers load their proxies while the caller prepares; whoever asks for facts waits for the first.
    """

    def __init__(self, ray: Any, proxy: str, device: str, count: int, threads: int, folder: str | None) -> None:
        self._ray, self._start, self._folder = ray, (proxy, device, threads), folder
        gpus = {"num_gpus": 1} if device == "cuda" else {}
        self._remote = ray.remote(ShardReader).options(num_cpus=threads, max_restarts=0, **gpus)
        self._starting: dict[Any, Any] = {}  # pending facts, and their actors
        self._idle: list[Any] = []
        for _ in range(count):
            self._add()
        self._facts: WorkerFacts | None = None

    @property
    def facts(self) -> WorkerFacts:
        """What the first worker reads with, once it is ready; every other must have the same."""
        while self._facts is None:
            self._started(self._wait({}))
        return self._facts

    def extract(
        self,
        store: FingerprintStore,
        traces: Sequence[Trace],
        shards: Sequence[Shard],
        *,
        view: View,
        layers: Sequence[int],
        readout: Readout,
        records: str,
        proxy_hash: str,
        span: Span = "offsets",
        work: Mapping[str, float] | None = None,
        progress: Callable[[int, float], None] | None = None,
    ) -> Extraction:
        """Read every shard that is not on disk yet; see :func:`backend.extraction.extract`."""
        facts = self.facts
        if facts.proxy_hash != proxy_hash:
            raise AtlasError(
                "The workers hold other weights than those of this machine", "Install the same proxy there"
            )
        identity = StoreIdentity(
            len(traces), facts.hidden_size, records, proxy_hash, facts.engine, facts.max_tokens, span
        )
        task = ShardTask(identity, view, tuple(layers), readout, self._folder)

        def reads(todo: list[Shard]) -> Iterator[ShardRead]:
            for read in self._reads(task, todo, traces):
                yield read
                if progress:
                    progress(len(read.shard.rows), (work or {}).get(read.shard.name, len(read.shard.rows)))

        return write_reads(store, identity, shards, layers, readout, reads)

    def _reads(self, task: ShardTask, todo: list[Shard], traces: Sequence[Trace]) -> Iterator[ShardRead]:
        """Shards as they are done; a worker has one at a time, so at most as many wait for the writer."""
        waiting, running, lost = deque[Shard](), dict[Any, tuple[Any, Shard]](), Counter[str]()

        def submit() -> None:
            while waiting and self._idle:
                actor, shard = self._idle.pop(), waiting.popleft()
                running[actor.read.remote(task, shard, [traces[i] for i in shard.rows])] = actor, shard

        for shard in todo:
            if saved := _saved(task, shard):
                yield ShardRead(shard, saved, None)
            else:
                waiting.append(shard)
        while waiting or running:
            submit()
            done = self._wait(running)
            if done not in running:
                self._started(done)
                continue
            actor, shard = running.pop(done)
            try:
                arrays, seconds = self._get(done)
            except _WorkerLost as error:
                lost[shard.name] += 1
                if lost[shard.name] == ATTEMPTS:
                    problem = f"{ATTEMPTS} workers died while they read shard {shard.name} ({error})"
                    raise AtlasError(
                        problem, "Look into Ray's logs; where memory is short, give fewer --workers"
                    ) from error
                waiting.appendleft(shard)
                self._replace(actor)
                continue
            self._idle.append(actor)
            submit()  # the worker goes on while this shard is written
            yield ShardRead(shard, _load(task, shard, arrays) if isinstance(arrays, str) else arrays, seconds)

    def _add(self) -> None:
        actor = self._remote.remote()
        self._starting[actor.start.remote(*self._start)] = actor

    def _wait(self, running: Mapping[Any, Any]) -> Any:
        """The next answer of a worker. Raises AtlasError where nobody works and nobody becomes ready."""
        pending = [*running, *self._starting]
        done = self._ray.wait(pending, num_returns=1, timeout=None if running else PATIENCE)[0] if pending else []
        if not done:
            problem = f"No worker of the Ray cluster is ready, or became so within {PATIENCE / 60:.0f} minutes"
            raise AtlasError(problem, "Look at `ray status`: are there free processors, and did a node leave?")
        return done[0]

    def _started(self, done: Any) -> None:
        actor = self._starting.pop(done)
        try:
            facts = self._get(done)
        except _WorkerLost as error:
            if not (self._starting or self._facts):
                raise AtlasError(
                    f"A worker died while it loaded its proxy ({error})", "Look into Ray's logs"
                ) from error
            return
        first = self._facts = self._facts or facts
        if facts != first:
            names = [n for n in vars(facts) if getattr(facts, n) != getattr(first, n)]
            both = "; ".join(f"{n} {getattr(first, n)} and {getattr(facts, n)}" for n in names)
            remedy = "Use nodes of one kind with the same version and proxy, or fewer --workers"
            raise AtlasError(f"The nodes of the cluster read differently ({both})", remedy)
        self._idle.append(actor)

    def _get(self, reference: Any) -> Any:
        """An answer. Raises AtlasError as the worker did, and _WorkerLost where it is gone."""
        errors = self._ray.exceptions
        try:
            return self._ray.get(reference)
        except errors.RayTaskError as error:
            if isinstance(error.cause, AtlasError):
                raise error.cause from error
            lines = str(error).strip().splitlines()
            raise AtlasError(f"A worker failed ({lines[-1]})", "Look into Ray's logs of that node") from error
        except errors.RayError as error:
            raise _WorkerLost(type(error).__name__) from error

    def _replace(self, actor: Any) -> None:
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.kill(actor)
        self._add()


class _WorkerLost(Exception):  # noqa: N818 - no error of a person
    """The process or node of a worker is gone."""


@contextlib.contextmanager
def readers(
    proxy: str, device: str = "auto", address: str | None = None, workers: int | None = None, folder: str | None = None
) -> Iterator[ReaderPool]:
    """A pool of readers on a Ray cluster, closed at the end.

    address : of a running cluster, or 'auto'; by default Ray is started on this machine alone.
    workers : by default one a GPU where there are some, else as many as the processors have room for.
    folder : where workers leave their shards, a folder that all see or a URL of fsspec; by default they are sent.
    Every worker on processors has as many threads as this process.
    """
    threads = torch.get_num_threads()
    with connected(address, workers, threads) as ray:
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        gpus = int(sum(node.get("GPU", 0) for node in nodes))
        device = device if device != "auto" else "cuda" if gpus else "cpu"
        threads = 1 if device == "cuda" else threads
        room = gpus if device == "cuda" else int(sum(node.get("CPU", 0) // threads for node in nodes))
        if not room or (workers or 0) > room:
            text = "a GPU each" if device == "cuda" else f"{threads} processors each, as many as threads here"
            remedy = (
                "Give fewer --workers, or set OMP_NUM_THREADS to fewer threads" if device == "cpu" else "Name fewer"
            )
            raise AtlasError(f"The cluster has room for {room} workers with {text}", remedy)
        yield ReaderPool(ray, proxy, device, workers or room, threads, folder)


@contextlib.contextmanager
def connected(address: str | None, workers: int | None = None, threads: int = 1) -> Iterator[Any]:
    """Ray, connected to a cluster or started on this machine. Raises AtlasError where it is missing or not running."""
    # It would send statistics to its makers, and start workers that any other process displaces.
    for name, value in {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError as error:
        remedy = "Run: pip install 'provenance-atlas[cluster]'"
        raise AtlasError("The engine ray needs the package ray, which is not installed", remedy) from error
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is None:
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        count = workers or max(1, processors // threads)
        options |= {"num_cpus": count * threads, "include_dashboard": False}
    try:
        ray.init(address=address or "local", **options)
    except Exception as error:  # Ray raises plain ones, too
        problem = f"No Ray cluster answers at '{address or 'local'}' ({str(error).strip().splitlines()[0].rstrip('.')})"
        remedy = "Start one with `ray start --head`; set RAY_AUTH_MODE=token where it wants one, or leave --address out"
        raise AtlasError(problem, remedy) from error
    try:
        yield ray
    finally:
        ray.shutdown()


@contextlib.contextmanager
def fits(engine: Engine, address: str | None = None, workers: int | None = None) -> Iterator[None]:
    """Where the loops of :mod:`backend.parallel` run: in this process, in ``workers`` processes, or on Ray."""
    if engine == "local":
        if address:
            raise AtlasError(f"--address {address} belongs to --engine ray", "Add --engine ray, or leave it out")
        with joblib.parallel_config("loky", n_jobs=workers or 1):
            yield
        return
    with connected(address, workers):
        from ray.util.joblib import register_ray

        register_ray()
        with joblib.parallel_config("ray", n_jobs=workers or -1):
            yield


# ---- Shards in a folder that all nodes see ---------------------------------------------------------------------------


def _files(folder: str) -> tuple[Any, str]:
    """File system and path of a folder or URL."""
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(folder)
        system.makedirs(path, exist_ok=True)
    except (ImportError, ValueError, OSError) as error:
        problem = f"The folder {folder} cannot be used ({str(error).strip()})"
        raise AtlasError(problem, "Name a folder that every node sees, or a URL that fsspec opens") from error
    return system, path


def _save(folder: str, prefix: str, arrays: Arrays) -> str:
    """Write arrays to a file that is named by its sha256, which is returned."""
    system, path = _files(folder)
    named = {f"{layer}.{variant}": np.ascontiguousarray(array) for (layer, variant), array in arrays.items()}
    data = safetensors.numpy.save(named)
    digest = hashlib.sha256(data).hexdigest()
    system.pipe_file(f"{path}/{prefix}.{digest}.safetensors", data)
    return digest


def _saved(task: ShardTask, shard: Shard) -> Arrays | None:
    """Arrays of a file that an interrupted run left, None without a whole one."""
    if task.folder is None:
        return None
    system, path = _files(task.folder)
    for name in system.glob(f"{path}/{task.prefix(shard.name)}.*.safetensors"):
        with contextlib.suppress(AtlasError):
            return _load(task, shard, name.split(".")[-2])
    return None


def _load(task: ShardTask, shard: Shard, digest: str) -> Arrays:
    """Arrays of a file. Raises AtlasError if its bytes are not those that the worker wrote."""
    assert task.folder is not None
    system, path = _files(task.folder)
    name = f"{task.prefix(shard.name)}.{digest}.safetensors"
    with contextlib.suppress(OSError):
        data = system.cat_file(f"{path}/{name}")
        if hashlib.sha256(data).hexdigest() == digest:
            found = safetensors.numpy.load(data)
            return {(int(key.split(".")[0]), key.split(".")[1]): array for key, array in found.items()}
    problem = f"{name} in {task.folder} is missing or was changed after a worker wrote it (sha256 differs)"
    raise AtlasError(problem, "Does every node see the same folder? Remove that file and run the same command again")
