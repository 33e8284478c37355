"""Brief: a printable page for auditors with chosen figures, the method in five sentences, limits and every build."""

from __future__ import annotations

import dataclasses
import datetime
from typing import Any

import dash_mantine_components as dmc
import pandas as pd
from dash import Dash, Input, dcc, html
from dash.development.base_component import Component

from atlas import drawing, shell
from atlas.data import QueryCache
from atlas.figures.plots import rate_text
from atlas.pages import intervals, neighbourhoods, relationships
from atlas.pages.brief import figures as plates
from atlas.pages.brief.figures import USUAL, PrintFigure
from atlas.pages.methods import LIMITS
from atlas.pages.relationships import pairs as related_pairs
from atlas.state import BUDGETS, View
from atlas.theme import TOKENS
from backend.store import queries

METHOD = (
    "All sources were asked the same prompts; a trace is one prompt and the answer that a source gave to it.",
    "A small frozen language model, the proxy, reads every trace, and two summaries of its inner states are kept: "
    "their mean over the answer and how they drift from its start to its end.",
    "A linear probe, trained on other prompts than those it is tested on, turns these numbers into a probability for "
    "every source of the roster.",
    "The evidence of several traces is added, the prior is counted once, and the source with the most evidence is "
    "named.",
    "Every prompt was held out once in five folds, groups of traces were drawn with three seeds, and numbers that "
    "others published are marked as such.",
)
PAPER = TOKENS["light"]
KINDS = {**plates.KINDS, **plates.COMPARED}  # every figure on offer, in the order of the list


@drawing.page
def layout(cache: QueryCache, linked: View) -> Component:
    """The page for a query string."""
    view = cache.opened(linked)
    lead = (
        "A page for the file: choose the figures, print it or save it as PDF. The link holds the choice; reader, "
        "roster and domain are those of the header."
    )
    offered = dmc.MultiSelect(
        id="brief-figures", data=[{"value": name, "label": kind.question} for name, kind in KINDS.items()],
        value=list(chosen(view)), clearable=True, searchable=True, hidePickedOptions=True, size="sm",
        comboboxProps={"zIndex": 300}, attributes=shell.named("Figures of the brief"),
    )  # fmt: skip
    budget = shell.segmented("brief-k", {k: str(k) for k in BUDGETS}, view.k, "Budget K")
    button = html.Button("Print or save as PDF", id="brief-print", className="brief-print")
    controls = [
        html.H1("Brief"),
        html.P(lead, className="sentence"),
        html.Label("Figures, in the order of the choice", htmlFor="brief-figures", className="choice-label"),
        offered,
        html.Div([budget, button], className="controls"),
    ]
    style = {"colorScheme": "light", **{f"--{name}": colour for name, colour in PAPER.items()}}
    children = [
        shell.settled(linked, view),
        drawing.remembered(PAGE.name),
        html.Div(controls, className="brief-controls"),
        html.Article(_sheets(cache, view), id="brief-sheets", className="sheets", style=style),
    ]
    return html.Div(children, className="column brief")


def register(app: Dash) -> None:
    """Callbacks of the page."""
    figures, k = Input("brief-figures", "value"), Input("brief-k", "value")
    drawing.remember(app, PAGE.name, figures=figures, k=k)
    drawing.follow(app, drawing.place("brief-sheets", _sheets), figures=figures, k=k)
    app.clientside_callback(
        "function (clicks) { if (clicks) window.print(); return window.dash_clientside.no_update; }",
        Input("brief-print", "n_clicks"),
        prevent_initial_call=True,
    )


def chosen(view: View) -> tuple[str, ...]:
    """Figures of the brief in their order: those of the link that exist, else the usual ones."""
    return tuple(name for name in view.figures if name in KINDS) or USUAL


def on_paper(view: View) -> View:
    """The view as a brief shows it: light colours, and relationships under the strictest holdout."""
    return dataclasses.replace(view, theme="light", protocol="family", measure="accuracy")


# ---- the sheets -----------------------------------------------------------------------------------------------------


def _sheets(cache: QueryCache, view: View) -> list[Component]:
    view = on_paper(view)
    names = chosen(view)
    drawn = {name: KINDS[name].draw(cache, view) for name in names}
    builds = builds_of(cache, view, [name for name in names if drawn[name] is not None])
    sheets = [_cover(cache, view, names)]
    for number, name in enumerate(names, start=1):
        sheets.append(_sheet(cache, _plate(name, drawn[name], number, builds), name))
    return [*sheets, _sheet(cache, _builds(builds), "builds")]


def _sheet(cache: QueryCache, children: list[Component], name: str) -> Component:
    foot = html.Div(
        [html.Span("Provenance Atlas"), html.Span(f"generation {cache.generation().name}"), html.Span(_today())],
        className="sheet-foot",
    )
    return html.Section([*children, foot], className=f"sheet sheet-{name}")


def _today() -> str:
    day = datetime.datetime.now(datetime.UTC)
    return f"{day.day} {day:%B %Y}"


def _cover(cache: QueryCache, view: View, names: tuple[str, ...]) -> Component:
    reader = cache.attribution_reader(view) or view.reader
    facts = {
        "Reader": [cache.reader_name(reader), " ", shell.origin_badge(cache.origin(reader))] if reader else ["–"],
        "Sources": [f"{plates.words(cache, view)} (roster {view.roster})"],
        "Generation": [html.Span(cache.generation().name, className="mono")],
        "Date": [_today()],
        "This view": [html.Span(f"/brief?{view_link(view)}", className="mono long")],
    }
    children = [
        html.P("Provenance Atlas", className="kicker"),
        html.H2("Which language model wrote these traces?", className="brief-title"),
        shell.facts(facts, className="facts"),
        html.H3("What was found"),
        html.Ul([html.Li(finding) for finding in findings(cache, view)], className="findings"),
        html.H3("The method in five sentences"),
        html.Ol([html.Li(sentence) for sentence in METHOD], className="method"),
        html.H3("Limits"),
        html.Ul([html.Li(limit) for limit in LIMITS], className="limits"),
        html.H3("Figures"),
        html.Ol([html.Li(KINDS[name].question) for name in names], className="contents"),
    ]
    return _sheet(cache, children, "cover")


def view_link(view: View) -> str:
    """Query string that reopens the brief."""
    same = {name: getattr(view, name) for name in ("reader", "roster", "domain", "k")}
    return View(**same, figures=chosen(view)).query()


def findings(cache: QueryCache, view: View) -> list[list[Component | str]]:
    """What the atlas found, one sentence a question, each with the origin of its number."""
    found: list[list[Component | str]] = []
    reader = cache.attribution_reader(view)
    curve = intervals.curves(cache, view, reader, "accuracy")
    at = curve[curve["k"] == view.k]
    if len(at):
        count = len(cache.ask(queries.sources, view.roster))
        found.append(
            [
                f"From {drawing.traces(view.k)} the source is named right in ",
                html.Strong(f"{100 * at['value'].iloc[0]:.1f}\u00a0%"),
                f"{intervals.around(at.iloc[0])} of the groups, among {count} sources; a guess would be right in "
                f"{100 / count:.1f} %. ",
                shell.origin_badge(cache.origin(reader)),
            ]
        )
    mapped = cache.map_reader(view)
    purity = cache.ask(queries.family_purity, view.roster, view.domain, mapped or "")
    nearest = purity[purity["k"] == 1]
    if len(nearest):
        found.append(
            [
                html.Strong(f"{100 * nearest['purity'].iloc[0]:.0f}\u00a0%"),
                f" of {neighbourhoods.purity_sources(nearest.iloc[0])} have one of their own family as their nearest; "
                f"chance gives {100 * nearest['expectation'].iloc[0]:.0f} %. ",
                shell.origin_badge(cache.origin(mapped)),
            ]
        )
    names = related_pairs.reader_names(cache)
    for origin in shell.ORIGINS:
        top = relationships.best(cache, view, origin)
        if top is not None:
            sure = f" ({rate_text(top['low'])} to {rate_text(top['high'])})" if pd.notna(top["low"]) else ""
            found.append(
                [
                    f"Of two models of families that it has never seen, {relationships.called(top, names)} tells in ",
                    html.Strong(f"{100 * top['value']:.1f}\u00a0%"),
                    f" of the pairs whether one is derived from the other{sure}; a coin is right in 50 %. ",
                    shell.origin_badge(origin),
                ]
            )
    return found or [["Nothing has been measured for this choice of reader, roster and domain."]]


def _plate(name: str, plate: PrintFigure | None, number: int, builds: pd.DataFrame) -> list[Component]:
    kind = KINDS[name]
    head = html.H3([html.Span(f"Figure {number}. ", className="soft"), kind.question], className="plate-title")
    if plate is None:
        remedy = "Choose another reader, roster or domain above, or leave this figure out"
        return [head, shell.empty("This has not been measured for the choice of the header", remedy)]
    plot = plate.figure if isinstance(plate.figure, dict) else plate.figure.to_plotly_json()
    printed = {"width": plates.WIDTH, "height": plate.height, "hovermode": False}
    graph = dcc.Graph(
        figure={"data": plot["data"], "layout": plot["layout"] | printed},
        responsive=False,
        config={"displayModeBar": False, "staticPlot": True},
        style={"width": plates.WIDTH, "height": plate.height},
    )
    numbers = ", ".join(str(place + 1) for place in sorted(set(builds.loc[builds["plate"] == name, "group"])))
    title = html.Div([head, shell.origin_badge(plate.origin)], className="figure-title")
    tools = shell.tools(f"brief-{name}", table_view=False)
    words: shell.Children = [plate.caption, html.Span(f" Builds: {numbers}." if numbers else "", className="soft")]
    picture = html.Div(graph, role="img", className="plate-drawing", **shell.aria(label=kind.question))
    figure = [picture, *([plate.below] if plate.below else []), html.Figcaption(words)]
    return [
        html.Div([title, tools], className="figure-head"),
        html.Figure(figure, id=f"figure-brief-{name}", className="plate"),
    ]


# ---- builds ---------------------------------------------------------------------------------------------------------


def builds_of(cache: QueryCache, view: View, names: list[str]) -> pd.DataFrame:
    """Builds behind the figures, a row a figure and build.

    Columns of table ``builds``, plate (name of the figure), and group: builds of one command, code and data share a
    number, counted from 0 in the order of the figures.
    """
    parts = [KINDS[name].meta().builds(cache, view).assign(plate=name) for name in names]
    if not parts:
        return pd.DataFrame(columns=["plate", "group"])
    frame = pd.concat(parts, ignore_index=True)
    same = ["stage", "command", "code_version", "data_hash", "proxy_hash", "origin"]
    return frame.assign(group=frame.groupby(same, sort=False, dropna=False).ngroup())


def _builds(builds: pd.DataFrame) -> list[Component]:
    head: list[Component] = [
        html.H3("What made these numbers", className="plate-title"),
        html.P("Every number names the command, the code, the data and the proxy behind it.", className="sentence"),
    ]
    entries = []
    for number, rows in builds.drop_duplicates(["group", "build_id"]).groupby("group", sort=True):
        first = rows.iloc[0]
        files = [str(name) for name in rows["source_file"] if isinstance(name, str) and name]
        facts: dict[str, Any] = {
            "Builds": html.Span(", ".join(rows["build_id"]), className="mono"),
            "Date": f"{rows['started_at'].max():%Y-%m-%d %H:%M} UTC",
            "Commit": html.Span(str(first["code_version"]), className="mono"),
            "Data": _hash(first["data_hash"]),
            "Proxy": _hash(first["proxy_hash"]),
            "Machine": str(first["host"]),
            "Files": html.Span(", ".join(files), className="mono") if files else "",
        }
        title = html.Strong(f"{int(str(number)) + 1}. {first['stage']}")
        entries.append(shell.build([title, shell.origin_badge(str(first["origin"]))], str(first["command"]), facts))
    return [*head, html.Div(entries, className="brief-builds")]


def _hash(value: object) -> Component | str:
    return html.Span(f"sha256 {value}", className="mono") if isinstance(value, str) and value else ""


def _meta(name: str) -> shell.FigureMeta:
    kind = KINDS[name]
    return shell.FigureMeta(
        lambda cache, view: kind.rows(cache, on_paper(view)),
        lambda cache, view: kind.made(cache, on_paper(view)),
        also=kind.also,
    )


PAGE = shell.Page(
    name="brief",
    path="/brief",
    title="Brief",
    icon="brief",
    layout=layout,
    register=register,
    figures={f"brief-{name}": _meta(name) for name in KINDS},
)
