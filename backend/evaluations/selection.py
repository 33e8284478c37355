"""Nested selection of the proxy block (paper, Proxy Readers and Layer Selection).

In every outer fold the four other folds are the inner folds; the block with the highest mean inner-validation
accuracy at K = 1 wins, ties go to the shallower block. A probe trained without folds i and j serves outer i with
inner j and outer j with inner i, so ten fits a block are enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from backend.methods.probe import STD_FLOOR, ProbeSettings, descend
from backend.protocol import FOLDS, held_out_pairs

Half = npt.NDArray[np.float16]


def inner_accuracies(
    fingerprints: npt.NDArray[np.floating],
    labels: npt.NDArray[np.integer],
    folds: npt.NDArray[np.integer],
    classes: int,
    settings: ProbeSettings | None = None,
    dtype: torch.dtype = torch.float32,
) -> npt.NDArray[np.float64]:
    """Inner-validation accuracies of one block.

    fingerprints : (n, D).
    labels : (n,), source numbers.
    folds : (n,), outer fold of every row.
    dtype : Type of the products while training. bfloat16 is several times faster where the processor has it; scores are
        always computed in float32.
    Returns (FOLDS, FOLDS), float64, entry (i, j): accuracy on fold j of the probe that saw neither i nor j; the
    diagonal is NaN.
    """
    settings = settings or ProbeSettings()
    order = np.argsort(folds, kind="stable")
    edges = np.searchsorted(folds[order], np.arange(FOLDS + 1))
    x = torch.from_numpy(fingerprints[order].astype(np.float32))
    y = torch.from_numpy(labels[order].astype(np.int64))
    parts = [slice(edges[i], edges[i + 1]) for i in range(FOLDS)]
    # Fold-wise moments around a common centre give the standardiser of any union of folds without another pass.
    centre = x.mean(0)
    x -= centre
    sums = torch.stack([x[p].double().sum(0) for p in parts])
    squares = torch.stack([x[p].double().square().sum(0) for p in parts])
    counts = torch.tensor([p.stop - p.start for p in parts], dtype=torch.float64)
    out = np.full((FOLDS, FOLDS), np.nan)
    for i, j in held_out_pairs():
        seen = [f for f in range(FOLDS) if f not in (i, j)]
        n = counts[seen].sum()
        mean = sums[seen].sum(0) / n
        scale = (squares[seen].sum(0) / n - mean.square()).clamp_min(0).sqrt().clamp_min(STD_FLOOR)
        mean32, scale32 = mean.float(), scale.float()
        train = torch.cat([((x[parts[f]] - mean32) / scale32).to(dtype) for f in seen])
        weight, bias = descend(train, torch.cat([y[parts[f]] for f in seen]), classes, settings)
        for outer, inner in ((i, j), (j, i)):
            logits = torch.addmm(bias, (x[parts[inner]] - mean32) / scale32, weight)
            out[outer, inner] = float((logits.argmax(1) == y[parts[inner]]).double().mean())
    return out


def scan_layers(
    load: Callable[[int], npt.NDArray[np.floating]],
    layers: Sequence[int],
    labels: npt.NDArray[np.integer],
    folds: npt.NDArray[np.integer],
    classes: int,
    *,
    settings: ProbeSettings | None = None,
    dtype: torch.dtype = torch.float32,
    progress: Callable[[int], None] | None = None,
) -> pd.DataFrame:
    """Inner-validation accuracies of every candidate block.

    load : Layer number to fingerprints of shape (n, D).
    labels, folds, classes, settings, dtype : See :func:`inner_accuracies`.
    progress : Called with each finished layer.
    Returns columns outer_fold, inner_fold, layer, accuracy.
    """
    rows = []
    for layer in layers:
        scores = inner_accuracies(load(layer), labels, folds, classes, settings, dtype)
        rows += [
            {"outer_fold": i, "inner_fold": j, "layer": layer, "accuracy": float(scores[i, j])}
            for i in range(FOLDS)
            for j in range(FOLDS)
            if i != j
        ]
        if progress:
            progress(layer)
    return pd.DataFrame(rows)


def select_layers(scores: pd.DataFrame) -> pd.DataFrame:
    """Selected block of every outer fold, and the modal one.

    scores : From :func:`scan_layers`.
    Returns columns outer_fold (missing for the modal block) and layer. A tie of the mode is resolved by the mean inner
    accuracy over all outer folds, then in favour of the shallower block.
    """
    inner = scores.groupby(["outer_fold", "layer"])["accuracy"].mean().unstack("layer").sort_index(axis=1)
    chosen = inner.idxmax(axis=1)  # the first of equals is the shallower one
    votes = chosen.value_counts()
    tied = sorted(votes.index[votes == votes.max()])
    modal = int(tied[int(inner.mean()[tied].to_numpy().argmax())])
    frame = pd.DataFrame({"outer_fold": chosen.index.astype("Int64"), "layer": chosen.to_numpy(dtype=int)})
    return pd.concat(
        [frame, pd.DataFrame({"outer_fold": pd.array([pd.NA], dtype="Int64"), "layer": [modal]})], ignore_index=True
    )
