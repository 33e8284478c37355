"""Logs that the client libraries wrote: each is read as it is, with the models that were requested and returned."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from backend.intake import Intake, Limits, preview, receive
from tests.intake.make_logs import (
    CLAUDE,
    CLAUDE_RETURNED,
    FOLDER,
    MADE_WITH,
    MAKERS,
    REQUESTED,
    RETURNED,
    SAID,
    as_otlp_json,
    collected,
    serving,
)

REPOSITORY = Path(__file__).resolve().parents[2]
MODELS = dict.fromkeys(MAKERS, (REQUESTED, RETURNED)) | {
    "litellm.jsonl": (f"openai/{REQUESTED}", RETURNED),
    "langfuse-otlp.jsonl": (None, RETURNED),  # it has one name for both
    "langfuse-observations.json": (None, RETURNED),
    "anthropic-batch.jsonl": (CLAUDE, CLAUDE_RETURNED),
}
BAD = {"litellm.jsonl": ("status", "the call failed"), "anthropic-batch.jsonl": ("result", "no answer (errored)")}


def facts(folder: Path, name: str) -> list[tuple[Any, ...]]:
    traces = read(folder / name).traces
    return sorted({(one.prompt, one.response, one.label, one.requested, one.returned) for one in traces})


def read(path: Path) -> Intake:
    with path.open("rb") as stream:
        return receive(stream, path.name)


@pytest.mark.parametrize("name", MAKERS)
def test_a_log_is_read_as_it_is(name: str) -> None:
    intake, (requested, returned) = read(FOLDER / name), MODELS[name]
    assert facts(FOLDER, name) == sorted((*said, returned, requested, returned) for said in SAID)
    assert all(trace.time for trace in intake.traces if not name.startswith("anthropic"))
    column, words = BAD.get(name, (None, ""))
    assert [problem.column for problem in intake.problems] == [column] * (name in BAD)
    assert all(words in problem.reason for problem in intake.problems)


@pytest.mark.parametrize("name", MAKERS)
def test_a_mismatch_of_models_is_said(name: str) -> None:
    requested, returned = MODELS[name]
    with (FOLDER / name).open("rb") as stream:
        found = preview(stream, name)
    assert [(row["requested"], row["returned"]) for row in found.models] == [(requested, returned)]
    assert sum(row["traces"] for row in found.models) == found.traces
    said = [note for note in found.notes if note.startswith("Requested")]
    if requested is None:
        assert said == []
    else:
        what = "a version of it" if requested == CLAUDE else "which is another model than was requested"
        assert said == [f"Requested {requested}, returned {returned} in 2 of 2 traces, {what}."]


@pytest.mark.parametrize("name", MAKERS)
def test_the_library_writes_that_still(name: str, tmp_path: Path) -> None:
    try:
        version(MADE_WITH[name])
    except PackageNotFoundError:
        pytest.skip(f"{MADE_WITH[name]} is not installed")
    command = [sys.executable, "-m", "tests.intake.make_logs", str(tmp_path), name]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True, timeout=100)
    assert facts(tmp_path, name) == facts(FOLDER, name)


def test_spans_of_the_sdk() -> None:
    """As an application that follows the conventions exports them, with a span that is no call of a model."""
    with serving() as server:
        provider = collected(server)
        tracer = provider.get_tracer("shop")
        with tracer.start_as_current_span("GET /answer"):
            for prompt, answer in SAID:
                with tracer.start_as_current_span(f"chat {REQUESTED}") as span:
                    parts = [{"type": "text", "content": prompt}]
                    span.set_attribute("gen_ai.operation.name", "chat")
                    span.set_attribute("gen_ai.request.model", REQUESTED)
                    span.set_attribute("gen_ai.response.model", RETURNED)
                    span.set_attribute("gen_ai.input.messages", json.dumps([{"role": "user", "parts": parts}]))
                    parts = [{"type": "text", "content": answer}]
                    span.set_attribute("gen_ai.output.messages", json.dumps([{"role": "assistant", "parts": parts}]))
        provider.shutdown()
        (export,) = [as_otlp_json(body) for _, body in server.others]
    intake = receive(io.BytesIO(json.dumps(export).encode()), "spans.json")
    assert [(trace.prompt, trace.response) for trace in intake.traces] == list(SAID) and not intake.problems
    assert {(trace.requested, trace.returned) for trace in intake.traces} == {(REQUESTED, RETURNED)}
    assert all(len(trace.name or "") == 16 for trace in intake.traces)


def cell_of(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, dict | list) else value


@pytest.mark.parametrize("name", ["helicone-export.jsonl", "litellm.jsonl", "langfuse-observations.json"])
def test_an_export_as_a_table(name: str) -> None:
    """In CSV and Parquet, where objects are written as text."""
    text = (FOLDER / name).read_text("utf-8")
    rows = json.loads(text) if name.endswith(".json") else [json.loads(line) for line in text.splitlines()]
    flat = [{key: cell_of(value) for key, value in row.items()} for row in rows]
    table, stream = io.StringIO(), io.BytesIO()
    writer = csv.DictWriter(table, list(dict.fromkeys(key for row in flat for key in row)))
    writer.writeheader()
    writer.writerows(flat)
    pq.write_table(pa.Table.from_pylist(flat), stream)
    expected = {(trace.prompt, trace.response, trace.requested, trace.returned) for trace in read(FOLDER / name).traces}
    for content, kind in ((table.getvalue().encode(), "x.csv"), (stream.getvalue(), "x.parquet")):
        found = receive(io.BytesIO(content), kind)
        assert {(one.prompt, one.response, one.requested, one.returned) for one in found.traces} == expected


# Batches, whose requests and results are files of their own


def batch(name: str = "openai-batch.jsonl") -> tuple[list[str], list[str]]:
    lines = (FOLDER / name).read_text("utf-8").splitlines()
    at = 1 if name.startswith("anthropic") else len(SAID)
    return lines[:at], lines[at:]


def received(*lines: str, **more: Any) -> Intake:
    return receive(io.BytesIO("\n".join(lines).encode()), "x.jsonl", **more)


@pytest.mark.parametrize("name", ["openai-batch.jsonl", "anthropic-batch.jsonl"])
def test_results_without_their_requests(name: str) -> None:
    traces = received(*batch(name)[1]).traces
    assert {(trace.prompt, trace.requested) for trace in traces} == {("", None)}
    assert {trace.response for trace in traces} == {answer for _, answer in SAID}


def test_requests_without_results_name_what_to_do() -> None:
    requests, results = batch()
    (problem,) = received(*requests, results[0]).problems
    assert (problem.place, problem.column) == (1, "custom_id") and "append the file of results" in problem.reason
    late = received(*results, *requests)
    reasons = {problem.reason for problem in late.problems}
    assert reasons == {"its result stands before it; put the file of requests first"}
    assert [problem.place for problem in late.problems] == [3, 4] and len(late.traces) == 2
    (twice,) = received(requests[0], *requests, *results).problems
    assert twice.place == 2 and "its own" in twice.reason


def test_requests_take_no_more_than_traces_may() -> None:
    requests, results = batch()
    for limits in (replace(Limits(), text=30), replace(Limits(), traces=1)):
        with pytest.raises(Exception, match=r"requests of x.jsonl up to record 2 hold more than .*cut both files"):
            received(*requests, *results, limits=limits)
    long = json.dumps({**json.loads(requests[0]), "custom_id": "request-1"}).replace("Why", "W" * 300)
    problems = received(long, *results, limits=replace(Limits(), characters=200)).problems
    assert [problem.reason for problem in problems] == ["the prompt is longer than 200 characters"]
