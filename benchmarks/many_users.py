"""Many users on two web processes and two workers: what happens when one of each is killed on the way?

Starts Redis and the processes of compose.yaml on this machine, over a scratch folder with the ecosystem of the samples.
Every user has an address of their own, sends a few traces, waits for the report as a job or with the request, and
deletes it. The exit status is 1 where a job is lost, where an answer is an error (except on a connection to the killed
process), or where a session sees traces of another: python benchmarks/many_users.py --users 60 --minutes 5
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backend.fingerprints import cache_folder
from backend.proxies.registry import DEFAULT_PROXY
from backend.service.records import GONE

ROOT = Path(__file__).resolve().parents[1]
WEB = [
    "gunicorn",
    "--workers",
    "1",
    "--threads",
    "8",
    "--graceful-timeout",
    "90",
    "--bind",
    "0.0.0.0:8050",
    "app:server",
]
WORKER = ["python", "-m", "jobs", "work"]
ENROLMENT = ROOT / "data" / "enrolments" / f"samples-{DEFAULT_PROXY}-ur.npz"
START, PATIENCE = 900.0, 300.0  # seconds for a start, and for a job
THINK = 30.0  # mean seconds between two questions of a user
WORDS = ("tide", "maple", "lantern", "harbour", "copper", "meadow", "signal", "velvet", "orbit", "thunder", "willow")


@dataclass
class Found:
    """What the users saw."""

    jobs: int = 0
    busy: int = 0  # answers that the server has too much to do, after which a user comes again
    cut: int = 0  # connections to a killed process
    errors: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    mixed: list[str] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    owners: dict[str, str] = field(default_factory=dict)  # of each trace, by its hash
    identities: list[str] = field(default_factory=list)  # of jobs that are there
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def failures(self) -> list[str]:
        """All that should not be."""
        return [*self.errors, *self.lost, *self.mixed]


class Servers:
    """Redis, web processes and workers; each web process is known by its port."""

    def __init__(self, folder: Path, end: contextlib.ExitStack) -> None:
        self._folder, self._end = folder, end
        redis = free_port()
        self._start(["redis-server", "--port", str(redis), "--bind", "127.0.0.1", "--save", ""], "redis", cwd=folder)
        self._environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("ATLAS_")},
            "ATLAS_QUEUE": f"redis://127.0.0.1:{redis}/0", "ATLAS_DATA": str(folder / "data"),
            "ATLAS_CACHE": str(folder / "cache"), "ATLAS_PROXY": "1", "ATLAS_OPEN": "1", "ATLAS_COMPILE": "0",
            "OMP_NUM_THREADS": "1", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }  # fmt: skip
        self.workers = [self._start(WORKER, f"worker-{number}") for number in range(2)]
        self.webs = {}
        for _ in range(2):
            port = free_port()
            command = [word.replace("0.0.0.0:8050", f"127.0.0.1:{port}") for word in WEB]
            self.webs[port] = self._start(command, f"web-{port}")
        self.alive = set(self.webs)
        for port in self.webs:
            self._wait(port)

    def kill_worker(self) -> None:
        """Kill one worker, whatever it does."""
        self.workers[0].kill()

    def kill_web(self) -> None:
        """Kill one web process with gunicorn's child, whatever it does."""
        port = min(self.webs)
        self.alive.discard(port)
        os.killpg(self.webs[port].pid, signal.SIGKILL)

    def _start(self, command: list[str], name: str, cwd: Path = ROOT) -> subprocess.Popen[bytes]:
        environ = getattr(self, "_environ", None)
        log = self._end.enter_context((self._folder / f"{name}.log").open("ab"))
        process = subprocess.Popen(command, cwd=cwd, env=environ, stdout=log, stderr=log, start_new_session=True)
        self._end.callback(_stop, process)
        return process

    def _wait(self, port: int) -> None:
        until = time.monotonic() + START
        while True:
            with contextlib.suppress(OSError, ValueError, KeyError):
                if send(port, "GET", "/health", None, {})[1]["attribution"]["status"] == "ready":
                    return
            dead = [process.args for process in (*self.workers, *self.webs.values()) if process.poll() is not None]
            if dead or time.monotonic() > until:
                logs = "\n".join(path.read_text("utf-8")[-3_000:] for path in self._folder.glob("*.log"))
                raise SystemExit(f"The servers did not start: {dead}\n{logs}")
            time.sleep(0.3)


class User:
    """Somebody who asks again and again."""

    def __init__(self, number: int, servers: Servers, found: Found) -> None:
        self._number, self._servers, self._found = number, servers, found
        self._random = random.Random(number)
        self._address = {"X-Forwarded-For": f"10.0.{number // 250}.{number % 250 + 1}"}

    def live(self, until: float, think: float) -> None:
        """Ask until the time is over."""
        time.sleep(self._random.uniform(0, think))
        count = 0
        while time.monotonic() < until:
            count += 1
            try:
                self._ask(f"user {self._number} question {count}")
            except Exception as error:
                self._found.errors.append(f"user {self._number}: {type(error).__name__}: {error}")
            time.sleep(self._random.uniform(0, 2 * think))

    def _ask(self, case: str) -> None:
        """One question, from the traces to the deleted report."""
        responses = [" ".join(self._random.choices(WORDS, k=12)) + f" ({case}, {i})" for i in range(3)]
        body = {"case": case, "orders": 5, "traces": [{"prompt": case, "response": text} for text in responses]}
        later, started = self._random.random() < 0.75, time.monotonic()
        while True:
            try:
                port = self._port()
                answer = send(port, "POST", "/api/attribute", body, self._address | (PREFER if later else {}))
            except OSError:
                if port in self._servers.alive:
                    raise
                self._found.cut += 1  # what it was doing is asked again
                continue
            if answer[0] != 429:
                break
            self._found.busy += 1
            time.sleep(2)
        status, job = answer
        if status == 200:
            self._check(case, job)
        elif status == 202:
            self._follow(case, job["job"])
        else:
            self._found.errors.append(f"{case}: {status} {job}")
            return
        self._found.jobs += 1
        self._found.seconds.append(time.monotonic() - started)

    def _follow(self, case: str, identity: str) -> None:
        """Wait for the report of a job, look at it, look for somebody else's, and delete it."""
        with self._found.lock:
            self._found.identities.append(identity)
        until = time.monotonic() + PATIENCE
        while True:
            status, answer = self._send("GET", f"/api/jobs/{identity}")
            if status != 200:
                self._found.lost.append(f"{case}: {status} {answer}")
                return
            if answer["state"] in ("done", "failed", "cancelled"):
                break
            if time.monotonic() > until:
                self._found.lost.append(f"{case}: still {answer['state']} after {PATIENCE:.0f} s")
                return
            time.sleep(1.0)
        self._check(case, answer)
        with self._found.lock:
            self._found.identities.remove(identity)
            other = self._random.choice(self._found.identities or [identity])
        if other != identity:
            stranger = f"{identity.partition('.')[0]}.{other.partition('.')[2]}"
            if (status := self._send("GET", f"/api/jobs/{stranger}")[0]) != 404:
                self._found.mixed.append(f"{case}: {status} for the job of somebody else")
        if (status := self._send("DELETE", f"/api/jobs/{identity}")[0]) != 204:
            self._found.errors.append(f"{case}: {status} where it deletes")

    def _check(self, case: str, answer: dict[str, Any]) -> None:
        """Whether an answer is a report about the user's own traces."""
        if answer["state"] != "done" or not answer["report"]:
            self._found.errors.append(f"{case}: {answer['state']} {answer['problem']}")
            return
        report = answer["report"]
        with self._found.lock:
            owners = {self._found.owners.setdefault(trace["sha256"], case) for trace in report["traces"]}
        if (report["case"], len(report["traces"])) != (case, 3) or owners != {case}:
            self._found.mixed.append(f"{case}: a report on {report['case']}, traces of {owners}")

    def _port(self) -> int:
        return self._random.choice(sorted(self._servers.alive))

    def _send(self, method: str, path: str) -> tuple[int, Any]:
        while True:
            port = self._port()
            try:
                return send(port, method, path, None, self._address)
            except OSError:
                if port in self._servers.alive:
                    raise
                self._found.cut += 1


PREFER = {"Prefer": "respond-async"}


def send(port: int, method: str, path: str, body: Any, headers: dict[str, str]) -> tuple[int, Any]:
    """Status and body of an answer; OSError where the connection is cut."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        raw = None if body is None else json.dumps(body)
        try:
            connection.request(method, path, raw, {"Content-Type": "application/json"} | headers)
            answer = connection.getresponse()
            text = answer.read()
        except http.client.HTTPException as error:
            raise ConnectionError(str(error)) from error
        return answer.status, json.loads(text) if text else None


def trial(folder: Path, users: int, minutes: float, think: float = THINK, say: Callable[..., None] = print) -> Found:
    """Start everything in a folder, let users come, kill a worker and a web process, and end everything."""
    (folder / "data" / "enrolments").mkdir(parents=True)
    shutil.copy(ENROLMENT, folder / "data" / "enrolments")
    (folder / "cache" / "proxies").mkdir(parents=True)
    (folder / "cache" / "proxies" / DEFAULT_PROXY).symlink_to(cache_folder() / "proxies" / DEFAULT_PROXY)
    found = Found()
    with contextlib.ExitStack() as end:
        servers = Servers(folder, end)
        say(f"2 web processes, 2 workers, Redis; {users} users for {minutes:g} min")
        start = time.monotonic()
        until = start + 60 * minutes
        threads = [
            threading.Thread(target=User(number, servers, found).live, args=(until, think), daemon=True)
            for number in range(users)
        ]
        for thread in threads:
            thread.start()
        for share, kill, name in ((1 / 3, servers.kill_worker, "worker"), (2 / 3, servers.kill_web, "web process")):
            time.sleep(max(0.0, start + share * 60 * minutes - time.monotonic()))
            kill()
            say(f"{time.monotonic() - start:5.0f} s: a {name} is killed; {found.jobs} jobs so far", flush=True)
        for thread in threads:
            thread.join(60 * minutes + 2 * PATIENCE)
        (port,) = servers.alive
        ends = time.monotonic() + 2 * GONE
        while (files := list((folder / "cache" / "uploads").glob("*/*.file"))) and time.monotonic() < ends:
            time.sleep(1)  # those of requests that the killed process answered
        load = send(port, "GET", "/health", None, {})[1]["status"]
        for log in sorted(folder.glob("*.log")):
            text = log.read_text("utf-8")
            found.errors += [f"{log.stem}: {line[:200]}" for line in text.splitlines() if " ERROR " in line]
            if "Traceback" in text:
                say(f"{log.name}:\n{text[max(0, text.index('Traceback') - 300) :][:3_000]}")
        say(f"{found.jobs} jobs; files of users that are left: {len(files)}; health: {load}")
    return found


def free_port() -> int:
    """A port that nobody listens to."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a process, in order where it does so."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(90)
    process.kill()
    process.wait()


def main() -> None:
    """Run the trial and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=60)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--think", type=float, default=THINK, help="mean seconds between two questions of a user")
    arguments = parser.parse_args()
    if shutil.which("redis-server") is None:
        sys.exit("Error: redis-server is missing. Run: make browser")
    with tempfile.TemporaryDirectory() as folder:
        found = trial(Path(folder), arguments.users, arguments.minutes, arguments.think)
    times = statistics.quantiles(found.seconds, n=20) if len(found.seconds) > 1 else [0.0] * 19
    outcome = Counter(lost=len(found.lost), errors=len(found.errors), mixed=len(found.mixed))
    print(f"seconds from traces to report: median {times[9]:.1f}, p95 {times[18]:.1f}")
    print(f"cut connections {found.cut}, busy answers {found.busy}, {dict(outcome)}")
    for sentence in found.failures[:20]:
        print(f"  {sentence}")
    sys.exit(1 if found.failures or not found.jobs else 0)


if __name__ == "__main__":
    main()
