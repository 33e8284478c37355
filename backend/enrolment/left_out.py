"""Stated and realised accuracy on a category of prompts that was left out.

The prompts of the other categories are a corpus whose heads and calibration are fitted twice: on folds of single
prompts, and on folds of groups (:mod:`backend.corpus.grouping`). Neither sees a category, which only says what is left
out. The accuracy on held-out folds and the calibrated probability of the leader state what a reader of a report
expects; the category left out shows what happens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from backend.corpus.grouping import group_traces
from backend.corpus.release import Benchmark, Release
from backend.corpus.roster_rows import slice_of
from backend.enrolment.head_fits import AS_ROSTERS, Fits, Tuning, heads_of
from backend.evaluations.corpus import Corpus, truncation_tokenizer
from backend.evidence import accumulate
from backend.inference.calibration import Calibration, budgets_of, fit_calibration, held_out_groups, normalised
from backend.intake.traces import whole
from backend.methods.discriminant import NgramBank
from backend.methods.ensemble import Ensemble, Head
from backend.methods.readout import Doubles, Floats, Ints
from backend.protocol import CLEAN, FOLDS, GROUPING_SEEDS, budget_groups, fold_of_prompts
from backend.proxies.encoding import count_tokens

SCENARIO = "left-out category"
METRICS = ("stated", "probability", "realised")
BY = ("prompts", "groups")  # what folds are made of
CLOSE = 0.05  # by how much a stated accuracy may be off
LARGEST = 20  # traces of an answer: more are rarely in one category


@dataclass(frozen=True)
class Answers:
    """Answers on groups of traces of one category."""

    stated: float  # accuracy on held-out folds of the other categories
    probability: Doubles  # (G,) calibrated, of the leader
    right: Ints  # (G,) 1 where the leader is the source


def release_corpus(
    release: Release, roster: str, proxy: str, sources: int | None = None, limit: int | None = None,
    benchmark: Benchmark = "agent500",
) -> tuple[Corpus, list[str], list[str]]:  # fmt: skip
    """Whole responses of a roster to a benchmark, with prompts and their categories.

    sources : so many, evenly drawn over the roster; all by default. limit : only the first prompts.
    Raises AtlasError where the method reads states and fingerprints are not on disk.
    """
    rows, records = slice_of(release, benchmark, proxy, "ur", roster, limit), release.records(benchmark)
    each, width = len(rows.prompt_ids), len(records.prompt_ids)
    some = np.unique(np.linspace(0, len(rows.sources) - 1, sources or len(rows.sources)).round().astype(np.intp))
    traces = [records.traces[source * width + prompt] for source in some for prompt in range(each)]
    at = (some[:, None] * each + np.arange(each)).ravel()
    corpus = Corpus(
        lambda block, _: rows.load(block)[at],
        {CLEAN: [whole(trace.response) for trace in traces]},
        count_tokens(truncation_tokenizer(), traces),
        np.repeat(np.arange(len(some)), each),
        np.zeros(len(at), dtype=np.intp),  # set where it is fitted
        len(some),
    )
    known = release.prompts(benchmark).iloc[:each]
    return corpus, known["prompt"].astype(str).tolist(), [str(kind) for kind in known.get("category", [""] * each)]


def measure(
    corpus: Corpus, prompts: Sequence[str], categories: Sequence[str], method: str, proxy: str = "",
    blocks: Sequence[int] = (), layer: int = 1, tuning: Tuning = AS_ROSTERS[0],
) -> Iterator[tuple[str, pd.DataFrame]]:  # fmt: skip
    """Rows of every category, with its name.

    corpus : every source answers every prompt; row = source * P + prompt. prompts, categories : length P.
    method, proxy, blocks, layer, tuning : as in :mod:`backend.enrolment.head_fits`.
    Returns columns k, metric, statistic (of :data:`BY`), rule (the category), scenario, value, std, n (answers).
        Metrics: ``stated`` and ``realised`` (accuracy), ``probability``. A budget that does not fit has no row.
    """
    kinds = np.array(categories)
    for kind in sorted(set(categories)):
        rest = np.flatnonzero(kinds != kind)
        rows: list[dict[str, Any]] = []
        for by in BY:
            for k, answers in left_out(corpus, prompts, rest, by, method, proxy, blocks, layer, tuning).items():
                right, n = float(answers.right.mean()), len(answers.right) // len(GROUPING_SEEDS)
                values = {"stated": answers.stated, "realised": right, "probability": float(answers.probability.mean())}
                about = {"k": k, "statistic": by, "rule": kind, "scenario": SCENARIO, "n": max(n, 1)}
                rows += [about | {"metric": metric, "value": value} for metric, value in values.items()]
        yield kind, pd.DataFrame(rows)


def left_out(
    corpus: Corpus, prompts: Sequence[str], inside: Ints, by: str, method: str, proxy: str, blocks: Sequence[int],
    layer: int, tuning: Tuning = AS_ROSTERS[0],
) -> dict[int, Answers]:  # fmt: skip
    """Answers about the prompts that are not ``inside``, by heads that were fitted on those, by traces of an answer."""
    grid = np.arange(len(corpus.labels)).reshape(corpus.classes, -1)
    known = corpus.take(grid[:, inside].ravel())
    if by == BY[0]:
        folds = fold_of_prompts([f"{i:06d}" for i in range(len(inside))])
    else:
        grouping = group_traces(known.labels, [prompts[i] for i in inside] * corpus.classes)
        if not grouping.validates:
            return {}
        folds = grouping.folds[: len(inside)]
    known = replace(known, folds=np.tile(folds, corpus.classes))
    heads = heads_of(Fits(known, proxy, blocks, dict.fromkeys(range(FOLDS), layer)), method, (tuning,) * FOLDS)
    outside = grid[:, np.setdiff1d(np.arange(grid.shape[1]), inside)]
    scores = np.mean([score_rows(head, corpus, outside.ravel(), proxy) for head in heads.heads], axis=0)
    budgets = [k for k in budgets_of(folds) if k <= LARGEST]
    groups = {k: held_out_groups(heads.log_posteriors[CLEAN], folds, k) for k in budgets}
    calibration = fit_calibration(groups, None)
    local = np.arange(outside.size).reshape(outside.shape)
    return {
        k: _answers(scores, local, k, calibration, float((groups[k].scores.argmax(1) == groups[k].truth).mean()))
        for k in budgets
        if k <= outside.shape[1]
    }


def _answers(scores: Floats, rows: Ints, k: int, calibration: Calibration, stated: float) -> Answers:
    """Answers on groups of K traces, by log-posteriors (n, C) of rows (C, m)."""
    parts = []
    for seed in GROUPING_SEEDS:
        groups, truth = budget_groups(rows, k, seed, None)
        calibrated = calibration.apply(normalised(accumulate(scores, groups)), k)
        parts.append((np.exp(calibrated.max(1)), (calibrated.argmax(1) == truth).astype(np.intp)))
    probability, right = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Answers(stated, probability, right)


def score_rows(head: Head, corpus: Corpus, rows: Ints, proxy: str) -> Floats:
    """Log-posteriors (m, C) of rows by one head."""
    by_layer = {layer: corpus.fingerprints(layer, CLEAN)[rows].astype(np.float32) for layer in head.layers}
    cells = corpus.cells()[CLEAN][rows]
    if isinstance(head.probe, Ensemble):
        return head.log_posterior({proxy: by_layer, "word": corpus.counts()[CLEAN][rows]}, cells)
    states = np.concatenate([by_layer[layer] for layer in head.layers], axis=1)
    words = (states, corpus.counts()[CLEAN][rows]) if isinstance(head.probe, NgramBank) else states
    return head.log_posterior(words, cells)


def summary(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Rows of all categories together, each weighed by its answers, with ``rule`` 'all'.

    ``within`` is the share of the categories whose stated and realised accuracy differ by at most :data:`CLOSE`.
    """
    rows = pd.concat(frames, ignore_index=True)
    wide = rows.pivot(index=["scenario", "statistic", "k", "rule", "n"], columns="metric", values="value").reset_index()
    parts = []
    for (scenario, by, k), part in wide.groupby(["scenario", "statistic", "k"]):
        values = {name: float(np.average(part[name], weights=part["n"])) for name in METRICS}
        values["within"] = float((abs(part["stated"] - part["realised"]) <= CLOSE).mean())
        about = {"scenario": scenario, "statistic": by, "k": k, "rule": "all", "n": int(part["n"].sum())}
        parts += [about | {"metric": metric, "value": value} for metric, value in values.items()]
    return pd.DataFrame(parts)
