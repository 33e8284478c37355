"""Shares by EM, their intervals, the test of one source, and the reference that both are read off."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from backend.inference import mixture
from backend.inference.calibration import held_out_groups
from backend.inference.mixture import (
    LEVEL,
    SHARES,
    MixtureReference,
    bootstrap_shares,
    draw_mixtures,
    estimate_shares,
    fit_mixture,
    found_from,
    single_source_ratios,
    weigh_mixture,
)
from backend.inference.mixture_validation import mixture_frame

Doubles = npt.NDArray[np.float64]
SOURCES, PROMPTS = 6, 120


def posteriors(truth: npt.NDArray[np.intp], rng: np.random.Generator, apart: float = 2.0) -> Doubles:
    """Exact log-posteriors (n, C) of points ``apart`` standard deviations from the origin, an axis a source."""
    points = rng.normal(size=(len(truth), SOURCES)) + apart * np.eye(SOURCES)[truth]
    logits = apart * points
    out: Doubles = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    return out


@pytest.fixture(scope="module")
def grid() -> Doubles:
    """Held-out log-posteriors (C * P, C)."""
    return posteriors(np.repeat(np.arange(SOURCES), PROMPTS), np.random.default_rng(1))


@pytest.fixture(scope="module")
def reference(grid: Doubles) -> MixtureReference:
    found = fit_mixture(grid, budgets=(20, 100))
    assert found is not None
    return found


def traces_of(grid: Doubles, share: float, budget: int, seed: int, main: int = 2) -> Doubles:
    mixed = draw_mixtures(
        np.array([main]), np.array([share]), budget, np.arange(PROMPTS), PROMPTS, SOURCES, np.random.default_rng(seed)
    )
    out: Doubles = grid[mixed.rows[0]]
    return out


def test_two_sources_have_the_share_of_the_highest_likelihood_on_a_grid() -> None:
    rng = np.random.default_rng(3)
    first = rng.uniform(0.01, 0.99, size=40)
    log_posteriors = np.log(np.stack([first, 1 - first], axis=1))
    grid = np.linspace(0, 1, 100_001)
    likelihood = np.log(np.outer(grid, first) + np.outer(1 - grid, 1 - first)).sum(1)
    share = estimate_shares(log_posteriors, steps=5_000)[0, 0]
    assert share == pytest.approx(grid[likelihood.argmax()], abs=2e-5)
    # Traces that each show one source without doubt leave its count.
    sure = np.log(np.array([[1 - 1e-12, 1e-12]] * 3 + [[1e-12, 1 - 1e-12]]))
    assert estimate_shares(sure)[0] == pytest.approx([0.75, 0.25])


def test_a_resample_without_the_only_trace_of_a_source_has_shares() -> None:
    sure = np.where(np.eye(2, dtype=bool)[[0, 0, 1]], 0, -200).astype(np.float32)
    left_out = np.array([[2, 1, 0], [1, 1, 1]], dtype=np.float32)
    np.testing.assert_allclose(estimate_shares(sure, left_out), [[1, 0], [2 / 3, 1 / 3]], atol=1e-6)


def test_shares_equal_those_of_a_loop(grid: Doubles) -> None:
    traces = traces_of(grid, 0.3, 25, seed=4)
    counts = np.random.default_rng(5).multinomial(25, np.full(25, 1 / 25), size=3).astype(float)
    found = estimate_shares(traces, counts, steps=7)
    for row, times in zip(found, counts, strict=True):
        shares = [1 / SOURCES] * SOURCES
        for _ in range(7):
            total = [0.0] * SOURCES
            for trace, often in zip(np.exp(traces), times, strict=True):
                mixed = sum(share * value for share, value in zip(shares, trace, strict=True))
                for source in range(SOURCES):
                    total[source] += often * shares[source] * trace[source] / mixed / 25
            shares = total
        assert row == pytest.approx(shares)
        assert sum(shares) == pytest.approx(1)


def test_batches_give_what_single_files_give(grid: Doubles) -> None:
    files = np.stack([traces_of(grid, share, 20, seed=6) for share in (0.0, 0.5)])
    together = estimate_shares(files)
    assert together.shape == (2, 1, SOURCES)
    for file, shares in zip(files, together[:, 0], strict=True):
        assert shares == pytest.approx(estimate_shares(file)[0])
        ratios = single_source_ratios(file, shares)
        mixed = sum(math.log(sum(np.exp(trace) * shares)) for trace in file)
        assert ratios == pytest.approx(mixed - file.sum(0))
        assert ratios.min() >= -1e-6  # no source alone is likelier than its shares


def test_one_trace_has_an_interval_from_nothing_to_all(grid: Doubles) -> None:
    shares, low, high = bootstrap_shares(traces_of(grid, 0.0, 1, seed=7), np.random.default_rng(8))
    assert shares.sum() == pytest.approx(1)
    assert (low == high).all()  # there is but one trace to draw: only the margins of a reference widen it


def test_a_detectable_share_lies_between_those_that_were_tried() -> None:
    at = len(SHARES) - 1
    assert found_from(np.ones(at)) == SHARES[1]
    assert math.isinf(found_from(np.zeros(at)))
    assert found_from(np.array([0.1, 0.2, 0.6, 1.0, 1.0, 1.0])) == pytest.approx(0.25)
    assert found_from(np.array([0.9, 0.2, 0.6, 1.0, 1.0, 1.0])) == pytest.approx(0.25)  # one lucky share is none


def test_answers_about_one_source_a_mixture_and_too_few_traces(grid: Doubles, reference: MixtureReference) -> None:
    assert (reference.fewest, reference.most) == (20, 100)
    pure = weigh_mixture(reference, traces_of(grid, 0.0, 100, seed=9), claimed=2)
    assert (pure.outcome, pure.source, pure.subject) == ("one source", 2, 2)
    assert pure.p[2] > LEVEL and pure.high[2] == 1.0 and pure.detectable <= 0.2
    mixed = weigh_mixture(reference, traces_of(grid, 0.3, 100, seed=10), claimed=2)
    assert mixed.outcome == "mixture" and mixed.p[2] <= LEVEL
    assert mixed.low[2] <= 0.7 <= mixed.high[2] < 1.0
    assert mixed.shares.sum() == pytest.approx(1)
    other = weigh_mixture(reference, traces_of(grid, 0.0, 100, seed=11, main=4), claimed=2)
    assert (other.outcome, other.source, other.subject) == ("one source", 4, 2)
    assert other.p[2] <= LEVEL
    blind = mixture.MixtureReference(**vars(reference) | {"detectable": np.full((2, SOURCES), np.inf)})
    assert weigh_mixture(blind, traces_of(grid, 0.0, 20, seed=20)).outcome == "cannot tell"


def test_a_source_that_nobody_enrolled_is_no_single_enrolled_one(reference: MixtureReference) -> None:
    rng = np.random.default_rng(13)
    logits = 2.0 * (rng.normal(size=(100, SOURCES)) + np.eye(SOURCES)[[0]] + np.eye(SOURCES)[[1]])
    stranger = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    assert weigh_mixture(reference, stranger).outcome == "mixture"


def test_few_prompts_give_no_reference(grid: Doubles) -> None:
    assert fit_mixture(grid, prompts=np.arange(9)) is None
    found = fit_mixture(grid, prompts=np.arange(19), budgets=(10, 20))
    assert found is not None and found.budgets.tolist() == [10]


def test_a_reference_survives_its_arrays_and_refuses_damaged_ones(reference: MixtureReference) -> None:
    arrays = reference.to_arrays()
    again = MixtureReference.from_arrays(arrays)
    assert again.to_arrays().keys() == arrays.keys()
    assert all((value == arrays[name]).all() for name, value in again.to_arrays().items())
    with pytest.raises(ValueError, match="belong together"):
        MixtureReference.from_arrays(arrays | {"margins": np.zeros((2, 2))})
    with pytest.raises(KeyError):
        MixtureReference.from_arrays({"budgets": arrays["budgets"]})


@pytest.mark.slow(40)
def test_intervals_hold_the_share_and_alarms_keep_their_level() -> None:
    rng = np.random.default_rng(14)
    prompts = 300
    scores = posteriors(np.repeat(np.arange(SOURCES), prompts), rng, apart=1.4)
    folds = np.arange(prompts) % 5
    groups = {k: held_out_groups(scores, folds, k) for k in (1, 10)}
    frame = mixture_frame(scores, folds, groups, np.arange(SOURCES) // 2).set_index(["metric", "scenario", "k"])
    whole = frame[frame["level"].isna()].set_index("statistic", append=True)["value"]
    for role in ("claimed", "leading", "other"):
        held = [whole["share_coverage", "any", k, role] for k in (20, 50, 100)]
        assert 0.92 <= np.mean(held) <= 0.98, role  # the aim
        assert all(0.92 <= share <= 0.99 for share in held), role  # at one K of 700 mixtures, which share traces
    alarms = frame[frame["level"].eq(0)]["value"]
    assert np.mean([alarms["found", "any", k] for k in (20, 50, 100)]) <= 0.08
    assert whole.loc["detectable", "any", 100].item() < whole.loc["detectable", "any", 20].item()
