"""How fast the atlas answers 20 people at once, how soon its first view can be used, and how much that weighs.

A server as ``python app.py`` starts it, with empty caches and one more callback that does nothing, is driven on
loopback. Every user switches reader, domain, projection, source (on the map) or K (on the attribution page), thinks for
a second, and half of the time switches back. A switch posts every callback that the browser would post, at most six at
a time, and is over with the last answer; it is warm when the same view was answered before. All kinds are mixed with
empty callbacks in one run, so that all of them meet the same load.

    python benchmarks/web.py [--users 20] [--seconds 60]
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import gzip
import http.client
import json
import logging
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EMPTY = "benchmark-empty"
PACKING_S = 30.0
"""After so long a new server has packed what the first view asked for."""
PARALLEL = 6
"""Connections that a browser opens to one server."""
AIMS = {"warm": 4.0, "cold": 10.0}
SWITCHES = {
    "reader": ("/", "reader", "value"),
    "domain": ("/", "domain", "value"),
    "projection": ("/", "projection", "value"),
    "source": ("/", "search", "value"),
    "K": ("/attribution", "k", "value"),
}
"""Page on which a kind of switch is made, and the component and property that it sets."""


def serve(port: int) -> None:
    """The atlas and an empty callback beside it."""
    sys.path.insert(0, str(ROOT))
    import waitress
    from dash import Input, Output

    from atlas.application import create_application

    app = create_application()

    @app.callback(Output("said", "title"), Input(EMPTY, "n_clicks"), prevent_initial_call=True)
    def empty(clicks: int | None) -> str:
        return ""

    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    waitress.serve(app.server, host="127.0.0.1", port=port, threads=8)


# ---- what the browser does -------------------------------------------------------------------------------------------


class Line:
    """One connection to the server, kept open."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def ask(self, path: str, sent: str | None = None) -> tuple[int, bytes, str | None]:
        """Status, and body as it came with its encoding; ``sent`` is posted."""
        headers = {"Accept-Encoding": "gzip", "Content-Type": "application/json"}
        self._connection.request("GET" if sent is None else "POST", path, body=sent, headers=headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read(), answer.getheader("Content-Encoding")

    def json(self, path: str, body: Any = None) -> Any:
        status, content, encoding = self.ask(path, None if body is None else json.dumps(body))
        if status != 200:
            raise RuntimeError(f"{path}: status {status}")
        return json.loads(unpacked(content, encoding))


def unpacked(content: bytes, encoding: str | None) -> bytes:
    """A body as it was before it was compressed."""
    return gzip.decompress(content) if encoding == "gzip" else content


@dataclasses.dataclass(frozen=True)
class Spec:
    """An input, state or output: a name or a pattern, and a property."""

    identity: str | dict[str, Any]
    prop: str

    @classmethod
    def of(cls, entry: dict[str, str]) -> Spec:
        name = entry["id"]
        return cls(json.loads(name) if name.startswith("{") else name, entry["property"].split("@")[0])


class Page:
    """What a page holds, as the browser knows it: components by id, and the callbacks that hang on them."""

    def __init__(self, line: Line, path: str) -> None:
        self._callbacks = [each for each in line.json("/_dash-dependencies") if not each["clientside_function"]]
        self.parts: list[tuple[str | dict[str, Any], dict[str, Any]]] = []
        self._walk(line.json("/_dash-layout"))
        router = next(each for each in self._callbacks if "_pages_content.children" in each["output"])
        location = [{"id": "_pages_location", "property": name, "value": value}
                    for name, value in (("pathname", path), ("search", ""))]  # fmt: skip
        outputs = [{"id": "_pages_content", "property": "children"}, {"id": "_pages_store", "property": "data"}]
        told = {"output": router["output"], "outputs": outputs, "inputs": location, "state": [],
                "changedPropIds": ["_pages_location.pathname"]}  # fmt: skip
        self._walk(line.json("/_dash-update-component", told)["response"]["_pages_content"]["children"])
        self.set("theme", "data", "dark")

    def _walk(self, node: Any) -> None:
        if isinstance(node, list):
            for each in node:
                self._walk(each)
        elif isinstance(node, dict) and "props" in node and "type" in node:
            if "id" in node["props"]:
                self.parts.append((node["props"]["id"], node["props"]))
            for value in node["props"].values():
                self._walk(value)

    def set(self, identity: str, prop: str, value: Any) -> None:
        """Change a property, as a person or an answer does."""
        self.get(identity)[prop] = value

    def get(self, identity: str) -> dict[str, Any]:
        """Properties of a component."""
        return next(props for name, props in self.parts if name == identity)

    def _found(self, spec: Spec) -> list[dict[str, Any]] | dict[str, Any]:
        if isinstance(spec.identity, str):
            held = next((props for name, props in self.parts if name == spec.identity), {})
            return {"id": spec.identity, "property": spec.prop, "value": held.get(spec.prop)}
        return [
            {"id": name, "property": spec.prop, "value": props.get(spec.prop)}
            for name, props in self.parts
            if isinstance(name, dict)
            and name.keys() == spec.identity.keys()
            and all(wanted in (name[key], ["ALL"]) for key, wanted in spec.identity.items())
        ]

    def together(self, names: set[str]) -> list[str]:
        """Outputs of the callbacks that a change of any of these components requests, and of the router."""
        held = {name for name, _ in self.parts if isinstance(name, str)}
        return [
            each["output"]
            for each in self._callbacks
            if names & {entry["id"] for entry in each["inputs"]}
            and all(not isinstance(spec.identity, str) or spec.identity in held for spec in _specs(each["output"]))
        ]

    def requests(self, identity: str, prop: str) -> list[dict[str, Any]]:
        """Bodies of the requests that a change of one property makes."""
        names = {name for name, _ in self.parts if isinstance(name, str)}
        made = []
        for each in self._callbacks:
            inputs = [Spec.of(entry) for entry in each["inputs"]]
            if Spec(identity, prop) not in inputs or "_pages" in each["output"]:
                continue
            whole, outputs = each["output"], _specs(each["output"])
            if any(isinstance(spec.identity, str) and spec.identity not in names for spec in outputs):
                continue
            found = [self._found(spec) for spec in outputs]
            flat = [[_bare(one) for one in each] if isinstance(each, list) else _bare(each) for each in found]
            # A concrete pattern stands for the one component that it names.
            flat = [
                one[0] if isinstance(one, list) and len(one) == 1 and ["ALL"] not in spec.identity.values() else one
                for one, spec in zip(flat, outputs, strict=True)
            ]
            made.append(
                {
                    "output": whole,
                    "outputs": flat if whole.startswith("..") else flat[0],
                    "inputs": [self._found(spec) for spec in inputs],
                    "state": [self._found(Spec.of(entry)) for entry in each["state"]],
                    "changedPropIds": [f"{identity}.{prop}"],
                    "parsedChangedPropsIds": [f"{identity}.{prop}"],
                }
            )
        return made


def _specs(output: str) -> list[Spec]:
    """What a callback sets, from its name."""
    specs = []
    for part in output.strip(".").split("..."):
        name, _, prop = part.replace("\\.", ".").rpartition(".")
        specs.append(Spec.of({"id": name, "property": prop}))
    return specs


def _bare(entry: dict[str, Any]) -> dict[str, Any]:
    return {name: entry[name] for name in ("id", "property")}


# ---- the users ------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Tally:
    """Seconds of every kind of switch, and what went wrong."""

    seconds: dict[tuple[str, str], list[float]] = dataclasses.field(default_factory=lambda: defaultdict(list))
    answers: list[tuple[str, int, bytes, str | None]] = dataclasses.field(default_factory=list)
    seen: set[str] = dataclasses.field(default_factory=set)
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)


def user(port: int, seed: int, until: float, opened: dict[str, Page], tally: Tally) -> None:
    """Switch, think, switch back, until the time is over."""
    choose = random.Random(seed)
    lines = [Line(port) for _ in range(PARALLEL)]
    pages = copy.deepcopy(opened)
    back: list[tuple[str, Any]] = []

    def post(job: tuple[Line, str]) -> tuple[int, bytes, str | None]:
        return job[0].ask("/_dash-update-component", job[1])

    with ThreadPoolExecutor(PARALLEL) as pool:
        while time.monotonic() < until:
            time.sleep(choose.expovariate(1.0))
            if back and choose.random() < 0.5:
                kind, value = back.pop()
            else:
                kind, value = choose.choice(["empty", *SWITCHES]), None
            if kind == "empty":
                inputs = [{"id": EMPTY, "property": "n_clicks", "value": 1}]
                output = {"id": "said", "property": "title"}
                jobs = [{"output": "said.title", "outputs": output, "inputs": inputs,
                         "changedPropIds": [f"{EMPTY}.n_clicks"]}]  # fmt: skip
            else:
                path, identity, prop = SWITCHES[kind]
                page = pages[path]
                was = page.get(identity).get(prop)
                if value is None:
                    value = choose.choice([option for option in options(page, identity) if option != was])
                    back.append((kind, was))
                page.set(identity, prop, value)
                jobs = page.requests(identity, prop)
            bodies = [json.dumps(job, sort_keys=True) for job in jobs]
            heat = "warm" if kind == "empty" or set(bodies) <= tally.seen else "cold"
            began = time.perf_counter()
            answers: list[tuple[int, bytes, str | None]] = []
            for start in range(0, len(jobs), PARALLEL):
                answers += pool.map(post, zip(lines, bodies[start : start + PARALLEL], strict=False))
            spent = time.perf_counter() - began
            with tally.lock:
                tally.seconds[kind, heat].append(spent)
                tally.answers += [(f"{kind} {value}", *answer) for answer in answers]
                tally.seen |= set(bodies)


def errors(tally: Tally) -> list[str]:
    """Answers that tell of a failure, looked at when all is over: it would take time from the server."""
    found = []
    for switch, status, content, encoding in tally.answers:
        content = unpacked(content, encoding)
        if status not in (200, 204) or b'"trouble"' in content:
            found.append(f"{switch}: {status} {content[:200]!r}")
    return found


def options(page: Page, identity: str) -> list[Any]:
    """Values that a person can choose in a field, groups opened."""
    data = page.get(identity)["data"]
    return [item["value"] for entry in data for item in entry.get("items", [entry])]


# ---- the first view -------------------------------------------------------------------------------------------------

READY = """
const done = arguments[0], look = () => {
  const plot = document.querySelector('#map .js-plotly-plot');
  const drawn = plot && plot._fullLayout && plot.querySelector('canvas') && document.querySelector('#card').innerText;
  if (!drawn || document.querySelector('[data-dash-is-loading=true]')) return setTimeout(look, 20);
  const parts = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')];
  done([performance.now(), parts.reduce((sum, part) => sum + part.transferSize, 0), parts.length]);
}; look();
"""


def first_view(port: int, times: int) -> Iterator[tuple[str, float, float, int]]:
    """Seconds until the map of an empty browser can be used, transferred megabytes and requests.

    First for whoever comes first to a new server, which packs its scripts in passing, then when they are packed
    (median).
    """
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    chosen = webdriver.ChromeOptions()
    chosen.binary_location = shutil.which("chromium") or ""
    for flag in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--enable-unsafe-swiftshader"):
        chosen.add_argument(flag)
    driver = webdriver.Chrome(options=chosen, service=Service(shutil.which("chromedriver")))
    driver.set_script_timeout(120)
    try:
        for when, count in (("of a new server", 1), ("once scripts are packed", times)):
            seen = []
            for _ in range(count):
                driver.execute_cdp_cmd("Network.clearBrowserCache", {})
                driver.get(f"http://127.0.0.1:{port}/?theme=dark")
                seen.append(driver.execute_async_script(READY))
            ready, weight, parts = map(statistics.median, zip(*seen, strict=True))
            yield when, ready / 1000, weight / 1e6, round(parts)
            time.sleep(PACKING_S)
    finally:
        driver.quit()


# ---- the run --------------------------------------------------------------------------------------------------------


def running(port: int) -> Iterator[None]:
    """A server with empty caches, for as long as it is needed."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "ATLAS_CACHE": cache}
        process = subprocess.Popen([sys.executable, __file__, "--serve", str(port)], env=environment, cwd=ROOT)
        try:
            for _ in range(600):
                time.sleep(0.2)
                try:
                    if Line(port).json("/health")["status"] == "ok":
                        break
                except OSError:
                    continue
            yield
        finally:
            process.terminate()
            process.wait()


def quantile(values: list[float], share: float) -> float:
    """The value below which a share of the values lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def report(tally: Tally, seconds: float) -> bool:
    """One row a kind of switch and heat, beside the empty callback; False where an answer was an error."""
    base, wrong = tally.seconds["empty", "warm"], errors(tally)
    print(f"{len(tally.answers)} requests in {seconds:.0f} s, {len(wrong)} errors")
    for error in wrong[:5]:
        print("  " + error)
    print(f"{'switch':<12}{'':<6}{'n':>5}{'p50 ms':>9}{'p95 ms':>9}{'p95 / empty':>13}{'aim':>6}")
    for (kind, heat), values in sorted(tally.seconds.items(), key=lambda item: (item[0][0] != "empty", item[0])):
        middle, high = 1000 * quantile(values, 0.5), 1000 * quantile(values, 0.95)
        ratio = high / (1000 * quantile(base, 0.95))
        aim = "" if kind == "empty" else f"{AIMS[heat]:.0f}"
        print(f"{kind:<12}{heat:<6}{len(values):>5}{middle:>9.1f}{high:>9.1f}{ratio:>13.1f}{aim:>6}")
    return not wrong


def main() -> int:
    """Run, print, and fail where anything was answered with an error."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--openings", type=int, default=3, help="first views in Chromium; 0 for none")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.serve:
        serve(chosen.serve)
        return 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    tally = Tally()
    for _ in running(port):
        opened = {path: Page(Line(port), path) for path in {path for path, _, _ in SWITCHES.values()}}
        until = time.monotonic() + chosen.seconds
        users = [threading.Thread(target=user, args=(port, seed, until, opened, tally)) for seed in range(chosen.users)]
        for each in users:
            each.start()
        for each in users:
            each.join()
        print(f"{chosen.users} users, {os.cpu_count()} cores shared with them")
        right = report(tally, chosen.seconds)
        for when, ready, weight, count in first_view(port, chosen.openings) if chosen.openings else ():
            print(f"first view {when}: usable after {ready:.2f} s, {weight:.2f} MB transferred in {count} requests")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
