"""Audit log of a server: who did what with which file, as hashes, in lines that nobody changes unseen.

Every line carries its own sha256 and that of the line before. Processes append in turn, and a line is on the disk when
its action is answered. A file that is full is renamed and the chain goes on in the next one; the oldest are deleted.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import hmac
import json
import logging
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from backend.errors import AtlasError
from backend.output_files import lock
from backend.service import caller, measurements
from backend.service.server_key import KEY_FILE, server_key

VARIABLE = "ATLAS_AUDIT"
OFF = "0"
FILE_BYTES = 16_000_000  # after which a file is renamed
FILES = 8  # renamed files that are kept
TAIL = 8_192  # bytes at the end of a file in which its last line lies
BEGIN = b'{"number":'
OWN = b',"sha256":"'
START = "0" * 64
"""What the first line of all names as the one before."""


class AuditLog:
    """A file of lines; without a path nothing is written. Threads and processes may share it."""

    def __init__(self, path: Path | None, key_file: Path, *, file_bytes: int = FILE_BYTES, files: int = FILES) -> None:
        self.path = path
        self.problem: AtlasError | None = None  # why the last line could not be written
        self._key_file, self._file_bytes, self._files = key_file, file_bytes, files

    @classmethod
    def of(cls, folder: Path) -> AuditLog:
        """The log of a server with this cache folder, or where ``ATLAS_AUDIT`` says; none where that is 0."""
        given = os.environ.get(VARIABLE)
        path = None if given == OFF else Path(given).expanduser() if given else folder / "audit.jsonl"
        return cls(path, folder / KEY_FILE)

    def write(self, action: str, session: str = "", *, job: str = "", settings: Any = None, **details: str) -> None:
        """Append a line; where that fails the log of the server and ``/health`` say so, and the work goes on.

        session : name of its folder. It and ``job`` are written as hashes with the server's secret.
        settings : a dataclass, written as its sha256.
        details : file, enrolment and report (sha256), verdict.
        """
        if self.path is None:
            return
        now = caller.current()
        fields = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "action": action,
            "request": now.request,
            "token": now.token,
            **{name: self._hidden(text) for name, text in (("client", now.client), ("session", session), ("job", job))},
            "settings": settings_hash(settings) if is_dataclass(settings) else None,
            **details,
        }
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with lock(self.path.with_name(f".{self.path.name}.lock")):
                self._append({name: value for name, value in fields.items() if value not in (None, "")})
            self.problem = None
        except OSError as error:
            measurements.AUDIT_FAILURES.inc()
            problem = f"The audit log {self.path} cannot be written ({error.strerror})"
            self.problem = AtlasError(problem, f"Make room, or set {VARIABLE} to another file, or to {OFF} for none")
            logging.getLogger(__name__).error("%s; '%s' is missing in it", problem, action)

    def _append(self, fields: dict[str, Any]) -> None:
        assert self.path is not None
        number, previous = 0, START
        for file in reversed(files_of(self.path)):
            if (last := _last_line(file)) is not None:
                number, previous = last["number"], last["sha256"]
                break
        if self.path.exists() and self.path.stat().st_size >= self._file_bytes:
            self.path.rename(self.path.with_name(f"{self.path.stem}.{number:012d}{self.path.suffix}"))
            for old in files_of(self.path)[: -self._files]:
                old.unlink()
        body = json.dumps({"number": number + 1, **fields, "previous": previous}, separators=(",", ":")).encode()
        line = body[:-1] + OWN + hashlib.sha256(body).hexdigest().encode() + b'"}\n'
        with open(os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600), "a+b") as stream:
            if stream.tell() and not _ends_a_line(stream.fileno(), stream.tell()):
                line = b"\n" + line  # of a process that was killed while it wrote
            stream.write(line)
            stream.flush()
            os.fsync(stream.fileno())

    def _hidden(self, text: str | None) -> str | None:
        """Start of a hash that only this server can compute."""
        if not text:
            return None
        return hmac.new(self._key, text.encode("utf-8", "replace"), hashlib.sha256).hexdigest()[:32]

    @functools.cached_property
    def _key(self) -> bytes:
        return hmac.digest(server_key(self._key_file), b"audit log", "sha256")


@dataclass(frozen=True)
class LogCheck:
    """Result of checking an audit log."""

    found: tuple[str, ...]  # where it breaks first, in a sentence without a full stop; empty where it does not
    lines: int  # that are whole and in the chain
    last: str  # sha256 of the last of them
    notes: tuple[str, ...]  # what somebody should know and what breaks nothing


def check(path: Path) -> LogCheck:
    """Whether the lines of a log and of its renamed files are those that were written, one after the other.

    Raises AtlasError if there is no such file. Lines that were cut off at the end leave no trace: compare ``last`` with
    one that was noted elsewhere.
    """
    files = files_of(path)
    if not files:
        raise AtlasError(f"There is no audit log {path}", f"Give the file of the server's {VARIABLE}, or audit.jsonl")
    notes: list[str] = []
    lines, number, last = 0, 0, START
    for file in files:
        try:
            with file.open("rb") as stream:
                for place, raw in enumerate(stream, 1):
                    where = f"line {place:,} of {file.name}"
                    text = raw.rstrip(b"\n")
                    if text.startswith(BEGIN[: len(text)]) and not text.endswith(b"}"):
                        notes.append(f"{where} is incomplete: the server was stopped while it wrote")
                        continue
                    line = _line(text)
                    if line is None:
                        return LogCheck((f"{where} is not as it was written",), lines, last, tuple(notes))
                    if not lines and line["number"] > 1:
                        notes.append(f"the first {line['number'] - 1:,} lines were in files that are gone")
                    elif (line["number"], line["previous"]) != (number + 1, last):
                        sentence = f"{where} does not follow the line before: one was removed, added or written anew"
                        return LogCheck((sentence,), lines, last, tuple(notes))
                    lines, number, last = lines + 1, line["number"], line["sha256"]
        except OSError as error:
            raise AtlasError(f"{file} cannot be read ({error.strerror})", "Run it as the server's user") from error
    return LogCheck((), lines, last, tuple(notes))


def settings_hash(settings: Any) -> str:
    """sha256 of the settings of an audit: JSON with sorted keys and without blanks."""
    text = json.dumps(asdict(settings), sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def files_of(path: Path) -> list[Path]:
    """The files of a log, the oldest first, the one that grows last."""
    older = path.parent.glob(f"{path.stem}.{'[0-9]' * 12}{path.suffix}")
    return [*sorted(older), *([path] if path.exists() else [])]


def _line(text: bytes) -> dict[str, Any] | None:
    """The fields of a line whose sha256 is right."""
    body, found, own = text.rpartition(OWN)
    with contextlib.suppress(ValueError, TypeError):
        if found and own[64:] == b'"}' and hashlib.sha256(body + b"}").hexdigest().encode() == own[:64]:
            fields: dict[str, Any] = json.loads(text)
            return fields if isinstance(fields["number"], int) else None
    return None


def _last_line(file: Path) -> dict[str, Any] | None:
    """The last whole line of a file, None where there is none."""
    with file.open("rb") as stream:
        stream.seek(max(0, stream.seek(0, os.SEEK_END) - TAIL))
        found: Iterator[dict[str, Any] | None] = map(_line, reversed(stream.read().split(b"\n")))
        return next((line for line in found if line is not None), None)


def _ends_a_line(handle: int, size: int) -> bool:
    return os.pread(handle, 1, size - 1) == b"\n"
