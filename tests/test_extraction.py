"""From records to fingerprints on disk: which shards, what is resumed, what is refused."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import duckdb
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from backend.corpus.release import Release
from backend.corpus.roster_rows import release_records
from backend.errors import AtlasError
from backend.extraction import (
    Extraction,
    extract,
    grid_shards,
    list_shards,
    missing_bytes,
    missing_shards,
    records_hash,
)
from backend.fingerprints import FingerprintStore, StoreKey, cache_folder
from backend.proxies.reader import Reader, Readout
from backend.proxies.registry import blocks_of, describe, installed
from backend.traces import Trace
from jobs.__main__ import main
from jobs.extract import lengths_of
from jobs.pipeline import ranges
from tests.fake_release import fake_release
from tests.tiny_models import save_tiny, tiny_decoder, tiny_tokenizer

REPOSITORY = Path(__file__).resolve().parent.parent
PROMPTS = ["Restart the queue.", "Describe the backup.", "Test the index."]
TRACES = [Trace(p, f"{w} {p.lower()} {w}") for w in ("One", "Certainly!", "def value", "") for p in PROMPTS]
SHARDS = grid_shards((2, 4), 4, 3)
READOUT = Readout((None, 2))


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(tiny_decoder(), tiny_tokenizer(), dtype=torch.float32, compile_blocks=False)


@pytest.fixture
def store(tmp_path) -> FingerprintStore:
    return FingerprintStore(StoreKey("agent500", "tiny", "ur"), tmp_path)


def go(reader: Reader, store: FingerprintStore, traces=TRACES, shards=SHARDS, layers=(1, 3), **options) -> Extraction:
    options = {"view": "ur", "readout": READOUT, "records": "r", "proxy_hash": "p"} | options
    return extract(reader, store, traces, shards, layers=layers, **options)


def files(folder: Path) -> dict[str, bytes]:
    """Every array of a store."""
    return {p.name: p.read_bytes() for p in sorted(folder.glob("*.f16"))}


@given(st.lists(st.integers(1, 40), min_size=1, max_size=4, unique=True), st.integers(1, 60), st.data())
def test_shards_of_a_grid_hold_every_row_of_the_roster_once(sizes, prompts, data):
    segments = sorted(sizes)
    sources = data.draw(st.sampled_from(segments))
    shards = grid_shards(segments, sources, prompts)
    rows = np.concatenate([shard.rows for shard in shards])
    np.testing.assert_array_equal(np.sort(rows), np.arange(sources * prompts))
    assert all((np.diff(shard.rows) > 0).all() for shard in shards)
    assert len({shard.name for shard in shards}) == len(shards)
    longest = grid_shards(segments, segments[-1], prompts)
    assert [s.name for s in longest[: len(shards)]] == [s.name for s in shards], "a longer roster continues a shorter"


@given(st.integers(1, 9), st.integers(1, 30), st.integers(1, 40))
def test_limited_shards_hold_the_leading_prompts_and_are_shards_of_the_whole(sources, prompts, wanted):
    limited = grid_shards((sources,), sources, prompts, wanted)
    held = set(np.concatenate([shard.rows for shard in limited]) % prompts)
    assert set(range(min(wanted, prompts))) <= held
    assert {s.name for s in limited} <= {s.name for s in grid_shards((sources,), sources, prompts)}


@given(st.integers(0, 50), st.integers(1, 12))
def test_shards_of_a_list(n, size):
    shards = list_shards(n, size)
    assert [i for shard in shards for i in shard.rows] == list(range(n))


def test_records_hash_depends_on_every_text_and_on_where_one_ends():
    base = records_hash(["k"], [Trace("ab", "c")])
    assert base == records_hash(["k"], [Trace("ab", "c")])
    others = [records_hash(["k"], [Trace("a", "bc")]), records_hash(["ka"], [Trace("b", "c")])]
    others.append(records_hash(["k"], [Trace("ab", "\ud800")]))
    assert len({base, *others}) == 4


def test_store_holds_what_the_reader_gives(reader, store):
    done = go(reader, store)
    assert done == Extraction(records=12, clipped=0)
    encoded = reader.encode(TRACES, "ur")
    expected = reader.read(encoded, [1, 3], READOUT)
    for (layer, variant), array in expected.items():
        np.testing.assert_allclose(store.load(layer, variant), array, rtol=2e-3, atol=1e-3)
    identity = store.identity()
    assert (identity.rows, identity.hidden_size, identity.engine) == (12, 32, "fused-float32-cpu")
    assert (identity.max_tokens, identity.span) == (256, "offsets")


def test_second_run_reads_nothing_and_another_layer_reads_again(reader, store):
    go(reader, store)
    before = files(store.path)
    assert go(reader, store).records == 0
    assert missing_shards(store, SHARDS, [1, 3], READOUT) == []
    assert missing_bytes(store, SHARDS, [1, 2, 3], READOUT, 32) == 12 * 32 * 2 * 4
    assert go(reader, store, layers=(1, 2, 3)).records == 12
    after = files(store.path)
    assert {name: after[name] for name in before} == before
    assert set(after) - set(before) == {"L02.full.f16", "L02.t2.f16"}


@pytest.mark.parametrize("stop_after", [1, 4, 7, 11])
def test_interrupted_and_continued_equals_uninterrupted(reader, store, tmp_path, stop_after):
    whole = FingerprintStore(store.key, tmp_path / "whole")
    go(reader, whole)
    seen = []

    def stop(n: int, _: float) -> None:
        seen.append(n)
        if sum(seen) >= stop_after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(reader, store, progress=stop)
    read = go(reader, store).records
    assert 0 < read <= 12
    assert files(store.path) == files(whole.path)


def test_progress_counts_what_is_read(reader, store):
    seen = []
    go(reader, store, shards=SHARDS[:1])
    go(reader, store, progress=lambda records, work: seen.append((records, work)))
    assert np.sum(seen, axis=0) == pytest.approx([6, 6])


def test_other_texts_or_another_proxy_are_refused(reader, store):
    go(reader, store)
    with pytest.raises(AtlasError, match=r"something else \(records differ\)"):
        go(reader, store, records="other")
    with pytest.raises(AtlasError, match=r"something else \(span differ\)"):
        go(reader, store, span="prefix-count")


def test_work_that_does_not_fit_is_refused_before_anything_is_read(reader, store, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000_000_500))
    monkeypatch.setattr(Reader, "read", lambda *_: pytest.fail("it was read"))
    with pytest.raises(AtlasError, match="are free"):
        go(reader, store)


def test_states_that_are_not_numbers_are_refused_with_the_record(store):
    model = tiny_decoder()
    with torch.no_grad():
        model.embed_tokens.weight[tiny_tokenizer()("Certainly", add_special_tokens=False)["input_ids"][0]] = float(
            "nan"
        )
    broken = Reader(model, tiny_tokenizer(), dtype=torch.float32, compile_blocks=False)
    with pytest.raises(AtlasError, match="at block 1 for record 3 are not numbers"):
        go(broken, store)
    assert store.done() == {}


def test_values_beyond_float16_are_counted(store):
    model = tiny_decoder()
    with torch.no_grad():
        model.embed_tokens.weight.mul_(1e8)
    loud = Reader(model, tiny_tokenizer(), dtype=torch.float32, compile_blocks=False)
    done = go(loud, store)
    arrays = [store.load(layer, variant).astype(float) for layer in (1, 3) for variant in ("full", "t2")]
    assert all(np.isfinite(a).all() for a in arrays)
    assert done.clipped == sum((np.abs(a) == 65504).sum() for a in arrays) > 0


def test_blocks_are_named_in_three_ways():
    assert blocks_of("all", 4) == [1, 2, 3, 4]
    assert blocks_of("3, 1,3", 4) == [1, 3]
    assert blocks_of("9-11,2", 30) == [2, 9, 10, 11]
    assert blocks_of("", 4) == []
    for wrong in ("0", "5", "3-2", "a", "1;2", "-1", "2-9"):
        with pytest.raises(AtlasError):
            blocks_of(wrong, 4)


def test_lengths_and_ranges():
    assert lengths_of("32, full,128,32") == (None, 128, 32)
    assert lengths_of("64") == (64,)
    for wrong in ("", "0", "whole", "1.5", "-3"):
        with pytest.raises(AtlasError, match="does not name response lengths"):
            lengths_of(wrong)
    assert ranges([1, 2, 3, 7, 9, 10]) == "1-3,7,9-10"
    assert blocks_of(ranges([1, 2, 3, 7, 9, 10]), 10) == [1, 2, 3, 7, 9, 10]


@pytest.fixture
def job(tmp_path, monkeypatch):
    """The verb on an invented release with a tiny proxy in a folder."""
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ATLAS_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("ATLAS_COMPILE", "0")
    release = fake_release(tmp_path / "release", sources=6, prompts=10)
    proxy = save_tiny(tmp_path / "tiny")

    def run(*extra: str) -> int:
        return main(["extract", "--release", str(release), "--proxy", str(proxy), "--lengths", "full,8", *extra])

    return run


def test_job_announces_reads_and_records_what_it_took(job, capsys):
    assert job("--view", "ur,r", "--roster", "100-way", "--layers", "2-3", "--temporal", "3") == 0
    said = capsys.readouterr().out
    assert "view ur: 40 of 40 records to read at blocks 2-3 (full, t8)" in said
    assert "view r: 40 records in" in said
    store = FingerprintStore(StoreKey("agent500", "tiny", "r"))
    assert store.load(3, "temporal").shape == (60, 10 * 32)
    with duckdb.connect(cache_folder() / "atlas-work.duckdb") as work:
        rows = work.execute("SELECT * FROM extractions ORDER BY input_view").df()
        builds = work.execute("SELECT stage, proxy_hash, duration_s FROM builds").df()
        assert work.execute("SELECT proxy, depth, hidden_size FROM proxies").fetchall() == [("tiny", 4, 32)]
    assert rows["input_view"].tolist() == ["r", "ur"]
    assert rows["layers"].tolist() == ["2-3", "2-3"]
    assert rows["records"].tolist() == [40, 40]
    np.testing.assert_allclose(rows["records_per_s"] * rows["minutes"] * 60, 40, rtol=1e-6)
    assert (builds["stage"] == "extract").all()
    assert builds["proxy_hash"].nunique() == 1


def test_job_run_again_says_so_and_a_longer_roster_continues(job, capsys):
    assert job("--roster", "50-way", "--layers", "1") == 0
    capsys.readouterr()
    assert job("--roster", "50-way", "--layers", "1") == 0
    assert "0 of 20 records to read" in (said := capsys.readouterr().out)
    assert "everything is on disk already" in said
    assert job("--roster", "165-way", "--layers", "1") == 0
    assert "40 of 60 records to read" in capsys.readouterr().out
    with duckdb.connect(cache_folder() / "atlas-work.duckdb") as work:
        assert work.execute("SELECT records FROM extractions").fetchall() == [(60,)]


def test_job_refuses_fingerprints_of_something_else_also_when_all_are_there(job, tmp_path, capsys):
    for benchmark in ("agent500", "bench-a"):
        asked = ("--benchmark", benchmark, "--roster", "50-way", "--layers", "1")
        assert job(*asked) == 0
        assert job(*asked, "--span", "prefix-count") == 2
        assert "something else (span differ)" in capsys.readouterr().err
        other = fake_release(tmp_path / f"other-{benchmark}", sources=6, prompts=10, seed=1)
        assert job(*asked, "--release", str(other)) == 2
        assert "something else (records differ)" in capsys.readouterr().err
        store = FingerprintStore(StoreKey(benchmark, "tiny", "ur"))
        with pytest.raises(AtlasError, match=rf"other records than those of {benchmark} in {other}"):
            store.check_records(release_records(Release(other), benchmark), other)
    assert job("--roster", "50-way", "--layers", "1") == 0
    assert "everything is on disk already" in capsys.readouterr().out


def test_job_with_a_limit_reads_the_leading_prompts(job):
    assert job("--limit", "5", "--layers", "1") == 0
    array = FingerprintStore(StoreKey("agent500", "tiny", "ur")).load(1).reshape(6, 10, 64)
    assert array[:, :5].any(axis=2).all()
    assert not array[:, 5:].any()


def test_job_refuses_what_cannot_be(job, capsys, monkeypatch):
    for extra, said in (
        (("--layers", "5"), "There are no blocks 5 in this proxy"),
        (("--lengths", "some"), "does not name response lengths"),
        (("--device", "cuda:99"), "CUDA"),
        (("--view", "both"), "input view"),
    ):
        assert job(*extra) == 2, extra
        assert said in capsys.readouterr().err
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1_000_000_000))
    assert job("--layers", "1") == 2
    assert "are free" in capsys.readouterr().err


def start(arguments: list[str], cache: Path) -> subprocess.Popen[str]:
    place = {"ATLAS_CACHE": str(cache), "ATLAS_DATA": str(cache / "data")}
    environment = os.environ | place | {"ATLAS_COMPILE": "0", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "jobs", "extract", *arguments]
    return subprocess.Popen(
        command, cwd=REPOSITORY, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def alone(arguments: list[str], cache: Path, monkeypatch) -> None:
    """The same extraction in this process, with the one thread that processes of their own have."""
    monkeypatch.setenv("ATLAS_CACHE", str(cache))
    monkeypatch.setenv("ATLAS_DATA", str(cache / "data"))
    monkeypatch.setenv("ATLAS_COMPILE", "0")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        assert main(["extract", *arguments]) == 0
    finally:
        torch.set_num_threads(threads)


@pytest.mark.slow(10)
def test_two_extractions_at_once_do_not_disturb_each_other(tmp_path, monkeypatch):
    release, proxy = fake_release(tmp_path / "release", sources=6, prompts=10), save_tiny(tmp_path / "tiny")
    arguments = ["--release", str(release), "--proxy", str(proxy), "--view", "ur"]
    pair = [start(arguments, tmp_path / "both") for _ in range(2)]
    errors = [process.communicate(timeout=300)[1] for process in pair]
    codes = sorted(process.returncode for process in pair)
    assert codes[0] == 0, errors
    assert codes[1] == 0 or any("Another process" in error or "another process" in error for error in errors), errors
    alone(arguments, tmp_path / "alone", monkeypatch)
    key = StoreKey("agent500", "tiny", "ur")
    both, one = FingerprintStore(key, tmp_path / "both"), FingerprintStore(key, tmp_path / "alone")
    assert files(both.path) == files(one.path) != {}
    assert set(both.done()) == set(one.done())


@pytest.mark.slow(10)
@pytest.mark.proxy
def test_killed_extraction_continues_to_the_bytes_of_an_uninterrupted_one(tmp_path, monkeypatch, capsys):
    weights = installed(describe("smollm2-135m"))
    if weights is None:
        pytest.skip("the weights of smollm2-135m are missing: python -m jobs proxies install smollm2-135m")
    release = fake_release(tmp_path / "release", sources=6, prompts=10)
    arguments = ["--release", str(release), "--layers", "1,5,9"]
    key = StoreKey("agent500", "smollm2-135m", "ur")
    for name in ("killed", "whole"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "proxies").symlink_to(weights.parent)
    killed, whole = FingerprintStore(key, tmp_path / "killed"), FingerprintStore(key, tmp_path / "whole")
    process = start(arguments, tmp_path / "killed")
    limit = time.monotonic() + 300
    while not killed.done() and process.poll() is None and time.monotonic() < limit:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert 0 < len(killed.done()) < 6
    alone(arguments, tmp_path / "killed", monkeypatch)
    out = capsys.readouterr().out
    assert "of 60 records to read" in out
    assert "60 of 60" not in out
    alone(arguments, tmp_path / "whole", monkeypatch)
    assert files(killed.path) == files(whole.path)
    assert len(files(whole.path)) == 12
    lines = (killed.path / "shards.jsonl").read_text().splitlines()
    assert len(lines) == len(set(lines)) == 6, "no shard is repeated"
