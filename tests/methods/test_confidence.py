"""Confidence of sums: the factor and the share that made the data, gradients, and what a factor alone would do."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from backend.methods.stack import Confidence, fit_confidence
from backend.metrics import expected_calibration_error, negative_log_likelihood


def drawn(n: int, classes: int, scale: float, misread: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    scores = 6 * rng.normal(size=(n, classes))
    share = np.exp(Confidence(scale, misread).log_posterior(scores))
    return scores, (share.cumsum(1) < rng.random((n, 1))).sum(1)


def test_the_factor_and_the_share_that_made_the_data_are_found() -> None:
    found = fit_confidence(*drawn(20_000, 6, 0.4, 0.05))
    assert found.scale == pytest.approx(0.4, abs=0.02)
    assert found.misread == pytest.approx(0.05, abs=0.01)


def test_without_misread_groups_it_is_the_factor_alone() -> None:
    scores, truth = drawn(4000, 5, 0.3, 0.0)
    found = fit_confidence(scores, truth)
    alone = minimize_scalar(
        lambda a: negative_log_likelihood(log_softmax(a * scores, axis=1), truth), bounds=(0.01, 5), method="bounded"
    )
    assert found.misread < 0.01
    assert found.scale == pytest.approx(alone.x, rel=0.05)


def test_posteriors_are_normalised_bounded_and_keep_their_order() -> None:
    scores = np.array([[0.0, 900.0, -3000.0], [1.0, 1.0, 1.0]])
    found = np.exp(Confidence(2.0, 0.03).log_posterior(scores))
    np.testing.assert_allclose(found.sum(1), 1)
    np.testing.assert_allclose(found[0], [0.01, 0.98, 0.01])
    np.testing.assert_allclose(found[1], 1 / 3)


def test_one_source_that_is_certainly_wrong_does_not_make_all_others_timid() -> None:
    rng = np.random.default_rng(1)
    scores, truth = drawn(3000, 20, 1.0, 0.0, seed=1)
    lost = rng.random(3000) < 0.01
    scores[lost, truth[lost]] -= 4000
    found, kept = fit_confidence(scores, truth), ~lost
    assert found.scale == pytest.approx(1, abs=0.1)
    assert found.misread == pytest.approx(0.01, abs=0.006)
    assert expected_calibration_error(found.log_posterior(scores[kept]), truth[kept]) < 0.04
    alone = minimize_scalar(
        lambda a: negative_log_likelihood(log_softmax(a * scores, axis=1), truth), bounds=(1e-4, 5), method="bounded"
    )
    assert expected_calibration_error(log_softmax(alone.x * scores[kept], axis=1), truth[kept]) > 0.3
