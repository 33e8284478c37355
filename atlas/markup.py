"""Markup that no callback changes, as one component of the page.

The browser tells every component of every change of the page, and each component that comes with an answer is such a
change: a table of a hundred cells among a thousand others costs a hundred thousand questions. Headings, paragraphs,
tables and words without an ``id`` are therefore joined to one component, and ``assets/markup.js`` draws the elements.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from dash import html
from dash.development.base_component import Component

TAGS = {
    getattr(html, name): name.lower()
    for name in (
        "B", "Blockquote", "Br", "Caption", "Code", "Dd", "Div", "Dl", "Dt", "Em", "Figcaption", "Figure", "H1", "H2",
        "H3", "H4", "Hr", "I", "Label", "Li", "Ol", "P", "Pre", "Section", "Small", "Span", "Strong", "Sub", "Sup",
        "Table", "Tbody", "Td", "Th", "Thead", "Time", "Tr", "Ul",
    )
}  # fmt: skip
"""Elements that only show; links, buttons, fields and what unfolds stay components."""
ATTRIBUTES = frozenset((
    "className", "style", "title", "dir", "lang", "role", "hidden", "tabIndex", "colSpan", "rowSpan", "scope",
    "htmlFor",
))  # fmt: skip
FREE = ("aria-", "data-")  # attributes of any element


class Markup(Component):
    """Elements without identity; each is a text, or a list of its tag, its attributes and its children."""

    _namespace = "atlas_markup"
    _type = "Markup"
    _children_props: list[str] = []  # noqa: RUF012 - as in every generated component
    _base_nodes: list[str] = []  # noqa: RUF012 - as in every generated component
    _prop_names: list[str] = ["tree"]  # noqa: RUF012 - as in every generated component
    _valid_wildcard_attributes: list[str] = []  # noqa: RUF012 - as in every generated component
    available_properties: list[str] = ["tree"]  # noqa: RUF012 - as in every generated component
    available_wildcard_properties: list[str] = []  # noqa: RUF012 - as in every generated component

    def __init__(self, tree: list[Any]) -> None:
        super().__init__(tree=tree)  # type: ignore[no-untyped-call]


def join_markup(part: Any) -> Any:
    """The same part of a page with what no callback changes joined; what is given stays as it is."""
    if isinstance(part, (list, tuple)):
        return _join_neighbours(part)
    if not isinstance(part, Component):
        return part
    node = _node(part)
    if _size(node) > 1:
        return Markup([node])
    children = getattr(part, "children", None)
    if not isinstance(children, (list, tuple, Component)):
        return part
    whole = copy.copy(part)
    whole.children = join_markup(children)
    return whole


def _join_neighbours(parts: Sequence[Any]) -> list[Any]:
    out: list[Any] = []
    run: list[tuple[Any, Any]] = []  # parts, and what the browser draws for them
    for part in [*parts, None]:
        node = _node(part)
        if node is not None:
            run.append((part, node))
            continue
        nodes = [node for _, node in run]
        out += [Markup(nodes)] if sum(map(_size, nodes)) > 1 else [part for part, _ in run]
        run.clear()
        if part is not None:
            out.append(join_markup(part))
    return out


def _node(part: Any) -> Any:
    """What the browser draws for a part; None where something in it may change."""
    if isinstance(part, str | int | float):
        return part
    tag = TAGS.get(type(part))
    if tag is None:
        return None
    attributes = {name: value for name, value in part.to_plotly_json()["props"].items() if value is not None}
    children = attributes.pop("children", None)
    if not all(name in ATTRIBUTES or name.startswith(FREE) for name in attributes):
        return None
    listed = children if isinstance(children, (list, tuple)) else [children]
    nodes = [_node(child) for child in listed if child is not None]
    return None if None in nodes else [tag, attributes, *nodes]


def _size(node: Any) -> int:
    """Number of elements."""
    return 1 + sum(map(_size, node[2:])) if isinstance(node, list) else 0
