"""Clusters of a map: groups that are there, noise, order, degenerate maps."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from backend.geometry.projections import cluster_frame, density_clusters


def groups(dimensions: int, sizes: tuple[int, ...] = (6, 12, 9)) -> tuple[np.ndarray, np.ndarray]:
    """Tight groups far from each other and two lonely points between them."""
    rng = np.random.default_rng(3)
    middles = 10 * np.eye(3)[: len(sizes), :dimensions] + 5
    parts = [middle + 0.1 * rng.normal(size=(size, dimensions)) for middle, size in zip(middles, sizes, strict=True)]
    lonely = np.stack([np.full(dimensions, -20.0), np.full(dimensions, 40.0)])
    return np.vstack([*parts, lonely]), np.repeat([*range(len(sizes)), -1], [*sizes, 2])


@pytest.mark.parametrize("dimensions", [2, 3])
def test_groups_are_found_largest_first_and_lonely_points_are_in_none(dimensions: int) -> None:
    points, truth = groups(dimensions)
    cluster, strength = density_clusters(points)
    assert [set(cluster[truth == one]) for one in (0, 1, 2, -1)] == [{2}, {0}, {1}, {-1}]
    assert (strength[truth < 0] == 0).all() and (strength[truth >= 0] > 0).all()


def test_numbers_do_not_hang_on_scale_or_place() -> None:
    points, _ = groups(2)
    moved = density_clusters(7 * points - 100)
    np.testing.assert_array_equal(moved[0], density_clusters(points)[0])


def test_groups_of_one_size_are_numbered_as_they_come() -> None:
    points, truth = groups(3, (7, 7, 7))
    np.testing.assert_array_equal(density_clusters(points)[0], truth)


@pytest.mark.parametrize("points", [np.zeros((0, 2)), np.ones((4, 3)), np.random.default_rng(0).normal(size=(4, 2))])
def test_too_few_points_are_no_cluster(points: np.ndarray) -> None:
    cluster, strength = density_clusters(points)
    assert (cluster == -1).all() and (strength == 0).all() and len(cluster) == len(points)


def test_every_map_of_a_reader_has_its_own() -> None:
    flat, truth = groups(2)
    deep, _ = groups(3)
    names = [f"s{number}" for number in range(len(truth))]
    maps = [
        pd.DataFrame(
            {"method": "tsne", "dimensions": 2, "source": names, "x": flat[:, 0], "y": flat[:, 1], "z": np.nan}
        ),
        pd.DataFrame({"method": "pca", "dimensions": 3, "source": names, **dict(zip("xyz", deep.T, strict=True))}),
    ]
    frame = cluster_frame(pd.concat(maps, ignore_index=True))
    assert frame.columns.tolist() == ["method", "dimensions", "source", "cluster", "strength"]
    for part in (frame[:29], frame[29:]):
        assert part["source"].tolist() == names
        assert part["cluster"].isna().tolist() == (truth < 0).tolist()
        assert part["cluster"].dropna().value_counts().to_dict() == {0: 12, 1: 9, 2: 6}
