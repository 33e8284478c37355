"""Heads of the paper's controls, fitted on stored rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import torch

from backend.corpus.roster_rows import Slice
from backend.errors import AtlasError
from backend.evaluations.compression import UNSCALED, Projection, collapsed, compressions
from backend.evaluations.matched import Represent, fixed, matched_probe
from backend.evaluations.pooling import FISHER_SHARE, fisher_weights, weighted_mean
from backend.methods.head import Head
from backend.methods.probe import LinearProbe, ProbeSettings, fit_probe, standardiser
from backend.methods.registry import form_of
from backend.methods.representations import FORMS, MIXTURES, MODES, Form, descend_mixture, spread
from backend.protocol import FOLDS
from backend.spectral import POSITIONS


def control_heads(method: str, rows: Slice, layer_of_fold: Mapping[int, int]) -> tuple[Head, ...]:
    """Heads of a control, a fold each, fitted as the stage controls does.

    Parameters
    ----------
    method : str
        One of :data:`backend.methods.registry.STATES`.
    rows : Slice
        Stored rows of whole responses.
    layer_of_fold : mapping of int to int
        Block of every outer fold.

    Returns
    -------
    tuple of Head
        Compressions, mixtures and weighted means are collapsed with their probes into one linear map.

    Raises
    ------
    AtlasError
        If the block has no rows of the kind that the control reads.
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


def fit_control(
    method: str, form: Form, rows: npt.NDArray[np.float16], labels: npt.NDArray[np.intp], classes: int
) -> LinearProbe:
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
        return LinearProbe(
            np.tile(probe.mean, POSITIONS), np.tile(probe.scale, POSITIONS),
            by_position.reshape(-1, classes), probe.bias,
        )  # fmt: skip
    represent: Represent = compressions().get(method) or fixed(lambda part: part.astype(np.float32))
    encode, probe = matched_probe(form.columns(rows), labels, classes, represent, unscaled=method in UNSCALED)
    return collapsed(encode, probe) if isinstance(encode, Projection) else probe
