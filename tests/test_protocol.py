"""Folds and groups are those of the paper's release, down to the random stream."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.protocol import BUDGETS, budget_groups, fold_of_prompts, grid_rows, held_out_pairs

PROMPTS = [f"rand-{i:06d}" for i in range(1, 501)]


@pytest.mark.release
def test_fold_zero_of_the_release_starts_with_the_known_prompts(release):
    ids = release.prompts("agent500")["sample_id"].tolist()
    shuffled = np.array(ids, dtype=object)
    np.random.default_rng(42).shuffle(shuffled)
    first = shuffled[:4].tolist()
    assert first == ["rand-000473", "rand-000132", "rand-000472", "rand-000046"]
    folds = fold_of_prompts(ids)
    assert [folds[ids.index(prompt)] for prompt in first] == [0, 0, 0, 0]
    assert np.bincount(folds).tolist() == [100] * 5


def test_folds_split_evenly_and_do_not_depend_on_anything_but_the_ids():
    folds = fold_of_prompts(PROMPTS[:23])
    assert sorted(np.bincount(folds).tolist()) == [4, 4, 5, 5, 5]
    assert (folds == fold_of_prompts(PROMPTS[:23])).all()


def test_folds_refuse_unsorted_and_too_few_prompts():
    with pytest.raises(ValueError, match="ascending"):
        fold_of_prompts(["b", "a", "c", "d", "e"])
    with pytest.raises(ValueError, match="cannot fill"):
        fold_of_prompts(["a", "b"])


def test_ten_pairs_serve_all_twenty_nested_fits():
    pairs = held_out_pairs()
    assert len(pairs) == 10
    assert {(i, j) for pair in pairs for i, j in (pair, pair[::-1])} == {
        (i, j) for i in range(5) for j in range(5) if i != j
    }


def test_groups_repeat_the_naive_walk_over_sources():
    rows = grid_rows(7, 50, np.arange(50) % 5 == 2)
    rng = np.random.default_rng(43 + 100 + 7919 * 3 + 31 * 2)
    expected, owners = [], []
    for source in range(7):
        mine = list(rows[source])
        order = np.array(mine)
        rng.shuffle(order)
        while len(order) >= 3:
            expected.append(order[:3].tolist())
            owners.append(source)
            order = order[3:]
    groups, truth = budget_groups(rows, 3, 43, 2)
    assert groups.tolist() == expected
    assert truth.tolist() == owners


def test_grouping_over_all_folds_uses_no_fold_term():
    rows = grid_rows(2, 10, np.ones(10, dtype=bool))
    assert budget_groups(rows, 5, 42, None)[0].tolist() == budget_groups(rows, 5, 42, 0)[0].tolist()
    assert budget_groups(rows, 5, 42, None)[0].tolist() != budget_groups(rows, 5, 42, 1)[0].tolist()


@given(st.integers(1, 6), st.integers(1, 40), st.sampled_from(BUDGETS), st.integers(0, 4))
def test_groups_never_repeat_a_trace_nor_mix_sources(sources, traces, budget, fold):
    rows = np.arange(sources * traces).reshape(sources, traces)
    groups, truth = budget_groups(rows, budget, 42, fold)
    assert groups.shape == (sources * (traces // budget), budget)
    assert len(np.unique(groups)) == groups.size
    assert (groups // traces == truth[:, None]).all()
