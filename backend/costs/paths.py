"""From the text of responses to the scores of all sources, method by method: the work that an audit has to wait for.

The heads have the shape of the fitted ones and no weights worth mentioning, since time does not depend on their values.
Whatever reads a proxy's states takes the road of live attribution, with all responses in one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import torch

from backend.attribution.scoring import Attributor
from backend.costs.heads import blank_enrolment, blank_grams, blank_probe, in_use, numbers, ones, trained_numbers, zeros
from backend.errors import AtlasError
from backend.evaluations.cost import audit_parameters, timed
from backend.evaluations.stages.readout_fits import TUNED as TRAINED
from backend.intake.traces import whole
from backend.methods.baselines import random_guess
from backend.methods.fine_tuning import (
    CLASSIFIER,
    DEBERTA,
    ENCODER,
    TUNED,
    FinetuneSettings,
    TrainedClassifier,
    load_classifier,
)
from backend.methods.llmmap import RESPONSE_CHARACTERS, LLMmapHead, LLMmapModel
from backend.methods.ngrams import GRAMS, SETTINGS, NgramModel, NgramSettings, count
from backend.methods.sentence_encoder import SentenceEncoder
from backend.proxies.registry import describe, load_model, load_reader
from backend.traces import Trace, View, view_text

Floats = npt.NDArray[np.float32]
Scores = Callable[[Sequence[Trace]], Floats]
SERVED = replace(TRAINED, autocast=False)
"""How a member that was fine-tuned reads, whatever the products of its training were."""


@dataclass(frozen=True)
class AuditPath:
    """What has to be computed for a response.

    members : Of a stack, as :meth:`backend.evaluations.stages.readout_members.Plan.members` has them.
    """

    method: str
    proxy: str | None
    view: str | None
    classes: int
    blocks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # Blocks of every proxy whose states are read
    members: tuple[str, ...] = ()

    @property
    def input_view(self) -> View:
        """What a proxy reads."""
        return "r" if self.view == "r" else "ur"


def measure(path: AuditPath, traces: Sequence[Trace]) -> dict[str, float]:
    """Latency, peak memory and, where they follow from the shape, parameters of an audit path.

    Returns latency_ms, peak_memory_gb, and audit_parameters and trainable_parameters.
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
    run, trained = 0, 0
    plain, encoder = _members(path)
    if path.blocks:
        widths = {}
        for proxy, layers in path.blocks.items():
            known = describe(proxy)
            model, _ = load_model(known)
            run += audit_parameters(model, known.depth, max(layers))
            widths[proxy] = known.hidden_size
            del model
        probe = blank_enrolment(path.method, path.blocks, plain, widths, path.input_view, path.classes, traces)
        head = probe.heads[0].probe
        run += numbers(head)
        trained += trained_numbers(path.method, head, next(iter(widths.values())), path.classes)
    else:
        grams = sum(numbers(blank_grams(_bank(name), path.classes, traces)) for name in plain)
        run, trained = run + grams, trained + grams
    if encoder:
        tuned = _classifier(encoder, path.classes, SERVED).parameters
        run, trained = run + tuned, trained + tuned
    return {"audit_parameters": run, "trainable_parameters": trained}


def _parts(path: AuditPath, traces: Sequence[Trace]) -> list[Scores]:
    """What has to be run, one after the other."""
    if not path.blocks and not path.members:
        return [_baseline(path, traces)]
    plain, encoder = _members(path)
    parts = [] if encoder is None else [_tuned(_classifier(encoder, path.classes, SERVED), "r")]
    if path.blocks:
        return [*parts, _states(path, plain, traces)]
    return [*parts, *(_grams(_bank(name), path.classes, traces) for name in plain)]


def _members(path: AuditPath) -> tuple[tuple[str, ...], str | None]:
    """Members that are no tuned encoder, and the encoder."""
    tuned = [name for name in path.members if name.startswith(f"{TUNED}-")]
    encoder = _bank(tuned[0]).removeprefix(f"{TUNED}-") if tuned else None
    return tuple(name for name in path.members if name not in tuned), encoder


def _bank(member: str) -> str:
    return member.rpartition("@")[0]


def _states(path: AuditPath, members: Sequence[str], traces: Sequence[Trace]) -> Scores:
    readers = {proxy: load_reader(proxy) for proxy in path.blocks}
    widths = {proxy: reader.hidden_size for proxy, reader in readers.items()}
    enrolment = blank_enrolment(path.method, path.blocks, members, widths, path.input_view, path.classes, traces)
    attributor = Attributor(readers.pop(enrolment.proxy), enrolment, others=readers)
    return lambda some: attributor.score(some, sizes=(len(some),)).log_posteriors


def _grams(kind: str, classes: int, traces: Sequence[Trace]) -> Scores:
    model = blank_grams(kind, classes, traces)
    return lambda some: model.log_posterior(GRAMS[kind].counts([whole(trace.response) for trace in some]))


def _baseline(path: AuditPath, traces: Sequence[Trace]) -> Scores:
    if path.method == "random":
        return lambda some: random_guess(np.arange(len(some)), path.classes, "cost", 0)
    if path.method in SETTINGS:
        return _ngrams(SETTINGS[path.method], path.classes, traces)
    if path.method == "dna":
        encoder = SentenceEncoder(str(path.proxy))
        probe = blank_probe(encoder.width, path.classes)
        return lambda some: probe.log_posterior(encoder.embed(_texts(some, path.input_view)))
    if path.method == "llmmap":
        return _llmmap(str(path.proxy), path.classes)
    if path.method in ("deberta", "encoder"):
        settings = ENCODER if path.method == "encoder" else CLASSIFIER
        return _tuned(_classifier(path.proxy or DEBERTA, path.classes, settings), path.input_view)
    raise AtlasError(f"The audit path of '{path.method}' is not known", "Measure its cost where it is fitted")


def _classifier(name: str, classes: int, settings: FinetuneSettings) -> TrainedClassifier:
    model, tokenizer = load_classifier(name, classes, settings, 0)
    device = torch.device(_device())
    return TrainedClassifier(model.eval().to(device), tokenizer, settings, device)


def _tuned(model: TrainedClassifier, view: View) -> Scores:
    return lambda some: model.log_posterior(_texts(some, view))


def _texts(traces: Sequence[Trace], view: View) -> list[str]:
    return [view_text(trace, view)[1] for trace in traces]


def _llmmap(encoder_name: str, classes: int) -> Scores:
    encoder = SentenceEncoder(encoder_name)
    width = 2 * encoder.width
    model = LLMmapModel(LLMmapHead(width, classes).eval().to(encoder.device), zeros(width), ones(width))

    def scores(some: Sequence[Trace]) -> Floats:
        prompts = encoder.embed([trace.prompt for trace in some])
        responses = encoder.embed([trace.response[:RESPONSE_CHARACTERS] for trace in some])
        return model.log_posterior(np.concatenate([prompts, responses], 1))

    return scores


def _ngrams(settings: NgramSettings, classes: int, traces: Sequence[Trace]) -> Scores:
    columns = in_use(count([trace.response for trace in traces], settings), settings.features)
    model = NgramModel(columns, ones(len(columns)), zeros(len(columns), classes), zeros(classes), 0)
    return lambda some: model.log_posterior(count([trace.response for trace in some], settings))


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
