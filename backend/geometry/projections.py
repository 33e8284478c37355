"""Projections: signatures as points of a map, their quality, and dense regions.

Sections "Interactive Three-Dimensional Atlas" and "Cross-Domain Model-Signature Geometry" of the paper. Every
projection starts from cosines of the original space. Dense regions describe the drawing: where a family's points lie,
and clusters found without knowing a family, by HDBSCAN (Campello, Moulavi and Sander, 2013).
"""

from __future__ import annotations

import contextlib
import functools
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import numpy as np
import pandas as pd
from contourpy import LineType, contour_generator
from scipy.spatial.distance import pdist, squareform
from sklearn.cluster import HDBSCAN
from sklearn.manifold import TSNE
from sklearn.neighbors import KernelDensity
from threadpoolctl import threadpool_limits

from backend.errors import AtlasError
from backend.geometry.neighborhoods import MIN_MEMBERS, directed_ranks, mean_purity, neighbor_order, top_k_jaccard
from backend.geometry.signatures import SPACES, Float, Index, cosine_distance, cosine_similarity, joint_signatures
from backend.parallel import each

Method = Literal["tsne", "umap", "pca"]
METHODS: tuple[Method, ...] = ("tsne", "umap", "pca")
DIMENSIONS = (2, 3)
AXES = ("x", "y", "z")
MIN_SOURCES = 3
SWEEP = "tsne-sweep"
SWEEP_SEEDS = (0, 1, 2, 3, 4)
SWEEP_PERPLEXITIES = (10.0, 15.0, 30.0, 50.0)


@dataclass(frozen=True)
class ProjectionSettings:
    """Settings of all projections; what a small roster forces down is stated with the result."""

    seed: int = 42
    perplexity: float = 15.0  # Of t-SNE; at most 0.6 (n - 1), because at n - 1 all neighbours count alike
    iterations: int = 2_000  # Of t-SNE
    neighbors: int = 15  # Of UMAP; at most n - 1
    min_dist: float = 0.1  # Of UMAP


@dataclass(frozen=True)
class Projection:
    """Points of one projection."""

    method: Method
    coordinates: Float  # (n, dimensions), in -1..1, the widest axis from end to end
    settings: dict[str, Any]  # in use, for JSON; ``scale``: a unit of the box in the method's own unit

    @property
    def dimensions(self) -> int:
        """2 or 3."""
        return int(self.coordinates.shape[1])


def project(cosine: Float, method: Method, dimensions: int, settings: ProjectionSettings | None = None) -> Projection:
    """Project sources to two or three dimensions from their cosines (n, n).

    t-SNE is exact with a random start, UMAP starts from principal components. AtlasError with fewer than three sources.
    """
    settings = settings or ProjectionSettings()
    if len(cosine) < MIN_SOURCES:
        problem = f"A map needs at least {MIN_SOURCES} sources, got {len(cosine)}"
        raise AtlasError(problem, "Enroll more sources or choose a roster")
    if dimensions not in DIMENSIONS:
        raise ValueError(f"dimensions must be 2 or 3, got {dimensions}")
    if method == "pca":
        raw, used = _pca(cosine, dimensions)
    else:
        raw, used = (_tsne if method == "tsne" else _umap)(cosine, dimensions, settings)
    coordinates, scale = unit_box(raw)
    return Projection(method, coordinates, {**used, "metric": "cosine", "scale": scale})


def unit_box(points: Float) -> tuple[Float, float]:
    """Move and scale points into -1..1 by one factor; also the length of one unit, 0 when all points coincide."""
    low, high = points.min(axis=0), points.max(axis=0)
    scale = float((high - low).max() / 2)
    centred = points - (low + high) / 2
    return (centred / scale if scale > 0 else np.zeros_like(centred)), scale


def projection_frame(projection: Projection, sources: Sequence[str]) -> pd.DataFrame:
    """Points as rows of the table ``projections``: method, dimensions, source, x, y, z (None in two dimensions)."""
    points = dict(zip(AXES, projection.coordinates.T, strict=False))
    kind = {"method": projection.method, "dimensions": projection.dimensions, "source": list(sources)}
    return pd.DataFrame({**kind, "z": np.full(len(sources), np.nan), **points})[[*kind, *AXES]]


def joint_projection(
    first: Float, second: Float, sources: Sequence[str], domains: tuple[str, str], *, method: Method = "tsne",
    dimensions: int = 3, settings: ProjectionSettings | None = None,
) -> pd.DataFrame:  # fmt: skip
    """Two domains (n, w) on one map, raw and centred: 4 n rows of the table ``joint_projections``."""
    frames = []
    cosines = (cosine_similarity(joint_signatures(first, second, space)) for space in SPACES)
    steps = ((cosine, method, dimensions, settings) for cosine in cosines)
    for space, projection in zip(SPACES, each(project, steps), strict=True):
        frame = projection_frame(projection, [*sources, *sources])
        frame.insert(0, "domain", np.repeat(np.asarray(domains, dtype=object), len(sources)))
        frame.insert(0, "variant", space)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def _tsne(cosine: Float, dimensions: int, settings: ProjectionSettings) -> tuple[Float, dict[str, Any]]:
    perplexity = round(min(settings.perplexity, 0.6 * (len(cosine) - 1)), 6)
    # The library raises its rate n / 48 to at least 50. In three dimensions, and below 50 points, that throws points
    # far out (measured: KL .27 against .19 at 165 points in 3-D, .46 against .09 at 50); the paper's 2-D map keeps it.
    rate = len(cosine) / 48
    if dimensions == 2 and len(cosine) >= 50:
        rate = max(rate, 50.0)
    model = TSNE(
        n_components=dimensions, perplexity=perplexity, learning_rate=rate, max_iter=settings.iterations,
        metric="precomputed", init="random", method="exact", random_state=settings.seed,
    )  # fmt: skip
    points = model.fit_transform(cosine_distance(cosine)).astype(np.float64)
    used = {"algorithm": "exact", "init": "random", "iterations": settings.iterations, "perplexity": perplexity}
    used |= {"kl_divergence": round(float(model.kl_divergence_), 6), "learning_rate": round(rate, 6)}
    return points, used | {"seed": settings.seed}


def _umap(cosine: Float, dimensions: int, settings: ProjectionSettings) -> tuple[Float, dict[str, Any]]:
    umap = _compiled_umap()
    neighbors = min(settings.neighbors, len(cosine) - 1)
    start, _ = unit_box(_pca(cosine, dimensions)[0])
    # UMAP stretches each axis of its start to one length, which an empty axis (three sources, 3-D) cannot take.
    start = start + np.random.default_rng(settings.seed).normal(scale=1e-4, size=start.shape)
    model = umap(
        n_neighbors=neighbors, n_components=dimensions, metric="precomputed", init=start.astype(np.float32),
        min_dist=settings.min_dist, random_state=settings.seed, n_jobs=1,
    )  # fmt: skip
    # Its compiler raises the threads of OpenMP, which torch shares: these decide about last bits of a proxy's states.
    with warnings.catch_warnings(), threadpool_limits(user_api="openmp"):
        warnings.filterwarnings("ignore", message=".*precomputed metric.*")
        points = model.fit_transform(cosine_distance(cosine)).astype(np.float64)
    used = {"init": "pca", "min_dist": settings.min_dist, "neighbors": neighbors, "seed": settings.seed}
    return points, used


@functools.cache
def _compiled_umap() -> Callable[..., Any]:
    """UMAP, whose compiled parts are saved beside it: a process that has to compile them takes 10 to 20 seconds."""
    from numba.core.registry import CPUDispatcher
    from umap import UMAP  # takes seconds, so it is imported where it is used

    parts = (
        part
        for name, module in tuple(sys.modules.items())
        if name.startswith("umap.")
        for part in vars(module).values()
    )
    for part in parts:
        if isinstance(part, CPUDispatcher):
            with contextlib.suppress(RuntimeError):  # no folder can be written to
                part.enable_caching()
    made: Callable[..., Any] = UMAP
    return made


def _pca(cosine: Float, dimensions: int) -> tuple[Float, dict[str, Any]]:
    """Principal components of unit vectors out of their cosines: centre both ways, then eigenvectors."""
    centred = cosine - cosine.mean(axis=0) - cosine.mean(axis=1)[:, None] + cosine.mean()
    values, vectors = np.linalg.eigh(centred)
    values = np.maximum(values[::-1], 0.0)
    points = vectors[:, ::-1][:, :dimensions] * np.sqrt(values[:dimensions])
    # An eigenvector's sign is arbitrary: the source farthest out lies on the positive side.
    farthest = np.abs(points).argmax(axis=0)
    points = points * np.where(points[farthest, np.arange(dimensions)] < 0, -1.0, 1.0)
    total = values.sum()
    shares = [round(float(v / total), 6) if total > 0 else 0.0 for v in values[:dimensions]]
    return points, {"explained_variance": shares}


def trustworthiness(cosine: Float, coordinates: Float, k: int) -> float:
    """Venna and Kaski's measure: 1 when all of the k < n / 2 nearest on the map are neighbours in the original."""
    n = len(cosine)
    if not 1 <= k < n / 2:
        raise ValueError(f"k must be at least 1 and below {n / 2}, got {k}")
    ranks = np.take_along_axis(directed_ranks(cosine), _map_order(coordinates)[:, :k], axis=1)
    excess = np.maximum(ranks - k, 0).sum()
    return float(1.0 - excess * 2.0 / (n * k * (2 * n - 3 * k - 1)))


def neighborhood_overlap(cosine: Float, coordinates: Float, k: int) -> float:
    """Mean Jaccard overlap of the k nearest on the map and in the original space, 0..1."""
    return float(top_k_jaccard(neighbor_order(cosine), _map_order(coordinates), k).mean())


def quality_frame(cosine: Float, projection: Projection) -> pd.DataFrame:
    """Rows of ``projection_quality``; ``k`` in the JSON settings is the neighbourhood in use on a small roster."""
    return _quality_rows(projection, _qualities(cosine, projection.coordinates))


def project_all(
    cosine: Float, sources: Sequence[str], settings: ProjectionSettings, methods: Sequence[Method] = METHODS
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Every method in two and three dimensions: rows of the tables ``projections`` and ``projection_quality``."""
    steps = ((cosine, method, dimensions, settings) for method in methods for dimensions in DIMENSIONS)
    done = list(each(project, steps))
    points = pd.concat([projection_frame(projection, sources) for projection in done], ignore_index=True)
    quality = pd.concat([quality_frame(cosine, projection) for projection in done], ignore_index=True)
    return points, quality


def sweep(
    cosine: Float, families: Sequence[str], *, seeds: Sequence[int] = SWEEP_SEEDS,
    perplexities: Sequence[float] = SWEEP_PERPLEXITIES, settings: ProjectionSettings | None = None,
) -> pd.DataFrame:  # fmt: skip
    """A plane map by every seed and perplexity: rows of ``projection_quality`` with purity@5 of the points."""
    base = settings or ProjectionSettings()
    frames = []
    tried = (replace(base, seed=seed, perplexity=perplexity) for seed, perplexity in product(seeds, perplexities))
    for projection in each(project, ((cosine, "tsne", 2, one) for one in tried)):
        rows = _qualities(cosine, projection.coordinates)
        k = min(5, len(cosine) - 1)
        purity = mean_purity(_map_order(projection.coordinates), families, k)
        if not np.isnan(purity):
            rows.append(("family_purity_5", purity, k))
        frames.append(_quality_rows(projection, rows).assign(method=SWEEP))
    return pd.concat(frames, ignore_index=True)


def map_distances(coordinates: Float) -> Float:
    """Euclidean distances between points, shape (n, n)."""
    return squareform(pdist(coordinates))


def _map_order(coordinates: Float) -> Index:
    return neighbor_order(-map_distances(coordinates))


def _qualities(cosine: Float, coordinates: Float) -> list[tuple[str, float, int]]:
    n = len(cosine)
    few = {k: min(k, (n - 1) // 2) for k in (5, 10)}
    rows = [(f"trustworthiness_{k}", trustworthiness(cosine, coordinates, near), near) for k, near in few.items()]
    return [*rows, ("knn_jaccard_10", neighborhood_overlap(cosine, coordinates, min(10, n - 1)), min(10, n - 1))]


def _quality_rows(projection: Projection, rows: Sequence[tuple[str, float, int]]) -> pd.DataFrame:
    frame = pd.DataFrame(rows, columns=["metric", "value", "k"])
    frame["settings"] = [json.dumps({**projection.settings, "k": k}, sort_keys=True) for _, _, k in rows]
    frame = frame.assign(method=projection.method, dimensions=projection.dimensions)
    return frame[["method", "dimensions", "metric", "value", "settings"]]


NEAR = 3  # Third nearest: how far a point is dense, itself counted, and, itself apart, how wide a kernel is
MASSES = (0.5, 0.8)
CELLS = 128
REACH = 4.0  # Kernel widths that the grid reaches beyond the outermost points; below 1e-4 of the mass lies further out
DECIMALS = 4


def density_clusters(points: Float) -> tuple[np.ndarray, Float]:
    """Group the points of a map (n, 2) or (n, 3) by density: leaves of the cluster tree.

    A cluster has at least as many points as a family whose purity is averaged. Returns cluster (n,) from 0, the largest
    first (ties to the first point), -1 in none; and strength (n,), how firmly a point belongs, 0 to 1.
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
    """Rows of ``clusters`` (cluster missing where it is in none) from rows of the table ``projections`` of a reader."""
    frames = []
    for _, part in points.groupby(["method", "dimensions"], sort=False):
        axes = list(AXES[: int(part["dimensions"].iloc[0])])
        cluster, strength = density_clusters(part[axes].to_numpy(dtype=np.float64))
        labelled = part[["method", "dimensions", "source"]].reset_index(drop=True)
        numbers = pd.Series(cluster, dtype="Int64")
        frames.append(labelled.assign(cluster=numbers.mask(numbers < 0), strength=np.round(strength, 4)))
    return pd.concat(frames, ignore_index=True)


def family_regions(points: Float, families: Sequence[str], masses: Sequence[float] = MASSES) -> pd.DataFrame:
    """Outlines of where every large enough family is dense on a map (n, 2): rows of ``density_regions``.

    Rings are closed, anticlockwise around a region and clockwise around a hole in it.
    """
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(f"regions are drawn in two dimensions, got points of shape {points.shape}")
    names = np.asarray(families, dtype=object)
    rows = []
    for family in dict.fromkeys(families):
        members = points[names == family]
        if len(members) < MIN_MEMBERS or (width := bandwidth(members)) == 0:
            continue
        x, y, density = density_grid(members, width)
        traced = contour_generator(x, y, density, line_type=LineType.Separate)
        for mass in masses:
            for ring, line in enumerate(traced.lines(level_of_mass(density, mass))):
                outline = np.asarray(line, dtype=np.float64).round(DECIMALS)
                rows.append((family, mass, ring, *outline.T.tolist()))
    return pd.DataFrame(rows, columns=["family", "mass", "ring", "x", "y"])


def density_grid(members: Float, width: float, cells: int = CELLS) -> tuple[Float, Float, Float]:
    """x, y (cells,) beyond points (m, 2), and density, rows y, by round kernels of deviation ``width``."""
    low, high = members.min(axis=0) - REACH * width, members.max(axis=0) + REACH * width
    x, y = (np.linspace(low[axis], high[axis], cells) for axis in (0, 1))
    grid = np.stack([part.ravel() for part in np.meshgrid(x, y)], axis=1)
    density: Float = np.exp(KernelDensity(bandwidth=width).fit(members).score_samples(grid))
    return x, y, density.reshape(cells, cells)


def bandwidth(members: Float) -> float:
    """Width of the kernels: the median distance (0 if most coincide) of (m, 2), m > 3, to the third nearest."""
    return float(np.median(np.sort(squareform(pdist(members)), axis=1)[:, NEAR]))


def level_of_mass(density: Float, mass: float) -> float:
    """Density, on an even grid, above which the smallest region with a share of all mass lies."""
    if not 0 < mass < 1:
        raise ValueError(f"mass must lie between 0 and 1, got {mass}")
    falling = np.sort(density, axis=None)[::-1]
    shares = falling.cumsum() / falling.sum()
    return float(falling[int(np.searchsorted(shares, mass))])
