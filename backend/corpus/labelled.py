"""Labelled traces of anybody's sources, from a file or a registered corpus, ready to be enrolled as an ecosystem.

What belongs together is in one fold; see :mod:`backend.corpus.grouping`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from backend.corpus.collection import sample_records
from backend.corpus.grouping import Grouping, fills_folds, group_traces
from backend.errors import AtlasError
from backend.intake import COMMAND_LINE, Columns, Limits, Received, receive, trace_hash
from backend.intake.encoding import opened
from backend.intake.traces import seconds_of, whole
from backend.protocol import FOLDS
from backend.traces import Trace

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
SMALLEST = 10  # traces that every source must have at least


@dataclass(frozen=True)
class Labelled:
    """Labelled traces, source by source."""

    sources: tuple[str, ...]
    families: tuple[str, ...]
    traces: tuple[Trace, ...]  # length n
    labels: Ints  # (n,); source numbers, ascending
    prompts: tuple[str, ...]  # length n, stripped; a trace without a prompt stands alone under its own text
    grouping: Grouping
    complete: bool  # whether every source answers every prompt just once
    sha256: str  # of the file
    notes: tuple[str, ...]  # sentences about what was excluded
    times: Doubles  # (n,) seconds since 1970; NaN where none is known

    @property
    def folds(self) -> Ints:
        """Fold of every trace, (n,)."""
        return self.grouping.folds

    def grid(self) -> tuple[Ints, Ints]:
        """Rows (C, P) with as many traces of every source in each fold, and their folds (P,).

        Folds ascend unless ``complete``; then column p is the p-th prompt in their order.
        """
        order = np.array(sorted(range(len(self.traces)), key=lambda i: (self.labels[i], self.prompts[i], i)))
        if self.complete:
            rows = order.reshape(len(self.sources), -1)
            return rows, self.folds[rows[0]]
        numbers = range(len(self.sources))
        parts = [[order[(self.labels[order] == c) & (self.folds[order] == f)] for f in range(FOLDS)] for c in numbers]
        sizes = [min(len(of_source[f]) for of_source in parts) for f in range(FOLDS)]
        rows = np.stack([np.concatenate([of_source[f][: sizes[f]] for f in range(FOLDS)]) for of_source in parts])
        return rows, np.repeat(np.arange(FOLDS), sizes)


Rows = Iterable[tuple[str, str, str]]  # source, prompt and response of every trace


@dataclass(frozen=True)
class NamedCorpus:
    """A corpus that is known by its name, such as another benchmark."""

    rows: Callable[[], Rows]
    families: Mapping[str, str] = field(default_factory=dict)  # of sources; one without is a family of its own


def sample_rows() -> Rows:
    """The shipped sample."""
    records = sample_records()
    sources = [source for source in records.sources for _ in records.prompt_ids]
    return [(source, trace.prompt, trace.response) for source, trace in zip(sources, records.traces, strict=True)]


CORPORA: dict[str, NamedCorpus] = {"sample": NamedCorpus(sample_rows)}


def register(name: str, corpus: NamedCorpus) -> None:
    """Add a corpus: its name then stands for a file of labelled traces, also in ``python -m jobs enroll NAME``."""
    if name in CORPORA:
        raise ValueError(f"there is a corpus {name!r} already")
    CORPORA[name] = corpus


def read_labelled(
    path: Path,
    columns: Columns | None = None,
    families: Mapping[str, str] | None = None,
    limits: Limits = COMMAND_LINE,
    encoding: str | None = None,
    group: str = "",
) -> Labelled:
    """Read a file whose traces name their source: JSONL, CSV, Parquet or a chat log, also inside gzip.

    path : also the name of one of the :data:`CORPORA`, where there is no such file.
    columns, encoding, group : what a person named; the rest is recognised. Rows with one value of ``group`` belong
        together.
    """
    if (corpus := CORPORA.get(str(path))) is not None and not path.exists():
        rows = [(source, whole(prompt), whole(response)) for source, prompt, response in corpus.rows()]
        hashes = [trace_hash(prompt, response) for _, prompt, response in rows]
        traces = [
            Received(place, 0, prompt, response, None, source, None, sha256)
            for place, ((source, prompt, response), sha256) in enumerate(zip(rows, hashes, strict=True), start=1)
        ]
        identity = "".join(f"{trace_hash(trace.label or '', trace.sha256)}\n" for trace in traces)
        return labelled(traces, hashlib.sha256(identity.encode()).hexdigest(), families or corpus.families)
    with opened(path) as stream:
        intake = receive(stream, path.name, columns, limits, encoding, group)
    notes = []
    if intake.problems:
        first, unit = intake.problems[0], intake.layout.unit
        where = f"(the first is {unit} {first.place:,}: {first.reason})"
        notes.append(f"{len(intake.problems):,} {unit}s gave no trace {where}.")
    return labelled(intake.traces, intake.layout.sha256, families, notes, group)


def read_families(path: Path | None) -> dict[str, str] | None:
    """Source to family from a JSON object; None where no file is named."""
    if path is None:
        return None
    try:
        return {str(source): str(family) for source, family in json.loads(path.read_text("utf-8")).items()}
    except (OSError, ValueError, AttributeError, RecursionError) as error:
        raise AtlasError(f"The families in {path} cannot be read", 'Write JSON: {"source": "family"}') from error


def labelled(
    traces: Sequence[Received],
    sha256: str,
    families: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    group: str = "",
) -> Labelled:
    """Sort received traces by source, lay them into folds, and refuse what cannot work.

    notes : what is known to be excluded already; group : column that a person named.
    Raises AtlasError with too few sources, traces or prompts of a source, or a family of a source that is not there.
    """
    sentences = list(notes)
    named = [trace for trace in traces if trace.label]
    if not named:
        raise AtlasError("No trace says whom it is from", "Name the column with the source: --label-column COLUMN")
    if len(named) < len(traces):
        sentences.append(f"{len(traces) - len(named):,} traces without a source were left out.")
    first: dict[tuple[str, str], Received] = {}
    for trace in named:
        first.setdefault((str(trace.label), trace.sha256), trace)
    if len(first) < len(named):
        repeats = f"{len(named) - len(first):,} traces that repeat one of their source word for word"
        sentences.append(f"{repeats} were left out.")
    sources = sorted({label for label, _ in first})
    if len(sources) < 2:
        raise AtlasError(f"The file holds one source only ('{sources[0]}')", "Give traces of at least two sources")
    strangers = sorted(set(families or {}) - set(sources))
    if strangers:
        raise AtlasError(f"A family is given for '{strangers[0]}', which has no trace here", "Correct the label")
    number = {source: c for c, source in enumerate(sources)}
    ordered = sorted(first.values(), key=lambda trace: number[str(trace.label)])
    labels = np.array([number[str(trace.label)] for trace in ordered], dtype=np.intp)
    prompts = tuple(trace.prompt.strip() or f"\0{trace.sha256}" for trace in ordered)
    counts = np.bincount(labels)
    few = int(counts.argmin())
    if counts[few] < SMALLEST:
        raise AtlasError(f"'{sources[few]}' has {counts[few]} traces", f"Give at least {SMALLEST} of every source")
    pairs = set(zip(labels.tolist(), prompts, strict=True))
    complete = len(pairs) == len(ordered) == len(sources) * len(set(prompts))
    conversations = [trace.conversation or (None if group else trace.group) for trace in ordered]
    named_groups = [trace.group for trace in ordered] if group else ()
    grouping = group_traces(labels, prompts, conversations, named_groups, group)
    for c, source in enumerate(sources):
        if not fills_folds(labels[labels == c], grouping.folds[labels == c]):
            answered = len({prompt for label, prompt in pairs if label == c})
            what = f"answer {answered} different prompts, which do not fill {FOLDS} folds"
            remedy = "Give answers to more prompts: no prompt may be tested by a probe that saw it"
            raise AtlasError(f"The {counts[c]} traces of '{source}' {what}", remedy)
    known = tuple((families or {}).get(source, source) for source in sources)
    given = tuple(trace.trace for trace in ordered)
    times = np.array([seconds_of(trace.time) for trace in ordered])
    return Labelled(tuple(sources), known, given, labels, prompts, grouping, complete, sha256, tuple(sentences), times)
