"""How well sources that were never enrolled are found out: whole families and single siblings are left out in turn.

Taking the columns of some sources out of kept log-posteriors is cheap, but the probe behind them was shaped by those
sources; a probe refitted without them is what an auditor has. Both are measured and named apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.inference.unknown_source import UNKNOWN_LEVEL, Statistic, auroc, fit_unknown, group_means
from backend.protocol import BUDGETS, GROUPING_SEEDS, budget_groups

Floating = npt.NDArray[np.floating]
Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]


@dataclass(frozen=True)
class LeftOut:
    """Features of traces as a reader has them that never enrolled some of the sources."""

    features: Floating  # (n, D)
    source: Ints  # (n,) number of the source of every row, enrolled or not
    prompt: Ints  # (n,) number of its prompt; every source needs all prompts
    enrolled: Ints  # (C,) ascending source numbers; column c of log-posteriors is ``enrolled[c]``


def unknown_p_values(
    excluded: LeftOut,
    prompt_folds: Ints,
    budgets: Sequence[int],
    statistic: Statistic,
    tested: Sequence[int] | None = None,
    seed: int = GROUPING_SEEDS[0],
) -> dict[int, tuple[Doubles, Ints]]:
    """p values of held-out groups of enrolled and unknown sources.

    prompt_folds : (P,) the reference is fitted on all folds that occur in ``excluded`` but the tested one; where that
        is a single fold, every second of its prompts is a block.
    tested : folds to test; all when absent.
    seed : grouping seed.
    Returns dict of int to (p_none, source): both of shape (G,), for every budget.
    """
    column = np.full(int(excluded.source.max()) + 1, -1, dtype=np.intp)
    column[excluded.enrolled] = np.arange(len(excluded.enrolled))
    fold_of_row, present = prompt_folds[excluded.prompt], np.unique(excluded.source)
    folds = np.unique(fold_of_row)
    parts: dict[int, list[tuple[Doubles, Ints]]] = {k: [] for k in budgets}
    for fold in folds if tested is None else tested:
        train = (fold_of_row != fold) & (column[excluded.source] >= 0)
        blocks = fold_of_row[train]
        if len(folds) == 2:  # by place, not by number: a fold of four may hold three even ones
            blocks = np.unique(excluded.prompt[train], return_inverse=True)[1] % 2
        reference = fit_unknown(
            excluded.features[train], column[excluded.source[train]], blocks, statistic, list(budgets)
        )
        unordered = np.flatnonzero(fold_of_row == fold)
        by_source = np.lexsort((excluded.prompt[unordered], excluded.source[unordered]))
        test = unordered[by_source].reshape(len(present), -1)
        for k in budgets:
            groups, truth = budget_groups(test, k, seed, int(fold))
            parts[k].append((reference.p_none(group_means(excluded.features, groups), k), present[truth]))
    return {k: (np.concatenate([p for p, _ in v]), np.concatenate([s for _, s in v])) for k, v in parts.items()}


def unknown_frame(
    runs: Iterable[LeftOut],
    prompt_folds: Ints,
    scenario: str,
    statistic: Statistic,
    budgets: Sequence[int] = BUDGETS,
    tested: Sequence[int] | None = None,
    level: float = UNKNOWN_LEVEL,
) -> pd.DataFrame:
    """AUROC and error rates of "none of the enrolled" when sources are left out.

    runs : one for each family (or set of siblings) left out.
    prompt_folds : (P,).
    scenario : who was left out: 'family' or 'sibling'.
    tested : folds to test; all when absent.
    level : p values up to it count as unknown.
    Returns columns k, metric, scenario, statistic, level, value, std, n. Metrics: ``auroc``; ``false_acceptance``
        (share of unknown groups with a larger p value than the level), ``false_acceptance_matched`` (the same with the
        level put where just 5 % of the enrolled groups are rejected), ``false_rejection`` (of enrolled groups). Means
        over runs, ``std`` over runs, ``n`` unknown groups of all runs (enrolled ones for ``false_rejection``).
    """
    found: dict[tuple[int, str], list[float]] = {}
    counts: dict[tuple[int, str], int] = {}
    for run in runs:
        for k, (p_values, source) in unknown_p_values(run, prompt_folds, budgets, statistic, tested).items():
            known = np.isin(source, run.enrolled)
            matched = np.quantile(p_values[known], UNKNOWN_LEVEL)
            values = {
                "auroc": auroc(p_values[known], p_values[~known]),
                "false_acceptance": float((p_values[~known] > level).mean()),
                "false_acceptance_matched": float((p_values[~known] > matched).mean()),
                "false_rejection": float((p_values[known] <= level).mean()),
            }
            for metric, value in values.items():
                found.setdefault((k, metric), []).append(value)
                which = known if metric == "false_rejection" else ~known
                counts[k, metric] = counts.get((k, metric), 0) + int(which.sum())
    return pd.DataFrame(
        [
            {
                "k": k,
                "metric": metric,
                "scenario": scenario,
                "statistic": statistic,
                "level": None if metric == "auroc" else level,
                "value": float(np.mean(values)),
                "std": float(np.std(values)),
                "n": counts[k, metric],
            }
            for (k, metric), values in found.items()
        ]
    )
