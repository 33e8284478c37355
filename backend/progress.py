"""Progress bars of the verbs; their remaining time follows the work where records take different times."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn

from tqdm import tqdm

if TYPE_CHECKING:
    Bar = tqdm[NoReturn]
else:  # which has parameters in its stubs alone
    Bar = tqdm

HALF_LIFE = 0.1  # share of the work after which a measured speed counts half: a warm-up is forgotten


class TimeLeft:
    """Seconds that remain of some work, in any unit, from the speed at which it was done."""

    def __init__(self, work: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._work = max(work, 1e-9)
        self._clock = clock
        self._last = clock()
        self._done = self._recent = self._seconds = 0.0

    def add(self, work: float) -> None:
        now, fades = self._clock(), 0.5 ** (work / self._work / HALF_LIFE)
        self._recent = self._recent * fades + work
        self._seconds = self._seconds * fades + now - self._last
        self._done, self._last = self._done + work, now

    def seconds(self) -> float | None:
        """Seconds from now on; None before any work is done."""
        if not self._recent:
            return None
        since = self._clock() - self._last
        return max(0.0, (self._work - self._done) * self._seconds / self._recent - since)


class ReadingBar(Bar):
    """Records done, records a second, and a remaining time by the work (:func:`backend.extraction.extract`)."""

    def __init__(self, records: int, work: float, unit: str = "records") -> None:
        self._remaining = TimeLeft(work)
        form = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remains}, {rate_fmt}]"
        every: dict[str, Any] = {"smoothing": 0.05, "mininterval": seldom(), "bar_format": form}
        super().__init__(total=records, unit=f" {unit}", disable=not records, **every)

    def step(self, records: int, work: float) -> None:
        self._remaining.add(work)
        self.update(records)

    @property
    def format_dict(self) -> dict[str, Any]:
        seconds = self._remaining.seconds()
        return {**super().format_dict, "remains": "?" if seconds is None else tqdm.format_interval(seconds)}


def seldom() -> float:
    """Seconds between two states of a bar; more where the output is a file."""
    return 0.5 if sys.stderr.isatty() else 15.0


def stage_bar(stage: str, total: int, unit: str) -> Bar:
    """A bar over the steps of a stage, on a terminal only."""
    return tqdm(total=total, desc=stage, unit=f" {unit}", disable=None)


@contextlib.contextmanager
def step_bar(description: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar of training steps; it takes the steps done and their total."""
    with tqdm(desc=description, unit="step") as bar:

        def progress(done: int, steps: int) -> None:
            bar.total = steps
            bar.update(done - bar.n)

        yield progress
