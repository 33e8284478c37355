"""Domains: does a source look like itself when the questions change?

Section "Cross-Domain Model-Signature Geometry" of the paper. Signatures of one benchmark retrieve among those of
another, as they are (raw) and after removing each domain's mean signature (centred), which takes away the offset
that all sources share.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.geometry.signatures import Float, cosine_similarity, unit_rows

Space = Literal["raw", "centred"]
SPACES: tuple[Space, ...] = ("raw", "centred")


def centre(vectors: Float) -> Float:
    """Subtract a domain's mean signature and scale what remains to length one.

    Parameters
    ----------
    vectors : ndarray of shape (n, w)
        Signatures of all sources in one domain.

    Returns
    -------
    ndarray of shape (n, w), float64
    """
    return unit_rows(vectors - vectors.mean(axis=0))


def in_space(vectors: Float, space: Space) -> Float:
    """Signatures of one domain as the given space sees them."""
    return centre(vectors) if space == "centred" else vectors


def retrieval_ranks(similarity: Float) -> npt.NDArray[np.int64]:
    """Rank of every query's own source in the gallery.

    Parameters
    ----------
    similarity : ndarray of shape (n, n)
        Query by gallery, both in the same order of sources.

    Returns
    -------
    ndarray of shape (n,), int64
        One plus the number of sources that are strictly more similar.
    """
    if similarity.ndim != 2 or similarity.shape[0] != similarity.shape[1]:
        raise ValueError(f"query and gallery must hold the same sources, got shape {similarity.shape}")
    own = np.diagonal(similarity)[:, None]
    ranks: npt.NDArray[np.int64] = 1 + (similarity > own).sum(axis=1)
    return ranks


def cross_domain_ranks(query: Float, gallery: Float, sources: Sequence[str]) -> pd.DataFrame:
    """Rank of every source among the signatures of another domain.

    Parameters
    ----------
    query, gallery : ndarray of shape (n, w)
        Signatures of the same sources in two domains.
    sources : sequence of str, length n

    Returns
    -------
    DataFrame
        Columns space (raw, centred), source, rank, cosine (with itself in the other domain).
    """
    frames = []
    for space in SPACES:
        similarity = cosine_similarity(in_space(query, space), in_space(gallery, space))
        frames.append(
            pd.DataFrame(
                {
                    "space": space,
                    "source": list(sources),
                    "rank": retrieval_ranks(similarity),
                    "cosine": np.diagonal(similarity),
                }
            )
        )
    return pd.concat(frames, ignore_index=True)


def retrieval_summary(similarity: Float) -> dict[str, float]:
    """Retrieval of every source among the sources of another domain.

    Parameters
    ----------
    similarity : ndarray of shape (n, n)
        Query by gallery, at least two sources.

    Returns
    -------
    dict
        top_1, top_5, mrr, wins_other (chance that a source is more similar to itself than to a different one drawn
        at random), same_cosine and other_cosine (medians).
    """
    n = len(similarity)
    if n < 2:
        raise ValueError("retrieval needs at least two sources")
    ranks = retrieval_ranks(similarity)
    own = np.diagonal(similarity)
    others = similarity[~np.eye(n, dtype=bool)].reshape(n, n - 1)
    return {
        "top_1": float((ranks <= 1).mean()),
        "top_5": float((ranks <= 5).mean()),
        "mrr": float((1.0 / ranks).mean()),
        "wins_other": float((own[:, None] > others).mean()),
        "same_cosine": float(np.median(own)),
        "other_cosine": float(np.median(others)),
    }


def cross_domain_retrieval(query: Float, gallery: Float) -> pd.DataFrame:
    """Retrieval from one domain to another, raw and centred.

    Parameters
    ----------
    query, gallery : ndarray of shape (n, w)
        Signatures of the same sources in two domains, in the same order.

    Returns
    -------
    DataFrame
        Two rows; columns space, the keys of :func:`retrieval_summary`, sources.
    """
    rows = []
    for space in SPACES:
        similarity = cosine_similarity(in_space(query, space), in_space(gallery, space))
        rows.append({"space": space, **retrieval_summary(similarity), "sources": len(query)})
    return pd.DataFrame(rows)


def joint_signatures(first: Float, second: Float, space: Space) -> Float:
    """Signatures of two domains in one matrix, for a joint projection.

    Returns
    -------
    ndarray of shape (2 * n, w)
        All sources of the first domain, then all of the second.
    """
    return np.concatenate([in_space(first, space), in_space(second, space)])
