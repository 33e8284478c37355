"""What scores jobs: takes one after the other from the queue, with the proxies in memory.

A thread of a web process, or a process of its own (``python -m jobs work``). Torch is imported when it starts to work.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import json
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from backend.attribution.settings import Settings
from backend.enrolment.catalogue import Ecosystems, candidate_numbers
from backend.errors import AtlasError, ServerError
from backend.intake import Columns, Layout, inspect
from backend.service import caller, measurements
from backend.service.audit_log import AuditLog
from backend.service.caller import Caller
from backend.service.job import Point, Running, merge_points
from backend.service.queue import Queue
from backend.service.records import Job, Records
from backend.service.uploads import MissingError, Uploads, open_in_turn
from backend.store.builds import code_version
from backend.traces import Trace

if TYPE_CHECKING:
    from backend.attribution.run import AuditResult
    from backend.attribution.scoring import Attributor, Loaded, Models, Progress, Selection
    from backend.enrolment.enrolment import Enrolment

IDLE = 0.05  # seconds between two looks for what another process has queued
PAUSE = 1.0  # seconds until it looks again where somebody else works, or the queue cannot be reached
TOKEN_SECONDS = 120  # for which token evidence is waited for
REMEDY = "Tell whoever runs the server; its log says more"
FAILED = ("The server could not score these traces", REMEDY)


@dataclass(frozen=True)
class Readiness:
    """Whether the proxy of the default ecosystem is in memory."""

    status: str  # absent (no ecosystem is enrolled here), loading, ready, failed
    proxy: str | None = None
    problem: str | None = None  # a sentence without a full stop
    remedy: str | None = None


COLD = Readiness("loading")


class GivenBackError(Exception):
    """A job goes on elsewhere: the worker leaves, or somebody else has its lease."""


class Worker:
    """One thread works; every other method may be called from any.

    process : its name; load : see :class:`backend.service.service.Service`.
    lock : file that the one worker has which serves a cache folder; None where several share the jobs.
    """

    def __init__(
        self,
        process: str,
        records: Records,
        queue: Queue,
        uploads: Uploads,
        ecosystems: Ecosystems,
        load: Callable[[str], Loaded] | None,
        lock: Path | None,
        audit_log: AuditLog,
    ) -> None:
        self.readiness = COLD
        self.eager = False  # whether to load the proxy of an ecosystem that appears, without a job
        self.serves = lock is None  # whether this process is the one that works
        self._process, self._records, self._queue = process, records, queue
        self._uploads, self._ecosystems, self._load, self._lock = uploads, ecosystems, load, lock
        self._audit_log = audit_log
        self._leaving, self._cold = threading.Event(), threading.Event()
        self._lost_sight = False  # whether the records could not be reached, and still name this worker for a job
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        queue.tasks.update(audit=self._audit, tokens=self._tokens, watch=self._watch)

    def start(self) -> None:
        """Work in a thread, which ends with the process."""
        with self._starting:
            if self._thread is None and not self._leaving.is_set():
                self._thread = threading.Thread(target=self.work, name="attribution", daemon=True)
                self._thread.start()

    def warm(self) -> None:
        """Load the default ecosystem's proxy before the next job, where that was not tried yet."""
        if self.readiness == COLD:
            self._cold.set()
        self.start()

    def leave(self) -> None:
        """End the work, after a short job or the batch of a longer one."""
        self._leaving.set()

    def join(self, seconds: float) -> None:
        """Wait until the thread has ended, if there is one."""
        if self._thread is not None:
            self._thread.join(seconds)

    def work(self) -> None:
        """Do task after task, until somebody says to leave."""
        with contextlib.ExitStack() as end:
            while not self._leaving.is_set():
                try:
                    if not self.serves:
                        self._begin(end)
                    elif self._lost_sight:
                        self._records.release(self._process)
                        self._lost_sight = False
                    elif self._cold.is_set():
                        self._cold.clear()
                        self._warm()
                    elif (task := self._queue.take()) is not None:
                        task()
                    elif self.eager and self.readiness == COLD and not self._ecosystems.empty():
                        self._cold.set()
                    else:
                        self._queue.wait(IDLE)
                except ServerError as error:
                    logging.getLogger(__name__).warning("%s", error)
                    self._leaving.wait(PAUSE)

    def between(self) -> None:
        """Do what is short now; a long job calls this between two of its batches."""
        while not self._leaving.is_set() and (task := self._queue.take(short=True)) is not None:
            task()

    def _begin(self, end: contextlib.ExitStack) -> None:
        """Become the worker of the cache folder, or wait a moment where there is one."""
        assert self._lock is not None
        handle = self._lock.open("a")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            handle.close()
            self._leaving.wait(PAUSE)
            return
        end.callback(handle.close)
        self.serves = True
        self._publish(self.readiness)
        self._records.revive(but=self._process)  # whoever worked here before is dead

    def _publish(self, readiness: Readiness) -> None:
        self.readiness = readiness
        details = {"proxy": readiness.proxy, "problem": readiness.problem, "remedy": readiness.remedy}
        self._records.beat(self._process, works=True, status=readiness.status, details=details)

    def _warm(self) -> None:
        """Load the proxy and read a few lines with it, so that the first trace of a person does not pay for it.

        A compiled pass is built for each of its forms: one trace, several, and several that share a long prompt.
        """
        if self._ecosystems.empty():
            return
        proxy = None
        try:
            enrolment = self._ecosystems.enrolment(None)
            proxy = enrolment.proxy
            self._publish(Readiness("loading", proxy))
            attributor = self._models.attributor(enrolment)
            attributor.score([Trace("Are you there?", "Yes, I am here.")])
            attributor.score([Trace(f"Question {i}?", "An answer. " * (i + 1)) for i in range(4)])
            attributor.score([Trace("A long question, word by word. " * 16, f"Answer {i}.") for i in range(8)])
            self._publish(Readiness("ready", proxy))
        except AtlasError as error:
            self._publish(Readiness("failed", proxy, error.problem, error.remedy))
        except Exception as error:
            logging.getLogger(__name__).exception("The proxy could not be loaded")
            problem = f"The proxy could not be loaded ({type(error).__name__})"
            self._publish(Readiness("failed", proxy, problem, REMEDY))

    @functools.cached_property
    def _models(self) -> Models:
        """Loaded proxies, by default out of the registry; for the thread that works only."""
        from backend.attribution.scoring import Models, from_registry

        return Models(self._load or from_registry)

    @functools.cached_property
    def _version(self) -> str:
        return code_version()

    def _watch(self, enrolment: str) -> None:
        """Watch the sample, for a person who wants to see an alarm."""
        from backend.service.sample_watch import watch_sample

        try:
            watch_sample(self._models.attributor(self._ecosystems.enrolment(enrolment)))
        except Exception:
            logging.getLogger(__name__).exception("The sample cannot be watched")

    def _audit(self, name: str) -> None:
        """Score a job and write its report."""
        try:
            self._run(name)
        except ServerError:
            self._lost_sight = True
            raise

    def _run(self, name: str) -> None:
        job = self._records.claim(name, self._process)
        if job is None:
            return
        measurements.time_stage("wait", job.created)
        with caller.on_behalf_of(Caller(job.request, job.client)):
            self._attend(job)

    def _attend(self, job: Job) -> None:
        if self.readiness.status == "failed":
            self._warm()  # weights may have come since
        place, at_fault = self._uploads.folder / job.place, None
        try:
            upload, path = self._uploads.file(place, job.key)
            at_fault = "server"
            enrolment = enrolment_with(self._ecosystems, job.enrolment, job.enrolment_sha256)
            others = [enrolment_with(self._ecosystems, *other) for other in json.loads(job.others)]
            attributor = self._models.attributor(enrolment)
            at_fault = None
            selection = self._selection(job, place, upload.sha256)
            steps = self._records.last_steps(job.place)
            result = self._score(job, attributor, others, path, upload.name, selection, steps)
            if not self._finish(job, place, result):
                return
        except GivenBackError:
            return
        except AtlasError as error:
            if self._records.must_stop(job) and not job.done:
                self._records.update(job, state="cancelled")
                measurements.JOBS.labels("cancelled").inc()
            else:
                at_fault = "server" if isinstance(error, ServerError) else at_fault
                self._fail(job, error.problem, error.remedy, at_fault, str(error))
        except Exception:
            logging.getLogger(__name__).exception("Audit %s failed", job.name)
            self._fail(job, *FAILED, "server")
        for key in job.files if job.discard else ():
            self._uploads.discard(place, key)

    def _fail(self, job: Job, problem: str, remedy: str, at_fault: str | None, message: str | None = None) -> None:
        details = json.dumps({"problem": problem, "remedy": remedy, "at_fault": at_fault})

        def log() -> None:
            if message:
                logging.getLogger(__name__).warning("Audit %s failed: %s", job.name, message)

        if self._records.end(job, log, state="failed", details=details):
            measurements.JOBS.labels("failed").inc()

    def _selection(self, job: Job, place: Path, sha256: str) -> Selection | None:
        """The traces of an uploaded report, where a job is to score those."""
        if job.report is None:
            return None
        from backend.attribution.verify import read_report, selection_for

        _, path = self._uploads.file(place, job.report)
        with open_in_turn(path) as stream:
            return selection_for(read_report(stream.read().decode("utf-8")), sha256, self._uploads.limits)

    def _score(
        self,
        job: Job,
        attributor: Attributor,
        others: Sequence[Enrolment],
        path: Path,
        name: str,
        selection: Selection | None,
        earlier: Sequence[str],
    ) -> AuditResult:
        """Score the file of a job, whose progress grows with every batch; short tasks go between those of a long one.

        path, name : where the file lies, and its name; earlier : last steps of the session's reports so far.
        """
        from backend.attribution.decision import among, source_number
        from backend.attribution.run import audit, checked

        enrolment, settings = attributor.enrolment, settings_in(job)
        prior, _ = checked(enrolment, settings)
        chosen = candidate_numbers(enrolment, settings.candidates)
        weighed, columns = among(enrolment, chosen), slice(None) if chosen is None else chosen
        claimed = None if settings.claimed is None else source_number(weighed, settings.claimed)
        running = Running(weighed.sources, weighed.log_prior, prior, claimed)
        points: tuple[Point, ...] = ()

        def progress(step: Progress) -> None:
            nonlocal points
            measurements.TRACES.inc(len(step.log_posteriors))
            points = merge_points(points, running.add(step.log_posteriors[:, columns]))
            rows = [(point.traces, point.subject, point.log10_sum, point.leader) for point in points]
            details = json.dumps({"nearest": running.nearest(), "points": rows})
            job.done = step.done
            self._records.update(job, done=step.done, seconds=step.seconds, details=details)

        def further(step: Progress) -> None:
            job.further += len(step.log_posteriors)
            self._records.update(job, further=job.further)

        def cancelled() -> bool:
            if not job.short:
                self.between()
                if self._leaving.is_set():
                    self._records.give_back(job)
                    raise GivenBackError
            stop = self._records.must_stop(job)
            if stop is None:
                raise GivenBackError
            return stop

        with path.open("rb") as stream, self._background(job, settings) as background:
            return audit(
                stream,
                inspect(stream, name, settings.columns, self._uploads.limits, settings.encoding),
                attributor,
                settings,
                selection,
                progress=progress,
                cancelled=cancelled,
                limits=self._uploads.limits,
                version=self._version,
                keep_fingerprints=job.fingerprints,
                others=[self._models.attributor(other) for other in others],
                further_progress=further,
                earlier=earlier,
                background=background,
            )

    @contextlib.contextmanager
    def _background(self, job: Job, settings: Settings) -> Iterator[tuple[BinaryIO, Layout] | None]:
        """The unlabelled traffic of a job, and what its file is; None without any."""
        if settings.background is None:
            yield None
            return
        from backend.attribution.background import layout_of

        upload, path = self._uploads.file(self._uploads.folder / job.place, job.files[1])
        with path.open("rb") as stream:
            yield stream, layout_of(stream, upload.name, settings, self._uploads.limits)

    def _finish(self, job: Job, place: Path, result: AuditResult) -> bool:
        """Write what a job has found; False where somebody else has its lease, or the session ended meanwhile."""
        from backend.attribution.report import with_confusions

        scored, last = result.scored, ""
        arrays: dict[str, Any] = {"mean": scored.mean}
        if scored.fingerprints is not None:
            arrays["fingerprints"] = scored.fingerprints
        if not job.fingerprints and job.report is None:  # windows and second runs pose no new question
            result = replace(result, report=with_confusions(result.report, self._ecosystems.data))
            last = result.report["steps"][-1]["sha256"]
        with _scratch(place / f"{job.name}.report.json") as (report, publish_report):
            report.write_text(json.dumps(result.report), "utf-8")
            with _scratch(place / f"{job.name}.npz") as (saved, publish_arrays):
                np.savez(saved, **arrays)

                def publish() -> None:
                    publish_report()
                    publish_arrays()
                    self._note_result(job, result)  # before anybody can ask for it, so that the log keeps the order

                state = "done" if scored.complete else "cancelled"
                if not self._records.end(job, publish, state=state, reported=True, last_step=last):
                    return False
        measurements.JOBS.labels(state).inc()
        return True

    def _note_result(self, job: Job, result: AuditResult) -> None:
        """Count a result, and log its verdict; windows of a comparison and second runs pose no question."""
        question = not job.fingerprints and job.report is None
        measurements.count_result(result, question=question)
        if question:
            report = result.report
            self._audit_log.write(
                "decision", job.place, job=job.name, settings=settings_in(job), file=report["input"]["sha256"],
                enrolment=job.enrolment_sha256, verdict=report["results"]["verdict"], report=report["sha256"],
            )  # fmt: skip

    def _tokens(self, name: str) -> None:
        """Answer which tokens of a trace speak for one source against another."""
        asked = self._records.question(name)
        if asked is None or asked.created < time.time() - TOKEN_SECONDS:
            return
        error = None
        try:
            question, place = json.loads(asked.question), self._uploads.folder / asked.place
            evidence = self._evidence(asked.place, place, **question)
            with _scratch(place / f"{name}.answer.json") as (file, publish):
                file.write_text(json.dumps(evidence), "utf-8")
                publish()
        except AtlasError as problem:
            kinds = {MissingError: "missing", ServerError: "server"}
            error = kinds.get(type(problem), "other"), problem.problem, problem.remedy
        except Exception:
            logging.getLogger(__name__).exception("Token evidence failed")
            error = "server", *FAILED
        self._records.answer(name, error)

    def _evidence(self, session: str, place: Path, job: str, row: int, source: str, rival: str) -> dict[str, Any]:
        from backend.attribution.decision import source_number
        from backend.attribution.scoring import listed_traces
        from backend.attribution.token_evidence import heat_map, token_evidence

        scored = self._records.find(session, job)
        if scored is None:
            raise MissingError("This session has no such audit", "Start one")
        upload, path = self._uploads.file(place, scored.key)
        settings, limits = settings_in(scored), self._uploads.limits
        report = json.loads((place / f"{job}.report.json").read_text("utf-8"))
        with open_in_turn(path) as stream:
            layout = inspect(stream, upload.name, settings.columns, limits, settings.encoding)
            trace = next(listed_traces(stream, layout, limits, report["traces"][row - 1 : row]), None)
        if trace is None:
            raise MissingError("The file holds no such trace", "Upload it again")
        enrolment = enrolment_with(self._ecosystems, scored.enrolment, scored.enrolment_sha256)
        attributor = self._models.attributor(enrolment)
        pair = source_number(enrolment, source), source_number(enrolment, rival)
        evidence = token_evidence(attributor.reader, enrolment, trace, *pair, attributor.others)
        return heat_map(row, trace.prompt, evidence) | {"cut": evidence.cut}


def settings_in(job: Job) -> Settings:
    """Settings of a job."""
    fields = json.loads(job.settings)
    lists = {name: tuple(fields.get(name, ())) for name in ("also", "candidates")}
    fields.pop("pool", None)
    return Settings(**fields | {"columns": Columns(**fields["columns"]), **lists})


def enrolment_with(ecosystems: Ecosystems, name: str, sha256: str) -> Enrolment:
    """The enrolment of a name, if it is still the one of that hash."""
    enrolment = ecosystems.enrolment(name)
    if enrolment.sha256 != sha256:
        raise MissingError(f"The ecosystem '{name}' was made anew since", "Run the audit again")
    return enrolment


@contextlib.contextmanager
def _scratch(file: Path) -> Iterator[tuple[Path, Callable[[], object]]]:
    """A name to write under, and what then gives the file its own; nothing is left of one that gets none."""
    scratch = file.with_name(f"{secrets.token_hex(4)}-{file.name}")
    try:
        yield scratch, functools.partial(os.replace, scratch, file)
    finally:
        scratch.unlink(missing_ok=True)
