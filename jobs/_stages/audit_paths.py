"""From the text of responses to the scores of all sources, method by method: the work that an audit has to wait for.

The heads have the shape of the fitted ones and no weights worth mentioning, since time does not depend on their values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from backend.baselines.embeddings import SentenceEncoder
from backend.baselines.finetune import CLASSIFIER, DEBERTA, ENCODER, TrainedClassifier, load_classifier
from backend.baselines.llmmap import RESPONSE_CHARACTERS, LLMmapHead, LLMmapModel
from backend.baselines.ngram import SETTINGS, NgramModel, NgramSettings, count
from backend.errors import AtlasError
from backend.evaluations.cost import audit_parameters, linear_parameters, timed
from backend.probe import LinearProbe
from backend.proxies.registry import describe, load_model, load_reader
from backend.spectral import FINGERPRINT_MODES
from backend.traces import Trace, View, view_text
from jobs._common import METHOD

Floats = npt.NDArray[np.float32]
Scores = Callable[[Sequence[Trace]], Floats]


@dataclass(frozen=True)
class AuditPath:
    """What has to be computed for a response.

    Attributes
    ----------
    method : str
    proxy, view : str or None
    classes : int
    layer : int or None
        Block that the paper's readout reads.
    """

    method: str
    proxy: str | None
    view: str | None
    classes: int
    layer: int | None = None


def measure(path: AuditPath, traces: Sequence[Trace]) -> dict[str, float]:
    """Latency, peak memory and, for the paper's readout, parameters of an audit path.

    Parameters
    ----------
    path : AuditPath
    traces : sequence of Trace

    Returns
    -------
    dict of str to float
        latency_ms, peak_memory_gb, and audit_parameters.

    Raises
    ------
    AtlasError
        If the method is unknown or its model is not here.
    """
    measures: dict[str, float] = {}
    if path.method == METHOD:
        proxy = describe(str(path.proxy))
        model, _ = load_model(proxy)
        head = linear_parameters(FINGERPRINT_MODES * proxy.hidden_size, path.classes)
        measures["audit_parameters"] = audit_parameters(model, proxy.depth, int(path.layer or 0)) + head
        del model
    score = _scores(path, traces)
    timing = timed(lambda: score(traces), device=_device())
    measures["latency_ms"] = 1000 * timing.median / len(traces)
    measures["peak_memory_gb"] = timing.peak_bytes / 1e9
    return measures


def _scores(path: AuditPath, traces: Sequence[Trace]) -> Scores:
    view: View = "r" if path.view == "r" else "ur"
    if path.method == METHOD:
        return _reader(str(path.proxy), view, int(path.layer or 0), path.classes)
    if path.method in SETTINGS:
        return _ngrams(SETTINGS[path.method], path.classes, traces)
    if path.method == "dna":
        return _dna(str(path.proxy), view, path.classes)
    if path.method == "llmmap":
        return _llmmap(str(path.proxy), path.classes)
    if path.method in ("deberta", "encoder"):
        settings = ENCODER if path.method == "encoder" else CLASSIFIER
        model, tokenizer = load_classifier(path.proxy or DEBERTA, path.classes, settings, 0)
        device = torch.device(_device())
        trained = TrainedClassifier(model.eval().to(device), tokenizer, settings, device)
        return lambda asked: trained.log_posterior([view_text(trace, view)[1] for trace in asked])
    raise AtlasError(f"The audit path of '{path.method}' is not known", "Measure its cost where it is fitted")


def _reader(proxy: str, view: View, layer: int, classes: int) -> Scores:
    reader = load_reader(proxy)
    probe = _blank_probe(FINGERPRINT_MODES * reader.hidden_size, classes)

    def scores(asked: Sequence[Trace]) -> Floats:
        return probe.log_posterior(reader.read(reader.encode(asked, view), [layer])[layer, "full"])

    return scores


def _dna(encoder_name: str, view: View, classes: int) -> Scores:
    encoder = SentenceEncoder(encoder_name)
    probe = _blank_probe(encoder.width, classes)
    return lambda asked: probe.log_posterior(encoder.embed([view_text(trace, view)[1] for trace in asked]))


def _llmmap(encoder_name: str, classes: int) -> Scores:
    encoder = SentenceEncoder(encoder_name)
    width = 2 * encoder.width
    head = LLMmapHead(width, classes).eval().to(encoder.device)
    model = LLMmapModel(head, np.zeros(width, dtype=np.float32), np.ones(width, dtype=np.float32))

    def scores(asked: Sequence[Trace]) -> Floats:
        prompts = encoder.embed([trace.prompt for trace in asked])
        responses = encoder.embed([trace.response[:RESPONSE_CHARACTERS] for trace in asked])
        return model.log_posterior(np.concatenate([prompts, responses], 1))

    return scores


def _ngrams(settings: NgramSettings, classes: int, traces: Sequence[Trace]) -> Scores:
    # The n-grams of these very responses are in use, so that as many are looked up as in a fitted model.
    seen = np.bincount(count([trace.response for trace in traces], settings).indices, minlength=settings.buckets)
    columns = np.sort(np.argsort(-seen, kind="stable")[: settings.features])
    ones = np.ones(len(columns), dtype=np.float32)
    blank = np.zeros((len(columns), classes), dtype=np.float32)
    model = NgramModel(columns, ones, blank, np.zeros(classes, dtype=np.float32), 0)
    return lambda asked: model.log_posterior(count([trace.response for trace in asked], settings))


def _blank_probe(width: int, classes: int) -> LinearProbe:
    zeros, ones = np.zeros(width, dtype=np.float32), np.ones(width, dtype=np.float32)
    return LinearProbe(zeros, ones, np.zeros((width, classes), dtype=np.float32), np.zeros(classes, dtype=np.float32))


def _device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"
