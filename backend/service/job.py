"""Jobs of a server, their running evidence (paper, Stage 2), and the one thread that works on them."""

from __future__ import annotations

import heapq
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from backend.attribution.settings import Settings
from backend.inference.likelihood_ratios import log10_against_others
from backend.service.caller import NOBODY

if TYPE_CHECKING:
    from backend.attribution.scoring import Selection
    from backend.enrolment.enrolment import Enrolment

T = TypeVar("T")
Doubles = npt.NDArray[np.float64]
POINTS = 200  # traces up to which every trace gives a point; later every batch gives one
SHORT = 200  # traces up to which a job goes before longer ones, and between two batches of one
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
    """A job at a moment; how probable the nearest sources are stands in the report, if it may be stated."""

    job: str
    enrolment: str
    total: int  # traces that will be scored
    claimed: str | None = None
    further_total: int = 0  # traces that further readers will score
    state: str = "queued"  # queued, running, done, cancelled, failed
    waiting: int = 0  # tasks in front of it
    done: int = 0  # traces that are scored
    further: int = 0  # traces that further readers have scored
    seconds: float = 0.0  # since scoring began
    nearest: tuple[str, ...] = ()  # sources by the plain sum so far; empty before the first batch
    points: tuple[Point, ...] = ()
    reported: bool = False  # whether there is a report; a job that was cancelled has one when a batch was done
    problem: str | None = None  # why it failed, in a sentence
    remedy: str | None = None
    at_fault: str | None = None  # 'server' where the traces are not to blame: weights are missing, or something broke

    @property
    def ended(self) -> bool:
        """Whether nothing changes any more."""
        return self.state in ENDED


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

        Where another source leads than after the batch before, and none is claimed, all points are computed for it.
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


@dataclass
class Job:
    """An audit that somebody requested; ``changed`` guards ``now``, and wakes those who wait."""

    now: Snapshot
    key: str  # of its file
    settings: Settings
    enrolment_sha256: str
    others: tuple[Enrolment, ...] = ()  # of further readers
    discard: bool = False
    fingerprints: bool = False
    select: Callable[[], Selection] | None = None  # makes a selection of traces other than the settings' own
    client: str | None = None  # address of whoever sent the request
    request: str = NOBODY  # reference of the request that started it
    last_step: str = ""  # of its report
    number: int = 0  # of its task
    created: float = field(default_factory=time.time)
    stop: threading.Event = field(default_factory=threading.Event)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def add_batch(self, done: int, seconds: float, points: Sequence[Point], nearest: tuple[str, ...]) -> None:
        """A batch is scored; its points replace those of the same traces before."""
        earlier = [point for point in self.now.points if not points or point.traces < points[0].traces]
        self._update(done=done, seconds=seconds, points=(*earlier, *points), nearest=nearest)

    def add_further(self, traces: int) -> None:
        """Further readers have scored so many more traces."""
        self._update(further=self.now.further + traces)

    def set_state(self, state: str, **details: Any) -> None:
        """Go on to the next state; one that has ended stays as it is.

        details : ``problem``, ``remedy`` and ``at_fault`` of a failure; ``reported``.
        """
        with self.changed:
            if not self.now.ended:
                self._update(state=state, **details)

    def cancel(self) -> None:
        """End after the batch that runs; at once where none does."""
        self.stop.set()
        with self.changed:
            if self.now.state == "queued":
                self.set_state("cancelled")

    def wait(self, seconds: float, after: int | None = None) -> None:
        """Wait until it has ended, or has scored more traces than ``after``, or the time is over."""
        with self.changed:
            self.changed.wait_for(
                lambda: self.now.ended or (after is not None and self.now.done > after), timeout=seconds
            )

    def _update(self, **fields: Any) -> None:
        with self.changed:
            self.now = replace(self.now, **fields)
            self.changed.notify_all()


class Worker:
    """A thread with two queues; it starts with the first task and ends with the process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._ready = threading.Condition()
        self._tasks: list[tuple[bool, int, Callable[[], None]]] = []  # a heap: long ones last, each by its number
        self._numbers = 0
        self._thread: threading.Thread | None = None

    def submit(self, task: Callable[[], None], *, short: bool) -> int:
        """Queue a task; one that is short goes before those that are long. Returns its number."""
        with self._ready:
            self._numbers += 1
            heapq.heappush(self._tasks, (not short, self._numbers, task))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._ready.notify()
            return self._numbers

    def ask(self, question: Callable[[], T], timeout: float) -> T:
        """Answer of a short task; a TimeoutError if it has not come by then, and the task is dropped if not begun."""
        answer: Future[T] = Future()

        def task() -> None:
            if not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(question())
            except BaseException as error:
                answer.set_exception(error)

        self.submit(task, short=True)
        try:
            return answer.result(timeout)
        except TimeoutError:
            answer.cancel()
            raise

    def before(self, number: int) -> int:
        """Tasks that wait in front of a waiting one."""
        with self._ready:
            own = next((task[:2] for task in self._tasks if task[1] == number), (False, 0))
            return sum(task[:2] < own for task in self._tasks)

    def between(self) -> None:
        """Do what is short now; a long task calls this between two of its steps, from the worker's own thread."""
        while (task := self._next(short=True)) is not None:
            self._do(task)

    def _next(self, *, short: bool) -> Callable[[], None] | None:
        """The next task, waiting for one; of short ones at once, or None where there is none."""
        with self._ready:
            if short and (not self._tasks or self._tasks[0][0]):
                return None
            self._ready.wait_for(lambda: self._tasks)
            return heapq.heappop(self._tasks)[2]

    def _run(self) -> None:
        while (task := self._next(short=False)) is not None:
            self._do(task)
            del task  # what it refers to, such as a service, must not stay in memory until the next one

    def _do(self, task: Callable[[], None]) -> None:
        try:
            task()
        except Exception:
            logging.getLogger(__name__).exception("A task of %s failed", self._name)
