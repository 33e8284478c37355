"""Quality of maps: how far can a projection be trusted, and does it depend on its seed and perplexity?

Section "Prompt and Projection Stability" of the paper: trustworthiness, overlap of neighbourhoods with the original
space, and the sweep over seeds and perplexities of t-SNE, whose rows carry a method of their own.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from scipy.spatial.distance import pdist, squareform

from backend.geometry.neighborhoods import directed_ranks, neighbor_order, top_k_jaccard
from backend.geometry.projections import (
    DIMENSIONS,
    METHODS,
    Method,
    Projection,
    ProjectionSettings,
    project,
    projection_frame,
)
from backend.geometry.purity import MIN_MEMBERS, mean_purity
from backend.geometry.signatures import Float, Index

SWEEP = "tsne-sweep"
SWEEP_SEEDS = (0, 1, 2, 3, 4)
SWEEP_PERPLEXITIES = (10.0, 15.0, 30.0, 50.0)


def trustworthiness(cosine: Float, coordinates: Float, k: int) -> float:
    """Are the neighbours on the map neighbours in the original space?

    Venna and Kaski's measure: points among the k nearest on the map are charged with their rank beyond k.

    cosine : (n, n); coordinates : (n, dimensions).
    k : Below n / 2.
    Returns 1 when no neighbour on the map is a stranger.
    """
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
    """Quality of a projection as rows of the table ``projection_quality``.

    Returns columns method, dimensions, metric (trustworthiness_5, trustworthiness_10, knn_jaccard_10), value, settings
    (JSON; ``k`` is the neighbourhood really used, smaller than the name says on a small roster).
    """
    return _quality_rows(projection, _qualities(cosine, projection.coordinates))


def project_all(
    cosine: Float,
    sources: Sequence[str],
    settings: ProjectionSettings | None = None,
    methods: Sequence[Method] = METHODS,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Every method in two and three dimensions.

    cosine : (n, n); sources : length n.
    Returns rows of the tables ``projections`` and ``projection_quality``.
    """
    done = [project(cosine, method, dimensions, settings) for method in methods for dimensions in DIMENSIONS]
    points = pd.concat([projection_frame(projection, sources) for projection in done], ignore_index=True)
    quality = pd.concat([quality_frame(cosine, projection) for projection in done], ignore_index=True)
    return points, quality


def sweep(
    cosine: Float,
    families: Sequence[str],
    *,
    seeds: Sequence[int] = SWEEP_SEEDS,
    perplexities: Sequence[float] = SWEEP_PERPLEXITIES,
    dimensions: int = 2,
    settings: ProjectionSettings | None = None,
    min_members: int = MIN_MEMBERS,
) -> pd.DataFrame:
    """Does the map depend on its seed and perplexity?

    cosine : (n, n); families : length n.
    seeds, perplexities : Every combination is run.
    settings : Everything but seed and perplexity.
    min_members : Of the families that purity is averaged over.
    Returns rows of the table ``projection_quality`` under the method 'tsne-sweep'; seed and perplexity stand in
    settings. Beside the metrics of :func:`quality_frame` family_purity_5: purity@5 among the points.
    """
    base = settings or ProjectionSettings()
    frames = []
    for seed in seeds:
        for perplexity in perplexities:
            projection = project(cosine, "tsne", dimensions, replace(base, seed=seed, perplexity=perplexity))
            rows = _qualities(cosine, projection.coordinates)
            k = min(5, len(cosine) - 1)
            purity = mean_purity(_map_order(projection.coordinates), families, k, min_members)
            if not np.isnan(purity):
                rows.append(("family_purity_5", purity, k))
            frames.append(_quality_rows(projection, rows).assign(method=SWEEP))
    return pd.concat(frames, ignore_index=True)


def map_distances(coordinates: Float) -> Float:
    """Euclidean distances between points, shape (n, n)."""
    distances: Float = squareform(pdist(coordinates))
    return distances


def _map_order(coordinates: Float) -> Index:
    return neighbor_order(-map_distances(coordinates))


def _qualities(cosine: Float, coordinates: Float) -> list[tuple[str, float, int]]:
    n = len(cosine)
    rows = []
    for k in (5, 10):
        near = min(k, (n - 1) // 2)
        rows.append((f"trustworthiness_{k}", trustworthiness(cosine, coordinates, near), near))
    near = min(10, n - 1)
    rows.append(("knn_jaccard_10", neighborhood_overlap(cosine, coordinates, near), near))
    return rows


def _quality_rows(projection: Projection, rows: Sequence[tuple[str, float, int]]) -> pd.DataFrame:
    return pd.DataFrame(
        [
            {
                "method": projection.method,
                "dimensions": projection.dimensions,
                "metric": metric,
                "value": value,
                "settings": json.dumps({**projection.settings, "k": k}, sort_keys=True),
            }
            for metric, value, k in rows
        ]
    )
