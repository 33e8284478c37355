"""Lines of the log: one JSON object each where that is wanted, with the reference of the request."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path

import pytest
from flask import Flask

from atlas import logs
from atlas.application import FAILED, create_application
from backend.errors import AtlasError
from backend.service import caller
from backend.service.caller import Caller
from tests.invented_atlas import publish_invented

OWN = "3fa9c1d2-from-proxy"


def record(message: str = "m", *, error: bool = False) -> logging.LogRecord:
    return logging.LogRecord("atlas.x", logging.ERROR, "f", 1, message, (), sys.exc_info() if error else None)


def test_a_line_is_one_json_object_whatever_it_holds() -> None:
    formatter = logs.JsonFormatter()
    with caller.on_behalf_of(Caller("abc123abc123")):
        line = formatter.format(record("a\r\n\x1b[2J\x7f\u2028é"))
    assert len(line.splitlines()) == 1 and line.isascii() and line.isprintable()
    found = json.loads(line)
    assert found["message"] == "a\r\n\x1b[2J\x7f\u2028é" and found["request"] == "abc123abc123"
    assert found["level"] == "ERROR" and found["logger"] == "atlas.x" and found["time"].endswith("Z")
    assert "exception" not in found and json.loads(formatter.format(record()))["request"] == "-"
    try:
        raise ValueError("b\nc")
    except ValueError:
        line = formatter.format(record(error=True))
    assert len(line.splitlines()) == 1 and "ValueError: b\nc" in json.loads(line)["exception"]


def test_the_environment_chooses_the_form(monkeypatch: pytest.MonkeyPatch) -> None:
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    monkeypatch.setattr(root, "level", root.level)
    own = logging.StreamHandler()
    monkeypatch.setattr(logging.getLogger("gunicorn.error"), "handlers", [own])
    logs.configure()
    assert type(root.handlers[0].formatter) is logs.LineFormatter and own.formatter is None
    monkeypatch.setenv(logs.FORM, "json")
    logs.configure()
    assert type(root.handlers[0].formatter) is logs.JsonFormatter is type(own.formatter)
    monkeypatch.setenv(logs.FORM, "xml")
    with pytest.raises(AtlasError, match=r"ATLAS_LOG is 'xml'\. Set it to text or json"):
        logs.configure()


@pytest.mark.parametrize("given", ["short", "a" * 65, "with space 1", "new\tline-12", ""])
def test_a_reference_that_is_not_well_formed_is_made_anew(given: str) -> None:
    assert logs.new_reference(OWN) == OWN
    assert logs.new_reference(given) != given and len(logs.new_reference(given)) == 12


def test_only_a_trusted_proxy_gives_the_reference() -> None:
    for proxied in (True, False):
        server = Flask("log")
        logs.install(server, proxied=proxied)
        server.add_url_rule("/", view_func=lambda: caller.current().request)
        answer = server.test_client().get("/", headers={logs.HEADER: OWN})
        assert (answer.text == OWN) is proxied and answer.headers[logs.HEADER] == answer.text
        assert caller.current() is caller.UNKNOWN


def test_whoever_meets_a_failure_gets_its_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    publish_invented(tmp_path / "data")
    monkeypatch.setenv("ATLAS_PROXY", "1")
    app = create_application(tmp_path / "data", tmp_path / "cache")
    service = app.server.extensions["attribution"]
    monkeypatch.setattr(service, "ecosystems", lambda: 1 / 0)

    @app.server.get("/breaks")
    def breaks() -> str:
        raise RuntimeError("secret text")

    handler = logging.StreamHandler()
    handler.setFormatter(logs.JsonFormatter())

    client, headers = app.server.test_client(), {logs.HEADER: OWN}
    lines: list[str] = []
    monkeypatch.setattr(handler, "emit", lambda one: lines.append(handler.format(one)))
    logging.getLogger("atlas").addHandler(handler)
    try:
        answer = client.get("/api/ecosystems", headers=headers)
        wrong = client.get("/api/evaluations?limit=x", headers=headers)
    finally:
        logging.getLogger("atlas").removeHandler(handler)
    assert answer.status_code == 500 and answer.get_json(force=True)["request_id"] == OWN
    assert wrong.status_code == 422 and wrong.get_json(force=True)["request_id"] == OWN == wrong.headers[logs.HEADER]
    assert [json.loads(line)["request"] for line in lines] == [OWN] * 2  # Flask's line, and ours

    page = client.get("/breaks", headers=headers)
    assert page.status_code == 500 and f"Reference: {OWN}" in page.text and "secret text" not in page.text
    monkeypatch.setattr("atlas.application.answers.is_sealed", lambda _: 1 / 0)
    with app.server.test_request_context("/methods", headers=headers):
        app.server.preprocess_request()
        layout = str(__import__("dash").page_registry["atlas.pages.methods"]["layout"]())
    assert FAILED in layout and f"Reference: {OWN}." in layout
