"""The server as a process of its own, under waitress and gunicorn: what it refuses, who is served, and how it stops."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backend import __version__
from backend.enrolment.fit import split_samples
from backend.fingerprints import cache_folder
from backend.proxies.registry import DEFAULT_PROXY
from backend.service.job import SHORT
from backend.service.service import STOP_SECONDS

REPOSITORY = Path(__file__).resolve().parent.parent
ENROLMENT = REPOSITORY / "data" / "enrolments" / f"samples-{DEFAULT_PROXY}-ur.npz"
SECRET = "the-text-that-nobody-may-find"
JSON = "application/json"
RIGHT = {"Authorization": "Bearer right"}
PATIENCE = 300.0
SERVERS = {
    "waitress": [sys.executable, "app.py"],
    "gunicorn": [
        sys.executable, "-m", "gunicorn", "--workers", "1", "--threads", "8", "--graceful-timeout", "90", "app:server",
    ],
}  # fmt: skip
COMMANDS = SERVERS | {"gunicorn-3": ["3" if word == "1" else word for word in SERVERS["gunicorn"]]}


@dataclass
class Running:
    """A server that answers.

    Attributes
    ----------
    process : subprocess.Popen
    port : int
    log : Path
        What it wrote.
    """

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def send(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """Status and body of an answer."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)) as connection:
            raw = None if body is None else json.dumps(body)
            connection.request(method, path, raw, {"Content-Type": JSON} | (headers or {}))
            answer = connection.getresponse()
            text = answer.read()
            is_json = "json" in answer.headers.get("Content-Type", "")
            return answer.status, json.loads(text) if is_json else text

    def announce(self, length: int, headers: dict[str, str] | None = None) -> tuple[int, Any]:
        """Status and body of the answer to a request of which the body is never sent."""
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)) as connection:
            connection.putrequest("POST", "/api/attribute")
            for name, value in ({"Content-Type": JSON, "Content-Length": str(length)} | (headers or {})).items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def wait(self, path: str, field: str, value: str) -> Any:
        """Ask until a field of an answer has some value."""
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError):
                answer = self.send("GET", path, headers=RIGHT)[1]
                if answer[field] == value:
                    return answer
            assert self.process.poll() is None and time.monotonic() < deadline, self.log.read_text("utf-8")
            time.sleep(0.1)


@contextlib.contextmanager
def serving(kind: str, root: Path, **variables: str) -> Iterator[Running]:
    """Start a server over ``root/data`` and ``root/cache``, and end it."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    (root / "data").mkdir(exist_ok=True)
    environ = {**os.environ, "ATLAS_DATA": str(root / "data"), "ATLAS_CACHE": str(root / "cache"), "ATLAS_COMPILE": "0"}
    for name in ("ATLAS_TOKEN", "ATLAS_OPEN", "ATLAS_HOSTS", "ATLAS_PROXY", "ATLAS_HOST", "ATLAS_QUEUE", "ATLAS_STATE"):
        environ.pop(name, None)
    environ |= {"ATLAS_PORT": str(port)} | variables
    command = [*COMMANDS[kind], *(["--bind", f"127.0.0.1:{port}"] if "gunicorn" in kind else [])]
    log = root / "log"
    with log.open("ab") as stream:
        process = subprocess.Popen(command, cwd=REPOSITORY, env=environ, stdout=stream, stderr=stream)
    server = Running(process, port, log)
    try:
        server.wait("/health", "version", __version__)
        yield server
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def enrolled(tmp_path: Path) -> Path:
    """A folder with the ecosystem of the samples and the weights that read it."""
    weights = cache_folder() / "proxies" / DEFAULT_PROXY
    if not weights.is_dir() or not ENROLMENT.is_file():
        pytest.skip(f"the weights of {DEFAULT_PROXY} are missing: python -m jobs proxies install {DEFAULT_PROXY}")
    (tmp_path / "data" / "enrolments").mkdir(parents=True)
    shutil.copy(ENROLMENT, tmp_path / "data" / "enrolments")
    (tmp_path / "cache" / "proxies").mkdir(parents=True)
    (tmp_path / "cache" / "proxies" / DEFAULT_PROXY).symlink_to(weights)
    return tmp_path


def texts(cache: Path, text: str = SECRET) -> list[Path]:
    """Files of a cache folder that hold a text."""
    files = [path for path in cache.rglob("*") if path.is_file() and "proxies" not in path.parts]
    return [path for path in files if text.encode() in path.read_bytes()]


def long_job(server: Running) -> str:
    """A job of many traces that runs by now."""
    traces = [{"prompt": f"Q {i}", "response": f"{SECRET} {i} " + "a word and another one " * 60} for i in range(600)]
    status, answer = server.send("POST", "/api/attribute", {"traces": traces}, RIGHT | {"Prefer": "respond-async"})
    assert status == 202, answer
    server.wait(f"/api/jobs/{answer['job']}", "state", "running")
    return str(answer["job"])


def ended(server: Running, job: str) -> None:
    """Cancel a job and delete what it left."""
    deadline = time.monotonic() + PATIENCE
    while server.send("DELETE", f"/api/jobs/{job}")[0] != 204:
        assert time.monotonic() < deadline
        time.sleep(0.2)


def refuses(server: Running) -> None:
    """Other names, long bodies, and whoever does not have the token, of whom no body is read."""
    for host in ("evil.example", "evil.example:8050", "127.0.0.1.evil.example"):
        status, answer = server.send("GET", "/health", headers={"Host": host})
        assert status == 403 and "does not go by the name" in answer["detail"]
    status, answer = server.announce(20_000_000)
    assert status == 401 and "token" in answer["detail"]
    status, answer = server.announce(60_000_000, RIGHT)
    assert status == 413 and "command line" in answer["remedy"]
    assert server.send("POST", "/api/preview", {"traces": [{"response": "x"}]})[0] == 401
    assert server.send("POST", "/api/preview", {"traces": [{"response": "x"}]}, RIGHT)[0] == 200


def attributes(server: Running, cache: Path) -> None:
    """Traces of a sample, of which nothing is left."""
    status, answer = server.send("GET", "/ready")
    assert status == 503 and "python -m jobs" in answer["problem"]  # there is no generation here
    assert server.send("GET", "/health")[1]["status"] == "degraded"
    some = [row.trace for row in split_samples()[1][:4]]
    traces = [{"prompt": trace.prompt, "response": trace.response} for trace in some]
    status, answer = server.send("POST", "/api/attribute", {"traces": traces}, RIGHT)
    assert status == 200 and answer["state"] == "done" and answer["report"]["results"]["subject"]
    assert texts(cache, traces[0]["response"]) == []


def outlives_half_sent_connections(server: Running) -> None:
    """Answers at once beside connections that never send the rest, and closes them after a while."""
    with contextlib.ExitStack() as end:
        for start in (b"", b"POST /api/attribute HTTP/1.1\r\nHost: 127.0.0.1\r\n"):
            for _ in range(100):
                line = end.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=PATIENCE))
                line.sendall(start)
        for _ in range(5):
            started = time.monotonic()
            assert server.send("GET", "/health")[0] == 200
            assert time.monotonic() - started < 1.0
        deadline = time.monotonic() + 60
        line.settimeout(1.0)
        while True:
            with contextlib.suppress(TimeoutError):
                if line.recv(1_024) == b"":
                    break
            assert time.monotonic() < deadline


@pytest.mark.slow(60)
@pytest.mark.parametrize("kind", SERVERS)
def test_a_server_refuses_attributes_and_goes_on_after_a_stop_or_a_kill(kind: str, enrolled: Path) -> None:
    """One life of a server: its starts are what takes long here."""
    cache, under_way = enrolled / "cache", "another-text-that-nobody-may-find"
    with serving(kind, enrolled, ATLAS_TOKEN="right") as server:
        refuses(server)
        attributes(server, cache)
        job = long_job(server)
        started = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) == 0
        assert time.monotonic() - started < STOP_SECONDS
        log = server.log.read_text("utf-8")
    assert "Stopping after the batch that is read, in 60 s at most" in log
    assert "1 audits wait for another worker or the next start" in log
    assert "Traceback" not in log
    with serving(kind, enrolled) as server:
        server.wait(f"/api/jobs/{job}", "state", "running")
        if kind == "gunicorn":  # of which a kill would leave a process
            ended(server, job)
            assert texts(cache) == []
            return
        traces = [{"prompt": f"Q {i}", "response": f"{under_way} {i} " + "word " * 9} for i in range(SHORT + 1)]
        head = {"Content-Type": JSON, "Accept": "application/x-ndjson"}
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        connection.request("POST", "/api/attribute", json.dumps({"traces": traces}), head)
        assert connection.getresponse().readline()  # its stream goes on
        assert texts(cache, under_way)
        server.process.kill()
        server.process.wait()
        connection.close()
    assert texts(cache)
    with serving(kind, enrolled) as server:
        server.wait(f"/api/jobs/{job}", "state", "running")
        ended(server, job)
        assert texts(cache) == []
        outlives_half_sent_connections(server)  # while the killed server's requests are not yet taken for gone
        deadline = time.monotonic() + PATIENCE
        while texts(cache, under_way):
            assert time.monotonic() < deadline
            time.sleep(0.5)


@pytest.mark.slow(20)
def test_several_web_processes_share_sessions_and_one_scores(enrolled: Path) -> None:
    with serving("gunicorn-3", enrolled, ATLAS_TOKEN="right") as server:
        with contextlib.closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)) as connection:
            connection.request("POST", "/api/session", json.dumps({"token": "right"}), {"Content-Type": JSON})
            cookie = {"Cookie": str(connection.getresponse().headers["Set-Cookie"]).partition(";")[0]}
        assert {server.send("GET", "/api/ecosystems", headers=cookie)[0] for _ in range(20)} == {200}
        jobs = []
        for number in range(6):
            body = {"traces": [{"prompt": f"Q {number}", "response": f"word {number} and another one " * 9}]}
            status, answer = server.send("POST", "/api/attribute", body, cookie | {"Prefer": "respond-async"})
            assert status == 202, answer
            jobs.append(answer["job"])
        deadline = time.monotonic() + PATIENCE
        while jobs:
            status, answer = server.send("GET", f"/api/jobs/{jobs[0]}", headers=cookie)
            assert status == 200 and answer["state"] in ("queued", "running", "done"), answer
            if answer["state"] == "done":
                assert server.send("DELETE", f"/api/jobs/{jobs.pop(0)}", headers=cookie)[0] == 204
            assert time.monotonic() < deadline
        assert server.send("DELETE", "/api/session", headers=cookie)[0] == 204
        assert {server.send("GET", "/api/ecosystems", headers=cookie)[0] for _ in range(20)} == {401}
        assert "Traceback" not in server.log.read_text("utf-8")
