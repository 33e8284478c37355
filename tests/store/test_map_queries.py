"""What a map shows beside its points, asked of a published generation and counted again by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pandas as pd
import pytest

from backend.geometry.projections import density_clusters
from backend.store import page_queries, queries
from tests.invented_atlas import publish_invented

SEES = "reader-paper/tiny/r"
Cursor = duckdb.DuckDBPyConnection


@pytest.fixture(scope="module")
def cursor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cursor]:
    file: Path = publish_invented(tmp_path_factory.mktemp("published"))
    connection = duckdb.connect(str(file), read_only=True)
    yield connection
    connection.close()


def test_a_joint_map_holds_every_source_once_a_domain(cursor: Cursor) -> None:
    frame = page_queries.joint_projection(cursor, SEES, "12-way", "centred", "tsne", 3)
    assert frame.groupby("domain")["source"].nunique().to_dict() == {"agent500": 12, "math100": 12}
    roster = list(queries.sources(cursor, "12-way")["source"])
    assert list(frame.loc[frame["domain"] == "math100", "source"]) == roster
    assert frame[["x", "y", "z"]].notna().all().all()
    assert page_queries.joint_projection(cursor, SEES, "12-way", "raw", "tsne", 2)["z"].isna().all()
    assert page_queries.joint_projection(cursor, SEES, "12-way", "raw", "pca", 2).empty


def test_the_median_rank_across_domains_is_over_sources(cursor: Cursor) -> None:
    frame = page_queries.domain_ranks(cursor, SEES, "12-way")
    own = pd.concat(
        queries.cross_domain(cursor, SEES, "12-way", source) for source in queries.sources(cursor, "12-way")["source"]
    )
    ranks = own[own["metric"] == "rank"].groupby(["variant", "query_domain"])["value"].median()
    assert len(ranks) and frame.set_index(["variant", "query_domain"])["median"].to_dict() == ranks.to_dict()


def test_a_sweep_is_told_by_perplexity(cursor: Cursor) -> None:
    frame = page_queries.projection_sweep(cursor, SEES, "12-way", "agent500")
    assert list(frame["perplexity"]) == [10.0] * 6 + [50.0] * 6 and set(frame["method"]) == {"tsne-sweep"}
    shown = queries.projection_quality(cursor, SEES, "12-way", "agent500")
    assert set(shown["method"]) == {"tsne", "umap", "pca"}


def test_outlines_come_as_lists(cursor: Cursor) -> None:
    frame = page_queries.density_regions(cursor, SEES, "12-way", "agent500", "tsne")
    assert list(frame["family"]) == ["Qwen"] and list(frame["x"].iloc[0]) == [-9.0, 9.0, 9.0, -9.0, -9.0]
    assert page_queries.density_regions(cursor, SEES, "12-way", "agent500", "tsne", 0.8).empty


def test_clusters_name_the_sources_that_are_in_one(cursor: Cursor) -> None:
    points = queries.projection(cursor, SEES, "27-way", "agent500", "tsne", 2)
    held = page_queries.clusters(cursor, SEES, "27-way", "agent500", "tsne", 2)
    wanted, _ = density_clusters(points[["x", "y"]].to_numpy())
    assert dict(zip(held["source"], held["cluster"], strict=True)) == {
        source: number for source, number in zip(points["source"], wanted, strict=True) if number >= 0
    }
    assert len(held)
    assert page_queries.clusters(cursor, SEES, "27-way", "agent500", "none", 2).empty


def test_votes_count_readers_that_have_a_source_near(cursor: Cursor) -> None:
    readers = [SEES, "reader-paper/mid/r", "reader-paper/wide/r"]
    votes = page_queries.neighbor_votes(cursor, "27-way", "agent500", "gpt_1", 5, readers).set_index("neighbor")
    assert len(votes) == 26 and set(votes["readers"]) == {3} and votes["near"].sum() == 15
    for neighbor in ("gpt_2", "qwen_1"):
        ranks = [queries.neighbors(cursor, reader, "27-way", "agent500", "gpt_1") for reader in readers]
        near = sum(int(frame.set_index("neighbor").at[neighbor, "rank"]) <= 5 for frame in ranks)
        assert votes.at[neighbor, "near"] == near
    assert page_queries.neighbor_votes(cursor, "27-way", "agent500", "gpt_1", readers=[]).empty
