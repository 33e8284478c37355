"""The report as one self-contained page: no script, nothing from outside, prints well, every text escaped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from backend.attribution.report import landing_sentence

ROWS = 500  # traces that the page lists; the table in CSV holds all
CANDIDATES = 12
FACTS = {
    "proxy_hash": "Weights of the proxy (sha256)",
    "hashes_beside": "Weights of what else reads (sha256)",
    "cells_by": "Lengths counted in tokens of",
    "data_hash": "Enrolled data (sha256)",
    "engine": "Engine of the enrolment",
    "max_tokens": "Tokens that the proxy reads",
    "records": "Enrolled traces",
    "whole_tokens": "Tokens at which enrolled responses end",
    "seed": "Seed of the folds",
    "code_version": "Code of the enrolment",
    "created": "Enrolled on",
}
"""What the facts of an enrolment are called."""
TRAFFIC = {
    "like": "like the enrolled prompts",
    "other topic": "other topic than enrolled",
    "other language": "other language than enrolled",
    "no prompts": "no prompts were given, so that it cannot be checked",
    "unchecked": "the enrolment cannot check it",
}
_WIDTH, _HEIGHT, _LEFT, _BOTTOM = 720, 220, 46, 26


def write_html(report: Mapping[str, Any]) -> str:
    """The page of a report, out of the template next to this module."""
    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": _number, "share": _share, "heat": _heat}
    results, reference = report["results"], report["reference"]
    return environment.get_template("report.html").render(
        report=report,
        results=results,
        rows=ROWS,
        candidates=CANDIDATES,
        facts=FACTS,
        landed=landing_sentence(results),
        subject_prior=reference["prior"][reference["sources"].index(results["subject"])],
        traffic=TRAFFIC,
        chart=evidence_chart(results["running"], results["spread"]["points"]),
    )


def evidence_chart(running: Sequence[Mapping[str, Any]], spread: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Coordinates of the figure "evidence against K": a line in the order of arrival, a band over random orders."""
    values: list[float] = [row["log10_ratio_others"] for row in running]
    values += [row[key] for row in spread for key in ("low", "high")]
    low, high = min([*values, -2.5]), max([*values, 2.5])
    last = max(int(running[-1]["traces"]), 2)

    def x(k: float) -> float:
        return round(_LEFT + (_WIDTH - _LEFT - 8) * math.log(k) / math.log(last), 1)

    def y(value: float) -> float:
        return round(8 + (_HEIGHT - _BOTTOM - 8) * (high - value) / (high - low), 1)

    upper = [f"{x(row['traces'])},{y(row['high'])}" for row in spread]
    lower = [f"{x(row['traces'])},{y(row['low'])}" for row in reversed(spread)]
    ticks = [k for k in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000, 100_000) if k < last * 0.8] + [last]
    step = max(1, 10 ** math.floor(math.log10(max(high - low, 1) / 2)))
    marks = [step * i for i in range(math.ceil(low / step), math.floor(high / step) + 1)]
    marks = marks[:: max(1, len(marks) // 8)]
    return {
        "width": _WIDTH,
        "height": _HEIGHT,
        "left": _LEFT,
        "floor": _HEIGHT - _BOTTOM,
        "line": " ".join(f"{x(row['traces'])},{y(row['log10_ratio_others'])}" for row in running),
        "band": " ".join(upper + lower),
        "ticks": [(x(k), f"{k:,}") for k in ticks],
        "marks": [(y(mark), f"{mark:g}") for mark in marks],
        "rules": [y(2), y(-2)],
    }


def _number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:,.{digits}f}".replace("-", "−")


def _share(value: float | None) -> str:
    if value is None:
        return "not stated"
    return "< .001" if value < 0.001 else ("> .999" if value > 0.999 else f"{value:.3f}".removeprefix("0"))


def _heat(value: float, largest: float) -> str:
    """Background of a token: the source's colour or the rival's, as strong as the evidence."""
    strength = min(1.0, abs(value) / largest) if largest > 0 else 0.0
    colour = "42,139,84" if value > 0 else "178,66,66"
    return f"background:rgba({colour},{0.65 * strength:.2f})"
