"""Spectral trajectory encoding: response-token states to a fixed fingerprint (paper, Stage 1).

The length-normalised DCT-II of a trajectory ``h_0 .. h_{T-1}`` is ``z_r = g_r / T * sum_t h_t cos(pi r (t + 1/2) / T)``
with ``g_0 = 1`` and ``g_r = sqrt(2)`` otherwise, that is, the orthonormal DCT-II divided by ``sqrt(T)``.
Mode 0 (DC) is the mean state, mode 1 (first AC) its smoothest front-to-back change. Modes ``r >= T`` are zero.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

Ends = Sequence[int]  # a column of the batch for every row
FINGERPRINT_MODES = 2
POSITIONS = 16  # relative positions of which the states themselves are stored
POSITION_POOLS = ("32", "64", "stride4", "stride4-32")  # means: uniform, every 4th token from the end, 32 of those


def dct_weights(length: int, modes: int = FINGERPRINT_MODES) -> npt.NDArray[np.float64]:
    """Weights (modes, length) that turn states into length-normalised DCT-II coefficients; zero from row T on."""
    if length < 1 or modes < 1:
        raise ValueError(f"length and modes must be at least 1, got {length} and {modes}")
    r = np.arange(modes)[:, None]
    t = np.arange(length)[None, :]
    weights = np.cos(np.pi * r * (t + 0.5) / length) / length
    weights[1:] *= np.sqrt(2.0)
    weights[length:] = 0.0
    return weights


def span_weights(
    starts: Ends, stops: Ends, width: int, limits: Sequence[int | None], modes: int = FINGERPRINT_MODES
) -> torch.Tensor:
    """DCT weights (B, V * modes, width) of a padded batch for several response lengths; ordered by limit, then mode.

    starts, stops : length B, response span of every row, in columns of the batch.
    limits : length V, response lengths in proxy tokens; None keeps the whole response.
    """
    out = np.zeros((len(starts), len(limits) * modes, width), dtype=np.float32)
    cache: dict[int, npt.NDArray[np.float64]] = {}
    for i, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        for v, limit in enumerate(limits):
            length = stop - start if limit is None else min(stop - start, limit)
            if length not in cache:
                cache[length] = dct_weights(length, modes)
            out[i, v * modes : (v + 1) * modes, start : start + length] = cache[length]
    return torch.from_numpy(out)


def uniform_positions(length: int, count: int) -> npt.NDArray[np.intp]:
    """Evenly spaced tokens (count,) of a response: ``m (T - 1) / (M - 1)`` rounded half up, repeated where few."""
    steps = count - 1
    return (2 * np.arange(count) * (length - 1) + steps) // (2 * steps)


def stride_positions(length: int, step: int, count: int | None = None) -> npt.NDArray[np.intp]:
    """Every ``step``-th token counted from the response end, at most ``count`` of them, the last token first."""
    return np.arange(length - 1, -1, -step)[:count]


def position_weights(starts: Ends, stops: Ends, width: int) -> torch.Tensor:
    """Weights (B, 20, width) that sample a padded batch: 16 relative positions, and means of ``POSITION_POOLS``.

    Every row of weights sums to one; arguments as in :func:`span_weights`.
    """
    out = np.zeros((len(starts), POSITIONS + len(POSITION_POOLS), width), dtype=np.float32)
    for i, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        length = stop - start
        out[i, np.arange(POSITIONS), start + uniform_positions(length, POSITIONS)] = 1.0
        sampled = [uniform_positions(length, count) for count in (32, 64)]
        sampled += [stride_positions(length, 4), stride_positions(length, 4, 32)]
        for row, tokens in enumerate(sampled, start=POSITIONS):
            np.add.at(out[i, row], start + tokens, np.float32(1 / len(tokens)))
    return torch.from_numpy(out)


def project(states: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Project states (B, T, d) of a padded batch on weights (B, R, T), accumulating in float32."""
    return torch.bmm(weights, states.float())
