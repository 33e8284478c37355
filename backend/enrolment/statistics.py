"""Calibration and reference statistics of an enrolment, on out-of-fold evidence of its own prompts.

For whole responses and every cut of them that was scored; the sequential stop for whole responses. The validation
(:mod:`backend.inference.validation`) measures these same fits on prompts that they have not seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.geometry.signatures import signatures, source_means
from backend.inference.calibration import (
    WITH_BIAS,
    Calibration,
    bounds_of,
    budgets_of,
    fit_calibration,
    held_out_groups,
)
from backend.inference.domain_shift import PART as PROMPTS
from backend.inference.domain_shift import fit_domain, fit_prompt_reference
from backend.inference.sequential_stop import fit_stop_rule, nearest_sources, running_ratios, stop_arrays
from backend.inference.unknown_source import UnknownReference, fit_unknown, group_means
from backend.inference.validation import SESSION_ORDERS, STOP_LEVELS, fold_sessions
from backend.methods.readout import Ints, inside
from backend.methods.readout import Rows as Floating
from backend.protocol import CLEAN, SPLIT_SEED, budget_groups, grid_rows

UNKNOWN_DRAWS = 200  # a source and budget: p values down to 1/201, and 165 sources below 8 MB
DOMAIN_DRAWS = 499
MOST_REALISED, QUANTILES = 4_000, 500  # groups whose p value is computed, and the quantiles that are saved


def fit_attachments(
    log_posteriors: Mapping[str, Floating], prompt_folds: Ints, fingerprints: Mapping[str, Floating] | None = None,
    domain: str = "enrolled", *, families: Sequence[str] | None = None,
) -> dict[str, npt.NDArray[Any]]:  # fmt: skip
    """Attachments of an enrolment: ``calibration``, ``unknown``, ``stop``, ``domain-DOMAIN``, ``signatures``.

    log_posteriors : by condition (C * P, C), out-of-fold, row = source * P + prompt; parts of a cut end in ``-CUT``.
    prompt_folds : (P,) folds 0, 1, ..; each needs at least two prompts.
    fingerprints : by condition (C * P, 2 d), at the block where traces are placed; for domain and signatures.
    families : length C, for the bounds of a family's likelihood ratio.
    """
    out: dict[str, npt.NDArray[Any]] = {}
    budgets = budgets_of(prompt_folds)
    family = None if families is None else np.unique(families, return_inverse=True)[1]
    for condition, scores in log_posteriors.items():
        tail = "" if condition == CLEAN else f"-{condition}"
        classes = scores.shape[1]
        labels, blocks = np.repeat(np.arange(classes), len(prompt_folds)), np.tile(prompt_folds, classes)
        groups = {k: held_out_groups(scores, prompt_folds, k) for k in budgets}
        calibration = fit_calibration(groups, WITH_BIAS, family)
        unknown = fit_unknown(scores, labels, blocks, budgets=budgets, draws=UNKNOWN_DRAWS)
        out |= attached({f"calibration{tail}": calibration, f"unknown{tail}": unknown})
        for name in ("transform", "centres"):  # distances need no more, and a file of 165 sources is to be small
            out[f"unknown{tail}.{name}"] = out[f"unknown{tail}.{name}"].astype(np.float32)
        out[f"unknown{tail}.nulls"] = shortened(out[f"unknown{tail}.nulls"])
        if condition == CLEAN:
            out |= {f"stop.{name}": array for name, array in stop_rules(scores, prompt_folds, calibration).items()}
    for condition, rows in (fingerprints or {}).items():
        tail = "" if condition == CLEAN else f"-{condition}"
        labels = np.repeat(np.arange(len(rows) // len(prompt_folds)), len(prompt_folds))
        reference = fit_domain(rows, labels, budgets, draws=DOMAIN_DRAWS)
        out |= attached({f"domain-{domain}{tail}": reference})
        if condition == CLEAN:
            prompts = len(prompt_folds)
            means = source_means(rows, sources=len(rows) // prompts, prompts=prompts)[0]
            out["signatures.vectors"] = signatures(means).astype(np.float16)
    return out


def measured_attachments(
    attachments: Mapping[str, npt.NDArray[Any]], log_posteriors: Floating, prompt_folds: Ints, families: Sequence[str]
) -> dict[str, npt.NDArray[Any]]:
    """Bounds of ratios, and realised p values, of statistics that were fitted without them; as :func:`fit_attachments`.

    For an enrolment whose evaluation is gone. A budget that does not fit into a fold has the bounds of the largest that
    does, and groups from all folds for the p values.
    """
    calibration = Calibration.from_arrays(inside(attachments, "calibration."))
    unknown = replace(UnknownReference.from_arrays(inside(attachments, "unknown.")), realised=None)
    family = np.unique(families, return_inverse=True)[1]
    pairs: list[list[tuple[float, float]]] = []
    realised: list[npt.NDArray[np.float64]] = []
    classes, prompts = log_posteriors.shape[1], len(prompt_folds)
    fitting = budgets_of(prompt_folds)
    for budget in calibration.budgets.tolist():
        if budget in fitting:
            groups = held_out_groups(log_posteriors, prompt_folds, budget)
            pairs.append(bounds_of(calibration.apply(groups.scores, budget), groups, family))
        else:
            pairs.append(pairs[-1])
        folds = prompt_folds if budget in fitting else np.zeros(prompts, dtype=np.intp)
        rows = [
            budget_groups(grid_rows(classes, prompts, folds == fold), min(budget, prompts), SPLIT_SEED, int(fold))[0]
            for fold in np.unique(folds)
        ]
        groups_of_rows = np.concatenate(rows)
        some = np.linspace(0, len(groups_of_rows) - 1, min(len(groups_of_rows), MOST_REALISED)).astype(np.intp)
        p_values = unknown.p_none(group_means(log_posteriors, groups_of_rows[some]), budget)
        realised.append(np.quantile(p_values, np.linspace(0, 1, QUANTILES)))
    bounds, family_bounds = np.array(pairs).swapaxes(0, 1)
    found = {"calibration.bounds": bounds, "calibration.family_bounds": family_bounds}
    return found | {"unknown.realised": np.array(realised, dtype=np.float32)}


def prompt_attachments(prompts: Sequence[str], folds: npt.NDArray[np.integer]) -> dict[str, npt.NDArray[Any]]:
    """Part ``prompts`` from prompts, which may repeat, and folds (P,), without text; empty where these are too few."""
    fold_of = dict(zip(prompts, folds.tolist(), strict=True))
    reference = fit_prompt_reference(list(fold_of), np.array(list(fold_of.values()), dtype=np.intp))
    return {} if reference is None else attached({PROMPTS: reference})


def shortened(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Numbers with 12 bits of mantissa: one part in 8,000 off at most, in the same order, and packed smaller."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((bits + np.uint32(0x400)) & np.uint32(0xFFFFF800)).view(np.float32)


def stop_rules(log_posteriors: Floating, prompt_folds: Ints, calibration: Calibration) -> dict[str, npt.NDArray[Any]]:
    """Stop rules of every level on sessions of all folds."""
    classes, folds = log_posteriors.shape[1], [int(fold) for fold in np.unique(prompt_folds)]
    sessions = fold_sessions(prompt_folds, folds, classes, SESSION_ORDERS, SPLIT_SEED)
    ratios = running_ratios(log_posteriors, sessions.rows, calibration)
    nearest = nearest_sources(log_posteriors, np.repeat(np.arange(classes), len(prompt_folds)))
    return stop_arrays([fit_stop_rule(ratios, sessions, nearest, level) for level in STOP_LEVELS])


def attached(parts: Mapping[str, Any]) -> dict[str, npt.NDArray[Any]]:
    """Attachments of an enrolment out of fitted statistics, by the name of their part."""
    return {f"{part}.{name}": array for part, fitted in parts.items() for name, array in fitted.to_arrays().items()}
