"""Figures, tables and words of a live result, as pure functions of a report that the audit's own code wrote."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import pytest
from dash import html
from dash.development.base_component import Component
from scipy.special import logsumexp

from atlas.api.assistants import _shortened
from atlas.figures import evidence, plots
from atlas.notebook import Attribution
from atlas.pages.attribute import question, result, sections, verdict
from atlas.pages.attribute.sections import grouped
from atlas.state import View
from atlas.theme import TOKENS, family_marks
from backend.attribution.decision import FittedStatistics, find, stated_prior
from backend.attribution.drift_report import compare, side_by_side, standardised, thinned
from backend.attribution.report import build_report, next_step
from backend.attribution.report_page import write_html
from backend.attribution.report_words import only_validated, percent_text, running_bounds, subject_probability
from backend.attribution.scoring import Scored, Seen, Selection
from backend.attribution.settings import Settings
from backend.enrolment.catalogue import Ecosystem
from backend.enrolment.enrolment import Enrolment, prompt_table
from backend.enrolment.validation_lookup import sentence
from backend.errors import AtlasError
from backend.inference.domain_shift import UNCHECKED, Traffic
from backend.inference.drift import drift_test
from backend.inference.verdict import odds
from backend.intake import Columns, Layout, Problem, trace_hash
from backend.methods.ensemble import Head
from backend.methods.probe import LinearProbe
from jobs.attribute import _answer

SOURCES = ("a-one", "<b>two</b>", "c=three", "d four")
FAMILIES = ("A", "A", "C", "<i>D</i>")
D = 3


@pytest.fixture(scope="module")
def enrolment() -> Enrolment:
    rng = np.random.default_rng(1)
    probe = LinearProbe(
        rng.normal(size=2 * D).astype(np.float32), np.full(2 * D, 2.0, np.float32),
        rng.normal(size=(2 * D, 4)).astype(np.float32), np.zeros(4, np.float32),
    )  # fmt: skip
    hashes, folds = prompt_table(["p"], [0])
    return Enrolment(
        name="invented", reader="reader-paper/tiny/ur", proxy="tiny", view="ur", block="dc-ac", sources=SOURCES,
        families=FAMILIES, heads=(Head(probe, (2,)),), log_prior=np.full(4, -np.log(4)), prompts=hashes, folds=folds,
    )  # fmt: skip


def written(
    enrolment: Enrolment,
    n: int = 12,
    claimed: str | None = SOURCES[1],
    calibrated: bool = True,
    after: int | None = 6,
    p: float = 0.4,
    **more: Any,
) -> dict[str, Any]:
    """A report about n invented traces that point to the second source, the third trace excepted."""
    rng = np.random.default_rng(2)
    logits = rng.normal(0, 0.4, (n, 4)) + np.array([0.5, 2.0, 0, 0])
    if n > 2:
        logits[2] = [0, -3, 0, 2]
    scores = (logits - np.log(np.exp(logits).sum(1, keepdims=True))).astype(np.float32)
    scored = replace(
        Scored(scores, np.full(n, 40), (None,) * n, np.ones(2 * D), None, True, 1.0, "tiny, float32, cpu"),
        **{"traffic": Traffic("like", 0.5, n)} | more,
    )
    companions = FittedStatistics(
        calibrate=(lambda likelihoods, k, stated: _normal(likelihoods + stated)) if calibrated else None,
        log10_bounds=lambda k: (-1.2, 2.5),
        unknown_p=lambda _: p,
        stop=lambda _rows, who: {"error_rate": 0.05, "enough_after": after, "decided": "for the claim"},
        flags=lambda _: ("budget",),
    )
    prior = stated_prior(enrolment)
    findings = find(scored, enrolment, claimed, prior=prior, companions=companions, orders=20)
    seen = [Seen(i + 1, 0, trace_hash("p", str(i)), 1, 1, None, None, None) for i in range(n)]
    layout = Layout("=x.jsonl", "jsonl", "line", "UTF-8", "utf-8", 10, "0" * 64, columns=Columns(response="response"))
    exclusions = [{"place": 98, "turn": 0, "sha256": "x", "reason": "the same as line 1"}]
    problems = [Problem(99, "response", "there is no response")]
    selection = Selection(characters=1_000_000, seen=seen, problems=problems, exclusions=exclusions)
    return build_report(
        Settings(case="A <case>", question="Who?"), layout, selection, enrolment, scored, findings, prior,
        [next_step([], "file", {})], code_version="test", command="attribute X",
        session={"earlier": 0, "last_step": None},
    )  # fmt: skip


def _normal(rows: Any) -> Any:
    return rows - logsumexp(rows, axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def report(enrolment: Enrolment) -> dict[str, Any]:
    return written(enrolment)


def texts(figure: Any) -> list[str]:
    return [note.text for note in figure.layout.annotations]


def test_the_curve_draws_arrival_order_spread_rule_and_stop(report: dict[str, Any]) -> None:
    figure = evidence.evidence_curve(report, theme="dark")
    band, line = figure.data
    running = report["results"]["running"]
    assert list(line.x) == [row["traces"] for row in running] and line.x[-1] == 12
    assert list(line.y) == [row["log10_ratio_others"] for row in running]
    half = len(band.x) // 2
    assert len(band.x) == 2 * len(report["results"]["spread"]["points"])
    assert all(high >= low for high, low in zip(band.y[:half], band.y[half:][::-1], strict=True))
    assert band.y[half - 1] == line.y[-1] == report["results"]["log10_ratio_others"] == 2.5
    assert [shape.y0 for shape in figure.layout.shapes if shape.y0 == shape.y1] == [0, 2.0, -2.0]
    assert [shape.x0 for shape in figure.layout.shapes if shape.x0 == shape.x1] == [6]
    end = "<b>at least 320 to 1 for:<br>the tests reach no further</b>"
    assert "enough after 6 traces" in texts(figure) and end in texts(figure)
    heights = {note.text: note.y for note in figure.layout.annotations}
    assert (heights["a hundred to one for"], heights["a hundred to one against"]) == (2.0, -2.0)
    assert list(figure.layout.yaxis.ticktext) == ["1 to 100", "1 to 10", "even", "10 to 1", "100 to 1"]
    assert figure.layout.xaxis.tickvals[-1] == 12
    levels = [{"error_rate": 0.01, "enough_after": 9}, {"error_rate": 0.05, "enough_after": 6}]
    results = report["results"] | {"stop": report["results"]["stop"] | {"levels": levels}}
    stricter = evidence.evidence_curve(report | {"results": results}, theme="dark", level=0.01)
    assert [shape.x0 for shape in stricter.layout.shapes if shape.x0 == shape.x1] == [9]
    # Where another source leads, the marker is hollow.
    hollow = [row["leader"] != SOURCES[1] for row in running]
    assert [colour == TOKENS["dark"]["ground"] for colour in line.marker.color] == hollow
    # Where a ratio ends with the tests, so does its mark.
    marks = {"": "circle", "≥ ": "triangle-up", "≤ ": "triangle-down"}
    assert list(line.marker.symbol) == [marks[bound] for bound in running_bounds(report)]
    assert "<b>two</b>" not in figure.to_json().replace("\\u003c", "<").replace("\\u003e", ">")


def test_the_curve_of_one_trace_and_of_what_is_not_calibrated(enrolment: Enrolment) -> None:
    figure = evidence.evidence_curve(written(enrolment, n=1, calibrated=False, after=None), theme="light")
    assert [trace.name for trace in figure.data] == ["5–95 % of random orders", "in the order of the file"]
    assert "<b>not validated here" in " ".join(texts(figure)) and not any("hundred to one" in t for t in texts(figure))
    assert [shape.y0 for shape in figure.layout.shapes] == [0]
    low, high = figure.layout.xaxis.range
    assert low < 0 < high and list(figure.layout.xaxis.tickvals) == [1]
    assert not any("enough" in text for text in texts(figure))


def test_bars_say_what_every_trace_adds(report: dict[str, Any]) -> None:
    figure = evidence.contributions(report, theme="dark", chosen=3)
    (bars,) = figure.data
    added = [trace["log10_ratio"] for trace in report["traces"]]
    assert "to the plain sum<br>" in bars.hovertext[0]
    assert list(bars.y) == added and [entry[0] for entry in bars.customdata] == list(range(1, 13))
    token = TOKENS["dark"]
    assert list(bars.marker.color) == [token["accent"] if value >= 0 else token["caution"] for value in added]
    assert list(bars.marker.line.width) == [2 if number == 3 else 0 for number in range(1, 13)]
    rival = report["results"]["leave_one_out"]["rival"]
    assert any(rival in text for text in texts(figure)) and any("&lt;b&gt;two" in text for text in texts(figure))
    assert max(added) < figure.layout.yaxis.range[1] and min(added) > figure.layout.yaxis.range[0]


def test_of_many_traces_the_weightiest_are_drawn(report: dict[str, Any]) -> None:
    chosen = evidence.weightiest(report["traces"], most=4)
    least = min(abs(trace["log10_ratio"]) for trace in chosen)
    rest = [t for t in report["traces"] if t["number"] not in {trace["number"] for trace in chosen}]
    assert len(chosen) == 4 and all(abs(trace["log10_ratio"]) <= least for trace in rest)
    assert [trace["number"] for trace in chosen] == sorted(trace["number"] for trace in chosen)


def test_leaving_one_out_starts_from_all_traces(report: dict[str, Any]) -> None:
    figure = evidence.leave_one_out(report, theme="light")
    stems, dots = figure.data
    whole = evidence.margin_of_all(report)
    added = report["traces"]
    assert list(dots.y) == [trace["log10_without"] for trace in added]
    assert stems.y[0] == whole and stems.y[1] == added[0]["log10_without"] and stems.y[2] is None
    # The margin against the best other source, from the scores themselves.
    ranked = {row["source"]: row["score"] for row in report["results"]["candidates"]}
    best = max(score for source, score in ranked.items() if source != SOURCES[1])
    assert whole == pytest.approx((ranked[SOURCES[1]] - best) / np.log(10))
    frame = result.rows("without", report)
    assert frame["change"].tolist() == pytest.approx([trace["log10_without"] - whole for trace in added])


def test_evidence_so_far_keeps_its_axis() -> None:
    points = [{"traces": k, "log10_sum": k / 4, "leader": "<x>"} for k in (1, 2, 8)]
    figure = evidence.running_evidence(points, theme="dark", total=100)
    assert list(figure.data[0].y) == [0.25, 0.5, 2.0] and figure.layout.xaxis.range[1] == 102
    assert "&lt;x&gt;" in figure.data[0].text[0]
    assert evidence.running_evidence([], theme="dark", total=5).layout.yaxis.range == pytest.approx((-1.1, 1.1))


def figure_points(figure: go.Figure) -> pd.DataFrame:
    """Where a map draws its sources (columns source, x, y)."""
    rows = [
        (identity[0], x, y)
        for trace in figure.data
        if trace.customdata is not None
        for identity, x, y in zip(trace.customdata, trace.x, trace.y, strict=True)
    ]
    return pd.DataFrame(rows, columns=["source", "x", "y"])


def test_the_nearest_sources_are_numbered_on_the_map() -> None:
    points = pd.DataFrame(
        {"source": ["a", "b", "c"], "name": ["A", "B", "C"], "family": ["GPT", "Phi", "GPT"], "access": "local",
         "x": [0.0, 1.0, 2.0], "y": [0.0, 2.0, 0.0], "z": np.nan}
    )  # fmt: skip
    nearest = pd.DataFrame({"source": ["c", "b"], "rank": [1, 2]})
    figure = evidence.landing(points, nearest, family_marks(["GPT", "Phi"]), theme="dark", claimed="a")
    marked = next(trace for trace in figure.data if trace.name == "nearest to the traces")
    placed = figure_points(figure).set_index("source")
    assert list(marked.text) == ["<b>1</b>", "<b>2</b>"]
    assert list(marked.x) == [placed.at["c", "x"], placed.at["b", "x"]] and len(placed) == 3
    assert marked.hovertext[0] == "<b>1</b> · C"
    halo = next(trace for trace in figure.data if trace.name == "selected")
    assert list(halo.x) == [placed.at["a", "x"]]
    # On one spot they share a label.
    crowd = pd.concat([points.assign(source=[f"{part}{row}" for row in "abc"]) for part in "xyzvw"])
    crowd[["x", "y"]] = crowd[["x", "y"]].where(crowd["source"].str.endswith("b"), 0.0)
    ranks = pd.DataFrame(
        {"source": [source for source in crowd["source"] if source.endswith("a")], "rank": range(1, 6)}
    )
    figure = evidence.landing(crowd, ranks, family_marks(["GPT", "Phi"]), theme="dark")
    marked = next(trace for trace in figure.data if trace.name == "nearest to the traces")
    assert marked.text == ("<b>1–5</b>", "", "", "", "") and len(marked.hovertext) == 5
    assert marked.textposition[0] == "middle right"
    # Where marks stand on the right, a shared label takes another side of its rings.
    right = points.assign(source=["m", "n", "o"], x=[0.1, 0.15, 0.2], y=0.0)
    figure = evidence.landing(pd.concat([crowd, right]), ranks, family_marks(["GPT", "Phi"]), theme="dark")
    marked = next(trace for trace in figure.data if trace.name == "nearest to the traces")
    assert marked.textposition[0] != "middle right"
    assert evidence._runs([1, 2, 3, 5, 6, 7, 8]) == "1–3, 5–8" and evidence._runs([2, 3, 5]) == "2, 3, 5"


def test_power_of_the_drift_test_marks_the_window() -> None:
    rows = pd.DataFrame(
        {"scenario": ["family", "family", "same", "same"], "k": [10, 50, 10, 50], "value": [0.3, 0.9, 0.04, 0.05],
         "n": [100, 100, 100, 100]}
    )  # fmt: skip
    figure = evidence.drift_power(rows, 20, theme="light")
    same, family = figure.data
    assert list(same.y) == [0.04, 0.05] and list(family.y) == [0.3, 0.9] and same.line.dash == "dot"
    reach = np.array([np.subtract(family.y, family.error_y.arrayminus), np.add(family.y, family.error_y.array)]).T
    assert reach == pytest.approx(np.array([plots.wilson(0.3, 100), plots.wilson(0.9, 100)]))
    assert [shape.x0 for shape in figure.layout.shapes] == [20]
    assert texts(figure) == ["same source (false alarms)", "another family"]


def test_shares_that_show_nothing_are_folded(report: dict[str, Any]) -> None:
    subject = report["results"]["subject"]
    row = {"source": subject, "family": "GPT", "share": 0.6, "low": 0.2, "high": 0.9}
    for outcome, folded in (("cannot tell", True), ("mixture", False)):
        found = {"outcome": outcome, "sentence": "Said.", "subject": subject, "source": subject}
        found |= {"p": 0.5, "shares": [row]}
        shown = result.mixture(
            report | {"results": report["results"] | {"mixture": found}}, sections.sections_of(report)
        )
        assert shown is not None
        classes = {getattr(part, "className", ""): str(part) for part in shown._traverse()}
        assert ("Shares hold" in classes["sentence"], "folded" in classes) == (not folded, folded)


def test_tables_hold_every_source_and_trace(report: dict[str, Any]) -> None:
    candidates = result.rows("candidates", report)
    assert set(candidates["source"]) == set(SOURCES) and candidates["probability"].is_monotonic_decreasing
    assert candidates["probability"].sum() == pytest.approx(1)
    grown = result.rows("evidence", report)
    assert grown["traces"].tolist() == [row["traces"] for row in report["results"]["running"]]
    assert (grown["orders_low"] <= grown["orders_high"]).all() and grown["log10_ratio"].notna().all()
    assert len(result.rows("adds", report)) == 12
    left = result.rows("left", report)
    assert left["place"].tolist() == [98, 99] and left["reason"].tolist()[1] == "there is no response"


def test_heat_maps_add_up_and_hostile_text_stays_text() -> None:
    script = "<script>alert(1)</script>"
    shown = {
        "source": "a", "rival": "<b>", "log_odds": 0.75, "stored": 0.7499, "rest": "beyond",
        "pieces": [
            {"text": script, "start": 0, "stop": 25, "value": 1.0},
            {"text": " \n", "start": 25, "stop": 27, "value": -0.25},
        ],
    }  # fmt: skip
    drawn = result.heat_map(shown).to_plotly_json()
    text = drawn["props"]["children"][1].children
    assert [span.children for span in text] == [script, " \n", "beyond"]
    assert [span.style["--weight"] for span in text[:2]] == ["1.000", "0.250"]
    assert "token-against" in text[1].className and text[0].title == "+1.0000 nats"
    said = "".join(getattr(part, "children", part) for part in result.sum_words(shown))
    assert said.count("+0.7500 nats") == 2
    assert result.visible(" \n") == "␣↵" and result.number(-1.5, 2) == "−1.50"
    assert result.token_rows(shown)["log_odds"].sum() == pytest.approx(0.75)


def test_the_verdict_says_its_word_and_its_numbers(report: dict[str, Any], enrolment: Enrolment) -> None:
    told = json.dumps(verdict.verdict(report), default=lambda part: part.to_plotly_json(), ensure_ascii=False)
    for words in ("SUPPORTS", "verdict-SUPPORTS", "+2.50", "40.0\u00a0%", "at an error rate of 5\u00a0%", "A <case>",
                  "1 bad line and 1 duplicate left out", "more traces than were validated",
                  "like the enrolled prompts", "50.0\u00a0%", "What to do next", "jobs verify"):  # fmt: skip
        assert words in told, words
    assert "prove" not in told.lower()
    plain = json.dumps(
        verdict.verdict(written(enrolment, n=3, claimed=None, calibrated=False)),
        default=lambda part: part.to_plotly_json(), ensure_ascii=False,
    )  # fmt: skip
    assert "INCONCLUSIVE" in plain and "Not calibrated" in plain and "which model wrote the 3 traces" in plain
    # '=x.jsonl' is no name that a command line may be given unseen.
    command = json.dumps(verdict.verify(report), default=lambda part: part.to_plotly_json())
    assert (
        f"verify attribution-{report['sha256'][:8]}.json --traces TRACES" in command
    )  # '=x.jsonl' is no safe argument


def facts(report: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Value and note of every fact of the answer, by its name."""
    return {name: (value, note) for name, _, value, note in verdict._facts(report)}


def test_facts_without_a_number_stand_below_the_others_by_their_reason() -> None:
    shown, withheld = sections.facts(
        ("Traces", "", "12", "all"), ("Ratio", "Odds", "–", "not stated: no source fits"),
        ("Probability", "", "–", "not stated: no source fits"), ("Stop", "", "–", "not tested"),
    ).children  # fmt: skip
    assert [_words(fact) for fact in shown.children] == ["Traces12all"]
    _, listed = withheld.children
    assert [_words(line) for line in listed.children] == ["Ratio, Probability: no source fits", "Stop: not tested"]
    assert sections.facts(("Traces", "", "12", "all")).className == "verdict-facts"


def _words(part: Any) -> str:
    if isinstance(part, Component):
        return _words(getattr(part, "children", None))
    return "".join(map(_words, part)) if isinstance(part, list | tuple) else "" if part is None else str(part)


def test_facts_of_a_supported_claim_stand_at_the_bound(report: dict[str, Any], enrolment: Enrolment) -> None:
    assert facts(report)["Likelihood ratio"][1].endswith("; log10 ≥ +2.50, +2.46 to +2.50 in 90 % of resamples")
    assert facts(report)["Likelihood ratio"][0] == "≥ 320 to 1" and facts(report)["Probability"][0].startswith("≥ ")
    many = written(enrolment, n=30)
    found = facts(many)
    assert found["Likelihood ratio"][0] == "≥ 320 to 1"
    assert found["Likelihood ratio"][1] == (
        "claimed source against all others; moderately strong support for the named source; log10 ≥ +2.50; in "
        "90 % of resamples it reaches the same limit: its tests cannot back a stronger one"
    )
    assert found["Probability"][0].startswith("≥ ") and "its tests cannot back" in found["Probability"][1]
    clear = "the first trace so clear that at most 5 % of tests erred"
    assert found["Enough after"] == ("6", f"for the claim, at an error rate of 5 %: {clear}")
    assert found["Kind of traffic"] == (
        "As enrolled",
        f"like the enrolled prompts; 50.0 % of enrolled groups are at least as unusual{verdict.ANOTHER}",
    )
    assert found["Unknown source"][0] == "Compatible" and found["Unknown source"][1].startswith("how often another")
    assert found["Unknown source"][1].endswith(
        "; 40.0 % of enrolled groups fit no better (5 % or less would be called UNKNOWN)"
    )
    said = _words(verdict.verdict(many))
    assert "SUPPORTS" in said and f"The 30 traces support the claim {SOURCES[1]}" in said
    assert "not stated" not in said and "not read" not in said


def test_a_bound_below_what_the_rule_needs_stands_beside_the_number_that_passed(report: dict[str, Any]) -> None:
    assert "The rule needs" not in facts(report)["Probability"][1]  # as its bound is above
    results = {**report["results"], "log10_ratio_others": 1.0}
    results["candidates"] = [{**row, "probability": 0.953} for row in results["candidates"]]
    undecided = {**report, "results": {**results, "verdict": "INCONCLUSIVE"}}
    bound = subject_probability(undecided, percent_text).removeprefix("≥ ")
    passed = {**report, "results": results}
    value, note = facts(passed)["Probability"]
    assert value == "95.3 %" and note.startswith("claimed source. The rule needs 95 %. As a number alone, ")
    assert f" back {bound} at most" in note and subject_probability(passed) == ".953"
    row = {"metric": "verdict_nearest_claim_supported", "value": 0.002, "n": 500, "sentence": None}
    note = facts({**passed, "validation": {"traces": 10, "rows": [row]}})["Probability"][1]
    assert "the nearest other source passed as the claim in 0.2 % of 500 tests of 10 traces: this carries" in note
    none = facts({**passed, "validation": {"traces": 10, "rows": [{**row, "value": 0.0}]}})["Probability"][1]
    assert "passed as the claim in none of 500 tests" in none


def test_facts_about_a_family_state_the_family_first(enrolment: Enrolment) -> None:
    alone = written(enrolment, traffic=Traffic("like", 1.0, 12))
    results = {**alone["results"], "level": "family", "stop": {"withheld": "the answer is about a family (SUPPORTS)"}}
    results["candidates"] = [{**row, "probability": 0.585} for row in results["candidates"]]
    results["families"] = [{**row, "probability": 0.99} for row in results["families"]]
    found = facts({**alone, "results": results})
    family = results["families"][0]["family"]
    assert found[f"Probability of the family {family}"][0] == "≥ 99.7 %"
    assert found[f"Likelihood ratio of the family {family}"][1].startswith("its family against all other families; ")
    # The interval is the source's, not the family's.
    value, note = found[f"Probability of {SOURCES[1]}"]
    assert value == "58.5 %" and note.startswith("claimed source; 95 % needed to be named alone; ")
    assert "; these 12 traces leave it open: " in note
    assert note.endswith(" in 90 % of resamples")
    assert "Enough after" not in found
    last = results["running"][-1]
    labels = [
        note.text for note in evidence.evidence_curve({**alone, "results": results}, theme="light").layout.annotations
    ]
    ratio = f"at least {odds(last['log10_ratio_others'])} for"
    end = f"{ratio},<br>probability {percent_text(last['probability'])}"
    assert f"<b>{end}</b>" in labels
    labels = [note.text for note in evidence.evidence_curve(alone, theme="light").layout.annotations]
    assert f"<b>{ratio}:<br>the tests reach no further</b>" in labels
    within = last | {"probability": 0.25, "log10_ratio_others": 0.0}  # among four sources
    results = {**alone["results"], "running": [*alone["results"]["running"][:-1], within]}
    below = evidence.evidence_curve({**alone, "results": results}, theme="light")
    assert "<b>even</b>" in texts(below)
    assert found["Kind of traffic"][1].endswith(
        "; more than 99.9 % of enrolled groups are at least as unusual (5 % or less would be called another kind)"
    )


def test_of_too_few_traces_nothing_is_stated(enrolment: Enrolment, capsys: pytest.CaptureFixture[str]) -> None:
    few = written(enrolment, n=3)
    assert few["results"]["stated"] and few["results"]["reason"] == "fewer than 5 traces"
    found = facts(only_validated(few))
    assert found["Likelihood ratio"] == found["Probability"] == ("–", "not stated: fewer than 5 traces")
    said = _words(verdict.verdict(few))
    assert "support for" not in said and "calibrated for 3" not in said
    assert "not stated, because fewer than 5 traces" in " ".join(write_html(few).split())
    assert result.rows("candidates", few)["probability"].isna().all()
    assert Attribution(few).candidates["probability"].isna().all()
    assert all(row["probability"] is None for row in _shortened({"report": few})["candidates"])
    _answer(few)
    assert "fewer than 5 traces" in (printed := capsys.readouterr().out) and not re.search(r"\d\.\d{3}", printed)


NOT_STATED = "not stated: not validated for such traces"


@pytest.mark.parametrize(
    ("traffic", "value", "note", "step"),
    [
        (
            Traffic("other topic", 0.001, 12),
            "Other topic",
            f"than the enrolled prompts; 0.1 % of enrolled groups are at least as unusual{verdict.ANOTHER}",
            "have the candidates enrolled",
        ),
        (
            Traffic("other language", 0.002, 12),
            "Other language",
            f"than the enrolled prompts; 0.2 % of enrolled groups are at least as unusual{verdict.ANOTHER}",
            "have the candidates enrolled",
        ),
        (Traffic("no prompts"), "–", "no prompts given", "--prompt-column"),
        (UNCHECKED, "–", "cannot be checked with this ecosystem", "Make the enrolment again"),
    ],
)
def test_facts_of_other_traffic_are_not_stated(
    enrolment: Enrolment, traffic: Traffic, value: str, note: str, step: str
) -> None:
    other = written(enrolment, traffic=traffic, p=0.01)
    found = facts(other)
    assert found["Kind of traffic"] == (value, note)
    assert found["Likelihood ratio"] == found["Probability"] == found["Enough after"] == ("–", NOT_STATED)
    assert found["Unknown source"] == (
        "–", "not stated: the test cannot tell another kind of traffic from another source",
    )  # fmt: skip
    said = _words(verdict.verdict(other))
    assert "INCONCLUSIVE" in said and "We cannot say" in said and step in said
    assert f"We cannot say whether the 12 traces come from {SOURCES[1]}" in said and "support for" not in said
    assert verdict.family_answer(other) == ""


def test_facts_where_no_enrolled_source_fits(enrolment: Enrolment) -> None:
    unknown = written(enrolment, p=0.01)
    found = facts(unknown)
    stated = ("–", "not stated: no enrolled source fits")
    assert found["Likelihood ratio"] == found["Probability"] == found["Enough after"] == stated
    assert found["Unknown source"] == (
        "Fits none",
        "unlike every enrolled source; 1.0 % of enrolled groups fit no better (5 % or less would be called UNKNOWN)",
    )
    said = _words(verdict.verdict(unknown))
    assert f"The 12 traces fit none of the enrolled sources, {SOURCES[1]} included." in said
    assert "Nearest, which does not make it the author" in said
    assert "UNKNOWN" in said and "Enrol the model that you suspect" in said and "compatible" not in said


def test_what_is_the_same_in_every_row_is_said_once(enrolment: Enrolment) -> None:
    made, marks = written(enrolment), family_marks(sorted(set(FAMILIES)))
    drawn = _words(result.candidates(made, marks, View(), {}))
    assert "over it" not in drawn and drawn.count("2.50") == 1
    made["results"]["candidates"][-1]["log10_ratio"] = 1.0
    assert "over it" in _words(result.candidates(made, marks, View(), {}))
    stop = {"enough_after": 12, "levels": [{"enough_after": 12, "error_rate": 0.01}]}
    assert verdict._needs_all({"stop": stop, "traces": 12}) and not verdict._needs_all({"stop": stop, "traces": 13})


def test_facts_of_a_reading_that_was_stopped_say_what_was_not_read(enrolment: Enrolment) -> None:
    partial = written(enrolment, complete=False)
    assert facts(partial)["Traces"][0] == "12" and facts(partial)["Traces"][1].endswith("not read")
    said = _words(verdict.verdict(partial))
    assert "Reading was stopped before the end; this is what had been read." in said
    assert "Read the rest of the file: it was stopped before the end." in said


def test_candidates_and_readers_show_no_ratio_that_is_not_stated(enrolment: Enrolment) -> None:
    for made, shown in ((written(enrolment), True), (written(enrolment, traffic=UNCHECKED), False)):
        drawn = _words(result.candidates(made, family_marks(sorted(set(FAMILIES))), View(), {}))
        rival = next(row for row in made["results"]["candidates"] if row["source"] != SOURCES[1])
        assert (result.number(rival["log10_ratio"], 2) in drawn) == shown
        made["results"]["readers"] *= 2
        table = _words(result.readers(made, sections.sections_of(made)))
        assert (result.number(made["results"]["log10_ratio_others"], 2) in table) == shown
        assert ("not stated" in table) != shown


@pytest.mark.parametrize("table", [True, False])
def test_a_place_for_rows_has_its_button(table: bool) -> None:
    made = str(sections.section("mixture", "Said.", html.Div(), build=html.Div(), badge=html.Div(), table=table))
    assert ("live-rows" in made) == ("live-table" in made) == table


def test_the_validation_is_tables_of_just_such_a_case(report: dict[str, Any]) -> None:
    def row(part: str, metric: str, value: float, **more: Any) -> dict[str, Any]:
        held = {"condition": "clean", "scenario": None, "level": None, "k": 20, "n": 40, "value": value} | more
        told = {"part": part, "metric": metric, **held}
        return told | {"sentence": sentence(told)}

    rows = [
        row("calibration", "accuracy_after", 0.725),
        row("calibration", "ece_after", 0.16),
        row("refit", "false_acceptance", 0.854, scenario="family", level=0.05, k=5),
        row("refit", "false_rejection", 0.188, scenario="family", level=0.05, k=5),
        row("unknown", "false_acceptance", 0.933, scenario="sibling", level=0.05),
        row("unknown", "auroc", 0.5, scenario="sibling"),
        row("stop", "stop_error", 0.01, level=0.05),
        {**row("stop", "claim_false_support", 0.0, level=0.05), "metric": "undecided", "of": "claim_false_support",
         "value": None, "sentence": "At 5 % the rule never supports a claim."},
        row("drift", "alarms", 0.9, scenario="family"),
    ]  # fmt: skip
    held = {"condition": "t64", "traces": 20, "rows": rows, "ece_before": 0.263, "ece": 0.16, "ece_floor": 0.157}
    told = json.dumps(
        verdict.validated({**report, "validation": held}),
        default=lambda part: part.to_plotly_json(), ensure_ascii=False,
    )  # fmt: skip
    for words in (
        "20 traces of responses cut after 64 tokens",
            "most probable source is right in 72.5\u00a0% of 40 tests",
        "5 and 20 traces each (measured on whole responses)", "85.4 %", "18.8 %", "93.3 %", "1.0 %",
        "Stated error 5\u00a0%", '"children": "never"', "the rule never supports a claim",
        "Of two families", "90.0 %", ".157 arises by chance",
    ):  # fmt: skip
        assert words in told, words
    assert "Of the same source" not in told and "50.0 %" not in told
    assert told.index("All error rates, in 4 tables") < told.index("85.4 %"), "sentences come first, tables are folded"
    assert "differ as their tests do" not in told
    two = {**held, "rows": [*rows, row("transfer", "false_unknown", 0.047, scenario="same")]}
    assert "differ as their tests do" in _words(verdict.validated({**report, "validation": two}))
    unsaid = json.dumps(verdict.validated({**report, "validation": None}), default=lambda part: part.to_plotly_json())
    assert "This ecosystem brings n" in unsaid


ONE = Ecosystem("e", "r", "p", "ur", SOURCES, FAMILIES, "0" * 64, {})


def test_priors_are_weights_or_a_sentence_with_the_line() -> None:
    assert question.weights("even", ONE, None, 50, None) is None
    held = question.weights("claim", ONE, SOURCES[2], 40, None)
    assert held is not None and held[SOURCES[2]] == pytest.approx(0.4)
    assert held["a-one"] == pytest.approx(0.2) and sum(held.values()) == pytest.approx(1)
    assert question.weights("own", ONE, None, 50, "a-one = 3\n\nc=three = 1.5") == {"a-one": 3, "c=three": 1.5}
    with pytest.raises(AtlasError, match="no claim is chosen"):
        question.weights("claim", ONE, None, 50, None)
    with pytest.raises(AtlasError, match="no percentage"):
        question.weights("claim", ONE, SOURCES[0], "", None)
    for line in ("a-one", "a-one = x", "a-one = -1", "a-one = inf"):
        with pytest.raises(AtlasError, match="Line 2"):
            question.weights("own", ONE, None, 50, f"a-one = 1\n{line}")


def test_sources_are_offered_by_family() -> None:
    groups = grouped(SOURCES, FAMILIES, {"a-one": "Org/A-1", "b-one": "B"})
    assert [group["group"] for group in groups] == ["A", "C", "<i>D</i>"]
    assert [item["value"] for item in groups[0]["items"]] == ["a-one", "<b>two</b>"]
    assert [item["label"] for item in groups[0]["items"]] == ["Org/A-1", "<b>two</b>"]
    assert grouped(["x", "y"], ["x", "y"], {"y": "y"}) == [{"value": s, "label": s} for s in ("x", "y")]
    assert [item["label"] for item in grouped(["x", "y"], ["x", "y"], dict.fromkeys("xy", "N"))] == ["N · x", "N · y"]


# Two windows


def test_windows_with_the_same_prompts_are_put_side_by_side(enrolment: Enrolment) -> None:
    assert side_by_side(["p", "q"], ["q", "p"]) is not None
    assert np.array_equal(side_by_side(["p", "q"], ["q", "p"]), [1, 0])
    for before, after in ((["p"], ["q"]), (["p", "p"], ["p", "q"]), (["p"], ["p", "p"]), ([""], [""])):
        assert side_by_side(before, after) is None
    rng = np.random.default_rng(3)
    before, after = rng.normal(size=(2, 12, 2 * D)).astype(np.float16)
    after = after + np.float16(1.5)
    prompts = [f"p{i}" for i in range(12)]
    order = rng.permutation(12)
    test = compare(before, after[order], (prompts, [prompts[i] for i in order]), enrolment)
    first, second = standardised(before, enrolment), standardised(after, enrolment)
    naive = drift_test(first, second, "energy", paired=True)
    assert test.paired and test.p_value == naive.p_value <= 0.01 and test.statistic == pytest.approx(naive.statistic)
    alone = compare(before, after, (prompts, [""] * 12), enrolment)
    assert not alone.paired and (alone.before, alone.after) == (12, 12)
    with pytest.raises(AtlasError, match="second window has 1 trace"):
        compare(before, after[:1], (prompts, ["x"]), enrolment)
    assert len(thinned(np.zeros((2_500, 2)))) == 1_000 and len(thinned(before)) == 12
