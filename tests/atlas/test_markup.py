"""Markup that is joined is drawn as the components that it was."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from dash import Dash, dcc, html
from dash.development.base_component import Component

from atlas import markup
from atlas.application import PAGES, create_application
from atlas.data import QueryCache
from atlas.markup import Markup, join_markup
from tests.invented_atlas import publish_invented

HTML = {tag: kind for kind, tag in markup.TAGS.items()}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Dash:
    folder = tmp_path_factory.mktemp("invented")
    publish_invented(folder / "data")
    return create_application(folder / "data", folder / "cache")


def parted(part: Any) -> Any:
    """The slow twin: joined markup as single components again, in the form in which a browser gets them."""
    if isinstance(part, (list, tuple)):
        out = []
        for one in part:
            out += [drawn(node) for node in one.tree] if isinstance(one, Markup) else [parted(one)]
        return [one for one in out if one is not None]
    if isinstance(part, Markup):
        (node,) = part.tree
        return drawn(node)
    if not isinstance(part, Component):
        return part
    told = part.to_plotly_json()
    props = {name: value for name, value in told["props"].items() if value is not None}
    if "children" in props:
        props["children"] = parted(props["children"])
    return {**told, "props": props}


def drawn(node: Any) -> Any:
    if not isinstance(node, list):
        return node
    tag, attributes, *children = node
    told = HTML[tag]().to_plotly_json()
    return {**told, "props": {**attributes, **({"children": [drawn(child) for child in children]} if children else {})}}


def listed(told: Any) -> Any:
    """Children as a list, also where there is one."""
    if isinstance(told, list):
        return [listed(one) for one in told]
    if not isinstance(told, dict) or "props" not in told:
        return told
    props = dict(told["props"])
    if "children" in props:
        inside = props["children"]
        props["children"] = listed(inside if isinstance(inside, list) else [inside])
    return {**told, "props": props}


def components(part: Any) -> int:
    """How many components the browser would have."""
    if isinstance(part, (list, tuple)):
        return sum(map(components, part))
    return 1 + components(getattr(part, "children", None)) if isinstance(part, Component) else 0


def test_neighbours_are_one_component_and_what_may_change_stays() -> None:
    button = html.Button(html.Span(className="icon"), id="go")
    rows = [html.Tr([html.Td("a", className="number", **{"aria-label": "A"}), html.Td(1.5)]) for _ in range(3)]
    page = html.Div(
        [html.H2("Title"), html.P(["One ", html.B("two"), None]), button, html.Table(html.Tbody(rows))], id="x"
    )
    before = copy.deepcopy(page)
    joined = join_markup(page)
    head, same, table = joined.children
    assert head.tree == [["h2", {}, "Title"], ["p", {}, "One ", ["b", {}, "two"]]]
    assert same.id == "go" and isinstance(same.children, html.Span)  # one element alone is left
    assert table.tree[0][:2] == ["table", {}]
    assert table.tree[0][2][2] == ["tr", {}, ["td", {"className": "number", "aria-label": "A"}, "a"], ["td", {}, 1.5]]
    assert parted(page) == parted(before)  # pages are kept and given again


@pytest.mark.parametrize(
    "part",
    [
        None, "text", 3, {"a": 1}, html.Span("x", id="x"), html.Span("x", n_clicks=0), html.Span(key="k"),
        html.Div(dcc.Link("x", href="/"), id="y"), html.Div(html.A("x", href="/")), html.Details(html.Summary("x")),
    ],
)  # fmt: skip
def test_what_may_change_or_is_alone_is_given_back(part: Any) -> None:
    told = part.to_plotly_json() if isinstance(part, Component) else part
    found = join_markup(part)
    assert (found.to_plotly_json() if isinstance(found, Component) else found) == told


def test_text_stays_text() -> None:
    joined = join_markup([html.P("<script>alert(1)</script>"), html.P("&amp;")])
    assert joined[0].tree == [["p", {}, "<script>alert(1)</script>"], ["p", {}, "&amp;"]]


@pytest.mark.parametrize("page", [page for page in PAGES if "<" not in page.path], ids=lambda page: page.name)
def test_every_page_is_drawn_as_before_by_fewer_components(page: Any, app: Dash, asked: QueryCache) -> None:
    plain = page.layout()
    joined = join_markup(plain)
    assert listed(parted(joined)) == listed(parted(plain))
    assert components(joined) <= components(plain)
