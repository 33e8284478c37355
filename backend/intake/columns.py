"""Which column is the response, which the prompt: recognised by name, or as a person maps them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from backend.errors import AtlasError
from backend.intake.traces import Columns, short, whole

_NAMES: Mapping[str, tuple[str, ...]] = {
    "response": (
        "response", "completion", "output", "answer", "generation", "generated_text", "model_output", "response_text",
        "output_text", "completion_text", "assistant", "reply", "prediction", "content", "text",
    ),
    "prompt": (
        "prompt", "question", "instruction", "query", "input", "user", "prompt_text", "input_text", "request",
    ),
    "time": ("timestamp", "time", "created_at", "created", "date", "datetime", "requested_at", "ts"),
    "label": (
        "source", "label", "model", "model_name", "model_id", "engine", "generator", "generator_model", "generated_by",
        "author_model", "source_model", "response_model", "answered_by", "llm", "llm_name",
    ),
    "name": ("sample_id", "id", "trace_id", "request_id", "custom_id", "run_id", "uuid", "key"),
}  # fmt: skip
_ROLES = frozenset(name for names in _NAMES.values() for name in names)
_NONE = "none"  # what a person says for a role that is to have no column, where no column has that name


def recognise(fields: Sequence[str], given: Columns | None = None, late: Sequence[str] = ()) -> Columns:
    """Map columns to roles; what a person gives wins, also where it is no column at all.

    late : columns that only later records have: for roles that no other column fits.
    Raises AtlasError if a given column does not exist; without a response where none was recognised.
    """
    found, everything = given or Columns(), [*fields, *late]
    if _NONE not in everything:
        unwanted = [role for role, column in found.named().items() if column == _NONE and role != "response"]
        found = replace(found, **dict.fromkeys(unwanted, ""))
    for role, column in found.named().items():
        if not column or not {column, column.split(".", 1)[0]} & set(everything):
            remedy = f"Choose from {', '.join(short(f) for f in everything[:20]) or 'nothing: the file has no columns'}"
            raise AtlasError(f"There is no column '{short(column)}' for the {role}", remedy)
    taken = set(found.named().values())
    for part in (fields, late):
        by_name: dict[str, str] = {_plain(name): name for name in reversed(part)}
        for role, names in _NAMES.items():
            fitting = [by_name[n] for n in names if n in by_name and by_name[n] not in taken]
            if fitting and getattr(found, role) is None:
                found = replace(found, **{role: fitting[0]})
                taken.add(fitting[0])
    return found


def is_role(field: str) -> bool:
    return _plain(field) in _ROLES


def look_up(record: Mapping[str, Any], path: str) -> Any:
    """Value of a column, or of a dotted path into nested objects and lists; None where there is nothing."""
    if not path:  # a person wants no column, whatever a record has under the empty name
        return None
    if path in record:
        return record[path]
    value: Any = record
    for part in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and part.isdecimal() and len(part) < 7:
            value = value[int(part)] if int(part) < len(value) else None
        else:
            return None
    return value


def as_text(value: Any) -> str | None:
    """A cell as text: numbers as written, parts of a message joined, None for nothing (null, NaN); else TypeError."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, list) and value and all(_is_part(part) for part in value):
        return whole("".join(part if isinstance(part, str) else part.get("text", "") for part in value))
    words = {dict: "an object", list: "a list", bytes: "bytes"}
    kind = next((words[kind] for kind in words if isinstance(value, kind)), f"a value of type {type(value).__name__}")
    raise TypeError(f"holds {kind}, not text")


def as_remark(value: Any) -> str | None:
    """A time, label or id as short text; whatever it is, it is never a reason to refuse a trace."""
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return None
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    try:
        return short(value if isinstance(value, str) else json.dumps(value, default=str), 200)
    except (ValueError, TypeError, RecursionError):
        return None


def _is_part(part: Any) -> bool:
    if isinstance(part, dict):
        part = part.get("text", None if part.get("type", "text") == "text" else "")
    return isinstance(part, str)


def _plain(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")
