"""What of an audit is command line only: Ctrl-C, and files in one step."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from backend.errors import AtlasError


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


def write_beside(path: Path, text: str) -> None:
    """Write a file in one step."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.partial")
        scratch.write_text(text, "utf-8")
        scratch.replace(path)
    except OSError as error:
        raise AtlasError(
            f"{path} cannot be written ({error.strerror})", "Choose a folder that you may write to"
        ) from error
