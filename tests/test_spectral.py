"""The length-normalised DCT-II against closed forms, SciPy and a loop."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.fft
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.spectral import dct_weights, project, span_weights


@pytest.mark.parametrize("length", [1, 2, 3, 7, 64, 1023])
def test_weights_are_the_orthonormal_dct_divided_by_the_root_of_the_length(length):
    states = np.random.default_rng(length).normal(size=(length, 5))
    expected = scipy.fft.dct(states, type=2, axis=0, norm="ortho")[:8] / math.sqrt(length)
    found = dct_weights(length, 8) @ states
    np.testing.assert_allclose(found[: len(expected)], expected, atol=1e-12)
    assert not found[len(expected) :].any()


def test_constant_trajectory_has_its_value_as_dc_and_nothing_else():
    found = dct_weights(9, 4) @ np.full((9, 1), 3.5)
    np.testing.assert_allclose(found[:, 0], [3.5, 0, 0, 0], atol=1e-14)


def test_cosine_of_mode_r_appears_in_mode_r_alone():
    t = np.arange(16)
    for r in (1, 2, 5):
        found = dct_weights(16, 6) @ np.cos(np.pi * r * (t + 0.5) / 16)
        expected = np.zeros(6)
        expected[r] = math.sqrt(2) / 2
        np.testing.assert_allclose(found, expected, atol=1e-14)


def test_single_token_is_its_own_mean_and_has_no_change():
    np.testing.assert_array_equal(dct_weights(1, 3), [[1.0], [0.0], [0.0]])


def test_two_tokens_by_hand():
    np.testing.assert_allclose(dct_weights(2), [[0.5, 0.5], [0.5, -0.5]], atol=1e-15)


def test_first_ac_is_negative_for_a_rising_trajectory():
    dc, ac = dct_weights(50) @ np.arange(50.0)
    assert dc == pytest.approx(24.5)
    assert ac < 0


@pytest.mark.parametrize(("length", "modes"), [(0, 2), (3, 0), (-1, 2)])
def test_impossible_sizes_are_refused(length, modes):
    with pytest.raises(ValueError, match="at least 1"):
        dct_weights(length, modes)


spans = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 40)), min_size=1, max_size=5)
limits = st.lists(st.one_of(st.none(), st.integers(1, 50)), min_size=1, max_size=4)


@settings(deadline=None, max_examples=60)
@given(spans, limits, st.integers(1, 5), st.integers(0, 7))
def test_span_weights_hold_each_cut_span_and_nothing_outside(pairs, cuts, modes, slack):
    starts = [start for start, _ in pairs]
    stops = [start + length for start, length in pairs]
    width = max(stops) + slack
    found = span_weights(starts, stops, width, cuts, modes)
    assert found.shape == (len(pairs), len(cuts) * modes, width)
    assert found.dtype == torch.float32
    for row, (start, length) in enumerate(pairs):
        for v, cut in enumerate(cuts):
            kept = length if cut is None else min(length, cut)
            block = found[row, v * modes : (v + 1) * modes].numpy()
            np.testing.assert_allclose(block[:, start : start + kept], dct_weights(kept, modes), atol=1e-7)
            assert not block[:, :start].any()
            assert not block[:, start + kept :].any()
            assert block[0].sum() == pytest.approx(1.0, abs=1e-5)


@settings(deadline=None, max_examples=40)
@given(st.integers(2, 200), st.floats(-5, 5), st.floats(0.1, 3))
def test_encoding_is_linear_and_shift_moves_dc_only(length, shift, scale):
    states = np.random.default_rng(length).normal(size=length)
    dc, ac = dct_weights(length) @ states
    moved_dc, moved_ac = dct_weights(length) @ (scale * states + shift)
    assert moved_dc == pytest.approx(scale * dc + shift, abs=1e-9)
    assert moved_ac == pytest.approx(scale * ac, abs=1e-9)


def test_project_sums_in_float32_whatever_the_states_are():
    states = torch.full((1, 1000, 1), 1.0, dtype=torch.bfloat16)
    states[0, 0] = 256.0
    weights = span_weights([0], [1000], 1000, (None,), 1)
    assert project(states, weights).item() == pytest.approx((256 + 999) / 1000, rel=1e-6)
