"""Prompt folds, inner folds, and groups of a budget (paper, Prompt-Grouped Evaluation).

All responses to a prompt stay in one fold, and a group never mixes folds. The random streams are those of the paper's
release, so that the same records meet in the same groups.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

CLEAN = "clean"  # condition of whole responses
BACKGROUND = "background"  # condition of scores that unlabelled responses balanced

READER_PAPER = "reader-paper"  # the paper's own method, to which every other is compared

BUDGETS = (1, 5, 10, 20, 50, 100)
FOLDS = 5
SPLIT_SEED = 42
GROUPING_SEEDS = (42, 43, 44)

Ints = npt.NDArray[np.intp]


def fold_of_prompts(prompt_ids: Sequence[str], folds: int = FOLDS, seed: int = SPLIT_SEED) -> Ints:
    """Fold (P,) of every prompt; ValueError unless ids ascend, are unique, and are as many as the folds."""
    ids = list(prompt_ids)
    if ids != sorted(set(ids)):
        raise ValueError("prompt_ids must be ascending and unique")
    if len(ids) < folds:
        raise ValueError(f"{len(ids)} prompts cannot fill {folds} folds")
    shuffled = np.array(ids, dtype=object)
    np.random.default_rng(seed).shuffle(shuffled)
    place = {prompt: i for i, prompt in enumerate(ids)}
    out = np.empty(len(ids), dtype=np.intp)
    for fold, members in enumerate(np.array_split(shuffled, folds)):
        out[[place[m] for m in members]] = fold
    return out


def held_out_pairs(folds: int = FOLDS) -> list[tuple[int, int]]:
    """Pairs of folds that a probe of the nested selection has not seen; a fit serves both orders of outer and inner."""
    return list(combinations(range(folds), 2))


def budget_groups(rows_by_source: Ints, budget: int, seed: int, fold: int | None) -> tuple[Ints, Ints]:
    """Disjoint groups (G, K) of ``budget`` traces of one source, and its number (G,).

    rows_by_source : (S, m), in roster order, prompts ascending; what does not fill a group is dropped.
    fold : outer fold, which enters the random stream; None for groupings over all folds at once.
    """
    rng = np.random.default_rng(seed + 100 + 7919 * budget + (0 if fold is None else 31 * fold))
    sources, m = rows_by_source.shape
    full = m // budget
    groups = np.empty((sources, full, budget), dtype=np.intp)
    for source in range(sources):
        rows = rows_by_source[source].copy()
        rng.shuffle(rows)
        groups[source] = rows[: full * budget].reshape(full, budget)
    return groups.reshape(-1, budget), np.repeat(np.arange(sources), full)


def grid_rows(sources: int, prompts: int, needed: npt.NDArray[np.bool_]) -> Ints:
    """Rows (S, needed.sum()) of the prompts ``needed`` (P,) for every source; row = source * prompts + prompt."""
    rows: Ints = np.arange(sources)[:, None] * prompts + np.flatnonzero(needed)
    return rows


def balance_rows(labels: Ints) -> Ints:
    """Rows with as many of every source, ascending; those of the smaller ones are repeated in turn."""
    most = int(np.bincount(labels).max())
    return np.sort(np.concatenate([np.resize(np.flatnonzero(labels == c), most) for c in np.unique(labels)]))
