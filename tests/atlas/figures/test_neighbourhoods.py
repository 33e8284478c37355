"""Neighbourhood figures as pure functions: what they draw, in which order, with which words."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from atlas.figures import neighbourhoods as figures
from atlas.figures.plots import Line
from atlas.theme import TOKENS, family_marks

MARKS = family_marks(["Qwen", "GPT", "Doubao", "Phi"])
HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def purity() -> pd.DataFrame:
    own = pd.DataFrame(
        {"reader": "a", "origin": "measured", "k": [1, 5], "purity": [0.8, 0.5], "low": [0.7, 0.4], "high": [0.9, 0.55],
         "expectation": 0.2, "p_value": 0.0001, "p_holm": [0.0004, np.nan]}
    )  # fmt: skip
    return pd.concat([own, own.assign(reader="b", origin="published", purity=0.6, low=np.nan, high=np.nan)])


def test_family_purity_has_intervals_chance_and_words(purity: pd.DataFrame) -> None:
    lines = [Line("b", "theirs", "#66758A", front=False), Line("a", "ours", "#3BA7C9"), Line("c", "none", "#000000")]
    figure = figures.family_purity(purity, lines, theme="dark")
    assert [trace.name for trace in figure.data] == ["theirs", "ours"]
    theirs, ours = figure.data
    assert list(ours.y) == [0.8, 0.5] and list(ours.text) == [".800", ".500"] and theirs.text is None
    assert list(ours.error_y.array) == pytest.approx([0.1, 0.05])
    assert list(ours.error_y.arrayminus) == pytest.approx([0.1, 0.1])
    assert list(theirs.error_y.array) == [0.0, 0.0]
    assert ours.marker.color == "#3BA7C9" and theirs.marker.color == TOKENS["dark"]["panel"]
    assert list(figure.layout.xaxis.ticktext) == ["1", "5"]
    assert figure.layout.shapes[0].y0 == 0.2
    assert ours.hovertext[0] == (
        "<b>ours</b><br>k = 1: .800 [.700, .900]<br>4.0 times chance<br>p < .001<br>Holm p < .001"
    )
    assert "published" in theirs.hovertext[0] and "Holm" not in ours.hovertext[1]


def test_the_most_that_siblings_allow_is_a_dotted_line(purity: pd.DataFrame) -> None:
    lines = [Line("a", "ours", "#3BA7C9")]
    figure = figures.family_purity(purity.assign(most_possible=[1.0, 0.9] * 2), lines, theme="dark")
    most, ours = figure.data
    assert (most.name, most.line.dash, list(most.y)) == ("most possible", "dot", [1.0, 1.0, 0.9, 0.9])
    assert ours.name == "ours" and not figure.layout.showlegend
    notes = [(note.text, note.y) for note in figure.layout.annotations]
    assert notes == [("chance", 0.2), ("most<br>possible", 0.9)]


def test_nearest_sources_carry_the_marks_of_their_families() -> None:
    frame = pd.DataFrame(
        {"name": ["one", HOSTILE], "family": ["Doubao", "GPT"], "rank": [1, 2], "rank_back": [3, np.nan],
         "cosine": [0.9, 0.5], "percentile": [0.99, 0.6]}
    )  # fmt: skip
    figure = figures.nearest_sources(frame, MARKS, theme="light")
    points = figure.data[0]
    assert list(points.x) == [0.9, 0.5] and list(points.y) == [0, 1]
    assert list(points.marker.symbol) == [MARKS["Doubao"].plotted, MARKS["GPT"].plotted]
    assert list(points.marker.color) == [MARKS["Doubao"].light, MARKS["GPT"].light]
    assert points.marker.line.color[0] == TOKENS["light"]["ink"]
    assert list(figure.layout.yaxis.ticktext) == ["one", "&lt;img src=x onerror=alert(1)&gt;"]
    low, high = figure.layout.xaxis.range
    assert low < 0.5 and high > 1 and figure.layout.xaxis.tickformat is None  # cosines near 1 need their decimals
    assert points.hovertext[0].endswith("rank 1 from here, rank 3 from there<br>nearer than 99.0% of all pairs")
    assert "no rank from there" in points.hovertext[1] and "<img" not in points.hovertext[1]
    assert figure.layout.yaxis.range[0] > figure.layout.yaxis.range[1]


def test_agreement_has_spearman_above_and_shared_neighbours_below() -> None:
    frame = pd.DataFrame(
        {"reader": ["a", "a", "b", "a"], "other": ["b", "b", "c", "c"],
         "metric": ["spearman", "jaccard_10", "spearman", "p_value"], "value": [0.9, 0.4, 0.8, 0.0]}
    )  # fmt: skip
    drawn = figures.agreement_matrix(frame, {"c": "C", "a": "A", "b": "B", "unused": "U"}, theme="dark")
    figure = go.Figure(drawn)
    heat = figure.data[0]
    assert list(figure.layout.yaxis.ticktext) == ["<b>1</b>  C", "<b>2</b>  A", "<b>3</b>  B"]
    assert list(figure.layout.xaxis.ticktext) == ["<b>1</b>", "<b>2</b>", "<b>3</b>"]
    assert [list(row) for row in heat.z] == [[None, None, 0.8], [None, None, 0.9], [None, 0.4, None]]
    assert sorted(note.text for note in figure.layout.annotations) == [".400", ".800", ".900"]
    assert heat.customdata[1][2] == "A and B<br>Spearman of all distances: .900"


def test_stability_marks_the_mean_of_the_folds() -> None:
    frame = pd.DataFrame({"fold": [1, 0, 0], "metric": ["spearman", "spearman", "purity_5"], "value": [0.8, 0.9, 0.5]})
    words = {"jaccard_10": "nearest", "spearman": "distances", "purity_5": "family"}
    figure = figures.fold_stability(frame, words, theme="light")
    assert [trace.name for trace in figure.data] == ["spearman", "purity_5"]
    assert list(figure.data[0].x) == [0.9, 0.8] and list(figure.data[0].y) == [0, 0]
    assert [shape.x0 for shape in figure.layout.shapes] == pytest.approx([0.85, 0.5])
    assert list(figure.layout.yaxis.ticktext) == ["distances", "family"]
    assert figure.data[0].hovertext[0] == "distances<br>prompts of fold 1: .900"


def test_maps_stand_in_the_order_of_their_names() -> None:
    frame = pd.DataFrame(
        {"method": ["pca", "tsne", "tsne", "sweep", "sweep", "unknown"], "dimensions": [2, 2, 3, 2, 2, 2],
         "metric": "t5", "value": [0.9, 0.97, 0.98, 0.95, 0.96, 0.1]}
    )  # fmt: skip
    figure = figures.map_trust(frame, {"tsne": "t-SNE", "pca": "PCA", "sweep": "Others"}, {"t5": "trust"}, theme="dark")
    assert list(figure.layout.yaxis.ticktext) == ["t-SNE, 3-D", "t-SNE, 2-D", "PCA, 2-D", "Others, 2-D"]
    points = figure.data[0]
    assert sorted(zip(points.y, points.x, strict=True)) == [(0, 0.98), (1, 0.97), (2, 0.9), (3, 0.95), (3, 0.96)]


def test_the_search_across_domains_shows_both_variants() -> None:
    frame = pd.DataFrame(
        {"variant": ["raw", "centred", "raw"], "metric": ["top1", "top1", "mrr"], "value": [0.5, 0.7, 0.6]}
    )
    figure = figures.domain_search(frame, {"top1": "first", "mrr": "mean"}, theme="dark")
    raw, centred = figure.data
    assert list(raw.x) == [0.5, 0.6] and list(centred.x) == [0.7]
    assert raw.marker.symbol == "circle" and centred.marker.symbol == "circle-open"
    assert [*raw.y, *centred.y] == [-0.25, 0.75, 0.25]  # the line of a row runs between its numbers
    assert list(figure.layout.yaxis.ticktext) == ["first", "mean"]


def test_the_tree_joins_clusters_and_colours_pure_branches() -> None:
    sources = pd.DataFrame(
        {
            "source": ["q1", "g1", "q2", "p1"],
            "name": ["q-1", HOSTILE, "q-2", "p"],
            "family": ["Qwen", "GPT", "Qwen", "Phi"],
        }
    )
    steps = pd.DataFrame(
        {
            "step": [0, 1, 2],
            "left_node": [0, 4, 3],
            "right_node": [2, 1, 5],
            "height": [0.1, 0.4, 0.9],
            "size": [2, 3, 4],
        }
    )
    figure = go.Figure(figures.tree(steps, sources, MARKS, theme="dark", selected="q2"))
    named = {trace.name: trace for trace in figure.data}
    assert set(named) == {"Qwen", "several families", "sources"}
    assert named["Qwen"].line.color == MARKS["Qwen"].dark
    assert list(named["sources"].customdata) == [["p1"], ["q1"], ["q2"], ["g1"]]
    assert list(figure.layout.yaxis.ticktext) == ["p", "q-1", "<b>q-2</b>", "&lt;img src=x onerror=alert(1)&gt;"]
    # The first join: from both leaves up to its height, and across.
    assert list(named["Qwen"].x) == [0.0, 0.1, 0.1, 0.0, None]
    assert list(named["Qwen"].y) == [1, 1, 2, 2, None]
    assert max(x for x in named["several families"].x if x is not None) == 0.9
    assert figures.tree_height(165) > 2000


def test_names_beside_a_matrix_of_many_readers_stand_on_one_line() -> None:
    names = {str(at): f"Proxy-{at}B-Instruct · response" for at in range(12)}
    rows = [{"reader": "0", "other": other, "metric": "spearman", "value": 0.5} for other in list(names)[1:]]
    labels = figures.agreement_matrix(pd.DataFrame(rows), names, theme="light")["layout"]["yaxis"]["ticktext"]
    assert len(labels) == 12 and not any("<br>" in label for label in labels) and "response" in labels[0]
