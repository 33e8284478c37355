"""One map: signatures, neighbours, stability, purity, projections, regions, clusters, tree of one reader and roster."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import asdict

import duckdb
import numpy as np
import pandas as pd

from backend.corpus.release import Release
from backend.corpus.stored import describe_proxy, write_release_sources
from backend.geometry.clusters import cluster_frame
from backend.geometry.map_views import Chart
from backend.geometry.neighborhoods import neighbor_frame, neighbor_order, prompt_stability
from backend.geometry.projections import ProjectionSettings
from backend.geometry.purity import PuritySettings, family_purity
from backend.geometry.quality import project_all, sweep
from backend.geometry.regions import family_regions
from backend.geometry.signatures import Float, cosine_similarity, signature_frame, signatures, source_means, unit_rows
from backend.geometry.tree import dendrogram, dendrogram_frame
from backend.protocol import FOLDS
from backend.store import queries
from backend.store.builds import command_line, recorded
from backend.store.writers import replace_rows, write_reader


def make(
    connection: duckdb.DuckDBPyConnection,
    release: Release,
    chart: Chart,
    *,
    with_sweep: bool = False,
    purity_settings: PuritySettings | None = None,
) -> Float:
    """Make one map and write its rows. Returns (S, w), signatures, for comparisons between domains."""
    rows = chart.rows
    if queries.sources(connection, chart.roster).empty:
        write_release_sources(connection, release)
    purity_settings, projection_settings = purity_settings or PuritySettings(), ProjectionSettings()
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
        command=command_line(),
        data_hash=release.manifest_hash,
        proxy_hash=chart.proxy_hash,
        seed=projection_settings.seed,
        details=details,
    ) as build:
        with timed(seconds, "signatures"):
            full, *panels = _signatures(chart)
            cosine = cosine_similarity(full)
        with timed(seconds, "neighbours"):
            pairs = neighbor_frame(cosine, rows.sources)
            tree = dendrogram_frame(dendrogram(cosine))
            stability = prompt_stability(cosine, [cosine_similarity(p) for p in panels], rows.families)
        with timed(seconds, "purity"):
            purity = family_purity(neighbor_order(cosine), rows.families, settings=purity_settings)
        with timed(seconds, "projections"):
            points, quality = project_all(cosine, rows.sources, projection_settings)
            regions, clusters = _regions(points, rows.families), cluster_frame(points)
        if with_sweep:
            with timed(seconds, "sweep"):
                tried = sweep(cosine, rows.families, settings=projection_settings)
                quality = pd.concat([quality, tried], ignore_index=True)
        with timed(seconds, "writing"):
            if chart.proxy is not None:
                describe_proxy(connection, chart.proxy)
            reader = write_reader(connection, method=chart.method, name=chart.title, proxy=chart.proxy, view=chart.view)
            key = {"reader": reader, "roster": chart.roster, "domain": chart.benchmark}
            tables = {
                "signatures": signature_frame(full, rows.sources, chart.layer),
                "neighbors": pairs,
                "dendrogram": tree,
                "prompt_stability": stability,
                "family_purity": purity,
                "projections": points,
                "projection_quality": quality,
                "density_regions": regions,
                "clusters": clusters,
            }
            for table, frame in tables.items():
                replace_rows(connection, table, frame, key, build)
        details["seconds"] = {step: round(value, 2) for step, value in seconds.items()}
    _report(chart, purity, stability, quality, seconds)
    return full


@contextlib.contextmanager
def timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    """Note how long a step took."""
    started = time.perf_counter()
    yield
    seconds[step] = time.perf_counter() - started


def _signatures(chart: Chart) -> list[Float]:
    """Signatures over all prompts, then over each fold (none below five prompts)."""
    rows = chart.rows
    prompts = len(rows.prompt_ids)
    panels = [np.arange(prompts)]
    if prompts >= FOLDS:
        panels += [np.flatnonzero(rows.prompt_folds == fold) for fold in range(FOLDS)]
    means = source_means(chart.features(), sources=len(rows.sources), prompts=prompts, panels=panels)
    return list(signatures(means) if chart.blocks == 2 else unit_rows(means))


def _regions(points: pd.DataFrame, families: list[str]) -> pd.DataFrame:
    """Outlines on every two-dimensional map."""
    frames = [
        family_regions(part[["x", "y"]].to_numpy(dtype=np.float64), families).assign(method=method)
        for method, part in points[points["dimensions"] == 2].groupby("method", sort=False)
    ]
    return pd.concat(frames, ignore_index=True)


def _report(
    chart: Chart, purity: pd.DataFrame, stability: pd.DataFrame, quality: pd.DataFrame, seconds: dict[str, float]
) -> None:
    print(
        f"{chart.reader} on {chart.benchmark}, {chart.roster}: block {chart.layer} "
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
        value = stability.set_index("metric")["value"]
        print(
            f"  five prompt subsets against all prompts: Spearman {value.loc['spearman'].min():.3f} to "
            f"{value.loc['spearman'].max():.3f}, ten nearest {value.loc['jaccard_10'].mean():.3f} in common"
        )
    shown = quality[(quality["metric"] == "trustworthiness_10") & quality["method"].isin(["tsne", "umap", "pca"])]
    print("  trustworthiness: " + ", ".join(f"{r.method} {r.dimensions}-D {r.value:.3f}" for r in shown.itertuples()))
    print("  seconds: " + ", ".join(f"{step} {value:.2f}" for step, value in seconds.items()))
