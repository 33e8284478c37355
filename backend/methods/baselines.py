"""Baselines that fit nothing (paper, Dynamic and Static Baselines).

MPT compares the first word of responses to the same prompt, PhyloLM the first four characters. Static LLM-DNA projects
the embeddings of a model's responses by one Gaussian matrix; models are compared by Euclidean distance.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from backend.methods.readout import Doubles, Floats, Labels, Rows


def random_guess(rows: Labels, classes: int, panel: str, fold: int, seed: int = 42) -> Floats:
    """Log-posteriors (n, C) drawn uniformly from the simplex, by panel, fold and seed; no tie favours a source."""
    rng = np.random.default_rng([seed, fold, zlib.crc32(panel.encode())])
    weights = rng.standard_exponential((len(rows), classes)) + np.finfo(np.float32).tiny
    out: Floats = np.log(weights / weights.sum(1, keepdims=True)).astype(np.float32)
    return out


PHYLOLM_CHARACTERS = 4


def first_word(response: str) -> str:
    """First run of characters that are not space; empty where there is none (MPT)."""
    return (response.split(None, 1) or [""])[0]


def first_characters(response: str) -> str:
    """First four characters after leading blanks, then leading line ends, are gone (PhyloLM)."""
    return response.lstrip(" ").lstrip("\n")[:PHYLOLM_CHARACTERS]


MATCHERS: Mapping[str, Callable[[str], str]] = {"mpt": first_word, "phylolm": first_characters}
"""What each baseline compares of a response."""


def match_rates(responses: Sequence[str], models: int, beginning: Callable[[str], str]) -> Doubles:
    """Share (M, M) of prompts on which two models begin alike, or both empty; responses M * P, models ascending."""
    if models < 1 or not responses or len(responses) % models:
        raise ValueError(f"{len(responses)} responses do not divide into {models} models")
    known: dict[str, int] = {}
    codes = np.array([known.setdefault(beginning(text), len(known)) for text in responses]).reshape(models, -1)
    return np.array([(codes == row).mean(axis=1) for row in codes])


COMPONENTS = 128
SEED = 42
BLOCK_VALUES = 1 << 22  # numbers of the Gaussian matrix that are in memory at a time (32 MiB)


def dna_vectors(
    embeddings: Rows, components: int = COMPONENTS, seed: int = SEED, block_values: int = BLOCK_VALUES
) -> Doubles:
    """Vectors (M, components): ``flatten(embeddings) @ G / sqrt(components)`` with standard normal ``G``.

    ``G`` (P * d, components) is drawn in blocks of at most ``block_values`` numbers, which do not change it.
    ``embeddings`` (M, P, d), prompts ascending, may be memory-mapped; ValueError if they are not of that shape.
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


def distances(vectors: Rows) -> Doubles:
    """Euclidean distance of every pair of rows, of shape (M, M); taken from differences, so that equal rows give 0."""
    rows = np.asarray(vectors, dtype=np.float64)
    return np.array([np.sqrt(((rows - row) ** 2).sum(axis=1)) for row in rows])
