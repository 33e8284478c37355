"""One map: the rows that a reader sees of a benchmark, and everything of one reader and roster.

READER's rows are DC and first-AC blocks of one block of the proxy, modal or named. LLM-DNA's are embeddings of a
sentence encoder: the mean state of its last block over the tokens of the response, scaled to length one. Those of the
text methods, the simple counterpart, are n-grams of the responses.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.sparse import csr_matrix
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

from backend.corpus.release import Benchmark, Release
from backend.corpus.roster_rows import Slice, describe_proxy, slice_of, write_release_sources
from backend.errors import AtlasError
from backend.geometry.neighborhoods import (
    PuritySettings,
    family_purity,
    neighbor_frame,
    neighbor_order,
    prompt_stability,
)
from backend.geometry.projections import ProjectionSettings, cluster_frame, family_regions, project_all, sweep
from backend.geometry.signatures import (
    Float,
    cosine_similarity,
    dendrogram,
    dendrogram_frame,
    signature_frame,
    signatures,
    source_means,
    unit_rows,
)
from backend.methods.registry import DNA, title_of
from backend.protocol import FOLDS, READER_PAPER
from backend.proxies.registry import DEFAULT_PROXY, proxy_key, registered
from backend.store import queries
from backend.store.queries import selected_layers
from backend.store.writers import stage_rows, write_reader
from backend.traces import View


@dataclass(frozen=True)
class TextSettings:
    """How responses become vectors."""

    analyzer: Literal["word", "char_wb"] = "word"  # Words, or characters within words
    shortest: int = 1  # Length of the n-grams
    longest: int = 2
    buckets: int = 2**18  # Hash buckets; no vocabulary has to fit into memory, and any text of any domain has its place
    components: int = 128  # Dimensions after the reduction; fewer where the responses do not span them
    sample: int = 10_000  # Responses that the axes are fitted to, evenly spaced; the weights are fitted to all
    seed: int = 42


WORDS = TextSettings()
CHARACTERS = TextSettings(analyzer="char_wb", shortest=2, longest=4)


class TextSpace:
    """Axes that responses are seen in, without a neural proxy: TF-IDF of n-grams, reduced by truncated SVD.

    Weights and axes (latent semantic analysis) come from at least three responses alone. ``fitted`` (n, components) are
    these in the space, ``explained`` is the share of the sample's variance along the axes.
    """

    def __init__(self, texts: Sequence[str], settings: TextSettings = WORDS) -> None:
        self.settings = settings
        self._hashing = HashingVectorizer(
            analyzer=settings.analyzer, ngram_range=(settings.shortest, settings.longest), n_features=settings.buckets,
            alternate_sign=False, norm=None, dtype=np.float32,
            # Case, punctuation and line breaks are habits of a source.
            lowercase=False, token_pattern=r"\w+|[^\w\s]|\n+" if settings.analyzer == "word" else None,
        )  # fmt: skip
        counts: csr_matrix[Any] = self._hashing.transform(texts)
        if counts.nnz == 0 or counts.shape[0] < 3:
            raise AtlasError("The responses hold no text to compare", "Give at least three responses with words")
        self._weights = TfidfTransformer(sublinear_tf=True).fit(counts)
        weighted = self._weights.transform(counts, copy=False)
        rows = np.unique(np.linspace(0, len(texts) - 1, min(settings.sample, len(texts))).round().astype(np.intp))
        components = min(settings.components, len(rows) - 1)
        self._axes = TruncatedSVD(components, random_state=settings.seed, n_iter=4).fit(weighted[rows])
        self.explained = float(self._axes.explained_variance_ratio_.sum())
        self.fitted = self._project(weighted)

    def features(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Other responses in these axes, (n, components), float32; one without a known n-gram is zero."""
        return self._project(self._weights.transform(self._hashing.transform(texts), copy=False))

    def _project(self, weighted: csr_matrix[Any]) -> npt.NDArray[np.float32]:
        seen: npt.NDArray[np.float32] = self._axes.transform(weighted).astype(np.float32)
        return seen


MODAL = "modal"
TEXT_METHODS: dict[str, TextSettings] = {"ngram-word": WORDS, "ngram-char": CHARACTERS}
METHODS = (READER_PAPER, DNA, *TEXT_METHODS)
ENCODER = "minilm-l6"
TEXT_BENCHMARK: Benchmark = "agent500"
"""The n-gram axes are fitted to this benchmark, whatever is seen in them, so that two domains can be compared."""


def modal_block(connection: duckdb.DuckDBPyConnection, reader: str, roster: str) -> int | None:
    """The block that the evaluation of a reader on a roster chose for everything without folds, if it did."""
    chosen = selected_layers(connection, reader, roster)
    modal = chosen.loc[chosen["outer_fold"].isna(), "layer"]
    return int(modal.iloc[0]) if len(modal) else None


def block_of(connection: duckdb.DuckDBPyConnection, proxy: str, view: View, roster: str, layer: str) -> tuple[int, str]:
    """Block that READER reads at, and where it comes from, as :attr:`Chart.layer_from` has it.

    A view that was never evaluated has the block of view ur. Raises AtlasError if no block was selected, or ``layer``
    is neither 'modal' nor a number.
    """
    if layer != MODAL:
        if not layer.isdecimal() or int(layer) < 1:
            raise AtlasError(f"--layer {layer} is neither 'modal' nor a block number", "Give a number from 1 up")
        return int(layer), "asked"
    for candidate in dict.fromkeys((view, "ur")):
        reader = f"{READER_PAPER}/{proxy}/{candidate}"
        if (modal := modal_block(connection, reader, roster)) is not None:
            return modal, reader
    raise AtlasError(
        f"No block has been selected for {proxy} on {roster}",
        f"Run: python -m jobs evaluate --proxy {proxy} --roster {roster}, or name a block with --layer",
    )


@dataclass(frozen=True)
class Chart:
    """One map to make."""

    method: str
    proxy: str | None  # None for a method that reads text
    view: View | None
    roster: str
    benchmark: Benchmark  # Becomes the domain
    layer: int  # 0 for a method without blocks
    layer_from: str  # Where the block comes from: 'asked', the reader whose modal block it is, 'last' or 'none'
    rows: Slice  # Sources and prompts, and the fingerprints to read
    features: Callable[[], npt.NDArray[Any]]  # Gives the rows, of shape (S * P, w)
    blocks: int  # Parts of a row that are scaled to length one each
    proxy_hash: str | None

    @property
    def reader(self) -> str:
        return "/".join(part for part in (self.method, self.proxy, self.view) if part is not None)

    @property
    def title(self) -> str:
        """The reader's name for people."""
        return " · ".join(part for part in (title_of(self.method), self.proxy, self.view) if part is not None)


class Texts:
    """Responses to the leading prompts, and the axes fitted to them; fitted once, for the first n-gram map."""

    def __init__(self, release: Release, limit: int | None = None) -> None:
        self.release, self.limit = release, limit
        self._spaces: dict[str, TextSpace] = {}

    def features(self, method: str, benchmark: Benchmark) -> npt.NDArray[np.float32]:
        """Responses of a benchmark in the axes of a method, row = source * prompts + prompt."""
        if method not in self._spaces:
            self._spaces[method] = TextSpace(self._responses(TEXT_BENCHMARK), TEXT_METHODS[method])
        space = self._spaces[method]
        return space.fitted if benchmark == TEXT_BENCHMARK else space.features(self._responses(benchmark))

    def _responses(self, benchmark: Benchmark) -> list[str]:
        found = self.release.records(benchmark)
        width = len(found.prompt_ids)
        return [t.response for row, t in enumerate(found.traces) if self.limit is None or row % width < self.limit]


def chart_of(
    connection: duckdb.DuckDBPyConnection, texts: Texts, method: str, proxy: str | None, view: View, roster: str,
    benchmark: Benchmark, layer: str = MODAL, limit: int | None = None,
) -> Chart:  # fmt: skip
    """Choose the contents of a map and check that they are there.

    ``proxy`` is a name, hub id or folder, by default the method's own; ``layer`` a block number or 'modal' (an encoder
    is always read at its last block); the view means nothing to methods that read text. Raises AtlasError if no block
    was selected, or fingerprints are missing, with the command that makes them.
    """
    release = texts.release
    if limit is not None and limit < 1:
        raise AtlasError(f"--limit {limit} leaves no prompt", "Give a number of prompts from 1 up")
    if method in TEXT_METHODS:
        rows = slice_of(release, benchmark, DEFAULT_PROXY, view, roster, limit)
        many = len(rows.sources) * len(rows.prompt_ids)
        return Chart(
            method, None, None, roster, benchmark, 0, "none", rows,
            lambda: texts.features(method, benchmark)[:many], 1, None,
        )  # fmt: skip
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
    """The DC half of every fingerprint, the mean state over the response, scaled to length one."""
    prints = rows.load(block)
    means: npt.NDArray[np.float32] = prints[:, : prints.shape[1] // 2].astype(np.float32)
    norms = np.linalg.norm(means, axis=1, keepdims=True)
    means /= np.where(norms > 0, norms, 1.0)
    return means


def _last_block(proxy: str, rows: Slice) -> int:
    known, stored, benchmark = registered().get(proxy), rows.layers(), rows.store.key.benchmark
    if known is None and not stored:
        raise AtlasError(
            f"There are no fingerprints of {benchmark} by {proxy}",
            f"Run: python -m jobs extract --proxy {proxy} --benchmark {benchmark} with its last block",
        )
    return known.depth if known else max(stored)


def make(
    connection: duckdb.DuckDBPyConnection, release: Release, chart: Chart, *, with_sweep: bool = False, purity_settings:
    PuritySettings | None = None,
) -> Float:  # fmt: skip
    """Make one map and write its rows; its signatures (S, w) serve comparisons between domains."""
    rows = chart.rows
    if queries.sources(connection, chart.roster).empty:
        write_release_sources(connection, release)
    purity_settings, projection_settings = purity_settings or PuritySettings(), ProjectionSettings()
    details: dict[str, object] = {"layer": chart.layer, "layer_from": chart.layer_from, "sources": len(rows.sources)}
    details |= {"prompts": len(rows.prompt_ids), "purity": asdict(purity_settings)}
    details |= {"projections": asdict(projection_settings)}
    seconds: dict[str, float] = {}
    data, seed = release.manifest_hash, projection_settings.seed
    key = {"roster": chart.roster, "domain": chart.benchmark}
    with stage_rows(connection, "map", details, data, chart.proxy_hash, seed, key=key) as build:
        with timed(seconds, "signatures"):
            prompts, parts = len(rows.prompt_ids), [np.arange(len(rows.prompt_ids))]
            if prompts >= FOLDS:
                parts += [np.flatnonzero(rows.prompt_folds == fold) for fold in range(FOLDS)]
            means = source_means(chart.features(), sources=len(rows.sources), prompts=prompts, panels=parts)
            vectors: list[Float] = list(signatures(means) if chart.blocks == 2 else unit_rows(means))
            full, panels = vectors[0], vectors[1:]
            cosine = cosine_similarity(full)
        with timed(seconds, "neighbours"):
            pairs = neighbor_frame(cosine, rows.sources)
            tree = dendrogram_frame(dendrogram(cosine))
            stability = prompt_stability(cosine, [cosine_similarity(p) for p in panels], rows.families)
        with timed(seconds, "purity"):
            purity = family_purity(neighbor_order(cosine), rows.families, settings=purity_settings)
        with timed(seconds, "projections"):
            points, quality = project_all(cosine, rows.sources, projection_settings)
            clusters, flat = cluster_frame(points), points[points["dimensions"] == 2].groupby("method", sort=False)
            places = {method: part[["x", "y"]].to_numpy(dtype=np.float64) for method, part in flat}
            regions = [family_regions(place, rows.families).assign(method=method) for method, place in places.items()]
        if with_sweep:
            with timed(seconds, "sweep"):
                tried = sweep(cosine, rows.families, settings=projection_settings)
                quality = pd.concat([quality, tried], ignore_index=True)
        with timed(seconds, "writing"):
            if chart.proxy is not None:
                describe_proxy(connection, chart.proxy)
            reader = write_reader(connection, method=chart.method, name=chart.title, proxy=chart.proxy, view=chart.view)
            tables = {
                "signatures": signature_frame(full, rows.sources, chart.layer),
                "neighbors": pairs,
                "dendrogram": tree,
                "prompt_stability": stability,
                "family_purity": purity,
                "projections": points,
                "projection_quality": quality,
                "density_regions": pd.concat(regions, ignore_index=True),
                "clusters": clusters,
            }
            for table, frame in tables.items():
                build.replace(table, frame, reader=reader)
        details["seconds"] = {step: round(value, 2) for step, value in seconds.items()}
    _report(chart, purity, stability, quality, seconds)
    return full


@contextlib.contextmanager
def timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    """Note the seconds of a step."""
    started = time.perf_counter()
    yield
    seconds[step] = time.perf_counter() - started


def _report(
    chart: Chart, purity: pd.DataFrame, stability: pd.DataFrame, quality: pd.DataFrame, seconds: dict[str, float]
) -> None:
    size = f"{len(chart.rows.sources)} sources x {len(chart.rows.prompt_ids)} prompts"
    print(f"{chart.reader} on {chart.benchmark}, {chart.roster}: block {chart.layer} ({chart.layer_from}), {size}")
    for row in purity.itertuples():
        print(
            f"  purity@{row.k}: {row.purity:.3f} [{row.low:.3f}, {row.high:.3f}], chance {row.expectation:.3f}, "
            f"p = {row.p_value:.2g} ({row.sources} sources, {row.families} families)"
        )
    if purity.empty:
        print("  purity: no family has five sources here")
    if len(stability):
        value = stability.set_index("metric")["value"]
        low, high, common = value.loc["spearman"].min(), value.loc["spearman"].max(), value.loc["jaccard_10"].mean()
        correlation = f"Spearman {low:.3f} to {high:.3f}, ten nearest {common:.3f} in common"
        print(f"  five prompt subsets against all prompts: {correlation}")
    shown = quality[(quality["metric"] == "trustworthiness_10") & quality["method"].isin(["tsne", "umap", "pca"])]
    print("  trustworthiness: " + ", ".join(f"{r.method} {r.dimensions}-D {r.value:.3f}" for r in shown.itertuples()))
    print("  seconds: " + ", ".join(f"{step} {value:.2f}" for step, value in seconds.items()))
