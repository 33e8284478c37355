"""Files that people hand to the server: where they lie, who may read them, how long (Dynamic Provenance Setting).

A file lies under its sha256 in the folder of its session, whose name is a hash of the session's key; no other session
finds it. Everything is deleted when its session ends, and 24 hours after it was written in any case.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
import shutil
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from backend.audit.intake import Columns, Limits
from backend.audit.intake.model import short
from backend.audit.preview import Preview, preview
from backend.errors import AtlasError

LIFETIME = 24 * 3600
"""Seconds after which a file is deleted, whatever happens."""
SESSION_BYTES = 250_000_000
"""Bytes that one session may hold at a time."""
ALL_BYTES = 20 * SESSION_BYTES
"""Bytes that all sessions may hold together: a session costs nobody anything."""
_PARSERS = threading.BoundedSemaphore(2)
_KEY = re.compile(r"[0-9a-f]{64}")


class MissingError(AtlasError):
    """What was asked for is not here, or belongs to somebody else, which is the same to whoever asks."""


class TooLargeError(AtlasError):
    """More bytes than are taken."""


class BusyError(AtlasError):
    """More at a time than the server does."""


class StoppedError(AtlasError):
    """Somebody cancelled before there was enough for an answer."""


@dataclass(frozen=True)
class Upload:
    """A file that was received.

    Attributes
    ----------
    key : str
        sha256 of its bytes.
    name : str
        As it was called; never a path.
    size : int
        Bytes.
    enrolment : str or None
        The ecosystem that a shipped sample belongs to.
    label : str or None
        The source of a shipped sample.
    """

    key: str
    name: str
    size: int
    enrolment: str | None = None
    label: str | None = None


class Uploads:
    """The folder of uploads.

    Parameters
    ----------
    folder : Path
        Is made when the first file comes.
    limits : Limits, optional
    """

    def __init__(self, folder: Path, limits: Limits | None = None) -> None:
        self.folder = folder
        self.limits = limits or Limits()
        self._lock = threading.Lock()

    def place(self, session: str) -> Path:
        """Folder of a session.

        Raises
        ------
        AtlasError
            If the session's key is too short to be one that nobody guesses.
        """
        if len(session) < 16:
            raise AtlasError("The session has no key", "Reload the page")
        return self.folder / hashlib.sha256(session.encode("utf-8", "replace")).hexdigest()[:40]

    def add(
        self, session: str, name: str, content: bytes, enrolment: str | None = None, label: str | None = None
    ) -> Upload:
        """Keep a file; the same bytes again replace it.

        Raises
        ------
        AtlasError
            If it is empty or too large, the session holds too much, or the disk does not take it.
        """
        if not content:
            raise AtlasError("The file is empty", "Give a file with at least one trace")
        if len(content) > self.limits.bytes:
            raise TooLargeError(
                f"The file is larger than {self.limits.bytes / 1e6:,.0f} MB",
                "Run it by command line: python -m jobs attribute FILE; it has no such limit",
            )
        place = self.place(session)
        upload = Upload(
            hashlib.sha256(content).hexdigest(), _plain_name(name), len(content), enrolment=enrolment, label=label
        )
        try:
            with self._lock:
                held = sum(file.stat().st_size for file in place.glob("*.file"))
                if held + len(content) > SESSION_BYTES:
                    raise BusyError(
                        f"This session holds {held / 1e6:,.0f} MB of files already", "End the session, and start again"
                    )
                if sum(file.stat().st_size for file in self.folder.glob("*/*.file")) + len(content) > ALL_BYTES:
                    raise BusyError("The server holds as many files as it takes", "Try again later; files go in a day")
                place.mkdir(parents=True, exist_ok=True, mode=0o700)
                # Never written over in place: a job may be reading the same bytes.
                scratch = place / f"{upload.key}.partial"
                scratch.write_bytes(content)
                scratch.replace(place / f"{upload.key}.file")
                (place / f"{upload.key}.upload.json").write_text(json.dumps(asdict(upload)), "utf-8")
        except OSError as error:
            raise AtlasError(f"The file cannot be kept ({error.strerror})", "Tell whoever runs the server") from error
        return upload

    def get(self, session: str, key: str) -> tuple[Upload, Path]:
        """A file of this session.

        Raises
        ------
        MissingError
            If this session has no such file, or it was deleted.
        """
        place = self.place(session)
        if _KEY.fullmatch(key):
            try:
                told = json.loads((place / f"{key}.upload.json").read_text("utf-8"))
                if (path := place / f"{key}.file").stat().st_mtime >= time.time() - LIFETIME:
                    return Upload(**told), path
            except (OSError, ValueError, TypeError):
                pass
        raise MissingError("This session has no such file", "Upload it again; files are deleted after 24 hours")

    def preview(self, session: str, key: str, columns: Columns | None = None, encoding: str | None = None) -> Preview:
        """Read a file whole and say what is in it.

        Raises
        ------
        AtlasError
            As :func:`backend.audit.intake.receive`.
        """
        upload, path = self.get(session, key)
        with _PARSERS:
            return preview(io.BytesIO(path.read_bytes()), upload.name, columns, self.limits, encoding)

    def discard(self, session: str, key: str) -> None:
        """Delete one file of a session."""
        for ending in ("file", "upload.json"):
            if _KEY.fullmatch(key):
                (self.place(session) / f"{key}.{ending}").unlink(missing_ok=True)

    def forget(self, session: str) -> None:
        """Delete all that a session holds."""
        shutil.rmtree(self.place(session), ignore_errors=True)

    def sweep(self, now: float | None = None) -> None:
        """Delete every file that is older than its lifetime, and folders that are empty then."""
        oldest = (time.time() if now is None else now) - LIFETIME
        with self._lock:
            for place in self.folder.glob("*/"):
                with contextlib.suppress(OSError):  # a session that ends at this moment takes its folder along
                    for file in place.iterdir():
                        if file.stat().st_mtime < oldest:
                            file.unlink(missing_ok=True)
                    if not any(place.iterdir()):
                        place.rmdir()


def _plain_name(name: str) -> str:
    last = re.split(r"[/\\]", name)[-1].strip().replace("\0", "")
    return short(last, 120) or "pasted.txt"
