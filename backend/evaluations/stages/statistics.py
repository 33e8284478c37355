"""Paired comparisons of readers, and correlations with the capability of proxies (paper, statistical protocol).

``endpoints/ROSTER`` holds every pair of the paper's readouts and of the baselines; ``ngrams/ROSTER`` every other
readout against word n-grams (its own stage compares it with the paper's). ``temporal/ROSTER/PROXY/VIEW`` holds the
temporal forms and poolings against two DCT modes at their one block; ``controls/ROSTER/PROXY/VIEW`` components and
compressions against the paper's readout, whose block of every fold they share. Holm's correction runs within a table.
The correlations use published accuracies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import resources
from itertools import combinations
from typing import Any

import duckdb
import pandas as pd
from scipy.stats import pearsonr, spearmanr

from backend.corpus.release import Release
from backend.corpus.roster_rows import describe_proxy
from backend.evaluations.artifacts import CLEAN_FILE
from backend.evaluations.attribution import cluster_hits, compare_endpoints
from backend.evaluations.stages import EvaluateOptions
from backend.evaluations.stages.controls import AT_ONE_BLOCK, NAMES, TWO_MODES
from backend.evaluations.stages.roster_run import MeasuredReader, RosterRun
from backend.methods.registry import BASELINES
from backend.protocol import READER_PAPER
from backend.statistics import FLIPS, REPLICATES, SEED
from backend.store.queries import metric_curve, readers, selected_layers
from backend.store.result_queries import comparison_sets
from backend.store.writers import stage_rows

BENCHMARKS = {"mmlu_pro": "MMLU-Pro", "gpqa_diamond": "GPQA-Diamond"}  # Columns of the table and names for people
STATISTICS: Mapping[str, Callable[..., Any]] = {"pearson": pearsonr, "spearman": spearmanr}
SMALLEST = 3  # Proxies below which a correlation says nothing
PUBLISHED_ROSTER = "100-way"
SIMPLE = "ngram-word"  # The method without a model that other readouts have to beat as well
Pairs = list[tuple[str, str]]


def published_scores() -> pd.DataFrame:
    """Capability scores of the published proxies, as the paper gives them (Capability Correlations).

    MMLU-Pro is by the paper's authors (5-shot chain of thought, temperature zero, thinking off), GPQA-Diamond by
    Artificial Analysis (https://artificialanalysis.ai/evaluations/gpqa-diamond, non-reasoning setting).

    Returns columns proxy, benchmark, score (percent); one row a proxy and benchmark.
    """
    with resources.files("backend.proxies").joinpath("capability.csv").open("rb") as stream:
        table = pd.read_csv(stream).rename(columns={"tag": "proxy", **BENCHMARKS})
    scores = table.melt("proxy", list(BENCHMARKS.values()), "benchmark", "score")
    return scores.assign(score=100 * scores["score"])


def capability_correlations(scores: pd.DataFrame, accuracies: pd.DataFrame) -> pd.DataFrame:
    """Correlate capability with accuracy over proxies.

    scores : Columns proxy, benchmark, score; accuracies : Columns proxy, view, k, value.
    Returns columns subject (the benchmark), reference ('accuracy@K/view'), statistic ('pearson' or 'spearman'), value,
    p_value (two-sided), n (proxies that have both). Where fewer than three proxies have both, or all have the same
    value, there is no row.
    """
    both = accuracies.merge(scores, on="proxy")
    rows = []
    for (benchmark, view, k), part in both.groupby(["benchmark", "view", "k"]):
        if len(part) < SMALLEST or part["score"].nunique() < 2 or part["value"].nunique() < 2:
            continue
        for statistic, correlate in STATISTICS.items():
            result, reference = correlate(part["score"], part["value"]), f"accuracy@{k}/{view}"
            rows.append((benchmark, reference, statistic, float(result.statistic), float(result.pvalue), len(part)))
    return pd.DataFrame(rows, columns=["subject", "reference", "statistic", "value", "p_value", "n"])


def run(connection: duckdb.DuckDBPyConnection, release: Release, options: EvaluateOptions) -> None:
    """Compare all measured readers of every roster, whatever their proxy, and correlate capability."""
    for roster in options.rosters:
        compare(RosterRun(connection, release, roster, options.limit), options.proxy)
    correlate(connection, release)


def compare(run: RosterRun, proxy: str) -> None:
    """Write the comparison tables of one roster."""
    roster, rows = run.roster, run.rows(proxy)
    known = run.measured_readers()
    available = [reader for reader in known if reader.scored]
    if len(available) < len(known):
        absent = ", ".join(reader.reader for reader in known if not reader.scored)
        print(f"{roster}: no log-posteriors are here of {absent}; they are skipped in the comparisons")
    if not available:
        print(f"{roster}: no log-posteriors of a reader are here, there is nothing to compare")
        return
    blocks = {reader.reader: blocks_of(run.connection, reader.reader, roster) for reader in available}
    tables = comparison_tables(available, roster, blocks)
    stale = stale_tables(comparison_sets(run.connection), tables, available, roster)
    written = {name for name in (*tables, *stale) if run.comparable(name)}
    for reader in unmatched(available, blocks):
        print(f"{roster}: {missing_reference(reader, roster, blocks[reader.reader])}")
    details = {"replicates": REPLICATES, "flips": FLIPS, "readers": [reader.reader for reader in available]}
    shape = (len(rows.labels), len(rows.sources))
    with run.build("statistics", details, seed=SEED) as build:
        hits = {r.reader: cluster_hits(r.array(CLEAN_FILE, shape), rows.prompt_folds) for r in available}
        for hypotheses in written.intersection(stale):
            build.replace("comparisons", compare_endpoints(hits, []), hypotheses=hypotheses)
        for hypotheses, pairs in tables.items():
            if hypotheses not in written:
                continue
            frame = compare_endpoints(hits, pairs)
            build.replace("comparisons", frame, hypotheses=hypotheses)
            significant = int((frame["p_holm"] < 0.05).sum())
            print(f"{hypotheses}: {len(frame)} comparisons, {significant} with Holm-corrected p < 0.05")


def blocks_of(connection: duckdb.DuckDBPyConnection, reader: str, roster: str) -> tuple[int, ...]:
    """Block that a reader reads at in every outer fold; empty for readers without blocks."""
    chosen = selected_layers(connection, reader, roster).dropna(subset="outer_fold").sort_values("outer_fold")
    return tuple(int(layer) for layer in chosen["layer"])


def comparison_tables(
    available: list[MeasuredReader], roster: str, blocks: Mapping[str, tuple[int, ...]]
) -> dict[str, Pairs]:
    """Pairs (subject, reference) of every table; blocks : See :func:`blocks_of`."""
    known = {reader.reader for reader in available}
    endpoints = [r for r in available if r.method in (READER_PAPER, *BASELINES)]
    endpoints.sort(key=lambda r: (r.method != READER_PAPER, r.reader))
    pairs = [(second.reader, first.reader) for first, second in combinations(endpoints, 2)]
    tables: dict[str, Pairs] = {f"endpoints/{roster}": pairs} if pairs else {}
    grams = next((r.reader for r in endpoints if r.method == SIMPLE), None)
    for reader in available:
        if reader.method in NAMES:
            reference = matched(reader, known, blocks)
            kind = "temporal" if reader.method in AT_ONE_BLOCK else "controls"
            if reference is not None and reader.method != TWO_MODES:
                name = f"{kind}/{roster}/{reader.proxy}/{reader.view}"
                tables.setdefault(name, []).append((reader.reader, reference))
        elif reader.method not in (READER_PAPER, *BASELINES) and grams is not None:
            tables.setdefault(f"ngrams/{roster}", []).append((reader.reader, grams))
    return tables


def matched(reader: MeasuredReader, known: set[str], blocks: Mapping[str, tuple[int, ...]]) -> str | None:
    """The paper's representation of the same states at a control's blocks: two DCT modes there, or its readout."""
    for method in (TWO_MODES, READER_PAPER) if reader.method in AT_ONE_BLOCK else (READER_PAPER,):
        reference = f"{method}/{reader.proxy}/{reader.view}"
        if reference in known and blocks[reference] and blocks[reference] == blocks[reader.reader]:
            return reference
    return None


def unmatched(available: list[MeasuredReader], blocks: Mapping[str, tuple[int, ...]]) -> list[MeasuredReader]:
    """Controls without a reference at their blocks."""
    known = {reader.reader for reader in available}
    return [r for r in available if r.method in NAMES and r.method != TWO_MODES and matched(r, known, blocks) is None]


def missing_reference(reader: MeasuredReader, roster: str, blocks: tuple[int, ...]) -> str:
    """Message about a control without a reference."""
    command = f"python -m jobs evaluate --stage controls --proxy {reader.proxy} --view {reader.view} --roster {roster}"
    problem, options = "was fitted at other blocks than the paper's readout", f"--method {reader.method}"
    if reader.method in AT_ONE_BLOCK and blocks:
        problem = f"stands at block {blocks[0]}, and two DCT modes there are missing"
        options = f"--method {TWO_MODES} --layers {blocks[0]}"
    return f"{reader.reader} {problem}; it is skipped in the comparisons. Run: {command} {options}"


def stale_tables(
    stored: list[str], tables: Mapping[str, Pairs], available: list[MeasuredReader], roster: str
) -> list[str]:
    """Tables of an earlier run about the readers at hand that this run does not write again."""
    about = {f"{kind}/{roster}/{r.proxy}/{r.view}" for kind in ("temporal", "controls") for r in available}
    return [name for name in stored if name in about and name not in tables]


def correlate(connection: duckdb.DuckDBPyConnection, release: Release) -> None:
    """Write the capability scores and, where published accuracies are in the store, their correlations."""
    scores = published_scores()
    for proxy in scores["proxy"].unique():
        describe_proxy(connection, proxy)
    with stage_rows(
        connection, "statistics", origin="published", source_file="backend/proxies/capability.csv"
    ) as build:
        for benchmark, part in scores.groupby("benchmark"):
            build.replace("capability_scores", part, benchmark=benchmark)
    frame = readers(connection)
    published = frame[(frame["origin"] == "published") & (frame["method"] == READER_PAPER)]
    accuracies = metric_curve(connection, published["reader"].tolist(), PUBLISHED_ROSTER).merge(
        published[["reader", "proxy", "view"]], on="reader"
    )
    correlations = capability_correlations(scores, accuracies)
    if correlations.empty:
        print("Capability: too few published accuracies are in the store. Run: python -m jobs reference")
        return
    details = {"accuracies": "published", "roster": PUBLISHED_ROSTER, "reduction": "pooled"}
    with stage_rows(connection, "statistics", details, data_hash=release.manifest_hash) as build:
        for subject, part in correlations.groupby("subject"):
            build.replace("correlations", part, subject=subject)
    shown = correlations[correlations["reference"].isin(["accuracy@1/ur", "accuracy@100/ur"])]
    for row in shown.itertuples():
        print(
            f"{row.subject} and {row.reference}: {row.statistic} {row.value:.3f} (p = {row.p_value:.3f}, n = {row.n})"
        )
