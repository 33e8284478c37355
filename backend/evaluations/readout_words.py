"""Word n-grams in one byte a weight, under the paper's folds (see readouts)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.evaluations.readout_members import TRAINED, fit_gram_models, score_grams, scores_shape
from backend.evaluations.readouts import MODELS
from backend.methods.ngram_readouts import CodedGrams, coded
from backend.methods.ngrams import SoftmaxSettings

Ints = npt.NDArray[np.intp]
# Chosen on rows of fold 1 by models that saw folds 2 to 4, beside the discriminants, 100 sources: 60,000, 20,000 and
# 10,000 buckets give .487, .486 and .486 at K = 1, .851, .839 and .843 at K = 10; one byte a weight changes none of it.
SETTINGS = SoftmaxSettings(features=10_000)


def fit_words(
    counts: Mapping[str, Any],
    labels: Ints,
    folds: Ints,
    classes: int,
    models: Collection[int] = range(len(MODELS)),
    settings: SoftmaxSettings = SETTINGS,
) -> Iterator[tuple[int, CodedGrams]]:
    """Fit some of the models on responses of all lengths, one after the other.

    Parameters
    ----------
    counts : mapping of condition to scipy.sparse.csr_matrix of shape (n, buckets)
        'clean' at least.
    labels, folds : ndarray of shape (n,)
    classes : int
    models : collection of int
    settings : SoftmaxSettings
    """
    copies = [counts[length] for length in TRAINED if length in counts]
    for model, readout in fit_gram_models(copies, labels, folds, classes, settings, list(models)):
        yield model, coded(readout)


def score_words(
    counts: Mapping[str, Any], folds: Ints, classes: int, models: Mapping[int, CodedGrams]
) -> dict[str, npt.NDArray[np.float16]]:
    """Log-posteriors (SLOTS, n, C) of every condition by the models that may score each row."""
    out = {condition: np.empty(scores_shape(len(folds), classes), np.float16) for condition in counts}
    for model, readout in models.items():
        for condition, scores in out.items():
            score_grams(counts[condition], folds, model, readout, scores)
    return out
