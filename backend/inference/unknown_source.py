"""Conformal p value of "no enrolled source wrote these K traces" (paper, Limitations).

Each enrolled source has a p value of its own unseen traces, K at a time, and the largest of these decides. The
statistic is the accumulated log-posterior of the source (max-logit), or the relative Mahalanobis distance of the
accumulated log-posteriors or of the mean fingerprint. Where K comes near the size of a block of prompts, resampled
groups are nearly alike, and only the validation shows how far the p value holds (``false_rejection``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.linalg import eigh
from scipy.stats import rankdata

from backend.inference import Doubles, Floating, Ints
from backend.inference.calibration import interpolated
from backend.protocol import BUDGETS, GROUPING_SEEDS, budget_groups

Statistic = Literal["max-logit", "relative-mahalanobis"]
DISCRIMINANT = ("mean", "transform", "centres", "between")
DRAWS = 499
UNKNOWN_LEVEL = 0.05  # p values up to it reject every enrolled source
SEED = 42
SHORTENED = 0.25  # of the variance within a block, taken out at most where K comes near the size of the block
REALISED = 4  # groups of a source and block whose largest p value is looked at, to learn how that value is distributed
RIDGES = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3)  # of the identity, added to the within-source correlation


@dataclass(frozen=True)
class Discriminant:
    """Coordinates of the relative Mahalanobis distance, which is zero outside them."""

    mean: Doubles  # (D,) mean of the source means
    transform: Doubles  # (D, q) to coordinates with unit within-source covariance, q = min(D, C - 1)
    centres: Doubles  # (C, q) source means in these coordinates
    between: Doubles  # (q,) between-source variance of every coordinate

    def project(self, features: Floating) -> Doubles:
        """Features (n, D) in discriminant coordinates (n, q)."""
        return (np.asarray(features, dtype=np.float64) - self.mean) @ self.transform

    def score(self, means: Doubles, budget: int) -> Doubles:
        """Fit of means (G, q) of K projected traces to every source, (G, C).

        Minus the squared distance to the source plus that to the background, whose variance is 1 + K times the
        between-source one in units of a mean of K traces.
        """
        squares = (means**2).sum(1)[:, None] - 2 * means @ self.centres.T + (self.centres**2).sum(1)
        background = (means**2 / (1 + budget * self.between)).sum(1)
        out: Doubles = budget * (background[:, None] - squares)
        return out


def _within(features: Floating, labels: Ints, classes: int) -> tuple[Doubles, Doubles, Doubles]:
    """Source means (C, D), within-source standard deviations (D,) and correlations (D, D)."""
    counts = np.bincount(labels, minlength=classes)
    if (counts < 2).any():
        raise ValueError(f"source {int(counts.argmin())} has fewer than two traces: its spread is not known")
    order = np.argsort(labels, kind="stable")
    sums = np.add.reduceat(np.asarray(features[order], dtype=np.float64), np.r_[0, counts.cumsum()[:-1]], axis=0)
    means = sums / counts[:, None]
    residuals = np.asarray(features - means[labels], dtype=np.float32)
    covariance = (residuals.T @ residuals).astype(np.float64) / (len(labels) - classes)
    std = np.sqrt(np.maximum(np.diag(covariance), 1e-12))
    return means, std, covariance / np.outer(std, std)


def choose_ridge(features: Floating, labels: Ints, blocks: Ints, ridges: Sequence[float] = RIDGES) -> float:
    """The ridge under which a block of prompts is most likely, given the other blocks.

    Normal residuals of features (n, D), labels and blocks (n,), around the source means of the other blocks.
    """
    classes, tried = int(labels.max()) + 1, np.asarray(ridges, dtype=np.float64)[:, None]
    cost = np.zeros(len(tried))
    for block in np.unique(blocks):
        inside = blocks == block
        means, std, correlation = _within(features[~inside], labels[~inside], classes)
        values, vectors = np.linalg.eigh(correlation)
        residuals = np.asarray((features[inside] - means[labels[inside]]) / std, dtype=np.float32)
        spread = np.square(residuals @ vectors.astype(np.float32)).mean(0, dtype=np.float64)
        # The ridged matrix is divided by its diagonal, so that a large ridge does not pass for a large spread.
        ridged = (np.maximum(values, 0.0) + tried) / (1.0 + tried)
        cost += inside.sum() * (np.log(ridged) + spread / ridged).sum(1)
    return float(ridges[int(cost.argmin())])


def fit_discriminant(features: Floating, labels: Ints, classes: int, ridge: float) -> Discriminant:
    """Discriminant coordinates of features (n, D) with source numbers (n,), every source weighing the same."""
    means, std, within = _within(features, labels, classes)
    within = within + ridge * np.eye(len(std))
    centre = means.mean(0)
    spread = (means - centre) / std
    values, vectors = eigh(spread.T @ spread / classes, within)
    keep = min(features.shape[1], classes - 1)
    transform = vectors[:, ::-1][:, :keep] / std[:, None]
    return Discriminant(centre, transform, (means - centre) @ transform, np.maximum(values[::-1][:keep], 0.0))


@dataclass(frozen=True)
class UnknownReference:
    """Accumulated scores of every enrolled source when it is the true one."""

    budgets: Ints  # (B,)
    nulls: npt.NDArray[np.float32]  # (B, C, M) ascending scores of M resampled groups of each source
    discriminant: Discriminant | None  # None for max-logit
    # (B, R) ascending largest p values of groups of enrolled sources, by references without their block of prompts
    realised: npt.NDArray[np.float32] | None = None

    def null(self, budget: int) -> Doubles:
        """Ascending null scores (C, M) at any number of traces; beyond the largest budget its own."""
        return interpolated(self.nulls, budget, self.budgets)

    def p_values(self, means: Floating, budget: int) -> Doubles:
        """Conformal p value of every source (G, C), of means (G, D) of the features of K traces."""
        scores = np.asarray(means, dtype=np.float64)
        if self.discriminant is not None:
            scores = self.discriminant.score(self.discriminant.project(means), min(budget, int(self.budgets[-1])))
        null = self.null(budget)
        # Scores are stored as float32, so a tie with one's own value must not be lost to rounding.
        slack = 1e-6 * np.maximum(np.abs(scores), 1.0)
        below = [np.searchsorted(null[c], scores[:, c] + slack[:, c], side="right") for c in range(len(null))]
        out: Doubles = (1.0 + np.stack(below, axis=1)) / (1 + null.shape[1])
        return out

    def p_none(self, means: Floating, budget: int) -> Doubles:
        """p value (G,) of "the traces come from one of the enrolled sources".

        The largest over the sources is too large where many are alike, and too small where prompts share more than
        resampled groups show. Where known, the values of enrolled groups of held-out prompts are counted instead.
        """
        largest: Doubles = self.p_values(means, budget).max(1)
        if self.realised is None:
            return largest
        seen = interpolated(self.realised, budget, self.budgets)
        return (1 + np.searchsorted(seen, largest * (1 + 1e-6), side="right")) / (1 + len(seen))

    def to_arrays(self) -> dict[str, npt.NDArray[np.generic]]:
        """Arrays for :func:`numpy.savez` without pickling."""
        discriminant = {} if self.discriminant is None else vars(self.discriminant)
        realised = {} if self.realised is None else {"realised": self.realised}
        return {"budgets": self.budgets, "nulls": self.nulls, **discriminant, **realised}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[np.generic]]) -> UnknownReference:
        """The inverse of :meth:`to_arrays`."""
        discriminant = None
        if "transform" in arrays:
            discriminant = Discriminant(*(np.asarray(arrays[name], dtype=np.float64) for name in DISCRIMINANT))
        nulls = np.asarray(arrays["nulls"], dtype=np.float32)
        realised = np.asarray(arrays["realised"], dtype=np.float32) if "realised" in arrays else None
        return cls(np.asarray(arrays["budgets"], dtype=np.intp), nulls, discriminant, realised)


def fit_unknown(
    features: Floating,
    labels: Ints,
    blocks: Ints,
    statistic: Statistic = "relative-mahalanobis",
    budgets: Sequence[int] = BUDGETS,
    draws: int = DRAWS,
) -> UnknownReference:
    """Resample groups of every source's unseen traces, block of prompts by block.

    A block is scored by means and covariances of the other blocks. Groups are means of K traces of one block, drawn
    with replacement, their deviation from the block's mean shortened as for draws without (by at most
    :data:`SHORTENED` in variance, so that K near the size of a block is judged too mildly).

    features : (n, D) log-posteriors of traces whose prompts the probe has not seen (D = C), or fingerprints.
    labels, blocks : (n,) source number 0 .. C - 1 and block of prompts (fold); every source is in every block, of two
        at least.
    draws : resampled groups a source and budget, M (rounded down to as many for every block).
    """
    classes, present = int(labels.max()) + 1, np.unique(blocks)
    if statistic == "max-logit" and features.shape[1] != classes:
        raise ValueError(f"max-logit needs log-posteriors of {classes} sources, got {features.shape[1]} columns")
    if len(present) < 2:
        raise ValueError("at least two blocks of prompts are needed: one is scored by the others")
    rng, picks = np.random.default_rng(SEED), np.random.default_rng(SEED + 1)
    each = max(draws // len(present), 1)
    ridge = choose_ridge(features, labels, blocks) if statistic == "relative-mahalanobis" else 0.0
    nulls = np.empty((len(budgets), classes, len(present), each), dtype=np.float32)
    held_out = np.empty((len(budgets), len(present), classes * REALISED, classes))
    for which, block in enumerate(present):
        inside = blocks == block
        discriminant, space = None, np.asarray(features[inside], dtype=np.float64)
        if statistic == "relative-mahalanobis":
            discriminant = fit_discriminant(features[~inside], labels[~inside], classes, ridge)
            space = discriminant.project(space)
        for source in range(classes):
            rows = space[labels[inside] == source]
            mean, n = rows.mean(0), len(rows)
            for place, budget in enumerate(budgets):
                order = [picks.permutation(np.resize(np.arange(n), max(budget, n)))[:budget] for _ in range(REALISED)]
                own = rows[np.array(order)].mean(1)
                scored = own if discriminant is None else discriminant.score(own, budget)
                held_out[place, which, source * REALISED : (source + 1) * REALISED] = scored
                drawn = rng.integers(0, n, size=(each, budget)) + np.arange(each)[:, None] * n
                times = np.bincount(drawn.ravel(), minlength=each * n).reshape(each, n)
                means = mean + (times @ rows / budget - mean) * np.sqrt(1 - min((budget - 1) / n, SHORTENED))
                scores = means if discriminant is None else discriminant.score(means, budget)
                nulls[place, source, which] = scores[:, source]
    whole = None if statistic == "max-logit" else fit_discriminant(features, labels, classes, ridge)
    realised = np.sort([_largest(nulls[place], held_out[place]) for place in range(len(budgets))], axis=1)
    ascending = np.sort(nulls.reshape(len(budgets), classes, -1), axis=2)
    return UnknownReference(np.array(budgets), ascending, whole, realised.astype(np.float32))


def _largest(nulls: npt.NDArray[np.float32], scores: Doubles) -> Doubles:
    """Largest p value (blocks * G,) of groups with scores (blocks, G, C), by nulls (C, blocks, M) of other blocks."""
    out = []
    for block, part in enumerate(scores):
        others = np.sort(np.delete(nulls, block, axis=1).reshape(len(nulls), -1), axis=1)
        below = [np.searchsorted(null, part[:, c], side="right") for c, null in enumerate(others)]
        out.append((1.0 + np.max(below, axis=0)) / (1 + others.shape[1]))
    return np.concatenate(out)


def group_means(features: Floating, groups: Ints) -> Doubles:
    """Mean features (G, D) of groups (G, K) of rows."""
    out = np.zeros((len(groups), features.shape[1]))
    for k in range(groups.shape[1]):  # a column at a time: without an array (G, K, D)
        out += features[groups[:, k]]
    out /= groups.shape[1]
    return out


def without_columns(log_posteriors: Floating, enrolled: Ints) -> Doubles:
    """Log-posteriors over some of the sources, renormalised; all have shaped the probe."""
    part = np.asarray(log_posteriors[:, enrolled], dtype=np.float64)
    return part - np.logaddexp.reduce(part, axis=1, keepdims=True)


def auroc(known: Floating, unknown: Floating) -> float:
    """Chance that a known group has a larger p value than an unknown one; ties count half."""
    ranks = rankdata(np.concatenate([known, unknown]))
    above = ranks[: len(known)].sum() - len(known) * (len(known) + 1) / 2
    return float(above / (len(known) * len(unknown)))


@dataclass(frozen=True)
class LeftOut:
    """Features of traces by a reader that did not enrol some of the sources."""

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
) -> dict[int, tuple[Doubles, Ints]]:
    """p values and sources, each (G,), of held-out groups of all sources, by budget.

    prompt_folds : (P,) the reference is fitted on all folds that occur in ``excluded`` but the tested one; where that
        is a single fold, every second of its prompts is a block. tested : folds to test; all when absent.
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
        labels = column[excluded.source[train]]
        reference = fit_unknown(excluded.features[train], labels, blocks, statistic, list(budgets))
        unordered = np.flatnonzero(fold_of_row == fold)
        by_source = np.lexsort((excluded.prompt[unordered], excluded.source[unordered]))
        test = unordered[by_source].reshape(len(present), -1)
        for k in budgets:
            groups, truth = budget_groups(test, k, GROUPING_SEEDS[0], int(fold))
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
    """AUROC and error rates of "none of the enrolled" when sources are excluded.

    runs : one for each excluded family (or set of siblings), which ``scenario`` names: 'family' or 'sibling'.
    tested : folds to test; all when absent. level : p values up to it count as unknown.
    Returns columns k, metric, scenario, statistic, level, value and std over runs, n (groups). Metrics: ``auroc``;
        ``false_acceptance`` of unknown groups (p above the level), ``false_acceptance_matched`` (at the level where 5 %
        of the enrolled groups are rejected), ``false_rejection`` of enrolled groups.
    """
    found: dict[tuple[int, str], list[tuple[float, int]]] = {}
    for run in runs:
        for k, (p_values, source) in unknown_p_values(run, prompt_folds, budgets, statistic, tested).items():
            is_known = np.isin(source, run.enrolled)
            known, unknown = p_values[is_known], p_values[~is_known]
            shares = {
                "auroc": auroc(known, unknown),
                "false_acceptance": float((unknown > level).mean()),
                "false_acceptance_matched": float((unknown > np.quantile(known, UNKNOWN_LEVEL)).mean()),
                "false_rejection": float((known <= level).mean()),
            }
            for metric, share in shares.items():
                groups = known if metric == "false_rejection" else unknown
                found.setdefault((k, metric), []).append((share, len(groups)))
    about = {"scenario": scenario, "statistic": statistic}
    rows = []
    for (k, metric), pairs in found.items():
        values, counts = zip(*pairs, strict=True)
        summary = {"value": float(np.mean(values)), "std": float(np.std(values)), "n": sum(counts)}
        rows.append({"k": k, "metric": metric, **about, "level": None if metric == "auroc" else level, **summary})
    return pd.DataFrame(rows)
