"""Live attribution for a server: what page and REST call.

Torch is imported when the first enrolment is read, forward passes run one at a time in one background thread, and
nothing here waits for them except :meth:`Service.wait` and :meth:`Service.tokens`. No session sees files or jobs of
another one; results of a job lie next to its file, not in memory.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import os
import re
import secrets
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import numpy.typing as npt

from backend.attribution.settings import Settings, settings_of
from backend.enrolment.catalogue import Ecosystem, Ecosystems, sample_enrolment_of, sample_file, sample_labels
from backend.enrolment.claims import with_claims
from backend.errors import AtlasError, ServerError
from backend.fingerprints import cache_folder
from backend.intake import Columns, Layout, Limits, Preview, inspect, preview
from backend.service import caller, measurements
from backend.service.audit_log import AuditLog
from backend.service.caller import Caller
from backend.service.job import SHORT, Job, Running, Snapshot, Worker
from backend.service.uploads import LIFETIME, BusyError, LostError, MissingError, Upload, Uploads, open_in_turn
from backend.store.builds import code_version
from backend.traces import Trace

if TYPE_CHECKING:
    from backend.attribution.decision import EnrolmentCapabilities
    from backend.attribution.run import AuditResult
    from backend.attribution.scoring import Attributor, Loaded, Models, Progress, Selection
    from backend.attribution.verify import Check
    from backend.enrolment.enrolment import Enrolment

SESSION_JOBS = 4  # jobs of one session that wait or run at a time
LIVE_JOBS = 32  # jobs of all sessions that wait or run at a time
CLIENT_JOBS = LIVE_JOBS // 2  # jobs of one client, whatever its sessions, that wait or run at a time
KNOWN_JOBS = 1_000  # those that ended longest ago are deleted beyond it
STOP_SECONDS = 60.0  # for which a server that is stopped waits for the batch that is read
TOKEN_SECONDS = 120  # for which token evidence is waited for
SWEEP = 600  # seconds between two looks for what would be too old before the next one
# Torch builds a product in bfloat16 for every shape of a batch, and by default keeps 1,024 of them twice over: 850 MB
# after a thousand batches of other lengths; one batch needs five. Read when it multiplies for the first time.
CACHES = {"LRU_CACHE_CAPACITY": "32", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "32"}
REMEDY = "Tell whoever runs the server; its log says more"
FAILED = ("The server could not score these traces", REMEDY)
_NAME = re.compile(r"[0-9a-f]{24}")


@dataclass(frozen=True)
class Readiness:
    """Whether the proxy of the default ecosystem is in memory."""

    status: str  # absent (no ecosystem is enrolled here), loading, ready, failed
    proxy: str | None = None
    problem: str | None = None  # a sentence without a full stop
    remedy: str | None = None


class Service:
    """One a process; every method may be called from any thread.

    data : data folder; its ``enrolments/`` are the ecosystems; cache : folder in which uploads lie.
    load : name of a proxy to its reader and the hash of its weights; by default out of the registry.
    limits : of an upload.
    """

    def __init__(
        self,
        data: Path,
        cache: Path | None = None,
        *,
        load: Callable[[str], Loaded] | None = None,
        limits: Limits | None = None,
    ) -> None:
        for name, capacity in CACHES.items():
            os.environ.setdefault(name, capacity)
        self.limits = limits or Limits()
        self.uploads = Uploads((cache or cache_folder()) / "uploads", self.limits)
        self.audit_log = AuditLog.of(cache or cache_folder())
        self._ecosystems = Ecosystems(data)
        self._load = load
        self._worker = Worker("attribution")
        absent = "No ecosystem is enrolled here", "Run: python -m jobs enroll --sample"
        self._readiness = Readiness("absent", None, *absent)
        self._lock = threading.Lock()
        self._jobs: dict[tuple[str, str], Job] = {}
        self._stopped = False
        self.uploads.sweep_unowned()
        self.sweep()
        ended = threading.Event()
        weakref.finalize(self, ended.set)
        threading.Thread(target=_keep_sweeping, args=(weakref.ref(self), ended), name="sweeping", daemon=True).start()

    def state(self) -> Readiness:
        """Whether the default ecosystem's proxy is in memory; begins to load it where an ecosystem appeared since."""
        if self._readiness.status == "absent" and not self._ecosystems.empty():
            self.warm()
        return self._readiness

    def warm(self) -> None:
        """Load the default ecosystem's proxy in the background; without an ecosystem nothing happens."""
        with self._lock:
            if self._ecosystems.empty() or self._readiness.status in ("loading", "ready"):
                return
            self._readiness = Readiness("loading")
        self._worker.submit(self._warm, short=True)

    def _warm(self) -> None:
        """Load the proxy and read a few lines with it, so that the first trace of a person does not pay for it.

        A compiled pass is built for each of its forms: one trace, several, and several that share a long prompt.
        """
        proxy = None
        try:
            enrolment = self._ecosystems.enrolment(None)
            proxy = enrolment.proxy
            self._readiness = Readiness("loading", proxy)
            attributor = self._models.attributor(enrolment)
            attributor.score([Trace("Are you there?", "Yes, I am here.")])
            attributor.score([Trace(f"Question {i}?", "An answer. " * (i + 1)) for i in range(4)])
            attributor.score([Trace("A long question, word by word. " * 16, f"Answer {i}.") for i in range(8)])
            self._readiness = Readiness("ready", proxy)
        except AtlasError as error:
            self._readiness = Readiness("failed", proxy, error.problem, error.remedy)
        except Exception as error:
            logging.getLogger(__name__).exception("The proxy could not be loaded")
            problem = f"The proxy could not be loaded ({type(error).__name__})"
            self._readiness = Readiness("failed", proxy, problem, REMEDY)

    @functools.cached_property
    def _models(self) -> Models:
        """Loaded proxies, by default out of the registry; for the worker's thread only."""
        from backend.attribution.scoring import Models, from_registry

        return Models(self._load or from_registry)

    @functools.cached_property
    def _version(self) -> str:
        return code_version()

    def ecosystems(self) -> list[Ecosystem]:
        """Ecosystems that are enrolled here, by name; new files are seen without a restart."""
        return self._ecosystems.all()

    def damaged(self) -> list[AtlasError]:
        """Enrolments that could not be read when they were last needed."""
        return list(self._ecosystems.damaged().values())

    def upload(self, session: str, name: str, content: bytes, *, passing: bool = False) -> Upload:
        """Store a file for a session, a key that nobody guesses; see :meth:`Uploads.add` for ``passing``."""
        added = self.uploads.add(session, name, content, passing=passing)
        self.audit_log.write("upload", session, file=added.key)
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
        select: Callable[[], Selection] | None = None,
        client: str | None = None,
    ) -> str:
        """Queue an audit; an AtlasError names what is wrong with the settings or the file at once.

        discard : delete the file as soon as it is scored; token evidence is then not to be had.
        fingerprints : keep every trace's fingerprint next to the report, for a test of drift.
        select : makes a selection of traces; by default the settings' own.
        client : address of whoever sends this, whose jobs are limited over all sessions.
        """
        upload, path = self.uploads.get(session, key)
        enrolment, begun = self._ecosystems.enrolment(settings.enrolment, settings.claimed), time.time()
        from backend.attribution import run  # torch is here already, with the enrolment
        from backend.attribution.scoring import Selection

        run.checked(enrolment, settings)
        others = run.others_of(enrolment, settings, self._ecosystems.enrolment)
        with open_in_turn(path) as stream:
            layout = inspect(stream, upload.name, settings.columns, self.limits, settings.encoding)
            selection = Selection.of(settings, self.limits) if select is None else select()
            total = selection.count(stream, layout, self.limits)
        measurements.time_stage("parse", begun)
        name = secrets.token_hex(12)
        now = Snapshot(name, enrolment.name, total, settings.claimed, further_total=total * len(others))
        job = Job(now, key, settings, enrolment.sha256, others, discard, fingerprints, select, client)
        job.request = caller.current().request
        with self._lock:
            if self._stopped:
                raise ServerError("The server is being stopped", "Try again in a minute")
            live = [(owner, other.client) for (owner, _), other in self._jobs.items() if not other.now.ended]
            if (
                len(live) >= LIVE_JOBS
                or sum(owner == session for owner, _ in live) >= SESSION_JOBS
                or (client is not None and sum(other == client for _, other in live) >= CLIENT_JOBS)
            ):
                raise BusyError("Too many audits wait or run already", "Wait until one has ended, or cancel it")
            try:
                self._place(session, name, "job").touch()
            except OSError as error:
                raise ServerError(f"The audit cannot be noted ({error.strerror})", REMEDY) from error
            self._jobs[session, name] = job
        self.audit_log.write("start", session, job=name, settings=settings, file=key, enrolment=enrolment.sha256)
        if self._readiness.status == "failed":
            self.warm()  # weights may have come since
        attend = caller.on_behalf_of(Caller(job.request, job.client))(self._run)
        job.number = self._worker.submit(lambda: attend(session, job, enrolment), short=total <= SHORT)
        return name

    def progress(self, session: str, job: str) -> Snapshot:
        """How far a job is, and what the traces so far say."""
        found = self._job(session, job)
        now = found.now
        return replace(now, waiting=self._worker.before(found.number)) if now.state == "queued" else now

    def wait(self, session: str, job: str, seconds: float, after: int | None = None) -> Snapshot:
        """Wait until a job has ended, or has scored more traces than ``after``, or the time is over."""
        self._job(session, job).wait(seconds, after)
        return self.progress(session, job)

    def cancel(self, session: str, job: str) -> Snapshot:
        """End a job after the batch that runs; what is done is reported."""
        self._job(session, job).cancel()
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
            job.set_state("cancelled")
        if self.uploads.forget(session):
            self.audit_log.write("delete", session)

    def forget_lost(self, session: str) -> bool:
        """Delete what a session holds whose jobs an earlier process had; False where there is nothing."""
        with self._lock:
            if any(owner == session for owner, _ in self._jobs) or not self.uploads.place(session).is_dir():
                return False
        self.forget(session)
        return True

    def close(self, seconds: float = STOP_SECONDS) -> None:
        """End all jobs after the batch that is read, and delete the files of passing sessions."""
        with self._lock:
            self._stopped = True
            live = [job for job in self._jobs.values() if not job.now.ended]
        for job in live:
            job.cancel()
        if running := [job for job in live if not job.now.ended]:
            logging.getLogger(__name__).warning("Stopping after the batch that is read, in %.0f s at most", seconds)
            until = time.monotonic() + seconds
            for job in running:
                job.wait(until - time.monotonic())
        if live:
            logging.getLogger(__name__).warning("%d audits were ended because the server is stopped", len(live))
        self.uploads.sweep_unowned()

    def sweep(self) -> None:
        """Delete what would be too old before the next look."""
        until = time.time() + SWEEP
        with self._lock:
            ended = [name for name, job in self._jobs.items() if job.now.ended]
            old = [name for name in ended if _is_over(self._jobs[name], until)]
            surplus = ended[: max(0, len(self._jobs) - KNOWN_JOBS)]
            for name in {*old, *surplus}:
                del self._jobs[name]
                for ending in ("report.json", "npz", "job"):
                    with contextlib.suppress(OSError):
                        self._place(*name, ending).unlink()
        self.uploads.sweep(until)

    def report(self, session: str, job: str) -> dict[str, Any]:
        """Report of a job that has ended.

        Raises MissingError, also where it has not ended; AtlasError with the problem of a job that failed.
        """
        now = self._job(session, job).now
        if now.reported:
            try:
                report: dict[str, Any] = json.loads(self._place(session, job, "report.json").read_text("utf-8"))
                return report
            except OSError as error:
                raise MissingError("The report was deleted", "Run the audit again") from error
        if now.state == "failed":
            raise AtlasError(now.problem or FAILED[0], now.remedy or FAILED[1])
        if now.state == "cancelled":
            raise MissingError("The audit was cancelled before the first batch", "Run it again")
        raise MissingError("The audit has not ended", "Wait for it, or cancel it: what is done is kept")

    def read_report(self, session: str, key: str) -> dict[str, Any]:
        """A report out of an uploaded file."""
        from backend.attribution.verify import read_report

        _, path = self.uploads.get(session, key)
        try:
            with open_in_turn(path) as stream:
                return read_report(stream.read().decode("utf-8"))
        except UnicodeDecodeError as error:
            raise AtlasError("The report is no JSON", "Give the .json file that was written with it") from error
        except OSError as error:
            raise MissingError("The report was deleted", "Upload it again") from error

    def agrees(self, session: str, key: str) -> Check:
        """Whether an uploaded report agrees with itself; nothing is scored."""
        from backend.attribution.verify import Check, alterations

        report = self.read_report(session, key)
        check = Check.of(report, alterations(report))
        self._note_check(session, check)
        return check

    def recompute(self, session: str, key: str, traces: str, client: str | None = None) -> str:
        """Queue the traces of an uploaded report to be scored once more.

        Returns the job, for :meth:`checked`.
        Raises AtlasError if the file holds none of the report's traces, or the ecosystem is not here.
        """
        from backend.attribution.verify import fitting, selection_for

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
            settings, layout = fitting(settings, own, stream, upload.name, self.limits)
        select = functools.partial(selection_for, report, layout.sha256, self.limits)
        return self.start(session, traces, settings, select=select, client=client)

    def checked(self, session: str, key: str, job: str) -> Check:
        """Compare an uploaded report with its traces, which a job has scored once more."""
        from backend.attribution.verify import compared

        report, again = self.read_report(session, key), self.report(session, job)
        enrolment = self._enrolment_of(self._job(session, job))
        check = compared(report, again, enrolment, self._arrays(session, job)["mean"])
        self._note_check(session, check)
        return check

    def samples(self) -> list[str]:
        """Models of the shipped sample traces, in the order of their numbers."""
        return sample_labels()

    def sample(self, session: str, number: int = 0) -> Upload:
        """Shipped traces of one model on prompts that the sample ecosystem has not seen.

        The upload's ``enrolment`` is the sample ecosystem, or None where that is not enrolled here.
        """
        enrolment = sample_enrolment_of([self._ecosystems.enrolment(one.name) for one in self._ecosystems.all()])
        label, content = sample_file(number, enrolment)
        name = None if enrolment is None else enrolment.name
        return self.uploads.add(session, f"sample-{number + 1}.jsonl", content, enrolment=name, label=label)

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
        self.audit_log.write("report", session, job=job, report=report["sha256"])
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
        from backend.attribution.scoring import listed_traces
        from backend.attribution.token_evidence import heat_map, token_evidence

        if not 1 <= row <= len(report["traces"]):
            raise AtlasError(f"There is no trace {row}", f"Choose 1 to {len(report['traces'])}")
        with self._open(session, scored) as (stream, layout):
            trace = next(listed_traces(stream, layout, self.limits, report["traces"][row - 1 : row]), None)
        if trace is None:
            raise MissingError("The file holds no such trace", "Upload it again")
        enrolment = self._enrolment_of(scored)

        first, second = source or report["results"]["subject"], rival or report["results"]["rival"]
        pair = source_number(enrolment, first), source_number(enrolment, second)
        if first == second:
            raise AtlasError("The source and its rival are the same", "Choose two sources")

        def tokens() -> dict[str, Any]:
            attributor = self._models.attributor(enrolment)
            evidence = token_evidence(attributor.reader, enrolment, trace, *pair, attributor.others)
            return heat_map(row, trace.prompt, evidence) | {"cut": evidence.cut}

        try:
            return self._worker.ask(tokens, TOKEN_SECONDS)
        except TimeoutError as error:
            raise BusyError("The proxy is busy with other traces", "Try again in a minute") from error

    def start_windows(
        self, session: str, keys: Sequence[str], settings: Settings, client: str | None = None
    ) -> list[str]:
        """Queue the windows of a test of drift; where something is wrong with one of them, none runs.

        keys : files of the two windows, the earlier one first, or of one whose halves are compared.
        settings : from :func:`backend.attribution.settings.of_windows`. Returns the jobs, for :meth:`drift`.
        """
        jobs: list[str] = []
        try:
            jobs += [self.start(session, key, settings, fingerprints=True, client=client) for key in keys]
            from backend.attribution.drift_report import long_enough

            names = [self.uploads.get(session, key)[0].name for key in keys]
            long_enough([self.progress(session, job).total for job in jobs], names)
        except AtlasError:
            for job in jobs:
                self.cancel(session, job)
            raise
        return jobs

    def drift(self, session: str, before: str, after: str | None = None) -> dict[str, Any]:
        """Test whether two windows of traces differ, from the fingerprints of their jobs.

        Of cancelled jobs, what they have read is compared; without ``after``, the halves of ``before``.
        Returns a :func:`backend.attribution.drift_report.drift_answer`; a StoppedError says that too little was read.
        """
        from backend.attribution.drift_report import Window, drift_answer, enough_read
        from backend.attribution.scoring import listed_traces

        names = (before, after) if after else (before,)
        jobs = [self._job(session, name) for name in names]
        now = [job.now for job in jobs]
        if any(one.state == "cancelled" for one in now):
            enough_read([(one.done, one.total) for one in now])
        read = []
        for job in jobs:
            report = self.report(session, job.now.job)
            with self._open(session, job) as (stream, layout):
                fingerprints = self._arrays(session, job.now.job).get("fingerprints")
                if fingerprints is None:
                    raise MissingError("The fingerprints of these traces were not kept", "Compare the windows again")
                found = listed_traces(stream, layout, self.limits, report["traces"])
                prompts = [trace.prompt for trace in found]
            read.append(Window(report, fingerprints, prompts, job.now.total))
        answer = drift_answer(read, self._enrolment_of(jobs[0]), jobs[0].settings)
        self.audit_log.write("comparison", session, job=before, verdict=answer["verdict"], report=answer["sha256"])
        return answer

    def _enrolment_of(self, job: Job) -> Enrolment:
        """The enrolment that a job was scored with."""
        enrolment = self._ecosystems.enrolment(job.now.enrolment)
        if enrolment.sha256 != job.enrolment_sha256:
            raise MissingError(f"The ecosystem '{job.now.enrolment}' was made anew since", "Run the audit again")
        return enrolment

    @contextlib.contextmanager
    def _open(self, session: str, job: Job) -> Iterator[tuple[BinaryIO, Layout]]:
        """The file of a job when it is its turn, and what the file is."""
        upload, path = self.uploads.get(session, job.key)
        with open_in_turn(path) as stream:
            yield stream, inspect(stream, upload.name, job.settings.columns, self.limits, job.settings.encoding)

    def _arrays(self, session: str, job: str) -> dict[str, npt.NDArray[Any]]:
        """Mean fingerprint of a job's traces, and where they were requested all fingerprints."""
        with np.load(self._place(session, job, "npz"), allow_pickle=False) as saved:
            return dict(saved)

    def _run(self, session: str, job: Job, enrolment: Enrolment) -> None:
        """Score a job and write its report, in the worker's thread."""
        name, at_fault = job.now.job, None
        try:
            if job.stop.is_set():
                job.set_state("cancelled")
                return
            upload, path = self.uploads.get(session, job.key)
            job.set_state("running")
            measurements.time_stage("wait", job.created)
            at_fault = "server"
            attributor = self._models.attributor(enrolment)
            at_fault = None
            with self._lock:
                steps = [other.last_step for (owner, _), other in self._jobs.items() if owner == session]
            result = self._score(job, attributor, path, upload.name, [step for step in steps if step])
            scored = result.scored
            arrays: dict[str, Any] = {"mean": scored.mean}
            if scored.fingerprints is not None:
                arrays["fingerprints"] = scored.fingerprints
            with self._lock:
                if (session, name) not in self._jobs:
                    return  # the session ended meanwhile
                self._place(session, name, "report.json").write_text(json.dumps(result.report), "utf-8")
                np.savez(self._place(session, name, "npz"), **arrays)
            if not job.fingerprints and job.select is None:  # windows and second runs pose no new question
                job.last_step = result.report["steps"][-1]["sha256"]
            self._note_result(session, job, result)
            job.set_state("done" if scored.complete else "cancelled", reported=True)
        except AtlasError as error:
            if job.stop.is_set() and not job.now.done:
                job.set_state("cancelled")
            else:
                logging.getLogger(__name__).warning("Audit %s failed: %s", name, error)
                job.set_state("failed", problem=error.problem, remedy=error.remedy, at_fault=at_fault)
        except Exception:
            logging.getLogger(__name__).exception("Audit %s failed", name)
            job.set_state("failed", problem=FAILED[0], remedy=FAILED[1], at_fault="server")
        finally:
            measurements.JOBS.labels(job.now.state).inc()
            job.select = None  # its report may be long
            if job.discard:
                self.uploads.discard(session, job.key)

    def _score(self, job: Job, attributor: Attributor, path: Path, name: str, earlier: Sequence[str]) -> AuditResult:
        """Score the file of a job, whose progress grows with every batch; short tasks go between those of a long one.

        path, name : where the file lies, and its name; earlier : last steps of the session's reports so far.
        """
        from backend.attribution.decision import source_number
        from backend.attribution.run import audit, checked

        enrolment, settings = attributor.enrolment, job.settings
        prior, _ = checked(enrolment, settings)
        claimed = None if settings.claimed is None else source_number(enrolment, settings.claimed)
        running = Running(enrolment.sources, enrolment.log_prior, prior, claimed)

        def progress(step: Progress) -> None:
            measurements.TRACES.inc(len(step.log_posteriors))
            job.add_batch(step.done, step.seconds, running.add(step.log_posteriors), running.nearest())

        def cancelled() -> bool:
            if job.now.total > SHORT:
                self._worker.between()
            return job.stop.is_set()

        with path.open("rb") as stream:
            return audit(
                stream,
                inspect(stream, name, settings.columns, self.limits, settings.encoding),
                attributor,
                settings,
                None if job.select is None else job.select(),
                progress=progress,
                cancelled=cancelled,
                limits=self.limits,
                version=self._version,
                keep_fingerprints=job.fingerprints,
                others=[self._models.attributor(other) for other in job.others],
                further_progress=lambda step: job.add_further(len(step.log_posteriors)),
                earlier=earlier,
            )

    def _job(self, session: str, job: str) -> Job:
        with self._lock:
            found = self._jobs.get((session, job))
        if found is None and _NAME.fullmatch(job) and self._place(session, job, "job").exists():
            raise LostError(
                "The server was started again since, and this audit was lost", "Start it again; the file is still here"
            )
        if found is None or _is_over(found):
            raise MissingError("This session has no such audit", "Start one; what is older than 24 hours is deleted")
        return found

    def _place(self, session: str, job: str, ending: str) -> Path:
        return self.uploads.place(session) / f"{job}.{ending}"

    def load(self) -> dict[str, int]:
        """How many jobs wait and how many run."""
        with self._lock:
            states = [job.now.state for job in self._jobs.values()]
        return {state: states.count(state) for state in ("queued", "running")}

    def _note_result(self, session: str, job: Job, result: AuditResult) -> None:
        """Count a result, and log its verdict; windows of a comparison and second runs pose no question."""
        question = not job.fingerprints and job.select is None
        measurements.count_result(result, question=question)
        if question:
            report = result.report
            self.audit_log.write(
                "decision", session, job=job.now.job, settings=job.settings, file=report["input"]["sha256"],
                enrolment=job.enrolment_sha256, verdict=report["results"]["verdict"], report=report["sha256"],
            )  # fmt: skip

    def _note_check(self, session: str, result: Check) -> None:
        self.audit_log.write("verify", session, report=result.sha256, verdict="equal" if result.equal else "not equal")


def _is_over(job: Job, when: float | None = None) -> bool:
    """Whether nobody may see a job any more; one that runs so long is served to its end."""
    return job.now.ended and job.created < (time.time() if when is None else when) - LIFETIME


def _keep_sweeping(service: weakref.ref[Service], ended: threading.Event) -> None:
    """Sweep every few minutes, also without requests, for as long as the service is used."""
    while not ended.wait(SWEEP):
        current = service()
        if current is not None:
            current.sweep()
        del current
