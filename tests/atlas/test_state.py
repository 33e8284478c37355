"""The query string: everything that a view is, there and back, and nothing that it is not."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas.state import (
    ACCESS,
    BUDGETS,
    DIMENSIONS,
    LINKS,
    MEASURES,
    METRICS,
    OTHERS,
    PROJECTIONS,
    PROTOCOLS,
    REDUCTIONS,
    TABS,
    View,
    join,
    split,
)

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)
views = st.builds(
    View,
    reader=names,
    roster=names,
    domain=names,
    theme=st.sampled_from(["dark", "light"]),
    projection=st.sampled_from(list(PROJECTIONS)),
    dim=st.sampled_from(DIMENSIONS),
    source=names,
    families=st.lists(names.filter(bool), max_size=4, unique=True).map(tuple),
    access=st.sampled_from(list(ACCESS)),
    links=st.sampled_from(list(LINKS)),
    camera=st.one_of(st.just(()), st.tuples(*[st.integers(-4000, 4000).map(lambda thousandth: thousandth / 1000)] * 9)),
    k=st.sampled_from(BUDGETS),
    metric=st.sampled_from(list(METRICS)),
    reduction=st.sampled_from(list(REDUCTIONS)),
    others=st.sampled_from(list(OTHERS)),
    zoom=names,
    truth=names,
    answer=names,
    other=names,
    readers=st.lists(names.filter(bool), max_size=6, unique=True).map(tuple),
    condition=names.filter(bool),
    protocol=st.sampled_from(list(PROTOCOLS)),
    measure=st.sampled_from(list(MEASURES)),
    relates=names,
    left=names,
    right=names,
    tab=st.sampled_from(list(TABS)),
    figure=names,
    figures=st.lists(names.filter(bool), max_size=4, unique=True).map(tuple),
)


@given(views)
def test_a_link_reopens_the_exact_view(view: View) -> None:
    assert View.parse(dict(parse_qsl(view.query(), keep_blank_values=True))) == view


@given(st.dictionaries(names, st.one_of(names, st.integers(), st.none(), st.lists(names))))
def test_any_query_string_is_some_view(query: dict[str, object]) -> None:
    view = View.parse(query)
    assert view.projection in PROJECTIONS and view.k in BUDGETS and view.dim in DIMENSIONS
    assert View.parse(dict(parse_qsl(view.query(), keep_blank_values=True))) == view


def test_the_default_view_needs_no_query() -> None:
    assert View().query() == ""
    assert View.parse(None) == View() == View.parse({})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("k", "7"),
        ("k", "20; DROP TABLE"),
        ("projection", "mds"),
        ("dim", "4"),
        ("theme", "blue"),
        ("metric", "__class__"),
        ("camera", "1,2,3"),
        ("camera", "1,2,3,4,5"),
        ("camera", "nan,0,0,0,0,0,0,0,1"),
        ("camera", "1e9,0,0,0,0,0,0,0,1"),
        ("source", "x" * 500),
    ],
)
def test_what_it_does_not_understand_keeps_its_default(field: str, value: str) -> None:
    assert View.parse({field: value}) == View()


def test_no_more_than_six_readers_stand_side_by_side() -> None:
    assert View.parse({"readers": "a,b,a,c,d,e,f,g"}).readers == ("a", "b", "c", "d", "e", "f")
    assert View.parse({"condition": ""}).condition == "clean"


def test_families_with_commas_and_backslashes_survive() -> None:
    families = ("a,b", "c\\d", "\\,")
    assert tuple(split(join(families))) == families
    assert View.parse({"families": "Qwen,,Qwen,GPT"}).families == ("Qwen", "GPT")
