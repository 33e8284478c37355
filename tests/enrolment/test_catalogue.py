"""Which enrolment a name means, what a miss suggests, and when one's own ecosystem is offered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import backend.attribution.scoring
from backend.enrolment.catalogue import Ecosystem, Ecosystems, find_enrolment, named, offer
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import save_enrolment
from backend.enrolment.fit import enrolment_of_traces
from backend.errors import AtlasError
from backend.proxies.reader import Reader
from jobs.__main__ import main
from tests.attribution.test_run import labelled, trace_file
from tests.tiny_models import tiny_decoder, tiny_tokenizer


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader(tiny_decoder(), tiny_tokenizer(), compile_blocks=False)


@pytest.fixture(scope="module")
def enrolment(reader: Reader) -> Enrolment:
    traces, labels = labelled()
    return enrolment_of_traces(
        traces, labels, reader, name="tiny", proxy="tiny", weights_hash="f" * 64, view="ur", layer=2
    )


@pytest.fixture
def published(reader: Reader, enrolment: Enrolment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with the tiny enrolment, and verbs that load the tiny proxy."""
    monkeypatch.setenv("ATLAS_DATA", str(tmp_path / "data"))
    save_enrolment(enrolment, tmp_path / "data" / "enrolments" / "tiny.npz")
    monkeypatch.setattr(backend.attribution.scoring, "load_reader", lambda proxy, device: reader)
    monkeypatch.setattr(backend.attribution.scoring, "proxy_hash", lambda proxy: "f" * 64)
    return tmp_path


def ecosystem(name: str, roster: str | None = None, sources: tuple[str, ...] = ("a", "b")) -> Ecosystem:
    return Ecosystem(name, "reader-paper", "tiny", "ur", sources, sources, "0" * 64, {"roster": roster})


KNOWN = (
    ecosystem("165-way-fused-live-smollm2-135m-ur", "165-way"),
    ecosystem("100-way-fused-live-smollm2-135m-ur", "100-way"),
    ecosystem("100-way-reader-paper-smollm2-135m-r", "100-way"),
    ecosystem("alpaca60-smollm2-135m-ur", "alpaca60"),
    ecosystem("alpine-smollm2-135m-ur", "alpine"),
    ecosystem("samples-smollm2-135m-ur"),
)


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("alpaca60", "alpaca60-smollm2-135m-ur"),
        ("Alpaca", "alpaca60-smollm2-135m-ur"),
        ("samples", "samples-smollm2-135m-ur"),
        ("165", "165-way-fused-live-smollm2-135m-ur"),
        ("100-way", "100-way-fused-live-smollm2-135m-ur"),
        ("100-way-reader", "100-way-reader-paper-smollm2-135m-r"),
        ("100-way-reader-paper-smollm2-135m-r", "100-way-reader-paper-smollm2-135m-r"),
    ],
)
def test_a_short_name_finds_its_enrolment(typed: str, found: str) -> None:
    assert named(typed, KNOWN).name == found


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("alp", "Several ecosystems have names that begin with 'alp'. Choose from alpaca60-smoll"),
        (
            "alpacca60",
            "There is no enrolment and no ecosystem 'alpacca60'. Did you mean alpaca60 or alpaca60-smollm2-135m-ur?",
        ),
        ("100 way", "There is no enrolment and no ecosystem '100 way'. Did you mean 100-way"),
        ("zz", "There is no enrolment and no ecosystem 'zz'. Choose from 165-way-fused-live"),
        ("", "There is no enrolment and no ecosystem ''"),
    ],
)
def test_a_miss_says_what_may_have_been_meant(typed: str, words: str) -> None:
    with pytest.raises(AtlasError) as refused:
        named(typed, KNOWN)
    assert str(refused.value).startswith(words)


def test_a_roster_that_is_not_shipped_has_its_command() -> None:
    with pytest.raises(AtlasError, match=r"'100-way-x'. .*Make it: python -m jobs enroll --roster 100-way, or choose"):
        named("100-way-x", [KNOWN[0], KNOWN[-1]])


@given(st.lists(st.text(max_size=6), min_size=1, max_size=6, unique=True), st.text(max_size=6))
def test_full_names_are_always_found_and_others_never_by_chance(names: list[str], typed: str) -> None:
    known = [ecosystem(name) for name in names]
    assert all(named(name, known).name == name for name in names)
    try:
        assert named(typed, known).name.casefold().startswith(typed.strip().casefold())
    except AtlasError:
        assert typed not in names


def test_names_and_files_lead_to_the_same_enrolment(enrolment: Enrolment, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "enrolments"
    own = replace(enrolment, name="alpaca60-tiny-ur", facts={**enrolment.facts, "roster": "alpaca60"})
    save_enrolment(own, folder / "alpaca60-tiny-ur.npz")
    save_enrolment(replace(own, name="elsewhere"), tmp_path / "copy.bin")
    for name in ("alpaca60", "alpaca60-tiny-ur", str(folder / "alpaca60-tiny-ur.npz")):
        assert find_enrolment(name, None, tmp_path / "data").name == "alpaca60-tiny-ur"
    assert Ecosystems(tmp_path / "data").enrolment("alpaca").name == "alpaca60-tiny-ur"
    (folder / "alpaca60.npz").write_bytes(b"broken")
    with pytest.raises(AtlasError, match="damaged"):
        find_enrolment("alpaca60", None, tmp_path / "data")
    with pytest.raises(AtlasError, match=r"There is no enrolment .*none\.npz"):
        find_enrolment(str(tmp_path / "none.npz"), None, tmp_path / "data")
    with pytest.raises(AtlasError, match="No ecosystem is enrolled here"):
        find_enrolment("alpaca60", None, tmp_path / "empty")


def enrolled_as(enrolment: Enrolment, data: Path, name: str, roster: str, created: str, labels: str = "") -> Enrolment:
    sources = tuple(f"{labels}{source}" for source in enrolment.sources)
    made = replace(enrolment, name=name, sources=sources, facts={"roster": roster, "created": created})
    return save_enrolment(made, data / "enrolments" / f"{name}.npz")


def test_the_newest_own_ecosystem_is_offered_once_something_else_was_taken(
    enrolment: Enrolment, tmp_path: Path
) -> None:
    shipped = enrolled_as(enrolment, tmp_path, "100-way-tiny-ur", "100-way", "2026-11-24T05:18:55+00:00")
    assert offer(shipped, None, tmp_path) is None
    enrolled_as(enrolment, tmp_path, "first-tiny-ur", "first", "2026-11-25T00:00:00+00:00")
    newest = enrolled_as(enrolment, tmp_path, "my-own-tiny-ur", "my own", "2026-11-26T00:00:00+00:00", "own-")
    assert offer(shipped, None, tmp_path) == "Your newest ecosystem is my own; use --enrolment 'my own'"
    assert offer(newest, None, tmp_path) is None
    assert offer(shipped, "shout", tmp_path) == "Your newest ecosystem is first; use --enrolment first"
    assert offer(shipped, "zz", tmp_path) is None
    assert find_enrolment("my own", None, tmp_path).sha256 == newest.sha256


def test_attribute_offers_the_own_ecosystem_and_takes_it_by_its_name(
    published: Path, enrolment: Enrolment, capsys: pytest.CaptureFixture[str]
) -> None:
    traces, report = trace_file(published / "t.jsonl"), published / "out.html"
    enrolled_as(enrolment, published / "data", "zoo-tiny-ur", "zoo", "2026-11-26T00:00:00+00:00")
    attribute = ["attribute", str(traces), "--orders", "20", "--keep-duplicates"]
    assert main(attribute) == 0
    said = capsys.readouterr().out
    assert "sources of tiny, by" in said and "  Your newest ecosystem is zoo; use --enrolment zoo\n" in said
    assert main([*attribute, "--enrolment", "zoo"]) == 0
    said = capsys.readouterr().out
    assert "sources of zoo-tiny-ur, by" in said and "Your newest" not in said
    assert main([*attribute, "--enrolment", "tiny", "--also", "zo", "--report", str(report)]) == 0
    assert "zoo-tiny-ur: " in capsys.readouterr().out
    assert main([*attribute, "--enrolment", "tiny", "--also", "zoo,zo"]) == 2
    assert "each named once" in capsys.readouterr().err
    assert main([*attribute, "--enrolment", "zop"]) == 2
    assert "Did you mean zoo" in capsys.readouterr().err
    assert main(["drift", str(traces), "--enrolment", "zoo"]) == 0
    assert "as zoo-tiny-ur has it" in capsys.readouterr().out
    assert main(["drift", str(traces)]) == 0
    assert "Your newest ecosystem is zoo" in capsys.readouterr().out
    assert main(["verify", str(report.with_suffix(".json")), "--traces", str(traces), "--enrolment", "ti"]) == 0
