"""Ranks, agreement and stability against slow obvious versions and the published pairs."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import spearmanr

from backend.corpus.release import Release
from backend.geometry.neighborhoods import (
    directed_ranks,
    distance_spearman,
    mutual_ranks,
    neighbor_frame,
    neighbor_order,
    prompt_stability,
    reader_agreement,
    top_k_jaccard,
)
from backend.geometry.signatures import cosine_similarity
from backend.protocol import fold_of_prompts


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
