"""Where in a text the n-grams lie that a classifier weighs: its log-odds, spread over characters.

A text's n-grams are those that :func:`backend.methods.ngrams.count` counts, hashed alike. What a bucket adds is shared
evenly by its occurrences, and by the characters that each covers, so that the sum over characters and the constant is
the log-odds.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
from sklearn.feature_extraction import FeatureHasher

from backend.methods.ngram_storage import CodedNgrams
from backend.methods.ngrams import NgramSettings, count, vectorizer

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
_BLANKS = re.compile(r"\s\s+")
"""Runs that n-grams of characters take for one blank (scikit-learn's own rule)."""


def occurrences(text: str, settings: NgramSettings) -> tuple[Ints, Ints, Ints]:
    """Every n-gram of a text: its bucket, and where it begins and ends.

    Parameters
    ----------
    text : str
        Without lone surrogates.
    settings : NgramSettings

    Returns
    -------
    buckets, starts, stops : ndarray of shape (m,)
        An n-gram covers the characters from ``start`` to before ``stop``, blanks between its words included.
    """
    grams = vectorizer(settings).build_analyzer()(text)
    if not grams:
        nothing = np.empty(0, dtype=np.intp)
        return nothing, nothing, nothing
    units = _words(text, settings.pattern) if settings.analyzer == "word" else _characters(text)
    lengths = range(settings.shortest, settings.longest + 1)
    spans = [(units[at][0], units[at + length - 1][1]) for length in lengths for at in range(len(units) - length + 1)]
    hasher = FeatureHasher(settings.buckets, input_type="string", alternate_sign=False, dtype=np.float32)
    buckets = hasher.transform([gram] for gram in grams).indices.astype(np.intp)
    starts, stops = np.array(spans, dtype=np.intp).T
    assert len(buckets) == len(starts), "an n-gram without a place"
    return buckets, starts, stops


def character_odds(text: str, model: CodedNgrams, source: int, rival: int) -> tuple[Doubles, float]:
    """Log-odds of two sources, spread over the characters of a text.

    Parameters
    ----------
    text : str
        Without lone surrogates.
    model : CodedNgrams
    source, rival : int
        Columns of the model.

    Returns
    -------
    values : ndarray of shape (len(text),), float64
        In nats.
    constant : float
        What belongs to no character: the difference of the biases.
    """
    buckets, starts, stops = occurrences(text, model.settings)
    counts = count([text], model.settings)
    times = np.bincount(buckets, minlength=0)
    assert np.array_equal(np.unique(buckets), np.sort(counts.indices)), "n-grams are hashed in two ways"
    assert np.array_equal(times[counts.indices], counts.data), "n-grams are counted in two ways"
    of_bucket, constant = model.odds(counts, source, rival)
    place = np.minimum(np.searchsorted(model.columns, buckets), len(model.columns) - 1)
    weighed = model.columns[place] == buckets
    place, buckets, starts, stops = (part[weighed] for part in (place, buckets, starts, stops))
    each = of_bucket[place] / times[buckets] / (stops - starts)
    steps = np.zeros(len(text) + 1)
    np.add.at(steps, starts, each)
    np.add.at(steps, stops, -each)
    values: Doubles = np.cumsum(steps)[:-1]
    return values, constant


def _words(text: str, pattern: str | None) -> list[tuple[int, int]]:
    return [found.span() for found in re.finditer(pattern or "", text)]


def _characters(text: str) -> list[tuple[int, int]]:
    """Characters, a run of blanks as one."""
    out: list[tuple[int, int]] = []
    at = 0
    for run in _BLANKS.finditer(text):
        out += [(i, i + 1) for i in range(at, run.start())]
        out.append(run.span())
        at = run.end()
    return [*out, *((i, i + 1) for i in range(at, len(text)))]
