"""Alignment of another domain: moments after it, the closed form of one coordinate, a naive reference, no leak."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import sqrtm

from backend.evaluations.readouts import aligned_load
from backend.methods.discriminant import Moments, moments_of
from backend.methods.domain_adaptation import fit_alignments
from backend.protocol import FOLDS


def moments(rows: np.ndarray) -> Moments:
    return moments_of([(rows.astype(np.float32), np.zeros(len(rows), dtype=np.intp))], 1, rows.shape[1])


def mixed(rng: np.random.Generator, n: int, d: int) -> np.ndarray:
    return (rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + 5 * rng.standard_normal(d)).astype(np.float32)


def test_aligned_rows_have_the_mean_and_the_covariance_of_the_trained_ones() -> None:
    rng = np.random.default_rng(0)
    trained, other = mixed(rng, 4000, 6), mixed(rng, 3000, 6)
    moved = fit_alignments([[moments(other)]], [moments(trained)], shrinkage=1e-9)[0].apply(other)
    assert moved.dtype == np.float32
    assert np.allclose(moved.mean(0), trained.mean(0), atol=1e-2)
    assert np.allclose(np.cov(moved.T), np.cov(trained.T), atol=0.02 * np.cov(trained.T).max())


def test_every_block_is_moved_as_the_formula_says() -> None:
    rng = np.random.default_rng(1)
    trained, other = mixed(rng, 500, 5), mixed(rng, 400, 5)
    blocks = (slice(0, 3), slice(3, 5))
    (made,) = fit_alignments([[moments(other[:, b]) for b in blocks]], [moments(trained[:, b]) for b in blocks], 0.2)
    wanted = np.empty_like(other)
    for block in blocks:
        parts = []
        for rows, power in ((other[:, block].astype(float), -0.5), (trained[:, block].astype(float), 0.5)):
            scale = rows.std(0)
            shrunk = 0.8 * np.corrcoef(rows.T) + 0.2 * np.eye(len(scale))
            root = np.real(sqrtm(shrunk))
            parts.append((np.linalg.inv(root) if power < 0 else root, scale))
        (whiten, here), (colour, there) = parts
        moved = (other[:, block] - other[:, block].mean(0)) / here @ whiten @ colour * there
        wanted[:, block] = moved + trained[:, block].mean(0)
    assert np.allclose(made.apply(other), wanted, atol=1e-3)


def test_one_coordinate_is_moved_and_scaled_and_a_constant_one_only_moved() -> None:
    rng = np.random.default_rng(2)
    trained = np.stack([3 + 2 * rng.standard_normal(900), np.full(900, 7.0)], axis=1)
    other = np.stack([10 * rng.standard_normal(800) - 1, np.full(800, -4.0)], axis=1)
    (made,) = fit_alignments(
        [[moments(other[:, :1]), moments(other[:, 1:])]], [moments(trained[:, :1]), moments(trained[:, 1:])]
    )
    wanted = (other[:, 0] - other[:, 0].mean()) / other[:, 0].std() * trained[:, 0].std() + trained[:, 0].mean()
    assert np.allclose(made.apply(other)[:, 0], wanted, atol=1e-3)
    assert np.allclose(made.apply(other)[:, 1], 7, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 3])
def test_a_pool_of_fewer_rows_than_coordinates_is_finite(rows: int) -> None:
    rng = np.random.default_rng(3)
    trained, other = mixed(rng, 50, 8), mixed(rng, rows, 8)
    assert np.isfinite(fit_alignments([[moments(other)]], [moments(trained)])[0].apply(other)).all()


def test_rows_are_moved_by_what_other_prompts_of_their_domain_show() -> None:
    rng = np.random.default_rng(4)
    trained, other = mixed(rng, 200, 4), mixed(rng, 100, 4)
    folds, parts = np.arange(200) % FOLDS, np.arange(100) % FOLDS

    def load(rows: np.ndarray) -> np.ndarray:
        return aligned_load([(trained.__getitem__, 4)], [(rows.__getitem__, 4)], folds, parts)(np.arange(100))

    plain = load(other)
    (pool,) = fit_alignments([[moments(other[parts != 2])]], [moments(trained)])
    assert np.allclose(plain[parts == 2], pool.apply(other[parts == 2]), atol=1e-3)
    # One changed row: itself, and all rows of the other folds; its own fold's other rows stay as they were.
    changed = other.copy()
    changed[7] += 50
    touched = np.flatnonzero(np.abs(load(changed) - plain).max(1) > 1e-5)
    assert set(touched) == {7, *np.flatnonzero(parts != parts[7])}
