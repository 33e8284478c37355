"""Unlabelled pools: the bias they give, how many sources they are of, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp

from backend.enrolment.background import (
    FEWEST,
    STEPS,
    balance,
    balance_held_out,
    effective_sources,
    fit_bias,
    pool_shares,
    refuse_few_sources,
)
from backend.enrolment.fit import with_background
from backend.errors import AtlasError
from backend.inference.calibration import Calibration
from backend.inference.unknown_source import fit_discriminant
from backend.methods.domain_adaptation import balancing_bias
from backend.protocol import fold_of_prompts

SOURCES, PROMPTS = 6, 200
SHIFT = np.array([3.0, -1.0, 0.5, 0.0, -2.5, 0.0])


def posteriors(truth: np.ndarray, rng: np.random.Generator, shift: np.ndarray | float = 0.0) -> np.ndarray:
    """Exact log-posteriors (n, C) of points two standard deviations from the origin; ``shift`` moves all logits."""
    points = rng.normal(size=(len(truth), SOURCES)) + 2.0 * np.eye(SOURCES)[truth]
    return np.asarray(log_softmax(2.0 * points + shift, axis=1))


@pytest.fixture(scope="module")
def grid() -> np.ndarray:
    return posteriors(np.repeat(np.arange(SOURCES), PROMPTS), np.random.default_rng(1))


def pool_of(shares: list[float], n: int, seed: int = 2) -> np.ndarray:
    truth = np.repeat(np.arange(SOURCES), np.rint(np.array(shares) * n).astype(int))
    return posteriors(truth, np.random.default_rng(seed), SHIFT)


def test_a_pool_of_equal_sources_takes_a_constant_shift_back() -> None:
    """Of exact posteriors with moved logits the bias is the shift with the other sign, up to a constant."""
    bias = fit_bias(pool_of([1 / 6] * 6, 12_000))
    assert bias == pytest.approx(-(SHIFT - SHIFT.mean()), abs=0.1)
    truth = np.repeat(np.arange(SOURCES), 300)
    moved = posteriors(truth, np.random.default_rng(3), SHIFT)
    plain, put_right = (float((rows.argmax(1) == truth).mean()) for rows in (moved, balance(moved, bias)))
    unmoved = float((posteriors(truth, np.random.default_rng(3)).argmax(1) == truth).mean())
    assert plain < unmoved - 0.1 and put_right == pytest.approx(unmoved, abs=0.02)


def test_the_mean_posterior_of_the_pool_is_uniform() -> None:
    """By a slow twin: one source after the other until nothing moves."""
    pool = pool_of([0.3, 0.3, 0.1, 0.1, 0.1, 0.1], 600)
    bias = np.zeros(SOURCES)
    for _ in range(40):
        for source in range(SOURCES):
            rows = pool + bias
            mean = np.exp(rows[:, source] - logsumexp(rows, axis=1)).mean()
            bias[source] -= np.log(mean * SOURCES)
    found = fit_bias(pool)
    assert found == pytest.approx(bias - bias.mean(), abs=0.01)
    assert np.exp(balance(pool, found)).mean(0) == pytest.approx(1 / SOURCES, abs=1e-3)


def test_shares_of_a_pool_are_found_wherever_it_lies(grid: np.ndarray) -> None:
    discriminant = fit_discriminant(grid, np.repeat(np.arange(SOURCES), PROMPTS), SOURCES, 0.01)
    for shares, low, high in (
        ([1 / 6] * 6, 5.0, 6.0),
        ([0.7, 0.06, 0.06, 0.06, 0.06, 0.06], 2.0, 3.6),
        ([0, 0.5, 0.5, 0, 0, 0], 1.6, 2.5),
        ([0, 0, 1, 0, 0, 0], 1.0, 1.3),
    ):
        pool = pool_of(shares, 1_200)
        found = pool_shares(balance(pool, fit_bias(pool)), discriminant)
        assert low <= effective_sources(found) <= high, shares
        assert found.max() == pytest.approx(max(shares), abs=0.1)


def test_shares_are_those_of_a_slow_twin(grid: np.ndarray) -> None:
    """By loops over traces and sources; of no spread there is one source alone."""
    discriminant = fit_discriminant(grid, np.repeat(np.arange(SOURCES), PROMPTS), SOURCES, 0.1)
    pool = pool_of([0.4, 0.2, 0.1, 0.1, 0.1, 0.1], 40)
    points = [(row - discriminant.mean) @ discriminant.transform for row in pool]
    shares, moved = np.full(SOURCES, 1 / SOURCES), np.mean(points, axis=0) - discriminant.centres.mean(0)
    for _ in range(STEPS):
        total, rest = np.zeros(SOURCES), np.zeros(len(moved))
        for point in points:
            away = point - discriminant.centres - moved
            density = [share * np.exp(-(row**2).sum() / 2) for share, row in zip(shares, away, strict=True)]
            weights = np.array(density) / sum(density)
            total += weights / len(points)
            rest += (point - weights @ discriminant.centres) / len(points)
        shares, moved = total, rest
    assert pool_shares(pool, discriminant) == pytest.approx(shares, abs=1e-6)
    assert effective_sources(np.array([0.5, 0.5, 0])) == pytest.approx(2)


def test_pools_that_cannot_serve_are_refused() -> None:
    with pytest.raises(AtlasError, match=rf"has 199 responses that count \(7 are traces in question\), and {FEWEST}"):
        fit_bias(pool_of([1, 0, 0, 0, 0, 0], 199), " (7 are traces in question)")
    refuse_few_sources(np.array([0.5, 0.5]), "ab")
    with pytest.raises(AtlasError, match=r"mostly from one source.* b has about 51 %"):
        refuse_few_sources(np.array([0.49, 0.51]), "ab")
    refuse_few_sources(np.full(8, 1 / 8), "abcdefgh")
    with pytest.raises(AtlasError, match=r"as that of 3\.0 equal sources"):
        refuse_few_sources(np.array([1, 1, 1, 0, 0, 0, 0, 0]) / 3, "abcdefgh")


def test_held_out_scores_are_balanced_by_other_prompts() -> None:
    """The bias of a prompt's fold does not change with that fold; where a fold is a kind, its halves serve."""
    scores = posteriors(np.repeat(np.arange(SOURCES), PROMPTS), np.random.default_rng(4), SHIFT)
    folds = fold_of_prompts([f"{i:03d}" for i in range(PROMPTS)])
    rows = np.tile(folds, SOURCES)
    found = balance_held_out(scores, folds, unseen=True)
    assert found is not None
    assert found[rows == 1] == pytest.approx(balance(scores[rows == 1], fit_bias(scores[rows != 1])), abs=1e-4)
    halves = balance_held_out(scores, folds, unseen=False)
    inside, half = rows == 1, np.tile(np.arange((folds == 1).sum()) % 2, SOURCES)
    own = scores[inside]
    assert halves is not None
    assert halves[inside][half == 0] == pytest.approx(balance(own[half == 0], balancing_bias(own[half == 1])), abs=1e-4)
    assert balance_held_out(scores[: 6 * 5], np.arange(5), unseen=False) is None


def test_statistics_of_balanced_scores_are_attached_next_to_the_others() -> None:
    scores = posteriors(np.repeat(np.arange(SOURCES), PROMPTS), np.random.default_rng(5), SHIFT)
    folds = fold_of_prompts([f"{i:03d}" for i in range(PROMPTS)])
    families = ["x", "x", "y", "y", "z", "w"]
    made = with_background({}, scores, [f"How many are {i} and {i % 7}?" for i in range(PROMPTS)], folds, families)
    fitted = Calibration.from_arrays(
        {n.partition(".")[2]: a for n, a in made.items() if n.startswith("calibration-background.")}
    )
    assert fitted.bounds is not None and "prompts-background.vectors" in made
    assert "unknown-background.nulls" in made and "stop.thresholds" not in made
    accuracy = (made["validation.metric"] == "accuracy_after") & (made["validation.condition"] == "background")
    assert made["validation.value"][accuracy].max() > 0.95
