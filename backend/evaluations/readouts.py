"""Fused readouts under the paper's folds: who is fitted without what, and how members become one posterior.

The paper selects a block on four inner folds (paper, Proxy Readers and Layer Selection). Here the inner folds weigh the
members of a stack. A model that saw neither of two folds validates each of them for the other one; each outer fold
takes the fold before and the fold after it for this, so that five such models stand beside the five outer ones and
every row is scored three times. Nothing that is fitted for an outer fold has seen a row of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from backend.methods.stack import Stack, fit_stack
from backend.protocol import FOLDS

Ints = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float32]

MODELS: tuple[frozenset[int], ...] = (
    *(frozenset({fold}) for fold in range(FOLDS)),
    *(frozenset({fold, (fold + 1) % FOLDS}) for fold in range(FOLDS)),
)
"""Folds that every model has not seen: the outer models, then the inner ones."""
SLOTS = 3
"""Scores of a row: by its outer model, by the inner model shared with the fold before, and by that with the next."""


def models_of(fold: int) -> tuple[int, int, int]:
    """Models that may score the rows of a fold, slot by slot."""
    return fold, FOLDS + (fold - 1) % FOLDS, FOLDS + fold


def training_folds(model: int) -> list[int]:
    """Folds that a model is fitted on."""
    return [fold for fold in range(FOLDS) if fold not in MODELS[model]]


def validation(outer: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Slot and fold of the rows that validate for an outer fold: those of the next fold and of the one before."""
    return (1, (outer + 1) % FOLDS), (2, (outer - 1) % FOLDS)


@dataclass(frozen=True)
class Fused:
    """What a stack of members says."""

    posteriors: dict[str, Floats]  # (n, C), float32; out-of-fold log-posteriors under every condition
    stacks: dict[int, Stack]  # Of every outer fold


Scores = Mapping[str, Mapping[str, npt.NDArray[np.floating]]]
"""Condition, then member: log-posteriors of shape (SLOTS, n, C)."""


def fuse(
    scores: Scores,
    labels: Ints,
    folds: Ints,
    cells: Mapping[str, Ints],
    cell_count: int,
    members: Sequence[str],
    validated: Callable[[int, dict[str, Floats]], None] | None = None,
) -> Fused:
    """Weigh members on validation rows, and fuse them on the rows of every outer fold.

    scores : condition to mapping of member to (SLOTS, n, C).
    labels, folds : (n,).
    cells : condition to (n,); cell of every row as it looks under that condition.
    members : Those that are used.
    validated : Called for every outer fold with the fused scores of its validation rows under every condition, (n, C)
        and NaN elsewhere; what is calibrated for that fold is calibrated on them.
    """
    conditions = list(scores)
    shape = scores[conditions[0]][members[0]].shape[1:]
    posteriors = {condition: np.empty(shape, dtype=np.float32) for condition in conditions}
    stacks = {}
    for outer in range(FOLDS):
        parts = [(slot, np.flatnonzero(folds == fold)) for slot, fold in validation(outer)]
        truth = np.concatenate([labels[rows] for _ in conditions for _, rows in parts])
        seen = np.concatenate([cells[condition][rows] for condition in conditions for _, rows in parts])
        columns = [
            np.concatenate(
                [_part(scores[condition][member], slot, rows) for condition in conditions for slot, rows in parts]
            )
            for member in members
        ]
        stacks[outer] = fit_stack(columns, truth, seen, cell_count)
        test, held_out = np.flatnonzero(folds == outer), {}
        for condition in conditions:
            given = scores[condition]
            posteriors[condition][test] = stacks[outer].log_posterior(
                [_part(given[member], 0, test) for member in members], cells[condition][test]
            )
            if validated is None:
                continue
            inner = np.full(shape, np.nan, dtype=np.float32)
            for slot, rows in parts:
                inner[rows] = stacks[outer].log_posterior(
                    [_part(given[member], slot, rows) for member in members], cells[condition][rows]
                )
            held_out[condition] = inner
        if validated:
            validated(outer, held_out)
    return Fused(posteriors, stacks)


def transfer(
    scores: Mapping[str, npt.NDArray[np.floating]], stacks: Mapping[int, Stack], cells: Ints, members: Sequence[str]
) -> Floats:
    """Fused log-posteriors of another domain, by every fold model.

    scores : member to (FOLDS, n, C); by the outer models.
    cells : (n,).
    Returns (FOLDS, n, C), float32.
    """
    fused = [
        stacks[fold].log_posterior([_part(scores[member], fold, slice(None)) for member in members], cells)
        for fold in range(FOLDS)
    ]
    return np.stack(fused)


def _part(array: npt.NDArray[np.floating], slot: int, rows: Ints | slice) -> Floats:
    return np.asarray(array[slot, rows], dtype=np.float32)
