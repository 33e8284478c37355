"""Where a report and a second run of the same traces differ.

The same engine gives every log-posterior again, bit for bit, another one within a stated tolerance. Whatever else is in
a report follows from them, from the enrolment and from the file, and has to be the same to the last word.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from backend.attribution.report import log_posteriors_of
from backend.attribution.run import UNASKED
from backend.inference.likelihood_ratios import LN10
from backend.inference.verdict import REST
from backend.intake.traces import short, visible

OTHER_ENGINE = 0.25  # nats by which a log-posterior of another processor or type of products may differ
PAINT = 0.1
"""What token evidence of another engine may differ by: the root mean square of the differences relative to that of the
map, and any one of them relative to its largest piece. Products in float32 and bfloat16 differ by 0.017 and 0.032."""
LANDED = 0.005  # of a cosine; products in float32 and bfloat16 differ by 0.002 for one trace, by 0.001 for ten
EXACT = 1e-6  # largest difference of two numbers that are the same; relative to those beyond 1
STRICT = ("verdict", "level", "subject", "leader", "calibrated", "flags")  # what must be the same whatever computed it
SENTENCES = 12  # differences that are named one by one
# Parts that only the author can know, or that are compared in a way of their own.
APART = frozenset(
    {"created", "command", "steps", "sha256", "input", "exclusions", "log_posteriors", "heat_maps", "session"}
)
IN_THE_FILE = frozenset({"place", "turn", "time", "label", "name"})  # what a trace has only from its file
Slack = Callable[[str, float], float]


def differences(
    report: Mapping[str, Any], again: Mapping[str, Any], follows: Mapping[str, Any] | None = None
) -> list[str]:
    """What a second run of the same traces gives differently: some sentences, and how many more there are.

    follows : what follows from the log-posteriors of the report itself (:func:`backend.attribution.verify.rederived`),
        in the place of what follows from those of the second run.
    """
    found = list(_selection(report, again)) if same_file(report, again) else []
    was, there = ([trace["sha256"] for trace in one["traces"]] for one in (report, again))
    if was != there:
        found.append(f"The {len(was):,} traces of the report are not the {len(there):,} that were scored now")
    else:
        found += [*_scores(report, again), *_strictly(report, again)]
        now = {**again, **(follows or {})}
        found += unlike(_body(report, report, again), _body(now, report, again))
        found += [*_landing(report, now), *_readers(report, again), *_heat_maps(report, again)]
    more = [f"and {len(found) - SENTENCES:,} more differences"] if len(found) > SENTENCES else []
    return [*found[:SENTENCES], *more]


def largest_difference(report: Mapping[str, Any], again: Mapping[str, Any]) -> float:
    """Largest difference of a log-posterior between two runs, in nats; infinite where they are not of one shape."""
    was, now = log_posteriors_of(report), log_posteriors_of(again)
    return float(np.abs(was - now).max(initial=0.0)) if was.shape == now.shape else math.inf


def same_file(report: Mapping[str, Any], again: Mapping[str, Any]) -> bool:
    """Whether both are about one file, byte for byte."""
    return bool(report["input"]["sha256"] == again["input"]["sha256"])


def same_engine(report: Mapping[str, Any], again: Mapping[str, Any]) -> bool:
    """Whether log-posteriors have to come out bit for bit."""
    return bool(report["method"]["engine"] == again["method"]["engine"])


def exactly(_: str, now: float) -> float:
    """No number may differ."""
    return EXACT * max(1.0, abs(now))


def unlike(was: Any, now: Any, place: str = "", slack: Slack = exactly) -> Iterator[str]:
    """Places at which two values of JSON differ: keys, lengths, types, words, and numbers by more than their slack.

    place : what the values are called; slack : name of a number and its value now to what it may differ by.
    """
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in {**now, **was}:
            inner = f"{place}.{key}" if place else str(key)
            if key not in was or key not in now:
                yield visible(f"{short(inner, 80)} is {'missing' if key in now else 'no part of a report'}")
            else:
                yield from unlike(was[key], now[key], inner, slack)
    elif isinstance(was, list) and isinstance(now, list):
        if len(was) != len(now):
            yield visible(f"{place} had {len(was):,} entries and has {len(now):,}")
        for number, (one, other) in enumerate(zip(was, now, strict=False), start=1):
            yield from unlike(one, other, f"{place}[{number}]", slack)
    elif type(was) is not type(now) or not (
        abs(was - now) <= slack(place.rpartition(".")[2], now) if isinstance(now, float) else was == now
    ):
        yield visible(f"{place} was {short(was)} and is {short(now)}")


def _selection(report: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[str]:
    """Whether the very same file gives these traces, leaves out the others for these reasons, and has these places."""
    apart = ("name", "problems", "selection")  # a file may be renamed; what was selected is looked at below
    yield from unlike(_without(report["input"], apart), _without(again["input"], apart), "input")
    last = max((trace["place"] for trace in report["traces"]), default=0)
    excluded = [entry for entry in again["exclusions"] if entry["reason"] != UNASKED]
    for name, was, now in (
        ("exclusions", report["exclusions"], excluded),
        ("problems", report["input"]["problems"], again["input"]["problems"]),
    ):
        if report["results"]["complete"] is False:
            # What lies behind the trace at which somebody stopped was not looked at.
            now = [e for at, e in enumerate(now) if at < len(was) or e["place"] < last]
        yield from unlike(was, now, name)


def _scores(report: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[str]:
    was, now = log_posteriors_of(report).astype(np.float64), log_posteriors_of(again).astype(np.float64)
    sources = again["reference"]["sources"]
    if was.shape != now.shape:
        yield f"The log-posteriors are of {was.shape[1]:,} sources and not of {now.shape[1]:,}"
        return
    allowed = EXACT if same_engine(report, again) else OTHER_ENGINE
    total = allowed * math.sqrt(max(len(was), 1))
    off = np.abs(was - now)
    if (wrong := ~(off <= allowed)).any():
        trace, source = np.argwhere(wrong)[0]
        yield (
            f"The log-posterior of {sources[source]} for trace {trace + 1:,} differs by {off[trace, source]:.4g} nats, "
            f"allowed are {allowed:g}"
        )
    if (wrong := ~(np.abs((was - now).sum(0)) <= total)).any():
        source = int(wrong.argmax())
        yield f"The log-posteriors of {sources[source]} differ by more than {total:.4g} nats in all"


def _strictly(report: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[str]:
    if not same_engine(report, again):  # with the same one all of the results must be the same
        for key in STRICT:
            yield from unlike(report["results"][key], again["results"][key], f"results.{key}")


def _body(one: Mapping[str, Any], report: Mapping[str, Any], again: Mapping[str, Any]) -> dict[str, Any]:
    """All that follows from log-posteriors, enrolment and file, without what is compared otherwise."""
    of_file = frozenset() if same_file(report, again) else IN_THE_FILE
    stopped = report["results"]["complete"] is False  # a second run scores just as many traces, and is complete
    results = {**one["results"], "readers": one["results"]["readers"][:1]}
    if stopped and results["complete"]:
        results |= {"complete": False, "next_steps": [REST, *results["next_steps"]]}
    if one["results"].get("lands") and not same_engine(report, again):
        results["lands"] = _without(one["results"]["lands"], ("rows",))
    return {
        "results": results,
        **_without(one, APART | {"results"}),
        "method": _without(one["method"], ("engine", "code_version")),
        "traces": [_without(trace, of_file) for trace in one["traces"]],
    }


def _without(values: Mapping[str, Any], keys: frozenset[str] | Sequence[str]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key not in keys}


def _readers(report: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[str]:
    """What further readers found, whose log-posteriors are not in the report; absent ones are named elsewhere."""
    rows = {row["enrolment_sha256"]: row for row in again["results"]["readers"][1:]}
    ratio, apart = 2 * OTHER_ENGINE * math.sqrt(len(report["traces"])) / LN10, ("engine",)
    sums = _slack(log10_ratio_others=ratio, low=ratio, high=ratio, probability=0.25, unknown_p=0.1)
    for row in report["results"]["readers"][1:]:
        if (other := rows.get(row["enrolment_sha256"])) is not None:
            slack = exactly if row["engine"] == other["engine"] else sums
            yield from unlike(_without(row, apart), _without(other, apart), f"reader {short(row['enrolment'])}", slack)


def _landing(report: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Where the traces land by another engine: cosines may differ a little, and ranks are those of the cosines."""
    lands, there = (one["results"].get("lands") for one in (report, now))
    if not lands or not there or same_engine(report, now):
        return
    rows = lands["rows"]
    fitting = sorted(rows, key=lambda row: -row["cosine"])
    yield from unlike(rows, [row | {"rank": rank} for rank, row in enumerate(fitting, start=1)], "results.lands.rows")
    was, due = ({row["source"]: _without(row, ("rank",)) for row in one["rows"]} for one in (lands, there))
    if len(rows) != len(was):
        yield "results.lands.rows name a source more than once"
    yield from unlike(was, due, "results.lands", _slack(cosine=LANDED))


def _slack(**known: float) -> Slack:
    """What may differ by another engine: these numbers by so much, and all others by nothing."""
    return lambda name, now: known.get(name, exactly(name, now))


def _heat_maps(report: Mapping[str, Any], again: Mapping[str, Any]) -> Iterator[str]:
    """Text and token evidence; another engine may find other traces the weightiest, which are named as unchecked."""
    if same_engine(report, again):
        yield from unlike(report["heat_maps"], again["heat_maps"], "heat_maps")
        return
    maps = {shown["number"]: shown for shown in again["heat_maps"]}
    slack = _slack(value=math.inf, log_odds=2 * OTHER_ENGINE, stored=2 * OTHER_ENGINE)  # pieces are compared together
    for shown in report["heat_maps"]:
        if (other := maps.get(shown["number"])) is not None:
            place = f"heat map of trace {other['number']}"
            yield from list(unlike(shown, other, place, slack)) or _painted(shown, other, place)


def _painted(shown: Mapping[str, Any], other: Mapping[str, Any], place: str) -> Iterator[str]:
    """Whether the pieces of two heat maps have the same colours."""
    was, now = (np.array([piece["value"] for piece in held["pieces"]], np.float64) for held in (shown, other))
    for words, far, size in zip(("on the whole", "in a piece"), _sizes(was - now), _sizes(now), strict=True):
        if not far <= PAINT * size + EXACT:
            yield f"{place} differs by {far:.4g} nats {words}, allowed are {PAINT * size:.4g}"


def _sizes(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Root mean square, and the largest without its sign."""
    return math.sqrt(np.square(values).sum() / max(len(values), 1)), float(np.abs(values).max(initial=0.0))
