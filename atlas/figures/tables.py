"""Grids of the pages: columns of numbers, names that lead to their pages, families with their marks."""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import dash_ag_grid as dag
import pandas as pd

from atlas import shell
from atlas.theme import Mark

Column = dict[str, Any]
Row = Any  # a tuple of values by name: the types of its fields are those of the store, which pandas cannot know
PLAIN = {"suppressHeaderFilterButton": True, "suppressFloatingFilterButton": True}


def rows(frame: pd.DataFrame, *columns: str) -> Iterator[Row]:
    """Rows of a frame without its index, with some of its columns or all.

    ``DataFrame.itertuples`` makes a class at every call, which takes as long as a hundred rows.
    """
    names = columns or tuple(map(str, frame))
    return map(_row(names), zip(*(frame[name].tolist() for name in names), strict=True))


@functools.lru_cache
def _row(names: tuple[str, ...]) -> Callable[[tuple[Any, ...]], Row]:
    kind: Any = namedtuple("Row", names, rename=True)  # type: ignore[misc]
    return cast(Callable[[tuple[Any, ...]], Row], kind._make)


def number(field: str, title: str, kind: str = "count", width: int = 84, **more: Any) -> Column:
    """A column of numbers, right-aligned; kind is one of :data:`atlas.shell.NUMBER_COLUMNS`."""
    names = {"field": field, "headerName": title, "headerTooltip": title}
    return {**names, **shell.number_column(kind), "minWidth": width, "flex": 0, "width": width, **more}


def at_scrollbar(column: Column) -> Column:
    """A column of numbers at the right end of a grid that scrolls, where the scrollbar lies over its last 16 pixels."""
    wide = {name: column[name] + 16 for name in ("width", "minWidth") if name in column}
    return column | wide | {
        "cellClass": "ag-right-aligned-cell at-scrollbar", "headerClass": "ag-right-aligned-header at-scrollbar"
    }  # fmt: skip


def words(field: str, title: str, width: int = 112, flex: int = 0, **more: Any) -> Column:
    """A column of text."""
    names = {"field": field, "headerName": title, "tooltipField": field}
    filters = {"filter": "agTextColumnFilter", "floatingFilter": True}
    return {**names, **filters, "minWidth": width, "width": width, "flex": flex, **more}


def wrapped(field: str, title: str, width: int = 132, flex: int = 0, **more: Any) -> Column:
    """A column of text whose end matters: rows grow with it."""
    return words(field, title, width, flex, **shell.WRAPPED, **more)


def source(field: str, title: str, identity: str = "source", width: int = 180, page: str = "source") -> Column:
    """A column of names that lead to the pages of what column ``identity`` holds."""
    linked = {"cellRenderer": "PageLink", "cellRendererParams": {"page": page, "field": identity}, "cellClass": "mono"}
    return wrapped(field, title, width, 1, **linked)


def family(field: str, title: str, width: int = 124) -> Column:
    """A column of families with their marks (see :func:`with_marks`)."""
    return words(field, title, width, cellRenderer="Family")


def with_marks(frame: pd.DataFrame, marks: Mapping[str, Mark], *fields: str) -> pd.DataFrame:
    """The rows with symbol and colours of the families in some columns, as the cells want them."""
    out = frame.copy()
    for field in fields:
        found = [marks.get(name) for name in frame[field]]
        out[f"{field}_symbol"] = [mark.symbol if mark else "circle" for mark in found]
        out[f"{field}_dark"] = [mark.dark if mark else "" for mark in found]
        out[f"{field}_light"] = [mark.light if mark else "" for mark in found]
    return out


def height(count: int, most: int = 560) -> int:
    """Height in pixels of a grid of so many rows, with its two heads and the filters."""
    return min(most, 38 + 38 + 40 + 34 * max(count, 2) + 4)


def grid(
    identity: str, frame: pd.DataFrame, columns: Sequence[Column], *, selectable: bool = False, **options: Any
) -> dag.AgGrid:
    """Rows as an AG Grid; ``selectable`` rows are selected by a click or Space."""
    chosen = {"mode": "singleRow", "checkboxes": False, "enableClickSelection": True}
    selection = {"rowSelection": chosen} if selectable else {}
    return shell.ag_grid(identity, frame, columns, PLAIN, {"ensureDomOrder": True, **selection, **options})
