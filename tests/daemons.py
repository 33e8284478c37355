"""Redis and PostgreSQL of the system, started by hand for a test."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

PATIENCE = 60.0


def free_port() -> int:
    """A port that nobody listens to."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def redis(folder: Path) -> Iterator[str]:
    """A Redis that keeps nothing on disk; its address."""
    program = shutil.which("redis-server") or pytest.skip("redis-server is missing: make browser")
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder), "--loglevel", "warning"]
    with _running([program, *options], port):
        yield f"redis://127.0.0.1:{port}/0"


@contextlib.contextmanager
def postgres(folder: Path) -> Iterator[str]:
    """A PostgreSQL of a fresh folder; its address."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not found:
        pytest.skip("PostgreSQL is missing: apt-get install postgresql")
    data, port, who = folder / "postgres", free_port(), list[str]()
    data.mkdir()
    if os.geteuid() == 0:  # it refuses to run as root
        shutil.chown(data, "nobody")
        for place in (folder, *folder.parents[:3]):
            place.chmod(place.stat().st_mode | 0o011)
        who = ["setpriv", "--reuid", "nobody", "--clear-groups"]
    initial = [*who, str(found[-1] / "initdb"), "-D", str(data), "-U", "atlas", "-A", "trust", "--no-sync"]
    subprocess.run(initial, check=True, stdout=subprocess.DEVNULL, cwd="/")
    server = [str(found[-1] / "postgres"), "-D", str(data), "-p", str(port), "-k", "", "-F"]
    with _running([*who, *server, "-c", "listen_addresses=127.0.0.1"], port):
        yield f"postgresql://atlas@127.0.0.1:{port}/postgres"


@contextlib.contextmanager
def _running(command: list[str], port: int) -> Iterator[None]:
    """While a program runs that listens to a port."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
    try:
        until = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            assert process.poll() is None and time.monotonic() < until, command
            time.sleep(0.05)
        time.sleep(0.2)
        yield
    finally:
        process.send_signal(signal.SIGINT)  # PostgreSQL would wait for its clients after SIGTERM
        process.wait(PATIENCE)
