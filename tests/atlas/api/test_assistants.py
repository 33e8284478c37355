"""Assistants: the protocol's own client lists five tools and gets from them what REST answers."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import waitress
from mcp import Client

from atlas.api import access
from atlas.application import create_application
from backend.attribution.report import FORMAT
from backend.enrolment.files import enrolments
from backend.enrolment.fit import split_samples
from tests.invented_atlas import publish_invented

pytestmark = pytest.mark.proxy
SAMPLE = "samples-smollm2-135m-ur"


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a whole atlas is served: an invented generation, and the shipped sample ecosystem with its real proxy."""
    folder = tmp_path_factory.mktemp("assistants")
    publish_invented(folder / "data")
    (folder / "data" / "enrolments").mkdir(exist_ok=True)
    shutil.copy(enrolments()[SAMPLE], folder / "data" / "enrolments")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATLAS_COMPILE", "0")
        app = create_application(folder / "data", folder / "cache")
        server = waitress.create_server(app.server, host="127.0.0.1", port=0, threads=4)
        threading.Thread(target=server.run, daemon=True).start()
        yield f"http://127.0.0.1:{server.effective_port}{access.ASSISTANTS}"
        server.close()
        app.server.extensions["attribution"].close()


def call(address: str, tool: str, arguments: dict[str, Any]) -> Any:
    """Result of a tool; a string is its refusal."""

    async def one() -> Any:
        async with Client(address) as client:
            answer = await client.call_tool(tool, arguments)
            text = answer.content[0].text
            return text if answer.is_error else json.loads(text)

    return asyncio.run(one())


def sample() -> list[dict[str, Any]]:
    traces = [row.trace for row in split_samples()[1] if row.source == "gemma-answer"]
    return [{"prompt": trace.prompt, "response": trace.response} for trace in traces]


def test_five_tools_are_listed_and_nothing_else(address: str) -> None:
    async def names() -> dict[str, Any]:
        async with Client(address) as client:
            return {tool.name: tool for tool in (await client.list_tools()).tools}

    found = asyncio.run(names())
    assert set(found) == {"preview", "attribute", "drift", "neighbours", "verify"}
    assert "Say which enrolled language model wrote" in (found["attribute"].description or "")
    assert found["neighbours"].input_schema["required"] == ["source"]


def test_an_assistant_attributes_what_rest_attributes(address: str) -> None:
    traces = sample()
    assert call(address, "preview", {"traces": traces})["traces"] == 10
    found = call(address, "attribute", {"traces": traces, "enrolment": SAMPLE})
    body = json.dumps({"traces": traces, "enrolment": SAMPLE}).encode()
    url, headers = address.replace(access.ASSISTANTS, "/api/attribute"), {"Content-Type": "application/json"}
    with urllib.request.urlopen(urllib.request.Request(url, body, headers)) as response:
        report = json.load(response)["report"]
    answer = "Points to gemma-answer, among the 10 enrolled sources"  # its unknown-source test cannot tell others
    assert (found["answer"], found["verdict"]) == (answer, report["results"]["verdict"])
    assert found["candidates"] == report["results"]["candidates"]
    assert found["limits"] == report["limits"]
    some = call(address, "attribute", {"traces": traces, "enrolment": SAMPLE, "candidates": ["family:gemma"]})
    assert {row["family"] for row in some["candidates"]} == {"gemma"} and "of the 10 enrolled" in some["choice"]
    checked = call(address, "verify", {"report": report})
    assert (checked["agrees"], checked["sha256"]) == (True, report["sha256"])
    report["results"]["verdict"] = "AGAINST"
    assert call(address, "verify", {"report": report})["agrees"] is False


def test_windows_and_neighbours(address: str) -> None:
    found = call(address, "drift", {"before": sample(), "enrolment": SAMPLE})
    assert found["state"] == "done"
    assert found["answer"]["windows"]
    near = call(address, "neighbours", {"source": "gpt_1", "top": 3})
    assert len(near["neighbors"]) == 3


@pytest.mark.parametrize(
    ("tool", "arguments", "problem"),
    [
        ("attribute", {"traces": []}, "/traces"),
        ("attribute", {"traces": [{"prompt": "p"}]}, "/traces/0/response"),
        ("attribute", {"job": "../../etc"}, "not found"),
        ("attribute", {"job": "f" * 32 + "." + "0" * 24}, "no such audit"),
        ("neighbours", {"source": "a/../b?x"}, "There are no neighbours"),
        ("drift", {"before": [{"response": "r"}], "enrolment": "absent"}, "absent"),
        ("verify", {"report": {"format": FORMAT}}, "no report"),
    ],
)
def test_refusals_are_sentences(address: str, tool: str, arguments: dict[str, Any], problem: str) -> None:
    said = call(address, tool, arguments)
    assert isinstance(said, str)
    assert problem in said


def test_token_and_limits_are_those_of_rest(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def status(headers: dict[str, str], body: bytes = b"") -> int:
        message = body or json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
        asked = urllib.request.Request(address, message, {"Content-Type": "application/json"} | headers)
        try:
            return int(urllib.request.urlopen(asked).status)
        except urllib.error.HTTPError as error:
            assert json.load(error)["detail"]
            return error.code

    assert status({}) == 200
    assert status({"Origin": "https://elsewhere.example"}) == 403
    assert status({}, b" " * 2**21) == 413
    monkeypatch.setenv("ATLAS_TOKEN", "secret")
    assert status({}) == 401
    assert status({"Authorization": "Bearer wrong"}) == 401
    assert status({"Authorization": "Bearer secret"}) == 200
