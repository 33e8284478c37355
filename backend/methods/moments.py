"""First and second moments of labelled rows, fold by fold: all that linear discriminants need (paper, Stage 1).

One pass over the fingerprints gives the moments of every fold; the moments of any union of folds follow by addition, so
that the five outer fits and the ten inner ones read no fingerprint again. A fold is centred at its own mean, which
keeps float32 sums exact enough and lets no fold depend on another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg.blas import ssyrk

Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Moments:
    """Moments of labelled rows.

    Attributes
    ----------
    counts : ndarray of shape (C,), float64
        Weight of the rows of every class.
    centre : ndarray of shape (D,), float64
        Mean of all rows.
    offsets : ndarray of shape (C, D), float64
        Sum of the rows of every class, after the centre was taken from each.
    scatter : ndarray of shape (D, D), float32
        Sum of outer products of the rows around the centre; only the lower triangle counts.
    """

    counts: Doubles
    centre: Doubles
    offsets: Doubles
    scatter: Floats

    @property
    def means(self) -> Doubles:
        """Class means minus the centre, (C, D); zero for a class without rows."""
        counts = np.maximum(self.counts, 1e-300)[:, None]
        return np.where(self.counts[:, None] > 0, self.offsets / counts, 0.0)

    def columns(self, wanted: Ints) -> Moments:
        """Moments of some of the coordinates, ascending."""
        scatter = np.asfortranarray(self.scatter[np.ix_(wanted, wanted)])
        return Moments(self.counts, self.centre[wanted], self.offsets[:, wanted], scatter)


def moments_of(blocks: Iterable[tuple[Floats, Ints]], classes: int, width: int) -> Moments:
    """Moments of rows that come in blocks.

    Parameters
    ----------
    blocks : iterable of (rows, labels)
        ndarray of shape (n, D), float32, and of shape (n,); at least one row in all.
    classes, width : int
        ``C`` and ``D``.

    Returns
    -------
    Moments

    Raises
    ------
    ValueError
        If there is no row.
    """
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
    """Moments of the union of disjoint rows.

    Parameters
    ----------
    parts : sequence of Moments
        Of the same classes and coordinates.
    weights : sequence of float, optional
        What a row of each part counts; one when absent.

    Returns
    -------
    Moments
    """
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
