"""Maps of a reader and roster, and comparisons of readers and domains by stored maps.

READER's rows are DC and first-AC blocks of one block of the proxy, modal or named. LLM-DNA's are embeddings of a
sentence encoder, scaled to length one. Those of the text methods are n-grams of the responses.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
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
from backend.geometry import neighborhoods, projections, signatures
from backend.geometry.neighborhoods import PuritySettings
from backend.geometry.projections import ProjectionSettings, cluster_frame
from backend.geometry.signatures import Float, cosine_similarity
from backend.methods.registry import DNA, title_of
from backend.protocol import FOLDS, READER_PAPER
from backend.proxies.registry import DEFAULT_PROXY, proxy_key, registered
from backend.store import queries
from backend.store.queries import selected_layers
from backend.store.writers import StageRows, replace_rows, stage_rows, write_reader
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
    """Axes of responses without a neural proxy: TF-IDF of n-grams, reduced by truncated SVD.

    ``fitted`` (n, components) are the at least three responses that weights and axes come from, in the space;
    ``explained`` is the share of the sample's variance along the axes.
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
    """Block that READER reads at, and where it comes from: :attr:`Chart.layer_from`.

    A view without evaluation has the block of view ur. AtlasError without one, or for a ``layer`` that is no number.
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

    proxy : name, hub id or folder, by default the method's own; layer : block number or 'modal', for an encoder always
    the last. AtlasError if no block was selected, or fingerprints are missing, with the command that makes them.
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
            means = signatures.source_means(chart.features(), sources=len(rows.sources), prompts=prompts, panels=parts)
            vectors = signatures.signatures(means) if chart.blocks == 2 else signatures.unit_rows(means)
            full: Float = vectors[0]
            cosine = cosine_similarity(full)
        with timed(seconds, "neighbours"):
            pairs = neighborhoods.neighbor_frame(cosine, rows.sources)
            tree = signatures.dendrogram_frame(signatures.dendrogram(cosine))
            panel_cosines = [cosine_similarity(panel) for panel in vectors[1:]]
            stability = neighborhoods.prompt_stability(cosine, panel_cosines, rows.families)
        with timed(seconds, "purity"):
            order = neighborhoods.neighbor_order(cosine)
            purity = neighborhoods.family_purity(order, rows.families, settings=purity_settings)
        with timed(seconds, "projections"):
            points, quality = projections.project_all(cosine, rows.sources, projection_settings)
            clusters, flat = cluster_frame(points), points[points["dimensions"] == 2].groupby("method", sort=False)
            places = {method: part[["x", "y"]].to_numpy(dtype=np.float64) for method, part in flat}
            regions = [projections.family_regions(at, rows.families).assign(method=m) for m, at in places.items()]
        if with_sweep:
            with timed(seconds, "sweep"):
                tried = projections.sweep(cosine, rows.families, settings=projection_settings)
                quality = pd.concat([quality, tried], ignore_index=True)
        with timed(seconds, "writing"):
            if chart.proxy is not None:
                describe_proxy(connection, chart.proxy)
            reader = write_reader(connection, method=chart.method, name=chart.title, proxy=chart.proxy, view=chart.view)
            tables = {
                "signatures": signatures.signature_frame(full, rows.sources, chart.layer),
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


PUBLISHED_RANKS = Path("results") / "geometry" / "agent500" / "cross_provider_ranks.csv"
PUBLISHED_FOR = ("100-way", "agent500")  # Roster and domain that the paper ranked its candidates on
PURITY_COLUMNS = ["reader", "k", "purity", "expectation", "p_value", "low", "high", "sources", "families", "build_id"]
RANK_COLUMNS = ["reader", "role", "left", "right", "left_to_right", "right_to_left", "mutual_rank", "cosine"]
ROLES = ("reader-r", "reader-ur")
"""Sets of readers that the rule is applied to, one proxy each; the paper's view comes first."""
NAMED = 50  # Passing pairs of different families that a build's details name
Pair = tuple[str, str]
JOINT_METHODS: tuple[projections.Method, ...] = ("tsne", "umap")


def compare(
    connection: duckdb.DuckDBPyConnection, release: Release, roster: str, domain: Benchmark, pairs: Sequence[Pair] = ()
) -> None:
    """Compare all measured readers of a roster and domain, with published ranks, and write the results.

    pairs : in addition to the paper's. AtlasError if one names a source that is not in the roster, or there is no map.
    """
    members = queries.sources(connection, roster)
    names, families = members["source"].tolist(), members["family"].tolist()
    for pair in pairs:
        if unknown := [source for source in pair if source not in names]:
            raise AtlasError(f"{roster} has no source '{unknown[0]}'", "Name sources by their label in the roster")
        if pair[0] == pair[1]:
            raise AtlasError(f"'{pair[0]}' cannot be compared with itself", "Name two different sources")
    cosines = stored_cosines(connection, roster, domain, names)
    if not cosines:
        raise AtlasError(f"There is no map of {domain} on {roster}", f"Run: python -m jobs map --roster {roster}")
    requested = [pair for pair in neighborhoods.PAPER_PAIRS if set(pair) <= set(names)]
    requested += [pair for pair in pairs if pair not in requested and pair[::-1] not in requested]
    details: dict[str, object] = {"roster": roster, "domain": domain, "readers": sorted(cosines)}
    print(f"{len(cosines)} measured readers on {domain}, {roster}")
    key = {"roster": roster, "domain": domain}
    with stage_rows(connection, "compare", details, release.manifest_hash, key=key) as build:
        agreement = neighborhoods.reader_agreement(cosines)
        for (reader, other), part in agreement.groupby(["reader", "other"]):
            build.replace("reader_agreement", part, reader=reader, other=other)
            value = part.set_index("metric")["value"]
            spearman, common = value.get("spearman", np.nan), value["jaccard_10"]
            print(f"  {reader} and {other}: Spearman {spearman:.3f}, ten nearest {common:.3f} in common")
        purity = _correct(connection, roster, domain, sorted(cosines))
        details["hypotheses"] = int(purity["p_holm"].notna().sum())
        # Readers vote together: READER's proxies in a view, or all of another method.
        roles = {
            str(row["reader"]): f"reader-{row['view']}" if row["method"] == READER_PAPER else str(row["method"])
            for row in queries.readers(connection).to_dict("records")
        }
        ranks = candidate_ranks(cosines, roles, names, requested)
        if (roster, domain) == PUBLISHED_FOR:
            ranks = pd.concat([ranks, published_ranks(release.root, requested)], ignore_index=True)
        rules = candidate_rules(ranks)
        _report_rules(purity, rules)
        details["candidates"] = {"ranks": ranks.to_dict("records"), "rules": rules.to_dict("records")}
        passing: dict[str, object] = {}
        for role in ROLES:
            voters = {reader: cosine for reader, cosine in cosines.items() if roles[reader] == role}
            if len(voters) > 1:  # one reader agrees with itself
                found = neighborhoods.passing_pairs(voters, names, families)
                passing[role] = {"count": len(found), "first": found.head(NAMED).to_dict("records")}
                print(f"  {len(found)} pairs of different families pass over the {len(voters)} of {role}")
        details["passing_pairs"] = passing
        details["clustered"] = _cluster(build, roster, domain)


def _cluster(build: StageRows, roster: str, domain: str) -> list[str]:
    """Write the clusters of maps that have none, from other jobs, and name their readers."""
    points = build.connection.execute(
        """
        SELECT p.* EXCLUDE (roster, domain, build_id) FROM projections p
        ANTI JOIN clusters USING (reader, roster, domain, method, dimensions)
        JOIN roster_members m USING (roster, source)
        WHERE roster = ? AND domain = ? ORDER BY reader, method, dimensions, m.position
        """,
        [roster, domain],
    ).df()
    for (reader, method, dimensions), part in points.groupby(["reader", "method", "dimensions"]):
        clusters = cluster_frame(part.drop(columns="reader"))
        build.replace("clusters", clusters, reader=reader, method=method, dimensions=int(str(dimensions)))
    return sorted(set(points["reader"]))


def stored_cosines(
    connection: duckdb.DuckDBPyConnection, roster: str, domain: str, names: Sequence[str]
) -> dict[str, Float]:
    """Cosine matrices of all measured readers with a complete map, in roster order."""
    known = queries.readers(connection)
    cosines = {}
    order = pd.Index(names)
    for reader in known.loc[known["origin"] == "measured", "reader"]:
        near = queries.neighbors(connection, reader, roster, domain)
        if len(near) == len(names) * (len(names) - 1) > 0:
            wide = near.pivot(index="source", columns="neighbor", values="cosine").reindex(index=order, columns=order)
            cosine = wide.to_numpy(dtype=np.float64, copy=True)
            np.fill_diagonal(cosine, 1.0)
            cosines[str(reader)] = cosine
    return cosines


def candidate_ranks(
    cosines: Mapping[str, Float], roles: Mapping[str, str], names: Sequence[str], pairs: Sequence[Pair]
) -> pd.DataFrame:
    """Ranks of pairs under measured readers (columns reader, role and those of ``pair_ranks``)."""
    ranks = {reader: neighborhoods.pair_ranks(cosine, names, pairs) for reader, cosine in cosines.items()}
    frames = [part.assign(reader=reader, role=roles[reader]) for reader, part in ranks.items()]
    return pd.concat(frames, ignore_index=True)[RANK_COLUMNS]


def published_ranks(root: Path, pairs: Sequence[Pair]) -> pd.DataFrame:
    """Ranks of the paper's pairs under its eight proxies in view r, as 'published-main' or 'published-full', if any."""
    path = root / PUBLISHED_RANKS
    if not path.is_file():
        return pd.DataFrame(columns=RANK_COLUMNS)
    table = pd.read_csv(path)
    names = {"proxy": "reader", "left_label": "left", "right_label": "right"}
    names |= {f"{way}_rank": way for way in ("left_to_right", "right_to_left")}
    table = table.assign(role="published-" + table["role"], cosine=1.0 - table["cosine_distance"])
    frame = table.rename(columns=names)[RANK_COLUMNS]
    needed = [pair in set(pairs) for pair in zip(frame["left"], frame["right"], strict=True)]
    return frame[needed].reset_index(drop=True)


def candidate_rules(ranks: pd.DataFrame) -> pd.DataFrame:
    """The rule over sets of proxies, from :func:`candidate_ranks`; baselines have no vote.

    Returns column over (a set that has a reader) and those of ``rank_rule``. The paper has four main proxies of eight.
    """
    published, ours = ranks["role"].str.startswith("published"), ranks["role"] == ROLES[0]
    sets = {
        "published-main": ranks["role"] == "published-main",
        "published": published,
        **{role: ranks["role"] == role for role in ROLES},
        f"published and {ROLES[0]}": (published | ours) & bool(published.any() and ours.any()),
    }
    frames = [neighborhoods.rank_rule(ranks[some]).assign(over=name) for name, some in sets.items() if some.any()]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=["over"])


def _correct(connection: duckdb.DuckDBPyConnection, roster: str, domain: str, readers: Sequence[str]) -> pd.DataFrame:
    """Write Holm's correction over measured readers x k in {1, 5}; the rows stay with the build of their map."""
    purity = queries.family_purity(connection, roster, domain)
    purity = purity.loc[purity["reader"].isin(list(readers)), PURITY_COLUMNS].reset_index(drop=True)
    purity["p_holm"] = neighborhoods.holm_over_readers(purity)
    for reader, part in purity.groupby("reader"):
        key = {"reader": reader, "roster": roster, "domain": domain}
        for build, rows in part.groupby("build_id"):
            replace_rows(connection, "family_purity", rows, {**key, "build_id": build}, str(build))
    return purity


def _report_rules(purity: pd.DataFrame, rules: pd.DataFrame) -> None:
    tested = purity[purity["p_holm"].notna()]
    if len(tested):
        sizes, largest = ", ".join(map(str, neighborhoods.HOLM_KS)), tested["p_holm"].max()
        print(f"  purity at k = {sizes}: {len(tested)} tests, largest Holm p = {largest:.2g}")
    for row in rules.itertuples():
        verdict = "passes" if row.passes else "does not pass"
        print(
            f"  {row.left} / {row.right} over {row.over}: {row.within}/{row.readers} within ten, "
            f"median {row.median_rank:.1f}, {verdict}"
        )


def relate_domains(
    connection: duckdb.DuckDBPyConnection, release: Release, query: tuple[Chart, Float], gallery: tuple[Chart, Float]
) -> None:
    """Write retrieval between two domains of a reader, and joint maps; AtlasError if their blocks differ."""
    (first, vectors), (second, others) = query, gallery
    if first.layer != second.layer:
        blocks = " and ".join(f"at block {one.layer} on {one.benchmark}" for one in (first, second))
        raise AtlasError(f"{first.reader} was read {blocks}", "Name one block for both with --layer")
    settings = ProjectionSettings()
    seconds: dict[str, float] = {}
    details: dict[str, object] = {"layer": first.layer, "sources": len(vectors), "projections": asdict(settings)}
    names = first.rows.sources
    domains = (str(first.benchmark), str(second.benchmark))
    data, weights = release.manifest_hash, first.proxy_hash
    key = {"reader": first.reader, "roster": first.roster}
    with stage_rows(connection, "map", details, data, weights, settings.seed, key=key) as build:
        with timed(seconds, "retrieval"):
            found = signatures.cross_domain(vectors, others, names, first.rows.families)
        with timed(seconds, "projections"):
            frames = [
                projections.joint_projection(
                    vectors, others, names, domains, method=method, dimensions=dimensions, settings=settings
                )
                for method in JOINT_METHODS
                for dimensions in projections.DIMENSIONS
            ]
            points = pd.concat(frames, ignore_index=True)
        build.replace("cross_domain", found, query_domain=domains[0], gallery_domain=domains[1])
        build.replace("joint_projections", points)
        details["seconds"] = {step: round(value, 2) for step, value in seconds.items()}
    print(f"{first.reader}, {first.roster}: {domains[0]} signatures among those of {domains[1]}")
    summary = found[found["source"].isna()].pivot(index="variant", columns="metric", values="value")
    for variant in ("raw", "centred"):
        row = summary.loc[variant]
        print(
            f"  {variant}: Top-1 {row['top1']:.3f}, Top-5 {row['top5']:.3f}, MRR {row['mrr']:.3f}, "
            f"wins other {row['wins_other']:.3f}, median cosine {row['cosine_same_median']:.3f} with itself, "
            f"{row['cosine_other_median']:.3f} with others"
        )
    print("  seconds: " + ", ".join(f"{step} {value:.2f}" for step, value in seconds.items()))
