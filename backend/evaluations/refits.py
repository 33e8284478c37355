"""Readouts that never met some of the sources: what an auditor has when an unknown one answers (stage audit)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import log_softmax

from backend.evaluations.readout_members import CHUNK, Load, loader
from backend.evaluations.stages.readout_members import Plan
from backend.inference.calibration import fit_scale, normalised
from backend.inference.open_set import LeftOut
from backend.methods.discriminant import LinearReadout, Moments, fit_discriminant, merged, moments_of

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.intp]
HELD_OUT = (0, 1)
"""Folds that a readout refitted without some sources does not see: one for the reference, one for the test, in turn."""


@dataclass(frozen=True)
class Rediscriminated:
    """Discriminants of whole responses without some sources, whose rows are taken out of the moments again.

    Attributes
    ----------
    load : callable
        Rows to coordinates, (m, D).
    width : int
    folds : ndarray of shape (P,)
        Fold of every prompt.
    sources : int
    moments : Moments
        Of all sources on the folds that train.
    scale : float
        What a nat of theirs is worth, from the training folds alone: the last scored by the others.
    """

    load: Load
    width: int
    folds: Ints
    sources: int
    moments: Moments
    scale: float

    @classmethod
    def of(cls, arrays: Sequence[npt.NDArray[np.floating]], folds: Ints) -> Rediscriminated:
        """From fingerprints (C * P, 2 d) block by block; row = source * P + prompt."""
        load, width = loader(arrays)
        sources, training = len(arrays[0]) // len(folds), [f for f in np.unique(folds) if f not in HELD_OUT]
        label, fold = np.repeat(np.arange(sources), len(folds)), np.tile(folds, sources)
        parts = [_moments(load, np.flatnonzero(fold == f), label, sources, width) for f in training]
        last = np.flatnonzero(fold == training[-1])
        scores = _scored(load, last, fit_discriminant(merged(parts[:-1]), Plan.shrinkage))
        scale = fit_scale(normalised(scores), label[last])
        return cls(load, width, folds, sources, merged(parts), scale)

    def __call__(self, out: Ints) -> LeftOut:
        """Log-posteriors of the held-out folds by discriminants that never met the sources ``out``."""
        label, fold = np.repeat(np.arange(self.sources), len(self.folds)), np.tile(self.folds, self.sources)
        held = np.isin(fold, HELD_OUT)
        gone = np.flatnonzero(~held & np.isin(label, out))
        left = merged([self.moments, _moments(self.load, gone, label, self.sources, self.width)], [1.0, -1.0])
        kept, rows = np.setdiff1d(np.arange(self.sources), out), np.flatnonzero(held)
        scores = self.scale * _scored(self.load, rows, fit_discriminant(left, Plan.shrinkage))[:, kept]
        prompt = np.tile(np.arange(len(self.folds)), self.sources)
        return LeftOut(log_softmax(scores, axis=1).astype(np.float32), label[rows], prompt[rows], kept)


def _moments(load: Load, rows: Ints, labels: Ints, classes: int, width: int) -> Moments:
    chunks = (rows[low : low + CHUNK] for low in range(0, len(rows), CHUNK))
    return moments_of(((load(some), labels[some]) for some in chunks), classes, width)


def _scored(load: Load, rows: Ints, readout: LinearReadout) -> Floats:
    return np.concatenate([readout.scores(load(rows[low : low + CHUNK])) for low in range(0, len(rows), CHUNK)])
