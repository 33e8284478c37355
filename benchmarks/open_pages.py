"""How long a link takes to become a page while the proxy is made ready, with text kept by Python and by pyarrow.

    python benchmarks/open_pages.py [--rounds 3]

A round is a fresh process a way of keeping text: the atlas starts with empty caches and reads its proxy in the
background, and pages are asked for one after the other, every link for the first time; then the last one once more.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

STORAGES = ("python", "pyarrow")
PAGES = ("/compare", "/attribution", "/neighbourhoods", "/relationships", "/compare")
SETTLE = 6.0
"""Seconds after the start: the proxy is being compiled by then."""


def opened(path: str, number: int) -> dict[str, Any]:
    """What a browser asks for when a link is opened; another number is another link."""
    from atlas.api.answers import OPENED

    location = {"pathname": path, "search": f"?theme=dark&n={number}"}
    return {
        "output": OPENED,
        "outputs": [{"id": "_pages_content", "property": "children"}, {"id": "_pages_store", "property": "data"}],
        "inputs": [{"id": "_pages_location", "property": name, "value": value} for name, value in location.items()],
        "changedPropIds": ["_pages_location.pathname"],
        "state": [],
    }


def measure(storage: str) -> list[float]:
    """Seconds of every page, and of the last one again."""
    import pandas as pd

    from atlas.application import create_application

    with tempfile.TemporaryDirectory() as folder:
        app = create_application(cache=Path(folder) / "cache")
        pd.set_option("mode.string_storage", storage)
        client = app.server.test_client()
        client.get("/")
        time.sleep(SETTLE)
        taken = []
        for number, path in [*enumerate(PAGES), (len(PAGES) - 1, PAGES[-1])]:
            started = time.perf_counter()
            answer = client.post("/_dash-update-component", json=opened(path, number))
            taken.append(time.perf_counter() - started)
            if answer.status_code != 200:
                raise RuntimeError(f"{path}: status {answer.status_code}")
        return taken


def main() -> None:
    """Print medians and ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--storage", choices=STORAGES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.storage:
        print(json.dumps(measure(arguments.storage)), flush=True)
        os._exit(0)  # The proxy is still being read.
    found: dict[str, list[list[float]]] = {storage: [] for storage in STORAGES}
    for _ in range(arguments.rounds):
        for storage in STORAGES:
            command = [sys.executable, __file__, "--storage", storage]
            told = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT).stdout
            found[storage].append(json.loads(told.splitlines()[-1]))
    middle = {
        storage: [statistics.median(column) for column in zip(*rows, strict=True)] for storage, rows in found.items()
    }
    for page, python, pyarrow in zip((*PAGES, "the last again"), *middle.values(), strict=True):
        print(f"{page:20} {python:7.3f} s, by pyarrow {pyarrow:7.3f} s: {pyarrow / python:.1f} times as long")


if __name__ == "__main__":
    main()
