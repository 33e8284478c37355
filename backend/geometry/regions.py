"""Dense regions of a map: where a family's points lie, and clusters found without knowing a family.

They describe the drawing, not the original space (section "Interactive Three-Dimensional Atlas" of the paper, whose
viewer draws hulls). Clusters are those of HDBSCAN (Campello, Moulavi and Sander, 2013).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from contourpy import LineType, contour_generator
from scipy.spatial.distance import pdist, squareform
from sklearn.cluster import HDBSCAN
from sklearn.neighbors import KernelDensity

from backend.geometry.projections import AXES
from backend.geometry.purity import MIN_MEMBERS
from backend.geometry.signatures import Float

NEAR = 3  # Third nearest: how far a point is dense, itself counted, and, itself apart, how wide a kernel is
MASSES = (0.5, 0.8)
CELLS = 128
REACH = 4.0
"""Kernel widths that the grid reaches beyond the outermost points; what lies further out is below 1e-4 of the mass."""
DECIMALS = 4


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
        labelled = part[["method", "dimensions", "source"]].reset_index(drop=True)
        numbers = pd.Series(cluster, dtype="Int64")
        frames.append(labelled.assign(cluster=numbers.mask(numbers < 0), strength=np.round(strength, 4)))
    return pd.concat(frames, ignore_index=True)


def family_regions(
    points: Float,
    families: Sequence[str],
    masses: Sequence[float] = MASSES,
    *,
    min_members: int = MIN_MEMBERS,
    cells: int = CELLS,
) -> pd.DataFrame:
    """Outlines of where every large enough family is dense.

    points : (n, 2), a map; families : length n; masses : Shares of the mass, each between 0 and 1.
    min_members : Smaller families have no outline; cells : Grid points along each axis.
    Returns rows of the table ``density_regions``: family, mass, ring, x, y. Rings are closed; a family of several
    clusters has several. They run anticlockwise around a region and clockwise around a hole in it. Families most of
    whose points coincide have no region and are absent.
    """
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(f"regions are drawn in two dimensions, got points of shape {points.shape}")
    names = np.asarray(families, dtype=object)
    rows = []
    for family in dict.fromkeys(families):
        members = points[names == family]
        if len(members) < max(min_members, NEAR + 1) or (width := bandwidth(members)) == 0:
            continue
        x, y, density = density_grid(members, width, cells)
        traced = contour_generator(x, y, density, line_type=LineType.Separate)
        for mass in masses:
            for ring, line in enumerate(traced.lines(level_of_mass(density, mass))):
                outline = np.asarray(line, dtype=np.float64).round(DECIMALS)
                rows.append((family, mass, ring, *outline.T.tolist()))
    return pd.DataFrame(rows, columns=["family", "mass", "ring", "x", "y"])


def density_grid(members: Float, width: float, cells: int = CELLS) -> tuple[Float, Float, Float]:
    """Kernel density of points on a grid that reaches beyond them.

    members : (m, 2).
    width : Standard deviation of a kernel, the same in every direction: the axes of a map mean nothing.
    Returns x and y (cells,), and the density (cells, cells), whose rows are y.
    """
    low, high = members.min(axis=0) - REACH * width, members.max(axis=0) + REACH * width
    x, y = (np.linspace(low[axis], high[axis], cells) for axis in (0, 1))
    grid = np.stack([part.ravel() for part in np.meshgrid(x, y)], axis=1)
    density: Float = np.exp(KernelDensity(bandwidth=width).fit(members).score_samples(grid))
    return x, y, density.reshape(cells, cells)


def bandwidth(members: Float) -> float:
    """Width of the kernels: the median distance to the third nearest relative.

    A local distance, so that neither a family of several clusters nor one far relative widens it.

    members : (m, 2), m > 3. Returns 0 when most points coincide.
    """
    return float(np.median(np.sort(squareform(pdist(members)), axis=1)[:, NEAR]))


def level_of_mass(density: Float, mass: float) -> float:
    """Density above which the smallest region with a share of all mass lies.

    density : On an even grid; mass : Between 0 and 1.
    """
    if not 0 < mass < 1:
        raise ValueError(f"mass must lie between 0 and 1, got {mass}")
    falling = np.sort(density, axis=None)[::-1]
    shares = falling.cumsum() / falling.sum()
    return float(falling[int(np.searchsorted(shares, mass))])
