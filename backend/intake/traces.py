"""Values of an intake: roles of columns, cells as text, the clock, JSON.

Text stays data: nothing is evaluated, unpickled or formatted into a command.
"""

from __future__ import annotations

import gc
import json
import math
import time
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.errors import AtlasError
from backend.intake.layout import Columns, Limits
from backend.traces import whole_text

LATEST = 1e11  # seconds since 1970 from which on a number counts a smaller unit
REMARK = 64  # characters of a time, label or name up to which it is one, and no text of a trace
whole = whole_text
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})  # move a cursor, turn the direction of reading, or end a line


def is_remark(text: str) -> bool:
    """Whether a time, label or name is short and in one line; what is not may be text of a trace."""
    return len(text) <= REMARK and text == visible(text)


def notes_on_remarks(remarks: Mapping[str, Iterable[str | None]]) -> list[str]:
    """Sentences about times, labels and names (values by role) that a report leaves out."""
    notes = []
    for role, values in remarks.items():
        if many := sum(value is not None and not is_remark(value) for value in values):
            have = "1 trace has" if many == 1 else f"{many:,} traces have"
            notes.append(
                f"{have} a {role} that is longer than {REMARK} characters or no single line, and may be text. A report "
                f"leaves it out; if it is no {role}, choose another column, or none."
            )
    return notes


def visible(text: str) -> str:
    """Text for a terminal, with escapes (``\\x1b``) for characters that nobody sees but that a terminal obeys."""
    if text.isprintable():
        return text
    return "".join(repr(c)[1:-1] if unicodedata.category(c) in _UNSEEN else c for c in text)


def short(value: Any, characters: int = 40) -> str:
    """A value in an error, cut."""
    text = whole(value if isinstance(value, str) else repr(value))
    return text if len(text) <= characters else text[: characters - 1] + "…"


_STEP = 1 << 17  # characters between two looks at the clock
_STEP_EACH = 1 << 9  # those that a call counts for whatever it read


ALIKE = 1.3  # ratio of lengths below which texts are about as long


class Clock:
    """Processor time that reading a file takes, and the place it has reached.

    Time between :meth:`pause` and :meth:`resume` belongs to whoever takes the traces and does not count.
    """

    def __init__(self, name: str, limits: Limits) -> None:
        self.traces = 0
        self._name, self._limit = short(name, 200), limits.seconds
        self._spent, self._since, self._work = 0.0, time.thread_time(), 0

    def check(self, place: int, unit: str, size: int = 0) -> None:
        """Raise AtlasError where the time is spent; ``size`` is what was read since the last call."""
        self._work += size + _STEP_EACH
        if self._work < _STEP:
            return
        self._work = 0
        if self._spent + time.thread_time() - self._since > self._limit:
            after = f", after {self.traces:,} trace{'s' if self.traces != 1 else ''}" if self.traces else ""
            raise AtlasError(
                f"Reading {self._name} takes more than {self._limit:,g} s of computing time "
                f"(it stopped at {unit} {place:,}{after}, and nothing of the file is used)",
                "Cut the file into parts, or run it by command line: python -m jobs attribute FILE",
            )

    def pause(self) -> None:
        self._spent += time.thread_time() - self._since

    def resume(self) -> None:
        """Go on counting; it may be another thread that does."""
        self._since = time.thread_time()


_NAMES = {
    "response": "response completion output answer generation generated_text model_output response_text output_text "
    "completion_text assistant reply prediction content text",
    "prompt": "prompt question instruction query input user prompt_text input_text request",
    "time": "timestamp time created_at created date datetime requested_at ts",
    "label": "source label model model_name model_id engine generator generator_model generated_by author_model "
    "source_model response_model answered_by llm llm_name",
    "name": "sample_id id trace_id request_id custom_id run_id uuid key",
}
_ROLES = frozenset(name for names in _NAMES.values() for name in names.split())
_CONVERSATIONS = "conversation_id session_id thread_id chat_id dialogue_id dialog_id conversation_hash session thread"
MOST_COLUMNS = 2_000
_NONE = "none"  # what a person says for a role that is to have no column, where no column has that name


def propose_columns(records: Sequence[Mapping[str, str]]) -> Columns:
    """Columns of text for a person to confirm, by the first records; without a response where none holds text.

    The longest texts are responses, the next ones prompts; of two that are about as long, the later column answers.
    Times are dates in every record: a mere number may count anything.
    """
    texts: dict[str, list[str]] = {}
    for record in records:
        for name, value in record.items():
            texts.setdefault(name, []).append(value)
    worded = {name: sum(map(len, values)) for name, values in texts.items() if any(" " in value for value in values)}
    longest = sorted(worded, key=lambda name: -worded[name])[:2]
    if len(longest) == 2 and worded[longest[0]] < ALIKE * worded[longest[1]]:
        longest.sort(key=list(worded).index, reverse=True)
    times = (name for name, values in texts.items() if name not in longest and all(map(_is_date, values)))
    return Columns(**dict(zip(("response", "prompt"), longest, strict=False)), time=next(times, None))


def _is_date(value: str) -> bool:
    return not math.isnan(seconds_of(value)) and any(sign in value for sign in "-:/")


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
        check_column(column, role, everything)
    taken = set(found.named().values())
    for part in (fields, late):
        by_name: dict[str, str] = {_plain(name): name for name in reversed(part)}
        for role, names in _NAMES.items():
            fitting = [by_name[n] for n in names.split() if n in by_name and by_name[n] not in taken]
            if fitting and getattr(found, role) is None:
                found = replace(found, **{role: fitting[0]})
                taken.add(fitting[0])
    return found


def seconds_of(text: str | None) -> float:
    """Seconds since 1970 of a time as ISO 8601 or a number of s, ms, µs or ns; NaN where it is none."""
    try:
        return _scaled(float(text or ""))
    except ValueError:
        pass
    try:
        time = datetime.fromisoformat(text or "")
    except ValueError:
        return math.nan
    return (time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp()


def _scaled(number: float) -> float:
    for unit in (1e9, 1e6, 1e3):
        if abs(number) >= LATEST * unit / 1e3:
            return number / unit if math.isfinite(number) else math.nan
    return number


def check_column(column: str, role: str, fields: Sequence[str]) -> None:
    """Raise AtlasError if a column that a person gave for a role does not exist."""
    if not column or not {column, column.split(".", 1)[0]} & set(fields):
        remedy = f"Choose from {', '.join(short(f) for f in fields[:20]) or 'nothing: the file has no columns'}"
        raise AtlasError(f"There is no column '{short(column)}' for the {role}", remedy)


def conversation_column(fields: Sequence[str]) -> str:
    """The column that says which conversation or session a trace is of; empty where none does."""
    by_name = {_plain(name): name for name in reversed(fields)}
    return next((by_name[name] for name in _CONVERSATIONS.split() if name in by_name), "")


def check_names(names: Sequence[str]) -> None:
    """Raise AtlasError if two columns have one name, or there are more than :data:`MOST_COLUMNS`."""
    if len(names) > MOST_COLUMNS:
        problem = f"The file has {len(names):,} columns, more than {MOST_COLUMNS:,}"
        raise AtlasError(problem, "Leave out those that hold no traces")
    for name, times in Counter(names).items():
        if times > 1:
            raise AtlasError(f"Two columns are named '{short(name)}'", "Give every column its own name")


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
    if isinstance(value, str):
        return whole(value)
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, bool | int | float):
        return json.dumps(value)
    if isinstance(value, list) and value and all(_is_part(part) for part in value):
        return whole("".join(part if isinstance(part, str) else part.get("text", "") for part in value))
    words = {dict: "an object", list: "a list", bytes: "bytes"}
    kind = next((words[kind] for kind in words if isinstance(value, kind)), f"a value of type {type(value).__name__}")
    raise TypeError(f"holds {kind}, not text")


def _is_part(part: Any) -> bool:
    if isinstance(part, dict):
        part = part.get("text", None if part.get("type", "text") == "text" else "")
    return isinstance(part, str)


def _plain(name: str) -> str:
    return name.strip().lower().replace(" ", "_").replace("-", "_")


MOST_VALUES = Limits().values
_WEIGHTS = {"{": 130, "[": 110, ":": 150, ",": 70}  # bytes that Python takes for what follows, about
BLOCK = 2**20
LARGE, BREAK = 20_000_000, 0.05  # estimate from which parsing holds the interpreter for long, and seconds for others


class TooManyValuesError(ValueError):
    """A JSON text holds more values than are read at a time."""


def parse_json(text: str, most: int = MOST_VALUES) -> Any:
    """Parse a JSON text whose values take at most so many bytes, by estimate; texts count by their number only.

    Raises TooManyValuesError; ValueError or RecursionError if it is no JSON, or nested too deeply.
    """
    estimate = sum(weight * text.count(character) for character, weight in _WEIGHTS.items())  # at most
    if estimate > most and _estimate(text) > most:
        raise TooManyValuesError("it holds too many values; leave out what is no part of a trace")
    if estimate <= LARGE:
        return json.loads(text)
    time.sleep(BREAK)  # others get the interpreter before and after
    collects = gc.isenabled()
    gc.disable()  # a tree of new objects has nothing to collect, and the search for it takes half of the time
    try:
        value = json.loads(text)
    finally:
        if collects:
            gc.enable()
    time.sleep(BREAK)
    return value


def outside_strings(blocks: Iterable[bytes]) -> Iterator[npt.NDArray[np.uint8]]:
    """Bytes of a JSON text that are in none of its strings, a block at a time.

    Found without parsing: other threads go on, and no memory is taken. Right up to the place where it stops being JSON.
    """
    inside, rest = False, b""
    for fresh in blocks:
        block = rest + fresh
        rest = b""
        if (len(block) - len(block.rstrip(b"\\"))) % 2:  # the escape of the next block's first character
            block, rest = block[:-1], block[-1:]
        codes = np.frombuffer(block.replace(b"\\\\", b"").replace(b'\\"', b""), np.uint8)
        if len(codes):
            within = np.logical_xor.accumulate(codes == ord('"')) ^ inside
            inside = bool(within[-1])
            yield codes[~within]


def _estimate(text: str) -> int:
    blocks = (text[start : start + BLOCK].encode("utf-8", "surrogatepass") for start in range(0, len(text), BLOCK))
    return sum(
        weight * int((codes == ord(character)).sum())
        for codes in outside_strings(blocks)
        for character, weight in _WEIGHTS.items()
    )
