"""Attribution and Family as pages: what numbers may be off by, whose lines are named, and how tall a family is."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from dash import Dash

from atlas.application import create_application
from atlas.data import QueryCache
from atlas.figures.attribution import _distinct
from atlas.pages import attribution, family, methods, neighbourhoods, pieces
from atlas.pages.compare import readers
from atlas.pages.compare.readers import corrected
from atlas.state import View
from atlas.theme import TOKENS, own_places
from backend.store import queries
from backend.store.database import open_work, publish
from tests.invented_atlas import publish_invented

READER = "reader-paper/tiny/ur"


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Dash:
    folder: Path = tmp_path_factory.mktemp("sure")
    publish_invented(folder)
    work = folder / "work" / "work.duckdb"
    connection = open_work(work)
    for end, step in (("low", -0.01), ("high", 0.02)):
        connection.execute(
            f"INSERT INTO attribution_metrics SELECT * REPLACE ('accuracy_{end}' AS metric, value + {step} AS value, "
            "NULL AS std) FROM attribution_metrics WHERE metric = 'accuracy' AND reader = ? AND roster = '12-way' "
            "AND condition = 'clean' AND reduction = 'pooled' AND seed IS NULL AND fold IS NULL",
            [READER],
        )
    connection.close()
    publish(work, folder)
    return create_application(folder, folder / "cache")


@pytest.fixture
def view(asked: QueryCache) -> View:
    return asked.resolve_view(View(reader=READER, roster="12-way"))


def test_a_stored_interval_comes_before_the_spread_over_the_folds(asked: QueryCache, view: View) -> None:
    frame = pieces.curves(asked, view, [READER, "ngram-word"], "accuracy")
    own, words = (frame[frame["reader"] == reader] for reader in (READER, "ngram-word"))
    assert set(own["band"]) == {pieces.INTERVAL} and set(words["band"]) == {pieces.FOLDS}
    np.testing.assert_allclose(own["high"] - own["low"], 0.03)
    folds = asked.ask(queries.metric_curve, "ngram-word", "12-way", "agent500", "clean", "accuracy", "fold")
    np.testing.assert_allclose(words["high"] - words["value"], folds["std"])
    assert pieces.bands_note(frame) == f"; bands or bars: {pieces.INTERVAL}, else {pieces.FOLDS}"
    by_fold = pieces.curves(asked, view, READER, "accuracy", "fold")
    assert set(by_fold["band"]) == {pieces.FOLDS}
    assert pieces.bands_note(pieces.without_bands(frame)) == ""
    assert pieces.curves(asked, view, "nobody", "accuracy").empty


def test_the_answer_names_what_its_number_may_be_off_by(asked: QueryCache, view: View) -> None:
    assert "(95 % interval " in str(attribution._answer(asked, view))
    words = dataclasses.replace(view, reader="ngram-word")
    assert f", {pieces.FOLDS})" in str(attribution._answer(asked, words))


def test_the_question_of_the_curve_is_answered_with_the_highest_level_that_is_reached(view: View) -> None:
    own = pd.DataFrame({"k": [1, 5, 20, 100], "value": [0.3, 0.55, 0.82, 0.89]})
    assert attribution._clear_from(view, own) == "At least 80 % are right from 20 traces on. "
    assert attribution._clear_from(view, own.head(2)) == "At least 50 % are right from 5 traces on. "
    assert attribution._clear_from(view, own.head(1)) == ""
    assert attribution._clear_from(dataclasses.replace(view, metric="nll"), own) == ""


def plain(content: Any) -> str:
    """The words of some content, without its marks."""
    if isinstance(content, (list, tuple)):
        return "".join(map(plain, content))
    return plain(content.children) if hasattr(content, "children") else str(content or "")


def test_a_slide_keeps_the_numbers_of_the_answer(
    asked: QueryCache, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attribution, "FUSED_LIVE", "ngram-word")
    answer = attribution._answer(asked, view)
    for page_only in (True, False):
        words = plain([part for part in answer if page_only or getattr(part, "className", "") != "page-only"])
        assert words.startswith("With 20 traces, READER") and ("; chance: " in words) == page_only
    more = answer[-1].children
    assert [part.className for part in more[:1]] == ["page-only"] and not plain(more[1:]).startswith(" ")
    (judge,) = more[1:]
    assert judge.children[1].className == ""  # its name is on the slide
    numbers = judge.children[0] + judge.children[-1]
    assert re.fullmatch(r"The reader that judges your traces [.\d]+\s?%\. ", numbers)


def test_the_answer_names_the_live_reader_where_it_is_another(
    asked: QueryCache, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "judges your traces" not in str(attribution._answer(asked, view))
    monkeypatch.setattr(attribution, "FUSED_LIVE", "ngram-word")
    answer = plain(attribution._answer(asked, view))
    assert re.search(r"The reader that judges your traces: .*Word n-grams.*, [.\d]+\s?%\.", answer)
    assert "judges your traces" not in str(attribution._answer(asked, dataclasses.replace(view, reader="ngram-word")))


@pytest.mark.parametrize(
    ("metric", "words"),
    [("macro_f1", r" Its Macro-F1 there: \.\d+\."), ("ece", r"\(summed evidence\), [.\d]+ \(mean evidence\)\.")],
)
def test_the_answer_is_of_the_chosen_metric_too(asked: QueryCache, view: View, metric: str, words: str) -> None:
    answer, plain = (
        str(attribution._answer(asked, dataclasses.replace(view, metric=one))) for one in (metric, "accuracy")
    )
    assert re.search(words, answer) and not re.search(words, plain)


def test_baselines_stand_behind_a_reader_and_readers_behind_a_baseline(asked: QueryCache, view: View) -> None:
    assert set(attribution._others(asked, view)["reader"]) == {"ngram-word", "reader-paper/vast/ur"}
    words = dataclasses.replace(view, reader="ngram-word")
    assert set(attribution._others(asked, words)["reader"]) == {READER, "reader-paper/vast/ur"}


def test_a_name_leaves_out_what_all_of_its_method_read(asked: QueryCache, monkeypatch: pytest.MonkeyPatch) -> None:
    frame, alone, name = asked.ask(queries.readers), "reader-paper/tiny/r", "READER · Tiny-1M · response"
    assert attribution._brief(asked, alone, name) == name
    monkeypatch.setattr(asked, "ask", lambda *_: frame[frame["reader"].eq(alone)])
    assert attribution._brief(asked, alone, name) == "READER · Tiny-1M"


def test_at_most_so_many_lines_are_named_and_the_live_reader_is_always_one(
    asked: QueryCache, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind, own = attribution._others(asked, view), attribution._curve(asked, view, "accuracy")
    every = attribution._rivals(asked, view, behind, own)
    assert [line.label for line in every] == ["Word n-grams", "READER · Vast-70B"] and all(line.named for line in every)
    assert len({line.colour for line in every}) == 2
    for k in (1, 100):  # another budget names no others
        assert [line.label for line in attribution._rivals(asked, dataclasses.replace(view, k=k), behind, own)] == [
            line.label for line in every
        ]
    assert attribution._rivals(asked, view, behind.iloc[:0], own) == []
    monkeypatch.setattr(attribution, "NAMED", 2)
    (named,) = [line for line in attribution._rivals(asked, view, behind, own) if line.named]
    assert named.label == "Word n-grams"
    monkeypatch.setattr(attribution, "FUSED_LIVE", "reader-paper")
    (named,) = [line for line in attribution._rivals(asked, view, behind, own) if line.named]
    assert named.key == "reader-paper/vast/ur"


@pytest.mark.parametrize("metric", ["nll", "ece"])
def test_lines_that_are_compared_are_of_one_kind_of_evidence(asked: QueryCache, view: View, metric: str) -> None:
    view = dataclasses.replace(view, metric=metric)
    behind, own = attribution._others(asked, view), parts(asked, view)
    here = behind.loc[behind["k"] == view.k, "value"]
    better = f"{(here < own.set_index('k')['value'][view.k]).sum()} of the {len(here)} others drawn here"
    compared, alone = (attribution._budget(asked, dataclasses.replace(view, others=others)) for others in ("on", "off"))
    assert f"{better} are better than this one by mean evidence, as" in str(compared.sentence)
    assert "others drawn here" not in str(alone.sentence)
    names = ("\n".join(line["name"] for line in drawn.figure["data"]) for drawn in (compared, alone))
    assert [("summed evidence" in text, "mean evidence" in text) for text in names] == [(False, True), (True, True)]


def test_a_line_keeps_its_colour_under_every_metric(asked: QueryCache, view: View) -> None:
    views = [dataclasses.replace(view, metric=metric) for metric in ("accuracy", "nll", "ece")]
    drawn = [attribution._rivals(asked, one, attribution._others(asked, one), parts(asked, one)) for one in views]
    colours = [{line.key: line.colour for line in lines if line.named} for lines in drawn]
    shared = {reader: colour for given in colours for reader, colour in given.items()}
    assert all(given.items() <= shared.items() and given for given in colours)
    compared = {line.key: line.colour for line in readers.lines(asked, dataclasses.replace(view, readers=[*shared]))}
    owned = own_places([*shared])
    assert owned and {reader: shared[reader] for reader in owned}.items() <= compared.items()
    grey = TOKENS[view.theme]["edge"]
    assert {colour for reader, colour in shared.items() if reader not in owned} <= {grey}


def parts(asked: QueryCache, view: View) -> pd.DataFrame:
    return attribution._curve(asked, view, attribution._stored(view.metric)[-1])


def test_the_head_of_neighbourhoods_says_of_which_sources_it_speaks(asked: QueryCache, view: View) -> None:
    row = asked.ask(queries.family_purity, "12-way", "agent500", asked.map_reader(view)).iloc[0]
    words = f"the {int(row['sources'])} sources in families of five or more"
    assert neighbourhoods.purity_sources(row) == words and words in str(neighbourhoods._answer(asked, view))


def test_methods_leads_with_the_reader_that_judges_traces(
    asked: QueryCache, view: View, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "judge your traces" not in plain(methods._in_numbers(asked, view))
    monkeypatch.setattr(methods, "FUSED_LIVE", "ngram-word")
    lead = plain(methods._in_numbers(asked, view))
    assert re.match(r"With 20 traces, Word n-grams.*, which can judge your traces on Attribute, names the right ", lead)
    assert re.search(r"; the best measured here, READER.*, in [.\d]+\s?%; a guess is right in ", lead)


def test_a_matrix_of_confusions_names_its_reader(asked: QueryCache, view: View) -> None:
    name = asked.reader_name(asked.attribution_reader(view))
    assert f", columns the answer of {name} at 20 traces; " in plain(attribution._confusion(asked, view).sentence)


def test_matrices_say_how_their_sources_are_found(asked: QueryCache, view: View) -> None:
    words = {
        part.className: plain(part) for part in attribution._confusion(asked, view).sentence if "className" in str(part)
    }
    assert words["pointing mouse-only"] == " Click a cell for its two sources."
    assert "touch-only" not in words
    ask = attribution._pair(asked, dataclasses.replace(view, truth="", answer=""))[0].children
    assert {part.className: plain(part) for part in ask} == {
        "pointing mouse-only": "Click a cell, or choose two sources: their numbers appear here.",
        "touch-only": "Choose two sources: their numbers appear here.",
    }
    sizes = asked.ask(queries.sources, "27-way")["family"].value_counts()
    large = dataclasses.replace(view, roster="27-way", zoom=str(sizes.index[0]))
    assert plain(family._within(asked, large).sentence).endswith("it names its two sources.")
    assert "'wrapHeaderText': True" in str(family._members(asked, large)).split("Most confused with")[1]


def test_the_largest_confusions_of_siblings_are_listed(asked: QueryCache, view: View) -> None:
    sources, cells = asked.ask(queries.sources, view.roster), pieces.confusion(asked, view)
    large = dataclasses.replace(view, zoom=str(sources["family"].value_counts().index[0]))
    own = sources[sources["family"] == large.zoom].set_index("source")["name"]
    wrong = cells[cells["truth"].isin(own.index) & cells["predicted"].isin(own.index)]
    wrong = wrong[wrong["truth"] != wrong["predicted"]]
    lines = family._confusions(asked, large)
    assert len(lines) == min(len(wrong), family.LARGEST)
    top = wrong.loc[wrong["share"].idxmax()]
    groups = cells.loc[cells["truth"] == top["truth"], "count"].sum()
    assert lines[0] == (
        f"{own[top['truth']]} is taken for {own[top['predicted']]} in {readers.percent(top['share'])}, "
        f"n = {groups:,} groups"
    )
    assert [lines[0] in plain(part) for part in family._largest(asked, large)] == [False, True]


def test_a_matrix_of_siblings_and_its_table_have_one_order(asked: QueryCache, view: View) -> None:
    sizes = asked.ask(queries.sources, "27-way")["family"].value_counts()
    large = dataclasses.replace(view, roster="27-way", zoom=str(sizes.index[0]))
    drawn = family._within(asked, large)
    assert ", in an order where those taken for each other stand together; " in plain(drawn.sentence)
    names = list(dict.fromkeys(family._within_rows(asked, large)["truth_name"]))
    assert _distinct(names) == list(drawn.figure["data"][0]["y"]) and len(names) == sizes.iloc[0]


def test_a_family_is_as_tall_as_its_names_need(asked: QueryCache, view: View) -> None:
    sizes = asked.ask(queries.sources, "27-way")["family"].value_counts()
    large = dataclasses.replace(view, roster="27-way", zoom=str(sizes.index[0]))
    assert family._within_height(asked, large) == 200 + 15 * max(int(sizes.iloc[0]), 8)


def test_corrections_name_the_sizes_of_their_sets() -> None:
    assert corrected(pd.Series([66, 66])) == "for the 66 comparisons of its set; intervals are not"
    assert corrected(pd.Series([138, 66])).startswith("for the 66 or 138 comparisons")


def test_the_largest_confusion_is_that_of_the_measured_rows(asked: QueryCache, view: View) -> None:
    cells = pieces.confusion(asked, view)
    pair = attribution.largest_confusion(asked, view)
    assert pair is not None and pair[0] != pair[1]
    wrong = cells[cells["truth"] != cells["predicted"]]
    assert cells.set_index(["truth", "predicted"]).at[pair, "share"] == wrong["share"].max()


def test_a_family_shown_alone_brings_a_pair_of_its_own(asked: QueryCache, view: View) -> None:
    families = asked.ask(queries.sources, view.roster).set_index("source")["family"]
    pair = attribution.largest_confusion(asked, view)
    assert pair is not None
    wrong = pieces.confusion(asked, view).query("truth != predicted")
    other = next(family for family in wrong["truth"].map(families) if family != families[pair[0]])
    zoomed = dataclasses.replace(view, truth=pair[0], answer=pair[1], zoom=other)
    assert attribution.outside(asked, zoomed) and not attribution.outside(asked, dataclasses.replace(zoomed, zoom=""))
    own = attribution.largest_confusion(asked, zoomed)
    assert own is not None and families[own[0]] == other
    assert not attribution.outside(asked, dataclasses.replace(zoomed, truth=own[0]))
    assert attribution.largest_confusion(asked, dataclasses.replace(view, reader="nobody", roster="none")) is None
