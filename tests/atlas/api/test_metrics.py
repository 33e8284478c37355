"""``/metrics``: who may read it, what is counted, what a look costs, and several processes that count together."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from flask.testing import FlaskClient
from prometheus_client.parser import text_string_to_metric_families

from backend.enrolment.files import save_enrolment
from backend.service import measurements
from backend.service.process_group import FOLDER, share_measurements
from backend.service.records import KNOWN_JOBS
from backend.service.service import Service
from tests.served_api import HASH, serve, tiny_enrolment, tiny_reader, traces_of

REPOSITORY = Path(__file__).resolve().parent.parent.parent.parent
SESSION = "s" * 32
PATIENCE = 300.0
Values = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[FlaskClient, Service]]:
    folder = tmp_path_factory.mktemp("metrics")
    reader = tiny_reader()
    save_enrolment(tiny_enrolment(), folder / "data" / "enrolments" / "tiny.npz")
    server, service = serve(folder / "data", folder / "cache", lambda proxy: (reader, HASH))
    yield server.test_client(), service
    service.close()


def parsed(text: str) -> Values:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class Difference:
    """What grew since it was made."""

    def __init__(self, client: FlaskClient) -> None:
        self.client = client
        self.before = parsed(client.get("/metrics").text)

    def of(self, name: str, **labels: str) -> float:
        key = (name, frozenset(labels.items()))
        return parsed(self.client.get("/metrics").text).get(key, 0.0) - self.before.get(key, 0.0)


def test_an_attribution_is_counted(api: tuple[FlaskClient, Service]) -> None:
    client, _ = api
    grown = Difference(client)
    report = client.post("/api/attribute", json={"traces": traces_of("shout"), "claimed": "shout"}).get_json()["report"]
    assert grown.of("atlas_requests_total", route="/api/attribute", method="POST", status="2xx") == 1
    assert grown.of("atlas_request_seconds_count", route="/api/attribute") == 1
    assert grown.of("atlas_traces_scored_total") == 12
    assert grown.of("atlas_verdicts_total", verdict=report["results"]["verdict"]) == 1
    deadline = time.monotonic() + PATIENCE  # it is counted after whoever waits for the job was woken
    while grown.of("atlas_jobs_ended_total", state="done") < 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert grown.of("atlas_jobs_ended_total", state="done") == 1
    for stage in ("parse", "wait", "read", "score", "report"):
        assert grown.of("atlas_stage_seconds_count", stage=stage) == 1, stage
    assert (
        0
        < grown.of("atlas_stage_seconds_sum", stage="read")
        < grown.of("atlas_request_seconds_sum", route="/api/attribute")
    )
    client.post("/api/drift", json={"before": traces_of("shout"), "after": traces_of("plain")})
    assert grown.of("atlas_verdicts_total", verdict=report["results"]["verdict"]) == 1, "windows pose no question"
    assert grown.of("atlas_traces_scored_total") == 36


def test_refused_uploads_are_counted_by_reason(
    api: tuple[FlaskClient, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _ = api
    grown = Difference(client)
    client.post("/api/attribute", data=b"{", content_type="application/json")
    client.post("/api/preview", data=b"x", content_type="text/plain")
    client.post("/api/attribute", json={"traces": [{"response": "x"}], "claimed": "nobody"})
    client.post("/api/attribute", json={"traces": traces_of("plain", 2)}, headers={"Sec-Fetch-Site": "cross-site"})
    client.post("/api/attribute", data=b"x" * 28_000_000, content_type="application/json")
    client.get("/api/jobs/none")
    for reason in ("malformed", "type", "content", "not admitted", "size"):
        assert grown.of("atlas_uploads_refused_total", reason=reason) == 1, reason
    monkeypatch.setattr(measurements, "REASONS", {})
    client.post("/api/preview", data=b"x", content_type="text/plain")
    assert grown.of("atlas_uploads_refused_total", reason="other") == 1


def test_labels_are_bounded(api: tuple[FlaskClient, Service]) -> None:
    client, _ = api
    client.get("/metrics")
    before = parsed(client.get("/metrics").text)  # also of other applications in this process
    for number in range(20):
        client.get(f"/api/neighbors/{number}")
        client.get(f"/api/jobs/{number}")
        client.open(f"/{number}", method=f"M{number}")
    found = parsed(client.get("/metrics").text)
    assert len(found) - len(before) < 60
    added = found.keys() - before.keys()
    routes = {dict(labels)["route"] for name, labels in added if name == "atlas_requests_total"}
    known = {rule.rule for rule in client.application.url_map.iter_rules()}
    assert routes <= known | {measurements.NOWHERE}
    assert any(dict(labels).get("route") == "/api/jobs/<identity>" for _, labels in found)
    methods = {dict(labels)["method"] for name, labels in found if name == "atlas_requests_total"}
    assert methods <= measurements.METHODS | {"other"}


def test_only_the_machine_itself_or_the_token_reads_them(
    api: tuple[FlaskClient, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, _ = api
    assert client.get("/metrics").status_code == 200
    assert (
        client.get("/metrics", headers={"Host": "[::1]:8050"}, environ_base={"REMOTE_ADDR": "::1"}).status_code == 200
    )
    for address in ("192.0.2.7", "", "10.0.0.1", "unknown"):
        answer = client.get("/metrics", environ_base={"REMOTE_ADDR": address})
        assert answer.status_code == 403 and "atlas_" not in answer.text, address
    monkeypatch.setenv("ATLAS_HOSTS", "atlas.example")  # a proxy on this machine passes strangers on by this name
    assert client.get("/metrics", headers={"Host": "atlas.example"}).status_code == 403
    monkeypatch.setenv("ATLAS_OPEN", "1")  # which is about uploads
    assert client.get("/metrics", environ_base={"REMOTE_ADDR": "192.0.2.7"}).status_code == 403
    monkeypatch.setenv("ATLAS_TOKEN", "right")
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers={"Authorization": "Bearer wrong"}).status_code == 401
    right = {"Authorization": "Bearer right"}
    answer = client.get("/metrics", headers=right, environ_base={"REMOTE_ADDR": "192.0.2.7"})
    assert answer.status_code == 200 and answer.headers["Cache-Control"] == "no-store"
    assert client.get("/metrics", headers=right | {"Host": "atlas.example"}).status_code == 200


def test_both_text_formats_are_whole(api: tuple[FlaskClient, Service]) -> None:
    client, _ = api
    from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_families

    answer = client.get("/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert "openmetrics" in answer.content_type
    names = {family.name for family in open_families(answer.text)}
    assert {"atlas_requests", "atlas_jobs", "atlas_uploads_refused", "atlas_audit_log_failures"} <= names


def test_a_look_at_a_thousand_jobs_costs_little(api: tuple[FlaskClient, Service]) -> None:
    client, service = api
    states, now = ["queued", "running", *["done"] * (KNOWN_JOBS - 2)], time.time()
    rows = [
        {
            "name": f"{number:024x}", "place": "t" * 40, "key": "", "settings": "{}", "enrolment": "tiny",
            "enrolment_sha256": "", "others": "[]", "total": 9, "short": True, "discard": False, "fingerprints": False,
            "created": now, "queued": now + 3600, "state": state, "worker": service.process, "lease": "test",
        }
        for number, state in enumerate(states)
    ]  # fmt: skip
    for start in range(0, KNOWN_JOBS, 50):
        service.records.jobs.insert_many(rows[start : start + 50]).execute()
    try:
        found = parsed(client.get("/metrics").text)
        assert found["atlas_jobs", frozenset({("state", "queued")})] == 1
        assert found["atlas_jobs", frozenset({("state", "running")})] == 1
        assert client.get("/health").get_json()["queue"] == {"queued": 1, "running": 1}
        seconds = []
        for _ in range(9):
            started = time.perf_counter()
            client.get("/metrics")
            seconds.append(time.perf_counter() - started)
        assert sorted(seconds)[4] <= 0.020, seconds
    finally:
        service.records.forget("t" * 40)


def test_health_says_since_when_and_ready_may_wait_for_the_proxy(
    api: tuple[FlaskClient, Service], tmp_path: Path
) -> None:
    client, service = api
    health = client.get("/health").get_json()
    assert health["started"].startswith("20") and health["uptime_s"] >= 0 and health["queue"] == service.load()
    from tests.invented_atlas import publish_invented

    publish_invented(tmp_path / "data")
    reader = tiny_reader()
    server, late = serve(tmp_path / "data", tmp_path / "cache", lambda proxy: (reader, HASH))
    ready = server.test_client()
    assert ready.get("/ready").get_json() == {"ready": True}
    answer = ready.get("/ready?attribution=1")
    assert answer.status_code == 503 and "jobs enroll" in answer.get_json()["problem"]
    save_enrolment(tiny_enrolment(), tmp_path / "data" / "enrolments" / "tiny.npz")
    deadline = time.monotonic() + PATIENCE
    while ready.get("/ready?attribution=1").status_code == 503 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ready.get("/ready?attribution=1").get_json() == {"ready": True} and late.state().status == "ready"


def test_a_process_without_pages_serves_them(api: tuple[FlaskClient, Service]) -> None:
    client, service = api
    client.post("/api/preview", json={"traces": traces_of("plain")})
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    stop = measurements.serve(port, load=service.load)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
            found = parsed(answer.read().decode())
    finally:
        stop()
    assert found["atlas_jobs", frozenset({("state", "queued")})] == 0
    assert any(name == "atlas_requests_total" for name, _ in found)


def test_a_process_alone_shares_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SERVER_SOFTWARE", raising=False)
    monkeypatch.setenv(FOLDER, "")
    monkeypatch.delenv(FOLDER)
    share_measurements(tmp_path / "none")
    assert FOLDER not in os.environ and not (tmp_path / "none").exists()
    monkeypatch.setenv("SERVER_SOFTWARE", "gunicorn/99")
    (tmp_path / "1" / "old").mkdir(parents=True)
    own = tmp_path / str(os.getppid())
    own.mkdir()
    (own / "counter_1.db").touch()
    share_measurements(tmp_path)
    assert os.environ[FOLDER] == str(own) and [*tmp_path.iterdir()] == [own] and not [*own.iterdir()]
    (own / "counter_2.db").touch()
    monkeypatch.delenv(FOLDER)
    share_measurements(tmp_path)  # as the next process of the same server does
    assert os.environ[FOLDER] == str(own) and [*own.iterdir()] == [own / "counter_2.db"]


@contextlib.contextmanager
def gunicorn(folder: Path, workers: int) -> Iterator[tuple[subprocess.Popen[bytes], int, Path]]:
    """A server of several processes without data."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    (folder / "data").mkdir()
    environ = {
        **os.environ,
        "ATLAS_DATA": str(folder / "data"),
        "ATLAS_CACHE": str(folder / "cache"),
        "ATLAS_LOG": "json",
    }
    for name in ("ATLAS_TOKEN", "ATLAS_OPEN", "ATLAS_HOSTS", "ATLAS_PROXY", "ATLAS_HOST"):
        environ.pop(name, None)
    command = [sys.executable, "-m", "gunicorn", "--workers", str(workers), "--threads", "4", "--timeout", "120"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "--bind", f"127.0.0.1:{port}", "app:server"], cwd=REPOSITORY, env=environ, stdout=log, stderr=log
        )
    try:
        yield process, port, folder / "log"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)


def ask(port: int, path: str) -> str:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        connection.request("GET", path)
        return connection.getresponse().read().decode()


@pytest.mark.slow(60)
def test_processes_of_one_server_count_together(tmp_path: Path) -> None:
    import json

    with gunicorn(tmp_path, 2) as (process, port, log):
        folder = tmp_path / "cache" / "measurements" / str(process.pid)
        deadline = time.monotonic() + PATIENCE
        while len([*folder.glob("counter_*.db")]) < 2:
            assert process.poll() is None and time.monotonic() < deadline, log.read_text("utf-8")
            time.sleep(0.2)
        for _ in range(30):
            ask(port, "/ready")
        for _ in range(5):
            found = parsed(ask(port, "/metrics"))
            assert found["atlas_requests_total", frozenset(
                {("route", "/ready"), ("method", "GET"), ("status", "5xx")}
            )] == 30  # fmt: skip
            assert found["atlas_jobs", frozenset({("state", "queued")})] == 0
    for line in log.read_text("utf-8").splitlines():
        if line.startswith("{"):
            assert {"time", "level", "request", "logger", "message"} <= json.loads(line).keys()
    assert '"logger": "gunicorn.error"' in log.read_text("utf-8")
