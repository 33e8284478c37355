"""The dynamic baselines by name: what each reads, how it is fitted, and how it goes by in the store."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from tqdm import tqdm

from backend.errors import AtlasError
from backend.evaluations.baselines import Fit, Floats, Ints, Predict
from backend.evaluations.model_artifacts import keep_model, model_file
from backend.fingerprints import cache_folder
from backend.methods.baselines import random_guess
from backend.methods.fine_tuning import CLASSIFIER, DEBERTA, ENCODER, FinetuneSettings, affordable, fine_tune
from backend.methods.llmmap import RESPONSE_CHARACTERS, LLMmapSettings, fit_llmmap
from backend.methods.ngram_readouts import STEPS, code_ngrams, fit_ngrams, keep_ngrams, ngram_file
from backend.methods.ngrams import SETTINGS, count
from backend.methods.probe import ProbeSettings, fit_probe
from backend.methods.sentence_encoder import (
    CARDS,
    DEFAULT_ENCODER,
    EmbeddingCache,
    EmbeddingKey,
    Recipe,
    SentenceEncoder,
    beginning,
    recipe_of,
)
from backend.protocol import CLEAN, FOLDS, SPLIT_SEED
from backend.proxies.registry import DEFAULT_PROXY, describe, locate, proxy_hash, proxy_key, tokenizer_of
from backend.traces import Trace, View, view_text

MODELS = tuple(model_file(fold) for fold in range(FOLDS))
CHECKPOINTS = "checkpoints"
"""Subfolder that goes when a fold is done."""

Notes = dict[str, float]
"""What a fit cost: fit_seconds, trainable_parameters, audit_parameters."""
Labels = npt.NDArray[np.intp]
Prepare = Callable[["Texts", Labels, int, Path, Callable[[Notes], None]], Fit]


class Texts(Protocol):
    """Where a method finds its records; panels are 'clean', truncations and 'math100'."""

    def traces(self, panel: str) -> list[Trace]:
        """Records of a panel."""

    def rows(self, panel: str) -> Ints:
        """Their rows in the whole benchmark."""

    def size(self, panel: str) -> int:
        """Records of the whole benchmark."""

    def prompts(self, panel: str) -> list[str]:
        """Ids of the prompts in use."""

    def identity(self, panel: str) -> str:
        """Hash of the benchmark's records and of the truncation."""

    def benchmark(self, panel: str) -> str:
        """Benchmark of a panel."""


@dataclass(frozen=True)
class Method:
    """A baseline, ready to be fitted.

    Attributes
    ----------
    method, proxy, view : str
        Parts of the reader id; absent parts are None.
    name : str
        For people.
    settings : str
        Everything that the result depends on.
    model_hash : str or None
        Of the encoder's weights.
    prepare : callable
        Texts, labels, number of classes, folder of the evaluation, and where to note costs, to a fit.
    keeps : tuple of str
        Files of fitted models in that folder, a fold each.
    """

    method: str
    proxy: str | None
    view: View | None
    name: str
    settings: str
    model_hash: str | None
    prepare: Prepare
    keeps: tuple[str, ...] = ()

    @property
    def reader(self) -> str:
        """Reader id."""
        return "/".join(part for part in (self.method, self.proxy, self.view) if part)


def method_of(name: str, views: Sequence[View], model: str | None) -> list[Method]:
    """The readers that a method's name means.

    Parameters
    ----------
    name : str
        One of :data:`backend.methods.registry.BASELINES`.
    views : sequence of {'ur', 'r'}
        For methods that read a record as a proxy does.
    model : str or None
        Encoder in place of the default one.

    Returns
    -------
    list of Method
    """
    if name == "random":
        return [Method(name, None, None, "Random guessing", "uniform on the simplex", None, _random)]
    if name in SETTINGS:
        title = "Word n-grams" if name == "ngram-word" else "Character n-grams"
        settings = f"{SETTINGS[name].as_text()}, {STEPS} steps"
        keeps = tuple(ngram_file(fold) for fold in range(FOLDS))
        title += " · logistic regression"
        return [Method(name, None, None, title, settings, None, _ngrams(name), keeps)]
    if name == "deberta":
        return [_deberta(model or DEBERTA, view) for view in views]
    encoder = model or DEFAULT_ENCODER
    key, weights, recipe = proxy_key(encoder), proxy_hash(encoder), _recipe(encoder)
    if name == "llmmap":
        settings = f"{LLMmapSettings().as_text()}, {RESPONSE_CHARACTERS} characters, {recipe.as_text()}"
        return [Method(name, key, "ur", f"LLMmap · {key}", settings, weights, _llmmap(encoder), MODELS)]
    if name == "dna":
        text = f"{ProbeSettings().as_text()}, {recipe.as_text()}"
        return [
            Method(name, key, view, f"LLM-DNA · {key} · {view}", text, weights, _dna(encoder, view), MODELS)
            for view in views
        ]
    tuned = affordable(ENCODER)
    text = f"{tuned.as_text()}, {recipe.as_text()}"
    return [
        Method(name, key, view, f"Fine-tuned {key} · {view}", text, weights, _finetuned(encoder, view, tuned))
        for view in views
    ]


def _recipe(encoder: str) -> Recipe:
    """How an encoder's states become one vector; its weights need not be here where its card says it."""
    proxy = describe(encoder)
    return CARDS.get(proxy.key) or recipe_of(proxy.key, locate(proxy))


def truncation_tokenizer() -> Any:
    """Tokenizer of the default proxy, in whose tokens responses are cut."""
    return tokenizer_of(DEFAULT_PROXY)


def _random(texts: Texts, labels: Labels, classes: int, folder: Path, note: Callable[[Notes], None]) -> Fit:
    def fit(rows: Ints, fold: int) -> Predict:
        note({"fit_seconds": 0.0, "trainable_parameters": 0, "audit_parameters": 0})
        return lambda panel, wanted: random_guess(wanted, classes, panel, fold)

    return fit


def _ngrams(name: str) -> Prepare:
    settings = SETTINGS[name]

    def prepare(texts: Texts, labels: Labels, classes: int, folder: Path, note: Callable[[Notes], None]) -> Fit:
        # A response is counted once a panel; only what every fold asks for stays in memory.
        held: dict[str, Any] = {CLEAN: count([t.response for t in texts.traces(CLEAN)[: len(labels)]], settings)}

        def counts(panel: str, rows: Ints) -> Any:
            if panel == CLEAN:
                return held[CLEAN][rows]
            traces = texts.traces(panel)
            if texts.benchmark(panel) == texts.benchmark(CLEAN):
                return count([traces[row].response for row in rows], settings)
            if panel not in held:
                held[panel] = count([trace.response for trace in traces], settings)
            return held[panel][rows]

        def fit(rows: Ints, fold: int) -> Predict:
            started = time.perf_counter()
            fitted = fit_ngrams(held[CLEAN][rows], labels[rows], classes, settings)
            size = fitted.weight.size + fitted.bias.size
            note(_costs(started, size, size) | {"iterations": fitted.iterations})
            # A fit that ends before its minimum is not had again to the last digit: what is measured is kept.
            model = code_ngrams(fitted, name)
            keep_ngrams(folder / ngram_file(fold), model)
            return lambda panel, wanted: model.log_posterior(counts(panel, wanted))

        return fit

    return prepare


def _dna(encoder_name: str, view: View) -> Prepare:
    def prepare(texts: Texts, labels: Labels, classes: int, folder: Path, note: Callable[[Notes], None]) -> Fit:
        encoder = SentenceEncoder(encoder_name)
        take = _embedded(encoder, texts, view, lambda trace: view_text(trace, view)[1])
        clean = take(CLEAN, np.arange(len(labels)))

        def fit(rows: Ints, fold: int) -> Predict:
            started = time.perf_counter()
            probe = fit_probe(clean[rows], labels[rows], classes)
            size = probe.weight.size + probe.bias.size
            note(_costs(started, size, size + encoder.parameters))
            keep_model(folder / model_file(fold), probe)
            return lambda panel, wanted: probe.log_posterior(take(panel, wanted))

        return fit

    return prepare


def _llmmap(encoder_name: str) -> Prepare:
    def prepare(texts: Texts, labels: Labels, classes: int, folder: Path, note: Callable[[Notes], None]) -> Fit:
        encoder = SentenceEncoder(encoder_name)
        kind = f"response{RESPONSE_CHARACTERS}"
        responses = _embedded(encoder, texts, kind, beginning)
        prompts: dict[str, Floats] = {}

        def pairs(panel: str, rows: Ints) -> Floats:
            benchmark, width = texts.benchmark(panel), len(texts.prompts(panel))
            if benchmark not in prompts:
                prompts[benchmark] = encoder.embed([trace.prompt for trace in texts.traces(panel)[:width]])
            return np.concatenate([prompts[benchmark][rows % width], responses(panel, rows)], 1)

        clean = pairs(CLEAN, np.arange(len(labels)))

        def fit(rows: Ints, fold: int) -> Predict:
            started = time.perf_counter()
            model = fit_llmmap(clean[rows], labels[rows], classes, seed=SPLIT_SEED + fold, device=encoder.device)
            note(_costs(started, model.parameters, model.parameters + encoder.parameters))
            keep_model(folder / model_file(fold), model)
            return lambda panel, wanted: model.log_posterior(pairs(panel, wanted))

        return fit

    return prepare


def _embedded(
    encoder: SentenceEncoder, texts: Texts, kind: str, text_of: Callable[[Trace], str]
) -> Callable[[str, Ints], Floats]:
    """Rows of a panel to their embeddings; what is not on disk is embedded when a row of its panel is first wanted."""
    caches: dict[str, EmbeddingCache] = {}

    def take(panel: str, rows: Ints) -> Floats:
        if panel not in caches:
            key = EmbeddingKey(texts.benchmark(panel), f"{kind}.{panel}", texts.identity(panel), texts.size(panel))
            cache = EmbeddingCache(encoder, key, cache_folder())
            every = texts.rows(panel)
            with tqdm(total=len(every), desc=f"{encoder.proxy.key} {kind} {panel}", unit="text") as bar:
                cache.complete([text_of(trace) for trace in texts.traces(panel)], every, bar.update)
            caches[panel] = cache
        return caches[panel].take(texts.rows(panel)[rows])

    return take


def _deberta(model: str, view: View) -> Method:
    """The published classifier goes by its method alone; another model or view is named."""
    settings = affordable(CLASSIFIER)
    known = model == DEBERTA and view == "ur"
    key = proxy_key(model)
    return Method(
        "deberta",
        None if known else key,
        None if known else view,
        "Fine-tuned DeBERTa-v3-large" if known else f"Fine-tuned classifier · {key} · {view}",
        f"{model if known else key} {settings.as_text()}",
        _folder_hash(model),
        _finetuned(model, view, settings),
    )


def _folder_hash(model: str) -> str | None:
    """Hash of the weights in a folder, None for what only the hub knows."""
    with contextlib.suppress(AtlasError):
        return proxy_hash(model) if Path(model).expanduser().is_dir() else None
    return None


def _finetuned(model_name: str, view: View, settings: FinetuneSettings) -> Prepare:
    def prepare(texts: Texts, labels: Labels, classes: int, folder: Path, note: Callable[[Notes], None]) -> Fit:
        def read(panel: str, rows: Ints) -> list[str]:
            traces = texts.traces(panel)
            return [view_text(traces[row], view)[1] for row in rows]

        def fit(rows: Ints, fold: int) -> Predict:
            started = time.perf_counter()
            with tqdm(desc=f"fold {fold}", unit="step") as bar:

                def progress(done: int, steps: int) -> None:
                    bar.total = steps
                    bar.update(done - bar.n)

                model = fine_tune(
                    model_name,
                    read(CLEAN, rows),
                    labels[rows],
                    classes,
                    settings=settings,
                    seed=SPLIT_SEED + fold,
                    checkpoint=folder / CHECKPOINTS / f"{fold}.safetensors",
                    device="cuda" if torch.cuda.is_available() else "cpu",
                    progress=progress,
                )
            note(_costs(started, model.parameters, model.parameters))
            return lambda panel, wanted: model.log_posterior(read(panel, wanted))

        return fit

    return prepare


def _costs(started: float, trained: int, audited: int) -> Notes:
    seconds = round(time.perf_counter() - started, 2)
    return {"fit_seconds": seconds, "trainable_parameters": int(trained), "audit_parameters": int(audited)}
