"""What stands where there is nothing to show, and what a page shows instead of what its link asked for."""

from __future__ import annotations

from collections.abc import Sequence

from dash import dcc, html
from dash.development.base_component import Component

from atlas.state import View
from backend.errors import AtlasError


def settled(asked: View, shown: View) -> Component:
    """What a page shows instead of what its link asked for; the header follows."""
    data = {"roster": shown.roster} if shown.roster != asked.roster else {}
    return html.Div([dcc.Store(id="settled", data=data), dcc.Store(id="settled-told")])


def empty(problem: str, remedy: str, ways: Sequence[tuple[str, str]] = ()) -> Component:
    """What would be here, and what makes it. A command in the remedy is set apart.

    Parameters
    ----------
    problem, remedy : str
    ways : sequence of (words, link)
        Views close to this one that have something to show.
    """
    children: list[Component | str] = [html.P(problem.rstrip(".") + ".")]
    before, start, rest = remedy.partition("python -m ")
    command, _, after = rest.partition(", ")
    children.append(html.P(before.strip()))
    if start:
        children.append(html.Code(start + command, className="command"))
    if after:
        children.append(html.P(f"{after[0].upper()}{after[1:].rstrip('.')}."))
    children += [dcc.Link(words, href=link, className="forward way") for words, link in ways]
    return html.Div(children, className="empty", role="note")


def nowhere(**_: str) -> Component:
    """The page of an address that leads nowhere."""
    return html.Div(
        className="column",
        children=[
            html.H1("There is no such page"),
            empty(
                "The address leads to none of the atlas's pages",
                "It may have been cut, or come from another version",
                [("The map", "/"), ("What everything means", "/methods")],
            ),
        ],
    )


def unknown(kind: str, name: str, view: View) -> Component:
    """The page of a source or family that the atlas does not hold."""
    return html.Div(
        className="column",
        children=[
            html.H1(f"There is no such {kind}"),
            html.P(
                ["The atlas has no ", kind, " called ", html.Span(name, dir="auto", className="long mono"), "."],
                className="sentence",
            ),
            empty("Names change between generations", "Look it up on the map", [("Open the map", f"/?{view.query()}")]),
        ],
    )


def no_generation(error: AtlasError) -> Component:
    """The page of an atlas without data."""
    return html.Div(
        className="column",
        children=[
            html.H1("Nothing has been published yet"),
            html.P(
                "The atlas shows numbers that its own jobs computed. This command fetches what it needs, "
                "computes them and publishes them; a page that is open shows them at the next click.",
                className="sentence",
            ),
            empty(error.problem, error.remedy),
        ],
    )
