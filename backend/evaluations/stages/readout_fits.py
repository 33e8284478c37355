"""Members of a fused readout that take minutes to fit, kept model by model (stage readouts)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tqdm import tqdm

from backend.evaluations.artifacts import keep_arrays, keep_model, model_file
from backend.evaluations.readouts import LEAST, MODELS, Fitted, Load, chunks, models_of, score_alone, training_folds
from backend.evaluations.stages.baseline_methods import step_bar
from backend.methods.fine_tuning import ENCODER, FinetuneSettings, Texts, TunedEncoder, affordable, fine_tune
from backend.methods.sentence_encoder import SentenceEncoder
from backend.protocol import FOLDS

Ints = npt.NDArray[np.intp]
TUNED = replace(ENCODER, epochs=2, batch=32, learning_rate=1e-4, head_rate=2e-3, max_tokens=128, bucket=16, dropout=0.0)
"""An epoch takes every response once, in one of its three lengths. Two short epochs are what two cores do in hours."""


def complete_fits(
    fit: Callable[[int], Fitted],
    loads: Mapping[str, Load],
    folds: Ints,
    transfer: Mapping[str, tuple[Load, int]],
    out: Mapping[str, npt.NDArray[Any]],
    folder: Path,
    identity: str,
) -> float:
    """Fit all models and fill in their scores; a model that is kept is not fitted again.

    fit : Model number, of :data:`backend.evaluations.readouts.MODELS`, to the model fitted on its training folds.
    loads : Rows of Agent500 as they look under every condition; folds : (n,).
    transfer : Rows of another domain, scored by the outer models.
    out : As for any member: (3, n, C), of another domain (5, n, C); folder : Where finished models keep their scores.
    identity : Of the rows and the settings. Returns seconds of fitting, of kept models too.
    """
    seconds = 0.0
    for model in tqdm(range(len(MODELS)), desc=f"{folder.parent.name.capitalize()}", unit="fit"):
        path = folder / f"{model}.npz"
        others = transfer if model < FOLDS else {}
        parts = load_model_of(path, identity, [*loads, *others])
        if parts is None or (model < FOLDS and not (folder / model_file(model)).exists()):
            started = time.perf_counter()
            fitted = fit(model)
            took = time.perf_counter() - started
            parts = _score(fitted, model, loads, folds, others)
            parts["seconds"] = np.array(took)
            if model < FOLDS:
                keep_model(folder / model_file(model), fitted)
            keep_arrays(path, identity=np.array(identity), **parts)
        seconds += float(parts["seconds"])
        for condition in others:
            out[condition][model] = parts[f"{condition}/0"]
        _fill(out, loads, parts, folds, model)
    return seconds


def _fill(
    out: Mapping[str, npt.NDArray[Any]],
    conditions: Iterable[str],
    parts: Mapping[str, npt.NDArray[Any]],
    folds: Ints,
    model: int,
) -> None:
    """Put the scores of a model's folds where each condition has them."""
    for condition in conditions:
        for fold in MODELS[model]:
            slot = models_of(fold).index(model)
            out[condition][slot, folds == fold] = parts[f"{condition}/{slot}"]


def _score(
    fitted: Fitted, model: int, loads: Mapping[str, Load], folds: Ints, transfer: Mapping[str, tuple[Load, int]]
) -> dict[str, npt.NDArray[Any]]:
    def half(values: npt.NDArray[np.floating]) -> npt.NDArray[np.float16]:
        halved: npt.NDArray[np.float16] = np.maximum(values, LEAST).astype(np.float16)
        return halved

    parts: dict[str, npt.NDArray[Any]] = {}
    for condition, load in loads.items():
        scored = score_alone(load, folds, model, fitted)
        parts |= {f"{condition}/{slot}": half(values) for slot, values in scored.items()}
    for condition, (load, rows) in transfer.items():
        scored_rows = [fitted.log_posterior(load(some)) for some in chunks(np.arange(rows))]
        parts[f"{condition}/0"] = half(np.concatenate(scored_rows))
    return parts


def load_model_of(path: Path, identity: str, conditions: Iterable[str]) -> dict[str, npt.NDArray[Any]] | None:
    """A model's scores of all conditions, None where something is not there."""
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as arrays:
        if str(arrays["identity"]) != identity or not set(conditions) <= {
            name.partition("/")[0] for name in arrays.files
        }:
            return None
        return {name: arrays[name] for name in arrays.files if name != "identity"}


def tuned_settings() -> FinetuneSettings:
    """How an encoder is tuned on this machine."""
    return affordable(TUNED)


def complete_tuned(
    encoder: str,
    texts: Mapping[str, Sequence[str]],
    trained: Sequence[str],
    labels: Ints,
    folds: Ints,
    classes: int,
    elsewhere: Sequence[str],
    out: Mapping[str, npt.NDArray[Any]],
    settings: FinetuneSettings,
    folder: Path,
    identity: str,
) -> float:
    """Tune the inner models and fill in their scores; a model whose scores are kept is not tuned again.

    Training takes hours, so there are no outer models: an inner one misses two neighbouring folds, serves one of them
    and validates for it on the other. It is kept in half precision and only then scored, so that what is measured is
    what an enrolment serves. It goes on from its checkpoint. Scores that are there without their models
    serve stacks all the same.

    encoder : Registered name, hub id or folder.
    texts : condition to sequence of str, length n; rows of Agent500 as they look under every condition.
    trained : Conditions that are training rows, the whole responses first; labels, folds : (n,).
    elsewhere : Texts of another domain.
    out : (3, n, C) of every condition of ``texts``, and (5, n, C) of one more: the other domain.
    folder : Where models are kept, with their checkpoints and their scores; an outer fold's model is the inner one that
        serves it.
    identity : Of the rows and the settings. Returns seconds of training, of kept models too.
    """
    (other,) = set(out) - set(texts)
    seconds = 0.0
    for model in tqdm(range(FOLDS, 2 * FOLDS), desc=f"Tuning · {encoder}", unit="model"):
        path = folder / f"{model}.npz"
        parts = load_model_of(path, identity, [*texts, other])
        if parts is None:
            started = time.perf_counter()
            tuned = _train(encoder, model, texts, trained, labels, folds, classes, settings, folder)
            parts = {"seconds": np.array(time.perf_counter() - started)}
            base = SentenceEncoder(encoder)
            parts[f"{other}/0"] = tuned.log_posterior(Texts(base, elsewhere)).astype(np.float16)
            for fold in MODELS[model]:
                inside = np.flatnonzero(folds == fold)
                # All conditions at once: a short response is the same under several, and is read once.
                scores = tuned.log_posterior(
                    Texts(base, [rows[row] for rows in texts.values() for row in inside.tolist()])
                )
                for condition, part in zip(texts, np.split(scores, len(texts)), strict=True):
                    parts[f"{condition}/{models_of(fold).index(model)}"] = part.astype(np.float16)
            keep_model(folder / model_file(model - FOLDS), tuned)
            keep_arrays(path, identity=np.array(identity), **parts)
            (folder / f"{model}.safetensors").unlink(missing_ok=True)
        seconds += float(parts["seconds"])
        out[other][model - FOLDS] = parts[f"{other}/0"]
        _fill(out, texts, parts, folds, model)
        own = folds == model - FOLDS  # there is no outer model; the one that serves the fold is this
        for condition in texts:
            slot = models_of(model - FOLDS).index(model)
            out[condition][0, own] = parts[f"{condition}/{slot}"]
    return seconds


def _train(
    encoder: str,
    model: int,
    texts: Mapping[str, Sequence[str]],
    lengths: Sequence[str],
    labels: Ints,
    folds: Ints,
    classes: int,
    settings: FinetuneSettings,
    folder: Path,
) -> TunedEncoder:
    rows = np.flatnonzero(np.isin(folds, training_folds(model)))
    whole, *copies = ([texts[condition][row] for row in rows.tolist()] for condition in lengths)
    with step_bar(f"model {model}") as progress:
        trained = fine_tune(
            encoder,
            whole,
            labels[rows],
            classes,
            settings=settings,
            seed=model,
            copies=copies,
            checkpoint=folder / f"{model}.safetensors",
            device="cuda" if torch.cuda.is_available() else "cpu",
            progress=progress,
        )
    return TunedEncoder.of(trained)
