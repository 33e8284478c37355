"""N-gram classifiers in one byte a weight, as live attribution serves them, and what each character of a text says.

A text's log-odds of two candidates are a sum over its n-grams and a constant, because the rows of
:mod:`backend.methods.ngram_softmax` are linear in the weights once a text is given; an n-gram that occurs more than
once counts less each time, and its occurrences share alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax

from backend.methods.ngram_counts import Kind, count_grams
from backend.methods.ngram_softmax import GramReadout, spread, weighed
from backend.methods.readout import Arrays

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
Counts = Any
"""scipy.sparse.csr_matrix, which has no types that agree with arrays."""
KIND: Kind = "word"
LENGTHS = (1, 2, 3)
BITS = 22
MOST = 127


@dataclass(frozen=True)
class CodedGrams(Arrays):
    """A fitted classifier of hashed word n-grams.

    Attributes
    ----------
    columns : ndarray of shape (F,), int32
        Buckets in use, ascending.
    idf : ndarray of shape (F,), float32
    codes : ndarray of shape (F, C), int8
    steps : ndarray of shape (F,), float32
        The weights of a bucket are ``codes * steps``.
    bias : ndarray of shape (C,), float32
    """

    SHAPES: ClassVar = {"columns": "F", "idf": "F", "codes": "FC", "steps": "F", "bias": "C"}
    TYPES: ClassVar = {"columns": np.int32, "codes": np.int8}
    columns: npt.NDArray[np.int32]
    idf: Floats
    codes: npt.NDArray[np.int8]
    steps: Floats
    bias: Floats

    @cached_property
    def weight(self) -> Floats:
        """Weights (F, C)."""
        return self.codes * self.steps[:, None]

    def log_posterior(self, counts: Counts) -> Floats:
        """Log-posteriors (n, C), float32, of counts (n, buckets) from :func:`counts_of`."""
        out: Floats = log_softmax(weighed(counts[:, self.columns], self.idf) @ self.weight + self.bias, axis=1)
        return out

    def spread(self, text: str, source: int, rival: int) -> tuple[Doubles, float]:
        """Log-odds of two candidates over the characters of a text, by :func:`backend.methods.ngram_softmax.spread`."""
        return spread(self, text, KIND, LENGTHS, BITS, source, rival)


def counts_of(texts: Sequence[str]) -> Counts:
    """Counts (n, buckets) of the word n-grams that the classifiers here know."""
    return count_grams(texts, KIND, LENGTHS, BITS)


def coded(readout: GramReadout) -> CodedGrams:
    """A fitted classifier in one byte a weight; a number that all sources share in a bucket is lost."""
    raw = readout.weight - readout.weight.mean(1, keepdims=True)
    steps = np.abs(raw).max(1) / np.float32(MOST)
    steps[steps == 0] = 1
    codes = np.rint(raw / steps[:, None]).astype(np.int8)
    return CodedGrams(readout.columns.astype(np.int32), readout.idf, codes, steps.astype(np.float32), readout.bias)
