"""Clusters: where is a map dense, whoever lies there?

Goes with section "Interactive Three-Dimensional Atlas" of the paper, whose viewer draws hulls around groups of points.
HDBSCAN (Campello, Moulavi and Sander, 2013) looks for them among the drawn points without knowing a family. Like
:mod:`backend.geometry.regions` it describes the drawing, not the original space.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.cluster import HDBSCAN

from backend.geometry.projections import AXES
from backend.geometry.purity import MIN_MEMBERS
from backend.geometry.signatures import Float

NEAR = 3
"""A point is dense as far as its third nearest reaches, itself counted."""


def density_clusters(points: Float) -> tuple[np.ndarray, Float]:
    """Group the points of a map by density.

    Leaves of the cluster tree are taken, not its most lasting branches: two continents of nearly all points, which some
    maps have, would tell less than what lies on them.

    points : (n, 2) or (n, 3).
    Returns cluster (n,), int, from 0, the largest cluster first (ties to the one whose first point comes first), -1 in
    none. A cluster has at least as many points as a family whose purity is averaged; strength (n,), how firmly a point
    belongs, 0 to 1.
    """
    n = len(points)
    if n < MIN_MEMBERS:
        return np.full(n, -1), np.zeros(n)
    found = HDBSCAN(min_cluster_size=MIN_MEMBERS, min_samples=NEAR, cluster_selection_method="leaf", copy=True)
    labels = found.fit_predict(points)
    named, first, size = np.unique(labels[labels >= 0], return_index=True, return_counts=True)
    number = np.full(labels.max() + 2, -1)
    number[named[np.lexsort((first, -size))]] = np.arange(len(named))
    return number[labels], found.probabilities_


def cluster_frame(points: pd.DataFrame) -> pd.DataFrame:
    """Clusters on every map of a reader.

    points : Columns method, dimensions, source, x, y, z, as in the table ``projections``.
    Returns rows of the table ``clusters``: method, dimensions, source, cluster (missing where it is in none), strength.
    """
    frames = []
    for _, part in points.groupby(["method", "dimensions"], sort=False):
        axes = list(AXES[: int(part["dimensions"].iloc[0])])
        cluster, strength = density_clusters(part[axes].to_numpy(dtype=np.float64))
        held = part[["method", "dimensions", "source"]].reset_index(drop=True)
        numbers = pd.Series(cluster, dtype="Int64")
        frames.append(held.assign(cluster=numbers.mask(numbers < 0), strength=np.round(strength, 4)))
    return pd.concat(frames, ignore_index=True)
