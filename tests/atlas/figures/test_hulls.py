"""Hulls: they hold their cluster, take the colour of its family, and let degenerate clusters pass."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from atlas.figures.map import FAINT, MARGIN, cluster_colours, hull_edges, hull_shapes, map_figure
from atlas.theme import TOKENS, faded, family_marks, translucent

MARKS = family_marks(["Qwen", "GPT"])


@pytest.fixture
def points() -> pd.DataFrame:
    """Two clusters of eight, the first mostly of one family."""
    rng = np.random.default_rng(5)
    families = ["Qwen"] * 5 + ["GPT"] * 3 + ["Qwen", "GPT"] * 4
    places = np.repeat([[-0.5, 0.0, 0.2], [0.5, 0.1, -0.4]], 8, axis=0) + 0.1 * rng.normal(size=(16, 3))
    return pd.DataFrame(
        {"source": [f"s{n}" for n in range(16)], "family": families, "cluster": np.repeat([0, 1], 8)}
    ).assign(**dict(zip("xyz", places.T, strict=True)), name="n", access="local")


def corners(path: str) -> np.ndarray:
    return np.array([[float(value) for value in pair.split(",")] for pair in re.findall(r"-?[\d.]+,-?[\d.]+", path)])


def test_a_cluster_has_the_colour_of_most_of_its_sources(points: pd.DataFrame) -> None:
    assert cluster_colours(points, MARKS, "dark") == {0: MARKS["Qwen"].dark, 1: TOKENS["dark"]["soft"]}


def test_an_outline_goes_around_its_points(points: pd.DataFrame) -> None:
    shapes = hull_shapes(points, {0: "#123456", 1: "#abcdef"})
    assert [shape["fillcolor"] for shape in shapes] == [translucent("#123456", 0.1), translucent("#abcdef", 0.1)]
    for cluster, shape in enumerate(shapes):
        ring = corners(shape["path"])
        held = points.loc[points["cluster"] == cluster, ["x", "y"]].to_numpy()
        ahead = np.roll(ring, -1, axis=0) - ring
        away = held[:, None] - ring[None]
        side = ahead[:, 0] * away[..., 1] - ahead[:, 1] * away[..., 0]
        assert (side > 0).all()  # strictly on the inner side of every edge
        distances = np.linalg.norm(held[:, None] - ring[None], axis=2)
        assert abs(distances - MARGIN).min(axis=0).max() < 1e-3  # rounded to three decimals


def test_edges_of_the_scene_join_corners_of_one_cluster(points: pd.DataFrame) -> None:
    trace = hull_edges(points, {1: "#abcdef"}, "dark")
    ends = np.array([trace[axis] for axis in "xyz"], dtype=object).T.reshape(-1, 3, 3)
    assert all(value is None for value in ends[:, 2].ravel())
    lines = ends[:, :2].astype(float)
    held = points.loc[points["cluster"] == 1, ["x", "y", "z"]].to_numpy()
    distances = np.linalg.norm(lines[:, :, None] - held, axis=3)
    assert abs(distances - MARGIN).min(axis=2).max() < 1e-9
    vertices = {tuple(end) for line in lines for end in line}
    assert len(lines) == 3 * len(vertices) - 6  # Euler, all faces triangles
    assert trace["line"]["color"] == [faded("#abcdef", FAINT, "dark")] * len(trace["x"])


def test_points_of_one_line_or_place_break_nothing() -> None:
    line = pd.DataFrame({"cluster": 0, "x": np.arange(6.0), "y": 0.0, "z": 0.0})
    place = pd.DataFrame({"cluster": 1, "x": [0.5] * 6, "y": 0.5, "z": 0.5})
    both, colours = pd.concat([line, place]), {0: "#123456", 1: "#abcdef"}
    for shape in hull_shapes(both, colours):
        assert np.isfinite(corners(shape["path"])).all()
    drawn = hull_edges(both, colours, "light")
    assert np.isfinite([value for value in drawn["x"] if value is not None]).all()


def test_a_map_draws_clusters_that_have_a_source_in_front(points: pd.DataFrame) -> None:
    clusters = points[["source", "cluster"]].assign(cluster=[0] * 8 + [1] * 8)
    clusters = clusters[~clusters["source"].isin(["s8", "s10", "s12", "s14"])]  # of the second only GPT is left
    bare, none = points.drop(columns="cluster"), pd.DataFrame({"source": [], "neighbor": [], "rank": []})
    for families, count in (((), 2), (("Qwen",), 1)):
        flat = map_figure(bare, none, MARKS, theme="dark", dimensions=2, families=families, clusters=clusters)
        assert len(go.Figure(flat).layout.shapes) == count
        solid = map_figure(bare, none, MARKS, theme="dark", dimensions=3, families=families, clusters=clusters)
        assert len(set(solid["data"][-1]["line"]["color"])) == count and solid["layout"]["shapes"] == []
        assert [trace["name"] for trace in flat["data"]] == [trace["name"] for trace in solid["data"]]
    assert map_figure(bare, none, MARKS, theme="dark", dimensions=3)["data"][-1]["x"] == []
