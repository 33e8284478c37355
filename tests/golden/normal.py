"""Normal forms: values without time, place and version, numbers in six digits, and their hashes."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from backend.store.builds import code_version, host

DIGITS = 6
"""Significant digits that do not depend on the order of sums."""
VOLATILE = frozenset(
    (
        *("build_id", "chain", "code_version", "created", "duration_s", "generation", "host", "job", "minutes"),
        *("records_per_s", "request_id", "seconds", "software", "started_at", "uptime_s", "version"),
    )
)
"""Names whose values depend on time, place or version."""
_STAMPED = {"sha256", "steps"}
"""Names of hashes over a document's time, where it has one."""
_STAMPS = (
    (re.compile(re.escape(host())), "HOST"),
    (re.compile(re.escape(code_version().removesuffix("+changes")) + r"(\+changes)?"), "VERSION"),
    (re.compile(r"\d{8}T\d{6}Z-[0-9a-f]{8}"), "GENERATION"),
    (re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?)?"), "DATE"),
    (re.compile(r"\b\d{1,2} [A-Z][a-z]{2,8} \d{4}\b"), "DATE"),
    (re.compile(r"\b\d\d:\d\d(:\d\d)?\b"), "TIME"),
    (re.compile(r"(?:/[\w.+-]+)*/golden-[\w.+-]+"), "FOLDER"),
    (re.compile(r"\d+\.\d+\.\d+(\+[\w.]+)?"), "VERSION"),
)


def normal(value: Any) -> Any:
    """A value as plain JSON that is equal whenever and wherever it is computed."""
    if isinstance(value, Mapping):
        if set(value) >= {"dtype", "bdata"}:  # an array of a figure
            return normal(np.frombuffer(base64.b64decode(value["bdata"]), value["dtype"]).tolist())
        return {str(name): normal(one) for name, one in lasting(value)}
    if isinstance(value, list | tuple):
        return [normal(one) for one in value]
    if isinstance(value, np.ndarray | np.generic):
        return normal(value.tolist())
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}") if np.isfinite(value) else str(value)
    if isinstance(value, str):
        for pattern, word in _STAMPS:
            value = pattern.sub(word, value)
        return value
    if isinstance(value, datetime.date):
        return "DATE"
    return value if value is None or isinstance(value, bool | int) else str(value)


def lasting(value: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Items of a mapping but those that depend on time, place or version."""
    excluded = VOLATILE | _STAMPED if "created" in value else VOLATILE
    return ((name, one) for name, one in value.items() if name not in excluded)


def digest(value: Any, length: int = 16) -> str:
    """Start of the sha256 of a value's normal form."""
    text = json.dumps(normal(value), sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def digests(value: Mapping[str, Any], depth: int = 2, length: int = 12) -> dict[str, str]:
    """Hashes of the parts of a document by their place, as deep as ``depth`` names."""
    found: dict[str, str] = {}
    for name, one in lasting(value):
        if depth > 1 and isinstance(one, Mapping) and one:
            found |= {f"{name}.{inner}": text for inner, text in digests(one, depth - 1, length).items()}
        else:
            found[name] = digest(one, length)
    return found


def components(value: Any) -> Iterator[tuple[str, Any]]:
    """Ids of the components in a layout as JSON, with what each of them holds."""
    if isinstance(value, Mapping):
        properties = value.get("props")
        if isinstance(properties, Mapping) and "id" in properties:
            name = properties["id"]
            yield name if isinstance(name, str) else json.dumps(name, sort_keys=True, separators=(",", ":")), value
        for one in value.values():
            yield from components(one)
    elif isinstance(value, list):
        for one in value:
            yield from components(one)


def differences(recorded: Any, found: Any, place: str = "") -> Iterator[str]:
    """Sentences that name every place at which two records differ."""
    if isinstance(recorded, Mapping) and isinstance(found, Mapping):
        for name in sorted(recorded.keys() | found.keys()):
            inner = f"{place} › {name}" if place else name
            if name not in found:
                yield f"{inner} is gone"
            elif name not in recorded:
                yield f"{inner} is new"
            else:
                yield from differences(recorded[name], found[name], inner)
    elif recorded != found:
        yield f"{place}: {recorded!r} was recorded, {found!r} is found"
