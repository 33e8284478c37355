"""``POST /v1/traces`` into a watch, the files of its alarms, its measurements, and who may send and see them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flask.testing import FlaskClient

from backend.enrolment.files import save_enrolment
from backend.inference.e_process import LN10
from backend.service.watch_state import INBOX, VARIABLE, Question, Watched, WatchState
from tests.served_api import HASH, serve, tiny_enrolment, tiny_reader

AUTHORISED = {"Authorization": "Bearer open-sesame"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlaskClient]:
    folder = tmp_path_factory.mktemp("watched")
    reader = tiny_reader()
    save_enrolment(tiny_enrolment(), folder / "data" / "enrolments" / "tiny.npz")
    server, service = serve(folder / "data", folder / "cache", lambda proxy: (reader, HASH))
    yield server.test_client()
    service.close()


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[WatchState]:
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with WatchState.begin("served", Question("plain", "tiny", "0" * 64, 0.01, 1, "folder of logs")) as known:
        yield known


def export(*answers: str | None, prompt: str = "Why?") -> dict[str, Any]:
    """Spans with one answer each, as an exporter writes them; None is a call of a model without its messages."""
    spans = []
    for place, answer in enumerate(answers):
        attributes = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
        for key, role, text in (("input", "user", prompt), ("output", "assistant", answer)):
            if answer is not None:
                message = [{"role": role, "parts": [{"type": "text", "content": text}]}]
                attributes[f"gen_ai.{key}.messages"] = json.dumps(message)
        listed = [{"key": key, "value": {"stringValue": value}} for key, value in attributes.items()]
        spans.append({"spanId": f"{place:016x}", "startTimeUnixNano": str(17 * 10**17 + place), "attributes": listed})
    return {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}


def waiting(state: WatchState) -> list[Path]:
    return sorted((state.folder / INBOX).iterdir())


def test_spans_wait_in_the_inbox_of_their_watch(client: FlaskClient, state: WatchState) -> None:
    sent = client.post("/v1/traces", json=export("Because.", "So."), headers={"X-Atlas-Watch": "served"})
    assert (sent.status_code, sent.get_json()) == (200, {"partialSuccess": {}})
    sent = client.post("/v1/traces?watch=served", json=export("Because.", None))
    assert sent.get_json()["partialSuccess"]["rejectedSpans"] == "1"
    assert "capture of message content" in sent.get_json()["partialSuccess"]["errorMessage"]
    packed = gzip.compress(json.dumps(export("Packed.")).encode())
    sent = client.post("/v1/traces?watch=served", data=packed, content_type="application/json")
    assert sent.status_code == 200
    assert len(waiting(state)) == 3
    sent = client.post("/v1/traces?watch=served", json=export(None))
    assert sent.status_code == 200 and len(waiting(state)) == 3


@pytest.mark.parametrize(
    ("address", "body", "kind", "status"),
    [
        ("/v1/traces", b"{}", "application/json", 422),
        ("/v1/traces?watch=absent", b"{}", "application/json", 404),
        ("/v1/traces?watch=..%2Fserved", b"{}", "application/json", 404),
        ("/v1/traces?watch=served", b"\x0a\x00", "application/x-protobuf", 415),
        ("/v1/traces?watch=served", b"", "application/json", 400),
        ("/v1/traces?watch=served", b"{" * 20_000, "application/json", 400),
        ("/v1/traces?watch=served", b'{"resourceSpans": [', "application/json", 400),
        ("/v1/traces?watch=served", gzip.compress(b" " * 40_000_000), "application/json", 413),
    ],
)
def test_what_is_none_is_refused(
    client: FlaskClient, state: WatchState, address: str, body: bytes, kind: str, status: int
) -> None:
    sent = client.post(address, data=body, content_type=kind)
    assert sent.status_code == status, sent.text
    assert sent.get_json()["detail"]
    assert waiting(state) == []


def test_a_full_inbox_takes_no_more(client: FlaskClient, state: WatchState, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atlas.api.watches.MOST_FILES", 1)
    assert client.post("/v1/traces?watch=served", json=export("One.")).status_code == 200
    assert client.post("/v1/traces?watch=served", json=export("Two.")).status_code == 429
    assert len(waiting(state)) == 1


def test_with_a_token_nobody_sends_or_sees_without_it(
    client: FlaskClient, state: WatchState, monkeypatch: pytest.MonkeyPatch
) -> None:
    (state.folder / "alarm-1.html").write_text("<p>report</p>", "utf-8")
    monkeypatch.setenv("ATLAS_TOKEN", "open-sesame")
    assert client.post("/v1/traces?watch=served", json=export("One.")).status_code == 401
    assert client.get("/watch/served/alarm-1.html").status_code == 401
    assert client.post("/v1/traces?watch=served", json=export("One."), headers=AUTHORISED).status_code == 200
    page = client.get("/watch/served/alarm-1.html", headers=AUTHORISED)
    assert page.text == "<p>report</p>" and "default-src 'none'" in page.headers["Content-Security-Policy"]
    for path in ("/watch/served/alarm-2.html", "/watch/served/alarm-1.sqlite", "/watch/absent/alarm-1.html"):
        assert client.get(path, headers=AUTHORISED).status_code == 404, path


def test_prometheus_sees_every_watch(client: FlaskClient, state: WatchState) -> None:
    state.set_reference([0.0, 1.0, 2.0])
    state.add([Watched(str(i), "p", "r") for i in range(5)], [9.0, 10.0, 11.0, 12.0, 13.0], "like", 0.5)
    state.add([Watched("other", "p", "r")], [9.0], "other topic", 0.01)
    text = client.get("/metrics").text
    evidence = float(state.evidence()[-1]) / LN10
    assert evidence > 0
    assert f'atlas_watch_evidence_log10{{watch="served"}} {evidence}' in text
    for name, value in (("traces_counted", 5.0), ("traces_other", 1.0), ("alarms", 0.0), ("alarm", 0.0)):
        assert f'atlas_watch_{name}{{watch="served"}} {value}' in text
