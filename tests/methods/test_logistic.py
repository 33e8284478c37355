"""Regression at its minimum against scikit-learn's, and experts within families against regression with an offset."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.special import log_softmax, logsumexp, softmax
from sklearn.linear_model import LogisticRegression

from backend.methods import probe as regression
from backend.methods.estimators import FamilyExperts, RegressionClassifier, ShrinkageDiscriminant
from backend.methods.probe import fit_experts, fit_probe, fit_regression, minimum, standardiser, within_families

CLASSES, WIDTH = 6, 9
FAMILIES = np.array([0, 0, 0, 1, 1, 2])


def clouds(seed: int = 0, n: int = 420):
    """Siblings lie near each other; coordinates are of very different size."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(np.arange(n) % CLASSES)
    centres = 3 * rng.standard_normal((3, WIDTH))[FAMILIES] + 0.7 * rng.standard_normal((CLASSES, WIDTH))
    rows = centres[labels] + rng.standard_normal((n, WIDTH))
    return (rows * 10.0 ** np.linspace(-1, 1, WIDTH) + 5).astype(np.float32), labels


def objective(rows, labels, readout, penalty):
    """Mean cross-entropy and penalty, from the definition."""
    _, scale = standardiser(rows)
    loss = -np.mean([readout.log_posterior(row[None])[0, label] for row, label in zip(rows, labels, strict=True)])
    return loss + penalty / 2 * ((readout.weight * scale[:, None]).astype(np.float64) ** 2).sum()


@pytest.mark.parametrize("penalty", [1e-3, 1e-2, 1.0])
def test_regression_is_scikit_learn_s_at_the_same_penalty(penalty, monkeypatch):
    rows, labels = clouds()
    near = fit_regression(rows, labels, CLASSES, penalty).log_posterior(rows)
    monkeypatch.setattr(regression, "STILL", 1e-9)  # as far as single precision goes
    mean, scale = standardiser(rows)
    theirs = LogisticRegression(C=1 / (penalty * len(labels)), tol=1e-9, max_iter=10_000).fit(
        (rows - mean) / scale, labels
    )
    ours = fit_regression(rows, labels, CLASSES, penalty)
    np.testing.assert_allclose(np.exp(ours.log_posterior(rows)), theirs.predict_proba((rows - mean) / scale), atol=1e-3)
    np.testing.assert_allclose(np.exp(near), np.exp(ours.log_posterior(rows)), atol=5e-3)


def test_nothing_beside_the_minimum_is_lower():
    rows, labels = clouds()
    found, start = fit_regression(rows, labels, CLASSES, 0.01), ShrinkageDiscriminant().fit(rows, labels).readout_
    least = objective(rows, labels, found, 0.01)
    probe = fit_probe(rows, labels, CLASSES)
    assert least < objective(rows, labels, start, 0.01)
    assert least < -probe.log_posterior(rows)[np.arange(len(labels)), labels].mean()  # 40 steps are not the minimum
    rng = np.random.default_rng(1)
    for _ in range(20):
        moved = type(found)(found.centre, found.weight + 1e-3 * rng.standard_normal(found.weight.shape), found.bias)
        assert objective(rows, labels, moved, 0.01) >= least - 1e-6


def test_an_offset_is_added_to_the_scores():
    rows, labels = clouds(1)
    offset = np.random.default_rng(3).standard_normal((len(rows), CLASSES)).astype(np.float32)
    mean, scale = standardiser(rows)
    x = ((rows - mean) / scale).astype(np.float32)
    weight, bias = minimum(x, labels, CLASSES, 0.05, offset)

    def loss(flat):
        scores = x @ flat.reshape(WIDTH, CLASSES) + bias + offset
        return -log_softmax(scores, 1)[np.arange(len(labels)), labels].mean() + 0.025 * (flat**2).sum()

    def nowhere(flat):
        return np.zeros_like(flat)

    assert check_grad(loss, nowhere, weight.ravel().astype(np.float64)) < 1e-3


def test_experts_tell_siblings_apart_and_families_keep_what_they_have():
    rows, labels = clouds()
    base = ShrinkageDiscriminant().fit(rows, labels).readout_
    found = fit_experts(rows, labels, FAMILIES, base, 0.01)
    before, after = base.scores(rows), (rows - found.centre) @ found.expert_weight + found.expert_bias
    for family in range(3):
        siblings = np.flatnonzero(family == FAMILIES)
        np.testing.assert_allclose(after[:, siblings].mean(1), before[:, siblings].mean(1), atol=1e-2)
    np.testing.assert_array_equal(after[:, 5], before[:, 5])  # an only child has no sibling to be told from
    # Within a family it is regression on its own rows, with the discriminants' scores given.
    siblings, own = np.array([0, 1, 2]), np.isin(labels, [0, 1, 2])
    mean, scale = standardiser(rows)
    x = ((rows[own] - mean) / scale).astype(np.float32)
    weight, bias = minimum(x, labels[own], 3, 0.01, before[own][:, siblings])
    slow = log_softmax(before[own][:, siblings] + x @ weight + bias, 1)
    np.testing.assert_allclose(np.exp(log_softmax(after[own][:, siblings], 1)), np.exp(slow), atol=1e-3)
    truth = labels[own]
    assert (
        slow[np.arange(len(truth)), truth].mean()
        > log_softmax(before[own][:, siblings], 1)[np.arange(len(truth)), truth].mean()
    )

    bound = found.log_posterior(rows)
    for family in range(3):
        inside = np.flatnonzero(family == FAMILIES)
        share = np.exp(base.log_posterior(rows))[:, inside].sum(1)
        np.testing.assert_allclose(np.exp(bound)[:, inside].sum(1), share, atol=1e-5)
        np.testing.assert_allclose(
            np.exp(bound)[:, inside], share[:, None] * np.exp(log_softmax(after[:, inside], 1)), atol=1e-5
        )


def test_families_may_stand_in_any_order_and_scores_may_be_large():
    rng = np.random.default_rng(4)
    families, scores, experts = np.array([2, 0, 1, 0, 2, 5, 0]), *(400 * rng.standard_normal((2, 30, 7)))
    said = log_softmax(scores, 1)
    slow = np.empty_like(said)
    for family in np.unique(families):
        inside = np.flatnonzero(families == family)
        mass = logsumexp(said[:, inside], axis=1)
        for one in inside:
            slow[:, one] = mass + experts[:, one] - logsumexp(experts[:, inside], axis=1)
    np.testing.assert_allclose(within_families(said, experts, families), slow, rtol=1e-5, atol=1e-3)


def test_the_plane_of_experts_goes_through_the_log_odds_and_is_the_experts_own_between_siblings():
    rows, labels = clouds()
    found = fit_experts(rows, labels, FAMILIES, ShrinkageDiscriminant().fit(rows, labels).readout_, 0.01)
    said, at_centre = found.log_posterior(rows).astype(np.float64), found.log_posterior(found.centre[None])[0]
    for source, rival in ((0, 1), (0, 2), (3, 4), (0, 3), (1, 5), (5, 4)):
        for row, held in zip(rows[:40], said, strict=False):
            centre, direction, constant = found.plane(row, source, rival)
            assert (row - centre) @ direction + constant == pytest.approx(held[source] - held[rival], abs=1e-3)
            assert constant == pytest.approx(float(at_centre[source]) - float(at_centre[rival]), abs=1e-3)
    # The mean slope, from the definition: small steps along the line.
    row, line = rows[7].astype(np.float64) - found.centre, np.linspace(0, 1, 4001)
    middle = (0.5 * (line[1:] + line[:-1]))[:, None] * row + found.centre
    weights = []
    for source in (0, 3):
        inside = np.flatnonzero(FAMILIES[source] == FAMILIES)
        for weight, bias in ((found.weight, found.bias), (found.expert_weight, found.expert_bias)):
            scores = (middle - found.centre) @ weight[:, inside] + bias[inside]
            weights.append(weight[:, inside] @ softmax(scores, 1).mean(0))
    own = found.expert_weight[:, 0] - found.expert_weight[:, 3]
    slow = weights[0] - weights[1] + own - weights[2] + weights[3]
    np.testing.assert_allclose(found.plane(rows[7], 0, 3)[1], slow, rtol=1e-3, atol=1e-6)


def test_estimators_answer_as_the_functions_do():
    rows, labels = clouds(2)
    regression = RegressionClassifier(0.05).fit(rows, labels)
    np.testing.assert_array_equal(
        regression.predict_log_proba(rows), fit_regression(rows, labels, CLASSES, 0.05).log_posterior(rows)
    )
    experts = FamilyExperts(FAMILIES).fit(rows, labels)
    assert (experts.predict(rows) == labels).mean() > 0.6
    assert (regression.predict(rows) == labels).mean() > 0.6


@pytest.mark.parametrize("penalty", [0.0, -1.0])
def test_without_a_penalty_there_is_no_one_minimum(penalty):
    rows, labels = clouds()
    with pytest.raises(ValueError, match="penalty must be above 0"):
        fit_regression(rows, labels, CLASSES, penalty)
