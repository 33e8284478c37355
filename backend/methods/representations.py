"""What a head reads of a block: which stored vectors of a trajectory, and what every token adds to each of them.

All but the maximum are weighted sums of token states (paper, Spectral Trajectory Encoding, Matched
Temporal-Representation Controls and Development-Stage Aggregation Alternatives); of the maximum, every coordinate
is what one token has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from backend.methods.temporal import MODES, REPRESENTATIONS, VECTORS
from backend.spectral import FINGERPRINT_MODES, POSITION_POOLS, POSITIONS, dct_weights, position_weights

Doubles = npt.NDArray[np.float64]
STORED: Mapping[str, int] = {
    "full": FINGERPRINT_MODES,
    "temporal": VECTORS,
    "positions": POSITIONS + len(POSITION_POOLS),
}
"""Variants of a stored row, and how many d-sized vectors each holds."""
MAXIMUM = ("temporal", MODES)
"""Variant and vector of the coordinate-wise maximum."""


@dataclass(frozen=True)
class Form:
    """Coordinates of a block, in the order in which a head has them.

    Attributes
    ----------
    variant : str
        Kind of stored row, one of :data:`STORED`.
    vectors : tuple of int
        Its d-sized vectors.
    """

    variant: str
    vectors: tuple[int, ...]

    @property
    def stored(self) -> Form:
        """All of the stored row."""
        return Form(self.variant, tuple(range(STORED[self.variant])))

    def columns(self, rows: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
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

    def of_states(self, states: npt.NDArray[np.floating]) -> Doubles:
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
    **{
        name: Form("temporal", vectors)
        for name, vectors in REPRESENTATIONS.items()
        if not set(vectors) <= set(range(FINGERPRINT_MODES))
    },
    f"positions-{POSITIONS}": Form("positions", tuple(range(POSITIONS))),
    **{f"positions-{name}": Form("positions", (POSITIONS + i,)) for i, name in enumerate(POSITION_POOLS)},
}
"""Blocks of coordinates by name; what two modes say stands in every fingerprint, whatever method asks for it."""
