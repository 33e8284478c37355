"""One source, a mixture, or cannot tell: what a report says, and every reason why it says nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from backend.attribution.decision import find, fitted_statistics_of
from backend.attribution.mixture import CUT, NO_SINGLE_SOURCE
from backend.attribution.scoring import Scored
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.fit import attached
from backend.errors import AtlasError
from backend.inference.calibration import Calibration
from backend.inference.domain_shift import Traffic
from backend.inference.mixture import fit_mixture
from backend.inference.unknown_source import fit_unknown

SOURCES = tuple("abcdef")
PROMPTS = 100


def posteriors(truth: np.ndarray, seed: int) -> np.ndarray:
    """Exact log-posteriors (n, 6) of points two standard deviations from the origin, an axis a source."""
    points = np.random.default_rng(seed).normal(size=(len(truth), 6)) + 2 * np.eye(6)[truth]
    return 2 * points - np.logaddexp.reduce(2 * points, axis=1, keepdims=True)


@pytest.fixture(scope="module")
def enrolment() -> Enrolment:
    labels, blocks = np.repeat(np.arange(6), PROMPTS), np.tile(np.arange(PROMPTS) % 5, 6)
    scores = posteriors(labels, seed=1)
    calibration = Calibration(np.array([1, 10, 100]), np.ones(3), np.zeros((3, 6)), np.array([600, 60, 30]))
    unknown = fit_unknown(scores, labels, blocks, budgets=(1, 10), draws=50)
    mixture = fit_mixture(scores, budgets=(20, 50))
    return Enrolment(
        name="x", reader="reader-paper/tiny/ur", proxy="tiny", view="ur", block="dc-ac", sources=SOURCES,
        families=tuple("xxyyzz"), heads=(), log_prior=np.full(6, -np.log(6)), prompts=np.empty(0, np.uint64),
        folds=np.empty(0, np.int16), facts={"roster": "100-way"},
        attachments=attached({"calibration": calibration, "unknown": unknown, "mixture": mixture}),
    )  # fmt: skip


def scored(truth: list[int], seed: int = 2, kind: Any = "like") -> Scored:
    n = len(truth)
    rows = posteriors(np.array(truth), seed).astype(np.float32)
    return Scored(
        rows, np.full(n, 200), (None,) * n, np.zeros(4), None, True, 1.0, "test", traffic=Traffic(kind, 0.5, n)
    )


def answer(enrolment: Enrolment, traces: Scored, claimed: str | None = None, without: str = "unknown") -> Any:
    rest = {name: part for name, part in enrolment.attachments.items() if not name.startswith(without)}
    fitting = replace(enrolment, attachments=rest)
    return find(traces, fitting, claimed, companions=fitted_statistics_of(fitting), orders=5).mixture


def test_one_source_with_the_share_that_would_have_been_seen(enrolment: Enrolment) -> None:
    found = answer(enrolment, scored([0] * 50), "a")
    assert (found["outcome"], found["source"], found["reason"]) == ("one source", "a", None)
    assert found["sentence"].startswith("a alone can have written the 50 traces: a share of ")
    assert found["detectable"] <= 0.2 and f"{100 * found['detectable']:.0f} %" in found["sentence"]
    assert found["shares"][0]["source"] == "a" and len(found["shares"]) == 6


def test_a_mixture_with_its_shares(enrolment: Enrolment) -> None:
    found = answer(enrolment, scored([0] * 30 + [3] * 20), "a")
    assert found["outcome"] == "mixture" and found["p"] <= 0.05 and found["p_any"] <= 0.05
    assert [row["source"] for row in found["shares"][:2]] == ["a", "d"]
    for row, share in zip(found["shares"], (0.6, 0.4), strict=False):
        assert row["low"] <= share <= row["high"]
    assert found["sentence"].startswith("No single enrolled source wrote the 50 traces (p = .0")
    assert sum(row["share"] for row in found["shares"]) == pytest.approx(1)


def test_another_source_than_the_claimed_one(enrolment: Enrolment) -> None:
    found = answer(enrolment, scored([4] * 50), "a")
    assert (found["outcome"], found["subject"], found["source"]) == ("one source", "a", "e")
    assert found["sentence"].startswith("Not all of them come from a (p = .005). e alone can have written")


def test_of_many_traces_so_many_count_as_were_simulated(enrolment: Enrolment) -> None:
    found = answer(enrolment, scored([0] * 400), "a")
    assert (found["traces"], found["looked"]) == (400, 50)
    assert "400 traces (50 of them, evenly drawn, count here)" in found["sentence"]


@pytest.mark.parametrize(
    ("traces", "reason"),
    [
        (scored([0]), "fewer than 20 traces"),
        (scored([0] * 19), "fewer than 20 traces"),
        (scored([0] * 50, kind="other topic"), "on other topics"),
        (scored([0] * 50, kind="no prompts"), "no prompts were given"),
    ],
)
def test_nothing_is_stated_where_no_verdict_is(enrolment: Enrolment, traces: Scored, reason: str) -> None:
    found = answer(enrolment, traces)
    assert found["outcome"] == "cannot tell" and found["shares"] is None
    assert reason in found["reason"] and found["reason"] in found["sentence"]


def test_an_unknown_source_is_no_mixture(enrolment: Enrolment) -> None:
    stranger = scored([0] * 50)
    even = np.full((50, 6), -np.log(6)) + 0.01 * np.random.default_rng(3).normal(size=(50, 6))
    found = answer(enrolment, replace(stranger, log_posteriors=even.astype(np.float32)), without="nothing")
    assert found["reason"] == NO_SINGLE_SOURCE


def test_cut_responses_have_no_reference(enrolment: Enrolment) -> None:
    cut = {f"calibration-t64.{n.partition('.')[2]}": a for n, a in enrolment.attachments.items() if "calibration" in n}
    fitting = replace(enrolment, attachments={**enrolment.attachments, **cut})
    found = answer(fitting, replace(scored([0] * 50), tokens=np.full(50, 64)))
    assert found["reason"] == CUT


def test_an_enrolment_of_before_names_the_command_that_makes_it_again(enrolment: Enrolment) -> None:
    found = answer(enrolment, scored([0] * 50), without="mixture")
    assert "python -m jobs enroll --roster 100-way" in found["sentence"]
    for facts, command in (({"roster": "mine"}, "LABELLED --name NAME"), ({}, "--sample")):
        found = answer(replace(enrolment, facts=facts), scored([0] * 50), without="mixture")
        assert f"python -m jobs enroll {command}." in found["sentence"]


def test_a_damaged_reference_is_refused(enrolment: Enrolment) -> None:
    damaged = {**enrolment.attachments, "mixture.margins": np.zeros(3)}
    with pytest.raises(AtlasError, match="is damaged"):
        fitted_statistics_of(replace(enrolment, attachments=damaged))
