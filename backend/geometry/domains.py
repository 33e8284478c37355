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

    vectors : (n, w), signatures of all sources in one domain. Returns (n, w), float64.
    """
    return unit_rows(vectors - vectors.mean(axis=0))


def in_space(vectors: Float, space: Space) -> Float:
    """Signatures of one domain as the given space sees them."""
    return centre(vectors) if space == "centred" else vectors


def retrieval_ranks(similarity: Float) -> npt.NDArray[np.int64]:
    """Rank of every query's own source in the gallery.

    similarity : (n, n), query by gallery, both in the same order of sources.
    Returns (n,), int64, one plus the number of sources that are strictly more similar.
    """
    if similarity.ndim != 2 or similarity.shape[0] != similarity.shape[1]:
        raise ValueError(f"query and gallery must hold the same sources, got shape {similarity.shape}")
    own = np.diagonal(similarity)[:, None]
    ranks: npt.NDArray[np.int64] = 1 + (similarity > own).sum(axis=1)
    return ranks


def retrieval_summary(similarity: Float, families: Sequence[str] | None = None) -> dict[str, float]:
    """Retrieval of every source among the sources of another domain.

    similarity : (n, n), query by gallery, at least two sources; families : length n.
    Returns top1, top5, mrr, wins_other (chance that a source is more similar to itself than to a different one drawn at
    random), cosine_same_median, cosine_same_mean, cosine_other_median, cosine_other_mean, and with families
    nearest_family_match (the most similar source of the gallery, the own one included, is of the same family).
    """
    n = len(similarity)
    if n < 2:
        raise ValueError("retrieval needs at least two sources")
    ranks = retrieval_ranks(similarity)
    own = np.diagonal(similarity)
    others = similarity[~np.eye(n, dtype=bool)].reshape(n, n - 1)
    summary = {
        "top1": float((ranks <= 1).mean()),
        "top5": float((ranks <= 5).mean()),
        "mrr": float((1.0 / ranks).mean()),
        "wins_other": float((own[:, None] > others).mean()),
        "cosine_same_median": float(np.median(own)),
        "cosine_same_mean": float(own.mean()),
        "cosine_other_median": float(np.median(others)),
        "cosine_other_mean": float(others.mean()),
    }
    if families is not None:
        names = np.asarray(families, dtype=object)
        summary["nearest_family_match"] = float((names[similarity.argmax(axis=1)] == names).mean())
    return summary


def cross_domain(query: Float, gallery: Float, sources: Sequence[str], families: Sequence[str]) -> pd.DataFrame:
    """Retrieval of every source among the signatures of another domain, raw and centred.

    query, gallery : (n, w), signatures of the same sources in two domains, n >= 2; sources, families : length n.
    Returns rows of the table ``cross_domain``: variant (raw, centred), source, metric, value, best_other. A source has
    the metrics rank, cosine (with itself in the other domain) and best_other_cosine (with ``best_other``, the nearest
    of the others; the earlier one on a tie); the rows without a source are :func:`retrieval_summary`.
    """
    names = list(sources)
    frames = []
    for space in SPACES:
        similarity = cosine_similarity(in_space(query, space), in_space(gallery, space))
        others = similarity.copy()
        np.fill_diagonal(others, -np.inf)
        nearest = others.argmax(axis=1)
        of_source = {
            "rank": retrieval_ranks(similarity),
            "cosine": np.diagonal(similarity),
            "best_other_cosine": others[np.arange(len(names)), nearest],
        }
        best = [names[i] for i in nearest]
        frames += [
            pd.DataFrame({"variant": space, "source": names, "metric": metric, "value": values, "best_other": best})
            for metric, values in of_source.items()
        ]
        summary = retrieval_summary(similarity, families)
        columns = {"metric": list(summary), "value": list(summary.values())}
        frames.append(pd.DataFrame({"variant": space, "source": None, **columns, "best_other": None}))
    return pd.concat(frames, ignore_index=True).astype({"source": object, "best_other": object, "value": float})


def joint_signatures(first: Float, second: Float, space: Space) -> Float:
    """Signatures of two domains in one matrix, for a joint projection.

    Returns (2 * n, w), all sources of the first domain, then all of the second.
    """
    return np.concatenate([in_space(first, space), in_space(second, space)])
