"""Scores put right by unlabelled traffic of the same kind (paper, Cross-Domain Transfer).

On another kind of traffic all sources' responses move alike, so that scores lean to a few sources. The bias that makes
the mean posterior of a pool uniform takes that back, if the pool is many sources' and not mostly one's: of one source
alone it would take away what tells it apart. Shares of the posteriors cannot show that, since a balanced pool has equal
ones whoever wrote it. So a mixture of the enrolled sources is fitted to the pool that may lie anywhere as a whole, by
EM over shares and one translation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax, softmax
from scipy.stats import entropy

from backend.errors import AtlasError
from backend.inference import Doubles, Floating, Ints
from backend.inference.unknown_source import Discriminant
from backend.methods.domain_adaptation import balanced, balancing_bias
from backend.protocol import BACKGROUND

FEWEST = 200  # responses of a pool
MOST = 0.5  # largest share of one source in a pool
FEW = 4.0  # effective sources of a pool at least, or half of the enrolled ones; pools of one source come up to 3
STEPS, TINY = 300, 1e-12  # of EM; the least share
OF_BALANCED = f"prompts-{BACKGROUND}"  # attachment: prompts of the traffic that error rates are of
SMALLEST = 50  # responses of a pool that error rates are measured with


def pool_shares(log_posteriors: Floating, discriminant: Discriminant) -> Doubles:
    """Shares (C,) of sources in a pool (n, C), wherever their centres lie as a whole.

    Single traces have unit variance around their source's centre in discriminant coordinates.
    """
    points, centres = discriminant.project(log_posteriors), discriminant.centres
    shares, moved = np.full(len(centres), 1 / len(centres)), points.mean(0) - centres.mean(0)
    for _ in range(STEPS):
        near = (points - moved) @ centres.T - (centres**2).sum(1) / 2 + np.log(np.maximum(shares, TINY))
        weights = softmax(near, axis=1)
        shares = weights.mean(0)
        moved = points.mean(0) - shares @ centres
    out: Doubles = shares
    return out


def effective_sources(shares: Doubles) -> float:
    """Number of equal sources with the entropy of shares (C,)."""
    return float(np.exp(entropy(shares)))


def balance(log_posteriors: Floating, bias: Doubles) -> npt.NDArray[np.float32]:
    """Log-posteriors (n, C) with a bias (C,) on the scores of every source."""
    out: npt.NDArray[np.float32] = log_softmax(log_posteriors + bias, axis=1).astype(np.float32)
    return out


def fit_bias(log_posteriors: Floating, left_out: str = "") -> Doubles:
    """Bias (C,) of a pool (n, C); see :func:`refuse_small`."""
    refuse_small(len(log_posteriors), left_out)
    return balancing_bias(log_posteriors)


def refuse_small(responses: int, left_out: str = "") -> None:
    """Refuse a pool of so few responses; ``left_out`` says which others do not count."""
    if responses < FEWEST:
        raise AtlasError(
            f"The unlabelled traffic has {responses:,} responses that count{left_out}, and {FEWEST} are needed",
            "Give more responses of the same kind, of any sources, or attribute without them",
        )


def refuse_few_sources(shares: Doubles, sources: Sequence[str]) -> None:
    """Refuse a pool that is mostly one source's, or of too few, by its shares (C,)."""
    largest, effective = float(shares.max()), effective_sources(shares)
    if largest > MOST or effective < min(FEW, len(shares) / 2):
        raise AtlasError(
            "The unlabelled traffic seems to come mostly from one source or a few: it spreads as that of "
            f"{effective:.1f} equal sources does, and {sources[int(shares.argmax())]} has about "
            f"{100 * largest:.0f} % of it",
            "Give responses of the same kind of many sources, or attribute without them",
        )


def balance_held_out(log_posteriors: Floating, prompt_folds: Ints, unseen: bool) -> npt.NDArray[np.float32] | None:
    """Scores (C * P, C), row = source * P + prompt, balanced by responses to other prompts; None for too few.

    unseen : whether heads saw none of the prompts: pools are the other folds then. Else a fold is one kind of traffic
        that its head has not seen, and its halves balance each other.
    """
    classes, folds = log_posteriors.shape[1], np.tile(prompt_folds, log_posteriors.shape[1])
    if unseen:
        return balanced(log_posteriors, folds) if (prompt_folds != 0).sum() * classes >= SMALLEST else None
    out = np.empty(log_posteriors.shape, dtype=np.float32)
    for fold in np.unique(prompt_folds):
        inside = folds == fold
        half = np.tile(np.arange((prompt_folds == fold).sum()) % 2, classes)
        if (half == 1).sum() < SMALLEST:
            return None
        out[inside] = balanced(log_posteriors[inside], half)
    return out
