"""Metrics against scikit-learn and by hand."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, confusion_matrix, f1_score

from backend.metrics import accuracy, confusion_counts, expected_calibration_error, macro_f1, negative_log_likelihood


def test_counts_accuracy_and_f1_equal_scikit_learn():
    rng = np.random.default_rng(0)
    truth, predicted = rng.integers(6, size=400), rng.integers(5, size=400)
    counts = confusion_counts(truth, predicted, 7)
    assert (counts == confusion_matrix(truth, predicted, labels=range(7))).all()
    assert accuracy(counts) == pytest.approx(accuracy_score(truth, predicted))
    expected = f1_score(truth, predicted, labels=range(7), average="macro", zero_division=0)
    assert macro_f1(counts) == pytest.approx(expected)


def test_likelihood_of_a_coin_is_log_two():
    assert negative_log_likelihood(np.log(np.full((4, 2), 0.5)), np.array([0, 1, 1, 0])) == pytest.approx(np.log(2))


def test_calibration_error_by_hand():
    confidence = np.array([0.95, 0.95, 0.95, 0.55])
    log_p = np.log(np.stack([confidence, 1 - confidence], 1))
    truth = np.array([0, 0, 1, 0])
    # bin of 0.95: 2 of 3 right; bin of 0.55: 1 of 1 right
    expected = (3 * abs(2 / 3 - 0.95) + 1 * abs(1 - 0.55)) / 4
    assert expected_calibration_error(log_p, truth) == pytest.approx(expected)


def test_certain_and_right_is_perfectly_calibrated():
    log_p = np.log(np.array([[1 - 1e-12, 1e-12]] * 5))
    assert expected_calibration_error(log_p, np.zeros(5, dtype=int)) == pytest.approx(0, abs=1e-9)
