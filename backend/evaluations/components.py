"""What DC and first AC are worth alone: the spectral blocks of a fingerprint (paper, DC and First-AC Components).

Every block gets a probe of its own at the same fold-local block of the proxy. Both together are ``reader-paper``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from backend.evaluations.matched import Encode, Floats, Represent, Rows, fixed
from backend.methods.registry import form_of, of_part
from backend.spectral import FINGERPRINT_MODES

BLOCKS: Mapping[str, tuple[int, ...]] = {"dc": (0,), "ac": (1,), "dc-ac": (0, 1)}
"""Modes of every spectral block."""
COMPONENTS: Mapping[str, str] = {method: form_of(method) for method in of_part("components")}
"""Method id to spectral block."""


def block_columns(block: str, width: int) -> slice:
    """Columns of a spectral block in fingerprints of that width.

    Raises
    ------
    ValueError
        If the width is not that of two modes.
    """
    if width % FINGERPRINT_MODES:
        raise ValueError(f"fingerprints of width {width} do not hold {FINGERPRINT_MODES} modes")
    d, modes = width // FINGERPRINT_MODES, BLOCKS[block]
    return slice(modes[0] * d, (modes[-1] + 1) * d)


def components() -> dict[str, Represent]:
    """DC alone and first AC alone, by method id."""

    def take(block: str) -> Encode:
        def encode(rows: Rows) -> Floats:
            out: Floats = rows[:, block_columns(block, rows.shape[1])].astype(np.float32)
            return out

        return encode

    return {method: fixed(take(block)) for method, block in COMPONENTS.items()}
