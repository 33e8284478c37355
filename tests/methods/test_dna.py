"""Static LLM-DNA: the projection drawn in blocks against the whole matrix, and its distances by hand."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.methods.baselines import distances, dna_vectors
from tests import twins


@given(st.integers(1, 4), st.integers(1, 9), st.integers(1, 5), st.integers(1, 200))
def test_blocks_of_any_size_equal_the_whole_matrix(models, prompts, width, block_values):
    embeddings = np.random.default_rng(0).normal(size=(models, prompts, width)).astype(np.float16)
    expected = twins.dna(embeddings, 16, seed=7)
    np.testing.assert_allclose(dna_vectors(embeddings, 16, 7, block_values), expected, rtol=1e-9, atol=1e-9)


def test_defaults_are_those_of_the_paper_and_distances_are_kept_on_the_whole():
    rng = np.random.default_rng(1)
    embeddings = rng.normal(size=(6, 40, 24)).astype(np.float32)
    vectors = dna_vectors(embeddings)
    np.testing.assert_allclose(vectors, twins.dna(embeddings, 128, seed=42), rtol=1e-9)
    flat = embeddings.reshape(6, -1).astype(np.float64)
    before, after = distances(flat), distances(vectors)
    off = ~np.eye(6, dtype=bool)
    assert (np.abs(after[off] / before[off] - 1) < 0.35).all()  # about 4.5 standard deviations at 128 components


def test_matrix_is_never_whole_in_memory():
    embeddings = np.ones((2, 600, 64), dtype=np.float16)
    whole = 600 * 64 * 128 * 8
    tracemalloc.start()
    dna_vectors(embeddings, block_values=1 << 16)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < whole / 10


def test_distances_by_hand_and_equal_models_at_none():
    rows = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]])
    assert distances(rows).tolist() == [[0, 5, 0], [5, 0, 5], [0, 5, 0]]


def test_a_wrong_shape_is_refused():
    with pytest.raises(ValueError, match="models, prompts, d"):
        dna_vectors(np.zeros((3, 4)))
