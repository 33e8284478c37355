"""Family purity: do the nearest sources come from the same provider family, and more often than by chance?

Section "Model-Signature Geometry" of the paper: shares of same-family neighbours among all sources, averaged over
families with at least five members, against permuted labels, with a bootstrap interval and Holm's correction.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.geometry.signatures import Float, Index
from backend.statistics import holm

PURITY_KS = (1, 3, 5, 10)
HOLM_KS = (1, 5)  # The neighbourhoods that the paper tests; the others describe
MIN_MEMBERS = 5
_ROUND = 250  # permutations in memory at a time


@dataclass(frozen=True)
class PuritySettings:
    """How purity is tested.

    Shuffling 'eligible' permutes the labels of the averaged families among their own sources (the paper's text), 'all'
    permutes the labels of all sources (the paper's released code).
    """

    min_members: int = MIN_MEMBERS  # Families with fewer sources are searched, but not averaged over
    permutations: int = 10_000
    bootstraps: int = 2_000
    seed: int = 42
    shuffle: Literal["eligible", "all"] = "eligible"


def eligible_sources(families: Sequence[str], min_members: int = MIN_MEMBERS) -> npt.NDArray[np.bool_]:
    """Mark the sources (n,) of families with at least ``min_members`` members."""
    _, codes, counts = np.unique(np.asarray(families), return_inverse=True, return_counts=True)
    return counts[codes] >= min_members


def random_expectation(families: Sequence[str], min_members: int = MIN_MEMBERS) -> float:
    """Purity at every k when the order of neighbours is unrelated to families; NaN without an eligible source."""
    names = np.asarray(families)
    _, codes, counts = np.unique(names, return_inverse=True, return_counts=True)
    members = counts[codes][eligible_sources(families, min_members)]
    return float((members - 1).mean() / (len(names) - 1)) if len(members) else float("nan")


def source_purity(order: Index, families: Sequence[str], ks: Sequence[int] = PURITY_KS) -> Float:
    """Share (n, len(ks)) of same-family sources among the k nearest; ``order`` as of ``neighbor_order``."""
    _check_ks(order, ks)
    _, codes = np.unique(np.asarray(families), return_inverse=True)
    hits = (codes[order[:, : max(ks)]] == codes[:, None]).cumsum(axis=1)
    shares: Float = hits[:, np.asarray(ks) - 1] / np.asarray(ks)
    return shares


def mean_purity(order: Index, families: Sequence[str], k: int, min_members: int = MIN_MEMBERS) -> float:
    """Purity@k averaged over the sources of large enough families; NaN without any."""
    eligible = eligible_sources(families, min_members)
    return float(source_purity(order, families, [k])[eligible, 0].mean()) if eligible.any() else float("nan")


def permuted_hits(
    order: Index, families: Sequence[str], ks: Sequence[int] = PURITY_KS, settings: PuritySettings | None = None
) -> npt.NDArray[np.int64]:
    """Same-family neighbours (permutations, len(ks)) under permuted labels, whole numbers over eligible sources."""
    settings = settings or PuritySettings()
    _check_ks(order, ks)
    columns = np.asarray(ks) - 1
    _, codes, counts = np.unique(np.asarray(families), return_inverse=True, return_counts=True)
    codes = codes.astype(np.int16)
    large = counts >= settings.min_members
    moving = np.flatnonzero(large[codes]) if settings.shuffle == "eligible" else np.arange(len(codes))
    # Permuting eligible labels leaves everyone else without a family that counts.
    near = order[moving, : max(ks)]
    rng = np.random.default_rng(settings.seed)
    totals = np.empty((settings.permutations, len(ks)), dtype=np.int64)
    for low in range(0, settings.permutations, _ROUND):
        size = min(_ROUND, settings.permutations - low)
        labels = np.tile(codes, (size, 1))
        labels[:, moving] = rng.permuted(labels[:, moving], axis=1)
        own = labels[:, moving]
        same = (labels[:, near] == own[:, :, None]) & large[own][:, :, None]
        totals[low : low + size] = same.sum(axis=1).cumsum(axis=1)[:, columns]
    return totals


def family_purity(
    order: Index, families: Sequence[str], ks: Sequence[int] = PURITY_KS, settings: PuritySettings | None = None
) -> pd.DataFrame:
    """Family purity with its chance level, permutation p-value and bootstrap interval; ks above n - 1 are skipped.

    Returns the table ``family_purity``: k, purity, expectation, p_value (one-sided, at least 1 / (permutations + 1)),
    low, high (95 %, percentile bootstrap over sources), sources, families. Empty when no family is large enough.
    """
    settings = settings or PuritySettings()
    columns = ["k", "purity", "expectation", "p_value", "low", "high", "sources", "families"]
    sizes = [k for k in ks if k < len(order)]
    eligible = eligible_sources(families, settings.min_members)
    if not sizes or not eligible.any():
        return pd.DataFrame(columns=columns)
    shares = source_purity(order, families, sizes)[eligible]
    observed = np.rint(shares * sizes).astype(np.int64).sum(axis=0)
    as_high = (permuted_hits(order, families, sizes, settings) >= observed).sum(axis=0)
    low, high = bootstrap_interval(shares, settings.bootstraps, settings.seed)
    return pd.DataFrame(
        {
            "k": sizes,
            "purity": shares.mean(axis=0),
            "expectation": random_expectation(families, settings.min_members),
            "p_value": (as_high + 1) / (settings.permutations + 1),
            "low": low,
            "high": high,
            "sources": int(eligible.sum()),
            "families": len(set(np.asarray(families)[eligible])),
        },
        columns=columns,
    )


def bootstrap_interval(values: Float, replicates: int = 2_000, seed: int = 42) -> tuple[Float, Float]:
    """95 % percentile interval, low and high (m,), of column means of (n, m), rows resampled with replacement."""
    draws = np.random.default_rng(seed).integers(0, len(values), (replicates, len(values)))
    low, high = np.quantile(values[draws].mean(axis=1), [0.025, 0.975], axis=0)
    return low, high


def holm_over_readers(purity: pd.DataFrame, ks: Sequence[int] = HOLM_KS) -> pd.Series[float]:
    """Purity p-values of several readers, Holm-corrected over readers x ks; NaN for other k, or without a p-value."""
    tested = purity["k"].isin(list(ks)) & purity["p_value"].notna()
    corrected: pd.Series[float] = pd.Series(np.nan, index=purity.index, dtype=np.float64)
    corrected[tested] = holm(purity.loc[tested, "p_value"].to_numpy(dtype=np.float64))
    return corrected


def _check_ks(order: Index, ks: Sequence[int]) -> None:
    if min(ks) < 1 or max(ks) > order.shape[1]:
        raise ValueError(f"ks must lie in 1..{order.shape[1]} for {len(order)} sources, got {tuple(ks)}")
