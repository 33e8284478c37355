"""The map as a pure function: which traces, in which order, with which marks."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest

from atlas.figures.map import (
    DEFAULT_CAMERA,
    HALF,
    UNKNOWN,
    camera_layout,
    cluster_places,
    family_places,
    joint_figure,
    label_sides,
    map_figure,
    marker,
    month_text,
    months_of,
    of_size,
    ramp,
    scaled,
    shades,
    shown,
    stated_month,
    stated_size,
)
from atlas.figures.plots import SIDES, free_sides
from atlas.state import View
from atlas.theme import TOKENS, Plot, family_marks, translucent

HOSTILE = "<img src=x onerror=alert(1)>"
MARKS = family_marks(["Qwen", "GPT", "Phi", "Nobody"])


@pytest.fixture
def points() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "source": ["q1", "q2", "g1", "p1"],
            "name": ["Qwen/One", "Qwen/Two", HOSTILE, "phi"],
            "family": ["Qwen", "Qwen", "GPT", "Phi"],
            "access": ["local", "api", "api", "local"],
            "x": [0.0, 10.0, 20.0, 5.0],
            "y": [0.0, 5.0, 1.0, 2.0],
            "z": [0.0, 1.0, 2.0, 10.0],
        }
    )


@pytest.fixture
def links() -> pd.DataFrame:
    return pd.DataFrame({"source": ["q1", "q1", "g1"], "neighbor": ["q2", "p1", "p1"], "rank": [1, 2, 1]})


def traces(figure: Plot) -> dict[str, go.Scatter]:
    """Traces by name, once Plotly has checked the figure."""
    return {trace.name: trace for trace in go.Figure(figure).data}


ORDER = [
    *("links", "own links", "pair link", "context", "filled", "outlined"),
    *("nearest", "second", "selected", "labels", "clusters"),
]  # fmt: skip


def sources(named: Mapping[str, go.Scatter], domain: str = "") -> dict[str, SimpleNamespace]:
    """What stands for every source in front, by its label."""
    found = {}
    for name in ("filled", "outlined"):
        trace = named[name + domain]
        for at, (source, family) in enumerate(trace.customdata):
            parts = {key: trace.marker[key][at] for key in ("symbol", "color", "size")}
            rim = trace.marker.line
            found[source] = SimpleNamespace(
                family=family, text=trace.text[at], rim=rim.color[at], width=rim.width, **parts
            )
    return found


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("chosen", [{}, {"families": ["GPT"]}, {"access": "api"}, {"selected": "q1"}])
def test_the_same_traces_in_the_same_places(
    points: pd.DataFrame, links: pd.DataFrame, dimensions: int, chosen: dict[str, object]
) -> None:
    figure = go.Figure(map_figure(points, links, MARKS, theme="dark", dimensions=dimensions, **chosen))
    assert [trace.name for trace in figure.data] == ORDER
    kinds = {type(trace) for trace in figure.data}
    assert kinds == {go.Scatter3d if dimensions == 3 else go.Scatter}
    drawn = [trace for trace in figure.data if trace.name in {"filled", "outlined", "context"}]
    assert sum(len(trace.x) for trace in drawn) == len(points)


def test_families_carry_their_mark_in_both_themes(points: pd.DataFrame, links: pd.DataFrame) -> None:
    for theme in ("dark", "light"):
        named = traces(map_figure(points, links, MARKS, theme=theme, dimensions=3))
        drawn = sources(named)
        assert {source: one.family for source, one in drawn.items()} == dict(
            zip(points["source"], points["family"], strict=True)
        )
        for one in drawn.values():
            assert (one.color, one.symbol) == (MARKS[one.family].colour(theme), MARKS[one.family].symbol)
        assert named["context"].marker.color == TOKENS[theme]["context"]


def test_a_ringed_family_is_a_disc_with_a_rim_of_ink(points: pd.DataFrame, links: pd.DataFrame) -> None:
    marks = family_marks(["Qwen", "Doubao"])
    places = points.assign(family=["Qwen", "Qwen", "Doubao", "Doubao"])
    for dimensions in (2, 3):
        drawn = sources(traces(map_figure(places, links, marks, theme="dark", dimensions=dimensions)))
        qwen, doubao = drawn["q1"], drawn["p1"]
        assert (qwen.family, doubao.family) == ("Qwen", "Doubao") and doubao.symbol == qwen.symbol == "circle"
        assert doubao.rim == TOKENS["dark"]["ink"] != qwen.rim
        assert doubao.width == 2 != qwen.width


def test_isolation_leaves_the_others_as_grey_context(points: pd.DataFrame, links: pd.DataFrame) -> None:
    named = traces(map_figure(points, links, MARKS, theme="dark", dimensions=3, families=["GPT"]))
    assert set(sources(named)) == {"g1"}
    assert [row[0] for row in named["context"].customdata] == ["q1", "q2", "p1"]
    both = shown(points, ["Qwen"], "api")
    assert list(both) == [False, True, False, False]


def test_a_selection_is_ringed_and_its_neighbours_ranked(points: pd.DataFrame, links: pd.DataFrame) -> None:
    named = traces(map_figure(points, links, MARKS, theme="light", dimensions=3, families=["GPT"], selected="q1"))
    assert len(named["selected"].x) == 1
    assert named["selected"].marker.color == TOKENS["light"]["accent"]
    assert len(named["nearest"].x) == 2
    assert [text.strip("\u00a0") for text in _shown(named["labels"])] == ["Qwen/One", "1", "2"]
    # Selected and near sources keep their colour even when their family is not isolated.
    drawn = sources(named)
    assert {"q1", "q2", "p1"} <= set(drawn) and "nearest no. 2 of the selection" in drawn["p1"].text


def _shown(labels: go.Scatter | go.Scatter3d) -> list[str]:
    return [text.removeprefix("<b>").removesuffix("</b>") for text in labels.text]


@pytest.mark.parametrize("dimensions", [2, 3])
def test_a_second_source_has_a_ring_and_a_name(points: pd.DataFrame, links: pd.DataFrame, dimensions: int) -> None:
    drawn = {"theme": "dark", "dimensions": dimensions, "families": ["Qwen"]}
    named = traces(map_figure(points, links, MARKS, selected="q1", other="p1", **drawn))
    placed = scaled(points).set_index("source")
    assert list(named["second"].x) == [placed.at["p1", "x"]]
    assert named["second"].marker.color == TOKENS["dark"]["ink"] != named["selected"].marker.color
    # Its name stands in the place of its rank, and it keeps its colour among other families.
    assert [text.strip("\u00a0") for text in _shown(named["labels"])] == ["Qwen/One", "phi", "1"]
    assert "p1" in sources(named)
    alone = traces(map_figure(points, links, MARKS, other="p1", **drawn))
    assert len(alone["selected"].x) == 0 and len(alone["second"].x) == 1
    same = traces(map_figure(points, links, MARKS, selected="q1", other="q1", **drawn))
    assert len(same["selected"].x) == 1 and len(same["second"].x) == 0


def test_labels_point_inward_and_leave_out_what_has_no_room() -> None:
    edge = free_sides(np.array([[190.0, 0.0], [-190.0, 100.0]]), ["a long name"] * 2, np.empty((0, 2)), 200, fixed=2)
    assert edge == ["middle left", "middle right"]
    spot = np.zeros((7, 2))
    sides = free_sides(spot, ["a name", *"12345", "6"], spot, 200, fixed=1)
    assert sides[0] and sorted(side for side in sides if side) == sorted(SIDES) and sides[-1] == ""
    # Names always stay, however crowded.
    assert all(free_sides(spot, ["a name"] * 7, spot, 200, fixed=7))


def test_labels_of_the_scene_are_placed_as_the_camera_sees_them() -> None:
    from_above = (0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0)
    right, left = (0.9, 0.0, 0.0), (-0.9, 0.0, 0.0)
    assert label_sides([right, left], ["a long name"] * 2, [], from_above, fixed=2) == ["middle left", "middle right"]
    from_below = (0.0, 0.0, -1.0, *from_above[3:])
    assert label_sides([right], ["a long name"], [], from_below, fixed=1) == ["middle right"]


def test_links_join_the_points_of_the_original_neighbours(points: pd.DataFrame, links: pd.DataFrame) -> None:
    named = traces(map_figure(points, links, MARKS, theme="dark", dimensions=3, selected="q1"))
    placed = scaled(points).set_index("source")
    own = named["own links"]
    assert len(own.x) == 6 and own.x[2] is None
    assert (own.x[0], own.y[0], own.z[0]) == tuple(placed.loc["q1", ["x", "y", "z"]])
    assert (own.x[4], own.y[4], own.z[4]) == tuple(placed.loc["p1", ["x", "y", "z"]])
    assert len(named["links"].x) == 3
    unknown = pd.DataFrame({"source": ["q1"], "neighbor": ["absent"], "rank": [1]})
    assert len(traces(map_figure(points, unknown, MARKS, theme="dark", dimensions=2))["links"].x) == 0


@pytest.mark.parametrize("dimensions", [2, 3])
def test_a_dashed_line_joins_the_two_chosen(points: pd.DataFrame, links: pd.DataFrame, dimensions: int) -> None:
    def named(**chosen: object) -> dict[str, go.Scatter]:
        return traces(map_figure(points, links, MARKS, theme="dark", dimensions=dimensions, **chosen))

    placed = scaled(points).set_index("source")
    far, near = named(selected="q1", other="g1"), named(selected="q1", other="p1")
    line = far["pair link"]
    for axis in "xy":
        assert list(line[axis]) == [*placed.loc[["q1", "g1"], axis], None]
    assert line.line.dash == "dash" and line.line.color != far["own links"].line.color
    assert len(far["own links"].x) == 6 and len(near["pair link"].x) == 3
    assert list(near["own links"].x) == [*placed.loc[["q1", "q2"], "x"], None]  # one line to a neighbour, not two
    off = named(selected="q1", other="p1", joined=False)
    assert not off["pair link"].x and len(off["own links"].x) == 6
    for first, second in (("q1", ""), ("", "p1"), ("q1", "q1"), ("q1", "absent")):
        assert not named(selected=first, other=second)["pair link"].x


def test_scaling_keeps_the_shape_and_fills_the_scene(points: pd.DataFrame) -> None:
    placed = scaled(points)
    values = placed[["x", "y", "z"]].to_numpy()
    assert np.abs(values).max() == pytest.approx(1.0)
    original = points[["x", "y", "z"]].to_numpy()
    factor = np.linalg.norm(original[1] - original[0]) / np.linalg.norm(values[1] - values[0])
    assert np.linalg.norm(original[3] - original[2]) / np.linalg.norm(values[3] - values[2]) == pytest.approx(factor)
    flat = scaled(points.assign(z=np.nan))
    assert flat["z"].isna().all() and np.abs(flat[["x", "y"]].to_numpy()).max() == pytest.approx(1.0)
    alone = scaled(points.head(1))
    assert np.isfinite(alone[["x", "y", "z"]].to_numpy()).all()


def test_hostile_names_are_escaped_in_what_plotly_draws(points: pd.DataFrame, links: pd.DataFrame) -> None:
    named = traces(map_figure(points, links, MARKS, theme="dark", dimensions=2, selected="g1"))
    text = sources(named)["g1"].text
    assert "<img" not in text and "&lt;img" in text and "<img" not in named["labels"].text[0]


def test_the_camera_is_the_one_of_the_link(points: pd.DataFrame, links: pd.DataFrame) -> None:
    camera = (0.3, 1.9, 0.4, 0.1, 0.0, 0.0, 0.0, 0.0, 1.0)
    figure = go.Figure(map_figure(points, links, MARKS, theme="dark", dimensions=3, camera=camera))
    eye = figure.layout.scene.camera.eye
    assert (eye.x, eye.y, eye.z) == camera[:3]
    assert figure.layout.scene.camera.center.x == 0.1
    assert figure.layout.uirevision == "map" == figure.layout.scene.uirevision
    assert camera_layout(())["eye"]["x"] == DEFAULT_CAMERA[0]
    assert camera_layout((1.0,))["up"] == {"x": 0.0, "y": 0.0, "z": 1.0}


def test_the_edges_of_a_flat_map_are_those_of_the_link(points: pd.DataFrame, links: pd.DataFrame) -> None:
    edges = View.parse({"dim": "2", "camera": "-0.25,0.5,0.1,0.7"}).camera
    layout = go.Figure(map_figure(points, links, MARKS, theme="dark", dimensions=2, camera=edges)).layout
    assert layout.xaxis.range == (-0.25, 0.5) and layout.yaxis.range == (0.1, 0.7)
    # Those of a scene mean nothing to a flat map, nor the other way round.
    scene = (0.3, 1.9, 0.4, 0.1, 0.0, 0.0, 0.0, 0.0, 1.0)
    layout = go.Figure(map_figure(points, links, MARKS, theme="dark", dimensions=2, camera=scene)).layout
    placed = scaled(points)
    assert layout.xaxis.range[1] - HALF == pytest.approx(placed["x"].abs().max() - 1)
    assert layout.yaxis.range[1] - HALF == pytest.approx(placed["y"].abs().max() - 1)
    assert layout.yaxis.scaleanchor == "x" and layout.yaxis.range[0] == -layout.yaxis.range[1]
    assert camera_layout(edges) == camera_layout(())


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", 7.0),
        ("Qwen3-30B-A3B", 30.0),
        ("SmolLM2-135M", 0.135),
        ("gemma-3n-1.5b-it", 1.5),
        ("gpt-4.1", np.nan),
        ("Phi-4-mini", np.nan),
        ("x7bench", np.nan),
    ],
)
def test_sizes_are_those_that_names_state(name: str, billions: float) -> None:
    assert stated_size(name) == pytest.approx(billions, nan_ok=True)


def test_sizes_filter_and_unstated_ones_are_in_no_class() -> None:
    names = pd.Series(["a-0.5B", "b-4B", "c-7B", "d-70B", "e"])
    classes = {size: list(of_size(names, size)) for size in ("all", "small", "middle", "large")}
    assert classes["all"] == [True] * 5
    assert classes["small"] == [True, True, False, False, False]
    assert classes["middle"] == [False, False, True, False, False]
    assert classes["large"] == [False, False, False, True, False]


def test_outlines_lie_where_their_points_do(points: pd.DataFrame, links: pd.DataFrame) -> None:
    regions = pd.DataFrame({"family": ["Qwen", "Phi"], "ring": 0, "x": [[0.0, 20.0]] * 2, "y": [[0.0, 5.0]] * 2})
    flat = {"theme": "dark", "dimensions": 2, "regions": regions}
    shapes = go.Figure(map_figure(points, links, MARKS, families=["Qwen"], **flat)).layout.shapes
    # x spans 0..20 and y 0..5, so one factor of 10 about the middle (10, 2.5); Phi is not among those shown.
    assert [shape.path for shape in shapes] == ["M-1.000,-0.250L1.000,0.250Z"]
    assert shapes[0].line.color == translucent(MARKS["Qwen"].dark, 0.7)
    solid = map_figure(points, links, MARKS, **(flat | {"dimensions": 3}))
    assert solid["layout"]["shapes"] == []


def test_both_domains_stand_on_one_map_and_a_line_joins_a_source() -> None:
    twice = pd.DataFrame(
        {
            "domain": ["math100", "math100", "agent500", "agent500"],
            "source": ["q1", "g1", "q1", "g1"],
            "name": ["q", HOSTILE, "q", HOSTILE],
            "family": ["Qwen", "GPT", "Qwen", "GPT"],
            "access": "api",
            "x": [0.0, 1.0, 2.0, 3.0],
            "y": [0.0, 1.0, 0.0, 1.0],
            "z": 0.0,
        }
    )
    domains = {"agent500": "Agent500", "math100": "Math100"}
    for dimensions in (2, 3):
        plot = joint_figure(twice, MARKS, domains, theme="dark", dimensions=dimensions, selected="q1")
        named = traces(plot)
        order = [f"{marks}, {words}" for words in domains.values() for marks in ("filled", "outlined")]
        assert list(named) == ["links", "own links", "context", *order, "second", "selected", "labels"]
        placed = scaled(twice)
        assert list(named["own links"].x) == [*placed.loc[[0, 2], "x"], None]
        assert list(named["links"].x) == [*placed.loc[[1, 3], "x"], None]
        agent, math = (sources(named, f", {words}") for words in domains.values())
        assert named["filled, Math100"].opacity == 0.5 and named["filled, Agent500"].opacity == 1
        assert math["q1"].size < agent["q1"].size and "<img" not in math["g1"].text
        assert len(named["selected"].x) == 2
        assert {text.strip("\u00a0") for text in _shown(named["labels"])} == {"q", "Math100"}
        two = traces(
            joint_figure(twice, MARKS, domains, theme="dark", dimensions=dimensions, selected="q1", other="g1")
        )
        assert list(two["second"].x) == list(placed.loc[[1, 3], "x"]) and len(two["labels"].text) >= 2
    alone = {"theme": "dark", "dimensions": 2, "selected": "q1"}
    quiet = traces(joint_figure(twice, MARKS, domains, links="selected", **alone))
    assert len(quiet["links"].x) == 0 and len(quiet["own links"].x) == 3
    off = traces(joint_figure(twice, MARKS, domains, links="off", families=["GPT"], **alone))
    assert len(off["own links"].x) == 0 and "q1" in sources(off, ", Agent500") and len(off["context"].x) == 0


@pytest.mark.parametrize(
    ("name", "month"),
    [
        ("gpt-4.1-2025-04-14", "2025-04"),
        ("claude-sonnet-4-20250514", "2025-05"),
        ("doubao-1-5-pro-32k-250115", "2025-01"),
        ("mistral-small-24b-instruct-2501", "2025-01"),
        ("THUDM/GLM-4-9B-0414", ""),
        ("google/gemma-3-27b-it", ""),
        ("moonshot-v1-128k", ""),
        ("gpt-2099-13-01", ""),
    ],
)
def test_months_are_those_that_names_state(name: str, month: str) -> None:
    stated = stated_month(name)
    assert (month_text(stated) if stated == stated else "") == month


def test_a_range_of_months_and_a_selection_leave_the_others_grey(points: pd.DataFrame) -> None:
    dated = points.assign(name=["a-2407", "b-2501", "c-2025-06-01", "undated"])
    assert list(shown(dated, [], "all", released="2025-01..2025-12")) == [False, True, True, False]
    assert list(shown(dated, [], "all", released="2025-01..2025-12,undated")) == [False, True, True, True]
    assert list(shown(dated, [], "all", released="soon")) == [True] * 4
    assert list(shown(dated, [], "all", chosen=["q1", "p1"])) == [True, False, False, True]
    assert months_of("2025-01..2025-12") == (24300, 24311) and months_of("2025") is None


@pytest.mark.parametrize("dimensions", [2, 3])
def test_colours_of_numbers_replace_those_of_families(
    points: pd.DataFrame, links: pd.DataFrame, dimensions: int
) -> None:
    colours = shades(pd.Series([0.0, 1.0, 0.5, np.nan]), "dark")
    assert colours[0] == ramp("dark")[0].lower() and colours[1] == ramp("dark")[-1].lower()
    assert colours[3] == TOKENS["dark"]["context"]
    tints = {
        source: (colour, f"Size: {n}B")
        for n, (source, colour) in enumerate(zip(points["source"], colours, strict=True))
    }
    drawn = sources(traces(map_figure(points, links, MARKS, theme="dark", dimensions=dimensions, tints=tints)))
    assert [drawn[source].color for source in points["source"]] == colours and "Size: 1B" in drawn["q2"].text
    assert drawn["q1"].symbol == MARKS["Qwen"].symbol
    known, faint = marker(["circle"] * 2, colours[2:], "dark", dimensions == 3, False)["size"]
    assert faint == round(UNKNOWN * known, 1)


def test_names_of_families_stand_where_they_are_dense() -> None:
    near = pd.DataFrame({"x": [0.0, 0.1, 0.0, 0.1, 5.0], "y": [0.0, 0.0, 0.1, 0.1, 5.0], "family": "Qwen"})
    pair = pd.DataFrame({"x": [1.0, 2.0], "y": 0.0, "family": "GPT"})
    (found,) = family_places(pd.concat([pair, near]), False)
    members = near[["x", "y"]].to_numpy().tolist()
    assert (found["text"], found["n"]) == ("Qwen", 5) and sorted(found["places"]) == sorted(members)
    assert found["places"][-1] == [5.0, 5.0]
    first, second = family_places(pd.concat([near, near[["x", "y"]].add(2).assign(family="Qwen")]), False)
    assert first["text"] == second["text"] and all(max(place) <= 2.1 for place in second["places"])
    assert first["places"][0] != second["places"][0] and len(first["places"]) + len(second["places"]) == 10
    grouped = near.assign(cluster=[0, 0, 0, 0, 1], family=["Qwen", "Qwen", "GPT", "Qwen", "GPT"])
    (found,) = cluster_places(grouped, {0}, False)
    assert (found["text"], found["n"]) == ("1: Qwen 3 of 4", 4) and sorted(found["places"]) == sorted(members[:4])
