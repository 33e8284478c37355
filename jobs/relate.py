"""Relate the models of Bench-A: pair features, linear readouts under three protocols, paired comparisons.

MPT and PhyloLM read text alone. READER needs fingerprints (extract --benchmark bench-a) and reads at the modal block of
its layer selection on Agent500 (where view r was never evaluated, that of view ur) unless --layer names one. Static
LLM-DNA embeds the responses by the recipe of its encoder, and keeps the embeddings. The comparisons cover every reader
that the work database holds.
"""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import duckdb
import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.corpus.release import SPLIT_PAIRS, PairSet, Release
from backend.corpus.stored import describe_proxy
from backend.errors import AtlasError
from backend.evaluations.bench_protocol import SPLITS, Task, embeddings_of, fingerprints_of, task_of, write_task
from backend.evaluations.relationships import (
    PROJECTED,
    PROJECTION_SEED,
    PROTOCOLS,
    READER_READOUTS,
    Protocol,
    aligned_cosines,
    baseline_contrasts,
    compare,
    component_contrasts,
    read_pairs,
)
from backend.geometry.layers import MODAL, block_of
from backend.methods.baselines import COMPONENTS, MATCHERS, distances, dna_vectors, match_rates
from backend.methods.baselines import SEED as DNA_SEED
from backend.methods.registry import DNA, RELATED, names
from backend.protocol import READER_PAPER
from backend.proxies.registry import describe, proxy_key
from backend.statistics import FLIPS, REPLICATES
from backend.statistics import SEED as TEST_SEED
from backend.store.builds import command_line, recorded
from backend.store.relationships import measured_splits
from backend.store.writers import replace_rows, write_reader
from backend.traces import View
from jobs import options

METHODS = tuple("reader" if method == READER_PAPER else method for method in RELATED)
ENCODER = "minilm-l6"
Loaded = tuple[npt.NDArray[np.floating], str]
DECISIONS: Mapping[Protocol, str] = {"pair": "decision", "model": "decision-model", "family": "decision-family"}
"""Feature that holds the decision value of a reader's default readout."""


@dataclass(frozen=True)
class Subject:
    """One reader to measure.

    Attributes
    ----------
    method, name : str
        As in table ``readers``.
    readouts : dict of str to tuple of str
        Features that each readout sees.
    default : str
        The readout whose decision values are kept.
    proxy : str or None
        Short key.
    view : {'ur', 'r'} or None
    layer : int or None
    layer_from : str or None
        Where the block comes from.
    details : dict
        Settings of the features.
    """

    method: str
    name: str
    readouts: Mapping[str, tuple[str, ...]]
    default: str
    proxy: str | None = None
    view: View | None = None
    layer: int | None = None
    layer_from: str | None = None
    details: Mapping[str, object] = field(default_factory=dict)


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("--proxy", default="smollm2-135m", help="proxies of reader, comma separated")
    parser.add_argument("--encoder", default=ENCODER, help=f"proxy that embeds for dna (default: {ENCODER})")
    parser.add_argument("--view", default="ur,r", help="input views of reader and dna, comma separated (default: ur,r)")
    parser.add_argument("--method", default=",".join(METHODS), help="comma separated (default: all four)")
    parser.add_argument("--layer", default=MODAL, help="block of reader, a number or 'modal' (default)")
    parser.add_argument("--roster", default="100-way", help="roster whose layer selection counts (default: 100-way)")
    options.add_limit(parser)
    options.add_release(parser)
    options.add_work(parser)


def run(arguments: argparse.Namespace) -> int:
    """Measure every asked reader, write its rows, and compare all readers of the work database."""
    release = options.release_of(arguments)
    with contextlib.closing(options.work_of(arguments)) as connection:
        subjects = subjects_of(connection, arguments)
        task = task_of(release, arguments.limit)
        # A missing one speaks before work begins.
        loaded = [read_of(task, subject, arguments.encoder) for subject in subjects]
        write_task(connection, release, task)
        print(f"{'reader':<34} {'protocol':<8} {'readout':<13} accuracy      [95 %]         P     R     F1    AUC")
        for subject, held in zip(subjects, loaded, strict=True):
            measure(connection, release, task, subject, held)
        write_comparisons(connection, release)
    return 0


def read_of(task: Task, subject: Subject, encoder: str) -> Loaded | None:
    """What a reader is made of, and the hash of the model that read it; None for one of texts."""
    if not subject.proxy or not subject.view:
        return None
    if subject.method == READER_PAPER:
        assert subject.layer is not None, "a reader of states has a block"
        return fingerprints_of(task, subject.proxy, subject.view, subject.layer)
    return embeddings_of(task, encoder, subject.view)


def methods_of(text: str) -> list[str]:
    """Comma-separated methods."""
    asked = [name.strip() for name in text.split(",") if name.strip()]
    known = [name for name in METHODS if name in asked]
    if len(known) != len(asked) or not known:
        raise AtlasError(f"'{text}' names a method that does not exist", f"Choose from {', '.join(METHODS)}")
    return known


def subjects_of(connection: duckdb.DuckDBPyConnection, arguments: argparse.Namespace) -> list[Subject]:
    """Readers that the arguments ask for; the block of each is decided here."""
    methods, views = methods_of(arguments.method), options.views_of(arguments.view)
    subjects = [Subject(m, names()[m], {"match": ("match",)}, "match") for m in methods if m in MATCHERS]
    if "reader" in methods:
        for asked in filter(None, (part.strip() for part in arguments.proxy.split(","))):
            proxy = proxy_key(asked)
            for view in views:
                layer, origin = block_of(connection, proxy, view, arguments.roster, arguments.layer)
                name = f"READER · {proxy} · {view}"
                details = {"projection_seed": PROJECTION_SEED, "projected": PROJECTED}
                subjects.append(
                    Subject(READER_PAPER, name, READER_READOUTS, "dc-ac", proxy, view, layer, origin, details)
                )
    if DNA in methods:
        encoder = describe(arguments.encoder)
        details = {"projection_seed": DNA_SEED, "projected": COMPONENTS}
        for view in views:
            name = f"LLM-DNA · {encoder.key} · {view}"
            readouts = {"distance": ("distance",)}
            subjects.append(Subject(DNA, name, readouts, "distance", encoder.key, view, details=details))
    return subjects


def measure(
    connection: duckdb.DuckDBPyConnection, release: Release, task: Task, subject: Subject, loaded: Loaded | None = None
) -> None:
    """Compute a reader's features, read them in every split, and write the rows."""
    read, proxy_hash = loaded if loaded else (None, None)
    details = {"prompts": task.prompts, "layer": subject.layer, "layer_from": subject.layer_from, **subject.details}
    with recorded(
        connection,
        stage="relate",
        command=command_line(),
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
        connection,
        stage="relate",
        command=command_line(),
        data_hash=release.manifest_hash,
        seed=TEST_SEED,
        details=details,
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
