"""The one thread that does the work of a server, and how far its proxy is loaded."""

from __future__ import annotations

import heapq
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from backend.enrolment.catalogue import Ecosystems
from backend.errors import AtlasError
from backend.intake import Limits

if TYPE_CHECKING:
    from backend.attribution.scoring import Loaded
    from backend.service.engine import Engine

T = TypeVar("T")
# Torch builds a product in bfloat16 for every shape of a batch, and by default keeps 1,024 of them twice over: 850 MB
# after a thousand batches of other lengths; one batch needs five. Read when it multiplies for the first time.
CACHES = {"LRU_CACHE_CAPACITY": "32", "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "32"}
REMEDY = "Tell whoever runs the server; its log says more"


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
        with self._ready:
            if not self._tasks or (short and self._tasks[0][0]):
                return None
            return heapq.heappop(self._tasks)[2]

    def _run(self) -> None:
        while True:
            task = self._next(short=False)
            if task is not None:
                self._do(task)
                continue
            with self._ready:
                if not self._tasks:
                    self._ready.wait()

    def _do(self, task: Callable[[], None]) -> None:
        try:
            task()
        except Exception:
            logging.getLogger(__name__).exception("A task of %s failed", self._name)


@dataclass(frozen=True)
class Readiness:
    """Whether the proxy of the default ecosystem is in memory."""

    status: str  # absent (no ecosystem is enrolled here), loading, ready, failed
    proxy: str | None = None
    problem: str | None = None  # a sentence without a full stop
    remedy: str | None = None


class Host:
    """The worker, its engine, and how far loading is; by default proxies come out of the registry."""

    def __init__(self, ecosystems: Ecosystems, load: Callable[[str], Loaded] | None, limits: Limits) -> None:
        for name, capacity in CACHES.items():
            os.environ.setdefault(name, capacity)
        self.worker = Worker("attribution")
        self._ecosystems = ecosystems
        self._load = load
        self._limits = limits
        self._made: Engine | None = None
        self._lock = threading.Lock()
        absent = "No ecosystem is enrolled here", "Run: python -m jobs enroll --sample"
        self._readiness = Readiness("absent", None, *absent)

    def state(self) -> Readiness:
        """How far loading is; begins it where an ecosystem appeared since."""
        if self._readiness.status == "absent" and not self._ecosystems.empty():
            self.warm()
        return self._readiness

    def warm(self) -> None:
        """Load the default ecosystem's proxy in the background; without an ecosystem nothing happens."""
        with self._lock:
            if self._ecosystems.empty() or self._readiness.status in ("loading", "ready"):
                return
            self._readiness = Readiness("loading")
        self.worker.submit(self._warm, short=True)

    def retry(self) -> None:
        """Load again where that failed; weights may have come since."""
        if self._readiness.status == "failed":
            self.warm()

    def _warm(self) -> None:
        proxy = None
        try:
            enrolment = self._ecosystems.enrolment(None)
            proxy = enrolment.proxy
            self._readiness = Readiness("loading", proxy)
            self.engine().warm(enrolment)
            self._readiness = Readiness("ready", proxy)
        except AtlasError as error:
            self._readiness = Readiness("failed", proxy, error.problem, error.remedy)
        except Exception as error:
            logging.getLogger(__name__).exception("The proxy could not be loaded")
            problem = f"The proxy could not be loaded ({type(error).__name__})"
            self._readiness = Readiness("failed", proxy, problem, REMEDY)

    def engine(self) -> Engine:
        """Made in the worker's thread, because it brings torch and transformers."""
        if self._made is None:
            from backend.attribution.scoring import from_registry
            from backend.service.engine import Engine

            self._made = Engine(self._load or from_registry, self._limits)
        return self._made
