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
    """Evidence after some traces, in the order of arrival.

    log10_sum : plain sum of log10 ratios of the subject against 'another enrolled source': neither calibrated nor
        bounded, so that it is no likelihood ratio.
    """

    traces: int
    subject: str  # the claimed source, else the one that leads after the latest batch, under the stated prior
    log10_sum: float
    leader: str  # most probable source after these traces, under the stated prior


@dataclass(frozen=True)
class Snapshot:
    """A job at a moment.

    nearest : sources by the plain sum so far, the nearest first; empty before the first batch. How probable they are is
        said at the end, where it is known whether that may be stated.
    """

    job: str
    state: str  # queued, running, done, cancelled, failed
    done: int  # traces that are scored
    total: int  # traces that will be
    seconds: float  # since scoring began
    waiting: int  # tasks in front of it
    nearest: tuple[str, ...]
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
    """Sums up evidence a batch at a time.

    sources : length C; log_prior : (C,) of the enrolment; stated : (C,) log of the stated prior.
    """

    def __init__(self, sources: Sequence[str], log_prior: Doubles, stated: Doubles, claimed: int | None) -> None:
        self._sources = sources
        self._log_prior = log_prior
        self._stated = stated
        self._claimed = claimed
        self._likelihood: Doubles = np.zeros(len(sources))
        self._traces = 0
        self._subject = claimed
        self._kept: list[tuple[range, Doubles]] = []

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
        self._kept.append((numbers, along))
        before, self._subject = self._subject, int((self._likelihood + self._stated).argmax())
        again = self._kept if self._subject != before else self._kept[-1:]
        return [point for batch in again for point in self._points(self._subject, *batch)]

    def _points(self, subject: int, numbers: range, along: Doubles) -> list[Point]:
        """Of so many traces each, with their sums (m, C)."""
        rows = zip(
            numbers,
            log10_against_others(along, subject, self._stated).tolist(),
            (along + self._stated).argmax(1).tolist(),
            strict=True,
        )
        name = self._sources[subject]
        return [Point(k, name, total, self._sources[leader]) for k, total, leader in rows]

    def nearest(self) -> tuple[str, ...]:
        """Sources by what has been summed up, the nearest first."""
        return tuple(self._sources[i] for i in np.argsort(-(self._likelihood + self._stated), kind="stable"))


@dataclass
class Job:
    """An audit that somebody asked for; its lock guards all that changes.

    ``client`` is the address of whoever asked, ``others`` are the further readers, ``select`` makes a selection of
    traces other than the settings' own. ``earlier`` are the last steps of the session's reports so far, and
    ``last_step`` is that of this one.
    """

    name: str
    key: str
    settings: Settings
    enrolment: str
    enrolment_sha256: str
    total: int
    discard: bool = False
    fingerprints: bool = False
    others: tuple[Enrolment, ...] = ()
    select: Callable[[], Selection] | None = None
    client: str | None = None
    earlier: tuple[str, ...] = ()
    last_step: str = ""
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
            kept = [point for point in self.points if not points or point.traces < points[0].traces]
            self.points = [*kept, *points]
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
                state=self.state,
                done=self.done,
                total=self.total,
                seconds=self.seconds,
                waiting=waiting if self.state == "queued" else 0,
                nearest=self.nearest,
                points=tuple(self.points),
                reported=self.reported,
                problem=self.problem,
                remedy=self.remedy,
                at_fault=self.at_fault,
                enrolment=self.enrolment,
                claimed=self.settings.claimed,
                beside=self.beside,
                beside_total=self.total * len(self.others),
            )
