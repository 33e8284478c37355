"""The page of neighbourhoods without a browser: which pairs pass, and who is counted for it."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from dash import Dash

from atlas.application import create_application
from atlas.data import QueryCache
from atlas.pages import neighbourhoods, pieces, source
from atlas.state import View
from backend.store import queries
from tests.invented_atlas import publish_invented


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Dash:
    folder = tmp_path_factory.mktemp("neighbourhoods")
    publish_invented(folder / "data")
    return create_application(folder / "data", folder / "cache")


def told(content: Any) -> str:
    return json.dumps(content, default=lambda part: part.to_plotly_json(), ensure_ascii=False)


def columns_of(grid: Any) -> set[str]:
    return {column["field"] for column in grid.columnDefs}


def test_three_proxies_can_let_a_pair_pass(asked: QueryCache) -> None:
    view = asked.opened(asked.resolve_view(View(roster="27-way")))
    assert len(neighbourhoods.voters(asked, view)) == neighbourhoods.FEWEST
    grid, sentence = neighbourhoods._pairs(asked, view)
    passes = (neighbourhoods._pair_rows(asked, view)["passes"] == "yes").sum()
    assert f"With the 3 proxies here, {passes} pairs pass." in told(sentence)
    # All pairs have the same three proxies: a column of them would say the same everywhere.
    assert {"near", "passes", "median_rank"} <= columns_of(grid) and "readers" not in columns_of(grid)


def test_with_one_proxy_no_pair_can_pass_and_the_page_says_why(
    asked: QueryCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(neighbourhoods, "voters", lambda *_: ["reader-paper/tiny/r"])
    view = asked.opened(asked.resolve_view(View(roster="27-way")))
    grid, sentence = neighbourhoods._pairs(asked, view)
    proxy = asked.proxy_name("reader-paper/tiny/r")
    assert "No pair can be confirmed here: the paper's rule needs 3 proxies" in told(sentence)
    assert f"and here is only {proxy}" in told(sentence) and "python -m" not in told(sentence)
    assert not {"near", "readers", "passes"} & columns_of(grid)
    assert {column["headerName"] for column in grid.columnDefs} >= {"Mutual rank", "Cosine"}


def test_sources_whose_nearest_is_of_another_family_come_first_and_the_first_is_the_example(asked: QueryCache) -> None:
    view = asked.opened(asked.resolve_view(View(roster="27-way")))
    frame = neighbourhoods._rows(asked, view)
    own = frame["family"] == frame["nearest_family"]
    assert list(own) == sorted(own) and own.nunique() == 2
    assert all(rows["cosine"].is_monotonic_decreasing for _, rows in frame.groupby(own))
    sentence = told(neighbourhoods._nearest(asked, view).sentence)
    assert "An example" in sentence and frame["name"].iloc[0] in sentence
    chosen = dataclasses.replace(view, source="gpt_1")
    assert "An example" not in told(neighbourhoods._nearest(asked, chosen).sentence)
    assert len(neighbourhoods.FIGURES["nearest"].meta.table(asked, view)) == pieces.NEAREST


def test_purity_comes_with_the_most_that_families_allow(asked: QueryCache) -> None:
    view = asked.opened(asked.resolve_view(View(roster="27-way")))
    sizes = asked.ask(queries.sources, "27-way").groupby("family")["family"].transform("size")
    siblings = sizes[sizes >= 5] - 1
    rows = neighbourhoods.FIGURES["purity"].meta.table(asked, view)
    assert list(rows["most_possible"]) == pytest.approx([siblings.clip(upper=k).mean() / k for k in rows["k"]])
    drawn = neighbourhoods.FIGURES["purity"].draw(asked, view)
    assert "most possible: if all of a source's siblings were its nearest. n = " in told(drawn.sentence)


def test_tables_of_neighbours_say_that_more_columns_follow(asked: QueryCache) -> None:
    view = asked.opened(asked.resolve_view(View(roster="27-way", source="gpt_1")))
    for table in (neighbourhoods._neighbours, source._near):
        _, sentence = table(asked, view)
        assert told(sentence[-1]) == told(pieces.more_columns()) and "swipe the table" in told(sentence)


def test_a_search_across_domains_names_what_it_counts() -> None:
    words = neighbourhoods.DOMAIN_METRICS
    assert words["top1"] == "itself the nearest" and words["wins_other"] == "nearer than a random other"
