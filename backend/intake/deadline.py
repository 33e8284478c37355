"""Computing time of one reading of a file."""

from __future__ import annotations

import time

from backend.errors import AtlasError
from backend.intake.traces import Limits, short

_STEP = 1 << 17
_STEP_EACH = 1 << 9  # characters between two looks at the clock, and those that a call counts for whatever it read


class Clock:
    """Processor time that reading a file takes, and the place it has reached.

    Time between :meth:`pause` and :meth:`resume` belongs to whoever takes the traces and does not count.
    name : of the file.
    """

    def __init__(self, name: str, limits: Limits) -> None:
        self.traces = 0
        self._name, self._limit = short(name, 200), limits.seconds
        self._spent, self._since, self._work = 0.0, time.thread_time(), 0

    def check(self, place: int, unit: str, size: int = 0) -> None:
        """Refuse to go on where the time is spent.

        place, unit : what is read now, such as line 7.
        size : characters or bytes that were read since the last call.
        Raises AtlasError if reading took longer than the limits allow.
        """
        self._work += size + _STEP_EACH
        if self._work < _STEP:
            return
        self._work = 0
        if self._spent + time.thread_time() - self._since > self._limit:
            after = f", after {self.traces:,} trace{'s' if self.traces != 1 else ''}" if self.traces else ""
            raise AtlasError(
                f"Reading {self._name} takes more than {self._limit:,g} s of computing time "
                f"(it stopped at {unit} {place:,}{after}, and nothing of the file is used)",
                "Cut the file into parts, or run it by command line: python -m jobs attribute FILE",
            )

    def pause(self) -> None:
        """Stop counting."""
        self._spent += time.thread_time() - self._since

    def resume(self) -> None:
        """Go on counting; it may be another thread that does."""
        self._since = time.thread_time()
