"""Figures of a source, a family and of readers side by side, as pure functions."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from atlas.figures import compare, sources
from atlas.figures.plots import Line
from atlas.theme import family_marks

MARKS = family_marks(["Qwen", "GPT", "Phi"])


@pytest.fixture
def table() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "source": ["a", "b", "c"],
            "name": ["A", "<i>B</i>", "C"],
            "accuracy_1": [0.1, 0.2, 0.6],
            "accuracy_5": [0.5, 0.6, 1.0],
            "accuracy_10": np.nan,
        }
    )


def test_curves_stand_before_the_spread_of_all_sources(table: pd.DataFrame) -> None:
    lines = [(Line("x", "other", "#E8C15A", "dot"), {1: 0.3}), (Line("a", "chosen", "#3BA7C9"), {1: 0.1, 5: 0.5})]
    figure = sources.accuracy_curves(table, lines, theme="dark", k=5, thin=["b"], colour="#9676C4")
    assert [trace.name for trace in figure.data] == [
        "80% of all sources", "50% of all sources", "median source", "&lt;i&gt;B&lt;/i&gt;", "other", "chosen",
    ]  # fmt: skip
    named = {trace.name: trace for trace in figure.data}
    assert list(named["median source"].y) == [0.2, 0.6] and list(named["median source"].x) == [1, 5]
    assert list(named["50% of all sources"].y) == pytest.approx([0.4, 0.8, 0.55, 0.15])
    assert list(named["chosen"].y) == [0.1, 0.5] and list(named["other"].x) == [1]
    assert named["other"].line.dash == "dot"
    assert {note.text for note in figure.layout.annotations} == {"median source", "other", "chosen", "K = 5"}
    assert [shape.x0 for shape in figure.layout.shapes] == [5]
    assert list(figure.layout.xaxis.tickvals) == [1, 5]


def test_mean_accuracy_of_some_sources(table: pd.DataFrame) -> None:
    assert sources.accuracy_of(table, ["a", "c"]) == {1: pytest.approx(0.35), 5: pytest.approx(0.75)}
    assert sources.accuracy_of(table, []) == {}
    assert sources.accuracy_text({5: 0.75}, 5) == "75.0 %" and sources.accuracy_text({}, 5) == "–"


def test_confusions_stand_on_both_sides() -> None:
    frame = pd.DataFrame(
        {"name": ["<b>x</b>", "y"], "family": ["GPT", "Phi"], "answered_as": [0.2, 0.0], "named_for": [0.05, 0.1]}
    )
    figure = sources.taken_for(frame, MARKS, theme="light")
    left, right = figure.data
    assert list(left.x) == [-0.2, 0.0] and list(right.x) == [0.05, 0.1]
    assert list(left.text) == ["20 %", ""] and list(right.text) == ["5.0 %", "10 %"]
    assert list(left.marker.color) == [MARKS["GPT"].light, MARKS["Phi"].light]
    assert list(figure.layout.yaxis.ticktext) == ["&lt;b&gt;x&lt;/b&gt;", "y"]
    assert {note.text for note in figure.layout.annotations} == {"← it is answered as", "answered as it →"}
    assert figure.layout.xaxis.range[0] == -figure.layout.xaxis.range[1]


def test_errors_of_a_family_stand_beside_what_blind_ones_would_give() -> None:
    frame = pd.DataFrame({"family": ["Qwen", "GPT"], "share": [0.7, 0.3], "expected": [0.4, 0.1]})
    figure = sources.error_families(frame, MARKS, theme="dark", own="GPT")
    chance, errors = figure.data
    assert list(chance.x) == [0.4, 0.1] and list(errors.x) == [0.7, 0.3] and errors.width < chance.width
    assert list(errors.marker.color) == [MARKS["Qwen"].dark, MARKS["GPT"].dark]
    assert list(figure.layout.yaxis.ticktext) == ["Qwen", "<b>GPT</b>"]
    # Numbers stand behind both bars, also where blind errors would give more.
    rare = sources.error_families(frame.assign(expected=[0.4, 0.35]), MARKS, theme="dark", own="GPT")
    notes = [(re.sub("<[^>]*>", "", note.text), note.x) for note in rare.layout.annotations]
    assert notes == [("70 % (chance 40 %)", 0.7), ("30 % (chance 35 %)", 0.35)]


def test_layer_curves_of_several_proxies_share_one_depth() -> None:
    curve = pd.DataFrame(
        {"layer": [1, 2], "depth": [0.5, 1.0], "accuracy": [0.3, 0.2], "low": [0.25, 0.15], "high": [0.35, 0.25]}
    )
    lines = [Line("b", "without", "#111111"), Line("a", "with", "#3BA7C9")]
    figure = compare.layer_curves({"a": curve}, {"a": 1}, lines, theme="dark", one=False)
    assert [trace.name for trace in figure.data] == ["with, range", "with", "with, selected"]
    assert list(figure.data[1].x) == [0.5, 1.0] and list(figure.data[1].y) == [0.3, 0.2]
    assert list(figure.data[2].x) == [0.5] and list(figure.data[2].text) == ["layer 1"]
    assert figure.layout.annotations[0].text == "with"
    numbered = compare.layer_curves({"a": curve}, {"a": 1}, lines, theme="dark", one=True).layout.xaxis
    assert numbered.title.text == "Layer of the proxy" and list(numbered.ticktext) == ["1", "2"]
