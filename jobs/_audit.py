"""What of an audit is command line only: Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stop_on_interrupt(say: Callable[[str], None]) -> Iterator[Callable[[], bool]]:
    """A first Ctrl-C ends the work after the batch that runs, a second one at once."""
    asked: list[int] = []

    def handle(number: int, _frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        say("Stopping after this batch; what is done is kept.")

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)
