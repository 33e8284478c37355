"""What readers with a sentence encoder of their own embed of a trace (paper, LLMmap and LLM-DNA)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from backend.methods.llmmap import RESPONSE_CHARACTERS
from backend.methods.sentence_encoder import SentenceEncoder
from backend.traces import VIEWS, Trace, view_text

Floats = npt.NDArray[np.float32]
PAIR = "pair"
"""Prompt and beginning of the response, one after the other."""


def reads_of(encoder: str, what: str) -> str:
    """Name under which a reader asks for embeddings: the encoder, and an input view or :data:`PAIR`."""
    return f"{encoder}:{what}"


def beginning(trace: Trace) -> str:
    """The part of a response that LLMmap reads."""
    return trace.response[:RESPONSE_CHARACTERS]


def embed(encoder: SentenceEncoder, what: str, traces: Sequence[Trace]) -> Floats:
    """Embeddings of traces, rounded to half precision as the kept ones of responses are.

    Parameters
    ----------
    encoder : SentenceEncoder
    what : str
        An input view (d numbers a trace), or :data:`PAIR` (2 d).
    traces : sequence of Trace, length n

    Returns
    -------
    ndarray of shape (n, d) or (n, 2 d), float32

    Raises
    ------
    ValueError
        If ``what`` is neither.
    """
    if what == PAIR:
        prompts = list(dict.fromkeys(trace.prompt for trace in traces))
        place = {prompt: i for i, prompt in enumerate(prompts)}
        asked = encoder.embed(prompts)[[place[trace.prompt] for trace in traces]]
        return np.concatenate([asked, _rounded(encoder.embed([beginning(trace) for trace in traces]))], axis=1)
    view = next((view for view in VIEWS if view == what), None)
    if view is None:
        raise ValueError(f"'{what}' of a trace is not embedded")
    return _rounded(encoder.embed([view_text(trace, view)[1] for trace in traces]))


def _rounded(values: Floats) -> Floats:
    return values.astype(np.float16).astype(np.float32)
