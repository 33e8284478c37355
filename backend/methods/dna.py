"""Static LLM-DNA: one short vector a model, made of the embeddings of all its responses (paper, Static Baselines).

The embeddings of a model's responses to the common prompts are laid end to end in prompt order and multiplied by one
Gaussian matrix; two models are compared by the Euclidean distance of what comes out. Nothing is fitted.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

COMPONENTS = 128
SEED = 42
BLOCK_VALUES = 1 << 22
"""Numbers of the Gaussian matrix that are in memory at a time (32 MiB)."""

Doubles = npt.NDArray[np.float64]


def dna_vectors(
    embeddings: npt.NDArray[np.floating],
    components: int = COMPONENTS,
    seed: int = SEED,
    block_values: int = BLOCK_VALUES,
) -> Doubles:
    """Project the flattened response embeddings of every model.

    The matrix of shape (P * d, components) is drawn a few rows at a time and serves all models before it is forgotten,
    so it is never held whole, and a memory-mapped array may be given. The random stream does not depend on the blocks.

    Parameters
    ----------
    embeddings : ndarray of shape (M, P, d)
        Prompts ascending.
    components : int
        Length of a model's vector.
    seed : int
    block_values : int
        Numbers of the matrix that are drawn at a time.

    Returns
    -------
    ndarray of shape (M, components), float64
        ``flatten(embeddings) @ G / sqrt(components)`` with standard normal ``G``.

    Raises
    ------
    ValueError
        If the embeddings are not of that shape.
    """
    if embeddings.ndim != 3 or not embeddings.size:
        raise ValueError(f"embeddings must have the shape (models, prompts, d), got {embeddings.shape}")
    models, prompts, width = embeddings.shape
    rng = np.random.default_rng(seed)
    step = max(1, block_values // (width * components))
    out = np.zeros((models, components))
    for first in range(0, prompts, step):
        block = embeddings[:, first : first + step].astype(np.float64).reshape(models, -1)
        out += block @ rng.standard_normal((block.shape[1], components))
    out /= np.sqrt(components)
    return out


def distances(vectors: npt.NDArray[np.floating]) -> Doubles:
    """Euclidean distance of every pair of rows, of shape (M, M); taken from differences, so that equal rows give 0."""
    rows = np.asarray(vectors, dtype=np.float64)
    return np.array([np.sqrt(((rows - row) ** 2).sum(axis=1)) for row in rows])
