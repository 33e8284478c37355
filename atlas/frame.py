"""The frame around every page: navigation, header, live regions, and the callbacks that all pages share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import ALL, MATCH, ClientsideFunction, Dash, Input, Output, State, dcc, html, no_update, page_container
from dash.development.base_component import Component

from atlas import shell
from atlas.api import answers
from atlas.data import DOMAIN_NAMES, QueryCache, questions
from atlas.pages import brief, compare, pieces, relationships
from atlas.pages.attribute import sections, visitor
from atlas.shell import Page, aria, icon
from atlas.state import View
from atlas.theme import MONO, SANS
from backend.enrolment.catalogue import Ecosystem, default
from backend.errors import AtlasError
from backend.store import queries

PRESENT = "Present (P): 1 map, 2 accuracy, 3 confusions, 4 your case; arrows step, Escape leaves"
MENU = "Pages, reader, roster and domain"
OFFLINE = "The server does not answer. What you see is what it drew last. "
HELP = {
    "reader": "Who reads the traces: a method, the frozen proxy model it reads with, and the text that the proxy sees",
    "roster": "The list of sources that an answer can name",
    "domain": "The prompts behind the traces: Agent500 (500 agent tasks) or Math100 (100 problems)",
}


def frame(
    cache: QueryCache, pages: Sequence[Page], damaged: Sequence[AtlasError] = (), *, sealed: bool = False
) -> Component:
    """Navigation, header and the place for a page.

    damaged : enrolments that cannot be read. sealed : whether the visitor may not see what the generation holds.
    """
    options: dict[str, list[dict[str, Any]]] = {}
    view = View()
    if cache.problem() is None and not sealed:
        view = cache.resolve_view(view)
        rosters = cache.ask(queries.rosters)[["roster", "sources"]].to_numpy()
        options = {
            "reader": shell.reader_options(cache),
            "roster": [{"value": roster, "label": f"{roster} · {sources} sources"} for roster, sources in rosters],
            "domain": [{"value": domain, "label": DOMAIN_NAMES.get(domain, domain)} for domain in cache.domains()],
        }
    menu = html.Button([icon("fold"), "Menu"], id="menu", className="menu quiet", **aria(expanded="false", label=MENU))
    bar = [
        menu,
        *(_choice(name, options.get(name, []), getattr(view, name), grow=name == "reader") for name in HELP),
        html.Div(className="gap"),
        _icon_button("copy-view", "link", "Copy a link to this view"),
        _icon_button("present", "present", PRESENT),
        _icon_button("theme-toggle", "theme", "Switch between dark and light"),
    ]
    lost = "An enrolment is damaged and does not answer: "
    problems = [html.Div([lost, str(error)], className="problem", role="alert") for error in damaged]
    content = html.Main(id="content", className="content", tabIndex=-1, children=page_container)
    more = html.Button("more", id="readers-more", className="quiet", **aria(expanded="false", controls="readers-note"))
    note = html.Div([html.Div(id="readers-note"), more], className="readers-note")
    readers = [] if sealed else [note, html.Div(id="link-note", className="link-note")]
    stage = html.Div([html.Header(bar, className="bar"), *readers, *problems, content], className="stage")
    sizes = {"xs": "12px", "sm": "13px", "md": "15px", "lg": "18px", "xl": "24px"}
    fonts = {"fontFamily": SANS, "fontFamilyMonospace": MONO, "fontSizes": sizes}
    whole: Component = dmc.MantineProvider(
        id="mantine",
        forceColorScheme="dark",
        theme={**fonts, "defaultRadius": 4, "respectReducedMotion": True},
        children=[
            dcc.Store(id="theme"),
            dcc.Store(id="view", data={}),
            dcc.Store(id="tables"),
            html.A("Skip to the content", href="#content", className="skip"),
            html.Div([_navigation(pages), stage], className="frame"),
            html.Button("Leave the presentation", id="present-off", className="present-off"),
            html.Div(id="said", className="said", role="status", **aria(live="polite")),
            html.Div(id="trouble", className="trouble", role="alert"),
            html.Div("Opening …", className="opening working", role="status"),
            html.Div(
                [OFFLINE, html.Button("Try again", id="offline-retry", className="quiet")],
                className="offline",
                role="alert",
            ),
        ],
    )
    return whole


def _navigation(pages: Sequence[Page]) -> Component:
    brand = [html.Span(className="brand-mark"), html.Span("Provenance Atlas", className="rail-word")]
    fold = "Fold or unfold the navigation"
    links = [
        dcc.Link(
            [icon(page.icon), html.Span(page.title, className="rail-word")], id=f"nav-{page.name}", href=page.path,
            className="rail-link", title=page.title,
        )
        for page in pages
        if page.icon
    ]  # fmt: skip
    button = html.Button(
        [icon("fold"), html.Span("Fold", className="rail-word")], id="fold", className="rail-link", title=fold,
        **aria(label=fold, expanded="true"),
    )  # fmt: skip
    children = [html.Div(brand, className="brand"), *links, html.Div(className="gap"), button]
    return html.Nav(children, className="rail", **aria(label="Pages"))


def _choice(name: str, options: list[dict[str, Any]], value: str, *, grow: bool) -> Component:
    label = name.capitalize()
    search = {"filter": shell.BY_WORDS} if grow else {}
    field = shell.select(
        name, label, options, value=value or None, allowDeselect=False, disabled=not options, searchable=grow,
        nothingFoundMessage="No reader has this name" if grow else None, maxDropdownHeight=420,
        placeholder="no data yet", size="sm", **search,
        comboboxProps={"zIndex": 400, "width": "max-content", "position": "bottom-start"},
    )  # fmt: skip
    words = html.Label([shell.term(label, HELP[name])], htmlFor=name, className="choice-label")
    return html.Div([words, field], className="choice choice-wide" if grow else "choice")


def _icon_button(identity: str, sign: str, label: str) -> Component:
    button = html.Button(icon(sign), id=identity, className="icon-button", **aria(label=label))
    tooltip: Component = dmc.Tooltip(button, label=label, openDelay=300)
    return tooltip


FIGURES = "Figures here are by "
COMPARED = {
    "two": "Windows are compared with each other, not with enrolled sources.",
    "reference": "Traces are compared with the reference's answers, not with enrolled sources.",
    "check": "A report is checked with the ecosystem that it names.",
}
"""What takes the place of the roster in the other modes of the page Attribute."""


def readers_words(
    cache: QueryCache,
    view: View,
    path: str,
    ecosystem: Ecosystem | None,
    relates: str = "",
    mode: str = "one",
    figures: Sequence[str] | None = None,
    compared: str = "curves",
    *,
    alone: bool = False,
) -> list[Component | str]:
    """Whose numbers a page shows, and who would judge traces: the header's reader, or another one by its name.

    On the pages Attribute and Watch an ecosystem brings its reader, so that the header does not offer one there; nor
    a roster on Attribute where one ecosystem is ``alone``.
    """
    here = {"/": cache.map_reader, "/neighbourhoods": cache.map_reader}.get(path, cache.attribution_reader)(view)
    names, judge = {}, ""
    if path == "/relationships":
        here, names = relates, relationships.reader_names(cache)
    parts: list[Component | str] = []

    def strong(reader: str, name: str) -> Component:
        named: dict[str, Any] = {"data-name": name}  # a narrow header has no menu: the stylesheet names it there
        above = reader == view.reader and path != "/relationships"
        return html.Strong("the reader above", **named) if above else html.Strong(name)

    def add(words: str, reader: str, name: str) -> None:
        shown = strong(reader, name)
        if reader == judge != view.reader and cache.attribution_reader(of := dataclasses.replace(view, reader=judge)):
            shown = dcc.Link(shown, f"/attribution?{of.query()}", title="How often it is right")
        parts.append(html.Span([words, shown]))

    if path == "/attribute":
        if mode != "one":
            return [COMPARED[mode]]
        if ecosystem is None:
            return []
        many = f"compared with the {len(ecosystem.sources):,} sources of "
        other = ecosystem.roster not in ("", view.roster) and not ecosystem.sample
        lacks = f"No ecosystem of {view.roster} is enrolled here: your traces are " * other
        lead = f"{lacks}{many}" if lacks else many.capitalize()
        return [html.Span([lead, html.Strong(ecosystem.title)], className="alone" if alone else "")]
    if path == "/watch":
        return ["A watch reads with the reader that enrolled the claimed model."]
    if path == "/compare":
        whose = "the readers compared" if compare.chooses_readers(compared) else "all readers with such numbers"
        parts.append(html.Span([FIGURES, html.Strong(whose)]))
    elif path != "/methods":
        known = cache.reader_name(here) if cache.knows(here) else "no reader: this one has none"
        if path == "/brief" and (words := brief.case_words(cache, view, figures, strong(here, known))):
            return words
        add(FIGURES, here, names.get(here, known))
        if path == "/relationships":
            parts.append(html.Span("Reader and models are chosen below."))
    who = "nothing is enrolled"
    if ecosystem:
        judge = ecosystem.reader if ecosystem.roster == view.roster else ""
        who = f"{sections.method_name(ecosystem.reader)}, {len(ecosystem.sources)} sources" + (
            "" if ecosystem.roster else f" ({ecosystem.name})"
        )
    add("Your own traces are judged by ", judge, who)
    return parts


def register(app: Dash, pages: Sequence[Page]) -> None:
    """Callbacks of the frame, and those that all figures share."""
    metas = {name: figure for page in pages for name, figure in page.figures.items()}

    def client(function: str, *wires: Output | Input | State, **options: bool) -> None:
        app.clientside_callback(ClientsideFunction("atlas", function), *wires, **options)

    def each(kind: str) -> dict[str, Any]:
        return {"type": kind, "figure": MATCH}

    def every(kind: str) -> dict[str, Any]:
        return {"type": kind, "figure": ALL}

    def linked(link: dict[str, str]) -> View:
        return questions().resolve_view(View.parse(link))

    client(
        "arrive",
        *(Output(name, "value") for name in ("reader", "roster", "domain")),
        Input("_pages_location", "search"),
        Input("_pages_location", "pathname"),
        *(State(name, part) for part in ("data", "value") for name in ("reader", "roster", "domain")),
    )
    client("header", *shell.SHARED)
    themed = Output("theme", "data"), Output("mantine", "forceColorScheme")
    client("theme", *themed, Input("theme-toggle", "n_clicks"), State("theme", "data"))
    client("fold", Output("fold", "aria-expanded"), Input("fold", "n_clicks"))
    client("copyLink", Input("copy-view", "n_clicks"), prevent_initial_call=True)
    client("copyLink", Input(each("link"), "n_clicks"), prevent_initial_call=True)
    client("picture", Input(each("png"), "n_clicks"), Input(each("svg"), "n_clicks"), prevent_initial_call=True)
    pressed = Output(each("body"), "className"), Output(each("table"), "aria-pressed")
    client("tableShown", *pressed, Input(each("table"), "n_clicks"), prevent_initial_call=True)
    # A callback without an output is not called when its page opens, so this one has one.
    client("settled", Output("settled-told", "data"), Input("settled", "data"))
    client("linkWords", Output("link-told", "data"), Input("link-words", "data"))

    @app.callback(
        Output(every("origin"), "children"),
        Output(every("origin"), "className"),
        *shell.SHARED,
        State(every("origin"), "id"),
        prevent_initial_call=True,
    )
    @answers.pure
    def origins(reader: str, roster: str, domain: str, theme: str, identities: list[dict[str, str]]) -> Any:
        cache, view = questions(), shell.shared_view(reader, roster, domain, theme)
        found = [cache.origin(metas[identity["figure"]].reader(cache, view)) for identity in identities]
        return [shell.ORIGINS[origin] for origin in found], [f"origin origin-{origin}" for origin in found]

    @app.callback(
        Output("readers-note", "children"),
        *shell.SHARED,
        Input("_pages_location", "pathname"),
        Input("attr-ecosystem", "value", allow_optional=True),
        Input("relates", "value", allow_optional=True),
        Input("attr-mode", "value", allow_optional=True),
        Input("brief-figures", "value", allow_optional=True),
        Input("compare-figure", "data", allow_optional=True),
    )
    def readers_note(
        reader: str,
        roster: str,
        domain: str,
        theme: str,
        path: str,
        chosen: str | None,
        relates: str | None,
        mode: str | None,
        figures: list[str] | None,
        compared: str | None,
    ) -> Any:
        if questions().problem() is not None:
            return None
        view = shell.shared_view(reader, roster, domain, theme)
        known = visitor.ecosystems()
        usual = default([one for one in known if not one.sample], None, view.reader, view.roster)
        ecosystem = next((one for one in known if one.name == chosen), usual)
        alone = sum(not one.sample for one in known) < 2
        return readers_words(
            questions(), view, path, ecosystem, relates or "", mode or "one", figures, compared or "curves", alone=alone
        )

    # The browser knows which tables are open, so that it calls the server for none where none is.
    opened = Input(every("table"), "n_clicks"), Input("view", "data"), State(every("table"), "id")
    client("tables", Output("tables", "data"), *opened, prevent_initial_call=True)

    @app.callback(
        Output(every("rows"), "children"),
        Input("tables", "data"),
        State(every("rows"), "id"),
        prevent_initial_call=True,
    )
    @answers.pure
    def rows(request: dict[str, Any], identities: list[dict[str, str]]) -> Any:
        view = linked(request["view"])

        def shown(figure: str) -> Any:
            if figure not in request["figures"]:
                return no_update
            table = metas[figure].table(questions(), view)
            if table.empty:
                remedy = "Choose another reader, roster or domain above"
                return shell.empty("There are no rows for this choice", remedy)
            # Codes belong to the CSV alone.
            table, heads = pieces.readable(questions(), table, view)
            heads |= metas[figure].heads
            widths = metas[figure].widths
            return shell.table(table, identity={"type": "grid", "figure": figure}, heads=heads, widths=widths)

        return [shown(identity["figure"]) for identity in identities]

    @app.callback(
        Output(each("download"), "data"),
        Input(each("csv"), "n_clicks"),
        State("view", "data"),
        State(each("csv"), "id"),
        prevent_initial_call=True,
    )
    def csv(clicks: int | None, link: dict[str, str], identity: dict[str, str]) -> Any:
        if not clicks:
            return no_update
        view = linked(link)
        table = metas[identity["figure"]].table(questions(), view)
        text, of = shell.csv_text(table), view.source if {"nearest_to", "compared_with"} & set(table) else ""
        of += f"_{view.other}" if "compared_with" in table else ""
        # Pairs of models are of no roster.
        where = () if identity["figure"] in relationships.FIGURES else (view.roster, view.domain)
        parts = ("atlas", identity["figure"], of, *where, questions().generation().name)
        return {"content": text, "filename": "_".join(filter(None, parts)) + ".csv", "type": "text/csv"}

    @app.callback(
        Output(each("made-body"), "children"),
        Input(each("made"), "n_clicks"),
        State("view", "data"),
        State(each("made"), "id"),
        prevent_initial_call=True,
    )
    def builds(clicks: int | None, link: dict[str, str], identity: dict[str, str]) -> Any:
        return shell.builds_list(metas[identity["figure"]].builds(questions(), linked(link))) if clicks else no_update
