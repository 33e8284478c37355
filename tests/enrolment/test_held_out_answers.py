"""Answers to held-out groups: the groups of the evaluation, which of them become cases, and what is kept of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from backend.corpus.release import Records
from backend.enrolment.enrolment import Enrolment, prompt_table
from backend.enrolment.held_out_answers import Answers, Grouping, answered, answers_file, grouping, save_answers
from backend.errors import AtlasError
from backend.evaluations.attribution import attribution_frames
from backend.methods.ensemble import Head
from backend.methods.probe import LinearProbe
from backend.protocol import GROUPING_SEEDS, fold_of_prompts
from backend.traces import Trace
from benchmarks.held_out_cases import OTHER_ENGINE, attributed, cases, drawn, load_answers

SOURCES, PROMPTS, K = ("a", "b", "c"), 25, 2
IDS = [f"p-{number:02}" for number in range(PROMPTS)]
FOLDS = fold_of_prompts(IDS)


@pytest.fixture(scope="module")
def log_posteriors() -> np.ndarray:
    """So uncertain that some groups are attributed wrongly."""
    logits = np.random.default_rng(0).normal(size=(len(SOURCES) * PROMPTS, len(SOURCES)))
    logits[np.arange(len(logits)), np.repeat(np.arange(len(SOURCES)), PROMPTS)] += 0.5
    return (logits - np.log(np.exp(logits).sum(1, keepdims=True))).astype(np.float32)


@pytest.fixture(scope="module")
def enrolment() -> Enrolment:
    probe = LinearProbe(*(np.ones(shape, np.float32) for shape in (4, 4, (4, len(SOURCES)), len(SOURCES))))
    hashes, folds = prompt_table([f"Question {number}?" for number in IDS], FOLDS.tolist())
    heads = tuple(Head(probe, (1,), fold) for fold in range(5))
    prior = np.full(len(SOURCES), -np.log(len(SOURCES)))
    return Enrolment("made", "m/p/ur", "p", "ur", "dc-ac", SOURCES, SOURCES, heads, prior, hashes, folds)


@pytest.fixture(scope="module")
def records() -> Records:
    traces = [Trace(f"Question {number}?", f"{source} says {number}") for source in SOURCES for number in IDS]
    return Records("agent500", list(SOURCES), IDS, traces, [])


@pytest.fixture(scope="module")
def answers(log_posteriors: np.ndarray, enrolment: Enrolment) -> Answers:
    groups = grouping(len(SOURCES), FOLDS, K)
    told = answered(log_posteriors, groups)
    return Answers(enrolment.name, enrolment.sha256, K, GROUPING_SEEDS[0], groups.truth, *told, {"roster": "3-way"})


def test_answers_add_up_to_the_table(log_posteriors: np.ndarray, answers: Answers) -> None:
    metrics = attribution_frames(log_posteriors, SOURCES, SOURCES, FOLDS, [K]).metrics
    row = metrics[metrics["metric"].eq("accuracy") & metrics["seed"].eq(GROUPING_SEEDS[0])].iloc[0]
    assert 0 < answers.right < len(answers.truth) == row["n"]
    assert answers.right / len(answers.truth) == pytest.approx(row["value"])


def test_an_answer_is_the_largest_sum_and_its_lead(log_posteriors: np.ndarray, answers: Answers) -> None:
    groups = grouping(len(SOURCES), FOLDS, K)
    for number, rows in enumerate(groups.rows):
        assert set(FOLDS[rows % PROMPTS]) == {groups.fold[number]}
        assert set(rows // PROMPTS) == {groups.truth[number]}
        sums = log_posteriors[rows].astype(float).sum(0) + (K - 1) * np.log(len(SOURCES))
        second, first = sorted(sums)[-2:]
        assert answers.source[number] == sums.argmax()
        assert (answers.score[number], answers.lead[number]) == pytest.approx((first, first - second), abs=1e-5)


def test_cases_are_drawn_over_all_folds_and_sources() -> None:
    groups = grouping(40, fold_of_prompts([f"{number:03}" for number in range(100)]), 5)
    for count in (1, 5, 20, 40, 90):
        some = drawn(groups, count)
        assert len(set(some)) == count
        each = np.bincount(groups.fold[some], minlength=5)
        assert each.max() - each.min() <= 1
        assert len(set(groups.truth[some])) == min(count, 40)
        assert (some == drawn(groups, count)).all()
    assert (drawn(groups, 20, seed=1) != drawn(groups, 20)).any()
    for count in (0, len(groups.truth) + 1):
        with pytest.raises(AtlasError, match="cases are requested"):
            drawn(groups, count)


def test_a_case_holds_its_traces(answers: Answers, enrolment: Enrolment, records: Records) -> None:
    held = cases(answers, enrolment, records, 10)
    assert len(held) == 10
    for case in held:
        assert all(trace.response.startswith(f"{case.source} says") for trace in case.traces)
        assert len(set(enrolment.folds_of([trace.prompt for trace in case.traces]))) == 1
    kept = {
        (SOURCES[t], SOURCES[s], score)
        for t, s, score in zip(answers.truth, answers.source, answers.score, strict=True)
    }
    assert {(case.source, case.answer, case.score) for case in held} <= kept

    case = held[0]
    other = next(source for source in SOURCES if source != case.answer)
    rows = [{"source": other, "score": case.score - 3}, {"source": case.answer, "score": case.score + OTHER_ENGINE / 2}]
    report = {"results": {"candidates": rows}}
    assert attributed(report)["source"] == case.answer and case.as_evaluated(report)
    assert not replace(case, score=case.score + 2 * OTHER_ENGINE).as_evaluated(report)
    assert not replace(case, answer=other).as_evaluated(report)


def test_answers_of_something_else_are_refused(answers: Answers, enrolment: Enrolment, records: Records) -> None:
    for wrong in (replace(answers, sha256="0" * 64), replace(answers, k=K + 1)):
        with pytest.raises(AtlasError, match="not of the enrolment 'made'"):
            cases(wrong, enrolment, records, 1)
    reversed_sources = replace(records, sources=list(SOURCES[::-1]))
    moved = replace(enrolment, folds=np.roll(enrolment.folds, 1))
    with pytest.raises(AtlasError, match="not of these records"):
        cases(answers, enrolment, reversed_sources, 1)
    with pytest.raises(AtlasError, match="not of these records"):
        cases(replace(answers, sha256=moved.sha256), moved, records, 1)


def test_what_is_written_is_read_again(answers: Answers, tmp_path: Path) -> None:
    path = answers_file("made", tmp_path)
    with pytest.raises(AtlasError, match="python -m jobs cases --enrolment made"):
        load_answers("made", tmp_path)
    save_answers(answers, path)
    again = load_answers("made", tmp_path)
    assert (again.enrolment, again.sha256, again.k, again.seed, again.facts) == (
        answers.enrolment, answers.sha256, answers.k, answers.seed, answers.facts,
    )  # fmt: skip
    for part in ("truth", "source"):
        assert (getattr(again, part) == getattr(answers, part)).all()
    for part in ("score", "lead"):
        assert np.abs(getattr(again, part) - getattr(answers, part)).max() <= 5e-4
    for damaged in ("", "[]", "{}", path.read_text("utf-8").replace('"truth": [', '"truth": ["x", ')):
        path.write_text(damaged, "utf-8")
        with pytest.raises(AtlasError, match="is damaged"):
            load_answers("made", tmp_path)
    with pytest.raises(AtlasError, match="cannot be written"):
        save_answers(answers, path / "below" / "a file.json")


def test_a_fold_without_enough_prompts_gives_no_group() -> None:
    assert isinstance(found := grouping(2, FOLDS, 6), Grouping)
    assert found.rows.shape == (0, 6)
