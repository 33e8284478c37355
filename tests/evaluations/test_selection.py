"""Nested selection against twenty separate fits, and its tie rules by hand."""

import numpy as np
import pandas as pd
import torch

from backend.evaluations.attribution import inner_accuracies, scan_layers, select_layers
from backend.methods.probe import fit_probe


def problem(n=500, d=16, classes=5, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=n)
    centres = rng.normal(size=(classes, d))
    features = (centres[labels] + rng.normal(size=(n, d)) * 1.5 + 100).astype(np.float16)
    return features, labels, rng.integers(5, size=n)


def test_ten_shared_fits_equal_twenty_separate_ones():
    features, labels, folds = problem()
    got = inner_accuracies(features, labels, folds, 5)
    assert np.isnan(np.diag(got)).all()
    for outer in range(5):
        for inner in range(5):
            if inner == outer:
                continue
            train = (folds != outer) & (folds != inner)
            probe = fit_probe(features[train].astype(np.float32), labels[train], 5)
            hits = probe.log_posterior(features[folds == inner]).argmax(1) == labels[folds == inner]
            assert abs(got[outer, inner] - hits.mean()) < 0.011  # one row of a fold may sit on a boundary


def test_bfloat16_training_ranks_blocks_like_float32():
    features, labels, folds = problem(n=3000)
    exact = inner_accuracies(features, labels, folds, 5)
    fast = inner_accuracies(features, labels, folds, 5, dtype=torch.bfloat16)
    assert np.nanmax(np.abs(exact - fast)) < 0.02
    assert abs(np.nanmean(exact) - np.nanmean(fast)) < 0.005


def test_better_block_is_selected_everywhere():
    features, labels, folds = problem()
    noise = np.random.default_rng(1).normal(size=features.shape).astype(np.float16)
    blocks = {1: noise, 2: features, 3: (features + 4 * noise).astype(np.float16)}
    scores = scan_layers(blocks.__getitem__, [1, 2, 3], labels, folds, 5)
    assert len(scores) == 3 * 20
    assert select_layers(scores)["layer"].tolist() == [2] * 6


def frame(by_fold):
    """Scores with equal inner folds: {outer fold: {layer: accuracy}}."""
    rows = [
        {"outer_fold": fold, "inner_fold": inner, "layer": layer, "accuracy": value}
        for fold, layers in by_fold.items()
        for layer, value in layers.items()
        for inner in range(5)
        if inner != fold
    ]
    return pd.DataFrame(rows)


def test_ties_go_to_the_shallower_block():
    chosen = select_layers(frame({fold: {4: 0.5, 2: 0.5, 9: 0.4} for fold in range(5)}))
    assert chosen["layer"].tolist() == [2] * 6


def test_modal_tie_is_resolved_by_mean_inner_accuracy_then_depth():
    by_fold = {
        0: {3: 0.6, 7: 0.5, 8: 0.1},
        1: {3: 0.6, 7: 0.5, 8: 0.1},
        2: {3: 0.5, 7: 0.7, 8: 0.1},
        3: {3: 0.5, 7: 0.7, 8: 0.1},
        4: {3: 0.2, 7: 0.2, 8: 0.3},
    }
    chosen = select_layers(frame(by_fold))
    assert chosen["layer"].tolist() == [3, 3, 7, 7, 8, 7]
    assert pd.isna(chosen["outer_fold"].iloc[-1])
    even = {fold: {3: 0.6 if fold < 2 else 0.5, 7: 0.5 if fold < 2 else 0.6, 8: 0.0} for fold in range(4)}
    even[4] = {3: 0.1, 7: 0.1, 8: 0.2}
    assert select_layers(frame(even))["layer"].iloc[-1] == 3
