"""How the audit of a report is run once more: its settings, its traces, and what follows from its own scores."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from backend.attribution.report import log_posteriors_of, trace_rows
from backend.attribution.report_results import reader_row, results_of
from backend.attribution.run import checked, weighed
from backend.attribution.scoring import Scored
from backend.attribution.selection import Selection
from backend.attribution.settings import STOP_LEVEL, Settings
from backend.enrolment.enrolment import Enrolment
from backend.errors import AtlasError
from backend.inference.prompt_novelty import Traffic
from backend.intake import Columns, Limits, Received, inspect
from backend.intake.encoding import encoding_given
from backend.intake.traces import short, visible

DAMAGED = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError)
"""What a report that somebody wrote by hand may cause."""


def settings_of(
    report: Mapping[str, Any], enrolment: str, known: Callable[[str], str | None] = lambda _: None
) -> Settings:
    """Settings that give a report again.

    enrolment : name of the enrolment that has the report's sha256.
    known : sha256 of an enrolment of a further reader to its name here; None where it is not here.
    Raises AtlasError if the report does not say what is needed.
    """
    try:
        results, held, shown = report["results"], report["input"]["columns"], report["heat_maps"]
        columns = Columns(**{role: None if held.get(role) is None else str(held[role]) for role in asdict(Columns())})
        others = [known(str(row["enrolment_sha256"])) for row in results["readers"][1:]]
        return Settings(
            enrolment=enrolment,
            case=str(report["case"]),
            question=str(report["question"]),
            prior_statement=str(report["reference"]["prior_statement"]),
            claimed=None if results["claimed"] is None else str(results["claimed"]),
            prior=_weights(report["reference"]),
            keep_duplicates=bool(report["input"]["selection"]["keep_duplicates"]),
            # A response column that was recognised is recognised again: naming it would switch chat logs off.
            columns=columns if report["input"]["mapped"] else replace(columns, response=None),
            encoding=encoding_given(str(report["input"].get("encoding"))),
            show=len(shown),
            against=str(shown[0]["rival"]) if shown else None,
            orders=int(results["spread"]["orders"]),
            seed=int(results["spread"]["seed"]),
            stop_level=float((results["stop"] or {}).get("error_rate", STOP_LEVEL)),
            also=tuple(name for name in others if name is not None),
        )
    except DAMAGED as error:
        raise unreadable(error) from error


def _weights(reference: Mapping[str, Any]) -> dict[str, float]:
    """The stated prior of a report, by source.

    Raises ValueError, OverflowError if a weight is no number, not positive, or beyond what a number can be.
    """
    weights = {}
    for source, weight in zip(map(str, reference["sources"]), reference["prior"], strict=True):
        if type(weight) not in (int, float) or not 0 < float(weight) < math.inf:
            raise ValueError(f"the prior of {short(source)} is {short(weight)} and no positive number")
        weights[source] = float(weight)
    return weights


def fitting(
    settings: Settings, sha256: Any, stream: BinaryIO, name: str, limits: Limits, encoding: str | None = None
) -> Settings:
    """The settings for a file that may hold the same traces in another way: what does not fit it is recognised anew.

    settings : of the report.
    sha256 : of the report's own file, as it says; what that was decoded with says nothing of another one.
    stream, name, limits : see :func:`backend.intake.inspect`.
    encoding : of the file that is here, where a person names it.
    """
    given = settings if encoding is None else replace(settings, encoding=encoding)
    try:
        layout = inspect(stream, name, given.columns, limits, given.encoding)
    except AtlasError:
        return replace(given, columns=Columns(), encoding=encoding)
    return given if encoding is not None or layout.sha256 == sha256 else replace(given, encoding=None)


def selection_for(report: Mapping[str, Any], sha256: str, limits: Limits) -> Selection:
    """The traces that a report has to be about.

    Of its own file these are those that an audit takes, whatever the report says of each; where it says that somebody
    stopped it, the first of them. In another file they are found by their hashes, as often as the report counts them.

    sha256 : of the file that is read now.
    limits : of its intake.
    Raises AtlasError if the report does not say what is needed.
    """
    try:
        rule = report["input"]["selection"]
        stopped = report["results"]["complete"] is False
        left = Counter(str(trace["sha256"]) for trace in report["traces"])
        room = [len(report["traces"])]
        keep, text = bool(rule["keep_duplicates"]), limits.text if report["heat_maps"] else 0
        own, characters = sha256 == report["input"]["sha256"], int(rule["characters"])
    except DAMAGED as error:
        raise unreadable(error) from error

    def first(_: Received) -> bool:
        room[0] -= 1
        return room[0] >= 0

    def named(trace: Received) -> bool:
        left[trace.sha256] -= 1
        return left[trace.sha256] >= 0

    if own:
        return Selection(keep, wanted=first if stopped else None, characters=characters, text=text)
    return Selection(keep, wanted=named, text=text)


def rederived(
    report: Mapping[str, Any], again: Mapping[str, Any], enrolment: Enrolment, mean: npt.NDArray[np.float64]
) -> dict[str, Any]:
    """What follows from the log-posteriors that a report holds: its results, and what it says of every trace.

    again : of a second run of the same traces; what comes from their text is taken from it.
    enrolment : of the report.
    mean : (2 d,) mean fingerprint of the traces in the second run.
    Returns results (with the row of the report's own reader only) and traces.
    Raises AtlasError if the report asks what cannot be asked of the enrolment.
    """
    settings = settings_of(report, enrolment.name)
    prior, _ = checked(enrolment, settings)
    scored = Scored(
        log_posteriors=log_posteriors_of(report),
        tokens=np.array([trace["tokens"] for trace in again["traces"]], dtype=np.intp),
        folds=(None,) * len(again["traces"]),
        mean=mean,
        fingerprints=None,
        complete=bool(report["results"]["complete"]),
        seconds=0.0,
        engine=report["method"]["engine"],
        traffic=Traffic(**again["results"]["traffic"]),
    )
    findings = weighed(scored, enrolment, settings, prior)
    rows = trace_rows(scored, enrolment, findings)
    follows: dict[str, Any] = {
        "results": results_of(scored, enrolment, findings) | {"readers": [reader_row(enrolment, scored, findings)]},
        "traces": [trace | row for trace, row in zip(again["traces"], rows, strict=True)],
    }
    out: dict[str, Any] = json.loads(json.dumps(follows))
    return out


def unreadable(error: BaseException) -> AtlasError:
    """What is said of a report that somebody wrote by hand."""
    why = visible(short(str(error) or type(error).__name__, 80))
    return AtlasError(f"The report lacks what is needed to compute it again ({why})", "Give it unchanged")
