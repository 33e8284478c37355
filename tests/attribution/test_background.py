"""Unlabelled traffic from its file to the report and back: what it changes, what is checked, what is refused."""

from __future__ import annotations

import argparse
import copy
import io
import itertools
import json
import zlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from atlas.pages.attribute.verdict import verdict as page
from backend.attribution.background import background_sentences, layout_of
from backend.attribution.report_page import write_html
from backend.attribution.run import AuditResult, audit
from backend.attribution.scoring import Scored
from backend.attribution.settings import Settings, command_of, settings_of
from backend.attribution.verify import alterations, compared, selection_for
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.fit import with_background
from backend.errors import AtlasError
from backend.inference.domain_shift import UNCHECKED, PromptReference, PromptScores
from backend.inference.verdict import FAR, Evidence, decide
from backend.intake import COMMAND_LINE, Columns, inspect
from backend.protocol import fold_of_prompts
from backend.traces import Trace
from jobs import attribute
from tests.attribution.test_verify import ENGINE, ENROLMENT, OTHER, SOURCES, D, Invented, sealed

SHIFT = np.array([4.0, 0.0, -1.0, -1.0])  # of all logits on this kind of traffic
DISHES = ("soup", "bread", "cake", "rice", "beans", "salad", "pie", "stew", "noodles", "curry", "tart", "roast")


def logits_of(text: str) -> np.ndarray:
    """Of a response that says which source wrote it."""
    rng, source = np.random.default_rng(zlib.crc32(text.encode())), int(text.split()[1])
    return np.asarray(rng.normal(0, 0.7, 4) + 3.0 * np.eye(4)[source] + SHIFT)


def trace(source: int, number: int, prompt: str | None = None) -> dict[str, str]:
    dish = DISHES[number % len(DISHES)]
    question = prompt or f"How do I cook a good {dish} for {number % 7 + 2} people with what is in the kitchen?"
    return {"prompt": question, "response": f"source {source} writes text number {number}"}


def lines(traces: Iterable[dict[str, str]]) -> bytes:
    return "\n".join(json.dumps(one) for one in traces).encode()


TRACES = [trace(1, 1_000 + i) for i in range(12)]
POOL = [trace(i % 4, i) for i in range(240)]


def measured() -> Enrolment:
    """With the statistics of balanced scores, from labelled responses of the same kind."""
    rows = np.stack([logits_of(trace(c, 5_000 + i)["response"]) for c in range(4) for i in range(400)])
    scores = rows - np.log(np.exp(rows).sum(1, keepdims=True))
    folds = fold_of_prompts([f"{i:03d}" for i in range(400)])
    families = list(ENROLMENT.families)
    asked = [trace(0, i)["prompt"] for i in range(400)]
    return replace(ENROLMENT, attachments=with_background(ENROLMENT.attachments, scores, asked, folds, families))


class Cooks(Invented):
    """Scores of such traces; prompts are judged by the reference that it is given."""

    def score(self, traces: Iterable[Trace], reference: PromptReference | None = None, **_: Any) -> Scored:
        read = list(itertools.islice(traces, self._most))
        logits = np.stack([logits_of(one.response) + self._noise * (len(one.response) % 2) for one in read])
        scores = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        traffic = UNCHECKED
        if reference is not None:
            traffic = reference.judge(PromptScores.joined([reference.score([one.prompt for one in read])]))
        return Scored(
            scores.astype(np.float32), np.full(len(read), 200), (None,) * len(read), np.ones(2 * D), None,
            self._most is None, 1.0, self._engine, traffic,
        )  # fmt: skip


SETTINGS = Settings(enrolment="invented", orders=20, background="pool.jsonl")


def run(
    enrolment: Enrolment, pool: bytes | None, traces: bytes = b"", settings: Settings = SETTINGS, **how: Any
) -> AuditResult:
    content = traces or lines(TRACES)
    selection = how.pop("selection", None)
    layout = inspect(io.BytesIO(content), "t.jsonl", Columns(), COMMAND_LINE)
    background = None
    if pool is not None:
        background = io.BytesIO(pool), layout_of(io.BytesIO(pool), "pool.jsonl", settings, COMMAND_LINE)
    return audit(  # type: ignore[arg-type]
        io.BytesIO(content), layout, Cooks(enrolment, **how), settings, selection, version="v", command="attribute",
        background=background,
    )  # fmt: skip


@pytest.fixture(scope="module")
def enrolment() -> Enrolment:
    return measured()


@pytest.fixture(scope="module")
def result(enrolment: Enrolment) -> AuditResult:
    return run(enrolment, lines(POOL))


def test_traffic_of_the_same_kind_leads_back_to_the_source(enrolment: Enrolment, result: AuditResult) -> None:
    plain = run(enrolment, None, settings=replace(SETTINGS, background=None)).report
    assert (plain["results"]["leader"], plain["results"]["verdict"]) == ("a-one", "INCONCLUSIVE")
    report = result.report
    assert (report["results"]["verdict"], report["results"]["subject"]) == ("SUPPORTS", SOURCES[1])
    assert report["results"]["traffic"]["kind"] == "like" and report["results"]["stated"]
    assert report["background"]["leader_without"] == "a-one" and report["background"]["responses"] == 240
    assert 3 < report["background"]["effective_sources"] <= 4
    assert report["background"]["largest_share"] < 0.4
    assert report["method"]["condition"] == report["validation"]["condition"] == "background"
    assert report["validation"]["accuracy"] > 0.9 and report["results"]["stop"] is None
    assert "without unlabelled traffic" in report["results"]["mixture"]["reason"]
    sentences = " ".join(background_sentences(report))
    assert "Without them a-one would lead in place of two." in sentences and "assumes many sources" in sentences
    assert alterations(report) == []


def test_report_and_page_say_what_was_assumed_and_checked(result: AuditResult) -> None:
    html, shown = write_html(result.report).replace("\u00a0", " "), str(page(result.report)).replace("\\xa0", " ")
    for sentence in background_sentences(result.report):
        assert sentence.split("(")[0] in html and sentence in shown
    assert result.report["background"]["sha256"] in html and "Unlabelled traffic" in html
    assert "like the traffic that was added" in shown and "fitted without added traffic" in shown
    assert not background_sentences({"results": {}})


def test_traces_in_question_do_not_count(enrolment: Enrolment) -> None:
    """They are left out and counted, as are responses that repeat earlier ones; too few others are refused."""
    report = run(enrolment, lines([*POOL, *TRACES, POOL[0]])).report
    assert [report["background"][name] for name in ("responses", "repeated", "questioned")] == [240, 1, 12]
    assert "12 are traces in question" in " ".join(background_sentences(report))
    with pytest.raises(AtlasError, match=r"has 190 responses that count \(12 are traces in question\), and 200"):
        run(enrolment, lines([*POOL[:190], *TRACES]))


@pytest.mark.parametrize("share", [1.0, 0.8])
def test_a_pool_of_one_source_is_refused(enrolment: Enrolment, share: float) -> None:
    pool = [trace(2 if i < share * 300 else i % 4, i) for i in range(300)]
    with pytest.raises(AtlasError, match="mostly from one source or a few"):
        run(enrolment, lines(pool))


def test_without_statistics_of_that_condition_nothing_is_decided() -> None:
    """Scores are balanced all the same."""
    report = run(ENROLMENT, lines(POOL)).report
    results = report["results"]
    assert (results["verdict"], results["leader"], results["stated"]) == ("INCONCLUSIVE", "two", False)
    assert "no error rates of scores that unlabelled traffic of this kind balanced" in results["sentence"]
    first, second, *_ = results["next_steps"]  # one comparison comes before work for days
    assert "compare both sets" in first and "have the candidates enrolled on prompts of this kind" in second
    assert not results["calibrated"]
    assert report["validation"] is None and report["background"]["largest_share"] is None
    sentences = " ".join(background_sentences(report))
    assert "cannot be checked with this enrolment" in sentences and "nothing is decided" in sentences


def test_error_rates_hold_for_the_traffic_that_they_were_measured_on(enrolment: Enrolment) -> None:
    """A pool of another kind, and traces like it: sums are balanced, the leader is named, nothing is decided."""
    tasks = ("Prove that", "Show why", "Explain whether", "Say how we know that")

    def moved(one: dict[str, str], number: int) -> dict[str, str]:
        return one | {"prompt": f"{tasks[number % 4]} the sum of {number % 23} even integers is even."}

    pool = [moved(one, i) for i, one in enumerate(POOL)]
    report = run(enrolment, lines(pool), lines(moved(one, 3 * i + 1) for i, one in enumerate(TRACES))).report
    assert report["background"]["measured"] is False and report["background"]["largest_share"] < 0.4
    results = report["results"]
    assert (results["verdict"], results["leader"], results["stated"]) == ("INCONCLUSIVE", "two", False)
    assert "unlabelled traffic of this kind" in results["sentence"]


@pytest.mark.parametrize(
    "prompt", ["Prove that the sum of two even integers is even.", "Wie kocht man eine gute Suppe für sechs Personen?"]
)
def test_traces_of_another_kind_than_the_pool_are_not_decided(enrolment: Enrolment, prompt: str) -> None:
    asked = [trace(1, 2_000 + i, f"{prompt} ({i})") for i in range(12)]
    results = run(enrolment, lines(POOL), lines(asked)).report["results"]
    assert (results["verdict"], results["traffic"]["kind"]) == ("INCONCLUSIVE", "unlike pool")
    assert "another kind of traffic than the unlabelled responses" in results["sentence"]
    assert "same kind as the traces" in results["next_steps"][0]


def test_with_a_pool_no_source_is_called_unknown() -> None:
    """On other traffic that test rejects many enrolled sources, and so it only prevents an answer."""
    evidence = Evidence(20, False, 0, 0, 3.0, 3.0, 0.99, 0.99, 0.99, 0.99, p_unknown=0.01)
    assert decide(evidence).outcome == "UNKNOWN"
    verdict = decide(replace(evidence, balanced=True))
    assert (verdict.outcome, verdict.reason, verdict.validated) == ("INCONCLUSIVE", FAR, False)
    assert decide(replace(evidence, balanced=True, p_unknown=0.2)).outcome == "SUPPORTS"


def test_a_pool_without_prompts_is_refused(enrolment: Enrolment) -> None:
    with pytest.raises(AtlasError, match="fewer than 10 different prompts"):
        run(enrolment, lines({"response": one["response"]} for one in POOL))


def again(report: Any, enrolment: Enrolment, pool: bytes, **how: Any) -> tuple[str, ...]:
    settings = settings_of(report, enrolment.name)
    second = run(enrolment, pool, settings=settings, selection=selection_for(report, report["input"]["sha256"],
        COMMAND_LINE), **how)  # fmt: skip
    return compared(report, second.report, enrolment, second.scored.mean, second.background).found


def test_a_report_is_computed_again_with_the_same_pool(enrolment: Enrolment, result: AuditResult) -> None:
    assert settings_of(result.report, enrolment.name).background == "pool.jsonl"
    assert again(result.report, enrolment, lines(POOL)) == ()
    other = " ".join(again(result.report, enrolment, lines(POOL[:230])))
    assert "(background, sha256)" in other and "(background, responses)" in other
    with pytest.raises(AtlasError, match="unlabelled traffic that the scores are balanced by is missing"):
        run(enrolment, None)


def test_another_engine_may_find_slightly_other_numbers(enrolment: Enrolment) -> None:
    report = run(enrolment, lines(POOL), engine=OTHER, noise=1e-3).report
    assert report["method"]["engine"] != ENGINE
    assert again(report, enrolment, lines(POOL)) == ()


def test_numbers_of_the_pool_cannot_be_forged(enrolment: Enrolment, result: AuditResult) -> None:
    for name, value in (("responses", 900), ("largest_share", 0.01), ("leader_without", "two"), ("measured", False)):
        forged = copy.deepcopy(result.report)
        forged["background"][name] = value
        assert again(sealed(forged), enrolment, lines(POOL)), name


def test_the_command_names_the_pool(tmp_path: Path) -> None:
    assert "--background pool.jsonl" in command_of("t.jsonl", "invented", SETTINGS)
    parser = argparse.ArgumentParser()
    attribute.configure(parser)
    assert parser.parse_args(["t.jsonl", "--background", "pool.jsonl"]).background == Path("pool.jsonl")
