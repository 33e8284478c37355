"""Answers on another kind of traffic, with and without unlabelled responses of it.

Heads and error rates come from topics of one corpus, each left out in turn; the other corpus has no part in either.
Its prompts are two halves: one balances the scores of the other. What is stated is the calibrated probability of the
leader, what is realised the share of right answers. Sources that nobody enrolled are simulated by leaving out their
columns; the pool holds their responses too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from backend.corpus.grouping import group_traces
from backend.enrolment.background import balance_held_out
from backend.enrolment.head_fits import AS_ROSTERS, Fits, Tuning, heads_of
from backend.enrolment.left_out import score_rows
from backend.errors import AtlasError
from backend.evaluations.corpus import MATH, Corpus
from backend.inference.calibration import WITH_BIAS, budgets_of, fit_calibration, held_out_groups
from backend.inference.unknown_source import auroc, fit_unknown, group_means, without_columns
from backend.inference.verdict import Rule
from backend.methods.domain_adaptation import balanced
from backend.methods.readout import Floats, Ints
from backend.protocol import BACKGROUND, CLEAN, FOLDS, GROUPING_SEEDS, budget_groups

SCENARIO = "unlabelled traffic"
BUDGETS = (1, 5, 10, 20, 50)
EVERY = 4  # one source of so many is not enrolled where unknown ones are simulated
DRAWS = 200


def measure(
    known: Corpus, prompts: Sequence[str], other: Corpus, method: str, proxy: str = "", blocks: Sequence[int] = (),
    layer: int = 1, tuning: Tuning = AS_ROSTERS[0],
) -> pd.DataFrame:  # fmt: skip
    """Rows of an enrolment of one corpus about another one of the same sources.

    known, other : every source answers every prompt; row = source * P + prompt. prompts : of ``known``, length P.
    Returns columns k, metric, statistic ('clean' without a pool, 'background' with one), value, n (answers). Metrics:
        ``realised`` and ``probability``; ``false_unknown`` (enrolled sources that are called unknown), ``auroc`` of
        enrolled against other sources. Empty where topics cannot fill the folds.
    Raises AtlasError where a topic has too few responses.
    """
    grouping = group_traces(known.labels, list(prompts) * known.classes)
    if not grouping.validates:
        return pd.DataFrame()
    folds = grouping.folds[: len(prompts)]
    fits = Fits(replace(known, folds=grouping.folds), proxy, blocks, dict.fromkeys(range(FOLDS), layer))
    heads = heads_of(fits, method, (tuning,) * FOLDS)
    rows = np.arange(len(other.labels))
    scores = np.mean([score_rows(head, other, rows, proxy) for head in heads.heads], axis=0)
    return transfer_rows(heads.log_posteriors[CLEAN], folds, scores)


def scenarios(
    corpora: Mapping[str, tuple[Corpus, list[str], list[str]]], by: str, of_method: Mapping[str, Any]
) -> Iterator[tuple[str, pd.DataFrame]]:
    """Rows of every kind of other traffic, with its name: the other benchmark either way, or all left-out categories.

    corpora : by benchmark, with its prompts and their categories; of_method : further arguments of :func:`measure`.
    """
    if by == "domain":
        for known, other in (("agent500", MATH), (MATH, "agent500")):
            corpus, prompts, _ = corpora[known]
            yield other, measure(corpus, prompts, corpora[other][0], **of_method)
        return
    corpus, prompts, categories = corpora["agent500"]
    grid, kinds, frames = np.arange(len(corpus.labels)).reshape(corpus.classes, -1), np.array(categories), []
    for kind in sorted(set(categories)):
        outside = kinds == kind
        rest = [prompt for prompt, out in zip(prompts, outside, strict=True) if not out]
        parts = (corpus.take(grid[:, some].ravel()) for some in (~outside, outside))
        frames.append(measure(next(parts), rest, next(parts), **of_method))
    rows = pd.concat(frames, ignore_index=True)
    rows["value"] *= rows["n"]
    sums = rows.groupby(["statistic", "k", "metric"], as_index=False)[["value", "n"]].sum()
    yield "category", sums.assign(value=sums["value"] / sums["n"])


def transfer_rows(own: Floats, folds: Ints, scores: Floats) -> pd.DataFrame:
    """The same from log-posteriors (C * P, C) of held-out topics, folds (P,), and (C * P', C) of other traffic."""
    classes = own.shape[1]
    half = np.tile(np.arange(len(scores) // classes) % 2, classes)
    enrolled = np.array([c for c in range(classes) if c % EVERY != EVERY - 1])
    found: list[dict[str, Any]] = []

    def with_pool(rows: Floats) -> Floats:
        return balanced(rows, half)

    def held_out(rows: Floats) -> Floats:
        out = balance_held_out(rows, folds, unseen=False)
        if out is None:
            raise AtlasError("The topics have too few responses to balance each other", "Take more prompts or sources")
        return out

    def as_is(rows: Floats) -> Floats:
        return rows

    conditions: tuple[tuple[str, Callable[[Floats], Floats], Callable[[Floats], Floats]], ...] = (
        (CLEAN, as_is, as_is),
        (BACKGROUND, held_out, with_pool),
    )
    for statistic, of_own, of_other in conditions:
        rows = (
            *_answers(of_own(own), folds, of_other(scores)),
            *_unknown(own, folds, scores, enrolled, of_own, of_other),
        )
        found += [{"statistic": statistic, **row} for row in rows]
    return pd.DataFrame(found)


def _groups(classes: int, each: int, k: int) -> Iterator[tuple[Ints, Ints]]:
    """Groups (G, K) of rows and their sources, within a half of the prompts, of every seed."""
    grid = np.arange(classes * each).reshape(classes, each)
    for seed in GROUPING_SEEDS if k > 1 else GROUPING_SEEDS[:1]:
        for part in (0, 1):
            yield budget_groups(grid[:, part::2], k, seed, part)


def _answers(own: Floats, folds: Ints, scores: Floats) -> Iterator[dict[str, Any]]:
    """Stated and realised accuracy by a calibration on ``own``."""
    classes, each = scores.shape[1], len(scores) // scores.shape[1]
    calibration = fit_calibration({k: held_out_groups(own, folds, k) for k in budgets_of(folds)}, WITH_BIAS)
    for k in (budget for budget in BUDGETS if budget <= each // 2):
        right, stated = [], []
        for groups, truth in _groups(classes, each, k):
            calibrated = calibration.apply(group_means(scores, groups) * k, k)
            right += (calibrated.argmax(1) == truth).tolist()
            stated += np.exp(calibrated.max(1)).tolist()
        values = {"realised": np.mean(right), "probability": np.mean(stated)}
        yield from ({"k": k, "metric": metric, "value": float(v), "n": len(right)} for metric, v in values.items())


def _unknown(
    own: Floats, folds: Ints, scores: Floats, enrolled: Ints, of_own: Callable[[Floats], Floats],
    of_other: Callable[[Floats], Floats],
) -> Iterator[dict[str, Any]]:  # fmt: skip
    """How well sources are told apart from those whose columns are left out."""
    classes, each = scores.shape[1], len(scores) // scores.shape[1]
    prompts, budgets = len(folds), budgets_of(folds)
    inside = (enrolled[:, None] * prompts + np.arange(prompts)).ravel()
    of_enrolled = of_own(without_columns(own[inside], enrolled).astype(np.float32))
    labels, blocks = np.repeat(np.arange(len(enrolled)), prompts), np.tile(folds, len(enrolled))
    reference = fit_unknown(of_enrolled, labels, blocks, budgets=budgets, draws=DRAWS)
    reduced = of_other(without_columns(scores, enrolled).astype(np.float32))
    for k in (budget for budget in BUDGETS if budget <= each // 2):
        parts = [
            (reference.p_none(group_means(reduced, groups), k), truth) for groups, truth in _groups(classes, each, k)
        ]
        p, truth = (np.concatenate(part) for part in zip(*parts, strict=True))
        known = np.isin(truth, enrolled)
        values = {"false_unknown": float((p[known] <= Rule.unknown_level).mean()), "auroc": auroc(p[known], p[~known])}
        yield from ({"k": k, "metric": metric, "value": value, "n": len(p)} for metric, value in values.items())
