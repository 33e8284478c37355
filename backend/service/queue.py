"""Tasks that wait for a worker, in Huey: SQLite, Redis or PostgreSQL.

A task is a name and the identity of a record; the records themselves, settings and traces never go through the queue.
Tasks are signed JSON, so nothing is unpickled and nobody else's task runs.
"""

from __future__ import annotations

import functools
import hmac
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from huey import Huey
from huey.exceptions import ConfigurationError
from huey.registry import Message
from huey.storage import PostgresStorage, PriorityRedisStorage, SqliteStorage

from backend.errors import AtlasError, ServerError

VARIABLE = "ATLAS_QUEUE"
KINDS = ("audit", "tokens", "watch")
SCHEMES = ("sqlite", "redis", "rediss", "unix", "postgres", "postgresql")


class SignedJson:
    """Huey's messages as JSON behind an HMAC-SHA256."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def serialize(self, message: Any) -> bytes:
        """Sign a message."""
        text = json.dumps(message, separators=(",", ":")).encode()
        return self._sign(text) + text

    def deserialize(self, data: bytes) -> Message:
        """The message; a ValueError for one that was signed with another secret."""
        sign, text = bytes(data[:64]), bytes(data[64:])
        if not hmac.compare_digest(sign, self._sign(text)):
            raise ValueError("A task in the queue was signed with another secret")
        return Message(*json.loads(text))

    def _sign(self, text: bytes) -> bytes:
        return hmac.digest(self._secret, b"task:" + text, "sha256").hex().encode()


class Queue:
    """Short tasks and long ones; within each, the highest priority comes first.

    address : URL of Redis, PostgreSQL or an SQLite file; without one, a file in ``folder``.
    """

    def __init__(self, address: str | None, folder: Path, secret: bytes) -> None:
        logging.getLogger("huey").setLevel(logging.WARNING)  # it has a line for every task
        self.tasks: dict[str, Callable[[str], None]] = {}  # what a worker does, by kind
        self._filled = threading.Event()
        storage, options = _storage(address, folder)
        self._hueys: dict[bool, Huey] = {}
        self._kinds: dict[bool, dict[str, Any]] = {}
        for short in (True, False):
            name = "atlas-short" if short else "atlas-long"
            with _reachable():
                huey = Huey(name, results=False, serializer=SignedJson(secret), storage_class=storage, **options)
            self._hueys[short] = huey
            self._kinds[short] = {kind: self._register(huey, kind) for kind in KINDS}

    def _register(self, huey: Huey, kind: str) -> Any:
        @huey.task(name=kind)  # type: ignore[untyped-decorator]
        def run(record: str) -> None:
            self.tasks[kind](record)

        return run

    def put(self, kind: str, record: str, *, short: bool, priority: float) -> None:
        """Queue a task; a ServerError where the queue cannot be reached."""
        with _reachable():
            self._hueys[short].enqueue(self._kinds[short][kind].s(record, priority=priority))
        self._filled.set()

    def take(self, *, short: bool = False) -> Callable[[], Any] | None:
        """The next task, or None; with ``short`` only of those."""
        for huey in (self._hueys[size] for size in ((True,) if short else (True, False))):
            while (data := self._dequeued(huey)) is not None:
                try:
                    return functools.partial(huey.execute, huey.deserialize_task(data))
                except ValueError as error:
                    logging.getLogger(__name__).warning("%s; it is dropped", error)
        return None

    def _dequeued(self, huey: Huey) -> bytes | None:
        with _reachable():
            data: bytes | None = huey.storage.dequeue()
        return data

    def wait(self, seconds: float) -> None:
        """Wait for a task that this process queues, or until the time is over."""
        if self._filled.wait(seconds):
            self._filled.clear()

    def records(self) -> set[str]:
        """Records whose tasks wait."""
        found = set()
        for huey in self._hueys.values():
            with _reachable():
                waiting = huey.storage.enqueued_items()
            for data in waiting:
                try:
                    found.add(str(huey.deserialize_task(data).args[0]))
                except ValueError:
                    continue
        return found


class _reachable:  # noqa: N801, as a context manager it reads like a function
    """Turns what a storage raises into a ServerError."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, AtlasError):
            why = f"{type(error).__name__}: {str(error)[:100].strip()}"
            problem = f"The queue of audits cannot be reached ({why})"
            remedy = f"Start it, or correct {VARIABLE}"
            if isinstance(error, ConfigurationError):
                remedy = "Install provenance-atlas[redis] or provenance-atlas[postgres]"
            raise ServerError(problem, remedy) from error


def _storage(address: str | None, folder: Path) -> tuple[type[Any], dict[str, Any]]:
    """Huey's storage and its options."""
    scheme = "sqlite" if address is None else address.partition("://")[0]
    if scheme not in SCHEMES:
        raise AtlasError(f"{VARIABLE} names no queue", f"Give an address that begins with {', '.join(SCHEMES)} and ://")
    if scheme == "sqlite":
        file = folder / "queue.sqlite" if address is None else Path(address.partition(":///")[2])
        return SqliteStorage, {"filename": str(file), "fsync": False, "timeout": 30}
    if scheme.startswith("postgres"):
        return PostgresStorage, {"dsn": address, "blocking": False, "table_prefix": "atlas_queue"}
    return PriorityRedisStorage, {"url": address, "blocking": False}
