"""Sources of the release and proxies of the registry as rows of the store."""

from __future__ import annotations

import duckdb
import pandas as pd

from backend.corpus.release import BENCHMARKS, ROSTERS, Release
from backend.proxies.registry import registered
from backend.store.builds import command_line, recorded
from backend.store.writers import write_proxies, write_sources


def write_release_sources(connection: duckdb.DuckDBPyConnection, release: Release) -> None:
    """Write the release's sources, families and rosters once."""
    roster = release.roster("165-way")
    per_source = sum(len(release.prompts(benchmark)) for benchmark in BENCHMARKS)
    with recorded(connection, stage="sources", command=command_line(), data_hash=release.manifest_hash) as build:
        sizes = dict(zip(ROSTERS, release.roster_sizes(), strict=True))
        write_sources(connection, roster, dict.fromkeys(roster["label"], per_source), build, rosters=sizes)


def describe_proxy(connection: duckdb.DuckDBPyConnection, proxy: str) -> None:
    """Write what the registry knows of a proxy, or of several that read together and are joined by '+'."""
    known = registered().get(proxy)
    parts = [registered().get(part) for part in proxy.split("+")]
    name = " + ".join(part.name for part in parts if part) if all(parts) else proxy
    row: dict[str, object] = {"proxy": proxy, "name": name}
    if known:
        row |= {"hub_id": known.hub_id, "package": known.package, "licence": known.licence}
        row |= {"depth": known.depth, "hidden_size": known.hidden_size, "causal": known.causal}
    write_proxies(connection, pd.DataFrame([row]))
