"""Rows by key: replaced whole or not at all, whatever the names in them; and the sources of a roster."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backend.corpus.release import Release
from backend.errors import AtlasError
from backend.store.builds import recorded
from backend.store.database import Generation, open_work, publish
from backend.store.writers import access, replace_rows, write_proxies, write_reader, write_sources

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "Robert'); DROP TABLE sources;--",
    "say \"quotes\" \\ and 'more'",
    "\u202eright-to-left \u05d0\u05d1\u05d2 \u0645\u0631\u062d\u0628\u0627",
    "x" * 300,
    "tab\tline\nreturn\r",
    "\u0000nul",
    "",
    "{{7*7}} ${x} %s ?",
    "\U0001f9ec emoji \u00e9 e\u0301",
]
KEY = {"reader": "m/p/ur", "roster": "100-way", "benchmark": "agent500", "condition": "clean"}


@pytest.fixture
def work(tmp_path: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with open_work(tmp_path / "work.duckdb") as connection:
        yield connection


def rows_of(connection: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[Any, ...]]:
    return connection.execute(sql).fetchall()


def roster_frame(labels: list[str], families: list[str] | None = None) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "label": labels,
            "repo_id": [f"org/{label}" for label in labels],
            "family": "sub",
            "plot_family": families or ["Fam"] * len(labels),
            "source": "original50",
        }
    )


# ---- replace_rows ---------------------------------------------------------------------------------------------------


def test_rows_of_one_key_are_replaced_and_others_stay(work: duckdb.DuckDBPyConnection) -> None:
    frame = pd.DataFrame({"truth": ["a", "a", "b"], "predicted": ["a", "b", "b"], "count": [3, 1, 4]})
    assert replace_rows(work, "confusion", frame, {**KEY, "k": 1}, "old") == 3
    assert replace_rows(work, "confusion", frame, {**KEY, "k": 5}, "other") == 3
    assert replace_rows(work, "confusion", frame.iloc[:1], {**KEY, "k": 1}, "new") == 1
    assert rows_of(work, "SELECT k, truth, predicted, count, build_id FROM confusion ORDER BY ALL") == [
        (1, "a", "a", 3, "new"),
        (5, "a", "a", 3, "other"),
        (5, "a", "b", 1, "other"),
        (5, "b", "b", 4, "other"),
    ]
    assert replace_rows(work, "confusion", frame.iloc[:0], {**KEY, "k": 5}, "new") == 0
    assert rows_of(work, "SELECT count(*) FROM confusion") == [(1,)]


def test_the_frame_is_left_as_it_was(work: duckdb.DuckDBPyConnection) -> None:
    frame = pd.DataFrame({"layer": [7]})
    replace_rows(work, "layer_selection", frame, {"reader": "m", "roster": "r", "outer_fold": 1}, "b")
    assert list(frame.columns) == ["layer"]


def test_a_key_may_ask_for_missing_values(work: duckdb.DuckDBPyConnection) -> None:
    both = {"reader": "m", "roster": "r"}
    replace_rows(work, "layer_selection", pd.DataFrame({"outer_fold": [0, np.nan], "layer": [3, 4]}), both, "b")
    replace_rows(work, "layer_selection", pd.DataFrame({"layer": [9]}), {**both, "outer_fold": None}, "b")
    assert rows_of(work, "SELECT outer_fold, layer FROM layer_selection ORDER BY layer") == [(0, 3), (None, 9)]


def test_keys_and_columns_may_be_numpy_and_missing_values_become_null(work: duckdb.DuckDBPyConnection) -> None:
    frame = pd.DataFrame(
        {
            "reduction": pd.Categorical(["fold", "pooled"]),
            "metric": "nll_sum",
            "seed": pd.array([None, 42], dtype="Int64"),
            "fold": [np.nan, 2.0],
            "value": np.array([1.5, np.inf], dtype=np.float32),
            "std": [np.nan, 0.25],
            "n": np.array([3, 4], dtype=np.uint8),
        }
    )
    replace_rows(work, "attribution_metrics", frame, {**KEY, "k": np.int64(5)}, "b")
    replace_rows(work, "attribution_metrics", frame, {**KEY, "k": np.int64(5)}, "b")
    found = rows_of(work, "SELECT k, reduction, seed, fold, value, std, n FROM attribution_metrics ORDER BY reduction")
    assert found == [(5, "fold", None, None, 1.5, None, 3), (5, "pooled", 42, 2, np.inf, 0.25, 4)]


def test_vectors_come_back_bit_for_bit(work: duckdb.DuckDBPyConnection) -> None:
    vectors = np.random.default_rng(3).normal(size=(4, 57)).astype(np.float32)
    frame = pd.DataFrame({"source": list("abcd"), "layer": 5, "vector": list(vectors)})
    replace_rows(work, "signatures", frame, {"reader": "m", "roster": "r", "domain": "agent500"}, "b")
    back = work.execute("SELECT vector FROM signatures ORDER BY source").df()["vector"]
    assert np.array_equal(np.stack(list(back)).astype(np.float32), vectors)


GOOD = pd.DataFrame({"truth": ["a"], "predicted": ["b"], "count": [3]})


@pytest.mark.parametrize(
    ("frame", "told"),
    [
        (GOOD.assign(extra=1), r"no column 'extra'"),
        (GOOD.assign(**{'k"; DROP TABLE builds; --': 1}), "no column"),
        (GOOD.drop(columns="count"), "lack column 'count'"),
        (GOOD.assign(count=np.nan), "row 0 .* no value in column 'count'"),
        (pd.concat([GOOD, GOOD.assign(predicted=None)]), "row 1 .* no value in column 'predicted'"),
        (pd.concat([GOOD.assign(k=1), GOOD.assign(k=5)]), "does not match its key"),
        (pd.concat([GOOD] * 3000 + [GOOD.assign(count="many")]), "many"),
        (GOOD.assign(count=2**40), "range"),
    ],
)
def test_a_failure_leaves_the_old_rows(work: duckdb.DuckDBPyConnection, frame: pd.DataFrame, told: str) -> None:
    replace_rows(work, "confusion", GOOD, {**KEY, "k": 1}, "old")
    before = rows_of(work, "SELECT * FROM confusion")
    with pytest.raises((ValueError, duckdb.Error), match=told):
        replace_rows(work, "confusion", frame, {**KEY, "k": 1}, "new")
    assert rows_of(work, "SELECT * FROM confusion") == before
    assert replace_rows(work, "confusion", GOOD.assign(count=4), {**KEY, "k": 1}, "new") == 1
    assert rows_of(work, "SELECT count, build_id FROM confusion") == [(4, "new")]


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ("nothing", {"k": 1}),
        ("confusion; DROP TABLE builds", {"k": 1}),
        ('confusion" --', {"k": 1}),
        ("duckdb_tables", {"k": 1}),
        ("builds", {"build_id": "b"}),
        ("sources", {"source": "s"}),
        ("readers", {"reader": "r"}),
        ("schema_version", {"version": 1}),
        ("confusion", {}),
        ("confusion", {"k = 1 OR true; --": 1}),
        ("confusion", {"kk": 1}),
    ],
)
def test_only_known_tables_and_columns_get_into_sql(
    work: duckdb.DuckDBPyConnection, table: str, key: dict[str, object]
) -> None:
    with pytest.raises(ValueError, match="table"):
        replace_rows(work, table, GOOD, key, "b")
    assert rows_of(work, "SELECT count(*) FROM builds") == [(0,)]


def test_a_reader_beside_a_writer_sees_old_or_new_rows_never_a_mixture(work: duckdb.DuckDBPyConnection) -> None:
    frames = [
        pd.DataFrame({"truth": [f"s{i}" for i in range(size)], "predicted": "x", "count": size}) for size in (7, 40)
    ]
    replace_rows(work, "confusion", frames[0], {**KEY, "k": 1}, "b")
    stop = threading.Event()
    seen: list[tuple[Any, ...]] = []

    def watch(cursor: duckdb.DuckDBPyConnection) -> None:
        while not stop.is_set():
            seen.append(cursor.execute("SELECT count(*), min(count), max(count) FROM confusion").fetchone())

    thread = threading.Thread(target=watch, args=(work.cursor(),))
    thread.start()
    for turn in range(30):
        replace_rows(work, "confusion", frames[turn % 2], {**KEY, "k": 1}, "b")
    stop.set()
    thread.join(20)
    assert set(seen) <= {(7, 7, 7), (40, 40, 40)} and seen


names = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(HOSTILE)
cells = st.dictionaries(st.tuples(names, names), st.integers(1, 2**31 - 1), max_size=6)
keys = st.tuples(names, st.sampled_from([1, 5, 100]))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(keys, cells), max_size=6))
def test_replace_rows_is_a_dictionary_of_frames(
    work: duckdb.DuckDBPyConnection, steps: list[tuple[tuple[str, int], dict[tuple[str, str], int]]]
) -> None:
    """Against the obvious model; every step twice, because doing it again must change nothing."""
    work.execute("DELETE FROM confusion_lists")
    model: dict[tuple[str, int], dict[tuple[str, str], int]] = {}
    for (reader, k), counts in steps:
        frame = pd.DataFrame([(t, p, c) for (t, p), c in counts.items()], columns=["truth", "predicted", "count"])
        for _ in range(2):
            replace_rows(work, "confusion", frame, {**KEY, "reader": reader, "k": k}, "b")
        model[reader, k] = counts
    expected = sorted((r, k, t, p, c) for (r, k), counts in model.items() for (t, p), c in counts.items())
    assert sorted(rows_of(work, "SELECT reader, k, truth, predicted, count FROM confusion")) == expected


# ---- sources, proxies, readers --------------------------------------------------------------------------------------


def test_hostile_names_survive_the_whole_way(tmp_path: Path) -> None:
    work = tmp_path / "work.duckdb"
    with open_work(work) as connection, recorded(connection, stage="s", command="c", details={"n": HOSTILE}) as build:
        frame = roster_frame(HOSTILE, HOSTILE).assign(repo_id=HOSTILE, family=HOSTILE)
        write_sources(connection, frame, dict.fromkeys(HOSTILE, 2), build, rosters={HOSTILE[1]: len(HOSTILE)})
        reader = write_reader(connection, method=HOSTILE[0], name=HOSTILE[4])
        count = pd.DataFrame({"truth": HOSTILE, "predicted": HOSTILE[::-1], "count": 1})
        replace_rows(
            connection,
            "confusion",
            count,
            {**KEY, "reader": reader, "roster": HOSTILE[1], "condition": HOSTILE[2], "k": 1},
            build,
        )
    publish(work, tmp_path / "data")
    with Generation.open(tmp_path / "data").cursor() as cursor:
        assert rows_of(cursor, "SELECT source, name, family, subfamily FROM sources JOIN roster_members USING (source) "
                       "ORDER BY position") == [(n, n, n, n) for n in HOSTILE]  # fmt: skip
        assert rows_of(cursor, "SELECT DISTINCT roster FROM roster_members") == [(HOSTILE[1],)]
        assert sorted(rows_of(cursor, "SELECT truth, predicted, condition FROM confusion")) == sorted(
            (t, p, HOSTILE[2]) for t, p in zip(HOSTILE, HOSTILE[::-1], strict=True)
        )


def test_rosters_are_prefixes_and_families_come_in_order_of_appearance(work: duckdb.DuckDBPyConnection) -> None:
    frame = roster_frame(["z", "y", "x"], ["Beta", "Alpha", "Beta"])
    frame["source"] = ["original50", "api50_no_reasoning", "local_expansion_20260730"]
    frame.loc[1, "repo_id"] = None
    write_sources(work, frame, {"z": 5, "x": 6}, "b", rosters={"2-way": 2, "3-way": 3, "9-way": 9})
    assert rows_of(work, "SELECT * FROM families ORDER BY position") == [("Beta", 0), ("Alpha", 1)]
    assert rows_of(work, "SELECT source, name, family, subfamily, access, responses FROM sources ORDER BY ALL") == [
        ("x", "org/x", "Beta", "sub", "local", 6),
        ("y", "y", "Alpha", "sub", "api", 0),
        ("z", "org/z", "Beta", "sub", "local", 5),
    ]
    assert rows_of(work, "SELECT * FROM roster_members ORDER BY ALL") == [
        ("2-way", 0, "z"), ("2-way", 1, "y"), ("3-way", 0, "z"), ("3-way", 1, "y"), ("3-way", 2, "x"),
    ]  # fmt: skip


def test_writing_sources_again_corrects_them(work: duckdb.DuckDBPyConnection) -> None:
    write_sources(work, roster_frame(["a", "b"], ["One", "Two"]), {}, "old", rosters={"2-way": 2})
    write_sources(work, roster_frame(["m", "a"], ["Mine", "One"]), {}, "mine", rosters={"mine": 2})
    write_sources(work, roster_frame(["c", "a"], ["Three", "Mine"]), {"a": 8}, "new", rosters={"2-way": 2})
    assert rows_of(work, "SELECT source, family, responses, build_id FROM sources ORDER BY ALL") == [
        ("a", "Mine", 8, "new"),
        ("c", "Three", 0, "new"),
        ("m", "Mine", 0, "mine"),
    ]
    assert rows_of(work, "SELECT * FROM roster_members ORDER BY ALL") == [
        ("2-way", 0, "c"), ("2-way", 1, "a"), ("mine", 0, "m"), ("mine", 1, "a"),
    ]  # fmt: skip
    assert rows_of(work, "SELECT * FROM families ORDER BY position") == [("Mine", 2), ("Three", 3)]


def test_bad_rosters_change_nothing(work: duckdb.DuckDBPyConnection) -> None:
    write_sources(work, roster_frame(["a"]), {}, "old", rosters={"1-way": 1})
    with pytest.raises(AtlasError, match="names 'b' twice"):
        write_sources(work, roster_frame(["b", "c", "b"]), {}, "new", rosters={"1-way": 1})
    with pytest.raises(AtlasError, match=r"'carrier pigeon' for how 'b' was collected\. Let the field 'source'"):
        write_sources(work, roster_frame(["b"]).assign(source="carrier pigeon"), {}, "new", rosters={"1-way": 1})
    with pytest.raises(ValueError, match=r"row 0 .* 'family'"):
        write_sources(work, roster_frame(["b"]).assign(plot_family=None), {}, "new", rosters={"1-way": 1})
    assert rows_of(work, "SELECT source, build_id FROM sources") == [("a", "old")]


@pytest.mark.parametrize(
    ("route", "kind"),
    [
        ("original50", "local"),
        ("local_expansion_20260730", "local"),
        ("local", "local"),
        ("api50_no_reasoning", "api"),
        ("api_catalog_20260730_no_reasoning", "api"),
        ("api", "api"),
    ],
)
def test_access(route: str, kind: str) -> None:
    assert access("label", route) == kind


@pytest.mark.release
def test_the_rosters_of_the_release(work: duckdb.DuckDBPyConnection, release: Release) -> None:
    roster = release.roster("165-way")
    for _ in range(2):
        write_sources(work, roster, dict.fromkeys(roster["label"], 600), "b")
    sizes = rows_of(
        work,
        "SELECT roster, count(*), count(DISTINCT family), count(*) FILTER (access = 'local') "
        "FROM roster_members JOIN sources USING (source) GROUP BY roster ORDER BY 2",
    )
    assert sizes == [("50-way", 50, 12, 50), ("100-way", 100, 16, 50), ("165-way", 165, 19, 51)]
    for name in ("50-way", "100-way", "165-way"):
        held = work.execute("SELECT source FROM roster_members WHERE roster = ? ORDER BY position", [name]).fetchall()
        assert [label for (label,) in held] == release.roster(name)["label"].tolist()
    assert rows_of(
        work, "SELECT name, family, access FROM sources WHERE source IN ('gpt_oss_20b', 'gpt4o') ORDER BY 1"
    ) == [("gpt-4o", "GPT", "api"), ("openai/gpt-oss-20b", "GPT", "local")]
    assert rows_of(work, "SELECT family FROM families ORDER BY position LIMIT 3") == [
        ("Qwen",),
        ("Llama",),
        ("Mistral",),
    ]


def test_proxies_and_readers_are_corrected_in_place(work: duckdb.DuckDBPyConnection) -> None:
    write_proxies(work, pd.DataFrame({"proxy": ["p"], "name": ["P"], "depth": [3], "causal": [True]}))
    assert write_reader(work, method="m", proxy="p", view="ur", name="first") == "m/p/ur"
    assert write_reader(work, method="mpt", name="text alone", origin="published") == "mpt"
    write_proxies(work, pd.DataFrame({"proxy": ["q", "p"], "name": ["Q", "P again"], "licence": ["MIT", None]}))
    write_reader(work, method="m", proxy="p", view="ur", name="second")
    assert rows_of(work, "SELECT proxy, name, licence, depth, causal FROM proxies ORDER BY ALL") == [
        ("p", "P again", None, 3, True),
        ("q", "Q", "MIT", None, None),
    ]
    assert rows_of(work, "SELECT * FROM readers ORDER BY ALL") == [
        ("m/p/ur", "m", "p", "ur", "second", "measured"),
        ("mpt", "mpt", None, None, "text alone", "published"),
    ]
    with pytest.raises(duckdb.ConstraintException):
        write_reader(work, method="m", name="n", origin="guessed")
    with pytest.raises(ValueError, match="lack column 'name'"):
        write_proxies(work, pd.DataFrame({"proxy": ["p"]}))
