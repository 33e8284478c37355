"""Heads: a fitted readout, and where it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from backend.methods.discriminant_bank import DiscriminantBank, NgramBank
from backend.methods.ensemble import Ensemble
from backend.methods.ngram_readouts import CodedGrams, CodedNgrams
from backend.methods.probe import LinearProbe
from backend.methods.readout import Doubles, Floats, Ints


@dataclass(frozen=True)
class Head:
    """A fitted readout, and where it reads."""

    probe: LinearProbe | DiscriminantBank | NgramBank | CodedNgrams | Ensemble
    layers: tuple[int, ...]  # of the proxy, from 1, in the order of the coordinates; none where no state is read
    fold: int | None = None  # of the prompts that it was not trained on; None for one fitted on everything

    def log_posterior(self, rows: Any, cells: Ints) -> Floats:
        """Log-posteriors (n, C) of texts in ``cells`` (n,), which only banks and ensembles ask for.

        rows : (n, D) coordinates, or (n, buckets) n-gram counts where the text is read; a pair of them where both are,
            and for an ensemble a mapping (:data:`backend.methods.ensemble.Material`).
        """
        features = rows if isinstance(self.probe, NgramBank) else (rows,)
        by_cell = isinstance(self.probe, DiscriminantBank | NgramBank | Ensemble)
        out: Floats = self.probe.log_posterior(*features, *((cells,) if by_cell else ()))
        return out

    @property
    def standardiser(self) -> tuple[Floats, Floats] | None:
        """Mean and spread of the coordinates, each (D,); None where the text is read, or members have their own."""
        probe = self.probe.bank if isinstance(self.probe, NgramBank) else self.probe
        return None if isinstance(probe, CodedNgrams | Ensemble) else (probe.mean, probe.scale)

    def odds(self, cell: int, source: int, rival: int) -> tuple[Doubles, float]:
        """Direction (D,) in standardised coordinates, and constant, of the log-odds of two sources, words aside.

        ValueError if the head reads text, or is an ensemble, whose members have directions of their own.
        """
        probe = self.probe
        if isinstance(probe, CodedNgrams | Ensemble):
            raise ValueError("this head has no direction among states")
        if isinstance(probe, DiscriminantBank | NgramBank):
            return probe.odds(cell, source, rival)
        direction: Doubles = probe.weight[:, source].astype(np.float64) - probe.weight[:, rival]
        return direction, float(probe.bias[source]) - float(probe.bias[rival])


PROBE_PARTS, BANK_PARTS, WORD_PARTS = (tuple(kind.SHAPES) for kind in (LinearProbe, DiscriminantBank, CodedGrams))
WORDED_PARTS = (*(f"bank.{part}" for part in BANK_PARTS), *(f"words.{part}" for part in WORD_PARTS), "word_shares")
KINDS: Mapping[str, tuple[type, tuple[str, ...]]] = {
    "probe": (LinearProbe, PROBE_PARTS),
    "bank": (DiscriminantBank, BANK_PARTS),
    "worded": (NgramBank, WORDED_PARTS),
    "ngrams": (CodedNgrams, ("columns", "idf", "codes", "step", "bias")),
    "ensemble": (Ensemble, ()),
}
"""Kinds of heads in a file, and the arrays of each; a dot reaches inside."""


def kind_of(head: Head) -> str:
    """What a file calls a head."""
    return next(kind for kind, (known, _) in KINDS.items() if isinstance(head.probe, known))
