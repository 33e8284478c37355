"""What is there, since when, what is missing and by which command; on nothing, on something, and while a job runs."""

import argparse
import contextlib
import subprocess
import sys
import threading
from datetime import datetime, timedelta

import duckdb
import numpy as np
import pandas as pd
import pytest

from backend.corpus.release import Release
from backend.corpus.roster_rows import write_release_sources
from backend.errors import AtlasError
from backend.evaluations.stages.audit import PARTS
from backend.evaluations.stages.controls import NAMES
from backend.fingerprints import FingerprintStore, StoreIdentity, StoreKey
from backend.methods.registry import CONTROLS
from backend.store.builds import recorded
from backend.store.database import open_work, publish
from backend.store.writers import replace_rows, write_proxies, write_reader
from jobs import __main__ as verbs
from jobs import options
from jobs.pipeline import VALIDATED, Item
from jobs.status import span, table
from tests.commands import check
from tests.fake_release import fake_release

HOLD = "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('held', flush=True); sys.stdin.read()"


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty cache, and arguments that keep away from anything else."""
    monkeypatch.setenv("ATLAS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ATLAS_DATA", str(tmp_path / "data"))
    return tmp_path


def status(capsys, *arguments):
    assert verbs.main(["status", *arguments]) == 0
    return capsys.readouterr().out.splitlines()


def state(lines, *parts):
    (line,) = [line for line in lines if all(part in line for part in parts) and not line.startswith("  ")]
    return line


def evaluated(path, condition="clean", took_s=0.0):
    frame = pd.DataFrame([{"k": 1, "reduction": "fold", "metric": "accuracy", "value": 0.5, "n": 10}])
    release = Release(fake_release(path.parent / f"release-{condition}"))
    with contextlib.closing(open_work(path)) as connection:
        write_release_sources(connection, release)
        write_proxies(connection, pd.DataFrame([{"proxy": "smollm2-135m", "name": "SmolLM2"}]))
        reader = write_reader(connection, method="reader-paper", name="r", proxy="smollm2-135m", view="ur")
        key = {"reader": reader, "roster": "100-way", "benchmark": "agent500", "condition": condition}
        with recorded(connection, stage="evaluate", command="x", earlier_s=took_s) as build:
            replace_rows(connection, "attribution_metrics", frame, key, build)


def test_everything_is_missing_from_an_empty_cache(place, capsys):
    lines = status(capsys, "--release", str(place / "none"))
    assert "(there is none yet)" in lines[0]
    for stage in ("extract", "evaluate attribution", "evaluate stress", "evaluate controls", "evaluate baselines"):
        assert any(line.startswith(stage) and "missing" in line for line in lines)
    for stage in ("evaluate statistics", "evaluate cost", "relate", "map", "reference", "publish  "):
        assert any(line.startswith(stage) and "missing" in line for line in lines)
    commands = [line.strip() for line in lines if line.startswith("  python -m jobs")]
    assert "python -m jobs evaluate --proxy smollm2-135m --stage attribution --view ur --roster 100-way" in commands
    assert "python -m jobs reference" in commands
    assert len(commands) == len(set(commands))
    assert not (place / "cache").exists(), "a look must leave nothing behind"


def test_every_command_is_one_that_the_jobs_take(place, capsys):
    lines = status(capsys, "--proxy", "smollm2-135m,gemma3-270m", "--release", str(place / "none"))
    commands = [line.strip() for line in lines if line.startswith("  python -m jobs")]
    assert len(commands) > 20
    for command in commands:
        check(command)
    named = {command.split()[3] for command in commands}
    assert named == {"extract", "evaluate", "relate", "map", "reference", "enroll", "publish"}


def test_controls_are_those_of_the_stage():
    assert set(CONTROLS) == set(NAMES)
    assert set(VALIDATED) == set(PARTS)


def test_validation_readouts_and_enrolments_are_found(place, capsys):
    work = place / "work.duckdb"
    evaluated(work)
    ours = "reader-paper/smollm2-135m/ur"
    with contextlib.closing(open_work(work)) as connection, recorded(connection, stage="audit", command="x") as build:
        row = {"part": "drift", "k": 10, "metric": "alarms", "value": 0.05, "n": 9}
        key = {"reader": ours, "roster": "100-way", "condition": "clean"}
        replace_rows(connection, "audit_validation", pd.DataFrame([row]), key, build)
        fused = write_reader(connection, method="fused", name="Fused", proxy="smollm2-135m", view="ur")
        frame = pd.DataFrame([{"k": 1, "reduction": "fold", "metric": "accuracy", "value": 0.5, "n": 10}])
        key = {"reader": fused, "roster": "100-way", "benchmark": "agent500", "condition": "clean"}
        replace_rows(connection, "attribution_metrics", frame, key, build)
    (place / "data" / "enrolments").mkdir(parents=True)
    (place / "data" / "enrolments" / "100-way-smollm2-135m-ur.npz").write_bytes(b"")
    lines = status(capsys, "--work", str(work), "--release", str(place / "none"))
    assert "1 of 6" in state(lines, "evaluate audit", "100-way")
    assert "missing" in state(lines, "evaluate audit", "165-way")
    assert "done" in state(lines, "evaluate readouts", "100-way")
    assert "missing" in state(lines, "evaluate readouts", "165-way")
    assert "done" in state(lines, "enroll", "100-way-smollm2-135m-ur")
    assert "missing" in state(lines, "enroll", "samples-smollm2-135m-ur")


def test_readers_that_were_measured_after_the_comparisons_are_missed(place, capsys):
    work = place / "work.duckdb"
    evaluated(work)
    ours = "reader-paper/smollm2-135m/ur"
    row = {"subject": ours, "reference": "ngram-word", "measure": "accuracy@1", "difference": 0.1}
    row |= {"p_value": 0.1, "p_holm": 0.1, "n": 9, "method": "x"}
    with contextlib.closing(open_work(work)) as connection, recorded(connection, stage="statistics", command="x") as b:
        replace_rows(connection, "comparisons", pd.DataFrame([row]), {"hypotheses": "endpoints/100-way"}, b)
    asked = ("--work", str(work), "--release", str(place / "none"))
    assert "done" in state(status(capsys, *asked), "evaluate statistics", "100-way")
    assert "missing" in state(status(capsys, *asked), "evaluate statistics", "165-way")
    with contextlib.closing(open_work(work)) as connection, recorded(connection, stage="evaluate", command="x") as b:
        later = write_reader(connection, method="ngram-char", name="Trigrams")
        frame = pd.DataFrame([{"k": 1, "reduction": "fold", "metric": "accuracy", "value": 0.5, "n": 10}])
        key = {"reader": later, "roster": "100-way", "benchmark": "agent500", "condition": "clean"}
        replace_rows(connection, "attribution_metrics", frame, key, b)
    assert "1 of 2" in state(status(capsys, *asked), "evaluate statistics", "100-way")


def test_what_was_made_has_its_age_and_duration(place, capsys):
    work = place / "work.duckdb"
    evaluated(work, took_s=300.0)
    evaluated(work, condition="t64-global")
    lines = status(capsys, "--work", str(work), "--release", str(place / "none"), "--roster", "100-way")
    done = state(lines, "evaluate attribution", "· ur ·")
    assert "done" in done
    assert done.split()[-2:] == ["5.0", "min"]
    assert "missing" in state(lines, "evaluate attribution", "· r ·")
    assert "1 of 4" in state(lines, "evaluate stress", "· ur ·")
    for stage in ("evaluate cost", "evaluate stress  baselines", "relate  dna"):
        assert "missing" in state(lines, *stage.split("  "))
    publish(work, place / "data")
    assert "done" in state(status(capsys, "--work", str(work), "--release", str(place / "none")), "publish  ")


def test_a_generation_that_is_behind_is_said(place, capsys):
    work = place / "work.duckdb"
    evaluated(work)
    publish(work, place / "data")
    with contextlib.closing(duckdb.connect(work)) as connection:
        connection.execute("UPDATE builds SET started_at = started_at + INTERVAL 1 DAY")
    lines = status(capsys, "--work", str(work), "--release", str(place / "none"))
    assert "2 builds behind" in state(lines, "publish  ")


def test_published_numbers_do_not_count_as_measured(place, capsys):
    work = place / "work.duckdb"
    release = str(fake_release(place / "release"))
    assert verbs.main(["reference", "--release", release, "--work", str(work)]) == 0
    capsys.readouterr()
    lines = status(capsys, "--work", str(work), "--release", release, "--proxy", "invented", "--roster", "100-way")
    assert "done" in state(lines, "reference")
    assert "missing" in state(lines, "evaluate attribution", "invented · ur")


def test_fingerprints_on_disk_are_counted(place, capsys):
    release = str(fake_release(place / "release", sources=6, prompts=4))
    store = FingerprintStore(StoreKey("agent500", "smollm2-135m", "ur"))
    identity = StoreIdentity(24, 2, "r", "p", "e", 1024, "offsets")
    with store.writing(identity):
        store.write_shard("elsewhere", np.arange(2), {(1, "full"): np.zeros((2, 4), dtype=np.float16)})
    arguments = ("--release", release, "--proxy", "smollm2-135m")
    assert "0 of " in state(status(capsys, *arguments), "extract", "agent500", "· ur")
    assert "done" in state(status(capsys, "--release", str(place / "none")), "extract", "agent500", "· ur")


def test_a_database_that_a_job_holds_is_a_sentence(place, capsys):
    work = place / "work.duckdb"
    open_work(work).close()
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(work)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "held\n"
        assert verbs.main(["status", "--work", str(work)]) == 2
        assert "in use by another process. Wait until" in capsys.readouterr().err
    finally:
        holder.communicate("")


def test_a_job_waits_until_another_lets_go_of_the_work_database(place, capsys, monkeypatch):
    work = place / "work.duckdb"
    open_work(work).close()
    monkeypatch.setattr(options, "LOOK_AGAIN", 0.05)
    code = [sys.executable, "-c", HOLD, str(work)]
    with subprocess.Popen(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        threading.Timer(0.4, holder.stdin.close).start()
        with contextlib.closing(options.work_of(argparse.Namespace(work=work))) as connection:
            assert connection.execute("SELECT count(*) FROM sources").fetchone() == (0,)
    told = capsys.readouterr().out
    assert told.count("in use by process") == told.count("Waiting for it") == 1
    monkeypatch.setattr(options, "PATIENCE", 0.0)
    with subprocess.Popen(code, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(AtlasError, match="in use by process"):
            options.work_of(argparse.Namespace(work=work))
        holder.stdin.close()


def test_other_files_are_sentences(place, capsys):
    (place / "text.duckdb").write_text("no database", "utf-8")
    assert verbs.main(["status", "--work", str(place / "text.duckdb")]) == 2
    old = place / "old.duckdb"
    with contextlib.closing(duckdb.connect(old)) as connection:
        connection.execute("CREATE TABLE schema_version (version INTEGER)")
        connection.execute("INSERT INTO schema_version VALUES (1)")
    assert verbs.main(["status", "--work", str(old)]) == 2
    assert "schema version 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.4, "0 s"),
        (59, "59 s"),
        (90, "1.5 min"),
        (7_000, "116.7 min"),
        (7_200, "2.0 h"),
        (259_200, "3.0 days"),
        (-5, "0 s"),
    ],
)
def test_spans_are_short(seconds, shown):
    assert span(seconds) == shown


def test_columns_line_up():
    now = datetime(2026, 1, 2)
    lines = list(
        table(
            [Item("map", "x", "done", "c", now - timedelta(hours=3), 12.0), Item("relate", "yy", "missing", "c")], now
        )
    )
    assert lines[1].split() == ["map", "x", "done", "3.0", "h", "12", "s"]
    assert lines[0].index("state") == lines[1].index("done") == lines[2].index("missing")
