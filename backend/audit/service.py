"""Live attribution for a server: sessions, jobs, and the one thread that runs the proxy.

Page and REST ask here and nowhere else. No session sees what another one holds. Torch is imported when the first
enrolment is read, forward passes run one at a time in one background thread, and nothing here waits for them except
:meth:`Service.wait` and :meth:`Service.tokens`.
"""

from __future__ import annotations

import contextlib
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from backend.audit.ecosystems import Ecosystem, Ecosystems
from backend.audit.intake import Columns, Limits, inspect
from backend.audit.progress import ENDED, Job, Snapshot
from backend.audit.settings import Settings
from backend.audit.uploads import LIFETIME, BusyError, MissingError, Preview, Upload, Uploads
from backend.audit.worker import Worker
from backend.errors import AtlasError
from backend.fingerprints import cache_folder
from backend.store.database import Generation
from backend.store.signature_queries import signatures

if TYPE_CHECKING:
    from backend.audit.engine import Engine, Loaded
    from backend.audit.enrolment import Enrolment

SESSION_JOBS = 4
"""Jobs of one session that wait or run at a time."""
LIVE_JOBS = 32
"""Jobs of all sessions that wait or run at a time."""
KEPT_JOBS = 1_000
"""Jobs that are known; those that ended longest ago are deleted beyond it."""
SHORT = 200
"""Traces up to which a job goes before longer ones, and between two batches of one."""
SWEEP = 600
"""Seconds between two looks for what is too old."""
TOKEN_SECONDS = 120
FAILED = ("The server could not score these traces", "Tell whoever runs it; its log says more")


@dataclass(frozen=True)
class Readiness:
    """Whether the proxy of the default ecosystem is in memory.

    Attributes
    ----------
    status : str
        absent (no ecosystem is enrolled here), loading, ready, failed.
    proxy : str or None
    problem, remedy : str or None
        Sentences without a full stop.
    """

    status: str
    proxy: str | None = None
    problem: str | None = None
    remedy: str | None = None


class Service:
    """One a process; every method may be called from any thread.

    Parameters
    ----------
    data : Path
        Data folder; its ``enrolments/`` are the ecosystems.
    cache : Path, optional
        Cache folder, in which uploads lie.
    generation : callable, optional
        The generation that is served, for the sources' signatures.
    load : callable, optional
        Name of a proxy to its reader and the hash of its weights; by default out of the registry.
    limits : Limits, optional
        Of an upload.
    """

    def __init__(
        self,
        data: Path,
        cache: Path | None = None,
        *,
        generation: Callable[[], Generation] | None = None,
        load: Callable[[str], Loaded] | None = None,
        limits: Limits | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.uploads = Uploads((cache or cache_folder()) / "uploads", self.limits)
        self._ecosystems = Ecosystems(data)
        self._generation = generation
        self._load = load
        self._engine_made: Engine | None = None
        self._worker = Worker("attribution")
        self._lock = threading.Lock()
        self._jobs: dict[tuple[str, str], Job] = {}
        self._readiness = Readiness(
            "absent", None, "No ecosystem is enrolled here", "Run: python -m jobs enroll --sample"
        )
        self._swept = 0.0
        self._sweep()

    # ---- the proxy --------------------------------------------------------------------------------------------------

    def state(self) -> Readiness:
        """Whether the default ecosystem's proxy is in memory; asks for it where an ecosystem appeared since."""
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
        proxy = None
        try:
            enrolment = self._ecosystems.enrolment(None)
            proxy = enrolment.proxy
            self._readiness = Readiness("loading", proxy)
            self._engine().warm(enrolment)
            self._readiness = Readiness("ready", proxy)
        except AtlasError as error:
            self._readiness = Readiness("failed", proxy, error.problem, error.remedy)
        except Exception as error:
            logging.getLogger(__name__).exception("The proxy could not be loaded")
            self._readiness = Readiness(
                "failed", proxy, f"The proxy could not be loaded ({type(error).__name__})", FAILED[1]
            )

    def _engine(self) -> Engine:
        """Made in the worker's thread, because it brings torch and transformers."""
        if self._engine_made is None:
            from backend.audit.engine import Engine, from_registry

            self._engine_made = Engine(self._load or from_registry, self.limits)
        return self._engine_made

    def ecosystems(self) -> list[Ecosystem]:
        """Ecosystems that are enrolled here, by name; new files are seen without a restart."""
        return self._ecosystems.all()

    # ---- files ------------------------------------------------------------------------------------------------------

    def upload(self, session: str, name: str, content: bytes) -> Upload:
        """Keep a file for a session.

        Parameters
        ----------
        session : str
            A key that nobody guesses, at least 16 characters.
        name : str
        content : bytes
            At most 25 MB.

        Raises
        ------
        AtlasError
            TooLargeError, BusyError, or if it is empty.
        """
        self._sweep()
        return self.uploads.add(session, name, content)

    def inspect(self, session: str, key: str, columns: Columns | None = None) -> Preview:
        """What a file is, with every bad place; nothing is scored.

        Raises
        ------
        AtlasError
            MissingError, or if no trace can be read out of it.
        """
        return self.uploads.preview(session, key, columns)

    def samples(self) -> list[str]:
        """Models of the shipped sample traces, in the order of their numbers."""
        from backend.audit.samples import sample_labels

        return sample_labels()

    def sample(self, session: str, number: int = 0) -> Upload:
        """Shipped traces of one model on prompts that the sample ecosystem has not seen.

        Returns
        -------
        Upload
            Its ``enrolment`` is the sample ecosystem, or None where that is not enrolled here.
        """
        from backend.audit.samples import sample_enrolment_of, sample_file

        held = [self._ecosystems.enrolment(one.name) for one in self._ecosystems.all()]
        enrolment = sample_enrolment_of(held)
        label, content = sample_file(number, enrolment)
        name = None if enrolment is None else enrolment.name
        return self.uploads.add(session, f"sample-{number + 1}.jsonl", content, enrolment=name, label=label)

    # ---- jobs -------------------------------------------------------------------------------------------------------

    def start(
        self, session: str, key: str, settings: Settings, *, discard: bool = False, fingerprints: bool = False
    ) -> str:
        """Queue an audit; what is wrong with the settings or the file is said at once.

        Parameters
        ----------
        session, key : str
        settings : Settings
        discard : bool
            Delete the file as soon as it is scored; token evidence is then not to be had.
        fingerprints : bool
            Keep every trace's fingerprint beside the report, for a test of drift.

        Returns
        -------
        str
            The job.

        Raises
        ------
        AtlasError
            MissingError, BusyError, or whatever is wrong.
        """
        self._sweep()
        upload, path = self.uploads.get(session, key)
        enrolment = self._ecosystems.enrolment(settings.enrolment, settings.claimed)
        from backend.audit.inquiry import checked, selection_of  # torch is here already, with the enrolment

        checked(enrolment, settings)
        with path.open("rb") as stream:
            layout = inspect(stream, upload.name, settings.columns, self.limits)
            counted = selection_of(settings, self.limits)
            total = sum(1 for _ in counted.traces(stream, layout, self.limits))
        if not total:
            first = counted.problems[0] if counted.problems else None
            where = f" ({layout.unit} {first.place:,}: {first.reason})" if first else ""
            raise AtlasError(
                f"There is no trace in {layout.name}{where}", "Check the file and the mapping of its columns"
            )
        job = Job(
            secrets.token_hex(12), key, settings, enrolment.name, enrolment.sha256, total,
            discard=discard, fingerprints=fingerprints,
        )  # fmt: skip
        with self._lock:
            live = [held for held, other in self._jobs.items() if other.state not in ENDED]
            if len(live) >= LIVE_JOBS or sum(held[0] == session for held in live) >= SESSION_JOBS:
                raise BusyError("Too many audits wait or run already", "Wait until one has ended, or cancel it")
            self._jobs[session, job.name] = job
        if self._readiness.status == "failed":
            self.warm()
        job.number = self._worker.submit(lambda: self._run(session, job, enrolment), short=total <= SHORT)
        return job.name

    def progress(self, session: str, job: str) -> Snapshot:
        """How far a job is, and what the traces so far say.

        Raises
        ------
        MissingError
            If this session has no such job.
        """
        held = self._job(session, job)
        return held.snapshot(self._worker.before(held.number) if held.state == "queued" else 0)

    def wait(self, session: str, job: str, seconds: float, after: int | None = None) -> Snapshot:
        """Wait until a job has ended, or has scored more traces than ``after``, or the time is over."""
        held = self._job(session, job)
        with held.changed:
            held.changed.wait_for(
                lambda: held.state in ENDED or (after is not None and held.done > after), timeout=seconds
            )
        return self.progress(session, job)

    def cancel(self, session: str, job: str) -> Snapshot:
        """End a job after the batch that runs; what is done is kept and reported."""
        held = self._job(session, job)
        held.stop.set()
        with held.changed:
            if held.state == "queued":
                held.become("cancelled")
        return self.progress(session, job)

    def jobs(self, session: str) -> list[Snapshot]:
        """Jobs of a session, the newest first."""
        with self._lock:
            names = [name for owner, name in self._jobs if owner == session]
        return [self.progress(session, name) for name in reversed(names)]

    def report(self, session: str, job: str) -> dict[str, Any]:
        """Report of a job that has ended.

        Raises
        ------
        AtlasError
            MissingError; the problem of a job that failed; or that it has not ended.
        """
        held = self._job(session, job)
        if held.reported:
            try:
                report: dict[str, Any] = json.loads(self._place(session, job, "report.json").read_text("utf-8"))
                return report
            except OSError as error:
                raise MissingError("The report was deleted", "Run the audit again") from error
        if held.state == "failed":
            raise AtlasError(held.problem or FAILED[0], held.remedy or FAILED[1])
        if held.state == "cancelled":
            raise MissingError("The audit was cancelled before the first batch", "Run it again")
        raise MissingError("The audit has not ended", "Wait for it, or cancel it: what is done is kept")

    def export(self, session: str, job: str, form: str) -> str:
        """Report of a job as 'html', 'json' or 'csv'."""
        report = self.report(session, job)
        from backend.audit.page import write_html
        from backend.audit.report import write_csv, write_json

        writers = {"html": write_html, "json": write_json, "csv": write_csv}
        if form not in writers:
            raise AtlasError(f"There is no form '{form[:20]}' of a report", f"Choose from {', '.join(writers)}")
        return writers[form](report)

    def tokens(
        self, session: str, job: str, row: int, source: str | None = None, rival: str | None = None
    ) -> dict[str, Any]:
        """Which response tokens of a trace speak for one source against another.

        Parameters
        ----------
        session, job : str
        row : int
            Number of the trace in the report, from 1.
        source, rival : str, optional
            By default the report's subject and its strongest rival.

        Returns
        -------
        dict
            number, prompt, source, rival, log_odds, stored, pieces (text, start, stop, value), rest, cut. The values
            of the pieces sum to log_odds.

        Raises
        ------
        AtlasError
            MissingError where the file was deleted, BusyError where the proxy does not get to it.
        """
        held, report = self._job(session, job), self.report(session, job)
        if not 1 <= row <= len(report["traces"]):
            raise AtlasError(f"There is no trace {row}", f"Choose 1 to {len(report['traces'])}")
        upload, path = self.uploads.get(session, held.key)
        enrolment = self._same(held)
        from backend.audit.engine import trace_at

        trace = trace_at(path, upload.name, held.settings.columns, self.limits, report["traces"][row - 1])
        first, second = source or report["results"]["subject"], rival or report["results"]["rival"]
        try:
            return self._worker.ask(lambda: self._engine().tokens(enrolment, trace, row, first, second), TOKEN_SECONDS)
        except TimeoutError as error:
            raise BusyError("The proxy is busy with other traces", "Try again in a minute") from error

    def lands(self, session: str, job: str, domain: str | None = None) -> dict[str, Any] | None:
        """Where the traces lie among the sources in the original space.

        Returns
        -------
        dict or None
            domain, layer, reader, roster, rows (source, family, cosine, rank; the nearest first); None where the
            generation holds no signatures of this ecosystem at the block that was read.
        """
        held = self._job(session, job)
        if not held.reported:
            return None
        enrolment = self._same(held)
        roster = str(enrolment.facts.get("roster", enrolment.name))
        at = domain or str(enrolment.facts.get("benchmark", ""))
        try:
            with np.load(self._place(session, job, "npz"), allow_pickle=False) as kept:
                signature = kept["signature"]
            among = self._signatures(enrolment, roster, at)
        except OSError:
            return None
        if not among or any(vector.shape != signature.shape for vector in among.values()):
            return None
        from backend.audit.engine import standing

        family = dict(zip(enrolment.sources, enrolment.families, strict=True))
        rows = [row | {"family": family.get(row["source"], "")} for row in standing(signature, among)]
        return {
            "domain": at, "layer": enrolment.layers[-1], "reader": enrolment.reader, "roster": roster, "rows": rows,
        }  # fmt: skip

    def forget(self, session: str) -> None:
        """End a session: its jobs stop, and its files and reports are deleted."""
        with self._lock:
            mine = [held for held in self._jobs if held[0] == session]
            ended = [self._jobs.pop(held) for held in mine]
        for job in ended:
            job.stop.set()
            job.become("cancelled")
        self.uploads.forget(session)

    # ---- inside -----------------------------------------------------------------------------------------------------

    def _run(self, session: str, job: Job, enrolment: Enrolment) -> None:
        at_fault: str | None = None
        try:
            if job.stop.is_set():
                job.become("cancelled")
                return
            upload, path = self.uploads.get(session, job.key)
            job.become("running")
            between = None if job.total <= SHORT else self._worker.between
            at_fault = "server"
            self._engine().attributor(enrolment)
            at_fault = None
            inquiry = self._engine().run(job, enrolment, path, upload.name, between)
            scored = inquiry.scored
            kept: dict[str, Any] = {"signature": scored.signature}
            if scored.fingerprints is not None:
                kept["fingerprints"] = scored.fingerprints
            with self._lock:
                if (session, job.name) not in self._jobs:
                    return  # the session ended meanwhile
                self._place(session, job.name, "report.json").write_text(json.dumps(inquiry.report), "utf-8")
                np.savez(self._place(session, job.name, "npz"), **kept)
            job.reported = True
            job.become("done" if scored.complete else "cancelled")
        except AtlasError as error:
            if job.stop.is_set() and not job.done:
                job.become("cancelled")
            else:
                job.become("failed", error.problem, error.remedy, at_fault)
        except Exception:
            logging.getLogger(__name__).exception("An audit failed")
            job.become("failed", *FAILED, "server")
        finally:
            if job.discard:
                self.uploads.discard(session, job.key)

    def _signatures(self, enrolment: Enrolment, roster: str, domain: str) -> dict[str, npt.NDArray[np.float32]]:
        """Signatures of the enrolled sources: of the generation, else those that the enrolment brings along."""
        if self._generation is not None and domain:
            with contextlib.suppress(AtlasError), self._generation().cursor() as cursor:
                if found := signatures(cursor, enrolment.reader, roster, domain, enrolment.layers[-1]):
                    return found
        attached = enrolment.attachments.get("signatures.vectors", np.empty((0, 0)))
        return {name: vector.astype(np.float32) for name, vector in zip(enrolment.sources, attached, strict=False)}

    def _job(self, session: str, job: str) -> Job:
        with self._lock:
            held = self._jobs.get((session, job))
        if held is None:
            raise MissingError("This session has no such audit", "Start one; what is older than 24 hours is deleted")
        return held

    def _same(self, job: Job) -> Enrolment:
        """The enrolment that a job was scored with."""
        enrolment = self._ecosystems.enrolment(job.enrolment)
        if enrolment.sha256 != job.enrolment_sha256:
            raise MissingError(f"The ecosystem '{job.enrolment}' was made anew since", "Run the audit again")
        return enrolment

    def _place(self, session: str, job: str, ending: str) -> Path:
        return self.uploads.place(session) / f"{job}.{ending}"

    def _sweep(self) -> None:
        """Delete what is too old, every few minutes at most."""
        now = time.time()
        with self._lock:
            if now - self._swept < SWEEP:
                return
            self._swept = now
            ended = [held for held, job in self._jobs.items() if job.state in ENDED]
            old = [held for held in ended if self._jobs[held].created < now - LIFETIME]
            surplus = ended[: max(0, len(self._jobs) - KEPT_JOBS)]
            for held in {*old, *surplus}:
                del self._jobs[held]
                for ending in ("report.json", "npz"):
                    self._place(*held, ending).unlink(missing_ok=True)
        self.uploads.sweep(now)

    # ---- two windows ------------------------------------------------------------------------------------------------

    def drift(self, session: str, before: str, after: str | None = None) -> dict[str, Any]:
        """Test whether two windows of traces differ, out of the fingerprints of jobs that kept them.

        Parameters
        ----------
        session, before : str
        after : str, optional
            Without it the first half of ``before`` is held against its second half.

        Returns
        -------
        dict
            statistic, p_value, method, paired, before and after (traces), permutations, names (of the files).

        Raises
        ------
        AtlasError
            MissingError; or a window is too short; or the jobs were read by different ecosystems.
        """
        from backend.audit.windows import compare, prompts_of

        held, parts, prompts, names = [], [], [], []
        for name in (before, after) if after else (before,):
            job, report = self._job(session, name), self.report(session, name)
            upload, path = self.uploads.get(session, job.key)
            with np.load(self._place(session, name, "npz"), allow_pickle=False) as kept:
                if "fingerprints" not in kept:
                    raise MissingError("The fingerprints of these traces were not kept", "Compare the windows again")
                parts.append(kept["fingerprints"])
            prompts.append(prompts_of(path, upload.name, job.settings.columns, self.limits, report["traces"]))
            names.append(upload.name)
            held.append(job)
        if len({job.enrolment_sha256 for job in held}) > 1:
            raise AtlasError("The windows were read with different ecosystems", "Compare them again with one")
        if not after:
            middle = len(parts[0]) // 2
            parts = [parts[0][:middle], parts[0][middle:]]
            prompts = [prompts[0][:middle], prompts[0][middle:]]
            names = [f"{names[0]}, first half", f"{names[0]}, second half"]
        test = compare(parts[0], parts[1], (prompts[0], prompts[1]), self._same(held[0]))
        return asdict(test) | {"names": names}
