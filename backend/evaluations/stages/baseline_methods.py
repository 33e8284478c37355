"""The dynamic baselines by name: what each reads, how it is fitted, and how it goes by in the store."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from tqdm import tqdm

from backend.errors import AtlasError
from backend.evaluations.artifacts import keep_model, model_file
from backend.fingerprints import cache_folder
from backend.methods.baselines import random_guess
from backend.methods.fine_tuning import CLASSIFIER, DEBERTA, ENCODER, FinetuneSettings, affordable, fine_tune
from backend.methods.llmmap import RESPONSE_CHARACTERS, LLMmapSettings, fit_llmmap
from backend.methods.ngrams import SETTINGS, STEPS, code_ngrams, count, fit_ngrams, keep_ngrams, ngram_file
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

Ints = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float32]

if TYPE_CHECKING:
    from backend.evaluations.stages.baselines import Material

MODELS = tuple(model_file(fold) for fold in range(FOLDS))
CHECKPOINTS = "checkpoints"  # Subfolder that goes when a fold is done
Predict = Callable[[str, Ints], Floats]  # Name of a panel and rows of it to log-posteriors of shape (rows, C)
Fit = Callable[[Ints, int], Predict]
"""Training rows of the clean panel and the fold that they leave out, to a fitted model."""


Notes = dict[str, float]  # What a fit cost: fit_seconds, trainable_parameters, audit_parameters
Note = Callable[[Notes], None]
Prepare = Callable[["Material", Ints, int, Path, Note], Fit]


def score_fold(
    fit: Fit,
    folds: npt.NDArray[np.integer],
    fold: int,
    cut: Iterable[str] = (),
    transfer: Mapping[str, int] | None = None,
) -> dict[str, Floats]:
    """Fit without one fold and score whatever that model may score, so that stress tests need no second fit.

    fit : ``fit(rows, fold)`` gives ``predict(panel, rows)``; folds : (n,), outer fold of every row.
    cut : Panels with the rows of the clean one, cut short.
    transfer : Panels of another benchmark and their number of rows, all of which are scored.
    Returns the clean panel and the cut ones: (rows of the fold, C). Transfer panels: (their rows, C).
    Raises ValueError if the fold is empty, or the log-posteriors are not finite.
    """
    test = np.flatnonzero(folds == fold)
    if not len(test):
        raise ValueError(f"no row belongs to fold {fold}")
    predict = fit(np.flatnonzero(folds != fold), fold)
    scores = {panel: predict(panel, test) for panel in (CLEAN, *cut)}
    scores |= {panel: predict(panel, np.arange(rows)) for panel, rows in (transfer or {}).items()}
    for panel, values in scores.items():
        if not np.isfinite(values).all():
            raise ValueError(f"fold {fold} gives log-posteriors in panel '{panel}' that are not finite")
    return scores


def assemble(
    by_fold: Mapping[int, Mapping[str, Floats]], folds: npt.NDArray[np.integer], transfer: Iterable[str] = ()
) -> dict[str, Floats]:
    """Put the scores of all folds together.

    by_fold : Of every fold what :func:`score_fold` gave; folds : (n,).
    transfer : Names of the panels of another benchmark.
    Returns the clean panel and the cut ones: (n, C), out of fold. Transfer panels: (FOLDS, rows, C), a fold model each.
    """
    apart = set(transfer)
    out = {}
    for panel, first in by_fold[0].items():
        if panel in apart:
            out[panel] = np.stack([by_fold[fold][panel] for fold in range(FOLDS)]).astype(np.float32)
            continue
        whole = np.empty((len(folds), first.shape[1]), dtype=np.float32)
        for fold in range(FOLDS):
            whole[folds == fold] = by_fold[fold][panel]
        out[panel] = whole
    return out


@dataclass(frozen=True)
class Method:
    """A baseline, ready to be fitted."""

    method: str  # Parts of the reader id; absent parts are None
    proxy: str | None
    view: View | None
    name: str  # For people
    settings: str  # Everything that the result depends on
    model_hash: str | None  # Of the encoder's weights
    prepare: Prepare  # Texts, labels, number of classes, folder of the evaluation, and where to note costs, to a fit
    keeps: tuple[str, ...] = ()  # Files of fitted models in that folder, a fold each

    @property
    def reader(self) -> str:
        """Reader id."""
        return "/".join(part for part in (self.method, self.proxy, self.view) if part)


def method_of(name: str, views: Sequence[View], model: str | None) -> list[Method]:
    """The readers that the name of a baseline means, with an encoder in place of the default one."""
    if name == "random":
        return [Method(name, None, None, "Random guessing", "uniform on the simplex", None, _random)]
    if name in SETTINGS:
        title = f"{'Word' if name == 'ngram-word' else 'Character'} n-grams · logistic regression"
        settings = f"{SETTINGS[name].as_text()}, {STEPS} steps"
        keeps = tuple(ngram_file(fold) for fold in range(FOLDS))
        return [Method(name, None, None, title, settings, None, partial(_ngrams, name), keeps)]
    if name == "deberta":
        return [_deberta(model or DEBERTA, view) for view in views]
    encoder = model or DEFAULT_ENCODER
    key, weights, recipe = proxy_key(encoder), proxy_hash(encoder), _recipe(encoder).as_text()
    if name == "llmmap":
        settings = f"{LLMmapSettings().as_text()}, {RESPONSE_CHARACTERS} characters, {recipe}"
        return [Method(name, key, "ur", f"LLMmap · {key}", settings, weights, partial(_llmmap, encoder), MODELS)]
    if name == "dna":
        text = f"{ProbeSettings().as_text()}, {recipe}"
        return [
            Method(name, key, view, f"LLM-DNA · {key} · {view}", text, weights, partial(_dna, encoder, view), MODELS)
            for view in views
        ]
    tuned = affordable(ENCODER)
    fits = {view: partial(_finetuned, encoder, view, tuned) for view in views}
    text = f"{tuned.as_text()}, {recipe}"
    return [Method(name, key, view, f"Fine-tuned {key} · {view}", text, weights, fit) for view, fit in fits.items()]


def _recipe(encoder: str) -> Recipe:
    """How an encoder's states become one vector; its weights need not be here where its card says it."""
    proxy = describe(encoder)
    return CARDS.get(proxy.key) or recipe_of(proxy.key, locate(proxy))


def truncation_tokenizer() -> Any:
    """Tokenizer of the default proxy, in whose tokens responses are cut."""
    return tokenizer_of(DEFAULT_PROXY)


def _random(texts: Material, labels: Ints, classes: int, folder: Path, note: Note) -> Fit:
    def fit(rows: Ints, fold: int) -> Predict:
        note({"fit_seconds": 0.0, "trainable_parameters": 0, "audit_parameters": 0})
        return lambda panel, needed: random_guess(needed, classes, panel, fold)

    return fit


def _ngrams(name: str, texts: Material, labels: Ints, classes: int, folder: Path, note: Note) -> Fit:
    settings = SETTINGS[name]
    # A response is counted once a panel; only what every fold needs stays in memory.
    counted: dict[str, Any] = {CLEAN: count([t.response for t in texts.traces(CLEAN)[: len(labels)]], settings)}

    def counts(panel: str, rows: Ints) -> Any:
        if panel == CLEAN:
            return counted[CLEAN][rows]
        traces = texts.traces(panel)
        if texts.benchmark(panel) == texts.benchmark(CLEAN):
            return count([traces[row].response for row in rows], settings)
        if panel not in counted:
            counted[panel] = count([trace.response for trace in traces], settings)
        return counted[panel][rows]

    def fit(rows: Ints, fold: int) -> Predict:
        started = time.perf_counter()
        fitted = fit_ngrams(counted[CLEAN][rows], labels[rows], classes, settings)
        size = fitted.weight.size + fitted.bias.size
        note(_costs(started, size, size) | {"iterations": fitted.iterations})
        # A fit that ends before its minimum is not reproduced to the last digit: what is measured is kept.
        model = code_ngrams(fitted, name)
        keep_ngrams(folder / ngram_file(fold), model)
        return lambda panel, needed: model.log_posterior(counts(panel, needed))

    return fit


def _dna(name: str, view: View, texts: Material, labels: Ints, classes: int, folder: Path, note: Note) -> Fit:
    encoder = SentenceEncoder(name)
    take = _embedded(encoder, texts, view, lambda trace: view_text(trace, view)[1])
    clean = take(CLEAN, np.arange(len(labels)))

    def fit(rows: Ints, fold: int) -> Predict:
        started = time.perf_counter()
        probe = fit_probe(clean[rows], labels[rows], classes)
        size = probe.weight.size + probe.bias.size
        note(_costs(started, size, size + encoder.parameters))
        keep_model(folder / model_file(fold), probe)
        return lambda panel, needed: probe.log_posterior(take(panel, needed))

    return fit


def _llmmap(name: str, texts: Material, labels: Ints, classes: int, folder: Path, note: Note) -> Fit:
    encoder = SentenceEncoder(name)
    responses = _embedded(encoder, texts, f"response{RESPONSE_CHARACTERS}", beginning)
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
        return lambda panel, needed: model.log_posterior(pairs(panel, needed))

    return fit


def _embedded(
    encoder: SentenceEncoder, texts: Material, kind: str, text_of: Callable[[Trace], str]
) -> Callable[[str, Ints], Floats]:
    """Rows of a panel to their embeddings; what is not on disk is embedded when a row of its panel is first needed."""
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
        partial(_finetuned, model, view, settings),
    )


def _folder_hash(model: str) -> str | None:
    """Hash of the weights in a folder, None for what only the hub knows."""
    with contextlib.suppress(AtlasError):
        return proxy_hash(model) if Path(model).expanduser().is_dir() else None
    return None


def _finetuned(
    name: str,
    view: View,
    settings: FinetuneSettings,
    texts: Material,
    labels: Ints,
    classes: int,
    folder: Path,
    note: Note,
) -> Fit:
    def read(panel: str, rows: Ints) -> list[str]:
        traces = texts.traces(panel)
        return [view_text(traces[row], view)[1] for row in rows]

    def fit(rows: Ints, fold: int) -> Predict:
        started = time.perf_counter()
        with step_bar(f"fold {fold}") as progress:
            model = fine_tune(
                name,
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
        return lambda panel, needed: model.log_posterior(read(panel, needed))

    return fit


@contextlib.contextmanager
def step_bar(description: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar of training steps; it takes the steps done and their total."""
    with tqdm(desc=description, unit="step") as bar:

        def progress(done: int, steps: int) -> None:
            bar.total = steps
            bar.update(done - bar.n)

        yield progress


def _costs(started: float, trained: int, audited: int) -> Notes:
    seconds = round(time.perf_counter() - started, 2)
    return {"fit_seconds": seconds, "trainable_parameters": int(trained), "audit_parameters": int(audited)}
