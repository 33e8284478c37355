"""A checkout in a folder with spaces, without write permission, served by an ordinary user from data elsewhere."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY

CODE = ("app.py", "assets", "atlas", "backend", "jobs", "pyproject.toml")
STARTS_WITHIN_S = 180.0


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that every user may look into, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="atlas ") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


def ordinary() -> tuple[str, dict[str, str], dict[str, Any]]:
    """A Python that sees the installed packages, its variables, and the options of a process without rights of root.

    Where the Python of the tests is root's alone, the system's own of the same version serves.
    """
    user: dict[str, Any] = {}
    if os.geteuid() == 0:
        nobody = pwd.getpwnam("nobody")
        user = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
    system = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    for python, variables in ((sys.executable, {}), (system, {"PYTHONPATH": sysconfig.get_path("purelib")})):
        with contextlib.suppress(OSError, subprocess.CalledProcessError):
            subprocess.run(
                [python, "-c", "import dash"], cwd="/", env=variables, capture_output=True, check=True, **user
            )
            return python, variables, user
    pytest.skip("no Python here may be run by an ordinary user")


def seal(folder: Path) -> set[Path]:
    """Take the right to write away from everything in a folder; its files and folders."""
    found = {folder, *folder.rglob("*")}
    for one in found:
        one.chmod(0o555 if one.is_dir() else 0o444)
    return found


@pytest.mark.slow
def test_a_sealed_checkout_with_spaces_is_served_to_an_ordinary_user(place: Path) -> None:
    checkout, data, cache = place / "a checkout", place / "the data", place / "the cache"
    checkout.mkdir()
    for name in CODE:
        if REPOSITORY.joinpath(name).is_dir():
            shutil.copytree(REPOSITORY / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(REPOSITORY / name, checkout / name)
    shutil.copytree(REPOSITORY / "data", data)
    python, variables, user = ordinary()
    before = seal(checkout) | seal(data)
    cache.mkdir()
    if user:
        os.chown(cache, user["user"], user["group"])
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    variables |= {name: value for name, value in os.environ.items() if not name.startswith(("ATLAS_", "PYTHON"))}
    variables |= {"ATLAS_DATA": str(data), "ATLAS_CACHE": str(cache), "ATLAS_PORT": str(port), "HOME": str(cache)}
    variables |= {"OMP_NUM_THREADS": "1", "XDG_CACHE_HOME": str(cache)}
    server = subprocess.Popen(
        [python, "app.py"], cwd=checkout, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, **user,
    )  # fmt: skip
    try:
        health, deadline = None, time.monotonic() + STARTS_WITHIN_S
        while health is None and server.poll() is None and time.monotonic() < deadline:
            try:
                with urllib.request.urlopen(f"{url}/health", timeout=10) as answer:
                    health = json.load(answer)
            except OSError:
                time.sleep(0.3)
        assert health is not None, server.communicate()[0] if server.poll() else "no answer"
        # The cache is a new one, and without weights: that is said as soon as it is seen.
        assert [one for one in health["problems"] if "weights of the proxy" not in one] == [], health
        for path in ("/", "/assets/atlas.css", "/api/ecosystems"):
            with urllib.request.urlopen(f"{url}{path}", timeout=60) as answer:
                assert answer.status == 200
    finally:
        server.terminate()
        server.wait(60)
    assert {checkout, data, *checkout.rglob("*"), *data.rglob("*")} == before, "nothing is written next to the code"
    assert any(cache.iterdir())
