"""Shared options, and printing for verbs that read traces; needs neither store nor models."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from backend.errors import AtlasError
from backend.intake import Columns, Layout, Preview
from backend.intake.layout import RECOGNISED
from backend.intake.traces import visible

SHARED: dict[str, dict[str, Any]] = {
    "release": {"type": Path, "help": "folder of the public release (default: where fetch put it)"},
    "work": {"type": Path, "help": "work database (default: in the cache folder)"},
    "limit": {
        "type": int,
        "metavar": "N",
        "help": "only the first N prompts, in a work database and a data folder of its own",
    },
    "to": {"type": Path, "metavar": "FOLDER", "help": "data folder (default: ATLAS_DATA, else data/)"},
    "roster": {"default": "100-way,165-way", "help": "rosters, comma separated"},
    "device": {"default": "auto", "help": "auto, cpu or cuda (default: %(default)s)"},
    "engine": {"choices": ("local", "ray"), "default": "local", "help": "this machine, or Ray (default: %(default)s)"},
    "address": {
        "metavar": "HOST:PORT",
        "help": "of a running Ray cluster, or auto (default: Ray on this machine alone)",
    },
    "workers": {"type": int, "metavar": "N", "help": "fits at a time, in processes or on Ray (default: 1, of Ray all)"},
    "encoding": {"metavar": "NAME", "help": "of the text, such as cp1251 (default: recognised)"},
}
ENROLMENT = "a published enrolment: its name, that of its ecosystem, how either begins, or its file (default: {})"
ROLES = ("response", "prompt", "time", "label", "name")
LISTED = 10  # places of a file that are named one by one
NOTHING_SAVED = "Stopped. Nothing is saved; the same command starts again."
"""``STOPPED`` of verbs that write only at their end."""


def add(parser: argparse._ActionsContainer, *names: str) -> None:
    """Options that several verbs have."""
    for name in names:
        parser.add_argument(f"--{name}", **SHARED[name])


def add_columns(parser: argparse.ArgumentParser, *, of_each: bool = False) -> None:
    """``--response-column`` and the like, and ``--encoding``; ``of_each`` of several files where it says so."""
    action = "append" if of_each else "store"
    for role in ROLES:
        text = f"column of the {role} (dots reach inside{'' if role == 'response' else '; none for no column'})"
        parser.add_argument(f"--{role}-column", metavar="COLUMN", action=action, help=text)
    parser.add_argument("--encoding", action=action, **SHARED["encoding"])


def parts(text: str | None) -> list[str]:
    """Comma-separated words."""
    return [part.strip() for part in (text or "").split(",") if part.strip()]


def columns_of(arguments: argparse.Namespace) -> Columns:
    """The columns that the arguments name."""
    return Columns(**{role: getattr(arguments, f"{role}_column") for role in ROLES})


def values_of_files(arguments: argparse.Namespace, name: str, files: int) -> list[str | None]:
    """An option of :func:`add_columns` for each of so many files: given once for all, or once a file."""
    values = getattr(arguments, name) or [None]
    if len(values) == 1:
        return values * files
    if len(values) != files:
        option = name.replace("_", "-")
        raise AtlasError(
            f"--{option} is given {len(values)} times for {files} files",
            f"Give it once, or once a file in their order; {RECOGNISED} where it is recognised",
        )
    return [None if value == RECOGNISED else value for value in values]


def aligned(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Rows of a table as lines, every column as wide as its longest cell."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def say(text: str) -> None:
    """Print a line that may quote a file, with escapes for what a terminal would obey."""
    print(visible(text))


def describe(file: Layout | Preview) -> None:
    """Say what a file was found to be."""
    facts = [file.kind, *(["gzip"] if file.packed else []), file.encoding or "binary"]
    facts += [f"{role} from '{column}'" for role, column in file.columns.named().items()]
    say(f"{file.name}: {', '.join(facts)}")


def excluded(file: Mapping[str, Any], exclusions: Sequence[Mapping[str, Any]], all_in: str) -> None:
    """Print which places of the ``input`` of a report were not scored; ``all_in`` names where all are listed."""
    entries = [*file["problems"], *exclusions]
    if not entries:
        return
    say(f"{len(entries):,} places of {file['name']} were excluded:")
    for entry in entries[:LISTED]:
        column = f", {entry['column']}" if entry.get("column") else ""
        say(f"  {file['unit']} {entry['place']}{column}: {entry['reason']}")
    if len(entries) > LISTED:
        print(f"  … and {len(entries) - LISTED:,} more, all in {all_in}")


@contextmanager
def stop_on_interrupt(then: str = "what is done is saved") -> Iterator[Callable[[], bool]]:
    """A first Ctrl-C ends the work after the current batch, a second one at once."""
    signals: list[int] = []

    def handle(number: int, _frame: FrameType | None) -> None:
        if signals:
            raise KeyboardInterrupt
        signals.append(number)
        print(f"Stopping after this batch; {then}. Once more stops at once, and nothing is saved.", file=sys.stderr)

    before = signal.signal(signal.SIGINT, handle)
    try:
        yield lambda: bool(signals)
    finally:
        signal.signal(signal.SIGINT, before)
