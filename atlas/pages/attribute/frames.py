"""A report's parts as tidy rows: what the tables and the CSV files behind the live figures hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from atlas.figures.evidence import margin_of_all

Report = Mapping[str, Any]


def candidates(report: Report) -> pd.DataFrame:
    """Every enrolled source, most probable first.

    Columns source, family, probability, log10_ratio, score, bias. The ratio is that of the subject against the source,
    from the sum of ``score`` and of the calibration's ``bias`` for every trace; 0 for the subject itself.
    """
    columns = ["source", "family", "probability", "log10_ratio", "score", "bias"]
    return pd.DataFrame(report["results"]["candidates"])[columns]


def evidence(report: Report) -> pd.DataFrame:
    """Evidence after every printed number of traces, as they arrived and over random orders.

    Columns traces, log10_ratio, probability, leader; and orders_low, orders_middle, orders_high (quantiles against the
    best other source) and share_leading (of the orders), missing where they were not taken.
    """
    running = pd.DataFrame(report["results"]["running"]).rename(columns={"log10_ratio_others": "log10_ratio"})
    spread = pd.DataFrame(
        report["results"]["spread"]["points"], columns=["traces", "low", "middle", "high", "leads"]
    ).rename(columns={"low": "orders_low", "middle": "orders_middle", "high": "orders_high", "leads": "share_leading"})
    return running.merge(spread, on="traces", how="outer").sort_values("traces").reset_index(drop=True)


def traces(report: Report) -> pd.DataFrame:
    """Every scored trace and what it adds (columns number, place, nearest, log10_ratio, tokens, sha256 and more)."""
    columns = ["number", "place", "nearest", "log10_ratio", "tokens", "response_characters", "time", "name", "sha256"]
    return pd.DataFrame(report["traces"])[columns]


def without(report: Report) -> pd.DataFrame:
    """What is left without each trace (columns number, log10_without, change, sha256)."""
    frame = pd.DataFrame(report["traces"])[["number", "log10_without", "sha256"]]
    frame.insert(2, "change", frame["log10_without"] - margin_of_all(report))
    return frame


def readers(report: Report) -> pd.DataFrame:
    """What each reader says (columns enrolment, reader, verdict, leader, log10_ratio_others, low, high and more)."""
    columns = [
        "enrolment", "reader", "sources", "verdict", "subject", "leader", "log10_ratio_others", "low", "high",
        "probability", "unknown_p", "calibrated", "enrolment_sha256",
    ]  # fmt: skip
    frame = pd.DataFrame(report["results"]["readers"], columns=columns)
    numbers = ["log10_ratio_others", "low", "high", "probability", "unknown_p"]
    return frame.astype(dict.fromkeys(numbers, float))


def excluded(report: Report) -> pd.DataFrame:
    """Places of the file that were not scored (columns place, column, reason)."""
    rows = [
        *({"place": p["place"], "column": p["column"], "reason": p["reason"]} for p in report["input"]["problems"]),
        *({"place": e["place"], "column": None, "reason": e["reason"]} for e in report["exclusions"]),
    ]
    return pd.DataFrame(rows, columns=["place", "column", "reason"]).sort_values("place", kind="stable")


def pieces(evidence: Mapping[str, Any]) -> pd.DataFrame:
    """Tokens of a heat map (columns start, stop, token, log_odds); in nats, they add up to the score."""
    frame = pd.DataFrame(evidence["pieces"], columns=["start", "stop", "text", "value"])
    return frame.rename(columns={"text": "token", "value": "log_odds"})


def landed(report: Report) -> pd.DataFrame:
    """Where the traces land among the sources (columns rank, source, family, cosine), the nearest first."""
    where = report["results"]["lands"]
    return pd.DataFrame(where["rows"] if where else [], columns=["rank", "source", "family", "cosine"])
