"""Work that goes on from what is served: nothing that was shipped is lost by adding to it, or by a look."""

from __future__ import annotations

import argparse
import contextlib
import json
from pathlib import Path

import duckdb
import pandas as pd
import pytest

from backend.errors import AtlasError
from backend.store.builds import recorded
from backend.store.database import POINTER, WORK_FILE, Generation, begin_work, open_work, publish, read_pointer
from backend.store.result_queries import missing_results
from backend.store.writers import replace_rows, write_reader, write_sources
from jobs import options
from jobs.__main__ import main


def measure(path: Path, method: str, roster: str) -> Path:
    """Write one number of a reader on a roster of two sources into a work database."""
    told = {"label": ["one", "two"], "repo_id": ["org/one", "org/two"], "family": ["a", "b"], "plot_family": ["A", "B"]}
    number = pd.DataFrame({"k": [1], "reduction": "pooled", "metric": "accuracy", "value": 0.5, "n": 6})
    with (
        contextlib.closing(open_work(path)) as connection,
        recorded(connection, stage="test", command="pytest") as build,
    ):
        frame = pd.DataFrame({**told, "source": ["original50", "api50"]})
        write_sources(connection, frame, {"one": 3, "two": 3}, build, rosters={roster: 2})
        reader = write_reader(connection, method=method, view="r", name=method)
        key = {"reader": reader, "roster": roster, "benchmark": "agent500", "condition": "clean"}
        replace_rows(connection, "attribution_metrics", number, key, build)
    return path


def measured(cursor: duckdb.DuckDBPyConnection) -> list[tuple[str, str]]:
    return cursor.execute("SELECT reader, roster FROM attribution_metrics ORDER BY ALL").fetchall()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache beside a data folder that serves one reader."""
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ATLAS_DATA", str(tmp_path / "data"))
    publish(measure(tmp_path / "elsewhere.duckdb", "shipped", "2-way"), tmp_path / "data")
    return tmp_path


def asked(work: Path | None = None, **more: int | None) -> argparse.Namespace:
    return argparse.Namespace(work=work, to=None, **more)


def test_the_work_database_begins_with_what_is_served(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with contextlib.closing(options.work_of(asked())) as connection:
        assert measured(connection) == [("shipped/r", "2-way")]
    name = read_pointer(place / "data")[0]
    assert f"begins with what is served, generation {name}" in capsys.readouterr().out
    assert not list((place / "cache").glob(".*")), "no scratch is left"
    measure(place / "cache" / WORK_FILE, "mine", "acme")
    assert main(["publish", "--prune"]) == 0
    with contextlib.closing(Generation.open(place / "data").cursor()) as cursor:
        assert measured(cursor) == [("mine/r", "acme"), ("shipped/r", "2-way")]
    with contextlib.closing(options.work_of(asked())) as connection:
        assert len(measured(connection)) == 2
    assert "begins with" not in capsys.readouterr().out, "it begins once"


def test_a_named_database_a_look_and_an_empty_data_folder_begin_with_nothing(place: Path) -> None:
    for arguments in (asked(place / "own.duckdb"), asked(limit=20)):
        with contextlib.closing(options.work_of(arguments)) as connection:
            assert measured(connection) == []
    assert options.work_path(asked(limit=20)).parent == place / "cache" / "look"
    assert options.data_of(asked(limit=20)) == place / "cache" / "look" / "data"
    assert options.data_of(asked(limit=None)) == place / "data"
    assert not (place / "cache" / WORK_FILE).exists()
    assert begin_work(place / "new.duckdb", place / "nothing") is None
    assert not (place / "new.duckdb").exists()


def test_a_generation_that_is_gone_or_a_folder_that_cannot_be_made(place: Path) -> None:
    (place / "file").write_text("in the way")
    with pytest.raises(AtlasError, match=r"cannot be begun .*ATLAS_CACHE"):
        begin_work(place / "file" / WORK_FILE, place / "data")
    read_pointer(place / "data")[1].unlink()
    assert begin_work(place / "new.duckdb", place / "data") is None
    assert missing_results(measure(place / "work.duckdb", "mine", "acme"), place / "data") == []


def test_publishing_less_than_is_served_is_refused_until_it_is_meant(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    work = str(measure(place / "work.duckdb", "mine", "acme"))
    before = json.loads((place / "data" / POINTER).read_text())
    assert main(["publish", "--work", work]) == 2
    said = capsys.readouterr().err
    assert "work.duckdb lacks it: shipped/r on 2-way. Move that" in said
    assert "--replace" in said
    assert json.loads((place / "data" / POINTER).read_text()) == before
    assert main(["publish", "--work", work, "--to", str(place / "other")]) == 0
    assert main(["publish", "--work", work, "--replace"]) == 0
    with contextlib.closing(Generation.open(place / "data").cursor()) as cursor:
        assert measured(cursor) == [("mine/r", "acme")]


def test_status_shows_what_the_work_will_begin_with(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--release", str(place / "none")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"there is none yet; it will begin with {read_pointer(place / 'data')[0]}, which is shown" in lines[0]
    assert not (place / "cache").exists(), "a look must leave nothing behind"
