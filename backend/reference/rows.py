"""Published rows on their way to the store: tidy, each with its file, and no number twice.

The release repeats numbers (clean attribution stands in three files a proxy). A repetition that agrees is one row; one
that differs is kept out and said, because only one number can stand in one place.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from backend.protocol import READER_PAPER
from backend.reference.files import Node

NAMES: Mapping[str, Any] = tomllib.loads(Path(__file__).with_name("names.toml").read_text("utf-8"))
ROSTER = "100-way"
MAIN = ("llama31_8b_instruct", "gemma4_12b", "ministral3_8b", "qwen35_9b")  # The paper's four main proxies.
PROXIES = (*MAIN, "olmo3_7b_instruct", "qwen3_8b", "qwen3_32b", "qwen35_27b")
ENCODERS: Mapping[str, tuple[str, str]] = {
    "mpnet": ("mpnet", "all-mpnet-base-v2"),
    "bge": ("bge-large", "BGE-large-en-v1.5"),
    "qwen3emb": ("qwen3-embedding-8b", "Qwen3-Embedding-8B"),
}
"""Sentence encoders by their name in the files: tag, and name for people."""
VARIANCES = ("source_variance", "prompt_variance", "residual_variance")
ACCURACIES = ("accuracy", "macro_f1")
METRICS = {"accuracy": "accuracy", "macro_f1": "macro_f1", "nll": "nll_mean", "ece": "ece_mean"}
"""Names in the files and in the store; the release normalises the mean log-posterior."""
SAME = 2e-6  # The release rounds some repeated numbers to single precision.

IDENTITY: Mapping[str, tuple[str, ...]] = {
    "attribution_metrics": ("reader", "roster", "benchmark", "condition", "k", "reduction", "metric", "seed", "fold"),
    "source_f1": ("reader", "roster", "benchmark", "condition", "k", "source"),
    "layer_scores": ("reader", "roster", "outer_fold", "inner_fold", "layer"),
    "layer_selection": ("reader", "roster", "outer_fold"),
    "variance_ratios": ("reader", "roster", "block", "fold"),
    "mixture_weights": ("reader", "roster", "fold", "head", "mode"),
    "relationship_features": ("reader", "pair_set", "pair_id", "feature"),
    "relationship_metrics": ("reader", "protocol", "readout", "metric", "split"),
    "comparisons": ("hypotheses", "subject", "reference", "measure"),
    "costs": ("reader", "roster", "measure", "hardware"),
    "family_purity": ("reader", "roster", "domain", "k"),
    "reader_agreement": ("reader", "other", "roster", "domain", "metric"),
    "prompt_stability": ("reader", "roster", "domain", "fold", "metric"),
    "pair_ranks": ("reader", "roster", "domain", "source", "neighbor"),
    "projections": ("reader", "roster", "domain", "method", "dimensions", "source"),
    "projection_quality": ("reader", "roster", "domain", "method", "dimensions", "metric", "settings"),
    "cross_domain": ("reader", "roster", "variant", "query_domain", "gallery_domain", "source", "metric"),
    "joint_projections": ("reader", "roster", "variant", "method", "dimensions", "domain", "source"),
    "paper_values": ("place", "row_name", "column_name"),
}
"""What a row of a table is about."""


@dataclass(frozen=True)
class PublishedReader:
    """A reader that somebody else measured."""

    reader: str  # method/proxy/view without absent parts
    method: str
    name: str  # for people
    proxy: str | None = None
    proxy_name: str | None = None
    view: str | None = None


@dataclass
class Collected:
    """Rows of all tables as they are read, by identity."""

    readers: dict[str, PublishedReader] = field(default_factory=dict)
    rows: dict[str, dict[tuple[object, ...], dict[str, object]]] = field(default_factory=dict)
    differing: list[str] = field(default_factory=list)  # repeated numbers that do not agree, a sentence each

    def reader(self, method: str, proxy: str | None = None, view: str | None = None) -> str:
        """Enter a reader; for an encoder by its name in the files, the proxy gets its own tag."""
        proxy, proxy_name = ENCODERS.get(proxy or "", (proxy, None))
        reader = "/".join(part for part in (method, proxy, view) if part is not None)
        shown = "READER" if method == READER_PAPER else method
        name = " · ".join(part for part in (shown, proxy_name or proxy, view) if part is not None)
        self.readers.setdefault(reader, PublishedReader(reader, method, name, proxy, proxy_name, view))
        return reader

    def add(self, table: str, file: str, **row: object) -> None:
        """Enter a row, unless the same one is there."""
        identity = tuple(row.get(name) for name in IDENTITY[table])
        held = self.rows.setdefault(table, {}).setdefault(identity, {**row, "source_file": file})
        for name, value in row.items():
            before = held.get(name)
            if isinstance(value, float) and isinstance(before, float):
                if not math.isclose(value, before, rel_tol=SAME, abs_tol=SAME):
                    about = ", ".join(str(part) for part in identity if part is not None)
                    self.differing.append(
                        f"{table} ({about}): {name} is {before:.6g} in {held['source_file']}, {value:.6g} in {file}"
                    )
            elif value is not None and before is None:
                held[name] = value

    def metric(self, file: str, reader: str, value: float | None, n: float, **about: object) -> None:
        """Enter a number of attribution; None (NaN in the file) is left out."""
        if value is not None:
            empty: dict[str, object] = {"roster": ROSTER, "seed": None, "fold": None, "std": None}
            self.add("attribution_metrics", file, reader=reader, value=value, n=int(n), **{**empty, **about})

    def frame(self, table: str) -> pd.DataFrame:
        """Rows of a table with their file in ``source_file``."""
        frame = pd.DataFrame(list(self.rows.get(table, {}).values()))
        counted = [name for name in ("seed", "fold", "outer_fold", "split") if name in frame]
        return frame.astype(dict.fromkeys(counted, "Int64"))


def at(k: int, reduction: str, benchmark: str = "agent500", condition: str = "clean") -> dict[str, Any]:
    """What a number of attribution is about."""
    return {"benchmark": benchmark, "condition": condition, "k": k, "reduction": reduction}


def condition_of(name: str) -> tuple[str, str]:
    """Benchmark and condition of an external evaluation; the release groups over all folds at once."""
    return ("math100", "clean") if name == "math100" else ("agent500", f"{name.replace('length', 't')}-global")


def add_budgets(
    into: Collected,
    reader: str,
    part: Node,
    benchmark: str = "agent500",
    condition: str = "clean",
    names: tuple[str, str] = ("metrics_by_grouping_seed", "metrics_across_grouping_seeds"),
) -> None:
    """Budget curves of one condition: every grouping seed, and the summary over them.

    names : Where ``part`` has ``{seed: {K: {accuracy, macro_f1, nll, ece, n_fingerprints}}}`` and ``{K: {accuracy_mean,
        accuracy_std, ...}}``; the latter is computed from the seeds where a name that is not the usual one is missing.
    """
    by_seed = part[names[0]]
    across = part[names[1]] if names[1] in part or names[1].startswith("metrics") else None
    values: dict[tuple[int, str], list[float]] = {}
    counts: dict[int, float] = {}
    for seed, budgets in by_seed.items():
        for budget, cell in budgets.items():
            k = int(budget)
            counts.setdefault(k, cell.required("n_fingerprints"))
            cell.number("K")
            cell.number("n_fingerprints")
            for name, metric in METRICS.items():
                value = cell.number(name)
                if value is not None:
                    values.setdefault((k, metric), []).append(value)
                about = at(k, "pooled", benchmark, condition)
                into.metric(by_seed.file, reader, value, counts[k], metric=metric, seed=int(seed), **about)
    for (k, metric), spread in values.items():
        mean, std = float(np.mean(spread)), float(np.std(spread))
        name = next(ours for ours, theirs in METRICS.items() if theirs == metric)
        if across is not None:
            cell = across[str(k)]
            mean, std = cell.number(f"{name}_mean") or mean, cell.required(f"{name}_std")
        about = at(k, "pooled", benchmark, condition)
        into.metric(by_seed.file, reader, mean, counts[k], std=std, metric=metric, **about)


def add_external(into: Collected, reader: str, part: Node) -> None:
    """Budget curves of every evaluation on other traces."""
    for name, shifted in part["external_evaluations"].items():
        add_budgets(into, reader, shifted, *condition_of(name))


def add_folds(into: Collected, reader: str, budgets: Node, benchmark: str) -> None:
    """End points fold by fold, with mean and spread over the folds.

    budgets : ``{K: {accuracy_mean, accuracy_std_across_folds, per_fold: [{fold, metrics: {K: ...}}]}}``.
    """
    for budget, cell in budgets.items():
        about, total = at(int(budget), "fold", benchmark), 0.0
        for part in cell["per_fold"].parts():
            number, group = int(part.required("fold")), part["metrics"][budget]
            total += group.required("n_fingerprints")
            _add_cell(into, reader, group, fold=number, **about)
            if "by_grouping_seed" in group:
                for seed, one in group["by_grouping_seed"].items():
                    _add_cell(into, reader, one, spread=False, seed=int(seed), fold=number, **about)
        for metric in ACCURACIES:
            mean, std = cell.required(f"{metric}_mean"), cell.required(f"{metric}_std_across_folds")
            into.metric(budgets.file, reader, mean, total, std=std, metric=metric, **about)


def add_ensemble(into: Collected, reader: str, budgets: Node, benchmark: str) -> None:
    """Numbers of the ensemble of the fold models (mean log-posterior), pooled.

    budgets : ``{K: {accuracy, accuracy_grouping_std, by_grouping_seed: ...}}``.
    """
    for budget, cell in budgets.items():
        about = at(int(budget), "pooled", benchmark)
        _add_cell(into, reader, cell, **about)
        for seed, group in cell["by_grouping_seed"].items():
            _add_cell(into, reader, group, spread=False, seed=int(seed), **about)


def _add_cell(into: Collected, reader: str, cell: Node, *, spread: bool = True, **about: object) -> None:
    """Accuracy and macro-F1 of a cell, with their spread over the grouping seeds."""
    n = cell.required("n_fingerprints")
    for metric in ACCURACIES:
        std = cell.number(f"{metric}_grouping_std") if spread else None
        into.metric(cell.file, reader, cell.required(metric), n, std=std, metric=metric, **about)
