"""``python -m jobs watch`` from its words to its exit code, with the shipped sample and its proxy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import backend.attribution.scoring
from backend.corpus.collection import sample_records
from backend.errors import AtlasError
from backend.proxies.reader import Reader
from backend.service.watch_state import VARIABLE, WatchState
from jobs.__main__ import main
from jobs.watch import interval
from tests.daemons import free_port

CLAIMED = "smol-pirate"


def lines_of(source: str, prompts: slice) -> str:
    records = sample_records()
    each, place = len(records.prompt_ids), records.sources.index(source)
    traces = records.traces[place * each : (place + 1) * each][prompts]
    return "".join(json.dumps({"source": source} | asdict(trace)) + "\n" for trace in traces)


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("ATLAS_COMPILE", "0")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "watches"))
    (tmp_path / "logs").mkdir()
    options = ["--claimed", CLAIMED, "--enrolment", "samples-smollm2-135m-ur", "--reference", "sample", "--once"]
    return ["watch", str(tmp_path / "logs"), *options]


@pytest.mark.proxy
@pytest.mark.slow(35)
def test_exit_codes_of_a_folder(
    words: list[str], smollm2: Reader, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(backend.attribution.scoring, "load_reader", lambda proxy, device: smollm2)
    (tmp_path / "logs" / "app.jsonl").write_text(lines_of(CLAIMED, slice(0, 10)), "utf-8")
    assert main(words) == 0
    assert "Reference: 60 traces of smol-pirate." in capsys.readouterr().out
    (tmp_path / "logs" / "app.jsonl.1").write_text(lines_of("gemma-answer", slice(20, 40)), "utf-8")
    assert main(words) == 1
    said = capsys.readouterr().out
    assert "ALARM 1: After " in said and "an alarm stands" in said
    state = WatchState.open(CLAIMED)
    report, traces = (str(state.file(1, form)) for form in ("json", "jsonl"))
    state.close()
    assert main(["verify", report, "--traces", traces]) == 0
    assert "EQUAL: " in capsys.readouterr().out
    # Alone, with what is piped into it, and measured meanwhile.
    port, reference = free_port(), tmp_path / "reference.jsonl"
    reference.write_text("".join(lines_of(source, slice(0, 10)) for source in (CLAIMED, "gemma-answer")), "utf-8")
    words = [str(reference) if word == "sample" else word for word in words]
    piped = [sys.executable, "-m", "jobs", "watch", "-", *words[2:], "--name", "piped", "--metrics-port", str(port)]
    # As a shell starts it: lines come as they are written, without a word to Python that they should.
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "encoding": "utf-8"}
    with subprocess.Popen(piped, env=alone, **pipes) as process:
        assert process.stdin is not None and process.stdout is not None
        assert "Reference" in process.stdout.readline()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
            assert b'atlas_watch_alarm{watch="smol-pirate"} 1.0' in answer.read()
        process.stdin.write(lines_of(CLAIMED, slice(40, 45)))
        process.stdin.close()
        assert "no alarm" in process.stdout.read()
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (["--every", "soon"], "'soon' is no time between two looks"),
        (["--rate", "1"], "A rate of 1 is no share"),
        (["--webhook", "nowhere"], "The webhook is no address"),
        (["--claimed", "nobody"], "nobody"),
        (["--per-look", "0"], "--per-look is 0"),
    ],
)
def test_what_makes_no_sense_is_named(
    words: list[str], capsys: pytest.CaptureFixture[str], more: list[str], problem: str
) -> None:
    assert main([*words, *more]) == 2
    assert problem in capsys.readouterr().err


def test_an_endpoint_needs_a_model_and_a_first_start_a_reference(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["watch", "http://127.0.0.1:1/v1", *words[2:]]) == 2
    assert "An endpoint needs a model and prompts" in capsys.readouterr().err
    without = [word for word in words if word not in ("--reference", "sample")]
    assert main(without) == 2
    assert "--reference FILE" in capsys.readouterr().err


def test_times_between_looks() -> None:
    assert [interval(text) for text in ("30s", "1.5m", "1h", "2d")] == [30.0, 90.0, 3_600.0, 172_800.0]
    for wrong in ("", "0s", "-1h", "1", "1w"):
        with pytest.raises(AtlasError, match="no time between two looks"):
            interval(wrong)
