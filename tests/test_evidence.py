"""Evidence adds up as Bayes' rule says."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from backend.evidence import accumulate, posterior


def log_posteriors(n, classes, seed=0):
    logits = np.random.default_rng(seed).normal(size=(n, classes)) * 2
    return logits - np.log(np.exp(logits).sum(1, keepdims=True))


@given(st.integers(1, 5), st.integers(2, 6), st.integers(0, 50))
def test_score_is_the_prior_corrected_sum(budget, classes, seed):
    evidence = log_posteriors(budget * 3, classes, seed)
    groups = np.random.default_rng(seed).permutation(budget * 3).reshape(3, budget)
    prior = np.log(np.random.default_rng(seed).dirichlet(np.ones(classes)))
    scores = accumulate(evidence, groups, prior)
    for g, rows in enumerate(groups):
        for c in range(classes):
            expected = sum(evidence[row, c] for row in rows) - (budget - 1) * prior[c]
            assert np.isclose(scores[g, c], expected)


def test_two_independent_traces_multiply_by_bayes_rule():
    prior = np.array([0.7, 0.3])
    likelihood = np.array([[0.2, 0.6], [0.5, 0.1]])
    single = prior * likelihood
    single /= single.sum(1, keepdims=True)
    joint = prior * likelihood.prod(0)
    got = np.exp(posterior(accumulate(np.log(single), np.array([[0, 1]]), np.log(prior)), 2))[0]
    np.testing.assert_allclose(got, joint / joint.sum())


def test_one_trace_is_its_own_posterior():
    evidence = log_posteriors(4, 3)
    scores = accumulate(evidence, np.arange(4)[:, None])
    np.testing.assert_allclose(posterior(scores, 1), evidence)
    np.testing.assert_allclose(posterior(scores, 1, "mean"), evidence)


def test_mean_and_sum_rank_alike_and_both_normalise():
    evidence = log_posteriors(30, 5)
    scores = accumulate(evidence, np.arange(30).reshape(3, 10))
    summed, mean = posterior(scores, 10), posterior(scores, 10, "mean")
    assert (summed.argsort(1) == mean.argsort(1)).all()
    np.testing.assert_allclose(np.exp(summed).sum(1), 1)
    np.testing.assert_allclose(np.exp(mean).sum(1), 1)
