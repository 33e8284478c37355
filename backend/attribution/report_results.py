"""What an audit found, as JSON: the answer first, then what it rests on, and what each reader says (paper, Stage 2)."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from backend.attribution.decision import Findings
from backend.attribution.fitted_statistics import FLAGS
from backend.attribution.nearest_sources import landing_of
from backend.attribution.scoring import Scored
from backend.enrolment.enrolment import Enrolment


def results_of(scored: Scored, enrolment: Enrolment, findings: Findings) -> dict[str, Any]:
    """Findings as JSON: the answer first, then what it rests on."""
    sources, f, said = enrolment.sources, findings, findings.statements
    order = np.argsort(-f.log_posterior, kind="stable")

    def stated(probability: float) -> float | None:
        return probability if said.stated else None

    return {
        "verdict": f.verdict.outcome,
        "level": f.verdict.level,
        "reason": f.verdict.reason,
        "sentence": said.sentence,
        "next_steps": list(said.next_steps),
        "claimed": None if f.claimed is None else sources[f.claimed],
        "subject": sources[f.subject],
        "leader": sources[f.leader],
        "rival": sources[f.rival],
        "traces": len(scored.log_posteriors),
        "complete": scored.complete,
        "calibrated": f.calibrated,
        "log10_ratio_others": f.log10_others,
        "in_words": said.strength,
        "stated": said.stated,
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
        "unknown_words": said.unknown,
        "stop": None if f.stop is None else dict(f.stop),
        "flags": None if f.flags is None else [FLAGS[flag] for flag in f.flags],
        "drift": None if f.drift is None else dict(f.drift),
        "interval": None
        if f.interval is None or not said.stated
        else {"kind": "5 % to 95 % over traces drawn again with replacement", **asdict(f.interval)},
    }


def reader_row(enrolment: Enrolment, scored: Scored, findings: Findings) -> dict[str, Any]:
    """What one reader says about the traces: a row of the table that shows what hangs on the reader."""
    f = findings
    return {
        "enrolment": enrolment.name,
        "enrolment_sha256": enrolment.sha256,
        "reader": enrolment.reader,
        "layers": enrolment.layers,
        "sources": len(enrolment.sources),
        "traces": len(scored.log_posteriors),
        "engine": scored.engine,
        "claimed": None if f.claimed is None else enrolment.sources[f.claimed],
        "verdict": f.verdict.outcome,
        "subject": enrolment.sources[f.subject],
        "leader": enrolment.sources[f.leader],
        "calibrated": f.calibrated,
        "log10_ratio_others": f.log10_others,
        "low": None if f.interval is None or not f.statements.stated else f.interval.low,
        "high": None if f.interval is None or not f.statements.stated else f.interval.high,
        "probability": math.exp(f.log_posterior[f.subject]) if f.statements.stated else None,
        "unknown_p": f.unknown_p,
    }
