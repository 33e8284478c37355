"""Intake of an audit: every format, every bad place, and hostile files that must end in a sentence."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import pickle
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.audit.intake import COMMAND_LINE, Columns, Intake, Limits, Problem, inspect, receive, trace_hash, walk
from backend.audit.intake.chat import ChatError, is_chat, turns
from backend.audit.intake.columns import as_text, look_up, recognise
from backend.errors import AtlasError


def read(data: bytes, name: str = "traces", **given: Any) -> Intake:
    return receive(io.BytesIO(data), name, **given)


def said(intake: Intake) -> list[tuple[str, str]]:
    return [(trace.prompt, trace.response) for trace in intake.traces]


def jsonl(*records: object) -> bytes:
    return "\n".join(json.dumps(record) for record in records).encode()


# Formats


def test_jsonl_keeps_the_good_lines_and_names_the_bad_ones() -> None:
    data = (
        b'{"prompt": "p", "response": "a", "timestamp": "2026-01-02", "model": "m", "id": 7}\n'
        b"\n"
        b'{"prompt": "p", "response"\n'
        b'{"prompt": "p", "response": null}\n'
        b'{"prompt": "p", "response": NaN}\n'
        b'{"prompt": "p", "response": {"deep": 1}}\n'
        b"[1, 2]\n"
        b'{"prompt": 12, "response": ""}'
    )
    intake = read(data, "a.jsonl")
    assert said(intake) == [("p", "a"), ("12", "")]
    assert [trace.place for trace in intake.traces] == [1, 8]
    first = intake.traces[0]
    assert (first.time, first.label, first.name) == ("2026-01-02", "m", "7")
    assert first.sha256 == hashlib.sha256(b'["p","a"]').hexdigest()
    assert [(p.place, p.column) for p in intake.problems] == [
        (3, "character 27"),
        (4, "response"),
        (5, "response"),
        (6, "response"),
        (7, None),
    ]
    assert "no answer" in intake.problems[3].reason
    assert intake.layout.unit == "line"
    assert intake.layout.sha256 == hashlib.sha256(data).hexdigest()
    assert any("empty response" in note for note in intake.notes)


def test_csv_with_lines_inside_cells() -> None:
    data = b'Prompt;Response\n"p;1";"a\nb"\nonly one cell\np;NaN\n"never closed;x\n'
    intake = read(data, "a.csv")
    assert said(intake) == [("p;1", "a\nb"), ("p", "NaN")]
    assert [trace.place for trace in intake.traces] == [2, 5]
    assert [problem.place for problem in intake.problems] == [4, 6]
    assert "header has 2" in intake.problems[0].reason


def test_parquet_rows_nulls_and_nested_messages() -> None:
    stream = io.BytesIO()
    table = pa.table({"question": ["p", "q", None], "answer": ["a", None, "c"], "created": [1, 2, 3]})
    pq.write_table(table, stream)
    intake = read(stream.getvalue())
    assert said(intake) == [("p", "a"), ("", "c")]
    assert intake.problems == (Problem(2, "answer", "there is no response"),)
    assert intake.traces[0].time == "1"
    stream = io.BytesIO()
    messages = [[{"role": "user", "content": "p"}, {"role": "assistant", "content": "a"}]]
    pq.write_table(pa.table({"messages": messages}), stream)
    assert said(read(stream.getvalue())) == [("p", "a")]


def test_a_json_document() -> None:
    records = [{"prompt": "p", "response": "a"}, 3, {"prompt": "q", "response": "b"}]
    for document in (records, {"data": records}, {"version": 1, "traces": records}):
        intake = read(json.dumps(document, indent=1).encode())
        assert said(intake) == [("p", "a"), ("q", "b")]
        assert [problem.place for problem in intake.problems] == [2]
    assert said(read(json.dumps(records[0], indent=2).encode())) == [("p", "a")]


def test_pasted_text() -> None:
    assert said(read(b"One answer,\nof two lines.\n")) == [("", "One answer,\nof two lines.")]
    text = b"Prompt: Why?\nResponse: Because.\nPrompt: is no prompt here\n---\nPrompt:\nWho?\nAnswer:\nMe.\n\n----\n \n"
    assert said(read(text)) == [("Why?", "Because.\nPrompt: is no prompt here"), ("Who?", "Me.")]


ASKED = {"role": "user", "content": "p"}
ANSWER = {"role": "assistant", "content": "a"}
PARTS = [{"type": "text", "text": "a"}]
CHOICES = {"choices": [{"message": ANSWER}]}
ITEMS = [{"type": "reasoning"}, {"type": "message", "content": [{"type": "output_text", "text": "a"}]}]


@pytest.mark.parametrize(
    "record",
    [
        {"messages": [{"role": "system", "content": "s"}, ASKED, ANSWER]},
        {"messages": [ASKED], "response": "a"},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "p"}]}], **CHOICES},
        {"request": {"messages": [ASKED]}, "response": CHOICES},
        {"request": json.dumps({"messages": [ASKED]}), "response": json.dumps({"choices": [{"text": "a"}]})},
        {"request": {"prompt": "p"}, "response": {"choices": [{"text": "a"}]}},
        {"request": {"messages": [ASKED]}, "response": {"content": PARTS}},
        {"request": {"input": "p"}, "response": {"output": ITEMS}},
        {"custom_id": "1", "body": {"messages": [ASKED]}, "response": {"status_code": 200, "body": CHOICES}},
        {"prompt": "p", "response": {"message": ANSWER}},
    ],
)
def test_chat_logs(record: dict[str, Any]) -> None:
    intake = read(jsonl(record))
    assert said(intake) == [("p", "a")]
    assert intake.problems == ()


def test_a_conversation_gives_a_trace_for_every_answer() -> None:
    talk = [("user", "1"), ("assistant", "a"), ("user", "2"), ("assistant", None), ("tool", "x"), ("assistant", "b")]
    record = {"model": "m", "messages": [{"role": role, "content": content} for role, content in talk]}
    intake = read(
        jsonl(record, {"messages": []}, {"messages": [3]}, {"request": {"messages": []}, "response": {"error": "no"}})
    )
    assert said(intake) == [("1", "a"), ("2", "b")]
    assert [(t.place, t.turn, t.label) for t in intake.traces] == [(1, 0, "m"), (1, 1, "m")]
    assert [p.place for p in intake.problems] == [2, 3, 4]
    assert "error" in intake.problems[2].reason


# Encodings


@pytest.mark.parametrize(
    ("codec", "words"),
    [
        ("utf-8", "UTF-8"),
        ("utf-8-sig", "byte order mark"),
        ("utf-16", "UTF-16"),
        ("utf-16-le", "no byte order mark"),
        ("utf-16-be", "no byte order mark"),
        ("utf-32", "UTF-32"),
        ("latin-1", "a guess: byte"),
    ],
)
def test_encodings(codec: str, words: str) -> None:
    for text in ('{"prompt": "über", "response": "café"}\n', "prompt,response\nüber,café\n"):
        intake = read(text.encode(codec), "x")
        assert said(intake) == [("über", "café")]
        assert words in intake.layout.encoding
        assert any("guess" in note for note in intake.notes) == (codec == "latin-1")


def test_gzip_is_unpacked_and_a_bomb_is_not() -> None:
    line = b'{"prompt": "p", "response": "a"}\n'
    assert len(read(gzip.compress(line * 5), "x.jsonl.gz").traces) == 5
    with pytest.raises(AtlasError, match="when it is unpacked"):
        read(gzip.compress(b" " * 3_000_000), limits=Limits(unpacked=2_000_000))
    with pytest.raises(AtlasError, match="damaged"):
        read(gzip.compress(line * 500)[:-20])


def test_surrogates_become_text_that_can_be_written() -> None:
    (trace,) = read(b'{"prompt": "\\ud800 lone", "response": "\\ud83d\\ude00 pair"}').traces
    assert (trace.prompt, trace.response) == ("\ufffd lone", "😀 pair")


# Columns


def test_columns_are_recognised_and_mapped() -> None:
    assert recognise(["Instruction", "Model Output", "created_at", "engine", "uuid"]) == Columns(
        "Model Output", "Instruction", "created_at", "engine", "uuid"
    )
    data = jsonl({"a": "p", "b": {"c": [{"d": "x"}]}, "response": "no"})
    assert said(read(data, columns=Columns(response="b.c.0.d", prompt="a"))) == [("p", "x")]
    with pytest.raises(AtlasError, match="no column 'zzz'"):
        read(data, columns=Columns(response="zzz"))
    with pytest.raises(AtlasError, match=r"No column .* looks like a response"):
        read(jsonl({"a": "x", "b": "y"}))
    assert look_up({"a.b": 1, "a": {"b": 2}}, "a.b") == 1


def test_what_is_text() -> None:
    assert as_text(True) == "true"
    assert as_text(["a", {"type": "text", "text": "b"}, {"type": "image_url", "image_url": {}}]) == "ab"
    assert as_text(float("nan")) is None
    for wrong in ({}, [], b"x", [1]):
        with pytest.raises(TypeError):
            as_text(wrong)


# Duplicates and limits


def test_duplicates_point_to_the_first() -> None:
    line = {"prompt": "p", "response": "a"}
    intake = read(jsonl(line, {"prompt": "pa", "response": ""}, line, {"prompt": "p ", "response": "a"}, line))
    assert intake.duplicates == {2: 0, 4: 0}
    assert any("word for word" in note for note in intake.notes)
    assert trace_hash("ab", "c") != trace_hash("a", "bc")


def test_limits_are_refusals_in_words() -> None:
    line = {"prompt": "p", "response": "a" * 50}
    with pytest.raises(AtlasError, match="more than 2 traces"):
        read(jsonl(line, line, line), limits=Limits(traces=2))
    with pytest.raises(AtlasError, match="python -m jobs attribute"):
        read(jsonl(line), limits=Limits(bytes=40))
    with pytest.raises(AtlasError, match="more than 100 characters"):
        read(jsonl(line, line), limits=Limits(text=100))
    intake = read(jsonl(line, {"prompt": "p", "response": "a"}), limits=Limits(characters=30))
    assert len(intake.traces) == 1
    assert "longer than 30" in intake.problems[0].reason
    long = b'{"response": "' + b"x" * 500 + b'"}\n{"response": "ok"}\n'
    intake = read(long, limits=Limits(characters=20))
    assert said(intake) == [("", "ok")]
    assert "the line is longer" in intake.problems[0].reason
    with pytest.raises(AtlasError, match="give no trace"):
        read(b'{"response": "a"}\n' + b"{\n" * 10_001)
    with pytest.raises(AtlasError, match="read as a whole"):
        read(b"words " * 100, limits=Limits(document=100))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b"   \n \n", "no trace"),
        (b"PK\x03\x04rest", "Excel"),
        (pickle.dumps({"response": "a"}), "binary|text"),
        (b"PAR1 and nothing else", "Parquet"),
        (b"\xff\xfe\x00\xd8", "UTF-16"),
        (b"[1, 2", "none"),
        (b"response,response\na,b\n", "Two columns"),
    ],
)
def test_refusals(data: bytes, words: str) -> None:
    with pytest.raises(AtlasError, match=words):
        read(data)


def test_walking_streams() -> None:
    """The walk yields before the file is at its end, and a bad gzip tail only speaks when it is reached."""

    class Counting(io.BytesIO):
        taken = 0

        def read1(self, size: int | None = -1) -> bytes:
            piece = super().read1(-1 if size is None else size)
            self.taken += len(piece)
            return piece

    stream = Counting(jsonl(*({"response": f"answer {i}"} for i in range(50_000))))
    layout = inspect(stream, "x.jsonl", limits=COMMAND_LINE)
    stream.taken = 0
    first = next(walk(stream, layout, COMMAND_LINE))
    assert not isinstance(first, Problem)
    assert first.response == "answer 0"
    assert stream.taken < 100_000


# Hostile input: whatever comes, the answer is an intake or an AtlasError

JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                [
                    "messages",
                    "role",
                    "content",
                    "response",
                    "request",
                    "choices",
                    "message",
                    "text",
                    "body",
                    "input",
                    "output",
                    "type",
                    "prompt",
                    "error",
                    "model",
                    "created",
                ]
            )
            | st.text(max_size=5),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)
LINE = st.text(max_size=30)
SMALL = Limits(bytes=20_000, unpacked=20_000, document=20_000, traces=50, characters=200, text=5_000)


def survives(data: bytes, name: str = "x") -> None:
    try:
        intake = receive(io.BytesIO(data), name, limits=SMALL)
    except AtlasError as error:
        str(error).encode()
        return
    for trace in intake.traces:
        trace.prompt.encode()
        trace.response.encode()
        assert trace.sha256 == trace_hash(trace.prompt, trace.response)
    for problem in intake.problems:
        assert problem.place >= 1
        problem.reason.encode()


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300), st.sampled_from(["x", "x.csv", "x.jsonl", "x.txt", "x.tsv"]))
def test_any_bytes(data: bytes, name: str) -> None:
    for start in (b"", b"{", b"[", b"prompt,response\n", b"\xff\xfe", b"\xef\xbb\xbf", b"PAR1", b"\x1f\x8b\x08\x00"):
        survives(start + data, name)


@settings(max_examples=150, deadline=None)
@given(st.lists(JSON, max_size=4))
def test_any_json(records: list[Any]) -> None:
    survives(jsonl(*records), "x.jsonl")
    survives(json.dumps(records, indent=1).encode(), "x.json")
    for record in records:
        if isinstance(record, dict) and is_chat(record):
            try:
                assert all(isinstance(turn.response, str) for turn in turns(record))
            except ChatError as error:
                assert error.reason


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.text(max_size=15), min_size=1, max_size=4), max_size=6), st.sampled_from(",;\t|"))
def test_any_table(rows: list[list[str]], delimiter: str) -> None:
    stream = io.StringIO()
    csv.writer(stream, delimiter=delimiter).writerows([["prompt", "response"], *rows])
    survives(stream.getvalue().encode("utf-8", "surrogatepass"), "x.csv")


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_damaged_files(data: st.DataObject) -> None:
    """Real files with some bytes changed or cut."""
    stream = io.BytesIO()
    pq.write_table(pa.table({"prompt": ["p"] * 5, "response": ["a", None, "c", "d", "e"]}), stream)
    line = b'{"prompt": "p", "response": "a", "messages": [{"role": "assistant", "content": "x"}]}\n'
    good = data.draw(
        st.sampled_from([line * 3, gzip.compress(line * 3), line.decode().encode("utf-16"), stream.getvalue()])
    )
    damaged = bytearray(good)
    for _ in range(data.draw(st.integers(0, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    survives(bytes(damaged[: data.draw(st.integers(0, len(damaged)))]))


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries({"prompt": st.text(max_size=30), "response": st.text(max_size=30)}),
        min_size=1,
        max_size=5,
    )
)
def test_what_was_written_is_read_back(records: list[dict[str, str]]) -> None:
    expected = [(r["prompt"], r["response"]) for r in records]
    assert said(read(jsonl(*records))) == expected
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(records), stream)
    assert said(read(stream.getvalue())) == expected


def test_nesting_that_is_too_deep() -> None:
    survives(b"[" * 9_000)
    survives(b'{"response": ' + b"[" * 9_000 + b"\n")
    survives(b'{"a":' * 3_000)
