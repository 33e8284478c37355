"""Representations of the same rows under the same probe: the matched comparison behind every control (paper, Appendix
"Representation Ablations and Diagnostics").

A representation is fitted on the rows that train the probe and on nothing else, so it cannot have seen a held-out
prompt; most have nothing to fit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np
import numpy.typing as npt
import torch

from backend.methods.probe import LinearProbe, ProbeSettings, descend, fit_probe

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.floating]
Encode = Callable[[Rows], Floats]
"""Rows of shape (n, D) to features of shape (n, E)."""
Represent = Callable[[Rows, npt.NDArray[np.integer]], Encode]
"""Training rows of shape (n, D) and labels of shape (n,) to the encoding that they imply."""


def fixed(encode: Encode) -> Represent:
    """A representation without anything to fit."""
    return lambda _rows, _labels: encode


def matched_evidence(
    load: Callable[[int], Rows],
    layer_of_fold: Mapping[int, int],
    labels: npt.NDArray[np.integer],
    folds: npt.NDArray[np.integer],
    classes: int,
    representations: Mapping[str, Represent],
    *,
    unscaled: Collection[str] = (),
    settings: ProbeSettings | None = None,
    progress: Callable[[str], None] | None = None,
) -> dict[str, Floats]:
    """Out-of-fold log-posteriors of several representations, one load a fold.

    load : Layer number to stored rows of shape (n, D).
    layer_of_fold : Block of every outer fold.
    labels, folds : (n,).
    classes : Number of sources ``C``.
    unscaled : Representations whose features reach the probe as they are, not standardised.
    progress : Called with the name of every representation whose probe is fitted.
    Returns name to (n, C), float32.
    """
    out = {name: np.empty((len(labels), classes), dtype=np.float32) for name in representations}
    for fold, layer in sorted(layer_of_fold.items()):
        rows, test = load(layer), folds == fold
        seen, unseen = rows[~test], rows[test]
        for name, represent in representations.items():
            encode, probe = matched_probe(
                seen, labels[~test], classes, represent, unscaled=name in unscaled, settings=settings
            )
            out[name][test] = probe.log_posterior(encode(unseen))
            if progress:
                progress(name)
    return out


def matched_probe(
    rows: Rows,
    labels: npt.NDArray[np.integer],
    classes: int,
    represent: Represent,
    *,
    unscaled: bool = False,
    settings: ProbeSettings | None = None,
) -> tuple[Encode, LinearProbe]:
    """A representation and the probe on it, both fitted on the same rows.

    rows : (n, D), training rows.
    labels : (n,).
    classes : Number of sources ``C``.
    unscaled : Features reach the probe as they are, not standardised.
    Returns a function of rows (n, D) to features (n, E), and the probe on the features.
    """
    encode = represent(rows, labels)
    fit = _fit_unscaled if unscaled else fit_probe
    return encode, fit(encode(rows), labels, classes, settings)


def _fit_unscaled(
    features: Rows, labels: npt.NDArray[np.integer], classes: int, settings: ProbeSettings | None
) -> LinearProbe:
    x, y = torch.from_numpy(features.astype(np.float32)), torch.from_numpy(labels.astype(np.int64))
    weight, bias = descend(x, y, classes, settings or ProbeSettings())
    nothing, one = np.zeros(x.shape[1], dtype=np.float32), np.ones(x.shape[1], dtype=np.float32)
    return LinearProbe(nothing, one, weight.numpy(), bias.numpy())
