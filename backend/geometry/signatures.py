"""Signatures: one vector a source, compared by cosine in one domain and between two, and their tree.

Sections "Model-Signature Geometry" of the paper (the mean fingerprint over a source's prompts, DC and first-AC blocks
normalised separately) and "Cross-Domain Model-Signature Geometry" (retrieval among the signatures of another
benchmark, raw, and centred by removing each domain's mean).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from backend.errors import AtlasError

Float = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]
Space = Literal["raw", "centred"]
SPACES: tuple[Space, ...] = ("raw", "centred")
# Equal signatures must tie on every machine, whatever the order in which its matrix product adds.
COSINE_DECIMALS = 12


def source_means(
    features: npt.NDArray[Any], *, sources: int, prompts: int, panels: Sequence[Index] | None = None
) -> Float:
    """Mean fingerprints (panels, sources, 2 d) of the first sources over panels of prompts.

    features : (at least sources * prompts, 2 d), row = source * prompts + prompt; one source is in memory at a time.
    panels : by default one of all prompts. ValueError for too few rows or a wrong panel; AtlasError for infinite means.
    """
    panels = [np.arange(prompts)] if panels is None else list(panels)
    if features.ndim != 2 or len(features) < sources * prompts:
        raise ValueError(f"features must have at least {sources} * {prompts} rows, got shape {features.shape}")
    for panel in panels:
        if not len(panel) or panel.min() < 0 or panel.max() >= prompts:
            raise ValueError(f"a panel must name prompts in 0..{prompts - 1} and at least one")
    means = np.empty((len(panels), sources, features.shape[1]))
    for source in range(sources):
        block = features[source * prompts : (source + 1) * prompts].astype(np.float64)
        for number, panel in enumerate(panels):
            means[number, source] = block[panel].mean(axis=0)
    if not np.isfinite(means).all():
        row = int(np.flatnonzero(~np.isfinite(means).all(axis=(0, 2)))[0])
        raise AtlasError(
            f"The fingerprints of source {row + 1} in roster order hold values that are not finite",
            "Choose another layer, or remove this layer's file and extract it again",
        )
    return means


def signatures(means: Float) -> Float:
    """Mean fingerprints (..., 2 d) whose two blocks have length one each; a block of zeros stays zero."""
    if means.shape[-1] % 2:
        raise ValueError(f"means must hold two blocks of equal width, got width {means.shape[-1]}")
    blocks = np.asarray(means, dtype=np.float64).reshape(*means.shape[:-1], 2, -1)
    return unit_rows(blocks).reshape(means.shape)


def unit_rows(vectors: Float) -> Float:
    """Scale vectors along the last axis to length one; zero vectors stay zero."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: Float = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    return scaled


def cosine_similarity(first: Float, second: Float | None = None) -> Float:
    """Cosines (n, m), to 12 decimals, of signatures (n, w) and (m, w); by default the same, exactly symmetric."""
    rows = unit_rows(first)
    product = rows @ (rows if second is None else unit_rows(second)).T
    cosine: Float = np.clip(product.round(COSINE_DECIMALS), -1.0, 1.0)
    if second is None:
        lower = np.tril_indices(len(cosine), -1)
        cosine[lower] = cosine.T[lower]
        np.fill_diagonal(cosine, 1.0)
    return cosine


def axis_positions(first: Float, second: Float, between: float) -> Float:
    """Where sources stand on the line from one source (0) to another (1): feet of perpendiculars, from cosines.

    first, second : (n,), cosines to the two, of signatures of one length. between : cosine of the two.
    ValueError where the two point the same way.
    """
    if between >= 1:
        raise ValueError("two signatures of one direction span no axis")
    positions: Float = 0.5 + (second - first) / (2 * (1 - between))
    return positions


def cosine_distance(cosine: Float) -> Float:
    """One minus cosine, zero on the diagonal."""
    distance = 1.0 - cosine
    np.fill_diagonal(distance, 0.0)
    return distance


def signature_frame(vectors: Float, sources: Sequence[str], layer: int) -> pd.DataFrame:
    """Signatures (n, w) as rows of the table ``signatures``: layer (0 for a reader without blocks), source, vector."""
    rows = [vector.astype(np.float32) for vector in vectors]
    return pd.DataFrame({"layer": layer, "source": list(sources), "vector": pd.Series(rows, dtype=object)})


@dataclass(frozen=True)
class Dendrogram:
    """Average linkage on cosine distance."""

    merges: Float  # (n - 1, 4), SciPy's linkage matrix: two clusters, their distance, members
    order: Index  # (n,) leaves from one end to the other, neighbours as close as the tree allows


def dendrogram(cosine: Float) -> Dendrogram:
    """Cluster sources by average linkage on cosine distance; ``cosine`` (n, n), n >= 2."""
    merges = linkage(squareform(cosine_distance(cosine), checks=False), method="average", optimal_ordering=True)
    return Dendrogram(merges, leaves_list(merges).astype(np.intp))


def dendrogram_frame(tree: Dendrogram) -> pd.DataFrame:
    """Merges as rows of the table ``dendrogram``: step, left_node, right_node, height, size.

    A node below n is the source of that place in the roster, n + i the cluster of step i; height is the mean cosine
    distance, size counts the sources below. Drawing left before right puts the leaves in ``tree.order``.
    """
    frame = pd.DataFrame(tree.merges, columns=["left_node", "right_node", "height", "size"])
    frame.insert(0, "step", np.arange(len(frame)))
    return frame.astype({"left_node": int, "right_node": int, "size": int})


def centre(vectors: Float) -> Float:
    """Subtract the mean signature of a domain from all of its signatures (n, w), and scale to length one."""
    return unit_rows(vectors - vectors.mean(axis=0))


def in_space(vectors: Float, space: Space) -> Float:
    """Signatures of one domain as the given space sees them."""
    return centre(vectors) if space == "centred" else vectors


def retrieval_ranks(similarity: Float) -> npt.NDArray[np.int64]:
    """Rank (n,) of every query's own source: one plus the number more similar, from (n, n), query by gallery."""
    if similarity.ndim != 2 or similarity.shape[0] != similarity.shape[1]:
        raise ValueError(f"query and gallery must hold the same sources, got shape {similarity.shape}")
    own = np.diagonal(similarity)[:, None]
    ranks: npt.NDArray[np.int64] = 1 + (similarity > own).sum(axis=1)
    return ranks


def retrieval_summary(similarity: Float, families: Sequence[str] | None = None) -> dict[str, float]:
    """Retrieval of every source among the sources of another domain, from (n, n), query by gallery.

    wins_other : chance that a source is more similar to itself than to a random other one.
    nearest_family_match : share whose most similar source, itself included, is of the same family.
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

    query, gallery : (n, w), signatures of the same sources in two domains, n >= 2.
    Returns rows of the table ``cross_domain``: variant, source, metric (rank, cosine with itself, best_other_cosine),
    value, best_other (the nearest of the others); the rows without a source are :func:`retrieval_summary`.
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
    """Signatures of two domains in one matrix (2 n, w): all sources of the first domain, then all of the second."""
    return np.concatenate([in_space(first, space), in_space(second, space)])
