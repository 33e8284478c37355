"""The REST interface on a bare server with a tiny proxy: what Dash adds is a route that answers any other GET."""

from __future__ import annotations

import contextlib
import functools
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from flask import Flask
from flask_caching import Cache

from atlas import api, logs
from atlas.data import QueryCache
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.fit import enrolment_of_traces
from backend.proxies.reader import Reader
from backend.service.service import Service
from tests.attribution.test_run import STYLES, labelled
from tests.tiny_models import tiny_decoder, tiny_tokenizer

HASH = "f" * 64


def tiny_reader() -> Reader:
    """Two blocks with random weights."""
    return Reader(tiny_decoder(), tiny_tokenizer(), compile_blocks=False)


@functools.cache
def tiny_enrolment() -> Enrolment:
    """Three styles that even the random weights of :func:`tiny_reader` tell apart."""
    traces, labels = labelled()
    return enrolment_of_traces(
        traces, labels, tiny_reader(), name="tiny", proxy="tiny", weights_hash=HASH, view="ur", layer=2,
        families={"plain": "words", "shout": "words"},
    )  # fmt: skip


def traces_of(style: str, count: int = 12) -> list[dict[str, str]]:
    """Traces of one style on prompts that were not enrolled."""
    return [{"prompt": f"New {i}?", "response": STYLES[style].format(i=i)} for i in range(count)]


def lines_of(style: str, count: int = 12) -> bytes:
    """The same as JSONL."""
    return "\n".join(json.dumps(trace) for trace in traces_of(style, count)).encode()


def serve(data: Path, cache: Path, load: Callable[[str], tuple[Reader, str | None]]) -> tuple[Flask, Service]:
    """A server with the REST interface and nothing else."""
    server = Flask("api")
    asked = QueryCache(data, Cache(server, config={"CACHE_TYPE": "SimpleCache"}))
    service = Service(data, cache, load=load)
    logs.install(server)
    api.install(server, asked, service)

    @server.get("/", defaults={"path": ""})
    @server.get("/<path:path>")
    def page(path: str) -> str:
        return f"the page of {path}"

    return server, service


@contextlib.contextmanager
def occupied(service: Service) -> Iterator[None]:
    """While the worker of a service is busy with something else."""
    tasks, gate, entered = service._queue.tasks, threading.Event(), threading.Event()
    answering = tasks["tokens"]

    def hold(_: str) -> None:
        entered.set()
        gate.wait(300)

    tasks["tokens"] = hold
    service._queue.put("tokens", "nothing", short=True, priority=0.0)
    service._worker.start()
    assert entered.wait(300)
    tasks["tokens"] = answering
    try:
        yield
    finally:
        gate.set()
