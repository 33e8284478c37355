"""Validation of an enrolment for as many traces or the next fewer tested, and the same length of response.

Where many responses end at one length, unless enrolled whole ones end there too, the condition is the shortest
validated cut that nearly all fit into.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from backend.enrolment.enrolment import Enrolment
from backend.inference import drift
from backend.inference.sequential_stop import StopRule
from backend.inference.validation import NUMBERS, SPACE, TEXTS, VERDICTS
from backend.inference.verdict import NOT_KNOWN, Passing
from backend.protocol import BACKGROUND, CLEAN, FOLDS

ROOM = 1.25  # how far above a cut the 95 % quantile of the lengths may lie: tokenizers do not count alike
PILE, NEAR = 0.4, 0.85  # this share of cut responses has so much of the 95 % quantile of their lengths, ..
FEWEST, WITHIN = 4, 0.075  # .. and so many lie within so much of it: of five whole responses two often do
MOST = 0.9  # of held-out groups: as many traces as decide these are called enough
ENDS = 0.95  # share of the length of whole responses from which on a limit is that of the enrolled responses themselves
SUMMARY = {  # names in a report, and metrics of the part calibration
    "accuracy": "accuracy_after", "ece": "ece_after", "ece_before": "ece_before", "ece_floor": "ece_floor",
    "cllr": "cllr_claim_after", "cllr_before": "cllr_claim_before",
}  # fmt: skip
SERVED = {"unknown": "relative-mahalanobis", "refit": "relative-mahalanobis", "drift": "energy", "stop": "controlled"}
"""The statistic (or rule) of every part of an enrolment; others are in the results only."""
SCENARIOS = {  # what is excluded, what a pair of windows is of, and what kind the prompts are
    "same": ("", "the same source", "held-out prompts of the enrolled kind"),
    "sibling": ("a source whose siblings are enrolled", "two siblings", ""),
    "family": ("a family that was left out", "two families", ""),
    "math100": ("", "", "mathematical problems, which were not enrolled"),
    "agent500": ("", "", "engineering tasks, which were not enrolled"),
    "category": ("", "", "a category of prompts that was left out"),
    "time": ("", "", "the last fifth of the time, after fitting on the earlier traces"),
}
MIXED = {"any": "another source", "sibling": "a sibling"}  # what is mixed in
GROUPS = "Of {n:,} groups of {traces} to prompts held out, "
PASS = " pass as an enrolled source's in {share} of the groups of {traces}."
REJECT = ", {share} of the groups of {traces} of an enrolled source are called unknown."
ANSWERS = "Of {n:,} answers on {traces} to {traffic}, {share} "
SENTENCES = {  # by part and metric
    ("calibration", "accuracy_after"): GROUPS + "{share} were attributed to their source.",
    ("calibration", "ece_after"): "Stated probabilities are off by {share} on average (calibration error at {traces}).",
    ("calibration", "cllr_claim_after"): "Cost of the likelihood ratios (Cllr): {value:.3f} bits; 1 is a reader that "
    "says nothing.",
    ("calibration", "verdict"): GROUPS + "the rule {rule} in {share}.",
    ("refit", "false_acceptance"): "Traces of {of}" + PASS,
    ("refit", "false_rejection"): "Without {of}" + REJECT,
    ("unknown", "false_acceptance"): "Traces of {of} (its columns taken out)" + PASS,
    ("unknown", "false_rejection"): "Without {of} (its columns taken out)" + REJECT,
    ("transfer", "accuracy"): ANSWERS + "were attributed to their source.",
    ("transfer", "false_unknown"): ANSWERS + "were UNKNOWN although the source is enrolled.",
    ("transfer", "flagged"): ANSWERS + "found the prompts to be another kind of traffic.",
    ("transfer", "wrong"): ANSWERS + "supported a wrong source or refuted the true one.",
    ("stop", "stop_error"): "Of the sessions that stop {stated}, {share} name a wrong source.",
    ("stop", "claim_false_support"): "{Stated}, the nearest other source passes as the claim in {share}.",
    ("stop", "claim_false_against"): "{Stated}, {share} of the true claims are refuted.",
    ("mixture", "share_coverage"): "Of the 95 % intervals of the {role} source's share in simulated mixtures of "
    "{traces}, {share} hold that share.",
    ("mixture", "found"): "A share of {part} from {mixed} is found in {share} of {n:,} simulated mixtures of {traces}.",
    ("mixture", "alarm"): "Of {n:,} groups of {traces} of one source, {share} are taken for a mixture with {mixed}.",
    ("drift", "alarms"): "Two windows of {k:,} traces of {pair} are called different in {share} of the pairs.",
}
UNDECIDED = {  # error rates of the stop, their threshold, and what never happens where it is infinite
    "stop_error": ("name", "names a source"),
    "claim_false_support": ("support", "supports a claim"),
    "claim_false_against": ("against", "refutes a claim"),
}


def validation_of(enrolment: Enrolment) -> pd.DataFrame:
    """The rows of :func:`validation_arrays`; none where none are attached."""
    return pd.DataFrame(_columns(enrolment))


def _columns(enrolment: Enrolment) -> dict[str, npt.NDArray[Any]]:
    """The same without pandas, which takes ten times as long to look rows up."""
    kinds = dict.fromkeys(TEXTS, object) | dict.fromkeys(NUMBERS, np.float64)
    attached = {name: enrolment.attachments.get(f"validation.{name}", np.empty(0)) for name in kinds}
    return {name: np.asarray(attached[name], dtype=kind) for name, kind in kinds.items()}


def validated_under(facts: Mapping[str, Any]) -> str | None:
    """Sentence about the groups that an enrolment was validated on, by its facts; None where they name none."""
    grouping = facts.get("grouping")
    if not isinstance(grouping, Mapping):
        return None
    count = int(grouping["groups"])
    many = f"{count:,} group{'s' * (count != 1)} of prompts that belong together ({', '.join(grouping['kinds'])})"
    if grouping["validates"]:
        return f"Validated on {many}."
    return f"Not validated: {many} cannot be split into {FOLDS} parts with traces of every source in each."


def accuracy_of_one(enrolment: Enrolment) -> float | None:
    """Accuracy of single whole responses to prompts that were held out; None where it was not validated."""
    validation = validation_of(enrolment)
    whole = validation["part"].eq("calibration") & validation["condition"].eq(CLEAN) & validation["k"].eq(1)
    value = validation["value"][whole & validation["metric"].eq("accuracy_after")]
    return float(value.iloc[0]) if len(value) else None


def conditions_of(enrolment: Enrolment) -> list[str]:
    """Lengths that the enrolment has a calibration for, ``clean`` first."""
    cut = {n.partition(".")[0].partition("-")[2] for n in enrolment.attachments if n.startswith("calibration-")}
    cut.discard(BACKGROUND)
    return [CLEAN, *sorted(cut, key=lambda name: -_limit(name))]


def condition_of(tokens: npt.NDArray[np.integer], conditions: Collection[str], whole: float | None = None) -> str:
    """'clean', or the cut that the lengths fit into; a limit where ``whole`` responses end is no cut."""
    if not len(tokens):
        return CLEAN
    length = float(np.quantile(tokens, 0.95))
    piled = (tokens >= NEAR * length).mean() >= PILE and (abs(tokens - length) <= WITHIN * length).sum() >= FEWEST
    if not piled or (whole is not None and length >= ENDS * whole):
        return CLEAN
    fitting = [name for name in conditions if name != CLEAN and length <= ROOM * _limit(name)]
    return min(fitting, key=_limit, default=CLEAN)


def whole_tokens(tokens: npt.NDArray[np.integer], labels: npt.NDArray[np.integer]) -> float:
    """Where whole responses end: of the 95 % quantiles of each source's lengths (n,) the 5 % quantile."""
    return float(np.quantile([np.quantile(tokens[labels == one], 0.95) for one in np.unique(labels)], 0.05))


def condition_in(enrolment: Enrolment, tokens: npt.NDArray[np.integer], conditions: Collection[str]) -> str:
    """The condition of traces, by what is known of the lengths of an enrolment's own responses."""
    known = enrolment.facts.get("whole_tokens")
    return condition_of(tokens, conditions, float(known) if isinstance(known, int | float) else None)


def matched_validation(
    enrolment: Enrolment, tokens: npt.NDArray[np.integer], traces: int, balanced: bool = False
) -> dict[str, Any] | None:
    """Realised error rates of the validated condition that is like the traces', for a report, or None.

    balanced : whether unlabelled responses balanced the scores; nothing else stands in for that condition.

    Returns JSON: ``condition``, by the response tokens (n,); ``traces`` (the largest validated K up to ``traces``; None
    below all) and ``groups`` behind it; ``grouping``, a sentence, where it is known; the names of :data:`SUMMARY`;
    ``prompts_needed`` as in :func:`prompts_needed` for a comparison with a reference; ``rows``. Parts that were not
    measured in the condition are those of whole responses; the stop's are of whole sessions, whatever ``traces`` are.
    An error rate of the stop that no session could have shown is a row ``undecided`` without a value.
    """
    columns = _columns(enrolment)
    if not len(columns["part"]):
        return None
    lengths = {CLEAN, *columns["condition"]} - {BACKGROUND}
    condition = BACKGROUND if balanced else condition_in(enrolment, tokens, lengths)
    if balanced and BACKGROUND not in columns["condition"]:
        return None
    rows: list[dict[str, Any]] = []
    for part in ("calibration", "transfer", "refit", "unknown", "stop", "mixture", "drift"):
        of_part = columns["part"] == part
        if part in SERVED:
            of_part &= columns["rule" if part == "stop" else "statistic"] == SERVED[part]
        if part == "mixture":
            of_share = (columns["metric"] == "share_coverage") & np.isnan(columns["level"])
            of_part &= of_share | (columns["metric"] == "found")
        if part == "drift":
            of_part &= columns["space"] == SPACE
        here = of_part & (columns["condition"] == condition)
        if not here.any() and not balanced:
            here = of_part & (columns["condition"] == CLEAN)
        if here.any():
            budgets = columns["k"][here]
            k = budgets.max() if part == "stop" else largest_tested(budgets, traces)
            places = np.flatnonzero(here & (columns["k"] == k))
            rows += [_report_row({name: column[i] for name, column in columns.items()}) for i in places]
    table = np.atleast_2d(enrolment.attachments.get("stop.thresholds", np.empty((0, 4))))
    rules = {level: StopRule.from_arrays({"thresholds": table}, level) for level in table[:, 0].tolist()}
    rows = [_fix_stop_error_rate(row, rows, rules) for row in rows]
    rows += _missing_error_rates(rows, rules)
    summary = {row["metric"]: row for row in rows if row["part"] == "calibration"}
    at, grouping = summary.get("accuracy_after") or next(iter(summary.values()), None), validated_under(enrolment.facts)
    return {
        "condition": condition,
        "traces": None if at is None else at["k"],
        "groups": None if at is None else at["n"],
        **({} if grouping is None else {"grouping": grouping}),
        **{name: summary[metric]["value"] for name, metric in SUMMARY.items() if metric in summary},
        "prompts_needed": prompts_needed(enrolment, paired=True),
        "rows": rows,
    }


def enough_traces(enrolment: Enrolment, validation: Mapping[str, Any], traces: int, claimed: bool) -> str:
    """From how many traces on the rule decides most held-out groups, in a sentence.

    validation : of ``traces`` traces, from :func:`matched_validation`; the tests of prompts and of unknown sources are
    not part of these numbers.
    """
    columns = _columns(enrolment)
    here = (columns["part"] == "calibration") & (columns["condition"] == validation["condition"])

    def shares(*metrics: str) -> dict[int, float]:
        out = dict[int, float]()
        for i in np.flatnonzero(here & np.isin(columns["metric"], [f"verdict_{name}" for name in metrics])):
            out[int(columns["k"][i])] = out.get(int(columns["k"][i]), 0.0) + float(columns["value"][i])
        return dict(sorted(out.items()))

    right = ("true_claim_supported", "true_claim_family_supported") if claimed else ("named_right", "family_right")
    decided, what = shares(*right), "true claims" if claimed else "held-out groups"
    if not decided:
        return NOT_KNOWN
    most = max(decided)
    enough = list(itertools.takewhile(lambda k: decided[k] >= MOST, sorted(decided, reverse=True)))
    if not enough:
        return (
            f"How many decide {100 * MOST:g} % of such cases is not known: {most:,}, the most that were tested, "
            f"decided {100 * decided[most]:.0f} % of {what}."
        )
    least = enough[-1]
    text = f"From {least:,} traces on, at least {100 * MOST:g} % of {what} are decided, for the source or its family"
    if claimed and (false := shares("nearest_claim_refuted", "nearest_claim_family_refuted")):
        text += f"; of claims of the nearest other source, {100 * false[most]:.0f} % are refuted with {most:,}"
    return f"{text}. Yours are of the rest, and more may not decide it." if traces >= least else f"{text}."


def passing_of(validation: Mapping[str, Any] | None) -> Passing | None:
    """How many unenrolled sources pass the unknown-source test, out of a :func:`matched_validation`."""
    rows = {
        row["scenario"]: row  # refitted readers come first, and win
        for row in reversed((validation or {"rows": ()})["rows"])
        if row["metric"] == "false_acceptance" and row["value"] is not None
    }
    shares = {who: rows[who]["value"] for who in ("family", "sibling") if who in rows}
    if not shares:
        return None
    return Passing(rows[next(iter(shares))]["k"], shares.get("family"), shares.get("sibling"))


def largest_tested(budgets: npt.ArrayLike, traces: int) -> float | None:
    """The largest budget up to a number of traces: a larger one would flatter; None below all."""
    return max((float(k) for k in np.unique(budgets) if k <= traces), default=None)


def _limit(condition: str) -> int:
    digits = condition.removeprefix("t")
    return int(digits) if digits.isdecimal() else 10**9


def _report_row(row: Mapping[str, Any]) -> dict[str, Any]:
    texts = {name: row[name] or None for name in TEXTS}
    numbers = {name: None if np.isnan(row[name]) else float(row[name]) for name in ("level", "value", "std")}
    out = {**texts, **numbers, "k": int(row["k"]), "n": int(row["n"])}
    return out | {"sentence": sentence(out)}


def _fix_stop_error_rate(
    row: dict[str, Any], rows: Sequence[Mapping[str, Any]], rules: Mapping[float, StopRule]
) -> dict[str, Any]:
    """A row, with the error rate of a stop corrected.

    Where nothing stops there is none. An earlier validation counted 0 in every fold where nothing stops, and averaged:
    its mean over the share that stops is a bound of the rate among all that do.
    """
    if row["part"] != "stop" or row["metric"] not in UNDECIDED:
        return row
    rule = rules.get(row["level"])
    if rule is not None and np.isinf(getattr(rule, UNDECIDED[row["metric"]][0])):
        return _undecided(row, rule)
    stops = [one for one in rows if one["metric"] == "stop_share" and one["level"] == row["level"]]
    if row["metric"] != "stop_error" or not stops:
        return row
    share, sessions = stops[0]["value"], stops[0]["n"]
    if share == 0:
        return _undecided(row, rule)
    if row["n"] < sessions or share == 1:
        return row
    most = min(row["value"] / share, 1.0)
    stated = f"a stated error rate of {100 * row['level']:g} %"
    text = f"Of the sessions that stop at {stated}, at most {100 * most:.1f} % name a wrong source."
    return {**row, "value": most, "std": None, "n": round(sessions * share), "sentence": text}


def _missing_error_rates(rows: Sequence[Mapping[str, Any]], rules: Mapping[float, StopRule]) -> list[dict[str, Any]]:
    """Rows for error rates that a validation has none of, because nothing was decided anywhere."""
    out: list[dict[str, Any]] = []
    for level, rule in rules.items():
        here = [row for row in rows if row["part"] == "stop" and row["level"] == level]
        present = {row.get("of", row["metric"]) for row in here}
        missing = [metric for metric in UNDECIDED if here and metric not in present]
        out += [_undecided({**here[0], "metric": metric}, rule) for metric in missing]
    return out


def _undecided(row: Mapping[str, Any], rule: StopRule | None) -> dict[str, Any]:
    """In place of an error rate: the reason why there is none."""
    threshold, does = UNDECIDED[row["metric"]]
    why = "no held-out session stopped."
    if rule is not None and np.isinf(getattr(rule, threshold)):
        why = f"the rule never {does}: no threshold was seen to keep that rate."
    text = f"At a stated error rate of {100 * row['level']:g} % {why}"
    return {**row, "metric": "undecided", "of": row["metric"], "value": None, "std": None, "sentence": text}


def sentence(row: Mapping[str, Any]) -> str | None:
    """The meaning of a row that a report prints; None for the others."""
    k, value, part, metric = row["k"], row["value"], row["part"], row["metric"]
    of, pair, traffic = SCENARIOS.get(row["scenario"] or "", ("", "", ""))
    rule = VERDICTS.get(metric.removeprefix("verdict_")) if metric.startswith("verdict_") else None
    if not {"refit": of, "unknown": of, "drift": pair, "transfer": traffic}.get(part, True):
        return None
    if part in ("refit", "unknown", "stop") and row["level"] is None:
        return None
    if part == "mixture" and row["level"] == 0:
        metric = "alarm"
    text = SENTENCES.get((part, "verdict" if rule else metric))
    stated = "" if row["level"] is None else f"at a stated error rate of {100 * row['level']:g} %"
    return text and text.format(
        n=row["n"], k=k, value=value, share=f"{100 * value:.1f} %", traces=f"{k:,} trace{'s' if k != 1 else ''}",
        rule=rule, of=of, pair=pair, traffic=traffic, stated=stated, Stated=stated.capitalize(),
        role=row.get("statistic"), part=f"{100 * (row['level'] or 0):g} %", mixed=MIXED.get(row["scenario"] or "", ""),
    )  # fmt: skip


def expected_power(enrolment: Enrolment, window: int, paired: bool = False) -> dict[str, Any] | None:
    """How often the drift test alarms on real pairs of windows, as JSON, or None.

    window : traces of the smaller window. Returns the largest validated window up to it, level, and the share of pairs
    that are called different: same (false alarms; None for paired windows), sibling, family.
    """
    rows = validation_of(enrolment)
    name = SERVED["drift"] + ("-paired" if paired else "")
    rows = rows[(rows["part"] == "drift") & (rows["space"] == SPACE) & (rows["statistic"] == name)]
    if (tested := largest_tested(rows["k"], window)) is None:
        return None
    shares = rows[rows["k"] == tested].set_index("scenario")["value"]
    found = {kind: float(shares[kind]) if kind in shares.index else None for kind in ("same", "sibling", "family")}
    return {"window": int(tested), "level": float(rows["level"].iloc[0]), **found}


def prompts_needed(enrolment: Enrolment, paired: bool) -> int | None:
    """The fewest validated prompts with which no difference speaks for an unchanged source; None without any."""
    rows = validation_of(enrolment)
    name = SERVED["drift"] + ("-paired" if paired else "")

    def speaks(k: int) -> bool:
        ratios = drift.outcome_ratios({"p_value": 1.0}, expected_power(enrolment, k, paired))
        return bool(ratios) and min(ratios.values()) >= drift.SUPPORTING

    tested = rows["part"].eq("drift") & rows["statistic"].eq(name)
    return next(filter(speaks, sorted(map(int, rows.loc[tested, "k"].unique()))), None)
