"""Do two readers differ at an end point? Accuracies at every budget, pair by pair (paper, statistical protocol).

Readers that are evaluated with the same folds, seeds and random streams decide on the same groups, so their right
answers are paired. Answers of one outer fold and source form a cluster: the bootstrap draws clusters, the test flips
their signs, and Holm's correction runs over all pairs and budgets of a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.evidence import accumulate
from backend.protocol import BUDGETS, FOLDS, GROUPING_SEEDS, budget_groups, grid_rows
from backend.statistics import FLIPS, REPLICATES, SEED, cluster_bootstrap, holm, sign_flip_p_values

Ints = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float32]
Counts = npt.NDArray[np.int64]
METHOD = "cluster bootstrap and sign flips"


def cluster_hits(
    log_posteriors: Floats, prompt_folds: Ints, budgets: Sequence[int] = BUDGETS, seeds: Sequence[int] = GROUPING_SEEDS
) -> dict[int, tuple[Counts, Counts]]:
    """Right answers and groups of every cluster, summed over the grouping seeds.

    log_posteriors : (S * P, S), out of fold, row = source * P + prompt; prompt_folds : (P,).
    Returns (hits, groups), each (FOLDS * S,), by budget that fits into every fold; cluster = fold * S + source.
    """
    classes, prompts = log_posteriors.shape[1], len(prompt_folds)
    smallest = min(int((prompt_folds == fold).sum()) for fold in range(FOLDS))
    out = {}
    for k in [k for k in budgets if k <= smallest]:
        hits = np.zeros((FOLDS, classes), dtype=np.int64)
        sizes = np.zeros((FOLDS, classes), dtype=np.int64)
        for seed in seeds:
            for fold in range(FOLDS):
                groups, truth = budget_groups(grid_rows(classes, prompts, prompt_folds == fold), k, seed, fold)
                right = accumulate(log_posteriors, groups).argmax(1) == truth
                hits[fold] += np.bincount(truth[right], minlength=classes)
                sizes[fold] += np.bincount(truth, minlength=classes)
        out[k] = (hits.ravel(), sizes.ravel())
    return out


def accuracy_intervals(
    hits: Mapping[int, tuple[Counts, Counts]], replicates: int = REPLICATES, seed: int = SEED
) -> pd.DataFrame:
    """Intervals of a reader's accuracies when clusters are drawn.

    Returns columns k, reduction ('pooled'), metric ('accuracy_low' or 'accuracy_high', 95 %), value, n (clusters).
    """
    right, sizes = (np.column_stack([held[part] for held in hits.values()]) for part in (0, 1))
    bounds = cluster_bootstrap(right, sizes, replicates, seed)
    rows = [
        {"k": k, "reduction": "pooled", "metric": metric, "value": float(bound[column]), "n": len(right)}
        for metric, bound in zip(("accuracy_low", "accuracy_high"), bounds, strict=True)
        for column, k in enumerate(hits)
    ]
    return pd.DataFrame(rows)


def compare_endpoints(
    hits: Mapping[str, Mapping[int, tuple[Counts, Counts]]],
    pairs: Sequence[tuple[str, str]],
    replicates: int = REPLICATES,
    flips: int = FLIPS,
    seed: int = SEED,
) -> pd.DataFrame:
    """Compare pairs of readers at every budget.

    hits : Of readers with the same sources, prompts and budgets; pairs : (subject, reference).
    replicates, flips, seed : Bootstrap replicates, sign flips, and the seed of both.
    Returns columns subject, reference, measure ('accuracy@K'), difference (subject minus reference), low and high (95
    %), p_value, p_holm (over all rows), n (clusters), method.
    """
    cells = [(subject, reference, k) for subject, reference in pairs for k in hits[reference]]
    if not cells:
        names = "subject reference measure difference low high p_value p_holm n method"
        return pd.DataFrame({name: [] for name in names.split()})
    differences = np.column_stack([hits[a][k][0] - hits[b][k][0] for a, b, k in cells])
    sizes = np.column_stack([hits[b][k][1] for _, b, k in cells])
    low, high = cluster_bootstrap(differences, sizes, replicates, seed)
    p_values = sign_flip_p_values(differences, flips, seed)
    return pd.DataFrame(
        {
            "subject": [a for a, _, _ in cells],
            "reference": [b for _, b, _ in cells],
            "measure": [f"accuracy@{k}" for _, _, k in cells],
            "difference": differences.sum(0) / sizes.sum(0),
            "low": low,
            "high": high,
            "p_value": p_values,
            "p_holm": holm(p_values),
            "n": len(differences),
            "method": METHOD,
        }
    )
