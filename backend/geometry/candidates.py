"""Candidate neighbourhoods: do two sources of different providers stay close whoever reads them?

Section "Candidate Cross-Provider Neighborhoods" of the paper. The mutual rank of a pair is the worse of its two
directed ranks; a pair passes when it is at most 10 for at least three of four readers and in the median.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.geometry.neighborhoods import TOP, directed_ranks, mutual_ranks
from backend.geometry.signatures import Float, Index

SHARE = 0.75
"""Of the readers that must agree: three of four."""
PAPER_PAIRS: tuple[tuple[str, str], ...] = (
    ("ds_distill_qwen_32b", "qwq_32b"),
    ("claude_sonnet4", "deepseek_v4_pro"),
    ("gemma4_31b", "gemini31_flash_lite"),
    ("minimax_m3", "claude_sonnet46"),
)
"""The four candidates of the paper, as the roster labels them."""


def pair_ranks(cosine: Float, sources: Sequence[str], pairs: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """How one reader ranks the two sources of some pairs for each other.

    cosine : (n, n); sources : length n.
    Returns columns left, right, left_to_right (rank of right among the neighbours of left), right_to_left, mutual_rank and
    cosine, in the order of ``pairs``.
    Raises ValueError if a pair names an unknown source or a source twice.
    """
    left, right = _places(sources, pairs)
    ranks = directed_ranks(cosine)
    forth, back = ranks[left, right], ranks[right, left]
    return pd.DataFrame(
        {
            "left": [a for a, _ in pairs],
            "right": [b for _, b in pairs],
            "left_to_right": forth,
            "right_to_left": back,
            "mutual_rank": np.maximum(forth, back),
            "cosine": cosine[left, right],
        }
    )


def rank_rule(ranks: pd.DataFrame, *, within: int = TOP, share: float = SHARE) -> pd.DataFrame:
    """Which of some pairs are neighbours under several readers.

    ranks : Columns left, right, mutual_rank; one row a pair and reader.
    share : Of the readers of a pair, rounded up to whole readers.
    Returns columns left, right, readers, within (readers with a mutual rank of at most ``within``), median_rank,
    passes; pairs in order of first appearance.
    """
    rows = []
    for (left, right), part in ranks.groupby(["left", "right"], sort=False):
        near, median = int((part["mutual_rank"] <= within).sum()), float(part["mutual_rank"].median())
        passes = near >= math.ceil(share * len(part)) and median <= within
        rows.append((left, right, len(part), near, median, passes))
    return pd.DataFrame(rows, columns=["left", "right", "readers", "within", "median_rank", "passes"])


def passing_pairs(
    cosines: Mapping[str, Float],
    sources: Sequence[str],
    families: Sequence[str],
    *,
    within: int = TOP,
    share: float = SHARE,
) -> pd.DataFrame:
    """All pairs of different families that pass the rule.

    cosines : reader to (n, n).
    sources, families : length n.
    within, share : As in :func:`rank_rule`.
    Returns columns of :func:`rank_rule`; most readers first, then the smallest median, then roster order.
    """
    left, right = (side.astype(np.intp) for side in np.triu_indices(len(sources), 1))
    stacked: npt.NDArray[np.int64] = np.stack([mutual_ranks(cosine)[left, right] for cosine in cosines.values()])
    near, median = (stacked <= within).sum(axis=0), np.median(stacked, axis=0)
    family, names = np.asarray(families, dtype=object), np.asarray(sources, dtype=object)
    passes = (near >= math.ceil(share * len(cosines))) & (median <= within)
    kept = np.flatnonzero(passes & (family[left] != family[right]))
    kept = kept[np.lexsort((median[kept], -near[kept]))]
    return pd.DataFrame(
        {
            "left": names[left[kept]],
            "right": names[right[kept]],
            "readers": len(cosines),
            "within": near[kept],
            "median_rank": median[kept],
            "passes": True,
        }
    )


def _places(sources: Sequence[str], pairs: Sequence[tuple[str, str]]) -> tuple[Index, Index]:
    place = {source: i for i, source in enumerate(sources)}
    for a, b in pairs:
        if a not in place or b not in place or a == b:
            raise ValueError(f"({a}, {b}) is not a pair of different sources of this roster")
    return (
        np.array([place[a] for a, _ in pairs], dtype=np.intp),
        np.array([place[b] for _, b in pairs], dtype=np.intp),
    )
