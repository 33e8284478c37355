"""Members of a fused readout: what each is fitted on, and the three scores that it gives every row (see readouts).

The truncations that extraction gives for free are training rows too. Discriminants are a bank of models, one a length
of the responses, and which of them a text should be asked of is left to the stack; they read any number of blocks in
two passes, one for the moments of every fold and one for the scores. N-grams and networks are one model for all
lengths, fitted on copies of every response.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from backend.evaluations.readouts import MODELS, SLOTS, models_of, training_folds
from backend.methods.discriminant import LinearReadout, Moments, fit_discriminant, merged, moments_of
from backend.methods.family_experts import FamilyReadout
from backend.methods.network import NetworkReadout
from backend.methods.ngram_readouts import CodedGrams, GramReadout, fit_grams
from backend.methods.ngrams import SoftmaxSettings
from backend.protocol import CLEAN, FOLDS, balance_rows
from backend.proxies.encoding import MAX_TOKENS

Ints = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float32]
Load = Callable[[Ints], Floats]
"""Rows to their coordinates, (m, D), float32."""
Fitted = NetworkReadout | LinearReadout | FamilyReadout
"""A model of fingerprints that is fitted and kept by itself."""
LENGTHS: Mapping[str, int] = {CLEAN: MAX_TOKENS, "t128": 128, "t64": 64, "t32": 32}
"""Conditions, and the response tokens that they leave."""
TRAINED = (CLEAN, "t64", "t32")
"""Lengths of training rows; 128 tokens are so near to a whole response that they would bring nothing."""
CHUNK = 2500
LEAST = -60_000.0
"""Scores are kept in half precision; a discriminant of a handful of rows is surer than that can hold."""


def loader(arrays: Sequence[npt.NDArray[np.floating]]) -> tuple[Load, int]:
    """Rows of several arrays side by side, read when they are asked for, and their width."""
    edges = np.cumsum([0] + [array.shape[1] for array in arrays])

    def load(some: Ints) -> Floats:
        out = np.empty((len(some), edges[-1]), dtype=np.float32)
        for array, low, high in zip(arrays, edges, edges[1:], strict=False):
            out[:, low:high] = array[some]
        return out

    return load, int(edges[-1])


def fold_moments(load: Load, width: int, labels: Ints, folds: Ints, classes: int) -> list[Moments]:
    """Moments of every fold, in one pass.

    Parameters
    ----------
    load : callable
    width : int
        Coordinates, ``D``.
    labels, folds : ndarray of shape (n,)
    classes : int
    """

    def blocks(fold: int) -> Iterator[tuple[Floats, Ints]]:
        for rows in _chunks(np.flatnonzero(folds == fold)):
            yield load(rows), labels[rows]

    return [moments_of(blocks(fold), classes, width) for fold in range(FOLDS)]


def fit_discriminants(moments: Sequence[Moments], shrinkage: float, models: Sequence[int]) -> dict[int, LinearReadout]:
    """Discriminants of the asked models, from the moments of every fold."""
    return {
        model: fit_discriminant(merged([moments[fold] for fold in training_folds(model)]), shrinkage)
        for model in models
    }


def score_discriminants(
    load: Load, folds: Ints, bank: Mapping[str, Mapping[int, LinearReadout]], out: Mapping[str, npt.NDArray[Any]]
) -> None:
    """Score every row by the three models that have not seen its prompt.

    Parameters
    ----------
    load : callable
        Rows as they look under the condition that is scored.
    folds : ndarray of shape (n,)
    bank : mapping of name to mapping of model to LinearReadout
    out : mapping of name to ndarray of shape (SLOTS, n, C)
        Filled in.
    """
    for fold in range(FOLDS):
        heads = [(name, slot, bank[name][model]) for name in bank for slot, model in enumerate(models_of(fold))]
        for rows in _chunks(np.flatnonzero(folds == fold)):
            for (name, slot, _), values in zip(heads, _all_scores(load(rows), [h for *_, h in heads]), strict=True):
                out[name][slot, rows] = values


def score_transfer(
    load: Load, rows: int, bank: Mapping[str, Mapping[int, LinearReadout]], out: Mapping[str, npt.NDArray[Any]]
) -> None:
    """Score rows of another domain by all outer models, into arrays of shape (FOLDS, n, C)."""
    heads = [(name, fold, bank[name][fold]) for name in bank for fold in range(FOLDS)]
    for some in _chunks(np.arange(rows)):
        for (name, fold, _), values in zip(heads, _all_scores(load(some), [h for *_, h in heads]), strict=True):
            out[name][fold, some] = values


def fit_gram_models(
    counts: Sequence[Any], labels: Ints, folds: Ints, classes: int, settings: SoftmaxSettings, models: Sequence[int]
) -> Iterator[tuple[int, GramReadout]]:
    """Fit the asked n-gram models on the rows of their training folds, as many of every source, one after the other.

    Parameters
    ----------
    counts : sequence of scipy.sparse.csr_matrix of shape (n, buckets)
        Of whole responses, and of copies that are cut short.
    labels, folds : ndarray of shape (n,)
    classes : int
    settings : SoftmaxSettings
    models : sequence of int
    """
    for model in models:
        rows = np.flatnonzero(np.isin(folds, training_folds(model)))
        rows = rows[balance_rows(labels[rows])]
        copies = sparse.vstack([part[rows] for part in counts], format="csr")
        yield model, fit_grams(copies, np.tile(labels[rows], len(counts)), classes, settings, seed=model)


def score_grams(counts: Any, folds: Ints, model: int, readout: GramReadout | CodedGrams, out: npt.NDArray[Any]) -> None:
    """Score the rows that a model may score into an array of shape (SLOTS, n, C)."""
    for fold in MODELS[model]:
        rows = np.flatnonzero(folds == fold)
        out[models_of(fold).index(model), rows] = readout.log_posterior(counts[rows])


def score_alone(load: Load, folds: Ints, model: int, readout: Fitted) -> dict[int, Floats]:
    """Score the rows that a model may score: slot to log-posteriors of the rows of its fold, in their order."""
    out = {}
    for fold in sorted(MODELS[model]):
        rows = np.flatnonzero(folds == fold)
        out[models_of(fold).index(model)] = np.concatenate(
            [readout.log_posterior(load(some)) for some in _chunks(rows)]
        )
    return out


def scores_shape(rows: int, classes: int) -> tuple[int, int, int]:
    """Shape of what a member keeps for one condition."""
    return SLOTS, rows, classes


def _chunks(rows: Ints) -> Iterator[Ints]:
    for low in range(0, len(rows), CHUNK):
        yield rows[low : low + CHUNK]


def _all_scores(rows: Floats, heads: Sequence[LinearReadout]) -> Iterator[Floats]:
    """Log-posteriors of every head; the rows, which take most of the room, are moved to each centre by a product."""
    for head in heads:
        values = rows @ head.weight
        values += head.bias - head.centre @ head.weight
        values -= values.max(1, keepdims=True)
        values -= np.log(np.exp(values).sum(1, keepdims=True))
        yield np.maximum(values, LEAST)
