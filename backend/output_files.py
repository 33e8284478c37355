"""Files that a verb writes: never over what it reads, in one step, and refused before the work where they cannot be."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from backend.errors import AtlasError


def spare(targets: Sequence[Path], sources: Iterable[Path]) -> None:
    """Refuse targets that are also read. Raises AtlasError: names the file that would be lost."""
    for source in sources:
        for target in targets:
            with contextlib.suppress(OSError):  # what is not there yet is nobody's
                if target.samefile(source):
                    raise AtlasError(f"{source} is read, and would be written over", "Choose another name to write to")


def writable(targets: Sequence[Path]) -> None:
    """Refuse targets that cannot be written, before hours of work; their folders are created."""
    for target in targets:
        with _writing(target):
            if target.is_dir():
                raise AtlasError(f"{target} is a folder", "Name a file")
            _scratch(target).touch()
            _scratch(target).unlink()


def write(path: Path, text: str) -> None:
    """Write a file in one step."""
    with _writing(path):
        _scratch(path).write_text(text, "utf-8")
        _scratch(path).replace(path)


def lock(path: Path, busy: AtlasError | None = None) -> contextlib.ExitStack:
    """Lock a file, or a folder, until the result is closed; raise ``busy`` where another process has it, or wait."""
    handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR | os.O_CREAT, 0o644)
    locked = contextlib.ExitStack()
    locked.callback(os.close, handle)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB if busy else fcntl.LOCK_EX)
    except BlockingIOError as error:
        locked.close()
        raise (busy or error) from error
    return locked


def _scratch(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial")


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        problem = f"{path} cannot be written ({error.strerror})"
        raise AtlasError(problem, "Choose a folder that you may write to") from error


FORMULAS = frozenset("=+-@＝＋－＠\t\r")  # first characters of what a spreadsheet takes for a formula
UNSEEN = " \n\v\f\0\u00a0\u2000\u2003\u200b\u202f\u3000\ufeff"  # what some of them drop before that


def is_formula(text: str) -> bool:
    """Whether a spreadsheet may run a cell, also behind blanks, which some of them drop."""
    return text[:1] in FORMULAS or text.strip(UNSEEN)[:1] in FORMULAS


def plain_cell(value: object) -> object:
    """The value of a cell; a text that may be run begins with an apostrophe."""
    return f"'{value}" if isinstance(value, str) and is_formula(value) else value
