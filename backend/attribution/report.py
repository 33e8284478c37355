"""The report of an audit: everything that is needed to recompute it, as JSON, as a table, and as a page.

JSON is the report; the page and the table show it. It holds the hash of every trace and no text unless that was asked
for. Its own hash covers all of it, and the chain of steps ends with the hash of the results.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.attribution.audit_log import Chain, digest
from backend.attribution.decision import Findings
from backend.attribution.report_results import reader_row, results_of
from backend.attribution.scoring import BATCHES, Scored
from backend.attribution.token_evidence import TokenEvidence
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.validation_lookup import condition_in, conditions_of, matched_validation
from backend.inference.prompt_novelty import LEVEL
from backend.inference.verdict import SCALE, Rule
from backend.intake.traces import Layout, Problem, Received, is_remark, notes_on_remarks
from backend.output_files import plain_cell

REMARKS = ("time", "label", "name")
"""What a trace says of itself in words of its file; a column that was taken for one of them may hold text."""
FORMAT = 4
"""Of reports; others are refused, since they state numbers where these were not validated."""
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
        As in the file; a report leaves out what is no short name in one line.
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
    readers: Sequence[Mapping[str, Any]] = (),
    selection: Mapping[str, Any],
    session: Mapping[str, Any],
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
    readers : sequence of mapping
        What further readers found (:func:`reader_row`).
    selection : mapping
        By which rule traces were taken from the file: keep_duplicates, and the characters beyond which a prompt or a
        response was refused.
    session : mapping
        From :func:`session_of`.

    Returns
    -------
    dict
        JSON; its ``sha256`` covers everything else.
    """
    results = results_of(scored, enrolment, findings)
    results["readers"] = [reader_row(enrolment, scored, findings), *map(dict, readers)]
    rows = trace_rows(scored, enrolment, findings)
    chain = chain.append("report", {"results": digest(results), "verdict": findings.verdict.outcome})
    body: dict[str, Any] = {
        "format": FORMAT,
        "case": question.case,
        "question": question.question,
        "session": dict(session),
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
            "notes": [*notes, *notes_on_remarks({role: [getattr(trace, role) for trace in seen] for role in REMARKS})],
            "selection": dict(selection),
        },
        "traces": [
            {
                "number": number,
                **_without_text(trace),
                "tokens": int(scored.tokens[number - 1]),
                "enrolled_prompt": scored.folds[number - 1] is not None,
                **row,
            }
            for number, (trace, row) in enumerate(zip(seen, rows, strict=True), start=1)
        ],
        "log_posteriors": encoded(scored.log_posteriors),
        "exclusions": [dict(exclusion) for exclusion in exclusions],
        "method": {
            "reader": enrolment.reader,
            "proxy": enrolment.proxy,
            "view": enrolment.view,
            "block": enrolment.block,
            "layers": enrolment.layers,
            "condition": condition_in(enrolment, scored.tokens, conditions_of(enrolment)),
            "probes": len(enrolment.heads),
            "enrolment_sha256": enrolment.sha256,
            "facts": dict(enrolment.facts),
            "engine": scored.engine,
            "batches": list(BATCHES),
            "code_version": code_version,
            "rule": {
                "decided_log10": Rule.log10_lr,
                "least_share": Rule.share,
                "unknown_p": Rule.unknown_level,
                "prompts_p": LEVEL,
            },
        },
        "results": results,
        "validation": matched_validation(enrolment, scored.tokens, len(scored.log_posteriors)),
        "verbal_scale": [{"log10_up_to": None if math.isinf(b) else b, "words": w} for b, w in SCALE],
        "limits": [*LIMITS, *([] if findings.calibrated else ["No calibration was applied to these traces."])],
        "command": command,
        "text_kept": bool(heat_maps),
        "heat_maps": [heat_map(number, prompt, evidence) for number, prompt, evidence in heat_maps],
        "steps": [dict(step) for step in chain.steps],
    }
    report: dict[str, Any] = json.loads(json.dumps(body, allow_nan=False))
    return report | {"sha256": digest(report)}


def session_of(earlier: Sequence[str]) -> dict[str, Any]:
    """How many questions were answered before in the same session, and the last step of the latest one."""
    return {"earlier": len(earlier), "last_step": earlier[-1] if earlier else None}


def trace_rows(scored: Scored, enrolment: Enrolment, findings: Findings) -> list[dict[str, Any]]:
    """What the scores say of every trace, in the order of arrival."""
    contributions = findings.contributions
    return [
        {
            "log_posterior_subject": float(row[findings.subject]),
            "log_posterior_rival": float(row[findings.rival]),
            "nearest": enrolment.sources[int(row.argmax())],
            "log10_ratio": float(contributions.log10_ratio[number]),
            "log10_without": float(contributions.without[number]),
        }
        for number, row in enumerate(scored.log_posteriors)
    ]


def encoded(log_posteriors: npt.NDArray[np.float32]) -> str:
    """Log-posteriors (n, C) as text: little-endian float32, a trace after the other, in base64."""
    return base64.b64encode(log_posteriors.astype("<f4").tobytes()).decode("ascii")


def log_posteriors_of(report: Mapping[str, Any]) -> npt.NDArray[np.float32]:
    """Log-posteriors (n, C) that a report holds: traces by sources of the reference.

    Raises
    ------
    ValueError
        If they are not so many.
    """
    held = np.frombuffer(base64.b64decode(report["log_posteriors"], validate=True), "<f4")
    return held.reshape(len(report["traces"]), len(report["reference"]["sources"]))


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
    writer.writerows([plain_cell(trace[column]) for column in columns] for trace in report["traces"])
    return stream.getvalue()


def _without_text(trace: Seen) -> dict[str, Any]:
    """What a report says of a trace, without a time, label or name that may be its text."""
    held = asdict(trace)
    return held | {role: None for role in REMARKS if held[role] is not None and not is_remark(held[role])}


def _propositions(results: Mapping[str, Any]) -> list[dict[str, str]]:
    name = results["subject"]
    role = "the source that is claimed" if results["claimed"] else "the leading source, because none was claimed"
    nobody = {"name": "none enrolled", "text": "The traces come from a source that is not enrolled."}
    if results["level"] == "family":
        family = next(row["family"] for row in results["candidates"] if row["source"] == name)
        return [
            {"name": "family", "text": f"The traces come from the family {family}, that of {name} ({role})."},
            {"name": "another enrolled family", "text": "The traces come from an enrolled source of another family."},
            nobody,
        ]
    return [
        {"name": "named source", "text": f"The traces come from {name} ({role})."},
        {"name": "another enrolled source", "text": f"The traces come from an enrolled source other than {name}."},
        nobody,
    ]


def heat_map(number: int, prompt: str, evidence: TokenEvidence) -> dict[str, Any]:
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
