"""The words of a report for people, which follow from it alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from backend.attribution import report_page
from backend.attribution.report_page import WORDS, fact_words, headline, write_html
from backend.attribution.report_words import (
    answer_line,
    answer_sentence,
    date_words,
    mixture_sentence,
    rates_note,
    reservation,
    share_interval,
    shares_note,
    shown_shares,
    steps_of,
    validated_case,
    validated_for,
    verdict_words,
    with_names,
)
from backend.attribution.settings import Settings
from backend.inference.verdict import ENROL, KEEP, MORE, PROMPTS, REFERENCE, SHORT
from tests.attribution import test_verify
from tests.attribution.test_verify import ENROLMENT, run, verified

NAMES = {source: f"maker/{source.upper()}" for source in ENROLMENT.sources}


def report_of(verdict: str, **results: Any) -> dict[str, Any]:
    subject = {"claimed": "a", "subject": "a", "level": "source", "candidates": [{"source": "a", "family": "A"}]}
    subject |= {"families": [{"family": "A"}], "siblings": [], "interval": None}
    traffic = {"traffic": {"kind": "like"}, "flags": [], "reason": "", "stated": verdict == "SUPPORTS", "traces": 10}
    return {
        "results": {"verdict": verdict, **subject, **traffic, **results},
        "reference": {"sources": ["a", "b", "c"]},
        "validation": None,
    }


def row(metric: str, value: float, scenario: str = "family", part: str = "unknown") -> dict[str, Any]:
    text = f"{metric} is {value}."
    return {"metric": metric, "value": value, "scenario": scenario, "part": part, "k": 10, "n": 75, "sentence": text}


def test_a_report_without_names_stays_as_it_is() -> None:
    report = run(Settings(enrolment="invented", orders=20)).report
    assert with_names(report) == report and "names" not in report["method"]["facts"]


def test_a_first_sheet_has_three_rates_and_the_others_stand_with_what_was_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rates = [f"Rate number {number}." for number in range(1, 6)]
    monkeypatch.setattr(report_page, "rates_of", lambda _: rates)
    front, _, rest = write_html(run(Settings(enrolment="invented", orders=20)).report).partition("</section>")
    assert [rate in front for rate in rates] == [True] * 3 + [False] * 2
    assert "Also measured" in rest and all((rate in rest) != (rate in front) for rate in rates)


def test_names_stand_in_sentences_and_sources_in_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fields keep the sources, so that the report can be computed again; pages show names."""
    plain = run(Settings(enrolment="invented", orders=20)).report
    monkeypatch.setattr(test_verify, "ENROLMENT", replace(ENROLMENT, facts={**ENROLMENT.facts, "names": NAMES}))
    report = run(Settings(enrolment="invented", orders=20)).report
    named, leader = with_names(report), plain["results"]["leader"]
    for part in ("subject", "leader", "rival", "candidates", "running", "leave_one_out", "stop"):
        assert report["results"][part] == plain["results"][part]
    assert [trace["nearest"] for trace in report["traces"]] == [trace["nearest"] for trace in plain["traces"]]
    assert report["reference"] == plain["reference"] and report["sha256"] == named["sha256"]
    assert NAMES[leader] in report["results"]["sentence"] and NAMES[leader] in report["propositions"][0]["text"]
    sentence = report["results"]["sentence"]
    for source, name in NAMES.items():
        sentence = sentence.replace(name, source)
    assert sentence == plain["results"]["sentence"]
    assert named["results"]["leader"] == NAMES[leader] and named["traces"][0]["nearest"] in NAMES.values()
    assert f"<td>{NAMES[leader]}</td>" in write_html(report) and f"<td>{leader}</td>" not in write_html(report)
    assert verified(report).equal
    claim = run(Settings(enrolment="invented", orders=20, claimed=leader)).report
    assert leader in claim["question"] and NAMES[leader] in with_names(claim)["question"]
    own = run(Settings(enrolment="invented", orders=20, claimed=leader, question=f"Is it {leader}?")).report
    assert with_names(own)["question"] == f"Is it {leader}?"


def test_what_the_test_for_unknown_sources_cannot_see_is_said_with_a_yes() -> None:
    report = report_of("SUPPORTS")
    assert headline(report) == "Yes: a" and reservation(report) is None
    report["validation"] = {"rows": [row("false_acceptance", 0.2)]}
    assert headline(report) == "Yes: a" and reservation(report) is None
    report["validation"] = {"rows": [row("false_acceptance", 0.92)]}
    assert headline(report) == "Yes, among the 3 enrolled sources: a"
    said = "A model outside these 3 is not excluded: of 100 models that nobody enrolled, 92 pass as enrolled"
    assert reservation(report) == f"{said} (at 10 traces)."
    report["validation"]["rows"].append(row("false_acceptance", 0.92, "sibling"))
    assert reservation(report) == f"{said} (at 10 traces)."
    report["validation"]["rows"][1]["value"] = 0.79
    said = "of 100 models whose family nobody enrolled, 92 pass as enrolled, and of 100 with an enrolled sibling 79 (at"
    assert said in (reservation(report) or "")
    report["reference"] |= {"candidates": ["a"], "enrolled": list("abcdef")}
    assert headline(report) == "Yes, among the 3 candidates: a" and "outside these 6" in (reservation(report) or "")
    report |= {"input": {"name": "t.jsonl"}, "method": {"rule": {"decided_log10": 2.0, "least_share": 0.95}}}
    report["results"] |= {"next_steps": [KEEP], "interval": None}
    assert [step.page for step in steps_of(report)] == ["Check a report", "Claim against reference"]
    report["results"]["interval"] = {"low": 2.0, "probability_low": 0.9}
    assert headline(report).startswith("Yes, narrowly, among the 3 candidates")
    assert str(steps_of(report)[1]) == (
        "Add traces to be surer: in some resamples of these the evidence stays below 100 to 1 or 95 %."
    )
    report["results"]["interval"]["probability_low"] = 0.95
    assert len(steps_of(report)) == 2
    report["results"]["level"] = "family"
    assert headline(report) == "a or another of the family A, among the 3 candidates: we cannot say which"
    report["results"]["siblings"] = list("abc")
    assert headline(report) == "a or its siblings b or c, among the 3 candidates: we cannot say which"
    report["results"]["siblings"] = list("abcd")
    assert headline(report).startswith("a or another of the family A")
    report["results"]["claimed"] = None
    assert headline(report).endswith("; 4 of its members are not told apart")


def test_an_answer_about_a_family_says_that_its_member_is_not_settled() -> None:
    report = report_of("SUPPORTS", level="family", candidates=[{"source": "a", "family": "A", "probability": 0.585}])
    report["method"] = {"rule": {"decided_log10": 2.0, "least_share": 0.95}}
    said = "Whether it is a itself is not settled: its probability is 58.5 % (95 % needed)."
    assert reservation(report) == said
    report["validation"] = {"rows": [row("false_acceptance", 0.92)]}
    assert (reservation(report) or "").endswith(said) and "outside these 3" in (reservation(report) or "")
    report["validation"] = {"rows": [row("false_acceptance", 0.1), row("false_acceptance", 0.4, "sibling")]}
    outside = (
        " Another model of the family A is not excluded: of 100 models that are not enrolled but have an enrolled "
    )
    assert reservation(report) == f"{said}{outside}sibling, 40 pass as enrolled (at 10 traces)."


def test_siblings_of_one_name_without_and_with_a_date_are_said() -> None:
    report = report_of("SUPPORTS", level="family", candidates=[{"source": "a", "family": "A", "probability": 0.585}])
    report["method"] = {"rule": {"decided_log10": 2.0, "least_share": 0.95}}
    report["results"]["siblings"] = ["a-2024-11-20", "a"]
    assert "The names differ by a date alone: " in (reservation(report) or "")
    for siblings, claimed in ((["a-2024-11-20", "a", "a-mini"], "a"), (["a-2024-11-20", "a"], None)):
        report["results"] |= {"siblings": siblings, "claimed": claimed}
        assert "by a date alone" not in (reservation(report) or "")


def test_the_best_match_of_traces_against_a_claim_need_not_be_their_author() -> None:
    report = report_of("AGAINST")
    report["results"]["candidates"][0]["source"] = "b"
    assert reservation(report) is None
    report["validation"] = {"rows": [row("false_acceptance", 0.68)]}
    assert (reservation(report) or "").startswith("That does not make it the author: of 100 models")
    report |= {"input": {"name": "t.jsonl"}}
    report["results"]["next_steps"] = []
    assert [step.page for step in steps_of(report)] == ["Check a report"]
    report["results"]["candidates"][0]["source"] = report["results"]["subject"]
    assert reservation(report) is None


def test_the_validated_case_says_that_fewer_traces_than_yours_were_tested() -> None:
    held = {"traces": 20, "condition": "clean"}
    cases = {traces: validated_case({"results": {"traces": traces}, "validation": held}) for traces in (20, 33)}
    assert cases[20] == "Measured with 20 traces, on held-out prompts."
    assert cases[33] == "Measured with 20 traces, the most tested up to yours, on held-out prompts."
    rows = [row("false_unknown", 0.05, "same"), row("verdict_true_claim_supported", 0.55), row("wrong", 0.1, "same")]
    noted = rates_note(held | {"rows": rows})
    assert noted.startswith("What is counted: the rule's answers on ") and "all three questions to those" in noted
    assert rates_note(held | {"rows": rows[1:]}) == ""
    none = validated_case({"results": {"traces": 4}, "validation": held | {"traces": None}})
    assert none.endswith(" The accuracy was not tested with so many traces or fewer.")


def test_a_share_that_can_be_seen_says_of_what() -> None:
    found = {"source": "a", "sentence": "We cannot say: of 20 only a share of 27 % or more from elsewhere can be seen."}
    report = report_of("SUPPORTS", mixture=found) | {"method": {"facts": {}}}
    assert mixture_sentence(report) == (
        "We cannot say: of 20 only a share of 27 % or more from another enrolled source, drawn at random, is found in "
        "80 % of cases where a wrote the rest."
    )
    found["sentence"] = "a alone can have written them: a share of 20 % from elsewhere would be seen in 80 % of cases."
    assert "from another enrolled source, drawn at random, would be found in 80 % of" in mixture_sentence(report)


def test_intervals_of_other_sources_hold_0_where_one_source_may_have_written_all() -> None:
    rows = [{"source": "a", "low": 0.085, "high": 0.95}, {"source": "b", "low": 0.05, "high": 0.915}]
    for outcome, low in (("cannot tell", 0), ("one source", 0), ("mixture", 0.05)):
        found = {"outcome": outcome, "source": "a", "subject": "a", "p": 0.64, "shares": rows}
        assert shares_note(report_of("SUPPORTS", mixture=found)).endswith(' "All from a": p = .640.')
        assert [row["low"] for row in shown_shares(found)] == [0.085, low]
    assert rows[1]["low"] == 0.05  # what is stored stays
    assert shown_shares({"outcome": "cannot tell", "shares": None}) == []
    assert [share_interval(*ends) for ends in ((0, 0.915), (0.05, 0.915), (0, 1), (0.0001, 0.5))] == [
        "0 to .915", ".050 to .915", "any share", "< .001 to .500",
    ]  # fmt: skip


def test_a_claim_whose_family_alone_is_supported_gets_no_yes() -> None:
    said = "The 10 traces support the family A: about 200 times more likely."
    said += " Of the family A, the members a, b are not told apart."
    report = report_of("SUPPORTS", level="family", sentence=said)
    assert verdict_words(report["results"]) == "SUPPORTS THE FAMILY"
    assert answer_sentence(report) == "The 10 traces support the family A: about 200 times more likely."
    assert answer_line(report) == f"SUPPORTS THE FAMILY: {said}"
    said = "Yes: about 160 times more likely (39 to 160 times in 90 % of resamples, capped at 160; log10 ratio 2.20)."
    report = report_of("SUPPORTS", sentence=said, capped=True, log10_ratio_others=2.2)
    bounded = said.replace("about", "at least about").replace("ratio 2", "ratio ≥ 2")
    assert answer_sentence(report) == bounded == answer_line(report).removeprefix("SUPPORTS: ")
    assert verdict_words(report_of("SUPPORTS")["results"]) == "SUPPORTS" and "95 % probable" in WORDS["SUPPORTS"]


def test_of_an_unknown_source_the_nearest_in_score_and_in_place_are_told_apart() -> None:
    said, near = "They fit none. Of those, b scores highest.", [{"source": "c"}, {"source": "b"}]
    told = {
        near[i]["source"]: report_of("UNKNOWN", sentence=said, leader="b", lands={"rows": near[i:]}) for i in (0, 1)
    }
    expected = "They fit none. Nearest by the mean fingerprint: c."
    assert (answer_sentence(told["c"]), answer_sentence(told["b"])) == (expected, said)


def test_an_unknown_source_comes_with_how_often_enrolled_ones_fail_too() -> None:
    report = report_of("UNKNOWN")
    assert reservation(report) is None
    rows = [row("false_rejection", 0.05), row("false_unknown", 0.3, "math100"), row("false_unknown", 0.047, "same")]
    for kept, expected in ((rows[:2], "1 in 20"), (rows, "1 in 21")):
        report["validation"] = {"rows": kept}
        assert (
            f"Either another model answers, or a behind other settings; about {expected} groups of an enrolled source"
        ) in (reservation(report) or "")
    assert "(4.7 % of 75 groups of 10 traces)" in (reservation(report) or "")
    report["validation"] = {"rows": [row("false_unknown", 0.0, "same")]}
    assert reservation(report) is None


def test_steps_lead_to_the_page_that_does_them() -> None:
    texts = [MORE, REFERENCE.format(who="genuine a"), KEEP, ENROL, PROMPTS]
    report = report_of("INCONCLUSIVE", next_steps=texts) | {"input": {"name": "two weeks.csv"}}
    more, reference, keep, enrol, prompts = steps_of(report)
    assert all("python" not in str(step) and "--" not in str(step) for step in steps_of(report))
    assert str(enrol) == "Or have the candidates enrolled on prompts of this kind." and enrol.by_command == ENROL
    assert "attribute 'two weeks.csv' --prompt-column" in prompts.by_command
    assert (more.page, str(more), more.by_command) == (None, MORE, MORE)
    assert reference.page == "Claim against reference" and keep.page == "Check a report"
    assert reference.by_command.endswith("reference-check 'two weeks.csv' --reference genuine.jsonl")
    assert keep.by_command == KEEP and "Check a report (page Attribute" in str(keep)
    assert str(reference).endswith("(page Attribute), which says how many prompts SUPPORTS needs.") and not keep.needs
    held = ({**report, "validation": {"prompts_needed": needed, "rows": []}} for needed in (50, 3))
    few, enough = (steps_of(one)[1].needs for one in held)
    assert few == ", with 50 prompts at least: fewer cannot end in SUPPORTS" and enough == ""
    of = {**report, "validation": {"prompts_needed": 50, "rows": []}}
    counted = {n: steps_of(of | {"input": {"name": "t.csv", "prompts": n}})[1].needs for n in (0, 1, 5, 20, 50)}
    more = "put 30 more to the endpoint, then all 50 to the genuine one"
    assert counted[20] == f"{few}. Your file has 20 prompts: {more}"
    assert "has 1 prompt, and fewer than 6" in counted[1]
    assert "has 5 prompts, and fewer than 6 are not compared at all: put 45 more" in counted[5]
    assert counted[0].endswith("Your file names no prompts: put the same 50 to both endpoints") and counted[50] == ""
    stopped = of | {"input": {"name": "t.csv", "prompts": 20}, "results": report["results"] | {"complete": False}}
    assert few in steps_of(stopped)[1].needs and "Your file" not in steps_of(stopped)[1].needs
    report["input"]["name"] = "-rf.csv"
    assert "-rf.csv" not in steps_of(report)[1].by_command


@pytest.mark.parametrize(
    ("verdict", "more", "here"),
    [
        ("SUPPORTS", {}, True),
        ("UNKNOWN", {}, True),
        ("INCONCLUSIVE", {"reason": "fewer than 5 traces"}, True),
        ("INCONCLUSIVE", {"reason": "fewer than 5 traces", "traffic": {"kind": "other topic"}}, False),
        ("INCONCLUSIVE", {"traffic": {"kind": "no prompts"}}, False),
        ("INCONCLUSIVE", {"reason": SHORT}, False),
    ],
)
def test_a_validation_is_of_such_traces_or_of_others(verdict: str, more: dict[str, Any], here: bool) -> None:
    assert validated_for(report_of(verdict, **more)) == here


def test_days_have_one_form_for_people() -> None:
    assert date_words("2026-11-28T23:42:24.320+00:00") == "28 November 2026"
    assert date_words(datetime(2026, 1, 3, tzinfo=UTC)) == "3 January 2026"
    assert (
        fact_words({"created": "2026-11-26T23:28:36+00:00", "prompts": 100}) == "created 26 November 2026; prompts 100"
    )
    assert fact_words("gpt-4.1-2025-04-14") == "gpt-4.1-2025-04-14"
