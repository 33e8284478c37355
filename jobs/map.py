"""Map the sources: signatures, neighbours, family purity and projections of a roster, without any training.

The block is the modal one of the layer selection (of the roster itself; where view r was never evaluated, that of
view ur) unless --layer names one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import duckdb
import numpy as np
import pandas as pd

from backend.errors import AtlasError
from backend.geometry.neighborhoods import neighbor_frame, neighbor_order, prompt_stability
from backend.geometry.projections import ProjectionSettings, project_all, sweep
from backend.geometry.purity import PuritySettings, family_purity
from backend.geometry.signatures import cosine_similarity, signature_frame, signatures, source_means
from backend.protocol import FOLDS
from backend.proxies.registry import proxy_key
from backend.release import BENCHMARKS, Benchmark, Release
from backend.store import queries
from backend.store.builds import recorded
from backend.store.writers import replace_rows, write_reader
from backend.traces import View
from jobs import _common
from jobs._common import METHOD, describe_proxy, write_release_sources

MODAL = "modal"


@dataclass(frozen=True)
class Chart:
    """One map to make.

    Attributes
    ----------
    proxy : str
    view : {'ur', 'r'}
    roster : str
    benchmark : str
        Becomes the domain.
    layer : int
    layer_from : str
        Where the block comes from: 'asked', or the reader whose modal block it is.
    rows : Slice
        Fingerprints to read.
    """

    proxy: str
    view: View
    roster: str
    benchmark: Benchmark
    layer: int
    layer_from: str
    rows: _common.Slice


def configure(parser: argparse.ArgumentParser) -> None:
    """Arguments of the verb."""
    parser.add_argument("--proxy", default="smollm2-135m")
    parser.add_argument("--view", default="r", help="input views, comma separated (ur, r)")
    parser.add_argument("--roster", default="100-way,165-way", help="rosters, comma separated")
    parser.add_argument("--benchmark", default="agent500", help="benchmarks, comma separated (agent500, math100)")
    parser.add_argument("--layer", default=MODAL, help="block to read at, a number or 'modal' (default)")
    parser.add_argument("--sweep", action="store_true", help="also 20 t-SNE maps over seeds and perplexities")
    _common.add_limit(parser)
    _common.add_release(parser)
    _common.add_work(parser)


def run(arguments: argparse.Namespace) -> int:
    """Map every asked view, roster and benchmark, and write the results to the work database."""
    release = _common.release_of(arguments)
    with contextlib.closing(_common.work_of(arguments)) as connection:
        # All are looked up before the first is made, so that a missing one speaks at once.
        charts = [
            chart_of(
                connection,
                release,
                proxy_key(arguments.proxy),
                view,
                roster,
                benchmark,
                arguments.layer,
                arguments.limit,
            )
            for view in _common.views_of(arguments.view)
            for roster in _common.rosters_of(arguments.roster)
            for benchmark in benchmarks_of(arguments.benchmark)
        ]
        for chart in charts:
            make(connection, release, chart, with_sweep=arguments.sweep)
    return 0


def benchmarks_of(text: str) -> list[Benchmark]:
    """Comma-separated benchmarks."""
    asked = [name.strip() for name in text.split(",") if name.strip()]
    known: list[Benchmark] = [name for name in BENCHMARKS if name in asked]
    if len(known) != len(asked) or not known:
        raise AtlasError(f"'{text}' names a benchmark that does not exist", f"Choose from {', '.join(BENCHMARKS)}")
    return known


def chart_of(
    connection: duckdb.DuckDBPyConnection,
    release: Release,
    proxy: str,
    view: View,
    roster: str,
    benchmark: Benchmark,
    layer: str = MODAL,
    limit: int | None = None,
) -> Chart:
    """Decide the block of a map and check that its fingerprints are there.

    Raises
    ------
    AtlasError
        If no block was selected, or fingerprints are missing; names the command that makes them.
    """
    if limit is not None and limit < 1:
        raise AtlasError(f"--limit {limit} leaves no prompt", "Give a number of prompts from 1 up")
    block, origin = _block(connection, proxy, view, roster, layer)
    rows = _common.slice_of(release, benchmark, proxy, view, roster, limit)
    if block not in rows.layers():
        raise AtlasError(
            f"The fingerprints of {benchmark} at block {block} by {proxy} in view {view} are not complete for {roster}",
            f"Run: python -m jobs extract --benchmark {benchmark} --roster {roster} --proxy {proxy} --view {view} "
            f"--layers {block}" + (f" --limit {limit}" if limit else ""),
        )
    return Chart(proxy, view, roster, benchmark, block, origin, rows)


def make(
    connection: duckdb.DuckDBPyConnection, release: Release, chart: Chart, *, with_sweep: bool = False
) -> dict[str, float]:
    """Make one map and write its rows.

    Returns
    -------
    dict
        Seconds a step.
    """
    rows = chart.rows
    identity = rows.store.identity()
    assert identity is not None, "chart_of has seen its shards"
    if queries.sources(connection, chart.roster).empty:
        write_release_sources(connection, release)
    purity_settings, projection_settings = PuritySettings(), ProjectionSettings()
    details: dict[str, object] = {
        "layer": chart.layer,
        "layer_from": chart.layer_from,
        "sources": len(rows.sources),
        "prompts": len(rows.prompt_ids),
        "purity": asdict(purity_settings),
        "projections": asdict(projection_settings),
    }
    seconds: dict[str, float] = {}
    with recorded(
        connection,
        stage="map",
        command=_common.command_line(),
        data_hash=release.manifest_hash,
        proxy_hash=identity.proxy_hash,
        seed=projection_settings.seed,
        details=details,
    ) as build:
        with _timed(seconds, "signatures"):
            full, *panels = _signatures(rows, chart.layer)
            cosine = cosine_similarity(full)
        with _timed(seconds, "neighbours"):
            pairs = neighbor_frame(cosine, rows.sources)
            stability = prompt_stability(cosine, [cosine_similarity(p) for p in panels], rows.families)
            details["prompt_stability"] = json.loads(stability.to_json(orient="records"))
        with _timed(seconds, "purity"):
            purity = family_purity(neighbor_order(cosine), rows.families, settings=purity_settings)
        with _timed(seconds, "projections"):
            points, quality = project_all(cosine, rows.sources, projection_settings)
        if with_sweep:
            with _timed(seconds, "sweep"):
                tried = sweep(cosine, rows.families, settings=projection_settings)
                quality = pd.concat([quality, tried], ignore_index=True)
        with _timed(seconds, "writing"):
            describe_proxy(connection, chart.proxy)
            reader = write_reader(
                connection,
                method=METHOD,
                name=f"READER · {chart.proxy} · {chart.view}",
                proxy=chart.proxy,
                view=chart.view,
            )
            key = {"reader": reader, "roster": chart.roster, "domain": chart.benchmark}
            replace_rows(connection, "signatures", signature_frame(full, rows.sources, chart.layer), key, build)
            replace_rows(connection, "neighbors", pairs, key, build)
            replace_rows(connection, "projections", points, key, build)
            replace_rows(connection, "projection_quality", quality, key, build)
            replace_rows(connection, "family_purity", purity, key, build)
        details["seconds"] = {step: round(value, 2) for step, value in seconds.items()}
    _report(chart, purity, stability, quality, seconds)
    return seconds


def _block(connection: duckdb.DuckDBPyConnection, proxy: str, view: View, roster: str, layer: str) -> tuple[int, str]:
    """Block to read at, and where it comes from."""
    if layer != MODAL:
        if not layer.isdecimal() or int(layer) < 1:
            raise AtlasError(f"--layer {layer} is neither 'modal' nor a block number", "Give a number from 1 up")
        return int(layer), "asked"
    for candidate in dict.fromkeys((view, "ur")):
        reader = f"{METHOD}/{proxy}/{candidate}"
        selected = queries.selected_layers(connection, reader, roster)
        modal = selected.loc[selected["outer_fold"].isna(), "layer"]
        if len(modal):
            return int(modal.iloc[0]), reader
    raise AtlasError(
        f"No block has been selected for {proxy} on {roster}",
        f"Run: python -m jobs evaluate --proxy {proxy} --roster {roster}, or name a block with --layer",
    )


def _signatures(rows: _common.Slice, layer: int) -> list[np.ndarray]:
    """Signatures over all prompts, then over each fold (none below five prompts)."""
    prompts = len(rows.prompt_ids)
    panels = [np.arange(prompts)]
    if prompts >= FOLDS:
        panels += [np.flatnonzero(rows.prompt_folds == fold) for fold in range(FOLDS)]
    return list(signatures(source_means(rows.load(layer), sources=len(rows.sources), prompts=prompts, panels=panels)))


@contextlib.contextmanager
def _timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    seconds[step] = time.perf_counter() - started


def _report(
    chart: Chart, purity: pd.DataFrame, stability: pd.DataFrame, quality: pd.DataFrame, seconds: dict[str, float]
) -> None:
    print(
        f"{METHOD}/{chart.proxy}/{chart.view} on {chart.benchmark}, {chart.roster}: block {chart.layer} "
        f"({chart.layer_from}), {len(chart.rows.sources)} sources x {len(chart.rows.prompt_ids)} prompts"
    )
    for row in purity.itertuples():
        print(
            f"  purity@{row.k}: {row.purity:.3f} [{row.low:.3f}, {row.high:.3f}], chance {row.expectation:.3f}, "
            f"p = {row.p_value:.2g} ({row.sources} sources, {row.families} families)"
        )
    if purity.empty:
        print("  purity: no family has five sources here")
    if len(stability):
        print(
            f"  five prompt subsets against all prompts: Spearman {stability['spearman'].min():.3f} to "
            f"{stability['spearman'].max():.3f}, ten nearest {stability['jaccard'].mean():.3f} in common"
        )
    shown = quality[(quality["metric"] == "trustworthiness_10") & quality["method"].isin(["tsne", "umap", "pca"])]
    print("  trustworthiness: " + ", ".join(f"{r.method} {r.dimensions}-D {r.value:.3f}" for r in shown.itertuples()))
    print("  seconds: " + ", ".join(f"{step} {value:.2f}" for step, value in seconds.items()))
