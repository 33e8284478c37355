"""``python app.py``: help, options that do not exist, and where it cannot listen in one sentence."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent


def start(data: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *(options or ("app.py",))],
        cwd=REPOSITORY,
        env={**os.environ, "ATLAS_DATA": str(data), "ATLAS_CACHE": str(data), **variables},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_an_address_that_cannot_be_listened_to_is_one_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for result, words in (
            (start(tmp_path, ATLAS_PORT="abc"), "is no port"),
            (start(tmp_path, ATLAS_PORT="70000"), "is no port"),
            (start(tmp_path, "app.py", "--port", "-1"), "is no port"),
            (start(tmp_path, ATLAS_PORT=port), "in use"),
            (start(tmp_path, "app.py", "--host", "127.0.0.1", "--port", port, ATLAS_PORT="abc"), "in use"),
        ):
            assert result.returncode == 1
            assert result.stderr.startswith("Error: ") and words in result.stderr
            assert len(result.stderr.splitlines()) == 1


def test_a_cache_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = start(tmp_path, ATLAS_CACHE=str(tmp_path / "file" / "cache"))
    assert result.returncode == 1 and len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("Error: The cache folder") and "Set ATLAS_CACHE" in result.stderr


def test_help_is_printed_and_nothing_is_served(tmp_path: Path) -> None:
    result = start(tmp_path, "-X", "importtime", "app.py", "--help")
    assert result.returncode == 0
    assert "--host" in result.stdout and "--port" in result.stdout
    table = Path(REPOSITORY, "docs", "deployment.md").read_text("utf-8")
    named = set(re.findall(r"ATLAS_[A-Z]+", result.stdout))
    assert {"ATLAS_HOST", "ATLAS_PORT", "ATLAS_DATA"} <= named <= set(re.findall(r"ATLAS_[A-Z]+", table))
    assert "dash" not in result.stderr and "waitress" not in result.stderr, "help needs none of it"


@pytest.mark.parametrize("option", ["--helper", "--ho=x", "8051"])
def test_options_that_do_not_exist_are_refused(tmp_path: Path, option: str) -> None:
    result = start(tmp_path, "app.py", option)
    assert result.returncode == 2
    assert "unrecognized arguments" in result.stderr and not result.stdout


def test_servers_find_the_application_by_its_name(tmp_path: Path) -> None:
    found = "import app; from app import server; print(app.app.server is server is app.server, hasattr(app, 'zz'))"
    assert start(tmp_path, "-c", found).stdout == "True False\n"
