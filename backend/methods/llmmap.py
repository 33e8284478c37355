"""LLMmap's closed-set classifier, on one interaction at a time (paper, LLMmap and LLM-DNA).

LLMmap reads answers to a panel of queries as a set; here the set is one prompt and its response, side by side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from backend.methods.probe import standardiser
from backend.methods.readout import Floats, Labels, Settings, check_shapes, inside

RESPONSE_CHARACTERS = 650  # how much of a response LLMmap reads
_SHAPES = {"mean": "D", "scale": "D", "head.enter.weight": "WD", "head.leave.weight": "CW", "head.leave.bias": "C"}


@dataclass(frozen=True)
class LLMmapSettings(Settings):
    """Shape and training of the head."""

    WORDS: ClassVar = "LLMmapSettings width blocks heads epochs batch learning_rate"
    width: int = 384  # this and the next two are LLMmap's own shape
    blocks: int = 3
    heads: int = 4
    epochs: int = 6  # which the paper's release selected
    batch: int = 64
    learning_rate: float = 1e-4  # of Adam, LLMmap's own


class _Block(nn.Module):
    """Attention and one dense layer, each behind a batch normalisation and with a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before_attention = nn.BatchNorm1d(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.before_dense = nn.BatchNorm1d(width)
        self.dense = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        calm = self.before_attention(x.transpose(1, 2)).transpose(1, 2)
        x = x + self.attention(calm, calm, calm, need_weights=False)[0]
        calm = self.before_dense(x.transpose(1, 2)).transpose(1, 2)
        return x + nn.functional.gelu(self.dense(calm))


class LLMmapHead(nn.Module):
    """Embeddings of a prompt and its response, ``features`` numbers together, to logits."""

    def __init__(self, features: int, classes: int, settings: LLMmapSettings | None = None) -> None:
        super().__init__()
        shape = settings or LLMmapSettings()
        self.enter = nn.Linear(features, shape.width)
        self.token = nn.Parameter(torch.randn(1, 1, shape.width))
        self.blocks = nn.ModuleList(_Block(shape.width, shape.heads) for _ in range(shape.blocks))
        self.leave = nn.Linear(shape.width, classes)

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        """Pairs (B, features) to logits (B, classes)."""
        x = nn.functional.gelu(self.enter(pairs))[:, None]
        x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        for block in self.blocks:
            x = block(x)
        logits: torch.Tensor = self.leave(x[:, 0])
        return logits


@dataclass(frozen=True)
class LLMmapModel:
    """A fitted head with the standardiser of its inputs."""

    head: LLMmapHead
    mean: Floats
    scale: Floats

    @property
    def parameters(self) -> int:
        return sum(p.numel() for p in self.head.parameters())

    n_parameters = parameters

    @property
    def shape(self) -> tuple[int, int]:
        return self.head.enter.in_features, self.head.leave.out_features

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        weights = {f"head.{name}": value.cpu().numpy() for name, value in self.head.state_dict().items()}
        return {"mean": self.mean, "scale": self.scale, **weights}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> LLMmapModel:
        """What :meth:`to_arrays` gave; KeyError or ValueError where there are other parts."""
        sizes = check_shapes(_SHAPES, arrays)
        single = {name: array.astype(np.float32) for name, array in arrays.items()}
        weights = {name: torch.tensor(array) for name, array in inside(arrays, "head.").items()}
        blocks = {name.split(".")[1] for name in weights if name.startswith("blocks.")}
        try:
            head = LLMmapHead(sizes["D"], sizes["C"], LLMmapSettings(width=sizes["W"], blocks=len(blocks)))
            head.load_state_dict(weights)
        except (RuntimeError, AssertionError) as error:
            raise ValueError("a member of kind llmmap has other parts") from error
        return cls(head.eval(), single["mean"], single["scale"])

    @torch.inference_mode()
    def log_posterior(self, pairs: Floats, chunk: int = 4096) -> Floats:
        """Log-posteriors of pairs (n, features): (n, C), float32."""
        device = next(self.head.parameters()).device
        parts = []
        for low in range(0, len(pairs), chunk):
            x = torch.from_numpy((pairs[low : low + chunk] - self.mean) / self.scale).to(device)
            parts.append(torch.log_softmax(self.head(x), -1).cpu().numpy())
        return np.concatenate(parts)


def fit_llmmap(
    pairs: Floats, labels: Labels, classes: int, *, seed: int, settings: LLMmapSettings | None = None,
    device: str | torch.device = "cpu",
) -> LLMmapModel:  # fmt: skip
    """Train the head on prompt and response embeddings side by side, (n, features), in evaluation mode afterwards.

    They are standardised here. ValueError with fewer than two rows, which a batch normalisation cannot work with.
    """
    settings = settings or LLMmapSettings()
    if len(pairs) < 2:
        raise ValueError(f"{len(pairs)} training rows: batch normalisation needs at least two")
    mean, scale = standardiser(pairs)
    x = torch.from_numpy(((pairs - mean) / scale).astype(np.float32)).to(device)
    y = torch.from_numpy(np.asarray(labels, dtype=np.int64)).to(device)
    order = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        head = LLMmapHead(x.shape[1], classes, settings).to(device)
    optimiser = torch.optim.Adam(head.parameters(), lr=settings.learning_rate)
    batches = max(1, math.ceil(len(x) / settings.batch))
    head.train()
    for _ in range(settings.epochs):
        # Batches of nearly one size, so that none has a single row.
        for rows in torch.tensor_split(torch.randperm(len(x), generator=order), batches):
            optimiser.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(head(x[rows]), y[rows]))
            optimiser.step()
    return LLMmapModel(head.eval(), mean, scale)
