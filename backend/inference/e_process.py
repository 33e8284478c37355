"""Evidence against a claimed source that may be looked at after every trace (paper, Limitations).

Each trace gets a score of its oddness. If it is exchangeable with the reference, its smoothed rank among the reference
and all traces before it is uniform and independent of earlier ranks, although all share the reference (Vovk, Gammerman
and Shafer, 2022, Algorithmic Learning in a Random World, chapters 2 and 8). Bets on small ranks then multiply to a
martingale, so that it ever exceeds 1/a with probability a at most (Ville's inequality). Shares of the capital jump
between bets, so that a late change is seen too (Vovk et al., 2021, Retrain or not retrain, COPA).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Sequence

import numpy as np
from scipy.special import logsumexp

from backend.inference import Doubles, Floating

POWERS = (1.0, 0.8, 0.6, 0.4, 0.2, 0.1)  # bets k p^(k - 1) on a rank p; 1 bets nothing
JUMPS = (0.001, 0.01, 0.1)  # shares of the capital that are dealt anew before every trace, a third of it each
LN10 = float(np.log(10.0))


def oddness(log_posteriors: Floating, log_prior: Floating, claimed: int) -> Doubles:
    """How much likelier each trace (n, C) is from the other sources together than from the claimed one, (n,) nats."""
    likelihoods = np.asarray(log_posteriors, dtype=np.float64) - log_prior
    others = np.delete(likelihoods, claimed, axis=1)
    odds: Doubles = logsumexp(others, axis=1) - np.log(others.shape[1]) - likelihoods[:, claimed]
    return odds


def uniforms(seed: int, count: int) -> Doubles:
    """Numbers in (0, 1] that part ties; a longer list begins with a shorter one."""
    drawn: Doubles = 1.0 - np.random.default_rng(seed).random(count)
    return drawn


def smoothed_ranks(reference: Floating, scores: Floating, ties: Floating) -> Doubles:
    """Share of the reference (r,) and of all scores (n,) so far that are odder than each score; ``ties`` in (0, 1]."""
    known = sorted(map(float, reference))
    ranks = np.empty(len(scores))
    for place, score in enumerate(map(float, scores)):
        below, upto = bisect_left(known, score), bisect_right(known, score)
        ranks[place] = (len(known) - upto + ties[place] * (upto - below + 1)) / (len(known) + 1)
        insort(known, score)
    return ranks


def log_capital(ranks: Floating, bets: Sequence[float] = POWERS, jumps: Sequence[float] = JUMPS) -> Doubles:
    """Log of the capital after every bet on ranks (..., n) of independent streams; it begins with 1."""
    rates = np.array(jumps).reshape(-1, 1, *[1] * (ranks.ndim - 1))
    powers = np.array(bets).reshape(1, -1, *[1] * (ranks.ndim - 1))
    shares = np.full((len(jumps), len(bets), *ranks.shape[:-1]), 1.0 / (len(jumps) * len(bets)))
    total, out = np.zeros(ranks.shape[:-1]), np.empty(ranks.shape)
    for place in range(ranks.shape[-1]):
        dealt = (1 - rates) * shares + rates * shares.mean(axis=1, keepdims=True)
        won = dealt * powers * ranks[..., place] ** (powers - 1)
        grown = won.sum(axis=(0, 1))
        shares, total = won / grown, total + np.log(grown)
        out[..., place] = total
    return out


def log_evidence(reference: Floating, scores: Floating, seed: int) -> Doubles:
    """Log e-value after every score (n,) against exchangeability with the reference (r,)."""
    return log_capital(smoothed_ranks(reference, scores, uniforms(seed, len(scores))))


def first_alarm(log_e: Floating, rate: float) -> int:
    """Number of scores at which the e-value first reaches 1/rate; 0 where it never does."""
    over = np.asarray(log_e) >= -np.log(rate)
    return int(over.argmax()) + 1 if over.any() else 0


def change_before(log_e: Floating, alarm: int) -> int:
    """Number of scores before the change that an alarm is about: where the evidence stood lowest."""
    return int(np.argmin([0.0, *log_e[:alarm]]))


def evidence_text(log10_e: float) -> str:
    """An e-value for people: '0.31 to 1', '57 to 1', '10^8 to 1'."""
    if log10_e >= 5:
        return f"10^{math.floor(log10_e)} to 1"
    return f"{10**log10_e:,.0f} to 1" if log10_e >= 1 else f"{10**log10_e:.2g} to 1"
