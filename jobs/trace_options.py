"""What the verbs share that read traces: their options, what is said of a file, errors in plain words, Ctrl-C."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from backend.errors import AtlasError
from backend.intake import Columns, Layout
from backend.intake.preview import Preview
from backend.intake.traces import visible

ROLES = ("response", "prompt", "time", "label", "name")
LISTED = 10  # Places of a file that are named one by one.
KEPT = "what is done is kept"
NOTHING_KEPT = "Stopped. Nothing is kept; the same command starts again."
"""Said after a second Ctrl-C by verbs that write at their end only."""


def add_columns(parser: argparse.ArgumentParser) -> None:
    """``--response-column`` and the like, and ``--encoding``."""
    for role in ROLES:
        more = "" if role == "response" else "; none for no column"
        text = f"column of the {role} (dots reach inside{more})"
        parser.add_argument(f"--{role}-column", metavar="COLUMN", help=text)
    add_encoding(parser)


def add_encoding(parser: argparse._ActionsContainer) -> None:
    """``--encoding``."""
    parser.add_argument("--encoding", metavar="NAME", help="of the text, such as cp1251 (default: recognised)")


def columns_of(arguments: argparse.Namespace) -> Columns:
    """The columns that the arguments name."""
    return Columns(**{role: getattr(arguments, f"{role}_column") for role in ROLES})


def add_device(parser: argparse.ArgumentParser) -> None:
    """``--device``."""
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: %(default)s)")


@contextmanager
def plain_errors() -> Iterator[None]:
    """Errors without anything that a terminal would obey: they may hold words of a file."""
    try:
        yield
    except AtlasError as error:
        raise AtlasError(visible(error.problem), visible(error.remedy)) from error


def say(text: str) -> None:
    """Print a line; names out of a file, or of sources, may hold what a terminal would obey."""
    print(visible(text))


def describe(file: Layout | Preview) -> None:
    """Say what a file was found to be."""
    told = [file.kind, *(["gzip"] if file.packed else []), file.encoding or "binary"]
    told += [f"{role} from '{column}'" for role, column in file.columns.named().items()]
    say(f"{file.name}: {', '.join(told)}")


def excluded(file: Mapping[str, Any], exclusions: Sequence[Mapping[str, Any]], all_in: str) -> None:
    """Say which places of a file were not scored, and why.

    file : ``input`` of a report.
    exclusions : Of the report.
    all_in : What holds those that are not listed.
    """
    entries = [*file["problems"], *exclusions]
    if not entries:
        return
    say(f"{len(entries):,} places of {file['name']} were left out:")
    for entry in entries[:LISTED]:
        column = f", {entry['column']}" if entry.get("column") else ""
        say(f"  {file['unit']} {entry['place']}{column}: {entry['reason']}")
    if len(entries) > LISTED:
        print(f"  … and {len(entries) - LISTED:,} more, all in {all_in}")


@contextmanager
def stop_on_interrupt(say: Callable[[str], None], kept: str = KEPT) -> Iterator[Callable[[], bool]]:
    """A first Ctrl-C ends the work after the batch that runs, a second one at once.

    say : Receives a sentence at the first one.
    kept : What becomes of the work that is done.
    """
    asked: list[int] = []

    def handle(number: int, _frame: FrameType | None) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)
        say(f"Stopping after this batch; {kept}. Once more stops at once, and nothing is kept.")

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: bool(asked)
    finally:
        signal.signal(signal.SIGINT, before)
