"""The answer of a test of drift: the same by service, page and command line; what it holds, and what it refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import backend.audit.loaded
from atlas.pages.attribute import windows
from backend.audit.chain import digest
from backend.audit.drift_answer import Window, drift_answer
from backend.audit.drift_words import expected, named, sentence
from backend.audit.enrolment import Enrolment
from backend.audit.enrolment_files import save_enrolment
from backend.audit.matched import validation_arrays
from backend.audit.progress import ENDED
from backend.audit.service import Service
from backend.audit.settings import Settings, of_windows
from backend.errors import AtlasError
from backend.proxies.reader import Reader
from jobs.__main__ import main
from tests.served_api import HASH, lines_of, tiny_enrolment, tiny_reader

ANN = "session-of-ann-0001"
PATIENCE = 300
APART = ("created", "command", "sha256")
"""What two runs of one comparison do not share."""
SECRET = "Sesame, open up"


def validated(enrolment: Enrolment) -> Enrolment:
    """With the power of the drift test at ten traces."""
    rows = [
        {"condition": "clean", "part": "drift", "k": 10, "metric": "alarms", "scenario": scenario, "space": space,
         "statistic": statistic, "level": 0.05, "value": value, "std": 0.02, "n": 100}
        for space in ("fingerprints", "log-posteriors")
        for scenario, statistic, value in (
            ("same", "energy", 0.04), ("sibling", "energy", 0.5), ("family", "energy", 0.9),
            ("sibling", "energy-paired", 0.75), ("family", "energy-paired", 1.0),
        )
    ]  # fmt: skip
    arrays = validation_arrays(pd.DataFrame(rows))
    return replace(enrolment, attachments={**enrolment.attachments, **arrays})


@pytest.fixture(scope="module")
def reader() -> Reader:
    return tiny_reader()


@pytest.fixture(scope="module")
def enrolment(reader: Reader) -> Enrolment:
    return validated(tiny_enrolment(reader))


@pytest.fixture
def folder(reader: Reader, enrolment: Enrolment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with the tiny enrolment, and verbs that load the tiny proxy."""
    monkeypatch.setenv("ATLAS_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(backend.audit.loaded, "load_reader", lambda proxy, device: reader)
    monkeypatch.setattr(backend.audit.loaded, "proxy_hash", lambda proxy: HASH)
    save_enrolment(enrolment, tmp_path / "data" / "enrolments" / "tiny.npz")
    for name, style in (("before", "plain"), ("after", "shout")):
        (tmp_path / f"{name}.jsonl").write_bytes(lines_of(style))
    return tmp_path


@pytest.fixture
def service(folder: Path, reader: Reader) -> Iterator[Service]:
    yield Service(folder / "data", folder / "cache", load=lambda proxy: (reader, HASH))


def served(service: Service, *files: Path) -> dict[str, Any]:
    """As the page compares."""
    keys = [service.upload(ANN, path.name, path.read_bytes()).key for path in files]
    jobs = service.start_windows(ANN, keys, of_windows("tiny"))
    assert [service.wait(ANN, job, PATIENCE).state for job in jobs] == ["done"] * len(files)
    return service.drift(ANN, *jobs)


def by_verb(folder: Path, *files: Path, more: tuple[str, ...] = ()) -> dict[str, Any]:
    out = folder / "out" / "drift.json"
    assert main(["drift", *map(str, files), "--json", str(out), *more]) == 0
    told: dict[str, Any] = json.loads(out.read_text("utf-8"))
    return told


def alike(told: dict[str, Any]) -> dict[str, Any]:
    """What has to be the same whoever asks; the command line reads longer texts than a server does."""
    held = {key: value for key, value in json.loads(json.dumps(told)).items() if key not in APART}
    for window in held["windows"]:
        del window["file"]["selection"]["characters"]
    return held


@pytest.mark.parametrize("names", [("before", "after"), ("before",)])
def test_service_and_command_line_give_the_same_answer(
    folder: Path, service: Service, names: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    files = [folder / f"{name}.jsonl" for name in names]
    told = by_verb(folder, *files)
    said = capsys.readouterr().out
    assert alike(told) == alike(served(service, *files))
    assert f"{told['verdict']}: {told['sentence']}" in said
    for words in (told["expected"], f"seed {told['seed']}", f"{told['permutations']:,} permutations", *told["notes"]):
        assert words in said
    assert told["sha256"] == digest({key: value for key, value in told.items() if key != "sha256"})
    assert str(folder) not in json.dumps(told)


def test_two_styles_differ_and_one_does_not(folder: Path, enrolment: Enrolment) -> None:
    told = by_verb(folder, folder / "before.jsonl", folder / "after.jsonl")
    assert (told["verdict"], told["paired"], told["before"], told["after"]) == ("DIFFERENT", True, 12, 12)
    assert told["p_value"] <= told["level"] == 0.05
    assert (told["seed"], told["permutations"], told["notes"]) == (42, 999, [])
    assert told["power"] == {"window": 10, "level": 0.05, "same": None, "sibling": 0.75, "family": 1.0}
    assert told["expected"].endswith(
        "10 traces it calls different: a sibling of its family 75 %, another family 100 %."
    )
    assert told["reading"]["enrolment_sha256"] == enrolment.sha256
    assert told["reading"] | {"proxy_hash": HASH, "layer": 2, "view": "ur", "proxy": "tiny"} == told["reading"]
    assert told["reading"]["code_version"]
    assert [len(window["traces"]) for window in told["windows"]] == [12, 12]
    assert len({window["file"]["sha256"] for window in told["windows"]}) == 2
    assert {row["statistic"] for row in told["validation"]} == {"energy", "energy-paired"}
    halves = by_verb(folder, folder / "before.jsonl")
    assert (halves["verdict"], halves["paired"], halves["before"], halves["after"]) == (
        "NO DIFFERENCE SEEN", False, 6, 6,
    )  # fmt: skip
    assert [named(window) for window in halves["windows"]] == [
        "before.jsonl, first half", "before.jsonl, second half",
    ]  # fmt: skip
    places = [[trace["place"] for trace in window["traces"]] for window in halves["windows"]]
    assert places == [[1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]]
    assert halves["power"] is None and "no part" in halves["expected"]
    assert any("same prompts" in note for note in halves["notes"])


def test_the_page_says_what_the_answer_says(folder: Path) -> None:
    told = by_verb(folder, folder / "before.jsonl", folder / "after.jsonl")
    rows = pd.DataFrame(told["validation"]).assign(roster="tiny")
    text = str(windows.answer(told, rows, "light").to_plotly_json())
    for words in (told["sentence"], told["verdict"], told["expected"], "before.jsonl", "after.jsonl"):
        assert repr(words)[1:-1] in text
    assert told["sentence"] == sentence(told) and told["expected"] == expected(told["power"])


def test_no_text_is_in_the_answer(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor anything that a terminal would obey, whatever lines, columns and file names hold."""
    rows = [
        {
            "prompt": f"{SECRET} {i}\x1b[2J",
            "response": f"{SECRET} <script>{i}</script>\x1b]0;x\x07 \u202e",
            "id": SECRET,
        }
        for i in range(12)
    ]
    lines = [json.dumps(row) for row in rows]
    path = folder / "a\x1b[31m<b>.jsonl"
    path.write_text("\n".join([*lines[:6], f"{SECRET} {{broken", *lines[6:]]), "utf-8")
    told = by_verb(folder, path, folder / "after.jsonl")
    held = (folder / "out" / "drift.json").read_text("utf-8")
    shown = "".join(capsys.readouterr())
    assert SECRET not in held + shown and "\x1b" not in held + shown and "\u202e" not in held + shown
    assert [problem["place"] for problem in told["windows"][0]["file"]["problems"]] == [7]
    assert "line 7" in shown


def test_columns_are_those_of_the_verb_that_attributes(folder: Path) -> None:
    for name in ("before", "after"):
        rows = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        renamed = [json.dumps({"q": row["prompt"], "a": row["response"], "text": "x"}) for row in rows]
        (folder / f"{name}-columns.jsonl").write_text("\n".join(renamed))
    files = [folder / f"{name}-columns.jsonl" for name in ("before", "after")]
    told = by_verb(folder, *files, more=("--response-column", "a", "--prompt-column", "q", "--enrolment", "tiny"))
    plain = by_verb(folder, folder / "before.jsonl", folder / "after.jsonl")
    assert (told["statistic"], told["p_value"]) == (plain["statistic"], plain["p_value"])
    assert told["settings"]["columns"]["prompt"] == "q"


def test_what_cannot_be_compared_is_refused_in_words(
    folder: Path, service: Service, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_proxy(*_: Any) -> None:
        raise AssertionError("the proxy was loaded for windows that cannot be compared")

    monkeypatch.setattr(backend.audit.loaded, "load_reader", no_proxy)
    good, few = folder / "before.jsonl", folder / "few.jsonl"
    few.write_bytes(lines_of("shout", 4))
    nothing, nine = folder / "nothing.jsonl", folder / "nine.jsonl"
    nothing.write_text("{broken\n" * 3)
    nine.write_bytes(lines_of("plain", 9))
    for asked, words in (
        ((good, few), "second window has 4 traces (few.jsonl)"),
        ((few, good), "first window has 4 traces (few.jsonl)"),
        ((nine,), "first window has 4 traces (nine.jsonl)"),
        ((good, nothing), "no trace in nothing.jsonl (line 1: "),
        ((good, folder / "absent.jsonl"), "cannot be read"),
        ((good, good, "--response-column", "zz"), "no column 'zz'"),
        ((good, good, "--enrolment", "zz"), "There is no enrolment"),
        ((good, good, "--json", str(good)), "would be written over"),
        ((good, good, "--json", str(folder)), "is a folder"),
    ):
        assert main(["drift", *map(str, asked)]) == 2
        said = capsys.readouterr().err
        assert words in said, said
    for files, words in (((good, few), "second window has 4"), ((nine,), "first window has 4")):
        keys = [service.upload(ANN, path.name, path.read_bytes()).key for path in files]
        with pytest.raises(AtlasError, match=words):
            service.start_windows(ANN, keys, of_windows("tiny"))
    # What had begun ends after its batch; the proxy here is that of the service.
    assert all(service.wait(ANN, one.job, PATIENCE).state in ENDED for one in service.jobs(ANN))


def test_windows_of_other_ecosystems_are_not_compared(folder: Path, service: Service, enrolment: Enrolment) -> None:
    save_enrolment(replace(enrolment, name="other", attachments={}), folder / "data" / "enrolments" / "other.npz")
    paths = [folder / f"{name}.jsonl" for name in ("before", "after")]
    keys = [service.upload(ANN, path.name, path.read_bytes()).key for path in paths]
    jobs = [
        service.start(ANN, key, of_windows(name), fingerprints=True)
        for key, name in zip(keys, ("tiny", "other"), strict=True)
    ]
    plain = service.start(ANN, keys[0], Settings(enrolment="tiny", orders=1))
    for job in (*jobs, plain):
        assert service.wait(ANN, job, PATIENCE).state == "done"
    with pytest.raises(AtlasError, match="different ecosystems"):
        service.drift(ANN, *jobs)
    with pytest.raises(AtlasError, match="were not kept"):
        service.drift(ANN, plain)


def test_long_windows_say_how_many_were_compared(enrolment: Enrolment) -> None:
    rng, many = np.random.default_rng(0), 1_100
    method = {"reader": "r", "proxy": "tiny", "view": "ur", "engine": "e", "code_version": "v"}
    told = {
        "method": method | {"enrolment_sha256": enrolment.sha256},
        "input": {"name": "t.jsonl", "selection": {"keep_duplicates": True}},
        "traces": [{"place": i, "turn": 0, "sha256": "0"} for i in range(many)],
    }
    rows = rng.normal(size=(many, 2 * enrolment.hidden_size)).astype(np.float16)
    few = Window({**told, "traces": told["traces"][:6]}, rows[:6], [""] * 6)
    found = drift_answer([Window(told, rows, [""] * many), few], enrolment)
    assert (found["before"], found["after"], len(found["windows"][0]["traces"])) == (1_000, 6, many)
    assert found["notes"][1:] == ["Of the 1,100 traces of the first window 1,000 in even steps were compared."]
    assert found["command"] == "python -m jobs drift t.jsonl t.jsonl --enrolment tiny"
