"""The question's readers: what a link or the header asks for, what is not enrolled, and how choices are worded."""

from __future__ import annotations

import argparse
import math
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask_caching import Cache

import jobs.enroll
from atlas import shell
from atlas.application import create_application
from atlas.data import QueryCache
from atlas.pages.attribute import question, result, sections, verdict, work
from backend.attribution.decision import EnrolmentCapabilities
from backend.attribution.report_words import bound_of
from backend.enrolment.catalogue import Ecosystem, default, sample_labels
from backend.methods.registry import ENROLLABLE, reader_id
from backend.service.job import Snapshot
from backend.store.database import Generation, default_data_folder
from backend.store.queries import readers
from tests.commands import check
from tests.invented_atlas import publish_invented

READS, SEES = "reader-paper/tiny/ur", "reader-paper/tiny/r"
BEST = Ecosystem("12-way-tiny-ur", "lda-live/tiny/ur", "tiny", "ur", ("a", "b", "c"), ("A", "B", "C"), "0" * 64, {})
PROBE = replace(BEST, name="probe", reader=READS, facts={"roster": "12-way"})
SMALL = replace(PROBE, name="small", facts={"roster": "8-way"})
OWN = replace(BEST, name="own", facts={})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder: Path = tmp_path_factory.mktemp("question")
    publish_invented(folder / "data")
    with create_application(folder / "data", folder / "cache").server.test_request_context():
        yield


LARGE = replace(BEST, name="large", reader="fused-live/tiny/ur", facts={"roster": "12-way"})
SAMPLE = replace(PROBE, name="samples-tiny-ur", sources=tuple(sample_labels()), facts={})


def shown(known: list[Ecosystem], link: dict[str, str], **more: Any) -> str | None:
    header = {"reader": link.get("reader"), "roster": link.get("roster")}
    return question.choose(known, header, link, **more)["shown"]


def test_a_link_comes_before_the_header_and_the_header_before_the_best() -> None:
    known = [BEST, PROBE, SMALL]
    assert shown(known, {}) == BEST.name
    assert shown(known, {"ecosystem": "small", "reader": READS, "roster": "12-way"}) == "small"
    assert shown(known, {"reader": READS, "roster": "12-way"}) == "probe"
    assert shown(known, {"reader": READS, "roster": "8-way"}) == "small"
    assert shown(known, {"reader": READS, "roster": "50-way"}) == "probe"
    assert shown(known, {"ecosystem": "gone", "reader": SEES}) == BEST.name
    assert shown(known, {"roster": "8-way"}) == "small"
    assert shown(known, {"roster": "50-way"}) == BEST.name


def test_an_own_file_is_judged_by_the_roster_of_the_header_and_never_by_the_sample() -> None:
    known = [LARGE, SMALL, SAMPLE]
    header = {"reader": READS, "roster": "12-way"}  # the reader is enrolled for the sample alone
    first = question.choose(known, header, {})
    assert first["shown"] == "large"
    tried = question.choose(known, header, {}, SAMPLE.name, "large", first)
    assert tried["shown"] == SAMPLE.name
    own = question.choose(known, header, {}, None, SAMPLE.name, tried)
    assert own["shown"] == "large", "the sample's ecosystem does not stick"
    assert question.choose([SAMPLE], header, {})["shown"] is None
    by_hand = question.choose(known, header, {}, None, SAMPLE.name, own)
    assert by_hand["shown"] == by_hand["picked"] == SAMPLE.name, "a person may choose it"


def test_a_choice_lasts_until_the_header_changes() -> None:
    known, header = [LARGE, PROBE, SMALL, SAMPLE], {"reader": SEES, "roster": "12-way"}
    first = question.choose(known, header, {})
    chosen = question.choose(known, header, {}, None, "small", first)
    assert chosen["shown"] == "small"
    tried = question.choose(known, header, {}, SAMPLE.name, "small", chosen)
    assert question.choose(known, header, {}, None, SAMPLE.name, tried)["shown"] == "small"
    followed = question.choose(known, {**header, "reader": READS}, {}, None, "small", chosen)
    assert followed["shown"] == "probe" and followed["picked"] is None
    link = {"ecosystem": "small", "roster": "8-way"}  # the header takes the link's roster a moment later
    early = question.choose(known, header, link)
    assert question.choose(known, {**header, "roster": "8-way"}, link, None, "small", early)["shown"] == "small"


def test_candidates_are_counted_and_what_is_wrong_with_them_is_said() -> None:
    one = replace(BEST, families=("A", "A", "C"))
    assert question.candidate_options("all", one, {}) == []
    families = question.candidate_options("family", one, {})
    assert families == [{"value": "family:A", "label": "A (2)"}, {"value": "family:C", "label": "C (1)"}]
    assert {item["value"] for group in question.candidate_options("list", one, {}) for item in group["items"]} == set(
        "abc"
    )
    for kind, entries, claim, words in (
        ("all", ["a"], None, "Compared with all 3 enrolled sources."),
        ("list", [], None, "Nothing is chosen: compared with all 3 enrolled sources."),
        ("family", ["family:A"], "a", "Compared with 2 of the 3 enrolled sources."),
        ("family", ["family:A"], "c", "Compared with 2 of the 3 enrolled sources. The claim is none of them: add it."),
    ):
        assert question.candidates_note(kind, one, entries, claim) == words
    assert "the only candidate" in question.candidates_note("list", one, ["c"], None)
    chosen = question.among(one, ["c", "a"])
    assert chosen.sources == ("a", "c")
    assert question.weights("claim", chosen, "a", 60, "") == pytest.approx({"a": 0.6, "c": 0.4})


@pytest.mark.usefixtures("served")
def test_who_judges_is_said_with_its_sources() -> None:
    parts = sections.judged_by(question.questions(), "12-way", 12, LARGE)
    said = "".join(part if isinstance(part, str) else str(part.children) for part in parts)
    assert said.startswith("Judged by Discriminants and word n-grams, live · ") and said.endswith(
        ", among the 12 sources of 12-way."
    )


@pytest.mark.usefixtures("served")
def test_a_chosen_reader_that_scores_nothing_here_is_named_with_its_remedy() -> None:
    assert question.not_enrolled([BEST, PROBE], {"reader": READS}) is None
    assert question.not_enrolled([BEST], {"reader": ""}) is None
    assert question.not_enrolled([BEST], {"reader": "<b>nobody</b>/x/y"}) is None
    told = question.not_enrolled([BEST], {"reader": SEES, "roster": "12-way"})
    assert told is not None and "is not enrolled here" in told[0]
    assert told[1] == "python -m jobs enroll --readout reader-paper --proxy tiny --view r --roster 12-way"
    other = question.not_enrolled([BEST, PROBE], {"reader": READS, "roster": "50-way"})
    assert other is not None and other[0].startswith("50-way, the roster in the header, is not enrolled here for")
    assert other[1].endswith("--view ur --roster 50-way")
    words = question.not_enrolled([BEST], {"reader": "ngram-word"})
    assert words is not None and words[0].startswith(
        "Word n-grams, the reader of the other pages, is not enrolled here."
    )
    assert words[1] == "python -m jobs enroll --readout ngram-word --roster 100-way"
    assert question.not_enrolled([BEST, replace(BEST, reader="ngram-word")], {"reader": "ngram-word"}) is None


@pytest.mark.usefixtures("served")
def test_a_reader_that_cannot_score_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question.questions().__class__, "knows", lambda *_: True)
    monkeypatch.setattr(question.questions().__class__, "reader_name", lambda *_: "It")
    for reader, why in (
        ("encoder/mini/ur", "of that only scores are kept"),
        ("deberta", "fine-tuned fold by fold"),
        ("random", "it guesses"),
        ("phylolm", "no single traces"),
        ("reader-mean4/ur", "it was not measured here"),
    ):
        told = question.not_enrolled([BEST], {"reader": reader, "roster": "12-way"})
        assert told is not None and why in told[0] and told[0].endswith(".")
        assert told[1] == ""
    for method in ENROLLABLE:
        told = question.not_enrolled([BEST], {"reader": reader_id(method, "slim", "ur"), "roster": "12-way"})
        assert told is not None and told[1].startswith(f"python -m jobs enroll --readout {method} ")
        parser = argparse.ArgumentParser()
        jobs.enroll.configure(parser)
        assert parser.parse_args(told[1].split()[4:]).readout == method


@pytest.mark.usefixtures("served")
def test_an_ecosystem_of_one_s_own_is_made_of_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(question.questions().__class__, "knows", lambda *_: True)
    monkeypatch.setattr(question.questions().__class__, "reader_name", lambda *_: "It")
    monkeypatch.setattr(question.questions().__class__, "domains", lambda *_: ["agent500", "our models"])
    told = question.not_enrolled([BEST], {"reader": "fused-live/tiny/ur", "roster": "our models"})
    assert told is not None
    assert told[1] == ("python -m jobs enroll LABELLED --name 'our models' --readout fused-live --proxy tiny --view ur")
    parser = argparse.ArgumentParser()
    jobs.enroll.configure(parser)
    asked = parser.parse_args(shlex.split(told[1])[4:])
    assert (asked.name, asked.readout, asked.roster) == ("our models", "fused-live", None)
    other = question.not_enrolled([BEST], {"reader": "network/tiny/ur", "roster": "our models"})
    assert other is not None and other[1] == "" and "Labelled traces are scored by reader-paper, " in other[0]


@pytest.mark.usefixtures("served")
def test_choices_say_what_is_enrolled_and_who_reads() -> None:
    labels = [one["label"] for one in question.ecosystem_options([PROBE, SMALL, BEST, OWN, replace(OWN, name="twin")])]
    assert labels[:2] == ["12-way · READER", "8-way · READER"]
    assert labels[2:] == [f"{name} · Discriminants" for name in ("12-way-tiny-ur", "own", "twin")]
    texts = question.ecosystem_options([replace(PROBE, reader="ngram-word")])
    assert texts[0]["label"] == "12-way · Word n-grams"
    # Two of one wording are told apart by what is read, then by name; a reader that is not known goes by its id.
    other = [
        one["label"] for one in question.ecosystem_options([OWN, replace(OWN, reader="lda-live/other/r", view="r")])
    ]
    assert len(set(other)) == 2 and all(one.startswith("own · Discriminants, live · ") for one in other), other
    alike = question.ecosystem_options([PROBE, replace(PROBE, name="again")])
    assert [one["label"].rpartition(" · ")[2] for one in alike] == ["probe", "again"]


@pytest.mark.usefixtures("served")
def test_what_a_tuned_encoder_reads_is_said() -> None:
    encoder = replace(BEST, reader="encoder-lengths/mini/r")
    told = question.describe(encoder, EnrolmentCapabilities(False, False, (), (), False, "", {}, None))
    assert told.startswith("mini, fine-tuned, embeds responses alone; 3 sources")
    (label,) = (one["label"] for one in question.ecosystem_options([encoder]))
    assert label.endswith("Fine-tuned encoder, every length")
    for reader in ("fused-text-tuned", "fused-tuned/tiny/ur"):
        assert "n-grams" in result._split(reader) and "embedding of the whole text" in result._split(reader)
    assert result._split("fused-style/tiny/ur") == result._split("fused/tiny/ur")
    assert "embedding" not in result._split("fused/tiny/ur") + result._split("fused-text")


def test_every_shipped_reader_that_was_measured_here_has_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    data = default_data_folder()
    with Generation.open(data).cursor() as cursor:
        measured = {row.reader for row in readers(cursor).itertuples() if row.origin == "measured"}
    server = Flask("shipped")
    shipped = QueryCache(data, Cache(server, config={"CACHE_TYPE": "SimpleCache"}))
    monkeypatch.setattr(question, "questions", lambda: shipped)
    with server.test_request_context():
        told = {one: question.not_enrolled([], {"reader": one, "roster": "100-way"}) for one in measured}
    silent = {one.partition("/")[0] for one, said in told.items() if said is None or not said[1]}
    assert silent == {"random"}, "it guesses"
    for said in told.values():
        if said and said[1]:
            check(said[1])
    forms = told["dct-q8/smollm2-135m/ur"]
    assert forms is not None and re.search(r"--view ur --layer \d+ --roster 100-way$", forms[1])
    both = told["fused/smollm2-135m+gemma3-270m/ur"]
    assert both is not None and " --proxy smollm2-135m+gemma3-270m --view ur " in both[1]


@pytest.mark.parametrize(
    ("ratio", "source", "others", "sign"),
    [
        (2.0, (0.5, 0.5), (0.005, 0.5), ""),
        (2.0, (0.5, 0.5), (0.0005, 0.5), "≥ "),
        (2.0, (0.5, 0.5), (0.0, 0.5), "≥ "),
        (-2.0, (0.0005, 0.5), (0.5, 0.5), "≤ "),
        (-2.0, (0.0, 0.5), (0.5, 0.5), "≤ "),
        (1.0, (0.5, 0.1), (0.5, 0.9), "≤ "),
        (math.log10(9), (0.5, 0.1), (0.5, 0.9), ""),
    ],
)
def test_a_ratio_that_stops_at_what_was_validated_is_a_bound(
    ratio: float, source: tuple[float, float], others: tuple[float, float], sign: str
) -> None:
    assert bound_of(ratio, source, others) == sign


@pytest.mark.parametrize(
    ("word", "claimed", "level", "answer"),
    [
        ("SUPPORTS", "a", "source", "Yes: a"),
        ("SUPPORTS", "a", "family", "a or its sibling b: we cannot say which"),
        ("AGAINST", "a", "source", "No: not a"),
        ("AGAINST", "a", "family", "No: not the family A"),
        ("UNKNOWN", "a", "source", "They fit none of the 2 enrolled sources, a included"),
        ("INCONCLUSIVE", "a", "none", "The evidence is weak"),
        ("SUPPORTS", None, "source", "Points to a"),
        ("SUPPORTS", None, "family", "Points to the family A: a or b, not told apart"),
        ("UNKNOWN", None, "source", "They fit none of the 2 enrolled sources"),
        ("INCONCLUSIVE", None, "none", "The evidence is weak"),
    ],
)
def test_the_claim_is_answered_first(word: str, claimed: str | None, level: str, answer: str) -> None:
    results = {
        "verdict": word,
        "claimed": claimed,
        "level": level,
        "subject": "a",
        "reason": "the evidence is weak",
        "interval": None,
    }
    results |= {"candidates": [{"source": "a", "family": "A"}], "families": [{"family": "A"}], "siblings": ["a", "b"]}
    assert verdict.headline({"results": results, "reference": {"sources": ["a", "b"]}}) == answer


def test_without_a_name_the_sample_comes_last_on_every_way() -> None:
    known = sorted([SAMPLE, LARGE, SMALL], key=lambda one: one.rank, reverse=True)
    assert known[-1] is SAMPLE and len(SAMPLE.sources) > len(LARGE.sources)
    assert default(known) is LARGE
    assert default(known, SAMPLE.sources[0]) is SAMPLE, "it alone knows this claim"
    assert default(known, "nobody") is None


def test_progress_counts_from_the_first_batch_on() -> None:
    job = Snapshot("job", "enrolment", 180, state="running")
    assert work.words(job) == "Reading the first of 180 traces."
    assert work.words(replace(job, done=90, seconds=3.0)) == "90 of 180 traces read, 3 s, about 3 s left."


def test_a_log_fills_in_the_claim_and_leaves_that_of_a_person() -> None:
    one = replace(BEST, sources=("gpt4o", "gpt_4o_mini_2024_07_18"), families=("A", "A"))
    models = [{"requested": "gpt-4o", "returned": "gpt-4o-mini", "traces": 3}]
    columns = {"key": "k", "traces": 4, "models": models}
    filled = question.prefill(columns, one, None, {})
    reason = " From the file: gpt_4o_mini_2024_07_18, since gpt-4o-mini was returned in 3 of 4 traces."
    assert filled == ("gpt_4o_mini_2024_07_18", reason)
    last = {"key": "k", "ecosystem": one.name, "claim": filled[0]}
    assert question.prefill(columns, one, "gpt4o", {}) is None, "a person chose it"
    assert question.prefill(columns, one, None, last) is None, "a person cleared it"
    assert question.prefill({**columns, "key": "other"}, one, filled[0], last) == filled
    unknown = {**columns, "key": "other", "models": [{"requested": "m", "returned": None, "traces": 4}]}
    assert question.prefill(unknown, one, filled[0], last) == (None, None), "it was that of the file before"
    assert question.prefill(unknown, one, "gpt4o", last) is None
    assert question.prefill({**columns, "models": []}, one, None, {}) == (None, None)


def test_fewer_traces_than_needed_are_run_with_the_consequence_said_before() -> None:
    assert work.too_few(question.FEWEST) == ""
    few = work.too_few(question.FEWEST - 2)
    assert few.startswith(f"{question.FEWEST - 2} of the {question.FEWEST} traces needed") and "INCONCLUSIVE" in few


def test_time_left_follows_what_was_read() -> None:
    assert work.time_left(40, 160, 10.0) == ", 10 s, about 30 s left"
    assert work.time_left(0, 160, 0.0) == ", 0 s"


def test_names_in_headlines_stay_whole() -> None:
    parts = shell.unbroken("Yes: gpt-4o or b")
    assert [getattr(part, "children", part) for part in parts] == ["Yes: ", "gpt-4o", " or b"]
