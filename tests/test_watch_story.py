"""The story of docs/watch.md: enrol four endpoints, watch one, swap the model behind it, get told, verify and sign."""

from __future__ import annotations

import http.server
import itertools
import json
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import backend.attribution.scoring
import jobs.enroll
from atlas.application import create_application
from backend.corpus.collection import SAMPLES, read_prompts
from backend.corpus.endpoints import LocalModel, read_sources
from backend.errors import AtlasError
from backend.evaluations.corpus import Corpus
from backend.proxies.reader import Reader
from backend.proxies.registry import weights_folder
from backend.service.watch_state import VARIABLE, WatchState
from jobs.__main__ import main

SOURCES = {one.name: one for one in read_sources(SAMPLES / "sources.toml")}
ASKED = [one.prompt for one in read_prompts(SAMPLES / "prompts.jsonl")[::10]]


@dataclass
class Endpoints:
    """An OpenAI-compatible server over packaged models, which also takes a webhook's messages."""

    models: dict[str, LocalModel]
    address: str = ""
    messages: list[dict[str, Any]] = field(default_factory=list)
    answers: dict[str, str] = field(default_factory=dict)  # to every prompt, of the next look
    numbers: Iterator[int] = field(default_factory=itertools.count)  # of batches; each is drawn anew

    def write(self, name: str) -> None:
        """Let a source answer all prompts at once, before anybody asks: one by one it takes minutes."""
        source = SOURCES[name]
        written = self.models[source.model].generate(ASKED, source, next(self.numbers))
        self.answers = {asked: str(one.text) for asked, one in zip(ASKED, written, strict=True)}


@pytest.fixture(scope="module")
def endpoints() -> Iterator[Endpoints]:
    try:
        models = {name: LocalModel(name, "cpu") for name in ("smollm2-135m", "gemma3-270m")}
    except AtlasError as error:
        pytest.skip(f"weights are missing: {error}")
    state = Endpoints(models)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if self.path == "/hook":
                state.messages.append(body)
                raw = b"{}"
            else:
                text = state.answers[body["messages"][-1]["content"]]
                message = {"message": {"role": "assistant", "content": text}, "finish_reason": "length"}
                raw = json.dumps({"model": body["model"], "choices": [message]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as live:
        threading.Thread(target=live.serve_forever, args=(0.05,), daemon=True).start()
        state.address = f"http://127.0.0.1:{live.server_port}"
        yield state
        live.shutdown()


@pytest.mark.proxy
@pytest.mark.slow(90)
def test_a_swap_is_seen_told_verified_and_signed(
    endpoints: Endpoints, smollm2: Reader, samples_read: tuple[Corpus, Path], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    cache, data = tmp_path / "cache", tmp_path / "data"
    cache.mkdir()
    (cache / "proxies").symlink_to(weights_folder())
    places = {"ATLAS_CACHE": cache, "ATLAS_DATA": data, VARIABLE: tmp_path / "watches", "ATLAS_COMPILE": "0"}
    for name, value in places.items():
        monkeypatch.setenv(name, str(value))
    for module in (backend.attribution.scoring, jobs.enroll):  # loaded once, and not by every verb
        monkeypatch.setattr(module, "load_reader", lambda *_: smollm2)
    prompts, traces = tmp_path / "prompts.txt", samples_read[1] / "samples.jsonl"
    prompts.write_text("\n".join(ASKED), "utf-8")
    # Four endpoints are enrolled by the answers that were collected of them, as they were read for other tests.
    shutil.copytree(samples_read[1] / "fingerprints", cache / "fingerprints")
    enrolling = ["--name", "four", "--readout", "reader-paper", "--layer", "12", "--no-publish"]
    work = ["--work", str(tmp_path / "work.duckdb"), "--to", str(data)]
    assert main(["enroll", str(traces), *enrolling, *work]) == 0
    (enrolment,) = (data / "enrolments").glob("*.npz")
    # One is watched: nothing happens while it is what it was.
    watching = [
        "watch", f"{endpoints.address}/v1", "--model", "served", "--prompts", str(prompts), "--claimed", "smol-pirate",
        "--enrolment", str(enrolment), "--reference", str(traces), "--webhook", f"{endpoints.address}/hook",
        "--per-look", str(len(ASKED)), "--once",
    ]  # fmt: skip
    endpoints.write("smol-pirate")
    assert main(watching) == 0
    assert endpoints.messages == []
    # Somebody puts another model behind it.
    for _ in range(4):
        endpoints.write("gemma-answer")
        if main(watching) == 1:
            break
    (message,) = endpoints.messages
    assert (message["event"], message["claimed"], message["watch"]) == ("alarm", "smol-pirate", "smol-pirate")
    assert message["leader"] == "gemma-answer"
    # The report is opened where the message says, verified, and signed.
    monkeypatch.delenv("ATLAS_DATA")
    pages = create_application(cache=tmp_path / "web").server.test_client()
    page = pages.get(message["report"])
    assert page.status_code == 200 and "Watch smol-pirate, alarm 1" in page.text
    state = WatchState.open("smol-pirate")
    report, listed = state.file(1, "json"), state.file(1, "jsonl")
    state.close()
    assert json.loads(report.read_text("utf-8"))["sha256"] == message["report_sha256"]
    key = tmp_path / "auditor"
    assert main(["sign", str(report), "--new-key", str(key)]) == 0
    capsys.readouterr()
    checking = ["verify", str(report), "--traces", str(listed), "--enrolment", str(enrolment)]
    assert main([*checking, "--signed-by", f"{key}.pub"]) == 0
    said = capsys.readouterr().out
    assert "Signed (report) by " in said and "EQUAL: " in said
