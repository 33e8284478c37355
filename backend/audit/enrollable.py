"""Which measured readers can score live traces, what their heads read, and why the others cannot.

The verb that makes enrolments and the page that names its command ask here, so that neither promises what the other
does not keep. Evidence is split exactly over what is read, so that a reader has to be linear in it: in the spectral
modes of a proxy's states, or in the weighed n-grams of a response.
"""

from __future__ import annotations

from collections.abc import Mapping

LIVE = "lda-live"
"""The default: discriminants over few blocks, made for this."""
PAPER = "reader-paper"
STATES: Mapping[str, str] = {
    LIVE: "dc-ac",
    PAPER: "dc-ac",
    "reader-dc": "dc",
    "reader-ac": "ac",
    "pca-64": "dc-ac",
    "pca-64-unscaled": "dc-ac",
    "centroid-svd": "dc-ac",
    "centroid-svd-unscaled": "dc-ac",
}
"""Readers of a proxy's states, and the spectral block that their heads read."""
TEXTS = ("ngram-word", "ngram-char")
"""Readers of the response's text; a proxy only says where the traces lie among the sources."""
ENROLLABLE = (*STATES, *TEXTS)
"""Methods that ``python -m jobs enroll --roster ... --readout METHOD`` makes heads of."""

_REASONS: Mapping[tuple[str, ...], str] = {
    ("network", "states", "fused"): (
        "a network takes part in it, which is not linear, so that its evidence cannot be split exactly"
    ),
    ("lda-live",): "",
    ("lda",): (
        "its discriminants over five blocks are kept as scores only; lda-live is what live attribution has of them"
    ),
    ("ngram",): "its weights, fitted to three lengths of every response, are kept as scores only",
    ("dct", "temporal", "mixture", "positions"): ("it needs more of a response than the two modes that are read live"),
    ("dna", "llmmap", "deberta", "encoder"): "it reads with an encoder of its own and not with a proxy",
    ("random",): "it guesses",
    ("mpt", "phylolm"): "it compares samples of whole models and no single traces",
}
"""First words of a method's name, and why it cannot score."""


def reads_text(method: str) -> bool:
    """Whether the heads of a method read the text of a response, and no state of a proxy."""
    return method in TEXTS


def reader_id(method: str, proxy: str, view: str) -> str:
    """Id of a method's reader: a reader of texts has neither proxy nor view."""
    return method if reads_text(method) else f"{method}/{proxy}/{view}"
