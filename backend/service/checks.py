"""Reports of a server: those of its own jobs, and those that somebody brings to be checked against their traces."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from backend.errors import AtlasError
from backend.intake import inspect
from backend.service.job import Job
from backend.service.sessions import FAILED, Sessions
from backend.service.uploads import MissingError, open_in_turn

if TYPE_CHECKING:
    from backend.enrolment.enrolment import Enrolment


@dataclass(frozen=True)
class Check:
    """What a check of a report found.

    sha256, case, created : of the report, as it says.
    """

    found: tuple[str, ...]  # what is not equal, in sentences without a full stop; empty when everything is
    notes: tuple[str, ...]  # what somebody should know and what makes nothing unequal
    traces: int  # that were scored again; 0 where the report alone was looked at
    verdict: str | None  # of the second run
    largest: float | None  # largest difference of a trace's log-posterior, in nats
    sha256: str
    case: str
    created: str

    @property
    def equal(self) -> bool:
        """Whether nothing was found."""
        return not self.found


class Checks(Sessions):
    """Sessions with their reports; every method may be called from any thread."""

    def report(self, session: str, job: str) -> dict[str, Any]:
        """Report of a job that has ended.

        Raises AtlasError MissingError; the problem of a job that failed; or that it has not ended.
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
        """A report out of an uploaded file.

        Raises AtlasError MissingError; or the file is no report.
        """
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

        session, key : the report.
        traces : the file of traces.
        client : as for :meth:`start`.
        Returns the job; :meth:`checked` compares when it is done.
        Raises AtlasError if the file holds none of the report's traces, or the ecosystem is not here.
        """
        from backend.attribution.recompute import fitting, selection_for, settings_of

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
        with np.load(self._place(session, job, "npz"), allow_pickle=False) as kept:
            told = compared(report, again, self._same(self._job(session, job)), kept["mean"])
        return _check(report, told.found, told.notes, told.traces, told.verdict, told.largest)

    def _same(self, job: Job) -> Enrolment:
        """The enrolment that a job was scored with."""
        enrolment = self._ecosystems.enrolment(job.enrolment)
        if enrolment.sha256 != job.enrolment_sha256:
            raise MissingError(f"The ecosystem '{job.enrolment}' was made anew since", "Run the audit again")
        return enrolment


def _check(
    report: dict[str, Any],
    found: tuple[str, ...],
    notes: tuple[str, ...],
    traces: int,
    verdict: str | None,
    largest: float | None,
) -> Check:
    said = [str(report.get(name, ""))[:400] for name in ("sha256", "case", "created")]
    return Check(found, notes, traces, verdict, largest, *said)
