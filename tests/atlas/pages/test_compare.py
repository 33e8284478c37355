"""Compare as a page without a browser: readouts beside the paper, parts, forms, other prompts, capability and cost."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import re
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import pytest
from dash import Dash

from atlas.application import create_application
from atlas.data import QueryCache
from atlas.figures import plots
from atlas.pages import compare, pieces
from atlas.pages.compare import proxies, readers, readouts
from atlas.state import TABS, View
from atlas.theme import TOKENS
from backend.reference.results_readouts import GOALS
from backend.store import queries
from tests.invented_atlas import publish_invented
from tests.invented_comparisons import MEMBERS, publish_compared

TINY, VAST = "reader-paper/tiny/ur", "reader-paper/vast/ur"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Dash:
    folder = tmp_path_factory.mktemp("compared")
    publish_compared(folder / "data")
    return create_application(folder / "data", folder / "cache")


@pytest.fixture
def view(asked: QueryCache) -> View:
    return asked.resolve_view(View(reader=TINY, roster="12-way"))


def told(component: Any) -> str:
    return json.dumps(component, default=lambda part: part.to_plotly_json(), ensure_ascii=False)


def drawn(figure: Any) -> dict[str, Any]:
    return {trace.name: trace for trace in go.Figure(figure).data}


def test_every_figure_has_rows_and_builds(asked: QueryCache, view: View) -> None:
    for name, figure in compare.PAGE.figures.items():
        frame = figure.table(asked, view)
        assert len(frame), name
        assert len(frame.columns) == len(set(frame.columns)), name
        assert len(figure.builds(asked, view)), name
    for name in ("brings", "parts", "views", "forms", "variance", "capability", "times", "cost"):
        frame = compare.PAGE.figures[name].table(asked, view)
        rates = frame["value" if "value" in frame else "accuracy"].tolist()
        assert frame.columns[0] == "name" and "/" not in frame["name"].str.cat() and rates == sorted(rates)[::-1], name
    parts = compare.PAGE.figures["parts"].table(asked, view)
    assert f"READER, DC alone · Vast-70B{readers.USUALLY_READ}" in set(parts["name"])
    members = compare.PAGE.figures["brings"].table(asked, view)
    assert not members.duplicated(["name", "responses"]).any()
    assert sorted(name for tab in compare.TABS.values() for name in tab.figures) == sorted(compare.FIGURES)
    assert list(compare.TABS) == list(TABS)
    for name, tab in compare.TABS.items():
        for figure in tab.figures:
            page = told(compare.layout(reader=TINY, roster="12-way", figure=figure))
            assert page.count('"className": "figure"') == 1 and compare.FIGURES[figure].question in page
            assert f'"data": "{name}"' in page, figure


def test_an_address_names_a_tab_or_a_figure_and_former_anchors_are_known(asked: QueryCache, view: View) -> None:
    def shown(**choices: str) -> tuple[str, str]:
        return compare.shown(asked, dataclasses.replace(view, **choices))

    assert shown() == ("readers", "curves") and shown(tab="cost") == ("cost", "times")
    assert shown(tab="cost", figure="every") == ("conditions", "every")
    assert shown(figure="chapter-readouts") == ("readers", "reached")
    assert shown(tab="read", figure="nonsense") == ("read", "parts")


def test_every_tab_begins_with_its_answer(asked: QueryCache, view: View) -> None:
    answers = {name: told(tab.answer(asked, view)) for name, tab in compare.TABS.items()}
    assert all(f"With {view.k} traces, " in answer for answer in answers.values()), answers
    pair = dataclasses.replace(view, readers=("fused/tiny/ur", TINY))
    both = told(compare.TABS["conditions"].answer(asked, pair))
    frame = readers.condition_rows(asked, pair).query("kept < 1").sort_values("kept")
    assert "keeps least on " in both and readers.percent(frame["kept"].iloc[0]) in both
    assert both.count("READER") >= 1 and "Fused" in both
    assert "million parameters" in told(compare.TABS["cost"].answer(asked, dataclasses.replace(view, figure="cost")))
    assert len(proxies.timed_rows(asked, view)) == 1 and " is the only reader measured here whose " in answers["cost"]
    assert "ms a response" in answers["cost"] and "both (DC–AC)" in answers["read"]


def test_figures_keep_their_order_and_name_the_roster_that_they_lead_to(asked: QueryCache, view: View) -> None:
    away = asked.resolve_view(View(reader=TINY, roster="27-way"))
    usual = asked.resolve_view(View()).roster
    for tab, one in itertools.product(compare.TABS, (view, away)):
        figures = compare.TABS[tab].figures
        drawn = compare._figure_links(asked, dataclasses.replace(one, tab=tab, figure=next(iter(figures))))
        assert all(words in told(link) for words, link in zip(figures.values(), drawn, strict=False))
        for name, link in zip(figures, drawn, strict=False):
            if compare.FIGURES[name].meta.table(asked, one).empty:
                near = json.loads(link.to_plotly_json()["props"]["data-choices"]).get("roster", "no numbers")
                assert f" ({near})" in told(link)
        back = drawn[len(figures) :]
        assert "Shown for" not in told(back)
        assert [f"Back to {usual}" in told(link) for link in back] == [True] * (one.roster != usual)


def test_links_lead_back_from_a_roster_that_a_figure_changed(asked: QueryCache, view: View) -> None:
    own = asked.resolve_view(View(reader=TINY, roster="27-way"))
    near = compare._roster_of(asked, own, "reached")
    assert near != own.roster
    away = dataclasses.replace(own, roster=near, back=own.roster, figure="reached")
    assert compare._chosen_roster(asked, away) == own.roster
    links = compare._figure_links(asked, away)
    assert f"Shown for {near}: back to 27-way" in told(links[-1])
    by_name = dict(zip(compare.TABS["readers"].figures, links, strict=False))
    choices = {name: json.loads(link.to_plotly_json()["props"]["data-choices"]) for name, link in by_name.items()}
    assert choices["reached"] == {"tab": "readers", "figure": "reached", "roster": near, "back": own.roster}
    assert choices["curves"] == {"tab": "readers", "figure": "curves", "roster": own.roster, "back": ""}
    # A roster that was chosen by hand meanwhile stays.
    assert compare._chosen_roster(asked, dataclasses.replace(away, roster="7-way")) == "7-way"
    assert compare._chosen_roster(asked, dataclasses.replace(away, back="no-way")) == near


def test_the_fused_readout_stands_beside_the_best_published(asked: QueryCache, view: View) -> None:
    assert readouts.fused_reader(asked, view) == "fused/tiny/ur"
    frame = readouts.goal_frame(asked, view).set_index(["row", "answer"])
    one = frame.loc["One trace"]
    assert one.at["readout", "value"] == pytest.approx(MEMBERS["fused"])
    assert one.at["readout", "low"] == pytest.approx(MEMBERS["fused"] - 0.02)
    assert one["aim"].isna().all()  # aims are for 100 sources
    assert "Once calibrated, the stated probabilities" in (words := told(readouts.reached(asked, view).sentence))
    assert "off by at most 2.0 points" in words
    assert ("100 traces, Math100", "readout") in frame.index
    # The best of every published reader, parts of READER too, named with what reads and how; as on the other tabs.
    known = asked.ask(queries.readers).query("origin == 'published'")["reader"]
    for aim in readouts.AIMS[:4]:
        every = readers.accuracies(asked, list(known), view.roster, "agent500", "clean", aim.k)
        assert frame.loc[(aim.words, "paper"), "value"] == pytest.approx(every["value"].max())
    best = frame.loc[(readouts.AIMS[2].words, "paper")]
    answer = told(readouts.reached_answer(asked, view))
    assert f"({readouts._brief_name(best['name'])})" in answer and readers.percent(best["value"]) in answer
    assert "targets" not in answer and best["reader"] in asked.ask(queries.readers)["reader"].to_numpy()


def test_losses_of_the_fused_readout_are_no_gains(
    asked: QueryCache, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = dataclasses.replace(view, k=100)
    rows = readouts.gain_rows(asked, full)
    monkeypatch.setattr(readouts, "gain_rows", lambda *_: rows.assign(difference=-rows["difference"]))
    answer = told(readouts.gains_answer(asked, full))
    assert '"0 of 3"' in answer and "worse in 2." in answer and "the same within luck in 1, " in answer


@pytest.mark.parametrize(("metric", "words"), [("ece", "ECE"), ("nll", "NLL")])
def test_curves_say_which_evidence_a_calibration_is_of(asked: QueryCache, view: View, metric: str, words: str) -> None:
    drawn = readers.curves(asked, dataclasses.replace(view, metric=metric))
    assert f"{words} of the mean evidence, before calibration, on Agent500" in told(drawn.sentence)
    assert go.Figure(drawn.figure).layout.yaxis.title.text.startswith(f"{words} of the mean evidence")


def test_the_answer_is_of_the_chosen_metric_too(asked: QueryCache, view: View) -> None:
    plain = told(readers.answer(asked, view))
    for metric, words in (("macro_f1", "Macro-F1"), ("nll", "NLL of the mean evidence")):
        more = told(readers.answer(asked, dataclasses.replace(view, metric=metric)))
        assert f" The best {words} is that of " in more and "The best " not in plain


def test_the_answer_names_the_next_best_where_the_reference_leads(asked: QueryCache, view: View) -> None:
    pair = dataclasses.replace(view, readers=(TINY, "fused/tiny/ur"))
    accuracy = readers.measured(asked, pair).query(f"k == {view.k}").set_index("reader")["value"][list(pair.readers)]
    best, other = str(accuracy.idxmax()), str(accuracy.idxmin())
    more = readers.points(accuracy[best], accuracy[other])
    leads = told(readers.answer(asked, dataclasses.replace(pair, readers=(best, other))))
    follows = told(readers.answer(asked, dataclasses.replace(pair, readers=(other, best))))
    assert "next best" in leads and "next best" not in follows
    assert readers.percent(accuracy[other]) in leads and f": {more} less (" in leads and f": {more} more (" in follows
    assert "next best" not in told(readers.answer(asked, dataclasses.replace(pair, readers=(best,))))


@pytest.mark.parametrize("metric", ["accuracy", "ece"])
def test_conditions_by_traces_and_of_all_readers_have_answers_of_their_own(
    asked: QueryCache, view: View, metric: str
) -> None:
    pair = dataclasses.replace(view, readers=(TINY, "fused/tiny/ur"), metric=metric)
    panels = told(compare._answer(asked, dataclasses.replace(pair, figure="panels")))
    at_k = readers.panel_rows(asked, pair).query(f"k == {view.k}")
    for _, rows in at_k.groupby(["benchmark", "condition"]):
        best = rows["value"].max() if metric == "accuracy" else rows["value"].min()
        assert (readers.percent(best) if metric == "accuracy" else plots.figure_text(best)) + " on " in panels
    every = told(compare._answer(asked, dataclasses.replace(pair, figure="every")))
    frame = readers.every_rows(asked, pair)
    assert (
        f"the best accuracy of {len(frame)} readers: {readers.percent(frame['accuracy_agent500_whole'].max())}" in every
    )
    assert frame["name"].iloc[0] in every and "keeps least" not in panels + every


def test_the_best_of_another_metric_says_how_often_it_is_right(
    asked: QueryCache, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrated = pd.DataFrame({"reader": [TINY, VAST], "k": view.k, "value": [0.4, 0.3]})
    monkeypatch.setattr(pieces, "curves", lambda *_: calibrated)
    ece = dataclasses.replace(view, metric="ece")
    accuracy = pd.Series({TINY: 0.796, VAST: 0.107})
    said = readers._best_by_metric(asked, ece, {TINY: "Tiny", VAST: "Vast"}, accuracy)
    assert said == [
        f" The best ECE of the mean evidence is that of Vast, which is right in {readers.percent(0.107)}: .300."
    ]
    said = readers._best_by_metric(asked, ece, {TINY: "Tiny", VAST: "Vast"}, 1 - accuracy)
    assert "is that of Vast: .300" in said[0]


def test_a_difference_in_a_sentence_is_that_of_its_table() -> None:
    # 79.6 % less 10.7 %, rounded before, would be 68.9, and +.690 stands in the table.
    assert readers.points(0.79647, 0.10653) == "69.0 points"
    assert plots.signed(0.79647 - 0.10653) == "+.690"


def test_the_best_published_is_shown_where_there_is_some(
    asked: QueryCache, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "_has_rows", lambda *_: True)
    monkeypatch.setattr(readouts, "is_published", lambda _, one: one.roster == "27-way")
    assert compare._roster_of(asked, view, "reached") == "27-way"


def test_names_of_proxies_are_cut_as_far_as_they_stay_apart() -> None:
    small, other, third = "SmolLM2-135M-Instruct", "Gemma-3-270M", "SmolLM2-360M-Instruct"
    assert readouts.brief_names([small, f"{small} + {other}"]) == {
        small: "SmolLM2",
        f"{small} + {other}": "SmolLM2 + Gemma",
    }
    assert readouts.brief_names([small, third]) == {small: "SmolLM2-135M", third: "SmolLM2-360M"}
    assert readouts.brief_names([]) == {}


def test_the_aims_are_those_of_the_results() -> None:
    printed = {goal.aim for goal in GOALS if goal.aim < 1 and not goal.at_most}
    assert {aim.value for aim in readouts.AIMS} == printed
    assert readouts.WORST_ECE in {goal.aim for goal in GOALS if goal.at_most}


def test_members_and_gains_of_the_fused_readout(asked: QueryCache, view: View) -> None:
    members = readouts.members(asked, view)
    lines = list(members.figure["layout"]["yaxis"]["ticktext"])
    assert lines[:5] == [
        "Fused: all members",
        "<b>With less</b>",
        "Discriminants and network",
        "<b>Members alone</b>",
        "Discriminants, every length",
    ]
    answer = told(readouts.members_answer(asked, view))
    best = readouts.member_rows(asked, view).query("series == 'clean' and group == 'Members alone'")["value"].max()
    assert ", the best of its 3 members alone (" in answer and readers.percent(best) in answer
    assert "the fused readout of Tiny-1M names " in answer and " of 12 sources right" in answer
    untested = told(readouts.gains(asked, view).sentence)
    assert " were not tested" in untested and "Not tested" not in untested
    assert set(drawn(members.figure)) == {"whole responses", "64 tokens", "32 tokens", "Math100"}
    full = dataclasses.replace(view, k=100)
    gains = readouts.gain_rows(asked, full).set_index(["row", "series"])
    # The tests say what another one has less than the fused readout, or the fused readout more than another one.
    assert gains.at[(TINY, "accuracy@1"), "difference"] == pytest.approx(0.14)
    assert gains.at[("lda/tiny/ur", "accuracy@1"), "difference"] == pytest.approx(0.07)
    assert gains.at[("lda/tiny/ur", "accuracy@1"), "low"] == pytest.approx(0.05)
    assert bool(gains.at[(TINY, "accuracy@100"), "clear"]) is False
    answer = told(readouts.gains_answer(asked, full))
    assert '"2 of 3"' in answer and "worse in none." in answer and "the same within luck in 1, " in answer
    assert "No test is stored at 20 traces." in told(readouts.gains(asked, view).sentence)


def test_published_and_measured_readers_are_compared_in_the_same_groups(asked: QueryCache, view: View) -> None:
    frame = readers.every_rows(asked, view).set_index("reader")
    fused = frame.loc["fused/tiny/ur"]
    assert fused["accuracy_64_tokens"] == pytest.approx(fused["accuracy_agent500_whole"] - 0.22)
    assert fused["kept_64_tokens"] == pytest.approx(fused["accuracy_64_tokens"] / fused["accuracy_agent500_whole"])
    assert fused["groups_64_tokens"] == frame.at[VAST, "groups_64_tokens"] == "across folds"
    # Math100 is the mean of the five fold models.
    assert fused["accuracy_math100"] == pytest.approx(fused["accuracy_agent500_whole"] - 0.305)
    assert list(frame["accuracy_agent500_whole"].dropna()) == sorted(frame["accuracy_agent500_whole"].dropna())[::-1]
    panels = readers.panels(asked, asked.resolve_view(View(roster="12-way", readers=("fused/tiny/ur", VAST))))
    layout = go.Figure(panels.figure).layout
    heads = [note.text for note in layout.annotations]
    assert heads[:2] == ["<b>Agent500, whole</b>", "<b>64 tokens</b>"] and "not measured" not in heads
    assert layout.yaxis2.matches == "y" and layout.xaxis4.type == "log"


def test_a_number_is_as_sure_as_its_folds_agree_not_its_seeds(asked: QueryCache) -> None:
    stored = pd.DataFrame(
        [
            ("a", "agent500", "clean", "pooled", 0.6, 0.001),
            ("a", "agent500", "clean", "fold", 0.5, 0.03),
            ("a", "agent500", "t64", "pooled", 0.4, 0.002),
            ("a", "agent500", "t64", "fold", 0.3, 0.04),
            ("a", "agent500", "t64-global", "pooled", 0.35, 0.003),
            ("b", "agent500", "clean", "pooled", 0.7, 0.004),
        ],
        columns=["reader", "benchmark", "condition", "reduction", "value", "std"],
    ).assign(metric="accuracy", k=5, n=9, origin="measured")
    frame = readers.settled(stored)
    assert frame["value"].tolist() == [0.6, 0.35, 0.7]
    assert frame["std"].tolist() == pytest.approx([0.03, 0.04, math.nan], nan_ok=True)
    known = asked.ask(queries.summaries, [TINY], "12-way", ("accuracy",))
    folds = known[(known["reduction"] == "fold") & (known["condition"] == "clean") & (known["k"] == 20)]
    shown = readers.accuracies(asked, [TINY], "12-way", "agent500", "clean", 20)
    home = folds[folds["benchmark"] == "agent500"]
    assert shown["reduction"].tolist() == ["pooled"] and shown["std"].tolist() == home["std"].tolist()


def test_conditions_have_a_line_each_and_published_marks_are_hollow(asked: QueryCache, view: View) -> None:
    pair = dataclasses.replace(view, readers=(VAST, "fused/tiny/ur"))
    figure = go.Figure(readers.conditions(asked, pair).figure)
    rows = list(figure.layout.yaxis.ticktext)
    assert rows[:2] == ["Agent500, whole responses", "Agent500, 64 tokens"] and "Math100, whole responses" in rows
    theirs, ours = figure.data
    assert theirs.marker.color != ours.marker.color and "published" in theirs.hovertext[0]
    assert theirs.marker.color == TOKENS[view.theme]["ground"] and theirs.marker.symbol != ours.marker.symbol
    assert len(ours.x) == len(rows) and "groups" in ours.hovertext[0]
    # Every mark has its number, in its colour and after the mark itself.
    numbers = [note for note in figure.layout.annotations if note.xref == "paper"]
    for marks, sign in ((theirs, "○"), (ours, "◆")):
        own = [note.text for note in numbers if note.font.color == marks.marker.line.color]
        assert len(own) == len(rows) and sum("–" not in text for text in own) == len(marks.x)
        assert all(text.startswith(f"{sign} ") for text in own)


def test_numbers_of_many_readers_stand_in_columns_below_their_marks(asked: QueryCache, view: View) -> None:
    three = dataclasses.replace(view, readers=(VAST, "fused/tiny/ur", TINY))
    plot = readers.conditions(asked, three)
    rows = len(plot.figure["layout"]["yaxis"]["ticktext"])
    columns: dict[int, list[str]] = {}
    for note in plot.figure["layout"]["annotations"]:
        if note.get("name") == "column":
            columns.setdefault(note["xshift"], []).append(note["text"])
    assert [texts[0] for _, texts in sorted(columns.items())] == ["○", "◆", "■"]
    assert all(len(texts) == 1 + rows for texts in columns.values())
    assert max(columns) < plot.figure["layout"]["margin"]["r"] and "below its mark" in told(plot.sentence)


def test_readers_of_the_roster_come_first_and_others_lead_to_theirs(asked: QueryCache, view: View) -> None:
    away = dataclasses.replace(view, roster="27-way")
    here, elsewhere = ([item["value"] for item in group["items"]] for group in readers.reader_options(asked, away))
    assert TINY in here and set(here) == readers.holders(asked, "27-way")
    assert not set(here) & set(elsewhere) and sorted([*here, *elsewhere]) == sorted(readers.everyone(asked))
    absent = next(reader for reader in elsewhere if reader in readers.holders(asked, "12-way"))
    pair = dataclasses.replace(away, readers=(TINY, absent))
    link = f"?{dataclasses.replace(pair, roster='12-way').query()}"
    for words in (readers.answer(asked, pair), readers.curves(asked, pair).sentence):
        assert link in told(words) and readers.names_of(asked, [absent])[absent] in told(words)
    assert readers.without_numbers(asked, pair, [], "number") == []


def test_a_reader_of_responses_alone_keeps_that_in_its_short_name(asked: QueryCache, view: View) -> None:
    alone = f"{TINY.removesuffix('ur')}r"
    names = readers.names_of(asked, [VAST, alone])
    assert names == {VAST: "Vast-70B", alone: f"{asked.proxy_name(TINY)} · response"}
    pair = dataclasses.replace(view, roster="165-way", readers=(VAST, alone))
    assert f"{names[alone]}" in told(readers.without_numbers(asked, pair, [alone], "number"))


def test_a_published_reader_that_was_measured_too_has_a_name_of_its_own(
    asked: QueryCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = asked._rows()
    twice = {**rows, "again": {**rows[TINY], "reader": "again", "origin": "published"}}
    monkeypatch.setattr(asked, "_rows", lambda: twice)
    monkeypatch.setattr(asked, "once", lambda _, compute: compute())
    own = asked.reader_name(TINY)
    assert "published" not in own and asked.reader_name("again") == f"{own} · published"
    assert len({asked.reader_name(reader) for reader in twice}) == len(twice)


def test_a_difference_that_may_be_luck_says_so() -> None:
    assert readers.tested_words(0.002, 0.046, 0.599).endswith("p = .599 after correction: may be luck")
    assert readers.tested_words(0.055, 0.079, 0.001) == "paired 95 % interval 5.5 to 7.9"
    end = {"value": 0.9, "std": math.nan, "metric": "accuracy", "difference": 0.02, "low": 0.002, "high": 0.046}
    assert ["may be luck" in told(readers._end(end | {"p_value": 0.03, "p_holm": p})) for p in (0.6, 0.01)] == [
        True,
        False,
    ]


def test_responses_to_choose_from_are_those_of_the_domain_in_groups(asked: QueryCache, view: View) -> None:
    groups = {one["group"]: [item["label"] for item in one["items"]] for one in readers.condition_options(asked, view)}
    assert list(groups) == ["Length"]
    assert groups["Length"] == ["Whole responses", "First 64 tokens", "First 32 tokens"]
    away = readers.condition_options(asked, dataclasses.replace(view, domain="math100", condition="t64-global"))
    names = [item["value"] for group in away for item in group["items"]]
    assert names == ["clean", "t64"]  # what is chosen stays to be seen


def test_shortened_responses_have_the_same_number_on_every_tab(asked: QueryCache, view: View) -> None:
    short = dataclasses.replace(view, condition="t64", readers=("fused/tiny/ur", VAST))
    frame = readers.condition_rows(asked, short).query("condition == 't64'").set_index("reader")["value"]
    ends = readers.end_rows(asked, short).query(f"metric == 'accuracy' and k == {view.k}").set_index("reader")["value"]
    curves = readers.curve_rows(asked, short).query(f"k == {view.k}").set_index("reader")["value"]
    assert len(frame) == 2 and frame.to_dict() == ends.to_dict() == curves.to_dict()
    assert readers.percent(frame["fused/tiny/ur"]) in told(readers.answer(asked, short))
    by_fold = dataclasses.replace(short, reduction="fold")
    assert (
        readers.grouped_condition(asked, short) == "t64-global" and readers.grouped_condition(asked, by_fold) == "t64"
    )


def test_cut_responses_say_which_reader_was_trained_on_cut_ones(asked: QueryCache, view: View) -> None:
    whole = dataclasses.replace(view, readers=(TINY, "fused/tiny/ur"))
    short = dataclasses.replace(whole, condition="t64", readers=(VAST, "fused/tiny/ur"))
    alike = dataclasses.replace(short, readers=(VAST,))
    assert readers.trained_on_cut(asked, short.readers) == ["fused/tiny/ur"]
    for ways in (short.readers, short.readers[::-1]):
        words = told(readers.answer(asked, dataclasses.replace(short, readers=ways)))
        named = re.findall(r"(\w+), trained on (whole responses alone|cut responses too), \d", words)
        assert named in ([("READER", "whole responses alone")], [("readout", "cut responses too")])
    note = "Trained on whole responses of Agent500 (Fused readout: on cut ones too)."
    for figure in (readers.curves, readers.ends):
        assert note in told(figure(asked, short)[1])
        assert "rained on" not in told(figure(asked, whole)[1]) + told(figure(asked, alike)[1])
    assert "rained on" not in told(readers.answer(asked, whole)) + told(readers.answer(asked, alike))


def test_figures_of_whole_responses_have_an_answer_of_their_own(asked: QueryCache, view: View) -> None:
    for figure in ("reached", "brings", "gains"):
        short = dataclasses.replace(view, condition="t64", figure=figure)
        words = told(compare._answer(asked, short))
        assert "hole responses" in words and "first 64 tokens" not in words
        assert words == told(compare._answer(asked, dataclasses.replace(short, condition="clean")))
    assert "fused readout" in told(compare._answer(asked, dataclasses.replace(view, roster="27-way", figure="brings")))


def test_bands_say_what_they_are_and_why(asked: QueryCache, view: View) -> None:
    def bands(**choices: str) -> str:
        return told(readers.curves(asked, dataclasses.replace(view, readers=("fused/tiny/ur",), **choices)).sentence)

    assert "95 % interval" in bands() and "because" not in bands()
    cut = readers._bands(pd.DataFrame({"band": [pieces.FOLDS]}), view)
    assert cut.endswith("because no 95 % interval is stored for these")
    assert "because neither" in readers._bands(pd.DataFrame({"band": [""]}), view)
    assert "because" not in bands(reduction="fold")


def test_parts_views_forms_and_variance(asked: QueryCache, view: View) -> None:
    parts = proxies.parts(asked, view)
    assert set(drawn(parts.figure)) == {"both (DC–AC)", "drift (first AC)", "mean (DC)"}
    assert next(iter(parts.figure["layout"]["yaxis"]["ticktext"])) == "Tiny-1M"
    rows = proxies.part_rows(asked, view)
    assert " The mean alone is better than both in 0 of 4 published proxies (not tested)." in told(
        proxies.read_answer(asked, view)
    )
    # The answer is of the header's proxy, published or not; of one without such numbers it is of what was measured.
    published = rows.loc[rows["origin"] == "published", "reader"].iloc[0]
    for reader, name, origin in ((view.reader, "Tiny-1M", ""), (published, None, " of the time (published) from ")):
        answer = told(proxies.read_answer(asked, dataclasses.replace(view, reader=reader)))
        assert (name or rows.set_index("reader").at[published, "name"]) in answer and origin in answer
    odd = rows["reader"].eq("reader-dc/odd/ur")
    assert "in 1 of 4 published proxies, by 3.0 to 3.0 points" in proxies._mean_words(
        rows.assign(value=rows["value"] + 0.03 * odd)
    )
    assert proxies._mean_words(rows[rows["origin"] == "measured"]) == ""
    views = proxies.view_rows(asked, view)
    assert set(views["row"]) == {"tiny"} and set(views["series"]) == {"ur", "r"}
    forms = proxies.form_rows(asked, view).set_index(["row", "series"])
    assert forms.at[("dct-q2", "published"), "proxies"] == 4
    assert forms.at[("dct-q2", "published"), "value"] == pytest.approx(0.4 + 0.045 + 0.09 * 3)
    assert list(dict.fromkeys(forms.index.get_level_values(0))) == [
        "temporal-mean",
        "temporal-final",
        "dct-q2",
        "dct-q4",
    ]
    variance = proxies.variance_rows(asked, view).set_index(["row", "series"])
    assert variance.at[(TINY, "dc-ac"), "ratio"] == pytest.approx(0.6)
    assert variance.at[(TINY, "dc"), "std"] == pytest.approx(0.005) and variance.at[(TINY, "dc"), "n"] == 2


def test_a_test_in_pairs_stands_only_where_it_was_made(asked: QueryCache, view: View) -> None:
    rows = readers.end_rows(asked, view)
    assert rows["p_holm"].notna().any()
    short = dataclasses.replace(view, condition="t64")
    frame = readers.end_rows(asked, short)
    assert len(frame) and frame[["low", "high", "p_value", "p_holm"]].isna().all(axis=None)
    assert "none of these has been tested" in told(readers.ends(asked, short)[1])
    one, other = (told(readers.answer(asked, where)) for where in (short, view))
    assert re.search(r"of the time \(first 64 tokens\)(\", \"|;|, )", one)
    assert ",," not in one and "points more" not in one
    assert "tokens" not in other and "; chance: " in other


def test_another_roster_is_offered_with_the_rest_of_the_view(tmp_path: Path) -> None:
    publish_invented(tmp_path / "data", rosters={"100-way": 12, "165-way": 27})
    held: QueryCache = create_application(tmp_path / "data", tmp_path / "cache").server.extensions["atlas"]
    wide = held.resolve_view(View(reader=TINY, roster="165-way", domain="math100", k=5, condition="t64"))
    away = proxies.forms(held, wide).absent
    assert away is not None
    assert f"?{dataclasses.replace(wide, roster='100-way').query()}" in told(away)


def test_capability_has_a_fit_line_and_p(asked: QueryCache, view: View) -> None:
    figure = proxies.capability(asked, view).figure
    line, marks = go.Figure(figure).data
    assert line.name == "fit line, MMLU-Pro" and len(marks.x) == 4 and list(marks.x) == sorted(marks.x)
    assert "r = .900 (p = .040)" in figure["layout"]["annotations"][0]["text"]
    away = proxies.capability(asked, asked.resolve_view(View(roster="27-way")))
    assert away.absent is not None and "python -m jobs evaluate --stage statistics" in told(away.absent)


def test_a_figure_of_something_else_than_its_tab_has_an_answer_and_its_own_controls(
    asked: QueryCache, view: View
) -> None:
    answers = {name: told(compare._answer(asked, dataclasses.replace(view, figure=name))) for name in compare.ANSWERS}
    assert len(set(answers.values())) == len(answers)
    assert "more capable proxies read better: " in answers["capability"] and "r = .900" in answers["capability"]
    assert " with MMLU-Pro (p = .040)" in answers["capability"] and "over 4 proxies" in answers["capability"]
    assert ".600 times" in answers["variance"] and "for more in 1 of 2 readers" in answers["variance"]
    assert "keeps most of 4 summaries of Tiny-1M" in answers["forms"] and "Final token least" in answers["forms"]
    away = dataclasses.replace(view, roster="27-way")
    for name in ("capability", "variance", "forms"):
        assert "not been measured for 27-way" in told(compare._answer(asked, dataclasses.replace(away, figure=name)))
    for figure, hidden in (("variance", True), ("depths", True), ("forms", False)):
        head = told(compare.layout(reader=TINY, roster="12-way", figure=figure))
        fields = re.findall(r'"hidden": (true|false)', head)
        _, fold, budget, *_ = fields  # after the readers
        assert (fold, budget) == ("true", str(hidden).lower()), figure  # one field alone needs no fold


def test_all_costs_stand_by_accuracy(asked: QueryCache, view: View) -> None:
    rows = proxies.costs(asked, view)[0].to_plotly_json()["props"]["rowData"]
    rates = [row["accuracy"] for row in rows]
    assert len(rates) > 1 and rates == sorted(rates, reverse=True)


def test_cost_tells_machines_apart(asked: QueryCache, view: View) -> None:
    frame = proxies.cost_rows(asked, view).set_index("reader")
    assert frame.at[TINY, "latency_ms"] == 12 and frame.at[VAST, "audit_parameters"] == 5e9
    marks = drawn(proxies.cost(asked, view).figure)["READER"]
    assert len(marks.x) == 2 and "reader-dc/tiny/ur" in frame.index  # a part is in the table alone
    assert len(set(marks.marker.color)) == 2 and "2 million parameters" in " ".join(marks.hovertext)
    _, sentence = proxies.costs(asked, view)
    assert "2 machines here" in told(sentence)


@pytest.mark.parametrize("name", ["times", "cost"])
def test_an_axis_of_accuracy_that_is_cut_says_so(asked: QueryCache, view: View, name: str) -> None:
    plot = getattr(proxies, name)(asked, view)
    assert (plot.figure["layout"]["yaxis"]["range"][0] > 0) == (f" {proxies.CUT}. " in told(plot.sentence))
    whole = {"layout": {"yaxis": {"range": [-0.1, 1]}}}
    assert proxies._cut(whole) == "" and proxies._cut({"layout": {"yaxis": {"range": [0.7, 1]}}}) == f"{proxies.CUT}. "


@pytest.mark.parametrize("figure", ["times", "cost", "costs"])
def test_a_published_reader_that_is_better_stands_in_the_answer_where_it_is_drawn(
    asked: QueryCache, view: View, monkeypatch: pytest.MonkeyPatch, figure: str
) -> None:
    found = proxies.cost_rows(asked, view)
    best = found["reader"].eq(VAST)
    better = found.assign(
        accuracy=found["accuracy"].mask(best, 0.99), latency_ms=found["latency_ms"].mask(best, 80.0)
    )  # fmt: skip
    monkeypatch.setattr(proxies, "cost_rows", lambda *_: better)
    answer = told(proxies.cost_answer(asked, dataclasses.replace(view, figure=figure)))
    prices = {"cost": "with 5 billion parameters.", "costs": "in 80 ms a response on a GPU."}
    assert " measured here whose " in answer and ("; published: " in answer) == (figure in prices)
    assert figure not in prices or f"99.0\N{NO-BREAK SPACE}% right {prices[figure]}" in answer.replace('", "', "")


def test_who_runs_nothing_has_no_place_on_a_log_scale(
    asked: QueryCache, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = proxies.cost_rows(asked, view)
    guesses = found["reader"].eq(TINY)
    monkeypatch.setattr(
        proxies, "cost_rows", lambda *_: found.assign(audit_parameters=found["audit_parameters"].mask(guesses, 0))
    )
    figure = proxies.cost(asked, view).figure
    assert all(x > 0 for mark in drawn(figure).values() for x in mark.x)
    assert all(math.isfinite(end) for end in figure["layout"]["xaxis"]["range"])


def test_what_was_not_measured_names_its_command(tmp_path: Path) -> None:
    publish_invented(tmp_path / "data")
    app = create_application(tmp_path / "data", tmp_path / "cache")
    with app.server.test_request_context():
        page = "".join(told(compare.layout(roster="27-way", figure=name)) for name in compare.FIGURES)
    for stage in ("readouts", "cost", "statistics", "controls --method components", "controls --method temporal"):
        assert f"python -m jobs evaluate --stage {stage}" in page, stage
    assert "--view ur,r" in page


def test_a_link_without_readers_puts_the_headers_first(asked: QueryCache, view: View) -> None:
    assert readers.chosen(asked, view)[0] == TINY
    assert readers.chosen(asked, asked.resolve_view(View(readers=(VAST,)))) == [VAST]


def test_tables_of_figures_name_their_readers_and_begin_with_the_numbers(asked: QueryCache, view: View) -> None:
    frame = readers.condition_rows(asked, view)
    shown, heads = pieces.readable(asked, frame, view)
    first = ["name", "condition", "benchmark", "k", "value", "std", "n"]
    assert list(shown)[: len(first)] == first and not {"reader", "metric", "build_id"} & set(shown)
    assert set(shown["name"]) == {asked.reader_name(reader) for reader in frame["reader"]}
    assert set(shown["condition"]) == {pieces.condition_words(name) for name in frame["condition"]}
    own = frame[frame["benchmark"].eq(view.domain) & frame["condition"].eq(view.condition)]
    left = set(pieces.readable(asked, own.assign(origin="measured"), view)[0])
    assert not {"benchmark", "condition", "origin"} & left  # the controls say it, and a badge
    assert heads["value"] == "Accuracy" and compare.FIGURES["elsewhere"].meta.heads["std"] == "Std, folds"
