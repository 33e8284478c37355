"""A bank of discriminants with word n-grams beside it: what live attribution serves (beside the paper's linear probe).

In a cell both are linear, the bank in the fingerprint and the n-grams in the weighed counts of the text, so that the
log-odds of two candidates still split exactly over the response.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax

from backend.methods.discriminant_bank import DiscriminantBank
from backend.methods.quantised_ngrams import CodedGrams, Counts

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]


@dataclass(frozen=True)
class NgramBank:
    """Both, and what the n-grams count.

    Attributes
    ----------
    bank : DiscriminantBank
    words : CodedGrams
    word_shares : ndarray of shape (cells,), float64
        Weight of the n-grams' log-posteriors in every cell; that of the bank is one.
    """

    bank: DiscriminantBank
    words: CodedGrams
    word_shares: Doubles

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Every number, by name; a dot reaches inside."""
        parts = (("bank", self.bank), ("words", self.words))
        inside = {f"{start}.{name}": array for start, part in parts for name, array in part.to_arrays().items()}
        return inside | {"word_shares": self.word_shares}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> NgramBank:
        """What :meth:`to_arrays` gave."""
        bank, words = (
            {name.removeprefix(start): array for name, array in arrays.items() if name.startswith(start)}
            for start in ("bank.", "words.")
        )
        return cls(DiscriminantBank.from_arrays(bank), CodedGrams.from_arrays(words), arrays["word_shares"])

    @property
    def n_parameters(self) -> int:
        """Numbers that a response is multiplied with or shifted by."""
        return self.bank.n_parameters + self.words.n_parameters + self.word_shares.size

    def log_posterior(self, rows: npt.NDArray[np.floating], counts: Counts, cells: Ints) -> Floats:
        """Log-posteriors (n, C).

        Parameters
        ----------
        rows : ndarray of shape (n, D)
            Coordinates of the bank.
        counts : scipy.sparse.csr_matrix of shape (n, buckets)
            From :func:`backend.methods.quantised_ngrams.counts_of`.
        cells : ndarray of shape (n,)
        """
        states = self.bank.log_posterior(rows, cells)
        share = self.word_shares[cells].astype(states.dtype)
        out: Floats = log_softmax(states + share[:, None] * self.words.log_posterior(counts), axis=1)
        return out

    def odds(self, cell: int, source: int, rival: int) -> tuple[Doubles, float]:
        """The bank's part of the log-odds: direction (D,) in standardised coordinates, and constant."""
        return self.bank.odds(cell, source, rival)

    def spread(self, text: str, cell: int, source: int, rival: int) -> tuple[Doubles, float]:
        """The n-grams' part of the log-odds: values (len(text),) of the characters, and constant."""
        values, constant = self.words.spread(text, source, rival)
        share = float(self.word_shares[cell])
        return share * values, share * constant
