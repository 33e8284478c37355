"""Signatures against the definition written out, on arrays on disk and in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from backend.errors import AtlasError
from backend.geometry.signatures import (
    axis_positions,
    cosine_similarity,
    signature_frame,
    signatures,
    source_means,
    unit_rows,
)
from tests import twins

SOURCES, PROMPTS, D = 4, 7, 3


@pytest.fixture
def features() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(1.0, 2.0, (SOURCES * PROMPTS, 2 * D)).astype(np.float16)


def test_signatures_follow_the_definition(features: np.ndarray, tmp_path: Path) -> None:
    features.tofile(tmp_path / "block.f16")
    mapped = np.memmap(tmp_path / "block.f16", dtype=np.float16, mode="r").reshape(-1, 2 * D)
    found = signatures(source_means(mapped, sources=SOURCES, prompts=PROMPTS)[0])
    for source in range(SOURCES):
        expected = twins.signature(features[source * PROMPTS : (source + 1) * PROMPTS])
        np.testing.assert_allclose(found[source], expected, atol=1e-12)
    assert found.dtype == np.float64
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), np.sqrt(2.0))


def test_panels_and_shorter_rosters(features: np.ndarray) -> None:
    panels = [np.array([0, 2, 4]), np.array([6]), np.arange(PROMPTS)]
    means = source_means(features, sources=2, prompts=PROMPTS, panels=panels)
    assert means.shape == (3, 2, 2 * D)
    grid = features.astype(np.float64).reshape(SOURCES, PROMPTS, -1)
    np.testing.assert_allclose(means[0], grid[:2, [0, 2, 4]].mean(axis=1))
    np.testing.assert_array_equal(means[1], grid[:2, 6])
    np.testing.assert_allclose(means[2], source_means(features, sources=SOURCES, prompts=PROMPTS)[0, :2])


def test_sums_are_not_taken_in_half_precision() -> None:
    # 500 values of 200 would overflow float16 (65,504) when added up in it.
    features = np.full((500, 2), 200.0, dtype=np.float16)
    assert source_means(features, sources=1, prompts=500)[0].tolist() == [[200.0, 200.0]]


def test_a_block_of_zeros_stays_zero() -> None:
    assert signatures(np.array([[3.0, 4.0, 0.0, 0.0]])).tolist() == [[0.6, 0.8, 0.0, 0.0]]
    assert unit_rows(np.zeros((2, 3))).tolist() == [[0.0] * 3] * 2


def test_cosines_are_normalised_symmetric_and_tie_exactly() -> None:
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(30, 64))
    vectors[7] = vectors[3]
    vectors[9] = 5.0 * vectors[3]
    cosine = cosine_similarity(vectors)
    for i, j in ((0, 1), (3, 20), (29, 4)):
        expected = vectors[i] @ vectors[j] / np.linalg.norm(vectors[i]) / np.linalg.norm(vectors[j])
        assert cosine[i, j] == pytest.approx(expected, abs=1e-11)
    np.testing.assert_array_equal(cosine, cosine.T)
    np.testing.assert_array_equal(np.diagonal(cosine), 1.0)
    np.testing.assert_array_equal(np.delete(cosine[3], [3, 7, 9]), np.delete(cosine[7], [3, 7, 9]))
    np.testing.assert_array_equal(np.delete(cosine[3], [3, 7, 9]), np.delete(cosine[9], [3, 7, 9]))
    assert cosine[3, 7] == cosine[3, 9] == 1.0
    np.testing.assert_array_equal(cosine_similarity(vectors, vectors[:5]).shape, (30, 5))


def test_wrong_shapes_and_values_are_named(features: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"at least 5 \* 7 rows"):
        source_means(features, sources=5, prompts=PROMPTS)
    with pytest.raises(ValueError, match=r"prompts in 0\.\.6"):
        source_means(features, sources=1, prompts=PROMPTS, panels=[np.array([7])])
    with pytest.raises(ValueError, match="two blocks"):
        signatures(np.ones((2, 3)))
    features[2 * PROMPTS + 1, 0] = np.inf
    with pytest.raises(AtlasError, match="source 3 in roster order"):
        source_means(features, sources=SOURCES, prompts=PROMPTS)


def test_frame_has_the_columns_of_the_table(features: np.ndarray) -> None:
    vectors = signatures(source_means(features, sources=2, prompts=PROMPTS)[0])
    frame = signature_frame(vectors, ["a", "b"], 15)
    assert frame.columns.tolist() == ["layer", "source", "vector"]
    assert frame["layer"].tolist() == [15, 15]
    assert frame["vector"][1].dtype == np.float32
    np.testing.assert_allclose(frame["vector"][1], vectors[1], rtol=1e-6)


def test_places_on_an_axis_are_feet_of_perpendiculars() -> None:
    vectors = unit_rows(np.random.default_rng(3).normal(size=(9, 5)))
    cosine = cosine_similarity(vectors)
    line = vectors[1] - vectors[0]
    feet = (vectors - vectors[0]) @ line / (line @ line)
    np.testing.assert_allclose(axis_positions(cosine[0], cosine[1], cosine[0, 1]), feet, atol=1e-10)
    assert feet[0] == 0 and feet[1] == pytest.approx(1)
    with pytest.raises(ValueError, match="no axis"):
        axis_positions(cosine[0], cosine[0], 1.0)
