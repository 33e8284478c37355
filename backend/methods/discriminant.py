"""Shrinkage linear discriminants over any number of blocks, and banks of them (next to the paper's linear probe).

Sources differ by their mean fingerprints in the covariance within a source, shrunk towards its diagonal. Moments of a
union of folds are sums. A bank has one discriminant for whole and one for short responses, weighed by the cell of a
text (:mod:`backend.methods.stack`); its scores lie in C - 1 dimensions, whose basis is stored in few bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve, eigh
from scipy.linalg.blas import ssymm, ssyrk
from scipy.special import log_softmax

from backend.methods.ngrams import CodedGrams, Counts
from backend.methods.probe import LinearReadout
from backend.methods.readout import Arrays, Doubles, Floats, Half, Ints, Rows, inside
from backend.methods.stack import Stack


@dataclass(frozen=True)
class Moments:
    """Moments of labelled rows."""

    counts: Doubles  # (C,) weight of the rows of every class
    centre: Doubles  # (D,) mean of all rows
    offsets: Doubles  # (C, D) sum of the rows of every class, after the centre was taken from each
    scatter: Floats  # (D, D) sum of outer products of the rows around the centre; only the lower triangle counts

    @property
    def means(self) -> Doubles:
        """Class means minus the centre, (C, D); zero for a class without rows."""
        counts = np.maximum(self.counts, 1e-300)[:, None]
        return np.where(self.counts[:, None] > 0, self.offsets / counts, 0.0)

    def columns(self, some: Ints) -> Moments:
        """Moments of some of the coordinates, ascending."""
        scatter = np.asfortranarray(self.scatter[np.ix_(some, some)])
        return Moments(self.counts, self.centre[some], self.offsets[:, some], scatter)


def moments_of(blocks: Iterable[tuple[Floats, Ints]], classes: int, width: int) -> Moments:
    """Moments of rows (n, D), float32, and labels (n,) that come in blocks; ValueError if there is no row."""
    counts, sums = np.zeros(classes), np.zeros((classes, width))
    scatter = np.zeros((width, width), dtype=np.float32, order="F")
    anchor: Doubles | None = None
    for rows, labels in blocks:
        if not len(rows):
            continue
        if anchor is None:  # near enough to the mean for the products to be small; taken out exactly below
            anchor = rows.mean(0, dtype=np.float64).astype(np.float32).astype(np.float64)
        moved = np.ascontiguousarray(rows - anchor.astype(np.float32), dtype=np.float32)
        counts += np.bincount(labels, minlength=classes)
        for label in np.unique(labels):
            sums[label] += moved[labels == label].sum(0, dtype=np.float64)
        scatter = ssyrk(1.0, moved.T, beta=1.0, c=scatter, lower=1, overwrite_c=1)
    if anchor is None:
        raise ValueError("there is no row to take moments of")
    shift = sums.sum(0) / counts.sum()
    _add_outer(scatter, shift[None], np.array([-counts.sum()]))
    return Moments(counts, anchor + shift, sums - counts[:, None] * shift, scatter)


def merged(parts: Sequence[Moments], weights: Sequence[float] | None = None) -> Moments:
    """Moments of the union of disjoint rows; ``weights`` are what a row of each part counts, by default one."""
    shares = np.ones(len(parts)) if weights is None else np.asarray(weights, dtype=np.float64)
    total = np.array([w * part.counts.sum() for w, part in zip(shares, parts, strict=True)])
    centre = sum(t * part.centre for t, part in zip(total, parts, strict=True)) / total.sum()
    counts = sum(w * part.counts for w, part in zip(shares, parts, strict=True))
    offsets = np.zeros_like(parts[0].offsets)
    scatter = np.zeros_like(parts[0].scatter, order="F")
    for weight, part in zip(shares, parts, strict=True):
        offsets += weight * (part.offsets + part.counts[:, None] * (part.centre - centre))
        scatter += np.float32(weight) * part.scatter
    _add_outer(scatter, np.stack([part.centre - centre for part in parts]), total)
    return Moments(np.asarray(counts), np.asarray(centre), offsets, scatter)


def within_scatter(moments: Moments) -> Floats:
    """Scatter of the rows around the mean of their class, (D, D), lower triangle."""
    scatter = np.array(moments.scatter, order="F")
    _add_outer(scatter, moments.means, -moments.counts)
    return scatter


def _add_outer(scatter: Floats, vectors: Doubles, weights: Doubles) -> None:
    """Add ``sum_i w_i v_i v_i'`` to the lower triangle, in place."""
    for sign in (1.0, -1.0):
        some = sign * weights > 0
        if some.any():
            scaled = (vectors[some] * np.sqrt(sign * weights[some])[:, None]).astype(np.float32)
            ssyrk(sign, np.ascontiguousarray(scaled).T, beta=1.0, c=scatter, lower=1, overwrite_c=1)


VARIANCE_FLOOR = 1e-12


def fit_discriminant(moments: Moments, shrinkage: float) -> LinearReadout:
    """Linear discriminants from moments, under a uniform prior.

    ``shrinkage`` is the share of the diagonal in the covariance, in (0, 1]. A class without rows scores lowest.
    ValueError if the shrinkage is out of range, or there are not more rows than classes.
    """
    if not 0 < shrinkage <= 1:
        raise ValueError(f"shrinkage must lie in (0, 1], got {shrinkage}")
    seen = moments.counts > 0
    freedom = moments.counts.sum() - seen.sum()
    if freedom <= 0:
        raise ValueError("a covariance within classes needs more rows than classes")
    covariance = within_scatter(moments)
    covariance /= np.float32(freedom)
    scale = np.sqrt(np.maximum(np.diag(covariance), VARIANCE_FLOOR)).astype(np.float32)
    covariance *= (1 - shrinkage) / scale[:, None]
    covariance /= scale
    covariance[np.diag_indices(len(scale))] = 1.0
    factor = cho_factor(covariance, lower=True, overwrite_a=True, check_finite=False)
    means = np.ascontiguousarray((moments.means / scale).astype(np.float32).T)
    weight = cho_solve(factor, means, check_finite=False)
    bias = -0.5 * np.einsum("dc,dc->c", means, weight, dtype=np.float64)
    bias[~seen] = -1e6
    return LinearReadout(
        moments.centre.astype(np.float32), (weight / scale[:, None]).astype(np.float32), bias.astype(np.float32)
    )


STEPS = 4  # of a code within the standard deviation of a basis vector: 4.6 bits a number, 0.003 nats a trace
MOST = 127
LEAST_SHARE = 1e-7  # directions with less of the largest variance are rounding
UNSEEN = -1e5  # a bias below it is that of a class without rows


@dataclass(frozen=True)
class DiscriminantBank(Arrays):
    """Members, each on a basis of its own."""

    SHAPES: ClassVar = {
        "mean": "D", "scale": "D", "codes": "MDQ", "steps": "MQ", "weight": "MQC", "bias": "MC", "shares": "LM",
    }  # fmt: skip
    TYPES: ClassVar = {"codes": np.int8, "weight": np.float16, "shares": np.float64}
    mean: Floats
    scale: Floats
    codes: npt.NDArray[np.int8]  # the basis of a member is ``codes * steps``
    steps: Floats
    weight: Half
    bias: Floats
    shares: Doubles  # what every member counts in each of L cells

    @property
    def n_parameters(self) -> int:
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
        return log_softmax(logits, axis=1)

    def odds(self, cell: int, source: int, rival: int) -> tuple[Doubles, float]:
        """Direction (D,) in standardised coordinates, and constant, whose sum is the log-odds of two sources."""
        direction = np.zeros(len(self.mean))
        constant = 0.0
        for share, head, bias in zip(self.shares[cell], self.heads, self.bias, strict=True):
            direction += share * (head[:, source].astype(np.float64) - head[:, rival])
            constant += float(share * (float(bias[source]) - float(bias[rival])))
        return direction, constant


def make_bank(members: Sequence[LinearReadout], moments: Sequence[Moments], stack: Stack) -> DiscriminantBank:
    """Bring members of the same coordinates and classes to their bases; the first moments give the standardiser."""
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
    bias = np.stack([bias for _, _, _, bias in parts])
    return DiscriminantBank(mean, scale, codes, steps, weight, bias, stack.weights)


def _coded(
    member: LinearReadout, rows: Moments, mean: Floats, scale: Floats
) -> tuple[npt.NDArray[np.int8], Floats, Half, Floats]:
    """Codes (D, q), steps (q,), weights (q, C) and bias (C,) of one member."""
    # A number that all sources of a row share is lost in the posterior; it would cost a dimension.
    raw = member.weight - member.weight.mean(1, keepdims=True)
    bias = member.bias.astype(np.float64) + (mean - member.centre).astype(np.float64) @ raw
    bias -= bias[bias > UNSEEN].mean()
    moved = ssymm(1.0, rows.scatter, np.asfortranarray(raw), lower=1)
    gram = (raw.T @ moved).astype(np.float64) / rows.counts.sum()
    values, vectors = eigh((gram + gram.T) / 2)
    some = np.flatnonzero(values > LEAST_SHARE * values[-1])[::-1][: min(len(values) - 1, len(mean))]
    basis = (raw * scale[:, None]) @ vectors[:, some].astype(np.float32)
    steps = (basis.std(0) / STEPS).astype(np.float32)
    codes = np.clip(np.rint(basis / steps), -MOST, MOST).astype(np.int8)
    return codes, steps, vectors[:, some].T.astype(np.float16), bias.astype(np.float32)


DEPTHS = (0.1, 0.3, 0.5, 0.7, 0.8)
"""Where in a proxy the blocks lie that members of a stack read: 3, 9, 15, 21 and 24 of 30."""


def blocks_at(depth: int) -> tuple[int, ...]:
    """Blocks of a proxy so deep whose discriminants are members."""
    return tuple(sorted({max(1, round(share * depth)) for share in DEPTHS}))


@dataclass(frozen=True)
class NgramBank:
    """A bank with word n-grams, both linear in a cell, so that log-odds split over the response: served live."""

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
        bank = DiscriminantBank.from_arrays(inside(arrays, "bank."))
        return cls(bank, CodedGrams.from_arrays(inside(arrays, "words.")), arrays["word_shares"])

    @property
    def n_parameters(self) -> int:
        return self.bank.n_parameters + self.words.n_parameters + self.word_shares.size

    def log_posterior(self, rows: Rows, counts: Counts, cells: Ints) -> Floats:
        """Log-posteriors (n, C) of rows (n, D), and counts by :func:`backend.methods.ngrams.counts_of`."""
        states = self.bank.log_posterior(rows, cells)
        share = self.word_shares[cells].astype(states.dtype)
        return log_softmax(states + share[:, None] * self.words.log_posterior(counts), axis=1)

    def odds(self, cell: int, source: int, rival: int) -> tuple[Doubles, float]:
        """The bank's part of the log-odds: direction (D,) in standardised coordinates, and constant."""
        return self.bank.odds(cell, source, rival)

    def spread(self, text: str, cell: int, source: int, rival: int) -> tuple[Doubles, float]:
        """The n-grams' part of the log-odds: values (len(text),) of the characters, and constant."""
        values, constant = self.words.spread(text, source, rival)
        share = float(self.word_shares[cell])
        return share * values, share * constant
