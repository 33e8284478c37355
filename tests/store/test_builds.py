"""Every number says which command, code, data and machine made it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb
import pytest

import backend
from backend.store.builds import code_version, host, portable, recorded
from backend.store.database import open_work


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(folder), *identity, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_build_is_recorded_when_the_work_is_done(tmp_path: Path) -> None:
    details = {"records": 1}
    with open_work(tmp_path / "w.duckdb") as connection:
        begun = datetime.now(UTC).replace(tzinfo=None)
        with recorded(
            connection,
            stage="evaluate",
            command="python -m jobs evaluate --release /home/someone/release",
            data_hash="d" * 64,
            proxy_hash="p" * 64,
            seed=42,
            origin="published",
            source_file="results/x.json",
            details=details,
        ) as build:
            assert connection.execute("SELECT count(*) FROM builds").fetchone() == (0,)
            details["records"] = 82_500
        frame = connection.execute("SELECT * FROM builds").df()
    row = frame.iloc[0]
    assert len(frame) == 1 and row["build_id"] == build
    assert re.fullmatch(r"evaluate-\d{8}T\d{6}Z-[0-9a-f]{8}", build)
    assert row["command"] == "python -m jobs evaluate --release release"
    assert (row["stage"], row["data_hash"], row["proxy_hash"], row["seed"]) == ("evaluate", "d" * 64, "p" * 64, 42)
    assert (row["origin"], row["source_file"]) == ("published", "results/x.json")
    assert json.loads(row["details"]) == {"records": 82_500}
    assert begun <= row["started_at"] <= begun + timedelta(seconds=10)
    assert 0 <= row["duration_s"] < 10
    assert row["code_version"] == code_version() and row["host"] == host()


def test_nothing_is_recorded_when_the_work_fails(tmp_path: Path) -> None:
    with open_work(tmp_path / "w.duckdb") as connection:
        for error in (RuntimeError, KeyboardInterrupt):
            with pytest.raises(error), recorded(connection, stage="s", command="c"):
                raise error
        assert connection.execute("SELECT count(*) FROM builds").fetchone() == (0,)


def test_two_builds_of_one_second_differ_and_origins_are_checked(tmp_path: Path) -> None:
    with open_work(tmp_path / "w.duckdb") as connection:
        with recorded(connection, stage="s", command="c") as one, recorded(connection, stage="s", command="c") as two:
            assert one != two
        assert connection.execute("SELECT count(*) FROM builds").fetchone() == (2,)
        with pytest.raises(duckdb.ConstraintException), recorded(connection, stage="s", command="c", origin="guessed"):
            pass


def test_code_version_of_a_checkout(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "code.py").write_text("1\n")
    git(tmp_path, "add", "code.py")
    git(tmp_path, "commit", "-q", "-m", "first")
    commit = git(tmp_path, "rev-parse", "--short=10", "HEAD")
    assert code_version(tmp_path) == commit
    (tmp_path / "untracked.txt").write_text("not part of the code")
    assert code_version(tmp_path) == commit
    (tmp_path / "code.py").write_text("2\n")
    assert code_version(tmp_path) == f"{commit}+changes"
    inner = tmp_path / "site-packages"
    inner.mkdir()
    assert code_version(inner) == backend.__version__


def test_code_version_without_a_commit_or_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert code_version(tmp_path) == backend.__version__
    git(tmp_path, "init", "-q")
    assert code_version(tmp_path) == backend.__version__
    monkeypatch.setenv("PATH", str(tmp_path))
    assert code_version() == backend.__version__


def test_the_host_is_a_processor_and_not_a_name() -> None:
    assert re.fullmatch(rf".+, {os.cpu_count()} cores(, A[A-Z0-9 -]+)?", host())
    assert os.uname().nodename not in host()


def test_hosts_of_one_name_differ_by_what_they_can_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    def told(flags: str) -> str:
        text = f"processor\t: 0\nmodel name\t: AMD EPYC\nflags\t\t: {flags}\n\nprocessor\t: 1\nmodel name\t: other\n"
        monkeypatch.setattr(Path, "read_text", lambda *_: text)
        return host()

    cores = f"AMD EPYC, {os.cpu_count()} cores"
    assert told("fpu sse2") == cores
    assert told("fpu sse2 avx2") == f"{cores}, AVX2"
    assert told("avx2 avx512f") == f"{cores}, AVX-512"
    assert told("avx2 avx512_bf16 avx512f") == f"{cores}, AVX-512 BF16"
    assert told("amx_bf16 avx2 avx512_bf16 avx512f") == f"{cores}, AMX BF16"


@pytest.mark.parametrize(
    ("command", "kept"),
    [
        ("python -m jobs all --limit 20", "python -m jobs all --limit 20"),
        ("/usr/bin/python -m jobs all --release ../reader", "python -m jobs all --release reader"),
        ("python -m jobs enroll ../clients/acme/traces.jsonl", "python -m jobs enroll traces.jsonl"),
        ("python -m jobs enroll tests/browser/conftest.py", "python -m jobs enroll conftest.py"),
        ("python -m jobs extract --proxy owner/model", "python -m jobs extract --proxy owner/model"),
        ("jobs fetch --from=/home/me/a.tar", "jobs fetch --from=a.tar"),
        ("jobs x 'two words' \"it's\"", "jobs x 'two words' 'it'\"'\"'s'"),
        ("jobs fetch --from https://example.org/a/b", "jobs fetch --from https://example.org/a/b"),
        ("jobs 'open", "jobs 'open"),
        ("jobs x /", "jobs x /"),
    ],
)
def test_commands_keep_no_folder_of_the_machine(command: str, kept: str) -> None:
    assert portable(command) == kept
