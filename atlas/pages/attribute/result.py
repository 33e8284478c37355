"""The result of one attribution, from the answer to the detail: everything is read from its report."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import pandas as pd
from dash import html
from dash.development.base_component import Component

from atlas import shell, tables
from atlas.data import DOMAIN_NAMES, QueryCache
from atlas.figures import evidence as figures
from atlas.figures.evidence import number
from atlas.figures.plots import rate_text
from atlas.pages.attribute import frames, sections
from atlas.pages.attribute.frames import Report
from atlas.pages.attribute.validated import ratio_figure, ratio_figures, validated
from atlas.pages.attribute.verdict import PROBABILITY_HELP, RATIO_HELP, exports, family_answer, verdict, verify
from atlas.state import View
from atlas.theme import Mark, Theme
from backend.methods.registry import ENCODED, FUSED_LIVE, FUSED_TUNED, LINEAR, NETWORKS, TEXT_TUNED, reads_text
from backend.store import queries

QUESTIONS = {
    "evidence": "How does the evidence grow with the traces?",
    "candidates": "Which sources explain the traces?",
    "adds": "What does every trace add?",
    "without": "What if one trace were left out?",
    "readers": "What hangs on the reader?",
    "tokens": "Which words carry the evidence?",
    "lands": "Where do the traces land?",
    "left": "What was left out?",
}
BIASED = "Each trace holds what the calibration adds for its source."
NEAREST = 8  # sources that are listed where the traces land
FLAT_MAPS = ("tsne", "umap", "pca")  # projections in two dimensions, the preferred one first
STRONGEST = 5  # tokens that are named in words for each side
SHOWN = 10  # candidates, neighbours and families that are listed at once; the table holds all


def candidates(report: Report, marks: Mapping[str, Mark], view: View, known: Mapping[str, str]) -> Component:
    """The most probable sources with their probability as a bar; names lead to their pages where they have one."""
    results = report["results"]
    rows = results["candidates"][:SHOWN]
    subject = next(row for row in results["candidates"] if row["source"] == results["subject"])
    if subject not in rows:
        rows = [*rows[:-1], subject]
    body = []
    for row in rows:
        source, subject = row["source"], row["source"] == results["subject"]
        roles = {results["leader"]: "leading", results["claimed"]: "claimed"}
        role = [html.Span(roles[source], className="role")] if source in roles else []
        family = html.Span(row["family"], dir="auto", className="legend-name")
        share = {"width": f"{100 * (row['probability'] or 0):.2f}%"}
        bar = html.Span(className="share-fill", style=share)
        ratio = "–" if subject or not results["stated"] else number(row["log10_ratio"], 2)
        cells = [
            html.Th(html.Span([*sections.named(view, source, known), *role], className="marked"), scope="row"),
            html.Td(html.Span([shell.symbol(marks[row["family"]], view.theme), family], className="marked")),
            html.Td(html.Span(bar, className="share-track", **shell.aria(hidden="true")), className="share-cell"),
            html.Td(_share(row["probability"]), className="number"),
            html.Td(ratio, className="number"),
        ]
        body.append(html.Tr(cells, className="here" if subject else ""))
    heads = ["source", "family", "", "probability", "log10 ratio over it"]
    return shell.small_table(heads, body, "The most probable sources", "small wide candidates")


def _split(reader: str) -> str:
    """How the log-odds of a reader split over a response, as the beginning of a sentence."""
    method, _, rest = reader.partition("/")
    states = "the states of the proxies" if "+" in rest else "the proxy's states"
    words = "the weighed n-grams of the response"
    tuned = ", and beside that an embedding of the whole text, whose share of the "
    if method in ENCODED:
        return "What scores is an embedding of the whole text, so that its share of the "
    if reads_text(method):
        return f"What scores is linear in {words}{tuned if method == TEXT_TUNED else ', so the '}"
    if method in NETWORKS:
        also = f" and {words}" if method in ("fused", FUSED_TUNED) else ""
        plane = "its network is replaced by the plane through this response and an average one"
        return f"What scores reads {states}{also}; {plane}{tuned if method == FUSED_TUNED else ', and with that the '}"
    return f"What scores is linear in {f'{states} and {words}' if method in (FUSED_LIVE, LINEAR) else states}, so the "


def _share(value: float | None) -> str:
    if value is None:
        return "–"
    return "< .001" if value < 0.001 else "> .999" if value > 0.999 else rate_text(value)


def sensitivity(report: Report) -> str:
    """What the answer hangs on, in sentences."""
    results = report["results"]
    out, points = results["leave_one_out"], results["spread"]["points"]
    half = [point for point in points if point["traces"] <= max(1, results["traces"] // 2)][-1:]
    changes = int(out["leader_changes"])
    changed = f"changes for {changes:,} of {results['traces']:,} traces" if changes else "never changes"
    text = (
        f"Without any one trace the log10 ratio against the best other source (plain sum) lies between "
        f"{number(out['lowest'], 2)} and {number(out['highest'], 2)}; the leading source {changed}."
    )
    if half:
        text += (
            f" With a random half of the traces, {results['subject']} leads in {100 * half[0]['leads']:.0f} % of "
            f"{results['spread']['orders']} orders."
        )
    return text


def result(report: Report, cache: QueryCache, view: View) -> Component:
    """The whole result."""
    results = report["results"]
    live, made = sections.badge(report["method"]["enrolment_sha256"]), sections.made_of(report)
    marks, known = sections.marks_of(cache, report["reference"]["families"]), sections.known_sources(cache)
    n = int(results["traces"])
    many = f"n = {n:,} trace{'s' if n != 1 else ''}"
    calibrated = "calibrated" if results["calibrated"] else "not calibrated"
    lines = (
        " Dashed: a hundred to one, which the rule asks for."
        if results["stated"]
        else " Not validated for such traces, so that the rule does not apply."
    )
    shown = len(figures.weightiest(report["traces"]))
    rest = f" The {shown:,} that weigh most of {n:,}." if shown < n else ""
    bias = f" {BIASED}" if any(row["bias"] for row in results["candidates"]) else ""
    show = partial(sections.section, made=made, badge=live)
    grows: list[Component | str] = [
        shell.term("log10 ratio", RATIO_HELP),
        f" of {results['subject']} against the other enrolled sources, {calibrated}: the line adds the traces up in "
        "the order of arrival (hollow where another source leads), the band holds 90 % of "
        f"{results['spread']['orders']} random orders.{lines}{bias} {many}.",
    ]
    curve = sections.graph("evidence", figures.evidence_curve(report, theme=view.theme))
    explains: list[Component | str] = [
        shell.term("Probability", PROBABILITY_HELP),
        f" {calibrated if results['stated'] else 'not stated here'} for {many.removeprefix('n = ')}; prior: "
        f"{report['reference']['prior_statement']} {family_answer(report)} "
        f"n = {len(results['candidates'])} enrolled sources.",
    ]
    table = candidates(report, marks, view, known)
    adds = (
        f"For {results['subject']} against {results['leave_one_out']['rival']}, its strongest rival. Click a bar for "
        f"its words.{bias} {many}.{rest}"
    )
    bars = sections.graph("adds", figures.contributions(report, theme=view.theme))
    stems = sections.graph("without", figures.leave_one_out(report, theme=view.theme))
    two = [
        show("adds", QUESTIONS["adds"], adds, bars, height=320),
        show("without", QUESTIONS["without"], sensitivity(report), stems, height=320),
    ]
    return html.Div(
        [
            verdict(report, cache, view.reader),
            exports(report),
            show("evidence", QUESTIONS["evidence"], grows, curve, height=380, controls=_stops(report)),
            show("candidates", QUESTIONS["candidates"], explains, table, height=None, picture=False),
            html.Div(two, className="two"),
            readers(report, live, made),
            tokens(report, live, made, known),
            landing(report, cache, view),
            validated(report),
            ratio_figures(report, view.theme, live, made),
            excluded(report, live, made),
            verify(report),
        ]
    )


def readers(report: Report, live: Component, made: Component) -> Component | None:
    """The same traces read by further ecosystems; None where one reader alone was asked."""
    rows = frames.readers(report)
    if len(rows) < 2:
        return None
    body = []
    for at, row in enumerate(tables.rows(rows)):
        who = [shell.source_name(row.enrolment), html.Br(), html.Span(row.reader, className="soft")]
        ratio = "not stated" if pd.isna(row.probability) else f"{number(row.log10_ratio_others, 2)} "
        between = "" if pd.isna(row.low) else f"{number(row.low, 2)} to {number(row.high, 2)}"
        cells = [
            html.Th(who, scope="row"),
            html.Td(row.verdict),
            html.Td(shell.source_name(row.leader)),
            html.Td([ratio, html.Span(between, className="soft")], className="number"),
            html.Td("–" if pd.isna(row.unknown_p) else rate_text(row.unknown_p), className="number"),
        ]
        body.append(html.Tr(cells, className="" if at else "here"))
    heads = ["ecosystem and reader", "answer", "leading source", "log10 ratio, 90 % of resamples", "unknown p"]
    agree = rows["leader"].nunique() == 1
    alike = "All of them lead to the same source." if agree else "They do not lead to the same source."
    sentence = (
        f"The answer above is that of the first one; the others read the same {report['results']['traces']:,} traces "
        f"under even priors. {alike} n = {len(rows)} readers."
    )
    table = shell.small_table(heads, body, QUESTIONS["readers"])
    return sections.section(
        "readers", QUESTIONS["readers"], sentence, table, made=made, badge=live, height=None, picture=False
    )


def _stops(report: Report) -> list[Component] | None:
    """The choice of the stop's error rate, where the ecosystem has more than one."""
    stop = report["results"]["stop"] or {}
    levels = stop.get("levels") or []
    if len(levels) < 2 or stop.get("withheld"):
        return None
    offered = {f"{answer['error_rate']:g}": f"{100 * answer['error_rate']:g} %" for answer in levels}
    identity = {"type": "attr-stop", "figure": "evidence"}
    return [shell.segmented(identity, offered, f"{stop['error_rate']:g}", "Risk of stopping too early")]


def tokens(report: Report, live: Component, made: Component, known: Mapping[str, str]) -> Component:
    """The place of the heat map, with the choice of a trace and of two candidates."""
    results = report["results"]
    traces = sorted(report["traces"], key=lambda trace: -abs(trace["log10_ratio"]))[:500]
    words = "Trace {number:,} · adds {adds} · {tokens:,} tokens"
    offered = [
        {"value": str(trace["number"]), "label": words.format(**(trace | {"adds": number(trace["log10_ratio"], 2)}))}
        for trace in traces
    ]
    sources = sections.grouped(report["reference"]["sources"], report["reference"]["families"], known)
    method = report["method"]["reader"].partition("/")[0]
    sentence: list[Component | str] = [
        _split(report["method"]["reader"]),
        shell.term("log-odds", "Natural logarithm of how many times more probable the trace is under one source"),
        " of two candidates belongs to no word; it is spread evenly."
        if method in (*ENCODED, TEXT_TUNED, FUSED_TUNED)
        else " of two candidates split exactly over the words of a response. Hover a word for its share.",
        _beyond_words(report),
    ]
    nothing = shell.empty("No trace is chosen yet", "Choose one above, or click a bar")
    place = html.Div(id="heat", className="heat-place", children=nothing)
    first, rival = offered[0]["value"] if offered else None, results["leave_one_out"]["rival"]
    return sections.section(
        "tokens", QUESTIONS["tokens"], sentence,
        shell.loading(place, "Reading the trace once more …", parent_className="loading"),
        made=made, badge=live, height=None, picture=False,
        controls=[
            _choose("heat-trace", "Trace", offered, first, "Trace to look into"),
            _choose("heat-source", "For", sources, results["subject"], "Candidate that the words may speak for"),
            _choose("heat-rival", "Against", sources, rival, "Candidate to hold it against"),
        ],
    )  # fmt: skip


def _beyond_words(report: Report) -> str:
    """What the bar of a trace holds besides its words, in a sentence; '' where that is nothing."""
    results = report["results"]
    bias = {row["source"]: row["bias"] for row in results["candidates"]}
    subject, rival = results["subject"], results["leave_one_out"]["rival"]
    added = (bias[subject] - bias[rival]) / math.log(10)
    if not added:
        return ""
    return f" Its bar, {subject} against {rival}, also holds {number(added, 2)} in log10 from the calibration."


def excluded(report: Report, live: Component, made: Component) -> Component | None:
    """Bad places and duplicates, where there are any."""
    frame = frames.excluded(report)
    notes = [html.P(note, className="sentence") for note in report["input"]["notes"]]
    if frame.empty:
        return html.Div(notes) if notes else None
    sentence = f"Places of {report['input']['name']} that were not scored. n = {len(frame):,}."
    table = shell.table(frame.head(2_000), identity="left-grid")
    return sections.section(
        "left", QUESTIONS["left"], sentence, html.Div([table, *notes], style={"height": "100%"}), made=made, badge=live,
        height=min(360, 96 + 34 * len(frame)), picture=False, table=False,
    )  # fmt: skip


def _choose(identity: str, label: str, data: list[dict[str, Any]], value: str | None, meaning: str) -> Component:
    field = shell.select(
        identity, meaning, data, value=value, searchable=True, allowDeselect=False, size="xs", maxDropdownHeight=320,
        limit=200, nothingFoundMessage="Nothing has this name",
    )  # fmt: skip
    return shell.labelled(label, identity, field)


def redrawn(
    name: str, report: Report, theme: Theme, level: float | None = None, cache: QueryCache | None = None
) -> Any:
    """A live figure in another theme; None for those that are no drawing of the report alone."""
    if name == "evidence":
        return figures.evidence_curve(report, theme=theme, level=level)
    if name == "lands" and cache:
        return landing_figure(cache, report, theme)
    if name in ("tippett", "pav"):
        return ratio_figure(name, report, theme=theme)
    draws = {"adds": figures.contributions, "without": figures.leave_one_out}
    return draws[name](report, theme=theme) if name in draws else None


def _flat_map(cache: QueryCache, where: Mapping[str, Any]) -> pd.DataFrame:
    """The ecosystem's flat map, where the traces were placed (reader, roster, domain); may be empty."""
    none = pd.DataFrame(columns=["source", "name", "family", "access", "x", "y"])
    if cache.problem() is not None:
        return none
    view = View(reader=where["reader"], roster=where["roster"], domain=where["domain"])
    reader = cache.map_reader(view)
    for method in FLAT_MAPS:
        found = cache.ask(queries.projection, reader, view.roster, view.domain, method, 2)
        if len(found):
            return found
    return none


def landing_figure(cache: QueryCache, report: Report, theme: Theme) -> Any:
    """The map with the nearest sources marked; None without a map."""
    where = report["results"]["lands"]
    placed = _flat_map(cache, where) if where else pd.DataFrame()
    if placed.empty:
        return None
    near = frames.landed(report).head(NEAREST)
    marks = sections.marks_of(cache, report["reference"]["families"])
    return figures.landing(placed, near, marks, theme=theme, claimed=report["results"]["claimed"] or "")


def landing(report: Report, cache: QueryCache, view: View) -> Component:
    """Table of the nearest sources and the map beside it: what the report says."""
    rows, where = frames.landed(report), report["results"]["lands"]
    live, made = sections.badge(report["method"]["enrolment_sha256"]), sections.made_of(report)
    if rows.empty:
        roster = report["method"]["facts"].get("roster")
        again = f"--roster {roster}" if roster else "LABELLED --name NAME"
        missing = "This ecosystem brings no signatures of its sources"
        remedy = shell.empty(missing, f"Make it again: python -m jobs enroll {again}")
        return html.Section([html.H2(QUESTIONS["lands"]), remedy], className="figure", id="figure-lands")
    drawn = landing_figure(cache, report, view.theme)
    table = _nearest_table(rows.head(NEAREST), report, cache, view)
    domain = DOMAIN_NAMES.get(where["domain"], where["domain"]) or "its own prompts"
    sentence: list[Component | str] = [
        "Cosine between the mean fingerprint of these traces and the ",
        shell.term("signature", "Mean fingerprint of a source over all its prompts, in the original space"),
        f" of every source on {domain}. "
        + ("The traces get no point of their own on a projection: the numbers mark their nearest. " if drawn else "")
        + "Nearness says what the traces are like, the ratio above says who made them. "
        f"n = {len(rows)} sources.",
    ]
    parts: list[Component] = [table]
    if drawn:
        label = "Map of the sources, the nearest numbered"
        parts.append(html.Div(sections.graph("lands", drawn), role="img", **shell.aria(label=label)))
    content = html.Div(parts, className="land" if drawn else "land land-alone")
    return sections.section(
        "lands", QUESTIONS["lands"], sentence, content, made=made, badge=live, height=None, picture=False
    )


def _nearest_table(rows: pd.DataFrame, report: Report, cache: QueryCache, view: View) -> Component:
    marks, known = sections.marks_of(cache, report["reference"]["families"]), sections.known_sources(cache)
    view = dataclasses.replace(view, source="")
    body = []
    for row in tables.rows(rows):
        family = [shell.symbol(marks[row.family], view.theme), html.Span(row.family, dir="auto")]
        cells = [
            html.Td(str(row.rank), className="number"),
            html.Th(html.Span(sections.named(view, row.source, known), className="marked"), scope="row"),
            html.Td(html.Span(family if row.family in marks else [], className="marked")),
            html.Td(rate_text(row.cosine), className="number"),
        ]
        body.append(html.Tr(cells, className="here" if row.source == report["results"]["subject"] else ""))
    heads, name = ["rank", "source", "family", "cosine"], "Nearest sources in the original space"
    return shell.small_table(heads, body, name, "small wide nearest-sources")


def heat_map(evidence: Mapping[str, Any]) -> Component:
    """The response of one trace as a heat map, with its legend and its sum.

    evidence : source, rival, log_odds, stored, pieces (text, start, stop, value) and rest (text beyond the window).
    """
    pieces = frames.pieces(evidence)
    largest = float(pieces["log_odds"].abs().max()) if len(pieces) else 0.0
    spans = [
        html.Span(
            token,
            title=f"{number(value, 4)} nats",
            className="token token-for" if value >= 0 else "token token-against",
            style={"--weight": f"{abs(value) / largest if largest > 0 else 0.0:.3f}"},
        )
        for token, value in zip(pieces["token"], pieces["log_odds"], strict=True)
    ]
    if evidence["rest"]:
        spans.append(html.Span(evidence["rest"], className="token-rest", title="Beyond what the proxy reads"))
    label = "Response with the evidence of its tokens"
    text = html.Div(spans, className="heat-text", dir="auto", tabIndex=0, role="group", **shell.aria(label=label))
    total = html.P(sum_words(evidence), className="sentence", id="heat-sum")
    return html.Div([_heat_legend(evidence, largest), text, total, *_strongest(evidence)], className="heat")


def sum_words(evidence: Mapping[str, Any]) -> list[Component | str]:
    """The sum of the tokens beside the score that it must equal."""
    total, odds, stored = float(frames.pieces(evidence)["log_odds"].sum()), evidence["log_odds"], evidence["stored"]
    return [
        f"The {len(evidence['pieces']):,} pieces of text add up to ",
        html.Span(f"{number(total, 4)} nats", className="count"),
        f" ({number(total / math.log(10), 2)} in log10); the score's difference is ",
        html.Span(f"{number(float(odds), 4)} nats", className="count"),
        "." if odds == stored else f" ({number(float(stored), 4)} after the rounding of the stored fingerprint).",
    ]


def _heat_legend(evidence: Mapping[str, Any], largest: float) -> Component:
    steps = [
        html.Span(className=f"token token-{side}", style={"--weight": f"{weight:.2f}"})
        for side, weights in (("against", (1, 0.66, 0.33)), ("for", (0.33, 0.66, 1)))
        for weight in weights
    ]
    rival, source = (html.Span(evidence[side], className="name", dir="auto") for side in ("rival", "source"))
    scale = f"full colour at {number(largest, 2).lstrip('+')} nats; dotted below: for the rival"
    children = [
        html.Span(["speaks for ", rival]),
        html.Span(steps, className="heat-steps", **shell.aria(hidden="true")),
        html.Span(["speaks for ", source]),
        html.Span(scale, className="soft"),
    ]
    return html.Div(children, className="heat-legend")


def _strongest(evidence: Mapping[str, Any]) -> list[Component]:
    pieces = frames.pieces(evidence)
    lines: list[Component] = []
    for sign, side in ((1, evidence["source"]), (-1, evidence["rival"])):
        weighed = pieces[pieces["log_odds"] * sign > 0].sort_values("log_odds", ascending=sign < 0).head(STRONGEST)
        if weighed.empty:
            continue
        words: list[Component | str] = ["Strongest for ", html.Span(side, className="name", dir="auto"), ": "]
        for token, value in zip(weighed["token"], weighed["log_odds"], strict=True):
            words += [html.Code(visible(token), dir="auto"), f" {number(value, 2)}  "]
        lines.append(html.P(words, className="sentence"))
    return lines


def visible(token: str) -> str:
    """A token with its blanks made visible."""
    return token.replace("\n", "↵").replace("\t", "⇥").replace(" ", "␣") or "(nothing)"
