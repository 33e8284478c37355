"""The steps of an audit as an append-only hash chain: what was done, when, and that nothing was changed afterwards.

Each step holds the hash of the one before it. Who keeps the last hash elsewhere (in a mail, on paper) can show later
that no earlier step was added, taken away or altered; without that, the chain shows only that it was not altered by
accident, because whoever holds the file can compute a new one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

START = "0" * 64


@dataclass(frozen=True)
class Chain:
    """Steps so far; :meth:`append` gives a longer one and leaves this one as it is."""

    steps: tuple[Mapping[str, Any], ...] = ()

    @property
    def head(self) -> str:
        """Hash of the last step."""
        return str(self.steps[-1]["sha256"]) if self.steps else START

    def append(self, step: str, details: Mapping[str, Any], at: datetime | None = None) -> Chain:
        """Add a step with details in JSON without NaN, by default at this moment."""
        entry = {
            "number": len(self.steps) + 1,
            "step": step,
            "at": (at or datetime.now(UTC)).isoformat(timespec="milliseconds"),
            "details": json.loads(canonical(details)),
            "previous": self.head,
        }
        return Chain((*self.steps, entry | {"sha256": digest(entry)}))


def broken_step(steps: Sequence[Mapping[str, Any]]) -> int | None:
    """Number (from 1) of the first step that does not follow from those before it; None when all do."""
    previous = START
    for number, entry in enumerate(steps, start=1):
        rest = {key: value for key, value in entry.items() if key != "sha256"}
        fits = entry.get("previous") == previous and entry.get("number") == number
        if not fits or entry.get("sha256") != digest(rest):
            return number
        previous = entry["sha256"]
    return None


def canonical(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def digest(value: Any) -> str:
    """sha256 of :func:`canonical`."""
    return hashlib.sha256(canonical(value).encode("ascii")).hexdigest()
