"""The linear probe ``reader-paper``: one fingerprint to log-posteriors over sources (paper, READER Optimization).

Multinomial logistic regression on standardised fingerprints, zero initialisation, 40 full-batch Adam steps on
cross-entropy plus ``||W||^2 / (2 C N)``, cosine learning-rate decay with a horizon of 100 steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch

from backend.methods.readout import Arrays, Doubles, Floats, Labels, Rows, settings_text

STD_FLOOR = 1e-6


@dataclass(frozen=True)
class ProbeSettings:
    """Settings of the optimisation; the defaults are the paper's."""

    steps: int = 40
    horizon: int = 100
    learning_rate: float = 1e-3
    final_share: float = 0.01
    c: float = 1.0

    def as_text(self) -> str:
        """Words by which files on disk name these settings; they never change."""
        return settings_text(self, "ProbeSettings", "steps horizon learning_rate final_share c")

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
