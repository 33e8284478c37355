"""The page of a source without a browser: its facts, and what speaks for each of its neighbours."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pandas as pd
import pytest
from dash import Dash
from scipy.stats import binomtest

from atlas.application import create_application
from atlas.data import QueryCache
from atlas.figures import plots
from atlas.pages import source
from atlas.state import View
from backend.store import queries
from tests.invented_atlas import MARKUP, publish_invented


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Dash:
    folder = tmp_path_factory.mktemp("source")
    publish_invented(folder / "data")
    return create_application(folder / "data", folder / "cache")


@pytest.fixture
def asked(app: Dash) -> Iterator[QueryCache]:
    with app.server.test_request_context():
        yield app.server.extensions["atlas"]


def test_the_facts_name_what_they_are(asked: QueryCache) -> None:
    page = json.dumps(
        source.layout(label="gpt_1", roster="27-way").to_plotly_json(), default=lambda part: part.to_plotly_json()
    )
    for fact in ("Family", "Repository id", "Label", "Access", "Responses", "Rosters"):
        assert f'"children": "{fact}"' in page, fact
    assert "gpt-org/gpt-1" in page and "gpt_1" in page and "12-way, 27-way" in page
    assert "/attribute?claim=gpt_1&reader=" in page and "Test traces against this source" in page


def test_two_sources_begin_with_their_answer(asked: QueryCache) -> None:
    view = asked.resolve_view(View(source="gpt_1", other="claude_1", roster="27-way"))
    said = json.dumps(source._versus(asked, view), default=lambda part: part.to_plotly_json())
    assert said.index("Cosine ") < said.index("gpt-org/gpt-1") < said.index("claude-org/claude-1")


def test_sources_with_the_same_accuracy_share_a_rank() -> None:
    values = pd.Series([1.0, 1.0, 0.8, 0.8, 0.8, 0.2])
    assert source._rank_words(1.0, values) == "2 of all 6 sources are named first in all of their groups."
    assert source._rank_words(0.8, values) == "The 3rd easiest of 6 sources, level with 2 others."
    assert source._rank_words(0.2, values) == "The hardest of 6 sources."
    assert source._rank_words(1.0, values[1:]) == "The easiest of 5 sources."
    none = pd.Series([0.0, 0.0, 0.0, 0.4])
    assert source._rank_words(0.0, none) == "3 of all 4 sources are named first in none of their groups."


def test_the_curve_of_a_source_has_an_interval(asked: QueryCache) -> None:
    view = asked.resolve_view(View(source="gpt_1", roster="27-way"))
    figure = source._soon(asked, view).figure
    own = next(trace for trace in figure.data if trace.name == "gpt-org/gpt-1")
    assert all(over >= 0 for over in own.error_y.array) and all(under >= 0 for under in own.error_y.arrayminus)
    assert plots.wilson(0.5, 100) == pytest.approx((0.40383, 0.59617), abs=1e-4)
    low, high = binomtest(3, 20).proportion_ci(method="wilson")
    assert plots.wilson(3 / 20, 20) == pytest.approx((low, high), abs=1e-6)


def test_neighbours_come_with_rank_percentile_p_and_votes(asked: QueryCache) -> None:
    view = asked.resolve_view(View(source="gpt_1", roster="27-way"))
    frame = source.PAGE.figures["near"].table(asked, view)
    assert list(frame["rank"]) == list(range(1, 11))
    assert frame["p_value"].tolist() == pytest.approx((1 - frame["percentile"]).clip(lower=1 / (27 * 26 / 2)).tolist())
    assert (frame["near"] >= 1).all() and (frame["near"] <= frame["readers"]).all() and set(frame["proxies"]) == {3}
    near = asked.ask(queries.neighbors, asked.map_reader(view), "27-way", "agent500", "gpt_1", 10)
    assert frame["neighbor"].tolist() == near["neighbor"].tolist()


def test_a_hostile_neighbour_is_text(asked: QueryCache) -> None:
    view = asked.resolve_view(View(source=MARKUP, roster="27-way"))
    content, sentence = source._near(asked, view)
    held = json.dumps([content, sentence], default=lambda part: part.to_plotly_json())
    assert "dangerously" not in held and re.search(
        r"chance would give so many with a probability of (< |> )?\.\d+", held
    )
