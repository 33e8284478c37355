"""Dynamic attribution: layer selection, evidence, accuracy at every budget, comparisons.

Paper, Proxy Readers and Layer Selection, Dynamic 100-Way Attribution, and the statistical protocol.

Reduction *pooled* pools the folds, computes a metric and averages over the grouping seeds (the budget curves); *fold*
averages over the seeds within a fold and gives mean and population standard deviation over the folds (the end-point
tables). Accuracy agrees between them, macro-F1 does not.

Readers with the same folds and seeds decide on the same groups, so their right answers are paired. Answers of one outer
fold and source form a cluster: the bootstrap draws clusters, the test flips their signs, and Holm's correction runs
over all pairs and budgets of a table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from backend.evidence import accumulate, posterior
from backend.methods.probe import STD_FLOOR, LinearProbe, ProbeSettings, descend, fit_probe
from backend.methods.readout import Doubles, Floats, Ints, Labels, Rows
from backend.metrics import accuracy, confusion_counts, expected_calibration_error, macro_f1, negative_log_likelihood
from backend.parallel import each
from backend.protocol import BUDGETS, FOLDS, GROUPING_SEEDS, budget_groups, grid_rows, held_out_pairs
from backend.statistics import FLIPS, REPLICATES, SEED, cluster_bootstrap, holm, sign_flip_p_values

Counts = npt.NDArray[np.int64]
Scored = tuple[Doubles, Ints]  # Scores of groups (G, C), and their sources (G,)
METHOD = "cluster bootstrap and sign flips"
SCAN_COLUMNS = ("outer_fold", "inner_fold", "layer", "accuracy")


def inner_accuracies(
    fingerprints: Rows, labels: Labels, folds: Labels, classes: int, dtype: torch.dtype = torch.float32
) -> Doubles:
    """Inner-validation accuracies of one block (paper, Proxy Readers and Layer Selection).

    In every outer fold the four other folds are the inner ones. A probe trained without folds i and j serves outer i
    with inner j and outer j with inner i, so ten fits are enough.

    fingerprints : (n, D); labels : (n,), source numbers; folds : (n,), outer fold of every row.
    dtype : Type of the products while training. bfloat16 is several times faster where the processor has it; scores are
        always computed in float32.
    Returns (FOLDS, FOLDS), float64, entry (i, j): accuracy on fold j of the probe that saw neither i nor j; the
    diagonal is NaN.
    """
    order = np.argsort(folds, kind="stable")
    edges = np.searchsorted(folds[order], np.arange(FOLDS + 1))
    x = torch.from_numpy(fingerprints[order].astype(np.float32))
    y = torch.from_numpy(labels[order].astype(np.int64))
    parts = [slice(edges[i], edges[i + 1]) for i in range(FOLDS)]
    # Fold-wise moments around a common centre give the standardiser of any union of folds without another pass.
    centre = x.mean(0)
    x -= centre
    sums = torch.stack([x[p].double().sum(0) for p in parts])
    squares = torch.stack([x[p].double().square().sum(0) for p in parts])
    counts = torch.tensor([p.stop - p.start for p in parts], dtype=torch.float64)
    out = np.full((FOLDS, FOLDS), np.nan)
    for i, j in held_out_pairs():
        seen = [f for f in range(FOLDS) if f not in (i, j)]
        n = counts[seen].sum()
        mean = sums[seen].sum(0) / n
        scale = (squares[seen].sum(0) / n - mean.square()).clamp_min(0).sqrt().clamp_min(STD_FLOOR)
        mean32, scale32 = mean.float(), scale.float()
        train = torch.cat([((x[parts[f]] - mean32) / scale32).to(dtype) for f in seen])
        weight, bias = descend(train, torch.cat([y[parts[f]] for f in seen]), classes, ProbeSettings())
        for outer, inner in ((i, j), (j, i)):
            logits = torch.addmm(bias, (x[parts[inner]] - mean32) / scale32, weight)
            out[outer, inner] = float((logits.argmax(1) == y[parts[inner]]).double().mean())
    return out


def scan_layers(
    load: Callable[[int], Rows],
    layers: Sequence[int],
    labels: Labels,
    folds: Labels,
    classes: int,
    *,
    dtype: torch.dtype = torch.float32,
    progress: Callable[[int], None] | None = None,
) -> pd.DataFrame:
    """Inner-validation accuracies of every candidate block.

    load : Layer number to fingerprints of shape (n, D).
    labels, folds, classes, dtype : See :func:`inner_accuracies`; progress : Called with each finished layer.
    Returns columns outer_fold, inner_fold, layer, accuracy.
    """
    rows = []
    for layer, scores in layer_scans(load, layers, labels, folds, classes, dtype):
        rows += scores
        if progress:
            progress(layer)
    return pd.DataFrame(rows, columns=list(SCAN_COLUMNS))


def layer_scans(
    load: Callable[[int], Rows], layers: Sequence[int], labels: Labels, folds: Labels, classes: int, dtype: torch.dtype
) -> Iterator[tuple[int, list[tuple[int, int, int, float]]]]:
    """Blocks and their rows of :func:`scan_layers`, as they are done (:mod:`backend.parallel`)."""
    steps = ((load(layer), labels, folds, classes, dtype) for layer in layers)
    for layer, scores in zip(layers, each(inner_accuracies, steps), strict=True):
        yield layer, [(i, j, layer, scores[i, j]) for i, j in permutations(range(FOLDS), 2)]


def select_layers(scores: pd.DataFrame) -> pd.DataFrame:
    """Selected block of every outer fold, and the modal one: the highest mean inner accuracy at K = 1 wins.

    scores : From :func:`scan_layers`.
    Returns columns outer_fold (missing for the modal block) and layer. A tie of the mode is resolved by the mean inner
    accuracy over all outer folds, then in favour of the shallower block.
    """
    inner = scores.groupby(["outer_fold", "layer"])["accuracy"].mean().unstack("layer").sort_index(axis=1)
    chosen = inner.idxmax(axis=1)  # the first of equals is the shallower one
    votes = chosen.value_counts()
    tied = sorted(votes.index[votes == votes.max()])
    modal = int(tied[int(inner.mean()[tied].to_numpy().argmax())])
    folds = pd.array([*chosen.index, pd.NA], dtype="Int64")
    return pd.DataFrame({"outer_fold": folds, "layer": np.array([*chosen, modal], dtype=int)})


@dataclass(frozen=True)
class AttributionFrames:
    """Results of one reader on one roster, as tidy frames.

    metrics : Columns k, reduction, metric, seed, fold, value, std, n; the row without seed and fold is the summary.
    """

    metrics: pd.DataFrame
    source_accuracy: pd.DataFrame  # Columns k, source, accuracy, n, confused_with, confused_count
    confusion: pd.DataFrame  # Columns k, truth, predicted, count (summed over seeds, cells without a count are absent)


def out_of_fold(
    load: Callable[[int], Rows], layer_of_fold: Mapping[int, int], labels: Labels, folds: Labels, classes: int
) -> tuple[Floats, dict[int, LinearProbe]]:
    """Log-posteriors of every row by the probe that never saw its prompt.

    load : Layer number to fingerprints of shape (n, D); layer_of_fold : Selected block of every outer fold.
    labels, folds : (n,). Returns log_posteriors (n, C), float32; and the refitted probe of every outer fold.
    """
    out = np.empty((len(labels), classes), dtype=np.float32)
    probes = {}
    steps = ((load(layer), labels, folds == fold, classes) for fold, layer in sorted(layer_of_fold.items()))
    for fold, (probe, log_posteriors) in zip(sorted(layer_of_fold), each(_held_out, steps), strict=True):
        probes[fold] = probe
        out[folds == fold] = log_posteriors
    return out, probes


def _held_out(
    fingerprints: Rows, labels: Labels, test: npt.NDArray[np.bool_], classes: int
) -> tuple[LinearProbe, Floats]:
    """A probe of the rows that are not tested, and log-posteriors of those that are."""
    probe = fit_probe(fingerprints[~test], labels[~test], classes)
    return probe, probe.log_posterior(fingerprints[test])


def attribution_frames(
    log_posteriors: Floats,
    sources: Sequence[str],
    families: Sequence[str],
    prompt_folds: Ints,
    budgets: Sequence[int] = BUDGETS,
    seeds: Sequence[int] = GROUPING_SEEDS,
) -> AttributionFrames:
    """Evaluate out-of-fold evidence at every budget that fits into a fold.

    log_posteriors : (S * P, S), row = source * P + prompt, column = source, both in roster order.
    sources, families : length S; prompt_folds : (P,).
    """

    def grouped(k: int, seed: int) -> tuple[Scored, dict[int, Scored]]:
        folds = dict(fold_scores(log_posteriors, prompt_folds, k, seed))
        return together(folds), folds

    return grouped_frames(grouped, sources, families, fold_budgets(prompt_folds, budgets), seeds)


def fold_budgets(prompt_folds: Ints, budgets: Sequence[int] = BUDGETS) -> list[int]:
    """Budgets that fit into every fold."""
    smallest = min(int((prompt_folds == fold).sum()) for fold in range(FOLDS))
    return [k for k in budgets if k <= smallest]


def fold_scores(log_posteriors: Floats, prompt_folds: Ints, k: int, seed: int) -> Iterator[tuple[int, Scored]]:
    """Folds and their scored groups. log_posteriors : (S * P, S); prompt_folds : (P,)."""
    for fold in range(FOLDS):
        rows = grid_rows(log_posteriors.shape[1], len(prompt_folds), prompt_folds == fold)
        groups, truth = budget_groups(rows, k, seed, fold)
        yield fold, (accumulate(log_posteriors, groups), truth)


def together(parts: Mapping[int, Scored]) -> Scored:
    """The groups of all folds in one array."""
    scores, truth = (np.concatenate(part) for part in zip(*parts.values(), strict=True))
    return scores, truth


def grouped_frames(
    grouped: Callable[[int, int], tuple[Scored, Mapping[int, Scored]]],
    sources: Sequence[str],
    families: Sequence[str],
    budgets: Sequence[int],
    seeds: Sequence[int],
) -> AttributionFrames:
    """Evaluate scored groups at every budget.

    grouped : Budget and seed to all groups, and to those of every fold or fold model.
    """
    classes, names = len(sources), np.array(sources, dtype=object)
    family = np.unique(np.array(families), return_inverse=True)[1]
    metrics: list[dict[str, object]] = []
    accuracies, cells = [], []

    def counted(k: int, total: Counts) -> Iterator[tuple[int, Scored, Mapping[int, Scored]]]:
        for seed in seeds:
            (scores, truth), parts = grouped(k, seed)
            total += confusion_counts(truth, scores.argmax(1), classes)
            yield seed, (scores, truth), parts

    for k in budgets:
        total = np.zeros((classes, classes), dtype=np.int64)
        metrics += reduced_metrics(k, counted(k, total), partial(measure, k=k, family=family))
        accuracies.append(source_accuracy(k, total, names, len(seeds)))
        truth, predicted = np.nonzero(total)
        counts = {"truth": names[truth], "predicted": names[predicted], "count": total[truth, predicted]}
        cells.append(pd.DataFrame({"k": k, **counts}))
    frame = pd.DataFrame(metrics).astype({"seed": "Int64", "fold": "Int64"})
    return AttributionFrames(frame, pd.concat(accuracies, ignore_index=True), pd.concat(cells, ignore_index=True))


def reduced_metrics(
    k: int,
    scored: Iterable[tuple[int, Scored, Mapping[int, Scored]]],
    measured: Callable[[Doubles, Ints], dict[str, float]],
) -> list[dict[str, object]]:
    """Rows of what is measured of scored groups: for every seed, every fold and both summaries.

    scored : Seeds, each with all groups and with those of every fold, one in memory at a time. Without groups of folds
        there are no rows of the reduction 'fold'.
    """
    pooled, folded, sizes = {}, {}, {}
    for seed, (scores, truth), parts in scored:
        pooled[seed] = measured(scores, truth)
        for fold, (own_scores, own_truth) in parts.items():
            folded[seed, fold] = measured(own_scores, own_truth)
            sizes[fold] = len(own_truth)
    n, seeds, rows = len(truth), sorted(pooled), list[dict[str, object]]()

    def row(reduction: str, metric: str, value: float, count: int, **where: object) -> None:
        empty = {"seed": None, "fold": None, "std": None}
        rows.append({"k": k, "reduction": reduction, "metric": metric, "value": value, "n": count, **empty, **where})

    for metric in pooled[seeds[0]]:
        by_seed = [pooled[s][metric] for s in seeds]
        for seed, value in zip(seeds, by_seed, strict=True):
            row("pooled", metric, value, n, seed=seed)
        row("pooled", metric, float(np.mean(by_seed)), n, std=float(np.std(by_seed)))
        by_fold = {fold: float(np.mean([folded[s, fold][metric] for s in seeds])) for fold in sorted(sizes)}
        for fold, value in by_fold.items():
            row("fold", metric, value, sizes[fold], fold=fold)
        if by_fold:
            row("fold", metric, float(np.mean([*by_fold.values()])), n, std=float(np.std([*by_fold.values()])))
    return rows


def measure(scores: Doubles, truth: Ints, k: int, family: Ints) -> dict[str, float]:
    """Every metric of scored groups.

    scores : (G, C), from :func:`backend.evidence.accumulate`; truth : (G,); k : Traces a group.
    family : (C,), family number of every source.
    """
    predicted = scores.argmax(1)
    counts = confusion_counts(truth, predicted, scores.shape[1])
    wrong = predicted != truth
    summed, mean = posterior(scores, k, "sum"), posterior(scores, k, "mean")
    return {
        "accuracy": accuracy(counts),
        "macro_f1": macro_f1(counts),
        "nll_sum": negative_log_likelihood(summed, truth),
        "ece_sum": expected_calibration_error(summed, truth),
        "nll_mean": negative_log_likelihood(mean, truth),
        "ece_mean": expected_calibration_error(mean, truth),
        "errors": float(wrong.sum()),
        "errors_within_family": float((wrong & (family[predicted] == family[truth])).sum()),
    }


def summaries(metrics: pd.DataFrame, metric: str | None = None) -> pd.DataFrame:
    """Rows of means over seeds or folds, of one metric or of all."""
    found = metrics[metrics["seed"].isna() & metrics["fold"].isna()]
    return found if metric is None else found[found["metric"] == metric]


def source_accuracy(k: int, total: Counts, names: npt.NDArray[np.object_], seeds: int) -> pd.DataFrame:
    """Accuracy and most frequent wrong answer of every source, from counts (C, C) summed over the seeds."""
    wrong = total.copy()
    np.fill_diagonal(wrong, 0)
    worst = wrong.argmax(1)
    count = wrong[np.arange(len(names)), worst]
    return pd.DataFrame(
        {
            "k": k,
            "source": names,
            "accuracy": np.diag(total) / total.sum(1),
            "n": total.sum(1) // seeds,
            "confused_with": [names[w] if c else None for w, c in zip(worst, count, strict=True)],
            "confused_count": count,
        }
    )


def cluster_hits(
    log_posteriors: Floats, prompt_folds: Ints, budgets: Sequence[int] = BUDGETS, seeds: Sequence[int] = GROUPING_SEEDS
) -> dict[int, tuple[Counts, Counts]]:
    """Right answers and groups of every cluster, summed over the grouping seeds.

    log_posteriors : (S * P, S), out of fold, row = source * P + prompt; prompt_folds : (P,).
    Returns (hits, groups), each (FOLDS * S,), by budget that fits into every fold; cluster = fold * S + source.
    """
    classes, out = log_posteriors.shape[1], {}
    for k in fold_budgets(prompt_folds, budgets):
        hits, sizes = np.zeros((2, FOLDS, classes), dtype=np.int64)
        for seed in seeds:
            for fold, (scores, truth) in fold_scores(log_posteriors, prompt_folds, k, seed):
                hits[fold] += np.bincount(truth[scores.argmax(1) == truth], minlength=classes)
                sizes[fold] += np.bincount(truth, minlength=classes)
        out[k] = (hits.ravel(), sizes.ravel())
    return out


def accuracy_intervals(
    hits: Mapping[int, tuple[Counts, Counts]], replicates: int = REPLICATES, seed: int = SEED
) -> pd.DataFrame:
    """Intervals of a reader's accuracies when clusters are drawn.

    Returns columns k, reduction ('pooled'), metric ('accuracy_low' or 'accuracy_high', 95 %), value, n (clusters).
    """
    right, sizes = (np.column_stack([counts[part] for counts in hits.values()]) for part in (0, 1))
    bounds = cluster_bootstrap(right, sizes, replicates, seed)
    frames = [
        pd.DataFrame({"k": [*hits], "reduction": "pooled", "metric": metric, "value": bound, "n": len(right)})
        for metric, bound in zip(("accuracy_low", "accuracy_high"), bounds, strict=True)
    ]
    return pd.concat(frames, ignore_index=True)


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
    about = [(subject, reference, f"accuracy@{k}") for subject, reference, k in cells]
    values = {"difference": differences.sum(0) / sizes.sum(0), "low": low, "high": high}
    values |= {"p_value": p_values, "p_holm": holm(p_values)}
    frame = pd.DataFrame(about, columns=["subject", "reference", "measure"])
    return frame.assign(**values, n=len(differences), method=METHOD)
