"""The result of one attribution, from the answer to the detail, and the rows of its tables: all from its report."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from dash import html
from dash.development.base_component import Component

from atlas import shell
from atlas.data import DOMAIN_NAMES, QueryCache
from atlas.figures import evidence as figures
from atlas.figures import tables
from atlas.figures.evidence import margin_of_all, number
from atlas.figures.plots import count, rate_text
from atlas.pages.attribute import sections, verdict
from atlas.pages.attribute.sections import QUESTIONS, Report, Section, number_cell
from atlas.state import View
from atlas.theme import Mark, Theme
from backend.attribution.report_words import (
    bound_of,
    bound_sign,
    bounds_of,
    line_words,
    mixture_sentence,
    names_of,
    only_validated,
    probability_text,
    running_bounds,
    share_interval,
    shares_note,
    shown_shares,
    subject_probability,
    verdict_words,
    with_names,
)
from backend.inference.drift import p_text
from backend.methods.registry import (
    ENCODED,
    FUSED_LIVE,
    FUSED_STYLE,
    FUSED_TUNED,
    LINEAR,
    NETWORKS,
    TEXT_TUNED,
    reads_text,
)
from backend.store import queries

UNDECIDED = "Unvalidated detail, decides nothing"
APART = "A plain sum: not calibrated as the ratio above is, and not comparable with it."
ONE_AT_A_TIME = (
    "The last column compares it with one source at a time, the curve above with all others on average, and the answer "
    "its family with all other families: each ratio ends (≥ or ≤) where tests of its own kind end. "
)
STOPS = (
    "The stop has a threshold of its own, set in tests with a look after every trace, in random orders: at most the "
    "chosen risk stopped wrongly."
)
NEAREST = 8  # sources that are listed where the traces land
FLAT_MAPS = ("tsne", "umap", "pca")  # projections in two dimensions, the preferred one first
STRONGEST = 5  # tokens that are named in words for each side
SHOWN = 10  # candidates, neighbours and families that are listed at once; the table holds all


COLUMNS = {
    "candidates": ["source", "family", "probability", "log10_ratio", "score", "bias"],
    "adds": ["number", "place", "nearest", "log10_ratio", "tokens", "response_characters", "time", "name", "sha256"],
    "without": ["number", "log10_without", "change", "sha256"],
    "readers": [
        "enrolment", "reader", "sources", "verdict", "level", "subject", "leader", "log10_ratio_others", "low",
        "high", "probability", "unknown_p", "calibrated", "enrolment_sha256",
    ],
    "left": ["place", "column", "reason"],
    "mixture": ["source", "family", "share", "low", "high"],
    "lands": ["rank", "source", "family", "cosine"],
}  # fmt: skip
FLOATS = dict.fromkeys(("log10_ratio_others", "low", "high", "probability", "unknown_p"), float)
ORDERS = {"low": "orders_low", "middle": "orders_middle", "high": "orders_high", "leads": "share_leading"}


def rows(name: str, report: Report) -> pd.DataFrame:
    """Rows behind a live figure, for its table and its CSV file.

    evidence : after every printed number of traces; orders_* are quantiles against the best other source over random
    orders and share_leading is their share that the subject leads, missing where there are none.
    candidates : log10_ratio is that of the subject against the source, from the sum of ``score`` and of the
    calibration's ``bias`` for every trace; 0 for the subject itself.
    adds, without : what every trace adds, and the evidence of all others. lands : the nearest sources first.
    tippett, pav : shares of claims by log10 ratio, and ratios that claims show.
    """
    results = only_validated(report).get("results", {})
    match name:
        case "evidence":
            running = pd.DataFrame(results["running"]).rename(columns={"log10_ratio_others": "log10_ratio"})
            spread = pd.DataFrame(results["spread"]["points"], columns=["traces", *ORDERS]).rename(columns=ORDERS)
            return running.merge(spread, on="traces", how="outer").sort_values("traces").reset_index(drop=True)
        case "tippett":
            return _points(report, "tippett_true", "tippett_false")
        case "pav":
            return _points(report, "pav")
        case "candidates" | "readers":
            found = results[name]
        case "mixture":
            found = shown_shares(results["mixture"]) if results.get("mixture") else []
        case "left":
            found = [*report["input"]["problems"], *({**row, "column": None} for row in report["exclusions"])]
        case "lands":
            found = results["lands"]["rows"] if results["lands"] else []
        case _:
            found = report["traces"]
    frame = pd.DataFrame(found, columns=COLUMNS[name])
    if name == "without":
        frame["change"] = frame["log10_without"] - margin_of_all(report)
    frame = frame.astype(FLOATS) if name == "readers" else frame
    return frame.sort_values("place", kind="stable") if name == "left" else frame


def _points(report: Report, *metrics: str) -> pd.DataFrame:
    found = [row for row in (report.get("validation") or {}).get("rows", ()) if row["metric"] in metrics]
    return pd.DataFrame(found, columns=["metric", "k", "level", "value", "n"])


def token_rows(evidence: Mapping[str, Any]) -> pd.DataFrame:
    """Tokens of a heat map (columns start, stop, token, log_odds); in nats, they add up to the score."""
    frame = pd.DataFrame(evidence["pieces"], columns=["start", "stop", "text", "value"])
    return frame.rename(columns={"text": "token", "value": "log_odds"})


def candidates(report: Report, marks: Mapping[str, Mark], view: View, known: Mapping[str, str]) -> Component:
    """The most probable sources with their probability as a bar; names lead to their pages where they have one."""
    results = report["results"]
    shown = results["candidates"][:SHOWN]
    subject = next(row for row in results["candidates"] if row["source"] == results["subject"])
    if subject not in shown:
        shown = [*shown[:-1], subject]
    over = _ratios_over(report, shown)
    alike = len(over) > 1 and len(set(over.values())) == 1  # said once, above
    roles, names = {results["leader"]: "leading", results["claimed"]: "claimed"}, names_of(report)
    body = []
    for row in shown:
        source, subject = row["source"], row["source"] == results["subject"]
        role = [html.Span(roles[source], className="role")] if source in roles else []
        family = html.Span(row["family"], dir="auto", className="legend-name")
        bar = html.Span(className="share-fill", style={"width": f"{100 * (row['probability'] or 0):.2f}%"})
        cells = [
            html.Th(html.Span([*sections.named(view, source, known, names), *role], className="marked"), scope="row"),
            html.Td(html.Span([shell.symbol(marks[row["family"]], view.theme), family], className="marked")),
            html.Td(html.Span(bar, className="share-track", **shell.aria(hidden="true")), className="share-cell"),
            number_cell(_share(row, report)),
            *([] if alike else [number_cell(over.get(source, "–"))]),
        ]
        body.append(html.Tr(cells, className="here" if subject else ""))
    heads = ["source", "family", "", "probability", *([] if alike else ["log10 ratio over it"])]
    table = shell.small_table(heads, body, "The most probable sources", "small wide candidates")
    if alike:
        who, ratio = with_names(report)["results"]["subject"], next(iter(over.values()))
        words = f"log10 ratio of {who} over each of the others listed: {ratio}."
        return html.Div([html.P(words, className="hint"), table])
    if results["stated"]:
        return table
    summary = html.Summary("Show the order of the candidates, without numbers")
    return html.Details([summary, table], className="folded")


def _ratios_over(report: Report, shown: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """log10 ratio of the answer's source over every other that is shown, as text; nothing where none is stated."""
    bounds, subject = bounds_of(report), report["results"]["subject"]
    others = [row for row in shown if bounds and row["source"] != subject]
    return {row["source"]: bounds[row["source"]] + number(row["log10_ratio"], 2) for row in others}


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
        also = f" and {words}" if method in ("fused", FUSED_STYLE, FUSED_TUNED) else ""
        plane = "its network is replaced by the plane through this response and an average one"
        return f"What scores reads {states}{also}; {plane}{tuned if method == FUSED_TUNED else ', and with that the '}"
    return f"What scores is linear in {f'{states} and {words}' if method in (FUSED_LIVE, LINEAR) else states}, so the "


def _share(row: Mapping[str, Any], report: Report) -> str:
    if row["probability"] is None:
        return "–"
    of_subject = row["source"] == report["results"]["subject"]
    return subject_probability(report) if of_subject else probability_text(row["probability"])


def sensitivity(report: Report) -> str:
    """How the answer depends on single traces and their order, in sentences."""
    results = with_names(report)["results"]
    out, points = results["leave_one_out"], results["spread"]["points"]
    half = [point for point in points if point["traces"] <= max(1, results["traces"] // 2)][-1:]
    changes = int(out["leader_changes"])
    changed = f"changes for {changes:,} of {results['traces']:,} traces" if changes else "never changes"
    ratio = "Without any one trace the plain sum against the best other source lies between "
    ratio += f"{number(out['lowest'], 2)} and {number(out['highest'], 2)}; the"
    text = f"{ratio if results['stated'] else 'Without any one trace, the'} leading source {changed}."
    if half:
        text += (
            f" With a random half of the traces, {results['subject']} leads in {100 * half[0]['leads']:.0f} % of "
            f"{results['spread']['orders']} orders."
        )
    return text if results["stated"] else f"This decides nothing. {text}"


def result(report: Report, cache: QueryCache, view: View) -> Component:
    """The whole result."""
    report = only_validated(report)
    results = with_names(report)["results"]
    show = sections.sections_of(report)
    marks, known = sections.marks_of(cache, report["reference"]["families"]), sections.known_sources(cache)
    n = int(results["traces"])
    many = f"n = {count(n, 'trace')}"
    calibrated = "calibrated" if results["calibrated"] else "not calibrated"
    lines = (
        f" {line_words(with_names(report))}"
        if results["stated"]
        else f" It is no likelihood ratio here and decides nothing: {verdict.not_stated(report)}."
    )
    if any(running_bounds(report)):
        lines += f" {figures.BOUNDS_WORDS}"
    if results["stated"] and _stops(report):
        lines += f" {STOPS}"
    shown = len(figures.weightiest(report["traces"]))
    rest = f" The {shown:,} that weigh most of {n:,}." if shown < n else ""
    apart = f" {APART}" if results["calibrated"] else ""
    others = "candidates" if "candidates" in report["reference"] else "enrolled sources"
    grows: list[Component | str] = [
        shell.term("Likelihood ratio" if results["stated"] else "log10 ratio", verdict.RATIO_HELP),
        f" of {results['subject']} against the other {others}, {calibrated}: the line adds the traces up in "
        "the order of the file (hollow where another source leads), the band holds 90 % of "
        f"{results['spread']['orders']} random orders.{lines} {many}.",
    ]
    explains: list[Component | str] = [
        shell.term("Probability", verdict.PROBABILITY_HELP),
        f" {calibrated if results['stated'] else 'not stated here'} for {many.removeprefix('n = ')}; prior: "
        f"{report['reference']['prior_statement']} {verdict.family_answer(report)} "
        f"{ONE_AT_A_TIME if results['level'] == 'family' and results['stated'] else ''}"
        f"n = {len(results['candidates'])} {others}.",
    ]
    adds = (
        f"For {results['subject']} against {results['leave_one_out']['rival']}, its strongest rival. Click a bar for "
        f"its words.{apart} {many}.{rest}"
    )

    def plot(name: str, sentence: shell.Children, height: int = 320, **options: Any) -> Component:
        drawing = sections.graph(name, draw(name, report, view.theme))
        return show(name, sentence, drawing, height=height, picture=True, **options)

    unknown = results["verdict"] == "UNKNOWN"
    lands = landing(report, cache, view)
    detail = [
        plot("evidence", grows, 380, controls=_stops(report)),
        show("candidates", explains, candidates(report, marks, view, known)),
        mixture(report, show) if results["stated"] or unknown else None,
        html.Div([plot("adds", adds), plot("without", sensitivity(report) + apart)], className="two"),
        readers(report, show),
        tokens(report, show, known),
        None if unknown else lands,
    ]
    summary = html.Summary(html.H2(UNDECIDED))
    return html.Div(
        [
            verdict.verdict(report, cache),
            verdict.exports(report, sections.view_of_judge(cache, view, report) is not None),
            *(
                detail
                if results["stated"]
                # No source is named, so that numbers of sources come second: what the traces are like comes first.
                else [
                    lands if unknown else mixture(report, show),
                    html.Details([summary, *detail], className="figure folded"),
                ]
            ),
            verdict.validated(report),
            ratio_figures(report, plot),
            excluded(report, show),
            verdict.verify(report),
        ]
    )


def mixture(report: Report, show: Section) -> Component | None:
    """Whether one source wrote all traces, and the largest shares; None for a report of before they were looked for."""
    found = report["results"].get("mixture")
    if found is None:
        return None
    names, body = names_of(report), []
    for row in tables.rows(rows("mixture", report).head(SHOWN)):
        fill = html.Span(className="share-fill", style={"width": f"{100 * row.share:.2f}%"})
        cells = [
            html.Th(shell.source_name(names.get(row.source, row.source)), scope="row"),
            html.Td(row.family, dir="auto"),
            html.Td(html.Span(fill, className="share-track", **shell.aria(hidden="true")), className="share-cell"),
            number_cell(probability_text(row.share)),
            number_cell(share_interval(row.low, row.high)),
        ]
        body.append(html.Tr(cells, className="here" if row.source == found["subject"] else ""))
    sentence = [html.Strong(found["outcome"].capitalize()), f": {mixture_sentence(report)}"]
    if not body:
        return show("mixture", sentence, html.Div(), table=False)
    heads = ["source", "family", "", "share of the traces", "95 % interval"]
    table = shell.small_table(heads, body, QUESTIONS["mixture"], "small wide candidates")
    if found["outcome"] == "cannot tell":  # shares would look like an answer
        note = html.P(shares_note(report), className="hint long")
        folded = html.Details([html.Summary("Show the shares that fit best"), note, table], className="folded")
        return show("mixture", sentence, folded, table=False)
    sentence.append(f" {shares_note(report)}")
    return show("mixture", sentence, table)


def readers(report: Report, show: Section) -> Component | None:
    """The same traces read by further ecosystems; None where there is one reader alone."""
    frame = rows("readers", report)
    if len(frame) < 2:
        return None
    names, body = names_of(report), []
    for at, row in enumerate(tables.rows(frame)):
        who = [shell.source_name(row.enrolment), html.Br(), html.Span(row.reader, className="soft")]
        even = 1 / row.sources  # the others read under even priors
        own, rest = (row.probability, even), (1 - row.probability, 1 - even)
        bound = bound_of(row.log10_ratio_others, own, rest) if at and row.level != "family" else bound_sign(report)
        ratio = "not stated" if pd.isna(row.probability) else f"{bound}{number(row.log10_ratio_others, 2)} "
        between = "" if pd.isna(row.low) else f"{number(row.low, 2)} to {number(row.high, 2)}"
        cells = [
            html.Th(who, scope="row"),
            html.Td(verdict_words(row._asdict())),
            html.Td(shell.source_name(names.get(row.leader, row.leader))),
            number_cell([ratio, html.Span(between, className="soft")]),
            number_cell("–" if pd.isna(row.unknown_p) else p_text(row.unknown_p)),
        ]
        body.append(html.Tr(cells, className="" if at else "here"))
    heads = ["ecosystem and reader", "answer", "leading source", "log10 ratio, 90 % of resamples", "unknown p"]
    agree = frame["leader"].nunique() == 1
    alike = "All of them lead to the same source." if agree else "They do not lead to the same source."
    sentence = (
        f"The answer above is that of the first one; the others read the same {report['results']['traces']:,} traces "
        f"under even priors. {alike} n = {len(frame)} readers."
    )
    return show("readers", sentence, shell.small_table(heads, body, QUESTIONS["readers"]))


def _stops(report: Report) -> list[Component] | None:
    """The choice of the stop's error rate, where the ecosystem has more than one."""
    stop = report["results"]["stop"] or {}
    levels = stop.get("levels") or []
    if len(levels) < 2 or stop.get("withheld"):
        return None
    offered = sections.error_rates(answer["error_rate"] for answer in levels)
    identity = sections.live("attr-stop", "evidence")
    return [shell.segmented(identity, offered, f"{stop['error_rate']:g}", "Risk of stopping too early")]


def tokens(report: Report, show: Section, known: Mapping[str, str]) -> Component:
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
    ]
    bias = {row["source"]: row["bias"] for row in results["candidates"]}
    subject, rival = results["subject"], results["leave_one_out"]["rival"]
    added = (bias[subject] - bias[rival]) / math.log(10)  # to every trace alike, and to no word
    named = with_names(report)["results"]
    words = f"{named['subject']} against {named['leave_one_out']['rival']}"
    also = "a correction between the two sources, the same for every trace"
    bar = f" Its bar, {words}, also holds {number(added, 2)} in log10 of no word: {also}."
    sentence.append(bar if added else "")
    nothing = shell.empty("No trace is chosen yet", "Choose one above, or click a bar")
    place = html.Div(id="heat", className="heat-place", children=nothing)
    first = offered[0]["value"] if offered else None
    shown = {"maxDropdownHeight": 320, "limit": 200, "nothingFoundMessage": "Nothing has this name"}
    choices = [
        sections.choice(label, identity, meaning, data, value=value, **shown)
        for label, identity, meaning, data, value in (
            ("Trace", "heat-trace", "Trace to look into", offered, first),
            ("For", "heat-source", "Candidate that the words may speak for", sources, subject),
            ("Against", "heat-rival", "Candidate to hold it against", sources, rival),
        )
    ]
    content = shell.loading(place, "Reading the trace once more …", parent_className="loading")
    return show("tokens", sentence, content, controls=choices)


def excluded(report: Report, show: Section) -> Component | None:
    """Bad places and duplicates, where there are any."""
    frame = rows("left", report)
    notes = [html.P(note, className="sentence") for note in report["input"]["notes"]]
    if frame.empty and not notes:
        return None
    if frame.empty:
        title = html.H2(QUESTIONS["notes"], id="title-notes")
        return html.Section([title, *notes], className="figure", **shell.aria(labelledby="title-notes"))
    sentence = f"Places of {report['input']['name']} that were not scored. n = {len(frame):,}."
    content = html.Div([shell.table(frame.head(2_000), identity="left-grid"), *notes], style={"height": "100%"})
    return show("left", sentence, content, height=min(360, 96 + 34 * len(frame)), table=False)


def draw(name: str, report: Report, theme: Theme, level: float | None = None, cache: QueryCache | None = None) -> Any:
    """The drawing of a live figure; None for those that are no drawing of the report alone."""
    report = report if name == "lands" else with_names(report)
    match name:
        case "evidence":
            return figures.evidence_curve(report, theme=theme, level=level)
        case "adds":
            return figures.contributions(report, theme=theme)
        case "without":
            return figures.leave_one_out(report, theme=theme)
        case "tippett":
            ends = sorted(_points(report, "log10_lower", "log10_upper")["value"])
            return figures.tippett(rows(name, report), (ends[0], ends[1]) if len(ends) == 2 else None, theme=theme)
        case "pav":
            return figures.pooled_ratios(rows(name, report), theme=theme)
        case "lands" if cache:
            return landing_figure(cache, report, theme)
    return None


def ratio_figures(report: Report, plot: Section) -> Component | None:
    """Tippett and PAV plots of the validated ratios; None where the validation holds no points of them."""
    shares, pooled = rows("tippett", report), rows("pav", report)
    if shares.empty:
        return None
    of = f"{count(int(shares['k'].iloc[0]), 'held-out trace')} each"
    sizes = shares.groupby("metric")["n"].max()
    tippett = (
        f"Share of claims about {of} whose log10 ratio is at least so large; dotted, what reports hold it within. "
        f"n = {sizes['tippett_true']:,} true and {sizes['tippett_false']:,} false claims."
    )
    pav = (
        f"The ratio stated about {of}, against the one that claims so rated show (pool adjacent violators). "
        f"n = {pooled['n'].max():,} claims.{_beyond(report, pooled)}"
    )
    return html.Div([plot("tippett", tippett), *([] if pooled.empty else [plot("pav", pav)])], className="two")


def _beyond(report: Report, pooled: pd.DataFrame) -> str:
    """Where an answer's ratio lies that no claim of the other kind came near."""
    ratio, ends = report["results"].get("log10_ratio_others"), pooled["level"]
    if ratio is None or not report["results"]["stated"] or ends.empty or ends.min() <= ratio <= ends.max():
        return ""
    side, kind = ("above", "true") if ratio > ends.max() else ("below", "false")
    return f" Yours, {bound_sign(report)}{number(ratio, 2)}, lies {side} the curve, where every claim was {kind}."


def landing_figure(cache: QueryCache, report: Report, theme: Theme) -> Any:
    """The ecosystem's flat map with the nearest sources marked; None without a map."""
    where = report["results"]["lands"]
    if not where or cache.problem() is not None:
        return None
    view = View(reader=where["reader"], roster=where["roster"], domain=where["domain"])
    asks = (queries.projection, cache.map_reader(view), view.roster, view.domain)
    placed = next((found for method in FLAT_MAPS if len(found := cache.ask(*asks, method, 2))), None)
    if placed is None:
        return None
    near, marks = rows("lands", report).head(NEAREST), _marks_of_all(report, cache)
    return figures.landing(placed, near, marks, theme=theme, claimed=report["results"]["claimed"] or "")


def _marks_of_all(report: Report, cache: QueryCache) -> Mapping[str, Mark]:
    """Marks of the families that traces may land near: also of those that are no candidates."""
    return sections.marks_of(cache, [*report["reference"]["families"], *rows("lands", report)["family"]])


def landing(report: Report, cache: QueryCache, view: View) -> Component:
    """Table of the nearest sources with their map, from the report."""
    frame, where = rows("lands", report), report["results"]["lands"]
    if frame.empty:
        roster = report["method"]["facts"].get("roster")
        again = f"--roster {roster}" if roster else "LABELLED --name NAME"
        missing = "This ecosystem brings no signatures of its sources"
        remedy = shell.empty(missing, f"Make it again: python -m jobs enroll {again}")
        return html.Section([html.H2(QUESTIONS["lands"]), remedy], className="figure", id="figure-lands")
    drawn = landing_figure(cache, report, view.theme)
    domain = DOMAIN_NAMES.get(where["domain"], where["domain"]) or "its own prompts"
    sentence: list[Component | str] = [
        "Cosine between the mean fingerprint of these traces and the ",
        shell.term("signature", "Mean fingerprint of a source over all its prompts, in the original space"),
        f" of every source on {domain}. "
        + (
            "The traces get no point of their own on a projection: rings mark their nearest, with the ranks of the "
            "table. Rings that touch share one label; each tells its own on hover. "
            if drawn
            else ""
        )
        + f"Nearness says what the traces are like, "
        f"{'the ratio above who made them' if report['results']['stated'] else 'and not who made them'}. "
        f"n = {len(frame)} sources.",
    ]
    marks, known, names = _marks_of_all(report, cache), sections.known_sources(cache), names_of(report)
    view = dataclasses.replace(view, source="")
    body = []
    # The source that the answer is about and the one that leads say where they come, however far that is.
    told = [report["results"].get(role) for role in ("subject", "leader")]
    near = frame["rank"].le(NEAREST) | frame["source"].isin(told)
    for row in tables.rows(frame[near]):
        family = [shell.symbol(marks[row.family], view.theme), html.Span(row.family, dir="auto")]
        cells = [
            number_cell(str(row.rank)),
            html.Th(html.Span(sections.named(view, row.source, known, names), className="marked"), scope="row"),
            html.Td(html.Span(family if row.family in marks else [], className="marked")),
            number_cell(rate_text(row.cosine)),
        ]
        body.append(html.Tr(cells, className="here" if row.source == report["results"]["subject"] else ""))
    heads, name = ["rank", "source", "family", "cosine"], "Nearest sources in the original space"
    parts: list[Component] = [shell.small_table(heads, body, name, "small wide nearest-sources")]
    if drawn:
        label = "Map of the sources, the nearest numbered"
        parts.append(html.Div(sections.graph("lands", drawn), role="img", **shell.aria(label=label)))
    content = html.Div(parts, className="land" if drawn else "land land-alone")
    return sections.sections_of(report)("lands", sentence, content)


def heat_map(evidence: Mapping[str, Any]) -> Component:
    """The response of one trace as a heat map, with its legend and its sum.

    evidence : source, rival, log_odds, stored, pieces (text, start, stop, value) and rest (text beyond the window).
    """
    pieces = token_rows(evidence)
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
    steps = [
        html.Span(className=f"token token-{side}", style={"--weight": f"{weight:.2f}"})
        for side, weights in (("against", (1, 0.66, 0.33)), ("for", (0.33, 0.66, 1)))
        for weight in weights
    ]
    rival, source = (html.Span(evidence[side], className="name", dir="auto") for side in ("rival", "source"))
    scale = f"full colour at {number(largest, 2).lstrip('+')} nats; dotted below: for the rival"
    legend = [
        html.Span(["speaks for ", rival]),
        html.Span(steps, className="heat-steps", **shell.aria(hidden="true")),
        html.Span(["speaks for ", source]),
        html.Span(scale, className="soft"),
    ]
    parts = [html.Div(legend, className="heat-legend"), text, total, *_strongest(evidence)]
    return html.Div(parts, className="heat")


def sum_words(evidence: Mapping[str, Any]) -> list[Component | str]:
    """The sum of the tokens, and the score that it must equal."""
    total, odds, stored = float(token_rows(evidence)["log_odds"].sum()), evidence["log_odds"], evidence["stored"]
    return [
        f"The {len(evidence['pieces']):,} pieces of text add up to ",
        html.Span(f"{number(total, 4)} nats", className="count"),
        f" ({number(total / math.log(10), 2)} in log10); the score's difference is ",
        html.Span(f"{number(float(odds), 4)} nats", className="count"),
        "." if odds == stored else f" ({number(float(stored), 4)} after the rounding of the stored fingerprint).",
    ]


def _strongest(evidence: Mapping[str, Any]) -> list[Component]:
    pieces = token_rows(evidence)
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
    """A token with its blanks visible."""
    return token.replace("\n", "↵").replace("\t", "⇥").replace(" ", "␣") or "(nothing)"
