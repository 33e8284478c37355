"""PCA and class-centroid SVD against scikit-learn and a plain loop, fitted on training folds only."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from backend.evaluations.controls import (
    UNSCALED,
    centroid_axes,
    collapsed,
    compressions,
    matched_evidence,
    matched_probe,
    principal_axes,
)
from backend.methods.probe import ProbeSettings, descend, fit_probe


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(5)
    return (rng.normal(size=(300, 20)) @ rng.normal(size=(20, 20)) * 3 + 5).astype(np.float16)


def test_principal_axes_equal_scikit_learn(rows):
    projection = principal_axes(rows, 6)
    x = rows.astype(float)
    x = (x - x.mean(0)) / x.std(0)
    expected = PCA(6, svd_solver="full").fit(x)
    ours = projection.axes.T
    signs = np.sign((ours * expected.components_).sum(1))
    np.testing.assert_allclose(ours, signs[:, None] * expected.components_, atol=1e-4)
    np.testing.assert_allclose(projection(rows), signs * expected.transform(x), atol=1e-3)
    assert principal_axes(rows, 64).axes.shape == (20, 20)


def test_centroid_axes_span_the_centroids_in_order_of_strength(rows):
    labels = np.arange(300) % 7
    found = centroid_axes(rows, labels, 3)
    x = rows.astype(float)
    x = (x - x.mean(0)) / x.std(0)
    centroids = np.array([x[[i for i in range(300) if i % 7 == c]].mean(0) for c in range(7)])
    scatter = sum(np.outer(c - centroids.mean(0), c - centroids.mean(0)) for c in centroids)
    values, vectors = np.linalg.eig(scatter)
    order = np.argsort(-values.real)[:3]
    np.testing.assert_allclose(np.abs((found.axes * vectors[:, order].real).sum(0)), 1, atol=1e-4)
    assert centroid_axes(rows, labels).axes.shape == (20, 6), "seven centroids span six dimensions"


def test_projection_and_probe_see_training_rows_only(rows):
    labels, folds = np.arange(300) % 3, np.arange(300) // 3 % 5
    layers = dict.fromkeys(range(5), 1)
    found = matched_evidence(lambda _: rows, layers, labels, folds, 3, compressions(), unscaled=UNSCALED)
    assert set(found) == {"pca-64", "pca-64-unscaled", "centroid-svd", "centroid-svd-unscaled"}
    for fold in range(5):
        test = folds == fold
        for method, fitted in (
            ("pca-64", principal_axes(rows[~test])),
            ("centroid-svd", centroid_axes(rows[~test], labels[~test])),
        ):
            seen, unseen = fitted(rows[~test]), fitted(rows[test])
            probe = fit_probe(seen, labels[~test], 3)
            np.testing.assert_allclose(found[method][test], probe.log_posterior(unseen), atol=1e-5)
            weight, bias = descend(torch.from_numpy(seen), torch.from_numpy(labels[~test]), 3, ProbeSettings())
            wanted = torch.log_softmax(torch.from_numpy(unseen) @ weight + bias, -1).numpy()
            np.testing.assert_allclose(found[f"{method}-unscaled"][test], wanted, atol=1e-5)


def test_permuted_labels_give_chance_although_the_svd_uses_them():
    rng = np.random.default_rng(6)
    labels, folds = np.repeat(np.arange(4), 250), np.tile(np.arange(250) % 5, 4)
    rows = rng.normal(size=(4, 80))[labels] + rng.normal(size=(1000, 80)) * np.linspace(0.1, 1, 80)
    layers = dict.fromkeys(range(5), 1)
    told = matched_evidence(lambda _: rows, layers, labels, folds, 4, compressions(), unscaled=UNSCALED)
    shuffled = rng.permutation(labels)
    blind = matched_evidence(lambda _: rows, layers, shuffled, folds, 4, compressions(), unscaled=UNSCALED)
    for method in told:
        # A probe that standardises 64 principal components weighs the sixty noisy ones like the others.
        assert (told[method].argmax(1) == labels).mean() > (0.4 if method == "pca-64" else 0.9), method
        assert abs((blind[method].argmax(1) == shuffled).mean() - 0.25) < 0.06, method


@pytest.mark.parametrize("unscaled", [False, True])
@pytest.mark.parametrize("method", ["pca-64", "centroid-svd"])
def test_a_projection_and_its_probe_are_one_linear_map(rows, method, unscaled):
    labels = np.arange(300) % 7
    projection, probe = matched_probe(rows, labels, 7, compressions()[method], unscaled=unscaled)
    one = collapsed(projection, probe)
    assert one.weight.shape == (20, 7)
    np.testing.assert_allclose(one.log_posterior(rows), probe.log_posterior(projection(rows)), atol=2e-5)
