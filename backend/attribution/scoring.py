"""Select traces of a file, and score them a batch at a time (paper, Stage 1 and Stage 2).

The proxy leaves the pass at the enrolment's last block; batches that are done when somebody cancels are returned.
"""

from __future__ import annotations

import hashlib
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, TypeVar

import numpy as np
import numpy.typing as npt

from backend.attribution.settings import Settings
from backend.enrolment.enrolment import (
    Enrolment,
    Others,
    auxiliary_models,
    check_others,
    named,
    read_auxiliary_models,
    some_of,
)
from backend.errors import AtlasError
from backend.inference.domain_shift import UNCHECKED, PromptReference, PromptScores, Traffic
from backend.intake import Layout, Limits, Problem, Received, models_of, notes_about, notes_on_models, walk
from backend.intake.traces import is_remark, whole
from backend.methods.ngrams import Counts
from backend.methods.sentence_encoder import SentenceEncoder
from backend.methods.stack import cells_of
from backend.proxies.encoding import Encoded, count_tokens
from backend.proxies.reader import Reader, Readout
from backend.proxies.registry import load_reader, proxy_hash, tokenizer_of
from backend.spectral import FINGERPRINT_MODES
from backend.traces import Trace

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.intp]
Doubles = npt.NDArray[np.float64]
BATCHES = (8, 24, 64)  # traces of the first batches, so that evidence is there early; the last number goes on
MODELS = 2  # proxies, and encoders, that are in memory at a time, unless an enrolment asks for more
Model = TypeVar("Model")
Loaded = tuple[Reader, str | None]
UNSELECTED = "not one of the traces asked for"


@dataclass(frozen=True)
class Seen:
    """A trace without its text."""

    place: int
    turn: int
    sha256: str
    prompt_characters: int
    response_characters: int
    time: str | None  # as in the file; a report leaves out what is no short name in one line
    label: str | None
    name: str | None
    requested: str | None = None
    returned: str | None = None

    @classmethod
    def of(cls, trace: Received) -> Seen:
        """Lengths in place of the text."""
        lengths, models = (len(trace.prompt), len(trace.response)), (trace.requested, trace.returned)
        return cls(trace.place, trace.turn, trace.sha256, *lengths, trace.time, trace.label, trace.name, *models)


@dataclass
class Selection:
    """Which traces of a file are scored; fills while the file is walked through once."""

    keep_duplicates: bool = False
    includes: Callable[[Received], bool] | None = None  # of those that repeat no earlier one; by default all
    characters: int | None = None  # of one prompt or one response; at most those of the limits
    text: int = 0  # characters of text that are stored for token evidence; nothing is stored at 0
    seen: list[Seen] = field(default_factory=list)
    prompts: set[bytes] = field(default_factory=set)  # hashes of the different ones
    texts: list[Trace] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    exclusions: list[dict[str, Any]] = field(default_factory=list)  # place, turn, sha256 and reason

    @classmethod
    def of(cls, settings: Settings, limits: Limits) -> Selection:
        """The traces that the settings select."""
        return cls(settings.keep_duplicates, text=limits.text if settings.show else 0)

    def traces(self, stream: BinaryIO, layout: Layout, limits: Limits) -> Iterator[Trace]:
        """Traces to score, one at a time."""
        self.characters = min(limits.characters if self.characters is None else self.characters, limits.characters)
        first: dict[str, tuple[int, int]] = {}
        remaining = self.text
        for found in walk(stream, layout, replace(limits, characters=self.characters)):
            if isinstance(found, Problem):
                self.problems.append(found)
                continue
            at = first.setdefault(found.sha256, (found.place, found.turn))
            reason = None
            if at != (found.place, found.turn) and not self.keep_duplicates:
                reason = f"the same as {layout.unit} {at[0]}"
            elif self.includes is not None and not self.includes(found):
                reason = UNSELECTED
            if reason is not None:
                entry = {"place": found.place, "turn": found.turn, "sha256": found.sha256, "reason": reason}
                self.exclusions.append(entry)
                continue
            self.seen.append(Seen.of(found))
            if found.prompt:
                self.prompts.add(hashlib.sha256(found.prompt.encode("utf-8", "surrogatepass")).digest())
            if self.text:
                remaining -= len(found.prompt) + len(found.response)
                if remaining < 0:
                    raise AtlasError(
                        f"The traces hold more than {self.text:,} characters, too many to keep their text",
                        "Keep no text, or give fewer traces",
                    )
                self.texts.append(found.trace)
            yield found.trace

    def count(self, stream: BinaryIO, layout: Layout, limits: Limits) -> int:
        """How many traces of a file are taken, before any is scored; an AtlasError if there is none."""
        total = sum(1 for _ in self.traces(stream, layout, limits))
        self.refuse_empty(f"There is no trace in {layout.name}", layout)
        return total

    def refuse_empty(self, message: str, layout: Layout) -> None:
        """Refuse a file of which no trace was taken; names the first place that gives none."""
        if not self.seen:
            first = self.problems[0] if self.problems else None
            if any(entry["reason"] == UNSELECTED for entry in self.exclusions):
                raise AtlasError(
                    f"This is not the file of this report: none of its traces is in {layout.name}",
                    "Give the file that the report is about, read by the same columns and encoding",
                )
            where = f" ({layout.unit} {first.place:,}: {first.reason})" if first else ""
            raise AtlasError(message + where, "Check the file and the mapping of its columns")

    def notes(self) -> list[str]:
        """Sentences a person should read about what was scored."""
        lengths = [(trace.prompt_characters, trace.response_characters) for trace in self.seen]
        names = [(trace.name, trace.turn) for trace in self.seen if trace.name is not None]
        notes = notes_on_models(self.models(), len(self.seen))
        return notes + notes_about(lengths, names, {trace.label for trace in self.seen if trace.label})

    def models(self) -> list[dict[str, Any]]:
        """Requested and returned models that the file names; what may be text of a trace is left out."""
        names = ((trace.requested, trace.returned) for trace in self.seen)
        return models_of((a if is_remark(a or "") else None, b if is_remark(b or "") else None) for a, b in names)


def listed_traces(
    stream: BinaryIO, layout: Layout, limits: Limits, traces: Sequence[Mapping[str, Any]]
) -> Iterator[Trace]:
    """The traces of a file that a report lists, in the order of the file."""
    needed = {(trace["place"], trace["turn"], trace["sha256"]) for trace in traces}
    for found in walk(stream, layout, limits):
        if not isinstance(found, Problem) and (found.place, found.turn, found.sha256) in needed:
            yield found.trace


@dataclass(frozen=True)
class Progress:
    """Scores of a batch."""

    done: int  # traces scored so far
    log_posteriors: Floats  # (m, C) of this batch, in the order of arrival
    seconds: float  # since scoring began


@dataclass(frozen=True)
class Scored:
    """Scored traces, in the order of arrival; an AtlasError where a score is not finite."""

    log_posteriors: Floats  # (n, C)
    tokens: npt.NDArray[np.intp]  # (n,) response tokens that the proxy read
    folds: tuple[int | None, ...]  # of every prompt in the enrolment; None where it was not enrolled
    mean: Doubles  # (2 d,) mean fingerprint at the block where the enrolment places traces
    fingerprints: npt.NDArray[np.float16] | None  # (n, 2 d) at that same block, where they were requested
    complete: bool  # False when somebody cancelled
    seconds: float
    engine: str  # how the forward pass was computed
    traffic: Traffic = UNCHECKED  # whether the prompts are of the enrolled kind
    reading: float = 0.0  # seconds of the proxy
    scoring: float = 0.0  # seconds of everything else that scored; not of what went between two batches

    def __post_init__(self) -> None:
        refuse_unscored(self.log_posteriors)

    @property
    def signature(self) -> Doubles:
        """The mean fingerprint with DC and AC each of length 1, (2 d,)."""
        out = self.mean.copy()
        for block in np.split(out, FINGERPRINT_MODES):
            block /= np.linalg.norm(block) or 1.0
        return out


class Attributor:
    """An enrolment, its proxy, and the further proxies and encoders that its members read with.

    proxy_hash : of the weights that were loaded; compared with the enrolment's where both are known.
    """

    def __init__(
        self, reader: Reader, enrolment: Enrolment, proxy_hash: str | None = None, others: Others | None = None
    ) -> None:
        if reader.hidden_size != enrolment.hidden_size or reader.depth < enrolment.layers[-1]:
            raise AtlasError(
                f"The enrolment '{enrolment.name}' was made with {enrolment.proxy}, and another proxy is loaded",
                f"Load {enrolment.proxy}",
            )
        refuse_other_weights(enrolment, enrolment.proxy, proxy_hash, enrolment.facts.get("proxy_hash"))
        check_others(enrolment, others or {})
        self.reader = reader
        self.enrolment = enrolment
        self.others: Others = others or {}

    def score(
        self,
        traces: Iterable[Trace],
        *,
        progress: Callable[[Progress], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
        keep_fingerprints: bool = False,
        sizes: Sequence[int] = BATCHES,
        reference: PromptReference | None = None,
    ) -> Scored:
        """Score traces, walked through once, in the order of arrival.

        progress : called after every batch.
        cancelled : called before every batch; once it is true, the batches so far are returned.
        keep_fingerprints : also return every fingerprint (2.3 kB a trace with d = 576), for a test of drift.
        sizes : traces of the first batches; the last number goes on.
        reference : judges the prompts in place of the enrolment's own.
        """
        enrolment, reader = self.enrolment, self.reader
        started, place = time.perf_counter(), enrolment.place
        reading = scoring = 0.0
        scores: list[Floats] = []
        fingerprints: list[npt.NDArray[np.float16]] = []
        tokens: list[int] = []
        folds: list[int | None] = []
        prompts: list[PromptScores] = []
        reference = reference or enrolment.prompt_reference
        total_states: Doubles = np.zeros(2 * reader.hidden_size)
        complete = True
        variant = enrolment.form.variant if enrolment.form else "full"
        layers = tuple(sorted({layer for head in enrolment.heads for layer in head.layers}))
        readout = Readout() if variant == "full" else Readout(**{variant: layers})
        remaining = iter(traces)
        for size in itertools.chain(sizes, itertools.repeat(sizes[-1])):
            if cancelled is not None and cancelled():
                complete = False
                break
            if not (batch := list(itertools.islice(remaining, size))):
                break
            begun = time.perf_counter()
            encoded = reader.encode(batch, enrolment.view)
            read = reader.read(encoded, enrolment.layers, readout)
            was_read = time.perf_counter()
            known = enrolment.folds_of([trace.prompt for trace in batch])
            by_layer = {layer: rows for (layer, name), rows in read.items() if name == variant}
            counts = enrolment.counts([whole(trace.response) for trace in batch])
            auxiliary = read_auxiliary_models(enrolment, batch, self.others)
            cells = cells_of_traces(batch, encoded, enrolment.cells_by)
            scores.append(self._log_posteriors(by_layer, known, cells, counts, auxiliary))
            refuse_unscored(scores[-1], first=len(tokens) + 1)
            tokens += [e.response_tokens for e in encoded]
            folds += known
            if reference is not None:
                prompts.append(reference.score([trace.prompt for trace in batch]))
            total_states += read[place, "full"].sum(0, dtype=np.float64)
            if keep_fingerprints:
                fingerprints.append(read[place, "full"])
            reading += was_read - begun
            scoring += time.perf_counter() - was_read
            if progress is not None:
                progress(Progress(len(tokens), scores[-1], time.perf_counter() - started))
        classes, width = len(enrolment.sources), 2 * reader.hidden_size
        return Scored(
            log_posteriors=np.concatenate(scores) if scores else np.empty((0, classes), np.float32),
            tokens=np.array(tokens, dtype=np.intp),
            folds=tuple(folds),
            mean=total_states / max(len(tokens), 1),
            fingerprints=np.concatenate([np.empty((0, width), np.float16), *fingerprints])
            if keep_fingerprints
            else None,
            complete=complete,
            seconds=time.perf_counter() - started,
            engine=f"{reader.engine}, {str(reader.dtype).removeprefix('torch.')}, {reader.device.type}",
            traffic=UNCHECKED if reference is None else reference.judge(PromptScores.joined(prompts)),
            reading=reading,
            scoring=scoring,
        )

    def _log_posteriors(
        self,
        by_layer: dict[int, npt.NDArray[np.float16]],
        folds: list[int | None],
        cells: Ints,
        counts: Counts,
        auxiliary: dict[str, Any],
    ) -> Floats:
        out = np.empty((len(folds), len(self.enrolment.sources)), dtype=np.float32)
        numbers = np.array([-1 if fold is None else fold for fold in folds])
        for number in np.unique(numbers):
            rows = numbers == number
            here = {layer: fingerprints[rows] for layer, fingerprints in by_layer.items()}
            texts = None if counts is None else counts[np.flatnonzero(rows)]
            more = some_of(auxiliary, rows)
            heads = self.enrolment.heads_for(None if number < 0 else int(number))
            parts = [
                head.log_posterior(self.enrolment.coordinates(head, here, texts, more), cells[rows]) for head in heads
            ]
            out[rows] = np.mean(parts, axis=0)
        return out


def refuse_unscored(log_posteriors: Floats, first: int = 1) -> None:
    """Refuse scores (n, C) that are not finite; ``first`` is the number of the first trace in the order of arrival."""
    failed = ~np.isfinite(log_posteriors).all(axis=1)
    if failed.any():
        raise AtlasError(
            f"The score of trace {first + int(failed.argmax()):,} is not a finite number",
            "Leave that trace out, or make the enrolment again if all others fail too",
        )


def refuse_other_weights(enrolment: Enrolment, name: str, found: str | None, expected: Any) -> None:
    """Refuse weights of a proxy or an encoder with another hash than the enrolment's, where both are known."""
    if found and expected and found != expected:
        raise AtlasError(
            f"The weights of {name} here are not those that the enrolment '{enrolment.name}' was made with "
            f"({found[:12]} and {str(expected)[:12]})",
            f"Run: python -m jobs proxies install {name}, or make the enrolment again",
        )


def cells_of_traces(traces: Sequence[Trace], encoded: Sequence[Encoded], by: str | None = None) -> Ints:
    """Cell of every trace (n,), by its response tokens (as the proxy ``by`` counts them) and how it ends."""
    own = np.array([e.response_tokens for e in encoded], dtype=np.intp)
    return cells_of(count_tokens(tokenizer_of(by), traces) if by else own, [whole(trace.response) for trace in traces])


def from_registry(proxy: str, device: str = "auto") -> Loaded:
    """A registered proxy and the hash of its weights."""
    return load_reader(proxy, device), proxy_hash(proxy)


def encoder_from_registry(name: str, device: str = "auto") -> tuple[SentenceEncoder, str | None]:
    """A registered encoder and the hash of its weights."""
    return SentenceEncoder(name, device), proxy_hash(name)


@dataclass
class Models:
    """Proxies and encoders in memory, each with the hash of its weights; used from one thread only."""

    load: Callable[[str], Loaded] = from_registry
    encode: Callable[[str], tuple[SentenceEncoder, str | None]] = encoder_from_registry
    _readers: dict[str, Loaded] = field(default_factory=dict, repr=False)
    _encoders: dict[str, tuple[SentenceEncoder, str | None]] = field(default_factory=dict, repr=False)

    @classmethod
    def on(cls, device: str) -> Models:
        """Models of the registry, on a device."""
        return cls(lambda proxy: from_registry(proxy, device), lambda name: encoder_from_registry(name, device))

    def attributor(self, enrolment: Enrolment) -> Attributor:
        """An enrolment with all that it reads with; the least recently used makes room."""
        known = enrolment.facts.get("hashes_beside") or {}
        others: dict[str, Reader | SentenceEncoder] = {}
        needs = auxiliary_models(enrolment)
        for reads, encodes in needs.items():
            name, found = named(reads), None
            if encodes:
                others[reads], found = _latest(name, self._encoders, self.encode)
            else:
                others[reads], found = _latest(name, self._readers, self.load)
            refuse_other_weights(enrolment, name, found, known.get(name))
        reader, found = _latest(enrolment.proxy, self._readers, self.load)
        for cache, needed in ((self._readers, 1 + len(needs)), (self._encoders, len(needs))):
            while len(cache) > max(MODELS, needed):
                cache.pop(next(iter(cache)))
        return Attributor(reader, enrolment, found, others)


def _latest(name: str, cache: dict[str, Model], load: Callable[[str], Model]) -> Model:
    """The model of a name, loaded where it is not in the cache; the latest one stands last."""
    cache[name] = cache.pop(name) if name in cache else load(name)
    return cache[name]
