"""Relate the models of Bench-A: features of pairs, linear readouts under three protocols, paired comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.corpus.release import SPLIT_PAIRS, PairSet, Release
from backend.corpus.roster_rows import describe_proxy
from backend.evaluations.relationships import (
    PROJECTED,
    PROJECTION_SEED,
    PROTOCOLS,
    READER_READOUTS,
    SPLITS,
    Protocol,
    Task,
    aligned_cosines,
    baseline_contrasts,
    compare,
    component_contrasts,
    embeddings_of,
    fingerprints_of,
    read_pairs,
)
from backend.methods.baselines import COMPONENTS, MATCHERS, distances, dna_vectors, match_rates
from backend.methods.baselines import SEED as DNA_SEED
from backend.methods.registry import DNA, names
from backend.protocol import READER_PAPER
from backend.statistics import FLIPS, REPLICATES
from backend.statistics import SEED as TEST_SEED
from backend.store.builds import recorded
from backend.store.page_queries import measured_splits
from backend.store.writers import replace_rows, write_reader
from backend.traces import View

Loaded = tuple[npt.NDArray[np.floating], str]
DECISIONS: Mapping[Protocol, str] = {"pair": "decision", "model": "decision-model", "family": "decision-family"}
"""Feature that holds the decision value of a reader's default readout."""


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


def text_subjects(methods: Sequence[str]) -> Iterator[Subject]:
    """Readers of texts among some methods."""
    for method in methods:
        if method in MATCHERS:
            yield Subject(method, names()[method], {"match": ("match",)}, "match")


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
    """What a reader is made of, and the hash of the model that read it; None for one of texts."""
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
    read, proxy_hash = loaded if loaded else (None, None)
    details = {"prompts": task.prompts, "layer": subject.layer, "layer_from": subject.layer_from, **subject.details}
    with recorded(
        connection,
        stage="relate",
        data_hash=release.manifest_hash,
        proxy_hash=proxy_hash,
        seed=TEST_SEED,
        details={name: value for name, value in details.items() if value is not None},
    ) as build:
        scores = _scores(task, subject, read)
        features = {
            pair_set: {name: matrix[tuple(places.T)] for name, matrix in scores.items()}
            for pair_set, places in task.places.items()
        }
        metrics = []
        for protocol in PROTOCOLS:
            pair_set = SPLIT_PAIRS[SPLITS[protocol]]
            held, related = features[pair_set], task.pairs[pair_set]["related"].to_numpy(bool)
            for readout, names in subject.readouts.items():
                reading = read_pairs(np.column_stack([held[name] for name in names]), related, task.splits[protocol])
                metrics.append(reading.metrics.assign(protocol=protocol, readout=readout))
                if readout == subject.default:
                    held[DECISIONS[protocol]] = reading.decision
        if subject.proxy:
            describe_proxy(connection, subject.proxy)
        reader = write_reader(
            connection, method=subject.method, name=subject.name, proxy=subject.proxy, view=subject.view
        )
        rows = pd.concat(metrics, ignore_index=True)
        replace_rows(connection, "relationship_metrics", rows, {"reader": reader}, build)
        replace_rows(connection, "relationship_features", _long(task, features), {"reader": reader}, build)
    _report(reader, rows)


def _scores(task: Task, subject: Subject, rows: npt.NDArray[np.floating] | None) -> dict[str, npt.NDArray[np.float64]]:
    """Features of every two models, each of shape (M, M)."""
    if rows is None:
        grid = np.arange(len(task.records.traces)).reshape(task.models, -1)[:, : task.prompts]
        responses = [task.records.traces[row].response for row in grid.ravel()]
        return {"match": match_rates(responses, task.models, MATCHERS[subject.method])}
    if subject.method == READER_PAPER:
        return aligned_cosines(rows)
    return {"distance": distances(dna_vectors(rows))}


def _long(task: Task, features: Mapping[PairSet, Mapping[str, npt.NDArray[np.float64]]]) -> pd.DataFrame:
    """One row a pair and feature; pairs that no split tested have no decision."""
    parts = [
        pd.DataFrame(
            {"pair_set": pair_set, "pair_id": task.pairs[pair_set]["pair_id"], "feature": name, "value": value}
        )
        for pair_set, held in features.items()
        for name, value in held.items()
    ]
    return pd.concat(parts, ignore_index=True).dropna(subset="value")


def write_comparisons(connection: duckdb.DuckDBPyConnection, release: Release) -> None:
    """Compare all measured readers: the joint readout against its blocks, and against PhyloLM."""
    read = measured_splits(connection)
    sets = {"components": component_contrasts(read), "baselines": baseline_contrasts(read)}
    details = {"replicates": REPLICATES, "flips": FLIPS}
    with recorded(
        connection, stage="relate", data_hash=release.manifest_hash, seed=TEST_SEED, details=details
    ) as build:
        for name, contrasts in sets.items():
            if not contrasts:
                continue
            for protocol, frame in compare(read, contrasts).groupby("protocol", sort=False):
                key = {"hypotheses": f"relationships/{name}/{protocol}"}
                replace_rows(connection, "comparisons", frame.drop(columns="protocol"), key, build)
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
