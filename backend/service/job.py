"""A job at a moment, and its running evidence (paper, Stage 2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from backend.inference.likelihood_ratios import log10_against_others

Doubles = npt.NDArray[np.float64]
POINTS = 200  # traces up to which every trace gives a point; later every batch gives one
SHORT = 200  # traces up to which a job goes before longer ones, and between two batches of one
ENDED = ("done", "cancelled", "failed")


@dataclass(frozen=True)
class Point:
    """Evidence after some traces, in the order of arrival."""

    traces: int
    subject: str  # the claimed source, else the one that leads after the latest batch, under the stated prior
    log10_sum: float  # plain sum of log10 ratios against the others: uncalibrated, so no likelihood ratio
    leader: str  # most probable source after these traces, under the stated prior


@dataclass(frozen=True)
class Snapshot:
    """A job at a moment; how probable the nearest sources are stands in the report, if it may be stated."""

    job: str
    enrolment: str
    total: int  # traces that will be scored
    claimed: str | None = None
    further_total: int = 0  # traces that further readers will score
    state: str = "queued"  # queued, running, done, cancelled, failed
    waiting: int = 0  # jobs in front of it
    done: int = 0  # traces that are scored
    further: int = 0  # traces that further readers have scored
    seconds: float = 0.0  # since scoring began
    nearest: tuple[str, ...] = ()  # sources by the plain sum so far; empty before the first batch
    points: tuple[Point, ...] = ()
    reported: bool = False  # whether there is a report; a job that was cancelled has one when a batch was done
    problem: str | None = None  # why it failed, in a sentence
    remedy: str | None = None
    at_fault: str | None = None  # 'server' where the traces are not to blame: weights are missing, or something broke

    @property
    def ended(self) -> bool:
        """Whether nothing changes any more."""
        return self.state in ENDED


class Running:
    """Sums up evidence a batch at a time, under the priors of the enrolment and of the question, each (C,)."""

    def __init__(self, sources: Sequence[str], log_prior: Doubles, stated: Doubles, claimed: int | None) -> None:
        self._sources = sources
        self._log_prior = log_prior
        self._stated = stated
        self._claimed = claimed
        self._likelihood: Doubles = np.zeros(len(sources))
        self._traces = 0
        self._subject = claimed
        self._batches: list[tuple[range, Doubles]] = []

    def add(self, log_posteriors: npt.NDArray[np.floating]) -> list[Point]:
        """Evidence after every trace of a batch (m, C), or after the last one where there are many.

        Where another source leads than after the batch before, and none is claimed, all points are computed for it.
        """
        along = self._likelihood + np.cumsum(log_posteriors - self._log_prior, axis=0, dtype=np.float64)
        self._likelihood = along[-1].copy()
        first, self._traces = self._traces, self._traces + len(along)
        numbers = range(first + 1, self._traces + 1)
        if self._traces > POINTS:
            numbers, along = numbers[-1:], along[-1:].copy()
        if self._claimed is not None:
            return self._points(self._claimed, numbers, along)
        self._batches.append((numbers, along))
        before, self._subject = self._subject, int((self._likelihood + self._stated).argmax())
        again = self._batches if self._subject != before else self._batches[-1:]
        return [point for batch in again for point in self._points(self._subject, *batch)]

    def _points(self, subject: int, numbers: range, along: Doubles) -> list[Point]:
        """Of so many traces each, with their sums (m, C)."""
        sums = log10_against_others(along, subject, self._stated).tolist()
        leaders = (along + self._stated).argmax(1).tolist()
        name, sources = self._sources[subject], self._sources
        return [Point(k, name, total, sources[one]) for k, total, one in zip(numbers, sums, leaders, strict=True)]

    def nearest(self) -> tuple[str, ...]:
        """Sources by what has been summed up, the nearest first."""
        return tuple(self._sources[i] for i in np.argsort(-(self._likelihood + self._stated), kind="stable"))


def merge_points(earlier: Sequence[Point], points: Sequence[Point]) -> tuple[Point, ...]:
    """Points so far with those of a batch, which replace those of the same traces."""
    return (*(point for point in earlier if not points or point.traces < points[0].traces), *points)
