"""Figures of relationships as pure functions: what they draw."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from atlas.figures import dots, plots, relationships
from atlas.figures import relationships as pairs
from atlas.theme import READER_COLOURS, TOKENS

COIN = dots.Level(0.5, "a coin")
NAMES = {"mpt": "MPT", "big": "READER · <b>Big</b>"}


@pytest.fixture
def summaries() -> pd.DataFrame:
    rows = [
        ("mpt", "match", "measured", 0.70, 0.06, 0.66, 0.74, 20),
        ("mpt", "match", "published", 0.72, 0.06, np.nan, np.nan, 20),
        ("big", "dc-ac", "published", 0.76, 0.05, 0.70, 0.80, 36),
        ("big", "ac", "published", 0.78, 0.05, 0.72, 0.82, 36),
        ("big", "dc", "published", 0.54, 0.05, 0.50, 0.58, 36),
    ]
    return pd.DataFrame(rows, columns=["row", "readout", "origin", "value", "std", "low", "high", "n"])


@pytest.fixture
def scored() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    dc, ac = rng.random(24), rng.random(24)
    related = ac > 0.5
    return pd.DataFrame(
        {
            "model_a": [f"a{place}" for place in range(24)],
            "model_b": ["<img src=x>" if place == 0 else f"b{place}" for place in range(24)],
            "related": related,
            "dc": dc,
            "ac": ac,
            "match": np.nan,
            "distance": np.nan,
            "decision": 0.5 * dc + 2 * ac - 1,
        }
    )


def test_measured_marks_are_filled_and_published_ones_hollow(summaries: pd.DataFrame) -> None:
    figure = go.Figure(relationships.readout_dots(summaries, NAMES, theme="dark", axis="Accuracy", level=COIN))
    traces = {(trace.legendgroup, trace.marker.color == TOKENS["dark"]["ground"]): trace for trace in figure.data}
    assert set(traces) == {("match", False), ("match", True), ("dc-ac", True), ("ac", True), ("dc", True)}
    assert len({trace.marker.symbol for trace in figure.data}) == 4
    here, there = traces["match", False], traces["match", True]
    assert list(here.x) == [0.70] and list(there.x) == [0.72] and here.y[0] < there.y[0]
    assert list(here.error_x.array) == pytest.approx([0.04]) and list(here.error_x.arrayminus) == pytest.approx([0.04])
    # No interval is stored: the bar is a standard deviation, thinner and with caps.
    assert list(there.error_x.array) == [0.06] and there.error_x.thickness < here.error_x.thickness
    assert there.error_x.width > 0 == here.error_x.width
    assert "95 % interval .660 to .740" in here.hovertext[0] and "published" in there.hovertext[0]
    assert [trace.showlegend for trace in figure.data if trace.legendgroup == "match"] == [True, False]


def test_rows_run_from_the_top_down_with_their_number_at_the_end(summaries: pd.DataFrame) -> None:
    figure = go.Figure(relationships.readout_dots(summaries, NAMES, theme="light", axis="Accuracy", level=COIN))
    first, second = figure.layout.yaxis.ticktext
    assert first == "MPT" and "&lt;b&gt;Big&lt;/b&gt;" in second
    assert figure.layout.yaxis.range[0] > figure.layout.yaxis.range[1]
    heights = {trace.legendgroup: trace.y[0] for trace in figure.data if trace.legendgroup != "match"}
    assert heights["dc-ac"] < heights["ac"] == 1 < heights["dc"]
    told = [note.text for note in figure.layout.annotations]
    assert told[0].startswith(".700") and "[.660, .740]" in told[0] and told[1].startswith(".780")
    assert told[2] == "a coin" and figure.layout.shapes[0].x0 == 0.5
    without = go.Figure(relationships.readout_dots(summaries, NAMES, theme="light", axis="F1", level=None))
    assert not without.layout.shapes and len(without.layout.annotations) == 2


def test_a_readout_of_tables_is_drawn_under_its_own_name(summaries: pd.DataFrame) -> None:
    drift = summaries.iloc[2:3].assign(readout="grp128@last", value=0.8, low=np.nan, high=np.nan)
    marks = pd.concat([summaries, drift], ignore_index=True)
    figure = go.Figure(relationships.readout_dots(marks, NAMES, theme="light", axis="Accuracy", level=COIN))
    other = next(trace for trace in figure.data if trace.name == "drift, 128 projections, last layer")
    assert list(other.x) == [0.8] and "drift, 128 projections, last layer: .800" in other.hovertext[0]
    assert figure.layout.annotations[1].text.startswith(".800")


def test_contrasts_stand_around_zero_with_their_p() -> None:
    rows = [
        ("big", "dc", "published", 0.12, 0.06, 0.18, 0.0004, 0.027),
        ("big", "ac", "published", -0.11, -0.17, -0.05, 0.01, 0.049),
        ("own", "ac", "measured", 0.01, -0.03, 0.05, 0.3, 1.0),
    ]
    columns = ["row", "reference_readout", "origin", "difference", "low", "high", "p_value", "p_holm"]
    frame = pd.DataFrame(rows, columns=columns)
    figure = go.Figure(
        relationships.contrast_dots(frame, {"big": "Big", "own": "Own"}, theme="dark", measure="accuracy")
    )
    assert figure.layout.shapes[0].x0 == 0
    drawn = {(trace.legendgroup, trace.marker.color == TOKENS["dark"]["ground"]): trace for trace in figure.data}
    assert list(drawn["dc", True].x) == [0.12] and list(drawn["ac", False].y) == [1 - 0.22]
    assert list(drawn["ac", True].error_x.arrayminus) == pytest.approx([0.06])
    assert drawn["dc", True].hovertext[0].endswith("Holm-corrected p = .027, p < .001 before the correction")
    notes = {note.text: note.font.color for note in figure.layout.annotations}
    assert notes["p = .027"] == TOKENS["dark"]["ink"] and notes["p > .999: may be luck"] == TOKENS["dark"]["soft"]


def test_pairs_differ_in_colour_and_symbol_and_bring_their_models_along(scored: pd.DataFrame) -> None:
    figure = pairs.pair_scatter(scored, scored[:0], theme="light", chosen=("b3", "a3"))
    line, strangers, relatives, ringed, halo = figure.data
    assert line.name == "decision line"
    assert strangers.name == f"unrelated ({int((~scored['related']).sum())})"
    assert relatives.name == f"related ({int(scored['related'].sum())})"
    assert strangers.marker.symbol != relatives.marker.symbol
    # Related pairs lie on top, larger and less transparent.
    assert strangers.marker.size < relatives.marker.size and strangers.marker.opacity < relatives.marker.opacity
    assert strangers.marker.color == READER_COLOURS["light"][1] and relatives.marker.color == TOKENS["light"]["accent"]
    assert [list(pair) for pair in relatives.customdata] == scored.loc[
        scored["related"], ["model_a", "model_b"]
    ].to_numpy().tolist()
    assert len(ringed.x) == 0 and list(halo.x) == [scored["dc"][3]]
    everything = "".join([*strangers.hovertext, *relatives.hovertext])
    assert "<img" not in everything and "&lt;img src=x&gt;" in everything
    assert len(pairs.pair_scatter(scored, scored[:0], theme="light", model="a5").data[3].x) == 1


def test_the_decision_line_is_where_the_mean_decision_turns(scored: pd.DataFrame) -> None:
    assert pairs.decision_line(scored) == pytest.approx((0.5, 2.0, -1.0))
    line = pairs.pair_scatter(scored, scored[:0], theme="dark").data[0]
    assert np.allclose(0.5 * np.array(line.x) + 2 * np.array(line.y) - 1, 0)
    assert pairs.decision_line(scored.assign(decision=np.nan)) is None
    undecided = pairs.pair_scatter(scored.assign(decision=np.nan), scored[:0], theme="dark")
    names = {trace.name for trace in undecided.data}
    assert "decision line" not in names and pairs.ORIENTATION in names


def test_readers_without_decisions_get_a_line_that_parts_the_kinds(scored: pd.DataFrame) -> None:
    a, b, c = pairs.orientation_line(scored)
    right = (a * scored["dc"] + b * scored["ac"] + c > 0) == scored["related"]
    assert right.mean() > 0.9 and abs(b) > abs(a)
    # Both kinds weigh the same: a kind repeated tenfold does not move the line.
    many = pd.concat([scored, *[scored[~scored["related"]]] * 9])
    assert pairs.orientation_line(many) == pytest.approx((a, b, c))
    assert pairs.orientation_line(scored[scored["related"]]) is None
    line = pairs.pair_scatter(scored.assign(decision=np.nan), scored[:0], theme="dark").data[0]
    assert line.name == pairs.ORIENTATION and line.line.dash == "dot"


def test_the_score_at_which_decisions_turn_stands_upright() -> None:
    scores = np.linspace(0.0, 1.0, 12)
    frame = pd.DataFrame(
        {
            "model_a": [f"a{n}" for n in range(12)],
            "model_b": "b",
            "related": scores > 0.4,
            "score": scores,
            "decision": 2 * scores - 0.8,
        }
    )
    assert pairs.turning_point(frame) == pytest.approx(0.4)
    assert any(
        shape.x0 == pytest.approx(0.4)
        for shape in pairs.score_stacks(frame, frame[:0], theme="dark", title="x").layout.shapes
    )
    assert pairs.turning_point(frame.assign(decision=np.nan)) is None


def test_every_pair_is_a_mark_of_the_histogram() -> None:
    frame = pd.DataFrame(
        {
            "model_a": list("abcdef"),
            "model_b": list("uvwxyz"),
            "related": [True, True, False, False, False, False],
            "score": [0.9, 0.9, 0.0, 0.0, 0.0, 0.5],
            "decision": np.nan,
        }
    )
    figure = pairs.score_stacks(frame, frame[:0], theme="dark", title="Match")
    strangers, relatives = figure.data[:2]
    assert len(strangers.x) == 4 and len(relatives.x) == 2
    # Heights are shares of the pairs of a kind, half a mark above the floor.
    assert sorted(relatives.y) == pytest.approx([0.25, 0.75])
    assert sorted(strangers.y) == pytest.approx([-0.625, -0.375, -0.125, -0.125])
    assert relatives.x[0] == relatives.x[1]
    assert figure.layout.xaxis.title.text == "Match"
    assert all(text.endswith("%") for text in figure.layout.yaxis.ticktext)


def test_passed_by_counts_pairs_of_the_other_kind_on_the_wrong_side() -> None:
    frame = pd.DataFrame(
        {
            "related": [True, True, False, False],
            "dc": np.nan,
            "ac": [0.9, 0.2, 0.5, 0.1],
            "match": np.nan,
            "distance": np.nan,
            "decision": np.nan,
        }
    )
    assert list(pairs.passed_by(frame)) == [0.0, 0.5, 0.5, 0.0]
    near = frame.assign(ac=np.nan, distance=[1.0, 8.0, 5.0, 9.0])
    assert pairs.leading(near) == "distance" and list(pairs.passed_by(near)) == [0.0, 0.5, 0.5, 0.0]
    # Decisions, where there are some, order the pairs instead; ties count half.
    decided = frame.assign(decision=[-1.0, 1.0, 1.0, -2.0])
    assert list(pairs.passed_by(decided)) == [0.5, 0.25, 0.75, 0.0]


def test_a_decision_is_told_with_whether_it_is_right() -> None:
    assert pairs.decided(float("nan"), True) == ""
    assert pairs.decided(0.3, True) == "<br>read as related"
    assert pairs.decided(0.3, False) == "<br>read as related, wrongly"
    assert plots.signed(-0.11) == "−.110" and plots.signed(0.5) == "+.500"
