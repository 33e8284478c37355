"""A network of one hidden layer on the same fingerprints (next to the paper's linear probe, READER Optimization).

It is as accurate as discriminants, but wrong in other places, which a stack uses. Every batch takes one of the lengths
of its responses at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from scipy.special import ndtr
from torch import nn

from backend.methods.probe import standardiser
from backend.methods.readout import Arrays, Doubles, Floats, Half, Ints, Rows, Settings
from backend.proxies.reader import best_dtype

LIMIT = 6.0  # standardised coordinates are clipped to so many deviations
SAMPLED = 8  # every so manieth training row makes the standardiser


@dataclass(frozen=True)
class NetworkSettings(Settings):
    """Shape of the network and how it is trained."""

    WORDS: ClassVar = "NetworkSettings hidden epochs batch rate decay dropout smoothing"
    hidden: int = 512
    epochs: int = 14
    batch: int = 512
    rate: float = 1e-3  # first learning rate of AdamW; it falls to zero along a cosine
    decay: float = 0.05
    dropout: float = 0.4  # of hidden units; of coordinates half as much
    smoothing: float = 0.05  # share of the label that is spread over all sources


@dataclass(frozen=True)
class NetworkReadout(Arrays):
    """A fitted network."""

    SHAPES: ClassVar = {
        "mean": "D", "scale": "D", "hidden_weight": "HD", "hidden_bias": "H", "weight": "CH", "bias": "C",
    }  # fmt: skip
    TRAINED: ClassVar = ("hidden_weight", "hidden_bias", "weight", "bias")
    mean: Floats
    scale: Floats
    hidden_weight: Floats
    hidden_bias: Floats
    weight: Floats
    bias: Floats

    def log_posterior(self, rows: Rows) -> Floats:
        """Log-posteriors (n, C), float32, of rows (n, D)."""
        with torch.inference_mode():
            inner, outer = (self.hidden_weight, self.hidden_bias), (self.weight, self.bias)
            x = nn.functional.linear(_standard(rows, self.mean, self.scale), *map(torch.from_numpy, inner))
            logits = nn.functional.linear(nn.functional.gelu(x), *map(torch.from_numpy, outer))
            out: Floats = torch.log_softmax(logits, 1).numpy()
        return out

    def plane(self, row: Rows, source: int, rival: int) -> tuple[Doubles, Doubles, float]:
        """Centre and direction, each (D,), and log-odds at the mean: integrated gradients from there to a row (D,)."""
        parts = (self.mean, self.scale, self.hidden_weight, self.hidden_bias, self.weight, self.bias)
        mean, scale, first, inner, last, outer = (part.astype(np.float64) for part in parts)
        standard = (np.asarray(row, dtype=np.float64) - mean) / scale
        clipped = np.clip(standard, -LIMIT, LIMIT)
        moved = first @ clipped
        at_mean = _gelu(inner)
        near = np.abs(moved) < 1e-6
        steep = np.where(near, ndtr(inner) + inner * np.exp(-(inner**2) / 2) / np.sqrt(2 * np.pi), 0.0)
        slope = np.where(near, steep, (_gelu(inner + moved) - at_mean) / np.where(near, 1.0, moved))
        apart = last[source] - last[rival]
        share = np.where(np.abs(standard) > LIMIT, clipped / np.where(standard == 0, 1.0, standard), 1.0)
        direction = ((apart * slope) @ first) * share / scale
        return mean, direction, float(apart @ at_mean + outer[source] - outer[rival])


def fit_network(
    copies: Sequence[Half], rows: Ints, labels: Ints, classes: int, settings: NetworkSettings, seed: int
) -> NetworkReadout:
    """Train on some rows of ``copies``, the same (n, D) at every length; a batch takes one of the lengths."""
    rng = np.random.default_rng(seed)
    mean, scale = standardiser(np.concatenate([part[rows[::SAMPLED]] for part in copies]).astype(np.float32))
    truth = torch.from_numpy(np.asarray(labels, dtype=np.int64))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = nn.Sequential(
            nn.Dropout(settings.dropout / 2),
            nn.Linear(copies[0].shape[1], settings.hidden),
            nn.GELU(),
            nn.Dropout(settings.dropout),
            nn.Linear(settings.hidden, classes),
        )
        optimiser = torch.optim.AdamW(network.parameters(), lr=settings.rate, weight_decay=settings.decay)
        batches = max(1, round(len(rows) / settings.batch))
        rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, settings.epochs * batches)
        half = best_dtype(torch.device("cpu")) == torch.bfloat16
        for _ in range(settings.epochs):
            for some in np.array_split(rng.permutation(rows), batches):
                some = np.sort(some)
                x = _standard(copies[int(rng.integers(len(copies)))][some], mean, scale)
                with torch.autocast("cpu", torch.bfloat16, enabled=half):
                    logits = network(x)
                loss = nn.functional.cross_entropy(logits.float(), truth[some], label_smoothing=settings.smoothing)
                optimiser.zero_grad()
                torch.autograd.backward(loss)
                optimiser.step()
                rate.step()
    first, last = network[1], network[4]
    assert isinstance(first, nn.Linear) and isinstance(last, nn.Linear)
    arrays = [part.detach().numpy() for part in (first.weight, first.bias, last.weight, last.bias)]
    return NetworkReadout(mean, scale, *arrays)


def _gelu(x: Doubles) -> Doubles:
    return x * ndtr(x)


def _standard(rows: Rows, mean: Floats, scale: Floats) -> torch.Tensor:
    moved = (np.asarray(rows, dtype=np.float32) - mean) / scale
    return torch.from_numpy(np.clip(moved, -LIMIT, LIMIT, out=moved))
