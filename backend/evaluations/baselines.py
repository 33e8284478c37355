"""Prompt-disjoint scores of any method that can be fitted and asked (paper, Dynamic Baselines).

A baseline sees what READER sees: the same five prompt folds, and no response to a prompt that it is tested on. Every
fold model scores the rows that it was not fitted on, the same rows cut short, and every row of another benchmark, so
that stress tests need no second fit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
import numpy.typing as npt

from backend.protocol import CLEAN, FOLDS

Ints = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float32]

Predict = Callable[[str, Ints], Floats]
"""Name of a panel and rows of it to log-posteriors of shape (rows, C)."""
Fit = Callable[[Ints, int], Predict]
"""Training rows of the clean panel and the fold that they leave out, to a fitted model."""


def score_fold(
    fit: Fit,
    folds: npt.NDArray[np.integer],
    fold: int,
    cut: Iterable[str] = (),
    transfer: Mapping[str, int] | None = None,
) -> dict[str, Floats]:
    """Fit without one fold and score whatever that model may score.

    fit : ``fit(rows, fold)`` gives ``predict(panel, rows)``.
    folds : (n,), outer fold of every row.
    cut : Panels with the rows of the clean one, cut short.
    transfer : Panels of another benchmark and their number of rows, all of which are scored.
    Returns the clean panel and the cut ones: (rows of the fold, C). Transfer panels: (their rows, C).
    Raises ValueError if the fold is empty, or the log-posteriors are not finite.
    """
    test = np.flatnonzero(folds == fold)
    if not len(test):
        raise ValueError(f"no row belongs to fold {fold}")
    predict = fit(np.flatnonzero(folds != fold), fold)
    scores = {panel: predict(panel, test) for panel in (CLEAN, *cut)}
    scores |= {panel: predict(panel, np.arange(rows)) for panel, rows in (transfer or {}).items()}
    for panel, values in scores.items():
        if not np.isfinite(values).all():
            raise ValueError(f"fold {fold} gives log-posteriors in panel '{panel}' that are not finite")
    return scores


def assemble(
    by_fold: Mapping[int, Mapping[str, Floats]], folds: npt.NDArray[np.integer], transfer: Iterable[str] = ()
) -> dict[str, Floats]:
    """Put the scores of all folds together.

    by_fold : Of every fold what :func:`score_fold` gave.
    folds : (n,).
    transfer : Names of the panels of another benchmark.
    Returns the clean panel and the cut ones: (n, C), out of fold. Transfer panels: (FOLDS, rows, C), a fold model each.
    """
    apart = set(transfer)
    out = {}
    for panel, first in by_fold[0].items():
        if panel in apart:
            out[panel] = np.stack([by_fold[fold][panel] for fold in range(FOLDS)]).astype(np.float32)
            continue
        whole = np.empty((len(folds), first.shape[1]), dtype=np.float32)
        for fold in range(FOLDS):
            whole[folds == fold] = by_fold[fold][panel]
        out[panel] = whole
    return out
