"""Shares of sources in traces of several, as a router serves them.

Log-posteriors of a calibrated readout under the uniform prior are likelihoods up to a factor of the trace, so that EM
over them gives the shares of the highest likelihood: Saerens, Latinne and Decaestecker, "Adjusting the outputs of a
classifier to new a priori probabilities", Neural Computation 14 (2002). Readouts are calibrated on average and not for
every source, which takes shares from a source to those that it is mistaken for. Everything that is stated is therefore
read off simulated mixtures of held-out traces:

* the interval is a bootstrap by trace, whose ends are moved by what such mixtures need (Romano, Patterson and Candès,
  "Conformalized quantile regression", 2019);
* "all from one source" is tested by the log ratio of the likelihood of the shares to that of the source alone, against
  its values on traces of that very source. Chi-square does not hold at the border of the shares;
* a share is detectable where that test finds it in :data:`POWER` of such mixtures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from backend.inference import Doubles, Floating, Ints
from backend.inference.calibration import interpolated
from backend.protocol import SPLIT_SEED

Outcome = Literal["one source", "mixture", "cannot tell"]
BUDGETS = (10, 20, 50, 100, 200)  # traces of simulated mixtures, where there are so many prompts
SHARES = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5)  # of traces from elsewhere
LEVEL, POWER = 0.05, 0.8  # false alarms of the test, and how often a detectable share is found
SEEN = 0.2  # where no larger share than this could be missed, the traces come from one source
STEPS = 50  # of EM, from equal shares; fits and answers take the same number
RESAMPLES = 100  # of the traces
TAIL = 0.025  # beyond either end of an interval
NULLS, TRIES = 199, 20  # simulated files of a source alone; mixtures of a main source and share
MIXTURES, A_SOURCE = 200, 4  # simulated for the intervals, at least, and so many for every source
ROLES = ("claimed", "leading", "other")  # of a source whose share gets an interval
BATCH = 20_000_000  # numbers in memory at a time


def estimate_shares(log_posteriors: Floating, counts: Floating | None = None, steps: int = STEPS) -> Doubles:
    """Shares (.., M, C) of the highest likelihood, by EM.

    log_posteriors : (.., K, C), calibrated for single traces; counts : (.., M, K), how often every trace counts in each
    of M resamples; once by default, with M = 1.
    """
    likelihoods = np.exp(log_posteriors - log_posteriors.max(-1, keepdims=True))
    if counts is None:
        counts = np.ones((*likelihoods.shape[:-2], 1, likelihoods.shape[-2]), dtype=likelihoods.dtype)
    counts = counts / counts.sum(-1, keepdims=True)
    across = np.swapaxes(likelihoods, -1, -2)
    shares = np.full((*counts.shape[:-1], likelihoods.shape[-1]), 1 / likelihoods.shape[-1], dtype=likelihoods.dtype)
    # A trace that a resample leaves out may be all that held its source's share above zero.
    least = np.finfo(likelihoods.dtype).tiny
    for _ in range(steps):
        shares = shares * ((counts / np.maximum(shares @ across, least)) @ likelihoods)
    out: Doubles = shares
    return out


def single_source_ratios(log_posteriors: Floating, shares: Floating) -> Doubles:
    """Log ratio (.., C) of the likelihood of shares (.., C) to that of every source alone, of traces (.., K, C)."""
    most = log_posteriors.max(-1, keepdims=True)
    mixed = np.log(np.exp(log_posteriors - most) @ shares[..., None]) + most
    out: Doubles = mixed.sum((-2, -1), dtype=np.float64)[..., None] - log_posteriors.sum(-2, dtype=np.float64)
    return out


def bootstrap_shares(log_posteriors: Floating, rng: np.random.Generator) -> tuple[Doubles, Doubles, Doubles]:
    """Shares (.., C) of traces (.., K, C), and the ends of their bootstrap intervals by trace."""
    *batch, k, _ = log_posteriors.shape
    counts = rng.multinomial(k, np.full(k, 1 / k), size=(*batch, RESAMPLES)).astype(log_posteriors.dtype)
    once = np.ones((*batch, 1, k), dtype=counts.dtype)
    found = estimate_shares(log_posteriors, np.concatenate([once, counts], axis=-2))
    low, high = np.quantile(found[..., 1:, :], [TAIL, 1 - TAIL], axis=-2)
    return found[..., 0, :], low, high


@dataclass(frozen=True)
class Mixtures:
    """Simulated mixtures of traces of two sources each."""

    rows: Ints  # (G, K) of the log-posteriors
    main: Ints  # (G,) source of most traces
    other: Ints  # (G,) source of the rest
    share: Doubles  # (G,) of the other one


def draw_mixtures(
    main: Ints, share: Doubles, budget: int, prompts: Ints, width: int, classes: int, rng: np.random.Generator, *,
    repeated: bool = True, others: Sequence[Ints] | None = None,
) -> Mixtures:  # fmt: skip
    """Mixtures of main sources (G,) and shares (G,) of another source, any other one by default.

    prompts : those to draw from, each once unless ``repeated``; then every mixture has a resample of them for its own,
    since these prompts are a sample as well. width : prompts of a source; row = source * width + prompt.
    others : by source those that may be mixed in.
    """
    many = len(prompts)
    if repeated:
        own = rng.integers(many, size=(len(main), many))
        drawn = prompts[np.take_along_axis(own, rng.integers(many, size=(len(main), budget)), axis=1)]
    else:
        drawn = np.stack([rng.choice(prompts, budget, replace=False) for _ in main])
    if others is None:
        other = (main + rng.integers(1, classes, size=len(main))) % classes
    else:
        other = np.array([rng.choice(others[source]) for source in main], dtype=np.intp)
    from_other = np.arange(budget) < np.rint(share * budget)[:, None]
    rows = np.where(from_other, other[:, None], main[:, None]) * width + drawn
    return Mixtures(rows, main, other, from_other.mean(1))


@dataclass(frozen=True)
class MixtureReference:
    """Held-out mixtures of the sources of an enrolment."""

    budgets: Ints  # (B,) ascending numbers of traces
    nulls: npt.NDArray[np.float32]  # (B, C, M) ascending ratios of traces of every source to that source alone
    detectable: Doubles  # (B, C) smallest detectable share from elsewhere; infinite where none of SHARES is
    margins: Doubles  # (B, 3, 2) how far the ends of a bootstrap interval are moved outwards, by ROLES

    @property
    def fewest(self) -> int:
        """The fewest traces that anything is stated about."""
        return int(self.budgets[0])

    @property
    def most(self) -> int:
        """The most traces that were simulated together."""
        return int(self.budgets[-1])

    def p_values(self, ratios: Doubles, budget: int) -> Doubles:
        """p values (G, C) of "all K traces are of this source" of ratios (G, C)."""
        nulls = interpolated(self.nulls, budget, self.budgets)
        above = [
            nulls.shape[1] - np.searchsorted(null, ratios[:, c] - 1e-6 * np.maximum(abs(ratios[:, c]), 1.0))
            for c, null in enumerate(nulls)
        ]
        out: Doubles = (1.0 + np.stack(above, axis=1)) / (1 + nulls.shape[1])
        return out

    def detectable_share(self, source: int, budget: int) -> float:
        """Smallest detectable share from elsewhere, of the largest simulated number that is not above K."""
        return float(self.detectable[int(np.searchsorted(self.budgets, budget, side="right")) - 1, source])

    def moved(self, low: Doubles, high: Doubles, roles: Ints, budget: int) -> tuple[Doubles, Doubles]:
        """Ends of intervals of shares by their roles, all of one shape, from those of the bootstrap."""
        margins = interpolated(self.margins, budget, self.budgets)[roles]
        return np.clip(low - margins[..., 0], 0.0, 1.0), np.clip(high + margins[..., 1], 0.0, 1.0)

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """Arrays for :func:`numpy.savez` without pickling."""
        return dict(vars(self))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[np.generic]]) -> MixtureReference:
        """The inverse of :meth:`to_arrays`; KeyError without an array, ValueError if they do not fit together."""
        budgets, nulls = np.asarray(arrays["budgets"], dtype=np.intp), np.asarray(arrays["nulls"], dtype=np.float32)
        detectable, margins = (np.asarray(arrays[name], dtype=np.float64) for name in ("detectable", "margins"))
        if nulls.ndim != 3 or detectable.shape != nulls.shape[:2] or margins.shape != (len(budgets), len(ROLES), 2):
            raise ValueError("the parts of the reference for mixtures do not belong together")
        return cls(budgets, nulls, detectable, margins)


def fit_mixture(
    log_posteriors: Floating, prompts: Ints | None = None, budgets: Sequence[int] = BUDGETS, seed: int = SPLIT_SEED
) -> MixtureReference | None:
    """Simulate mixtures of held-out traces; None where there are fewer prompts than the smallest budget.

    log_posteriors : (C * P, C) out-of-fold, calibrated for single traces; row = source * P + prompt.
    prompts : those that are drawn, with repetition; all of them by default.
    """
    classes = log_posteriors.shape[1]
    width = len(log_posteriors) // classes
    prompts = np.arange(width) if prompts is None else prompts
    budgets = [budget for budget in budgets if budget <= len(prompts)]
    if not budgets:
        return None
    rng, scores = np.random.default_rng(seed), np.asarray(log_posteriors, dtype=np.float32)
    nulls = np.empty((len(budgets), classes, NULLS), dtype=np.float32)
    detectable, margins = np.empty((len(budgets), classes)), np.empty((len(budgets), len(ROLES), 2))
    shares = np.repeat(SHARES[1:], TRIES)
    for place, budget in enumerate(budgets):
        for source in range(classes):
            alone = draw_mixtures(np.full(NULLS, source), np.zeros(NULLS), budget, prompts, width, classes, rng)
            mixed = draw_mixtures(np.full(len(shares), source), shares, budget, prompts, width, classes, rng)
            nulls[place, source] = np.sort(ratios_of(scores, alone)[:, source])
            least = nulls[place, source, -max(int(LEVEL * (NULLS + 1)), 1)]
            found = (ratios_of(scores, mixed)[:, source] >= least).reshape(-1, TRIES).mean(1)
            detectable[place, source] = found_from(found)
        many = max(MIXTURES, A_SOURCE * classes)
        main = rng.integers(classes, size=many)
        mixed = draw_mixtures(main, rng.choice(SHARES, size=many), budget, prompts, width, classes, rng)
        margins[place] = _margins(scores, mixed, rng)
    return MixtureReference(np.array(budgets), nulls, detectable, margins)


def ratios_of(log_posteriors: Floating, mixtures: Mixtures) -> Doubles:
    """:func:`single_source_ratios` (G, C) of simulated mixtures, by the shares that EM finds."""
    parts = []
    for rows in _batches(mixtures.rows, log_posteriors.shape[1]):
        traces = log_posteriors[rows]
        parts.append(single_source_ratios(traces, estimate_shares(traces)[..., 0, :]))
    return np.concatenate(parts)


def intervals_of(
    log_posteriors: Floating, mixtures: Mixtures, rng: np.random.Generator
) -> tuple[Doubles, Doubles, Doubles]:
    """:func:`bootstrap_shares`, each (G, C), of simulated mixtures."""
    parts = [bootstrap_shares(log_posteriors[rows], rng) for rows in _batches(mixtures.rows, log_posteriors.shape[1])]
    shares, low, high = (np.concatenate(each) for each in zip(*parts, strict=True))
    return shares, low, high


def _batches(rows: Ints, classes: int) -> Iterator[Ints]:
    """Rows (G, K) in parts whose log-posteriors are few enough for the memory."""
    size = max(BATCH // (rows.shape[1] * (classes + RESAMPLES)), 1)
    return (rows[start : start + size] for start in range(0, len(rows), size))


def found_from(found: Doubles) -> float:
    """Share at which :data:`POWER` of the mixtures are found, by what was found of every one of SHARES above 0.

    Interpolated between the last share that is too small and the next one; infinite where the last one is too small.
    """
    shares, below = np.array(SHARES[1:]), np.flatnonzero(found < POWER)
    if not len(below):
        return float(shares[0])
    last = int(below[-1])
    if last + 1 == len(shares):
        return float("inf")
    part = (POWER - found[last]) / (found[last + 1] - found[last])
    return float(shares[last] + part * (shares[last + 1] - shares[last]))


def role_columns(mixtures: Mixtures, shares: Doubles) -> dict[str, tuple[Ints, Ints, Doubles]]:
    """By role the mixtures, their source, and its true share: the main source, the leading one, and the other one."""
    every = np.arange(len(shares))
    leading = shares.argmax(1)
    truth = np.where(leading == mixtures.main, 1 - mixtures.share, (leading == mixtures.other) * mixtures.share)
    mixed = np.flatnonzero(mixtures.share > 0)
    columns = {
        "claimed": (every, mixtures.main, 1 - mixtures.share),
        "leading": (every, leading, truth),
        "other": (mixed, mixtures.other[mixed], mixtures.share[mixed]),
    }
    return {role: columns[role] for role in ROLES}


def _margins(log_posteriors: Floating, mixtures: Mixtures, rng: np.random.Generator) -> Doubles:
    """How far the ends of the intervals have to be moved outwards, (3, 2) by :data:`ROLES`."""
    shares, low, high = intervals_of(log_posteriors, mixtures, rng)
    out = []
    for at, source, truth in role_columns(mixtures, shares).values():
        needed = low[at, source] - truth, truth - high[at, source]
        level = min((1 - TAIL) * (len(at) + 1) / max(len(at), 1), 1.0)
        out.append([float(np.quantile(each, level, method="higher")) for each in needed])
    return np.array(out)


@dataclass(frozen=True)
class MixtureAnswer:
    """Whether traces come from one source, and the shares of all."""

    outcome: Outcome
    source: int  # the one that all traces can come from, else the claimed one, else that of the largest share
    subject: int  # claimed source, else ``source``
    p: Doubles  # (C,) p values of "all from this source"
    detectable: float  # smallest detectable share from elsewhere where ``source`` is the main one; may be infinite
    shares: Doubles  # (C,), as the ends of their intervals
    low: Doubles
    high: Doubles


def weigh_mixture(
    reference: MixtureReference, log_posteriors: Floating, claimed: int | None = None, seed: int = SPLIT_SEED
) -> MixtureAnswer:
    """Judge K traces (K, C), calibrated for single traces; ``K`` is one that the reference covers.

    A mixture is what no source alone could have written. One source is stated where a share of :data:`SEEN` from
    elsewhere would have been detected.
    """
    traces, k = np.asarray(log_posteriors, dtype=np.float64), len(log_posteriors)
    shares, low, high = bootstrap_shares(traces, np.random.default_rng(seed))
    ratios = single_source_ratios(traces, shares)
    p = reference.p_values(ratios[None], k)[0]
    leading = int(shares.argmax())
    outcome, source = judge(reference, p, ratios, leading if claimed is None else claimed, k)
    roles = np.full(len(shares), ROLES.index("other"))
    roles[leading] = ROLES.index("leading")
    if claimed is not None:
        roles[claimed] = ROLES.index("claimed")
    low, high = reference.moved(low, high, roles, k)
    return MixtureAnswer(
        outcome,
        source,
        source if claimed is None else claimed,
        p,
        reference.detectable_share(source, k),
        shares,
        np.minimum(low, shares),
        np.maximum(high, shares),
    )


def judge(reference: MixtureReference, p: Doubles, ratios: Doubles, first: int, budget: int) -> tuple[Outcome, int]:
    """The answer by p values (C,) and ratios (C,), and the source that it is about: ``first`` where that can be."""
    possible = p > LEVEL
    if not possible.any():
        return "mixture", first
    source = first if possible[first] else int(np.where(possible, ratios, np.inf).argmin())
    return ("one source" if reference.detectable_share(source, budget) <= SEEN else "cannot tell"), source
