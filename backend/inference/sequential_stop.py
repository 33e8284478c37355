"""Sequential stop with a stated error rate (paper, Limitations).

Looking after every trace gives an error more chances, and traces of one source depend on each other, so Wald's bound on
the plain sum does not hold. The threshold is the most lenient one whose realised error on sessions of unseen prompts is
below the stated level with 95 % confidence, as of every stricter threshold.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.stats import beta

from backend.inference import Doubles, Floating, Ints
from backend.inference.calibration import Calibration
from backend.inference.likelihood_ratios import log_likelihood_ratios

CONFIDENCE = 0.95
THRESHOLDS = np.linspace(20.0, -5.0, 126)  # candidate thresholds of the leader's log-odds in nats, strictest first
CLAIM_THRESHOLDS = np.linspace(20.0, 0.0, 101)  # of a claim: below 0 the traces speak for the other side


@dataclass(frozen=True)
class Sessions:
    """Traces of one source each, in an order of arrival."""

    rows: Ints  # (N, m) row numbers of the traces
    truth: Ints  # (N,) source of each session
    cluster: Ints  # (N,) sessions of one cluster are orders of the same traces


def ordered_sessions(rows_by_source: Ints, orders: int, seed: int) -> Sessions:
    """Random orders of the traces of every source, (S, m) rows, as S * orders sessions."""
    rng = np.random.default_rng(seed)
    sources = np.repeat(np.arange(len(rows_by_source)), orders)
    return Sessions(rng.permuted(rows_by_source[sources], axis=1), sources, sources)


def running_ratios(log_posteriors: Floating, rows: Ints, calibration: Calibration | None) -> Doubles:
    """Log ratio of every source after every trace, (N, m, C); uncalibrated with None."""
    sessions, m = rows.shape
    total = np.zeros((sessions, log_posteriors.shape[1]))
    out = np.empty((sessions, m, log_posteriors.shape[1]))
    plain = Calibration(np.array([1, m]), np.ones(2), np.zeros((2, log_posteriors.shape[1])), np.ones(2, dtype=np.intp))
    for k in range(m):
        total += log_posteriors[rows[:, k]]
        out[:, k] = log_likelihood_ratios((calibration or plain).apply(total, k + 1))
    return out


def leader_log_odds(ratios: Doubles) -> tuple[Doubles, Ints]:
    """Log-odds of the leading source under the uniform prior, and its number, each (N, m)."""
    leader = ratios.argmax(-1)
    best = np.take_along_axis(ratios, leader[..., None], axis=-1)[..., 0]
    odds: Doubles = best - np.log(ratios.shape[-1] - 1)
    return odds, leader


def first_crossing(path: Floating, threshold: float) -> Ints:
    """Number of traces (N,) at which paths (N, m) first reach a threshold, 0 where they never do."""
    over = path >= threshold
    return np.where(over.any(1), over.argmax(1) + 1, 0)


def upper_bound(errors: float, trials: float) -> float:
    """Clopper-Pearson upper bound of an error rate; counts need not be whole."""
    if errors >= trials:  # also where nothing was tried
        return 1.0
    return float(beta.ppf(CONFIDENCE, errors + 1, trials - errors))


@dataclass(frozen=True)
class StopRule:
    """When a named source is evidence enough, and when a claim is supported or refuted.

    Neither threshold of a claim is negative. A threshold is infinite where so few held-out sessions cannot show that
    any would keep the level. A source passes as its nearest enrolled neighbour in at most ``level`` of the sessions.
    """

    level: float  # stated error rate, of each of the three decisions
    name: float  # log posterior odds of the leader: of the sessions that stop, at most ``level`` name a wrong source
    support: float  # log ratio of the claim
    against: float  # minus the log ratio: a true claim is refuted in at most ``level`` of the sessions
    traces: int | None = field(default=None, kw_only=True)  # length of those sessions; None in files of before

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """Arrays for :func:`numpy.savez` without pickling."""
        return stop_arrays([self])

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[np.generic]], level: float | None = None) -> StopRule:
        """One of the rules that :func:`stop_arrays` wrote; a negative threshold of a claim is taken as 0.

        Raises KeyError if not exactly one has that level (any where it is None); ValueError for sessions of no trace.
        """
        table = np.atleast_2d(np.array(arrays["thresholds"], dtype=np.float64))
        table[:, 2:] = np.maximum(table[:, 2:], 0.0)
        traces = int(np.asarray(arrays["traces"]).item()) if "traces" in arrays else None
        if traces is not None and traces < 1:
            raise ValueError(f"sessions of a stop rule have at least one trace, got {traces}")
        rules = [cls(*map(float, row), traces=traces) for row in table if level is None or abs(row[0] - level) < 1e-9]
        if len(rules) != 1:
            raise KeyError(f"there is no stop rule of level {level}, only of {table[:, 0].tolist()}")
        return rules[0]

    def named_at(self, ratios: Doubles) -> tuple[Ints, Ints]:
        """Traces (N,) until a source is named, 0 for never, and which one, from running ratios (N, m, C)."""
        odds, leader = leader_log_odds(ratios)
        at = first_crossing(odds, self.name)
        return at, leader[np.arange(len(at)), np.maximum(at - 1, 0)]

    def claim_at(self, ratios: Doubles) -> tuple[Ints, Ints]:
        """Traces (N,) until a claim is decided, 0 for never, and 1 for, -1 against, from running ratios (N, m)."""
        up, down = first_crossing(ratios, self.support), first_crossing(-ratios, self.against)
        supported = (up > 0) & ((down == 0) | (up < down))
        return np.where(supported, up, down), np.where(supported, 1, np.where(down, -1, 0))


def stop_arrays(rules: Sequence[StopRule]) -> dict[str, npt.NDArray[np.generic]]:
    """Rules of several levels as arrays: a row each, and the length of their sessions."""
    table = np.array([[rule.level, rule.name, rule.support, rule.against] for rule in rules])
    lengths = [rule.traces for rule in rules if rule.traces is not None]
    return {"thresholds": table} | ({"traces": np.array(min(lengths))} if lengths else {})


def nearest_sources(log_posteriors: Floating, labels: Ints) -> Ints:
    """Of every source (C,) the other one that its traces (n, C) are most likely taken for."""
    classes = log_posteriors.shape[1]
    mean = np.stack([log_posteriors[labels == c].mean(0, dtype=np.float64) for c in range(classes)])
    np.fill_diagonal(mean, -np.inf)
    out: Ints = mean.argmax(1)
    return out


def fit_stop_rule(ratios: Doubles, sessions: Sessions, nearest: Ints, level: float) -> StopRule:
    """Most lenient thresholds that keep the stated error rate on sessions of held-out prompts.

    Sessions of a cluster are averaged first and count as one, which makes the bound wider than need be.

    ratios : (N, m, C) from :func:`running_ratios`, calibrated without the prompts that the rule will be tested on.
    nearest : (C,) from :func:`nearest_sources`.
    """
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, got {level}")
    n = np.arange(len(ratios))
    weight = 1.0 / np.bincount(sessions.cluster)[sessions.cluster]
    odds, leader = leader_log_odds(ratios)
    genuine = -ratios[n, :, sessions.truth].min(1)
    impostor = ratios[n, :, nearest[sessions.truth]].max(1)

    def name_rates(threshold: float) -> tuple[float, float]:
        at = first_crossing(odds, threshold)
        wrong = (at > 0) & (leader[n, np.maximum(at - 1, 0)] != sessions.truth)
        return float(weight @ wrong), float(weight @ (at > 0))

    def claim_rates(reached: Doubles) -> Callable[[float], tuple[float, float]]:
        return lambda threshold: (float(weight @ (reached >= threshold)), float(weight.sum()))

    return StopRule(
        level=level,
        name=_most_lenient(THRESHOLDS, name_rates, level),
        support=_most_lenient(CLAIM_THRESHOLDS, claim_rates(impostor), level),
        against=_most_lenient(CLAIM_THRESHOLDS, claim_rates(genuine), level),
        traces=ratios.shape[1],
    )


def _most_lenient(thresholds: Doubles, rates: Callable[[float], tuple[float, float]], level: float) -> float:
    """Last threshold before the bound of (errors, trials) breaks.

    It starts at the first one that no error at all would keep, by the number of trials only: a fixed sequence of tests.
    """
    lenient = np.inf
    for threshold in map(float, thresholds):
        errors, trials = rates(threshold)
        if upper_bound(0.0, trials) > level:
            continue
        if upper_bound(errors, trials) > level:
            break
        lenient = threshold
    return float(lenient)
