"""The part of the service that needs a proxy: load it, score a job with it, split a trace over its tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from backend.attribution.decision import source_number
from backend.attribution.run import Inquiry, audit, checked
from backend.attribution.scoring import Attributor, Loaded, Models, Progress
from backend.attribution.token_evidence import heat_map, token_evidence
from backend.enrolment.enrolment import Enrolment
from backend.errors import AtlasError
from backend.intake import Limits, inspect
from backend.service.job import Job, Running
from backend.store.builds import code_version
from backend.traces import Trace


@dataclass
class Engine:
    """Loaded proxies; used from one thread only."""

    load: Callable[[str], Loaded]  # name of a proxy to its reader and the hash of its weights
    limits: Limits

    def __post_init__(self) -> None:
        self._models = Models(self.load)

    @cached_property
    def version(self) -> str:
        """Of the code that runs."""
        return code_version()

    def attributor(self, enrolment: Enrolment) -> Attributor:
        """The enrolment with all that it reads with."""
        return self._models.attributor(enrolment)

    def warm(self, enrolment: Enrolment) -> None:
        """Load the proxy and read a few lines with it, so that the first trace of a person does not pay for it.

        A compiled pass is built for each of its forms: one trace, several, and several that share a long prompt.
        """
        attributor = self.attributor(enrolment)
        attributor.score([Trace("Are you there?", "Yes, I am here.")])
        attributor.score([Trace(f"Question {i}?", "An answer. " * (i + 1)) for i in range(4)])
        attributor.score([Trace("A long question, word by word. " * 16, f"Answer {i}.") for i in range(8)])

    def run(
        self, job: Job, enrolment: Enrolment, path: Path, name: str, between: Callable[[], None] | None = None
    ) -> Inquiry:
        """Score the file of a job, telling the job after every batch.

        path, name : where the file lies, and what it is called; between : called before every batch.
        """
        attributor = self.attributor(enrolment)
        prior, _ = checked(enrolment, job.settings)
        claimed = None if job.settings.claimed is None else source_number(enrolment, job.settings.claimed)
        running = Running(enrolment.sources, enrolment.log_prior, prior, claimed)

        def progress(step: Progress) -> None:
            points = running.add(step.log_posteriors)
            job.add_batch(step.done, step.seconds, points, running.nearest())

        def beside(step: Progress) -> None:
            job.read_auxiliary_models(len(step.log_posteriors))

        def cancelled() -> bool:
            if between is not None:
                between()
            return job.stop.is_set()

        with path.open("rb") as stream:
            return audit(
                stream,
                inspect(stream, name, job.settings.columns, self.limits, job.settings.encoding),
                attributor,
                job.settings,
                None if job.select is None else job.select(),
                progress=progress,
                cancelled=cancelled,
                limits=self.limits,
                total=job.total,
                version=self.version,
                keep_fingerprints=job.fingerprints,
                others=[self.attributor(other) for other in job.others],
                beside=beside,
                earlier=job.earlier,
            )

    def tokens(self, enrolment: Enrolment, trace: Trace, number: int, source: str, rival: str) -> dict[str, Any]:
        """Heat map of a trace for one source against another, as the report has it."""
        pair = source_number(enrolment, source), source_number(enrolment, rival)
        if pair[0] == pair[1]:
            raise AtlasError("The source and its rival are the same", "Choose two sources")
        attributor = self.attributor(enrolment)
        evidence = token_evidence(attributor.reader, enrolment, trace, *pair, attributor.others)
        return heat_map(number, trace.prompt, evidence) | {"cut": evidence.cut}
