"""The feature store: what is written is read, and what dies in between is neither lost nor repeated."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend import fingerprints
from backend.errors import AtlasError
from backend.fingerprints import FingerprintStore, StoreIdentity, StoreKey, cache_folder, check_room

REPOSITORY = Path(__file__).resolve().parent.parent
KEY = StoreKey("agent500", "tiny", "ur")
IDENTITY = StoreIdentity(
    rows=40, hidden_size=3, records="r", proxy_hash="p", engine="fused-float32-cpu", max_tokens=1024, span="offsets"
)


def block(rows: np.ndarray, width: int = 6, salt: float = 0.0) -> np.ndarray:
    """Numbers that tell the row and column that they belong to."""
    return (rows[:, None] + np.arange(width) / 16 + salt).astype(np.float16)


@pytest.fixture
def store(tmp_path) -> FingerprintStore:
    return FingerprintStore(KEY, tmp_path)


def fill(store: FingerprintStore, name: str, rows, layers=(1, 2), variants=("full", "t32")) -> None:
    rows = np.asarray(rows)
    with store.writing(IDENTITY):
        store.write_shard(name, rows, {(ly, v): block(rows, salt=ly) for ly in layers for v in variants})


def test_cache_folder_follows_the_environment(monkeypatch):
    monkeypatch.setenv("ATLAS_CACHE", "/somewhere/else")
    assert cache_folder() == Path("/somewhere/else")
    monkeypatch.delenv("ATLAS_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache_folder() == Path("/xdg/provenance-atlas")


def test_scattered_rows_come_back_where_they_belong_and_without_a_copy(store):
    rows = np.array([0, 1, 2, 7, 8, 39])
    fill(store, "a", rows)
    array = store.load(2, "t32")
    assert isinstance(array.base, np.memmap) or isinstance(array, np.memmap)
    assert not array.flags.writeable
    assert array.shape == (40, 6)
    np.testing.assert_array_equal(array[rows], block(rows, salt=2))
    assert not array[np.setdiff1d(np.arange(40), rows)].any()


@settings(deadline=None, max_examples=30)
@given(st.lists(st.sets(st.integers(0, 39), min_size=1), min_size=1, max_size=4))
def test_any_rows_in_any_shards(tmp_path_factory, shards):
    store = FingerprintStore(KEY, tmp_path_factory.mktemp("store"))
    for i, rows in enumerate(shards):
        fill(store, f"s{i}", sorted(rows), layers=(5,), variants=("full",))
    written = sorted(set().union(*shards))
    np.testing.assert_array_equal(store.load(5)[written], block(np.array(written), salt=5))
    assert sorted(store.done()) == [f"s{i}" for i in range(len(shards))]


def test_later_layers_and_variants_of_a_shard_add_up(store):
    fill(store, "a", [0, 1], layers=(1,), variants=("full",))
    fill(store, "a", [0, 1], layers=(1, 3), variants=("t32",))
    assert store.done() == {"a": {"1": ["full", "t32"], "3": ["t32"]}}


def test_missing_arrays_and_shards_name_the_command(store):
    with pytest.raises(AtlasError, match=r"no fingerprints 'full' of block 7.*jobs extract .*--proxy tiny"):
        store.load(7)
    fill(store, "a", [0, 1])
    assert store.require(["a"], 1).shape == (40, 6)
    with pytest.raises(AtlasError, match=r"1 of 2 shards of block 1 .* are missing"):
        store.require(["a", "b"], 1)


@pytest.mark.parametrize(
    "torn", ['{"shard": "b", "rows": 2, "arr', "{", '{"shard": "b", "rows": 2, "arrays": {"1": ["fu']
)
def test_torn_journal_line_is_not_done_and_the_next_line_survives(store, torn):
    fill(store, "a", [0, 1])
    journal = store.path / "shards.jsonl"
    with journal.open("a") as stream:
        stream.write(torn)
    assert list(store.done()) == ["a"]
    fill(store, "b", [2, 3])
    fill(store, "c", [4, 5])
    assert list(store.done()) == ["a", "b", "c"]


def test_seconds_are_those_of_passes_over_the_same_blocks(store):
    rows = np.array([0, 1, 2])
    with store.writing(IDENTITY):
        store.write_shard("a", rows, {(1, "full"): block(rows), (2, "full"): block(rows)}, seconds=2.0)
        store.write_shard("b", rows + 5, {(1, "full"): block(rows), (2, "full"): block(rows)}, seconds=4.0)
        store.write_shard("a", rows, {(1, "t32"): block(rows)}, seconds=100.0)
        store.write_shard("c", rows + 9, {(1, "full"): block(rows), (2, "full"): block(rows)})
    assert store.seconds(["a", "b", "c"], [1, 2]) == (6, 6.0)
    assert store.seconds(["a"], [1]) == (3, 100.0)
    assert store.seconds(["c"], [1, 2]) == (0, 0)


def test_fingerprints_of_something_else_are_refused_and_the_difference_is_named(store):
    fill(store, "a", [0])
    other = StoreIdentity(**{**IDENTITY.__dict__, "proxy_hash": "q", "engine": "transformers-float32-cpu"})
    with pytest.raises(AtlasError, match=r"something else \(proxy_hash, engine differ\)"), store.writing(other):
        pass
    assert store.identity() == IDENTITY


def test_damaged_manifest_is_one_sentence(store):
    fill(store, "a", [0])
    (store.path / "manifest.json").write_text('{"rows": 4')
    with pytest.raises(AtlasError, match=r"manifest\.json is damaged"):
        store.identity()


def test_lock_is_released_after_an_error(store):
    with pytest.raises(RuntimeError), store.writing(IDENTITY):
        raise RuntimeError
    fill(store, "a", [0])


HOLD = """
import sys
from pathlib import Path
from backend.fingerprints import *
store = FingerprintStore(StoreKey("agent500", "tiny", "ur"), Path(sys.argv[1]))
with store.writing(StoreIdentity(40, 3, "r", "p", "fused-float32-cpu", 1024, "offsets")):
    print("held", flush=True)
    sys.stdin.read()
"""


def python(code: str, *arguments: str, **options) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.Popen(
        command,
        cwd=REPOSITORY,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


def test_a_second_process_is_turned_away_while_one_writes_and_let_in_when_it_was_killed(store, tmp_path):
    holder = python(HOLD, str(tmp_path))
    try:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(AtlasError, match="Another process is writing"), store.writing(IDENTITY):
            pass
    finally:
        holder.kill()
        holder.communicate()
    fill(store, "a", [0])


CROWD = """
import sys, time
import numpy as np
from pathlib import Path
from backend.errors import AtlasError
from backend.fingerprints import *
store, me = FingerprintStore(StoreKey("agent500", "tiny", "ur"), Path(sys.argv[1])), int(sys.argv[2])
todo = list(range(me, 40, 2))
while todo:
    try:
        with store.writing(StoreIdentity(40, 3, "r", "p", "fused-float32-cpu", 1024, "offsets")):
            row = np.array([todo[0]])
            array = (row[:, None] + np.arange(6) / 16).astype(np.float16)
            store.write_shard(f"s{row[0]:02d}", row, {(1, "full"): array})
            todo.pop(0)
    except AtlasError:
        time.sleep(0.001)
"""


def test_two_processes_that_take_turns_leave_a_whole_store(store, tmp_path):
    crowd = [python(CROWD, str(tmp_path), str(i)) for i in range(2)]
    for process in crowd:
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors
    assert sorted(store.done()) == [f"s{i:02d}" for i in range(40)]
    np.testing.assert_array_equal(store.load(1), block(np.arange(40)))
    lines = (store.path / "shards.jsonl").read_text().splitlines()
    assert len([json.loads(line) for line in lines]) == 40


def test_room_is_checked_with_a_reserve_even_where_the_folder_does_not_exist_yet(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=3_000_000_000))
    check_room(tmp_path / "not" / "yet", 1_900_000_000)
    with pytest.raises(AtlasError, match=r"needs 2\.1 GB .* 3\.0 GB are free.*--layers"):
        check_room(tmp_path / "not" / "yet", 2_100_000_000)


def test_full_disk_keeps_finished_shards_and_the_same_command_continues(store, monkeypatch):
    fill(store, "a", [0, 1])
    with monkeypatch.context() as patch:
        patch.setattr(fingerprints.os, "pwrite", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        with pytest.raises(AtlasError, match=r"is full; finished shards are kept.*run the same command again"):
            fill(store, "b", [2, 3])
    assert list(store.done()) == ["a"]
    np.testing.assert_array_equal(store.load(1)[:2], block(np.arange(2), salt=1))
    fill(store, "b", [2, 3])
    np.testing.assert_array_equal(store.load(1)[:4], block(np.arange(4), salt=1))


LIMITED = """
import sys
import numpy as np
from pathlib import Path
from backend.errors import AtlasError
from backend.fingerprints import *
store = FingerprintStore(StoreKey("agent500", "tiny", "ur"), Path(sys.argv[1]))
try:
    with store.writing(StoreIdentity(40, 3, "r", "p", "e", 1024, "offsets")):
        for i in range(40):
            store.write_shard(f"s{i}", np.array([i]), {(1, "full"): np.full((1, int(sys.argv[2])), i, np.float16)})
except AtlasError as error:
    print(error)
print(len(store.done()))
"""


def test_file_size_limit_of_the_system_is_one_sentence(tmp_path):
    process = python(
        LIMITED, str(tmp_path), "3000",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
    )  # fmt: skip
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    assert "cannot be written" in out
    assert out.splitlines()[-1] == "0"


def test_real_full_disk(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(small)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this user may not mount a small disk")
    try:
        out, errors = python(LIMITED, str(small), "3000").communicate(timeout=300)
        assert not errors
        assert "is full; finished shards are kept" in out
        done = int(out.splitlines()[-1])
        assert 0 < done < 40
        array = FingerprintStore(KEY, small).load(1)
        np.testing.assert_array_equal(array[:done, 0], np.arange(done))
        del array
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_folder_that_cannot_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("no folder")
    store = FingerprintStore(KEY, tmp_path / "file")
    with pytest.raises(AtlasError, match=r"cannot be written.*ATLAS_CACHE"), store.writing(IDENTITY):
        pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_folder_is_one_sentence(tmp_path):
    tmp_path.chmod(0o555)
    with pytest.raises(AtlasError, match=r"cannot be written \(Permission denied\)"):
        fill(FingerprintStore(KEY, tmp_path), "a", [0])


def test_read_only_file_system_is_one_sentence():
    if not Path("/sys").is_dir():
        pytest.skip("there is no /sys here")
    store = FingerprintStore(KEY, Path("/sys/atlas"))
    with pytest.raises(AtlasError, match=r"cannot be written"), store.writing(IDENTITY):
        pass


def test_killed_in_the_middle_of_a_shard_costs_that_shard_only(store, tmp_path):
    code = CROWD.replace("range(me, 40, 2)", "range(40)").replace("todo.pop(0)", "todo.pop(0); time.sleep(0.02)")
    process = python(code, str(tmp_path), "0")
    journal = store.path / "shards.jsonl"
    limit = time.monotonic() + 300
    while not (journal.exists() and journal.read_bytes().count(b"\n") >= 3) and time.monotonic() < limit:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    done = sorted(store.done())
    assert 3 <= len(done) < 40
    np.testing.assert_array_equal(store.load(1)[: len(done)], block(np.arange(len(done))))
