"""The answer of one attribution: verdict, numbers behind it, what to take along, how somebody else checks it."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from dash import dcc, html
from dash.development.base_component import Component

from atlas import shell
from atlas.data import QueryCache
from atlas.figures.evidence import number
from atlas.figures.plots import rate_text
from atlas.pages.attribute import sections
from atlas.pages.attribute.frames import Report

SIGNS = {"SUPPORTS": "✓", "AGAINST": "✕", "UNKNOWN": "?", "INCONCLUSIVE": "–"}
ON_A_CLAIM = {
    "SUPPORTS": "Yes: {who}",
    "AGAINST": "No: not {who}",
    "UNKNOWN": "No: not {who}, nor any other enrolled source",
    "INCONCLUSIVE": "{who}: we cannot say",
}
WITHOUT_ONE = {
    "SUPPORTS": "Best match: {who}",
    "UNKNOWN": "No enrolled source fits; the nearest is {who}",
    "INCONCLUSIVE": "Nearest is {who}, but we cannot say",
}
TRAFFIC_WORDS = {
    "like": "like the enrolled prompts",
    "other topic": "other topic than enrolled",
    "other language": "other language than enrolled",
    "no prompts": "no prompts given",
    "unchecked": "cannot be checked with this ecosystem",
}
TRAFFIC_HELP = (
    "Whether the prompts are of the kind that was enrolled: how often groups of enrolled prompts are as new as these. "
    "At .05 or below they are of another kind, and nothing that was validated holds for them."
)
RATIO_HELP = (
    "How many times more probable these traces are if the source made them than if another enrolled one did, as a "
    "power of ten: 2 is a hundred to one, −2 one to a hundred. A prior says how the others weigh among themselves."
)
PROBABILITY_HELP = (
    "Posterior probability under the stated prior, calibrated for this number of traces on prompts that the probe had "
    "never seen. It knows the enrolled sources only."
)
UNKNOWN_HELP = (
    "How often traces of an enrolled source fit the enrolled sources as badly as these do. At .05 or below the answer "
    "is that none of them made the traces."
)
STOP_HELP = (
    "The number of traces, in the order of arrival, after which this answer could have been given at the stated risk "
    "of stopping too early. It was measured with a look after every trace, so that checking later does not change it."
)
NOT_CALIBRATED = "This ecosystem has no calibration, so ratios are plain sums and no claim is decided."
NOT_VALIDATED = "How often such answers of this ecosystem are wrong has not been measured; more below."


def family_answer(report: Report) -> str:
    """The answer a family at a time, in a sentence."""
    results = report["results"]
    families = results["families"]
    if not families or not results["stated"]:
        return ""
    first = f"{families[0]['family']} {_percent(families[0]['probability'])}"
    if results["siblings"]:
        return (
            f"The family {families[0]['family']} is clear ({_percent(families[0]['probability'])}); its members "
            f"{', '.join(results['siblings'])} are not told apart."
        )
    if len(families) == len(results["candidates"]):
        return "Every enrolled source is a family of its own."
    others = ", ".join(f"{row['family']} {_percent(row['probability'])}" for row in families[1:3])
    return f"By family: {first}{', then ' + others if others else ''}."


def _percent(share: float) -> str:
    return "less than .1 %" if share < 0.001 else "more than 99.9 %" if share > 0.999 else f"{100 * share:.1f} %"


def headline(report: Report) -> str:
    """The answer in a few words: yes, no or cannot say about the claim, and without one the best match."""
    results = report["results"]
    family = next(row["family"] for row in results["candidates"] if row["source"] == results["subject"])
    who = f"the family {family}" if results["level"] == "family" else results["subject"]
    if results["claimed"] and results["level"] == "family" and results["verdict"] == "SUPPORTS":
        return f"Yes for {who}; which member, we cannot say"
    return (ON_A_CLAIM if results["claimed"] else WITHOUT_ONE)[results["verdict"]].format(who=who)


def judge(report: Report, cache: QueryCache | None, header: str | None) -> list[Any]:
    """Who judged, next to the reader of the header."""
    method, reference = report["method"], report["reference"]
    name = method["facts"].get("roster") or reference["enrolment"]
    return sections.judged_by(cache, name, len(reference["sources"]), SimpleNamespace(**method), header)


def verdict(report: Report, cache: QueryCache | None = None, header: str | None = None) -> Component:
    """The answer: sign, word, sentence, what to do next, who judged, and the numbers behind it."""
    results = report["results"]
    word = results["verdict"]
    partial = "" if results["complete"] else " Reading was stopped before the end; this is what had been read."
    flags = [("Shift. ", flag) for flag in results["flags"] or ()]
    if results["stated"] and results["calibrated"] and not report.get("validation"):
        flags.append(("Not validated. ", NOT_VALIDATED))
    if not results["calibrated"]:
        flags.append(("Not calibrated. ", NOT_CALIBRATED))
    answer = html.Span(headline(report), className="verdict-means", dir="auto")
    steps = html.Ul([html.Li(step) for step in results["next_steps"]])
    return sections.answer_box(
        word,
        [html.Span(report["case"], dir="auto"), " · ", html.Span(report["question"], dir="auto")],
        sections.answer_word("verdict-word", SIGNS[word], word, answer),
        html.P(results["sentence"] + partial, className="verdict-sentence long", dir="auto"),
        html.Div([html.Strong("What to do next"), steps], className="verdict-next"),
        html.P(judge(report, cache, header), className="hint verdict-judge"),
        html.Dl(_facts(report), className="verdict-facts"),
        *[html.P([html.Strong(kind), flag], className="flag") for kind, flag in flags],
        **shell.aria(labelledby="verdict-word", live="polite"),
    )


def _facts(report: Report) -> list[Component]:
    results = report["results"]
    subject = next(row for row in results["candidates"] if row["source"] == results["subject"])
    who = "claimed source" if results["claimed"] else "best match"
    level = "its family against all others" if results["level"] == "family" else f"{who} against all others"
    stop = results["stop"]
    nothing = ("–", "not stated: not validated for such traces")
    if results["verdict"] == "UNKNOWN":
        nothing = ("–", "not stated: no enrolled source fits")
    ratio, share = nothing, nothing
    if results["stated"]:
        words = f"{level}; {results['in_words']}{_between(results, 'low', 'high')}"
        ratio = (number(results["log10_ratio_others"], 2), words)
        share = (rate_text(subject["probability"]), f"{who}{_between(results, 'probability_low', 'probability_high')}")
    traffic, unknown = results["traffic"], results["unknown_p"]
    kind = "–" if traffic["p"] is None else f"p = {rate_text(traffic['p'])}"
    none = "–" if unknown is None else f"p = {rate_text(unknown)}"
    facts = [
        ("Kind of traffic", TRAFFIC_HELP, kind, TRAFFIC_WORDS[traffic["kind"]]),
        ("log10 ratio", RATIO_HELP, *ratio),
        ("Probability", PROBABILITY_HELP, *share),
        ("Unknown source", UNKNOWN_HELP, none, results["unknown_words"]),
        ("Enough after", STOP_HELP, *_stop_words(stop, results["traces"], report["method"]["condition"] != "clean")),
        ("Traces", "", f"{results['traces']:,}", _excluded_words(report)),
    ]
    return [sections.fact(*entry) for entry in facts]


def _between(results: Mapping[str, Any], low: str, high: str) -> str:
    """Where nine of ten resamples of the traces put a number; empty for a single trace."""
    interval = results["interval"]
    if not interval:
        return ""
    if interval[low] == interval[high]:
        return "; the same in 90 % of resamples: as far as the validation can bear"
    text = rate_text if low.startswith("probability") else lambda value: number(value, 2)
    return f"; {text(interval[low])} to {text(interval[high])} in 90 % of resamples of the traces"


def _stop_words(stop: Mapping[str, Any] | None, n: int, cut: bool = False) -> tuple[str, str]:
    if stop is None and cut:
        return "–", "not tested: the stopping rule was fitted for whole responses, and these were cut at one length"
    if stop is None:
        return "–", "not tested: the ecosystem has no stopping rule"
    if stop.get("withheld"):
        return "–", f"not stated: {stop['withheld']}"
    level = stop.get("error_rate")
    rate = "" if level is None else f"at an error rate of {100 * level:g} %"
    if others := [answer for answer in stop.get("levels") or () if answer["error_rate"] != level]:
        rate += f" ({', '.join(_other_stop(answer) for answer in others)})"
    only = ""
    if looked := stop.get("looked"):
        n, only = looked, f"; the rule looks at the first {looked:,} only"
    if not stop.get("enough_after"):
        return "not yet", f"{n:,} {'trace was' if n == 1 else 'traces were'} not enough {rate}".strip() + only
    what = stop.get("decided") or f"for {stop.get('named')}"
    return f"{stop['enough_after']:,}", (f"{what}, {rate}" if rate else what) + only


def _other_stop(answer: Mapping[str, Any]) -> str:
    after = f"{answer['enough_after']:,}" if answer["enough_after"] else "not yet"
    return f"{after} at {100 * answer['error_rate']:g} %"


def _excluded_words(report: Report) -> str:
    bad, again = len(report["input"]["problems"]), len(report["exclusions"])
    parts = [f"{bad:,} bad {report['input']['unit']}{'s' if bad != 1 else ''}"] if bad else []
    parts += [f"{again:,} duplicate{'s' if again != 1 else ''}"] if again else []
    if not report["results"]["complete"]:
        parts.append("what came after the stop was")
        return f"{', '.join(parts)} not read"
    return f"{' and '.join(parts)} left out" if parts else "nothing was left out"


def exports(report: Report) -> Component:
    """Report, data and table to take along, and the command that computes them again."""

    def button(kind: str, word: str, meaning: str) -> Component:
        identity = {"type": "attr-export", "kind": kind}
        return html.Button([shell.icon("download"), word], id=identity, className="button", title=meaning)

    shown = "The report shows the text of the traces that were chosen for it."
    children = [
        button("html", "Report (HTML)", "One self-contained page; prints to PDF"),
        button("json", "Report (JSON)", "Everything that is needed to compute it again"),
        button("csv", "Traces (CSV)", "One row a trace"),
        html.Span(shown if report["text_kept"] else "No text of any trace is in these files.", className="soft"),
        dcc.Download(id="attr-download"),
    ]
    return html.Div(children, className="exports")


def verify(report: Report) -> Component:
    """How somebody else checks the report: hash, chain of steps, command."""
    command = f"python -m jobs verify {file_name(report)}.json --traces {_quoted(str(report['input']['name']))}"
    steps = [
        html.Tr(
            [
                html.Td(f"{step['number']}", className="number"),
                html.Td(step["step"]),
                html.Td(step["at"][:19]),
                html.Td(html.Code(step["sha256"][:16] + "…", title=step["sha256"])),
            ]
        )
        for step in report["steps"]
    ]
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
            html.P(["Report ", html.Code(f"sha256 {report['sha256']}", className="long")], className="sentence"),
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


def _quoted(name: str) -> str:
    safe = "".join(c if c.isalnum() or c in "._-" else "?" for c in name)
    return safe if safe == name and not name.startswith("-") else "TRACES"
