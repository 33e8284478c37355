"""The probe is the paper's: 40 Adam steps from zero, checked against torch's own optimiser and scheduler."""

import numpy as np
import pytest

from backend.methods.probe import STD_FLOOR, ProbeSettings, fit_probe, standardiser
from tests.twins import probe_by_autograd


def clusters(n=300, d=12, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=n)
    centres = rng.normal(size=(classes, d)) * 2
    return (centres[labels] + rng.normal(size=(n, d)) * 3 + 5).astype(np.float32), labels


def test_probe_equals_torch_adam_with_cosine_schedule():
    x, y = clusters()
    probe = fit_probe(x, y, 4)
    weight, bias = probe_by_autograd(x, y, 4)
    np.testing.assert_allclose(probe.weight, weight, atol=2e-5)
    np.testing.assert_allclose(probe.bias, bias, atol=2e-5)


def test_log_posteriors_are_normalised_and_right_more_often_than_chance():
    x, y = clusters()
    probe = fit_probe(x[:200], y[:200], 4)
    log_posterior = probe.log_posterior(x[200:])
    np.testing.assert_allclose(np.exp(log_posterior).sum(1), 1, rtol=1e-5)
    assert (log_posterior.argmax(1) == y[200:]).mean() > 0.5


def test_permuted_labels_give_chance():
    x, y = clusters(n=2000)
    shuffled = np.random.default_rng(1).permutation(y)
    probe = fit_probe(x[:1500], shuffled[:1500], 4)
    hits = (probe.log_posterior(x[1500:]).argmax(1) == shuffled[1500:]).mean()
    assert abs(hits - 0.25) < 0.08


def test_constant_coordinates_do_not_divide_by_zero():
    x, y = clusters()
    x[:, 3] = 7.0
    mean, scale = standardiser(x)
    assert mean[3] == 7.0
    assert scale[3] == np.float32(STD_FLOOR)
    assert np.isfinite(fit_probe(x, y, 4).log_posterior(x)).all()


def test_learning_rate_falls_on_the_cosine():
    settings = ProbeSettings()
    assert settings.rate(0) == pytest.approx(1e-3)
    assert settings.rate(50) == pytest.approx(5.05e-4)
    assert settings.rate(100) == pytest.approx(1e-5)


def test_wrong_labels_are_refused():
    x, y = clusters()
    with pytest.raises(ValueError, match=r"0\.\.2"):
        fit_probe(x, y, 3)
    with pytest.raises(ValueError, match="as many"):
        fit_probe(x[:5], y[:4], 4)
