"""Evidence while it comes in: what the traces so far say, before the report is made (paper, Stage 2)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from backend.attribution.settings import Settings
from backend.inference.likelihood_ratios import log10_against_others

if TYPE_CHECKING:
    from backend.attribution.run import Selection
    from backend.enrolment.enrolment import Enrolment

Doubles = npt.NDArray[np.float64]
POINTS = 200  # traces after each of which the running evidence is kept; later it is kept after each batch
ENDED = ("done", "cancelled", "failed")


@dataclass(frozen=True)
class Point:
    """Evidence after some traces, in the order of arrival."""

    traces: int
    subject: str  # the claimed source, else the one that leads after the latest batch, under the stated prior
    log10_sum: float  # plain sum of log10 ratios against the others: uncalibrated, so no likelihood ratio
    leader: str  # most probable source after these traces, under the stated prior


@dataclass(frozen=True)
class Snapshot:
    """A job at a moment. How probable the nearest sources are is said at the end, if it may be stated."""

    job: str
    state: str  # queued, running, done, cancelled, failed
    done: int  # traces that are scored
    total: int  # traces that will be
    seconds: float  # since scoring began
    waiting: int  # tasks in front of it
    nearest: tuple[str, ...]  # sources by the plain sum so far; empty before the first batch
    points: tuple[Point, ...]
    reported: bool  # whether there is a report; a job that was cancelled has one when a batch was done
    problem: str | None  # why it failed, in a sentence
    remedy: str | None
    at_fault: str | None  # 'server' where the traces are not to blame: weights are missing, or something broke
    enrolment: str
    claimed: str | None
    beside: int = 0  # traces that further readers have scored
    beside_total: int = 0  # traces that they will


class Running:
    """Sums up evidence a batch at a time, under the priors of the enrolment and of the question, each (C,)."""

    def __init__(self, sources: Sequence[str], log_prior: Doubles, stated: Doubles, claimed: int | None) -> None:
        self._sources = sources
        self._log_prior = log_prior
        self._stated = stated
        self._claimed = claimed
        self._likelihood: Doubles = np.zeros(len(sources))
        self._traces = 0
        self._subject = claimed
        self._batches: list[tuple[range, Doubles]] = []

    def add(self, log_posteriors: npt.NDArray[np.floating]) -> list[Point]:
        """Evidence after every trace of a batch (m, C), or after the last one where there are many.

        Where another source leads than after the batch before, and none is claimed, all points are made again for it.
        """
        along = self._likelihood + np.cumsum(log_posteriors - self._log_prior, axis=0, dtype=np.float64)
        self._likelihood = along[-1].copy()
        first, self._traces = self._traces, self._traces + len(along)
        numbers = range(first + 1, self._traces + 1)
        if self._traces > POINTS:
            numbers, along = numbers[-1:], along[-1:].copy()
        if self._claimed is not None:
            return self._points(self._claimed, numbers, along)
        self._batches.append((numbers, along))
        before, self._subject = self._subject, int((self._likelihood + self._stated).argmax())
        again = self._batches if self._subject != before else self._batches[-1:]
        return [point for batch in again for point in self._points(self._subject, *batch)]

    def _points(self, subject: int, numbers: range, along: Doubles) -> list[Point]:
        """Of so many traces each, with their sums (m, C)."""
        sums = log10_against_others(along, subject, self._stated).tolist()
        leaders = (along + self._stated).argmax(1).tolist()
        name, sources = self._sources[subject], self._sources
        return [Point(k, name, total, sources[one]) for k, total, one in zip(numbers, sums, leaders, strict=True)]

    def nearest(self) -> tuple[str, ...]:
        """Sources by what has been summed up, the nearest first."""
        return tuple(self._sources[i] for i in np.argsort(-(self._likelihood + self._stated), kind="stable"))


SHARED = (
    "state", "done", "total", "seconds", "nearest", "reported", "problem", "remedy", "at_fault", "enrolment", "beside",
)  # fmt: skip


@dataclass
class Job:
    """An audit that somebody requested; its lock guards all that changes."""

    name: str
    key: str
    settings: Settings
    enrolment: str
    enrolment_sha256: str
    total: int
    discard: bool = False
    fingerprints: bool = False
    others: tuple[Enrolment, ...] = ()  # of further readers
    select: Callable[[], Selection] | None = None  # makes a selection of traces other than the settings' own
    client: str | None = None  # address of whoever sent the request
    earlier: tuple[str, ...] = ()  # last steps of the session's reports so far
    last_step: str = ""  # of this one's
    beside: int = 0
    number: int = 0
    state: str = "queued"
    done: int = 0
    seconds: float = 0.0
    nearest: tuple[str, ...] = ()
    points: list[Point] = field(default_factory=list)
    reported: bool = False
    problem: str | None = None
    remedy: str | None = None
    at_fault: str | None = None
    created: float = field(default_factory=time.time)
    stop: threading.Event = field(default_factory=threading.Event)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def add_batch(self, done: int, seconds: float, points: Sequence[Point], nearest: tuple[str, ...]) -> None:
        """A batch is scored; its points stand in place of those that were made of the same traces before."""
        with self.changed:
            self.done, self.seconds, self.nearest = done, seconds, nearest
            earlier = [point for point in self.points if not points or point.traces < points[0].traces]
            self.points = [*earlier, *points]
            self.changed.notify_all()

    def read_auxiliary_models(self, traces: int) -> None:
        """Further readers have scored so many more traces."""
        with self.changed:
            self.beside += traces
            self.changed.notify_all()

    def become(
        self, state: str, problem: str | None = None, remedy: str | None = None, at_fault: str | None = None
    ) -> None:
        """Go on to the next state; one that has ended stays as it is."""
        with self.changed:
            if self.state not in ENDED:
                self.state, self.problem, self.remedy, self.at_fault = state, problem, remedy, at_fault
            self.changed.notify_all()

    def snapshot(self, waiting: int) -> Snapshot:
        """The job now."""
        with self.changed:
            return Snapshot(
                job=self.name,
                waiting=waiting if self.state == "queued" else 0,
                points=tuple(self.points),
                claimed=self.settings.claimed,
                beside_total=self.total * len(self.others),
                **{name: getattr(self, name) for name in SHARED},
            )
