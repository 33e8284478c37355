"""Import published numbers from the release's result files, marked as published, each with its file."""

from __future__ import annotations

import argparse
import contextlib
from collections import Counter
from typing import Any, get_args

import duckdb
import numpy as np
import pandas as pd

from backend.corpus.release import PairSet, Release
from backend.corpus.roster_rows import describe_proxy, write_release_sources
from backend.proxies.registry import registered
from backend.reference import UNIMPORTED, UNREAD, Collected, Results, collect
from backend.store.builds import recorded
from backend.store.result_queries import count_rows, forget_published, reader_rows
from backend.store.writers import replace_rows, write_proxies, write_reader
from jobs import options

UNKEYED = {"comparisons": "hypotheses", "paper_values": "place"}
"""Tables without readers, and what their rows are replaced by."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    options.add(parser, "release", "work")


def run(arguments: argparse.Namespace) -> None:
    """Write every published result to the work database, and print what was not imported."""
    release = options.release_of(arguments)
    results = Results(release.root)
    collected = collect(results)  # before the database is opened, and anything is replaced
    with options.work_of(arguments) as connection:
        write_release_sources(connection, release)
        _write_bench(connection, release)
        written = _write(connection, release, collected)
    for table, rows in sorted(written.items()):
        print(f"{rows:>9,} {table}")
    print(f"{sum(written.values()):,} published rows of {len(collected.readers)} readers")
    for sentence in collected.differing:
        print(f"  differs: {sentence}")
    ledger = results.ledger()
    print(f"{ledger.imported:,} of {ledger.numbers:,} numbers in results/** were taken")
    reasons: Counter[str] = Counter()
    for name, count in ledger.remaining.items():
        reasons[UNIMPORTED.get(name, f"NOT EXPLAINED: {name}")] += count
    for reason, count in reasons.most_common():
        print(f"{count:>9,} not imported: {reason}")
    for file in ledger.unread:
        print(f"  not read: {file} ({UNREAD.get(file, 'NOT EXPLAINED')})")


def _write(connection: duckdb.DuckDBPyConnection, release: Release, collected: Collected) -> dict[str, int]:
    """Write rows with a build for each file, in place of an earlier import.

    A reader that is measured here keeps its rows; the published ones of the same id stand under ``published-...``.
    """
    frames = {table: collected.frame(table) for table in collected.rows}
    measured = {row["reader"] for row in reader_rows(connection) if row["origin"] == "measured"}
    renamed = {reader: f"published-{reader}" for reader in collected.readers if reader in measured}
    files = sorted({file for frame in frames.values() for file in frame["source_file"]})
    written: Counter[str] = Counter()
    with contextlib.ExitStack() as stack:
        about: dict[str, Any] = {"stage": "reference", "data_hash": release.manifest_hash, "origin": "published"}
        builds = {file: stack.enter_context(recorded(connection, **about, source_file=file)) for file in files}
        forget_published(connection, frames)
        for reader in collected.readers.values():
            if reader.proxy is not None and (reader.proxy_name is None or reader.proxy in registered()):
                describe_proxy(connection, reader.proxy)
            elif reader.proxy is not None:
                write_proxies(connection, pd.DataFrame([{"proxy": reader.proxy, "name": reader.proxy_name}]))
            facts: dict[str, Any] = {
                "name": reader.name,
                "proxy": reader.proxy,
                "view": reader.view,
                "origin": "published",
            }
            method = f"published-{reader.method}" if reader.reader in renamed else reader.method
            write_reader(connection, method=method, **facts)
        for table, frame in frames.items():
            rows = frame.assign(build_id=frame["source_file"].map(builds)).drop(columns="source_file")
            for column in ("reader", "other", "subject", "reference"):
                if column in rows:
                    rows[column] = rows[column].replace(renamed)
            name = UNKEYED.get(table, "reader")
            for value, part in rows.groupby(name, sort=False):
                key, build = {name: value}, str(part["build_id"].iloc[0])
                written[table] += replace_rows(connection, table, part.reset_index(drop=True), key, build)
    return dict(written)


def _write_bench(connection: duckdb.DuckDBPyConnection, release: Release) -> None:
    """Write the models and pairs of Bench-A that published scores are about, unless they are there."""
    if count_rows(connection, "relationship_pairs") or not (release.data / "bench_a").is_dir():
        return
    records, models = release.bench_records(), release.bench_models()[["model", "parent_family", "is_parent"]]
    responses = np.array([bool(trace.response) for trace in records.traces]).reshape(len(records.sources), -1)
    empty = dict(zip(records.sources, (~responses).sum(axis=1), strict=True))
    with recorded(connection, stage="sources", data_hash=release.manifest_hash) as build:
        rows = models.assign(empty_responses=[empty.get(model, 0) for model in models["model"]])
        for family, part in rows.groupby("parent_family", sort=False):
            replace_rows(connection, "relationship_models", part, {"parent_family": family}, build)
        for name in get_args(PairSet):
            pairs = release.pairs(name)[["pair_id", "model_a", "model_b", "related"]]
            replace_rows(connection, "relationship_pairs", pairs, {"pair_set": name}, build)
