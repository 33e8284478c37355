"""What people choose with: lists searched by keyboard, a few exclusive choices in a row, labels before fields."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import dash_mantine_components as dmc
from dash import html
from dash.development.base_component import Component

from atlas.data import QueryCache
from backend.store import queries

BY_WORDS = {"function": "byWords"}
"""Options that hold every word that was typed, in their name or in that of their group, in any order."""


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
    return dmc.Select(
        id=identity,
        data=source_options(cache, roster),
        value=value or None,
        searchable=True,
        clearable=True,
        placeholder=placeholder,
        nothingFoundMessage="No source has this name",
        filter=BY_WORDS,
        limit=60,
        maxDropdownHeight=320,
        size="sm",
        comboboxProps={"zIndex": 300},
        attributes=named(label),
    )


def labelled(label: str, identity: str, field: Component) -> Component:
    """A field with its label before it."""
    return html.Div([html.Label(label, htmlFor=identity, className="choice-label"), field], className="field")


def segmented(identity: str, options: Mapping[Any, str], value: Any, label: str) -> Component:
    """A few exclusive choices in a row."""
    return html.Div(
        className="segmented",
        role="group",
        **{"aria-label": label},
        children=[
            html.Span(label, className="choice-label"),
            dmc.SegmentedControl(
                id=identity,
                data=[{"value": str(key), "label": word} for key, word in options.items()],
                value=str(value),
                size="xs",
                transitionDuration=0,
            ),
        ],
    )
