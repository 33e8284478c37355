"""Text baselines of relationships: how often two models begin their answers alike (paper, Static Baselines).

MPT compares the first word of the responses to the same prompt, PhyloLM the first four characters; the feature of a
pair is the share of prompts on which they agree. Neither needs a proxy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]
PHYLOLM_CHARACTERS = 4
_WORD = re.compile(r"\S+")


def first_word(response: str) -> str:
    """First run of characters that are not space; empty where there is none (MPT)."""
    found = _WORD.search(response)
    return found[0] if found else ""


def first_characters(response: str) -> str:
    """First four characters after leading blanks, then leading line ends, are gone (PhyloLM)."""
    return response.lstrip(" ").lstrip("\n")[:PHYLOLM_CHARACTERS]


MATCHERS: Mapping[str, Callable[[str], str]] = {"mpt": first_word, "phylolm": first_characters}
"""What each baseline compares of a response."""


def match_rates(responses: Sequence[str], models: int, beginning: Callable[[str], str]) -> Doubles:
    """Share of prompts on which two models begin alike, for every pair of models.

    Parameters
    ----------
    responses : sequence of str, length M * P
        Row = model * P + prompt.
    models : int
        Number of models, ``M``.
    beginning : callable
        What is compared of a response, e.g. :func:`first_word`; two empty beginnings are alike.

    Returns
    -------
    ndarray of shape (M, M), float64
        Symmetric, with ones on the diagonal.

    Raises
    ------
    ValueError
        If the responses do not divide into the models.
    """
    if models < 1 or not responses or len(responses) % models:
        raise ValueError(f"{len(responses)} responses do not divide into {models} models")
    known: dict[str, int] = {}
    codes = np.array([known.setdefault(beginning(text), len(known)) for text in responses]).reshape(models, -1)
    return np.array([(codes == row).mean(axis=1) for row in codes])
