"""What a page and a figure have to bring, and how the header's choices become a view."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
from dash import Dash, Input
from dash.development.base_component import Component

from atlas.data import QueryCache, questions
from atlas.state import View, join
from backend.store import queries

SHARED = (Input("reader", "value"), Input("roster", "value"), Input("domain", "value"), Input("theme", "data"))
"""What every figure depends on."""
Made = Callable[[QueryCache, View], tuple[str, dict[str, object]]]
"""A table of the store, and what its rows have in common."""


@dataclasses.dataclass(frozen=True)
class FigureMeta:
    """What a figure says of itself beside the drawing.

    Attributes
    ----------
    table : callable
        Its rows, for the table view and the CSV.
    made : callable
        Table of the store and key of the rows behind it; None where the figure itself lists the builds.
    reader : callable
        The reader whose numbers are shown, which says whether they were measured here.
    beside : callable
        The same of rows of another table that a view may ask for, which another build may have made.
    """

    table: Callable[[QueryCache, View], pd.DataFrame]
    made: Made | None = None
    reader: Callable[[QueryCache, View], str] = QueryCache.attribution_reader
    beside: Callable[[QueryCache, View], tuple[str, dict[str, object]] | None] = lambda _asked, _view: None

    def builds(self, cache: QueryCache, view: View) -> pd.DataFrame:
        """What made the figure: columns of table ``builds``, each build once, newest first."""
        keys = [self.made(cache, view) if self.made else None, self.beside(cache, view)]
        parts = [cache.ask(queries.made_by, *key) for key in keys if key]
        frame = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["build_id", "started_at"])
        return frame.drop_duplicates("build_id").sort_values("started_at", ascending=False, kind="stable")


@dataclasses.dataclass(frozen=True)
class Page:
    """One page: where it is (a template with <label> where it is one page a source), how the navigation calls it (a
    page without an icon is not in it), and what it needs to work."""

    name: str
    path: str
    title: str
    icon: str
    layout: Callable[..., Component]
    register: Callable[[Dash], None]
    figures: Mapping[str, FigureMeta]


def shared_view(reader: str | None, roster: str | None, domain: str | None, theme: str | None, **own: Any) -> View:
    """A settled view of the header's choices and a page's own."""
    given = {"reader": reader, "roster": roster, "domain": domain, "theme": theme, **own}
    lists = {name: join(tuple(value)) for name, value in given.items() if isinstance(value, list)}
    return questions().resolve_view(
        View.parse({name: value for name, value in (given | lists).items() if value is not None})
    )
