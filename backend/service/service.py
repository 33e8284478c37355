"""Live attribution for a server: what page and REST ask.

Torch is imported when the first enrolment is read, forward passes run one at a time in one background thread, and
nothing here waits for them except :meth:`Service.wait` and :meth:`Service.tokens`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from backend.attribution.settings import Settings
from backend.errors import AtlasError
from backend.fingerprints import cache_folder
from backend.intake import Limits, inspect
from backend.service.checks import Checks
from backend.service.uploads import BusyError, MissingError, Upload, open_in_turn

if TYPE_CHECKING:
    from backend.attribution.fitted_statistics import EnrolmentCapabilities
    from backend.attribution.models import Loaded

TOKEN_SECONDS = 120
"""For which token evidence is waited for."""


class Service(Checks):
    """One a process; every method may be called from any thread.

    Parameters
    ----------
    data : Path
        Data folder; its ``enrolments/`` are the ecosystems.
    cache : Path, optional
        Cache folder, in which uploads lie.
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
        load: Callable[[str], Loaded] | None = None,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(data, cache or cache_folder(), load, limits or Limits())

    def samples(self) -> list[str]:
        """Models of the shipped sample traces, in the order of their numbers."""
        from backend.enrolment.catalogue import sample_labels

        return sample_labels()

    def sample(self, session: str, number: int = 0) -> Upload:
        """Shipped traces of one model on prompts that the sample ecosystem has not seen.

        Returns
        -------
        Upload
            Its ``enrolment`` is the sample ecosystem, or None where that is not enrolled here.
        """
        from backend.enrolment.catalogue import sample_enrolment_of, sample_file

        held = [self._ecosystems.enrolment(one.name) for one in self._ecosystems.all()]
        enrolment = sample_enrolment_of(held)
        label, content = sample_file(number, enrolment)
        name = None if enrolment is None else enrolment.name
        return self.uploads.add(session, f"sample-{number + 1}.jsonl", content, enrolment=name, label=label)

    def brings(self, ecosystem: str) -> EnrolmentCapabilities:
        """What can be asked of an ecosystem: calibration, error rates of the stop, validation.

        Raises
        ------
        AtlasError
            If there is none of that name, or its file is damaged.
        """
        from backend.attribution.fitted_statistics import capabilities_of

        return capabilities_of(self._ecosystems.enrolment(ecosystem))

    def export(self, session: str, job: str, form: str) -> str:
        """Report of a job as 'html', 'json' or 'csv'."""
        report = self.report(session, job)
        from backend.attribution.report import write_csv, write_json
        from backend.attribution.report_html import write_html

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
        from backend.service.engine import trace_at

        with open_in_turn(path) as stream:
            trace = trace_at(stream, upload.name, held.settings, self.limits, report["traces"][row - 1])
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

        Parameters
        ----------
        session : str
        keys : sequence of str
            Files of the two windows, the earlier one first, or of one whose halves are compared.
        settings : Settings
            From :func:`backend.attribution.settings.of_windows`.
        client : str, optional
            As for :meth:`start`.

        Returns
        -------
        list of str
            The jobs; :meth:`drift` compares when they are done.

        Raises
        ------
        AtlasError
            As :meth:`start`; or a window is too short.
        """
        jobs: list[str] = []
        try:
            jobs += [self.start(session, key, settings, fingerprints=True, client=client) for key in keys]
            from backend.attribution.windows import long_enough

            names = [self.uploads.get(session, key)[0].name for key in keys]
            long_enough([self.progress(session, job).total for job in jobs], names)
        except AtlasError:
            for job in jobs:
                self.cancel(session, job)
            raise
        return jobs

    def drift(self, session: str, before: str, after: str | None = None) -> dict[str, Any]:
        """Test whether two windows of traces differ, out of the fingerprints of jobs that kept them.

        Of jobs that somebody cancelled, what they have read is compared.

        Parameters
        ----------
        session, before : str
        after : str, optional
            Without it the first half of ``before`` is held against its second half.

        Returns
        -------
        dict
            See :func:`backend.attribution.drift_report.drift_answer`.

        Raises
        ------
        AtlasError
            MissingError; StoppedError where too little was read before a cancel; or a window is too short; or the
            jobs were read by different ecosystems.
        """
        from backend.attribution.drift_report import Window, drift_answer
        from backend.attribution.windows import enough_read, prompts_of

        names = (before, after) if after else (before,)
        held = [self._job(session, name) for name in names]
        if any(job.state == "cancelled" for job in held):
            enough_read([(job.done, job.total) for job in held])
        read = []
        for name, job in zip(names, held, strict=True):
            report = self.report(session, name)
            upload, path = self.uploads.get(session, job.key)
            with np.load(self._place(session, name, "npz"), allow_pickle=False) as kept:
                if "fingerprints" not in kept:
                    raise MissingError("The fingerprints of these traces were not kept", "Compare the windows again")
                fingerprints = kept["fingerprints"]
            with open_in_turn(path) as stream:
                layout = inspect(stream, upload.name, job.settings.columns, self.limits, job.settings.encoding)
                prompts = prompts_of(stream, layout, self.limits, report["traces"])
            read.append(Window(report, fingerprints, prompts, job.total))
        return drift_answer(read, self._same(held[0]), held[0].settings)
