"""What points of the map can be coloured by: what names state, what was measured, and an axis between two sources."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from atlas.data import QueryCache
from atlas.figures.map import Tints, month_text, ramp, shades, stated_month, stated_size
from atlas.figures.plots import rate_text
from atlas.pages import pieces
from atlas.state import COLOURS, View
from atlas.theme import READER_COLOURS, Theme
from backend.geometry.signatures import axis_positions
from backend.store import queries

WITHIN = 10
"""Neighbours among which relatives are counted."""
K = 20
LOWEST = 0.05  # share of the sources below the scale of a rate or cosine, which have its first colour
STATED: Mapping[str, Callable[[str], float]] = {"size": stated_size, "date": stated_month}
"""What is read out of names."""


class Column(NamedTuple):
    """Numbers of the sources of a roster; what is not known is missing."""

    values: Callable[[QueryCache, View], pd.Series]  # by source
    text: Callable[[float], str] = rate_text


def _of_names(read: Callable[[str], float]) -> Callable[[QueryCache, View], pd.Series]:
    def values(cache: QueryCache, view: View) -> pd.Series:
        members = cache.ask(queries.sources, view.roster).set_index("source")
        return members["name"].map(read).astype(float)

    return values


def _accuracy(cache: QueryCache, view: View) -> pd.Series:
    frame = pieces.source_accuracies(cache, view).set_index("source")
    return frame.get(f"accuracy_{K}", pd.Series(dtype=float))


def _nearest(cache: QueryCache, view: View) -> pd.Series:
    near = cache.ask(queries.neighbors, cache.map_reader(view), view.roster, view.domain, None, 1)
    return near.set_index("source")["cosine"]


def _kin(cache: QueryCache, view: View) -> pd.Series:
    frame = cache.ask(queries.neighbor_table, cache.map_reader(view), view.roster, view.domain)
    return frame.set_index("source")[f"same_{WITHIN}"].astype(float)


def axis(cache: QueryCache, view: View) -> pd.Series:
    """Where every source stands on the line from the selection (0) to the second source (1); empty without two."""
    if not view.source or view.other in ("", view.source):
        return pd.Series(dtype=float)
    first, second = (
        cache.ask(queries.neighbors, cache.map_reader(view), view.roster, view.domain, end).set_index("neighbor")[
            "cosine"
        ]
        for end in (view.source, view.other)
    )
    if view.other not in first.index or first[view.other] >= 1:
        return pd.Series(dtype=float)
    both = pd.concat([first, pd.Series({view.source: 1.0})]).to_frame("first")
    both["second"] = pd.concat([second, pd.Series({view.other: 1.0})])
    places = axis_positions(both["first"].to_numpy(float), both["second"].to_numpy(float), float(first[view.other]))
    return pd.Series(places, index=both.index)


COLUMNS: Mapping[str, Column] = {
    "size": Column(_of_names(stated_size), lambda size: f"{size:g}B"),
    "date": Column(_of_names(stated_month), month_text),
    "accuracy": Column(_accuracy),
    "nearest": Column(_nearest),
    "kin": Column(_kin, lambda kin: f"{kin:.0f} of {WITHIN}"),
    "axis": Column(axis),
}


def values_of(cache: QueryCache, view: View, name: str) -> pd.Series:
    """Numbers of a column by source, without the missing ones."""
    return COLUMNS[name].values(cache, view).dropna()


def offered(cache: QueryCache, view: View) -> list[dict[str, Any]]:
    """The list of colours, which says of how many sources a column is known, and what is missing."""
    names, reader = cache.ask(queries.sources, view.roster)["name"], cache.map_reader(view)
    stored = bool(reader) and cache.origin(reader) == "measured"
    lacks = {
        "accuracy": "" if cache.attribution_reader(view) else "not measured for this reader",
        **dict.fromkeys(("nearest", "kin"), "" if stored else "no neighbours are stored"),
        "axis": "" if stored and view.source and view.other not in ("", view.source) else "select two sources",
    }
    options = []
    for name, words in COLOURS.items():
        lack = lacks.get(name, "")
        if read := STATED.get(name):
            known = sum(read(one) == read(one) for one in names)
            lack = f"{known} of {len(names)}"
        disabled = {"disabled": True} if lacks.get(name) else {}
        options.append({"value": name, "label": f"{words} ({lack})" if lack else words, **disabled})
    return options


class Colouring(NamedTuple):
    """Colours of sources in place of those of their families, and what stands at the ends of their scale."""

    tints: Tints
    low: str
    high: str
    unknown: Collection[str]  # sources whose number is not known
    colours: Sequence[str]  # from one end to the other


def colouring(cache: QueryCache, view: View) -> Colouring | None:
    """Colours of a view; None for those of the families, and where the chosen column is empty."""
    if view.colour == "family":
        return None
    members = cache.ask(queries.sources, view.roster)
    if view.colour == "access":
        return _by_access(members, view.theme)
    if view.colour not in COLUMNS or (found := values_of(cache, view, view.colour)).empty:
        return None
    values, text = found.reindex(members["source"]), COLUMNS[view.colour].text
    scaled = np.log10(values) if view.colour == "size" else values
    words = [f"{COLOURS[view.colour]}: {'not known' if pd.isna(value) else text(value)}" for value in values]
    # One source far below the others would leave them a single colour.
    low = float(values.quantile(LOWEST)) if view.colour in ("accuracy", "nearest") else None
    pairs = zip(shades(scaled.clip(lower=low), view.theme), words, strict=True)
    tints = dict(zip(members["source"], pairs, strict=True))
    first = text(values.min()) if low is None else f"≤ {text(low)}"
    return Colouring(tints, first, text(values.max()), values.index[values.isna()], ramp(view.theme))


def _by_access(members: pd.DataFrame, theme: Theme) -> Colouring:
    colours = dict(zip(("local", "api"), READER_COLOURS[theme], strict=False))
    words = {access: pieces.ACCESS_WORDS.get(access, access) for access in colours}
    tints = {
        source: (colours[access], words[access])
        for source, access in zip(members["source"], members["access"], strict=True)
    }
    halves = [f"{colour} {stop}" for colour, stop in zip(colours.values(), ("50%", "50%"), strict=True)]
    return Colouring(tints, words["local"], words["api"], (), halves)
