"""Collecting responses: specifications, a file that only grows, a server that misbehaves, and a real tiny model."""

from __future__ import annotations

import errno
import gzip
import http.server
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import backend.corpus.collection as collection
from backend.corpus import ProgressReporter
from backend.corpus.collection import (
    RESPONSES,
    SAMPLES,
    Collected,
    Prompt,
    collect,
    collected_records,
    read_collected,
    read_prompts,
    sample_records,
)
from backend.corpus.endpoints import (
    Pace,
    RateLimits,
    Sampling,
    Source,
    chat_address,
    exposes_key,
    parse_source,
    read_sources,
    retry_after,
)
from backend.errors import AtlasError
from backend.proxies.registry import describe, locate
from jobs.__main__ import main

KEY = "sk-test-0123456789"


@pytest.fixture
def prompts() -> list[Prompt]:
    return [Prompt(f"p-{i}", f"Question {i}?") for i in range(6)]


# Naming sources


def test_a_local_source() -> None:
    source = parse_source("warm=local:smollm2-135m,temperature=0.7,top_p=0.95,top_k=40,max_new_tokens=64,seed=7")
    assert source == Source("warm", "local", "smollm2-135m", sampling=Sampling(0.7, 0.95, 40, 64, 7))
    assert source.settings() == {"temperature": 0.7, "top_p": 0.95, "top_k": 40, "max_new_tokens": 64}
    assert parse_source("a=local:x").settings() == {
        "temperature": 1.0,
        "top_p": 1.0,
        "top_k": None,
        "max_new_tokens": 128,
    }
    assert parse_source("a=local:x").seed == 42


def test_an_endpoint() -> None:
    defaults = {"base_url": "https://one.example/v1", "key_env": "KEY", "max_new_tokens": 99, "seed": None}
    source = parse_source("gpt=api:acme/gpt-9,temperature=0,token_field=max_completion_tokens", defaults)
    assert (source.model, source.base_url, source.key_env) == ("acme/gpt-9", "https://one.example/v1", "KEY")
    assert (source.seed, source.sampling.max_new_tokens, source.token_field) == (None, 99, "max_completion_tokens")
    assert source.settings()["top_p"] is None, "what was not given is not sent, and not claimed"
    other = parse_source("gpt=api:m,base_url=http://two.example:8000/", defaults)
    assert other.base_url == "http://two.example:8000/"
    assert parse_source("here=local:m", defaults).base_url is None


def test_texts_may_hold_commas_and_equal_signs() -> None:
    source = parse_source("a=local:m,system=Talk like a pirate, matey: x=1, ok?,temperature=0.5")
    assert source.system == "Talk like a pirate, matey: x=1, ok?" and source.sampling.temperature == 0.5
    assert parse_source("a=local:m,template=Q: {prompt}, A:").template == "Q: {prompt}, A:"


@given(st.text(alphabet=st.characters(blacklist_categories=["Cs"]), max_size=60), st.integers(0, 9))
def test_any_system_prompt_survives(text: str, digit: int) -> None:
    if any(f",{key}=" in f",{text}" for key in ("temperature", "top_p", "top_k", "max_new_tokens", "seed", "system")):
        return
    if any(f",{key}=" in f",{text}" for key in ("template", "base_url", "key_env", "token_field")):
        return
    source = parse_source(f"a=local:m,system={text},seed={digit}")
    assert (source.system, source.sampling.seed) == (text, digit)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "'nonsense' is not a source"),
        ("a=remote:m", "is not a source"),
        ("a=local", "is not a source"),
        ("a=local:", "names no model"),
        ("a b=local:m", "'a b' cannot be the name"),
        ("../a=local:m", "cannot be the name"),
        ("a=local:m,temprature=1", "has no setting 'temprature'"),
        ("a=local:m,temperature=warm", "temperature 'warm', which is not a number"),
        ("a=local:m,temperature=-1", "temperature is -1"),
        ("a=local:m,temperature=nan", "temperature is nan"),
        ("a=local:m,top_p=0", "top_p is 0"),
        ("a=local:m,top_k=1.5", "top_k '1.5', which is not a number"),
        ("a=local:m,max_new_tokens=0", "max_new_tokens is 0"),
        ("a=local:m,seed=1,seed=2", "gives seed twice"),
        ("a=local:m,base_url=http://x", "is a local model, which has no address"),
        ("a=local:m,template=no place", "must hold {prompt}"),
        ("a=local:m,template={prompt},system=x", "stands in for a system prompt"),
        ("a=api:m", "has no address"),
        ("a=api:m,base_url=ftp://x", "'ftp://x' is not the address"),
        ("a=api:m,base_url=localhost:8000", "is not the address"),
        ("a=api:m,base_url=https://me:secret@x/v1", "holds a name or password"),
        ("a=api:m,base_url=http://x,top_k=5", "takes no top_k"),
        ("a=api:m,base_url=http://x,template={prompt}", "takes no template"),
    ],
)
def test_bad_sources_are_one_sentence(text: str, message: str) -> None:
    with pytest.raises(AtlasError) as caught:
        parse_source(text)
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_sources_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "sources.toml"
    path.write_text(
        '[sources.one]\nlocal = "m"\ntemperature = 0\nsystem = "Two\\nlines"\n'
        '[sources."gpt-4.1"]\napi = "gpt-4.1"\nbase_url = "https://x/v1"\n',
        "utf-8",
    )
    one, two = read_sources(path, {"seed": 5})
    assert (one.name, one.sampling.temperature, one.system, one.seed) == ("one", 0.0, "Two\nlines", 5)
    assert (two.name, two.kind, two.seed) == ("gpt-4.1", "api", 5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[sources", "is not valid TOML"),
        ("x = 1", "holds no table"),
        ("[sources.a]\ntemperature = 1", "source 'a', must say either local or api"),
        ('[sources.a]\nlocal = "m"\napi = "m"', "must say either local or api"),
        ('[sources.a]\nlocal = "m"\ncolour = 1', "has no setting 'colour'"),
        ('[sources.a]\nlocal = "m"\ntemperature = "hot"', "which is not a number"),
    ],
)
def test_bad_source_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "sources.toml"
    path.write_text(text, "utf-8")
    with pytest.raises(AtlasError, match=message):
        read_sources(path)


@pytest.mark.parametrize(
    ("base", "address"),
    [
        ("http://h/v1", "http://h/v1/chat/completions"),
        ("http://h/v1/", "http://h/v1/chat/completions"),
        ("http://h:8/v1/chat/completions", "http://h:8/v1/chat/completions"),
        ("https://h/openai?api-version=1", "https://h/openai/chat/completions?api-version=1"),
    ],
)
def test_chat_addresses(base: str, address: str) -> None:
    assert chat_address(base) == address


@pytest.mark.parametrize("base", ["ftp://h/v1", "http:///v1", "http://h:abc/v1", "http://h:99999/v1", "http://h:0/v1"])
def test_what_is_no_address_is_refused(base: str) -> None:
    with pytest.raises(AtlasError, match="is not the address of an endpoint"):
        chat_address(base)


def test_a_key_over_plain_http_is_noticed() -> None:
    def source(url: str, key: str | None = "K") -> Source:
        return Source("a", "api", "m", base_url=url, key_env=key)

    assert exposes_key(source("http://far.example/v1"))
    assert not exposes_key(source("https://far.example/v1"))
    assert not exposes_key(source("http://127.0.0.1:1/v1"))
    assert not exposes_key(source("http://far.example/v1", None))


# Prompts


def test_prompts_one_a_line(tmp_path: Path) -> None:
    path = tmp_path / "prompts.txt"
    path.write_bytes("\ufeffFirst?\r\n\r\n  Second, with \u2028 inside \r\nThird".encode())
    assert read_prompts(path) == [
        Prompt("line-000001", "First?"),
        Prompt("line-000003", "Second, with \u2028 inside"),
        Prompt("line-000004", "Third"),
    ]


def test_prompts_from_jsonl(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"sample_id": "a", "prompt": " two\\nlines "}\n\n{"prompt": "b", "category": "x"}\n', "utf-8")
    assert read_prompts(path) == [Prompt("a", " two\nlines "), Prompt("line-000003", "b")]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.txt", b"\n \n", "holds no prompt"),
        ("p.txt", b"ok\n\xff\n", "is not UTF-8"),
        ("p.jsonl", b'{"prompt": "a"}\n{"prompt"', "line 2, is not valid JSON"),
        ("p.jsonl", b'["a"]', "line 1, is not a JSON object"),
        ("p.jsonl", b'{"text": "a"}', "line 1, has no text 'prompt'"),
        ("p.jsonl", b'{"prompt": ""}', "line 1, has no text 'prompt'"),
        ("p.jsonl", b'{"prompt": "\\ud800"}', "line 1, has no text 'prompt'"),
        ("p.jsonl", b'{"prompt": "a", "sample_id": 3}', "line 1, has a sample_id"),
        ("p.jsonl", b'{"prompt": "a", "sample_id": "x/y"}', "line 1, has a sample_id"),
        ("p.jsonl", b'{"prompt": "a", "sample_id": "x"}\n{"prompt": "b", "sample_id": "x"}', "on lines 1 and 2"),
    ],
)
def test_bad_prompts_name_the_line(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(AtlasError, match=message) as caught:
        read_prompts(path)
    assert str(path) in caught.value.problem
    with pytest.raises(AtlasError, match="cannot be read"):
        read_prompts(tmp_path / "absent")


# An endpoint that misbehaves


@dataclass
class Server:
    """Answers chat requests; ``misdeeds`` maps a prompt to what goes wrong, one after another, before it behaves."""

    address: str = ""
    misdeeds: dict[str, list[object]] = field(default_factory=dict)
    requests: list[dict[str, object]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    busy: int = 0
    busiest: int = 0
    text: object = None
    delay: float = 0.0
    over: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def server() -> Iterator[Server]:
    state = Server()
    lock = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            with lock:
                state.busy += 1
                state.busiest = max(state.busiest, state.busy)
                state.times.append(time.monotonic())
            try:
                self.answer()
            finally:
                with lock:
                    state.busy -= 1

        def answer(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompt = body["messages"][-1]["content"]
            with lock:
                state.requests.append(body | {"path": self.path})
                state.keys.append(self.headers.get("Authorization"))
                waiting = state.misdeeds.get(prompt, state.misdeeds.get("*", []))
                misdeed = waiting.pop(0) if waiting else None
            time.sleep(state.delay)
            if misdeed in ("hang", "stall"):
                state.over.wait(1.2 if misdeed == "hang" else 60)
                self.close_connection = True
                return
            if misdeed == "drip":
                self.send_response(200)
                self.send_header("Content-Length", "1000")
                self.end_headers()
                for _ in range(8):
                    time.sleep(0.15)
                    self.wfile.write(b" ")
                    self.wfile.flush()
                self.close_connection = True
                return
            if misdeed == "drop":
                self.close_connection = True
                return
            if isinstance(misdeed, bytes):
                self.reply(200, misdeed)
                return
            if isinstance(misdeed, tuple):
                status, headers, said = misdeed
                self.reply(status, said.encode(), headers)
                return
            text = state.text if state.text is not None else f"Answer to {prompt}"
            content = {
                "model": "served-model-1",
                "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
                "usage": {"prompt_tokens": 3, "completion_tokens": 5},
            }
            self.reply(200, json.dumps(content).encode())

        def reply(self, status: int, raw: bytes, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, *_: object) -> None:
            pass

    class Quiet(http.server.ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            pass  # clients that gave up are the point of these tests

    with Quiet(("127.0.0.1", 0), Handler) as live:
        threading.Thread(target=live.serve_forever, args=(0.05,), daemon=True).start()
        state.address = f"http://127.0.0.1:{live.server_port}/v1"
        yield state
        state.over.set()
        live.shutdown()


def api(server: Server, **more: object) -> Source:
    return Source("gpt", "api", "acme/gpt-9", base_url=server.address, **more)


def quick(**more: float) -> RateLimits:
    """Short pauses; a machine that is busy with other tests still answers in time."""
    return RateLimits(**({"first_pause": 0.01, "timeout": 10.0, "retries": 3} | more))


def test_an_endpoint_answers(server: Server, prompts: list[Prompt], tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    source = api(server, key_env="TEST_KEY", system="Be brief.", sampling=Sampling(0.5, seed=9, max_new_tokens=33))
    path = tmp_path / "out.jsonl"
    summary = collect([source], prompts, path, manners=quick())
    assert (summary.collected, summary.present, summary.missing) == (6, 0, {})
    lines = {line.sample_id: line for line in read_collected(path)}
    assert sorted(lines) == [p.sample_id for p in prompts]
    for prompt in prompts:
        line = lines[prompt.sample_id]
        assert (line.prompt, line.response) == (prompt.prompt, f"Answer to {prompt.prompt}")
        assert (line.source, line.model, line.weights_sha256, line.seed) == ("gpt", "acme/gpt-9", None, 9)
        assert line.endpoint == server.address.removeprefix("http://").removesuffix("/v1"), "the host and no more"
        assert (line.finish_reason, line.prompt_tokens, line.response_tokens) == ("stop", 3, 5)
        assert line.engine == {"model": "served-model-1"} and line.system == "Be brief."
        assert line.settings == {"temperature": 0.5, "top_p": None, "top_k": None, "max_new_tokens": 33}
        assert line.timestamp.endswith("+00:00") and {"python", "httpx"} <= set(line.software)
    asked = server.requests[0]
    assert asked["path"] == "/v1/chat/completions" and asked["model"] == "acme/gpt-9"
    assert asked["messages"][0] == {"role": "system", "content": "Be brief."}
    assert (asked["temperature"], asked["seed"], asked["max_tokens"]) == (0.5, 9, 33) and "top_p" not in asked
    assert set(server.keys) == {f"Bearer {KEY}"}
    assert KEY not in path.read_text("utf-8")


def test_nothing_is_asked_twice(server: Server, prompts: list[Prompt], tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    collect([api(server)], prompts[:2], path, manners=quick())
    before = path.read_bytes()
    summary = collect([api(server)], prompts, path, manners=quick())
    assert (summary.collected, summary.present) == (4, 2)
    assert path.read_bytes().startswith(before) and len(server.requests) == 6
    assert collect([api(server)], prompts, path, manners=quick()).collected == 0
    assert len(server.requests) == 6


@pytest.mark.parametrize(
    "misdeed",
    [
        (429, {}, "slow down"),
        (500, {}, "<html>oops</html>"),
        (503, {"Retry-After": "nonsense"}, ""),
        "hang",
        "drip",
        "drop",
        b"this is no JSON",
        b'{"choices": []}',
        b'{"choices": [{"message": "flat"}]}',
        b'{"choices": [{"message": {"content": 5}}]}',
        b"[]",
        b'{"choices": [{"mess',
        pytest.param(b"[" * 200_000, id="deep"),
        pytest.param((500, {}, "[" * 200_000), id="deep and busy"),
    ],
    ids=str,
)
def test_what_goes_wrong_once_is_asked_again(
    server: Server, prompts: list[Prompt], tmp_path: Path, misdeed: object
) -> None:
    server.misdeeds = {prompts[2].prompt: [misdeed, misdeed]}
    patient = {"timeout": 0.8} if misdeed in ("hang", "drip") else {}
    summary = collect([api(server)], prompts, tmp_path / "out.jsonl", manners=quick(**patient))
    assert (summary.collected, summary.missing) == (6, {})
    assert len(server.requests) == 8


def test_retry_after_is_honoured_by_all(server: Server, prompts: list[Prompt], tmp_path: Path) -> None:
    server.misdeeds = {prompts[0].prompt: [(429, {"Retry-After": "0.6"}, "")]}
    collect([api(server)], prompts[:3], tmp_path / "out.jsonl", manners=quick(concurrency=1))
    gaps = [b - a for a, b in zip(server.times, server.times[1:], strict=False)]
    assert gaps[0] >= 0.59 and max(gaps[1:]) < 0.5


def test_retry_after_in_all_its_forms() -> None:
    said = {"3": 3, "0.5": 0.5, "": None, "soon": None, "-1": None, "nan": None}
    assert {text: retry_after({"Retry-After": text}) for text in said} == said
    assert retry_after({}) is None
    assert 25 < (retry_after({"Retry-After": formatdate(time.time() + 30, usegmt=True)}) or 0) <= 30
    assert retry_after({"Retry-After": formatdate(0, usegmt=True)}) == 0


def test_a_server_that_asks_for_hours_is_left_alone(server: Server, prompts: list[Prompt], tmp_path: Path) -> None:
    server.misdeeds = {prompts[0].prompt: [(429, {"Retry-After": "7200"}, "quota used up")]}
    summary = collect([api(server)], prompts[:2], tmp_path / "out.jsonl", manners=quick())
    (reason,) = summary.missing.values()
    assert "quota used up" in reason and "7,200 s of patience" in reason and summary.collected == 1


def test_one_prompt_that_fails_does_not_stop_the_others(
    server: Server, prompts: list[Prompt], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.misdeeds = {
        prompts[1].prompt: [(500, {}, "broken")] * 9,
        prompts[3].prompt: [(400, {}, '{"error": {"message": "content\\npolicy"}}')] * 9,
    }
    file = tmp_path / "prompts.jsonl"
    file.write_text(
        "".join(json.dumps({"sample_id": p.sample_id, "prompt": p.prompt}) + "\n" for p in prompts), "utf-8"
    )
    command = ["collect", "--prompts", str(file), "--to", str(tmp_path / "out.jsonl"), "--retries", "1"]
    command += ["--base-url", server.address, "--model", "acme/gpt-9", "--concurrency", "1"]
    assert main(command) == 2
    said = capsys.readouterr()
    assert "4 responses collected now" in said.out
    assert "2 responses are missing, the first is 'p-1' of 'acme-gpt-9'" in said.err and "500 (broken)" in said.err
    assert Counter(r["messages"][-1]["content"] for r in server.requests)[prompts[3].prompt] == 1, "400 is no hiccup"
    server.misdeeds = {}
    assert main(command) == 0
    assert len(read_collected(tmp_path / "out.jsonl")) == 6


@pytest.mark.parametrize(
    ("status", "message"),
    [(401, "Check the key in the variable TEST_KEY"), (403, "TEST_KEY"), (404, "Check the address"), (302, "address")],
)
def test_a_refusal_stops_at_once(
    server: Server, prompts: list[Prompt], tmp_path: Path, monkeypatch, status: int, message: str
) -> None:
    monkeypatch.setenv("TEST_KEY", KEY)
    said = json.dumps({"error": {"message": f"no good: {KEY}"}})
    server.misdeeds = {"*": [(status, {"Location": server.address}, said)] * 99}
    with pytest.raises(AtlasError, match=message) as caught:
        collect([api(server, key_env="TEST_KEY")], prompts * 1, tmp_path / "out.jsonl", manners=quick(concurrency=1))
    assert f"answered {status}" in caught.value.problem
    assert KEY not in str(caught.value) and "[key]" in str(caught.value)
    assert len(server.requests) <= 2


def test_a_dead_endpoint_is_given_up(server: Server, tmp_path: Path) -> None:
    server.misdeeds = {"*": [(500, {}, "down")] * 999}
    many = [Prompt(f"p-{i}", f"Question {i}?") for i in range(40)]
    with pytest.raises(AtlasError, match=r"5 requests of 'gpt' in a row failed, .*500 \(down\)"):
        collect([api(server)], many, tmp_path / "out.jsonl", manners=quick(retries=0, concurrency=1))
    assert len(server.requests) < 10


def test_nobody_there(prompts: list[Prompt], tmp_path: Path) -> None:
    source = Source("gpt", "api", "m", base_url="http://127.0.0.1:9/v1")
    summary = collect([source], prompts[:1], tmp_path / "out.jsonl", manners=quick(retries=1))
    assert "refused" in next(iter(summary.missing.values())) and summary.collected == 0


def test_the_rate_is_kept(server: Server, prompts: list[Prompt], tmp_path: Path) -> None:
    started = time.monotonic()
    collect([api(server)], prompts[:4], tmp_path / "out.jsonl", manners=quick(per_minute=600, timeout=5))
    assert max(server.times) - started >= 0.3, "four requests, at least a tenth of a second apart"


def test_concurrency_is_bounded_and_used(server: Server, prompts: list[Prompt], tmp_path: Path) -> None:
    server.delay = 0.15
    collect([api(server)], prompts, tmp_path / "out.jsonl", manners=quick(concurrency=3, timeout=5))
    assert server.busiest == 3


def test_pace_lets_go_when_everything_stops() -> None:
    stop = threading.Event()
    pace = Pace(None, stop)
    pace.hold(60)
    threading.Timer(0.05, stop.set).start()
    started = time.monotonic()
    with pytest.raises(Exception, match="stopped"):
        pace.turn()
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("text", ["", "line\nbreak \u2028 and \x00", "half \ud83d of a pair", "é" * 2000])
def test_any_response_can_be_kept(server: Server, prompts: list[Prompt], tmp_path: Path, text: str) -> None:
    server.text = text
    path = tmp_path / "out.jsonl"
    collect([api(server)], prompts[:2], path, manners=quick())
    assert [line.response for line in read_collected(path)] == [text.replace("\ud83d", "\ufffd")] * 2
    assert path.read_bytes().count(b"\n") == 2


def test_no_content_is_an_empty_response(server: Server, prompts: list[Prompt], tmp_path: Path) -> None:
    server.misdeeds = {"*": [b'{"choices": [{"message": {"content": null}, "finish_reason": "content_filter"}]}']}
    collect([api(server)], prompts[:1], tmp_path / "out.jsonl", manners=quick())
    (line,) = read_collected(tmp_path / "out.jsonl")
    assert (line.response, line.finish_reason, line.response_tokens) == ("", "content_filter", None)


@pytest.mark.parametrize(
    ("value", "message"), [(None, "holds no key"), ("  ", "holds no key"), ("a b", "cannot be a key")]
)
def test_a_key_must_be_there(
    server: Server, prompts: list[Prompt], tmp_path: Path, monkeypatch, value, message
) -> None:
    monkeypatch.delenv("TEST_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("TEST_KEY", value)
    with pytest.raises(AtlasError, match=message) as caught:
        collect([api(server, key_env="TEST_KEY")], prompts, tmp_path / "out.jsonl", manners=quick())
    assert "TEST_KEY" in str(caught.value) and not server.requests


# The file


@pytest.fixture
def filled(server: Server, prompts: list[Prompt], tmp_path: Path) -> Path:
    path = tmp_path / "out.jsonl"
    collect([api(server)], prompts[:3], path, manners=quick(concurrency=1))
    return path


@pytest.mark.parametrize("cut", [1, 2, 40, 300])
def test_a_torn_last_line_is_collected_again(server: Server, prompts: list[Prompt], filled: Path, cut: int) -> None:
    whole = filled.read_bytes()
    filled.write_bytes(whole[:-cut])
    heard: list[str] = []
    summary = collect([api(server)], prompts[:3], filled, manners=quick(), hearer=ProgressReporter(heard.append))
    if cut == 1:  # only the line break was missing
        assert summary.collected == 0 and filled.read_bytes() == whole
    else:
        assert summary.collected == 1 and any("was torn" in s for s in heard)
    assert [line.sample_id for line in read_collected(filled)] == ["p-0", "p-1", "p-2"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"my notes", "line 1, is not valid JSON"),
        (b"a first line\nand a last one without an end", "line 1, is not valid JSON"),
        (b'{"prompt": "A question?"}\n{"prompt": "Ano', "line 1, has no text 'source'"),
        (b'{"prompt": "A question?"}', "line 1, has no text 'source'"),
        (b'{"source": "x", "url": "y"}', "line 1, has no text 'sample_id'"),
        pytest.param(b"[" * 200_000, "line 1, is not valid JSON", id="deep"),
        (b"caf\xe9", "is not UTF-8"),
    ],
)
def test_a_file_that_is_no_collection_stays_as_it_is(
    server: Server, prompts: list[Prompt], tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "out.jsonl"
    path.write_bytes(content)
    with pytest.raises(AtlasError, match=message):
        collect([api(server)], prompts, path, manners=quick())
    assert path.read_bytes() == content and not server.requests


def test_what_is_read_is_not_written_over(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, link = tmp_path / "prompts.txt", tmp_path / "link.jsonl"
    file.write_text("Question?", "utf-8")
    link.symlink_to(file)
    for path in (file, link, tmp_path / "." / "prompts.txt"):
        command = ["collect", "--prompts", str(file), "--to", str(path), "--base-url", server.address, "--model", "gpt"]
        assert main(command) == 2
        assert "would be written over" in capsys.readouterr().err
    assert file.read_text("utf-8") == "Question?" and not server.requests


def test_kill_while_collecting_loses_nothing_that_was_written(
    server: Server, prompts: list[Prompt], tmp_path: Path
) -> None:
    server.misdeeds = {prompts[3].prompt: ["stall"]}
    path, file = tmp_path / "out.jsonl", tmp_path / "prompts.txt"
    file.write_text("\n".join(p.prompt for p in prompts), "utf-8")
    command = [sys.executable, "-m", "jobs", "collect", "--prompts", str(file), "--to", str(path)]
    command += ["--base-url", server.address, "--model", "gpt", "--concurrency", "1"]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline and not (path.exists() and path.read_bytes().count(b"\n") == 3):
        time.sleep(0.02)
    child.kill()
    child.wait()
    assert len(read_collected(path)) == 3
    server.misdeeds = {}
    assert main(command[3:]) == 0
    assert len(read_collected(path)) == 6 and len(server.requests) in (6, 7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"system": "Be rude."}, 'with system null, and now it is "Be rude."'),
        ({"sampling": Sampling(0.9)}, '"temperature": null.* and now it is .*"temperature": 0.9'),
        ({"sampling": Sampling(seed=3)}, "with seed null, and now it is 3"),
    ],
)
def test_a_source_that_changed_is_refused(
    server: Server, prompts: list[Prompt], filled: Path, change: dict[str, object], message: str
) -> None:
    before = filled.read_bytes()
    with pytest.raises(AtlasError, match=message) as caught:
        collect([api(server, **change)], prompts, filled, manners=quick())
    assert "another name" in caught.value.remedy and filled.read_bytes() == before
    other = Source("gpt2", "api", "acme/gpt-9", base_url=server.address, **change)
    assert collect([other], prompts, filled, manners=quick()).collected == 6


def test_a_prompt_that_changed_is_refused(server: Server, filled: Path) -> None:
    with pytest.raises(AtlasError, match="holds another prompt with the id 'p-1'"):
        collect([api(server)], [Prompt("p-1", "Something else?")], filled, manners=quick())


def test_two_processes_do_not_share_a_file(server: Server, prompts: list[Prompt], filled: Path) -> None:
    with (
        collection.AppendOnlyJsonl(filled, ProgressReporter()),
        pytest.raises(AtlasError, match="Another process is collecting"),
    ):
        collect([api(server)], prompts, filled, manners=quick())


def test_names_must_differ_and_files_must_fit(server: Server, prompts: list[Prompt], tmp_path: Path) -> None:
    with pytest.raises(AtlasError, match="'gpt' is named twice"):
        collect([api(server), api(server)], prompts, tmp_path / "out.jsonl")
    with pytest.raises(AtlasError, match="is a gzip file"):
        collect([api(server)], prompts, tmp_path / "out.jsonl.gz")
    (tmp_path / "file").write_text("", "utf-8")
    with pytest.raises(AtlasError, match="cannot be written"):
        collect([api(server)], prompts, tmp_path / "file" / "out.jsonl")


def test_a_full_disk_is_one_sentence(server: Server, prompts: list[Prompt], filled: Path, monkeypatch) -> None:
    before = filled.read_bytes()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(collection.os, "write", full)
    with pytest.raises(AtlasError, match=r"The disk is full, .*out\.jsonl cannot grow"):
        collect([api(server)], prompts, filled, manners=quick())
    assert filled.read_bytes() == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_really_full_disk(server: Server, prompts: list[Prompt], tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.symlink_to("/dev/full")
    sheet = collection.AppendOnlyJsonl(path, ProgressReporter())
    sheet._handle = os.open(path, os.O_WRONLY)
    with pytest.raises(AtlasError, match="The disk is full"):
        sheet.add(_line("a", "x"))
    os.close(sheet._handle)


def test_a_damaged_line_in_the_middle_is_named(server: Server, prompts: list[Prompt], filled: Path) -> None:
    lines = filled.read_bytes().split(b"\n")
    lines[1] = lines[1][:50]
    filled.write_bytes(b"\n".join(lines))
    with pytest.raises(AtlasError, match="line 2, is not valid JSON"):
        collect([api(server)], prompts, filled, manners=quick())


def _line(source: str, sample_id: str, prompt: str = "p", response: str = "r") -> Collected:
    return Collected(source, sample_id, prompt, response, "m", *[None] * 4, {}, None, None, None, None, {}, "", {})


def _write(path: Path, lines: list[Collected]) -> Path:
    path.write_text("".join(json.dumps(vars(line)) + "\n" for line in lines), "utf-8")
    return path


def test_a_collection_as_records(tmp_path: Path) -> None:
    lines = [_line(s, i, prompt=f"ask {i}", response=f"{s}{i}") for s in ("z", "a") for i in ("q2", "q1")]
    records = collected_records(_write(tmp_path / "c.jsonl", lines), "mine")
    assert (records.sources, records.prompt_ids) == (["z", "a"], ["q1", "q2"])
    assert records.keys == ["mine/z/q1", "mine/z/q2", "mine/a/q1", "mine/a/q2"]
    assert [(t.prompt, t.response) for t in records.traces][:2] == [("ask q1", "zq1"), ("ask q2", "zq2")]
    packed = tmp_path / "c.jsonl.gz"
    packed.write_bytes(gzip.compress((tmp_path / "c.jsonl").read_bytes()))
    assert collected_records(packed, "mine") == records
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(AtlasError, match="truncated or corrupt gzip"):
        collected_records(packed, "mine")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([_line("a", "1"), _line("a", "1")], "'1' of 'a' twice"),
        ([_line("a", "1"), _line("b", "1", prompt="other")], "two prompts with the id '1'"),
        ([_line("a", "1"), _line("a", "2"), _line("b", "2")], "lacks 1 responses, the first is '1' of 'b'"),
    ],
)
def test_a_collection_with_holes_is_refused(tmp_path: Path, lines: list[Collected], message: str) -> None:
    with pytest.raises(AtlasError, match=message):
        collected_records(_write(tmp_path / "c.jsonl", lines), "mine")


def test_lines_without_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.jsonl"
    path.write_text('{"source": "a", "sample_id": "1", "prompt": "p", "model": "m"}\n', "utf-8")
    with pytest.raises(AtlasError, match="line 1, has no text 'response'"):
        read_collected(path)


# Local models


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real two-block Llama with random weights and a real tokenizer, with a chat template, in a folder."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: i for i, token in enumerate(["<pad>", "<end>", *alphabet])}
    bare = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    bare.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bare.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=bare, pad_token="<pad>", eos_token="<end>")
    tokenizer.chat_template = (
        "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}\n{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    folder = tmp_path_factory.mktemp("models") / "tiny"
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def local(model: Path, name: str = "tiny", **more: object) -> Source:
    more.setdefault("sampling", Sampling(1.0, max_new_tokens=8))
    return Source(name, "local", str(model), **more)


def texts(path: Path) -> dict[tuple[str, str], str]:
    return {(line.source, line.sample_id): line.response for line in read_collected(path)}


def test_a_local_model_answers(tiny: Path, prompts: list[Prompt], tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    source = local(tiny, system="Be odd.", sampling=Sampling(0.8, 0.9, 20, 8, 7))
    assert collect([source], prompts, path, batch_size=4).collected == 6
    lines = read_collected(path)
    assert [line.sample_id for line in lines] == [p.sample_id for p in prompts]
    for line in lines:
        assert (line.model, line.endpoint, line.system, line.seed) == ("tiny", None, "Be odd.", 7)
        assert line.weights_sha256 == _sha256(tiny / "model.safetensors")
        assert line.settings == {"temperature": 0.8, "top_p": 0.9, "top_k": 20, "max_new_tokens": 8}
        assert line.prompt_tokens == len(f"[system]Be odd.\n[user]{line.prompt}\n[assistant]")
        assert (line.finish_reason == "length") == (line.response_tokens == 8)
        assert {"torch", "transformers", "python"} <= set(line.software)
        assert line.engine["device"] == "cpu" and line.engine["batch_size"] == 4
        assert str(tiny) not in json.dumps(vars(line)), "no path of this machine"
    assert [line.engine["batch"] for line in lines] == [0, 0, 0, 0, 1, 1]


def _sha256(path: Path) -> str:
    import hashlib

    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_local_model_repeats_itself(tiny: Path, prompts: list[Prompt], tmp_path: Path) -> None:
    for name in ("one", "two"):
        collect([local(tiny)], prompts, tmp_path / name, batch_size=2)
    assert texts(tmp_path / "one") == texts(tmp_path / "two")
    collect([local(tiny, sampling=Sampling(1.0, max_new_tokens=8, seed=43))], prompts, tmp_path / "three", batch_size=2)
    assert texts(tmp_path / "three") != texts(tmp_path / "one")


def test_an_interrupted_collection_draws_what_an_uninterrupted_one_would(
    tiny: Path, prompts: list[Prompt], tmp_path: Path
) -> None:
    """Also when the interruption fell into the middle of a batch."""
    whole, cut = tmp_path / "whole.jsonl", tmp_path / "cut.jsonl"
    collect([local(tiny)], prompts, whole, batch_size=3)
    cut.write_bytes(b"".join(whole.read_bytes().splitlines(keepends=True)[:4]))
    assert collect([local(tiny)], prompts, cut, batch_size=3).collected == 2
    assert texts(cut) == texts(whole)


def test_greedy_is_the_same_alone_and_in_a_batch(tiny: Path, tmp_path: Path) -> None:
    """Left padding and its mask: a short prompt beside a long one gets the response that it gets alone."""
    prompts = [Prompt("a", "Hi"), Prompt("b", "A much longer question, with many more tokens than the first?")]
    greedy = Sampling(0, max_new_tokens=6)
    for size, name in ((2, "together"), (1, "alone")):
        collect([local(tiny, sampling=greedy)], prompts, tmp_path / name, batch_size=size)
    assert texts(tmp_path / "together") == texts(tmp_path / "alone")


def test_greedy_against_a_plain_loop(tiny: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from backend.proxies.reader import best_dtype

    collect([local(tiny, sampling=Sampling(0, max_new_tokens=6))], [Prompt("a", "Hello")], tmp_path / "out.jsonl")
    (line,) = read_collected(tmp_path / "out.jsonl")
    model = AutoModelForCausalLM.from_pretrained(tiny, dtype=best_dtype(torch.device("cpu")))
    tokenizer = AutoTokenizer.from_pretrained(tiny)
    ids = tokenizer("[user]Hello\n[assistant]")["input_ids"]
    start = len(ids)
    for _ in range(6):
        with torch.inference_mode():
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
        if ids[-1] == 1:
            ids.pop()
            break
    assert line.response == tokenizer.decode(ids[start:])


def test_templates_and_models_without_chat(tiny: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(tiny, bare)
    (bare / "chat_template.jinja").unlink()
    path = tmp_path / "out.jsonl"
    sources = [local(bare, "plain"), local(bare, "framed", template="Q: {prompt} {x}\nA:"), local(tiny, "chatty")]
    collect(sources, [Prompt("a", "Hello")], path)
    lengths = {line.source: line.prompt_tokens for line in read_collected(path)}
    assert lengths == {
        "plain": len("Hello"),
        "framed": len("Q: Hello {x}\nA:"),
        "chatty": len("[user]Hello\n[assistant]"),
    }
    with pytest.raises(AtlasError, match="has no chat template, so the source 'x' cannot have a system prompt"):
        collect([local(bare, "x", system="Be odd.")], [Prompt("a", "Hello")], path)


def test_one_model_serves_several_sources(tiny: Path, prompts: list[Prompt], tmp_path: Path, monkeypatch) -> None:
    made: list[str] = []

    class Counting(collection.LocalModel):
        def __init__(self, name: str, device: str) -> None:
            made.append(name)
            super().__init__(name, device)

    monkeypatch.setattr(collection, "LocalModel", Counting)
    sources = [local(tiny, n, sampling=Sampling(t, max_new_tokens=4)) for n, t in (("cold", 0), ("hot", 2.0))]
    summary = collect(sources, prompts, tmp_path / "out.jsonl")
    assert summary.collected == 12 and made == [str(tiny)]
    found = texts(tmp_path / "out.jsonl")
    assert [found["cold", p.sample_id] for p in prompts] != [found["hot", p.sample_id] for p in prompts]


def test_what_a_local_model_cannot_do(tiny: Path, tmp_path: Path, prompts: list[Prompt]) -> None:
    path = tmp_path / "out.jsonl"
    with pytest.raises(AtlasError, match="exceed the 256 tokens of 'tiny'"):
        collect([local(tiny)], [Prompt("a", "x" * 300)], path)
    with pytest.raises(AtlasError, match="no-such-model"):
        collect([Source("a", "local", "no-such-model")], prompts, path)
    with pytest.raises(AtlasError, match="reads both ways"):
        collect([Source("a", "local", "minilm-l6")], prompts, path)
    with pytest.raises(AtlasError, match="There is no device 'abacus'"):
        collect([local(tiny)], prompts, path, device="abacus")
    with pytest.raises(AtlasError, match="batch is 0"):
        collect([local(tiny)], prompts, path, batch_size=0)


def test_the_verb_from_a_file_of_sources(tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.txt").write_text("One?\nTwo?\nThree?\n", "utf-8")
    (tmp_path / "s.toml").write_text(
        f'[sources.a]\nlocal = "{tiny}"\n[sources.b]\nlocal = "{tiny}"\nseed = 1\n', "utf-8"
    )
    command = ["collect", "--prompts", str(tmp_path / "p.txt"), "--to", str(tmp_path / "out.jsonl"), "--limit", "2"]
    command += ["--sources", str(tmp_path / "s.toml"), "--source", f"c=local:{tiny},seed=2", "--max-new-tokens", "4"]
    assert main(command) == 0
    assert "6 responses collected now, 0 were there" in capsys.readouterr().out
    lines = read_collected(tmp_path / "out.jsonl")
    assert Counter(line.source for line in lines) == {"a": 2, "b": 2, "c": 2}
    assert {line.source: line.seed for line in lines} == {"a": 42, "b": 1, "c": 2}
    assert main(command) == 0
    assert "0 responses collected now, 6 were there" in capsys.readouterr().out


def test_no_source_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "p.txt").write_text("One?\n", "utf-8")
    assert main(["collect", "--prompts", str(tmp_path / "p.txt"), "--to", str(tmp_path / "o.jsonl")]) == 2
    assert "No source was named" in capsys.readouterr().err
    assert main(["collect", "--prompts", "p", "--to", "o", "--source", "a=local:m", "--limit", "0"]) == 2
    assert "limit is 0" in capsys.readouterr().err


# The shipped sample


def test_the_sample_is_whole() -> None:
    records = sample_records()
    assert len(records.sources) >= 6 and len(records.prompt_ids) == 60
    assert len(records.traces) == len(records.sources) * 60 == len(set(records.keys))
    shipped = {p.sample_id: p.prompt for p in read_prompts(SAMPLES / "prompts.jsonl")}
    assert {i: t.prompt for i, t in zip(records.prompt_ids, records.traces, strict=False)} == shipped
    lengths = [len(t.response) for t in records.traces]
    assert sum(lengths) / len(lengths) > 100 and len({t.response for t in records.traces}) > 0.9 * len(lengths)


def test_the_sample_says_where_it_comes_from() -> None:
    lines = read_collected(RESPONSES)
    sources = {source.name: source for source in read_sources(SAMPLES / "sources.toml")}
    assert {line.source for line in lines} == set(sources)
    for line in lines:
        assert line.weights_sha256 and line.endpoint is None and line.response_tokens <= 128
        assert line.settings == sources[line.source].settings() and line.system == sources[line.source].system
    assert RESPONSES.stat().st_size < 1_000_000


@pytest.mark.proxy
def test_the_sample_can_be_made_again(tmp_path: Path) -> None:
    """Greedy responses of the packaged model on this machine share their beginnings with the shipped ones."""
    try:
        locate(describe("smollm2-135m"))
    except AtlasError as error:
        pytest.skip(f"the weights of smollm2-135m are missing: {error}")
    greedy = next(s for s in read_sources(SAMPLES / "sources.toml") if s.sampling.temperature == 0)
    some = read_prompts(SAMPLES / "prompts.jsonl")[:8]
    short = Source(greedy.name, "local", greedy.model, sampling=Sampling(0, max_new_tokens=8))
    collect([short], some, tmp_path / "out.jsonl")
    shipped = texts(RESPONSES)
    again = texts(tmp_path / "out.jsonl")
    same = sum(shipped[key].startswith(again[key][:10]) for key in again)
    assert same >= 6, "rounding in another batch may turn a word, not most of them"
