"""Every method that tells sources apart: its names, what it reads, and where it takes part.

One table, of which all other lists are selections; :func:`register` adds one, with ``fit`` for any labelled traces.
"""

from __future__ import annotations

import pkgutil
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backend.protocol import READER_PAPER

LDA_LIVE, FUSED_LIVE, WORDS = "lda-live", "fused-live", "ngram-word-lengths"
LINEAR, FUSED, FUSED_TUNED, TEXT_TUNED = "fused-linear", "fused", "fused-tuned", "fused-text-tuned"
STYLED = FUSED_STYLE, TEXT_STYLE, STYLE_GRAMS = "fused-style", "fused-text-style", "ngram-style-lengths"
ENCODER, LLMMAP, DNA = "encoder-lengths", "llmmap", "dna"
TEXT, SEVERAL, EMBEDDING = "text", "several", "embedding"
"""What heads read in place of a form of a block: the response, different things, embeddings of an encoder."""
PROBE, NGRAMS, ENSEMBLE = (
    f"backend.methods.{name}" for name in ("probe:LinearProbe", "ngrams:CodedNgrams", "ensemble:Ensemble")
)
BANK, NGRAM_BANK = (f"backend.methods.discriminant:{name}" for name in ("DiscriminantBank", "NgramBank"))
_TUNED = "its encoder is fine-tuned fold by fold, and of that only scores are kept"
_SAMPLES = "it compares samples of models, and no single traces"
_NOT_MEASURED = "it was not measured here"


@dataclass(frozen=True)
class Method:
    """A way to tell sources apart; lists show methods in the order of the table."""

    id: str
    name: str = ""  # on pages; a reader without one goes by its own name
    title: str = ""  # of its readers in the store, where that is another one
    stage: str = ""  # of ``python -m jobs evaluate``
    reads: str = ""  # a name of backend.methods.representations.FORMS, TEXT, SEVERAL or EMBEDDING
    readout: str = ""  # "module:class" of what its heads hold, a backend.methods.readout.Readout
    fit: str = ""  # "module:function" of (rows (n, D), labels (n,), classes) to that readout
    members: tuple[str, ...] = ()  # methods in its readout on any labelled traces; itself by default
    simplicity: int = 0  # among those that any labelled traces can be enrolled by, from 1
    part: str = ""  # of the stage ``controls``
    place: int = 0  # there, from 1
    also: tuple[str, ...] = ()  # further jobs: 'map', 'relate'
    network: bool = False  # a network takes part
    reason: str = ""  # why it cannot score live traces
    group: str = ""  # of its readers in lists; by default, by the beginning of its id

    @property
    def enrollable(self) -> bool:
        """Whether its heads can score live traces."""
        return not self.reason

    @property
    def stacked(self) -> bool:
        """Whether its heads are members that are weighed by the length of a text."""
        return self.readout == ENSEMBLE and self.stage == "readouts"

    @property
    def parts(self) -> tuple[str, ...]:
        """Methods in its readout on any labelled traces."""
        return self.members or (self.id,)

    @property
    def form(self) -> str:
        """What its heads read of a block of a proxy; empty where they read something else."""
        return "" if self.reads in (TEXT, SEVERAL, EMBEDDING) else self.reads

    @property
    def readout_class(self) -> Any:
        """Class of what its heads hold."""
        return pkgutil.resolve_name(self.readout)

    def fitted(self, rows: Any, labels: Any, classes: int) -> Any:
        """Its readout, fitted to rows (n, D) and labels (n,)."""
        return pkgutil.resolve_name(self.fit)(rows, labels, classes)


def _control(place: int, id: str, reads: str, part: str, name: str, title: str = "") -> Method:
    return Method(id, name, title or name, "controls", reads, PROBE, part=part, place=place)


def _stack(id: str, name: str, reads: str = SEVERAL, network: bool = False, **more: Any) -> Method:
    return Method(id, name, stage="readouts", reads=reads, readout=ENSEMBLE, network=network, **more)


def _unmeasured(id: str, name: str) -> Method:
    return Method(id, name, reason=_NOT_MEASURED)


_TABLE = (
    Method("mpt", "MPT", also=("relate",), reason=_SAMPLES),
    Method("phylolm", "PhyloLM", also=("relate",), reason=_SAMPLES),
    Method(LDA_LIVE, "Discriminants, live", "", "readouts", "dc-ac", BANK, simplicity=2),
    Method(
        FUSED_LIVE, "Discriminants and word n-grams, live", "", "readouts", "dc-ac", NGRAM_BANK,
        members=(LDA_LIVE, WORDS), simplicity=4,
    ),
    Method(
        READER_PAPER, "READER", "", "attribution", "dc-ac", PROBE, "backend.methods.probe:fit_probe",
        simplicity=1, also=("map", "relate"),
    ),
    _control(1, "reader-dc", "dc", "components", "READER, DC alone", "READER, DC only"),
    _control(2, "reader-ac", "ac", "components", "READER, AC alone", "READER, first AC only"),
    _control(21, "pca-64", "dc-ac", "compression", "PCA, 64 dimensions"),
    _control(22, "pca-64-unscaled", "dc-ac", "compression", "PCA, 64 dimensions as they are"),
    _control(23, "centroid-svd", "dc-ac", "compression", "Class-centroid SVD, 64 dimensions"),
    _control(24, "centroid-svd-unscaled", "dc-ac", "compression", "Class-centroid SVD, 64 dimensions as they are"),
    _control(3, "temporal-mean", "dc", "temporal", "Mean", "All-token mean"),
    _control(9, "dct-q2", "dc-ac", "temporal", "2 DCT modes", "DCT, two modes"),
    _control(10, "dct-q4", "dct-q4", "temporal", "4 DCT modes", "DCT, four modes"),
    _control(11, "dct-q8", "dct-q8", "temporal", "8 DCT modes", "DCT, eight modes"),
    _control(4, "temporal-final", "temporal-final", "temporal", "Final token"),
    _control(5, "temporal-max", "temporal-max", "temporal", "Maximum", "Coordinate-wise maximum"),
    _control(6, "temporal-mean-final", "temporal-mean-final", "temporal", "Mean and final token", "Mean + final"),
    _control(7, "temporal-mean-max", "temporal-mean-max", "temporal", "Mean and maximum", "Mean + maximum"),
    _control(8, "temporal-final-max", "temporal-final-max", "temporal", "Final token and maximum", "Final + maximum"),
    _control(12, "mixture-1", "dct-q8", "temporal", "Learned mixture, one head", "Learned one-head mixture"),
    _control(13, "mixture-2", "dct-q8", "temporal", "Learned mixture, two heads", "Learned two-head mixture"),
    _control(14, "positions-16", "positions-16", "positions", "16 uniform positions"),
    _control(19, "positions-fisher", "positions-16", "positions", "16 positions, Fisher weights"),
    _control(
        20, "positions-fisher25", "positions-16", "positions", "16 positions, 25 % Fisher weights",
        "16 positions, 25% Fisher weights",
    ),
    _control(15, "positions-32", "positions-32", "positions", "32 uniform positions"),
    _control(16, "positions-64", "positions-64", "positions", "64 uniform positions"),
    _control(
        17, "positions-stride4", "positions-stride4", "positions", "Every fourth token",
        "Every fourth token from the end",
    ),
    _control(18, "positions-stride4-32", "positions-stride4-32", "positions", "Every fourth token, the last 32"),
    Method("random", "Random guessing", stage="baselines", reason="it guesses"),
    Method("ngram-word", "Word n-grams", "", "baselines", TEXT, NGRAMS, also=("map",)),
    Method("ngram-char", "Character n-grams", "", "baselines", TEXT, NGRAMS, also=("map",)),
    _stack("lda", "Discriminants, every length"),
    _stack("lda-full", "Discriminants, whole responses"),
    _stack("regression", "Regression, whole responses"),
    _stack("experts", "Experts within families, whole responses"),
    _stack("network", "Network", network=True),
    _stack("states", "Discriminants and network", network=True),
    _stack("fused-states", "Fused states", network=True),
    _stack(
        LINEAR, "Fused readout without networks", title="Fused, of linear members",
        members=(READER_PAPER, LDA_LIVE, WORDS), simplicity=5,
    ),
    _stack(FUSED, "Fused readout", network=True),
    _stack(FUSED_STYLE, "Fused readout, style n-grams among them", network=True),
    _stack(FUSED_TUNED, "Fused readout, fine-tuned encoder among them", network=True),
    _stack(WORDS, "Word n-grams, every length", TEXT, simplicity=3),
    _stack("ngram-char-lengths", "Character n-grams, every length", TEXT),
    _stack(STYLE_GRAMS, "Style n-grams, every length", TEXT),
    _stack("fused-text", "Fused texts", TEXT),
    _stack(TEXT_STYLE, "Fused texts, style n-grams among them", TEXT),
    _stack(TEXT_TUNED, "Fused texts, fine-tuned encoder among them", TEXT),
    Method(DNA, "LLM-DNA", "", "baselines", EMBEDDING, ENSEMBLE, also=("map", "relate")),
    Method(LLMMAP, "LLMmap", "", "baselines", EMBEDDING, ENSEMBLE),
    _stack(ENCODER, "Fine-tuned encoder, every length", EMBEDDING),
    Method("deberta", stage="baselines", reads=TEXT, reason=_TUNED),
    Method("encoder", "Fine-tuned encoder", stage="baselines", reads=TEXT, reason=_TUNED),
    _unmeasured("reader-mean4", "READER, mean of four"),
    _unmeasured("dna-finetuned", "LLM-DNA, fine-tuned"),
    _unmeasured("dna-finetuned-first", "LLM-DNA, fine-tuned, first text"),
    _unmeasured("published-deberta", "DeBERTa"),
    _unmeasured("published-llmmap", "LLMmap"),
    _unmeasured("published-mpt", "MPT"),
    _unmeasured("published-phylolm", "PhyloLM"),
    _unmeasured("published-random", "Random guessing"),
)  # fmt: skip
METHODS: dict[str, Method] = {method.id: method for method in _TABLE}
GROUPS: Mapping[str, str] = {
    "READER": READER_PAPER,
    "Parts of READER": "reader-|dc$|ac$|dc-ac$|component",
    "Other readouts of a proxy": "pca|centroid|fused|lda|regression|experts|network|states",
    "Temporal forms": "dct-|mean|final|max|mix|pool|temporal|head",
    "Baselines": "published-|random|ngram|char|word|dna|llmmap|deberta|mpt|phylolm|match|bert|tfidf|style|baseline",
}  # fmt: skip
"""What readers are called in lists, and how the ids of their methods begin; the first that fits holds."""


class Selection(Sequence[str]):
    """Ids of the methods that meet a condition, in the table's order or another one, as they are registered now."""

    def __init__(self, holds: Callable[[Method], object], order: Callable[[Method], int] = lambda _: 0) -> None:
        self._holds, self._order = holds, order

    def _ids(self) -> list[str]:
        return [method.id for method in sorted(filter(self._holds, METHODS.values()), key=self._order)]

    def __getitem__(self, at: Any) -> Any:
        return self._ids()[at]

    def __len__(self) -> int:
        return len(self._ids())


ENROLLABLE = Selection(lambda method: method.enrollable)  # ``enroll --roster ... --readout METHOD`` makes heads of it
OF_TRACES = Selection(lambda method: method.simplicity, lambda method: method.simplicity)
"""Those that any labelled traces can be enrolled by, the simplest first."""
CONTROLS = Selection(lambda method: method.place, lambda method: method.place)
"""Parts and forms of a fingerprint that the paper's probe is compared on."""
BASELINES = Selection(lambda method: method.stage == "baselines")
QUICK = Selection(lambda method: method.stage == "baselines" and method.reason != _TUNED)  # without fine-tuning
READOUTS = Selection(lambda method: method.stage == "readouts")  # weigh members by the length of a text
STATES = Selection(lambda method: method.form)  # read a proxy's states at single blocks, some next to text
ONE_BLOCK = Selection(lambda method: method.part in ("temporal", "positions"))  # probes on other forms, at one block
NETWORKS = Selection(lambda method: method.network)  # stacks in which a network takes part
ENCODED = Selection(lambda method: method.reads == EMBEDDING)  # readers with a sentence encoder of their own
EMBEDDED = Selection(lambda method: method.reads == EMBEDDING and method.stage == "baselines")
"""Those of them whose encoder is frozen."""
MAPPED = Selection(lambda method: "map" in method.also)
RELATED = Selection(lambda method: "relate" in method.also)


def register(method: Method) -> None:
    """Add a method, ValueError if its id is taken; with ``fit`` and ``simplicity`` any labelled traces can have it."""
    if method.id in METHODS:
        raise ValueError(f"there is a method '{method.id}' already")
    METHODS[method.id] = method


def of_part(part: str) -> list[str]:
    """Controls of a part of their stage, in the order of the paper's tables."""
    return [method for method in CONTROLS if METHODS[method].part == part]


def names() -> dict[str, str]:
    """What methods are called on pages; others go by the names of their readers."""
    return {method.id: method.name for method in METHODS.values() if method.name}


def title_of(method: str) -> str:
    """What readers of a method are called in the store."""
    return METHODS[method].title or METHODS[method].name


def group_of(method: str) -> str:
    """What readers of a method are called in lists."""
    named = METHODS[method].group if method in METHODS else ""
    return named or next((group for group, starts in GROUPS.items() if re.match(starts, method)), "Other readers")


def why_not(method: str) -> str | None:
    """Why a method cannot score live traces, None for one that can."""
    return (METHODS[method].reason or None) if method in METHODS else _NOT_MEASURED


def reads_text(method: str) -> bool:
    """Whether the heads of a method read the text of a response, and no state of a proxy."""
    return why_not(method) is None and METHODS[method].reads == TEXT


def form_of(method: str) -> str:
    """What the heads of one of :data:`STATES` read of a block, of FORMS in backend.methods.representations."""
    return METHODS[method].form


def block_of(method: str) -> str:
    """What the heads of a method read of a block, :data:`TEXT`, or :data:`SEVERAL`."""
    known = METHODS.get(method, Method(method))
    return known.form or (TEXT if known.reads == TEXT and not known.stacked else SEVERAL)


def reader_id(method: str, proxy: str, view: str) -> str:
    """Id of a method's reader: a reader of texts has neither proxy nor view."""
    return method if reads_text(method) else f"{method}/{proxy}/{view}"
