"""Questions behind Compare, asked of an invented atlas and checked against its rows."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from backend.store import page_queries as store
from backend.store.database import open_work
from tests.invented_atlas import publish_invented
from tests.invented_comparisons import PROXIES, ROSTER, write_comparisons


@pytest.fixture(scope="module")
def cursor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[duckdb.DuckDBPyConnection]:
    folder = tmp_path_factory.mktemp("comparisons")
    publish_invented(folder)
    work = folder / "work" / "work.duckdb"
    write_comparisons(work)
    connection = open_work(work)
    yield connection
    connection.close()


def test_variance_is_that_of_the_block_that_is_read(cursor: duckdb.DuckDBPyConnection) -> None:
    frame = store.variance_ratios(cursor, ROSTER)
    assert list(dict.fromkeys(frame["origin"])) == ["measured", "published"]
    own = frame[frame["reader"] == "reader-paper/tiny/ur"].set_index("block")
    assert list(own.index) == ["ac", "dc", "dc-ac"] and set(own["layer"]) == {7} and set(own["n"]) == {2}
    assert own.at["ac", "ratio"] == pytest.approx(0.5) and own.at["ac", "std"] == pytest.approx(0.005)
    assert store.variance_ratios(cursor, "nowhere").empty


def test_capability_meets_accuracy(cursor: duckdb.DuckDBPyConnection) -> None:
    readers = [f"reader-paper/{proxy}/ur" for proxy in PROXIES]
    frame = store.capability(cursor, readers, ROSTER, 20)
    assert list(frame["score"]) == sorted(score for _, score in PROXIES.values())
    by_proxy = frame.set_index("proxy")["value"]
    assert by_proxy["mid"] - by_proxy["vast"] == pytest.approx(0.03)
    assert store.capability(cursor, readers[:1], ROSTER, 20)["proxy"].tolist() == ["vast"]
    assert list(store.correlations(cursor)["statistic"]) == ["pearson", "spearman"]


def test_costs(cursor: duckdb.DuckDBPyConnection) -> None:
    frame = store.costs(cursor, ROSTER)
    assert list(frame["origin"]) == ["measured"] * 8 + ["published"]
    assert list(dict.fromkeys(frame["reader"])) == ["reader-dc/tiny/ur", "reader-paper/tiny/ur", "reader-paper/vast/ur"]
    assert frame.set_index(["reader", "measure"]).at[("reader-paper/tiny/ur", "latency_ms"), "value"] == 12.0


def test_votes_count_readers_and_proxies(cursor: duckdb.DuckDBPyConnection) -> None:
    frame = store.neighbor_votes(cursor, "27-way", "agent500", "gpt_1", within=10).set_index("neighbor")
    assert len(frame) == 26 and set(frame["readers"]) == set(frame["proxies"]) == {3}
    rows = cursor.execute(
        "SELECT count(*) FROM neighbors WHERE roster = '27-way' AND domain = 'agent500' AND source = 'gpt_1' "
        "AND rank <= 10"
    ).fetchone()
    assert frame["near"].sum() == rows[0] == 30 and (frame["near_proxies"] == frame["near"]).all()
