"""Where the traces of a watch come from: an endpoint, a folder of logs, standard input, or what REST received."""

from __future__ import annotations

import hashlib
import io
import json
import os
import select
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from backend.corpus.collection import Prompt, collect
from backend.corpus.endpoints import RateLimits, Source, endpoint_host
from backend.errors import AtlasError
from backend.intake import COMMAND_LINE, Columns, Limits, Problem, Received, inspect, walk
from backend.intake.encoding import opened
from backend.service.watch_state import INBOX, Watched, WatchState

POSTED = "posted"  # what a person names where nothing but REST brings traces
STANDARD_INPUT = "-"
PER_LOOK = 20  # prompts that an endpoint gets in a look, and lines of standard input that are waited for
_BLOCK = 1 << 16


@dataclass
class Arrival:
    """What came since the last look."""

    traces: list[Watched] = field(default_factory=list)
    cursors: dict[str, Sequence[int]] = field(default_factory=dict)
    read: list[Path] = field(default_factory=list)  # files to delete when their traces are in the state
    problems: list[str] = field(default_factory=list)  # sentences on what gave no trace
    ended: bool = False  # nothing more will come

    def add(self, stream: io.BufferedIOBase, name: str, columns: Columns | None, limits: Limits = COMMAND_LINE) -> None:
        """Read a file; what cannot be read is a problem."""
        layout = None
        try:
            layout = inspect(stream, name, columns, limits)  # type: ignore[arg-type]
            for found in walk(stream, layout, limits):  # type: ignore[arg-type]
                if isinstance(found, Problem):
                    self.problems.append(f"{name}, {layout.unit} {found.place:,}: {found.reason}")
                else:
                    self.traces.append(Watched(key_of(found), found.prompt, found.response))
        except AtlasError as error:
            self.problems.append(str(error))


class Arrivals(Protocol):
    """A source of traces."""

    @property
    def kind(self) -> str:
        """What it is, with the host of an endpoint."""

    def take(self, state: WatchState) -> Arrival:
        """What came since the last look."""


def key_of(trace: Received) -> str:
    """Hash of a trace, its time and its id: the same in a log, in a rotated one and on another way here.

    Where a log has neither, a trace that repeats an earlier one word for word is that one.
    """
    return hashlib.sha256(json.dumps([trace.sha256, trace.time, trace.name]).encode()).hexdigest()


@dataclass(frozen=True)
class FolderOfLogs:
    """Files of a folder; JSONL is read from where it ended last, any other format whole when it has changed."""

    folder: Path
    columns: Columns | None = None
    kind: str = "folder of logs"

    def take(self, state: WatchState) -> Arrival:
        """Traces of new files and of lines that were added."""
        arrival = Arrival()
        if not self.folder.is_dir():
            raise AtlasError(f"There is no folder {self.folder}", "Name a folder of logs, an address, or - ")
        for path in sorted(path for path in self.folder.rglob("[!.]*") if path.is_file()):
            name, now = path.relative_to(self.folder).as_posix(), path.stat()
            inode, size, at = (*state.cursor(name), 0, 0, 0)[:3]
            if (now.st_ino, now.st_size) == (inode, size):
                continue
            if path.suffix == ".jsonl":
                start = at if now.st_ino == inode and now.st_size > size else 0
                with path.open("rb") as stream:
                    stream.seek(start)
                    lines = stream.read()
                lines = lines[: lines.rfind(b"\n") + 1]
                if lines.strip():
                    arrival.add(io.BytesIO(lines), name, self.columns)
                arrival.cursors[name] = (now.st_ino, now.st_size, start + len(lines))
            else:
                with opened(path) as whole:
                    arrival.add(whole, name, self.columns)  # type: ignore[arg-type]
                arrival.cursors[name] = (now.st_ino, now.st_size, now.st_size)
        return arrival


@dataclass(frozen=True)
class Inbox:
    """What ``POST /v1/traces`` brought."""

    kind: str = "traces received over REST"

    def take(self, state: WatchState) -> Arrival:
        """Traces of all files that were received."""
        arrival = Arrival()
        for path in sorted((state.folder / INBOX).glob("[!.]*.json")):
            with path.open("rb") as stream:
                arrival.add(stream, path.name, None)
            arrival.read.append(path)
        return arrival


@dataclass
class Lines:
    """Lines of JSON from an open file, a few at a time, or what came within a while."""

    handle: int
    every: float
    most: int = PER_LOOK
    columns: Columns | None = None
    kind: str = "standard input"
    _rest: bytes = b""
    _first: bool = True

    def take(self, state: WatchState) -> Arrival:
        """The next lines; the arrival has ended with the file."""
        arrival, until = Arrival(), time.monotonic() + self.every
        while self._rest.count(b"\n") < self.most and not arrival.ended:
            if not select.select([self.handle], [], [], max(0.0, until - time.monotonic()))[0]:
                break
            block = os.read(self.handle, _BLOCK)
            self._rest, arrival.ended = self._rest + block, not block
        whole = len(self._rest) if arrival.ended else self._rest.rfind(b"\n") + 1
        lines, self._rest = self._rest[:whole], self._rest[whole:]
        if lines.strip():
            arrival.add(io.BytesIO(lines), "standard input", self.columns)
        return arrival


@dataclass(frozen=True)
class EndpointAnswers:
    """Answers of an OpenAI-compatible endpoint to prompts that are drawn anew for every look."""

    source: Source
    prompts: Sequence[Prompt]
    per_look: int = PER_LOOK
    limits: RateLimits = field(default_factory=RateLimits)
    say: Callable[[str], None] = print

    @property
    def kind(self) -> str:
        """Kind and host."""
        return f"endpoint {endpoint_host(self.source)}"

    def take(self, state: WatchState) -> Arrival:
        """Ask the prompts of the next look; a look that was interrupted goes on where it ended."""
        number = state.look_number
        drawn = np.random.default_rng([state.question.seed, number]).permutation(len(self.prompts))[: self.per_look]
        asked = [Prompt(f"{number:06d}-{place:06d}", self.prompts[place].prompt) for place in drawn]
        path = state.folder / f"answers-{number:06d}.jsonl"
        summary = collect([self.source], asked, path, manners=self.limits)
        arrival = Arrival(read=[path])
        if summary.missing:
            reason = next(iter(summary.missing.values()))
            arrival.problems.append(f"{len(summary.missing):,} of {len(asked):,} prompts got no answer: {reason}")
        with path.open("rb") as stream:
            if summary.collected + summary.present:
                arrival.add(stream, "the endpoint's answers", None)
        return arrival
