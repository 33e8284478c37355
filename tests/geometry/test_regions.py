"""Outlines of families: mass inside, orientation, clusters, holes, bandwidth against loops."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from backend.geometry.projections import bandwidth, density_grid, family_regions, level_of_mass


def area(row: pd.Series) -> float:
    """Signed area by the shoelace formula; positive when the ring runs anticlockwise."""
    x, y = np.array(row["x"]), np.array(row["y"])
    return float((x[:-1] * y[1:] - x[1:] * y[:-1]).sum() / 2)


def inside(row: pd.Series, points: np.ndarray) -> np.ndarray:
    """Even-odd rule, edge by edge."""
    found = np.zeros(len(points), dtype=bool)
    x, y = row["x"], row["y"]
    for i in range(len(x) - 1):
        crosses = (y[i] > points[:, 1]) != (y[i + 1] > points[:, 1])
        if crosses.any():
            at = x[i] + (points[:, 1] - y[i]) * (x[i + 1] - x[i]) / (y[i + 1] - y[i] or 1.0)
            found ^= crosses & (points[:, 0] < at)
    return found


def test_outlines_hold_their_share_of_a_normal_cloud() -> None:
    points = np.random.default_rng(0).normal(size=(400, 2)) * [2.0, 0.5] + [1.0, -3.0]
    frame = family_regions(points, ["a"] * 400)
    assert frame.columns.tolist() == ["family", "mass", "ring", "x", "y"]
    for mass in (0.5, 0.8):
        rings = frame[frame["mass"] == mass]
        held = sum(inside(row, points).astype(int) for _, row in rings.iterrows()) % 2
        # The kernels sit on the points themselves, so that somewhat more than the share lies inside.
        assert mass - 0.02 < held.mean() < mass + 0.1
        # An ellipse of a normal distribution holds a share m within radius^2 = -2 log(1 - m); holes count against it.
        total = sum(area(row) for _, row in rings.iterrows())
        assert total == pytest.approx(np.pi * 2.0 * 0.5 * -2 * np.log(1 - mass), rel=0.25)
    for _, row in frame.iterrows():
        assert (row["x"][0], row["y"][0]) == (row["x"][-1], row["y"][-1])


def test_two_clusters_have_two_rings_and_small_families_none() -> None:
    rng = np.random.default_rng(1)
    points = np.concatenate([0.3 * rng.normal(size=(12, 2)), 0.3 * rng.normal(size=(12, 2)) + 10, [[3.0, 3]] * 4])
    frame = family_regions(points, ["two"] * 24 + ["few"] * 4)
    assert set(frame["family"]) == {"two"}
    outer = frame[frame["mass"] == 0.8]
    assert outer["ring"].tolist() == list(range(len(outer)))
    assert len(outer) >= 2
    for _, row in outer.iterrows():
        assert np.ptp(row["x"]) < 8  # none reaches across the gap


def test_a_hole_runs_the_other_way() -> None:
    angle = np.linspace(0, 2 * np.pi, 80, endpoint=False)
    frame = family_regions(np.stack([np.cos(angle), np.sin(angle)], axis=1), ["ring"] * 80, (0.8,))
    areas = sorted(area(row) for _, row in frame.iterrows())
    assert len(areas) == 2
    assert areas[0] < 0 < areas[1]
    assert areas[1] > abs(areas[0])


def test_families_without_an_area_are_absent() -> None:
    assert family_regions(np.ones((6, 2)), ["a"] * 6).columns.tolist() == ["family", "mass", "ring", "x", "y"]
    assert family_regions(np.ones((6, 2)), ["a"] * 6).empty
    line = np.stack([np.arange(6.0), 2 * np.arange(6.0)], axis=1)
    assert set(family_regions(line, ["a"] * 6)["mass"]) == {0.5, 0.8}
    with pytest.raises(ValueError, match="two dimensions"):
        family_regions(np.ones((6, 3)), ["a"] * 6)


def test_density_and_bandwidth_against_loops() -> None:
    points = np.random.default_rng(2).normal(size=(9, 2))
    third = [sorted(float(np.hypot(*(a - b))) for b in points)[3] for a in points]  # the nearest is the point itself
    width = bandwidth(points)
    assert width == pytest.approx(np.median(third))
    x, y, density = density_grid(points, width, cells=30)
    for i, j in ((3, 4), (15, 12), (20, 25)):
        gaps = [(x[j] - a) ** 2 + (y[i] - b) ** 2 for a, b in points]
        slow = np.mean([np.exp(-g / (2 * width**2)) for g in gaps]) / (2 * np.pi * width**2)
        assert density[i, j] == pytest.approx(slow)
    assert density.sum() * (x[1] - x[0]) * (y[1] - y[0]) == pytest.approx(1.0, abs=0.01)


def test_level_against_a_loop() -> None:
    _, _, density = density_grid(np.random.default_rng(3).normal(size=(20, 2)), 0.4, cells=40)
    for mass in (0.5, 0.8):
        held = 0.0
        for value in sorted(density.ravel().tolist(), reverse=True):
            held += value
            if held >= mass * density.sum():
                break
        assert level_of_mass(density, mass) == value
    with pytest.raises(ValueError, match="between 0 and 1"):
        level_of_mass(density, 1.0)
