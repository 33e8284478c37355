"""Readers and domains of one roster, from stored maps: agreement, Holm's correction, candidates, retrieval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd

from backend.corpus.release import Benchmark, Release
from backend.errors import AtlasError
from backend.geometry.maps import Chart, timed
from backend.geometry.neighborhoods import (
    HOLM_KS,
    PAPER_PAIRS,
    holm_over_readers,
    pair_ranks,
    passing_pairs,
    rank_rule,
    reader_agreement,
)
from backend.geometry.projections import DIMENSIONS, Method, ProjectionSettings, cluster_frame, joint_projection
from backend.geometry.signatures import Float, cross_domain
from backend.protocol import READER_PAPER
from backend.store import queries
from backend.store.writers import StageRows, replace_rows, stage_rows

PUBLISHED_RANKS = Path("results") / "geometry" / "agent500" / "cross_provider_ranks.csv"
PUBLISHED_FOR = ("100-way", "agent500")  # Roster and domain that the paper ranked its candidates on
PURITY_COLUMNS = ["reader", "k", "purity", "expectation", "p_value", "low", "high", "sources", "families", "build_id"]
RANK_COLUMNS = ["reader", "role", "left", "right", "left_to_right", "right_to_left", "mutual_rank", "cosine"]
ROLES = ("reader-r", "reader-ur")
"""Sets of readers that the rule is applied to, one proxy each; the paper's view comes first."""
NAMED = 50  # Passing pairs of different families that a build's details name
Pair = tuple[str, str]
JOINT_METHODS: tuple[Method, ...] = ("tsne", "umap")


def compare(
    connection: duckdb.DuckDBPyConnection, release: Release, roster: str, domain: Benchmark, pairs: Sequence[Pair] = ()
) -> None:
    """Compare all measured readers of a roster and domain, with the release's published ranks, and write the results.

    ``pairs`` are compared in addition to the paper's. Raises AtlasError if a pair names a source that the roster does
    not have, or there is no map to compare.
    """
    members = queries.sources(connection, roster)
    names, families = members["source"].tolist(), members["family"].tolist()
    for pair in pairs:
        if unknown := [source for source in pair if source not in names]:
            raise AtlasError(f"{roster} has no source '{unknown[0]}'", "Name sources by their label in the roster")
        if pair[0] == pair[1]:
            raise AtlasError(f"'{pair[0]}' is asked to be compared with itself", "Name two different sources")
    cosines = stored_cosines(connection, roster, domain, names)
    if not cosines:
        raise AtlasError(f"There is no map of {domain} on {roster}", f"Run: python -m jobs map --roster {roster}")
    requested = [pair for pair in PAPER_PAIRS if set(pair) <= set(names)]
    requested += [pair for pair in pairs if pair not in requested and pair[::-1] not in requested]
    details: dict[str, object] = {"roster": roster, "domain": domain, "readers": sorted(cosines)}
    print(f"{len(cosines)} measured readers on {domain}, {roster}")
    key = {"roster": roster, "domain": domain}
    with stage_rows(connection, "compare", details, release.manifest_hash, key=key) as build:
        agreement = reader_agreement(cosines)
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
                found = passing_pairs(voters, names, families)
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
    ranks = {reader: pair_ranks(cosine, names, pairs) for reader, cosine in cosines.items()}
    frames = [part.assign(reader=reader, role=roles[reader]) for reader, part in ranks.items()]
    return pd.concat(frames, ignore_index=True)[RANK_COLUMNS]


def published_ranks(root: Path, pairs: Sequence[Pair]) -> pd.DataFrame:
    """Ranks of the paper's pairs under its eight proxies in view r, as 'published-main' or 'published-full', if any."""
    path = root / PUBLISHED_RANKS
    if not path.is_file():
        return pd.DataFrame(columns=RANK_COLUMNS)
    table = pd.read_csv(path)
    names = {"reader": "proxy", "left": "left_label", "right": "right_label", "mutual_rank": "mutual_rank"}
    names |= {way: f"{way}_rank" for way in ("left_to_right", "right_to_left")}
    frame = pd.DataFrame({column: table[name] for column, name in names.items()})
    frame = frame.assign(role="published-" + table["role"], cosine=1.0 - table["cosine_distance"])[RANK_COLUMNS]
    needed = [pair in set(pairs) for pair in zip(frame["left"], frame["right"], strict=True)]
    return frame[needed].reset_index(drop=True)


def candidate_rules(ranks: pd.DataFrame) -> pd.DataFrame:
    """The rule over sets of proxies, from :func:`candidate_ranks`; baselines have ranks, but no vote.

    Returns column over and those of ``rank_rule``. Sets are 'published-main' (the paper's four), 'published' (its
    eight), 'reader-r' and 'reader-ur' (measured proxies in a view), 'published and reader-r' (the same view); those
    without a reader are absent.
    """
    published, ours = ranks["role"].str.startswith("published"), ranks["role"] == ROLES[0]
    sets = {
        "published-main": ranks["role"] == "published-main",
        "published": published,
        **{role: ranks["role"] == role for role in ROLES},
        f"published and {ROLES[0]}": (published | ours) & bool(published.any() and ours.any()),
    }
    frames = [rank_rule(ranks[chosen]).assign(over=name) for name, chosen in sets.items() if chosen.any()]
    return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=["over"])


def _correct(connection: duckdb.DuckDBPyConnection, roster: str, domain: str, readers: Sequence[str]) -> pd.DataFrame:
    """Write Holm's correction over measured readers x k in {1, 5}; the rows stay with the build of their map."""
    purity = queries.family_purity(connection, roster, domain)
    purity = purity.loc[purity["reader"].isin(list(readers)), PURITY_COLUMNS].reset_index(drop=True)
    purity["p_holm"] = holm_over_readers(purity)
    for reader, part in purity.groupby("reader"):
        key = {"reader": reader, "roster": roster, "domain": domain}
        for build, rows in part.groupby("build_id"):
            replace_rows(connection, "family_purity", rows, {**key, "build_id": build}, str(build))
    return purity


def _report_rules(purity: pd.DataFrame, rules: pd.DataFrame) -> None:
    tested = purity[purity["p_holm"].notna()]
    if len(tested):
        sizes, largest = ", ".join(map(str, HOLM_KS)), tested["p_holm"].max()
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
            found = cross_domain(vectors, others, names, first.rows.families)
        with timed(seconds, "projections"):
            frames = [
                joint_projection(
                    vectors, others, names, domains, method=method, dimensions=dimensions, settings=settings
                )
                for method in JOINT_METHODS
                for dimensions in DIMENSIONS
            ]
            points = pd.concat(frames, ignore_index=True)
        build.replace("cross_domain", found, query_domain=domains[0], gallery_domain=domains[1])
        build.replace("joint_projections", points)
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
