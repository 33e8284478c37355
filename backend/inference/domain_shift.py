"""Are the traces of a kind that was enrolled, by their prompts and by their responses?

The novelty of a prompt is its distance from the nearest enrolled prompts in weighted character n-grams. K prompts are
of another kind where they are newer than resampled groups of K unseen enrolled prompts, half of them of one topic each.

K responses are of another kind where they lie farther from the centre of the domain's fingerprints than resampled
groups of one enrolled source. That test cannot separate another task, language or source (paper, Stress Tests).

Bates et al. (2023), Testing for outliers with conformal p-values, Annals of Statistics 51.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import py3langid
from scipy.sparse import csr_matrix
from sklearn.feature_extraction.text import HashingVectorizer

from backend.inference import Doubles, Floating, Ints
from backend.inference.calibration import interpolated

Kind = Literal["like", "other topic", "other language", "no prompts", "unchecked", "unlike pool", "unfitted pool"]
BUDGETS = (1, 2, 5, 10, 20, 50, 100)
GRAMS = (2, 5)  # lengths of the character n-grams, inside words
BUCKETS = 2**18
COUNTER = HashingVectorizer(
    analyzer="char_wb", ngram_range=GRAMS, n_features=BUCKETS, alternate_sign=False, norm=None, dtype=np.float64
)
WIDTH = 2048  # coordinates of a stored prompt: a signed fold of the buckets, which does not give text back
STEP = 16  # steps of a stored coordinate within the spread of a unit vector's coordinates
NEAREST = 5
CHARACTERS = 2_000  # beginning of a prompt that is looked at
MOST_PROMPTS = 2_000
FEWEST = 10  # prompts below which there is no reference
DRAWS = 500
SEED = 42
LEVEL = 0.05  # p values up to it say that prompts are of another kind
COMMON = 0.02  # share of the enrolled prompts from which on a language counts as enrolled
PART = "prompts"
STD_FLOOR = 1e-6
DTYPES = {"buckets": "uint32", "weights": "float16", "vectors": "int8", "budgets": "intp", "nulls": "float64"}


@dataclass(frozen=True)
class Traffic:
    """Kind of some traces, by their prompts."""

    # 'unchecked' where the enrolment has no reference of its prompts; with a pool of unlabelled traffic its prompts are
    # the reference, and 'unfitted pool' says that no error rates are known of scores that such a pool balanced
    kind: Kind
    p: float | None = None  # share of groups of enrolled prompts that are at least as new
    prompts: int = 0  # distinct prompts that were looked at


UNCHECKED = Traffic("unchecked")


@dataclass(frozen=True)
class PromptScores:
    """Prompts of traces as a reference sees them."""

    novelty: Doubles  # (n,) NaN without a prompt
    languages: tuple[str, ...]  # length n
    keys: npt.NDArray[np.uint64]  # (n,) equal prompts have equal keys

    def take(self, rows: Ints) -> PromptScores:
        return PromptScores(self.novelty[rows], tuple(self.languages[i] for i in rows), self.keys[rows])

    @classmethod
    def joined(cls, parts: Sequence[PromptScores]) -> PromptScores:
        """Those of one batch after the other."""
        novelty = np.concatenate([np.empty(0), *(part.novelty for part in parts)])
        keys = np.concatenate([np.empty(0, dtype=np.uint64), *(part.keys for part in parts)])
        return cls(novelty, tuple(language for part in parts for language in part.languages), keys)


@dataclass(frozen=True)
class PromptReference:
    """Enrolled prompts without their text, and the novelty of groups of further ones."""

    buckets: npt.NDArray[np.uint32]  # (F,) ascending hashes of the n-grams that occur
    weights: npt.NDArray[np.float16]  # (F,) inverse document frequency of each
    unseen: float  # that of an n-gram that never occurred
    vectors: npt.NDArray[np.int8]  # (P, WIDTH)
    budgets: Ints  # (B,)
    nulls: Doubles  # (B, M) ascending mean novelty of groups of held-out prompts
    languages: tuple[str, ...]  # languages of the enrolled prompts

    def novelty(self, prompts: Sequence[str]) -> Doubles:
        """One minus the mean cosine to the nearest enrolled prompts, (n,); NaN for a prompt without a letter."""
        counts = _count(prompts)
        known = np.minimum(np.searchsorted(self.buckets, counts.indices), len(self.buckets) - 1)
        seen = self.buckets[known] == counts.indices
        weights = np.where(seen, self.weights[known].astype(np.float64), self.unseen)
        return _novelty(_fold(counts, weights), self.vectors.astype(np.float32))

    def score(self, prompts: Sequence[str]) -> PromptScores:
        """Scores of every prompt; equal ones are read once."""
        keys = np.array([hash_of(prompt) for prompt in prompts], dtype=np.uint64)
        first, place = np.unique(keys, return_index=True, return_inverse=True)[1:]
        distinct = [prompts[i] for i in first]
        languages = languages_of(distinct)
        return PromptScores(self.novelty(distinct)[place], tuple(languages[i] for i in place), keys)

    def p_value(self, novelty: float, prompts: int) -> float:
        """Share of groups of so many prompts that are at least as new."""
        return _share_above(novelty, prompts, self.budgets, self.nulls)

    def judge(self, prompts: PromptScores, level: float = LEVEL) -> Traffic:
        """The kind of traces with these prompts; repeated prompts count once."""
        known = ~np.isnan(prompts.novelty)
        if 2 * known.sum() < max(len(known), 1):
            return Traffic("no prompts")
        first = np.unique(prompts.keys[known], return_index=True)[1]
        novelty, languages = prompts.novelty[known][first], [prompts.languages[i] for i in np.flatnonzero(known)[first]]
        n = len(first)
        p = self.p_value(float(novelty.mean()), n)
        if p > level:
            return Traffic("like", p, n)
        usual = Counter(languages).most_common(1)[0][0]
        return Traffic("other topic" if usual in self.languages else "other language", p, n)

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """Arrays for :func:`numpy.savez` without pickling."""
        texts, unseen = np.array(self.languages, dtype=np.str_), np.array(self.unseen)
        return vars(self) | {"unseen": unseen, "nulls": self.nulls.astype(np.float32), "languages": texts}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]]) -> PromptReference:
        """The inverse of :meth:`to_arrays`."""
        if arrays["vectors"].ndim != 2 or arrays["vectors"].shape[1] != WIDTH:
            raise ValueError("the reference of prompts has the wrong shape")
        plain: dict[str, Any] = {name: np.asarray(arrays[name], dtype=kind) for name, kind in DTYPES.items()}
        return cls(unseen=float(arrays["unseen"]), languages=tuple(map(str, arrays["languages"])), **plain)


def fit_prompt_reference(prompts: Sequence[str], folds: npt.NDArray[np.integer]) -> PromptReference | None:
    """Reference of enrolled prompts; None where they are fewer than :data:`FEWEST`.

    prompts : length P, distinct ones; folds : (P,) the novelty of a fold is measured against the others.
    """
    if len(prompts) > MOST_PROMPTS:
        some = np.random.default_rng(SEED).permutation(len(prompts))[:MOST_PROMPTS]
        prompts, folds = [prompts[i] for i in some], folds[some]
    if len(prompts) < FEWEST or len(np.unique(folds)) < 2:
        return None
    counts, novelty = _count(prompts), np.full(len(prompts), np.nan)
    for fold in np.unique(folds):
        inside = folds == fold
        weights = _weights(counts[~inside])
        known = _coded(_fold(counts[~inside], weights[counts[~inside].indices]))
        novelty[inside] = _novelty(_fold(counts[inside], weights[counts[inside].indices]), known.astype(np.float32))
    weights = _weights(counts)
    vectors = _fold(counts, weights[counts.indices])
    usable = np.flatnonzero(~np.isnan(novelty))
    if len(usable) < FEWEST:
        return None
    nulls = np.stack([np.sort(novelty[usable][rows].mean(1)) for rows in _groups(vectors[usable])])
    seen, spoken = np.unique(counts.indices), Counter(languages_of(prompts))
    languages = tuple(sorted(one for one, count in spoken.items() if count >= COMMON * len(prompts)))
    unseen, budgets = float(np.log(1 + len(prompts)) + 1), np.array(BUDGETS, dtype=np.intp)
    weighed = seen.astype(np.uint32), weights[seen].astype(np.float16)
    return PromptReference(*weighed, unseen, _coded(vectors), budgets, nulls, languages)


def reference_of(attachments: Mapping[str, npt.NDArray[Any]], part: str = PART) -> PromptReference | None:
    """The reference among an enrolment's attachments; None where it has none."""
    arrays = {name.partition(".")[2]: array for name, array in attachments.items() if name.startswith(f"{part}.")}
    return PromptReference.from_arrays(arrays) if arrays else None


def languages_of(prompts: Sequence[str]) -> list[str]:
    """Two-letter language of every prompt, '' where there is no letter."""
    return [
        str(py3langid.classify(text)[0]) if any(map(str.isalpha, text)) else ""
        for text in (prompt[:CHARACTERS] for prompt in prompts)
    ]


def hash_of(prompt: str) -> int:
    """First 8 bytes of the sha256 of a prompt without spaces around it, as a number."""
    return int.from_bytes(hashlib.sha256(prompt.strip().encode("utf-8", "replace")).digest()[:8], "big")


def _count(prompts: Sequence[str]) -> csr_matrix:
    """Damped counts (n, BUCKETS) of the n-grams of every prompt."""
    texts = [prompt[:CHARACTERS].encode("utf-8", "replace").decode() for prompt in prompts]
    counts = csr_matrix(COUNTER.transform([text if any(map(str.isalnum, text)) else "" for text in texts]))
    counts.data = 1 + np.log(counts.data)
    return counts


def _weights(counts: csr_matrix) -> Doubles:
    """Smoothed inverse document frequency of every bucket."""
    frequency = np.bincount(counts.indices, minlength=BUCKETS)
    return np.log((1 + counts.shape[0]) / (1 + frequency)) + 1


def _fold(counts: csr_matrix, weights: Doubles) -> npt.NDArray[np.float32]:
    """Unit vectors (n, WIDTH) of weighted counts, every bucket with a sign of its own; zero for an empty prompt."""
    buckets = counts.indices.astype(np.int64)
    signs = 1 - 2 * ((buckets // WIDTH * 2_654_435_761 >> 7) & 1)
    shape = (counts.shape[0], WIDTH)
    vectors = csr_matrix((counts.data * weights * signs, buckets % WIDTH, counts.indptr), shape=shape).toarray()
    length = np.linalg.norm(vectors, axis=1, keepdims=True)
    return (vectors / np.where(length > 0, length, 1)).astype(np.float32)


def _coded(vectors: npt.NDArray[np.float32]) -> npt.NDArray[np.int8]:
    out: npt.NDArray[np.int8] = np.clip(np.rint(vectors * np.sqrt(WIDTH) * STEP), -127, 127).astype(np.int8)
    return out


def _novelty(vectors: npt.NDArray[np.float32], known: npt.NDArray[np.float32]) -> Doubles:
    """Novelty (n,) of unit vectors (n, WIDTH) against stored ones (P, WIDTH)."""
    cosines = vectors @ (known / (np.sqrt(WIDTH) * STEP)).T
    few = min(NEAREST, len(known))
    nearest = np.partition(cosines, -few, axis=1)[:, -few:].astype(np.float64)
    return np.where(vectors.any(axis=1), 1 - nearest.mean(1), np.nan)


def _groups(vectors: npt.NDArray[np.float32]) -> list[Ints]:
    """Rows of groups (2 DRAWS, K) a budget: random ones, and prompts with their nearest neighbours."""
    rng, n = np.random.default_rng(SEED), len(vectors)
    order = np.argsort(-(vectors @ vectors.T), axis=1, kind="stable")
    out = []
    for budget in BUDGETS:
        if budget > n:
            out.append(rng.integers(0, n, size=(2 * DRAWS, budget)))
            continue
        mixed = rng.random((DRAWS, n)).argpartition(budget - 1, axis=1)[:, :budget]
        out.append(np.concatenate([mixed, order[rng.integers(0, n, size=DRAWS), :budget]]))
    return out


@dataclass(frozen=True)
class DomainReference:
    """Centre and spread of a domain, and how far groups of its own lie from the centre."""

    mean: Doubles  # (D,) over all traces
    scale: Doubles  # (D,)
    budgets: Ints  # (B,)
    nulls: Doubles  # (B, M) ascending distances of resampled groups of one source

    def distance(self, mean: Floating) -> float:
        """Root mean square of the standardised deviation of a mean fingerprint (D,)."""
        return float(np.sqrt((((mean - self.mean) / self.scale) ** 2).mean()))

    def p_value(self, mean: Floating, budget: int) -> float:
        """Share of groups whose mean is at least as far."""
        return _share_above(self.distance(mean), budget, self.budgets, self.nulls)

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """Arrays for :func:`numpy.savez` without pickling."""
        return dict(vars(self))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[np.generic]]) -> DomainReference:
        """The inverse of :meth:`to_arrays`."""
        mean, scale, nulls = (np.asarray(arrays[name], dtype=np.float64) for name in ("mean", "scale", "nulls"))
        return cls(mean, scale, np.asarray(arrays["budgets"], dtype=np.intp), nulls)


def _share_above(value: float, budget: int, budgets: Ints, nulls: Doubles) -> float:
    """Share of nulls (B, M) at least as large, with the +1 correction; quantiles are interpolated in log K."""
    null = interpolated(nulls, budget, budgets)
    return float((1 + (null >= value).sum()) / (1 + len(null)))


def fit_domain(fingerprints: Floating, labels: Ints, budgets: Sequence[int], draws: int) -> DomainReference:
    """Fit a domain to fingerprints (n, D), labels (n,), by resampled groups of one source."""
    mean = fingerprints.mean(0, dtype=np.float64)
    scale = np.maximum(fingerprints.std(0, dtype=np.float64), STD_FLOOR)
    rng = np.random.default_rng(SEED)
    present, first, counts = np.unique(np.sort(labels), return_index=True, return_counts=True)
    order = np.argsort(labels, kind="stable")
    domain = DomainReference(mean, scale, np.array(budgets), np.empty((len(budgets), draws)))
    for place, budget in enumerate(budgets):
        source = rng.integers(0, len(present), size=draws)
        drawn = order[first[source][:, None] + (rng.random((draws, budget)) * counts[source][:, None]).astype(np.intp)]
        domain.nulls[place] = np.sort([domain.distance(fingerprints[rows].mean(0, dtype=np.float64)) for rows in drawn])
    return domain
