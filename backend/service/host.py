"""The one thread that does the work of a server, and the proxies that it loads."""

from __future__ import annotations

import functools
import heapq
import logging
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from backend.enrolment.catalogue import Ecosystems
from backend.errors import AtlasError
from backend.intake import Limits, inspect
from backend.service.job import SHORT, Job, Running
from backend.store.builds import code_version
from backend.traces import Trace

if TYPE_CHECKING:
    from backend.attribution.run import Inquiry
    from backend.attribution.scoring import Attributor, Loaded, Models, Progress
    from backend.enrolment.enrolment import Enrolment

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
        """The next task, waiting for one; of short ones at once, or None where there is none."""
        with self._ready:
            if short and (not self._tasks or self._tasks[0][0]):
                return None
            self._ready.wait_for(lambda: self._tasks)
            return heapq.heappop(self._tasks)[2]

    def _run(self) -> None:
        while (task := self._next(short=False)) is not None:
            self._do(task)

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
    """The worker, its loaded proxies, and how far loading is; by default proxies come out of the registry.

    Torch and transformers are imported in the worker's thread, where the first proxy is loaded.
    """

    def __init__(self, ecosystems: Ecosystems, load: Callable[[str], Loaded] | None, limits: Limits) -> None:
        for name, capacity in CACHES.items():
            os.environ.setdefault(name, capacity)
        self.worker = Worker("attribution")
        self._ecosystems = ecosystems
        self._load = load
        self._limits = limits
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
        """Load the proxy and read a few lines with it, so that the first trace of a person does not pay for it.

        A compiled pass is built for each of its forms: one trace, several, and several that share a long prompt.
        """
        proxy = None
        try:
            enrolment = self._ecosystems.enrolment(None)
            proxy = enrolment.proxy
            self._readiness = Readiness("loading", proxy)
            attributor = self.attributor(enrolment)
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
        from backend.attribution.scoring import Models, from_registry

        return Models(self._load or from_registry)

    @functools.cached_property
    def _version(self) -> str:
        return code_version()

    def attributor(self, enrolment: Enrolment) -> Attributor:
        """The enrolment with all that it reads with; this and what follows is for the worker's thread only."""
        return self._models.attributor(enrolment)

    def score(self, job: Job, enrolment: Enrolment, path: Path, name: str) -> Inquiry:
        """Score the file of a job, whose progress grows with every batch; short tasks go between those of a long one.

        path, name : where the file lies, and its name.
        """
        from backend.attribution.decision import source_number
        from backend.attribution.run import audit, checked

        attributor = self.attributor(enrolment)
        prior, _ = checked(enrolment, job.settings)
        claimed = None if job.settings.claimed is None else source_number(enrolment, job.settings.claimed)
        running = Running(enrolment.sources, enrolment.log_prior, prior, claimed)

        def progress(step: Progress) -> None:
            job.add_batch(step.done, step.seconds, running.add(step.log_posteriors), running.nearest())

        def cancelled() -> bool:
            if job.now.total > SHORT:
                self.worker.between()
            return job.stop.is_set()

        with path.open("rb") as stream:
            return audit(
                stream,
                inspect(stream, name, job.settings.columns, self._limits, job.settings.encoding),
                attributor,
                job.settings,
                None if job.select is None else job.select(),
                progress=progress,
                cancelled=cancelled,
                limits=self._limits,
                total=job.now.total,
                version=self._version,
                keep_fingerprints=job.fingerprints,
                others=[self.attributor(other) for other in job.others],
                beside=lambda step: job.add_further(len(step.log_posteriors)),
                earlier=job.earlier,
            )

    def tokens(self, enrolment: Enrolment, trace: Trace, number: int, source: str, rival: str) -> dict[str, Any]:
        """Heat map of a trace for one source against another, as the report has it."""
        from backend.attribution.decision import source_number
        from backend.attribution.token_evidence import heat_map, token_evidence

        pair = source_number(enrolment, source), source_number(enrolment, rival)
        if pair[0] == pair[1]:
            raise AtlasError("The source and its rival are the same", "Choose two sources")
        attributor = self.attributor(enrolment)
        evidence = token_evidence(attributor.reader, enrolment, trace, *pair, attributor.others)
        return heat_map(number, trace.prompt, evidence) | {"cut": evidence.cut}
