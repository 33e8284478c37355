"""Multinomial regression: the paper's probe ``reader-paper``, carried to its minimum, and within families.

The probe (paper, READER Optimization): standardised fingerprints, zero initialisation, 40 full-batch Adam steps on
cross-entropy plus ``||W||^2 / (2 C N)``, cosine learning-rate decay with a horizon of 100 steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from scipy.special import log_softmax, logsumexp, softmax

from backend.methods.readout import Arrays, Doubles, Floats, Ints, Labels, Rows, Settings

STD_FLOOR = 1e-6


@dataclass(frozen=True)
class ProbeSettings(Settings):
    """Settings of the optimisation; the defaults are the paper's."""

    WORDS: ClassVar = "ProbeSettings steps horizon learning_rate final_share c"
    steps: int = 40
    horizon: int = 100
    learning_rate: float = 1e-3
    final_share: float = 0.01
    c: float = 1.0

    def rate(self, step: int) -> float:
        """Learning rate of a step (0-based)."""
        cosine = 0.5 * (1 + math.cos(math.pi * step / self.horizon))
        return self.learning_rate * (self.final_share + (1 - self.final_share) * cosine)


@dataclass(frozen=True)
class LinearProbe(Arrays):
    """A fitted standardiser and linear head."""

    SHAPES: ClassVar = {"mean": "D", "scale": "D", "weight": "DC", "bias": "C"}
    mean: Floats  # of the training rows
    scale: Floats  # their population standard deviation, at least 1e-6
    weight: Floats
    bias: Floats

    def log_posterior(self, fingerprints: Rows) -> Floats:
        """Log-posteriors (n, C), float32, of fingerprints (n, D)."""
        x = torch.from_numpy((fingerprints.astype(np.float32) - self.mean) / self.scale)
        logits = torch.addmm(torch.from_numpy(self.bias), x, torch.from_numpy(self.weight))
        return torch.log_softmax(logits, -1).numpy()

    def plane(self, row: Rows, source: int, rival: int) -> tuple[Doubles, Doubles, float]:
        """Centre and direction, each (D,), and constant, whose sum is the log-odds of two sources at any row (D,)."""
        return linear_plane(self.mean, self.scale, self.weight, self.bias, source, rival)


@dataclass(frozen=True)
class LinearReadout(Arrays):
    """A linear map from coordinates to scores of the sources."""

    SHAPES: ClassVar = {"centre": "D", "weight": "DC", "bias": "C"}
    centre: Floats  # taken from every row first
    weight: Floats
    bias: Floats

    def scores(self, rows: Rows) -> Floats:
        """Unnormalised scores (n, C) of rows (n, D)."""
        moved: Floats = np.asarray(rows, dtype=np.float32) - self.centre
        return moved @ self.weight + self.bias

    def log_posterior(self, rows: Rows) -> Floats:
        """Log-posteriors (n, C), float32, of rows (n, D)."""
        return log_softmax(self.scores(rows), axis=1)

    def plane(self, row: Rows, source: int, rival: int) -> tuple[Doubles, Doubles, float]:
        """Centre and direction, each (D,), and constant, whose sum is the log-odds of two sources at any row (D,)."""
        return linear_plane(self.centre, np.float32(1), self.weight, self.bias, source, rival)


def linear_plane(
    centre: Floats, scale: Floats | np.float32, weight: Floats, bias: Floats, source: int, rival: int
) -> tuple[Doubles, Doubles, float]:
    """Centre, direction and constant of the log-odds of two sources by weights (D, C) on standardised rows."""
    direction = (weight[:, source].astype(np.float64) - weight[:, rival]) / scale
    return centre.astype(np.float64), direction, float(bias[source]) - float(bias[rival])


def standardiser(rows: Rows) -> tuple[Floats, Floats]:
    """Mean and population standard deviation of (n, D) training rows, each of shape (D,)."""
    mean = rows.mean(0, dtype=np.float64)
    std = rows.std(0, dtype=np.float64)
    return mean.astype(np.float32), np.maximum(std, STD_FLOOR).astype(np.float32)


def fit_probe(fingerprints: Rows, labels: Labels, classes: int, settings: ProbeSettings | None = None) -> LinearProbe:
    """Fit the probe to fingerprints (n, D), not standardised; ValueError if a label is missing or out of range."""
    if len(fingerprints) != len(labels) or not len(labels):
        raise ValueError(f"{len(fingerprints)} fingerprints and {len(labels)} labels: need as many, and at least one")
    if labels.min() < 0 or labels.max() >= classes:
        raise ValueError(f"labels must lie in 0..{classes - 1}")
    mean, scale = standardiser(fingerprints)
    x = torch.from_numpy((fingerprints.astype(np.float32) - mean) / scale)
    y = torch.from_numpy(np.asarray(labels, dtype=np.int64))
    weight, bias = descend(x, y, classes, settings or ProbeSettings())
    return LinearProbe(mean, scale, weight.numpy(), bias.numpy())


def descend(
    x: torch.Tensor, y: torch.Tensor, classes: int, settings: ProbeSettings
) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights (D, C) and bias (C,) after 40 Adam steps on standardised ``x``; bfloat16 is enough to compare layers."""
    n, d = x.shape
    parameters = torch.zeros(d + 1, classes)
    moments = torch.zeros_like(parameters), torch.zeros_like(parameters)
    transposed = x.t()
    rows = torch.arange(n)
    gradient = torch.empty_like(parameters)
    for step in range(settings.steps):
        logits = x @ parameters[:d].to(x.dtype)
        error = torch.softmax(logits.float() + parameters[d], -1)
        error[rows, y] -= 1.0
        error /= n
        gradient[:d] = transposed @ error.to(x.dtype)
        gradient[:d] += parameters[:d] / (settings.c * n)
        gradient[d] = error.sum(0)
        adam_step(parameters, gradient, moments, step, settings)
    return parameters[:d].contiguous(), parameters[d].contiguous()


def adam_step(
    values: torch.Tensor, slope: torch.Tensor, moments: tuple[torch.Tensor, torch.Tensor], step: int,
    settings: ProbeSettings,
) -> None:  # fmt: skip
    """One step of Adam in place; ``moments`` are the running means of slopes and of their squares."""
    beta1, beta2, eps = 0.9, 0.999, 1e-8
    first, second = moments
    first.lerp_(slope, 1 - beta1)
    second.mul_(beta2).addcmul_(slope, slope, value=1 - beta2)
    unbiased = second.sqrt() / math.sqrt(1 - beta2 ** (step + 1)) + eps
    values.addcdiv_(first, unbiased, value=-settings.rate(step) / (1 - beta1 ** (step + 1)))


# ---- Carried to its minimum, under a penalty on the weights, for all sources or among the siblings of a family -------

STEPS = 500
FLAT = 1e-5  # largest entry of the gradient at which the search ends
STILL = 1e-6  # change of the loss in a step at which it ends; the rest is then some 1e-4 of a loss of 2


def fit_regression(rows: Floats, labels: Ints, classes: int, penalty: float) -> LinearReadout:
    """Weights of the smallest mean cross-entropy plus ``penalty / 2``, above 0, times their squared sum."""
    mean, scale = standardiser(rows)
    weight, bias = minimum((rows - mean) / scale, labels, classes, penalty)
    return LinearReadout(mean, weight / scale[:, None], bias)


def minimum(
    rows: Floats, labels: Ints, classes: int, penalty: float, offset: Floats | None = None
) -> tuple[Floats, Floats]:
    """Weights (D, C) and bias (C,) where the penalised loss of a softmax is least, by L-BFGS from zero.

    ``rows`` (n, D) are standardised, ``offset`` (n, C) is added to the scores. ValueError if the penalty is not above
    0.
    """
    if penalty <= 0:
        raise ValueError(f"the penalty must be above 0, got {penalty}")
    x, y = torch.from_numpy(rows), torch.from_numpy(labels.astype(np.int64))
    given = None if offset is None else torch.from_numpy(offset)
    free = [torch.zeros(x.shape[1], classes, requires_grad=True), torch.zeros(classes, requires_grad=True)]
    search = torch.optim.LBFGS(
        free, max_iter=STEPS, tolerance_grad=FLAT, tolerance_change=STILL, line_search_fn="strong_wolfe"
    )

    def loss() -> torch.Tensor:
        search.zero_grad()
        scores = torch.addmm(free[1], x, free[0])
        out = torch.nn.functional.cross_entropy(scores if given is None else scores + given, y)
        out = out + 0.5 * penalty * free[0].square().sum()
        torch.autograd.backward(out)
        return out

    search.step(loss)  # type: ignore[no-untyped-call]
    found: tuple[Floats, Floats] = free[0].detach().numpy(), free[1].detach().numpy()
    return found


_NODES, _SHARES = np.polynomial.legendre.leggauss(64)
POINTS, WEIGHTS = 0.5 * (_NODES + 1), 0.5 * _SHARES
"""Gauss-Legendre on the line from 0 to 1."""


@dataclass(frozen=True)
class FamilyReadout(Arrays):
    """Linear scores that tell families apart, and linear scores that tell siblings apart."""

    SHAPES: ClassVar = {
        "centre": "D", "weight": "DC", "bias": "C", "expert_weight": "DC", "expert_bias": "C", "families": "C",
    }  # fmt: skip
    TYPES: ClassVar = {"families": np.intp}
    TRAINED: ClassVar = ("weight", "bias", "expert_weight", "expert_bias")
    centre: Floats  # taken from every row first
    weight: Floats  # of all sources; what they give a family is its share
    bias: Floats
    expert_weight: Floats  # compared within a family alone
    expert_bias: Floats
    families: Ints  # of every source, from 0

    def log_posterior(self, rows: Rows) -> Floats:
        """Log-posteriors (n, C), float32, of rows (n, D)."""
        moved: Floats = np.asarray(rows, dtype=np.float32) - self.centre
        between, within = moved @ self.weight + self.bias, moved @ self.expert_weight + self.expert_bias
        return within_families(log_softmax(between, axis=1), within, self.families)

    def plane(self, row: Rows, source: int, rival: int) -> tuple[Doubles, Doubles, float]:
        """Centre and direction, each (D,), and constant of a plane through the log-odds of two sources at a row (D,).

        Of two siblings it is the experts' own; of two families it has the mean slope from the centre to the row.
        """
        centre = self.centre.astype(np.float64)
        moved = np.asarray(row, dtype=np.float64) - centre
        own, slope = zip(*(self._line(moved, one) for one in (source, rival)), strict=True)
        direction = slope[0] - slope[1]
        if self.families[source] == self.families[rival]:  # what the family has cancels
            direction = self.expert_weight[:, source].astype(np.float64) - self.expert_weight[:, rival]
        return centre, direction, float(own[0] - own[1] - moved @ direction)

    def _line(self, moved: Doubles, source: int) -> tuple[float, Doubles]:
        """Log-posterior of a source but for what all have, and its mean slope (D,) between the centre and there."""
        siblings = np.flatnonzero(self.families == self.families[source])
        masses, slopes = [], []
        for weight, bias in ((self.weight, self.bias), (self.expert_weight, self.expert_bias)):
            some, start = weight[:, siblings].astype(np.float64), bias[siblings].astype(np.float64)
            rise = moved @ some
            slopes.append(some @ (WEIGHTS @ softmax(start + POINTS[:, None] * rise, axis=1)))
            masses.append(logsumexp(start + rise))
        expert = self.expert_weight[:, source].astype(np.float64)
        value = masses[0] + moved @ expert + float(self.expert_bias[source]) - masses[1]
        return float(value), slopes[0] + expert - slopes[1]


def fit_experts(rows: Floats, labels: Ints, families: Ints, base: LinearReadout, penalty: float) -> FamilyReadout:
    """Discriminants ``base`` with weights added among the siblings of every family, under a penalty above 0."""
    mean, scale = standardiser(rows)
    weight, bias = base.weight.copy(), base.bias.copy()
    for family in np.unique(families):
        siblings = np.flatnonzero(families == family)
        own = np.flatnonzero(np.isin(labels, siblings))
        if len(siblings) < 2 or not len(own):
            continue
        moved = (rows[own] - mean) / scale
        offset = base.scores(rows[own])[:, siblings]
        added, shift = minimum(moved, np.searchsorted(siblings, labels[own]), len(siblings), penalty, offset)
        added /= scale[:, None]
        weight[:, siblings] += added
        bias[siblings] += shift + (base.centre - mean) @ added
    return FamilyReadout(base.centre, base.weight, base.bias, weight, bias, np.asarray(families, dtype=np.intp))


def within_families(log_posteriors: Floats, experts: Floats, families: Ints) -> Floats:
    """Log-posteriors (n, C): families as ``log_posteriors`` share them, siblings as ``experts`` do."""
    order = np.argsort(families, kind="stable")
    starts = np.flatnonzero(np.diff(families[order], prepend=families.min() - 1))
    place = np.empty_like(order)
    place[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
    apart = _mass(log_posteriors[:, order], starts) - _mass(experts[:, order], starts)
    return (experts + apart[:, place]).astype(np.float32, copy=False)


def _mass(scores: Floats, starts: Ints) -> Floats:
    """Logarithm of the summed exponentials of every run of columns, (n, runs)."""
    highest = np.maximum.reduceat(scores, starts, axis=1)
    runs = np.diff(starts, append=scores.shape[1])
    return highest + np.log(np.add.reduceat(np.exp(scores - np.repeat(highest, runs, axis=1)), starts, axis=1))
