"""Fewer coordinates: PCA and class-centroid SVD of the standardised fingerprint (paper, Development-Stage Aggregation
Alternatives, the projection pilot).

Both are fitted on the rows that train the probe. PCA keeps the directions in which fingerprints vary most; the SVD of
the class centroids keeps those in which the sources differ most, and thereby uses the labels a second time. The paper
does not say whether its probe standardises the 64 coordinates too. ``pca-64`` and ``centroid-svd`` do, like every
representation; the ``-unscaled`` ones leave strong directions strong, which suits 40 steps of Adam better.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from backend.evaluations.matched import Encode, Floats, Represent, Rows
from backend.methods.probe import LinearProbe, standardiser

DIMENSIONS = 64
UNSCALED = ("pca-64-unscaled", "centroid-svd-unscaled")
"""Compressions whose coordinates the probe takes as they are."""


@dataclass(frozen=True)
class Projection:
    """A standardiser and orthonormal axes."""

    mean: Floats  # (D,), float32
    scale: Floats  # (D,), float32
    axes: Floats  # (D, E), float32

    def __call__(self, rows: Rows) -> Floats:
        """Projected rows, (n, D) to (n, E)."""
        standardised: Floats = (rows.astype(np.float32) - self.mean) / self.scale
        out: Floats = standardised @ self.axes
        return out


def principal_axes(rows: Rows, dimensions: int = DIMENSIONS) -> Projection:
    """The leading principal components.

    rows : (n, D), training rows, not standardised.
    dimensions : Axes wanted, at most D are given.
    Returns axes in descending order of variance.
    """
    mean, scale = standardiser(rows)
    x = (rows.astype(np.float64) - mean) / scale
    _, vectors = np.linalg.eigh(x.T @ x)
    return Projection(mean, scale, np.ascontiguousarray(vectors[:, ::-1][:, :dimensions], dtype=np.float32))


def centroid_axes(rows: Rows, labels: npt.NDArray[np.integer], dimensions: int = DIMENSIONS) -> Projection:
    """The leading right singular vectors of the centred class centroids.

    rows : (n, D), training rows, not standardised.
    labels : (n,).
    dimensions : Axes wanted; centroids of C sources span C - 1 at most, and no more are given.
    """
    mean, scale = standardiser(rows)
    present = np.unique(labels)
    centroids = np.stack([rows[labels == label].mean(0, dtype=np.float64) for label in present])
    centroids = (centroids - mean) / scale
    centroids -= centroids.mean(0)
    _, _, vectors = np.linalg.svd(centroids, full_matrices=False)
    kept = min(dimensions, len(present) - 1)
    return Projection(mean, scale, np.ascontiguousarray(vectors[:kept].T, dtype=np.float32))


def collapsed(projection: Projection, probe: LinearProbe) -> LinearProbe:
    """One linear map in place of a projection and the probe on its coordinates.

    projection : (n, D) to (n, E).
    probe : On the projected coordinates (n, E).
    Returns a probe on rows (n, D), equal but for the rounding of float32.
    """
    weight = probe.weight.astype(np.float64) / probe.scale[:, None]
    bias = probe.bias - probe.mean.astype(np.float64) @ weight
    axes = projection.axes.astype(np.float64)
    return LinearProbe(projection.mean, projection.scale, (axes @ weight).astype(np.float32), bias.astype(np.float32))


def compressions() -> dict[str, Represent]:
    """PCA and class-centroid SVD by method id."""

    def pca(rows: Rows, _labels: npt.NDArray[np.integer]) -> Encode:
        return principal_axes(rows)

    def svd(rows: Rows, labels: npt.NDArray[np.integer]) -> Encode:
        return centroid_axes(rows, labels)

    return {"pca-64": pca, "centroid-svd": svd, "pca-64-unscaled": pca, "centroid-svd-unscaled": svd}
