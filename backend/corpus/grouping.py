"""Groups of labelled traces that belong together, and prompt folds that never part them.

What belongs together: equal and near-identical prompts (the Jaccard similarity of their word shingles), turns of a
conversation or session, rows with one value of a column that a person names; without such a column also prompts of one
topic. Topics are clusters of weighted words, as many as tell apart best among those that fill the folds.

Broder (1997), On the resemblance and containment of documents, SEQUENCES.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import coo_matrix, csr_matrix
from scipy.sparse.csgraph import connected_components
from sklearn.cluster import KMeans
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import HashingVectorizer, TfidfVectorizer
from sklearn.metrics import silhouette_score
from sklearn.preprocessing import normalize

from backend.protocol import FOLDS, SPLIT_SEED

Ints = npt.NDArray[np.intp]
NEAR = 0.7  # Jaccard similarity from which on two prompts are near-identical
SHINGLE = 3  # words
BANDS, ROWS = 32, 4  # of 128 minima: of pairs at NEAR all but one in 5,000 share a band
PRIME = np.uint64((1 << 31) - 1)
TOPICS = 20  # clusters of prompts at most, unless sources cannot fill the folds with so few
EVEN = 0.5  # share of an even part that every source has in every fold at least, where topics form the folds
SAMPLE = 2_000  # units by which clusterings are compared
DIMENSIONS = 50  # of the words, before they are clustered
MOST_CLUSTERED = 20_000  # units that are clustered at most; with more, only what is certain belongs together
CERTAIN = {"prompts": "equal prompts", "near": "near-identical prompts", "conversation": "conversation id"}


@dataclass(frozen=True)
class Grouping:
    """Groups of traces, and their folds."""

    group: Ints  # (n,) group of every trace, from 0
    unit: Ints  # (n,) the same without topics
    folds: Ints  # (n,)
    kinds: tuple[str, ...]  # why traces are in one group
    validates: bool  # whether every source has traces in every fold; else the folds part groups

    @property
    def count(self) -> int:
        """Number of groups."""
        return int(self.group.max()) + 1

    @property
    def facts(self) -> dict[str, Any]:
        """For an enrolment; JSON."""
        return {"kinds": list(self.kinds), "groups": self.count, "validates": self.validates}


def group_traces(
    labels: Ints, prompts: Sequence[str], conversations: Sequence[str | None] = (), named: Sequence[str | None] = (),
    column: str = "",
) -> Grouping:  # fmt: skip
    """Groups and folds of traces.

    labels : (n,) source of every trace; prompts : length n; conversations, named : length n, or empty.
    column : name of that with the values ``named``; without one, prompts of one topic belong together too.
    Where no grouping lets every source fill the folds, prompts alone do, and nothing is validated.
    """
    distinct, prompt = np.unique(np.array(prompts, dtype=object), return_inverse=True)
    near = near_identical(distinct.tolist())
    pairs = [near, *(_joined(prompt, keys) for keys in (conversations, named))]
    unit = _components(len(distinct), np.concatenate(pairs))
    kinds = [CERTAIN["near"]] if len(near) else []
    kinds += [CERTAIN["conversation"]] if any(conversations) else []
    kinds += [f"column '{column}'"] if column else []
    for choice in () if column else topics(distinct.tolist(), unit):
        folds = even_folds(labels, choice[prompt])
        if smallest_part(labels, folds) >= EVEN * np.bincount(labels).min() / FOLDS:
            return Grouping(choice[prompt], unit[prompt], folds, (*kinds, "topic"), True)
    folds = even_folds(labels, unit[prompt])
    if fills_folds(labels, folds):
        return Grouping(unit[prompt], unit[prompt], folds, tuple(kinds or [CERTAIN["prompts"]]), True)
    for parted in (_components(len(distinct), near), np.arange(len(distinct))):
        folds = even_folds(labels, parted[prompt])
        if fills_folds(labels, folds):
            break
    return Grouping(unit[prompt], unit[prompt], folds, tuple(kinds or [CERTAIN["prompts"]]), False)


def near_identical(prompts: Sequence[str]) -> Ints:
    """Pairs (m, 2) of near-identical prompts, found by the minima of hashed shingles and then counted exactly."""
    counter = HashingVectorizer(
        token_pattern=r"\S+", ngram_range=(SHINGLE, SHINGLE), n_features=1 << 30, alternate_sign=False, norm=None,
        binary=True,
    )  # fmt: skip
    shingles = csr_matrix(counter.transform(f"^ {prompt.encode('utf-8', 'replace').decode()} $" for prompt in prompts))
    sizes, hashed = np.diff(shingles.indptr), shingles.indices.astype(np.uint64)
    some = np.flatnonzero(sizes)
    rng = np.random.default_rng(SPLIT_SEED)
    found = [np.empty((0, 2), dtype=np.intp)]
    for _ in range(BANDS):
        key = np.zeros(len(some), dtype=np.uint64)
        for scale, shift, weight in rng.integers(1, int(PRIME), (ROWS, 3)).astype(np.uint64):
            minima = np.minimum.reduceat((scale * hashed + shift) % PRIME, shingles.indptr[some])
            key = key * (2 * weight + np.uint64(1)) + minima
        order = np.argsort(key, kind="stable")
        same = key[order][1:] == key[order][:-1]
        found.append(np.stack([some[order[:-1][same]], some[order[1:][same]]], axis=1))
    pairs = np.unique(np.concatenate(found), axis=0)
    left, right = pairs.T
    shared = np.asarray(shingles[left].multiply(shingles[right]).sum(1)).ravel()
    near: Ints = pairs[shared >= NEAR * (sizes[left] + sizes[right] - shared)]
    return near


def topics(prompts: Sequence[str], unit: Ints) -> Iterator[Ints]:
    """Topic of every prompt (P,), of whole units: as many as tell apart best, then others, at last finer ones."""
    units = int(unit.max()) + 1
    if units > MOST_CLUSTERED:
        return
    counter = TfidfVectorizer(sublinear_tf=True, token_pattern=r"\w+", max_features=TOPICS * 1_000, dtype=np.float64)
    try:
        words = counter.fit_transform(prompts)
    except ValueError:  # there is no word
        return
    if words.shape[1] > DIMENSIONS < len(prompts):
        words = TruncatedSVD(DIMENSIONS, random_state=SPLIT_SEED).fit_transform(words)
    mean = coo_matrix((np.ones(len(unit)), (unit, np.arange(len(unit)))), shape=(units, len(unit))).tocsr()
    product = mean @ words
    vectors = normalize(product if isinstance(product, np.ndarray) else product.toarray())
    distinct = len(np.unique(vectors.round(6), axis=0))
    least = min(units, distinct)

    def clusters(count: int) -> Ints:
        found: Ints = KMeans(count, n_init=5, random_state=SPLIT_SEED).fit_predict(vectors).astype(np.intp)
        return found

    def separation(found: Ints) -> float:
        return float(silhouette_score(vectors, found, sample_size=min(units, SAMPLE), random_state=SPLIT_SEED))

    coarse = [clusters(count) for count in range(FOLDS, min(TOPICS, least - 1) + 1)]
    for found in sorted(coarse, key=separation, reverse=True):
        yield found[unit]
    count = 2 * TOPICS
    while count < least:
        yield clusters(count)[unit]
        count *= 2


def even_folds(labels: Ints, group: Ints, count: int = FOLDS) -> Ints:
    """Folds (n,), ``count`` of them: shuffled groups, the largest first, each into that with least of its sources."""
    order = np.argsort(group, kind="stable")
    parts = np.split(labels[order], np.flatnonzero(np.diff(group[order])) + 1)
    numbers = np.random.default_rng(SPLIT_SEED).permutation(len(parts))
    share = 1.0 / np.bincount(labels)
    filled = np.zeros((count, len(share)))
    fold_of = np.empty(len(parts), dtype=np.intp)
    for number in sorted(numbers, key=lambda number: -len(parts[number])):
        members, times = np.unique(parts[number], return_counts=True)
        fold_of[number] = (filled[:, members] * share[members]).sum(1).argmin()
        filled[fold_of[number], members] += times
    return fold_of[np.unique(group, return_inverse=True)[1]]


def fills_folds(labels: Ints, folds: Ints) -> bool:
    """Whether every source has traces in every fold."""
    return smallest_part(labels, folds) > 0


def smallest_part(labels: Ints, folds: Ints) -> int:
    """Fewest traces of a source in a fold."""
    present, source = np.unique(labels, return_inverse=True)
    return int(np.bincount(source * FOLDS + folds, minlength=FOLDS * len(present)).min())


def _joined(prompt: Ints, keys: Sequence[str | None]) -> Ints:
    """Pairs (m, 2) of prompts whose traces have one key."""
    first: dict[str, int] = {}
    pairs = [(first.setdefault(key, at), at) for key, at in zip(keys, prompt.tolist(), strict=bool(keys)) if key]
    return np.array(pairs, dtype=np.intp).reshape(-1, 2)


def _components(n: int, pairs: Ints) -> Ints:
    """Component (n,) of every node of a graph, by its edges (m, 2)."""
    left, right = pairs.T
    graph = coo_matrix((np.ones(len(pairs)), (left, right)), shape=(n, n))
    return connected_components(graph, directed=False)[1].astype(np.intp)
