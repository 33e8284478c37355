"""A choice of candidates: posteriors among some of the enrolled sources.

The ratio of two sources does not depend on who else is listed, so that posteriors among candidates are those of all
sources, renormalised. Whether they hold there is measured on held-out groups of just these candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

from backend.inference import Doubles, Ints
from backend.inference.calibration import Groups, normalised
from backend.inference.likelihood_ratios import LN10, weighed_log_ratio

UNVALIDATED_CHOICE = "this choice of candidates was not validated"  # why nothing more is supported among them
MOST = 25  # groups of a source and budget that are saved
STEPS = 40.0  # codes of a log-posterior go by its root: .01 nats apart near a probability of one, .1 near 1/100


@dataclass(frozen=True)
class Choice:
    """The evidence of the whole enrolment about chosen candidates, each enrolled source as likely as the next."""

    share: float  # posterior of the candidates together
    log10_lr: float  # of the candidates together against all others
    outside: str  # the best source that is no candidate; '' where there is none
    leads: bool  # whether that one is ahead of every candidate


def weigh_choice(log_posterior: Doubles, sources: tuple[str, ...], candidates: Ints, least: float) -> Choice:
    """Weigh candidates together against all others.

    log_posterior : (C,) under the even prior; candidates : their numbers; least : smallest log10 ratio to be stated.
    """
    inside = np.isin(np.arange(len(sources)), candidates)
    share = float(np.exp(logsumexp(log_posterior[inside])))
    if inside.all():
        return Choice(share, np.inf, "", False)
    best = int(np.where(inside, -np.inf, log_posterior).argmax())
    ratio = float(weighed_log_ratio(log_posterior, inside, np.zeros(len(sources)))) / LN10
    return Choice(share, max(ratio, least), sources[best], best == int(log_posterior.argmax()))


@dataclass(frozen=True)
class HeldOutGroups:
    """Calibrated answers to held-out groups by number of traces, by calibrations that saw none of their fold."""

    truth: Mapping[int, npt.NDArray[np.int16]]  # (G,) numbers of sources
    log_posteriors: Mapping[int, npt.NDArray[np.float16]]  # (G, C) under the even prior

    @classmethod
    def of(
        cls, by_budget: Mapping[int, Groups], calibrated: Mapping[int, Doubles], fewest: int, most: int = MOST
    ) -> HeldOutGroups:
        """Groups of the first grouping, ``most`` a source, evenly drawn, of ``fewest`` traces or more."""
        chosen: dict[int, Ints] = {}
        for k, groups in by_budget.items():
            rows = np.flatnonzero(groups.seed == groups.seed[0])
            drawn = np.linspace(0, len(rows) - 1, min(len(rows), most * groups.scores.shape[1]))
            chosen |= {k: rows[drawn.astype(np.intp)]} if k >= fewest else {}
        truth = {k: by_budget[k].truth[rows].astype(np.int16) for k, rows in chosen.items()}
        return cls(truth, {k: calibrated[k][rows].astype(np.float16) for k, rows in chosen.items()})

    def to_arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Arrays for :func:`numpy.savez` without pickling; a log-posterior takes a byte, which is 40 nats at most."""
        roots = {k: STEPS * np.sqrt(np.maximum(-rows.astype(np.float64), 0)) for k, rows in self.log_posteriors.items()}
        codes = {k: np.rint(np.minimum(values, 255)).astype(np.uint8) for k, values in roots.items()}
        parts: dict[str, Mapping[int, npt.NDArray[Any]]] = {"truth": self.truth, "codes": codes}
        return {f"{name}-{k}": array for name, part in parts.items() for k, array in part.items()}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, npt.NDArray[Any]], classes: int) -> HeldOutGroups:
        """The inverse of :meth:`to_arrays`; KeyError or ValueError for arrays that do not fit ``classes`` sources."""
        budgets = [int(name.removeprefix("truth-")) for name in arrays if name.startswith("truth-")]
        truth = {k: np.asarray(arrays[f"truth-{k}"], dtype=np.int16) for k in budgets}
        codes = {k: arrays[f"codes-{k}"] for k in budgets if f"codes-{k}" in arrays}
        found = {k: np.asarray(arrays[f"log_posteriors-{k}"], dtype=np.float16) for k in budgets if k not in codes}
        found |= {k: (-((code / STEPS) ** 2)).astype(np.float16) for k, code in codes.items()}
        if not budgets or any(found[k].shape != (truth[k].size, classes) or k < 1 for k in budgets):
            raise ValueError("held-out groups are not of these sources")
        return cls(truth, found)

    def among(self, candidates: Ints, traces: int) -> dict[str, Any] | None:
        """What was stated and realised among candidates, at the largest budget up to a number of traces; as JSON.

        Of groups whose source is a candidate: the mean probability of the leading one, and how often that is right.
        None without such a group or budget.
        """
        k = max((budget for budget in self.truth if budget <= traces), default=None)
        if k is None or not (own := np.isin(self.truth[k], candidates)).any():
            return None
        posteriors = np.exp(normalised(self.log_posteriors[k][own][:, candidates]))
        right = candidates[posteriors.argmax(1)] == self.truth[k][own]
        found: dict[str, Any] = {"candidates": len(candidates), "traces": k, "groups": len(right)}
        found |= {"stated": float(posteriors.max(1).mean()), "realised": float(right.mean())}
        words = "Among these {candidates:,} candidates: stated {stated:.3f}, realised {realised:.3f} over {groups:,} "
        return found | {"sentence": f"{words}held-out groups of {{traces:,}}.".format(**found)}
