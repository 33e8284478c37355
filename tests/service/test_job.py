"""Evidence while it comes in: whose it is, and that the whole curve is about one source."""

from __future__ import annotations

import numpy as np
import pytest

from atlas.api.openapi import document
from backend.inference.likelihood_ratios import log10_against_others
from backend.service.job import POINTS, Point, Running, merge_points

SOURCES = ("a", "b", "c")
EVEN = np.log(np.full(3, 1 / 3))
FOR_A, FOR_B = np.log([0.6, 0.3, 0.1]), np.log([0.1, 0.8, 0.1])


def added(running: Running, *batches: np.ndarray) -> list[Point]:
    points: tuple[Point, ...] = ()
    for batch in batches:
        points = merge_points(points, running.add(batch))
    return list(points)


def expected(rows: np.ndarray, subject: int, stated: np.ndarray) -> np.ndarray:
    return log10_against_others(np.cumsum(rows - EVEN, axis=0), subject, stated)


def test_when_another_source_leads_the_earlier_points_are_made_again_for_it() -> None:
    running, first, second = Running(SOURCES, EVEN, EVEN, None), np.tile(FOR_A, (3, 1)), np.tile(FOR_B, (4, 1))
    points = running.add(first)
    assert {point.subject for point in points} == {"a"}
    points = [*merge_points(points, running.add(second))]
    assert [point.traces for point in points] == list(range(1, 8))
    assert {point.subject for point in points} == {"b"}
    ratios = expected(np.concatenate([first, second]), 1, EVEN)
    np.testing.assert_allclose([point.log10_sum for point in points], ratios)
    assert running.nearest() == ("b", "a", "c")
    assert [point.leader for point in points] == ["a"] * 3 + ["a", "b", "b", "b"]


def test_a_batch_under_the_same_leader_brings_its_own_points_alone() -> None:
    running = Running(SOURCES, EVEN, EVEN, None)
    assert len(running.add(np.tile(FOR_A, (3, 1)))) == 3
    assert [point.traces for point in running.add(np.tile(FOR_A, (2, 1)))] == [4, 5]


def test_the_stated_prior_has_a_say_in_whom_the_evidence_is_about() -> None:
    """Two traces speak 2 : 1 each for 'a' against 'b'; the prior speaks 8 : 1 for 'b'."""
    stated = np.log([0.1, 0.8, 0.1])
    points = Running(SOURCES, EVEN, stated, None).add(np.tile(FOR_A, (2, 1)))
    assert [(point.subject, point.leader) for point in points] == [("b", "b")] * 2
    assert points[-1].log10_sum == pytest.approx(np.log10(0.09 / (0.36 / 2 + 0.01 / 2)))


def test_a_claim_stays_the_subject() -> None:
    points = added(Running(SOURCES, EVEN, EVEN, 2), np.tile(FOR_A, (3, 1)), np.tile(FOR_B, (3, 1)))
    assert [(point.traces, point.subject) for point in points] == [(k, "c") for k in range(1, 7)]


def test_many_traces_keep_a_point_a_batch_also_for_another_leader() -> None:
    first, later = np.tile(FOR_A, (POINTS, 1)), np.tile(FOR_B, (500, 1))
    points = added(Running(SOURCES, EVEN, EVEN, None), first, later[:40], later[40:])
    assert [point.traces for point in points] == [*range(1, POINTS + 1), POINTS + 40, POINTS + 500]
    assert {point.subject for point in points} == {"b"}
    ratios = expected(np.concatenate([first, later]), 1, EVEN)
    picked = [point.traces - 1 for point in points]
    np.testing.assert_allclose([point.log10_sum for point in points], ratios[picked])


def test_the_document_names_the_subject_of_a_point() -> None:
    point = document()["components"]["schemas"]["Job"]["properties"]["evidence"]["items"]
    assert set(point["properties"]) == set(Point.__dataclass_fields__)
    assert "subject" in point["required"]
