"""How often the verdict's rule is right: its answers on held-out groups of known sources.

The rule itself (:func:`backend.inference.verdict.decide`) is asked, once with the true source as the claim, once with
the other source that its traces are most likely to be taken for, and once without a claim. The test for unknown sources
and the shift flags are left out: they can only turn an answer into UNKNOWN or INCONCLUSIVE.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from backend.inference.verdict import Verdict, decide, gather

Doubles = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]
METRICS = (
    "true_claim_supported", "true_claim_refuted", "nearest_claim_supported", "nearest_claim_refuted",
    "named_right", "named_wrong", "family_right", "family_wrong",
    "true_claim_family_supported", "true_claim_family_refuted",
    "nearest_claim_family_supported", "nearest_claim_family_refuted",
)  # fmt: skip


def verdict_rates(
    log_posteriors: Doubles, truth: Ints, k: int, family: Ints, nearest: Ints, limits: Doubles, family_limits: Doubles
) -> dict[str, float]:
    """Shares of groups by what the rule answers.

    log_posteriors : (n, C) calibrated, of groups that the calibration has not seen.
    truth : (n,).
    k : traces a group.
    family : (C,) family number of every source.
    nearest : (C,) of every source the other one that is claimed in its place
        (:func:`backend.inference.sequential_stop.nearest_sources`).
    limits, family_limits : (n, 2) what ratios of sources and of families are held within
        (:meth:`backend.inference.calibration.Calibration.log10_limits`).
    Returns :data:`METRICS`. A claim is supported or refuted as that very source, or as its ``family`` alone; the
        nearest source's family counts where it is another than the true one, since a sibling's is what a true claim
        asks for. Without a claim the leading source is ``named``, or its ``family`` where siblings cannot be told
        apart.
    """
    tally = dict.fromkeys(METRICS, 0)
    held = np.stack([limits, family_limits], axis=1).tolist()
    for scores, source, within in zip(log_posteriors, truth.tolist(), held, strict=True):
        for claim, name in ((source, "true_claim"), (int(nearest[source]), "nearest_claim")):
            answer, _ = _answer(scores, family, k, claim, within)
            answered = "supported" if answer.outcome == "SUPPORTS" else "refuted"
            if answer.level == "source":
                tally[f"{name}_{answered}"] += 1
            elif answer.level == "family" and (claim == source or family[claim] != family[source]):
                tally[f"{name}_family_{answered}"] += 1
        answer, leader = _answer(scores, family, k, None, within)
        if answer.level == "source":
            tally["named_right" if leader == source else "named_wrong"] += 1
        elif answer.level == "family":
            tally["family_right" if family[leader] == family[source] else "family_wrong"] += 1
    return {name: count / len(truth) for name, count in tally.items()}


def _answer(scores: Doubles, family: Ints, k: int, claim: int | None, within: list[list[float]]) -> tuple[Verdict, int]:
    """The rule's answer, whose level is 'none' where it decides nothing, and the source that it is about."""
    (low, high), (family_low, family_high) = within
    evidence = gather(scores, family, k, claim, (low, high), (family_low, family_high))
    return decide(evidence), evidence.source
