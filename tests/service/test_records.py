"""Jobs in SQL: who may add one, who takes it, and what becomes of those of a dead worker."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from threading import Barrier
from unittest.mock import patch

import pytest

from backend.errors import AtlasError
from backend.service import records as records_module
from backend.service.process_group import FOLDER, share_measurements
from backend.service.records import ATTEMPTS, CLIENT_JOBS, DEAD, LIVE_JOBS, SESSION_JOBS, STEP, Job, Records
from backend.service.uploads import BusyError


def job_of(records: Records, name: str, place: str = "ann", *, short: bool = True, client: str | None = None) -> Job:
    now = time.time()
    job: Job = records.jobs(
        name=name, place=place, key="0" * 64, settings='{"claimed": null}', enrolment="tiny", enrolment_sha256="0" * 64,
        others="[]", total=4, short=short, discard=False, fingerprints=False, client=client, created=now, queued=now,
    )  # fmt: skip
    return job


@pytest.fixture
def two(tmp_path: Path) -> tuple[Records, Records]:
    """The same records as two processes see them."""
    return Records(None, tmp_path), Records(None, tmp_path)


def _starts(barrier: Barrier, folders: Sequence[Path]) -> list[str]:
    """Start with every folder at the moment at which others do. Returns what went wrong."""
    os.environ["SERVER_SOFTWARE"] = "gunicorn"
    wrong = []
    for folder in folders:
        barrier.wait(60)
        try:
            Records(None, folder)
        except AtlasError as error:
            wrong.append(str(error))
        os.environ.pop(FOLDER, None)
        with patch("os.getppid", os.getpid):  # each is of a server of its own
            share_measurements(folder / "measurements")
        barrier.wait(60)
        if not Path(os.environ.get(FOLDER, "nowhere")).is_dir():
            wrong.append(f"no folder of measurements in {folder}")
    return wrong


@pytest.mark.slow(5)
def test_servers_that_start_together_find_their_records_and_measurements(tmp_path: Path) -> None:
    folders = [tmp_path / str(number) for number in range(40)]
    for folder in folders:
        folder.mkdir()
    spawn = multiprocessing.get_context("spawn")
    with spawn.Manager() as manager, ProcessPoolExecutor(4, mp_context=spawn) as pool:
        barrier = manager.Barrier(4)
        assert list(pool.map(_starts, [barrier] * 4, [folders] * 4)) == [[]] * 4


def test_limits_hold_over_processes(two: tuple[Records, Records]) -> None:
    added, refused = list[str](), list[str]()

    def add(records: Records, number: int) -> None:
        try:
            records.add(job_of(records, f"job-{number}"), passing=False)
            added.append(f"job-{number}")
        except BusyError:
            refused.append(f"job-{number}")

    threads = [threading.Thread(target=add, args=(two[number % 2], number)) for number in range(3 * SESSION_JOBS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(added), len(refused)) == (SESSION_JOBS, 2 * SESSION_JOBS)
    two[0].cancel(added[0])
    two[1].add(job_of(two[1], "again"), passing=False)
    for number in range(CLIENT_JOBS):
        one = two[number % 2]
        one.add(job_of(one, f"c{number}", f"session-{number}", client="192.0.2.1"), passing=True)
    with pytest.raises(BusyError):
        two[0].add(job_of(two[0], "c", "other", client="192.0.2.1"), passing=True)
    for number in range(LIVE_JOBS - CLIENT_JOBS - SESSION_JOBS):
        two[0].add(job_of(two[0], f"n{number}", f"place-{number}"), passing=False)
    assert two[1].load() == {"queued": LIVE_JOBS, "running": 0}
    with pytest.raises(BusyError):
        two[1].add(job_of(two[1], "n", "another"), passing=False)


def test_further_jobs_of_a_session_wait_behind_others(two: tuple[Records, Records]) -> None:
    records, _ = two
    for name, place, short in (
        ("a1", "ann", True), ("a2", "ann", True), ("a3", "ann", False), ("b1", "ben", True), ("b2", "ben", False),
    ):  # fmt: skip
        records.add(job_of(records, name, place, short=short), passing=False)
    jobs = [*records.of_session("ann"), *records.of_session("ben")]
    assert [job.name for job in sorted(jobs, key=records.ahead)] == ["a1", "b1", "a2", "b2", "a3"]
    first, second = (records.find("ann", name) for name in ("a1", "a2"))
    assert first is not None and second is not None
    assert first.priority - second.priority == pytest.approx(STEP, abs=5)  # so nobody waits for ever


def test_requests_of_one_client_wait_behind_others(two: tuple[Records, Records]) -> None:
    records, _ = two
    for number in range(3):
        records.add(job_of(records, f"c{number}", f"session-{number}", client="192.0.2.1"), passing=True)
    records.add(job_of(records, "d", "session-d", client="192.0.2.2"), passing=True)
    late = records.find("session-d", "d")
    assert late is not None and records.ahead(late) == 1


def test_one_worker_takes_a_job(two: tuple[Records, Records]) -> None:
    two[0].add(job_of(two[0], "job"), passing=False)
    taken = list[Job | None]()
    threads = [threading.Thread(target=lambda w=w: taken.append(two[w % 2].claim("job", f"w{w}"))) for w in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(job is not None for job in taken) == 1


def test_a_dead_workers_job_goes_to_another_and_one_that_lives_on_writes_nothing(two: tuple[Records, Records]) -> None:
    one, other = two
    one.add(job_of(one, "job"), passing=False)
    one.beat("slow", works=True, status="ready", details={})
    slow = one.claim("job", "slow")
    assert slow is not None and one.update(slow, done=2)
    other.revive()
    assert one.must_stop(slow) is False  # it lives
    one.processes.update(beat=time.time() - DEAD - 1).execute()
    other.revive()
    waiting = other.find("ann", "job")
    assert waiting is not None and (waiting.state, waiting.done) == ("queued", 0)
    assert [job.name for job in other.unqueued(set)] == ["job"]
    assert other.unqueued(set) == []  # it has a task now
    fresh = other.claim("job", "fresh")
    assert fresh is not None
    written = list[str]()
    assert one.must_stop(slow) is None
    assert not one.end(slow, lambda: written.append("slow"), state="done", reported=True)
    assert other.end(fresh, lambda: written.append("fresh"), state="done", reported=True)
    assert written == ["fresh"]


def test_a_job_that_kills_its_workers_fails(two: tuple[Records, Records]) -> None:
    records, _ = two
    records.add(job_of(records, "job"), passing=False)
    for _ in range(ATTEMPTS):
        assert records.claim("job", "gone") is not None
        records.revive()
    job = records.find("ann", "job")
    assert job is not None
    end = job.snapshot()
    assert (end.state, end.at_fault) == ("failed", "server") and end.remedy
    assert records.claim("job", "next") is None


def test_a_worker_that_leaves_costs_no_attempt(two: tuple[Records, Records]) -> None:
    records, _ = two
    records.add(job_of(records, "job"), passing=False)
    for _ in range(2 * ATTEMPTS):
        job = records.claim("job", "leaving")
        assert job is not None and job.attempts == 1
        records.give_back(job)


def test_waiting_sees_what_another_process_writes(two: tuple[Records, Records]) -> None:
    one, other = two
    one.add(job_of(one, "job"), passing=False)
    job = other.claim("job", "worker")
    assert job is not None
    threading.Timer(0.2, lambda: other.update(job, done=3)).start()
    started = time.monotonic()
    one.wait("ann", "job", 60, after=0)
    assert 0.1 < time.monotonic() - started < 30
    threading.Timer(0.2, lambda: other.update(job, state="done")).start()
    one.wait("ann", "job", 60)
    assert one.of_session("ann")[0].snapshot().ended


def test_grants_are_known_to_every_process(two: tuple[Records, Records], monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = two
    until = time.time() + 60
    for number in range(4):
        one.grant(f"cookie-{number}", "token", until + number, most=3)
    assert other.granted("cookie-3") == (pytest.approx(until + 3), "token")
    assert other.granted("cookie-0") == (0.0, "")  # the oldest went
    other.revoke("cookie-3")
    assert one.granted("cookie-3") == (0.0, "")


def test_what_cannot_be_used_is_said(tmp_path: Path) -> None:
    with pytest.raises(AtlasError, match=f"{records_module.VARIABLE} names no database"):
        Records("mysql://somewhere/x", tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(AtlasError, match="cannot be written"):
        Records(None, tmp_path / "file" / "folder")
