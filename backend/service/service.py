"""Live attribution for a server: what page and REST call.

Torch is imported when the first enrolment is read, forward passes run one at a time in a worker, which is a thread of
this process or a process of its own, and nothing here waits for them except :meth:`Service.wait` and
:meth:`Service.tokens`. No session sees files or jobs of another one. Jobs lie in SQL and results of a job next to its
file, not in memory: any process of the server answers for any session.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from backend.attribution.settings import Settings, of_windows, settings_of
from backend.enrolment.catalogue import Ecosystem, Ecosystems, sample_enrolment_of
from backend.enrolment.claims import with_claims
from backend.enrolment.stories import Story, story_files
from backend.errors import AtlasError, ServerError, StoppedError
from backend.fingerprints import cache_folder
from backend.intake import Columns, Layout, Limits, Preview, inspect, preview
from backend.output_files import write
from backend.service import caller, measurements, queue, records
from backend.service.audit_log import AuditLog
from backend.service.job import ENDED, SHORT, Snapshot
from backend.service.queue import Queue
from backend.service.records import BEAT, GONE, Job, Records
from backend.service.server_key import KEY_FILE, server_key
from backend.service.uploads import LIFETIME, BusyError, MissingError, Upload, Uploads, open_in_turn
from backend.service.watch_state import WatchState, sample_watch_of
from backend.service.worker import FAILED, TOKEN_SECONDS, Readiness, Worker, enrolment_with, settings_in

if TYPE_CHECKING:
    from backend.attribution.decision import EnrolmentCapabilities
    from backend.attribution.drift_report import Window
    from backend.attribution.scoring import Loaded
    from backend.attribution.verify import Check
    from backend.enrolment.enrolment import Enrolment

STOP_SECONDS = 60.0  # for which a server that is stopped waits for the batch that is read
SWEEP = 600  # seconds between two looks for what would be too old before the next one
# Torch builds a product in bfloat16 for every shape of a batch, and by default keeps 1,024 of them twice over: 850 MB
# after a thousand batches of other lengths; one batch needs five. Read when it multiplies for the first time.
CACHES = {"LRU_CACHE_CAPACITY": "32", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "32"}
NO_WORKER = "No worker scores traces at this moment", "Start one: python -m jobs work"
COMPARISON = "{}.comparison.json"  # the newest answer of a kind, in the folder of its session
_NAME = re.compile(r"[0-9a-f]{24}")


class Service:
    """One a process; every method may be called from any thread.

    data : data folder; its ``enrolments/`` are the ecosystems; cache : folder in which uploads lie.
    load : name of a proxy to its reader and the hash of its weights; by default out of the registry.
    limits : of an upload.
    address : of the queue that workers elsewhere take jobs from, by default ``ATLAS_QUEUE``; without one, a thread of
        this process works, or of the first that shares the cache folder.
    """

    def __init__(
        self,
        data: Path,
        cache: Path | None = None,
        *,
        load: Callable[[str], Loaded] | None = None,
        limits: Limits | None = None,
        address: str | None = None,
    ) -> None:
        for name, capacity in CACHES.items():
            os.environ.setdefault(name, capacity)
        folder = cache or cache_folder()
        self.limits = limits or Limits()
        self.process = f"{socket.gethostname()[:60]}-{os.getpid()}-{secrets.token_hex(4)}"
        self.uploads = Uploads(folder / "uploads", self.limits, self.process)
        address = address or os.environ.get(queue.VARIABLE) or None
        own = address if (address or "").startswith(("postgres", "sqlite")) else None
        self.records = Records(os.environ.get(records.VARIABLE) or own, folder)
        self.secret = server_key(folder / KEY_FILE)
        self._queue = Queue(address, folder, self.secret)
        self.audit_log = AuditLog.of(folder)
        self._ecosystems = Ecosystems(data)
        self._worker = Worker(
            self.process, self.records, self._queue, self.uploads, self._ecosystems, load,
            None if address else folder / "worker.lock", self.audit_log,
        )  # fmt: skip
        self._works_here = address is None
        self._stopped = False
        self._beat()
        self.sweep()
        ended = threading.Event()
        weakref.finalize(self, self._worker.leave)
        weakref.finalize(self, ended.set)
        threading.Thread(target=_tend, args=(weakref.ref(self), ended), name="tending", daemon=True).start()

    def state(self) -> Readiness:
        """Whether some worker has the default ecosystem's proxy in memory; one of this process begins to load it."""
        if self._ecosystems.empty():
            return Readiness("absent", None, "No ecosystem is enrolled here", "Run: python -m jobs enroll --sample")
        self.warm()
        found = [Readiness(one.status, **json.loads(one.details)) for one in self.records.alive() if one.works]
        if not found:
            return Readiness("loading") if self._works_here else Readiness("failed", None, *NO_WORKER)
        return min(found, key=lambda one: ("ready", "loading", "failed").index(one.status))

    def warm(self) -> None:
        """Load the default ecosystem's proxy in the background, where this process works; not without an ecosystem."""
        if self._works_here and not self._stopped and not self._ecosystems.empty():
            self._worker.warm()

    def work(self) -> None:
        """Do the jobs of all processes in this thread, until :meth:`leave`."""
        self._works_here = True
        self._worker.eager = True
        self._worker.work()
        self.close()

    def leave(self) -> None:
        """End :meth:`work`: a short job is finished, a longer one given back after the batch that is read."""
        self._worker.leave()

    def load(self) -> dict[str, int]:
        """How many jobs are ``queued`` and ``running``, of all sessions."""
        return self.records.load()

    def ecosystems(self) -> list[Ecosystem]:
        """Ecosystems that are enrolled here, by name; new files are seen without a restart."""
        return self._ecosystems.all()

    def damaged(self) -> list[AtlasError]:
        """Enrolments that could not be read when they were last needed."""
        return list(self._ecosystems.damaged().values())

    def upload(self, session: str, name: str, content: bytes, *, passing: bool = False) -> Upload:
        """Store a file for a session, a key that nobody guesses; see :meth:`Uploads.add` for ``passing``."""
        added = self.uploads.add(session, name, content, passing=passing)
        self.audit_log.write("upload", self._place(session).name, file=added.key)
        return added

    def inspect(self, session: str, key: str, columns: Columns | None = None, encoding: str | None = None) -> Preview:
        """What a file is, with every bad place; nothing is scored."""
        upload, path = self.uploads.get(session, key)
        with open_in_turn(path) as stream:
            found = preview(stream, upload.name, columns, self.limits, encoding)
        return with_claims(found, (one.sources for one in self._ecosystems.all())) if found.models else found

    def start(
        self,
        session: str,
        key: str,
        settings: Settings,
        *,
        discard: bool = False,
        fingerprints: bool = False,
        report: str | None = None,
        client: str | None = None,
        background: str | None = None,
    ) -> str:
        """Queue an audit; an AtlasError names what is wrong with the settings or the file at once.

        discard : delete the file as soon as it is scored; token evidence is then not to be had.
        fingerprints : keep every trace's fingerprint next to the report, for a test of drift.
        report : key of an uploaded report, whose traces are selected; by default the settings select.
        client : address of whoever sends this, whose jobs are limited over all sessions.
        background : key of uploaded traffic of the same kind that balances the scores.
        """
        upload, path = self.uploads.get(session, key)
        enrolment, begun = self._ecosystems.enrolment(settings.enrolment, settings.claimed), time.time()
        from backend.attribution import run  # torch is here already, with the enrolment
        from backend.attribution.scoring import Selection
        from backend.attribution.verify import selection_for

        pool: dict[str, Any] = {}
        if background is not None:
            pool = self._background(session, background, settings)
            settings = replace(settings, background=pool["name"])
        elif settings.background is not None:
            command = "python -m jobs verify REPORT --traces FILE --background FILE"
            raise AtlasError("The report was made with unlabelled traffic, which is not here", f"Run: {command}")
        run.checked(enrolment, settings)
        others = run.others_of(enrolment, settings, self._ecosystems.enrolment)
        selected = None if report is None else self.read_report(session, report)
        with open_in_turn(path) as stream:
            layout = inspect(stream, upload.name, settings.columns, self.limits, settings.encoding)
            selection = Selection.of(settings, self.limits)
            if selected is not None:
                selection = selection_for(selected, layout.sha256, self.limits)
            total = selection.count(stream, layout, self.limits)
        measurements.time_stage("parse", begun)
        if self._stopped:
            raise ServerError("The server is being stopped", "Try again in a minute")
        now, name = time.time(), secrets.token_hex(12)
        job = self.records.jobs(
            name=name,
            place=self._place(session).name,
            key=key,
            settings=json.dumps(asdict(settings) | ({"pool": pool} if pool else {})),
            enrolment=enrolment.name,
            enrolment_sha256=enrolment.sha256,
            others=json.dumps([(other.name, other.sha256) for other in others]),
            total=total,
            short=total <= SHORT and not pool,
            discard=discard,
            fingerprints=fingerprints,
            report=report,
            client=client,
            request=caller.current().request,
            created=now,
            queued=now,
        )
        self.records.add(job, passing=self.uploads.is_passing(session))
        try:
            self._put(job)
        except ServerError:
            self.records.remove([name])
            raise
        note = {"file": key, **({"background": background} if background else {}), "enrolment": enrolment.sha256}
        self.audit_log.write("start", self._place(session).name, job=name, settings=settings, **note)
        return name

    def _background(self, session: str, key: str, settings: Settings) -> dict[str, Any]:
        """Key, name and number of different responses of unlabelled traffic; an AtlasError for too few."""
        from backend.attribution.background import layout_of
        from backend.attribution.scoring import Selection
        from backend.enrolment.background import refuse_small

        upload, path = self.uploads.get(session, key)
        with open_in_turn(path) as stream:
            layout = layout_of(stream, upload.name, settings, self.limits)
            traces = Selection().count(stream, layout, self.limits)
        refuse_small(traces)
        return {"key": key, "name": upload.name, "traces": traces}

    def progress(self, session: str, job: str) -> Snapshot:
        """How far a job is, and what the traces so far say."""
        return self._snapshot(self._job(session, job))

    def wait(self, session: str, job: str, seconds: float, after: int | None = None) -> Snapshot:
        """Wait until a job has ended, or has scored more traces than ``after``, or the time is over."""
        self.records.wait(self._place(session).name, job, seconds, after)
        return self.progress(session, job)

    def cancel(self, session: str, job: str) -> Snapshot:
        """End a job after the batch that runs; what is done is reported."""
        found = self._job(session, job)
        self.records.cancel(job)
        now = self.progress(session, job)
        if found.discard and now.ended:
            for key in found.files:
                self.uploads.discard(self._place(session), key)
        return now

    def jobs(self, session: str) -> list[Snapshot]:
        """Jobs of a session, the newest first."""
        found = self.records.of_session(self._place(session).name)
        return [self._snapshot(job) for job in found if not _is_over(job)]

    def keep(self, session: str) -> None:
        """Let a passing session outlive its request, because somebody knows its key."""
        self.uploads.keep(session)

    def forget(self, session: str) -> None:
        """End a session: its jobs stop, and its files and reports are deleted."""
        place = self._place(session)
        existed = place.is_dir()
        self._end(place)
        if existed:
            self.audit_log.write("delete", place.name)

    def close(self, seconds: float = STOP_SECONDS) -> None:
        """Leave the jobs to other processes or the next start, and end the sessions of requests under way.

        A short job that runs here is finished, a longer one given back after the batch that is read.
        """
        self._stopped = True
        for place in self.uploads.passing():
            self._end(place)
        if self._works_here:
            if any(job.worker == self.process for job in self.records.running()):
                logging.getLogger(__name__).warning("Stopping after the batch that is read, in %.0f s at most", seconds)
            self._worker.leave()
            self._worker.join(seconds)
            if waiting := sum(self.load().values()):
                logging.getLogger(__name__).warning("%d audits wait for another worker or the next start", waiting)
        self.records.leave(self.process)

    def sweep(self) -> None:
        """Delete what would be too old before the next look."""
        until = time.time() + SWEEP
        over = self.records.over(until - LIFETIME)
        for job in over:
            for ending in ("report.json", "npz"):
                with contextlib.suppress(OSError):
                    (self.uploads.folder / job.place / f"{job.name}.{ending}").unlink()
        if over:
            self.records.remove([job.name for job in over])
        self.uploads.sweep(until)

    def tend(self) -> None:
        """Say that this process lives, and give back what dead ones were at."""
        if self._stopped:
            return
        self._beat()
        self.records.revive()
        for job in self.records.unqueued(self._queue.records):
            self._put(job)
        if self._works_here and self.load()["queued"]:
            self._worker.start()
        owners = {process.name for process in self.records.alive(GONE)}
        for place in self.uploads.passing(owners):
            self._end(place)

    def _beat(self) -> None:
        state = self._worker.readiness
        works = self._works_here and self._worker.serves
        details = {"proxy": state.proxy, "problem": state.problem, "remedy": state.remedy}
        self.records.beat(self.process, works=works, status=state.status, details=details)

    def _put(self, job: Job) -> None:
        """Queue the task of a job, for a worker here or elsewhere."""
        self._put_task("audit", job.name, short=job.short, priority=job.priority)

    def _put_task(self, kind: str, record: str, **options: Any) -> None:
        self._queue.put(kind, record, **options)
        if self._works_here:
            self._worker.start()

    def _end(self, place: Path) -> None:
        """End the session of a folder."""
        self.records.forget(place.name)
        self.uploads.remove(place)

    def _snapshot(self, job: Job) -> Snapshot:
        return job.snapshot(self.records.ahead(job) if job.state == "queued" else 0)

    def report(self, session: str, job: str) -> dict[str, Any]:
        """Report of a job that has ended.

        Raises MissingError, also where it has not ended; AtlasError with the problem of a job that failed.
        """
        now = self._job(session, job).snapshot()
        if now.reported:
            try:
                place = self._place(session) / f"{job}.report.json"
                report: dict[str, Any] = json.loads(place.read_text("utf-8"))
                return report
            except OSError as error:
                raise MissingError("The report was deleted", "Run the audit again") from error
        if now.state == "failed":
            raise AtlasError(now.problem or FAILED[0], now.remedy or FAILED[1])
        if now.state == "cancelled":
            raise MissingError("The audit was cancelled before the first batch", "Run it again")
        raise MissingError("The audit has not ended", "Wait for it, or cancel it: what is done is kept")

    def read_report(self, session: str, key: str) -> dict[str, Any]:
        """A report out of an uploaded file, JSON or its page."""
        from backend.attribution.verify import read_report

        return read_report(self._text_of(session, key))

    def _text_of(self, session: str, key: str) -> str:
        _, path = self.uploads.get(session, key)
        try:
            with open_in_turn(path) as stream:
                return stream.read().decode("utf-8")
        except UnicodeDecodeError as error:
            raise AtlasError("The file is no report", "Give a report as it was saved, HTML or JSON") from error
        except OSError as error:
            raise MissingError("The report was deleted", "Upload it again") from error

    def agrees(self, session: str, key: str) -> Check:
        """Whether an uploaded report agrees with itself; nothing is scored."""
        from backend.attribution.verify import Check, alterations, read_report, with_page

        report = read_report(text := self._text_of(session, key))
        check = with_page(Check.of(report, alterations(report)), text, report)
        self._note_check(session, check)
        return check

    def columns_for(self, session: str, key: str, traces: str) -> tuple[Columns, str | None]:
        """Columns and encoding with which an uploaded report reads a file of its traces."""
        from backend.attribution.verify import fitting

        report = self.read_report(session, key)
        upload, path = self.uploads.get(session, traces)
        with open_in_turn(path) as stream:
            own = report["input"].get("sha256") if isinstance(report["input"], dict) else None
            settings, _ = fitting(settings_of(report, ""), own, stream, upload.name, self.limits)
        return settings.columns, settings.encoding

    def recompute(
        self, session: str, key: str, traces: str, client: str | None = None, columns: Columns | None = None
    ) -> str:
        """Queue the traces of an uploaded report to be scored once more.

        columns : of the file, in place of those that the report records. Returns the job, for :meth:`checked`.
        Raises AtlasError if the file holds none of the report's traces, or the ecosystem is not here.
        """
        from backend.attribution.verify import fitting

        report = self.read_report(session, key)
        names = {one.sha256: one.name for one in self.ecosystems()}
        needed = str(report["method"].get("enrolment_sha256") if isinstance(report["method"], dict) else None)
        if needed not in names:
            raise AtlasError(
                f"No ecosystem here has the sha256 {needed[:16]}…, which the report was made with",
                "Publish its enrolment here, or run python -m jobs verify where it is",
            )
        upload, path = self.uploads.get(session, traces)
        with open_in_turn(path) as stream:
            settings, own = settings_of(report, names[needed], names.get), report["input"].get("sha256")
            settings, _ = fitting(settings, own, stream, upload.name, self.limits)
        if columns is not None:
            settings = replace(settings, columns=columns)
        return self.start(session, traces, settings, report=key, client=client)

    def checked(self, session: str, key: str, job: str) -> Check:
        """Compare an uploaded report with its traces, which a job has scored once more."""
        from backend.attribution.verify import compared, read_report, with_page

        report, again = read_report(text := self._text_of(session, key)), self.report(session, job)
        enrolment = self._enrolment_of(self._job(session, job))
        check = compared(report, again, enrolment, self._arrays(session, job)["mean"])
        check = with_page(check, text, report)
        self._note_check(session, check)
        return check

    def tried(self, session: str, story: Story) -> list[Upload]:
        """Uploads of a story of the shipped sample, whose answers are to prompts that its ecosystem has not seen.

        Their ``enrolment`` is the story's ecosystem, or None where that is not enrolled here.
        """
        known = [self._ecosystems.enrolment(one.name) for one in self._ecosystems.all()]
        named = next((one for one in known if one.name == story.ecosystem), None)
        enrolment = named if story.ecosystem else sample_enrolment_of(known)
        ecosystem = None if enrolment is None else enrolment.name
        return [
            self.uploads.add(session, name, content, enrolment=ecosystem, label=story.files[name])
            for name, content in story_files(story, enrolment).items()
        ]

    def sample_watch(self, *, begin: bool) -> WatchState | None:
        """The watch of the shipped sample; None before its first look. Raises AtlasError without its ecosystem.

        begin : let a worker make it, or finish it, where it has no alarm yet.
        """
        enrolment = sample_enrolment_of(self._ecosystems.enrolment(one.name) for one in self._ecosystems.all())
        if enrolment is None:
            raise AtlasError("The sample's ecosystem is not enrolled here", "Run: python -m jobs enroll --sample")
        state = sample_watch_of(enrolment.sha256)
        if begin and (state is None or state.alarm is None) and enrolment.name not in self._queue.records():
            self._put_task("watch", enrolment.name, short=False, priority=0)
        return state

    def brings(self, ecosystem: str) -> EnrolmentCapabilities:
        """Capabilities of an ecosystem: calibration, error rates of the stop, validation."""
        from backend.attribution.decision import capabilities_of

        return capabilities_of(self._ecosystems.enrolment(ecosystem))

    def export(self, session: str, job: str, form: str) -> str:
        """Report of a job as 'html', 'json' or 'csv'."""
        report = self.report(session, job)
        from backend.attribution.report import write_csv, write_json
        from backend.attribution.report_page import write_html

        writers = {"html": write_html, "json": write_json, "csv": write_csv}
        if form not in writers:
            raise AtlasError(f"There is no form '{form[:20]}' of a report", f"Choose from {', '.join(writers)}")
        self.audit_log.write("report", self._place(session).name, job=job, report=report["sha256"])
        return writers[form](report)

    def tokens(
        self, session: str, job: str, row: int, source: str | None = None, rival: str | None = None
    ) -> dict[str, Any]:
        """Which response tokens of a trace speak for one source against another.

        row : number of the trace in the report, from 1; source, rival : by default the report's own.
        Returns number, prompt, source, rival, log_odds, stored, pieces (text, start, stop, value), rest, cut.
        Raises MissingError where the file was deleted, BusyError where the proxy does not get to it.
        """
        scored, report = self._job(session, job), self.report(session, job)
        from backend.attribution.decision import source_number

        if not 1 <= row <= len(report["traces"]):
            raise AtlasError(f"There is no trace {row}", f"Choose 1 to {len(report['traces'])}")
        self.uploads.get(session, scored.key)
        enrolment = self._enrolment_of(scored)
        first, second = source or report["results"]["subject"], rival or report["results"]["rival"]
        for name in (first, second):
            source_number(enrolment, name)
        if first == second:
            raise AtlasError("The source and its rival are the same", "Choose two sources")
        place, name = self._place(session), secrets.token_hex(12)
        self.records.ask(place.name, name, {"job": job, "row": row, "source": first, "rival": second})
        self._queue.put("tokens", name, short=True, priority=-time.time())
        if self._works_here:
            self._worker.start()
        answer = self.records.wait_answer(name, TOKEN_SECONDS)
        if answer is None:
            raise BusyError("The proxy is busy with other traces", "Try again in a minute")
        if answer.error is not None:
            kind, problem, remedy = json.loads(answer.error)
            raise {"missing": MissingError, "server": ServerError}.get(kind, AtlasError)(problem, remedy)
        file = place / f"{name}.answer.json"
        try:
            evidence: dict[str, Any] = json.loads(file.read_text("utf-8"))
        except OSError as error:
            raise MissingError("The file was deleted", "Upload it again") from error
        file.unlink(missing_ok=True)
        return evidence

    def start_windows(
        self, session: str, keys: Sequence[str], settings: Settings | Sequence[Settings], client: str | None = None
    ) -> list[str]:
        """Queue the windows of a test of drift; where something is wrong with one of them, none runs.

        keys : files of the two windows, the earlier one first, or of one whose halves are compared.
        settings : from :func:`backend.attribution.settings.of_windows`, of all files or of each. Returns the jobs, for
        :meth:`drift`.
        """
        jobs: list[str] = []
        try:
            for key, one in zip(keys, _of_each(settings, keys), strict=True):
                jobs.append(self.start(session, key, one, fingerprints=True, client=client))
            from backend.attribution.drift_report import long_enough

            names = [self.uploads.get(session, key)[0].name for key in keys]
            long_enough([self.progress(session, job).total for job in jobs], names)
        except AtlasError:
            for job in jobs:
                self.cancel(session, job)
            raise
        return jobs

    def start_reference_check(
        self, session: str, keys: Sequence[str], settings: Settings | Sequence[Settings], client: str | None = None
    ) -> list[str]:
        """Queue traces, a reference's answers to their prompts, and those of any rivals, whose files ``keys`` are.

        settings : from :func:`backend.attribution.settings.of_windows`, of all files or of each. Returns the jobs, for
        :meth:`reference_check`. Raises AtlasError where both sides answer fewer than six prompts.
        """
        from backend.attribution.reference_check import refuse_few_pairs

        each = _of_each(settings, keys)
        claimed, reference = (self.prompts(session, key, one) for key, one in zip(keys[:2], each, strict=False))
        refuse_few_pairs(claimed, reference, self.uploads.get(session, keys[0])[0].name)
        jobs: list[str] = []
        try:
            for key, one in zip(keys, each, strict=True):
                jobs.append(self.start(session, key, one, fingerprints=True, client=client))
        except AtlasError:
            for job in jobs:
                self.cancel(session, job)
            raise
        return jobs

    def reference_check(self, session: str, names: Sequence[str]) -> dict[str, Any]:
        """Whether traces are like a reference, from the fingerprints of their jobs.

        Returns a :func:`backend.attribution.reference_check.reference_answer`; a StoppedError says that somebody
        cancelled, since answers to a prompt belong together.
        """
        from backend.attribution.reference_check import reference_answer

        jobs = [self._job(session, name) for name in names]
        if any(job.snapshot().state == "cancelled" for job in jobs):
            raise StoppedError("The comparison was stopped", "Start it again; all files are read whole")
        claimed, reference, *rivals = self._windows(session, jobs)
        answer = reference_answer(claimed, reference, rivals, self._enrolment_of(jobs[0]), settings_in(jobs[0]))
        self._note_comparison(session, names[0], answer)
        return answer

    def drift(self, session: str, before: str, after: str | None = None) -> dict[str, Any]:
        """Test whether two windows of traces differ, from the fingerprints of their jobs.

        Of cancelled jobs, what they have read is compared; without ``after``, the halves of ``before``.
        Returns a :func:`backend.attribution.drift_report.drift_answer`; a StoppedError says that too little was read.
        """
        from backend.attribution.drift_report import drift_answer, enough_read

        names = (before, after) if after else (before,)
        jobs = [self._job(session, name) for name in names]
        now = [job.snapshot() for job in jobs]
        if any(one.state == "cancelled" for one in now):
            enough_read([(one.done, one.total) for one in now])
        answer = drift_answer(self._windows(session, jobs), self._enrolment_of(jobs[0]), settings_in(jobs[0]))
        self._note_comparison(session, before, answer)
        return answer

    def newest_report(self, session: str) -> dict[str, Any] | None:
        """Report of the newest answered question, None without; windows and checks of reports do not count."""
        windows = of_windows(None).case
        for job in self.records.of_session(self._place(session).name):
            own = job.report is None and settings_in(job).case != windows
            if own and not _is_over(job) and job.snapshot().reported:
                return self.report(session, job.name)
        return None

    def newest_comparison(self, session: str, kind: str) -> dict[str, Any] | None:
        """The newest answer of :meth:`drift`, 'windows', or of :meth:`reference_check`, 'reference'; None without."""
        from backend.attribution.drift_report import FORMAT

        try:
            found: dict[str, Any] = json.loads((self._place(session) / COMPARISON.format(kind)).read_text("utf-8"))
        except OSError:
            return None
        return found if found["format"] == FORMAT else None  # another version of this program wrote it

    def _note_comparison(self, session: str, job: str, answer: dict[str, Any]) -> None:
        kind = "reference" if "rivals" in answer else "windows"
        write(self._place(session) / COMPARISON.format(kind), json.dumps(answer))
        note = {"job": job, "verdict": answer["verdict"], "report": answer["sha256"]}
        self.audit_log.write("comparison", self._place(session).name, **note)

    def file_of(self, session: str, job: str) -> tuple[Upload, Settings]:
        """The file that a job reads, and how it is read; a MissingError where it was deleted."""
        found = self._job(session, job)
        upload, _ = self.uploads.get(session, found.key)
        return upload, settings_in(found)

    def prompts(self, session: str, key: str, settings: Settings) -> list[str]:
        """Prompts of an uploaded file's traces, in their order."""
        from backend.attribution.scoring import Selection

        upload, path = self.uploads.get(session, key)
        with open_in_turn(path) as stream:
            layout = inspect(stream, upload.name, settings.columns, self.limits, settings.encoding)
            traces = Selection.of(settings, self.limits).traces(stream, layout, self.limits)
            return [trace.prompt for trace in traces]

    def _windows(self, session: str, jobs: Sequence[Job]) -> list[Window]:
        """What jobs have read, to compare."""
        from backend.attribution.drift_report import Window
        from backend.attribution.scoring import listed_traces

        read = []
        for job in jobs:
            report = self.report(session, job.name)
            with self._open(session, job) as (stream, layout):
                fingerprints = self._arrays(session, job.name).get("fingerprints")
                if fingerprints is None:
                    raise MissingError("The fingerprints of these traces were not kept", "Compare the windows again")
                found = list(listed_traces(stream, layout, self.limits, report["traces"]))
            prompts, responses = [trace.prompt for trace in found], [trace.response for trace in found]
            window = Window(report, fingerprints, prompts, job.total, settings=settings_in(job), responses=responses)
            read.append(window)
        return read

    def _enrolment_of(self, job: Job) -> Enrolment:
        """The enrolment that a job was scored with."""
        return enrolment_with(self._ecosystems, job.enrolment, job.enrolment_sha256)

    @contextlib.contextmanager
    def _open(self, session: str, job: Job) -> Iterator[tuple[BinaryIO, Layout]]:
        """The file of a job when it is its turn, and what the file is."""
        upload, path = self.uploads.get(session, job.key)
        settings = settings_in(job)
        with open_in_turn(path) as stream:
            yield stream, inspect(stream, upload.name, settings.columns, self.limits, settings.encoding)

    def _arrays(self, session: str, job: str) -> dict[str, npt.NDArray[Any]]:
        """Mean fingerprint of a job's traces, and where they were requested all fingerprints."""
        with np.load(self._place(session) / f"{job}.npz", allow_pickle=False) as saved:
            return dict(saved)

    def _job(self, session: str, job: str) -> Job:
        found = self.records.find(self._place(session).name, job) if _NAME.fullmatch(job) else None
        if found is None or _is_over(found):
            raise MissingError("This session has no such audit", "Start one; what is older than 24 hours is deleted")
        return found

    def _place(self, session: str) -> Path:
        return self.uploads.place(session)

    def _note_check(self, session: str, result: Check) -> None:
        verdict = "equal" if result.equal else "not equal"
        self.audit_log.write("verify", self._place(session).name, report=result.sha256, verdict=verdict)


def _of_each(settings: Settings | Sequence[Settings], keys: Sequence[str]) -> Sequence[Settings]:
    """Settings of each file."""
    return [settings] * len(keys) if isinstance(settings, Settings) else settings


def _is_over(job: Job) -> bool:
    """Whether nobody may see a job any more; one that runs so long is served to its end."""
    return job.state in ENDED and job.created < time.time() - LIFETIME


def _tend(service: weakref.ref[Service], ended: threading.Event) -> None:
    """Tend and sweep, also without requests, for as long as the service is used."""
    swept = time.monotonic()
    while not ended.wait(min(BEAT, SWEEP)):
        current = service()
        if current is not None:
            try:
                current.tend()
                if time.monotonic() - swept > SWEEP:
                    swept = time.monotonic()
                    current.sweep()
            except AtlasError as error:
                logging.getLogger(__name__).warning("%s", error)
            except Exception:
                logging.getLogger(__name__).exception("Dead processes could not be looked for")
        del current
