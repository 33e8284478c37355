"""The answer of one attribution: verdict, its numbers, exports, how to check it, what its validation measured."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

from dash import dcc, html
from dash.development.base_component import Component

from atlas import shell
from atlas.data import QueryCache
from atlas.figures.evidence import number
from atlas.figures.plots import count, rate_text
from atlas.pages.attribute import sections
from atlas.pages.attribute.sections import MODES, Report, number_cell
from atlas.state import BUDGETS
from backend.attribution.background import background_sentences
from backend.attribution.decision import FLAGS
from backend.attribution.report import choice_sentences
from backend.attribution.report_page import HASHED, case_title, headline, rates_of, stranger_findings
from backend.attribution.report_words import (
    BY_FINGERPRINT,
    Step,
    answer_sentence,
    bound_sign,
    confusion_words,
    family_of,
    family_probability,
    keep_together,
    only_among,
    percent_text,
    rates_note,
    reservation,
    rule_met,
    same_limit,
    span_words,
    steps_of,
    stop_withheld,
    subject_probability,
    supports_family,
    too_few,
    validated_case,
    validated_for,
    verdict_words,
    with_names,
)
from backend.enrolment.catalogue import SAMPLES, title_of
from backend.enrolment.validation_lookup import SCENARIOS, passing_of
from backend.inference.verdict import CANNOT_TELL, COMPATIBLE, WEAK, odds

IN_BRIEF = ("case", "budget", "confusion")
"""Figures of a brief about a case; all but the case are the atlas's own."""
SIGNS = {"SUPPORTS": "✓", "AGAINST": "✕", "UNKNOWN": "?", "INCONCLUSIVE": "–"}
TRAFFIC_WORDS = {
    "like": ("As enrolled", "like the enrolled prompts"),
    "other topic": ("Other topic", "than the enrolled prompts"),
    "other language": ("Other language", "than the enrolled prompts"),
    "no prompts": ("–", "no prompts given"),
    "unchecked": ("–", "cannot be checked with this ecosystem"),
    "unlike pool": ("Unlike", "the traffic that was added"),
    "unfitted pool": ("Alike", "like the traffic that was added"),
}
TRAFFIC_HELP = (
    "Whether the prompts are of the kind that was enrolled: how many enrolled groups are at least as unusual as these. "
    "At .05 or below they are of another kind, and nothing that was validated holds for them."
)
RATIO_HELP = (
    "How many times more probable these traces are if the source made them than if another enrolled one did; its "
    "log10 is 2 for a hundred to one, −2 for one to a hundred. A prior says how the others weigh among themselves."
)
PROBABILITY_HELP = (
    "Posterior probability under the stated prior, calibrated for this number of traces on prompts that the probe had "
    "never seen. It knows the enrolled sources only. It ends (≥ or ≤) where the ratio does."
)
UNKNOWN_HELP = (
    "How often traces of an enrolled source fit the enrolled sources as badly as these do. At .05 or below the answer "
    "is that none of them made the traces."
)
STOP_HELP = (
    "The first trace, in the order of the file, at which the evidence passed the stopping rule's own threshold. Tests "
    "with a look after every trace, in random orders, set it for the stated risk, so that checking later does not "
    "change it. A smaller risk asks for more traces."
)
ANOTHER = " (5 % or less would be called another kind)"
ALL_READ = "nothing was left out"
CHECKS = ("Kind of traffic", "Unknown source")
OTHER_CASE = "on traces of the validated kind"
REFUSED = (
    'Rates of enrolled sources that are turned away differ as their tests do: "wrongly UNKNOWN" is what the whole rule '
    'answers, on prompts that were measured anew; "enrolled refused" is the unknown-source test alone, where a family '
    "or a source was taken out of the scores."
)
NOT_CALIBRATED = "This ecosystem has no calibration, so ratios are plain sums and no claim is decided."
NOT_VALIDATED = "How often such answers of this ecosystem are wrong has not been measured; more below."
UNCALIBRATED = (
    "This ecosystem brings neither a calibration nor a validation: ratios are plain sums, no claim is decided, and how "
    "often its answers are wrong is not known."
)
UNVALIDATED = (
    "This ecosystem brings no validation. Probabilities and ratios are calibrated on answers to held-out prompts, but "
    "how often a verdict, the unknown-source test or the stop is wrong has not been measured for these sources. Read "
    "the answer as a pointer, not as one with a known error rate."
)
CALIBRATION = {
    "Calibration error (ECE)": ("ece_before", "ece", "gap between stated and realised probability"),
    "Cost of the likelihood ratios (Cllr, bits)": ("cllr_before", "cllr", "0 is perfect, 1 says nothing"),
    "Of it, lost by the order of the ratios (Cllr min)": ("", "cllr_min", "what no calibration can save"),
    "Of it, lost by their sizes (Cllr cal)": ("", "cllr_cal", "what a better calibration could save"),
}
"""Words of a line to the metrics before calibration ('' for a part of a cost) and after it, and a meaning."""
CLAIMS = {
    "The true source is claimed": "true_claim",
    "The same: its family alone": "true_claim_family",
    "Its nearest other source is claimed": "nearest_claim",
    "The same: that one's family alone": "nearest_claim_family",
}
ALONE = ", without the tests of prompts and of unknown sources"
NAMES = {"A source is named": "named", "A family alone is named": "family"}
NOBODY = {
    "Its whole family was left out": ("refit", "family"),
    "It was left out, its siblings were not": ("refit", "sibling"),
    "Its whole family, taken out of the scores only": ("unknown", "family"),
    "It alone, taken out of the scores only": ("unknown", "sibling"),
}
WINDOWS = {"Of the same source": "same", "Of two sources of one family": "sibling", "Of two families": "family"}


def family_answer(report: Report) -> str:
    """The answer a family at a time, in a sentence."""
    results = with_names(report)["results"]
    families = results["families"]
    if not families or not results["stated"]:
        return ""
    shares = [f"{row['family']} {percent_text(row['probability'])}" for row in families[:3]]
    if results["siblings"]:
        return (
            f"The family {families[0]['family']} is clear ({percent_text(families[0]['probability'])}); its members "
            f"{', '.join(results['siblings'])} are not told apart."
        )
    if len(families) == len(results["candidates"]):
        return "Every enrolled source is a family of its own."
    return f"By family: {shares[0]}{', then ' + ', '.join(shares[1:]) if shares[1:] else ''}."


def verdict(report: Report, cache: QueryCache | None = None, *, titled: bool = False) -> Component:
    """The answer: sign, word, sentence, what to do next, who judged, and the numbers behind it.

    titled : whether the question stands above already.
    """
    report = with_names(report)
    results, method, reference = report["results"], report["method"], report["reference"]
    word, sources = results["verdict"], reference["sources"]
    among = title_of(reference["enrolment"], method["facts"].get("roster"), sources)
    partial = "" if results["complete"] else "Reading was stopped before the end; this is what had been read."
    toys = f"Only the {len(sources):,} small models of this demonstration were compared." if among == SAMPLES else ""
    said = re.sub(
        r"(; | \()log10 ratio [^()]*\)", lambda found: ")" if found[1] == "; " else "", answer_sentence(report)
    )
    near = ""
    if word == "UNKNOWN":  # a name next to "none" reads as the author's; p stands below, with what it is
        said, of, near = re.sub(r" \(p [^()]*\)", "", said).partition(" Of those, ")
        said, by, nearest = said.partition(f" {BY_FINGERPRINT}")
        near = f"{BY_FINGERPRINT[:-2]}, which does not make it the author: {nearest}" if by else ""
        near = f"Nearest, which does not make it the author: {near}" if of else near
    left_open = reservation(report)
    said = "" if word == "UNKNOWN" and left_open else said  # the headline says the same
    told: list[Component | str] = []
    for part in filter(None, (toys, said, left_open, partial)):  # the ratio stands below
        words = shell.unbroken(keep_together(part))
        told += [html.Span(words, className="verdict-open") if part == left_open else html.Span(words), " "]
    # Other prompts bring other topics: the prompts are the one reason then.
    follows = FLAGS["domain"] if results["traffic"]["kind"] in ("other topic", "other language") else ""
    flags = [("Shift. ", flag) for flag in results["flags"] or () if flag != follows]
    if results["stated"] and results["calibrated"] and not report.get("validation"):
        flags.append(("Not validated. ", NOT_VALIDATED))
    if not results["calibrated"]:
        flags.append(("Not calibrated. ", NOT_CALIBRATED))
    answer = html.Span(shell.unbroken(headline(report)), className="verdict-means", dir="auto")
    steps = html.Ul([html.Li(_step(step)) for step in steps_of(report)])
    judged = sections.judged_by(cache, among, len(sources), SimpleNamespace(**method))
    judged += [f" {sentence}" for sentence in confusion_words(report)]
    about = count(results["traces"], "trace") if titled else report["question"]
    asked = [html.Strong([report["question"], " "], className="slide-only", dir="auto")] if titled else []
    return sections.answer_box(
        f"{word} verdict-half" if supports_family(report["results"]) or only_among(report) else word,
        [*asked, html.Span(case_title(report), dir="auto"), " · ", html.Span(about, dir="auto")],
        ("verdict-word", SIGNS[word], [verdict_words(report["results"]), answer]),
        html.P(told[:-1], className="verdict-sentence long", dir="auto"),
        html.Div([html.Strong("What to do next"), steps], className="verdict-next"),
        *([] if titled else [html.A("Save the report", href="#attr-exports", className="to-exports")]),
        html.P(judged, className="hint verdict-judge"),
        *([html.P(near, className="hint", dir="auto")] if near else []),
        *[
            html.P(sentence, className="hint")
            for sentence in (*choice_sentences(report), *background_sentences(report))
        ],
        sections.facts(*(_facts_on_paper(report) if titled else _facts(report))),
        *[html.P([html.Strong(kind), flag], className="flag") for kind, flag in flags],
        **shell.aria(labelledby="verdict-word", live="polite"),
    )


def _step(step: Step) -> list[Component | str]:
    """What to do next, with a link to the page that does it; commands alone are folded away."""
    if step.page is None:
        words, command, rest = step.before.partition("python -m jobs")
        if not command:
            return [words]
        how = html.Details([html.Summary("How?"), html.Code(f"{command}{rest}".rstrip("."))], className="folded")
        return [f"{words.rstrip(' :')}.", how]
    mode = next(mode for mode, name in MODES.items() if name == step.page)
    carry = "&carry=1" if mode == "reference" else ""
    link = dcc.Link(step.page, href=f"/attribute?mode={mode}{carry}", title=step.command)
    return [step.before, link, step.needs, step.after or "."]


def not_stated(report: Report) -> str:
    """Why an answer states no ratio and no probability."""
    results = report["results"]
    if results["verdict"] == "UNKNOWN":
        return "no enrolled source fits"
    return (
        str(results["reason"])
        if results["level"] == "candidates" or too_few(report)
        else "not validated for such traces"
    )


def _facts(report: Report) -> list[tuple[str, str, str, str]]:
    """Numbers of the answer, for :func:`sections.facts`."""
    results = report["results"]
    who, family = "claimed source" if results["claimed"] else "best match", results["level"] == "family"
    level = "its family against all other families" if family else f"{who} against all others"
    named = f" of the family {family_of(results)}" if family and results["stated"] else ""
    ratio, help_ = ("–", f"not stated: {not_stated(report)}"), PROBABILITY_HELP + _off(report)
    chances = [(f"Probability{named}", help_, *ratio)]
    if results["stated"]:
        strength = str(results["in_words"])
        if results["verdict"] == "AGAINST":
            strength = strength.replace("support for the alternative", "evidence against the claim")
        sign, log10 = bound_sign(report), results["log10_ratio_others"]
        text = odds(log10)
        words = f"{level}; {strength}; log10 {sign}{number(log10, 2)}{_between(report)}"
        ratio = (text if "more" in text else f"{sign}{text}", words)
        own, least = subject_probability(report, percent_text), 100 * report["method"]["rule"]["least_share"]
        words = who
        if supports_family(results):
            words += f"; {least:g} % needed to be named alone"
        elif met := rule_met(report):
            words += f". {met}"
        elif results["verdict"] == "SUPPORTS":
            words += f"; {least:g} % needed"
        name = f"Probability of {results['subject']}" if family else "Probability"
        chances = [(name, help_, own, "; ".join(filter(None, (words, span_words(report)))))]
        if family:  # the interval is the source's
            whole = family_probability(report, percent_text)
            chances.insert(0, (f"Probability{named}", help_, whole, "its members together"))
    traffic, unknown = results["traffic"], results["unknown_p"]
    kind, like = TRAFFIC_WORDS[
        "unfitted pool" if "background" in report and traffic["kind"] == "like" else traffic["kind"]
    ]
    if traffic["p"] is not None:
        like += f"; {percent_text(traffic['p'])} of enrolled groups are at least as unusual{ANOTHER}"
    none, fits = "–", results["unknown_words"]
    if unknown is not None and not fits.startswith("not stated"):
        none = (
            "Fits none"
            if results["verdict"] == "UNKNOWN"
            else "Compatible"
            if fits.startswith(COMPATIBLE)
            else "Cannot tell"
        )
        fits = fits.removeprefix(f"{CANNOT_TELL}; ").removeprefix(f"{COMPATIBLE}; ")
        fits += f"; {percent_text(unknown)} of enrolled groups fit no better (5 % or less would be called UNKNOWN)"
        if results["verdict"] == "UNKNOWN" and (passing := passing_of(report.get("validation"))):
            shares = (passing.family, "without enrolled siblings"), (passing.sibling, "with siblings enrolled")
            found = " and ".join(f"{100 * (1 - share):.0f} % {who}" for share, who in shares if share is not None)
            fits += f"; of models that nobody enrolled it finds {found} (measured at {count(passing.traces, 'trace')})"
    stop = _stop_words(results["stop"], results["traces"], report["method"]["condition"] != "clean")
    answer = results["stop"] or {}
    if "withheld" in answer:
        stop = "–", stop_withheld(results)
    # A rule that looks after every trace needs more than an answer that rests on all of them.
    at_the_end = results["verdict"] in ("SUPPORTS", "AGAINST") and not answer.get("enough_after", 1)
    without_stop = (
        at_the_end
        or results["reason"] == WEAK
        or _needs_all(results)
        or (supports_family(results) and "withheld" in answer)
    )
    if not results["stated"]:
        stop = ratio
    elif "background" in report:
        stop = "–", "not tested: the stopping rule was fitted without added traffic"
    return [
        ("Kind of traffic", TRAFFIC_HELP, kind, like),
        (f"Likelihood ratio{named}", RATIO_HELP, *ratio),
        *chances,
        ("Unknown source", UNKNOWN_HELP, none, fits),
        *([] if without_stop else [("Enough after", STOP_HELP, *stop)]),
        ("Traces", "", f"{results['traces']:,}", _excluded_words(report)),
    ]


def _facts_on_paper(report: Report) -> list[tuple[str, str, str, str]]:
    """Numbers of the answer, without those that stand elsewhere on paper and a stop that is not stated."""
    elsewhere = checks_on_paper(report)
    return [
        fact
        for fact in _facts(report)
        if fact[3] != ALL_READ and fact[::2] != ("Enough after", "–") and fact[0] not in elsewhere
    ]


def checks_on_paper(report: Report) -> dict[str, str]:
    """Checks of a stated answer, which stand on the second sheet; of another answer they may be the reason."""
    if not report["results"]["stated"]:
        return {}
    return {name: f"{value}: {note}" for name, _, value, note in _facts(report) if name in CHECKS and value != "–"}


def _between(report: Report) -> str:
    """Where nine of ten resamples of the traces put the ratio; empty for a single trace."""
    interval = report["results"]["interval"]
    if not interval:
        return ""
    if interval["low"] == interval["high"]:
        return f"; {same_limit(report)}"
    return f", {number(interval['low'], 2)} to {number(interval['high'], 2)} in 90 % of resamples"


def _off(report: Report) -> str:
    """How far probabilities were off in tests of such a case, after what they mean."""
    rows = (report.get("validation") or {}).get("rows", ()) if validated_for(report) else ()
    off = next((row for row in rows if row["metric"] == "ece_after" and row["sentence"]), None)
    points = off and count(max(round(100 * off["value"]), 1), "point")
    return f" In tests of such cases it is off by {points} on average, over all of them." if points else ""


def _stop_words(stop: Mapping[str, Any] | None, n: int, cut: bool = False) -> tuple[str, str]:
    if stop is None and cut:
        return "–", "not tested: the stopping rule was fitted for whole responses, and these are shorter, or were cut"
    if stop is None:
        return "–", "not tested: the ecosystem has no stopping rule"
    level = stop.get("error_rate")
    rate = "" if level is None else f"at an error rate of {100 * level:g} %"
    if others := [answer for answer in stop.get("levels") or () if answer["error_rate"] != level]:
        rates = (f"{_after(answer)} at {100 * answer['error_rate']:g} %" for answer in others)
        rate += f" ({', '.join(rates)})"
        if {answer.get("enough_after") for answer in others} == {stop.get("enough_after")}:
            *some, last = sorted(100 * answer["error_rate"] for answer in (stop, *others))
            rate = f"at an error rate of {', '.join(f'{one:g}' for one in some)} or {last:g} % alike"
    only = ""
    if looked := stop.get("looked"):
        n, only = looked, f"; the rule looks at the first {looked:,} only"
    if not stop.get("enough_after"):
        return _after(stop), f"{n:,} {'trace was' if n == 1 else 'traces were'} not enough {rate}".strip() + only
    what = stop.get("decided") or f"for {stop.get('named')}"
    first = "" if level is None else f": the first trace so clear that at most {100 * level:g} % of tests erred"
    return _after(stop), (f"{what}, {rate}" if rate else what) + first + only


def _needs_all(results: Mapping[str, Any]) -> bool:
    """Whether a stop at any error rate is after the last trace, and so tells nothing."""
    stop = results["stop"] or {}
    return {answer.get("enough_after") for answer in (stop, *(stop.get("levels") or ()))} == {results["traces"]}


def _after(answer: Report) -> str:
    return f"{answer['enough_after']:,}" if answer.get("enough_after") else "not yet"


def _excluded_words(report: Report) -> str:
    counts = {f"bad {report['input']['unit']}": report["input"]["problems"], "duplicate": report["exclusions"]}
    parts = [count(len(rows), noun) for noun, rows in counts.items() if rows]
    if not report["results"]["complete"]:
        parts.append("what came after the stop was")
        return f"{', '.join(parts)} not read"
    return f"{' and '.join(parts)} left out" if parts else ALL_READ


def exports(report: Report, measured: bool) -> Component:
    """Report, data and table to take along; measured : whether the atlas has figures of who judged the case."""
    buttons = [
        html.Button(
            [shell.icon("download"), word], id={"type": "attr-export", "kind": kind}, className="button", title=meaning
        )
        for kind, word, meaning in (
            ("html", "Report (HTML)", "One self-contained page; prints to PDF"),
            ("json", "Report (JSON)", "Everything that is needed to compute it again"),
            ("csv", "Traces (CSV)", "One row a trace"),
        )
    ]
    shown = "The report shows the text of the traces that were chosen for it."
    k = max((k for k in BUDGETS if k <= report["results"]["traces"]), default=BUDGETS[0])
    choices = {"figures": ",".join(IN_BRIEF if measured else IN_BRIEF[:1]), "k": str(k)}
    way: dict[str, Any] = {"data-page": "/brief", "data-choices": json.dumps(choices)}
    brief = html.A("Put it into a brief", href=f"/brief?{urlencode(choices)}", id="attr-brief", **way)
    text = html.Span(shown if report["text_kept"] else "No text of any trace is in these files.", className="soft")
    return html.Div([*buttons, brief, text, dcc.Download(id="attr-download")], id="attr-exports", className="exports")


def verify(report: Report) -> Component:
    """How somebody else checks the report: hash, chain of steps, command."""
    name = str(report["input"]["name"])
    plain = not name.startswith("-") and all(c.isalnum() or c in "._-" for c in name)
    command = f"python -m jobs verify {file_name(report)}.json --traces {name if plain else 'TRACES'}"
    steps = []
    for step in report["steps"]:
        short = html.Code(step["sha256"][:16] + "…", title=step["sha256"])
        steps.append(html.Tr([number_cell(f"{step['number']}"), *map(html.Td, (step["step"], step["at"][:19], short))]))
    sentence = (
        "The JSON report and the same file of traces give the same numbers again; this command says equal or not, and "
        "so does 'Check a report' at the top of this page. Keep the report's hash elsewhere to show later that nothing "
        "was changed."
    )
    copied = [
        html.Code(command, className="command", id="attr-verify", dir="ltr"),
        html.Button("Copy", id="attr-copy", className="button", title="Copy the command"),
    ]
    summary = html.Summary("Steps of this attribution, each with the hash of the one before")
    table = shell.small_table(("No.", "step", "at (UTC)", "sha256"), steps, "Steps of this attribution")
    return html.Section(
        [
            html.H2("Can somebody else check it?", id="title-verify"),
            html.P(sentence, className="sentence"),
            html.Div(copied, className="copyable"),
            html.P(
                [f"Report's hash, {HASHED}: ", html.Code(f"sha256 {report['sha256']}", className="long")],
                className="sentence",
            ),
            html.Details([summary, table], className="folded"),
            html.H3("Limits"),
            html.Ul([html.Li(limit) for limit in report["limits"]], className="limits"),
        ],
        className="figure",
        id="figure-verify",
        **shell.aria(labelledby="title-verify"),
    )


def file_name(report: Report) -> str:
    """Name of an exported file without its ending: the beginning of the report's hash makes it one of a kind."""
    return f"attribution-{report['sha256'][:8]}"


def validated(report: Report) -> Component | None:
    """What the validation says about such a case: as many traces, as long; None of too few for an answer."""
    found = report.get("validation")
    here = validated_for(report)
    if too_few(report):
        return None
    title = html.H2(
        f"How well does this do {'in such a case' if here or not found else OTHER_CASE}?", id="title-validated"
    )
    if found:
        whole = ["The accuracy in step 2 is that of whole responses."] * (found["condition"] != "clean")
        grouping = [found["grouping"]] if "grouping" in found else []
        tables = _validation_tables(found)
        said = filter(None, [validated_case(report), *grouping, *whole, rates_note(found)])
        body: list[Component] = [html.P(" ".join(said), className="sentence")]
        if measured := [*rates_of(report), *stranger_findings(found)]:
            body.append(html.Ul([html.Li(sentence) for sentence in measured], className="measured"))
        both = {"false_unknown", "false_rejection"} <= {row["metric"] for row in found["rows"] if row["sentence"]}
        rates = [*([html.P(REFUSED, className="sentence")] if both else []), html.Div(tables, className="validation")]
        if here:
            words = f"All error rates, in {count(len(tables), 'table')}"
            body.append(html.Details([html.Summary(words), *rates], className="folded"))
        else:
            why = f"{count(len(tables), 'table')} of error rates that do not hold here: {report['results']['reason']}"
            body = [html.Details([html.Summary(why), *body, *rates], className="folded")]
    else:
        method = report["method"]
        limits = [limit for limit in report["limits"] if limit.startswith("Not validated: ")]
        words = UNVALIDATED if report["results"]["calibrated"] else UNCALIBRATED
        body = [html.P(" ".join([words, *limits]), className="sentence")]
        if (roster := method["facts"].get("roster") or "").endswith("-way"):
            reads = f"--proxy {method['proxy']} --view {method['view']} --roster {roster}"
            command = html.Code(f"python -m jobs evaluate --stage audit {reads}")
            body.append(html.P(["Measure it with ", command, ", then enrol again."], className="hint"))
    return html.Section(
        [title, *body], className="figure", id="figure-validated", **shell.aria(labelledby="title-validated")
    )


def _validation_tables(found: Report) -> list[Component]:
    """Tables of a validation that hold something: calibration, verdicts, traffic, unknown sources, stops, windows."""

    def by_metric(row: Report) -> Any:
        return row["part"], row["metric"]

    def by_scenario(row: Report) -> Any:
        return row["part"], row["scenario"], row["metric"]

    claims, names = (
        {word: [("calibration", f"verdict_{what}_{answer}") for answer in answers] for word, what in lines.items()}
        for lines, answers in ((CLAIMS, ("supported", "refuted")), (NAMES, ("right", "wrong")))
    )
    errors = ("false_acceptance", "false_rejection")
    nobody = {word: [(*key, error) for error in errors] for word, key in NOBODY.items()}
    levels = sorted({row["level"] for row in found["rows"] if row["part"] == "stop" and row["sentence"]})
    wrong = ("stop_error", "claim_false_support", "claim_false_against")
    stops = {f"Stated error {100 * level:g}\u00a0%": [("stop", level, error) for error in wrong] for level in levels}
    windows = {word: [("drift", scenario)] for word, scenario in WINDOWS.items()}
    kinds = dict.fromkeys(row["scenario"] for row in found["rows"] if row["part"] == "transfer" and row["sentence"])
    said = ("accuracy", "flagged", "false_unknown", "wrong")
    traffic = {SCENARIOS[kind][2].capitalize(): [("transfer", kind, metric) for metric in said] for kind in kinds}
    return [
        *_calibration_table(found),
        *_shares(found, f"Verdicts about a claim{ALONE}", ["SUPPORTS", "AGAINST"], claims, by_metric),
        *_shares(found, f"Verdicts without a claim{ALONE}", ["rightly", "wrongly"], names, by_metric),
        *_shares(
            found, "On the validated kind of traffic, and on another",
            ["source named", "called another kind", "wrongly UNKNOWN", "wrong"], traffic, by_scenario,
        ),
        *_shares(
            found, "Traces of a source that nobody enrolled", ["pass as enrolled", "enrolled refused"], nobody,
            by_scenario,
        ),
        # Where a rule never decides, the row says so in place of its error rate.
        *_shares(
            found, "Sessions that stop as soon as the rule allows",
            ["wrong source named", "nearest other supported", "true claim refuted"], stops,
            lambda row: (row["part"], row["level"], row.get("of", row["metric"])),
        ),
        *_shares(
            found, "Two windows of different prompts", ["called different"], windows,
            lambda row: (row["part"], row["scenario"]),
        ),
    ]  # fmt: skip


def _shares(
    found: Report, caption: str, heads: Sequence[str], lines: Mapping[str, Sequence[Any]], key: Callable[[Report], Any]
) -> list[Component]:
    """Shares in per cent, with how many groups are behind each; nothing where nothing was measured.

    lines : words of a line to the keys of the rows in its cells.
    """
    rows = {key(row): row for row in found["rows"] if row["sentence"]}
    body = {word: [rows.get(name) for name in names] for word, names in lines.items()}
    known = [row for cells in body.values() for row in cells if row]
    if not known:
        return []
    sizes = sorted({row["k"] for row in known})
    about = f"{caption}, {' and '.join(f'{k:,}' for k in sizes)} trace{'s' * (sizes != [1])} each"
    if found["condition"] != "clean" and all(row["condition"] == "clean" for row in known):
        about += " (measured on whole responses)"
    shown = [html.Tr([html.Th(word, scope="row"), *map(_share, cells)]) for word, cells in body.items() if any(cells)]
    return [shell.small_table(("", *heads), shown, kind="small calibrated", caption=about)]


def _share(row: Report | None) -> Component:
    if row is None:
        return number_cell("–")
    if row["metric"] == "undecided":
        return number_cell("never", title=row["sentence"])
    return number_cell(f"{100 * row['value']:.1f} %", title=f"{row['sentence']} n = {row['n']:,}")


def _calibration_table(found: Report) -> list[Component]:
    """Error of probabilities and cost of ratios, before calibration and after it."""
    costs = {row["metric"]: row["value"] for row in found["rows"] if row["part"] == "calibration"}
    numbers = {**costs, **found}
    body: list[Component] = []
    floor = f"; {rate_text(found['ece_floor'])} arises by chance" if "ece_floor" in found else ""
    for word, (before, after, meaning) in CALIBRATION.items():
        if (before in found and after in found) if before else (body and after in costs):
            means = html.Span(meaning + (floor if after == "ece" else ""), className="means")
            first = number_cell(rate_text(numbers[before]) if before else "–")
            body.append(html.Tr([html.Th([word, means], scope="row"), first, number_cell(rate_text(numbers[after]))]))
    caption = "Calibration on held-out prompts"
    return [shell.small_table(("", "before", "after"), body, kind="small calibrated", caption=caption)] if body else []
