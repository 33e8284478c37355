"""The report of an audit as JSON, table and page: all that is needed to recompute it.

It holds the hash of every trace and no text unless that was requested. Its own hash covers all of it. Its steps are an
append-only hash chain that ends with the hash of the results: whoever keeps the last hash in another place can show
later that no step was added, taken away or altered. Without that, it shows only that nothing was altered by accident.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.attribution.decision import FLAGS, Findings, among
from backend.attribution.report_words import in_words, supports_family, verdict_words
from backend.attribution.scoring import BATCHES, Scored, Selection
from backend.attribution.settings import Report, Settings
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.validation_lookup import condition_in, conditions_of, validated_under
from backend.errors import AtlasError
from backend.inference.domain_shift import LEVEL
from backend.inference.verdict import SCALE, Rule
from backend.intake.layout import Layout
from backend.intake.traces import is_remark, notes_on_remarks
from backend.output_files import plain_cell
from backend.protocol import BACKGROUND, BUDGETS, CLEAN
from backend.store.database import Generation
from backend.store.queries import confusion

START = "0" * 64
NEAREST = 3  # sources that the sentence names
MODELS = ("requested", "returned")  # of a trace, where its file names them
REMARKS = ("time", "label", "name")  # in words of the file: a column that was taken for one of them may hold text
FORMAT = 5  # of reports; others are refused, since they state numbers where these were not validated
RULE = {"decided_log10": Rule.log10_lr, "least_share": Rule.share, "unknown_p": Rule.unknown_level, "prompts_p": LEVEL}
LIMITS = (
    "The answer compares enrolled sources. Of any other source it says only what the unknown-source test says.",
    "Every trace counts as evidence of its own. Prompts that are alike, or asked twice, make the answer too sure.",
    "Instructions, settings, filters or rewriting on the way change what a model's answers look like. A source was "
    "enrolled with its own settings.",
    "Of every trace at most 1,024 tokens are read, prompt and response together.",
    "The report shows where evidence points, and how strongly. It proves nothing.",
)
UNVALIDATED_CHOICE = "This choice of candidates was not validated: no held-out groups of just these sources are known."


def next_step(
    steps: Sequence[Mapping[str, Any]], step: str, details: Mapping[str, Any], at: datetime | None = None
) -> dict[str, Any]:
    """The step that follows in a chain; details are JSON without NaN, the time is by default that of this moment."""
    entry = {
        "number": len(steps) + 1,
        "step": step,
        "at": (at or datetime.now(UTC)).isoformat(timespec="milliseconds"),
        "details": json.loads(canonical(details)),
        "previous": steps[-1]["sha256"] if steps else START,
    }
    return entry | {"sha256": digest(entry)}


def canonical(value: Any) -> str:
    """The one JSON text of a value: sorted keys, no spaces, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def digest(value: Any) -> str:
    """sha256 of :func:`canonical`."""
    return hashlib.sha256(canonical(value).encode("ascii")).hexdigest()


def landing_of(scored: Scored, enrolment: Enrolment) -> dict[str, Any] | None:
    """Cosine of the traces' signature to that of every enrolled source, the nearest first (paper, signatures).

    By reader, roster and domain the atlas finds a map of them. None where the enrolment has no signatures.
    """
    vectors = enrolment.attachments.get("signatures.vectors")
    if vectors is None or vectors.shape != (len(enrolment.sources), len(scored.signature)):
        return None
    cosines = cosines_to(scored.signature, vectors.astype(np.float64))
    return {
        "proxy": enrolment.proxy,
        "view": enrolment.view,
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
    """Where the traces land, for people, by the results of a report; None where these have no place."""
    landed = results.get("lands")
    if not landed:
        return None
    rows, subject = landed["rows"], results["subject"]
    near = ", ".join(f"{row['source']} ({row['cosine']:.3f})" for row in rows[:NEAREST])
    own = next((row for row in rows[NEAREST:] if row["source"] == subject), None)
    far = f"; {subject} comes as number {own['rank']:,} ({own['cosine']:.3f})" if own else ""
    return (
        f"Nearest of the {len(rows):,} signatures, by the cosine to the mean fingerprint of these traces at layer "
        f"{landed['layer']} of {landed['proxy']} (view {landed['view']}): {near}{far}. Nearness says what the traces "
        f"are like, {'the ratio says who made them' if results['stated'] else 'and not who made them'}."
    )


def results_of(scored: Scored, enrolment: Enrolment, findings: Findings) -> dict[str, Any]:
    """Findings as JSON: the answer first, then its grounds."""
    sources, f, words, s = enrolment.sources, findings, findings.statements, findings.spread
    order = np.argsort(-f.log_posterior, kind="stable")[: None if f.candidates is None else len(f.candidates)]

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
        "capped": f.verdict.capped,
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
        "mixture": f.mixture,
        "flags": None if f.flags is None else [FLAGS[flag] for flag in f.flags],
        "drift": None if f.drift is None else dict(f.drift),
        "interval": None
        if f.interval is None or not words.stated
        else {"kind": "5 % to 95 % over traces drawn again with replacement", **asdict(f.interval)},
    }


def reader_row(enrolment: Enrolment, scored: Scored, findings: Findings) -> dict[str, Any]:
    """The findings of one reader, as a row next to those of other readers."""
    f, interval = findings, findings.interval if findings.statements.stated else None
    return {
        "enrolment": enrolment.name,
        "enrolment_sha256": enrolment.sha256,
        **_fields(enrolment, "reader", "layers"),
        "sources": len(enrolment.sources if f.candidates is None else f.candidates),
        "traces": len(scored.log_posteriors),
        "engine": scored.engine,
        "claimed": None if f.claimed is None else enrolment.sources[f.claimed],
        "verdict": f.verdict.outcome,
        "level": f.verdict.level,
        "subject": enrolment.sources[f.subject],
        "leader": enrolment.sources[f.leader],
        "calibrated": f.calibrated,
        "log10_ratio_others": f.log10_others,
        "low": None if interval is None else interval.low,
        "high": None if interval is None else interval.high,
        "probability": math.exp(f.log_posterior[f.subject]) if f.statements.stated else None,
        "unknown_p": f.unknown_p,
    }


def build_report(
    settings: Settings,
    layout: Layout,
    selection: Selection,
    enrolment: Enrolment,
    scored: Scored,
    findings: Findings,
    log_prior: npt.NDArray[np.float64],
    steps: Sequence[Mapping[str, Any]],
    *,
    code_version: str,
    command: str,
    session: Mapping[str, Any],
    heat_maps: Sequence[Mapping[str, Any]] = (),
    readers: Sequence[Mapping[str, Any]] = (),
    background: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Put the report together, as JSON whose ``sha256`` covers everything else.

    log_prior : (C,), stated prior, of candidates alone. steps : those so far. readers : from :func:`reader_row`.
    heat_maps : traces whose text the report is allowed to show. background : facts of the unlabelled traffic.
    """
    seen, entries = selection.seen, [asdict(trace) for trace in selection.seen]
    for entry in entries:  # a time, label or name may be text of a trace
        roles = (*REMARKS, *MODELS)
        entry.update({role: None for role in roles if entry[role] is not None and not is_remark(entry[role])})
        for role in MODELS:
            if entry[role] is None:
                del entry[role]
    results = results_of(scored, enrolment, findings)
    results["readers"] = [reader_row(enrolment, scored, findings), *map(dict, readers)]
    rows, weighed = trace_rows(scored, enrolment, findings), among(enrolment, findings.candidates)
    last = next_step(steps, "report", {"results": digest(results), "verdict": findings.verdict.outcome})
    body: dict[str, Any] = {
        "format": FORMAT,
        "case": settings.case,
        "question": settings.question_text,
        "session": dict(session),
        "created": last["at"],
        "propositions": _propositions(results, enrolment, bool(settings.candidates)),
        "reference": {
            "enrolment": enrolment.name,
            "sources": list(weighed.sources),
            "families": list(weighed.families),
            "prior": [math.exp(value) for value in log_prior],
            "prior_statement": settings.stated,
            **(_choice(settings, enrolment, weighed) if settings.candidates else {}),
        },
        "input": {
            **{key: value for key, value in asdict(layout).items() if key not in ("codec", "fields")},
            "problems": [asdict(problem) for problem in selection.problems],
            **({"models": models} if (models := selection.models()) else {}),
            "notes": [
                *selection.notes(),
                *notes_on_remarks({role: [getattr(trace, role) for trace in seen] for role in REMARKS}),
            ],
            "selection": _fields(selection, "keep_duplicates", "characters"),
            "prompts": len(selection.prompts),
        },
        "traces": [
            {
                "number": number,
                **entry,
                "tokens": int(scored.tokens[number - 1]),
                "enrolled_prompt": scored.folds[number - 1] is not None,
                **row,
            }
            for number, (entry, row) in enumerate(zip(entries, rows, strict=True), start=1)
        ],
        "log_posteriors": encoded(scored.log_posteriors),
        "exclusions": selection.exclusions,
        "method": {
            **_fields(enrolment, "reader", "proxy", "view", "block", "layers"),
            "condition": condition_in(enrolment, scored.tokens, conditions_of(enrolment))
            if background is None
            else BACKGROUND,
            "probes": len(enrolment.heads),
            "enrolment_sha256": enrolment.sha256,
            "facts": dict(enrolment.facts),
            "engine": scored.engine,
            "batches": list(BATCHES),
            "code_version": code_version,
            "rule": RULE,
        },
        **({} if background is None else {"background": dict(background)}),
        "answer": verdict_words(results),
        "results": results,
        "validation": findings.validation
        if findings.validation is None or findings.among is None
        else {**findings.validation, "among": findings.among},
        "verbal_scale": [{"log10_up_to": None if math.isinf(b) else b, "words": w} for b, w in SCALE],
        "limits": [
            *LIMITS,
            *([] if findings.calibrated else _uncalibrated(enrolment)),
            *([UNVALIDATED_CHOICE] if settings.candidates and findings.among is None else []),
        ],
        "command": command,
        "text_kept": bool(heat_maps),
        "heat_maps": heat_maps,
        "steps": [*steps, last],
    }
    report: dict[str, Any] = json.loads(json.dumps(body, allow_nan=False))
    return _signed(report | {"in_words": in_words(report)})


def trace_rows(scored: Scored, enrolment: Enrolment, findings: Findings) -> list[dict[str, Any]]:
    """Scores of every trace, in the order of arrival."""
    contributions, candidates = findings.contributions, findings.candidates
    known = np.arange(len(enrolment.sources)) if candidates is None else candidates
    return [
        {
            "log_posterior_subject": float(row[findings.subject]),
            "log_posterior_rival": float(row[findings.rival]),
            "nearest": enrolment.sources[known[row[known].argmax()]],
            "log10_ratio": float(contributions.log10_ratio[number]),
            "log10_without": float(contributions.without[number]),
        }
        for number, row in enumerate(scored.log_posteriors)
    ]


def encoded(log_posteriors: npt.NDArray[np.float32]) -> str:
    """Log-posteriors (n, C) as text: little-endian float32, a trace after the other, in base64."""
    return base64.b64encode(log_posteriors.astype("<f4").tobytes()).decode("ascii")


def log_posteriors_of(report: Report) -> npt.NDArray[np.float32]:
    """Log-posteriors (n, C) that a report holds: traces by enrolled sources; ValueError if not so many."""
    enrolled = report["reference"].get("enrolled", report["reference"]["sources"])
    values = np.frombuffer(base64.b64decode(report["log_posteriors"], validate=True), "<f4")
    return values.reshape(len(report["traces"]), len(enrolled))


def with_alarm(report: Mapping[str, Any], alarm: Mapping[str, Any]) -> dict[str, Any]:
    """A report that was made because of a watch's alarm, which it then leads with."""
    return _signed({**report, "alarm": dict(alarm)})


def with_confusions(report: dict[str, Any], data: Path) -> dict[str, Any]:
    """A report that names two siblings, with how often held-out groups of one were taken for the other, if measured.

    data : folder of the published generation.
    """
    results, method = report["results"], report["method"]
    pair = sorted(results["siblings"][:2], key=results["subject"].__ne__)
    tested = [k for k in BUDGETS if k <= results["traces"]]
    if len(pair) < 2 or not tested or method["condition"] != CLEAN or not supports_family(results):
        return report
    try:
        generation = Generation.open(data)
    except AtlasError:  # an answer needs no figures of the atlas
        return report
    k, roster, domain = tested[-1], method["facts"].get("roster"), method["facts"].get("benchmark", "agent500")
    cells, rows = confusion(generation.cursor(), method["reader"], str(roster), k, domain), []
    for one, other in (pair, pair[::-1]):
        counts = cells[cells["truth"] == one].set_index("predicted")["count"]
        taken, groups = int(counts.get(other, 0)), int(counts.sum())
        rows.append({"source": one, "named": other, "traces": k, "count": taken, "groups": groups})
    return _signed(report | {"confusions": rows}) if all(row["groups"] for row in rows) else report


def _signed(report: Mapping[str, Any]) -> dict[str, Any]:
    body = {key: value for key, value in report.items() if key != "sha256"}
    return body | {"sha256": digest(body)}


def write_json(report: Report) -> str:
    """The report as text."""
    return json.dumps(report, indent=1, ensure_ascii=True, allow_nan=False) + "\n"


def write_csv(report: Report) -> str:
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


def _uncalibrated(enrolment: Enrolment) -> list[str]:
    """Limits of answers that are not calibrated, with the reason where the enrolment knows it."""
    reason = validated_under(enrolment.facts)
    return ["No calibration was applied to these traces.", *([reason] if reason else [])]


def _fields(thing: object, *names: str) -> dict[str, Any]:
    return {name: getattr(thing, name) for name in names}


def _choice(settings: Settings, enrolment: Enrolment, weighed: Enrolment) -> dict[str, Any]:
    """What a report says of chosen candidates, next to their names."""
    left_out = [source for source in enrolment.sources if source not in weighed.sources]
    some, total = len(weighed.sources), len(enrolment.sources)
    return {
        "candidates": list(settings.candidates),
        "enrolled": list(enrolment.sources),
        "left_out": left_out,
        "sentence": f"Weighed among {some:,} of the {total:,} enrolled sources, which were chosen beforehand.",
    }


def choice_sentences(report: Report) -> list[str]:
    """Which candidates were chosen, and what was measured among them; nothing where all sources were weighed."""
    if "candidates" not in report["reference"]:
        return []
    measured = (report["validation"] or {}).get("among")
    return [report["reference"]["sentence"], measured["sentence"] if measured else UNVALIDATED_CHOICE]


def _propositions(results: Mapping[str, Any], enrolment: Enrolment, chosen: bool = False) -> list[dict[str, str]]:
    name = enrolment.name_of(results["subject"])
    role = "the source that is claimed" if results["claimed"] else "the leading source, because none was claimed"
    pairs = [
        ("named source", f"from {name} ({role})"),
        ("another enrolled source", f"from an enrolled source other than {name}"),
    ]
    if chosen:
        pairs[1] = ("another candidate", f"from a candidate other than {name}")
    if results["level"] == "family":
        family = next(row["family"] for row in results["candidates"] if row["source"] == results["subject"])
        pairs = [
            ("family", f"from the family {family}, that of {name} ({role})"),
            ("another enrolled family", f"from {'a candidate' if chosen else 'an enrolled source'} of another family"),
        ]
    if chosen:
        pairs.append(("no candidate", "from an enrolled source that is no candidate"))
    pairs.append(("none enrolled", "from a source that is not enrolled"))
    return [{"name": title, "text": f"The traces come {whence}."} for title, whence in pairs]
