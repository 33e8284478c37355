"""What REST costs beside the bare forward pass: 100 real traces through ``POST /api/attribute``, over HTTP.

    python benchmarks/attribute.py [--traces 100] [--rounds 5] [--enrolment NAME] [--device auto]

The traces are real ones: of the public release where it is here (ATLAS_RELEASE), else the shipped samples. Both sides
use the same loaded reader, in turns. The bare side reads the same tokens in the same batches and does nothing else; the
other side parses the request, keeps and deletes the file, tokenises, reads, scores, weighs, and writes the report with
its hashes. Loading and compiling are not counted (aim: at most 1.25 times). The first evidence is the first line of the
stream that holds some, after the request was sent (aim: at most two batches).
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import waitress
from flask import Flask
from flask_caching import Cache

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from atlas import api
from atlas.data import QueryCache
from backend.attribution.scoring import BATCHES
from backend.corpus.collection import sample_records
from backend.corpus.release import Release, default_release
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import enrolments, load_enrolment
from backend.errors import AtlasError
from backend.proxies.encoding import Encoded
from backend.proxies.reader import Reader
from backend.proxies.registry import load_reader, proxy_hash
from backend.service.service import Service
from backend.store.database import default_data_folder
from backend.traces import Trace


def real_traces(count: int, enrolment: Enrolment) -> tuple[list[Trace], str]:
    """Traces of one enrolled source (of several, where one has too few), and where they come from."""
    try:
        records, name = Release(default_release()).records("agent500"), "Agent500"
    except AtlasError:
        records, name = sample_records(), "the shipped samples"
    if not set(records.sources) & set(enrolment.sources):
        records, name = sample_records(), "the shipped samples"
    per_source = len(records.prompt_ids)
    first = next((i for i, source in enumerate(records.sources) if source in enrolment.sources), 0)
    rows = itertools.islice(itertools.cycle(range(len(records.traces))), first * per_source, None)
    return [records.traces[i] for i in itertools.islice(rows, count)], name


def bare(reader: Reader, batches: list[list[Encoded]], layers: list[int]) -> float:
    """Seconds of the forward passes alone."""
    started = time.perf_counter()
    for batch in batches:
        reader.read(batch, layers)
    return time.perf_counter() - started


def by_rest(url: str, body: bytes) -> tuple[float, float, int]:
    """Seconds until the report is here, seconds until the first evidence, and traces of which that is."""
    headers = {"Content-Type": "application/json", "Accept": "application/x-ndjson"}
    if token := os.environ.get("ATLAS_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(f"{url}/api/attribute", body, headers)
    started = time.perf_counter()
    with urllib.request.urlopen(request) as answer:
        first: dict[str, Any] = {}
        for line in answer:
            last = json.loads(line)
            if not first and last.get("evidence"):  # before that, the stream only says that it is alive
                first, early = last, time.perf_counter() - started
    took = time.perf_counter() - started
    if last["event"] != "report":
        raise SystemExit(f"No report: {json.dumps(last)[:400]}")
    if not first:
        raise SystemExit("The report came without any evidence before it")
    return took, early, first["done"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--enrolment", help="name of a published enrolment (default: the one with most sources)")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()

    data = default_data_folder()
    held = {name: load_enrolment(path) for name, path in enrolments(data).items()}
    if not held:
        raise SystemExit("No enrolment is published here. Run: python -m jobs enroll --sample")
    enrolment = held[arguments.enrolment] if arguments.enrolment else max(held.values(), key=lambda e: len(e.sources))
    started = time.perf_counter()
    reader = load_reader(enrolment.proxy, arguments.device)
    loading, digest = time.perf_counter() - started, proxy_hash(enrolment.proxy)
    traces, origin = real_traces(arguments.traces, enrolment)
    encoded = reader.encode(traces, enrolment.view)
    ends = list(itertools.accumulate(itertools.chain(BATCHES, itertools.repeat(BATCHES[-1], len(traces)))))
    cuts = [0, *(end for end in ends if end < len(traces)), len(traces)]
    batches = [encoded[a:b] for a, b in itertools.pairwise(cuts)]
    print(f"{len(traces)} traces of {origin}, {sum(len(e.ids) for e in encoded):,} tokens; {enrolment.name}")
    print(f"{enrolment.proxy}, blocks 1..{enrolment.layers[-1]}, {reader.engine}, loaded in {loading:.1f} s")

    with tempfile.TemporaryDirectory() as scratch:
        server = Flask("benchmark")
        asked = QueryCache(data, Cache(server, config={"CACHE_TYPE": "SimpleCache"}))
        service = Service(data, Path(scratch), load=lambda proxy: (reader, digest))
        api.install(server, asked, service)
        web = waitress.create_server(server, host="127.0.0.1", port=0, threads=4)
        threading.Thread(target=web.run, daemon=True).start()
        url = f"http://127.0.0.1:{web.effective_port}"
        told = [{"prompt": trace.prompt, "response": trace.response} for trace in traces]
        body = json.dumps({"traces": told, "enrolment": enrolment.name, "keep_duplicates": True}).encode()

        started = time.perf_counter()
        bare(reader, batches, enrolment.layers)
        by_rest(url, body)
        print(f"first run of both, with compilation: {time.perf_counter() - started:.1f} s")
        plain, rest, early, ratios = [], [], [], []
        for number in range(arguments.rounds):
            alone = bare(reader, batches, enrolment.layers)
            took, first, done = by_rest(url, body)
            plain, rest, early = [*plain, alone], [*rest, took], [*early, first]
            ratios.append(took / alone)
            print(f"  round {number + 1}: bare {alone:.2f} s, REST {took:.2f} s, first {done} traces {first:.2f} s")
        web.close()
    print(f"bare forward pass      {statistics.median(plain):7.2f} s")
    print(f"POST /api/attribute    {statistics.median(rest):7.2f} s")
    print(f"first evidence         {statistics.median(early):7.2f} s")
    print(f"ratio                  {statistics.median(ratios):7.3f}   (median; aim: at most 1.25)")


if __name__ == "__main__":
    main()
