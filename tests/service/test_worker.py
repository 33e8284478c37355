"""Workers elsewhere: web and worker share nothing but the folders and the queue."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from backend.attribution.settings import Settings
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import save_enrolment
from backend.errors import AtlasError, ServerError
from backend.proxies.reader import Reader
from backend.service.job import ENDED
from backend.service.records import DEAD
from backend.service.service import NO_WORKER, Service
from backend.service.worker import settings_in
from tests.served_api import HASH, lines_of, tiny_enrolment, tiny_reader

ANN, BEN = "session-of-ann-0001", "session-of-ben-0002"
PATIENCE = 300


@pytest.fixture(scope="module")
def reader() -> Reader:
    return tiny_reader()


@pytest.fixture(scope="module")
def enrolment(reader: Reader) -> Enrolment:
    return tiny_enrolment()


class Shared:
    """Processes that share a folder and a queue in SQLite."""

    def __init__(self, folder: Path, reader: Reader) -> None:
        self._folder, self._reader = folder, reader

    def service(self, reader: object = None) -> Service:
        address = f"sqlite:///{self._folder}/queue.sqlite"
        loaded = reader or self._reader
        return Service(
            self._folder / "data", self._folder / "cache", load=lambda proxy: (loaded, HASH), address=address
        )  # type: ignore[arg-type, return-value]

    @contextlib.contextmanager
    def worker(self, reader: object = None) -> Iterator[Service]:
        service = self.service(reader)
        thread = threading.Thread(target=service.work)
        thread.start()
        try:
            yield service
        finally:
            service.leave()
            thread.join(PATIENCE)
            assert not thread.is_alive()


@pytest.fixture
def shared(reader: Reader, enrolment: Enrolment, tmp_path: Path) -> Shared:
    save_enrolment(enrolment, tmp_path / "data" / "enrolments" / "tiny.npz")
    return Shared(tmp_path, reader)


class Gate:
    """A proxy that waits at every batch of a user until the test lets it through."""

    def __init__(self, reader: Reader) -> None:
        self.open, self.entered = threading.Semaphore(0), threading.Semaphore(0)
        self.shut = False
        self._reader = reader

    def __getattr__(self, name: str) -> object:
        return getattr(self._reader, name)

    def read(self, *arguments: object) -> object:
        if self.shut:
            self.entered.release()
            assert self.open.acquire(timeout=PATIENCE)
        return self._reader.read(*arguments)  # type: ignore[arg-type]


def test_any_web_process_answers_for_a_session(shared: Shared) -> None:
    one, other = shared.service(), shared.service()
    assert (one.state().problem, one.state().remedy) == NO_WORKER
    key = one.upload(ANN, "t.jsonl", lines_of("shout")).key
    job = other.start(ANN, key, Settings(claimed="shout", orders=5))
    assert one.progress(ANN, job).state == "queued" and one.load() == {"queued": 1, "running": 0}
    with shared.worker():
        assert one.wait(ANN, job, PATIENCE).state == "done"
        assert one.report(ANN, job) == other.report(ANN, job)
        assert sum(piece["value"] for piece in other.tokens(ANN, job, 3)["pieces"]) != 0
        with pytest.raises(AtlasError, match="not enrolled"):
            other.tokens(ANN, job, 3, "zz")
        report = other.upload(ANN, "r.json", one.export(ANN, job, "json").encode())
        again = one.recompute(ANN, report.key, key)
        assert other.wait(ANN, again, PATIENCE).state == "done"
        assert other.checked(ANN, report.key, again).equal
        windows = one.start_windows(ANN, [key], Settings(orders=5))
        assert other.wait(ANN, windows[0], PATIENCE).state == "done"
        assert other.drift(ANN, windows[0])["verdict"]
        until = time.monotonic() + PATIENCE
        while one.state().status != "ready" and time.monotonic() < until:
            time.sleep(0.05)
        assert other.state().status == "ready"
    assert (one.state().problem, one.state().remedy) == NO_WORKER
    other.forget(ANN)
    assert not list(one.uploads.folder.glob("*/*")) and one.jobs(ANN) == []


def test_two_workers_share_the_jobs_of_many(shared: Shared) -> None:
    webs = [shared.service(), shared.service()]
    sessions = [f"session-of-number-{number}" for number in range(8)]
    with shared.worker() as first, shared.worker() as second:
        jobs = {}
        for number, session in enumerate(sessions):
            web, style = webs[number % 2], ("shout", "plain", "code")[number % 3]
            key = web.upload(session, f"{style}.jsonl", lines_of(style, 40)).key
            jobs[session] = web.start(session, key, Settings(orders=5)), style
        for session, (job, style) in jobs.items():
            assert webs[0].wait(session, job, PATIENCE).state == "done"
            assert webs[1].report(session, job)["results"]["leader"] == style
        workers = {
            job.worker for session in sessions for job in webs[0].records.of_session(webs[0]._place(session).name)
        }
    assert workers <= {first.process, second.process}


def test_a_cancel_in_one_process_ends_a_job_in_another(shared: Shared, reader: Reader) -> None:
    web, gate = shared.service(), Gate(reader)
    with shared.worker(gate):
        until = time.monotonic() + PATIENCE
        while web.state().status != "ready" and time.monotonic() < until:
            time.sleep(0.05)
        gate.shut = True
        job = web.start(ANN, web.upload(ANN, "t.jsonl", lines_of("shout", 40)).key, Settings(orders=5))
        gate.open.release()
        assert web.wait(ANN, job, PATIENCE, after=0).done == 8
        web.cancel(ANN, job)
        gate.shut = False
        for _ in range(9):
            gate.open.release()
        end = web.wait(ANN, job, PATIENCE)
        assert end.state == "cancelled" and end.reported and 8 < end.done < 40
        assert len(web.report(ANN, job)["traces"]) == end.done


def test_a_worker_that_was_thought_dead_writes_no_second_report(shared: Shared, reader: Reader) -> None:
    web, gate = shared.service(), Gate(reader)
    key = web.upload(ANN, "t.jsonl", lines_of("shout", 40)).key
    with shared.worker(gate) as slow:
        until = time.monotonic() + PATIENCE
        while web.state().status != "ready" and time.monotonic() < until:
            time.sleep(0.05)
        gate.shut = True
        job = web.start(ANN, key, Settings(orders=5))
        assert gate.entered.acquire(timeout=PATIENCE)
        slow._stopped = True  # it beats no more
        table = web.records.processes
        table.update(beat=time.time() - DEAD - 1).where(table.name == slow.process).execute()
        web.tend()
        assert web.progress(ANN, job).state == "queued"
        with shared.worker() as fresh:
            assert web.wait(ANN, job, PATIENCE).state == "done"
            report = web.report(ANN, job)
            gate.shut = False
            for _ in range(9):
                gate.open.release()
            other = web.start(BEN, web.upload(BEN, "t.jsonl", lines_of("code", 8)).key, Settings(orders=5))
            assert web.wait(BEN, other, PATIENCE).state == "done"
            assert fresh.process != slow.process
    assert web.report(ANN, job) == report
    assert web.records.of_session(web._place(ANN).name)[0].worker == fresh.process
    assert not list(web.uploads.place(ANN).glob("*-*"))


def test_a_session_that_ends_stops_its_job_and_leaves_nothing(shared: Shared, reader: Reader) -> None:
    web, gate = shared.service(), Gate(reader)
    with shared.worker(gate):
        until = time.monotonic() + PATIENCE
        while web.state().status != "ready" and time.monotonic() < until:
            time.sleep(0.05)
        gate.shut = True
        job = web.start(ANN, web.upload(ANN, "t.jsonl", lines_of("shout", 40)).key, Settings(orders=5))
        assert gate.entered.acquire(timeout=PATIENCE)
        web.forget(ANN)
        gate.shut = False
        for _ in range(9):
            gate.open.release()
        other = web.start(BEN, web.upload(BEN, "t.jsonl", lines_of("code", 8)).key, Settings(orders=5))
        assert web.wait(BEN, other, PATIENCE).state in ENDED
    assert not web.uploads.place(ANN).exists()
    with pytest.raises(AtlasError, match="no such audit"):
        web.progress(ANN, job)


def test_a_job_is_done_after_the_records_could_not_be_reached(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    web = shared.service()
    with shared.worker() as worker:
        broken, looks = threading.Event(), []

        def fail(_: object) -> None:
            looks.append(1)
            if len(looks) == 2:  # the first look fails the job, the second would have said so
                broken.set()
            raise ServerError("The records cannot be reached", "Start them")

        monkeypatch.setattr(worker.records, "must_stop", fail)
        job = web.start(ANN, web.upload(ANN, "t.jsonl", lines_of("shout")).key, Settings(orders=5))
        assert broken.wait(PATIENCE)
        monkeypatch.undo()
        assert web.wait(ANN, job, PATIENCE).state in ENDED
    assert web.progress(ANN, job).state == "done"


def test_settings_survive_the_way_through_sql(shared: Shared) -> None:
    web = shared.service()
    key = web.upload(ANN, "t.jsonl", lines_of("shout")).key
    settings = Settings(
        claimed="shout", case="\ud800 <ü>\0", prior={"shout": 2.0, "code": 1, "plain": 0.25}, orders=7, stop_level=0.1
    )
    web.start(ANN, key, settings)
    (job,) = web.records.of_session(web._place(ANN).name)
    assert settings_in(job) == settings
    assert json.loads(job.settings)["case"] == "\ud800 <ü>\0"
