"""The verb validate: what its builds record."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import jobs.validate
from backend.store.database import open_work
from backend.store.writers import write_reader
from jobs.__main__ import main
from tests.fake_release import fake_release


def test_a_build_holds_the_time_of_its_refit_and_not_of_writing_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def transfers(*_: Any) -> Iterator[tuple[str, pd.DataFrame]]:
        for scenario in ("math100", "agent500"):
            time.sleep(0.3)
            row = {"k": 1, "metric": "flagged", "scenario": "", "value": 0.5, "n": 2}
            yield scenario, pd.DataFrame([row])

    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jobs.validate, "transfers", transfers)
    monkeypatch.setattr(jobs.validate.Part, "of", lambda *_: None)
    monkeypatch.setattr(jobs.validate, "proxy_hash", lambda _: "f" * 64)
    release, work = fake_release(tmp_path / "release", prompts=2), tmp_path / "work.duckdb"
    with open_work(work):
        pass
    words = ["--refit", "reader-paper", "--roster", "100-way", "--release", str(release), "--work", str(work)]
    assert main(["validate", *words]) == 0
    with open_work(work) as connection:
        found = connection.execute(
            "SELECT scenario, duration_s FROM audit_validation JOIN builds USING (build_id) ORDER BY scenario"
        ).fetchall()
    assert [scenario for scenario, _ in found] == ["agent500", "math100"]
    assert all(0.3 <= seconds < 60 for _, seconds in found)


def test_an_unknown_scenario_is_refused_with_those_that_exist(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    release, work = fake_release(tmp_path / "release", prompts=2), tmp_path / "work.duckdb"
    words = ["--refit", "reader-paper", "--scenario", "weather", "--release", str(release), "--work", str(work)]
    assert main(["validate", *words]) == 2
    error = capsys.readouterr().err
    assert "'weather'" in error and "math100, agent500, category" in error


@pytest.mark.parametrize("draws", [[], ["--draws", "data/samples/responses.jsonl", "data/samples/responses.jsonl"]])
def test_an_enrolment_of_no_roster_is_refused_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], draws: list[str]
) -> None:
    release, work = fake_release(tmp_path / "release", prompts=2), tmp_path / "work.duckdb"
    words = ["samples-smollm2-135m-ur", "--release", str(release), "--work", str(work)]
    assert main(["validate", *words, *draws]) == 2
    assert "'samples-smollm2-135m-ur' is of no roster" in capsys.readouterr().err


def test_a_reader_of_texts_keeps_the_name_that_its_evaluation_gave_it(tmp_path: Path) -> None:
    with open_work(tmp_path / "work.duckdb") as connection:
        write_reader(connection, method="ngram-word", name="Words, as evaluated")
        found = [jobs.validate._reader(connection, method, "smollm2-135m") for method in ("ngram-word", "reader-paper")]
        names = dict(connection.execute("SELECT reader, name FROM readers").fetchall())
    assert found == ["ngram-word", "reader-paper/smollm2-135m/ur"] and set(names) == set(found)
    assert names["ngram-word"] == "Words, as evaluated"
