"""The verb validate: what its builds record."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import jobs.validate
from backend.attribution.decision import fitted_statistics_of
from backend.corpus.release import Release
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import load_enrolment, save_enrolment
from backend.enrolment.fit import with_background, with_mixtures_and_choices
from backend.enrolment.validation_lookup import validation_of
from backend.store.database import open_work
from backend.store.writers import write_reader
from jobs.__main__ import main
from tests.attribution.test_transfer import ASKED, FAMILIES, FOLDS, enrolment, evidence
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


@pytest.mark.parametrize(
    "draws", [[], ["--draws", "data/samples/responses.jsonl.gz", "data/samples/responses.jsonl.gz"]]
)
def test_an_enrolment_of_no_roster_is_refused_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], draws: list[str]
) -> None:
    release, work = fake_release(tmp_path / "release", prompts=2), tmp_path / "work.duckdb"
    words = ["samples-smollm2-135m-ur", "--release", str(release), "--work", str(work)]
    assert main(["validate", *words, *draws]) == 2
    assert "'samples-smollm2-135m-ur' is of no roster" in capsys.readouterr().err


@pytest.mark.parametrize("part", ["calibration", "mixture"])
def test_an_enrolment_that_is_served_gets_rows_and_a_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], part: str
) -> None:
    """Error rates of balanced scores, and mixtures; measured again they are there once."""

    def with_rows(known: Enrolment, _: Release, benchmark: str, limit: int | None) -> Enrolment:
        assert (benchmark, limit) == (traffic, 60)
        if part == "mixture":
            found = with_mixtures_and_choices(known.attachments, evidence(), FOLDS, FAMILIES)
        else:
            found = with_background(known.attachments, evidence(4.0), ASKED, FOLDS, FAMILIES)
        return replace(known, attachments=found, facts={**known.facts, fact: {"benchmark": benchmark}})

    traffic, fact, option, condition, measure, said = {
        "calibration": (
            "math100",
            "background",
            "--background",
            "background",
            "with_balanced_scores",
            "a pool of math",
        ),
        "mixture": (
            "agent500",
            "mixture",
            "--mixtures",
            "clean",
            "with_held_out_mixtures",
            "intervals hold the leading source's share (",
        ),
    }[part]
    monkeypatch.setattr(jobs.validate, measure, with_rows)
    release, work = fake_release(tmp_path / "release", prompts=2), tmp_path / "work.duckdb"
    path = tmp_path / "data" / "enrolments" / "five.npz"
    path.parent.mkdir(parents=True)
    facts = {"roster": "165-way", "benchmark": "agent500", "proxy_hash": "f" * 64}
    save_enrolment(replace(enrolment(), facts=facts), path)
    words = ["five", "--release", str(release), "--work", str(work), "--to", str(tmp_path / "data")]
    counts = []
    for _ in range(2):
        assert main(["validate", *words, option, "--limit", "60"]) == 0
        assert said in capsys.readouterr().out
        counts.append(len(validation_of(load_enrolment(path))))
    assert counts[0] == counts[1] > 0
    with open_work(work) as connection:
        found = connection.execute(
            "SELECT DISTINCT part, roster, stage, details FROM audit_validation JOIN builds USING (build_id) "
            "WHERE condition = ?",
            [condition],
        ).fetchall()
    assert [row[:3] for row in found] == [(part, "165-way", "validate")] and traffic in found[0][3]
    served = fitted_statistics_of(load_enrolment(path))
    assert (served.groups is not None) == (part == "mixture")
    assert ("calibration-background.budgets" in load_enrolment(path).attachments) == (part == "calibration")
    assert main(["validate", *words, "--by", "domain"]) == 2
    assert "--refit METHODS" in capsys.readouterr().err


def test_a_reader_of_texts_keeps_the_name_that_its_evaluation_gave_it(tmp_path: Path) -> None:
    with open_work(tmp_path / "work.duckdb") as connection:
        write_reader(connection, method="ngram-word", name="Words, as evaluated")
        found = [jobs.validate._reader(connection, method, "smollm2-135m") for method in ("ngram-word", "reader-paper")]
        names = dict(connection.execute("SELECT reader, name FROM readers").fetchall())
    assert found == ["ngram-word", "reader-paper/smollm2-135m/ur"] and set(names) == set(found)
    assert names["ngram-word"] == "Words, as evaluated"
