"""Words and signs of every page: names of sources and families, terms that explain themselves, origins of numbers."""

from __future__ import annotations

from urllib.parse import quote

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from atlas.state import View
from atlas.theme import Mark, Theme


def icon(name: str) -> Component:
    """A drawn sign; always beside a word or inside something that has a label."""
    return html.Span(className=f"icon icon-{name}", **{"aria-hidden": "true"})


def term(word: str, meaning: str) -> Component:
    """A word with a dotted underline that explains itself."""
    return dmc.Tooltip(
        label=meaning,
        multiline=True,
        w=280,
        openDelay=200,
        events={"hover": True, "focus": True, "touch": True},
        boxWrapperProps={"display": "inline"},
        children=html.Span(word, className="term", tabIndex=0),
    )


def source_name(name: str) -> Component:
    """A source's name as text, whatever its script or length."""
    return html.Span(str(name), className="name", title=str(name), dir="auto")


def symbol(mark: Mark, theme: Theme) -> Component:
    """A family's mark as the figures draw it."""
    return html.Span(
        className="symbol", style={"color": mark.colour(theme)}, **{"data-symbol": mark.symbol, "aria-hidden": "true"}
    )


ORIGINS = {"measured": "Measured here", "published": "Published"}


def origin_badge(origin: str, figure: str = "") -> Component:
    """'Measured here' solid, 'published' hollow; that of a figure follows the reader.

    A figure that shows readers of both kinds has no badge of its own (an empty ``origin``).
    """
    if not origin:
        return html.Span()
    identity = {"id": {"type": "origin", "figure": figure}} if figure else {}
    return html.Span(ORIGINS[origin], className=f"origin origin-{origin}", **identity)


def source_link(view: View, source: str, name: str) -> Component:
    """A source's name that leads to its page."""
    return dcc.Link(source_name(name), href=source_path(view, source), className="name-link")


def source_path(view: View, source: str) -> str:
    """Link of a source's page with the header's choices."""
    return f"/source/{quote(source, safe='')}?{_shared_query(view)}"


def family_link(view: View, family: str) -> Component:
    """A family's name that leads to its page."""
    href = f"/family/{quote(family, safe='')}?{_shared_query(view)}"
    return dcc.Link(html.Span(family, dir="auto"), href=href, className="family-link")


def _shared_query(view: View) -> str:
    return View(reader=view.reader, roster=view.roster, domain=view.domain, theme=view.theme).query()
