"""Random guessing: what chance is worth under the same folds, groups and accumulator (paper, Dynamic Baselines).

A posterior is drawn uniformly from the simplex for every record, so that at any budget each source is as likely as
another to win, and no tie is broken in favour of the first one.
"""

from __future__ import annotations

import zlib

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


def random_guess(rows: npt.NDArray[np.integer], classes: int, panel: str, fold: int, seed: int = 42) -> Floats:
    """Log-posteriors that know nothing.

    Parameters
    ----------
    rows : ndarray of shape (n,)
        Row numbers; only their count matters.
    classes : int
        Number of sources ``C``.
    panel : str
        Name of the records; together with fold and seed it fixes the draw.
    fold : int
    seed : int

    Returns
    -------
    ndarray of shape (n, C), float32
        Normalised.
    """
    rng = np.random.default_rng([seed, fold, zlib.crc32(panel.encode())])
    weights = rng.standard_exponential((len(rows), classes)) + np.finfo(np.float32).tiny
    out: Floats = np.log(weights / weights.sum(1, keepdims=True)).astype(np.float32)
    return out
