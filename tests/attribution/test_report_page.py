"""The printed page of a report: tables lose nothing of a validation, and say what its rows say."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import numpy as np
import pytest

from backend.attribution.report_page import (
    PIVOTS,
    case_title,
    document_title,
    evidence_chart,
    first_findings,
    font_faces,
    judge_words,
    meanings,
    odds_words,
    paper_words,
    rates_of,
    ratio_words,
    reader_words,
    refused_note,
    stranger_findings,
    such_answers,
    validation_tables,
)
from backend.attribution.report_words import (
    bounds_of,
    line_words,
    percent_text,
    probability_span,
    reservation,
    subject_probability,
)
from backend.attribution.settings import DEFAULTS
from backend.enrolment.files import enrolments, load_enrolment
from backend.enrolment.validation_lookup import matched_validation, passing_of
from backend.inference.verdict import WEAK, log10_text


@pytest.fixture(scope="module")
def validation():
    """What the served enrolment has measured for twenty whole responses."""
    enrolment = load_enrolment(enrolments()["165-way-fused-live-smollm2-135m-ur"])
    return matched_validation(enrolment, np.full(20, 400), 20)


def test_every_measured_rate_stands_in_a_table_or_in_a_sentence(validation):
    tables, sentences = validation_tables(validation)
    cells = [cell for table in tables for row in table.rows for cell in row]
    for row in validation["rows"]:
        if row["sentence"] and row["part"] != "calibration":
            text = f"{100 * row['value']:.1f} % of {row['n']:,}" if row["value"] is not None else "none could be seen"
            assert text in cells or row["sentence"] in sentences
    measured = {row["part"] for row in validation["rows"] if row["sentence"]}
    assert len(tables) == sum(pivot.part in measured for pivot in PIVOTS) + 1
    assert not sentences


def test_answers_of_the_rule_add_up(validation):
    rules = {row["metric"]: row["value"] for row in validation["rows"] if row["metric"].startswith("verdict_")}
    tables, _ = validation_tables(validation)
    claimed = next(row for row in tables[0].rows if row[0] == "The true source is claimed")
    right, alone, wrong, undecided = (float(cell.removesuffix(" %")) / 100 for cell in claimed[1:])
    supported, family = rules["verdict_true_claim_supported"], rules["verdict_true_claim_family_supported"]
    assert right == pytest.approx(supported, abs=0.001)
    assert alone == pytest.approx(family, abs=0.001)
    assert right + alone + wrong + undecided == pytest.approx(1, abs=0.002)


def test_of_several_rates_of_sources_called_unknown_one_is_of_the_answer(validation):
    columns = [column for table in validation_tables(validation)[0] for column in table.columns]
    note = refused_note(validation)
    assert all(name in columns for name in re.findall("“(.+?)”", note)) and note.count("“") == 2
    rows = [row for row in validation["rows"] if row["metric"] != "false_rejection"]
    assert refused_note({"rows": rows}) == ""


def test_a_report_brings_its_font_along():
    faces = font_faces()
    assert faces.count("@font-face") == faces.count("url(data:font/woff2;base64,") == faces.count("url(") == 2
    assert len(faces) < 60_000


def test_rows_that_no_table_knows_are_said():
    row = {"part": "forward", "metric": "accuracy", "scenario": None, "level": None, "k": 5, "n": 3, "value": 0.5}
    tables, sentences = validation_tables({"rows": [row | {"sentence": "Half of 3."}, row | {"sentence": None}]})
    assert (tables, sentences) == ([], ["Half of 3."])


def test_the_rate_of_such_an_answer_comes_first_then_that_of_a_false_claim(validation):
    results = {"verdict": "INCONCLUSIVE", "level": "source", "claimed": None}
    found = rates_of({"results": results, "validation": validation})
    assert found == first_findings(validation)
    claimed = rates_of({"results": results | {"claimed": "a"}, "validation": validation})
    assert claimed == [found[-1], *found[:-1]] and claimed[0].startswith("A false claim of the nearest other source")
    answer = {"verdict": "SUPPORTS", "level": "source", "claimed": "a"}
    such, false, *_ = rates_of({"results": answer, "validation": validation})
    assert "that ended in SUPPORTS" in such and false == claimed[0]


def test_the_first_sheet_says_accuracy_and_errors(validation):
    said = " ".join(first_findings(validation))
    assert re.search(r"source is right in.*UNKNOWN.*no claim it names the right source.*a wrong one", said)
    rows = {row["metric"]: row for row in validation["rows"] if row["scenario"] in (None, "same")}
    for name in ("accuracy_after", "false_unknown", "verdict_nearest_claim_refuted"):
        assert f"{100 * rows[name]['value']:.1f} " in said.replace("\xa0%", " %")
    table = validation_tables(validation)[0][0].rows
    assert (
        f"its family alone in {table[0][2]}, a wrong one in {table[0][3]}, none in {table[0][4]}."
        in said.replace("\xa0%", " %")
        and "refutes the true one" not in said
    )
    true = f"A true claim is supported in {table[1][1]}, its family alone in {table[1][2]}, refuted in {table[1][3]}, "
    true += f"undecided in {table[1][4]}."
    assert true in said.replace("\xa0%", " %")
    share, _, more = table[2][4].partition(",")
    assert more == " or supports the family of both", "an earlier validation did not count that apart"
    nearest = rf"refuted in {table[2][1]} of [\d,]+ tests with \d+ traces, its whole family in another {table[2][2]}, "
    nearest += rf"supported in {table[2][3]}, and undecided \(or the family of both supported\) in {share}\."
    assert re.search(nearest, said.replace("\xa0%", " %"))
    passing = passing_of(validation)
    for share in (passing.family, passing.sibling):
        assert f"{100 * share:.1f} % of " in " ".join(stranger_findings(validation)).replace("\xa0%", " %")
    assert "mathematical" not in said
    assert first_findings(None) == stranger_findings(None) == []


@pytest.mark.parametrize(
    ("log10", "words"),
    [
        (2.2, "about 160 times more likely (160 to 1)"),
        (-1.22, "about 17 times less likely (1 to 17)"),
        (0.003, "no more likely (1 to 1)"),
        (4.0, "about 10,000 times more likely (10,000 to 1)"),
        (9.0, "more than a million times more likely (more than a million to 1)"),
    ],
)
def test_a_ratio_is_said_in_plain_odds(log10, words):
    assert ratio_words(log10) == words


def test_a_ratio_beyond_the_validation_is_a_bound():
    assert ratio_words(2.2, capped=True) == "at least about 160 times more likely (160 to 1)"
    assert (log10_text(2.2, capped=True), log10_text(-2.2, capped=True)) == ("≥ 2.20", "≤ −2.20")
    assert log10_text(-1.22) == "−1.22"


def test_readers_and_cases_without_a_name_go_by_what_people_know():
    assert reader_words("reader-paper/smollm2-135m/ur") == "READER (smollm2-135m)"
    assert paper_words("reader-paper/smollm2-135m/ur") == " (the paper's method)"
    assert judge_words("fused-live/smollm2-135m/ur", "smollm2-135m") == (
        "read by a small language model (SmolLM2-135M-Instruct) and by word statistics"
    )
    assert judge_words("fused-text", "smollm2-135m") == "read by statistics of the text"
    assert judge_words("mine", "smollm2-135m") == "mine"
    assert "/" not in reader_words("ngram-word-lengths") and paper_words("ngram-word-lengths") == ""
    report = {"case": DEFAULTS.case, "input": {"name": "week1.csv"}, "question": "Is it gpt-4o?"}
    assert document_title(report) == "week1.csv · Is it gpt-4o?"
    assert case_title(report) == "week1.csv"
    assert case_title(report | {"case": "Appeal"}) == "Appeal"


def test_weak_evidence_says_which_way_it_points_and_bounds_the_probability() -> None:
    results = {
        "verdict": "INCONCLUSIVE", "reason": WEAK, "level": "none", "stated": True, "claimed": "b", "subject": "b",
        "log10_ratio_others": -1.46, "capped": True, "interval": None, "traces": 10,
        "candidates": [{"source": "a", "probability": 0.976}, {"source": "b", "probability": 0.0001}],
    }  # fmt: skip
    reference = {"sources": ["a", "b", *"cdefghij"], "prior": [0.1] * 10}
    report = {"results": results, "reference": reference, "method": {"rule": {"decided_log10": 2.0}}}
    text = reservation(report)
    assert text is not None and "points away from b: the traces are at least about 29 times less likely" in text
    assert "AGAINST needs 100 times" in text and "a is the best match, with a probability of 97.6 %" in text
    assert subject_probability(report) == "≤ .004"
    results["interval"] = {"low": -1.46, "high": -1.0}
    assert "at least about 29" in (reservation(report) or "") and subject_probability(report) == "≤ .004"
    assert subject_probability(report, percent_text) == "≤ 0.4 %"
    span = probability_span(report)
    assert span is not None and (percent_text(span[0]), percent_text(span[1])) == ("0.4 %", "1.1 %")


def test_a_family_has_its_own_mark_and_ratios_their_bounds() -> None:
    running = [{"traces": k, "log10_ratio_others": 2.0} for k in (1, 40)]
    bare = evidence_chart(running, [])
    assert bare["family"] is None
    assert [words for _, words in bare["rules"]] == ["100 to 1 for", "100 to 1 against"]
    chart = evidence_chart(running, [], 4.0)
    assert bare["hollow"] == chart["hollow"] == []
    led = evidence_chart([row | {"leader": "ab"[row["traces"] == 1]} for row in running], [], None, "a")
    assert led["hollow"] == [tuple(map(float, led["line"].split()[0].split(",")))]
    assert chart["family"][1] < float(chart["line"].rpartition(",")[2]), "above the line of the source"
    assert [height == place for height, place, *_ in chart["labels"]] == [True] * 3
    candidates = [{"source": source, "probability": p, "log10_ratio": r} for source, p, r in
                  (("a", 0.6, 0.0), ("b", 0.4 - 1e-9, math.log10(0.6 / (0.4 - 1e-9))), ("c", 1e-9, 4.56))]  # fmt: skip
    results = {"stated": True, "subject": "a", "candidates": candidates}
    report = {"results": results, "reference": {"sources": list("abc"), "prior": [1 / 3] * 3}}
    assert bounds_of(report) == {"a": "", "b": "", "c": "≥ "}
    results["stated"] = False
    assert bounds_of(report) == {}


@pytest.mark.parametrize("last", [-9.0, -2.1, -1.9, 0.0, 1.9, 2.0, 2.1, 9.0])
@pytest.mark.parametrize("family", [None, 2.2, 4.0])
def test_labels_of_the_chart_stand_at_their_heights_or_next_to_them(last: float, family: float | None) -> None:
    running = [{"traces": k, "log10_ratio_others": last} for k in (1, 40)]
    chart = evidence_chart(running, [], family, end=odds_words(last, ""))
    rules, ends = chart["labels"][:2], chart["labels"][2:]
    assert [(place, words) for _, place, words, _ in rules] == chart["rules"]
    of_family = [] if family is None else [f"family: {odds_words(family, '')}"]
    assert [words for _, _, words, _ in ends] == [odds_words(last, ""), *of_family]
    assert ends[0][0] == float(chart["line"].rpartition(",")[2])
    places = [place for _, place, *_ in chart["labels"]]
    assert all(abs(one - other) >= 16.9 for one, other in itertools.combinations(places, 2))
    assert all(abs(place - height) <= 35 for height, place, *_ in ends)


def test_the_box_of_the_answer_is_called_as_the_answer() -> None:
    # A board sees the better answer that was not reached.
    five = ["SUPPORTS", "SUPPORTS THE FAMILY", "AGAINST", "UNKNOWN", "INCONCLUSIVE"]
    for level in ("family", "source"):
        words = meanings({"results": {"verdict": "SUPPORTS", "level": level}})
        assert list(words) == five
        assert "this source than" in words["SUPPORTS"] and "this family than" in words["SUPPORTS THE FAMILY"]
        assert words["AGAINST"].endswith("this source.") and "either way" in words["INCONCLUSIVE"]
    assert meanings({"results": {"verdict": "AGAINST", "level": "family"}})["AGAINST"].endswith("this family.")


def test_a_line_that_a_source_passes_says_why_its_family_is_named() -> None:
    results = {
        "verdict": "SUPPORTS", "level": "family", "subject": "b", "claimed": "b", "leader": "b",
        "running": [{"traces": 40, "log10_ratio_others": 2.4, "probability": 0.585}],
    }  # fmt: skip
    report = {"results": results, "method": {"rule": {"decided_log10": 2.0, "least_share": 0.95}}}
    passes = "b passes it but is 58.5 % probable (95 % needed)."
    assert line_words(report) == f"Diamond: its family. Dashed: 100 to 1, which the rule asks for. {passes}"
    results["running"][0] |= {"log10_ratio_others": 1.9, "probability": 0.17}
    below = "Diamond: its family. Dashed: 100 to 1, which the rule asks for. b stays below it, 17.0 % probable"
    assert line_words(report) == f"{below}."
    assert line_words({**report, "results": results | {"leader": "a"}}) == f"{below}; a leads."
    usual = "Dashed: 100 to 1, which the rule asks for, beside a probability of 95 % where it SUPPORTS."
    results |= {"level": "source", "running": [{"traces": 40, "log10_ratio_others": 2.4, "probability": 0.96}]}
    assert line_words(report) == usual
    results["verdict"] = "AGAINST"
    assert line_words(report) == "Dashed: 100 to 1, which the rule asks for."


def test_the_first_sheet_says_how_often_such_an_answer_was_right() -> None:
    def row(name: str, value: float) -> dict[str, Any]:
        return {"metric": f"verdict_{name}", "value": value, "n": 1000, "k": 20, "sentence": "measured"}

    rows = [row("family_right", 0.4), row("family_wrong", 0.0), row("named_right", 0.3), row("named_wrong", 0.1)]
    found = {"results": {"verdict": "SUPPORTS", "level": "family"}, "validation": {"rows": rows}}
    start, end = "tests (20 traces of an enrolled source, no claim) that ended in SUPPORTS", ", the "
    assert such_answers(found) == [f"Of 400 {start} THE FAMILY{end}family was right in all."]
    found["results"] = {"verdict": "SUPPORTS", "level": "source"}
    assert such_answers(found) == [f"Of 400 {start}{end}source was right in 75.0\u00a0%."]
    found["results"] = {"verdict": "AGAINST", "level": "source"}
    assert such_answers(found) == [] == such_answers({**found, "validation": None})
