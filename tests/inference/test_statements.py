"""No answer contradicts itself, whatever was found: sentences, ratios, stops and steps of one verdict."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.attribution.decision import Findings, FittedStatistics, find, stated_prior
from backend.attribution.report import RULE, build_report, next_step, results_of
from backend.attribution.report_page import write_html
from backend.attribution.report_words import (
    answer_sentence,
    is_bounded,
    steps_of,
    supports_family,
    too_few,
    verdict_words,
    wavers,
)
from backend.attribution.scoring import Scored, Seen, Selection
from backend.attribution.settings import Settings
from backend.enrolment.enrolment import Enrolment
from backend.inference.calibration import Calibration
from backend.inference.domain_shift import UNCHECKED, Kind, Traffic
from backend.inference.verdict import (
    KEEP,
    OTHER_TRAFFIC,
    SCALE,
    Evidence,
    Flag,
    Passing,
    Rule,
    Statements,
    Verdict,
    decide,
    log10_text,
    reconcile,
)
from backend.intake import Columns, Layout, trace_hash
from backend.methods.ensemble import Head
from backend.methods.probe import LinearProbe

SOURCES, FAMILIES = ("a-one", "a-two", "b-one", "c-one"), ("A", "A", "B", "C")
KINDS: tuple[Kind, ...] = ("like", *OTHER_TRAFFIC)
FLAGS: tuple[Flag, ...] = ("short", "domain", "budget")
STRENGTHS = tuple(words for _, words in SCALE)
COMPATIBLE = "compatible with an enrolled source"
BLIND = "cannot tell here"


def traffic_of(kind: Kind) -> Traffic:
    return Traffic(kind) if kind in ("no prompts", "unchecked") else Traffic(kind, 0.5 if kind == "like" else 0.01, 9)


def stops(claimed: bool) -> st.SearchStrategy[dict[str, Any] | None]:
    """Any answer of the stop, at several levels."""

    def answer(level: float) -> st.SearchStrategy[dict[str, Any]]:
        says = st.sampled_from(("for the claim", "against the claim") if claimed else SOURCES)
        key = "decided" if claimed else "named"
        return st.one_of(
            st.just({"error_rate": level, "enough_after": None, key: None}),
            st.builds(lambda k, what: {"error_rate": level, "enough_after": k, key: what}, st.integers(5, 40), says),
        )

    levels = st.tuples(*(answer(level) for level in (0.01, 0.05, 0.1)))
    looked = st.one_of(st.just({}), st.builds(lambda k: {"looked": k}, st.integers(5, 40)))

    def chosen(rows: tuple[dict[str, Any], ...], at: int, more: dict[str, int]) -> dict[str, Any]:
        return rows[at] | {"levels": list(rows)} | more

    return st.none() | answer(0.05) | st.builds(chosen, levels, st.integers(0, 2), looked)


ratios = st.floats(-9, 9) | st.sampled_from([-2.0, 2.0, 0.0])
shares = st.floats(0, 1) | st.sampled_from([0.95, 0.99])
p_values = st.none() | st.floats(0.001, 1) | st.sampled_from([0.05, 0.051])


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    claimed = draw(st.booleans())
    subject = draw(st.integers(0, 3))
    p = draw(p_values)
    kind = draw(st.sampled_from(KINDS) | st.just("like"))
    evidence = Evidence(
        traces=draw(st.integers(1, 40)),
        claimed=claimed,
        source=subject,
        family=FAMILIES.index(FAMILIES[subject]),
        log10_lr=draw(ratios),
        family_log10_lr=draw(ratios | st.just(math.nan)),
        share=draw(shares),
        family_share=draw(shares),
        posterior=draw(shares),
        family_posterior=draw(shares),
        p_unknown=math.nan if p is None else p,
        flags=tuple(flag for flag in FLAGS if draw(st.booleans()) and draw(st.booleans())),
        traffic=kind,
        calibrated=draw(st.booleans() | st.just(True)),
    )
    leader = draw(st.integers(0, 3)) if claimed else subject
    members = [s for s, f in zip(SOURCES, FAMILIES, strict=True) if f == FAMILIES[leader]]
    return {
        "evidence": evidence,
        "subject": subject,
        "claimed": claimed,
        "leader": leader,
        "traces": evidence.traces,
        "traffic": traffic_of(kind),
        "p": p,
        "stop": draw(stops(claimed)),
        "siblings": members if len(members) > 1 and draw(st.booleans()) else (),
        "complete": draw(st.booleans()),
        "passing": draw(
            st.none()
            | st.builds(Passing, st.just(20), st.floats(0, 1), st.none() | st.floats(0, 1))
            | st.builds(Passing, st.just(20), st.none(), st.floats(0, 1))
        ),
    }


def answers(stop: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [stop, *stop.get("levels", ())]


def check(case: Mapping[str, Any], verdict: Verdict, said: Statements) -> None:
    """What must hold of every answer."""
    evidence: Evidence = case["evidence"]
    name, outcome = SOURCES[case["subject"]], verdict.outcome
    # Nothing is decided about another kind of traffic.
    if evidence.traffic != "like":
        assert outcome == "INCONCLUSIVE" and not verdict.validated
    if outcome == "INCONCLUSIVE":
        assert verdict.reason in said.sentence
    # Numbers stand where they were validated, and nowhere else.
    assert said.stated == (verdict.validated and outcome != "UNKNOWN")
    assert (said.strength is not None) == said.stated
    if not said.stated:
        assert "ratio" not in said.sentence
        assert not any(words in said.sentence for words in STRENGTHS)
    elif outcome == "SUPPORTS":
        assert "alternative" not in str(said.strength) and "other families" not in str(said.strength)
    elif outcome == "AGAINST":
        assert "for the named" not in str(said.strength) and "for the family" not in str(said.strength)
    # The unknown-source test says one thing.
    if outcome == "UNKNOWN":
        assert said.unknown == "unlike every enrolled source" and "fit none of the enrolled" in said.sentence
    else:
        assert "unlike every" not in said.unknown and "fit none" not in said.sentence
    if case["p"] is None:
        assert said.unknown.startswith("not tested")
    elif COMPATIBLE in said.unknown or BLIND in said.unknown:
        assert case["p"] > 0.05 and evidence.traffic == "like"
        # A test that most unenrolled sources pass is never quoted in the source's favour.
        passing = case.get("passing")
        share = passing and (passing.sibling if passing.family is None else passing.family)
        assert (BLIND in said.unknown) == (share is not None and share > 0.5)
        assert ("was not measured" in said.unknown) == (passing is None)
    # The stop says what the verdict says, or nothing.
    if case["stop"] is None:
        assert said.stop is None
    else:
        assert said.stop is not None
        for given_answer, answer in zip(answers(case["stop"]), answers(said.stop), strict=True):
            assert answer["error_rate"] == given_answer["error_rate"]
            after, what = answer["enough_after"], answer.get("decided", answer.get("named"))
            assert (after is None) == (what is None)
            if after is None:
                continue
            assert (after, what) == (given_answer["enough_after"], what)
            assert verdict.level == "source" and outcome in ("SUPPORTS", "AGAINST")
            if case["claimed"]:
                assert what == ("for the claim" if outcome == "SUPPORTS" else "against the claim")
            else:
                assert what == name
        withheld = outcome in ("UNKNOWN", "INCONCLUSIVE") or verdict.level == "family"
        assert ("withheld" in said.stop) == withheld
        if withheld:
            assert all(answer["enough_after"] is None for answer in answers(said.stop))
    # The sentence answers the question that was asked.
    assert said.sentence.endswith(".") and "  " not in said.sentence
    if case["claimed"]:
        start = {"SUPPORTS": "Yes,", "AGAINST": "No,", "UNKNOWN": "The ", "INCONCLUSIVE": "We cannot say"}[outcome]
        family_alone = (outcome, verdict.level) == ("SUPPORTS", "family")  # no Yes to the claim
        assert said.sentence.startswith("The " if family_alone else start)
        assert (FAMILIES[case["subject"]] if verdict.level == "family" else name) in said.sentence.split(":")[0]
    else:
        assert not said.sentence.startswith(("Yes", "No"))
    if outcome == "AGAINST" and verdict.level == "source":
        assert f"{name} scores highest" not in said.sentence
    if outcome == "INCONCLUSIVE":
        assert "nearest" not in said.sentence
    if outcome == "SUPPORTS" and verdict.level == "source":
        assert "not told apart" not in said.sentence
    # There is always something to do.
    assert said.next_steps and all(step.endswith(".") or "python -m jobs" in step for step in said.next_steps)
    assert ("Read the rest" in said.next_steps[0]) == (not case["complete"])
    assert len(set(said.next_steps)) == len(said.next_steps)
    if evidence.traffic in ("other topic", "other language") and evidence.traces >= 5:
        assert any("enroll" in step for step in said.next_steps)


@settings(max_examples=300, deadline=None)
@given(cases())
def test_no_answer_contradicts_itself(case: dict[str, Any]) -> None:
    verdict = decide(case["evidence"])
    given_now = {key: value for key, value in case.items() if key != "evidence"}
    check(case, verdict, reconcile(verdict, SOURCES, FAMILIES, **given_now))


ALL_WORDS = {
    (
        0.01,
        None,
    ): "The 20 traces fit none of the enrolled sources, a-one included (p = .010). Of those, b-one scores highest.",
    (0.4, 3.0): "Yes, the 20 traces support the claim a-one: about 1,000 times more likely from it than from the other "
    "enrolled sources (log10 ratio 3.00).",
    (0.4, -3.0): "No, the 20 traces speak against a-one: about 1,000 times less likely from it than from the other "
    "enrolled sources (log10 ratio −3.00). b-one scores highest.",
    (0.4, 0.0): "We cannot say whether the 20 traces come from a-one: the evidence is not strong enough either way.",
}


@pytest.mark.parametrize("key", ALL_WORDS, ids=str)
def test_sentences_in_full(key: tuple[float, float | None]) -> None:
    p, ratio = key
    evidence = Evidence(20, True, 0, 0, ratio or 0.0, math.nan, 0.99, 0.99, 0.99, 0.99, p)
    said = reconcile(
        decide(evidence), SOURCES, FAMILIES, subject=0, claimed=True, leader=2, traces=20, traffic=traffic_of("like"),
        p=p, stop=None,
    )  # fmt: skip
    assert said.sentence == ALL_WORDS[key]


def test_a_family_alone_gets_no_yes_and_few_traces_tell_no_siblings_apart() -> None:
    for traces, expected in (
        (20, "The 20 traces support the family A: about 1,000 times more likely from that family than from the other "
         "families (log10 ratio 3.00). Of the family A, the members a-one, a-two are not told apart."),
        (4, "We cannot say whether the 4 traces come from a-one: fewer than 5 traces."),
    ):  # fmt: skip
        evidence = Evidence(traces, True, 0, 0, 0.0, 3.0, 0.5, 0.99, 0.5, 0.99, 0.4)
        said = reconcile(
            decide(evidence), SOURCES, FAMILIES, subject=0, claimed=True, leader=0, traces=traces,
            traffic=traffic_of("like"), p=0.4, stop=None, siblings=SOURCES[:2],
        )  # fmt: skip
        assert said.sentence == expected


OFTEN = " or more in 90 % of resamples; log10 ratio "


@pytest.mark.parametrize(
    ("ratio", "capped", "span", "first", "between"),
    [
        (2.2, True, (1.6, 2.2), "about 160 or more times more", "(40" + OFTEN + "≥ 2.20)"),
        (-2.2, True, (-2.2, -1.0), "about 160 or more times less", "(10" + OFTEN + "≤ −2.20)"),
        (2.2, True, (2.2, 2.2), "at least about 160 times more", "(log10 ratio ≥ 2.20)"),
        (2.2, False, None, "about 160 times more", "(log10 ratio 2.20)"),
    ],
)
def test_a_bound_that_resamples_contradict_is_a_range(
    ratio: float, capped: bool, span: tuple[float, float] | None, first: str, between: str
) -> None:
    share = 0.99 if ratio > 0 else 0.0
    evidence = Evidence(20, True, 0, 0, ratio, math.nan, share, share, share, share, 0.4, capped=capped)
    said = reconcile(
        decide(evidence), SOURCES, FAMILIES, subject=0, claimed=True, leader=2, traces=20, traffic=traffic_of("like"),
        p=0.4, stop=None, span=span,
    )  # fmt: skip
    assert f": {first} likely from it than from the other enrolled sources {between}." in said.sentence


def test_a_source_that_only_the_prior_keeps_ahead_is_not_called_nearest() -> None:
    evidence = Evidence(20, True, 0, 0, -3.0, math.nan, 0.01, 0.01, 0.99, 0.99, 0.4)
    said = reconcile(
        decide(evidence), SOURCES, FAMILIES, subject=0, claimed=True, leader=0, traces=20, traffic=traffic_of("like"),
        p=0.4, stop=None, siblings=("a-one", "a-two"),
    )  # fmt: skip
    assert said.sentence.endswith("(log10 ratio −3.00). Only the stated prior keeps it ahead.")


# The same through the whole of an audit, to the report's page


def enrolment() -> Enrolment:
    probe = LinearProbe(
        np.zeros(4, np.float32), np.ones(4, np.float32), np.zeros((4, 4), np.float32), np.zeros(4, np.float32)
    )
    return Enrolment(
        name="four", reader="reader-paper/tiny/ur", proxy="tiny", view="ur", block="dc-ac", sources=SOURCES,
        families=FAMILIES, heads=(Head(probe, (1,)),), log_prior=np.full(4, -np.log(4)),
        prompts=np.empty(0, np.uint64), folds=np.empty(0, np.int16),
    )  # fmt: skip


ENROLMENT = enrolment()


@st.composite
def audits(draw: st.DrawFn) -> tuple[Scored, str | None, dict[str, Any]]:
    """Traces that lean to a source, strongly or not at all, and statistics of every kind."""
    n, lean = draw(st.integers(1, 12)), draw(st.sampled_from([0.0, 0.3, 2.0, 6.0]))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    logits = rng.normal(0, 0.5, (n, 4))
    logits[:, draw(st.integers(0, 3))] += lean
    logits[:, 1] += draw(st.sampled_from([0.0, lean]))
    rows = (logits - np.log(np.exp(logits).sum(1, keepdims=True))).astype(np.float32)
    scored = Scored(
        rows, np.full(n, 40), (None,) * n, np.ones(4), None, draw(st.booleans()), 1.0, "tiny, float32, cpu",
        traffic_of(draw(st.sampled_from(KINDS) | st.just("like"))),
    )  # fmt: skip
    claimed = draw(st.sampled_from((None, *SOURCES)))
    p, stop = draw(p_values), draw(stops(claimed is not None))
    flags = tuple(flag for flag in FLAGS if draw(st.booleans()) and draw(st.booleans()))
    fitted = Calibration(np.array([1, 5, 12]), np.full(3, 0.8), np.zeros((3, 4)), np.array([500, 300, 200]))
    companions: dict[str, Any] = {
        "unknown_p": None if p is None else lambda _: p,
        "stop": None if stop is None else lambda *_: stop,
        "flags": lambda _: flags,
    }
    if draw(st.booleans() | st.just(True)):
        companions |= {"calibrate": fitted.apply, "per_trace": fitted.per_trace, "log10_bounds": fitted.log10_limits}
        companions["family_log10_bounds"] = lambda k: fitted.log10_limits(k, 3)
    return scored, claimed, companions


def page_of(scored: Scored, findings: Findings, readers: list[dict[str, Any]]) -> str:
    n = len(scored.log_posteriors)
    seen = [Seen(i + 1, 0, trace_hash("p", str(i)), 1, 1, None, None, None) for i in range(n)]
    layout = Layout("t.jsonl", "jsonl", "line", "UTF-8", "utf-8", 10, "0" * 64, columns=Columns(response="response"))
    report = build_report(
        Settings(case="case", question="Who?"), layout, Selection(characters=1_000_000, seen=seen), ENROLMENT, scored,
        findings, stated_prior(ENROLMENT), [next_step([], "file", {})], code_version="test", command="attribute",
        session={"earlier": 0, "last_step": None}, readers=readers,
    )  # fmt: skip
    return write_html(report)


def text_of(page: str) -> str:
    """What a reader of the page sees, without its figure, the table of traces and the data in it."""
    body = page.split("<body>")[1]
    body = re.sub(r"<(svg|template).*?</\1>", " ", body, flags=re.S)
    body = re.sub(r"<h3>Traces</h3>.*?<h3>", "<h3>", body, flags=re.S)
    body = re.sub(r"<h3>How to read the ratio</h3>.*?<h2>", "<h2>", body, flags=re.S)
    return " ".join(html.unescape(re.sub(r"<[^>]+>", " ", body)).split())


@settings(max_examples=50, deadline=None)
@given(audits())
def test_no_report_contradicts_itself(audit: tuple[Scored, str | None, dict[str, Any]]) -> None:
    scored, claimed, given_companions = audit
    found = find(scored, ENROLMENT, claimed, companions=FittedStatistics(**given_companions), orders=20)
    results = results_of(scored, ENROLMENT, found)
    named = found.subject
    evidence = Evidence(
        len(scored.log_posteriors), claimed is not None, named, 0, found.log10_others, math.nan, 0, 0, 0, 0,
        math.nan if found.unknown_p is None else found.unknown_p, found.flags or (), scored.traffic.kind,
        found.calibrated,
    )  # fmt: skip
    stop = given_companions["stop"]
    case = {
        "evidence": evidence, "subject": named, "claimed": claimed is not None, "p": found.unknown_p,
        "stop": None if stop is None else stop(), "complete": scored.complete,
    }  # fmt: skip
    check(case, found.verdict, found.statements)
    stated = found.statements.stated
    numbers = [results["in_words"], *([results["interval"]] if len(scored.tokens) > 1 else [])]
    numbers += [row["probability"] for part in ("candidates", "families", "running") for row in results[part]]
    assert all((number is not None) == stated for number in numbers)
    assert results["traffic"]["kind"] == scored.traffic.kind
    if found.verdict.level != "family":
        assert results["running"][-1]["log10_ratio_others"] == pytest.approx(results["log10_ratio_others"])

    page = page_of(scored, found, [])
    text = text_of(page)
    stated = stated and not too_few({"results": results})  # a page has no numbers of so few traces
    half = " half" * supports_family(results)
    assert f'<strong class="word{half}">{verdict_words(results)}</strong>' in page
    assert answer_sentence({"results": results}) in text
    report = {"results": results, "input": {"name": "t.jsonl"}, "method": {"rule": RULE}}
    steps = steps_of(report)
    # A report's own steps, with the command of one that names none; a No is to be kept as well.
    told = dict.fromkeys([*results["next_steps"], *[KEEP] * (results["verdict"] == "AGAINST")])
    if wavers(report):
        assert "stays below" in str(steps.pop())
    elif found.verdict.outcome != "INCONCLUSIVE" and results["traces"] <= Rule.minimum_traces:
        assert "fewest that an answer takes" in str(steps.pop())
    for step, words in zip(steps, told, strict=True):
        assert step.by_command.replace("t.jsonl", "traces.jsonl").startswith(words.rstrip("."))
    assert all(str(step) in text for step in steps)
    assert ("Ratios and probabilities are not stated" in text) == (not stated)
    ratio = log10_text(results["log10_ratio_others"], is_bounded({"results": results}))
    assert (f": {ratio} ({results['in_words']})" in text) == stated
    if not stated:
        assert not re.search(r"log10 (likelihood )?ratio[^.]*−?\d+\.\d\d\b", text)
        assert "resamples" not in text and not re.search(r"\(?[<>]? ?\.\d{3}\)? ", text.split("Unknown-source")[0])
    assert ("enough after" in text) == bool(found.stop and found.stop["enough_after"])
    if found.verdict.outcome == "UNKNOWN":
        assert COMPATIBLE not in text


@pytest.mark.parametrize("stated", [True, False])
def test_further_readers_state_what_they_may(stated: bool) -> None:
    rows = np.log(np.tile([0.94, 0.02, 0.02, 0.02], (8, 1))).astype(np.float32)
    fitted = Calibration(np.array([1, 12]), np.ones(2), np.zeros((2, 4)), np.array([500, 500]))
    scored = Scored(
        rows, np.full(8, 40), (None,) * 8, np.ones(4), None, True, 1.0, "tiny, float32, cpu", traffic_of("like")
    )
    companions = FittedStatistics(calibrate=fitted.apply, per_trace=fitted.per_trace, log10_bounds=fitted.log10_limits)
    found = find(scored, ENROLMENT, "a-one", companions=companions, orders=20)
    assert found.verdict.outcome == "SUPPORTS"
    row = {
        "enrolment": "second", "enrolment_sha256": "x", "reader": "r", "layers": [1], "sources": 4, "traces": 8,
        "engine": "e", "claimed": None, "verdict": "SUPPORTS" if stated else "INCONCLUSIVE", "subject": "a-one",
        "leader": "a-one", "calibrated": True, "log10_ratio_others": 7.31, "low": 7.1 if stated else None,
        "high": 7.6 if stated else None, "probability": 0.99 if stated else None, "unknown_p": None,
    }  # fmt: skip
    text = text_of(page_of(scored, found, [row]))
    assert ("7.31" in text, "a-one not stated" in text) == (stated, not stated)


def test_findings_follow_the_traffic() -> None:
    """Traces that are clear beyond doubt, of every kind of prompts."""
    rows = np.log(np.tile([0.94, 0.02, 0.02, 0.02], (8, 1))).astype(np.float32)
    fitted = Calibration(np.array([1, 12]), np.ones(2), np.zeros((2, 4)), np.array([500, 500]))
    companions = FittedStatistics(calibrate=fitted.apply, log10_bounds=fitted.log10_limits, unknown_p=lambda _: 0.001)
    like = Scored(
        rows, np.full(8, 40), (None,) * 8, np.ones(4), None, True, 1.0, "tiny, float32, cpu", traffic_of("like")
    )
    assert find(like, ENROLMENT, companions=companions, orders=20).verdict.outcome == "UNKNOWN"
    assert (
        find(like, ENROLMENT, companions=replace(companions, unknown_p=None), orders=20).verdict.outcome == "SUPPORTS"
    )
    for kind in OTHER_TRAFFIC:
        found = find(replace(like, traffic=traffic_of(kind)), ENROLMENT, companions=companions, orders=20)
        assert (found.verdict.outcome, found.verdict.reason) == ("INCONCLUSIVE", OTHER_TRAFFIC[kind])
    assert replace(like, traffic=UNCHECKED).traffic == Scored(*(getattr(like, f) for f in POSITIONAL)).traffic


POSITIONAL = ("log_posteriors", "tokens", "folds", "mean", "fingerprints", "complete", "seconds", "engine")
