"""Signatures: one vector a source, how similar two sources look to a proxy, and the tree of average linkage.

Section "Model-Signature Geometry" of the paper: the mean fingerprint over a source's prompts, its DC and first-AC
blocks normalised separately and concatenated, compared by cosine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from backend.errors import AtlasError

Float = npt.NDArray[np.float64]
Index = npt.NDArray[np.intp]


# Equal signatures must tie on every machine, whatever the order in which its matrix product adds.
COSINE_DECIMALS = 12


def source_means(
    features: npt.NDArray[Any], *, sources: int, prompts: int, panels: Sequence[Index] | None = None
) -> Float:
    """Mean fingerprints of the first sources over one or more panels of prompts.

    One source is in memory at a time, so a memory-mapped array of any length may be given.

    features : (at least sources * prompts, 2 * d), row = source * prompts + prompt.
    sources : Number of leading sources; rosters are prefixes of one another.
    prompts : Prompts a source has in ``features``.
    panels : Prompt positions of every panel, by default one panel of all prompts.
    Returns (len(panels), sources, 2 * d), float64.
    Raises ValueError if ``features`` has too few rows, or a panel is empty or reaches past the prompts.
    Raises AtlasError if a mean is not finite.
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
    """Normalise the DC and the first-AC block of every mean fingerprint to length one.

    means : (..., 2 * d). Returns (..., 2 * d), float64, the norm is sqrt(2); a block of zeros stays zero.
    """
    if means.shape[-1] % 2:
        raise ValueError(f"means must hold two blocks of equal width, got width {means.shape[-1]}")
    blocks = np.asarray(means, dtype=np.float64).reshape(*means.shape[:-1], 2, -1)
    return unit_rows(blocks).reshape(means.shape)


def unit_rows(vectors: Float) -> Float:
    """Scale vectors along the last axis to length one; zero vectors stay zero."""
    norms = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: Float = np.divide(vectors, norms, out=np.zeros_like(vectors), where=norms > 0)
    return scaled


def cosine_similarity(left: Float, right: Float | None = None) -> Float:
    """Cosines between signatures.

    left : (n, w); right : (m, w), by default ``left``.
    Returns (n, m), float64, in -1..1, rounded to 12 decimals. Without ``right`` it is symmetric with ones on the
    diagonal.
    """
    first = unit_rows(left)
    product = first @ (first if right is None else unit_rows(right)).T
    cosine: Float = np.clip(product.round(COSINE_DECIMALS), -1.0, 1.0)
    if right is None:
        lower = np.tril_indices(len(cosine), -1)
        cosine[lower] = cosine.T[lower]
        np.fill_diagonal(cosine, 1.0)
    return cosine


def cosine_distance(cosine: Float) -> Float:
    """One minus cosine, zero on the diagonal."""
    distance = 1.0 - cosine
    np.fill_diagonal(distance, 0.0)
    return distance


def signature_frame(vectors: Float, sources: Sequence[str], layer: int) -> pd.DataFrame:
    """Signatures as rows of the table ``signatures``.

    vectors : (n, w); sources : length n.
    layer : Proxy block that the fingerprints were read at, 0 for a reader without blocks.
    Returns columns layer, source, vector (float32 array of length w).
    """
    rows = [vector.astype(np.float32) for vector in vectors]
    return pd.DataFrame({"layer": layer, "source": list(sources), "vector": pd.Series(rows, dtype=object)})


@dataclass(frozen=True)
class Dendrogram:
    """Average linkage on cosine distance."""

    merges: Float  # (n - 1, 4), float64, SciPy's linkage matrix: two clusters, their distance, members
    order: Index  # (n,), int, leaves from one end to the other, neighbours as close as the tree allows


def dendrogram(cosine: Float) -> Dendrogram:
    """Cluster sources by average linkage on cosine distance. cosine : (n, n), n >= 2."""
    merges = linkage(squareform(cosine_distance(cosine), checks=False), method="average", optimal_ordering=True)
    return Dendrogram(merges, leaves_list(merges).astype(np.intp))


def dendrogram_frame(tree: Dendrogram) -> pd.DataFrame:
    """Merges as rows of the table ``dendrogram``.

    Returns columns step, left_node, right_node (below n: the source of that place in the roster; n + i: what step i
    made), height (mean cosine distance between the two), size (sources below). Drawing left before right puts the
    leaves in ``tree.order``.
    """
    merges = tree.merges
    return pd.DataFrame(
        {
            "step": np.arange(len(merges)),
            "left_node": merges[:, 0].astype(int),
            "right_node": merges[:, 1].astype(int),
            "height": merges[:, 2],
            "size": merges[:, 3].astype(int),
        }
    )
