"""Forms of records: ShareGPT, arena pairs, HELM and spans of OpenTelemetry, sound, mixed and broken."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.errors import AtlasError
from backend.intake import Columns, Intake, Limits, Received, preview, receive
from backend.intake.chat_logs import Turn
from backend.intake.log_formats import FORMATS, LogFormat, format_of, register
from backend.intake.traces import whole

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
WORD = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=8)
SAID = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=4)
"""Prompts and responses of a conversation."""


def read(*records: Any, name: str = "x.jsonl", **given: Any) -> Intake:
    return receive(io.BytesIO("\n".join(map(json.dumps, records)).encode()), name, **given)


def told(trace: Received) -> tuple[str, str, str | None]:
    return trace.prompt, trace.response, trace.label


def sharegpt(said: list[tuple[str, str]], **more: Any) -> dict[str, Any]:
    turns = [{"from": who, "value": text} for pair in said for who, text in zip(("human", "gpt"), pair, strict=True)]
    return {"conversations": [{"from": "system", "value": "s"}, *turns], **more}


def talk(said: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [
        {"role": who, "content": text} for pair in said for who, text in zip(("user", "assistant"), pair, strict=True)
    ]


def pair(said: list[tuple[str, str]], other: list[tuple[str, str]], **more: Any) -> dict[str, Any]:
    return {"conversation_a": talk(said), "conversation_b": talk(other), "model_a": "m", "model_b": "n", **more}


def state(prompt: str, texts: list[str], model: str = "openai/m") -> dict[str, Any]:
    return {
        "instance": {"input": {"text": "short"}, "id": "id7", "references": []},
        "request": {"model": model, "prompt": prompt, "temperature": 0.0},
        "result": {"success": True, "completions": [{"text": text, "logprob": -1.0} for text in texts]},
    }


def otlp(value: Any) -> dict[str, Any]:
    """A value as OTLP/JSON types it."""
    if isinstance(value, list):
        return {"arrayValue": {"values": [otlp(part) for part in value]}}
    if isinstance(value, dict):
        return {"kvlistValue": {"values": [{"key": key, "value": otlp(part)} for key, part in value.items()]}}
    return {"stringValue": value}


def span(said: dict[str, Any], **more: Any) -> dict[str, Any]:
    attributes = [{"key": key, "value": otlp(value)} for key, value in said.items()]
    return {"spanId": "ab", "name": "chat m", "startTimeUnixNano": "17", "attributes": attributes, **more}


def export(*spans: Any) -> dict[str, Any]:
    return {"resourceSpans": [{"resource": {"attributes": []}, "scopeSpans": [{"scope": {}, "spans": list(spans)}]}]}


def messages(role: str, text: str) -> list[dict[str, Any]]:
    return [{"role": role, "parts": [{"type": "text", "content": text}]}]


def answered(prompt: str, response: str, model: str = "m", **more: Any) -> dict[str, Any]:
    said = {
        "gen_ai.input.messages": messages("user", prompt),
        "gen_ai.output.messages": messages("assistant", response),
    }
    return {"gen_ai.operation.name": "chat", "gen_ai.response.model": model, **said, **more}


# What was written is read


@settings(max_examples=60, deadline=None)
@given(SAID, WORD)
def test_sharegpt(said: list[tuple[str, str]], model: str) -> None:
    record = sharegpt(said, id="x1", model=model)
    intake = read(record)
    assert [told(trace) for trace in intake.traces] == [(*pair, model) for pair in said]
    assert {trace.name for trace in intake.traces} == {"x1"} and intake.problems == ()
    assert [trace.turn for trace in intake.traces] == list(range(len(said)))
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([record]), stream)
    packed = receive(io.BytesIO(stream.getvalue()), "x.parquet")
    assert [told(trace) for trace in packed.traces] == [told(trace) for trace in intake.traces]


@settings(max_examples=60, deadline=None)
@given(SAID, SAID, WORD, WORD)
def test_pairs_of_an_arena(said: list[tuple[str, str]], other: list[tuple[str, str]], one: str, two: str) -> None:
    expected = [*((*pair, one) for pair in said), *((*pair, two) for pair in other)]
    record = {**pair(said, other), "model_a": one, "model_b": two, "winner": "model_a", "source": "somewhere"}
    assert [told(trace) for trace in read(record).traces] == expected
    lists = {"prompt": [p for p, _ in said], "response_a": [a for _, a in said], "response_b": [a for _, a in said]}
    models = {"model_a": one, "model_b": two}
    for written in ({**models, **lists}, {**models, **{key: json.dumps(texts) for key, texts in lists.items()}}):
        assert [told(trace) for trace in read(written).traces] == [(p, a, m) for m in (one, two) for p, a in said]
    assert preview(io.BytesIO(json.dumps(record).encode()), "x.jsonl").labels == tuple(dict.fromkeys((one, two)))


@settings(max_examples=60, deadline=None)
@given(TEXT, TEXT, TEXT)
def test_pairs_of_plain_answers(prompt: str, one: str, two: str) -> None:
    for names in (
        ("output_1", "output_2", "generator_1", "generator_2"),
        ("answer_a", "answer_b", "model_a", "model_b"),
    ):
        record = {"instruction": prompt, **dict(zip(names, (one, two, "m", "n"), strict=True))}
        expected = [(prompt, one, "m"), (prompt, two, "n")]
        assert [told(trace) for trace in read(record).traces] == expected
    cells = "prompt,response_a,response_b,model_a,model_b\nWhy?,Because.,So.,m,n\n"
    intake = receive(io.BytesIO(cells.encode()), "x.csv")
    assert [told(trace) for trace in intake.traces] == [("Why?", "Because.", "m"), ("Why?", "So.", "n")]


@settings(max_examples=60, deadline=None)
@given(TEXT.filter(bool), st.lists(TEXT, min_size=1, max_size=3), WORD)
def test_helm(prompt: str, texts: list[str], model: str) -> None:
    expected = [(prompt, text, model) for text in texts]
    one = state(prompt, texts, model)
    for intake in (
        read(one),
        read({"request_states": [one]}),
        receive(io.BytesIO(json.dumps({"adapter_spec": {}, "request_states": [one]}, indent=1).encode()), "x.json"),
    ):
        assert [told(trace) for trace in intake.traces] == expected
        assert {trace.name for trace in intake.traces} == {"id7"}
    asked = {**one, "request": {"model": model, "prompt": "", "messages": [{"role": "user", "content": prompt}]}}
    assert [told(trace) for trace in read(asked).traces] == expected
    assert read({**one, "request": {"model": model}}).traces[0].prompt == "short"


@settings(max_examples=60, deadline=None)
@given(TEXT, TEXT, st.sampled_from(["m", "m-2024-08-06", "n"]))
def test_spans(prompt: str, response: str, model: str) -> None:
    said = answered(prompt, response, model, **{"gen_ai.request.model": "m"})
    as_text = {key: json.dumps(value) if isinstance(value, list) else value for key, value in said.items()}
    event = {"name": "gen_ai.client.inference.operation.details", "attributes": span(said)["attributes"]}
    for written in (span(said), span(as_text), {**span({}), "attributes": said}, span({}, events=[event])):
        for record in (written, export({"name": "GET", "spanId": "c", "attributes": []}, written)):
            (trace,) = (intake := read(record)).traces
            assert told(trace) == (prompt, response, model)
            assert (trace.requested, trace.returned, trace.name, trace.time) == ("m", model, "ab", "17")
            assert any("another model than was requested" in note for note in intake.notes) == (model == "n")
            assert any("a version of it" in note for note in intake.notes) == (model == "m-2024-08-06")
    document = json.dumps(export(span(said), span(said)), indent=2).encode()
    assert len(receive(io.BytesIO(document), "x.json").traces) == 2


# What is broken says so, and costs nothing else


@pytest.mark.parametrize(
    ("record", "column", "words"),
    [
        ({"conversations": [{"value": "x"}, {"from": "gpt", "value": "y"}]}, "conversations[0]", "give it a role"),
        ({"conversations": [{"from": "gpt", "value": {"a": 1}}]}, "conversations[0].content", "an object"),
        ({"conversations": [{"from": "human", "value": "x"}]}, "conversations", "no message of the assistant"),
        ({"conversations": [{"from": "human", "value": "x"}, "y"]}, "conversations[1]", "no object"),
        ({"conversation_a": talk([("p", "a")])}, "conversation_b", "conversation_a and conversation_b"),
        ({"prompt": "p", "response_a": "x", "model_a": "m"}, "response_b", "response_a and response_b"),
        ({"prompt": "p", "response_a": "x", "response_b": {"a": 1}}, "response_b", "an object"),
        ({**state("p", ["a"]), "result": {"success": False, "completions": []}}, "result", "failed"),
        ({**state("p", ["a"]), "result": None}, "result", "failed"),
        (state("p", []), "result.completions", "no completion"),
        ({"request_states": [3, state("p", ["a"])]}, "request_states[0].request", "no request"),
        (export(span({"gen_ai.request.model": "m"})), "gen_ai.output.messages", "capture of message content"),
        (export(span({"http.method": "GET"})), "gen_ai.output.messages", "capture of message content"),
        (span({"gen_ai.output.messages": '[{"role": "assis'}), "gen_ai.output.messages", "without cutting"),
        (span({"gen_ai.output.messages": "3"}), "gen_ai.output.messages", "list of objects"),
        (
            span({"gen_ai.output.messages": [{"role": "assistant", "parts": [{"type": "tool_call"}]}]}),
            "gen_ai.output.messages",
            "leave the span out",
        ),
        (export(span(answered("p", "r")), span({"gen_ai.request.model": "m"})), "gen_ai.output.messages", "messages"),
    ],
)  # fmt: skip
def test_a_broken_record_names_its_line_and_what_to_do(record: dict[str, Any], column: str, words: str) -> None:
    """In a file that mixes forms, all others are read."""
    others = [sharegpt([("p", "a")]), pair([("p", "b")], [("p", "c")]), state("p", ["d"]), span(answered("p", "e"))]
    intake = read(*others, record, {"prompt": "p", "response": "f"})
    (problem,) = intake.problems
    assert (problem.place, problem.column) == (5, column)
    assert words in problem.reason
    assert [trace.response for trace in intake.traces if trace.place != 5] == ["a", "b", "c", "d", "e", "f"]


def test_a_file_of_broken_records_names_the_first() -> None:
    with pytest.raises(AtlasError, match=r"no trace in x.jsonl \(line 1: there is no message of the assistant\)"):
        read({"conversations": [{"from": "human", "value": "x"}]})


def test_ordinary_columns_are_no_form() -> None:
    for record in (
        {"prompt": "p", "response": "r", "response_1": "x", "response_2": "y"},
        {"instruction": "p", "output": "r", "conversations": [{"from": "gpt", "value": "x"}]},
        {"prompt": "p", "response": "r", "attributes": {"a": 1}, "result": {"ok": True}},
        {"prompt": "p", "response": "r", "conversation": ["x", "y"]},
    ):
        assert format_of(record) is None
        assert [(trace.prompt, trace.response) for trace in read(record).traces] == [("p", "r")]


def test_a_person_may_map_columns_instead() -> None:
    record = {**pair([("p", "a")], [("p", "b")]), "extra": "text"}
    assert [told(trace) for trace in read(record, columns=Columns(response="extra", label="model_b")).traces] == [
        ("", "text", "n")
    ]
    assert {trace.label for trace in read(record, columns=Columns(label="none")).traces} == {None}


def test_the_examples_of_the_documentation_are_read() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "data.md").read_text("utf-8")
    section = page.split("## Files of traces that are read")[1].split("\n## ")[0]
    examples = re.findall(r"```\n(.*?)```", section, re.DOTALL)
    counts = [len(receive(io.BytesIO(example.encode()), "x").traces) for example in examples]
    assert counts == [2, 1, 1, 2, 2, 4, 2, 2, 1, 2, 1]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["conversations", "from", "value", "conversation_a", "conversation_b", "model_a", "response_a",
                 "response_b", "request", "result", "completions", "text", "instance", "request_states", "prompt",
                 "resourceSpans", "scopeSpans", "spans", "spanId", "attributes", "key", "values",
                 "stringValue", "arrayValue",
                 "gen_ai.output.messages", "gen_ai.input.messages", "role", "parts", "content", "type", "model",
                 "openinference.span.kind", "llm.output_messages.0.message.content", "llm.invocation_parameters",
                 "langfuse.observation.type", "langfuse.observation.output", "input", "output", "messages", "params",
                 "custom_id", "url", "body", "json", "choices", "message"]
            ),
            inner, max_size=5,
        )
    ),
    max_leaves=25,
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from(["conversations", "conversation_a", "conversation_b", "response_a", "response_b",
                                        "request", "result", "instance", "request_states", "resourceSpans", "spanId",
                                        "attributes", "events", "custom_id", "url", "body", "requests", "error",
                                        "observations", "type", "traceId", "input", "output", "litellm_call_id",
                                        "messages", "status", "request_body", "response_body", "request_path",
                                        "providerRequest", "providerResponse", "resourceLogs"]),
                       JSON, max_size=5))  # fmt: skip
def test_any_record_is_traces_or_problems(record: dict[str, Any]) -> None:
    try:
        intake = read(record, limits=Limits(characters=200))
    except AtlasError as error:
        str(error).encode()
        return
    for trace in intake.traces:
        assert trace.response == whole(trace.response)
        assert {type(value) for value in (trace.time, trace.label, trace.name, trace.requested, trace.returned)} <= {
            str,
            type(None),
        }
    assert all(problem.place == 1 and problem.reason for problem in intake.problems)
    assert len(FORMATS) == 8


def test_a_format_registers_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """A toy format with its own keys, read from JSONL and from a table, next to all others."""
    toy = LogFormat(
        lambda record: "toy_answer" in record,
        lambda record: [Turn(record["toy_question"], record["toy_answer"], label=record["toy_model"])],
        frozenset({"toy_question", "toy_answer", "toy_model"}),
    )
    record = {"toy_question": "p", "toy_answer": "a", "toy_model": "m", "other": "x"}
    with pytest.raises(AtlasError, match="No column"):
        read(record)
    monkeypatch.setattr("backend.intake.log_formats.FORMATS", [*FORMATS])
    register(toy)
    assert format_of(record) is toy and len(FORMATS) == 8
    intake = read(record, sharegpt([("q", "b")], model="n"))
    assert [told(trace) for trace in intake.traces] == [("p", "a", "m"), ("q", "b", "n")] and not intake.problems
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([record]), stream)
    for content, name in ((stream.getvalue(), "x.parquet"), (b"toy_question,toy_answer,toy_model\np,a,m\n", "x.csv")):
        assert [told(trace) for trace in receive(io.BytesIO(content), name).traces] == [("p", "a", "m")]
