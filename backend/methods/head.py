"""Heads: what was fitted, and where it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.methods.discriminant_bank import DiscriminantBank
from backend.methods.discriminants_and_ngrams import NgramBank
from backend.methods.ensemble import Ensemble
from backend.methods.ngram_storage import PARTS as NGRAM_PARTS
from backend.methods.ngram_storage import CodedNgrams
from backend.methods.probe import LinearProbe

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Head:
    """What was fitted, and where it reads.

    Attributes
    ----------
    probe : LinearProbe, DiscriminantBank, WordedBank, CodedNgrams or Ensemble
    layers : tuple of int
        Blocks of the proxy, from 1, in the order of the coordinates; none where its states are not read.
    fold : int or None
        Prompt fold that it was not trained on; None for one fitted on everything.
    """

    probe: LinearProbe | DiscriminantBank | NgramBank | CodedNgrams | Ensemble
    layers: tuple[int, ...]
    fold: int | None = None

    def log_posterior(self, rows: Any, cells: Ints) -> Floats:
        """Log-posteriors (n, C).

        Parameters
        ----------
        rows : ndarray of shape (n, D) or scipy.sparse.csr_matrix of shape (n, buckets)
            Coordinates, or n-gram counts where the text is read; a pair of them where both are, and for an ensemble a
            mapping (:data:`backend.methods.ensemble.Material`).
        cells : ndarray of shape (n,)
            Cells of the texts, which only banks and ensembles ask for.
        """
        if isinstance(self.probe, Ensemble):
            return self.probe.log_posterior(rows, cells)
        if isinstance(self.probe, NgramBank):
            states, counts = rows
            return self.probe.log_posterior(states, counts, cells)
        if isinstance(self.probe, DiscriminantBank):
            return self.probe.log_posterior(rows, cells)
        return self.probe.log_posterior(rows)

    @property
    def standardiser(self) -> tuple[Floats, Floats] | None:
        """Mean and spread of the coordinates, each (D,); None where the text is read, or members have their own."""
        probe = self.probe.bank if isinstance(self.probe, NgramBank) else self.probe
        return None if isinstance(probe, CodedNgrams | Ensemble) else (probe.mean, probe.scale)

    def odds(self, cell: int, source: int, rival: int) -> tuple[Doubles, float]:
        """Direction (D,) in standardised coordinates, and constant, of the log-odds of two sources, words aside.

        Raises
        ------
        ValueError
            If the head reads text, or is an ensemble, whose members have directions of their own.
        """
        probe = self.probe
        if isinstance(probe, CodedNgrams | Ensemble):
            raise ValueError("this head has no direction among states")
        if isinstance(probe, DiscriminantBank | NgramBank):
            return probe.odds(cell, source, rival)
        direction: Doubles = probe.weight[:, source].astype(np.float64) - probe.weight[:, rival]
        return direction, float(probe.bias[source]) - float(probe.bias[rival])


PROBE_PARTS = ("mean", "scale", "weight", "bias")

BANK_PARTS = ("mean", "scale", "codes", "steps", "weight", "bias", "shares")

WORD_PARTS = ("columns", "idf", "codes", "steps", "bias")

WORDED_PARTS = (*(f"bank.{part}" for part in BANK_PARTS), *(f"words.{part}" for part in WORD_PARTS), "word_shares")

KINDS: Mapping[str, tuple[type, tuple[str, ...]]] = {
    "probe": (LinearProbe, PROBE_PARTS),
    "bank": (DiscriminantBank, BANK_PARTS),
    "worded": (NgramBank, WORDED_PARTS),
    "ngrams": (CodedNgrams, NGRAM_PARTS),
    "ensemble": (Ensemble, ()),
}
"""Kinds of heads in a file, and the arrays of each; a dot reaches inside."""


def kind_of(head: Head) -> str:
    """What a file calls a head."""
    return next(kind for kind, (made, _) in KINDS.items() if isinstance(head.probe, made))
