"""Holm by hand, and the vectorised resampling against one replicate at a time with the same random numbers."""

from __future__ import annotations

import time

import numpy as np
import pytest

from backend.statistics import cluster_bootstrap, holm, percentile_bootstrap, sign_flip_p_values


def test_holm_by_hand():
    # Sorted .005 .01 .03 .04 by 4 3 2 1: .02 .03 .06 .04, and the last may not fall below the one before it.
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])
    np.testing.assert_allclose(holm([0.5, 0.6, 0.01]), [1.0, 1.0, 0.03])
    np.testing.assert_allclose(holm([0.2]), [0.2])
    assert holm([]).shape == (0,)


@pytest.mark.parametrize("wrong", [[0.1, np.nan], [1.2], [-0.1], [[0.1]]])
def test_holm_refuses_what_is_not_a_p_value(wrong):
    with pytest.raises(ValueError, match="p_values"):
        holm(wrong)


def test_bootstrap_equals_one_replicate_at_a_time():
    rng = np.random.default_rng(5)
    sizes = rng.integers(3, 9, size=(7, 2))
    sums = rng.integers(-2, 3, size=(7, 2))
    low, high = cluster_bootstrap(sums, sizes, replicates=300, seed=9)
    for column in range(2):
        stream, slow = np.random.default_rng(9), []
        for _ in range(300):
            top = bottom = 0
            for cluster in stream.integers(0, 7, size=7):
                top += sums[cluster, column]
                bottom += sizes[cluster, column]
            slow.append(top / bottom)
        assert low[column] == pytest.approx(np.quantile(slow, 0.025), abs=1e-12)
        assert high[column] == pytest.approx(np.quantile(slow, 0.975), abs=1e-12)


def test_bootstrap_does_not_depend_on_the_chunk(monkeypatch):
    sums, sizes = np.arange(12.0).reshape(6, 2), np.full((6, 2), 20.0)
    whole = cluster_bootstrap(sums, sizes, replicates=250, seed=1)
    monkeypatch.setattr("backend.statistics.CHUNK", 64)
    np.testing.assert_array_equal(whole, cluster_bootstrap(sums, sizes, replicates=250, seed=1))


def test_percentile_bootstrap_is_an_interval_of_the_mean():
    values = np.random.default_rng(2).normal(0.7, 0.1, size=36)
    low, high = percentile_bootstrap(values, replicates=20_000, seed=0)
    error = values.std() / 6
    assert low == pytest.approx(values.mean() - 1.96 * error, abs=0.15 * error)
    assert high == pytest.approx(values.mean() + 1.96 * error, abs=0.15 * error)
    assert percentile_bootstrap([0.5, 0.5, 0.5], replicates=100, seed=0) == (0.5, 0.5)


def test_sign_flips_equal_one_flip_at_a_time():
    differences = np.random.default_rng(3).normal(0.3, 1.0, size=(9, 3))
    got = sign_flip_p_values(differences, flips=400, seed=11)
    for column in range(3):
        stream, beyond = np.random.default_rng(11), 0
        observed = abs(differences[:, column].sum())
        for _ in range(400):
            signs = [1 if bit else -1 for bit in stream.integers(0, 2, size=9)]
            flipped = sum(sign * value for sign, value in zip(signs, differences[:, column], strict=True))
            beyond += abs(flipped) >= observed - 1e-9
        assert got[column] == pytest.approx((1 + beyond) / 401)


def test_sign_flips_count_ties_and_never_reach_zero():
    # Every one of the flips is as extreme as no difference at all; two of 2^20 are as extreme as twenty ones.
    got = sign_flip_p_values(np.column_stack([np.zeros(20), np.ones(20), np.r_[0.1, 0.2, -0.3, np.zeros(17)]]), 2_000)
    assert got[0] == 1.0
    assert got[1] == pytest.approx(1 / 2001)
    assert got[2] == 1.0


def test_sign_flips_are_close_to_the_exact_test():
    differences = np.array([3.0, 1.0, 2.0, 2.0, -1.0, 4.0, 1.0, 0.0])
    signs = 1 - 2 * ((np.arange(256)[:, None] >> np.arange(8)) & 1)
    exact = np.mean(np.abs(signs @ differences) >= abs(differences.sum()))
    assert sign_flip_p_values(differences[:, None], seed=0)[0] == pytest.approx(exact, abs=0.004)


def test_the_paper_s_number_of_draws_takes_seconds():
    differences = np.random.default_rng(0).integers(-20, 21, size=(500, 60)).astype(float)
    started = time.perf_counter()
    cluster_bootstrap(differences, np.full_like(differences, 300.0))
    sign_flip_p_values(differences)
    assert time.perf_counter() - started < 20


def test_shapes_are_checked():
    with pytest.raises(ValueError, match="same shape"):
        cluster_bootstrap(np.ones((3, 2)), np.ones((3, 1)))
    with pytest.raises(ValueError, match="clusters"):
        sign_flip_p_values(np.ones(3))
    with pytest.raises(ValueError, match="clusters"):
        cluster_bootstrap(np.empty((0, 2)), np.empty((0, 2)))
