"""Labels that look like what was typed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backend.enrolment.catalogue import SHOWN, alike, did_you_mean
from backend.store import queries
from backend.store.database import Generation, default_data_folder

LABELS = ("gpt4o", "gpt4o_mini", "gpt_5", "claude_sonnet46", "claude_opus46", "qwen25_7b", "qwen25_72b")


@pytest.mark.parametrize(
    ("typed", "first"),
    [
        ("gpt-4o", "gpt4o"),
        ("GPT 4o mini", "gpt4o_mini"),
        ("claude-sonnet-4.6", "claude_sonnet46"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen25_7b"),
        ("gpt_5", "gpt_5"),
        ("openai gpt 4o", "gpt4o"),
        ("ChatGPT-4o", "gpt4o"),
        ("gtp4o", "gpt4o"),
        ("4o mini", "gpt4o_mini"),
        ("anthropic/claude-opus-4-6", "claude_opus46"),
        ("sonet 4.6", "claude_sonnet46"),
        ("gpp-5", "gpt_5"),
    ],
)
def test_a_name_leads_to_its_label(typed: str, first: str) -> None:
    assert alike(typed, LABELS)[0] == first


def test_what_is_like_nothing_leads_nowhere() -> None:
    assert alike("zz", LABELS) == alike("", LABELS) == alike("--", LABELS) == []
    assert alike("gpt4o", ["--", ""]) == []


def test_names_of_the_shipped_sources_lead_to_their_labels() -> None:
    with Generation.open(default_data_folder()).cursor() as cursor:
        sources = queries.sources(cursor, "165-way")
    labels = sources["source"].tolist()
    found = [alike(name, labels) for name in sources["name"]]
    first = sum(names[:1] == [label] for names, label in zip(found, labels, strict=True))
    assert first >= 0.95 * len(labels)
    assert all(label in names[:3] for names, label in zip(found, labels, strict=True))


def test_a_question_names_three_labels_at_most() -> None:
    assert did_you_mean("zz", LABELS) == ""
    assert did_you_mean("openai gpt 4o", LABELS).startswith("Did you mean gpt4o or gpt4o_mini")
    assert did_you_mean("qwen25", [f"qwen25_{i}b" for i in range(9)]).count(" or ") == 2


def test_labels_that_begin_so_come_first() -> None:
    assert alike("gpt-4.1", ["gpt4o", "gpt41_nano_20250414", "gpt4"])[0] == "gpt41_nano_20250414"


def test_labels_of_the_same_letters_are_all_told_once() -> None:
    assert alike("a-b", ["a_b", "A.B", "a_b", "c"]) == ["a_b", "A.B"]


@given(st.text(max_size=30), st.lists(st.text(max_size=10), max_size=30))
def test_only_labels_come_back_and_few_of_them(typed: str, labels: list[str]) -> None:
    found = alike(typed, labels)
    assert len(found) <= SHOWN and len(set(found)) == len(found) and set(found) <= set(labels)
