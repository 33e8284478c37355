"""What verdicts are worth on traffic of another kind: the rule itself answers on labelled traces.

A verdict is right where it was validated. Here groups of K traces of enrolled sources are asked as an auditor asks:
with the true source as the claim, with the nearest other one, and without a claim. Every answer is counted, and so is
what the unknown-source test alone would have said.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.attribution.decision import weigh
from backend.attribution.fitted_statistics import fitted_statistics_of
from backend.attribution.scoring import Scored
from backend.enrolment.enrolment import Enrolment
from backend.inference.domain_shift import UNCHECKED, PromptReference, PromptScores, fit_prompt_reference
from backend.inference.sequential_stop import nearest_sources
from backend.inference.verdict import Rule
from backend.protocol import BUDGETS, GROUPING_SEEDS

Ints = npt.NDArray[np.intp]
PART = "transfer"
OUTCOMES = ("SUPPORTS", "AGAINST", "UNKNOWN", "INCONCLUSIVE")
CLAIMS = ("true", "nearest", "none")
MOST_GROUPS = 1_000  # of a budget, evenly drawn over the sources: a share of 5 % is known to 0.7 points then


@dataclass(frozen=True)
class LabelledScores:
    """Scored traces whose source is known."""

    scored: Scored  # with the fingerprints of every trace
    labels: Ints  # (n,) column of the true source in the enrolment
    prompts: PromptScores  # by the enrolment's reference, or by one that has not seen these prompts


def transfer_frame(
    enrolment: Enrolment,
    rows: LabelledScores,
    scenario: str,
    budgets: Sequence[int] = BUDGETS,
    seed: int = GROUPING_SEEDS[0],
    reference: PromptReference | None = None,
) -> pd.DataFrame:
    """Shares of every answer on groups of one source each.

    scenario : what the traces are to the enrolment: 'math100', 'category', 'same'.
    budgets : those above the number of traces of every source are left out.
    reference : judges the prompts in place of the enrolment's own, where that has seen them.
    Returns columns k, metric, scenario, value, n. Metrics: ``CLAIM_OUTCOME`` for the claims of :data:`CLAIMS`,
        ``flagged`` (prompts said to be of another kind), ``rejected`` (p of the unknown-source test at most its level,
        whatever the prompts are), ``false_unknown`` (UNKNOWN without a claim), ``wrong`` (a decision for a source, or
        for a family, that is not the true one, or against the true claim), ``leader`` and ``leading_family`` (the best
        match is right).
    """
    companions = fitted_statistics_of(enrolment)
    nearest = nearest_sources(rows.scored.log_posteriors, rows.labels)
    own = reference or enrolment.prompt_reference
    family = np.unique(np.array(enrolment.families), return_inverse=True)[1]
    out: list[dict[str, object]] = []
    for k in budgets:
        tally, n = Counter[str](), 0
        groups = groups_of(rows.labels, k, seed)
        some = np.unique(np.linspace(0, len(groups) - 1, min(len(groups), MOST_GROUPS)).astype(np.intp))
        for group, source in (groups[i] for i in some):
            scored = _some(rows, group, own)
            weighed = weigh(scored, enrolment, (companions.matched and companions.matched(scored)) or companions)
            leader = int(weighed.even.argmax())
            n += 1
            tally["flagged"] += weighed.traffic.kind != "like"
            tally["rejected"] += weighed.p is not None and weighed.p <= Rule.unknown_level
            tally["leader"] += leader == source
            tally["leading_family"] += bool(family[leader] == family[source])
            for claim in CLAIMS:
                named = {"true": source, "nearest": int(nearest[source]), "none": None}[claim]
                verdict = weighed.decide(named)
                tally[f"{claim}_{verdict.outcome}"] += 1
                subject = leader if named is None else named
                right = bool(subject == source if verdict.level == "source" else family[subject] == family[source])
                tally["wrong"] += (verdict.outcome, right) in (("SUPPORTS", False), ("AGAINST", True))
        if not n:
            continue
        tally["false_unknown"] = tally["none_UNKNOWN"]
        names = ["flagged", "rejected", "false_unknown", "leader", "leading_family", "wrong"]
        names += [f"{claim}_{outcome}" for claim in CLAIMS for outcome in OUTCOMES]
        for name in names:
            of = n * len(CLAIMS) if name == "wrong" else n
            out.append({"k": k, "metric": name, "scenario": scenario, "value": tally[name] / of, "n": of})
    return pd.DataFrame(out, columns=["k", "metric", "scenario", "value", "n"])


def groups_of(labels: Ints, k: int, seed: int) -> list[tuple[Ints, int]]:
    """Groups of K rows of one source each, as many as fill; the remainder is dropped."""
    rng = np.random.default_rng(seed + 100 + 7919 * k)
    out = []
    for source in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == source))
        out += [(rows[low : low + k], int(source)) for low in range(0, len(rows) - k + 1, k)]
    return out


def held_out_prompts(prompts: Sequence[str], folds: npt.NDArray[np.integer]) -> tuple[PromptScores, PromptReference]:
    """Distinct prompts as references without their fold (P,) see them, and the reference that judges them."""
    parts: list[PromptScores | None] = [None] * len(prompts)
    whole = None
    for fold in np.unique(folds):
        inside, rest = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        whole = fit_prompt_reference([prompts[i] for i in rest.tolist()], folds[rest])
        if whole is None:
            raise ValueError("there are too few prompts for a reference")
        scores = whole.score([prompts[i] for i in inside.tolist()])
        for place, i in enumerate(inside):
            parts[i] = scores.take(np.array([place]))
    assert whole is not None
    return PromptScores.joined([part for part in parts if part is not None]), whole


def _some(rows: LabelledScores, group: Ints, reference: PromptReference | None) -> Scored:
    every = rows.scored
    assert every.fingerprints is not None
    return Scored(
        log_posteriors=every.log_posteriors[group],
        tokens=every.tokens[group],
        folds=tuple(every.folds[i] for i in group),
        mean=every.fingerprints[group].mean(0, dtype=np.float64),
        fingerprints=None,
        complete=True,
        seconds=0.0,
        engine=every.engine,
        traffic=UNCHECKED if reference is None else reference.judge(rows.prompts.take(group)),
    )


def pooled(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Rows of several runs of one scenario as those of all their groups together."""
    rows = pd.concat(frames, ignore_index=True)
    rows["value"] *= rows["n"]
    sums = rows.groupby(["k", "metric", "scenario"], as_index=False)[["value", "n"]].sum()
    return sums.assign(value=sums["value"] / sums["n"])[["k", "metric", "scenario", "value", "n"]]
