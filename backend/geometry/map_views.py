"""What a reader sees of a benchmark: one row of features a record, from fingerprints on disk or from the text itself.

READER's rows are DC and first-AC blocks of one block of the proxy. LLM-DNA's are embeddings of a sentence encoder: the
mean state of its last block over the tokens of the response, scaled to length one. The n-gram reader needs no
fingerprints.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
import numpy.typing as npt

from backend.corpus.release import Benchmark, Release
from backend.corpus.roster_rows import Slice, slice_of
from backend.errors import AtlasError
from backend.geometry.layers import MODAL, block_of
from backend.geometry.text import CHARACTERS, WORDS, TextSettings, TextSpace
from backend.methods.registry import DNA, title_of
from backend.protocol import READER_PAPER
from backend.proxies.registry import DEFAULT_PROXY, proxy_key, registered
from backend.traces import View

TEXT_METHODS: dict[str, TextSettings] = {"ngram-word": WORDS, "ngram-char": CHARACTERS}
METHODS = (READER_PAPER, DNA, *TEXT_METHODS)
ENCODER = "minilm-l6"
TEXT_BENCHMARK: Benchmark = "agent500"
"""The n-gram axes are fitted to this benchmark, whatever is seen in them, so that two domains can be compared."""


@dataclass(frozen=True)
class Chart:
    """One map to make.

    Attributes
    ----------
    method : str
    proxy : str or None
        None for a method that reads text.
    view : {'ur', 'r'} or None
    roster : str
    benchmark : str
        Becomes the domain.
    layer : int
        0 for a method without blocks.
    layer_from : str
        Where the block comes from: 'asked', the reader whose modal block it is, 'last' or 'none'.
    rows : Slice
        Sources and prompts, and the fingerprints to read.
    features : callable
        Gives the rows, of shape (S * P, w).
    blocks : int
        Parts of a row that are scaled to length one each.
    proxy_hash : str or None
    """

    method: str
    proxy: str | None
    view: View | None
    roster: str
    benchmark: Benchmark
    layer: int
    layer_from: str
    rows: Slice
    features: Callable[[], npt.NDArray[Any]]
    blocks: int
    proxy_hash: str | None

    @property
    def reader(self) -> str:
        """The reader's id."""
        return "/".join(part for part in (self.method, self.proxy, self.view) if part is not None)

    @property
    def title(self) -> str:
        """The reader's name for people."""
        return " · ".join(part for part in (title_of(self.method), self.proxy, self.view) if part is not None)


class Texts:
    """Responses to the leading prompts, and the axes fitted to them; made when the first n-gram map asks, and once."""

    def __init__(self, release: Release, limit: int | None = None) -> None:
        self.release, self.limit = release, limit
        self._spaces: dict[str, TextSpace] = {}

    def space(self, method: str) -> TextSpace:
        """Axes of a method."""
        if method not in self._spaces:
            self._spaces[method] = TextSpace(self._responses(TEXT_BENCHMARK), TEXT_METHODS[method])
        return self._spaces[method]

    def features(self, method: str, benchmark: Benchmark) -> npt.NDArray[np.float32]:
        """Responses of a benchmark in the axes of a method, row = source * prompts + prompt."""
        space = self.space(method)
        return space.fitted if benchmark == TEXT_BENCHMARK else space.features(self._responses(benchmark))

    def _responses(self, benchmark: Benchmark) -> list[str]:
        held = self.release.records(benchmark)
        width = len(held.prompt_ids)
        return [t.response for row, t in enumerate(held.traces) if self.limit is None or row % width < self.limit]


def chart_of(
    connection: duckdb.DuckDBPyConnection,
    texts: Texts,
    method: str,
    proxy: str | None,
    view: View,
    roster: str,
    benchmark: Benchmark,
    layer: str = MODAL,
    limit: int | None = None,
) -> Chart:
    """Decide what a map is made of and check that it is there.

    Parameters
    ----------
    connection : duckdb.DuckDBPyConnection
    texts : Texts
        Of the release.
    method : str
        One of :data:`METHODS`.
    proxy : str or None
        Name, hub id or folder; by default the method's own.
    view : {'ur', 'r'}
        Without meaning for methods that read text: those see responses.
    roster, benchmark : str
    layer : str
        Block number or 'modal'; an encoder is always read at its last block.
    limit : int, optional
        Leading prompts.

    Raises
    ------
    AtlasError
        If no block was selected, or fingerprints are missing; names the command that makes them.
    """
    release = texts.release
    if limit is not None and limit < 1:
        raise AtlasError(f"--limit {limit} leaves no prompt", "Give a number of prompts from 1 up")
    if method in TEXT_METHODS:
        rows = slice_of(release, benchmark, DEFAULT_PROXY, view, roster, limit)
        seen = functools.partial(_text_rows, texts, method, benchmark, rows)
        return Chart(method, None, None, roster, benchmark, 0, "none", rows, seen, 1, None)
    key = proxy_key(proxy or (ENCODER if method == DNA else DEFAULT_PROXY))
    rows = slice_of(release, benchmark, key, view, roster, limit)
    if method == DNA:
        block, origin = _last_block(key, rows), "last"
    else:
        block, origin = block_of(connection, key, view, roster, layer)
    identity = rows.store.identity()
    if identity is None or block not in rows.layers():
        raise AtlasError(
            f"The fingerprints of {benchmark} at block {block} by {key} in view {view} are not complete for {roster}",
            f"Run: python -m jobs extract --benchmark {benchmark} --roster {roster} --proxy {key} --view {view} "
            f"--layers {block}" + (f" --limit {limit}" if limit else ""),
        )
    rows.check()
    read = functools.partial(_embeddings, rows, block) if method == DNA else functools.partial(rows.load, block)
    blocks = 1 if method == DNA else 2
    return Chart(method, key, view, roster, benchmark, block, origin, rows, read, blocks, identity.proxy_hash)


def _embeddings(rows: Slice, block: int) -> npt.NDArray[np.float32]:
    """The DC half of every fingerprint, which is the mean state over the response, scaled to length one."""
    held = rows.load(block)
    means: npt.NDArray[np.float32] = held[:, : held.shape[1] // 2].astype(np.float32)
    norms = np.linalg.norm(means, axis=1, keepdims=True)
    means /= np.where(norms > 0, norms, 1.0)
    return means


def _text_rows(texts: Texts, method: str, benchmark: Benchmark, rows: Slice) -> npt.NDArray[np.float32]:
    seen = texts.features(method, benchmark)
    return seen[: len(rows.sources) * len(rows.prompt_ids)]


def _last_block(proxy: str, rows: Slice) -> int:
    known = registered().get(proxy)
    held = rows.layers()
    if known is None and not held:
        raise AtlasError(
            f"There are no fingerprints of {rows.store.key.benchmark} by {proxy}",
            f"Run: python -m jobs extract --proxy {proxy} --benchmark {rows.store.key.benchmark} with its last block",
        )
    return known.depth if known else max(held)
