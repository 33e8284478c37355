"""The words of a report for people: readable names, its reservation, and what to do next.

Nothing here enters a report: all of it follows from one, so that reports of before stay verifiable.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from backend.attribution.decision import FLAGS
from backend.attribution.settings import Report, Settings
from backend.enrolment.validation_lookup import passing_of
from backend.inference.drift import FEWEST_PAIRED, p_words
from backend.inference.e_process import evidence_text
from backend.inference.mixture import POWER
from backend.inference.verdict import (
    FAR,
    FEW,
    KEEP,
    REFERENCE_CHECK,
    SCALE,
    SHORT,
    SUSPECT,
    UNLIKE,
    VERIFY,
    WEAK,
    Passing,
    Rule,
    times_words,
)
from backend.intake.layout import RECOGNISED
from backend.protocol import CLEAN

Words = Callable[[float | None], str]  # of a probability
COMMAND = "python -m jobs"
BY_FINGERPRINT = "Nearest by the mean fingerprint: "
SUSPECTED = SUSPECT.partition("{")[0]
PAGES = {REFERENCE_CHECK: "Claim against reference", VERIFY: "Check a report"}
"""Commands of next steps to the modes of the page Attribute that do the same."""
DATED = re.compile(r"-\d{4}-?\d{2}-?\d{2}$")
TESTED = ", the most tested up to yours"
SOURCES = frozenset(
    {
        *("subject", "leader", "rival", "claimed", "source", "nearest", "named"),
        *("siblings", "sources", "left_out", "enrolled"),
    }
)
"""Fields of a report that hold sources."""
MIXED_IN = "another enrolled source, drawn at random,"
"""What a second source of the validation is: siblings are a few of these, and are found less often."""


def names_of(report: Report) -> dict[str, str]:
    """Readable names of the sources of a report that are known by another one."""
    names = report.get("method", {}).get("facts", {}).get("names")
    return {str(one): str(name) for one, name in names.items()} if isinstance(names, Mapping) else {}


def too_few(report: Report) -> bool:
    """Whether the rule decides nothing since there are so few traces."""
    return str(report.get("results", {}).get("reason", "")).startswith(FEW)


def only_validated(report: Report) -> Report:
    """A report for people: of traces too few for the rule no ratio and no probability is stated."""
    if not too_few(report) or not report["results"]["stated"]:
        return report
    results = report["results"]
    none = {
        part: [row | {"probability": None} for row in results[part]] for part in ("candidates", "families", "running")
    }
    unknown = f"not stated: {results['reason']}"
    return {
        **report,
        "results": {**results, **none, "stated": False, "interval": None, "in_words": None, "unknown_words": unknown},
    }


def with_names(report: Report) -> dict[str, Any]:
    """A report for people: readable names in place of its sources, also in a question that was made from the claim."""
    report = only_validated(report)
    names, out = names_of(report), dict(report)
    if not names:
        return out

    def renamed(part: Any, of_sources: bool = False) -> Any:
        if isinstance(part, Mapping):
            return {key: renamed(value, key in SOURCES) for key, value in part.items()}
        if isinstance(part, list):
            return [renamed(value, of_sources) for value in part]
        return names.get(part, part) if of_sources and isinstance(part, str) else part

    for part in ("results", "reference", "traces", "heat_maps", "confusions"):
        if part in report:
            out[part] = renamed(report[part])
    claimed = report["results"]["claimed"]
    if report.get("question") == Settings(claimed=claimed).question_text:
        out["question"] = Settings(claimed=out["results"]["claimed"]).question_text
    return out


def alarm_words(report: Report) -> str | None:
    """What the alarm says that a report was made because of; None without one."""
    if (alarm := report.get("alarm")) is None:
        return None
    first, last, traces = alarm["first"], alarm["traces"], report["results"]["traces"]
    level, percent = evidence_text(-math.log10(alarm["rate"])), f"{100 * alarm['rate']:g} %"
    return (
        f"After {last:,} counted traces the evidence against {report['results']['claimed']} is "
        f"{evidence_text(alarm['log10_e'])}. The alarm is at {level}, which at most {percent} of all watches of an "
        f"unchanged endpoint reach. Whatever the {traces:,} traces from about number {first:,} on say of who answers "
        "now, the alarm stands."
    )


def confusion_words(report: Report) -> list[str]:
    """How often the two siblings that are not told apart were taken for each other; nothing where not measured."""
    if "confusions" not in report:
        return []
    there, back = with_names(report)["confusions"]
    of = f"groups of {there['traces']:,} trace{'s' * (there['traces'] != 1)}"
    first, second = (f"{pair['count']:,} of {pair['groups']:,}" for pair in (there, back))
    return [f"{there['source']} is taken for {there['named']} in {first} {of} ({second} the other way)."]


def keep_together(value: Any) -> Any:
    """A text whose odds stay on one line, and numbers with their per cent sign; anything else as it is."""
    if type(value) is not str:
        return value
    return re.sub(r"\b([\d,]+) to 1\b", "\\1\u00a0to\u00a01", re.sub(r"(?<=\d) %", "\u00a0%", value))


def date_words(at: datetime | str) -> str:
    """A day for people, of a moment or of one in ISO 8601: '28 November 2026'."""
    at = datetime.fromisoformat(at) if isinstance(at, str) else at
    return f"{at.day} {at:%B %Y}"


def condition_words(condition: str) -> str:
    """The kind of responses that validated a condition."""
    return "whole responses" if condition == CLEAN else f"responses cut after {condition.removeprefix('t')} tokens"


def validated_case(report: Report) -> str:
    """What an answer's error rates were measured on, in a sentence."""
    held = report["validation"]
    case, fewer, none = condition_words(held["condition"]), "", ""
    case += ", about as long as yours" * (held["condition"] != CLEAN)
    if held["traces"] is None:
        none = " The accuracy was not tested with so many traces or fewer."
    else:
        many = f"{held['traces']:,} trace{'s' * (held['traces'] != 1)}"
        case = many if held["condition"] == CLEAN else f"{many} of {case}"
        fewer = TESTED * (held["traces"] != report["results"]["traces"])
    return f"Measured with {case}{fewer}, on held-out prompts.{none}"


def rates_note(validation: Report | None, *, other_traffic: bool = True) -> str:
    """What shares of the rule's answers, of UNKNOWN and of wrong answers count; '' where one was not measured."""
    rows = [row for row in (validation or {}).get("rows", ()) if row["sentence"]]
    rules = next((row["n"] for row in rows if row["metric"].startswith("verdict_")), None)
    counted = {row["metric"]: row["n"] for row in rows if row["scenario"] == "same"}
    if rules is None or "false_unknown" not in counted:
        return ""
    wrong = ""
    if other_traffic and "wrong" in counted:
        wrong = f" Wrong answers on other traffic are of all three questions to those: {counted['wrong']:,} answers."
    return (
        f"What is counted: the rule's answers on {rules:,} groups of traces, without the tests of prompts and unknown "
        f"sources; UNKNOWN on {counted['false_unknown']:,} other groups, with them, so that these shares need not add "
        f"up to 100 %.{wrong}"
    )


def mixture_sentence(report: Report) -> str:
    """Whether one source wrote all, with what the share that can be seen was measured of."""
    found = with_names(report)["results"]["mixture"]
    cases = f"is found in {100 * POWER:.0f} % of cases where {found.get('source')} wrote the rest"
    sentence = str(found["sentence"]).replace("from elsewhere can be seen", f"from {MIXED_IN} {cases}")
    return sentence.replace("from elsewhere would be seen", f"from {MIXED_IN} would be found")


def shares_note(report: Report) -> str:
    """What the shares of several sources hold for, and the p value of one source."""
    found, text = with_names(report)["results"]["mixture"], "Shares hold if only enrolled sources took part."
    if report["results"]["claimed"]:  # one that was named beforehand was not picked by these traces
        text += " A source that is claimed has its interval by a test of its own: another claim gives another one."
    return f'{text} "All from {found["subject"]}": {p_words(found["p"])}.'


def shown_shares(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Shares of a mixture's answer, with the intervals as people see them.

    Where one source can have written all, each interval of another source holds 0: the test agrees with no trace of it.
    """
    rows = list(found["shares"] or ())
    if found["outcome"] == "mixture":
        return rows
    return [row if row["source"] == found["source"] else row | {"low": 0.0} for row in rows]


def share_interval(low: float, high: float) -> str:
    """An interval of a share: '.050 to .915', '0 to .915', or 'any share'."""
    first, last = probability_text(low), probability_text(high)
    return "any share" if (first, last) == ("< .001", "> .999") else f"{first if low else '0'} to {last}"


def only_among(report: Report) -> bool:
    """Whether a source is supported that the unknown-source test cannot tell from sources that are not enrolled."""
    passing = passing_of(report.get("validation"))
    return report["results"]["verdict"] == "SUPPORTS" and passing is not None and passing.blind


def wavers(report: Report) -> bool:
    """Whether a source or a family is supported that some of the resamples leave undecided."""
    results = report["results"]
    if results["verdict"] != "SUPPORTS" or not (interval := results["interval"]):
        return False
    rule, of_source = report["method"]["rule"], results["level"] == "source"  # the interval's probability is a source's
    unsure = of_source and interval["probability_low"] < rule["least_share"]
    return bool(interval["low"] < rule["decided_log10"] or unsure)


def reservation(report: Report) -> str | None:
    """What the answer does not exclude, or where its evidence points, by what was measured; None without need."""
    reference, validation = report.get("reference", {}), report.get("validation")
    if (passing := passing_of(validation)) and only_among(report):
        many = len(reference.get("enrolled", reference["sources"]))
        return f"A model outside these {many:,} is not excluded: {_would_pass(passing)}.{_not_settled(report)}"
    if supports_family(report["results"]):
        others = ""
        if passing and passing.sibling is not None:
            others = f" Another model of the family {family_of(report['results'])} is not excluded: "
            others += f"{_would_pass(replace(passing, family=None))}."
        return f"{_not_settled(report)}{others}".lstrip()
    if report["results"]["verdict"] == "AGAINST" and passing and report["results"]["level"] == "source":
        return _not_the_author(with_names(report), passing)
    if report["results"]["verdict"] != "UNKNOWN":
        return _direction(with_names(report))
    rows = [row for row in (validation or {"rows": ()})["rows"] if row["sentence"]]
    of_answers = [row for row in rows if (row["metric"], row["scenario"]) == ("false_unknown", "same")]
    refused = next(iter([*of_answers, *(row for row in rows if row["metric"] == "false_rejection")]), None)
    if refused is None or not refused["value"]:
        return None
    results = with_names(report)["results"]
    either = "no enrolled model answers, or one of them"
    if results["claimed"]:
        either = f"another model answers, or {results['claimed']}"
    groups = f"{100 * refused['value']:.1f} % of {refused['n']:,} groups of {refused['k']:,} traces"
    often = f"about 1 in {1 / refused['value']:.0f} groups of an enrolled source gets UNKNOWN by mistake ({groups})"
    return f"Either {either} behind other settings; {often}."


def _not_the_author(report: Report, passing: Passing) -> str | None:
    """That the best match of traces that speak against the claim need not have written them; None where it leads."""
    results = report["results"]
    leader = results["candidates"][0]["source"]
    if leader == results["subject"]:
        return None
    return f"That does not make it the author: {_would_pass(passing)}."


def _would_pass(passing: Passing) -> str:
    shares, many = passing.span.removesuffix(" %"), f"{passing.traces:,} trace{'s' * (passing.traces != 1)}"
    whom = "that are not enrolled but have an enrolled sibling" if passing.family is None else "that nobody enrolled"
    passed = f"of 100 models {whom}, {shares} pass as enrolled"
    if " to " in shares:
        passed = f"of 100 models whose family nobody enrolled, {100 * (passing.family or 0):.0f} pass as enrolled, and "
        passed += f"of 100 with an enrolled sibling {100 * (passing.sibling or 0):.0f}"
    return f"{passed} (at {many})"


def _not_settled(report: Report) -> str:
    """What the answer about a family leaves open of the source that it began with."""
    if not supports_family(report["results"]):
        return ""
    results = with_names(report)["results"]
    share = next(row["probability"] for row in results["candidates"] if row["source"] == results["subject"])
    first = results["candidates"][0]
    chances = percent_text(share)
    if first["source"] != results["subject"]:
        chances += f", that of {first['source']} {percent_text(first['probability'])}"
    needs = f"{100 * report['method']['rule']['least_share']:g} % needed"
    settled = f" Whether it is {results['subject']} itself is not settled: its probability is {chances} ({needs})."
    return f"{settled}{_dates_apart(results)}"


def _dates_apart(results: Mapping[str, Any]) -> str:
    """What a claim's siblings are that are not told apart, where their names are one but for a date; else ''."""
    claimed, names = results["claimed"], results.get("siblings") or []
    others = [name for name in names if name != claimed]
    if claimed not in names or not others or not all(is_dated(claimed, name) for name in others):
        return ""
    return " The names differ by a date alone: if either is allowed, the claim holds as far as this test goes."


def is_dated(one: str, other: str) -> bool:
    """Whether one of two names is the other's with a date."""
    return one != other and (DATED.sub("", one) == other or DATED.sub("", other) == one)


def _direction(report: Report) -> str | None:
    """Which way evidence points that is too weak for a verdict, and what the rule needs; None of another answer."""
    results = report["results"]
    if results["verdict"] != "INCONCLUSIVE" or results["reason"] != WEAK or not results["stated"]:
        return None
    who, leader, ratio = results["subject"], results["candidates"][0], results["log10_ratio_others"]
    if ratio < 0 and not results["claimed"]:
        return None
    text = "The evidence points neither way."
    if abs(ratio) > SCALE[0][0]:
        word, side = ("SUPPORTS", "to") if ratio > 0 else ("AGAINST", "away from")
        needs = f"{word} needs {10 ** report['method']['rule']['decided_log10']:,.0f} times"
        times = times_words(ratio, is_bounded(report))
        text = f"The evidence points {side} {who}: the traces are {times} from it than from the others on average"
        if is_bounded(report):
            many = results["traces"]
            text += f". The validation bears no more than that with {many:,} trace{'s' * (many != 1)}, and {needs}."
        else:
            text += f"; {needs}."
    if leader["source"] != who:
        share = percent_text(leader["probability"])
        text += f" Asked without a claim, {leader['source']} is the best match, with a probability of {share}."
    return text


def line_words(report: Report) -> str:
    """What diamond and dashed line of the evidence are, and why a source that passes is not named alone."""
    results, rule = report["results"], report["method"]["rule"]
    last, least = results["running"][-1], f"{100 * rule['least_share']:g} %"
    line = "Diamond: its family. " * (results["level"] == "family")
    line += f"Dashed: {10 ** rule['decided_log10']:,.0f} to 1, which the rule asks for"
    if supports_family(results) and last["log10_ratio_others"] < rule["decided_log10"]:
        leads = f"; {results['leader']} leads" if results["leader"] != results["subject"] else ""
        return f"{line}. {results['subject']} stays below it, {percent_text(last['probability'])} probable{leads}."
    if supports_family(results):
        named = f"{results['subject']} passes it but is {percent_text(last['probability'])} probable"
        if last["probability"] < rule["least_share"]:
            close = len(results.get("siblings") or ()) > 1
            why = ", as close siblings weigh more than the average of the others" if close else ""
            return f"{line}. {named} ({least} needed){why}."
    beside = f", beside a probability of {least} where it SUPPORTS" if results["verdict"] != "AGAINST" else ""
    return f"{line}{beside}."


def short_of(report: Report) -> str:
    """What the source lacks whose ratio passes the rule's while its family is named; '' of other answers."""
    if not supports_family(report["results"]):
        return ""
    least, last = report["method"]["rule"]["least_share"], report["results"]["running"][-1]
    passes = last["log10_ratio_others"] >= report["method"]["rule"]["decided_log10"]
    if not passes or last["probability"] >= least:
        return ""
    return f"probability {percent_text(last['probability'])}, {100 * least:g} % needed"


def is_bounded(report: Report) -> bool:
    """Whether the ratio was larger, and stops at what the validation can bear."""
    return bool(report["results"].get("capped"))


def bound_sign(report: Report) -> str:
    """'≥ ' or '≤ ' before the answer's log10 ratio where it stops at what the validation can bear."""
    return ("≥ " if report["results"]["log10_ratio_others"] > 0 else "≤ ") * is_bounded(report)


def probability_text(value: float | None) -> str:
    """A probability with three digits; never 0 or 1."""
    if value is None:
        return "not stated"
    return "< .001" if value < 0.001 else "> .999" if value > 0.999 else f"{value:.3f}".removeprefix("0")


def percent_text(value: float | None) -> str:
    """A probability in sentences; never 0 % or 100 %."""
    if value is None:
        return "not stated"
    return "less than 0.1 %" if value < 0.001 else "more than 99.9 %" if value > 0.999 else f"{100 * value:.1f} %"


def subject_probability(report: Report, text: Words = probability_text) -> str:
    """Probability of the source that the answer is about: at most or at least, where its ratio is bounded.

    Where the bound is below what the rule needs, the number that the rule took, with :func:`rule_met` next to it.
    """
    results, reference = report["results"], report["reference"]
    share = next(row["probability"] for row in results["candidates"] if row["source"] == results["subject"])
    if share is None or results["level"] == "family" or not is_bounded(report) or rule_met(report):
        return text(share)
    return _bounded(report, reference["prior"][reference["sources"].index(results["subject"])], text)


def rule_met(report: Report) -> str:
    """Why the rule supports a source whose bound is below what it needs, in a sentence; '' of other answers."""
    results, reference = report["results"], report["reference"]
    if (results["verdict"], results["level"]) != ("SUPPORTS", "source") or not is_bounded(report):
        return ""
    least = report["method"]["rule"]["least_share"]
    prior = reference["prior"][reference["sources"].index(results["subject"])]
    share = next(row["probability"] for row in results["candidates"] if row["source"] == results["subject"])
    if not (bound := _probability(results["log10_ratio_others"], prior)) < least <= share:
        return ""
    many = tests_of(report)
    rows = (report.get("validation") or {"rows": ()})["rows"]
    metric = f"verdict_{'nearest_claim_supported' if results['claimed'] else 'named_wrong'}"
    wrong = next((row for row in rows if row["metric"] == metric), None)
    erring = "the nearest other source passed as the claim" if results["claimed"] else "a wrong source was named"
    rate = ""
    if wrong:
        share = percent_text(wrong["value"]) if wrong["value"] else "none"
        rate = f", and with it {erring} in {share} of {wrong['n']:,} {many}: "
        rate += "this carries the answer"
    return f"The rule needs {100 * least:g} %{rate}. As a number alone, {many} back {percent_text(bound)} at most"


def tests_of(report: Report) -> str:
    """The tests that bound an answer, by their number of traces where that is known."""
    many = (report.get("validation") or {}).get("traces")
    return f"tests of {many:,} traces" if many else "its tests"


def same_limit(report: Report) -> str:
    """What an interval of resamples says that is a single number."""
    return f"in 90 % of resamples it reaches the same limit: {tests_of(report)} cannot back a stronger one"


def _bounded(report: Report, prior: float, text: Words) -> str:
    """The probability that a ratio at its bound gives."""
    found = text(_probability(report["results"]["log10_ratio_others"], prior))
    return bound_sign(report) + found if found[0] in ".0123456789" else found


def _probability(log10_ratio: float, prior: float) -> float:
    weight = 10**log10_ratio * prior
    return float(weight / (weight + 1 - prior))


def probability_span(report: Report) -> tuple[float, float] | None:
    """Where 90 % of resamples put :func:`subject_probability`, within its bound; None for a single trace."""
    results, reference = report["results"], report["reference"]
    if not (interval := results["interval"]):
        return None
    if results["level"] == "family" or not is_bounded(report) or rule_met(report):
        return interval["probability_low"], interval["probability_high"]
    prior = reference["prior"][reference["sources"].index(results["subject"])]
    return _probability(interval["low"], prior), _probability(interval["high"], prior)


def span_words(report: Report) -> str:
    """Where 90 % of resamples put the source's probability, and that they leave it open where they do; '' for one."""
    span, results = probability_span(report), report["results"]
    if not span:
        return ""
    if span[0] == span[1]:
        return same_limit(report)
    undecided = supports_family(results) or results["verdict"] == "INCONCLUSIVE"
    left_open = f"these {results['traces']:,} traces leave it open: " * undecided
    return f"{left_open}{' to '.join(map(percent_text, span))} in 90 % of resamples"


def family_of(results: Mapping[str, Any]) -> str:
    """The family of the source that the answer is about."""
    return next(str(row["family"]) for row in results["candidates"] if row["source"] == results["subject"])


def family_probability(report: Report, text: Words = probability_text) -> str:
    """Probability of the family that the answer is about: at most or at least, where its ratio is bounded."""
    results, reference = report["results"], report["reference"]
    family = family_of(results)
    if is_bounded(report):
        pairs = zip(reference["families"], reference["prior"], strict=True)
        return _bounded(report, sum(prior for one, prior in pairs if one == family), text)
    return text(next(row["probability"] for row in results["families"] if row["family"] == family))


def stop_withheld(results: Mapping[str, Any]) -> str:
    """Why results state no stop, where they withhold it."""
    family = results["level"] == "family"
    return "not stated for an answer about a family" if family else f"not stated: {results['stop']['withheld']}"


def bound_of(ratio: float, source: tuple[float, float], others: tuple[float, float]) -> str:
    """'≥ ' or '≤ ' before a log10 ratio that stops at what the validation can bear.

    source, others : probability and prior, whose ratio goes on.
    """
    (share, prior), (rest, rest_prior) = source, others
    if not rest or not share:
        return "≥ " if share else "≤ "
    beyond = math.log10(share / rest) - math.log10(prior / rest_prior) - ratio
    return "" if abs(beyond) < 1e-6 else "≥ " if beyond > 0 else "≤ "


def running_bounds(report: Report) -> list[str]:
    """'≥ ' or '≤ ' of the log10 ratio after each printed number of traces, which has a limit of its own."""
    results, reference = report["results"], report["reference"]
    if not results["stated"]:
        return [""] * len(results["running"])
    prior = reference["prior"][reference["sources"].index(results["subject"])]
    found = ((row["log10_ratio_others"], row["probability"]) for row in results["running"])
    return [bound_of(ratio, (share, prior), (1 - share, 1 - prior)) for ratio, share in found]


def bounds_of(report: Report) -> dict[str, str]:
    """'≥ ' or '≤ ' of the log10 ratio of the answer's source over every other; nothing where none is stated."""
    results, reference = report["results"], report["reference"]
    if not results["stated"]:
        return {}
    priors = dict(zip(reference["sources"], reference["prior"], strict=True))
    weights = {row["source"]: (row["probability"], priors[row["source"]]) for row in results["candidates"]}
    ratios, subject = {row["source"]: row["log10_ratio"] for row in results["candidates"]}, weights[results["subject"]]
    return {source: bound_of(ratios[source], subject, weighed) for source, weighed in weights.items()}


def verdict_words(found: Mapping[str, Any]) -> str:
    """The verdict of results, or of a reader's row, in capitals; where a family alone is supported, with that."""
    return f"{found['verdict']}{' THE FAMILY' * supports_family(found)}"


def supports_family(found: Mapping[str, Any]) -> bool:
    """Whether results, or a reader's row, support a family and none of its members alone."""
    return (found["verdict"], found.get("level")) == ("SUPPORTS", "family")


def answer_sentence(report: Report) -> str:
    """The answer's sentence, next to a headline that has its yes or no, its reason, and the members that it may be."""
    results = report["results"]
    sentence = re.sub(r"^(Yes|No), the ", "The ", _with_bounds(report).replace(f": {results['reason']}.", "."))
    near = ((results.get("lands") or {}).get("rows") or [{"source": results.get("leader")}])[0]["source"]
    if results["verdict"] == "UNKNOWN" and near != results.get(
        "leader"
    ):  # two would invite to choose, and this one leads
        sentence = re.sub(r" Of (those|the candidates), .* scores highest\.$", f" {BY_FINGERPRINT}{near}.", sentence)
    if supports_family(results):  # the headline names them
        sentence = re.sub(r" Of the family .* are not told apart\.$", "", sentence)
    return sentence


def in_words(report: Report) -> dict[str, Any]:
    """Sentence and next steps of an answer as page and printed report have them, for whoever reads the data alone."""
    kept = reservation(report)
    sentence = " ".join([answer_sentence(with_names(report)), *([kept] if kept else [])])
    return {"sentence": sentence, "next_steps": [step.by_command for step in steps_of(report)]}


def answer_line(report: Report) -> str:
    """The answer where no headline stands next to it: its word and its whole sentence."""
    return f"{verdict_words(report['results'])}: {_with_bounds(report)}"


def _with_bounds(report: Report) -> str:
    """The answer's sentence, whose ratio is a bound wherever it stops at what the validation can bear."""
    sentence = str(report["results"]["sentence"])
    if not is_bounded(report):
        return sentence
    sentence = re.sub(r"(?<!at least )about (?=[\d,.]+ times )", "at least about ", sentence)
    return re.sub(r"log10 ratio (?=[−\d])", f"log10 ratio {bound_sign(report)}", sentence)


def validated_for(report: Report) -> bool:
    """Whether the validation of a report is of such traces as these, and not of the enrolled kind alone."""
    results = report["results"]
    if results["stated"] or results["verdict"] == "UNKNOWN":
        return True
    apart = {FLAGS["short"], FLAGS["domain"]} & set(results["flags"] or ())
    return results["traffic"]["kind"] == "like" and not apart and results["reason"] not in (SHORT, UNLIKE, FAR)


@dataclass(frozen=True)
class Step:
    """Something to do next: words before a command, the page that does the same, the command, and words after it.

    As text it has no command.
    """

    before: str
    page: str | None = None  # of :data:`PAGES`
    command: str = ""
    after: str = ""
    needs: str = ""  # what the page's test needs, where it is shown

    @property
    def by_command(self) -> str:
        """The step on the command line."""
        return f"{self.before}{self.command}{self.after}"

    def __str__(self) -> str:
        if self.page is None:
            return self.before.partition(f": {COMMAND}")[0].removesuffix(".") + "."
        return f"{self.before}{self.page} (page Attribute){self.needs}{self.after or '.'}"


def _own_columns(report: Report) -> list[str]:
    """Columns that a person chose for the traces, as words of a command that compares them with a collected file."""
    if not report["input"].get("mapped"):
        return []
    named = ((role, report["input"]["columns"].get(role)) for role in ("response", "prompt"))
    given = ((f"--{role}-column", shlex.quote(column), RECOGNISED) for role, column in named if column)
    return [word for option, column, rest in given for word in (option, column, option, rest)]


def _fewest_prompts(report: Report) -> str:
    """How many prompts a comparison with a reference needs."""
    needed = (report.get("validation") or {}).get("prompts_needed")
    if needed is None:
        return ", which says how many prompts SUPPORTS needs"
    given, results = report["input"].get("prompts"), report["results"]
    if (results["traces"] if given is None else given) >= needed:
        return ""
    fewest = f", with {needed:,} prompts at least: fewer cannot end in SUPPORTS"
    if given is None or results.get("complete") is False:  # an earlier report, or the file holds more
        return fewest
    if not given:
        return f"{fewest}. Your file names no prompts: put the same {needed:,} to both endpoints"
    least = f", and fewer than {FEWEST_PAIRED} are not compared at all" * (given < FEWEST_PAIRED)
    rest = f"put {needed - given:,} more to the endpoint, then all {needed:,} to the genuine one"
    return f"{fewest}. Your file has {given:,} prompt{'s' * (given > 1)}{least}: {rest}"


def steps_of(report: Report) -> list[Step]:
    """What to do next, with the report's own file in commands."""
    fewest = _fewest_prompts(report)
    name, out = str(report["input"]["name"]), []
    file = "TRACES" if name.startswith("-") else shlex.quote(name)
    read = (f"{file} --reference genuine.jsonl", " ".join([f"{file} --reference genuine.jsonl", *_own_columns(report)]))
    pages = {command.replace("traces.jsonl", file).replace(*read): page for command, page in PAGES.items()}
    against = report["results"]["verdict"] == "AGAINST"
    for step in dict.fromkeys([*report["results"]["next_steps"], *[KEEP] * against]):
        text = step.replace("traces.jsonl", file).replace(*read)
        command = next((one for one in pages if one in text), None)
        if command is None:
            how = f": {COMMAND} enroll LABELLED --name NAME" if text.startswith(SUSPECTED) else ""
            out.append(Step(f"{text.rstrip('.')}{how}." if how else text))
            continue
        before, _, after = text.partition(command)
        out.append(Step(before, pages[command], command, after, fewest * (pages[command] == PAGES[REFERENCE_CHECK])))
    if wavers(report):
        rule = report["method"]["rule"]
        of_source = report["results"]["level"] == "source"
        below = f"{10 ** rule['decided_log10']:,.0f} to 1" + f" or {100 * rule['least_share']:g} %" * of_source
        out.append(Step(f"Add traces to be surer: in some resamples of these the evidence stays below {below}."))
    elif report["results"]["verdict"] != "INCONCLUSIVE" and report["results"]["traces"] <= Rule.minimum_traces:
        out.append(Step(f"Collect 20 traces to be surer: {Rule.minimum_traces} are the fewest that an answer takes."))
    if only_among(report):
        command, page = next(iter(pages.items()))
        who = with_names(report)["results"]["subject"]
        before = f"To exclude a model that is not enrolled, ask the genuine {who} the same prompts and compare: "
        out.append(Step(before, page, command, needs=fewest))
    return out
