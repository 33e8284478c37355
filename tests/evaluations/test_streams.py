"""Watched streams of invented responses: false alarms are rare, changes are seen, and rows fit the store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.special import log_softmax

from backend.evaluations import streams
from backend.store.database import open_work
from backend.store.writers import replace_rows, write_reader

FAMILIES = ("a", "a", "b", "b", "c", "c")


def log_posteriors(prompts: int = 60) -> np.ndarray:
    """Of sources that are told apart, siblings less well than others."""
    truth = np.repeat(np.arange(6), prompts)
    scores = np.random.default_rng(0).normal(size=(6 * prompts, 6))
    scores[np.arange(len(truth)), truth] += 3.0
    scores[np.arange(len(truth)), truth ^ 1] += 1.5
    return log_softmax(scores, axis=1)


def test_false_alarms_are_rare_and_changes_are_seen(tmp_path: Path) -> None:
    said: list[str] = []
    frame = streams.measure(log_posteriors(), FAMILIES, streams=60, traces=400, progress=said.append)
    assert said == ["resampled", "parted", *streams.CHANGES]
    value = frame.set_index(["scenario", "metric", "level"])["value"]
    for null in ("resampled", "parted"):
        assert value[null, "alarms", 0.01] <= value[null, "alarms", 0.05] <= 0.15
    assert set(frame[frame["scenario"] == "parted"]["k"]) == {30}
    for change in streams.CHANGES:
        assert value[change, "alarms", 0.05] >= value[change, "alarms", 0.01] > 0.9
        assert value[change, "delay_traces", 0.05] <= value[change, "delay_traces", 0.01]
    assert value["family", "delay_traces", 0.01] <= value["sibling", "delay_traces", 0.01] < 100
    assert value["family", "delay_traces", 0.01] < value["mixture", "delay_traces", 0.01]
    again = streams.measure(log_posteriors(), FAMILIES, streams=60, traces=400)
    assert again.equals(frame)
    with open_work(tmp_path / "work.duckdb") as connection:
        reader = write_reader(connection, method="ngram-word", name="Words")
        place = {"reader": reader, "roster": "100-way", "condition": "clean", "part": "drift"}
        assert replace_rows(connection, "audit_validation", frame, place | {"statistic": "e-process"}, "b") == len(
            frame
        )


@pytest.mark.parametrize(("change", "expected"), [(False, {"alarms"}), (True, {"alarms", "early", "delay_traces"})])
def test_a_stream_without_an_alarm_counts_as_its_end(change: bool, expected: set[str]) -> None:
    log_e = np.zeros((3, 300))
    log_e[0, 250:] = 10.0
    found = {one["metric"]: one["value"] for one in streams._measured(log_e, 0.01, change)}
    assert expected <= set(found)
    assert found["alarms"] == pytest.approx(1 / 3)
    if change:
        assert (found["early"], found["delay_traces"], found["delay90_traces"]) == (0.0, 100.0, 100.0)
