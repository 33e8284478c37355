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

FINGERPRINT_MODES = 2


def dct_weights(length: int, modes: int = FINGERPRINT_MODES) -> npt.NDArray[np.float64]:
    """Weights that turn ``length`` states into ``modes`` length-normalised DCT-II coefficients.

    Parameters
    ----------
    length : int
        Number of response tokens ``T``, at least 1.
    modes : int
        Number of leading modes wanted.

    Returns
    -------
    ndarray of shape (modes, length), float64
        Row ``r`` holds ``g_r / T * cos(pi r (t + 1/2) / T)``; rows ``r >= length`` are zero.

    Raises
    ------
    ValueError
        If ``length`` or ``modes`` is below 1.
    """
    if length < 1 or modes < 1:
        raise ValueError(f"length and modes must be at least 1, got {length} and {modes}")
    r = np.arange(modes)[:, None]
    t = np.arange(length)[None, :]
    weights = np.cos(np.pi * r * (t + 0.5) / length) / length
    weights[1:] *= np.sqrt(2.0)
    weights[length:] = 0.0
    return weights


def span_weights(
    starts: Sequence[int],
    stops: Sequence[int],
    width: int,
    limits: Sequence[int | None],
    modes: int = FINGERPRINT_MODES,
) -> torch.Tensor:
    """DCT weights of a padded batch for several response lengths at once.

    A causal proxy's states of the first ``n`` response tokens do not depend on what follows, so the
    fingerprint of a response cut at ``n`` tokens comes out of the pass over the whole response.

    Parameters
    ----------
    starts, stops : sequence of int, length B
        Response span of every row, in columns of the batch.
    width : int
        Number of columns of the padded batch.
    limits : sequence of int or None, length V
        Response lengths in proxy tokens; None keeps the whole response.
    modes : int
        Number of leading modes a length.

    Returns
    -------
    Tensor of shape (B, V * modes, width), float32
        Zero outside each span; rows ordered by limit, then mode.
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


def project(states: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Project a padded batch of states on its weights, accumulating in float32.

    Parameters
    ----------
    states : Tensor of shape (B, T, d)
    weights : Tensor of shape (B, R, T), float32

    Returns
    -------
    Tensor of shape (B, R, d), float32
    """
    return torch.bmm(weights, states.float())
