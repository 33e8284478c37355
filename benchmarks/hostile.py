"""What an attack costs everybody else: the longest pause of /health, and the growth of memory, under hostile requests.

Starts a server of its own on this machine, with an empty cache and the published data, and sends it a fixed number of
hostile requests, never to another machine. Goals: /health answers within 1 s, memory grows by at most 300 MB; the exit
status is 1 where an attack misses one.
Run it on a machine that does nothing else: python benchmarks/hostile.py
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gzip
import http.client
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAUSE, GROWTH = 1.0, 300e6
START, PATIENCE, HALF_SECONDS = 900.0, 120.0, 10.0
TOKEN = "benchmark"
JSON = "application/json"
FORM = "multipart/form-data; boundary=x"


def form(content: bytes, name: str) -> bytes:
    """A form with one file."""
    head = f'--x\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    return head.encode() + content + b"\r\n--x--\r\n"


def keys(count: int) -> bytes:
    """A JSON object of so many keys."""
    return b'{"traces":{%s}}' % b",".join(b'"%d":1' % i for i in range(count))


@dataclass(frozen=True)
class Attack:
    """A request that is sent several times, a few at a time.

    Attributes
    ----------
    path, kind : str
        Where it goes, and the type of its body.
    body : callable
        Makes the body.
    together : int
        Requests at a time.
    known : bool
        Whether it carries the token.
    """

    path: str
    kind: str
    body: Callable[[], bytes]
    together: int = 4
    known: bool = True


WIDE = b'{"response":"\xf0\x9f\x98\x80' + b"x" * 900_000 + b'"}'
TRACE = b'{"response":"' + b"x" * 160 + b'","prompt":"p","time":"t","label":"l","id":"i"}'
LISTS = b"[" + b"[]," * 8_900_000 + b"[]]"
API, PAGE = "/api/attribute", "/_dash-update-component"
ATTACKS: dict[str, Attack] = {
    "20 MB of commas": Attack(API, FORM, lambda: form(b"a,b\n" + b"," * 20_000_000, "t.csv")),
    "20 MB of commas, 8 at once": Attack(API, FORM, lambda: form(b"a,b\n" + b"," * 20_000_000, "t.csv"), together=8),
    "blank lines, packed": Attack(API, FORM, lambda: form(gzip.compress(b"a,b\n" + b"\n" * 99_000_000), "t.csv.gz")),
    "1 MB of blank lines, packed": Attack(
        API, FORM, lambda: form(gzip.compress(b"a,b\n" + b"\n" * 999_000), "t.csv.gz"), together=8
    ),
    "broken lines, packed": Attack(API, FORM, lambda: form(gzip.compress(b"{\n" * 49_500_000), "t.jsonl.gz")),
    "24.8 MB of dashes": Attack(API, FORM, lambda: form(b"---\n" * 6_200_000, "t.txt")),
    "24 MB of carriage returns": Attack("/api/preview", FORM, lambda: form(b"a,b\n" + b"\r" * 24_000_000, "t.csv")),
    "450,000 keys": Attack(API, FORM, lambda: form(keys(450_000), "t.json")),
    "2,000,000 keys": Attack(API, FORM, lambda: form(keys(2_000_000), "t.json")),
    "600,000 keys in a body": Attack(API, JSON, lambda: keys(600_000)),
    "1,400,000 numbers": Attack(API, FORM, lambda: form(b"[%s1]" % (b"1.5," * 1_400_000), "t.json")),
    "3,000,000 short texts": Attack(API, FORM, lambda: form(b"[%s1]" % (b'{"":1},' * 3_000_000), "t.json")),
    "100,000 traces": Attack("/api/preview", JSON, lambda: b'{"traces":[' + b",".join([TRACE] * 100_000) + b"]}"),
    "one 27 MB body of lists": Attack(API, JSON, lambda: LISTS, together=1),
    "27 MB of lists": Attack(API, JSON, lambda: LISTS),
    "27 MB of lists to drift": Attack("/api/drift", JSON, lambda: LISTS),
    "27 MB of text with an emoji": Attack(
        "/api/preview", JSON, lambda: b'{"traces":[' + b",".join([WIDE] * 29) + b"]}"
    ),
    "34 MB to a callback": Attack(PAGE, JSON, lambda: b"[" + b"[]," * 11_400_000 + b"[]]"),
    "34 MB of text to a callback": Attack(PAGE, JSON, lambda: b'{"output":"' + b"x" * 34_000_000 + b'"}'),
    "malformed callbacks": Attack(PAGE, JSON, lambda: b'{"output":"x"}'),
    "100,000 deep": Attack(API, JSON, lambda: b"[" * 100_000),
    "60 MB": Attack(API, JSON, lambda: b"x" * 60_000_000),
    "20 MB without the token": Attack(API, FORM, lambda: form(b"," * 20_000_000, "t.csv"), together=8, known=False),
    "34 MB to a callback, no token": Attack(
        PAGE, JSON, lambda: b'{"output":"' + b"x" * 34_000_000 + b'"}', together=8, known=False
    ),
}
HALF_SENT = "200 half-sent requests"


@dataclass(frozen=True)
class Cost:
    """What an attack cost: longest pause of /health in seconds, growth of memory in bytes, and how it was answered."""

    pause: float
    growth: float
    answers: str

    @property
    def missed(self) -> str:
        """Which goals it misses."""
        return " ".join(["pause"] * (self.pause > PAUSE) + ["memory"] * (self.growth > GROWTH))


class Watch:
    """Requests /health all the time, and keeps the longest that it took."""

    def __init__(self, port: int) -> None:
        self.longest, self._port = 0.0, port
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        while not self._stop.is_set():
            self.longest = max(self.longest, health(self._port))
            time.sleep(0.02)

    def end(self) -> float:
        """Stop, and give the longest."""
        self._stop.set()
        self._thread.join()
        return self.longest


def health(port: int) -> float:
    """Seconds until /health answers; those that are waited at most where it does not."""
    started = time.perf_counter()
    status, _ = send(port, "GET", "/health")
    return time.perf_counter() - started if status == 200 else PATIENCE


def memory(process: int, field: str = "VmRSS") -> int:
    """Resident bytes of a process, now or (``VmHWM``) at most."""
    status = Path(f"/proc/{process}/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(field)) * 1024


def send(port: int, method: str, path: str, body: bytes = b"", kind: str = JSON, token: str = "") -> tuple[int, bytes]:
    """Status and body of an answer; status 0 where there was none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request(method, path, body or None, headers | ({"Content-Type": kind} if body else {}))
        answer = connection.getresponse()
        return answer.status, answer.read()
    except OSError:
        return 0, b""
    finally:
        connection.close()


def run(port: int, attack: Attack, count: int) -> str:
    """Send a request so many times; how often each status came."""
    seen: Counter[int] = Counter()
    body, token = attack.body(), TOKEN if attack.known else ""
    left = iter(range(count))

    def work() -> None:
        for _ in left:
            seen[send(port, "POST", attack.path, body, attack.kind, token)[0]] += 1

    threads = [threading.Thread(target=work) for _ in range(attack.together)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return ", ".join(f"{count} × {status or 'none'}" for status, count in sorted(seen.items()))


def half_send(port: int, count: int) -> str:
    """Open connections that never send their request to the end, and look at /health meanwhile."""
    with contextlib.ExitStack() as end:
        for _ in range(count):
            line = end.enter_context(socket.create_connection(("127.0.0.1", port)))
            line.sendall(b"POST /api/attribute HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        time.sleep(HALF_SECONDS)
    return f"held for {HALF_SECONDS:.0f} s"


def measure(port: int, process: int, before: int, attack: Callable[[], str]) -> Cost:
    """Attack, and see what it costs."""
    Path(f"/proc/{process}/clear_refs").write_text("5")  # memory's peak starts again
    watch = Watch(port)
    answers = attack()
    return Cost(watch.end(), memory(process, "VmHWM") - before, answers)


def main() -> int:
    """Attack and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=8, help="requests of each attack (default %(default)s)")
    parser.add_argument("--only", default="", help="attacks whose name holds this")
    arguments = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as cache:
        links = Path(os.environ.get("ATLAS_CACHE", Path.home() / ".cache" / "provenance-atlas")) / "proxies"
        if links.is_dir():
            Path(cache, "proxies").symlink_to(links)
        environment = {
            **os.environ,
            "ATLAS_PORT": str(port),
            "ATLAS_HOST": "127.0.0.1",
            "ATLAS_CACHE": cache,
            "ATLAS_COMPILE": "0",
            "ATLAS_TOKEN": TOKEN,
        }
        with Path(cache, "log").open("wb") as log:
            server = subprocess.Popen([sys.executable, "app.py"], cwd=ROOT, env=environment, stdout=log, stderr=log)
            try:
                return _attack(port, server.pid, arguments.requests, arguments.only)
            finally:
                server.terminate()
                server.wait()


def _attack(port: int, process: int, requests: int, only: str) -> int:
    deadline = time.monotonic() + START
    while b'"loading"' in (state := send(port, "GET", "/health")[1]) or not state:  # until it does nothing of its own
        if time.monotonic() > deadline:
            sys.exit("Error: the server did not start. Run python app.py to see why.")
        time.sleep(0.5)
    send(port, "POST", "/api/preview", form(b'{"response":"x"}\n', "t.jsonl"), FORM, TOKEN)
    before = memory(process)
    attacks = {name: functools.partial(run, port, attack, requests) for name, attack in ATTACKS.items()}
    attacks[HALF_SENT] = functools.partial(half_send, port, 200)
    print(f"{'attack':30} {f'pause (≤ {PAUSE:.0f} s)':>16} {f'memory (≤ {GROWTH / 1e6:+.0f} MB)':>22}  answers")
    costs = []
    for name, attack in attacks.items():
        if only in name:
            costs.append(cost := measure(port, process, before, attack))
            line = f"{name:30} {cost.pause:14.2f} s {cost.growth / 1e6:+19.0f} MB  {cost.answers}"
            print(f"{line}  MISSED: {cost.missed}" if cost.missed else line, flush=True)
    missed = sum(bool(cost.missed) for cost in costs)
    print(
        f"{len(costs)} attacks, {missed} miss a goal: longest pause {max(cost.pause for cost in costs):.2f} s "
        f"(goal {PAUSE:.0f} s), memory {max(cost.growth for cost in costs) / 1e6:+.0f} MB (goal {GROWTH / 1e6:+.0f} MB)"
    )
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
