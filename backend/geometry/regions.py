"""Density regions: where on a map does a family live?

Goes with section "Interactive Three-Dimensional Atlas" of the paper. The density of a family's points in two
dimensions is estimated with Gaussian kernels, and the outline of the smallest region that holds a given share of its
mass is traced. It describes the drawing, not the original space: neighbours are always looked up there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from contourpy import LineType, contour_generator
from scipy.spatial.distance import pdist, squareform
from sklearn.neighbors import KernelDensity

from backend.geometry.purity import MIN_MEMBERS
from backend.geometry.signatures import Float

MASSES = (0.5, 0.8)
CELLS = 128
REACH = 4.0
"""Kernel widths that the grid reaches beyond the outermost points; what lies further out is below 1e-4 of the mass."""
NEAR = 3
"""A kernel is as wide as a typical member's distance to its third nearest relative."""
DECIMALS = 4


def family_regions(
    points: Float,
    families: Sequence[str],
    masses: Sequence[float] = MASSES,
    *,
    min_members: int = MIN_MEMBERS,
    cells: int = CELLS,
) -> pd.DataFrame:
    """Outlines of where every large enough family is dense.

    points : (n, 2), a map.
    families : length n.
    masses : Shares of the mass, each between 0 and 1.
    min_members : Smaller families have no outline.
    cells : Grid points along each axis.
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
                rows.append(
                    {
                        "family": family,
                        "mass": mass,
                        "ring": ring,
                        "x": outline[:, 0].tolist(),
                        "y": outline[:, 1].tolist(),
                    }
                )
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

    members : (m, 2), m > 3.
    Returns 0 when most points coincide.
    """
    return float(np.median(np.sort(squareform(pdist(members)), axis=1)[:, NEAR]))


def level_of_mass(density: Float, mass: float) -> float:
    """Density above which the smallest region with a share of all mass lies.

    density : On an even grid.
    mass : Between 0 and 1.
    """
    if not 0 < mass < 1:
        raise ValueError(f"mass must lie between 0 and 1, got {mass}")
    falling = np.sort(density, axis=None)[::-1]
    held = falling.cumsum() / falling.sum()
    return float(falling[int(np.searchsorted(held, mass))])
