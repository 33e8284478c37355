"""Questions about pairs of models, asked of invented relationships."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from backend.store import page_queries as store
from backend.store.database import open_work
from tests.invented_atlas import MARKUP
from tests.invented_relationships import invented_pairs, write_relationships


@pytest.fixture(scope="module")
def cursor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    work = tmp_path_factory.mktemp("relationships") / "work.duckdb"
    write_relationships(work)
    connection = open_work(work)
    yield connection
    connection.close()


@pytest.fixture
def nothing(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    connection = open_work(tmp_path / "work.duckdb")
    yield connection
    connection.close()


def test_readers_come_measured_first_with_the_pairs_that_they_scored(cursor: duckdb.DuckDBPyConnection) -> None:
    frame = store.relationship_readers(cursor).set_index("reader")
    assert list(frame.index) == ["reader-paper/tiny/ur", "mpt", "reader-paper/vast/ur", "published-mpt"]
    assert list(frame["origin"]) == ["measured", "measured", "published", "published"]
    assert frame.at["mpt", "pairs"] == len(invented_pairs("a", 8)) + len(invented_pairs("b", 20))
    assert frame.at["reader-paper/vast/ur", "pairs"] == len(invented_pairs("a", 8))
    assert frame.at["published-mpt", "pairs"] == 0
    assert frame.at["reader-paper/vast/ur", "proxy_name"] == "Vast-70B"


def test_summaries_are_those_of_one_protocol_without_single_splits(cursor: duckdb.DuckDBPyConnection) -> None:
    frame = store.relationship_summaries(cursor, "model")
    assert set(frame["reader"]) == {"mpt", "reader-paper/tiny/ur"}
    assert not frame.duplicated(["reader", "readout", "metric"]).any()
    joint = frame[(frame["readout"] == "dc-ac") & (frame["metric"] == "auc")].iloc[0]
    assert (joint["value"], joint["low"], joint["high"]) == pytest.approx((0.76, 0.72, 0.80))
    published = store.relationship_summaries(cursor, "pair").query("reader == 'published-mpt'")
    assert len(published) == 5 and published["low"].isna().all() and (published["std"] == 0.05).all()


def test_models_stand_under_their_parents(cursor: duckdb.DuckDBPyConnection) -> None:
    frame = store.relationship_models(cursor)
    assert len(frame) == 10 and MARKUP in set(frame["model"])
    firsts = frame.groupby("parent_family", sort=False).first()
    assert firsts["is_parent"].all() and list(firsts.index) == list(firsts["model"])
    assert frame["empty_responses"].sum() == 1200


def test_pairs_know_the_families_of_both_models(cursor: duckdb.DuckDBPyConnection) -> None:
    frame = store.relationship_pairs(cursor)
    assert frame.groupby("pair_set")["related"].agg(["size", "sum"]).to_dict("index") == {
        "disjoint_union": {"size": 28, "sum": 8},
        "pair_disjoint": {"size": 16, "sum": 8},
    }
    assert ((frame["parent_a"] == frame["parent_b"]) == frame["related"]).all()


def test_scores_are_one_row_a_reader_and_pair(cursor: duckdb.DuckDBPyConnection) -> None:
    frame = store.relationship_scores(cursor, "pair_disjoint")
    assert list(frame.columns[:2]) == ["reader", "pair_id"]
    assert set(frame.columns[2:]) == {name.replace("-", "_") for name in store.SCORES}
    assert frame.groupby("reader").size().to_dict() == dict.fromkeys(
        ["mpt", "reader-paper/tiny/ur", "reader-paper/vast/ur"], 16
    )
    own = frame[frame["reader"] == "reader-paper/vast/ur"]
    assert own["dc"].notna().all() and own["match"].isna().all() and own["decision"].isna().all()
    strict = store.relationship_scores(cursor, "disjoint_union", "mpt")
    assert len(strict) == 28 and strict["decision_family"].notna().all() and strict["decision"].isna().all()


def test_tests_name_reader_and_readout_of_both_sides(cursor: duckdb.DuckDBPyConnection) -> None:
    frame = store.relationship_tests(cursor, "family")
    assert set(frame["hypotheses"]) == {
        f"{prefix}relationships/{name}/family" for prefix in ("", "published/") for name in ("components", "baselines")
    }
    sides = set(
        zip(frame["subject"], frame["subject_readout"], frame["reference"], frame["reference_readout"], strict=True)
    )
    assert ("reader-paper/tiny/ur", "dc-ac", "mpt", "match") in sides
    assert ("reader-paper/vast/ur", "dc-ac", "reader-paper/vast/ur", "ac") in sides
    origins = frame.groupby("subject")["origin"].unique().map(list).to_dict()
    assert origins == {"reader-paper/tiny/ur": ["measured"], "reader-paper/vast/ur": ["published"]}
    assert store.relationship_tests(cursor, "pair").empty


def test_an_atlas_without_relationships_answers_with_columns(nothing: duckdb.DuckDBPyConnection) -> None:
    for frame in (
        store.relationship_readers(nothing),
        store.relationship_summaries(nothing, "pair"),
        store.relationship_models(nothing),
        store.relationship_pairs(nothing),
        store.relationship_scores(nothing, "pair_disjoint"),
        store.relationship_tests(nothing, "family"),
        store.measured_splits(nothing),
    ):
        assert frame.empty and len(frame.columns) > 3
