"""Hashed n-grams of words and characters, and classifiers of them (next to the paper's Dynamic Baselines).

Counting learns nothing, so that a text is counted once for all folds: for baselines as scikit-learn does, for members
of stacks by arithmetic on whole arrays. Classifiers are multinomial logistic regressions on TF-IDF weights of
responses, stored in few bits: baselines fitted to convergence, members by ten passes of Adam, as good on other prompts.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS, HashingVectorizer
from torch.nn.functional import embedding_bag

from backend.methods.readout import Arrays, Doubles, Floats, Ints, Labels, Settings

Words = npt.NDArray[np.uint64]
Offsets = npt.NDArray[np.int64]
Kind = Literal["word", "char", "style"]
STYLE: Kind = "style"
Counts = Any  # scipy.sparse.csr_matrix, which has no types that agree with arrays
CHUNK = 2000
_UNIT = re.compile(r"\w+|[^\w\s]|\n+")
_CHARACTER = re.compile(r"\s\s+|.", re.DOTALL)  # a run of blanks is one, as scikit-learn has it
_MIX = np.uint64(0x9E3779B97F4A7C15)
LONG = 7  # letters of a long word


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
class NgramSettings(Settings):
    """What a baseline counts, and how hard its fit is pulled to zero."""

    WORDS: ClassVar = "NgramSettings analyzer shortest longest pattern buckets features c iterations tolerance"
    analyzer: Kind
    shortest: int  # length of the n-grams, in words or characters
    longest: int
    pattern: str | None = None  # of a word; case stays
    buckets: int = 2**20
    features: int = 30_000  # buckets in use: those that occur in most training rows
    c: float = 30.0  # inverse strength of the penalty ||W||^2 / (2 C N)
    iterations: int = 300  # at most
    tolerance: float = 3e-5  # converged when no component of the gradient is larger


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
class SoftmaxSettings(Settings):
    """How much a member of a stack learns from n-grams, and how fast."""

    WORDS: ClassVar = "SoftmaxSettings features epochs batch rate decay"
    features: int = 60_000  # buckets in use: those that occur in most training rows
    epochs: int = 4
    batch: int = 512
    rate: float = 0.05  # first learning rate; it falls to zero along a cosine
    decay: float = 3e-6  # pull of every weight towards zero, added to its gradient


@dataclass(frozen=True)
class GramKind:
    """N-grams of one kind, as members of a stack read them."""

    kind: Kind
    lengths: tuple[int, ...]  # units in an n-gram
    bits: int  # of a bucket's number
    settings: SoftmaxSettings
    halves: bool = False  # both halves of a response are further rows of the fit

    def as_text(self) -> str:
        """Words by which files on disk name this kind; they never change."""
        own = f"kind={self.kind!r}, lengths={self.lengths!r}, bits={self.bits!r}"
        return f"GramKind({own}, settings={self.settings.as_text()}{f', halves={self.halves}' if self.halves else ''})"

    def counts(self, texts: Sequence[str]) -> Counts:
        """Counts (n, buckets) of texts without lone surrogates."""
        return count_grams(texts, self.kind, self.lengths, self.bits)


GRAMS: Mapping[str, GramKind] = {
    "word": GramKind("word", (1, 2, 3), 22, SoftmaxSettings()),
    "char": GramKind("char", (2, 3, 4), 21, SoftmaxSettings()),
    STYLE: GramKind(STYLE, (1, 2, 3, 4, 5), 22, SoftmaxSettings(), halves=True),
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
        units, offsets = _units(texts[low : low + CHUNK], kind)
        parts.append(_counted(units, offsets, lengths, bits))
    return sparse.vstack(parts, format="csr") if parts else _counted(*_words([]), lengths, bits)


def gram_spans(text: str, kind: Kind, lengths: Sequence[int], bits: int) -> tuple[Offsets, Offsets, Offsets]:
    """Start, stop and bucket of every n-gram of a text: the occurrences that :func:`count_grams` counts."""
    units, _ = _units([text], kind)
    if kind == "char":
        edges = np.arange(len(units))[:, None] + np.array([0, 1])
    else:
        edges = np.array([found.span() for found in _UNIT.finditer(text)], dtype=np.int64).reshape(-1, 2)
    buckets = [_hashed(units, length, bits) for length in lengths]
    starts = [edges[: len(hashed), 0] for hashed in buckets]
    stops = [edges[n - 1 : n - 1 + len(hashed), 1] for n, hashed in zip(lengths, buckets, strict=True)]
    return np.concatenate(starts), np.concatenate(stops), np.concatenate(buckets)


def masked(unit: str) -> str:
    """A unit that says little of the subject as it is; of other words their kind: number, name, short or long one."""
    if unit.lower() in ENGLISH_STOP_WORDS or not re.match(r"\w", unit):
        return unit
    return "0" if unit[0].isnumeric() else "A" if unit[0].isupper() else "a" if len(unit) < LONG else "aa"


def halves(text: str) -> tuple[str, str]:
    """A text cut in the middle, between two characters."""
    return text[: len(text) // 2], text[len(text) // 2 :]


def _units(texts: Sequence[str], kind: Kind) -> tuple[Words, Offsets]:
    return _characters(texts) if kind == "char" else _words(texts, masked if kind == "style" else str)


def _words(texts: Sequence[str], read: Callable[[str], str] = str) -> tuple[Words, Offsets]:
    units = [_UNIT.findall(text) for text in texts]
    number = {unit: zlib.crc32(read(unit).encode("utf-8", "replace")) for unit in set(chain(*units))}
    flat = np.array([number[unit] for unit in chain(*units)], dtype=np.uint64)
    return flat, np.cumsum([0, *map(len, units)], dtype=np.int64)


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


FEWEST_ROWS = 3  # a bucket of a member must occur in so many training rows
MOST = 127
STEPS = 8  # steps of a baseline's code within the standard deviation of its weights
_LARGEST = 2**15 - 1


class NgramReadout(Arrays):
    """Logistic regression on weighed counts."""

    columns: Labels  # (F,) buckets in use, ascending
    idf: Floats  # (F,)
    bias: Floats  # (C,)
    weight: Any  # (F, C), float32

    def scores(self, counts: Counts) -> Floats:
        """Unnormalised scores (n, C) of counts (n, buckets)."""
        out: Floats = weigh(counts[:, self.columns], self.idf) @ self.weight + self.bias
        return out

    def log_posterior(self, counts: Counts) -> Floats:
        """Log-posteriors (n, C), float32, of counts (n, buckets)."""
        return log_softmax(self.scores(counts), axis=1)


@dataclass(frozen=True)
class GramReadout(NgramReadout):
    """A fitted classifier."""

    SHAPES: ClassVar = {"columns": "F", "idf": "F", "weight": "FC", "bias": "C"}
    TYPES: ClassVar = {"columns": np.intp}
    columns: Ints
    idf: Floats
    weight: Floats  # (F, C)
    bias: Floats


@dataclass(frozen=True)
class NgramModel(GramReadout):
    """A classifier that was fitted until it converged, or until the limit of its steps."""

    iterations: int


@dataclass(frozen=True)
class CodedGrams(NgramReadout):
    """A member in one byte a weight, as live attribution serves it."""

    SHAPES: ClassVar = {"columns": "F", "idf": "F", "codes": "FC", "steps": "F", "bias": "C"}
    TYPES: ClassVar = {"columns": np.int32, "codes": np.int8}
    columns: npt.NDArray[np.int32]
    idf: Floats
    codes: npt.NDArray[np.int8]  # (F, C)
    steps: Floats  # (F,); the weights of a bucket are codes * steps
    bias: Floats

    @cached_property
    def weight(self) -> Floats:
        """Weights (F, C)."""
        return self.codes * self.steps[:, None]

    def spread(self, text: str, source: int, rival: int) -> tuple[Doubles, float]:
        """Log-odds of two candidates over the characters of a text; see :func:`spread`."""
        return spread(self, text, GRAMS["word"], source, rival)


@dataclass(frozen=True)
class CodedNgrams(NgramReadout):
    """A baseline in few bits: weights in steps of an eighth of their spread, for less than 0.001 nats a response."""

    SHAPES: ClassVar = {"columns": "F", "idf": "F", "codes": "BFC", "step": "", "bias": "C", "method": ""}
    TYPES: ClassVar = {"columns": np.int32, "codes": np.uint8, "method": np.str_}
    columns: npt.NDArray[np.int32]
    idf: Floats
    codes: npt.NDArray[np.uint8]  # (2, F, C) low and high bytes of numbers of steps, in the order 0, -1, 1, -2, ...
    step: Floats  # ()
    bias: Floats
    method: str  # whose counts it reads, of SETTINGS

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        return super().to_arrays() | {"method": np.array(self.method)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> CodedNgrams:
        parts: dict[str, Any] = {**vars(super().from_arrays(arrays)), "method": str(arrays["method"])}
        return cls(**parts)

    @property
    def settings(self) -> NgramSettings:
        return SETTINGS[self.method]

    @cached_property
    def weight(self) -> Floats:
        """Weights (F, C)."""
        low, high = self.codes.astype(np.int32)
        number = low + 256 * high
        steps = np.where(number % 2, -(number + 1) // 2, number // 2)
        out: Floats = (steps * self.step).astype(np.float32)
        return out

    def odds(self, counts: Counts, source: int, rival: int) -> tuple[Doubles, float]:
        """Log-odds of two sources by counts (1, buckets): values (F,), zero for what the text lacks, and constant."""
        row, values = weigh(counts[:, self.columns], self.idf), np.zeros(len(self.columns))
        some = row.indices
        values[some] = row.data * (self.weight[some, source].astype(np.float64) - self.weight[some, rival])
        return values, float(self.bias[source]) - float(self.bias[rival])


def spread(model: NgramReadout, text: str, grams: GramKind, source: int, rival: int) -> tuple[Doubles, float]:
    """Log-odds of two candidates over the characters of a text without lone surrogates, by a member of a stack.

    Values (len(text),) in nats, where the characters of an n-gram share evenly, and a constant; together they are the
    log-odds. An n-gram that occurs more than once counts less each time, and its occurrences share alike.
    """
    starts, stops, buckets = gram_spans(text, grams.kind, grams.lengths, grams.bits)
    place = np.minimum(np.searchsorted(model.columns, buckets), len(model.columns) - 1)
    known = model.columns[place] == buckets
    starts, stops, place = starts[known], stops[known], place[known]
    found, at, times = np.unique(place, return_inverse=True, return_counts=True)
    share = (1 + np.log(times)) * model.idf[found].astype(np.float64)
    share /= np.sqrt((share**2).sum()) or 1.0
    odds = model.weight[found, source].astype(np.float64) - model.weight[found, rival]
    values = over_characters(len(text), starts, stops, (share * odds / times)[at])
    return values, float(model.bias[source]) - float(model.bias[rival])


def character_odds(text: str, model: CodedNgrams, source: int, rival: int) -> tuple[Doubles, float]:
    """Log-odds of two sources over the characters of a text, by a baseline; see :func:`spread`."""
    buckets, starts, stops = occurrences(text, model.settings)
    counts = count([text], model.settings)
    times = np.bincount(buckets, minlength=0)
    assert np.array_equal(np.unique(buckets), np.sort(counts.indices)), "n-grams are hashed in two ways"
    assert np.array_equal(times[counts.indices], counts.data), "n-grams are counted in two ways"
    of_bucket, constant = model.odds(counts, source, rival)
    place = np.minimum(np.searchsorted(model.columns, buckets), len(model.columns) - 1)
    in_use = model.columns[place] == buckets
    place, buckets, starts, stops = (part[in_use] for part in (place, buckets, starts, stops))
    return over_characters(len(text), starts, stops, of_bucket[place] / times[buckets]), constant


def coded(readout: GramReadout) -> CodedGrams:
    """A fitted member in one byte a weight; a number that all sources share in a bucket is lost."""
    raw = readout.weight - readout.weight.mean(1, keepdims=True)
    steps = np.abs(raw).max(1) / np.float32(MOST)
    steps[steps == 0] = 1
    codes = np.rint(raw / steps[:, None]).astype(np.int8)
    return CodedGrams(readout.columns.astype(np.int32), readout.idf, codes, steps.astype(np.float32), readout.bias)


def code_ngrams(model: NgramModel, method: str) -> CodedNgrams:
    """A fitted baseline with weights rounded to steps."""
    step = np.float32(max(float(model.weight.std()), 1e-6) / STEPS)
    steps = np.clip(np.round(model.weight / step), -_LARGEST, _LARGEST).astype(np.int32)
    number = np.where(steps < 0, -2 * steps - 1, 2 * steps)
    codes = np.stack([number % 256, number // 256]).astype(np.uint8)
    return CodedNgrams(model.columns.astype(np.int32), model.idf, codes, np.asarray(step), model.bias, method)


def ngram_file(fold: int) -> str:
    """Name of the file of an outer fold's baseline."""
    return f"ngrams.{fold}.npz"


def keep_ngrams(path: Path, model: CodedNgrams) -> None:
    """Write a baseline in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch, arrays = path.with_suffix(".partial.npz"), dict[str, Any](model.to_arrays())
    np.savez_compressed(scratch, **arrays)
    scratch.replace(path)


def read_ngrams(path: Path) -> CodedNgrams:
    """Read a baseline that :func:`keep_ngrams` wrote."""
    with np.load(path, allow_pickle=False) as file:
        return CodedNgrams.from_arrays({name: file[name] for name in file.files})


def fit_ngrams(counts: Counts, labels: Labels, classes: int, settings: NgramSettings) -> NgramModel:
    """Choose columns and weights on training rows (n, buckets) of labels (n,), and fit until it has converged."""
    # An n-gram of a single training row says nothing about other rows.
    columns, idf = choose_columns(counts, settings.features, 2)
    fitted = fit_softmax(
        weigh(counts[:, columns], idf), labels, classes,
        c=settings.c, iterations=settings.iterations, tolerance=settings.tolerance,
    )  # fmt: skip
    return NgramModel(columns, idf, *fitted)


def fit_softmax(
    rows: Counts, labels: Labels, classes: int, *, c: float, iterations: int = 300, tolerance: float = 3e-5
) -> tuple[Floats, Floats, int]:
    """Weights (F, C), bias (C,) and steps of least cross-entropy plus ``||W||^2 / (2 C N)``, by L-BFGS."""
    n, width = rows.shape
    rows = rows.astype(np.float32).tocsr()
    forth, back = multiplier(rows), multiplier(rows.T.tocsr())
    order, truth = torch.arange(n), torch.from_numpy(np.asarray(labels, dtype=np.int64))
    pull = 1.0 / (c * n)

    def objective(flat: Doubles) -> tuple[float, Doubles]:
        # The products, which take most of the time, are in float32; the minimiser itself works in float64.
        single = torch.from_numpy(flat.astype(np.float32)).view(width + 1, classes)
        posterior = torch.log_softmax(forth(single[:width]).add_(single[width]), 1)
        loss = -float(posterior[order, truth].double().mean())
        error = posterior.exp_()
        error[order, truth] -= 1
        error /= n
        slope = np.concatenate([back(error).numpy().ravel(), error.sum(0).numpy()]).astype(np.float64)
        weight = flat[: width * classes]
        slope[: width * classes] += pull * weight
        return loss + 0.5 * pull * float(np.vdot(weight, weight)), slope

    found = minimize(
        objective, np.zeros((width + 1) * classes), jac=True, method="L-BFGS-B",
        options={"maxiter": iterations, "maxcor": 10, "gtol": tolerance, "ftol": 1e-7, "maxls": 30},
    )  # fmt: skip
    best = found.x.reshape(width + 1, classes).astype(np.float32)
    return best[:width].copy(), best[width].copy(), int(found.nit)


def multiplier(rows: Counts) -> Callable[[torch.Tensor], torch.Tensor]:
    """Multiplies sparse rows by a dense matrix, as weighted bags of its rows (benchmarks/fit_ngrams.py)."""
    edges, columns = (torch.from_numpy(part.astype(np.int32)) for part in (rows.indptr, rows.indices))
    values = torch.from_numpy(rows.data)
    return lambda dense: embedding_bag(
        columns, dense, edges, mode="sum", per_sample_weights=values, include_last_offset=True
    )


def fit_grams(counts: Counts, labels: Labels, classes: int, settings: SoftmaxSettings, seed: int) -> GramReadout:
    """Choose buckets and weights on training rows (n, buckets) of labels (n,), and fit a member of a stack."""
    columns, idf = choose_columns(counts, settings.features, FEWEST_ROWS)
    weight, bias = _descend(weigh(counts[:, columns], idf), np.asarray(labels), classes, settings, seed)
    return GramReadout(columns, idf, weight, bias)


def _descend(rows: Counts, labels: Labels, classes: int, settings: SoftmaxSettings, seed: int) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    n, width = rows.shape
    weight, bias = np.zeros((width, classes), dtype=np.float32), np.zeros(classes, dtype=np.float32)
    first, second = np.zeros_like(weight), np.zeros_like(weight)
    batches = max(1, round(n / settings.batch))
    step, steps = 0, settings.epochs * batches
    for _ in range(settings.epochs):
        for some in np.array_split(rng.permutation(n), batches):
            part = rows[some]
            error = np.exp(log_softmax(part @ weight + bias, axis=1))
            error[np.arange(len(some)), labels[some]] -= 1
            error /= np.float32(len(some))
            gradient = part.T @ error
            gradient += np.float32(settings.decay) * weight
            rate = settings.rate * 0.5 * (1 + np.cos(np.pi * step / steps))
            step += 1
            first += np.float32(0.1) * (gradient - first)
            second *= np.float32(0.99)
            second += np.float32(0.01) * gradient * gradient
            unbiased = np.sqrt(second / np.float32(1 - 0.99**step))
            unbiased += np.float32(1e-7)
            weight -= np.float32(rate / (1 - 0.9**step)) * first / unbiased
            bias -= np.float32(0.3 * rate) * error.sum(0)
    return weight, bias
