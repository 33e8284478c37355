"""Stress: fitted on clean Agent500, scored on shortened responses and on Math100 (paper, Shifted Evaluation).

Nothing is trained again. A shortened response is scored by the fold model that excluded its prompt; groups lie within
the folds as in the clean evaluation (the paper's tables), or are cut from all folds at once (the release's files).
Every Math100 response is scored by all five fold models; the table is the mean and spread over the models, the curve
the ensemble of their mean log-posterior.

The functions take log-posteriors, so that any method can be stressed. A method that is not a probe on stored
fingerprints keeps, next to its ``log_posteriors.npy`` (``artifact_folder``), float32 arrays with the names of
:func:`length_file` and :data:`TRANSFER_FILE`:

* ``log_posteriors.t128.npy``, ``log_posteriors.t64.npy``, ``log_posteriors.t32.npy`` of shape (S * P, S): every
  shortened Agent500 response by the fold model that excluded its prompt;
* ``math100.npy`` of shape (5, S * P100, S): every Math100 response by every fold model, in the order of the folds.

Rows are source * prompts + prompt, prompts ascending; sources and columns are in roster order. A method that lacks
one of them has no result under that condition.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.evaluations.attribution import AttributionFrames, Scored, grouped_frames, summaries
from backend.evidence import accumulate
from backend.methods.probe import LinearProbe
from backend.protocol import BUDGETS, GROUPING_SEEDS, budget_groups, grid_rows

Ints = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float32]
LENGTHS = ("t128", "t64", "t32")  # Response lengths in proxy tokens, as the feature store names them
TRANSFER_FILE = "math100.npy"


def length_file(length: str) -> str:
    """File in which a method keeps its log-posteriors of shortened responses."""
    return f"log_posteriors.{length}.npy"


def excluded_posteriors(
    load: Callable[[int], npt.NDArray[np.floating]],
    layer_of_fold: Mapping[int, int],
    probes: Mapping[int, LinearProbe],
    folds: Ints,
) -> Floats:
    """Log-posteriors of altered Agent500 rows, each by the fold model that excluded its prompt.

    load : Layer number to fingerprints of the altered rows, (n, D); layer_of_fold : Selected block of every outer fold.
    probes : The clean probe of every outer fold; folds : (n,), outer fold of every row. Returns (n, C), float32.
    """
    out = np.empty((len(folds), len(probes[0].bias)), dtype=np.float32)
    for fold, probe in probes.items():
        rows = folds == fold
        out[rows] = probe.log_posterior(load(layer_of_fold[fold])[rows])
    return out


def transferred_posteriors(
    load: Callable[[int], npt.NDArray[np.floating]], layer_of_fold: Mapping[int, int], probes: Mapping[int, LinearProbe]
) -> Floats:
    """Log-posteriors of rows of another domain, by every fold model.

    load : Layer number to fingerprints, (n, D); layer_of_fold, probes : See :func:`excluded_posteriors`.
    Returns (F, n, C), float32, in the order of the folds.
    """
    return np.stack([probes[fold].log_posterior(load(layer_of_fold[fold])) for fold in sorted(probes)])


def global_frames(
    log_posteriors: Floats,
    sources: Sequence[str],
    families: Sequence[str],
    budgets: Sequence[int] = BUDGETS,
    seeds: Sequence[int] = GROUPING_SEEDS,
) -> AttributionFrames:
    """Evaluate with groups that are cut from all folds at once, as the release does for shortened responses.

    log_posteriors : (S * P, S), row = source * P + prompt; sources, families : length S.
    Returns metrics of the reduction 'pooled' only: a group may hold traces of several folds.
    """
    return _evaluate(log_posteriors, [], sources, families, budgets, seeds)


def transfer_frames(
    log_posteriors: Floats,
    sources: Sequence[str],
    families: Sequence[str],
    budgets: Sequence[int] = BUDGETS,
    seeds: Sequence[int] = GROUPING_SEEDS,
) -> AttributionFrames:
    """Evaluate fold models on another domain.

    log_posteriors : (F, S * P, S), by every fold model, row = source * P + prompt; sources, families : length S.
    Returns reduction 'fold' holds the fold models, each averaged over the seeds, then their mean and population
    standard deviation; 'pooled', accuracy a source and confusion are those of the ensemble.
    """
    ensemble = log_posteriors.mean(0, dtype=np.float64).astype(np.float32)
    return _evaluate(ensemble, list(log_posteriors), sources, families, budgets, seeds)


def retained_shares(metrics: pd.DataFrame, clean: pd.DataFrame) -> pd.DataFrame:
    """What share of its clean accuracy a reader retains.

    metrics : Metrics under stress, as in :class:`AttributionFrames`.
    clean : Clean accuracies of the same reader and roster; columns k, reduction, value.
    Returns rows of the metric 'retained', one a budget and reduction that both have.
    """
    both = summaries(metrics, "accuracy").merge(
        clean[["k", "reduction", "value"]], on=["k", "reduction"], suffixes=("", "_clean")
    )
    both = both[both["value_clean"] > 0]
    return both.assign(metric="retained", value=both["value"] / both["value_clean"], std=np.nan)[metrics.columns]


def with_retained(frames: AttributionFrames, clean: pd.DataFrame) -> AttributionFrames:
    """The same results with the share of the clean accuracy that is retained."""
    shares = retained_shares(frames.metrics, clean)
    return replace(frames, metrics=pd.concat([frames.metrics, shares], ignore_index=True))


def _evaluate(
    pooled_posteriors: Floats,
    model_posteriors: Sequence[Floats],
    sources: Sequence[str],
    families: Sequence[str],
    budgets: Sequence[int],
    seeds: Sequence[int],
) -> AttributionFrames:
    classes = len(sources)
    prompts = len(pooled_posteriors) // classes
    rows = grid_rows(classes, prompts, np.ones(prompts, dtype=np.bool_))

    def grouped(k: int, seed: int) -> tuple[Scored, dict[int, Scored]]:
        groups, truth = budget_groups(rows, k, seed, None)
        models = {n: (accumulate(posteriors, groups), truth) for n, posteriors in enumerate(model_posteriors)}
        return (accumulate(pooled_posteriors, groups), truth), models

    return grouped_frames(grouped, sources, families, [k for k in budgets if k <= prompts], seeds)
