"""How sure a sum of log-posteriors may be (paper, Evidence Accumulation: held-out calibration, budget by budget).

A factor on the scores is not enough where a few sources are misread altogether, as one is that gives itself away by its
length alone and is cut short: whatever is certain and wrong makes a factor so timid that it suits nobody. So a share
of the groups counts as misread: their source is as likely as any other, whatever the scores say.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize
from scipy.special import expit, log_softmax

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
START = (0.0, -4.0)
"""Logarithm of the factor, log-odds of the share."""
BOUNDS = ((-9.0, 7.0), (-14.0, 0.0))


@dataclass(frozen=True)
class Confidence:
    """Posterior of a group: ``(1 - misread) softmax(scale * scores) + misread / C``.

    Attributes
    ----------
    scale : float
    misread : float
        Share of the groups, at most one half.
    """

    scale: float
    misread: float

    def log_posterior(self, scores: npt.NDArray[np.floating]) -> Doubles:
        """Calibrated log-posteriors of scores (G, C); the order of the sources stays."""
        share = np.exp(log_softmax(self.scale * np.asarray(scores, dtype=np.float64), axis=1))
        out: Doubles = np.log((1 - self.misread) * share + self.misread / share.shape[1])
        return out


def fit_confidence(scores: npt.NDArray[np.floating], truth: Ints) -> Confidence:
    """Factor and share with the highest likelihood on held-out groups, by L-BFGS.

    Parameters
    ----------
    scores : ndarray of shape (G, C)
        Sums of log-posteriors, up to a constant a row.
    truth : ndarray of shape (G,)
    """
    classes = scores.shape[1]
    relative = np.asarray(scores, dtype=np.float64) - scores[np.arange(len(truth)), truth][:, None]

    def loss(at: Doubles) -> tuple[float, Doubles]:
        scale, misread = np.exp(at[0]), expit(at[1])
        logits = scale * relative
        top = logits.max(1, keepdims=True)
        share = np.exp(logits - top)
        total = share.sum(1, keepdims=True)
        right = np.exp(-(np.log(total) + top)[:, 0])
        held = (1 - misread) * right + misread / classes
        by_scale = (1 - misread) * right * scale * (share / total * relative).sum(1) / held
        by_share = misread * (1 - misread) * (right - 1 / classes) / held
        return float(-np.log(held).mean()), np.array([by_scale.mean(), by_share.mean()])

    found = minimize(loss, np.array(START), jac=True, method="L-BFGS-B", bounds=BOUNDS)
    return Confidence(float(np.exp(found.x[0])), float(expit(found.x[1])))
