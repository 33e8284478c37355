"""Which condition traces are in, and what the validation says about just such a case."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from backend.attribution.decision import fitted_statistics_of
from backend.attribution.scoring import Scored
from backend.enrolment.enrolment import Enrolment
from backend.enrolment.fit import attached
from backend.enrolment.validation_lookup import (
    condition_of,
    conditions_of,
    enough_traces,
    expected_power,
    matched_validation,
    validation_of,
    whole_tokens,
)
from backend.errors import AtlasError
from backend.inference.calibration import Calibration
from backend.inference.sequential_stop import StopRule, stop_arrays
from backend.inference.validation import validation_arrays

CUTS = ("clean", "t128", "t64", "t32")
ROWS = pd.DataFrame(
    [
        *({"condition": c, "part": "calibration", "k": k, "metric": m, "value": v + k / 1000, "std": 0.01,
           "n": 500 // k} for c in ("clean", "t64") for k in (1, 10, 100)
          for m, v in (("accuracy_after", 0.5), ("ece_after", 0.02))),
        {"condition": "clean", "part": "refit", "k": 10, "metric": "false_acceptance", "scenario": "family",
         "statistic": "relative-mahalanobis", "level": 0.05, "value": 0.25, "std": 0.1, "n": 40},
        {"condition": "clean", "part": "refit", "k": 10, "metric": "false_acceptance", "scenario": "family",
         "statistic": "max-logit", "level": 0.05, "value": 0.9, "std": 0.1, "n": 40},
        {"condition": "clean", "part": "stop", "k": 100, "metric": "stop_error", "rule": "controlled", "level": 0.05,
         "value": 0.031, "std": 0.01, "n": 300},
        *({"condition": "clean", "part": "drift", "k": k, "metric": "alarms", "scenario": s, "statistic": t,
           "level": 0.05, "space": "fingerprints", "value": v, "std": 0.02, "n": 100}
          for k in (10, 50) for s, t, v in (("same", "energy", 0.04), ("sibling", "energy", 0.3 + k / 100),
                                            ("sibling", "energy-paired", 0.99))),
    ]
)  # fmt: skip


@pytest.fixture
def bare() -> Enrolment:
    return Enrolment(
        name="x", reader="reader-paper/tiny/ur", proxy="tiny", view="ur", block="dc-ac", sources=("a", "b"),
        families=("a", "b"), heads=(), log_prior=np.log([0.5, 0.5]), prompts=np.empty(0, np.uint64),
        folds=np.empty(0, np.int16),
    )  # fmt: skip


@pytest.fixture
def enrolment(bare: Enrolment) -> Enrolment:
    return replace(bare, attachments=validation_arrays(ROWS))


@pytest.mark.parametrize(
    ("tokens", "condition"),
    [
        ([64] * 12 + [20, 31, 44], "t64"),
        ([70, 66, 69, 71, 64, 68, 30], "t64"),  # another tokenizer's limit
        ([32] * 5, "t32"),
        ([128, 128, 90, 128, 128], "t128"),
        ([40, 64, 64, 64], "clean"),  # three at one length are too few to tell
        ([20, 31, 44, 60, 61], "clean"),
        ([400] * 9, "clean"),
        ([5, 9, 14, 18, 22, 25, 27, 31, 40, 62], "clean"),  # short, and of different lengths
        ([], "clean"),
    ],
)
def test_cut_traces_are_told_from_short_ones(tokens: list[int], condition: str) -> None:
    assert condition_of(np.array(tokens, dtype=np.intp), CUTS) == condition
    assert condition_of(np.array(tokens, dtype=np.intp), ["clean"]) == "clean"


@pytest.mark.parametrize("traces", [5, 8, 10, 20])
def test_few_whole_answers_are_seldom_taken_for_cut_ones(traces: int) -> None:
    rng = np.random.default_rng(traces)
    draws = np.maximum(rng.lognormal(np.log(60), 0.6, size=(3000, traces)).astype(np.intp), 1)
    assert np.mean([condition_of(tokens, CUTS) != "clean" for tokens in draws]) < 0.01
    # A limit in tokens of another tokenizer, which eight in ten responses reach.
    limits = 64 * np.exp(rng.normal(0, 0.02, size=(1000, traces)))
    ends = np.where(rng.random(limits.shape) < 0.8, limits, limits * rng.uniform(0.2, 1, size=limits.shape))
    found = np.mean([condition_of(tokens.astype(np.intp), CUTS) == "t64" for tokens in ends])
    assert found > (0.7 if traces == 5 else 0.95)


def test_a_limit_of_the_enrolled_responses_is_no_cut() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(20), 50)
    tokens = np.where(labels == 0, 60, rng.integers(128, 140, len(labels)))  # one source of twenty is terse
    whole = whole_tokens(tokens, labels)
    assert 60 < whole < 140
    assert condition_of(np.full(9, 139), CUTS, whole) == "clean"
    assert condition_of(np.full(9, 139), CUTS) == "t128"
    assert condition_of(np.full(9, 64), CUTS, whole) == "t64"


def test_rows_survive_the_attachments(enrolment: Enrolment, bare: Enrolment) -> None:
    held = validation_of(enrolment)
    assert len(held) == len(ROWS)
    np.testing.assert_allclose(held["value"], ROWS["value"])
    assert held["scenario"].tolist() == ROWS["scenario"].fillna("").tolist()
    assert held["level"].isna().tolist() == ROWS["level"].isna().tolist()
    assert all(array.dtype.kind in "Uf" for array in enrolment.attachments.values())
    assert validation_of(bare).empty
    assert matched_validation(bare, np.array([50]), 3) is None
    assert expected_power(bare, 10) is None


def test_the_largest_tested_case_up_to_the_traces_is_told(enrolment: Enrolment) -> None:
    told = matched_validation(enrolment, np.array([200] * 5 + [90, 400]), 20)
    assert told is not None
    assert (told["condition"], told["traces"], told["groups"]) == ("clean", 10, 50)
    assert told["accuracy"] == pytest.approx(0.51)
    assert told["ece"] == pytest.approx(0.03)
    assert "cllr" not in told
    of_part = {part: [row for row in told["rows"] if row["part"] == part] for part in ("refit", "stop", "drift")}
    assert [row["statistic"] for row in of_part["refit"]] == ["relative-mahalanobis"]
    assert "25.0 %" in of_part["refit"][0]["sentence"]
    assert of_part["stop"][0]["sentence"].startswith("Of the sessions that stop at a stated error rate of 5 %, 3.1 %")
    assert {row["k"] for row in of_part["drift"]} == {10}
    assert {row["scenario"] for row in of_part["drift"]} == {"same", "sibling"}
    few, cut, more = (matched_validation(enrolment, np.array([64] * 9), traces) for traces in (9, 90, 100))
    assert few is not None and cut is not None and more is not None
    assert [(found["condition"], found["traces"]) for found in (few, cut, more)] == [("t64", k) for k in (1, 10, 100)]
    assert {row["part"] for row in few["rows"]} == {"calibration", "stop"}, "nine were tested by nothing else"
    assert {row["condition"] for row in cut["rows"] if row["part"] != "calibration"} == {"clean"}


def test_enough_traces_are_those_that_decide_most_groups(bare: Enrolment) -> None:
    shares = {
        "true_claim_supported": (0.4, 0.6, 0.7), "true_claim_family_supported": (0.2, 0.31, 0.25),
        "nearest_claim_refuted": (0.1, 0.2, 0.45), "named_right": (0.1, 0.2, 0.36),
    }  # fmt: skip
    rows = [
        {"condition": "clean", "part": "calibration", "k": k, "metric": f"verdict_{metric}", "value": share, "std": 0.0,
         "n": 50} for metric, values in shares.items() for k, share in zip((5, 20, 100), values, strict=True)
    ]  # fmt: skip
    known, case = replace(bare, attachments=validation_arrays(pd.DataFrame(rows))), {"condition": "clean"}
    assert enough_traces(known, case, 10, True) == (
        "From 20 traces on, at least 90 % of true claims are decided, for the source or its family; of claims of the "
        "nearest other source, 45 % are refuted with 100."
    )
    assert enough_traces(known, case, 20, True).endswith(". Yours are of the rest, and more may not decide it.")
    assert enough_traces(known, case, 10, False) == (
        "How many decide 90 % of such cases is not known: 100, the most that were tested, decided 36 % of held-out "
        "groups."
    )
    assert enough_traces(known, {"condition": "t64"}, 10, True) == "How many it takes is not known."


def test_power_of_the_drift_test(enrolment: Enrolment) -> None:
    tested = {"level": 0.05, "same": 0.04, "family": None}
    assert expected_power(enrolment, 49) == {"window": 10, "sibling": 0.4, **tested}
    assert expected_power(enrolment, 50) == {"window": 50, "sibling": 0.8, **tested}
    paired = expected_power(enrolment, 12, paired=True)
    assert paired == {"window": 10, "level": 0.05, "same": None, "sibling": 0.99, "family": None}
    assert expected_power(enrolment, 9) is None  # nobody has seen what nine traces show


def stopping(rows: list[tuple[str, float, float, int]]) -> dict[str, np.ndarray]:
    """Rows of the stop (metric, level, value, n) beside one of the calibration."""
    told = [
        {"part": "stop", "rule": "controlled", "metric": m, "level": at, "value": v, "n": n} for m, at, v, n in rows
    ]
    calibration = {"part": "calibration", "metric": "accuracy_after", "value": 0.5, "n": 9}
    return validation_arrays(
        pd.DataFrame([{"condition": "clean", "k": 10, "std": 0.1, **row} for row in (calibration, *told)])
    )


def stop_rows(enrolment: Enrolment) -> dict[tuple[str, float], dict[str, Any]]:
    told = matched_validation(enrolment, np.array([300] * 10), 10)
    assert told is not None
    return {(row["metric"], row["level"]): row for row in told["rows"] if row["part"] == "stop"}


def test_where_nothing_stops_there_is_no_error_rate(bare: Enrolment) -> None:
    kept = stopping([("stop_error", 0.05, 0.0, 120), ("stop_share", 0.05, 0.0, 120)])
    rows = stop_rows(replace(bare, attachments=kept))
    assert set(rows) == {("undecided", 0.05), ("stop_share", 0.05)}
    row = rows["undecided", 0.05]
    assert row["of"] == "stop_error"
    assert (row["value"], row["std"], row["n"]) == (None, None, 120)
    assert row["sentence"] == "At a stated error rate of 5 % no held-out session stopped."


@pytest.mark.parametrize(
    ("rule", "metric", "sentence"),
    [
        (StopRule(0.1, np.inf, 1.0, 1.0), "stop_error", "never names a source"),
        (StopRule(0.1, 1.0, np.inf, 1.0), "claim_false_support", "never supports a claim"),
        (StopRule(0.1, 1.0, 1.0, np.inf), "claim_false_against", "never refutes a claim"),
    ],
)
def test_what_the_served_rule_never_does_has_no_error_rate(
    bare: Enrolment, rule: StopRule, metric: str, sentence: str
) -> None:
    metrics = ("stop_error", "claim_false_support", "claim_false_against")
    kept = stopping([(name, 0.1, 0.0, 120) for name in metrics])
    rows = stop_rows(replace(bare, attachments=kept | {f"stop.{n}": a for n, a in rule.to_arrays().items()}))
    assert set(rows) == {(name, 0.1) for name in metrics if name != metric} | {("undecided", 0.1)}
    assert sentence in rows["undecided", 0.1]["sentence"] and rows["undecided", 0.1]["of"] == metric


def test_error_rates_that_have_no_row_are_told_too(bare: Enrolment) -> None:
    kept = stopping([("stop_share", 0.1, 0.0, 120), ("claim_false_support", 0.1, 0.02, 120)])
    rule = StopRule(0.1, np.inf, 1.0, 1.0)
    enrolment = replace(bare, attachments=kept | {f"stop.{n}": a for n, a in rule.to_arrays().items()})
    told = matched_validation(enrolment, np.array([300] * 10), 10)
    assert told is not None
    said = {row["of"]: row["sentence"] for row in told["rows"] if row["metric"] == "undecided"}
    assert set(said) == {"stop_error", "claim_false_against"}
    assert "never names a source" in said["stop_error"]
    assert said["claim_false_against"].endswith("no held-out session stopped.")
    assert [row["value"] for row in told["rows"] if row["metric"] == "claim_false_support"] == [0.02]


def test_error_rates_that_count_folds_without_a_stop_are_told_as_bounds(bare: Enrolment) -> None:
    of_before = stopping([("stop_error", 0.01, 0.002, 1500), ("stop_share", 0.01, 0.16, 1500)])
    row = stop_rows(replace(bare, attachments=of_before))["stop_error", 0.01]
    assert (row["value"], row["n"]) == (pytest.approx(0.0125), 240)
    assert (
        row["sentence"] == "Of the sessions that stop at a stated error rate of 1 %, at most 1.2 % name a wrong source."
    )
    pooled = stopping([("stop_error", 0.01, 0.008, 240), ("stop_share", 0.01, 0.16, 1500)])
    row = stop_rows(replace(bare, attachments=pooled))["stop_error", 0.01]
    assert (row["value"], row["n"]) == (pytest.approx(0.008), 240)
    assert row["sentence"] == "Of the sessions that stop at a stated error rate of 1 %, 0.8 % name a wrong source."


def test_cut_traces_meet_their_own_calibration(bare: Enrolment) -> None:
    def calibration(scale: float) -> Calibration:
        return Calibration(np.array([1, 5]), np.full(2, scale), np.zeros((2, 2)), np.array([90, 18]))

    parts = attached({"calibration": calibration(1.0), "calibration-t32": calibration(0.25)})
    rules = {"stop.thresholds": stop_arrays([StopRule(level, 1.0, 1.0, 1.0) for level in (0.01, 0.05)])["thresholds"]}
    enrolment = replace(bare, attachments=parts | rules)
    assert conditions_of(enrolment) == ["clean", "t32"]
    whole = fitted_statistics_of(enrolment)
    assert whole.matched is not None

    def scored(length: int) -> Scored:
        rows = np.log(np.full((5, 2), [0.9, 0.1])).astype(np.float32)
        tokens = np.full(5, length, dtype=np.intp)
        return Scored(rows, tokens, (None,) * 5, np.zeros(4), None, True, 1.0, "test")

    assert whole.matched(scored(300)) is None
    short = whole.matched(scored(32))
    assert short is not None
    score, even = np.array([[0.0, -8.0]]), np.log([0.5, 0.5])
    assert whole.calibrate is not None
    assert short.calibrate is not None
    plain, softened = (one.calibrate(score, 5, even)[0] for one in (whole, short))
    assert plain[0] - plain[1] == pytest.approx(8)
    assert softened[0] - softened[1] == pytest.approx(2)
    assert short.stop is None
    assert whole.stop is not None
    told = whole.stop(scored(300).log_posteriors, None)
    assert told["error_rate"] == 0.05
    assert [one["error_rate"] for one in told["levels"]] == [0.01, 0.05]
    assert fitted_statistics_of(enrolment, stop_level=0.01).stop is not None
    with pytest.raises(AtlasError, match=r"no stop rule for an error rate of 0\.2"):
        fitted_statistics_of(enrolment, stop_level=0.2)


def test_mixtures_are_told_by_what_was_mixed_in(bare: Enrolment) -> None:
    about = {"condition": "clean", "part": "mixture", "k": 50, "std": 0.01, "n": 700}
    rows = [
        {"metric": "share_coverage", "scenario": "any", "statistic": "claimed", "value": 0.951},
        {"metric": "share_coverage", "scenario": "any", "statistic": "claimed", "level": 0.2, "value": 0.9},
        {"metric": "found", "scenario": "any", "level": 0.0, "value": 0.05},
        {"metric": "found", "scenario": "sibling", "level": 0.2, "value": 0.812},
        {"metric": "says_mixture", "scenario": "any", "level": 0.2, "value": 0.7},
    ]
    enrolment = replace(bare, attachments=validation_arrays(pd.DataFrame([about | row for row in rows])))
    found = matched_validation(enrolment, np.full(50, 200), 50)
    assert found is not None
    assert [row["sentence"] for row in found["rows"]] == [
        "Of the 95 % intervals of the claimed source's share in simulated mixtures of 50 traces, "
        "95.1 % hold that share.",
        "Of 700 groups of 50 traces of one source, 5.0 % are taken for a mixture with another source.",
        "A share of 20 % from a sibling is found in 81.2 % of 700 simulated mixtures of 50 traces.",
    ]
