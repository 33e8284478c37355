"""Score traces against an enrolment, a batch at a time (paper, Stage 1 and Stage 2).

The proxy leaves the pass at the enrolment's last block; batches that are done when somebody cancels are returned.
Proxies and encoders stay in memory for the next attributor.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

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
from backend.inference.domain_shift import UNCHECKED, PromptScores, Traffic
from backend.intake.traces import whole
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


@dataclass(frozen=True)
class Progress:
    """Scores of a batch."""

    done: int  # traces scored so far
    total: int | None  # where it is known
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
        total: int | None = None,
        progress: Callable[[Progress], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
        keep_fingerprints: bool = False,
        sizes: Sequence[int] = BATCHES,
    ) -> Scored:
        """Score traces, walked through once, in the order of arrival.

        total : how many there are, for the progress, which is called after every batch.
        cancelled : called before every batch; once it is true, the batches so far are returned.
        keep_fingerprints : also return every fingerprint (2.3 kB a trace with d = 576), for a test of drift.
        sizes : traces of the first batches; the last number goes on.
        """
        enrolment, reader = self.enrolment, self.reader
        started, place = time.perf_counter(), enrolment.place
        scores: list[Floats] = []
        fingerprints: list[npt.NDArray[np.float16]] = []
        tokens: list[int] = []
        folds: list[int | None] = []
        prompts: list[PromptScores] = []
        reference = enrolment.prompt_reference
        total_states: Doubles = np.zeros(2 * reader.hidden_size)
        complete = True
        batches = _batches(traces, sizes)
        while True:
            if cancelled is not None and cancelled():
                complete = False
                break
            batch = next(batches, None)
            if batch is None:
                break
            encoded = reader.encode(batch, enrolment.view)
            read = reader.read(encoded, enrolment.layers, readout_of(enrolment))
            known = enrolment.folds_of([trace.prompt for trace in batch])
            variant = enrolment.form.variant if enrolment.form else "full"
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
            if progress is not None:
                progress(Progress(len(tokens), total, scores[-1], time.perf_counter() - started))
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


def landing_of(scored: Scored, enrolment: Enrolment) -> dict[str, Any] | None:
    """Cosine of the traces' signature to that of every enrolled source, the nearest first (paper, signatures).

    By reader, roster and domain the atlas finds a map of them. None where the enrolment has no signatures.
    """
    vectors = enrolment.attachments.get("signatures.vectors")
    if vectors is None or vectors.shape != (len(enrolment.sources), len(scored.signature)):
        return None
    cosines = cosines_to(scored.signature, vectors.astype(np.float64))
    return {
        "proxy": enrolment.proxy,
        "view": enrolment.view,
        "layer": enrolment.place,
        "reader": enrolment.place_reader,
        "roster": str(enrolment.facts.get("roster", enrolment.name)),
        "domain": str(enrolment.facts.get("benchmark", "")),
        "rows": [
            {"rank": rank, "source": enrolment.sources[i], "family": enrolment.families[i], "cosine": float(cosines[i])}
            for rank, i in enumerate(np.argsort(-cosines, kind="stable"), start=1)
        ],
    }


def cosines_to(signature: npt.NDArray[np.floating], vectors: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Cosine of a signature (2 d,) to every vector (C, 2 d); 0 where one of them is all zeros."""
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(signature)
    return vectors @ signature / np.where(lengths > 0, lengths, 1.0)


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


def readout_of(enrolment: Enrolment) -> Readout:
    """The part of every trajectory that the heads need."""
    layers = tuple(sorted({layer for head in enrolment.heads for layer in head.layers}))
    variant = enrolment.form.variant if enrolment.form else "full"
    return Readout(temporal=layers if variant == "temporal" else (), positions=layers if variant == "positions" else ())


def cells_of_traces(traces: Sequence[Trace], encoded: Sequence[Encoded], by: str | None = None) -> Ints:
    """Cell of every trace (n,), by its response tokens (as the proxy ``by`` counts them) and how it ends."""
    own = np.array([e.response_tokens for e in encoded], dtype=np.intp)
    return cells_of(count_tokens(tokenizer_of(by), traces) if by else own, [whole(trace.response) for trace in traces])


def _batches(traces: Iterable[Trace], sizes: Sequence[int]) -> Iterator[list[Trace]]:
    iterator = iter(traces)
    for size in itertools.chain(sizes, itertools.repeat(sizes[-1])):
        if not (batch := list(itertools.islice(iterator, size))):
            return
        yield batch


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
