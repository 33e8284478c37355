"""Every question of the web, asked of a small atlas whose answers can be worked out by hand, and of an empty one."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import pytest

from backend.store import queries
from backend.store.builds import recorded
from backend.store.database import Generation, open_work, publish
from backend.store.writers import replace_rows, write_proxies, write_reader, write_sources

UR, R, TEXT = "reader/p/ur", "reader/p/r", "mpt"
ASKED: dict[str, Any] = {
    "reader": UR, "readers": [UR], "roster": "3-way", "domain": "agent500", "source": "a", "k": 1,
    "neighbor": "b", "table": "confusion", "key": {"reader": UR},
}  # fmt: skip
COLUMNS = {
    "readers": "reader name method proxy proxy_name view origin rosters benchmarks conditions domains",
    "rosters": "roster sources families local api responses",
    "sources": "position source name family subfamily access responses family_position",
    "measurements": "reader roster benchmark condition reduction metric budgets",
    "maps": "reader roster domain method dimensions sources",
    "projection": "position source name family access x y z",
    "projection_quality": "method dimensions metric value settings build_id",
    "neighbors": "source neighbor name family rank rank_back cosine percentile",
    "source_table": "position source name family access responses accuracy_1 accuracy_5 accuracy_10 accuracy_20 "
    "accuracy_50 accuracy_100 confused_with confused_name confused_count",
    "metric_curve": "reader name origin k value std n build_id",
    "fold_spread": "k fold value n",
    "confusion": "truth predicted count share",
    "layer_curve": "layer accuracy std low high fits",
    "selected_layers": "outer_fold layer",
    "family_purity": "reader name origin k purity expectation p_value p_holm low high sources families build_id",
    "neighbor_table": "position source name family access nearest nearest_name nearest_family cosine percentile "
    "rank_back kin same_1 same_3 same_5 same_10",
    "pair_ranks": "reader name origin rank rank_back mutual_rank cosine percentile",
    "cross_family_pairs": "source name family other other_name other_family readers near median_rank cosine",
    "reader_agreement": "reader other metric value build_id",
    "prompt_stability": "reader name fold metric value build_id",
    "dendrogram": "step left_node right_node height size",
    "cross_domain": "variant query_domain gallery_domain metric value best_other best_other_name build_id",
    "summaries": "reader name origin benchmark condition metric k reduction value std n build_id",
    "paired_tests": "reader measure difference low high p_value p_holm n method hypotheses together build_id",
    "proxies": "proxy name depth hidden_size",
    "builds": "build_id stage command code_version data_hash proxy_hash seed host started_at duration_s origin "
    "source_file details",
    "builds_of": "build_id stage command code_version data_hash proxy_hash seed host started_at duration_s origin "
    "source_file details",
}
QUESTIONS = {
    name: function
    for name, function in inspect.getmembers(queries, inspect.isfunction)
    if function.__module__ == queries.__name__ and not name.startswith("_")
}


def fill(connection: duckdb.DuckDBPyConnection) -> dict[str, str]:
    """Four sources of two families in two rosters; returns the build of every stage."""
    made: dict[str, str] = {}
    with recorded(connection, stage="sources", command="sources") as build:
        made["sources"] = build
        roster = pd.DataFrame(
            {
                "label": ["b", "a", "d", "c"],
                "repo_id": ["B-1", "A-1", "D-1", "C-1"],
                "family": ["x1", "y1", "x2", None],
                "plot_family": ["X", "Y", "X", "X"],
                "source": ["local", "api", "api", "local"],
            }
        )
        write_sources(connection, roster, {"a": 10, "b": 20, "c": 30, "d": 40}, build, rosters={"4-way": 4, "3-way": 3})
        write_proxies(connection, pd.DataFrame({"proxy": ["p"], "name": ["Proxy P"]}))
        write_reader(connection, method="reader", proxy="p", view="ur", name="Reader UR")
        write_reader(connection, method="reader", proxy="p", view="r", name="Reader R")
        write_reader(connection, method="mpt", name="MPT", origin="published")
        write_reader(connection, method="idle", name="nothing was measured with it")
    with recorded(connection, stage="evaluate", command="evaluate", seed=42, details={"folds": 5}) as build:
        made["evaluate"] = build
        key = {"reader": UR, "roster": "3-way", "benchmark": "agent500", "condition": "clean"}
        metrics = [
            # k, reduction, seed, fold, value, std
            (5, "pooled", None, None, 0.8, 0.01),
            (1, "pooled", None, None, 0.5, 0.02),
            (1, "pooled", 42, None, 0.49, None),
            (1, "fold", None, None, 0.51, 0.03),
            (1, "fold", None, 1, 0.6, 0.1),
            (1, "fold", None, 0, 0.4, None),
            (1, "fold", 42, 0, 0.3, None),
            (1, "fold", 43, 0, 0.9, None),
            (5, "fold", 42, 0, 0.7, None),
            (5, "fold", 43, 0, 0.8, None),
        ]
        frame = pd.DataFrame(metrics, columns=["k", "reduction", "seed", "fold", "value", "std"])
        replace_rows(connection, "attribution_metrics", frame.assign(metric="accuracy", n=30), key, build)
        other = {**key, "reader": TEXT, "roster": "4-way", "condition": "t64"}
        replace_rows(
            connection,
            "attribution_metrics",
            pd.DataFrame({"k": [1], "reduction": "pooled", "metric": "accuracy", "value": 0.25, "std": np.nan, "n": 7}),
            other,
            build,
        )
        replace_rows(
            connection,
            "attribution_metrics",
            pd.DataFrame({"k": [1], "reduction": "pooled", "metric": "accuracy", "value": 0.125, "n": 7}),
            {**key, "reader": TEXT},
            build,
        )
        accuracy = pd.DataFrame(
            [
                (1, "a", 0.5, 6, "b", 2), (5, "a", 1.0, 2, None, 0), (1, "b", 0.75, 4, "d", 1),
                (5, "b", 0.5, 2, "a", 1), (5, "d", 0.25, 2, "a", 3),
            ],
            columns=["k", "source", "accuracy", "n", "confused_with", "confused_count"],
        )  # fmt: skip
        replace_rows(connection, "source_accuracy", accuracy, key, build)
        cells = pd.DataFrame(
            [(1, "a", "a", 3), (1, "a", "b", 1), (1, "a", "d", 2), (1, "b", "b", 4), (5, "a", "b", 9)],
            columns=["k", "truth", "predicted", "count"],
        )
        replace_rows(connection, "confusion", cells, key, build)
        both = {"reader": UR, "roster": "3-way"}
        scores = [(0, 1, 1, 0.1), (0, 2, 1, 0.3), (1, 0, 1, 0.4), (1, 2, 1, 0.6), (0, 1, 2, 0.5), (1, 0, 2, 0.5)]
        frame = pd.DataFrame(scores, columns=["outer_fold", "inner_fold", "layer", "accuracy"])
        replace_rows(connection, "layer_scores", frame, both, build)
        frame = pd.DataFrame({"outer_fold": [None, 1, 0], "layer": [2, 3, 2]})
        replace_rows(connection, "layer_selection", frame, both, build)
    with recorded(connection, stage="map", command="map") as build:
        made["map"] = build
        here = {"reader": R, "roster": "3-way", "domain": "agent500"}
        near = pd.DataFrame(
            [
                ("a", "d", 2, 0.1, 0.2), ("a", "b", 1, 0.9, 1.0), ("b", "d", 1, 0.95, 0.9), ("b", "a", 2, 0.9, 1.0),
                ("d", "b", 1, 0.95, 0.9),
            ],
            columns=["source", "neighbor", "rank", "cosine", "percentile"],
        )  # fmt: skip
        replace_rows(connection, "neighbors", near, here, build)
        points = pd.DataFrame({"source": ["a", "b", "d"], "x": [1.0, 2, 3], "y": [4.0, 5, 6], "z": [7.0, 8, 9]})
        replace_rows(connection, "projections", points, {**here, "method": "tsne", "dimensions": 3}, build)
        replace_rows(
            connection, "projections", points.drop(columns="z"), {**here, "method": "pca", "dimensions": 2}, build
        )
        quality = pd.DataFrame({"metric": ["trustworthiness_5"], "value": 0.9, "settings": json.dumps({"seed": 42})})
        replace_rows(connection, "projection_quality", quality, {**here, "method": "tsne", "dimensions": 3}, build)
        purity = pd.DataFrame({"k": [5, 1], "purity": [0.5, 0.75], "expectation": 0.2, "sources": 3, "families": 2})
        replace_rows(connection, "family_purity", purity, here, build)
    with recorded(connection, stage="compare", command="compare") as build:
        made["compare"] = build
        here = {"roster": "3-way", "domain": "agent500"}
        pair = pd.DataFrame({"reader": [R], "other": [UR], "metric": "spearman", "value": 0.7})
        replace_rows(connection, "reader_agreement", pair, here, build)
        folds = pd.DataFrame({"fold": [1, 0], "metric": "spearman", "value": [0.8, 0.9]})
        replace_rows(connection, "prompt_stability", folds, {**here, "reader": R}, build)
        steps = pd.DataFrame(
            {"step": [1, 0], "left_node": [1, 0], "right_node": [3, 2], "height": [0.9, 0.1], "size": [3, 2]}
        )
        replace_rows(connection, "dendrogram", steps, {**here, "reader": R}, build)
        crossed = pd.DataFrame(
            {
                "variant": "raw",
                "query_domain": "agent500",
                "gallery_domain": "math100",
                "source": ["a", None],
                "metric": ["rank", "top1"],
                "value": [2.0, 0.5],
                "best_other": ["b", None],
            }
        )
        replace_rows(connection, "cross_domain", crossed, {"reader": R, "roster": "3-way"}, build)
        test = {"low": -0.2, "high": 0.3, "p_value": 0.01, "p_holm": 0.02, "n": 9, "method": "signs"}
        for hypotheses, subject, reference, difference in (
            ("endpoints/3-way", TEXT, UR, 0.1),
            ("endpoints/4-way", TEXT, UR, 0.4),
            ("variance", UR, R, 0.2),
        ):
            row = {
                **test,
                "subject": subject,
                "reference": reference,
                "measure": "accuracy@1",
                "difference": difference,
            }
            replace_rows(connection, "comparisons", pd.DataFrame([row]), {"hypotheses": hypotheses}, build)
    return made


@pytest.fixture(scope="module")
def atlas(tmp_path_factory: pytest.TempPathFactory) -> tuple[Generation, dict[str, str]]:
    folder = tmp_path_factory.mktemp("atlas")
    with open_work(folder / "work.duckdb") as connection:
        made = fill(connection)
    publish(folder / "work.duckdb", folder)
    return Generation.open(folder), made


@pytest.fixture
def cursor(atlas: tuple[Generation, dict[str, str]]) -> Iterator[duckdb.DuckDBPyConnection]:
    with atlas[0].cursor() as opened:
        yield opened


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Generation:
    folder = tmp_path_factory.mktemp("empty")
    open_work(folder / "work.duckdb").close()
    publish(folder / "work.duckdb", folder)
    return Generation.open(folder)


def records(frame: pd.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """Rows as tuples, missing values None."""
    chosen = frame[list(columns)] if columns else frame
    rows = chosen.astype(object).where(chosen.notna(), None)
    return list(rows.itertuples(index=False, name=None))


def answer(question: Callable[..., Any], cursor: duckdb.DuckDBPyConnection, **changed: Any) -> Any:
    taken = inspect.signature(question).parameters
    return question(cursor, **{name: value for name, value in {**ASKED, **changed}.items() if name in taken})


# ---- nothing measured -----------------------------------------------------------------------------------------------


def test_every_question_is_listed_here() -> None:
    assert set(QUESTIONS) == {*COLUMNS, "source_profile"}


@pytest.mark.parametrize("name", COLUMNS)
def test_an_empty_atlas_answers_with_the_right_columns_and_types(
    name: str, empty: Generation, cursor: duckdb.DuckDBPyConnection
) -> None:
    with empty.cursor() as nothing:
        frame = answer(QUESTIONS[name], nothing)
    assert list(frame.columns) == COLUMNS[name].split() and len(frame) == 0
    for geometry in (UR, R):
        filled = answer(QUESTIONS[name], cursor, reader=geometry)
        if len(filled):
            assert list(filled.columns) == COLUMNS[name].split()
            text = [c for c in filled if filled[c].dtype == "str"]
            assert [c for c in frame if frame[c].dtype == "str"] == text


@pytest.mark.parametrize("name", [n for n, q in QUESTIONS.items() if "roster" in inspect.signature(q).parameters])
def test_an_unknown_roster_has_no_rows(name: str, cursor: duckdb.DuckDBPyConnection) -> None:
    found = answer(QUESTIONS[name], cursor, roster="' OR 1=1 --")
    assert len(found.accuracy if name == "source_profile" else found) == 0


def test_a_source_that_is_not_there(empty: Generation, cursor: duckdb.DuckDBPyConnection) -> None:
    assert queries.source_profile(cursor, "nobody", UR, "3-way") is None
    with empty.cursor() as nothing:
        assert queries.source_profile(nothing, "a", UR, "3-way") is None


# ---- what there is --------------------------------------------------------------------------------------------------


def test_readers(cursor: duckdb.DuckDBPyConnection) -> None:
    frame = queries.readers(cursor)
    assert records(frame, "reader", "name", "method", "proxy", "proxy_name", "view", "origin") == [
        (R, "Reader R", "reader", "p", "Proxy P", "r", "measured"),
        (UR, "Reader UR", "reader", "p", "Proxy P", "ur", "measured"),
        (TEXT, "MPT", "mpt", None, None, None, "published"),
    ]
    assert frame["rosters"].tolist() == [["3-way"], ["3-way"], ["3-way", "4-way"]]
    assert frame["benchmarks"].tolist() == [[], ["agent500"], ["agent500"]]
    assert frame["conditions"].tolist() == [[], ["clean"], ["clean", "t64"]]
    assert frame["domains"].tolist() == [["agent500"], [], []]
    assert all(type(value) is list for value in frame["rosters"])


def test_rosters_sources_and_families(cursor: duckdb.DuckDBPyConnection) -> None:
    assert records(queries.rosters(cursor)) == [("3-way", 3, 2, 1, 2, 70), ("4-way", 4, 2, 2, 2, 100)]
    assert records(queries.sources(cursor, "3-way")) == [
        (0, "b", "B-1", "X", "x1", "local", 20, 0),
        (1, "a", "A-1", "Y", "y1", "api", 10, 1),
        (2, "d", "D-1", "X", "x2", "api", 40, 0),
    ]
    assert queries.sources(cursor, "4-way")["subfamily"].isna().tolist() == [False, False, False, True]


def test_measurements(cursor: duckdb.DuckDBPyConnection) -> None:
    assert records(queries.measurements(cursor)) == [
        (TEXT, "3-way", "agent500", "clean", "pooled", "accuracy", [1]),
        (TEXT, "4-way", "agent500", "t64", "pooled", "accuracy", [1]),
        (UR, "3-way", "agent500", "clean", "fold", "accuracy", [1, 5]),
        (UR, "3-way", "agent500", "clean", "pooled", "accuracy", [1, 5]),
    ]


# ---- the map --------------------------------------------------------------------------------------------------------


def test_maps(cursor: duckdb.DuckDBPyConnection) -> None:
    assert records(queries.maps(cursor), "method", "dimensions", "sources") == [("pca", 2, 3), ("tsne", 3, 3)]
    assert len(queries.maps(cursor, reader=R)) == 2 and len(queries.maps(cursor, roster="4-way")) == 0
    assert records(queries.projection(cursor, R, "3-way", "agent500")) == [
        (0, "b", "B-1", "X", "local", 2.0, 5.0, 8.0),
        (1, "a", "A-1", "Y", "api", 1.0, 4.0, 7.0),
        (2, "d", "D-1", "X", "api", 3.0, 6.0, 9.0),
    ]
    flat = queries.projection(cursor, R, "3-way", "agent500", "pca", 2)
    assert flat["x"].tolist() == [2, 1, 3] and flat["z"].dtype == float and flat["z"].isna().all()
    (quality,) = records(queries.projection_quality(cursor, R, "3-way", "agent500"))
    assert quality[:5] == ("tsne", 3, "trustworthiness_5", 0.9, '{"seed": 42}')


def test_neighbors(cursor: duckdb.DuckDBPyConnection) -> None:
    here = (cursor, R, "3-way", "agent500")
    assert records(queries.neighbors(*here, source="a")) == [
        ("a", "b", "B-1", "X", 1, 2, 0.9, 1.0),
        ("a", "d", "D-1", "X", 2, None, 0.1, 0.2),
    ]
    assert records(queries.neighbors(*here, source="a", top=1), "neighbor") == [("b",)]
    assert records(queries.neighbors(*here), "source", "neighbor") == [
        ("b", "d"), ("b", "a"), ("a", "b"), ("a", "d"), ("d", "b"),
    ]  # fmt: skip
    assert records(queries.neighbors(*here, top=1), "source", "neighbor", "rank_back") == [
        ("b", "d", 1), ("a", "b", 2), ("d", "b", 1),
    ]  # fmt: skip


# ---- one source -----------------------------------------------------------------------------------------------------


def test_source_profile(cursor: duckdb.DuckDBPyConnection) -> None:
    profile = queries.source_profile(cursor, "a", UR, "3-way")
    assert profile is not None
    assert (profile.source, profile.name, profile.family, profile.subfamily) == ("a", "A-1", "Y", "y1")
    assert (profile.access, profile.responses, profile.rosters) == ("api", 10, ["3-way", "4-way"])
    assert records(profile.accuracy) == [(1, 0.5, 6, "b", "B-1", 2), (5, 1.0, 2, None, None, 0)]
    assert records(profile.confusions) == [("d", "D-1", "X", 2, 2 / 6), ("b", "B-1", "X", 1, 1 / 6)]
    other = queries.source_profile(cursor, "c", UR, "3-way")
    assert other is not None and other.subfamily is None and other.rosters == ["4-way"]
    assert len(other.accuracy) == 0 and len(other.confusions) == 0


def test_source_table(cursor: duckdb.DuckDBPyConnection) -> None:
    frame = queries.source_table(cursor, UR, "3-way")
    shown = (
        "source",
        "name",
        "accuracy_1",
        "accuracy_5",
        "accuracy_100",
        "confused_with",
        "confused_name",
        "confused_count",
    )
    assert records(frame, *shown) == [
        ("b", "B-1", 0.75, 0.5, None, "d", "D-1", 1),
        ("a", "A-1", 0.5, 1.0, None, "b", "B-1", 2),
        ("d", "D-1", None, 0.25, None, None, None, None),
    ]
    narrow = queries.source_table(cursor, UR, "3-way", budgets=(5,))
    assert [c for c in narrow if c.startswith("accuracy")] == ["accuracy_5"]


# ---- attribution ----------------------------------------------------------------------------------------------------


def test_metric_curve(cursor: duckdb.DuckDBPyConnection, atlas: tuple[Generation, dict[str, str]]) -> None:
    build = atlas[1]["evaluate"]
    measured = [
        (UR, "Reader UR", "measured", 1, 0.5, 0.02, 30, build),
        (UR, "Reader UR", "measured", 5, 0.8, 0.01, 30, build),
    ]
    published = [(TEXT, "MPT", "published", 1, 0.125, None, 7, build)]
    assert records(queries.metric_curve(cursor, [UR, TEXT], "3-way")) == measured + published
    assert records(queries.metric_curve(cursor, [TEXT, "unknown", UR], "3-way")) == published + measured
    assert records(queries.metric_curve(cursor, UR, "3-way", reduction="fold"), "value", "std") == [(0.51, 0.03)]
    assert records(queries.metric_curve(cursor, [TEXT], "4-way", condition="t64"), "value") == [(0.25,)]
    for nothing in ({"metric": "macro_f1"}, {"benchmark": "math100"}, {"condition": "t32"}, {"readers": []}):
        assert len(queries.metric_curve(**{"cursor": cursor, "readers": [UR], "roster": "3-way", **nothing})) == 0


def test_fold_spread_prefers_the_mean_over_seeds(cursor: duckdb.DuckDBPyConnection) -> None:
    assert records(queries.fold_spread(cursor, UR, "3-way")) == [(1, 0, 0.4, 30), (1, 1, 0.6, 30), (5, 0, 0.75, 30)]


def test_confusion_in_roster_order(cursor: duckdb.DuckDBPyConnection) -> None:
    assert records(queries.confusion(cursor, UR, "3-way", 1)) == [
        ("b", "b", 4, 1.0),
        ("a", "b", 1, 1 / 6),
        ("a", "a", 3, 0.5),
        ("a", "d", 2, 2 / 6),
    ]
    assert records(queries.confusion(cursor, UR, "3-way", 5)) == [("a", "b", 9, 1.0)]


def test_layers(cursor: duckdb.DuckDBPyConnection) -> None:
    curve = queries.layer_curve(cursor, UR, "3-way")
    assert curve["layer"].tolist() == [1, 2] and curve["fits"].tolist() == [4, 2]
    assert np.allclose(curve[["accuracy", "std", "low", "high"]], [[0.35, 0.15, 0.2, 0.5], [0.5, 0.0, 0.5, 0.5]])
    selected = queries.selected_layers(cursor, UR, "3-way")
    assert selected["outer_fold"].dtype == "Int64"
    assert records(selected) == [(0, 2), (1, 3), (None, 2)]


def test_family_purity(cursor: duckdb.DuckDBPyConnection) -> None:
    frame = queries.family_purity(cursor, "3-way", "agent500")
    assert records(frame, "reader", "name", "k", "purity", "p_value") == [
        (R, "Reader R", 1, 0.75, None),
        (R, "Reader R", 5, 0.5, None),
    ]
    assert len(queries.family_purity(cursor, "3-way", "agent500", reader=UR)) == 0


def test_neighbor_table_counts_kin(cursor: duckdb.DuckDBPyConnection) -> None:
    frame = queries.neighbor_table(cursor, R, "3-way", "agent500")
    shown = ("source", "family", "nearest", "nearest_family", "rank_back", "kin", "same_1", "same_3")
    assert records(frame, *shown) == [
        ("b", "X", "d", "X", 1, 1, 1, 1),
        ("a", "Y", "b", "X", 2, 0, 0, 0),
        ("d", "X", "b", "X", 1, 1, 1, 1),
    ]
    assert list(queries.neighbor_table(cursor, R, "3-way", "agent500", (2,)).columns)[-1] == "same_2"


def test_pairs_across_families(cursor: duckdb.DuckDBPyConnection) -> None:
    here = (cursor, "3-way", "agent500")
    assert records(queries.pair_ranks(*here, "a", "b"), "reader", "rank", "rank_back", "mutual_rank") == [(R, 1, 2, 2)]
    assert records(queries.pair_ranks(*here, "a", "d"), "rank", "rank_back", "mutual_rank") == [(2, None, 2)]
    near = queries.cross_family_pairs(cursor, [R, UR], "3-way", "agent500")
    assert records(near, "source", "other", "readers", "near", "median_rank") == [("a", "b", 1, 1, 2.0)]
    assert len(queries.cross_family_pairs(cursor, [R], "3-way", "agent500", within=1)) == 0
    assert len(queries.cross_family_pairs(cursor, [UR], "3-way", "agent500")) == 0


def test_what_lies_beside_the_neighbours(cursor: duckdb.DuckDBPyConnection) -> None:
    assert records(queries.reader_agreement(cursor, "3-way", "agent500"), "reader", "other", "value") == [(R, UR, 0.7)]
    stability = queries.prompt_stability(cursor, "3-way", "agent500", R)
    assert records(stability, "fold", "value") == [(0, 0.9), (1, 0.8)]
    assert len(queries.prompt_stability(cursor, "3-way", "agent500", UR)) == 0
    assert records(queries.dendrogram(cursor, R, "3-way", "agent500"), "step", "right_node") == [(0, 2), (1, 3)]
    assert records(queries.cross_domain(cursor, R, "3-way"), "metric", "value", "best_other") == [("top1", 0.5, None)]
    own = queries.cross_domain(cursor, R, "3-way", "a")
    assert records(own, "metric", "value", "best_other_name") == [("rank", 2.0, "B-1")]


# ---- readers side by side -------------------------------------------------------------------------------------------


def test_summaries_of_several_readers(cursor: duckdb.DuckDBPyConnection) -> None:
    frame = queries.summaries(cursor, [TEXT, UR], "3-way")
    assert records(frame, "reader", "k", "reduction", "value") == [
        (TEXT, 1, "pooled", 0.125), (UR, 1, "fold", 0.51), (UR, 1, "pooled", 0.5), (UR, 5, "pooled", 0.8),
    ]  # fmt: skip
    assert records(queries.summaries(cursor, [TEXT], "4-way"), "condition") == [("t64",)]
    assert len(queries.summaries(cursor, [UR], "3-way", ["nll_mean"])) == 0


def test_paired_tests_are_told_from_the_asked_reader(cursor: duckdb.DuckDBPyConnection) -> None:
    frame = queries.paired_tests(cursor, UR, [TEXT, R], "3-way")
    assert records(frame, "reader", "difference", "low", "high", "p_holm") == [
        (TEXT, 0.1, -0.2, 0.3, 0.02),
        (R, -0.2, -0.3, 0.2, 0.02),
    ]
    assert records(queries.paired_tests(cursor, UR, [TEXT], "4-way"), "difference") == [(0.4,)]


def test_proxies(cursor: duckdb.DuckDBPyConnection) -> None:
    assert records(queries.proxies(cursor), "proxy", "name", "depth") == [("p", "Proxy P", None)]


# ---- how it was made ------------------------------------------------------------------------------------------------


def test_builds(cursor: duckdb.DuckDBPyConnection, atlas: tuple[Generation, dict[str, str]]) -> None:
    made = atlas[1]
    newest_first = [made[stage] for stage in ("compare", "map", "evaluate", "sources")]
    assert queries.builds(cursor)["build_id"].tolist() == newest_first
    one = queries.builds(cursor, made["evaluate"])
    assert records(one, "stage", "seed", "details") == [("evaluate", 42, '{"folds": 5}')]
    assert one["seed"].dtype == "Int64"
    assert len(queries.builds(cursor, "unknown")) == 0


def test_builds_of(cursor: duckdb.DuckDBPyConnection, atlas: tuple[Generation, dict[str, str]]) -> None:
    made = atlas[1]

    def builds(table: str, **key: object) -> list[str]:
        return queries.builds_of(cursor, table, key)["build_id"].tolist()

    assert builds("confusion", reader=UR, k=1) == [made["evaluate"]]
    assert builds("projections", reader=R, roster="3-way", method="tsne") == [made["map"]]
    assert builds("layer_selection", reader=UR, outer_fold=None) == [made["evaluate"]]
    assert builds("sources", source="a") == [made["sources"]]
    assert (
        builds("confusion", reader=(UR, "nobody"), k=1) == [made["evaluate"]] and builds("confusion", reader=()) == []
    )
    assert builds("confusion", reader="' OR true --") == []
    for table, key in (
        ("readers", {"reader": UR}),
        ("x; DROP", {"k": 1}),
        ("confusion", {}),
        ("confusion", {"1=1": 1}),
    ):
        with pytest.raises(ValueError, match="table"):
            queries.builds_of(cursor, table, key)
