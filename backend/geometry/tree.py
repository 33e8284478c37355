"""Dendrogram: which sources would be merged first if similar ones were joined step by step?

Section "Model-Signature Geometry" of the paper, as a tree: average linkage on cosine distance in the original space.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.cluster.hierarchy import leaves_list, linkage
from scipy.spatial.distance import squareform

from backend.geometry.signatures import Float, Index, cosine_distance


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
