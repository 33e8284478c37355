"""The frame around every page: navigation, header, and the places in which the atlas speaks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import dcc, html, page_container
from dash.development.base_component import Component

from atlas.data import DOMAIN_NAMES, QueryCache
from atlas.shell.callbacks import Page
from atlas.shell.words import BY_WORDS, icon, reader_options, select, term
from atlas.state import View
from atlas.theme import MONO, SANS
from backend.errors import AtlasError
from backend.store import queries

READER_HELP = "Who reads the traces: a method, the frozen proxy model it reads with, and the text that the proxy sees"
ROSTER_HELP = "The list of sources that an answer can name"
DOMAIN_HELP = "The prompts behind the traces: Agent500 (500 agent tasks) or Math100 (100 problems)"


def frame(
    cache: QueryCache, pages: Sequence[Page], damaged: Sequence[AtlasError] = (), *, sealed: bool = False
) -> Component:
    """Navigation, header and the place for a page.

    Parameters
    ----------
    cache : QueryCache
    pages : sequence of Page
    damaged : sequence of AtlasError
        Enrolments that cannot be read.
    sealed : bool
        Whether the visitor may not see what the generation holds.
    """
    problem = cache.problem()
    readers: list[dict[str, Any]] = []
    rosters: list[dict[str, Any]] = []
    domains: list[dict[str, Any]] = []
    view = View()
    if problem is None and not sealed:
        view = cache.resolve_view(view)
        readers = reader_options(cache)
        rosters = [
            {"value": row.roster, "label": f"{row.roster} · {row.sources} sources"}
            for row in cache.ask(queries.rosters).itertuples(index=False)
        ]
        domains = [{"value": domain, "label": DOMAIN_NAMES.get(domain, domain)} for domain in cache.domains()]
    bar = html.Header(
        className="bar",
        children=[
            _choice("reader", "Reader", readers, view.reader, READER_HELP, grow=True),
            _choice("roster", "Roster", rosters, view.roster, ROSTER_HELP),
            _choice("domain", "Domain", domains, view.domain, DOMAIN_HELP),
            html.Div(className="gap"),
            _icon_button("copy-view", "link", "Copy a link to this view"),
            _icon_button("present", "present", "Present: no controls, larger (Escape leaves)"),
            _icon_button("theme-toggle", "theme", "Switch between dark and light"),
        ],
    )
    lost = "An enrolment is damaged and does not answer: "
    problems = [html.Div([lost, str(error)], className="problem", role="alert") for error in damaged]
    content = html.Main(id="content", className="content", tabIndex=-1, children=page_container)
    stage = html.Div([bar, *problems, content], className="stage")
    sizes = {"xs": "12px", "sm": "13px", "md": "15px", "lg": "18px", "xl": "24px"}
    fonts = {"fontFamily": SANS, "fontFamilyMonospace": MONO, "fontSizes": sizes}
    return dmc.MantineProvider(
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
            html.Div(id="said", className="said", role="status", **{"aria-live": "polite"}),
            html.Div(id="trouble", className="trouble", role="alert"),
        ],
    )


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
        **{"aria-label": fold, "aria-expanded": "true"},
    )  # fmt: skip
    children = [html.Div(brand, className="brand"), *links, html.Div(className="gap"), button]
    return html.Nav(children, className="rail", **{"aria-label": "Pages"})


def _choice(
    name: str, label: str, options: list[dict[str, Any]], value: str, help_text: str, *, grow: bool = False
) -> Component:
    search = {"filter": BY_WORDS} if grow else {}
    field = select(
        name, label, options, value=value or None, allowDeselect=False, disabled=not options, searchable=grow,
        nothingFoundMessage="No reader has this name" if grow else None, maxDropdownHeight=420,
        placeholder="no data yet", size="sm", **search,
        comboboxProps={"zIndex": 400, "width": "max-content", "position": "bottom-start"},
    )  # fmt: skip
    words = html.Label([term(label, help_text)], htmlFor=name, className="choice-label")
    return html.Div([words, field], className="choice choice-wide" if grow else "choice")


def _icon_button(identity: str | dict[str, str], sign: str, label: str) -> Component:
    button = html.Button(icon(sign), id=identity, className="icon-button", **{"aria-label": label})
    return dmc.Tooltip(button, label=label, openDelay=300)
