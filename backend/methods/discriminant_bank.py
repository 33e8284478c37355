"""A bank of linear discriminants, one for whole and one for short responses (beside the paper's linear probe).

Which of them a text should be asked of is what its cell says (:mod:`backend.methods.stack`); in a cell the bank is
linear in the fingerprint, so that evidence can still be split over tokens. The scores of C sources lie in C - 1
dimensions; the bank keeps a basis of them in steps of a quarter of its spread, which is what makes it small, and says
what the exact discriminants say but for the noise of the steps. What is calibrated is what is served.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.linalg import eigh
from scipy.linalg.blas import ssymm
from scipy.special import log_softmax

from backend.methods.discriminant import VARIANCE_FLOOR, LinearReadout, Moments
from backend.methods.ngram_readouts import CodedGrams
from backend.methods.ngrams import Counts
from backend.methods.readout import Arrays, Doubles, Floats, Ints, Rows
from backend.methods.stack import Stack

STEPS = 4
"""Steps of a code within the standard deviation of a basis vector: 4.6 bits a number, 0.003 nats a trace."""
MOST = 127
LEAST_SHARE = 1e-7
"""Directions with less of the largest variance are rounding."""
UNSEEN = -1e5
"""A bias below it is that of a class without rows."""


@dataclass(frozen=True)
class DiscriminantBank(Arrays):
    """Members, each on a basis of its own."""

    SHAPES: ClassVar = {
        "mean": "D", "scale": "D", "codes": "MDQ", "steps": "MQ",
        "weight": "MQC", "bias": "MC", "shares": "LM",
    }  # fmt: skip
    TYPES: ClassVar = {"codes": np.int8, "weight": np.float16, "shares": np.float64}
    mean: Floats
    scale: Floats
    codes: npt.NDArray[np.int8]  # the basis of a member is ``codes * steps``
    steps: Floats
    weight: npt.NDArray[np.float16]
    bias: Floats
    shares: Doubles  # what every member counts in each of L cells

    @property
    def n_parameters(self) -> int:
        """Numbers that a response is multiplied with or shifted by."""
        return sum(head.size for head in self.heads) + self.bias.size + self.shares.size

    @cached_property
    def heads(self) -> list[Floats]:
        """Weights of every member on standardised coordinates, (D, C)."""
        parts = zip(self.codes, self.steps, self.weight, strict=True)
        return [(codes * steps) @ weight.astype(np.float32) for codes, steps, weight in parts]

    def log_posterior(self, rows: Rows, cells: Ints) -> Floats:
        """Log-posteriors (n, C), float32, or float64 for rows in float64, of rows (n, D) in ``cells`` (n,)."""
        wide = np.asarray(rows, dtype=np.result_type(rows.dtype, np.float32))
        standard = (wide - self.mean) / self.scale
        logits = np.zeros((len(standard), self.bias.shape[1]), dtype=wide.dtype)
        for member, (head, bias) in enumerate(zip(self.heads, self.bias, strict=True)):
            logits += self.shares[cells, member].astype(wide.dtype)[:, None] * (standard @ head + bias)
        out: Floats = log_softmax(logits, axis=1)
        return out

    def odds(self, cell: int, source: int, rival: int) -> tuple[Doubles, float]:
        """Direction (D,) in standardised coordinates, and constant, whose sum is the log-odds of two sources."""
        direction = np.zeros(len(self.mean))
        constant = 0.0
        for share, head, bias in zip(self.shares[cell], self.heads, self.bias, strict=True):
            direction += share * (head[:, source].astype(np.float64) - head[:, rival])
            constant += float(share * (float(bias[source]) - float(bias[rival])))
        return direction, constant


def make_bank(members: Sequence[LinearReadout], moments: Sequence[Moments], stack: Stack) -> DiscriminantBank:
    """Bring members of the same coordinates and classes to their bases; the first moments give the standardiser.

    A basis spans all that the scores of a member can say; its vectors are those in which they vary independently over
    the rows that it was fitted on, so that the noise of the codes disturbs each as much as the next.
    """
    variance = np.diag(moments[0].scatter) / moments[0].counts.sum()
    scale = np.sqrt(np.maximum(variance, VARIANCE_FLOOR)).astype(np.float32)
    mean = moments[0].centre.astype(np.float32)
    parts = [_coded(member, rows, mean, scale) for member, rows in zip(members, moments, strict=True)]
    rank = max(len(steps) for _, steps, _, _ in parts)
    codes = np.zeros((len(parts), len(mean), rank), dtype=np.int8)
    steps = np.zeros((len(parts), rank), dtype=np.float32)
    weight = np.zeros((len(parts), rank, len(members[0].bias)), dtype=np.float16)
    for number, (c, s, w, _) in enumerate(parts):
        codes[number, :, : len(s)], steps[number, : len(s)], weight[number, : len(s)] = c, s, w
    return DiscriminantBank(
        mean, scale, codes, steps, weight, np.stack([bias for _, _, _, bias in parts]), stack.weights
    )


def _coded(
    member: LinearReadout, rows: Moments, mean: Floats, scale: Floats
) -> tuple[npt.NDArray[np.int8], Floats, npt.NDArray[np.float16], Floats]:
    """Codes (D, q), steps (q,), weights (q, C) and bias (C,) of one member."""
    # A number that all sources of a row share is lost in the posterior; it would cost a dimension.
    raw = member.weight - member.weight.mean(1, keepdims=True)
    bias = member.bias.astype(np.float64) + (mean - member.centre).astype(np.float64) @ raw
    bias -= bias[bias > UNSEEN].mean()
    moved = ssymm(1.0, rows.scatter, np.asfortranarray(raw), lower=1)
    gram = (raw.T @ moved).astype(np.float64) / rows.counts.sum()
    values, vectors = eigh((gram + gram.T) / 2)
    kept = np.flatnonzero(values > LEAST_SHARE * values[-1])[::-1][: min(len(values) - 1, len(mean))]
    basis = (raw * scale[:, None]) @ vectors[:, kept].astype(np.float32)
    steps = (basis.std(0) / STEPS).astype(np.float32)
    codes = np.clip(np.rint(basis / steps), -MOST, MOST).astype(np.int8)
    return codes, steps, vectors[:, kept].T.astype(np.float16), bias.astype(np.float32)


DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.8)
"""Where in a proxy the blocks lie that members of a stack read: 3, 9, 15, 21 and 24 of 30."""


def blocks_at(depth: int) -> tuple[int, ...]:
    """Blocks of a proxy so deep whose discriminants are members."""
    return tuple(sorted({max(1, round(share * depth)) for share in DEPTHS}))


@dataclass(frozen=True)
class NgramBank:
    """A bank with word n-grams next to it: what live attribution serves.

    In a cell both are linear, the bank in the fingerprint and the n-grams in the weighed counts of the text, so that
    the log-odds of two candidates still split exactly over the response.
    """

    bank: DiscriminantBank
    words: CodedGrams
    word_shares: Doubles  # (cells,) weight of the n-grams' log-posteriors; that of the bank is one

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

    def log_posterior(self, rows: Rows, counts: Counts, cells: Ints) -> Floats:
        """Log-posteriors (n, C) of rows (n, D), and counts by :func:`backend.methods.ngrams.counts_of`."""
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
