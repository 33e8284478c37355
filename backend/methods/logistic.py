"""Multinomial regression carried to its minimum.

The paper's probe stops after 40 steps from zero (paper, READER Optimization); here a penalty on the weights says how
far to go, and nothing is left to go.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch

from backend.methods.discriminant import LinearReadout
from backend.methods.probe import standardiser

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.intp]
STEPS = 500
FLAT = 1e-5
"""Largest entry of the gradient at which the search ends."""
STILL = 1e-6
"""Change of the loss in a step at which it ends; what is left then is some 1e-4 of a loss of 2."""


def fit_regression(rows: Floats, labels: Ints, classes: int, penalty: float) -> LinearReadout:
    """Weights of the smallest mean cross-entropy plus ``penalty / 2`` times their squared sum.

    Parameters
    ----------
    rows : ndarray of shape (n, D), float32
        Training rows; they are standardised first.
    labels : ndarray of shape (n,)
    classes : int
    penalty : float
        Above 0, so that there is one minimum.

    Returns
    -------
    LinearReadout

    Raises
    ------
    ValueError
        If the penalty is not above 0.
    """
    mean, scale = standardiser(rows)
    weight, bias = minimum((rows - mean) / scale, labels, classes, penalty)
    return LinearReadout(mean, weight / scale[:, None], bias)


def minimum(
    rows: Floats, labels: Ints, classes: int, penalty: float, offset: Floats | None = None
) -> tuple[Floats, Floats]:
    """Where the penalised loss of a softmax is least, by L-BFGS from zero.

    The weights of discriminants are a worse place to begin: they are large where the rows hardly vary.

    Parameters
    ----------
    rows : ndarray of shape (n, D), float32
        Standardised.
    labels : ndarray of shape (n,)
    classes : int
    penalty : float
    offset : ndarray of shape (n, C), optional
        Added to the scores.

    Returns
    -------
    weight, bias : ndarray of shape (D, C) and (C,), float32

    Raises
    ------
    ValueError
        If the penalty is not above 0.
    """
    if penalty <= 0:
        raise ValueError(f"the penalty must be above 0, got {penalty}")
    x, y = torch.from_numpy(rows), torch.from_numpy(labels.astype(np.int64))
    given = None if offset is None else torch.from_numpy(offset)
    free = [torch.zeros(x.shape[1], classes, requires_grad=True), torch.zeros(classes, requires_grad=True)]
    search = torch.optim.LBFGS(
        free, max_iter=STEPS, tolerance_grad=FLAT, tolerance_change=STILL, line_search_fn="strong_wolfe"
    )

    def loss() -> torch.Tensor:
        search.zero_grad()
        scores = torch.addmm(free[1], x, free[0])
        out = torch.nn.functional.cross_entropy(scores if given is None else scores + given, y)
        out = out + 0.5 * penalty * free[0].square().sum()
        torch.autograd.backward(out)
        return out

    search.step(loss)  # type: ignore[no-untyped-call]
    found: tuple[Floats, Floats] = free[0].detach().numpy(), free[1].detach().numpy()
    return found
