"""Uploaded files: where they lie, who may read them, how long (Dynamic Provenance Setting).

A file lies under its key in the folder of its session, whose name is a hash of the session's key; no other session
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
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import BinaryIO

from backend.errors import AtlasError, ServerError
from backend.intake import Layout, Limits, peek
from backend.intake.traces import BREAK, short

LIFETIME = 24 * 3600  # seconds after which a file is deleted, whatever happens
AHEAD = 3_600  # seconds by which a clock may be set back
PASSING = "passing"  # file that marks a passing session: it names the process that answers its request
SESSION_BYTES = 250_000_000  # bytes that one session may hold at a time
ALL_BYTES = 20 * SESSION_BYTES  # bytes that all sessions may hold together: a session costs nobody anything
_KEY = re.compile(r"[0-9a-f]{64}")


class MissingError(AtlasError):
    """It is not here, or belongs to somebody else, which is the same to whoever requests it."""


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
    with parsing.turn("The server reads other files at this moment"), contextlib.ExitStack() as end:
        try:
            stream = end.enter_context(path.open("rb"))
        except FileNotFoundError as error:  # its session ended meanwhile
            raise MissingError("This session has no such file", "Upload it again") from error
        yield stream


@dataclass(frozen=True)
class Upload:
    """A file that was received."""

    key: str  # sha256 of its bytes, or of these and its name where they came under another one before
    name: str  # as it was called; never a path
    size: int  # bytes
    enrolment: str | None = None  # the ecosystem that a shipped sample belongs to
    label: str | None = None  # the source of a shipped sample
    of_bytes: str | None = None  # their sha256, where the key is another one

    @property
    def sha256(self) -> str:
        """Of its bytes."""
        return self.of_bytes or self.key


class Uploads:
    """The folder of uploads, created with the first file; several processes may share it.

    process : name of this one.
    """

    def __init__(self, folder: Path, limits: Limits | None = None, process: str = "") -> None:
        self.folder = folder
        self.limits = limits or Limits()
        self._process = process
        self._lock = threading.Lock()

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
        """Store a file; the same bytes of the same name again replace it.

        A ``passing`` session is known to one request of this process alone: its files go with the process.
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
            self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.folder.chmod(0o700)
            with self._alone():
                place.mkdir(exist_ok=True, mode=0o700)
                if passing:
                    (place / PASSING).write_text(self._process, "utf-8")
                upload = self._apart(place, upload)
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

    def _apart(self, place: Path, upload: Upload) -> Upload:
        """An upload with a key of its own, where its bytes are there under another name."""
        with contextlib.suppress(MissingError):
            if self.file(place, upload.key)[0].name != upload.name:
                key = hashlib.sha256(f"{upload.key} {upload.name}".encode("utf-8", "replace")).hexdigest()
                return replace(upload, key=key, of_bytes=upload.key)
        return upload

    def get(self, session: str, key: str) -> tuple[Upload, Path]:
        """A file of this session; a MissingError if it has none, or it was deleted."""
        return self.file(self.place(session), key)

    def file(self, place: Path, key: str) -> tuple[Upload, Path]:
        """As :meth:`get`, by the folder of a session."""
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

    def discard(self, place: Path, key: str) -> None:
        """Delete one file of a session, by its folder."""
        for ending in ("file", "upload.json"):
            if _KEY.fullmatch(key):
                (place / f"{key}.{ending}").unlink(missing_ok=True)

    def keep(self, session: str) -> None:
        """A passing session passes no longer: somebody knows its key."""
        (self.place(session) / PASSING).unlink(missing_ok=True)

    def is_passing(self, session: str) -> bool:
        """Whether a session passes with its request."""
        return (self.place(session) / PASSING).exists()

    def forget(self, session: str) -> None:
        """Delete all that a session holds."""
        self.remove(self.place(session))

    def remove(self, place: Path) -> None:
        """As :meth:`forget`, by the folder of a session."""
        if place.is_dir():
            with self._alone():  # never while one of its files is being written
                shutil.rmtree(place, ignore_errors=True)

    def sweep(self, now: float | None = None) -> None:
        """Delete every file that is older than its lifetime or dated in the future, and folders that are empty then."""
        now = time.time() if now is None else now
        if not self.folder.is_dir():
            return
        with self._alone():
            for place in self.folder.glob("*/"):
                with contextlib.suppress(OSError):  # a session that ends at this moment takes its folder along
                    for file in place.iterdir():
                        if _is_over(file.stat().st_mtime, now):
                            file.unlink(missing_ok=True)
                    if {file.name for file in place.iterdir()} <= {PASSING}:
                        (place / PASSING).unlink(missing_ok=True)
                        place.rmdir()

    def passing(self, owners: Collection[str] | None = None) -> list[Path]:
        """Folders of passing sessions of this process; with ``owners``, of processes that are none of them."""
        found = []
        for marker in self.folder.glob(f"*/{PASSING}"):
            with contextlib.suppress(OSError):  # its request ends at this moment
                owner = marker.read_text("utf-8")
                # An empty one is being written at this moment.
                if owner and (owner == self._process if owners is None else owner not in owners):
                    found.append(marker.parent)
        return found

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """While no other thread or process writes or deletes."""
        with self._lock, (self.folder / "lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


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
