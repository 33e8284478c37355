"""Family purity, agreement of readers, cross-provider candidates (paper, Model-Signature Geometry).

Purity is the share of same-family neighbours among all sources, averaged over families with at least five members. A
candidate pair passes where the worse of its two ranks is 10 or below for three of four readers and in the median. Ranks
start at 1; ties go to the source that comes first in the roster.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import spearmanr

from backend.geometry.signatures import Float, Index
from backend.parallel import PATIENCE, each
from backend.statistics import holm

PURITY_KS = (1, 3, 5, 10)
HOLM_KS = (1, 5)  # The neighbourhoods that the paper tests; the others describe
MIN_MEMBERS = 5
_ROUND = 250  # permutations in memory at a time


@dataclass(frozen=True)
class PuritySettings:
    """How purity is tested."""

    min_members: int = MIN_MEMBERS  # Families with fewer sources are searched, but not averaged over
    permutations: int = 10_000
    bootstraps: int = 2_000
    seed: int = 42
    shuffle: Literal["eligible", "all"] = "eligible"  # Labels of averaged families (paper's text) or all (its code)


def _family_sizes(families: Sequence[str]) -> tuple[Index, Index]:
    """Number of the family of every source (n,), and number of members of every family."""
    _, codes, counts = np.unique(np.asarray(families), return_inverse=True, return_counts=True)
    return codes, counts


def eligible_sources(families: Sequence[str], min_members: int = MIN_MEMBERS) -> npt.NDArray[np.bool_]:
    """Mark the sources (n,) of families with at least ``min_members`` members."""
    codes, counts = _family_sizes(families)
    return counts[codes] >= min_members


def random_expectation(families: Sequence[str], min_members: int = MIN_MEMBERS) -> float:
    """Purity at every k of a random order of neighbours; NaN without an eligible source."""
    codes, counts = _family_sizes(families)
    members = counts[codes][counts[codes] >= min_members]
    return float((members - 1).mean() / (len(codes) - 1)) if len(members) else float("nan")


def greatest_purity(families: Sequence[str], k: int, min_members: int = MIN_MEMBERS) -> float:
    """Purity at k where all siblings come first; NaN without any."""
    codes, counts = _family_sizes(families)
    members = counts[codes][counts[codes] >= min_members]
    return float(np.minimum(members - 1, k).mean() / k) if len(members) else float("nan")


def source_purity(order: Index, families: Sequence[str], ks: Sequence[int]) -> Float:
    """Share (n, len(ks)) of same-family sources among the k nearest; ``order`` as of ``neighbor_order``."""
    _check_ks(order, ks)
    codes = _family_sizes(families)[0]
    hits = (codes[order[:, : max(ks)]] == codes[:, None]).cumsum(axis=1)
    shares: Float = hits[:, np.asarray(ks) - 1] / np.asarray(ks)
    return shares


def mean_purity(order: Index, families: Sequence[str], k: int, min_members: int = MIN_MEMBERS) -> float:
    """Purity@k averaged over the sources of large enough families; NaN without any."""
    eligible = eligible_sources(families, min_members)
    return float(source_purity(order, families, [k])[eligible, 0].mean()) if eligible.any() else float("nan")


def permuted_hits(
    order: Index, families: Sequence[str], ks: Sequence[int], settings: PuritySettings
) -> npt.NDArray[np.int64]:
    """Same-family neighbours of eligible sources under permuted labels, (permutations, len(ks))."""
    _check_ks(order, ks)
    columns, (family, counts) = np.asarray(ks) - 1, _family_sizes(families)
    codes, large = family.astype(np.int16), counts >= settings.min_members
    moving = np.flatnonzero(large[codes]) if settings.shuffle == "eligible" else np.arange(len(codes))
    # Permuting eligible labels leaves everyone else without a family that counts.
    near = order[moving, : max(ks)]

    def blocks() -> Iterator[tuple[npt.NDArray[Any], ...]]:
        rng = np.random.default_rng(settings.seed)  # one stream, whoever counts
        for low in range(0, settings.permutations, _ROUND):
            labels = np.tile(codes, (min(_ROUND, settings.permutations - low), 1))
            labels[:, moving] = rng.permuted(labels[:, moving], axis=1)
            yield labels, moving, near, large

    return np.concatenate([hits[:, columns] for hits in each(_hits, blocks(), PATIENCE)])


def _hits(labels: Index, moving: Index, near: Index, large: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
    """Same-family neighbours under labels (m, n): sums over sources, among the nearest 1, 2, ..., (m, nearest)."""
    own = labels[:, moving]
    same = (labels[:, near] == own[:, :, None]) & large[own][:, :, None]
    hits: npt.NDArray[np.int64] = same.sum(axis=1).cumsum(axis=1)
    return hits


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
    chance, p_values = random_expectation(families, settings.min_members), (as_high + 1) / (settings.permutations + 1)
    counts = int(eligible.sum()), len(set(np.asarray(families)[eligible]))
    values = (sizes, shares.mean(axis=0), chance, p_values, low, high, *counts)
    return pd.DataFrame(dict(zip(columns, values, strict=True)))


def bootstrap_interval(values: Float, replicates: int, seed: int) -> tuple[Float, Float]:
    """95 % percentile interval, low and high (m,), of column means of resampled rows (n, m)."""
    draws = np.random.default_rng(seed).integers(0, len(values), (replicates, len(values)))
    low, high = np.quantile(values[draws].mean(axis=1), [0.025, 0.975], axis=0)
    return low, high


def holm_over_readers(purity: pd.DataFrame) -> pd.Series[float]:
    """Purity p-values of several readers, Holm-corrected over readers x :data:`HOLM_KS`; NaN for other k."""
    tested = purity["k"].isin(HOLM_KS) & purity["p_value"].notna()
    corrected: pd.Series[float] = pd.Series(np.nan, index=purity.index, dtype=np.float64)
    corrected[tested] = holm(purity.loc[tested, "p_value"].to_numpy(dtype=np.float64))
    return corrected


def _check_ks(order: Index, ks: Sequence[int]) -> None:
    if min(ks) < 1 or max(ks) > order.shape[1]:
        raise ValueError(f"ks must lie in 1..{order.shape[1]} for {len(order)} sources, got {tuple(ks)}")


def hypergeometric_tail(found: int, others: int, kin: int, drawn: int) -> float:
    """Chance of at least ``found`` kin among ``drawn`` of ``others`` sources of which ``kin`` are kin, exactly."""
    ways = [math.comb(kin, hits) * math.comb(others - kin, drawn - hits) for hits in range(found, min(kin, drawn) + 1)]
    return sum(ways) / math.comb(others, drawn)


def family_mix(families: Sequence[str], chosen: npt.NDArray[np.bool_]) -> pd.DataFrame:
    """Families of chosen sources (n,) against as many drawn at random from all n.

    Returns family, found, members, expected, p_value (so many or more, hypergeometric), p_holm (over the families
    found) and p_fewer (so many or fewer, corrected alike), the most found first.
    """
    members, n, drawn = Counter(families), len(families), int(chosen.sum())
    found = Counter(family for family, taken in zip(families, chosen, strict=True) if taken)
    rows = [
        (
            family,
            hits,
            members[family],
            members[family] * drawn / n,
            hypergeometric_tail(hits, n, members[family], drawn),
        )
        for family, hits in found.most_common()
    ]
    frame = pd.DataFrame(rows, columns=["family", "found", "members", "expected", "p_value"])
    fewer = [1 - hypergeometric_tail(hits + 1, n, members[family], drawn) for family, hits in found.most_common()]
    return frame.assign(p_holm=holm(frame["p_value"].to_numpy(dtype=np.float64)), p_fewer=holm(np.array(fewer)))


TOP = 10
DECIMALS = 6
SHARE = 0.75  # Of the readers that must agree: three of four
PAPER_PAIRS: tuple[tuple[str, str], ...] = (
    ("ds_distill_qwen_32b", "qwq_32b"),
    ("claude_sonnet4", "deepseek_v4_pro"),
    ("gemma4_31b", "gemini31_flash_lite"),
    ("minimax_m3", "claude_sonnet46"),
)
"""The four candidates of the paper, as the roster labels them."""


def neighbor_order(similarity: Float) -> Index:
    """All other sources (n, n - 1), most similar first, from (n, n), larger is nearer; the diagonal is ignored."""
    n = len(similarity)
    if similarity.shape != (n, n) or n < 2:
        raise ValueError(f"similarity must be square with at least two rows, got shape {similarity.shape}")
    away = -similarity
    np.fill_diagonal(away, np.inf)
    return np.argsort(away, axis=1, kind="stable")[:, :-1]


def directed_ranks(similarity: Float) -> npt.NDArray[np.int64]:
    """Rank of column j among the neighbours of row i, (n, n): 1 = nearest, 0 on the diagonal."""
    order = neighbor_order(similarity)
    ranks = np.zeros(similarity.shape, dtype=np.int64)
    np.put_along_axis(ranks, order, np.arange(1, len(ranks))[None, :], axis=1)
    return ranks


def mutual_ranks(similarity: Float) -> npt.NDArray[np.int64]:
    """The worse of the two directed ranks of every pair, (n, n), symmetric, 0 on the diagonal."""
    ranks = directed_ranks(similarity)
    return np.maximum(ranks, ranks.T)


def neighbor_frame(cosine: Float, sources: Sequence[str]) -> pd.DataFrame:
    """Rows of ``neighbors``, by rank: source, neighbor, rank, cosine, percentile (share of pairs less similar)."""
    order, names = neighbor_order(cosine), np.asarray(sources, dtype=object)
    values = np.take_along_axis(cosine, order, axis=1).ravel()
    pairs, n = np.sort(cosine[np.triu_indices(len(cosine), 1)]), len(names)
    percentiles = (np.searchsorted(pairs, values) / len(pairs)).round(DECIMALS)
    places = {"source": np.repeat(names, n - 1), "neighbor": names[order.ravel()], "rank": np.tile(np.arange(1, n), n)}
    return pd.DataFrame({**places, "cosine": np.round(values, DECIMALS), "percentile": percentiles})


def top_k_jaccard(first: Index, second: Index, k: int = TOP) -> Float:
    """Intersection over union (n,) of two k-nearest neighbourhoods of every source; orders (n, n - 1)."""
    if not 1 <= k <= min(first.shape[1], second.shape[1]):
        raise ValueError(f"k must lie in 1..{min(first.shape[1], second.shape[1])}, got {k}")
    common = (first[:, :k, None] == second[:, None, :k]).sum(axis=(1, 2))
    overlap: Float = common / (2 * k - common)
    return overlap


def distance_spearman(first: Float, second: Float) -> float:
    """Spearman correlation of two geometries (n, n) over all pairs; NaN where one of them is constant."""
    a, b = (matrix[np.triu_indices(len(matrix), 1)] for matrix in (first, second))
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(spearmanr(a, b).statistic)


def reader_agreement(cosines: Mapping[str, Float], k: int = TOP) -> pd.DataFrame:
    """Agreement of every two readers on the same sources, from cosines (n, n) by reader.

    Returns rows of the table ``reader_agreement``: reader, other (a pair once, in alphabetical order), metric, value.
    Metrics are spearman, absent where a geometry is constant, and jaccard_10 of the k nearest (n - 1 at most).
    """
    orders = {reader: neighbor_order(cosine) for reader, cosine in cosines.items()}
    rows = []
    for reader, other in combinations(sorted(cosines), 2):
        overlap = top_k_jaccard(orders[reader], orders[other], min(k, orders[reader].shape[1])).mean()
        rows.append((reader, other, "spearman", distance_spearman(cosines[reader], cosines[other])))
        rows.append((reader, other, f"jaccard_{k}", float(overlap)))
    frame = pd.DataFrame(rows, columns=["reader", "other", "metric", "value"])
    return frame.dropna(subset="value", ignore_index=True)


def prompt_stability(
    cosine: Float, panels: Sequence[Float], families: Sequence[str], *, k: int = TOP, purity_k: int = 5, min_members:
    int = MIN_MEMBERS,
) -> pd.DataFrame:  # fmt: skip
    """How far disjoint panels of prompts reproduce the geometry (n, n) of all prompts.

    Returns rows of the table ``prompt_stability``: fold (the panel's number), metric (spearman and jaccard_10 with the
    full panel, purity_5 of the panel itself), value; what is not defined is absent.
    """
    full = neighbor_order(cosine)
    size = full.shape[1]
    rows = []
    for fold, panel in enumerate(panels):
        order = neighbor_order(panel)
        rows.append((fold, "spearman", distance_spearman(cosine, panel)))
        rows.append((fold, f"jaccard_{k}", float(top_k_jaccard(full, order, min(k, size)).mean())))
        rows.append((fold, f"purity_{purity_k}", mean_purity(order, families, min(purity_k, size), min_members)))
    frame = pd.DataFrame(rows, columns=["fold", "metric", "value"]).astype({"fold": int, "value": float})
    return frame.dropna(subset="value", ignore_index=True)


def pair_ranks(cosine: Float, sources: Sequence[str], pairs: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """How one reader ranks the two sources of some pairs for each other.

    Returns columns left, right, left_to_right (rank of right among the neighbours of left), right_to_left, mutual_rank
    and cosine. ValueError if a pair names an unknown source or a source twice.
    """
    place = {source: i for i, source in enumerate(sources)}
    for a, b in pairs:
        if a not in place or b not in place or a == b:
            raise ValueError(f"({a}, {b}) is not a pair of different sources of this roster")
    frame = pd.DataFrame(list(pairs), columns=["left", "right"])
    first, second = (np.array([place[pair[side]] for pair in pairs], dtype=np.intp) for side in (0, 1))
    ranks = directed_ranks(cosine)
    forth, back = ranks[first, second], ranks[second, first]
    return frame.assign(
        left_to_right=forth, right_to_left=back, mutual_rank=np.maximum(forth, back), cosine=cosine[first, second]
    )


def rank_rule(ranks: pd.DataFrame, within: int = TOP) -> pd.DataFrame:
    """Which pairs are neighbours under several readers, from rows of :func:`pair_ranks`, one a pair and reader.

    Returns columns left, right, readers, within (readers with a mutual rank of at most ``within``), median_rank,
    passes (``share`` of the readers, rounded up); pairs in order of first appearance.
    """
    rows = []
    for pair, part in ranks.groupby(["left", "right"], sort=False):
        near, median = int((part["mutual_rank"] <= within).sum()), float(part["mutual_rank"].median())
        passes = near >= math.ceil(SHARE * len(part)) and median <= within
        rows.append((*pair, len(part), near, median, passes))
    return pd.DataFrame(rows, columns=["left", "right", "readers", "within", "median_rank", "passes"])


def passing_pairs(
    cosines: Mapping[str, Float], sources: Sequence[str], families: Sequence[str], within: int = TOP
) -> pd.DataFrame:
    """Pairs of different families that pass, as :func:`rank_rule`: by readers, median, then roster order."""
    first, second = (side.astype(np.intp) for side in np.triu_indices(len(sources), 1))
    stacked: npt.NDArray[np.int64] = np.stack([mutual_ranks(cosine)[first, second] for cosine in cosines.values()])
    near, median = (stacked <= within).sum(axis=0), np.median(stacked, axis=0)
    family, names = np.asarray(families, dtype=object), np.asarray(sources, dtype=object)
    passes = (near >= math.ceil(SHARE * len(cosines))) & (median <= within)
    some = np.flatnonzero(passes & (family[first] != family[second]))
    some = some[np.lexsort((median[some], -near[some]))]
    pairs = {"left": names[first[some]], "right": names[second[some]], "readers": len(cosines)}
    return pd.DataFrame({**pairs, "within": near[some], "median_rank": median[some], "passes": True})
