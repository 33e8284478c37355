"""Which measured readers can score live traces, what their heads read, and why the others cannot.

The verb that makes enrolments and the page that names its command ask here, so that neither promises what the other
does not keep. Whatever is measured of single traces can be enrolled, each in the form that was measured.
"""

from __future__ import annotations

from collections.abc import Mapping

from backend.protocol import READER_PAPER

LDA_LIVE, FUSED_LIVE = "lda-live", "fused-live"
"""Made for this: discriminants over few blocks, and the same with word n-grams beside them."""
ONE_BLOCK: Mapping[str, str] = {
    "temporal-mean": "dc",
    "dct-q2": "dc-ac",
    **{name: name for name in ("dct-q4", "dct-q8")},
    **{f"temporal-{name}": f"temporal-{name}" for name in ("final", "max", "mean-final", "mean-max", "final-max")},
    **dict.fromkeys(("mixture-1", "mixture-2"), "dct-q8"),
    **dict.fromkeys(("positions-16", "positions-fisher", "positions-fisher25"), "positions-16"),
    **{f"positions-{name}": f"positions-{name}" for name in ("32", "64", "stride4", "stride4-32")},
}
"""Probes on other forms of a trajectory, all at one block, and what they read of it."""
STATES: Mapping[str, str] = {
    LDA_LIVE: "dc-ac",
    FUSED_LIVE: "dc-ac",
    READER_PAPER: "dc-ac",
    "reader-dc": "dc",
    "reader-ac": "ac",
    "pca-64": "dc-ac",
    "pca-64-unscaled": "dc-ac",
    "centroid-svd": "dc-ac",
    "centroid-svd-unscaled": "dc-ac",
    **ONE_BLOCK,
}
"""Readers of a proxy's states, some beside text, and what their heads read of a block."""
TEXTS = ("ngram-word", "ngram-char")
"""Readers of the response's text; a proxy only says where the traces lie among the sources."""
LINEAR = "fused-linear"
ENCODER = "encoder-lengths"
FUSED_TUNED, TEXT_TUNED = "fused-tuned", "fused-text-tuned"
"""Stacks in which a fine-tuned encoder stands beside the other members."""
STACKED = (
    *("lda", "lda-full", "regression", "experts", "network", "states"),
    *("fused-states", LINEAR, "fused", FUSED_TUNED),
)
"""Stacks of members over the blocks of one or several proxies, some beside text."""
NETWORKS = ("network", "states", "fused-states", "fused", FUSED_TUNED)
"""Those of them in which a network takes part."""
WORDS = "ngram-word-lengths"
WRITTEN = (WORDS, "ngram-char-lengths", "fused-text", TEXT_TUNED)
"""Stacks of members that read the response's text alone."""
LLMMAP = "llmmap"
EMBEDDED = ("dna", LLMMAP)
"""Readers whose heads read embeddings of a frozen encoder."""
ENCODED = (*EMBEDDED, ENCODER)
"""Readers with a sentence encoder of their own; the last is one that was fine-tuned."""
TEXT, SEVERAL = "text", "several"
"""Stand for a block where the heads read the response itself, and where their members read different things."""
ENROLLABLE = (*STATES, *TEXTS, *STACKED, *WRITTEN, *ENCODED)
"""Methods that ``python -m jobs enroll --roster ... --readout METHOD`` makes heads of."""
OF_TRACES = (READER_PAPER, LDA_LIVE, WORDS, FUSED_LIVE, LINEAR)
"""Those that any labelled traces can be enrolled by, the simplest first; the last has all members of the others."""
CONTROLS = (
    *("reader-dc", "reader-ac", "temporal-mean", "temporal-final", "temporal-max", "temporal-mean-final"),
    *("temporal-mean-max", "temporal-final-max", "dct-q2", "dct-q4", "dct-q8", "mixture-1", "mixture-2"),
    *("positions-16", "positions-32", "positions-64", "positions-stride4", "positions-stride4-32"),
    *("positions-fisher", "positions-fisher25", "pca-64", "pca-64-unscaled"),
    *("centroid-svd", "centroid-svd-unscaled"),
)
BASELINES = ("random", "ngram-word", "ngram-char", "dna", "llmmap")

_REASONS: Mapping[str, str] = {
    "encoder|deberta": "its encoder is fine-tuned fold by fold, and of that only scores are kept",
    "random": "it guesses",
    "mpt|phylolm": "it compares samples of models, and no single traces",
}
"""What names of methods begin with, and why all of these cannot score."""


def why_not(method: str) -> str | None:
    """Why a method cannot score live traces, None for one that can."""
    if method in ENROLLABLE:
        return None
    shared = (why for names, why in _REASONS.items() if method.startswith(tuple(names.split("|"))))
    return next(shared, "it was not measured here")


def reads_text(method: str) -> bool:
    """Whether the heads of a method read the text of a response, and no state of a proxy."""
    return method in TEXTS or method in WRITTEN


def block_of(method: str) -> str:
    """What the heads of a method read of a block, :data:`TEXT`, or :data:`SEVERAL`."""
    return STATES.get(method) or (TEXT if method in TEXTS else SEVERAL)


def reader_id(method: str, proxy: str, view: str) -> str:
    """Id of a method's reader: a reader of texts has neither proxy nor view."""
    return method if reads_text(method) else f"{method}/{proxy}/{view}"
