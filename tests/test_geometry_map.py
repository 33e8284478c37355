"""The verb ``map`` from fingerprints on disk to rows in the work database, on an invented release."""

from __future__ import annotations

import json
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
from fake_release import fake_release

from backend.fingerprints import StoreIdentity
from backend.geometry import projections
from backend.geometry.signatures import signatures
from backend.release import Release
from backend.store import queries
from backend.store.builds import recorded
from backend.store.database import check, open_work
from backend.store.writers import replace_rows, write_proxies, write_reader
from backend.traces import View
from jobs import _common
from jobs.__main__ import main

SOURCES, PROMPTS, D, LAYER = 24, 12, 4, 7


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A release of 24 sources (rosters of 8, 16 and 24) and an empty cache."""
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    # UMAP compiles for half a minute; a test of its own does that once.
    monkeypatch.setattr(projections, "_umap", lambda cosine, dimensions, settings: projections._pca(cosine, dimensions))
    return fake_release(tmp_path / "release", sources=SOURCES, prompts=PROMPTS, math_prompts=6)


def fill(folder: Path, view: View = "r", benchmark: str = "agent500", leave_out: int = 0) -> np.ndarray:
    """Put invented fingerprints of all sources into the store; relatives resemble each other."""
    release = Release(folder)
    rows = _common.slice_of(release, benchmark, "smollm2-135m", view, "165-way")  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    centres = {family: 4 * rng.normal(size=2 * D) for family in rows.families}
    own = np.stack([centres[family] for family in rows.families]) + rng.normal(size=(SOURCES, 2 * D))
    array = np.repeat(own, rows.all_prompts, axis=0) + 0.5 * rng.normal(size=(SOURCES * rows.all_prompts, 2 * D))
    features = array.astype(np.float16)
    identity = StoreIdentity(len(features), D, "records", "weights", "invented", 1024, "offsets")
    with rows.store.writing(identity):
        for shard in rows.shards[: len(rows.shards) - leave_out]:
            rows.store.write_shard(shard.name, shard.rows, {(LAYER, "full"): features[shard.rows]})
    return features


def select(work: Path, view: str, roster: str, layer: int) -> None:
    """Record a modal block, as evaluate does."""
    connection = open_work(work)
    write_proxies(connection, pd.DataFrame([{"proxy": "smollm2-135m", "name": "p"}]))
    reader = write_reader(connection, method="reader-paper", name="r", proxy="smollm2-135m", view=view)
    chosen = pd.DataFrame({"outer_fold": pd.array([0, None], dtype="Int64"), "layer": [3, layer]})
    with recorded(connection, stage="evaluate", command="invented") as build:
        replace_rows(connection, "layer_selection", chosen, {"reader": reader, "roster": roster}, build)
    connection.close()


def run(folder: Path, work: Path, *more: str) -> int:
    return main(["map", "--release", str(folder), "--work", str(work), *more])


def test_everything_is_written_and_recorded(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    features = fill(folder)
    work = tmp_path / "work.duckdb"
    assert run(folder, work, "--roster", "165-way,100-way", "--layer", str(LAYER)) == 0
    connection = duckdb.connect(work, read_only=True)
    check(connection)
    for roster, n in (("165-way", 24), ("100-way", 16)):
        key = ("reader-paper/smollm2-135m/r", roster, "agent500")
        where = "WHERE reader = ? AND roster = ? AND domain = ?"

        def count(table: str, where: str = where, key: tuple[str, ...] = key) -> int:
            row = connection.execute(f"SELECT count(*) FROM {table} {where}", key).fetchone()
            assert row is not None
            return int(row[0])

        assert count("signatures") == n
        assert count("neighbors") == n * (n - 1)
        assert count("projections") == 6 * n
        assert count("projection_quality") == 6 * 3
        members = Release(folder).roster(roster)
        stored = dict(connection.execute(f"SELECT source, vector FROM signatures {where}", key).fetchall())
        means = features.astype(np.float64).reshape(SOURCES, PROMPTS, -1).mean(axis=1)
        for position, label in enumerate(members["label"]):
            np.testing.assert_allclose(stored[label], signatures(means)[position], rtol=1e-5, atol=1e-6)
        drawn = queries.projection(connection, *key, method="tsne", dimensions=3)
        assert drawn["source"].tolist() == members["label"].tolist()
        assert drawn[["x", "y", "z"]].abs().to_numpy().max() <= 1.0 + 1e-9
    purity = queries.family_purity(connection, "165-way", "agent500")
    assert purity["k"].tolist() == [1, 3, 5, 10]
    assert purity["purity"][0] > 0.9
    assert (purity["sources"].tolist(), purity["families"].tolist()) == ([12] * 4, [2] * 4)
    builds = connection.execute(
        "SELECT seed, data_hash, proxy_hash, details FROM builds WHERE stage = 'map'"
    ).fetchall()
    assert len(builds) == 2
    for seed, data_hash, proxy_hash, text in builds:
        details = json.loads(text)
        assert (seed, data_hash, proxy_hash) == (42, Release(folder).manifest_hash, "weights")
        assert (details["layer"], details["layer_from"], details["prompts"]) == (LAYER, "asked", PROMPTS)
        assert len(details["prompt_stability"]) == 5
        assert details["prompt_stability"][0]["spearman"] > 0.5
        assert details["projections"]["perplexity"] == 15.0
        assert set(details["seconds"]) >= {"signatures", "purity", "projections"}
    printed = capsys.readouterr().out
    assert "purity@1" in printed
    assert "seconds: signatures" in printed
    connection.close()


def test_again_gives_the_same_rows_once(folder: Path, tmp_path: Path) -> None:
    fill(folder)
    work = tmp_path / "work.duckdb"
    frames = []
    for _ in range(2):
        assert run(folder, work, "--roster", "100-way", "--layer", str(LAYER)) == 0
        with duckdb.connect(work, read_only=True) as connection:
            frames.append(
                [
                    connection.execute(f"SELECT * EXCLUDE build_id FROM {table} ORDER BY ALL").df()
                    for table in ("neighbors", "projections", "projection_quality", "family_purity")
                ]
            )
    for first, second in zip(*frames, strict=True):
        pd.testing.assert_frame_equal(first, second)


def test_modal_block_and_where_it_comes_from(folder: Path, tmp_path: Path) -> None:
    fill(folder)
    work = tmp_path / "work.duckdb"
    select(work, "ur", "100-way", LAYER)
    assert run(folder, work, "--roster", "100-way") == 0
    with duckdb.connect(work, read_only=True) as connection:
        assert connection.execute("SELECT DISTINCT layer, reader FROM signatures").fetchall() == [
            (LAYER, "reader-paper/smollm2-135m/r")
        ]
        row = connection.execute("SELECT details FROM builds WHERE stage = 'map'").fetchone()
    assert row is not None
    assert json.loads(row[0])["layer_from"] == "reader-paper/smollm2-135m/ur"
    # Its own selection goes before that of ur: this one asks for a block that is not on disk.
    select(work, "r", "100-way", 9)
    assert run(folder, work, "--roster", "100-way") == 2


def test_few_prompts_small_rosters_and_the_sweep(folder: Path, tmp_path: Path) -> None:
    fill(folder)
    work = tmp_path / "work.duckdb"
    assert run(folder, work, "--roster", "50-way", "--layer", str(LAYER), "--limit", "3") == 0
    with duckdb.connect(work, read_only=True) as connection:
        row = connection.execute("SELECT details FROM builds WHERE stage = 'map'").fetchone()
        assert row is not None
        assert json.loads(row[0])["prompt_stability"] == []
        assert connection.execute("SELECT count(*) FROM family_purity").fetchone() == (0,)
    assert run(folder, work, "--roster", "50-way", "--layer", str(LAYER), "--sweep") == 0
    with duckdb.connect(work, read_only=True) as connection:
        tried = connection.execute(
            "SELECT DISTINCT (settings::JSON)->>'seed', (settings::JSON)->>'perplexity' FROM projection_quality "
            "WHERE method = 'tsne-sweep'"
        ).fetchall()
        assert {seed for seed, _ in tried} == {"0", "1", "2", "3", "4"}


def test_what_is_missing_is_said_with_the_command(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = tmp_path / "work.duckdb"

    def complaint(*more: str) -> str:
        assert run(folder, work, *more) == 2
        return capsys.readouterr().err

    assert "python -m jobs evaluate --proxy smollm2-135m --roster 100-way" in complaint("--roster", "100-way")
    said = complaint("--roster", "100-way", "--layer", "7", "--limit", "8")
    assert "extract --benchmark agent500 --roster 100-way --proxy smollm2-135m --view r --layers 7 --limit 8" in said
    fill(folder, leave_out=1)
    assert "not complete for 165-way" in complaint("--roster", "165-way", "--layer", "7")
    assert run(folder, work, "--roster", "100-way", "--layer", "7") == 0
    # The second map is missing, so the first is not made either.
    capsys.readouterr()
    assert "math100" in complaint("--roster", "100-way", "--benchmark", "agent500,math100", "--layer", "7")
    assert "neither 'modal' nor a block number" in complaint("--layer", "deep")
    assert "Choose from agent500, math100" in complaint("--benchmark", "agent5000")
    assert "leaves no prompt" in complaint("--layer", "7", "--limit", "0")
