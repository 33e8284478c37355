"""What an attack costs everybody else: the longest pause of /health, and the growth of memory, under hostile requests.

Starts a server of its own on this machine, with an empty cache and the published data, and sends it a fixed number of
hostile requests, never to another machine. Aims: /health answers within 1 s, memory grows by at most 300 MB.
Run it on a machine that does nothing else: python benchmarks/hostile.py
"""

from __future__ import annotations

import argparse
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
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAUSE, GROWTH = 1.0, 300e6
TOGETHER = 4
"""Requests of one attack that are sent at a time."""
START, PATIENCE = 900.0, 120.0
JSON = "application/json"
FORM = "multipart/form-data; boundary=x"


def form(content: bytes, name: str) -> bytes:
    """A form with one file."""
    head = f'--x\r\nContent-Disposition: form-data; name="file"; filename="{name}"\r\n\r\n'
    return head.encode() + content + b"\r\n--x--\r\n"


WIDE = b'{"response":"\xf0\x9f\x98\x80' + b"x" * 900_000 + b'"}'
LISTS = b"[" + b"[]," * 8_900_000 + b"[]]"
API, PAGE = "/api/attribute", "/_dash-update-component"
ATTACKS: dict[str, tuple[str, str, Callable[[], bytes]]] = {
    "27 MB of lists": (API, JSON, lambda: LISTS),
    "27 MB of lists to drift": ("/api/drift", JSON, lambda: LISTS),
    "27 MB of text with an emoji": ("/api/preview", JSON, lambda: b'{"traces":[' + b",".join([WIDE] * 29) + b"]}"),
    "34 MB to a callback": (PAGE, JSON, lambda: b"[" + b"[]," * 11_400_000 + b"[]]"),
    "34 MB of text to a callback": (PAGE, JSON, lambda: b'{"output":"' + b"x" * 34_000_000 + b'"}'),
    "60 MB": (API, JSON, lambda: b"x" * 60_000_000),
    "100,000 deep": (API, JSON, lambda: b"[" * 100_000),
    "20 MB of commas": (API, FORM, lambda: form(b"a,b\n" + b"," * 20_000_000, "t.csv")),
    "blank lines, packed": (API, FORM, lambda: form(gzip.compress(b"a,b\n" + b"\n" * 1_000_000), "t.csv.gz")),
    "broken lines, packed": (API, FORM, lambda: form(gzip.compress(b"{\n" * 2_000_000), "t.jsonl.gz")),
    "malformed callbacks": (PAGE, JSON, lambda: b'{"output":"x"}'),
}


class Watch:
    """Asks /health all the time, and keeps the longest it took."""

    def __init__(self, port: int, process: int) -> None:
        self.longest, self.most, self._port, self._process = 0.0, 0, port, process
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._ask, self._weigh)]
        for thread in self._threads:
            thread.start()

    def _ask(self) -> None:
        while not self._stop.is_set():
            started = time.perf_counter()
            status, _ = sent(self._port, "GET", "/health")
            self.longest = max(self.longest, time.perf_counter() - started if status == 200 else PATIENCE)
            time.sleep(0.02)

    def _weigh(self) -> None:
        while not self._stop.is_set():
            self.most = max(self.most, memory(self._process))
            time.sleep(0.02)

    def end(self) -> None:
        """Stop asking."""
        self._stop.set()
        for thread in self._threads:
            thread.join()


def memory(process: int) -> int:
    """Resident bytes of a process."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def sent(port: int, method: str, path: str, body: bytes = b"", kind: str = JSON) -> tuple[int, bytes]:
    """Status and body of an answer; status 0 where there was none."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request(method, path, body or None, {"Content-Type": kind} if body else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except OSError:
        return 0, b""
    finally:
        connection.close()


def attack(port: int, path: str, kind: str, body: bytes, count: int) -> Counter[int]:
    """Send a request so many times, a few at a time; how often each status came."""
    seen: Counter[int] = Counter()
    left = iter(range(count))

    def send() -> None:
        for _ in left:
            seen[sent(port, "POST", path, body, kind)[0]] += 1

    threads = [threading.Thread(target=send) for _ in range(TOGETHER)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return seen


def half_sent(port: int, count: int) -> float:
    """Seconds until /health is answered beside so many connections that never send their request."""
    lines = [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]
    for line in lines:
        line.sendall(b"POST /api/attribute HTTP/1.1\r\nHost: 127.0.0.1\r\n")
    started = time.perf_counter()
    status, _ = sent(port, "GET", "/health")
    took = time.perf_counter() - started if status == 200 else PATIENCE
    for line in lines:
        line.close()
    return took


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
        }
        environment.pop("ATLAS_TOKEN", None)
        with Path(cache, "log").open("wb") as log:
            server = subprocess.Popen([sys.executable, "app.py"], cwd=ROOT, env=environment, stdout=log, stderr=log)
            try:
                return _measure(port, server.pid, arguments.requests, arguments.only)
            finally:
                server.terminate()
                server.wait()


def _measure(port: int, process: int, requests: int, only: str) -> int:
    deadline = time.monotonic() + START
    while b'"loading"' in (told := sent(port, "GET", "/health")[1]) or not told:  # until it does nothing of its own
        if time.monotonic() > deadline:
            sys.exit("Error: the server did not start. Run python app.py to see why.")
        time.sleep(0.5)
    sent(port, "POST", "/api/preview", form(b'{"response":"x"}\n', "t.jsonl"), FORM)
    before, worst, most = memory(process), 0.0, 0
    print(f"{'attack':30} {'pause of /health':>17} {'memory':>10}  answers")
    for name, (path, kind, body) in ATTACKS.items():
        if only not in name:
            continue
        watch = Watch(port, process)
        seen = attack(port, path, kind, body(), requests)
        watch.end()
        worst, most = max(worst, watch.longest), max(most, watch.most)
        told = ", ".join(f"{count} × {status or 'none'}" for status, count in sorted(seen.items()))
        print(f"{name:30} {watch.longest:15.2f} s {(watch.most - before) / 1e6:+7.0f} MB  {told}", flush=True)
    if not only:
        took = half_sent(port, 200)
        worst = max(worst, took)
        print(f"{'200 half-sent requests':30} {took:15.2f} s")
    grown = most - before
    print(f"longest pause of /health {worst:.2f} s (aim {PAUSE:.0f} s)")
    print(f"growth of memory {grown / 1e6:.0f} MB (aim {GROWTH / 1e6:.0f} MB)")
    return int(worst > PAUSE or grown > GROWTH)


if __name__ == "__main__":
    sys.exit(main())
