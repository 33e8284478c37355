"""Hashed n-gram counts of words and characters, by arithmetic on whole arrays (beside the paper's Dynamic Baselines).

Every unit (a word, a mark, a run of line ends; or a character) becomes a number, every n-gram a mixture of its numbers,
and a bucket is the leading bits of that. Nothing is learnt, so that a text is counted once for all folds.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy import sparse

Words = npt.NDArray[np.uint64]
Offsets = npt.NDArray[np.int64]
Kind = Literal["word", "char"]
Counts = Any
"""scipy.sparse.csr_matrix, which has no types that agree with arrays."""
CHUNK = 2000
_UNIT = re.compile(r"\w+|[^\w\s]|\n+")
_MIX = np.uint64(0x9E3779B97F4A7C15)


def count_grams(texts: Sequence[str], kind: Kind, lengths: Sequence[int], bits: int) -> Counts:
    """Counts of hashed n-grams.

    Parameters
    ----------
    texts : sequence of str, length n
        Case is kept.
    kind : {'word', 'char'}
    lengths : sequence of int
        Numbers of units in an n-gram, such as (1, 2, 3).
    bits : int
        There are ``2 ** bits`` buckets.

    Returns
    -------
    scipy.sparse.csr_matrix of shape (n, 2 ** bits), float32
        Columns of a row ascend.
    """
    parts = []
    for low in range(0, len(texts), CHUNK):
        units, offsets = (_words if kind == "word" else _characters)(texts[low : low + CHUNK])
        parts.append(_counted(units, offsets, lengths, bits))
    return sparse.vstack(parts, format="csr") if parts else _counted(*_words([]), lengths, bits)


def gram_spans(text: str, kind: Kind, lengths: Sequence[int], bits: int) -> tuple[Offsets, Offsets, Offsets]:
    """Where the n-grams of a text lie, and their buckets: the occurrences that :func:`count_grams` counts.

    Parameters
    ----------
    text : str
    kind : {'word', 'char'}
    lengths : sequence of int
    bits : int

    Returns
    -------
    starts, stops : ndarray of shape (G,)
        In characters of the text.
    buckets : ndarray of shape (G,)
    """
    units, _ = (_words if kind == "word" else _characters)([text])
    if kind == "word":
        edges = np.array([found.span() for found in _UNIT.finditer(text)], dtype=np.int64).reshape(-1, 2)
    else:
        edges = np.arange(len(units))[:, None] + np.array([0, 1])
    starts, stops, buckets = [], [], []
    for length in lengths:
        hashed = _hashed(units, length, bits)
        starts.append(edges[: len(hashed), 0])
        stops.append(edges[length - 1 : length - 1 + len(hashed), 1])
        buckets.append(hashed)
    return np.concatenate(starts), np.concatenate(stops), np.concatenate(buckets)


def _words(texts: Sequence[str]) -> tuple[Words, Offsets]:
    known: dict[str, int] = {}
    flat: list[int] = []
    offsets = np.zeros(len(texts) + 1, dtype=np.int64)
    for i, text in enumerate(texts):
        for unit in _UNIT.findall(text):
            code = known.get(unit)
            if code is None:
                code = known[unit] = zlib.crc32(unit.encode("utf-8", "replace"))
            flat.append(code)
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
