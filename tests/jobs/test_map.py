"""The verb ``map`` from fingerprints on disk to rows in the work database, on an invented release."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from backend.corpus.release import Release
from backend.corpus.roster_rows import release_records, slice_of
from backend.fingerprints import StoreIdentity
from backend.geometry import maps as views
from backend.geometry import projections
from backend.geometry.maps import TextSpace
from backend.geometry.signatures import cross_domain, signatures
from backend.statistics import holm
from backend.store import queries
from backend.store.builds import recorded
from backend.store.database import check, open_work
from backend.store.writers import replace_rows, write_proxies, write_reader
from backend.traces import View
from jobs.__main__ import main
from tests.fake_release import fake_release

SOURCES, PROMPTS, D, LAYER = 24, 12, 4, 7
TABLES = (
    "neighbors",
    "projections",
    "projection_quality",
    "family_purity",
    "prompt_stability",
    "dendrogram",
    "density_regions",
    "clusters",
    "reader_agreement",
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A release of 24 sources (rosters of 8, 16 and 24) and an empty cache."""
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    for method, settings in views.TEXT_METHODS.items():
        monkeypatch.setitem(views.TEXT_METHODS, method, replace(settings, buckets=2**12, components=16))
    # UMAP compiles for half a minute; a test of its own does that once.
    monkeypatch.setattr(projections, "_umap", lambda cosine, dimensions, settings: projections._pca(cosine, dimensions))
    return fake_release(tmp_path / "release", sources=SOURCES, prompts=PROMPTS, math_prompts=6)


def fill(
    folder: Path,
    view: View = "r",
    benchmark: str = "agent500",
    leave_out: int = 0,
    proxy: str = "smollm2-135m",
    layer: int = LAYER,
    seed: int = 0,
) -> np.ndarray:
    """Put invented fingerprints of all sources into the store; relatives resemble each other."""
    release = Release(folder)
    rows = slice_of(release, benchmark, proxy, view, "165-way")  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    centres = {family: 4 * rng.normal(size=2 * D) for family in rows.families}
    own = np.stack([centres[family] for family in rows.families]) + rng.normal(size=(SOURCES, 2 * D))
    rng = np.random.default_rng(seed)
    array = np.repeat(own, rows.all_prompts, axis=0) + 0.5 * rng.normal(size=(SOURCES * rows.all_prompts, 2 * D))
    features = array.astype(np.float16)
    hashed = release_records(release, benchmark)
    identity = StoreIdentity(len(features), D, hashed, "weights", "invented", 1024, "offsets")
    with rows.store.writing(identity):
        for shard in rows.shards[: len(rows.shards) - leave_out]:
            rows.store.write_shard(shard.name, shard.rows, {(layer, "full"): features[shard.rows]})
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
        assert count("dendrogram") == n - 1
        assert count("clusters") == 6 * n
        outlined = set(connection.execute(f"SELECT DISTINCT method, mass FROM density_regions {where}", key).fetchall())
        assert outlined == ({(m, x) for m in ("tsne", "umap", "pca") for x in (0.5, 0.8)} if n == 24 else set())
        panels = connection.execute(f"SELECT fold, metric, value FROM prompt_stability {where}", key).fetchall()
        metrics = {"spearman", "jaccard_10"} | ({"purity_5"} if n == 24 else set())
        assert {(fold, metric) for fold, metric, _ in panels} == {(f, m) for f in range(5) for m in metrics}
        assert min(value for _, metric, value in panels if metric == "spearman") > 0.5
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
                [connection.execute(f"SELECT * EXCLUDE build_id FROM {table} ORDER BY ALL").df() for table in TABLES]
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
        assert connection.execute("SELECT count(*) FROM prompt_stability").fetchone() == (0,)
        assert connection.execute("SELECT count(*) FROM family_purity").fetchone() == (0,)
    assert run(folder, work, "--roster", "50-way", "--layer", str(LAYER), "--sweep") == 0
    with duckdb.connect(work, read_only=True) as connection:
        tried = connection.execute(
            "SELECT DISTINCT (settings::JSON)->>'seed', (settings::JSON)->>'perplexity' FROM projection_quality "
            "WHERE method = 'tsne-sweep'"
        ).fetchall()
        assert {seed for seed, _ in tried} == {"0", "1", "2", "3", "4"}
        # A run of the sweep is not the map that people see.
        shown = queries.projection_quality(connection, "reader-paper/smollm2-135m/r", "50-way", "agent500")
        assert set(shown["method"]) == {"tsne", "umap", "pca"}


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


def stored(work: Path, sql: str, *parameters: object) -> pd.DataFrame:
    with duckdb.connect(work, read_only=True) as connection:
        return connection.execute(sql, parameters).df()


def test_two_domains_in_one_call(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = fill(folder), fill(folder, benchmark="math100", seed=1)
    work = tmp_path / "work.duckdb"
    both = ("--benchmark", "agent500,math100", "--layer", str(LAYER))
    assert run(folder, work, "--roster", "165-way", *both) == 0
    found = stored(work, "SELECT * FROM cross_domain WHERE query_domain = 'agent500' AND gallery_domain = 'math100'")
    assert len(found) == 2 * (3 * SOURCES + 9)
    query, gallery = (
        signatures(array.astype(np.float64).reshape(SOURCES, -1, 2 * D).mean(axis=1)) for array in (first, second)
    )
    members = Release(folder).roster("165-way")
    expected = cross_domain(query, gallery, members["label"].tolist(), members["plot_family"].tolist())
    keys = ["variant", "source", "metric"]
    mine, told = (frame.fillna({"source": "", "best_other": ""}).set_index(keys) for frame in (found, expected))
    mine = mine.loc[told.index]
    np.testing.assert_allclose(mine["value"], told["value"], atol=1e-12)
    assert mine["best_other"].tolist() == told["best_other"].tolist()
    joint = stored(work, "SELECT variant, method, dimensions, domain, count(*) n FROM joint_projections GROUP BY ALL")
    assert len(joint) == 2 * 2 * 2 * 2
    assert set(joint["n"]) == {SOURCES}
    printed = capsys.readouterr().out
    assert "agent500 signatures among those of math100" in printed
    assert "centred: Top-1" in printed


def test_readers_are_compared_with_each_other(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(folder)
    fill(folder, proxy="minilm-l6", layer=6, seed=2)
    work = tmp_path / "work.duckdb"
    assert run(folder, work, "--roster", "165-way", "--layer", str(LAYER)) == 0
    alone = stored(work, "SELECT k, p_value, p_holm FROM family_purity ORDER BY k")
    assert alone["p_holm"].notna().tolist() == [True, False, True, False]
    assert stored(work, "SELECT * FROM reader_agreement").empty
    assert run(folder, work, "--roster", "165-way", "--method", "dna,ngram-word") == 0
    readers = ["dna/minilm-l6/r", "ngram-word", "reader-paper/smollm2-135m/r"]
    agreement = stored(work, "SELECT * FROM reader_agreement ORDER BY reader, other, metric")
    assert agreement[["reader", "other"]].drop_duplicates().to_numpy().tolist() == [
        [readers[0], readers[1]],
        [readers[0], readers[2]],
        [readers[1], readers[2]],
    ]
    purity = stored(work, "SELECT reader, k, p_value, p_holm, build_id FROM family_purity ORDER BY reader, k")
    tested = purity[purity["k"].isin([1, 5])]
    assert len(tested) == 6
    np.testing.assert_allclose(tested["p_holm"], holm(tested["p_value"].to_numpy()))
    # A purity stays with the build of its map.
    assert purity["build_id"].str.startswith("map-").all()
    assert purity["build_id"].nunique() == 3
    # Agreement is that of the cosines that were stored.
    near = stored(work, "SELECT * FROM neighbors")
    wide = near.assign(pair=near["source"] + near["neighbor"]).pivot(index="pair", columns="reader", values="cosine")
    spearman = agreement[agreement["metric"] == "spearman"]["value"].tolist()
    assert spearman == pytest.approx(
        [
            spearmanr(wide[a], wide[b]).statistic
            for a, b in ((readers[0], readers[1]), (readers[0], readers[2]), (readers[1], readers[2]))
        ],
        abs=1e-9,
    )
    members = Release(folder).roster("165-way")["label"].tolist()
    capsys.readouterr()
    pair = f"{members[0]},{members[1]}"
    # A map without clusters, as published ones are, gets its own; those of the others stay with their build.
    held = "SELECT * EXCLUDE build_id FROM clusters ORDER BY ALL"
    made = stored(work, held)
    with duckdb.connect(work) as connection:
        connection.execute("DELETE FROM clusters WHERE reader = ?", [readers[1]])
    assert run(folder, work, "--roster", "165-way", "--compare", "--pair", pair) == 0
    assert f"{members[0]} / {members[1]} over reader-r: 1/1 within ten" in capsys.readouterr().out
    (details,) = stored(work, "SELECT details FROM builds WHERE stage = 'compare' ORDER BY started_at DESC LIMIT 1")[
        "details"
    ]
    told = json.loads(details)
    assert told["readers"] == readers
    assert told["clustered"] == [readers[1]]
    pd.testing.assert_frame_equal(stored(work, held), made)
    builds = stored(work, "SELECT DISTINCT reader, split_part(build_id, '-', 1) AS stage FROM clusters ORDER BY reader")
    assert builds.to_numpy().tolist() == [[readers[0], "map"], [readers[1], "compare"], [readers[2], "map"]]
    assert told["hypotheses"] == 6
    ranks = {row["reader"]: row["mutual_rank"] for row in told["candidates"]["ranks"]}
    for reader, rank in ranks.items():
        mine = near[near["reader"] == reader].set_index(["source", "neighbor"])["rank"]
        assert rank == max(mine[members[0], members[1]], mine[members[1], members[0]])


def test_dna_and_n_grams_see_what_they_should(folder: Path, tmp_path: Path) -> None:
    features = fill(folder, proxy="minilm-l6", layer=6)
    work = tmp_path / "work.duckdb"
    assert run(folder, work, "--roster", "165-way", "--method", "dna,ngram-word,ngram-char") == 0
    kept = stored(work, "SELECT reader, layer, source, vector FROM signatures").set_index(["reader", "source"])
    members = Release(folder).roster("165-way")["label"].tolist()
    grid = features.astype(np.float64).reshape(SOURCES, PROMPTS, 2 * D)[:, :, :D]
    for number, label in enumerate(members):
        rows = [row / np.linalg.norm(row) for row in grid[number]]
        mean = np.mean(rows, axis=0)
        np.testing.assert_allclose(
            kept.loc[("dna/minilm-l6/r", label), "vector"], mean / np.linalg.norm(mean), atol=1e-5
        )
    texts = [trace.response for trace in Release(folder).records("agent500").traces]
    fitted = (
        TextSpace(texts, views.TEXT_METHODS["ngram-word"])
        .fitted.astype(np.float64)
        .reshape(SOURCES, PROMPTS, -1)
        .mean(axis=1)
    )
    for number, label in enumerate(members):
        expected = fitted[number] / np.linalg.norm(fitted[number])
        np.testing.assert_allclose(kept.loc[("ngram-word", label), "vector"], expected, atol=1e-5)
    assert set(kept["layer"]) == {0, 6}
    assert stored(work, "SELECT DISTINCT reader FROM family_purity WHERE k = 1 AND purity > 0.5").shape[0] == 3


def test_labels_of_all_sources_may_be_permuted(folder: Path, tmp_path: Path) -> None:
    fill(folder)
    work = tmp_path / "work.duckdb"
    for shuffle in ("eligible", "all"):
        assert run(folder, work, "--roster", "165-way", "--layer", str(LAYER), "--shuffle", shuffle) == 0
    builds = stored(work, "SELECT details FROM builds WHERE stage = 'map' ORDER BY started_at")["details"]
    assert [json.loads(text)["purity"]["shuffle"] for text in builds] == ["eligible", "all"]


def test_what_cannot_be_compared_is_said(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    work = tmp_path / "work.duckdb"

    def complaint(*more: str) -> str:
        assert run(folder, work, *more) == 2
        return capsys.readouterr().err

    assert "There is no map of agent500 on 100-way" in complaint("--roster", "100-way", "--compare")
    fill(folder)
    assert run(folder, work, "--roster", "100-way", "--layer", str(LAYER)) == 0
    label = Release(folder).roster("100-way")["label"][0]
    assert "100-way has no source 'nobody'" in complaint(
        "--roster", "100-way", "--compare", "--pair", f"{label},nobody"
    )
    assert "compared with itself" in complaint("--roster", "100-way", "--compare", "--pair", f"{label},{label}")
    assert "does not name two sources" in complaint("--compare", "--pair", "one")
    assert "makes no map" in complaint("--method", "llmmap")
    assert "--proxy minilm-l6 --view r --layers 6" in complaint("--roster", "100-way", "--method", "dna")
