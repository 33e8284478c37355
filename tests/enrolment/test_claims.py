"""Claims that a log suggests: which enrolled source its models are."""

from __future__ import annotations

import io
import json
from pathlib import Path

import numpy as np
import pytest

from backend.enrolment.claims import claims_of, enrolled_as, published_sources, sentence, with_claims
from backend.intake import preview
from tests.intake.make_logs import FOLDER

SOURCES = ("gpt4o", "gpt4o_20241120", "gpt_4o_mini_2024_07_18", "gpt41_2025_04_14", "claude_opus46", "qwen25_7b")


@pytest.mark.parametrize(
    ("model", "source"),
    [
        ("gpt-4o", "gpt4o"),
        ("openai/gpt-4o-2024-11-20", "gpt4o_20241120"),
        ("gpt-4o-2024-05-13", "gpt4o"),  # nothing else is known of that version
        ("gpt-4o-mini", "gpt_4o_mini_2024_07_18"),
        ("gpt-4o-mini-2025-01-01", None),
        ("gpt-4.1", "gpt41_2025_04_14"),
        ("claude-opus-4-6", "claude_opus46"),
        ("Qwen/Qwen2.5-7B", "qwen25_7b"),
        ("Qwen/Qwen2.5-72B", None),
        ("an unknown model", None),
        ("", None),
        ("…", None),
    ],
)
def test_a_model_is_one_enrolled_source(model: str, source: str | None) -> None:
    assert enrolled_as(model, SOURCES) == source
    assert all(enrolled_as(label, SOURCES) == label for label in SOURCES)


def test_two_versions_are_no_suggestion() -> None:
    assert enrolled_as("gpt-9", ["gpt9_20260101", "gpt9_20260201"]) is None


def test_the_most_frequent_name_comes_first_and_of_equals_the_returned() -> None:
    models = [
        {"requested": "gpt-4o", "returned": "gpt-4o-mini-2024-07-18", "traces": 3},
        {"requested": "gpt-4o", "returned": None, "traces": 1},
        {"requested": None, "returned": "claude-opus-4-6", "traces": 3},
    ]
    found = claims_of(models, SOURCES)
    assert [(row["source"], row["named"], row["traces"]) for row in found] == [
        ("gpt4o", "requested", 4), ("gpt_4o_mini_2024_07_18", "returned", 3), ("claude_opus46", "returned", 3),
    ]  # fmt: skip


def test_a_preview_suggests_a_claim_and_says_why() -> None:
    with (FOLDER / "otlp.jsonl").open("rb") as stream:
        found = with_claims(preview(stream, "otlp.jsonl"), [SOURCES])
    assert [row["source"] for row in found.claims] == ["gpt_4o_mini_2024_07_18", "gpt4o"]
    words = "Suggested claim: gpt_4o_mini_2024_07_18, since gpt-4o-mini-2024-07-18 was returned in 2 of 2 traces"
    assert (sentence(found, SOURCES) or "").startswith(words)
    other = with_claims(found, [("gpt4o_mini_x", "other")])
    words = "Did you mean gpt4o_mini_x? Is your model not in the list? Enrol it: python -m jobs enroll"
    assert other.claims == () and words in (sentence(other, ["gpt4o_mini_x"]) or "")
    plain = preview(io.BytesIO(b'{"response": "r", "model": "gpt-4o"}'), "x.jsonl")
    assert with_claims(plain, [SOURCES]) == plain and sentence(plain, SOURCES) is None


def test_sources_are_read_without_what_was_learned(tmp_path: Path) -> None:
    folder = tmp_path / "enrolments"
    folder.mkdir()
    for name, sources in (("small", ["a", "b"]), ("large", ["a", "b", "c"])):
        text = json.dumps({"sources": sources}).encode()
        np.savez(folder / f"{name}.npz", description=np.frombuffer(text, np.uint8))
    (folder / "damaged.npz").write_bytes(b"PK no archive")
    (folder / "other.npz").write_bytes(b"")
    assert published_sources(tmp_path) == [("a", "b", "c"), ("a", "b")]
    assert published_sources(tmp_path / "none") == []
