"""One posterior from several members: a weight a member, by how long the text is (paper, Limitations: one readout).

The fused score is a weighted sum of log-posteriors, by the weights with the highest likelihood on held-out rows, for
every cell of rows: their length, and whether they end like a finished sentence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax

from backend.methods.readout import Doubles, Floats, Ints, Labels, Rows

EDGES = (24, 48, 96, 192)  # first numbers of response tokens of every length band but the first
ENDINGS = (".", "!", "?", "…", "。", "！", "？", ")", "]", "}", '"', "”", "'", "*", "`", "$", ":", "|", ">")
CELLS = 2 * (len(EDGES) + 1)  # length bands, each of finished and of unfinished texts
NEWTON_STEPS = 30
ROWS = 40_000  # rows that weights are fitted on at most, evenly drawn; a few numbers need no more


def cells_of(tokens: Labels, texts: Sequence[str], edges: Sequence[int] = EDGES) -> Ints:
    """Cell (n,) of every response by the tokens (n,) that the proxy read: its length band, shifted if unfinished."""
    band = np.searchsorted(np.asarray(edges), tokens, side="right")
    unfinished = np.fromiter((not text.rstrip().endswith(ENDINGS) for text in texts), dtype=bool, count=len(texts))
    cells: Ints = (band + (len(edges) + 1) * unfinished).astype(np.intp)
    return cells


@dataclass(frozen=True)
class Stack:
    """Fitted weights."""

    weights: Doubles  # (cells, M) float64

    def log_posterior(self, members: Sequence[Floats], cells: Ints) -> Floats:
        """Log-posteriors (n, C), float32, from those of the members, (n, C) each, and the cells of the rows (n,)."""
        out = np.zeros(members[0].shape, dtype=np.float32)
        for number, member in enumerate(members):
            out += self.weights[cells, number].astype(np.float32)[:, None] * member
        return log_softmax(out, axis=1)


def fit_stack(members: Sequence[Floats], truth: Ints, cells: Ints, cell_count: int, pull: float = 200.0) -> Stack:
    """Weights of all cells by maximum likelihood; a cell without rows has those of all rows together.

    members : (n, C) each, log-posteriors of rows that the members were not trained on.
    pull : strength of the normal prior around the weights of all rows together, in rows, against chance in small cells.
    """
    some = np.arange(len(truth)) if len(truth) <= ROWS else np.linspace(0, len(truth) - 1, ROWS).astype(np.intp)
    start = np.full(len(members), 1.0 / len(members))
    shared = fit_weights([member[some] for member in members], truth[some], start, 1.0)
    weights = np.tile(shared, (cell_count, 1))
    for cell in range(cell_count):
        rows = np.flatnonzero(cells == cell)
        if len(rows) > ROWS:
            rows = rows[np.linspace(0, len(rows) - 1, ROWS).astype(np.intp)]
        if len(rows):
            weights[cell] = fit_weights([member[rows] for member in members], truth[rows], shared, pull)
    return Stack(weights)


def fit_weights(members: Sequence[Floats], truth: Ints, prior: Doubles, pull: float) -> Doubles:
    """Weights (M,) with the highest likelihood less ``pull |w - prior|^2 / 2``, a convex problem, by Newton steps."""
    rows = np.arange(len(truth))
    relative = np.stack([member - member[rows, truth][:, None] for member in members], axis=2)

    def loss(weights: Doubles) -> tuple[float, Floats]:
        logits = relative @ weights.astype(np.float32)
        top = logits.max(1, keepdims=True)
        share = np.exp(logits - top)
        total = share.sum(1, keepdims=True)
        value = float((np.log(total) + top).sum(dtype=np.float64)) + pull * float(((weights - prior) ** 2).sum()) / 2
        return value, share / total

    weights = np.array(prior, dtype=np.float64)
    value, share = loss(weights)
    for _ in range(NEWTON_STEPS):
        mean = np.matmul(share[:, None], relative)[:, 0]
        spread = (relative * share[:, :, None]).reshape(-1, len(weights)).T @ relative.reshape(-1, len(weights))
        slope = mean.sum(0, dtype=np.float64) + pull * (weights - prior)
        curvature = spread.astype(np.float64) - mean.T.astype(np.float64) @ mean + pull * np.eye(len(weights))
        step = np.linalg.solve(curvature, slope)
        length = 1.0
        while True:  # a full step nearly always lowers the loss
            moved = weights - length * step
            found, at = loss(moved)
            if found <= value or length < 1e-3:
                break
            length /= 2
        gain = value - found
        if found <= value:
            weights, value, share = moved, found, at
        if gain < 1e-6 * max(1.0, abs(value)):
            break
    return weights


START = (0.0, -4.0)  # logarithm of the factor, log-odds of the share
BOUNDS = ((-9.0, 7.0), (-14.0, 0.0))


@dataclass(frozen=True)
class Confidence:
    """Posterior of a group: ``(1 - misread) softmax(scale * scores) + misread / C``."""

    scale: float
    misread: float  # share of the groups, at most one half

    def log_posterior(self, scores: Rows) -> Doubles:
        """Calibrated log-posteriors of scores (G, C); the order of the sources stays."""
        share = softmax(self.scale * np.asarray(scores, dtype=np.float64), axis=1)
        out: Doubles = np.log((1 - self.misread) * share + self.misread / share.shape[1])
        return out


def fit_confidence(scores: Rows, truth: Ints) -> Confidence:
    """Factor and share with the highest likelihood on held-out groups, by L-BFGS.

    ``scores`` (G, C) are sums of log-posteriors, up to a constant a row; the share is for sources misread altogether.
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
        mixed = (1 - misread) * right + misread / classes
        by_scale = (1 - misread) * right * scale * (share / total * relative).sum(1) / mixed
        by_share = misread * (1 - misread) * (right - 1 / classes) / mixed
        return float(-np.log(mixed).mean()), np.array([by_scale.mean(), by_share.mean()])

    found = minimize(loss, np.array(START), jac=True, method="L-BFGS-B", bounds=BOUNDS)
    return Confidence(float(np.exp(found.x[0])), float(expit(found.x[1])))
