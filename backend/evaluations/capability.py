"""Does a more capable proxy read stronger evidence? (paper, Capability Correlations Across Query Budgets).

Published general-capability scores of the paper's eight proxies, against the accuracy that each reaches. The table
``backend/proxies/capability.csv`` holds the scores as the paper gives them: MMLU-Pro by the paper's authors (5-shot
chain of thought, temperature zero, thinking off), GPQA-Diamond by Artificial Analysis
(https://artificialanalysis.ai/evaluations/gpqa-diamond, non-reasoning setting).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any

import pandas as pd
from scipy.stats import pearsonr, spearmanr

BENCHMARKS = {"mmlu_pro": "MMLU-Pro", "gpqa_diamond": "GPQA-Diamond"}
"""Columns of the table and names for people."""
STATISTICS: Mapping[str, Callable[..., Any]] = {"pearson": pearsonr, "spearman": spearmanr}
SMALLEST = 3
"""Proxies below which a correlation says nothing."""


def published_scores() -> pd.DataFrame:
    """Capability scores of the published proxies.

    Returns columns proxy, benchmark, score (percent); one row a proxy and benchmark.
    """
    with resources.files("backend.proxies").joinpath("capability.csv").open("rb") as stream:
        table = pd.read_csv(stream)
    parts = [
        pd.DataFrame({"proxy": table["tag"], "benchmark": name, "score": 100 * table[column]})
        for column, name in BENCHMARKS.items()
    ]
    return pd.concat(parts, ignore_index=True)


def capability_correlations(scores: pd.DataFrame, accuracies: pd.DataFrame) -> pd.DataFrame:
    """Correlate capability with accuracy over proxies.

    scores : Columns proxy, benchmark, score.
    accuracies : Columns proxy, view, k, value; one row a proxy, view and budget.
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
            result = correlate(part["score"], part["value"])
            rows.append(
                {
                    "subject": benchmark,
                    "reference": f"accuracy@{k}/{view}",
                    "statistic": statistic,
                    "value": float(result.statistic),
                    "p_value": float(result.pvalue),
                    "n": len(part),
                }
            )
    return pd.DataFrame(rows, columns=["subject", "reference", "statistic", "value", "p_value", "n"])
