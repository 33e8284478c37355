"""The bank of discriminants that live attribution serves, fitted and scored under the paper's folds (see readouts).

One member for whole responses and one for short ones, weighed a cell at a time on validation rows of the inner models,
as any stack is; word n-grams may be a third. What is served for a fold is brought to a basis in a few bits; the scores
that are measured, and that calibrate, are those of this served form, each row scored by the bank that has not seen its
prompt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax

from backend.evaluations.readout_members import (
    Load,
    fit_discriminants,
    fold_moments,
    score_discriminants,
    scores_shape,
)
from backend.evaluations.readouts import MODELS, fuse, training_folds
from backend.protocol import FOLDS
from backend.readouts.bank import DiscriminantBank, make_bank
from backend.readouts.discriminant import LinearReadout
from backend.readouts.moments import Moments, merged
from backend.readouts.stack import CELLS, Stack

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
CHUNK = 2500
WORDS = "words"
MEMBERS: Mapping[str, tuple[str, ...]] = {"whole": ("clean",), "short": ("t64", "t32")}
"""What every member is fitted on: responses as they are, and copies of them that are cut short."""


@dataclass(frozen=True)
class ServedBanks:
    """Banks of all folds, and what they say.

    Attributes
    ----------
    banks : dict of int to DiscriminantBank
        By the fold that each has not seen.
    exact, served : dict of str to ndarray of shape (n, C), float32
        Out-of-fold log-posteriors under every condition: of the exact members, and of what is served.
    shares : dict of int to ndarray of shape (cells,)
        What the n-grams count beside the bank of every fold; empty without them.
    """

    banks: dict[int, DiscriminantBank]
    exact: dict[str, Floats]
    served: dict[str, Floats]
    shares: dict[int, Doubles]


def serve_banks(
    loads: Mapping[str, Load],
    width: int,
    labels: Ints,
    folds: Ints,
    classes: int,
    cells: Mapping[str, Ints],
    shrinkage: float = 0.1,
    validated: Callable[[int, dict[str, Floats]], None] | None = None,
    words: Mapping[str, npt.NDArray[np.floating]] | None = None,
) -> ServedBanks:
    """Fit, weigh, code and score the banks of all folds.

    Parameters
    ----------
    loads : mapping of condition to callable
        Rows as they look under every condition; 'clean' at least. A member without any of its conditions is left out.
    width : int
        Coordinates, ``D``.
    labels, folds : ndarray of shape (n,)
    classes : int
    cells : mapping of condition to ndarray of shape (n,)
    shrinkage : float
    validated : callable, optional
        See :func:`backend.evaluations.readouts.fuse`.
    words : mapping of condition to ndarray of shape (SLOTS, n, C), optional
        Log-posteriors of n-grams, as they are served, to be weighed beside the discriminants.

    Returns
    -------
    ServedBanks
    """
    fits, seen = fit_banks(loads, width, labels, folds, classes, shrinkage)
    scores: dict[str, dict[str, npt.NDArray[np.float16]]] = {}
    for condition, load in loads.items():
        scores[condition] = {name: np.empty(scores_shape(len(labels), classes), np.float16) for name in fits}
        score_discriminants(load, folds, fits, scores[condition])
    given = scores if words is None else {c: {**scores[c], WORDS: words[c]} for c in scores}
    members = [*fits, *([] if words is None else [WORDS])]
    fused = fuse(given, labels, folds, cells, CELLS, members, validated)
    weights = {fold: fused.stacks[fold].weights for fold in range(FOLDS)}
    banks = {
        fold: make_bank(
            [fits[name][fold] for name in fits],
            [seen[name][fold] for name in fits],
            Stack(weights[fold][:, : len(fits)]),
        )
        for fold in range(FOLDS)
    }
    shares = {} if words is None else {fold: weights[fold][:, len(fits)] for fold in range(FOLDS)}
    served = {condition: bank_posteriors(load, banks, folds, cells[condition]) for condition, load in loads.items()}
    for condition, part in (words or {}).items():
        served[condition] = beside(served[condition], part[0], shares, folds, cells[condition])
    return ServedBanks(banks, fused.posteriors, served, shares)


def fit_banks(
    loads: Mapping[str, Load], width: int, labels: Ints, folds: Ints, classes: int, shrinkage: float = 0.1
) -> tuple[dict[str, dict[int, LinearReadout]], dict[str, list[Moments]]]:
    """All models of both members, and the moments that every outer fold's were fitted to; see :func:`serve_banks`."""
    fits: dict[str, dict[int, LinearReadout]] = {}
    seen: dict[str, list[Moments]] = {}
    for name, lengths in MEMBERS.items():
        each = [fold_moments(loads[c], width, labels, folds, classes) for c in lengths if c in loads]
        if not each:
            continue
        moments = [merged(parts) for parts in zip(*each, strict=True)]
        del each
        fits[name] = fit_discriminants(moments, shrinkage, range(len(MODELS)))
        seen[name] = [merged([moments[other] for other in training_folds(fold)]) for fold in range(FOLDS)]
        del moments
    return fits, seen


def beside(
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
        inside = np.flatnonzero(folds == fold)
        for low in range(0, len(inside), CHUNK):
            rows = inside[low : low + CHUNK]
            out[rows] = bank.log_posterior(load(rows), cells[rows])
    return out
