"""The report of an audit: everything that is needed to recompute it, as JSON and as a table.

JSON is the report; the table and the page (:mod:`backend.attribution.report_html`) show it. It holds the hash of every
trace and no text unless that was asked for. Its own hash covers all of it, and the chain of steps ends with the hash of
the results.
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
from backend.attribution.fitted_statistics import FLAGS
from backend.attribution.scoring import BATCHES, Scored
from backend.attribution.token_evidence import TokenEvidence
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.validation_lookup import condition_in, conditions_of, matched_validation
from backend.inference.domain_shift import LEVEL
from backend.inference.verdict import SCALE, Rule
from backend.intake.traces import Layout, Problem, Received, is_remark, notes_on_remarks
from backend.output_files import plain_cell

NEAREST = 3  # sources that the sentence names
REMARKS = ("time", "label", "name")  # in words of the file: a column that was taken for one of them may hold text
FORMAT = 4  # of reports; others are refused, since they state numbers where these were not validated
RULE = {"decided_log10": Rule.log10_lr, "least_share": Rule.share, "unknown_p": Rule.unknown_level, "prompts_p": LEVEL}
LIMITS = (
    "A likelihood ratio compares the enrolled sources. It says nothing about a source that nobody enrolled beyond what "
    "the unknown-source test says.",
    "Traces are taken as independent given the source. Prompts that are alike, or asked twice, make the sum too sure.",
    "A system prompt, a sampling setting, a filter or a rewrite between model and endpoint changes what is observed. "
    "The enrolled source is the model as it was enrolled, under its settings.",
    "The proxy reads at most 1,024 tokens of prompt and response together.",
    "The report shows where evidence points, and how strongly. It proves nothing.",
)


def landing_of(scored: Scored, enrolment: Enrolment) -> dict[str, Any] | None:
    """Cosine between the signature of traces and that of every enrolled source (paper, signatures).

    The signatures are those of the enrolment: its sha256 covers them, and a report needs no database.

    Returns proxy, view and layer (the block of the proxy) at which traces were placed; reader, roster and domain, by
        which the atlas finds a map of them; rows (rank, source, family, cosine), the nearest first. None where the
        enrolment has no signatures.
    """
    vectors = enrolment.attachments.get("signatures.vectors")
    if vectors is None or vectors.shape != (len(enrolment.sources), len(scored.signature)):
        return None
    cosines = cosines_to(scored.signature, vectors.astype(np.float64))
    return {
        **_fields(enrolment, "proxy", "view"),
        "layer": enrolment.place,
        "reader": enrolment.place_reader,
        "roster": str(enrolment.facts.get("roster", enrolment.name)),
        "domain": str(enrolment.facts.get("benchmark", "")),
        "rows": [
            {"rank": rank, "source": enrolment.sources[i], "family": enrolment.families[i], "cosine": float(cosines[i])}
            for rank, i in enumerate(np.argsort(-cosines, kind="stable"), start=1)
        ],
    }


def cosines_to(signature: npt.NDArray[np.floating], vectors: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Cosine of a signature (2 d,) to every vector (C, 2 d); 0 where one of them is all zeros."""
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(signature)
    return vectors @ signature / np.where(lengths > 0, lengths, 1.0)


def landing_sentence(results: Mapping[str, Any]) -> str | None:
    """Where the traces land, for people, by the results of a report; None where they do not say it."""
    landed = results.get("lands")
    if not landed:
        return None
    rows, subject = landed["rows"], results["subject"]
    near = ", ".join(f"{row['source']} ({row['cosine']:.3f})" for row in rows[:NEAREST])
    own = next((row for row in rows[NEAREST:] if row["source"] == subject), None)
    far = f"; {subject} comes as number {own['rank']:,} ({own['cosine']:.3f})" if own else ""
    return (
        f"Nearest of the {len(rows):,} signatures, by the cosine to the mean fingerprint of these traces at block "
        f"{landed['layer']} of {landed['proxy']} (view {landed['view']}): {near}{far}. Nearness says what the traces "
        "are like, the ratio says who made them."
    )


def results_of(scored: Scored, enrolment: Enrolment, findings: Findings) -> dict[str, Any]:
    """Findings as JSON: the answer first, then what it rests on."""
    sources, f, words, s = enrolment.sources, findings, findings.statements, findings.spread
    order = np.argsort(-f.log_posterior, kind="stable")

    def stated(probability: float) -> float | None:
        return probability if words.stated else None

    return {
        "verdict": f.verdict.outcome,
        **_fields(f.verdict, "level", "reason"),
        "sentence": words.sentence,
        "next_steps": list(words.next_steps),
        "claimed": None if f.claimed is None else sources[f.claimed],
        "subject": sources[f.subject],
        "leader": sources[f.leader],
        "rival": sources[f.rival],
        "traces": len(scored.log_posteriors),
        "complete": scored.complete,
        "calibrated": f.calibrated,
        "log10_ratio_others": f.log10_others,
        "in_words": words.strength,
        "stated": words.stated,
        "traffic": asdict(f.traffic),
        "candidates": [
            {
                "source": sources[i],
                "family": enrolment.families[i],
                "probability": stated(math.exp(f.log_posterior[i])),
                "score": float(f.scores[i]),
                "bias": float(f.bias[i]),
                "log10_ratio": float(f.log10_ratios[i]),
            }
            for i in order
        ],
        "families": [
            {"family": name, "probability": stated(p)}
            for name, p in zip(f.family.families, f.family.probabilities, strict=True)
        ],
        "siblings": list(f.family.siblings),
        "lands": landing_of(scored, enrolment),
        "running": [
            {
                "traces": int(k),
                "log10_ratio_others": float(ratio),
                "probability": stated(float(probability)),
                "leader": sources[int(leader)],
            }
            for k, ratio, probability, leader in f.running
        ],
        "spread": {
            **_fields(s, "orders", "seed"),
            "points": [
                {"traces": int(k), "low": float(a), "middle": float(b), "high": float(c), "leads": float(d)}
                for k, a, b, c, d in zip(s.budgets, s.low, s.middle, s.high, s.leads, strict=True)
            ],
        },
        "leave_one_out": {
            "rival": sources[f.contributions.rival],
            "lowest": float(f.contributions.without.min()),
            "highest": float(f.contributions.without.max()),
            "leader_changes": int((f.contributions.leader_without != f.leader).sum()),
        },
        "unknown_p": f.unknown_p,
        "unknown_words": words.unknown,
        "stop": None if f.stop is None else dict(f.stop),
        "flags": None if f.flags is None else [FLAGS[flag] for flag in f.flags],
        "drift": None if f.drift is None else dict(f.drift),
        "interval": None
        if f.interval is None or not words.stated
        else {"kind": "5 % to 95 % over traces drawn again with replacement", **asdict(f.interval)},
    }


def reader_row(enrolment: Enrolment, scored: Scored, findings: Findings) -> dict[str, Any]:
    """What one reader finds in the traces, as a row next to those of other readers."""
    f, interval = findings, findings.interval if findings.statements.stated else None
    return {
        "enrolment": enrolment.name,
        "enrolment_sha256": enrolment.sha256,
        **_fields(enrolment, "reader", "layers"),
        "sources": len(enrolment.sources),
        "traces": len(scored.log_posteriors),
        "engine": scored.engine,
        "claimed": None if f.claimed is None else enrolment.sources[f.claimed],
        "verdict": f.verdict.outcome,
        "subject": enrolment.sources[f.subject],
        "leader": enrolment.sources[f.leader],
        "calibrated": f.calibrated,
        "log10_ratio_others": f.log10_others,
        "low": None if interval is None else interval.low,
        "high": None if interval is None else interval.high,
        "probability": math.exp(f.log_posterior[f.subject]) if f.statements.stated else None,
        "unknown_p": f.unknown_p,
    }


@dataclass(frozen=True)
class Question:
    """What an audit is about, in words for people."""

    case: str
    question: str
    prior_statement: str = "Every enrolled source is as likely as the next."  # where the prior comes from


@dataclass(frozen=True)
class Seen:
    """What a report says of a trace, without its text."""

    place: int
    turn: int
    sha256: str
    prompt_characters: int
    response_characters: int
    time: str | None  # as in the file; a report leaves out what is no short name in one line
    label: str | None
    name: str | None

    @classmethod
    def of(cls, trace: Received) -> Seen:
        """Lengths in place of the text."""
        lengths = len(trace.prompt), len(trace.response)
        return cls(trace.place, trace.turn, trace.sha256, *lengths, trace.time, trace.label, trace.name)


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

    layout, problems, notes : from the intake; seen : length n, scored traces, in the order of arrival.
    exclusions : place, turn, sha256 and reason of every trace that was left out; log_prior : length C, stated prior.
    chain : steps so far; the report adds its own; heat_maps : traces whose text the report is allowed to show.
    readers : what further readers found (:func:`reader_row`).
    selection : keep_duplicates, and the characters beyond which a prompt or a response was refused.
    Returns JSON; its ``sha256`` covers everything else.
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
            **_fields(enrolment, "reader", "proxy", "view", "block", "layers"),
            "condition": condition_in(enrolment, scored.tokens, conditions_of(enrolment)),
            "probes": len(enrolment.heads),
            "enrolment_sha256": enrolment.sha256,
            "facts": dict(enrolment.facts),
            "engine": scored.engine,
            "batches": list(BATCHES),
            "code_version": code_version,
            "rule": RULE,
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
    """Log-posteriors (n, C) that a report holds: traces by sources of the reference; ValueError if not so many."""
    values = np.frombuffer(base64.b64decode(report["log_posteriors"], validate=True), "<f4")
    return values.reshape(len(report["traces"]), len(report["reference"]["sources"]))


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
    fields = asdict(trace)
    return fields | {role: None for role in REMARKS if fields[role] is not None and not is_remark(fields[role])}


def _fields(thing: object, *names: str) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in names}


def _propositions(results: Mapping[str, Any]) -> list[dict[str, str]]:
    name = results["subject"]
    role = "the source that is claimed" if results["claimed"] else "the leading source, because none was claimed"
    pairs = [
        ("named source", f"from {name} ({role})"),
        ("another enrolled source", f"from an enrolled source other than {name}"),
    ]
    if results["level"] == "family":
        family = next(row["family"] for row in results["candidates"] if row["source"] == name)
        pairs = [
            ("family", f"from the family {family}, that of {name} ({role})"),
            ("another enrolled family", "from an enrolled source of another family"),
        ]
    pairs.append(("none enrolled", "from a source that is not enrolled"))
    return [{"name": title, "text": f"The traces come {whence}."} for title, whence in pairs]


def heat_map(number: int, prompt: str, evidence: TokenEvidence) -> dict[str, Any]:
    """Tokens with their text; those that share a character are shown once, with their sum."""
    pieces: list[dict[str, Any]] = []
    at = 0
    for start, stop, value in zip(evidence.starts, evidence.stops, evidence.split.tokens, strict=True):
        if pieces and stop <= at:
            pieces[-1]["value"] += float(value)
            continue
        text = evidence.response[at:stop]
        pieces.append({"text": text, "start": min(at, start), "stop": stop, "value": float(value)})
        at = stop
    return {
        "number": number,
        "prompt": prompt,
        **_fields(evidence, "source", "rival", "log_odds", "stored"),
        "pieces": pieces,
        "rest": evidence.response[at:],
    }
