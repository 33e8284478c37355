"""Are differences between readers more than chance, and do capable proxies read better? (paper, statistical protocol).

End points of all measured readers on a roster that have kept their log-posteriors are compared in four kinds of
tables: ``endpoints/ROSTER`` holds every pair of the paper's readouts and of the baselines; ``ngrams/ROSTER`` every
other readout against word n-grams (its own stage compares it with the paper's). ``temporal/ROSTER/PROXY/VIEW`` holds
the temporal forms and poolings, which stand at one block, against two DCT modes at that block;
``controls/ROSTER/PROXY/VIEW`` components and compressions against the paper's readout, whose block of every fold they
share. A control without a reference at its blocks is named and left out. Holm's correction runs within a table. The
correlations use published accuracies.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

import duckdb
import pandas as pd

from backend.corpus.release import Release
from backend.corpus.roster_rows import slice_of
from backend.corpus.stored import describe_proxy
from backend.evaluations.capability import capability_correlations, published_scores
from backend.evaluations.endpoints import cluster_hits, compare_endpoints
from backend.evaluations.stages import EvaluateOptions
from backend.evaluations.stages.controls import AT_ONE_BLOCK, NAMES, TWO_MODES
from backend.evaluations.stages.readers import KeptReader, comparable, measured_readers
from backend.methods.registry import BASELINES
from backend.protocol import READER_PAPER
from backend.statistics import FLIPS, REPLICATES, SEED
from backend.store.builds import command_line, recorded
from backend.store.queries import metric_curve, readers, selected_layers
from backend.store.result_queries import comparison_sets
from backend.store.writers import replace_rows

PUBLISHED_ROSTER = "100-way"
SIMPLE = "ngram-word"
"""The method without a model that other readouts have to beat as well."""
Pairs = list[tuple[str, str]]


def run(connection: duckdb.DuckDBPyConnection, release: Release, options: EvaluateOptions) -> None:
    """Compare all measured readers of every asked roster, whatever their proxy, and correlate capability."""
    for roster in options.rosters:
        compare(connection, release, options, roster)
    correlate(connection, release)


def compare(connection: duckdb.DuckDBPyConnection, release: Release, options: EvaluateOptions, roster: str) -> None:
    """Write the comparison tables of one roster."""
    rows = slice_of(release, "agent500", options.proxy, "ur", roster, options.limit)
    shape = (len(rows.sources) * len(rows.prompt_ids), len(rows.sources))
    known = measured_readers(connection, roster, len(rows.prompt_ids))
    held = [reader for reader in known if (reader.folder / "log_posteriors.npy").exists()]
    if len(held) < len(known):
        absent = ", ".join(reader.reader for reader in known if reader not in held)
        print(f"{roster}: no log-posteriors are kept here of {absent}; they are left out of the comparisons")
    if not held:
        print(f"{roster}: no reader has kept its log-posteriors, there is nothing to compare")
        return
    blocks = {reader.reader: blocks_of(connection, reader.reader, roster) for reader in held}
    tables = comparison_tables(held, roster, blocks)
    stale = stale_tables(comparison_sets(connection), tables, held, roster)
    prompts = len(rows.prompt_ids)
    written = {name for name in (*tables, *stale) if comparable(connection, name, roster, prompts)}
    for reader in unmatched(held, blocks):
        print(f"{roster}: {missing_reference(reader, roster, blocks[reader.reader])}")
    details = {"replicates": REPLICATES, "flips": FLIPS, "readers": [reader.reader for reader in held]}
    with recorded(
        connection,
        stage="statistics",
        command=command_line(),
        data_hash=release.manifest_hash,
        seed=SEED,
        details=details,
    ) as build:
        hits = {r.reader: cluster_hits(r.array("log_posteriors.npy", shape), rows.prompt_folds) for r in held}
        for hypotheses in written.intersection(stale):
            replace_rows(connection, "comparisons", compare_endpoints(hits, []), {"hypotheses": hypotheses}, build)
        for hypotheses, pairs in tables.items():
            if hypotheses not in written:
                continue
            frame = compare_endpoints(hits, pairs)
            replace_rows(connection, "comparisons", frame, {"hypotheses": hypotheses}, build)
            _report(hypotheses, frame)


def blocks_of(connection: duckdb.DuckDBPyConnection, reader: str, roster: str) -> tuple[int, ...]:
    """Block that a reader reads at in every outer fold; empty for readers without blocks."""
    chosen = selected_layers(connection, reader, roster).dropna(subset="outer_fold").sort_values("outer_fold")
    return tuple(int(layer) for layer in chosen["layer"])


def comparison_tables(held: list[KeptReader], roster: str, blocks: Mapping[str, tuple[int, ...]]) -> dict[str, Pairs]:
    """Pairs (subject, reference) of every table; the paper's readout is the reference where one of the two is it.

    Parameters
    ----------
    held : list of KeptReader
    roster : str
    blocks : mapping of reader to tuple of int
        Block of every outer fold (see :func:`blocks_of`).
    """
    known = {reader.reader for reader in held}
    endpoints = [r for r in held if r.method in (READER_PAPER, *BASELINES)]
    endpoints.sort(key=lambda r: (r.method != READER_PAPER, r.reader))
    pairs = [(second.reader, first.reader) for first, second in combinations(endpoints, 2)]
    tables: dict[str, Pairs] = {f"endpoints/{roster}": pairs} if pairs else {}
    grams = next((r.reader for r in endpoints if r.method == SIMPLE), None)
    for reader in held:
        if reader.method in NAMES:
            reference = matched(reader, known, blocks)
            kind = "temporal" if reader.method in AT_ONE_BLOCK else "controls"
            if reference is not None and reader.method != TWO_MODES:
                name = f"{kind}/{roster}/{reader.proxy}/{reader.view}"
                tables.setdefault(name, []).append((reader.reader, reference))
        elif reader.method not in (READER_PAPER, *BASELINES) and grams is not None:
            tables.setdefault(f"ngrams/{roster}", []).append((reader.reader, grams))
    return tables


def matched(reader: KeptReader, known: set[str], blocks: Mapping[str, tuple[int, ...]]) -> str | None:
    """What a control is compared with: the paper's representation of the same states at the same blocks, if held.

    Two DCT modes at one block are that representation; so is the paper's readout, where its folds chose that block.
    """
    for method in (TWO_MODES, READER_PAPER) if reader.method in AT_ONE_BLOCK else (READER_PAPER,):
        reference = f"{method}/{reader.proxy}/{reader.view}"
        if reference in known and blocks[reference] and blocks[reference] == blocks[reader.reader]:
            return reference
    return None


def unmatched(held: list[KeptReader], blocks: Mapping[str, tuple[int, ...]]) -> list[KeptReader]:
    """Controls that nothing is held for at their blocks."""
    known = {reader.reader for reader in held}
    return [r for r in held if r.method in NAMES and r.method != TWO_MODES and matched(r, known, blocks) is None]


def missing_reference(reader: KeptReader, roster: str, blocks: tuple[int, ...]) -> str:
    """What to say of a control without a reference."""
    command = f"python -m jobs evaluate --stage controls --proxy {reader.proxy} --view {reader.view} --roster {roster}"
    if reader.method in AT_ONE_BLOCK and blocks:
        return (
            f"{reader.reader} stands at block {blocks[0]}, and two DCT modes there are not held; it is left out of the "
            f"comparisons. Run: {command} --method {TWO_MODES} --layers {blocks[0]}"
        )
    return (
        f"{reader.reader} was made at other blocks than the paper's readout; it is left out of the comparisons. "
        f"Run: {command} --method {reader.method}"
    )


def stale_tables(stored: list[str], tables: Mapping[str, Pairs], held: list[KeptReader], roster: str) -> list[str]:
    """Tables of an earlier run about the readers at hand that this run does not write again."""
    about = {f"{kind}/{roster}/{r.proxy}/{r.view}" for kind in ("temporal", "controls") for r in held}
    return [name for name in stored if name in about and name not in tables]


def correlate(connection: duckdb.DuckDBPyConnection, release: Release) -> None:
    """Write the capability scores and, where published accuracies are in the store, their correlations."""
    scores = published_scores()
    for proxy in scores["proxy"].unique():
        describe_proxy(connection, proxy)
    with recorded(
        connection,
        stage="statistics",
        command=command_line(),
        origin="published",
        source_file="backend/proxies/capability.csv",
    ) as build:
        for benchmark, part in scores.groupby("benchmark"):
            replace_rows(connection, "capability_scores", part, {"benchmark": benchmark}, build)
    frame = readers(connection)
    published = frame[(frame["origin"] == "published") & (frame["method"] == READER_PAPER)]
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
        command=command_line(),
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
