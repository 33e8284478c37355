"""Figures of Compare as pure functions: goals, panels, capability, cost, and names beside marks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from atlas.figures import compare, dots, plots
from atlas.figures.plots import Line
from atlas.theme import TOKENS


def test_goals_stand_beside_their_answers() -> None:
    frame = pd.DataFrame(
        [
            ("One trace", "readout", "fused", 0.5, 0.48, 0.52, 0.56),
            ("One trace", "paper", "<b>Vast</b>", 0.52, np.nan, np.nan, 0.56),
            ("Short", "readout", "fused", 0.94, np.nan, np.nan, 0.92),
            ("Elsewhere", "paper", "Vast", 0.33, np.nan, np.nan, 0.4),
        ],
        columns=["row", "answer", "name", "value", "low", "high", "aim"],
    )
    names = {row: row for row in ("One trace", "Short", "Elsewhere")}
    names["Short"] = "Short\nREADER, DC alone · <b>Vast</b>"
    plot = dots.goal_rows(frame, names, theme="light")
    assert dots.height_of(plot) >= 56 + 60 + 3 * 32  # a name on two lines of type
    figure = go.Figure(plot)
    assert (
        figure.layout.yaxis.ticktext[1].startswith("Short<br><span") and "&lt;b&gt;" in figure.layout.yaxis.ticktext[1]
    )
    drawn = {trace.name: trace for trace in figure.data}
    assert list(drawn["our goal"].x) == [0.56, 0.92, 0.4]
    ours, theirs = drawn["fused readout"], drawn["best published"]
    assert list(ours.error_x.array) == pytest.approx([0.02, 0.0])
    assert theirs.marker.color == TOKENS["light"]["ground"] != ours.marker.color
    assert "&lt;b&gt;Vast" in theirs.hovertext[0] and "published" in theirs.hovertext[0]
    told = [note.text for note in figure.layout.annotations]
    assert (
        ".500" in told[0]
        and "goal .560" in told[0]
        and "reached" in told[1]
        and told[2] == "not measured"[: len(told[2])]
    )


def test_panels_share_one_scale_and_name_what_is_missing() -> None:
    frame = pd.DataFrame(
        [("a", "measured", "x", "clean", k, 0.1 * k, 0.01) for k in (1, 5)]
        + [("b", "published", "x", "clean", k, 0.2, np.nan) for k in (1, 5)]
        + [("a", "measured", "x", "t64", 1, 0.05, 0.01)],
        columns=["reader", "origin", "benchmark", "condition", "k", "value", "std"],
    )
    where = {("x", "clean"): "Whole", ("x", "t64"): "64 tokens", ("y", "clean"): "Elsewhere"}
    lines = [Line("b", "theirs", "#112233"), Line("a", "ours", "#445566")]
    plot = compare.curve_panels(frame, where, lines, theme="dark", axis="Accuracy", k=5, unit=True)
    figure = go.Figure(plot)
    assert [(trace.name, trace.xaxis) for trace in figure.data] == [
        ("theirs", "x"), ("ours ± std", "x"), ("ours", "x"), ("ours ± std", "x2"), ("ours", "x2"),
    ]  # fmt: skip
    assert figure.data[0].line.dash == "dash" and figure.data[2].line.dash == "solid"
    assert [trace.showlegend for trace in figure.data if trace.name == "ours"] == [True, False]
    assert figure.layout.yaxis2.matches == "y" and list(figure.layout.yaxis3.range) == [0, 1.02]
    assert "not measured" in [note.text for note in figure.layout.annotations]
    assert [shape.xref for shape in figure.layout.shapes] == ["x", "x2"]
    ends = [figure.layout[f"xaxis{n}"].domain for n in ("", "2", "3")]
    assert ends[0][0] == 0 and ends[2][1] == pytest.approx(1) and ends[0][1] < ends[1][0]


def test_the_fit_line_is_the_least_squares_one() -> None:
    frame = pd.DataFrame(
        {
            "benchmark": "B",
            "name": ["one-Instruct-2512", "two-it", "three"],
            "score": [10.0, 20.0, 40.0],
            "value": [0.1, 0.3, 0.4],
        }
    )
    figure = go.Figure(compare.capability_fit(frame, {"B": "r = .900"}, theme="dark", k=20))
    line, marks = figure.data
    slope, offset = np.polyfit([10, 20, 40], [0.1, 0.3, 0.4], 1)
    assert list(line.y) == pytest.approx([slope * 10 + offset, slope * 40 + offset])
    assert list(marks.text) == ["one", "two", "three"] and "one-Instruct-2512" in marks.hovertext[0]
    assert "r = .900" in figure.layout.annotations[0].text
    few = go.Figure(compare.capability_fit(frame.head(2), {}, theme="dark", k=20))
    assert [trace.name for trace in few.data] == ["B"]


def test_costs_of_published_readers_are_hollow() -> None:
    frame = pd.DataFrame(
        {
            "name": ["ours", "theirs", "all words, in <i>order</i>"],
            "label": ["ours", "theirs", "<i>words</i>"],
            "kind": ["READER", "READER", "Baselines"],
            "origin": ["measured", "published", "measured"],
            "cost": [1e8, 1e10, 1e6],
            "cost_text": "many",
            "value": [0.8, 0.9, 0.7],
        }
    )
    figure = go.Figure(compare.cost_scatter(frame, theme="light", axis="Parameters", k=20))
    reader, words = figure.data
    assert reader.marker.color[1] == TOKENS["light"]["ground"] != reader.marker.color[0]
    assert figure.layout.xaxis.type == "log" and words.text[0] == "&lt;i&gt;words&lt;/i&gt;"
    assert "all words, in &lt;i&gt;order" in words.hovertext[0]
    low, high = figure.layout.xaxis.range
    assert low < 6 and high > 10


def test_the_best_and_the_cheapest_have_whole_names_in_a_clump_that_one_far_below_does_not_press_together() -> None:
    values = [0.85 + 0.002 * number for number in range(24)]
    names = [f"A readout of several others, the {number}th of them all" for number in range(24)]
    frame = pd.DataFrame({"name": names, "label": names, "cost": 50.0, "value": values}).assign(
        kind="Readouts", origin="measured", cost_text="slow"
    )
    low = {"name": "lost", "label": "lost", "cost": 20.0, "value": 0.4}
    fast = {"name": "quick", "label": "quick", "cost": 0.05, "value": 0.88}
    frame = pd.concat([pd.DataFrame([frame.iloc[0].to_dict() | low, frame.iloc[0].to_dict() | fast]), frame])
    figure = go.Figure(compare.cost_scatter(frame.reset_index(drop=True), theme="light", axis="Milliseconds", k=20))
    (marks,) = figure.data
    bottom, top = figure.layout.yaxis.range
    assert bottom > 0.8 and all(bottom < y < top for y in marks.y)
    where = dict(zip(marks.text, range(len(marks.text)), strict=True))
    assert {"quick", "lost .400", names[-1]} < set(where) and not any("…" in name for name in where)
    assert marks.marker.symbol[where["lost .400"]] == "triangle-down" and ".400" in marks.hovertext[where["lost .400"]]
    assert marks.y[where["lost .400"]] == min(marks.y) and marks.marker.symbol[0] == "circle"


def test_differences_stand_in_their_places_with_their_p() -> None:
    series = {"a": dots.Series("one trace", "diamond", 1, 1), "b": dots.Series("many", "circle", -1, 0)}
    frame = pd.DataFrame(
        [
            ("x", "a", "measured", 0.1, 0.05, 0.15, "p = .001", "p < .001", True),
            ("x", "b", "measured", -0.01, -0.02, 0.01, "p > .999", "p = .400", False),
        ],
        columns=["row", "series", "origin", "difference", "low", "high", "p_text", "p_raw", "clear"],
    )
    figure = go.Figure(dots.difference_rows(frame, {"x": "X"}, series, theme="dark", axis="d", compared="less"))
    one, many = figure.data
    assert one.y[0] == pytest.approx(-0.22) and many.y[0] == pytest.approx(0.22)
    inks = {note.text: note.font.color for note in figure.layout.annotations}
    assert inks == {"p = .001": TOKENS["dark"]["ink"], "p > .999: may be luck": TOKENS["dark"]["soft"]}
    assert one.hovertext[0].endswith("Holm-corrected p = .001, p < .001 before the correction")
    assert figure.layout.shapes[0].x0 == figure.layout.shapes[0].x1 == 0
    assert dots.height_of(figure.to_plotly_json()) == dots.dots_height(1) == dots.dots_height(2) < dots.dots_height(3)


def test_names_leave_each_other_alone() -> None:
    # Two marks side by side: one name above, one below; at the right end a name stays inside.
    assert plots.sides([100, 110], [50, 50], ["a long name", "another one"], 400) == ["top center", "bottom center"]
    assert plots.sides([395], [50], ["a long name"], 400) == ["middle left"]
    assert plots.sides([], [], [], 400) == []


@given(
    st.lists(
        st.tuples(st.integers(0, 400), st.integers(0, 280), st.text("abcdefgh", min_size=1, max_size=20)), max_size=12
    )
)
def test_every_name_has_a_side(marks: list[tuple[int, int, str]]) -> None:
    found = plots.sides(*[[mark[part] for mark in marks] for part in range(3)], 400)
    assert len(found) == len(marks) and set(found) <= set(plots.SIDES)


def test_headings_have_no_line_and_many_rows_have_their_axis_above() -> None:
    names = {"head": "Members", **{f"r{row}": f"Reader {row}" for row in range(dots.TALL)}}
    one = {"series": "a", "origin": "measured", "value": 0.5, "std": 0.1, "n": 3}
    frame = pd.DataFrame(
        [one | {"row": row, "low": 0.4 if row == "r1" else np.nan, "high": 0.6} for row in names if row != "head"]
    )
    series = {"a": dots.Series("all", "circle", 1, 0)}
    tall = dots.dot_rows(frame, names, series, theme="dark", axis="Accuracy", usual=["a"])["layout"]
    assert tall["xaxis"]["side"] == "top" and tall["legend"]["title"]["text"] == dots.BARS.format("folds")
    assert tall["yaxis"]["ticktext"][:2] == ["<b>Members</b>", "Reader 0"] and tall["yaxis"]["showgrid"] is False
    assert [shape["y0"] for shape in tall["shapes"]] == list(range(1, len(names)))
    short = dots.dot_rows(frame[:2], {"r0": "One", "r1": "Two"}, series, theme="dark", axis="Accuracy", usual=["a"])
    assert short["layout"]["xaxis"]["side"] == "bottom" and short["layout"]["shapes"] == []
