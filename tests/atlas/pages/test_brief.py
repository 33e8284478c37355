"""Relationships and the brief as pages without a browser: what they say, with and without measured READER rows."""

from __future__ import annotations

import dataclasses
import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from dash import Dash, html

from atlas.application import create_application
from atlas.data import QueryCache
from atlas.figures import plots
from atlas.pages import brief, pieces, relationships
from atlas.pages.attribute import sections, verdict
from atlas.pages.brief import KINDS, USUAL
from atlas.state import View
from atlas.theme import TOKENS
from backend.store import page_queries as store
from tests.invented_atlas import MARKUP, publish_invented
from tests.invented_relationships import publish_related

PARENT, CHILD = "Qwen/Qwen2-1.5B", "qwen2-1.5b/child-0"


def serve(folder: Path, **kind: Any) -> Dash:
    publish_related(folder / "data", **kind)
    return create_application(folder / "data", folder / "cache")


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Dash:
    return serve(tmp_path_factory.mktemp("related"))


@pytest.fixture(scope="module")
def text_alone(tmp_path_factory: pytest.TempPathFactory) -> Dash:
    return serve(tmp_path_factory.mktemp("text"), reader=False)


def told(component: Any) -> str:
    """What a component holds, as the browser gets it."""
    return json.dumps(
        component.to_plotly_json() if hasattr(component, "to_plotly_json") else component,
        default=plotly,
        ensure_ascii=False,
    )


def plotly(value: Any) -> Any:
    return value.to_plotly_json() if hasattr(value, "to_plotly_json") else str(value)


def test_a_measured_reader_is_shown_first_in_both_scores(asked: QueryCache) -> None:
    view = asked.resolve_view(View(protocol="pair"))
    assert relationships.shown_reader(asked, view) == "reader-paper/tiny/ur"
    drawn = relationships.kinship(asked, view)
    assert [trace.name for trace in drawn.figure.data][:3] == ["decision line", "unrelated (8)", "related (8)"]
    # As many pairs are related as not here; where they are not, the sentence says how a split has half of each.
    assert "Every split tests" not in told(drawn.sentence)
    assert "Every split tests" in told(relationships.kinship(asked, asked.resolve_view(View())).sentence)
    rows = relationships.shown_rows(asked, view)
    assert int(((rows["decision"] > 0) == rows["related"]).sum()) == 14 and "mean decisions" in told(drawn.sentence)
    assert re.search(
        r"Ranked split by split.* in \d\d\.\d % of comparisons \(the mean .*AUC.*all pairs together.* in \d+ %",
        told(drawn.sentence),
    )


@pytest.mark.parametrize(
    ("readout", "called"),
    [
        ("dc-ac", "Reader A"),
        ("ac", "Reader A by drift (first AC) alone"),
        ("ac@last", "Reader A by drift (first AC), last layer"),
        ("concat", "Reader A by both, side by side"),
    ],
)
def test_the_best_readout_is_named_whichever_it_is(readout: str, called: str) -> None:
    assert relationships.called(pd.Series({"reader": "a", "readout": readout}), {"a": "Reader A"}) == called


def test_a_pair_that_the_chosen_split_does_not_test_has_the_decisions_of_another() -> None:
    frame = pd.DataFrame({"decision": [None], "decision_model": [0.2], "decision_family": [-0.1]})
    assert relationships.decided_under(frame, "family") == "family"
    assert relationships.decided_under(frame, "pair") == "model"
    words, way, _ = relationships._elsewhere("model", "pair")
    assert words == "not among the pairs tested with pairs held out. Answers below are of the split with "
    assert way.id["protocol"] == "model" and way.children == "models held out"
    assert relationships._elsewhere("model", "model") == []
    assert relationships.decided_under(frame.assign(decision_model=None, decision_family=None), "model") == "model"


def test_a_chosen_pair_of_another_split_is_a_hollow_ring_at_its_scores(
    asked: QueryCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = asked.resolve_view(View(protocol="family"))
    reader, truth = relationships.shown_reader(asked, view), asked.ask(store.relationship_pairs)
    assert "not in this split" not in told(relationships.kinship(asked, view).figure)
    # A pair may be in both sets, under another number in each: it is in the split all the same.
    numbers = truth.groupby(["model_a", "model_b"])["pair_id"].nunique()
    (left, right), *_ = numbers.index[numbers > 1]
    chosen = dataclasses.replace(view, left=left, right=right)
    assert "not in this split" not in told(relationships.kinship(asked, chosen).figure)
    frame, protocol = relationships.scored(asked, view, reader)
    rest = frame[(frame["model_a"] != left) | (frame["model_b"] != right)]
    assert len(rest) == len(frame) - 1
    monkeypatch.setattr(relationships, "scored", lambda *_: (rest, protocol))
    ring = relationships.kinship(asked, chosen).figure.data[-1]
    score = relationships.pair_rows(asked, chosen).set_index("reader").loc[reader]
    assert (ring.name, ring.x[0], ring.y[0]) == ("chosen pair, not in this split", score["dc"], score["ac"])


def test_the_best_is_that_of_the_whole_table(asked: QueryCache) -> None:
    view = asked.resolve_view(View(protocol="pair"))
    table = relationships._rate_rows(asked, view)
    for origin, rows in table.groupby("origin"):
        assert relationships.best(asked, view, str(origin))["value"] == rows["accuracy"].max()


def test_the_answer_gives_what_its_reader_reaches_and_the_best_that_was_picked(
    asked: QueryCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = asked.resolve_view(View(protocol="family", relates="mpt"))
    own, top = relationships.usual(asked, view), relationships.best(asked, view, "measured")
    assert own is not None and top is not None and top["value"] > own["value"]
    answer = told(relationships._answer(asked, view))
    first, second = (relationships._rate(view, row)[0] for row in (own, top))
    assert answer.index(first) < answer.index(f"reaches {second}")
    assert "optimistic, as it was picked on these splits" in answer
    assert "READER" in answer and "a coin 50.0" in answer
    assert ("overlap" in answer) == (top["low"] <= own["high"])
    unsure = ", not clearly better than this one (the intervals overlap)," if top["low"] <= own["high"] else ""
    assert f": the highest measured here{unsure} and optimistic" in answer
    assert answer.index("a coin 50.0") < answer.index("By ")  # the caveat stands below the number
    by_f1 = dataclasses.replace(view, measure="f1")
    assert "; calling every pair related .667." in told(relationships._answer(asked, by_f1))
    ranked = relationships._rate_rows(asked, by_f1)["f1"]
    assert ranked.is_monotonic_decreasing
    assert f"the highest F1, {plots.rate_text(ranked[0])}." in told(relationships._rates(asked, by_f1)[1])
    monkeypatch.setattr(relationships, "usual", lambda *_: own.where(own.index != "high", math.nan))
    assert "overlap" not in told(relationships._answer(asked, view))
    monkeypatch.setattr(relationships, "usual", lambda *_: top)
    answer = told(relationships._answer(asked, view))
    assert "No reader measured here does better." in answer and "; a coin 50.0\N{NO-BREAK SPACE}%." in answer


@pytest.mark.parametrize("protocol", ["pair", "model", "family"])
def test_the_best_is_drawn_too(asked: QueryCache, protocol: str) -> None:
    view = asked.resolve_view(View(protocol=protocol))
    drawn = relationships.summaries(asked, view)
    for origin, rows in drawn.groupby("origin"):
        top = relationships.best(asked, view, str(origin))
        assert top["value"] == rows["value"].max() and top["readout"] in set(rows["readout"])


def test_text_alone_stands_in_where_no_reader_was_measured(text_alone: Dash) -> None:
    with text_alone.server.test_request_context():
        asked: QueryCache = text_alone.server.extensions["atlas"]
        view = asked.resolve_view(View(protocol="family"))
        assert relationships.shown_reader(asked, view) == "mpt"
        assert relationships.kinship(asked, view).figure.layout.xaxis.title.text.startswith("Share of 600")
        page = told(relationships.layout(protocol="family"))
        assert re.search(r"the highest measured here.*the highest published", page)


def test_a_published_reader_keeps_to_the_pairs_that_were_released(asked: QueryCache) -> None:
    view = asked.resolve_view(View(protocol="family", relates="reader-paper/vast/ur"))
    frame, protocol = relationships.scored(asked, view, "reader-paper/vast/ur")
    assert protocol == "pair" and len(frame) == 16 and frame["decision"].isna().all()
    sentence = told(relationships.kinship(asked, view).sentence)
    assert "pair split alone" in sentence and "none of its decisions" in sentence and "for orientation" in sentence


def test_one_pair_in_every_readers_words(asked: QueryCache) -> None:
    view = asked.resolve_view(View(protocol="pair", left=CHILD, right=PARENT))
    frame = relationships.pair_rows(asked, view)
    assert list(frame["reader"]) == ["reader-paper/tiny/ur", "mpt", "reader-paper/vast/ur"]
    # The first pair looks like a stranger: every reader misses it.
    assert (frame["decision"].dropna() < 0).all() and frame["related"].all()
    content, sentence = relationships.verdicts(asked, view)
    assert "unrelated, wrong" in told(content) and "0 of 2 readers that decide" in told(sentence)
    assert "1 reader with scores and without a decision" in told(content)
    # Both were measured here, which is said once; the published one bears its badge.
    assert "all measured here) read it so; 1 reader gives scores only. " in told(sentence)
    assert told(content).count("origin-measured") == 0
    assert told(content).count("origin-published") == 1
    assert "Decision of each reader (above 0: related)" in told(content)
    answer = told(relationships.pair_answer(asked, view))
    assert "0 of 2 readers say so" in answer and "; READER" in answer and "is wrong" in answer
    assert answer.index("related") < answer.index(CHILD) < answer.index(PARENT)
    # Decisions are shown at once whatever split they are of, which the sentence names.
    for protocol in relationships.DECISIONS:
        under = relationships.decided_under(frame, protocol)
        table, caption = map(told, relationships.verdicts(asked, dataclasses.replace(view, protocol=protocol)))
        assert f"(split: {relationships.HELD_OUT[under]}, all measured here)" in caption and "unrelated, wrong" in table
        assert f"split: {relationships.PROTOCOLS[under]} held out" in table
    assert "Choose two models" in told(relationships.pair_answer(asked, View(left=CHILD)))
    partners, _ = relationships.verdicts(asked, asked.resolve_view(View(protocol="pair", left=MARKUP)))
    assert told(partners).count('"type": "partner"') == 2


def test_a_pair_that_was_not_tested_offers_partners_that_have_scores(asked: QueryCache) -> None:
    view = asked.resolve_view(View(left=CHILD, right="qwen2-1.5b/child-1"))
    content, sentence = relationships.verdicts(asked, view)
    answer = told(relationships.pair_answer(asked, view))
    assert "No score: these two are not among the 28 pairs that readers scored" in answer and "one parent" in answer
    assert "No score" not in told(sentence)
    partners = [button.id["model"] for button in content.children]
    tested = relationships.tested_with(asked, CHILD)
    assert sorted(partners) == sorted(tested["model"]) and partners[0] == PARENT, "the relative comes first"
    for partner in partners:
        chosen = dataclasses.replace(view, right=partner)
        assert relationships.pair_rows(asked, chosen)[["dc", "match"]].notna().any(axis=None)
        assert "kin-table" in told(relationships.verdicts(asked, chosen)[0])


def test_a_pair_that_nobody_decided_about_says_why_and_where_it_lies(
    asked: QueryCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = relationships.pair_rows(asked, view := asked.resolve_view(View(protocol="pair", left=CHILD, right=PARENT)))
    undecided = frame.assign(**dict.fromkeys(relationships.DECISIONS.values(), float("nan")))
    monkeypatch.setattr(relationships, "pair_rows", lambda *_: undecided)
    answer = told(relationships.pair_answer(asked, view))
    assert "no test split holds this pair, so none of the 3 readers with scores decided about it. Its mark" in answer
    assert "on the unrelated side of the dashed line, which is no decision" in answer
    monkeypatch.setattr(relationships, "decided_pairs", lambda _: frame[:0])
    assert "3 readers with scores, and no decision" in told(relationships.pair_answer(asked, view))


def test_models_that_are_tested_with_the_first_one_are_offered_before_others(asked: QueryCache) -> None:
    pairs, models = relationships.decided_pairs(asked), asked.ask(store.relationship_models)["model"]
    first, *others = relationships.model_options(asked, CHILD)
    assert first["group"] == relationships.TESTED and PARENT in {item["value"] for item in first["items"]}
    joined = pairs[(pairs["model_a"] == CHILD) | (pairs["model_b"] == CHILD)]
    assert len(first["items"]) == len({*joined["model_a"], *joined["model_b"]}) - 1
    assert sorted(item["value"] for group in (first, *others) for item in group["items"]) == sorted(models)
    assert all(group["group"].startswith("Not tested · ") for group in others)
    assert relationships.TESTED not in {group["group"] for group in relationships.model_options(asked)}


def test_the_most_misleading_pairs_come_first(asked: QueryCache) -> None:
    frame = relationships.mistaken_rows(asked, asked.resolve_view(View(protocol="pair")))
    assert list(frame["passed_by"]) == sorted(frame["passed_by"], reverse=True)
    assert set(map(tuple, frame[["model_a", "truth"]].head(2).to_numpy())) >= {(PARENT, "related")}
    assert "match" not in frame


def test_a_page_without_a_pair_opens_with_one_that_the_readers_agree_about_least(
    asked: QueryCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    view = asked.resolve_view(View(protocol="pair"))
    answered = relationships.mistaken_rows(asked, view).query("silent.isna()")
    # All readers agree about every pair here: the one that misleads most is shown.
    example = relationships.with_example(asked, view)
    assert (example.left, example.right) == tuple(answered[["model_a", "model_b"]].iloc[0])
    stored, apart = store.relationship_scores, answered.iloc[-1]
    pairs = asked.ask(store.relationship_pairs).query("pair_set == 'pair_disjoint'")
    there = pairs[(pairs["model_a"] == apart["model_a"]) & (pairs["model_b"] == apart["model_b"])]["pair_id"].iloc[0]

    def divided(*choices: Any) -> pd.DataFrame:
        frame = stored(*choices)
        frame.loc[(frame["reader"] == "mpt") & (frame["pair_id"] == there), "decision"] *= -1
        return frame

    monkeypatch.setattr(store, "relationship_scores", divided)
    example = relationships.with_example(asked, view)
    assert (example.left, example.right) == (apart["model_a"], apart["model_b"])
    page = told(relationships.layout(protocol="pair"))
    assert "An example, a pair that the readers agree about least" in page and "No pair" not in page
    chosen = dataclasses.replace(view, left=CHILD)
    assert relationships.with_example(asked, chosen) is chosen
    assert "An example" not in told(relationships.pair_answer(asked, chosen))


def test_pairs_of_a_model_without_answers_are_marked_and_counted(asked: QueryCache) -> None:
    view, models = asked.resolve_view(View(protocol="pair")), asked.ask(store.relationship_models)
    empty = list(models.loc[models["empty_responses"] == 600, "model"])
    frame = relationships.mistaken_rows(asked, view)
    silent = frame["silent"].notna()
    assert list(silent) == list(frame["model_a"].isin(empty) | frame["model_b"].isin(empty)) and silent.sum() > 0
    right = (frame["decision"] > 0) == (frame["truth"] == "related")
    sentence = told(relationships.mistaken(asked, view)[1])
    ends = [f"{right[of].sum()} of {of.sum()}" for of in (frame["truth"] == "related", frame["truth"] != "related")]
    assert f"right on {ends[0]} related and {ends[1]} unrelated pairs; without the {silent.sum()} pairs" in sentence
    assert f"on {right[~silent].sum()} of {(~silent).sum()}. " in sentence


def test_the_pair_split_shows_the_tests_of_families(asked: QueryCache) -> None:
    page = told(relationships.layout(protocol="pair"))
    assert "The pair split has no tests; these are of families held out" in page and "Holm-corrected" in page
    pairs, families = (
        relationships.FIGURES["tested"].meta.table(asked, asked.resolve_view(View(protocol=protocol)))
        for protocol in ("pair", "family")
    )
    assert len(pairs) and pairs.equals(families)
    real = (families["p_holm"] < 0.05).sum()
    assert f"{real} of {len(families)} differences are more than luck in every set" in page
    rows = pd.DataFrame(
        {"reference_readout": ["dc", "dc", "ac"], "difference": [0.1, 0.2, -0.1], "p_holm": [0.01, 1, 0.02]}
    )
    assert relationships._halves_words(rows).startswith(
        "Adding the drift to the mean helps 1 of 2 readers and harms 0; adding the mean to the drift helps 0 of 1 "
        "readers and harms 1, by more than luck"
    )
    strict = told(relationships.layout(protocol="family", measure="precision"))
    assert "Holm-corrected" in strict and "Differences in accuracy" in strict
    ranked = told(relationships.layout(protocol="family", measure="auc"))
    assert "Differences in AUC, paired" in ranked and "Difference in AUC" in ranked


def test_a_difference_of_several_sets_of_tests_is_one(asked: QueryCache, monkeypatch: pytest.MonkeyPatch) -> None:
    view = asked.resolve_view(View(protocol="family"))
    once, tests = relationships._tested_rows(asked, view), relationships._tests(asked, view)
    stricter = tests.assign(hypotheses="relationships/other/family", p_holm=(tests["p_holm"] + 0.1).clip(upper=1.0))
    monkeypatch.setattr(relationships, "_tests", lambda *_: pd.concat([tests, stricter]))
    rows = relationships._tested_rows(asked, view)
    assert len(rows) == len(once) and set(once["sets"]) == {1} and set(rows["sets"]) == {2}
    assert rows["p_holm"].min() == pytest.approx(once["p_holm"].min() + 0.1)
    assert rows.loc[rows["p_holm"] < 1, "corrected_with"].eq("other").all()


def test_every_figure_has_rows_and_builds(asked: QueryCache) -> None:
    view = asked.resolve_view(View(protocol="family", left=PARENT, right=CHILD, roster="12-way"))
    for page in (relationships.PAGE, brief.PAGE):
        for name, figure in page.figures.items():
            rows = figure.table(asked, view)
            assert len(rows), name
            assert len(figure.builds(asked, view)), name


def test_an_atlas_without_relationships_says_what_measures_them(tmp_path: Path) -> None:
    publish_invented(tmp_path / "data")
    app = create_application(tmp_path / "data", tmp_path / "cache")
    with app.server.test_request_context():
        page = told(relationships.layout(protocol="family"))
        assert page.count("python -m jobs relate") >= 4
        assert "Nobody" not in page and "No reader has been measured yet" in page
        assert "This has not been measured" in told(brief.layout(figures="readouts"))


def test_the_brief_holds_the_chosen_figures_in_their_order(asked: QueryCache) -> None:
    page = told(brief.layout(figures="purity,budget,nonsense", roster="12-way", theme="dark"))
    first, second = page.index(KINDS["purity"].question), page.index('"Figure 2. "')
    assert page.count('"className": "plate"') == 2 and first < second
    assert page.index("sheet-purity") < page.index("sheet-budget") < page.index("sheet-builds")
    assert "nonsense" not in page
    case = told(brief.layout(figures="case,budget", roster="12-way"))
    assert "No question has been answered in this session yet" in case and brief.HELD in case and brief.HELD not in page
    assert case.index(brief.HELD) < case.index("sheet-budget") and case.count('"Figure 1. "') == 1
    assert brief.chosen(View()) == USUAL == brief.chosen(View(figures=("nonsense",)))


def test_a_case_comes_first_with_its_own_readers_rates(asked: QueryCache, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"part": "calibration", "condition": "clean", "scenario": None, "sentence": "x", "k": 10, "n": 50}
    rows = [row | {"metric": "accuracy_after", "value": 0.78}]
    facts = {"reader": "reader-paper/tiny/ur", "proxy": "tiny", "view": "ur", "facts": {"roster": "12-way"}}
    case = {
        "method": facts, "reference": {"sources": ["a", "b"], "enrolment": "mine"},
        "validation": {"rows": rows, "traces": 10, "condition": "clean"},
        "results": {"traces": 10, "calibrated": True, "stated": True}, "sha256": "5a17",
    }  # fmt: skip
    monkeypatch.setattr(brief, "_newest_case", lambda: case)
    monkeypatch.setattr(brief, "_case", lambda *_: ["the verdict"])
    monkeypatch.setattr(brief, "validated_for", lambda _: False)
    monkeypatch.setattr(brief.verdict, "checks_on_paper", lambda _: {"Kind of traffic": "As enrolled: tested"})
    page = told(brief.layout(figures="budget,case", roster="12-way"))
    assert "As enrolled: tested" in page
    own, same = page.index("With 10 traces the most probable source"), page.index(brief.SAME_SOURCES)
    assert page.index("the verdict") < page.index(brief.OTHER_KIND) < own < same < page.index("sheet-budget")
    assert "Figure 1 counts the most probable source, whatever the rule says of it." in page
    assert "The atlas in general" not in page and "report 5a17" in page
    assert (
        "2, enrolled as 12-way" in page
        and page.count("sha256 5a17") == 1
        and brief.HASHED in page
        and page.count('"Figure 1. "') == 1
    )
    assert brief.HASHED in page and "brief-address" not in page and page.count("(name, date, signature)") == 2
    alone = told(brief.layout(figures="case", roster="12-way"))
    assert "sheet-cover" in alone and "sheet-builds" not in alone
    # A share that the sheet states is named beside the one of the curve.
    assert "right in 78.0 %" not in page
    case["results"]["traces"] = rows[0]["k"] = 5
    both = re.search(
        r"From 5 traces it is right in ([\d.]+) % here, in 78.0 %", told(brief.layout(figures="budget,case"))
    )
    assert both and both[1] != "78.0"
    case["results"]["traces"] = rows[0]["k"] = 10
    # The header's line names the judge once, and another reader only where a figure is of it.
    header = [
        told(brief.case_words(asked, View(), names, html.Strong("Other")))
        for names in (["case", "budget"], ["case", "map"])
    ]
    assert ["Case judged by " in words for words in header] == [True, True]
    assert (
        [brief.ALL_OF_THE_CASE in words for words in header]
        == [True, False]
        == ["Other" not in words for words in header]
    )
    assert brief.case_words(asked, View(), ["map"], html.Strong("Other")) == []
    # The figures are of the judge, whatever the header says, or name another reader.
    elsewhere = told(brief.layout(figures="budget,case", roster="27-way"))
    assert elsewhere.count("12 sources on ") == page.count("12 sources on ") > 0
    case["method"] = facts | {"facts": {}}
    stranger = told(brief.layout(figures="budget,purity,case", roster="12-way"))
    assert stranger.count(brief.NOT_OF_THE_CASE) == 1 and brief.SAME_SOURCES not in stranger
    other = brief.OTHER_SOURCES.partition("{")[0]
    assert stranger.count(other) == 1 and other not in page
    assert stranger.index("sheet-cover") < stranger.index(other) < stranger.index("sheet-budget")
    assert "The atlas in general" not in stranger
    # The answer's own link asks for figures of the judge alone.
    known = sections.view_of_judge(asked, View(), case | {"method": facts})
    assert known is not None and known.roster == "12-way" and sections.view_of_judge(asked, View(), case) is None
    answered = {"text_kept": False, "results": {"traces": 7}}
    links = [told(verdict.exports(answered, measured)) for measured in (True, False)]
    assert ["/brief?figures=case%2Cbudget%2Cconfusion&k=5" in link for link in links] == [True, False]
    case["validation"] = None
    assert brief.verdict.UNVALIDATED in told(brief.layout(figures="case", roster="12-way"))


def test_the_brief_says_who_judges_own_traces(asked: QueryCache, monkeypatch: pytest.MonkeyPatch) -> None:
    reader = asked.attribution_reader(asked.resolve_view(View(roster="12-way")))
    one = SimpleNamespace(reader=reader, roster="12-way", sources=("a", "b"), sample=False)
    monkeypatch.setattr(brief.visitor, "ecosystems", lambda: [one])
    monkeypatch.setattr(brief, "default", lambda known, *_: known[0] if known else None)

    def said(roster: str) -> str:
        parts = brief._own_judge(f"/brief?roster={roster}&k=5")
        return "".join(part if isinstance(part, str) else str(part.children) for part in parts)

    assert said("12-way") == f"{brief.BELOW}It judges your own traces on Attribute too."
    one.reader = "lda/other"
    name = brief.sections.method_name(one.reader)
    assert said("12-way") == f"{brief.BELOW}Your own traces are judged on Attribute by {name}."
    one.reader = "ngram-word"
    own, sheet = (
        f"{100 * brief._accuracy(asked, view)['value'].iloc[0]:.1f}\u00a0%"
        for view in (asked.resolve_view(View(roster="12-way", k=5, reader=which)) for which in (one.reader, reader))
    )
    assert said("12-way").endswith(f": right in {own} of groups of 5 traces, the reader below in {sheet}.")
    assert own != sheet
    one.sample = True
    assert brief._own_judge("/brief?roster=27-way&k=5") == brief.OWN
    assert told(brief.layout(figures="budget", roster="12-way")).count(brief.BELOW) == 1


def test_a_comparison_is_a_sheet_of_its_own(asked: QueryCache, monkeypatch: pytest.MonkeyPatch) -> None:
    found: dict[str, dict[str, Any]] = {"windows": {"sha256": "5a17" * 16}}
    monkeypatch.setattr(brief.visitor, "newest_comparison", found.get)
    monkeypatch.setattr(brief.comparison_answers, "sheet", lambda test: [f"the answer {test['sha256'][:4]}"])
    page = told(brief.layout(figures="windows,reference", roster="12-way"))
    assert "the answer 5a17" in page and "sheet-cover" not in page
    assert page.count("sheet-absent") == 1  # said on the screen, and not on paper
    assert page.count("Nothing has been compared in this session yet") == 1 and "/attribute?mode=reference" in page
    assert brief.case_words(asked, View(), ["windows"], html.Strong("Other")) == [brief.NONE_BY_THE_HEADER]
    mixed = told(brief.layout(figures="windows,budget", roster="12-way"))
    assert mixed.index("the answer 5a17") < mixed.index("sheet-cover") < mixed.index("sheet-budget")
    link = told(brief.comparison_answers._exports("win-export"))
    assert "/brief?figures=windows" in link and "Put it into a brief" in link


def test_the_brief_is_light_whatever_the_theme(asked: QueryCache) -> None:
    view = brief.on_paper(asked.resolve_view(View(theme="dark", roster="12-way")))
    plate = KINDS["budget"].printed(asked, view)
    assert plate is not None
    assert plate.figure["data"][-1]["line"]["color"] == TOKENS["light"]["accent"]
    assert TOKENS["light"]["ink"] in told(brief.layout(theme="dark"))
    apart = KINDS["kinship"].printed(asked, asked.resolve_view(View(protocol="pair")))
    assert apart is not None and "Above the decision line: called related." in apart.caption
    assert "Lines are READER, the paper's method, by its proxy." in plate.caption
    ranked = KINDS["readouts"].printed(asked, view)
    assert ranked is not None and "READER is the paper's method." in ranked.caption
    assert ranked.figure.layout.annotations[-1].text == "best"
    absent = {name for name in KINDS if KINDS[name].printed(asked, view) is None}
    assert absent == {"reached"}  # this atlas has no fused readout


def test_the_sources_of_a_case_are_ringed(asked: QueryCache) -> None:
    view = brief.on_paper(asked.resolve_view(View(roster="12-way")))
    one, other = asked.ask(brief.queries.sources, view.roster)["name"][:2]
    results: dict[str, Any] = {"claimed": one, "siblings": [one, other], "stated": True}
    for name in brief.RINGED:
        plate = KINDS[name].printed(asked, view)
        assert plate is not None
        ringed = brief._ringed(asked, view, name, plate, {"results": results})
        assert f"Ringed, of the case: {one}, {other}." in ringed.caption
        assert (f"{one} is taken for {other} in " in ringed.caption) == (name == "confusion")
        refused = {"claimed": None, "siblings": [one, other], "stated": False}  # an answer that names nobody
        assert brief._ringed(asked, view, name, plate, {"results": refused}) is plate


def test_a_case_stands_in_the_curve_of_how_many_traces_it_takes(asked: QueryCache) -> None:
    view = brief.on_paper(asked.resolve_view(View(roster="12-way")))
    plate = KINDS["budget"].printed(asked, view)
    assert plate is not None
    budgets = sorted(int(k) for k in pieces.curves(asked, view, asked.attribution_reader(view), "accuracy")["k"])
    between, beyond = budgets[0] + 1, budgets[-1] + 1
    own = brief._ringed(asked, view, "budget", plate, {"results": {"traces": between}})
    assert own.figure.layout.annotations[-1].text == f"your {between} traces"
    assert [shape.x0 for shape in own.figure.layout.shapes if shape.xref == "x"] == [between]
    assert re.search(rf"{between} traces: [\d.]+ % at {budgets[0]} and [\d.]+ % at {budgets[1]}\.", own.caption)
    far = brief._ringed(asked, view, "budget", plate, {"results": {"traces": beyond}})
    assert far.figure is plate.figure and "not tested" in far.caption


def test_a_case_is_offered_where_the_brief_lacks_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brief.visitor, "newest_report", lambda: None)
    assert brief._own_case(["map"], 20) is None
    monkeypatch.setattr(brief.visitor, "newest_report", lambda: {"case": "Appeal", "created": "2026-11-29T09:05:00Z"})
    assert brief._own_case(["case", "map"], 20) is None
    link = told(brief._own_case(["map"], 20))
    assert (
        "Put your case (Appeal, read on 29 November 2026, 09:05 UTC) first" in link
        and "/brief?figures=case%2Cmap&k=20" in link
    )


def test_own_sheets_are_offered_once_there_are_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(brief.visitor, "newest_report", lambda: None)
    monkeypatch.setattr(brief.visitor, "newest_comparison", {"windows": {}}.get)
    choices = {one["value"]: one for one in brief._own_choices(["map"])}
    assert [name for name, one in choices.items() if one["disabled"]] == ["case", "reference"]
    assert choices["reference"]["label"].endswith(" (after a comparison on Attribute)")
    assert choices["windows"]["label"] == brief.COMPARED["windows"]
    assert not any(one["disabled"] for one in brief._own_choices(["case", "reference"]))


def test_the_map_states_the_share_of_neighbours_that_its_page_states(asked: QueryCache) -> None:
    view = brief.on_paper(asked.resolve_view(View(roster="12-way", projection="pca")))
    plate = KINDS["map"].printed(asked, view)
    quality = pieces.drawing_quality(asked, dataclasses.replace(view, projection="tsne", dim=2))
    assert plate is not None
    share = (
        f" {100 * quality['knn_jaccard_10']:.1f} % overlap (Jaccard) of each source's ten nearest with those drawn. "
    )
    assert 0 < plate.caption.find(share) < plate.caption.find("Trustworthiness")


def test_a_figure_has_a_badge_for_every_origin_of_its_marks(asked: QueryCache) -> None:
    view = brief.on_paper(asked.resolve_view(View(roster="12-way")))
    for name in ("budget", "readouts", "shorter"):
        plate = KINDS[name].printed(asked, view)
        assert plate is not None and set(plate.origins) == {"measured", "published"}
        head = told(brief._figure(name, plate, 1, pd.DataFrame(columns=["plate", "group"])))
        assert head.count("origin-measured") == head.count("origin-published") == 1
    plate = KINDS["budget"].printed(asked, view)
    assert plate is not None and "the flat dashed line: chance" in plate.caption and "dotted" not in plate.caption
    assert re.search(r"bands or bars, of [^:;]+ alone: ", plate.caption)  # other lines are drawn without
    alone = KINDS["map"].printed(asked, view)
    assert alone is not None and list(alone.origins) == ["measured"]


def test_a_brief_names_the_builds_of_every_reader_it_draws(asked: QueryCache) -> None:
    view = asked.resolve_view(View())
    for name in ("budget", "shorter"):
        table, key = brief.KINDS[name].builds(asked, view)
        assert table == "attribution_metrics" and set(key["reader"]) == set(
            brief.KINDS[name].rows(asked, view)["reader"]
        )
    row = pd.Series({"value": 0.5, "low": 0.47, "high": 0.53, "band": pieces.INTERVAL})
    assert pieces.spread_text(row) == " (95 % interval 47.0 to 53.0)"
    assert pieces.spread_text(row.replace(pieces.INTERVAL, pieces.FOLDS)).startswith(" (± 3.0, one standard")
    assert pieces.spread_text(row.replace(pieces.INTERVAL, "")) == ""


def test_the_brief_numbers_what_made_its_figures(asked: QueryCache) -> None:
    view = brief.on_paper(asked.resolve_view(View(roster="12-way")))
    builds = brief.builds_of(asked, dict.fromkeys(["budget", "confusion", "readouts"], view))
    groups = builds.groupby("plate")["group"].unique().map(list).to_dict()
    assert groups["budget"] == groups["confusion"] == [0]
    assert groups["readouts"] == [1, 2] or groups["readouts"] == [2, 1]
    page = told(brief.layout(figures="budget,readouts", roster="12-way"))
    assert (
        brief.BEHIND in page
        and "python -m jobs relate" in page
        and "d" * 64 in page
        and asked.generation().name in page
    )
    assert sum(sentence in page for sentence in brief.METHOD) == len(brief.METHOD) == 5
    assert brief.builds_of(asked, {}).empty


def test_findings_carry_their_origin(asked: QueryCache) -> None:
    view = brief.on_paper(asked.resolve_view(View(roster="12-way")))
    found = [told(finding) for finding in brief.findings(asked, view, view)]
    for names, some in ((["budget"], found[:1]), (["map"], found[1:2]), (["readouts"], found[2:])):
        assert [told(finding) for finding in brief.findings(asked, view, view, names)] == some
    assert len(found) == 3
    assert all("origin-" in sentence for sentence in found)
    assert " published (the best of many is chosen on these pairs, which flatters it)" in found[2]
    # Where the shown reader is not the best, its own number stands first, and the best one is said to be picked.
    other = dataclasses.replace(view, relates="mpt")
    (related,) = [told(finding) for finding in brief.findings(asked, other, other)][2:]
    assert "60.0" in related.partition("a coin")[0]
    assert re.search("50\u00a0%; .* 76.0\u00a0%, the best of 4 measured here; ", related)
