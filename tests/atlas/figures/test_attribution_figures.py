"""Attribution figures as pure functions: what they draw, in which order, with which words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from atlas.figures import attribution as figures
from atlas.figures import plots
from atlas.figures.plots import Line
from atlas.theme import TOKENS

BUDGETS = [1, 5, 10, 20, 50, 100]


@pytest.fixture
def curve() -> pd.DataFrame:
    value = np.array([0.04, 0.3, 0.5, 0.7, 0.9, 0.96])
    measured = pd.DataFrame({"line": "a", "k": BUDGETS, "value": value, "n": 600, "origin": "measured"})
    banded = measured.assign(low=value - 0.02, high=value + 0.02, band="95 % interval")
    bare = measured.assign(line="b", value=value / 2, low=np.nan, high=np.nan, band="", origin="published")
    return pd.concat([banded, bare])


def curves(*values: Any, **more: Any) -> go.Figure:
    """Budget curves, checked by Plotly."""
    return go.Figure(figures.budget_curves(*values, **more))


def test_budget_curves_have_bands_ticks_and_direct_labels(curve: pd.DataFrame) -> None:
    lines = [Line("a", "ours", "#0F7EA3"), Line("b", "<i>theirs</i>", "#A53900")]
    figure = curves(curve, lines, theme="light", axis="Accuracy", k=20, chance=0.01, unit=True)
    assert [trace.name for trace in figure.data] == ["ours, band", "ours", "&lt;i&gt;theirs&lt;/i&gt;"]
    band, ours, theirs = figure.data
    assert ours.error_y.array is None
    assert max(band.y) == pytest.approx(0.98) and min(band.y) == pytest.approx(0.02)
    assert ours.line.dash == "solid" and theirs.line.dash == "dash"
    assert ours.marker.color == "#0F7EA3" and theirs.marker.color == TOKENS["light"]["panel"]
    assert figure.layout.xaxis.type == "log"
    assert list(figure.layout.xaxis.tickvals) == BUDGETS
    labels = {note.text: note for note in figure.layout.annotations}
    assert set(labels) == {"ours", "&lt;i&gt;theirs&lt;/i&gt;", "chance"}
    assert labels["ours"].y == pytest.approx(0.96) and labels["ours"].font.color == "#0F7EA3"
    marked = [shape for shape in figure.layout.shapes if shape.x0 == 20]
    assert len(marked) == 1 and marked[0].line.color == TOKENS["light"]["accent"]
    ways = {shape.line.color: (shape.y0, shape.y1) for shape in figure.layout.shapes if shape.name == "leader"}
    assert ways["#A53900"] == pytest.approx((theirs.y[-1], labels[theirs.name].y)) and len(ways) == 3
    assert ours.text[0] == "<b>ours</b><br>1 trace: .040<br>95 % interval: .020 to .060<br>600 groups"
    assert theirs.text[0].endswith("1 trace: .020<br>600 groups")


def test_names_end_with_the_value_at_the_budget(curve: pd.DataFrame) -> None:
    lines = [Line("a", "ours", "#0F7EA3"), Line("b", "theirs", "#A53900", named=False)]
    figure = curves(curve, lines, theme="dark", axis="Accuracy", k=20, chance=None, unit=True, values=True)
    assert [note.text for note in figure.layout.annotations] == ["ours .700", "K = 20", "numbers: at K = 20"]


def test_intervals_of_some_budgets_are_bars_that_hold_their_value() -> None:
    value = np.array([0.5, 0.7, 0.9])
    rows = pd.DataFrame({"line": "a", "k": [1, 10, 100], "value": value, "low": value - 0.1, "high": value + 0.05})
    rows.loc[1, ["low", "high"]] = np.nan
    lines = [Line("a", "ours", "#123456")]
    frame = rows.assign(band="95 % interval", n=9, origin="measured")
    figure = curves(frame, lines, theme="dark", axis="Accuracy", k=10, chance=None, unit=True)
    (drawn,) = figure.data
    assert drawn.error_y.array == pytest.approx([0.05, 0, 0.05])
    assert drawn.error_y.arrayminus == pytest.approx([0.1, 0, 0.1])


def test_lines_without_a_name_tell_it_on_hover_alone(curve: pd.DataFrame) -> None:
    lines = [Line("b", "theirs", TOKENS["dark"]["edge"], front=False, named=False), Line("a", "ours", "#0F7EA3")]
    figure = curves(curve, lines, theme="dark", axis="Accuracy", k=20, chance=None, unit=True)
    assert [note.text for note in figure.layout.annotations] == ["ours"]
    theirs = figure.data[0]
    assert theirs.mode == "lines" and theirs.line.dash == "dash" and "<b>theirs</b>, published" in theirs.text[0]


def test_labels_at_the_ends_do_not_cover_each_other(curve: pd.DataFrame) -> None:
    close = curve.assign(value=0.5)
    lines = [Line("a", "one", "#0F7EA3"), Line("b", "two", "#A53900")]
    figure = curves(close, lines, theme="dark", axis="Accuracy", k=1, chance=0.49, unit=True)
    heights = sorted(note.y for note in figure.layout.annotations)
    assert np.diff(heights).min() >= 0.05


def test_a_name_of_two_lines_has_the_room_of_both(curve: pd.DataFrame) -> None:
    lines = [Line("a", "a name that is far too long for one line", "#0F7EA3"), Line("b", "two", "#A53900")]
    lines.append(Line("c", "three", "#123456"))
    frame = pd.concat([curve, curve[curve["line"] == "b"].assign(line="c")])
    frame["value"] = frame["line"].map({"a": 0.52, "b": 0.51, "c": 0.5})
    figure = curves(frame, lines, theme="dark", axis="Accuracy", k=1, chance=None, unit=True)
    low, middle, high = sorted(figure.layout.annotations, key=lambda note: note.y)
    assert "<br>" in high.text and high.y - middle.y > middle.y - low.y + 0.03


@pytest.mark.parametrize(("end", "order"), [(0.9, ["one .100", "two .400"]), (0.705, ["two .400", "one .100"])])
def test_labels_stand_at_their_own_lines_and_in_the_order_of_values_where_lines_end_together(
    end: float, order: list[str]
) -> None:
    """The line that ends above has the lower value at the budget."""
    rows = pd.DataFrame({"line": ["a", "a", "b", "b"], "k": [1, 100, 1, 100], "value": [0.1, end, 0.4, 0.7]})
    frame = rows.assign(low=np.nan, high=np.nan, band="", n=9, origin="measured")
    lines = [Line("a", "one", "#0F7EA3"), Line("b", "two", "#A53900")]
    figure = curves(frame, lines, theme="dark", axis="Accuracy", k=1, chance=None, unit=True, values=True)
    named = (note for note in figure.layout.annotations if note.xref == "paper" and note.name != "head")
    labels = sorted(named, key=lambda note: -note.y)
    assert [note.text for note in labels] == order


@pytest.fixture
def sources() -> pd.DataFrame:
    families = ["GPT", "Qwen", "Qwen", "GPT", "Qwen", "Phi"]
    return pd.DataFrame(
        {
            "position": range(6),
            "source": ["g1", "q1", "q2", "g2", "q3", "p1"],
            "name": ["gpt-1", "qwen-1", "qwen-2", "gpt-2", "<b>qwen</b>", "phi"],
            "family": families,
            "family_position": [{"GPT": 0, "Qwen": 1, "Phi": 2}[family] for family in families],
        }
    )


@pytest.fixture
def cells() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "truth": ["q1", "q1", "q1", "q1", "g1"],
            "predicted": ["q1", "q2", "g1", "p1", "g1"],
            "count": [6, 2, 1, 1, 10],
            "share": [0.6, 0.2, 0.1, 0.1, 1.0],
        }
    )


def test_confusion_is_ordered_by_family_large_first(sources: pd.DataFrame) -> None:
    assert list(figures.confusion_order(sources)["source"]) == ["q1", "q2", "q3", "g1", "g2", "p1"]


def test_confusion_rows_are_the_truth_and_zero_is_background(sources: pd.DataFrame, cells: pd.DataFrame) -> None:
    order = figures.confusion_order(sources)
    figure = go.Figure(figures.confusion_matrix(cells, order, theme="dark", clicked=("q1", "q2")))
    heat = figure.data[0]
    assert list(heat.y) == ["qwen-1", "qwen-2", "&lt;b&gt;qwen&lt;/b&gt;", "gpt-1", "gpt-2", "phi"]
    assert list(heat.x) == list(heat.y)
    assert list(heat.z[0]) == [0.6, 0.2, None, 0.1, None, 0.1]
    assert heat.z[3][3] == 1.0 and heat.z[4][4] is None
    assert figure.layout.yaxis.autorange == "reversed"
    boxes = [(shape.x0, shape.x1) for shape in figure.layout.shapes if shape.line.color == TOKENS["dark"]["edge"]]
    assert boxes == [(-0.5, 2.5), (2.5, 4.5)]
    clicked = [shape for shape in figure.layout.shapes if shape.line.color == TOKENS["dark"]["accent"]]
    assert [(shape.x0, shape.y0) for shape in clicked] == [(0.5, -0.5)]
    words = [note.text for note in figure.layout.annotations]
    assert words == [*["Qwen", "GPT", "Phi"] * 2, "Named source", "True source"]
    assert [note.textangle for note in figure.layout.annotations if note.y == 1 and note.yref == "paper"] == [-45] * 3


def test_confusion_zoomed_to_a_family_gathers_what_leaves_it(sources: pd.DataFrame, cells: pd.DataFrame) -> None:
    order = figures.confusion_order(sources)
    figure = go.Figure(figures.confusion_matrix(cells, order, theme="light", zoom="Qwen"))
    (heat,) = figure.data
    words = [note.text for note in figure.layout.annotations]
    assert ".600" in words and words[-1] == "True source" and figure.layout.xaxis.title.text == "Named source"
    assert list(heat.x) == ["qwen-1", "qwen-2", "&lt;b&gt;qwen&lt;/b&gt;", "any other family"]
    assert list(heat.z[0]) == [0.6, 0.2, None, 0.2]
    assert figures.cell_at(order, "Qwen", "qwen-2", "qwen-1") == ("q1", "q2")
    assert figures.cell_at(order, "", "gpt-1", "&lt;b&gt;qwen&lt;/b&gt;") == ("q3", "g1")
    assert figures.cell_at(order, "Qwen", "any other family", "qwen-1") == ("", "")


def test_siblings_that_are_taken_for_each_other_stand_together(sources: pd.DataFrame) -> None:
    order = figures.confusion_order(sources)
    cells = pd.DataFrame(
        {"truth": ["q1", "q1", "q2", "q3"], "predicted": ["q1", "q3", "q2", "q1"], "share": [0.4, 0.6, 1.0, 0.5]}
    )
    together = figures.sibling_order(cells, order, "Qwen")
    assert list(together["source"]) in (["q2", "q1", "q3"], ["q2", "q3", "q1"], ["q1", "q3", "q2"])
    assert together.equals(figures.sibling_order(cells.iloc[::-1], order, "Qwen"))
    assert list(figures.sibling_order(cells, order, "GPT")["source"]) == ["g1", "g2"]


def test_a_large_family_has_a_scale_in_place_of_numbers_and_names() -> None:
    many = pd.DataFrame({"position": range(50), "source": [f"s{at}" for at in range(50)]})
    many = many.assign(name=many["source"], family="big", family_position=0)
    cells = pd.DataFrame({"truth": ["s0"], "predicted": ["s0"], "count": [1], "share": [1.0]})
    for count, scale in ((50, True), (10, False)):
        figure = go.Figure(figures.confusion_matrix(cells, many.head(count), theme="dark", zoom="big"))
        words = [note.text for note in figure.layout.annotations]
        assert figure.data[0].showscale is scale and figure.layout.xaxis.showticklabels is not scale
        assert ("Named source,<br>in the order<br>of the rows" in words) is scale


def test_columns_of_a_family_leave_the_maker_to_the_rows(sources: pd.DataFrame, cells: pd.DataFrame) -> None:
    made = sources.assign(name=["Qwen/" + name for name in sources["name"]])
    same = made.assign(name=[f"Maker-{place}/qwen" for place in range(len(made))])
    for frame, cut in ((made, True), (same, False)):
        figure = go.Figure(figures.confusion_matrix(cells, figures.confusion_order(frame), theme="light", zoom="Qwen"))
        heads, rows = list(figure.layout.xaxis.ticktext), list(figure.layout.yaxis.ticktext)
        assert all("/" in name for name in rows) and len(rows) > 1
        assert heads == [*(name.partition("/")[2] if cut else name for name in rows), "other family"]
        assert figure.layout.margin.b == round(48 + 5.2 * max(map(len, heads)))


def test_names_that_read_the_same_get_rows_of_their_own(sources: pd.DataFrame, cells: pd.DataFrame) -> None:
    order = figures.confusion_order(sources.assign(name="twin"))
    heat = go.Figure(figures.confusion_matrix(cells, order, theme="dark")).data[0]
    assert len(set(heat.y)) == 6
    assert figures.cell_at(order, "", heat.x[1], heat.y[0]) == ("q1", "q2")


def test_margin_names_of_many_small_families_do_not_touch() -> None:
    many = pd.DataFrame(
        {
            "position": range(60),
            "source": [f"s{place}" for place in range(60)],
            "name": [f"n{place}" for place in range(60)],
            "family": ["big"] * 40 + [f"f{place}" for place in range(20)],
            "family_position": [0] * 40 + list(range(1, 21)),
        }
    )
    cells = pd.DataFrame({"truth": ["s0"], "predicted": ["s0"], "count": [1], "share": [1.0]})
    figure = go.Figure(figures.confusion_matrix(cells, figures.confusion_order(many), theme="dark"))
    names = [(note.text, note.y) for note in figure.layout.annotations if note.x == -0.5]
    assert names == [("big", 19.5), ("20 smaller", 49.5)]
    # A caption that names the families counts the others as the drawing does.
    assert figures.named_families(figures.confusion_order(many)["family"]) == (["big"], 20)


def test_family_errors_show_the_share_beside_the_blind_one() -> None:
    frame = pd.DataFrame({"k": [1, 5, 100], "errors": [100.0, 40.0, 0.0], "errors_within_family": [30.0, 20.0, 0.0]})
    figure = go.Figure(figures.family_errors(frame, theme="dark", expectation=0.18, k=5))
    bar = figure.data[0]
    assert list(bar.x) == ["1", "5"] and list(bar.y) == [0.3, 0.5]
    assert list(bar.text) == [".300", ".500"]
    assert list(bar.marker.color) == [TOKENS["dark"]["edge"], TOKENS["dark"]["accent"]]
    assert figure.layout.shapes[0].y0 == 0.18
    assert figure.layout.xaxis.range[1] > len(bar.x)  # room for the word next to the level
    assert bar.hovertext[1] == "5 traces: 20 of 40 errors stay in the family"


def test_blind_share_is_the_expected_share_of_random_errors() -> None:
    families = pd.Series(["a", "a", "a", "b", "b", "c"])
    pairs = [(one, other) for one in range(6) for other in range(6) if one != other]
    naive = np.mean([families[one] == families[other] for one, other in pairs])
    assert figures.blind_share(families) == pytest.approx(naive)
    assert np.isnan(figures.blind_share(pd.Series(["a"])))


def test_layer_curve_rings_the_chosen_blocks() -> None:
    curve = pd.DataFrame(
        {"layer": [1, 2, 3], "accuracy": [0.1, 0.4, 0.3], "low": [0.05, 0.35, 0.2], "high": [0.2, 0.5, 0.4]}
    )
    chosen = pd.DataFrame({"outer_fold": pd.array([0, 1, 2, 3, 4, pd.NA], dtype="Int64"), "layer": [2, 2, 3, 2, 2, 2]})
    figure = go.Figure(figures.layer_curve(curve, chosen, theme="light"))
    named = {trace.name: trace for trace in figure.data}
    assert list(named["mean accuracy"].y) == [0.1, 0.4, 0.3]
    assert list(named["range over the outer folds"].y) == [0.2, 0.5, 0.4, 0.2, 0.35, 0.05]
    assert list(named["selected"].x) == [2, 3] and list(named["selected"].y) == [0.4, 0.3]
    assert list(named["selected"].text) == ["<b>4</b>", "1"]
    assert list(named["selected"].hovertext) == [
        "Layer 2, chosen by 4 of 5 folds, modal",
        "Layer 3, chosen by 1 of 5 folds",
    ]


def test_fold_spread_is_drawn_around_the_mean() -> None:
    frame = pd.DataFrame({"k": [1, 1, 5, 5], "fold": [0, 1, 0, 1], "value": [0.2, 0.4, 0.5, 0.5], "n": 60})
    figure = go.Figure(figures.fold_spread(frame, theme="dark", axis="Accuracy", k=5))
    points = figure.data[0]
    assert list(points.x) == ["1", "1", "5", "5"]
    assert list(points.y) == pytest.approx([-0.1, 0.1, 0.0, 0.0])
    assert points.marker.line.color[2] == TOKENS["dark"]["accent"] != points.marker.line.color[0]
    assert "less its mean" in figure.layout.yaxis.title.text
    low, high = figure.layout.yaxis.range
    assert low == -high and high > 0.1


@pytest.mark.parametrize(
    ("value", "text"), [(0.4812, ".481"), (1.0, "1.000"), (0.0, ".000"), (-0.25, "−.250"), (float("nan"), "–")]
)
def test_rates_have_three_digits_and_no_leading_zero(value: float, text: str) -> None:
    assert plots.rate_text(value) == text


def test_numbers_have_three_significant_digits() -> None:
    assert [plots.figure_text(value) for value in (0.0372, 4.2, 4.5678, 123.4)] == [".037", "4.20", "4.57", "123"]


def test_of_a_long_name_with_its_number_the_name_is_cut() -> None:
    name = "Fused readout · SmolLM2-135M-Instruct · one more word and another"
    assert plots.in_two_lines("READER", [".774"], 28) == ["READER .774"]
    first, second = plots.in_two_lines(name, [".841"], 28)
    assert first.startswith("Fused readout") and second.endswith("… .841") and max(len(first), len(second)) <= 28
    long = plots.in_two_lines("READER · SmolLM2-135M-Instruct, mean evidence", ["1.66"], 28)
    assert long == ["READER · SmolLM2-135M-", "Instruct, mean evidence 1.66"]
