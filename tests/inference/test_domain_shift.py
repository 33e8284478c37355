"""The permutation test against loops over pairs and permutations, its false alarms, and the worth of pairing."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import numpy as np
import pytest

from backend.attribution.drift_report import compare
from backend.enrolment.enrolment import Enrolment
from backend.errors import AtlasError
from backend.inference.domain_shift import DomainReference, fit_domain
from backend.inference.drift import drift_frame, drift_test, pair_kinds, pairs_of_kind
from tests.twins import two_samples


@pytest.mark.parametrize("method", ["energy", "mmd"])
def test_statistic_and_p_value_equal_slow_loops(method):
    rng = np.random.default_rng(0)
    before, after = rng.normal(size=(5, 3)), rng.normal(0.7, 1, size=(4, 3))
    test = drift_test(before, after, method, permutations=60, seed=8)
    assert test.statistic == pytest.approx(two_samples(before, after, method), abs=1e-9)
    pooled, weights = np.concatenate([before, after]), np.r_[np.full(5, 1 / 5), np.full(4, -1 / 4)]
    extreme = 0
    for row in np.random.default_rng(8).permuted(np.broadcast_to(weights, (60, 9)), axis=1):
        extreme += two_samples(pooled[row > 0], pooled[row < 0], method) >= test.statistic - 1e-9
    assert test.p_value == pytest.approx((1 + extreme) / 61)


def test_paired_p_value_equals_swapping_by_hand():
    rng = np.random.default_rng(3)
    before = rng.normal(size=(6, 2))
    after = before + rng.normal(0.4, 0.3, size=(6, 2))
    test = drift_test(before, after, paired=True, permutations=20, seed=5)
    drawn = [tuple(signs) for signs in np.random.default_rng(5).integers(0, 2, size=(20, 6)) * 2 - 1]
    assert test.p_value == pytest.approx((1 + swapped(before, after, drawn, test.statistic)) / 21)
    assert test.permutations == 20


def swapped(before: np.ndarray, after: np.ndarray, drawn: Iterable[tuple[int, ...]], observed: float) -> int:
    """How many swaps (-1: the answers to a prompt change windows) lie at least as far apart."""
    extreme = 0
    for signs in drawn:
        stays = np.array(signs)[:, None] > 0
        one, two = np.where(stays, before, after), np.where(stays, after, before)
        extreme += two_samples(one, two, "energy") >= observed - 1e-9
    return extreme


def test_few_swaps_are_all_tried():
    rng = np.random.default_rng(4)
    before = rng.normal(size=(6, 2))
    after = before + rng.normal(0.3, 0.5, size=(6, 2))
    test = drift_test(before, after, paired=True, permutations=32)
    share = swapped(before, after, product((-1, 1), repeat=6), test.statistic) / 64
    assert (test.p_value, test.permutations) == (pytest.approx(share), 31)
    far = drift_test(before, after + 90, paired=True)
    assert far.p_value == pytest.approx(1 / 32)
    assert drift_test(before[:5], after[:5] + 90, paired=True).p_value == pytest.approx(1 / 16)
    assert drift_test(before[:2], after[:2], paired=True).permutations == 1


def test_windows_are_paired_where_a_paired_test_can_speak(standing: Enrolment):
    before = np.random.default_rng(0).normal(size=(6, 4))
    prompts = [f"prompt {i}" for i in range(6)]
    paired = compare(before, before[::-1] + 90, (prompts, prompts[::-1]), standing)
    assert (paired.paired, paired.permutations) == (True, 31)
    assert paired.p_value <= 0.05
    few = compare(before[:5], before[:5] + 90, (prompts[:5], prompts[:5]), standing)
    assert not few.paired
    assert few.p_value <= 0.05
    with pytest.raises(AtlasError, match="first window has 4 traces"):
        compare(before[:4], before, (prompts[:4], prompts), standing)


@pytest.fixture
def standing() -> Enrolment:
    """An enrolment that no head reads, whose domain gives the spread."""
    return Enrolment(
        name="x", reader="reader-paper/tiny/ur", proxy="tiny", view="ur", block="dc-ac", sources=("a", "b"),
        families=("a", "b"), heads=(), log_prior=np.log([0.5, 0.5]), prompts=np.empty(0, np.uint64),
        folds=np.empty(0, np.int16), attachments={"domain-x.mean": np.zeros(4), "domain-x.scale": np.ones(4)},
    )  # fmt: skip


def test_equal_windows_are_no_drift():
    rows = np.random.default_rng(1).normal(size=(8, 3))
    test = drift_test(rows, rows, paired=True, permutations=40)
    assert test.statistic == pytest.approx(0, abs=1e-6)  # roots of rounding in the squared distances
    assert test.p_value == 1
    assert drift_test(np.ones((3, 2)), np.ones((4, 2)), "mmd", permutations=20).p_value == 1


def test_false_alarms_keep_the_level():
    rng = np.random.default_rng(11)
    p_values = [
        drift_test(rng.normal(size=(8, 4)), rng.normal(size=(8, 4)), permutations=99, seed=i).p_value
        for i in range(300)
    ]
    assert np.mean(np.array(p_values) <= 0.05) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 300)
    assert 0.4 < np.mean(p_values) < 0.6


def test_pairing_takes_the_prompts_out():
    rng = np.random.default_rng(2)
    free, paired = 0, 0
    for i in range(30):
        prompts = rng.normal(0, 3, size=(12, 4))
        before, after = prompts + rng.normal(size=(12, 4)), prompts + rng.normal(0.9, 1, size=(12, 4))
        free += drift_test(before, after, permutations=99, seed=i).p_value <= 0.05
        paired += drift_test(before, after, paired=True, permutations=99, seed=i).p_value <= 0.05
    assert paired > 20 > free


def test_windows_that_cannot_be_tested_are_refused():
    with pytest.raises(ValueError, match="at least two"):
        drift_test(np.zeros((1, 2)), np.zeros((4, 2)))
    with pytest.raises(ValueError, match="as many"):
        drift_test(np.zeros((3, 2)), np.zeros((4, 2)), paired=True)


def test_power_tells_the_kinds_of_pairs_apart():
    rng = np.random.default_rng(5)
    family = np.array([0, 0, 1, 1, 2])
    offset = np.eye(3)[family] * 4 + rng.normal(0, 0.6, size=(5, 3))
    features = (offset[:, None] + rng.normal(size=(5, 40, 3))).reshape(-1, 3)
    frame = drift_frame(features, family, "test", windows=(8,), methods=("energy",), pairs=40, permutations=59)
    assert set(zip(frame["metric"], frame["space"], frame["level"], frame["n"], strict=True)) == {
        ("alarms", "test", 0.05, 40)
    }
    value = frame.set_index(["scenario", "statistic"])["value"]
    assert value["same", "energy"] <= 0.15
    assert value["family", "energy"] > 0.9
    assert value["same", "energy"] < value["sibling", "energy"] <= value["family", "energy"]
    assert ("same", "energy-paired") not in value
    few = drift_frame(features, family, "test", windows=(5,), methods=("energy",), pairs=4, permutations=19)
    assert set(few["statistic"]) == {"energy"}  # five prompts cannot be paired
    assert pair_kinds(np.array([0, 1, 2])) == ["same", "family"]
    assert pair_kinds(np.array([4, 4])) == ["same", "sibling"]


def test_pairs_are_of_the_kind_asked():
    family, rng = np.array([0, 0, 1]), np.random.default_rng(0)
    assert {tuple(p) for p in pairs_of_kind(family, "sibling", 30, rng)} == {(0, 1), (1, 0)}
    assert all(a == b for a, b in pairs_of_kind(family, "same", 30, rng))
    assert all(family[a] != family[b] for a, b in pairs_of_kind(family, "family", 30, rng))
    with pytest.raises(ValueError, match="sibling"):
        pairs_of_kind(np.arange(3), "sibling", 1, rng)


def test_domain_distance_and_p_value(tmp_path):
    rng = np.random.default_rng(4)
    labels = np.repeat(np.arange(6), 50)
    rows = rng.normal(size=(6, 1, 5)) + rng.normal(size=(6, 50, 5))
    rows = rows.reshape(-1, 5)
    domain = fit_domain(rows, labels, (1, 10), draws=199)
    mean = rows[:10].mean(0)
    assert domain.distance(mean) == pytest.approx(np.sqrt(np.mean(((mean - rows.mean(0)) / rows.std(0)) ** 2)))
    assert domain.p_value(mean, 10) == pytest.approx((1 + (domain.nulls[1] >= domain.distance(mean)).sum()) / 200)
    assert domain.p_value(mean + 9, 10) == pytest.approx(1 / 200)
    p_values = [domain.p_value(rows[rng.integers(0, 50, 10) + 50 * (i % 6)].mean(0), 10) for i in range(120)]
    assert np.mean(np.array(p_values) <= 0.1) < 0.1 + 3 * np.sqrt(0.09 / 120)
    np.savez(tmp_path / "d.npz", **domain.to_arrays())
    with np.load(tmp_path / "d.npz", allow_pickle=False) as held:
        assert DomainReference.from_arrays(held).p_value(mean, 5) == domain.p_value(mean, 5)
