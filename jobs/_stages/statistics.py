"""Are differences between readers more than chance, and do capable proxies read better? (paper, statistical protocol).

End points of all measured readers on a roster that have kept their log-posteriors are compared in two kinds of tables:
``endpoints/ROSTER`` holds every pair of the paper's readouts and of the baselines; ``controls/ROSTER/PROXY/VIEW`` holds
what else was made of the states that one of the paper's readouts reads, against that. Holm's correction runs within a
table. The same clusters give every reader the intervals of its accuracies. The correlations use published accuracies.
"""

from __future__ import annotations

from itertools import combinations

import duckdb
import pandas as pd

from backend.evaluations.capability import capability_correlations, published_scores
from backend.evaluations.endpoints import accuracy_intervals, cluster_hits, compare_endpoints
from backend.release import Release
from backend.statistics import FLIPS, REPLICATES, SEED
from backend.store.builds import recorded
from backend.store.queries import metric_curve, readers
from backend.store.writers import replace_rows
from jobs import _common
from jobs._common import METHOD
from jobs._stages import Asked
from jobs._stages.baseline_methods import METHODS as BASELINES
from jobs._stages.readers import KeptReader, measured_readers

PUBLISHED_ROSTER = "100-way"


def run(connection: duckdb.DuckDBPyConnection, release: Release, asked: Asked) -> None:
    """Compare all measured readers of every asked roster, whatever their proxy, and correlate capability."""
    for roster in asked.rosters:
        compare(connection, release, asked, roster)
    correlate(connection, release)


def compare(connection: duckdb.DuckDBPyConnection, release: Release, asked: Asked, roster: str) -> None:
    """Write the comparison tables of one roster."""
    rows = _common.slice_of(release, "agent500", asked.proxy, "ur", roster, asked.limit)
    shape = (len(rows.sources) * len(rows.prompt_ids), len(rows.sources))
    known = measured_readers(connection, roster, len(rows.prompt_ids))
    held = [reader for reader in known if (reader.folder / "log_posteriors.npy").exists()]
    if len(held) < len(known):
        absent = ", ".join(reader.reader for reader in known if reader not in held)
        print(f"{roster}: no log-posteriors are kept here of {absent}; they are left out of the comparisons")
    if not held:
        print(f"{roster}: no reader has kept its log-posteriors, there is nothing to compare")
        return
    tables = comparison_tables(held, roster)
    details = {"replicates": REPLICATES, "flips": FLIPS, "readers": [reader.reader for reader in held]}
    with recorded(
        connection,
        stage="statistics",
        command=_common.command_line(),
        data_hash=release.manifest_hash,
        seed=SEED,
        details=details,
    ) as build:
        hits = {r.reader: cluster_hits(r.array("log_posteriors.npy", shape), rows.prompt_folds) for r in held}
        for reader, counts in hits.items():
            intervals = accuracy_intervals(counts)
            for metric, part in intervals.groupby("metric"):
                key = {"reader": reader, "roster": roster, "benchmark": "agent500", "condition": "clean"}
                replace_rows(connection, "attribution_metrics", part, {**key, "metric": metric}, build)
        for hypotheses, pairs in tables.items():
            frame = compare_endpoints(hits, pairs)
            replace_rows(connection, "comparisons", frame, {"hypotheses": hypotheses}, build)
            _report(hypotheses, frame)


def comparison_tables(held: list[KeptReader], roster: str) -> dict[str, list[tuple[str, str]]]:
    """Pairs (subject, reference) of every table; the paper's readout is the reference where one of the two is it."""
    papers = {(r.proxy, r.view): r.reader for r in held if r.method == METHOD}
    tables: dict[str, list[tuple[str, str]]] = {}
    endpoints = []
    for reader in held:
        paper = papers.get((reader.proxy, reader.view))
        if paper is None or reader.method in (METHOD, *BASELINES):
            endpoints.append(reader)
        else:
            tables.setdefault(f"controls/{roster}/{reader.proxy}/{reader.view}", []).append((reader.reader, paper))
    endpoints.sort(key=lambda r: (r.method != METHOD, r.reader))
    pairs = [(second.reader, first.reader) for first, second in combinations(endpoints, 2)]
    return ({f"endpoints/{roster}": pairs} if pairs else {}) | tables


def correlate(connection: duckdb.DuckDBPyConnection, release: Release) -> None:
    """Write the capability scores and, where published accuracies are in the store, their correlations."""
    scores = published_scores()
    for proxy in scores["proxy"].unique():
        _common.describe_proxy(connection, proxy)
    with recorded(
        connection,
        stage="statistics",
        command=_common.command_line(),
        origin="published",
        source_file="backend/proxies/capability.csv",
    ) as build:
        for benchmark, part in scores.groupby("benchmark"):
            replace_rows(connection, "capability_scores", part, {"benchmark": benchmark}, build)
    frame = readers(connection)
    published = frame[(frame["origin"] == "published") & (frame["method"] == METHOD)]
    accuracies = metric_curve(connection, published["reader"].tolist(), PUBLISHED_ROSTER).merge(
        published[["reader", "proxy", "view"]], on="reader"
    )
    correlations = capability_correlations(scores, accuracies)
    if correlations.empty:
        print("Capability: too few published accuracies are in the store. Run: python -m jobs reference")
        return
    with recorded(
        connection,
        stage="statistics",
        command=_common.command_line(),
        data_hash=release.manifest_hash,
        details={"accuracies": "published", "roster": PUBLISHED_ROSTER, "reduction": "pooled"},
    ) as build:
        for subject, part in correlations.groupby("subject"):
            replace_rows(connection, "correlations", part, {"subject": subject}, build)
    shown = correlations[correlations["reference"].isin(["accuracy@1/ur", "accuracy@100/ur"])]
    for row in shown.itertuples():
        print(
            f"{row.subject} and {row.reference}: {row.statistic} {row.value:.3f} (p = {row.p_value:.3f}, n = {row.n})"
        )


def _report(hypotheses: str, frame: pd.DataFrame) -> None:
    significant = int((frame["p_holm"] < 0.05).sum())
    print(f"{hypotheses}: {len(frame)} comparisons, {significant} with Holm-corrected p < 0.05")
