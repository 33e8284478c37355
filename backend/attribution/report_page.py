"""The report of an audit as a page that prints: a summary on its first sheet, then the grounds.

Headings follow the fields of ISO 21043-5: items and their integrity, propositions, findings, uncertainty, validation,
method, limits, review.
"""

from __future__ import annotations

import math
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from jinja2.utils import htmlsafe_json_dumps

from backend.attribution.background import background_sentences
from backend.attribution.report import choice_sentences, landing_sentence
from backend.attribution.report_words import (
    alarm_words,
    answer_sentence,
    bound_sign,
    bounds_of,
    condition_words,
    confusion_words,
    date_words,
    family_of,
    is_bounded,
    keep_together,
    line_words,
    mixture_sentence,
    only_among,
    percent_text,
    probability_text,
    rates_note,
    reservation,
    rule_met,
    running_bounds,
    same_limit,
    share_interval,
    shares_note,
    shown_shares,
    span_words,
    steps_of,
    stop_withheld,
    subject_probability,
    supports_family,
    too_few,
    validated_case,
    validated_for,
    verdict_words,
    wavers,
    with_names,
)
from backend.attribution.settings import DEFAULTS, Report
from backend.enrolment.validation_lookup import passing_of
from backend.inference.drift import p_text, p_words
from backend.inference.verdict import OTHER_PROMPTS, Rule, log10_text, odds, times_words
from backend.methods.registry import EMBEDDING, METHODS, SEVERAL, names, reads_text
from backend.protocol import CLEAN, READER_PAPER
from backend.proxies.registry import registered
from backend.shipped import shipped

ROWS = 500  # traces that the page lists; the table in CSV holds all
CANDIDATES = 12
NAMED = 3  # most members of a family that a headline names
CHART_WIDTH, CHART_HEIGHT, AXIS_X, AXIS_Y, RIGHT = 720, 128, 104, 86, 172
FRAME = {"width": CHART_WIDTH, "height": CHART_HEIGHT, "left": AXIS_X, "right": CHART_WIDTH - RIGHT, "floor": AXIS_Y}
"""Size of a chart, and the sides of its axes."""
Label = tuple[float, str, str]
"""Height of a label of the chart of evidence, its words and what it names."""
LABEL = 17  # percent of the lowest chart of evidence that a line of text takes
MOMENT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00")  # as facts of an enrolment have it
SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
ON_A_CLAIM = {
    "SUPPORTS": "Yes{among}: {who}",
    "AGAINST": "No: not {who}",
    "UNKNOWN": "They fit none of the {many:,} enrolled sources, {who} included",
}
WITHOUT_ONE = {"SUPPORTS": "Points to {who}{among}", "UNKNOWN": "They fit none of the {many:,} enrolled sources"}
OTHER_KIND = "These prompts are of another kind than the enrolled ones"
STRONG = f"At least {10**Rule.log10_lr:,.0f} times more likely from this {{who}} than from the others on average"
WORDS = {
    "SUPPORTS": f"{STRONG.format(who='source')}, and {100 * Rule.share:g} % probable.",
    "SUPPORTS THE FAMILY": f"{STRONG.format(who='family')}, and {100 * Rule.share:g} % probable; which member is not "
    "settled.",
    "AGAINST": f"At least {10**Rule.log10_lr:,.0f} times more likely from the others on average than from this source.",
    "UNKNOWN": "They fit no enrolled source, although the prompts are of the enrolled kind.",
    "INCONCLUSIVE": "Evidence not strong enough either way, not enough traces, or traces of a kind for which no error "
    "rate is known.",
}
"""What the five answers mean, for people who read no further."""
HASHED = "of its content, not of the file"  # what a report's hash is of
SIGNATURES = ("Examined by (name, date, signature)", "Reviewed by (name, date, signature)")


@dataclass(frozen=True)
class Table:
    """Rows of a validation that ask the same question, side by side."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Pivot:
    """How rows of one part become a table: one field of theirs names its rows, another its columns."""

    part: str
    title: str
    first: str  # title of the first column
    field: str
    names: Mapping[Any, str]  # of the field's values, in order; empty takes all of them as shares
    columns: Mapping[str, str]
    across: str = "metric"  # field of the columns
    metric: str | None = None  # the only one, where another field has the columns


TRAFFIC = {"same": "held-out prompts of the enrolled kind", "math100": "mathematical problems, not enrolled"}
ABSENT = {"family": "a family that was left out", "sibling": "a source whose siblings are enrolled"}
PAIRS = {"same": "of the same source", "sibling": "of two siblings", "family": "of two families"}
UNENROLLED = {"false_acceptance": "pass as enrolled", "false_rejection": "enrolled ones called unknown"}
ROLES = {"claimed": "of the claimed source", "leading": "of the leading source", "other": "of another source"}
MIXED = {"any": "another source's is found", "sibling": "a sibling's is found"}
PIVOTS = (
    Pivot(
        "transfer", "On other traffic", "prompts", "scenario", TRAFFIC,
        {"flagged": "found to be another kind", "false_unknown": "UNKNOWN although enrolled", "wrong": "wrong answers"},
    ),
    Pivot(
        "stop", "Stopping early", "stated error rate", "level", {},
        {
            "stop_error": "sessions that stop with a wrong source",
            "claim_false_support": "nearest other source passes as the claim",
            "claim_false_against": "true claims refuted",
        },
    ),
    Pivot("refit", "Not enrolled, and the reader made without them", "left out", "scenario", ABSENT, UNENROLLED),
    Pivot("unknown", "Not enrolled, simulated in the scores alone", "left out", "scenario", ABSENT, UNENROLLED),
    Pivot("drift", "Two windows of different prompts", "windows", "scenario", PAIRS, {"alarms": "called different"}),
    Pivot("mixture", "Two sources mixed", "share mixed in", "level", {}, MIXED, "scenario", "found"),
    Pivot("mixture", "95 % intervals of shares in mixtures", "share", "statistic", ROLES,
          {"share_coverage": "hold the true share"}),
)  # fmt: skip
QUESTIONS = (
    ("Without a claim", "named", "family", "right", "wrong"),
    ("The true source is claimed", "true_claim", "true_claim_family", "supported", "refuted"),
    ("The nearest other source is claimed", "nearest_claim", "nearest_claim_family", "refuted", "supported"),
)
"""Question to the rule, what its metrics begin with, for a source and for a family, and the right and wrong outcome."""
FIRST = {
    "accuracy_after": "With {traces}{nearest} the most probable source is right in {value:.1f} % of {n:,} tests.",
    "verdict_named_right": "In {value:.1f} % of {n:,} tests with {traces} the rule is sure enough to name the right "
    "source.",
    "false_unknown": "In {value:.1f} % of {n:,} tests with {traces} an enrolled source gets UNKNOWN.",
    "wrong": "In {value:.1f} % of {n:,} tests with {traces} it supports a wrong source or refutes the true one.",
}
"""Metrics that the first sheet has room for, in words for people who read no further."""
ON_FRONT = 3  # rates on the first sheet; a board reads no more, and the others stand with what was measured
FALSE_CLAIM = "A false claim of the nearest other source"  # begins the rates of what a report on a claim has to find


def headline(report: Report) -> str:
    """The answer in a few words: yes, no or why not about the claim, and without one the source that they point to."""
    report = with_names(report)
    results = report["results"]
    if results["level"] == "candidates":
        return (
            "No: none of the candidates"
            if results["verdict"] == "AGAINST"
            else "Another source than the candidates fits better"
        )
    if results["verdict"] == "INCONCLUSIVE":
        why = str(results["reason"])
        return OTHER_KIND if why in OTHER_PROMPTS else why[:1].upper() + why[1:]
    family = family_of(results)
    who = f"the family {family}" if results["level"] == "family" else results["subject"]
    among = f", among {_population(report)}" if only_among(report) else ""
    if results["level"] == "family" and results["verdict"] == "SUPPORTS":
        if results["claimed"]:
            return f"{_claimed_or_sibling(results, family)}{among}: we cannot say which"
        return f"Points to {who}{among}{_members(results, family)}"
    many = len(report["reference"].get("enrolled", report["reference"]["sources"]))
    words = (ON_A_CLAIM if results["claimed"] else WITHOUT_ONE)[results["verdict"]]
    said = words.format(who=who, among=among, many=many)
    return said.replace("Yes", "Yes, narrowly", 1) if results["claimed"] and wavers(report) else said


def meanings(report: Report) -> dict[str, str]:
    """Meaning of the five answers; the one given is of the family where it is about that."""
    given, family = verdict_words(report["results"]), report["results"]["level"] == "family"
    return WORDS | ({given: WORDS[given].replace("this source", "this family")} if family else {})


def _claimed_or_sibling(results: Mapping[str, Any], family: str) -> str:
    """The claimed source, and which others of its supported family it may be as well."""
    claimed, others = results["subject"], [name for name in _alike(results, family) if name != results["subject"]]
    if not others or len(others) >= NAMED:
        return f"{claimed} or another of the family {family}"
    return f"{claimed} or its {'sibling' if len(others) == 1 else 'siblings'} {' or '.join(others)}"


def _alike(results: Mapping[str, Any], family: str) -> Sequence[str]:
    return results["siblings"] if results["families"][0]["family"] == family else []


def _members(results: Mapping[str, Any], family: str) -> str:
    """Which members of a supported family it may be."""
    alike = _alike(results, family)
    if not alike:
        return "; which member, we cannot say"
    if len(alike) > NAMED:
        return f"; {len(alike):,} of its members are not told apart"
    return f": {' or '.join(alike)}, not told apart"


def _population(report: Report) -> str:
    reference = report["reference"]
    return f"the {len(reference['sources']):,} {'candidates' if 'candidates' in reference else 'enrolled sources'}"


def validation_tables(validation: Mapping[str, Any]) -> tuple[list[Table], list[str]]:
    """Tables of a report's validation, and the sentences of rows that stand in none of them."""
    rows = [row for row in validation["rows"] if row["sentence"]]
    rules = {row["metric"]: row for row in rows if row["metric"].startswith("verdict_")}
    tables, used = (
        [],
        {id(row) for row in rows if row["metric"] in ("accuracy_after", "ece_after", "cllr_claim_after")},
    )  # on the first sheet, and in the table of the calibration
    if rules:
        groups = next(iter(rules.values()))
        title = f"What the rule answers: {groups['n']:,} groups of {groups['k']:,} traces to prompts held out, "
        title += "without the tests of prompts and of unknown sources"
        columns = ("", "right about the source", "right about its family alone", "wrong", "undecided")
        tables.append(Table(title, columns, tuple(_answers(rules, *question) for question in QUESTIONS)))
        used |= {id(row) for row in rules.values()}
    for pivot in PIVOTS:
        cells = {
            (row[pivot.field], row.get("of", row[pivot.across])): row
            for row in rows
            if row["part"] == pivot.part and pivot.metric in (None, row["metric"]) and row[pivot.field] is not None
        }
        names = pivot.names or {level: f"{100 * level:g} %" for level, _ in sorted(cells)}
        found = {key: row for key, row in cells.items() if key[0] in names and key[1] in pivot.columns}
        if found:
            used |= {id(row) for row in found.values()}
            lines = [
                (name, *(_share_of(found.get((value, metric))) for metric in pivot.columns))
                for value, name in names.items()
                if any(key[0] == value for key in found)
            ]
            budgets = {row["k"] for row in found.values()}
            title = f"{pivot.title} ({' and '.join(f'{k:,}' for k in sorted(budgets))} traces)"
            tables.append(Table(title, (pivot.first, *pivot.columns.values()), tuple(lines)))
    return tables, [row["sentence"] for row in rows if id(row) not in used]


def _answers(rules: Mapping[str, Any], title: str, source: str, family: str, right: str, wrong: str) -> tuple[str, ...]:
    """How often the rule is right about the source, about its family alone, wrong, and undecided."""

    def share(name: str) -> float:
        row = rules.get(f"verdict_{name}")
        return float(row["value"]) if row else 0.0

    shared = "nearest_claim_shared_supported"
    alone = share(f"{family}_{right}") + (share(shared) if source == "nearest_claim" else 0.0)
    good, bad = share(f"{source}_{right}"), share(f"{source}_{wrong}") + share(f"{family}_{wrong}")
    *known, rest = (f"{100 * part:.1f} %" for part in (good, alone, bad, max(0.0, 1 - good - alone - bad)))
    # Earlier validations did not count apart what is right of a sibling as well.
    apart = source != "nearest_claim" or f"verdict_{shared}" in rules
    return title, *known, rest if apart else f"{rest}, or supports the family of both"


def _share_of(row: Mapping[str, Any] | None) -> str:
    """A cell: the share and how many it was counted among."""
    if row is None:
        return "–"
    if row["value"] is None:
        return "none could be seen"
    return f"{100 * row['value']:.1f} % of {row['n']:,}"


def rates_of(report: Report) -> list[str]:
    """How often such answers are right and wrong, in sentences; of a claim, how often a false one is found second."""
    rates = first_findings(report.get("validation"))
    if report["results"].get("claimed"):
        rates.sort(key=lambda sentence: not sentence.startswith(FALSE_CLAIM))
    return [*such_answers(report), *rates]


def first_findings(validation: Mapping[str, Any] | None) -> list[str]:
    """What a validation measured, in sentences for the first sheet."""
    rows = [] if validation is None else [row for row in validation["rows"] if row["sentence"]]
    near = [row for row in rows if row["scenario"] in (None, "same") and row["metric"] in FIRST]
    errors = _wrong_findings({row["metric"]: row for row in rows if row["metric"].startswith("verdict_")})
    near = [row for row in near if not errors or row["metric"] not in ("wrong", "verdict_named_right")]
    near.sort(key=lambda row: list(FIRST).index(row["metric"]))
    out = []
    for row in near:
        cut = "" if row["condition"] == CLEAN else f" cut after {row['condition'].removeprefix('t')} tokens"
        said = {
            "traces": f"{row['k']:,} trace{'s' * (row['k'] != 1)}{cut}",
            "nearest": cut and ", the nearest to yours in length,",
        }
        out.append(keep_together(FIRST[row["metric"]].format(n=row["n"], value=100 * row["value"], **said)))
    return [*out, *map(keep_together, errors)]


def _wrong_findings(rules: Mapping[str, Any]) -> list[str]:
    """How often the rule names a wrong source, and what it answers where the true or the nearest other is claimed."""
    if not {f"verdict_{one}" for one in ("named_wrong", "nearest_claim_refuted")} <= set(rules):
        return []
    (_, right, kin, wrong, undecided), (_, true, alone, false, unsure), (_, refuted, _, bad, rest) = (
        _answers(rules, *question) for question in QUESTIONS
    )
    n, k = (rules["verdict_named_wrong"][key] for key in ("n", "k"))
    tests = f"{n:,} tests with {k:,} trace{'s' * (k != 1)}"
    family = f" its family alone in {kin}," if "verdict_family_right" in rules else ""
    out = [
        f"In {right} of {tests} and no claim it names the right source,{family} a wrong one in {wrong}, none in "
        f"{undecided}."
    ]
    if "verdict_true_claim_family_supported" in rules:
        out.append(
            f"A true claim is supported in {true}, its family alone in {alone}, refuted in {false}, undecided in "
            f"{unsure}."
        )
    whole, both = (
        f"{100 * rules[name]['value']:.1f} %" if name in rules else ""
        for name in ("verdict_nearest_claim_family_refuted", "verdict_nearest_claim_shared_supported")
    )
    refuted, bad = (
        f"{refuted} of {tests}" + (whole and f", its whole family in another {whole}"),
        bad + (both and f" and the family of both in {both}"),
    )
    share, _, more = rest.partition(",")
    more = more and " (or the family of both supported)"
    return [*out, f"{FALSE_CLAIM} is refuted in {refuted}, supported in {bad}, and undecided{more} in {share}."]


def such_answers(report: Report) -> list[str]:
    """How often an answer like the report's was right where nothing was claimed; nothing of one without such tests."""
    level, rows = report["results"].get("level"), (report.get("validation") or {"rows": ()})["rows"]
    name = {"source": "named", "family": "family"}.get(level)
    found = {row["metric"]: row for row in rows if row["sentence"]}
    right, wrong = (found.get(f"verdict_{name}_{outcome}") for outcome in ("right", "wrong"))
    if report["results"].get("verdict") != "SUPPORTS" or not (right and wrong) or not right["value"] + wrong["value"]:
        return []
    hits, misses = (round(row["value"] * row["n"]) for row in (right, wrong))
    share = f"{100 * hits / (hits + misses):.1f} %" if misses else "all"
    tests = f"{hits + misses:,} tests ({right['k']:,} trace{'s' * (right['k'] != 1)} of an enrolled source, no claim)"
    answer = verdict_words(report["results"])
    return [keep_together(f"Of {tests} that ended in {answer}, the {level} was right in {share}.")]


def stranger_findings(validation: Mapping[str, Any] | None) -> list[str]:
    """How often a source that nobody enrolled passes the unknown-source test."""
    passing = passing_of(validation)
    if passing is None:
        return []
    whom = {"other families": passing.family, "siblings of enrolled ones": passing.sibling}
    shares = [f"{100 * share:.1f} % of {who}" for who, share in whom.items() if share is not None]
    return [keep_together(f"Sources that nobody enrolled may pass: {', '.join(shares)} ({passing.traces:,} traces).")]


def case_title(report: Report) -> str:
    """Name of the case; one that nobody named goes by its file."""
    return str(report["case"] if report["case"] != DEFAULTS.case else report["input"]["name"])


def document_title(report: Report) -> str:
    """Case and question, which name a report everywhere."""
    return f"{case_title(report)} · {report['question']}"


def reader_words(reader: str) -> str:
    """Method, and proxy or encoder, of a reader's id in words."""
    method, *read_with = reader.split("/")
    name = names().get(method, method)
    return name if reads_text(method) or not read_with else f"{name} ({read_with[0]})"


def judge_words(reader: str, proxy: str) -> str:
    """What reads the traces, for people who read no further: 'a small language model (NAME) and word statistics'."""
    method = reader.split("/")[0]
    if method not in METHODS or METHODS[method].reads in (SEVERAL, EMBEDDING):
        return names().get(method, method)
    words = [
        ("word statistics" if "word" in part else "statistics of the text")
        if reads_text(part)
        else f"a small language model ({known.name if (known := registered().get(proxy)) else proxy})"
        for part in METHODS[method].parts
    ]
    return f"read by {' and by '.join(words)}{paper_words(reader)}"


def paper_words(reader: str) -> str:
    """Whose method a reader's id names, where it is READER."""
    return " (the paper's method)" if reader.split("/")[0] == READER_PAPER else ""


def ratio_words(log10_ratio: float, capped: bool = False) -> str:
    """A likelihood ratio in words and as odds: 'about 160 times more likely (160 to 1)'."""
    return f"{times_words(log10_ratio, capped)} ({odds(log10_ratio)})"


def fact_words(value: Any) -> str:
    """A fact of the enrolment in words; parts of a nested one after each other."""
    if isinstance(value, Mapping):
        return "; ".join(f"{str(key).replace('_', ' ')} {fact_words(part)}" for key, part in value.items())
    if isinstance(value, list):
        return ", ".join(map(fact_words, value))
    if isinstance(value, float):
        return f"{value:.0f}" if abs(value) >= 100 else f"{value:.6g}"  # a length needs no decimals
    return date_words(value) if isinstance(value, str) and MOMENT.fullmatch(value) else str(value)


@cache
def font_faces() -> str:
    """Rules that bring the atlas's font along: its Latin letters, digits and signs alone, 35 KB in two weights."""
    face = '@font-face {{ font-family: "IBM Plex Sans"; font-weight: {}; src: url(data:font/woff2;base64,{}); }}'
    # Parts of the page's own files, made with fontTools.subset: a report of whole ones would be twice as large.
    files = {one: shipped("assets") / "fonts" / f"ibm-plex-sans-report-{one}-normal.woff2" for one in (400, 600)}
    found = {weight: file.read_bytes() for weight, file in files.items() if file.is_file()}
    return "\n".join(face.format(weight, b64encode(font).decode()) for weight, font in found.items())


def refused_note(validation: Mapping[str, Any]) -> str:
    """Which rate of enrolled sources called unknown is that of an answer, where the tables hold another one too."""
    metrics = {(row["metric"], row["scenario"]) for row in validation["rows"] if row["sentence"]}
    alone = any(metric == "false_rejection" for metric, _ in metrics)
    if ("false_unknown", "same") not in metrics or not alone:
        return ""
    whole, test = PIVOTS[0].columns["false_unknown"], UNENROLLED["false_rejection"]
    return (
        f"How often is an enrolled source called unknown? For your case read “{whole}” in the row of your prompts: "
        "of the whole rule, on prompts that were measured anew. The sentence on UNKNOWN among the rates states it for "
        f"prompts of the enrolled kind. “{test}” is of the unknown-source test alone, run with others left out, and "
        "not of an answer."
    )


def write_html(report: Report) -> str:
    """The page of a report: no script, nothing from outside, every text escaped."""
    loader = FileSystemLoader(Path(__file__).parent)
    environment = Environment(
        loader=loader,
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=keep_together,
    )
    environment.filters |= {
        "number": _number,
        "p": p_text,
        "p_words": p_words,
        "share": probability_text,
        "percent": percent_text,
        "heat": _heat,
        "ratio": ratio_words,
        "log10": log10_text,
        "signed": lambda value: ("+" if value > 0 else "") + _number(value),
        "odds": odds,
        "reader": reader_words,
        "fact": fact_words,
        "date": date_words,
        "condition": condition_words,
        "answer": verdict_words,
    }
    data = htmlsafe_json_dumps(report, allow_nan=False)  # what the page can be checked by
    report = with_names(report)
    results, reference, judge = report["results"], report["reference"], report["method"]["reader"]
    tables, others = validation_tables(report["validation"]) if report["validation"] else ([], [])
    rates = rates_of(report)
    return environment.get_template("report.html").render(
        report=report,
        data=data,
        results=results,
        headline=headline(report),
        alarm=alarm_words(report),
        sentence=answer_sentence(report),
        capped=is_bounded(report),
        bounds=bounds_of(report),
        probability=subject_probability(report),
        own_probability=subject_probability(report, percent_text),
        span=span_words(report),
        rule_met=rule_met(report),
        same_limit=same_limit(report),
        title=case_title(report),
        document_title=document_title(report),
        judge=judge_words(judge, report["method"]["proxy"]),
        too_few=too_few(report),
        word=verdict_words(results),
        half=supports_family(results) or only_among(report),
        line=line_words(report),
        words=meanings(report),
        signatures=SIGNATURES,
        hashed=HASHED,
        mixture_sentence=mixture_sentence(report) if results.get("mixture") else "",
        shares_note=shares_note(report) if (results.get("mixture") or {}).get("shares") else "",
        shown_shares=shown_shares(results["mixture"]) if results.get("mixture") else [],
        share_interval=share_interval,
        reservation=reservation(report),
        steps=steps_of(report),
        stop_withheld=stop_withheld(results) if (results["stop"] or {}).get("withheld") else "",
        validated=validated_for(report),
        validated_case=validated_case(report) if report["validation"] else "",
        counted=rates_note(report["validation"]),
        first_findings=rates[:ON_FRONT],
        confused=confusion_words(report),
        strangers=stranger_findings(report["validation"]),
        fonts=font_faces(),
        refused=refused_note(report["validation"]) if report["validation"] else "",
        validation=(tables, [*rates[ON_FRONT:], *others]),
        rows=ROWS,
        candidates=CANDIDATES,
        landed=landing_sentence(results),
        choice=choice_sentences(report),
        background=background_sentences(report),
        subject_prior=reference["prior"][reference["sources"].index(results["subject"])],
        chart=evidence_chart(
            results["running"],
            results["spread"]["points"],
            results["log10_ratio_others"] if results["level"] == "family" else None,
            results["subject"],
            odds_words(results["running"][-1]["log10_ratio_others"], running_bounds(report)[-1]),
            bound_sign(report),
        ),
    )


def evidence_chart(
    running: Sequence[Mapping[str, Any]],
    spread: Sequence[Mapping[str, Any]],
    family: float | None = None,
    subject: str | None = None,
    end: str = "",
    bound: str = "",
) -> dict[str, Any]:
    """Coordinates of "evidence against K", in percent: a line in the order of arrival, a band over random orders.

    family : log10 ratio of the source's family, marked after all traces, where the answer is about that.
    subject : the source, without which points are hollow where another one leads. end : label of the line's end.
    bound : sign of the family's ratio where that is one.
    """
    values: list[float] = [row["log10_ratio_others"] for row in running]
    values += [row[key] for row in spread for key in ("low", "high")]
    values += [] if family is None else [family]
    low, high = min([*values, -2.5]), max([*values, 2.5])
    last = max(int(running[-1]["traces"]), 2)

    def x(k: float) -> float:
        return round(100 * math.log(k) / math.log(last), 2)

    def y(value: float) -> float:
        return round(100 * (high - value) / (high - low), 2)

    hollow = [row for row in running if subject is not None and row["leader"] != subject]
    upper = [f"{x(row['traces'])},{y(row['high'])}" for row in spread]
    lower = [f"{x(row['traces'])},{y(row['low'])}" for row in reversed(spread)]
    ticks = [k for k in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 10_000, 100_000) if k < last * 0.8] + [last]
    rules = [(y(2), "100 to 1 for"), (y(-2), "100 to 1 against")]
    ends: list[Label] = [(y(running[-1]["log10_ratio_others"]), end, "end")] if end else []
    ends += [] if family is None else [(y(family), f"family: {odds_words(family, bound)}", "family")]
    return {
        "line": " ".join(f"{x(row['traces'])},{y(row['log10_ratio_others'])}" for row in running),
        "hollow": [(x(row["traces"]), y(row["log10_ratio_others"])) for row in hollow],
        "band": " ".join(upper + lower),
        "ticks": [(x(k), f"{k:,}") for k in ticks],
        "marks": [(y(mark), words) for mark, words in axis_odds(low, high).items()],
        "rules": rules,
        "labels": _placed(rules, ends),
        "family": None if family is None else (x(last), y(family)),
    }


def _placed(rules: Sequence[tuple[float, str]], ends: Sequence[Label]) -> list[tuple[float, float, str, str]]:
    """Labels with height and place: of rules at their heights, others moved away where they would meet one."""
    placed = [(height, height, words, "rule") for height, words in rules]
    for height, words, kind in ends:
        place, direction = height, 1 if height > min(placed, key=lambda one: abs(one[0] - height))[0] else -1
        while met := [other for _, other, *_ in placed if round(abs(other - place), 2) < LABEL]:
            place = round(direction * max(direction * other for other in met) + direction * LABEL, 2)
        placed.append((height, place, words, kind))
    return placed


def axes(
    last: float, low: float, high: float, first: float = 1
) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """Where a chart has a number of traces, on a log axis to ``last``, and a value from ``low`` to ``high``."""

    def x(k: float) -> float:
        return round(AXIS_X + (CHART_WIDTH - AXIS_X - RIGHT) * math.log(k / first) / math.log(last / first), 1)

    def y(value: float) -> float:
        return round(8 + (AXIS_Y - 8) * (high - value) / (high - low), 1)

    return x, y


def axis_odds(low: float, high: float) -> dict[int, str]:
    """Marks of an axis from one log10 ratio to another, and their odds: '100 to 1', 'even' or '1 to 10⁹'."""
    step = max(1, 10 ** math.floor(math.log10(max(high - low, 1) / 2)))
    step *= max(1, int((high - low) / step) // 8)
    return {step * i: _odds_of_mark(step * i) for i in range(math.ceil(low / step), math.floor(high / step) + 1)}


def odds_words(ratio: float, bound: str) -> str:
    """A log10 ratio in words: 'about 320 to 1 for', 'at least 950 to 1 against'."""
    words = odds(abs(ratio))
    if words == "1 to 1":
        return "even"
    about = "" if "more" in words else "at least " if bound else "about "
    return f"{about}{words} {'for' if ratio > 0 else 'against'}"


def _odds_of_mark(power: int) -> str:
    many = f"{10 ** abs(power):,}" if abs(power) <= 6 else f"10{str(abs(power)).translate(SUPERSCRIPTS)}"
    return "even" if power == 0 else f"{many} to 1" if power > 0 else f"1 to {many}"


def _number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:,.{digits}f}".replace("-", "−")


def _heat(value: float, largest: float) -> str:
    """Background of a token: the source's colour or the rival's, as strong as the evidence."""
    strength = min(1.0, abs(value) / largest) if largest > 0 else 0.0
    colour = "42,139,84" if value > 0 else "178,66,66"
    return f"background:rgba({colour},{0.65 * strength:.2f})"
