"""Intake of an audit: every format, every bad place, and hostile files that must end in a sentence."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import pickle
import re
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from backend.errors import AtlasError
from backend.intake import COMMAND_LINE, Columns, Intake, Limits, Problem, inspect, receive, trace_hash, walk
from backend.intake.chat_logs import ChatError, is_chat, turns
from backend.intake.encoding import codec_of, encoding_given
from backend.intake.formats import read_table, table_lines
from backend.intake.parquet import Page, chunks_of, pages_of
from backend.intake.traces import Clock, as_text, is_remark, look_up, propose_columns, recognise, short, visible, whole


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


def table(data: bytes, limit: int = 5_000) -> list[tuple[int, dict[str, str]] | Problem]:
    text = io.TextIOWrapper(io.BytesIO(data), "utf-8", newline="")
    return list(read_table(table_lines(text, limit, Limits(), Clock("x", Limits())), ",", limit))


def test_a_broken_row_leaves_no_piece_of_itself() -> None:
    """A response of several lines, some with as many commas as the header, whose quotes are not doubled."""
    for inner in (b"", b"So, then\n", b"So, then\nand so, on\n" * 3):
        broken = b'"He said:\nthe "best", ever\n' + inner + b'So, there you go"'
        found = table(b"prompt,response\nq1," + broken + b"\nq2,b2\n")
        last = 2 + broken.count(b"\n")
        assert [entry for entry in found if not isinstance(entry, Problem)] == [
            (last + 1, {"prompt": "q2", "response": "b2"})
        ]
        (problem,) = (entry for entry in found if isinstance(entry, Problem))
        assert (problem.place, problem.reason.endswith(f"lines 2–{last} are lost")) == (2, True)


def test_an_open_quote_costs_its_row_where_rows_follow_and_all_else_where_text_does() -> None:
    start = b'prompt,response\nq0,a0\nq1,"unclosed\n'
    found = table(start + b"".join(b"q%d,a%d\n" % (i, i) for i in range(2, 500)))
    assert [entry[0] for entry in found if not isinstance(entry, Problem)] == [2, *range(4, 502)]
    assert found[1] == Problem(3, None, "no CSV (unexpected end of data)")
    found = table(start + b"Paris, France\nno comma\n" * 100)
    assert found[1:] == [Problem(3, None, "no CSV (unexpected end of data); lines 3–203 are lost")]
    problem, *rest = table(b'prompt,response\na,"' + b"x\n" * 3_000 + b'"\nq,a\n')
    assert problem == Problem(2, None, "the row is longer than 5,000 characters; lines 2–3,002 are lost")
    assert rest == [(3_003, {"prompt": "q", "response": "a"})]
    with pytest.raises(AtlasError, match="100,000 lines"):
        table(start + b"one\ntwo, three\n" * 60_000)


def test_tables_of_spreadsheets() -> None:
    intake = read(b"sep=;\r\nprompt;response;;\r\nq;a;;\r\nq;b;c;\r\n", "a.csv")
    assert [(trace.place, trace.response) for trace in intake.traces] == [(3, "a")]
    assert intake.problems == (Problem(4, None, "a cell has no name in the header"),)
    assert intake.layout.fields == ("prompt", "response")
    assert said(read(b'"sep=\t"\nprompt\tresponse\nq\ta\n', "export")) == [("q", "a")]
    with pytest.raises(AtlasError, match="2,001 columns"):
        read(",".join(f"c{i}" for i in range(2_001)).encode() + b"\n", "a.csv")
    with pytest.raises(AtlasError, match=r"header .*line 1"):
        read(b'"prompt,response\nq,a\n', "a.csv")


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


def parquet(columns: dict[str, Any], **options: Any) -> bytes:
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream, compression="zstd", store_schema=False, **options)
    return stream.getvalue()


MESSAGES = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
SAID = {"role": "assistant", "content": "a" * 100_000}


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ({"response": pa.array(["a" * 300_000]).take(pa.array([0] * 40))}, {"use_dictionary": False}, "unpacked"),
        ({"response": pa.array(["a" * 300_000]).take(pa.array([0] * 400))}, {}, "unpacked"),
        (
            {"response": ["a" * 300_000] * 200},
            {"use_dictionary": False, "column_encoding": {"response": "DELTA_BYTE_ARRAY"}, "data_page_size": 1 << 30},
            "unpacked",
        ),
        ({"response": ["a" * 6_000_000]}, {}, "page"),
        ({"messages": pa.array([[None] * 2_000_000], MESSAGES)}, {}, "unpacked"),
        ({"messages": pa.array([[SAID] * 350], MESSAGES), "response": [""]}, {}, "longer than"),
        ({f"c{i}": [1] for i in range(2_001)}, {}, "2,001 columns"),
        ({"response": ["a"] * 500}, {"row_group_size": 1}, "footer"),
    ],
    ids=["packed", "dictionary", "prefixes", "page", "nothings", "list", "columns", "footer"],
)
def test_a_small_parquet_file_of_large_content(columns: dict[str, Any], options: dict[str, Any], words: str) -> None:
    limits = Limits(unpacked=10_000_000, characters=500_000) if words != "footer" else Limits(unpacked=200_000)
    data = parquet(columns, **options)
    assert len(data) < 500_000
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    with pytest.raises(AtlasError, match=words):
        receive(io.BytesIO(data), "x.parquet", limits=limits)
    assert tracemalloc.get_traced_memory()[1] < 60_000_000
    tracemalloc.stop()
    assert pa.total_allocated_bytes() - before < 60_000_000


def test_parquet_reads_only_the_columns_that_it_needs() -> None:
    columns = {"response": ["r"] * 3, "more": pa.array([b"x" * 1_000_000] * 3), "a.b": ["x"] * 3, "n": [{"t": "y"}] * 3}
    data = parquet(columns, use_dictionary=False)
    assert said(read(data, limits=Limits(unpacked=200_000))) == [("", "r")] * 3
    assert said(read(data, columns=Columns(response="n.t", prompt="a.b"))) == [("x", "y")] * 3
    with pytest.raises(AtlasError, match="unpacked"):
        read(data, columns=Columns(response="response", label="more"), limits=Limits(unpacked=200_000))
    with pytest.raises(AtlasError, match="No column"):
        read(parquet({"x": ["a"], "y": ["b"]}))


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant"]), "content": st.text()}),
                      max_size=4), min_size=1, max_size=30),
    st.sampled_from(["1.0", "2.0"]), st.sampled_from([3, 100]), st.sampled_from([64, 1 << 20]),
)  # fmt: skip
def test_parquet_gives_what_jsonl_gives(talks: list[Any], version: str, group: int, page: int) -> None:
    """Of chat logs, whose texts stay numbers of a dictionary until a row is read."""
    columns = {"messages": pa.array(talks, MESSAGES), "id": [str(i) for i in range(len(talks))]}
    data = parquet(
        columns, row_group_size=group, data_page_version=version, data_page_size=page, dictionary_pagesize_limit=page
    )
    expected = read(jsonl(*({"messages": talk, "id": str(i)} for i, talk in enumerate(talks)), {"response": "end"}))
    try:
        found = read(data)
    except AtlasError:
        assert len(expected.traces) == 1
        return
    assert [(t.place, t.turn, t.prompt, t.response, t.name) for t in found.traces] == [
        (t.place, t.turn, t.prompt, t.response, t.name) for t in expected.traces[:-1]
    ]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1), st.integers(0, 2**20), st.binary(max_size=9))
def test_headers_of_pages(unpacked: int, packed: int, values: int, rest: bytes) -> None:
    """What the header says counts, wherever the page lies; what is no header is refused."""

    def number(value: int) -> bytes:
        value <<= 1
        out = b""
        while value > 127:
            out += bytes([value & 127 | 128])
            value >>= 7
        return out + bytes([value])

    header = b"\x15\x00\x15" + number(unpacked) + b"\x15" + number(packed)
    header += b"\x2c\x15" + number(values) + b"\x15" + number(7) + b"\x00\x00"
    stream = io.BytesIO(b"PAR1" + header)
    assert list(pages_of(stream, 4, 5)) == [Page(unpacked, values, True)]
    with pytest.raises(ValueError, match=r"page|field"):
        list(pages_of(io.BytesIO(b"PAR1\x1f" + rest), 4, 5))


def test_a_footer_that_lies(tmp_path: Path) -> None:
    """Sizes in it are not believed, and what cannot be followed is refused."""
    (tmp_path / "x").write_bytes(b"PAR1")
    with (tmp_path / "x").open("rb") as short, pytest.raises(AtlasError, match="Parquet"):
        inspect(short, "x")
    data = parquet({"response": ["a" * 300_000] * 3}, use_dictionary=False)
    (((start, end),),) = chunks_of(io.BytesIO(data))
    assert sum(page.unpacked for page in pages_of(io.BytesIO(data), start, end)) > 900_000
    for footer in (b"", b"\x00", b"\x49\xfc\xff\xff\xff\xff\xff\x7f\x03", b"\x49\xf1\xff\xff\xff\xff\xff\x7f\x03"):
        with pytest.raises(ValueError, match="footer"):
            chunks_of(io.BytesIO(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"))


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


TALK = {"messages": [ASKED, {"role": "assistant", "content": "OLD"}, ASKED]}


@pytest.mark.parametrize(
    ("record", "column"),
    [
        ({"request": TALK, "response": None, "error": "timeout"}, "error"),
        ({"request": TALK, "response": "", "error": {"code": 504}}, "error"),
        ({"request": TALK, "response": {"choices": [{"message": {"content": ""}}]}, "error": "timeout"}, "error"),
        ({"request": TALK, "error": "timeout"}, "error"),
        ({**TALK, "error": "timeout"}, "error"),
        ({"request": TALK, "response": None}, "response"),
        ({"request": TALK, "response_body": None, "error": None}, "response_body"),
        ({"body": TALK, "response": {"status_code": 500, "body": ""}}, "response"),
        ({**TALK, "response": None}, "response"),
        ({**TALK, "output": None, "completion": None}, "completion"),
        ({**TALK, "choices": None}, "choices"),
        ({**TALK, "choices": []}, "response"),
    ],
)
def test_a_request_that_failed_is_not_answered_by_its_history(record: dict[str, Any], column: str) -> None:
    intake = read(jsonl({"messages": [ASKED, ANSWER]}, record))
    assert said(intake) == [("p", "a")]
    (problem,) = intake.problems
    assert (problem.place, problem.column) == (2, column)
    assert "timeout" not in problem.reason


def test_an_empty_answer_is_an_empty_response() -> None:
    empty = read(jsonl({"request": TALK, "response": ""}, {**TALK, "output": "", "error": None, "choices": None}))
    assert said(empty) == [("p", ""), ("p", "")][: len(empty.traces)] and len(empty.traces) == 2
    assert any("2 of 2 traces have an empty response" in note for note in empty.notes)
    whole_talks = jsonl({**TALK, "error": None}, {**TALK, "error": float("nan")}, {"request": TALK})
    assert said(read(whole_talks)) == [("p", "OLD")] * 3
    assert said(read(jsonl({"request": TALK, "response": "new", "error": "cut off"}))) == [("p", "new")]


def test_json_in_an_ordinary_row_stays_text() -> None:
    """However much a response looks like the body of an endpoint."""
    for inner in ({"subject": "x", "body": "Hi"}, {"choices": [{"text": "OTHER"}]}, {"messages": [ASKED, ANSWER]}):
        text = json.dumps(inner)
        for record in (
            {"prompt": "p", "response": text},
            {"prompt": json.dumps({"messages": [ASKED]}), "response": text},
            {"question": "p", "request": json.dumps({"messages": [ASKED]}), "response": text},
            {"input": "p", "output": text},
            {"response": text},
        ):
            assert [trace.response for trace in read(jsonl(record)).traces] == [text]
    assert said(read(jsonl({"input": json.dumps({"messages": [1]}), "response": "plain"})))[0][1] == "plain"
    cells = b'prompt,response\nq,"{""body"": ""Hi""}"\n'
    assert said(read(cells, "a.csv")) == [("q", '{"body": "Hi"}')]


TEXTS = st.text(max_size=20) | st.builds(json.dumps, st.deferred(lambda: JSON))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.fixed_dictionaries({"prompt": TEXTS, "response": TEXTS}), min_size=1, max_size=4))
def test_explicit_prompts_and_responses_are_never_unwrapped(records: list[dict[str, str]]) -> None:
    assert said(read(jsonl(*records))) == [(whole(r["prompt"]), whole(r["response"])) for r in records]


# What a file is


@pytest.mark.parametrize("first", ['ompt":"p","response":"r"}', "null", "# exported", '{"prompt":"p",', "[1, 2]", "7"])
def test_a_damaged_first_line_is_one_problem(first: str) -> None:
    good = '{"prompt":"p","response":"a"}\n{"prompt":"p","response":"b"}\n'
    for name in ("t.jsonl", "t.ndjson.gz", "t", "t.txt"):
        intake = read(f"{first}\n{good}".encode(), name)
        assert (intake.layout.kind, [problem.place for problem in intake.problems]) == ("jsonl", [1])
        assert said(intake) == [("p", "a"), ("p", "b")]


@pytest.mark.parametrize(
    "text", ["[Scene: a dark room]\nHello.", "{hello} world\nmore", "{\n  hello\n}\nmore", "[1] A source.\n", "{{x}}",
             'Sure:\n{"a": 1}', "[[Link]] of a page"],
)  # fmt: skip
def test_pasted_text_that_starts_with_a_bracket(text: str) -> None:
    assert said(read(text.encode(), "pasted.txt")) == [("", text.rstrip("\n"))]


def test_a_document_whatever_it_is_called() -> None:
    record = '{"prompt": "p", "response": "a"}'
    for text in (record.replace(", ", "\n, "), f"[\n{record}\n]", f'{{"data": [\n{record}\n]}}'):
        for name in ("x.json", "x.jsonl", "x"):
            assert said(read(text.encode(), name)) == [("p", "a")]
    with pytest.raises(AtlasError, match="none"):
        read(b'[{"prompt": "p", "respo', "x.txt")


def test_a_problem_says_no_word_of_the_line() -> None:
    lines = [b'"the patient John Doe"', b'["secret", "list"]', b"12345", b"true", b"null", b'{"response": "ok"}' * 2]
    intake = read(b'{"response": "a"}\n' + b"\n".join(lines), "x.jsonl")
    kinds = ["a text", "a list", "a number", "true or false", "null"]
    assert [problem.reason for problem in intake.problems[:-1]] == [f"no JSON object but {kind}" for kind in kinds]
    assert not any(word in str(intake.problems) for word in ("John", "secret", "12345", "ok"))


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
        ("latin-1", "Windows-1252 (a guess: byte"),
    ],
)
def test_encodings(codec: str, words: str) -> None:
    for text in ('{"prompt": "über", "response": "café"}\n', "prompt,response\nüber,café\n"):
        intake = read(text.encode(codec), "x")
        assert said(intake) == [("über", "café")]
        assert words in intake.layout.encoding
        assert any("guess" in note for note in intake.notes) == (codec == "latin-1")


def test_what_spreadsheets_write_keeps_its_quotation_marks() -> None:
    intake = read("prompt,response\nq,It’s “fine” – 5 €\n".encode("cp1252"), "x.csv")
    assert said(intake) == [("q", "It’s “fine” – 5 €")]
    # A byte that stands for nothing there leaves the older guess, in which every byte is a character.
    intake = read(b"prompt,response\nq,caf\xe9 \x81\n", "x.csv")
    assert said(intake) == [("q", "café \x81")] and "Latin-1" in intake.layout.encoding


CODECS = (
    "utf-8",
    "utf-8-sig",
    "utf-16",
    "utf-16-be",
    "cp1251",
    "koi8-r",
    "cp037",
    "gb18030",
    "shift_jis",
    "iso2022_jp",
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(CODECS), st.text(max_size=60), st.text(max_size=60), st.booleans())
def test_text_is_read_in_the_encoding_that_is_named(codec: str, prompt: str, response: str, packed: bool) -> None:
    line = json.dumps({"prompt": prompt, "response": response}, ensure_ascii=False)
    try:
        data = f"{line}\n".encode(codec)
        assume(data.decode(codec) == f"{line}\n")
    except UnicodeError:
        line = json.dumps({"prompt": prompt, "response": response})
        data = line.encode(codec)
    intake = read(gzip.compress(data) if packed else data, "x.jsonl", encoding=codec)
    assert said(intake) == [(whole(prompt), whole(response))]
    assert encoding_given(intake.layout.encoding) == intake.layout.codec == codec_of(codec)
    assert not any("guess" in note for note in intake.notes)


def test_a_named_encoding_overrules_a_guess() -> None:
    data = "prompt,response\nкак,так\n".encode("cp1251")
    guessed = read(data, "x.csv")
    assert said(guessed) != [("как", "так")] and encoding_given(guessed.layout.encoding) is None
    assert any("--encoding NAME" in note for note in guessed.notes)
    assert said(read(data, "x.csv", encoding="Windows-1251")) == [("как", "так")]
    table = parquet({"prompt": ["как"], "response": ["так"]})  # it says itself how it is written
    assert said(read(table, encoding="cp1251")) == [("как", "так")]


def test_an_encoding_that_does_not_fit_is_refused() -> None:
    data = '{"response": "café"}'.encode("latin-1")
    with pytest.raises(AtlasError, match="cannot be read as utf-8 at byte 18"):
        read(data, encoding="utf-8")
    with pytest.raises(AtlasError, match="cannot be read as utf-16"):
        read(data, encoding="utf-16")
    with pytest.raises(AtlasError, match="Excel"):
        read(b"PK\x03\x04rest", encoding="latin-1")


@pytest.mark.parametrize(
    "name", ["klingon", "", "hex", "rot13", "zlib", "punycode", "IDNA", "unicode_escape", "utf7", "undefined", "a\0b",
             "\ud800", "é" * 99, "../x", "locale"],
)  # fmt: skip
def test_what_is_no_encoding(name: str) -> None:
    for data in (b'{"response": "a"}', parquet({"response": ["a"]})):
        with pytest.raises(AtlasError, match="There is no encoding") as caught:
            read(data, encoding=name)
        str(caught.value).encode()
        assert len(str(caught.value)) < 300


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(CODECS) | st.text(max_size=12))
def test_any_bytes_in_any_encoding(data: bytes, name: str) -> None:
    try:
        intake = receive(io.BytesIO(data), "x", limits=SMALL, encoding=name)
    except AtlasError as error:
        str(error).encode()
    else:
        assert all(trace.sha256 == trace_hash(trace.prompt, trace.response) for trace in intake.traces)


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
    with pytest.raises(AtlasError, match=r"No column .* is named like a response"):
        read(jsonl({"a": "x", "b": "y"}))
    assert look_up({"a.b": 1, "a": {"b": 2}}, "a.b") == 1


@pytest.mark.parametrize("word", ["none", ""])
def test_a_role_without_a_column(word: str) -> None:
    record = {"prompt": "p", "response": "a", "source": "a passage", "model": "m", "id": 3, "": "x"}
    for data in (jsonl(record), parquet({key: [value] for key, value in record.items()})):
        intake = read(data, columns=Columns(label=word, name=word))
        (trace,) = intake.traces
        assert (trace.label, trace.name, trace.response) == (None, None, "a")
        assert intake.layout.columns.named() == {"response": "response", "prompt": "prompt"}
    assert said(read(jsonl(record), columns=Columns(prompt=word))) == [("", "a")]
    chat = read(jsonl({"model": "m", "messages": [ASKED, ANSWER]}), columns=Columns(label=word))
    assert chat.traces[0].label is None
    with pytest.raises(AtlasError, match="for the response"):
        read(jsonl(record), columns=Columns(response=word))


def test_a_column_that_is_called_none() -> None:
    data = jsonl({"response": "a", "none": "b"})
    assert read(data, columns=Columns(label="none")).traces[0].label == "b"


def test_a_long_label_is_named_before_anything_runs() -> None:
    passage = "A passage that somebody wrote, " * 10
    rows = [{"prompt": "p", "response": f"a{i}", "source": f"{i} {passage}", "id": i} for i in range(3)]
    (note,) = read(jsonl(*rows)).notes
    assert note.startswith("3 traces have a label that is longer than 64 characters") and "passage" not in note
    (note,) = read(jsonl(rows[0])).notes
    assert note.startswith("1 trace has a label")
    assert [is_remark(text) for text in ("x" * 64, "x" * 65, "a\nb", "a\u2028b", "\u202egpt")] == [True] + [False] * 4


def test_nothing_that_a_terminal_obeys_is_visible() -> None:
    hostile = "\x1b[2J\x9b\x00\r\n\x7f\u202e\u2066\u2028\u2029\u200b\ufeffa é \u00a0\U0001f600"
    told = visible(hostile)
    assert told == visible(told)
    assert told.startswith("\\x1b[2J\\x9b\\x00\\r\\n\\x7f\\u202e\\u2066\\u2028") and told.endswith(
        "a é \u00a0\U0001f600"
    )
    assert not any(c in told for c in "\x1b\x9b\r\n\u202e\u2028\u2029\u200b")
    assert visible("a é") == "a é" and "\x1b" in short(hostile)


def test_what_is_text() -> None:
    assert as_text(True) == "true"
    assert as_text(["a", {"type": "text", "text": "b"}, {"type": "image_url", "image_url": {}}]) == "ab"
    assert as_text(float("nan")) is None
    for wrong in ({}, [], b"x", [1]):
        with pytest.raises(TypeError):
            as_text(wrong)


def test_a_column_that_only_later_records_have() -> None:
    early = [{"text": f"a{i}"} for i in range(300)]
    intake = read(jsonl(*early, {"prompt": "p", "response": "r", "text": "late"}))
    assert intake.layout.fields == ("text", "prompt", "response")
    assert said(intake)[-1] == ("p", "late")  # a role that is taken stays where it was
    assert len(intake.traces) == 301
    data = jsonl(*early, {"text": "x", "why": "p"})
    assert said(read(data, columns=Columns(prompt="why")))[-1] == ("p", "x")
    many = [{f"k{i}": 1, "text": "a"} for i in range(1_000)]
    assert said(read(jsonl(*many, {"Prompt": "p", "text": "b"})))[-1] == ("p", "b")


# Duplicates and limits


def test_duplicates_point_to_the_first() -> None:
    line = {"prompt": "p", "response": "a"}
    intake = read(jsonl(line, {"prompt": "pa", "response": ""}, line, {"prompt": "p ", "response": "a"}, line))
    assert intake.duplicates == {2: 0, 4: 0}
    assert any("word for word" in note for note in intake.notes)
    assert trace_hash("ab", "c") != trace_hash("a", "bc")


def test_equal_answers_of_different_models_are_no_repeats() -> None:
    rows = [{"prompt": "p", "response": "Yes.", "model": model} for model in ("m", "n", "m", None)]
    intake = read(jsonl(*rows))
    assert intake.duplicates == {2: 0}
    assert any(note.startswith("1 trace repeats") for note in intake.notes)
    assert read(jsonl(*rows), columns=Columns(label="none")).duplicates == {1: 0, 2: 0, 3: 0}


@pytest.mark.parametrize("name", ["generator", "Generated by", "author-model", "llm", "LLM name", "response_model"])
def test_other_names_of_the_label(name: str) -> None:
    assert read(jsonl({"prompt": "p", "output": "r", name: "m"})).traces[0].label == "m"
    assert read(jsonl({"output": "r", name: "other", "model": "m"})).traces[0].label == "m"


def test_blank_lines_around_a_pasted_block() -> None:
    text = b"Prompt: a\nResponse: b\n\n---\n\n \n---\n\nPrompt: c\nResponse:  d\n\n\n"
    assert said(read(text)) == [("a", "b"), ("c", "d")]


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
    escaped = jsonl({"prompt": "\U0001f680" * 19, "response": "\U0001f680" * 19})
    assert len(read(escaped, limits=Limits(characters=20)).traces) == 1
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


CELL = st.text(st.sampled_from('ab ,"\n\r\u2028'), max_size=8)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.lists(CELL, min_size=2, max_size=2), max_size=12))
def test_a_sound_table_gives_what_csv_gives(rows: list[list[str]]) -> None:
    stream = io.StringIO()
    csv.writer(stream).writerows([["prompt", "response"], *rows])
    found = table(stream.getvalue().encode())
    assert [list(entry[1].values()) for entry in found if not isinstance(entry, Problem)] == rows


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(CELL, min_size=2, max_size=2), min_size=15, max_size=30), st.integers(0, 14),
    st.text(st.sampled_from('ab,"\n'), max_size=15),
)  # fmt: skip
def test_every_line_of_a_table_is_a_record_a_blank_or_lost(rows: list[list[str]], at: int, noise: str) -> None:
    """Somewhere in a sound table something else stands: whatever is lost is counted, in order."""
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerows([["prompt", "response"], *rows])
    lines = stream.getvalue().split("\n")
    data = "\n".join([*lines[: at + 1], noise, *lines[at + 1 :]])
    gone: set[int] = {1}
    for entry in table(data.encode()):
        place = entry.place if isinstance(entry, Problem) else entry[0]
        assert place > max(gone)
        gone.add(place)
        if isinstance(entry, Problem) and (lost := re.search(r"lines ([\d,]+)–([\d,]+) are lost", entry.reason)):
            first, last = (int(part.replace(",", "")) for part in lost.groups())
            assert first == place
            gone |= set(range(first, last + 1))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_damaged_files(data: st.DataObject) -> None:
    """Real files with some bytes changed or cut."""
    talks = pa.array([[{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]] * 5, MESSAGES)
    flat = parquet({"prompt": ["p"] * 5, "response": ["a", None, "c", "d", "e"]})
    nested = parquet({"messages": talks}, row_group_size=3)
    line = b'{"prompt": "p", "response": "a", "messages": [{"role": "assistant", "content": "x"}]}\n'
    good = data.draw(st.sampled_from([line * 3, gzip.compress(line * 3), line.decode().encode("utf-16"), flat, nested]))
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


@pytest.mark.parametrize(
    ("records", "response", "prompt"),
    [
        ([{"nr": "1", "q": "Why is it so?", "a": "Because of the rain, and of the wind that came."}], "a", "q"),
        ([{"a": "A long answer, in many more words than that.", "q": "Why is it?"}], "a", "q"),
        ([{"x": "one two three", "y": "four five six"}], "y", "x"),  # about as long: the later column answers
        ([{"nr": "1", "only": "some words here"}], "only", None),
        ([{"nr": "1", "code": "abcdefghijklmnop"}], None, None),
        ([], None, None),
    ],
)
def test_columns_of_texts_are_proposed(records: list[dict[str, str]], response: str | None, prompt: str | None) -> None:
    proposed = propose_columns(records)
    assert (proposed.response, proposed.prompt) == (response, prompt)
