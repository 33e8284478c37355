"""Bodies of requests with traces, checked: JSON, or files with form fields.

Large bodies are read one at a time, and who comes while others wait gets 429. The values of JSON are counted before it
is parsed: a parser holds the interpreter, and a body becomes many times its bytes.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

import numpy as np
from flask import Request
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

from atlas.api.problems import RefusedError
from backend.attribution.settings import MOST_ALSO, STOP_LEVEL, Settings, of_windows
from backend.intake import Columns
from backend.intake.traces import BREAK, outside_strings, short, whole
from backend.service.uploads import Turns

JSON = "application/json"
FORM = "multipart/form-data"
SMALL = 64 * 2**10  # bytes that any request may have, with or without a token
LARGE = 2**20  # bytes from which bodies are read one at a time
VALUES = 1_250_000  # commas, colons and brackets of a JSON body: 100,000 traces with all their fields
WIDE = 8_000_000
"""Bytes of a JSON body with characters beyond U+FFFF: each of its texts may take four bytes a character."""
DEPTH = 200
BLOCK = 2**20
MOST_WEIGHTS = 1_000  # sources of a prior
MOST_TRACES = 100_000  # traces of a JSON body, or of one window in it
PIECE = 1_000  # traces that are validated at a time
SHOWN = 50  # traces of which a report may show the text
IN_JSON = ("prior", "columns", "also", "candidates")  # form fields that hold JSON
OF_TRACES = ("traces", "background", "before", "after", "reference", "rival")  # fields of a JSON body that hold traces
Name = Annotated[str, Field(min_length=1, max_length=400)]
Sentence = Annotated[str, Field(min_length=1, max_length=2_000)]
Weight = Annotated[float, Field(gt=0, le=1e12, allow_inf_nan=False)]
_WIDE = re.compile(rb"[\xf0-\xf4]|\\u[dD][89abAB]")
turns = Turns(places=1, waiting=2, seconds=10)


@contextmanager
def turn(request: Request) -> Iterator[None]:
    """Wait for the turn of a large body; raises BusyError if others wait already."""
    if request.content_length is not None and request.content_length <= LARGE:
        yield
        return
    with turns.turn("Others send large files at this moment"):
        yield


def read_json(request: Request, values: int = VALUES, wide: int = WIDE) -> Any:
    """The JSON body of a request; surrogate pairs become their character.

    Raises RefusedError: 400 where it is no JSON or nested too deeply, 413 where it holds more values than are taken.
    """
    raw = request.get_data(cache=False)
    if len(raw) > SMALL:
        count, depth = measure(raw)
        if depth > DEPTH:
            raise _no_json(f" (it is nested {depth:,} deep)")
        if count > values:
            raise _too_large(f"The body holds more than {values:,} values.")
        if len(raw) > wide and is_wide(raw):
            about = "bytes and characters beyond U+FFFF, with which"
            raise _too_large(f"The body has {len(raw):,} {about} {wide:,} are taken.")
    try:
        escaped = b"\\u" in raw.lower()
        text = raw.decode(json.detect_encoding(raw), "surrogatepass")
        del raw  # the text may take four times its bytes
        value = json.loads(text, parse_constant=no_number)
        if len(text) > LARGE:
            time.sleep(BREAK)  # others get the interpreter, which the parser has blocked
        return _whole(value) if escaped else value
    except (ValueError, RecursionError) as error:
        where = f" (line {error.lineno}, column {error.colno})" if isinstance(error, json.JSONDecodeError) else ""
        raise _no_json(where) from error


def measure(raw: bytes) -> tuple[int, int]:
    """Commas, colons and opening brackets outside strings, and the depth; a block at a time."""
    count = depth = deepest = 0
    for codes in outside_strings(raw[start : start + BLOCK] for start in range(0, len(raw), BLOCK)):
        opened, closed = ((codes == a) | (codes == b) for a, b in (b"[{", b"]}"))
        count += int(opened.sum() + (codes == ord(",")).sum() + (codes == ord(":")).sum())
        steps = np.cumsum(opened.astype(np.int32) - closed.astype(np.int32))
        if len(steps):
            deepest = max(deepest, depth + int(steps.max()))
            depth += int(steps[-1])
    return count, deepest


def is_wide(raw: bytes) -> bool:
    """Whether a JSON text holds characters beyond U+FFFF, as they are or escaped."""
    return any(_WIDE.search(raw, start, start + BLOCK + 4) for start in range(0, len(raw), BLOCK))


def no_number(constant: str) -> Any:
    """Refuse NaN and Infinity, which Python would take for numbers."""
    raise ValueError(f"{constant} is no JSON")


def _too_large(detail: str) -> RefusedError:
    return RefusedError(413, detail, "Send the traces as a file in a form, or fewer at a time.")


def _no_json(where: str) -> RefusedError:
    return RefusedError(400, f"The body is no JSON{where}.", "Send a JSON object.")


def _whole(value: Any) -> Any:
    if isinstance(value, str):
        return whole(value)
    if isinstance(value, list):
        return [_whole(inner) for inner in value]
    if isinstance(value, Mapping):
        return {whole(key): _whole(inner) for key, inner in value.items()}
    return value


class Strict(BaseModel):
    """A model that takes no unknown fields."""

    model_config = ConfigDict(extra="forbid")


class Trace(Strict):
    """A prompt and the response to it."""

    response: Annotated[str, Field(max_length=1_000_000, description="What came back.")]
    prompt: Annotated[str, Field(max_length=1_000_000, description="What was asked; may be empty.")] = ""
    time: Annotated[str | None, Field(max_length=200, description="When, as written in your log.")] = None
    label: Annotated[str | None, Field(max_length=200, description="Whom the log names as the source.")] = None
    id: Annotated[str | None, Field(max_length=200, description="Your own name of the trace.")] = None


def _write_lines(traces: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    """Validate a list a piece at a time, each to lines of JSONL.

    A validator holds the interpreter until it is done, and its models take many times their bytes.
    """
    if not isinstance(traces, list) or not 0 < len(traces) <= MOST_TRACES:
        return validate(traces)
    lines: list[bytes] = []
    for start in range(0, len(traces), PIECE):
        piece = traces[start : start + PIECE]
        try:
            models = validate(piece)
        except ValidationError:
            validate([Trace(response="")] * start + piece)  # its errors name places in the whole list
            raise
        lines += map(_line, models)
    return lines


def _line(trace: Trace) -> bytes:
    """No longer than the trace was in its JSON body, because the limits of a file are in bytes."""
    return json.dumps(trace.model_dump(exclude_none=True), ensure_ascii=False, separators=(",", ":")).encode()


ListOfTraces = Annotated[
    list[Trace], FailFast(), Field(min_length=1, max_length=MOST_TRACES), WrapValidator(_write_lines)
]
"""Traces as they are sent; after validation their lines, as bytes."""


def _few(weights: Any) -> Any:
    if isinstance(weights, dict) and len(weights) > MOST_WEIGHTS:
        raise ValueError(f"more than {MOST_WEIGHTS:,} sources")
    return weights


class Choices(Strict):
    """What may be chosen, whatever form the traces have."""

    enrolment: Annotated[
        Name | None, Field(description="Ecosystem; by default the largest, then most accurate, that knows the claim.")
    ] = None
    claimed: Annotated[Name | None, Field(description="Source that the traces are said to come from.")] = None
    candidates: Annotated[
        list[Name],
        FailFast(),
        Field(max_length=MOST_WEIGHTS, description="Enrolled sources in question, or 'family:NAME'; by default all."),
    ] = []
    prior: Annotated[
        dict[Name, Weight] | None,
        Field(min_length=1, max_length=MOST_WEIGHTS, description="Weights of sources; by default all the same."),
        BeforeValidator(_few),  # before each of them is found wrong on its own
    ] = None
    prior_statement: Annotated[Sentence | None, Field(description="Where the prior comes from.")] = None
    case: Annotated[Sentence, Field(description="Name of the case, for the report.")] = "Untitled case"
    question: Annotated[Sentence | None, Field(description="What is asked, by default made from the claim.")] = None
    keep_duplicates: Annotated[bool, Field(description="Count traces that repeat an earlier one.")] = False
    keep_text: Annotated[
        int, Field(ge=0, le=SHOWN, description="Traces whose text and token evidence the report shows; 0 keeps none.")
    ] = 0
    against: Annotated[Name | None, Field(description="Rival of the token evidence.")] = None
    orders: Annotated[int, Field(ge=1, le=1_000, description="Random orders for the spread.")] = 200
    seed: Annotated[int, Field(ge=0, le=2**32 - 1, description="Of the random orders.")] = 42
    stop_level: Annotated[
        float,
        Field(gt=0, lt=1, allow_inf_nan=False, description="Stated error rate of the sequential stop, one of those "
              "that GET /api/ecosystems lists."),
    ] = STOP_LEVEL  # fmt: skip
    also: Annotated[
        list[Name],
        Field(max_length=MOST_ALSO, description="Further ecosystems that read the traces: what hangs on the reader."),
    ] = []

    def settings(self, columns: Columns, encoding: str | None = None) -> Settings:
        """The same for the audit."""
        same = self.model_dump(include=Choices.model_fields.keys() - {"keep_text", "also", "candidates"})
        same |= {"also": tuple(self.also), "candidates": tuple(self.candidates)}
        return Settings(**same, columns=columns, encoding=encoding, show=self.keep_text)


class Traces(Choices):
    """A JSON body."""

    traces: ListOfTraces
    background: Annotated[
        ListOfTraces, Field(description="Unlabelled responses of the same kind of traffic that balance the scores.")
    ] = []


class Mapped(Strict):
    """Columns of a file."""

    response: Name | None = None
    prompt: Name | None = None
    time: Name | None = None
    label: Name | None = None
    name: Name | None = None


Encoding = Annotated[
    str | None, Field(min_length=1, max_length=40, description="Of the text, such as cp1251; by default recognised.")
]


class Form(Choices):
    """Form fields beside a file; those of :data:`IN_JSON` hold JSON."""

    columns: Annotated[Mapped, Field(description="Columns of the file, by default recognised.")] = Mapped()
    encoding: Encoding = None


class Windows(Strict):
    """A JSON body with two windows of traces, or one whose halves are compared."""

    enrolment: Annotated[Name | None, Field(description="Ecosystem whose proxy reads; by default the largest.")] = None
    before: Annotated[ListOfTraces, Field(description="The earlier window, or both in the order of arrival.")]
    after: Annotated[ListOfTraces, Field(description="The later window; without it halves are compared.")] = []


class Compared(Strict):
    """A JSON body with traces and a reference's answers to their prompts."""

    enrolment: Annotated[Name | None, Field(description="Ecosystem whose proxy reads; by default the largest.")] = None
    traces: Annotated[ListOfTraces, Field(description="Of the endpoint in question.")]
    reference: Annotated[ListOfTraces, Field(description="The claimed source's answers to the same prompts.")]
    rival: Annotated[ListOfTraces, Field(description="Another source's answers to them, which may be nearer.")] = []


class WindowsForm(Strict):
    """Form fields beside files that are compared; ``columns`` holds JSON."""

    enrolment: Annotated[Name | None, Field(description="Ecosystem whose proxy reads; by default the largest.")] = None
    columns: Annotated[Mapped, Field(description="Columns of the files, by default recognised.")] = Mapped()
    encoding: Encoding = None


class Token(Strict):
    """What a person types once."""

    token: Annotated[str, Field(min_length=1, max_length=4_000)]


File = tuple[str, bytes]  # name and bytes of a file of traces
M = TypeVar("M", bound=BaseModel)


def received(request: Request) -> tuple[list[File], Settings]:
    """The file of traces, where given that of unlabelled traffic, and the settings.

    Raises RefusedError: 415 for another type of body, 400 for one that cannot be read, 422 for wrong values.
    """
    if request.mimetype == JSON:
        with turn(request):
            body = checked(Traces, read_json(request), strict=True)
            given = {"traces.jsonl": body.traces, "background.jsonl": body.background}
            return [(name, _file(traces)) for name, traces in given.items() if traces], body.settings(Columns())
    files = _files(request, ("file",), ("file", "background"))
    form = checked(Form, _fields(request), strict=False)
    return files, form.settings(Columns(**form.columns.model_dump()), form.encoding)


def received_windows(request: Request, model: type[Windows] | type[Compared]) -> tuple[list[File], Settings]:
    """Files that are compared, in the order of the model's fields, and their settings; raises as :func:`received`."""
    fields = {name: field.is_required() for name, field in model.model_fields.items() if name in OF_TRACES}
    if request.mimetype == JSON:
        with turn(request):
            body = checked(model, read_json(request), strict=True)
            given = {f"{name}.jsonl": getattr(body, name) for name in fields}
            return [(name, _file(traces)) for name, traces in given.items() if traces], of_windows(body.enrolment)
    files = _files(request, [name for name, needed in fields.items() if needed], list(fields))
    form = checked(WindowsForm, _fields(request), strict=False)
    return files, of_windows(form.enrolment, Columns(**form.columns.model_dump()), form.encoding)


def _file(lines: Sequence[Any]) -> bytes:
    """A JSONL file of validated traces, which are lines by then."""
    return b"\n".join(lines)


def checked(model: type[M], value: Any, *, strict: bool) -> M:
    """An object of the model out of JSON or form fields.

    Raises RefusedError 422 with every wrong value, of traces those of the first wrong one; where a key is unknown, with
    the first of them only.
    """
    if (place := _unknown(model, value)) is not None:
        raise _wrong([{"pointer": _pointer(place), "detail": "There is no such field"}])
    try:
        return model.model_validate(value, strict=strict)
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        raise _wrong([{"pointer": _pointer(entry["loc"]), "detail": whole(entry["msg"])} for entry in found]) from error


def _unknown(model: type[BaseModel], value: Any) -> tuple[int | str, ...] | None:
    """Place of the first key that is in no model, found before validation, which would write an error for each."""
    if not isinstance(value, dict):
        return None
    fields, inner = model.model_fields.keys(), Trace.model_fields.keys()
    for key in value:
        if key not in fields:
            return (key,)
    for field in OF_TRACES:
        traces = value.get(field)
        for number, trace in enumerate(traces if isinstance(traces, list) else []):
            if isinstance(trace, dict) and not trace.keys() <= inner:
                return (field, number, next(key for key in trace if key not in inner))
    return None


def _wrong(errors: list[dict[str, str]]) -> RefusedError:
    return RefusedError(
        422,
        f"{len(errors):,} value{'s are' if len(errors) != 1 else ' is'} wrong. "
        f"{errors[0]['pointer'] or 'The body'}: {errors[0]['detail']}.",
        "Look at /api/openapi.json.",
        errors[:100],
    )


def _files(request: Request, needed: Sequence[str], known: Sequence[str]) -> list[File]:
    """Files of a form, in the order of the names that are known; one each."""
    if request.mimetype != FORM:
        detail = f"The body is '{request.mimetype[:80] or 'of no stated type'}'."
        raise RefusedError(415, detail, f"Send {JSON}, or a file in {FORM}.")
    with turn(request):
        files = {name: request.files.getlist(name) for name in known if name in request.files}
    for name in known:
        if len(files.get(name, ())) != 1 and (name in needed or name in files):
            detail = f"The form holds no file named '{name}', or more than one."
            errors = [{"pointer": f"/{name}", "detail": "One file is wanted"}]
            raise RefusedError(422, detail, "Send one file of traces.", errors)
    if (other := next((name for name in request.files if name not in known), None)) is not None:
        raise _wrong([{"pointer": _pointer((other,)), "detail": "There is no such file"}])
    read = {name: (file.filename or "traces", file.read()) for name, (file,) in files.items()}
    if (empty := next((name for name in read if name not in needed and not read[name][1]), None)) is not None:
        errors = [{"pointer": f"/{empty}", "detail": "It is empty"}]
        raise RefusedError(422, f"The file named '{empty}' is empty.", "Leave it out, or send traces in it.", errors)
    return list(read.values())


def _fields(request: Request) -> dict[str, Any]:
    """Fields of a form, those of :data:`IN_JSON` read."""
    fields: dict[str, Any] = {}
    for field, values in request.form.lists():
        fields[field] = values[-1]
        if field in IN_JSON:
            try:
                fields[field] = json.loads(values[-1], parse_constant=no_number)
            except (ValueError, RecursionError) as error:
                errors = [{"pointer": f"/{field}", "detail": "It holds no JSON"}]
                detail = f"The field '{field}' holds no JSON."
                raise RefusedError(422, detail, "Send a JSON object in it.", errors) from error
    return fields


def _pointer(place: tuple[int | str, ...]) -> str:
    return "".join(f"/{short(str(part), 400).replace('~', '~0').replace('/', '~1')}" for part in place)
