"""The service behind page and REST: sessions, jobs, cancelling, token evidence, and what is deleted when."""

from __future__ import annotations

import gc
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from backend.attribution.decision import stated_prior
from backend.attribution.report import digest, log_posteriors_of
from backend.attribution.settings import Settings
from backend.attribution.verify import alterations
from backend.enrolment.catalogue import Ecosystems
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import save_enrolment
from backend.enrolment.stories import stories
from backend.errors import AtlasError
from backend.inference.likelihood_ratios import log10_against_others, log_likelihoods, running_scores
from backend.inference.validation import validation_arrays
from backend.intake import Columns
from backend.methods.probe import LinearProbe
from backend.proxies.reader import Reader
from backend.service import service as service_module
from backend.service import uploads
from backend.service.records import LIVE_JOBS, SESSION_JOBS
from backend.service.service import Service
from backend.service.uploads import LIFETIME, BusyError, MissingError, TooLargeError
from tests.attribution.test_run import STYLES
from tests.served_api import tiny_enrolment, tiny_reader

ANN, BEN = "session-of-ann-0001", "session-of-ben-0002"
PATIENCE = 300


def file_of(style: str, count: int = 12) -> bytes:
    lines = [json.dumps({"prompt": f"New {i}?", "response": STYLES[style].format(i=i)}) for i in range(count)]
    return "\n".join(lines).encode()


@pytest.fixture(scope="module")
def reader() -> Reader:
    return tiny_reader()


@pytest.fixture(scope="module")
def enrolment(reader: Reader) -> Enrolment:
    return tiny_enrolment()


@pytest.fixture
def service(reader: Reader, enrolment: Enrolment, tmp_path: Path) -> Iterator[Service]:
    save_enrolment(enrolment, tmp_path / "data" / "enrolments" / "tiny.npz")
    yield Service(tmp_path / "data", tmp_path / "cache", load=lambda proxy: (reader, "f" * 64))


def test_a_file_becomes_a_report(service: Service, enrolment: Enrolment) -> None:
    service.warm()
    upload = service.upload(ANN, "../../etc/traces.jsonl", file_of("shout"))
    assert upload.name == "traces.jsonl"
    preview = service.inspect(ANN, upload.key)
    assert (preview.kind, preview.traces, preview.columns.response) == ("jsonl", 12, "response")
    assert preview.rows[0]["prompt"] == "New 0?"
    job = service.start(ANN, upload.key, Settings(claimed="shout", case="<case>", orders=20))
    end = service.wait(ANN, job, PATIENCE)
    assert (end.state, end.done, end.total, end.reported) == ("done", 12, 12, True)
    assert service.state().status == "ready"
    report = service.report(ANN, job)
    assert alterations(report) == []
    assert report["case"] == "<case>"
    assert report["results"]["leader"] == "shout" == end.nearest[0]
    assert report["command"].startswith("python -m jobs attribute traces.jsonl --enrolment tiny --claimed shout")
    # The running evidence is the plain sum of the report's log-posteriors, which stand in the same order.
    own = enrolment
    along = log_likelihoods(running_scores(log_posteriors_of(report), own.log_prior), own.log_prior)
    plain = log10_against_others(along, own.sources.index("shout"), stated_prior(own))
    assert [point.log10_sum for point in end.points] == pytest.approx(plain.tolist(), abs=1e-5)
    assert [point.traces for point in end.points] == list(range(1, 13))
    assert sorted(end.nearest) == sorted(own.sources)
    assert "&lt;case&gt;" in service.export(ANN, job, "html")
    assert service.export(ANN, job, "csv").count("\n") == 13
    assert json.loads(service.export(ANN, job, "json"))["sha256"] == report["sha256"]
    assert "STOP THE SERVICE" not in service.export(ANN, job, "json")
    with pytest.raises(AtlasError, match="no form"):
        service.export(ANN, job, "pdf")


def test_tokens_sum_to_the_score(service: Service) -> None:
    upload = service.upload(ANN, "t.jsonl", file_of("shout"))
    job = service.start(ANN, upload.key, Settings(orders=20))
    service.wait(ANN, job, PATIENCE)
    evidence = service.tokens(ANN, job, 3, "shout", "code")
    assert "".join(piece["text"] for piece in evidence["pieces"]) + evidence["rest"] == STYLES["shout"].format(i=2)
    assert sum(piece["value"] for piece in evidence["pieces"]) == pytest.approx(evidence["log_odds"], abs=1e-4)
    usual = service.tokens(ANN, job, 1)
    assert (usual["source"], usual["number"]) == ("shout", 1)
    for row, source, words in ((99, None, "no trace 99"), (1, "zz", "not enrolled")):
        with pytest.raises(AtlasError, match=words):
            service.tokens(ANN, job, row, source)
    with pytest.raises(AtlasError, match="the same"):
        service.tokens(ANN, job, 1, "code", "code")


def test_a_report_says_what_else_its_session_asked(service: Service) -> None:
    upload = service.upload(ANN, "t.jsonl", file_of("shout"))
    reports = []
    for claim in ("code", "plain", "shout"):
        job = service.start(ANN, upload.key, Settings(claimed=claim, orders=5))
        service.wait(ANN, job, PATIENCE)
        reports.append(service.report(ANN, job))
    ends = [report["steps"][-1]["sha256"] for report in reports]
    assert [report["session"] for report in reports] == [
        {"earlier": 0, "last_step": None}, {"earlier": 1, "last_step": ends[0]}, {"earlier": 2, "last_step": ends[1]}
    ]  # fmt: skip
    assert reports[2]["steps"][0]["details"]["session"] == reports[2]["session"]
    assert alterations(reports[2]) == []
    assert ends[1] in service.export(ANN, job, "html")
    alone = reports[2] | {"session": {"earlier": 0, "last_step": None}}
    assert any("session" in sentence for sentence in alterations(alone | {"sha256": digest_of(alone)}))
    # Somebody else's questions are not counted.
    other = service.upload(BEN, "t.jsonl", file_of("shout"))
    job = service.start(BEN, other.key, Settings(orders=5))
    service.wait(BEN, job, PATIENCE)
    assert service.report(BEN, job)["session"]["earlier"] == 0


def digest_of(report: dict[str, Any]) -> str:
    return digest({key: value for key, value in report.items() if key != "sha256"})


def test_two_sessions_do_not_see_each_other(service: Service) -> None:
    key = service.upload(ANN, "t.jsonl", file_of("shout")).key
    job = service.start(ANN, key, Settings(orders=20))
    service.wait(ANN, job, PATIENCE)
    for ask in (
        lambda: service.inspect(BEN, key),
        lambda: service.start(BEN, key, Settings()),
        lambda: service.progress(BEN, job),
        lambda: service.cancel(BEN, job),
        lambda: service.report(BEN, job),
        lambda: service.export(BEN, job, "html"),
        lambda: service.tokens(BEN, job, 1),
        lambda: service.drift(BEN, job),
        lambda: service.inspect(ANN, "../" + key),
    ):
        with pytest.raises(MissingError):
            ask()
    assert service.jobs(BEN) == []
    assert [held.job for held in service.jobs(ANN)] == [job]
    service.forget(BEN)
    assert service.report(ANN, job)["results"]["leader"] == "shout"
    service.forget(ANN)
    with pytest.raises(MissingError):
        service.report(ANN, job)
    assert list(service.uploads.folder.rglob("*.*")) == []
    with pytest.raises(AtlasError, match="no key"):
        service.upload("short", "t.jsonl", b"x")


class Gate:
    """A proxy that waits at every batch until the test lets it through."""

    def __init__(self, reader: Reader) -> None:
        self.open, self.entered = threading.Semaphore(0), threading.Semaphore(0)
        self._reader = reader

    def __getattr__(self, name: str) -> object:
        return getattr(self._reader, name)

    def read(self, *arguments: object) -> object:
        self.entered.release()
        assert self.open.acquire(timeout=PATIENCE)
        return self._reader.read(*arguments)  # type: ignore[arg-type]


@pytest.fixture
def gated(reader: Reader, enrolment: Enrolment, tmp_path: Path) -> Iterator[tuple[Service, Gate]]:
    save_enrolment(enrolment, tmp_path / "data" / "enrolments" / "tiny.npz")
    gate = Gate(reader)
    yield Service(tmp_path / "data", tmp_path / "cache", load=lambda proxy: (gate, "f" * 64)), gate  # type: ignore[arg-type, return-value]
    for _ in range(1000):
        gate.open.release()


def test_cancel_keeps_what_is_done(gated: tuple[Service, Gate]) -> None:
    service, gate = gated
    upload = service.upload(ANN, "t.jsonl", file_of("shout", 40))
    job = service.start(ANN, upload.key, Settings(orders=20))
    waiting = service.start(ANN, upload.key, Settings(orders=20))
    assert gate.entered.acquire(timeout=PATIENCE)
    assert service.progress(ANN, job).state == "running"
    assert service.progress(ANN, job).total == 40
    assert service.progress(ANN, waiting).state == "queued"
    with pytest.raises(MissingError, match="not ended"):
        service.report(ANN, job)
    gate.open.release()
    first = service.wait(ANN, job, PATIENCE, after=0)
    assert (first.done, first.state) == (8, "running")
    assert len(first.points) == 8
    assert gate.entered.acquire(timeout=PATIENCE)  # the second batch runs
    assert service.cancel(ANN, waiting).state == "cancelled"
    service.cancel(ANN, job)
    gate.open.release()
    end = service.wait(ANN, job, PATIENCE)
    assert (end.state, end.done, end.reported) == ("cancelled", 32, True)
    report = service.report(ANN, job)
    assert len(report["traces"]) == 32
    assert not report["results"]["complete"]
    assert alterations(report) == []
    with pytest.raises(MissingError, match="before the first batch"):
        service.report(ANN, waiting)


def test_a_short_job_goes_between_two_batches_of_a_long_one(gated: tuple[Service, Gate]) -> None:
    service, gate = gated
    long = service.start(ANN, service.upload(ANN, "l.jsonl", file_of("shout", 300)).key, Settings(orders=1))
    assert gate.entered.acquire(timeout=PATIENCE)
    short = service.start(BEN, service.upload(BEN, "s.jsonl", file_of("code", 4)).key, Settings(orders=1))
    gate.open.release()  # the first batch of the long one
    gate.open.release()  # the only batch of the short one
    assert service.wait(BEN, short, PATIENCE).state == "done"
    held = service.progress(ANN, long)
    assert (held.state, held.done) == ("running", 8)
    service.cancel(ANN, long)


def test_no_more_jobs_than_the_server_does(gated: tuple[Service, Gate]) -> None:
    service, _ = gated
    key = service.upload(ANN, "t.jsonl", file_of("plain")).key
    for _ in range(SESSION_JOBS):
        service.start(ANN, key, Settings())
    with pytest.raises(BusyError):
        service.start(ANN, key, Settings())
    for number in range(LIVE_JOBS - SESSION_JOBS):
        session = f"session-of-number-{number}"
        service.start(session, service.upload(session, "t.jsonl", file_of("plain")).key, Settings())
    with pytest.raises(BusyError):
        service.start(BEN, service.upload(BEN, "t.jsonl", file_of("plain")).key, Settings())
    service.forget(ANN)
    service.start(BEN, service.upload(BEN, "t.jsonl", file_of("plain")).key, Settings())


def test_what_is_wrong_is_said_before_anything_runs(service: Service) -> None:
    key = service.upload(ANN, "t.jsonl", file_of("shout")).key
    for settings, words in (
        (Settings(enrolment="zz"), "no ecosystem 'zz'"),
        (Settings(claimed="zz"), "No ecosystem knows"),
        (Settings(claimed="S-hout"), "Did you mean shout?"),
        (Settings(enrolment="tiny", claimed="zz"), "not enrolled"),
        (Settings(against="zz"), "not enrolled"),
        (Settings(prior={"zz": 1.0}), "not enrolled"),
        (Settings(prior={"code": -1.0}), "not a positive"),
        (Settings(orders=0), "at least 1"),
        (Settings(columns=Columns(response="zz")), "no column 'zz'"),
        (Settings(columns=Columns(response="zz.0")), "no column"),
    ):
        with pytest.raises(AtlasError, match=words):
            service.start(ANN, key, settings)
    for content, words in ((b"", "empty"), (b"{broken\n{", "no trace"), (b"%PDF-1.4", "PDF"), (b"\x00" * 99, "binary")):
        with pytest.raises(AtlasError, match=words):
            service.start(ANN, service.upload(ANN, "t.jsonl", content).key, Settings())
    with pytest.raises(TooLargeError):
        service.upload(ANN, "t.jsonl", b"x" * 25_000_001)
    assert service.jobs(ANN) == []


def test_missing_weights_are_the_servers_fault(enrolment: Enrolment, tmp_path: Path) -> None:
    def load(proxy: str) -> tuple[Reader, str | None]:
        raise AtlasError("The weights of tiny are not here", "Run: python -m jobs proxies install tiny")

    service = Service(tmp_path / "data", tmp_path / "cache", load=load)
    assert service.state().status == "absent"
    assert service.ecosystems() == []
    with pytest.raises(AtlasError, match="No ecosystem"):
        service.start(ANN, service.upload(ANN, "t.jsonl", file_of("shout")).key, Settings())
    save_enrolment(enrolment, tmp_path / "data" / "enrolments" / "tiny.npz")
    assert [one.name for one in service.ecosystems()] == ["tiny"]  # without a restart
    job = service.start(ANN, service.upload(ANN, "t.jsonl", file_of("shout")).key, Settings())
    end = service.wait(ANN, job, PATIENCE)
    assert (end.state, end.at_fault, end.remedy) == ("failed", "server", "Run: python -m jobs proxies install tiny")
    with pytest.raises(AtlasError, match="weights of tiny"):
        service.report(ANN, job)
    service.state()
    until = time.monotonic() + PATIENCE
    while service.state().status != "failed" and time.monotonic() < until:
        time.sleep(0.01)
    assert service.state().remedy == "Run: python -m jobs proxies install tiny"


def test_enrolments_come_and_go_while_it_runs(service: Service, enrolment: Enrolment, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "enrolments"
    (folder / "broken.npz").write_bytes(b"no archive")
    assert [one.name for one in service.ecosystems()] == ["tiny"]
    smaller = replace(enrolment, name="pair", attachments={})
    save_enrolment(smaller, folder / "pair.npz")
    held = {one.name: one for one in service.ecosystems()}
    assert set(held) == {"tiny", "pair"}
    assert held["pair"].sha256 == smaller.sha256
    assert held["pair"].sources == ("code", "plain", "shout")
    job = service.start(ANN, service.upload(ANN, "t.jsonl", file_of("shout")).key, Settings(enrolment="pair", orders=1))
    service.wait(ANN, job, PATIENCE)
    save_enrolment(replace(smaller, families=("a", "b", "c")), folder / "pair.npz")
    with pytest.raises(MissingError, match="made anew"):
        service.tokens(ANN, job, 1)
    (folder / "pair.npz").unlink()
    assert [one.name for one in service.ecosystems()] == ["tiny"]


def test_the_preferred_ecosystem_knows_most_sources_and_knows_them_best(tmp_path: Path, enrolment: Enrolment) -> None:
    row = {"part": "calibration", "metric": "accuracy_after", "condition": "clean", "k": 1, "value": 0.5, "n": 9}

    def written(name: str, accuracy: float | None, sources: int = 3, **more: Any) -> None:
        rows = pd.DataFrame([row | {"value": accuracy, "k": k} for k in (1, 10)])
        told = {} if accuracy is None else validation_arrays(rows)
        names = {"sources": enrolment.sources[:sources], "families": enrolment.families[:sources]}
        made = replace(enrolment, name=name, attachments=told, **more)
        if sources < 3:
            heads = tuple(
                replace(h, probe=LinearProbe(h.probe.mean, h.probe.scale, h.probe.weight[:, :2], h.probe.bias[:2]))
                for h in made.heads
                if isinstance(h.probe, LinearProbe)
            )
            made = replace(made, heads=heads, log_prior=made.log_prior[:2], **names)
        save_enrolment(made, tmp_path / "enrolments" / f"{name}.npz")

    written("a-unmeasured", None)
    written("b-worse", 0.4)
    written("c-best", 0.6, facts={"roster": "100-way"})
    written("d-small", 0.9, sources=2)
    held = Ecosystems(tmp_path)
    assert [one.name for one in held.all()] == ["c-best", "b-worse", "a-unmeasured", "d-small"]
    assert [one.accuracy for one in held.all()] == [0.6, 0.4, None, 0.9]
    assert [one.roster for one in held.all()] == ["100-way", None, None, None]
    assert held.enrolment(None).name == "c-best"
    assert held.enrolment(None, claimed=enrolment.sources[2]).name == "c-best"
    assert held.enrolment("d-small").name == "d-small"


def test_where_traces_land(service: Service, enrolment: Enrolment, reader: Reader, tmp_path: Path) -> None:
    def landed(name: str, **attachments: np.ndarray) -> dict[str, Any] | None:
        made = replace(enrolment, name=name, attachments=attachments)
        save_enrolment(made, tmp_path / "data" / "enrolments" / f"{name}.npz")
        job = service.start(ANN, key, Settings(enrolment=name, orders=1))
        assert service.wait(ANN, job, PATIENCE).state == "done"
        with np.load(service.uploads.place(ANN) / f"{job}.npz") as kept:
            means.append(kept["mean"])
        found: dict[str, Any] | None = service.report(ANN, job)["results"]["lands"]
        return found

    key, means = service.upload(ANN, "t.jsonl", file_of("shout")).key, list[np.ndarray]()
    assert landed("bare") is None  # without signatures
    d = reader.hidden_size
    vectors = np.random.default_rng(0).normal(size=(3, 2 * d))
    vectors[2] = 3 * np.concatenate([half / np.linalg.norm(half) for half in np.split(means[0], 2)])
    assert landed("narrow", **{"signatures.vectors": vectors[:, :-1]}) is None
    place = landed("known", **{"signatures.vectors": vectors})
    assert place is not None
    assert {name: place[name] for name in ("proxy", "view", "layer", "roster", "domain")} == {
        "proxy": "tiny", "view": "ur", "layer": 2, "roster": "known", "domain": "",
    }  # fmt: skip
    assert [row["rank"] for row in place["rows"]] == [1, 2, 3]
    assert (place["rows"][0]["source"], place["rows"][0]["family"]) == ("shout", "words")
    assert place["rows"][0]["cosine"] == pytest.approx(1, abs=1e-6)
    by_hand = {
        source: float(vectors[2] @ vector / np.linalg.norm(vectors[2]) / np.linalg.norm(vector))
        for source, vector in zip(enrolment.sources, vectors, strict=True)
    }
    assert {row["source"]: row["cosine"] for row in place["rows"]} == pytest.approx(by_hand, abs=1e-6)


def test_equal_files_keep_their_own_names(service: Service) -> None:
    content = file_of("shout")
    first, again, other = (service.upload(ANN, name, content) for name in ("a.jsonl", "a.jsonl", "b.jsonl"))
    assert first == again and first.sha256 == other.sha256 == first.key != other.key
    for one, name in ((first, "a.jsonl"), (other, "b.jsonl")):
        upload, path = service.uploads.get(ANN, one.key)
        assert (upload, upload.name, path.read_bytes()) == (one, name, content)


def test_the_same_bytes_again_leave_a_file_that_is_being_read(service: Service) -> None:
    first = service.upload(ANN, "a.jsonl", file_of("shout"))
    with (service.uploads.place(ANN) / f"{first.key}.file").open("rb") as reading:
        start = reading.read(10)
        assert service.upload(ANN, "a.jsonl", file_of("shout")).key == first.key
        assert start + reading.read() == file_of("shout")


def test_all_sessions_together_hold_so_much(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "ALL_BYTES", 2 * len(file_of("shout")))
    service.upload(ANN, "a.jsonl", file_of("shout"))
    with pytest.raises(BusyError, match="holds as many files as it takes"):
        for number in range(3):
            service.upload(f"session-without-end-{number}", "a.jsonl", file_of("shout"))


def test_everything_is_deleted_after_a_day(service: Service) -> None:
    old = service.upload(ANN, "old.jsonl", file_of("shout"))
    job = service.start(ANN, old.key, Settings(orders=1))
    service.wait(ANN, job, PATIENCE)
    place = service.uploads.place(ANN)
    past = time.time() - LIFETIME - 60
    for file in place.iterdir():
        os.utime(file, (past, past))
    fresh = service.upload(ANN, "new.jsonl", file_of("code"))
    service.records.jobs.update(created=past).execute()
    for ask in (lambda: service.inspect(ANN, old.key), lambda: service.report(ANN, job)):
        with pytest.raises(MissingError):  # before anybody looked for what is too old
            ask()
    assert service.jobs(ANN) == []
    service.sweep()
    assert {file.name.split(".")[0] for file in place.iterdir()} == {fresh.key}
    for ask in (lambda: service.inspect(ANN, old.key), lambda: service.report(ANN, job)):
        with pytest.raises(MissingError):
            ask()
    again = Service(place.parent.parent.parent / "data", place.parent.parent)
    assert again.inspect(ANN, fresh.key).traces == 12  # files outlive a restart, until their day is over


def test_an_idle_server_deletes_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "SWEEP", 0.02)
    before = set(threading.enumerate())
    service = Service(tmp_path / "data", tmp_path / "cache")
    key = service.upload(ANN, "t.jsonl", file_of("shout")).key
    place = service.uploads.place(ANN)
    past = time.time() - LIFETIME
    for file in place.iterdir():
        os.utime(file, (past, past))
    until = time.monotonic() + PATIENCE
    while place.exists() and time.monotonic() < until:
        time.sleep(0.01)
    assert not place.exists()
    with pytest.raises(MissingError):
        service.inspect(ANN, key)
    (thread,) = set(threading.enumerate()) - before
    del service
    gc.collect()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_discarded_file_leaves_its_report(service: Service) -> None:
    key = service.upload(ANN, "t.jsonl", file_of("shout")).key
    job = service.start(ANN, key, Settings(orders=1), discard=True)
    service.wait(ANN, job, PATIENCE)
    assert service.report(ANN, job)["results"]["leader"] == "shout"
    until = time.monotonic() + PATIENCE
    while list(service.uploads.place(ANN).glob("*.file")) and time.monotonic() < until:
        time.sleep(0.01)
    with pytest.raises(MissingError):
        service.inspect(ANN, key)
    assert not [
        file for file in service.uploads.folder.rglob("*") if file.is_file() and b"STOP THE" in file.read_bytes()
    ]


def test_samples_are_there_without_an_ecosystem_of_theirs(service: Service) -> None:
    with pytest.raises(AtlasError, match="sample's ecosystem is not enrolled"):
        service.sample_watch(begin=True)
    for part, files in (("attribute", 1), ("windows", 2), ("reference", 2)):
        for story in stories(part):
            uploads = service.tried(ANN, story)
            assert [(one.name, one.label, one.enrolment) for one in uploads] == [
                (*f, None) for f in story.files.items()
            ]
            assert len(uploads) == files
            for upload in uploads:
                preview = service.inspect(ANN, upload.key)
                assert (preview.traces, preview.problems) == (story.traces, ())
                (named,) = preview.models
                assert named["returned"] == story.claim


def test_a_report_is_checked_against_its_traces(service: Service) -> None:
    traces = service.upload(ANN, "t.jsonl", file_of("shout"))
    job = service.start(ANN, traces.key, Settings(claimed="shout", orders=20, stop_level=0.1))
    assert service.wait(ANN, job, PATIENCE).state == "done"
    text = service.export(ANN, job, "json")
    report = service.upload(ANN, "report.json", text.encode())
    assert service.agrees(ANN, report.key).equal
    again = service.recompute(ANN, report.key, traces.key)
    assert service.wait(ANN, again, PATIENCE).state == "done"
    found = service.checked(ANN, report.key, again)
    assert found.equal, found.found
    assert (found.traces, found.largest, found.notes[0]) == (
        12, 0.0, "The file of traces is the one of the report, byte for byte.",
    )  # fmt: skip
    newest = service.newest_report(ANN)
    assert newest is not None and newest["sha256"] == json.loads(text)["sha256"], "a check is no case of its own"
    assert service.newest_report(ANN[::-1] + "b") is None

    # The same traces in another order of columns and another form are the same traces.
    rows = [json.loads(line) for line in file_of("shout").splitlines()]
    table = "answer;question\n" + "".join(f'"{row["response"]}";"{row["prompt"]}"\n' for row in rows)
    other = service.upload(ANN, "t.csv", table.encode())
    again = service.recompute(ANN, report.key, other.key)
    service.wait(ANN, again, PATIENCE)
    found = service.checked(ANN, report.key, again)
    assert found.equal, found.found
    assert "not the one of the report" in found.notes[0]

    # Columns that nobody recognises are those that a person chooses.
    odd = service.upload(ANN, "odd.csv", table.replace("answer;question", "antwort_text;frage", 1).encode())
    mapped = Columns(response="antwort_text", prompt="frage")
    again = service.recompute(ANN, report.key, odd.key, columns=mapped)
    service.wait(ANN, again, PATIENCE)
    assert service.checked(ANN, report.key, again).equal

    forged = json.loads(text)
    forged["results"]["log10_ratio_others"] = 9.0
    key = service.upload(ANN, "forged.json", json.dumps(forged).encode()).key
    assert not service.agrees(ANN, key).equal
    again = service.recompute(ANN, key, traces.key)
    service.wait(ANN, again, PATIENCE)
    assert any(
        "In this file 9," in sentence and "log10 ratio others" in sentence
        for sentence in service.checked(ANN, key, again).found
    )
    wrong = service.upload(ANN, "w.jsonl", file_of("code"))
    with pytest.raises(AtlasError, match=r"not the file of this report: none of its traces is in w\.jsonl"):
        service.recompute(ANN, report.key, wrong.key)
    with pytest.raises(AtlasError, match="no report"):
        service.agrees(ANN, service.upload(ANN, "x.json", b"{}").key)
    with pytest.raises(MissingError):
        service.agrees(BEN, report.key)
    forged["method"]["enrolment_sha256"] = "0" * 64
    elsewhere = service.upload(ANN, "elsewhere.json", json.dumps(forged).encode())
    with pytest.raises(AtlasError, match="No ecosystem here"):
        service.recompute(ANN, elsewhere.key, traces.key)


def test_the_error_rate_of_the_stop_is_chosen(service: Service) -> None:
    brings = service.brings("tiny")
    assert brings.stop_levels == (0.01, 0.05, 0.1)
    assert (brings.calibrated, brings.validated) == (True, True)
    key = service.upload(ANN, "t.jsonl", file_of("shout")).key
    job = service.start(ANN, key, Settings(orders=1, stop_level=0.1))
    service.wait(ANN, job, PATIENCE)
    stop = service.report(ANN, job)["results"]["stop"]
    assert stop["error_rate"] == 0.1
    assert [answer["error_rate"] for answer in stop["levels"]] == [0.01, 0.05, 0.1]
    assert "--stop-level 0.1" in service.report(ANN, job)["command"]
    with pytest.raises(AtlasError, match="no stop rule for an error rate"):
        service.start(ANN, key, Settings(stop_level=0.2))


def test_further_readers_stand_beside_the_answer(service: Service, enrolment: Enrolment, tmp_path: Path) -> None:
    fewer = replace(enrolment, name="bare", attachments={})
    save_enrolment(fewer, tmp_path / "data" / "enrolments" / "bare.npz")
    key = service.upload(ANN, "t.jsonl", file_of("shout")).key
    alone = service.start(ANN, key, Settings(enrolment="tiny", claimed="shout", orders=1))
    both = service.start(ANN, key, Settings(enrolment="tiny", claimed="shout", orders=1, also=("bare",)))
    service.wait(ANN, alone, PATIENCE)
    end = service.wait(ANN, both, PATIENCE)
    assert (end.state, end.further) == ("done", 12)
    first, second = (service.report(ANN, job)["results"] for job in (alone, both))
    assert second["candidates"] == first["candidates"]
    assert [row["enrolment"] for row in second["readers"]] == ["tiny", "bare"]
    assert (second["readers"][1]["leader"], second["readers"][1]["calibrated"]) == ("shout", False)
    assert second["readers"][1]["verdict"] == "INCONCLUSIVE"
    assert alterations(service.report(ANN, both)) == []
    report = service.upload(ANN, "r.json", service.export(ANN, both, "json").encode())
    again = service.recompute(ANN, report.key, key)
    service.wait(ANN, again, PATIENCE)
    assert service.checked(ANN, report.key, again).equal
    for also in (("tiny",), ("bare", "bare"), ("a", "b", "c", "d")):
        with pytest.raises(AtlasError, match="each named once"):
            service.start(ANN, key, Settings(enrolment="tiny", also=also))
    with pytest.raises(AtlasError, match="no ecosystem 'zz'"):
        service.start(ANN, key, Settings(enrolment="tiny", also=("zz",)))
