"""The map without a browser: colours, the selection against chance, the axis, and the lists that say what they lack."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from dash import Dash

from atlas import drawing, shell
from atlas.application import create_application
from atlas.data import QueryCache
from atlas.figures.plots import rate_text
from atlas.pages import map
from atlas.pages.map import columns, selection
from atlas.pages.map.card import WITH_PROMPT, WITHOUT_PROMPT, _traits_words
from atlas.state import View
from backend.store import queries
from tests.invented_atlas import publish_invented


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Dash:
    folder = tmp_path_factory.mktemp("map")
    publish_invented(folder / "data")
    return create_application(folder / "data", folder / "cache")


@pytest.fixture
def cache(app: Dash) -> Iterator[QueryCache]:
    with app.server.test_request_context():
        yield app.server.extensions["atlas"]


@pytest.fixture
def view(cache: QueryCache) -> View:
    return cache.resolve_view(View(source="gpt_1", other="claude_1", roster="27-way"))


def test_colours_know_what_they_lack(cache: QueryCache, view: View) -> None:
    offered = {one["value"]: one for one in columns.offered(cache, view)}
    assert "(0 of 27)" in offered["date"]["label"] and not offered["accuracy"].get("disabled")
    alone = {one["value"]: one for one in columns.offered(cache, dataclasses.replace(view, other=""))}
    assert alone["axis"]["disabled"] and "select two sources" in alone["axis"]["label"]
    assert columns.colouring(cache, dataclasses.replace(view, colour="date")) is None


@pytest.mark.parametrize("colour", ["access", "accuracy", "nearest", "kin", "axis"])
def test_every_source_has_a_colour_and_words(cache: QueryCache, view: View, colour: str) -> None:
    found = columns.colouring(cache, dataclasses.replace(view, colour=colour))
    assert found is not None and len(found.tints) == 27 and not len(found.unknown)
    assert all(tint.startswith("#") and words for tint, words in found.tints.values())


def test_one_outlier_does_not_take_the_colours_of_all_others(
    cache: QueryCache, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = list(cache.ask(queries.sources, view.roster)["source"])
    cosines = pd.Series([0.1, 0.9, *(0.95 + 0.001 * at for at in range(25))], index=sources)
    monkeypatch.setitem(columns.COLUMNS, "nearest", columns.Column(lambda *_: cosines))
    found = columns.colouring(cache, dataclasses.replace(view, colour="nearest"))
    assert found is not None and found.low.startswith("≤ .9") and found.high == ".974"
    assert found.tints[sources[0]][0] == found.tints[sources[1]][0] == found.colours[0].lower()
    assert len({found.tints[source][0] for source in sources[2:]}) > 20


def test_the_axis_runs_from_the_selection_to_the_second_source(cache: QueryCache, view: View) -> None:
    places = columns.axis(cache, view)
    assert places["gpt_1"] == pytest.approx(0, abs=1e-5) and places["claude_1"] == pytest.approx(1, abs=1e-5)
    near = cache.ask(queries.neighbors, cache.map_reader(view), "27-way", "agent500", "gpt_1")
    cosine = near.set_index("neighbor")["cosine"]
    back = cache.ask(queries.neighbors, cache.map_reader(view), "27-way", "agent500", "claude_1")
    other = back.set_index("neighbor")["cosine"]
    expected = 0.5 + (other["gpt_2"] - cosine["gpt_2"]) / (2 * (1 - cosine["claude_1"]))
    assert places["gpt_2"] == pytest.approx(expected, abs=1e-9)


def test_a_selection_is_compared_with_chance(cache: QueryCache, view: View) -> None:
    chosen = tuple(selection.group(cache, view, "family GPT"))
    assert chosen == ("gpt_1", "gpt_2", "gpt_3", "gpt_4")
    page = json.dumps(
        selection.panel(cache, dataclasses.replace(view, chosen=chosen)), default=lambda part: part.to_plotly_json()
    )
    assert ": 4 of the roster's 4 GPT, where chance gives .59 (p < .001)." in page
    assert "4 sources" in page and "gpt-org/gpt-3" in page
    table = map.FIGURES["selection"].table(cache, dataclasses.replace(view, chosen=chosen))
    assert list(table["source"]) == list(chosen) and table["accuracy_20"].notna().all() and (table["date"] == "").all()
    assert selection.panel(cache, dataclasses.replace(view, chosen=("nobody",))) == []
    # Holm's correction gives several families one p: the smallest of the uncorrected ones is named.
    everyone = cache.ask(queries.sources, view.roster)
    few = everyone.drop_duplicates("family").head(3)
    sizes = everyone["family"].value_counts()[few["family"]]
    assert sizes.nunique() > 1
    torn = selection.panel(cache, dataclasses.replace(view, chosen=tuple(few["source"])))
    assert f"the least likely is 1 of the roster's {sizes.min()} {sizes.idxmin()}," in str(torn[0].to_plotly_json())
    # One source is of its family, which says nothing against chance.
    words, names = selection.panel(cache, dataclasses.replace(view, chosen=chosen[:1]))
    assert words.children[1].startswith(". Add more") and names.children[0].id["source"] == chosen[0]


def test_clusters_and_families_are_offered(cache: QueryCache, view: View) -> None:
    clusters, families = selection.offered(cache, view)
    assert families["items"][0] == {"value": "family Qwen", "label": "Qwen: 9"}
    for one in clusters["items"]:
        members = selection.group(cache, view, one["value"])
        assert one["label"].endswith(f" {len(members)}")


def test_only_readers_with_a_map_are_offered(cache: QueryCache) -> None:
    mapped = map._mapped(cache)
    for key, readers in mapped.items():
        roster, domain = key.split()
        shows = [
            reader
            for reader in cache.ask(queries.readers)["reader"]
            if cache.map_reader(View(reader=reader, roster=roster, domain=domain))
        ]
        assert readers == shows
    assert "reader-paper/vast/ur" not in mapped["12-way agent500"]


def test_a_filter_of_the_page_is_that_of_its_table(cache: QueryCache, view: View) -> None:
    table = map.FIGURES["map"].table(cache, dataclasses.replace(view, chosen=("gpt_1", "qwen_1", "nobody")))
    assert set(table["source"]) == {"gpt_1", "qwen_1"}
    # Up to the cosine, with a scrollbar, in a window of 1,280.
    assert sum(map.FIGURES["map"].widths[name] for name in table.columns[:5]) <= 668 - 18
    near = map.FIGURES["map-nearest"].table(cache, view)
    assert list(near["rank"]) == [1, 2, 3, 4, 5] and np.diff(near["cosine"]).max() <= 0 and "readers_compared" in near
    assert set(near["nearest_to"]) == {view.source} and set(near["reader"]) == {cache.map_reader(view)}
    assert near[f"rank_{cache.map_reader(view)}"].equals(near["rank"].rename(f"rank_{cache.map_reader(view)}"))
    assert map.FIGURES["map-pair"].table(cache, dataclasses.replace(view, other="")).empty
    pair = map.FIGURES["map-pair"].table(cache, view)
    assert set(pair["compared_with"]) == {"claude_1"} and set(pair["of"]) == {26} and {"rank", "rank_back"} < set(pair)
    assert (pair["within_10_nearest"] == (pair["rank"] <= 10)).all() and pair["reader"].is_unique


def test_filters_are_counted_and_what_no_name_states_is_told(cache: QueryCache, view: View) -> None:
    points = map._points(cache, view)
    assert map._counted(points, view) == "27 sources"
    assert map._counted(points, dataclasses.replace(view, families=("GPT",))) == "4 of 27 sources"
    assert map._unstated(cache, view, points) == []

    def told(**filters: Any) -> str:
        parts = map._unstated(cache, dataclasses.replace(view, **filters), points)
        return json.dumps(parts, default=lambda part: part.to_plotly_json())

    half = "2025-01..2025-06"
    assert "Shown: dated 2025-01 to 2025-06; faint: 27 undated, 0 outside" in told(released=half)
    assert "2025-06; faint by date alone: 27 undated" in told(released=half, access="api")
    stated = points.assign(name=["a-2025-04-14", "b-3b-2025-08-01", "c-7B", *points["name"][3:]])
    assert map._counted(stated, dataclasses.replace(view, released=half)) == "1 of 27 sources (2 state a date)"
    small = dataclasses.replace(view, size="small")
    assert map._counted(stated, small) == "1 of 27 sources (2 state a size)"
    both = dataclasses.replace(small, released=half)
    assert map._counted(stated, both) == "0 of 27 sources (1 state a date and a size)"
    assert "2025-06, and 27 undated; faint: 0 outside" in told(released=f"{half},undated")
    assert "faint: 27 of unknown size, 0 outside" in told(size="small")
    assert "by name, and 27 of unknown size; faint: 0 outside" in told(size="small", unsized="on")
    assert map._counted(stated, dataclasses.replace(small, unsized="on")) == "26 of 27 sources"
    together = told(size="small", released=half)
    assert "faint by size alone: 27 of unknown size" in together and "faint by date alone: 27 undated" in together


def test_colours_of_size_say_of_how_many_none_is_known_under_a_filter_by_size(
    cache: QueryCache, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = columns.Colouring({f"s{number}": ("", "") for number in range(27)}, "1B", "9B", ["gpt_1"], ["#000", "#fff"])
    monkeypatch.setattr(map, "colouring", lambda *_: found)
    small = dataclasses.replace(view, colour="size", size="small")
    for shown, words in (
        (small, "Faint: not known, 1 of all 27."),
        (dataclasses.replace(small, families=("GPT",)), "Faint: not known, 1 of the 4 of any size."),
        (dataclasses.replace(small, size="all", families=("GPT",)), "Faint: not known, 1 of the 4 shown."),
    ):
        assert words in json.dumps(map._scale(cache, shown), default=lambda part: part.to_plotly_json())


def test_the_ends_of_an_axis_have_their_whole_names(cache: QueryCache, view: View) -> None:
    page = json.dumps(map._scale(cache, dataclasses.replace(view, colour="axis")), default=lambda p: p.to_plotly_json())
    first, second = page.index('"title": "gpt-org/gpt-1"'), page.index('"title": "claude-org/claude-1"')
    assert page.index("0 is ") < first < page.index(", 1 is ") < second


def test_a_link_says_which_of_its_sources_is_not_known(cache: QueryCache, view: View) -> None:
    linked = dataclasses.replace(view, source="gtp_1", other="gpt_2", truth="nobody_42")
    words = drawing._unknown_sources(cache, linked)
    assert "'gtp_1', which is not known here and left out; near it: gpt_1" in words
    assert "'nobody_42'" in words and "'gpt_2'" not in words
    assert drawing._unknown_sources(cache, view) == "" and shell.told("", {}) == []


def test_the_second_source_of_a_link_stands_in_for_an_unknown_first_one(view: View) -> None:
    shown = dataclasses.replace(view, source="", other="gpt_2")
    first = drawing._with_first_source(dataclasses.replace(shown, source="nobody"), shown)
    assert (first.source, first.other) == ("gpt_2", "")
    assert drawing._with_first_source(shown, shown) == shown
    both = dataclasses.replace(shown, source="gpt_1")
    assert drawing._with_first_source(both, both) == both


def test_a_map_says_how_much_of_the_nearest_ten_it_keeps(cache: QueryCache, view: View) -> None:
    quality = cache.ask(queries.projection_quality, cache.map_reader(view), view.roster, view.domain)
    here = quality[(quality["method"] == view.projection) & (quality["dimensions"] == view.dim)]
    values = here.set_index("metric")["value"]
    page = json.dumps(map._trust(cache, view), default=lambda part: part.to_plotly_json())
    assert f'"{100 * values["knn_jaccard_10"]:.1f} %"' in page and " overlap of the ten nearest, " in page
    assert f"Trustworthiness {rate_text(values['trustworthiness_10'])}. " in page


def test_the_nearest_pairs_are_of_sources_that_filters_leave(cache: QueryCache, view: View) -> None:
    def told(**filters: Any) -> str:
        left = dataclasses.replace(view, source="", other="", **filters)
        return json.dumps(map.card(cache, left), default=lambda part: part.to_plotly_json())

    assert "of all 27, by cosine" in told() and "they write alike, unconfirmed: check them first." in told()
    both = told(families=("GPT", "Claude"))
    assert "shown, by cosine" in both and set(re.findall(r"(\w+)-org/", both)) == {"gpt", "claude"}
    assert "by cosine" not in told(families=("GPT",))


def test_why_is_a_sentence_of_measured_rows(cache: QueryCache, view: View) -> None:
    page = json.dumps(map.card(cache, view), default=lambda part: part.to_plotly_json())
    ranks = cache.ask(queries.pair_ranks, "27-way", "agent500", "gpt_1", "claude_1")["rank"]
    assert f"{(ranks <= 10).sum()} of {len(ranks)} readers ha" in page
    assert page.index("Compare the two in full") < page.index("The first source") < page.index('"card-name"')
    assert "The second's place among the 26 neighbours of the first, the nearest first" in page
    assert re.findall(r'"className": "(here|)"', page) == ["here", *[""] * (len(ranks) - 1)]
    assert page.index("Pair (CSV)") < page.index("List (CSV)") and '"CSV"' not in page
    alone = json.dumps(map.card(cache, dataclasses.replace(view, other="")), default=lambda p: p.to_plotly_json())
    assert "The first source" not in alone
    near = map.FIGURES["map-nearest"].table(cache, view)["source"]
    for place, other in enumerate(near):
        page = json.dumps(map.card(cache, dataclasses.replace(view, other=other)), default=lambda p: p.to_plotly_json())
        assert ('"place": "next"' in page) == (place < len(near) - 1)
    assert f"Of all {27 * 26 // 2} pairs, " in page


def test_traits_are_a_sentence_and_both_ways_of_reading_one_trait() -> None:
    words = _traits_words
    assert words(["word choice", WITHOUT_PROMPT, WITH_PROMPT]) == (
        "word choice and in how the proxy reads them, with the prompt and without"
    )
    assert words([WITHOUT_PROMPT, "meaning"]) == "how the proxy reads them without the prompt and in meaning"
    assert words(["meaning"]) == "meaning"
