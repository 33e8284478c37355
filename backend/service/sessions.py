"""Files and jobs of everybody who asks a server: who holds what, what runs, and what is deleted when.

No session sees what another one holds. What is wrong with a file or a question is said before anything is queued; what
a job brought lies beside its file, so that the memory of the server does not grow with it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import secrets
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from backend.attribution.settings import Settings
from backend.enrolment.catalogue import Ecosystem, Ecosystems
from backend.errors import AtlasError, ServerError
from backend.intake import Columns, Limits, Preview, inspect
from backend.service.host import REMEDY, Host, Readiness
from backend.service.job import ENDED, Job, Snapshot
from backend.service.uploads import LIFETIME, BusyError, LostError, MissingError, Upload, Uploads, open_in_turn

if TYPE_CHECKING:
    from backend.attribution.run import Selection
    from backend.attribution.scoring import Loaded
    from backend.enrolment.enrolment import Enrolment

SESSION_JOBS = 4  # jobs of one session that wait or run at a time
LIVE_JOBS = 32  # jobs of all sessions that wait or run at a time
CLIENT_JOBS = LIVE_JOBS // 2  # jobs of one client, whatever its sessions, that wait or run at a time
STOP_SECONDS = 60.0  # for which a server that is stopped waits for the batch that is read
KEPT_JOBS = 1_000  # jobs that are known; those that ended longest ago are deleted beyond it
SHORT = 200  # traces up to which a job goes before longer ones, and between two batches of one
SWEEP = 600  # seconds between two looks for what would be too old before the next one
_NAME = re.compile(r"[0-9a-f]{24}")
FAILED = ("The server could not score these traces", REMEDY)


class Sessions:
    """What the sessions of a server hold; every method may be called from any thread."""

    def __init__(self, data: Path, cache: Path, load: Callable[[str], Loaded] | None, limits: Limits) -> None:
        self.limits = limits
        self.uploads = Uploads(cache / "uploads", limits)
        self._ecosystems = Ecosystems(data)
        self._host = Host(self._ecosystems, load, limits)
        self._lock = threading.Lock()
        self._jobs: dict[tuple[str, str], Job] = {}
        self._stopped = False
        self.uploads.sweep_unowned()
        self.sweep()
        ended = threading.Event()
        weakref.finalize(self, ended.set)
        threading.Thread(target=_keep_sweeping, args=(weakref.ref(self), ended), name="sweeping", daemon=True).start()

    # ---- the proxy --------------------------------------------------------------------------------------------------

    def state(self) -> Readiness:
        """Whether the default ecosystem's proxy is in memory; asks for it where an ecosystem appeared since."""
        return self._host.state()

    def warm(self) -> None:
        """Load the default ecosystem's proxy in the background; without an ecosystem nothing happens."""
        self._host.warm()

    def ecosystems(self) -> list[Ecosystem]:
        """Ecosystems that are enrolled here, by name; new files are seen without a restart."""
        return self._ecosystems.all()

    def damaged(self) -> list[AtlasError]:
        """Enrolments that could not be read when they were last needed."""
        return list(self._ecosystems.damaged().values())

    # ---- files ------------------------------------------------------------------------------------------------------

    def upload(self, session: str, name: str, content: bytes, *, passing: bool = False) -> Upload:
        """Keep a file for a session, a key that nobody guesses; what a ``passing`` one left the next start deletes."""
        return self.uploads.add(session, name, content, passing=passing)

    def inspect(self, session: str, key: str, columns: Columns | None = None, encoding: str | None = None) -> Preview:
        """What a file is, with every bad place; nothing is scored."""
        return self.uploads.preview(session, key, columns, encoding)

    # ---- jobs -------------------------------------------------------------------------------------------------------

    def start(
        self,
        session: str,
        key: str,
        settings: Settings,
        *,
        discard: bool = False,
        fingerprints: bool = False,
        select: Callable[[], Selection] | None = None,
        client: str | None = None,
    ) -> str:
        """Queue an audit; what is wrong with the settings or the file is said at once.

        discard : delete the file as soon as it is scored; token evidence is then not to be had.
        fingerprints : keep every trace's fingerprint next to the report, for a test of drift.
        select : makes a selection of traces; by default the settings' own.
        client : address of whoever sends this, whose jobs are limited over all sessions.
        """
        upload, path = self.uploads.get(session, key)
        enrolment = self._ecosystems.enrolment(settings.enrolment, settings.claimed)
        from backend.attribution import run  # torch is here already, with the enrolment

        run.checked(enrolment, settings)
        others = run.others_of(enrolment, settings, self._ecosystems.enrolment)
        with open_in_turn(path) as stream:
            layout = inspect(stream, upload.name, settings.columns, self.limits, settings.encoding)
            selection = run.selection_of(settings, self.limits) if select is None else select()
            total = run.counted(stream, layout, selection, self.limits)
        job = Job(
            secrets.token_hex(12), key, settings, enrolment.name, enrolment.sha256, total,
            discard=discard, fingerprints=fingerprints, others=others, select=select, client=client,
        )  # fmt: skip
        with self._lock:
            if self._stopped:
                raise ServerError("The server is being stopped", "Try again in a minute")
            live = [(owner, other.client) for (owner, _), other in self._jobs.items() if other.state not in ENDED]
            if (
                len(live) >= LIVE_JOBS
                or sum(owner == session for owner, _ in live) >= SESSION_JOBS
                or (client is not None and sum(other == client for _, other in live) >= CLIENT_JOBS)
            ):
                raise BusyError("Too many audits wait or run already", "Wait until one has ended, or cancel it")
            try:
                self._place(session, job.name, "job").touch()
            except OSError as error:
                raise ServerError(f"The audit cannot be noted ({error.strerror})", REMEDY) from error
            self._jobs[session, job.name] = job
        self._host.retry()
        job.number = self._host.worker.submit(lambda: self._run(session, job, enrolment), short=total <= SHORT)
        return job.name

    def progress(self, session: str, job: str) -> Snapshot:
        """How far a job is, and what the traces so far say."""
        found = self._job(session, job)
        return found.snapshot(self._host.worker.before(found.number) if found.state == "queued" else 0)

    def wait(self, session: str, job: str, seconds: float, after: int | None = None) -> Snapshot:
        """Wait until a job has ended, or has scored more traces than ``after``, or the time is over."""
        found = self._job(session, job)
        with found.changed:
            found.changed.wait_for(
                lambda: found.state in ENDED or (after is not None and found.done > after), timeout=seconds
            )
        return self.progress(session, job)

    def cancel(self, session: str, job: str) -> Snapshot:
        """End a job after the batch that runs; what is done is kept and reported."""
        found = self._job(session, job)
        found.stop.set()
        with found.changed:
            if found.state == "queued":
                found.become("cancelled")
        return self.progress(session, job)

    def jobs(self, session: str) -> list[Snapshot]:
        """Jobs of a session, the newest first."""
        with self._lock:
            names = [name for (owner, name), job in self._jobs.items() if owner == session and not _is_over(job)]
        return [self.progress(session, name) for name in reversed(names)]

    def forget(self, session: str) -> None:
        """End a session: its jobs stop, and its files and reports are deleted."""
        with self._lock:
            ended = [self._jobs.pop(place) for place in list(self._jobs) if place[0] == session]
        for job in ended:
            job.stop.set()
            job.become("cancelled")
        self.uploads.forget(session)

    def forget_lost(self, session: str) -> bool:
        """Delete what a session holds whose jobs an earlier process had; False where there is nothing."""
        with self._lock:
            if any(owner == session for owner, _ in self._jobs) or not self.uploads.place(session).is_dir():
                return False
        self.uploads.forget(session)
        return True

    def close(self, seconds: float = STOP_SECONDS) -> None:
        """End all jobs after the batch that is read, and delete the files of passing sessions."""
        with self._lock:
            self._stopped = True
            live = [job for job in self._jobs.values() if job.state not in ENDED]
        for job in live:
            job.stop.set()
            if job.state == "queued":
                job.become("cancelled")
        if running := [job for job in live if job.state not in ENDED]:
            logging.getLogger(__name__).warning("Stopping after the batch that is read, in %.0f s at most", seconds)
            until = time.monotonic() + seconds
            for job in running:
                while job.state not in ENDED and (left := until - time.monotonic()) > 0:
                    with job.changed:
                        job.changed.wait(left)
        if live:
            logging.getLogger(__name__).warning("%d audits were ended because the server is stopped", len(live))
        self.uploads.sweep_unowned()

    def sweep(self) -> None:
        """Delete what would be too old before the next look."""
        until = time.time() + SWEEP
        with self._lock:
            ended = [held for held, job in self._jobs.items() if job.state in ENDED]
            old = [held for held in ended if _is_over(self._jobs[held], until)]
            surplus = ended[: max(0, len(self._jobs) - KEPT_JOBS)]
            for held in {*old, *surplus}:
                del self._jobs[held]
                for ending in ("report.json", "npz", "job"):
                    with contextlib.suppress(OSError):
                        self._place(*held, ending).unlink()
        self.uploads.sweep(until)

    # ---- inside -----------------------------------------------------------------------------------------------------

    def _run(self, session: str, job: Job, enrolment: Enrolment) -> None:
        at_fault: str | None = None
        try:
            if job.stop.is_set():
                job.become("cancelled")
                return
            upload, path = self.uploads.get(session, job.key)
            job.become("running")
            between = None if job.total <= SHORT else self._host.worker.between
            at_fault = "server"
            self._host.engine().attributor(enrolment)
            at_fault = None
            job.earlier = self._last_steps(session)
            inquiry = self._host.engine().run(job, enrolment, path, upload.name, between)
            scored = inquiry.scored
            kept: dict[str, Any] = {"mean": scored.mean}
            if scored.fingerprints is not None:
                kept["fingerprints"] = scored.fingerprints
            with self._lock:
                if (session, job.name) not in self._jobs:
                    return  # the session ended meanwhile
                self._place(session, job.name, "report.json").write_text(json.dumps(inquiry.report), "utf-8")
                np.savez(self._place(session, job.name, "npz"), **kept)
            job.reported = True
            if not job.fingerprints and job.select is None:  # windows and second runs ask nothing new
                job.last_step = inquiry.report["steps"][-1]["sha256"]
            job.become("done" if scored.complete else "cancelled")
        except AtlasError as error:
            if job.stop.is_set() and not job.done:
                job.become("cancelled")
            else:
                logging.getLogger(__name__).warning("Audit %s failed: %s", job.name, error)
                job.become("failed", error.problem, error.remedy, at_fault)
        except Exception:
            logging.getLogger(__name__).exception("Audit %s failed", job.name)
            job.become("failed", *FAILED, "server")
        finally:
            job.select = None  # it may hold a long report
            if job.discard:
                self.uploads.discard(session, job.key)

    def _last_steps(self, session: str) -> tuple[str, ...]:
        """Of the session's reports so far, as they were asked for."""
        with self._lock:
            return tuple(job.last_step for (owner, _), job in self._jobs.items() if owner == session and job.last_step)

    def _job(self, session: str, job: str) -> Job:
        with self._lock:
            held = self._jobs.get((session, job))
        if held is None and _NAME.fullmatch(job) and self._place(session, job, "job").exists():
            raise LostError(
                "The server was started again since, and this audit was lost", "Start it again; the file is still here"
            )
        if held is None or _is_over(held):
            raise MissingError("This session has no such audit", "Start one; what is older than 24 hours is deleted")
        return held

    def _place(self, session: str, job: str, ending: str) -> Path:
        return self.uploads.place(session) / f"{job}.{ending}"


def _is_over(job: Job, when: float | None = None) -> bool:
    """Whether nobody may see a job any more; one that runs so long is kept to its end."""
    return job.state in ENDED and job.created < (time.time() if when is None else when) - LIFETIME


def _keep_sweeping(held: weakref.ref[Sessions], ended: threading.Event) -> None:
    """Sweep every few minutes, also where nobody asks for anything, for as long as the sessions are used."""
    while not ended.wait(SWEEP):
        sessions = held()
        if sessions is not None:
            sessions.sweep()
        del sessions
