"""The mutual-rank rule by hand, against loops, and on the published ranks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from backend.corpus.release import Release
from backend.geometry.maps import candidate_rules, published_ranks
from backend.geometry.neighborhoods import PAPER_PAIRS, pair_ranks, passing_pairs, rank_rule
from backend.geometry.signatures import cosine_similarity

NAMES = [f"s{i}" for i in range(14)]


def geometry(seed: int) -> np.ndarray:
    points = np.random.default_rng(100).normal(size=(14, 6))
    return cosine_similarity(points + 0.6 * np.random.default_rng(seed).normal(size=points.shape))


def test_rule_by_hand() -> None:
    mutual = {"p q": [5, 6, 5, 40], "p r": [10, 11, 10, 12], "q r": [1, 2, 30, 40], "r s": [10, 10, 10, 10]}
    ranks = pd.DataFrame(
        [
            {"left": pair[0], "right": pair[2], "mutual_rank": rank}
            for reader in range(4)
            for pair, column in mutual.items()
            for rank in [column[reader]]
        ]
    )
    frame = rank_rule(ranks).set_index(["left", "right"])
    assert frame.loc[("p", "q")].tolist() == [4, 3, 5.5, True]  # three of four, median 5.5
    assert frame.loc[("p", "r")].tolist() == [4, 2, 10.5, False]
    assert frame.loc[("q", "r")].tolist() == [4, 2, 16.0, False]
    assert frame.loc[("r", "s")].tolist() == [4, 4, 10.0, True]
    # Of two readers both must agree, of five four.
    assert rank_rule(ranks.iloc[:8])["within"].tolist() == [2, 1, 2, 2]
    assert rank_rule(ranks.iloc[:8])["passes"].tolist() == [True, False, True, True]


def test_ranks_of_pairs_against_sorting() -> None:
    cosine = geometry(0)
    frame = pair_ranks(cosine, NAMES, [("s3", "s9"), ("s9", "s3"), ("s0", "s1")])

    def rank(a: int, b: int) -> int:
        others = sorted((j for j in range(14) if j != a), key=lambda j: -cosine[a, j])
        return others.index(b) + 1

    assert frame["left_to_right"].tolist() == [rank(3, 9), rank(9, 3), rank(0, 1)]
    assert frame["right_to_left"].tolist() == [rank(9, 3), rank(3, 9), rank(1, 0)]
    assert frame["mutual_rank"].tolist() == frame[["left_to_right", "right_to_left"]].max(axis=1).tolist()
    assert frame["cosine"][0] == cosine[3, 9]
    with pytest.raises(ValueError, match=r"\(s1, nobody\) is not a pair"):
        pair_ranks(cosine, NAMES, [("s1", "nobody")])
    with pytest.raises(ValueError, match="not a pair of different sources"):
        pair_ranks(cosine, NAMES, [("s1", "s1")])


def test_all_passing_pairs_are_those_that_pass_one_by_one() -> None:
    cosines = {f"reader {seed}": geometry(seed) for seed in range(4)}
    families = [f"f{i % 3}" for i in range(14)]
    every = [(a, b) for i, a in enumerate(NAMES) for b in NAMES[i + 1 :]]
    rules = rank_rule(pd.concat([pair_ranks(cosine, NAMES, every) for cosine in cosines.values()]), within=4)
    family = dict(zip(NAMES, families, strict=True))
    expected = rules[rules["passes"] & np.array([family[a] != family[b] for a, b in every])]
    found = passing_pairs(cosines, NAMES, families, within=4)
    assert 0 < len(found) < len(every)
    assert set(map(tuple, found.to_numpy().tolist())) == set(map(tuple, expected.to_numpy().tolist()))
    assert found["within"].is_monotonic_decreasing


def test_sets_that_vote() -> None:
    roles = {"a": "published-main", "b": "published-full", "c": "reader-r", "d": "reader-ur", "e": "dna"}
    mutual = {"a": 3, "b": 20, "c": 4, "d": 30, "e": 99}
    ranks = pd.DataFrame(
        [{"reader": r, "role": roles[r], "left": "p", "right": "q", "mutual_rank": mutual[r]} for r in roles]
    )
    rules = candidate_rules(ranks).set_index("over")
    assert rules["readers"].to_dict() == {
        "published-main": 1,
        "published": 2,
        "reader-r": 1,
        "reader-ur": 1,
        "published and reader-r": 3,
    }
    assert rules["median_rank"].tolist() == [3.0, 11.5, 4.0, 30.0, 4.0]
    assert rules["passes"].tolist() == [True, False, True, False, False]  # of three readers all three must agree
    assert set(candidate_rules(ranks[2:])["over"]) == {"reader-r", "reader-ur"}
    assert candidate_rules(ranks[4:]).empty


@pytest.mark.release
def test_published_candidate_pairs(release: Release) -> None:
    """The rule applied to the published ranks gives the table that the paper prints."""
    assert set(release.roster("100-way")["label"]) >= {source for pair in PAPER_PAIRS for source in pair}
    ranks = published_ranks(release.root, PAPER_PAIRS)
    assert len(ranks) == 4 * 8
    assert (ranks["mutual_rank"] == ranks[["left_to_right", "right_to_left"]].max(axis=1)).all()
    rules = candidate_rules(ranks)
    main = rules[rules["over"] == "published-main"].set_index(["left", "right"])
    assert main["readers"].tolist() == [4] * 4
    assert [main.loc[pair, "within"] for pair in PAPER_PAIRS] == [4, 4, 4, 2]
    assert [main.loc[pair, "median_rank"] for pair in PAPER_PAIRS] == [5.0, 2.5, 3.5, 11.0]
    assert [main.loc[pair, "passes"] for pair in PAPER_PAIRS] == [True, True, True, False]
    # "Stable under all eight proxies", and a pair that the other four bring over the line.
    full = rules[rules["over"] == "published"].set_index(["left", "right"])
    assert full.loc[PAPER_PAIRS[0], "within"] == 8
    assert full.loc[PAPER_PAIRS[3]].drop("over").tolist() == [8, 6, 2.0, True]
    assert set(rules["over"]) == {"published-main", "published"}
