"""Bayesian evidence accumulation: log-posteriors of K traces to one score a source (paper, Stage 2).

The score is ``sum_k log q(c | u_k) - (K - 1) log pi_c``. The paper divides it by K, which ranks the sources the same:
``sum`` is Bayes' rule under independence, ``mean`` is what the paper's release evaluates.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax

Scaling = Literal["sum", "mean"]
Doubles = npt.NDArray[np.float64]
Rows = npt.NDArray[np.floating]


def accumulate(log_posteriors: Rows, groups: npt.NDArray[np.intp], log_prior: Rows | None = None) -> Doubles:
    """Score groups of traces: unnormalised log-scores (G, C); the largest is the attributed source.

    groups : (G, K) row numbers of log_posteriors (n, C).
    log_prior : (C,) log of the prior in enrollment; uniform when absent.
    """
    classes = log_posteriors.shape[1]
    prior = np.full(classes, -np.log(classes)) if log_prior is None else np.asarray(log_prior, dtype=np.float64)
    out = np.zeros((len(groups), classes))
    for k in range(groups.shape[1]):  # a column at a time: no (G, K, C) array
        out += log_posteriors[groups[:, k]]
    out -= (groups.shape[1] - 1) * prior
    return out


def posterior(scores: Doubles, budget: int, scaling: Scaling = "sum") -> Doubles:
    """Normalise scores (G, C) of :func:`accumulate` to log-probabilities; 'mean' divides by the budget."""
    scaled = scores / budget if scaling == "mean" else scores
    normalised: Doubles = log_softmax(scaled, axis=1)
    return normalised
