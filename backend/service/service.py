"""Live attribution for a server: what page and REST ask.

Torch is imported when the first enrolment is read, forward passes run one at a time in one background thread, and
nothing here waits for them except :meth:`Service.wait` and :meth:`Service.tokens`.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from backend.attribution.settings import Settings, settings_of
from backend.errors import AtlasError
from backend.fingerprints import cache_folder
from backend.intake import Layout, Limits, Problem, inspect, walk
from backend.service.job import Job
from backend.service.sessions import FAILED, Sessions
from backend.service.uploads import BusyError, MissingError, Upload, open_in_turn
from backend.traces import Trace

if TYPE_CHECKING:
    from backend.attribution.decision import EnrolmentCapabilities
    from backend.attribution.scoring import Loaded
    from backend.enrolment.enrolment import Enrolment

TOKEN_SECONDS = 120  # for which token evidence is waited for


@dataclass(frozen=True)
class Check:
    """What a check of a report found."""

    found: tuple[str, ...]  # what is not equal, in sentences without a full stop; empty when everything is
    notes: tuple[str, ...]  # what somebody should know and what makes nothing unequal
    traces: int  # that were scored again; 0 where the report alone was looked at
    verdict: str | None  # of the second run
    largest: float | None  # largest difference of a trace's log-posterior, in nats
    sha256: str  # of the report, as it says, and so case and created
    case: str
    created: str

    @property
    def equal(self) -> bool:
        """Whether nothing was found."""
        return not self.found


class Service(Sessions):
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
        super().__init__(data, cache or cache_folder(), load, limits or Limits())

    def report(self, session: str, job: str) -> dict[str, Any]:
        """Report of a job that has ended.

        Raises MissingError, also where it has not ended; AtlasError with the problem of a job that failed.
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
        from backend.attribution.verify import alterations

        report = self.read_report(session, key)
        return _check(report, tuple(alterations(report)), (), 0, None, None)

    def recompute(self, session: str, key: str, traces: str, client: str | None = None) -> str:
        """Queue the traces of an uploaded report to be scored once more.

        Returns the job; :meth:`checked` compares when it is done.
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
            settings = fitting(settings, own, stream, upload.name, self.limits)
            sha256 = inspect(stream, upload.name, settings.columns, self.limits, settings.encoding).sha256
        select = functools.partial(selection_for, report, sha256, self.limits)
        return self.start(session, traces, settings, select=select, client=client)

    def checked(self, session: str, key: str, job: str) -> Check:
        """Hold an uploaded report against its traces, which a job has scored once more."""
        from backend.attribution.verify import compared

        report, again = self.read_report(session, key), self.report(session, job)
        with np.load(self._place(session, job, "npz"), allow_pickle=False) as saved:
            result = compared(report, again, self._enrolment_of(self._job(session, job)), saved["mean"])
        return _check(report, result.found, result.notes, result.traces, result.verdict, result.largest)

    def samples(self) -> list[str]:
        """Models of the shipped sample traces, in the order of their numbers."""
        from backend.enrolment.catalogue import sample_labels

        return sample_labels()

    def sample(self, session: str, number: int = 0) -> Upload:
        """Shipped traces of one model on prompts that the sample ecosystem has not seen.

        The upload's ``enrolment`` is the sample ecosystem, or None where that is not enrolled here.
        """
        from backend.enrolment.catalogue import sample_enrolment_of, sample_file

        enrolment = sample_enrolment_of([self._ecosystems.enrolment(one.name) for one in self._ecosystems.all()])
        label, content = sample_file(number, enrolment)
        name = None if enrolment is None else enrolment.name
        return self.uploads.add(session, f"sample-{number + 1}.jsonl", content, enrolment=name, label=label)

    def brings(self, ecosystem: str) -> EnrolmentCapabilities:
        """What can be asked of an ecosystem: calibration, error rates of the stop, validation."""
        from backend.attribution.decision import capabilities_of

        return capabilities_of(self._ecosystems.enrolment(ecosystem))

    def export(self, session: str, job: str, form: str) -> str:
        """Report of a job as 'html', 'json' or 'csv'."""
        report = self.report(session, job)
        from backend.attribution.report import write_csv, write_html, write_json

        writers = {"html": write_html, "json": write_json, "csv": write_csv}
        if form not in writers:
            raise AtlasError(f"There is no form '{form[:20]}' of a report", f"Choose from {', '.join(writers)}")
        return writers[form](report)

    def tokens(
        self, session: str, job: str, row: int, source: str | None = None, rival: str | None = None
    ) -> dict[str, Any]:
        """Which response tokens of a trace speak for one source against another.

        row : number of the trace in the report, from 1.
        source, rival : by default the report's subject and its strongest rival.
        Returns number, prompt, source, rival, log_odds, stored, pieces (text, start, stop, value), rest, cut. The
            values of the pieces sum to log_odds.
        Raises MissingError where the file was deleted, BusyError where the proxy does not get to it.
        """
        held, report = self._job(session, job), self.report(session, job)
        if not 1 <= row <= len(report["traces"]):
            raise AtlasError(f"There is no trace {row}", f"Choose 1 to {len(report['traces'])}")
        upload, path = self.uploads.get(session, held.key)
        enrolment = self._enrolment_of(held)
        with open_in_turn(path) as stream:
            layout = inspect(stream, upload.name, held.settings.columns, self.limits, held.settings.encoding)
            trace = _trace_at(stream, layout, self.limits, report["traces"][row - 1])
        first, second = source or report["results"]["subject"], rival or report["results"]["rival"]
        try:
            return self._host.worker.ask(
                lambda: self._host.engine().tokens(enrolment, trace, row, first, second), TOKEN_SECONDS
            )
        except TimeoutError as error:
            raise BusyError("The proxy is busy with other traces", "Try again in a minute") from error

    def start_windows(
        self, session: str, keys: Sequence[str], settings: Settings, client: str | None = None
    ) -> list[str]:
        """Queue the windows of a test of drift; what is wrong with one of them is said at once, and none then runs.

        keys : files of the two windows, the earlier one first, or of one whose halves are compared.
        settings : from :func:`backend.attribution.settings.of_windows`.
        Returns the jobs; :meth:`drift` compares when they are done.
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
        """Test whether two windows of traces differ, out of the fingerprints of jobs that kept them.

        Of jobs that somebody cancelled, what they have read is compared. Without ``after`` the halves of ``before``
        are compared. The answer is that of :func:`backend.attribution.drift_report.drift_answer`; a StoppedError
        says that too little was read before a cancel.
        """
        from backend.attribution.drift_report import Window, drift_answer, enough_read, prompts_of

        names = (before, after) if after else (before,)
        held = [self._job(session, name) for name in names]
        if any(job.state == "cancelled" for job in held):
            enough_read([(job.done, job.total) for job in held])
        read = []
        for name, job in zip(names, held, strict=True):
            report = self.report(session, name)
            upload, path = self.uploads.get(session, job.key)
            with np.load(self._place(session, name, "npz"), allow_pickle=False) as saved:
                if "fingerprints" not in saved:
                    raise MissingError("The fingerprints of these traces were not kept", "Compare the windows again")
                fingerprints = saved["fingerprints"]
            with open_in_turn(path) as stream:
                layout = inspect(stream, upload.name, job.settings.columns, self.limits, job.settings.encoding)
                prompts = prompts_of(stream, layout, self.limits, report["traces"])
            read.append(Window(report, fingerprints, prompts, job.total))
        return drift_answer(read, self._enrolment_of(held[0]), held[0].settings)

    def _enrolment_of(self, job: Job) -> Enrolment:
        """The enrolment that a job was scored with."""
        enrolment = self._ecosystems.enrolment(job.enrolment)
        if enrolment.sha256 != job.enrolment_sha256:
            raise MissingError(f"The ecosystem '{job.enrolment}' was made anew since", "Run the audit again")
        return enrolment


def _check(report: Mapping[str, Any], *found: Any) -> Check:
    return Check(*found, *(str(report.get(name, ""))[:400] for name in ("sha256", "case", "created")))


def _trace_at(stream: BinaryIO, layout: Layout, limits: Limits, entry: Mapping[str, Any]) -> Trace:
    """The trace of a file that a report lists; a MissingError where the file does not hold it."""
    for found in walk(stream, layout, limits):
        if isinstance(found, Problem):
            continue
        if (found.place, found.turn, found.sha256) == (entry["place"], entry["turn"], entry["sha256"]):
            return found.trace
    raise MissingError("The file holds no such trace", "Upload it again")
