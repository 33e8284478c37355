"""What an enrolment brings along: how far its stop looks, and what its families bear."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from atlas.pages.attribute import verdict as page
from backend.attribution.decision import find, fitted_statistics_of
from backend.attribution.scoring import Scored
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.fit import attached
from backend.inference.calibration import Calibration
from backend.inference.domain_shift import Traffic, fit_domain
from backend.inference.sequential_stop import StopRule

SOURCES, FAMILIES = tuple("abcdefgh"), tuple("xxyyyyyy")
CALIBRATION = Calibration(np.array([1, 5, 10]), np.ones(3), np.zeros((3, 8)), np.array([400, 80, 40]))


def enrolment(rule: StopRule | None = None, calibration: Calibration | None = CALIBRATION) -> Enrolment:
    parts = {name: part for name, part in (("stop", rule), ("calibration", calibration)) if part is not None}
    return Enrolment(
        name="x", reader="reader-paper/tiny/ur", proxy="tiny", view="ur", block="dc-ac", sources=SOURCES,
        families=FAMILIES, heads=(), log_prior=np.full(8, -np.log(8)), prompts=np.empty(0, np.uint64),
        folds=np.empty(0, np.int16), attachments=attached(parts),
    )  # fmt: skip


def scored(rows: np.ndarray) -> Scored:
    n = len(rows)
    return Scored(
        rows.astype(np.float32), np.full(n, 200), (None,) * n, np.zeros(4), None, True, 1.0, "test",
        traffic=Traffic("like", 0.5, n),
    )  # fmt: skip


def quiet_then_clear(quiet: int, clear: int) -> Scored:
    """Traces that say nothing, and then some that say 'a'."""
    even, sure = np.full(8, 1 / 8), np.r_[0.93, np.full(7, 0.01)]
    return scored(np.log(np.concatenate([np.tile(even, (quiet, 1)), np.tile(sure, (clear, 1))])))


@pytest.mark.parametrize(("traces", "looks"), [(12, 12), (None, 10)])
def test_the_stop_looks_no_further_than_the_sessions_that_it_was_fitted_on(traces: int | None, looks: int) -> None:
    """Without their length in the file: than the largest validated budget."""
    companions = fitted_statistics_of(enrolment(StopRule(0.05, 1.0, 1.0, 1.0, traces=traces)))
    assert companions.stop is not None and companions.flags is not None
    early, late = quiet_then_clear(looks - 1, 30), quiet_then_clear(looks, 30)
    for claimed in (None, 0):
        told = companions.stop(early.log_posteriors, claimed)
        assert (told["enough_after"], told["looked"]) == (looks, looks)
        assert companions.stop(late.log_posteriors, claimed)["enough_after"] is None
        whole = companions.stop(early.log_posteriors[:looks], claimed)
        assert whole["enough_after"] == looks and "looked" not in whole
    assert not any("stop" in flag for flag in companions.flags(late)), "what the rule has seen is no shift"
    what = page._stop_words(companions.stop(late.log_posteriors, None), 42)
    assert what[0] == "not yet"
    assert what[1].startswith(f"{looks} traces were not enough") and what[1].endswith(f"the first {looks} only")


@pytest.mark.parametrize("claimed", [None, 0, 1])
@pytest.mark.parametrize(("rule", "clear"), [((1.0, 1.0, 1.0), 30), ((-5.0, 0.0, 0.0), 30), ((-5.0, 0.0, 0.0), 4)])
def test_no_stop_stands_on_fewer_traces_than_a_verdict(
    claimed: int | None, rule: tuple[float, float, float], clear: int
) -> None:
    """Thresholds of 0 and below are crossed by nothing at all."""
    companions = fitted_statistics_of(enrolment(StopRule(0.05, *rule, traces=30)))
    assert companions.stop is not None
    told = companions.stop(quiet_then_clear(0, clear).log_posteriors, claimed)
    assert told["enough_after"] == (None if clear < 5 else 5)
    if claimed is None:
        assert told["named"] == (None if clear < 5 else "a")
    else:
        assert told["decided"] == (None if clear < 5 else "against the claim" if claimed else "for the claim")


def test_responses_are_compared_with_the_domain_of_their_own_length() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(8), 20)
    here, there = rng.normal(0, 1, (160, 4)).astype(np.float32), rng.normal(50, 1, (160, 4)).astype(np.float32)
    whole, cut = (fit_domain(rows, labels, (1, 5, 10), draws=99) for rows in (here, there))
    made = replace(enrolment(), attachments=attached({"domain-x": whole, "domain-x-t64": cut}))
    of_both = fitted_statistics_of(made), fitted_statistics_of(made, "t64")
    for mean, expected in ((here.mean(0), [(), ("domain",)]), (there.mean(0), [("domain",), ()])):
        traces = replace(quiet_then_clear(10, 0), mean=mean.astype(np.float64))
        assert [one.flags(traces) for one in of_both if one.flags is not None] == expected
    late = replace(quiet_then_clear(11, 0), tokens=np.full(11, 3), mean=here.mean(0).astype(np.float64))
    budgeted = fitted_statistics_of(enrolment())
    assert budgeted.flags is not None and budgeted.flags(late) == ("short", "budget")


def test_without_a_length_or_a_calibration_there_is_no_stop() -> None:
    assert fitted_statistics_of(enrolment(StopRule(0.05, 1.0, 1.0, 1.0), None)).stop is None
    assert fitted_statistics_of(enrolment(StopRule(0.05, 1.0, 1.0, 1.0, traces=7), None)).stop is not None
    damaged = enrolment(StopRule(0.05, 1.0, 1.0, 1.0, traces=7))
    wrong = {**damaged.attachments, "stop.traces": np.array(-1)}
    with pytest.raises(Exception, match="is damaged"):
        fitted_statistics_of(replace(damaged, attachments=wrong))


def test_a_family_is_held_within_what_trials_of_families_bear() -> None:
    """Two siblings that cannot be told apart, surely of their family: 40 groups have seen 40 false families."""
    rows = np.tile(np.log([0.49, 0.49, *[0.02 / 6] * 6]), (10, 1))
    companions = fitted_statistics_of(enrolment())
    found = find(scored(rows), enrolment(), "a", companions=companions, orders=20)
    assert (found.verdict.outcome, found.verdict.level) == ("INCONCLUSIVE", "none")
    enough = replace(CALIBRATION, groups=np.array([990, 198, 99]))
    known = enrolment(calibration=enough)
    found = find(scored(rows), known, "a", companions=fitted_statistics_of(known), orders=20)
    assert (found.verdict.outcome, found.verdict.level) == ("SUPPORTS", "family")
    assert found.log10_others == pytest.approx(2)
    assert found.interval is not None
    assert (found.interval.low, found.interval.high) == (pytest.approx(2), pytest.approx(2))
