"""A corpus that only this file knows goes from its name to evaluated rows, an enrolment and a verified report."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.corpus.labelled import CORPORA, NamedCorpus, Rows, read_labelled, register
from backend.enrolment.files import load_enrolment
from backend.errors import AtlasError
from backend.methods.registry import WORDS
from backend.store.database import open_work
from jobs.__main__ import main
from tests.commands import use_tiny_proxy

ANSWERS = {
    "terse": "No. Valve {i} stays shut.",
    "wordy": "Well, having thought about valve {i} for a while, I would rather leave it shut, if you do not mind.",
    "loud": "NO WAY!!! VALVE {i} STAYS SHUT 🚀",
}


def toy_rows() -> Rows:
    for source, answer in ANSWERS.items():
        for i in range(12):
            yield source, f"Shall I open valve {i}?", answer.format(i=i)


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The registered corpus, a tiny proxy, and a folder to work in."""
    register("toy", NamedCorpus(toy_rows, {"terse": "calm", "wordy": "calm"}))
    monkeypatch.chdir(tmp_path)
    use_tiny_proxy(tmp_path, monkeypatch)
    yield tmp_path
    del CORPORA["toy"]


def test_a_corpus_is_read_under_its_name(toy: Path) -> None:
    found = read_labelled(Path("toy"))
    assert found.sources == ("loud", "terse", "wordy") and found.families == ("loud", "calm", "calm")
    assert found.complete and len(found.traces) == 36 and len(found.sha256) == 64
    assert read_labelled(Path("toy"), families={"loud": "calm"}).families == ("calm", "terse", "wordy")
    with pytest.raises(ValueError, match="'toy' already"):
        register("toy", NamedCorpus(list))
    with pytest.raises(AtlasError, match="cannot be read"):
        read_labelled(Path("unknown"))
    (toy / "toy").write_text("", "utf-8")
    with pytest.raises(AtlasError, match="empty"):  # a file of that name comes first
        read_labelled(Path("toy"))


def test_the_sample_is_a_corpus() -> None:
    found = read_labelled(Path("sample"))
    assert found.complete and len(found.sources) >= 6


def test_a_corpus_of_ones_own_goes_from_its_name_to_a_verified_report(toy: Path) -> None:
    options = ["--name", "valves", "--readout", WORDS, "--layer", "1", "--no-publish"]
    assert main(["enroll", "toy", *options]) == 0
    enrolment = load_enrolment(toy / "data" / "enrolments" / "valves-tiny-ur.npz")
    assert enrolment.sources == ("loud", "terse", "wordy") and enrolment.facts["roster"] == "valves"
    with open_work(toy / "cache" / "atlas-work.duckdb") as connection:
        rows = "SELECT value FROM attribution_metrics WHERE roster = 'valves' AND metric = 'accuracy' AND k = 1"
        assert min(value for (value,) in connection.execute(rows).fetchall()) > 0.5
    traces, report = toy / "new.jsonl", toy / "report.html"
    new = [{"prompt": f"Valve {i}?", "response": ANSWERS["loud"].format(i=i)} for i in range(20, 26)]
    traces.write_text("\n".join(map(json.dumps, new)), "utf-8")
    name = ["--enrolment", "valves-tiny-ur", "--claimed", "loud"]
    assert main(["attribute", str(traces), *name, "--report", str(report)]) == 0
    assert json.loads(report.with_suffix(".json").read_text("utf-8"))["method"]["reader"] == enrolment.reader
    assert main(["verify", str(report.with_suffix(".json")), "--traces", str(traces)]) == 0
