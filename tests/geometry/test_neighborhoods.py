"""Ranks, agreement and stability against slow obvious versions and the published pairs."""

from __future__ import annotations

import json
import math
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import hypergeom, spearmanr

from backend.corpus.release import Release
from backend.geometry.neighborhoods import (
    PuritySettings,
    bootstrap_interval,
    directed_ranks,
    distance_spearman,
    eligible_sources,
    family_mix,
    family_purity,
    greatest_purity,
    holm_over_readers,
    hypergeometric_tail,
    mean_purity,
    mutual_ranks,
    neighbor_frame,
    neighbor_order,
    permuted_hits,
    prompt_stability,
    random_expectation,
    reader_agreement,
    source_purity,
    top_k_jaccard,
)
from backend.geometry.signatures import cosine_similarity
from backend.protocol import fold_of_prompts
from backend.statistics import holm
from tests.twins import family_hits, permuted_family_hits


def geometry(seed: int = 0, n: int = 12, noise: float = 0.0) -> np.ndarray:
    points = np.random.default_rng(100).normal(size=(n, 6))
    return cosine_similarity(points + noise * np.random.default_rng(seed).normal(size=points.shape))


def test_order_is_that_of_sorting_each_row() -> None:
    cosine = geometry()
    order = neighbor_order(cosine)
    for i in range(12):
        others = [j for j in range(12) if j != i]
        assert order[i].tolist() == sorted(others, key=lambda j: -cosine[i, j])
    ranks = directed_ranks(cosine)
    assert ranks[0, order[0, 0]] == 1
    assert ranks[5, order[5, 10]] == 11
    assert np.diagonal(ranks).tolist() == [0] * 12
    both = mutual_ranks(cosine)
    assert both[2, 7] == both[7, 2] == max(ranks[2, 7], ranks[7, 2])


def test_ties_go_to_the_earlier_source_and_nobody_is_their_own_neighbour() -> None:
    similarity = np.ones((4, 4))
    assert neighbor_order(similarity).tolist() == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]
    twins = cosine_similarity(np.array([[1.0, 0.2], [1.0, 0.2], [0.0, 1.0]]))
    assert neighbor_order(twins).tolist() == [[1, 2], [0, 2], [0, 1]]


def test_the_input_is_left_alone() -> None:
    cosine = geometry()
    before = cosine.copy()
    neighbor_order(cosine)
    np.testing.assert_array_equal(cosine, before)


def test_frame_holds_every_ordered_pair() -> None:
    cosine = geometry()
    names = [f"s{i}" for i in range(12)]
    frame = neighbor_frame(cosine, names)
    assert frame.columns.tolist() == ["source", "neighbor", "rank", "cosine", "percentile"]
    assert len(frame) == 12 * 11
    assert set(zip(frame["source"], frame["neighbor"], strict=True)) == {(a, b) for a in names for b in names if a != b}
    pairs = [cosine[i, j] for i in range(12) for j in range(i + 1, 12)]
    for row in frame.sample(20, random_state=0).itertuples():
        value = cosine[names.index(row.source), names.index(row.neighbor)]
        assert row.cosine == round(value, 6)
        assert row.percentile == round(sum(p < value for p in pairs) / len(pairs), 6)
    assert (frame.groupby("source")["cosine"].diff().dropna() <= 0).all()
    assert frame["percentile"].max() == pytest.approx(65 / 66)
    assert frame["percentile"].min() == 0.0


def test_agreement_against_slow_versions() -> None:
    left, right = geometry(), geometry(seed=1, noise=0.7)
    pairs = [(i, j) for i in range(12) for j in range(i + 1, 12)]
    expected = spearmanr([1 - left[p] for p in pairs], [1 - right[p] for p in pairs]).statistic
    assert distance_spearman(left, right) == pytest.approx(expected)
    a, b = neighbor_order(left), neighbor_order(right)
    slow = [
        len(set(x[:4]) & set(y[:4])) / len(set(x[:4]) | set(y[:4])) for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]
    np.testing.assert_allclose(top_k_jaccard(a, b, 4), slow)
    frame = reader_agreement({"two": right, "one": left, "three": left}, k=4)
    assert frame.columns.tolist() == ["reader", "other", "metric", "value"]
    value = frame.set_index(["reader", "other", "metric"])["value"]
    assert value.index.tolist() == [
        (*pair, metric)
        for pair in (("one", "three"), ("one", "two"), ("three", "two"))
        for metric in ("spearman", "jaccard_4")
    ]
    assert value["one", "two", "spearman"] == pytest.approx(expected)
    assert value["one", "two", "jaccard_4"] == pytest.approx(np.mean(slow))
    assert value["one", "three"].tolist() == pytest.approx([1.0, 1.0])
    small = reader_agreement({"one": left[:3, :3], "two": right[:3, :3]})
    assert small["metric"].tolist() == ["spearman", "jaccard_10"]
    assert reader_agreement({"one": left, "flat": np.ones((12, 12))})["metric"].tolist() == ["jaccard_10"]
    assert reader_agreement({"one": left}).empty
    assert np.isnan(distance_spearman(np.ones((4, 4)), geometry(n=4)))
    with pytest.raises(ValueError, match=r"1\.\.11"):
        top_k_jaccard(a, b, 12)


def test_stability_of_equal_and_of_unrelated_panels() -> None:
    families = ["a"] * 6 + ["b"] * 6
    full = geometry()
    unrelated = cosine_similarity(np.random.default_rng(9).normal(size=(12, 6)))
    frame = prompt_stability(full, [full, unrelated], families, k=3)
    assert frame.columns.tolist() == ["fold", "metric", "value"]
    value = frame.set_index(["fold", "metric"])["value"]
    assert value[0, "spearman"] == value[0, "jaccard_3"] == pytest.approx(1.0)
    assert abs(value[1, "spearman"]) < 0.4
    near = [sorted(set(range(12)) - {i}, key=lambda j, i=i: -unrelated[i, j])[:5] for i in range(12)]  # type: ignore[misc]
    slow = np.mean([np.mean([families[j] == families[i] for j in near[i]]) for i in range(12)])
    assert value[1, "purity_5"] == pytest.approx(slow)
    small = prompt_stability(full[:3, :3], [full[:3, :3]], families[:3])
    assert small["metric"].tolist() == ["spearman", "jaccard_10"]  # no family of five
    assert prompt_stability(full, [], families).empty


@pytest.mark.release
def test_the_five_folds_are_the_published_prompt_subsets(release: Release) -> None:
    published = json.loads((release.root / "results/geometry/agent500/prompt_partitions.json").read_text("utf-8"))
    ids = release.prompts("agent500")["sample_id"].tolist()
    folds = fold_of_prompts(ids)
    ours = {f"split_{fold}": [i for i, f in zip(ids, folds, strict=True) if f == fold] for fold in range(5)}
    assert ours == published


def invented(seed: int = 0) -> tuple[np.ndarray, list[str]]:
    """Thirty sources of five families, the relatives moderately alike."""
    rng = np.random.default_rng(seed)
    families = [["A", "B", "C", "D", "E"][i] for i in rng.choice(5, 30, p=[0.4, 0.25, 0.2, 0.1, 0.05])]
    centres = {family: rng.normal(size=8) for family in "ABCDE"}
    points = np.stack([centres[family] for family in families]) + rng.normal(size=(30, 8))
    return neighbor_order(points @ points.T), families


def test_a_case_worked_by_hand() -> None:
    # On a line: a0 a1 b0 a2 b1 c0, at these places. Families a (3) and b (2); at least two members count.
    places = np.array([0.0, 1.0, 2.5, 4.5, 7.5, 11.5])
    families = ["a", "a", "b", "a", "b", "c"]
    order = neighbor_order(-np.abs(places[:, None] - places[None, :]))
    assert order.tolist()[0] == [1, 2, 3, 4, 5]
    assert order.tolist()[2] == [1, 3, 0, 4, 5]
    # k = 1: a0->a1 yes, a1->a0 yes, b0->a1 no, a2->b0 no, b1->a2 no: 2 of 5.
    # k = 2: a0 {a1, b0} 1, a1 {a0, b0} 1, b0 {a1, a2} 0, a2 {b0, b1} 0, b1 {a2, c0} 0: 2 of 10.
    frame = family_purity(order, families, ks=(1, 2), settings=PuritySettings(min_members=2, permutations=99))
    assert frame["purity"].tolist() == pytest.approx([2 / 5, 2 / 10])
    # Chance: an a meets one of 2 relatives among 5, a b one of 1: (3 * 2 + 2 * 1) / (5 * 5).
    assert frame["expectation"].tolist() == pytest.approx([8 / 25, 8 / 25])
    assert frame["sources"].tolist() == [5, 5]
    assert frame["families"].tolist() == [2, 2]
    assert source_purity(order, families, [1, 2])[:, 1].tolist() == [0.5, 0.5, 0.0, 0.0, 0.0, 0.0]
    assert mean_purity(order, families, 1, 2) == pytest.approx(2 / 5)


def test_against_the_slow_version() -> None:
    order, families = invented()
    eligible = eligible_sources(families, 5)
    frame = family_purity(order, families, settings=PuritySettings(permutations=10))
    assert frame["k"].tolist() == [1, 3, 5, 10]
    for k, purity in zip(frame["k"], frame["purity"], strict=True):
        assert purity == pytest.approx(family_hits(order, families, k, 5) / (k * eligible.sum()))
    assert frame["sources"][0] == sum(families.count(f) >= 5 for f in families)


def test_expectation_is_that_of_a_random_order() -> None:
    families = ["a"] * 6 + ["b"] * 5 + ["c"] * 2
    rng = np.random.default_rng(3)
    drawn = []
    for _ in range(2000):
        similarity = rng.random((13, 13))
        drawn.append(mean_purity(neighbor_order(similarity), families, 3))
    assert np.mean(drawn) == pytest.approx(random_expectation(families), abs=0.005)
    assert random_expectation(families) == pytest.approx((6 * 5 + 5 * 4) / (12 * 11))
    assert np.isnan(random_expectation(["a", "b"]))


def test_a_source_cannot_have_more_neighbours_of_its_family_than_siblings() -> None:
    families = [*"aaaaaa", *"bbbbb", "c"]  # five siblings of each a, four of each b; c is not averaged over
    assert greatest_purity(families, 1) == 1
    assert greatest_purity(families, 5) == pytest.approx((6 * 5 + 5 * 4) / (11 * 5))
    assert greatest_purity(families, 10) == pytest.approx((6 * 5 + 5 * 4) / (11 * 10))
    assert np.isnan(greatest_purity(["a", "b"], 1))


@pytest.mark.parametrize("shuffle", ["eligible", "all"])
def test_permutations_against_relabelling_one_by_one(shuffle: str) -> None:
    order, families = invented()
    settings = PuritySettings(permutations=300, shuffle=shuffle)  # type: ignore[arg-type]
    fast = permuted_hits(order, families, (1, 5), settings)
    moving = np.flatnonzero(eligible_sources(families)) if shuffle == "eligible" else np.arange(30)
    assert fast.tolist() == list(permuted_family_hits(order, families, (1, 5), moving, 300, settings.seed, 5))


def test_p_value_is_that_of_all_labellings() -> None:
    """Six sources in two families of three: few enough labellings to try them all."""
    places = np.array([0.0, 1.0, 2.2, 10.0, 11.0, 12.2])
    order = neighbor_order(-np.abs(places[:, None] - places[None, :]))
    families = ["a", "a", "a", "b", "b", "b"]
    observed = family_hits(order, families, 2, 3)
    every = [family_hits(order, [families[i] for i in p], 2, 3) for p in permutations(range(6))]
    exact = np.mean(np.array(every) >= observed)
    frame = family_purity(order, families, (2,), PuritySettings(min_members=3, permutations=20_000))
    assert frame["p_value"][0] == pytest.approx(exact, abs=0.01)
    assert exact == pytest.approx(0.1)


def test_permutation_floor_and_level() -> None:
    rng = np.random.default_rng(5)
    families = ["a"] * 12 + ["b"] * 12
    near = np.kron(np.eye(2), np.ones((12, 12))) + 0.01 * rng.random((24, 24))
    clear = family_purity(neighbor_order(near), families)
    assert clear["purity"].tolist() == [1.0] * 4
    assert clear["p_value"].tolist() == pytest.approx([1 / 10_001] * 4)
    p_values = [
        family_purity(neighbor_order(rng.random((24, 24))), families, (5,), PuritySettings(permutations=199))[
            "p_value"
        ][0]
        for _ in range(200)
    ]
    assert np.mean(np.array(p_values) <= 0.05) < 0.12
    assert np.mean(p_values) > 0.4


def test_bootstrap_against_a_loop() -> None:
    values = np.random.default_rng(7).random((20, 2))
    low, high = bootstrap_interval(values, 500, seed=3)
    draws = np.random.default_rng(3).integers(0, 20, (500, 20))
    means = np.array([[np.mean([values[i, c] for i in row]) for c in range(2)] for row in draws])
    np.testing.assert_allclose(low, np.percentile(means, 2.5, axis=0))
    np.testing.assert_allclose(high, np.percentile(means, 97.5, axis=0))
    assert (low < values.mean(axis=0)).all() and (values.mean(axis=0) < high).all()


def test_small_rosters() -> None:
    families = ["a"] * 5 + ["b"]
    order = neighbor_order(np.random.default_rng(0).random((6, 6)))
    frame = family_purity(order, families, settings=PuritySettings(permutations=50))
    assert frame["k"].tolist() == [1, 3, 5]  # ten neighbours do not exist
    nobody = family_purity(neighbor_order(np.eye(3)), ["a", "a", "b"])
    assert nobody.empty
    assert nobody.columns.tolist() == frame.columns.tolist()
    assert np.isnan(mean_purity(neighbor_order(np.eye(3)), ["a", "a", "b"], 1))
    with pytest.raises(ValueError, match=r"ks must lie in 1\.\.2"):
        source_purity(neighbor_order(np.eye(3)), ["a", "a", "b"], [3])


def test_same_seed_same_numbers() -> None:
    order, families = invented(4)
    settings = PuritySettings(permutations=400, bootstraps=200, seed=9)
    pd.testing.assert_frame_equal(
        family_purity(order, families, settings=settings), family_purity(order, families, settings=settings)
    )


def test_holm_by_hand() -> None:
    # Sorted .01 .02 .03 .04: times 4, 3, 2, 1 = .04 .06 .06 .04, never falling: .04 .06 .06 .06.
    assert holm([0.03, 0.01, 0.04, 0.02]).tolist() == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.6, 0.9]).tolist() == [1.0, 1.0]
    # Eight tests at the floor: the published 8.0e-4.
    assert holm([1 / 10_001] * 8).max() == pytest.approx(0.0007999200079992001)


def test_holm_over_readers_by_hand() -> None:
    frame = pd.DataFrame(
        {
            "reader": ["one"] * 4 + ["two"] * 4,
            "k": [1, 3, 5, 10] * 2,
            "p_value": [0.01, 0.5, 0.02, 0.5, 0.04, 0.0, np.nan, 0.5],
        },
        index=range(10, 18),
    )
    # Tested: .01 .02 .04 (two at k = 5 has no p-value): times 3, 2, 1 = .03 .04 .04.
    corrected = holm_over_readers(frame)
    assert corrected.index.tolist() == list(range(10, 18))
    assert corrected.dropna().to_dict() == pytest.approx({10: 0.03, 12: 0.04, 14: 0.04})
    assert holm_over_readers(frame[frame["k"] == 3]).isna().all()


def test_both_ways_of_permuting_by_hand() -> None:
    """Two families of two and a lone source: the paper moves four labels, the released code five."""
    places = np.array([0.0, 1.0, 5.0, 6.1, 20.0])
    order = neighbor_order(-np.abs(places[:, None] - places[None, :]))
    families = ["a", "a", "b", "b", "c"]
    observed = family_hits(order, families, 1, 2)
    assert observed == 4
    for shuffle, moving, exact in (("eligible", 4, 1 / 3), ("all", 5, 1 / 15)):
        every = []
        for p in permutations(range(moving)):
            labels = [families[i] for i in p] + families[moving:]
            every.append(family_hits(order, labels, 1, 2))
        assert np.mean(np.array(every) >= observed) == pytest.approx(exact)
        settings = PuritySettings(min_members=2, permutations=20_000, shuffle=shuffle)  # type: ignore[arg-type]
        frame = family_purity(order, families, (1,), settings)
        assert frame["p_value"][0] == pytest.approx(exact, abs=0.012)


@pytest.mark.release
def test_published_chance_level(release: Release) -> None:
    families = release.roster("100-way")["plot_family"].tolist()
    summary = json.loads((release.root / "results/geometry/agent500/validation_summary.json").read_text("utf-8"))
    assert random_expectation(families) == pytest.approx(summary["analytic_random_expectation"], abs=1e-15)
    assert int(eligible_sources(families).sum()) == summary["eligible_major_family_models"] == 87
    assert random_expectation(families) == pytest.approx(0.184372, abs=1e-6)


@pytest.mark.release
def test_published_holm_values(release: Release) -> None:
    table = pd.read_csv(release.root / "results/geometry/agent500/neighbor_purity.csv")
    family = table.dropna(subset=["holm_p_value_main_k1_k5"])
    assert len(family) == 8
    np.testing.assert_allclose(holm(family["p_value"].to_numpy()), family["holm_p_value_main_k1_k5"])


def test_kin_by_luck_is_counted_exactly() -> None:
    assert hypergeometric_tail(0, 26, 3, 10) == 1
    assert hypergeometric_tail(1, 4, 2, 2) == pytest.approx(5 / 6)
    assert hypergeometric_tail(3, 26, 3, 10) == pytest.approx(math.comb(23, 7) / math.comb(26, 10))
    assert hypergeometric_tail(0, 5, 0, 3) == 1


def test_a_mix_of_families_is_compared_with_a_blind_draw() -> None:
    families = ["a"] * 6 + ["b"] * 3 + ["c"]
    mix = family_mix(families, np.isin(np.arange(10), [0, 1, 2, 3, 9]))
    assert mix[["family", "found", "members"]].to_numpy().tolist() == [["a", 4, 6], ["c", 1, 1]]
    assert mix["expected"].tolist() == [3.0, 0.5]
    exact = hypergeom.sf(np.array([3, 0]), 10, np.array([6, 1]), 5)
    np.testing.assert_allclose(mix["p_value"], exact)
    np.testing.assert_allclose(mix["p_holm"], holm(exact))
    np.testing.assert_allclose(mix["p_fewer"], holm(hypergeom.cdf(np.array([4, 1]), 10, np.array([6, 1]), 5)))
    assert family_mix(families, np.zeros(10, dtype=bool)).empty
