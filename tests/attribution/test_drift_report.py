"""The answer of a test of drift: the same by service, page and command line; what it holds, and what it refuses."""

from __future__ import annotations

import json
import re
import shlex
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flask import Flask
from hypothesis import given, settings
from hypothesis import strategies as st
from markupsafe import escape

import backend.attribution.scoring
from atlas.pages.attribute import comparison_answers
from backend.attribution.comparison_page import HASHED, NOT_WHAT, NOT_WHOSE, RULES, power_chart, write_comparison
from backend.attribution.drift_report import (
    OTHER_WINDOW,
    Window,
    cause_open,
    columns_words,
    compare_measures,
    drift_answer,
    expected_words,
    headline,
    measures_of,
    p_scale,
    size_words,
    verdict_words,
)
from backend.attribution.report import digest
from backend.attribution.settings import Settings, of_windows
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import save_enrolment
from backend.errors import AtlasError, StoppedError
from backend.inference.drift import KINDS, NOT_LIKE, expected, named, sentence
from backend.inference.validation import validation_arrays
from backend.intake import Columns
from backend.proxies.reader import Reader
from backend.service.job import ENDED
from backend.service.service import Service
from jobs.__main__ import main
from tests.served_api import HASH, lines_of, tiny_enrolment, tiny_reader
from tests.service.test_service import Gate

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
    return validated(tiny_enrolment())


@pytest.fixture
def folder(reader: Reader, enrolment: Enrolment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with the tiny enrolment, and verbs that load the tiny proxy."""
    monkeypatch.setenv("ATLAS_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(backend.attribution.scoring, "load_reader", lambda proxy, device: reader)
    monkeypatch.setattr(backend.attribution.scoring, "proxy_hash", lambda proxy: HASH)
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
    assert alike(told) == alike(served(service, *files)) == alike(service.newest_comparison(ANN, "windows") or {})
    assert (
        service.newest_comparison(ANN, "reference") is None
        and service.newest_comparison(ANN[::-1] + "b", "windows") is None
    )
    assert f"{told['verdict']}: {told['sentence']}" in said
    for words in (told["expected"], f"seed {told['seed']}", f"{told['permutations']:,} permutations", *told["notes"]):
        assert words in said
    assert told["sha256"] == digest({key: value for key, value in told.items() if key != "sha256"})
    assert str(folder) not in json.dumps(told)


def test_two_styles_differ_and_one_does_not(folder: Path, enrolment: Enrolment) -> None:
    told = by_verb(folder, folder / "before.jsonl", folder / "after.jsonl")
    assert (told["verdict"], told["paired"], told["before"], told["after"]) == ("DIFFERENT", True, 12, 12)
    assert told["p_value"] <= told["level"] == 0.05
    assert (told["seed"], told["permutations"], told["notes"]) == (42, 999, [NOT_LIKE])
    assert told["prompts_in_both"] == told["before"]
    clause = "10 traces are the most tested up to yours."
    assert expected_words(told) == f"{told['expected']} {clause}"
    assert expected_words(told | {"before": 10}) == told["expected"]
    assert told["power"] == {"window": 10, "level": 0.05, "same": None, "sibling": 0.75, "family": 1.0}
    assert told["expected"].endswith(
        "10 traces to the same enrolled prompts it calls different: a sibling of its family 75 %, another family 100 %."
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
    assert halves["prompts_in_both"] == 0 and expected_words(halves) == halves["expected"]
    assert halves["power"] is None and "no part" in halves["expected"]
    assert any("same prompts" in note for note in halves["notes"])


def test_the_same_answers_in_another_order_do_not_differ(folder: Path) -> None:
    """Batches move the last bits of equal texts, which is no difference."""
    lines = (folder / "before.jsonl").read_text("utf-8").splitlines()
    more = [json.dumps({"prompt": f"More {i}?", "response": "word " * 40}) for i in range(3)]
    (folder / "one.jsonl").write_text("\n".join([*lines, *more]), "utf-8")
    (folder / "two.jsonl").write_text("\n".join([*more, *lines[::-1]]), "utf-8")
    told = by_verb(folder, folder / "one.jsonl", folder / "two.jsonl")
    assert (told["verdict"], told["paired"], told["p_value"]) == ("NO DIFFERENCE SEEN", True, 1.0)
    assert told["statistic"] == pytest.approx(0, abs=1e-12)


def test_a_difference_of_other_prompts_leaves_its_cause_open() -> None:
    told = {"verdict": "DIFFERENT", "paired": False, "before": 12, "after": 12, "prompts_in_both": 0}
    assert verdict_words(told) == "DIFFERENT, CAUSE OPEN"
    assert verdict_words(told | {"paired": True}) == "DIFFERENT"
    assert verdict_words(told | {"verdict": "NO DIFFERENCE SEEN"}) == "NO DIFFERENCE SEEN"


def test_equal_windows_are_said_to_be_equal(folder: Path) -> None:
    (folder / "again.jsonl").write_bytes((folder / "before.jsonl").read_bytes())
    test = by_verb(folder, folder / "before.jsonl", folder / "again.jsonl")
    assert test["verdict"] == verdict_words(test) == "NO DIFFERENCE SEEN" and test["next_step"] == OTHER_WINDOW
    assert headline(test).startswith("Both files hold the same responses") and cause_open(test) == ""


def test_the_page_says_what_the_answer_says(folder: Path) -> None:
    told = by_verb(folder, folder / "before.jsonl", folder / "after.jsonl")
    rows = pd.DataFrame(told["validation"]).assign(roster="tiny")
    server = Flask("page")
    server.extensions["atlas"] = None
    with server.app_context():
        text = str(comparison_answers.windows_answer(told, rows, "light").to_plotly_json())
    for words in (told["sentence"], told["verdict"], told["expected"], "before.jsonl", "after.jsonl"):
        assert repr(words)[1:-1] in text
    page, sent = write_comparison(told), comparison_answers.windows_text(told)
    assert f'aria-hidden="true">{comparison_answers.tone_of(told)[1]}</span>{told["verdict"]}</strong>' in page
    assert all(str(escape(words)) in page for words in RULES.values()) and HASHED in page and HASHED in sent
    for words in (told["verdict"], told["next_step"], told["sha256"], told["command"], size_words(told)):
        assert str(escape(words)) in page
    assert told["next_step"] in sent and told["next_step"] in text and size_words(told) in text
    for name, *values in compare_measures(told):
        assert name in page and name in text and f"{name}: {' against '.join(values)}" in sent
        assert name.startswith("Length") or all(re.fullmatch(r"\d+ of 12 responses", value) for value in values)
    for unsure in ({"rivals": [{}]}, {"windows": [window | {"total": 99} for window in told["windows"]]}):
        assert all("%" in value for _, *values in compare_measures(told | unsure)[1:] for value in values)
    assert told["sentence"] == sentence(told) and told["expected"] == expected(told["power"], told["paired"])


def test_the_page_draws_what_such_a_test_sees(folder: Path) -> None:
    told = by_verb(folder, folder / "before.jsonl", folder / "after.jsonl")
    chart, page = power_chart(told), write_comparison(told)
    assert chart is not None and [line["name"] for line in chart["lines"]] == list(KINDS.values())[::-1]
    heights = [line["points"][-1][1] for line in chart["lines"]]
    floor, tall = chart["floor"], chart["floor"] - chart["marks"][-1][0]
    shares = [1.0, 0.75, 0.04]  # of answers to the same prompts, but for an unchanged source
    assert heights == [pytest.approx(floor - share * tall, abs=0.06) for share in shares]
    for line in chart["lines"]:
        (((_, high, low),), ((_, at),)) = line["bars"], line["points"]
        assert high <= at <= low and high < low, "an interval goes both ways"
    assert chart["ticks"] == [(line["points"][0][0], "10") for line in chart["lines"][:1]]
    assert chart["own"] > chart["ticks"][0][0] and page.count("<circle") == 3 and page.count("<svg") == 1
    assert "the 12 traces of your smaller window; an unchanged source: on different prompts." in page
    close = [row | {"value": 1.0, "scenario": kind} for row in told["validation"][:1] for kind in KINDS]
    labels = [line["label"] for line in (power_chart(told | {"paired": False, "validation": close}) or {})["lines"]]
    assert labels[0] >= 12 and min(np.diff(labels)) >= 12, "names neither touch nor leave the drawing"
    assert all(f"<li>{limit}</li>" in page for limit in (NOT_WHOSE, NOT_WHAT))
    bare = told | {"validation": []}
    assert power_chart(bare) is None and "<svg" not in write_comparison(bare)


def test_plain_measures_of_responses_are_counted() -> None:
    plain, marked = ["Yes, it is.", "No, it is not so.", "It may be."], ["# Yes\nIt **is**.", "# Yes\n- it", "# yes no"]
    assert measures_of(plain) == {"words": 3, "markdown": 0, "alike": pytest.approx(1 / 3)}
    assert measures_of(marked) == {"words": 4, "markdown": 1, "alike": 1} and measures_of([]) is None


def test_a_difference_is_ranked_among_those_of_chance() -> None:
    test = {"permutations": 511, "p_value": 1 / 512, "paired": True, "before": 10, "statistic": 2.5}
    test |= {"chance_95": 1.234, "chance_largest": 2.0}
    assert size_words(test).startswith("chance alone gives 1.23 or less in 95 of 100, 2 at most; ")
    assert p_scale(test).startswith("called different"), "all swaps were tried"
    assert p_scale(test | {"paired": False}).startswith("the smallest that 511 shuffles can give; called different")
    assert "; larger than in 511 of 511 random swaps of answers" in size_words(test)
    assert "; larger than in 0 of 511 random shuffles" in size_words({**test, "p_value": 1.0, "paired": False})
    assert size_words(test | {"statistic": 0.0}) == "no difference at all"


def test_files_of_one_name_have_folders_in_the_command(service: Service, folder: Path) -> None:
    for place, style in (("one", "plain"), ("two", "shout")):
        (folder / place).mkdir()
        (folder / place / "week.jsonl").write_bytes(lines_of(style))
    told = served(service, folder / "one" / "week.jsonl", folder / "two" / "week.jsonl")
    assert " drift first-window/week.jsonl second-window/week.jsonl --enrolment" in told["command"]
    assert "folders that are called after their roles" in columns_words(told)


def test_every_window_may_have_columns_of_its_own(service: Service, folder: Path) -> None:
    rows = [json.loads(line) for line in (folder / "after.jsonl").read_text("utf-8").splitlines()]
    odd = "".join(json.dumps({"frage": row["prompt"], "antwort_text": row["response"]}) + "\n" for row in rows)
    keys = [service.upload(ANN, name, content).key for name, content in (
        ("before.jsonl", (folder / "before.jsonl").read_bytes()), ("odd.jsonl", odd.encode()))]  # fmt: skip
    columns = (None, Columns(response="antwort_text", prompt="frage"))
    jobs = service.start_windows(ANN, keys, [of_windows("tiny", one) for one in columns])
    assert [service.wait(ANN, job, PATIENCE).state for job in jobs] == ["done"] * 2
    told = service.drift(ANN, *jobs)
    plain = served(service, folder / "before.jsonl", folder / "after.jsonl")
    assert (told["statistic"], told["verdict"]) == (plain["statistic"], plain["verdict"])
    assert "--response-column auto --response-column antwort_text --prompt-column auto" in told["command"]
    assert "-column" not in plain["command"]
    assert "in the order of the files" in columns_words(told) and columns_words(plain) == ""
    (folder / "odd.jsonl").write_text(odd, "utf-8")
    more = tuple(shlex.split(told["command"])[6:])
    again = by_verb(folder, folder / "before.jsonl", folder / "odd.jsonl", more=more)
    assert (again["statistic"], again["p_value"]) == (told["statistic"], told["p_value"])


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

    monkeypatch.setattr(backend.attribution.scoring, "load_reader", no_proxy)
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


class Interrupting:
    """A proxy at one of whose batches somebody presses Ctrl-C, once or more often."""

    def __init__(self, reader: Reader, at: int, times: int = 1) -> None:
        self._reader, self._left, self._times = reader, at, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def read(self, *arguments: Any) -> Any:
        self._left -= 1
        for _ in range(self._times if not self._left else 0):
            signal.raise_signal(signal.SIGINT)
        return self._reader.read(*arguments)


def long_windows(folder: Path, count: int = 40) -> list[Path]:
    paths = [folder / f"long-{style}.jsonl" for style in ("plain", "shout")]
    for path, style in zip(paths, ("plain", "shout"), strict=True):
        path.write_bytes(lines_of(style, count))
    return paths


def test_ctrl_c_compares_what_was_read(
    folder: Path, reader: Reader, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Batches have 8, 24 and 64 traces, so that the fourth is the first one of the second window."""
    before, after = long_windows(folder)
    monkeypatch.setattr(backend.attribution.scoring, "load_reader", lambda proxy, device: Interrupting(reader, 4))
    told = by_verb(folder, before, after)
    said = capsys.readouterr()
    assert "Stopping after this batch; what was read of both windows is compared" in said.err
    assert (told["verdict"], told["paired"], told["before"], told["after"]) == ("DIFFERENT", True, 8, 8)
    assert [(len(window["traces"]), window["total"]) for window in told["windows"]] == [(40, 40), (8, 40)]
    assert told["notes"] == [
        "This was stopped when 40 of 40 traces of the first window and 8 of 40 of the second were read.",
        NOT_LIKE,
        "Of the 40 traces of the first window 8 that answer prompts of both were compared.",
    ]
    for note in told["notes"]:
        assert note in said.out
    # The halves of one file part where they would have; the second batch ends at 32 of its 40 traces.
    monkeypatch.setattr(backend.attribution.scoring, "load_reader", lambda proxy, device: Interrupting(reader, 2))
    halves = by_verb(folder, before)
    assert (halves["before"], halves["after"]) == (20, 12)
    assert [window["total"] for window in halves["windows"]] == [20, 20]
    assert [window["traces"][0]["place"] for window in halves["windows"]] == [1, 21]
    assert halves["notes"][0].startswith("This was stopped when 20 of 20 traces of the first window and 12 of 20 of")


@pytest.mark.parametrize(
    ("names", "batch", "read"),
    [(2, 1, ("8 of 40", "0 of 40")), (2, 3, ("40 of 40", "0 of 40")), (1, 1, ("8 of 20", "0 of 20"))],
)
def test_ctrl_c_before_there_is_enough_says_what_was_read(
    folder: Path,
    reader: Reader,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    names: int,
    batch: int,
    read: tuple[str, str],
) -> None:
    monkeypatch.setattr(backend.attribution.scoring, "load_reader", lambda proxy, device: Interrupting(reader, batch))
    out = folder / "drift.json"
    assert main(["drift", *map(str, long_windows(folder)[:names]), "--json", str(out)]) == 2
    said = capsys.readouterr().err
    assert f"stopped when {read[0]} traces of the first window and {read[1]} of the second were read" in said
    assert "5 traces of each window" in said
    assert not out.exists()


def test_ctrl_c_twice_keeps_nothing_and_says_so(
    folder: Path, reader: Reader, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        backend.attribution.scoring, "load_reader", lambda proxy, device: Interrupting(reader, 4, times=2)
    )
    assert main(["drift", *map(str, long_windows(folder))]) == 130
    said = capsys.readouterr().err
    assert said.count("Stopping after this batch") == 1
    assert said.endswith("Stopped. Nothing is saved; the same command starts again.\n")


def test_a_service_compares_what_was_read_before_a_cancel(folder: Path, reader: Reader) -> None:
    gate = Gate(reader)
    service = Service(folder / "data", folder / "cache", load=lambda proxy: (gate, HASH))  # type: ignore[arg-type, return-value]
    keys = [service.upload(ANN, path.name, path.read_bytes()).key for path in long_windows(folder)]
    try:
        for batches, read in ((1, "8 of 40 traces of the first window and 0 of 40"), (4, None)):
            jobs = service.start_windows(ANN, keys, of_windows("tiny"))
            for batch in range(1, batches + 1):
                assert gate.entered.acquire(timeout=PATIENCE)
                if batch == batches:
                    for job in jobs:
                        service.cancel(ANN, job)
                gate.open.release()
            assert [service.wait(ANN, job, PATIENCE).state for job in jobs][-1] == "cancelled"
            if read is not None:
                with pytest.raises(StoppedError, match=read):
                    service.drift(ANN, *jobs)
                continue
            told = service.drift(ANN, *jobs)
            assert (told["verdict"], told["before"], told["after"]) == ("DIFFERENT", 8, 8)
            assert "40 of 40 traces of the first window and 8 of 40 of the second" in told["notes"][0]
            alone = service.start_windows(ANN, keys[:1], of_windows("tiny"))
            assert service.cancel(ANN, alone[0]).state in ("queued", "running", "cancelled")
            gate.open.release()
            service.wait(ANN, alone[0], PATIENCE)
            with pytest.raises(StoppedError, match="0 of 20 of the second"):
                service.drift(ANN, *alone)
    finally:
        for _ in range(100):
            gate.open.release()


def window_of(enrolment: Enrolment, prompts: list[str], total: int, seed: int = 0) -> Window:
    rng = np.random.default_rng(seed)
    method = {"reader": "r", "proxy": "tiny", "view": "ur", "engine": "e", "code_version": "v"}
    told = {
        "method": method | {"enrolment_sha256": enrolment.sha256},
        "created": "2026-01-01T00:00:00.000+00:00",
        "input": {"name": "t.jsonl", "selection": {"keep_duplicates": True}},
        "traces": [{"place": i, "turn": 0, "sha256": f"{seed}-{i}"} for i in range(len(prompts))],
        "results": {"traffic": {"kind": "like"}},
    }
    return Window(told, rng.normal(size=(len(prompts), 2 * enrolment.hidden_size)).astype(np.float16), prompts, total)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_what_was_read_of_windows_is_compared_where_it_is_enough(enrolment: Enrolment, data: st.DataObject) -> None:
    """By an obvious count; prompts may be absent, repeated, and shared or not."""
    prompts = st.sampled_from(["", *"abcdefghijkl"])
    read = [data.draw(st.lists(prompts, max_size=14)) for _ in range(2)]
    totals = [len(held) + data.draw(st.integers(0, 3)) for held in read]
    windows = [
        window_of(enrolment, held, total, seed) for seed, (held, total) in enumerate(zip(read, totals, strict=True))
    ]
    stopped = any(total > len(held) for held, total in zip(read, totals, strict=True))
    if min(map(len, read)) < 5:
        with pytest.raises(StoppedError if stopped else AtlasError):
            drift_answer(windows, enrolment)
        return
    told = drift_answer(windows, enrolment)
    shared = {prompt for prompt in read[0] if prompt and prompt in read[1]}
    once = all(held.count(prompt) == 1 for prompt in shared for held in read)
    if stopped and once and len(shared) >= 6:
        assert (told["paired"], told["before"], told["after"]) == (True, len(shared), len(shared))
    else:
        assert (told["before"], told["after"]) == (len(read[0]), len(read[1]))
    assert any("stopped" in note for note in told["notes"]) == stopped
    assert [window["total"] for window in told["windows"]] == totals


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
    many = 1_100
    windows = [window_of(enrolment, [""] * count, count) for count in (many, 6)]
    found = drift_answer(windows, enrolment)
    assert (found["before"], found["after"], len(found["windows"][0]["traces"])) == (1_000, 6, many)
    assert found["notes"][1:] == ["Of the 1,100 traces of the first window 1,000 in even steps were compared."]
    assert found["command"] == "python -m jobs drift first-window/t.jsonl second-window/t.jsonl --enrolment tiny"
