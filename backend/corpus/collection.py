"""Collect responses of sources to prompts: our own small ecosystems (paper, Dynamic Provenance Setting).

One JSONL line a response, with its origin. The file only grows: what is in it is not collected again, half a line of a
killed process is removed, and a source with other settings is refused.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import gzip
import importlib.metadata
import io
import json
import os
import platform
import threading
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeGuard

import backend
from backend.corpus import ProgressReporter
from backend.corpus.endpoints import (
    Answer,
    AskError,
    Endpoint,
    LocalModel,
    RateLimits,
    Source,
    endpoint_host,
    endpoint_key,
    exposes_key,
)
from backend.corpus.release import Records
from backend.errors import AtlasError
from backend.intake import COMMAND_LINE, receive
from backend.intake.encoding import opened
from backend.shipped import shipped
from backend.traces import Trace

SAMPLES = shipped("data") / "samples"
RESPONSES = SAMPLES / "responses.jsonl.gz"
_FAILURES_IN_A_ROW = 5
_IDENTITY = ("model", "weights_sha256", "endpoint", "system", "template", "settings", "seed")
_CORRECT = "Correct or remove that line"
_CHECK = "Check its name and permissions"
_BEGINNING = b'{"source": "'  # of every line that is written here
TABLES = (".csv", ".tsv", ".parquet", ".json")
"""Files of traces, whose prompts can be collected for."""


@dataclass(frozen=True)
class Prompt:
    sample_id: str
    prompt: str


@dataclass(frozen=True)
class Collected:
    source: str
    sample_id: str
    prompt: str
    response: str
    model: str  # registry name, hub id or folder name; at an endpoint the name that was sent
    weights_sha256: str | None  # of a local model
    endpoint: str | None  # host of an endpoint; never more of its address, and never its key
    system: str | None
    template: str | None
    settings: dict[str, Any]  # temperature, top_p, top_k, max_new_tokens
    seed: int | None
    finish_reason: str | None
    prompt_tokens: int | None
    response_tokens: int | None
    engine: dict[str, Any]  # local: dtype, device, batch and batch_size. Endpoint: the model that it says it is.
    timestamp: str  # UTC, ISO 8601
    software: dict[str, str]  # versions


@dataclass(frozen=True, slots=True)
class Summary:
    """What a collection did; reasons for what is missing by source and prompt id."""

    collected: int
    present: int
    missing: dict[tuple[str, str], str]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise AtlasError(f"{path} cannot be read ({error.strerror or error})", _CHECK) from error


def read_prompts(path: Path) -> list[Prompt]:
    """Read prompts: ``.jsonl`` with ``prompt`` and ``sample_id``, by default of its line, or one prompt a line.

    Of traces in a table or a JSON document the different prompts, in the order of their first answers.
    """
    if path.suffix in TABLES:
        with opened(path) as stream:
            traces = receive(stream, path.name, limits=COMMAND_LINE).traces
        if not (prompts := dict.fromkeys(trace.prompt for trace in traces if trace.prompt)):
            raise AtlasError(f"The traces of {path} have no prompts", "Give a file that has them")
        return [Prompt(f"trace-{number:06d}", prompt) for number, prompt in enumerate(prompts, start=1)]
    out: list[Prompt] = []
    lines: dict[str, int] = {}
    try:
        text = _read(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise AtlasError(f"{path} is not UTF-8 (byte {error.start})", "Save it as UTF-8") from error
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), start=1):
        if not line.strip():
            continue
        row = _row(path, number, line) if path.suffix == ".jsonl" else {"prompt": line.strip()}
        prompt, sample_id = row.get("prompt"), row.get("sample_id", f"line-{number:06d}")
        if not _is_text(prompt):
            raise AtlasError(f"{path}, line {number}, has no text 'prompt'", "Add it")
        if not _is_text(sample_id) or "/" in sample_id:
            raise AtlasError(f"{path}, line {number}, has a sample_id that is no text without /", "Change it")
        if (first := lines.setdefault(sample_id, number)) != number:
            problem = f"{path} has the sample_id '{sample_id}' on lines {first} and {number}"
            raise AtlasError(problem, "Change one of them")
        out.append(Prompt(sample_id, prompt))
    if not out:
        raise AtlasError(f"{path} holds no prompt", "Write one a line")
    return out


def read_collected(path: Path) -> list[Collected]:
    """Read a collection, ``.jsonl`` or ``.jsonl.gz``; AtlasError names the wrong line."""
    raw = _read(path)
    try:
        return _parsed(path, gzip.decompress(raw) if path.suffix == ".gz" else raw)
    except OSError as error:  # no gzip file at all
        raise AtlasError(f"{path} cannot be read ({error})", _CHECK) from error
    except (EOFError, zlib.error) as error:
        raise AtlasError(f"{path} is a truncated or corrupt gzip file", "Compress the collection again") from error


def collected_records(path: Path, name: str) -> Records:
    """A collection in which every source answered every prompt, as records of the benchmark ``name``.

    Raises AtlasError if a response is missing or stands there twice, or two sources had different prompts under one id.
    """
    found: dict[tuple[str, str], Trace] = {}
    prompts: dict[str, str] = {}
    for line in read_collected(path):
        key = (line.source, line.sample_id)
        if key in found:
            raise AtlasError(f"{path} holds '{line.sample_id}' of '{line.source}' twice", "Remove one of the lines")
        if prompts.setdefault(line.sample_id, line.prompt) != line.prompt:
            raise AtlasError(f"{path} holds two prompts with the id '{line.sample_id}'", "Give them different ids")
        found[key] = Trace(prompts[line.sample_id], line.response)
    sources, ids = list(dict.fromkeys(source for source, _ in found)), sorted(prompts)
    if missing := [(source, i) for source in sources for i in ids if (source, i) not in found]:
        problem = f"{path} lacks {len(missing)} responses, the first is '{missing[0][1]}' of '{missing[0][0]}'"
        raise AtlasError(problem, "Run the same collect command again")
    traces = [found[source, i] for source in sources for i in ids]
    return Records(name, sources, ids, traces, [f"{name}/{source}/{i}" for source in sources for i in ids])


def sample_records() -> Records:
    """The shipped sample: our own prompts, answered by at least 6 small models that the project can serve."""
    return collected_records(RESPONSES, "samples")


def collect(
    sources: Sequence[Source],
    prompts: Sequence[Prompt],
    path: Path,
    *,
    batch_size: int = 16,
    device: str = "auto",
    manners: RateLimits | None = None,
    hearer: ProgressReporter | None = None,
) -> Summary:
    """Collect the responses of every source to every prompt that it has not answered yet.

    A local model that several share is loaded once; what was collected before an error stays. Raises AtlasError if the
    file cannot be written, is in use or of other settings or prompts, a model is missing, or an endpoint refuses.
    """
    hearer, manners = hearer or ProgressReporter(), manners or RateLimits()
    if batch_size < 1:
        raise AtlasError(f"batch is {batch_size}", "Give at least 1")
    if twice := [s.name for i, s in enumerate(sources) if s.name in {t.name for t in sources[:i]}]:
        raise AtlasError(f"The source '{twice[0]}' is named twice", "Give every source a name of its own")
    collected, present = 0, 0
    missing: dict[tuple[str, str], str] = {}
    model: LocalModel | None = None
    origin: tuple[str, str | None, str | None]  # model, hash of its weights, host
    with AppendOnlyJsonl(path, hearer) as sheet:
        for source in sources:
            if source.kind == "local":
                if model is None or model.requested != source.model:
                    model = None  # the last model leaves memory before the next one comes
                    model = LocalModel(source.model, device)
                origin = (model.name, model.weights_sha256, None)
            else:
                if exposes_key(source):
                    hearer.say(f"Warning: the key of '{source.name}' travels unencrypted (http).")
                endpoint_key(source)  # a missing key speaks before the file is touched
                origin = (source.model, None, endpoint_host(source))
            shared = (*origin, source.system, source.template, source.settings(), source.seed)
            identity = dict(zip(_IDENTITY, shared, strict=True))
            todo = sheet.open_of(source.name, identity, prompts)
            present += len(prompts) - len(todo)
            place = f" from {identity['endpoint']}" if identity["endpoint"] else ""
            hearer.say(f"{source.name}: {len(todo)} of {len(prompts)} responses to collect{place}.")
            if source.kind == "local":
                assert model is not None
                answers = _generate(model, source, prompts, todo, batch_size)
            else:
                answers = _ask(source, todo, manners, missing)
            done = len(prompts) - len(todo)
            for prompt, answer in answers:
                sheet.add(_line(source, prompt, answer, identity))
                collected, done = collected + 1, done + 1
                hearer.progress(source.name, done, len(prompts))
    return Summary(collected, present, missing)


def _generate(
    model: LocalModel, source: Source, prompts: Sequence[Prompt], todo: Sequence[Prompt], batch_size: int
) -> Iterator[tuple[Prompt, Answer]]:
    """Batches are cut from all prompts, so that a continued collection draws what an uninterrupted one would."""
    needed = {p.sample_id for p in todo}
    for number, low in enumerate(range(0, len(prompts), batch_size)):
        batch = prompts[low : low + batch_size]
        if not any(p.sample_id in needed for p in batch):
            continue
        answers = model.generate([p.prompt for p in batch], source, number)
        for prompt, answer in zip(batch, answers, strict=True):
            if prompt.sample_id in needed:
                yield prompt, replace(answer, engine={**answer.engine, "batch": number, "batch_size": batch_size})


def _ask(
    source: Source, todo: Sequence[Prompt], manners: RateLimits, missing: dict[tuple[str, str], str]
) -> Iterator[tuple[Prompt, Answer]]:
    """Answers in the order in which they arrive; reasons for prompts without one go to ``missing``."""
    stop = threading.Event()
    endpoint = Endpoint(source, manners, stop)
    in_a_row = 0
    with contextlib.closing(endpoint), ThreadPoolExecutor(manners.concurrency) as workers:
        futures = {workers.submit(endpoint.ask, prompt.prompt): prompt for prompt in todo}
        try:
            for future in as_completed(futures):
                prompt = futures[future]
                try:
                    answer = future.result()
                except AskError as error:
                    missing[source.name, prompt.sample_id] = str(error)
                    in_a_row += 1
                    if in_a_row >= max(_FAILURES_IN_A_ROW, manners.concurrency):
                        problem = f"{in_a_row} requests of '{source.name}' in a row failed, the last because {error}"
                        remedy = "Look after the endpoint, then run the same command again; what was collected is saved"
                        raise AtlasError(problem, remedy) from error
                else:
                    in_a_row = 0
                    yield prompt, answer
        finally:
            stop.set()
            for future in futures:
                future.cancel()


class AppendOnlyJsonl:
    """The file that grows: one process at a time, whole lines only."""

    def __init__(self, path: Path, hearer: ProgressReporter) -> None:
        if path.suffix == ".gz":
            raise AtlasError(f"{path} is a gzip file, to which nothing can be added", "Collect into a .jsonl file")
        self.path = path
        self._hearer = hearer
        self._handle = -1
        self._lines: dict[tuple[str, str], Collected] = {}

    def __enter__(self) -> AppendOnlyJsonl:
        with _writing(self.path):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                problem = f"Another process is collecting into {self.path}"
                raise AtlasError(problem, "Wait until it has finished, or name another file") from error
            for line in self._repair_tail():
                self._lines[line.source, line.sample_id] = line
        except BaseException:
            os.close(self._handle)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            os.fsync(self._handle)
        os.close(self._handle)

    def open_of(self, source: str, identity: dict[str, Any], prompts: Sequence[Prompt]) -> list[Prompt]:
        """Prompts that a source has not answered; AtlasError if it, or a prompt, is another one in the file."""
        lines = [line for (name, _), line in self._lines.items() if name == source]
        for line in lines:
            for key in _IDENTITY:
                if (value := getattr(line, key)) != identity[key]:
                    change = f"{key} {_short(value)}, and now it is {_short(identity[key])}"
                    problem = f"{self.path} holds responses of '{source}' with {change}"
                    raise AtlasError(problem, "Give the source another name, or collect into another file")
        known = {line.sample_id: line.prompt for line in lines}
        for prompt in prompts:
            if known.get(prompt.sample_id, prompt.prompt) != prompt.prompt:
                problem = f"{self.path} holds another prompt with the id '{prompt.sample_id}'"
                raise AtlasError(problem, "Give the prompts ids of their own, or collect into another file")
        return [prompt for prompt in prompts if prompt.sample_id not in known]

    def add(self, line: Collected) -> None:
        raw = (json.dumps(asdict(line), ensure_ascii=False) + "\n").encode("utf-8")
        with _writing(self.path):
            while raw:
                raw = raw[os.write(self._handle, raw) :]

    def _repair_tail(self) -> list[Collected]:
        """The lines of a collection, without what a killed process wrote behind the last whole one."""
        raw = self.path.read_bytes()
        start = raw.rfind(b"\n") + 1
        whole, last = raw[:start], raw[start:]
        torn = bool(last) and _is_torn(last)
        lines = _parsed(self.path, whole if torn else raw)
        with _writing(self.path):
            if torn:
                os.ftruncate(self._handle, start)
                self._hearer.say(f"The last line of {self.path} was torn ({len(last)} bytes); it is collected again.")
            elif last:
                os.write(self._handle, b"\n")
        return lines


def _line(source: Source, prompt: Prompt, answer: Answer, identity: dict[str, Any]) -> Collected:
    packages = ("torch", "transformers") if source.kind == "local" else ("httpx",)
    software = {"provenance-atlas": backend.__version__, "python": platform.python_version()}
    software |= {name: importlib.metadata.version(name) for name in packages}
    measured = {k: getattr(answer, k) for k in ("finish_reason", "prompt_tokens", "response_tokens", "engine")}
    record = {"source": source.name, **asdict(prompt), "response": answer.text}
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Collected(**record, **identity, **measured, timestamp=now, software=software)


def _row(path: Path, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise AtlasError(f"{path}, line {number}, is not valid JSON ({error})", _CORRECT) from error
    if not isinstance(row, dict):
        raise AtlasError(f"{path}, line {number}, is not a JSON object", _CORRECT)
    return row


def _parsed(path: Path, raw: bytes) -> list[Collected]:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise AtlasError(f"{path} is not UTF-8 (byte {error.start})", "Collect into another file") from error
    return [_collected(path, number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]


def _is_torn(last: bytes) -> bool:
    """Whether this is the beginning of a line that was written here, and not the whole of one."""
    with contextlib.suppress(ValueError, RecursionError):
        json.loads(last)
        return False
    return last.startswith(_BEGINNING) or _BEGINNING.startswith(last)


def _collected(path: Path, number: int, line: str) -> Collected:
    row = _row(path, number, line)
    for key in ("source", "sample_id", "prompt", "response", "model"):
        if not isinstance(row.get(key), str):
            raise AtlasError(f"{path}, line {number}, has no text '{key}'", _CORRECT)
    values: dict[str, Any] = {name: row.get(name) for name in Collected.__dataclass_fields__}
    for key in ("settings", "engine", "software"):
        values[key] = values[key] if isinstance(values[key], dict) else {}
    return Collected(**values)


def _is_text(value: Any) -> TypeGuard[str]:
    """Whether this is a text with something in it that can be written as UTF-8."""
    return isinstance(value, str) and bool(value.strip()) and value.encode("utf-8", "ignore").decode("utf-8") == value


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:79] + "…"


@contextlib.contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except io.UnsupportedOperation:
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            problem = f"The disk is full, {path} cannot grow; what was collected is saved"
            raise AtlasError(problem, "Free some space and run the same command again") from error
        remedy = "Name a file that you may write to"
        raise AtlasError(f"{path} cannot be written ({error.strerror or error})", remedy) from error
