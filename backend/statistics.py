"""Uncertainty and tests that the experiments share (paper, Strictly Matched Temporal Controls and Bench-A transfer).

Predictions that belong together (one outer fold and source, or one split) form a cluster. The bootstrap draws clusters
with replacement, the paired test flips the sign of whole clusters; all columns share the same draws.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from backend.parallel import PATIENCE, each

REPLICATES = 20_000
FLIPS = 50_000
SEED = 42
LEVEL = 0.95
CHUNK = 2_000  # draws that are in memory at a time; the random stream does not depend on it

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def holm(p_values: npt.ArrayLike) -> Doubles:
    """Holm's step-down correction (m,) of a family of tests, in the order given. Raises ValueError outside 0 .. 1."""
    raw = np.asarray(p_values, dtype=np.float64)
    if raw.ndim != 1 or not ((raw >= 0) & (raw <= 1)).all():
        raise ValueError("p_values must be one-dimensional and lie in 0..1")
    order = np.argsort(raw, kind="stable")
    stepped = np.maximum.accumulate(raw[order] * np.arange(len(raw), 0, -1))
    out = np.empty_like(raw)
    out[order] = np.minimum(stepped, 1.0)
    return out


def cluster_bootstrap(
    sums: npt.ArrayLike, sizes: npt.ArrayLike, replicates: int = REPLICATES, seed: int = SEED, level: float = LEVEL
) -> tuple[Doubles, Doubles]:
    """Percentile intervals (m,) of ``sum(sums) / sum(sizes)`` when whole clusters are drawn with replacement.

    sums : (n, m) sum over every cluster, e.g. of right answers, or of their difference; a column a comparison.
    sizes : (n, m) predictions of every cluster.
    """
    top, bottom = _columns(sums), _columns(sizes)
    if top.shape != bottom.shape:
        raise ValueError(f"sums {top.shape} and sizes {bottom.shape} must have the same shape")
    n, both = len(top), np.concatenate([top, bottom], axis=1)
    rng = np.random.default_rng(seed)  # one stream, whoever adds up
    draws = ((rng.integers(0, n, size=(count, n)), both) for count in _chunks(replicates))
    ratios = np.concatenate(
        [totals[:, : top.shape[1]] / totals[:, top.shape[1] :] for totals in each(_totals, draws, PATIENCE)]
    )
    low, high = np.quantile(ratios, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low, high


def sign_flip_p_values(differences: npt.ArrayLike, flips: int = FLIPS, seed: int = SEED) -> Doubles:
    """Two-sided p values (m,) of paired differences when the sign of whole clusters is flipped at random.

    differences : (n, m) sum over every cluster of the difference between two readers; a column a comparison.
    Returns ``(1 + number of flips at least as extreme) / (1 + flips)``, so never 0.
    """
    table = _columns(differences)
    # Ties are counted as extreme; sums of the same numbers in another order may differ in the last bits.
    extreme = np.abs(table.sum(0)) - 1e-12 * np.abs(table).sum(0)
    rng = np.random.default_rng(seed)
    steps = ((rng.integers(0, 2, size=(count, len(table))), table, extreme) for count in _chunks(flips))
    beyond = np.sum(list(each(_as_extreme, steps, PATIENCE)), axis=0)
    p_values: Doubles = (1 + beyond) / (1 + flips)
    return p_values


def _chunks(total: int) -> Iterator[int]:
    return (min(CHUNK, total - start) for start in range(0, total, CHUNK))


def _totals(drawn: Ints, both: Doubles) -> Doubles:
    """Sums (m, columns) over the clusters that are drawn, (m, n)."""
    count, n = drawn.shape
    places = drawn + np.arange(count)[:, None] * n
    times = np.bincount(places.ravel(), minlength=count * n).reshape(count, n)
    totals: Doubles = times.astype(np.float64) @ both
    return totals


def _as_extreme(flips: Ints, table: Doubles, extreme: Doubles) -> Ints:
    """Flips (m, n) of 0 and 1 that give sums at least as extreme, by comparison."""
    beyond: Ints = (np.abs((flips * 2.0 - 1.0) @ table) >= extreme).sum(0)
    return beyond


def _columns(values: npt.ArrayLike) -> Doubles:
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or not len(table):
        raise ValueError(f"need a table of shape (clusters, comparisons) with a cluster at least, got {table.shape}")
    return table
