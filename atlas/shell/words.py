"""Words of every page: names and links, terms that explain themselves, origins, empty states, fields to choose with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import dash_mantine_components as dmc
from dash import dcc, html
from dash.development.base_component import Component

from atlas.data import QueryCache
from atlas.state import View
from atlas.theme import Mark, Theme
from backend.errors import AtlasError
from backend.store import queries

ORIGINS = {"measured": "Measured here", "published": "Published"}
BY_WORDS = {"function": "byWords"}
"""Options that hold every word that was typed, in their name or in that of their group, in any order."""


def aria(**values: str) -> dict[str, Any]:
    """Attributes for assistive technology: ``label`` sets ``aria-label``."""
    return {f"aria-{name}": value for name, value in values.items()}


def icon(name: str) -> Component:
    """A drawn sign; always beside a word or inside something that has a label."""
    return html.Span(className=f"icon icon-{name}", **{"aria-hidden": "true"})


def term(word: str, meaning: str) -> Component:
    """A word with a dotted underline that explains itself."""
    return dmc.Tooltip(
        html.Span(word, className="term", tabIndex=0), label=meaning, multiline=True, w=280, openDelay=200,
        events={"hover": True, "focus": True, "touch": True}, boxWrapperProps={"display": "inline"},
    )  # fmt: skip


def source_name(name: str) -> Component:
    """A source's name as text, whatever its script or length."""
    return html.Span(str(name), className="name", title=str(name), dir="auto")


def symbol(mark: Mark, theme: Theme) -> Component:
    """A family's mark as the figures draw it."""
    return html.Span(
        className="symbol", style={"color": mark.colour(theme)}, **{"data-symbol": mark.symbol, "aria-hidden": "true"}
    )


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


def settled(linked: View, shown: View) -> Component:
    """What a page shows instead of what its link asked for; the header follows."""
    data = {"roster": shown.roster} if shown.roster != linked.roster else {}
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
        [
            html.H1("There is no such page"),
            empty(
                "The address leads to none of the atlas's pages",
                "It may have been cut, or come from another version",
                [("The map", "/"), ("What everything means", "/methods")],
            ),
        ],
        className="column",
    )


def unknown(kind: str, name: str, view: View) -> Component:
    """The page of a source or family that the atlas does not hold."""
    label = html.Span(name, dir="auto", className="long mono")
    sentence = html.P(["The atlas has no ", kind, " called ", label, "."], className="sentence")
    ways = [("Open the map", f"/?{view.query()}")]
    remedy = empty("Names change between generations", "Look it up on the map", ways)
    return html.Div([html.H1(f"There is no such {kind}"), sentence, remedy], className="column")


def no_generation(error: AtlasError) -> Component:
    """The page of an atlas without data."""
    sentence = (
        "The atlas shows numbers that its own jobs computed. This command fetches what it needs, computes them and "
        "publishes them; a page that is open shows them at the next click."
    )
    title, remedy = html.H1("Nothing has been published yet"), empty(error.problem, error.remedy)
    return html.Div([title, html.P(sentence, className="sentence"), remedy], className="column")


def reader_options(cache: QueryCache) -> list[dict[str, Any]]:
    """Readers to choose from: measured here before published, by kind of method."""
    return [
        {"group": group, "items": [{"value": reader, "label": cache.reader_name(reader)} for reader in members]}
        for group, members in cache.reader_groups()
    ]


def named(label: str) -> dict[str, dict[str, str]]:
    """The name of a list to choose from, for its field and for what opens below it."""
    return {"input": {"aria-label": label}, "options": {"aria-label": label}}


def source_options(cache: QueryCache, roster: str) -> list[dict[str, Any]]:
    """Sources of a roster to choose from, grouped by family, large families first."""
    members = cache.ask(queries.sources, roster)
    order = members.groupby("family")["source"].size().sort_values(ascending=False, kind="stable").index
    pairs = {family: members.loc[members["family"] == family, ["source", "name"]] for family in order}
    return [
        {"group": str(family), "items": [{"value": source, "label": name} for source, name in rows.to_numpy()]}
        for family, rows in pairs.items()
    ]


def source_search(identity: str, cache: QueryCache, roster: str, value: str, placeholder: str, label: str) -> Component:
    """A field that finds a source by its name, with suggestions, by keyboard."""
    return select(
        identity, label, source_options(cache, roster), value=value or None, size="sm", searchable=True, clearable=True,
        placeholder=placeholder, nothingFoundMessage="No source has this name", filter=BY_WORDS, limit=60,
        maxDropdownHeight=320,
    )  # fmt: skip


def select(identity: str, label: str, data: Sequence[Any] = (), **options: Any) -> Component:
    """A list to choose one from, above the page; ``label`` is its name for assistive technology."""
    options = {"comboboxProps": {"zIndex": 300}, **options}
    return dmc.Select(id=identity, data=list(data), attributes=named(label), **options)


def labelled(label: str, identity: str, field: Component) -> Component:
    """A field with its label before it."""
    return html.Div([html.Label(label, htmlFor=identity, className="choice-label"), field], className="field")


def segmented(identity: str | dict[str, str], options: Mapping[Any, str], value: Any, label: str) -> Component:
    """A few exclusive choices in a row."""
    data = [{"value": str(key), "label": word} for key, word in options.items()]
    control = dmc.SegmentedControl(id=identity, data=data, value=str(value), size="xs", transitionDuration=0)
    children = [html.Span(label, className="choice-label"), control]
    return html.Div(children, className="segmented", role="group", **{"aria-label": label})
