"""Groups of prompts that belong together, and folds that never part them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backend.corpus.grouping import even_folds, fills_folds, group_traces, near_identical
from backend.protocol import FOLDS

LONG = (
    "please write down in full, step by step, how the queue of the old service is drained before it is restarted on {}"
)
TOPICS = {
    "tax": "should income tax wealth be raised for budget {i}",
    "energy": "is nuclear power reactor energy safe for grid {i}",
    "school": "do pupils learn in school from homework {i}",
    "traffic": "may cars drive in the city street {i}",
    "health": "does a hospital doctor need a vaccine {i}",
    "space": "will a rocket reach the moon orbit {i}",
    "sport": "can a football team win the cup {i}",
    "food": "is bread with butter and cheese healthy {i}",
    "music": "was the piano concert by the orchestra loud {i}",
    "law": "must the judge hear the witness in court {i}",
}


def two_sources(prompts: list[str]) -> tuple[np.ndarray, list[str]]:
    return np.repeat(np.arange(2), len(prompts)), prompts * 2


def parted(group: np.ndarray, folds: np.ndarray) -> set[int]:
    return {one for one in group.tolist() if len(set(folds[group == one].tolist())) > 1}


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 14), st.integers(0, 3), st.integers(0, 9)), min_size=1, max_size=60))
def test_a_group_is_never_on_both_sides(rows: list[tuple[int, int, int]]) -> None:
    prompts = [f"prompt number {prompt}" for prompt, _, _ in rows]
    labels = np.unique([source for _, source, _ in rows], return_inverse=True)[1]
    named = [f"case {case}" for _, _, case in rows]
    found = group_traces(labels, prompts, [None] * len(rows), named, "case")
    for keys in (prompts, named):
        for key in set(keys):
            assert len({int(found.group[i]) for i, one in enumerate(keys) if one == key}) == 1
    if found.validates:
        assert not parted(found.group, found.folds) and fills_folds(labels, found.folds)
    else:  # prompts stay whole all the same
        assert not parted(np.unique(prompts, return_inverse=True)[1], found.folds)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=80), st.integers(1, 4), st.integers(2, 5))
def test_folds_hold_whole_groups(groups: list[int], sources: int, folds: int) -> None:
    labels = np.unique(np.arange(len(groups)) % sources, return_inverse=True)[1]
    found = even_folds(labels, np.array(groups), folds)
    assert not parted(np.array(groups), found)
    assert found.min() >= 0 and found.max() < folds


def test_prompts_of_one_topic_are_left_out_together() -> None:
    prompts = [text.format(i=i) for text in TOPICS.values() for i in range(5)]
    found = group_traces(*two_sources(prompts))
    assert found.kinds == ("topic",) and found.validates and found.count == len(TOPICS)
    of_prompt = found.group[: len(prompts)].reshape(len(TOPICS), 5)
    assert (of_prompt == of_prompt[:, :1]).all() and len(set(of_prompt[:, 0])) == len(TOPICS)
    assert not parted(found.group, found.folds)


def test_near_identical_prompts_are_pairs_and_others_are_not() -> None:
    prompts = [LONG.format("Monday"), "What is a fold?", LONG.format("Friday"), LONG.format("Friday").upper(), "", "?"]
    pairs = {tuple(pair) for pair in near_identical(prompts).tolist()}
    assert pairs == {(0, 2), (2, 3)}


def test_conversations_and_near_identical_prompts_are_joined_through_each_other() -> None:
    prompts = [LONG.format(day) for day in ("Monday", "Friday")] + [f"{word} {word}?" for word in TOPICS]
    talks = ["a", None, "a", "b", *[None] * (len(prompts) - 4)] * 2
    found = group_traces(*two_sources(prompts), talks)
    assert found.kinds[:2] == ("near-identical prompts", "conversation id")
    assert len(set(found.unit[:3].tolist())) == 1 and found.unit[3] != found.unit[0]
    assert not parted(found.unit, found.folds)


@pytest.mark.parametrize("cases", [1, FOLDS - 1])
def test_too_few_groups_validate_nothing(cases: int) -> None:
    labels, prompts = two_sources([text.format(i=0) for text in TOPICS.values()])
    found = group_traces(labels, prompts, (), [f"case {i % 10 % cases}" for i in range(len(prompts))], "case")
    assert not found.validates and found.count == cases and fills_folds(labels, found.folds)
    assert found.facts == {"kinds": ["column 'case'"], "groups": cases, "validates": False}


def test_enough_groups_of_a_column_are_taken_as_they_are() -> None:
    labels, prompts = two_sources([text.format(i=0) for text in TOPICS.values()])
    found = group_traces(labels, prompts, (), [f"case {i % FOLDS}" for i in range(len(prompts))], "case")
    assert found.validates and found.count == FOLDS and found.kinds == ("column 'case'",)
