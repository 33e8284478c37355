"""Brief: a printable page for auditors with chosen figures, the method in five sentences, limits and every build."""

from __future__ import annotations

import dataclasses
import datetime
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlencode

import dash_mantine_components as dmc
import numpy as np
import pandas as pd
import plotly.graph_objects as go
from dash import Dash, Input, Output, dcc, html
from dash.development.base_component import Component

from atlas import drawing, shell
from atlas.api import answers
from atlas.data import METHOD_NAMES, QueryCache, questions
from atlas.drawing import traces
from atlas.figures import attribution, dots, map, neighbourhoods, plots, tables
from atlas.figures import relationships as pairs
from atlas.figures.evidence import BOUNDS_WORDS, evidence_curve
from atlas.figures.plots import Line
from atlas.pages import pieces, relationships
from atlas.pages.attribute import comparison_answers, sample_case, sections, verdict, visitor
from atlas.pages.compare import readers as compared
from atlas.pages.compare import readouts as fused
from atlas.pages.methods import TEXT
from atlas.pages.neighbourhoods import purity_sources
from atlas.state import View
from atlas.theme import TOKENS, Plot
from backend.attribution.report_page import (
    HASHED,
    SIGNATURES,
    case_title,
    meanings,
    paper_words,
    rates_of,
    stranger_findings,
)
from backend.attribution.report_words import (
    date_words,
    keep_together,
    line_words,
    rates_note,
    running_bounds,
    validated_case,
    validated_for,
    verdict_words,
    with_names,
)
from backend.enrolment.catalogue import default
from backend.protocol import CLEAN, READER_PAPER
from backend.store import page_queries, queries

METHOD, LIMITS = TEXT["method"], TEXT["limits"]["ours"]
LIMIT_OF_MAPS = next(limit for limit in LIMITS if limit.startswith("A map "))
PAPER = TOKENS["light"]
WIDTH = 672  # width of a figure in pixels: an A4 page less its margins
ROOM, ROOM_OVER_TABLE, ROOM_OF_MATRIX = 330, 280, 400
"""Pixels of a drawing's height, so that two figures fit on a sheet."""
LEAST_SCALE = {"map": 0, "readouts": 0.88, "reached": 0.88}
"""Drawings that cannot be drawn lower are scaled on paper; labels, which a map has none of, keep 8 points."""
LEGEND_ROOM = 24  # pixels of a legend's second line
OTHERS = 3
"""Readers next to the chosen one."""
CASE = "case"  # the visitor's own answer, which no generation holds
CASE_QUESTION = "Your case: what was asked, and the answer"
COMPARED = {
    "windows": "Your two windows: whether the endpoint changed",
    "reference": "Your claim against its reference: whether they answer alike",
}
"""The visitor's comparisons, a sheet each."""
LATER = {CASE: "after an answer on Attribute"} | dict.fromkeys(COMPARED, "after a comparison on Attribute")
"""What makes the visitor's own sheets available."""
MODES = {"windows": "two", "reference": "reference"}  # of the page Attribute, that makes them
NONE_BY_THE_HEADER = "The sheet says which reader compared."
NONE_PUBLISHED = "The paper publishes no number for these sources: all marks were measured here."
REACH, WITHOUT_ONE = "How far can this answer be trusted?", "How well can the atlas tell models apart?"
HELD = "A case is held for the session that asked it, 24 hours at most, and nobody else can open it by this link."
OTHER_KIND = "The traces are not of the kind that was tested, so that these rates do not hold for them."
OTHER_SOURCES = "Not of this case: the atlas's own figure, of {reader} among {sources}."
"""What stands at figures of sources that the case was not held against."""
SAME_SOURCES = "Of the reader and sources that judged the case."
TWO_COUNTS = " From {traces} it is right in {drawn} % here, in {stated} % under “{sheet}”: its groups are drawn anew."
"""What stands at a curve beside the share that a case's validation states."""
DRAWN_ANEW = " Groups are drawn with three seeds here, with one under “{sheet}”."
BEHIND = "Every number names the command, the code and the data behind it, and the proxy, where one was used."
NOT_OF_THE_CASE = "Not of this case: the atlas's own figure."
ALL_OF_THE_CASE = ", and so are the figures."
MARKED = "; figures marked “Not of this case” are by "
BELOW = "These numbers are of the reader below, where they name no other. "
ASK = dcc.Link("Attribute", href="/attribute")
OWN: list[Component | str] = [f"{BELOW}For your own traces, ask ", ASK, "."]
JUDGED = ("budget", "confusion", "siblings")
"""Figures of the reader that names sources: with a case, of the one that judged it, where it has such numbers."""
RINGED = ("map", "confusion")  # figures that mark the sources of a case
USUAL = ("map", "budget", "confusion", "readouts")  # figures of a brief that nobody has chosen any for


@dataclasses.dataclass(frozen=True)
class PrintFigure:
    """A drawn figure of the brief."""

    figure: go.Figure | Plot
    height: int  # in pixels
    caption: str  # what was measured, on how much
    origins: Collection[str]  # 'measured', 'published' or both
    below: Component | None = None  # a key that the figure does not hold itself


@dataclasses.dataclass(frozen=True)
class Kind:
    """A figure that a brief can hold: its question, how it is drawn, its rows and their builds."""

    question: str
    draw: Callable[[QueryCache, View, pd.DataFrame], PrintFigure | None]
    rows: pieces.Rows
    builds: pieces.Builds  # of rows of the store
    also: Callable[[QueryCache, View], tuple[str, dict[str, object]] | None] = lambda _cache, _view: None

    def printed(self, cache: QueryCache, view: View) -> PrintFigure | None:
        """The figure of a view on paper; None where nothing was measured."""
        frame = self.rows(cache, view)
        return None if frame.empty else self.draw(cache, view, frame)

    def meta(self) -> shell.FigureMeta:
        """What the figure shows besides its drawing."""
        return shell.FigureMeta(
            lambda cache, view: self.rows(cache, on_paper(view)),
            lambda cache, view: self.builds(cache, on_paper(view)),
            also=self.also,
        )


@drawing.page
def layout(cache: QueryCache, linked: View) -> Component:
    """The page for a query string."""
    view = cache.opened(linked)
    lead = (
        "Sheets to print, or to save as PDF: your case and the figures chosen. The link holds the choice, never the "
        "case."
    )
    offered = pieces.select(
        "brief-figures", _choices(chosen(view)), list(chosen(view)),
        "Figures of the brief", kind=dmc.MultiSelect, clearable=True, searchable=True, hidePickedOptions=True,
    )  # fmt: skip
    budget = pieces.budget_choice("brief-k", view, "Number of traces")
    button = html.Button("Print or save as PDF", id="brief-print", className="brief-print")
    controls = [
        html.H1("Brief"),
        html.P(lead, className="sentence"),
        html.P(id="brief-own", className="sentence"),
        html.Label("Figures, in the order of the choice", htmlFor="brief-figures", className="choice-label"),
        offered,
        html.Div([budget, button], className="controls"),
    ]
    children = [
        shell.settled(linked, view),
        drawing.remembered(PAGE.name),
        html.Div(controls, className="brief-controls"),
        html.Article(_sheets(cache, view), id="brief-sheets", className="sheets"),
    ]
    return html.Div(children, className="column brief")


def register(app: Dash) -> None:
    """Callbacks of the page."""
    figures, k = Input("brief-figures", "value"), Input("brief-k", "value")
    drawing.remember(app, PAGE.name, figures=figures, k=k)
    drawing.follow(app, drawing.place("brief-sheets", _sheets), figures=figures, k=k)
    # Not of the layout, which is stored for everybody.
    app.callback(Output("brief-own", "children"), figures, k)(_own_case)
    app.callback(Output("brief-figures", "data"), figures)(_own_choices)
    app.clientside_callback(
        "function (clicks) { if (clicks) window.print(); return window.dash_clientside.no_update; }",
        Input("brief-print", "n_clicks"),
        prevent_initial_call=True,
    )
    # An answer that is stored may have been sent under another address than the one that a person sees.
    app.clientside_callback(
        "(path) => window.location.origin + path", Output("brief-address", "children"), Input("brief-address", "title")
    )
    app.callback(Output("brief-judge", "children"), Input("brief-address", "title"))(_own_judge)
    sample_case.register(app, "brief-figures")


def _own_judge(address: str) -> list[Component | str]:
    """Who would judge the visitor's own traces, and how often that reader is right."""
    view = questions().resolve_view(View.parse(dict(parse_qsl(address.partition("?")[2]))))
    judge = default([one for one in visitor.ecosystems() if not one.sample], None, view.reader, view.roster)
    if judge is None or judge.roster is None:
        return OWN
    if judge.reader == questions().attribution_reader(view):
        return [f"{BELOW}It judges your own traces on ", ASK, " too."]
    by: list[Component | str] = [
        f"{BELOW}Your own traces are judged on ",
        ASK,
        " by ",
        html.Strong(sections.method_name(judge.reader)),
    ]
    own = questions().resolve_view(dataclasses.replace(view, reader=judge.reader, roster=judge.roster))
    rates = [_accuracy(questions(), one) for one in (own, view)]
    if (own.reader, own.roster) != (judge.reader, view.roster) or not all(len(rate) for rate in rates):
        return [*by, "."]
    here, there = (f"{100 * rate['value'].iloc[0]:.1f} %" for rate in rates)
    return [*by, keep_together(f": right in {here} of groups of {traces(view.k)}, the reader below in {there}.")]


def _own_choices(figures: list[str] | None) -> list[dict[str, Any]]:
    """What the visitor can choose next to what is chosen, which has to stay removable."""
    own = {CASE: visitor.newest_report()} | {name: visitor.newest_comparison(name) for name in COMPARED}
    return _choices([*(figures or ()), *(name for name, answer in own.items() if answer is not None)])


def _choices(own: Sequence[str]) -> list[dict[str, Any]]:
    """Parts of a brief, those of the visitor that are not among ``own`` for later."""
    later = {name: when for name, when in LATER.items() if name not in own}
    return [
        {"value": name, "label": f"{words} ({later[name]})" if name in later else words, "disabled": name in later}
        for name, words in QUESTIONS.items()
    ]


def _own_case(figures: list[str] | None, k: int | str) -> Component | None:
    """A link that puts the visitor's newest answer first, where there is one that the brief does not hold."""
    report = None if CASE in (figures or ()) else visitor.newest_report()
    if report is None:
        return None
    choices = {"figures": ",".join([CASE, *(figures or ())]), "k": str(k)}
    way: dict[str, Any] = {"data-page": "/brief", "data-choices": json.dumps(choices)}
    answered = f"{case_title(report)}, read on {date_words(report['created'])}, {report['created'][11:16]} UTC"
    return html.A(f"Put your case ({answered}) first", href=f"/brief?{urlencode(choices)}", **way)


def case_words(cache: QueryCache, view: View, names: Sequence[str] | None, other: Component) -> list[Component | str]:
    """Who judged the case of a brief, and whose the figures marked as none of it are; empty without a case.

    names : what the brief holds; other : the header's reader.
    """
    if names and set(names) <= set(COMPARED):
        return [NONE_BY_THE_HEADER]
    case = _newest_case() if CASE in (names or ()) else None
    if case is None:
        return []
    by = html.Strong(sections.method_name(case["method"]["reader"]))
    figures = [name for name in names or () if name in KINDS]
    apart = sections.view_of_judge(cache, on_paper(view), case) is None or not set(figures) <= set(JUDGED)
    rest = ["."] if not figures else [MARKED, other, "."] if apart else [ALL_OF_THE_CASE]
    return [html.Span(["Case judged by ", by, *rest], className="of-the-case" if figures and not apart else "")]


def chosen(view: View) -> tuple[str, ...]:
    """Figures of the brief in their order: those of the link that exist, else the usual ones."""
    return tuple(name for name in view.figures if name in QUESTIONS) or USUAL


def on_paper(view: View) -> View:
    """The view as a brief shows it: light colours, and relationships under the strictest holdout."""
    return dataclasses.replace(view, theme="light", protocol="family", measure="accuracy")


# ---- the sheets -----------------------------------------------------------------------------------------------------


def _sheets(cache: QueryCache, view: View) -> list[Component]:
    view = on_paper(view)
    names = chosen(view)
    figures = [name for name in names if name in KINDS]
    case = _newest_case() if CASE in names else None
    judge = view if case is None else sections.view_of_judge(cache, view, case)
    views = {name: judge or view if name in JUDGED else view for name in figures}
    drawn = {name: KINDS[name].printed(cache, one) for name, one in views.items()}
    if case is not None:
        drawn |= {name: _ringed(cache, views[name], name, one, case) for name, one in drawn.items() if one}
    builds = builds_of(cache, {name: one for name, one in views.items() if drawn[name] is not None})
    foot = ["Provenance Atlas", f"generation {cache.generation().name}", _today()]
    compared = [_compared(foot, name) for name in names if name in COMPARED]
    if case is not None:
        foot.append(f"report {case['sha256'][:16]}")
    sheets = [] if case is None else [_sheet(foot, _case(cache, view, case), CASE)]
    if case is None and set(names) <= set(COMPARED):
        return compared
    cover = _cover(cache, foot, view, names, case, judge)
    sheets += [cover, *compared] if CASE in names else [*compared, cover]
    for number, name in enumerate(views, start=1):
        note = "" if case is None else _note(cache, view, name, judge, case)
        sheets.append(_sheet(foot, _figure(name, drawn[name], number, builds, note), name))
    return [*sheets, _sheet(foot, _builds(builds), "builds")] if len(builds) else sheets


def _note(cache: QueryCache, view: View, name: str, judge: View | None, case: Mapping[str, Any]) -> str:
    """What a figure beside a case is of; ``judge`` is None where nothing of the case's reader is measured."""
    reader = cache.attribution_reader(view)
    if name not in JUDGED or not reader:
        return NOT_OF_THE_CASE
    if judge is None:
        return OTHER_SOURCES.format(reader=cache.reader_words(reader), sources=scope(cache, view))
    return SAME_SOURCES + (_two_counts(cache, judge, case) if name == "budget" else DRAWN_ANEW.format(sheet=REACH))


def _two_counts(cache: QueryCache, judge: View, case: Mapping[str, Any]) -> str:
    """Both shares of right answers where a case's validation and a curve have one for the same number of traces."""
    rows = (case.get("validation") or {"rows": ()})["rows"]
    curve = pieces.curves(cache, judge, cache.attribution_reader(judge), "accuracy").set_index("k")["value"]
    asked = ("accuracy_after", None, CLEAN)
    stated = [
        row for row in rows if (row["metric"], row["scenario"], row["condition"]) == asked and row["k"] in curve.index
    ]
    return "".join(
        TWO_COUNTS.format(traces=traces(row["k"]), drawn=drawn, stated=share, sheet=REACH)
        for row in stated[:1]
        if (drawn := f"{100 * curve[row['k']]:.1f}") != (share := f"{100 * row['value']:.1f}")
    )


def _sheet(foot: list[str], children: list[Component], name: str) -> Component:
    """A sheet; on paper its foot stands on every page, as the stylesheet puts it there."""
    line = html.Div([html.Span(words) for words in foot], className="sheet-foot")
    style = {"colorScheme": "light", **{f"--{token}": colour for token, colour in PAPER.items()}}
    return html.Section([*children, line], className=f"sheet sheet-{name}", style=style)


def _today() -> str:
    return date_words(datetime.datetime.now(datetime.UTC))


def _cover(
    cache: QueryCache,
    foot: list[str],
    view: View,
    names: tuple[str, ...],
    case: Mapping[str, Any] | None,
    judge: View | None,
) -> Component:
    """Sheet with the figures of ``names``; ``judge`` is None where nothing of its reader is measured."""
    link = View(reader=view.reader, roster=view.roster, domain=view.domain, k=view.k, figures=names).query()
    own = f"/brief?{urlencode(parse_qsl(link), safe='/:,')}"  # for eyes too
    of = judge or view
    reader = cache.attribution_reader(of) or of.reader
    by = (
        [cache.reader_name(reader), paper_words(reader), " ", shell.origin_badge(cache.origin(reader))]
        if reader
        else ["–"]
    )
    sources = f"{scope(cache, of)} (roster {of.roster})"
    address = html.Span(own, id="brief-address", title=own, className="mono long")
    found = html.Ul(
        [html.Li(finding) for finding in findings(cache, view, of, names if case is None else JUDGED)],
        className="findings",
    )
    figures = [name for name in names if name in KINDS]
    facts: dict[str, Any]
    if case is None:
        title, name = WITHOUT_ONE, "cover sheet-case" if CASE in names else "cover"
        facts = {"Reader": by, "Sources": [sources], "Date": [_today()], "This view": [address]}
        samples = [("Ask about your own traces, or open a sample", f"/attribute?{view.query()}")]
        empty = shell.empty("No question has been answered in this session yet", HELD, samples)
        absent = html.Div([empty, *sample_case.offer()], className="sheet-absent")
        measured = [*([absent] if CASE in names else []), html.P(OWN, id="brief-judge", className="sentence")]
        measured += [_facts(facts)]
        measured += [html.H3("What was found"), found]
    else:
        title, name, method = REACH, "cover", case["method"]
        facts = {
            "Reader": [sections.reader_words(cache, SimpleNamespace(**method)), paper_words(method["reader"])],
            "Sources": [f"{len(case['reference']['sources']):,}, enrolled as {_enrolled(case)}"],
            "Traces": [f"{case['results']['traces']:,}"],
            **verdict.checks_on_paper(case),
            "Date": [_today()],
            "Report's hash": [html.Span(f"sha256 {case['sha256']}", className="mono long"), f" ({HASHED})"],
        }
        measured = [
            _facts(facts),
            html.H3("How often is this reader right?"),
            *([html.P(_measured_with(case, figures), className="sentence")] if case.get("validation") else []),
            html.Ul([html.Li(rate) for rate in _rates(case)], className="findings"),
            *(
                [html.P(note, className="hint")]
                if (note := rates_note(case.get("validation"), other_traffic=False))
                else []
            ),
        ]
        if judge is not None and not case.get("validation"):  # else these are the same shares, of other groups
            size = pieces.roster_size(cache, judge)
            measured += [
                html.H3(f"The atlas in general (the same reader, {size} sources, whole responses)"),
                html.P([f"{sources}, read by ", *by], className="sentence"),
                found,
            ]
    children = [
        html.P("Provenance Atlas", className="kicker"),
        html.H2(title, className="brief-title"),
        *measured,
        html.H3("The method in short"),
        html.Ol([html.Li(sentence) for sentence in _method(cache, case)], className="method"),
        html.H3("Limits"),
        html.Ul([html.Li(limit) for limit in LIMITS if "map" in names or limit != LIMIT_OF_MAPS], className="limits"),
        *(
            [html.H3("Figures"), html.Ol([html.Li(QUESTIONS[one]) for one in figures], className="contents")]
            if figures
            else []
        ),
        *([] if case is None else [html.Div([html.Div(line) for line in SIGNATURES], className="signatures")]),
    ]
    return _sheet(foot, children, name)


def _method(cache: QueryCache, case: Mapping[str, Any] | None) -> list[str]:
    """The method in sentences: READER's, or that of the reader that judged a case."""
    if case is None or case["method"]["reader"].startswith(f"{READER_PAPER}/"):
        return list(METHOD)
    reader = sections.reader_words(cache, SimpleNamespace(**case["method"]))
    return [METHOD[0], TEXT["judge"].format(reader=reader), *METHOD[3:]]


def _facts(facts: Mapping[str, Any]) -> Component:
    return shell.facts(facts, className="facts")


def _enrolled(case: Mapping[str, Any]) -> str:
    return str(case["method"]["facts"].get("roster") or case["reference"]["enrolment"])


def _measured_with(case: Mapping[str, Any], figures: Sequence[str]) -> str:
    """With how many traces the rates of a case were measured, and what its curve beside them is of."""
    curve = (
        f" Figure {figures.index('budget') + 1} counts the most probable source, whatever the rule says of it."
        if "budget" in figures
        else ""
    )
    return validated_case(case) + curve


def _rates(case: Mapping[str, Any]) -> list[str]:
    """How often the reader that judged a case is right and wrong in such a case, in sentences."""
    found = case.get("validation")
    if not found:
        return [verdict.UNVALIDATED if case["results"]["calibrated"] else verdict.UNCALIBRATED]
    return [*([] if validated_for(case) else [OTHER_KIND]), *rates_of(case), *stranger_findings(found)]


def _accuracy(cache: QueryCache, view: View) -> pd.DataFrame:
    """Accuracy of a view's reader at the chosen number of traces; empty where that was not measured."""
    curve = pieces.curves(cache, view, cache.attribution_reader(view), "accuracy")
    return curve[curve["k"] == view.k]


def findings(cache: QueryCache, view: View, judge: View, beside: Sequence[str] = ()) -> list[list[Component | str]]:
    """What the atlas found, one sentence a question, each with the origin of its number.

    judge : view of the reader whose accuracy is stated; beside : figures that they stand beside, none for all.
    """
    found: list[list[Component | str]] = []

    def add(before: str, share: str, after: str, origin: str) -> None:
        start = [before] if before else []
        whole = after.replace(" %", "\u00a0%")
        found.append([*start, html.Strong(f"{share}\u00a0%"), whole, shell.origin_badge(origin)])

    def asked(*figures: str) -> bool:
        return not set(beside) & set(KINDS) or bool(set(beside) & set(figures))

    reader = cache.attribution_reader(judge)
    at = _accuracy(cache, judge)
    if len(at) and asked(*JUDGED, "reached", "shorter"):
        count = pieces.roster_size(cache, judge)
        add(
            f"From {traces(view.k)} the source is named right in ",
            f"{100 * at['value'].iloc[0]:.1f}",
            f"{pieces.spread_text(at.iloc[0])} of the groups, among {count} sources; chance: {100 / count:.1f} %. ",
            cache.origin(reader),
        )
    purity = _purities(cache, view)
    nearest = purity[purity["k"] == 1]
    if len(nearest) and asked("map", "purity"):
        add(
            "",
            f"{100 * nearest['purity'].iloc[0]:.0f}",
            f" of {purity_sources(nearest.iloc[0])} have one of their own family as their nearest; "
            f"chance gives {100 * nearest['expectation'].iloc[0]:.0f} %. ",
            cache.origin(cache.map_reader(view)),
        )
    names, table = relationships.reader_names(cache), cache.ask(page_queries.relationship_summaries, view.protocol)
    own = relationships.usual(cache, view)
    related = asked("readouts", "kinship")
    picked = [top for origin in shell.ORIGINS if (top := relationships.best(cache, view, origin)) is not None]
    known = [row for row in (own, *picked) if row is not None]
    if known and related:
        row, others = known[0], [other for other in known[1:] if other.name != known[0].name]
        sure = f" (95 % interval {100 * row['low']:.1f} to {100 * row['high']:.1f})" if pd.notna(row["low"]) else ""
        same = table[table["metric"].eq(view.measure)]
        rest = [
            f"{'by ' if other['reader'] == row['reader'] else ''}{_readout_of(other, row, names)} "
            f"{100 * other['value']:.1f} %, the best of {int(same['origin'].eq(other['origin']).sum())} "
            f"{'published' if other['origin'] == 'published' else 'measured here'}"
            for other in others
        ]
        # One name with two numbers: each says by which readout.
        both = any(other["reader"] == row["reader"] for other in others) and row["readout"] in pairs.USUAL
        called = relationships.called(row, names) + (f" by {_readout_words(row)}" if both else "")
        flattered = " (the best of many is chosen on these pairs, which flatters it)" if rest or row is not own else ""
        add(
            f"Whether one of two models is derived from the other, {called} tells in ",
            f"{100 * row['value']:.1f}",
            f"{sure} of the pairs of families that it has never seen, where a coin is right in 50 %"
            f"{''.join(f'; {one}' for one in rest)}{flattered}. ",
            row["origin"],
        )
    return found or [["Nothing has been measured for this choice of reader, roster and domain."]]


def _readout_of(other: pd.Series, row: pd.Series, names: Mapping[str, str]) -> str:
    """The best reader's name, or its readout where the reader is the shown one."""
    return _readout_words(other) if other["reader"] == row["reader"] else relationships.called(other, names)


def _readout_words(row: pd.Series) -> str:
    """A readout in the words of a sentence: 'mean and drift together', 'drift alone'."""
    words = pairs.readout_words(row["readout"])
    if row["readout"] in pairs.BLOCKS:
        return f"{words.partition(' (')[0]} alone"
    return "mean and drift together" if row["readout"] == "dc-ac" else words


def _figure(
    name: str, printed: PrintFigure | None, number: int, builds: pd.DataFrame, note: str = ""
) -> list[Component]:
    kind = KINDS[name]
    head = html.H3([html.Span(f"Figure {number}. ", className="soft"), kind.question], className="plate-title")
    if printed is None:
        remedy = "Choose another reader, roster or domain above, or leave this figure out"
        return [head, shell.empty("This has not been measured for the choice of the header", remedy)]
    numbers = ", ".join(str(place + 1) for place in sorted(set(builds.loc[builds["plate"] == name, "group"])))
    badges = [shell.origin_badge(origin) for origin in shell.ORIGINS if origin in printed.origins]
    title = html.Div([head, *badges], className="figure-title")
    tools = shell.tools(f"brief-{name}", table_view=False)
    words: shell.Children = [printed.caption, html.Span(f" Builds: {numbers}." if numbers else "", className="soft")]
    room = ROOM_OF_MATRIX if name == "confusion" else ROOM
    scale = {"--print": f"{min(1, max(room / printed.height, LEAST_SCALE.get(name, 1))):.3f}"}
    width = ROOM_OF_MATRIX if name == "confusion" else WIDTH
    height = printed.height if name in LEAST_SCALE else min(printed.height, room)
    scale |= {"--wide": f"{width}px", "--high": f"{height}px"}  # a slide has them fill the screen
    graph = _still(printed.figure, height, width)
    picture = html.Div(graph, role="img", className="plate-drawing", style=scale, **shell.aria(label=kind.question))
    figure = [picture, *([printed.below] if printed.below else []), html.Figcaption(words)]
    return [
        html.Div([title, tools], className="figure-head"),
        *([html.P(note, className="sentence")] if note else []),
        html.Figure(figure, id=f"figure-brief-{name}", className="plate"),
    ]


def _still(figure: go.Figure | Plot, height: int, width: int = WIDTH) -> Component:
    """A drawing of the width of the paper that does not answer the pointer."""
    plot = figure if isinstance(figure, dict) else figure.to_plotly_json()
    layout = plot["layout"] | {"width": width, "height": height, "hovermode": False}
    still: Component = dcc.Graph(
        figure={"data": plot["data"], "layout": layout},
        responsive=False,
        config={"displayModeBar": False, "staticPlot": True},
        style={"width": width, "height": height},
    )
    return still


def _newest_case() -> dict[str, Any] | None:
    """Report of the visitor's newest answer, by names for its case and sources; None without one."""
    answers.refuse()  # It belongs to one visitor.
    report = visitor.newest_report()
    return report and with_names(report) | {"case": case_title(report)}


def _case(cache: QueryCache, view: View, report: Mapping[str, Any]) -> list[Component]:
    """The visitor's newest answer: verdict, the five words, and evidence."""
    given = verdict_words(report["results"])
    words = [
        html.Div([html.B(name), meaning], className=f"verdict-{name.split()[0]}{' given' if name == given else ''}")
        for name, meaning in meanings(report).items()
    ]
    case = [
        html.P("Provenance Atlas", className="kicker"),
        html.H2(report["question"], className="brief-title", dir="auto"),
        verdict.verdict(report, cache, titled=True),
        html.Div(words, className="verdict-words"),
    ]
    if not report["results"]["stated"]:  # a curve would look like an answer
        return case
    results = report["results"]
    bounded = f" {BOUNDS_WORDS}" if any(running_bounds(report)) else ""
    mixed = len({row["leader"] == results["subject"] for row in results["running"]}) > 1
    hollow = " (hollow where another source leads)" if mixed else ""
    caption = (
        f"Evidence for {results['subject']} after every trace{hollow}; the band holds 90 % of random orders.{bounded} "
        f"n = {results['traces']:,} traces. {line_words(report)}"
    )
    curve = _still(evidence_curve(report, theme=view.theme), 236)
    drawn = html.Div(curve, role="img", className="plate-drawing", **shell.aria(label="Evidence after every trace"))
    reader = sections.reader_words(cache, SimpleNamespace(**report["method"]))
    by = html.Span(f" Judged by {reader}.", className="slide-only")
    return [*case, html.Figure([drawn, html.Figcaption([caption, by], className="long")], className="plate")]


def _compared(foot: list[str], name: str) -> Component:
    """The visitor's newest comparison of a kind, or where to make one."""
    answers.refuse()  # It belongs to one visitor.
    if test := visitor.newest_comparison(name):
        return _sheet([*foot, f"result {test['sha256'][:16]}"], comparison_answers.sheet(test), "case sheet-compared")
    way = [("Compare your own files, or open a sample", f"/attribute?mode={MODES[name]}")]
    absent = shell.empty("Nothing has been compared in this session yet", HELD, way)
    return _sheet(foot, [html.H2(COMPARED[name], className="brief-title"), absent], f"{CASE} sheet-absent")


# ---- builds ---------------------------------------------------------------------------------------------------------


def builds_of(cache: QueryCache, views: Mapping[str, View]) -> pd.DataFrame:
    """Builds behind figures of views, a row a figure and build.

    Columns of table ``builds``, plate (name of the figure), and group: builds of one command, code and data share a
    number, counted from 0 in the order of the figures.
    """
    parts = [KINDS[name].meta().builds(cache, view).assign(plate=name) for name, view in views.items()]
    if not parts:
        return pd.DataFrame(columns=["plate", "group"])
    frame = pd.concat(parts, ignore_index=True)
    same = ["stage", "command", "code_version", "data_hash", "proxy_hash", "origin"]
    return frame.assign(group=frame.groupby(same, sort=False, dropna=False).ngroup())


def _builds(builds: pd.DataFrame) -> list[Component]:
    head: list[Component] = [
        html.H3("What made these numbers", className="plate-title"),
        html.P(BEHIND, className="sentence"),
    ]
    entries, known = [], dict[str, int]()
    for number, rows in builds.drop_duplicates(["group", "build_id"]).groupby("group", sort=True):
        first, place = rows.iloc[0], int(str(number)) + 1
        files = [str(name) for name in rows["source_file"] if isinstance(name, str) and name]
        facts: dict[str, Any] = {
            "Builds": html.Span(", ".join(rows["build_id"]), className="mono"),
            "Date": f"{date_words(newest := rows['started_at'].max())}, {newest:%H:%M} UTC",
            "Commit": html.Span(str(first["code_version"]), className="mono"),
            "Data": _hash(first["data_hash"], place, known),
            "Proxy": _hash(first["proxy_hash"], place, known),
            "Machine": str(first["host"]),
            "Files": html.Span(", ".join(files), className="mono") if files else "",
        }
        title = html.Strong(f"{place}. {first['stage']}")
        entries.append(shell.build([title, shell.origin_badge(str(first["origin"]))], str(first["command"]), facts))
    return [*head, html.Div(entries, className="brief-builds")]


def _hash(value: object, place: int, known: dict[str, int]) -> Component | str:
    """A hash of build number ``place``, or the number of the build that named it first, which ``known`` holds."""
    if not isinstance(value, str) or not value:
        return ""
    first = known.setdefault(value, place)
    return html.Span(f"sha256 {value}", className="mono") if first == place else f"as of build {first}"


# ---- figures, drawn for paper; a caption stands without the page around it ------------------------------------------


def scope(cache: QueryCache, view: View) -> str:
    """Roster and domain in words: '165 sources on Agent500'."""
    return f"{pieces.roster_size(cache, view)} sources on {pieces.domain_words(view.domain)}"


def _points(cache: QueryCache, view: View) -> pd.DataFrame:
    return cache.ask(queries.projection, cache.map_reader(view), view.roster, view.domain, "tsne", 2)


def _map(cache: QueryCache, view: View, points: pd.DataFrame) -> PrintFigure:
    reader = cache.map_reader(view)
    none = pd.DataFrame(columns=["source", "neighbor", "rank"])
    marks = cache.marks()
    figure = go.Figure(map.map_figure(points, none, marks, theme=view.theme, dimensions=2))
    quality = pieces.drawing_quality(cache, dataclasses.replace(view, projection="tsne", dim=2))
    shared, trust = quality.get("knn_jaccard_10"), quality.get("trustworthiness_10")
    near = (
        ""
        if shared is None
        else f" {100 * shared:.1f} % overlap (Jaccard) of each source's ten nearest with those drawn."
    )
    near += "" if trust is None else f" Trustworthiness of the ten nearest: {trust:.2f}."
    counts = points["family"].value_counts()
    entries = [
        pieces.marked(shell.symbol(marks[str(family)], view.theme), f"{family} {count}")
        for family, count in counts.items()
    ]
    key = html.Div(entries, className="brief-key")
    caption = (
        f"Every mark is one source, placed so that sources whose answers look alike to {cache.reader_words(reader)} "
        "lie close together (t-SNE of cosine distances). A flat map bends distances; distances between far groups "
        f"mean little.{near} n = {scope(cache, view)}; places are computed from all of them and have no interval."
    )
    return PrintFigure(figure, 520, caption, [cache.origin(reader)], key)


def _curves(cache: QueryCache, view: View) -> pd.DataFrame:
    """Accuracy of the chosen reader and of the best others of its method, against the budget."""
    reader = cache.attribution_reader(view)
    readers = cache.ask(queries.readers)
    named: list[str] = []
    if reader:
        alike = readers["method"].eq(READER_PAPER) & readers["view"].eq(cache.reader_row(reader)["view"])
        named = [name for name in readers["reader"][alike] if name != reader]
    frame = pieces.curves(cache, view, [reader, *named], "accuracy")
    top = frame[(frame["k"] == frame["k"].max()) & (frame["reader"] != reader)]
    best = [reader, *top.sort_values("value", ascending=False, kind="stable")["reader"][:OTHERS]]
    return frame[frame["reader"].isin(best)]


def _paper(names: Iterable[str]) -> str:
    """Whose method READER is, where it is among the names of a figure."""
    return " READER is the paper's method." if any(name.startswith("READER") for name in names) else ""


def _line_names(cache: QueryCache, readers: Sequence[str]) -> dict[str, str]:
    """Names of lines, where that of READER next to other methods holds its proxy too."""
    names = compared.names_of(cache, readers)
    return {
        reader: f"{name} · {cache.short_name(reader)}" if name == METHOD_NAMES[READER_PAPER] else name
        for reader, name in names.items()
    }


def _budget(cache: QueryCache, view: View, frame: pd.DataFrame) -> PrintFigure:
    reader, token = cache.attribution_reader(view), TOKENS[view.theme]
    others = [name for name in dict.fromkeys(frame["reader"]) if name != reader]
    names = _line_names(cache, [reader, *others])
    lines = [Line(name, names[name], token["edge"], front=False) for name in others]
    lines.append(Line(reader, names[reader], token["accent"]))
    size = pieces.roster_size(cache, view)
    curves = frame.assign(line=frame["reader"])
    figure = attribution.budget_curves(
        curves, lines, theme=view.theme, axis="Accuracy", k=view.k, chance=1 / size, unit=True,
        height=ROOM_OVER_TABLE,
    )  # fmt: skip
    own = frame[frame["reader"] == reader]
    values = frame.pivot_table(index="reader", columns="k", values="value").reindex([reader, *others])
    rows = [
        pieces.row(names[name], *(f"{100 * share:.1f}" for share in shares)) for name, *shares in values.itertuples()
    ]
    numbers = pieces.table(["Right, in %, with so many traces", *(f"{k:,}" for k in values.columns)], rows)
    grey = " Grey: other readers; dashed and hollow: published, not measured here." if others else ""
    bands = pieces.bands_note(own).replace("bars:", f"bars, of {names[reader]} alone:" if others else "bars:")
    alike = all(cache.reader_row(one)["method"] == READER_PAPER for one in names)
    paper = " Lines are READER, the paper's method, by its proxy." if alike else _paper(names.values())
    caption = (
        f"Share of groups of traces whose source is named first among {scope(cache, view)}, against the number of "
        f"traces in a group{bands}; the flat dashed line: chance.{grey} n = "
        f"{int(own['n'].max()):,} groups a seed at one trace.{paper}"
    )
    return PrintFigure(figure, ROOM_OVER_TABLE, caption, {cache.origin(name) for name in names}, numbers)


def _confusion(cache: QueryCache, view: View, cells: pd.DataFrame) -> PrintFigure:
    order = attribution.confusion_order(cache.ask(queries.sources, view.roster))
    narrow = 7 * attribution.TURNED_WIDTH // 6  # a sheet shows the drawing at less than half its size, names upright
    figure = go.Figure(attribution.confusion_matrix(cells, order, theme=view.theme, apart=narrow))
    total, wrong = int(cells["count"].sum()), int(cells.loc[cells["truth"] != cells["predicted"], "count"].sum())
    at = _accuracy(cache, view)
    right = f" Right in {100 * at['value'].iloc[0]:.1f} %{pieces.spread_text(at.iloc[0])}." if len(at) else ""
    caption = (
        f"Rows are the true source, columns the answer at {traces(view.k)}, ordered by family and outlined; a perfect "
        f"reader has a full diagonal and nothing else. Families, from above: {_in_order(order['family'])}. "
        f"n = {total:,} groups over three seeds, {wrong:,} of them wrong.{right}"
    )
    return PrintFigure(figure, attribution.MATRIX_HEIGHT, caption, [cache.origin(cache.attribution_reader(view))])


def _in_order(families: pd.Series) -> str:
    """The families of a matrix by name, and how many others, which the drawing counts too."""
    named, rest = attribution.named_families(families)
    return ", ".join(named) + (f" and {rest} smaller" if rest else "")


def _ringed(cache: QueryCache, view: View, name: str, printed: PrintFigure, case: Mapping[str, Any]) -> PrintFigure:
    """A figure with the case in it: a ring around its claimed source and those not told apart, or its own traces."""
    results = case["results"]
    if name == "budget":
        return _own_traces(cache, view, printed, int(results["traces"]))
    undecided = (results.get("siblings") or ()) if results["stated"] else ()  # an answer that names nobody rings nobody
    named = [results.get("claimed"), *undecided] if name in RINGED else []
    order = attribution.confusion_order(cache.ask(queries.sources, view.roster))
    own = order[order["name"].isin(named) | order["source"].isin(named)]
    if own.empty:
        return printed
    names, figure = dict(tables.rows(own, "source", "name")), go.Figure(printed.figure)
    said = f" Ringed, of the case: {', '.join(names.values())}."
    if name == "map":
        points = map.scaled(_points(cache, view)[["source", "name", "x", "y"]])
        points = points[points["source"].isin(names)]
        ring: Plot = {"mode": "markers", "marker": plots.outlined(20, "rgba(0,0,0,0)", PAPER["ink"], 2)}
        figure.add_trace(plots.scatter("of the case", points["x"], points["y"], **ring))
        return dataclasses.replace(printed, figure=figure, caption=printed.caption + said)
    reach = max(0.5, len(order) / 50)
    places = own.index.to_numpy()
    for run in np.split(places, np.flatnonzero(np.diff(places) > 2 * reach) + 1):  # rings would lie over each other
        low, high = float(run[0] - reach), float(run[-1] + reach)
        corners = {"x0": low, "x1": high, "y0": low, "y1": high}
        figure.add_shape(type="circle", line=plots.pen(PAPER["ink"], 1.5), **corners)
    said = " ".join([said, *pieces.taken_for(cache, view, names)])
    return dataclasses.replace(printed, figure=figure, caption=printed.caption + said)


def _own_traces(cache: QueryCache, view: View, printed: PrintFigure, many: int) -> PrintFigure:
    """A curve with a line at the traces of a case, in place of that at the chosen budget."""
    curve = pieces.curves(cache, view, cache.attribution_reader(view), "accuracy").set_index("k")["value"].sort_index()
    if curve.empty:
        return printed
    below, above = curve[curve.index <= many].tail(1), curve[curve.index >= many].head(1)
    near = pd.concat([below, above]).groupby(level=0).first().items()
    shares = " and ".join(f"{100 * share:.1f} % at {k:,}" for k, share in near)
    yours = f"your {traces(many)}"
    said = f" Your case has {traces(many)}: {shares}." if len(below) and len(above) else ""
    if not said:
        return dataclasses.replace(
            printed, caption=f"{printed.caption} Your case has {traces(many)}; so many were not tested."
        )
    figure = go.Figure(printed.figure)
    figure.layout.shapes = [shape for shape in figure.layout.shapes if shape.xref != "x" or shape.x0 != view.k]
    figure.add_shape(plots.upright(many, PAPER["accent"], xref="x"))
    late = math.log10(many) > 0.7 * math.log10(curve.index.max())
    place = {"yref": "paper", "yanchor": "bottom", "xanchor": "right" if late else "left"}
    figure.add_annotation(plots.note(math.log10(many), 1, yours, 13, PAPER["accent-ink"], **place))
    figure.update_layout(margin_t=28)
    return dataclasses.replace(printed, figure=figure, caption=printed.caption + said)


def _siblings(cache: QueryCache, view: View, frame: pd.DataFrame) -> PrintFigure:
    blind = attribution.blind_share(cache.ask(queries.sources, view.roster)["family"])
    figure = attribution.family_errors(frame, theme=view.theme, expectation=blind, k=view.k)
    caption = (
        "Share of the wrong answers that name a sibling, a source of the same family, at every number of traces; "
        f"chance: {100 * blind:.0f} %. Where most errors stay in the family, the family "
        f"can be answered for although the source cannot. n = {int(frame['errors'].max()):,} errors a seed at the "
        f"smallest number of traces, {int(frame['errors'].min()):,} at the largest; {scope(cache, view)}. No interval "
        "is stored."
    )
    return PrintFigure(figure, 380, caption, [cache.origin(cache.attribution_reader(view))])


def _purities(cache: QueryCache, view: View) -> pd.DataFrame:
    return cache.ask(queries.family_purity, view.roster, view.domain, cache.map_reader(view) or "")


def _purity(cache: QueryCache, view: View, frame: pd.DataFrame) -> PrintFigure:
    reader = cache.map_reader(view)
    line = Line(reader, cache.short_name(reader), TOKENS[view.theme]["accent"])
    figure = neighbourhoods.family_purity(frame, [line], theme=view.theme)
    row = frame.iloc[0]
    caption = (
        "Share of the k sources with the most similar answers that are of the same family, with 95 % bootstrap "
        f"intervals, next to chance; the reader knows no names. n = {int(row['sources'])} sources of "
        f"{int(row['families'])} families with at least five members."
    )
    return PrintFigure(figure, 380, caption, [cache.origin(reader)])


def _readouts(cache: QueryCache, view: View, frame: pd.DataFrame) -> PrintFigure:
    several = frame.groupby("reader")["readout"].nunique().max() > 1
    picked = " A reader's highest mark is picked on these same splits and so optimistic." if several else ""
    caption = (
        "Each reader is asked whether one small model was derived from another, with whole families kept out of its "
        "training: the share of pairs told right, mean over the splits, with 95 % intervals. Filled marks were "
        f"measured here, hollow ones are published numbers; the dotted line is a coin.{picked} n = "
        f"{relationships.summaries(cache, view)['row'].nunique()} readers, {int(frame['n'].max())} splits each."
        f"{_paper(relationships.reader_names(cache)[one] for one in frame['reader'].unique())}"
    )
    drawn = relationships.readouts(cache, view).figure
    figure, height = go.Figure(drawn), dots.height_of(drawn) + LEGEND_ROOM
    # Above the drawing, a legend may be as wide as the sheet.
    place = {"xref": "paper", "x": -0.4, "yref": "paper", "y": 1 + 20 / (height - LEGEND_ROOM - 116)}
    figure.update_layout(legend={**plots.ABOVE, **place}, margin_t=60 + LEGEND_ROOM)
    best = plots.end_note(-0.62, "best", PAPER["soft"], 13, 12, align="left") | {"yanchor": "bottom"}
    return PrintFigure(figure.add_annotation(best), height, caption, set(frame["origin"]))


def _kinship(cache: QueryCache, view: View, frame: pd.DataFrame) -> PrintFigure:
    reader = relationships.shown_reader(cache, view)
    name = relationships.reader_names(cache)[reader]
    figure = relationships.kinship(cache, view).figure
    plane = pairs.decision_line(frame) if any(trace["name"] == "decision line" for trace in figure["data"]) else None
    line = f" {'Above' if plane[1] > 0 else 'Below'} the decision line: called related." if plane else ""
    caption = (
        f"Pairs of models in the scores of {name}: filled discs are a parent and a model derived from it, open "
        f"diamonds two models of different parents. n = {len(frame)} pairs, {int(frame['related'].sum())} related; "
        f"every mark is one pair, so there is no interval.{line}{_paper([name])}"
    )
    readers = cache.ask(page_queries.relationship_readers).set_index("reader")
    return PrintFigure(figure, 440, caption, [str(readers.at[reader, "origin"])])


def _reached(cache: QueryCache, view: View, frame: pd.DataFrame) -> PrintFigure | None:
    drawn = fused.reached(cache, view)
    if drawn.absent is not None:
        return None
    published = NONE_PUBLISHED
    if frame["answer"].eq("paper").any():
        published = (
            "Hollow, and named in brackets: the best of every reader that the paper publishes; filled: measured here."
        )
    aims = "" if frame["aim"].isna().all() else " Upright bars are what was aimed for."
    caption = (
        f"{published} Accuracy of the fused readout, a weighted sum of several readers on small proxies, beside the "
        f"paper's probe on such a proxy and word n-grams.{aims} Bars along the line are 95 % intervals where they are "
        f"stored. n = {scope(cache, view)}."
    )
    return PrintFigure(
        drawn.figure, dots.height_of(drawn.figure), caption, {cache.origin(one) for one in frame["reader"].unique()}
    )


def _with_readers(cache: QueryCache, view: View) -> View:
    """The view with the readers that Compare would set next to the header's."""
    readers = tuple(compared.chosen(cache, dataclasses.replace(view, readers=())))
    return dataclasses.replace(view, readers=readers, metric="accuracy")


def _panels(cache: QueryCache, view: View, frame: pd.DataFrame) -> PrintFigure:
    asked = _with_readers(cache, view)
    drawn = compared.panels(cache, asked)
    paper = _paper(compared.names_of(cache, asked.readers).values())
    caption = (
        "Accuracy against the number of traces, on whole responses, on their first 64 and 32 tokens, and on another "
        "set of prompts (Math100), by readers that were trained on whole responses of Agent500; the fused readout has "
        "seen short ones too. Bands are one standard deviation over the folds. Filled: measured here; dashed and "
        "hollow: published. "
        f"n = {int(frame['n'].max()):,} groups at one trace, {scope(cache, view)}.{paper}"
    )
    return PrintFigure(drawn.figure, 340, caption, {cache.origin(one) for one in frame["reader"].unique()})


def _panel_rows(cache: QueryCache, view: View) -> pd.DataFrame:
    return compared.panel_rows(cache, _with_readers(cache, view))


def _clean_key(cache: QueryCache, view: View) -> dict[str, object]:
    return pieces.attribution_key(cache, view) | {"condition": "clean"}


def _readers_of(rows: pieces.Rows) -> pieces.Builds:
    return pieces.accuracy_builds(lambda cache, view: rows(cache, view)["reader"])


_MAP_KEY = pieces.map_key("reader", "roster", "domain")
KINDS = {
    "map": Kind("Which sources write alike?", _map, _points, pieces.builds("projections", _MAP_KEY)),
    "budget": Kind("How many traces until the source is clear?", _budget, _curves, _readers_of(_curves)),
    "confusion": Kind(
        "Which sources are taken for which?", _confusion, pieces.confusion, pieces.builds("confusion", _clean_key)
    ),
    "siblings": Kind(
        "When it errs, does it stay in the family?", _siblings, pieces.without(pieces.error_counts, "n"),
        pieces.builds("attribution_metrics", _clean_key),
    ),
    "purity": Kind(
        "Are a source's neighbours its family?", _purity,
        _purities, pieces.builds("family_purity", _MAP_KEY),
    ),
    "readouts": Kind(
        "Which reader tells related models from unrelated ones?", _readouts,
        pieces.without(relationships.summaries, "build_id", "row"), relationships.metrics_builds,
    ),
    "kinship": Kind(
        "How far apart do related and unrelated pairs lie?", _kinship, relationships.shown_rows,
        relationships.scores_builds,
    ),
    "reached": Kind(
        "What do our readouts reach?", _reached, fused.goal_frame, fused.goals_builds
    ),
    "shorter": Kind(
        "Does the order hold on other prompts and shorter responses?", _panels, _panel_rows, _readers_of(_panel_rows)
    ),
}  # fmt: skip
"""Figures on offer, in the order of the list."""
QUESTIONS = {CASE: CASE_QUESTION} | COMPARED | {name: kind.question for name, kind in KINDS.items()}
FIGURES = {f"brief-{name}": kind.meta() for name, kind in KINDS.items()}
PAGE = pieces.page("brief", layout, register, FIGURES)
