"""Has an endpoint changed between two windows of traces? (paper, Limitations: drift is not detected there).

Two-sample permutation tests on fingerprints, which need no enrolled source: the energy distance, or the maximum mean
discrepancy with a Gaussian kernel. All permutations share one matrix of distances, so that a test is one matrix
product. Where both windows answered the same prompts, the answers are swapped within prompts, which takes the large
variance between prompts out of the comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

Floating = npt.NDArray[np.floating]
Doubles = npt.NDArray[np.float64]
Method = Literal["energy", "mmd"]
PERMUTATIONS = 999
SEED = 42
FEWEST_PAIRED = 6
"""Prompts that paired windows need before the test can speak at 5 %: with 5, the rarest of 16 swaps has p = .0625."""


@dataclass(frozen=True)
class DriftTest:
    """Result of a two-sample test.

    before, after : traces of the windows.
    """

    statistic: float  # energy distance, or squared MMD with biased estimates; 0 for equal windows
    p_value: float  # ``(1 + permutations at least as extreme) / (1 + permutations)``
    method: Method
    paired: bool  # whether answers were swapped within prompts
    before: int
    after: int
    permutations: int  # drawn; of paired windows with so few prompts that all swaps are tried, their number
    seed: int  # of what was drawn


def drift_test(
    before: Floating,
    after: Floating,
    method: Method = "energy",
    paired: bool = False,
    permutations: int = PERMUTATIONS,
    seed: int = SEED,
) -> DriftTest:
    """Test whether two windows of traces come from the same distribution.

    before, after : (n, D) and (m, D) fingerprints, standardised so that coordinates are comparable (or log-posteriors).
        Prompts of both windows must be alike: the test cannot tell another model from other questions.
    method : the kernel width of MMD is the median distance of the pooled traces.
    paired : row i of both windows answers the same prompt.
    Raises ValueError if a window has fewer than two traces, or paired windows differ in length.
    """
    n, m = len(before), len(after)
    if n < 2 or m < 2:
        raise ValueError(f"each window needs at least two traces, got {n} and {m}")
    if paired and n != m:
        raise ValueError(f"paired windows must have as many traces, got {n} and {m}")
    similarity = similarities(np.concatenate([before, after]).astype(np.float64), method)
    observed = np.r_[np.full(n, 1.0 / n), np.full(m, -1.0 / m)]
    rng = np.random.default_rng(seed)
    if paired:
        signs = _swaps(n, permutations, rng)
        drawn = np.concatenate([signs, -signs], axis=1) / n
    else:
        drawn = rng.permuted(np.broadcast_to(observed, (permutations, n + m)), axis=1)
    weights = np.concatenate([observed[None], drawn])
    statistics = ((weights @ similarity) * weights).sum(1)
    # The same partition met again must count as a tie, whatever the order of its sums.
    extreme = statistics[1:] >= statistics[0] - 1e-9 * max(abs(float(statistics[0])), 1e-12)
    p_value = (1 + int(extreme.sum())) / len(statistics)
    return DriftTest(float(statistics[0]), p_value, method, paired, n, m, len(drawn), seed)


def _swaps(n: int, permutations: int, rng: np.random.Generator) -> Doubles:
    """Signs (m, n), -1 where the answers to a prompt change windows: all but the observed ones where they are few.

    Swapping all other prompts instead gives the same distance, so the first one of n stays where every swap is tried.
    """
    if 2 ** (n - 1) > permutations:
        kept = rng.integers(0, 2, size=(permutations, n))
    else:
        kept = 1 - (np.arange(1, 2 ** (n - 1))[:, None] >> np.arange(n)[::-1] & 1)
    signs: Doubles = np.where(kept, 1.0, -1.0)
    return signs


def similarities(rows: Doubles, method: Method) -> Doubles:
    """Matrix (N, N) whose quadratic form in the weights 1/n and -1/m is the statistic.

    Minus the Euclidean distance for 'energy', a Gaussian kernel for 'mmd'.
    """
    squares = (rows**2).sum(1)
    distances = np.maximum(squares[:, None] + squares - 2 * rows @ rows.T, 0.0)
    np.fill_diagonal(distances, 0.0)
    if method == "energy":
        out: Doubles = -np.sqrt(distances)
        return out
    upper = distances[np.triu_indices(len(rows), 1)]
    width = float(np.median(upper))
    return np.exp(-distances / (2 * width)) if width > 0 else np.ones_like(distances)
