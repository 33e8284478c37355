"""Hashed n-grams of words and characters: what is counted, how it weighs, and where in a text it lies.

Nothing is learnt here, so that a text is counted once for all folds. The baselines count as scikit-learn does; members
of stacks count by arithmetic on whole arrays: every unit (a word, a mark, a run of line ends; or a character) becomes a
number, every n-gram a mixture of its numbers, and a bucket is the leading bits of that.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import HashingVectorizer

from backend.methods.readout import Doubles, Floats, Ints, settings_text

Words = npt.NDArray[np.uint64]
Offsets = npt.NDArray[np.int64]
Kind = Literal["word", "char"]
Counts = Any  # scipy.sparse.csr_matrix, which has no types that agree with arrays
CHUNK = 2000
_UNIT = re.compile(r"\w+|[^\w\s]|\n+")
_CHARACTER = re.compile(r"\s\s+|.", re.DOTALL)  # a run of blanks is one, as scikit-learn has it
_MIX = np.uint64(0x9E3779B97F4A7C15)


def weigh(counts: Counts, idf: Floats) -> Counts:
    """TF-IDF with ``1 + log(tf)`` and rows of unit length; an empty row stays empty."""
    rows = counts.tocsr(copy=True)
    rows.data = (1 + np.log(rows.data)) * idf[rows.indices]
    owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    norms = np.sqrt(np.bincount(owner, rows.data.astype(np.float64) ** 2, minlength=rows.shape[0]))
    rows.data = (rows.data / norms[owner]).astype(np.float32)
    return rows


def choose_columns(counts: Counts, most: int, fewest: int) -> tuple[Ints, Floats]:
    """Buckets, ascending, that occur in most of the training rows, and in ``fewest`` of them at least; their IDF."""
    documents = np.bincount(counts.indices, minlength=counts.shape[1])
    frequent = np.flatnonzero(documents >= max(1, min(fewest, counts.shape[0])))
    columns = np.sort(frequent[np.argsort(-documents[frequent], kind="stable")[:most]])
    return columns, (np.log((1 + counts.shape[0]) / (1 + documents[columns])) + 1).astype(np.float32)


def over_characters(length: int, starts: npt.NDArray[Any], stops: npt.NDArray[Any], values: Doubles) -> Doubles:
    """Values shared evenly by the characters from ``starts`` to before ``stops``, summed for every one (length,)."""
    edges = np.zeros(length + 1)
    each = values / (stops - starts)
    np.add.at(edges, starts, each)
    np.add.at(edges, stops, -each)
    return np.cumsum(edges)[:-1]


@dataclass(frozen=True)
class NgramSettings:
    """What a baseline counts, and how hard its fit is pulled to zero."""

    analyzer: Kind
    shortest: int  # length of the n-grams, in words or characters
    longest: int
    pattern: str | None = None  # of a word; case stays
    buckets: int = 2**20
    features: int = 30_000  # buckets in use: those that occur in most training rows
    c: float = 30.0  # inverse strength of the penalty ||W||^2 / (2 C N)
    iterations: int = 300  # at most
    tolerance: float = 3e-5  # converged when no component of the gradient is larger

    def as_text(self) -> str:
        """Words by which files on disk name these settings; they never change."""
        names = "analyzer shortest longest pattern buckets features c iterations tolerance"
        return settings_text(self, "NgramSettings", names)


# Chosen on 60 training and 20 other prompts of outer fold 0's training side, 100 sources: accuracy at K = 1, 5, 20 is
# .287, .497, .67 with words alone, .342, .565, .74 with punctuation, .358, .610, .74 with line ends too (all with
# 20,000 features). 50,000 features (.360, .593, .72) or C = 100 (.355, .610, .74) change little.
WORDS = NgramSettings("word", 1, 3, r"\w+|[^\w\s]|\n+")
# Trigrams: .322, .540, .72; lengths 1 to 4 with 20,000 features .338, .562, .76 for more than three times the work.
CHARACTERS = NgramSettings("char", 3, 3, features=10_000)
SETTINGS = {"ngram-word": WORDS, "ngram-char": CHARACTERS}


def vectorizer(settings: NgramSettings) -> HashingVectorizer:
    """Takes a text apart into n-grams and hashes them."""
    return HashingVectorizer(
        analyzer=settings.analyzer, ngram_range=(settings.shortest, settings.longest), token_pattern=settings.pattern,
        n_features=settings.buckets, alternate_sign=False, norm=None, lowercase=False, dtype=np.float32,
    )  # fmt: skip


def count(texts: Iterable[str], settings: NgramSettings) -> Counts:
    """Hashed n-gram counts (n, buckets), float32, as scikit-learn has them."""
    return vectorizer(settings).transform(texts)


def counted(method: str) -> dict[str, Any]:
    """What a baseline counts, for a file that has to know it later."""
    return {name: getattr(SETTINGS[method], name) for name in ("analyzer", "shortest", "longest", "pattern", "buckets")}


def occurrences(text: str, settings: NgramSettings) -> tuple[Ints, Ints, Ints]:
    """Bucket, start and stop of every n-gram that :func:`count` counts in a text, blanks between words included."""
    grams = vectorizer(settings).build_analyzer()(text)
    if not grams:
        nothing = np.empty(0, dtype=np.intp)
        return nothing, nothing, nothing
    pattern = settings.pattern or "" if settings.analyzer == "word" else _CHARACTER
    units = [found.span() for found in re.finditer(pattern, text)]
    lengths = range(settings.shortest, settings.longest + 1)
    spans = [(units[at][0], units[at + length - 1][1]) for length in lengths for at in range(len(units) - length + 1)]
    hasher = FeatureHasher(settings.buckets, input_type="string", alternate_sign=False, dtype=np.float32)
    buckets = hasher.transform([gram] for gram in grams).indices.astype(np.intp)
    starts, stops = np.array(spans, dtype=np.intp).T
    assert len(buckets) == len(starts), "an n-gram without a place"
    return buckets, starts, stops


@dataclass(frozen=True)
class SoftmaxSettings:
    """How much a member of a stack learns from n-grams, and how fast."""

    features: int = 60_000  # buckets in use: those that occur in most training rows
    epochs: int = 4
    batch: int = 512
    rate: float = 0.05  # first learning rate; it falls to zero along a cosine
    decay: float = 3e-6  # pull of every weight towards zero, added to its gradient

    def as_text(self) -> str:
        """Words by which files on disk name these settings; they never change."""
        return settings_text(self, "SoftmaxSettings", "features epochs batch rate decay")


@dataclass(frozen=True)
class GramKind:
    """N-grams of one kind, as members of a stack read them."""

    kind: Kind
    lengths: tuple[int, ...]  # units in an n-gram
    bits: int  # of a bucket's number
    settings: SoftmaxSettings

    def as_text(self) -> str:
        """Words by which files on disk name this kind; they never change."""
        own = f"kind={self.kind!r}, lengths={self.lengths!r}, bits={self.bits!r}"
        return f"GramKind({own}, settings={self.settings.as_text()})"

    def counts(self, texts: Sequence[str]) -> Counts:
        """Counts (n, buckets) of texts without lone surrogates."""
        return count_grams(texts, self.kind, self.lengths, self.bits)


GRAMS: Mapping[str, GramKind] = {
    "word": GramKind("word", (1, 2, 3), 22, SoftmaxSettings()),
    "char": GramKind("char", (2, 3, 4), 21, SoftmaxSettings()),
}
KIND, LENGTHS, BITS = GRAMS["word"].kind, GRAMS["word"].lengths, GRAMS["word"].bits
"""What live attribution counts."""


def counts_of(texts: Sequence[str]) -> Counts:
    """Counts (n, buckets) of the word n-grams that live attribution reads."""
    return GRAMS["word"].counts(texts)


def count_grams(texts: Sequence[str], kind: Kind, lengths: Sequence[int], bits: int) -> Counts:
    """Counts (n, 2 ** bits), float32, of hashed n-grams of so many units; case stays, and columns of a row ascend."""
    parts = []
    for low in range(0, len(texts), CHUNK):
        units, offsets = (_words if kind == "word" else _characters)(texts[low : low + CHUNK])
        parts.append(_counted(units, offsets, lengths, bits))
    return sparse.vstack(parts, format="csr") if parts else _counted(*_words([]), lengths, bits)


def gram_spans(text: str, kind: Kind, lengths: Sequence[int], bits: int) -> tuple[Offsets, Offsets, Offsets]:
    """Start, stop and bucket of every n-gram of a text: the occurrences that :func:`count_grams` counts."""
    units, _ = (_words if kind == "word" else _characters)([text])
    if kind == "word":
        edges = np.array([found.span() for found in _UNIT.finditer(text)], dtype=np.int64).reshape(-1, 2)
    else:
        edges = np.arange(len(units))[:, None] + np.array([0, 1])
    buckets = [_hashed(units, length, bits) for length in lengths]
    starts = [edges[: len(hashed), 0] for hashed in buckets]
    stops = [edges[n - 1 : n - 1 + len(hashed), 1] for n, hashed in zip(lengths, buckets, strict=True)]
    return np.concatenate(starts), np.concatenate(stops), np.concatenate(buckets)


def _words(texts: Sequence[str]) -> tuple[Words, Offsets]:
    known: dict[str, int] = {}
    flat: list[int] = []
    offsets = np.zeros(len(texts) + 1, dtype=np.int64)
    for i, text in enumerate(texts):
        for unit in _UNIT.findall(text):
            if unit not in known:
                known[unit] = zlib.crc32(unit.encode("utf-8", "replace"))
            flat.append(known[unit])
        offsets[i + 1] = len(flat)
    return np.array(flat, dtype=np.uint64), offsets


def _characters(texts: Sequence[str]) -> tuple[Words, Offsets]:
    parts = [np.frombuffer(text.encode("utf-32-le", "replace"), dtype="<u4") for text in texts]
    offsets = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
    return np.concatenate(parts).astype(np.uint64), offsets


def _counted(units: Words, offsets: Offsets, lengths: Sequence[int], bits: int) -> Counts:
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    keys = []
    for length in lengths:
        buckets = _hashed(units, length, bits)
        starts = len(buckets)
        inside = owner[:starts] == owner[length - 1 : length - 1 + starts]
        keys.append((owner[:starts][inside] << bits) | buckets[inside])
    found, counts = np.unique(np.concatenate(keys), return_counts=True)
    edges = np.searchsorted(found >> bits, np.arange(len(offsets)))
    columns = (found & ((1 << bits) - 1)).astype(np.int32)
    return sparse.csr_matrix((counts.astype(np.float32), columns, edges), shape=(len(offsets) - 1, 1 << bits))


def _hashed(units: Words, length: int, bits: int) -> Offsets:
    """Bucket of the n-gram that begins at every unit, across the borders of texts too."""
    starts = max(len(units) - length + 1, 0)
    mixed = np.full(starts, length, dtype=np.uint64)
    for place in range(length):
        mixed = (mixed ^ units[place : place + starts]) * _MIX  # wraps around, as a hash may
        mixed ^= mixed >> np.uint64(29)
    return ((mixed * _MIX) >> np.uint64(64 - bits)).astype(np.int64)
