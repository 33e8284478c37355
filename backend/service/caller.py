"""The caller of a request, known to everything that the request does: logs, problems, jobs and the audit log."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass

NOBODY = "-"


@dataclass(frozen=True)
class Caller:
    """The one who sent a request."""

    request: str = NOBODY  # reference of the request, which its answer and its log lines name
    client: str | None = None  # address
    token: bool | None = None  # whether the token came along; None where the request is over


UNKNOWN = Caller()
_CURRENT: ContextVar[Caller] = ContextVar("caller", default=UNKNOWN)


def current() -> Caller:
    """The caller of what runs now; without a request one that has no name."""
    return _CURRENT.get()


def enter(caller: Caller) -> None:
    """Do what follows in this thread for a caller, until another one enters."""
    _CURRENT.set(caller)


@contextlib.contextmanager
def on_behalf_of(caller: Caller) -> Iterator[None]:
    """Do what is inside for a caller, and then go on for the one before."""
    before = _CURRENT.set(caller)
    try:
        yield
    finally:
        _CURRENT.reset(before)
