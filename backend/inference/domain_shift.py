"""Are the traces of a kind that was validated? Distance of K traces to an enrolled domain (paper, Stress Tests: another
domain costs most of the accuracy).

A domain is the cloud of fingerprints of all its sources. K traces of one source are as far from its centre as resampled
groups of K traces of one enrolled source are, or they are of another kind: other tasks, another language, another
source altogether. The test cannot tell these apart; it only says where nothing was validated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from backend.protocol import BUDGETS

Floating = npt.NDArray[np.floating]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
DRAWS = 999
SEED = 42
STD_FLOOR = 1e-6


@dataclass(frozen=True)
class DomainReference:
    """Centre and spread of a domain, and how far groups of its own lie from the centre.

    mean, scale : (D,) over all traces.
    """

    mean: Doubles
    scale: Doubles
    budgets: Ints  # (B,)
    nulls: Doubles  # (B, M) ascending distances of resampled groups of one source

    def distance(self, mean: Floating) -> float:
        """Root mean square of the standardised deviation of a mean fingerprint (D,)."""
        return float(np.sqrt((((mean - self.mean) / self.scale) ** 2).mean()))

    def p_value(self, mean: Floating, budget: int) -> float:
        """Share of groups at least as far, with the +1 correction; quantiles are interpolated in log K."""
        place = np.interp(np.log(budget), np.log(self.budgets), np.arange(len(self.budgets)))
        low = int(place)
        high, share = min(low + 1, len(self.budgets) - 1), place - low
        null = (1 - share) * self.nulls[low] + share * self.nulls[high]
        return float((1 + (null >= self.distance(mean)).sum()) / (1 + len(null)))

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """Arrays that :func:`numpy.savez` keeps without pickling."""
        return {"mean": self.mean, "scale": self.scale, "budgets": self.budgets, "nulls": self.nulls}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[np.generic]]) -> DomainReference:
        """The inverse of :meth:`to_arrays`."""
        mean, scale, nulls = (np.asarray(arrays[name], dtype=np.float64) for name in ("mean", "scale", "nulls"))
        return cls(mean, scale, np.asarray(arrays["budgets"], dtype=np.intp), nulls)


def fit_domain(
    fingerprints: Floating, labels: Ints, budgets: Sequence[int] = BUDGETS, draws: int = DRAWS, seed: int = SEED
) -> DomainReference:
    """Fit a domain to the fingerprints (n, D) of enrolled sources, (n,) source numbers.

    Every resampled group takes a random source and K of its traces with replacement.
    """
    mean = fingerprints.mean(0, dtype=np.float64)
    scale = np.maximum(fingerprints.std(0, dtype=np.float64), STD_FLOOR)
    rng = np.random.default_rng(seed)
    present, first, counts = np.unique(np.sort(labels), return_index=True, return_counts=True)
    order = np.argsort(labels, kind="stable")
    nulls = np.empty((len(budgets), draws))
    for place, budget in enumerate(budgets):
        source = rng.integers(0, len(present), size=draws)
        drawn = order[first[source][:, None] + (rng.random((draws, budget)) * counts[source][:, None]).astype(np.intp)]
        for i, rows in enumerate(drawn):
            deviation = (fingerprints[rows].mean(0, dtype=np.float64) - mean) / scale
            nulls[place, i] = np.sqrt((deviation**2).mean())
    return DomainReference(mean, scale, np.array(budgets), np.sort(nulls, axis=1))
