"""A bank of discriminants with word n-grams beside it: what live attribution serves (beside the paper's linear probe).

In a cell both are linear, the bank in the fingerprint and the n-grams in the weighed counts of the text, so that the
log-odds of two candidates still split exactly over the response.
"""

from __future__ import annotations

from dataclasses import dataclass

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
