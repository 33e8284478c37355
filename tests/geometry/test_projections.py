"""Projections: shapes and boxes, small rosters, determinism, and quality against scikit-learn and loops."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import PCA
from sklearn.manifold import trustworthiness as library_trustworthiness

from backend.errors import AtlasError
from backend.geometry.neighborhoods import neighbor_order
from backend.geometry.projections import (
    METHODS,
    ProjectionSettings,
    joint_projection,
    map_distances,
    neighborhood_overlap,
    project,
    project_all,
    projection_frame,
    quality_frame,
    sweep,
    trustworthiness,
    unit_box,
)
from backend.geometry.signatures import cosine_distance, cosine_similarity, signatures, unit_rows

QUICK = ProjectionSettings(iterations=300)


def vectors(n: int = 60, seed: int = 0) -> np.ndarray:
    """Signatures in four groups of sources."""
    rng = np.random.default_rng(seed)
    centres = 3 * rng.normal(size=(4, 24))
    return signatures(centres[np.arange(n) % 4] + rng.normal(size=(n, 24)))


@pytest.mark.parametrize("method", ["tsne", "pca"])
@pytest.mark.parametrize("dimensions", [2, 3])
def test_groups_stay_together(method: str, dimensions: int) -> None:
    projection = project(cosine_similarity(vectors()), method, dimensions)  # type: ignore[arg-type]
    points = projection.coordinates
    assert points.shape == (60, dimensions)
    assert projection.dimensions == dimensions
    assert np.ptp(points, axis=0).max() == pytest.approx(2.0)
    assert np.abs(points).max() <= 1.0 + 1e-12
    nearest = neighbor_order(-map_distances(points))[:, 0]
    assert np.mean(nearest % 4 == np.arange(60) % 4) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("dimensions", [2, 3])
def test_umap_keeps_groups_together(dimensions: int) -> None:
    cosine = cosine_similarity(vectors())
    projection = project(cosine, "umap", dimensions)
    nearest = neighbor_order(-map_distances(projection.coordinates))[:, 0]
    assert np.mean(nearest % 4 == np.arange(60) % 4) > 0.9
    np.testing.assert_array_equal(projection.coordinates, project(cosine, "umap", dimensions).coordinates)
    for n in (3, 4, 6):
        small = project(cosine_similarity(vectors(n)), "umap", dimensions)
        assert np.isfinite(small.coordinates).all()
        assert small.settings["neighbors"] == n - 1


def test_same_seed_same_map_other_seed_other_map() -> None:
    cosine = cosine_similarity(vectors(20))
    first = project(cosine, "tsne", 3, QUICK).coordinates
    np.testing.assert_array_equal(first, project(cosine, "tsne", 3, QUICK).coordinates)
    other = project(cosine, "tsne", 3, ProjectionSettings(seed=1, iterations=300)).coordinates
    assert not np.allclose(first, other)


def test_settings_say_what_was_really_used() -> None:
    large = project(cosine_similarity(vectors(40)), "tsne", 2, QUICK).settings
    assert (large["perplexity"], large["seed"], large["iterations"], large["init"]) == (15.0, 42, 300, "random")
    small = project(cosine_similarity(vectors(5)), "tsne", 2, QUICK).settings
    assert small["perplexity"] == pytest.approx(0.6 * 4)
    # The paper's sweep must not be shrunk at 100 sources.
    assert min(50.0, 0.6 * 99) == 50.0


def test_three_dimensional_tsne_does_not_blow_up() -> None:
    """The library's own learning rate throws points of a small roster hundreds of units away."""
    for n in (3, 5, 7, 50):
        settings = project(cosine_similarity(vectors(n)), "tsne", 3).settings
        assert settings["scale"] < 60
        assert settings["kl_divergence"] < 0.4


@pytest.mark.parametrize("n", [3, 4, 5, 11])
def test_small_rosters(n: int) -> None:
    cosine = cosine_similarity(vectors(n))
    points, quality = project_all(cosine, [f"s{i}" for i in range(n)], QUICK, methods=("tsne", "pca"))
    assert len(points) == 4 * n
    assert np.isfinite(points[["x", "y"]].to_numpy()).all()
    assert points["z"].isna().tolist() == (points["dimensions"] == 2).tolist()
    assert len(quality) == 4 * 3
    assert quality["value"].between(0, 1).all()
    used = {m: {json.loads(s)["k"] for s in g["settings"]} for m, g in quality.groupby("metric")}
    assert used["trustworthiness_10"] == {min(10, (n - 1) // 2)}
    assert used["knn_jaccard_10"] == {min(10, n - 1)}


def test_two_sources_are_no_map() -> None:
    with pytest.raises(AtlasError, match="at least 3 sources, got 2"):
        project(np.eye(2), "pca", 2)
    with pytest.raises(ValueError, match="2 or 3"):
        project(np.eye(4), "pca", 4)


def test_equal_signatures_do_not_break_a_map() -> None:
    same = np.ones((6, 6))
    for method in ("tsne", "pca"):
        assert np.isfinite(project(same, method, 3, QUICK).coordinates).all()  # type: ignore[arg-type]
    assert unit_box(np.full((4, 3), 2.5))[0].tolist() == [[0.0] * 3] * 4


def test_pca_is_that_of_unit_vectors() -> None:
    points = vectors(30)
    mine = project(cosine_similarity(points), "pca", 3)
    model = PCA(n_components=3, svd_solver="full")
    theirs = model.fit_transform(unit_rows(points))
    for axis in range(3):
        assert abs(np.corrcoef(mine.coordinates[:, axis], theirs[:, axis])[0, 1]) == pytest.approx(1.0, abs=1e-9)
    np.testing.assert_allclose(np.ptp(mine.coordinates, axis=0) * mine.settings["scale"], np.ptp(theirs, axis=0))
    np.testing.assert_allclose(mine.settings["explained_variance"], model.explained_variance_ratio_, atol=1e-6)


def test_unit_box_keeps_shapes() -> None:
    points = np.array([[0.0, 10.0], [4.0, 10.0], [4.0, 12.0]])
    boxed, scale = unit_box(points)
    assert scale == 2.0
    assert boxed.tolist() == [[-1.0, -0.5], [1.0, -0.5], [1.0, 0.5]]


def test_quality_against_the_library_and_a_loop() -> None:
    cosine = cosine_similarity(vectors(40))
    points = project(cosine, "pca", 2).coordinates
    for k in (5, 10):
        expected = library_trustworthiness(cosine_distance(cosine), points, n_neighbors=k, metric="precomputed")
        assert trustworthiness(cosine, points, k) == pytest.approx(expected)
    original, drawn = neighbor_order(cosine), neighbor_order(-map_distances(points))
    both = zip(original[:, :10].tolist(), drawn[:, :10].tolist(), strict=True)
    slow = [len(set(a) & set(b)) / len(set(a) | set(b)) for a, b in both]
    assert neighborhood_overlap(cosine, points, 10) == pytest.approx(np.mean(slow))
    with pytest.raises(ValueError, match="below 20"):
        trustworthiness(cosine, points, 20)


def test_a_perfect_map_is_trusted() -> None:
    circle = 1.2 * np.sort(np.random.default_rng(0).random(30))
    points = np.stack([np.cos(circle), np.sin(circle)], axis=1)
    cosine = cosine_similarity(points)
    assert trustworthiness(cosine, points, 5) == 1.0
    assert neighborhood_overlap(cosine, points, 5) == 1.0


def test_frames_have_the_columns_of_the_tables() -> None:
    cosine = cosine_similarity(vectors(12))
    projection = project(cosine, "pca", 3)
    frame = projection_frame(projection, [f"s{i}" for i in range(12)])
    assert frame.columns.tolist() == ["method", "dimensions", "source", "x", "y", "z"]
    assert frame["z"].notna().all()
    quality = quality_frame(cosine, projection)
    assert quality.columns.tolist() == ["method", "dimensions", "metric", "value", "settings"]
    assert quality["metric"].tolist() == ["trustworthiness_5", "trustworthiness_10", "knn_jaccard_10"]
    assert METHODS == ("tsne", "umap", "pca")


def test_sweep_runs_every_combination() -> None:
    families = [f"f{i % 4}" for i in range(30)]
    frame = sweep(cosine_similarity(vectors(30)), families, seeds=(0, 1), perplexities=(5.0, 10.0), settings=QUICK)
    assert frame.columns.tolist() == ["method", "dimensions", "metric", "value", "settings"]
    assert set(frame["method"]) == {"tsne-sweep"}
    combinations = {(s["seed"], s["perplexity"]) for s in map(json.loads, frame["settings"])}
    assert combinations == {(0, 5.0), (0, 10.0), (1, 5.0), (1, 10.0)}
    assert frame["metric"].value_counts()["family_purity_5"] == 4
    assert (frame.loc[frame["metric"] == "family_purity_5", "value"] > 0.8).all()
    no_family = sweep(cosine_similarity(vectors(4)), list("abcd"), seeds=(0,), perplexities=(5.0,), settings=QUICK)
    assert "family_purity_5" not in set(no_family["metric"])


def test_joint_projection_holds_both_domains() -> None:
    first, second = vectors(15), signatures(vectors(15) + 2.0)
    frame = joint_projection(
        first, second, list("abcdefghijklmno"), ("agent500", "math100"), method="pca", dimensions=2
    )
    assert len(frame) == 4 * 15
    assert frame.groupby(["variant", "domain"], sort=False).size().tolist() == [15] * 4
    assert frame["source"].tolist() == list("abcdefghijklmno") * 4
    raw = frame[frame["variant"] == "raw"]
    gap = raw.groupby("domain")["x"].mean()
    assert abs(gap["agent500"] - gap["math100"]) > 1.0  # the offset fills the first axis until it is removed
    centred = frame[frame["variant"] == "centred"].groupby("domain")["x"].mean()
    assert abs(centred["agent500"] - centred["math100"]) < 0.1


def test_a_map_leaves_torch_the_threads_that_it_had() -> None:
    """Of a process of its own, since the compiler raises them once; another number gives other last bits of states."""
    code = """
import numpy as np, torch
torch.ones(64, 64) @ torch.ones(64, 64)
from backend.geometry.projections import project
before = torch.get_num_threads()
project(np.eye(30) * 0.5 + 0.5, "umap", 2)
print(before, torch.get_num_threads())
"""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split()[-2:] == ["1", "1"], done.stderr


@pytest.mark.slow
def test_maps_are_the_same_when_processes_share_them() -> None:
    cosine, families = cosine_similarity(vectors(40)), ["a", "b", "c", "d"] * 10

    def made() -> pd.DataFrame:
        return sweep(cosine, families, seeds=(0, 1), perplexities=(5.0, 10.0), settings=QUICK)

    alone = made()
    with joblib.parallel_config("loky", n_jobs=2):
        pd.testing.assert_frame_equal(made(), alone)


def test_what_umap_compiles_is_saved_for_the_next_process() -> None:
    project(np.eye(6) + 0.1, "umap", 2)
    compiled = sys.modules["umap.umap_"].compute_membership_strengths
    assert Path(compiled.stats.cache_path).is_dir()
    assert compiled.stats.cache_hits or compiled.stats.cache_misses
