"""What an attack on the server found: every attempt is refused at no cost, and everybody else is served meanwhile."""

from __future__ import annotations

import contextlib
import gc
import http.client
import io
import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from dash import Dash
from flask.testing import FlaskClient
from hypothesis import given, settings
from hypothesis import strategies as st

from atlas import listener, logs, shell
from atlas.api import access, answers, requests
from atlas.application import create_application
from atlas.pages.attribute import visitor
from backend.attribution.settings import Settings
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import save_enrolment
from backend.errors import AtlasError, ServerError
from backend.output_files import plain_cell
from backend.proxies.reader import Reader
from backend.service import caller, records, uploads
from backend.service import worker as worker_module
from backend.service.server_key import server_key
from backend.service.service import Service
from backend.service.uploads import LIFETIME, BusyError, FullError, MissingError, Turns, Uploads
from tests.invented_atlas import publish_invented
from tests.served_api import HASH, lines_of, serve, tiny_enrolment, tiny_reader, traces_of

REPOSITORY = Path(__file__).resolve().parents[2]
ANN, BEN = "session-of-ann-0001", "session-of-ben-0002"
CALLBACK = "/_dash-update-component"
PATIENCE = 300


@pytest.fixture(scope="module")
def reader() -> Reader:
    return tiny_reader()


@pytest.fixture(scope="module")
def enrolment(reader: Reader) -> Enrolment:
    return tiny_enrolment()


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hostile")
    publish_invented(folder)
    return folder


@pytest.fixture(scope="module")
def app(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Dash:
    return create_application(data, tmp_path_factory.mktemp("cache") / "pages")


@pytest.fixture
def pages(app: Dash) -> FlaskClient:
    return app.server.test_client()


@pytest.fixture
def api(reader: Reader, enrolment: Enrolment, tmp_path: Path) -> tuple[FlaskClient, Service]:
    save_enrolment(enrolment, tmp_path / "data" / "enrolments" / "tiny.npz")
    server, service = serve(tmp_path / "data", tmp_path / "cache", lambda proxy: (reader, HASH))
    return server.test_client(), service


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nobody has sent a wrong token yet."""
    yield
    access.throttle._wrong.clear()


# Bodies

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.text('"\\[]{},:'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('"\\[{a'), inner),
)


def counted(value: Any) -> tuple[int, int]:
    """What :func:`requests.measure` counts, by walking the parsed value."""
    if isinstance(value, dict | list):
        inner = [counted(one) for one in (value.values() if isinstance(value, dict) else value)]
        marks = len(value) if isinstance(value, dict) else 0
        own = 1 + marks + max(0, len(value) - 1)
        return own + sum(count for count, _ in inner), 1 + max((depth for _, depth in inner), default=0)
    return 0, 0


@settings(max_examples=300, deadline=None)
@given(JSON_VALUES, st.integers(1, 40), st.booleans())
def test_values_are_counted_without_parsing(value: Any, block: int, ascii_: bool) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_).encode("utf-8", "surrogatepass")
    before, requests.BLOCK = requests.BLOCK, block
    try:
        assert requests.measure(raw) == counted(value)
    finally:
        requests.BLOCK = before


@pytest.mark.parametrize("raw", [b"[" + b"[]," * 8_900_000 + b"[]]", b'{"traces":[' + b'{"a":1},' * 3_300_000 + b"1]}"])
def test_a_body_of_millions_of_values_is_not_parsed(api: tuple[FlaskClient, Service], raw: bytes) -> None:
    client, _ = api
    longest, stop = [0.0], threading.Event()

    def watch() -> None:
        while not stop.is_set():
            started = time.monotonic()
            time.sleep(0.01)
            longest[0] = max(longest[0], time.monotonic() - started)

    watcher = threading.Thread(target=watch)
    watcher.start()
    answer = client.post("/api/attribute", data=raw, content_type="application/json")
    stop.set()
    watcher.join()
    assert answer.status_code == 413 and "values" in answer.get_json(force=True)["detail"]
    assert longest[0] < 1.0


@pytest.mark.parametrize("text", ["\\ud83d\\ude80", "🚀"])
def test_a_body_that_grows_fourfold_is_not_parsed(api: tuple[FlaskClient, Service], text: str) -> None:
    client, _ = api
    for place in (0, requests.BLOCK - 25, 8_000_000):
        long = "x" * place + text + "x" * (8_000_000 - place)
        raw = f'{{"traces":[{{"response":"{long}"}}]}}'.encode()
        answer = client.post("/api/attribute", data=raw, content_type="application/json")
        assert answer.status_code == 413 and "U+FFFF" in answer.get_json(force=True)["detail"]
    assert not requests.is_wide("é中\\u4e2d\\u00e9".encode())


def test_bodies_are_limited_by_route_and_type(api: tuple[FlaskClient, Service], pages: FlaskClient) -> None:
    client, _ = api
    big = b"x" * (requests.SMALL + 1)
    for path, kind in (
        ("/api/session", "application/json"), ("/api/attribute", "text/plain"), ("/api/zz", "application/json"),
    ):  # fmt: skip
        assert client.post(path, data=big, content_type=kind).status_code == 413
    assert pages.post(CALLBACK, data=big, content_type="text/plain").status_code == 413
    assert pages.post("/", data=big).status_code == 413
    assert pages.get("/", data=big).status_code == 413
    deep = b"[" * 100_000 + b"]" * 100_000
    for one, path in ((client, "/api/attribute"), (pages, CALLBACK)):
        answer = one.post(path, data=deep, content_type="application/json")
        assert answer.status_code == 400 and "deep" in answer.get_json(force=True)["detail"]


def test_large_bodies_take_turns() -> None:
    turns, entered, leave = Turns(places=1, waiting=1, seconds=0.2), threading.Event(), threading.Event()

    def hold() -> None:
        with turns.turn("busy"):
            entered.set()
            leave.wait(PATIENCE)

    thread = threading.Thread(target=hold)
    thread.start()
    assert entered.wait(PATIENCE)
    with pytest.raises(BusyError, match="busy"), turns.turn("busy"):
        raise AssertionError("two at a time")
    leave.set()
    thread.join()
    with turns.turn("busy"):
        pass


def test_whoever_comes_while_others_send_is_sent_away(
    api: tuple[FlaskClient, Service], pages: FlaskClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "turns", Turns(places=1, waiting=0, seconds=1))
    big = b" " * (requests.LARGE + 1)
    with requests.turns.turn("held"):
        for one, path in ((api[0], "/api/attribute"), (pages, CALLBACK)):
            answer = one.post(path, data=big, content_type="application/json")
            assert answer.status_code == 429 and answer.headers["Retry-After"]
    assert pages.post(CALLBACK, data=big, content_type="application/json").status_code == 400
    assert pages.post(CALLBACK, data=big, content_type="application/json").status_code == 400  # the place is free again


def test_files_are_parsed_a_few_at_a_time(api: tuple[FlaskClient, Service], monkeypatch: pytest.MonkeyPatch) -> None:
    client, service = api
    few = Turns(places=1, waiting=0, seconds=1)
    monkeypatch.setattr(uploads, "parsing", few)
    key = service.upload(ANN, "t.jsonl", lines_of("plain")).key
    with few.turn("held"):
        for ask in (service.inspect, service.read_report, lambda *upload: service.start(*upload, Settings())):
            with pytest.raises(BusyError):
                ask(ANN, key)
        assert client.post("/api/preview", data={"file": (io.BytesIO(b"{}"), "t")}).status_code == 429


@pytest.mark.parametrize(
    "report",
    [b"[" + b"[]," * 8_000_000 + b"[]]", b'{"format":4,"traces":[' + b'{"":1},' * 3_000_000 + b"{}]}", b"[" * 100_000],
)
def test_a_hostile_report_is_not_parsed(api: tuple[FlaskClient, Service], report: bytes) -> None:
    _, service = api
    key = service.upload(ANN, "report.json", report).key
    started = time.thread_time()
    with pytest.raises(AtlasError, match=r"too many values|is no report"):
        service.agrees(ANN, key)
    assert time.thread_time() - started < 2


# The line


@pytest.fixture
def line(api: tuple[FlaskClient, Service], monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Port of the server behind waitress."""
    import waitress
    from waitress.server import TcpWSGIServer

    monkeypatch.setattr(TcpWSGIServer, "channel_class", listener.Channel)
    server = waitress.create_server(api[0].application, host="127.0.0.1", port=0, threads=4, channel_timeout=5)

    def run() -> None:
        with contextlib.suppress(OSError):  # its socket is closed under it
            server.run()

    threading.Thread(target=run, daemon=True).start()
    yield int(server.effective_port)
    server.close()


def head(port: int, path: str, length: int, *more: str) -> bytes:
    """First bytes of the answer to a request of which the body is never sent."""
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {length}", *more, "", ""]
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as line:
        line.sendall("\r\n".join(lines).encode())
        return line.recv(65_536)


def test_a_body_without_the_token_is_refused_before_it_is_read(line: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATLAS_TOKEN", "s3cret")
    for path in ("/api/attribute", CALLBACK):
        answer = head(line, path, 20_000_000, "Content-Type: application/json")
        assert answer.startswith(b"HTTP/1.1 401 ") and b"application/problem+json" in answer
        assert b"www-authenticate: bearer" in answer.lower() and b"nosniff" in answer
    expecting = head(line, "/api/attribute", 20_000_000, "Content-Type: application/json", "Expect: 100-continue")
    assert expecting.startswith(b"HTTP/1.1 401 ")
    right = head(
        line, "/api/attribute", 20_000_000, "Content-Type: application/json", "Authorization: Bearer s3cret",
        "Expect: 100-continue",
    )  # fmt: skip
    assert right.startswith(b"HTTP/1.1 100 ")
    assert not access.throttle._wrong  # a look ahead counts no token


def test_whoever_sends_too_much_reads_why(line: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", line, timeout=PATIENCE)
    for size in (30_000_000, 60_000_000):
        connection.request("POST", "/api/attribute", b"x" * size, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 413 and "command line" in json.loads(answer.read())["remedy"]
        connection.close()
    connection = http.client.HTTPConnection("127.0.0.1", line, timeout=PATIENCE)
    chunks = iter([b"x" * 50_000] * 40)
    connection.request("POST", "/api/session", chunks, {"Content-Type": "application/json"}, encode_chunked=True)
    assert connection.getresponse().status == 413


def test_one_client_sends_a_few_large_bodies_at_a_time(line: int) -> None:
    first = "POST /api/attribute HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    open_ones = []
    for _ in range(listener.CLIENT_BODIES):
        connection = socket.create_connection(("127.0.0.1", line), timeout=PATIENCE)
        connection.sendall(f"{first}Content-Length: 9000000\r\n\r\n[".encode())
        open_ones.append(connection)
    deadline = time.monotonic() + PATIENCE
    while not head(
        line, "/api/attribute", 9_000_000, "Content-Type: application/json", "Expect: 100-continue"
    ).startswith(b"HTTP/1.1 429 "):
        assert time.monotonic() < deadline
    for connection in open_ones:
        connection.close()
    while not head(
        line, "/api/attribute", 9_000_000, "Content-Type: application/json", "Expect: 100-continue"
    ).startswith(b"HTTP/1.1 100 "):
        assert time.monotonic() < deadline


# Callbacks and paths


def asked_for(app: Dash, **changed: Any) -> dict[str, Any]:
    """The body of some callback."""
    output = next(name for name in app.callback_map if name.startswith("..attr-token-said"))
    known = app.callback_map[output]
    body = {
        "output": output,
        "outputs": [{"id": "attr-token-said", "property": "children"}, {"id": "attr-token", "property": "value"}],
        "inputs": [one | {"value": None} for one in known["inputs"]],
        "state": [one | {"value": None} for one in known["state"]],
        "changedPropIds": ["attr-token-go.n_clicks"],
    }
    return body | changed


def test_malformed_callbacks_are_one_line_each(app: Dash, pages: FlaskClient, caplog: pytest.LogCaptureFixture) -> None:
    single = {"id": "attr-token-said", "property": "children"}
    for outputs in (asked_for(app)["outputs"], single, [[single]]):  # of several, of one, and of a pattern
        assert pages.post(CALLBACK, json=asked_for(app, outputs=outputs)).status_code != 400
    wrong = [
        {"inputs": []}, {"inputs": [1]}, {"inputs": [{}]}, {"inputs": None}, {"inputs": [{"id": 1, "property": "x"}]},
        {"inputs": [[[]]]}, {"state": {}}, {"state": [{"id": {"a": []}, "property": "x"}]}, {"changedPropIds": [[]]},
        {"changedPropIds": 5}, {"outputs": 7}, {"outputs": [7]}, {"output": "x"}, {"output": None},
    ]  # fmt: skip
    caplog.clear()
    for change in wrong:
        assert pages.post(CALLBACK, json=asked_for(app, **change)).status_code == 400, change
    # A server that another test has stopped may still tell of its end.
    told = [record for record in caplog.records if record.name != "waitress"]
    assert len(told) == len(wrong)
    numbers = [int(record.getMessage().split("number ")[1].split()[0]) for record in told]
    assert numbers == list(range(numbers[0], numbers[0] + len(wrong)))
    assert not any(record.exc_info for record in told)


def test_a_failure_is_traced_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        try:
            json.loads("{")
        except ValueError as error:
            logs.log_failure("Reading failed", error)
    assert [record.exc_info is not None for record in caplog.records][1:] == [False, False]
    assert "time 3" in caplog.records[-1].getMessage()


def test_what_there_is_not_is_not_found(app: Dash, pages: FlaskClient) -> None:
    for path in ("/.env", "/healthz", "/wp-login.php", "/source", "/a/b", "/map/"):
        assert pages.get(path).status_code == 404, path
    for path in ("/", "/attribute", "/methods", "/source/a%2Fb", "/family/GPT", "/health", "/ready"):
        assert pages.get(path).status_code == 200, path
    for path in ("zz/x.js", "dash/zz.js", "dash/../../app.py", "dash", ""):
        answer = pages.get(f"/_dash-component-suites/{path}")
        assert answer.status_code == 404 and b"Traceback" not in answer.data


# Uploads


def test_files_that_another_session_deletes_are_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Uploads(tmp_path / "uploads")
    held.add(BEN, "b", b"b")
    scan, gone = os.scandir, list[Any]()

    def deleting(path: Any) -> Any:
        entries = list(scan(path))
        if str(path).endswith("uploads"):  # between the look and the sizes
            shutil.rmtree(held.place(BEN), ignore_errors=True)
            gone.append(path)

        class Listed(list):
            def __enter__(self) -> Any:
                return self

            def __exit__(self, *_: object) -> None:
                pass

        return Listed(entries)

    monkeypatch.setattr(uploads.os, "scandir", deleting)
    assert held.add(ANN, "a", b"a").size == 1
    assert gone


def test_sessions_that_end_at_once_refuse_nobody(tmp_path: Path) -> None:
    held, errors = Uploads(tmp_path), list[Exception]()

    def come_and_go(number: int) -> None:
        for turn in range(60):
            try:
                held.add(f"session-number-{number:04}", "t", f"{turn}".encode())
                held.forget(f"session-number-{number:04}")
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=come_and_go, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_full_disk_is_the_servers_fault(api: tuple[FlaskClient, Service], monkeypatch: pytest.MonkeyPatch) -> None:
    client, service = api

    def write(error: int) -> Any:
        def fail(self: Path, content: bytes) -> int:
            raise OSError(error, os.strerror(error))

        return fail

    for error, kind, status in ((28, FullError, 507), (5, ServerError, 503)):
        monkeypatch.setattr(Path, "write_bytes", write(error))
        with pytest.raises(kind):
            service.upload(ANN, "t", b"x")
        assert client.post("/api/attribute", json={"traces": traces_of("plain", 2)}).status_code == status


def test_a_report_that_the_disk_does_not_take_is_the_servers_fault(
    api: tuple[FlaskClient, Service], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(worker_module.np, "savez", fail)
    assert api[0].post("/api/attribute", json={"traces": traces_of("plain", 2)}).status_code == 503
    assert "No space left" in caplog.text


def test_folders_of_uploads_are_for_the_server_alone(tmp_path: Path) -> None:
    held = Uploads(tmp_path / "cache" / "uploads")
    (tmp_path / "cache" / "uploads").mkdir(parents=True, mode=0o755)
    held.add(ANN, "t", b"x")
    assert {oct(path.stat().st_mode & 0o777) for path in (held.folder, held.place(ANN))} == {"0o700"}


def test_what_a_dead_process_was_answering_is_deleted(tmp_path: Path) -> None:
    dead = Service(tmp_path / "data", tmp_path / "left")
    name, left = dead.process, dead.uploads
    dead.upload("request-of-a-dead-process", "t", b"text", passing=True)
    kept = dead.upload(ANN, "t", b"text").key
    future = dead.upload(BEN, "t", b"future").key
    ahead = time.time() + 10 * LIFETIME
    for file in left.place(BEN).iterdir():
        os.utime(file, (ahead, ahead))
    with pytest.raises(MissingError):
        left.get(BEN, future)
    again = Service(tmp_path / "data", tmp_path / "left")
    again.tend()
    place, folder = left.place("request-of-a-dead-process"), left.folder
    assert place.exists()  # while the other process lives
    (left.place(ANN) / uploads.PASSING).touch()  # as it is for a moment while it is written
    assert left.passing(["somebody else"]) == [place]
    del dead
    gc.collect()
    table = again.records.processes
    table.update(beat=time.time() - records.GONE - 1).where(table.name == name).execute()
    again.tend()
    assert not place.exists()
    assert again.uploads.get(ANN, kept)[0].size == 4
    assert b"future" not in [file.read_bytes() for file in folder.rglob("*.file")]


# Jobs


class Gate:
    """A proxy that waits at every batch."""

    def __init__(self, reader: Reader) -> None:
        self.open, self.entered, self._reader = threading.Event(), threading.Event(), reader

    def __getattr__(self, name: str) -> object:
        return getattr(self._reader, name)

    def read(self, *arguments: object) -> object:
        self.entered.set()
        assert self.open.wait(PATIENCE)
        return self._reader.read(*arguments)  # type: ignore[arg-type]


@pytest.fixture
def gated(reader: Reader, enrolment: Enrolment, tmp_path: Path) -> Iterator[tuple[FlaskClient, Service, Gate]]:
    save_enrolment(enrolment, tmp_path / "data" / "enrolments" / "tiny.npz")
    gate = Gate(reader)
    server, service = serve(tmp_path / "data", tmp_path / "cache", lambda proxy: (gate, HASH))  # type: ignore[arg-type, return-value]
    yield server.test_client(), service, gate
    gate.open.set()


def test_one_client_leaves_places_to_others(
    gated: tuple[FlaskClient, Service, Gate], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _, _ = gated
    monkeypatch.setattr(records, "CLIENT_JOBS", 3)
    later, body = {"Prefer": "respond-async"}, {"traces": traces_of("plain", 2)}

    def sent(address: str) -> int:
        answer = client.post("/api/attribute", json=body, headers=later, environ_base={"REMOTE_ADDR": address})
        return int(answer.status_code)

    assert [sent("192.0.2.1") for _ in range(4)] == [202, 202, 202, 429]
    assert sent("192.0.2.2") == 202


def test_a_stop_loses_no_audit(
    gated: tuple[FlaskClient, Service, Gate], reader: Reader, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """What is short ends, what is longer or waits is done after the next start, and the request under way is gone."""
    client, service, gate = gated
    short = service.start(ANN, service.upload(ANN, "s.jsonl", lines_of("plain", 40)).key, Settings(orders=1))
    assert gate.entered.wait(PATIENCE)
    long = service.start(ANN, service.upload(ANN, "l.jsonl", lines_of("shout", 240)).key, Settings(orders=1))
    later = client.post(
        "/api/attribute", json={"traces": traces_of("plain", 2)}, headers={"Prefer": "respond-async"}
    ).get_json()
    service.upload("request-under-way-1", "t", b"text", passing=True)
    threading.Timer(0.3, gate.open.set).start()
    service.close(PATIENCE)
    assert [service.progress(ANN, job).state for job in (short, long)] == ["done", "queued"]
    assert "after the batch" in caplog.text and "2 audits wait for another worker or the next start" in caplog.text
    assert not service.uploads.place("request-under-way-1").exists()
    with pytest.raises(ServerError, match="being stopped"):
        service.start(ANN, service.upload(ANN, "s.jsonl", lines_of("plain", 40)).key, Settings())
    server, again = serve(tmp_path / "data", tmp_path / "cache", lambda proxy: (reader, HASH))
    assert again.wait(ANN, long, PATIENCE).state == "done"
    assert again.report(ANN, long)["results"]["traces"] == 240
    session, _, job = later["job"].partition(".")
    assert again.wait(session, job, PATIENCE).state == "done"
    where = f"/api/jobs/{later['job']}"
    assert server.test_client().get(where).get_json()["report"]["results"]["leader"] == "plain"
    assert server.test_client().delete(where).status_code == 204
    assert server.test_client().delete(where).status_code == 404
    assert not again.uploads.place(session).exists()


def test_a_longer_audit_is_given_back_after_its_batch(
    gated: tuple[FlaskClient, Service, Gate], reader: Reader, tmp_path: Path
) -> None:
    _, service, gate = gated
    job = service.start(ANN, service.upload(ANN, "t.jsonl", lines_of("shout", 240)).key, Settings(orders=1))
    assert gate.entered.wait(PATIENCE)
    threading.Timer(0.3, gate.open.set).start()
    service.close(PATIENCE)
    now = service.progress(ANN, job)
    assert (now.state, now.done, now.points) == ("queued", 0, ())
    _, again = serve(tmp_path / "data", tmp_path / "cache", lambda proxy: (reader, HASH))
    assert again.wait(ANN, job, PATIENCE).state == "done"


def test_every_failed_job_has_a_line(enrolment: Enrolment, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def load(proxy: str) -> Any:
        raise AtlasError("The weights of tiny are not here", "Run: python -m jobs proxies install tiny")

    save_enrolment(enrolment, tmp_path / "data" / "enrolments" / "tiny.npz")
    server, service = serve(tmp_path / "data", tmp_path / "cache", load)
    job = service.start(ANN, service.upload(ANN, "t.jsonl", lines_of("plain")).key, Settings())
    assert service.wait(ANN, job, PATIENCE).state == "failed"
    (line,) = [record.getMessage() for record in caplog.records if job in record.getMessage()]
    assert "weights of tiny" in line
    service.warm()
    deadline = time.monotonic() + PATIENCE
    while service.state().status == "loading" and time.monotonic() < deadline:
        time.sleep(0.01)
    told = server.test_client().get("/health").get_json()
    assert told["status"] == "degraded" and any("weights of tiny" in problem for problem in told["problems"])


# Names and tokens


def test_an_open_server_takes_no_uploads_unless_told_to(
    api: tuple[FlaskClient, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _ = api
    body = {"traces": traces_of("plain", 2)}
    for environ in ({}, {"SERVER_NAME": "127.0.0.1"}, {"SERVER_NAME": "waitress.invalid"}):
        assert client.post("/api/preview", json=body, environ_overrides=environ).status_code == 200
    everywhere = {"SERVER_NAME": "0.0.0.0"}  # as gunicorn says it
    refused = client.post("/api/preview", json=body, environ_overrides=everywhere)
    assert refused.status_code == 403 and "ATLAS_OPEN" in refused.get_json(force=True)["detail"]
    monkeypatch.setitem(client.application.config, access.ADDRESS, "0.0.0.0")
    assert client.post("/api/preview", json=body).status_code == 403
    with client.application.test_request_context("/"), pytest.raises(AtlasError, match="takes no traces"):
        visitor.admitted()
    monkeypatch.setenv("ATLAS_OPEN", "1")
    assert client.post("/api/preview", json=body, environ_overrides=everywhere).status_code == 200
    monkeypatch.delenv("ATLAS_OPEN")
    monkeypatch.setenv("ATLAS_TOKEN", "t")
    right = {"Authorization": "Bearer t"}
    assert client.post("/api/preview", json=body, headers=right, environ_overrides=everywhere).status_code == 200


def test_wrong_tokens_wait(
    api: tuple[FlaskClient, Service], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    client, _ = api
    monkeypatch.setenv("ATLAS_TOKEN", "right")

    def told(token: str, address: str = "192.0.2.1") -> int:
        headers, environ = {"Authorization": f"Bearer {token}"}, {"REMOTE_ADDR": address}
        return int(client.get("/api/ecosystems", headers=headers, environ_base=environ).status_code)

    assert [told("wrong") for _ in range(access.TRIES)] == [401] * access.TRIES
    assert told("wrong") == told("right") == 429
    assert told("right", "192.0.2.2") == 200
    assert "Wrong token number 5 from 192.0.2.1" in caplog.text
    answer = client.post("/api/session", json={"token": "wrong"}, environ_base={"REMOTE_ADDR": "192.0.2.1"})
    assert answer.status_code == 429
    monkeypatch.setattr(access.time, "monotonic", lambda: time.time() + 10**9)
    assert told("right") == 200


def test_a_cookie_ends_with_its_delete(api: tuple[FlaskClient, Service], monkeypatch: pytest.MonkeyPatch) -> None:
    client, _ = api
    monkeypatch.setenv("ATLAS_TOKEN", "right")
    assert client.post("/api/session", json={"token": "right"}).status_code == 204
    cookie = client.get_cookie(access.COOKIE)
    assert cookie is not None and client.get("/api/ecosystems").status_code == 200
    assert client.delete("/api/session").status_code == 204
    thief = client.application.test_client()
    thief.set_cookie(access.COOKIE, cookie.value)
    assert thief.get("/api/ecosystems").status_code == 401
    thief.set_cookie(access.COOKIE, "x" * 43)
    assert thief.get("/api/ecosystems").status_code == 401


def test_a_session_is_one_that_the_server_made(app: Dash, tmp_path: Path) -> None:
    server = app.server
    name = visitor.COOKIE

    def key_of(cookie: str, **more: Any) -> str:
        with server.test_request_context("/", headers={"Cookie": f"{name}={cookie}"}, **more):
            return visitor.session()

    for invented in ("a" * 43, f"{'a' * 43}.", f"{'a' * 43}.{'0' * 64}", "", ".", "é"):
        assert key_of(invented) == ""
    with server.test_request_context("/"):
        good = f"{'b' * 43}.{visitor._sign('b' * 43)}"
    assert key_of(good) == "b" * 43
    assert key_of(good[:-1] + ("0" if good[-1] != "0" else "1")) == ""
    with server.test_request_context("/", base_url="https://localhost", headers={"Cookie": f"{name}={good}"}):
        assert visitor.session() == ""  # over TLS only the name that no other host can set
    with server.test_request_context("/", base_url="https://localhost", headers={"Cookie": f"__Host-{name}={good}"}):
        assert visitor.session() == "b" * 43
    file = tmp_path / "key"
    assert server_key(file) == server_key(file) and file.stat().st_mode & 0o077 == 0


def test_strangers_see_no_private_sources(app: Dash, pages: FlaskClient, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = app.server.extensions["atlas"]
    monkeypatch.setenv("ATLAS_TOKEN", "t")
    assert b"27-way" in pages.get("/_dash-layout").data
    monkeypatch.setattr(type(asked), "holds_own_sources", lambda self: True)
    assert b"27-way" not in pages.get("/_dash-layout").data
    origins = next(name for name in app.callback_map if "origin" in name)
    known = app.callback_map[origins]
    body = {"output": origins, "inputs": known["inputs"], "state": [[] for _ in known["state"]], "outputs": [[]]}
    assert pages.post(CALLBACK, json=body).status_code == 401
    opened = {
        "output": answers.OPENED,
        "outputs": [{"id": "_pages_content", "property": "children"}, {"id": "_pages_store", "property": "data"}],
        "inputs": [
            {"id": "_pages_location", "property": "pathname", "value": "/compare"},
            {"id": "_pages_location", "property": "search", "value": ""},
        ],
        "changedPropIds": ["_pages_location.pathname"],
    }
    shown = pages.post(CALLBACK, json=opened).get_data(as_text=True)
    assert "attr-token-place" in shown and "27-way" not in shown
    right = {"Authorization": "Bearer t"}
    assert "attr-token-place" not in pages.post(CALLBACK, json=opened, headers=right).get_data(as_text=True)
    assert "attr-token-place" in pages.post(CALLBACK, json=opened).get_data(as_text=True)
    with app.server.test_request_context("/"):
        assert visitor.ecosystems() == []


# What is said


def test_no_request_forges_a_line() -> None:
    formatter = logs.LineFormatter()
    record = logging.LogRecord("x", logging.ERROR, "f", 1, "%s failed", ("/a\r\n2026 INFO forged\x1b[2J\u2028",), None)
    line = formatter.format(record)
    assert len(line.splitlines()) == 1 and "\\x0d\\x0a2026" in line and "\x1b" not in line
    assert line.split()[1] == "ERROR" and line[:4].isdigit() and "[-]" in line
    try:
        raise ValueError("a\nb\x1b")
    except ValueError:
        record = logging.LogRecord("x", logging.ERROR, "f", 1, "failed", (), sys.exc_info())
    assert all(part.startswith("  ") for part in formatter.format(record).splitlines()[1:])


def test_a_request_has_an_id(app: Dash, pages: FlaskClient) -> None:
    first, second = (pages.get("/health").headers[logs.HEADER] for _ in range(2))
    assert len(first) == 12 and first != second
    record = logging.LogRecord("x", logging.INFO, "f", 1, "m", (), None)
    with app.server.test_request_context("/"):
        app.server.preprocess_request()
        assert f"[{caller.current().request}]" in logs.LineFormatter().format(record)


def test_ready_is_whether_anything_can_be_served(pages: FlaskClient, tmp_path: Path) -> None:
    assert pages.get("/ready").get_json() == {"ready": True}
    server, _ = serve(tmp_path / "nothing", tmp_path / "cache", lambda proxy: (None, None))  # type: ignore[arg-type, return-value]
    answer = server.test_client().get("/ready")
    assert answer.status_code == 503 and "python -m jobs" in answer.get_json()["problem"]


def test_damage_is_named_and_nobody_answers_for_it(
    api: tuple[FlaskClient, Service], enrolment: Enrolment, tmp_path: Path
) -> None:
    client, service = api
    folder = tmp_path / "data" / "enrolments"
    body = {"traces": traces_of("plain", 2)}
    assert client.post("/api/attribute", json=body).status_code == 200
    assert client.get("/health").get_json()["problems"][1:] == []  # there is no generation here
    save_enrolment(replace(enrolment, name="larger"), folder / "larger.npz")
    (folder / "larger.npz").write_bytes((folder / "larger.npz").read_bytes()[:-999])
    for asked in ({}, {"enrolment": "larger"}, {"claimed": "plain"}):
        answer = client.post("/api/attribute", json=body | asked)
        told = answer.get_json(force=True)
        assert answer.status_code == 503 and "'larger' is damaged" in told["detail"] and "tiny" in told["remedy"]
    assert client.post("/api/attribute", json=body | {"enrolment": "tiny"}).status_code == 200
    assert any("larger.npz" in problem for problem in client.get("/health").get_json()["problems"])
    (error,) = service.damaged()
    publish_invented(tmp_path / "data")
    server = create_application(tmp_path / "data", tmp_path / "pages").server
    server.extensions["attribution"].ecosystems()
    assert "larger.npz" in server.test_client().get("/_dash-layout").get_data(as_text=True)
    (folder / "larger.npz").unlink()
    assert client.post("/api/attribute", json=body).status_code == 200
    assert service.damaged() == [] and str(error)


# What is taken away


def test_rows_without_times_and_ids_have_a_table() -> None:
    for values in ([None, None], [float("nan")] * 2, []):
        frame = pd.DataFrame({"number": range(len(values)), "time": pd.Series(values, dtype="str")})
        assert shell.table(frame) is not None
        assert shell.table(frame.astype({"time": object})) is not None


@pytest.mark.parametrize(
    "text", ["=1+1", " =1", "\t=1", "\n@x", "\u00a0-1", "＝1+1", " ＋1", "\ufeff=1", "\r=1", "-", "＠x"]
)
def test_cells_that_a_spreadsheet_would_run(text: str) -> None:
    assert plain_cell(text) == f"'{text}"
    frame = pd.DataFrame({"name": [text]})
    assert pd.read_csv(io.StringIO(shell.csv_text(frame)))["name"][0].startswith("'")
    for plain in ("a=1", "1-1", "", "é", -1.5, None):
        assert plain_cell(plain) == plain


def test_reports_are_taken_away_and_not_kept(api: tuple[FlaskClient, Service]) -> None:
    client, service = api
    answer = client.post("/api/attribute", json={"traces": traces_of("plain", 2)}, headers={"Prefer": "respond-async"})
    session, _, job = answer.get_json()["job"].partition(".")
    service.wait(session, job, PATIENCE)
    for form in ("json", "csv", "html"):
        headers = client.get(f"{answer.headers['Location']}/report?form={form}").headers
        assert headers["Cache-Control"] == "no-store"
        assert headers.get("Content-Disposition", "") == (
            "" if form == "html" else f'attachment; filename="report.{form}"'
        )


def test_a_generation_that_is_cut_gives_no_half_of_a_table(tmp_path: Path) -> None:
    publish_invented(tmp_path / "data")
    client = create_application(tmp_path / "data", tmp_path / "cache").server.test_client()
    whole = client.get("/download/tables/sources.csv")
    assert whole.status_code == 200 and whole.get_data().count(b"\n") == 28
    (path,) = (tmp_path / "data").glob("atlas-*.duckdb")
    path.chmod(0o644)
    os.truncate(path, 12_288)
    fresh = create_application(tmp_path / "data", tmp_path / "other").server.test_client()
    assert fresh.get("/download/generation.duckdb").status_code == 503
    assert client.get("/download/generation.duckdb").status_code == 503
    for table in ("confusion", "neighbors", "sources"):
        answer = client.get(f"/download/tables/{table}.csv")
        assert answer.status_code in (200, 404, 503)
        assert answer.status_code != 200 or answer.get_data().count(b"\n") > 1


# The program


@pytest.mark.slow
def test_the_program_warns_and_stops_in_order(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    environ = {**os.environ, "ATLAS_PORT": str(port), "ATLAS_DATA": str(tmp_path), "ATLAS_CACHE": str(tmp_path)}
    environ |= {"ATLAS_HOST": "0.0.0.0"}
    environ.pop("ATLAS_TOKEN", None)
    server = subprocess.Popen(
        [sys.executable, "app.py"],
        cwd=REPOSITORY,
        env=environ,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stderr is not None
    warning = server.stderr.readline()
    assert warning.startswith("Warning: 0.0.0.0") and "ATLAS_TOKEN" in warning
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
            connection.request("GET", "/a%0d%0aforged")
            assert connection.getresponse().status == 404
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    server.send_signal(signal.SIGTERM)
    assert server.wait(PATIENCE) == 0
