"""Rows of another domain, aligned by unlabelled responses to other prompts of it (paper, Cross-Domain Transfer)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from backend.evaluations.readout_members import Load, fold_moments
from backend.methods.discriminant import Moments, merged
from backend.methods.domain_adaptation import fit_alignments
from backend.protocol import FOLDS

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.intp]
Block = tuple[Load, int]
"""Rows of one block, and their width."""


def aligned_load(trained: Sequence[Block], elsewhere: Sequence[Block], folds: Ints, parts: Ints) -> Load:
    """Rows of another domain where the trained ones lie.

    Parameters
    ----------
    trained, elsewhere : sequence of (callable, int)
        The same blocks of the domain that readouts were fitted on, and of the other one.
    folds : ndarray of shape (n,)
        Prompt fold of every trained row.
    parts : ndarray of shape (m,)
        The same of the other domain: rows of a fold are moved by what the other folds' rows show.

    Returns
    -------
    callable
        Rows of the other domain to coordinates, all blocks side by side.
    """
    source = [merged(_moments(block, folds)) for block in trained]
    pools = [_moments(block, parts) for block in elsewhere]
    alignments = fit_alignments(
        [[merged([part for i, part in enumerate(pool) if i != fold]) for pool in pools] for fold in range(FOLDS)],
        source,
    )

    def load(rows: Ints) -> Floats:
        out = np.concatenate([block(rows) for block, _ in elsewhere], axis=1)
        for fold in np.unique(parts[rows]):
            inside = parts[rows] == fold
            out[inside] = alignments[fold].apply(out[inside])
        return out

    return load


def _moments(block: Block, folds: Ints) -> list[Moments]:
    load, width = block
    return fold_moments(load, width, np.zeros(len(folds), dtype=np.intp), folds, 1)
