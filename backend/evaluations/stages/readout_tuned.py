"""A small encoder, fine-tuned from end to end, as a member of a fused readout (stage readouts).

Training is what takes hours here, so only the five inner models of :mod:`backend.evaluations.readouts` are trained:
each misses two neighbouring folds, serves one of them as its outer model and validates for it on the other. A model
goes on from its checkpoint. It is kept in half precision, and only then asked about its rows, so that what is measured
is what an enrolment serves.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from tqdm import tqdm

from backend.evaluations.model_artifacts import keep_model, model_file
from backend.evaluations.readouts import MODELS, models_of, training_folds
from backend.evaluations.stages.readout_fits import load_model_of
from backend.methods.fine_tuning import ENCODER, FinetuneSettings, affordable, fine_tune
from backend.methods.sentence_encoder import SentenceEncoder
from backend.methods.tuned_encoder import Texts, TunedEncoder
from backend.protocol import FOLDS

Ints = npt.NDArray[np.intp]
TUNED = replace(ENCODER, epochs=2, batch=32, learning_rate=1e-4, head_rate=2e-3, max_tokens=128, bucket=16, dropout=0.0)
"""An epoch takes every response once, in one of its three lengths. Two short epochs are what two cores do in hours."""


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

    Scores may be there without their models, from a time when only scores were kept: they serve stacks all the same.

    encoder : Registered name, hub id or folder.
    texts : condition to sequence of str, length n; rows of Agent500 as they look under every condition.
    trained : Conditions that are training rows, the whole responses first.
    labels, folds : (n,).
    elsewhere : Texts of another domain.
    out : (3, n, C) of every condition of ``texts``, and (5, n, C) of one more: the other domain.
    folder : Where models are kept, with their checkpoints and their scores; an outer fold's model is the inner one that
        serves it.
    identity : Of the rows and the settings.
    Returns seconds of training, of kept models too.
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
                said = tuned.log_posterior(Texts(base, [rows[row] for rows in texts.values() for row in inside]))
                for condition, part in zip(texts, np.split(said, len(texts)), strict=True):
                    parts[f"{condition}/{models_of(fold).index(model)}"] = part.astype(np.float16)
            keep_model(folder / model_file(model - FOLDS), tuned)
            scratch = path.with_suffix(".partial.npz")
            np.savez(scratch, identity=np.array(identity), **parts)
            scratch.replace(path)
            (folder / f"{model}.safetensors").unlink(missing_ok=True)
        seconds += float(parts["seconds"])
        out[other][model - FOLDS] = parts[f"{other}/0"]
        for condition in texts:
            for fold in MODELS[model]:
                slot = models_of(fold).index(model)
                out[condition][slot, folds == fold] = parts[f"{condition}/{slot}"]
                if fold == model - FOLDS:  # there is no outer model; the one that serves the fold is this
                    out[condition][0, folds == fold] = parts[f"{condition}/{slot}"]
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
    whole, *copies = ([texts[condition][row] for row in rows] for condition in lengths)
    with tqdm(desc=f"model {model}", unit="step") as bar:

        def progress(done: int, steps: int) -> None:
            bar.total = steps
            bar.update(done - bar.n)

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
