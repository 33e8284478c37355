"""Relationships of models: pair features, linear readouts under three protocols, comparisons.

Sections "Static Relationship Auditing" and "Complete Static Relationship Results" of the paper. Two models are compared
prompt by prompt; a linear SVM reads one or two such scores of a pair. Splits hold out pairs, endpoints (*model*) or
whole parent families (*family*).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Literal

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.metrics import precision_recall_fscore_support, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from tqdm import tqdm

from backend.corpus.release import SPLIT_PAIRS, PairSet, Records, Release, SplitSet
from backend.corpus.roster_rows import describe_proxy, release_records
from backend.errors import AtlasError
from backend.extraction import BENCH_A, bench_shards
from backend.fingerprints import FingerprintStore, StoreKey, cache_folder
from backend.methods.baselines import COMPONENTS, MATCHERS, distances, dna_vectors, match_rates
from backend.methods.baselines import SEED as DNA_SEED
from backend.methods.readout import Doubles, Floats, Half, Ints, Rows
from backend.methods.registry import DNA, names
from backend.methods.sentence_encoder import EmbeddingCache, EmbeddingKey, SentenceEncoder
from backend.parallel import each
from backend.protocol import READER_PAPER
from backend.proxies.registry import proxy_hash
from backend.statistics import FLIPS, REPLICATES, cluster_bootstrap, holm, sign_flip_p_values
from backend.statistics import SEED as TEST_SEED
from backend.store.page_queries import measured_splits
from backend.store.writers import stage_rows, write_reader
from backend.traces import View, view_text

Protocol = Literal["pair", "model", "family"]
PROTOCOLS: tuple[Protocol, ...] = ("pair", "model", "family")
STRICT: tuple[Protocol, ...] = ("model", "family")
METRICS = ("accuracy", "precision", "recall", "f1", "auc")
COMPARED = ("accuracy", "f1", "auc")
COMPARISON = "split bootstrap and sign flips; Holm over both protocols and all metrics"
SVM_C = 1.0
PROJECTED = 128
PROJECTION_SEED = 42
TINY_NORM = 1e-12

READER_READOUTS: Mapping[str, tuple[str, ...]] = {
    "dc": ("dc",),
    "ac": ("ac",),
    "dc-ac": ("dc", "ac"),
    "concat": ("concat",),
    "grp128-dc": ("grp128-dc",),
    "grp128": ("grp128-ac",),
    "grp128-dc-ac": ("grp128-dc", "grp128-ac"),
}
"""Features that each readout of READER sees; the paper's own is ``dc-ac``, its GRP-128 row is ``grp128``."""
SPLITS: Mapping[Protocol, SplitSet] = {"pair": "pair_disjoint", "model": "model_disjoint", "family": "family_disjoint"}
Loaded = tuple[Rows, str]  # Fingerprints or embeddings, and the hash of the model that read them
DECISIONS: Mapping[Protocol, str] = {"pair": "decision", "model": "decision-model", "family": "decision-family"}
"""Feature that holds the decision value of a reader's default readout."""


@dataclass(frozen=True)
class PairSplit:
    """One division of pairs."""

    number: int
    train: Ints  # Row numbers of pairs
    test: Ints


@dataclass(frozen=True)
class Reading:
    """Results of a readout of pairs under one protocol.

    metrics : Columns metric, split, value, std, low, high, n. A row a split (n: test pairs), and a row without split
        that holds mean, population standard deviation and percentile interval over splits (n: splits).
    """

    metrics: pd.DataFrame
    decision: Doubles  # (n,), mean over the splits that tested a pair, positive for related; nan where none did


def aligned_cosines(fingerprints: Rows, components: int = PROJECTED, seed: int = PROJECTION_SEED) -> dict[str, Doubles]:
    """Mean prompt-aligned cosine of every two models in each spectral block.

    fingerprints : (M, P, 2 * d), DC block, then first AC; one prompt is in memory at a time.
    components, seed : Of the Gaussian projection, which is one for all prompts and both blocks.
    Returns (M, M), float64, by name: ``dc``, ``ac``, ``concat`` (both blocks as one vector), ``grp128-dc`` and
    ``grp128-ac`` (after the projection). A cosine counts as 0 where the product of the norms is at most 1e-12.
    Raises ValueError if the fingerprints are not of that shape.
    """
    if fingerprints.ndim != 3 or not fingerprints.size or fingerprints.shape[2] % 2:
        raise ValueError(f"fingerprints must have the shape (models, prompts, 2 * d), got {fingerprints.shape}")
    models, prompts, width = fingerprints.shape
    half = width // 2
    projection = np.random.default_rng(seed).standard_normal((half, components)) / np.sqrt(components)
    sums = {name: np.zeros((models, models)) for name in ("dc", "ac", "concat", "grp128-dc", "grp128-ac")}
    for prompt in range(prompts):
        both = fingerprints[:, prompt].astype(np.float64)
        dc, ac = both[:, :half], both[:, half:]
        for name, rows in zip(sums, (dc, ac, both, dc @ projection, ac @ projection), strict=True):
            sums[name] += _cosines(rows)
    return {name: total / prompts for name, total in sums.items()}


def _cosines(rows: Doubles) -> Doubles:
    dots = rows @ rows.T
    norms = np.sqrt((rows**2).sum(axis=1))
    products = np.outer(norms, norms)
    return np.divide(dots, products, out=np.zeros_like(dots), where=products > TINY_NORM)


def read_pairs(features: Rows, related: npt.NDArray[np.bool_], splits: Sequence[PairSplit]) -> Reading:
    """Fit the linear readout in every split and measure it on the split's test pairs.

    features : (n, f), one or more scores a pair, standardised with each split's training pairs; related : (n,), bool.
    Raises ValueError if there is no split, or features and truth disagree in length.
    """
    if features.ndim != 2 or features.shape[:1] != related.shape or not splits:
        raise ValueError(f"features {features.shape} and truth {related.shape} need one row a pair, and a split")
    total, times = np.zeros(len(related)), np.zeros(len(related), dtype=np.intp)
    rows: list[dict[str, Any]] = []
    for split in splits:
        readout = make_pipeline(StandardScaler(), SVC(kernel="linear", C=SVM_C))
        readout.fit(features[split.train], related[split.train])
        decision = readout.decision_function(features[split.test])
        total[split.test] += decision
        times[split.test] += 1
        values = _metrics(related[split.test], readout.predict(features[split.test]), decision)
        rows += [{"metric": m, "split": split.number, "value": v, "n": len(split.test)} for m, v in values.items()]
    per_split = pd.DataFrame(rows)
    mean = np.divide(total, times, out=np.full(len(related), np.nan), where=times > 0)
    return Reading(pd.concat([per_split, summarise(per_split)], ignore_index=True).astype({"split": "Int64"}), mean)


def _metrics(truth: npt.NDArray[np.bool_], predicted: npt.NDArray[np.bool_], decision: Doubles) -> dict[str, float]:
    precision, recall, f1, _ = precision_recall_fscore_support(truth, predicted, average="binary", zero_division=0)
    values = (np.mean(truth == predicted), precision, recall, f1, roc_auc_score(truth, decision))
    return {name: float(value) for name, value in zip(METRICS, values, strict=True)}


def summarise(per_split: pd.DataFrame) -> pd.DataFrame:
    """Mean, population standard deviation and 95 % percentile bootstrap over splits (columns metric, split, value)."""
    metrics = list(dict.fromkeys(per_split["metric"]))
    table = per_split.pivot(index="split", columns="metric", values="value")[metrics].to_numpy(dtype=np.float64)
    low, high = cluster_bootstrap(table, np.ones_like(table))
    columns = {"value": table.mean(axis=0), "std": table.std(axis=0), "low": low, "high": high}
    return pd.DataFrame({"metric": metrics, **columns, "n": len(table)})


def component_contrasts(read: pd.DataFrame) -> list[tuple[str, str]]:
    """The joint readout of every reader against either block alone, as names of :func:`compare`."""
    return [(f"{reader}:dc-ac", f"{reader}:{block}") for reader in _readers(read) for block in ("dc", "ac")]


def baseline_contrasts(read: pd.DataFrame, baseline: str = "phylolm") -> list[tuple[str, str]]:
    """The joint readout of every reader against a text baseline; none where that was not measured."""
    if baseline not in set(read["reader"]):
        return []
    return [(f"{reader}:dc-ac", f"{baseline}:match") for reader in _readers(read)]


def _readers(read: pd.DataFrame) -> list[str]:
    return sorted(set(read.loc[read["readout"] == "dc-ac", "reader"]))


def compare(read: pd.DataFrame, contrasts: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """Paired comparisons over the splits of the strict protocols, corrected by Holm over all of them.

    The test sets of different splits share pairs, so intervals and p values say how sensitive a difference is to the
    splits of the protocol, not how it would come out on new families.

    read : Columns reader, protocol, readout, metric, split, value; contrasts : Pairs of ``reader:readout``.
    Returns columns subject, reference, protocol, measure, difference, low, high, p_value, p_holm, n, method; empty
    without contrasts. Raises ValueError if the two sides of a contrast were not measured on the same splits.
    """
    named = read.assign(name=read["reader"] + ":" + read["readout"])
    parts = []
    for protocol in STRICT if contrasts else ():
        here = named[(named["protocol"] == protocol) & named["metric"].isin(COMPARED)]
        wide = here.pivot(index="split", columns=["name", "metric"], values="value")
        needed = [(subject, reference, metric) for subject, reference in contrasts for metric in COMPARED]
        missing = [name for pair in contrasts for name in pair if (name, COMPARED[0]) not in wide]
        if missing:
            raise ValueError(f"{missing[0]} has no splits in protocol {protocol}")
        table = np.column_stack([(wide[a, metric] - wide[b, metric]).to_numpy(float) for a, b, metric in needed])
        if np.isnan(table).any():
            raise ValueError(f"both sides of a contrast must be measured on the same splits of protocol {protocol}")
        low, high = cluster_bootstrap(table, np.ones_like(table))
        values = {"difference": table.mean(axis=0), "low": low, "high": high, "p_value": sign_flip_p_values(table)}
        names = pd.DataFrame(needed, columns=["subject", "reference", "measure"])
        parts.append(names.assign(protocol=protocol, **values, n=len(table)))
    if not parts:
        return pd.DataFrame()
    out = pd.concat(parts, ignore_index=True)
    return out.assign(p_holm=holm(out["p_value"]), method=COMPARISON)


@dataclass(frozen=True)
class Task:
    """The pairs and splits of Bench-A, and its records where responses are read."""

    records: Records
    pairs: dict[PairSet, pd.DataFrame]  # As :meth:`Release.pairs` gives them
    places: dict[PairSet, Ints]  # pair set to (n, 2); numbers of the two models of every pair
    splits: dict[Protocol, list[PairSplit]]
    prompts: int  # Leading prompts that are read
    release: Release

    @property
    def models(self) -> int:
        """Number of models."""
        return len(self.records.sources)


def task_of(release: Release, limit: int | None = None) -> Task:
    """Read the pairs, splits and records of Bench-A."""
    records = release.bench_records()
    place = {model: number for number, model in enumerate(records.sources)}
    pairs = {name: release.pairs(name) for name in dict.fromkeys(SPLIT_PAIRS.values())}
    sides = ["model_a", "model_b"]
    places = {name: frame[sides].map(place.__getitem__).to_numpy(np.intp) for name, frame in pairs.items()}
    splits = {}
    for protocol, name in SPLITS.items():
        row = {pair: number for number, pair in enumerate(pairs[SPLIT_PAIRS[name]]["pair_id"])}
        splits[protocol] = [
            PairSplit(s.number, np.array([row[p] for p in s.train]), np.array([row[p] for p in s.test]))
            for s in release.splits(name)
        ]
    prompts = len(records.prompt_ids)
    if limit is not None and limit < 1:
        raise AtlasError(f"--limit {limit} leaves no prompt", "Give a number of prompts from 1 up")
    return Task(records, pairs, places, splits, min(limit or prompts, prompts), release)


def fingerprints_of(task: Task, proxy: str, view: View, layer: int) -> tuple[Half, str]:
    """Fingerprints (M, P, 2 * d) and the hash of their proxy. Raises AtlasError if they are missing or outdated."""
    store = FingerprintStore(StoreKey(BENCH_A, proxy, view))
    prompts = len(task.records.prompt_ids)
    done = store.done()
    shards = bench_shards(task.models, prompts, task.prompts)
    if any("full" not in done.get(shard.name, {}).get(str(layer), []) for shard in shards):
        raise AtlasError(
            f"The fingerprints of Bench-A at block {layer} by {proxy} in view {view} are not complete",
            f"Run: python -m jobs extract --benchmark {BENCH_A} --proxy {proxy} --view {view} "
            f"--layers {layer}" + (f" --limit {task.prompts}" if task.prompts < prompts else ""),
        )
    identity = store.identity()
    assert identity is not None, "a store with shards has an identity"
    store.check_records(release_records(task.release, BENCH_A), task.release.root)
    array = store.load(layer).reshape(task.models, prompts, -1)
    return array[:, : task.prompts], identity.proxy_hash


def embeddings_of(task: Task, encoder: str, view: View) -> tuple[Floats, str]:
    """Embeddings (M, P, d) by the encoder's own recipe, and its hash. Raises AtlasError if the encoder is not here."""
    texts = [view_text(trace, view)[1] for trace in task.records.traces]
    read = np.arange(len(texts)).reshape(task.models, -1)[:, : task.prompts].ravel()
    identity = hashlib.sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()
    embedder = SentenceEncoder(encoder)
    cache = EmbeddingCache(embedder, EmbeddingKey(BENCH_A, f"{view}.clean", identity, len(texts)), cache_folder())
    with tqdm(total=len(read), desc=f"{embedder.proxy.key} {BENCH_A} {view}", unit="text") as bar:
        cache.complete([texts[row] for row in read], read, bar.update)
    return cache.take(read).reshape(task.models, task.prompts, -1), proxy_hash(encoder)


def write_task(connection: duckdb.DuckDBPyConnection, release: Release, task: Task) -> None:
    """Write the models and pairs of Bench-A."""
    models = release.bench_models()[["model", "parent_family", "is_parent"]]
    silent = np.array([not trace.response for trace in task.records.traces]).reshape(task.models, -1).sum(axis=1)
    with stage_rows(connection, "relate", data_hash=release.manifest_hash) as build:
        for family, rows in models.assign(empty_responses=silent).groupby("parent_family"):
            build.replace("relationship_models", rows, parent_family=family)
        for pair_set, pairs in task.pairs.items():
            columns = pairs[["pair_id", "model_a", "model_b", "related"]]
            build.replace("relationship_pairs", columns, pair_set=pair_set)


@dataclass(frozen=True)
class Subject:
    """One reader to measure."""

    method: str
    name: str
    readouts: Mapping[str, tuple[str, ...]]  # features that each readout sees
    default: str  # readout whose decision values are saved
    proxy: str | None = None
    view: View | None = None
    layer: int | None = None
    layer_from: str | None = None  # where the block comes from
    details: Mapping[str, object] = field(default_factory=dict)  # settings of the features


def text_subjects(methods: Sequence[str]) -> list[Subject]:
    """Readers of texts among some methods."""
    return [Subject(m, names()[m], {"match": ("match",)}, "match") for m in methods if m in MATCHERS]


def reader_subject(proxy: str, view: View, layer: int, origin: str) -> Subject:
    """The paper's readout of a proxy at a block."""
    details = {"projection_seed": PROJECTION_SEED, "projected": PROJECTED}
    name = f"READER · {proxy} · {view}"
    return Subject(READER_PAPER, name, READER_READOUTS, "dc-ac", proxy, view, layer, origin, details)


def dna_subject(encoder: str, view: View) -> Subject:
    """Static LLM-DNA by an encoder."""
    details = {"projection_seed": DNA_SEED, "projected": COMPONENTS}
    readouts = {"distance": ("distance",)}
    return Subject(DNA, f"LLM-DNA · {encoder} · {view}", readouts, "distance", encoder, view, details=details)


def read_of(task: Task, subject: Subject, encoder: str) -> Loaded | None:
    """Fingerprints or embeddings that a reader is fitted to; None for one of texts."""
    if not subject.proxy or not subject.view:
        return None
    if subject.method == READER_PAPER:
        assert subject.layer is not None, "a reader of states has a block"
        return fingerprints_of(task, subject.proxy, subject.view, subject.layer)
    return embeddings_of(task, encoder, subject.view)


def measure(
    connection: duckdb.DuckDBPyConnection, release: Release, task: Task, subject: Subject, loaded: Loaded | None = None
) -> None:
    """Compute a reader's features, read them in every split, and write the rows."""
    read, weights = loaded if loaded else (None, None)
    about = {"prompts": task.prompts, "layer": subject.layer, "layer_from": subject.layer_from, **subject.details}
    details = {name: value for name, value in about.items() if value is not None}
    with stage_rows(connection, "relate", details, release.manifest_hash, weights, TEST_SEED) as build:
        scores = _scores(task, subject, read)
        features = {
            pair_set: {name: matrix[tuple(places.T)] for name, matrix in scores.items()}
            for pair_set, places in task.places.items()
        }
        metrics, readings = [], list(product(PROTOCOLS, subject.readouts))

        def steps() -> Iterator[tuple[Doubles, npt.NDArray[np.bool_], list[PairSplit]]]:
            for protocol, readout in readings:
                pair_set = SPLIT_PAIRS[SPLITS[protocol]]
                seen = np.column_stack([features[pair_set][name] for name in subject.readouts[readout]])
                yield seen, task.pairs[pair_set]["related"].to_numpy(bool), task.splits[protocol]

        for (protocol, readout), reading in zip(readings, each(read_pairs, steps()), strict=True):
            metrics.append(reading.metrics.assign(protocol=protocol, readout=readout))
            if readout == subject.default:
                features[SPLIT_PAIRS[SPLITS[protocol]]][DECISIONS[protocol]] = reading.decision
        if subject.proxy:
            describe_proxy(connection, subject.proxy)
        reader = write_reader(
            connection, method=subject.method, name=subject.name, proxy=subject.proxy, view=subject.view
        )
        rows = pd.concat(metrics, ignore_index=True)
        build.replace("relationship_metrics", rows, reader=reader)
        build.replace("relationship_features", _long(task, features), reader=reader)
    _report(reader, rows)


def _scores(task: Task, subject: Subject, rows: Rows | None) -> dict[str, Doubles]:
    """Features of every two models, each of shape (M, M)."""
    if rows is None:
        grid = np.arange(len(task.records.traces)).reshape(task.models, -1)[:, : task.prompts]
        responses = [task.records.traces[row].response for row in grid.ravel()]
        return {"match": match_rates(responses, task.models, MATCHERS[subject.method])}
    if subject.method == READER_PAPER:
        return aligned_cosines(rows)
    return {"distance": distances(dna_vectors(rows))}


def _long(task: Task, features: Mapping[PairSet, Mapping[str, Doubles]]) -> pd.DataFrame:
    """One row a pair and feature; pairs that no split tested have no decision."""
    parts = [
        pd.DataFrame({"pair_set": pairs, "pair_id": task.pairs[pairs]["pair_id"], "feature": name, "value": value})
        for pairs, scored in features.items()
        for name, value in scored.items()
    ]
    return pd.concat(parts, ignore_index=True).dropna(subset="value")


def write_comparisons(connection: duckdb.DuckDBPyConnection, release: Release) -> None:
    """Compare all measured readers: the joint readout against its blocks, and against PhyloLM."""
    read = measured_splits(connection)
    sets = {"components": component_contrasts(read), "baselines": baseline_contrasts(read)}
    details = {"replicates": REPLICATES, "flips": FLIPS}
    with stage_rows(connection, "relate", details, release.manifest_hash, seed=TEST_SEED) as build:
        for name, contrasts in sets.items():
            if not contrasts:
                continue
            for protocol, frame in compare(read, contrasts).groupby("protocol", sort=False):
                table = f"relationships/{name}/{protocol}"
                build.replace("comparisons", frame.drop(columns="protocol"), hypotheses=table)
                for row in frame[frame["measure"] == "accuracy"].itertuples():
                    print(
                        f"{row.subject} - {row.reference}, {protocol}: {row.difference:+.3f} "
                        f"[{row.low:+.3f}, {row.high:+.3f}], Holm p = {row.p_holm:.4f}"
                    )


def _report(reader: str, rows: pd.DataFrame) -> None:
    summary = rows[rows["split"].isna()]
    for (protocol, readout), part in summary.groupby(["protocol", "readout"], sort=False):
        of = part.set_index("metric")
        accuracy = of.loc["accuracy"]
        others = " ".join(f"{value:.3f}" for value in of["value"].loc[["precision", "recall", "f1", "auc"]])
        print(
            f"{reader:<34} {protocol:<8} {readout:<13} {accuracy['value']:.3f}±{accuracy['std']:.3f} "
            f"[{accuracy['low']:.3f}, {accuracy['high']:.3f}] {others}",
            flush=True,
        )
