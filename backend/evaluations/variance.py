"""Does a coordinate vary with the source or with the prompt? (paper, Source-to-Prompt Variance)

Held-out fingerprints, standardised with the training folds, are split into a mean, source effects, prompt effects and a
residual. With one response in every cell the grid is balanced, so the effects are differences of means and their mean
squares add up to the variance. A block's variances are averages over its coordinates; the ratio of two averages is the
ratio of the sums.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.evaluations.components import BLOCKS, block_columns
from backend.methods.probe import standardiser

Doubles = npt.NDArray[np.float64]


def effects(grid: npt.NDArray[np.floating]) -> tuple[Doubles, Doubles, Doubles]:
    """Source, prompt and residual variance of every coordinate.

    grid : (S, P, D), one fingerprint a source and prompt.
    Returns source, prompt, residual (D,), float64, mean squares of the effects; they add up to the population variance
    over all S * P cells.
    """
    centred = grid - grid.mean((0, 1), dtype=np.float64)
    source, prompt = centred.mean(1), centred.mean(0)
    centred -= source[:, None]
    centred -= prompt
    return (source**2).mean(0), (prompt**2).mean(0), (centred**2).mean((0, 1))


def variance_ratios(
    fingerprints: npt.NDArray[np.floating], sources: int, prompt_folds: npt.NDArray[np.integer]
) -> pd.DataFrame:
    """Source-to-prompt variance of every spectral block in every held-out fold.

    fingerprints : (S * P, 2 * d), row = source * P + prompt; DC, then first AC.
    sources : Number of sources ``S``.
    prompt_folds : (P,), outer fold of every prompt.
    Returns columns block (dc, ac, dc-ac), fold, source_variance, prompt_variance, ratio. Rows without a fold are means
    over the folds, the ratio included (the paper's bars).
    """
    width = fingerprints.shape[1]
    folds = np.tile(prompt_folds, sources)
    rows = []
    for fold in np.unique(prompt_folds):
        test = folds == fold
        _, scale = standardiser(fingerprints[~test])
        # Centring cancels in the effects, so only the scale of the standardiser matters.
        held = fingerprints[test].astype(np.float64) / scale
        source, prompt, _ = effects(held.reshape(sources, int(test.sum()) // sources, width))
        for block in BLOCKS:
            columns = block_columns(block, width)
            by_source, by_prompt = float(source[columns].mean()), float(prompt[columns].mean())
            variances = {"source_variance": by_source, "prompt_variance": by_prompt, "ratio": by_source / by_prompt}
            rows.append({"block": block, "fold": int(fold), **variances})
    frame = pd.DataFrame(rows).astype({"fold": "Int64"})
    measures = ["source_variance", "prompt_variance", "ratio"]
    means = frame.groupby("block", sort=False)[measures].mean().reset_index()
    means["fold"] = pd.array([pd.NA] * len(means), dtype="Int64")
    out: pd.DataFrame = pd.concat([frame, means], ignore_index=True)
    return out[["block", "fold", *measures]]
