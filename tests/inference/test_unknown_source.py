"""p values against counting, the discriminant against inverted covariances, validity and power on invented sources."""

from __future__ import annotations

import numpy as np
import pytest

from backend.inference.calibration import normalised
from backend.inference.unknown_source import (
    LeftOut,
    UnknownReference,
    auroc,
    choose_ridge,
    fit_discriminant,
    fit_unknown,
    group_means,
    unknown_frame,
    unknown_p_values,
    without_columns,
)

SOURCES, PROMPTS = 8, 100
FOLDS = np.repeat(np.arange(5), 20)


def invented(dimensions: int = 12, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features with an effect of the source, one of the prompt that all sources share, and noise of their own."""
    rng = np.random.default_rng(seed)
    source, prompt = np.repeat(np.arange(SOURCES), PROMPTS), np.tile(np.arange(PROMPTS), SOURCES)
    parts = rng.normal(0, 1.5, (SOURCES, dimensions))[source] + rng.normal(0, 1, (PROMPTS, dimensions))[prompt]
    return parts + rng.normal(0, 1, (SOURCES * PROMPTS, dimensions)), source, prompt


def test_score_is_the_relative_mahalanobis_distance():
    features, source, _ = invented(dimensions=12)
    fitted = fit_discriminant(features, source, SOURCES, ridge=0.2)
    means = np.stack([features[source == c].mean(0) for c in range(SOURCES)])
    residuals = features - means[source]
    within = residuals.T @ residuals / (len(source) - SOURCES)
    within += 0.2 * np.diag(np.diag(within))  # a ridge on the correlation is one in units of the variances
    centred = means - means.mean(0)
    total = within + centred.T @ centred / SOURCES
    x = features[::37]
    scores = fitted.score(fitted.project(x), 1)
    for i, row in enumerate(x):
        background = (row - means.mean(0)) @ np.linalg.solve(total, row - means.mean(0))
        for c in range(SOURCES):
            own = (row - means[c]) @ np.linalg.solve(within, row - means[c])
            assert scores[i, c] == pytest.approx(background - own, rel=1e-3, abs=1e-3)


def test_ridge_is_the_one_that_held_out_blocks_prefer():
    features, source, prompt = invented(dimensions=5, seed=7)
    features[:, 1] = features[:, 0] + 0.3 * features[:, 1]
    blocks = FOLDS[prompt]
    cost = dict.fromkeys((0.01, 0.3), 0.0)
    for block in range(5):
        train, test = blocks != block, blocks == block
        means = np.stack([features[train & (source == c)].mean(0) for c in range(SOURCES)])
        inner = features[train] - means[source[train]]
        within = inner.T @ inner / (train.sum() - SOURCES)
        std = np.sqrt(np.diag(within))
        held = (features[test] - means[source[test]]) / std
        for ridge in cost:
            matrix = (within / np.outer(std, std) + ridge * np.eye(5)) / (1 + ridge)
            squares = np.einsum("nd,de,ne->n", held, np.linalg.inv(matrix), held)
            cost[ridge] += (np.linalg.slogdet(matrix)[1] + squares).sum()
    assert choose_ridge(features, source, blocks, tuple(cost)) == min(cost, key=cost.__getitem__)
    # Dimensions beside a few prompts: what few prompts say about correlations is worth little.
    wide, source, prompt = invented(dimensions=60, seed=7)
    few = prompt < 20
    assert choose_ridge(features, source, blocks) <= 0.01
    assert choose_ridge(wide[few], source[few], prompt[few] // 4) > choose_ridge(features, source, blocks)


def test_discriminant_needs_two_traces_a_source():
    with pytest.raises(ValueError, match="fewer than two"):
        fit_discriminant(np.zeros((3, 2)), np.array([0, 0, 1]), 2, ridge=0.1)


def test_max_logit_p_value_is_a_count():
    nulls = np.sort(np.random.default_rng(1).normal(size=(1, 2, 9)).astype(np.float32), axis=2)
    reference = UnknownReference(np.array([4]), nulls, None)
    means = np.array([[0.1, -0.4], [-9.0, 9.0], nulls[0, :, 3]])
    p = reference.p_values(means, 4)
    for g in range(3):
        for c in range(2):
            assert p[g, c] == pytest.approx((1 + sum(n <= means[g, c] + 1e-6 for n in nulls[0, c])) / 10)
    np.testing.assert_array_equal(p[1], [0.1, 1.0])
    np.testing.assert_array_equal(reference.p_none(means, 4), p.max(1))


def test_nulls_are_interpolated_in_log_k_and_held_at_the_ends():
    nulls = np.array([[[0.0, 1.0]], [[10.0, 21.0]]], dtype=np.float32)
    reference = UnknownReference(np.array([1, 100]), nulls, None)
    np.testing.assert_allclose(reference.null(10), [[5.0, 11.0]])
    np.testing.assert_allclose(reference.null(1), nulls[0])
    np.testing.assert_allclose(reference.null(5000), nulls[1])


@pytest.mark.parametrize("budget", [1, 5, 10])
def test_enrolled_sources_are_rejected_as_seldom_as_stated_and_others_often(budget):
    rejected, caught, count = [], [], 0
    for seed in range(4):
        features, source, prompt = invented(seed=seed)
        enrolled = np.arange(SOURCES - 2)
        run = LeftOut(features, source, prompt, enrolled)
        p, truth = unknown_p_values(run, FOLDS, [budget], "relative-mahalanobis")[budget]
        known = truth < SOURCES - 2
        rejected.append((p[known] <= 0.05).mean())
        caught.append(auroc(p[known], p[~known]))
        count += int(known.sum())
    # Groups of one draw share their prompts, so the tolerance is that of a few clusters and not of all groups.
    assert np.mean(rejected) < 0.05 + 0.04
    assert np.mean(caught) > {1: 0.7, 5: 0.9, 10: 0.9}[budget]
    assert count == 4 * 6 * 100 // budget


def test_groups_near_the_size_of_a_block_are_judged_mildly():
    """Half the prompts of a block a group: what the few blocks have in common is seen a handful of times only."""
    rejected = []
    for seed in range(8):
        features, source, prompt = invented(seed=seed)
        run = LeftOut(features, source, prompt, np.arange(SOURCES))
        p_values, _ = unknown_p_values(run, FOLDS, [10], "relative-mahalanobis")[10]
        rejected.append((p_values <= 0.05).mean())
    assert np.mean(rejected) < 0.04


def test_distances_on_the_prompts_that_fitted_them_would_reject_too_often():
    """Why a block is scored by the others: with as many dimensions as prompts the naive null is far too narrow."""
    features, source, prompt = invented(dimensions=60, seed=5)
    reference, test = prompt < 60, prompt >= 60
    fitted = fit_unknown(features[reference], source[reference], prompt[reference] // 12, budgets=[5], draws=200)
    rows = np.flatnonzero(test).reshape(SOURCES, -1)
    groups = rows[:, :40].reshape(-1, 5)
    own = np.repeat(np.arange(SOURCES), 8)
    p = fitted.p_values(group_means(features, groups), 5)[np.arange(len(own)), own]
    naive = fit_discriminant(features[reference], source[reference], SOURCES, ridge=0.03)
    inside = naive.score(naive.project(features[reference]), 1)
    outside = naive.score(naive.project(features[test]), 1)
    own_in, own_out = source[reference], source[test]
    assert inside[np.arange(len(own_in)), own_in].mean() > outside[np.arange(len(own_out)), own_out].mean() + 5
    assert (p <= 0.05).mean() < 0.15


def test_reference_survives_a_file(tmp_path):
    features, source, prompt = invented()
    for statistic, data in (("relative-mahalanobis", features), ("max-logit", normalised(features[:, :SOURCES]))):
        fitted = fit_unknown(data, source, FOLDS[prompt], statistic, [1, 5], draws=50)
        np.savez(tmp_path / "u.npz", **fitted.to_arrays())
        with np.load(tmp_path / "u.npz", allow_pickle=False) as held:
            again = UnknownReference.from_arrays(held)
        np.testing.assert_array_equal(again.p_values(data[:7], 3), fitted.p_values(data[:7], 3))


def test_what_cannot_be_fitted_is_refused():
    features, source, prompt = invented()
    with pytest.raises(ValueError, match="max-logit"):
        fit_unknown(features, source, FOLDS[prompt], "max-logit")
    with pytest.raises(ValueError, match="two blocks"):
        fit_unknown(features, source, np.zeros_like(source))


def test_auroc_equals_all_pairs():
    rng = np.random.default_rng(2)
    known, unknown = rng.integers(0, 6, 30), rng.integers(0, 4, 20)
    slow = np.mean([(k > u) + 0.5 * (k == u) for k in known for u in unknown])
    assert auroc(known, unknown) == pytest.approx(slow)


def test_removed_columns_are_renormalised():
    rng = np.random.default_rng(3)
    posteriors = rng.dirichlet(np.ones(5), 10)
    kept = np.array([0, 2, 4])
    expected = posteriors[:, kept] / posteriors[:, kept].sum(1, keepdims=True)
    np.testing.assert_allclose(np.exp(without_columns(np.log(posteriors), kept)), expected)


def test_group_means_equal_plain_means():
    rows = np.random.default_rng(0).normal(size=(12, 3))
    groups = np.array([[0, 3, 5], [1, 1, 2]])
    np.testing.assert_allclose(group_means(rows, groups), rows[groups].mean(1))


def test_frame_names_scenario_and_statistic():
    features, source, prompt = invented()
    runs = [LeftOut(features, source, prompt, np.flatnonzero(np.arange(SOURCES) != out)) for out in (0, 3)]
    frame = unknown_frame(runs, FOLDS, "sibling", "relative-mahalanobis", (5,), tested=[0, 1])
    assert set(zip(frame["scenario"], frame["statistic"], strict=True)) == {("sibling", "relative-mahalanobis")}
    value = frame.set_index("metric")
    assert set(value.index) == {"auroc", "false_acceptance", "false_acceptance_matched", "false_rejection"}
    assert value.loc["false_rejection", "n"] == 2 * 2 * 7 * 4
    assert value.loc["auroc", "n"] == 2 * 2 * 4
    assert 0.5 < value.loc["auroc", "value"] <= 1
    assert np.isnan(value.loc["auroc", "level"])
    assert value.loc["false_acceptance", "level"] == 0.05


def test_a_fold_of_even_prompts_is_split_in_two_all_the_same():
    features, source, prompt = invented()
    held = prompt < 8
    folds = np.where(np.arange(PROMPTS) % 2, 1, 0)  # fold 0 holds the even prompts, fold 1 the odd ones
    run = LeftOut(features[held], source[held], prompt[held], np.arange(1, SOURCES))
    p_values, truth = unknown_p_values(run, folds, (2,), "relative-mahalanobis")[2]
    assert sorted(set(truth)) == list(range(SOURCES))
    assert len(p_values) == 2 * SOURCES * 2  # two folds, two groups of two prompts a source
    assert ((p_values > 0) & (p_values <= 1)).all()
