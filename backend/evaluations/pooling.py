"""Pooling of sampled positions: how many, which, and weighted how (paper, Development-Stage Aggregation Alternatives).

A response is reduced to the weighted mean of states at relative positions, one vector of dimension d: 16, 32 or 64
uniform positions, every fourth token from the response end (all of them, or the last 32, which matches 32 uniform
positions), and 16 positions with Fisher weights. The paper gives neither the grid nor the Fisher score; here the grid
holds the first and the last token, and a position's score is its one-way ANOVA F averaged over coordinates.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from backend.evaluations.matched import Encode, Floats, Represent, Rows, fixed
from backend.spectral import POSITION_POOLS, POSITIONS

Doubles = npt.NDArray[np.float64]
FISHER_SHARE: Mapping[str, float] = {"positions-fisher": 1.0, "positions-fisher25": 0.25}
"""Share of the Fisher weights; the rest is uniform."""


def fisher_weights(rows: Rows, labels: npt.NDArray[np.integer]) -> Doubles:
    """Weights of 16 relative positions by how well they separate the sources.

    rows : (n, 20 * d), training rows as the reader stores them: 16 states, then means.
    labels : (n,), source of every row; at least two sources.
    Returns (16,), float64, mean over coordinates of the ANOVA F between sources, divided by its sum over positions. A
    coordinate that does not vary within sources counts as 0.
    """
    d = rows.shape[1] // (POSITIONS + len(POSITION_POOLS))
    order = np.argsort(labels, kind="stable")
    present, first, count = np.unique(labels[order], return_index=True, return_counts=True)
    scores = np.empty(POSITIONS)
    for position in range(POSITIONS):
        states = rows[:, position * d : (position + 1) * d][order].astype(np.float64)
        states -= states.mean(0)
        means = np.add.reduceat(states, first, axis=0) / count[:, None]
        between = (count[:, None] * means**2).sum(0)
        within = np.maximum((states**2).sum(0) - between, 0)
        ratio = np.divide(between, within, out=np.zeros(d), where=within > 1e-12 * between)
        scores[position] = ratio.mean() * (len(labels) - len(present)) / (len(present) - 1)
    weights: Doubles = scores / scores.sum()
    return weights


def weighted_mean(rows: Rows, weights: npt.NDArray[np.floating]) -> Floats:
    """Weighted mean of the 16 stored states, (n, 20 * d) to (n, d)."""
    d = rows.shape[1] // (POSITIONS + len(POSITION_POOLS))
    out = np.zeros((len(rows), d), dtype=np.float32)
    for position, weight in enumerate(weights):
        out += np.float32(weight) * rows[:, position * d : (position + 1) * d]
    return out


def poolings() -> dict[str, Represent]:
    """Every position pooling by method id, for rows of shape (n, 20 * d) as the reader stores them."""
    uniform = np.full(POSITIONS, 1 / POSITIONS)

    def stored_mean(number: int) -> Encode:
        def encode(rows: Rows) -> Floats:
            vectors = rows.reshape(len(rows), POSITIONS + len(POSITION_POOLS), -1)
            out: Floats = vectors[:, POSITIONS + number].astype(np.float32)
            return out

        return encode

    def fisher(share: float) -> Represent:
        def represent(rows: Rows, labels: npt.NDArray[np.integer]) -> Encode:
            return mean_with(share * fisher_weights(rows, labels) + (1 - share) * uniform)

        return represent

    def mean_with(weights: Doubles) -> Encode:
        return lambda rows: weighted_mean(rows, weights)

    return {
        f"positions-{POSITIONS}": fixed(mean_with(uniform)),
        **{f"positions-{name}": fixed(stored_mean(number)) for number, name in enumerate(POSITION_POOLS)},
        **{method: fisher(share) for method, share in FISHER_SHARE.items()},
    }
