"""Tippett and PAV plots of a report, from the rows that a validation attached to its enrolment."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from dash import html
from dash.development.base_component import Component

from atlas.pages.attribute.result import draw, ratio_figures
from atlas.pages.attribute.result import rows as rows_of
from atlas.pages.attribute.sections import graph, section
from atlas.pages.attribute.verdict import validated
from atlas.theme import THEMES, TOKENS, Theme
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.validation_lookup import matched_validation
from backend.inference.calibration import normalised
from backend.inference.validation import calibration_frame, validation_arrays
from backend.protocol import CLEAN


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """What a report about 12 whole traces says of the validation."""
    rng = np.random.default_rng(0)
    logits = 0.6 * np.repeat(np.eye(4), 50, axis=0) + 1.3 * rng.normal(size=(200, 4))
    frame = calibration_frame(normalised(logits), np.arange(50) % 5, (1, 5, 10), family=np.array([0, 0, 1, 2]))
    enrolment = Enrolment(
        name="x", reader="reader-paper/tiny/ur", proxy="tiny", view="ur", block="dc-ac", sources=("a", "b", "c", "d"),
        families=("A", "A", "C", "D"), heads=(), log_prior=np.full(4, -np.log(4)), prompts=np.empty(0, np.uint64),
        folds=np.empty(0, np.int16),
        attachments=validation_arrays(frame.assign(part="calibration", condition=CLEAN)),
    )  # fmt: skip
    return {
        "validation": matched_validation(enrolment, np.arange(100, 700, 50), 12),
        "results": {"stated": True, "traces": 12, "claimed": None},
    }


def shown(report: dict[str, Any], theme: Theme) -> object:
    """Sections of the plots of a report."""

    def plot(name: str, sentence: str) -> Component:
        drawing = graph(name, draw(name, report, theme))
        return section(name, sentence, drawing, build=html.Span(), badge=html.Span(), picture=True)

    return ratio_figures(report, plot)


def words(part: object) -> str:
    return json.dumps(part, default=lambda one: one.to_plotly_json(), ensure_ascii=False)


@pytest.mark.parametrize("theme", THEMES)
def test_the_plots_draw_the_points_that_travelled(report: dict[str, Any], theme: Theme) -> None:
    rows = {name: rows_of(name, report) for name in ("tippett", "pav")}
    assert {name: set(frame["k"]) for name, frame in rows.items()} == {"tippett": {10}, "pav": {10}}
    tippett = go.Figure(draw("tippett", report, theme))
    assert [trace.name for trace in tippett.data] == ["true claims", "false claims"]
    for trace, metric in zip(tippett.data, ("tippett_true", "tippett_false"), strict=True):
        drawn = rows["tippett"][rows["tippett"]["metric"] == metric]
        assert sorted(trace.x) == sorted(drawn["level"]) and max(trace.y) == 1
    held = {row["metric"]: row["value"] for row in report["validation"]["rows"]}
    upright = [shape.x0 for shape in tippett.layout.shapes]
    assert upright == [0, held["log10_lower"], held["log10_upper"]]
    pav = go.Figure(draw("pav", report, theme))
    assert list(pav.data[0].x) == rows["pav"]["level"].tolist() and list(pav.data[0].y) == rows["pav"]["value"].tolist()
    (same,) = pav.layout.shapes
    assert (same.x0, same.x1) == (same.y0, same.y1) == tuple(pav.layout.xaxis.range) == tuple(pav.layout.yaxis.range)
    assert pav.data[0].line.color == TOKENS[theme]["accent"]


def test_each_plot_has_a_heading_a_sentence_and_its_numbers(report: dict[str, Any]) -> None:
    said = words(shown(report, "dark"))
    for text in ("How often do ratios point the right way?", "n = 20 true and 60 false claims.",
                 "Do ratios mean what they say?", "10 held-out traces each", "n = 80 claims."):  # fmt: skip
        assert text in said, text
    table = words(validated(report))
    assert "Cllr min" in table and "Cllr cal" in table


def test_an_answer_beyond_the_curve_says_what_lies_there(report: dict[str, Any]) -> None:
    ends = rows_of("pav", report)["level"]
    for ratio, said in (
        (ends.max() + 1, "lies above the curve, where every claim was true."),
        (ends.min() - 1, "lies below the curve, where every claim was false."),
        (ends.mean(), ""),
    ):
        told = words(shown(report | {"results": {**report["results"], "log10_ratio_others": float(ratio)}}, "light"))
        assert said in told and ("lies" in told) == bool(said)


def test_an_ecosystem_without_points_has_no_plots(report: dict[str, Any]) -> None:
    held = report["validation"]
    older = [row for row in held["rows"] if row["level"] is None and not row["metric"].startswith("cllr_m")]
    for validation in (None, {**held, "rows": older}):
        assert shown({"validation": validation}, "dark") is None
    assert "Cllr min" not in words(validated({**report, "validation": {**held, "rows": older}}))


def test_ratios_that_tell_all_claims_apart_have_no_second_plot(report: dict[str, Any]) -> None:
    apart = report | {"validation": {"rows": [row for row in report["validation"]["rows"] if row["metric"] != "pav"]}}
    said = words(shown(apart, "light"))
    assert "figure-tippett" in said and "figure-pav" not in said
