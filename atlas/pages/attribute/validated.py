"""How well an attribution does in just such a case: what the validation of its ecosystem measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
from dash import html
from dash.development.base_component import Component

from atlas import shell
from atlas.figures import evidence
from atlas.figures.plots import rate_text
from atlas.pages.attribute import sections
from atlas.pages.attribute.frames import Report
from atlas.theme import Plot, Theme

Row = Mapping[str, Any]
NOBODY = {
    ("refit", "family"): "Its whole family was left out",
    ("refit", "sibling"): "It was left out, its siblings were not",
    ("unknown", "family"): "Its whole family, taken out of the scores only",
    ("unknown", "sibling"): "It alone, taken out of the scores only",
}
WINDOWS = {"same": "the same source", "sibling": "two sources of one family", "family": "two families"}


def validated(report: Report) -> Component:
    """What the validation of the ecosystem says about just such a case: as many traces, as long."""
    found = report.get("validation")
    title = html.H2("How well does this do in such a case?", id="title-validated")
    if not found:
        body: list[Component] = [html.P(unvalidated(report), className="sentence"), *_make_validation(report)]
    else:
        cut = "whole responses" if found["condition"] == "clean" else f"responses cut like {found['condition']}"
        many = "" if found["traces"] is None else f"{found['traces']:,} traces of "
        sentence = f"Nearest validated case: {many}{cut}, on prompts that were held out from what they test."
        right = [row["sentence"] for row in found["rows"] if row["metric"] == "accuracy_after" and row["sentence"]]
        body = [
            html.P(" ".join([sentence, *right]), className="sentence"),
            html.Div([part for table in TABLES for part in table(found)], className="validation"),
        ]
    return html.Section(
        [title, *body], className="figure", id="figure-validated", **shell.aria(labelledby="title-validated")
    )


def tippett_rows(report: Report) -> pd.DataFrame:
    """Points of the Tippett plot (columns metric, k, level, value, n): shares of claims by their log10 ratio."""
    return _points(report, "tippett_true", "tippett_false")


def pav_rows(report: Report) -> pd.DataFrame:
    """Points of the PAV plot (columns metric, k, level, value, n): the log10 ratios that claims show."""
    return _points(report, "pav")


def _points(report: Report, *metrics: str) -> pd.DataFrame:
    rows = [row for row in (report.get("validation") or {}).get("rows", ()) if row["metric"] in metrics]
    return pd.DataFrame(rows, columns=["metric", "k", "level", "value", "n"])


def ratio_figure(name: str, report: Report, *, theme: Theme) -> Plot:
    """The plot 'tippett' or 'pav' of a report that has its points."""
    if name == "pav":
        return evidence.pooled_ratios(pav_rows(report), theme=theme)
    limits = sorted(_points(report, "log10_lower", "log10_upper")["value"])
    return evidence.tippett(tippett_rows(report), (limits[0], limits[1]) if len(limits) == 2 else None, theme=theme)


def ratio_figures(report: Report, theme: Theme, badge: Component, made: Component) -> Component | None:
    """Tippett and PAV plots of the validated ratios; None where the validation holds no points of them."""
    shares, pooled = tippett_rows(report), pav_rows(report)
    if shares.empty:
        return None
    k = int(shares["k"].iloc[0])
    of = f"{k:,} held-out trace{'s' if k != 1 else ''} each"
    sizes = shares.groupby("metric")["n"].max()
    words = {
        "tippett": (
            "How often do ratios point the right way?",
            f"Share of claims about {of} whose log10 ratio is at least so large; dotted, what reports hold it within. "
            f"n = {sizes['tippett_true']:,} true and {sizes['tippett_false']:,} false claims.",
        ),
        "pav": (
            "Do ratios mean what they say?",
            f"The ratio stated about {of}, against the one that claims so rated show (pool adjacent violators). "
            f"n = {pooled['n'].max():,} claims.",
        ),
    }
    names = ["tippett", *([] if pooled.empty else ["pav"])]
    children = []
    for name in names:
        graph = sections.graph(name, ratio_figure(name, report, theme=theme))
        children.append(sections.section(name, *words[name], graph, made=made, badge=badge, height=320))
    return html.Div(children, className="two")


def _table(
    found: Mapping[str, Any], caption: str, heads: Sequence[str], body: Sequence[tuple[str, Sequence[Row | None]]]
) -> list[Component]:
    """Shares in per cent, with how many groups are behind each; nothing where nothing was measured."""
    rows = [cell for _, cells in body for cell in cells if cell is not None]
    if not rows:
        return []
    sizes = sorted({row["k"] for row in rows})
    about = f"{caption}, {' and '.join(f'{k:,}' for k in sizes)} traces each"
    if found["condition"] != "clean" and all(row["condition"] == "clean" for row in rows):
        about += " (measured on whole responses)"
    lines = [
        html.Tr([html.Th(word, scope="row"), *map(_share, cells)])
        for word, cells in body
        if any(cell is not None for cell in cells)
    ]
    return [shell.small_table(("", *heads), lines, kind="small calibrated", caption=about)]


def _share(row: Row | None) -> Component:
    if row is None:
        return html.Td("–", className="number")
    if row["metric"] == "undecided":
        return html.Td("never", className="number", title=row["sentence"])
    return html.Td(f"{100 * row['value']:.1f} %", className="number", title=f"{row['sentence']} n = {row['n']:,}")


def _verdicts(found: Mapping[str, Any]) -> list[Component]:
    """What the rule answers about groups of known sources."""
    cells = {row["metric"]: row for row in found["rows"] if row["part"] == "calibration" and row["sentence"]}

    def line(word: str, what: str, *answers: str) -> tuple[str, list[Row | None]]:
        return word, [cells.get(f"verdict_{what}_{answer}") for answer in answers]

    claims = [
        line("The true source is claimed", "true_claim", "supported", "refuted"),
        line("The same: its family alone", "true_claim_family", "supported", "refuted"),
        line("Its nearest other source is claimed", "nearest_claim", "supported", "refuted"),
        line("The same: that one's family alone", "nearest_claim_family", "supported", "refuted"),
    ]
    names = [
        line("A source is named", "named", "right", "wrong"),
        line("A family alone is named", "family", "right", "wrong"),
    ]
    return [
        *_table(found, "Verdicts about a claim", ["SUPPORTS", "AGAINST"], claims),
        *_table(found, "Verdicts without a claim", ["rightly", "wrongly"], names),
    ]


def _nobody(found: Mapping[str, Any]) -> list[Component]:
    """Sources that nobody enrolled: how many pass, and how many enrolled ones are called unknown meanwhile."""
    cells = {(row["part"], row["scenario"], row["metric"]): row for row in found["rows"] if row["sentence"]}
    body = [
        (word, [cells.get((*key, metric)) for metric in ("false_acceptance", "false_rejection")])
        for key, word in NOBODY.items()
    ]
    return _table(found, "Traces of a source that nobody enrolled", ["pass as enrolled", "enrolled refused"], body)


def _stops(found: Mapping[str, Any]) -> list[Component]:
    """What goes wrong among sessions that stop as soon as the rule allows."""
    rows = (row for row in found["rows"] if row["part"] == "stop" and row["sentence"])
    # Where a rule never decides, the row says so in place of its error rate.
    cells = {(row["level"], row.get("of", row["metric"])): row for row in rows}
    metrics = ("stop_error", "claim_false_support", "claim_false_against")
    body = [
        (f"Stated error {100 * level:g}\u00a0%", [cells.get((level, metric)) for metric in metrics])
        for level in sorted({level for level, _ in cells})
    ]
    heads = ["wrong source named", "nearest other supported", "true claim refuted"]
    return _table(found, "Sessions that stop as soon as the rule allows", heads, body)


def _traffic(found: Mapping[str, Any]) -> list[Component]:
    """What the verdict does on the enrolled kind of traffic, and on another one."""
    sentences = [row["sentence"] for row in found["rows"] if row["part"] == "transfer" and row["sentence"]]
    if not sentences:
        return []
    title = html.H3("On this kind of traffic, and on another")
    return [html.Div([title, html.Ul([html.Li(one) for one in sentences])])]


def _windows(found: Mapping[str, Any]) -> list[Component]:
    """How often two windows of traces are called different."""
    cells = {row["scenario"]: row for row in found["rows"] if row["part"] == "drift" and row["sentence"]}
    body = [(f"Of {words}", [cells.get(scenario)]) for scenario, words in WINDOWS.items()]
    return _table(found, "Two windows", ["called different"], body)


def unvalidated(report: Report) -> str:
    """What it means that an ecosystem brings no validation along."""
    if not report["results"]["calibrated"]:
        return (
            "This ecosystem brings neither a calibration nor a validation: ratios are plain sums, no claim is decided, "
            "and how often its answers are wrong is not known."
        )
    return (
        "This ecosystem brings no validation. Probabilities and ratios are calibrated on answers to held-out prompts, "
        "but how often a verdict, the unknown-source test or the stop is wrong has not been measured for these "
        "sources. Read the answer as a pointer, not as one with a known error rate."
    )


def _make_validation(report: Report) -> list[Component]:
    roster, facts = report["method"]["facts"].get("roster"), report["method"]
    if not roster or not roster.endswith("-way"):
        return []
    rerun_command = f"--proxy {facts['proxy']} --view {facts['view']} --roster {roster}"
    measured = html.Code(f"python -m jobs evaluate --stage audit {rerun_command}")
    return [html.P(["Measure it with ", measured, ", then enrol again."], className="hint")]


def _calibration_table(found: Mapping[str, Any]) -> list[Component]:
    """Error of probabilities and cost of ratios, before calibration and after it."""
    rows = [
        ("Calibration error (ECE)", "ece_before", "ece", "gap between stated and realised probability"),
        ("Cost of the likelihood ratios (Cllr, bits)", "cllr_before", "cllr", "0 is perfect, 1 says nothing"),
    ]
    parts = [
        ("Of it, lost by the order of the ratios (Cllr min)", "", "cllr_min", "what no calibration can save"),
        ("Of it, lost by their sizes (Cllr cal)", "", "cllr_cal", "what a better calibration could save"),
    ]
    costs = {row["metric"]: row["value"] for row in found["rows"] if row["part"] == "calibration"}
    numbers = {**costs, **found}
    known = [row for row in rows if row[1] in found and row[2] in found]
    known += [row for row in parts if known and row[2] in costs]
    if not known:
        return []
    floor = f"; {rate_text(found['ece_floor'])} arises by chance" if "ece_floor" in found else ""
    body = [
        html.Tr(
            [
                html.Th([word, html.Span(meaning + (floor if after == "ece" else ""), className="means")], scope="row"),
                html.Td(rate_text(numbers[before]) if before else "–", className="number"),
                html.Td(rate_text(numbers[after]), className="number"),
            ]
        )
        for word, before, after, meaning in known
    ]
    caption = "Calibration on held-out prompts"
    return [shell.small_table(("", "before", "after"), body, kind="small calibrated", caption=caption)]


TABLES = (_calibration_table, _verdicts, _traffic, _nobody, _stops, _windows)
