"""One thread that does the work of a server: short tasks first, and between two steps of a long one."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class Worker:
    """A thread with two queues; it starts with the first task and ends with the process."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._ready = threading.Condition()
        self._short: deque[tuple[int, Callable[[], None]]] = deque()
        self._long: deque[tuple[int, Callable[[], None]]] = deque()
        self._numbers = 0
        self._thread: threading.Thread | None = None

    def submit(self, task: Callable[[], None], *, short: bool) -> int:
        """Queue a task; one that is short goes before those that are long. Returns its number."""
        with self._ready:
            self._numbers += 1
            (self._short if short else self._long).append((self._numbers, task))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            self._ready.notify()
            return self._numbers

    def ask(self, question: Callable[[], T], timeout: float) -> T:
        """Answer of a short task.

        Raises TimeoutError if it has not come by then; the task is then left out where it has not begun.
        """
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
            for queue, ahead in ((self._short, 0), (self._long, len(self._short))):
                for place, (other, _) in enumerate(queue):
                    if other == number:
                        return ahead + place
        return 0

    def between(self) -> None:
        """Do what is short now; a long task calls this between two of its steps, from the worker's own thread."""
        while (task := self._next(short=True)) is not None:
            self._do(task)

    def _next(self, *, short: bool) -> Callable[[], None] | None:
        with self._ready:
            queue = self._short or (None if short else self._long)
            return queue.popleft()[1] if queue else None

    def _run(self) -> None:
        while True:
            task = self._next(short=False)
            if task is not None:
                self._do(task)
                continue
            with self._ready:
                if not self._short and not self._long:
                    self._ready.wait()

    def _do(self, task: Callable[[], None]) -> None:
        try:
            task()
        except Exception:
            logging.getLogger(__name__).exception("A task of %s failed", self._name)
