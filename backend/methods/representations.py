"""Representations of a trajectory: what a head reads of a block, and the paper's matched controls of it.

Paper: Spectral Trajectory Encoding, Matched Temporal-Representation Controls, Development-Stage Aggregation
Alternatives. A mixture's head h weighs the eight mode blocks by ``a_h / |a_h|``; it is a probe of weights ``V_m = sum_h
w_hm W_h``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from backend.methods.probe import ProbeSettings, adam_step, descend, standardiser
from backend.methods.readout import Doubles, Floats, Labels, Rows
from backend.spectral import FINGERPRINT_MODES, POSITION_POOLS, POSITIONS, dct_weights, position_weights

MODES = 8
_MAXIMUM, _FINAL = MODES, MODES + 1
VECTORS = MODES + 2  # d-sized vectors of a stored row: eight modes, maximum, final state
REPRESENTATIONS: Mapping[str, tuple[int, ...]] = {  # method id to vectors of a stored row
    "temporal-mean": (0,),
    "temporal-final": (_FINAL,),
    "temporal-max": (_MAXIMUM,),
    "temporal-mean-final": (0, _FINAL),
    "temporal-mean-max": (0, _MAXIMUM),
    "temporal-final-max": (_FINAL, _MAXIMUM),
    "dct-q2": (0, 1),
    "dct-q4": tuple(range(4)),
    "dct-q8": tuple(range(8)),
}
MIXTURES: Mapping[str, int] = {"mixture-1": 1, "mixture-2": 2}  # method id to heads


@dataclass(frozen=True)
class TemporalEvidence:
    """Out-of-fold results of the controls, by method."""

    log_posteriors: dict[str, Floats]  # (n, C)
    mixtures: dict[str, pd.DataFrame]  # columns fold, head, mode, weight; the weights of a head have unit length


def temporal_evidence(
    rows: Rows, labels: Labels, folds: Labels, classes: int, methods: Collection[str] = (*REPRESENTATIONS, *MIXTURES),
    *, settings: ProbeSettings | None = None, progress: Callable[[str], object] | None = None,
) -> TemporalEvidence:  # fmt: skip
    """Fit every control in every outer fold to rows (n, 10 * d): eight modes, maximum and final state of one block."""
    settings = settings or ProbeSettings()
    d = rows.shape[1] // VECTORS
    out = {method: np.empty((len(labels), classes), dtype=np.float32) for method in methods}
    weights: dict[str, list[pd.DataFrame]] = {method: [] for method in methods if method in MIXTURES}
    y = torch.from_numpy(labels.astype(np.int64))
    for fold in np.unique(folds):
        test = folds == fold
        seen, unseen = _standardised(rows, ~test, test, d)
        for method in methods:
            if method in MIXTURES:
                vectors = tuple(range(MODES))
                modes = _columns(seen, vectors, d)
                mixture, weight, bias = descend_mixture(modes, y[~test], classes, MIXTURES[method], MODES, settings)
                weight = spread(mixture, weight)
                head, mode = np.divmod(np.arange(mixture.numel()), MODES)
                columns = {"fold": int(fold), "head": head, "mode": mode, "weight": mixture.double().numpy().ravel()}
                weights[method].append(pd.DataFrame(columns))
            else:
                vectors = REPRESENTATIONS[method]
                weight, bias = descend(_columns(seen, vectors, d), y[~test], classes, settings)
            logits = torch.addmm(bias, _columns(unseen, vectors, d), weight)
            out[method][test] = torch.log_softmax(logits, -1).numpy()
            if progress:
                progress(method)
    return TemporalEvidence(out, {method: pd.concat(parts, ignore_index=True) for method, parts in weights.items()})


def descend_mixture(
    x: torch.Tensor, y: torch.Tensor, classes: int, heads: int, modes: int, settings: ProbeSettings
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Mixture (heads, modes) of unit rows, penalised weight (heads * d, C) and bias, by Adam on ``x``."""
    n = len(x)
    d = x.shape[1] // modes
    mixture = torch.eye(modes)[:heads].clone()
    probe = torch.zeros(heads * d + 1, classes)
    slopes = (torch.empty_like(mixture), torch.empty_like(probe))
    moments = [(torch.zeros_like(slope), torch.zeros_like(slope)) for slope in slopes]
    rows, transposed = torch.arange(n), x.t()
    for step in range(settings.steps):
        length = mixture.norm(dim=1, keepdim=True)
        unit, weight = mixture / length, probe[:-1].view(heads, d, classes)
        error = torch.softmax(torch.addmm(probe[-1], x, spread(unit, probe[:-1])), -1)
        error[rows, y] -= 1.0
        error /= n
        by_mode = (transposed @ error).view(modes, d * classes)
        slopes[1][:-1] = (unit @ by_mode).view(heads * d, classes) + probe[:-1] / (settings.c * n)
        slopes[1][-1] = error.sum(0)
        along = weight.reshape(heads, d * classes) @ by_mode.t()
        slopes[0].copy_((along - unit * (unit * along).sum(1, keepdim=True)) / length)
        for values, slope, moment in zip((mixture, probe), slopes, moments, strict=True):
            adam_step(values, slope, moment, step, settings)
    return mixture / mixture.norm(dim=1, keepdim=True), probe[:-1].contiguous(), probe[-1].contiguous()


def spread(mixture: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Weights of a probe over all modes that does what mixing first and (heads * d, C) weights after do."""
    heads, modes = mixture.shape
    by_head = weight.reshape(heads, -1)
    return (mixture.t() @ by_head).view(modes * (weight.shape[0] // heads), weight.shape[1])


def _standardised(
    rows: Rows, train: npt.NDArray[np.bool_], test: npt.NDArray[np.bool_], d: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Training and test rows in float32, a vector at a time, so that all of them are never copied at once."""
    seen = np.empty((int(train.sum()), rows.shape[1]), dtype=np.float32)
    unseen = np.empty((int(test.sum()), rows.shape[1]), dtype=np.float32)
    for low in range(0, rows.shape[1], d):
        part = rows[:, low : low + d].astype(np.float32)
        mean, scale = standardiser(part[train])
        seen[:, low : low + d] = (part[train] - mean) / scale
        unseen[:, low : low + d] = (part[test] - mean) / scale
    return torch.from_numpy(seen), torch.from_numpy(unseen)


def _columns(x: torch.Tensor, vectors: Sequence[int], d: int) -> torch.Tensor:
    """Columns of some vectors, without a copy where they lie side by side."""
    if list(vectors) == list(range(vectors[0], vectors[-1] + 1)):
        return x[:, vectors[0] * d : (vectors[-1] + 1) * d]
    return torch.cat([x[:, v * d : (v + 1) * d] for v in vectors], 1)


STORED = {"full": FINGERPRINT_MODES, "temporal": VECTORS, "positions": POSITIONS + len(POSITION_POOLS)}
"""Variants of a stored row, and how many d-sized vectors each holds."""
MAXIMUM = ("temporal", MODES)  # variant and vector of the coordinate-wise maximum


@dataclass(frozen=True)
class Form:
    """Coordinates of a block, in the order in which a head has them."""

    variant: str  # kind of stored row, one of :data:`STORED`
    vectors: tuple[int, ...]  # its d-sized vectors

    @property
    def stored(self) -> Form:
        """All of the stored row."""
        return Form(self.variant, tuple(range(STORED[self.variant])))

    def columns(self, rows: Rows) -> Rows:
        """The part of stored rows (n, STORED[variant] * d) that is read, (n, len(vectors) * d)."""
        d = rows.shape[1] // STORED[self.variant]
        first, last = self.vectors[0], self.vectors[-1]
        if self.vectors == tuple(range(first, last + 1)):
            return rows[:, first * d : (last + 1) * d]
        return np.concatenate([rows[:, vector * d : (vector + 1) * d] for vector in self.vectors], axis=1)

    def token_shares(self, length: int) -> list[Doubles | None]:
        """Weights of the tokens (length,) in every vector that is read; None for the maximum."""
        if self.variant == "positions":
            weights = position_weights([0], [length], length)[0].double().numpy()
        else:
            weights = dct_weights(length, MODES if self.variant == "temporal" else FINGERPRINT_MODES)
        if self.variant == "temporal":
            last = np.zeros(length)
            last[-1] = 1.0
            weights = np.stack([*weights, np.full(length, np.nan), last])
        return [None if (self.variant, vector) == MAXIMUM else weights[vector] for vector in self.vectors]

    def of_states(self, states: Rows) -> Doubles:
        """What is read of a trajectory (T, d), (1, len(vectors) * d), without the rounding of stored rows."""
        trajectory = np.asarray(states, dtype=np.float64)
        parts = [
            trajectory.max(0) if shares is None else shares @ trajectory for shares in self.token_shares(len(states))
        ]
        return np.concatenate(parts)[None]


FORMS: Mapping[str, Form] = {
    "dc": Form("full", (0,)),
    "ac": Form("full", (1,)),
    "dc-ac": Form("full", (0, 1)),
    **{name: Form("temporal", own) for name, own in REPRESENTATIONS.items() if max(own) >= FINGERPRINT_MODES},
    f"positions-{POSITIONS}": Form("positions", tuple(range(POSITIONS))),
    **{f"positions-{name}": Form("positions", (POSITIONS + i,)) for i, name in enumerate(POSITION_POOLS)},
}
"""Blocks of coordinates by name; two modes stand in every fingerprint, whatever method reads it."""
