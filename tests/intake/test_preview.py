"""A preview: the same by page, command line and REST; every bad place, no proxy, and nothing left behind."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from hypothesis import given, settings
from hypothesis import strategies as st

from atlas.pages.attribute import intake as page
from backend.errors import AtlasError
from backend.intake import ROWS, SHOWN, Columns, Limits, preview, receive
from backend.service.service import Service
from jobs.__main__ import main
from tests.intake.make_logs import FOLDER
from tests.served_api import serve

ANN = "session-of-ann-0001"
REPOSITORY = Path(__file__).resolve().parents[2]
SECRET = "Sesame, open up"
TABLE = (
    "question;answer;model\nWhy?;Because.;m-1\nonly one cell\nHow?;Like this.;m-2\nWhy?;Because.;m-1\n"
    '"Näher?";"Ja, ""so"".";m-1\n'
)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Flask, Service]]:
    """A server without any ecosystem, whose proxy must not be asked for."""

    def load(proxy: str) -> Any:
        raise AssertionError("a proxy was loaded for a preview")

    yield serve(tmp_path / "data", tmp_path / "cache", load)


def by_verb(path: Path, *more: str) -> dict[str, Any]:
    out = path.with_suffix(".preview")
    assert main(["preview", str(path), "--json", str(out), *more]) == 0
    told: dict[str, Any] = json.loads(out.read_text("utf-8"))
    return told


def as_json(told: Any) -> Any:
    return json.loads(json.dumps(asdict(told)))


def test_page_command_line_and_rest_say_the_same(
    served: tuple[Flask, Service], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, service = served
    path = tmp_path / "traces.csv"
    path.write_text(TABLE, "utf-8")
    form = {"file": (io.BytesIO(path.read_bytes()), path.name), "columns": json.dumps({"label": "model"})}
    answer = server.test_client().post("/api/preview", data=form)
    assert answer.status_code == 200, answer.get_data(as_text=True)
    assert not list((tmp_path / "cache" / "uploads").glob("*/*"))
    shown = service.inspect(ANN, service.upload(ANN, path.name, path.read_bytes()).key, Columns(label="model"))
    told = by_verb(path, "--label-column", "model")
    assert told == answer.get_json() == as_json(shown)
    assert (told["models"], told["claims"]) == ([], [])
    assert (told["kind"], told["unit"], told["traces"], told["mapped"]) == ("csv", "line", 4, False)
    assert told["problems"] == [{"place": 3, "column": None, "reason": "1 cells where the header has 3"}]
    assert told["duplicates"] == [{"place": 5, "first": 2}]
    assert told["columns"] == {
        "response": "answer", "prompt": "question", "time": None, "label": "model", "name": None,
    }  # fmt: skip
    assert told["rows"][-1]["response"] == 'Ja, "so".'
    assert told["labels"] == ["m-1", "m-2"]
    said = capsys.readouterr().out
    for words in (
        "traces.csv: csv, UTF-8, response from 'answer', prompt from 'question', label from 'model'",
        "columns: question, answer, model", "4 traces, 1 bad line, 1 duplicate", *told["notes"],
        "line 3: 1 cells where the header has 3", "line 5: repeats line 2", "sources: m-1, m-2",
        'line 6: Näher? → Ja, "so".',
    ):  # fmt: skip
        assert words in said, words
    drawn = str(page.head(shown).to_plotly_json()) + str([part.to_plotly_json() for part in page.body(shown)])
    for words in ("traces.csv", "1 cells where the header has 3", "repeats line 2"):
        assert words in drawn


def test_the_body_is_that_of_a_request_to_attribute(served: tuple[Flask, Service]) -> None:
    client = served[0].test_client()
    body = {"traces": [{"prompt": "p", "response": "r"}] * 2, "claimed": "nobody", "orders": 5}
    told = client.post("/api/preview", json=body).get_json()
    assert (told["kind"], told["traces"], len(told["duplicates"])) == ("jsonl", 2, 1)
    packed = {"file": (io.BytesIO(gzip.compress(b'{"response": "r"}')), "t.jsonl.gz")}
    assert client.post("/api/preview", data=packed).get_json()["packed"]


@pytest.mark.parametrize(
    ("how", "status", "words"),
    [
        ({"data": b"x", "content_type": "text/plain"}, 415, "text/plain"),
        ({"data": b"{", "content_type": "application/json"}, 400, "no JSON"),
        ({"json": {"traces": []}}, 422, "/traces"),
        ({"json": {"traces": [{"response": "r"}], "zz": 1}}, 422, "/zz"),
        ({"json": {"traces": [{"response": "r"}], "encoding": "utf-8"}}, 422, "/encoding"),
        ({"data": {"file": (io.BytesIO(b"{broken\n{"), "t.jsonl")}}, 422, "no trace in t.jsonl (line 1: "),
        ({"data": {"file": (io.BytesIO(b"%PDF-1.4"), "t.jsonl")}}, 422, "PDF"),
        (
            {"data": {"file": (io.BytesIO(b"response\na\n"), "t.csv"), "columns": '{"prompt": "zz"}'}},
            422, "no column 'zz'",
        ),
        (
            {"data": {"file": (io.BytesIO(b"response\na\n"), "t.csv"), "encoding": "klingon"}},
            422, "no encoding 'klingon'",
        ),
    ],
)  # fmt: skip
def test_what_is_refused_is_a_problem_document(
    served: tuple[Flask, Service], how: dict[str, Any], status: int, words: str
) -> None:
    server, service = served
    answer = server.test_client().post("/api/preview", **how)
    assert (answer.status_code, answer.content_type) == (status, "application/problem+json")
    assert words in answer.get_json(force=True)["detail"]
    assert not list(service.uploads.folder.glob("*/*"))


def test_a_preview_has_the_limits_and_the_token_of_attribution(
    served: tuple[Flask, Service], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, service = served[0].test_client(), served[1]
    monkeypatch.setattr(service.uploads, "limits", Limits(bytes=100))
    form = {"file": (io.BytesIO(b'{"response": "r"}\n' * 50), "t.jsonl")}
    assert client.post("/api/preview", data=form).status_code == 413
    monkeypatch.setenv("ATLAS_TOKEN", "s3cret")
    body = {"traces": [{"response": "r"}]}
    assert client.post("/api/preview", json=body).status_code == 401
    bearer = {"Authorization": "Bearer s3cret"}
    assert client.post("/api/preview", json=body, headers=bearer).status_code == 200


@pytest.mark.parametrize("name", ["otlp.jsonl", "anthropic-batch.jsonl"])
def test_models_of_a_log_are_said_everywhere(
    served: tuple[Flask, Service], name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, service = served
    path = tmp_path / name
    path.write_bytes((FOLDER / name).read_bytes())
    told = by_verb(path)
    said = capsys.readouterr().out
    (note,) = (note for note in told["notes"] if note.startswith("Requested"))
    assert note in said and f"Suggested claim: {told['claims'][0]['source']}, since" in said
    answer = server.test_client().post("/api/preview", data={"file": (io.BytesIO(path.read_bytes()), name)}).get_json()
    shown = service.inspect(ANN, service.upload(ANN, name, path.read_bytes()).key)
    assert answer == as_json(shown) == {**told, "claims": []}, "nothing is enrolled on this server"
    assert note in str([part.to_plotly_json() for part in page.body(shown)])


def test_the_verb_loads_no_proxy(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text('{"response": "r"}')
    code = (
        "import sys; from jobs.__main__ import main; code = main(['preview', sys.argv[1]]); "
        "assert not {'torch', 'transformers', 'duckdb'} & set(sys.modules); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], cwd=REPOSITORY, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert b"1 trace, 0 bad lines, 0 duplicates" in done.stdout


def test_a_terminal_obeys_nothing_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"prompt": "\x1b[2J", "response": f"{SECRET} {i}\n\u202e" * 50, "id": "\x1b]0;x\x07"} for i in range(3)]
    path = tmp_path / "a\x1b[31m.jsonl"
    path.write_text("\n".join([*map(json.dumps, rows), "[1]"]), "utf-8")
    told = by_verb(path)
    said = "".join(capsys.readouterr())
    assert not {"\x1b", "\u202e", "\x07"} & set(said)
    assert "line 4: no JSON object but a list" in said
    assert len(told["rows"][0]["response"]) == SHOWN
    assert main(["preview", str(path), "--json", str(path)]) == 2
    assert main(["preview", str(tmp_path / "none")]) == 2
    assert "cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["cp1251", "koi8-r", "utf-16-le", "shift_jis"])
def test_an_encoding_that_is_named(
    served: tuple[Flask, Service], tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("prompt,response\nпочему,потому\n".encode(name))
    told = by_verb(path, "--encoding", name)
    assert (told["rows"][0]["prompt"], told["rows"][0]["response"]) == ("почему", "потому")
    assert told["encoding"].endswith("(as given)")
    form = {"file": (io.BytesIO(path.read_bytes()), path.name), "encoding": name}
    assert served[0].test_client().post("/api/preview", data=form).get_json() == told
    assert main(["preview", str(path), "--encoding", "klingon"]) == 2
    assert "There is no encoding 'klingon'. Name one such as utf-8" in capsys.readouterr().err


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.builds(lambda prompt, response: json.dumps({"prompt": prompt, "response": response}), st.text(), st.text())
        | st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=9),
        max_size=40,
    )
)
def test_a_preview_counts_what_an_intake_reads(lines: list[str]) -> None:
    data = "\n".join(['{"response": "the first"}', *lines]).encode()
    intake = receive(io.BytesIO(data), "t.jsonl")
    found = preview(io.BytesIO(data), "t.jsonl")
    assert found.traces == len(intake.traces)
    assert [problem["place"] for problem in found.problems] == [problem.place for problem in intake.problems]
    assert [row["place"] for row in found.rows] == [trace.place for trace in intake.traces[:ROWS]]
    assert all(again["first"] < again["place"] for again in found.duplicates)
    assert found.traces + len(found.problems) == sum(bool(line.strip()) for line in data.decode().split("\n"))
    json.dumps(asdict(found)).encode()


def test_a_file_without_a_trace_is_no_preview() -> None:
    with pytest.raises(AtlasError, match="no trace"):
        preview(io.BytesIO(b"[1]\n[2]"), "t.jsonl")
