"""Controls: other representations under the same probe, and the variance of fingerprints.

Paper, Appendix "Representation Ablations and Diagnostics" and "Development-Stage Aggregation Alternatives". A
representation is fitted on the rows that train the probe, so it has seen no test prompt; most have nothing to fit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import pandas as pd
import torch

from backend.corpus.roster_rows import Slice
from backend.errors import AtlasError
from backend.methods.ensemble import Head
from backend.methods.probe import LinearProbe, ProbeSettings, descend, fit_probe, standardiser
from backend.methods.readout import Doubles, Floats, Half, Ints, Labels, Rows
from backend.methods.registry import form_of, of_part
from backend.methods.representations import FORMS, MIXTURES, MODES, Form, descend_mixture, spread
from backend.protocol import FOLDS
from backend.spectral import FINGERPRINT_MODES, POSITION_POOLS, POSITIONS

Encode = Callable[[Rows], Floats]  # Rows of shape (n, D) to features of shape (n, E)
Represent = Callable[[Rows, Labels], Encode]
"""Training rows of shape (n, D) and labels of shape (n,) to the encoding that they imply."""
BLOCKS: Mapping[str, tuple[int, ...]] = {"dc": (0,), "ac": (1,), "dc-ac": (0, 1)}  # Modes of every spectral block
COMPONENTS: Mapping[str, str] = {method: form_of(method) for method in of_part("components")}  # to spectral block
DIMENSIONS = 64
UNSCALED = ("pca-64-unscaled", "centroid-svd-unscaled")  # Compressions whose coordinates the probe takes as they are
FISHER_SHARE: Mapping[str, float] = {"positions-fisher": 1.0, "positions-fisher25": 0.25}
"""Share of the Fisher weights; the rest is uniform."""


def fixed(encode: Encode) -> Represent:
    """A representation without anything to fit."""
    return lambda _rows, _labels: encode


def matched_evidence(
    load: Callable[[int], Rows],
    layer_of_fold: Mapping[int, int],
    labels: Labels,
    folds: Labels,
    classes: int,
    representations: Mapping[str, Represent],
    *,
    unscaled: Collection[str] = (),
    progress: Callable[[str], object] | None = None,
) -> dict[str, Floats]:
    """Out-of-fold log-posteriors of several representations, one load a fold.

    load : Layer number to stored rows of shape (n, D); layer_of_fold : Block of every outer fold; labels, folds : (n,).
    unscaled : Representations whose features reach the probe as they are, not standardised.
    progress : Called with the name of every representation whose probe is fitted. Returns name to (n, C), float32.
    """
    out = {name: np.empty((len(labels), classes), dtype=np.float32) for name in representations}
    for fold, layer in sorted(layer_of_fold.items()):
        rows, test = load(layer), folds == fold
        seen, unseen = rows[~test], rows[test]
        for name, represent in representations.items():
            encode, probe = matched_probe(seen, labels[~test], classes, represent, unscaled=name in unscaled)
            out[name][test] = probe.log_posterior(encode(unseen))
            if progress:
                progress(name)
    return out


def matched_probe(
    rows: Rows, labels: Labels, classes: int, represent: Represent, *, unscaled: bool = False
) -> tuple[Encode, LinearProbe]:
    """A representation and the probe on it, both fitted on the same rows.

    rows : (n, D), training rows; labels : (n,); unscaled : Features reach the probe as they are, not standardised.
    Returns a function of rows (n, D) to features (n, E), and the probe on the features.
    """
    encode = represent(rows, labels)
    features = encode(rows)
    if not unscaled:
        return encode, fit_probe(features, labels, classes)
    x, y = torch.from_numpy(features.astype(np.float32)), torch.from_numpy(labels.astype(np.int64))
    weight, bias = descend(x, y, classes, ProbeSettings())
    nothing, one = np.zeros(x.shape[1], dtype=np.float32), np.ones(x.shape[1], dtype=np.float32)
    return encode, LinearProbe(nothing, one, weight.numpy(), bias.numpy())


def block_columns(block: str, width: int) -> slice:
    """Columns of a spectral block. Raises ValueError if the width is not that of two modes."""
    if width % FINGERPRINT_MODES:
        raise ValueError(f"fingerprints of width {width} do not hold {FINGERPRINT_MODES} modes")
    d, modes = width // FINGERPRINT_MODES, BLOCKS[block]
    return slice(modes[0] * d, (modes[-1] + 1) * d)


def components() -> dict[str, Represent]:
    """DC alone and first AC alone, by method id; both together are ``reader-paper``."""

    def take(block: str, rows: Rows) -> Floats:
        return rows[:, block_columns(block, rows.shape[1])].astype(np.float32)

    return {method: fixed(partial(take, block)) for method, block in COMPONENTS.items()}


@dataclass(frozen=True)
class Projection:
    """A standardiser and orthonormal axes."""

    mean: Floats  # (D,), float32
    scale: Floats  # (D,), float32
    axes: Floats  # (D, E), float32

    def __call__(self, rows: Rows) -> Floats:
        """Projected rows, (n, D) to (n, E)."""
        standardised: Floats = (rows.astype(np.float32) - self.mean) / self.scale
        out: Floats = standardised @ self.axes
        return out


def principal_axes(rows: Rows, dimensions: int = DIMENSIONS) -> Projection:
    """The leading principal components.

    rows : (n, D), training rows, not standardised; dimensions : Number of axes, at most D. Most variance comes first.
    """
    mean, scale = standardiser(rows)
    x = (rows.astype(np.float64) - mean) / scale
    _, vectors = np.linalg.eigh(x.T @ x)
    return Projection(mean, scale, np.ascontiguousarray(vectors[:, ::-1][:, :dimensions], dtype=np.float32))


def centroid_axes(rows: Rows, labels: Labels, dimensions: int = DIMENSIONS) -> Projection:
    """The leading right singular vectors of the centred class centroids.

    rows : (n, D), training rows, not standardised; labels : (n,).
    dimensions : Number of axes; centroids of C sources span C - 1 at most.
    """
    mean, scale = standardiser(rows)
    present = np.unique(labels)
    centroids = np.stack([rows[labels == label].mean(0, dtype=np.float64) for label in present])
    centroids = (centroids - mean) / scale
    centroids -= centroids.mean(0)
    _, _, vectors = np.linalg.svd(centroids, full_matrices=False)
    axes = vectors[: min(dimensions, len(present) - 1)]
    return Projection(mean, scale, np.ascontiguousarray(axes.T, dtype=np.float32))


def collapsed(projection: Projection, probe: LinearProbe) -> LinearProbe:
    """One linear map in place of a projection and the probe on its coordinates.

    projection : (n, D) to (n, E); probe : On the coordinates (n, E). Returns a probe on rows (n, D), equal but for the
        rounding of float32.
    """
    weight = probe.weight.astype(np.float64) / probe.scale[:, None]
    bias = probe.bias - probe.mean.astype(np.float64) @ weight
    axes = projection.axes.astype(np.float64)
    return LinearProbe(projection.mean, projection.scale, (axes @ weight).astype(np.float32), bias.astype(np.float32))


def compressions() -> dict[str, Represent]:
    """PCA and class-centroid SVD by method id.

    The paper does not say whether its probe standardises the 64 coordinates too: ``-unscaled`` leaves strong directions
    strong, which suits 40 steps of Adam better.
    """
    axes: dict[str, Represent] = {"pca-64": lambda rows, _: principal_axes(rows), "centroid-svd": centroid_axes}
    return axes | {f"{method}-unscaled": represent for method, represent in axes.items()}


def fisher_weights(rows: Rows, labels: Labels) -> Doubles:
    """Weights of 16 relative positions by how well they separate the sources.

    rows : (n, 20 * d), training rows as the reader stores them: 16 states, then means; labels : (n,), two at least.
    Returns (16,), float64, mean over coordinates of the ANOVA F between sources, divided by its sum over positions. A
    coordinate that does not vary within sources counts as 0.
    """
    d = rows.shape[1] // (POSITIONS + len(POSITION_POOLS))
    order = np.argsort(labels, kind="stable")
    present, first, count = np.unique(labels[order], return_index=True, return_counts=True)
    scores = np.empty(POSITIONS)
    for position in range(POSITIONS):
        states = rows[:, position * d : (position + 1) * d][order].astype(np.float64)
        states -= states.mean(0)
        means = np.add.reduceat(states, first, axis=0) / count[:, None]
        between = (count[:, None] * means**2).sum(0)
        within = np.maximum((states**2).sum(0) - between, 0)
        ratio = np.divide(between, within, out=np.zeros(d), where=within > 1e-12 * between)
        scores[position] = ratio.mean() * (len(labels) - len(present)) / (len(present) - 1)
    weights: Doubles = scores / scores.sum()
    return weights


def weighted_mean(rows: Rows, weights: Rows) -> Floats:
    """Weighted mean of the 16 stored states, (n, 20 * d) to (n, d)."""
    d = rows.shape[1] // (POSITIONS + len(POSITION_POOLS))
    out = np.zeros((len(rows), d), dtype=np.float32)
    for position, weight in enumerate(weights):
        out += np.float32(weight) * rows[:, position * d : (position + 1) * d]
    return out


def poolings() -> dict[str, Represent]:
    """Every position pooling by method id, for rows of shape (n, 20 * d) as the reader stores them.

    Weighted means of states at 16, 32 or 64 uniform positions, at every fourth token from the end (all or the last 32),
    and at 16 positions with Fisher weights. The paper gives neither the grid nor the Fisher score; here the grid holds
    the first and the last token, and a position's score is its one-way ANOVA F averaged over coordinates.
    """
    uniform, width = np.full(POSITIONS, 1 / POSITIONS), POSITIONS + len(POSITION_POOLS)

    def stored_mean(number: int, rows: Rows) -> Floats:
        return rows.reshape(len(rows), width, -1)[:, POSITIONS + number].astype(np.float32)

    def fisher(share: float, rows: Rows, labels: Labels) -> Encode:
        return partial(weighted_mean, weights=share * fisher_weights(rows, labels) + (1 - share) * uniform)

    return {
        f"positions-{POSITIONS}": fixed(partial(weighted_mean, weights=uniform)),
        **{f"positions-{name}": fixed(partial(stored_mean, number)) for number, name in enumerate(POSITION_POOLS)},
        **{method: partial(fisher, share) for method, share in FISHER_SHARE.items()},
    }


def control_heads(method: str, rows: Slice, layer_of_fold: Mapping[int, int]) -> tuple[Head, ...]:
    """Heads of a control, a fold each, fitted as the stage controls does.

    method : One of :data:`backend.methods.registry.STATES`; rows : Stored rows of whole responses.
    Returns compressions, mixtures and weighted means are collapsed with their probes into one linear map.
    Raises AtlasError if the block of a fold has no rows of the kind that the control reads.
    """
    folds = np.tile(rows.prompt_folds, len(rows.sources))
    form = FORMS[form_of(method)]
    heads = []
    for fold in range(FOLDS):
        layer, train = layer_of_fold[fold], folds != fold
        if layer not in rows.layers(form.variant):
            raise AtlasError(
                f"The '{form.variant}' arrays of block {layer} are not on disk",
                f"Extract them with --{form.variant} {layer}, or name a block that has them with --layer",
            )
        seen = rows.load(layer, form.variant)[train]
        fitted = fit_control(method, form, seen, rows.labels[train], len(rows.sources))
        heads.append(Head(fitted, (layer,), fold))
    return tuple(heads)


def fit_control(method: str, form: Form, rows: Half, labels: Ints, classes: int) -> LinearProbe:
    """The linear map of a control, fitted on stored rows (n, V d) of one of :data:`backend.methods.registry.STATES`."""
    if method in MIXTURES:
        part = form.columns(rows).astype(np.float32)
        mean, scale = standardiser(part)
        x, y = torch.from_numpy((part - mean) / scale), torch.from_numpy(labels.astype(np.int64))
        mixture, weight, bias = descend_mixture(x, y, classes, MIXTURES[method], MODES, ProbeSettings())
        return LinearProbe(mean, scale, spread(mixture, weight).numpy(), bias.numpy())
    if len(form.vectors) == POSITIONS and form.variant == "positions":
        share = FISHER_SHARE.get(method, 0.0)
        weights = np.full(POSITIONS, (1 - share) / POSITIONS)
        if share:
            weights += share * fisher_weights(rows, labels)
        probe = fit_probe(weighted_mean(rows, weights), labels, classes)
        by_position = weights.astype(np.float32)[:, None, None] * probe.weight
        mean, scale = (np.tile(part, POSITIONS) for part in (probe.mean, probe.scale))
        return LinearProbe(mean, scale, by_position.reshape(-1, classes), probe.bias)
    represent: Represent = compressions().get(method) or fixed(lambda part: part.astype(np.float32))
    encode, probe = matched_probe(form.columns(rows), labels, classes, represent, unscaled=method in UNSCALED)
    return collapsed(encode, probe) if isinstance(encode, Projection) else probe


def effects(grid: Rows) -> tuple[Doubles, Doubles, Doubles]:
    """Source, prompt and residual variance of every coordinate.

    grid : (S, P, D), one fingerprint a source and prompt. Returns source, prompt, residual (D,), float64, mean squares
        of the effects; they add up to the population variance over all S * P cells.
    """
    centred = grid - grid.mean((0, 1), dtype=np.float64)
    source, prompt = centred.mean(1), centred.mean(0)
    centred -= source[:, None]
    centred -= prompt
    return (source**2).mean(0), (prompt**2).mean(0), (centred**2).mean((0, 1))


def variance_ratios(fingerprints: Rows, sources: int, prompt_folds: Labels) -> pd.DataFrame:
    """Source-to-prompt variance of every spectral block in every test fold (paper, Source-to-Prompt Variance).

    A block's variances are averages over its coordinates; a ratio of averages is that of the sums.

    fingerprints : (S * P, 2 * d), row = source * P + prompt, DC, then first AC; prompt_folds : (P,).
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
        scaled = fingerprints[test].astype(np.float64) / scale
        source, prompt, _ = effects(scaled.reshape(sources, int(test.sum()) // sources, width))
        for block in BLOCKS:
            columns = block_columns(block, width)
            by_source, by_prompt = float(source[columns].mean()), float(prompt[columns].mean())
            rows.append((block, int(fold), by_source, by_prompt, by_source / by_prompt))
    measures = ["source_variance", "prompt_variance", "ratio"]
    frame = pd.DataFrame(rows, columns=["block", "fold", *measures]).astype({"fold": "Int64"})
    means = frame.groupby("block", sort=False)[measures].mean().reset_index()
    return pd.concat([frame, means], ignore_index=True)
