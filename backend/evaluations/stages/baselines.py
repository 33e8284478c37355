"""Dynamic baselines under READER's folds, groups and accumulator (paper, Dynamic Baselines).

A fold model scores the responses that it has not seen, the same ones cut to 128, 64 and 32 proxy tokens, and all of
Math100; the stress stage evaluates these scores. Only the first are needed for the clean evaluation (``--clean-only``).
A fold that is done is not fitted again after an interruption, and a finished evaluation is only repeated when something
that it depends on has changed.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import torch
from tqdm import tqdm

from backend.corpus.release import Release
from backend.errors import AtlasError
from backend.evaluations import artifacts
from backend.evaluations.attribution import attribution_frames
from backend.evaluations.corpus import MATH, Material
from backend.evaluations.stages import EvaluateOptions
from backend.evaluations.stages.roster_run import RosterRun
from backend.fingerprints import cache_folder
from backend.methods import sentence_encoder
from backend.methods.baselines import random_guess
from backend.methods.fine_tuning import CLASSIFIER, DEBERTA, ENCODER, FinetuneSettings, affordable, fine_tune
from backend.methods.llmmap import RESPONSE_CHARACTERS, LLMmapSettings, fit_llmmap
from backend.methods.ngrams import SETTINGS, STEPS, code_ngrams, count, fit_ngrams, keep_ngrams, ngram_file
from backend.methods.probe import ProbeSettings, fit_probe
from backend.methods.readout import Floats, Ints, Labels
from backend.methods.registry import BASELINES, QUICK
from backend.methods.sentence_encoder import EmbeddingCache, EmbeddingKey, SentenceEncoder
from backend.output_files import write
from backend.progress import step_bar
from backend.protocol import CLEAN, FOLDS, SPLIT_SEED, fold_of_prompts
from backend.proxies.registry import DEFAULT_PROXY, describe, locate, proxy_hash, proxy_key
from backend.traces import Trace, View, view_text

MODELS = tuple(artifacts.model_file(fold) for fold in range(FOLDS))
CHECKPOINTS = "checkpoints"  # Subfolder that goes when a fold is done
Predict = Callable[[str, Ints], Floats]  # Name of a panel and rows of it to log-posteriors of shape (rows, C)
Fit = Callable[[Ints, int], Predict]
"""Training rows of the clean panel and the fold that they leave out, to a fitted model."""
Notes = dict[str, float]  # What a fit cost: fit_seconds, trainable_parameters, audit_parameters


@dataclass(frozen=True)
class FitInput:
    """What a method is fitted to on one roster."""

    texts: Material
    labels: Ints  # (n,), source number
    classes: int
    folder: Path  # Of the evaluation
    note: Callable[[Notes], None]  # Takes what a fit cost


def run(connection: duckdb.DuckDBPyConnection, release: Release, options: EvaluateOptions) -> None:
    """Evaluate the methods on every roster; without ``--method`` those that need no fine-tuning."""
    unknown = [name for name in options.methods if name not in BASELINES]
    if unknown:
        raise AtlasError(f"There is no baseline '{', '.join(unknown)}'", f"Choose from {', '.join(BASELINES)}")
    rosters = sorted(options.rosters, key=lambda name: len(release.roster(name)))
    material = Material(release, len(release.roster(rosters[-1])), options.limit)
    for name in options.methods or QUICK:
        for method in method_of(name, options.views, options.model):
            for roster in rosters:
                evaluate(RosterRun(connection, release, roster, options.limit), material, method, options.clean_only)


def evaluate(run: RosterRun, material: Material, method: Method, clean_only: bool = False) -> None:
    """Score and evaluate one method on one roster, and write its rows; ``clean_only``: score whole responses alone."""
    frame = run.release.roster(run.roster)
    sources, families = frame["label"].tolist(), frame["plot_family"].tolist()
    prompt_folds = fold_of_prompts(material.prompts(CLEAN))
    folder = run.folder(method.method, method.proxy, method.view)
    details: dict[str, Any] = {"sources": len(sources), "prompts": len(prompt_folds), "settings": method.settings}
    with run.build("evaluate", details, method.model_hash, reader=method.reader, roster=run.roster) as build:
        altered = () if clean_only else (*artifacts.CUTS, MATH)
        clean, details["folds"] = _scores(material, method, len(sources), prompt_folds, folder, altered)
        frames = attribution_frames(clean, sources, families, prompt_folds)
        run.enter_reader(method.method, method.proxy, method.view, method.name)
        artifacts.write_log_posteriors(build, clean, frames, prompt_folds)
    artifacts.report_accuracy(build.key, frames.metrics)


def _scores(
    material: Material, method: Method, sources: int, prompt_folds: Ints, folder: Path, altered: Sequence[str]
) -> tuple[Floats, list[Notes]]:
    """Out-of-fold log-posteriors of whole responses and of the ``altered`` panels, computed or saved; costs of fits."""
    folds = np.tile(prompt_folds, sources)
    transfer = {panel: sources * len(material.prompts(panel)) for panel in altered if panel == MATH}
    cut = [panel for panel in altered if panel not in transfer]
    files = {panel: artifacts.posterior_file(panel) for panel in (CLEAN, *cut)}
    files |= dict.fromkeys(transfer, artifacts.TRANSFER_FILE)
    hashes = [material.release.manifest_hash, method.settings, method.model_hash, proxy_hash(DEFAULT_PROXY)]
    identity = json.dumps(hashes)
    notes = _finished(folder, identity, [*files.values(), *method.keeps])
    if notes is None:
        fit: Fit | None = None
        by_fold: dict[int, Mapping[str, Floats]] = {}
        notes = []
        labels = np.repeat(np.arange(sources), len(prompt_folds))
        data = FitInput(material, labels, sources, folder, notes.append)
        for fold in tqdm(range(FOLDS), desc=f"{method.reader} {sources}", unit="fold"):
            path = folder / "folds" / f"{fold}.npz"
            saved = _saved_fold(path, identity, files)
            if saved is None:
                fit = fit or method.prepare(data)
                by_fold[fold] = score_fold(fit, folds, fold, cut, transfer)
                artifacts.keep_arrays(path, **by_fold[fold], about=np.array([identity, json.dumps(notes[-1])]))
                shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
            else:
                by_fold[fold], note = saved
                notes.append(note)
        artifacts.drop_altered_scores(folder)
        for panel, array in assemble(by_fold, folds, transfer).items():
            artifacts.keep(folder / files[panel], array)
        write(folder / "finished.json", json.dumps({"identity": identity, "folds": notes}))
        shutil.rmtree(folder / "folds")
    clean: Floats = np.load(folder / files[CLEAN], mmap_mode="r")
    return clean, notes


def _finished(folder: Path, identity: str, files: list[str]) -> list[Notes] | None:
    """Notes of a finished evaluation with the same identity."""
    path = folder / "finished.json"
    if not path.exists() or not all((folder / name).exists() for name in files):
        return None
    finished = json.loads(path.read_text("utf-8"))
    if finished["identity"] == identity:
        return list(finished["folds"])
    path.unlink()
    return None


def _saved_fold(path: Path, identity: str, panels: Iterable[str]) -> tuple[dict[str, Floats], Notes] | None:
    """Scores of the panels and note of a fold that is done with the same identity."""
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as arrays:
        saved_identity, note = arrays["about"]
        if saved_identity != identity or not set(panels) <= set(arrays.files):
            return None
        return {name: arrays[name] for name in panels}, json.loads(str(note))


def score_fold(
    fit: Fit, folds: Labels, fold: int, cut: Iterable[str] = (), transfer: Mapping[str, int] | None = None
) -> dict[str, Floats]:
    """Fit without one fold and score whatever that model may score.

    fit : ``fit(rows, fold)`` gives ``predict(panel, rows)``; folds : (n,), outer fold of every row.
    cut : Panels with the rows of the clean one, cut short; transfer : Panels of another benchmark and their rows.
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
    by_fold: Mapping[int, Mapping[str, Floats]], folds: Labels, transfer: Iterable[str] = ()
) -> dict[str, Floats]:
    """Put together the scores of all folds that :func:`score_fold` gave; folds : (n,).

    transfer : Names of the panels of another benchmark.
    Returns the clean panel and the cut ones: (n, C), out of fold. Transfer panels: (FOLDS, rows, C), a fold model each.
    """
    out, by_row = {}, np.argsort(np.argsort(folds, kind="stable"))  # the place of every row, fold after fold
    for panel in by_fold[0]:
        parts = [by_fold[fold][panel].astype(np.float32) for fold in range(FOLDS)]
        out[panel] = np.stack(parts) if panel in set(transfer) else np.concatenate(parts)[by_row]
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
    prepare: Callable[[FitInput], Fit]
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
    encoder = model or sentence_encoder.DEFAULT_ENCODER
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


def _recipe(encoder: str) -> sentence_encoder.Recipe:
    """How an encoder's states become one vector; its weights need not be here where its card says it."""
    proxy = describe(encoder)
    return sentence_encoder.CARDS.get(proxy.key) or sentence_encoder.recipe_of(proxy.key, locate(proxy))


def _random(data: FitInput) -> Fit:
    def fit(rows: Ints, fold: int) -> Predict:
        data.note({"fit_seconds": 0.0, "trainable_parameters": 0, "audit_parameters": 0})
        return lambda panel, needed: random_guess(needed, data.classes, panel, fold)

    return fit


def _ngrams(name: str, data: FitInput) -> Fit:
    settings, texts, labels = SETTINGS[name], data.texts, data.labels
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
        fitted = fit_ngrams(counted[CLEAN][rows], labels[rows], data.classes, settings)
        size = fitted.n_parameters
        data.note(_costs(started, size, size) | {"iterations": fitted.iterations})
        # A fit that ends before its minimum is not reproduced to the last digit: what is measured is saved.
        model = code_ngrams(fitted, name)
        keep_ngrams(data.folder / ngram_file(fold), model)
        return lambda panel, needed: model.log_posterior(counts(panel, needed))

    return fit


def _dna(name: str, view: View, data: FitInput) -> Fit:
    encoder = SentenceEncoder(name)
    take = _embedded(encoder, data.texts, view, lambda trace: view_text(trace, view)[1])
    clean = take(CLEAN, np.arange(len(data.labels)))

    def fit(rows: Ints, fold: int) -> Predict:
        started = time.perf_counter()
        probe = fit_probe(clean[rows], data.labels[rows], data.classes)
        data.note(_costs(started, probe.n_parameters, probe.n_parameters + encoder.parameters))
        artifacts.keep_model(data.folder / artifacts.model_file(fold), probe)
        return lambda panel, needed: probe.log_posterior(take(panel, needed))

    return fit


def _llmmap(name: str, data: FitInput) -> Fit:
    encoder, texts, labels = SentenceEncoder(name), data.texts, data.labels
    responses = _embedded(encoder, texts, f"response{RESPONSE_CHARACTERS}", sentence_encoder.beginning)
    prompts: dict[str, Floats] = {}

    def pairs(panel: str, rows: Ints) -> Floats:
        benchmark, width = texts.benchmark(panel), len(texts.prompts(panel))
        if benchmark not in prompts:
            prompts[benchmark] = encoder.embed([trace.prompt for trace in texts.traces(panel)[:width]])
        return np.concatenate([prompts[benchmark][rows % width], responses(panel, rows)], 1)

    clean = pairs(CLEAN, np.arange(len(labels)))

    def fit(rows: Ints, fold: int) -> Predict:
        started = time.perf_counter()
        model = fit_llmmap(clean[rows], labels[rows], data.classes, seed=SPLIT_SEED + fold, device=encoder.device)
        data.note(_costs(started, model.parameters, model.parameters + encoder.parameters))
        artifacts.keep_model(data.folder / artifacts.model_file(fold), model)
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


def _finetuned(name: str, view: View, settings: FinetuneSettings, data: FitInput) -> Fit:
    def read(panel: str, rows: Ints) -> list[str]:
        traces = data.texts.traces(panel)
        return [view_text(traces[row], view)[1] for row in rows]

    def fit(rows: Ints, fold: int) -> Predict:
        started = time.perf_counter()
        with step_bar(f"fold {fold}") as progress:
            model = fine_tune(
                name,
                read(CLEAN, rows),
                data.labels[rows],
                data.classes,
                settings=settings,
                seed=SPLIT_SEED + fold,
                checkpoint=data.folder / CHECKPOINTS / f"{fold}.safetensors",
                device="cuda" if torch.cuda.is_available() else "cpu",
                progress=progress,
            )
        data.note(_costs(started, model.parameters, model.parameters))
        return lambda panel, needed: model.log_posterior(read(panel, needed))

    return fit


def _costs(started: float, trained: int, audited: int) -> Notes:
    seconds = round(time.perf_counter() - started, 2)
    return {"fit_seconds": seconds, "trainable_parameters": int(trained), "audit_parameters": int(audited)}
