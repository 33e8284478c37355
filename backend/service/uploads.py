"""Uploaded files: where they lie, who may read them, how long (Dynamic Provenance Setting).

A file lies under its sha256 in the folder of its session, whose name is a hash of the session's key; no other session
finds it. Everything is deleted when its session ends, and 24 hours after it was written in any case.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import BinaryIO

from backend.errors import AtlasError, ServerError
from backend.intake import Layout, Limits, peek
from backend.intake.traces import BREAK, short

LIFETIME = 24 * 3600  # seconds after which a file is deleted, whatever happens
AHEAD = 3_600  # seconds by which a clock may be set back
PASSING = "passing"  # name of the file that marks the folder of a passing session
SESSION_BYTES = 250_000_000  # bytes that one session may hold at a time
ALL_BYTES = 20 * SESSION_BYTES  # bytes that all sessions may hold together: a session costs nobody anything
_KEY = re.compile(r"[0-9a-f]{64}")


class MissingError(AtlasError):
    """It is not here, or belongs to somebody else, which is the same to whoever requests it."""


class LostError(MissingError):
    """It was here before the server was started again."""


class TooLargeError(AtlasError):
    """More bytes than are taken."""


class BusyError(AtlasError):
    """More at a time than the server does."""


class DeniedError(AtlasError):
    """Whoever sends this may upload nothing here."""


class FullError(ServerError):
    """The server's disk is full."""


class Turns:
    """Places for what may run a few at a time; some threads wait for one for so long, and others are sent away."""

    def __init__(self, places: int, waiting: int, seconds: float) -> None:
        self._places = threading.BoundedSemaphore(places)
        self._all = threading.BoundedSemaphore(places + waiting)
        self._seconds = seconds

    @contextlib.contextmanager
    def turn(self, busy: str) -> Iterator[None]:
        """Wait for a place, and give it back; a BusyError with that sentence if too many wait, or too long."""
        with contextlib.ExitStack() as end:
            for places, seconds in ((self._all, 0), (self._places, self._seconds)):
                if not places.acquire(timeout=seconds) if seconds else not places.acquire(blocking=False):
                    raise BusyError(busy, "Try again in a minute")
                end.callback(places.release)
            end.callback(_pause, time.monotonic())
            end.callback(release_memory)
            yield


def _pause(started: float) -> None:
    """Let short requests be answered between two parses that take long."""
    if time.monotonic() - started > BREAK:
        time.sleep(BREAK)


def release_memory() -> None:
    """Give freed memory back to the system, which the allocator of Linux would keep after a large body."""
    if _TRIM is not None:
        _TRIM(0)


def share_arena() -> None:
    """Let all threads allocate in one place: what each keeps of its own on Linux is never given back to the system."""
    if _OPTION is not None:
        _OPTION(_ARENA_MAX, 1)


_TRIM, _OPTION = (
    getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None for name in ("malloc_trim", "mallopt")
)
_ARENA_MAX = -8  # of ``malloc.h``
parsing = Turns(places=1, waiting=3, seconds=20)  # of files that are read whole: one may take most of the memory


@contextlib.contextmanager
def open_in_turn(path: Path) -> Iterator[BinaryIO]:
    """Open a file that is read whole by a request, when it is its turn."""
    with parsing.turn("The server reads other files at this moment"), path.open("rb") as stream:
        yield stream


@dataclass(frozen=True)
class Upload:
    """A file that was received."""

    key: str  # sha256 of its bytes
    name: str  # as it was called; never a path
    size: int  # bytes
    enrolment: str | None = None  # the ecosystem that a shipped sample belongs to
    label: str | None = None  # the source of a shipped sample


class Uploads:
    """The folder of uploads, created with the first file."""

    def __init__(self, folder: Path, limits: Limits | None = None) -> None:
        self.folder = folder
        self.limits = limits or Limits()
        self._lock = threading.Lock()
        self._in_use = False

    def place(self, session: str) -> Path:
        """Folder of a session; a MissingError if its key is too short to be one that nobody guesses."""
        if len(session) < 16:
            raise MissingError("The session has no key", "Reload the page")
        return self.folder / hashlib.sha256(session.encode("utf-8", "replace")).hexdigest()[:40]

    def add(
        self,
        session: str,
        name: str,
        content: bytes,
        enrolment: str | None = None,
        label: str | None = None,
        *,
        passing: bool = False,
    ) -> Upload:
        """Store a file; the same bytes again replace it.

        A ``passing`` session is known to the requests of this process alone: the next start deletes its files.
        """
        if not content:
            raise AtlasError("The file is empty", "Give a file with at least one trace")
        if len(content) > self.limits.bytes:
            raise TooLargeError(
                f"The file is larger than {self.limits.bytes / 1e6:,.0f} MB",
                "Run it by command line: python -m jobs attribute FILE; it has no such limit",
            )
        place = self.place(session)
        plain = short(re.split(r"[/\\]", name)[-1].strip().replace("\0", ""), 120) or "pasted.txt"
        upload = Upload(hashlib.sha256(content).hexdigest(), plain, len(content), enrolment, label)
        try:
            with self._lock:
                self._make(place, passing)
                stored = _bytes_in(place)
                if stored + len(content) > SESSION_BYTES:
                    message = f"This session holds {stored / 1e6:,.0f} MB of files already"
                    raise BusyError(message, "End the session, and start again")
                if sum(map(_bytes_in, os.scandir(self.folder))) + len(content) > ALL_BYTES:
                    raise BusyError("The server holds as many files as it takes", "Try again later; files go in a day")
                # Never written over in place: a job may be reading the same bytes.
                scratch = place / f"{upload.key}.partial"
                scratch.write_bytes(content)
                scratch.replace(place / f"{upload.key}.file")
                (place / f"{upload.key}.upload.json").write_text(json.dumps(asdict(upload)), "utf-8")
        except OSError as error:
            logging.getLogger(__name__).error("An upload cannot be written to %s (%s)", self.folder, error)
            kind = FullError if error.errno in (errno.ENOSPC, errno.EDQUOT) else ServerError
            raise kind(f"The file cannot be kept ({error.strerror})", "Tell whoever runs the server") from error
        return upload

    def get(self, session: str, key: str) -> tuple[Upload, Path]:
        """A file of this session; a MissingError if it has none, or it was deleted."""
        place = self.place(session)
        if _KEY.fullmatch(key):
            try:
                fields = json.loads((place / f"{key}.upload.json").read_text("utf-8"))
                path = place / f"{key}.file"
                if not _is_over(path.stat().st_mtime, time.time()):
                    return Upload(**fields), path
            except (OSError, ValueError, TypeError):
                pass
        raise MissingError("This session has no such file", "Upload it again; files are deleted after 24 hours")

    def peek(
        self, session: str, key: str, encoding: str | None = None
    ) -> tuple[Layout, list[tuple[int, dict[str, str]]]]:
        """What a file is, and its first records as they are."""
        upload, path = self.get(session, key)
        with open_in_turn(path) as stream:
            return peek(stream, upload.name, self.limits, encoding)

    def discard(self, session: str, key: str) -> None:
        """Delete one file of a session."""
        for ending in ("file", "upload.json"):
            if _KEY.fullmatch(key):
                (self.place(session) / f"{key}.{ending}").unlink(missing_ok=True)

    def forget(self, session: str) -> bool:
        """Delete all that a session holds; False where it holds nothing."""
        place = self.place(session)
        with self._lock:  # never while one of its files is being written
            existed = place.is_dir()
            shutil.rmtree(place, ignore_errors=True)
        return existed

    def sweep(self, now: float | None = None) -> None:
        """Delete every file that is older than its lifetime or dated in the future, and folders that are empty then."""
        now = time.time() if now is None else now
        with self._lock:
            for place in self.folder.glob("*/"):
                with contextlib.suppress(OSError):  # a session that ends at this moment takes its folder along
                    for file in place.iterdir():
                        if _is_over(file.stat().st_mtime, now):
                            file.unlink(missing_ok=True)
                    if {file.name for file in place.iterdir()} <= {PASSING}:
                        (place / PASSING).unlink(missing_ok=True)
                        place.rmdir()

    def sweep_unowned(self) -> None:
        """Delete passing sessions of earlier processes; nothing where another process uses the folder."""
        with self._lock, contextlib.suppress(OSError):
            if self.folder.is_dir() and self._use(fcntl.LOCK_EX):
                for marker in self.folder.glob(f"*/{PASSING}"):
                    shutil.rmtree(marker.parent, ignore_errors=True)
                self._use(fcntl.LOCK_SH)

    def _make(self, place: Path, passing: bool) -> None:
        """Make the folder of a session, which nobody else on the machine may read."""
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder.chmod(0o700)
        if not self._in_use:
            self._use(fcntl.LOCK_SH)
        place.mkdir(exist_ok=True, mode=0o700)
        if passing:
            (place / PASSING).touch()

    def _use(self, how: int) -> bool:
        """Lock the folder for as long as this process uses it; False where another one's lock forbids that."""
        if not self._in_use:
            self._handle = os.open(self.folder, os.O_RDONLY)
            weakref.finalize(self, os.close, self._handle)
            self._in_use = True
        try:
            fcntl.flock(self._handle, how | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _is_over(written: float, now: float) -> bool:
    """Whether a file is too old, or dated so far in the future that it would never be."""
    return not now - LIFETIME <= written <= now + AHEAD


def _bytes_in(place: Path | os.DirEntry[str]) -> int:
    """Bytes of the files in a folder, without those that another session deletes meanwhile."""
    total = 0
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if entry.name.endswith(".file"):
                with contextlib.suppress(OSError):
                    total += entry.stat().st_size
    return total
