"""The report of an audit: everything that is needed to recompute it, as JSON, as a table, and as a page.

JSON is the report; the page and the table show it. It holds the hash of every trace and no text unless that was asked
for. Its own hash covers all of it, and the chain of steps ends with the hash of the results.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from backend.audit.attributor import BATCHES, Scored
from backend.audit.case import DECIDED, SCALE, UNKNOWN_LEVEL, Findings, in_words
from backend.audit.chain import Chain, broken_step, digest
from backend.audit.enrolment import Enrolment
from backend.audit.intake.model import Layout, Problem, Received
from backend.audit.tokens import TokenEvidence
from backend.errors import AtlasError

FORMAT = 1
POINTS = 200
"""Budgets at which the running evidence is printed."""
TOLERANCE = 0.02
"""Nats by which a trace's log-posterior may differ when the same engine computes it again."""
OTHER_ENGINE = 0.25
"""The same for another processor or another type of products, in nats."""
LIMITS = (
    "A likelihood ratio compares the enrolled sources. It says nothing about a source that nobody enrolled beyond what "
    "the unknown-source test says.",
    "Traces are taken as independent given the source. Prompts that are alike, or asked twice, make the sum too sure.",
    "A system prompt, a sampling setting, a filter or a rewrite between model and endpoint changes what is observed. "
    "The enrolled source is the model as it was enrolled, under its settings.",
    "The proxy reads at most 1,024 tokens of prompt and response together.",
    "The report shows where evidence points, and how strongly. It proves nothing.",
)


@dataclass(frozen=True)
class Question:
    """What was asked.

    Attributes
    ----------
    case, question : str
        Names for people.
    prior_statement : str
        Where the prior comes from.
    """

    case: str
    question: str
    prior_statement: str = "Every enrolled source is as likely as the next."


@dataclass(frozen=True)
class Seen:
    """What a report keeps of a trace; text only where somebody chose so.

    Attributes
    ----------
    place, turn : int
    sha256 : str
    prompt_characters, response_characters : int
    time, label, name : str or None
    """

    place: int
    turn: int
    sha256: str
    prompt_characters: int
    response_characters: int
    time: str | None
    label: str | None
    name: str | None

    @classmethod
    def of(cls, trace: Received) -> Seen:
        """Without the text."""
        return cls(
            trace.place, trace.turn, trace.sha256, len(trace.prompt), len(trace.response), trace.time, trace.label,
            trace.name,
        )  # fmt: skip


def results_of(scored: Scored, enrolment: Enrolment, findings: Findings) -> dict[str, Any]:
    """Findings as JSON: the answer first, then what it rests on."""
    sources, f = enrolment.sources, findings
    order = np.argsort(-f.log_posterior, kind="stable")
    n = len(f.running)
    budgets = np.unique(np.round(np.geomspace(1, n, min(n, POINTS))).astype(int))
    return {
        "verdict": f.judgement.verdict,
        "level": f.judgement.level,
        "reason": f.judgement.reason,
        "sentence": f.sentence,
        "claimed": None if f.claimed is None else sources[f.claimed],
        "subject": sources[f.subject],
        "leader": sources[f.leader],
        "rival": sources[f.rival],
        "traces": n,
        "complete": scored.complete,
        "calibrated": f.calibrated,
        "log10_ratio_others": f.log10_others,
        "in_words": in_words(f.log10_others),
        "candidates": [
            {
                "source": sources[i],
                "family": enrolment.families[i],
                "probability": math.exp(f.log_posterior[i]),
                "score": float(f.scores[i]),
                "log10_ratio": float(f.log10_ratios[i]),
            }
            for i in order
        ],
        "families": [
            {"family": name, "probability": p}
            for name, p in zip(f.family.families, f.family.probabilities, strict=True)
        ],
        "siblings": list(f.family.siblings),
        "running": [
            {
                "traces": int(k),
                "log10_ratio_others": float(f.running[k - 1, 0]),
                "probability": float(f.running[k - 1, 1]),
                "leader": sources[int(f.running[k - 1, 2])],
            }
            for k in budgets
        ],
        "spread": {
            "orders": f.spread.orders,
            "seed": f.spread.seed,
            "points": [
                {"traces": int(k), "low": float(a), "middle": float(b), "high": float(c), "leads": float(d)}
                for k, a, b, c, d in zip(
                    f.spread.budgets, f.spread.low, f.spread.middle, f.spread.high, f.spread.leads, strict=True
                )
            ],
        },
        "leave_one_out": {
            "rival": sources[f.contributions.rival],
            "lowest": float(f.contributions.without.min()),
            "highest": float(f.contributions.without.max()),
            "leader_changes": int((f.contributions.leader_without != f.leader).sum()),
        },
        "unknown_p": f.unknown_p,
        "stop": None if f.stop is None else dict(f.stop),
        "flags": None if f.flags is None else list(f.flags),
        "drift": None if f.drift is None else dict(f.drift),
    }


def build_report(
    question: Question,
    layout: Layout,
    problems: Sequence[Problem],
    notes: Sequence[str],
    seen: Sequence[Seen],
    exclusions: Sequence[Mapping[str, Any]],
    enrolment: Enrolment,
    scored: Scored,
    findings: Findings,
    log_prior: Sequence[float],
    chain: Chain,
    *,
    code_version: str,
    command: str,
    heat_maps: Sequence[tuple[int, str, TokenEvidence]] = (),
) -> dict[str, Any]:
    """Put the report together.

    Parameters
    ----------
    question : Question
    layout, problems, notes
        From the intake.
    seen : sequence of Seen, length n
        Scored traces, in the order of arrival.
    exclusions : sequence of mapping
        place, turn, sha256 and reason of every trace that was left out.
    enrolment, scored, findings
    log_prior : sequence of float, length C
        Stated prior.
    chain : Chain
        Steps so far; the report adds its own.
    code_version, command : str
    heat_maps : sequence of (number, prompt, TokenEvidence)
        Traces whose text the report is allowed to show.

    Returns
    -------
    dict
        JSON; its ``sha256`` covers everything else.
    """
    results = results_of(scored, enrolment, findings)
    subject, rival, contributions = findings.subject, findings.rival, findings.contributions
    chain = chain.append("report", {"results": digest(results), "verdict": findings.judgement.verdict})
    body: dict[str, Any] = {
        "format": FORMAT,
        "case": question.case,
        "question": question.question,
        "created": chain.steps[-1]["at"],
        "propositions": _propositions(results),
        "reference": {
            "enrolment": enrolment.name,
            "sources": list(enrolment.sources),
            "families": list(enrolment.families),
            "prior": [math.exp(value) for value in log_prior],
            "prior_statement": question.prior_statement,
        },
        "input": {
            **{key: value for key, value in asdict(layout).items() if key not in ("codec", "fields")},
            "problems": [asdict(problem) for problem in problems],
            "notes": list(notes),
        },
        "traces": [
            {
                "number": number,
                **asdict(trace),
                "tokens": int(scored.tokens[number - 1]),
                "enrolled_prompt": scored.folds[number - 1] is not None,
                "log_posterior_subject": float(scored.log_posteriors[number - 1, subject]),
                "log_posterior_rival": float(scored.log_posteriors[number - 1, rival]),
                "nearest": enrolment.sources[int(scored.log_posteriors[number - 1].argmax())],
                "log10_ratio": float(contributions.log10_ratio[number - 1]),
                "log10_without": float(contributions.without[number - 1]),
            }
            for number, trace in enumerate(seen, start=1)
        ],
        "exclusions": [dict(exclusion) for exclusion in exclusions],
        "method": {
            "reader": enrolment.reader,
            "proxy": enrolment.proxy,
            "view": enrolment.view,
            "block": enrolment.block,
            "layers": enrolment.layers,
            "probes": len(enrolment.heads),
            "enrolment_sha256": enrolment.sha256,
            "facts": dict(enrolment.facts),
            "engine": scored.engine,
            "batches": list(BATCHES),
            "code_version": code_version,
            "rule": {"decided_log10": DECIDED, "unknown_p": UNKNOWN_LEVEL},
        },
        "results": results,
        "verbal_scale": [{"log10_up_to": None if math.isinf(b) else b, "words": w} for b, w in SCALE],
        "limits": [*LIMITS, *([] if findings.calibrated else ["No calibration was applied to these traces."])],
        "command": command,
        "text_kept": bool(heat_maps),
        "heat_maps": [_heat_map(number, prompt, evidence) for number, prompt, evidence in heat_maps],
        "steps": [dict(step) for step in chain.steps],
    }
    report: dict[str, Any] = json.loads(json.dumps(body, allow_nan=False))
    return report | {"sha256": digest(report)}


def write_json(report: Mapping[str, Any]) -> str:
    """The report as text."""
    return json.dumps(report, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def write_csv(report: Mapping[str, Any]) -> str:
    """One row a trace; a cell that a spreadsheet would take for a formula gets an apostrophe."""
    stream = io.StringIO()
    columns = [
        "number", "place", "turn", "sha256", "time", "label", "name", "prompt_characters", "response_characters",
        "tokens", "nearest", "log_posterior_subject", "log_posterior_rival", "log10_ratio", "log10_without",
    ]  # fmt: skip
    writer = csv.writer(stream)
    writer.writerow(columns)
    writer.writerows([_cell(trace[column]) for column in columns] for trace in report["traces"])
    return stream.getvalue()


def read_report(text: str) -> dict[str, Any]:
    """Read a report.

    Raises
    ------
    AtlasError
        If it is no report of this format.
    """
    try:
        report = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AtlasError("The report is no JSON", "Give the .json file that was written with it") from error
    wanted = ("traces", "results", "method", "steps", "sha256", "reference", "exclusions", "input")
    if not isinstance(report, dict) or any(key not in report for key in wanted):
        raise AtlasError("The file is JSON and no report", "Give the .json file that was written with the report")
    if report.get("format") != FORMAT:
        raise AtlasError(
            f"The report has format {report.get('format')!r}, and this program knows {FORMAT}", "Update the program"
        )
    return report


def alterations(report: Mapping[str, Any]) -> list[str]:
    """What about a report does not agree with itself; empty for one that was left as it was written."""
    found = []
    rest = {key: value for key, value in report.items() if key != "sha256"}
    if digest(rest) != report["sha256"]:
        found.append("The report's own sha256 does not agree: something in it was changed")
    if (number := broken_step(report["steps"])) is not None:
        found.append(f"Step {number} of the chain does not follow from the one before")
    last = report["steps"][-1] if report["steps"] else {}
    if last.get("details", {}).get("results") != digest(report["results"]):
        found.append("The results are not those that the last step recorded")
    return found


def differences(report: Mapping[str, Any], again: Mapping[str, Any]) -> list[str]:
    """What a second run of the same traces gives differently; empty when it is equal.

    Log-posteriors may differ by :data:`TOLERANCE` with the same engine and by :data:`OTHER_ENGINE` with another one;
    sums over n traces by that times the square root of n. Everything else must be the same.
    """
    found = []
    same = report["method"]["engine"] == again["method"]["engine"]
    each = TOLERANCE if same else OTHER_ENGINE
    for key in ("enrolment_sha256", "reader", "view", "block", "layers"):
        if report["method"].get(key) != again["method"][key]:
            found.append(f"{key} was {report['method'].get(key)} and is {again['method'][key]}")
    first, second = report["traces"], again["traces"]
    if [trace["sha256"] for trace in first] != [trace["sha256"] for trace in second]:
        return [*found, f"The {len(first):,} traces of the report are not the {len(second):,} that were scored now"]
    for key in ("log_posterior_subject", "log_posterior_rival"):
        off = [(abs(a[key] - b[key]), a["number"]) for a, b in zip(first, second, strict=True)]
        worst, number = max(off, default=(0.0, 0))
        if not worst <= each:
            found.append(f"{key} of trace {number:,} differs by {worst:.4f} nats, allowed are {each}")
    total = each * math.sqrt(max(len(first), 1))
    scores = {row["source"]: row["score"] for row in again["results"]["candidates"]}
    for row in report["results"]["candidates"]:
        difference = abs(row["score"] - scores.get(row["source"], math.inf))
        if not difference <= total:
            found.append(f"The score of {row['source']} differs by {difference:.4f} nats, allowed are {total:.4f}")
            break
    for key in ("verdict", "subject", "leader"):
        if report["results"][key] != again["results"][key]:
            found.append(f"{key} was {report['results'][key]} and is {again['results'][key]}")
    return found


def largest_difference(report: Mapping[str, Any], again: Mapping[str, Any]) -> float:
    """Largest difference of a trace's log-posterior between two runs, in nats."""
    return max(
        (
            abs(a[key] - b[key])
            for a, b in zip(report["traces"], again["traces"], strict=False)
            for key in ("log_posterior_subject", "log_posterior_rival")
        ),
        default=0.0,
    )


def _propositions(results: Mapping[str, Any]) -> list[dict[str, str]]:
    name = results["subject"]
    role = "the source that is claimed" if results["claimed"] else "the leading source, because none was claimed"
    return [
        {"name": "named source", "text": f"The traces come from {name} ({role})."},
        {"name": "another enrolled source", "text": f"The traces come from an enrolled source other than {name}."},
        {"name": "none enrolled", "text": "The traces come from a source that is not enrolled."},
    ]


def _heat_map(number: int, prompt: str, evidence: TokenEvidence) -> dict[str, Any]:
    """Tokens with their text; those that share a character are shown once, with their sum."""
    pieces: list[dict[str, Any]] = []
    at = 0
    for start, stop, value in zip(evidence.starts, evidence.stops, evidence.split.tokens, strict=True):
        if pieces and stop <= at:
            pieces[-1]["value"] += float(value)
            continue
        pieces.append(
            {"text": evidence.response[at:stop], "start": min(at, start), "stop": stop, "value": float(value)}
        )
        at = stop
    return {
        "number": number,
        "prompt": prompt,
        "source": evidence.source,
        "rival": evidence.rival,
        "log_odds": evidence.log_odds,
        "stored": evidence.stored,
        "pieces": pieces,
        "rest": evidence.response[at:],
    }


def _cell(value: Any) -> Any:
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
