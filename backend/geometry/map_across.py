"""Two domains of one reader: does a source find itself among the signatures of the other domain?"""

from __future__ import annotations

from dataclasses import asdict

import duckdb
import pandas as pd

from backend.corpus.release import Release
from backend.errors import AtlasError
from backend.geometry.domains import cross_domain
from backend.geometry.map_views import Chart
from backend.geometry.maps import timed
from backend.geometry.projections import DIMENSIONS, Method, ProjectionSettings, joint_projection
from backend.geometry.signatures import Float
from backend.store.builds import command_line, recorded
from backend.store.writers import replace_rows

JOINT_METHODS: tuple[Method, ...] = ("tsne", "umap")


def relate_domains(
    connection: duckdb.DuckDBPyConnection, release: Release, query: tuple[Chart, Float], gallery: tuple[Chart, Float]
) -> None:
    """Write retrieval from one domain to the other and the maps that show both.

    query, gallery : maps of one reader and roster in two domains, with their signatures.
    Raises AtlasError if the two were read at different blocks.
    """
    (first, vectors), (second, others) = query, gallery
    if first.layer != second.layer:
        raise AtlasError(
            f"{first.reader} was read at block {first.layer} on {first.benchmark} and at block {second.layer} on "
            f"{second.benchmark}",
            "Name one block for both with --layer",
        )
    settings = ProjectionSettings()
    seconds: dict[str, float] = {}
    details: dict[str, object] = {"layer": first.layer, "sources": len(vectors), "projections": asdict(settings)}
    names = first.rows.sources
    domains = (str(first.benchmark), str(second.benchmark))
    with recorded(
        connection,
        stage="map",
        command=command_line(),
        data_hash=release.manifest_hash,
        proxy_hash=first.proxy_hash,
        seed=settings.seed,
        details=details,
    ) as build:
        with timed(seconds, "retrieval"):
            found = cross_domain(vectors, others, names, first.rows.families)
        with timed(seconds, "projections"):
            points = pd.concat(
                [
                    joint_projection(
                        vectors, others, names, domains, method=method, dimensions=dimensions, settings=settings
                    )
                    for method in JOINT_METHODS
                    for dimensions in DIMENSIONS
                ],
                ignore_index=True,
            )
        key = {"reader": first.reader, "roster": first.roster}
        directed = {**key, "query_domain": domains[0], "gallery_domain": domains[1]}
        replace_rows(connection, "cross_domain", found, directed, build)
        replace_rows(connection, "joint_projections", points, key, build)
        details["seconds"] = {step: round(value, 2) for step, value in seconds.items()}
    _report(first, domains, found, seconds)


def _report(chart: Chart, domains: tuple[str, str], found: pd.DataFrame, seconds: dict[str, float]) -> None:
    print(f"{chart.reader}, {chart.roster}: {domains[0]} signatures among those of {domains[1]}")
    summary = found[found["source"].isna()].pivot(index="variant", columns="metric", values="value")
    for variant in ("raw", "centred"):
        row = summary.loc[variant]
        print(
            f"  {variant}: Top-1 {row['top1']:.3f}, Top-5 {row['top5']:.3f}, MRR {row['mrr']:.3f}, "
            f"wins other {row['wins_other']:.3f}, median cosine {row['cosine_same_median']:.3f} with itself, "
            f"{row['cosine_other_median']:.3f} with others"
        )
    print("  seconds: " + ", ".join(f"{step} {value:.2f}" for step, value in seconds.items()))
