"""The report as one self-contained page: no script, nothing from outside, prints well, every text escaped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, StrictUndefined

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
    """The page of a report.

    report : from :func:`backend.attribution.report.build_report`.
    Returns HTML of one file.
    """
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"number": _number, "share": _share, "heat": _heat}
    return environment.from_string(_TEMPLATE).render(
        report=report,
        results=report["results"],
        rows=ROWS,
        candidates=CANDIDATES,
        facts=FACTS,
        landed=landing_sentence(report["results"]),
        subject_prior=dict(zip(report["reference"]["sources"], report["reference"]["prior"], strict=True))[
            report["results"]["subject"]
        ],
        traffic=TRAFFIC,
        chart=evidence_chart(report["results"]["running"], report["results"]["spread"]["points"]),
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


_TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ report.case }}: {{ results.verdict }}</title>
<style>
:root { color-scheme: light; }
body { font: 15px/1.5 Inter, "IBM Plex Sans", system-ui, sans-serif; color: #1A2129; background: #FBFBF9;
  max-width: 60rem; margin: 2rem auto; padding: 0 1.5rem; font-variant-numeric: tabular-nums; }
h1 { font-size: 24px; margin: 0 0 .5rem; } h2 { font-size: 18px; margin: 2rem 0 .5rem; }
p, li { max-width: 46rem; } .small { font-size: 13px; color: #55606C; }
code, .mono { font: 12px/1.5 "IBM Plex Mono", ui-monospace, monospace; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-size: 13px; margin: .5rem 0; }
th, td { text-align: left; padding: 3px 8px 3px 0; border-bottom: 1px solid #DFE3E8; vertical-align: top; }
td.n, th.n { text-align: right; } .verdict { border-left: 6px solid; padding: .25rem 1rem; margin: 1rem 0; }
.verdict strong { font-size: 18px; display: block; }
.SUPPORTS { border-color: #2A8B54; } .AGAINST { border-color: #B24242; }
.UNKNOWN { border-color: #7A5BB5; } .INCONCLUSIVE { border-color: #7B8691; }
svg { max-width: 100%; height: auto; } svg text { font-size: 12px; fill: #55606C; }
.heat { white-space: pre-wrap; overflow-wrap: anywhere; border: 1px solid #DFE3E8; padding: .75rem; }
@media print { body { background: #fff; margin: 0; max-width: none; font-size: 11pt; }
  h2 { break-after: avoid; } tr, figure, .verdict { break-inside: avoid; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
</style>
</head>
<body>
<h1>{{ report.case }}</h1>
<p>{{ report.question }}</p>
<div class="verdict {{ results.verdict }}"><strong>{{ results.verdict }}</strong>{{ results.sentence }}</div>
<p class="small">{{ "{:,}".format(results.traces) }} traces{% if not results.complete %}, stopped before the end{%
endif %},
{{ report.created }}. {% if not results.stated %}Ratios and probabilities are not stated, because {{
"no enrolled source fits" if results.verdict == "UNKNOWN" else "they were not validated for such traces" }}.{%
else %}Probabilities and ratios are {{ "calibrated" if results.calibrated else "not calibrated" }}.{% endif %}</p>
<p><b>Kind of traffic</b>: {{ traffic[results.traffic.kind] }}{% if results.traffic.p is not none %} (p = {{
results.traffic.p | number(3) }}, {{ results.traffic.prompts }} distinct prompts){% endif %}.</p>
<p><b>What to do next</b></p>
<ul>{% for step in results.next_steps %}<li>{{ step }}</li>{% endfor %}</ul>

<h2>What is weighed against what</h2>
<ul>{% for proposition in report.propositions %}<li><b>{{ proposition.name }}</b>: {{ proposition.text }}</li>{%
endfor %}</ul>
<p>Reference population: the {{ report.reference.sources | length }} sources of the enrolment
<code>{{ report.reference.enrolment }}</code>, in {{ report.reference.families | unique | list | length }} families.
Prior: {{ report.reference.prior_statement }} Prior of {{ results.subject }}: {{ subject_prior | share }}.</p>

<h2>Candidates</h2>
<table><thead><tr><th>Source</th><th>Family</th><th class="n">Probability</th>
<th class="n">log10 ratio, {{ results.subject }} against it</th></tr></thead><tbody>
{% for row in results.candidates[:candidates] %}
<tr><td>{{ row.source }}{{ " (claimed)" if row.source == results.claimed else "" }}</td><td>{{ row.family }}</td>
<td class="n">{{ row.probability | share }}</td><td class="n">{{ row.log10_ratio | number if results.stated else
"not stated" }}</td></tr>
{% endfor %}</tbody></table>
{% if results.candidates | length > candidates %}<p class="small">{{ results.candidates | length - candidates }} less
probable sources are in the JSON file.</p>{% endif %}
{% if results.stated %}
<p>log10 likelihood ratio of {{ "the family of " if results.level == "family" else "" }}{{ results.subject }} against
{{ "the other families" if results.level == "family" else "another enrolled source" }}:
<b>{{ results.log10_ratio_others | number }}</b> ({{ results.in_words }}){% if results.interval %}; {{
results.interval.low | number }} to {{ results.interval.high | number }} in 90 % of {{
"{:,}".format(results.interval.draws
) }} resamples of the traces, in which its probability lies between {{ results.interval.probability_low | share }} and
{{
results.interval.probability_high | share }}{% endif %}. The rule says: {{ results.reason }}.
{% if results.siblings %}The members of the leading family that are not told apart: {{ results.siblings | join(", ")
}}.{% endif %}
{{ " " }}Leading family: {{ results.families[0].family }} ({{ results.families[0].probability | share }}).</p>
{% else %}<p>The rule says: {{ results.reason }}.</p>{% endif %}
{% if results.unknown_p is not none %}<p>Unknown-source test: p = {{ results.unknown_p | number(3) }}, {{
results.unknown_words }}.</p>{% endif %}
{% if not results.stop %}<p>Sequential stop: {{ "not asked, because it was fitted for whole responses and these were
cut at one length"
if report.method.condition != "clean" else "the enrolment has no rule for it" }}.</p>{% endif %}
{% if results.stop and results.stop.get("withheld") %}<p>Sequential stop: not stated, {{ results.stop.withheld }}.</p>
{% elif results.stop %}<p>Sequential stop{% if "error_rate" in results.stop %} at an error rate of {{
results.stop.error_rate }}{% endif %}: {% if results.stop.enough_after %}enough after {{ results.stop.enough_after }}
traces{% set found = results.stop.get("decided") or results.stop.get("named") %}{{ ", " ~ found if found }}{% else
%}not reached{% endif %}.{% if results.stop.get("looked") %} It looks at the first {{ results.stop.looked }} traces
only: no more were validated for it.{% endif %}</p>{% endif %}
{% if landed %}<p>{{ landed }}</p>{% endif %}
{% if results.flags %}<ul>{% for flag in results.flags %}<li>{{ flag }}</li>{% endfor %}</ul>{% endif %}
{% if results.drift %}<p>Drift:{% for key, value in results.drift.items() %} {{ key }} = {{ value }};{% endfor
%}</p>{% endif %}

<h2>How does the evidence grow with the traces?</h2>
<figure style="margin:0"><svg viewBox="0 0 {{ chart.width }} {{ chart.height }}" role="img"
aria-label="log10 likelihood ratio against the number of traces">
{% for y, label in chart.marks %}<line x1="{{ chart.left }}" x2="{{ chart.width - 8 }}" y1="{{ y }}" y2="{{ y }}"
stroke="#DFE3E8"/><text x="{{ chart.left - 6 }}" y="{{ y + 4 }}" text-anchor="end">{{ label }}</text>{% endfor %}
{% for y in chart.rules if results.stated %}
<line x1="{{ chart.left }}" x2="{{ chart.width - 8 }}" y1="{{ y }}" y2="{{ y }}"
stroke="#7B8691" stroke-dasharray="4 4"/>{% endfor %}
<polygon points="{{ chart.band }}" fill="#0F7EA3" fill-opacity="0.16"/>
<polyline points="{{ chart.line }}" fill="none" stroke="#0F7EA3" stroke-width="2"/>
{% for x, label in chart.ticks %}<text x="{{ x }}" y="{{ chart.height - 8 }}" text-anchor="middle">{{ label
}}</text>{% endfor %}
</svg><figcaption class="small">log10 likelihood ratio of {{ results.subject }} against the other enrolled sources, in
the order of arrival (line), and over {{ results.spread.orders }} random orders, 5 % to 95 % (band);
{{ "dashed: a hundred to one, which the rule asks for" if results.stated else "it was not validated for such traces"
}}. {{ "Calibrated as the answer is" if
results.calibrated else "Plain sums" }}.</figcaption></figure>

<h2>What if one trace were left out?</h2>
<p>{% if results.stated %}The log10 ratio against the best other source (plain sum) then lies between
{{ results.leave_one_out.lowest | number }} and
{{ results.leave_one_out.highest | number }}; the{% else %}The{% endif %} leading source changes for
{{ results.leave_one_out.leader_changes }} of {{ results.traces }} traces.</p>

<h2>Would another reader agree?</h2>
{% if results.readers | length > 1 %}<table><thead><tr><th>Enrolment and reader</th><th>Answer</th><th>Leading
source</th><th class="n">log10 ratio</th><th class="n">90 % of resamples</th>
<th class="n">unknown p</th></tr></thead><tbody>
{% for row in results.readers %}<tr><td>{{ row.enrolment }}<br><span class="small">{{ row.reader }}, {{ row.sources
}} sources</span></td><td>{{ row.verdict }}</td><td>{{ row.leader }}</td>
<td class="n">{{ "not stated" if row.probability is none else row.log10_ratio_others | number
}}</td><td class="n">{{ row.low | number }} to {{ row.high | number }}</td><td class="n">{{ row.unknown_p | number(3)
}}</td></tr>
{% endfor %}</tbody></table><p class="small">The answer of this report is that of the first one.</p>
{% else %}<p>One reader was asked: {{ report.method.reader }}, {{ results.traces }} traces. <code>--also
ENROLMENT</code>
shows what others find.</p>{% endif %}

{% for map in report.heat_maps %}
<h2>Token evidence of trace {{ map.number }}</h2>
<p class="small">Green speaks for {{ map.source }}, red for {{ map.rival }}. The tokens add up to
{{ map.log_odds | number(4) }} nats{% if map.stored != map.log_odds %} ({{ map.stored | number(4) }} after the rounding
of the stored fingerprint){% endif %}.</p>
<p class="small">Prompt: {{ map.prompt }}</p>
{% set largest = map.pieces | map(attribute="value") | map("abs") | max %}
<div class="heat">{% for piece in map.pieces %}<span title="{{ piece.value | number(4) }}"
style="{{ piece.value | heat(largest) }}">{{ piece.text }}</span>{% endfor %}<span class="small">{{ map.rest
}}</span></div>
{% endfor %}

<h2>Traces</h2>
<table><thead><tr><th class="n">No.</th><th class="n">{{ report.input.unit }}</th><th>sha256</th><th>Time</th>
<th class="n">Characters of prompt</th><th class="n">of response</th><th class="n">Tokens</th><th>Nearest</th>
<th class="n">adds to log10
ratio</th></tr></thead><tbody>
{% for trace in report.traces[:rows] %}
<tr><td class="n">{{ trace.number }}</td><td class="n">{{ trace.place }}</td><td class="mono">{{ trace.sha256 }}</td>
<td>{{ trace.time or "" }}</td><td class="n">{{ trace.prompt_characters }}</td>
<td class="n">{{ trace.response_characters }}</td><td class="n">{{ trace.tokens }}</td>
<td>{{ trace.nearest }}</td><td class="n">{{ trace.log10_ratio | number }}</td></tr>
{% endfor %}</tbody></table>
{% if report.traces | length > rows %}<p class="small">The first {{ rows }} are listed; the JSON and CSV files hold
all.</p>{% endif %}

<h2>What was left out</h2>
{% if report.exclusions or report.input.problems %}<table><thead><tr><th class="n">{{ report.input.unit }}</th>
<th>Column</th><th>Reason</th><th>sha256</th></tr></thead><tbody>
{% for problem in report.input.problems[:rows] %}<tr><td class="n">{{ problem.place }}</td><td>{{ problem.column or ""
}}</td>
<td>{{ problem.reason }}</td><td></td></tr>{% endfor %}
{% for exclusion in report.exclusions[:rows] %}<tr><td class="n">{{ exclusion.place }}</td><td></td>
<td>{{ exclusion.reason }}</td><td class="mono">{{ exclusion.sha256 }}</td></tr>{% endfor %}</tbody></table>{% if
[report.input.problems | length, report.exclusions | length] | max > rows %}<p class="small">The first {{ rows }} of a
kind are listed; the JSON file holds all.</p>{% endif %}{% else %}<p>Nothing.</p>{% endif %}
{% for note in report.input.notes %}<p class="small">{{ note }}</p>{% endfor %}

<h2>How well does this do in such a case?</h2>
{% set held = report.validation %}
{% if held %}<p>Nearest validated case: {% if held.traces is not none %}{{ held.traces }} traces of {% endif %}{{
"whole responses" if held.condition == "clean" else "responses cut like " ~ held.condition
}}. All on prompts that were held out from what they test.</p>
{% if "ece" in held and "ece_before" in held and "cllr" in held and "cllr_before" in held %}
<table><thead><tr><th>On prompts held out</th><th class="n">before calibration</th><th class="n">after</th></tr></thead>
<tbody><tr><td>Calibration error (ECE){% if "ece_floor" in held %}; {{ held.ece_floor | number(3) }} arises by chance{%
endif %}</td><td class="n">{{ held.ece_before | number(3) }}</td><td class="n">{{ held.ece | number(3) }}</td></tr>
<tr><td>Cost of the likelihood ratios (Cllr, bits)</td><td class="n">{{ held.cllr_before | number(3) }}</td>
<td class="n">{{ held.cllr | number(3) }}</td></tr></tbody></table>{% endif %}
<table><thead><tr><th>What was measured</th><th class="n">±</th><th class="n">n</th></tr></thead><tbody>
{% for row in held.rows if row.sentence %}<tr><td>{{ row.sentence }}{% if row.condition != held.condition
%} (Measured on whole responses.){% endif %}</td><td class="n">{{ row.std | number(3) }}</td><td class="n">{{
"{:,}".format(row.n) }}</td></tr>
{% endfor %}</tbody></table>{% else %}<p>No validation is attached to this enrolment: {{ "probabilities and ratios are
calibrated on held-out prompts, but" if results.calibrated else "nothing is calibrated, and" }} how often its
verdicts, its
unknown-source test or its stop are wrong has not been measured.</p>{% endif %}

<h2>How to read the ratio</h2>
<table><tbody>{% for row in report.verbal_scale %}<tr><td>log10 ratio {% if row.log10_up_to is none %}beyond the last
{% else %}up to {{ row.log10_up_to | number(1) }}{% endif %}</td><td>{{ row.words }}</td></tr>{% endfor
%}</tbody></table>
<h2>Limits</h2>
<ul>{% for limit in report.limits %}<li>{{ limit }}</li>{% endfor %}</ul>

<h2>How this was made</h2>
<table><tbody>
<tr><td>File</td><td>{{ report.input.name }}, {{ "{:,}".format(report.input.size) }} bytes, {{ report.input.encoding }}
<span class="mono">{{ report.input.sha256 }}</span></td></tr>
<tr><td>Reader</td><td>{{ report.method.reader }}, {{ "text of the responses, traces placed at " if report.method.block
== "text" else "members of several kinds, " if report.method.block == "several" }}block {{
report.method["layers"] | join(", ") }}, {{ report.method.probes }}
probe(s), {{ report.method.engine }}</td></tr>
<tr><td>Enrolment: probes, calibration, unknown-source reference, names</td>
<td class="mono">{{ report.method.enrolment_sha256 }}</td></tr>
<tr><td>Proxy, view, read as</td><td>{{ report.method.proxy }}, {{ report.method.view }}, {{
"whole responses" if report.method.condition == "clean" else "responses cut like " ~ report.method.condition
}}</td></tr>
{% for key, value in report.method.facts.items() %}<tr><td>{{ facts.get(key, key) }}</td>
<td class="mono">{{ value }}</td></tr>{%
endfor %}
<tr><td>Code</td><td class="mono">{{ report.method.code_version }}</td></tr>
<tr><td>Orders, seed</td><td>{{ results.spread.orders }}, {{ results.spread.seed }}</td></tr>
{% if report.session %}<tr><td>Answered before in the same session</td><td>{{ report.session.earlier }}{%
if report.session.last_step %}, the last of them ended with step
<span class="mono">{{ report.session.last_step }}</span>{% endif %}</td></tr>{% endif %}
<tr><td>Command</td><td class="mono">{{ report.command }}</td></tr>
<tr><td>Check it</td><td class="mono">python -m jobs verify REPORT.json --traces TRACES</td></tr>
<tr><td>Report</td><td class="mono">{{ report.sha256 }}</td></tr>
</tbody></table>
<h2>Steps</h2>
<table><tbody>{% for step in report.steps %}<tr><td class="n">{{ step.number }}</td><td>{{ step.step }}</td>
<td>{{ step.at }}</td><td class="mono">{{ step.sha256 }}</td></tr>{% endfor %}</tbody></table>
<p class="small">{% if report.text_kept %}Text of the traces with a heat map is part of this report, because that was
asked for.
{% else %}No text of any trace is kept in this report.{% endif %}</p>
</body>
</html>
"""
