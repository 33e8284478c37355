"""Neighbourhoods: nearest sources, agreement of readers and panels, and cross-provider candidates.

Sections "Construction and Original-Space Enrichment", "Prompt and Projection Stability" and "Candidate Cross-Provider
Neighborhoods" of the paper. Ranks start at 1; ties go to the source that comes first in the roster. The mutual rank is
the worse of the two ranks of a pair; a candidate passes at 10 or below for three of four readers and in the median.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import spearmanr

from backend.geometry.purity import MIN_MEMBERS, mean_purity
from backend.geometry.signatures import Float, Index

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
    order = neighbor_order(cosine)
    names = np.asarray(sources, dtype=object)
    values = np.take_along_axis(cosine, order, axis=1).ravel()
    pairs = np.sort(cosine[np.triu_indices(len(cosine), 1)])
    return pd.DataFrame(
        {
            "source": np.repeat(names, len(names) - 1),
            "neighbor": names[order.ravel()],
            "rank": np.tile(np.arange(1, len(names)), len(names)),
            "cosine": np.round(values, DECIMALS),
            "percentile": np.round(np.searchsorted(pairs, values, side="left") / len(pairs), DECIMALS),
        }
    )


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
    full panel, purity_5 of the panel itself), value. Neighbourhoods fall to n - 1 on a smaller roster; what is not
    defined is absent.
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
    and cosine. Raises ValueError if a pair names an unknown source or a source twice.
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


def rank_rule(ranks: pd.DataFrame, *, within: int = TOP, share: float = SHARE) -> pd.DataFrame:
    """Which pairs are neighbours under several readers, from rows of :func:`pair_ranks`, one a pair and reader.

    Returns columns left, right, readers, within (readers with a mutual rank of at most ``within``), median_rank,
    passes (``share`` of the readers, rounded up); pairs in order of first appearance.
    """
    rows = []
    for pair, part in ranks.groupby(["left", "right"], sort=False):
        near, median = int((part["mutual_rank"] <= within).sum()), float(part["mutual_rank"].median())
        passes = near >= math.ceil(share * len(part)) and median <= within
        rows.append((*pair, len(part), near, median, passes))
    return pd.DataFrame(rows, columns=["left", "right", "readers", "within", "median_rank", "passes"])


def passing_pairs(
    cosines: Mapping[str, Float], sources: Sequence[str], families: Sequence[str], *, within: int = TOP, share: float =
    SHARE,
) -> pd.DataFrame:  # fmt: skip
    """Pairs of different families that pass, as :func:`rank_rule`: by readers, median, then roster order."""
    first, second = (side.astype(np.intp) for side in np.triu_indices(len(sources), 1))
    stacked: npt.NDArray[np.int64] = np.stack([mutual_ranks(cosine)[first, second] for cosine in cosines.values()])
    near, median = (stacked <= within).sum(axis=0), np.median(stacked, axis=0)
    family, names = np.asarray(families, dtype=object), np.asarray(sources, dtype=object)
    passes = (near >= math.ceil(share * len(cosines))) & (median <= within)
    some = np.flatnonzero(passes & (family[first] != family[second]))
    some = some[np.lexsort((median[some], -near[some]))]
    return pd.DataFrame(
        {
            "left": names[first[some]],
            "right": names[second[some]],
            "readers": len(cosines),
            "within": near[some],
            "median_rank": median[some],
            "passes": True,
        }
    )
