"""Cost of scoring one response: parameters, latency and memory (paper, Computational Profile).

Later blocks than the one that is read, the language-model head and vision modules are not run. Latency covers
tokenisation, the early-exit pass and the scores of all sources, after loading: the median of three warmed runs over 256
responses. Heads have zeros for weights, since time does not depend on them. A proxy's states are scored as in live
attribution, with all responses in one batch.
"""

from __future__ import annotations

import contextlib
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from backend.attribution.scoring import Attributor
from backend.enrolment.enrolment import Enrolment
from backend.errors import AtlasError
from backend.evaluations.controls import DIMENSIONS
from backend.evaluations.readouts import WORD_SETTINGS
from backend.evaluations.stages.readout_members import EXPERTS, NETWORK, TUNED_SETTINGS, bank_of
from backend.intake.traces import whole
from backend.methods import fine_tuning
from backend.methods.baselines import random_guess
from backend.methods.discriminant import DiscriminantBank, NgramBank
from backend.methods.ensemble import Ensemble, Head, Member
from backend.methods.llmmap import RESPONSE_CHARACTERS, LLMmapHead, LLMmapModel
from backend.methods.network import NetworkReadout, NetworkSettings
from backend.methods.ngrams import GRAMS, SETTINGS, CodedGrams, Counts, GramReadout, NgramModel, count, counts_of
from backend.methods.probe import FamilyReadout, LinearProbe, LinearReadout
from backend.methods.registry import FUSED_LIVE, LDA_LIVE, block_of, form_of, reader_id
from backend.methods.representations import FORMS, MIXTURES, MODES
from backend.methods.sentence_encoder import SentenceEncoder
from backend.methods.stack import CELLS
from backend.proxies.registry import describe, load_model, load_reader
from backend.spectral import FINGERPRINT_MODES
from backend.traces import Trace, View, view_text

Floats = npt.NDArray[np.float32]
Scores = Callable[[Sequence[Trace]], Floats]
RECORDS = 256
RUNS = 3
UNITS = {
    "trainable_parameters": "parameters",
    "audit_parameters": "parameters",
    "fit_seconds": "s",
    "selection_seconds": "s",
    "latency_ms": "ms",
    "peak_memory_gb": "GB",
}
"""Measures in the order of the paper's table, and their units."""
SAMPLED_S = 0.01
STATM = Path("/proc/self/statm")
SERVED = replace(TUNED_SETTINGS, autocast=False)
"""How a member that was fine-tuned reads, whatever the products of its training were."""
LIVE_MEMBERS = 2  # One for whole and one for short responses


@dataclass(frozen=True)
class Timing:
    """Repeated runs of the same work."""

    seconds: tuple[float, ...]  # One a run, without the warming ones
    peak_bytes: int  # Most memory in use during them: of the device where it has its own, else of the whole process

    @property
    def median(self) -> float:
        """Median of the runs in seconds."""
        return float(np.median(self.seconds))


def timed(work: Callable[[], object], runs: int = RUNS, warm: int = 1, device: str = "cpu") -> Timing:
    """Run work repeatedly, after ``warm`` runs; the memory of the device, 'cpu' or 'cuda', is watched."""
    for _ in range(warm):
        work()
    seconds = []
    with _peak_memory(device) as peak:
        for _ in range(runs):
            started = time.perf_counter()
            work()
            if device == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - started)
    return Timing(tuple(seconds), peak[0])


@contextlib.contextmanager
def _peak_memory(device: str) -> Iterator[list[int]]:
    """Watch memory; the list holds the peak in bytes when the block has ended."""
    peak = [0]
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
        yield peak
        peak[0] = int(torch.cuda.max_memory_allocated())
        return
    if not STATM.exists():  # other systems know only the peak since the process began
        yield peak
        peak[0] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        return
    done = threading.Event()

    def watch() -> None:
        while True:
            peak[0] = max(peak[0], int(STATM.read_text("ascii").split()[1]) * resource.getpagesize())
            if done.wait(SAMPLED_S):
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield peak
    finally:
        done.set()
        watcher.join()


def linear_parameters(width: int, classes: int) -> int:
    """Weights and biases of a linear head; the standardiser is not trained and not counted."""
    return (width + 1) * classes


def audit_parameters(model: Any, depth: int, layer: int) -> int:
    """Parameters of the text embedding and of the blocks up to ``layer``, 1 .. depth.

    Raises ValueError if the model has no list of ``depth`` blocks, or the layer lies outside.
    """
    lists = [m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == depth]
    if not lists or not 1 <= layer <= depth:
        raise ValueError(f"no block {layer} among {depth} blocks of {type(model).__name__}")
    # An encoder adds position and type embeddings to those of the words.
    embedding = getattr(model, "embeddings", None) or model.get_input_embeddings()
    parts = [embedding, *lists[0][:layer]]
    return sum(parameter.numel() for parameter in {p for part in parts for p in part.parameters()})


def cost_frame(measures: Mapping[str, float], hardware: str) -> pd.DataFrame:
    """Measures as rows with columns measure, value, unit, hardware, in the order of :data:`UNITS`."""
    unknown = sorted(set(measures) - set(UNITS))
    if unknown:
        raise ValueError(f"there is no measure {unknown[0]!r}")
    rows = [(name, float(measures[name]), unit, hardware) for name, unit in UNITS.items() if name in measures]
    return pd.DataFrame(rows, columns=["measure", "value", "unit", "hardware"])


@dataclass(frozen=True)
class AuditPath:
    """The reader, and the models that run for a response."""

    method: str
    proxy: str | None
    view: str | None
    classes: int
    blocks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # Blocks of every proxy whose states are read
    members: tuple[str, ...] = ()  # Of a stack, as :meth:`Plan.members` has them

    @property
    def input_view(self) -> View:
        """What a proxy reads."""
        return "r" if self.view == "r" else "ur"

    @property
    def plain(self) -> tuple[str, ...]:
        """Members that are no tuned encoder."""
        return tuple(name for name in self.members if not name.startswith(f"{fine_tuning.TUNED}-"))

    @property
    def encoder(self) -> str | None:
        """The encoder that is tuned for a member."""
        tuned = [bank_of(name) for name in self.members if name not in self.plain]
        return tuned[0].removeprefix(f"{fine_tuning.TUNED}-") if tuned else None


def measure(path: AuditPath, traces: Sequence[Trace]) -> dict[str, float]:
    """latency_ms, peak_memory_gb and, where they follow from the shape, audit_parameters and trainable_parameters.

    Raises AtlasError if the method is unknown or its model is not here.
    """
    parts = _parts(path, traces)

    def score() -> None:
        for part in parts:
            part(traces)

    timing = timed(score, device=_device())
    measures = {"latency_ms": 1000 * timing.median / len(traces), "peak_memory_gb": timing.peak_bytes / 1e9}
    return measures | _counted(path, traces)


def _counted(path: AuditPath, traces: Sequence[Trace]) -> dict[str, float]:
    """Parameters of a reader of states or a stack; those of a baseline are what its fits noted."""
    if not path.blocks and not path.members:
        return {}
    if path.blocks:
        known = {proxy: describe(proxy) for proxy in path.blocks}
        widths = {proxy: one.hidden_size for proxy, one in known.items()}
        head = blank_enrolment(path, widths, traces).heads[0].probe.n_parameters
        blocks = [audit_parameters(load_model(one)[0], one.depth, max(path.blocks[p])) for p, one in known.items()]
        run, trained = sum(blocks) + head, _trained_numbers(path, head, next(iter(widths.values())))
    else:
        run = trained = sum(_blank_grams(bank_of(name), path.classes, traces).n_parameters for name in path.plain)
    tuned = _classifier(path.encoder, path.classes, SERVED).parameters if path.encoder else 0
    return {"audit_parameters": run + tuned, "trainable_parameters": trained + tuned}


def _parts(path: AuditPath, traces: Sequence[Trace]) -> list[Scores]:
    """What has to be run, one after the other."""
    if not path.blocks and not path.members:
        return [_baseline(path, traces)]
    parts = [_tuned(_classifier(path.encoder, path.classes, SERVED), "r")] if path.encoder else []
    if not path.blocks:
        return [*parts, *(_grams(bank_of(name), path.classes, traces) for name in path.plain)]
    readers = {proxy: load_reader(proxy) for proxy in path.blocks}
    enrolment = blank_enrolment(path, {proxy: reader.hidden_size for proxy, reader in readers.items()}, traces)
    attributor = Attributor(readers.pop(enrolment.proxy), enrolment, others=readers)
    return [*parts, lambda some: attributor.score(some, sizes=(len(some),)).log_posteriors]


def _grams(kind: str, classes: int, traces: Sequence[Trace]) -> Scores:
    model = _blank_grams(kind, classes, traces)
    return lambda some: model.log_posterior(GRAMS[kind].counts([whole(trace.response) for trace in some]))


def _baseline(path: AuditPath, traces: Sequence[Trace]) -> Scores:
    if path.method == "random":
        return lambda some: random_guess(np.arange(len(some)), path.classes, "cost", 0)
    if path.method in SETTINGS:
        settings = SETTINGS[path.method]
        columns = in_use(count([trace.response for trace in traces], settings), settings.features)
        weight, bias = _zeros(len(columns), path.classes), _zeros(path.classes)
        model = NgramModel(columns, _ones(len(columns)), weight, bias, 0)
        return lambda some: model.log_posterior(count([trace.response for trace in some], settings))
    if path.method == "dna":
        encoder = SentenceEncoder(str(path.proxy))
        probe = _blank_probe(encoder.width, path.classes)
        return lambda some: probe.log_posterior(encoder.embed(_texts(some, path.input_view)))
    if path.method == "llmmap":
        return _llmmap(str(path.proxy), path.classes)
    if path.method in ("deberta", "encoder"):
        tuning = fine_tuning.ENCODER if path.method == "encoder" else fine_tuning.CLASSIFIER
        return _tuned(_classifier(path.proxy or fine_tuning.DEBERTA, path.classes, tuning), path.input_view)
    raise AtlasError(f"The audit path of '{path.method}' is not known", "Measure its cost where it is fitted")


def _classifier(name: str, classes: int, settings: fine_tuning.FinetuneSettings) -> fine_tuning.TrainedClassifier:
    model, tokenizer = fine_tuning.load_classifier(name, classes, settings, 0)
    device = torch.device(_device())
    return fine_tuning.TrainedClassifier(model.eval().to(device), tokenizer, settings, device)


def _tuned(model: fine_tuning.TrainedClassifier, view: View) -> Scores:
    return lambda some: model.log_posterior(_texts(some, view))


def _texts(traces: Sequence[Trace], view: View) -> list[str]:
    return [view_text(trace, view)[1] for trace in traces]


def _llmmap(encoder_name: str, classes: int) -> Scores:
    encoder = SentenceEncoder(encoder_name)
    width = 2 * encoder.width
    model = LLMmapModel(LLMmapHead(width, classes).eval().to(encoder.device), _zeros(width), _ones(width))

    def scores(some: Sequence[Trace]) -> Floats:
        prompts = encoder.embed([trace.prompt for trace in some])
        responses = encoder.embed([trace.response[:RESPONSE_CHARACTERS] for trace in some])
        return model.log_posterior(np.concatenate([prompts, responses], 1))

    return scores


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def blank_enrolment(path: AuditPath, widths: Mapping[str, int], traces: Sequence[Trace]) -> Enrolment:
    """An enrolment of a path's readout, with zeros for weights; the first proxy is its own.

    widths : Dimension d of every proxy; traces : Their n-grams are those in use.
    """
    proxy, layers = next(iter(path.blocks.items()))
    probe: Any
    if path.plain:
        models = tuple(_member(name, path, widths, traces) for name in path.plain)
        probe = Ensemble(models, np.zeros((CELLS, len(models))))
    elif path.method in (LDA_LIVE, FUSED_LIVE):
        probe = _bank(len(layers) * FINGERPRINT_MODES * widths[proxy], path.classes)
        if path.method == FUSED_LIVE:
            probe = NgramBank(probe, _words(path.classes, traces), np.zeros(CELLS))
    else:
        probe = _blank_probe(len(FORMS[form_of(path.method)].vectors) * widths[proxy], path.classes)
    names = tuple(map(str, range(path.classes)))
    return Enrolment(
        name=path.method,
        reader=reader_id(path.method, proxy, path.input_view),
        proxy=proxy,
        view=path.input_view,
        block=block_of(path.method),
        sources=names,
        families=names,
        heads=(Head(probe, layers),),
        log_prior=np.full(path.classes, -np.log(path.classes)),
        prompts=np.empty(0, dtype=np.uint64),
        folds=np.empty(0, dtype=np.int16),
        width=widths[proxy],
    )


def _member(name: str, path: AuditPath, widths: Mapping[str, int], traces: Sequence[Trace]) -> Member:
    reads, _, part = name.rpartition("@")
    classes = path.classes
    if reads in GRAMS:
        return Member(reads, (), _blank_grams(reads, classes, traces))
    width = len(path.blocks[reads]) * FINGERPRINT_MODES * widths[reads]
    mean, weight, bias = _zeros(width), _zeros(width, classes), _zeros(classes)
    model: LinearReadout | FamilyReadout | NetworkReadout
    if part == NETWORK:
        units = NetworkSettings().hidden
        model = NetworkReadout(mean, _ones(width), _zeros(units, width), _zeros(units), _zeros(classes, units), bias)
    elif part == EXPERTS:
        model = FamilyReadout(mean, weight, bias, weight, bias, np.arange(classes, dtype=np.intp))
    else:
        model = LinearReadout(mean, weight, bias)
    return Member(reads, path.blocks[reads], model)


def _bank(width: int, classes: int) -> DiscriminantBank:
    rank = min(classes - 1, width)
    return DiscriminantBank(
        mean=_zeros(width),
        scale=_ones(width),
        codes=np.zeros((LIVE_MEMBERS, width, rank), dtype=np.int8),
        steps=_ones(LIVE_MEMBERS, rank),
        weight=np.zeros((LIVE_MEMBERS, rank, classes), dtype=np.float16),
        bias=_zeros(LIVE_MEMBERS, classes),
        shares=np.zeros((CELLS, LIVE_MEMBERS)),
    )


def _words(classes: int, traces: Sequence[Trace]) -> CodedGrams:
    columns = in_use(counts_of([whole(trace.response) for trace in traces]), WORD_SETTINGS.features)
    scale, codes = _ones(len(columns)), np.zeros((len(columns), classes), dtype=np.int8)
    return CodedGrams(columns.astype(np.int32), scale, codes, scale, _zeros(classes))


def _blank_probe(width: int, classes: int) -> LinearProbe:
    return LinearProbe(_zeros(width), _ones(width), _zeros(width, classes), _zeros(classes))


def _blank_grams(kind: str, classes: int, traces: Sequence[Trace]) -> GramReadout:
    """A classifier of n-grams with weights of zero for those of the traces that are most frequent."""
    grams = GRAMS[kind]
    columns = in_use(grams.counts([whole(trace.response) for trace in traces]), grams.settings.features)
    return GramReadout(columns, _ones(len(columns)), _zeros(len(columns), classes), _zeros(classes))


def _zeros(*shape: int) -> Floats:
    return np.zeros(shape, dtype=np.float32)


def _ones(*shape: int) -> Floats:
    return np.ones(shape, dtype=np.float32)


def in_use(counts: Counts, most: int) -> npt.NDArray[np.intp]:
    """The ``most`` buckets that most counts (n, buckets) fall into, ascending."""
    seen = np.bincount(counts.indices, minlength=counts.shape[1])
    return np.sort(np.argsort(-seen, kind="stable")[:most])


def _trained_numbers(path: AuditPath, head: int, width: int) -> int:
    """Numbers that fitting adjusts: ``head`` of them, or fewer where the head derives from them."""
    if path.method in MIXTURES:
        maps = MIXTURES[path.method]
        return linear_parameters(maps * width, path.classes) + maps * MODES
    if path.method.startswith(("pca-", "centroid-svd")):
        return linear_parameters(DIMENSIONS, path.classes)
    return linear_parameters(width, path.classes) if path.method.startswith("positions-") else head
