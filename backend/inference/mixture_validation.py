"""Realised coverage, alarms and answers about simulated mixtures of held-out traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.inference import Doubles, Floating, Ints
from backend.inference.calibration import WITH_BIAS, CalibrationFits, Groups, fit_calibration
from backend.inference.mixture import (
    LEVEL,
    SHARES,
    MixtureReference,
    Mixtures,
    draw_mixtures,
    fit_mixture,
    found_from,
    intervals_of,
    judge,
    ratios_of,
    role_columns,
)
from backend.protocol import SPLIT_SEED

TESTED = 2  # neighbouring folds that are tested together, so that 200 traces can have prompts of their own
FEWEST, MOST = 20, 100  # mixtures of a share and a pair of tested folds: one a source, within these
Key = tuple[str, str, float | None]  # metric, role and level
Measured = dict[Key, npt.NDArray[Any]]  # one value a mixture


def mixture_frame(
    log_posteriors: Floating, prompt_folds: Ints, by_budget: Mapping[int, Groups], family: Ints
) -> pd.DataFrame:
    """Answers about mixtures on two folds, by a calibration and a reference of the others, in turn.

    log_posteriors : (C * P, C) out-of-fold, row = source * P + prompt; prompt_folds : (P,); by_budget : groups of them
    for the calibration; family : (C,).
    Returns columns k, metric, scenario, statistic, level, value, std (over pairs of folds), n (mixtures). Scenario:
        ``any`` other source is mixed in, or a ``sibling``; statistic: the role of the source whose share is meant;
        level: the share from elsewhere, all of SHARES together where it is missing. Metrics: ``share_coverage`` and
        ``share_width`` of the interval; ``found``, how often "all from the main source" is refused (at level 0 the
        false alarms); ``detectable``; ``says_mixture``, ``says_one_source`` and ``says_wrong_source``.
    """
    folds, classes, width = np.unique(prompt_folds), log_posteriors.shape[1], len(prompt_folds)
    drawn = np.repeat(SHARES, np.clip(classes, FEWEST, MOST))
    fits, found = CalibrationFits(), dict[tuple[int, str, str, str, float | None], list[tuple[float, int]]]()
    siblings = [np.setdiff1d(np.flatnonzero(family == one), [source]) for source, one in enumerate(family)]
    for place, fold in enumerate(folds):
        tested = {int(fold), int(folds[(place + TESTED - 1) % len(folds)])}
        seen = {k: g.where(~np.isin(g.fold, list(tested))) for k, g in by_budget.items()}
        calibrated = fit_calibration(seen, WITH_BIAS, fits=fits).apply(log_posteriors, 1).astype(np.float32)
        inside = np.isin(prompt_folds, list(tested))
        reference = fit_mixture(calibrated, np.flatnonzero(~inside))
        if reference is None:
            break
        prompts, rng = np.flatnonzero(inside), np.random.default_rng(SPLIT_SEED + place)
        for k in (int(k) for k in reference.budgets if k <= len(prompts)):
            for kind, mains, others in (
                ("any", np.arange(classes), None),
                ("sibling", np.array([s for s, those in enumerate(siblings) if len(those)], dtype=np.intp), siblings),
            ):
                if not len(mains):
                    continue
                main = rng.choice(mains, size=len(drawn))
                mixed = draw_mixtures(main, drawn, k, prompts, width, classes, rng, repeated=False, others=others)
                measured = _answers(reference, calibrated, mixed, k, drawn)
                if kind == "any":
                    measured |= _intervals(reference, calibrated, mixed, k, drawn, rng)
                for key, values in measured.items():
                    found.setdefault((k, kind, *key), []).append((float(np.mean(values)), len(values)))
    rows = [_row(k, kind, key, pairs) for (k, kind, *key), pairs in found.items()]
    for k, kind in dict.fromkeys(key[:2] for key in found):
        powers = np.array([[value for value, _ in found[k, kind, "found", "", share]] for share in SHARES[1:]])
        if np.isfinite(smallest := found_from(powers.mean(1))):
            many = powers.shape[1] * len(drawn)
            rows.append(_row(k, kind, ("detectable", "", None), [(smallest, many)]) | {"std": None})
    return pd.DataFrame(rows)


def _row(k: int, kind: str, key: Sequence[Any], pairs: Sequence[tuple[float, int]]) -> dict[str, Any]:
    values, counts = zip(*pairs, strict=True)
    metric, role, level = key
    about = {"k": k, "metric": metric, "scenario": kind, "statistic": role or None, "level": level}
    return {**about, "value": float(np.mean(values)), "std": float(np.std(values)), "n": sum(counts)}


def _answers(
    reference: MixtureReference, log_posteriors: Floating, mixtures: Mixtures, budget: int, drawn: Doubles
) -> Measured:
    """Whether every mixture is found, and what is said of it, by the share that was drawn."""
    ratios = ratios_of(log_posteriors, mixtures)
    p, main, every = reference.p_values(ratios, budget), mixtures.main, np.arange(len(ratios))
    refused = p[every, main] <= LEVEL
    said = [judge(reference, p[at], ratios[at], int(main[at]), budget) for at in every]
    outcomes, right = np.array([one for one, _ in said]), np.array([source for _, source in said]) == main
    out: Measured = {}
    for share in SHARES:
        some = drawn == share
        one = outcomes[some] == "one source"
        out |= {
            ("found", "", share): refused[some],
            ("says_mixture", "", share): outcomes[some] == "mixture",
            ("says_one_source", "", share): one & right[some],
            ("says_wrong_source", "", share): one & ~right[some],
        }
    return out


def _intervals(
    reference: MixtureReference,
    log_posteriors: Floating,
    mixtures: Mixtures,
    budget: int,
    drawn: Doubles,
    rng: np.random.Generator,
) -> Measured:
    """Whether every interval holds the true share, and its width, by role, and by the share that was drawn."""
    shares, low, high = intervals_of(log_posteriors, mixtures, rng)
    out: Measured = {}
    for number, (role, (at, source, truth)) in enumerate(role_columns(mixtures, shares).items()):
        least, most = reference.moved(low[at, source], high[at, source], np.full(len(at), number), budget)
        estimate = shares[at, source]
        least, most = np.minimum(least, estimate), np.maximum(most, estimate)
        holds = (least <= truth + 1e-9) & (truth <= most + 1e-9)
        out |= {("share_coverage", role, None): holds, ("share_width", role, None): most - least}
        out |= {("share_coverage", role, level): holds[drawn[at] == level] for level in np.unique(drawn[at]).tolist()}
    return out
