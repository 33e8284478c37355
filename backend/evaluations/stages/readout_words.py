"""Word n-grams in one byte a weight, as live attribution serves them beside discriminants (stage readouts)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from backend.errors import AtlasError
from backend.evaluations.readout_members import LENGTHS
from backend.evaluations.readout_words import SETTINGS, fit_words, score_words
from backend.evaluations.readouts import MODELS
from backend.evaluations.stages.baselines import MATH
from backend.evaluations.stages.readout_members import Scorer
from backend.methods.head import WORD_PARTS
from backend.methods.ngram_readouts import CodedGrams
from backend.methods.ngrams import counts_of
from backend.protocol import FOLDS


@dataclass(frozen=True)
class Words:
    """What n-grams say.

    Attributes
    ----------
    models : dict of int to CodedGrams
        By the fold that each has not seen.
    scores : dict of condition to ndarray of shape (SLOTS, n, C), float16
    elsewhere : ndarray of shape (FOLDS, m, C), float16
        Of Math100.
    """

    models: dict[int, CodedGrams]
    scores: Mapping[str, npt.NDArray[np.float16]]
    elsewhere: npt.NDArray[np.float16]


def words_of(scorer: Scorer, folder: Path) -> Words:
    """Fit whatever model is not kept in the folder, and score every condition."""
    counts = {condition: counts_of(scorer.texts(condition)) for condition in (*LENGTHS, MATH)}
    elsewhere = np.empty((FOLDS, scorer.size(MATH), scorer.classes), np.float16)
    identity = json.dumps([scorer.identity, SETTINGS.as_text()])
    kept = {model: _kept(folder / f"words.{model}.npz", identity) for model in range(len(MODELS))}
    missing = [model for model, held in kept.items() if held is None]
    read = {condition: counts[condition] for condition in LENGTHS}
    fits = fit_words(read, scorer.labels, scorer.folds, scorer.classes, missing)
    for model, fitted in tqdm(fits, desc="Fits · words", total=len(missing), unit="fit", disable=not missing):
        kept[model] = fitted
        _keep(folder / f"words.{model}.npz", fitted, identity)
    models = {model: held for model, held in kept.items() if held is not None}
    scores = score_words(read, scorer.folds, scorer.classes, models)
    for fold in range(FOLDS):
        elsewhere[fold] = models[fold].log_posterior(counts[MATH])
    return Words({fold: models[fold] for fold in range(FOLDS)}, scores, elsewhere)


def load_words(folder: Path, rerun_command: str) -> dict[int, CodedGrams]:
    """Models of all outer folds.

    Raises
    ------
    AtlasError
        If one is missing; ``rerun_command`` is what makes them.
    """
    found = {fold: _kept(folder / f"words.{fold}.npz") for fold in range(FOLDS)}
    models = {fold: held for fold, held in found.items() if held is not None}
    if len(models) < FOLDS:
        raise AtlasError(f"The n-grams of a fold are missing in {folder}", f"Run: {rerun_command}")
    return models


def _kept(path: Path, identity: str | None = None) -> CodedGrams | None:
    if not path.exists():
        return None
    with np.load(path, allow_pickle=False) as held:
        if identity is not None and held["identity"].item() != identity:
            return None
        return CodedGrams(**{name: held[name] for name in WORD_PARTS})


def _keep(path: Path, model: CodedGrams, identity: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    parts: dict[str, Any] = {name: getattr(model, name) for name in WORD_PARTS}
    scratch = path.with_name(f"{path.stem}.partial.npz")
    np.savez(scratch, identity=np.array(identity), **parts)
    scratch.replace(path)
