"""The bank of discriminants that live attribution serves, fitted and scored under the paper's folds (see readouts).

One member for whole responses and one for short ones, weighed a cell at a time on validation rows of the inner models,
as any stack is; word n-grams may be a third. What is served for a fold is brought to a basis in a few bits; the scores
that are measured, and that calibrate, are those of this served form, each row scored by the bank that has not seen its
prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax

from backend.evaluations.readouts import (
    MODELS,
    TRAINED,
    Load,
    chunks,
    fit_discriminants,
    fit_gram_models,
    fold_moments,
    fuse,
    score_discriminants,
    score_grams,
    scores_shape,
    training_folds,
)
from backend.methods.discriminant import DiscriminantBank, Moments, make_bank, merged
from backend.methods.ngrams import CodedGrams, SoftmaxSettings, coded
from backend.methods.probe import LinearReadout
from backend.methods.stack import CELLS, Stack
from backend.protocol import FOLDS

Ints = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
# Chosen on rows of fold 1 by models that saw folds 2 to 4, next to the discriminants, 100 sources: 60,000, 20,000 and
# 10,000 buckets give .487, .486 and .486 at K = 1, .851, .839 and .843 at K = 10; one byte a weight changes none of it.
SETTINGS = SoftmaxSettings(features=10_000)
SHRINKAGE = 0.1  # Share of the diagonal in the covariance of discriminants
WORDS = "words"
MEMBERS: Mapping[str, tuple[str, ...]] = {"whole": ("clean",), "short": ("t64", "t32")}
"""What every member is fitted on: responses as they are, and copies of them that are cut short."""


def fit_words(
    counts: Mapping[str, Any],
    labels: Ints,
    folds: Ints,
    classes: int,
    models: Collection[int] = range(len(MODELS)),
    settings: SoftmaxSettings = SETTINGS,
) -> Iterator[tuple[int, CodedGrams]]:
    """Fit some of the models on responses of all lengths, one after the other.

    counts : condition to sparse (n, buckets), 'clean' at least; labels, folds : (n,).
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


@dataclass(frozen=True)
class ServedBanks:
    """Banks of all folds, and their scores.

    exact, served : (n, C), float32, out-of-fold log-posteriors under every condition: of the exact members, and of what
        is served.
    shares : (cells,), weights of the n-grams next to the bank of every fold; empty without them.
    """

    banks: dict[int, DiscriminantBank]  # By the fold that each has not seen
    exact: dict[str, Floats]
    served: dict[str, Floats]
    shares: dict[int, Doubles]


@dataclass(frozen=True)
class BankMembers:
    """Exact discriminants of all models, and their scores.

    scores : condition to mapping of member to (SLOTS, n, C), float16.
    """

    moments: Mapping[str, Sequence[Moments]]
    fits: Mapping[str, Mapping[int, LinearReadout]]
    scores: Mapping[str, Mapping[str, npt.NDArray[np.float16]]]


def serve_banks(
    loads: Mapping[str, Load],
    width: int,
    labels: Ints,
    folds: Ints,
    classes: int,
    cells: Mapping[str, Ints],
    shrinkage: float = SHRINKAGE,
    validated: Callable[[int, dict[str, Floats]], None] | None = None,
    words: Mapping[str, npt.NDArray[np.floating]] | None = None,
    bank_members: BankMembers | None = None,
) -> ServedBanks:
    """Fit, weigh, code and score the banks of all folds.

    loads : Rows as they look under every condition; 'clean' at least. A member without any of its conditions is left
        out.
    width : Coordinates, ``D``; labels, folds : (n,); cells : condition to (n,).
    validated : See :func:`backend.evaluations.readouts.fuse`.
    words : condition to (SLOTS, n, C); log-posteriors of n-grams, as they are served, to be weighed with the
        discriminants.
    bank_members : Of these rows, in place of fitting them; the shrinkage is theirs then.
    """
    members = bank_members or fit_bank_members(loads, width, labels, folds, classes, shrinkage)
    fits, scores = members.fits, members.scores
    given = scores if words is None else {c: {**scores[c], WORDS: words[c]} for c in scores}
    names = [*fits, *([] if words is None else [WORDS])]
    fused = fuse(given, labels, folds, cells, CELLS, names, validated)
    weights = {fold: fused.stacks[fold].weights for fold in range(FOLDS)}
    banks = {
        fold: make_bank(
            [fits[name][fold] for name in fits],
            [merged([members.moments[name][other] for other in training_folds(fold)]) for name in fits],
            Stack(weights[fold][:, : len(fits)]),
        )
        for fold in range(FOLDS)
    }
    shares = {} if words is None else {fold: weights[fold][:, len(fits)] for fold in range(FOLDS)}
    served = {condition: bank_posteriors(load, banks, folds, cells[condition]) for condition, load in loads.items()}
    for condition, part in (words or {}).items():
        served[condition] = add_ngrams(served[condition], part[0], shares, folds, cells[condition])
    return ServedBanks(banks, fused.posteriors, served, shares)


def member_moments(
    loads: Mapping[str, Load], width: int, labels: Ints, folds: Ints, classes: int
) -> dict[str, list[Moments]]:
    """Moments that the members are fitted to, fold by fold; see :func:`serve_banks`."""
    moments = {}
    for name, lengths in MEMBERS.items():
        each = [fold_moments(loads[c], width, labels, folds, classes) for c in lengths if c in loads]
        if each:
            moments[name] = [merged(parts) for parts in zip(*each, strict=True)]
    return moments


def fit_banks(
    moments: Mapping[str, Sequence[Moments]], shrinkage: float = SHRINKAGE
) -> dict[str, dict[int, LinearReadout]]:
    """All models of the members, from :func:`member_moments`."""
    return {name: fit_discriminants(parts, shrinkage, range(len(MODELS))) for name, parts in moments.items()}


def fit_bank_members(
    loads: Mapping[str, Load],
    width: int,
    labels: Ints,
    folds: Ints,
    classes: int,
    shrinkage: float = SHRINKAGE,
    moments: Mapping[str, Sequence[Moments]] | None = None,
) -> BankMembers:
    """Fit the members and score every row under every condition; see :func:`serve_banks`."""
    moments = moments or member_moments(loads, width, labels, folds, classes)
    fits = fit_banks(moments, shrinkage)
    scores: dict[str, dict[str, npt.NDArray[np.float16]]] = {}
    for condition, load in loads.items():
        scores[condition] = {name: np.empty(scores_shape(len(labels), classes), np.float16) for name in fits}
        score_discriminants(load, folds, fits, scores[condition])
    return BankMembers(moments, fits, scores)


def add_ngrams(
    states: Floats, words: npt.NDArray[np.floating], shares: Mapping[int, Doubles], folds: Ints, cells: Ints
) -> Floats:
    """Log-posteriors (n, C) of banks and of n-grams together, each row with the shares of its fold and cell."""
    share = np.stack([shares[fold] for fold in range(len(shares))])[folds, cells].astype(np.float32)
    out: Floats = log_softmax(states + share[:, None] * words.astype(np.float32), axis=1)
    return out


def bank_posteriors(load: Load, banks: Mapping[int, DiscriminantBank], folds: Ints, cells: Ints) -> Floats:
    """Log-posteriors (n, C) of rows, each by the bank that has not seen its fold."""
    out = np.empty((len(folds), banks[0].bias.shape[1]), dtype=np.float32)
    for fold, bank in banks.items():
        for rows in chunks(np.flatnonzero(folds == fold)):
            out[rows] = bank.log_posterior(load(rows), cells[rows])
    return out
