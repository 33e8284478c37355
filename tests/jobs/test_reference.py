"""The import as a job: again and again the same, stale rows gone, what is measured untouched, everything said."""

import contextlib
import json
import shutil

import pandas as pd
import pytest

from backend.methods.registry import CONTROLS
from backend.store.builds import recorded
from backend.store.database import check, open_work
from backend.store.result_queries import count_rows, open_reading, summary_rows
from backend.store.writers import replace_rows, write_reader
from jobs import __main__ as verbs
from tests.conftest import release_folder
from tests.fake_release import fake_release

READER = "reader-paper/invented/ur"


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """An invented release, and a work database that holds its import."""
    folder = tmp_path_factory.mktemp("reference")
    run(fake_release(folder / "release"), folder / "work.duckdb")
    return folder


@pytest.fixture
def place(imported, tmp_path):
    """A copy of both that a test may change."""
    shutil.copytree(imported, tmp_path / "copy")
    return tmp_path / "copy"


def run(release, work):
    assert verbs.main(["reference", "--release", str(release), "--work", str(work)]) == 0


def rows(work, sql):
    with contextlib.closing(open_reading(work)) as connection:
        return connection.execute(sql).fetchall()


def test_twice_is_once(place, capsys):
    release, work = place / "release", place / "work.duckdb"
    counted = "SELECT count(*) FROM attribution_metrics UNION ALL SELECT count(*) FROM paper_values"
    builds = "SELECT count(*) FROM builds WHERE stage = 'reference'"
    first = rows(work, counted), rows(work, builds)
    assert first == ([(8,), (753,)], [(2,)])
    run(release, work)
    said = capsys.readouterr().out
    assert "published rows of 1 readers" in said
    assert "5 of 5 numbers in results/** were taken" in said
    assert "NOT EXPLAINED" not in said
    assert (rows(work, counted), rows(work, builds)) == first
    with contextlib.closing(open_work(work)) as connection:
        check(connection)


def test_every_row_names_its_file(imported):
    work = imported / "work.duckdb"
    question = "SELECT DISTINCT reader, origin, source_file FROM attribution_metrics JOIN builds USING (build_id)"
    assert rows(work, question) == [(READER, "published", "results/reader/agent500/invented_ur.json")]
    assert rows(work, "SELECT origin FROM readers") == [("published",)]


def test_what_the_files_do_not_hold_any_more_goes(place):
    release, work = place / "release", place / "work.duckdb"
    path = release / "results" / "reader" / "agent500" / "invented_ur.json"
    held = json.loads(path.read_text("utf-8"))
    del held["configs"]["dct_dc_ac_fullrank"]["cv_metrics_by_grouping_seed"]["42"]["1"]["ece"]
    path.write_text(json.dumps(held), "utf-8")
    assert rows(work, "SELECT count(*) FROM attribution_metrics WHERE metric = 'ece_mean'") == [(2,)]
    run(release, work)
    assert rows(work, "SELECT count(*) FROM attribution_metrics WHERE metric = 'ece_mean'") == [(0,)]


def test_a_broken_file_leaves_the_last_import(place, capsys):
    release, work = place / "release", place / "work.duckdb"
    (release / "results" / "reader" / "agent500" / "invented_ur.json").write_text('{"configs": ', "utf-8")
    assert verbs.main(["reference", "--release", str(release), "--work", str(work)]) == 2
    assert "invented_ur.json cannot be understood" in capsys.readouterr().err
    assert rows(work, "SELECT count(*) FROM attribution_metrics") == [(8,)]


def test_a_reader_that_is_measured_here_keeps_its_rows(place):
    release, work = place / "release", place / "work.duckdb"
    frame = pd.DataFrame([{"k": 1, "reduction": "pooled", "metric": "accuracy", "value": 0.9, "n": 1}])
    key = {"reader": READER, "roster": "100-way", "benchmark": "agent500", "condition": "clean"}
    with (
        contextlib.closing(open_work(work)) as connection,
        recorded(connection, stage="evaluate", command="x") as build,
    ):
        replace_rows(connection, "attribution_metrics", frame, key, build)
        write_reader(connection, method="reader-paper", name="ours", proxy="invented", view="ur")
    run(release, work)
    summary = "SELECT reader, value FROM attribution_metrics WHERE metric = 'accuracy' AND seed IS NULL ORDER BY ALL"
    assert rows(work, summary) == [(f"published-{READER}", 0.5), (READER, 0.9)]
    assert rows(work, "SELECT reader, origin FROM readers ORDER BY ALL") == [
        (f"published-{READER}", "published"),
        (READER, "measured"),
    ]


def test_bench_a_is_named_before_its_scores(imported):
    work = imported / "work.duckdb"
    with contextlib.closing(open_reading(work)) as connection:
        assert count_rows(connection, "relationship_models") == 6
        assert count_rows(connection, "relationship_pairs") > 0
    silent = rows(work, "SELECT empty_responses FROM relationship_models ORDER BY empty_responses DESC LIMIT 2")
    assert silent == [(5,), (0,)]


def test_variance_is_that_of_the_selected_block(tmp_path):
    work = tmp_path / "work.duckdb"
    with contextlib.closing(open_work(work)) as connection:
        reader = write_reader(connection, method="reader-paper", name="r", view="ur")
        for layer in (1, 2, 3):
            row = {"block": "dc", "source_variance": 1.0, "prompt_variance": 2.0, "ratio": 0.1 * layer, "layer": layer}
            key = {"reader": reader, "roster": "100-way", "layer": layer}
            replace_rows(connection, "variance_ratios", pd.DataFrame([row]), key, "b")
        assert len(summary_rows(connection, "variance_ratios")) == 3
        replace_rows(
            connection, "layer_selection", pd.DataFrame([{"layer": 2}]), {"reader": reader, "roster": "100-way"}, "b"
        )
        assert [row["layer"] for row in summary_rows(connection, "variance_ratios")] == [2]
        with pytest.raises(ValueError, match="no summaries"):
            summary_rows(connection, "sources")


def test_status_asks_for_every_control():
    controls = pytest.importorskip("backend.evaluations.stages.controls")
    assert set(CONTROLS) == {name for names in controls.GROUPS.values() for name in names}


@pytest.mark.release
@pytest.mark.slow
def test_the_real_release_is_publishable(tmp_path, capsys):
    folder = release_folder()
    if folder is None:
        pytest.skip("the public release is missing: python -m jobs fetch, then set ATLAS_RELEASE to its folder")
    work = tmp_path / "work.duckdb"
    run(folder, work)
    assert "NOT EXPLAINED" not in capsys.readouterr().out
    with contextlib.closing(open_work(work)) as connection:
        check(connection)
