"""Which measured readers can score live traces, what their heads read, and why the others cannot.

The verb that makes enrolments and the page that names its command ask here, so that neither promises what the other
does not keep. Evidence is split exactly over what is read, so that a reader has to be linear in it: in the spectral
modes of a proxy's states, or in the weighed n-grams of a response.
"""

from __future__ import annotations

from collections.abc import Mapping

LIVE, WORDED = "lda-live", "fused-live"
"""Made for this: discriminants over few blocks, and the same with word n-grams beside them."""
PAPER = "reader-paper"
STATES: Mapping[str, str] = {
    LIVE: "dc-ac",
    WORDED: "dc-ac",
    PAPER: "dc-ac",
    "reader-dc": "dc",
    "reader-ac": "ac",
    "pca-64": "dc-ac",
    "pca-64-unscaled": "dc-ac",
    "centroid-svd": "dc-ac",
    "centroid-svd-unscaled": "dc-ac",
}
"""Readers of a proxy's states, some beside text, and the spectral block that their heads read."""
TEXTS = ("ngram-word", "ngram-char")
"""Readers of the response's text; a proxy only says where the traces lie among the sources."""
TEXT = "text"
"""Stands for a block where the heads read the response itself."""
ENROLLABLE = (*STATES, *TEXTS)
"""Methods that ``python -m jobs enroll --roster ... --readout METHOD`` makes heads of."""

_ALONE: Mapping[str, str] = {
    "dct-q2": "it is reader-paper at a block of its own, and its probes are not kept",
    "temporal-mean": "it is reader-dc at a block of its own, and its probes are not kept",
}
"""Why single methods cannot score."""
_REASONS: Mapping[str, str] = {
    "network|states|fused": "a network takes part in it, which no evidence can be split by exactly",
    "lda": "its discriminants are kept as scores only; lda-live is what live attribution has of them",
    "ngram": "its weights are kept as scores only; ngram-word is its like on whole responses",
    "dct|temporal|mixture|positions": "it needs more of a response than the two modes that are read live",
    "dna|llmmap|deberta|encoder": "it reads with an encoder of its own",
    "random": "it guesses",
    "mpt|phylolm": "it compares samples of models, and no single traces",
}
"""What names of methods begin with, and why all of these cannot score."""


def why_not(method: str) -> str | None:
    """Why a method cannot score live traces, None for one that can."""
    if method in ENROLLABLE:
        return None
    shared = (why for names, why in _REASONS.items() if method.startswith(tuple(names.split("|"))))
    return _ALONE.get(method) or next(
        shared, "it is not linear in the states of a proxy, nor in the n-grams of a response"
    )


def reads_text(method: str) -> bool:
    """Whether the heads of a method read the text of a response, and no state of a proxy."""
    return method in TEXTS


def block_of(method: str) -> str:
    """Spectral block that the heads of a method read, or :data:`TEXT`."""
    return STATES.get(method, TEXT)


def reader_id(method: str, proxy: str, view: str) -> str:
    """Id of a method's reader: a reader of texts has neither proxy nor view."""
    return method if reads_text(method) else f"{method}/{proxy}/{view}"
