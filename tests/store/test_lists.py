"""Tables of lists: their views give back every row that was packed, also those that an older file held as rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.store import queries
from backend.store.database import (
    PACKED,
    check,
    default_data_folder,
    key_table,
    migrate,
    migrations,
    open_work,
    publish,
    read_pointer,
    storage,
    view_of,
)
from backend.store.result_queries import table_rows, table_sizes
from backend.store.writers import columns_of, replace_rows

LISTED = 9
"""The migration that makes lists."""
KEY = {"reader": "m/p/ur", "roster": "3-way", "benchmark": "agent500", "condition": "clean"}
NEAR = {"reader": "m/p/ur", "roster": "3-way", "domain": "agent500"}

labels = st.text(max_size=4) | st.sampled_from(["a", "b|c", "0 1", "\0", "-1", "ä"])
millionths = st.integers(-1_000_000, 1_000_000).map(lambda n: n / 1e6)
budgets = st.sampled_from([1, 5, 100])


@pytest.fixture
def work(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_work(tmp_path / "work.duckdb") as connection:
        yield connection


def rows_of(connection: duckdb.DuckDBPyConnection, table: str) -> list[tuple[object, ...]]:
    columns = ", ".join(name for name in columns_of(connection, table) if name != "build_id")
    return connection.execute(f"SELECT {columns} FROM {table} ORDER BY ALL").fetchall()


def differing(connection: duckdb.DuckDBPyConnection, one: str, other: str) -> int:
    """Rows that one relation has and the other has not, either way."""
    sql = f"SELECT count(*) FROM ((FROM {one} EXCEPT ALL FROM {other}) UNION ALL (FROM {other} EXCEPT ALL FROM {one}))"
    ((count,),) = connection.execute(sql).fetchall()
    return int(count)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.tuples(budgets, labels, labels), st.integers(1, 2**31 - 1), min_size=1, max_size=20))
def test_confusion_comes_back(work: duckdb.DuckDBPyConnection, cells: dict[tuple[int, str, str], int]) -> None:
    frame = pd.DataFrame([(*key, n) for key, n in cells.items()], columns=["k", "truth", "predicted", "count"])
    assert replace_rows(work, "confusion", frame, KEY, "b") == len(cells)
    assert rows_of(work, "confusion") == sorted((*KEY.values(), *key, n) for key, n in cells.items())


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.tuples(budgets, labels),
        st.tuples(st.integers(0, 600), st.integers(1, 200), st.none() | labels, st.integers(0, 9), st.floats(0, 1)),
        min_size=1,
        max_size=20,
    ),
    st.booleans(),
)
def test_accuracies_come_back_to_the_last_bit(
    work: duckdb.DuckDBPyConnection, sources: dict[tuple[int, str], tuple], ratios: bool
) -> None:
    """Hits among three groupings are packed as numbers, any other accuracy as it is."""
    rows = [
        (k, source, min(hits / (3 * n), 1.0) if ratios else value, n, wrong, count)
        for (k, source), (hits, n, wrong, count, value) in sources.items()
    ]
    frame = pd.DataFrame(rows, columns=["k", "source", "accuracy", "n", "confused_with", "confused_count"])
    frame["confused_with"] = frame["confused_with"].astype(object)
    assert replace_rows(work, "source_accuracy", frame, KEY, "b") == len(rows)
    assert sorted(rows_of(work, "source_accuracy"), key=repr) == sorted(
        ((*KEY.values(), *row) for row in rows), key=repr
    )


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.dictionaries(
        st.tuples(labels, labels), st.tuples(st.integers(1, 400), millionths, millionths), min_size=1, max_size=20
    )
)
def test_neighbours_come_back_whether_or_not_both_directions_are_there(
    work: duckdb.DuckDBPyConnection, pairs: dict[tuple[str, str], tuple[int, float, float]]
) -> None:
    rows = [(*pair, *values) for pair, values in pairs.items()]
    frame = pd.DataFrame(rows, columns=["source", "neighbor", "rank", "cosine", "percentile"])
    assert replace_rows(work, "neighbors", frame, NEAR, "b") == len(rows)
    assert rows_of(work, "neighbors") == sorted((*NEAR.values(), *row) for row in rows)


def test_pairs_hold_both_ranks(work: duckdb.DuckDBPyConnection) -> None:
    frame = pd.DataFrame(
        [("b", "a", 1, 0.5, 0.2), ("a", "b", 2, 0.5, 0.2), ("a", "c", 1, 0.9, 0.7)],
        columns=["source", "neighbor", "rank", "cosine", "percentile"],
    )
    replace_rows(work, "neighbors", frame, NEAR, "b")
    pairs = work.execute("SELECT source, neighbor, rank, back FROM ranked_pairs() ORDER BY ALL").fetchall()
    assert pairs == [("a", "b", 2, 1), ("a", "c", 1, None), ("b", "a", 1, 2)]


def test_what_lies_inside_a_list_is_no_key(work: duckdb.DuckDBPyConnection) -> None:
    frame = pd.DataFrame({"truth": ["a"], "predicted": ["b"], "count": [1]})
    with pytest.raises(ValueError, match=r"'confusion' are replaced by whole lists"):
        replace_rows(work, "confusion", frame, {**KEY, "k": 1, "truth": "a"}, "b")
    assert key_table("confusion", {**KEY, "k": 1}) == "confusion_lists"
    assert key_table("confusion", {"truth": "a"}) == "confusion"
    assert view_of("confusion_lists") == "confusion" and view_of("price_lists") == "price_lists"


def test_numbers_outlive_their_sources(work: duckdb.DuckDBPyConnection) -> None:
    """A label keeps its number, so what was packed before a source went says the same afterwards."""
    frame = pd.DataFrame({"truth": ["b", "a"], "predicted": ["b", "a"], "count": [1, 2]})
    replace_rows(work, "confusion", frame, {**KEY, "k": 1}, "x")
    replace_rows(work, "confusion", frame.iloc[:0], {**KEY, "k": 1}, "x")
    replace_rows(work, "confusion", frame.iloc[1:], {**KEY, "k": 5}, "x")
    assert work.execute("SELECT number, label FROM labels ORDER BY number").fetchall() == [(0, "b"), (1, "a")]
    assert rows_of(work, "confusion") == [(*KEY.values(), 5, "a", "a", 2)]


def test_tables_are_offered_by_their_views(work: duckdb.DuckDBPyConnection) -> None:
    frame = pd.DataFrame({"truth": ["a", "a"], "predicted": ["a", "b"], "count": [1, 2]})
    replace_rows(work, "confusion", frame, {**KEY, "k": 1}, "b")
    sizes = table_sizes(work).set_index("table_name")
    assert set(sizes.index) == {"confusion", "schema_version"}
    assert sizes.loc["confusion"].tolist() == [2, 9]
    (head,), rows = table_rows(work, "confusion")
    assert head == ("reader", "roster", "benchmark", "condition", "k", "truth", "predicted", "count", "build_id")
    assert len(rows) == 2


@pytest.mark.slow
def test_the_shipped_rows_survive_the_migration(tmp_path: Path) -> None:
    """Rows and answers are the same in a file that is brought up to date from the schema before lists."""
    path = tmp_path / "old.duckdb"
    with duckdb.connect(path) as connection:
        migrate(connection, migrations()[: LISTED - 1])
        connection.execute(f"ATTACH '{read_pointer(default_data_folder())[1]}' AS shipped (READ_ONLY)")
        for table in ("builds", "families", "sources", "roster_members", "proxies", "readers"):
            connection.execute(f"INSERT INTO {table} BY NAME FROM shipped.{table}")
        few = "(reader LIKE '%smollm2-135m/ur' OR reader LIKE 'published%' OR reader NOT LIKE '%/%')"
        few += " AND roster = '165-way'"
        for table in PACKED:
            connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM shipped.{table} WHERE {few}")
            connection.execute(f"CREATE TEMP TABLE before_{table} AS FROM {table}")
        connection.execute("DETACH shipped")
        counts = {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone() for table in PACKED}
        assert min(count for (count,) in counts.values()) > 10_000
        migrate(connection)
        for table in PACKED:
            assert connection.execute(f"SELECT sum(cells) FROM {storage(table)}").fetchone() == counts[table]
            assert differing(connection, table, f"before_{table}") == 0, table
        check(connection)
        reader, roster = "reader-paper/smollm2-135m/ur", "165-way"
        old = connection.execute(
            "SELECT truth, predicted, count FROM before_confusion WHERE reader = ? AND roster = ? AND k = 5 "
            "AND benchmark = 'agent500' AND condition = 'clean' ORDER BY ALL",
            [reader, roster],
        ).fetchall()
        new = queries.confusion(connection, reader, roster, 5)[["truth", "predicted", "count"]]
        assert sorted(new.itertuples(index=False, name=None)) == old
        old = connection.execute(
            "SELECT a.source, a.neighbor, a.rank, b.rank, a.cosine, a.percentile FROM before_neighbors a "
            "JOIN before_neighbors b ON b.source = a.neighbor AND b.neighbor = a.source "
            "AND (a.reader, a.roster, a.domain) = (b.reader, b.roster, b.domain) "
            "WHERE a.reader = ? AND a.roster = ? AND a.domain = 'agent500' ORDER BY ALL",
            [reader, roster],
        ).fetchall()
        near = queries.neighbors(connection, reader, roster, "agent500").drop(columns=["name", "family"])
        assert sorted(near.itertuples(index=False, name=None)) == old


def test_a_generation_leaves_vectors_and_digits_out_and_keeps_the_rest(tmp_path: Path) -> None:
    path = tmp_path / "work.duckdb"
    with open_work(path) as connection:
        frame = pd.DataFrame({"layer": [3], "vector": [[0.5, 0.25]]})
        for table in ("builds", "readers", "sources", "roster_members"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
        connection.execute(
            "INSERT INTO builds (build_id, stage, command, code_version, host, started_at, duration_s, origin) "
            "VALUES ('b', 's', 'c', 'v', 'h', now()::TIMESTAMP, 1, 'measured')"
        )
        connection.execute("INSERT INTO readers VALUES ('m', 'm', NULL, NULL, 'M', 'measured')")
        connection.execute("INSERT INTO families VALUES ('F', 0)")
        connection.execute("INSERT INTO sources VALUES ('a', 'a', 'F', 'F', 'local', 1, 'b')")
        connection.execute("INSERT INTO roster_members VALUES ('1-way', 0, 'a')")
        key = {"reader": "m", "roster": "1-way", "domain": "d", "source": "a"}
        replace_rows(connection, "signatures", frame, key, "b")
        third = pd.DataFrame({"k": [3], "metric": ["accuracy"], "fold": [0], "value": [1 / 3], "n": [9]})
        place = {"reader": "m", "roster": "1-way", "benchmark": "agent500", "condition": "clean", "reduction": "fold"}
        replace_rows(connection, "attribution_metrics", third, place, "b")
    with duckdb.connect(publish(path, tmp_path / "data"), read_only=True) as cursor:
        assert cursor.execute("SELECT value, std FROM attribution_metrics").fetchall() == [(0.3333333, None)]
        assert cursor.execute("SELECT reader, layer, vector, build_id FROM signatures").fetchall() == [
            ("m", 3, None, "b")
        ]
    with open_work(path) as connection:
        assert connection.execute("SELECT vector FROM signatures").fetchall() == [([0.5, 0.25],)]
