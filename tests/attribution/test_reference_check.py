"""Traces against the claimed source's own answers to the same prompts."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from flask import Flask
from markupsafe import escape

import backend.attribution.scoring
from atlas.pages.attribute import comparison_answers
from backend.attribution.comparison_page import SIGNATURES, limits_of, question_of, write_comparison
from backend.attribution.drift_report import (
    MEASURE_MEANINGS,
    SAME_RESPONSES,
    Window,
    compare_measures,
    measures_of,
    signed,
    size_text,
    worth_of,
)
from backend.attribution.reference_check import (
    COPIES,
    MAKE_SURE,
    MEANINGS,
    SAME_SETTINGS,
    _next_step,
    headline,
    nearer,
    odds_of,
    rule_words,
)
from backend.attribution.report import digest
from backend.attribution.verify import read_report
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.files import save_enrolment
from backend.errors import ChangedResultError, OtherResultError
from backend.inference.drift import NOT_LIKE, outcome_ratios
from backend.inference.validation import validation_arrays
from backend.proxies.reader import Reader
from jobs.__main__ import main
from tests.attribution.test_run import STYLES, labelled
from tests.served_api import HASH, lines_of, tiny_enrolment, tiny_reader

SECRET = "Sesame, open up"


def with_power(enrolment: Enrolment, *shares: tuple[int, float]) -> Enrolment:
    """With the share of siblings that a paired test sees, by prompts."""
    rows = [
        {"condition": "clean", "part": "drift", "k": k, "metric": "alarms", "scenario": kind, "space": "fingerprints",
         "statistic": "energy-paired", "level": 0.05, "value": value, "std": 0.0, "n": 100}
        for k, sibling in shares
        for kind, value in (("sibling", sibling), ("family", 1.0))
    ]  # fmt: skip
    return replace(enrolment, attachments={**enrolment.attachments, **validation_arrays(pd.DataFrame(rows))})


@pytest.fixture(scope="module")
def reader() -> Reader:
    return tiny_reader()


@pytest.fixture
def folder(reader: Reader, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with the tiny enrolment, and files of three styles on the same prompts."""
    monkeypatch.setenv("ATLAS_DATA", str(tmp_path / "data"))
    monkeypatch.setattr(backend.attribution.scoring, "load_reader", lambda proxy, device: reader)
    monkeypatch.setattr(backend.attribution.scoring, "proxy_hash", lambda proxy: HASH)
    save(with_power(tiny_enrolment(), (10, 0.75), (50, 1.0)), tmp_path)
    for style in STYLES:
        (tmp_path / f"{style}.jsonl").write_bytes(lines_of(style))
    return tmp_path


def save(enrolment: Enrolment, folder: Path) -> None:
    save_enrolment(enrolment, folder / "data" / "enrolments" / "tiny.npz")


def check(folder: Path, *words: str) -> tuple[int, dict[str, Any]]:
    out = folder / "answer.json"
    status = main(
        ["reference-check", *(str(folder / w) if w.endswith(".jsonl") else w for w in words), "--json", str(out)]
    )
    answer: dict[str, Any] = json.loads(out.read_text("utf-8"))
    assert answer["sha256"] == digest({key: value for key, value in answer.items() if key != "sha256"})
    return status, answer


def test_another_style_is_against_the_claim_and_the_rival_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, answer = check(folder, "shout.jsonl", "--reference", "plain.jsonl", "--rival", "shout.jsonl")
    assert (status, answer["verdict"], answer["prompts"]) == (1, "AGAINST", 12)
    assert answer["p_value"] <= 0.05 and answer["paired"]
    assert all(ratio < 0 for ratio in answer["log10_ratios"].values())
    (rival,) = answer["rivals"]
    assert (rival["nearer"], rival["prompts"]) == (0, 12)
    assert rival["p_value"] == pytest.approx(2 * 0.5**12)
    assert rival["sentence"].endswith("nearer to shout.jsonl (rival 1).")
    said = capsys.readouterr().out
    for words in (answer["sentence"], answer["next_step"], answer["expected"], rival["sentence"]):
        assert words in said
    names = [window["name"] for window in answer["windows"]]
    assert names == ["shout.jsonl (the traces)", "plain.jsonl", "shout.jsonl (rival 1)"]


def test_files_of_one_name_are_told_apart_and_equal_ones_announced(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, answer = check(folder, "plain.jsonl", "--reference", "plain.jsonl")
    told = capsys.readouterr().out
    assert told.index(SAME_RESPONSES) < told.index(answer["sentence"])
    traces, reference = (f"plain.jsonl (the {role})" for role in ("traces", "reference"))
    assert [window["name"] for window in answer["windows"]] == [traces, reference]
    assert headline(answer) == f"12 of 12 answers are the same letter for letter: {traces} may be a copy of {reference}"
    server = Flask("page")
    server.extensions["atlas"] = None
    with server.app_context():
        shown = str(comparison_answers.reference_box(answer).to_plotly_json())
    for text in (shown, write_comparison(answer), comparison_answers.reference_text(answer)):
        assert traces in text and reference in text
    assert "' against '" in shown and "against the reference" not in shown
    (folder / "other").mkdir()
    (folder / "other" / "plain.jsonl").write_bytes(lines_of("shout"))
    _, answer = check(folder, "plain.jsonl", "--reference", str(folder / "other" / "plain.jsonl"))
    assert SAME_RESPONSES not in capsys.readouterr().out
    assert headline(answer).startswith(f"{traces} differs from {reference}")
    _, answer = check(folder, "plain.jsonl", "--reference", "shout.jsonl")
    assert [window["name"] for window in answer["windows"]] == ["plain.jsonl", "shout.jsonl"]


def test_the_page_and_its_text_say_what_the_answer_says(folder: Path) -> None:
    _, answer = check(folder, "shout.jsonl", "--reference", "plain.jsonl", "--rival", "shout.jsonl", "--claim", "a<b>")
    del answer["sha256"]
    answer = signed(answer | {"log10_ratios": {"sibling": -1.26, "family": 0.2}})  # the tiny ecosystem has none
    assert "the reference for a<b> " in answer["sentence"] and "Claim: a<b>\n" in comparison_answers.reference_text(
        answer
    )
    server, sent = Flask("page"), comparison_answers.reference_text(answer)
    server.extensions["atlas"] = None
    with server.app_context():
        shown = str(comparison_answers.reference_box(answer).to_plotly_json()).replace("\\xa0", " ")
        sheet = str([part.to_plotly_json() for part in comparison_answers.sheet(answer)]).replace("\\xa0", " ")
    said = [answer[name] for name in ("verdict", "sentence", "next_step", "expected")]
    for words in (*said, *limits_of(answer), *MEANINGS.values(), *SIGNATURES, question_of(answer)):
        assert repr(words)[1:-1] in sheet
    assert comparison_answers.EXACT in sheet and "AGAINST. " not in sheet
    assert answer["sha256"] in sheet and all(window["file"]["sha256"] in sheet for window in answer["windows"])
    for words in (*said, answer["rivals"][0]["sentence"], "plain.jsonl", *answer["notes"]):
        assert repr(words)[1:-1] in shown and words in sent
    assert answer["command"] in sent and answer["sha256"] in sent and "Rival: shout.jsonl" in sent
    page = write_comparison(answer).replace("\xa0", " ")
    assert comparison_answers.EXACT in page and f"{escape(headline(answer))}</b>" in page
    for told in odds_of(answer):
        assert all(words in place for place in (shown, page) for words in told)
    above, _, limits = shown.partition("As text")[0].partition("Summary('Limits')")
    for words in (answer["expected"], NOT_LIKE, *MEANINGS.values()):
        assert repr(words)[1:-1] in limits and repr(words)[1:-1] not in above
    assert SAME_SETTINGS in above, "what a difference may come from stays in sight"
    assert all(shown.count(repr(meaning)) == 1 for meaning in MEASURE_MEANINGS.values())
    for words in (headline(answer), rule_words(answer)):
        assert words in shown and str(escape(words)) in page
    for words in (*said, answer["rivals"][0]["sentence"], *answer["notes"], answer["command"], *MEANINGS.values()):
        assert str(escape(words)) in page
    assert all(repr(meaning)[1:-1] in shown for meaning in MEANINGS.values())
    with pytest.raises(OtherResultError, match="Claim against reference, whose own sha256 agrees") as whole:
        read_report(page)
    with pytest.raises(ChangedResultError, match="does not agree: it was changed") as changed:
        read_report(page.replace(answer["created"], "2020-01-01T00:00:00"))
    kept, altered = (str(comparison_answers.other_result("a<b>", each.value)) for each in (whole, changed))
    assert "UNCHANGED" in kept and "verdict-SUPPORTS" in kept
    assert "'CHANGED'" in altered and "verdict-AGAINST" in altered
    assert "a<b>" not in page
    assert "<script" not in page and "http" not in page.replace("http-equiv", "")


def test_what_differs_is_counted_on_the_compared_traces(folder: Path) -> None:
    """Answers to prompts of one side alone tell nothing of the difference."""
    for style in ("plain", "shout"):
        more = [json.dumps({"prompt": f"{style} {i}?", "response": "one " * 900}) for i in range(40)]
        with (folder / f"{style}.jsonl").open("a", encoding="utf-8") as file:
            file.write("\n".join(["", *more]) if not lines_of(style).endswith(b"\n") else "\n".join(more))
    alone = [json.dumps({"prompt": f"alone {i}?", "response": "one"}) for i in range(8)]
    (folder / "alone.jsonl").write_text("\n".join(alone), "utf-8")
    _, answer = check(folder, "shout.jsonl", "--reference", "plain.jsonl", "--rival", "alone.jsonl")
    for style, window in zip(("shout", "plain"), answer["windows"], strict=False):
        answers = [json.loads(line)["response"] for line in lines_of(style).decode().splitlines()]
        assert window["measures"] == measures_of(answers)
    assert answer["prompts"] == 12 and answer["windows"][2]["measures"] is None
    assert all(row[3] == "–" for row in compare_measures(answer))


def test_odds_say_which_side_gives_the_outcome_more_often() -> None:
    power = {"window": 20, "level": 0.05, "sibling": 0.91, "family": 0.98}
    asked = {"log10_ratios": {"sibling": -1.06, "family": 2.2}, "power": power, "p_value": 0.01, "before": 20}
    sibling, (name, often, _) = odds_of(asked)
    assert sibling == (
        "A sibling of its family over the same model",
        "11 to 1",
        "such an outcome comes about 11 times as often from a sibling of its family as from the same model (log10 "
        "ratio −1.06, below 0: against the same model): with 20 prompts 5 % of tests of the same model (by design: no "
        "such pair was measured) and 91 of 100 tests (taken as 92 of 102, so that no rate is 0 or 1) of a sibling of "
        "its family come out so",
    )
    alike = asked | {"p_value": 0.6, "log10_ratios": outcome_ratios({"p_value": 0.6}, power)}
    (_, often_alike, means) = odds_of(alike)[0]
    assert often_alike == "9.7 to 1" and pytest.approx(10 ** alike["log10_ratios"]["sibling"]) == 0.95 / (10 / 102)
    assert "95 % of tests of the same model (by design: no such pair was measured) and 9 of 100 tests (taken" in means
    (_, _, means), _ = odds_of(alike | {"before": 40})
    assert "with 20 prompts, the largest tested number up to your 40, 95 % of tests" in means
    assert (name, often) == ("The same model over another family", "160 to 1")


def test_the_headline_states_the_weakest_odds_where_all_speak_its_way() -> None:
    windows = [{"name": name, "part": None} for name in ("t.jsonl", "r.jsonl")]
    against = {
        "verdict": "AGAINST",
        "claimed": None,
        "windows": windows,
        "log10_ratios": {"sibling": -1.26, "family": -1.29},
    }
    assert headline(against) == "t.jsonl differs from r.jsonl: 18 to 1 against the same model"
    for ratios in ({}, {"sibling": 0.1, "family": -1.0}):
        assert headline(against | {"log10_ratios": ratios}) == "t.jsonl differs from r.jsonl"
    assert question_of(against | {"rivals": []}) == "Are these the answers of the model of r.jsonl?"
    supports = {
        "verdict": "SUPPORTS",
        "claimed": "X",
        "windows": windows,
        "log10_ratios": {"sibling": 1.1, "family": 2.2},
    }
    assert headline(supports) == "t.jsonl answers as X does: 13 to 1 for the same model"
    assert headline(supports | {"log10_ratios": {"sibling": -0.2, "family": 2.2}}) == "t.jsonl answers as X does"
    assert headline(supports | {"verdict": "INCONCLUSIVE"}) == "t.jsonl answers as X does, but so may a sibling"
    copied = headline(supports | {"identical": 39, "prompts": 40})
    assert copied == "39 of 40 answers are the same letter for letter: t.jsonl may be a copy of r.jsonl"
    assert headline(supports | {"identical": 3, "prompts": 40}).startswith("t.jsonl answers as X does")
    twice = rule_words(supports | {"verdict": "INCONCLUSIVE", "identical": 39, "prompts": 40})
    assert twice.startswith("Two reasons against SUPPORTS: (1) 39 of 40 answers are") and "(2) SUPPORTS needs" in twice


@pytest.mark.parametrize(("sibling", "status", "verdict"), [(1.0, 0, "SUPPORTS"), (0.75, 3, "INCONCLUSIVE")])
def test_no_difference_supports_a_claim_only_where_a_sibling_would_be_seen(
    folder: Path, reader: Reader, sibling: float, status: int, verdict: str
) -> None:
    save(with_power(tiny_enrolment(), (10, sibling), (50, 1.0)), folder)
    traces, labels = labelled()
    rows = [
        {"prompt": trace.prompt, "response": trace.response}
        for trace, label in zip(traces, labels, strict=True)
        if label == "plain"
    ]
    (folder / "known.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    assert check(folder, "known.jsonl", "--reference", "known.jsonl")[0] == status
    answer = check(folder, "known.jsonl", "--reference", "known.jsonl")[1]
    assert (answer["verdict"], answer["p_value"]) == (verdict, 1.0)
    # One file against itself: the answer warns of a copy, and no rounding shows.
    assert COPIES in answer["sentence"] and answer["identical"] == answer["prompts"]
    assert answer["next_step"] == MAKE_SURE and size_text(answer) == "0"
    found = rule_words(answer)
    assert ("here it is" in found) == (verdict == "INCONCLUSIVE") and "SUPPORTS needs" in found
    other = check(folder, "plain.jsonl", "--reference", "plain.jsonl")[1]
    assert "that was not measured in such a case" in rule_words(other)
    assert (other["verdict"], other["log10_ratios"]) == ("INCONCLUSIVE", {})  # other prompts than the enrolled ones
    assert NOT_LIKE in other["notes"]


def test_outcomes_are_weighed_by_what_real_pairs_showed() -> None:
    power = {"window": 20, "level": 0.05, "same": None, "sibling": 0.9, "family": 1.0}
    seen, unseen = (outcome_ratios({"p_value": p}, power) for p in (0.01, 0.5))
    assert seen["sibling"] == pytest.approx(math.log10(0.05 / (91 / 102)))
    assert unseen["sibling"] == pytest.approx(math.log10(0.95 / (11 / 102)))
    assert unseen["family"] == pytest.approx(math.log10(0.95 * 102))  # no more than 100 pairs can show
    assert outcome_ratios({"p_value": 0.5}, None) == {}
    measured = outcome_ratios({"p_value": 0.5}, power | {"same": 0.04})
    assert measured["sibling"] == pytest.approx(math.log10((97 / 102) / (11 / 102)))


@pytest.mark.parametrize(
    ("kind", "shares", "needed"),
    [
        ("like", ((10, 0.75), (20, 0.89), (50, 0.97)), 50),
        ("like", ((10, 0.75),), None),
        ("other topic", ((10, 1.0),), None),
    ],
)
def test_the_number_of_prompts_that_would_do_is_the_first_validated_one(
    reader: Reader, kind: str, shares: tuple[tuple[int, float], ...], needed: int | None
) -> None:
    window = Window({"results": {"traffic": {"kind": kind}}}, np.zeros((12, 1)), ["p"] * 12)
    test = {"p_value": 1.0, "before": 12, "after": 12, "paired": True}
    worth = worth_of(test, with_power(tiny_enrolment(), *shares), window)
    assert worth["prompts_needed"] == needed
    assert bool(worth["log10_ratios"]) == (kind == "like")
    step = _next_step("INCONCLUSIVE", test | worth)
    reach = (
        "12 prompts reach 3.7 to 1 at most: the tests had 10. 50 can reach the 10 to 1 that SUPPORTS needs. Ask both"
    )
    assert step.startswith(reach) if needed else step.startswith("No validated number of prompts decides")


def test_nearness_is_a_sign_test() -> None:
    claimed, rival = np.zeros((8, 3)), np.ones((8, 3))
    reference = np.full((8, 3), 0.5)
    assert nearer(claimed, reference, rival) == (8, 8, 2 * 0.5**8)
    assert nearer(claimed, rival, rival) == (0, 0, 1.0)


def test_no_text_is_in_the_answer(folder: Path) -> None:
    rows = [json.loads(line) for line in (folder / "plain.jsonl").read_text("utf-8").splitlines()]
    rows = [row | {"response": f"{row['response']} {SECRET}"} for row in rows]
    (folder / "secret.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    _, answer = check(folder, "secret.jsonl", "--reference", "plain.jsonl")
    assert SECRET not in json.dumps(answer) and "New 3?" not in json.dumps(answer)


def test_too_few_shared_prompts_are_refused_with_the_command_that_asks_for_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"prompt": f"Other {i}?", "response": "Yes."} for i in range(12)]
    (folder / "other.jsonl").write_text("\n".join(map(json.dumps, rows)), "utf-8")
    words = ["reference-check", str(folder / "plain.jsonl"), "--reference", str(folder / "other.jsonl")]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert "0 prompts are answered by both sides, and a comparison needs 6" in error
    assert "python -m jobs collect --prompts plain.jsonl" in error


def test_of_a_prompt_that_was_answered_twice_the_first_answer_counts(folder: Path) -> None:
    lines = (folder / "plain.jsonl").read_text("utf-8").splitlines()
    again = [json.dumps(json.loads(line) | {"response": "SOMETHING ELSE!"}) for line in lines]
    (folder / "twice.jsonl").write_text("\n".join([*lines, *again]), "utf-8")
    _, answer = check(folder, "twice.jsonl", "--reference", "plain.jsonl")
    assert (answer["prompts"], answer["p_value"]) == (12, 1.0)
    assert "Of the 24 traces of twice.jsonl 12 were compared" in answer["notes"][0]


@pytest.mark.parametrize(
    ("needed", "said"),
    [
        (None, "can say AGAINST, but not SUPPORTS"),
        (50, "With fewer than 50 this can say AGAINST, but not SUPPORTS."),
        (12, "enough"),
    ],
)
def test_how_far_the_prompts_in_common_reach_is_said_before_the_run(needed: int | None, said: str) -> None:
    prompts = [f"prompt {i}" for i in range(12)]
    words, enough = comparison_answers.to_compare_words(prompts, prompts, needed)
    assert enough and words.startswith("12 of 12 prompts in common") and said in words
