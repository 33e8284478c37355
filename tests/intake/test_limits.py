"""Hostile files: each is answered within seconds and little memory, and what is good of it is read or refused aloud."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.corpus.labelled import labelled, read_labelled
from backend.errors import AtlasError
from backend.intake import COMMAND_LINE, Limits, Problem, inspect, preview, receive, walk
from backend.intake.formats import PIECE, filled_lines, table_lines
from backend.intake.layout import PAGE
from backend.intake.traces import Clock, TooManyValuesError, parse_json

REPOSITORY = Path(__file__).resolve().parents[2]
M = 1_000_000
GOOD = b'{"prompt": "p", "response": "r"}\n'
TABLE = b"prompt,response\nq,a\n"
ATTACKS: dict[str, tuple[str, Callable[[], bytes], str]] = {
    "blank lines of a table": ("x.csv", lambda: TABLE + b"\n" * 5 * M + b"q,b\n", "2 traces"),
    "carriage returns of a table": ("x.csv", lambda: TABLE + b"\r" * 5 * M, "1 traces"),
    "packed blank lines": ("x.csv.gz", lambda: gzip.compress(TABLE + b"\r\n" * 20 * M, 1), "1 traces"),
    "blank lines of JSONL": ("x.jsonl", lambda: GOOD + b" \n" * 3 * M + GOOD, "2 traces"),
    "carriage returns": ("x", lambda: b"\r" * 5 * M, "no trace"),
    "dashes": ("x.txt", lambda: b"---\n" * M + b"a\n", "1 traces"),
    "blocks": ("x.txt", lambda: b"---\nx\n" * M, "more than 100,000 traces"),
    "short lines": ("x.txt", lambda: b"x\n" * 3 * M, "block 1: the block is longer than 5,000,000"),
    "labels": ("x.txt", lambda: b"user:\n" * 800_000, "is named like a response"),
    "broken JSON": ("x.jsonl.gz", lambda: gzip.compress(b"{\n" * 20 * M, 1), "More than 10,000 lines"),
    "commas": ("x.csv", lambda: b"," * 4 * M, "more than 10,000 cells"),
    "commas of no table": ("x", lambda: b"," * 8 * M + b"\na,b\n", "no trace"),
    "rows of commas": ("x.csv", lambda: TABLE + (b"," * 2 * M + b"\n") * 3, "1 traces"),
    "an open quote": ("x.csv", lambda: TABLE + b'q,"' + b"x\n" * 2 * M, "more than 100,000 lines"),
    "an open quote of blank lines": ("x.csv", lambda: TABLE + b'q,"' + b"\n" * 4 * M, "1 traces"),
    "quotes": ("x.csv", lambda: TABLE + b'"\n' * 2 * M, "100,000 lines of the table are lost"),
    "names of separators": ("x.csv", lambda: b"sep=;\n" * M, "give no trace"),
    "lists": ("x.json", lambda: b'[{"response": "a", "x": [' + b"[[]]," * M + b"[]]}]", "too many values"),
    "objects": ("x.jsonl", lambda: GOOD + b'{"response": "a", "x": [' + b'{"":{}},' * M + b"[]]}\n", "1 traces"),
    "objects in a text": (
        "x.jsonl",
        lambda: json.dumps(
            {"request": '{"messages":[]}', "response": '{"choices":[' + "{}," * 2 * M + "{}]}"}
        ).encode(),
        "longer than 1,000,000",
    ),
    "keys": ("x.jsonl", lambda: GOOD + b"".join(b'{"%d":1}\n' % i for i in range(300_000)), "More than 10,000 lines"),
    "names of roles": (
        "x.jsonl",
        lambda: b'{"response":"a"' + b"".join(b',"%sid":1' % (b" " * (i % 990)) for i in range(8_000)) + b"}",
        "1 traces",
    ),
    "states in a line": ("x.jsonl", lambda: b'{"request_states":[' + b"3," * M + b"3]}", "More than 10,000 lines"),
    "events of a span": (
        "x.jsonl",
        lambda: (
            b'{"spanId":"a","attributes":{},"events":['
            + b",".join(b'{"attributes":{"gen_ai.%d":1}}' % i for i in range(150_000))
            + b"]}"
        ),
        "capture of message content",
    ),
    "numbered attributes of a span": (
        "x.jsonl",
        lambda: (
            b'{"spanId":"a","attributes":{"openinference.span.kind":"LLM"'
            + b"".join(b',"llm.output_messages.%d.message.contents.%d.x":1' % (i % 9, i) for i in range(80_000))
            + b"}}"
        ),
        "no messages with text",
    ),
    "spans of no model": (
        "x.jsonl",
        lambda: b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + b"{}," * 300_000 + b"{}]}]}]}",
        "capture of message content",
    ),
    "requests in a line": (
        "x.jsonl",
        lambda: b'{"requests":[{"params":{}},' + b"3," * M + b"3]}",
        "a request needs custom_id and params",
    ),
    "requests without results": (
        "x.jsonl",
        lambda: b"".join(b'{"custom_id":%d,"url":"","body":{"input":"p"}}\n' % i for i in range(30_000)),
        "append the file of results",
    ),
    "observations in a line": (
        "x.jsonl",
        lambda: b'{"observations":[' + b",".join([b'{"type":"GENERATION"}'] * 150_000) + b"]}",
        "the generation has no output",
    ),
    "messages": (
        "x.jsonl",
        lambda: b'{"messages":[' + b",".join([b'{"role":"assistant","content":""}'] * 150_000) + b"]}",
        "more than 100,000 traces",
    ),
    "gzip members": ("x.jsonl.gz", lambda: gzip.compress(GOOD) + gzip.compress(b"") * 50_000, "1 traces"),
}


def answer(name: str, data: bytes, limits: Limits = PAGE) -> str:
    try:
        found = preview(io.BytesIO(data), name, limits=limits)
    except AtlasError as error:
        return str(error)
    assert len(found.fields) <= 1_000
    return f"{found.traces} traces"


def seconds_of(name: str, data: bytes, words: str) -> float:
    started = time.thread_time()
    assert words in answer(name, data)
    return time.thread_time() - started


def seconds_of_an_honest_file() -> float:
    """For 10,000 traces of 240 bytes: this processor's pace, with whatever else it does at the time."""
    said = [{"role": "user", "content": "Question?"}, {"role": "assistant", "content": "An answer. " * 8}]
    rows = ({"conversation": f"c{i // 3}", "messages": said, "model": "m"} for i in range(10_000))
    return seconds_of("x.jsonl", "\n".join(map(json.dumps, rows)).encode(), "10000 traces")


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_takes_little_time(attack: str) -> None:
    """Files of a fifth of what is taken, in half of the time that the whole may take.

    Where the processor is slow or shared, in that of 40,000 honest traces.
    """
    name, make, words = ATTACKS[attack]
    data = make()
    assert len(data) <= Limits().bytes
    spent = seconds_of(name, data, words)
    assert spent < 2.5 or spent < 4 * max(seconds_of_an_honest_file() for _ in range(3))


@pytest.mark.slow
def test_attacks_take_little_memory(tmp_path: Path) -> None:
    """One after the other in a process of their own, which says what it took at most after each."""
    code = (
        "import io, resource, sys, pyarrow.parquet\n"
        "from pathlib import Path\n"
        "from backend.intake import preview\n"
        "most = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = most()\n"
        "for path in sys.argv[1:]:\n"
        "    with open(path, 'rb') as stream:\n"
        "        try:\n"
        "            preview(stream, Path(path).name.split('-', 1)[1])\n"
        "        except Exception as error:\n"
        "            assert type(error).__name__ == 'AtlasError', error\n"
        "    print(most() - before, path)\n"
    )
    for number, (name, make, _) in enumerate(ATTACKS.values()):
        (tmp_path / f"{number}-{name}").write_bytes(make())
    files = sorted(map(str, tmp_path.iterdir()))
    done = subprocess.run(
        [sys.executable, "-c", code, *files], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    taken = [line.split(" ", 1) for line in done.stdout.splitlines()]
    assert len(taken) == len(ATTACKS)
    assert [path for size, path in taken if int(size) > 150_000] == []  # kB


@pytest.mark.parametrize("kind", ["csv", "jsonl", "json", "txt", "parquet", "gz"])
def test_time_ends_every_reading(kind: str) -> None:
    rows = [{"prompt": f"q{i}", "response": f"answer {i} " * 20} for i in range(20_000)]
    stream = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), stream)
    data = {
        "csv": "\n".join(["prompt,response", *(f"{row['prompt']},{row['response']}" for row in rows)]).encode(),
        "jsonl": "\n".join(map(json.dumps, rows)).encode(),
        "json": json.dumps(rows).encode(),
        "txt": "\n---\n".join(row["response"] for row in rows).encode(),
        "parquet": stream.getvalue(),
        "gz": gzip.compress(b"") * 100_000 + gzip.compress(GOOD),
    }[kind]
    with pytest.raises(AtlasError, match=r"computing time \(it stopped at \w+ [\d,]+.*Cut the file into parts"):
        receive(io.BytesIO(data), f"x.{kind}", limits=Limits(seconds=0.001))
    layout = inspect(io.BytesIO(data), f"x.{kind}", limits=Limits(seconds=60))
    if kind != "gz":
        with pytest.raises(AtlasError, match=r"stopped at \w+ [\d,]+, after [\d,]+ traces?, and nothing of the file"):
            list(walk(io.BytesIO(data), layout, Limits(seconds=0.001)))


def test_time_of_whoever_takes_the_traces_does_not_count() -> None:
    data = io.BytesIO((b'{"response": "' + b"a" * 2_000 + b'"}\n') * 200)
    limits = Limits(seconds=0.2)
    layout = inspect(data, "x.jsonl", limits=limits)
    until = time.thread_time()
    for _ in walk(data, layout, limits):
        until += 0.005
        while time.thread_time() < until:
            pass


def test_every_way_to_read_has_a_limit_of_time(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(b"".join(b'{"response": "r%d", "source": "s"}\n' % i for i in range(20_000)))
    limits = Limits(seconds=0.001)
    for read in (
        lambda: preview(io.BytesIO(path.read_bytes()), "x.jsonl", limits=limits),
        lambda: inspect(io.BytesIO(path.read_bytes()), "x.jsonl", limits=limits),
        lambda: read_labelled(path, limits=limits),
    ):
        with pytest.raises(AtlasError, match="computing time"):
            read()
    assert Limits().seconds <= 5 < COMMAND_LINE.seconds < 24 * 3_600


def test_limits_say_where_reading_stopped() -> None:
    for limits, words in (
        (Limits(traces=2), r"more than 2 traces \(the last is in line 4\)"),
        (Limits(lines=2), r"more than 2 lines that are not blank \(the last is line 5\)"),
    ):
        with pytest.raises(AtlasError, match=words):
            receive(io.BytesIO(GOOD * 2 + b"\n" + GOOD * 5), "x.jsonl", limits=limits)
    with pytest.raises(AtlasError, match=r"More than 3 lines of x.jsonl give no trace \(here line 5: no JSON"):
        inspect(io.BytesIO(GOOD + b"{\n" * 5), "x.jsonl", limits=Limits(problems=3))
    with pytest.raises(AtlasError, match="more than 100,000 lines"):
        receive(io.BytesIO(b"prompt,response\n" + b'q,"' + b"x\n" * 150_000 + b'"\n'), "x.csv")


def test_a_line_of_too_many_values_is_one_problem() -> None:
    crowded = b'{"response": "a", "x": [' + b"[]," * 2 * M + b"[]]}\n"
    intake = receive(io.BytesIO(GOOD + crowded + GOOD.replace(b'"r"', b'"s"')), "x.jsonl")
    assert [trace.place for trace in intake.traces] == [1, 3]
    (problem,) = intake.problems
    assert problem == Problem(2, None, "it holds too many values; leave out what is no part of a trace")


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.text(st.sampled_from("a \t\r\n\u2028\x1c"), max_size=6), max_size=30),
    st.integers(200, 2 * PIECE),
    st.integers(0, 3),
)
def test_lines_are_those_of_python(parts: list[str], most: int, far: int) -> None:
    """Wherever a piece of the text ends."""
    text = "".join(["b" * (PIECE - far) if i == 7 else part for i, part in enumerate(parts)])
    expected = list(enumerate(io.StringIO(text, newline=""), start=1))

    def opened() -> io.TextIOWrapper:
        return io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8", newline="")

    limits, clock = Limits(), Clock("x", Limits())
    filled = [(n, line.rstrip("\r\n")) for n, line in expected if line.strip()]
    found = list(filled_lines(opened(), most, limits, clock))
    assert found == [(n, line if len(line) <= most else None) for n, line in filled]
    found = list(table_lines(opened(), 3 * PIECE, limits, clock))
    assert "".join(line or "" for _, line in found) == text
    firsts = {n for n, line in expected if line.strip("\r\n")}
    assert firsts == {n for n, line in found if (line or "").strip("\r\n")}


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(st.sampled_from('a"\\{[,:'), max_size=5),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    )
)
def test_texts_count_nothing_in_an_estimate(value: object) -> None:
    text = json.dumps(value)
    assert parse_json(text) == value
    texts = json.dumps(["{[,:" * 1_000, '"\\'])
    assert parse_json(texts, 1_000) == json.loads(texts)
    with pytest.raises(TooManyValuesError):
        parse_json(f"[{text}, {text}]", 100)


def test_many_sources_are_sorted_in_time() -> None:
    data = b"".join(b'{"response": "r%d", "source": "s%d"}\n' % (i, i) for i in range(20_000))
    traces = receive(io.BytesIO(data), "x.jsonl").traces
    started = time.thread_time()
    with pytest.raises(AtlasError, match="at least 10"):
        labelled(traces, "0" * 64)
    assert time.thread_time() - started < 2
