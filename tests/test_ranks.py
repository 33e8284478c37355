"""Extraction by ranks: parts of their own, and a merge to the bytes of one process."""

from __future__ import annotations

import json
import shutil
import signal
import time
from pathlib import Path

import duckdb
import numpy as np
import pytest
import torch

from backend.errors import AtlasError
from backend.extraction import Extraction, grid_shards, merge, share_of
from backend.fingerprints import FingerprintStore, StoreKey
from backend.proxies.reader import Reader
from jobs.__main__ import main
from tests.fake_release import fake_release
from tests.test_extraction import READOUT, TRACES, alone, files, go, start
from tests.tiny_models import save_tiny, tiny_decoder, tiny_tokenizer

KEY = StoreKey("agent500", "tiny", "ur")
SHARDS = grid_shards((1, 2, 4), 4, 3)
LAYERS = (1, 3)
NEEDED = {"records": "r", "proxy_hash": "p", "span": "offsets"}


@pytest.fixture(autouse=True)
def outside_slurm(monkeypatch):
    for name in ("SLURM_PROCID", "SLURM_NTASKS", "RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(tiny_decoder(), tiny_tokenizer(), dtype=torch.float32, compile_blocks=False)


def part_of(root: Path, rank: int, world: int = 2) -> FingerprintStore:
    return FingerprintStore(KEY, root, (rank, world))


def read(reader: Reader, root: Path, rank: int, world: int = 2, **options) -> Extraction:
    part = part_of(root, rank, world)
    return go(reader, part, shards=share_of(SHARDS, part.part), layers=LAYERS, **options)


def join(root: Path, ranks: int | None = None, **needed) -> Extraction:
    return merge(FingerprintStore(KEY, root), SHARDS, LAYERS, READOUT, NEEDED | needed, ranks)


@pytest.fixture
def whole(reader, tmp_path) -> FingerprintStore:
    """What one process reads."""
    store = FingerprintStore(KEY, tmp_path / "whole")
    go(reader, store, shards=SHARDS, layers=LAYERS)
    return store


@pytest.mark.parametrize("world", [2, 3, 5])
def test_merged_parts_are_the_bytes_of_one_process_also_with_idle_ranks(reader, whole, tmp_path, world):
    counts = [read(reader, tmp_path, rank, world).records for rank in range(min(world, len(SHARDS)))]
    assert sum(counts) == len(TRACES)
    assert join(tmp_path) == Extraction(records=len(TRACES), clipped=0)
    store = FingerprintStore(KEY, tmp_path)
    assert files(store.path) == files(whole.path) != {}
    assert store.identity() == whole.identity()
    assert list(store.done().items()) == list(whole.done().items())
    assert store.seconds([s.name for s in SHARDS], LAYERS)[0] == len(TRACES)
    assert join(tmp_path) == Extraction(0, 0), "nothing comes twice"


def test_shares_hold_every_shard_once():
    shares = [share_of(SHARDS, (rank, 2)) for rank in range(2)]
    rows = np.concatenate([shard.rows for share in shares for shard in share])
    np.testing.assert_array_equal(np.sort(rows), np.arange(len(TRACES)))


def test_an_interrupted_rank_is_refused_and_continues(reader, whole, tmp_path):
    def stop(records: int, work: float) -> None:
        raise KeyboardInterrupt

    read(reader, tmp_path, 1)
    with pytest.raises(KeyboardInterrupt):
        read(reader, tmp_path, 0, progress=stop)
    with pytest.raises(AtlasError, match=r"2 of 2 shards of this rank are missing in .*part-0-of-2"):
        join(tmp_path)
    assert read(reader, tmp_path, 0).records == 9
    join(tmp_path)
    assert files(FingerprintStore(KEY, tmp_path).path) == files(whole.path)


def test_a_missing_rank_is_refused_with_its_command_and_nothing_is_merged(reader, tmp_path):
    read(reader, tmp_path, 0)
    with pytest.raises(AtlasError, match=r"1 of 1 shards .*part-1-of-2.*jobs extract .*--rank 1 --world 2") as caught:
        join(tmp_path)
    assert "it continues where it stopped" in str(caught.value)
    assert files(FingerprintStore(KEY, tmp_path).path) == {}
    assert not part_of(tmp_path, 1).path.exists()


def test_parts_of_something_else_are_refused(reader, tmp_path):
    read(reader, tmp_path, 0)
    read(reader, tmp_path, 1, span="prefix-count")
    with pytest.raises(AtlasError, match=r"part-1-of-2 were made from something else \(span differ\).*--rank 1"):
        join(tmp_path)
    shutil.rmtree(part_of(tmp_path, 1).path)
    read(reader, tmp_path, 1)
    manifest = part_of(tmp_path, 1).path / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"engine": "fused-bfloat16-cuda"}))
    with pytest.raises(AtlasError, match=r"part-1-of-2 were made from something else \(engine differ\)"):
        join(tmp_path)
    with pytest.raises(AtlasError, match=r"part-0-of-2 were made from something else \(records differ\)"):
        join(tmp_path, records="others")
    assert files(FingerprintStore(KEY, tmp_path).path) == {}


def test_a_rank_is_refused_at_once_where_the_store_is_of_something_else(reader, tmp_path):
    go(reader, FingerprintStore(KEY, tmp_path), shards=SHARDS[:1], layers=LAYERS)
    with pytest.raises(AtlasError, match=r"/ur were made from something else \(span differ\)"):
        read(reader, tmp_path, 1, span="prefix-count")
    assert part_of(tmp_path, 1).done() == {}


@pytest.mark.parametrize("damage", ["byte", "cut", "gone"])
def test_a_part_that_was_changed_is_refused_with_its_file(reader, tmp_path, damage):
    for rank in range(2):
        read(reader, tmp_path, rank)
    path = part_of(tmp_path, 1).array_path(3, "t2")
    raw = bytearray(path.read_bytes())
    at = int(SHARDS[1].rows[0]) * len(raw) // len(TRACES)
    raw[at] ^= 1
    path.write_bytes(raw if damage == "byte" else raw[: at + 1])
    if damage == "gone":
        path.unlink()
    with pytest.raises(AtlasError, match=r"L03\.t2\.f16 in .*part-1-of-2 was changed .*sha256.*Remove .*--rank 1"):
        join(tmp_path)
    shutil.rmtree(path.parent)
    read(reader, tmp_path, 1)
    assert join(tmp_path).records == 9, "finished shards are not merged again"


def test_parts_of_different_numbers_of_ranks_are_not_mixed(reader, whole, tmp_path):
    with pytest.raises(AtlasError, match=r"no parts of ranks in .*--rank 0 --world 2"):
        join(tmp_path)
    for rank, world in ((0, 2), (0, 3), (1, 3), (2, 3)):
        read(reader, tmp_path, rank, world)
    with pytest.raises(AtlasError, match=r"parts of 2 and of 3 ranks in .*--world"):
        join(tmp_path)
    with pytest.raises(AtlasError, match=r"parts of 2 and of 3 ranks in .*--world"):
        join(tmp_path, ranks=0)
    join(tmp_path, ranks=3)
    assert files(FingerprintStore(KEY, tmp_path).path) == files(whole.path)


def test_a_rank_that_still_writes_is_not_merged(reader, tmp_path):
    for rank in range(2):
        read(reader, tmp_path, rank)
    part = part_of(tmp_path, 1)
    with part.writing(part.identity()), pytest.raises(AtlasError, match=r"Another process is writing .*part-1-of-2"):
        join(tmp_path)


@pytest.fixture
def place(tmp_path, monkeypatch) -> list[str]:
    """Options of the verb for an invented release with a tiny proxy in a folder."""
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ATLAS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("ATLAS_COMPILE", "0")
    release, proxy = fake_release(tmp_path / "release", sources=6, prompts=10), save_tiny(tmp_path / "tiny")
    return ["--release", str(release), "--proxy", str(proxy), "--lengths", "full,8", "--layers", "2-3"]


@pytest.mark.parametrize(
    ("environment", "extra", "shown"),
    [
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "RANK": "0", "WORLD_SIZE": "2"}, (), "rank 1 of 4"),
        ({"RANK": "1", "WORLD_SIZE": "2"}, (), "rank 1 of 2"),
        ({"SLURM_NTASKS": "4"}, (), "60 of 60 records"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, (), "60 of 60 records"),
        ({"SLURM_PROCID": "3", "SLURM_NTASKS": "4"}, ("--rank", "0", "--world", "1"), "60 of 60 records"),
        ({}, ("--rank", "2", "--world", "3"), "rank 2 of 3"),
        ({"SLURM_PROCID": "1", "SLURM_NTASKS": "4"}, ("--world", "2"), "rank 1 of 2"),
    ],
)
def test_verb_takes_ranks_from_options_slurm_or_torchrun(place, capsys, monkeypatch, environment, extra, shown):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert main(["extract", *place, *extra]) == 0
    assert shown in capsys.readouterr().out


def test_verb_refuses_ranks_that_cannot_be(place, capsys, monkeypatch):
    for extra in (("--rank", "2", "--world", "2"), ("--rank", "-1", "--world", "2"), ("--rank", "1"), ("--world", "2")):
        assert main(["extract", *place, *extra]) == 2, extra
        error = capsys.readouterr().err
        assert "is no share of the records" in error
        assert "--rank R and --world W" in error
    assert main(["extract", *place, "--merge", "--rank", "1"]) == 2
    assert "Leave --rank out" in capsys.readouterr().err
    assert main(["extract", *place, "--merge"]) == 2
    assert "no parts of ranks" in capsys.readouterr().err
    monkeypatch.setenv("SLURM_PROCID", "one")
    monkeypatch.setenv("SLURM_NTASKS", "2")
    assert main(["extract", *place]) == 2
    assert "Rank one of 2 is no share" in capsys.readouterr().err


@pytest.mark.slow(10)
def test_two_processes_one_killed_merge_to_the_bytes_of_one(place, tmp_path, monkeypatch, capsys):
    killed = FingerprintStore(KEY, tmp_path / "cache", (1, 2))
    other = start([*place, "--rank", "1", "--world", "2"], tmp_path / "cache")
    alone([*place, "--rank", "0", "--world", "2"], tmp_path / "cache", monkeypatch)
    assert "165-way, rank 0 of 2, tiny, view ur: 30 of 30 records to read" in capsys.readouterr().out
    limit = time.monotonic() + 300
    while not killed.done() and other.poll() is None and time.monotonic() < limit:
        time.sleep(0.005)
    other.send_signal(signal.SIGKILL)
    other.communicate()
    journal = killed.path / "shards.jsonl"
    if len(killed.done()) == 3:  # it was faster than the signal
        journal.write_text(journal.read_text().splitlines()[0] + '\n{"shard": "s0')
    read_before = set(killed.done())
    assert main(["extract", *place, "--merge"]) == 2
    assert "part-1-of-2" in (error := capsys.readouterr().err)
    assert "--rank 1 --world 2; it continues where it stopped" in error
    alone([*place, "--rank", "1", "--world", "2"], tmp_path / "cache", monkeypatch)
    assert f"{30 - 10 * len(read_before)} of 30 records to read" in capsys.readouterr().out
    assert 0 < len(read_before) < 3
    monkeypatch.setenv("SLURM_PROCID", "0")
    monkeypatch.setenv("SLURM_NTASKS", "1")
    assert main(["extract", *place, "--merge"]) == 0
    assert "60 records of ranks joined" in capsys.readouterr().out
    with duckdb.connect(tmp_path / "cache" / "atlas-work.duckdb") as work:
        row = work.execute("SELECT records, layers, engine, records_per_s > 0 FROM extractions").fetchall()
    assert row == [(60, "2-3", killed.identity().engine, True)]
    shutil.rmtree(killed.path)
    assert main(["extract", *place, "--rank", "1", "--world", "2"]) == 0
    assert "0 of 30 records to read" in capsys.readouterr().out, "what is merged is not read again"
    alone(place, tmp_path / "alone", monkeypatch)
    one = FingerprintStore(KEY, tmp_path / "alone")
    assert files(killed.whole.path) == files(one.path)
    assert len(files(one.path)) == 4
    assert killed.whole.identity() == one.identity()
